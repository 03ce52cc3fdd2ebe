//! Write the symbols of a message as bytes and read them back, without loss: every message has
//! exactly one encoding.
//!
//! A code writes the payload alone: who sends it, in which round and under which compressor is for
//! the envelope to say. The last byte is filled with zero bits. Whatever a decoder accepts it would
//! encode to the same bytes; anything else is refused by name, and no more memory is taken than the
//! agreed length needs. The envelope also knows how many bytes the payload has: the range coder
//! leaves its trailing zeros out (a bit or two less than a code that says itself where it ends).
//!
//! | symbols | `fixed` | `elias(integer, layout)` | `huffman` | `entropy` | `adaptive` |
//! |---|---|---|---|---|---|
//! | levels | `ceil(log2(2s + 1))` bits each | `[alistarh17]`: dense, or zeros as run lengths | the law of Gaussian vectors | one of 256 laws where messages are long, else as `adaptive` | adaptive range coder |
//! | kept indices | `ceil(log2 d)` bits each | gaps | as `entropy` | Golomb-coded gaps, near `log2 C(d, k)` | as `entropy` |
//! | numbers, norms | 32 or 64 bits | the same | the same | the same | the same |

mod adaptive;
mod ans;
mod bits;
mod classes;
mod elias;
mod fixed;
mod gaps;
mod huffman;
mod laws;
mod nonzero;
mod parametric;
mod range;
mod small;
mod stairs;

pub use elias::{Integer, Layout};

use super::message::{Message, Symbols};
use super::operator::Quantiser;
use super::spec::{SpecError, call, unknown};
use super::{Compressor, Precision};
use bits::{BitReader, BitSink, BitWriter, Counter};
use parametric::Parametric;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A lossless map between messages and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The same number of bits for every symbol.
    Fixed,
    /// Integers in one of Elias's codes.
    Elias(Integer, Layout),
    /// Levels in Huffman's code for Gaussian vectors, indices by Golomb-coded gaps.
    Huffman,
    /// Levels by one of 256 laws where messages are long and by an adaptive range coder elsewhere,
    /// indices by Golomb-coded gaps.
    Entropy,
    /// Levels by an adaptive range coder always, indices by Golomb-coded gaps.
    Adaptive,
}

/// What a code needs to know beyond its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Book {
    Nothing,
    Huffman(Box<huffman::Book>),
    Parametric(Arc<Parametric>),
}

/// Why bytes are not the encoding of a message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CodeError {
    /// The bytes end before the message does.
    #[error("the message is cut short")]
    Truncated,
    /// Bytes follow the end of the message.
    #[error("{bytes} bytes follow the end of the message")]
    Surplus {
        /// How many.
        bytes: usize,
    },
    /// The bits that fill up the last byte are not all 0.
    #[error("the padding of the last byte is not zero")]
    Padding,
    /// A level is larger than the compressor makes them.
    #[error("level {place} is beyond {max}")]
    Level {
        /// Its place.
        place: usize,
        /// The largest level.
        max: u32,
    },
    /// A run of zeros leads beyond the last coordinate.
    #[error("a run of zeros leads beyond coordinate {dimension}")]
    Run {
        /// The number of coordinates.
        dimension: usize,
    },
    /// An integer does not fit 63 bits.
    #[error("an integer of more than 63 bits")]
    Integer,
    /// Kept indices do not ascend, or lead beyond the block.
    #[error("kept index {place} does not ascend within the block")]
    Index {
        /// Its place.
        place: usize,
    },
    /// A norm is negative, infinite or not a number.
    #[error("norm {place} is not a finite number of at least +0")]
    Norm {
        /// Its place.
        place: usize,
    },
    /// A number is infinite or not a number.
    #[error("number {place} is not finite")]
    NotFinite {
        /// Its place.
        place: usize,
    },
    /// Another law is shorter for these levels.
    #[error("written by law {found}, where law {shortest} is shorter")]
    Law {
        /// The law that the message names.
        found: u8,
        /// The one that the sender should have taken.
        shortest: u8,
    },
    /// What has a symbol of its own is written as an escape.
    #[error("symbol {place} is written as an escape, without need")]
    Escape {
        /// Its place.
        place: usize,
    },
    /// A level stands where there is no coordinate.
    #[error("a level stands beyond coordinate {dimension}")]
    Beyond {
        /// The number of coordinates.
        dimension: usize,
    },
    /// The range coder would have written the same symbols otherwise.
    #[error("not the shortest ending of the range coder")]
    Ending,
    /// The compressor cannot work on vectors of this length.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl Code {
    /// Append the encoding of `message` to `out`, and say how many bits it has before the last byte
    /// is filled up.
    pub fn encode(self, message: &Message, out: &mut Vec<u8>) -> u64 {
        self.encode_with(&self.book(&message.compressor, message.dimension), message, out)
    }

    /// The number of bits that [`encode`](Self::encode) would write.
    pub fn length_bits(self, message: &Message) -> u64 {
        self.length_with(&self.book(&message.compressor, message.dimension), message)
    }

    /// Read the message of a vector of `dimension` coordinates that `compressor` made. What
    /// `message` held before is gone; its memory is reused.
    ///
    /// On an error the message holds nothing useful.
    pub fn decode(
        self,
        bytes: &[u8],
        compressor: &Compressor,
        dimension: usize,
        message: &mut Message,
    ) -> Result<(), CodeError> {
        compressor.check(dimension)?;
        self.decode_with(&self.book(compressor, dimension), bytes, compressor, dimension, message)
    }

    /// What the code needs to know beyond its name: a [`super::Channel`] computes it once.
    pub(super) fn book(self, compressor: &Compressor, dimension: usize) -> Book {
        match self {
            Code::Huffman => Book::Huffman(Box::new(huffman::Book::new(compressor, dimension))),
            Code::Entropy => match Parametric::new(compressor, dimension) {
                Some(code) => Book::Parametric(Arc::new(code)),
                None => Book::Nothing,
            },
            _ => Book::Nothing,
        }
    }

    /// Whether levels are written by one of 256 laws.
    pub(super) fn is_parametric(compressor: &Compressor, dimension: usize) -> bool {
        Parametric::new(compressor, dimension).is_some()
    }

    pub(super) fn encode_with(self, book: &Book, message: &Message, out: &mut Vec<u8>) -> u64 {
        if let Book::Parametric(code) = book {
            return code.write(message, out);
        }
        let mut sink = BitWriter::new(out);
        self.write(book, message, &mut sink);
        sink.finish()
    }

    /// Counts the levels of the codes that samplers use most without a pass through the writer.
    pub(super) fn length_with(self, book: &Book, message: &Message) -> u64 {
        let Symbols::Levels { .. } = message.compressor.operator.symbols() else {
            return self.count(book, message);
        };
        if let Book::Parametric(code) = book {
            return code.length(message);
        }
        let of = (&message.compressor, message.dimension);
        32 * message.scales.len() as u64 + self.length_of_levels(book, of, &message.levels)
    }

    /// The bits of the levels of a message, whose code has no parameters.
    pub(super) fn length_of_levels(
        self,
        book: &Book,
        (compressor, dimension): (&Compressor, usize),
        levels: &[i32],
    ) -> u64 {
        let Symbols::Levels { max, .. } = compressor.operator.symbols() else { return 0 };
        match self {
            Code::Fixed => fixed::length(max, levels),
            Code::Elias(integer, layout) => elias::length(integer, layout, levels),
            Code::Huffman => huffman(book).length(levels),
            Code::Entropy | Code::Adaptive => adaptive::length(compressor, dimension, levels),
        }
    }

    fn count(self, book: &Book, message: &Message) -> u64 {
        let mut sink = Counter::default();
        self.write(book, message, &mut sink);
        sink.finish()
    }

    fn write<S: BitSink>(self, book: &Book, message: &Message, sink: &mut S) {
        match message.compressor.operator.symbols() {
            Symbols::Numbers(precision) => write_numbers(precision, &message.values, sink),
            Symbols::Levels { max, norms: _ } => {
                for norm in &message.scales {
                    sink.put(u64::from(norm.to_bits()), 32);
                }
                match self {
                    Code::Fixed => fixed::write(max, &message.levels, sink),
                    Code::Elias(integer, layout) => {
                        elias::write(integer, layout, &message.levels, sink)
                    }
                    Code::Huffman => huffman(book).write(&message.levels, sink),
                    Code::Entropy | Code::Adaptive => adaptive::write(
                        &message.compressor,
                        message.dimension,
                        &message.levels,
                        sink,
                    ),
                }
            }
            Symbols::Sparse { keep, precision } => {
                let mut indices = message.indices.as_slice();
                for length in message.compressor.block_lengths(message.dimension) {
                    let (block, rest) = indices.split_at(length.min(keep as usize));
                    match self {
                        Code::Fixed => fixed::write_indices(length, block, sink),
                        Code::Elias(integer, _) => elias::write_indices(integer, block, sink),
                        Code::Huffman | Code::Entropy | Code::Adaptive => {
                            gaps::write(length, block, sink)
                        }
                    }
                    indices = rest;
                }
                write_numbers(precision, &message.values, sink);
            }
        }
    }

    pub(super) fn decode_with(
        self,
        book: &Book,
        bytes: &[u8],
        compressor: &Compressor,
        dimension: usize,
        message: &mut Message,
    ) -> Result<(), CodeError> {
        message.start(compressor, dimension);
        if let Book::Parametric(code) = book {
            return code.read(bytes, compressor, dimension, message);
        }
        let mut source = BitReader::new(bytes);
        match compressor.operator.symbols() {
            Symbols::Numbers(precision) => {
                read_numbers(precision, dimension, &mut source, &mut message.values)?
            }
            Symbols::Levels { max, norms } => {
                let live = if norms {
                    read_norms(compressor, dimension, &mut source, &mut message.scales)?
                } else {
                    dimension
                };
                let levels = message.room_for_levels(live);
                match self {
                    Code::Fixed => fixed::read(max, &mut source, levels)?,
                    Code::Elias(integer, layout) => {
                        elias::read(integer, layout, max, &mut source, levels)?
                    }
                    Code::Huffman => huffman(book).read(&mut source, levels)?,
                    Code::Entropy | Code::Adaptive => {
                        adaptive::read(compressor, dimension, source.rest(), levels)?;
                        message.end();
                        return Ok(());
                    }
                }
            }
            Symbols::Sparse { keep, precision } => {
                for length in compressor.block_lengths(dimension) {
                    let start = message.indices.len();
                    message.indices.resize(start + length.min(keep as usize), 0);
                    let block = &mut message.indices[start..];
                    match self {
                        Code::Fixed => fixed::read_indices(length, &mut source, block),
                        Code::Elias(integer, _) => {
                            elias::read_indices(integer, length, &mut source, block)
                        }
                        Code::Huffman | Code::Entropy | Code::Adaptive => {
                            gaps::read(length, &mut source, block)
                        }
                    }
                    .map_err(|error| match error {
                        CodeError::Index { place } => CodeError::Index { place: start + place },
                        other => other,
                    })?;
                }
                read_numbers(precision, message.indices.len(), &mut source, &mut message.values)?;
            }
        }
        message.end();
        source.finish()
    }
}

/// The book of Huffman's code.
fn huffman(book: &Book) -> &huffman::Book {
    match book {
        Book::Huffman(book) => book,
        _ => &huffman::Book::NONE, // channels have the book of their code
    }
}

fn write_numbers<S: BitSink>(precision: Precision, values: &[f64], sink: &mut S) {
    for value in values {
        match precision {
            Precision::F32 => sink.put(u64::from((*value as f32).to_bits()), 32),
            Precision::F64 => sink.put_word(value.to_bits()),
        }
    }
}

fn read_numbers(
    precision: Precision,
    count: usize,
    source: &mut BitReader<'_>,
    values: &mut Vec<f64>,
) -> Result<(), CodeError> {
    for place in 0..count {
        let value = match precision {
            Precision::F32 => f64::from(f32::from_bits(source.get(32)? as u32)),
            Precision::F64 => f64::from_bits(source.get(32)? << 32 | source.get(32)?),
        };
        if !value.is_finite() {
            return Err(CodeError::NotFinite { place });
        }
        values.push(value);
    }
    Ok(())
}

/// The norms, and how many coordinates lie in blocks whose norm is not 0.
fn read_norms(
    compressor: &Compressor,
    dimension: usize,
    source: &mut BitReader<'_>,
    scales: &mut Vec<f32>,
) -> Result<usize, CodeError> {
    let mut live = 0;
    for (place, length) in compressor.block_lengths(dimension).enumerate() {
        let norm = f32::from_bits(source.get(32)? as u32);
        if !norm.is_finite() || norm.is_sign_negative() {
            return Err(CodeError::Norm { place });
        }
        live += if norm > 0.0 { length } else { 0 };
        scales.push(norm);
    }
    Ok(live)
}

const CODES: &str = "fixed, elias(gamma|delta|omega, sparse|dense), huffman, entropy, adaptive";

/// The text that [`Code::from_str`] reads back.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::Fixed => f.write_str("fixed"),
            Code::Elias(integer, layout) => write!(f, "elias({integer}, {layout})"),
            Code::Huffman => f.write_str("huffman"),
            Code::Entropy => f.write_str("entropy"),
            Code::Adaptive => f.write_str("adaptive"),
        }
    }
}

impl FromStr for Code {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        let (name, arguments) = call(text).ok_or_else(|| unknown(text, CODES))?;
        match (name, arguments.as_slice()) {
            ("fixed", []) => Ok(Code::Fixed),
            ("huffman", []) => Ok(Code::Huffman),
            ("entropy", []) => Ok(Code::Entropy),
            ("adaptive", []) => Ok(Code::Adaptive),
            ("elias", [integer, layout]) => Ok(Code::Elias(integer.parse()?, layout.parse()?)),
            _ => Err(unknown(text, CODES)),
        }
    }
}
