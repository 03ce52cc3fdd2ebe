//! Run the command once for each posterior and sampler, and keep what it says.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A run that takes longer is stopped, and its row says so.
const LIMIT: Duration = Duration::from_secs(3600);

/// Where runs are kept, and what runs them.
pub struct Runs {
    pub program: PathBuf,
    pub folder: PathBuf,
    /// Run nothing: show what is kept.
    pub kept_alone: bool,
}

impl Runs {
    /// What `consilience VERB CONFIG --json` says, with the seconds of computing that it took:
    /// `said` and `cpu`, or `failed`. Kept under `name` for as long as the config is the same;
    /// nothing where it is not kept and nothing may be run.
    pub fn get(&self, name: &str, verb: &str, config: &str, options: &[&str]) -> Option<Value> {
        let file = self.folder.join(format!("{name}.json"));
        let kept = std::fs::read(&file).ok().and_then(|b| serde_json::from_slice(&b).ok());
        if let Some(kept) = kept.filter(|kept: &Value| kept["config"] == *config) {
            return Some(kept);
        }
        if self.kept_alone {
            return None;
        }
        let mut value = match self.run(name, verb, config, options) {
            Ok(value) => value,
            Err(Failed { why, keep }) => {
                println!("{name}: {why}");
                let failed = json!({ "failed": why });
                if !keep {
                    return Some(failed);
                }
                failed
            }
        };
        value["config"] = json!(config);
        if let Err(error) = std::fs::write(&file, format!("{value:#}\n")) {
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
            if started.elapsed() > LIMIT {
                child.kill().map_err(told)?;
                child.wait().map_err(told)?;
                let why = format!("stopped after {} s", LIMIT.as_secs());
                return Err(Failed { why, keep: true });
            }
            sleep(Duration::from_millis(20));
        };
        let wall = started.elapsed().as_secs_f64();
        let cpu = children_cpu().zip(before).map_or(wall, |(after, before)| after - before);
        if !status.success() {
            let said = std::fs::read_to_string(path("err")).unwrap_or_default();
            let why = said.lines().find(|line| !line.starts_with("warning")).unwrap_or_default();
            return Err(failed(why.into()));
        }
        let output = std::fs::read(path("out")).map_err(told)?;
        let mut said: Value = serde_json::from_slice(&output).map_err(|e| failed(e.to_string()))?;
        if let Some(said) = said.as_object_mut() {
            said.remove("covariance");
        }
        for ending in ["out", "err"] {
            let _ = std::fs::remove_file(path(ending));
        }
        println!("{name}: {cpu:.1} s");
        Ok(json!({ "said": said, "cpu": cpu }))
    }
}

/// Why there is no answer, and whether that would be so again.
struct Failed {
    why: String,
    keep: bool,
}

/// The seconds of computing of all children that have ended, where Linux tells.
fn children_cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(13)? + ticks(14)?) / 100.0) // cutime and cstime, in hundredths of a second
}

/// A target's name as that of a file.
pub fn file_name(target: &str, rest: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '+' { c } else { '-' };
    format!("{target} {rest}").chars().map(plain).collect::<String>().replace("--", "-")
}

/// The folder, made if it is not there.
pub fn folder(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/choices");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}
