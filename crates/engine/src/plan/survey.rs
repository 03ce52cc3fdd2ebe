//! Find out what a plan needs to know of the target, by exchanges that are counted.

use std::sync::Arc;

use consilience_core::model::{Coordinates, Prior};
use consilience_core::protocol::{Direction, Kind, Ledger};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::forecast::Part;
use consilience_core::sampler::{Curvatures, Recipe};
use consilience_core::survey::{Curvature, Evaluate, Hessian, LocalCurvature, Optimum, Skewness};
use consilience_core::target::{Placement, Target};
use nalgebra::DMatrix;

use crate::conductor::{Conductor, Lost};
use crate::problem::Problem;
use crate::warnings::{Code, Warning};

/// How small the gradient at the optimum must be, relative to the one at 0.
const OPTIMUM_TOLERANCE: f64 = 1e-9;
const MOST_EXCHANGES: u64 = 1000;
/// The most parameters whose whole Hessian is asked for: it has as many numbers squared.
pub const MOST_WHITENED: usize = 500;
/// The most parameters whose third derivatives are asked for: two gradients for each.
const MOST_SKEWED: usize = 150;
/// The most numbers of all clients' own Hessians that are kept.
pub(super) const MOST_NUMBERS: usize = 20_000_000;

/// What the surveys found out about the target.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The minimiser of `U`.
    pub optimum: Vec<f64>,
    /// The smallest curvature, at the optimum, in the coordinates in which chains move.
    pub convexity: f64,
    /// The largest curvature, at the optimum or where chains start, whichever is more.
    pub smoothness: f64,
    /// The largest curvature of each client's own potential, likewise.
    pub local_smoothness: Vec<f64>,
}

/// Find the minimiser of `U` by exchanging gradients.
pub(super) fn find_optimum(
    problem: &Problem,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<f64>, Lost> {
    let (target, origin) = (&problem.target, &problem.origin);
    let mut optimum = Optimum::new(target, origin, OPTIMUM_TOLERANCE, MOST_EXCHANGES);
    conductor.survey(target, &mut optimum, ledger)?;
    if !optimum.converged() {
        let (exchanges, left) =
            (optimum.exchanges(), optimum.gradient().iter().fold(0.0f64, |m, g| m.max(g.abs())));
        let says = format!(
            "the optimum was not reached in {exchanges} exchanges: the largest gradient left there \
             is {left:.2e}. The step and the bias are worked out there, and chains that start far \
             away may never come to where the posterior is"
        );
        warnings.push(
            Warning::new(Code::OptimumNotReached, says)
                .remedy("Scale the columns and offsets, or state a narrower prior")
                .number("exchanges", exchanges as f64)
                .number("gradient", left),
        );
    }
    Ok(optimum.point().to_vec())
}

/// What surveys found of the posterior's shape.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) optimum: Vec<f64>,
    /// The Hessian at the optimum, row by row.
    pub(super) hessian: Vec<f64>,
    /// The Gaussian that stands for the posterior: on average where averages are to be had, else at
    /// the optimum.
    pub(super) mean: Vec<f64>,
    pub(super) precision: Vec<f64>,
    /// What each client's rows contribute, without the prior, where that is not too much to keep.
    pub(super) parts: Vec<Part>,
    /// What the prior contributes.
    pub(super) prior: Part,
}

/// Ask for the Hessian and the clients' gradients at the optimum, by gradients and products of the
/// Hessian alone.
pub(super) fn curved(
    target: &Target,
    optimum: &[f64],
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
) -> Result<Fitted, Lost> {
    let (d, b) = (target.dim(), target.clients.len());
    let apart = b.saturating_mul(d * d) <= MOST_NUMBERS;
    let mut hessian =
        if apart { Hessian::of_each(target, optimum) } else { Hessian::new(target, optimum) };
    conductor.survey(target, &mut hessian, ledger)?;
    let prior = prior_part(&target.prior, optimum);
    let mut parts = Vec::new();
    if apart {
        let mut gradients = Evaluate::of_each(target, optimum);
        conductor.survey(target, &mut gradients, ledger)?;
        for (i, (hessian, gradient)) in
            hessian.parts().into_iter().zip(gradients.gradients()).enumerate()
        {
            // A client answers with its share of the prior.
            let share =
                if let Placement::Split(shares) = &target.placement { shares[i] } else { 0.0 };
            let without = |all: &[f64], prior: &[f64]| {
                all.iter().zip(prior).map(|(a, p)| a - share * p).collect()
            };
            let (hessian, gradient) =
                (without(&hessian, &prior.hessian), without(gradient, &prior.gradient));
            parts.push(Part {
                hessian,
                gradient,
                skewness: vec![0.0; d],
                rows: target.clients[i].rows(),
            });
        }
        let round = Coordinates::whitening(optimum, &hessian.matrix()).filter(|_| d <= MOST_SKEWED);
        if let Some(coordinates) = round {
            let (scale, matrix) = (target.temperature.sqrt(), coordinates.matrix());
            let axis = |k: usize| matrix.iter().skip(k).step_by(d).map(|c| c * scale).collect();
            let mut skewness = Skewness::new(target, optimum, (0..d).map(axis).collect());
            conductor.survey(target, &mut skewness, ledger)?;
            for (part, shift) in parts.iter_mut().zip(skewness.shifts(gradients.gradients())) {
                part.skewness = shift; // shares of a Gaussian prior are affine, and cancel
            }
        }
    }
    let (optimum, hessian) = (optimum.to_vec(), hessian.matrix());
    let (mean, precision) = (optimum.clone(), hessian.clone());
    Ok(Fitted { optimum, hessian, mean, precision, parts, prior })
}

pub(super) fn prior_part(prior: &Prior, point: &[f64]) -> Part {
    let d = point.len();
    let (mut hessian, mut gradient, mut unit) = (vec![0.0; d * d], vec![0.0; d], vec![0.0; d]);
    prior.add_gradient(point, 1.0, &mut gradient);
    for (k, row) in hessian.chunks_exact_mut(d.max(1)).enumerate() {
        unit[k] = 1.0;
        prior.add_hessian_vector(point, &unit, 1.0, row);
        unit[k] = 0.0;
    }
    Part { hessian, gradient, skewness: vec![0.0; d], rows: 1 }
}

/// Change to the coordinates in which the Hessian at the optimum is the identity, and split the
/// prior by these shares. Every client is told the map, and that is counted.
pub(super) fn whiten(
    target: &Target,
    coordinates: &Arc<Coordinates>,
    shares: &[f64],
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
) -> Result<Target, Lost> {
    let (centre, numbers) = coordinates.parts();
    let told = 64 * (centre.len() + numbers.len()) as u64;
    for client in 0..target.clients.len() as u32 {
        ledger.add(Direction::Down, ClientId(client), Kind::Survey, told);
    }
    conductor.move_to(coordinates, shares)?;
    Ok(target.whitened(coordinates, shares))
}

impl Findings {
    /// What is known without another exchange, where each client's Hessian is.
    pub(super) fn of_parts(
        fitted: &Fitted,
        shares: &[f64],
        coordinates: Option<&Coordinates>,
    ) -> Option<Findings> {
        let d = fitted.optimum.len();
        let map = coordinates.map(|c| DMatrix::from_row_slice(d, d, &c.matrix()));
        let extremes = |hessian: &DMatrix<f64>| {
            let inside = map.as_ref().map_or_else(|| hessian.clone(), |c| c.tr_mul(hessian) * c);
            let values = ((&inside + inside.transpose()) * 0.5).symmetric_eigenvalues();
            (values.min(), values.max())
        };
        let of = |hessian: &[f64]| DMatrix::from_row_slice(d, d, hessian);
        let prior = of(&fitted.prior.hessian);
        let whole = fitted.parts.iter().fold(prior.clone(), |sum, part| sum + of(&part.hessian));
        let (there, on_average) = (extremes(&of(&fitted.hessian)), extremes(&whole));
        let local = fitted.parts.iter().zip(shares);
        let local_smoothness: Vec<f64> =
            local.map(|(part, share)| extremes(&(of(&part.hessian) + &prior * *share)).1).collect();
        let (convexity, smoothness) = (on_average.0, there.1.max(on_average.1));
        let known = convexity > 0.0 && smoothness.is_finite();
        known.then(|| Findings {
            optimum: fitted.optimum.clone(),
            convexity,
            smoothness,
            local_smoothness,
        })
    }

    /// The same with no step too large for a chain that starts at `origin`.
    pub(super) fn also_at(
        mut self,
        target: &Target,
        origin: &[f64],
        seed: u64,
        conductor: &mut dyn Conductor,
        ledger: &mut Ledger,
    ) -> Result<Findings, Lost> {
        let ((_, largest), local) = curvatures(target, origin, seed, conductor, ledger)?;
        self.smoothness = self.smoothness.max(largest);
        self.local_smoothness.iter_mut().zip(&local).for_each(|(l, there)| *l = l.max(*there));
        Ok(self)
    }

    /// Ask for them, where the clients' Hessians are too much to ask for.
    pub(super) fn survey(
        target: &Target,
        optimum: Vec<f64>,
        there: &[f64],
        seed: u64,
        conductor: &mut dyn Conductor,
        ledger: &mut Ledger,
    ) -> Result<Findings, Lost> {
        let ((convexity, smoothness), local_smoothness) =
            curvatures(target, there, seed, conductor, ledger)?;
        Ok(Findings { optimum, convexity, smoothness, local_smoothness })
    }

    /// The automatic step of a recipe by theory alone, where nothing is known of the clients'
    /// Hessians.
    pub fn step(&self, recipe: &Recipe) -> f64 {
        recipe.family().cautious_step(Curvatures {
            dim: self.optimum.len(),
            smoothness: self.smoothness,
            local_smoothness: &self.local_smoothness,
        })
    }
}

/// The extreme curvatures at a point, and the largest of each client.
fn curvatures(
    target: &Target,
    point: &[f64],
    seed: u64,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
) -> Result<((f64, f64), Vec<f64>), Lost> {
    let mut whole = Curvature::new(target, point, Seed::new(seed));
    conductor.survey(target, &mut whole, ledger)?;
    let mut each = LocalCurvature::new(target, point);
    conductor.survey(target, &mut each, ledger)?;
    Ok((whole.extremes(), each.largest().to_vec()))
}
