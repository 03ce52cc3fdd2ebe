//! Conduct exchanges with sites that come, go and come back: keep the script of what all were told,
//! and give open orders again.

mod carry;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use consilience_core::model::Coordinates;
use consilience_core::protocol::{Exchange, Format, Ledger, Precision, Refusal, Server, Statement};
use consilience_core::snapshot;
use consilience_core::target::Target;
use consilience_engine::conductor::{Conductor, Lost};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::frame::{ASIDE, Frame, MESSAGE, WORDS};
use crate::party::Complaint;
use crate::service::{Event, Link};
use crate::status::Status;
use crate::talk::{Ask, Tell, Welcome};

/// How long the conductor waits before it looks at the clock and the stop sign.
const TICK: Duration = Duration::from_millis(200);
/// The shortest wait for a round that must be closed.
const SHORTEST: Duration = Duration::from_millis(1);
/// How often the numbers that are shown are renewed.
const LOOK: Duration = Duration::from_secs(1);
/// After how many refused messages a connection is cut.
const MOST_REFUSALS: u32 = 32;
/// How long farewells may take.
const LINGER: Duration = Duration::from_secs(3);
/// How often the log says who is waited for.
const REMINDER: Duration = Duration::from_secs(30);

/// Why exchanges came to no end.
#[derive(Debug, Error)]
pub enum Broken {
    /// A site refuses, or is away for too long.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// A site forgot what it answered in this phase.
    #[error("{0}")]
    Forgot(Refusal),
    /// Somebody asked to stop.
    #[error("the run was stopped")]
    Stopped,
    /// A party gave up.
    #[error("{0}")]
    Party(Complaint),
}

/// One step of what all sites are told, and what each answered.
#[derive(Debug)]
struct Step {
    asks: Vec<Frame>,
    answers: Vec<Option<Tell>>,
}

/// A site as the conductor sees it.
#[derive(Debug, Default)]
struct SiteLink {
    link: Option<Link>,
    /// How many steps of the script it has answered on this connection.
    caught_up: usize,
    /// Whether it takes orders of the open phase.
    ready: bool,
    /// The chains whose last order it has not answered: it gets the next when it has, so that a
    /// slow site never works off what nobody waits for.
    busy: BTreeSet<usize>,
    refusals: u32,
}

/// The server's end of all connections.
pub struct Hub {
    handle: Handle,
    events: mpsc::Receiver<Event>,
    sites: Vec<String>,
    places: Vec<SiteLink>,
    welcomes: Vec<Welcome>,
    script: Vec<Step>,
    /// The number of the open phase, if one is open: surveys and chains.
    open: Option<(u32, bool)>,
    phases: u32,
    /// The most bytes that a message may have: the service refuses longer ones.
    most_message: Arc<AtomicUsize>,
    status: Arc<Status>,
    deadline: Option<Duration>,
    /// When something last went forward.
    moved: Instant,
    /// When the open round of each chain began.
    opened: Vec<Instant>,
    /// When the next round must be closed.
    closes: Option<Instant>,
    reminded: Instant,
}

/// What a turn brought that the open phase must look at.
enum Turn {
    Nothing,
    Message(usize, Frame),
    At(usize, Vec<u64>),
}

impl Hub {
    /// A hub for these sites, with what each is greeted with.
    pub fn new(
        handle: Handle,
        events: mpsc::Receiver<Event>,
        welcomes: Vec<Welcome>,
        most_message: Arc<AtomicUsize>,
        status: Arc<Status>,
        deadline: Option<Duration>,
    ) -> Hub {
        let sites = status.sites();
        let now = Instant::now();
        Hub {
            handle,
            events,
            places: sites.iter().map(|_| SiteLink::default()).collect(),
            welcomes,
            sites,
            script: Vec::new(),
            open: None,
            phases: 0,
            most_message,
            status,
            deadline,
            moved: now,
            opened: Vec::new(),
            closes: None,
            reminded: now,
        }
    }

    /// Ask every site something, wait for all answers. Whoever comes back later is told again.
    pub fn ask(&mut self, asks: &[Ask]) -> Result<Vec<Tell>, Broken> {
        Ok(self.ask_within(asks, None)?.into_iter().flatten().collect())
    }

    /// Ask every site the same.
    pub fn ask_all(&mut self, ask: &Ask) -> Result<Vec<Tell>, Broken> {
        let frame = Frame::words(self.script.len() as u32, ask);
        Ok(self.asked(vec![frame; self.sites.len()], None)?.into_iter().flatten().collect())
    }

    /// Ask every site something, and wait so long for answers.
    pub fn ask_within(
        &mut self,
        asks: &[Ask],
        most: Option<Duration>,
    ) -> Result<Vec<Option<Tell>>, Broken> {
        let step = self.script.len() as u32;
        self.asked(asks.iter().map(|ask| Frame::words(step, ask)).collect(), most)
    }

    fn asked(
        &mut self,
        asks: Vec<Frame>,
        most: Option<Duration>,
    ) -> Result<Vec<Option<Tell>>, Broken> {
        let (since, step) = (Instant::now(), self.script.len());
        self.script.push(Step { answers: vec![None; asks.len()], asks });
        for client in 0..self.places.len() {
            // Whoever is still catching up was sent all earlier steps when it came, and answers in
            // order.
            self.send(client, self.script[step].asks[client].clone(), true);
        }
        while self.script[step].answers.iter().any(Option::is_none)
            && most.is_none_or(|most| since.elapsed() < most)
        {
            self.turn()?;
        }
        Ok(self.script[step].answers.clone())
    }

    /// Tell everybody that it is over. Whoever was cut off comes back for these words, so wait a
    /// moment: a site that misses them would look for the server for long.
    pub fn farewell(&mut self, finished: bool) {
        let bye = Frame::words(ASIDE, &Ask::Bye { finished });
        self.script.clear();
        self.open = None;
        let mut knows: Vec<bool> =
            self.places.iter().map(|place| place.link.is_none() && !finished).collect();
        for client in 0..self.places.len() {
            self.send(client, bye.clone(), true);
        }
        let since = Instant::now();
        while knows.iter().any(|known| !known) && since.elapsed() < LINGER {
            match self.next() {
                Some(Event::Joined { client, link }) => {
                    self.greet(client, link);
                    self.send(client, bye.clone(), true);
                }
                Some(Event::Heard { client, frame, .. })
                    if matches!(frame.read(), Ok(Tell::Done | Tell::Refused(_)))
                        && frame.phase == ASIDE =>
                {
                    knows[client] = true;
                    self.places[client] = SiteLink::default();
                }
                _ => {}
            }
        }
        self.places.iter_mut().for_each(|place| place.link = None);
    }

    /// The next event, if one comes soon.
    fn next(&mut self) -> Option<Event> {
        if let Ok(event) = self.events.try_recv() {
            return Some(event);
        }
        let events = &mut self.events;
        let wait = self.closes.map_or(TICK, |closes| {
            closes.saturating_duration_since(Instant::now()).clamp(SHORTEST, TICK)
        });
        self.handle
            .block_on(async { tokio::time::timeout(wait, events.recv()).await.ok().flatten() })
    }

    /// The most bytes that a message may have from now on.
    pub fn limit_messages(&mut self, most: usize) {
        self.most_message.store(most, Ordering::Relaxed);
    }

    /// Wait for the next event and do what does not concern the open phase.
    fn turn(&mut self) -> Result<Turn, Broken> {
        let event = self.next();
        if self.status.progress.stop.load(Ordering::Relaxed) {
            return Err(Broken::Stopped);
        }
        match event {
            None => self.look_at_the_clock()?,
            Some(Event::Joined { client, link }) => {
                let back = self.status.connected(client, true);
                info!(site = %self.sites[client], "{}", if back { "came back" } else { "joined" });
                self.greet(client, link);
                for step in 0..self.script.len() {
                    self.send(client, self.script[step].asks[client].clone(), true);
                }
                self.ask_where(client);
            }
            Some(Event::Left { client, generation, why }) => {
                if self.places[client]
                    .link
                    .as_ref()
                    .is_some_and(|link| link.generation == generation)
                {
                    warn!(site = %self.sites[client], reason = %why, "left");
                    self.status.connected(client, false);
                    self.places[client] = SiteLink::default();
                }
            }
            Some(Event::Refused { client, why }) => match client {
                Some(client) => self.refuse(client, &why),
                None => self.status.refused(None, &why),
            },
            Some(Event::Heard { client, generation, frame }) => {
                if self.places[client]
                    .link
                    .as_ref()
                    .is_some_and(|link| link.generation == generation)
                {
                    return self.heard(client, frame);
                }
            }
        }
        Ok(Turn::Nothing)
    }

    /// Welcome a site, in the version of the protocol that it speaks.
    fn greet(&mut self, client: usize, link: Link) {
        let protocol = link.protocol;
        self.places[client] = SiteLink { link: Some(link), ..SiteLink::default() };
        let welcome = Welcome { protocol, ..self.welcomes[client].clone() };
        self.send(client, Frame::words(ASIDE, &Ask::Welcome(Box::new(welcome))), false);
    }

    fn heard(&mut self, client: usize, frame: Frame) -> Result<Turn, Broken> {
        if frame.kind == MESSAGE {
            return Ok(Turn::Message(client, frame));
        }
        let told: Tell = match frame.read() {
            Ok(told) => told,
            Err(why) => {
                self.refuse(client, &why);
                return Ok(Turn::Nothing);
            }
        };
        debug_assert_eq!(frame.kind, WORDS, "the service refuses other kinds");
        match told {
            Tell::Refused(why) => {
                return Err(Lost(format!(
                    "site \"{}\" does not take part: {why}",
                    self.sites[client]
                ))
                .into());
            }
            Tell::At(counts)
                if self.open.is_some_and(|(phase, _)| phase == frame.phase)
                    && self.is_caught_up(client) =>
            {
                return Ok(Turn::At(client, counts));
            }
            Tell::At(_) => {} // of a phase that is over
            told => {
                let step = frame.phase as usize;
                if step != self.places[client].caught_up || step >= self.script.len() {
                    self.refuse(
                        client,
                        &format!(
                            "words about step {step}, where step {} is due",
                            self.places[client].caught_up
                        ),
                    );
                    return Ok(Turn::Nothing);
                }
                let slot = &mut self.script[step].answers[client];
                match slot {
                    Some(before) if *before != told && !matches!(told, Tell::Finished(_)) => {
                        let why = format!(
                            "site \"{}\" answers step {step} otherwise than before: has its data \
                             changed?",
                            self.sites[client]
                        );
                        self.cut(client, &why);
                        return Ok(Turn::Nothing);
                    }
                    _ => *slot = Some(told),
                }
                self.moved = Instant::now();
                self.places[client].caught_up += 1;
                self.ask_where(client);
            }
        }
        Ok(Turn::Nothing)
    }

    fn is_caught_up(&self, client: usize) -> bool {
        self.places[client].caught_up == self.script.len()
    }

    fn ask_where(&mut self, client: usize) {
        if let Some((phase, survey)) = self.open
            && self.is_caught_up(client)
        {
            self.send(client, Frame::words(ASIDE, &Ask::Where { phase, survey }), true);
        }
    }

    fn send(&mut self, client: usize, frame: Frame, awaits_answer: bool) {
        let Some(link) = &self.places[client].link else { return };
        if !link.send(frame, awaits_answer) {
            warn!(site = %self.sites[client], "does not read, or is gone: its connection is \
                closed");
            self.status.connected(client, false);
            self.places[client] = SiteLink::default();
        }
    }

    /// Name what was refused. Nothing changed; too much of it ends the connection.
    fn refuse(&mut self, client: usize, why: &str) {
        warn!(site = %self.sites[client], reason = %why, "refused");
        self.status.refused(Some(client), why);
        self.places[client].refusals += 1;
        if self.places[client].refusals == MOST_REFUSALS {
            self.cut(
                client,
                &format!("{MOST_REFUSALS} messages were refused, the last one since: {why}"),
            );
        }
    }

    fn cut(&mut self, client: usize, why: &str) {
        warn!(site = %self.sites[client], reason = %why, "turned away");
        self.status.refused(Some(client), why);
        self.send(client, Frame::words(ASIDE, &Ask::Refused(why.to_owned())), false);
        self.status.connected(client, false);
        self.places[client] = SiteLink::default();
    }

    fn look_at_the_clock(&mut self) -> Result<(), Broken> {
        let still = self.moved.elapsed();
        let awaited: Vec<String> = (0..self.sites.len())
            .filter(|c| self.is_awaited(*c))
            .map(|c| self.describe(c))
            .collect();
        if let Some(deadline) = self.deadline.filter(|deadline| still > *deadline) {
            let text = format!(
                "nothing went forward for {} seconds. Awaited: {}",
                deadline.as_secs(),
                awaited.join(", ")
            );
            return Err(Lost(text).into());
        }
        if still > REMINDER && self.reminded.elapsed() > REMINDER {
            self.reminded = Instant::now();
            warn!(seconds = still.as_secs(), awaited = %awaited.join(", "), "waiting");
        }
        Ok(())
    }

    fn is_awaited(&self, client: usize) -> bool {
        let place = &self.places[client];
        place.link.is_none() || place.caught_up < self.script.len() || self.status.owes(client)
    }

    fn describe(&self, client: usize) -> String {
        let how = if self.places[client].link.is_some() {
            "has not answered"
        } else {
            "is not connected"
        };
        format!("{} ({how})", self.sites[client])
    }
}

impl Conductor for Hub {
    fn survey(
        &mut self,
        target: &Target,
        survey: &mut dyn Exchange,
        ledger: &mut Ledger,
    ) -> Result<(), Lost> {
        let format = Format::plain(target.dim(), Precision::F64);
        let before = snapshot::save(survey);
        loop {
            let nothing = Statement::new::<&str, &str>([]);
            let mut parties =
                [Server::new(&mut *survey, nothing, target.clients.len(), format.clone())];
            match self.carry(true, &mut parties) {
                Ok(()) => {
                    ledger.merge(parties[0].ledger());
                    return Ok(());
                }
                Err(Broken::Forgot(why)) => {
                    info!(reason = %why, "the survey starts again");
                    snapshot::restore(survey, &before).map_err(|error| Lost(error.to_string()))?;
                }
                Err(other) => return Err(Lost(other.to_string())),
            }
        }
    }

    fn move_to(&mut self, coordinates: &Coordinates, shares: &[f64]) -> Result<(), Lost> {
        let (centre, matrix) = coordinates.parts();
        let ask = |share: &f64| Ask::MoveTo {
            centre: centre.to_vec(),
            matrix: matrix.to_vec(),
            share: *share,
        };
        let asks: Vec<Ask> = shares.iter().map(ask).collect();
        self.ask(&asks).map(|_| ()).map_err(|broken| Lost(broken.to_string()))
    }
}
