//! Model a label among several classes by one linear predictor a class: softmax regression.

use std::sync::Arc;

use super::panel::{self, Shape, Valid};
use super::real::{Arithmetic, Real};
use super::{Classifier, Design, EvaluationError, Evaluator, Likelihood, RowReach, Rows, Rowwise};
use crate::ask::{Ask, Sum};
use crate::error::DataError;
use crate::simd::{Kernel, LANES, exp, ln, run_in_256_bits};

/// `U_ij(x) = logsumexp_k(a_j . x_k) - a_j . x_{y_j}`, with the parameters of class `k` at
/// `x[k * features..(k + 1) * features]`.
#[derive(Clone, Debug)]
pub struct Softmax {
    table: Table,
    labels: Vec<u32>,
    shape: Shape,
    /// Row by row a Lipschitz constant of the gradient.
    smoothness: Vec<f64>,
}

#[derive(Clone, Debug)]
enum Table {
    F64(Design<f64>),
    F32(Design<f32>),
}

/// At most so many probabilities at a reference point are remembered.
const MOST_REMEMBERED: usize = 1 << 22;

impl Softmax {
    /// From features, one label a row in `0..classes`, and the number of classes.
    pub fn new(design: Design, labels: Vec<u32>, classes: usize) -> Result<Self, DataError> {
        if labels.len() != design.rows() {
            return Err(DataError::Responses { responses: labels.len(), rows: design.rows() });
        }
        if let Some(row) = labels.iter().position(|y| *y as usize >= classes) {
            return Err(DataError::Label {
                row,
                label: f64::from(labels[row]),
                allowed: format!("whole numbers from 0 to {}", classes.saturating_sub(1)),
            });
        }
        // diag(p) - pp' has no eigenvalue above 1/2
        let smoothness = (0..design.rows()).map(|row| 0.5 * design.row_norm_squared(row)).collect();
        Ok(Softmax {
            shape: Shape::new(design.columns(), classes),
            table: Table::F64(design),
            labels,
            smoothness,
        })
    }

    /// The same model with sums over rows in this arithmetic.
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> Self {
        let table = match (self.table, arithmetic) {
            (Table::F64(design), Arithmetic::F32) => Table::F32(design.narrowed()),
            (table, _) => table,
        };
        Softmax { table, ..self }
    }

    /// Do a job with the model's numbers and its width.
    fn dispatch<J: Job>(&self, job: J) -> J::Output {
        match &self.table {
            Table::F64(design) => self.at_width(design, job),
            Table::F32(design) => self.at_width(design, job),
        }
    }

    fn at_width<T: Real, J: Job>(&self, design: &Design<T>, job: J) -> J::Output {
        let model = self;
        match self.shape.width {
            4 => run_in_256_bits(Compiled::<T, J, 4> { model, design, job }),
            8 => run_in_256_bits(Compiled::<T, J, 8> { model, design, job }),
            12 => run_in_256_bits(Compiled::<T, J, 12> { model, design, job }),
            _ => run_in_256_bits(Compiled::<T, J, 16> { model, design, job }),
        }
    }

    /// How many places are needed to remember probabilities at a reference point: the point, its
    /// number, the number at which each row was remembered, and what.
    fn memory(&self) -> usize {
        let probabilities = self.labels.len() * self.shape.lanes();
        if probabilities > MOST_REMEMBERED {
            0
        } else {
            self.dim() + 1 + self.labels.len() + probabilities
        }
    }
}

impl Classifier for Softmax {
    fn classes(&self) -> usize {
        self.shape.classes
    }

    fn label(&self, row: usize) -> usize {
        self.labels[row] as usize
    }

    fn add_probabilities(&self, x: &[f64], scale: f64, out: &mut [f64]) {
        self.dispatch(Probabilities { x, scale, out });
    }
}

impl Likelihood for Softmax {
    fn dim(&self) -> usize {
        self.shape.features * self.shape.classes
    }

    fn rows(&self) -> usize {
        self.labels.len()
    }

    fn scratch(&self) -> usize {
        Workspace::<f64, 4>::places(self.shape)
    }

    fn classifier(&self) -> Option<&dyn Classifier> {
        Some(self)
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        self.dispatch(Value { x, rows, scratch })
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.dispatch(Derivative {
            of: Of::Gradient,
            x,
            rows,
            scale,
            out,
            memory: &mut [],
            scratch,
        });
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
        self.dispatch(Derivative {
            of: Of::Difference { z, same: false },
            x,
            rows,
            scale,
            out,
            memory: &mut [],
            scratch,
        });
    }

    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.dispatch(Derivative {
            of: Of::HessianVector { v },
            x,
            rows,
            scale,
            out,
            memory: &mut [],
            scratch,
        });
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        let rows = Rowwise::new(self);
        Box::new(SoftmaxEvaluator { memory: Vec::new(), rows, referred: None, known: None })
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        self.smoothness[row]
    }

    /// Probabilities less a unit vector are at most `sqrt 2` long.
    fn row_reach(&self) -> Option<RowReach> {
        let half = self.smoothness.iter().copied().fold(0.0, f64::max); // of the longest's square
        let loss = (self.classes() as f64).ln();
        Some(RowReach { gradient: 2.0 * half.sqrt(), loss })
    }
}

/// Remembers the probabilities of rows at the last reference point.
#[derive(Debug)]
struct SoftmaxEvaluator {
    memory: Vec<f64>,
    rows: Rowwise<Softmax>,
    /// The number of the reference point that is asked about, and of the one in memory.
    referred: Option<u64>,
    known: Option<u64>,
}

impl Evaluator for SoftmaxEvaluator {
    #[inline]
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        for ask in asks {
            if let Sum::Difference { x, z } = ask.sum
                && x.len() == self.rows.model.dim()
            {
                let (model, scratch) = self.rows.parts();
                self.memory.resize(model.memory(), 0.0);
                let (rows, scale, out) = (ask.rows, ask.scale, &mut *ask.out);
                let same = self.referred.is_some() && self.known == self.referred;
                self.known = self.referred;
                let (of, memory) = (Of::Difference { z, same }, &mut self.memory[..]);
                model.dispatch(Derivative { of, x, rows, scale, out, memory, scratch });
            } else {
                self.rows.answer_one(ask);
            }
        }
        Ok(())
    }

    fn scratch(&mut self) -> Option<&mut Vec<f64>> {
        self.rows.lent()
    }

    fn refer_to(&mut self, number: u64) {
        self.referred = Some(number);
    }
}

/// Work that is compiled once for every kind of number, width of a panel and width of vector
/// registers.
trait Job {
    type Output;
    fn run<T: Real, const W: usize>(self, model: &Softmax, design: &Design<T>) -> Self::Output;
}

struct Compiled<'a, T, J, const W: usize> {
    model: &'a Softmax,
    design: &'a Design<T>,
    job: J,
}

impl<T: Real, J: Job, const W: usize> Kernel for Compiled<'_, T, J, W> {
    type Output = J::Output;

    #[inline(always)]
    fn run(self) -> J::Output {
        self.job.run::<T, W>(self.model, self.design)
    }
}

/// What the jobs write on.
struct Workspace<'a, T, const W: usize> {
    /// `x`, and another point or vector.
    x: &'a mut [[T; W]],
    other: &'a mut [[T; W]],
    /// A sum over rows.
    sum: &'a mut [[T; W]],
    /// What some rows have at `x`, and at the other.
    at_x: &'a mut [[T; W]],
    at_other: &'a mut [[T; W]],
}

impl<'a, T: Real, const W: usize> Workspace<'a, T, W> {
    /// How many places of 64 bits it takes, whatever the numbers.
    fn places(shape: Shape) -> usize {
        ALIGNED - 1 + (3 * shape.features + 2 * LANES) * shape.lanes()
    }

    #[inline(always)]
    fn new(shape: Shape, scratch: &'a mut [f64]) -> Self {
        // no bit depends on it
        let from = scratch.as_ptr().align_offset(ALIGNED * size_of::<f64>()).min(ALIGNED - 1);
        let arrays =
            pulp::bytemuck::cast_slice_mut::<f64, T>(&mut scratch[from..]).as_chunks_mut::<W>().0;
        let (x, rest) = arrays.split_at_mut(shape.features * shape.groups());
        let (other, rest) = rest.split_at_mut(shape.features * shape.groups());
        let (sum, rest) = rest.split_at_mut(shape.features * shape.groups());
        let (at_x, rest) = rest.split_at_mut(LANES * shape.groups());
        Workspace { x, other, sum, at_x, at_other: &mut rest[..LANES * shape.groups()] }
    }
}

/// Arrays start at multiples of so many places, a line of the cache.
const ALIGNED: usize = 8;

/// The derivatives that are sums over rows of features times one weight a class.
enum Of<'a> {
    Gradient,
    /// From `z`, which is the reference point of the last call where `same` says so.
    Difference {
        z: &'a [f64],
        same: bool,
    },
    HessianVector {
        v: &'a [f64],
    },
}

struct Derivative<'a> {
    of: Of<'a>,
    x: &'a [f64],
    rows: Rows<'a>,
    scale: f64,
    out: &'a mut [f64],
    /// What is remembered of reference points; empty where nothing is.
    memory: &'a mut [f64],
    scratch: &'a mut [f64],
}

impl Job for Derivative<'_> {
    type Output = ();

    #[inline(always)]
    fn run<T: Real, const W: usize>(self, model: &Softmax, design: &Design<T>) {
        let Derivative { of, x, rows, scale, out, memory, scratch } = self;
        let (shape, groups) = (model.shape, model.shape.groups());
        let mut reference = if let Of::Difference { z, same } = of {
            Some(ReferencePoint::<T>::new(shape, (z, same), memory, model.rows()))
        } else {
            None
        };
        let Workspace { x: panel, other, sum, at_x, at_other } =
            Workspace::<T, W>::new(shape, scratch);
        let valid = Valid::new(shape);
        panel::turn(shape, x, panel);
        if let Of::HessianVector { v } = of {
            panel::turn(shape, v, other);
        }
        sum.fill([T::default(); W]);
        let mut blocks = rows.blocks(model.rows());
        let mut next = blocks.next();
        while let Some(block) = next {
            next = blocks.next();
            for row in next.iter().flat_map(|next| next.iter()) {
                design.touch(*row); // minibatches are far apart: it comes while others are summed
            }
            for (row, weights) in block.iter().zip(at_x.chunks_exact_mut(groups)) {
                panel::product(design, *row, panel, weights);
            }
            panel::normalise(shape, &valid, &mut at_x[..block.len() * groups]);
            if let Of::Gradient = of {
                for (row, weights) in block.iter().zip(at_x.chunks_exact_mut(groups)) {
                    let slot = &mut weights.as_flattened_mut()[model.labels[*row] as usize];
                    *slot = *slot - T::ONE;
                }
            }
            if let Some(reference) = &mut reference {
                for ((row, weights), at_z) in block
                    .iter()
                    .zip(at_x.chunks_exact_mut(groups))
                    .zip(at_other.chunks_exact_mut(groups))
                {
                    let at_z = reference.probabilities(design, &valid, *row, other, at_z);
                    for (p, q) in weights.iter_mut().zip(at_z) {
                        for lane in 0..W {
                            p[lane] = p[lane] - q[lane]; // the labels cancel
                        }
                    }
                }
            }
            if let Of::HessianVector { .. } = of {
                for ((row, weights), along) in block
                    .iter()
                    .zip(at_x.chunks_exact_mut(groups))
                    .zip(at_other.chunks_exact_mut(groups))
                {
                    panel::product(design, *row, other, along);
                    let mut mean = T::default();
                    for (p, t) in weights.as_flattened().iter().zip(along.as_flattened()) {
                        mean += *p * *t;
                    }
                    for (p, t) in weights.as_flattened_mut().iter_mut().zip(along.as_flattened()) {
                        *p = *p * (*t - mean);
                    }
                }
            }
            panel::add_outer(design, &block, at_x, sum);
        }
        panel::turn_back(shape, sum, scale, out);
    }
}

/// Class probabilities at a reference point. Such a point stays where it is for many calls, so they
/// are remembered row by row; what is remembered is what would be computed.
struct ReferencePoint<'a, T> {
    shape: Shape,
    z: &'a [f64],
    /// Whether `z` is in its panel.
    turned: bool,
    memory: Option<Memory<'a, T>>,
}

struct Memory<'a, T> {
    /// The number of this reference point: 1, 2, ...
    point: f64,
    /// At which point each row was remembered last; none is point 0.
    points: &'a mut [f64],
    probabilities: &'a mut [T],
}

impl<'a, T: Real> ReferencePoint<'a, T> {
    #[inline(always)]
    fn new(shape: Shape, (z, same): (&'a [f64], bool), memory: &'a mut [f64], rows: usize) -> Self {
        if memory.is_empty() {
            return ReferencePoint { shape, z, turned: false, memory: None };
        }
        let (last, rest) = memory.split_at_mut(z.len());
        let (point, rest) = rest.split_at_mut(1);
        let (points, probabilities) = rest.split_at_mut(rows);
        if !same && (!same_bits(last, z) || point[0] == 0.0) {
            last.copy_from_slice(z);
            point[0] += 1.0;
        }
        let probabilities = pulp::bytemuck::cast_slice_mut(probabilities);
        ReferencePoint {
            shape,
            z,
            turned: false,
            memory: Some(Memory { point: point[0], points, probabilities }),
        }
    }

    /// The probabilities of a row: `other` is where `z` is turned round, `room` where they are if
    /// they are not remembered.
    #[inline(always)]
    fn probabilities<'s, const W: usize>(
        &'s mut self,
        design: &Design<T>,
        valid: &Valid<T, W>,
        row: usize,
        other: &mut [[T; W]],
        room: &'s mut [[T; W]],
    ) -> &'s [[T; W]] {
        let groups = self.shape.groups();
        let (slot, known) = match &mut self.memory {
            Some(memory) => {
                let known = memory.points[row] == memory.point;
                memory.points[row] = memory.point;
                (
                    &mut memory.probabilities.as_chunks_mut::<W>().0
                        [row * groups..(row + 1) * groups],
                    known,
                )
            }
            None => (room, false),
        };
        if !known {
            if !self.turned {
                panel::turn(self.shape, self.z, other);
                self.turned = true;
            }
            panel::product(design, row, other, slot);
            panel::normalise(self.shape, valid, slot);
        }
        slot
    }
}

/// Whether these are the same numbers, bit for bit. Differences are gathered rather than met with
/// an early exit: that is what vectorises.
#[inline(always)]
fn same_bits(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a.to_bits() ^ b.to_bits())) == 0
}

struct Value<'a> {
    x: &'a [f64],
    rows: Rows<'a>,
    scratch: &'a mut [f64],
}

impl Job for Value<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<T: Real, const W: usize>(self, model: &Softmax, design: &Design<T>) -> f64 {
        let groups = model.shape.groups();
        let work = Workspace::<T, W>::new(model.shape, self.scratch);
        panel::turn(model.shape, self.x, work.x);
        let mut total = 0.0;
        for block in self.rows.blocks(model.labels.len()) {
            for row in block.iter() {
                let logits = &mut work.at_x[..groups];
                panel::product(design, *row, work.x, logits);
                let logits = &logits.as_flattened()[..model.shape.classes];
                let most = logits.iter().fold(f64::NEG_INFINITY, |most, t| most.max(t.widen()));
                let sum: f64 = logits.iter().map(|t| exp(t.widen() - most)).sum();
                total += most + ln(sum) - logits[model.labels[*row] as usize].widen();
            }
        }
        total
    }
}

struct Probabilities<'a> {
    x: &'a [f64],
    scale: f64,
    out: &'a mut [f64],
}

impl Job for Probabilities<'_> {
    type Output = ();

    #[inline(always)]
    fn run<T: Real, const W: usize>(self, model: &Softmax, design: &Design<T>) {
        let (shape, groups) = (model.shape, model.shape.groups());
        let mut scratch = vec![0.0; Workspace::<T, W>::places(shape)];
        let work = Workspace::<T, W>::new(shape, &mut scratch);
        let valid = Valid::new(shape);
        panel::turn(shape, self.x, work.x);
        for (row, slots) in self.out.chunks_exact_mut(shape.classes).enumerate() {
            let each = &mut work.at_x[..groups];
            panel::product(design, row, work.x, each);
            panel::normalise(shape, &valid, each);
            slots
                .iter_mut()
                .zip(each.as_flattened())
                .for_each(|(slot, p)| *slot += self.scale * p.widen());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::normals;
    use super::*;
    use crate::model::Single;

    /// Models of all widths, dense and sparse, with features that do and do not fill whole tiles.
    fn models() -> Vec<(Softmax, Vec<Vec<f64>>)> {
        let mut all = Vec::new();
        for (at, (classes, features)) in
            [(2, 1), (3, 5), (4, 8), (7, 13), (10, 16), (12, 9), (16, 4), (17, 3), (40, 7)]
                .into_iter()
                .enumerate()
        {
            for keep in [1, 4] {
                let rows = 21;
                let mut cells = normals(100 + at as u64, rows * features);
                cells
                    .iter_mut()
                    .enumerate()
                    .filter(|(k, _)| k % keep != 0)
                    .for_each(|(_, cell)| *cell = 0.0);
                let labels = (0..rows as u32).map(|row| row * 7 % classes as u32).collect();
                let model =
                    Softmax::new(Design::dense(cells.clone(), features).unwrap(), labels, classes)
                        .unwrap();
                all.push((model, cells.chunks(features).map(<[f64]>::to_vec).collect()));
            }
        }
        all
    }

    /// Probabilities of one row, as the formula has them.
    fn plain(row: &[f64], x: &[f64]) -> Vec<f64> {
        let powers: Vec<f64> = x
            .chunks(row.len())
            .map(|x| x.iter().zip(row).map(|(x, a)| x * a).sum::<f64>().exp())
            .collect();
        powers.iter().map(|p| p / powers.iter().sum::<f64>()).collect()
    }

    fn plain_gradient(model: &Softmax, cells: &[Vec<f64>], x: &[f64], rows: &[u32]) -> Vec<f64> {
        let mut out = vec![0.0; model.dim()];
        for row in rows {
            let row = *row as usize;
            for (k, p) in plain(&cells[row], x).iter().enumerate() {
                let weight = p - f64::from(u8::from(model.label(row) == k));
                for (j, cell) in cells[row].iter().enumerate() {
                    out[k * cells[row].len() + j] += weight * cell;
                }
            }
        }
        out
    }

    fn close(found: &[f64], right: &[f64], tolerance: f64) {
        let size = right.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
        for (found, right) in found.iter().zip(right) {
            assert!((found - right).abs() < tolerance * size, "{found} is not {right}");
        }
    }

    #[test]
    fn gradients_and_differences_are_those_of_the_formula() {
        for (model, cells) in models() {
            let (x, z) = (normals(1, model.dim()), normals(2, model.dim()));
            let some: Vec<u32> = (0..21).filter(|row| row % 3 != 1).collect();
            let (at_x, at_z) = (
                plain_gradient(&model, &cells, &x, &some),
                plain_gradient(&model, &cells, &z, &some),
            );
            let difference: Vec<f64> = at_x.iter().zip(&at_z).map(|(a, b)| 2.0 * (a - b)).collect();
            for (arithmetic, tolerance) in [(Arithmetic::F64, 1e-13), (Arithmetic::F32, 2e-6)] {
                let model = model.clone().with_arithmetic(arithmetic);
                let mut scratch = vec![0.0; model.scratch()];
                let mut out = vec![0.0; model.dim()];
                model.add_gradient(&x, Rows::Some(&some), 1.0, &mut out, &mut scratch);
                close(&out, &at_x, tolerance);
                out.fill(0.0);
                model.add_gradient_difference(
                    &x,
                    &z,
                    Rows::Some(&some),
                    2.0,
                    &mut out,
                    &mut scratch,
                );
                close(&out, &difference, 4.0 * tolerance);
            }
        }
    }

    #[test]
    fn what_is_remembered_changes_no_bit() {
        for (model, _) in models() {
            for arithmetic in [Arithmetic::F64, Arithmetic::F32] {
                let model = model.clone().with_arithmetic(arithmetic);
                let points: Vec<Vec<f64>> = (1..4).map(|at| normals(at, model.dim())).collect();
                let batches: [&[u32]; 4] =
                    [&[0, 3, 5], &[3, 4, 5, 6, 7, 8, 9, 10, 11, 20], &[0, 20], &[1, 2, 3]];
                let shared: Arc<dyn crate::model::Model> = Arc::new(model.clone());
                let mut kept = Single::new(&shared);
                for call in 0..24 {
                    let (x, z, rows) =
                        (&points[call % 3], &points[call / 7 % 3], Rows::Some(batches[call % 4]));
                    let (mut with, mut without) = (vec![0.0; model.dim()], vec![0.0; model.dim()]);
                    kept.add(Sum::Difference { x, z }, rows, 1.5, &mut with);
                    model.add_gradient_difference(
                        x,
                        z,
                        rows,
                        1.5,
                        &mut without,
                        &mut vec![0.0; model.scratch()],
                    );
                    assert_eq!(with, without);
                    // between the calls others are made
                    kept.add_gradient(x, rows, 1.0, &mut with);
                    assert!(call / 7 % 3 != call % 3 || without.iter().all(|v| *v == 0.0));
                }
            }
        }
    }

    #[test]
    fn wide_registers_change_no_bit() {
        for (model, _) in models() {
            let (x, z) = (normals(3, model.dim()), normals(4, model.dim()));
            let job = |of: Of<'_>, narrow: bool| {
                let mut out = vec![0.0; model.dim()];
                let scratch = &mut vec![0.0; model.scratch()];
                let (rows, memory) = (Rows::All, &mut [][..]);
                let job =
                    Derivative { of, x: &x, rows, scale: 0.7, out: &mut out, memory, scratch };
                match (&model.table, model.shape.width) {
                    (Table::F64(design), 4) if narrow => job.run::<f64, 4>(&model, design),
                    (Table::F64(design), 8) if narrow => job.run::<f64, 8>(&model, design),
                    (Table::F64(design), 12) if narrow => job.run::<f64, 12>(&model, design),
                    (Table::F64(design), 16) if narrow => job.run::<f64, 16>(&model, design),
                    _ => model.dispatch(job),
                }
                out
            };
            assert_eq!(job(Of::Gradient, true), job(Of::Gradient, false));
            let difference = || Of::Difference { z: &z, same: false };
            assert_eq!(job(difference(), true), job(difference(), false));
            assert_eq!(
                job(Of::HessianVector { v: &z }, true),
                job(Of::HessianVector { v: &z }, false)
            );
        }
    }
}
