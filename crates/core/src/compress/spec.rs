//! Read and write compressors as text: `qsgd(16)`, `scaled(block(rand_k(10), 128))`.

use super::message::Symbols;
use super::operator::{CompressorRow, OPERATORS, Operator, Quantiser};
use super::{Compressor, Precision};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Why a compressor makes no sense, in itself or on vectors of some length.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A compressor with an argument that makes no sense.
    #[error("{text}: {must}")]
    Argument {
        /// What was asked for.
        text: String,
        /// What the argument must be.
        must: &'static str,
    },
    /// `rand_k` or `top_k` that keeps nothing, or more than there is.
    #[error("cannot keep {keep} of {available} coordinates")]
    Keep {
        /// What was asked for.
        keep: u32,
        /// The length of the vector or of a block.
        available: usize,
    },
    /// Blocks of no coordinates.
    #[error("blocks of 0 coordinates")]
    EmptyBlock,
    /// `scaled` of a compressor that has no omega to scale by.
    #[error("scaled({inner}): only an unbiased compressor with a finite omega can be scaled")]
    NotScalable {
        /// The compressor inside.
        inner: String,
    },
    /// `scaled` or `block` twice.
    #[error("{name} is applied twice")]
    Twice {
        /// `scaled` or `block`.
        name: &'static str,
    },
    /// Indices have 32 bits: longer vectors need `block`.
    #[error("{dimension} coordinates are too many to be indexed by 32 bits: use block(.., size)")]
    TooLong {
        /// The length of the vector or of a block.
        dimension: usize,
    },
    /// The text is not a compressor or a code.
    #[error("`{text}` is not one of {expected}")]
    Unknown {
        /// The part that could not be read.
        text: String,
        /// What would have been understood there.
        expected: Cow<'static, str>,
    },
}

/// What is made of other compressors.
const WRAPPERS: [CompressorRow; 2] = [
    CompressorRow {
        name: "scaled",
        usage: "scaled(c)",
        says: "an unbiased compressor, divided by 1 + omega",
        constant: "alpha = 1/(1 + omega)",
        examples: &["scaled(qsgd(4))", "scaled(rand_k(1))", "scaled(block(natural, 7))"],
    },
    CompressorRow {
        name: "block",
        usage: "block(c, size)",
        says: "a compressor on consecutive blocks, each with its own norm",
        constant: "that of the longest block",
        examples: &["block(qsgd(2), 128)", "block(rand_k(3), 4)", "block(top_k(4), 4)"],
    },
];

/// All that users can write as a compressor, in the order in which it is listed.
pub fn rows() -> impl Iterator<Item = &'static CompressorRow> {
    OPERATORS.iter().copied().chain(&WRAPPERS)
}

impl Compressor {
    /// Whether this can work on vectors of `dimension` coordinates.
    pub fn check(&self, dimension: usize) -> Result<(), SpecError> {
        self.check_arguments()?;
        let Symbols::Sparse { keep, .. } = self.operator.symbols() else { return Ok(()) };
        let available = self.block.unwrap_or(dimension);
        if keep as usize > available {
            return Err(SpecError::Keep { keep, available });
        }
        if self.longest_block(dimension) > u32::MAX as usize {
            return Err(SpecError::TooLong { dimension: self.longest_block(dimension) });
        }
        Ok(())
    }

    fn check_arguments(&self) -> Result<(), SpecError> {
        self.operator.check()?;
        if let Symbols::Sparse { keep: 0, .. } = self.operator.symbols() {
            return Err(SpecError::Keep { keep: 0, available: 0 });
        }
        if self.block == Some(0) {
            return Err(SpecError::EmptyBlock);
        }
        if self.scaled && self.operator.omega(1.0).is_none() {
            return Err(SpecError::NotScalable {
                inner: Compressor { scaled: false, ..self.clone() }.to_string(),
            });
        }
        Ok(())
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::F64 => "f64",
        })
    }
}

/// The text that [`Compressor::from_str`] reads back.
impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = &self.operator;
        match (self.scaled, self.block) {
            (false, None) => write!(f, "{operator}"),
            (true, None) => write!(f, "scaled({operator})"),
            (false, Some(size)) => write!(f, "block({operator}, {size})"),
            (true, Some(size)) => write!(f, "scaled(block({operator}, {size}))"),
        }
    }
}

impl FromStr for Compressor {
    type Err = SpecError;

    /// `scaled(block(c, n))` and `block(scaled(c), n)` are the same compressor: all blocks are
    /// scaled by the omega of the longest.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Compressor::read(text, 2)
    }
}

impl Compressor {
    /// Read a compressor inside which at most `wrappers` more can stand.
    fn read(text: &str, wrappers: u32) -> Result<Self, SpecError> {
        let text = text.trim();
        let (name, arguments) = call(text).ok_or_else(|| not_one(text))?;
        if let ("scaled" | "block", 0) = (name, wrappers) {
            return Err(SpecError::Twice {
                name: if name == "block" { "block" } else { "scaled" },
            });
        }
        let compressor = match (name, arguments.as_slice()) {
            ("scaled", [inner]) => match Compressor::read(inner, wrappers - 1)? {
                inner if inner.scaled => return Err(SpecError::Twice { name: "scaled" }),
                inner => inner.scaled(),
            },
            ("block", [inner, size]) => match Compressor::read(inner, wrappers - 1)? {
                inner if inner.block.is_some() => return Err(SpecError::Twice { name: "block" }),
                inner => inner.block(number(size)?),
            },
            (name, arguments) => match Operator::read(name, arguments)? {
                Some(operator) => Compressor::whole(operator),
                None => return Err(not_one(text)),
            },
        };
        compressor.check_arguments()?;
        Ok(compressor)
    }
}

/// `name` or `name(argument, ...)`, where arguments may hold parentheses themselves.
pub(super) fn call(text: &str) -> Option<(&str, Vec<&str>)> {
    let Some((name, rest)) = text.split_once('(') else { return Some((text, Vec::new())) };
    let inside = rest.strip_suffix(')')?;
    let (mut arguments, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (place, letter) in inside.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(inside[start..place].trim());
                start = place + 1;
            }
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    arguments.push(inside[start..].trim());
    (depth == 0).then_some((name.trim(), arguments))
}

/// The text is not one of the compressors.
fn not_one(text: &str) -> SpecError {
    let usages: Vec<&str> = rows().map(|row| row.usage).collect();
    SpecError::Unknown { text: text.to_owned(), expected: usages.join(", ").into() }
}

pub(super) fn unknown(text: &str, expected: &'static str) -> SpecError {
    SpecError::Unknown { text: text.to_owned(), expected: expected.into() }
}

pub(super) fn number<T: FromStr>(text: &str) -> Result<T, SpecError> {
    text.parse().map_err(|_| unknown(text, "the numbers that can stand there"))
}

pub(super) fn read_precision(text: &str) -> Result<Precision, SpecError> {
    match text {
        "f32" => Ok(Precision::F32),
        "f64" => Ok(Precision::F64),
        _ => Err(unknown(text, "f32, f64")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        for row in rows() {
            assert!(!row.examples.is_empty(), "{}", row.name);
            for text in row.examples {
                assert!(text.starts_with(row.name), "{text}");
                assert_eq!(text.parse::<Compressor>().unwrap().to_string(), *text);
            }
        }
        assert_eq!("identity".parse(), Ok(Compressor::identity(Precision::F32)));
        assert_eq!(
            " block( scaled(qsgd(2)),128 ) ".parse(),
            Ok(Compressor::qsgd(2).block(128).scaled())
        );
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let refused = |text: &str| text.parse::<Compressor>().unwrap_err();
        for text in ["qsgd(0)", "qsgd(1073741824)"] {
            let message = format!("{text}: the number of levels must lie in 1..=1073741823");
            assert_eq!(refused(text).to_string(), message);
        }
        assert_eq!(refused("rand_k(0)"), SpecError::Keep { keep: 0, available: 0 });
        for text in ["layered(-1)", "layered(NaN)"] {
            let message = format!("{text}: the standard deviation must be positive and finite");
            assert_eq!(refused(text).to_string(), message);
        }
        assert_eq!(refused("block(natural, 0)"), SpecError::EmptyBlock);
        assert_eq!(
            refused("scaled(top_k(1))"),
            SpecError::NotScalable { inner: "top_k(1)".into() }
        );
        assert_eq!(refused("scaled(scaled(natural))"), SpecError::Twice { name: "scaled" });
        assert_eq!(refused("block(block(natural, 2), 2)"), SpecError::Twice { name: "block" });
        let deep = "scaled(".repeat(1_000_000) + "natural" + &")".repeat(1_000_000);
        assert_eq!(refused(&deep), SpecError::Twice { name: "scaled" });
        for text in [
            "",
            "qsgd",
            "qsgd()",
            "qsgd(-1)",
            "qsgd(4",
            "qsgd(4))",
            "qsgd)4(",
            "qsgd(4)x",
            "natural(1)",
            "rand_k(1, f16)",
        ] {
            assert!(matches!(refused(text), SpecError::Unknown { .. }), "{text}");
        }
    }

    #[test]
    fn lengths_are_checked() {
        assert_eq!(Compressor::top_k(5).check(4), Err(SpecError::Keep { keep: 5, available: 4 }));
        assert_eq!(
            Compressor::rand_k(5).block(4).check(100),
            Err(SpecError::Keep { keep: 5, available: 4 })
        );
        assert_eq!(Compressor::rand_k(4).block(4).check(2), Ok(()));
        let long = u32::MAX as usize + 1;
        assert_eq!(Compressor::top_k(5).check(long), Err(SpecError::TooLong { dimension: long }));
        assert_eq!(Compressor::top_k(5).block(1 << 20).check(long), Ok(()));
        assert_eq!(Compressor::qsgd(5).check(long), Ok(()));
    }
}
