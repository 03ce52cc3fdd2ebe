//! Read NumPy's arrays: f4, f8, i4, i8 and u1, either byte order, C order.

use super::{At, FormatError, Labels, numbered};
use crate::data::dataset::{Dataset, Features};

/// An array of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its sizes; none for a single number.
    pub shape: Vec<usize>,
    /// Its cells in C order.
    pub cells: Vec<f64>,
}

/// An array from the bytes of a `.npy` file.
pub fn parse(bytes: &[u8], file: &str) -> Result<Array, FormatError> {
    let short = |expected: usize| FormatError::Size {
        file: file.into(),
        found: bytes.len() as u64,
        expected: expected as u64,
    };
    if !bytes.starts_with(b"\x93NUMPY") {
        let found =
            String::from_utf8_lossy(&bytes[..bytes.len().min(6)]).escape_default().to_string();
        return Err(FormatError::Magic {
            file: file.into(),
            at: At::Byte(0),
            found: format!("`{found}`"),
            expected: "\\x93NUMPY".into(),
        });
    }
    let field = |at: usize, found: &str, expected: &str| FormatError::Field {
        file: file.into(),
        at: At::Byte(at as u64),
        found: found.chars().take(80).collect(),
        expected: expected.into(),
    };
    let version = *bytes.get(6).ok_or_else(|| short(10))?;
    let (start, length): (usize, usize) = match (version, bytes.get(8..12)) {
        (_, None) => return Err(short(12)),
        (1, Some(w)) => (10, usize::from(u16::from_le_bytes([w[0], w[1]]))),
        (2 | 3, Some(w)) => (12, u32::from_le_bytes([w[0], w[1], w[2], w[3]]) as usize),
        _ => return Err(field(6, &version.to_string(), "version 1, 2 or 3")),
    };
    let body = start.saturating_add(length);
    let header = bytes.get(start..body).ok_or_else(|| short(body))?;
    let header = std::str::from_utf8(header).map_err(|_| field(start, "the header", "text"))?;
    let after =
        |key: &str| header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let kind = after("descr").and_then(|rest| rest.strip_prefix('\'')?.split('\'').next());
    let kind = kind.ok_or_else(|| field(start, header, "a header with 'descr': '<f8'"))?;
    match after("fortran_order") {
        Some(rest) if rest.starts_with("False") => {}
        _ => return Err(field(start, header, "in C order: save it with numpy.ascontiguousarray")),
    }
    let shape = after("shape").and_then(|rest| {
        let sizes = rest
            .strip_prefix('(')?
            .split(')')
            .next()?
            .split(',')
            .map(str::trim)
            .filter(|size| !size.is_empty());
        sizes
            .map(|size| size.trim_end_matches('L').parse::<usize>().ok())
            .collect::<Option<Vec<_>>>()
    });
    let shape = shape.ok_or_else(|| field(start, header, "a header with 'shape': (3, 2)"))?;
    let width = match kind.trim_start_matches(['<', '>', '|', '=']) {
        "f4" | "i4" => 4,
        "f8" | "i8" => 8,
        "u1" => 1,
        _ => return Err(field(start, kind, "one of f4, f8, i4, i8, u1: convert it with astype")),
    };
    let count = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    let expected = count
        .and_then(|n| n.checked_mul(width))
        .and_then(|n| n.checked_add(body))
        .unwrap_or(usize::MAX);
    if expected != bytes.len() {
        return Err(short(expected));
    }
    let mut cells = Vec::with_capacity(bytes[body..].len() / width);
    for (k, cell) in bytes[body..].chunks_exact(width).enumerate() {
        let mut word = [0; 8];
        word[..width].copy_from_slice(cell);
        if kind.starts_with('>') {
            word[..width].reverse();
        }
        let low = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let value = match kind.trim_start_matches(['<', '>', '|', '=']) {
            "f4" => f64::from(f32::from_bits(low)),
            "i4" => f64::from(low as i32),
            "f8" => f64::from_le_bytes(word),
            "i8" => i64::from_le_bytes(word) as f64,
            _ => f64::from(word[0]),
        };
        if !value.is_finite() {
            return Err(FormatError::NotFinite {
                file: file.into(),
                at: At::Byte((body + k * width) as u64),
                found: value,
            });
        }
        cells.push(value);
    }
    Ok(Array { shape, cells })
}

/// A data set from an array of features, one row an observation, and one of labels.
pub fn dataset(
    features: (Array, &str),
    labels: (Array, &str),
    rule: &Labels,
) -> Result<Dataset, FormatError> {
    let (features, feature_file) = features;
    let (labels, label_file) = labels;
    let rows = features.shape.first().copied().unwrap_or(0);
    if features.cells.is_empty() || features.shape.len() < 2 {
        return Err(FormatError::Empty { file: feature_file.into() });
    }
    if labels.cells.len() != rows {
        return Err(FormatError::Counts {
            file: label_file.into(),
            found: labels.cells.len() as u64,
            expected: rows as u64,
        });
    }
    let columns = numbered(features.cells.len() / rows);
    let (labels, classes) = rule.apply(labels.cells, label_file, |row| At::Line(row as u64 + 1))?;
    Ok(Dataset {
        features: Features::Dense(features.cells),
        labels,
        classes,
        columns,
        groups: None,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file as NumPy writes it.
    pub(in super::super) fn file(kind: &str, shape: &str, body: &[u8]) -> Vec<u8> {
        let mut header =
            format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        while !(10 + header.len() + 1).is_multiple_of(64) {
            header.push(' ');
        }
        header.push('\n');
        [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), body]
            .concat()
    }

    #[test]
    fn every_kind_is_read() {
        let read =
            |kind: &str, body: &[u8]| parse(&file(kind, "(2,)", body), "a.npy").unwrap().cells;
        let bytes = |list: [[u8; 8]; 2]| list.concat();
        assert_eq!(
            read("<f8", &bytes([1.5f64.to_le_bytes(), (-2.0f64).to_le_bytes()])),
            [1.5, -2.0]
        );
        assert_eq!(
            read(">f8", &bytes([1.5f64.to_be_bytes(), (-2.0f64).to_be_bytes()])),
            [1.5, -2.0]
        );
        assert_eq!(read("<i8", &bytes([3i64.to_le_bytes(), (-4i64).to_le_bytes()])), [3.0, -4.0]);
        assert_eq!(
            read("<f4", &[0.5f32.to_le_bytes(), (-1.0f32).to_le_bytes()].concat()),
            [0.5, -1.0]
        );
        assert_eq!(read("<i4", &[7i32.to_le_bytes(), (-7i32).to_le_bytes()].concat()), [7.0, -7.0]);
        assert_eq!(read("|u1", &[0, 255]), [0.0, 255.0]);
    }

    #[test]
    fn arrays_become_a_data_set() {
        let x = parse(&file("|u1", "(2, 3)", &[1, 2, 3, 4, 5, 6]), "x").unwrap();
        let y = parse(&file("|u1", "(2,)", &[9, 5]), "y").unwrap();
        let data = dataset((x.clone(), "x"), (y, "y"), &Labels::Found(10)).unwrap();
        assert_eq!(
            (data.rows(), data.columns.len(), data.cell(1, 0), data.labels),
            (2, 3, 4.0, vec![1.0, 0.0])
        );
        let three = parse(&file("|u1", "(3,)", &[0, 1, 1]), "y").unwrap();
        assert!(
            dataset((x, "x"), (three, "y"), &Labels::Numbers)
                .unwrap_err()
                .to_string()
                .contains("3 labels for 2 rows")
        );
    }

    #[test]
    fn mistakes_are_named() {
        let says = |bytes: &[u8], part: &str| {
            let error = parse(bytes, "a.npy").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        let good = file("|u1", "(2,)", &[1, 2]);
        for cut in 6..good.len() {
            says(&good[..cut], "bytes where");
        }
        says(b"NUMPY", "where \\x93NUMPY is expected");
        says(&file("<c16", "(2,)", &[0; 32]), "`<c16` is not one of f4");
        says(&file("|u1", "(2, x)", &[0; 2]), "'shape'");
        says(&file("|u1", "(9999999999999, 9999999999999)", &[0; 2]), "cut short");
        says(&file("<f4", "(2,)", &[[0; 4], f32::NAN.to_le_bytes()].concat()), "NaN is not finite");
        let text = String::from_utf8_lossy(&good[10..]).replace("False", "True ");
        says(&[&good[..10], text.as_bytes()].concat(), "in C order");
    }
}
