//! Give every parameter its law: as stated by name, else the usual one.
//!
//! Usual laws are weakly informative on the standardised scale: coefficients normal(0, 2.5), in
//! standard deviations of the response where they are in its units, the intercept around its mean
//! then; of times the intercept is around the mean of their logarithms. Where nobody knows how the
//! responses spread they are flat.

use std::collections::BTreeSet;

use consilience_core::model::{Law, Laws, Prior, Transform, Transforms};

use super::refuse;
use crate::config::laws::Support;
use crate::config::{Config, ConfigError, NamedLaw, PriorConfig};
use crate::data::ResponseMoments;
use crate::models::{Beside, RowModel, places};
use crate::statement;
use crate::suggest::suggest;

/// The standard deviation of a coefficient's usual law.
const USUAL: f64 = 2.5;
/// What priors call the coefficient of the column of ones.
const INTERCEPT: &str = "intercept";
/// What priors call all other coefficients together.
const COEFFICIENTS: &str = "coefficients";

/// The law of every parameter; `None` where the prior is one of one law for all, and every
/// parameter is a coefficient.
pub(super) fn laws(
    config: &Config,
    parameters: &[String],
    response: Option<ResponseMoments>,
) -> Result<Option<Prior>, ConfigError> {
    let prior = &config.target.prior;
    let model = config.target.model.of_rows();
    let beside = model.as_ref().map_or(Vec::new(), |model| model.beside_of(parameters.len()));
    let named = matches!(prior, PriorConfig::Usual | PriorConfig::Named { .. });
    if beside.is_empty() && !named {
        return Ok(None);
    }
    let own = parameters.len().saturating_sub(places(&beside));
    let complain = |problem: String, fix: String| {
        config.source.complain(&config.target.prior_place, problem, fix)
    };
    let in_units = model.as_ref().is_some_and(|model| model.is_in_units());
    let in_logs = model.as_ref().is_some_and(|model| model.is_in_logs());
    let usual = |name: &String| match (in_units, response) {
        (false, Some(ResponseMoments { mean, .. })) if in_logs && name == INTERCEPT => {
            Law::Normal { mean, sd: USUAL }
        }
        (false, _) => Law::Normal { mean: 0.0, sd: USUAL },
        (true, None) => Law::Flat,
        (true, Some(ResponseMoments { mean, sd })) => {
            Law::Normal { mean: if name == INTERCEPT { mean } else { 0.0 }, sd: USUAL * sd }
        }
    };
    let normal = |variance: &f64| Law::Normal { mean: 0.0, sd: variance.sqrt() };
    let coefficients = &parameters[..own];
    let mut laws: Vec<Law> = match prior {
        PriorConfig::Flat => vec![Law::Flat; own],
        PriorConfig::Gaussian(variances) if variances.len() == 1 => {
            vec![normal(&variances[0]); own]
        }
        PriorConfig::Gaussian(variances) if variances.len() == own => {
            variances.iter().map(normal).collect()
        }
        PriorConfig::Gaussian(variances) => {
            let problem = format!("{} variances for {own} coefficients", variances.len());
            let fix = "give one variance for all, or one for each coefficient".into();
            return Err(complain(problem, fix));
        }
        PriorConfig::Groups { .. } => {
            let problem = "the model has no layers, and its prior has variances by layer".into();
            let fix = "name laws instead: law = \"normal(0, 2.5)\", of = { sigma = ... }".into();
            return Err(complain(problem, fix));
        }
        PriorConfig::Laplace(scale) => vec![Law::Laplace { location: 0.0, scale: *scale }; own],
        PriorConfig::Named { all: Some(law), .. } => vec![*law; own],
        PriorConfig::Usual | PriorConfig::Named { all: None, .. } => {
            coefficients.iter().map(usual).collect()
        }
    };
    // usual laws in units that nobody states
    let is_usual = matches!(prior, PriorConfig::Usual | PriorConfig::Named { all: None, .. });
    let unstated = config.target.coding.is_some() && response.is_none();
    let of_units = |name: &String| in_units || (in_logs && name == INTERCEPT);
    let mut open: Vec<bool> =
        coefficients.iter().map(|name| unstated && is_usual && of_units(name)).collect();
    for group in &beside {
        let law = match (group.in_units, response) {
            (false, _) => group.law,
            (true, Some(response)) => group.law.scaled(response.sd),
            (true, None) => Law::Flat,
        };
        laws.extend(group.names.iter().map(|_| law));
        open.extend(group.names.iter().map(|_| unstated && group.in_units));
    }
    if let PriorConfig::Named { of, .. } = prior {
        // what says most of a parameter comes last, and counts
        let mut found: Vec<(Reach, &NamedLaw, Vec<usize>)> = Vec::new();
        for named in of {
            let (reach, places) = reach(named, parameters, own, &beside).map_err(|told| {
                let (problem, fix) = told;
                config.source.complain(&named.place, problem, fix)
            })?;
            found.push((reach, named, places));
        }
        found.sort_by_key(|(reach, ..)| *reach);
        for (_, named, places) in found {
            for k in places {
                laws[k] = named.law;
                open[k] = false;
            }
        }
    }
    if let Some(k) = open.iter().position(|open| *open) {
        let problem = format!(
            "the usual prior of {} is in units of the response, and target.coding does not state \
             them",
            parameters[k]
        );
        let fix = "state centre and scale of the response there, e.g. y = { centre = 0.0, scale = \
            1.0 }; or a prior, with the law of what stands beside the coefficients";
        return Err(complain(problem, fix.into()));
    }
    let transforms = model.map_or_else(Default::default, |model| model.transforms(laws.len()));
    Prior::laws(laws, transforms).map(Some).map_err(|e| refuse(config, &e))
}

/// Whether the coefficient of some column has the usual law, since nobody stated another.
pub(crate) fn has_usual_coefficients(config: &Config, parameters: &[String]) -> bool {
    let of = match &config.target.prior {
        PriorConfig::Usual => &[][..],
        PriorConfig::Named { all: None, of } => of,
        PriorConfig::Gaussian(variances) => return variances[..] == [USUAL * USUAL],
        _ => return false,
    };
    let model = config.target.model.of_rows();
    let beside = model.map_or(Vec::new(), |model| model.beside_of(parameters.len()));
    let own = parameters.len().saturating_sub(places(&beside));
    let stated: BTreeSet<usize> = of
        .iter()
        .filter_map(|named| reach(named, parameters, own, &beside).ok())
        .flat_map(|(_, places)| places)
        .collect();
    (0..own).any(|k| !is_intercept(&parameters[k]) && !stated.contains(&k))
}

/// Whether a parameter is an intercept; where there are several classes each has one.
fn is_intercept(parameter: &str) -> bool {
    parameter.strip_prefix(INTERCEPT).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
}

/// How much a name says of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Coefficients,
    Term,
    Parameter,
}

/// Which parameters a name means; else a problem and its fix.
fn reach(
    named: &NamedLaw,
    parameters: &[String],
    own: usize,
    beside: &[Beside],
) -> Result<(Reach, Vec<usize>), (String, String)> {
    let NamedLaw { name, support, .. } = named;
    let mut next = own;
    let mut groups = Vec::new();
    for group in beside {
        groups.push((group, next..next + group.names.len()));
        next += group.names.len();
    }
    let term = |parameter: &String| {
        parameter.split_once(": ").or(parameter.split_once('[')).map(|(term, _)| term.to_owned())
    };
    let column = |parameter: &String| {
        parameter.rsplit_once('[').map(|(column, _)| column.to_owned()) // of every class
    };
    let of_term =
        |k: &usize| [term(&parameters[*k]), column(&parameters[*k])].contains(&Some(name.clone()));
    let group = groups.iter().find(|(group, _)| group.group == name);
    let (reach, found): (Reach, Vec<usize>) =
        if let Some(k) = parameters.iter().position(|parameter| parameter == name) {
            (Reach::Parameter, vec![k])
        } else if let Some((_, range)) = group {
            (Reach::Term, range.clone().collect())
        } else if name == COEFFICIENTS {
            (Reach::Coefficients, (0..own).filter(|k| !is_intercept(&parameters[*k])).collect())
        } else {
            (Reach::Term, (0..own).filter(of_term).collect())
        };
    let Some(first) = found.first() else {
        let known = parameters.iter().map(String::as_str);
        let groups = beside.iter().map(|group| group.group);
        let fix = suggest(name, known.chain(groups).chain([COEFFICIENTS]));
        return Err((format!("no parameter or term is called \"{name}\""), fix));
    };
    let holds = groups.iter().find(|(_, range)| range.contains(first));
    let parameters = match holds.and_then(|(group, _)| group.transform) {
        Some(Transform::Positive) => Support::Positive,
        Some(Transform::Correlation) => Support::Correlation,
        Some(Transform::Ordered) | None => Support::Line,
    };
    if !support.fits(parameters) {
        let law = statement::law(&named.law);
        let problem = match (parameters, support) {
            (Support::Correlation, _) => {
                format!("{name} is a correlation, and {law} is not a law of such")
            }
            (_, Support::Correlation) => {
                format!("{name} is no correlation, and {law} is a law of such")
            }
            (Support::Positive, _) => {
                format!("{name} is above 0, and {law} is a law of all numbers")
            }
            _ => format!("{name} may be below 0, and its law is one of numbers above 0"),
        };
        return Err((problem, format!("use one of {}", parameters.laws())));
    }
    Ok((reach, found))
}

/// Where to look for the optimum first: at 0, or where a response in units of its own is
/// explained by its mean alone.
pub(super) fn origin(
    model: Option<&dyn RowModel>,
    parameters: &[String],
    response: Option<ResponseMoments>,
) -> Vec<f64> {
    let mut origin = vec![0.0; parameters.len()];
    let (Some(model), Some(response)) = (model, response) else { return origin };
    if !model.is_in_units() && !model.is_in_logs() {
        return origin;
    }
    if let Some(k) = parameters.iter().position(|name| name == INTERCEPT) {
        origin[k] = response.mean;
    }
    let beside = model.beside_of(parameters.len());
    let mut next = parameters.len() - places(&beside);
    for group in beside {
        if group.in_units {
            let sd = consilience_core::simd::ln(response.sd);
            origin[next..next + group.names.len()].fill(sd);
        }
        next += group.names.len();
    }
    origin
}

/// The laws in words, those of neighbours that are alike together.
pub(super) fn note(parameters: &[String], laws: &Laws, transforms: &Transforms) -> String {
    let is_positive = |k: usize| {
        let mut held = transforms.groups().iter();
        held.any(|(range, held)| *held == Transform::Positive && range.contains(&k))
    };
    let mut parts: Vec<(Vec<&str>, (&Law, bool))> = Vec::new();
    for (k, (name, law)) in parameters.iter().zip(laws.laws()).enumerate() {
        let law = (law, is_positive(k));
        match parts.last_mut() {
            Some((names, known)) if *known == law => names.push(name),
            _ => parts.push((vec![name], law)),
        }
    }
    let show = |x: f64| format!("{:.4}", x).trim_end_matches('0').trim_end_matches('.').to_owned();
    let word = |(law, is_positive): (&Law, bool)| match law {
        Law::Normal { sd, .. } if is_positive => format!("half_normal({})", show(*sd)),
        Law::StudentT { df, scale, .. } if is_positive && *df == 1.0 => {
            format!("half_cauchy({})", show(*scale))
        }
        Law::StudentT { df, scale, .. } if is_positive => {
            format!("half_student_t({}, {})", show(*df), show(*scale))
        }
        Law::Normal { mean, sd } => format!("normal({}, {})", show(*mean), show(*sd)),
        Law::Exponential { rate } => format!("exponential with mean {}", show(1.0 / rate)),
        other => statement::law(other),
    };
    let part = |(names, law): &(Vec<&str>, (&Law, bool))| {
        let names = match names.len() {
            0..=2 => names.join(", "),
            n => format!("{} to {} ({n} parameters)", names[0], names[n - 1]),
        };
        format!("{names} {}", word(*law))
    };
    format!("Prior: {}.", parts.iter().map(part).collect::<Vec<_>>().join("; "))
}
