//! Serve a run: wait for the sites, agree, survey, sample.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use consilience_core::protocol::{MOST_POINTS, Statement};
use consilience_core::rng::Seed;
use consilience_core::sampler::Keys;
use consilience_core::sampler::registry::Row;
use consilience_engine::chain_log::ChainLog;
use consilience_engine::conductor::Lost;
use consilience_engine::config::{Config, ConfigError, Seeds};
use consilience_engine::draws::{Draws, MOST_HELD, Sinks};
use consilience_engine::plan::{MOST_WHITENED, Plan, PlanError};
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record, Statistic};
use consilience_engine::run::{Outcome, RunError, gather};
use consilience_engine::site::{Agreement, Introduction, agree, kinds, names};
use consilience_engine::statement;
use consilience_engine::store::{Disk, Folder, ServedChain};
use consilience_engine::warnings::{Code, Warning};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tonic::transport::{Server, ServerTlsConfig, server::TcpIncoming};
use tracing::info;

use crate::certs::hex;
use crate::chain::HostedChain;
use crate::http;
use crate::hub::{Broken, Hub};
use crate::mailbox::Mailboxes;
pub use crate::service::Admission;
use crate::service::{Event, GrpcService};
use crate::status::Status;
use crate::talk::{Ask, PROTOCOL, Tell, VERSION, Welcome};

/// The largest norm that an answer may have, where nobody says otherwise.
pub const LARGEST_NORM: f64 = 1e12;
/// How many events may wait for the conductor; beyond, sites are held up.
const QUEUE: usize = 4096;
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

/// A run that was served.
#[derive(Debug)]
pub struct Served {
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
}

impl Served {
    /// What the run leaves behind, and what its parties agreed on.
    pub fn record(self, config: &Config, version: &str, created: String) -> (Record, Statement) {
        let Served { problem, plan, statement, outcome, halved, seconds, warnings } = self;
        let made = Circumstances { version: version.into(), created, seconds };
        let mut record = Record::new(made, config, &problem, &plan, outcome, None);
        if let Some(halved) = halved {
            record.halve(&plan, &halved);
        }
        record.warnings.extend(warnings);
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
    mut tell: impl FnMut(Stage<'_>),
    keep: impl FnOnce(Served) -> K,
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
    let hosting = Hosting::open(config, options)?;
    let service = GrpcService::new(
        status.sites(),
        options.admission.clone(),
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
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let listening = hosting.runtime.spawn(async move {
        let _ = builder
            .serve_with_incoming_shutdown(service, incoming, async {
                let _ = is_over.await;
            })
            .await;
    });
    let (kept, runtime) = hosting.serve(config, options, status, tell, keep)?;
    let _ = over.send(());
    let _ = runtime.block_on(async { tokio::time::timeout(LINGER, listening).await });
    runtime.shutdown_timeout(LINGER);
    kept
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
    let hosting = Hosting::open(config, options)?;
    mailboxes.open(hosting.sender.clone(), &hosting.most_message);
    let hosted = hosting.serve(config, options, status, tell, keep);
    mailboxes.close();
    let (kept, runtime) = hosted?;
    runtime.shutdown_timeout(LINGER);
    kept
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
        let memory = Memory::open(options.state.as_deref(), config)?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime =
            runtime.worker_threads(2).enable_all().build().map_err(|e| setup("no threads", &e))?;
        let (sender, events) = mpsc::channel(QUEUE);
        Ok(Hosting { runtime, memory, sender, events, most_message: Arc::default() })
    }

    /// Conduct the run, and let the sites go.
    fn serve<K>(
        self,
        config: &Config,
        options: &ServeOptions,
        status: &Arc<Status>,
        mut tell: impl FnMut(Stage<'_>),
        keep: impl FnOnce(Served) -> K,
    ) -> Result<(Result<K, ServeError>, tokio::runtime::Runtime), ServeError> {
        let Hosting { runtime, mut memory, sender, events, most_message } = self;
        drop(sender); // the service and the mailboxes have their own
        if let Some(address) = options.http {
            let bound = listened(&runtime, bind(address)?)
                .map_err(|e| setup(&format!("cannot listen on {address}"), &e))?;
            tell(Stage::Showing(bound.local_addr().unwrap_or(address)));
            runtime.spawn(http::show(bound, Arc::clone(status)));
        }
        let boot = u64::from_le_bytes(random::<8>()?);
        let welcome = |index: usize| Welcome {
            version: VERSION.into(),
            protocol: PROTOCOL.most, // what a site speaks is said when it comes
            run: memory.run.clone(),
            boot,
            config: config.shown_to(index),
            index,
            simulation: config.seeds == Seeds::Simulation,
        };
        let welcomes: Vec<Welcome> = (0..names(config)?.len()).map(welcome).collect();
        let mut hub = Hub::new(
            runtime.handle().clone(),
            events,
            welcomes,
            most_message,
            Arc::clone(status),
            options.deadline,
        );
        let served = conduct(config, options, &mut memory, &mut hub, status, &mut tell);
        let finished = served.as_ref().is_ok_and(|served| !served.outcome.interrupted);
        let kept = served.map(keep);
        hub.farewell(finished);
        Ok((kept, runtime))
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
    let mut said = introductions(hub.ask(&vec![Ask::Introduce; sites.len()])?, &sites)?;
    status.stage("agreeing");
    let kinds = kinds(config, &said)?;
    if let Some(kinds) = &kinds {
        let ask = Ask::Summarise { columns: kinds.specs().to_vec() };
        said = introductions(hub.ask(&vec![ask; sites.len()])?, &sites)?;
    }
    let agreed = agree(config, kinds.as_ref(), &said)?;
    let agreement = agreed.agreement.clone();
    let config = &agreement.settle(config);
    let problem = Problem::without_rows(config, agreed)?;
    // twice what numbers take, for the worst of codes
    hub.limit_messages(most_bytes(config.sampler.row, problem.target.dim()));
    tell(Stage::Agreed(&problem));
    let statement = statement::of_run(config, &agreement, &sites, None);
    let text = statement.text().to_owned();
    let ask = Ask::Agree { agreement: agreement.clone(), statement: text };
    check(&statement, &sites, hub.ask(&vec![ask; sites.len()])?)?;
    status.stage("surveying");
    let mut plan = Plan::conducted(config, &problem, hub)?;
    let started = Instant::now();
    let irregular = |text| Warning::new(Code::SiteIrregular, text);
    let (mut sampled, mut warnings);
    loop {
        let agreed = (config, &agreement, &problem);
        (sampled, warnings) = sample(agreed, &plan, options, memory, hub, status, tell)?;
        warnings.extend(status.warnings().into_iter().map(irregular));
        let Some(found) = plan.disappointment(&sampled.outcome) else { break };
        info!(sampler = plan.row.name, why = found.why, "the draws are not those promised");
        status.stage("surveying");
        plan = plan.after(found, config, &problem, hub, &sampled.outcome.ledger)?;
    }
    let Sampled { mut outcome, statement } = sampled;
    let mut halved = None;
    if let Some(halves) = plan.halves(config).filter(|_| !outcome.interrupted) {
        let agreed = (config, &agreement, &problem);
        let (sampled, more) = sample(agreed, &halves, options, memory, hub, status, tell)?;
        outcome.count(&sampled.outcome);
        halved = Some(sampled.outcome);
        warnings.extend(more);
    }
    let (interrupted, seconds) = (outcome.interrupted, started.elapsed().as_secs_f64());
    if config.lp == Some(true) && !interrupted {
        match log_density(&problem, &outcome.draws, hub)? {
            Ok(lp) => outcome.statistics.insert(0, lp),
            Err(why) => warnings.push(Warning::new(Code::LpLeftOut, why)),
        }
    }
    info!(seconds, iterations = outcome.iterations, "sampled");
    Ok(Served { outcome, halved, seconds, problem, plan, statement, warnings })
}

/// What was drawn by one sampler.
struct Sampled {
    outcome: Outcome,
    /// All that the parties agreed on.
    statement: Statement,
}

/// Tell the sites what was decided, and sample.
fn sample(
    (config, agreement, problem): (&Config, &Agreement, &Problem),
    plan: &Plan,
    options: &ServeOptions,
    memory: &mut Memory,
    hub: &mut Hub,
    status: &Arc<Status>,
    tell: &mut impl FnMut(Stage<'_>),
) -> Result<(Sampled, Vec<Warning>), ServeError> {
    let sites = status.sites();
    tell(Stage::Planned(plan));
    let statement = statement::of_run(config, agreement, &sites, Some(&plan.decision));
    memory.keep(&statement)?;
    let text = statement.text().to_owned();
    let ask = Ask::Decide { decision: plan.decision.clone(), statement: text };
    check(&statement, &sites, hub.ask(&vec![ask; sites.len()])?)?;
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
    status.stage("finishing");
    let mut rows = vec![0u64; run.chains];
    let mut warnings = Vec::new();
    if !interrupted {
        // Whoever is away when elastic chains end is not waited for.
        let most = patience.map(|round| round.max(LEAST_FAREWELL));
        for (site, told) in sites.iter().zip(hub.ask_within(&vec![Ask::Finish; sites.len()], most)?)
        {
            if let Some(Tell::Finished(counts)) = told {
                rows.iter_mut()
                    .zip(counts)
                    .for_each(|(sum, count)| *sum = sum.saturating_add(count));
            } else {
                let says = format!(
                    "site \"{site}\" was away at the end: the gradients that it evaluated are not \
                     counted"
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
    Ok((Sampled { outcome, statement }, warnings))
}

/// The log-density of every draw, from what the sites say of their part of it; a text says why it
/// was left out.
fn log_density(
    problem: &Problem,
    draws: &Draws,
    hub: &mut Hub,
) -> Result<Result<Statistic, String>, ServeError> {
    let (d, target) = (draws.dim().max(1), &problem.target);
    let rows: Vec<&[f64]> = draws.rows().collect();
    if rows.len().saturating_mul(d) > MOST_TOLD {
        return Ok(Err(format!(
            "the log-density of the draws (lp) was not computed: {} draws of {d} parameters are \
             too many to send",
            rows.len()
        )));
    }
    let mut values = Vec::with_capacity(rows.len());
    for part in rows.chunks((TOLD_AT_ONCE / d).max(1)) {
        let told = hub.ask_all(&Ask::Evaluate { draws: part.concat() })?;
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

/// Every site states the same, or the fields are named that it states otherwise.
fn check(statement: &Statement, sites: &[String], stated: Vec<Tell>) -> Result<(), Lost> {
    for (site, told) in sites.iter().zip(stated) {
        let theirs = if let Tell::Stated(text) = told { text } else { String::new() };
        statement
            .check(&Statement::written(&theirs), &format!("site \"{site}\""))
            .map_err(|mismatch| Lost(mismatch.to_string()))?;
    }
    Ok(())
}

fn introductions(told: Vec<Tell>, sites: &[String]) -> Result<Vec<Introduction>, Lost> {
    let own = |(tell, site): (Tell, &String)| match tell {
        Tell::Introduction(introduction) => Ok(introduction),
        _ => Err(Lost(format!("site \"{site}\" did not introduce itself"))),
    };
    told.into_iter().zip(sites).map(own).collect()
}

/// What a server must remember from one start to the next.
struct Memory {
    run: String,
    /// Held as long as the server runs: a second one is refused.
    folder: Option<Folder>,
}

#[derive(Serialize, Deserialize)]
struct RunFile {
    run: String,
    config: String,
}

impl Memory {
    fn open(folder: Option<&Path>, config: &Config) -> Result<Memory, ServeError> {
        const FILE: &str = "run.json";
        let fresh = hex(&random::<16>()?);
        let Some(folder) = folder else { return Ok(Memory { run: fresh, folder: None }) };
        let failed = |error: &dyn std::fmt::Display| {
            ServeError::State(format!("{}: {error}", folder.join(FILE).display()))
        };
        let mut disk = Folder::open(folder).map_err(|e| failed(&e))?;
        let shown = config.shown_to(usize::MAX);
        let run = match disk.read(FILE).map_err(|e| failed(&e))? {
            Some(bytes) => {
                let known: RunFile = serde_json::from_slice(&bytes).map_err(|e| failed(&e))?;
                if known.config != shown {
                    return Err(failed(
                        &"this is the state of another config: restore the config, or use another \
                            folder for another run",
                    ));
                }
                known.run
            }
            None => {
                let known = RunFile { run: fresh, config: shown };
                let bytes = serde_json::to_vec(&known).map_err(|e| failed(&e))?;
                disk.replace(FILE, &bytes).map_err(|e| failed(&e))?;
                known.run
            }
        };
        Ok(Memory { run, folder: Some(disk) })
    }

    /// Keep what all agreed on beside the chains.
    fn keep(&mut self, statement: &Statement) -> Result<(), ServeError> {
        let Some(disk) = &mut self.folder else { return Ok(()) };
        disk.replace(STATEMENT, statement.text().as_bytes())
            .map_err(|error| ServeError::State(format!("{STATEMENT}: {error}")))
    }
}

fn random<const N: usize>() -> Result<[u8; N], ServeError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| ServeError::Setup(format!("the system has no entropy: {error}")))?;
    Ok(bytes)
}

/// Ask a run to stop; what was drawn is kept.
pub fn stop(status: &Status) {
    status.progress.stop.store(true, Ordering::Relaxed);
}

/// How long the longest message of a site may be: a vector, a Hessian where surveys ask for one,
/// or a block of proposals.
fn most_bytes(row: &Row, dim: usize) -> usize {
    let survey = if dim <= MOST_WHITENED { dim * (dim + 16) } else { dim };
    let proposals = if row.family.needs_shape { MOST_POINTS as usize } else { 0 };
    let numbers = 2 * (dim + 1) + survey + proposals;
    8 * numbers + 1024
}
