//! Make of layers the static list of steps that a group of rows goes through, forth and back.
//!
//! Nothing is decided while a net runs: shapes are checked here, parameters get their places in one
//! flat list, and tensors theirs in one arena, where one that is no longer needed makes room for
//! another.

use super::builder::Builder;
use super::layers::{Layer, LayerError};
use super::steps::{Step, Tensor};

/// The shape of what lies between two layers: one that is flat has `height` and `width` 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many channels.
    pub channels: usize,
    /// How many rows of numbers.
    pub height: usize,
    /// How many columns.
    pub width: usize,
}

impl Shape {
    /// So many numbers in a row.
    pub fn flat(channels: usize) -> Self {
        Shape { channels, height: 1, width: 1 }
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many numbers a channel has.
    pub fn area(&self) -> usize {
        self.height * self.width
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.height, self.width) {
            (1, 1) => write!(f, "{}", self.channels),
            (height, width) => write!(f, "{} x {height} x {width}", self.channels),
        }
    }
}

/// What a parameter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It multiplies inputs.
    Weight,
    /// It is added.
    Bias,
    /// It multiplies what was normalised.
    Scale,
    /// It is added to that.
    Shift,
}

/// One tensor of parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its layer: `conv1`, `linear2`, ...
    pub layer: String,
    /// Its name: `conv1.weight`.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its sizes, as PyTorch has them: the last runs fastest.
    pub sizes: Vec<usize>,
    /// Where it starts in the list of all parameters.
    pub start: usize,
    /// How many inputs an output of its layer sees.
    pub fan_in: usize,
}

impl Parameter {
    /// Where it lies in the list of all parameters.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.sizes.iter().product::<usize>()
    }
}

/// A layer as a person sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// How deep it lies in residual layers.
    pub depth: usize,
    /// The layer, as it is written.
    pub layer: String,
    /// Its name, where it has parameters.
    pub name: String,
    /// What comes out.
    pub output: Shape,
    /// How many parameters it has.
    pub parameters: usize,
    /// How many multiplications and additions it does for one row, forth; back are twice as many.
    pub flops: usize,
}

/// The steps of a net.
#[derive(Clone, Debug)]
pub struct NetPlan {
    pub(super) input: Shape,
    pub(super) outputs: usize,
    pub(super) parameters: Vec<Parameter>,
    pub(super) lines: Vec<Line>,
    pub(super) forth: Vec<Step>,
    pub(super) back: Vec<Step>,
    /// The first tensor is the input.
    pub(super) logits: Tensor,
    pub(super) slopes: Tensor,
    /// Where each tensor lies in the arena, in groups of eight numbers.
    pub(super) places: Vec<std::ops::Range<usize>>,
    /// How long the arena is.
    pub(super) arena: usize,
}

/// More parameters than any net of this program has a use for.
pub(super) const MOST_PARAMETERS: usize = 1 << 27;

impl NetPlan {
    /// The plan of these layers on rows of this shape: channels, height, width.
    pub fn new(layers: &[Layer], input: [usize; 3]) -> Result<Self, LayerError> {
        let [channels, height, width] = input;
        let input_shape = Shape { channels, height, width };
        if input.iter().any(|side| *side == 0 || *side > 1 << 24) || layers.is_empty() {
            return Err(match layers.is_empty() {
                true => LayerError::None,
                false => LayerError::Input { found: input.to_vec() },
            });
        }
        Builder::new(input_shape).finish(layers)
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.range().end)
    }

    /// How many numbers come out for a row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The shape of a row.
    pub fn input(&self) -> Shape {
        self.input
    }

    /// The parameters, in PyTorch's order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The layers as people see them.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The steps of rows from their inputs, which are the first tensor, to the outputs.
    pub fn forth(&self) -> &[Step] {
        &self.forth
    }

    /// The steps back, from the slopes of the outputs.
    pub fn back(&self) -> &[Step] {
        &self.back
    }

    /// The outputs, and their slopes.
    pub fn turning_point(&self) -> (Tensor, Tensor) {
        (self.logits, self.slopes)
    }

    /// Where a tensor lies in the arena.
    pub fn place(&self, tensor: Tensor) -> std::ops::Range<usize> {
        self.places[tensor.0].clone()
    }

    /// How many numbers a row has in the arena.
    pub fn arena(&self) -> usize {
        self.arena
    }

    /// Places of all tensors, and how long an arena they need, where each one stays for so many
    /// steps beyond its last one: for those who take several steps at once, or side by side.
    pub fn places_for(&self, longer: usize) -> (Vec<std::ops::Range<usize>>, usize) {
        let mut alive = lifetimes(self.places.len(), (&self.forth, &self.back), self.ends());
        alive.iter_mut().for_each(|(_, to)| *to = to.saturating_add(longer));
        let lengths: Vec<usize> = self.places.iter().map(|place| place.len()).collect();
        allocate(&lengths, &alive)
    }

    fn ends(&self) -> [Tensor; 2] {
        [self.logits, self.slopes]
    }

    /// Multiplications and additions for one row, forth.
    pub fn flops(&self) -> usize {
        self.lines.iter().map(|line| line.flops).sum()
    }
}

/// The first and the last step of each tensor: the input is there before all steps, and the outputs
/// and their slopes between those forth and those back.
pub(super) fn lifetimes(
    tensors: usize,
    (forth, back): (&[Step], &[Step]),
    ends: [Tensor; 2],
) -> Vec<(usize, usize)> {
    let mut alive = vec![(usize::MAX, 0); tensors];
    let mut touch = |tensor: Tensor, at: usize| {
        let (from, to) = &mut alive[tensor.0];
        (*from, *to) = ((*from).min(at), (*to).max(at));
    };
    touch(Tensor(0), 0);
    let turn = 1 + forth.len();
    ends.into_iter().for_each(|tensor| touch(tensor, turn));
    for (at, step) in forth.iter().enumerate() {
        step.touches().into_iter().for_each(|tensor| touch(tensor, 1 + at));
    }
    for (at, step) in back.iter().enumerate() {
        step.touches().into_iter().for_each(|tensor| touch(tensor, turn + 1 + at));
    }
    alive
}

/// Tensors start at multiples of this, which devices read at a time.
const ALIGNED: usize = 4;

/// Lay tensors of these lengths into one arena: each is alive from its first to its last step, and
/// takes the lowest place that is free for as long.
pub(super) fn allocate(
    lengths: &[usize],
    alive: &[(usize, usize)],
) -> (Vec<std::ops::Range<usize>>, usize) {
    let mut places: Vec<std::ops::Range<usize>> = vec![0..0; lengths.len()];
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|tensor| (alive[*tensor].0, *tensor));
    let mut end = 0;
    for (k, tensor) in order.iter().enumerate() {
        let (from, to) = alive[*tensor];
        let mut taken: Vec<&std::ops::Range<usize>> = order[..k]
            .iter()
            .filter(|other| alive[**other].1 >= from && alive[**other].0 <= to)
            .map(|other| &places[*other])
            .collect();
        taken.sort_by_key(|place| place.start);
        let mut start = 0;
        for place in taken {
            if place.start >= start + lengths[*tensor] {
                break;
            }
            start = start.max(place.end).next_multiple_of(ALIGNED);
        }
        places[*tensor] = start..start + lengths[*tensor];
        end = end.max(places[*tensor].end);
    }
    (places, end)
}
