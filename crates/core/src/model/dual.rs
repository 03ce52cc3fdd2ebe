//! Differentiate a function of a few numbers twice, exactly: hyper-dual numbers.
//!
//! `a + b e1 + c e2 + d e1 e2` with `e1^2 = e2^2 = 0`: where the arguments carry `e1` along one
//! variable and `e2` along another, the value carries both derivatives and the mixed second one.

use std::ops::{Add, Div, Mul, Sub};

/// What such a function may be asked with: plain numbers, or numbers with derivatives.
pub(super) trait Scalar:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// A constant.
    fn of(value: f64) -> Self;
    /// Its logarithm.
    fn ln(self) -> Self;
    /// Its square root.
    fn sqrt(self) -> Self;
}

impl Scalar for f64 {
    fn of(value: f64) -> f64 {
        value
    }

    fn ln(self) -> f64 {
        crate::simd::ln(self)
    }

    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }
}

/// A number with two first derivatives and the mixed second one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HyperDual {
    /// The number.
    pub value: f64,
    /// Its derivatives along either variable.
    pub first: [f64; 2],
    /// Its derivative along both.
    pub second: f64,
}

impl HyperDual {
    /// A function of it that has this value and these derivatives.
    fn chain(self, value: f64, slope: f64, bend: f64) -> HyperDual {
        let [a, b] = self.first;
        HyperDual {
            value,
            first: [slope * a, slope * b],
            second: slope * self.second + bend * a * b,
        }
    }
}

impl Add for HyperDual {
    type Output = HyperDual;

    fn add(self, other: HyperDual) -> HyperDual {
        HyperDual {
            value: self.value + other.value,
            first: [self.first[0] + other.first[0], self.first[1] + other.first[1]],
            second: self.second + other.second,
        }
    }
}

impl Sub for HyperDual {
    type Output = HyperDual;

    fn sub(self, other: HyperDual) -> HyperDual {
        HyperDual {
            value: self.value - other.value,
            first: [self.first[0] - other.first[0], self.first[1] - other.first[1]],
            second: self.second - other.second,
        }
    }
}

impl Mul for HyperDual {
    type Output = HyperDual;

    fn mul(self, other: HyperDual) -> HyperDual {
        let (a, b) = (self, other);
        let cross = a.first[0] * b.first[1] + a.first[1] * b.first[0];
        HyperDual {
            value: a.value * b.value,
            first: [0, 1].map(|k| a.first[k] * b.value + a.value * b.first[k]),
            second: a.second * b.value + cross + a.value * b.second,
        }
    }
}

impl Div for HyperDual {
    type Output = HyperDual;

    fn div(self, other: HyperDual) -> HyperDual {
        let one = 1.0 / other.value;
        self * other.chain(one, -one * one, 2.0 * one * one * one)
    }
}

impl Scalar for HyperDual {
    fn of(value: f64) -> HyperDual {
        HyperDual { value, first: [0.0; 2], second: 0.0 }
    }

    fn ln(self) -> HyperDual {
        let one = 1.0 / self.value;
        self.chain(crate::simd::ln(self.value), one, -one * one)
    }

    fn sqrt(self) -> HyperDual {
        let root = self.value.sqrt();
        self.chain(root, 0.5 / root, -0.25 / (root * self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x ln(y) / sqrt(x + y)`, whose derivatives are known.
    #[test]
    fn derivatives_are_those_of_calculus() {
        let (x, y) = (1.7, 2.3);
        let along = |value, first| HyperDual { value, first, second: 0.0 };
        let (a, b) = (along(x, [1.0, 0.0]), along(y, [0.0, 1.0]));
        let found = a * b.ln() / (a + b).sqrt();
        let (s, log) = (x + y, y.ln());
        let of_x = log / s.sqrt() - 0.5 * x * log / s.powf(1.5);
        let of_y = x / (y * s.sqrt()) - 0.5 * x * log / s.powf(1.5);
        let both =
            1.0 / (y * s.sqrt()) - 0.5 * (log + x / y) / s.powf(1.5) + 0.75 * x * log / s.powf(2.5);
        let expected = [x * log / s.sqrt(), of_x, of_y, both];
        let found = [found.value, found.first[0], found.first[1], found.second];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-13, "{found} is not {expected}");
        }
    }
}
