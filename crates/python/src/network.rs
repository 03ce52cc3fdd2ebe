//! Serve a run to sites elsewhere and join one, over gRPC or by somebody else's mailboxes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use consilience_core::model::{Member, Model};
use consilience_core::rng::ClientId;
use consilience_engine::config::Config;
use consilience_engine::data::memory::Tables;
use consilience_engine::record::Record;
use consilience_engine::run::Progress;
use consilience_engine::site::{Own, OwnModel, names};
use consilience_net::certs::Papers;
use consilience_net::join::{Credentials, JoinError, JoinOptions};
use consilience_net::mailbox::{self, Mailboxes};
use consilience_net::serve::{self, Admission, ServeError, ServeOptions, Served};
use consilience_net::status::Status;
use consilience_net::ticket::{Invitation, Tickets};
use consilience_net::worker::{Brings, SiteError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::{Failure, Raised};
use crate::model::{Asked, Brought};
use crate::run::Run;
use crate::stated::Stated;
use crate::tables::{ColumnCells, one_table};

/// How long the interpreter waits between two looks at its signals.
const PATIENCE: Duration = Duration::from_millis(50);

/// A run that is being served.
#[pyclass(frozen, module = "consilience._consilience")]
pub struct Serving {
    sites: Vec<String>,
    status: Arc<Status>,
    /// What each site is handed, where they come over a network of ours.
    invitations: Vec<String>,
    /// The letter boxes, where somebody else carries the frames.
    mailboxes: Option<Mailboxes>,
    work: Mutex<Option<JoinHandle<Result<Record, Failure>>>>,
}

/// Serve the run that a config states. With a host sites come over gRPC with tickets, and
/// `host:port` is where they find the server; without, by mailboxes.
#[pyfunction]
#[pyo3(signature = (stated, created, host=None, listen="0.0.0.0".to_owned(), port=0, state=None,
    deadline=None, quarantine=true))]
#[allow(clippy::too_many_arguments)] // keywords, for the package's front alone
pub fn serve_run(
    stated: Stated,
    created: String,
    host: Option<String>,
    listen: String,
    port: u16,
    state: Option<PathBuf>,
    deadline: Option<f64>,
    quarantine: bool,
) -> PyResult<Serving> {
    let config = stated.parse(&Tables::new())?;
    let wrong = |error: &dyn std::fmt::Display| Failure::new(Raised::Error, error);
    let sites = names(&config).map_err(|e| Failure::complaint(Raised::Config, e, true))?;
    let status = Arc::new(Status::new(&sites, Arc::new(Progress::default())));
    let options = |admission| {
        let deadline =
            deadline.map(Duration::try_from_secs_f64).transpose().map_err(|e| wrong(&e))?;
        Ok::<_, Failure>(ServeOptions {
            state,
            deadline,
            quarantine,
            ..ServeOptions::new(admission)
        })
    };
    let (shared, stopped) = (Arc::clone(&status), Arc::clone(&status));
    let (mut invitations, mut letters) = (Vec::new(), None);
    let work: Box<dyn FnOnce() -> Result<Record, ServeError> + Send> = if let Some(host) = host {
        let tickets = Tickets::issue(&sites, std::slice::from_ref(&host), SystemTime::now())
            .map_err(|e| wrong(&e))?;
        let address: SocketAddr = format!("{listen}:{port}")
            .parse()
            .map_err(|_| wrong(&format!("{listen}:{port} is no address to listen on")))?;
        let listener = serve::bind(address).map_err(|e| wrong(&e))?;
        let port = listener.local_addr().map_err(|e| wrong(&e))?.port();
        let at =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let invite = |site: &String| {
            tickets.invitation(site, &at).map(|invitation| json!(invitation).to_string())
        };
        invitations = sites.iter().filter_map(invite).collect();
        let options = options(Admission::Tickets(tickets))?;
        Box::new(move || {
            serve::serve(
                listener,
                &config,
                &options,
                &shared,
                |_| {},
                |served| record(&config, served, created),
            )
        })
    } else {
        let mailboxes = Mailboxes::new(&sites);
        letters = Some(mailboxes.clone());
        let options = options(Admission::Word)?;
        Box::new(move || {
            serve::serve_by_post(
                &mailboxes,
                &config,
                &options,
                &shared,
                |_| {},
                |served| record(&config, served, created),
            )
        })
    };
    let work = std::thread::spawn(move || {
        let done = work().map_err(|error| failed(&stopped, error));
        stopped.stage("over");
        done
    });
    Ok(Serving { sites, status, invitations, mailboxes: letters, work: Mutex::new(Some(work)) })
}

fn record(config: &Config, served: Served, created: String) -> Record {
    served.record(config, env!("CARGO_PKG_VERSION"), created).0
}

fn failed(status: &Status, error: ServeError) -> Failure {
    match error {
        ServeError::Config(error) => Failure::complaint(Raised::Config, error, true),
        ServeError::Run(error) => error.into(),
        ServeError::Lost(_) if !status.view().refusals.is_empty() => {
            let why: Vec<String> = status
                .view()
                .refusals
                .iter()
                .map(|(why, times)| format!("{why} ({times} times)"))
                .collect();
            Failure::new(Raised::Refused, format!("{error}\n  refused: {}", why.join("; ")))
        }
        other => Failure::new(Raised::Sampling, other),
    }
}

#[pymethods]
impl Serving {
    /// The sites, in order.
    #[getter]
    fn sites(&self) -> Vec<String> {
        self.sites.clone()
    }

    /// What each site is handed, as JSON, in their order; nothing by mailboxes.
    #[getter]
    fn invitations(&self) -> Vec<String> {
        self.invitations.clone()
    }

    /// How the run stands: the stage, iterations done and in all, and a line for people.
    fn view(&self) -> (String, u64, u64, String) {
        let view = self.status.view();
        (view.stage.clone(), view.done.0, view.done.1, view.line())
    }

    /// Which sites are connected.
    fn connected(&self) -> Vec<bool> {
        self.status.view().sites.iter().map(|site| site.connected).collect()
    }

    /// Wait so many seconds for the end: the run, or nothing yet.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<Run>> {
        let until = Instant::now()
            + Duration::try_from_secs_f64(seconds)
                .map_err(|e| PyValueError::new_err(e.to_string()))?;
        loop {
            let work = {
                let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
                if work.as_ref().is_some_and(JoinHandle::is_finished) { work.take() } else { None }
            };
            if let Some(work) = work {
                let fault = |_| {
                    Err(Failure::new(
                        Raised::Error,
                        "this is a fault of the program: please report it",
                    ))
                };
                let record = py.detach(|| work.join().unwrap_or_else(fault))?;
                return Run::new(py, record).map(Some);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            py.detach(|| std::thread::sleep(left.min(PATIENCE)));
            py.check_signals()?;
        }
    }

    /// Which sites cannot go on, since when and why: one sentence each.
    fn blocked(&self) -> Vec<String> {
        self.status.view().blocked.clone()
    }

    /// Ask the run to stop; what was drawn is kept.
    fn stop(&self) {
        serve::stop(&self.status);
    }

    /// By mailboxes: what waits for a site, or nothing.
    fn collect(&self, site: usize) -> PyResult<Option<Vec<u8>>> {
        Ok(self.mailboxes()?.collect(site))
    }

    /// By mailboxes: deliver what a site answered.
    fn deliver(&self, py: Python<'_>, site: usize, bundle: Vec<u8>) -> PyResult<()> {
        let mailboxes = self.mailboxes()?;
        py.detach(|| mailboxes.deliver(site, &bundle))
            .map_err(|why| Failure::new(Raised::Refused, why).into())
    }

    /// By mailboxes: say that a site does not answer.
    fn lost(&self, py: Python<'_>, site: usize, why: &str) -> PyResult<()> {
        let mailboxes = self.mailboxes()?;
        py.detach(|| mailboxes.lost(site, why));
        Ok(())
    }
}

impl Serving {
    fn mailboxes(&self) -> Result<&Mailboxes, Failure> {
        self.mailboxes.as_ref().ok_or_else(|| {
            Failure::new(Raised::Error, "this run is served over a network, not by post")
        })
    }
}

/// What a site brings: its name, its rows (a file's name, columns, or those that are built in; else
/// they are in the config) or a model that knows them, where it keeps its state, whether the server
/// may know its noise, what it may tell of one row, and the folder of its certificate, by which the
/// other sites know the key that it hides its answers with in a sum.
#[derive(FromPyObject)]
pub struct Bringing<'py> {
    site: String,
    model: Option<Brought>,
    file: Option<PathBuf>,
    columns: Option<Vec<(String, ColumnCells<'py>)>>,
    builtin: bool,
    state: Option<PathBuf>,
    allows_simulation: bool,
    budget: Option<(f64, f64)>,
    certs: Option<PathBuf>,
}

impl Bringing<'_> {
    /// The same as the network takes it, and the model, to ask it what went wrong.
    fn brings(self) -> PyResult<(Brings, Option<Arc<Asked>>)> {
        let model = self.model.map(|model| Arc::new(Asked::new(model)));
        let data = match (&model, self.file, self.columns) {
            (Some(model), ..) => Own::Model(own_model(&self.site, model)?),
            (None, Some(file), _) => Own::File(file),
            (None, None, Some(columns)) => {
                Own::Table(Arc::new(one_table("the site's rows", &columns)?))
            }
            (None, None, None) if self.builtin => Own::Builtin,
            (None, None, None) => Own::Stated,
        };
        let papers = self.certs.as_deref().map(Papers::load).transpose();
        let brings = Brings {
            state: self.state,
            allows_simulation: self.allows_simulation,
            budget: budget(self.budget)?,
            papers: papers.map_err(|error| Failure::new(Raised::Error, error))?,
            ..Brings::new(&self.site, data)
        };
        Ok((brings, model))
    }
}

/// What a site may tell of one row in all its runs, where that is a budget.
fn budget(stated: Option<(f64, f64)>) -> PyResult<Option<(f64, f64)>> {
    match stated {
        Some((epsilon, delta)) if !(epsilon > 0.0 && delta > 0.0 && delta < 1.0) => {
            Err(PyValueError::new_err(format!(
                "({epsilon}, {delta}) is no budget: give epsilon above 0 and delta between 0 and 1"
            )))
        }
        stated => Ok(stated),
    }
}

/// The part of a model that one site has.
fn own_model(site: &str, model: &Arc<Asked>) -> PyResult<OwnModel> {
    let brought = model.brought();
    let place = brought.sites.iter().position(|known| known == site);
    let joint: Arc<dyn Model> = Arc::<Asked>::clone(model);
    let Some(own) = place.and_then(|place| Member::new(joint, ClientId(place as u32))) else {
        let sites = brought.sites.join(", ");
        return Err(Failure::field(
            Raised::Config,
            "model",
            format!("it has no rows of the site {site:?}: its clients are {sites}"),
            format!("give it this site's rows: rows={{{site:?}: ...}}"),
        )
        .into());
    };
    Ok(OwnModel {
        name: brought.name.clone(),
        parameters: brought.parameters.clone(),
        start: brought.start.clone(),
        model: Arc::new(own),
    })
}

/// What the model raised comes out as itself; it is not lost in words.
fn raised(py: Python<'_>, model: Option<&Arc<Asked>>, site: &str) -> PyResult<()> {
    let Some(raised) = model.and_then(|model| model.raised()) else { return Ok(()) };
    let note = format!("raised by the model of site {site:?}, which takes no part any more");
    raised.value(py).call_method1("add_note", (note,))?;
    Err(raised)
}

/// The server that a site joins: by an invitation, or at an address, with certificates unless it is
/// on this machine.
#[derive(FromPyObject)]
pub struct Meeting {
    invitation: Option<String>,
    server: String,
    certs: Option<PathBuf>,
    server_name: Option<String>,
}

impl Meeting {
    fn options(self) -> Result<JoinOptions, Failure> {
        let wrong = |error: &dyn std::fmt::Display| Failure::new(Raised::Error, error);
        if let Some(invitation) = self.invitation {
            let invitation: Invitation = serde_json::from_str(&invitation)
                .map_err(|e| wrong(&format!("this is no invitation: {e}")))?;
            return JoinOptions::invited(&invitation).map_err(site_failure);
        }
        let papers = self.certs.as_deref().map(Papers::load).transpose().map_err(|e| wrong(&e))?;
        Ok(JoinOptions {
            server: self.server,
            server_name: self.server_name,
            credentials: papers.map_or(Credentials::Word, Credentials::Certificate),
            patience: None,
        })
    }
}

/// Take part in a run to its end; whether it came to its end. Ctrl-C is raised.
#[pyfunction]
#[pyo3(signature = (bringing, meeting, patience=None))]
pub fn join_run(
    py: Python<'_>,
    bringing: Bringing<'_>,
    meeting: Meeting,
    patience: Option<f64>,
) -> PyResult<bool> {
    let mut options = meeting.options()?;
    options.patience = patience
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|e| PyValueError::new_err(e.to_string()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (brings, model) = bringing.brings()?;
    let site = brings.site.clone();
    let work = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || consilience_net::join::join(brings, &options, &stop))
    };
    let mut signal = None;
    while !work.is_finished() {
        py.detach(|| std::thread::sleep(PATIENCE));
        if let Err(error) = py.check_signals() {
            stop.store(true, Ordering::Relaxed);
            signal = Some(error);
        }
    }
    let joined = py.detach(|| work.join()).unwrap_or(Err(JoinError::Stopped));
    match signal {
        Some(error) => Err(error),
        None => {
            raised(py, model.as_ref(), &site)?;
            Ok(joined.map_err(site_failure)?)
        }
    }
}

/// A site that is reached by mailboxes.
#[pyclass(frozen, module = "consilience._consilience")]
pub struct Correspondent(Mutex<mailbox::Correspondent>);

#[pymethods]
impl Correspondent {
    #[new]
    fn new(py: Python<'_>, bringing: Bringing<'_>) -> PyResult<Self> {
        let (brings, _) = bringing.brings()?;
        let site = py
            .detach(|| mailbox::Correspondent::new(brings))
            .map_err(|error| site_failure(JoinError::Site(error)))?;
        Ok(Correspondent(Mutex::new(site)))
    }

    /// Do what a bundle asks: what goes back, whether the run is over (and if so whether it came to
    /// its end), and why the site takes no part, if so.
    fn answer(
        &self,
        py: Python<'_>,
        bundle: Vec<u8>,
    ) -> PyResult<(Vec<u8>, Option<bool>, Option<String>)> {
        let answered = py
            .detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).answer(&bundle))
            .map_err(|error| site_failure(JoinError::Site(error)))?;
        Ok((answered.bundle, answered.over, answered.trouble.map(|trouble| trouble.to_string())))
    }
}

fn site_failure(error: JoinError) -> Failure {
    match error {
        JoinError::Site(SiteError::Config(error) | SiteError::Stated(error)) => {
            Failure::complaint(Raised::Config, error, true)
        }
        JoinError::Site(
            SiteError::Refused(_) | SiteError::Disagree(_) | SiteError::OtherRows(_),
        ) => Failure::new(Raised::Refused, error),
        JoinError::Site(SiteError::Model { .. }) => Failure::new(Raised::Sampling, error),
        other => Failure::new(Raised::Error, other),
    }
}
