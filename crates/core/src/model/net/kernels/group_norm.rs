//! Give every group of channels of a row mean 0 and variance 1.

use pulp::NullaryFnOnce;

use super::super::plan::Shape;
use super::Lanes;
use crate::model::real::Real;

/// Added to variances, as in PyTorch.
pub(in super::super) const EPSILON: f64 = 1e-5;

/// `y = scale n + shift` with `n = (x - mean) r` and `r = 1 / sqrt(variance + epsilon)`.
pub(in super::super) struct GroupNorm<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) groups: usize,
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) scales: &'a [L::T],
    pub(in super::super) shifts: &'a [L::T],
    pub(in super::super) y: &'a mut [L::V],
    /// Mean and `r`, group by group.
    pub(in super::super) rates: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for GroupNorm<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let GroupNorm { lanes, of, groups, x, scales, shifts, y, rates } = self;
        let (channels, area) = (of.channels / groups, of.area());
        let share = L::T::narrow(1.0 / (channels * area) as f64);
        let epsilon = L::T::narrow(EPSILON);
        for g in 0..groups {
            let part = g * channels * area..(g + 1) * channels * area;
            let x = &x[part];
            let mut sum = lanes.zero();
            for x in x {
                sum = lanes.zip(sum, *x, |a, b| a + b);
            }
            let mean = lanes.map(sum, |s| s * share);
            let mut squares = lanes.zero();
            for x in x {
                let off = lanes.zip(*x, mean, |x, m| x - m);
                squares = lanes.mul_add(off, off, squares);
            }
            let rate = lanes.map(squares, |s| L::T::ONE / (s * share + epsilon).sqrt());
            (rates[2 * g], rates[2 * g + 1]) = (mean, rate);
            for c in 0..channels {
                let channel = g * channels + c;
                let scale = lanes.map(rate, |r| scales[channel] * r);
                let shift = lanes.splat(shifts[channel]);
                for k in 0..area {
                    let off = lanes.zip(x[c * area + k], mean, |x, m| x - m);
                    y[channel * area + k] = lanes.mul_add(off, scale, shift);
                }
            }
        }
    }
}

/// The slopes of its input, scales and shifts: with `s = scale dy`,
/// `dx = r (s - mean s - n mean(n s))`, `dscale += sum n dy`, `dshift += sum dy`.
pub(in super::super) struct GroupNormSlopes<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) groups: usize,
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) rates: &'a [L::V],
    pub(in super::super) scales: &'a [L::T],
    pub(in super::super) dy: &'a [L::V],
    pub(in super::super) dx: &'a mut [L::V],
    pub(in super::super) dscales: &'a mut [L::T],
    pub(in super::super) dshifts: &'a mut [L::T],
}

impl<L: Lanes> NullaryFnOnce for GroupNormSlopes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let GroupNormSlopes { lanes, of, groups, x, rates, scales, dy, dx, dscales, dshifts } =
            self;
        let (channels, area) = (of.channels / groups, of.area());
        let share = L::T::narrow(1.0 / (channels * area) as f64);
        for g in 0..groups {
            let (mean, rate) = (rates[2 * g], rates[2 * g + 1]);
            let normal = |x: L::V| {
                let off = lanes.zip(x, mean, |x, m| x - m);
                lanes.zip(off, rate, |off, r| off * r)
            };
            let (mut total, mut along) = (lanes.zero(), lanes.zero());
            for channel in g * channels..(g + 1) * channels {
                let scale = lanes.splat(scales[channel]);
                let (mut products, mut sums) = (lanes.zero(), lanes.zero());
                for k in channel * area..(channel + 1) * area {
                    products = lanes.mul_add(normal(x[k]), dy[k], products);
                    sums = lanes.zip(sums, dy[k], |a, b| a + b);
                }
                dscales[channel] += lanes.tree(products);
                dshifts[channel] += lanes.tree(sums);
                along = lanes.mul_add(scale, products, along);
                total = lanes.mul_add(scale, sums, total);
            }
            let (mean_slope, pull) = (
                lanes.map(total, |t| t * share),
                lanes.map(along, |a| L::T::default() - a * share),
            );
            for channel in g * channels..(g + 1) * channels {
                for k in channel * area..(channel + 1) * area {
                    let slope = lanes.map(dy[k], |s| s * scales[channel]);
                    let centred = lanes.zip(slope, mean_slope, |s, m| s - m);
                    let straight = lanes.mul_add(normal(x[k]), pull, centred);
                    dx[k] = lanes.zip(straight, rate, |s, r| s * r);
                }
            }
        }
    }
}
