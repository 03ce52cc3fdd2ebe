//! Read idx files, as MNIST has them: big-endian magic and sizes, then bytes.

use super::{At, FormatError, Labels, numbered};
use crate::data::dataset::{Dataset, Features};

/// The bytes of an idx file of unsigned bytes with so many axes, and its sizes.
fn body<'a>(
    bytes: &'a [u8],
    file: &str,
    axes: usize,
) -> Result<(Vec<usize>, &'a [u8]), FormatError> {
    let word =
        |at: usize| bytes.get(at..at + 4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
    let size = |expected: u64| FormatError::Size {
        file: file.into(),
        found: bytes.len() as u64,
        expected,
    };
    let head = 4 + 4 * axes;
    let magic = word(0).ok_or_else(|| size(head as u64))?;
    let expected = 0x0800 + axes as u32;
    if magic != expected {
        return Err(FormatError::Magic {
            file: file.into(),
            at: At::Byte(0),
            found: magic.to_string(),
            expected: expected.to_string(),
        });
    }
    let sizes = (0..axes)
        .map(|k| word(4 + 4 * k))
        .collect::<Option<Vec<u32>>>()
        .ok_or_else(|| size(head as u64))?;
    let cells = sizes.iter().fold(1u64, |product, n| product.saturating_mul(u64::from(*n)));
    if cells.saturating_add(head as u64) != bytes.len() as u64 {
        return Err(size(cells.saturating_add(head as u64)));
    }
    if cells == 0 {
        return Err(FormatError::Empty { file: file.into() });
    }
    Ok((sizes.into_iter().map(|n| n as usize).collect(), &bytes[head..]))
}

/// Images and their labels, pixels scaled to [0, 1]. The names are those that errors give.
pub fn parse(
    images: (Vec<u8>, &str),
    labels: (&[u8], &str),
    classes: &[&str],
) -> Result<Dataset, FormatError> {
    let (image_bytes, image_file) = images;
    let (label_bytes, label_file) = labels;
    let (sizes, cells) = body(&image_bytes, image_file, 3)?;
    let (counts, raw) = body(label_bytes, label_file, 1)?;
    if counts[0] != sizes[0] {
        return Err(FormatError::Counts {
            file: label_file.into(),
            found: counts[0] as u64,
            expected: sizes[0] as u64,
        });
    }
    let names: Vec<(f64, &str)> =
        classes.iter().enumerate().map(|(k, name)| (k as f64, *name)).collect();
    let raw = raw.iter().map(|y| f64::from(*y)).collect();
    let (labels, classes) =
        Labels::classes(&names).apply(raw, label_file, |row| At::Byte(8 + row as u64))?;
    let features = Features::Bytes { cells: cells.to_vec(), scale: 1.0 / 255.0 };
    Ok(Dataset { features, labels, classes, columns: numbered(sizes[1] * sizes[2]), groups: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(n: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, 1, 0, 0, 0, 2];
        bytes.extend((0..2 * n).map(|k| k * 51));
        bytes
    }

    fn labels(of: &[u8]) -> Vec<u8> {
        [&[0, 0, 8, 1, 0, 0, 0, of.len() as u8], of].concat()
    }

    #[test]
    fn pixels_are_fractions() {
        let data = parse((images(2), "i"), (&labels(&[1, 0]), "l"), &["cat", "dog"]).unwrap();
        assert_eq!((data.rows(), data.columns.len(), data.labels.clone()), (2, 2, vec![1.0, 0.0]));
        assert!((data.cell(1, 1) - 0.6).abs() < 1e-15);
    }

    #[test]
    fn mistakes_are_named_with_their_offset() {
        let says = |images: Vec<u8>, labels: Vec<u8>, part: &str| {
            let error =
                parse((images, "i"), (&labels, "l"), &["cat", "dog"]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        says(labels(&[1]), labels(&[1]), "i, byte 0: found 2049 where 2051");
        says(images(2), images(2), "l, byte 0: found 2051 where 2049");
        says(images(2), labels(&[1]), "l: 1 labels for 2 rows");
        says(images(2), labels(&[1, 2]), "l, byte 9: the label 2 is out of range");
        says(images(0), labels(&[]), "no rows");
        for cut in 0..20 {
            says(images(2)[..cut].to_vec(), labels(&[1, 0]), "bytes where");
        }
        let mut huge = images(2);
        huge[4..16].fill(0xff);
        says(huge, labels(&[1, 0]), "20 bytes where 18446744073709551615 are expected");
        says([images(2), vec![0]].concat(), labels(&[1, 0]), "21 bytes where 20");
    }
}
