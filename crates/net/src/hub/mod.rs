//! Conduct exchanges with sites that come, go and come back: keep the script of what all were told,
//! and give open orders again.

mod carry;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use consilience_core::model::Coordinates;
use consilience_core::protocol::{
    Exchange, Format, Growth, Ledger, Limits, Precision, Refusal, Server, Statement,
};
use consilience_core::snapshot;
use consilience_core::target::Target;
use consilience_engine::conductor::{Conductor, Lost};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::admission::Seldom;
use crate::frame::{ASIDE, Frame, MESSAGE, WORDS};
use crate::memory::Memory;
use crate::party::Complaint;
use crate::serve::ServeError;
use crate::service::{Event, Link};
use crate::status::{Blocked, Status};
use crate::talk::{Farewell, How, Instruction, Tell, Welcome};

/// How long the conductor waits before it looks at the clock and the stop sign.
const TICK: Duration = Duration::from_millis(200);
/// The shortest wait for a round that must be closed.
const SHORTEST: Duration = Duration::from_millis(1);
/// How often the numbers that are shown are renewed.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is written down who has heard that the run is over.
const NOTES: Duration = Duration::from_millis(200);
/// After how many refused messages a connection is cut.
const MOST_REFUSALS: u32 = 32;
/// After how long without progress every screen says who is awaited.
const WHILE: Duration = Duration::from_secs(3);
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
    /// The server is interrupted.
    #[error("the server was interrupted")]
    Suspended,
    /// A party gave up.
    #[error("{0}")]
    Party(Complaint),
}

/// How a server parts from its sites.
#[derive(Clone, Debug, PartialEq)]
pub enum Parting {
    /// The run is over.
    Over(Farewell),
    /// The server will be back: they shall wait. The text says why.
    Waits(String),
}

/// One step of what all sites are told, and what each answered.
struct Step {
    asks: Vec<Frame>,
    answers: Vec<Option<Tell>>,
    /// How many have not answered.
    missing: usize,
    /// Who answered first: texts that others say alike are its text.
    first: Option<usize>,
    /// What is wrong with an answer, if anything: it is not taken then.
    objects: Option<Objects>,
}

impl Step {
    fn new(asks: Vec<Frame>, objects: Option<Objects>) -> Step {
        let (answers, missing) = (vec![None; asks.len()], asks.len());
        Step { asks, answers, missing, first: None, objects }
    }

    /// Take an answer; `false`: it is another than before.
    fn take(&mut self, client: usize, told: Tell) -> bool {
        if self.answers[client].as_ref().is_some_and(|before| !told.agrees(before)) {
            return false;
        }
        let first = *self.first.get_or_insert(client);
        let told = match self.answers[first].as_ref().filter(|_| first != client) {
            Some(first) => told.sharing(first),
            None => told,
        };
        self.missing -= usize::from(self.answers[client].replace(told).is_none());
        true
    }
}

/// What a site is greeted with.
pub(crate) type Greeting = Box<dyn Fn(usize) -> Welcome>;

/// What is wrong with an answer of a site.
pub(crate) type Objects = Box<dyn Fn(&str, &Tell) -> Option<String>>;

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
    greeting: Greeting,
    script: Vec<Step>,
    /// The number of the open phase, if one is open: surveys and chains.
    open: Option<(u32, bool)>,
    phases: u32,
    /// The most bytes that a message may have: the service refuses longer ones.
    most_message: Arc<AtomicUsize>,
    status: Arc<Status>,
    deadline: Option<Duration>,
    /// Whether a site that cannot go on is waited for; else it ends the run.
    quarantine: bool,
    /// After how long a strict run that a site blocks is paused.
    pause_after: Option<Duration>,
    /// Whether it was said who is awaited.
    named: bool,
    /// Which sites cannot go on.
    blocks: BTreeSet<usize>,
    /// How many of the operator's orders were obeyed.
    obeyed: u64,
    /// A site that was last seen to take orders of the open phase.
    present: usize,
    /// When something last went forward.
    moved: Instant,
    /// When the open round of each chain began.
    opened: Vec<Instant>,
    /// When the next round must be closed.
    closes: Option<Instant>,
    reminded: Instant,
    /// Of whom refusals were logged, and that they were turned away.
    said: Seldom<usize>,
    turned_away: Seldom<usize>,
}

/// What a turn brought that the open phase must look at.
enum Turn {
    Nothing,
    Message(usize, Frame),
    At(usize, Vec<u64>),
}

impl Hub {
    /// A hub for these sites, with what each is greeted with.
    pub(crate) fn new(
        handle: Handle,
        events: mpsc::Receiver<Event>,
        greeting: Greeting,
        most_message: Arc<AtomicUsize>,
        status: Arc<Status>,
        deadline: Option<Duration>,
        quarantine: bool,
    ) -> Hub {
        let sites = status.sites();
        let now = Instant::now();
        Hub {
            handle,
            events,
            places: sites.iter().map(|_| SiteLink::default()).collect(),
            greeting,
            script: Vec::new(),
            open: None,
            phases: 0,
            most_message,
            status,
            deadline,
            quarantine,
            pause_after: None,
            named: false,
            blocks: BTreeSet::new(),
            obeyed: 0,
            present: 0,
            sites,
            moved: now,
            opened: Vec::new(),
            closes: None,
            reminded: now,
            said: Seldom::default(),
            turned_away: Seldom::default(),
        }
    }

    /// The same hub that pauses a strict run which a site has blocked for so long.
    pub(crate) fn pausing_after(self, pause_after: Option<Duration>) -> Hub {
        Hub { pause_after, ..self }
    }

    /// Ask every site the same and wait for all answers, which a site can be told to be wrong.
    /// Where sites that cannot go on are not waited for, the first such answer ends the run.
    pub(crate) fn ask_checked(
        &mut self,
        ask: &Instruction,
        objects: Objects,
    ) -> Result<Vec<Tell>, Broken> {
        let frames = self.to_all(ask);
        Ok(self.asked(frames, None, Some(objects))?.into_iter().flatten().collect())
    }

    /// Whether sites that cannot go on are waited for.
    pub(crate) fn waits(&self) -> bool {
        self.quarantine
    }

    /// Ask everything again from the first step, after a site was turned away, since what it said
    /// does not do.
    pub(crate) fn begin_again(&mut self, wrong: usize, why: &str) {
        self.cut(wrong, why);
        self.script.clear();
        self.places.iter_mut().for_each(|place| place.caught_up = 0);
    }

    fn objection(&self, step: usize, client: usize, told: &Tell) -> Option<String> {
        let objects = self.script[step].objects.as_ref().filter(|_| self.quarantine)?;
        objects(&self.sites[client], told)
    }

    /// Ask every site the same, wait for all answers. Whoever comes back later is asked again.
    pub fn ask_all(&mut self, ask: &Instruction) -> Result<Vec<Tell>, Broken> {
        Ok(self.ask_all_within(ask, None)?.into_iter().flatten().collect())
    }

    /// The same, and wait so long for answers.
    pub(crate) fn ask_all_within(
        &mut self,
        ask: &Instruction,
        most: Option<Duration>,
    ) -> Result<Vec<Option<Tell>>, Broken> {
        let frames = self.to_all(ask);
        self.asked(frames, most, None)
    }

    /// The next step of the script for all sites, in one copy.
    fn to_all(&self, ask: &Instruction) -> Vec<Frame> {
        vec![Frame::words(self.script.len() as u32, ask); self.sites.len()]
    }

    fn asked(
        &mut self,
        asks: Vec<Frame>,
        most: Option<Duration>,
        objects: Option<Objects>,
    ) -> Result<Vec<Option<Tell>>, Broken> {
        let (since, step) = (Instant::now(), self.script.len());
        self.script.push(Step::new(asks, objects));
        for client in 0..self.places.len() {
            // Whoever is still catching up was sent all earlier steps when it came, and answers in
            // order.
            self.send(client, self.script[step].asks[client].clone(), true);
        }
        while self.script[step].missing > 0 && most.is_none_or(|most| since.elapsed() < most) {
            self.turn()?;
        }
        Ok(self.script[step].answers.clone())
    }

    /// Part from everybody. Where it is over, whoever was cut off comes back for these words, so
    /// wait for those who have not heard: a site that misses them would look for the server for
    /// long.
    ///
    /// `false`: the server was interrupted before all had heard.
    pub(crate) fn part(
        &mut self,
        parting: &Parting,
        linger: Duration,
        memory: &mut Memory,
    ) -> bool {
        self.script.clear();
        (self.open, self.closes) = (None, None);
        let mut all = true;
        match parting {
            Parting::Over(farewell) => all = self.farewell(farewell, linger, memory),
            Parting::Waits(why) => {
                for place in &self.places {
                    place.link.iter().for_each(|link| link.close(why));
                }
            }
        }
        self.places.iter_mut().for_each(|place| place.link = None);
        all
    }

    fn farewell(&mut self, farewell: &Farewell, linger: Duration, memory: &mut Memory) -> bool {
        let bye = Frame::words(ASIDE, &farewell.ask());
        let told = |site: &String| memory.over.as_ref().is_some_and(|o| o.told.contains(site));
        let aborted = farewell.how == How::Aborted;
        let kept = |noted: Result<(), ServeError>| {
            if let Err(error) = noted {
                warn!(%error, "who has heard that the run is over cannot be noted");
            }
        };
        let mut knows: Vec<bool> = self
            .sites
            .iter()
            .zip(&self.places)
            .map(|(site, place)| told(site) || (aborted && place.link.is_none()))
            .collect();
        for client in 0..self.places.len() {
            self.send(client, bye.clone(), true);
        }
        let since = Instant::now();
        let mut unaware = knows.iter().filter(|known| !**known).count();
        while unaware > 0 && since.elapsed() < linger && !self.status.is_suspended() {
            match self.next() {
                Some(Event::Joined { client, link }) => {
                    self.places[client] = SiteLink { link: Some(link), ..SiteLink::default() };
                    self.send(client, bye.clone(), true);
                }
                Some(Event::Heard { client, frame, .. })
                    if matches!(frame.read(), Ok(Tell::Done | Tell::Refused(_)))
                        && frame.phase == ASIDE =>
                {
                    unaware -= usize::from(!std::mem::replace(&mut knows[client], true));
                    self.places[client] = SiteLink::default();
                    memory.has_heard(&self.sites[client]);
                    kept(memory.note(NOTES));
                }
                _ => {}
            }
        }
        kept(memory.note(Duration::ZERO));
        let unheard = self.sites.iter().zip(&knows).filter(|(_, known)| !**known);
        let unheard: Vec<&str> = unheard.map(|(site, _)| site.as_str()).collect();
        if !unheard.is_empty() {
            warn!(sites = %unheard.join(", "), "have not heard that the run is over");
        }
        unheard.is_empty() || !self.status.is_suspended()
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
        for client in 0..self.places.len() {
            let short = |link: &Link| link.most.is_some_and(|known| known < most);
            if let Some(link) = self.places[client].link.as_ref().filter(|link| short(link)) {
                // it would be turned away for what it is asked for
                link.close("the model's messages are longer than this connection takes");
                self.status.connected(client, false);
                self.places[client] = SiteLink::default();
            }
        }
    }

    /// Wait for the next event and do what does not concern the open phase.
    fn turn(&mut self) -> Result<Turn, Broken> {
        let event = self.next();
        if self.status.is_suspended() {
            return Err(Broken::Suspended);
        }
        if self.status.is_stopped() {
            return Err(Broken::Stopped);
        }
        self.hold();
        match event {
            None => self.look_at_the_clock()?,
            Some(Event::Joined { client, link }) => {
                let back = self.status.connected(client, true);
                info!(site = %self.sites[client], "{}", if back { "came back" } else { "joined" });
                self.greet(client, link);
                if self.obeyed > 0 {
                    let paused = self.status.paused();
                    self.hold_site(client, paused.as_ref()); // it came while that was ordered
                }
                for step in 0..self.script.len() {
                    self.send(client, self.script[step].asks[client].clone(), true);
                }
                self.ask_where(client);
            }
            Some(Event::Left { client, generation, why }) => {
                if self.is_current(client, generation) {
                    warn!(site = %self.sites[client], reason = %why, "left");
                    self.status.connected(client, false);
                    self.places[client] = SiteLink::default();
                }
            }
            // Somebody who claims to be a site may not be: whoever is connected stays.
            Some(Event::Refused { client, why }) => self.status.refused(client, &why),
            Some(Event::Excess { client, generation, why }) => {
                if self.is_current(client, generation) {
                    self.cut(client, &why);
                }
            }
            Some(Event::Heard { client, generation, frame }) => {
                if self.is_current(client, generation) {
                    return self.heard(client, frame);
                }
            }
        }
        Ok(Turn::Nothing)
    }

    fn is_current(&self, client: usize, generation: u64) -> bool {
        self.places[client].link.as_ref().is_some_and(|link| link.generation == generation)
    }

    /// A site takes part again.
    fn unblock(&mut self, client: usize) {
        if self.blocks.remove(&client) {
            self.status.unblock(client);
            info!(site = %self.sites[client], "takes part again");
        }
    }

    /// A site cannot go on.
    fn block(&mut self, client: usize, why: &str) {
        self.blocks.insert(client);
        self.status.block(client, why);
    }

    /// Where the operator holds the run or goes on without a site, let go of connections.
    fn hold(&mut self) {
        if let Some(most) = self.pause_after.filter(|_| !self.blocks.is_empty())
            && !self.status.is_elastic()
            && let Some(why) = self.status.pause_after(most)
        {
            warn!("paused: {why}");
        }
        let orders = self.status.orders();
        if orders == 0 {
            return;
        }
        let paused = self.status.paused();
        if paused.is_some() {
            self.moved = Instant::now(); // it waits for nobody
        }
        if orders == self.obeyed {
            return;
        }
        self.obeyed = orders;
        for client in 0..self.places.len() {
            self.hold_site(client, paused.as_ref());
        }
    }

    /// Let go of a site, where the run is paused or goes on without it.
    fn hold_site(&mut self, client: usize, paused: Option<&Blocked>) {
        if self.places[client].link.is_none() {
            return;
        }
        if let Some(paused) = paused {
            self.places[client].link.iter().for_each(|link| link.close(&paused.why));
            self.status.connected(client, false);
            self.places[client] = SiteLink::default();
        } else if self.status.is_left_out(client) {
            self.dismiss(client, "the operator goes on without this site");
        }
    }

    /// Welcome a site, in the version of the protocol that it speaks.
    fn greet(&mut self, client: usize, link: Link) {
        let protocol = link.protocol;
        self.places[client] = SiteLink { link: Some(link), ..SiteLink::default() };
        let welcome = Welcome { protocol, ..(self.greeting)(client) };
        self.send(client, Frame::words(ASIDE, &Instruction::Welcome(Box::new(welcome))), false);
    }

    fn heard(&mut self, client: usize, frame: Frame) -> Result<Turn, Broken> {
        if frame.kind == MESSAGE {
            return Ok(Turn::Message(client, frame));
        }
        let told: Tell = match frame.read() {
            Ok(told) => told,
            // An answer that all wait for.
            Err(why) if frame.phase as usize == self.places[client].caught_up => {
                self.poisoned(client, &why);
                return Ok(Turn::Nothing);
            }
            Err(why) => {
                self.refuse(client, &why);
                return Ok(Turn::Nothing);
            }
        };
        debug_assert_eq!(frame.kind, WORDS, "the service refuses other kinds");
        match told {
            Tell::Refused(why) if self.quarantine => {
                warn!(site = %self.sites[client], reason = %why, "cannot go on: it is waited for");
                self.block(client, &why);
                self.status.connected(client, false);
                self.places[client] = SiteLink::default();
            }
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
                if let Some(why) = self.objection(step, client, &told) {
                    self.cut(client, &why);
                    return Ok(Turn::Nothing);
                }
                if !self.script[step].take(client, told) {
                    let why = format!(
                        "site \"{}\" answers step {step} otherwise than before: has its data \
                         changed?",
                        self.sites[client]
                    );
                    self.cut(client, &why);
                    return Ok(Turn::Nothing);
                }
                self.goes_forward();
                self.places[client].caught_up += 1;
                if self.is_caught_up(client) && self.open.is_none() {
                    self.unblock(client);
                }
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
            self.send(client, Frame::words(ASIDE, &Instruction::Where { phase, survey }), true);
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

    /// An answer that nobody can use: it is named, its site is told, and the run waits for a better
    /// one.
    fn poisoned(&mut self, client: usize, why: &str) {
        self.block(client, why);
        let told = Frame::words(ASIDE, &Instruction::Refused(why.to_owned()));
        self.send(client, told, false);
        self.refuse(client, why);
    }

    /// Name what was refused. Nothing changed; too much of it ends the connection.
    fn refuse(&mut self, client: usize, why: &str) {
        if let Some(silent) = self.said.due(&client) {
            warn!(site = %self.sites[client], reason = %why, others_since = silent, "refused");
        }
        self.status.refused(Some(client), why);
        self.places[client].refusals += 1;
        if self.places[client].refusals == MOST_REFUSALS {
            self.cut(
                client,
                &format!("{MOST_REFUSALS} messages were refused, the last one since: {why}"),
            );
        }
    }

    /// Turn a site away: the run waits until it comes back better.
    fn cut(&mut self, client: usize, why: &str) {
        if let Some(silent) = self.turned_away.due(&client) {
            warn!(site = %self.sites[client], reason = %why, others_since = silent, "turned away");
        }
        self.status.refused(Some(client), why);
        self.block(client, why);
        self.dismiss(client, why);
    }

    fn dismiss(&mut self, client: usize, why: &str) {
        self.send(client, Frame::words(ASIDE, &Instruction::Refused(why.to_owned())), false);
        self.status.connected(client, false);
        self.places[client] = SiteLink::default();
    }

    /// Something was done.
    fn goes_forward(&mut self) {
        self.moved = Instant::now();
        if std::mem::take(&mut self.named) {
            self.status.waits_for(&[]);
        }
    }

    /// Say who is awaited, where nothing has gone forward for a while.
    fn say_who_is_awaited(&mut self, still: Duration) {
        if still < WHILE || self.status.paused().is_some() {
            return;
        }
        let since = SystemTime::now() - still;
        let awaited = |client: usize| {
            let waits = self.is_awaited(client) && self.status.blocked(client).is_none();
            waits.then(|| (client, since, self.how(client)))
        };
        let awaited: Vec<_> = (0..self.sites.len()).filter_map(awaited).collect();
        self.status.waits_for(&awaited);
        self.named = true;
    }

    fn look_at_the_clock(&mut self) -> Result<(), Broken> {
        let still = self.moved.elapsed();
        self.say_who_is_awaited(still);
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
        if let Some(blocked) = self.status.blocked(client) {
            let (site, since) = (&self.sites[client], blocked.clock());
            return format!("{site} (blocks since {since}: {})", blocked.why);
        }
        format!("{} ({})", self.sites[client], self.how(client))
    }

    fn how(&self, client: usize) -> &'static str {
        if self.places[client].link.is_some() { "has not answered" } else { "is not connected" }
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
        // what rows cannot give no survey needs: gradients and values as they are
        let growths = vec![Some(Growth { factor: 1.0, addend: 0.0 }); target.clients.len()];
        let limits = Limits::new(f64::INFINITY).with_rows_of(target, growths);
        loop {
            let nothing = Statement::new::<&str, &str>([]);
            let mut parties =
                [Server::new(&mut *survey, nothing, target.clients.len(), format.clone())
                    .limited(limits.clone())];
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
        let step = self.script.len() as u32;
        let mut asks: Vec<Frame> = Vec::with_capacity(shares.len());
        for (client, share) in shares.iter().enumerate() {
            // many sites with one share are told in one copy
            let same = client.checked_sub(1).filter(|before| shares[*before] == *share);
            let ask = same.map(|before| asks[before].clone()).unwrap_or_else(|| {
                let (centre, matrix) = (centre.to_vec(), matrix.to_vec());
                Frame::words(step, &Instruction::MoveTo { centre, matrix, share: *share })
            });
            asks.push(ask);
        }
        self.asked(asks, None, None).map(|_| ()).map_err(|broken| Lost(broken.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::MOST_WORDS;
    use consilience_engine::run::Progress;

    /// A site that answers again, since it came back, is counted once; texts are kept once.
    #[test]
    fn a_step_is_over_when_each_has_answered_however_often() {
        let mut step = Step::new(vec![Frame::words(0, &Instruction::Introduce); 3], None);
        let stated = |text: &str| Tell::Stated(text.into());
        for (client, missing) in [(1, 2), (1, 2), (0, 1), (1, 1), (2, 0), (0, 0)] {
            assert!(step.take(client, stated("prior: flat")));
            assert_eq!(step.missing, missing, "after site {client}");
        }
        assert!(!step.take(1, stated("prior: none")), "it said something else before");
        assert_eq!(step.answers, vec![Some(stated("prior: flat")); 3]);
    }

    /// A connection that was opened before the model was known may take less than the model's
    /// messages need: its site comes back by another, and is not turned away.
    #[test]
    fn a_site_comes_back_where_messages_are_longer_than_its_connection_takes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sites = ["short".to_owned(), "long".to_owned(), "by letter".to_owned()];
        let status = Arc::new(Status::new(&sites, Arc::new(Progress::default())));
        let (_events, events) = mpsc::channel(1);
        let most = Arc::new(AtomicUsize::new(0));
        let mut hub = Hub::new(
            runtime.handle().clone(),
            events,
            Box::new(|_| panic!("nobody is greeted")),
            Arc::clone(&most),
            status,
            None,
            true,
        );
        let mut far = Vec::new();
        let opened = [Some(MOST_WORDS), Some(2 * MOST_WORDS), None];
        for (place, most) in hub.places.iter_mut().zip(opened) {
            let (link, end) = Link::open(0, 3, most);
            place.link = Some(link);
            far.push(end);
        }
        hub.limit_messages(MOST_WORDS);
        assert!(hub.places.iter().all(|place| place.link.is_some()), "all take as much");
        hub.limit_messages(MOST_WORDS + 1);
        let there: Vec<bool> = hub.places.iter().map(|place| place.link.is_some()).collect();
        assert_eq!(there, [false, true, true]);
        let told = far[0].outward.try_recv().unwrap().unwrap_err();
        assert_eq!(told.code(), tonic::Code::Unavailable, "it tries again");
        assert_eq!(most.load(Ordering::Relaxed), MOST_WORDS + 1);
    }
}
