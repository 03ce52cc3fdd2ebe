//! Walk one chain and look at every draw.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use consilience_core::model::Model;
use consilience_core::protocol::{Device, Event, Jointly, Ledger, exchange};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Recipe};
use consilience_core::target::Target;
use consilience_engine::run::{Progress, exchange_spread};

use crate::experiment::Trouble;

/// What computes a chain's gradients.
#[derive(Debug, Default)]
pub struct Hands {
    /// A model that answers all clients in one call; `None`: their own.
    pub joint: Option<Arc<dyn Model>>,
    /// Over so many threads the clients are spread, if over several.
    pub threads: usize,
}

/// How many exchanges pass between two looks at the stop sign.
const PATIENCE: u64 = 256;

/// One chain of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// The sampler.
    pub recipe: &'a Recipe,
    /// What it samples.
    pub target: &'a Target,
    /// Where it starts.
    pub start: &'a [f64],
    /// The seed of the experiment.
    pub seed: u64,
    /// Which of its chains this is.
    pub index: u32,
}

impl Chain<'_> {
    /// Go so many iterations; look at every draw (iteration, position, what was sent so far). One
    /// iteration is one unit of progress.
    pub fn walk(
        &self,
        iterations: u64,
        progress: &Progress,
        look: impl FnMut(u64, &[f64], &Ledger) + Send,
    ) -> Result<Ledger, Trouble> {
        self.walked(None, false, iterations, progress, look)
    }

    /// The same chain, bit for bit, computed by others. Where these are threads they are its own: a
    /// thread that waits for one of them takes up no other work meanwhile.
    pub fn walk_with(
        &self,
        hands: &Hands,
        iterations: u64,
        progress: &Progress,
        look: impl FnMut(u64, &[f64], &Ledger) + Send,
    ) -> Result<Ledger, Trouble> {
        let spread = hands.threads > 1;
        if hands.joint.is_none() && !spread {
            return self.walk(iterations, progress, look);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(hands.threads.max(1)).build();
        let pool = pool.map_err(|error| Trouble::Other(error.to_string()))?;
        let joint = hands.joint.clone().map(Jointly::new);
        let walk = || pool.install(|| self.walked(joint, spread, iterations, progress, look));
        std::thread::scope(|scope| scope.spawn(walk).join())
            .unwrap_or_else(|_| Err(Trouble::Other("a chain's thread failed".into())))
    }

    fn walked(
        &self,
        mut joint: Option<Jointly>,
        spread: bool,
        iterations: u64,
        progress: &Progress,
        mut look: impl FnMut(u64, &[f64], &Ledger),
    ) -> Result<Ledger, Trouble> {
        let target = self.recipe.check(self.target.clone())?;
        let keys = Keys::simulation(Seed::new(self.seed), self.index);
        let mut server = self.recipe.server(&target, self.start, keys)?;
        let clients = 0..target.clients.len() as u32;
        let mut clients: Vec<Box<dyn Device>> = clients
            .map(|i| self.recipe.client(&target, ClientId(i), keys))
            .collect::<Result<_, _>>()?;
        let mut ledger = Ledger::new(clients.len());
        let (mut exchanges, mut reported) = (0u64, 0u64);
        while server.iteration() < iterations {
            let event = match &mut joint {
                Some(joint) => joint
                    .exchange(&mut *server, &mut clients, &mut ledger)
                    .map_err(|error| Trouble::Other(error.to_string()))?,
                None if spread => exchange_spread(&mut *server, &mut clients, &mut ledger),
                None => exchange(&mut *server, &mut clients, &mut ledger),
            };
            match event {
                Event::Draw => look(server.iteration(), server.position(), &ledger),
                Event::Diverged => {
                    return Err(Trouble::Diverged {
                        cell: String::new(),
                        iteration: server.iteration(),
                    });
                }
                Event::Nothing | Event::Done => {}
            }
            exchanges += 1;
            if exchanges.is_multiple_of(PATIENCE) {
                progress.done.fetch_add(server.iteration() - reported, Ordering::Relaxed);
                reported = server.iteration();
                if progress.stop.load(Ordering::Relaxed) {
                    return Err(Trouble::Stopped);
                }
            }
        }
        progress.done.fetch_add(server.iteration() - reported, Ordering::Relaxed);
        Ok(ledger)
    }
}
