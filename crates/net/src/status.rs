//! Track how a run stands: who is there, who is slow, how far the chains are, how much was sent and
//! refused.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use consilience_engine::run::Progress;

/// How many refusals are kept by name.
const MOST_NAMED: usize = 64;
/// How long a reason is that is shown.
const MOST_SHOWN: usize = 600;

/// What is shown while a run goes on.
#[derive(Debug)]
pub struct Status {
    /// How far it is, and whether it shall stop.
    pub progress: Arc<Progress>,
    /// Whether the server shall leave its sites waiting.
    suspended: AtomicBool,
    /// Whether the run shall be ended for good.
    ended: AtomicBool,
    /// Whether an operator has paused the run or left out a site.
    meddled: AtomicBool,
    /// Whether the run goes on without sites that stay away.
    elastic: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    started: Instant,
    stage: String,
    total: u64,
    sampling: Option<Instant>,
    rounds: u64,
    worst_rhat: Option<f64>,
    bits: (u64, u64),
    refusals: BTreeMap<String, u64>,
    /// By site.
    warnings: BTreeMap<usize, String>,
    sites: Vec<SiteState>,
    /// Since when the operator has paused it.
    paused: Option<Blocked>,
}

#[derive(Clone, Debug)]
struct SiteState {
    name: String,
    connected: bool,
    asked: Option<Instant>,
    owed: u64,
    answers: u64,
    seconds: f64,
    bytes: (u64, u64),
    refusals: u64,
    absent: u64,
    late: u64,
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
        let seconds = self.since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let minutes = seconds / 60 % (24 * 60);
        format!("{:02}:{:02} UTC", minutes / 60, minutes % 60)
    }
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
    /// Bits up and down, of all chains.
    pub bits: (u64, u64),
    /// The sites.
    pub sites: Vec<SiteView>,
    /// What was refused, and how often.
    pub refusals: Vec<(String, u64)>,
    /// What people should know of who stays away.
    pub warnings: Vec<String>,
    /// Who or what holds up the run, since when and why: one sentence each.
    pub blocked: Vec<String>,
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
            bytes: (0, 0),
            refusals: 0,
            absent: 0,
            late: 0,
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
            worst_rhat: None,
            bits: (0, 0),
            refusals: BTreeMap::new(),
            warnings: BTreeMap::new(),
            sites: sites.iter().map(site).collect(),
            paused: None,
        };
        Status {
            progress,
            suspended: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            meddled: AtomicBool::new(false),
            elastic: AtomicBool::new(false),
            inner: Mutex::new(inner),
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

    /// Whether an operator has paused the run or left out a site at some time.
    pub(crate) fn is_meddled_with(&self) -> bool {
        self.meddled.load(Ordering::Relaxed)
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
    }

    /// A site is there or not; `true`: it has been there before.
    pub(crate) fn connected(&self, client: usize, connected: bool) -> bool {
        let site = &mut self.lock().sites[client];
        site.connected = connected;
        (site.asked, site.owed) = (None, 0);
        site.came += u64::from(connected);
        site.came > 1
    }

    /// A site cannot go on, and this is why. The same trouble again is the old trouble.
    pub(crate) fn block(&self, client: usize, why: &str) {
        let why: String = why.chars().take(MOST_SHOWN).collect();
        let blocked = &mut self.lock().sites[client].blocked;
        match blocked {
            Some(known) if known.why == why => known.lifted = false,
            _ => *blocked = Some(Blocked { since: SystemTime::now(), why, lifted: false }),
        }
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
        self.meddled.store(true, Ordering::Relaxed);
        let why = "the operator paused the run".to_owned();
        let since = SystemTime::now();
        self.lock().paused.get_or_insert(Blocked { since, why, lifted: false });
    }

    /// Let a run go on.
    pub fn resume(&self) {
        self.lock().paused = None;
    }

    /// Since when the run is paused, if it is.
    pub fn paused(&self) -> Option<Blocked> {
        self.lock().paused.clone()
    }

    /// Go on without a site; `false`: there is no such site.
    pub(crate) fn leave_out(&self, name: &str) -> bool {
        self.meddled.store(true, Ordering::Relaxed);
        let mut inner = self.lock();
        let site = inner.sites.iter_mut().find(|site| site.name == name);
        site.map(|site| site.dropped = true).is_some()
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
            site.seconds += asked.elapsed().as_secs_f64();
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
        if inner.refusals.len() < MOST_NAMED || inner.refusals.contains_key(&name) {
            *inner.refusals.entry(name).or_insert(0) += 1;
        } else {
            *inner.refusals.entry("others".into()).or_insert(0) += 1;
        }
    }

    /// An exchange of a chain is complete; in all chains sent so many bits.
    pub fn exchanged(&self) {
        self.lock().rounds += 1;
    }

    /// What the chains sent, and how well they agree.
    pub fn measured(&self, bits: (u64, u64), worst_rhat: Option<f64>) {
        let mut inner = self.lock();
        inner.bits = bits;
        inner.worst_rhat = worst_rhat.or(inner.worst_rhat);
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
        View {
            stage: inner.stage.clone(),
            done: (done, inner.total),
            rate: sampled.map_or(0.0, |seconds| inner.rounds as f64 / seconds.max(1e-9)),
            rounds: inner.rounds,
            left: sampled.filter(|_| share > 0.0).map(|seconds| seconds * (1.0 - share) / share),
            seconds: inner.started.elapsed().as_secs_f64(),
            worst_rhat: inner.worst_rhat,
            bits: inner.bits,
            sites: inner.sites.iter().map(site).collect(),
            refusals: inner.refusals.iter().map(|(why, count)| (why.clone(), *count)).collect(),
            warnings: inner.warnings.values().cloned().collect(),
            blocked,
        }
    }
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
        for blocked in &self.blocked {
            let _ = write!(line, "; {blocked}");
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
