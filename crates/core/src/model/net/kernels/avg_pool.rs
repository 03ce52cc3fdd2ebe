//! Take the mean of every rectangle of an image.

use pulp::NullaryFnOnce;

use super::super::plan::Shape;
use super::Lanes;
use crate::model::real::Real;

/// `y = mean x` over rectangles of these sides.
pub(in super::super) struct AvgPool<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) sides: (usize, usize),
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) y: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for AvgPool<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let AvgPool { lanes, of, sides, x, y } = self;
        let share = L::T::narrow(1.0 / (sides.0 * sides.1) as f64);
        let mut out = 0;
        for c in 0..of.channels {
            for i in (0..of.height).step_by(sides.0) {
                for j in (0..of.width).step_by(sides.1) {
                    let corner = (c * of.height + i) * of.width + j;
                    let mut sum = lanes.zero();
                    for a in 0..sides.0 {
                        for b in 0..sides.1 {
                            sum = lanes.zip(sum, x[corner + a * of.width + b], |s, x| s + x);
                        }
                    }
                    y[out] = lanes.map(sum, |s| s * share);
                    out += 1;
                }
            }
        }
    }
}

/// Every number of a rectangle has its share of the slope.
pub(in super::super) struct AvgPoolSlopes<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) sides: (usize, usize),
    pub(in super::super) dy: &'a [L::V],
    pub(in super::super) dx: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for AvgPoolSlopes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let AvgPoolSlopes { lanes, of, sides, dy, dx } = self;
        let share = L::T::narrow(1.0 / (sides.0 * sides.1) as f64);
        let mut out = 0;
        for c in 0..of.channels {
            for i in (0..of.height).step_by(sides.0) {
                for j in (0..of.width).step_by(sides.1) {
                    let corner = (c * of.height + i) * of.width + j;
                    let slope = lanes.map(dy[out], |s| s * share);
                    for a in 0..sides.0 {
                        for b in 0..sides.1 {
                            dx[corner + a * of.width + b] = slope;
                        }
                    }
                    out += 1;
                }
            }
        }
    }
}
