//! Open a file of your own by the ending of its name.

use std::path::Path;

use super::npy::{self, Array};
use super::{At, FormatError, Labels, csv, libsvm, npz, read};
use crate::data::dataset::Dataset;

/// The most classes that are guessed; more different labels than this are numbers.
const MOST_CLASSES: usize = 1000;

/// A data set from a `.csv`, `.npy`, `.npz`, `.svm` or `.libsvm` file, each also with `.gz` or `.xz` behind it.
///
/// The labels are the column `response` of a CSV file (else the last), the last column of an `.npy`, the array `y` beside `x` of an
/// `.npz`. Whole numbers are taken for classes.
pub fn open(path: &Path, response: Option<&str>) -> Result<Dataset, FormatError> {
    let file = path.display().to_string();
    let bytes = read(path)?;
    let plain = file.trim_end_matches(".gz").trim_end_matches(".xz");
    match plain.rsplit('.').next().unwrap_or("") {
        "csv" => {
            let text =
                std::str::from_utf8(&bytes).map_err(|error| FormatError::Unreadable { file: file.clone(), problem: error.to_string() })?;
            let schema = csv::infer(text, &file)?;
            let last = schema.columns.last().map_or("", |column| column.name.as_str());
            let data = csv::parse(text, &file, response.unwrap_or(last), &Labels::Numbers)?;
            classes(data, &file)
        }
        "npy" => {
            let array = npy::parse(&bytes, &file)?;
            let d = array.shape.get(1).copied().unwrap_or(0);
            if array.shape.len() != 2 || d < 2 || array.cells.is_empty() {
                let found = format!("{:?}", array.shape);
                return Err(FormatError::Field { file, at: At::Byte(0), found, expected: "a table of two columns or more".into() });
            }
            let rows = array.shape[0];
            let (mut cells, mut labels) = (Vec::new(), Vec::new());
            for row in array.cells.chunks_exact(d) {
                cells.extend_from_slice(&row[..d - 1]);
                labels.push(row[d - 1]);
            }
            let (x, y) = (Array { shape: vec![rows, d - 1], cells }, Array { shape: vec![rows], cells: labels });
            classes(npy::dataset((x, &file), (y, &file), &Labels::Numbers)?, &file)
        }
        "npz" => {
            let arrays = npz::parse(&bytes, &file)?;
            let find = |name: &str| {
                let found = || arrays.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                let missing = || FormatError::Field {
                    file: file.clone(),
                    at: At::Byte(0),
                    found: found(),
                    expected: format!("an archive with the array {name}"),
                };
                arrays.iter().find(|(known, _)| known == name).map(|(_, array)| array.clone()).ok_or_else(missing)
            };
            classes(npy::dataset((find("x")?, &file), (find(response.unwrap_or("y"))?, &file), &Labels::Numbers)?, &file)
        }
        "svm" | "libsvm" => classes(libsvm::parse(&bytes, &file, None, &Labels::Numbers)?, &file),
        other => {
            let expected = ".csv, .npy, .npz, .svm or .libsvm, or one of these with .gz or .xz behind it".into();
            Err(FormatError::Magic { file: file.clone(), at: At::Byte(0), found: format!("the ending .{other}"), expected })
        }
    }
}

/// The same data with classes, where the labels are few whole numbers.
fn classes(data: Dataset, file: &str) -> Result<Dataset, FormatError> {
    if data.classes.is_some() || data.labels.iter().any(|y| y.fract() != 0.0) {
        return Ok(data);
    }
    match Labels::Found(MOST_CLASSES).apply(data.labels.clone(), file, |row| At::Line(row as u64 + 1)) {
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
        assert_eq!((csv.class_counts(), csv.columns.clone()), (vec![1, 1], vec!["age".to_owned(), "dose".into()]));
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
        says("a.txt", b"x", None, "the ending .txt");
        says("a.csv", b"a,b\n1,2\n", Some("c"), "no column `c`");
        says("a.npy", &npy_file("|u1", "(2,)", &[1, 2]), None, "a table of two columns");
        says("a.npz", b"PKxx", None, "PK");
        assert!(open(&folder.join("none.csv"), None).unwrap_err().to_string().contains("cannot be read"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
