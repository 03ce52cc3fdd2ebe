//! Apply a function to every number, and its derivative to every slope.

use pulp::NullaryFnOnce;

use super::super::layers::Activation;
use super::Lanes;
use crate::model::real::Real;

/// `y = f(y)`, in place.
pub(in super::super) struct Activate<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) kind: Activation,
    pub(in super::super) y: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for Activate<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Activate { lanes, kind, y } = self;
        match kind {
            Activation::Relu => y.iter_mut().for_each(|v| *v = lanes.map(*v, relu)),
            Activation::Tanh => y.iter_mut().for_each(|v| *v = lanes.map(*v, tanh)),
            Activation::Sigmoid => y.iter_mut().for_each(|v| *v = lanes.map(*v, sigmoid)),
            Activation::Swish => {
                y.iter_mut().for_each(|v| *v = lanes.map(*v, |x| x * sigmoid(x)));
            }
        }
    }
}

/// `dy = f' dy`, in place: from the output of `f`, but for swish from its input.
pub(in super::super) struct ActivateSlopes<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) kind: Activation,
    pub(in super::super) of: &'a [L::V],
    pub(in super::super) dy: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for ActivateSlopes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let ActivateSlopes { lanes, kind, of, dy } = self;
        let one = L::T::ONE;
        match kind {
            Activation::Relu => {
                each(
                    lanes,
                    of,
                    dy,
                    |y, slope| {
                        if y > L::T::default() { slope } else { L::T::default() }
                    },
                )
            }
            Activation::Tanh => each(lanes, of, dy, |y, slope| slope * (one - y * y)),
            Activation::Sigmoid => each(lanes, of, dy, |y, slope| slope * (y * (one - y))),
            Activation::Swish => each(lanes, of, dy, |x, slope| {
                let s = sigmoid(x);
                slope * (s + x * s * (one - s))
            }),
        }
    }
}

#[inline(always)]
fn each<L: Lanes>(lanes: L, of: &[L::V], dy: &mut [L::V], derivative: impl Fn(L::T, L::T) -> L::T) {
    for (value, slope) in of.iter().zip(dy) {
        *slope = lanes.zip(*value, *slope, &derivative);
    }
}

#[inline(always)]
fn relu<T: Real>(x: T) -> T {
    // what is no number stays none
    if x < T::default() { T::default() } else { x }
}

/// Without overflow: the exponential is clamped.
#[inline(always)]
fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (T::default() - x).exp())
}

#[inline(always)]
fn tanh<T: Real>(x: T) -> T {
    let s = sigmoid(x + x);
    s + s - T::ONE
}
