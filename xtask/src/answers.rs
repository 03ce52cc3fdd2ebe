//! Run samplers with nothing but their name stated, on real data, and hold their answers against
//! NUTS on pooled rows.
//!
//! A reader accepts an answer whose means are within 0.1 posterior standard deviations and whose
//! standard deviations are within 5%. The default, which is exact, and samplers whose clients send
//! gradients must all be acceptable, and whatever is not must warn.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cargo;

const MOST_SHIFT: f64 = 0.1;
const MOST_SPREAD: f64 = 0.05;

/// The samplers, and whether their answers must be acceptable: that of the default, which is exact,
/// and of those whose clients send gradients.
const SAMPLERS: [(&str, bool); 10] = [
    ("auto", true),
    ("lmc", true),
    ("qlsd", true),
    ("qlsd*", true),
    ("qlsd++", true),
    ("b-elf", true),
    ("marina-ld", true),
    ("fald", false),
    ("vr-fald*", false),
    ("fa-ld", false),
];

/// The data sets, and how a config states them. The last is looked for in the folder that
/// CONSILIENCE_DATA names.
const DATA: [(&str, &str); 4] = [
    ("heart-disease", "builtin = \"heart-disease\""),
    ("titanic", "builtin = \"titanic\""),
    ("breast-cancer", "builtin = \"breast-cancer\""),
    ("pima", "name = \"pima\"\nclients = 4"),
];

/// What one run said, and how far off it was.
struct Answer {
    data: &'static str,
    sampler: &'static str,
    /// The one that was run: `auto` chooses.
    chosen: String,
    iterations: u64,
    ess: f64,
    shift: f64,
    spread: f64,
    warnings: Vec<String>,
}

impl Answer {
    fn is_acceptable(&self) -> bool {
        self.shift <= MOST_SHIFT && self.spread <= MOST_SPREAD
    }

    /// The sampler, with the one that it chose.
    fn name(&self) -> String {
        if self.chosen == self.sampler {
            self.sampler.into()
        } else {
            format!("{} ({})", self.sampler, self.chosen)
        }
    }
}

/// Build the command unless it is built, run all, write `docs/src/answers.md`, and fail where an
/// answer is off and says nothing.
pub fn run(root: &Path, is_built: bool) -> Result<(), String> {
    let build = || cargo().args(["build", "--release", "--locked"]).current_dir(root).status();
    if !is_built && !build().is_ok_and(|status| status.success()) {
        return Err("the command does not build".into());
    }
    let folder = root.join("target/answers");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let program = root.join("target/release/consilience");
    let (mut answers, mut absent) = (Vec::new(), Vec::new());
    for (data, stated) in DATA {
        let config = |sampler: &str| -> Result<std::path::PathBuf, String> {
            let file = folder.join(format!("{data}.toml"));
            let text = format!(
                "[data]\n{stated}\n[target.prior]\nlaw = \"gaussian\"\nvariance = 6.25\n[sampler]\n\
                 name = \"{sampler}\"\n"
            );
            std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(file)
        };
        let mut truth = Command::new(&program);
        truth
            .arg("truth")
            .arg(config("lmc")?)
            .args(["--method", "nuts", "--draws", "5000", "--json", "--cache"]);
        let truth = match json(truth.arg(folder.join("cache"))) {
            Ok(truth) => truth,
            Err(why) => {
                println!("{data}: not run, since {why}");
                absent.push(data);
                continue;
            }
        };
        let (mean, sd) =
            (numbers(&truth["references"][0]["mean"]), numbers(&truth["references"][0]["sd"]));
        for (sampler, _) in SAMPLERS {
            let mut run = Command::new(&program);
            run.arg("run")
                .arg(config(sampler)?)
                .args(["--json", "--cache"])
                .arg(folder.join("no-cache"));
            let said = json(&mut run)?;
            let worst = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
            let (found, spread) = (numbers(&said["mean"]), numbers(&said["sd"]));
            let words = |list: &Value| {
                list.as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|w| {
                        let (says, remedy) = (w["message"].as_str()?, w["remedy"].as_str()?);
                        Some(if remedy.is_empty() {
                            says.to_owned()
                        } else {
                            format!("{says}. {remedy}")
                        })
                    })
                    .collect()
            };
            let answer = Answer {
                data,
                sampler,
                chosen: said["sampler"].as_str().unwrap_or(sampler).to_owned(),
                iterations: said["iterations"].as_u64().unwrap_or(0)
                    / said["chains"].as_u64().unwrap_or(1).max(1),
                ess: numbers(&said["ess_bulk"])
                    .iter()
                    .chain(&numbers(&said["ess_tail"]))
                    .copied()
                    .fold(f64::INFINITY, f64::min),
                shift: worst(
                    &mut found.iter().zip(&mean).zip(&sd).map(|((a, b), sd)| (a - b).abs() / sd),
                ),
                spread: worst(&mut spread.iter().zip(&sd).map(|(a, b)| (a / b - 1.0).abs())),
                warnings: words(&said["warnings"]),
            };
            println!(
                "{data:<14} {sampler:<10} means within {:.3} sd, sds within {:.1}%{}",
                answer.shift,
                100.0 * answer.spread,
                if answer.warnings.is_empty() { "" } else { ", warns" }
            );
            answers.push(answer);
        }
    }
    let page = root.join("docs/src/answers.md");
    std::fs::write(&page, written(&answers, &absent))
        .map_err(|error| format!("{}: {error}", page.display()))?;
    let wrong = complaints(&answers);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// What must not be: an answer that is off and says nothing, or is off where none should be.
fn complaints(answers: &[Answer]) -> Vec<String> {
    let off = answers.iter().filter(|answer| !answer.is_acceptable());
    let must = |sampler: &str| SAMPLERS.iter().any(|(name, must)| *name == sampler && *must);
    off.filter(|answer| answer.warnings.is_empty() || must(answer.sampler))
        .map(|answer| {
            format!(
                "{} on {}: means off by {:.3} sd, sds by {:.1}%, {} warnings",
                answer.sampler,
                answer.data,
                answer.shift,
                100.0 * answer.spread,
                answer.warnings.len()
            )
        })
        .collect()
}

/// What the command says as JSON.
pub(crate) fn json(command: &mut Command) -> Result<Value, String> {
    let output =
        command.output().map_err(|error| format!("the command does not start: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

pub(crate) fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().into_iter().flatten().map(|x| x.as_f64().unwrap_or(f64::NAN)).collect()
}

/// The chapter.
fn written(answers: &[Answer], absent: &[&str]) -> String {
    let about = "What a run gives that names a sampler and nothing else, on real data dealt to \
        four sites (without a name it is `auto`, which says what it chose), against NUTS (of \
         nuts-rs, 4 chains of 5,000 draws) on the pooled rows. Made by \
        `cargo xtask answers`, with CONSILIENCE_DATA for the data that is not built in. *Means* is \
        the largest error of a posterior mean in posterior standard deviations, *sds* the largest \
        relative error of a standard deviation, Monte Carlo error of both sides included; *draws* \
        the fewest effective draws of a parameter, bulk or tail. An answer is acceptable with \
        means within 0.1 and sds within 5%; one that is not must warn.";
    let mut text = format!(
        "# Answers by default\n\n{}\n\n\
         | data | sampler | iterations a chain | draws | means | sds | acceptable | warns |\n\
         |---|---|---|---|---|---|---|---|\n",
        lines(about, "")
    );
    for answer in answers {
        let yes = |is: bool| if is { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.3} | {:.1}% | {} | {} |",
            answer.data,
            answer.name(),
            answer.iterations,
            answer.ess,
            answer.shift,
            100.0 * answer.spread,
            yes(answer.is_acceptable()),
            yes(!answer.warnings.is_empty())
        );
    }
    let good = answers.iter().filter(|answer| answer.is_acceptable()).count();
    let _ = writeln!(text, "\n{good} of {} answers are acceptable.", answers.len());
    if !absent.is_empty() {
        let _ = writeln!(text, "Not run, since its data is not there: {}.", absent.join(", "));
    }
    text.push_str("\n## What was said\n\n");
    for answer in answers.iter().filter(|answer| !answer.warnings.is_empty()) {
        let said = answer.warnings.join("; ");
        let item = format!("- {} on {}: {said}", answer.name(), answer.data);
        let _ = writeln!(text, "{}", lines(&item, "  "));
    }
    text
}

/// A paragraph in lines of at most 100 columns.
pub(crate) fn lines(text: &str, indent: &str) -> String {
    let options = textwrap::Options::new(100).break_words(false).subsequent_indent(indent);
    textwrap::fill(text, options.word_splitter(textwrap::WordSplitter::NoHyphenation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sampler: &'static str, shift: f64, spread: f64, warnings: &[&str]) -> Answer {
        let warnings = warnings.iter().map(|w| (*w).to_owned()).collect();
        let chosen = if sampler == "auto" { "imh" } else { sampler }.to_owned();
        let (data, iterations, ess) = ("titanic", 10, 5.0);
        Answer { data, sampler, chosen, iterations, ess, shift, spread, warnings }
    }

    #[test]
    fn what_is_off_and_silent_is_complained_about() {
        let fine = [answer("lmc", 0.05, 0.01, &[]), answer("fald", 0.2, 0.01, &["biased"])];
        assert_eq!(complaints(&fine), Vec::<String>::new());
        let wrong = [
            answer("fald", 0.05, 0.06, &[]),
            answer("lmc", 0.2, 0.0, &["biased"]),
            answer("auto", 0.0, 0.2, &["biased"]),
        ];
        assert_eq!(complaints(&wrong).len(), 3);
        assert!(written(&fine, &["pima"]).contains("1 of 2 answers are acceptable"));
        assert!(written(&wrong, &[]).contains("- auto (imh) on titanic: biased"));
    }
}
