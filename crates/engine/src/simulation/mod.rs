//! Run a server and its clients in a simulated world: messages are lost, doubled and reordered, the
//! power fails anywhere, and the chain must be the one of a fair day.
//!
//! Everything follows from one number, so whatever goes wrong can be seen again. Time is virtual.
//! The parties are those of a deployment, [`DurableServer`] and [`DurableClient`], on [`Simulated`]
//! disks; only the transport is this module's, and stands for any: a client says hello when it
//! (re)connects, the server gives orders again that are not answered.

mod fair;
mod network;

pub use network::Weather;

use consilience_core::protocol::{
    Client, Device, Event, OrderRefusal, Output, Refusal, Server, Statement,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Recipe, Sampler};
use consilience_core::target::Target;

use crate::store::{
    DurableClient, DurableServer, Faults, Silence, Simulated, StoreError, private_seed,
};
use fair::FairDay;
use network::{Agenda, Dice};

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
}

/// When a world ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many draws.
    Draws(u64),
    /// After so many power cuts.
    PowerCuts(u64),
}

/// What happened in a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chronicle {
    /// Draws, each compared with the chain of a fair day.
    pub draws: u64,
    /// Messages sent, lost and doubled.
    pub sent: u64,
    /// Of these lost, in the network or because nobody was there.
    pub lost: u64,
    /// Of these doubled.
    pub doubled: u64,
    /// How often somebody lost its power.
    pub power_cuts: u64,
    /// Orders and answers that were refused, all of them old or repeated.
    pub refused: u64,
    /// Ticks that passed.
    pub time: u64,
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
    Hello { connection: u64, answered: u64 },
    Welcome { connection: u64 },
    Message(Vec<u8>),
}

struct SimulatedSite {
    disk: Simulated,
    party: Option<DurableClient<Simulated, Box<dyn Device>>>,
    connection: u64,
    welcome: bool,
    cut_off_until: u64,
}

struct Simulation<'a> {
    setup: &'a Setup,
    weather: Weather,
    public: Seed,
    dice: Dice,
    agenda: Agenda<Item>,
    disk: Simulated,
    server: Option<DurableServer<Simulated, Box<dyn Sampler>>>,
    /// How often the server has started.
    life: u64,
    sites: Vec<SimulatedSite>,
    fair: FairDay,
    chronicle: Chronicle,
}

/// Let a world run. `Err` says what should not have happened, and the seed to see it again.
pub fn run(setup: &Setup, weather: Weather, seed: u64, until: Until) -> Result<Chronicle, String> {
    Simulation::new(setup, weather, seed)
        .and_then(|world| world.run(until))
        .map_err(|problem| format!("seed {seed}: {problem}"))
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup, weather: Weather, seed: u64) -> Result<Self, String> {
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
        let sites: Vec<SimulatedSite> = setup.target.clients.iter().map(|_| site(disk())).collect();
        let mut agenda = Agenda::new();
        agenda.add(0, Item::ServerStarts);
        (0..sites.len()).for_each(|client| agenda.add(0, Item::ClientStarts(client)));
        if weather.partition_every > 0 {
            agenda.add(u64::from(weather.partition_every), Item::Partition);
        }
        let fair = FairDay::new(setup, public)?;
        let chronicle = Chronicle::default();
        Ok(Simulation {
            setup,
            weather,
            public,
            dice,
            agenda,
            disk: server_disk,
            server: None,
            life: 0,
            sites,
            fair,
            chronicle,
        })
    }
}

impl Simulation<'_> {
    fn run(mut self, until: Until) -> Result<Chronicle, String> {
        loop {
            let reached = match until {
                Until::Draws(n) => self.chronicle.draws >= n,
                Until::PowerCuts(n) => self.chronicle.power_cuts >= n,
            };
            if reached {
                self.chronicle.time = self.agenda.now();
                return Ok(self.chronicle);
            }
            let Some(item) = self.agenda.next() else {
                return Err("nobody does anything any more".into());
            };
            let at = self.agenda.now();
            self.happen(item).map_err(|problem| format!("tick {at}: {problem}"))?;
        }
    }

    fn happen(&mut self, item: Item) -> Result<(), String> {
        match item {
            Item::ServerStarts => self.start_server(),
            Item::ClientStarts(client) => self.start_client(client),
            Item::ToServer { from, letter } => self.server_reads(from, letter),
            Item::ToClient { to, letter } => self.client_reads(to, letter),
            Item::AskAgain { life } if life == self.life && self.server.is_some() => {
                self.ask_again(None);
                self.agenda.add(PATIENCE, Item::AskAgain { life });
                Ok(())
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

    fn start_server(&mut self) -> Result<(), String> {
        let disk = self.disk.clone();
        self.light_fuse(&disk);
        // it has no use for the second
        let keys = Keys { public: self.public, private: Seed::new(0) };
        let Setup { recipe, target, start } = self.setup;
        let made = || {
            Ok::<_, consilience_core::error::DataError>((
                recipe.server(target, start, keys)?,
                recipe.format(target, keys)?,
            ))
        };
        let (machine, format) = made().map_err(|e| e.to_string())?;
        let fresh = Server::new(
            machine,
            Statement::new([("world", "simulated")]),
            target.clients.len(),
            format,
        );
        let (mut draws, mut wrong) = (self.chronicle.draws, None);
        let fair = &mut self.fair;
        let opened = DurableServer::open(disk.clone(), fresh, |number, machine| {
            draws = draws.max(number + 1);
            wrong = fair.compare(number, machine.position()).err().or(wrong.take());
        });
        self.chronicle.draws = draws;
        if let Some(problem) = wrong {
            return Err(problem);
        }
        self.life += 1;
        match opened {
            Ok((server, warnings)) => {
                if let Some(warning) = warnings.first() {
                    return Err(warning.clone());
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
            Err(error) => {
                self.power_or_problem(&disk, &error)?;
                self.agenda
                    .add(1 + u64::from(self.dice.below(self.weather.away)), Item::ServerStarts);
                Ok(())
            }
        }
    }

    fn start_client(&mut self, client: usize) -> Result<(), String> {
        let mut disk = self.sites[client].disk.clone();
        self.light_fuse(&disk);
        let Setup { recipe, target, .. } = self.setup;
        let opened = private_seed(&mut disk, |seed| {
            seed.fill(client as u8 + 1);
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
            DurableClient::open(disk.clone(), Client::new(device, format))
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
            Letter::Message(bytes) => {
                match server.handle(id, &bytes) {
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
            Letter::Welcome { .. } => Ok(()),
        }
    }

    /// Do what the server wants done.
    fn serve(&mut self) -> Result<(), String> {
        loop {
            let Some(server) = &mut self.server else { return Ok(()) };
            let saved = if self.dice.chance(5) { server.checkpoint() } else { Ok(()) };
            match saved.and_then(|()| server.poll()) {
                Ok(None) => return Ok(()),
                Ok(Some(Output::Send { to, bytes })) => {
                    self.send_down(to.index(), &Letter::Message(bytes))
                }
                Ok(Some(Output::Happened(Event::Draw))) => {
                    let number = server.draws() - 1;
                    self.fair.compare(number, server.server().machine().position())?;
                    self.chronicle.draws = self.chronicle.draws.max(number + 1);
                }
                Ok(Some(Output::Happened(Event::Nothing))) => {}
                Ok(Some(Output::Happened(event))) => {
                    return Err(format!("the chain ended: {event:?}"));
                }
                Err(error) => {
                    self.server = None;
                    let disk = self.disk.clone();
                    self.power_or_problem(&disk, &error)?;
                    self.agenda
                        .add(1 + u64::from(self.dice.below(self.weather.away)), Item::ServerStarts);
                    return Ok(());
                }
            }
        }
    }

    /// Give the orders again that are not answered.
    fn ask_again(&mut self, only: Option<ClientId>) {
        let Some(server) = &self.server else { return };
        let server = server.server();
        let orders: Vec<(ClientId, Vec<u8>)> = server
            .outstanding()
            .filter(|id| only.is_none_or(|o| o == *id))
            .filter_map(|id| Some((id, server.again(id)?)))
            .collect();
        for (to, bytes) in orders {
            self.send_down(to.index(), &Letter::Message(bytes));
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
            Letter::Message(order) if site.welcome => {
                let mut answer = Vec::new();
                let saved = if forgetful { party.checkpoint() } else { Ok(()) };
                match saved.map_err(Silence::Store).and_then(|()| party.handle(&order, &mut answer))
                {
                    Ok(_) => self.send_up(to, &Letter::Message(answer)),
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
