//! Compute 2-Wasserstein distances between samples.
//!
//! Distances between samples are biased upwards, badly so in ten dimensions and more: two samples
//! of the same law are far apart. Compare with the distance of two samples of the reference, or use
//! [`super::gaussian`].

use crate::rng::{Purpose, SERVER, Seed};

/// Why two samples cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TransportError {
    /// There is nothing to compare, or it has no dimension.
    #[error("samples need at least one point and one dimension, and slicing one direction")]
    Empty,
    /// The samples differ in size.
    #[error("one sample holds {left} numbers, the other {right}")]
    Unequal {
        /// Numbers in the first sample.
        left: usize,
        /// Numbers in the second sample.
        right: usize,
    },
    /// The numbers do not make up whole points.
    #[error("{numbers} numbers are no whole number of points of dimension {dimension}")]
    Ragged {
        /// Numbers in a sample.
        numbers: usize,
        /// Numbers a point.
        dimension: usize,
    },
    /// A coordinate is NaN or infinite.
    #[error("number {index} of a sample is {value}")]
    NotFinite {
        /// Its place.
        index: usize,
        /// What it is.
        value: f64,
    },
}

/// W2 between two samples on a line: sorted, the points pair off.
pub fn w2_on_a_line(left: &[f64], right: &[f64]) -> Result<f64, TransportError> {
    check(left, right, 1)?;
    Ok(mean_square_when_sorted(&mut left.to_vec(), &mut right.to_vec()).sqrt())
}

/// Exact W2 between two samples of equally many points, each a row of `dimension` numbers.
///
/// It pairs off the points at least total cost, in memory `n^2` and time up to `n^3`: good for a
/// few thousand points.
pub fn w2_between_samples(
    left: &[f64],
    right: &[f64],
    dimension: usize,
) -> Result<f64, TransportError> {
    check(left, right, dimension)?;
    let n = left.len() / dimension;
    let mut cost = Vec::with_capacity(n * n);
    for x in left.chunks_exact(dimension) {
        cost.extend(right.chunks_exact(dimension).map(|y| squared_distance(x, y)));
    }
    let pairs = cheapest_pairs(&cost, n);
    let total: f64 = pairs.iter().enumerate().map(|(column, row)| cost[row * n + column]).sum();
    Ok((total / n as f64).sqrt())
}

/// Sliced W2: root of the mean squared W2 over projections on random directions, for samples too
/// large to pair off.
///
/// Direction `k` is a function of the seed and `k` alone, so two calls with one seed slice alike.
pub fn sliced_w2(
    left: &[f64],
    right: &[f64],
    dimension: usize,
    directions: u32,
    seed: Seed,
) -> Result<f64, TransportError> {
    const FIRST_ROUND: u64 = 1 << 55; // above the rounds at which synthetic data are made
    check(left, right, dimension)?;
    if directions == 0 {
        return Err(TransportError::Empty);
    }
    let mut direction = vec![0.0; dimension];
    let mut total = 0.0;
    for k in 0..u64::from(directions) {
        seed.stream(Purpose::Data, SERVER, FIRST_ROUND + k).normals(&mut direction);
        let length = squared_distance(&direction, &vec![0.0; dimension]).sqrt();
        let project = |sample: &[f64]| -> Vec<f64> {
            sample
                .chunks_exact(dimension)
                .map(|point| point.iter().zip(&direction).map(|(x, u)| x * u).sum::<f64>() / length)
                .collect()
        };
        total += mean_square_when_sorted(&mut project(left), &mut project(right));
    }
    Ok((total / f64::from(directions)).sqrt())
}

fn check(left: &[f64], right: &[f64], dimension: usize) -> Result<(), TransportError> {
    if left.len() != right.len() {
        return Err(TransportError::Unequal { left: left.len(), right: right.len() });
    }
    if left.is_empty() || dimension == 0 {
        return Err(TransportError::Empty);
    }
    if !left.len().is_multiple_of(dimension) {
        return Err(TransportError::Ragged { numbers: left.len(), dimension });
    }
    for sample in [left, right] {
        if let Some(index) = sample.iter().position(|value| !value.is_finite()) {
            return Err(TransportError::NotFinite { index, value: sample[index] });
        }
    }
    Ok(())
}

fn squared_distance(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn mean_square_when_sorted(left: &mut [f64], right: &mut [f64]) -> f64 {
    left.sort_unstable_by(f64::total_cmp);
    right.sort_unstable_by(f64::total_cmp);
    squared_distance(left, right) / left.len() as f64
}

const FREE: usize = usize::MAX;

/// The row paired with each column so that the pairs' total cost is least (successive shortest
/// augmenting paths, Crouse 2016).
///
/// Invariant: reduced costs `cost - row_price - column_price` are nonnegative, and zero on pairs.
fn cheapest_pairs(cost: &[f64], n: usize) -> Vec<usize> {
    let (mut row_price, mut column_price) = (vec![0.0; n], vec![0.0; n]);
    let (mut row_of, mut column_of) = (vec![FREE; n], vec![FREE; n]);
    let (mut shortest, mut came_from) = (vec![0.0; n], vec![FREE; n]);
    let (mut open, mut settled) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for start in 0..n {
        // Dijkstra from the unpaired row `start` to the nearest unpaired column.
        shortest.fill(f64::INFINITY);
        open.clear();
        open.extend(0..n);
        settled.clear();
        let (mut row, mut length) = (start, 0.0);
        let mut column = loop {
            let mut nearest = 0;
            for place in 0..open.len() {
                let column = open[place];
                let through =
                    length + (cost[row * n + column] - row_price[row] - column_price[column]);
                if through < shortest[column] {
                    shortest[column] = through;
                    came_from[column] = row;
                }
                let so_far = shortest[open[nearest]];
                if shortest[column] < so_far || shortest[column] == so_far && row_of[column] == FREE
                {
                    nearest = place;
                }
            }
            let column = open.swap_remove(nearest);
            length = shortest[column];
            if row_of[column] == FREE {
                break column;
            }
            settled.push(column);
            row = row_of[column];
        };
        row_price[start] += length;
        for &column in &settled {
            row_price[row_of[column]] += length - shortest[column];
            column_price[column] -= length - shortest[column];
        }
        // Pair along the path, back to where it began.
        while column != FREE {
            let row = came_from[column];
            row_of[column] = row;
            column = std::mem::replace(&mut column_of[row], column);
        }
    }
    row_of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        assert_eq!(w2_on_a_line(&[3.0, 1.0], &[2.0, 6.0]).unwrap(), 5f64.sqrt()); // 1 -> 2, 3 -> 6
        let square = [0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0];
        // another order, each point by (2, 2)
        let moved: Vec<f64> = square.iter().rev().map(|x| x + 2.0).collect();
        assert!((w2_between_samples(&square, &moved, 2).unwrap() - 8f64.sqrt()).abs() < 1e-15);
        assert_eq!(w2_between_samples(&square, &square, 2).unwrap(), 0.0);
    }

    #[test]
    fn the_pairs_are_the_cheapest_of_all_permutations() {
        let mut stream = Seed::new(4).stream(Purpose::Data, SERVER, 0);
        for n in 1..7 {
            for _ in 0..50 {
                let cost: Vec<f64> = (0..n * n).map(|_| f64::from(stream.below(10))).collect();
                let pairs = cheapest_pairs(&cost, n);
                let mut rows = pairs.clone();
                rows.sort_unstable();
                assert_eq!(rows, (0..n).collect::<Vec<_>>());
                let total: f64 =
                    pairs.iter().enumerate().map(|(column, row)| cost[row * n + column]).sum();
                assert!(
                    (total - cheapest_by_trial(&cost, n, 0, &mut vec![false; n])).abs() < 1e-12
                );
            }
        }
    }

    fn cheapest_by_trial(cost: &[f64], n: usize, row: usize, taken: &mut Vec<bool>) -> f64 {
        let mut best = if row == n { 0.0 } else { f64::INFINITY };
        for column in 0..n {
            if row < n && !taken[column] {
                taken[column] = true;
                best =
                    best.min(cost[row * n + column] + cheapest_by_trial(cost, n, row + 1, taken));
                taken[column] = false;
            }
        }
        best
    }

    #[test]
    fn on_a_line_all_three_agree() {
        let mut stream = Seed::new(6).stream(Purpose::Data, SERVER, 0);
        let mut draw = || -> Vec<f64> { (0..60).map(|_| stream.uniform()).collect() };
        let (left, right) = (draw(), draw());
        let exact = w2_on_a_line(&left, &right).unwrap();
        assert!((w2_between_samples(&left, &right, 1).unwrap() - exact).abs() < 1e-14);
        assert!((sliced_w2(&left, &right, 1, 5, Seed::new(1)).unwrap() - exact).abs() < 1e-14);
    }

    #[test]
    fn a_shift_is_sliced_to_its_length_over_root_dimension() {
        // E <u, shift>^2 = |shift|^2 / d with relative variance 2 (d - 1) / (d + 2): 4.9 sigma is
        // one false alarm in a million.
        let (d, directions) = (3, 4000);
        let mut left = vec![0.0; 30 * d];
        Seed::new(2).stream(Purpose::Data, SERVER, 0).normals(&mut left);
        let right: Vec<f64> =
            left.chunks_exact(d).flat_map(|x| [x[0] + 1.0, x[1] - 2.0, x[2] + 2.0]).collect();
        let sliced = sliced_w2(&left, &right, d, directions, Seed::new(3)).unwrap();
        let score = (sliced * sliced / 3.0 - 1.0) / (0.8 / f64::from(directions)).sqrt();
        assert!(score.abs() < 4.9, "{score}");
        let few = sliced_w2(&left, &right, d, 2, Seed::new(3)).unwrap();
        let one = sliced_w2(&left, &right, d, 1, Seed::new(3)).unwrap();
        assert!((few - one).abs() > 1e-3, "the second direction is the first");
        assert_eq!(sliced, sliced_w2(&left, &right, d, directions, Seed::new(3)).unwrap());
        assert_ne!(sliced, sliced_w2(&left, &right, d, directions, Seed::new(4)).unwrap());
    }

    #[test]
    fn what_cannot_be_paired_is_refused() {
        assert_eq!(w2_on_a_line(&[], &[]), Err(TransportError::Empty));
        assert_eq!(
            w2_on_a_line(&[1.0], &[1.0, 2.0]),
            Err(TransportError::Unequal { left: 1, right: 2 })
        );
        assert_eq!(
            w2_between_samples(&[1.0; 3], &[1.0; 3], 2),
            Err(TransportError::Ragged { numbers: 3, dimension: 2 })
        );
        assert_eq!(w2_between_samples(&[1.0; 2], &[1.0; 2], 0), Err(TransportError::Empty));
        assert_eq!(sliced_w2(&[1.0], &[1.0], 1, 0, Seed::new(1)), Err(TransportError::Empty));
        assert!(matches!(
            w2_on_a_line(&[1.0], &[f64::NAN]),
            Err(TransportError::NotFinite { index: 0, .. })
        ));
    }
}
