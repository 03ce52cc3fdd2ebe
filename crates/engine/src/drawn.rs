//! Draw what a config asks for, wherever the chains run: again where draws are not those that the
//! plan promised, and at half the step where the bias is measured.

use crate::config::Config;
use crate::plan::{Disappointment, Plan};
use crate::problem::Problem;
use crate::record::{Circumstances, Record};
use crate::reference::Reference;
use crate::run::Outcome;
use crate::warnings::Warning;

/// Where chains run: in this process, or at sites over a network.
pub trait Venue {
    /// Why there are no draws.
    type Error;

    /// Run the chains of a plan to their end, or until somebody asks to stop.
    fn sample(&mut self, plan: &Plan) -> Result<Outcome, Self::Error>;

    /// The plan to go on with after draws that disappoint; none where these are kept.
    fn after(
        &mut self,
        plan: &Plan,
        found: Disappointment,
        outcome: &mut Outcome,
    ) -> Result<Option<Plan>, Self::Error>;
}

/// What was drawn.
#[derive(Debug)]
pub struct Drawn {
    /// The plan that gave the draws: the first, or one that came after.
    pub plan: Plan,
    /// What its chains gave. What was sent for the bias is counted here.
    pub outcome: Outcome,
    /// What chains of half the step gave, where the bias is measured.
    pub halved: Option<Outcome>,
}

impl Drawn {
    /// Sample by a plan, and by others while draws disappoint.
    pub fn by<V: Venue>(config: &Config, mut plan: Plan, venue: &mut V) -> Result<Drawn, V::Error> {
        let mut outcome = venue.sample(&plan)?;
        while let Some(found) = plan.disappointment(&outcome) {
            let Some(next) = venue.after(&plan, found, &mut outcome)? else { break };
            outcome = venue.sample(&next)?;
            plan = next;
        }
        let mut halved = None;
        if let Some(halves) = plan.halves(config).filter(|_| !outcome.interrupted) {
            let sampled = venue.sample(&halves)?;
            outcome.count(&sampled);
            halved = Some(sampled);
        }
        Ok(Drawn { plan, outcome, halved })
    }

    /// What the run leaves behind.
    pub fn record(
        self,
        made: Circumstances,
        config: &Config,
        problem: &Problem,
        reference: Option<Reference>,
        warnings: Vec<Warning>,
    ) -> Record {
        let Drawn { plan, outcome, halved } = self;
        let mut record = Record::new(made, config, problem, &plan, outcome, reference);
        if let Some(halved) = halved {
            record.halve(&plan, &halved);
        }
        record.warnings.extend(warnings);
        record
    }
}
