//! Know the public data sets of the papers: their files, checksums, shapes and class counts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::dataset::{Dataset, Features, Groups};
use super::formats::{self, FormatError, Labels};
use super::{ColumnSpec, Schema, Table, builtin};
use crate::encoding::Encoding;
use crate::models::RowModel;
use crate::suggest::did_you_mean;

mod entries;

pub use entries::ENTRIES;

/// The environment variable that names the data folder.
pub const FOLDER: &str = "CONSILIENCE_DATA";

/// One data set that is known by name.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub says: &'static str,
    /// How many features it has as it is loaded.
    pub columns: usize,
    /// The names of its classes; empty in regression.
    pub classes: &'static [&'static str],
    /// The rows to learn from.
    pub train: Part,
    /// The rows to test on, where the data set has them apart.
    pub test: Option<Part>,
    /// Whether it comes with the program.
    pub built_in: bool,
    /// Whom to name, and under which terms.
    pub licence: &'static str,
    format: Format,
}

/// The files of one part of a data set.
#[derive(Debug)]
pub struct Part {
    /// The files, relative to the data folder, and their sha256.
    pub files: &'static [(&'static str, &'static str)],
    /// How many rows there are.
    pub rows: usize,
    /// How many of each class; empty in regression.
    pub counts: &'static [usize],
}

#[derive(Debug)]
enum Format {
    Builtin,
    Libsvm(&'static [f64]),
    Idx,
    Cifar,
    Covtype,
    Csv(&'static str),
    German,
}

/// Why a data set cannot be had, or is not what it should be.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CatalogueError {
    /// No such data set.
    #[error("there is no data set `{name}`: {hint}there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The names that there are.
        known: String,
    },
    /// A data set that is not built in, and no folder.
    #[error(
        "{name} does not come with the program: name the folder that holds {file} with --data DIR \
         or {FOLDER}"
    )]
    NoFolder {
        /// The data set.
        name: String,
        /// Its first file.
        file: String,
    },
    /// A data set without a part of its own to test on.
    #[error("{name} has no test rows of its own")]
    NoTest {
        /// The data set.
        name: String,
    },
    /// A file that cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A file whose content differs.
    #[error(
        "{file}: its sha256 is {found}, expected {expected}: it is another version, or damaged"
    )]
    Checksum {
        /// The file.
        file: String,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// A shape or class counts that differ.
    #[error("{name}: {what} {found}, expected {expected}")]
    Differs {
        /// The data set.
        name: String,
        /// What differs.
        what: &'static str,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// Built-in data that cannot be had.
    #[error(transparent)]
    Builtin(#[from] builtin::BuiltinError),
}

/// The data set of this name.
pub fn find(name: &str) -> Result<&'static Entry, CatalogueError> {
    ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let names = || ENTRIES.iter().map(|entry| entry.name);
        let hint = did_you_mean(name, names());
        CatalogueError::Unknown {
            name: name.into(),
            hint,
            known: names().collect::<Vec<_>>().join(", "),
        }
    })
}

/// The data folder: as given, else as the environment says.
pub fn folder(given: Option<&Path>) -> Option<PathBuf> {
    given
        .map(Path::to_path_buf)
        .or_else(|| std::env::var_os(FOLDER).filter(|value| !value.is_empty()).map(PathBuf::from))
}

/// The rows to learn from.
pub fn load(name: &str, folder: Option<&Path>) -> Result<Dataset, CatalogueError> {
    let entry = find(name)?;
    entry.read(&entry.train, folder)
}

/// The rows to test on, where the data set has them apart.
pub fn load_test(name: &str, folder: Option<&Path>) -> Result<Dataset, CatalogueError> {
    let entry = find(name)?;
    let part = entry.test.as_ref().ok_or_else(|| CatalogueError::NoTest { name: name.into() })?;
    entry.read(part, folder)
}

/// How the raw columns of a data set become the features that are loaded, without an intercept.
pub(crate) fn encoding(
    name: &str,
    data: &Dataset,
    model: Arc<dyn RowModel>,
) -> Result<Encoding, CatalogueError> {
    let entry = find(name)?;
    let words = || Some(entry.classes.iter().map(|class| (*class).to_owned()).collect());
    Ok(match entry.format {
        Format::Builtin => {
            let federation = builtin::load_with(name, false)?;
            Encoding::of_study(&builtin::study_with(name, false)?, federation.moments(), model)
        }
        Format::Csv(response) => {
            let classes = (!entry.classes.is_empty()).then(|| vec!["0".into(), "1".into()]);
            Encoding::by_columns(&data.columns, None, None, model)
                .with_response(ColumnSpec::number(response))
                .with_classes(classes)
        }
        Format::German => {
            let classes = Some(vec!["1".into(), "2".into()]);
            Encoding::by_columns(&data.columns, None, None, model)
                .with_response(ColumnSpec::number("class"))
                .with_classes(classes)
        }
        Format::Libsvm(_) | Format::Idx | Format::Cifar | Format::Covtype => {
            Encoding::by_columns(&data.columns, None, None, model).with_classes(words())
        }
    })
}

/// What was found right about a part of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The part: `train` or `test`.
    pub part: &'static str,
    /// How many files had the right checksum.
    pub files: usize,
    /// How many rows there are.
    pub rows: usize,
    /// How many columns there are.
    pub columns: usize,
    /// How many of each class.
    pub counts: Vec<usize>,
}

/// Compare checksums, shape and class counts of all parts with what is known.
pub fn check(name: &str, folder: Option<&Path>) -> Result<Vec<Checked>, CatalogueError> {
    let entry = find(name)?;
    let parts = std::iter::once(("train", &entry.train))
        .chain(entry.test.iter().map(|part| ("test", part)));
    parts.map(|(word, part)| entry.check(word, part, folder)).collect()
}

impl Entry {
    /// The shape of its rows, where they are images: channels, height, width.
    pub fn image(&self) -> Option<[usize; 3]> {
        match self.format {
            Format::Idx => Some([1, 28, 28]),
            Format::Cifar => Some([3, 32, 32]),
            _ => None,
        }
    }

    fn check(
        &self,
        word: &'static str,
        part: &Part,
        folder: Option<&Path>,
    ) -> Result<Checked, CatalogueError> {
        for (file, expected) in part.files {
            let bytes = self.stored(file, folder)?;
            let found: String =
                Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            if found != *expected {
                return Err(CatalogueError::Checksum {
                    file: file.to_string(),
                    found,
                    expected: expected.to_string(),
                });
            }
        }
        let data = self.read(part, folder)?;
        let differs = |what, found: String, expected: String| CatalogueError::Differs {
            name: self.name.into(),
            what,
            found,
            expected,
        };
        let found = format!("{} x {}", data.rows(), data.columns.len());
        let expected = format!("{} x {}", part.rows, self.columns);
        if found != expected {
            return Err(differs("the shape is", found, expected));
        }
        let counts = data.class_counts();
        if counts != part.counts {
            return Err(differs(
                "the class counts are",
                format!("{counts:?}"),
                format!("{:?}", part.counts),
            ));
        }
        Ok(Checked {
            part: word,
            files: part.files.len(),
            rows: data.rows(),
            columns: data.columns.len(),
            counts,
        })
    }

    /// The bytes of a file as stored: in the program, or in the folder.
    fn stored(&self, file: &str, folder: Option<&Path>) -> Result<Vec<u8>, CatalogueError> {
        if let Some(text) = builtin::file(file).filter(|_| self.built_in) {
            return Ok(text.as_bytes().to_vec());
        }
        let path = self.path(file, folder)?;
        Ok(std::fs::read(&path).map_err(|error| FormatError::Unreadable {
            file: path.display().to_string(),
            problem: error.to_string(),
        })?)
    }

    fn path(&self, file: &str, folder: Option<&Path>) -> Result<PathBuf, CatalogueError> {
        let folder = self::folder(folder).ok_or_else(|| CatalogueError::NoFolder {
            name: self.name.into(),
            file: file.into(),
        })?;
        Ok(folder.join(file))
    }

    fn read(&self, part: &Part, folder: Option<&Path>) -> Result<Dataset, CatalogueError> {
        if let Format::Builtin = self.format {
            return from_builtin(self.name, self.classes);
        }
        let open = |k: usize| -> Result<(Vec<u8>, String), CatalogueError> {
            let path = self.path(part.files[k].0, folder)?;
            Ok((formats::read(&path)?, path.display().to_string()))
        };
        let (bytes, file) = open(0)?;
        let text = || {
            let problem = |error: std::str::Utf8Error| FormatError::Unreadable {
                file: file.clone(),
                problem: error.to_string(),
            };
            std::str::from_utf8(&bytes).map_err(problem)
        };
        let numbered = |values: &[f64]| {
            Labels::Classes(
                values.iter().copied().zip(self.classes.iter().map(|c| c.to_string())).collect(),
            )
        };
        Ok(match self.format {
            Format::Builtin => return from_builtin(self.name, self.classes),
            Format::Libsvm(values) => {
                formats::libsvm::parse(&bytes, &file, Some(self.columns), &numbered(values))?
            }
            Format::Idx => {
                let (labels, label_file) = open(1)?;
                formats::idx::parse((bytes, &file), (&labels, &label_file), self.classes)?
            }
            Format::Cifar => formats::cifar::parse(&bytes, &file, self.classes)?,
            Format::Covtype => formats::covtype::parse(&bytes, &file, self.classes)?,
            Format::Csv(response) => {
                let rule =
                    if self.classes.is_empty() { Labels::Numbers } else { numbered(&[0.0, 1.0]) };
                let schema = numbers_only(&formats::csv::infer(text()?, &file)?);
                let table = Table::parse(text()?, &file, &schema).map_err(FormatError::from)?;
                formats::csv::dataset(&table, response, &rule)?
            }
            Format::German => {
                let names: Vec<String> =
                    (1..=24).map(|k| format!("x{k}")).chain(["class".into()]).collect();
                let schema =
                    Schema::new(names.iter().map(|name| ColumnSpec::number(name)).collect())
                        .without_header();
                let table = Table::parse(&formats::csv::from_spaces(text()?), &file, &schema)
                    .map_err(FormatError::from)?;
                formats::csv::dataset(&table, "class", &numbered(&[1.0, 2.0]))?
            }
        })
    }
}

/// The same schema, where zeros and ones are numbers like others.
fn numbers_only(schema: &Schema) -> Schema {
    Schema {
        columns: schema.columns.iter().map(|column| ColumnSpec::number(&column.name)).collect(),
        ..schema.clone()
    }
}

/// A built-in data set: standardised, imputed and coded as [`builtin`] does it, without the
/// intercept and without site effects.
fn from_builtin(name: &str, classes: &[&str]) -> Result<Dataset, CatalogueError> {
    let federation = builtin::load_with(name, false)?;
    let keep: Vec<usize> =
        (0..federation.dim()).filter(|k| federation.parameters[*k] != "intercept").collect();
    let mut cells = Vec::new();
    let (mut labels, mut rows) = (Vec::new(), Vec::new());
    for (k, site) in federation.sites.iter().enumerate() {
        for row in site.cells.chunks_exact(site.columns) {
            cells.extend(keep.iter().map(|column| row[*column]));
        }
        labels.extend_from_slice(&site.response);
        rows.extend(vec![k as u32; site.rows()]);
    }
    let names = federation.sites.iter().map(|site| site.name.clone()).collect();
    Ok(Dataset {
        features: Features::Dense(cells),
        labels,
        classes: Some(classes.iter().map(|c| c.to_string()).collect()),
        columns: keep.iter().map(|k| federation.parameters[*k].clone()).collect(),
        groups: (name == "heart-disease").then_some(Groups { names, rows }),
    })
}

#[cfg(test)]
mod tests;
