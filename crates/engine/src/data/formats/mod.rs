//! Read files of the formats that data sets come in: one format a file, every complaint with its
//! line or offset.
//!
//! A reader believes no count in a file before it has compared it with the bytes that are there, so
//! no file makes it allocate more than a small multiple of its own size; compressed files are held
//! to a stated expansion.

pub mod cifar;
pub mod covtype;
pub mod csv;
mod file;
pub mod idx;
pub mod libsvm;
pub mod npy;
pub mod npz;
mod packed;
pub mod parquet;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use csv::{RawColumn, RawTable};
pub(crate) use file::read_text;
pub use file::{DataFile, FORMATS, Format, open};
pub use packed::{read, unpack};

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum At {
    /// A line, from 1.
    Line(u64),
    /// A row of a file that has no lines, from 1.
    Row(u64),
    /// A byte, from 0.
    Byte(u64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Line(line) => write!(f, "line {line}"),
            At::Row(row) => write!(f, "row {row}"),
            At::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FormatError {
    /// The file cannot be opened or read.
    #[error("{file}: cannot be read ({problem}): check the path and the permissions")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        problem: String,
    },
    /// A compressed file that does not decompress.
    #[error("{file}, {at}: the {format} data is damaged ({problem}): fetch the file again")]
    Damaged {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// `gz`, `xz`, `zip` or `Parquet`.
        format: &'static str,
        /// What the decoder said.
        problem: String,
    },
    /// A compressed file that would fill the memory.
    #[error(
        "{file}: {bytes} bytes would expand to more than {limit}: decompress it by hand if that is \
         meant"
    )]
    Expands {
        /// The file.
        file: String,
        /// Its size.
        bytes: u64,
        /// The greatest size allowed.
        limit: u64,
    },
    /// Another kind of file.
    #[error(
        "{file}, {at}: found {found} where {expected} is expected: is it a file of this format?"
    )]
    Magic {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// Fewer or more bytes than the format or the header says.
    #[error(
        "{file}: {found} bytes where {expected} are expected: the file is cut short, or its header \
         is wrong"
    )]
    Size {
        /// The file.
        file: String,
        /// How many there are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// A field that cannot be understood.
    #[error("{file}, {at}: `{found}` is not {expected}")]
    Field {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// What stands there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A label that the data set does not have.
    #[error("{file}, {at}: the label {found} is out of range: {allowed}")]
    Label {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// The label.
        found: f64,
        /// The labels allowed.
        allowed: String,
    },
    /// A NaN or an infinity.
    #[error("{file}, {at}: {found} is not finite: impute it or drop the row")]
    NotFinite {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// What stands there.
        found: f64,
    },
    /// A value that is missing where one is needed.
    #[error(
        "{file}, {at}, column `{column}`: the value is missing: impute it, drop the row, or use a \
         formula, which imputes"
    )]
    Missing {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// The column.
        column: String,
    },
    /// Two files that do not belong together.
    #[error("{file}: {found} labels for {expected} rows: the two files do not belong together")]
    Counts {
        /// The file with the labels.
        file: String,
        /// How many labels there are.
        found: u64,
        /// How many rows there are.
        expected: u64,
    },
    /// No rows.
    #[error("{file}: there are no rows")]
    Empty {
        /// The file.
        file: String,
    },
    /// A table that cannot be read.
    #[error(transparent)]
    Table(#[from] super::TableError),
}

/// What the labels of a file are.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// Numbers to be explained (regression).
    Numbers,
    /// The values found, in ascending order, at most this many.
    Found(usize),
    /// These values, in this order, with a name each.
    Classes(Vec<(f64, String)>),
}

impl Labels {
    /// Classes by value and name.
    pub fn classes(list: &[(f64, &str)]) -> Self {
        Labels::Classes(list.iter().map(|(value, name)| (*value, name.to_string())).collect())
    }

    /// Turn raw labels into class numbers with names. `at` says where a row's label stands.
    fn apply(
        &self,
        raw: Vec<f64>,
        file: &str,
        at: impl Fn(usize) -> At,
    ) -> Result<(Vec<f64>, Option<Vec<String>>), FormatError> {
        if let Some(row) = raw.iter().position(|y| !y.is_finite()) {
            return Err(FormatError::NotFinite { file: file.into(), at: at(row), found: raw[row] });
        }
        let known: Vec<(f64, String)> = match self {
            Labels::Numbers => return Ok((raw, None)),
            Labels::Classes(list) => list.clone(),
            Labels::Found(most) => {
                let mut values: Vec<f64> = Vec::new();
                for (row, y) in raw.iter().enumerate() {
                    if let Err(place) = values.binary_search_by(|v| v.total_cmp(y)) {
                        if values.len() == *most {
                            let allowed = format!("there are {most} others already");
                            return Err(FormatError::Label {
                                file: file.into(),
                                at: at(row),
                                found: *y,
                                allowed,
                            });
                        }
                        values.insert(place, *y);
                    }
                }
                values.into_iter().map(|v| (v, v.to_string())).collect()
            }
        };
        let class = |(row, y): (usize, &f64)| {
            known.iter().position(|(value, _)| value == y).map(|k| k as f64).ok_or_else(|| {
                let words: Vec<String> = known.iter().map(|(value, _)| value.to_string()).collect();
                FormatError::Label {
                    file: file.into(),
                    at: at(row),
                    found: *y,
                    allowed: format!("use one of {}", words.join(", ")),
                }
            })
        };
        let labels = raw.iter().enumerate().map(class).collect::<Result<_, _>>()?;
        Ok((labels, Some(known.into_iter().map(|(_, name)| name).collect())))
    }
}

/// Names for columns that have none: `x1`, `x2`, ...
fn numbered(columns: usize) -> Vec<String> {
    (1..=columns).map(|k| format!("x{k}")).collect()
}
