//! Hold several samplers against each other on one problem: what they get wrong, and what that costs.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use consilience_core::measure::{Chains, Gaussian, ess_bulk, mcse_mean};
use consilience_core::protocol::{Direction, Statement};
use consilience_core::sampler::exact::posterior;
use consilience_engine::config::Config;
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::growth::growth;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::reference::{self, Settings};
use consilience_engine::run::{Progress, sample};
use consilience_report::{Comparison, Contender, comparison};
use serde_json::{Value, json};

use crate::args::CompareCommand;
use crate::output::{Failure, note, say};
use crate::progress::with_progress;
use crate::report::bytes;
use crate::truth;

/// How many draws the pooled reference has, in each of four chains, where the posterior is not known exactly.
const REFERENCE_DRAWS: usize = 8000;

/// `consilience compare`.
pub fn compare(command: &CompareCommand) -> Result<(), Failure> {
    let mut first: Option<(Statement, Truth)> = None;
    let mut size = (0, 0);
    let mut rows = Vec::new();
    for path in &command.configs {
        let mut config = Config::load(path)?;
        if let Some(seed) = command.seed {
            config.seed = seed;
        }
        let problem = Problem::new(&config)?;
        size = (problem.parameters.len(), problem.clients.len());
        let plan = Plan::new(&config, &problem)?;
        for warning in &plan.warnings {
            note(&format!("warning: {}: {warning}\n", path.display()));
        }
        match &first {
            None => first = Some((problem.statement.clone(), Truth::find(command, &config, &problem, &plan)?)),
            Some((statement, _)) => {
                let mismatch = |e: consilience_core::protocol::Mismatch| {
                    Failure::Other(format!("{}: {e}\n  compare configs that state the same target", path.display()))
                };
                statement.check(&problem.statement, &path.display().to_string()).map_err(mismatch)?;
            }
        }
        let Some((_, truth)) = &first else { continue };
        let progress = Arc::new(Progress::default());
        let total = config.run.iterations.saturating_mul(config.run.chains as u64);
        let started = Instant::now();
        let title = format!("{} ({})", path.display(), config.sampler.row.name);
        let outcome = with_progress(&title, total, &progress, || sample(&plan, &config.run, config.seed, Sinks::Memory, &progress))?;
        let seconds = started.elapsed().as_secs_f64();
        let ledger = &outcome.ledger;
        rows.push(Contender {
            config: path.display().to_string(),
            sampler: config.sampler.row.name.into(),
            step: plan.step().largest(),
            chains: (outcome.draws.chains(), config.run.iterations),
            growth: growth(&outcome.draws, &outcome.statistics, truth.gaussian.mean(), &truth.sd),
            errors: truth.errors(&outcome.draws),
            ess: least_ess(&outcome.draws),
            bits: (ledger.total(Direction::Up), ledger.total(Direction::Down)),
            gradients: outcome.rows_evaluated,
            seconds,
        });
    }
    let Some((_, truth)) = first else { return Ok(()) };
    let all = Comparison { reference: truth.how, reference_error: truth.error, size, runs: rows };
    if let Some(file) = &command.html {
        let failed = |error: std::io::Error| Failure::Other(format!("the page cannot be written to {}: {error}", file.display()));
        std::fs::write(file, comparison(&all)).map_err(failed)?;
    }
    if command.json {
        return say(&to_json(&all.runs, &all.reference));
    }
    let page = command.html.as_ref().map_or_else(String::new, |file| format!("\nThe page is {}.\n", file.display()));
    say(&(to_text(&all.runs, &all.reference) + &page))
}

/// What the posterior is, exactly or from pooled rows.
struct Truth {
    how: String,
    gaussian: Gaussian,
    sd: Vec<f64>,
    /// The root mean square Monte Carlo error of its means, in standard deviations; none where it is exact.
    error: Option<f64>,
}

impl Truth {
    fn find(command: &CompareCommand, config: &Config, problem: &Problem, plan: &Plan) -> Result<Truth, Failure> {
        let wrong = |e: &dyn std::fmt::Display| Failure::Other(format!("no reference could be made: {e}"));
        if let Ok(law) = posterior(&problem.target) {
            let gaussian = Gaussian::new(&law.mean, &law.covariance).map_err(|e| wrong(&e))?;
            return Ok(Truth { how: "the exact posterior".into(), sd: gaussian.sd(), gaussian, error: None });
        }
        let start = plan.findings.as_ref().map_or_else(|| vec![0.0; problem.target.dim()], |f| f.optimum.clone());
        let settings = Settings { chains: 4, draws: REFERENCE_DRAWS, seed: config.seed };
        let reference = match truth::kept(problem, command.cache.as_deref()) {
            Some(kept) => kept,
            None => reference::mala(problem, &start, settings).map_err(|e| wrong(&e))?,
        };
        let rows: Vec<f64> = reference.draws.rows().flatten().copied().collect();
        let gaussian = Gaussian::of_draws(&rows, problem.target.dim()).map_err(|e| wrong(&e))?;
        let sd = gaussian.sd();
        let square = |k: usize| {
            let all = reference.draws.parameter(k).concat();
            Chains::flat(&all, reference.draws.chains()).map_or(f64::NAN, |chains| (mcse_mean(&chains) / sd[k]).powi(2))
        };
        let error = ((0..sd.len()).map(square).sum::<f64>() / sd.len() as f64).sqrt();
        Ok(Truth {
            how: format!("pooled rows ({})", truth::describe(&reference)),
            sd,
            gaussian,
            error: Some(error).filter(|e| e.is_finite()),
        })
    }

    /// The largest error of a mean in posterior standard deviations, the largest relative error of a standard deviation, and W2 between Gaussians with these moments.
    fn errors(&self, draws: &Draws) -> [f64; 3] {
        let rows: Vec<f64> = draws.rows().flatten().copied().collect();
        let Ok(found) = Gaussian::of_draws(&rows, draws.dim()) else { return [f64::NAN; 3] };
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0f64, |m, v| if v > m || v.is_nan() { v } else { m });
        let means = largest(&mut found.mean().iter().zip(self.gaussian.mean()).zip(&self.sd).map(|((a, b), sd)| (a - b).abs() / sd));
        let spreads = largest(&mut found.sd().iter().zip(&self.sd).map(|(a, b)| (a / b - 1.0).abs()));
        [means, spreads, found.w2(&self.gaussian).unwrap_or(f64::NAN)]
    }
}

/// The smallest bulk effective sample size of any parameter.
fn least_ess(draws: &Draws) -> f64 {
    let of = |k: usize| {
        let chains = draws.parameter(k);
        let slices: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
        Chains::new(&slices).map_or(f64::NAN, |chains| ess_bulk(&chains))
    };
    (0..draws.dim()).map(of).fold(f64::INFINITY, |m, e| if e < m || e.is_nan() { e } else { m })
}

fn to_text(rows: &[Contender], reference: &str) -> String {
    let width = rows.iter().map(|r| r.config.chars().count()).max().unwrap_or(6).max(6);
    let mut text = format!(
        "{:<width$} {:<12} {:>9} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>11} {:>8} {:>9} {:>9}\n",
        "config", "sampler", "step", "mean/sd", "sd", "W2", "ESS", "up", "down", "gradients", "seconds", "ESS/MB", "ESS/s"
    );
    for row in rows {
        let [mean, sd, w2] = row.errors;
        let megabytes = (row.bits.0 + row.bits.1) as f64 / 8e6;
        let _ = writeln!(
            text,
            "{:<width$} {:<12} {:>9.2e} {mean:>8.3} {:>6.1}% {w2:>9.4} {:>9.0} {:>9} {:>9} {:>11} {:>8.2} {:>9.1} {:>9.0}",
            row.config,
            row.sampler,
            row.step,
            100.0 * sd,
            row.ess,
            bytes(row.bits.0),
            bytes(row.bits.1),
            row.gradients,
            row.seconds,
            row.ess / megabytes,
            row.ess / row.seconds
        );
    }
    let _ = writeln!(
        text,
        "\nErrors are against {reference}: the largest of a mean in posterior standard deviations, the largest of a standard deviation, and the 2-Wasserstein distance\nbetween Gaussians with these means and covariances. ESS is the smallest bulk effective sample size; gradients are those of single rows."
    );
    text
}

fn to_json(rows: &[Contender], reference: &str) -> String {
    let row = |r: &Contender| -> Value {
        json!({
            "config": r.config, "sampler": r.sampler, "step": r.step,
            "mean_error_sd": r.errors[0], "sd_error": r.errors[1], "w2": r.errors[2],
            "ess": r.ess, "bits_up": r.bits.0, "bits_down": r.bits.1,
            "rows_evaluated": r.gradients, "seconds": r.seconds,
            "ess_per_megabyte": r.ess / ((r.bits.0 + r.bits.1) as f64 / 8e6), "ess_per_second": r.ess / r.seconds,
        })
    };
    format!("{:#}\n", json!({ "reference": reference, "runs": rows.iter().map(row).collect::<Vec<_>>() }))
}
