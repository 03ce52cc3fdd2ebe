//! Serve a run: wait for the sites, agree, survey, sample.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use consilience_core::model::RowReach;
use consilience_core::protocol::{MOST_POINTS, Statement, kept_answers};
use consilience_core::rng::Seed;
use consilience_core::sampler::Keys;
use consilience_core::sampler::registry::Row;
use consilience_engine::chain_log::ChainLog;
use consilience_engine::conductor::Lost;
use consilience_engine::config::{Config, ConfigError, Seeds};
use consilience_engine::drawn::{Drawn, Venue};
use consilience_engine::draws::{Draws, MOST_HELD, Sinks};
use consilience_engine::plan::{Disappointment, MOST_WHITENED, Plan, PlanError};
use consilience_engine::privacy::row_reach;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record, Statistic};
use consilience_engine::run::{Outcome, RunError, gather};
use consilience_engine::site::{
    Agreed, Agreement, Introduction, SecureSite, agree, hear_knots, kinds, knots,
};
use consilience_engine::statement;
use consilience_engine::store::ServedChain;
use consilience_engine::warnings::{Code, Warning};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tonic::transport::{Server, ServerTlsConfig};
use tracing::info;

use crate::admission::{AT_ONCE, Incoming};
use crate::audit::{self, Audit, Happened};
use crate::chain::HostedChain;
use crate::frame::Frame;
use crate::http;
use crate::hub::{Broken, Hub, Objects, Parting};
use crate::mailbox::Mailboxes;
use crate::memory::Memory;
pub use crate::memory::{Over, Past, recall};
use crate::revoked::Revoked;
pub use crate::service::Admission;
use crate::service::{Event, GrpcService};
use crate::status::{Listening, Status};
use crate::talk::{Farewell, How, Instruction, PROTOCOL, Tell, VERSION, Welcome};

/// The largest norm that an answer may have, where the model has no bound and nobody says
/// otherwise.
pub const LARGEST_NORM: f64 = 1e12;
/// How many events may wait for the conductor; beyond, sites are held up.
const QUEUE: usize = 4096;
/// How long farewells may take, where nobody says otherwise.
const FAREWELLS: Duration = Duration::from_secs(3);
/// How long connections may take to end after the run.
const LINGER: Duration = Duration::from_secs(2);
/// How long elastic chains wait at least for the last words of a site.
const LEAST_FAREWELL: Duration = Duration::from_secs(2);
/// How many numbers of draws the sites are told for the log-density, in all and at once.
const MOST_TOLD: usize = 4_000_000;
const TOLD_AT_ONCE: usize = 50_000;
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The file in which a party keeps what all agreed on.
pub const STATEMENT: &str = "statement.txt";

/// How a run is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// By what sites are known.
    pub admission: Admission,
    /// Where state is kept, so that a server which dies goes on where it was.
    pub state: Option<PathBuf>,
    /// Where people and Prometheus look.
    pub http: Option<SocketAddr>,
    /// How long nothing may go forward.
    pub deadline: Option<Duration>,
    /// The largest norm that an answer in a chain may have.
    pub largest_norm: f64,
    /// Whether a site that cannot go on (its disk is full, it disagrees, its answer is no number)
    /// is waited for until it is mended or the operator decides; else it ends the run, for
    /// programs that decide themselves.
    pub quarantine: bool,
    /// After how long a strict run that such a site blocks is paused, by its name, until the
    /// operator lets it go on.
    pub pause_after: Option<Duration>,
    /// A list of certificates that were revoked ([`crate::revoked`]).
    pub revoked: Option<PathBuf>,
    /// How long the server stays after the end, to tell sites that have not heard of it.
    pub linger: Duration,
    /// How many connections of one address may be on their way to be admitted.
    pub at_once: usize,
}

impl ServeOptions {
    /// Serve sites that are known so, and keep nothing.
    pub fn new(admission: Admission) -> ServeOptions {
        ServeOptions {
            admission,
            state: None,
            http: None,
            deadline: None,
            largest_norm: LARGEST_NORM,
            quarantine: false,
            pause_after: None,
            revoked: None,
            linger: FAREWELLS,
            at_once: AT_ONCE,
        }
    }
}

/// Why a run was not served to its end.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The config does not fit.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A chain went wrong.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A site is away for too long, or does not take part.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// It cannot listen, or not so.
    #[error("{0}")]
    Setup(String),
    /// State cannot be kept, or found again.
    #[error("{0}")]
    State(String),
    /// Somebody asked to stop before there were draws.
    #[error("the run was stopped before it had draws")]
    Stopped,
    /// The server was interrupted; its sites wait for it.
    #[error(
        "the server was interrupted: nothing is lost, and the sites wait. Start it again with the \
         same command, and the run goes on"
    )]
    Suspended,
}

impl From<PlanError> for ServeError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Config(error) => ServeError::Config(error),
            PlanError::Lost(lost) => ServeError::Lost(lost),
        }
    }
}

impl From<Broken> for ServeError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Lost(lost) => ServeError::Lost(lost),
            Broken::Stopped => ServeError::Stopped,
            Broken::Suspended => ServeError::Suspended,
            Broken::Forgot(refusal) => ServeError::Lost(Lost(refusal.to_string())),
            Broken::Party(complaint) => match complaint.downcast::<RunError>() {
                Ok(error) => ServeError::Run(*error),
                Err(other) => ServeError::State(other.to_string()),
            },
        }
    }
}

/// What whoever shows the run is told as it goes on.
#[derive(Debug)]
pub enum Stage<'a> {
    /// Sites can connect here.
    Listening(SocketAddr),
    /// People can look here.
    Showing(SocketAddr),
    /// The sites have agreed on this.
    Agreed(&'a Problem),
    /// This will be done.
    Planned(&'a Plan),
    /// All parties state the same.
    Stated(&'a Statement),
}

/// What became of a run that was served: what its keeper made of it, and whether sites may be told
/// that it is over.
#[derive(Debug)]
pub struct Publication<K> {
    /// What was made of it.
    pub value: K,
    /// Whether the draws are where they shall be. Where they are not and the server keeps its
    /// state, the sites wait: it will be started again.
    pub safe: bool,
    /// Where the draws are, for the sites to be told.
    pub says: String,
}

/// A run that was served.
#[derive(Debug)]
pub struct Served {
    /// The name of the run.
    pub run: String,
    /// The problem, without rows.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// All that the parties agreed on, in words.
    pub statement: Statement,
    /// What was drawn.
    pub outcome: Outcome,
    /// What was drawn at half the step, where the bias is measured.
    pub halved: Option<Outcome>,
    /// How long sampling took, in seconds.
    pub seconds: f64,
    /// What people should know of who stayed away.
    pub warnings: Vec<Warning>,
    /// What happened, line by line ([`crate::audit`]).
    pub audit: String,
}

impl Served {
    /// What the run leaves behind, and what its parties agreed on.
    pub fn record(self, config: &Config, version: &str, created: String) -> (Record, Statement) {
        let Served { problem, plan, statement, outcome, halved, seconds, warnings, .. } = self;
        let made = Circumstances { version: version.into(), created, seconds };
        let drawn = Drawn { plan, outcome, halved };
        let record = drawn.record(made, config, &problem, None, warnings);
        (record, statement)
    }
}

/// Take an address; port 0 takes any that is free, and [`TcpListener::local_addr`] says which.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address)
        .map_err(|error| ServeError::Setup(format!("cannot listen on {address}: {error}")))
}

/// Serve a run to its end, on the thread that calls. [`stop`] ends it from another. What was drawn
/// is given to `keep` before the sites are let go: a server that dies before it is kept finds them
/// again.
pub fn serve<K>(
    listener: TcpListener,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: impl FnMut(Stage<'_>),
    keep: impl FnOnce(Served) -> K,
) -> Result<K, ServeError> {
    publish(listener, config, options, status, tell, |served| kept(keep(served)))
}

/// The same for a keeper that may fail, and that says where the draws are: only where they are safe
/// are the sites told that it is over.
pub fn publish<K>(
    listener: TcpListener,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: impl FnMut(Stage<'_>),
    keep: impl FnOnce(Served) -> Publication<K>,
) -> Result<K, ServeError> {
    listening(listener, config, options, status, tell, |act| act.conduct(config, options, keep))
}

/// Tell sites that a run is over which ended before: those that have not heard of it and come
/// within [`ServeOptions::linger`].
pub fn tell_over(
    listener: TcpListener,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: impl FnMut(Stage<'_>),
    farewell: Farewell,
) -> Result<(), ServeError> {
    listening(listener, config, options, status, tell, |act| act.is_over(farewell))
}

/// Let sites in while something is done.
fn listening<K, T: FnMut(Stage<'_>)>(
    listener: TcpListener,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    mut tell: T,
    work: impl FnOnce(&mut Act<'_, T>) -> (Result<K, ServeError>, Parting),
) -> Result<K, ServeError> {
    let address = listener.local_addr().map_err(|e| setup("the address is not known", &e))?;
    let tls = match &options.admission {
        Admission::Word if !address.ip().is_loopback() => {
            let text = "is not an address of this machine alone: without certificates anybody \
                could join. Make some with `consilience certs`, and give --certs";
            return Err(ServeError::Setup(format!("{address} {text}")));
        }
        Admission::Word => None,
        Admission::Certificates(papers) => Some(
            ServerTlsConfig::new()
                .identity(papers.identity.clone())
                .client_ca_root(papers.authority.clone()),
        ),
        Admission::Tickets(tickets) => {
            Some(ServerTlsConfig::new().identity(tickets.papers().identity.clone()))
        }
    };
    status.set_elastic(config.sampler.round_deadline.is_some());
    // Who has tickets has no certificates, and is controlled by its own signals alone.
    if !matches!(options.admission, Admission::Tickets(_)) {
        status.listens(Listening { address, certificates: tls.is_some() });
    }
    let hosting = Hosting::open(config, options)?;
    let revoked = options.revoked.as_deref().map(Revoked::open).transpose();
    let revoked = revoked.map_err(ServeError::Setup)?;
    let service = GrpcService::new(
        Arc::clone(status),
        options.admission.clone(),
        revoked,
        hosting.sender.clone(),
        Arc::clone(&hosting.most_message),
    );
    let (over, is_over) = oneshot::channel::<()>();
    let listener = listened(&hosting.runtime, listener)
        .map_err(|e| setup(&format!("cannot listen on {address}"), &e))?;
    tell(Stage::Listening(address));
    let mut builder = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(4);
    if let Some(tls) = tls {
        builder =
            builder.tls_config(tls).map_err(|e| setup("the certificates do not serve", &e))?;
    }
    let incoming = Incoming::new(listener).at_once(options.at_once);
    let listening = hosting.runtime.spawn(async move {
        let _ = builder
            .serve_with_incoming_shutdown(service, incoming, async {
                let _ = is_over.await;
            })
            .await;
    });
    let (done, runtime) = hosting.serve(config, options, status, tell, work)?;
    let _ = over.send(());
    let _ = runtime.block_on(async { tokio::time::timeout(LINGER, listening).await });
    runtime.shutdown_timeout(LINGER);
    done
}

/// Serve a run to its end by mailboxes: somebody else carries what waits in the letter boxes to the
/// sites, and delivers what they answer. Who is who is for the carrier to know.
pub fn serve_by_post<K>(
    mailboxes: &Mailboxes,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: impl FnMut(Stage<'_>),
    keep: impl FnOnce(Served) -> K,
) -> Result<K, ServeError> {
    publish_by_post(mailboxes, config, options, status, tell, |served| kept(keep(served)))
}

/// The same for a keeper that may fail.
pub(crate) fn publish_by_post<K>(
    mailboxes: &Mailboxes,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: impl FnMut(Stage<'_>),
    keep: impl FnOnce(Served) -> Publication<K>,
) -> Result<K, ServeError> {
    by_post(mailboxes, config, options, status, tell, |act| act.conduct(config, options, keep))
}

/// Tell sites by mailboxes that a run is over which ended before.
pub(crate) fn tell_over_by_post(
    mailboxes: &Mailboxes,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: impl FnMut(Stage<'_>),
    farewell: Farewell,
) -> Result<(), ServeError> {
    by_post(mailboxes, config, options, status, tell, |act| act.is_over(farewell))
}

/// Let mailboxes be used while something is done.
fn by_post<K, T: FnMut(Stage<'_>)>(
    mailboxes: &Mailboxes,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: T,
    work: impl FnOnce(&mut Act<'_, T>) -> (Result<K, ServeError>, Parting),
) -> Result<K, ServeError> {
    let hosting = Hosting::open(config, options)?;
    mailboxes.open(hosting.sender.clone(), &hosting.most_message);
    let hosted = hosting.serve(config, options, status, tell, work);
    mailboxes.close();
    let (done, runtime) = hosted?;
    runtime.shutdown_timeout(LINGER);
    done
}

/// What was kept by somebody who does not fail.
fn kept<K>(value: K) -> Publication<K> {
    Publication { value, safe: true, says: String::new() }
}

/// What is at hand while sites can come in.
struct Act<'a, T> {
    memory: &'a mut Memory,
    hub: &'a mut Hub,
    status: &'a Arc<Status>,
    tell: &'a mut T,
}

impl<T: FnMut(Stage<'_>)> Act<'_, T> {
    /// Part from the sites of a run that is over.
    fn is_over(&mut self, farewell: Farewell) -> (Result<(), ServeError>, Parting) {
        (self.memory.is_over(farewell.clone()), Parting::Over(farewell))
    }

    /// Conduct a run, keep what was drawn, and say how to part from the sites.
    fn conduct<K>(
        &mut self,
        config: &Config,
        options: &ServeOptions,
        keep: impl FnOnce(Served) -> Publication<K>,
    ) -> (Result<K, ServeError>, Parting) {
        let Act { memory, hub, status, tell } = self;
        let goes_on = memory.folder.is_some();
        let served = match conduct(config, options, memory, hub, status, *tell) {
            Ok(served) => served,
            Err(error) => {
                // surveys know no more than that they were broken off
                let error = match error {
                    ServeError::Lost(_) if status.is_suspended() => ServeError::Suspended,
                    ServeError::Lost(_) if status.is_stopped() => ServeError::Stopped,
                    other => other,
                };
                let parting = match &error {
                    ServeError::Suspended => Parting::Waits(ServeError::Suspended.to_string()),
                    ServeError::State(why) if goes_on => {
                        Parting::Waits(format!("the server cannot keep its state: {why}"))
                    }
                    ServeError::Lost(why) if goes_on => Parting::Waits(why.to_string()),
                    error => Parting::Over(Farewell { how: How::Aborted, says: error.to_string() }),
                };
                return (Err(error), parting);
            }
        };
        let finished = !served.outcome.interrupted;
        let how = if finished { How::Finished } else { How::Ended };
        let head = audit::head(&served.audit);
        let Publication { value, safe, mut says } = keep(served);
        if !says.is_empty() {
            says = format!("{says}; the audit log ends with {head}");
        }
        if !safe && goes_on {
            let why = "the server could not keep the draws: its operator will start it again";
            return (Ok(value), Parting::Waits(why.into()));
        }
        let farewell = Farewell { how, says };
        if (finished || status.is_ended())
            && let Err(error) = memory.is_over(farewell.clone())
        {
            return (Err(error), Parting::Over(farewell));
        }
        (Ok(value), Parting::Over(farewell))
    }
}

/// Where a run takes place, whichever way the sites come in.
struct Hosting {
    runtime: tokio::runtime::Runtime,
    memory: Memory,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    most_message: Arc<AtomicUsize>,
}

impl Hosting {
    fn open(config: &Config, options: &ServeOptions) -> Result<Hosting, ServeError> {
        if config.draws.is_some() && options.state.is_some() {
            return Err(ServeError::Setup(
                "with --state draws are kept in the state: leave output.draws out, and use --out"
                    .into(),
            ));
        }
        if config.privacy.is_some()
            && (config.seeds == Seeds::Simulation || config.lp == Some(true))
        {
            return Err(ServeError::Setup(
                "the config states a budget in [privacy]: with seeds = \"simulation\" everybody \
                 knows the noise, and with output.lp = true sites tell exact functions of their \
                 rows. Remove these, or [privacy]"
                    .into(),
            ));
        }
        let memory = Memory::open(options.state.as_deref(), config)?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime =
            runtime.worker_threads(2).enable_all().build().map_err(|e| setup("no threads", &e))?;
        let (sender, events) = mpsc::channel(QUEUE);
        Ok(Hosting { runtime, memory, sender, events, most_message: Arc::default() })
    }

    /// Do something while sites can come in, and part from them.
    fn serve<K, T: FnMut(Stage<'_>)>(
        self,
        config: &Config,
        options: &ServeOptions,
        status: &Arc<Status>,
        mut tell: T,
        work: impl FnOnce(&mut Act<'_, T>) -> (Result<K, ServeError>, Parting),
    ) -> Result<(Result<K, ServeError>, tokio::runtime::Runtime), ServeError> {
        let Hosting { runtime, mut memory, sender, events, most_message } = self;
        drop(sender); // the service and the mailboxes have their own
        if let Some(address) = options.http {
            let bound = listened(&runtime, bind(address)?)
                .map_err(|e| setup(&format!("cannot listen on {address}"), &e))?;
            tell(Stage::Showing(bound.local_addr().unwrap_or(address)));
            runtime.spawn(http::show(bound, Arc::clone(status)));
        }
        status.is_run(&memory.run);
        let boot = u64::from_le_bytes(random::<8>()?);
        let (run, shown) = (memory.run.clone(), config.shown());
        let simulation = config.seeds == Seeds::Simulation;
        let greeting = move |index: usize| Welcome {
            version: VERSION.into(),
            protocol: PROTOCOL.most, // what a site speaks is said when it comes
            run: run.clone(),
            boot,
            config: shown.to(index),
            index,
            simulation,
        };
        let mut hub = Hub::new(
            runtime.handle().clone(),
            events,
            Box::new(greeting),
            most_message,
            Arc::clone(status),
            options.deadline,
            options.quarantine,
        )
        .pausing_after(options.pause_after);
        status.keep_audit(Audit::open(options.state.as_deref()).map_err(ServeError::State)?);
        let (run, version) = (memory.run.clone(), VERSION.to_owned());
        status.note(Happened::Started { run, version });
        let mut act = Act { memory: &mut memory, hub: &mut hub, status, tell: &mut tell };
        let (done, parting) = work(&mut act);
        let all_know = hub.part(&parting, options.linger, &mut memory);
        status.close_audit();
        let done = if all_know { done } else { done.and(Err(ServeError::Suspended)) };
        Ok((done, runtime))
    }
}

fn setup(what: &str, error: &dyn std::fmt::Display) -> ServeError {
    ServeError::Setup(format!("{what}: {error}"))
}

/// A listener that the runtime looks after.
fn listened(
    runtime: &tokio::runtime::Runtime,
    listener: TcpListener,
) -> std::io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    let _inside = runtime.enter();
    tokio::net::TcpListener::from_std(listener)
}

fn conduct(
    config: &Config,
    options: &ServeOptions,
    memory: &mut Memory,
    hub: &mut Hub,
    status: &Arc<Status>,
    tell: &mut impl FnMut(Stage<'_>),
) -> Result<Served, ServeError> {
    let sites = status.sites();
    let agreed = loop {
        match settle(config, hub, &sites, status) {
            Ok(agreed) => break agreed,
            Err(ServeError::Config(error)) if hub.waits() => {
                let text = error.to_string();
                let Some(wrong) = named(&text, &sites) else {
                    return Err(error.into()); // it is our own config
                };
                hub.begin_again(wrong, &text);
            }
            Err(other) => return Err(other),
        }
    };
    let agreement = agreed.agreement.clone();
    let config = &agreement.settle(config);
    let mut problem = Problem::without_rows(config, agreed)?;
    // twice what numbers take, for the worst of codes
    hub.limit_messages(most_bytes(config.sampler.row, problem.target.dim()));
    tell(Stage::Agreed(&problem));
    let statement = statement::of_run(config, &agreement, &sites, None);
    let text = statement.text().to_owned();
    let ask = Instruction::Agree { agreement: agreement.clone(), statement: text };
    let signing = Signing::new(&options.admission, &memory.run, &statement)?;
    let stated = hub.ask_checked(&ask, signing.objects())?;
    signing.check(&sites, stated, status)?;
    problem.bound_rows(&row_reaches(config, hub, &sites)?);
    status.stage("surveying");
    let plan = Plan::conducted(config, &problem, hub)?;
    let started = Instant::now();
    let agreed = (config, &agreement, &problem);
    let mut sites =
        Sites { agreed, options, memory, hub, status, tell, statement, warnings: vec![] };
    let Drawn { plan, mut outcome, halved } = Drawn::by(config, plan, &mut sites)?;
    let Sites { memory, hub, statement, mut warnings, .. } = sites;
    let irregular = |text| Warning::new(Code::SiteIrregular, text);
    warnings.extend(status.warnings().into_iter().map(irregular));
    let dominates = |text| Warning::new(Code::SiteDominates, text);
    warnings.extend(status.alarms().into_iter().map(dominates));
    let (interrupted, seconds) = (outcome.interrupted, started.elapsed().as_secs_f64());
    if config.lp == Some(true) && !interrupted {
        match log_density(&problem, &outcome.draws, hub)? {
            Ok(lp) => outcome.statistics.insert(0, lp),
            Err(why) => warnings.push(Warning::new(Code::LpLeftOut, why)),
        }
    }
    if !interrupted {
        tell_draws(config, &outcome.draws, hub, status)?;
    }
    info!(seconds, iterations = outcome.iterations, "sampled");
    let run = memory.run.clone();
    status.note(Happened::Ended { early: outcome.interrupted });
    let audit = status.audited();
    Ok(Served { run, outcome, halved, seconds, problem, plan, statement, warnings, audit })
}

/// Hear what the sites are, and agree on what their columns mean.
fn settle(
    config: &Config,
    hub: &mut Hub,
    sites: &[String],
    status: &Status,
) -> Result<Agreed, ServeError> {
    let ask = Instruction::Introduce;
    let mut said = introductions(hub.ask_checked(&ask, introduces_itself())?, sites)?;
    status.stage("agreeing");
    let mut kinds = kinds(config, &said)?;
    if let Some(found) = &mut kinds {
        let ask = Instruction::Summarise { columns: found.specs().to_vec() };
        said = introductions(hub.ask_checked(&ask, introduces_itself())?, sites)?;
        let mut search = knots(config, found, &said)?;
        while let Some(ask) = search.ask() {
            let ask = Instruction::Knots(ask);
            let told = introductions(hub.ask_checked(&ask, introduces_itself())?, sites)?;
            hear_knots(config, &mut search, told)?;
        }
        let splines = search.end();
        found.agree_on_splines(splines);
    }
    let mut agreed = agree(config, kinds.as_ref(), &said)?;
    if config.privacy.as_ref().is_some_and(|privacy| privacy.secure_sum) {
        let told = hub.ask_checked(&Instruction::SumKey, tells_its_key())?;
        let keys = told.into_iter().zip(&agreed.rows).filter_map(|(tell, rows)| match tell {
            Tell::SumKey(key) => Some(SecureSite { rows: *rows, key }),
            _ => None,
        });
        agreed.agreement.secure = Some(keys.collect());
    }
    Ok(agreed)
}

/// How large a row of each site can be: by the config where rows are private, else as the site
/// says, where the model has a bound.
fn row_reaches(
    config: &Config,
    hub: &mut Hub,
    sites: &[String],
) -> Result<Vec<Option<RowReach>>, ServeError> {
    if config.privacy.is_some() {
        return Ok(vec![row_reach(config); sites.len()]);
    }
    let model = config.target.model.of_rows();
    if model.is_none_or(|model| model.row_gradient(1.0, None).is_err()) {
        return Ok(Vec::new());
    }
    let told = hub.ask_checked(&Instruction::RowReach, tells_its_reach())?;
    let read = |(tell, site): (Tell, &String)| match tell {
        Tell::RowReach(Some((gradient, loss))) => {
            info!(%site, gradient, loss, "says how large a row of its own can be");
            Some(RowReach { gradient, loss })
        }
        _ => None,
    };
    Ok(told.into_iter().zip(sites).map(read).collect())
}

/// Object to words that do not say how large a row can be.
fn tells_its_reach() -> Objects {
    Box::new(|site, told| match told {
        Tell::RowReach(None) => None,
        Tell::RowReach(Some((gradient, loss)))
            if (RowReach { gradient: *gradient, loss: *loss }).is_plausible() =>
        {
            None
        }
        _ => Some(format!("site \"{site}\" did not say how large a row of its own can be")),
    })
}

/// The site that a complaint is about: the first that it names. Others may be named to compare.
fn named(complaint: &str, sites: &[String]) -> Option<usize> {
    let first = |site: &String| {
        let quoted = [format!("\"{site}\""), format!("`{site}`")];
        quoted.iter().filter_map(|name| complaint.find(name)).min()
    };
    let found = sites.iter().enumerate().filter_map(|(client, site)| Some((first(site)?, client)));
    found.min().map(|(_, client)| client)
}

/// Object to words that are no introduction.
fn introduces_itself() -> Objects {
    Box::new(|site, told| match told {
        Tell::Introduction(_) => None,
        _ => Some(format!("site \"{site}\" did not introduce itself")),
    })
}

/// Object to words that are no key. Whether a key is a site's own, the other sites check.
fn tells_its_key() -> Objects {
    Box::new(|site, told| match told {
        Tell::SumKey(_) => None,
        _ => Some(format!("site \"{site}\" told no key of the secure sum")),
    })
}

/// What every site must state, and sign where it is known by a certificate.
#[derive(Clone)]
struct Signing {
    run: String,
    statement: Statement,
    authority: Option<CertificateDer<'static>>,
}

impl Signing {
    fn new(admission: &Admission, run: &str, statement: &Statement) -> Result<Signing, ServeError> {
        let authority = match admission {
            Admission::Certificates(papers) => {
                let pem = papers.authority_pem();
                let read = CertificateDer::from_pem_slice(pem.as_bytes());
                Some(read.map_err(|e| setup("ca.pem cannot be read", &e))?)
            }
            Admission::Word | Admission::Tickets(_) => None,
        };
        Ok(Signing { run: run.to_owned(), statement: statement.clone(), authority })
    }

    /// What is wrong with what a site states, if anything.
    fn objection(&self, site: &str, told: &Tell) -> Option<String> {
        let theirs = Statement::written(told.stated().unwrap_or_default());
        let named = format!("site \"{site}\"");
        if let Err(mismatch) = self.statement.check(&theirs, &named) {
            return Some(mismatch.to_string());
        }
        let authority = self.authority.as_ref()?;
        let Tell::Signed { signature, .. } = told else {
            return Some(format!("{named} did not sign the agreement"));
        };
        let (hash, now) = (self.statement.hash(), SystemTime::now());
        let checked = signature.check(&self.run, site, &hash, Some(authority), now);
        checked.err().map(|why| format!("{named} signed the agreement, and {why}"))
    }

    fn objects(&self) -> Objects {
        let signing = self.clone();
        Box::new(move |site, told| signing.objection(site, told))
    }

    /// Every site states the same, or the fields are named that it states otherwise; the audit log
    /// keeps it.
    fn check(&self, sites: &[String], stated: Vec<Tell>, status: &Status) -> Result<(), Lost> {
        let (sha256, text) = (self.statement.hash(), self.statement.text().to_owned());
        for (site, told) in sites.iter().zip(&stated) {
            self.objection(site, told).map_or(Ok(()), |why| Err(Lost(why)))?;
        }
        status.note(Happened::Agreed { sha256: sha256.clone(), statement: text });
        for (site, told) in sites.iter().zip(stated) {
            if let Tell::Signed { signature, .. } = told {
                let (site, sha256) = (site.clone(), sha256.clone());
                status.note(Happened::Signed { site, sha256, signature });
            }
        }
        Ok(())
    }
}

/// The sites of a run, which have agreed on what is sampled.
struct Sites<'a, T> {
    agreed: (&'a Config, &'a Agreement, &'a Problem),
    options: &'a ServeOptions,
    memory: &'a mut Memory,
    hub: &'a mut Hub,
    status: &'a Arc<Status>,
    tell: &'a mut T,
    /// All that the parties agreed on for the draws that are kept.
    statement: Statement,
    /// What people should know of these draws.
    warnings: Vec<Warning>,
}

impl<T: FnMut(Stage<'_>)> Venue for Sites<'_, T> {
    type Error = ServeError;

    fn sample(&mut self, plan: &Plan) -> Result<Outcome, ServeError> {
        let (outcome, statement, warnings) = self.chains(plan)?;
        if !plan.decision.halved {
            self.statement = statement;
            self.warnings.clear();
        }
        self.warnings.extend(warnings);
        Ok(outcome)
    }

    fn after(
        &mut self,
        plan: &Plan,
        found: Disappointment,
        outcome: &mut Outcome,
    ) -> Result<Option<Plan>, ServeError> {
        info!(sampler = plan.row.name, why = found.why, "the draws are not those promised");
        self.status.stage("surveying");
        let (config, _, problem) = self.agreed;
        Ok(Some(plan.after(found, config, problem, self.hub, &outcome.ledger)?))
    }
}

impl<T: FnMut(Stage<'_>)> Sites<'_, T> {
    /// Tell the sites what was decided, and sample: what was drawn, what all agreed on, and what
    /// people should know.
    fn chains(&mut self, plan: &Plan) -> Result<(Outcome, Statement, Vec<Warning>), ServeError> {
        let Sites { agreed, options, memory, hub, status, tell, .. } = self;
        let (config, agreement, problem) = *agreed;
        let sites = status.sites();
        tell(Stage::Planned(plan));
        let statement = statement::of_run(config, agreement, &sites, Some(&plan.decision));
        memory.keep(&statement)?;
        let text = statement.text().to_owned();
        let ask = Instruction::Decide { decision: plan.decision.clone(), statement: text };
        let signing = Signing::new(&options.admission, &memory.run, &statement)?;
        let stated = hub.ask_checked(&ask, signing.objects())?;
        signing.check(&sites, stated, status)?;
        status.agreed(statement.hash().to_string());
        tell(Stage::Stated(&statement));
        let run = &plan.length;
        status.sampling(run.total());
        let sinks = match &config.draws {
            None => Sinks::Memory,
            Some(path) => Sinks::File {
                path: path.clone(),
                parameters: problem.parameters.clone(),
                hold: MOST_HELD,
            },
        };
        let patience = config.sampler.round_deadline.map(Duration::from_secs_f64);
        let mut chains = Vec::new();
        for (index, sink) in sinks.open(run.chains, problem.target.dim())?.into_iter().enumerate() {
            let public = Seed::new(config.seed).chain(index as u32);
            // the server has no noise of its own but the public one
            let keys = Keys { public, private: public };
            let keys = if plan.decision.halved { keys.halved() } else { keys };
            let mut folder = memory.folder.as_ref().map(|disk| disk.path().to_path_buf());
            if let Some(folder) = &mut folder {
                folder.extend((plan.decision.attempt > 0).then(|| again(plan.decision.attempt)));
                folder.push(format!("chain-{}", index + 1));
            }
            let chain_log = ChainLog::new(sink, problem.target.dim());
            let served = ServedChain {
                plan,
                run,
                index,
                keys,
                statement: &statement,
                largest_norm: options.largest_norm,
                ahead: kept_answers(problem.target.dim()),
            };
            let chain = HostedChain::open(served, chain_log, folder.as_deref(), patience);
            chains.push(chain.map_err(Broken::Party)?);
        }
        let interrupted = match hub.carry(false, &mut chains) {
            Ok(()) => false,
            Err(Broken::Stopped) => true,
            Err(other) => return Err(other.into()),
        };
        <HostedChain<'_> as crate::party::Party>::measure(&chains, status);
        chains.iter_mut().try_for_each(HostedChain::rest).map_err(Broken::Party)?;
        status.stage("finishing");
        let mut rows = vec![0u64; run.chains];
        let mut warnings = Vec::new();
        if !interrupted {
            // Whoever is away when elastic chains end is not waited for.
            let most = patience.map(|round| round.max(LEAST_FAREWELL));
            let told = hub.ask_all_within(&Instruction::Finish, most)?;
            for (site, told) in sites.iter().zip(told) {
                if let Some(Tell::Finished(counts)) = told {
                    rows.iter_mut()
                        .zip(counts)
                        .for_each(|(sum, count)| *sum = sum.saturating_add(count));
                } else {
                    let says = format!(
                        "site \"{site}\" was away at the end: the gradients that it evaluated are \
                         not counted"
                    );
                    warnings.push(Warning::new(Code::SiteAway, says));
                }
            }
        }
        for site in status.view().sites.iter().filter(|site| site.absent > 0) {
            info!(site = %site.name, rounds = site.absent, late = site.late, returns = site.returns,
                "rounds were closed without it");
        }
        let chains = chains.into_iter().zip(rows).map(|(chain, rows)| chain.finish(rows)).collect();
        let outcome = gather(plan, run, &sinks, chains, interrupted)?;
        Ok((outcome, statement, warnings))
    }
}

/// Where the model has effects of groups, tell every site the draws, so that it draws those of its
/// own groups. Nothing is told of them.
fn tell_draws(
    config: &Config,
    draws: &Draws,
    hub: &mut Hub,
    status: &Status,
) -> Result<(), ServeError> {
    let has_groups = config.target.model.of_rows().is_some_and(|m| m.group_by().is_some());
    let rows: Vec<&[f64]> = draws.rows().collect();
    let d = draws.dim().max(1);
    if !has_groups || rows.len().saturating_mul(d) > MOST_TOLD {
        return Ok(());
    }
    // Whoever is away when elastic chains end is not waited for.
    let most = config.sampler.round_deadline.map(Duration::from_secs_f64);
    let most = most.map(|round| round.max(LEAST_FAREWELL));
    let (mut first, mut bytes) = (0, 0);
    let (of, length) = (rows.len() as u64, draws.length() as u64);
    for part in rows.chunks((TOLD_AT_ONCE / d).max(1)) {
        let ask = Instruction::Draws { first, of, length, draws: part.concat() };
        bytes += Frame::words(0, &ask).body.len() as u64;
        hub.ask_all_within(&ask, most)?;
        first += part.len() as u64;
    }
    info!(draws = of, bytes, "every site was told the draws, and draws its own effects");
    status.note(Happened::Told { draws: of, bytes });
    Ok(())
}

/// The log-density of every draw, from what the sites say of their part of it; a text says why it
/// was left out.
fn log_density(
    problem: &Problem,
    draws: &Draws,
    hub: &mut Hub,
) -> Result<Result<Statistic, String>, ServeError> {
    let (d, target) = (draws.dim().max(1), &problem.target);
    let inward = |draw: &[f64]| {
        let mut x = draw.to_vec();
        target.transforms.inward(&mut x);
        x
    };
    let rows: Vec<Vec<f64>> = draws.rows().map(inward).collect();
    if rows.len().saturating_mul(d) > MOST_TOLD {
        return Ok(Err(format!(
            "the log-density of the draws (lp) was not computed: {} draws of {d} parameters are \
             too many to send",
            rows.len()
        )));
    }
    let mut values = Vec::with_capacity(rows.len());
    for part in rows.chunks((TOLD_AT_ONCE / d).max(1)) {
        let told = hub.ask_all(&Instruction::Evaluate { draws: part.concat() })?;
        let own =
            |tell: Tell| if let Tell::Potentials(values) = tell { values } else { Vec::new() };
        let potentials: Vec<Vec<f64>> = told.into_iter().map(own).collect();
        if potentials.iter().any(|values| values.len() != part.len()) {
            return Ok(Err("the log-density of the draws (lp) was left out: a site answered for \
                another number of draws"
                .into()));
        }
        for (k, draw) in part.iter().enumerate() {
            let likelihood: f64 = potentials.iter().map(|values| values[k]).sum();
            values.push(-(likelihood + target.prior.value(draw)) / target.temperature);
        }
    }
    Ok(Ok(Statistic {
        name: "lp".into(),
        values: values.chunks(draws.length().max(1)).map(<[f64]>::to_vec).collect(),
    }))
}

/// The folder of the chains of another run of the same: where draws disappointed, or for the bias.
pub(crate) fn again(attempt: u32) -> String {
    format!("again-{attempt}")
}

fn introductions(told: Vec<Tell>, sites: &[String]) -> Result<Vec<Introduction>, Lost> {
    let own = |(tell, site): (Tell, &String)| match tell {
        Tell::Introduction(introduction) => Ok(introduction),
        _ => Err(Lost(format!("site \"{site}\" did not introduce itself"))),
    };
    told.into_iter().zip(sites).map(own).collect()
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], ServeError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| ServeError::Setup(format!("the system has no entropy: {error}")))?;
    Ok(bytes)
}

/// Ask a run to stop; what was drawn is kept.
pub fn stop(status: &Status) {
    status.progress.stop.store(true, Ordering::Relaxed);
}

/// Interrupt a server that keeps its state: its sites wait, and it goes on when it is started
/// again.
pub fn suspend(status: &Status) {
    status.suspend();
}

/// End a run for good, with the draws that it has.
pub fn end(status: &Status) {
    status.end();
}

/// How long the longest message of a site may be: a vector, a Hessian where surveys ask for one,
/// or a block of proposals.
fn most_bytes(row: &Row, dim: usize) -> usize {
    let survey = if dim <= MOST_WHITENED { dim * (dim + 16) } else { dim };
    let proposals = if row.family.needs_shape { MOST_POINTS as usize } else { 0 };
    let numbers = 2 * (dim + 1) + survey + proposals;
    8 * numbers + 1024
}
