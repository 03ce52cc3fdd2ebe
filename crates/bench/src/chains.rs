//! Run chains of a library sampler, spread over threads, with running statistics beside each. Where
//! there are more threads than chains, the clients of a chain are spread, as the engine does it.

use std::sync::Arc;

use consilience_core::protocol::{
    Device, Direction, Event, Exchange, Jointly, Kind, Ledger, Reply, devices_of, exchange,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Recipe, Sampler};
use consilience_core::target::Target;
use rayon::prelude::*;

use crate::How;
use crate::timing::{Timed, best_of, pin_to_one_core};

/// Who looks at a chain while it runs.
pub trait Watch: Send {
    /// The newest draw stands at the server's position.
    fn draw(&mut self, server: &dyn Sampler);
}

/// Chains that have run, what was noted beside them, and how long an `iters` took.
pub struct Finished<W> {
    /// The best repeat.
    pub timed: Timed,
    /// One a chain.
    pub watches: Vec<W>,
    /// Mean bits of an answer, header apart.
    pub bits_up: f64,
}

/// Run all chains, `how.repeats` times and once before that.
pub fn run<W: Watch>(
    how: &How,
    recipe: &Recipe,
    target: Target,
    start: &[f64],
    watch: impl Fn(Keys) -> W,
) -> Result<Finished<W>, String> {
    let target = recipe.check(target).map_err(|e| e.to_string())?;
    let made = (0..how.chains).map(|c| {
        Chain::new(recipe, &target, start, Keys::simulation(Seed::new(how.seed), c), &watch)
    });
    let mut chains = made.collect::<Result<Vec<Chain<W>>, String>>()?;
    if how.threads <= 1 {
        pin_to_one_core();
    }
    let spread = how.threads > chains.len() && target.joint.is_none();
    let pool = match spread {
        true => Some(
            rayon::ThreadPoolBuilder::new()
                .num_threads(how.threads)
                .build()
                .map_err(|e| e.to_string())?,
        ),
        false => None,
    };
    chains.iter_mut().for_each(|chain| chain.spread = spread);
    let share = chains.len().div_ceil(how.threads.max(1)).max(1);
    let asked = (how.iters * u64::from(how.chains)) as f64;
    let timed = best_of(how.repeats, || {
        if how.threads <= 1 {
            return Ok(run_each(&mut chains, how.iters)? as f64 / asked);
        }
        if let Some(pool) = &pool {
            let done = pool.install(|| run_each(&mut chains, how.iters))?;
            return Ok(done as f64 / asked);
        }
        std::thread::scope(|scope| {
            let spawn = |part| scope.spawn(move || run_each(part, how.iters));
            let threads: Vec<_> = chains.chunks_mut(share).map(spawn).collect();
            let mut done = 0;
            for thread in threads {
                done += thread.join().map_err(|_| "a thread panicked".to_owned())??;
            }
            Ok(done as f64 / asked)
        })
    })?;
    let messages: u64 = chains.iter().map(|c| c.ledger.messages(Direction::Up)).sum();
    let sent =
        |c: &Chain<W>| c.ledger.total(Direction::Up) - c.ledger.bits(Direction::Up, Kind::Header);
    let bits_up = chains.iter().map(sent).sum::<u64>() as f64 / messages as f64;
    Ok(Finished { timed, watches: chains.into_iter().map(|c| c.watch).collect(), bits_up })
}

/// How many iterations they did.
fn run_each<W: Watch>(chains: &mut [Chain<W>], iterations: u64) -> Result<u64, String> {
    chains.iter_mut().map(|chain| chain.run(iterations)).sum()
}

struct Chain<W> {
    server: Box<dyn Sampler>,
    clients: Vec<Box<dyn Device>>,
    ledger: Ledger,
    /// Who answers all clients, where that is not each for itself.
    joint: Option<Jointly>,
    watch: W,
    /// Whether its clients are spread over the threads of a pool.
    spread: bool,
    /// How many iterations it should have done: a walk that went beyond is not counted twice.
    goal: u64,
}

impl<W: Watch> Chain<W> {
    fn new(
        recipe: &Recipe,
        target: &Target,
        start: &[f64],
        keys: Keys,
        watch: impl Fn(Keys) -> W,
    ) -> Result<Self, String> {
        let b = target.clients.len();
        let clients = (0..b as u32).map(|i| recipe.client(target, ClientId(i), keys));
        Ok(Chain {
            server: recipe.server(target, start, keys).map_err(|e| e.to_string())?,
            clients: clients.collect::<Result<_, _>>().map_err(|e| e.to_string())?,
            ledger: Ledger::new(b),
            joint: target.joint.as_ref().map(|joint| Jointly::new(Arc::clone(joint))),
            watch: watch(keys),
            spread: false,
            goal: 0,
        })
    }

    fn run(&mut self, iterations: u64) -> Result<u64, String> {
        self.goal += iterations;
        let before = self.server.iteration();
        while self.server.iteration() < self.goal {
            let (server, clients) = (&mut *self.server, &mut self.clients);
            let event = match &mut self.joint {
                Some(joint) => joint
                    .exchange(server, clients, &mut self.ledger)
                    .map_err(|error| error.to_string())?,
                None if self.spread => exchange_spread(server, clients, &mut self.ledger),
                None => exchange(server, clients, &mut self.ledger),
            };
            match event {
                Event::Draw => self.watch.draw(&*self.server),
                Event::Nothing | Event::Done => {}
                Event::Diverged => {
                    return Err(format!(
                        "the chain diverged at iteration {}",
                        self.server.iteration()
                    ));
                }
            }
        }
        Ok(self.server.iteration() - before)
    }
}

/// One exchange with the clients spread over threads; their answers are added in their order.
fn exchange_spread(
    server: &mut dyn Sampler,
    clients: &mut [Box<dyn Device>],
    ledger: &mut Ledger,
) -> Event {
    let asked: Vec<ClientId> = server.cohort().to_vec();
    let orders: Vec<_> = asked.iter().map(|id| server.order(*id)).collect();
    for (id, order) in asked.iter().zip(&orders) {
        ledger.down(*id, order);
    }
    let active: Vec<&mut Box<dyn Device>> = devices_of(&asked, clients).collect();
    let replies: Vec<Reply<'_>> =
        active.into_par_iter().zip(&orders).map(|(client, order)| client.answer(order)).collect();
    drop(orders);
    for (id, reply) in asked.iter().zip(&replies) {
        ledger.up(*id, reply);
        Exchange::absorb(server, *id, reply);
    }
    server.advance()
}

/// First and second moments about a centre.
pub struct Moments {
    centre: Vec<f64>,
    /// `sum (x - centre)`.
    pub sum: Vec<f64>,
    /// `sum norm(x - centre)^2`.
    pub squares: f64,
    /// How many draws.
    pub samples: u64,
}

impl Moments {
    /// None so far.
    pub fn about(centre: &[f64]) -> Self {
        Moments { centre: centre.to_vec(), sum: vec![0.0; centre.len()], squares: 0.0, samples: 0 }
    }

    /// Those of all chains together.
    pub fn merged(all: Vec<Moments>) -> Self {
        let mut all = all.into_iter();
        let first = all.next().unwrap_or_else(|| Moments::about(&[]));
        all.fold(first, |mut total, next| {
            total.sum.iter_mut().zip(&next.sum).for_each(|(a, b)| *a += b);
            total.squares += next.squares;
            total.samples += next.samples;
            total
        })
    }

    /// The mean of the draws.
    pub fn mean(&self) -> Vec<f64> {
        self.centre.iter().zip(&self.sum).map(|(c, s)| c + s / self.samples as f64).collect()
    }
}

impl Watch for Moments {
    fn draw(&mut self, server: &dyn Sampler) {
        let mut squares = 0.0;
        for ((x, centre), sum) in server.position().iter().zip(&self.centre).zip(&mut self.sum) {
            let moved = x - centre;
            *sum += moved;
            squares += moved * moved;
        }
        self.squares += squares;
        self.samples += 1;
    }
}
