//! Take the start of a chain downhill: minibatch gradient descent by the sampler's own protocol, so
//! that what it sends is counted.

use consilience_core::sampler::registry::{self, Settings};
use consilience_core::sampler::{Batch, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::Target;

use crate::config::{Config, ConfigError, FieldLocation};
use crate::models::Descent;

/// Descent as a chain: `sgld` without noise.
#[derive(Clone, Debug)]
pub(crate) struct Downhill {
    pub recipe: Recipe,
    pub target: Target,
    pub rounds: u64,
    /// Gradients of single rows that it takes.
    pub gradients: u64,
}

/// The temperature of descent: noise of this size changes no bit of what is sent.
const COLD: f64 = f64::MIN_POSITIVE;

impl Downhill {
    /// The descent that a config states for this target.
    pub(super) fn new(
        config: &Config,
        target: &Target,
        descent: Descent,
    ) -> Result<Self, ConfigError> {
        let place = FieldLocation { field: "target.start".into(), ..config.sampler.place.clone() };
        let complain = |problem: String, fix: &str| config.source.complain(&place, problem, fix);
        let rows = |pick: fn(usize, usize) -> usize| {
            target.clients.iter().map(|client| client.rows()).reduce(pick).unwrap_or(0)
        };
        let (least, most) = (rows(usize::min), rows(usize::max));
        if descent.batch > least {
            let problem = format!(
                "sgd takes batches of {} rows, and the smallest client has {least}",
                descent.batch
            );
            return Err(complain(problem, "use a smaller batch"));
        }
        let b = target.clients.len();
        let settings = Settings { batch: Some(Batch::Rows(descent.batch)), ..Settings::default() };
        let Some(row) = registry::find("sgld") else {
            return Err(complain("there is no sgld".into(), "this is a fault of the program"));
        };
        let step = Schedule::Constant(descent.step);
        let recipe = row.recipe(step, &settings, b, target.dim(), None);
        let cold = Target { temperature: COLD, ..target.clone() };
        let target =
            recipe.check(cold).map_err(|e| complain(e.to_string(), "correct target.start"))?;
        let rounds = (descent.epochs * most as f64 / descent.batch as f64).ceil().max(1.0) as u64;
        Ok(Downhill { recipe, target, rounds, gradients: rounds * (b * descent.batch) as u64 })
    }
}
