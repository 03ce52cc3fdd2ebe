//! Simulate a server and its clients under faults: messages are lost, doubled and reordered, the
//! power fails anywhere, and the chain must be the one without faults.
//!
//! Everything follows from one number, so whatever goes wrong can be seen again. Time is virtual.
//! The parties are those of a deployment: [`DurableServer`] is what `consilience serve` runs, and
//! [`DurableClient`] what `consilience join` does, here on [`Simulated`] disks. Only the transport
//! is this module's, and stands for any: a client says hello when it (re)connects, the server gives
//! orders again that are not answered.
//!
//! What is compared, bit for bit: every draw when it is told; at every start of the server all
//! draws that it finds again, of which none may be missing that was told before; at the end of a
//! chain, after one more power cut, all draws, what stands beside them, and the ledger. A server
//! that finds one flipped bit on its disk has the same state as one that finds none, or names the
//! damaged file.
//!
//! Elastic rounds end without some sites. Their chain is a function of the seed and of who
//! answered, so it is compared with the chain in which the same sites stay away.

mod fair;
mod network;

pub use network::Weather;

use std::collections::VecDeque;

use consilience_core::protocol::{
    Client, Device, Event, Ledger, OrderRefusal, Output, Refusal, Statement,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Recipe, registry};
use consilience_core::target::Target;

use crate::chain_log::ChainLog;
use crate::config::Start;
use crate::draws::DrawSink;
use crate::plan::{Decision, Plan};
use crate::run::Length;
use crate::store::{
    Disk, DurableClient, DurableServer, Faults, ServedChain, ServerError, Silence, Simulated,
    StoreError, private_seed,
};
use fair::FairDay;
use network::{Agenda, Dice};

/// How many rounds the server may lose that the sites remember.
const AHEAD: u64 = 7;

/// The server asks again after so many ticks.
const PATIENCE: u64 = 25;

/// What is sampled.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The sampler.
    pub recipe: Recipe,
    /// The target, as [`Recipe::check`] gave it.
    pub target: Target,
    /// Where the chain starts.
    pub start: Vec<f64>,
    /// How many iterations the chain has.
    pub iterations: u64,
}

impl Setup {
    /// The plan of its one chain.
    pub fn plan(&self) -> Plan {
        let (start, b) = (self.start.clone(), self.target.clients.len());
        let length =
            Length { chains: 1, iterations: self.iterations, burn_in: 0, thin: 1, threads: 1 };
        Plan {
            row: &registry::AUTO, // nobody reads it here
            recipe: self.recipe.clone(),
            target: self.target.clone(),
            coordinates: None,
            length,
            begins: Start::Point(start.clone()),
            start,
            dispersion: 0.0,
            spread: None,
            layers: Vec::new(),
            findings: None,
            choice: None,
            forecast: None,
            survey: Ledger::new(b),
            warnings: Vec::new(),
            downhill: None,
            accelerator: None,
            decision: Decision {
                sampler: None,
                step: None,
                weights: None,
                chains: None,
                attempt: 0,
                halved: false,
            },
            halved: false,
            so_far: None,
        }
    }
}

/// When a simulation ends. A chain that ends before is followed by another, with another seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many draws.
    Draws(u64),
    /// After so many power cuts, whoever they hit.
    PowerCuts(u64),
    /// After so many power cuts that hit the server.
    ServerCuts(u64),
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chronicle {
    /// Chains that came to their end, each compared with that of a fair day.
    pub chains: u64,
    /// Draws that the server told, each compared with the chain of a fair day.
    pub draws: u64,
    /// Messages sent, lost and doubled.
    pub sent: u64,
    /// Of these lost, in the network or because nobody was there.
    pub lost: u64,
    /// Of these doubled.
    pub doubled: u64,
    /// How often somebody lost its power.
    pub power_cuts: u64,
    /// Of these, how often it was the server.
    pub server_cuts: u64,
    /// How many of the server's files a power cut left with a part of what was written last.
    pub torn: u64,
    /// Flipped bits on the server's disk whose file was named.
    pub flips_named: u64,
    /// Flipped bits on the server's disk that changed nothing.
    pub flips_harmless: u64,
    /// Orders and answers that were refused, all of them old or repeated.
    pub refused: u64,
    /// Elastic rounds that were closed without some sites.
    pub closed: u64,
    /// Ticks that passed.
    pub time: u64,
}

impl Chronicle {
    /// Add what happened elsewhere.
    pub fn add(&mut self, other: &Chronicle) {
        self.chains += other.chains;
        self.draws += other.draws;
        self.sent += other.sent;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.power_cuts += other.power_cuts;
        self.server_cuts += other.server_cuts;
        self.torn += other.torn;
        self.flips_named += other.flips_named;
        self.flips_harmless += other.flips_harmless;
        self.refused += other.refused;
        self.closed += other.closed;
        self.time += other.time;
    }

    fn reached(&self, until: Until) -> bool {
        match until {
            Until::Draws(n) => self.draws >= n,
            Until::PowerCuts(n) => self.power_cuts >= n,
            Until::ServerCuts(n) => self.server_cuts >= n,
        }
    }
}

enum Item {
    ToServer { from: usize, letter: Letter },
    ToClient { to: usize, letter: Letter },
    AskAgain { life: u64 },
    SayHello { client: usize, connection: u64 },
    ServerStarts,
    ClientStarts(usize),
    Partition,
}

#[derive(Clone)]
enum Letter {
    Hello {
        connection: u64,
        answered: u64,
    },
    Welcome {
        connection: u64,
    },
    Order(Vec<u8>),
    /// An answer, and how many gradients of single rows the site has evaluated by then.
    Answer(Vec<u8>, u64),
}

struct SimulatedSite {
    disk: Simulated,
    party: Option<DurableClient<Simulated, Box<dyn Device>>>,
    connection: u64,
    welcome: bool,
    cut_off_until: u64,
}

struct Simulation<'a> {
    plan: &'a Plan,
    statement: &'a Statement,
    weather: Weather,
    public: Seed,
    dice: Dice,
    agenda: Agenda<Item>,
    disk: Simulated,
    server: Option<DurableServer<'a, Simulated>>,
    /// How often the server has started.
    life: u64,
    /// How many draws the server has told.
    told: u64,
    /// How many draws there were when it started, or after each of its last rounds with answers:
    /// the oldest is that of the last round which it may not lose.
    recent: VecDeque<usize>,
    ended: bool,
    sites: Vec<SimulatedSite>,
    fair: FairDay<'a>,
    chronicle: Chronicle,
}

/// Let chains run. `Err` says what should not have happened, and the seed to see it again.
pub fn run(setup: &Setup, weather: Weather, seed: u64, until: Until) -> Result<Chronicle, String> {
    let (plan, statement) = (setup.plan(), Statement::new([("world", "simulated")]));
    let (mut chronicle, mut now) = (Chronicle::default(), seed);
    while !chronicle.reached(until) {
        chronicle = Simulation::new(&plan, &statement, weather, now, chronicle)
            .and_then(|world| world.run(until))
            .map_err(|problem| format!("seed {now}: {problem}"))?;
        now = now.wrapping_add(1_000_003);
    }
    Ok(chronicle)
}

impl<'a> Simulation<'a> {
    fn new(
        plan: &'a Plan,
        statement: &'a Statement,
        weather: Weather,
        seed: u64,
        chronicle: Chronicle,
    ) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let public = Seed::new(seed).chain(7);
        let mut disk = || Simulated::new(u64::from(dice.below(u32::MAX)), Faults::default());
        let server_disk = disk();
        let site = |disk| SimulatedSite {
            disk,
            party: None,
            connection: 0,
            welcome: false,
            cut_off_until: 0,
        };
        let sites: Vec<SimulatedSite> = plan.target.clients.iter().map(|_| site(disk())).collect();
        let mut agenda = Agenda::new();
        agenda.add(0, Item::ServerStarts);
        (0..sites.len()).for_each(|client| agenda.add(0, Item::ClientStarts(client)));
        if weather.partition_every > 0 {
            agenda.add(u64::from(weather.partition_every), Item::Partition);
        }
        let fair = FairDay::new(plan, public)?;
        Ok(Simulation {
            plan,
            statement,
            weather,
            public,
            dice,
            agenda,
            disk: server_disk,
            server: None,
            life: 0,
            told: 0,
            recent: VecDeque::new(),
            ended: false,
            sites,
            fair,
            chronicle,
        })
    }
}

impl<'a> Simulation<'a> {
    fn run(mut self, until: Until) -> Result<Chronicle, String> {
        while !self.ended && !self.chronicle.reached(until) {
            let Some(item) = self.agenda.next() else {
                return Err("nobody does anything any more".into());
            };
            let at = self.agenda.now();
            self.happen(item).map_err(|problem| format!("tick {at}: {problem}"))?;
        }
        self.chronicle.time += self.agenda.now();
        self.chronicle.torn += self.disk.torn();
        Ok(self.chronicle)
    }

    fn happen(&mut self, item: Item) -> Result<(), String> {
        match item {
            Item::ServerStarts => self.start_server(),
            Item::ClientStarts(client) => self.start_client(client),
            Item::ToServer { from, letter } => self.server_reads(from, letter),
            Item::ToClient { to, letter } => self.client_reads(to, letter),
            Item::AskAgain { life } if life == self.life && self.server.is_some() => {
                self.agenda.add(PATIENCE, Item::AskAgain { life });
                self.ask_again(None);
                self.close()
            }
            Item::SayHello { client, connection } => {
                self.say_hello(client, connection);
                Ok(())
            }
            Item::Partition => {
                let client = self.dice.below(self.sites.len() as u32) as usize;
                let lasts = u64::from(self.dice.below(self.weather.partition_lasts));
                self.sites[client].cut_off_until = self.agenda.now() + lasts;
                self.agenda.add(u64::from(self.weather.partition_every), Item::Partition);
                Ok(())
            }
            Item::AskAgain { .. } => Ok(()),
        }
    }

    /// End a round without those who have not answered, where the sampler allows it: now and then,
    /// so that others are complete.
    fn close(&mut self) -> Result<(), String> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let draws = server.so_far().len() / self.plan.target.dim();
        if !self.dice.chance(500) {
            return Ok(());
        }
        let Some(absent) = server.close() else { return Ok(()) };
        self.chronicle.closed += 1;
        self.fair.closed(draws, absent);
        self.serve()
    }

    /// Send a letter, if the network lets it.
    fn post(&mut self, client: usize, letter: &Letter, item: impl Fn(usize, Letter) -> Item) {
        self.chronicle.sent += 1;
        if self.dice.chance(self.weather.loss)
            || self.agenda.now() < self.sites[client].cut_off_until
        {
            self.chronicle.lost += 1;
            return;
        }
        let twice = self.dice.chance(self.weather.doubling);
        self.chronicle.doubled += u64::from(twice);
        for _ in 0..=usize::from(twice) {
            let delay = 1 + u64::from(self.dice.below(self.weather.delay));
            self.agenda.add(delay, item(client, letter.clone()));
        }
    }

    fn send_down(&mut self, to: usize, letter: &Letter) {
        self.post(to, letter, |to, letter| Item::ToClient { to, letter });
    }

    fn send_up(&mut self, from: usize, letter: &Letter) {
        self.post(from, letter, |from, letter| Item::ToServer { from, letter });
    }

    /// Decide when a disk loses its power next.
    fn light_fuse(&mut self, disk: &Simulated) {
        if self.weather.power > 0 {
            disk.fail_after(u64::from(self.dice.below(2 * self.weather.power)));
        }
    }

    /// What a failure of the store means: the power is off, or something is wrong.
    fn power_or_problem(&mut self, disk: &Simulated, error: &StoreError) -> Result<(), String> {
        if !disk.is_dark() {
            return Err(error.to_string());
        }
        disk.power_cut();
        self.chronicle.power_cuts += 1;
        Ok(())
    }

    /// The server as a disk knows it.
    fn open_server(
        &self,
        disk: Simulated,
    ) -> Result<(DurableServer<'a, Simulated>, Vec<String>), ServerError> {
        let served = ServedChain {
            plan: self.plan,
            run: &self.plan.length,
            index: 0,
            // it has no use for the second
            keys: Keys { public: self.public, private: Seed::new(0) },
            statement: self.statement,
            largest_norm: f64::INFINITY,
            ahead: AHEAD,
        };
        let chain_log = ChainLog::new(DrawSink::Memory(Vec::new()), self.plan.target.dim());
        DurableServer::open(served, chain_log, Some(disk))
    }

    fn start_server(&mut self) -> Result<(), String> {
        let disk = self.disk.clone();
        self.light_fuse(&disk);
        let opened = self.open_server(disk);
        self.life += 1;
        match opened {
            Ok((mut server, warnings)) => {
                if let Some(warning) = warnings.first() {
                    return Err(warning.clone());
                }
                self.fair.compare(0, server.so_far())?;
                self.fair.reopened(server.so_far().len() / self.plan.target.dim());
                self.nothing_is_lost(&server)?;
                self.recent = VecDeque::from([server.so_far().len() / self.plan.target.dim()]);
                if self.dice.chance(self.weather.flips) {
                    self.flip_a_bit(&mut server)?;
                }
                self.server = Some(server);
                // Whoever was connected notices, sooner or later.
                for client in 0..self.sites.len() {
                    self.sites[client].welcome = false;
                    self.connect(client);
                }
                self.agenda.add(PATIENCE, Item::AskAgain { life: self.life });
                self.serve()
            }
            Err(error) => self.server_fails(&error),
        }
    }

    /// What a failure of the server means: its power is off, or something is wrong.
    fn server_fails(&mut self, error: &ServerError) -> Result<(), String> {
        self.server = None;
        let ServerError::Store(error) = error else { return Err(error.to_string()) };
        let disk = self.disk.clone();
        self.power_or_problem(&disk, error)?;
        self.chronicle.server_cuts += 1;
        self.agenda.add(1 + u64::from(self.dice.below(self.weather.away)), Item::ServerStarts);
        Ok(())
    }

    /// Open the server once more, on a copy of its disk that has one bit flipped: it has the same
    /// state, or names the file.
    fn flip_a_bit(&mut self, server: &mut DurableServer<'a, Simulated>) -> Result<(), String> {
        let copy = self.disk.copy(u64::from(self.dice.below(u32::MAX)));
        let text = |e: std::io::Error| e.to_string();
        let files = copy.list().map_err(text)?;
        let Some(file) = files.get(self.dice.below(files.len() as u32) as usize) else {
            return Ok(());
        };
        let bits = copy.read(file).map_err(text)?.map_or(0, |bytes| 8 * bytes.len());
        if bits == 0 {
            return Ok(());
        }
        let bit = self.dice.below(bits as u32);
        copy.flip(file, bit as usize);
        match self.open_server(copy) {
            Ok((mut other, _)) => {
                self.chronicle.flips_harmless += 1;
                let changed = || format!("bit {bit} of {file} was flipped, and changed the state");
                if other.state() == server.state() { Ok(()) } else { Err(changed()) }
            }
            Err(ServerError::Store(StoreError::Damaged { file: named, .. })) if named == *file => {
                self.chronicle.flips_named += 1;
                Ok(())
            }
            Err(error) => Err(format!("bit {bit} of {file} was flipped: {error}")),
        }
    }

    fn start_client(&mut self, client: usize) -> Result<(), String> {
        let mut disk = self.sites[client].disk.clone();
        self.light_fuse(&disk);
        let Plan { recipe, target, .. } = self.plan;
        let opened = private_seed(&mut disk, |seed| {
            seed.copy_from_slice(&fair::secret(client));
            Ok(())
        })
        .and_then(|private| {
            let keys = Keys { public: self.public, private };
            let made = || {
                Ok::<_, consilience_core::error::DataError>((
                    recipe.client(target, ClientId(client as u32), keys)?,
                    recipe.format(target, keys)?,
                ))
            };
            let (device, format) = made().map_err(|e| StoreError::Unfit {
                file: "the recipe".into(),
                problem: e.to_string(),
            })?;
            DurableClient::open(disk.clone(), Client::new(device, format).keeping(AHEAD))
        });
        match opened {
            Ok((party, warnings)) => {
                if let Some(warning) = warnings.first() {
                    return Err(warning.clone());
                }
                self.sites[client].party = Some(party);
                self.connect(client);
            }
            Err(error) => {
                self.power_or_problem(&disk, &error)?;
                self.agenda.add(
                    1 + u64::from(self.dice.below(self.weather.away)),
                    Item::ClientStarts(client),
                );
            }
        }
        Ok(())
    }

    fn connect(&mut self, client: usize) {
        self.sites[client].connection += 1;
        let connection = self.sites[client].connection;
        self.agenda.add(
            1 + u64::from(self.dice.below(self.weather.delay)),
            Item::SayHello { client, connection },
        );
    }

    /// Say hello until there is a welcome.
    fn say_hello(&mut self, client: usize, connection: u64) {
        let site = &self.sites[client];
        let Some(party) =
            site.party.as_ref().filter(|_| !site.welcome && site.connection == connection)
        else {
            return;
        };
        let answered = party.client().answered();
        self.send_up(client, &Letter::Hello { connection, answered });
        self.agenda.add(PATIENCE, Item::SayHello { client, connection });
    }

    fn server_reads(&mut self, from: usize, letter: Letter) -> Result<(), String> {
        let Some(server) = &mut self.server else {
            self.chronicle.lost += 1;
            return Ok(());
        };
        let id = ClientId(from as u32);
        match letter {
            Letter::Hello { connection, answered } => {
                // A hello that was overtaken by its own answers is old, and no loss of memory.
                if connection != self.sites[from].connection || self.sites[from].welcome {
                    return Ok(());
                }
                server.server().welcome(id, answered).map_err(|e| e.to_string())?;
                self.send_down(from, &Letter::Welcome { connection });
                self.ask_again(Some(id));
                Ok(())
            }
            Letter::Answer(bytes, rows) => {
                match server.handle(id, &bytes, rows) {
                    Ok(()) => {}
                    // Of another round; the kind of answer differs where two orders share a round.
                    Err(
                        Refusal::Twice { .. }
                        | Refusal::WrongRound { .. }
                        | Refusal::NotAsked { .. }
                        | Refusal::Malformed { .. },
                    ) => {
                        self.chronicle.refused += 1;
                    }
                    Err(other) => return Err(other.to_string()),
                }
                self.serve()
            }
            Letter::Welcome { .. } | Letter::Order(_) => Ok(()),
        }
    }

    /// Do what the server wants done.
    fn serve(&mut self) -> Result<(), String> {
        let d = self.plan.target.dim() as u64;
        loop {
            let Some(server) = &mut self.server else { return Ok(()) };
            if !server.goes_on() {
                return match server.rest() {
                    Ok(()) => self.end(),
                    Err(error) => self.server_fails(&error.into()),
                };
            }
            if self.dice.chance(5) {
                server.checkpoint();
            }
            let asks = !server.server().machine().cohort().is_empty();
            match server.poll() {
                Ok(None) => return Ok(()),
                Ok(Some(Output::Send { to, bytes })) => {
                    self.send_down(to.index(), &Letter::Order(bytes))
                }
                Ok(Some(Output::Happened(event @ (Event::Draw | Event::Nothing)))) => {
                    let draws = server.so_far().len() as u64 / d;
                    if event == Event::Draw {
                        self.fair.compare(draws as usize - 1, server.so_far())?;
                        self.chronicle.draws += u64::from(draws > self.told);
                        self.told = self.told.max(draws);
                    }
                    if asks {
                        self.recent.push_back(draws as usize); // a round that is written down
                    }
                    if self.recent.len() as u64 > AHEAD + 1 {
                        self.recent.pop_front();
                    }
                }
                Ok(Some(Output::Happened(event))) => {
                    return Err(format!("the chain ended: {event:?}"));
                }
                Err(error) => return self.server_fails(&error),
            }
        }
    }

    /// A server that starts has all draws that anybody was told of, but for those of the last
    /// rounds, which the sites lead to again.
    fn nothing_is_lost(&self, server: &DurableServer<'a, Simulated>) -> Result<(), String> {
        let has = server.so_far().len() / self.plan.target.dim();
        match self.recent.front() {
            Some(least) if has < *least => {
                Err(format!("{least} draws were there {AHEAD} rounds ago, and {has} are left"))
            }
            _ => Ok(()),
        }
    }

    /// The chain has ended: after one more power cut all of it is there.
    fn end(&mut self) -> Result<(), String> {
        self.server = None;
        self.disk.power_cut();
        self.chronicle.power_cuts += 1;
        self.chronicle.server_cuts += 1;
        let opened = self.open_server(self.disk.clone());
        let (server, warnings) = opened.map_err(|error| error.to_string())?;
        if let Some(warning) = warnings.first() {
            return Err(warning.clone());
        }
        self.nothing_is_lost(&server)?;
        if server.goes_on() {
            return Err("the chain had ended, and is open again".into());
        }
        self.fair.compare_end(&server.left_behind(), server.ledger())?;
        self.chronicle.chains += 1;
        self.ended = true;
        Ok(())
    }

    /// Give the orders again that are not answered.
    fn ask_again(&mut self, only: Option<ClientId>) {
        let Some(server) = &self.server else { return };
        let server = server.server();
        let whom: Vec<ClientId> =
            only.map_or_else(|| server.outstanding().collect(), |id| vec![id]);
        let orders: Vec<(ClientId, Vec<u8>)> =
            whom.into_iter().filter_map(|id| Some((id, server.again(id)?))).collect();
        for (to, bytes) in orders {
            self.send_down(to.index(), &Letter::Order(bytes));
        }
    }

    fn client_reads(&mut self, to: usize, letter: Letter) -> Result<(), String> {
        let forgetful = self.dice.chance(5);
        let site = &mut self.sites[to];
        let Some(party) = &mut site.party else {
            self.chronicle.lost += 1;
            return Ok(());
        };
        match letter {
            Letter::Welcome { connection } if connection == site.connection => site.welcome = true,
            Letter::Order(order) if site.welcome => {
                let mut answer = Vec::new();
                let saved = if forgetful { party.checkpoint() } else { Ok(()) };
                match saved.map_err(Silence::Store).and_then(|()| party.handle(&order, &mut answer))
                {
                    Ok(_) => {
                        let rows = party.client().told_rows();
                        self.send_up(to, &Letter::Answer(answer, rows));
                    }
                    Err(Silence::Refused(OrderRefusal::Old { .. } | OrderRefusal::Used { .. })) => {
                        self.chronicle.refused += 1
                    }
                    Err(Silence::Refused(other)) => return Err(format!("client {to}: {other}")),
                    Err(Silence::Store(error)) => {
                        let disk = site.disk.clone();
                        (site.party, site.welcome) = (None, false);
                        self.power_or_problem(&disk, &error)?;
                        self.agenda.add(
                            1 + u64::from(self.dice.below(self.weather.away)),
                            Item::ClientStarts(to),
                        );
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
