//! Track how a run stands: who is there, who is slow, how far the chains are, how much was sent and
//! refused.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use consilience_engine::run::Progress;

use crate::audit::{Audit, Happened};

/// How many refusals are kept by name.
const MOST_NAMED: usize = 64;
/// How long a reason is that is shown.
const MOST_SHOWN: usize = 600;
/// Of how many round trips quantiles are taken: the last ones.
const RECENT: usize = 256;
/// How many points the history of the rate has at most; then neighbours are merged.
const POINTS: usize = 120;

/// What is shown while a run goes on.
#[derive(Debug)]
pub struct Status {
    /// How far it is, and whether it shall stop.
    pub progress: Arc<Progress>,
    /// Whether the server shall leave its sites waiting.
    suspended: AtomicBool,
    /// Whether the run shall be ended for good.
    ended: AtomicBool,
    /// How often the run was paused or a site left out: counted when it is done.
    orders: AtomicU64,
    /// How many sites are left out.
    left_out: AtomicUsize,
    /// Whether the run goes on without sites that stay away.
    elastic: AtomicBool,
    inner: Mutex<Inner>,
    /// What happened, for those who ask later.
    audit: Mutex<Audit>,
}

#[derive(Debug)]
struct Inner {
    started: Instant,
    stage: String,
    total: u64,
    sampling: Option<Instant>,
    rounds: u64,
    /// The largest R-hat and the smallest effective sample size.
    convergence: Option<(f64, f64)>,
    /// What the sampler says of its last draws, by name.
    recently: Vec<(&'static str, f64)>,
    bits: (u64, u64),
    refusals: BTreeMap<String, u64>,
    /// By site.
    warnings: BTreeMap<usize, String>,
    /// Whose answers dominate or drift: what was once said stays.
    alarms: BTreeMap<usize, String>,
    sites: Vec<SiteState>,
    /// Since when it is paused.
    paused: Option<Blocked>,
    /// When it was last let go on.
    resumed: Option<SystemTime>,
    /// Who is awaited, since when, and how that is.
    waits: Vec<String>,
    run: String,
    agreement: Option<String>,
    history: History,
    /// Where an operator reaches the server, and by what it is known.
    listening: Option<Listening>,
}

/// Where an operator reaches a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    /// Whether the operator needs its certificate.
    pub(crate) certificates: bool,
}

impl Listening {
    /// The command that reaches it. `HOST` stands for a name that only its users know.
    fn command(self) -> String {
        let Listening { address, certificates } = self;
        let server = if address.ip().is_unspecified() {
            format!("HOST:{}", address.port())
        } else {
            address.to_string()
        };
        let known = if certificates { "--certs operator" } else { "--insecure-loopback" };
        format!("consilience control --server {server} {known}")
    }
}

/// A word of a command as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('-') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What an operator can order while a run stands like this: what it does, and the command.
fn orders(inner: &Inner, elastic: bool) -> Vec<(String, String)> {
    let Some(command) = inner.listening.map(Listening::command) else { return Vec::new() };
    let mut orders = Vec::new();
    let mut add = |says: String, order: &str| orders.push((says, format!("{command} {order}")));
    if inner.paused.is_some() {
        add("let the run go on".into(), "resume");
    } else {
        add("hold the run: the sites wait".into(), "pause");
    }
    for site in inner.sites.iter().filter(|site| elastic && !site.dropped) {
        let blocks = site.blocked.as_ref().is_some_and(|blocked| !blocked.lifted);
        if blocks || !site.connected {
            let order = format!("drop -- {}", quoted(&site.name));
            add(format!("go on without {}", site.name), &order);
        }
    }
    add("end the run now, with the draws so far".into(), "end");
    orders
}

/// How many exchanges a second there were, from the start of sampling on.
#[derive(Debug)]
struct History {
    /// How many looks make a point, and how many were taken.
    span: u32,
    looks: u32,
    since: Instant,
    rounds: u64,
    /// Each over the same time: its seconds and its exchanges.
    points: Vec<(f64, u64)>,
}

impl History {
    fn new() -> History {
        History { span: 1, looks: 0, since: Instant::now(), rounds: 0, points: Vec::new() }
    }

    /// There were so many exchanges by now.
    fn look(&mut self, rounds: u64) {
        self.looks += 1;
        if self.looks < self.span {
            return;
        }
        self.points.push((self.since.elapsed().as_secs_f64(), rounds - self.rounds));
        (self.looks, self.since, self.rounds) = (0, Instant::now(), rounds);
        if self.points.len() == POINTS {
            let both = |pair: &[(f64, u64)]| (pair[0].0 + pair[1].0, pair[0].1 + pair[1].1);
            self.points = self.points.chunks_exact(2).map(both).collect();
            self.span *= 2;
        }
    }

    fn rates(&self) -> Vec<f64> {
        self.points.iter().map(|(seconds, rounds)| *rounds as f64 / seconds.max(1e-9)).collect()
    }
}

#[derive(Clone, Debug)]
struct SiteState {
    name: String,
    connected: bool,
    asked: Option<Instant>,
    owed: u64,
    answers: u64,
    seconds: f64,
    /// The last round trips, and where the next is put.
    recent: Vec<f64>,
    bytes: (u64, u64),
    refusals: u64,
    absent: u64,
    late: u64,
    influence: Option<f64>,
    /// How often it connected.
    came: u64,
    blocked: Option<Blocked>,
    /// Whether the operator goes on without it.
    dropped: bool,
}

/// Why a site holds up the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Since when.
    pub since: SystemTime,
    /// What is wrong.
    pub why: String,
    /// Whether it has taken part again since.
    lifted: bool,
}

impl Blocked {
    /// The hour and minute since when, in UTC.
    pub fn clock(&self) -> String {
        clock(self.since)
    }
}

/// The hour and minute of a time, in UTC.
pub(crate) fn clock(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let minutes = seconds / 60 % (24 * 60);
    format!("{:02}:{:02} UTC", minutes / 60, minutes % 60)
}

/// One site as it is shown.
#[derive(Clone, Debug)]
pub struct SiteView {
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub connected: bool,
    /// How many answers it gave.
    pub answers: u64,
    /// How long it takes for one, on average, in seconds.
    pub latency: f64,
    /// The median of its last answers, and what nine and 99 of a hundred were within.
    pub quantiles: [f64; 3],
    /// How much its answers dominate those of the others, where that is known: from 1 on there is
    /// an alarm ([`crate::alarm`]).
    pub influence: Option<f64>,
    /// Bytes that it sent, and that it was sent.
    pub bytes: (u64, u64),
    /// How many of its messages were refused.
    pub refusals: u64,
    /// Whether an answer of it is awaited.
    pub owes: bool,
    /// How many rounds were closed without it.
    pub absent: u64,
    /// How many of its answers came after that.
    pub late: u64,
    /// How often it came back.
    pub returns: u64,
    /// Why it holds up the run, if it does.
    pub blocked: Option<Blocked>,
    /// Whether the operator goes on without it.
    pub dropped: bool,
}

/// The run as it is shown.
#[derive(Clone, Debug)]
pub struct View {
    /// The name of the run; empty before there is one.
    pub run: String,
    /// The SHA-256 of what all agreed on, once they have.
    pub agreement: Option<String>,
    /// What is being done.
    pub stage: String,
    /// Iterations done, of all chains, and in all.
    pub done: (u64, u64),
    /// Exchanges a second since sampling began.
    pub rate: f64,
    /// Exchanges so far.
    pub rounds: u64,
    /// Seconds until the end, if they can be told.
    pub left: Option<f64>,
    /// Seconds since the start.
    pub seconds: f64,
    /// The largest R-hat so far.
    pub worst_rhat: Option<f64>,
    /// The smallest effective sample size so far.
    pub least_ess: Option<f64>,
    /// What the sampler says of its last draws, such as how many proposals it accepted, by name.
    pub recently: Vec<(&'static str, f64)>,
    /// Exchanges a second from the start of sampling on: one number for every so many seconds.
    pub history: (f64, Vec<f64>),
    /// Bits up and down, of all chains.
    pub bits: (u64, u64),
    /// The sites.
    pub sites: Vec<SiteView>,
    /// What was refused, and how often.
    pub refusals: Vec<(String, u64)>,
    /// What people should know of who stays away, and of whose answers dominate.
    pub warnings: Vec<String>,
    /// Who is named in an alarm.
    pub alarms: Vec<String>,
    /// Who is awaited and has said nothing for long: one sentence each.
    pub waits: Vec<String>,
    /// Who or what holds up the run, since when and why: one sentence each.
    pub blocked: Vec<String>,
    /// What an operator can order now: what it does, and the command that orders it.
    pub orders: Vec<(String, String)>,
}

impl Status {
    /// The status of a run of these sites.
    pub fn new(sites: &[String], progress: Arc<Progress>) -> Status {
        let site = |name: &String| SiteState {
            name: name.clone(),
            connected: false,
            asked: None,
            owed: 0,
            answers: 0,
            seconds: 0.0,
            recent: Vec::new(),
            bytes: (0, 0),
            refusals: 0,
            absent: 0,
            late: 0,
            influence: None,
            came: 0,
            blocked: None,
            dropped: false,
        };
        let inner = Inner {
            started: Instant::now(),
            stage: "waiting for the sites".into(),
            total: 0,
            sampling: None,
            rounds: 0,
            convergence: None,
            recently: Vec::new(),
            bits: (0, 0),
            refusals: BTreeMap::new(),
            warnings: BTreeMap::new(),
            alarms: BTreeMap::new(),
            sites: sites.iter().map(site).collect(),
            paused: None,
            resumed: None,
            waits: Vec::new(),
            run: String::new(),
            agreement: None,
            history: History::new(),
            listening: None,
        };
        Status {
            progress,
            suspended: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            orders: AtomicU64::new(0),
            left_out: AtomicUsize::new(0),
            elastic: AtomicBool::new(false),
            inner: Mutex::new(inner),
            audit: Mutex::new(Audit::default()),
        }
    }

    pub(crate) fn suspend(&self) {
        self.suspended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the server is interrupted.
    pub fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Relaxed)
    }

    /// How often the run was paused or a site left out so far.
    pub(crate) fn orders(&self) -> u64 {
        self.orders.load(Ordering::Acquire)
    }

    /// How many sites the operator goes on without.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out.load(Ordering::Acquire)
    }

    /// Whether the run goes on without sites that stay away.
    pub fn is_elastic(&self) -> bool {
        self.elastic.load(Ordering::Relaxed)
    }

    pub(crate) fn set_elastic(&self, elastic: bool) {
        self.elastic.store(elastic, Ordering::Relaxed);
    }

    /// Whether the run shall end early.
    pub fn is_stopped(&self) -> bool {
        self.progress.stop.load(Ordering::Relaxed)
    }

    /// Whether it shall do so for good.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // numbers to look at: none can be half written
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn audit(&self) -> MutexGuard<'_, Audit> {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Write the audit log here from now on. Alarms that stand in it are still given.
    pub(crate) fn keep_audit(&self, audit: Audit) {
        let mut inner = self.lock();
        for (site, says) in audit.alarms() {
            if let Some(client) = inner.sites.iter().position(|known| known.name == site) {
                inner.alarms.insert(client, says);
            }
        }
        drop(inner);
        *self.audit() = audit;
    }

    /// Let go of the audit log's folder.
    pub(crate) fn close_audit(&self) {
        *self.audit() = Audit::default();
    }

    /// Write something down in the audit log.
    pub(crate) fn note(&self, happened: Happened) {
        if let Err(error) = self.audit().note(happened, SystemTime::now()) {
            tracing::warn!(%error, "the audit log cannot be written");
        }
    }

    /// The audit log so far.
    pub(crate) fn audited(&self) -> String {
        self.audit().text().to_owned()
    }

    /// The sites' names.
    pub fn sites(&self) -> Vec<String> {
        self.lock().sites.iter().map(|site| site.name.clone()).collect()
    }

    /// What is being done now.
    pub fn stage(&self, stage: &str) {
        self.lock().stage = stage.to_owned();
    }

    /// Sampling begins, and has so many iterations.
    pub fn sampling(&self, total: u64) {
        let mut inner = self.lock();
        inner.stage = "sampling".into();
        inner.total = total;
        inner.sampling = Some(Instant::now());
        inner.history = History { rounds: inner.rounds, ..History::new() };
    }

    /// An operator reaches the server here.
    pub(crate) fn listens(&self, listening: Listening) {
        self.lock().listening = Some(listening);
    }

    /// Which run this is.
    pub(crate) fn is_run(&self, name: &str) {
        name.clone_into(&mut self.lock().run);
    }

    /// All agreed on what has this SHA-256.
    pub(crate) fn agreed(&self, hash: String) {
        self.lock().agreement = Some(hash);
    }

    /// Who is awaited for long now: which site, since when, and how that is.
    pub(crate) fn waits_for(&self, awaited: &[(usize, SystemTime, &str)]) {
        let mut inner = self.lock();
        let sentence = |(site, since, how): &(usize, SystemTime, &str)| {
            format!("waiting for {} since {}: it {how}", inner.sites[*site].name, clock(*since))
        };
        inner.waits = awaited.iter().map(sentence).collect();
    }

    /// A site is there or not; `true`: it has been there before.
    pub(crate) fn connected(&self, client: usize, connected: bool) -> bool {
        let mut inner = self.lock();
        let site = &mut inner.sites[client];
        site.connected = connected;
        (site.asked, site.owed) = (None, 0);
        site.came += u64::from(connected);
        let (back, name) = (site.came > 1, site.name.clone());
        drop(inner);
        if connected {
            self.note(Happened::Joined { site: name });
        }
        back
    }

    /// A site cannot go on, and this is why. The same trouble again is the old trouble.
    pub(crate) fn block(&self, client: usize, why: &str) {
        let why: String = why.chars().take(MOST_SHOWN).collect();
        let mut inner = self.lock();
        let site = &mut inner.sites[client];
        let happened = Happened::Blocked { site: site.name.clone(), why: why.clone() };
        match &mut site.blocked {
            Some(known) if known.why == why => known.lifted = false,
            blocked => *blocked = Some(Blocked { since: SystemTime::now(), why, lifted: false }),
        }
        drop(inner);
        self.note(happened);
    }

    /// A site takes part again.
    pub(crate) fn unblock(&self, client: usize) {
        if let Some(blocked) = &mut self.lock().sites[client].blocked {
            blocked.lifted = true;
        }
    }

    /// Why a site cannot go on, if so.
    pub(crate) fn blocked(&self, client: usize) -> Option<Blocked> {
        self.lock().sites[client].blocked.clone().filter(|blocked| !blocked.lifted)
    }

    /// Hold the run until [`Status::resume`]: no site is let in.
    pub fn pause(&self) {
        self.pause_since("the operator paused the run".to_owned());
    }

    fn pause_since(&self, why: String) {
        let since = SystemTime::now();
        self.lock().paused.get_or_insert(Blocked { since, why, lifted: false });
        self.orders.fetch_add(1, Ordering::Release);
    }

    /// Hold the run where a site has blocked it for longer than this, and say which; what is said.
    pub(crate) fn pause_after(&self, most: Duration) -> Option<String> {
        let inner = self.lock();
        if inner.paused.is_some() {
            return None;
        }
        let over = |site: &SiteState| {
            let blocked = site.blocked.as_ref().filter(|blocked| !blocked.lifted)?;
            let since = inner.resumed.map_or(blocked.since, |resumed| resumed.max(blocked.since));
            let so_long = since.elapsed().unwrap_or_default() >= most;
            (so_long && !site.dropped).then(|| (site.name.clone(), blocked.why.clone()))
        };
        let (site, why) = inner.sites.iter().find_map(over)?;
        drop(inner);
        let why = format!(
            "site \"{site}\" has blocked the run for {} seconds: {why}. When it is mended, let the \
             run go on with `consilience control resume`; or end it",
            most.as_secs()
        );
        self.pause_since(why.clone());
        self.note(Happened::Ordered { order: format!("Pause, by the server: {why}") });
        Some(why)
    }

    /// Let a run go on.
    pub fn resume(&self) {
        let mut inner = self.lock();
        inner.paused = None;
        inner.resumed = Some(SystemTime::now());
    }

    /// Since when the run is paused, if it is.
    pub fn paused(&self) -> Option<Blocked> {
        self.lock().paused.clone()
    }

    /// Go on without a site; `false`: there is no such site.
    pub(crate) fn leave_out(&self, name: &str) -> bool {
        let mut inner = self.lock();
        let Some(site) = inner.sites.iter_mut().find(|site| site.name == name) else {
            return false;
        };
        let before = std::mem::replace(&mut site.dropped, true);
        drop(inner);
        self.left_out.fetch_add(usize::from(!before), Ordering::Release);
        self.orders.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether the operator goes on without a site.
    pub(crate) fn is_left_out(&self, client: usize) -> bool {
        self.lock().sites[client].dropped
    }

    /// A round was closed without a site.
    pub(crate) fn absent(&self, client: usize) {
        self.lock().sites[client].absent += 1;
    }

    /// A site answered a round that was closed without it.
    pub(crate) fn late(&self, client: usize) {
        let mut inner = self.lock();
        let site = &mut inner.sites[client];
        site.late += 1;
        site.owed = site.owed.saturating_sub(1);
        site.asked = None;
        let name = format!(
            "an answer of site \"{}\" came too late: its round was closed without it",
            site.name
        );
        *inner.refusals.entry(name).or_insert(0) += 1;
    }

    /// These sites are there more or less often than was stated. Each is named in the log when it
    /// is first seen.
    pub(crate) fn irregular(&self, found: &[(usize, String)]) {
        let mut inner = self.lock();
        for (client, text) in found {
            if !inner.warnings.contains_key(client) {
                tracing::warn!("{text}");
            }
        }
        inner.warnings = found.iter().cloned().collect();
    }

    /// How large the answers of each site are beside those of the others, and who is too large.
    /// Each is named in the log when it is first seen.
    pub(crate) fn dominated(&self, influences: &[f64], found: &[(usize, String)]) {
        let mut inner = self.lock();
        for (site, influence) in inner.sites.iter_mut().zip(influences) {
            site.influence = Some(*influence);
        }
        let mut news = Vec::new();
        for (client, text) in found {
            if inner.alarms.insert(*client, text.clone()).is_none() {
                tracing::warn!("{text}");
                let site = inner.sites[*client].name.clone();
                news.push(Happened::Alarm { site, says: text.clone() });
            }
        }
        drop(inner);
        news.into_iter().for_each(|happened| self.note(happened));
    }

    /// Whose answers dominate or drift.
    pub fn alarms(&self) -> Vec<String> {
        self.lock().alarms.values().cloned().collect()
    }

    /// What people should know of who stays away.
    pub fn warnings(&self) -> Vec<String> {
        self.lock().warnings.values().cloned().collect()
    }

    pub(crate) fn asked(&self, client: usize, bytes: usize) {
        let site = &mut self.lock().sites[client];
        site.bytes.1 += bytes as u64;
        site.owed += 1;
        site.asked.get_or_insert_with(Instant::now);
    }

    pub(crate) fn heard(&self, client: usize, bytes: usize) {
        let site = &mut self.lock().sites[client];
        site.bytes.0 += bytes as u64;
        site.answers += 1;
        site.owed = site.owed.saturating_sub(1);
        if let Some(asked) = site.asked.take() {
            let seconds = asked.elapsed().as_secs_f64();
            site.seconds += seconds;
            if site.recent.len() < RECENT {
                site.recent.push(seconds);
            } else {
                site.recent[site.answers as usize % RECENT] = seconds;
            }
        }
        if site.owed > 0 {
            site.asked = Some(Instant::now());
        }
    }

    pub(crate) fn owes(&self, client: usize) -> bool {
        self.lock().sites[client].owed > 0
    }

    /// Somebody was refused.
    pub fn refused(&self, client: Option<usize>, why: &str) {
        let mut inner = self.lock();
        if let Some(client) = client {
            inner.sites[client].refusals += 1;
        }
        let name: String = why.chars().take(200).collect();
        let site = client.map(|client| inner.sites[client].name.clone());
        let happened = Happened::Refused { site, why: name.clone() };
        if inner.refusals.len() < MOST_NAMED || inner.refusals.contains_key(&name) {
            *inner.refusals.entry(name).or_insert(0) += 1;
        } else {
            *inner.refusals.entry("others".into()).or_insert(0) += 1;
        }
        drop(inner);
        self.note(happened);
    }

    /// An exchange of a chain is complete; in all chains sent so many bits.
    pub fn exchanged(&self) {
        self.lock().rounds += 1;
    }

    /// What the chains sent, how well they agree, and what the sampler says of its last draws.
    pub fn measured(
        &self,
        bits: (u64, u64),
        convergence: Option<(f64, f64)>,
        recently: Vec<(&'static str, f64)>,
    ) {
        let mut inner = self.lock();
        inner.bits = bits;
        inner.convergence = convergence.or(inner.convergence);
        inner.recently = recently;
        let rounds = inner.rounds;
        inner.history.look(rounds);
    }

    /// The last round trips of each site, in seconds, in no order.
    pub fn round_trips(&self) -> Vec<Vec<f64>> {
        self.lock().sites.iter().map(|site| site.recent.clone()).collect()
    }

    /// How it stands now.
    pub fn view(&self) -> View {
        let done = self.progress.done.load(Ordering::Relaxed);
        let inner = self.lock();
        let sampled = inner.sampling.map(|since| since.elapsed().as_secs_f64());
        let share = done as f64 / inner.total.max(1) as f64;
        let site = |site: &SiteState| SiteView {
            name: site.name.clone(),
            connected: site.connected,
            answers: site.answers,
            latency: site.seconds / site.answers.max(1) as f64,
            quantiles: quantiles(&site.recent),
            influence: site.influence,
            bytes: site.bytes,
            refusals: site.refusals,
            owes: site.owed > 0,
            absent: site.absent,
            late: site.late,
            returns: site.came.saturating_sub(1),
            blocked: site.blocked.clone().filter(|blocked| !blocked.lifted),
            dropped: site.dropped,
        };
        let mut blocked = Vec::new();
        if let Some(paused) = &inner.paused {
            blocked.push(format!("paused since {}: {}", paused.clock(), paused.why));
        }
        for site in &inner.sites {
            if let Some(found) = site.blocked.as_ref().filter(|blocked| !blocked.lifted) {
                let (name, since, why) = (&site.name, found.clock(), &found.why);
                blocked.push(format!("blocked by {name} since {since}: {why}"));
            }
        }
        let rates = inner.history.rates();
        let each = inner.history.points.iter().map(|(seconds, _)| seconds).sum::<f64>()
            / rates.len().max(1) as f64;
        View {
            run: inner.run.clone(),
            agreement: inner.agreement.clone(),
            stage: inner.stage.clone(),
            done: (done, inner.total),
            rate: sampled.map_or(0.0, |seconds| inner.rounds as f64 / seconds.max(1e-9)),
            rounds: inner.rounds,
            left: sampled.filter(|_| share > 0.0).map(|seconds| seconds * (1.0 - share) / share),
            seconds: inner.started.elapsed().as_secs_f64(),
            worst_rhat: inner.convergence.map(|(rhat, _)| rhat),
            least_ess: inner.convergence.map(|(_, ess)| ess),
            recently: inner.recently.clone(),
            history: (each, rates),
            bits: inner.bits,
            sites: inner.sites.iter().map(site).collect(),
            refusals: inner.refusals.iter().map(|(why, count)| (why.clone(), *count)).collect(),
            warnings: inner.warnings.values().chain(inner.alarms.values()).cloned().collect(),
            alarms: inner
                .alarms
                .keys()
                .filter_map(|site| Some(inner.sites.get(*site)?.name.clone()))
                .collect(),
            waits: inner.waits.clone(),
            blocked,
            orders: orders(&inner, self.is_elastic()),
        }
    }
}

/// The median, and what nine and 99 of a hundred are within; 0 of nothing.
fn quantiles(recent: &[f64]) -> [f64; 3] {
    let mut sorted = recent.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    [at(0.5), at(0.9), at(0.99)]
}

impl View {
    /// The slowest of the sites that answer, with its seconds for an answer.
    pub fn slowest(&self) -> Option<(&str, f64)> {
        let answering = self.sites.iter().filter(|site| site.answers > 0);
        answering
            .max_by(|a, b| a.latency.total_cmp(&b.latency))
            .map(|site| (site.name.as_str(), site.latency))
    }

    /// One line for a log or a terminal.
    pub fn line(&self) -> String {
        let away: Vec<&str> = self
            .sites
            .iter()
            .filter(|site| !site.connected)
            .map(|site| site.name.as_str())
            .collect();
        let mut line = format!(
            "{}: {} of {} iterations, {:.0} rounds/s",
            self.stage, self.done.0, self.done.1, self.rate
        );
        if let Some(left) = self.left {
            let _ = write!(line, ", {left:.0} s left");
        }
        if let Some(rhat) = self.worst_rhat {
            let _ = write!(line, ", R-hat {rhat:.3}");
        }
        if let Some(ess) = self.least_ess {
            let _ = write!(line, ", {ess:.0} effective draws");
        }
        let _ = write!(line, ", {} kB up, {} kB down", self.bits.0 / 8000, self.bits.1 / 8000);
        let _ = write!(
            line,
            ", {} of {} sites connected",
            self.sites.len() - away.len(),
            self.sites.len()
        );
        if !away.is_empty() {
            let _ = write!(line, " (away: {})", away.join(", "));
        }
        if let Some((site, seconds)) = self.slowest() {
            let _ = write!(line, ", slowest {site} ({:.2} ms)", 1e3 * seconds);
        }
        for held in self.blocked.iter().chain(&self.waits) {
            let _ = write!(line, "; {held}");
        }
        for site in &self.alarms {
            let _ = write!(line, "; ALARM: the answers of {site} dominate or drift");
        }
        line
    }

    /// Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let mut gauge = |name: &str, kind: &str, says: &str, samples: &[(String, f64)]| {
            let _ =
                writeln!(out, "# HELP consilience_{name} {says}\n# TYPE consilience_{name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(out, "consilience_{name}{labels} {value}");
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        gauge(
            "iterations_done",
            "counter",
            "Langevin iterations of all chains so far.",
            &one(self.done.0 as f64),
        );
        gauge(
            "iterations",
            "gauge",
            "Langevin iterations of all chains in the end.",
            &one(self.done.1 as f64),
        );
        gauge(
            "rounds_total",
            "counter",
            "Exchanges of all chains so far.",
            &one(self.rounds as f64),
        );
        gauge(
            "rounds_per_second",
            "gauge",
            "Exchanges a second since sampling began.",
            &one(self.rate),
        );
        gauge("uptime_seconds", "gauge", "Seconds since the server started.", &one(self.seconds));
        gauge(
            "bits_total",
            "counter",
            "Bits of the chains' messages.",
            &[
                ("{direction=\"up\"}".into(), self.bits.0 as f64),
                ("{direction=\"down\"}".into(), self.bits.1 as f64),
            ],
        );
        if let Some(left) = self.left {
            gauge("seconds_left", "gauge", "Estimated seconds until the end.", &one(left));
        }
        if let Some(rhat) = self.worst_rhat {
            gauge("rhat_max", "gauge", "The largest R-hat of the draws so far.", &one(rhat));
        }
        if let Some(ess) = self.least_ess {
            let says = "The smallest effective sample size of the draws so far.";
            gauge("ess_min", "gauge", says, &one(ess));
        }
        let each = |read: fn(&SiteView) -> f64| -> Vec<(String, f64)> {
            self.sites
                .iter()
                .map(|site| (format!("{{site=\"{}\"}}", label(&site.name)), read(site)))
                .collect()
        };
        gauge(
            "site_connected",
            "gauge",
            "Whether a site is connected.",
            &each(|s| f64::from(u8::from(s.connected))),
        );
        gauge(
            "site_blocked",
            "gauge",
            "Whether a site holds up the run.",
            &each(|s| f64::from(u8::from(s.blocked.is_some()))),
        );
        gauge(
            "site_influence",
            "gauge",
            "How much a site's answers dominate the others': an alarm from 1 on.",
            &each(|s| s.influence.unwrap_or(f64::NAN)),
        );
        let alarmed = |site: &SiteView| self.alarms.contains(&site.name);
        let alarms: Vec<(String, f64)> = self
            .sites
            .iter()
            .map(|s| (format!("{{site=\"{}\"}}", label(&s.name)), f64::from(alarmed(s))))
            .collect();
        gauge("site_alarm", "gauge", "Whether a site's answers dominate or drift.", &alarms);
        let quantiles: Vec<(String, f64)> = self
            .sites
            .iter()
            .flat_map(|s| {
                let at = |(share, value): (&str, f64)| {
                    let labels = format!("{{site=\"{}\",quantile=\"{share}\"}}", label(&s.name));
                    (labels, value)
                };
                ["0.5", "0.9", "0.99"].into_iter().zip(s.quantiles).map(at).collect::<Vec<_>>()
            })
            .collect();
        gauge(
            "site_round_trip_seconds",
            "gauge",
            "Quantiles of a site's last round trips.",
            &quantiles,
        );
        gauge("site_answers_total", "counter", "Answers of a site.", &each(|s| s.answers as f64));
        gauge(
            "site_latency_seconds",
            "gauge",
            "Mean seconds for an answer of a site.",
            &each(|s| s.latency),
        );
        gauge(
            "site_bytes_up_total",
            "counter",
            "Bytes of messages from a site.",
            &each(|s| s.bytes.0 as f64),
        );
        gauge(
            "site_bytes_down_total",
            "counter",
            "Bytes of messages to a site.",
            &each(|s| s.bytes.1 as f64),
        );
        gauge(
            "site_absent_rounds_total",
            "counter",
            "Rounds that were closed without a site.",
            &each(|s| s.absent as f64),
        );
        gauge(
            "site_late_answers_total",
            "counter",
            "Answers of a site to rounds that were closed without it.",
            &each(|s| s.late as f64),
        );
        gauge(
            "site_returns_total",
            "counter",
            "How often a site came back.",
            &each(|s| s.returns as f64),
        );
        gauge(
            "site_refusals_total",
            "counter",
            "Refused messages of a site.",
            &each(|s| s.refusals as f64),
        );
        let refusals: Vec<(String, f64)> = self
            .refusals
            .iter()
            .map(|(why, n)| (format!("{{reason=\"{}\"}}", label(why)), *n as f64))
            .collect();
        gauge("refusals_total", "counter", "Refused messages and visitors, by reason.", &refusals);
        out
    }
}

/// A label's value as Prometheus wants it.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be ordered depends on how the run stands, and lines can be pasted as they are.
    #[test]
    fn an_operator_is_shown_the_commands_that_make_sense_now() {
        let sites = ["north".to_owned(), "St. Mary's, -x".to_owned()];
        let status = Status::new(&sites, Arc::new(Progress::default()));
        let lines = || status.view().orders.into_iter().map(|o| o.1).collect::<Vec<_>>();
        assert!(lines().is_empty(), "without a port there is nobody to order");
        let address: SocketAddr = "10.0.0.7:7461".parse().unwrap();
        status.listens(Listening { address, certificates: true });
        let command = "consilience control --server 10.0.0.7:7461 --certs operator";
        assert_eq!(lines(), [format!("{command} pause"), format!("{command} end")]);
        status.pause();
        assert_eq!(lines(), [format!("{command} resume"), format!("{command} end")]);
        status.resume();
        status.block(1, "its disk is full");
        assert_eq!(lines().len(), 2, "a strict run goes on without nobody");
        status.set_elastic(true);
        status.connected(0, true);
        status.connected(1, true);
        let quoted = format!("{command} drop -- 'St. Mary'\\''s, -x'");
        assert_eq!(lines()[1..], [quoted, format!("{command} end")]);
        status.leave_out(&sites[1]);
        assert_eq!(lines().len(), 2, "it is left out already");
        status.connected(0, false);
        assert!(lines()[1].ends_with("drop -- north"));
        status.listens(Listening { address: ([0, 0, 0, 0], 80).into(), certificates: false });
        assert_eq!(lines()[0], "consilience control --server HOST:80 --insecure-loopback pause");
    }
}
