//! Model a response that depends on its features through one linear predictor: linear and logistic
//! regression.

use std::sync::Arc;

use super::abreast::{Group, HALF, Lanes, add_losses, add_slopes};
use super::coded::{CODES, Coded, Table};
use super::indicators::{Indicators, Kept, Memo, Renewal};
use super::{
    Abreast, Classifier, Design, EvaluationError, Evaluator, Likelihood, Offers, PointLoss,
    Quadratic, RegressionRows, RowReach, Rows, Rowwise, Spread, fixed,
};
use crate::ask::{Ask, Sum};
use crate::error::DataError;
use crate::linalg::add_scaled;
use crate::simd::{
    F8, Kernel, LANES, run_in_256_bits, run_vectorised, sigmoid, softplus, softplus_of_eight, wide,
};

/// Ten of the twenty points of Gauss and Hermite for a standard normal, the others are their
/// negatives, and the weight of each.
#[allow(clippy::unreadable_literal, clippy::excessive_precision)] // as they are tabulated
pub const GAUSS_HERMITE: [(f64, f64); 10] = [
    (0.34696415708135592, 0.26079306344955477),
    (1.0429453488027509, 0.16173933398400003),
    (1.7452473208141268, 0.061506372063976959),
    (2.4586636111723679, 0.013997837447100996),
    (3.1890148165533896, 0.0018301031310804924),
    (3.9439673506573163, 0.00012882627996192942),
    (4.7345813340460552, 4.4021210902308646e-06),
    (5.5787388058932015, 6.127490259982928e-08),
    (6.5105901570136542, 2.4820623623151797e-10),
    (7.6190485416797582, 1.2578006724379264e-13),
];

/// The law of the response given the linear predictor `t`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GlmFamily {
    /// Normal with mean `t` and a known variance: linear regression.
    Gaussian {
        /// The variance of the noise.
        variance: f64,
    },
    /// 1 with probability `sigmoid(t)`, else 0: logistic regression.
    Bernoulli,
}

impl PointLoss for GlmFamily {
    #[inline(always)]
    fn loss(&self, t: f64, y: f64) -> f64 {
        match *self {
            GlmFamily::Gaussian { variance } => (t - y) * (t - y) / (2.0 * variance),
            GlmFamily::Bernoulli => softplus(t) - y * t,
        }
    }

    #[inline(always)]
    fn slope(&self, t: f64, y: f64) -> f64 {
        match *self {
            GlmFamily::Gaussian { variance } => (t - y) / variance,
            GlmFamily::Bernoulli => sigmoid(t) - y,
        }
    }

    #[inline(always)]
    fn losses(&self, t: &mut F8, y: &F8) {
        match *self {
            GlmFamily::Gaussian { .. } => {
                for lane in 0..LANES {
                    t[lane] = self.loss(t[lane], y[lane]);
                }
            }
            GlmFamily::Bernoulli => {
                let soft = softplus_of_eight(t);
                for lane in 0..LANES {
                    t[lane] = soft[lane] - y[lane] * t[lane];
                }
            }
        }
    }

    #[inline(always)]
    fn bend(&self, t: f64, _y: f64) -> f64 {
        match *self {
            GlmFamily::Gaussian { variance } => 1.0 / variance,
            GlmFamily::Bernoulli => {
                let p = sigmoid(t);
                p * (1.0 - p)
            }
        }
    }

    fn most_bend(&self) -> f64 {
        match *self {
            GlmFamily::Gaussian { variance } => 1.0 / variance,
            GlmFamily::Bernoulli => 0.25,
        }
    }
}

/// A generalised linear model: `U_ij(x) = loss(a_j . x, y_j)`.
#[derive(Clone, Debug)]
pub struct Glm {
    design: Design,
    response: Vec<f64>,
    family: GlmFamily,
    /// The rows once more, where that saves time.
    coded: Option<Coded>,
    /// Which rows have an entry in a column, where sums of slopes are exact.
    indicators: Option<Indicators>,
}

impl Glm {
    /// From features and one response a row.
    pub fn new(design: Design, response: Vec<f64>, family: GlmFamily) -> Result<Self, DataError> {
        if response.len() != design.rows() {
            return Err(DataError::Responses { responses: response.len(), rows: design.rows() });
        }
        match family {
            GlmFamily::Gaussian { variance } if !(variance > 0.0 && variance.is_finite()) => {
                return Err(DataError::NotPositive { what: "the noise variance", value: variance });
            }
            GlmFamily::Gaussian { .. } => {
                if let Some(row) = response.iter().position(|y| !y.is_finite()) {
                    return Err(DataError::Label {
                        row,
                        label: response[row],
                        allowed: "finite numbers".into(),
                    });
                }
            }
            GlmFamily::Bernoulli => {
                if let Some(row) = response.iter().position(|y| *y != 0.0 && *y != 1.0) {
                    return Err(DataError::Label {
                        row,
                        label: response[row],
                        allowed: "0 or 1".into(),
                    });
                }
            }
        }
        let coded = Coded::new(&design);
        let exact = family == GlmFamily::Bernoulli && coded.is_some();
        Ok(Glm {
            indicators: if exact { Indicators::new(&design) } else { None },
            coded,
            design,
            response,
            family,
        })
    }

    /// `out += scale a a'` of a row `a`, with room for one.
    fn add_square(&self, j: usize, scale: f64, row: &mut [f64], out: &mut [f64]) {
        row.fill(0.0);
        self.design.add_row(j, 1.0, row);
        for (a, out) in row.iter().zip(out.chunks_exact_mut(row.len())) {
            if *a != 0.0 {
                add_scaled(scale * a, row, out);
            }
        }
    }

    /// The codes of the rows, if so many are read faster by codes.
    fn coded_for(&self, rows: Rows<'_>) -> Option<&Coded> {
        self.coded.as_ref().filter(|coded| coded.is_worth(rows.count(self.rows())))
    }
}

impl Classifier for Glm {
    fn classes(&self) -> usize {
        2
    }

    fn label(&self, row: usize) -> usize {
        self.response[row] as usize
    }

    fn add_probabilities(&self, x: &[f64], scale: f64, out: &mut [f64]) {
        for (row, both) in out.chunks_exact_mut(2).enumerate() {
            let t = self.design.row_dot(row, x);
            both[0] += scale * sigmoid(-t);
            both[1] += scale * sigmoid(t);
        }
    }
}

impl RegressionRows for Glm {
    fn columns(&self) -> usize {
        self.design.columns()
    }

    fn row(&self, row: usize, out: &mut [f64]) -> f64 {
        out.fill(0.0);
        self.design.add_row(row, 1.0, out);
        self.response[row]
    }
}

impl Likelihood for Glm {
    fn dim(&self) -> usize {
        self.design.columns()
    }

    fn rows(&self) -> usize {
        self.design.rows()
    }

    fn scratch(&self) -> usize {
        self.coded.as_ref().map_or(0, |coded| {
            2 * coded.tables() * size_of::<Table<f64>>() / size_of::<f64>() + self.dim()
        })
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, _scratch: &mut [f64]) -> f64 {
        total_loss(self, x, rows)
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let Some(coded) = self.coded_for(rows) else {
            return add_gradient(self, x, rows, scale, out);
        };
        match &self.indicators {
            Some(exact) if exact.reaches(x) => {
                let (sums, tables) =
                    pulp::bytemuck::cast_slice_mut(scratch).split_at_mut(self.dim());
                sum_slopes(self, (coded, exact), x, rows, sums, tables, &mut []);
                exact.add_sums(sums, scale, out);
            }
            _ => add_coded_gradient(self, coded, x, rows, scale, out, scratch),
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
        add_difference(self, x, z, rows, scale, out);
    }

    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        for block in rows.blocks(self.rows()) {
            for row in block.iter() {
                let bend = self.family.bend(self.design.row_dot(*row, x), self.response[*row]);
                self.design.add_row(*row, scale * bend * self.design.row_dot(*row, v), out);
            }
        }
    }

    fn add_hessian(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        let mut row = vec![0.0; self.dim()];
        for block in rows.blocks(self.rows()) {
            for j in block.iter() {
                let bend = self.family.bend(self.design.row_dot(*j, x), self.response[*j]);
                self.add_square(*j, scale * bend, &mut row, out);
            }
        }
    }

    /// Gradient and Hessian depend on a row's predictor alone, which is Gaussian under the law: an
    /// integral on a line, by the points of Gauss and Hermite.
    fn add_average(
        &self,
        law: (&[f64], &[f64]),
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        let (d, (mean, spread)) = (self.dim(), law);
        let (gradient, hessian) = out.split_at_mut(d);
        let mut row = vec![0.0; d];
        for block in rows.blocks(self.rows()) {
            for j in block.iter() {
                let centre = self.design.row_dot(*j, mean);
                let variance: f64 =
                    spread.chunks_exact(d).map(|a| self.design.row_dot(*j, a).powi(2)).sum();
                let (deviation, y) = (variance.sqrt(), self.response[*j]);
                let (mut slope, mut bend) = (0.0, 0.0);
                for (z, weight) in GAUSS_HERMITE {
                    for t in [centre + deviation * z, centre - deviation * z] {
                        slope += weight * self.family.slope(t, y);
                        bend += weight * self.family.bend(t, y);
                    }
                }
                self.design.add_row(*j, scale * slope, gradient);
                self.add_square(*j, scale * bend, &mut row, hessian);
            }
        }
    }

    fn abreast(&self) -> Option<&dyn Abreast> {
        Some(self)
    }

    fn offers(&self) -> Offers {
        Offers { values: true, hessians: true, together: true, ..Offers::default() }
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        Box::new(GlmEvaluator::new(self))
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        self.family.most_bend() * self.design.row_norm_squared(row)
    }

    /// `|sigmoid(t) - y| <= 1`. A residual has no bound.
    fn row_reach(&self) -> Option<RowReach> {
        if self.family != GlmFamily::Bernoulli {
            return None;
        }
        let squares = (0..self.rows()).map(|row| self.design.row_norm_squared(row));
        let gradient = squares.fold(0.0, f64::max).sqrt();
        Some(RowReach { gradient, loss: std::f64::consts::LN_2 })
    }

    fn observed(&self) -> Option<&dyn RegressionRows> {
        Some(self)
    }

    fn classifier(&self) -> Option<&dyn Classifier> {
        (self.family == GlmFamily::Bernoulli).then_some(self as &dyn Classifier)
    }

    fn quadratic(&self) -> Option<Quadratic> {
        let GlmFamily::Gaussian { variance } = self.family else { return None };
        let d = self.dim();
        let mut form =
            Quadratic { precision: vec![0.0; d * d], shift: vec![0.0; d], spread: Spread::None };
        let mut rows = Vec::new();
        for row in 0..self.rows() {
            let mut a = vec![0.0; d];
            self.design.add_row(row, 1.0, &mut a);
            let h: Vec<f64> = (0..d * d).map(|k| a[k / d] * a[k % d] / variance).collect();
            let r: Vec<f64> = a.iter().map(|a| a * self.response[row] / variance).collect();
            crate::linalg::add_scaled(1.0, &h, &mut form.precision);
            crate::linalg::add_scaled(1.0, &r, &mut form.shift);
            rows.push((h, r));
        }
        form.spread = Spread::Rows(rows);
        Some(form)
    }
}

impl Abreast for Glm {
    fn coordinates(&self) -> usize {
        self.design.columns()
    }

    fn takes(&self, sum: &Sum<'_>, rows: Rows<'_>) -> bool {
        match sum {
            Sum::Value { .. } => true,
            // beyond its reach a point is not counted in units
            Sum::Gradient { x } | Sum::GradientAndValue { x } => {
                self.coded_for(rows).is_none()
                    || self.indicators.as_ref().is_none_or(|exact| exact.reaches(x))
            }
            _ => false,
        }
    }

    fn scratch_for(&self, points: usize) -> usize {
        let tables = self.coded.as_ref().map_or(0, Coded::tables);
        points * (2 * tables * CODES + self.dim())
    }

    fn add_values(&self, points: &[f64], rows: Rows<'_>, out: &mut [f64]) {
        add_losses((&self.design, &self.response, &self.family), points, rows, out);
    }

    fn add_gradients(
        &self,
        points: &[f64],
        rows: Rows<'_>,
        scale: &[f64],
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let Some(coded) = self.coded_for(rows) else {
            let of = (&self.design, &self.response[..], &self.family);
            return add_slopes(of, points, rows, scale, out);
        };
        let (model, exact) = (self, self.indicators.as_ref());
        if let Some(scale) = scale.first_chunk::<HALF>().filter(|_| scale.len() == HALF) {
            let by = By { model, coded, exact, points, rows, scale, out, scratch };
            run_in_256_bits(by);
        } else if let Some(scale) = scale.first_chunk::<LANES>() {
            run_vectorised(By { model, coded, exact, points, rows, scale, out, scratch });
        }
    }
}

/// Gradients at several points by the codes of rows, each with the bits that it has alone.
struct By<'a, const L: usize> {
    model: &'a Glm,
    coded: &'a Coded,
    exact: Option<&'a Indicators>,
    points: &'a [f64],
    rows: Rows<'a>,
    scale: &'a [f64; L],
    out: &'a mut [f64],
    scratch: &'a mut [f64],
}

impl<const L: usize> Kernel for By<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let By { model, coded, exact, points, rows, scale, out, scratch } = self;
        let points = points.as_chunks::<L>().0;
        let out = out.as_chunks_mut::<L>().0;
        if let Some(exact) = exact {
            let scratch = pulp::bytemuck::cast_slice_mut::<f64, i64>(scratch);
            let (sums, rest) = scratch.as_chunks_mut::<L>().0.split_at_mut(model.dim());
            let (products, rest) = rest.as_chunks_mut::<CODES>().0.split_at_mut(coded.tables());
            let parts = &mut rest[..coded.tables()];
            coded.tabulate(points, products);
            parts.as_flattened_mut().fill([0; L]);
            for block in rows.blocks(model.rows()) {
                let (mut t, mut y) = ([[0; L]; LANES], [0.0; LANES]);
                for (k, row) in block.iter().enumerate() {
                    t[k] = coded.dot(*row, products);
                    y[k] = model.response[*row];
                }
                for k in 0..LANES {
                    for lane in 0..L {
                        t[k][lane] = fixed::sigmoid(t[k][lane]) - fixed::from_real(y[k]);
                    }
                }
                for (k, row) in block.iter().enumerate() {
                    coded.add_row(*row, t[k], parts);
                }
            }
            sums.fill([0; L]);
            coded.add_sum(parts, sums);
            return exact.add_all_sums(sums, scale, out);
        }
        let tables = scratch.as_chunks_mut::<L>().0.as_chunks_mut::<CODES>().0;
        let (products, rest) = tables.split_at_mut(coded.tables());
        let parts = &mut rest[..coded.tables()];
        coded.tabulate(points, products);
        parts.as_flattened_mut().fill([0.0; L]);
        for block in rows.blocks(model.rows()) {
            let (mut t, mut y) = ([[0.0; L]; LANES], [0.0; LANES]);
            for (k, row) in block.iter().enumerate() {
                t[k] = coded.dot(*row, products);
                y[k] = model.response[*row];
            }
            for k in 0..LANES {
                for lane in 0..L {
                    t[k][lane] = scale[lane] * model.family.slope(t[k][lane], y[k]);
                }
            }
            for (k, row) in block.iter().enumerate() {
                coded.add_row(*row, t[k], parts);
            }
        }
        coded.add_sum(parts, out);
    }
}

/// Remembers the last point at which all rows were summed, where sums at a point that differs in
/// few coordinates are found faster from there: of several asks in a row, which are those of
/// several chains, the last point of each.
#[derive(Debug)]
pub(super) struct GlmEvaluator {
    pub(super) memos: [Option<Box<Memo>>; LANES],
    rows: Rowwise<Glm>,
    lanes: Lanes,
}

impl GlmEvaluator {
    pub(super) fn new(model: Arc<Glm>) -> Self {
        let (memos, lanes) = ([const { None }; LANES], Lanes::default());
        GlmEvaluator { memos, rows: Rowwise::new(model), lanes }
    }

    /// What [`Likelihood::add_gradient`] does with all rows, bit for bit, for one of several
    /// points; `false`: it is not done, and nothing would be gained by doing it alone.
    #[inline(always)]
    pub(super) fn add_gradient_of_all(
        &mut self,
        chain: usize,
        (x, scale, out): (&[f64], f64, &mut [f64]),
    ) -> bool {
        let (model, scratch) = self.rows.parts();
        let (Some(coded), Some(exact)) = (model.coded_for(Rows::All), &model.indicators) else {
            return false;
        };
        let memo = self.memos[chain].get_or_insert_with(|| Box::new(exact.memo()));
        match exact.add_renewed(memo, x, scale, out) {
            Renewal::Done => {}
            Renewal::Leave => return false,
            Renewal::Keep => {
                let (kept, sums) = exact.room(memo);
                let tables = pulp::bytemuck::cast_slice_mut(scratch);
                sum_slopes(model, (coded, exact), x, Rows::All, sums, tables, kept);
                exact.add_sums(sums, scale, out);
                exact.close(memo);
            }
        }
        true
    }

    /// Gradients of all rows at up to eight points: where some of them are not near the last, these
    /// are summed together.
    fn add_gradients_of_all(&mut self, asks: &mut [Ask<'_>]) {
        if let [Ask { sum: Sum::Gradient { x }, scale, out, .. }] = asks {
            if !self.add_gradient_of_all(0, (*x, *scale, &mut **out)) {
                self.rows.answer_one(&mut asks[0]);
            }
            return;
        }
        let mut left = Group::new();
        for (chain, ask) in asks.iter_mut().enumerate() {
            let Sum::Gradient { x } = ask.sum else { continue };
            let reaches = self.rows.model.takes(&ask.sum, Rows::All);
            if self.add_gradient_of_all(chain, (x, ask.scale, &mut *ask.out)) {
                continue;
            }
            if reaches {
                left.add((x, ask.scale, &mut *ask.out));
            } else {
                self.rows.answer_one(ask);
            }
        }
        let model = &*self.rows.model;
        if left.is_worth() {
            let sum = Sum::Gradient { x: &[] };
            return self.lanes.sum_up(model, &sum, Rows::All, left);
        }
        let (model, scratch) = self.rows.parts();
        for (x, scale, out) in left.places.into_iter().flatten() {
            model.add_gradient(x, Rows::All, scale, out, scratch);
        }
    }
}

impl Evaluator for GlmEvaluator {
    #[inline]
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let remembers = self.rows.model.indicators.is_some();
        if !remembers {
            return self.rows.answer(asks);
        }
        let d = self.rows.model.dim();
        let is_whole = |ask: &Ask<'_>| match (ask.sum, ask.rows) {
            (Sum::Gradient { x }, Rows::All) => x.len() == d,
            _ => false,
        };
        for asks in asks.chunk_by_mut(|a, b| is_whole(a) == is_whole(b)) {
            if is_whole(&asks[0]) {
                asks.chunks_mut(LANES).for_each(|asks| self.add_gradients_of_all(asks));
            } else {
                self.rows.answer(asks)?;
            }
        }
        Ok(())
    }
}

wide! {
    /// The losses of these rows, computed eight at a time and added one after the other.
    fn total_loss<'a>(model: &'a Glm, x: &'a [f64], rows: Rows<'a>) -> f64 {
        let mut total = 0.0;
        for block in rows.blocks(model.rows()) {
            let (mut t, mut y) = ([0.0; LANES], [0.0; LANES]);
            for (lane, row) in block.iter().enumerate() {
                t[lane] = model.design.row_dot(*row, x);
                y[lane] = model.response[*row];
            }
            model.family.losses(&mut t, &y);
            for loss in &t[..block.len()] {
                total += loss;
            }
        }
        total
    }
}

wide! {
    fn add_gradient<'a>(model: &'a Glm, x: &'a [f64], rows: Rows<'a>, scale: f64,
        out: &'a mut [f64]) -> () {
        for block in rows.blocks(model.rows()) {
            let (mut t, mut y) = ([0.0; LANES], [0.0; LANES]);
            for (lane, row) in block.iter().enumerate() {
                t[lane] = model.design.row_dot(*row, x);
                y[lane] = model.response[*row];
            }
            for lane in 0..LANES {
                t[lane] = scale * model.family.slope(t[lane], y[lane]);
            }
            for (lane, row) in block.iter().enumerate() {
                model.design.add_row(*row, t[lane], out);
            }
        }
    }
}

wide! {
    fn add_coded_gradient<'a>(
        model: &'a Glm,
        coded: &'a Coded,
        x: &'a [f64],
        rows: Rows<'a>,
        scale: f64,
        out: &'a mut [f64],
        scratch: &'a mut [f64],
    ) -> () {
        let (products, rest) = scratch.as_chunks_mut().0.split_at_mut(coded.tables());
        let sums = &mut rest[..coded.tables()];
        coded.tabulate(x, products);
        sums.as_flattened_mut().fill(0.0);
        for block in rows.blocks(model.rows()) {
            let (mut t, mut y) = ([0.0; LANES], [0.0; LANES]);
            for (lane, row) in block.iter().enumerate() {
                t[lane] = coded.dot(*row, products);
                y[lane] = model.response[*row];
            }
            for lane in 0..LANES {
                t[lane] = scale * model.family.slope(t[lane], y[lane]);
            }
            for (lane, row) in block.iter().enumerate() {
                coded.add_row(*row, t[lane], sums);
            }
        }
        coded.add_sum(sums, out);
    }
}

wide! {
    /// The sums of slopes for each column, into `sums`; what is found of each row is kept if there
    /// is room for it. The rows are read twice over, by their codes and as indicators.
    fn sum_slopes<'a>(
        model: &'a Glm,
        twice: (&'a Coded, &'a Indicators),
        x: &'a [f64],
        rows: Rows<'a>,
        sums: &'a mut [i64],
        tables: &'a mut [i64],
        kept: &'a mut [Kept],
    ) -> () {
        let (coded, exact) = twice;
        let (products, rest) = tables.as_chunks_mut().0.split_at_mut(coded.tables());
        let parts = &mut rest[..coded.tables()];
        coded.tabulate::<i64>(x, products);
        parts.as_flattened_mut().fill(0);
        for block in rows.blocks(model.rows()) {
            let (mut t, mut p, mut y) = ([0; LANES], [0; LANES], [0.0; LANES]);
            for (lane, row) in block.iter().enumerate() {
                t[lane] = coded.dot(*row, products);
                y[lane] = model.response[*row];
            }
            for lane in 0..LANES {
                p[lane] = fixed::sigmoid(t[lane]);
            }
            if !kept.is_empty() {
                for (lane, row) in block.iter().enumerate() {
                    exact.keep(*row, t[lane], p[lane], kept);
                }
            }
            for lane in 0..LANES {
                p[lane] -= fixed::from_real(y[lane]);
            }
            for (lane, row) in block.iter().enumerate() {
                coded.add_row(*row, p[lane], parts);
            }
        }
        sums.fill(0);
        coded.add_sum(parts, sums);
    }
}

wide! {
    fn add_difference<'a>(model: &'a Glm, x: &'a [f64], z: &'a [f64], rows: Rows<'a>, scale: f64,
        out: &'a mut [f64]) -> () {
        for block in rows.blocks(model.rows()) {
            let (mut at_x, mut at_z, mut y) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
            for (lane, row) in block.iter().enumerate() {
                at_x[lane] = model.design.row_dot(*row, x);
                at_z[lane] = model.design.row_dot(*row, z);
                y[lane] = model.response[*row];
            }
            for lane in 0..LANES {
                at_x[lane] = scale * (model.family.slope(at_x[lane], y[lane])
                    - model.family.slope(at_z[lane], y[lane]));
            }
            for (lane, row) in block.iter().enumerate() {
                model.design.add_row(*row, at_x[lane], out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_logistic_row_by_hand() {
        let model =
            Glm::new(Design::dense(vec![1.0, 2.0], 2).unwrap(), vec![1.0], GlmFamily::Bernoulli)
                .unwrap();
        let x = [0.0, 0.0];
        assert!((model.value(&x, Rows::All, &mut []) - 2f64.ln()).abs() < 1e-15);
        let mut g = [0.0; 2];
        model.add_gradient(&x, Rows::All, 1.0, &mut g, &mut []);
        assert_eq!(g, [-0.5, -1.0]);
    }

    #[test]
    fn rows_by_codes_have_the_gradient_of_rows() {
        let rows = 1500;
        let row = |j: u32| {
            vec![
                (j % 4, 1.0),
                (4 + j / 7 % 6, 1.0),
                (10 + j * j % 5, if j.is_multiple_of(3) { 0.5 } else { -1.0 }),
                (15 + j % 2, 2.0),
            ]
        };
        let response = (0..rows).map(|j| f64::from(j % 3 / 2)).collect();
        let model = Glm::new(
            Design::sparse((0..rows).map(row), 17).unwrap(),
            response,
            GlmFamily::Bernoulli,
        )
        .unwrap();
        let x = super::super::tests::normals(1, 17);
        for some in
            [(0..rows).collect::<Vec<u32>>(), (0..rows).filter(|row| row % 5 != 2).collect()]
        {
            assert!(model.coded_for(Rows::Some(&some)).is_some());
            let (mut coded, mut plain) = (vec![1.0; 17], vec![1.0; 17]);
            model.add_gradient(
                &x,
                Rows::Some(&some),
                0.3,
                &mut coded,
                &mut vec![0.0; model.scratch()],
            );
            add_gradient(&model, &x, Rows::Some(&some), 0.3, &mut plain);
            for (a, b) in coded.iter().zip(&plain) {
                assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{a} is not {b}");
            }
        }
        assert!(model.coded_for(Rows::Some(&[3, 7])).is_none());
    }

    #[test]
    fn wrong_labels_are_refused_with_their_row() {
        let design = || Design::dense(vec![1.0, 2.0], 1).unwrap();
        let bad = Glm::new(design(), vec![0.0, 2.0], GlmFamily::Bernoulli).unwrap_err();
        assert_eq!(bad.to_string(), "row 1 has the label 2: labels must be 0 or 1");
        assert!(Glm::new(design(), vec![0.0], GlmFamily::Bernoulli).is_err());
        assert!(
            Glm::new(design(), vec![0.0, f64::NAN], GlmFamily::Gaussian { variance: 1.0 }).is_err()
        );
        assert!(Glm::new(design(), vec![0.0, 1.0], GlmFamily::Gaussian { variance: 0.0 }).is_err());
    }
}
