//! Notice a posterior that is not proper: a flat prior, and a direction in which the potential
//! never rises.
//!
//! Where some columns separate the responses perfectly, or an indicator has no event, the
//! likelihood rises for ever in one direction and the optimum is at infinity. Newton's method then
//! goes on in that direction by steps that are ever shorter against the width of the posterior, and
//! stops as it does at an optimum. But a potential with an optimum has risen a few standard
//! deviations away: a Gaussian one has slope 6 at six of them.

use consilience_core::proposal::Newton;
use consilience_core::protocol::Ledger;
use consilience_core::survey::Evaluate;

use super::PlanError;
use crate::conductor::Conductor;
use crate::problem::Problem;
use crate::warnings::{Code, Warning};

/// A last step whose square is below this, in standard deviations, was made by a search that
/// converges: towards infinity each step would be about as long as the one before.
const SETTLED: f64 = 1e-9;
/// How far behind the optimum the slope is asked for, in standard deviations there.
const FAR: f64 = 6.0;
/// The least slope there, for one standard deviation: at 0.05 the posterior would have a tail of
/// twenty.
const LEAST_SLOPE: f64 = 0.05;

/// Warn where the prior is flat and the potential does not rise in the direction in which Newton's
/// method was going when it stopped. One exchange.
pub(super) fn check_proper(
    problem: &Problem,
    newton: &Newton,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    warnings: &mut Vec<Warning>,
) -> Result<(), PlanError> {
    let (target, d) = (&problem.target, problem.target.dim());
    let Some(known) = newton.known().filter(|_| target.prior.is_flat(d)) else { return Ok(()) };
    let step: Vec<f64> = newton.optimum().iter().zip(known).map(|(x, z)| x - z).collect();
    let bent: f64 = (0..d * d).map(|k| step[k / d] * newton.hessian()[k] * step[k % d]).sum();
    if bent.is_nan() || bent < SETTLED * target.temperature {
        return Ok(());
    }
    let sd = (target.temperature / bent).sqrt();
    let direction: Vec<f64> = step.iter().map(|p| p * sd).collect();
    let far: Vec<f64> = newton.optimum().iter().zip(&direction).map(|(x, v)| x + FAR * v).collect();
    let mut there = Evaluate::new(target, &far);
    conductor.survey(target, &mut there, ledger)?;
    let slope = there.gradient().iter().zip(&direction).map(|(g, v)| g * v).sum::<f64>()
        / target.temperature;
    if slope >= LEAST_SLOPE || slope.is_nan() {
        return Ok(());
    }
    let largest = (0..d).max_by(|a, b| direction[*a].abs().total_cmp(&direction[*b].abs()));
    let which = largest.map_or(String::new(), |k| {
        let way = if direction[k] > 0.0 { "larger" } else { "smaller" };
        format!(" towards {way} values of `{}`", problem.parameters[k])
    });
    let says = format!(
        "the potential does not rise{which}: the rows put no bound there (the columns separate the \
         responses, or a group has no event), and the prior is flat. The posterior is not proper, \
         and its draws mean nothing"
    );
    warnings.push(
        Warning::new(Code::ImproperPosterior, says)
            .remedy(
                "State a prior: [target.prior] with law = \"gaussian\" and variance = 6.25, say",
            )
            .number("slope", slope),
    );
    Ok(())
}
