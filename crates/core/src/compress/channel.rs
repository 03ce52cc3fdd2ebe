//! Join a compressor and a code for vectors of one length, and choose the code.

use super::code::{Book, Code, CodeError, Integer, Layout};
use super::message::{Message, Symbols};
use super::operator::Quantiser;
use super::spec::SpecError;
use super::{CompressError, Compressor};
use crate::rng::{Purpose, SERVER, Seed, Stream};
use std::fmt;
use std::str::FromStr;

/// Which code a channel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeChoice {
    /// `entropy` where messages are long. Else the one that is shortest on Gaussian vectors of this
    /// length: chosen once, for the compressor and the length, without a look at any message. Both
    /// ends choose alike.
    Auto,
    /// Elias's omega code in the layout that `[alistarh17]` prescribes: sparse if
    /// `s^2 + sqrt(d) <= d/2`.
    Elias,
    /// This one.
    Exactly(Code),
}

/// A compressor and a code, agreed on by both ends, for vectors of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    compressor: Compressor,
    code: Code,
    book: Book,
    dimension: usize,
}

impl Channel {
    /// A channel for vectors of `dimension` coordinates.
    pub fn new(
        compressor: Compressor,
        choice: CodeChoice,
        dimension: usize,
    ) -> Result<Self, SpecError> {
        compressor.check(dimension)?;
        let code = match choice {
            CodeChoice::Exactly(code) => code,
            CodeChoice::Elias => {
                Code::Elias(Integer::Omega, published_layout(&compressor, dimension))
            }
            CodeChoice::Auto => shortest(&compressor, dimension),
        };
        let book = code.book(&compressor, dimension);
        Ok(Channel { compressor, code, book, dimension })
    }

    /// The compressor.
    pub fn compressor(&self) -> &Compressor {
        &self.compressor
    }

    /// The code, as it was chosen.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The length of the vectors.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Turn a vector into symbols.
    pub fn quantise(
        &self,
        v: &[f64],
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        if v.len() != self.dimension {
            return Err(CompressError::Length { expected: self.dimension, found: v.len() });
        }
        self.compressor.quantise_checked(v, stream, message)
    }

    /// Append the encoding of `message` to `out`, and say how many bits it has before the last byte
    /// is filled up.
    pub fn encode(&self, message: &Message, out: &mut Vec<u8>) -> u64 {
        self.code.encode_with(&self.book, message, out)
    }

    /// The number of bits that [`encode`](Self::encode) would write.
    pub fn length_bits(&self, message: &Message) -> u64 {
        self.code.length_with(&self.book, message)
    }

    /// Whether the length of a message depends on its levels alone, whatever the order of blocks.
    pub(super) fn counts_levels_alone(&self) -> bool {
        !matches!(self.book, Book::Parametric(_))
    }

    /// How many bits the levels of a message take that is one block.
    pub(super) fn bits_of_levels(&self, levels: &[i32]) -> u64 {
        self.code.length_of_levels(&self.book, (&self.compressor, self.dimension), levels)
    }

    /// Read a message; bytes that no message of this channel is encoded to are refused.
    pub fn decode(&self, bytes: &[u8], message: &mut Message) -> Result<(), CodeError> {
        self.code.decode_with(&self.book, bytes, &self.compressor, self.dimension, message)
    }
}

fn published_layout(compressor: &Compressor, dimension: usize) -> Layout {
    let d = compressor.longest_block(dimension) as f64;
    match compressor.operator.symbols() {
        Symbols::Levels { max, .. } if f64::from(max).powi(2) + d.sqrt() > d / 2.0 => Layout::Dense,
        _ => Layout::Sparse,
    }
}

/// The code whose encodings of a few Gaussian vectors are shortest in all; among equals the
/// simplest. Where messages are long that is `entropy`, or nearly, and on other vectors it is much
/// shorter than what is made for Gaussian ones.
fn shortest(compressor: &Compressor, dimension: usize) -> Code {
    const PROBED: usize = 4096;
    if Code::is_parametric(compressor, dimension) {
        return Code::Entropy;
    }
    let candidate = |code: Code| (code, code.book(compressor, dimension), 0);
    let mut candidates = vec![candidate(Code::Fixed)];
    if !matches!(compressor.operator.symbols(), Symbols::Numbers(_)) {
        for integer in [Integer::Gamma, Integer::Delta, Integer::Omega] {
            candidates.push(candidate(Code::Elias(integer, Layout::Sparse)));
            candidates.push(candidate(Code::Elias(integer, Layout::Dense)));
        }
        candidates.push(candidate(Code::Huffman));
        candidates.push(candidate(Code::Entropy));
        let (mut v, mut message) = (vec![0.0; dimension], Message::new());
        for round in 0..(PROBED / dimension.max(1)).clamp(1, 64) as u64 {
            Seed::new(0).stream(Purpose::Data, SERVER, round).normals(&mut v);
            // Normals are finite and small: no quantiser refuses them but `layered`, where sigma is
            // absurdly small.
            if compressor
                .quantise(
                    &v,
                    &mut Seed::new(0).stream(Purpose::Compress, SERVER, round),
                    &mut message,
                )
                .is_ok()
            {
                for (code, book, bits) in &mut candidates {
                    *bits += code.length_with(book, &message);
                }
            }
        }
    }
    candidates.into_iter().min_by_key(|(_, _, bits)| *bits).map_or(Code::Fixed, |(code, _, _)| code)
}

/// The text that [`CodeChoice::from_str`] reads back.
impl fmt::Display for CodeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeChoice::Auto => f.write_str("auto"),
            CodeChoice::Elias => f.write_str("elias"),
            CodeChoice::Exactly(code) => write!(f, "{code}"),
        }
    }
}

impl FromStr for CodeChoice {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text.trim() {
            "auto" => Ok(CodeChoice::Auto),
            "elias" => Ok(CodeChoice::Elias),
            other => other.parse().map(CodeChoice::Exactly),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_back() {
        for text in [
            "auto",
            "elias",
            "fixed",
            "huffman",
            "entropy",
            "adaptive",
            "elias(omega, dense)",
            "elias(gamma, sparse)",
            "elias(delta, dense)",
        ] {
            assert_eq!(text.parse::<CodeChoice>().unwrap().to_string(), text);
        }
        for text in ["", "elias()", "elias(omega)", "elias(omega, thick)", "fixed(3)", "range"] {
            assert!(matches!(text.parse::<CodeChoice>(), Err(SpecError::Unknown { .. })), "{text}");
        }
    }

    #[test]
    fn elias_takes_the_published_layout() {
        let code = |levels: u32| {
            Channel::new(Compressor::qsgd(levels), CodeChoice::Elias, 784).unwrap().code()
        };
        // 784/2 - 28 = 364 lies between 19^2 and 20^2.
        assert_eq!(code(19), Code::Elias(Integer::Omega, Layout::Sparse));
        assert_eq!(code(20), Code::Elias(Integer::Omega, Layout::Dense));
    }

    #[test]
    fn lengths_are_those_agreed_on() {
        let channel = Channel::new(Compressor::natural(), CodeChoice::Auto, 3).unwrap();
        let mut stream = Seed::new(1).stream(Purpose::Compress, SERVER, 0);
        let mut message = Message::new();
        assert_eq!(
            channel.quantise(&[1.0; 4], &mut stream, &mut message),
            Err(CompressError::Length { expected: 3, found: 4 })
        );
        channel.quantise(&[1.0; 3], &mut stream, &mut message).unwrap();
        assert_eq!(
            message.dequantise(&mut stream, &mut [0.0; 2]),
            Err(CompressError::Length { expected: 3, found: 2 })
        );
    }
}
