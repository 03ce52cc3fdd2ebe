//! Read off a run what it was foretold to cost, what it did cost, and how far off its answer is.

use serde_json::Value;

use super::runs::Runs;
use super::targets::{DRAWS, Target};

/// `auto`, told to make small what is sent, how often, or how long it takes.
pub const AUTOS: [&str; 3] = ["auto", "auto by exchanges", "auto by seconds"];
/// What an exchange costs in time, besides computing.
const LATENCY: f64 = 0.02;

/// What something costs: all exchanges of a chain, all sites' bytes, all parties' computing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub bytes: f64,
    pub exchanges: f64,
    /// Seconds of computing.
    pub cpu: f64,
}

impl Cost {
    /// Seconds where every exchange takes 20 ms besides.
    pub fn seconds(&self) -> f64 {
        self.cpu + LATENCY * self.exchanges
    }

    fn and(self, other: Cost, times: f64) -> Cost {
        Cost {
            bytes: self.bytes + times * other.bytes,
            exchanges: self.exchanges + (times * other.exchanges).ceil(),
            cpu: self.cpu + times * other.cpu,
        }
    }
}

/// How far an answer is from that of NUTS on the pooled rows.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// The largest of a mean, in posterior standard deviations.
    pub mean: f64,
    /// The same in standard errors of both.
    pub z: f64,
    /// The largest of a standard deviation, relatively.
    pub sd: f64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What was asked for, and what was run.
    pub asked: String,
    pub sampler: String,
    /// Effective draws: foretold; bulk and tail, of the worst parameter.
    pub foretold_draws: Option<f64>,
    pub bulk: f64,
    pub tail: f64,
    /// What sampling was foretold to cost.
    pub foretold: Option<Cost>,
    /// What surveys and pilots cost, and what sampling did.
    pub before: Cost,
    pub sampling: Cost,
    pub distance: Option<Distance>,
    pub khat: Option<f64>,
    /// The codes of its warnings.
    pub warnings: Vec<String>,
    /// Whether none of them says that its draws are not to be relied on.
    pub is_usable: bool,
    pub parameters: usize,
    pub sites: usize,
}

impl Measured {
    /// What as many effective draws as were wanted cost, bulk and tail, surveys included.
    pub fn cost(&self) -> Cost {
        self.before.and(self.sampling_alone(), 1.0)
    }

    /// The same without surveys.
    pub fn sampling_alone(&self) -> Cost {
        Cost::default().and(self.sampling, DRAWS as f64 / self.bulk.min(self.tail))
    }
}

/// A posterior with all of its runs.
pub struct Judged {
    pub target: Target,
    pub runs: Vec<Measured>,
    /// What could not be run, and why.
    pub failed: Vec<(String, String)>,
}

/// Run `auto` and all others on a target, or read what is kept of that.
pub fn judge(runs: &Runs, target: &Target) -> Option<Judged> {
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    let reference = reference(runs, target);
    let cache = runs.folder.join("no-cache").display().to_string();
    let foretells = one(runs, target, "auto", "plan", &[]);
    let autos = if target.samplers.is_empty() { 1 } else { AUTOS.len() };
    for sampler in AUTOS.into_iter().take(autos).chain(target.samplers.iter().copied()) {
        let plan = one(runs, target, sampler, "plan", &[]);
        let run = one(runs, target, sampler, "run", &["--cache", &cache]);
        let (Some(plan), Some(run)) = (plan, run) else { continue };
        match run["failed"].as_str().or(plan["failed"].as_str()) {
            Some(why) => failed.push((sampler.to_owned(), why.to_owned())),
            None => found.push(measured(
                sampler,
                foretells.as_ref().unwrap_or(&Value::Null),
                &plan,
                &run,
                reference.as_ref(),
            )),
        }
    }
    let any = !(found.is_empty() && failed.is_empty());
    any.then(|| Judged { target: target.clone(), runs: found, failed })
}

/// What NUTS says of the pooled rows, where that can be afforded.
pub fn reference(runs: &Runs, target: &Target) -> Option<Value> {
    let own = (target.name.clone(), target.config.clone());
    let (name, config) = target.pooled.clone().unwrap_or(own);
    let (config, draws) = (stated(&config, "lmc"), target.nuts?.to_string());
    let cache = runs.folder.join("references").display().to_string();
    let options = ["--method", "nuts", "--draws", &draws, "--cache", &cache];
    let kept = runs.get(&name, "nuts", "truth", &config, &options)?;
    Some(kept["said"]["references"][0].clone()).filter(Value::is_object)
}

fn stated(config: &str, sampler: &str) -> String {
    let (name, cost) = sampler.split_once(" by ").unwrap_or((sampler, "bytes"));
    format!(
        "seed = 1\n\n{config}\n[sampler]\nname = \"{name}\"\n\n[run]\n\
         effective_draws = {DRAWS}\ncost = \"{cost}\"\n"
    )
}

fn one(runs: &Runs, target: &Target, sampler: &str, verb: &str, options: &[&str]) -> Option<Value> {
    let name = format!("{sampler} {verb}");
    runs.get(&target.name, &name, verb, &stated(&target.config, sampler), options)
}

/// What a run says, beside its own plan; what the plan of `auto` foretells where its own foretells
/// nothing.
fn measured(
    asked: &str,
    auto: &Value,
    plan: &Value,
    run: &Value,
    reference: Option<&Value>,
) -> Measured {
    let said = &run["said"];
    let sampler = said["sampler"].as_str().unwrap_or(asked);
    let is_it = |one: &&Value| one["sampler"] == *sampler && number(&one["iterations"]) > 0.0;
    let candidate = [plan, auto].into_iter().find_map(|from| {
        from["said"]["choice"]["candidates"].as_array()?.iter().find(is_it).cloned()
    });
    let chains = number(&said["chains"]).max(1.0);
    let kept = number(&said["iterations"]) - chains * number(&plan["said"]["burn_in"]);
    let bits = &said["bits"];
    let both = |word: &str| {
        let of = |way: &str| number(&bits[format!("{word}{way}")]);
        (of("up") + of("down")) / 8.0
    };
    let (plan_cpu, run_cpu) = (number(&plan["cpu"]), number(&run["cpu"]));
    let least = |list: &Value| numbers(list).into_iter().fold(f64::INFINITY, f64::min);
    let warnings = || said["warnings"].as_array().into_iter().flatten();
    Measured {
        asked: asked.into(),
        sampler: sampler.into(),
        // where another sampler was gone on with, the plan does not say how many draws are kept
        foretold_draws: candidate
            .as_ref()
            .filter(|_| plan["said"]["sampler"] == *sampler)
            .map(|one| number(&one["efficiency"]) * kept),
        bulk: least(&said["ess_bulk"]),
        tail: least(&said["ess_tail"]),
        foretold: candidate.as_ref().map(|one| Cost {
            bytes: number(&one["bytes"]),
            exchanges: number(&one["exchanges"]),
            cpu: f64::NAN,
        }),
        before: Cost {
            bytes: both("before_sampling_"),
            exchanges: number(&said["exchanges"]["before_sampling"]),
            cpu: plan_cpu,
        },
        sampling: Cost {
            bytes: both(""),
            exchanges: number(&said["exchanges"]["sampling"]) / chains,
            cpu: (run_cpu - plan_cpu).max(0.0),
        },
        distance: reference.map(|reference| distance(said, reference)),
        khat: said["khat"].as_f64(),
        warnings: warnings().filter_map(|w| Some(w["code"].as_str()?.to_owned())).collect(),
        is_usable: warnings().all(|w| w["severity"] != "error"),
        parameters: numbers(&said["mean"]).len(),
        sites: said["clients"].as_array().map_or(0, Vec::len),
    }
}

fn distance(said: &Value, reference: &Value) -> Distance {
    let of = |value: &Value, name: &str| numbers(&value[name]);
    let (mean, sd, error) = (of(said, "mean"), of(said, "sd"), of(said, "mcse_mean"));
    let (right, width, its) =
        (of(reference, "mean"), of(reference, "sd"), of(reference, "mcse_mean"));
    let mut worst = Distance { mean: 0.0, z: 0.0, sd: 0.0 };
    for k in 0..mean.len().min(right.len()) {
        let off = (mean[k] - right[k]).abs();
        worst.mean = worst.mean.max(off / width[k]);
        worst.z = worst.z.max(off / error[k].hypot(its[k]));
        worst.sd = worst.sd.max((sd[k] / width[k] - 1.0).abs());
    }
    worst
}

/// A number of JSON; NaN where there is none.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// A list of them.
pub fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().into_iter().flatten().map(number).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_scaled_to_the_draws_that_were_wanted() {
        let candidate = json!({ "sampler": "imh", "iterations": 10.0, "efficiency": 0.5,
            "bytes": 300.0, "exchanges": 2.0 });
        let plan = json!({ "said": { "sampler": "imh", "burn_in": 100,
            "choice": { "candidates": [candidate] } }, "cpu": 1.0 });
        let run = json!({ "cpu": 5.0, "said": {
            "sampler": "imh", "chains": 4, "iterations": 4400, "mean": [1.0], "sd": [2.0],
            "mcse_mean": [0.03], "rhat": [1.0], "clients": ["a", "b"], "warnings": [],
            "ess_bulk": [8000.0], "ess_tail": [4000.0],
            "exchanges": { "before_sampling": 7, "sampling": 12 },
            "bits": { "up": 3200, "down": 3200, "before_sampling_up": 800,
                "before_sampling_down": 800 },
        } });
        let reference = json!({ "mean": [0.9], "sd": [1.0], "mcse_mean": [0.04] });
        let found = measured("imh", &Value::Null, &plan, &run, Some(&reference));
        assert_eq!(found.foretold_draws, Some(2000.0));
        let cost = found.cost(); // half of what was sampled would have done
        assert_eq!((cost.bytes, cost.exchanges), (200.0 + 400.0, 7.0 + 2.0));
        assert_eq!(cost.cpu, 1.0 + 2.0);
        assert!((cost.seconds() - (3.0 + 0.02 * 9.0)).abs() < 1e-12);
        let off = found.distance.unwrap();
        assert!((off.z - 2.0).abs() < 1e-9 && (off.sd - 1.0).abs() < 1e-9);
        assert!((off.mean - 0.1).abs() < 1e-9);
    }
}
