//! Hold the bias that is foretold of unadjusted samplers against what comes out.
//!
//! For each sampler steps are found at which standard deviations are foretold to be 2, 5 and 10%
//! too large; then chains long enough to tell a bias of a tenth of a standard deviation are run.

use std::fmt::Write;

use serde_json::Value;

use super::lines;
use super::measured::numbers;
use super::runs::Runs;
use super::targets::Target;

/// Samplers whose clients send gradients: those whose clients walk on their own need steps so small
/// that chains of this precision would take hours.
const SAMPLERS: [&str; 2] = ["lmc", "qlsd++"];
/// By how much standard deviations are to be too large.
const INFLATIONS: [f64; 3] = [0.02, 0.05, 0.10];
/// A bias of a mean that matters, in posterior standard deviations.
const MATTERS: f64 = 0.1;
/// A forecast of one that matters is to be right within this factor.
const FACTOR: f64 = 1.5;
/// Effective draws: means are then known within a hundredth of a standard deviation.
const DRAWS: u64 = 20_000;
/// For which the bias is also measured by the sampler itself, by chains of half the step.
const HALVED: (&str, f64) = ("lmc", 0.10);
/// How often a step is tried.
const TRIALS: usize = 6;

/// What one run showed.
#[derive(Debug)]
struct Row {
    target: String,
    sampler: &'static str,
    step: f64,
    /// Standard deviations over those of the posterior, foretold and measured.
    sds: (Vec<f64>, Vec<f64>),
    /// How far means are off, in posterior standard deviations, foretold and measured.
    means: (Vec<f64>, Vec<f64>),
    /// What `bias = "halve"` says of the means, where it was asked.
    halved: Vec<f64>,
    parameters: Vec<String>,
}

/// Run all on one target, or read what is kept of that.
fn rows(runs: &Runs, target: &Target) -> Vec<Row> {
    let Some(reference) = super::measured::reference(runs, target) else { return vec![] };
    let mut all = Vec::new();
    for sampler in SAMPLERS {
        let mut step = None;
        for inflation in INFLATIONS {
            step = step_for(runs, target, sampler, inflation, step);
            let Some(step) = step else { break };
            all.extend(row(runs, target, &reference, sampler, inflation, step));
        }
    }
    all
}

fn stated(target: &Target, sampler: &str, step: f64) -> String {
    format!(
        "seed = 1\n\n{}\n[sampler]\nname = \"{sampler}\"\nprecondition = true\nstep = {step:e}\n\n\
         [run]\neffective_draws = {DRAWS}\n",
        target.config
    )
}

/// The step at which the median standard deviation is foretold to be so much too large.
fn step_for(
    runs: &Runs,
    target: &Target,
    sampler: &str,
    inflation: f64,
    last: Option<f64>,
) -> Option<f64> {
    // that of `lmc`; for others a place to begin
    let mut step = last.map_or(2.0 * (1.0 - (1.0 + inflation).powi(-2)), |step| 2.0 * step);
    for trial in 0..TRIALS {
        step = format!("{step:.2e}").parse().unwrap_or(step);
        let name = format!("{sampler} bias {inflation} step {trial}");
        let plan = runs.get(&target.name, &name, "plan", &stated(target, sampler, step), &[])?;
        let sds = numbers(&plan["said"]["bias"]["sd"]);
        if sds.is_empty() {
            step /= 2.0; // nothing is foretold beyond the stable limit
            continue;
        }
        let off = median(&sds) - 1.0;
        if (off / inflation - 1.0).abs() < 0.05 {
            return Some(step);
        }
        step *= if off > 0.0 { (inflation / off).clamp(0.2, 5.0) } else { 5.0 };
    }
    Some(step)
}

fn row(
    runs: &Runs,
    target: &Target,
    reference: &Value,
    sampler: &'static str,
    inflation: f64,
    step: f64,
) -> Option<Row> {
    let step: f64 = format!("{step:.2e}").parse().ok()?;
    let name = format!("{sampler} bias {inflation}");
    let cache = runs.folder.join("no-cache").display().to_string();
    let options = ["--cache", &cache[..]];
    let run = runs.get(&target.name, &name, "run", &stated(target, sampler, step), &options)?;
    let said = &run["said"];
    let (mean, sd) = (numbers(&said["mean"]), numbers(&said["sd"]));
    let (right, width) = (numbers(&reference["mean"]), numbers(&reference["sd"]));
    if mean.is_empty() || mean.len() != right.len() {
        return None;
    }
    let off = (0..mean.len()).map(|k| (mean[k] - right[k]) / width[k]).collect();
    let ratio = (0..sd.len()).map(|k| sd[k] / width[k]).collect();
    let names = said["parameters"].as_array().into_iter().flatten();
    let halved = ((sampler, inflation) == HALVED).then(|| {
        let config = stated(target, sampler, step) + "bias = \"halve\"\n";
        let name = format!("{sampler} bias {inflation} halved");
        let run = runs.get(&target.name, &name, "run", &config, &options)?;
        Some(numbers(&run["said"]["bias"]["measured"]["mean_bias"]))
    });
    Some(Row {
        target: target.name.clone(),
        sampler,
        step,
        sds: (numbers(&said["bias"]["sd"]), ratio),
        means: (numbers(&said["bias"]["mean"]), off),
        halved: halved.flatten().unwrap_or_default(),
        parameters: names.filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
    })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// By which factor a forecast is off, either way; without end where its sign is wrong.
fn factor(foretold: f64, measured: f64) -> f64 {
    let ratio = foretold / measured;
    if ratio > 0.0 { ratio.max(1.0 / ratio) } else { f64::INFINITY }
}

/// Run all, or read what is kept; the section of the chapter.
pub fn section(runs: &Runs, targets: &[&Target]) -> String {
    let all: Vec<Row> = targets.iter().flat_map(|target| rows(runs, target)).collect();
    if all.is_empty() { String::new() } else { written(&all) }
}

fn written(all: &[Row]) -> String {
    let says = "Unadjusted samplers at steps at which standard deviations are foretold to be 2, 5 \
        and 10% too large, against NUTS on the pooled rows. *Sds* are medians over the \
        parameters, with the range that was measured; *largest mean* is the parameter whose mean \
        is furthest off, in posterior standard deviations: foretold and measured. Of means that \
        are off by more than 0.1, *worst factor* is the one that is foretold worst, and *by \
        halving* the one that `bias = \"halve\"` measures worst, without a reference. Measured \
        means have a Monte Carlo error of about 0.01.";
    let mut text = format!(
        "\n## Bias foretold and measured\n\n{}\n\n\
         | data | sampler | step | sds foretold | measured | largest mean foretold | measured | \
         beyond 0.1 | worst factor | by halving |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        lines(says, "")
    );
    let (mut within, mut matter) = (0, 0);
    for row in all {
        let (told, found) = (&row.means.0, &row.means.1);
        let largest = (0..found.len()).max_by(|a, b| found[*a].abs().total_cmp(&found[*b].abs()));
        let Some(largest) = largest.filter(|_| told.len() == found.len()) else { continue };
        let judged = |said: &[f64]| {
            let mut factors: Vec<(f64, usize)> = (0..found.len().min(said.len()))
                .filter(|k| found[*k].abs() > MATTERS)
                .map(|k| (factor(said[k], found[k]), k))
                .collect();
            factors.sort_by(|a, b| b.0.total_cmp(&a.0));
            factors
        };
        let named = |factors: &[(f64, usize)], said: &[f64]| {
            factors.first().map_or_else(String::new, |(factor, k)| {
                let name = row.parameters.get(*k).map_or("", String::as_str);
                format!("{factor:.2} ({name}: {:.3}, {:.3})", said[*k], found[*k])
            })
        };
        let (factors, halved) = (judged(told), judged(&row.halved));
        matter += factors.len();
        within += factors.iter().filter(|(factor, _)| *factor <= FACTOR).count();
        let percent = |ratio: f64| format!("{:.1}", 100.0 * (ratio - 1.0));
        let ends = |list: &[f64]| {
            let fold = |from: f64, with: fn(f64, f64) -> f64| list.iter().copied().fold(from, with);
            (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
        };
        let (least, most) = ends(&row.sds.1);
        let (worst, halved) = (named(&factors, told), named(&halved, &row.halved));
        let _ = writeln!(
            text,
            "| {} | {} | {:.1e} | {}% | {}% ({} to {}) | {:.3} | {:.3} | {} | {worst} | {halved} |",
            row.target,
            row.sampler,
            row.step,
            percent(median(&row.sds.0)),
            percent(median(&row.sds.1)),
            percent(least),
            percent(most),
            told[largest],
            found[largest],
            factors.len(),
        );
    }
    let _ = writeln!(
        text,
        "\nOf {matter} means that are off by more than {MATTERS}, {within} are foretold within a \
         factor of {FACTOR}."
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_is_judged_where_the_bias_matters() {
        let row = Row {
            target: "pima".into(),
            sampler: "lmc",
            step: 0.1,
            sds: (vec![1.05; 3], vec![1.04, 1.05, 1.07]),
            means: (vec![0.1, -0.1, 0.0], vec![0.14, -0.2, 0.05]),
            halved: vec![0.13, -0.25, 0.0],
            parameters: ["a", "b", "c"].map(String::from).into(),
        };
        let text = written(&[row]);
        assert!(text.contains("5.0% (4.0 to 7.0)") && text.contains("2.00 (b: -0.100, -0.200)"));
        assert!(text.contains("| 2 | 2.00 (b: -0.100, -0.200) | 1.25 (b: -0.250, -0.200) |"));
        assert!(text.contains("Of 2 means that are off by more than 0.1, 1 are foretold"));
        assert!(factor(-0.1, 0.2).is_infinite() && factor(0.2, 0.1) == 2.0);
    }
}
