//! Make images smaller by averaging squares of pixels.

use consilience_engine::data::{Dataset, Features};

use crate::experiment::Trouble;

/// The same images, squares of `by` times `by` pixels averaged into one, channel by channel.
pub(super) fn pooled(data: Dataset, by: usize, shape: [usize; 3]) -> Result<Dataset, Trouble> {
    if by == 1 {
        return Ok(data);
    }
    let [channels, height, width] = shape;
    let fits = by > 1 && height.is_multiple_of(by) && width.is_multiple_of(by);
    if channels * height * width != data.columns.len() || !fits {
        return Err(Trouble::Other(format!(
            "{} columns are no {channels} images of {height} x {width} that {by} divides",
            data.columns.len()
        )));
    }
    let (high, wide) = (height / by, width / by);
    let small = channels * high * wide;
    let mut cells = vec![0.0; data.rows() * small];
    for row in 0..data.rows() {
        for (column, value) in data.entries(row) {
            let column = column as usize;
            let (line, across) = (column / width, column % width / by);
            let line = line / height * high + line % height / by;
            cells[row * small + line * wide + across] += value / (by * by) as f64;
        }
    }
    let columns = (0..small).map(|k| format!("square {k}")).collect();
    Ok(Dataset { features: Features::Dense(cells), columns, ..data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_shrink_to_means() {
        let data = |count: i32| Dataset {
            features: Features::Dense((0..count).map(f64::from).collect()),
            labels: vec![0.0],
            classes: None,
            columns: (0..count).map(|k| k.to_string()).collect(),
            groups: None,
        };
        let small = pooled(data(16), 2, [1, 4, 4]).unwrap();
        // (0 + 1 + 4 + 5) / 4, ...
        assert_eq!(small.features, Features::Dense(vec![2.5, 4.5, 10.5, 12.5]));
        let small = pooled(data(8), 2, [2, 2, 2]).unwrap();
        assert_eq!(small.features, Features::Dense(vec![1.5, 5.5]));
        assert!(pooled(data(16), 3, [1, 4, 4]).is_err());
    }
}
