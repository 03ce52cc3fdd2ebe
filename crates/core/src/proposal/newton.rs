//! Find the optimum by Newton's method, with a ladder of shorter and longer steps in the same
//! exchange.
//!
//! Every exchange asks for the value, gradient and Hessian at `x + p`, where `p` is the Newton step
//! of what is known, and for values at `x + t p` for the rungs `t` of the ladder. If the full step
//! lowers the potential enough it is taken; else the best rung is, and its derivatives are asked
//! for next. Where no rung lowers it, the next ladder stands below the last rung: the first step of
//! a log-linear model of large counts is thousands of times too long. The end is before the last
//! exchange: when the step is short against the posterior's
//! width, it is taken unseen, since no draw's law depends on it.

use nalgebra::DMatrix;

use super::{solve, symmetric, visit_matrix};
use crate::linalg::dot;
use crate::snapshot::{SnapshotError, State, Visit};

/// Multiples of the Newton step whose values are asked for.
pub const LADDER: [f64; 8] = [2.0, 0.5, 0.25, 0.125, 0.0625, 1.0 / 32.0, 1.0 / 64.0, 1.0 / 128.0];

/// What is left of a step of which no rung was any good.
const SHORTER: f64 = 1.0 / 256.0;
/// A full step must lower the potential by this share of what its slope promises.
const ENOUGH: f64 = 1e-4;
/// Curvatures are at least this share of the largest: directions without information are walked in
/// finite steps.
const LEAST_CURVATURE: f64 = 1e-14;

/// What an exchange says of the whole potential, prior included.
#[derive(Clone, Debug, PartialEq)]
pub struct NewtonAnswer {
    /// `U` at the point asked for.
    pub value: f64,
    /// `grad U` there.
    pub gradient: Vec<f64>,
    /// `hess U` there, row by row.
    pub hessian: Vec<f64>,
    /// `U` at the rungs of the ladder, as far as they were asked for.
    pub ladder: Vec<f64>,
}

/// The search.
#[derive(Clone, Debug)]
pub struct Newton {
    /// Where the derivatives are known, and they; nothing before the first exchange.
    known: Option<Known>,
    /// Where derivatives are asked for.
    asked: Vec<f64>,
    /// Whether what is asked for is the best rung of a ladder, and no step of its own.
    retried: bool,
    tolerance: f64,
    most_exchanges: u64,
    exchanges: u64,
    converged: bool,
}

#[derive(Clone, Debug)]
struct Known {
    x: Vec<f64>,
    value: f64,
    hessian: DMatrix<f64>,
    /// The Newton step, and how much it is against the posterior's width: `g' H^-1 g`.
    step: Vec<f64>,
    decrement: f64,
}

impl Newton {
    /// Start at `start`; stop when a step's square length in posterior standard deviations is below
    /// `tolerance` (0.01 is enough for a proposal), or after so many exchanges.
    pub fn new(start: Vec<f64>, tolerance: f64, most_exchanges: u64) -> Self {
        Newton {
            known: None,
            asked: start,
            retried: false,
            tolerance,
            most_exchanges,
            exchanges: 0,
            converged: false,
        }
    }

    /// Where the value, the gradient and the Hessian are asked for; `None` when the search is over.
    pub fn asks(&self) -> Option<&[f64]> {
        (!self.converged && self.exchanges < self.most_exchanges).then_some(&self.asked)
    }

    /// The rungs where values are asked for beside it, one behind the other: none in the first
    /// exchange, and none where a rung was chosen.
    pub fn ladder(&self) -> Vec<f64> {
        let Some(known) = self.known.as_ref().filter(|_| !self.retried) else { return Vec::new() };
        let rung = |t: &f64| {
            let t = *t;
            known.x.iter().zip(&known.step).map(move |(x, p)| x + t * p)
        };
        LADDER.iter().flat_map(rung).collect()
    }

    /// Go on with the answer.
    pub fn tell(&mut self, answer: NewtonAnswer) {
        self.exchanges += 1;
        let d = self.asked.len();
        let sound = answer.value.is_finite() && answer.gradient.iter().all(|g| g.is_finite());
        if let Some(known) = self.known.as_mut().filter(|_| !self.retried) {
            let promised = known.value - ENOUGH * known.decrement;
            if !(sound && answer.value <= promised) {
                let rungs = answer.ladder.iter().zip(LADDER);
                let lower = rungs.filter(|(value, _)| value.is_finite() && **value < known.value);
                let best = lower.min_by(|a, b| a.0.total_cmp(b.0)).map(|(_, rung)| rung);
                if best.is_none() {
                    known.step.iter_mut().for_each(|p| *p *= SHORTER);
                    known.decrement *= SHORTER;
                }
                let rung = best.unwrap_or(1.0);
                self.asked = known.x.iter().zip(&known.step).map(|(x, p)| x + rung * p).collect();
                self.retried = best.is_some();
                return;
            }
        }
        self.retried = false;
        let hessian = symmetric(&answer.hessian, d);
        let least = LEAST_CURVATURE * hessian.diagonal().amax();
        let inverse = solve(&hessian, &answer.gradient, least.max(f64::MIN_POSITIVE));
        let decrement = dot(&answer.gradient, inverse.as_slice());
        let step: Vec<f64> = inverse.iter().map(|p| -p).collect();
        let x = std::mem::take(&mut self.asked);
        self.asked = x.iter().zip(&step).map(|(x, p)| x + p).collect();
        self.converged = decrement.abs() < self.tolerance;
        self.known = Some(Known { x, value: answer.value, hessian, step, decrement });
    }

    /// Where the derivatives are known: where the ladder begins.
    pub fn known(&self) -> Option<&[f64]> {
        self.known.as_ref().map(|known| &known.x[..])
    }

    /// Whether the last step was short enough.
    pub fn converged(&self) -> bool {
        self.converged
    }

    /// How many exchanges it took.
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// The optimum: with the last step taken, unseen.
    pub fn optimum(&self) -> &[f64] {
        &self.asked
    }

    /// The Hessian where it was last known, row by row; empty before the first exchange.
    pub fn hessian(&self) -> &[f64] {
        self.known.as_ref().map_or(&[], |known| known.hessian.as_slice())
    }
}

impl State for Newton {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        let d = self.asked.len();
        visit.vector("where derivatives are asked for", &mut self.asked)?;
        visit.flag("whether a rung was chosen", &mut self.retried)?;
        visit.number("the exchanges", &mut self.exchanges)?;
        visit.flag("whether it has converged", &mut self.converged)?;
        let mut is_known = self.known.is_some();
        visit.flag("whether derivatives are known", &mut is_known)?;
        if !is_known {
            self.known = None;
            return Ok(());
        }
        let known = self.known.get_or_insert_with(|| Known {
            x: vec![0.0; d],
            value: 0.0,
            hessian: DMatrix::zeros(d, d),
            step: vec![0.0; d],
            decrement: 0.0,
        });
        visit.vector("where they are known", &mut known.x)?;
        visit.float("the value", &mut known.value)?;
        visit_matrix(visit, "the Hessian", &mut known.hessian)?;
        visit.vector("the Newton step", &mut known.step)?;
        visit.float("the decrement", &mut known.decrement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carry the search through on a potential of its value, gradient and Hessian.
    fn search(start: &[f64], of: impl Fn(&[f64]) -> (f64, Vec<f64>, Vec<f64>)) -> (Newton, usize) {
        let mut newton = Newton::new(start.to_vec(), 0.01, 60);
        let (d, mut retried) = (start.len(), 0);
        while let Some(x) = newton.asks() {
            let (value, gradient, hessian) = of(x);
            let ladder = newton.ladder().chunks_exact(d).map(|x| of(x).0).collect();
            newton.tell(NewtonAnswer { value, gradient, hessian, ladder });
            retried += usize::from(newton.retried);
        }
        (newton, retried)
    }

    #[test]
    fn a_quadratic_takes_one_exchange() {
        let (newton, _) = search(&[5.0, -3.0], |x| {
            let (a, b) = (x[0] - 1.0, x[1] - 2.0);
            (2.0 * a * a + a * b + b * b, vec![4.0 * a + b, a + 2.0 * b], vec![4.0, 1.0, 1.0, 2.0])
        });
        // Known at the start, at the optimum, and there the step is nothing.
        assert_eq!(newton.exchanges(), 2);
        assert!(newton.converged());
        assert!(
            (newton.optimum()[0] - 1.0).abs() < 1e-12 && (newton.optimum()[1] - 2.0).abs() < 1e-12
        );
        assert_eq!(newton.hessian(), [4.0, 1.0, 1.0, 2.0]);
    }

    /// `log cosh` far away has almost no curvature: the full step overshoots, and the ladder is
    /// needed.
    #[test]
    fn a_flat_tail_needs_the_ladder() {
        let (newton, retried) = search(&[4.0], |x| {
            let t = x[0].tanh();
            (50.0 * x[0].cosh().ln(), vec![50.0 * t], vec![50.0 * (1.0 - t * t)])
        });
        assert!(newton.converged() && newton.optimum()[0].abs() < 0.02, "{newton:?}");
        assert!(retried > 0);
    }

    /// Counts of twenty thousand: the first step is two thousand times too long, and far beyond it
    /// the potential falls so slowly that the search would not come back.
    #[test]
    fn a_step_that_is_thousands_of_times_too_long_is_shortened() {
        for count in [5.0, 300.0, 2e4, 1e7, 1e12] {
            let (newton, _) = search(&[0.0], |x| {
                let rate = x[0].min(709.0).exp();
                (100.0 * (rate - count * x[0]), vec![100.0 * (rate - count)], vec![100.0 * rate])
            });
            let off = newton.optimum()[0] - count.ln();
            assert!(newton.converged() && off.abs() < 0.01, "{count}: {newton:?}");
            assert!(newton.exchanges() < 30, "{count}: {}", newton.exchanges());
        }
    }

    /// A saddle: the curvature is negative in one direction, and the search goes down all the same.
    #[test]
    fn negative_curvature_is_walked_down() {
        let (newton, _) = search(&[0.1, 1.0], |x| {
            let (a, b) = (x[0], x[1]);
            (
                (a * a - 1.0).powi(2) * 10.0 + b * b,
                vec![40.0 * a * (a * a - 1.0), 2.0 * b],
                vec![40.0 * (3.0 * a * a - 1.0), 0.0, 0.0, 2.0],
            )
        });
        assert!(newton.converged() && (newton.optimum()[0] - 1.0).abs() < 0.05, "{newton:?}");
    }

    /// Parameters in large units have small curvatures, and the search does not care.
    #[test]
    fn units_do_not_matter() {
        for unit in [1e-4, 1.0, 1e4] {
            let (newton, _) = search(&[0.0], |x| {
                let z = x[0] / unit - 2.0;
                (50.0 * z.cosh().ln(), vec![50.0 / unit * z.tanh()], {
                    vec![50.0 / unit / unit / z.cosh().powi(2)]
                })
            });
            assert!(newton.converged() && (newton.optimum()[0] / unit - 2.0).abs() < 0.02);
        }
    }

    /// What is not a number is no step, and the search ends after its exchanges.
    #[test]
    fn infinite_values_end_the_search_without_panic() {
        let (newton, _) = search(&[1.0], |x| {
            if x[0] == 1.0 {
                (0.0, vec![1.0], vec![1.0])
            } else {
                (f64::NAN, vec![f64::NAN], vec![f64::NAN])
            }
        });
        assert!(!newton.converged());
        assert_eq!(newton.exchanges(), 60);
    }
}
