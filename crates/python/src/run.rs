//! Sample, and hold what a run leaves behind.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use consilience_core::measure::{Elpd, MASS};
use consilience_core::model::Model;
use consilience_core::protocol::Kind;
use consilience_engine::config::Start;
use consilience_engine::data::Table;
use consilience_engine::data::memory::Tables;
use consilience_engine::draws::Draws;
use consilience_engine::loo::{Loo, LooError, compare_with, loo_with};
use consilience_engine::predict::{Prediction, Predictor};
use consilience_engine::record::{Record, Statistic};
use consilience_engine::run::Progress;
use consilience_engine::rundir;
use consilience_engine::session::{Control, Session};
use consilience_engine::site_effects::{SiteEffects, effects_with, keep_effects};
use numpy::{
    PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray3, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::{Failure, Raised};
use crate::model::{Asked, Brought};
use crate::stated::Stated;
use crate::tables::{ColumnCells, Columns, one_table, tables};
use crate::warnings::warnings;
use crate::watch::watched;

/// A run that has ended.
#[pyclass(frozen, module = "consilience._consilience")]
pub struct Run {
    /// Everything but the draws, which are NumPy's.
    record: Record,
    draws: Py<PyArray3<f64>>,
    digest: String,
    facts: String,
}

/// Sample from the posterior that a config states, or a model of Python's. `show` is called with
/// the iterations done so far, of all there are. If the model raises something, it stands beside
/// the run, which has the draws until then; before there is a run it is raised.
#[pyfunction]
#[pyo3(signature = (stated, columns, created, show=None, model=None))]
pub fn sample(
    py: Python<'_>,
    stated: Stated,
    columns: Columns<'_>,
    created: String,
    show: Option<Py<PyAny>>,
    model: Option<Brought>,
) -> PyResult<(Run, Option<PyErr>)> {
    let written = stated.written();
    let tables = tables(&columns)?;
    let mut config = stated.parse(&tables)?;
    let model = model.map(|model| Arc::new(Asked::new(model)));
    if let Some(model) = &model {
        let brought = model.brought();
        config.run.threads = if brought.concurrent { config.run.threads } else { 1 };
        config.run.start = brought.start.clone().map(Start::Point).or(config.run.start);
    }
    let progress = Progress::default();
    let worked = watched(py, &progress, show.as_ref(), || {
        let session = match &model {
            None => Session::new(config),
            Some(model) => {
                let (joint, brought): (Arc<dyn Model>, _) =
                    (Arc::<Asked>::clone(model), model.brought());
                Session::external(config, joint, brought.parameters.clone(), brought.sites.clone())
            }
        };
        let undefined = |failure: Failure| match model.as_ref().and_then(|model| model.undefined())
        {
            Some(at) => Failure::new(Raised::Sampling, format!("{at}\n  {NAN}")),
            None => failure,
        };
        let planned = session
            .map_err(|e| Failure::complaint(Raised::Data, e, written))?
            .plan()
            .map_err(|e| undefined(Failure::complaint(Raised::Config, e, written)))?;
        let started = Instant::now();
        let seconds = || started.elapsed().as_secs_f64();
        let control = Control {
            version: env!("CARGO_PKG_VERSION").into(),
            created,
            clock: Some(&seconds),
            ..Control::default()
        };
        let ended = planned.run(&progress, control).map_err(|e| undefined(e.into()))?;
        Ok((ended.record, ended.failure.map(|failure| (failure.chain, failure.iteration))))
    });
    let raised = model.and_then(|model| model.raised());
    match (worked, raised) {
        (Ok((record, at)), raised) => {
            if let (Some(raised), Some((chain, iteration))) = (&raised, at) {
                let note = format!(
                    "raised by the model: chain {chain} stopped after iteration {iteration}, and \
                     `error.result` has the draws until then"
                );
                raised.value(py).call_method1("add_note", (note,))?;
            }
            Ok((Run::new(py, record)?, raised))
        }
        (Err(_), Some(raised)) => {
            raised
                .value(py)
                .call_method1("add_note", ("raised by the model, before the first iteration",))?;
            Err(raised)
        }
        (Err(failure), None) => Err(failure),
    }
}

/// What to do about a gradient that is no number.
const NAN: &str = "check the model there (a logarithm of what is not above 0, 0/0, rows that are \
    NaN), \
                   or start elsewhere: start=[...]";

impl Run {
    /// Hand the draws to NumPy, which then owns them; nobody may change them.
    pub fn new(py: Python<'_>, mut record: Record) -> PyResult<Run> {
        let (chains, length, d) =
            (record.draws.chains(), record.draws.length(), record.parameters.len());
        let facts = facts(&record).to_string();
        let draws = std::mem::replace(&mut record.draws, Draws::new(d));
        let digest = draws.digest();
        let array = PyArray1::from_vec(py, draws.into_flat()).reshape([chains, length, d])?;
        array.readwrite().make_nonwriteable();
        Ok(Run { record, draws: array.unbind(), digest, facts })
    }

    /// The record with its draws, which are copied for as long as they are looked at.
    fn whole(&self, py: Python<'_>) -> PyResult<Record> {
        let array: PyReadonlyArray3<'_, f64> = self.draws.bind(py).readonly();
        let [_, length, d] = <[usize; 3]>::try_from(array.shape())?;
        let chains = array.as_slice()?.chunks((length * d).max(1)).map(<[f64]>::to_vec).collect();
        Ok(Record { draws: Draws::from_chains(chains, d), ..self.record.clone() })
    }
}

#[pymethods]
impl Run {
    /// The draws: chain, draw, parameter.
    #[getter]
    fn draws(&self, py: Python<'_>) -> Py<PyArray3<f64>> {
        self.draws.clone_ref(py)
    }

    /// SHA-256 of the draws' bytes.
    #[getter]
    fn digest(&self) -> &str {
        &self.digest
    }

    /// Everything that is no array, as JSON.
    #[getter]
    fn facts(&self) -> &str {
        &self.facts
    }

    /// What stands beside every draw: names, and arrays of chain and draw.
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let all = self.record.statistics.iter().map(|statistic| {
            let (chains, length) =
                (statistic.values.len(), statistic.values.first().map_or(0, Vec::len));
            Ok((
                statistic.name.clone(),
                PyArray1::from_vec(py, statistic.values.concat())
                    .reshape([chains, length])?
                    .into_any(),
            ))
        });
        all.collect()
    }

    /// Write a run directory; where the rows of these clients or of the config's files are at hand,
    /// with the effects of each site's groups.
    fn save(&self, py: Python<'_>, folder: PathBuf, columns: Columns<'_>) -> PyResult<()> {
        let (record, tables) = (self.whole(py)?, tables(&columns)?);
        let written = py.detach(|| {
            rundir::write(&folder, &record).map_err(|e| Failure::new(Raised::Error, e))?;
            let page = folder.join("report.html");
            let failed =
                |e: std::io::Error| Failure::new(Raised::Error, format!("{}: {e}", page.display()));
            std::fs::write(&page, consilience_report::html(&record)).map_err(failed)?;
            match keep_effects(&record, &tables, &folder) {
                Err(e @ LooError::Unwritten { .. }) => Err(Failure::new(Raised::Error, e)),
                Err(_) | Ok(_) => Ok(()), // rows that are gone do not matter here
            }
        });
        Ok(written?)
    }

    /// Predict raw rows: the means, the ends of the intervals, each by row and output, and
    /// everything else as JSON.
    #[pyo3(signature = (columns, site=None, clients=Vec::new()))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<(String, ColumnCells<'py>)>,
        site: Option<&str>,
        clients: Columns<'py>,
    ) -> PyResult<Predicted<'py>> {
        let table = one_table(ROWS, &columns)?;
        let (record, tables) = (self.whole(py)?, tables(&clients)?);
        let (numbers, outputs, facts) = py.detach(|| predict(&record, &table, (site, &tables)))?;
        let array = |read: fn(&Prediction) -> f64| {
            let cells: Vec<f64> = numbers.iter().map(read).collect();
            PyArray1::from_vec(py, cells).reshape([numbers.len() / outputs, outputs])
        };
        Ok((array(|p| p.mean)?, array(|p| p.lower)?, array(|p| p.upper)?, facts))
    }

    /// Draw the effects of a site's groups, by the rows of these clients or of the config's files:
    /// the effects' names, the groups', and the draws.
    fn effects<'py>(
        &self,
        py: Python<'py>,
        site: &str,
        columns: Columns<'py>,
    ) -> PyResult<Drawn<'py>> {
        let (record, tables) = (self.whole(py)?, tables(&columns)?);
        let draw =
            || effects_with(&record, site, &tables).map_err(|e| Failure::new(Raised::Data, e));
        let SiteEffects { names, draws, groups } = py.detach(draw)?;
        Ok((names, groups, array(py, draws)?))
    }

    /// Leave-one-out cross-validation by the rows of these clients, or of the config's files; as
    /// JSON.
    fn loo(&self, py: Python<'_>, columns: Columns<'_>) -> PyResult<String> {
        let (record, tables) = (self.whole(py)?, tables(&columns)?);
        let found =
            py.detach(|| loo_with(&record, &tables).map_err(|e| Failure::new(Raised::Data, e)))?;
        Ok(loo_as_json(&found).to_string())
    }

    /// Everything that a run is: texts by the names of their files, the draws, what stands beside
    /// them, the reference.
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Parts<'py>> {
        let record = self.whole(py)?;
        let reference = record.reference.clone().map(|draws| array(py, draws)).transpose()?;
        let statistics =
            record.statistics.iter().map(|s| (s.name.clone(), s.values.clone())).collect();
        Ok((rundir::texts(&record), self.draws.bind(py).clone(), statistics, reference))
    }

    /// The report, as one HTML page.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        let record = self.whole(py)?;
        Ok(py.detach(|| consilience_report::html(&record)))
    }
}

/// What new rows are called in complaints.
const ROWS: &str = "the rows";

type Predicted<'py> =
    (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>, String);
type Drawn<'py> = (Vec<String>, Vec<String>, Bound<'py, PyArray3<f64>>);
type Parts<'py> = (
    BTreeMap<String, String>,
    Bound<'py, PyArray3<f64>>,
    Vec<(String, Vec<Vec<f64>>)>,
    Option<Bound<'py, PyArray3<f64>>>,
);

/// Read a run directory.
#[pyfunction]
pub fn load(py: Python<'_>, folder: PathBuf) -> PyResult<Run> {
    let record = py.detach(|| rundir::read(&folder).map_err(|e| Failure::new(Raised::Error, e)))?;
    Run::new(py, record)
}

/// The run of its parts.
#[pyfunction]
#[pyo3(signature = (texts, draws, statistics, reference=None))]
pub fn unpack(
    py: Python<'_>,
    texts: BTreeMap<String, String>,
    draws: PyReadonlyArray3<'_, f64>,
    statistics: Vec<(String, Vec<Vec<f64>>)>,
    reference: Option<PyReadonlyArray3<'_, f64>>,
) -> PyResult<Run> {
    let mut record = rundir::from_texts(&texts, Path::new("the pickle"))
        .map_err(|e| Failure::new(Raised::Error, e))?;
    record.draws = held(&draws)?;
    record.reference = reference.as_ref().map(held).transpose()?;
    record.statistics =
        statistics.into_iter().map(|(name, values)| Statistic { name, values }).collect();
    if record.draws.dim() != record.parameters.len() {
        return Err(Failure::new(
            Raised::Error,
            "the pickle's draws have other parameters than its run",
        )
        .into());
    }
    Run::new(py, record)
}

/// The engine's draws, copied from NumPy's.
fn held(array: &PyReadonlyArray3<'_, f64>) -> PyResult<Draws> {
    let [_, length, d] = <[usize; 3]>::try_from(array.shape())?;
    let cells: Vec<f64> = array.as_array().iter().copied().collect();
    Ok(Draws::from_chains(cells.chunks((length * d).max(1)).map(<[f64]>::to_vec).collect(), d))
}

/// NumPy's draws, which own their memory.
fn array(py: Python<'_>, draws: Draws) -> PyResult<Bound<'_, PyArray3<f64>>> {
    let (chains, length, d) = (draws.chains(), draws.length(), draws.dim());
    PyArray1::from_vec(py, draws.into_flat()).reshape([chains, length, d])
}

/// What cross-validation found.
fn loo_as_json(found: &Loo) -> Value {
    let sums = |elpd: &Elpd| {
        json!({
            "n_data_points": elpd.rows, "elpd_loo": elpd.sum, "se": elpd.error(),
            "p_loo": elpd.parameters(), "counts": elpd.by_k,
        })
    };
    let sites: Vec<Value> =
        found.sites.iter().map(|(name, elpd)| json!([name, sums(elpd)])).collect();
    json!({
        "total": sums(&found.total), "sites": sites, "unit": found.unit,
        "n_samples": found.draws, "good_k": found.good_k,
    })
}

/// How well two runs predict rows that were left out, and the difference, row by row; as JSON. Each
/// has its own clients' rows, or the config's files.
#[pyfunction]
pub fn compare_models(
    py: Python<'_>,
    runs: [PyRef<'_, Run>; 2],
    columns: [Columns<'_>; 2],
) -> PyResult<String> {
    let [a, b] = [runs[0].whole(py)?, runs[1].whole(py)?];
    let [of_a, of_b] = [tables(&columns[0])?, tables(&columns[1])?];
    let compare =
        || compare_with([&a, &b], [&of_a, &of_b]).map_err(|e| Failure::new(Raised::Data, e));
    let found = py.detach(compare)?;
    Ok(json!(found.each_ref().map(loo_as_json)).to_string())
}

/// Predict the rows of a table: the numbers row by row, how many a row has, and the rest. Where
/// groups have effects, those of a site that is named are drawn by its own rows.
fn predict(
    record: &Record,
    table: &Table,
    (site, tables): (Option<&str>, &Tables),
) -> Result<(Vec<Prediction>, usize, String), Failure> {
    let predictor = Predictor::new(record).map_err(|e| Failure::new(Raised::Error, e))?;
    let known = site.filter(|_| predictor.has_effects());
    let predictor = match known {
        Some(site) => predictor
            .of_site_with(record, site, tables)
            .map_err(|e| Failure::new(Raised::Data, e))?,
        None => predictor,
    };
    let site = site.filter(|_| known.is_none() || predictor.has_site_terms());
    let rows = predictor.rows(table, site).map_err(|e| Failure::new(Raised::Data, e))?;
    let numbers: Vec<Prediction> = predictor.predict(&rows, MASS).into_iter().flatten().collect();
    let scores = predictor.score(&rows).map_err(|e| Failure::new(Raised::Data, e))?;
    let outputs = predictor.outputs();
    let facts = json!({
        "predicts": predictor.predicts().kind,
        "explained": predictor.encoding().and_then(|encoding| encoding.explained()),
        "classes": predictor.encoding().and_then(|encoding| encoding.classes()),
        "mass": MASS,
        "notes": rows.notes,
        "scores": scores.map(|scores| json!({
            "rows": scores.rows,
            "negative_log_likelihood": scores.negative_log_likelihood,
            "accuracy": scores.accuracy,
            "brier": scores.brier,
            "root_mean_square": scores.root_mean_square,
        })),
    });
    Ok((numbers, outputs, facts.to_string()))
}

/// What a run says of itself, without its draws.
fn facts(record: &Record) -> Value {
    let sent = |direction: &str| -> Value {
        let of = |kind: Kind| {
            record
                .sent
                .iter()
                .filter(|s| s.direction == direction && s.kind == kind.name())
                .map(|s| s.bits)
                .sum::<u64>()
        };
        Kind::ALL
            .into_iter()
            .map(|kind| (kind.name().to_owned(), json!(of(kind))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    json!({
        "config": record.config,
        "sampler": record.sampler.0,
        "seed": record.seed,
        "step": record.step,
        "iterations": record.iterations,
        "burn_in": record.burn_in,
        "thin": record.thin,
        "seconds": record.seconds,
        "created": record.created,
        "version": record.version,
        "interrupted": record.interrupted,
        "parameters": record.parameters,
        "variables": rundir::variables(&record.parameters),
        "sites": record.sites.iter().map(|s| json!({
        "name": s.name, "rows": s.rows, "bits_up": s.bits.0,
        "bits_down": s.bits.1 })).collect::<Vec<_>>(),
        "up": sent("up"),
        "down": sent("down"),
        "uncompressed": [record.uncompressed.0, record.uncompressed.1],
        "before_sampling": [record.before_sampling.0, record.before_sampling.1],
        "rows_evaluated": record.rows_evaluated,
        "exchanges": [record.exchanges.0, record.exchanges.1],
        "bias": record.bias,
        "choice": record.choice,
        "notes": record.notes,
        "warnings": warnings(record),
        "check": record.check,
        "draws_file": record.streamed.as_ref().map(|s| s.file.display().to_string()),
    })
}
