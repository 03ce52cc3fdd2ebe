//! Carry a run in questions and answers, by whatever Python carries messages with.

use std::sync::Mutex;
use std::time::Instant;

use consilience_engine::conductor::Lost;
use consilience_engine::data::memory::Tables;
use consilience_engine::parley::{self, NotAnswered, ParleyError};
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run::Progress;
use consilience_engine::site::names;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{Failure, Raised};
use crate::run::Run;
use crate::stated::Stated;
use crate::tables::{Columns, tables};

/// Run a config whose sites are wherever `carry` finds them: it takes `{site: message}` and gives `{site: answer}`.
#[pyfunction]
#[pyo3(signature = (stated, created, carry, show=None))]
pub fn serve(py: Python<'_>, stated: Stated, created: String, carry: Py<PyAny>, show: Option<Py<PyAny>>) -> PyResult<Run> {
    let written = stated.written();
    let config = stated.parse(&Tables::new())?;
    let sites = names(&config).map_err(|e| Failure::complaint(Raised::Config, e, written))?;
    let progress = Progress::default();
    if let Some(show) = &show {
        show.call1(py, (0, config.run.iterations.saturating_mul(config.run.chains as u64)))?;
    }
    let mut raised: Option<PyErr> = None;
    let started = Instant::now();
    let served = py.detach(|| {
        let mut carried = |asks: Vec<(usize, Vec<u8>)>| {
            let called = Python::attach(|py| {
                py.check_signals()?;
                if let Some(show) = &show {
                    show.call1(py, (progress.done.load(std::sync::atomic::Ordering::Relaxed),))?;
                }
                exchanged(py, &carry, &sites, asks)
            });
            called.map_err(|error| {
                let why = Lost(error.to_string());
                raised = Some(error);
                why
            })
        };
        parley::serve(&config, &mut carried, &progress)
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let served = served.map_err(|error| match error {
        ParleyError::Config(error) => Failure::complaint(Raised::Config, error, written),
        ParleyError::Run(error) => error.into(),
        other => Failure::new(Raised::Refused, other),
    })?;
    let made = Circumstances { version: env!("CARGO_PKG_VERSION").into(), created, seconds: started.elapsed().as_secs_f64() };
    let mut record = Record::new(made, &config, &served.problem, &served.plan, served.outcome, None);
    record.warnings = consilience_report::warnings_of(&record);
    Run::new(py, record)
}

fn exchanged(py: Python<'_>, carry: &Py<PyAny>, sites: &[String], asks: Vec<(usize, Vec<u8>)>) -> PyResult<Vec<(usize, Vec<u8>)>> {
    let messages = PyDict::new(py);
    for (to, bytes) in asks {
        messages.set_item(&sites[to], PyBytes::new(py, &bytes))?;
    }
    let answers: Vec<(String, Vec<u8>)> =
        carry.call1(py, (messages,))?.bind(py).call_method0("items")?.try_iter()?.map(|item| item?.extract()).collect::<PyResult<_>>()?;
    let place = |(site, bytes): (String, Vec<u8>)| {
        let unknown =
            || Failure::new(Raised::Refused, format!("an answer came from `{site}`, which is no site: the sites are {}", sites.join(", ")));
        Ok((sites.iter().position(|known| *known == site).ok_or_else(unknown)?, bytes))
    };
    answers.into_iter().map(place).collect()
}

/// One site of a run.
#[pyclass(frozen, module = "consilience._consilience")]
pub struct Site(Mutex<parley::Site>);

fn wrong(error: NotAnswered) -> Failure {
    match error {
        NotAnswered::Config(error) => Failure::complaint(Raised::Data, error, false),
        other => Failure::new(Raised::Refused, other),
    }
}

#[pymethods]
impl Site {
    #[new]
    #[pyo3(signature = (stated, columns, name, private, state=None))]
    fn new(stated: Stated, columns: Columns<'_>, name: &str, private: [u8; 32], state: Option<&[u8]>) -> PyResult<Self> {
        let config = stated.parse(&tables(&columns)?)?;
        let fresh = parley::Site::new(config, name, private).map_err(wrong)?;
        let site = match state {
            None => fresh,
            Some(state) => fresh.restored(state).map_err(wrong)?,
        };
        Ok(Site(Mutex::new(site)))
    }

    /// Answer one message.
    fn answer<'py>(&self, py: Python<'py>, message: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let answer = py.detach(|| self.lock(|site| site.answer(message).map_err(wrong)))?;
        Ok(PyBytes::new(py, &answer))
    }

    /// Everything that the next answer needs, but for the config and the rows.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let state = py.detach(|| self.lock(|site| Ok(site.save())))?;
        Ok(PyBytes::new(py, &state))
    }
}

impl Site {
    fn lock<R>(&self, work: impl FnOnce(&mut parley::Site) -> Result<R, Failure>) -> Result<R, Failure> {
        match self.0.lock() {
            Ok(mut site) => work(&mut site),
            Err(_) => Err(Failure::new(Raised::Error, "this is a fault of the program: please report it")),
        }
    }
}
