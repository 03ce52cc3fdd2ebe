//! Read LIBSVM text: a label, then ascending `column:value` pairs, columns from 1.

use super::{At, FormatError, Labels, numbered};
use crate::data::dataset::{Dataset, Features};

/// A data set from LIBSVM text. Without a dimension it is the greatest column found, which may
/// differ between the parts of a data set.
pub fn parse(
    text: &[u8],
    file: &str,
    dimension: Option<usize>,
    labels: &Labels,
) -> Result<Dataset, FormatError> {
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    let (mut raw, mut lines) = (Vec::new(), Vec::new());
    let most = dimension.unwrap_or(u32::MAX as usize);
    let mut widest = 0;
    for (number, line) in (1u64..).zip(text.split(|byte| *byte == b'\n')) {
        let at = At::Line(number);
        let field = |found: &str, expected: String| FormatError::Field {
            file: file.into(),
            at,
            found: found.into(),
            expected,
        };
        let line = std::str::from_utf8(line)
            .map_err(|_| field(&String::from_utf8_lossy(line), "text".into()))?;
        let mut words = line.split('#').next().unwrap_or("").split_ascii_whitespace();
        let Some(label) = words.next() else { continue };
        raw.push(label.parse::<f64>().map_err(|_| field(label, "a label".into()))?);
        lines.push(number);
        let mut last = 0;
        for word in words {
            let pair = word
                .split_once(':')
                .and_then(|(c, v)| Some((c.parse::<usize>().ok()?, v.parse::<f64>().ok()?)));
            let (column, value) =
                pair.ok_or_else(|| field(word, "column:value, such as 3:1".into()))?;
            if column <= last || column > most {
                return Err(field(
                    word,
                    format!("a column from {} to {most}: columns ascend from 1", last + 1),
                ));
            }
            if !value.is_finite() {
                return Err(FormatError::NotFinite { file: file.into(), at, found: value });
            }
            last = column;
            columns.push(column as u32 - 1);
            values.push(value);
        }
        widest = widest.max(last);
        starts.push(columns.len());
    }
    // Names are made for every column, so a single great column number must not make many of them.
    let d = dimension.unwrap_or(widest);
    if raw.is_empty() || d == 0 {
        return Err(FormatError::Empty { file: file.into() });
    }
    if dimension.is_none() && d > text.len() {
        let expected = format!("a column up to {}: give the dimension if it is meant", text.len());
        return Err(FormatError::Field {
            file: file.into(),
            at: At::Line(1),
            found: d.to_string(),
            expected,
        });
    }
    let (labels, classes) = labels.apply(raw, file, |row| At::Line(lines[row]))?;
    Ok(Dataset {
        features: Features::Sparse { starts, columns, values },
        labels,
        classes,
        columns: numbered(d),
        groups: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "-1 1:1 3:0.5 \n# a remark\n\n+1 2:-2\n+1\n";

    fn signs() -> Labels {
        Labels::classes(&[(-1.0, "-1"), (1.0, "+1")])
    }

    #[test]
    fn rows_labels_and_dimension_are_read() {
        let data = parse(GOOD.as_bytes(), "a", Some(5), &signs()).unwrap();
        assert_eq!((data.rows(), data.columns.len(), data.class_counts()), (3, 5, vec![1, 2]));
        assert_eq!((data.cell(0, 2), data.cell(1, 1), data.cell(2, 0)), (0.5, -2.0, 0.0));
        assert_eq!(
            parse(GOOD.as_bytes(), "a", None, &signs()).unwrap().columns,
            ["x1", "x2", "x3"]
        );
        let found = parse(b"2 1:1\n1 1:1\n2 1:0", "a", None, &Labels::Found(2)).unwrap();
        assert_eq!(
            (found.labels, found.classes.unwrap()),
            (vec![1.0, 0.0, 1.0], vec!["1".to_owned(), "2".into()])
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let says = |text: &str, part: &str| {
            let error = parse(text.as_bytes(), "f", Some(5), &signs()).unwrap_err().to_string();
            assert!(error.starts_with("f") && error.contains(part), "{text:?}: {error}");
        };
        says("+1 1:1\n+1 0:1", "line 2: `0:1` is not a column from 1 to 5");
        says("+1 6:1", "line 1: `6:1` is not a column");
        says("+1 2:1 2:1", "from 3 to 5");
        says("+1 2", "`2` is not column:value");
        says("x 2:1", "`x` is not a label");
        says("+1 1:1\n0 1:1", "line 2: the label 0 is out of range: use one of -1, 1");
        says("+1 1:NaN", "line 1: NaN is not finite");
        says("nan 1:1", "not finite");
        says("\n\n", "no rows");
        assert!(
            parse(b"+1 1:1\n\xff", "f", Some(5), &signs())
                .unwrap_err()
                .to_string()
                .contains("line 2")
        );
        assert!(
            parse(b"1 4000000000:1", "f", None, &Labels::Numbers)
                .unwrap_err()
                .to_string()
                .contains("give the dimension")
        );
        assert!(
            parse(b"1 1:1\n2 1:1\n3 1:1", "f", None, &Labels::Found(2))
                .unwrap_err()
                .to_string()
                .contains("line 3: the label 3")
        );
    }
}
