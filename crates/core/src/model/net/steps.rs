//! Name every step that a net takes on a group of rows, and what each reads and writes.

use super::kernels::window::Window;
use super::layers::Activation;
use super::plan::Shape;

/// Numbers of a group of rows: where they are is the plan's to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tensor(pub usize);

/// A range of the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Where it starts.
    pub from: usize,
    /// The first behind it.
    pub to: usize,
}

impl Range {
    /// What lies in it.
    #[inline(always)]
    pub(super) fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.from..self.to]
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.from == self.to
    }

    /// How long it is.
    pub fn len(self) -> usize {
        self.to - self.from
    }
}

/// The weights, or scales, of a step, and its biases, or shifts: these lie behind the former, and
/// there may be none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Weights or scales.
    pub weight: Range,
    /// Biases or shifts.
    pub bias: Range,
}

/// One step. Slopes are derivatives of the loss by what their tensor holds: `x` and `y` are input
/// and output, `dx` and `dy` their slopes, `p` the parameters, `of` a shape.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the letters of every step are above
pub enum Step {
    /// A convolution.
    Conv { at: Window, p: Affine, x: Tensor, y: Tensor },
    /// The slopes of its input.
    ConvSlopes { at: Window, p: Affine, dy: Tensor, dx: Tensor },
    /// Those of its weights; the output was pooled by the largest of squares of side `tile`.
    ConvWeights { at: Window, p: Affine, tile: usize, x: Tensor, dy: Tensor },
    /// Every input to every output.
    Dense { p: Affine, x: Tensor, y: Tensor },
    /// The slopes of its input.
    DenseSlopes { p: Affine, dy: Tensor, dx: Tensor },
    /// Those of its weights.
    DenseWeights { p: Affine, x: Tensor, dy: Tensor },
    /// The largest of squares, and which one it was.
    MaxPool { of: Shape, side: usize, x: Tensor, y: Tensor, winners: Tensor },
    /// The slopes of its input.
    MaxPoolSlopes { of: Shape, side: usize, dy: Tensor, winners: Tensor, dx: Tensor },
    /// The means of rectangles.
    AvgPool { of: Shape, sides: (usize, usize), x: Tensor, y: Tensor },
    /// The slopes of its input.
    AvgPoolSlopes { of: Shape, sides: (usize, usize), dy: Tensor, dx: Tensor },
    /// A function of every number, in place where `x` is `y`.
    Activate { kind: Activation, x: Tensor, y: Tensor },
    /// The slopes of its input, from the output (swish: from the input); in place where `dy` is
    /// `dx`.
    ActivateSlopes { kind: Activation, of: Tensor, dy: Tensor, dx: Tensor },
    /// Channels by their root mean squares; `rates` keeps one over these.
    Frn { of: Shape, p: Affine, x: Tensor, y: Tensor, rates: Tensor },
    /// The slopes of its input, scales and shifts.
    FrnSlopes { of: Shape, p: Affine, x: Tensor, rates: Tensor, dy: Tensor, dx: Tensor },
    /// Groups of channels with mean 0 and variance 1; `rates` keeps means, and one over deviations.
    GroupNorm { of: Shape, groups: usize, p: Affine, x: Tensor, y: Tensor, rates: Tensor },
    /// The slopes of its input, scales and shifts.
    GroupNormSlopes {
        of: Shape,
        groups: usize,
        p: Affine,
        x: Tensor,
        rates: Tensor,
        dy: Tensor,
        dx: Tensor,
    },
    /// `y += x`.
    Add { x: Tensor, y: Tensor },
    /// `y = x`.
    Copy { x: Tensor, y: Tensor },
    /// Every `stride`th row and column, and channels of zeros.
    Pad { of: Shape, to: Shape, stride: usize, x: Tensor, y: Tensor },
    /// The slopes of its input.
    PadSlopes { of: Shape, to: Shape, stride: usize, dy: Tensor, dx: Tensor },
}

impl Step {
    /// The tensors that it reads or writes.
    pub fn touches(&self) -> Vec<Tensor> {
        match *self {
            Step::Conv { x, y, .. }
            | Step::Dense { x, y, .. }
            | Step::AvgPool { x, y, .. }
            | Step::Activate { x, y, .. }
            | Step::Add { x, y }
            | Step::Copy { x, y }
            | Step::Pad { x, y, .. } => vec![x, y],
            Step::ConvSlopes { dy, dx, .. }
            | Step::DenseSlopes { dy, dx, .. }
            | Step::AvgPoolSlopes { dy, dx, .. }
            | Step::PadSlopes { dy, dx, .. } => vec![dy, dx],
            Step::ConvWeights { x, dy, .. } | Step::DenseWeights { x, dy, .. } => vec![x, dy],
            Step::MaxPool { x, y, winners, .. } => vec![x, y, winners],
            Step::MaxPoolSlopes { dy, winners, dx, .. } => vec![dy, winners, dx],
            Step::ActivateSlopes { of, dy, dx, .. } => vec![of, dy, dx],
            Step::Frn { x, y, rates, .. } | Step::GroupNorm { x, y, rates, .. } => {
                vec![x, y, rates]
            }
            Step::FrnSlopes { x, rates, dy, dx, .. }
            | Step::GroupNormSlopes { x, rates, dy, dx, .. } => vec![x, rates, dy, dx],
        }
    }
}
