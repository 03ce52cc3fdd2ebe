//! Say which law a planned sampler has, without sampling.

use consilience_core::sampler::exact::{NoClosedForm, StationaryLaw, posterior, stationary};

use crate::plan::Plan;
use crate::problem::Problem;

/// The posterior, and the stationary law of the sampler's draws, in the coordinates that users
/// know.
pub fn laws(
    problem: &Problem,
    plan: &Plan,
) -> Result<(StationaryLaw, StationaryLaw), NoClosedForm> {
    let outward = |law: StationaryLaw| match &plan.coordinates {
        None => law,
        Some(coordinates) => {
            let mut mean = vec![0.0; law.mean.len()];
            coordinates.outward(&law.mean, &mut mean);
            StationaryLaw { mean, covariance: coordinates.outward_covariance(&law.covariance) }
        }
    };
    Ok((posterior(&problem.target)?, stationary(&plan.recipe, &plan.target).map(outward)?))
}
