//! Round every coordinate to one of `s` levels of the norm at random, with mean exact (`[vono22]`
//! eq. 4, after `[alistarh17]`).
//!
//! `C(v)_j = norm sign(v_j) l_j / s`, where `l_j` is one of the two integers around
//! `s |v_j| / norm` and has it as its mean. The norm travels as 32 bits, so it is rounded *up* to
//! 32 bits first and everything is divided by what is sent: levels stay in `0..=s`, the mean is
//! exact, and the variance bound holds as long as the norm is a normal `f32`.

use super::coin::{self, Grid};
use super::message::{Message, Rest, Symbols, take};
use super::operator::{CompressorRow, Operator, Quantiser, Spread};
use super::spec::{SpecError, number};
use super::{CompressError, Compressor, MAX_LEVEL, largest, paper_bits};
use crate::rng::Stream;
use crate::simd::{Kernel, LANES, wide};

pub(super) const ROW: CompressorRow = CompressorRow {
    name: "qsgd",
    usage: "qsgd(s)",
    says: "stochastic rounding of `s abs(v_j) / norm(v)` to an integer level, with sign and norm",
    constant: "omega = min(d/s^2, sqrt(d)/s)",
    examples: &["qsgd(1)", "qsgd(2)", "qsgd(37)", "qsgd(65536)", "qsgd(1073741823)"],
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Qsgd {
    /// `s`, the number of levels above zero.
    levels: u32,
}

impl Compressor {
    /// Stochastic rounding to `levels` levels of the norm. "p bits" in the papers is
    /// `levels = 2^p`.
    pub const fn qsgd(levels: u32) -> Self {
        Self::whole(Operator::Qsgd(Qsgd { levels }))
    }
}

pub(super) fn read(arguments: &[&str]) -> Result<Option<Qsgd>, SpecError> {
    Ok(match arguments {
        [levels] => Some(Qsgd { levels: number(levels)? }),
        _ => None,
    })
}

impl Quantiser for Qsgd {
    fn row(&self) -> &'static CompressorRow {
        &ROW
    }

    fn arguments(&self) -> Vec<String> {
        vec![self.levels.to_string()]
    }

    fn check(&self) -> Result<(), SpecError> {
        check_levels(self.levels, || Operator::from(*self))
    }

    fn symbols(&self) -> Symbols {
        Symbols::Levels { max: self.levels, norms: true }
    }

    /// A coordinate is `1/sqrt(d)` of the norm, in root mean square.
    fn spread(&self, length: usize) -> Spread {
        Spread::Normal { square: length as u64, exact: true }
    }

    fn quantise(
        &self,
        v: &[f64],
        first: usize,
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        round_to_shares(self.levels, rounded_norm(v, first)?, v, stream, message);
        Ok(())
    }

    fn dequantise(&self, rest: &mut Rest<'_>, _shared: &mut Stream, out: &mut [f64]) {
        rebuild_shares(self.levels, rest, out);
    }

    /// `min(d/s^2, sqrt(d)/s)`.
    fn omega(&self, d: f64) -> Option<f64> {
        let s = f64::from(self.levels);
        Some((d / (s * s)).min(d.sqrt() / s))
    }

    fn alpha(&self, _d: f64) -> Option<f64> {
        None
    }

    fn level_width(&self) -> Option<f64> {
        Some(1.0 / f64::from(self.levels))
    }

    fn shares_of_norm(&self) -> Option<u32> {
        (self.levels < NARROW).then_some(self.levels)
    }

    fn published_bits(&self, d: usize) -> Option<f64> {
        Some(paper_bits(self.levels, d))
    }
}

/// Refuse a number of levels that messages cannot carry.
pub(super) fn check_levels(
    levels: u32,
    operator: impl FnOnce() -> Operator,
) -> Result<(), SpecError> {
    if (1..=MAX_LEVEL).contains(&levels) {
        return Ok(());
    }
    Err(SpecError::Argument {
        text: operator().to_string(),
        must: "the number of levels must lie in 1..=1073741823",
    })
}

/// Append the norm of a block, and its coordinates rounded at random to `levels` shares of it. No
/// coordinate is larger than the norm.
pub(super) fn round_to_shares(
    levels: u32,
    norm: f32,
    v: &[f64],
    stream: &mut Stream,
    message: &mut Message,
) {
    message.scales.push(norm);
    if norm == 0.0 {
        return;
    }
    let (per_unit, top) =
        (f64::from(levels) / f64::from(norm) * coin::CELLS, f64::from(levels) * coin::CELLS);
    let out = message.room_for_levels(v.len());
    if levels < NARROW {
        coin::round_to_levels(v, stream, out, Shares::<true> { per_unit, top });
    } else {
        coin::round_to_levels(v, stream, out, Shares::<false> { per_unit, top });
    }
}

/// Below so many levels all cells have numbers of 32 bits.
const NARROW: u32 = 1 << 15;

/// The norm, rounded up to 32 bits, where nothing overflows or is lost on the way.
#[inline(always)]
pub(super) fn ordinary_norm(v: &[f64]) -> Option<f32> {
    let plain = sum_of_squares(v, |x| x);
    if (1e-200..=1e200).contains(&plain) { round_up(plain.sqrt(), 0).ok() } else { None }
}

/// Round a short vector to shares of its norm by these words alone, and put what they stand for in
/// its place. `false`: they do not decide, and the vector is as it was.
#[inline(always)]
pub(super) fn round_by_words(
    top: u32,
    norm: f32,
    v: &mut [f64],
    words: &[u32],
    levels: &mut [i32],
) -> bool {
    let (per_unit, most) =
        (f64::from(top) / f64::from(norm) * coin::CELLS, f64::from(top) * coin::CELLS);
    let grid = Shares::<true> { per_unit, top: most };
    if (coin::Rounding { values: v, words, out: &mut *levels, grid }).run().is_some() {
        return false;
    }
    let step = f64::from(norm) / f64::from(top);
    for (x, level) in v.iter_mut().zip(levels) {
        *x = f64::from(*level) * step;
    }
    true
}

/// Take them off again.
pub(super) fn rebuild_shares(levels: u32, rest: &mut Rest<'_>, out: &mut [f64]) {
    let norm = take(&mut rest.scales, 1)[0];
    if norm == 0.0 {
        return out.fill(0.0);
    }
    let step = f64::from(norm) / f64::from(levels);
    multiply(take(&mut rest.levels, out.len()), step, out);
}

/// The levels are shares of the norm, here counted in cells of 2^-16 of a level.
#[derive(Clone, Copy)]
struct Shares<const NARROW: bool> {
    per_unit: f64,
    top: f64,
}

impl<const NARROW: bool> Shares<NARROW> {
    #[inline(always)]
    fn of(self, x: f64) -> f64 {
        let scaled = x * self.per_unit;
        // by rounding alone: |x| <= norm
        let scaled = if scaled > self.top { self.top } else { scaled };
        if scaled < -self.top { -self.top } else { scaled }
    }
}

impl<const NARROW: bool> Grid for Shares<NARROW> {
    const NARROW: bool = NARROW;

    #[inline(always)]
    fn cell(self, x: f64) -> i64 {
        coin::floor(self.of(x))
    }

    #[inline(always)]
    fn above(self, x: f64) -> u32 {
        // To the nearest cell. What rounding lifts beyond the top (by a part in 2^50, and there are
        // fewer than 2^31 cells) it brings back.
        (x * self.per_unit + (coin::MIDDLE + coin::CELLS)).to_bits() as u32
    }

    fn fraction(self, size: f64) -> f64 {
        let scaled = self.of(size);
        scaled - scaled.floor()
    }
}

wide! {
    fn multiply<'a>(levels: &'a [i32], step: f64, out: &'a mut [f64]) -> () {
        // One loop: in eights the compiler takes each number alone, or gathers them.
        for (out, level) in out.iter_mut().zip(levels) {
            *out = f64::from(*level) * step;
        }
    }
}

/// The Euclidean norm, rounded up to 32 bits: 0 for zeros alone. Nothing overflows or is lost on
/// the way.
fn rounded_norm(v: &[f64], first: usize) -> Result<f32, CompressError> {
    let plain = squares(v);
    // Then nothing overflowed, and a square that is too small for its digits is too small to
    // matter.
    let norm = if (1e-200..=1e200).contains(&plain) {
        plain.sqrt()
    } else {
        let (up, down) = (2f64.powi(600), 2f64.powi(-600));
        let (scale, back) = if largest(v, first)? > 1.0 { (down, up) } else { (up, down) };
        scaled_squares(v, scale).sqrt() * back
    };
    round_up(norm, first)
}

/// A norm, rounded up to 32 bits.
#[inline(always)]
pub(super) fn round_up(norm: f64, first: usize) -> Result<f32, CompressError> {
    let near = norm as f32;
    // By the bits, which ascend with the number: a branch would go either way half of the time.
    let rounded = f32::from_bits(near.to_bits() + u32::from(f64::from(near) < norm));
    if rounded.is_infinite() {
        return Err(CompressError::NormTooLarge { coordinate: first, norm });
    }
    Ok(rounded)
}

wide! {
    /// The sum of the squares, in eight sums.
    fn squares<'a>(v: &'a [f64]) -> f64 {
        sum_of_squares(v, |x| x)
    }
}

wide! {
    /// The same, of `scale v`.
    fn scaled_squares<'a>(v: &'a [f64], scale: f64) -> f64 {
        sum_of_squares(v, |x| x * scale)
    }
}

#[inline(always)]
fn sum_of_squares(v: &[f64], scaled: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let (whole, rest) = v.as_chunks::<LANES>();
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum = scaled(*x) * scaled(*x);
    }
    for eight in whole {
        for lane in 0..LANES {
            let x = scaled(eight[lane]);
            sums[lane] += x * x;
        }
    }
    // Without a look ahead: the compiler would split the eight lanes as the last sum takes them,
    // and keep them in pieces all the way.
    std::hint::black_box(sums).into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    #[test]
    fn the_norm_is_rounded_up_and_never_lost() {
        let norm = |v: &[f64]| rounded_norm(v, 0).unwrap();
        assert_eq!(norm(&[3.0, -4.0]), 5.0);
        assert_eq!(norm(&[]), 0.0);
        assert_eq!(norm(&[0.0, -0.0]), 0.0);
        assert_eq!(norm(&[5e-324; 3]), f32::from_bits(1));
        assert_eq!(norm(&[1e-170, 0.0]), f32::from_bits(1));
        // the nearest to 0.1 lies above it
        assert_eq!(norm(&[0.1]), 0.1f32.max(0.1f32.next_down()));
        assert_eq!(norm(&[0.3]), 0.3f32); // here too
        assert_eq!(norm(&[0.7]), 0.7f32.next_up()); // here it lies below
        assert!(f64::from(norm(&[3e30; 9])) >= 9e30);
        assert_eq!(
            rounded_norm(&[1e300, 1e300], 8),
            Err(CompressError::NormTooLarge { coordinate: 8, norm: 1e300 * 2f64.sqrt() })
        );
        assert!(rounded_norm(&[f64::from(f32::MAX) * 1.000_000_01], 0).is_err());
        assert_eq!(norm(&[f64::from(f32::MAX)]), f32::MAX);
    }

    #[test]
    fn cells_are_those_of_the_shares() {
        let mut numbers = vec![0.0; 1000];
        Seed::new(1).stream(Purpose::Data, SERVER, 0).normals(&mut numbers);
        for (levels, per_level) in
            [(16.0, 3.3), (1024.0, 200.0), (32_767.0, 1e4), (1_073_741_824.0, 1e8), (1.0, 1e-290)]
        {
            let shares =
                Shares::<false> { per_unit: per_level * coin::CELLS, top: levels * coin::CELLS };
            let narrow = Shares::<true> { per_unit: shares.per_unit, top: shares.top };
            for x in numbers.iter().copied().chain([
                0.0,
                -0.0,
                1e-200,
                -1e-200,
                levels / per_level,
                1e300,
                -1e300,
            ]) {
                let exact = (x * per_level).clamp(-levels, levels) * coin::CELLS;
                assert_eq!(shares.cell(x), exact.floor() as i64);
                assert_eq!(shares.fraction(x.abs()), exact.abs() - exact.abs().floor());
                if levels < 32_768.0 {
                    assert_eq!(i64::from(narrow.cell(x) as i32), shares.cell(x));
                }
            }
        }
    }

    #[test]
    fn the_nearest_cell_decides_as_the_right_one_or_not_at_all() {
        let mut numbers = vec![0.0; 5000];
        Seed::new(1).stream(Purpose::Data, SERVER, 1).normals(&mut numbers);
        for (levels, per_level) in [(16, 3.3), (1024, 200.0), (32_767, 6e3)] {
            let top = f64::from(levels);
            let shares =
                Shares::<true> { per_unit: per_level * coin::CELLS, top: top * coin::CELLS };
            // The largest numbers are where rounding leads beyond the top.
            let ends = [
                0.0,
                -0.0,
                1e-300,
                -1e-300,
                top / per_level,
                -top / per_level,
                (top / per_level).next_up(),
                (-top / per_level).next_down(),
            ];
            for x in numbers.iter().map(|x| x.clamp(-top / per_level, top / per_level)).chain(ends)
            {
                let cell = shares.cell(x);
                for bits in [-2, -1, 0, 1, 2, 20_000]
                    .map(|off| (cell + off) as u32 & 0xFFFF)
                    .into_iter()
                    .chain([0, 0xFFFF])
                {
                    let (level, margin) = coin::round_one(x, bits, shares);
                    if margin > 0 {
                        assert_eq!(
                            i64::from(level),
                            (cell + i64::from(0xFFFF - bits)) >> 16,
                            "{x} {bits}"
                        );
                        assert_ne!(bits, cell as u32 & 0xFFFF, "{x}");
                    }
                }
            }
        }
    }
}
