//! Say which inputs of a convolution an output sees.

use std::ops::Range;

use super::super::plan::Shape;

/// A square kernel that moves over an image with zeros around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// What comes in.
    pub input: Shape,
    /// What comes out.
    pub output: Shape,
    /// The kernel's side.
    pub kernel: usize,
    /// How far it moves at a time.
    pub stride: usize,
    /// How many zeros lie around the image.
    pub pad: usize,
}

impl Window {
    /// The part of the kernel that lies on an image of side `side` for output `at`; what lies
    /// outside is zero, and left out.
    #[inline(always)]
    pub(super) fn inside(&self, at: usize, side: usize) -> Range<usize> {
        let start = at * self.stride;
        self.pad.saturating_sub(start)..self.kernel.min((side + self.pad).saturating_sub(start))
    }

    /// The outputs whose kernel lies on an image of side `side` altogether, of `outputs` outputs.
    #[inline(always)]
    pub(super) fn whole(&self, side: usize, outputs: usize) -> Range<usize> {
        let from = self.pad.div_ceil(self.stride).min(outputs);
        let fits = side + self.pad;
        let to = if fits < self.kernel { 0 } else { (fits - self.kernel) / self.stride + 1 };
        from..to.clamp(from, outputs)
    }

    /// The convolution that takes the slopes of outputs to those of inputs, where the stride is 1:
    /// its kernel is this one, turned by half a turn.
    pub(in super::super) fn back(&self) -> Window {
        Window {
            input: self.output,
            output: self.input,
            kernel: self.kernel,
            stride: 1,
            pad: self.kernel - 1 - self.pad,
        }
    }
}
