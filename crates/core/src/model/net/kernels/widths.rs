//! Go from numbers of 64 bits to those of a net, and back.

use pulp::NullaryFnOnce;

use super::Lanes;
use crate::model::real::Real;

/// Parameters in the net's own numbers.
pub(in super::super) struct Narrow<'a, L: Lanes> {
    pub(in super::super) x: &'a [f64],
    pub(in super::super) weights: &'a mut [L::T],
}

impl<L: Lanes> NullaryFnOnce for Narrow<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (weight, x) in self.weights.iter_mut().zip(self.x) {
            *weight = L::T::narrow(*x);
        }
    }
}

/// `out += scale * (at_x - at_z)`, or without the latter, where it is empty.
pub(in super::super) struct Widen<'a, L: Lanes> {
    pub(in super::super) scale: f64,
    pub(in super::super) at_x: &'a [L::T],
    pub(in super::super) at_z: &'a [L::T],
    pub(in super::super) out: &'a mut [f64],
}

impl<L: Lanes> NullaryFnOnce for Widen<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Widen { scale, at_x, at_z, out } = self;
        if at_z.is_empty() {
            for (out, x) in out.iter_mut().zip(at_x) {
                *out += scale * x.widen();
            }
            return;
        }
        for ((out, x), z) in out.iter_mut().zip(at_x).zip(at_z) {
            *out += scale * (x.widen() - z.widen());
        }
    }
}
