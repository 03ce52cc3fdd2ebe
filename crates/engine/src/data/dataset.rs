//! Hold a data set as it was read: features, labels, classes, natural groups.

use consilience_core::error::DataError;
use consilience_core::model::Design;

/// The features of a data set, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Features {
    /// Every cell.
    Dense(Vec<f64>),
    /// Every cell as a byte, to be multiplied by `scale`: images, at an eighth of the memory.
    Bytes {
        /// The bytes.
        cells: Vec<u8>,
        /// What a byte of 1 stands for.
        scale: f64,
    },
    /// The cells that are not 0: row `j` has the entries `starts[j]..starts[j + 1]`.
    Sparse {
        /// Where rows start; one more than there are rows.
        starts: Vec<usize>,
        /// The columns of the entries, ascending in each row.
        columns: Vec<u32>,
        /// Their values.
        values: Vec<f64>,
    },
}

/// To which natural group (a hospital, a writer) each row belongs.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    /// The groups' names.
    pub names: Vec<String>,
    /// One place in `names` for each row.
    pub rows: Vec<u32>,
}

/// A data set: features, one label a row, and names.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The features.
    pub features: Features,
    /// One label a row: a place in `classes` where there are any, else a number.
    pub labels: Vec<f64>,
    /// The names of the classes; none in regression.
    pub classes: Option<Vec<String>>,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The natural groups, where the data has any.
    pub groups: Option<Groups>,
}

impl Dataset {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// How many rows each class has; empty in regression.
    pub(crate) fn class_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.classes.as_ref().map_or(0, Vec::len)];
        if !counts.is_empty() {
            for label in &self.labels {
                counts[*label as usize] += 1;
            }
        }
        counts
    }

    /// The labels as class numbers, where there are classes.
    pub fn class_labels(&self) -> Option<Vec<u32>> {
        self.classes.as_ref().map(|_| self.labels.iter().map(|label| *label as u32).collect())
    }

    /// The entries of a row that may differ from 0, as (column, value).
    pub fn entries(&self, row: usize) -> Vec<(u32, f64)> {
        let d = self.columns.len();
        match &self.features {
            Features::Dense(cells) => {
                (0u32..).zip(cells[row * d..(row + 1) * d].iter().copied()).collect()
            }
            Features::Bytes { cells, scale } => (0u32..)
                .zip(cells[row * d..(row + 1) * d].iter().map(|v| f64::from(*v) * scale))
                .collect(),
            Features::Sparse { starts, columns, values } => {
                let range = starts[row]..starts[row + 1];
                columns[range.clone()].iter().copied().zip(values[range].iter().copied()).collect()
            }
        }
    }

    /// One cell.
    pub fn cell(&self, row: usize, column: usize) -> f64 {
        let d = self.columns.len();
        match &self.features {
            Features::Dense(cells) => cells[row * d + column],
            Features::Bytes { cells, scale } => f64::from(cells[row * d + column]) * scale,
            Features::Sparse { starts, columns, values } => {
                let range = starts[row]..starts[row + 1];
                columns[range.clone()]
                    .binary_search(&(column as u32))
                    .map_or(0.0, |at| values[range][at])
            }
        }
    }

    /// Whether rows are stored without their zeros.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self.features, Features::Sparse { .. })
    }

    /// The greatest absolute value of every column, and 1 where that is 0 or where the features are
    /// bytes with a scale of their own.
    pub fn greatest(&self) -> Vec<f64> {
        let mut greatest = vec![0.0f64; self.columns.len()];
        match &self.features {
            Features::Bytes { .. } => {}
            Features::Dense(cells) => {
                for (at, cell) in cells.iter().enumerate() {
                    let slot = &mut greatest[at % self.columns.len()];
                    *slot = slot.max(cell.abs());
                }
            }
            Features::Sparse { columns, values, .. } => {
                for (column, value) in columns.iter().zip(values) {
                    greatest[*column as usize] = greatest[*column as usize].max(value.abs());
                }
            }
        }
        greatest.iter().map(|g| if *g > 0.0 { *g } else { 1.0 }).collect()
    }

    /// By what raw values are divided in all, where the columns are divided by these: bytes have a
    /// scale of their own.
    pub fn divisors(&self, divisors: &[f64]) -> Vec<f64> {
        let scale = if let Features::Bytes { scale, .. } = self.features { scale } else { 1.0 };
        divisors.iter().map(|divisor| divisor / scale).collect()
    }

    /// The design of some rows, each column divided by its entry in `divisors`, with a column of
    /// ones first if asked for.
    pub fn design(
        &self,
        rows: &[u32],
        intercept: bool,
        divisors: &[f64],
    ) -> Result<Design, DataError> {
        let first = u32::from(intercept);
        let columns = self.columns.len() + first as usize;
        let scaled = |row: &u32| {
            self.entries(*row as usize).into_iter().map(|(c, v)| (c, v / divisors[c as usize]))
        };
        if self.is_sparse() {
            let ones = intercept.then_some((0, 1.0));
            return Design::sparse(
                rows.iter().map(|row| {
                    ones.into_iter().chain(scaled(row).map(|(c, v)| (c + first, v))).collect()
                }),
                columns,
            );
        }
        let mut cells = Vec::with_capacity(rows.len() * columns);
        for row in rows {
            if intercept {
                cells.push(1.0);
            }
            cells.extend(scaled(row).map(|(_, v)| v));
        }
        Design::dense(cells, columns)
    }

    /// The labels of some rows.
    pub fn labels_of(&self, rows: &[u32]) -> Vec<f64> {
        rows.iter().map(|row| self.labels[*row as usize]).collect()
    }

    /// The data set of some rows, in their order.
    pub fn select(&self, rows: &[u32]) -> Dataset {
        let d = self.columns.len();
        let ranges = || rows.iter().map(|row| *row as usize * d..(*row as usize + 1) * d);
        let features = match &self.features {
            Features::Dense(cells) => {
                Features::Dense(ranges().flat_map(|r| &cells[r]).copied().collect())
            }
            Features::Bytes { cells, scale } => Features::Bytes {
                cells: ranges().flat_map(|r| &cells[r]).copied().collect(),
                scale: *scale,
            },
            Features::Sparse { starts, columns, values } => {
                let (mut to, mut c, mut v) = (vec![0], Vec::new(), Vec::new());
                for row in rows {
                    let range = starts[*row as usize]..starts[*row as usize + 1];
                    c.extend_from_slice(&columns[range.clone()]);
                    v.extend_from_slice(&values[range]);
                    to.push(c.len());
                }
                Features::Sparse { starts: to, columns: c, values: v }
            }
        };
        let groups = self.groups.as_ref().map(|g| Groups {
            names: g.names.clone(),
            rows: rows.iter().map(|r| g.rows[*r as usize]).collect(),
        });
        Dataset {
            features,
            labels: self.labels_of(rows),
            classes: self.classes.clone(),
            columns: self.columns.clone(),
            groups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> [Dataset; 2] {
        let dense = Dataset {
            features: Features::Dense(vec![1.0, 0.0, 0.0, -4.0, 2.0, 2.0]),
            labels: vec![0.0, 1.0, 1.0],
            classes: Some(vec!["no".into(), "yes".into()]),
            columns: vec!["a".into(), "b".into()],
            groups: None,
        };
        let sparse = Features::Sparse {
            starts: vec![0, 1, 2, 4],
            columns: vec![0, 1, 0, 1],
            values: vec![1.0, -4.0, 2.0, 2.0],
        };
        [dense.clone(), Dataset { features: sparse, ..dense }]
    }

    #[test]
    fn dense_and_sparse_rows_are_the_same_design() {
        for data in both() {
            assert_eq!(data.class_counts(), [1, 2]);
            assert_eq!(data.greatest(), [2.0, 4.0]);
            assert_eq!((data.cell(1, 0), data.cell(1, 1)), (0.0, -4.0));
            let design = data.design(&[1, 2], true, &[2.0, 4.0]).unwrap();
            assert_eq!((design.rows(), design.columns()), (2, 3));
            assert_eq!(design.row_dot(0, &[100.0, 10.0, 1.0]), 99.0);
            assert_eq!(design.row_dot(1, &[100.0, 10.0, 1.0]), 110.5);
            let two = data.select(&[2, 0]);
            assert_eq!(
                (two.rows(), two.cell(0, 1), two.cell(1, 1), two.labels.clone()),
                (2, 2.0, 0.0, vec![1.0, 0.0])
            );
        }
    }
}
