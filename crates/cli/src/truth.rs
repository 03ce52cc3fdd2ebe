//! Sample references from pooled rows by several methods, keep them, and say whether they agree.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use consilience_core::measure::{Chains, Interval, MASS, Summary, summarise};
use consilience_engine::config::Config;
use consilience_engine::problem::Problem;
use consilience_engine::reference::{
    self, Cache, Differences, LMC_STEP, LongLmc, MOST_STANDARD_ERRORS, Method, Reference,
    ReferenceSettings,
};
use consilience_engine::run::Progress;
use serde_json::{Value, json};

use crate::args::TruthCommand;
use crate::output::{Failure, note, say};
use crate::progress::with_progress;

/// `consilience truth`.
pub fn truth(command: &TruthCommand) -> Result<(), Failure> {
    let mut config = Config::load(&command.config)?;
    if let Some(seed) = command.seed {
        config.seed = seed;
    }
    let methods = methods(&command.method)?;
    if command.chains == 0 || command.draws == Some(0) {
        return Err(Failure::Argument(
            "no chains or no draws leave nothing to say: give at least 1".into(),
        ));
    }
    let problem = Problem::new(&config)?;
    reference::check(&problem).map_err(other)?;
    let target = reference::digest(&problem.target);
    let cache = Cache::open(command.cache.as_deref());
    if cache.is_none() {
        note(&format!(
            "warning: there is no cache folder, so nothing is kept: name one with --cache DIR or \
             {}\n",
            reference::FOLDER
        ));
    }
    let maker = Maker {
        config: &config,
        problem: &problem,
        target: &target,
        cache: cache.as_ref(),
        fresh: command.fresh,
    };
    let mut made = Vec::new();
    for method in methods {
        let draws = command.draws.unwrap_or(method.usual_draws());
        made.push(
            maker.get(
                method,
                ReferenceSettings { chains: command.chains, draws, seed: config.seed },
            )?,
        );
    }
    let mut pairs = Vec::new();
    for (k, (a, _)) in made.iter().enumerate() {
        for (b, _) in &made[k + 1..] {
            pairs.push((a.method, b.method, reference::agree(a, b).map_err(other)?));
        }
    }
    say(&if command.json {
        to_json(&problem, &target, &made, &pairs)
    } else {
        to_text(&problem, &target, &made, &pairs)
    })
}

/// The reference that is kept for a problem, if there is one; damaged files are told.
pub fn kept(problem: &Problem, folder: Option<&Path>) -> Option<Reference> {
    reference::check(problem).ok()?;
    let cache = Cache::open(folder).filter(|cache| cache.folder().is_dir())?;
    let (found, complaints) = cache.find(&reference::digest(&problem.target));
    for complaint in complaints {
        note(&format!("warning: {complaint}\n"));
    }
    found
}

fn other(error: impl ToString) -> Failure {
    Failure::Other(error.to_string())
}

/// The methods that were asked for, in their usual order, each once; all that are built in if none
/// was.
fn methods(words: &[String]) -> Result<Vec<Method>, Failure> {
    for word in words {
        if !Method::ALL.iter().any(|method| method.word() == word) {
            return Err(Failure::Argument(format!(
                "--method {word}: there is no such method\n  use nuts, mala or lmc, or several \
                 with commas between"
            )));
        }
    }
    let asked = |method: &Method| {
        if words.is_empty() {
            nuts_is_built_in() || *method != Method::Nuts
        } else {
            words.iter().any(|word| word == method.word())
        }
    };
    Ok(Method::ALL.into_iter().filter(asked).collect())
}

fn nuts_is_built_in() -> bool {
    cfg!(feature = "nuts")
}

/// What references of one target are made with.
struct Maker<'a> {
    config: &'a Config,
    problem: &'a Problem,
    target: &'a str,
    cache: Option<&'a Cache>,
    fresh: bool,
}

impl Maker<'_> {
    /// A reference, and whether it was kept.
    fn get(
        &self,
        method: Method,
        settings: ReferenceSettings,
    ) -> Result<(Reference, bool), Failure> {
        if let Some(cache) = self.cache.filter(|_| !self.fresh) {
            match cache.load(self.target, method, settings) {
                Ok(Some(kept)) => return Ok((kept, true)),
                Ok(None) => {}
                Err(complaint) => note(&format!("warning: {complaint}\n")),
            }
        }
        let made = self.make(method, settings)?;
        if let Some(cache) = self.cache
            && let Err(complaint) = cache.store(self.target, &made)
        {
            note(&format!("warning: {complaint}\n"));
        }
        Ok((made, false))
    }

    fn make(&self, method: Method, settings: ReferenceSettings) -> Result<Reference, Failure> {
        let long = LongLmc::new(self.config, self.problem, settings).map_err(other)?;
        match method {
            Method::Nuts => self.nuts(long.optimum(), settings),
            Method::Mala => reference::mala(self.problem, long.optimum(), settings).map_err(other),
            Method::Lmc => {
                let progress = Arc::new(Progress::default());
                let made =
                    with_progress("lmc", long.iterations(), &progress, || long.run(&progress))
                        .map_err(other)?;
                if made.draws.length() < settings.draws {
                    let length = made.draws.length();
                    let said = format!(
                        "stopped after {length} of {} draws: nothing is kept",
                        settings.draws
                    );
                    return Err(Failure::Interrupted(Some(said)));
                }
                Ok(made)
            }
        }
    }

    #[cfg(feature = "nuts")]
    fn nuts(&self, optimum: &[f64], settings: ReferenceSettings) -> Result<Reference, Failure> {
        let ReferenceSettings { chains, draws, seed } = settings;
        let draws = consilience_truth::nuts(&self.problem.target, optimum, chains, draws, seed)
            .map_err(other)?;
        Ok(Reference { method: Method::Nuts, settings, draws, acceptance: None })
    }

    #[cfg(not(feature = "nuts"))]
    fn nuts(&self, _: &[f64], _: ReferenceSettings) -> Result<Reference, Failure> {
        Err(Failure::Other(
            "this command was built without NUTS\n  use --method mala,lmc, or build \
            with the feature `nuts`"
                .into(),
        ))
    }
}

fn summaries(reference: &Reference) -> Vec<Option<Summary>> {
    let of = |k: usize| {
        let chains = reference.draws.parameter(k);
        let slices: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
        summarise(&Chains::new(&slices).ok()?, Interval::default()).ok()
    };
    (0..reference.draws.dim()).map(of).collect()
}

fn to_text(
    problem: &Problem,
    target: &str,
    made: &[(Reference, bool)],
    pairs: &[(Method, Method, Differences)],
) -> String {
    let mut text = format!(
        "The posterior of {} pooled rows, {} parameters. Target {}.\n",
        rows(problem),
        problem.parameters.len(),
        &target[..16]
    );
    let width = problem.parameters.iter().map(|p| p.chars().count()).max().unwrap_or(9).max(9);
    for (reference, was_kept) in made {
        let ReferenceSettings { chains, draws, .. } = reference.settings;
        let from = if *was_kept { ", kept" } else { "" };
        let _ = writeln!(
            text,
            "\n{}: {draws} draws of each of {chains} chains ({}{from})",
            reference.method,
            reference.describe()
        );
        let _ = writeln!(
            text,
            "{:<width$} {:>9} {:>8} {:>9} {:>9} {:>6} {:>7} {:>9}",
            "parameter", "mean", "sd", "5.5%", "94.5%", "R-hat", "bulk", "error"
        );
        for (name, summary) in problem.parameters.iter().zip(summaries(reference)).take(60) {
            let Some(s) = summary else {
                let _ = writeln!(text, "{name:<width$} too few draws for a summary");
                continue;
            };
            let _ = writeln!(
                text,
                "{name:<width$} {:>9.4} {:>8.4} {:>9.4} {:>9.4} {:>6.3} {:>7.0} {:>9.4}",
                s.mean, s.sd, s.lower, s.upper, s.rhat, s.ess_bulk, s.mcse_mean
            );
        }
        if problem.parameters.len() > 60 {
            let _ = writeln!(
                text,
                "... and {} more: use --json for all",
                problem.parameters.len() - 60
            );
        }
    }
    if !pairs.is_empty() {
        text.push('\n');
    }
    for (a, b, found) in pairs {
        let warning = if found.holds() { "" } else { "WARNING: they do not agree: " };
        let _ = writeln!(
            text,
            "{warning}{a} and {b} differ by at most {:.1} standard errors in means and {:.1} in \
             standard deviations ({}).",
            found.means, found.deviations, problem.parameters[found.parameter]
        );
    }
    if !pairs.is_empty() {
        let biased = if made.iter().any(|(r, _)| r.method == Method::Lmc) {
            format!(
                " lmc is biased by its step: differences of {LMC_STEP} posterior standard \
                 deviations are granted to it."
            )
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "Below {MOST_STANDARD_ERRORS} they agree: chance alone exceeds it once in 100,000 \
             times a hundred comparisons.{biased}"
        );
    }
    text
}

fn rows(problem: &Problem) -> usize {
    problem.target.clients.iter().map(|client| client.rows()).sum()
}

fn to_json(
    problem: &Problem,
    target: &str,
    made: &[(Reference, bool)],
    pairs: &[(Method, Method, Differences)],
) -> String {
    let reference = |(reference, was_kept): &(Reference, bool)| -> Value {
        let all = summaries(reference);
        let of = |read: fn(&Summary) -> f64| -> Vec<Option<f64>> {
            all.iter().map(|s| s.as_ref().map(read).filter(|x| x.is_finite())).collect()
        };
        json!({
            "method": reference.method.word(), "kept": was_kept, "acceptance": reference.acceptance,
            "chains": reference.settings.chains, "draws": reference.settings.draws,
            "seed": reference.settings.seed,
            "mean": reference.draws.mean(), "sd": of(|s| s.sd), "interval_mass": MASS,
            "lower": of(|s| s.lower), "upper": of(|s| s.upper),
            "rhat": of(|s| s.rhat), "ess_bulk": of(|s| s.ess_bulk),
            "mcse_mean": of(|s| s.mcse_mean),
        })
    };
    let pair = |(a, b, found): &(Method, Method, Differences)| -> Value {
        json!({
            "methods": [a.word(), b.word()], "means": found.means, "sds": found.deviations,
            "parameter": problem.parameters[found.parameter], "agree": found.holds(),
        })
    };
    let value = json!({
        "target": target, "rows": rows(problem), "parameters": problem.parameters,
        "references": made.iter().map(reference).collect::<Vec<_>>(),
        "differences_in_standard_errors": pairs.iter().map(pair).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
