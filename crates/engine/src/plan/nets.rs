//! Plan what is special about nets: many optima, and parameters that are too many to be shown.

use consilience_core::model::Prior;
use consilience_core::sampler::Recipe;
use consilience_core::sampler::registry::{Axis, Row};

use crate::config::{Config, ConfigError, FieldLocation, Start};
use crate::data::formats::npy;
use crate::models::StartLaw;
use crate::numbers;
use crate::problem::Problem;
use crate::run::Length;
use crate::warnings::{Code, Warning};

/// Draws of a model with many parameters are as large as the model: so many of each chain are kept
/// unless more are asked for.
const FEW_DRAWS: u64 = 200;
/// Draws of more bytes are refused.
const MOST_BYTES: u64 = 2 << 30;
/// A step times the number of rows is a learning rate; above this, steps hardly ever lead downhill.
const MOST_RATE: f64 = 2.0;

/// Whether the model has so many parameters that they are summarised in groups.
pub(super) fn are_parameters_many(config: &Config) -> bool {
    config.target.model.of_rows().is_some_and(|model| !model.groups().is_empty())
}

/// Whether a sampler accepts or rejects without coordinates in which the posterior is round: `hmc`
/// with momenta of unit variance, for a model that has no such.
pub(super) fn is_unshaped(config: &Config, row: &Row) -> bool {
    let model = config.target.model.of_rows();
    row.family.needs_shape
        && row.has(Axis::Leapfrog)
        && model.is_some_and(|model| !model.is_linear())
}

/// Refuse, for a model with many optima, what needs the one that others have.
pub(super) fn check(config: &Config, row: &Row) -> Result<(), ConfigError> {
    let model = config.target.model.of_rows().filter(|model| !model.is_linear());
    let Some(model) = model else { return Ok(()) };
    let (title, sampler) = (model.row().title, &config.sampler);
    let complain = |field: &str, problem: String, fix: &str| {
        let place = FieldLocation { field: field.into(), ..sampler.place.clone() };
        Err(config.source.complain(&place, problem, fix))
    };
    let walks =
        "use lmc, qlsd, qlsd++, fald or vr-fald*, with a step; or hmc with step and leapfrog";
    let hamiltonian = is_unshaped(config, row);
    if hamiltonian && sampler.settings.leapfrog.is_none() {
        let problem = format!(
            "a number of leapfrog steps is found by pilots around the optimum, and {title} has many"
        );
        return complain("sampler.leapfrog", problem, "give one, e.g. leapfrog = 20");
    }
    if (row.family.needs_shape && !hamiltonian) || row.is_auto() {
        let problem = format!(
            "the sampler \"{}\" shapes its proposals after the one optimum, and {title} has many",
            sampler.row.name
        );
        return complain("sampler.name", problem, walks);
    }
    if row.needs_optimum {
        let problem =
            format!("the sampler \"{}\" needs the optimum, and {title} has many", row.name);
        return complain("sampler.name", problem, walks);
    }
    if sampler.step.is_none() {
        let problem =
            format!("a step is found by the curvature at the optimum, and {title} has many optima");
        let fix = match hamiltonian {
            true => "give one, e.g. step = 1e-3: the largest at which 7 to 9 of 10 are accepted",
            false => {
                "give one, e.g. step = 1e-7: times the number of all rows it is a learning rate"
            }
        };
        return complain("sampler.step", problem, fix);
    }
    if sampler.precondition == Some(true) {
        let problem = format!("{title} has no one curvature that could be made round");
        return complain("sampler.precondition", problem, "leave it out");
    }
    if config.run.start == Some(Start::Optimum) {
        let problem = format!("{title} has many optima");
        return complain(
            "run.start",
            problem,
            "leave it out: target.start says where chains start",
        );
    }
    Ok(())
}

/// Keep few draws of a model with many parameters, unless the config says how many.
pub(super) fn keep_few(
    config: &Config,
    recipe: &Recipe,
    dim: usize,
    length: &mut Length,
) -> Result<(), ConfigError> {
    let kept = (length.iterations - length.burn_in) as f64 * recipe.family().draws_per_iteration();
    if config.run.thin.is_none() {
        length.thin = ((kept / FEW_DRAWS as f64).ceil() as u64).max(1);
    }
    let draws = (kept / length.thin as f64).ceil() as u64 * length.chains as u64;
    let bytes = draws.saturating_mul(8 * dim as u64);
    if bytes > MOST_BYTES {
        let place = FieldLocation { field: "run.thin".into(), ..config.sampler.place.clone() };
        let problem = format!(
            "{draws} draws of {dim} parameters are {:.1} GB, more than 2",
            bytes as f64 / 1e9
        );
        let fix = "thin more, run fewer chains, or leave thin out: 200 draws a chain are kept then";
        return Err(config.source.complain(&place, problem, fix));
    }
    Ok(())
}

/// Warn of a step that is no learning rate.
pub(super) fn learning_rate(problem: &Problem, step: f64) -> Option<Warning> {
    let rows: usize = problem.target.clients.iter().map(|client| client.rows()).sum();
    let rate = step * rows as f64;
    let says = format!(
        "the step times the number of rows is {rate:.2}: as a learning rate it is above {MOST_RATE}"
    );
    (rate > MOST_RATE).then(|| {
        Warning::new(Code::LargeLearningRate, says)
            .remedy(format!("Use a step below {:.1e}", MOST_RATE / rows as f64))
            .number("rate", rate)
    })
}

/// Where chains start, where the model has a law of its own for that.
pub(super) fn start_law(
    config: &Config,
    problem: &Problem,
) -> Result<Option<StartLaw>, ConfigError> {
    let Some(model) = config.target.model.of_rows() else { return Ok(None) };
    if let Some(file) = model.start_file() {
        let mean = parameters_of(config, file, problem.target.dim())?;
        return Ok(Some(StartLaw { sd: vec![0.0; mean.len()], mean }));
    }
    let variance = |k: usize| match &problem.target.prior {
        Prior::Gaussian(precision) => 1.0 / precision[k],
        Prior::Laplace { .. } | Prior::Flat | Prior::Laws(_) => 1.0,
    };
    Ok(model.start(&variance))
}

/// So many parameters from a file of numbers.
fn parameters_of(config: &Config, file: &str, dim: usize) -> Result<Vec<f64>, ConfigError> {
    let place = FieldLocation { field: "target.start".into(), ..config.sampler.place.clone() };
    let complain = |problem: String, fix: &str| config.source.complain(&place, problem, fix);
    let path = config.source.folder.join(file);
    let unread = |problem: String| complain(problem, "name a file of numbers");
    let cells = if file.ends_with(".npy") {
        let bytes = std::fs::read(&path).map_err(|e| unread(format!("{}: {e}", path.display())))?;
        let array = npy::parse(&bytes, &path.display().to_string());
        array.map_err(|e| unread(e.to_string()))?.cells
    } else {
        numbers::read(&path).map_err(unread)?.cells
    };
    if cells.len() != dim {
        let problem = format!("{file} has {} numbers, and the net {dim} parameters", cells.len());
        return Err(complain(problem, "give one number for each, in PyTorch's order"));
    }
    match cells.iter().position(|x| !x.is_finite()) {
        Some(k) => {
            Err(complain(format!("number {} of {file} is {}", k + 1, cells[k]), "correct the file"))
        }
        None => Ok(cells),
    }
}
