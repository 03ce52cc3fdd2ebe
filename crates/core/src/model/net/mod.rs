//! Model rows by a neural net: layers, a plan of steps, kernels with rows in lanes.
//!
//! Parameters are one flat list in PyTorch's order. State, prior and sums of losses have 64 bits;
//! inside, the net computes with 32 (with 64 for checks). `kernels` says in which order every sum
//! is taken: that order is part of the model, so a net gives the same bits on every machine.

mod builder;
mod kernels;
mod layers;
mod pass;
mod plan;
mod steps;
#[cfg(test)]
mod tests;

pub use kernels::BLOCK;
pub use kernels::window::Window;
pub use layers::{Activation, LAYERS, Layer, LayerError, PRESETS, Shortcut, Stated, parse, preset};
pub use plan::{Line, NetPlan, Parameter, Role, Shape};
pub use steps::{Affine, Range, Step, Tensor};

use std::sync::Arc;

use kernels::widths::{Narrow, Widen};
use kernels::{GROUP, Job, Lanes, Number, loss};
use pass::{Group, Pass, Room};

use super::real::{Arithmetic, Real};
use super::{Classifier, Design, EvaluationError, Evaluator, Model, Offers, Rows};
use crate::ask::{Ask, Sum};
use crate::error::DataError;

/// A net and one client's rows.
#[derive(Clone, Debug)]
pub struct Net {
    table: Table,
}

#[derive(Clone, Debug)]
enum Table {
    F32(Arc<Data<f32>>),
    F64(Arc<Data<f64>>),
}

#[derive(Debug)]
struct Data<T> {
    plan: Arc<NetPlan>,
    design: Design<T>,
    seen: Seen,
}

/// What a net explains.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// One of as many classes as the net has outputs, numbered from 0.
    Labels(Vec<u32>),
    /// Numbers, with Gaussian noise of this variance.
    Numbers(Vec<f64>, f64),
}

impl Net {
    /// From a plan, rows as wide as its input, and what was seen with each.
    pub fn new(
        plan: Arc<NetPlan>,
        design: Design,
        seen: Seen,
        arithmetic: Arithmetic,
    ) -> Result<Self, DataError> {
        let (rows, found) = (design.rows(), design.columns());
        if found != plan.input().len() {
            let what = format!("a row, for a net whose input is {},", plan.input());
            return Err(DataError::Dimension { what, found, expected: plan.input().len() });
        }
        let (responses, needed) = match &seen {
            Seen::Labels(labels) => (labels.len(), plan.outputs().max(2)),
            Seen::Numbers(numbers, _) => (numbers.len(), 1),
        };
        if responses != rows {
            return Err(DataError::Responses { responses, rows });
        }
        if plan.outputs() != needed {
            let what = "the last layer of the net".into();
            return Err(DataError::Dimension { what, found: plan.outputs(), expected: needed });
        }
        match &seen {
            Seen::Labels(labels) => {
                if let Some(row) = labels.iter().position(|y| *y as usize >= plan.outputs()) {
                    return Err(DataError::Label {
                        row,
                        label: f64::from(labels[row]),
                        allowed: format!("whole numbers from 0 to {}", plan.outputs() - 1),
                    });
                }
            }
            Seen::Numbers(numbers, variance) => {
                if !(*variance > 0.0 && variance.is_finite()) {
                    let what = "the noise variance";
                    return Err(DataError::NotPositive { what, value: *variance });
                }
                if let Some(row) = numbers.iter().position(|y| !y.is_finite()) {
                    let allowed = "finite numbers".into();
                    return Err(DataError::Label { row, label: numbers[row], allowed });
                }
            }
        }
        let table = match arithmetic {
            Arithmetic::F32 => Table::F32(Arc::new(Data { plan, design: design.narrowed(), seen })),
            Arithmetic::F64 => Table::F64(Arc::new(Data { plan, design, seen })),
        };
        Ok(Net { table })
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<NetPlan> {
        match &self.table {
            Table::F32(data) => &data.plan,
            Table::F64(data) => &data.plan,
        }
    }

    /// With how many bits it computes.
    pub fn arithmetic(&self) -> Arithmetic {
        match self.table {
            Table::F32(_) => Arithmetic::F32,
            Table::F64(_) => Arithmetic::F64,
        }
    }

    /// A row, as a net of 32 bits takes it, into `out`.
    pub fn input(&self, row: usize, out: &mut [f32]) {
        match &self.table {
            Table::F32(data) => data.design.cells_of(row, out, |v| v),
            Table::F64(data) => data.design.cells_of(row, out, |v| v as f32),
        }
    }

    /// What was seen with each row.
    pub fn seen(&self) -> &Seen {
        match &self.table {
            Table::F32(data) => &data.seen,
            Table::F64(data) => &data.seen,
        }
    }

    /// `out += scale * outputs` of every row at `x`; probabilities, if these are wanted.
    fn add_outputs(&self, x: &[f64], scale: f64, probabilities: bool, out: &mut [f64]) {
        match &self.table {
            Table::F32(data) => data.add_outputs(x, scale, probabilities, out),
            Table::F64(data) => data.add_outputs(x, scale, probabilities, out),
        }
    }
}

impl NetPlan {
    /// The outputs of every row of a table at `x`, row by row: logits, or numbers.
    pub fn outputs_of(
        self: &Arc<Self>,
        design: Design,
        arithmetic: Arithmetic,
        x: &[f64],
    ) -> Result<Vec<f64>, DataError> {
        let rows = design.rows();
        let seen = match self.outputs() {
            1 => Seen::Numbers(vec![0.0; rows], 1.0),
            _ => Seen::Labels(vec![0; rows]),
        };
        let net = Net::new(Arc::clone(self), design, seen, arithmetic)?;
        let mut out = vec![0.0; rows * self.outputs()];
        net.add_outputs(x, 1.0, false, &mut out);
        Ok(out)
    }
}

impl Model for Net {
    fn dim(&self) -> usize {
        self.plan().dim()
    }

    fn rows(&self) -> usize {
        match &self.table {
            Table::F32(data) => data.design.rows(),
            Table::F64(data) => data.design.rows(),
        }
    }

    fn offers(&self) -> Offers {
        let resolution = match self.table {
            Table::F32(_) => 1e-6,
            Table::F64(_) => 1e-15,
        };
        Offers { values: true, resolution, ..Offers::default() }
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        match &self.table {
            Table::F32(data) => Box::new(NetEvaluator::new(Arc::clone(data))),
            Table::F64(data) => Box::new(NetEvaluator::new(Arc::clone(data))),
        }
    }

    fn net(&self) -> Option<&Net> {
        Some(self)
    }

    fn classifier(&self) -> Option<&dyn Classifier> {
        matches!(self.seen(), Seen::Labels(_)).then_some(self)
    }
}

impl Classifier for Net {
    fn classes(&self) -> usize {
        self.plan().outputs()
    }

    fn label(&self, row: usize) -> usize {
        match self.seen() {
            Seen::Labels(labels) => labels[row] as usize,
            Seen::Numbers(..) => 0,
        }
    }

    fn add_probabilities(&self, x: &[f64], scale: f64, out: &mut [f64]) {
        self.add_outputs(x, scale, true, out);
    }
}

/// Sends rows through the net, with room of its own.
#[derive(Debug)]
struct NetEvaluator<T> {
    data: Arc<Data<T>>,
    room: Room<T>,
}

impl<T: Number> NetEvaluator<T> {
    fn new(data: Arc<Data<T>>) -> Self {
        NetEvaluator { room: Room::new(&data.plan), data }
    }
}

impl<T: Number> Evaluator for NetEvaluator<T> {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let NetEvaluator { data, room } = self;
        let d = data.plan.dim();
        for ask in asks {
            ask.each_point(d, |ask| {
                let (rows, scale) = (ask.rows, ask.scale);
                let (x, z) = match ask.sum {
                    Sum::Gradient { x } | Sum::GradientAndValue { x } => (x, None),
                    Sum::Difference { x, z } => (x, Some(z)),
                    Sum::Value { x } => {
                        ask.out[0] += scale * T::dispatch(Value { data, x, rows, room });
                        return;
                    }
                    // not offered
                    Sum::HessianVector { .. } | Sum::Hessian { .. } | Sum::Average { .. } => {
                        return ask.out.fill(f64::NAN);
                    }
                };
                let (out, value) = ask.out.split_at_mut(d);
                let loss = T::dispatch(Gradient { data, x, z, rows, scale, out, room });
                if let [value] = value {
                    *value += scale * loss;
                }
            });
        }
        Ok(())
    }
}

impl<T: Number> Data<T> {
    /// Eight of these rows, from `start` on.
    fn group(&self, rows: Rows<'_>, start: usize) -> Group {
        let left = rows.count(self.design.rows()) - start;
        let row = |k: usize| match rows {
            Rows::All => start + k,
            Rows::Some(rows) => rows[start + k] as usize,
        };
        let count = left.min(GROUP);
        Group { rows: std::array::from_fn(|k| row(if k < count { k } else { 0 })), count }
    }

    fn add_outputs(&self, x: &[f64], scale: f64, probabilities: bool, out: &mut [f64]) {
        let room = &mut Room::new(&self.plan);
        T::dispatch(Outputs { data: self, x, scale, probabilities, out, room });
    }
}

impl Seen {
    fn loss<L: Lanes>(&self, lanes: L, outputs: &[L::V], group: Group) -> f64 {
        let mut sum = 0.0;
        for (lane, row) in group.rows[..group.count].iter().enumerate() {
            sum += match self {
                Seen::Labels(labels) => {
                    loss::class_loss(lanes, outputs, lane, labels[*row] as usize)
                }
                Seen::Numbers(numbers, variance) => {
                    let off = lanes.array(outputs[0])[lane].widen() - numbers[*row];
                    off * off / (2.0 * variance)
                }
            };
        }
        sum
    }

    fn slopes<L: Lanes>(&self, lanes: L, outputs: &[L::V], group: Group, slopes: &mut [L::V]) {
        match self {
            Seen::Labels(labels) => {
                let labels = group.rows.map(|row| labels[row] as usize);
                loss::class_slopes(lanes, outputs, labels, group.count, slopes);
            }
            Seen::Numbers(numbers, variance) => {
                let seen = group.rows.map(|row| numbers[row]);
                let precision = 1.0 / variance;
                slopes[0] = loss::number_slopes(lanes, outputs[0], seen, precision, group.count);
            }
        }
    }
}

fn narrow<L: Lanes>(lanes: L, x: &[f64], weights: &mut [L::T]) {
    lanes.run(Narrow::<L> { x, weights });
}

/// `sum_{j in rows} U_ij(x)`.
struct Value<'a, T> {
    data: &'a Data<T>,
    x: &'a [f64],
    rows: Rows<'a>,
    room: &'a mut Room<T>,
}

impl<T: Number> Job<T> for Value<'_, T> {
    type Output = f64;

    fn run<L: Lanes<T = T>>(self, lanes: L) -> f64 {
        let Value { data, x, rows, room } = self;
        let (mut pass, weights, _) = Pass::new(lanes, &data.plan, room);
        narrow(lanes, x, weights);
        let mut sum = 0.0;
        for start in (0..rows.count(data.design.rows())).step_by(GROUP) {
            let group = data.group(rows, start);
            let outputs = pass.forth(&data.design, weights, group);
            sum += data.seen.loss(lanes, outputs, group);
        }
        sum
    }
}

/// `out += scale * sum_{j in rows} (grad U_ij(x) - grad U_ij(z))`, or without `z`; the value at `x`
/// comes out.
struct Gradient<'a, T> {
    data: &'a Data<T>,
    x: &'a [f64],
    z: Option<&'a [f64]>,
    rows: Rows<'a>,
    scale: f64,
    out: &'a mut [f64],
    room: &'a mut Room<T>,
}

impl<T: Number> Job<T> for Gradient<'_, T> {
    type Output = f64;

    fn run<L: Lanes<T = T>>(self, lanes: L) -> f64 {
        let Gradient { data, x, z, rows, scale, out, room } = self;
        let (mut pass, weights, [at_x, at_z]) = Pass::new(lanes, &data.plan, room);
        let count = rows.count(data.design.rows());
        let mut value = 0.0;
        let mut sum_at = |x: &[f64], block: usize, sums: &mut [T], value: &mut f64| {
            narrow(lanes, x, weights);
            sums.fill(T::default());
            for start in (block..count.min(block + BLOCK)).step_by(GROUP) {
                let group = data.group(rows, start);
                pass.forth(&data.design, weights, group);
                let (outputs, slopes) = pass.turning_point();
                *value += data.seen.loss(lanes, outputs, group);
                data.seen.slopes(lanes, outputs, group, slopes);
                pass.back(weights, sums);
            }
        };
        for block in (0..count).step_by(BLOCK) {
            sum_at(x, block, at_x, &mut value);
            let at_z = match z {
                None => &[],
                Some(z) => {
                    at_z.resize(at_x.len(), T::default());
                    sum_at(z, block, at_z, &mut 0.0);
                    &at_z[..]
                }
            };
            lanes.run(Widen::<L> { scale, at_x, at_z, out });
        }
        value
    }
}

/// `out += scale * outputs` of every row, or their probabilities.
struct Outputs<'a, T> {
    data: &'a Data<T>,
    x: &'a [f64],
    scale: f64,
    probabilities: bool,
    out: &'a mut [f64],
    room: &'a mut Room<T>,
}

impl<T: Number> Job<T> for Outputs<'_, T> {
    type Output = ();

    fn run<L: Lanes<T = T>>(self, lanes: L) {
        let Outputs { data, x, scale, probabilities, out, room } = self;
        let (mut pass, weights, _) = Pass::new(lanes, &data.plan, room);
        narrow(lanes, x, weights);
        let outputs = data.plan.outputs();
        for (k, rows) in out.chunks_mut(GROUP * outputs).enumerate() {
            pass.forth(&data.design, weights, data.group(Rows::All, k * GROUP));
            let (logits, room) = pass.turning_point();
            let said = if probabilities {
                loss::probabilities(lanes, logits, room);
                &*room
            } else {
                logits
            };
            for (lane, row) in rows.chunks_exact_mut(outputs).enumerate() {
                for (slot, said) in row.iter_mut().zip(said) {
                    *slot += scale * lanes.array(*said)[lane].widen();
                }
            }
        }
    }
}
