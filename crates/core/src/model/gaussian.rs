//! Model a client by a Gaussian: one quadratic form, or the sum of squared distances to its rows.

use nalgebra::DMatrix;

use super::{Potential, Quadratic, Rows, Spread};
use crate::error::DataError;
use crate::lanes::{F8, LANES, wide};
use crate::linalg::{add_scaled, dot, subtract};

/// `U_i(x) = (x - mean)' precision (x - mean) / 2`, one row.
#[derive(Clone, Debug)]
pub struct Gaussian {
    mean: Vec<f64>,
    precision: Vec<f64>,
    columns: Columns,
    smoothness: f64,
}

impl Gaussian {
    /// From the mean and the precision matrix (row-major, symmetric, positive semi-definite).
    pub fn new(mean: Vec<f64>, precision: Vec<f64>) -> Result<Self, DataError> {
        let d = mean.len();
        check_vector(&mean)?;
        check_symmetric("precision", &precision, d)?;
        let values = DMatrix::from_row_slice(d, d, &precision).symmetric_eigen().eigenvalues;
        let (least, most) = (values.min(), values.max());
        if least < -1e-10 * most.abs() {
            return Err(DataError::Matrix {
                what: "precision",
                property: "positive semi-definite",
                entry: 0,
                value: least,
                fix: "its smallest eigenvalue is shown; a potential must be bounded below",
            });
        }
        Ok(Gaussian { mean, columns: Columns::new(&precision, d), precision, smoothness: most })
    }

    /// From the mean and the covariance matrix (row-major, symmetric, positive definite).
    pub fn from_covariance(mean: Vec<f64>, covariance: &[f64]) -> Result<Self, DataError> {
        let d = mean.len();
        check_vector(&mean)?;
        check_symmetric("covariance", covariance, d)?;
        let Some(cholesky) = DMatrix::from_row_slice(d, d, covariance).cholesky() else {
            let least = DMatrix::from_row_slice(d, d, covariance).symmetric_eigen().eigenvalues.min();
            return Err(DataError::Matrix {
                what: "covariance",
                property: "positive definite",
                entry: 0,
                value: least,
                fix: "its smallest eigenvalue is shown; give a precision matrix if some direction has no information",
            });
        };
        let inverse = cholesky.inverse();
        let symmetric = (&inverse + inverse.transpose()) * 0.5;
        Gaussian::new(mean, symmetric.as_slice().to_vec()) // symmetric: row-major is column-major
    }
}

impl Potential for Gaussian {
    fn dim(&self) -> usize {
        self.mean.len()
    }

    fn rows(&self) -> usize {
        1
    }

    fn scratch(&self) -> usize {
        self.mean.len()
    }

    fn value(&self, x: &[f64], scratch: &mut [f64]) -> f64 {
        let d = self.dim();
        let moved = &mut scratch[..d];
        subtract(x, &self.mean, moved);
        (0..d).map(|i| moved[i] * dot(&self.precision[i * d..(i + 1) * d], moved)).sum::<f64>() * 0.5
    }

    fn add_gradient(&self, x: &[f64], rows: Rows<'_>, scale: f64, out: &mut [f64], scratch: &mut [f64]) {
        self.add_gradient_difference(x, &self.mean, rows, scale, out, scratch);
    }

    fn add_gradient_difference(&self, x: &[f64], z: &[f64], rows: Rows<'_>, scale: f64, out: &mut [f64], scratch: &mut [f64]) {
        if rows.count(1) == 0 {
            return;
        }
        add_product(&self.columns, x, z, scale, out, &mut scratch[..self.dim()]);
    }

    fn add_hessian_vector(&self, _x: &[f64], v: &[f64], scale: f64, out: &mut [f64], _scratch: &mut [f64]) {
        for (column, by) in self.precision.chunks_exact(self.dim()).zip(v) {
            add_scaled(scale * by, column, out);
        }
    }

    fn row_smoothness(&self, _row: usize) -> f64 {
        self.smoothness
    }

    fn quadratic(&self) -> Option<Quadratic> {
        let d = self.dim();
        let shift = (0..d).map(|i| dot(&self.precision[i * d..(i + 1) * d], &self.mean)).collect();
        Some(Quadratic { precision: self.precision.clone(), shift, spread: Spread::None })
    }
}

/// Eight numbers in one line of the cache: a register that is read across two takes twice as long.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Eight(F8);

/// A symmetric matrix, whose columns are filled up to whole registers.
#[derive(Clone, Debug)]
struct Columns {
    eights: Vec<Eight>,
    /// Eights in a column.
    height: usize,
    columns: usize,
}

impl Columns {
    fn new(matrix: &[f64], d: usize) -> Self {
        let height = d.div_ceil(LANES);
        let mut eights = vec![Eight([0.0; LANES]); d * height];
        for (column, values) in eights.chunks_exact_mut(height.max(1)).zip(matrix.chunks_exact(d.max(1))) {
            for (Eight(eight), values) in column.iter_mut().zip(values.chunks(LANES)) {
                eight[..values.len()].copy_from_slice(values);
            }
        }
        Columns { eights, height, columns: d }
    }
}

wide! {
    /// `out += scale * matrix (x - z)`.
    fn add_product<'a>(matrix: &'a Columns, x: &'a [f64], z: &'a [f64], scale: f64, out: &'a mut [f64], moved: &'a mut [f64]) -> () {
        let by = |column: usize| scale * (x[column] - z[column]);
        match matrix.height {
            1 => return add_eights(&product::<1>(matrix, 0, by), out),
            2 => return add_eights(&product::<2>(matrix, 0, by), out),
            3 => return add_eights(&product::<3>(matrix, 0, by), out),
            _ => {}
        }
        for (column, moved) in moved.iter_mut().enumerate() {
            *moved = by(column);
        }
        let (mut first, moved) = (0, &*moved);
        for rows in out.chunks_mut(3 * LANES) {
            match matrix.height - first {
                1 => add_eights(&product::<1>(matrix, first, |column| moved[column]), rows),
                2 => add_eights(&product::<2>(matrix, first, |column| moved[column]), rows),
                _ => add_eights(&product::<3>(matrix, first, |column| moved[column]), rows),
            }
            first += 3;
        }
    }
}

/// `matrix v`, for the rows of `N` eights from number `first` on, with `by` the coordinates of `v`. It goes column by column, which needs no sums across a register; even and odd columns are
/// summed apart, since a sum waits for the one before.
#[inline(always)]
fn product<const N: usize>(matrix: &Columns, first: usize, by: impl Fn(usize) -> f64) -> [F8; N] {
    let (mut even, mut odd) = ([[0.0; LANES]; N], [[0.0; LANES]; N]);
    let columns = matrix.eights.chunks_exact(2 * matrix.height);
    let mut column = matrix.columns - matrix.columns % 2;
    if let Some(eights) = columns.remainder().get(first..).and_then(<[Eight]>::first_chunk::<N>) {
        add_column(by(column), eights, &mut even);
    }
    column = 0;
    for both in columns {
        let (one, other) = both.split_at(matrix.height);
        let (Some(one), Some(other)) = (one[first..].first_chunk::<N>(), other[first..].first_chunk::<N>()) else { break };
        add_column(by(column), one, &mut even);
        add_column(by(column + 1), other, &mut odd);
        column += 2;
    }
    for n in 0..N {
        for lane in 0..LANES {
            even[n][lane] += odd[n][lane];
        }
    }
    even
}

#[inline(always)]
fn add_column<const N: usize>(by: f64, column: &[Eight; N], sums: &mut [F8; N]) {
    for n in 0..N {
        for lane in 0..LANES {
            sums[n][lane] += by * column[n].0[lane];
        }
    }
}

#[inline(always)]
fn add_eights(eights: &[F8], out: &mut [f64]) {
    for (out, eight) in out.chunks_mut(LANES).zip(eights) {
        if let Ok(whole) = <&mut F8>::try_from(&mut *out) {
            for lane in 0..LANES {
                whole[lane] += eight[lane];
            }
        } else {
            for lane in 0..out.len() {
                out[lane] += eight[lane];
            }
        }
    }
}

/// `U_i(x) = sum_j norm(x - y_j)^2 / 2` over the client's rows `y_j`: QLSD sec. 4, the toy Gaussian.
#[derive(Clone, Debug)]
pub struct Isotropic {
    dim: usize,
    rows: usize,
    cells: Vec<f64>,
    sum: Vec<f64>,
}

impl Isotropic {
    /// From the observations, row by row.
    pub fn new(cells: Vec<f64>, dim: usize) -> Result<Self, DataError> {
        super::Design::dense(cells.clone(), dim)?; // the same checks
        let mut sum = vec![0.0; dim];
        for row in cells.chunks_exact(dim) {
            add_scaled(1.0, row, &mut sum);
        }
        Ok(Isotropic { dim, rows: cells.len() / dim, cells, sum })
    }
}

wide! {
    /// The sum of these rows, in their order; eight columns at a time stay in a register.
    fn add_up<'a>(cells: &'a [f64], rows: &'a [u32], sum: &'a mut [f64]) -> () {
        let d = sum.len();
        let (blocks, rest) = sum.as_chunks_mut::<LANES>();
        let first_left = blocks.len() * LANES;
        for (block, out) in blocks.iter_mut().enumerate() {
            let mut sums = [0.0; LANES];
            for row in rows {
                if let Some(eight) = cells[*row as usize * d + block * LANES..].first_chunk::<LANES>() {
                    for lane in 0..LANES {
                        sums[lane] += eight[lane];
                    }
                }
            }
            *out = sums;
        }
        for (column, out) in (first_left..).zip(rest) {
            *out = rows.iter().fold(0.0, |sum, row| sum + cells[*row as usize * d + column]);
        }
    }
}

wide! {
    /// `out += scale (n (x - z))`.
    fn add_scaled_difference<'a>(x: &'a [f64], z: &'a [f64], n: f64, scale: f64, out: &'a mut [f64]) -> () {
        for ((out, x), z) in out.iter_mut().zip(x).zip(z) {
            *out += scale * (n * (x - z));
        }
    }
}

impl Potential for Isotropic {
    fn dim(&self) -> usize {
        self.dim
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn scratch(&self) -> usize {
        self.dim
    }

    fn value(&self, x: &[f64], _scratch: &mut [f64]) -> f64 {
        let squares = |row: &[f64]| x.iter().zip(row).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        self.cells.chunks_exact(self.dim).map(squares).sum::<f64>() * 0.5
    }

    fn add_gradient(&self, x: &[f64], rows: Rows<'_>, scale: f64, out: &mut [f64], scratch: &mut [f64]) {
        // sum_j (x - y_j) = n x - sum_j y_j: one subtraction for all rows, the sum known beforehand for all of them.
        let sum = match rows {
            Rows::Some(some) if some.len() < self.rows => {
                let sum = &mut scratch[..self.dim];
                add_up(&self.cells, some, sum);
                &*sum
            }
            _ => &self.sum,
        };
        let n = rows.count(self.rows) as f64;
        for ((out, x), y) in out.iter_mut().zip(x).zip(sum) {
            *out += scale * (n * x - y);
        }
    }

    fn add_gradient_difference(&self, x: &[f64], z: &[f64], rows: Rows<'_>, scale: f64, out: &mut [f64], _scratch: &mut [f64]) {
        add_scaled_difference(x, z, rows.count(self.rows) as f64, scale, out); // whatever the rows are: they cancel
    }

    fn differences_ignore_rows(&self) -> bool {
        true
    }

    fn add_hessian_vector(&self, _x: &[f64], v: &[f64], scale: f64, out: &mut [f64], _scratch: &mut [f64]) {
        add_scaled(scale * self.rows as f64, v, out);
    }

    fn row_smoothness(&self, _row: usize) -> f64 {
        1.0
    }

    fn quadratic(&self) -> Option<Quadratic> {
        let (d, n) = (self.dim, self.rows as f64);
        let mut precision = vec![0.0; d * d];
        let mut spread = vec![0.0; d * d];
        for i in 0..d {
            precision[i * d + i] = n;
        }
        for row in self.cells.chunks_exact(d) {
            for i in 0..d {
                for j in 0..d {
                    spread[i * d + j] += (row[i] - self.sum[i] / n) * (row[j] - self.sum[j] / n);
                }
            }
        }
        Some(Quadratic { precision, shift: self.sum.clone(), spread: Spread::Shifts(spread) })
    }
}

fn check_vector(mean: &[f64]) -> Result<(), DataError> {
    if mean.is_empty() {
        return Err(DataError::Empty);
    }
    match mean.iter().position(|v| !v.is_finite()) {
        Some(column) => Err(DataError::NotFinite { row: 0, column, value: mean[column] }),
        None => Ok(()),
    }
}

fn check_symmetric(what: &'static str, matrix: &[f64], d: usize) -> Result<(), DataError> {
    if matrix.len() != d * d {
        return Err(DataError::Shape { found: matrix.len(), columns: d });
    }
    if let Some(at) = matrix.iter().position(|v| !v.is_finite()) {
        return Err(DataError::NotFinite { row: at / d, column: at % d, value: matrix[at] });
    }
    let largest = matrix.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    for i in 0..d {
        for j in 0..i {
            if (matrix[i * d + j] - matrix[j * d + i]).abs() > 1e-9 * largest {
                return Err(DataError::Matrix {
                    what,
                    property: "symmetric",
                    entry: i * d + j,
                    value: matrix[i * d + j],
                    fix: "entries (i, j) and (j, i) must be equal",
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eights of rows are summed in ones, twos and threes, with a short one behind them or not: all give the sums of each row alone, bit for bit.
    #[test]
    fn products_of_every_size_are_plain_sums() {
        for d in 1..=40 {
            let z = super::super::tests::normals(d as u64, d * d + 3 * d);
            let matrix: Vec<f64> = (0..d * d).map(|k| z[k.min(k % d * d + k / d)]).collect();
            let (x, rest) = z[d * d..].split_at(d);
            let (from, start) = rest.split_at(d);
            let mut out = start.to_vec();
            add_product(&Columns::new(&matrix, d), x, from, 0.3, &mut out, &mut vec![0.0; d]);
            for (row, out) in out.iter().enumerate() {
                let term = |column: usize| 0.3 * (x[column] - from[column]) * matrix[column * d + row];
                let last = if d % 2 == 1 { term(d - 1) } else { 0.0 };
                let even = (0..d - d % 2).step_by(2).fold(last, |sum, column| sum + term(column));
                let odd = (1..d).step_by(2).fold(0.0, |sum, column| sum + term(column));
                assert_eq!(*out, start[row] + (even + odd), "row {row} of {d}");
            }
        }
    }

    #[test]
    fn covariance_and_precision_are_two_ways_to_say_the_same() {
        let by_covariance = Gaussian::from_covariance(vec![1.0, 2.0], &[2.0, 0.5, 0.5, 1.0]).unwrap();
        let determinant = 1.75;
        let by_precision =
            Gaussian::new(vec![1.0, 2.0], vec![1.0 / determinant, -0.5 / determinant, -0.5 / determinant, 2.0 / determinant]).unwrap();
        for (a, b) in by_covariance.precision.iter().zip(&by_precision.precision) {
            assert!((a - b).abs() < 1e-14);
        }
    }

    #[test]
    fn wrong_matrices_are_refused_by_name() {
        let refused = |m: Vec<f64>| Gaussian::new(vec![0.0, 0.0], m).unwrap_err().to_string();
        assert!(refused(vec![1.0, 0.2, 0.1, 1.0]).contains("not symmetric"));
        assert!(refused(vec![1.0, 2.0, 2.0, 1.0]).contains("not positive semi-definite"));
        assert!(refused(vec![1.0, 2.0, 2.0]).contains("cut short"));
        assert!(refused(vec![f64::NAN, 0.0, 0.0, 1.0]).contains("NaN"));
        let singular = Gaussian::from_covariance(vec![0.0, 0.0], &[1.0, 1.0, 1.0, 1.0]).unwrap_err();
        assert!(singular.to_string().contains("not positive definite"));
    }
}
