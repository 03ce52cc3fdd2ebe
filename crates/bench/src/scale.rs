//! Simulate many clients of which few take part in a round, and say what a round and a client cost.

use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use consilience_core::compress::Compressor;
use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::protocol::{Direction, Event, Ledger, exchange};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Batch, Keys, Participation, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

use crate::files::normals;
use crate::report::Fields;
use crate::timing::cpu_seconds;

/// How many clients have rows of their own: the others share them, so that memory is that of
/// clients, not of data.
const DIFFERENT: usize = 1000;

/// What may be chosen.
#[derive(Debug, Args)]
pub struct Scale {
    /// Clients.
    #[arg(long, default_value_t = 1_000_000)]
    clients: usize,
    /// The probability that a client takes part in a round.
    #[arg(long, default_value_t = 0.001)]
    participation: f64,
    /// Parameters.
    #[arg(long, default_value_t = 100)]
    dim: usize,
    /// Rounds.
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// Make all clients before the first round.
    #[arg(long)]
    eager: bool,
}

impl Scale {
    pub fn run(&self) -> Result<String, String> {
        let (b, d) = (self.clients, self.dim);
        let rows: Vec<Arc<dyn Model>> = (0..DIFFERENT.min(b))
            .map(|i| {
                Ok(Arc::new(Isotropic::new(normals(i, 20 * d), d).map_err(|e| e.to_string())?)
                    as Arc<dyn Model>)
            })
            .collect::<Result<_, String>>()?;
        let empty = resident_bytes();
        let clock = Instant::now();
        let target = Target::new(
            (0..b).map(|i| Arc::clone(&rows[i % rows.len()])).collect(),
            Prior::Flat,
            Placement::Server,
            1.0,
        );
        let mut recipe = Uplink::qlsd(
            Schedule::Constant(0.01 / (20 * b) as f64),
            Batch::Fraction(0.1),
            Compressor::qsgd(16),
        );
        recipe.participation = Participation::Bernoulli(vec![self.participation; b]);
        let (recipe, keys) = (Recipe::Uplink(recipe), Keys::simulation(Seed::new(1), 0));
        let target =
            Arc::new(target.and_then(|target| recipe.check(target)).map_err(|e| e.to_string())?);
        let mut server = recipe.server(&target, &vec![0.0; d], keys).map_err(|e| e.to_string())?;
        let mut clients = if self.eager {
            (0..b as u32).map(|i| recipe.client(&target, ClientId(i), keys)).collect()
        } else {
            recipe.clients(&target, keys)
        }
        .map_err(|e| e.to_string())?;
        let mut ledger = Ledger::new(b);
        let (made_in, made) = (clock.elapsed().as_secs_f64(), resident_bytes());

        let (clock, before) = (Instant::now(), cpu_seconds());
        for _ in 0..self.rounds {
            if exchange(&mut *server, &mut clients, &mut ledger) == Event::Diverged {
                return Err(format!("the chain diverged at iteration {}", server.iteration()));
            }
        }
        let (seconds, cpu) = (clock.elapsed().as_secs_f64(), cpu_seconds() - before);
        let after = resident_bytes();
        let took_part =
            (0..b as u32).filter(|i| ledger.client(ClientId(*i), Direction::Up) > 0).count();
        let fields = Fields::default()
            .with("workload", "scale")
            .with("clients", b)
            .with("dim", d)
            .with("rounds", self.rounds)
            .with("eager", self.eager)
            .with("answers", ledger.messages(Direction::Up))
            .with("clients_that_took_part", took_part)
            .rounded("setup_seconds", made_in)
            .rounded("rounds_per_second", self.rounds as f64 / seconds)
            .rounded("rounds_per_cpu_second", self.rounds as f64 / cpu)
            .rounded("microseconds_an_answer", cpu * 1e6 / ledger.messages(Direction::Up) as f64)
            .rounded("bytes_a_client", (made - empty) / b as f64)
            .rounded("bytes_a_client_that_took_part", (after - made) / took_part as f64)
            .rounded("resident_megabytes", after / 1e6);
        fields.json()
    }
}

/// The memory that this process has, where the system says it (Linux); not a number elsewhere.
fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok())
        .map_or(f64::NAN, |kb| kb * 1024.0)
}
