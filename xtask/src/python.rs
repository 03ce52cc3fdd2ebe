//! Build the Python package, and run the tests in Python in an environment of their own under the
//! target folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo;

/// An environment that tests are run in.
pub struct Against {
    /// What the step is called.
    pub name: &'static str,
    /// What the tests need.
    requirements: &'static str,
    /// Which tests: what pytest is told. Each runs in a process of its own, all at once, since
    /// tests of networks wait more than they compute.
    pub tests: &'static [&'static str],
    /// The environment's folder in the target folder.
    folder: &'static str,
    /// The least Python, 3 and this.
    least: u32,
}

/// The last ArviZ for Python 3.11 for all tests, and the current one for those in which it matters.
pub const ALL: [Against; 2] = [
    Against {
        name: "tests in Python, ArviZ 0.23",
        requirements: "python/requirements-test.txt",
        tests: &[
            "python/tests/test_flower.py",
            "python/tests --ignore=python/tests/test_flower.py",
        ],
        folder: "python-venv",
        least: 11,
    },
    Against {
        name: "tests in Python, current ArviZ",
        requirements: "python/requirements-current.txt",
        tests: &["python/tests/test_sample.py python/tests/test_rundir.py"],
        folder: "python-venv-current",
        least: 12,
    },
];

/// PyTorch, which is large: only where it is asked for.
pub const TORCH: Against = Against {
    name: "tests in Python, PyTorch",
    requirements: "python/requirements-torch.txt",
    tests: &["python/tests/test_torch.py"],
    folder: "python-venv-torch",
    least: 11,
};

/// How a step ended that did not fail.
pub enum Ended {
    /// It passed.
    Passed,
    /// This machine cannot run it.
    Skipped(String),
}

/// Make the environment, if it can be made: [`run`] says what is wrong where it cannot.
pub fn prepare(root: &Path, against: &Against) {
    let _ = environment(root, against, &target(root).join(against.folder));
}

/// Run pytest against the package and the debug binary that the Rust tests have built.
pub fn run(root: &Path, against: &Against) -> Result<Ended, String> {
    let target = target(root);
    let python = match environment(root, against, &target.join(against.folder))? {
        Ok(python) => python,
        Err(why) => return Ok(Ended::Skipped(why)),
    };
    let binary = target.join("debug").join(format!("consilience{}", std::env::consts::EXE_SUFFIX));
    if !binary.is_file() {
        return Err(format!("{} is not there: build it with `cargo build`", binary.display()));
    }
    let package = package(root, &target)?;
    let start = |tests: &str| {
        let mut command = Command::new(&python);
        command
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
            .args(tests.split_whitespace())
            .current_dir(root)
            // what is imported is compiled once for all, and nothing is left beside the sources
            .env("PYTHONPYCACHEPREFIX", target.join(against.folder).join("compiled"))
            .env("CONSILIENCE", &binary)
            .env("PYTHONPATH", &package);
        command.output()
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = against.tests.iter().map(|tests| scope.spawn(|| start(tests))).collect();
        all.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut failed = Vec::new();
    for (tests, ended) in against.tests.iter().zip(ended) {
        match ended {
            Ok(Ok(output)) => {
                for part in [&output.stdout, &output.stderr] {
                    print!("{}", String::from_utf8_lossy(part));
                }
                if !output.status.success() {
                    failed.push(format!("pytest {tests}"));
                }
            }
            Ok(Err(error)) => return Err(format!("pytest does not start: {error}")),
            Err(_) => return Err(format!("pytest {tests} could not be waited for")),
        }
    }
    if failed.is_empty() { Ok(Ended::Passed) } else { Err(failed.join(", ")) }
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// The package as a wheel would install it, with the profile of the tests: nothing that they have
/// built is built again. All of the workspace with its tests is selected, so that dependencies have
/// the same features.
fn package(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let built = cargo()
        .args(["build", "--workspace", "--lib", "--tests", "--profile", "test", "--locked"])
        .current_dir(root)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("cargo build --workspace --lib --tests --profile test".into());
    }
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let library = target.join("debug").join(format!("{prefix}_consilience{suffix}"));
    let folder = target.join("python-package");
    let inside = folder.join("consilience");
    let copied = || -> std::io::Result<()> {
        if inside.exists() {
            std::fs::remove_dir_all(&inside)?;
        }
        std::fs::create_dir_all(&inside)?;
        for entry in std::fs::read_dir(root.join("python/consilience"))? {
            let path = entry?.path();
            if let Some(name) = path.file_name().filter(|_| path.is_file()) {
                std::fs::copy(&path, inside.join(name))?;
            }
        }
        let name = if cfg!(windows) { "_consilience.pyd" } else { "_consilience.abi3.so" };
        std::fs::copy(&library, inside.join(name)).map(|_| ())
    };
    copied().map_err(|error| {
        format!("the package cannot be put together in {}: {error}", folder.display())
    })?;
    Ok(folder)
}

/// Build the wheel with maturin, which is installed in an environment of its own if it is not
/// there, and try it out.
pub fn wheel(root: &Path) -> Result<(), String> {
    let folder = target(root).join("wheels");
    let maturin = maturin(root)?;
    let built = Command::new(&maturin)
        .args(["build", "--release", "--locked", "--out"])
        .arg(&folder)
        .current_dir(root)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err(format!("{} build --release failed", maturin.display()));
    }
    let wheel =
        newest(&folder).ok_or_else(|| format!("there is no wheel in {}", folder.display()))?;
    let version = command_of(root, &wheel)?;
    println!("{} has {version}: `pip install` it", wheel.display());
    Ok(())
}

/// The wheel that was made last.
fn newest(folder: &Path) -> Option<PathBuf> {
    let all = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let wheels = all.filter(|path| path.extension().is_some_and(|e| e == "whl"));
    wheels.max_by_key(|path| path.metadata().and_then(|file| file.modified()).ok())
}

/// What the command in a wheel says of itself, once pip has installed it in an environment of its
/// own.
fn command_of(root: &Path, wheel: &Path) -> Result<String, String> {
    let python = interpreters()
        .into_iter()
        .find(|python| suits(python, 11))
        .ok_or("no Python 3.11 or later with venv is on this machine")?;
    let folder = target(root).join("wheel-venv");
    let scripts = folder.join(if cfg!(windows) { "Scripts" } else { "bin" });
    let done = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let installed = done(Command::new(python).args(["-m", "venv", "--clear"]).arg(&folder))
        && done(Command::new(scripts.join("python")).args(install).arg(wheel));
    if !installed {
        return Err(format!(
            "pip cannot install {} (is there a network? it needs NumPy)",
            wheel.display()
        ));
    }
    let told = Command::new(scripts.join("consilience")).arg("--version").output();
    let told = told
        .map_err(|error| format!("the command in {} does not start: {error}", wheel.display()))?;
    let version = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    if told.status.success() && version.starts_with("consilience ") {
        Ok(version)
    } else {
        Err(format!(
            "the command in {} fails: {}",
            wheel.display(),
            String::from_utf8_lossy(&told.stderr)
        ))
    }
}

fn maturin(root: &Path) -> Result<PathBuf, String> {
    let there = |program: &Path| {
        Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    if there(Path::new("maturin")) {
        return Ok("maturin".into());
    }
    let folder = target(root).join("maturin");
    let program = folder.join(if cfg!(windows) { "Scripts/maturin.exe" } else { "bin/maturin" });
    if there(&program) {
        return Ok(program);
    }
    let python = interpreters()
        .into_iter()
        .find(|python| suits(python, 11))
        .ok_or("no Python 3.11 or later with venv is on this machine")?;
    let done = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let pip = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let made = done(Command::new(python).args(["-m", "venv"]).arg(&folder))
        && done(Command::new(pip).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "maturin>=1.9.4,<2",
        ]));
    if made {
        Ok(program)
    } else {
        Err("maturin cannot be installed (is there a network?): `pip install maturin`".into())
    }
}

/// The environment's Python; made anew when the requirements change. The inner error says why this
/// machine cannot have one.
fn environment(
    root: &Path,
    against: &Against,
    folder: &Path,
) -> Result<Result<PathBuf, String>, String> {
    let requirements = against.requirements;
    let wanted = std::fs::read_to_string(root.join(requirements))
        .map_err(|error| format!("{requirements}: {error}"))?;
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let stamp = folder.join("requirements.txt");
    if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted)
    {
        return Ok(Ok(python));
    }
    let Some(interpreter) = interpreters().into_iter().find(|python| suits(python, against.least))
    else {
        let least = against.least;
        return Ok(Err(format!(
            "no Python 3.{least} or later with venv and ensurepip is on this machine (`uv python \
             install 3.13` would do)"
        )));
    };
    let made = Command::new(interpreter).args(["-m", "venv", "--clear"]).arg(folder).status();
    if !made.is_ok_and(|status| status.success()) {
        return Ok(Err(format!("no virtual environment can be made in {}", folder.display())));
    }
    if !installed(root, &python, requirements) {
        return Ok(Err(format!(
            "pip cannot install what {requirements} names (is there a network?)"
        )));
    }
    std::fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(Ok(python))
}

/// Install what a file names: by uv, which takes a twentieth of the computing that pip takes, and
/// by pip where uv cannot be had.
fn installed(root: &Path, python: &Path, requirements: &str) -> bool {
    let done = |words: &[&str]| {
        let mut command = Command::new(python);
        command.arg("-m").args(words).current_dir(root);
        command.status().is_ok_and(|status| status.success())
    };
    let pip = ["pip", "install", "--quiet", "--disable-pip-version-check"];
    let environment = python.to_string_lossy();
    let by_uv = ["uv", "pip", "install", "--quiet", "--python", &environment, "-r", requirements];
    done(&[&pip[..], &["uv>=0.5,<1"]].concat()) && done(&by_uv)
        || done(&[&pip[..], &["-r", requirements]].concat())
}

/// Every Python that may be here: on the path, newest first but for the usual one, in pyenv's
/// folder, and uv's own.
fn interpreters() -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from("python3")];
    all.extend((10..=19).rev().map(|minor| PathBuf::from(format!("python3.{minor}"))));
    let home = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = home.and_then(|home| std::fs::read_dir(home.join("versions")).ok());
    let mut kept: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/python3"))
        .collect();
    kept.sort();
    all.extend(kept.into_iter().rev());
    if let Ok(found) = Command::new("uv").args(["python", "find", ">=3.12"]).output() {
        all.push(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()));
    }
    all
}

/// Whether a Python is new enough and can make environments.
fn suits(python: &Path, least: u32) -> bool {
    let new = format!("import sys, venv, ensurepip; sys.exit(sys.version_info < (3, {least}))");
    Command::new(python)
        .args(["-c", &new])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
