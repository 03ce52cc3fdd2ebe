//! Compare samplers with the truth, with each other and with the papers.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use consilience_core::sampler::exact::StationaryLaw;
use consilience_engine::draws::Sinks;
use consilience_engine::exact::laws;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Progress, sample};
use consilience_engine::suggest::suggest;
use consilience_report::{Comparison, Contender, Truth, comparison};
use consilience_reproduce::output::Reproduction;
use consilience_reproduce::{CATALOGUE, Size};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::{Failure, Raised};
use crate::stated::Stated;
use crate::tables::{Columns, tables};
use crate::watch::watched;

/// The posterior and the law of a sampler's draws, as JSON.
#[pyfunction]
pub fn exact(py: Python<'_>, stated: Stated, columns: Columns<'_>) -> PyResult<String> {
    let written = stated.written();
    let config = stated.parse(&tables(&columns)?)?;
    watched(py, &Progress::default(), None, || {
        let problem =
            Problem::new(&config).map_err(|e| Failure::complaint(Raised::Data, e, written))?;
        let plan = Plan::new(&config, &problem)
            .map_err(|e| Failure::complaint(Raised::Config, e, written))?;
        let (truth, law) = laws(&problem, &plan).map_err(|e| Failure::new(Raised::Config, e))?;
        let d = law.mean.len();
        let show = |law: &StationaryLaw| {
            json!({
            "mean": law.mean, "covariance": law.covariance.chunks(d).collect::<Vec<_>>() })
        };
        let (sampler, step) = (config.sampler.row.name, plan.step().largest());
        Ok(json!({ "sampler": sampler, "step": step, "parameters": problem.parameters,
            "posterior": show(&truth), "stationary": show(&law) })
        .to_string())
    })
}

/// Several samplers on one target: the numbers as JSON, and the page.
#[pyfunction]
#[pyo3(signature = (all, columns, show=None))]
pub fn compare(
    py: Python<'_>,
    all: Vec<(String, Stated)>,
    columns: Columns<'_>,
    show: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    let tables = tables(&columns)?;
    let mut configs = Vec::new();
    for (name, stated) in all {
        let written = stated.written();
        configs.push((name, stated.parse(&tables)?, written));
    }
    let progress = Progress::default();
    watched(py, &progress, show.as_ref(), || {
        let mut first: Option<(Problem, Truth)> = None;
        let mut runs = Vec::new();
        for (name, config, written) in &configs {
            let problem =
                Problem::new(config).map_err(|e| Failure::complaint(Raised::Data, e, *written))?;
            let plan = Plan::new(config, &problem)
                .map_err(|e| Failure::complaint(Raised::Config, e, *written))?;
            let (known, truth) = match &first {
                Some(found) => found,
                None => {
                    let truth = Truth::find(config, &problem, &plan, None)
                        .map_err(|e| Failure::new(Raised::Error, e))?;
                    first.insert((problem.clone(), truth))
                }
            };
            known
                .statement
                .check(&problem.statement, name)
                .map_err(|e| Failure::new(Raised::Config, e))?;
            progress.total.fetch_add(plan.length.total(), Ordering::Relaxed);
            let started = Instant::now();
            let outcome = sample(&plan, &plan.length, config.seed, Sinks::Memory, &progress)?;
            runs.push(truth.judge(name, config, &plan, &outcome, started.elapsed().as_secs_f64()));
            if outcome.interrupted {
                break;
            }
        }
        let Some((problem, truth)) = first else {
            return Err(Failure::new(Raised::Config, "there is nothing to compare: give a config"));
        };
        let size = (problem.parameters.len(), problem.clients.len());
        let found = Comparison { reference: truth.how, reference_error: truth.error, size, runs };
        let row = |r: &Contender| {
            json!({
                "config": r.config, "sampler": r.sampler, "step": r.step,
                "mean_error_sd": r.errors[0], "sd_error": r.errors[1], "w2": r.errors[2],
                "ess": r.ess, "bits_up": r.bits.0, "bits_down": r.bits.1,
                "survey_bits": r.surveys,
                "exchanges": { "before_sampling": r.exchanges.0, "sampling": r.exchanges.1 },
                "rows_evaluated": r.gradients, "seconds": r.seconds,
            })
        };
        let numbers = json!({
            "reference": found.reference,
            "runs": found.runs.iter().map(row).collect::<Vec<Value>>() });
        Ok((numbers.to_string(), comparison(&found)))
    })
}

/// One of the papers' experiments, run again: everything as JSON, and the page's path if a folder
/// is given.
#[pyfunction]
#[pyo3(signature = (id, size, folder, seed=None, data=None, show=None))]
pub fn reproduce(
    py: Python<'_>,
    id: &str,
    size: &str,
    folder: PathBuf,
    seed: Option<u64>,
    data: Option<PathBuf>,
    show: Option<Py<PyAny>>,
) -> PyResult<(String, PathBuf)> {
    let unknown = |what: &str, hint: String| {
        Failure::new(Raised::Config, format!("there is no {what}: {hint}"))
    };
    let entry = CATALOGUE.iter().find(|entry| entry.id == id);
    let entry = entry.ok_or_else(|| {
        unknown(
            &format!("reproduction `{id}`"),
            suggest(id, CATALOGUE.iter().map(|entry| entry.id)),
        )
    })?;
    let found = Size::ALL.into_iter().find(|known| known.name() == size);
    let size = found.ok_or_else(|| {
        unknown(
            &format!("size `{size}`"),
            suggest(size, Size::ALL.iter().map(|known| known.name())),
        )
    })?;
    let wrong = |e: &dyn std::fmt::Display| Failure::new(Raised::Error, e.to_string());
    let config = entry.config().map_err(|e| wrong(&e))?;
    let mut study = config.study(entry.paper.key, size);
    study.data = data;
    study.seed = seed.unwrap_or(study.seed);
    let progress = Progress::default();
    watched(py, &progress, show.as_ref(), || {
        let done =
            Reproduction::run(entry, config, study, &folder.join("cells"), false, 0, &progress)
                .map_err(|e| wrong(&e))?;
        let page = done.write(&folder).map_err(|e| wrong(&e))?;
        Ok((done.json().to_string(), page))
    })
}

/// Every reproduction, as JSON.
#[pyfunction]
pub fn reproductions() -> PyResult<String> {
    let row = |entry: &consilience_reproduce::Entry| -> Result<Value, Failure> {
        let config = entry.config().map_err(|e| Failure::new(Raised::Error, e))?;
        Ok(json!({ "id": entry.id, "paper": entry.paper.key, "place": config.place,
                "claim": config.says, "data": config.data }))
    };
    Ok(Value::from(CATALOGUE.iter().map(row).collect::<Result<Vec<_>, _>>()?).to_string())
}
