//! Model a client by a Gaussian: one quadratic form, or the sum of squared distances to its rows.

use std::sync::Arc;

use nalgebra::DMatrix;

use super::symmetric::{
    Steps, SymmetricMatrix, add_product, walk_in_registers, walk_two_in_registers,
};
use super::{EvaluationError, Evaluator, Likelihood, Offers, Quadratic, Rows, Rowwise, Spread};
use crate::ask::Ask;
use crate::error::DataError;
use crate::linalg::{add_scaled, dot, subtract};
use crate::simd::{LANES, wide};
use crate::step::Schedule;
use crate::walk::{Walk, WalkRoom, step_by_step};

/// `U_i(x) = (x - mean)' precision (x - mean) / 2`, one row.
#[derive(Clone, Debug)]
pub struct Gaussian {
    mean: Vec<f64>,
    precision: Vec<f64>,
    columns: SymmetricMatrix,
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
        Ok(Gaussian {
            mean,
            columns: SymmetricMatrix::new(&precision, d),
            precision,
            smoothness: most,
        })
    }

    /// From the mean and the covariance matrix (row-major, symmetric, positive definite).
    pub fn from_covariance(mean: Vec<f64>, covariance: &[f64]) -> Result<Self, DataError> {
        let d = mean.len();
        check_vector(&mean)?;
        check_symmetric("covariance", covariance, d)?;
        let Some(cholesky) = DMatrix::from_row_slice(d, d, covariance).cholesky() else {
            let least =
                DMatrix::from_row_slice(d, d, covariance).symmetric_eigen().eigenvalues.min();
            return Err(DataError::Matrix {
                what: "covariance",
                property: "positive definite",
                entry: 0,
                value: least,
                fix: "its smallest eigenvalue is shown; give a precision matrix if some direction \
                    has no information",
            });
        };
        let inverse = cholesky.inverse();
        let symmetric = (&inverse + inverse.transpose()) * 0.5;
        Gaussian::new(mean, symmetric.as_slice().to_vec()) // symmetric: row-major is column-major
    }
}

impl Likelihood for Gaussian {
    fn dim(&self) -> usize {
        self.mean.len()
    }

    fn rows(&self) -> usize {
        1
    }

    fn scratch(&self) -> usize {
        self.mean.len()
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        if rows.count(1) == 0 {
            return 0.0;
        }
        let d = self.dim();
        let moved = &mut scratch[..d];
        subtract(x, &self.mean, moved);
        (0..d).map(|i| moved[i] * dot(&self.precision[i * d..(i + 1) * d], moved)).sum::<f64>()
            * 0.5
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.add_gradient_difference(x, &self.mean, rows, scale, out, scratch);
    }

    fn add_gradient_difference(
        &self,
        x: &[f64],
        z: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        if rows.count(1) == 0 {
            return;
        }
        add_product(&self.columns, x, z, scale, out, &mut scratch[..self.dim()]);
    }

    fn add_hessian_vector(
        &self,
        _x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        if rows.count(1) == 0 {
            return;
        }
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

    fn offers(&self) -> Offers {
        Offers { values: true, hessians: true, ..Offers::default() }
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        Box::new(GaussianEvaluator(Rowwise::new(self)))
    }
}

/// Walks with the parameter in registers, where it has room there.
#[derive(Debug)]
struct GaussianEvaluator(Rowwise<Gaussian>);

impl Evaluator for GaussianEvaluator {
    #[inline]
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        self.0.answer(asks)
    }

    fn walk(&mut self, walks: &mut [Walk<'_>], room: &mut WalkRoom) -> Result<(), EvaluationError> {
        for walk in walks {
            if stays_in_registers(&self.0.model, walk) {
                go_on(&self.0.model, walk, 0, room);
            } else {
                step_by_step(&mut self.0, std::slice::from_mut(walk), room)?;
            }
        }
        Ok(())
    }

    fn walk_two(
        &mut self,
        walk: &mut Walk<'_>,
        (other, beside): (&mut dyn Evaluator, &mut Walk<'_>),
        room: &mut WalkRoom,
    ) -> Result<(), EvaluationError> {
        if let Some(theirs) = other.as_any().and_then(|other| other.downcast_ref::<Self>()) {
            let (mine, theirs) = (&*self.0.model, &*theirs.0.model);
            let constant = |schedule| matches!(schedule, Schedule::Constant(_));
            let alike = walk.steps >= SHORTEST_TOGETHER
                && walk.x.len() == beside.x.len()
                && (walk.from, walk.steps) == (beside.from, beside.steps)
                && constant(walk.schedule)
                && constant(beside.schedule);
            if alike && stays_in_registers(mine, walk) && stays_in_registers(theirs, beside) {
                let done = go_on_together([mine, theirs], walk, beside, room);
                go_on(mine, walk, done, room);
                go_on(theirs, beside, done, room);
                return Ok(());
            }
        }
        self.walk(std::slice::from_mut(walk), room)?;
        other.walk(std::slice::from_mut(beside), room)
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }
}

/// Shorter walks wait for their matrices more than for their sums: one after the other is as fast.
const SHORTEST_TOGETHER: u64 = 3;

/// Whether the parameter has room in registers for all of a walk.
fn stays_in_registers(model: &Gaussian, walk: &Walk<'_>) -> bool {
    model.columns.is_short() && walk.is_by_rows_alone() && walk.noise.is_of_one()
}

/// The steps of a walk from this iteration on, without their noise.
#[inline(always)]
fn steps<'s, 'a: 's>(model: &'s Gaussian, walk: &Walk<'a>, from: u64) -> Steps<'s> {
    let (z, base) = match walk.control {
        Some(control) => (control.point, Some(control.drift)),
        None => (&model.mean[..], None),
    };
    Steps {
        z,
        base,
        scale: walk.scale,
        weight: walk.weight,
        step: walk.schedule.at(from),
        temperature: walk.temperature,
        noise: (0.0, &[]),
    }
}

/// Take the steps of a walk from step `done` on.
fn go_on(model: &Gaussian, walk: &mut Walk<'_>, done: u64, room: &mut WalkRoom) {
    let mut done = done;
    while done < walk.steps {
        let (from, left) = (walk.from + done, walk.steps - done);
        let alike = if let Schedule::Constant(_) = walk.schedule { left } else { 1 };
        let steps = steps(model, walk, from);
        let noise = walk.noise.some_from(from, alike, &mut room.shared);
        done += (noise.1.len() / walk.x.len()) as u64;
        walk_in_registers(&model.columns, Steps { noise, ..steps }, walk.x);
    }
}

/// Take the steps of two walks that are alike, as long as the noise of both is at hand: how many.
fn go_on_together(
    models: [&Gaussian; 2],
    one: &mut Walk<'_>,
    two: &mut Walk<'_>,
    room: &mut WalkRoom,
) -> u64 {
    let mut done = 0;
    while done < one.steps {
        let (from, left) = (one.from + done, one.steps - done);
        one.noise.some_from(from, left, &mut room.shared);
        two.noise.some_from(from, left, &mut room.shared);
        let [a, b] = [steps(models[0], one, from), steps(models[1], two, from)];
        let (Some(first), Some(second)) =
            (one.noise.held(from, left, &room.shared), two.noise.held(from, left, &room.shared))
        else {
            break;
        };
        let count = first.1.len().min(second.1.len());
        let steps = [
            Steps { noise: (first.0, &first.1[..count]), ..a },
            Steps { noise: (second.0, &second.1[..count]), ..b },
        ];
        walk_two_in_registers(models.map(|m| &m.columns), steps, [&mut *one.x, &mut *two.x]);
        done += (count / one.x.len()) as u64;
    }
    done
}

/// `U_i(x) = sum_j norm(x - y_j)^2 / 2` over the client's rows `y_j`: QLSD sec. 4, the toy
/// Gaussian.
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
                let from = *row as usize * d + block * LANES;
                if let Some(eight) = cells[from..].first_chunk::<LANES>() {
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
    fn add_scaled_difference<'a>(x: &'a [f64], z: &'a [f64], n: f64, scale: f64,
        out: &'a mut [f64]) -> () {
        for ((out, x), z) in out.iter_mut().zip(x).zip(z) {
            *out += scale * (n * (x - z));
        }
    }
}

impl Likelihood for Isotropic {
    fn dim(&self) -> usize {
        self.dim
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn scratch(&self) -> usize {
        self.dim
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, _scratch: &mut [f64]) -> f64 {
        let squares = |row: &[f64]| x.iter().zip(row).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let row = |row: usize| &self.cells[row * self.dim..(row + 1) * self.dim];
        let sum = match rows {
            Rows::All => self.cells.chunks_exact(self.dim).map(squares).sum::<f64>(),
            Rows::Some(some) => some.iter().map(|j| squares(row(*j as usize))).sum(),
        };
        sum * 0.5
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        // sum_j (x - y_j) = n x - sum_j y_j: one subtraction for all rows, the sum known beforehand
        // for all of them.
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

    fn add_gradient_difference(
        &self,
        x: &[f64],
        z: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        // whatever the rows are: they cancel
        add_scaled_difference(x, z, rows.count(self.rows) as f64, scale, out);
    }

    fn offers(&self) -> Offers {
        Offers { values: true, hessians: true, differences_ignore_rows: true, ..Offers::default() }
    }

    fn add_hessian_vector(
        &self,
        _x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        add_scaled(scale * rows.count(self.rows) as f64, v, out);
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

    #[test]
    fn covariance_and_precision_are_two_ways_to_say_the_same() {
        let by_covariance =
            Gaussian::from_covariance(vec![1.0, 2.0], &[2.0, 0.5, 0.5, 1.0]).unwrap();
        let determinant = 1.75;
        let by_precision = Gaussian::new(
            vec![1.0, 2.0],
            vec![1.0 / determinant, -0.5 / determinant, -0.5 / determinant, 2.0 / determinant],
        )
        .unwrap();
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
        let singular =
            Gaussian::from_covariance(vec![0.0, 0.0], &[1.0, 1.0, 1.0, 1.0]).unwrap_err();
        assert!(singular.to_string().contains("not positive definite"));
    }
}
