//! Notice priors that the rows contradict, and usual ones that do not suit the units of columns.

use consilience_core::model::{Law, Prior};

use crate::config::{Config, ModelConfig};
use crate::problem::{Problem, has_usual_coefficients};
use crate::warnings::{Code, Warning};

/// How many of its prior standard deviations a parameter's optimum may lie from the prior's centre.
const FAR: f64 = 3.0;

/// Warn of what the optimum says of the prior.
pub(super) fn check_priors(
    config: &Config,
    problem: &Problem,
    optimum: &[f64],
    warnings: &mut Vec<Warning>,
) {
    if let Some(warning) = of_raw_columns(config, &problem.parameters) {
        warnings.push(warning);
    }
    let distance = |k: usize| {
        let (mean, sd) = normal(&problem.target.prior, k)?;
        Some((k, mean, sd, (optimum[k] - mean).abs() / sd))
    };
    let far = (0..optimum.len()).filter_map(distance).filter(|(.., z)| *z > FAR);
    let Some((k, mean, sd, z)) = far.max_by(|a, b| a.3.total_cmp(&b.3)) else { return };
    let (name, at) = (&problem.parameters[k], optimum[k]);
    let says = format!(
        "the prior pulls at `{name}`: its mode, {at:.3}, is {z:.1} prior standard deviations from \
         the centre of its prior, normal({mean:.3}, {sd:.3}), and would lie further off without it"
    );
    let remedy = format!(
        "State what is known of it before the rows are seen, such as of = {{ {name} = \"normal(0, \
         {:.0})\" }} in [target.prior], or measure the response in other units",
        (at.abs() / 2.0).max(2.0 * sd).ceil()
    );
    warnings.push(
        Warning::new(Code::PriorDisagrees, says)
            .remedy(remedy)
            .number("distance", z)
            .number("parameter", k as f64),
    );
}

/// The mean and the standard deviation of a parameter's prior, where it is normal: laws with heavy
/// tails give way to rows.
fn normal(prior: &Prior, k: usize) -> Option<(f64, f64)> {
    match prior {
        Prior::Gaussian(precisions) => Some((0.0, 1.0 / precisions[k].sqrt())),
        Prior::Laws(laws) => match laws.laws()[k] {
            Law::Normal { mean, sd } => Some((mean, sd)),
            _ => None,
        },
        Prior::Flat | Prior::Laplace { .. } => None,
    }
}

/// Usual priors are meant for standardised columns.
fn of_raw_columns(config: &Config, parameters: &[String]) -> Option<Warning> {
    let ModelConfig::Own(own) = &config.target.model else { return None };
    let is_raw = own.formula.is_some() && !own.standardise;
    (is_raw && has_usual_coefficients(config, parameters)).then(|| {
        let says = "columns enter as they are (standardise = false), and the usual prior of their \
            coefficients is made for standardised ones: where a column's units are small, the \
            prior may decide instead of the rows";
        let remedy = "State [target.prior] in the units of the columns, or leave out standardise";
        Warning::new(Code::PriorOfRawColumns, says).remedy(remedy)
    })
}
