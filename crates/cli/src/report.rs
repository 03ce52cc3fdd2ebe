//! Say what a run found, for people and for programs.

use std::fmt::Write;

use consilience_core::compress::{Operator, paper_bits};
use consilience_core::measure::{Chains, Interval, Summary, summarise};
use consilience_core::protocol::{Direction, Kind};
use consilience_core::sampler::Recipe;
use consilience_core::step::Schedule;
use consilience_engine::config::Config;
use consilience_engine::plan::Plan;
use consilience_engine::pooled::Reference;
use consilience_engine::problem::Problem;
use consilience_engine::run::Outcome;
use serde_json::{Value, json};

/// The mass of the printed intervals.
const MASS: f64 = 0.94;
/// Above this R-hat chains are said to disagree (Vehtari et al. 2021).
const MOST_RHAT: f64 = 1.01;
/// Below so many effective draws a chain, quantiles are not to be trusted.
const LEAST_ESS: f64 = 100.0;

/// What is sampled, before anything is.
pub fn opening(config: &Config, problem: &Problem) -> String {
    let rows: Vec<String> = problem.clients.iter().zip(&problem.target.clients).map(|(name, c)| format!("{name} ({})", c.rows())).collect();
    let mut text = format!(
        "{} sites, {} parameters, one posterior. Rows: {}.\n",
        problem.clients.len(),
        problem.parameters.len(),
        if rows.len() > 12 { format!("{} and {} more", rows[..12].join(", "), rows.len() - 12) } else { rows.join(", ") }
    );
    for note in &problem.notes {
        let _ = writeln!(text, "  {note}");
    }
    let _ = writeln!(text, "Sampler: {} ({})", config.sampler.row.name, config.sampler.row.says);
    text
}

/// What the surveys found.
pub fn plan(plan: &Plan) -> String {
    let step = match plan.step() {
        Schedule::Constant(step) => format!("{step:.3e}"),
        schedule => format!("{:.3e} at first, then smaller", schedule.largest()),
    };
    let mut text = String::new();
    if let Some(found) = &plan.findings {
        let (up, down) = plan.survey_bits();
        let _ = writeln!(
            text,
            "Survey: curvature of the posterior from m = {:.3} to L = {:.1}; step {step}. It cost {} up and {} down.",
            found.convexity,
            found.smoothness,
            bytes(up),
            bytes(down)
        );
    } else {
        let _ = writeln!(text, "Step {step}.");
    }
    text
}

/// The answer of a run.
pub struct Answer<'a> {
    config: &'a Config,
    problem: &'a Problem,
    plan: &'a Plan,
    outcome: &'a Outcome,
    summaries: Vec<Option<Summary>>,
    reference: Option<Vec<Option<Summary>>>,
    acceptance: Option<f64>,
    seconds: f64,
}

impl<'a> Answer<'a> {
    /// Summarise a run.
    pub fn new(
        config: &'a Config,
        problem: &'a Problem,
        plan: &'a Plan,
        outcome: &'a Outcome,
        reference: Option<&Reference>,
        seconds: f64,
    ) -> Self {
        let all = |draws: &consilience_engine::draws::Draws| (0..draws.dim()).map(|k| summary(&draws.parameter(k))).collect::<Vec<_>>();
        Answer {
            config,
            problem,
            plan,
            outcome,
            summaries: all(&outcome.draws),
            reference: reference.map(|r| all(&r.draws)),
            acceptance: reference.map(|r| r.acceptance),
            seconds,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for warning in self.warnings() {
            let _ = writeln!(text, "WARNING: {warning}");
        }
        let draws = &self.outcome.draws;
        let _ = writeln!(
            text,
            "{} draws of each of {} chains in {:.1} s{}.\n",
            draws.length(),
            draws.chains(),
            self.seconds,
            if self.outcome.interrupted { " (stopped before the end)" } else { "" }
        );
        text.push_str(&self.table());
        text.push_str(&self.distance());
        text.push_str(&self.sent());
        if let Some(path) = &self.config.draws {
            let _ = writeln!(text, "The draws are in {}.", path.display());
        }
        text.push_str(self.next());
        text
    }

    fn table(&self) -> String {
        let width = self.problem.parameters.iter().map(|p| p.chars().count()).max().unwrap_or(9).max(9);
        let mut text = format!(
            "{:<width$} {:>8} {:>7} {:>8} {:>8} {:>6} {:>7} {:>7}",
            "parameter", "mean", "sd", "3%", "97%", "R-hat", "bulk", "tail"
        );
        if self.reference.is_some() {
            let _ = write!(text, " | {:>8} {:>7} {:>9}", "pooled", "sd", "distance");
        }
        text.push('\n');
        for (k, name) in self.problem.parameters.iter().enumerate().take(60) {
            let Some(Some(s)) = self.summaries.get(k) else { continue };
            let _ = write!(
                text,
                "{name:<width$} {:>8.3} {:>7.3} {:>8.3} {:>8.3} {:>6.3} {:>7.0} {:>7.0}",
                s.mean, s.sd, s.lower, s.upper, s.rhat, s.ess_bulk, s.ess_tail
            );
            if let Some(Some(Some(r))) = self.reference.as_ref().map(|r| r.get(k)) {
                let _ = write!(text, " | {:>8.3} {:>7.3} {:>9.3}", r.mean, r.sd, (s.mean - r.mean) / r.sd);
            }
            text.push('\n');
        }
        if self.problem.parameters.len() > 60 {
            let _ = writeln!(text, "... and {} more: use --json or --draws for all", self.problem.parameters.len() - 60);
        }
        text
    }

    /// The largest distances to the pooled reference: of means in its standard deviations, of standard deviations in per cent; and their Monte Carlo errors.
    fn distances(&self) -> Option<[f64; 3]> {
        let reference = self.reference.as_ref()?;
        let mut largest = [0.0f64; 3];
        for (s, r) in self.summaries.iter().zip(reference) {
            let (s, r) = (s.as_ref()?, r.as_ref()?);
            largest[0] = largest[0].max((s.mean - r.mean).abs() / r.sd);
            largest[1] = largest[1].max((s.sd / r.sd - 1.0).abs());
            largest[2] = largest[2].max(s.mcse_mean.hypot(r.mcse_mean) / r.sd);
        }
        Some(largest)
    }

    fn distance(&self) -> String {
        let Some([mean, sd, error]) = self.distances() else { return String::new() };
        format!(
            "\nPooled: the same posterior from all rows in one place (Metropolis-adjusted, {:.0}% accepted). Means differ by at most {mean:.3} posterior sd\n(Monte Carlo error up to {error:.3}), standard deviations by at most {:.1}%.\n",
            100.0 * self.acceptance.unwrap_or(0.0),
            100.0 * sd
        )
    }

    fn sent(&self) -> String {
        let ledger = &self.outcome.ledger;
        let (up, down) = (ledger.total(Direction::Up), ledger.total(Direction::Down));
        let (survey_up, survey_down) = self.plan.survey_bits();
        let (moments_up, moments_down) = self.problem.moments_bits;
        let mut text = format!("\nSent: {} up, {} down, headers included", bytes(up), bytes(down));
        let (plain_up, plain_down) = (self.uncompressed(Direction::Up), self.uncompressed(Direction::Down));
        if plain_up > up || plain_down > down {
            let _ = write!(
                text,
                " ({:.1} and {:.1} times less than uncompressed: {} and {})",
                plain_up as f64 / up.max(1) as f64,
                plain_down as f64 / down.max(1) as f64,
                bytes(plain_up),
                bytes(plain_down)
            );
        }
        // What plain Langevin Monte Carlo would send for as many iterations: one gradient up for each client.
        let every = self.outcome.iterations * self.problem.clients.len() as u64 * self.problem.parameters.len() as u64 * 32;
        if every > plain_up {
            let _ = write!(text, " ({:.1} times less up than a gradient an iteration)", every as f64 / up.max(1) as f64);
        }
        if let Some(paper) = self.paper_bits() {
            let _ = write!(text, "; the published formula counts {} up", bytes(paper));
        }
        let _ = writeln!(text, ".\n  before sampling: {} up, {} down", bytes(survey_up + moments_up), bytes(survey_down + moments_down));
        for (direction, name) in [(Direction::Up, "up"), (Direction::Down, "down")] {
            let kinds: Vec<String> = Kind::ALL
                .into_iter()
                .filter(|kind| ledger.bits(direction, *kind) > 0)
                .map(|kind| format!("{} {}", kind.name(), bytes(ledger.bits(direction, kind))))
                .collect();
            let _ = writeln!(text, "  {name}: {} in {} messages", kinds.join(", "), ledger.messages(direction));
        }
        text.push_str("No row left its site: parameters, gradients and sums of moments did. They are not private in the sense of differential privacy.\n");
        text
    }

    /// The bits of the same messages with 32 bits a coordinate.
    fn uncompressed(&self, direction: Direction) -> u64 {
        let ledger = &self.outcome.ledger;
        let vectors: u64 = Kind::ALL.into_iter().filter(|k| *k != Kind::Header).map(|k| ledger.vectors(direction, k)).sum();
        vectors * self.problem.parameters.len() as u64 * 32 + ledger.bits(direction, Kind::Header)
    }

    /// What QLSD's published formula (natural logarithms, no headers) counts for the compressed gradients, where all clients use `qsgd`.
    fn paper_bits(&self) -> Option<u64> {
        let Recipe::Uplink(recipe) = &self.plan.recipe else { return None };
        let [compressor] = recipe.up[..] else { return None };
        let Operator::Qsgd { levels } = compressor.operator() else { return None };
        let each = paper_bits(levels, self.problem.parameters.len());
        Some((each * self.outcome.ledger.vectors(Direction::Up, Kind::Gradient) as f64) as u64)
    }

    fn next(&self) -> &'static str {
        "\nNext: `consilience new run.toml` writes a config to start from; `consilience list` shows the samplers;\n`consilience exact run.toml` prints a sampler's exact bias on a Gaussian target.\n"
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let known: Vec<&Summary> = self.summaries.iter().flatten().collect();
        if let (0, Some(path)) = (self.outcome.draws.chains(), &self.config.draws) {
            warnings.push(format!("the draws are too many to be summarised here: they are all in {}", path.display()));
            return warnings;
        }
        if known.len() < self.summaries.len() {
            warnings.push("too few draws for a summary: run more iterations, or thin less".into());
        }
        if self.outcome.draws.chains() < 2 {
            warnings.push("one chain cannot show whether chains agree: run at least 4".into());
        }
        if let Some(worst) = known.iter().map(|s| s.rhat).max_by(f64::total_cmp).filter(|r| *r > MOST_RHAT) {
            warnings.push(format!("the chains disagree: R-hat is up to {worst:.3} (should be below {MOST_RHAT}). Run more iterations"));
        }
        let least = LEAST_ESS * self.outcome.draws.chains() as f64;
        if let Some(worst) = known.iter().map(|s| s.ess_bulk.min(s.ess_tail)).min_by(f64::total_cmp).filter(|e| *e < least) {
            warnings.push(format!("only {worst:.0} effective draws where {least:.0} are wanted. Run more iterations"));
        }
        warnings
    }

    /// For programs: full precision.
    pub fn json(&self) -> String {
        let draws = &self.outcome.draws;
        let d = draws.dim();
        let of = |read: fn(&Summary) -> f64| -> Vec<Value> {
            self.summaries.iter().map(|s| s.as_ref().map_or(Value::Null, |s| number(read(s)))).collect()
        };
        let held = draws.length() > 0; // else there is no mean: the draws are on disk alone, or there are none
        let covariance = draws.covariance();
        let ledger = &self.outcome.ledger;
        let kinds = |direction| -> Value {
            Kind::ALL
                .into_iter()
                .map(|kind| (kind.name().to_owned(), json!(ledger.bits(direction, kind))))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let (survey_up, survey_down) = self.plan.survey_bits();
        let value = json!({
            "sampler": self.config.sampler.row.name,
            "seed": self.config.seed,
            "step": self.plan.step().largest(),
            "parameters": self.problem.parameters,
            "clients": self.problem.clients,
            "chains": draws.chains(),
            "draws": draws.length(),
            "iterations": self.outcome.iterations,
            "interrupted": self.outcome.interrupted,
            "seconds": self.seconds,
            "mean": held.then(|| draws.mean()),
            "covariance": held.then(|| covariance.chunks(d.max(1)).collect::<Vec<_>>()),
            "sd": of(|s| s.sd),
            "lower_3": of(|s| s.lower),
            "upper_97": of(|s| s.upper),
            "rhat": of(|s| s.rhat),
            "ess_bulk": of(|s| s.ess_bulk),
            "ess_tail": of(|s| s.ess_tail),
            "mcse_mean": of(|s| s.mcse_mean),
            "rows_evaluated": self.outcome.rows_evaluated,
            "bits": {
                "up": ledger.total(Direction::Up),
                "down": ledger.total(Direction::Down),
                "up_by_kind": kinds(Direction::Up),
                "down_by_kind": kinds(Direction::Down),
                "uncompressed_up": self.uncompressed(Direction::Up),
                "uncompressed_down": self.uncompressed(Direction::Down),
                "paper_up": self.paper_bits(),
                "survey_up": survey_up,
                "survey_down": survey_down,
                "moments_up": self.problem.moments_bits.0,
                "moments_down": self.problem.moments_bits.1,
            },
            "pooled": self.reference.as_ref().map(|r| json!({
                "mean": r.iter().map(|s| s.as_ref().map_or(Value::Null, |s| number(s.mean))).collect::<Vec<_>>(),
                "sd": r.iter().map(|s| s.as_ref().map_or(Value::Null, |s| number(s.sd))).collect::<Vec<_>>(),
            })),
            "warnings": self.plan.warnings.iter().cloned().chain(self.warnings()).collect::<Vec<_>>(),
        });
        format!("{value:#}\n")
    }
}

fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

fn summary(chains: &[Vec<f64>]) -> Option<Summary> {
    let slices: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
    summarise(&Chains::new(&slices).ok()?, Interval::EqualTailed(MASS)).ok()
}

/// A number of bits as people read it.
pub fn bytes(bits: u64) -> String {
    let bytes = bits as f64 / 8.0;
    match bytes {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.1} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}
