//! Look for columns that other columns determine: perfect collinearity.

use consilience_core::protocol::Ledger;
use consilience_core::survey::Hessian;

use super::PlanError;
use super::survey::MOST_WHITENED;
use crate::collinear::{dependences, describe};
use crate::conductor::Conductor;
use crate::config::{Config, ConfigError, ModelConfig};
use crate::models::{Explains, places};
use crate::problem::Problem;
use crate::warnings::{Code, Warning};

/// The most products of clients and parameters for which they are looked for where no survey is due
/// otherwise.
const MOST_PRODUCTS: usize = 100_000;

/// Whether some columns may be collinear: by the Hessian at the optimum where that is known, else
/// by how the target is stated.
pub(super) fn are_suspected(config: &Config, problem: &Problem, hessian: Option<&[f64]>) -> bool {
    let (d, prior) = (problem.target.dim(), &problem.target.prior);
    match hessian {
        Some(hessian) => columns_of(config, d)
            .is_some_and(|columns| !dependences(hessian, &bends(problem), columns).is_empty()),
        None => {
            let ours = matches!(config.target.model, ModelConfig::Own(_));
            (prior.is_flat(d) || ours)
                && problem.target.clients.len().saturating_mul(d) <= MOST_PRODUCTS
        }
    }
}

/// How many columns the linear predictors of a model have, in the order of the first parameters;
/// `None`: it has no columns.
fn columns_of(config: &Config, d: usize) -> Option<usize> {
    let model = config.target.model.of_rows()?;
    let has = model.row().explains != Explains::Nothing && model.is_linear();
    has.then(|| (d - places(&model.beside_of(d))) / model.predictors().max(1))
}

/// What the prior adds to the diagonal of the Hessian where the search for the optimum starts.
fn bends(problem: &Problem) -> Vec<f64> {
    let (target, d) = (&problem.target, problem.target.dim());
    let mut hessian = vec![0.0; d * d];
    target.prior.add_hessian(&problem.origin, 1.0, &mut hessian);
    hessian.into_iter().step_by(d + 1).collect()
}

/// Ask for the Hessian at the origin, and name columns that others determine.
pub(super) fn ask_for_columns(
    config: &Config,
    problem: &Problem,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    warnings: &mut Vec<Warning>,
) -> Result<(), PlanError> {
    let (target, d) = (&problem.target, problem.target.dim());
    if columns_of(config, d).is_none() || d > MOST_WHITENED {
        return Ok(());
    }
    let mut hessian = Hessian::new(target, &problem.origin);
    conductor.survey(target, &mut hessian, ledger)?;
    Ok(check_columns(config, problem, &hessian.matrix(), warnings)?)
}

/// Name columns that others determine: the Hessian at 0, where all rows count alike, shows them.
/// With a proper prior that is a warning; without one there is no posterior, and nothing to sample.
pub(super) fn check_columns(
    config: &Config,
    problem: &Problem,
    hessian: &[f64],
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    let (target, d) = (&problem.target, problem.target.dim());
    let Some(columns) = columns_of(config, d) else { return Ok(()) };
    let found = dependences(hessian, &bends(problem), columns);
    if found.is_empty() {
        return Ok(());
    }
    let plain = |name: &String| {
        if columns < d { name.split('[').next().unwrap_or(name).to_owned() } else { name.clone() }
    };
    let names: Vec<String> = problem.parameters.iter().take(columns).map(plain).collect();
    let said = describe(&found, &names);
    if target.prior.is_flat(columns) {
        let problem = format!(
            "{said} (perfect collinearity), and the prior is flat: the posterior is not proper, so \
             there is nothing to sample"
        );
        let fix = "leave these columns out, or give the target a prior, e.g. [target.prior] with \
            law = \"gaussian\" and variance = 6.25";
        return Err(config.source.complain(&config.target.prior_place, problem, fix));
    }
    let says = format!(
        "{said} (perfect collinearity): the rows cannot tell these columns apart, and the prior \
         alone divides the effect among them"
    );
    warnings.push(
        Warning::new(Code::CollinearColumns, says)
            .remedy("Leave them out, or read the columns together")
            .number("columns", found.len() as f64),
    );
    Ok(())
}
