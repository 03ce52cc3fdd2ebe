//! Hold the symbols of one compressed vector, and rebuild from them the vector that the receiver
//! sees.

use super::operator::Quantiser;
use super::{CompressError, Compressor, Precision, scaled};
use crate::rng::{Stream, Subsets};

/// A compressed vector as symbols: what a code writes and reads. Reuse one message for many
/// vectors: it keeps its memory.
#[derive(Clone, Debug)]
pub struct Message {
    pub(super) compressor: Compressor,
    pub(super) dimension: usize,
    /// One norm a block, for operators that send norms.
    pub(super) scales: Vec<f32>,
    /// One level a coordinate, but none in blocks whose norm is 0.
    pub(super) levels: Vec<i32>,
    /// How many of them belong to the vector that is being quantised or decoded: the others are
    /// left from before, to be overwritten or cut off.
    filled: usize,
    /// Kept coordinates, ascending within each block and counted from its start.
    pub(super) indices: Vec<u32>,
    /// Coordinates that travel as numbers; those of 32 bits are stored wide.
    pub(super) values: Vec<f64>,
    pub(super) scratch: Scratch,
}

/// Memory that operators reuse.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    pub(super) subsets: Option<(usize, Subsets)>,
    pub(super) order: Vec<u32>,
    /// Those of a code that reads all of a message before it knows the levels.
    pub(super) words: Vec<u32>,
    pub(super) eights: Vec<u8>,
    pub(super) escaped: Vec<u8>,
    pub(super) nonzero: Vec<i32>,
}

/// Which symbols the messages of an operator consist of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Symbols {
    /// Every coordinate as a number.
    Numbers(Precision),
    /// Every coordinate as a level of at most `max` in absolute value; with a norm a block or
    /// without.
    Levels { max: u32, norms: bool },
    /// `keep` indices a block (all, in shorter blocks), and their numbers.
    Sparse { keep: u32, precision: Precision },
}

impl Default for Message {
    fn default() -> Self {
        Self::new()
    }
}

/// Bit for bit: 0 and -0 differ.
impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        (&self.compressor, self.dimension) == (&other.compressor, other.dimension)
            && (&self.levels, &self.indices) == (&other.levels, &other.indices)
            && self.scales.iter().map(|x| x.to_bits()).eq(other.scales.iter().map(|x| x.to_bits()))
            && self.values.iter().map(|x| x.to_bits()).eq(other.values.iter().map(|x| x.to_bits()))
    }
}

impl Message {
    /// An empty message, to be filled by a quantiser or a decoder.
    pub fn new() -> Self {
        Message {
            compressor: Compressor::identity(Precision::F64),
            dimension: 0,
            scales: Vec::new(),
            levels: Vec::new(),
            filled: 0,
            indices: Vec::new(),
            values: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    pub(super) fn start(&mut self, compressor: &Compressor, dimension: usize) {
        self.compressor.clone_from(compressor);
        self.dimension = dimension;
        self.scales.clear();
        self.filled = 0;
        self.indices.clear();
        self.values.clear();
    }

    /// Places for the next `count` levels; what stands there is to be overwritten.
    pub(super) fn room_for_levels(&mut self, count: usize) -> &mut [i32] {
        let start = self.filled;
        self.filled += count;
        if self.levels.len() < self.filled {
            self.levels.resize(self.filled, 0);
        }
        &mut self.levels[start..self.filled]
    }

    /// Cut off what is left from before.
    pub(super) fn end(&mut self) {
        self.levels.truncate(self.filled);
    }

    /// What made this message.
    pub fn compressor(&self) -> &Compressor {
        &self.compressor
    }

    /// The length of the vector.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// The norms, one a block.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// The levels, one a coordinate; blocks whose norm is 0 have none.
    pub fn levels(&self) -> &[i32] {
        &self.levels
    }

    /// The kept coordinates, ascending within each block and counted from its start.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// The coordinates that travel as numbers.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The coordinates of the vector that are named, where all others are 0.
    pub fn named(&self) -> Option<&[u32]> {
        let sparse = matches!(self.compressor.operator.symbols(), Symbols::Sparse { .. });
        (sparse && self.compressor.is_whole()).then_some(&self.indices)
    }

    /// The vector that these symbols stand for.
    ///
    /// `shared` is the stream the sender drew from, at the same place, if the compressor
    /// [needs it](Compressor::needs_shared_stream); otherwise it is not touched, and any will do.
    pub fn dequantise(&self, shared: &mut Stream, out: &mut [f64]) -> Result<(), CompressError> {
        if out.len() != self.dimension {
            return Err(CompressError::Length { expected: self.dimension, found: out.len() });
        }
        let mut rest = Rest {
            scales: &self.scales,
            levels: &self.levels,
            indices: &self.indices,
            values: &self.values,
        };
        for block in out.chunks_mut(self.compressor.longest_block(self.dimension)) {
            self.compressor.operator.dequantise(&mut rest, shared, block);
        }
        if self.compressor.scaled
            && let Some(omega) = self.compressor.raw_omega(self.dimension)
        {
            scaled::apply(omega, out);
        }
        Ok(())
    }
}

/// The symbols that later blocks will take.
pub(super) struct Rest<'a> {
    pub(super) scales: &'a [f32],
    pub(super) levels: &'a [i32],
    pub(super) indices: &'a [u32],
    pub(super) values: &'a [f64],
}

/// Split the first `n` off.
pub(super) fn take<'a, T>(from: &mut &'a [T], n: usize) -> &'a [T] {
    let (now, later) = from.split_at(n);
    *from = later;
    now
}
