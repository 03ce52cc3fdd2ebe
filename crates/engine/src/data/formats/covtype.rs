//! Read covtype column by column: ten columns of 16-bit numbers, then a byte each of wilderness
//! area, soil type and cover type.

use super::{At, FormatError, Labels};
use crate::data::dataset::{Dataset, Features};

/// Bytes that one row takes, over all columns.
const ROW: usize = 23;

const NUMBERS: [&str; 10] = [
    "elevation",
    "aspect",
    "slope",
    "horizontal distance to hydrology",
    "vertical distance to hydrology",
    "horizontal distance to roadways",
    "hillshade 9am",
    "hillshade noon",
    "hillshade 3pm",
    "horizontal distance to fire points",
];

/// Ten numbers and two one-hot codes: 54 columns, of which a row has at most 12 that are not 0.
pub fn parse(bytes: &[u8], file: &str, classes: &[&str]) -> Result<Dataset, FormatError> {
    if bytes.is_empty() {
        return Err(FormatError::Empty { file: file.into() });
    }
    if !bytes.len().is_multiple_of(ROW) {
        let expected = bytes.len().next_multiple_of(ROW) as u64;
        return Err(FormatError::Size { file: file.into(), found: bytes.len() as u64, expected });
    }
    let n = bytes.len() / ROW;
    let (numbers, codes) = bytes.split_at(20 * n);
    let code = |start: usize, row: usize, most: u8, what: &str| {
        let found = codes[start * n + row];
        if (1..=most).contains(&found) {
            return Ok(u32::from(found) - 1);
        }
        let at = At::Byte((20 * n + start * n + row) as u64);
        Err(FormatError::Field {
            file: file.into(),
            at,
            found: found.to_string(),
            expected: format!("{what} from 1 to {most}"),
        })
    };
    let (mut starts, mut columns, mut values) =
        (vec![0], Vec::with_capacity(12 * n), Vec::with_capacity(12 * n));
    for row in 0..n {
        for column in 0..10 {
            let at = 2 * (column * n + row);
            let value = i16::from_le_bytes([numbers[at], numbers[at + 1]]);
            if value != 0 {
                columns.push(column as u32);
                values.push(f64::from(value));
            }
        }
        columns.extend([
            10 + code(0, row, 4, "a wilderness area")?,
            14 + code(1, row, 40, "a soil type")?,
        ]);
        values.extend([1.0, 1.0]);
        starts.push(columns.len());
    }
    let names: Vec<(f64, &str)> =
        classes.iter().enumerate().map(|(k, name)| (k as f64 + 1.0, *name)).collect();
    let raw = codes[2 * n..].iter().map(|y| f64::from(*y)).collect();
    let (labels, classes) =
        Labels::classes(&names).apply(raw, file, |row| At::Byte((22 * n + row) as u64))?;
    let areas = (1..=4).map(|k| format!("wilderness area {k}"));
    let soils = (1..=40).map(|k| format!("soil type {k}"));
    let columns_named =
        NUMBERS.iter().map(|name| name.to_string()).chain(areas).chain(soils).collect();
    Ok(Dataset {
        features: Features::Sparse { starts, columns, values },
        labels,
        classes,
        columns: columns_named,
        groups: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: [&str; 2] = ["spruce", "pine"];

    fn two_rows() -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..10i16).flat_map(|c| [c.to_le_bytes(), (-c * 300).to_le_bytes()].concat()).collect();
        bytes.extend([1, 4, 40, 1, 2, 1]);
        bytes
    }

    #[test]
    fn codes_become_columns() {
        let data = parse(&two_rows(), "c", &CLASSES).unwrap();
        assert_eq!((data.rows(), data.columns.len(), data.labels.clone()), (2, 54, vec![1.0, 0.0]));
        assert_eq!((data.cell(0, 3), data.cell(1, 3), data.cell(0, 0)), (3.0, -900.0, 0.0));
        assert_eq!(data.entries(1)[9..], [(13, 1.0), (14, 1.0)]);
        assert_eq!(data.entries(0)[9..], [(10, 1.0), (53, 1.0)]);
    }

    #[test]
    fn mistakes_are_named_with_their_offset() {
        let says = |at: usize, by: u8, part: &str| {
            let mut bytes = two_rows();
            bytes[at] = by;
            let error = parse(&bytes, "c", &CLASSES).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        says(41, 5, "byte 41: `5` is not a wilderness area from 1 to 4");
        says(42, 0, "byte 42: `0` is not a soil type from 1 to 40");
        says(45, 3, "byte 45: the label 3 is out of range: use one of 1, 2");
        assert!(
            parse(&two_rows()[..45], "c", &CLASSES)
                .unwrap_err()
                .to_string()
                .contains("45 bytes where 46")
        );
        assert!(parse(&[], "c", &CLASSES).is_err());
    }
}
