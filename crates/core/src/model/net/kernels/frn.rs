//! Divide every channel of a row by its root mean square (filter response normalisation).

use pulp::NullaryFnOnce;

use super::super::plan::Shape;
use super::Lanes;
use crate::model::real::Real;

/// Added to mean squares.
pub(in super::super) const EPSILON: f64 = 1e-6;

/// `y = scale x r + shift` with `r = 1 / sqrt(mean x^2 + epsilon)`, channel by channel.
pub(in super::super) struct Frn<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) scales: &'a [L::T],
    pub(in super::super) shifts: &'a [L::T],
    pub(in super::super) y: &'a mut [L::V],
    /// `r`, one a channel.
    pub(in super::super) rates: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for Frn<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Frn { lanes, of, x, scales, shifts, y, rates } = self;
        let (share, epsilon) = (L::T::narrow(1.0 / of.area() as f64), L::T::narrow(EPSILON));
        for c in 0..of.channels {
            let (x, y) = (&x[c * of.area()..][..of.area()], &mut y[c * of.area()..][..of.area()]);
            let mut squares = lanes.zero();
            for x in x {
                squares = lanes.mul_add(*x, *x, squares);
            }
            rates[c] = lanes.map(squares, |s| L::T::ONE / (s * share + epsilon).sqrt());
            let scale = lanes.map(rates[c], |r| scales[c] * r);
            let shift = lanes.splat(shifts[c]);
            for (y, x) in y.iter_mut().zip(x) {
                *y = lanes.mul_add(*x, scale, shift);
            }
        }
    }
}

/// The slopes of its input, scales and shifts:
/// `dx = scale r (dy - x r^2 mean(x dy))`, `dscale += sum x r dy`, `dshift += sum dy`.
pub(in super::super) struct FrnSlopes<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) rates: &'a [L::V],
    pub(in super::super) scales: &'a [L::T],
    pub(in super::super) dy: &'a [L::V],
    pub(in super::super) dx: &'a mut [L::V],
    pub(in super::super) dscales: &'a mut [L::T],
    pub(in super::super) dshifts: &'a mut [L::T],
}

impl<L: Lanes> NullaryFnOnce for FrnSlopes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let FrnSlopes { lanes, of, x, rates, scales, dy, dx, dscales, dshifts } = self;
        let share = L::T::narrow(1.0 / of.area() as f64);
        for c in 0..of.channels {
            let part = c * of.area()..(c + 1) * of.area();
            let (x, dy, dx) = (&x[part.clone()], &dy[part.clone()], &mut dx[part]);
            let (mut products, mut sums) = (lanes.zero(), lanes.zero());
            for (x, slope) in x.iter().zip(dy) {
                products = lanes.mul_add(*x, *slope, products);
                sums = lanes.zip(sums, *slope, |a, b| a + b);
            }
            dscales[c] += lanes.tree(lanes.zip(products, rates[c], |p, r| p * r));
            dshifts[c] += lanes.tree(sums);
            // minus r^2 times the mean product
            let pull = lanes.zip(products, rates[c], |p, r| L::T::default() - r * r * (p * share));
            let scale = lanes.map(rates[c], |r| scales[c] * r);
            for ((dx, x), slope) in dx.iter_mut().zip(x).zip(dy) {
                *dx = lanes.zip(lanes.mul_add(*x, pull, *slope), scale, |a, b| a * b);
            }
        }
    }
}
