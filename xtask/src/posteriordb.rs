//! Run the posteriors that others sampled with Stan (posteriordb) as federations, by the command
//! and with its defaults, and hold every mean and every standard deviation against theirs.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::answers::{json, lines, numbers};
use crate::cargo;

/// Means are then known to 0.005 posterior standard deviations; those of the references to 0.01.
const EFFECTIVE: i64 = 40_000;
/// By how many posterior standard deviations a mean may be off, Monte Carlo error aside.
const MOST_SHIFT: f64 = 0.05;
/// By what share a standard deviation may be off.
const MOST_SPREAD: f64 = 0.03;
/// So many standard errors of both sides are Monte Carlo error.
const ERRORS: f64 = 3.0;

/// One posterior, ours beside theirs.
struct Found {
    name: String,
    sites: usize,
    chosen: String,
    exchanges: (u64, u64),
    ess: f64,
    parameters: Vec<Compared>,
    /// The codes of warnings.
    warnings: Vec<String>,
}

/// One parameter: by how much its mean is off, in posterior standard deviations, what of that may
/// be Monte Carlo error, and by what share its standard deviation is.
struct Compared {
    name: String,
    shift: f64,
    error: f64,
    spread: f64,
}

impl Compared {
    fn is_right(&self) -> bool {
        self.shift.abs() <= MOST_SHIFT + ERRORS * self.error && self.spread.abs() <= MOST_SPREAD
    }
}

impl Found {
    fn worst(&self, of: fn(&Compared) -> f64) -> f64 {
        self.parameters.iter().map(|one| of(one).abs()).fold(0.0, f64::max)
    }
}

/// Build the command unless it is built, run all, write `docs/src/posteriordb.md`, and fail where
/// a number is off.
pub fn run(root: &Path, is_built: bool) -> Result<(), String> {
    let build = || cargo().args(["build", "--release", "--locked"]).current_dir(root).status();
    if !is_built && !build().is_ok_and(|status| status.success()) {
        return Err("the command does not build".into());
    }
    let data = root.join("data/posteriordb");
    let read = |name: &str| {
        let path = data.join(name);
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let references: Json =
        serde_json::from_str(&read("references.json")?).map_err(|e| e.to_string())?;
    let stated: Table = read("posteriors.toml")?.parse().map_err(|e| format!("{e}"))?;
    let folder = root.join("target/posteriordb");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let program = root.join("target/release/consilience");
    let mut all = Vec::new();
    for entry in stated["posterior"].as_array().into_iter().flatten().filter_map(Value::as_table) {
        let name = entry["name"].as_str().unwrap_or_default();
        let reference = &references[name];
        let config = folder.join(format!("{name}.toml"));
        let rows = data.join(reference["data"].as_str().unwrap_or_default());
        std::fs::write(&config, config_of(entry, &rows.display().to_string())?)
            .map_err(|e| format!("{}: {e}", config.display()))?;
        let mut command = Command::new(&program);
        command.arg("run").arg(&config).args(["--json", "--cache"]).arg(folder.join("no-cache"));
        let said = json(&mut command).map_err(|e| format!("{name}: {e}"))?;
        let found = compare(name, &said, reference)?;
        println!(
            "{name:<45} means within {:.3} sd, sds within {:.1}%",
            found.worst(|one| one.shift),
            100.0 * found.worst(|one| one.spread)
        );
        all.push(found);
    }
    let page = root.join("docs/src/posteriordb.md");
    std::fs::write(&page, written(&all)).map_err(|e| format!("{}: {e}", page.display()))?;
    let wrong = complaints(&all);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// The config of a posterior: what its entry says, its rows dealt to sites.
fn config_of(entry: &Table, rows: &str) -> Result<String, String> {
    let mut target = Table::new();
    target.insert("model".into(), "linear".into());
    target.insert("standardise".into(), false.into());
    for key in ["formula", "prior", "noise_variance"] {
        target.extend(entry.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    let mut data = Table::new();
    data.insert("file".into(), rows.into());
    data.extend(entry.get("clients").map(|clients| ("clients".to_owned(), clients.clone())));
    let mut run = Table::new();
    run.insert("effective_draws".into(), EFFECTIVE.into());
    let mut all = Table::new();
    all.insert("seed".into(), 7.into());
    for (name, table) in [("target", target), ("data", data), ("run", run)] {
        all.insert(name.into(), table.into());
    }
    toml::to_string(&all).map_err(|e| e.to_string())
}

fn compare(name: &str, said: &Json, reference: &Json) -> Result<Found, String> {
    let theirs = in_order(&reference["reference"]);
    let (means, sds, errors) =
        (numbers(&said["mean"]), numbers(&said["sd"]), numbers(&said["mcse_mean"]));
    let names: Vec<&str> =
        said["parameters"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    if theirs.is_empty() || theirs.len() != names.len() {
        return Err(format!("{name}: {} parameters, {} of Stan", names.len(), theirs.len()));
    }
    let drawn = reference["draws"].as_f64().unwrap_or(f64::NAN);
    let one = |(k, (mean, sd)): (usize, &(f64, f64))| Compared {
        name: names[k].into(),
        shift: (means[k] - mean) / sd,
        error: (errors[k] / sd).hypot(1.0 / drawn.sqrt()),
        spread: sds[k] / sd - 1.0,
    };
    let count = |key: &str| said["exchanges"][key].as_u64().unwrap_or(0);
    let code = |warning: &Json| warning["code"].as_str().unwrap_or_default().to_owned();
    let effective = [numbers(&said["ess_bulk"]), numbers(&said["ess_tail"])].concat();
    Ok(Found {
        name: name.into(),
        sites: said["clients"].as_array().map_or(0, Vec::len),
        chosen: said["sampler"].as_str().unwrap_or_default().into(),
        exchanges: (count("before_sampling"), count("sampling")),
        ess: effective.into_iter().fold(f64::INFINITY, f64::min),
        parameters: theirs.iter().enumerate().map(one).collect(),
        warnings: said["warnings"].as_array().into_iter().flatten().map(code).collect(),
    })
}

/// Means and standard deviations in the order in which a config has them: coefficients by their
/// numbers, or named, and what stands beside them last.
fn in_order(reference: &Json) -> Vec<(f64, f64)> {
    let number = |k: usize| reference.get(format!("beta[{k}]"));
    let numbered = (1..).map_while(number);
    let named = ["alpha", "beta", "sigma", "mu", "tau"];
    let named = named.into_iter().filter_map(|name| reference.get(name));
    let moments = |of: &Json| Some((of["mean"].as_f64()?, of["sd"].as_f64()?));
    numbered.chain(named).filter_map(moments).collect()
}

/// What is off, a line each.
fn complaints(all: &[Found]) -> Vec<String> {
    let of = |found: &Found| {
        let wrong = found.parameters.iter().filter(|one| !one.is_right());
        let line = |one: &Compared| {
            format!(
                "{}, {}: the mean is off by {:.3} sd, the sd by {:.1}%",
                found.name,
                one.name,
                one.shift,
                100.0 * one.spread
            )
        };
        wrong.map(line).collect::<Vec<_>>()
    };
    all.iter().flat_map(of).collect()
}

/// The chapter.
fn written(all: &[Found]) -> String {
    let about = format!(
        "posteriordb (stan-dev, BSD-3-Clause) has posteriors that others sampled with Stan and \
         checked: 10,000 nearly independent draws each, on the rows in one place. Sixteen of them \
         can be stated here, and the data folder contains their rows. Each is dealt to three to \
         five sites and sampled with no word on how (`auto`), for {EFFECTIVE} effective draws. \
         *Means* is the largest error of a posterior mean in posterior standard deviations, *sds* \
         the largest relative error of a standard deviation, Monte Carlo error of both sides \
         included, which is about 0.01 and 0.8% for a single parameter; *exchanges* are those with \
         the sites before sampling and, of all chains, while it samples; *draws* the fewest \
         effective draws of a parameter, bulk or tail. Made by `cargo xtask posteriordb`, which \
         fails where a mean is off by more than {MOST_SHIFT} beyond {ERRORS} standard errors, or a \
         standard deviation by more than {:.0}%; with fewer draws \
         `crates/engine/tests/posteriordb.rs` does the same among the tests, and holds the effects \
         of the eight schools, which their sites draw, to Stan's.",
        100.0 * MOST_SPREAD
    );
    let mut text = format!(
        "# Posteriors that others sampled\n\n{}\n\n\
         | posterior | parameters | sites | sampler | exchanges | draws | means | sds |\n\
         |---|---|---|---|---|---|---|---|\n",
        lines(&about, "")
    );
    for found in all {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} + {} | {:.0} | {:.3} | {:.1}% |",
            found.name,
            found.parameters.len(),
            found.sites,
            found.chosen,
            found.exchanges.0,
            found.exchanges.1,
            found.ess,
            found.worst(|one| one.shift),
            100.0 * found.worst(|one| one.spread)
        );
    }
    let right = all.iter().filter(|found| found.parameters.iter().all(Compared::is_right)).count();
    let _ = writeln!(text, "\n{right} of {} agree with Stan.", all.len());
    let warn: Vec<&Found> = all.iter().filter(|found| !found.warnings.is_empty()).collect();
    if !warn.is_empty() {
        text.push_str("\nRuns that said something of how they went ([warnings](warnings.md)):\n\n");
    }
    for found in warn {
        let codes: Vec<String> = found.warnings.iter().map(|code| format!("`{code}`")).collect();
        let _ = writeln!(text, "- {}: {}", found.name, codes.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_or_a_deviation_that_is_off_is_complained_about() {
        let one = |shift: f64, spread: f64| Found {
            name: "schools".into(),
            sites: 3,
            chosen: "imh".into(),
            exchanges: (9, 4),
            ess: 40_000.0,
            parameters: vec![Compared { name: "mu".into(), shift, error: 0.01, spread }],
            warnings: vec!["run-lengthened".into()],
        };
        let all = [one(0.07, 0.02), one(-0.09, 0.0), one(0.0, -0.04)];
        assert_eq!(complaints(&all).len(), 2, "{:?}", complaints(&all));
        let text = written(&all);
        assert!(text.contains("1 of 3 agree with Stan") && text.contains("`run-lengthened`"));
    }

    #[test]
    fn parameters_stand_in_the_order_of_the_formula() {
        let of = |x: f64| serde_json::json!({ "mean": x, "sd": 1.0 });
        let reference = serde_json::json!({
            "sigma": of(3.0), "beta[2]": of(2.0), "beta[1]": of(1.0), "theta[1]": of(9.0),
        });
        let means: Vec<f64> = in_order(&reference).into_iter().map(|(mean, _)| mean).collect();
        assert_eq!(means, [1.0, 2.0, 3.0]);
        let said = serde_json::json!({
            "parameters": ["intercept", "x", "sigma"], "mean": [1.0, 2.5, 3.0],
            "sd": [1.0, 1.0, 1.1], "mcse_mean": [0.0, 0.0, 0.0],
        });
        let reference = serde_json::json!({ "reference": reference, "draws": 10_000 });
        let found = compare("any", &said, &reference).unwrap();
        assert_eq!(found.worst(|one| one.shift), 0.5);
        assert!((found.worst(|one| one.spread) - 0.1).abs() < 1e-12);
        assert!(compare("any", &serde_json::json!({}), &reference).is_err());
    }
}
