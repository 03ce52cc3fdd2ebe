//! Read and write compressors as text: `qsgd(16)`, `scaled(block(rand_k(10), 128))`.

use super::{Compressor, MAX_LEVEL, Operator, Precision};
use std::fmt;
use std::str::FromStr;

/// Why a compressor makes no sense, in itself or on vectors of some length.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// `qsgd` with no levels or too many.
    #[error("qsgd({levels}): the number of levels must lie in 1..={MAX_LEVEL}")]
    Levels {
        /// What was asked for.
        levels: u32,
    },
    /// `rand_k` or `top_k` that keeps nothing, or more than there is.
    #[error("cannot keep {keep} of {available} coordinates")]
    Keep {
        /// What was asked for.
        keep: u32,
        /// The length of the vector or of a block.
        available: usize,
    },
    /// `layered` with a standard deviation that is not positive and finite.
    #[error("layered({sigma}): the standard deviation must be positive and finite")]
    Sigma {
        /// What was asked for.
        sigma: f64,
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
        expected: &'static str,
    },
}

const COMPRESSORS: &str = "identity(f32|f64), qsgd(s), natural, rand_k(k), top_k(k), \
    layered(sigma), scaled(c), block(c, size)";

impl Compressor {
    /// Whether this can work on vectors of `dimension` coordinates.
    pub fn check(&self, dimension: usize) -> Result<(), SpecError> {
        self.check_parameters()?;
        let available = self.block.unwrap_or(dimension);
        match self.operator {
            Operator::RandK { keep, .. } | Operator::TopK { keep, .. }
                if keep as usize > available =>
            {
                Err(SpecError::Keep { keep, available })
            }
            Operator::RandK { .. } | Operator::TopK { .. }
                if self.longest_block(dimension) > u32::MAX as usize =>
            {
                Err(SpecError::TooLong { dimension: self.longest_block(dimension) })
            }
            _ => Ok(()),
        }
    }

    fn check_parameters(&self) -> Result<(), SpecError> {
        match self.operator {
            Operator::Qsgd { levels } if levels == 0 || levels > MAX_LEVEL => {
                return Err(SpecError::Levels { levels });
            }
            Operator::RandK { keep: 0, .. } | Operator::TopK { keep: 0, .. } => {
                return Err(SpecError::Keep { keep: 0, available: 0 });
            }
            Operator::Layered { sigma } if !(sigma > 0.0 && sigma < f64::INFINITY) => {
                return Err(SpecError::Sigma { sigma });
            }
            _ => {}
        }
        if self.block == Some(0) {
            return Err(SpecError::EmptyBlock);
        }
        if self.scaled && matches!(self.operator, Operator::TopK { .. } | Operator::Layered { .. })
        {
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

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Operator::Identity(precision) => write!(f, "identity({precision})"),
            Operator::Qsgd { levels } => write!(f, "qsgd({levels})"),
            Operator::Natural => f.write_str("natural"),
            Operator::RandK { keep, precision: Precision::F32 } => write!(f, "rand_k({keep})"),
            Operator::RandK { keep, precision } => write!(f, "rand_k({keep}, {precision})"),
            Operator::TopK { keep, precision: Precision::F32 } => write!(f, "top_k({keep})"),
            Operator::TopK { keep, precision } => write!(f, "top_k({keep}, {precision})"),
            Operator::Layered { sigma } => write!(f, "layered({sigma})"),
        }
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
        let (name, arguments) = call(text).ok_or_else(|| unknown(text, COMPRESSORS))?;
        if let ("scaled" | "block", 0) = (name, wrappers) {
            return Err(SpecError::Twice {
                name: if name == "block" { "block" } else { "scaled" },
            });
        }
        let compressor = match (name, arguments.as_slice()) {
            ("identity", []) => Compressor::identity(Precision::F32),
            ("identity", [precision]) => Compressor::identity(read_precision(precision)?),
            ("qsgd", [levels]) => Compressor::qsgd(number(levels)?),
            ("natural", []) => Compressor::natural(),
            ("rand_k", [keep]) => Compressor::rand_k(number(keep)?),
            ("rand_k", [keep, precision]) => {
                Compressor::rand_k(number(keep)?).at(read_precision(precision)?)
            }
            ("top_k", [keep]) => Compressor::top_k(number(keep)?),
            ("top_k", [keep, precision]) => {
                Compressor::top_k(number(keep)?).at(read_precision(precision)?)
            }
            ("layered", [sigma]) => Compressor::layered(number(sigma)?),
            ("scaled", [inner]) => match Compressor::read(inner, wrappers - 1)? {
                inner if inner.scaled => return Err(SpecError::Twice { name: "scaled" }),
                inner => inner.scaled(),
            },
            ("block", [inner, size]) => match Compressor::read(inner, wrappers - 1)? {
                inner if inner.block.is_some() => return Err(SpecError::Twice { name: "block" }),
                inner => inner.block(number(size)?),
            },
            _ => return Err(unknown(text, COMPRESSORS)),
        };
        compressor.check_parameters()?;
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

pub(super) fn unknown(text: &str, expected: &'static str) -> SpecError {
    SpecError::Unknown { text: text.to_owned(), expected }
}

fn number<T: FromStr>(text: &str) -> Result<T, SpecError> {
    text.parse().map_err(|_| unknown(text, "the numbers that can stand there"))
}

fn read_precision(text: &str) -> Result<Precision, SpecError> {
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
        for text in [
            "identity(f32)",
            "identity(f64)",
            "qsgd(16)",
            "natural",
            "rand_k(10)",
            "rand_k(10, f64)",
            "top_k(1)",
            "top_k(3, f64)",
            "layered(0.125)",
            "scaled(qsgd(4))",
            "block(qsgd(2), 128)",
            "scaled(block(natural, 7))",
        ] {
            assert_eq!(text.parse::<Compressor>().unwrap().to_string(), text);
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
        assert_eq!(refused("qsgd(0)"), SpecError::Levels { levels: 0 });
        assert_eq!(refused("qsgd(1073741824)"), SpecError::Levels { levels: 1 << 30 });
        assert_eq!(refused("rand_k(0)"), SpecError::Keep { keep: 0, available: 0 });
        assert_eq!(refused("layered(-1)"), SpecError::Sigma { sigma: -1.0 });
        assert!(matches!(refused("layered(NaN)"), SpecError::Sigma { .. }));
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
