//! Take the slopes of a convolution's outputs to those of its inputs.

use pulp::NullaryFnOnce;

use super::Lanes;
use super::window::Window;

/// Turn a kernel by half a turn, and exchange channels. A step of 1 back is a convolution with it;
/// its sums are in the order of slopes: by output channel, y, x.
pub(in super::super) fn half_turn<T: Copy>(at: Window, weights: &[T], turned: &mut [T]) {
    let (outputs, inputs, area) = (at.output.channels, at.input.channels, at.kernel * at.kernel);
    for c in 0..inputs {
        for o in 0..outputs {
            let from = &weights[(o * inputs + c) * area..][..area];
            let to = &mut turned[(c * outputs + o) * area..][..area];
            for (to, from) in to.iter_mut().zip(from.iter().rev()) {
                *to = *from;
            }
        }
    }
}

/// `dx = weights' * dy`, input by input, where the kernel moves by more than one.
pub(in super::super) struct ConvSlopes<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) at: Window,
    pub(in super::super) dy: &'a [L::V],
    /// Output channel, input channel, y, x.
    pub(in super::super) weights: &'a [L::T],
    pub(in super::super) dx: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for ConvSlopes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let ConvSlopes { lanes, at, dy, weights, dx } = self;
        let (inputs, kernel) = (at.input, at.kernel);
        // The outputs that see an input, in ascending order.
        let seen_by = |input: usize, outputs: usize| {
            let place = input + at.pad;
            let from = (place + 1).saturating_sub(kernel).div_ceil(at.stride);
            from..outputs.min(place / at.stride + 1)
        };
        for c in 0..inputs.channels {
            for r in 0..inputs.height {
                let rows = seen_by(r, at.output.height);
                for s in 0..inputs.width {
                    let columns = seen_by(s, at.output.width);
                    let mut sum = lanes.zero();
                    for o in 0..at.output.channels {
                        for i in rows.clone() {
                            let u = r + at.pad - i * at.stride;
                            for j in columns.clone() {
                                let v = s + at.pad - j * at.stride;
                                let weight =
                                    weights[((o * inputs.channels + c) * kernel + u) * kernel + v];
                                let slope = dy[(o * at.output.height + i) * at.output.width + j];
                                sum = lanes.mul_add(slope, lanes.splat(weight), sum);
                            }
                        }
                    }
                    dx[(c * inputs.height + r) * inputs.width + s] = sum;
                }
            }
        }
    }
}
