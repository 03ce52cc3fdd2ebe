//! Compute with numbers of 64 or of 32 bits.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

use pulp::bytemuck::Pod;

/// With how many bits a model computes its sums over rows. Parameters and gradients have 64 in any
/// case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// 64 bits.
    #[default]
    F64,
    /// 32 bits: faster, with two thirds of the memory, and gradients that are right to some 1e-6 of
    /// their size.
    F32,
}

/// A number that kernels compute with.
pub trait Real:
    Pod
    + Default
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
{
    /// Less than any logit.
    const LEAST: Self;
    /// One.
    const ONE: Self;

    /// The nearest of these numbers.
    fn narrow(x: f64) -> Self;

    /// The same number with 64 bits.
    fn widen(self) -> f64;

    /// Exponential, clamped to positive, finite, normal numbers.
    fn exp(self) -> Self;

    /// `self * a + b`, rounded once: in kernels alone, which are compiled for machines that have
    /// the instruction. On others, and outside, it is a call with the same bits.
    fn fused(self, a: Self, b: Self) -> Self;

    /// The square root.
    fn sqrt(self) -> Self;
}

impl Real for f64 {
    const LEAST: Self = f64::MIN;
    const ONE: Self = 1.0;

    #[inline(always)]
    fn narrow(x: f64) -> Self {
        x
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn exp(self) -> Self {
        crate::simd::exp(self)
    }

    #[inline(always)]
    #[expect(clippy::disallowed_methods)] // here alone
    fn fused(self, a: Self, b: Self) -> Self {
        self.mul_add(a, b)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
}

impl Real for f32 {
    const LEAST: Self = f32::MIN;
    const ONE: Self = 1.0;

    #[inline(always)]
    fn narrow(x: f64) -> Self {
        x as f32
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }

    /// As [`crate::simd::exp`], with fewer terms.
    #[inline(always)]
    fn exp(self) -> Self {
        // few bits, so that its products with whole numbers are exact
        const LN2_HI: f32 = 0.693_359_4;
        const LN2_LO: f32 = -2.121_944_4e-4;
        // 1.5 * 2^23: adding it rounds to an integer held in the low bits
        const ROUND: f32 = 12_582_912.0;
        let x = if self > 88.0 { 88.0 } else { self };
        let x = if x < -87.0 { -87.0 } else { x };
        let shifted = x * std::f32::consts::LOG2_E + ROUND;
        let k = shifted - ROUND;
        let r = (x - k * LN2_HI) - k * LN2_LO;
        // Taylor on |r| <= ln(2)/2: the first term left out is below 2^-27.
        let p = 1.0
            + r * (1.0
                + r * (0.5
                    + r * (1.0 / 6.0
                        + r * (1.0 / 24.0
                            + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0)))))));
        f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
    }

    #[inline(always)]
    #[expect(clippy::disallowed_methods)] // here alone
    fn fused(self, a: Self, b: Self) -> Self {
        self.mul_add(a, b)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_of_32_bits_agree_with_the_standard_library() {
        for k in -86_900..88_000i32 {
            let x = k as f32 * 1e-3;
            let (ours, theirs) = (Real::exp(x), f64::from(x).exp());
            assert!(
                (f64::from(ours) - theirs).abs() <= 2.5 * f64::from(f32::EPSILON) * theirs,
                "exp({x}) is {ours}, not {theirs}"
            );
        }
        assert_eq!(Real::exp(0f32), 1.0);
        assert!(Real::exp(f32::MAX).is_finite() && Real::exp(f32::LEAST) >= f32::MIN_POSITIVE);
    }
}
