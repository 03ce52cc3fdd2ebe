//! Compute elementary functions eight at a time, with the same bits on every machine.
//!
//! The platform's `ln`, `cos` and `exp` differ between systems in the last bit, so a chain that
//! used them would not be reproducible. Everything here is written with `+ - * /` and `sqrt` alone,
//! which IEEE 754 rounds correctly everywhere. Rust never fuses a multiply and an add by itself, so
//! the wider registers that [`vectorised`] switches on change the speed and no bit. Kernels that
//! sum products may fuse them where they say so, which is rounded once and correctly everywhere,
//! too: by one instruction in a kernel on machines that have it, else by a slow call.

use pulp::WithSimd;

/// How many values one call works on.
pub(crate) const LANES: usize = 8;
/// Eight doubles.
pub(crate) type F8 = [f64; LANES];

/// Run `work` compiled for the widest vector registers this machine has, if the compiler inlines
/// it: a closure of some size it leaves a function of its own, compiled for the narrowest. What
/// must be fast is a `Kernel`, most simply written with `wide!`.
#[inline(always)]
pub fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    struct Closure<F>(F);
    impl<R, F: FnOnce() -> R> Kernel for Closure<F> {
        type Output = R;
        #[inline(always)]
        fn run(self) -> R {
            (self.0)()
        }
    }
    run_vectorised(Closure(work))
}

/// Work that is compiled once for every width of vector registers.
pub trait Kernel {
    /// What it computes.
    type Output;
    /// Do it. Mark this, and whatever it calls, `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

struct Work<K>(K);

impl<K: Kernel> pulp::NullaryFnOnce for Work<K> {
    type Output = K::Output;
    #[inline(always)]
    fn call(self) -> K::Output {
        self.0.run()
    }
}

/// Run a kernel with the widest vector registers this machine has (with the feature `narrow`, with
/// those that every machine has).
#[inline(always)]
pub(crate) fn run_vectorised<K: Kernel>(kernel: K) -> K::Output {
    if cfg!(feature = "narrow") {
        return kernel.run();
    }
    pulp::Arch::new().dispatch(Work(kernel))
}

/// Run a kernel with vector registers of 256 bits where there are such: for short arrays, which
/// longer registers read across the lines of the cache.
#[inline(always)]
pub(crate) fn run_in_256_bits<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(all(target_arch = "x86_64", not(feature = "narrow")))]
    if let Some(avx2) = pulp::x86::V3::try_new() {
        return avx2.vectorize(Work(kernel));
    }
    Work(kernel).0.run()
}

/// Run a kernel that names its vectors with the widest registers that this machine has (with the
/// feature `narrow`, without any).
#[inline(always)]
pub(crate) fn run_with_registers<K: WithSimd>(kernel: K) -> K::Output {
    if cfg!(feature = "narrow") {
        return kernel.with_simd(pulp::Scalar);
    }
    pulp::Arch::new().dispatch(kernel)
}

/// Define a function whose body is compiled once for each width of vector registers; the call takes
/// the widest that this machine has.
macro_rules! wide {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$life:lifetime>
        ($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        $(#[$meta])*
        $vis fn $name<$life>($($arg: $ty),*) -> $ret {
            struct Call<$life> {
                $($arg: $ty,)*
                life: std::marker::PhantomData<&$life ()>,
            }
            impl<$life> $crate::simd::Kernel for Call<$life> {
                type Output = $ret;
                #[inline(always)]
                fn run(self) -> $ret {
                    let Call { $($arg,)* life: _ } = self;
                    $body
                }
            }
            $crate::simd::run_vectorised(Call { $($arg,)* life: std::marker::PhantomData })
        }
    };
}
pub(crate) use wide;

// 2^52 as bits: or-ing an integer below 2^52 into it adds that integer
const MAGIC_BITS: u64 = 0x4330_0000_0000_0000;
/// 2^52: adding it to a smaller positive number rounds that to an integer, which is left in the low
/// bits.
pub(crate) const MAGIC: f64 = 4_503_599_627_370_496.0;

/// An integer below 2^52, exactly.
#[inline(always)]
pub(crate) fn exact_f64(integer: u64) -> f64 {
    f64::from_bits(MAGIC_BITS | integer) - MAGIC
}

/// The uniform number in (0, 1) that a random word stands for: `(w + 1/2) / 2^32`, exactly.
#[inline(always)]
pub fn unit(word: u32) -> f64 {
    (exact_f64(u64::from(word)) + 0.5) * (1.0 / 4_294_967_296.0)
}

/// `c[0] + x (c[1] + x (c[2] + ...))`.
#[inline(always)]
fn horner<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let mut value = coefficients[N - 1];
    for k in (0..N - 1).rev() {
        value = coefficients[k] + x * value;
    }
    value
}

/// 1/0!, 1/1!, ..., 1/13!.
const INVERSE_FACTORIALS: [f64; 14] = {
    let mut table = [1.0; 14];
    let mut k = 1;
    let mut factorial = 1.0;
    while k < 14 {
        factorial *= k as f64;
        table[k] = 1.0 / factorial;
        k += 1;
    }
    table
};

/// Natural logarithm of a positive, normal, finite number, to about one unit in the last place.
#[inline(always)]
pub fn ln(x: f64) -> f64 {
    const SQRT_HALF_BITS: u64 = 0x3FE6_A09E_667F_3BCD;
    const LN2_HI: f64 = 6.931_471_803_691_238e-1;
    const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
    // x = 2^k m with m in [sqrt(1/2), sqrt(2)).
    let shifted = x.to_bits().wrapping_add(0x3FF0_0000_0000_0000 - SQRT_HALF_BITS);
    let k = exact_f64(shifted >> 52) - 1023.0;
    let m = f64::from_bits((shifted & 0x000F_FFFF_FFFF_FFFF) + SQRT_HALF_BITS);
    // ln m = 2 artanh(s), s = (m - 1)/(m + 1), |s| < 0.1716, written as f - s (f - R): accurate
    // where m is near 1.
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * horner(
        z,
        [
            2.0 / 3.0,
            2.0 / 5.0,
            2.0 / 7.0,
            2.0 / 9.0,
            2.0 / 11.0,
            2.0 / 13.0,
            2.0 / 15.0,
            2.0 / 17.0,
            2.0 / 19.0,
        ],
    );
    k * LN2_HI + (f - (s * (f - r) - k * LN2_LO))
}

/// Cosine and sine of `2 pi w / 2^32`.
#[inline(always)]
pub(crate) fn cos_sin_turns(word: u32) -> (f64, f64) {
    // The nearest quarter turn, and the signed rest in [-1/8, 1/8) turns.
    let quarter = word.wrapping_add(1 << 29) >> 30;
    let rest = word.wrapping_sub(quarter << 30) as i32;
    let t = f64::from(rest) * (core::f64::consts::TAU / 4_294_967_296.0);
    let z = t * t;
    let sin = t * horner(
        z,
        [
            1.0,
            -1.0 / 6.0,
            1.0 / 120.0,
            -1.0 / 5040.0,
            1.0 / 362_880.0,
            -1.0 / 39_916_800.0,
            1.0 / 6_227_020_800.0,
            -1.0 / 1_307_674_368_000.0,
        ],
    );
    let cos = horner(
        z,
        [
            1.0,
            -0.5,
            1.0 / 24.0,
            -1.0 / 720.0,
            1.0 / 40_320.0,
            -1.0 / 3_628_800.0,
            1.0 / 479_001_600.0,
            -1.0 / 87_178_291_200.0,
            1.0 / 20_922_789_888_000.0,
        ],
    );
    let (c, s) = if quarter & 1 == 0 { (cos, sin) } else { (sin, cos) };
    let flip_cos = u64::from((quarter ^ (quarter >> 1)) & 1) << 63;
    let flip_sin = u64::from((quarter >> 1) & 1) << 63;
    (f64::from_bits(c.to_bits() ^ flip_cos), f64::from_bits(s.to_bits() ^ flip_sin))
}

/// Exponential; arguments beyond [-708, 709] are clamped to it, so the result is always a positive,
/// finite, normal number.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    const LOG2_E: f64 = core::f64::consts::LOG2_E;
    const LN2_HI: f64 = 6.931_471_803_691_238e-1;
    const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
    // 1.5 * 2^52: adding it rounds to an integer held in the low bits
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let x = if x > 709.0 { 709.0 } else { x };
    let x = if x < -708.0 { -708.0 } else { x };
    let shifted = x * LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = (x - k * LN2_HI) - k * LN2_LO;
    // Taylor on |r| <= ln(2)/2: the first term left out is below 2^-57.
    let p = horner(r, INVERSE_FACTORIALS);
    // p * 2^k: the integer k sits in the low bits of `shifted`.
    f64::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 52))
}

/// `1 / (1 + exp(-t))`.
#[inline(always)]
pub fn sigmoid(t: f64) -> f64 {
    1.0 / (1.0 + exp(-t))
}

/// `ln(1 + exp(t))` without overflow or loss.
#[inline(always)]
pub fn softplus(t: f64) -> f64 {
    let e = exp(-t.abs());
    // ln(1 + e) for e in (0, 1]: the correction term restores what 1 + e rounds away (Goldberg
    // 1991, theorem 4).
    let u = 1.0 + e;
    let log1p = if u == 1.0 { e } else { ln(u) * (e / (u - 1.0)) };
    if t > 0.0 { t + log1p } else { log1p }
}

/// The same of eight numbers, with the same bits: step by step, since the compiler computes eight
/// side by side only where a loop is short, and has no branch in it.
#[inline(always)]
pub(crate) fn softplus_of_eight(t: &F8) -> F8 {
    let (mut e, mut log) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        e[lane] = exp(-t[lane].abs());
    }
    for lane in 0..LANES {
        log[lane] = ln(1.0 + e[lane]);
    }
    for lane in 0..LANES {
        let u = 1.0 + e[lane];
        let corrected = log[lane] * (e[lane] / (u - 1.0));
        let log1p = if u == 1.0 { e[lane] } else { corrected };
        let beyond = t[lane] + log1p;
        e[lane] = if t[lane] > 0.0 { beyond } else { log1p };
    }
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within `units` in the last place of the standard library's answer.
    fn close(ours: f64, theirs: f64, units: f64) {
        assert!(
            (ours - theirs).abs() <= units * f64::EPSILON * theirs.abs().max(1e-300),
            "{ours:e} is not {theirs:e}"
        );
    }

    #[test]
    fn eight_at_a_time_have_the_bits_of_each() {
        for k in 0..10_000 {
            let first = f64::from(k - 5_000) * 0.31;
            let mut eight = [0.0, -0.0, 1e-300, -750.0, 38.0, first, -first, 0.01 * first];
            eight.rotate_left(k as usize % LANES);
            let each = eight.map(|t| softplus(t).to_bits());
            assert_eq!(softplus_of_eight(&eight).map(f64::to_bits), each, "{eight:?}");
        }
    }

    #[test]
    fn ln_agrees_with_the_standard_library() {
        for k in 0..200_000u64 {
            let x = (k as f64 + 0.5) * 7.3e-4;
            close(ln(x), x.ln(), 2.0);
            let tiny = unit((k * 21_474) as u32);
            close(ln(tiny), tiny.ln(), 2.0);
        }
        close(ln(f64::MIN_POSITIVE), f64::MIN_POSITIVE.ln(), 2.0);
        close(ln(f64::MAX), f64::MAX.ln(), 2.0);
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn exp_agrees_with_the_standard_library() {
        for k in -70_000..70_900i32 {
            let x = f64::from(k) * 0.01;
            close(exp(x), x.exp(), 2.0);
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(1e300).is_finite() && exp(-1e300) > 0.0);
    }

    #[test]
    fn turns_agree_with_the_standard_library() {
        for k in 0..200_000u32 {
            let word = k.wrapping_mul(2_654_435_761);
            let angle = f64::from(word) / 4_294_967_296.0 * core::f64::consts::TAU;
            let (c, s) = cos_sin_turns(word);
            assert!((c - angle.cos()).abs() < 1e-15 && (s - angle.sin()).abs() < 1e-15, "{word}");
        }
        assert_eq!(cos_sin_turns(0), (1.0, 0.0));
        assert_eq!(cos_sin_turns(1 << 30).1, 1.0);
        assert_eq!(cos_sin_turns(2 << 30).0, -1.0);
        assert_eq!(cos_sin_turns(3 << 30).1, -1.0);
    }

    #[test]
    fn softplus_keeps_its_digits_at_both_ends() {
        for t in [-700.0, -40.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 40.0, 700.0f64] {
            let exact = if t > 0.0 { t + (-t).exp().ln_1p() } else { t.exp().ln_1p() };
            close(softplus(t), exact, 4.0);
        }
    }

    #[test]
    fn wide_registers_change_no_bit() {
        struct Everything<'a>(&'a [u32], &'a mut Vec<u64>);
        impl Kernel for Everything<'_> {
            type Output = ();
            #[inline(always)]
            fn run(self) {
                for eight in self.0.as_chunks::<LANES>().0 {
                    let (mut logarithms, mut cosines, mut powers) =
                        ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
                    for lane in 0..LANES {
                        logarithms[lane] = ln(unit(eight[lane]));
                        cosines[lane] = cos_sin_turns(eight[lane]).0;
                        powers[lane] = exp(logarithms[lane] + cosines[lane]);
                    }
                    for numbers in [logarithms, cosines, powers] {
                        self.1.extend(numbers.map(f64::to_bits));
                    }
                }
            }
        }
        let words: Vec<u32> = (0..64u32).map(|k| k.wrapping_mul(2_246_822_519)).collect();
        let (mut narrow, mut wide, mut closure) = (Vec::new(), Vec::new(), Vec::new());
        Everything(&words, &mut narrow).run();
        run_vectorised(Everything(&words, &mut wide));
        vectorised(|| Everything(&words, &mut closure).run());
        assert_eq!(narrow, wide);
        assert_eq!(narrow, closure);
    }
}
