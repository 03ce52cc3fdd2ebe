//! Read the binary version of CIFAR-10: records of a label byte and 3 x 1,024 colour bytes.

use super::{At, FormatError, Labels, numbered};
use crate::data::dataset::{Dataset, Features};

/// The bytes of a record.
const RECORD: usize = 3073;

/// Images and labels, colours scaled to [0, 1].
pub fn parse(bytes: &[u8], file: &str, classes: &[&str]) -> Result<Dataset, FormatError> {
    if bytes.is_empty() {
        return Err(FormatError::Empty { file: file.into() });
    }
    if !bytes.len().is_multiple_of(RECORD) {
        let expected = bytes.len().next_multiple_of(RECORD) as u64;
        return Err(FormatError::Size { file: file.into(), found: bytes.len() as u64, expected });
    }
    let names: Vec<(f64, &str)> =
        classes.iter().enumerate().map(|(k, name)| (k as f64, *name)).collect();
    let records = bytes.chunks_exact(RECORD);
    let raw = records.clone().map(|record| f64::from(record[0])).collect();
    let (labels, classes) =
        Labels::classes(&names).apply(raw, file, |row| At::Byte((row * RECORD) as u64))?;
    let features = Features::Bytes {
        cells: records.flat_map(|record| &record[1..]).copied().collect(),
        scale: 1.0 / 255.0,
    };
    Ok(Dataset { features, labels, classes, columns: numbered(RECORD - 1), groups: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_mistakes_named() {
        let mut bytes = vec![0; 2 * RECORD];
        bytes[RECORD] = 1;
        bytes[RECORD + 3] = 255;
        let data = parse(&bytes, "c", &["cat", "dog"]).unwrap();
        assert_eq!((data.rows(), data.columns.len(), data.class_counts()), (2, 3072, vec![1, 1]));
        assert_eq!((data.cell(1, 2), data.cell(1, 1), data.cell(0, 2)), (1.0, 0.0, 0.0));
        let says = |bytes: &[u8], part: &str| {
            assert!(parse(bytes, "c", &["cat", "dog"]).unwrap_err().to_string().contains(part))
        };
        says(&bytes[..RECORD + 5], "3078 bytes where 6146");
        says(&[], "no rows");
        bytes[RECORD] = 2;
        says(&bytes, "byte 3073: the label 2 is out of range");
    }
}
