//! Open a file of your own, by the ending of its name or by a stated format.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::npy::{self, Array};
use super::{At, FormatError, Labels, cifar, covtype, csv, idx, libsvm, npz, parquet, read};
use crate::data::dataset::Dataset;
use crate::data::{Column, Schema, Table, TableError, utf8};
use crate::suggest::column_hint;

/// The most classes that are guessed; more different labels than this are numbers.
const MOST_CLASSES: usize = 1000;

/// The formats of files, each by the word that a config has for it and the endings of its files.
pub const FORMATS: &[(&str, Format, &[&str])] = &[
    ("csv", Format::Csv, &["csv", "data", "txt", "tsv"]),
    ("parquet", Format::Parquet, &["parquet", "pq"]),
    ("libsvm", Format::Libsvm, &["svm", "libsvm", "t"]),
    ("npy", Format::Npy, &["npy"]),
    ("npz", Format::Npz, &["npz"]),
    ("idx", Format::Idx, &["idx", "idx3-ubyte", "images-idx3-ubyte"]),
    ("cifar", Format::Cifar, &["bin"]),
    ("covtype", Format::Covtype, &["cols"]),
];

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text with a header, separated by commas, semicolons or tabs.
    Csv,
    /// Flat Parquet columns.
    Parquet,
    /// Sparse text.
    Libsvm,
    /// One array, the labels last.
    Npy,
    /// The arrays `x` and `y`.
    Npz,
    /// Images, and their labels in a file of their own.
    Idx,
    /// Records of CIFAR-10's binary version.
    Cifar,
    /// Covtype, column by column.
    Covtype,
}

/// A file of your own, and what must be known to read it.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    /// The file; `.gz` or `.xz` at the end of its name says that it is compressed.
    pub path: PathBuf,
    /// The file of the labels, where they have one of their own (idx).
    pub label_file: Option<PathBuf>,
    /// The format; else the ending of the name tells it.
    pub format: Option<Format>,
    /// The column of the labels (else the last), or the array of them (else `y`).
    pub response: Option<String>,
    /// How many columns there are (libsvm): a file need not have them all.
    pub columns: Option<usize>,
    /// The names of the columns of a text file without a header.
    pub header: Option<Vec<String>>,
    /// The rows themselves, where they are in memory: the path is then no more than their name.
    pub memory: Option<Arc<Table>>,
}

impl DataFile {
    /// A file of which nothing else is known.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        DataFile {
            path: path.into(),
            label_file: None,
            format: None,
            response: None,
            columns: None,
            header: None,
            memory: None,
        }
    }

    /// Whether the rows are with a client alone, which brings them when it joins.
    pub fn is_elsewhere(&self) -> bool {
        self.memory.is_none() && self.path.as_os_str().is_empty()
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The format that is stated, or that the ending tells.
    pub fn format(&self) -> Result<Format, FormatError> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        if self.memory.is_some() {
            return Ok(Format::Parquet); // named columns that know what they are
        }
        let file = self.name();
        let plain = file.trim_end_matches(".gz").trim_end_matches(".xz");
        let ending = plain.rsplit('.').next().unwrap_or("");
        let known = FORMATS.iter().find(|(_, _, endings)| {
            endings.iter().any(|known| ending == *known || plain.ends_with(&format!("-{known}")))
        });
        known.map(|(_, format, _)| *format).ok_or_else(|| {
            let endings: Vec<String> =
                FORMATS.iter().map(|(_, _, endings)| format!(".{}", endings[0])).collect();
            let expected =
                format!("{}, or one of these with .gz or .xz behind it", endings.join(", "));
            FormatError::Magic {
                file: file.clone(),
                at: At::Byte(0),
                found: format!("the ending .{ending}"),
                expected,
            }
        })
    }

    /// The named columns of a text or Parquet file. Text is read by `schema`, where one is given,
    /// else by what its columns look like.
    pub fn table(&self, schema: Option<&Schema>) -> Result<Table, FormatError> {
        if let Some(table) = &self.memory {
            return Ok(Table::clone(table));
        }
        let file = self.name();
        match self.format()? {
            Format::Parquet => parquet::parse(&read(&self.path)?, &file),
            Format::Csv => {
                let bytes = read(&self.path)?;
                let text = text(&bytes, &file)?;
                // A file's own header line and separator hold, whatever the kinds that sites agreed
                // on.
                let mut own = self.infer(text)?;
                if let Some(schema) = schema {
                    own.columns.clone_from(&schema.columns);
                }
                Ok(Table::parse(text, &file, &own)?)
            }
            other => {
                let expected =
                    "a text or Parquet file: other formats have no names for their columns".into();
                Err(FormatError::Field {
                    file,
                    at: At::Byte(0),
                    found: format!("{other:?}"),
                    expected,
                })
            }
        }
    }

    /// The named columns of a text that is in memory, which stands for the file; `name` is what
    /// errors call it.
    pub fn table_of(&self, text: &str, name: &str) -> Result<Table, FormatError> {
        let named = DataFile { path: name.into(), memory: None, ..self.clone() };
        Ok(Table::parse(text, name, &named.infer(text)?)?)
    }

    /// What the columns of a text or Parquet file look like.
    pub fn schema(&self) -> Result<Schema, FormatError> {
        match self.format()? {
            Format::Csv => self.infer(text(&read(&self.path)?, &self.name())?),
            _ => Ok(Schema::new(self.table(None)?.specs().to_vec())),
        }
    }

    fn infer(&self, text: &str) -> Result<Schema, FormatError> {
        let Some(names) = &self.header else { return csv::infer(text, &self.name()) };
        // A header that is only stated is put before the text to infer kinds, and taken off again
        // to keep the lines' numbers.
        let separator = csv::separator(text);
        let header = names.join(&char::from(separator).to_string());
        Ok(csv::infer(&format!("{header}\n{text}"), &self.name())?
            .separated_by(separator)
            .without_header())
    }

    /// The rows as features and labels, labels as they are in the file: numbers, or words as
    /// classes. `leave_out` is a column that is no feature.
    pub fn dataset(&self, leave_out: Option<&str>) -> Result<Dataset, FormatError> {
        let file = self.name();
        if let (Some(_), true) = (&self.label_file, self.format()? != Format::Idx) {
            let problem = "only idx files have their labels in a file of their own".into();
            return Err(FormatError::Unreadable { file, problem });
        }
        let bytes = || read(&self.path);
        let numbers: Vec<String> = (0..=255).map(|k| k.to_string()).collect();
        let from = |first: usize| numbers[first..].iter().map(String::as_str).collect::<Vec<_>>();
        let data = match self.format()? {
            Format::Csv | Format::Parquet => return self.dataset_of(&self.table(None)?, leave_out),
            Format::Libsvm => libsvm::parse(&bytes()?, &file, self.columns, &Labels::Numbers)?,
            Format::Npy => last_column(npy::parse(&bytes()?, &file)?, file)?,
            Format::Npz => {
                let arrays = npz::parse(&bytes()?, &file)?;
                let find = |name: &str| {
                    let found = || {
                        arrays.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
                    };
                    let expected = format!("an archive with the array {name}");
                    let missing = || FormatError::Field {
                        file: file.clone(),
                        at: At::Byte(0),
                        found: found(),
                        expected,
                    };
                    arrays
                        .iter()
                        .find(|(known, _)| known == name)
                        .map(|(_, array)| array.clone())
                        .ok_or_else(missing)
                };
                npy::dataset(
                    (find("x")?, &file),
                    (find(self.response.as_deref().unwrap_or("y"))?, &file),
                    &Labels::Numbers,
                )?
            }
            Format::Idx => {
                let missing = || FormatError::Unreadable {
                    file: file.clone(),
                    problem: "the file of its labels is not named".into(),
                };
                let label_file = self.label_file.as_ref().ok_or_else(missing)?;
                idx::parse(
                    (bytes()?, &file),
                    (&read(label_file)?, &label_file.display().to_string()),
                    &from(0),
                )?
            }
            Format::Cifar => cifar::parse(&bytes()?, &file, &from(0))?,
            Format::Covtype => covtype::parse(&bytes()?, &file, &from(1))?,
        };
        Ok(with_numbers(data))
    }

    /// The rows of a table of this file as features and labels.
    pub(crate) fn dataset_of(
        &self,
        table: &Table,
        leave_out: Option<&str>,
    ) -> Result<Dataset, FormatError> {
        let table =
            leave_out.map_or(Cow::Borrowed(table), |column| Cow::Owned(table.without(column)));
        Ok(with_numbers(csv::dataset(&table, self.response_of(&table), &Labels::Numbers)?))
    }

    /// The column of a table of this file that is the response.
    pub(crate) fn response_of<'a>(&'a self, table: &'a Table) -> &'a str {
        self.response
            .as_deref()
            .unwrap_or_else(|| table.specs().last().map_or("", |column| column.name.as_str()))
    }

    /// The values of a column of a text or Parquet file, as the names of groups and the group of
    /// each row.
    pub fn groups(&self, column: &str) -> Result<crate::data::Groups, FormatError> {
        let table = self.table(None)?;
        let names = || table.specs().iter().map(|spec| spec.name.as_str());
        let Some((_, values)) = table.column(column) else {
            let (hint, header) =
                (column_hint(column, names()), names().collect::<Vec<_>>().join(", "));
            return Err(TableError::NoColumn {
                file: self.name(),
                line: 1,
                column: column.into(),
                hint,
                header,
            }
            .into());
        };
        let word = |row: usize| match values {
            Column::Number(cells) => cells[row].map(|number| number.to_string()),
            Column::Category(category) => category.cells[row].map(|k| category.levels[k].clone()),
        };
        let mut groups = crate::data::Groups { names: Vec::new(), rows: Vec::new() };
        for row in 0..table.rows() {
            let missing = || FormatError::Missing {
                file: self.name(),
                at: table.place(row),
                column: column.into(),
            };
            let word = word(row).ok_or_else(missing)?;
            let place = groups.names.iter().position(|name| *name == word);
            groups.rows.push(place.unwrap_or(groups.names.len()) as u32);
            if place.is_none() {
                groups.names.push(word);
            }
        }
        Ok(groups)
    }
}

/// The text of a file.
pub(crate) fn read_text(path: &Path) -> Result<String, FormatError> {
    Ok(text(&read(path)?, &path.display().to_string())?.to_owned())
}

/// A data set from a file, its format told by the ending of its name; whole numbers are taken for
/// classes. See [`DataFile`].
pub fn open(path: &Path, response: Option<&str>) -> Result<Dataset, FormatError> {
    let file = DataFile { response: response.map(str::to_owned), ..DataFile::new(path) };
    classes(file.dataset(None)?, &file.name())
}

fn text<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, FormatError> {
    Ok(utf8(bytes, file)?)
}

/// The last column of an array as labels.
fn last_column(array: Array, file: String) -> Result<Dataset, FormatError> {
    let d = array.shape.get(1).copied().unwrap_or(0);
    if array.shape.len() != 2 || d < 2 || array.cells.is_empty() {
        let found = format!("{:?}", array.shape);
        return Err(FormatError::Field {
            file,
            at: At::Byte(0),
            found,
            expected: "a table of two columns or more".into(),
        });
    }
    let rows = array.shape[0];
    let (mut cells, mut labels) = (Vec::new(), Vec::new());
    for row in array.cells.chunks_exact(d) {
        cells.extend_from_slice(&row[..d - 1]);
        labels.push(row[d - 1]);
    }
    let (x, y) =
        (Array { shape: vec![rows, d - 1], cells }, Array { shape: vec![rows], cells: labels });
    npy::dataset((x, &file), (y, &file), &Labels::Numbers)
}

/// The same data with labels as numbers, where the classes are written as such.
fn with_numbers(data: Dataset) -> Dataset {
    let numbers: Option<Vec<f64>> =
        data.classes.iter().flatten().map(|class| class.parse().ok()).collect();
    match (&data.classes, numbers) {
        (Some(_), Some(numbers)) => {
            let labels = data.labels.iter().map(|label| numbers[*label as usize]).collect();
            Dataset { labels, classes: None, ..data }
        }
        _ => data,
    }
}

/// The same data with classes, where the labels are few whole numbers.
fn classes(data: Dataset, file: &str) -> Result<Dataset, FormatError> {
    if data.classes.is_some() || data.labels.iter().any(|y| y.fract() != 0.0) {
        return Ok(data);
    }
    match Labels::Found(MOST_CLASSES)
        .apply(data.labels.clone(), file, |row| At::Line(row as u64 + 1))
    {
        Ok((labels, classes)) => Ok(Dataset { labels, classes, ..data }),
        Err(_) => Ok(data), // too many: numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::formats::npy::tests::file as npy_file;

    #[test]
    fn files_are_opened_by_their_ending() {
        let folder = std::env::temp_dir().join(format!("consilience-open-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let opened = |name: &str, bytes: &[u8], response: Option<&str>| {
            std::fs::write(folder.join(name), bytes).unwrap();
            open(&folder.join(name), response)
        };
        let csv = opened("a.csv", b"y,age,dose\n0,41,0.5\n1,63,0.25\n", Some("y")).unwrap();
        assert_eq!(
            (csv.class_counts(), csv.columns.clone()),
            (vec![1, 1], vec!["age".to_owned(), "dose".into()])
        );
        let last = opened("a.csv", b"y,age,dose\n0,41,0.5\n1,63,0.25\n", None).unwrap();
        assert_eq!((last.classes, last.labels), (None, vec![0.5, 0.25]));
        let npy = opened("a.npy", &npy_file("|u1", "(2, 3)", &[1, 2, 7, 4, 5, 9]), None).unwrap();
        assert_eq!(
            (npy.labels.clone(), npy.classes.clone().unwrap(), npy.cell(1, 0)),
            (vec![0.0, 1.0], vec!["7".to_owned(), "9".into()], 4.0)
        );
        let svm = opened("a.svm", b"-1 2:1\n+1 1:3\n", None).unwrap();
        assert_eq!((svm.class_counts(), svm.is_sparse()), (vec![1, 1], true));
        let says = |name: &str, bytes: &[u8], response: Option<&str>, part: &str| {
            let error = opened(name, bytes, response).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        says("a.doc", b"x", None, "the ending .doc");
        says("a.csv", b"a,b\n1,2\n", Some("c"), "no column `c`");
        says("a.npy", &npy_file("|u1", "(2,)", &[1, 2]), None, "a table of two columns");
        says("a.npz", b"PKxx", None, "PK");
        assert!(
            open(&folder.join("none.csv"), None)
                .unwrap_err()
                .to_string()
                .contains("cannot be read")
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
