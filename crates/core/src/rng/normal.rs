//! Make normals by Box and Muller, in 32-bit arithmetic.
//!
//! A normal has 24 significant bits: noise that is scaled and added to a 64-bit parameter loses
//! nothing that a chain could show, and the registers hold twice as many. The same bits come out on
//! every machine: see [`crate::simd`].

/// How many pairs are made together.
const LANES: usize = 16;

/// Sixteen cosines and sixteen sines, each times a radius, from two random words a pair.
///
/// The radius comes from 32 random bits, so none exceeds 6.77 (the normal law has 1.4e-11 of its
/// mass beyond).
#[inline(always)]
pub(super) fn box_muller(radius: &[u32; LANES], angle: &[u32; LANES]) -> [[f32; LANES]; 2] {
    let (mut cosines, mut sines) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        let size = (-2.0 * ln_of_unit(radius[lane])).sqrt();
        let (cos, sin) = cos_sin_turns(angle[lane]);
        cosines[lane] = size * cos;
        sines[lane] = size * sin;
    }
    [cosines, sines]
}

/// Natural logarithm of `(w + 1/2) / 2^32`, never positive.
#[inline(always)]
fn ln_of_unit(word: u32) -> f32 {
    const SQRT_HALF_BITS: u32 = 0x3F35_04F3;
    // with 9 bits to spare, so that its product by an exponent is exact
    const LN2_HI: f32 = 0.693_145_75;
    const LN2_LO: f32 = 1.428_606_8e-6;
    let x = word as f32 + 0.5;
    // x = 2^k m with m in [sqrt(1/2), sqrt(2)).
    let shifted = x.to_bits().wrapping_add(0x3F80_0000 - SQRT_HALF_BITS);
    let k = ((shifted >> 23) as i32 - 127 - 32) as f32;
    let m = f32::from_bits((shifted & 0x007F_FFFF) + SQRT_HALF_BITS);
    // ln m = 2 artanh(s), s = (m - 1)/(m + 1), |s| < 0.1716, written as f - s (f - R): accurate
    // where m is near 1.
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0))));
    k * LN2_HI + (f - (s * (f - r) - k * LN2_LO))
}

/// Cosine and sine of `2 pi w / 2^32`.
#[inline(always)]
fn cos_sin_turns(word: u32) -> (f32, f32) {
    // The nearest quarter turn, and the signed rest in [-1/8, 1/8) turns.
    let quarter = word.wrapping_add(1 << 29) >> 30;
    let rest = word.wrapping_sub(quarter << 30) as i32;
    let t = rest as f32 * (core::f32::consts::TAU / 4_294_967_296.0);
    let z = t * t;
    let sin = t + t
        * (z * (-1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z * (1.0 / 362_880.0)))));
    let cos = 1.0 - z * (0.5 - z * (1.0 / 24.0 - z * (1.0 / 720.0 - z * (1.0 / 40_320.0))));
    let odd = quarter & 1 == 1;
    let (c, s) = if odd { (sin, cos) } else { (cos, sin) };
    let flip_cos = (quarter ^ (quarter >> 1)) << 31;
    let flip_sin = (quarter >> 1) << 31;
    (f32::from_bits(c.to_bits() ^ flip_cos), f32::from_bits(s.to_bits() ^ flip_sin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Kernel, run_vectorised};

    #[test]
    fn logarithms_agree_with_the_standard_library() {
        let spread = (0..400_000u32).map(|k| k.wrapping_mul(2_654_435_761));
        for word in spread.chain(0..1000).chain((0..1000).map(|k| u32::MAX - 7 * k)) {
            let exact = (f64::from(word as f32 + 0.5) / 4_294_967_296.0).ln();
            let ours = f64::from(ln_of_unit(word));
            assert!(
                (ours - exact).abs() <= 3e-7 * exact.abs() && ours <= 0.0,
                "{word}: {ours} is not {exact}"
            );
        }
        assert_eq!(ln_of_unit(u32::MAX), 0.0);
    }

    #[test]
    fn turns_agree_with_the_standard_library() {
        for word in (0..400_000u32).map(|k| k.wrapping_mul(2_654_435_761)) {
            let angle = f64::from(word) / 4_294_967_296.0 * core::f64::consts::TAU;
            let (c, s) = cos_sin_turns(word);
            assert!(
                (f64::from(c) - angle.cos()).abs() < 2.5e-7
                    && (f64::from(s) - angle.sin()).abs() < 2.5e-7,
                "{word}"
            );
        }
        assert_eq!(cos_sin_turns(0), (1.0, 0.0));
        assert_eq!(cos_sin_turns(1 << 30).1, 1.0);
        assert_eq!(cos_sin_turns(2 << 30).0, -1.0);
        assert_eq!(cos_sin_turns(3 << 30).1, -1.0);
    }

    /// In 32 bits nothing drifts: over all pairs of a fine grid of words, the second moment is 1 to
    /// a few parts in a million, and the fourth 3.
    #[test]
    fn moments_are_those_of_the_normal_law() {
        let (rows, mut second, mut fourth) = (1 << 16, 0.0, 0.0);
        for k in 0..rows {
            let radius = f64::from(
                -2.0 * ln_of_unit(((k as f64 + 0.5) * 4_294_967_296.0 / f64::from(rows)) as u32),
            );
            second += radius / 2.0;
            fourth += radius * radius * 3.0 / 8.0;
        }
        let n = f64::from(rows);
        assert!(
            (second / n - 1.0).abs() < 1e-5 && (fourth / n - 3.0).abs() < 3e-4,
            "{} {}",
            second / n,
            fourth / n
        );
        let turns: f64 =
            (0..rows).map(|k| f64::from(cos_sin_turns((k as u32) << 16).0).powi(2)).sum::<f64>()
                / n;
        assert!((turns - 0.5).abs() < 1e-7, "{turns}");
    }

    #[test]
    fn wide_registers_change_no_bit() {
        struct Pairs<'a>(&'a [u32], &'a mut Vec<u32>);
        impl Kernel for Pairs<'_> {
            type Output = ();
            #[inline(always)]
            fn run(self) {
                for both in self.0.chunks_exact(2 * LANES) {
                    let (radius, angle): (&[u32; LANES], &[u32; LANES]) = (
                        both[..LANES].try_into().expect("sixteen"),
                        both[LANES..].try_into().expect("sixteen"),
                    );
                    for normals in box_muller(radius, angle) {
                        self.1.extend(normals.map(f32::to_bits));
                    }
                }
            }
        }
        let words: Vec<u32> = (0..4096u32).map(|k| k.wrapping_mul(2_246_822_519)).collect();
        let (mut narrow, mut wide) = (Vec::new(), Vec::new());
        Pairs(&words, &mut narrow).run();
        run_vectorised(Pairs(&words, &mut wide));
        assert_eq!(narrow, wide);
    }
}
