//! Compress a vector in two parts: a random quantiser and a lossless code.
//!
//! The quantiser ([`Compressor`]) is lossy: it turns a vector into the symbols of a [`Message`],
//! and [`Message::dequantise`] gives the vector that the receiver will see. The [`code`] is
//! lossless: it turns symbols into bytes and back, one encoding a message. A [`Channel`] is both,
//! for vectors of one length.
//!
//! ```
//! use consilience_core::compress::{Channel, CodeChoice, Compressor, Message};
//! use consilience_core::rng::{ClientId, Purpose, Seed};
//!
//! let channel = Channel::new(Compressor::qsgd(16), CodeChoice::Auto, 4)?;
//! let stream = Seed::new(1).stream(Purpose::Compress, ClientId(0), 7);
//! let (mut sent, mut bytes) = (Message::new(), Vec::new());
//! channel.quantise(&[0.3, -4.0, 0.0, 1.0], &mut stream.clone(), &mut sent)?;
//! let bits = channel.encode(&sent, &mut bytes);
//! assert_eq!(bits, channel.length_bits(&sent));
//!
//! let (mut received, mut vector) = (Message::new(), [0.0; 4]);
//! channel.decode(&bytes, &mut received)?;
//! received.dequantise(&mut stream.clone(), &mut vector)?;
//! assert_eq!(sent, received);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod channel;
pub mod code;
mod coin;
mod identity;
mod kept;
mod layered;
mod max_norm;
mod message;
mod natural;
mod operator;
mod paper;
mod qsgd;
mod rand_k;
mod scaled;
mod spec;
mod together;
mod top_k;
mod words;

pub use channel::{Channel, CodeChoice};
pub use message::Message;
pub use operator::CompressorRow;
pub(crate) use operator::SecondMoments;
pub use paper::paper_bits;
pub use spec::{SpecError, rows};
pub(crate) use together::Together;

use crate::rng::Stream;
use crate::simd::{Kernel, LANES, run_vectorised};
use operator::{Operator, Quantiser};

/// The largest level a message can carry, and so the most levels `qsgd` may have.
pub(crate) const MAX_LEVEL: u32 = (1 << 30) - 1;

/// How a real number travels when it is not quantised to levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits.
    F32,
    /// 64 bits, exactly.
    F64,
}

impl Precision {
    /// How many bits a number has.
    pub fn bits(self) -> u64 {
        match self {
            Precision::F32 => 32,
            Precision::F64 => 64,
        }
    }

    /// Round `values` to what the wire carries. Numbers beyond the range of 32 bits become
    /// infinite, which the receiver refuses.
    #[inline]
    pub fn round(self, values: &mut [f64]) {
        if self == Precision::F32 {
            for v in values {
                *v = f64::from(*v as f32);
            }
        }
    }
}

/// A lossy random map of vectors, known by its constants: an operator, on the whole vector or on
/// blocks, scaled down or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Compressor {
    operator: Operator,
    block: Option<usize>,
    scaled: bool,
}

/// Why a vector could not be quantised. The caller adds the client and the round.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompressError {
    /// A coordinate is not a finite number.
    #[error("coordinate {coordinate} is {value}")]
    NotFinite {
        /// Its place in the vector.
        coordinate: usize,
        /// NaN or an infinity.
        value: f64,
    },
    /// A coordinate does not fit the number format of the message.
    #[error("coordinate {coordinate} is {value:e}, beyond {limit:e}")]
    TooLarge {
        /// Its place in the vector.
        coordinate: usize,
        /// What it is.
        value: f64,
        /// The largest absolute value that can be sent.
        limit: f64,
    },
    /// The norm of the block that starts here does not fit 32 bits.
    #[error("the norm {norm:e} of the block at coordinate {coordinate} is beyond {:e}", f32::MAX)]
    NormTooLarge {
        /// Where the block starts.
        coordinate: usize,
        /// Its norm.
        norm: f64,
    },
    /// A vector has another length than the one agreed on.
    #[error("a vector of {found} coordinates where {expected} were expected")]
    Length {
        /// The length agreed on.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// The compressor cannot work on vectors of this length.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl Compressor {
    const fn whole(operator: Operator) -> Self {
        Compressor { operator, block: None, scaled: false }
    }

    /// The same, with kept coordinates at another precision. Levels have none: for those operators
    /// nothing changes.
    pub fn at(self, precision: Precision) -> Self {
        let operator = self.operator.at(precision).unwrap_or(self.operator);
        Compressor { operator, ..self }
    }

    /// `C / (1 + omega)`: contractive if this is unbiased.
    pub fn scaled(self) -> Self {
        Compressor { scaled: true, ..self }
    }

    /// The same operator on consecutive blocks of `size` coordinates, each with its own norm.
    pub fn block(self, size: usize) -> Self {
        Compressor { block: Some(size), ..self }
    }

    /// The name of what is done to one block.
    pub fn name(&self) -> &'static str {
        self.operator.row().name
    }

    /// Whether the operator works on the whole vector, not on blocks of it.
    pub(crate) const fn is_whole(&self) -> bool {
        self.block.is_none()
    }

    /// By which share of the norm of the whole vector two levels differ, where it is rounded to
    /// levels without bias.
    pub(crate) fn level_width(&self) -> Option<f64> {
        self.operator.level_width().filter(|_| self.is_whole() && !self.scaled)
    }

    /// The variance that rounding gave each coordinate of this message, where a coordinate is as
    /// likely to lie anywhere between two levels: `(norm / s)^2 / 6`, the mean of `p (1 - p)`.
    pub(crate) fn rounding_variance(&self, message: &Message) -> f64 {
        match (self.level_width(), message.scales.first()) {
            (Some(width), Some(norm)) => (width * f64::from(*norm)).powi(2) / 6.0,
            _ => 0.0,
        }
    }

    /// Whether random numbers are drawn.
    pub fn draws(&self) -> bool {
        self.operator.draws()
    }

    /// Whether the receiver needs the stream that the sender drew from: its address must then be
    /// public.
    pub fn needs_shared_stream(&self) -> bool {
        self.operator.shares_stream()
    }

    /// At which precision vectors are sent as they are, if nothing else is done to them.
    pub fn plain(&self) -> Option<Precision> {
        self.operator.plain()
    }

    /// The bits of a vector by the formula of a paper, where there is one.
    pub fn published_bits(&self, dimension: usize) -> Option<f64> {
        self.operator.published_bits(dimension)
    }

    /// The law of what the receiver sees of a vector, to second order, where it is known.
    pub(crate) fn moments(&self, dimension: usize) -> Option<SecondMoments> {
        let plain = self.operator.moments(dimension).filter(|_| self.is_whole())?;
        let factor = if self.scaled { scaled::factor(self.raw_omega(dimension)?) } else { 1.0 };
        Some(SecondMoments {
            mean: factor * plain.mean,
            squares: factor * factor * plain.squares,
            pairs: factor * factor * plain.pairs,
            noise: factor * factor * plain.noise,
        })
    }

    /// How many times as long as the vector what the receiver sees of it can be, where that has a
    /// bound: twice what follows from its constant (`1 + omega` for `rand_k`, `1 + sqrt(omega)` for
    /// rounding to levels).
    pub fn growth(&self, dimension: usize) -> Option<f64> {
        if self.plain().is_some() {
            return Some(1.0);
        }
        let unbiased = self.omega(dimension).map(|omega| 2.0 * (1.0 + omega.max(omega.sqrt())));
        unbiased.or_else(|| self.alpha(dimension).map(|_| 2.0))
    }

    /// The least known omega with `E C(v) = v` and `E norm(C(v) - v)^2 <= omega norm(v)^2` on
    /// vectors of this length, for unbiased compressors with a relative error.
    ///
    /// Numbers that travel as 32 bits add a relative 2^-48 at most. Below the smallest normal `f32`
    /// the error of a coordinate or a norm is absolute: the mean stays exact, the variance is that
    /// of a vector of about that size.
    pub fn omega(&self, dimension: usize) -> Option<f64> {
        if self.scaled { None } else { self.raw_omega(dimension) }
    }

    fn raw_omega(&self, dimension: usize) -> Option<f64> {
        self.operator.omega(self.longest_block(dimension) as f64)
    }

    /// The largest known alpha with `E norm(C(v) - v)^2 <= (1 - alpha) norm(v)^2` on vectors of
    /// this length, for contractive compressors.
    pub fn alpha(&self, dimension: usize) -> Option<f64> {
        if self.scaled {
            return self.raw_omega(dimension).map(scaled::factor);
        }
        self.operator.alpha(self.longest_block(dimension) as f64)
    }

    /// Turn a vector into symbols. What `message` held before is gone; its memory is reused.
    ///
    /// On an error the message holds nothing useful.
    pub fn quantise(
        &self,
        v: &[f64],
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        self.check(v.len())?;
        self.quantise_checked(v, stream, message)
    }

    /// The same where it is known that vectors of this length can be quantised.
    fn quantise_checked(
        &self,
        v: &[f64],
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        message.start(self, v.len());
        if self.block.is_none() && !v.is_empty() {
            self.operator.quantise(v, 0, stream, message)?;
        } else {
            for (first, block) in self.blocks(v) {
                self.operator.quantise(block, first, stream, message)?;
            }
        }
        message.end();
        Ok(())
    }
}

/// The largest absolute value; an error names the first coordinate that is not finite. The block
/// starts at coordinate `first`.
fn largest(v: &[f64], first: usize) -> Result<f64, CompressError> {
    let (top, finite) = run_vectorised(Largest(v));
    if finite {
        return Ok(top);
    }
    let place = v.iter().position(|x| !x.is_finite()).unwrap_or(0);
    Err(CompressError::NotFinite { coordinate: first + place, value: v[place] })
}

/// Finds the largest absolute value, and whether all are finite.
struct Largest<'a>(&'a [f64]);

impl Kernel for Largest<'_> {
    type Output = (f64, bool);
    #[inline(always)]
    fn run(self) -> (f64, bool) {
        // Absolute values have the order of their bits, and those that are not finite come last.
        let mut top = [0u64; LANES];
        let (whole, rest) = self.0.as_chunks::<LANES>();
        for (top, x) in top.iter_mut().zip(rest) {
            *top = x.abs().to_bits();
        }
        for eight in whole {
            for lane in 0..LANES {
                let bits = eight[lane].abs().to_bits();
                top[lane] = if bits > top[lane] { bits } else { top[lane] };
            }
        }
        let mut largest = 0;
        // else the compiler keeps the eight in pieces all the way, as they are compared here
        let top = std::hint::black_box(top);
        for bits in top {
            largest = if bits > largest { bits } else { largest };
        }
        (f64::from_bits(largest), largest < f64::INFINITY.to_bits())
    }
}
