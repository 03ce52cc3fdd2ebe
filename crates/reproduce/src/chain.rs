//! Walk one chain and look at every draw.

use std::sync::atomic::Ordering;

use consilience_core::protocol::{Device, Event, Ledger, exchange};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Recipe};
use consilience_core::target::Target;
use consilience_engine::run::Progress;

use crate::experiment::Trouble;

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
            match exchange(&mut *server, &mut clients, &mut ledger) {
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
