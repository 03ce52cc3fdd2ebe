//! Run the command once for each posterior and sampler, and keep what it says: one file for each
//! posterior, in the repository.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// A run that takes more seconds of computing is stopped, and its row says so.
const LIMIT: f64 = 1200.0;

/// What is kept of an answer: the rest is not read, and would be large.
const READ: [&str; 17] = [
    "sampler",
    "chains",
    "iterations",
    "burn_in",
    "bits",
    "exchanges",
    "ess_bulk",
    "ess_tail",
    "mean",
    "sd",
    "mcse_mean",
    "khat",
    "warnings",
    "clients",
    "parameters",
    "bias",
    "choice",
];
/// Numbers are kept to so many digits.
const DIGITS: usize = 6;

/// Where runs are kept, and what runs them.
pub struct Runs {
    pub program: PathBuf,
    /// Where they run.
    pub folder: PathBuf,
    /// Where the answers are kept, a file for each posterior.
    pub kept: PathBuf,
    /// Run nothing: show what is kept.
    pub kept_alone: bool,
    /// Run what is kept, too.
    pub again: bool,
}

impl Runs {
    /// What `consilience VERB CONFIG --json` says, with the seconds of computing that it took:
    /// `said` and `cpu`, or `failed`. Kept under `name` in the file of the target for as long as
    /// the config is the same; nothing where it is not kept and nothing may be run.
    pub fn get(
        &self,
        target: &str,
        name: &str,
        verb: &str,
        config: &str,
        options: &[&str],
    ) -> Option<Value> {
        let file = self.kept.join(format!("{}.json", file_name(target, "")));
        let kept = entries(&file).remove(name).filter(|kept| kept["config"] == *config);
        if self.kept_alone || (kept.is_some() && !self.again) {
            return kept;
        }
        let value = match self.run(&file_name(target, name), verb, config, options) {
            Ok(value) => value,
            Err(Failed { why, keep }) => {
                println!("{target}, {name}: {why}");
                let failed = json!({ "failed": why });
                if !keep {
                    return Some(failed);
                }
                failed
            }
        };
        let value = with_config(&value, config);
        let mut all = entries(&file);
        all.insert(name.into(), value.clone());
        if let Err(error) = std::fs::write(&file, written(&all)) {
            println!("{}: {error}", file.display());
        }
        Some(value)
    }

    fn run(&self, name: &str, verb: &str, config: &str, options: &[&str]) -> Result<Value, Failed> {
        let failed = |why: String| Failed { why, keep: false };
        let told = |error: std::io::Error| failed(error.to_string());
        let path = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        std::fs::write(path("toml"), config).map_err(told)?;
        let create = |ending: &str| File::create(path(ending)).map_err(told);
        let (before, started) = (children_cpu(), Instant::now());
        let elapsed = || started.elapsed().as_secs_f64();
        let mut child = Command::new(&self.program)
            .arg(verb)
            .arg(path("toml"))
            .arg("--json")
            .args(options)
            .stdin(Stdio::null())
            .stdout(create("out")?)
            .stderr(create("err")?)
            .spawn()
            .map_err(|error| {
                failed(format!("{} does not start: {error}", self.program.display()))
            })?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(told)? {
                break status;
            }
            if cpu_of(child.id()).unwrap_or_else(elapsed) > LIMIT {
                child.kill().map_err(told)?;
                child.wait().map_err(told)?;
                let why = format!("stopped after {LIMIT:.0} seconds of computing");
                return Err(Failed { why, keep: true });
            }
            sleep(Duration::from_millis(20));
        };
        let cpu = children_cpu().zip(before).map_or_else(elapsed, |(after, before)| after - before);
        if !status.success() {
            let said = std::fs::read_to_string(path("err")).unwrap_or_default();
            let why = said.lines().find(|line| !line.starts_with("warning")).unwrap_or_default();
            return Err(failed(why.into()));
        }
        let output = std::fs::read(path("out")).map_err(told)?;
        let said: Value = serde_json::from_slice(&output).map_err(|e| failed(e.to_string()))?;
        for ending in ["out", "err"] {
            let _ = std::fs::remove_file(path(ending));
        }
        println!("{name}: {cpu:.1} s");
        Ok(json!({ "said": read(&said), "cpu": cpu }))
    }
}

/// Why there is no answer, and whether that would be so again.
struct Failed {
    why: String,
    keep: bool,
}

/// The seconds of computing of all children that have ended, where Linux tells.
fn children_cpu() -> Option<f64> {
    seconds("self", [13, 14]) // cutime and cstime
}

/// Those of a child that runs.
fn cpu_of(child: u32) -> Option<f64> {
    seconds(&child.to_string(), [11, 12]) // utime and stime
}

/// The sum of two fields of a process's `stat`, in hundredths of a second there.
fn seconds(process: &str, at: [usize; 2]) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(at[0])? + ticks(at[1])?) / 100.0)
}

/// What is kept of one posterior.
fn entries(file: &Path) -> Map<String, Value> {
    let kept = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    kept.unwrap_or_default()
}

/// The same as a file: an entry a line.
fn written(all: &Map<String, Value>) -> String {
    let lines: Vec<String> =
        all.iter().map(|(name, value)| format!("{}: {value}", json!(name))).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

fn with_config(value: &Value, config: &str) -> Value {
    let mut value = value.clone();
    value["config"] = json!(config);
    value
}

/// The part of an answer that is read, in few digits.
fn read(said: &Value) -> Value {
    let mut part: Map<String, Value> =
        READ.iter().filter_map(|key| Some(((*key).into(), said.get(*key)?.clone()))).collect();
    if let Some(reference) = said["references"].get(0) {
        part.insert("references".into(), json!([read(reference)]));
    }
    let mut part = Value::Object(part);
    shorten(&mut part);
    part
}

fn shorten(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = format!("{:.*e}", DIGITS - 1, number.as_f64().unwrap_or(0.0));
            *value = json!(text.parse::<f64>().unwrap_or(0.0));
        }
        Value::Array(list) => list.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

/// A target's name as that of a file.
pub fn file_name(target: &str, rest: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '+' { c } else { '-' };
    let whole = format!("{target} {rest}");
    whole.trim().chars().map(plain).collect::<String>().replace("--", "-")
}

/// A folder, made if it is not there.
pub fn folder(folder: PathBuf) -> Result<PathBuf, String> {
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was run before stays where a part is run again, and what is kept is what is read.
    #[test]
    fn answers_of_other_runs_stay() {
        let kept = folder(std::env::temp_dir().join(format!("choices-{}", std::process::id())));
        let kept = kept.unwrap();
        let answer = json!({ "said": read(&json!({ "mean": [0.123456789], "draws": [1.0] })) });
        let file = kept.join("pima.json");
        let both = [("imh run", "a"), ("pcn run", "b")]
            .map(|(name, config)| (name.to_owned(), with_config(&answer, config)));
        std::fs::write(&file, written(&both.into_iter().collect())).unwrap();
        let mut runs = Runs {
            program: "/does/not/exist".into(),
            folder: kept.clone(),
            kept: kept.clone(),
            kept_alone: false,
            again: false,
        };
        let found = runs.get("pima", "imh run", "run", "a", &[]).unwrap();
        assert_eq!(found["said"], json!({ "mean": [0.123457] }));
        // another config is another run, and one that fails takes nothing away
        assert!(runs.get("pima", "imh run", "run", "c", &[]).unwrap()["failed"].is_string());
        runs.again = true;
        assert!(runs.get("pima", "imh run", "run", "a", &[]).unwrap()["failed"].is_string());
        runs.kept_alone = true;
        assert!(runs.get("pima", "imh run", "run", "c", &[]).is_none());
        for (name, config) in [("imh run", "a"), ("pcn run", "b")] {
            assert!(runs.get("pima", name, "run", config, &[]).is_some(), "{name}");
        }
        runs.kept_alone = false;
        runs.program = "/bin/echo".into(); // says what is no JSON
        assert!(runs.get("pima", "imh run", "run", "a", &[]).unwrap()["failed"].is_string());
        assert_eq!(entries(&file).len(), 2);
        std::fs::remove_dir_all(&kept).unwrap();
    }
}
