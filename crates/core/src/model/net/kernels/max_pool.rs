//! Keep the largest number of every square, and which one it was.

use pulp::NullaryFnOnce;

use super::super::plan::Shape;
use super::{GROUP, Lanes};
use crate::model::real::Real;

/// `y = max x` over squares; the first of several that are largest, as in PyTorch.
pub(in super::super) struct MaxPool<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) side: usize,
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) y: &'a mut [L::V],
    /// Which number of its square each was, counted row by row.
    pub(in super::super) winners: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for MaxPool<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let MaxPool { lanes, of, side, x, y, winners } = self;
        let mut out = 0;
        for c in 0..of.channels {
            for i in (0..of.height).step_by(side) {
                for j in (0..of.width).step_by(side) {
                    let corner = (c * of.height + i) * of.width + j;
                    let mut most = lanes.array(x[corner]);
                    let mut winner = [L::T::default(); GROUP];
                    let mut number = L::T::default();
                    for a in 0..side {
                        for b in 0..side {
                            let next = lanes.array(x[corner + a * of.width + b]);
                            for lane in 0..GROUP {
                                let more = next[lane] > most[lane];
                                most[lane] = if more { next[lane] } else { most[lane] };
                                winner[lane] = if more { number } else { winner[lane] };
                            }
                            number += L::T::ONE;
                        }
                    }
                    (y[out], winners[out]) = (lanes.vector(most), lanes.vector(winner));
                    out += 1;
                }
            }
        }
    }
}

/// The slope of a square goes to the number that was largest.
pub(in super::super) struct MaxPoolSlopes<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) side: usize,
    pub(in super::super) dy: &'a [L::V],
    pub(in super::super) winners: &'a [L::V],
    pub(in super::super) dx: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for MaxPoolSlopes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let MaxPoolSlopes { lanes, of, side, dy, winners, dx } = self;
        let mut out = 0;
        for c in 0..of.channels {
            for i in (0..of.height).step_by(side) {
                for j in (0..of.width).step_by(side) {
                    let corner = (c * of.height + i) * of.width + j;
                    let (slope, winner) = (lanes.array(dy[out]), lanes.array(winners[out]));
                    let mut number = L::T::default();
                    for a in 0..side {
                        for b in 0..side {
                            let mut part = [L::T::default(); GROUP];
                            for lane in 0..GROUP {
                                let won = winner[lane] == number;
                                part[lane] = if won { slope[lane] } else { L::T::default() };
                            }
                            dx[corner + a * of.width + b] = lanes.vector(part);
                            number += L::T::ONE;
                        }
                    }
                    out += 1;
                }
            }
        }
    }
}
