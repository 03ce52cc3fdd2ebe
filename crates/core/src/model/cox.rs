//! Model the order of events by the partial likelihood of Cox, ties by the rule of Efron.
//!
//! With `w = exp(a . x)` the events `D` at one time, `d` of them, among those who are still at
//! risk, `R`, lose
//!
//! ```text
//! sum_{l < d} ln(sum_R w - (l/d) sum_D w) - sum_D a . x        (Efron 1977)
//! ```
//!
//! That is no sum over rows: all rows of a client count as one, which is asked about whole. The
//! clients are strata: nobody is compared with a row of another client.

use super::{Design, Likelihood, Rows};
use crate::error::DataError;
use crate::simd::{exp, ln};

/// A client's times to events.
#[derive(Clone, Debug)]
pub struct Cox {
    design: Design,
    /// Rows from the latest time to the first; among those of one time events come first.
    order: Vec<u32>,
    /// How many rows of this order are at risk at a time with events, and where its events are.
    times: Vec<Time>,
}

#[derive(Clone, Debug)]
struct Time {
    /// The first event in the order, and how many there are.
    first: usize,
    events: usize,
    /// How many rows, from the start of the order, are still at risk.
    at_risk: usize,
}

/// What sums over the rows of a time give: of weights, and of weights times another number, for
/// those at risk and for events.
#[derive(Clone, Copy, Default)]
struct Sums {
    risk: f64,
    tied: f64,
}

impl Cox {
    /// From features and one time a row, with a minus where the event was not seen until then.
    pub fn new(design: Design, times: &[f64]) -> Result<Self, DataError> {
        if times.len() != design.rows() {
            return Err(DataError::Responses { responses: times.len(), rows: design.rows() });
        }
        if let Some(row) = times.iter().position(|y| !y.is_finite() || *y == 0.0) {
            let allowed = "times above 0, with a minus where the event was not seen".into();
            return Err(DataError::Label { row, label: times[row], allowed });
        }
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        let time = |row: &u32| times[*row as usize];
        order.sort_by(|a, b| {
            let later = time(b).abs().total_cmp(&time(a).abs());
            later.then(time(b).total_cmp(&time(a))).then(a.cmp(b))
        });
        let mut found = Vec::new();
        let mut from = 0;
        for tied in order.chunk_by(|a, b| time(a).abs() == time(b).abs()) {
            let events = tied.iter().filter(|row| time(row) > 0.0).count();
            if events > 0 {
                found.push(Time { first: from, events, at_risk: from + tied.len() });
            }
            from += tied.len();
        }
        Ok(Cox { design, order, times: found })
    }

    fn count(&self) -> usize {
        self.order.len()
    }

    /// Weights in the order of the rows, over the largest, whose logarithm is given back.
    fn weigh(&self, x: &[f64], weights: &mut [f64]) -> f64 {
        let mut most = f64::NEG_INFINITY;
        for (weight, row) in weights.iter_mut().zip(&self.order) {
            *weight = self.design.row_dot(*row as usize, x);
            most = most.max(*weight);
        }
        weights.iter_mut().for_each(|weight| *weight = exp(*weight - most));
        most
    }

    /// Do something with every time that has events, from the last: with its place, and with the
    /// sums of these numbers.
    fn each(&self, numbers: &[f64], mut visit: impl FnMut(usize, &Time, Sums)) {
        let (mut sums, mut next) = (Sums::default(), 0);
        for (k, time) in self.times.iter().enumerate() {
            sums.risk += numbers[next..time.at_risk].iter().sum::<f64>();
            next = time.at_risk;
            sums.tied = numbers[time.first..time.first + time.events].iter().sum();
            visit(k, time, sums);
        }
    }

    /// Spread what every time says over the rows that it is about: `whole` counts for all at risk,
    /// `tied` for its events, in the order of the rows.
    fn spread(&self, whole: &[f64], tied: &[f64], out: &mut [f64]) {
        let (mut later, mut end) = (0.0, self.count());
        out[..end].fill(0.0);
        for (k, time) in self.times.iter().enumerate().rev() {
            // rows behind those at risk have left before this time
            out[time.at_risk..end].iter_mut().for_each(|out| *out += later);
            later += whole[k];
            end = time.at_risk;
            let events = time.first..time.first + time.events;
            out[events].iter_mut().for_each(|out| *out += tied[k]);
        }
        out[..end].iter_mut().for_each(|out| *out += later);
    }
}

/// `l / d` for the events at one time.
fn shares(events: usize) -> impl Iterator<Item = f64> {
    (0..events).map(move |l| l as f64 / events as f64)
}

impl Likelihood for Cox {
    fn dim(&self) -> usize {
        self.design.columns()
    }

    fn rows(&self) -> usize {
        1
    }

    fn scratch(&self) -> usize {
        8 * self.count() + 2 * self.dim()
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        if rows.count(1) == 0 {
            return 0.0;
        }
        let weights = &mut scratch[..self.count()];
        let most = self.weigh(x, weights);
        let mut total = 0.0;
        self.each(weights, |_, time, sums| {
            for share in shares(time.events) {
                total += ln(sums.risk - share * sums.tied);
            }
            for row in &self.order[time.first..time.first + time.events] {
                total += most - self.design.row_dot(*row as usize, x);
            }
        });
        total
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        if rows.count(1) == 0 {
            return;
        }
        let n = self.count();
        let (weights, rest) = scratch.split_at_mut(n);
        let (whole, rest) = rest.split_at_mut(n);
        let (tied, rest) = rest.split_at_mut(n);
        let counts = &mut rest[..n];
        self.weigh(x, weights);
        self.each(weights, |k, time, sums| {
            (whole[k], tied[k]) = (0.0, 0.0);
            for share in shares(time.events) {
                let inverse = 1.0 / (sums.risk - share * sums.tied);
                whole[k] += inverse;
                tied[k] -= share * inverse;
            }
        });
        self.spread(whole, tied, counts);
        for ((row, weight), count) in self.order.iter().zip(&*weights).zip(&*counts) {
            self.design.add_row(*row as usize, scale * weight * count, out);
        }
        for time in &self.times {
            for row in &self.order[time.first..time.first + time.events] {
                self.design.add_row(*row as usize, -scale, out);
            }
        }
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
        if rows.count(1) == 0 {
            return;
        }
        let n = self.count();
        let mut parts = scratch.chunks_exact_mut(n);
        let mut part = || parts.next().unwrap_or_default();
        let (weights, along, whole, tied) = (part(), part(), part(), part());
        let (turned, back, counts, moved) = (part(), part(), part(), part());
        self.weigh(x, weights);
        for ((along, weight), row) in along.iter_mut().zip(&*weights).zip(&self.order) {
            *along = weight * self.design.row_dot(*row as usize, v);
        }
        // sums of weights are kept until those of directions are there
        self.each(weights, |k, _, sums| (whole[k], tied[k]) = (sums.risk, sums.tied));
        self.each(along, |k, time, sums| {
            let (risk, of_events) = (whole[k], tied[k]);
            (whole[k], tied[k], turned[k], back[k]) = (0.0, 0.0, 0.0, 0.0);
            for share in shares(time.events) {
                let inverse = 1.0 / (risk - share * of_events);
                let turn = (sums.risk - share * sums.tied) * inverse * inverse;
                whole[k] += inverse;
                tied[k] -= share * inverse;
                turned[k] += turn;
                back[k] -= share * turn;
            }
        });
        self.spread(whole, tied, counts);
        self.spread(turned, back, moved);
        for (j, row) in self.order.iter().enumerate() {
            let weight = along[j] * counts[j] - weights[j] * moved[j];
            self.design.add_row(*row as usize, scale * weight, out);
        }
    }

    fn row_smoothness(&self, _row: usize) -> f64 {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Model, Single, contract, tests::normals};
    use super::*;

    /// Times with ties, some of them censored.
    const TIMES: [f64; 10] = [5.0, -5.0, 3.0, 3.0, 3.0, -2.0, 8.0, 1.0, 5.0, -9.0];

    #[test]
    fn it_keeps_what_models_promise() {
        let design = Design::dense(normals(1, 30), 3).unwrap();
        let model: Arc<dyn Model> = Arc::new(Cox::new(design, &TIMES).unwrap());
        contract::check(&model).unwrap_or_else(|broken| panic!("{broken}"));
    }

    /// As the formula is written, time by time.
    #[test]
    fn values_are_those_of_efrons_formula() {
        let cells = normals(1, 20);
        let model: Arc<dyn Model> =
            Arc::new(Cox::new(Design::dense(cells.clone(), 2).unwrap(), &TIMES).unwrap());
        let x = [0.7, -0.4];
        let t = |j: usize| cells[2 * j] * x[0] + cells[2 * j + 1] * x[1];
        let mut expected = 0.0;
        for time in [1.0, 3.0, 5.0, 8.0] {
            let risk: f64 = (0..10).filter(|j| TIMES[*j].abs() >= time).map(|j| t(j).exp()).sum();
            let events: Vec<usize> = (0..10).filter(|j| TIMES[*j] == time).collect();
            let tied: f64 = events.iter().map(|j| t(*j).exp()).sum();
            for (l, j) in events.iter().enumerate() {
                let share = l as f64 / events.len() as f64;
                expected += (risk - share * tied).ln() - t(*j);
            }
        }
        let found = Single::new(&model).value(&x);
        assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    }

    #[test]
    fn times_that_cannot_be_are_refused() {
        let design = || Design::dense(vec![1.0, 2.0], 1).unwrap();
        assert!(Cox::new(design(), &[1.0]).is_err());
        assert!(Cox::new(design(), &[1.0, 0.0]).is_err());
        assert!(Cox::new(design(), &[1.0, f64::NAN]).is_err());
    }
}
