//! Print the exact law of a sampler, without sampling.

use std::fmt::Write;

use consilience_core::sampler::exact::StationaryLaw;
use consilience_engine::config::Config;
use consilience_engine::exact::laws;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use serde_json::json;

use crate::args::ExactCommand;
use crate::output::{Failure, note, say};

/// `consilience exact`.
pub fn exact(command: &ExactCommand) -> Result<(), Failure> {
    let config = Config::load(&command.config)?;
    let problem = Problem::new(&config)?;
    let plan = Plan::new(&config, &problem)?;
    for warning in &plan.warnings {
        note(&format!("warning: {warning}\n"));
    }
    let unknown = |e: consilience_core::sampler::exact::NoClosedForm| {
        Failure::Other(format!("{}: {e}", command.config.display()))
    };
    let (truth, law) = laws(&problem, &plan).map_err(unknown)?;
    let step = plan.step().largest();
    if command.json {
        let d = law.mean.len();
        let show = |law: &StationaryLaw| {
            json!({
            "mean": law.mean, "covariance": law.covariance.chunks(d).collect::<Vec<_>>() })
        };
        let value = json!({
            "sampler": config.sampler.row.name, "step": step, "parameters": problem.parameters,
            "posterior": show(&truth), "stationary": show(&law) });
        return say(&format!("{value:#}\n"));
    }
    let mut text = format!(
        "{} at step {step:.6e} has exactly this bias (stationary law of its draws, infinite \
         precision on the wire):\n\n",
        config.sampler.row.name
    );
    let width = problem.parameters.iter().map(|p| p.chars().count()).max().unwrap_or(9).max(9);
    let _ = writeln!(
        text,
        "{:<width$} {:>14} {:>14} {:>12} {:>14} {:>14} {:>9}",
        "parameter", "posterior", "sampled", "bias/sd", "posterior sd", "sampled sd", "ratio"
    );
    for (k, name) in problem.parameters.iter().enumerate() {
        let (a, b) = (truth.mean[k], law.mean[k]);
        let _ = writeln!(
            text,
            "{name:<width$} {a:>14.6} {b:>14.6} {:>12.3e} {:>14.6} {:>14.6} {:>9.4}",
            (b - a) / truth.sd(k),
            truth.sd(k),
            law.sd(k),
            law.sd(k) / truth.sd(k)
        );
    }
    say(&text)
}
