//! Say what sampling a posterior would take, by a survey and pilots alone.

use consilience_engine::config::Config;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use serde_json::json;

use crate::args::PlanCommand;
use crate::output::{Failure, note, say};
use crate::report;

/// `consilience plan`.
pub fn plan(command: &PlanCommand) -> Result<(), Failure> {
    let config = Config::load(&command.config)?;
    let problem = Problem::new(&config)?;
    let plan = Plan::new(&config, &problem)?;
    if command.json {
        let (up, down) = plan.survey_bits();
        let value = json!({
            "sampler": plan.row.name,
            "step": plan.row.has_step().then(|| plan.step().largest()),
            "chains": plan.length.chains,
            "iterations": plan.length.iterations,
            "burn_in": plan.length.burn_in,
            "thin": plan.length.thin,
            "parameters": problem.parameters,
            "survey_bits": { "up": up, "down": down },
            "choice": plan.choice,
            "bias": plan.forecast.as_ref().map(|f| json!({ "mean": f.mean, "sd": f.sd })),
            "warnings": plan.warnings,
        });
        return say(&format!("{value:#}\n"));
    }
    for warning in &plan.warnings {
        note(&format!("warning: {warning}\n"));
    }
    say(&report::opening(&config, &problem))?;
    say(&report::plan(&plan))
}
