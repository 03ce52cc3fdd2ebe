//! Run the tests in Python, in an environment of their own under the target folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the tests need.
const REQUIREMENTS: &str = "python/requirements-test.txt";

/// How a step ended that did not fail.
pub enum Ended {
    /// It passed.
    Passed,
    /// This machine cannot run it.
    Skipped(String),
}

/// Run pytest against the debug binary that the Rust tests have built.
pub fn run(root: &Path) -> Result<Ended, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder));
    let python = match environment(root, &target.join("python-venv"))? {
        Ok(python) => python,
        Err(why) => return Ok(Ended::Skipped(why)),
    };
    let binary = target.join("debug").join(format!("consilience{}", std::env::consts::EXE_SUFFIX));
    if !binary.is_file() {
        return Err(format!("{} is not there: build it with `cargo build`", binary.display()));
    }
    let mut tests = Command::new(python);
    tests.args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests"]).current_dir(root).env("CONSILIENCE", binary);
    match tests.status() {
        Ok(status) if status.success() => Ok(Ended::Passed),
        Ok(_) => Err("pytest python/tests".into()),
        Err(error) => Err(format!("pytest does not start: {error}")),
    }
}

/// The environment's Python; made anew when the requirements change. The inner error says why this machine cannot have one.
fn environment(root: &Path, folder: &Path) -> Result<Result<PathBuf, String>, String> {
    let wanted = std::fs::read_to_string(root.join(REQUIREMENTS)).map_err(|error| format!("{REQUIREMENTS}: {error}"))?;
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let stamp = folder.join("requirements.txt");
    if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(Ok(python));
    }
    for probe in [&["--version"][..], &["-m", "venv", "--help"], &["-m", "ensurepip", "--version"]] {
        if !Command::new("python3").args(probe).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success()) {
            return Ok(Err(format!("`python3 {}` fails on this machine", probe.join(" "))));
        }
    }
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder).status();
    if !made.is_ok_and(|status| status.success()) {
        return Ok(Err(format!("no virtual environment can be made in {}", folder.display())));
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS];
    if !Command::new(&python).args(install).current_dir(root).status().is_ok_and(|status| status.success()) {
        return Ok(Err(format!("pip cannot install what {REQUIREMENTS} names (is there a network?)")));
    }
    std::fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(Ok(python))
}
