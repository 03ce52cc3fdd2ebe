//! Compute the law of a sampler: stationary mean and covariance on Gaussian targets, without
//! sampling.
//!
//! On quadratic potentials every sampler here is a random affine recursion, so its first two
//! moments follow a linear recursion, whose fixed point is computed. This is the law of the
//! *discretised* chain: what a correct program must show, bias included. Numbers are taken as real;
//! the rounding of the wire (32 bits) is not part of it.

pub(super) mod moments;
pub(super) mod programs;

use nalgebra::{DMatrix, DVector};
use thiserror::Error;

use super::Recipe;
use crate::model::Prior;
use crate::target::Target;

/// A mean and a covariance.
#[derive(Clone, Debug, PartialEq)]
pub struct StationaryLaw {
    /// The mean.
    pub mean: Vec<f64>,
    /// The covariance, d x d, row-major (and symmetric).
    pub covariance: Vec<f64>,
}

impl StationaryLaw {
    /// The standard deviation of coordinate `k`.
    pub fn sd(&self, k: usize) -> f64 {
        self.covariance[k * (self.mean.len() + 1)].sqrt()
    }
}

/// Why a law is not known exactly.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NoClosedForm {
    /// A client whose potential is not quadratic.
    #[error(
        "client {client} is not Gaussian: exact laws exist for the models gaussian, isotropic and \
         linear"
    )]
    NotGaussian {
        /// Which client.
        client: usize,
    },
    /// A prior that is not Gaussian.
    #[error("the Laplace prior is not Gaussian: exact laws need a flat or a Gaussian prior")]
    NotGaussianPrior,
    /// The posterior has no finite covariance.
    #[error(
        "the posterior is improper: its precision has the eigenvalue {eigenvalue}; add rows or a \
         Gaussian prior"
    )]
    Improper {
        /// The smallest eigenvalue of the precision.
        eigenvalue: f64,
    },
    /// The step changes, so nothing is stationary.
    #[error("a decreasing step has no stationary law: use a constant one")]
    NotStationary,
    /// The chain's second moment grows without bound.
    #[error(
        "the chain diverges: its second moment grows by {growth} an iteration at step {step}; the \
         step must be smaller"
    )]
    Unstable {
        /// The growth factor, at least 1.
        growth: f64,
        /// The step size.
        step: f64,
    },
    /// A combination whose law would need too many cases.
    #[error("no closed form is known here for {what}: {instead}")]
    Unknown {
        /// Which combination.
        what: String,
        /// What can be done.
        instead: &'static str,
    },
}

/// The posterior itself: what a chain with a vanishing step would sample.
pub fn posterior(target: &Target) -> Result<StationaryLaw, NoClosedForm> {
    let whole = Affine::whole(target)?;
    let d = target.dim();
    let eigenvalue = whole.precision.clone().symmetric_eigen().eigenvalues.min();
    let Some(cholesky) = whole.precision.clone().cholesky().filter(|_| eigenvalue > 0.0) else {
        return Err(NoClosedForm::Improper { eigenvalue });
    };
    let mean = cholesky.solve(&whole.shift);
    let covariance = cholesky.inverse() * target.temperature;
    Ok(StationaryLaw { mean: mean.as_slice().to_vec(), covariance: symmetric(&covariance, d) })
}

/// The stationary law of the draws of a sampler. The target must have passed [`Recipe::check`].
pub fn stationary(recipe: &Recipe, target: &Target) -> Result<StationaryLaw, NoClosedForm> {
    recipe.family().law(target)
}

/// The law whose second moment `program` finds from the clients' gradients, in coordinates that are
/// centred at a point: moments then lose no digits to a large mean.
pub(super) fn centred(
    target: &Target,
    program: impl FnOnce(&[Affine], &[f64]) -> Result<DMatrix<f64>, NoClosedForm>,
) -> Result<StationaryLaw, NoClosedForm> {
    let centre = posterior(target)?.mean;
    let moments = program(&Affine::clients(target, &centre)?, &centre)?;
    let d = target.dim();
    let mean = DVector::from_fn(d, |i, _| moments[(0, i + 1)]);
    let covariance = moments.view((1, 1), (d, d)) - &mean * mean.transpose();
    Ok(StationaryLaw {
        mean: (0..d).map(|i| centre[i] + mean[i]).collect(),
        covariance: symmetric(&covariance, d),
    })
}

fn symmetric(m: &DMatrix<f64>, d: usize) -> Vec<f64> {
    (0..d * d).map(|k| 0.5 * (m[(k / d, k % d)] + m[(k % d, k / d)])).collect()
}

/// A client's gradient as an affine map, prior share included: `precision x - shift`, and how its
/// rows deviate from their mean.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    precision: DMatrix<f64>,
    shift: DVector<f64>,
    pub(super) rows: usize,
    /// The sum over rows of the outer products of deviations that do not depend on `x`.
    constant_spread: Option<DMatrix<f64>>,
    /// Row by row, `H_j - mean H` and `r_j - mean r`.
    row_spread: Vec<(DMatrix<f64>, DVector<f64>)>,
}

impl Affine {
    /// All clients, in coordinates centred at `centre`.
    fn clients(target: &Target, centre: &[f64]) -> Result<Vec<Affine>, NoClosedForm> {
        let d = target.dim();
        let centre = DVector::from_column_slice(centre);
        let prior = prior_precision(target)?;
        let mut all = Vec::new();
        for (i, client) in target.clients.iter().enumerate() {
            let form = client.quadratic().ok_or(NoClosedForm::NotGaussian { client: i })?;
            let matrix = |m: &[f64]| DMatrix::from_row_slice(d, d, m);
            let rows = client.rows();
            let mut precision = matrix(&form.precision);
            let mut shift = DVector::from_column_slice(&form.shift) - &precision * &centre;
            let (mut constant_spread, mut row_spread) = (None, Vec::new());
            match &form.spread {
                crate::model::Spread::None => {}
                crate::model::Spread::Shifts(sum) => constant_spread = Some(matrix(sum)),
                crate::model::Spread::Rows(list) => {
                    let (mean_h, mean_r) = (&precision / rows as f64, &shift / rows as f64);
                    for (h, r) in list {
                        let h = matrix(h);
                        let r = DVector::from_column_slice(r) - &h * &centre;
                        row_spread.push((h - &mean_h, r - &mean_r));
                    }
                }
            }
            if let crate::target::Placement::Split(weights) = &target.placement {
                precision += &prior * weights[i];
                shift -= &prior * &centre * weights[i];
            }
            all.push(Affine { precision, shift, rows, constant_spread, row_spread });
        }
        Ok(all)
    }

    /// `U` itself: all clients and the prior.
    fn whole(target: &Target) -> Result<Affine, NoClosedForm> {
        let d = target.dim();
        let mut target = target.clone();
        let b = target.clients.len();
        if target.placement == crate::target::Placement::Server {
            target = target.split_by(&vec![1.0 / b as f64; b]);
        }
        let mut precision = DMatrix::zeros(d, d);
        let mut shift = DVector::zeros(d);
        for client in Affine::clients(&target, &vec![0.0; d])? {
            precision += client.precision;
            shift += client.shift;
        }
        Ok(Affine { precision, shift, rows: 1, constant_spread: None, row_spread: Vec::new() })
    }
}

/// `hess U_0`.
pub(super) fn prior_precision(target: &Target) -> Result<DMatrix<f64>, NoClosedForm> {
    match &target.prior {
        Prior::Flat => Ok(DMatrix::zeros(target.dim(), target.dim())),
        Prior::Gaussian(precision) => {
            Ok(DMatrix::from_diagonal(&DVector::from_column_slice(precision)))
        }
        Prior::Laplace { .. } | Prior::Laws(_) => Err(NoClosedForm::NotGaussianPrior),
    }
}
