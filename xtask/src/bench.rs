//! Run the micro-benchmarks, or count instructions and compare them with those on record.
//!
//! Times on a busy machine differ by a half from one minute to the next; instructions of the same
//! program do not differ at all. Callgrind counts them. The Valgrind of many systems does not know
//! every instruction of wide vector registers, so the program is built with the feature `narrow`:
//! fewer lanes, the same numbers. It is compiled for machines with fused products, which would be
//! emulated otherwise, and counted so.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;

/// How many times the instructions on record a case may take.
const TOLERANCE: f64 = 1.02;

/// A workload in two lengths: what they differ by is the cost of iterations alone, without data,
/// checks and start-up.
#[derive(Debug, PartialEq)]
struct Case {
    words: String,
    iters: [u64; 2],
    /// Instructions an iteration.
    instructions: f64,
}

/// Run the micro-benchmarks.
pub fn run(root: &Path) -> Result<(), String> {
    let status = cargo()
        .args(["bench", "--package", "consilience-bench", "--locked"])
        .current_dir(root)
        .status();
    if status.map_err(|error| format!("cargo does not start: {error}"))?.success() {
        Ok(())
    } else {
        Err("the benchmarks failed".into())
    }
}

/// Count instructions. With BLESS=1 in the environment, put them on record instead.
pub fn check(root: &Path) -> Result<(), String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err(
            "valgrind is not on this machine, and it counts the instructions: install the \
            package `valgrind`, and run again"
                .into(),
        );
    }
    let record = root.join("crates/bench/instructions.toml");
    let mut cases = read(&record)?;
    let program = build(root)?;
    let (bless, mut worse) = (std::env::var_os("BLESS").is_some(), Vec::new());
    println!("{:>14} {:>14} {:>7}  workload", "on record", "instructions", "ratio");
    for case in &mut cases {
        let [short, long] = case.iters.map(|iters| count(&program, &case.words, iters));
        // An untimed repeat and a timed one: every iteration more is two.
        let now = (long? as f64 - short? as f64) / (2 * (case.iters[1] - case.iters[0])) as f64;
        let ratio = now / case.instructions;
        println!("{:>14.0} {now:>14.0} {ratio:>7.3}  {}", case.instructions, case.words);
        if ratio > TOLERANCE {
            worse.push(case.words.clone());
        }
        case.instructions = now;
    }
    if bless {
        return std::fs::write(&record, written(&cases))
            .map_err(|error| format!("{}: {error}", record.display()));
    }
    if worse.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} of {} workloads take over {TOLERANCE} times the instructions on record: {}. If that is \
         meant, put the new counts on record with BLESS=1",
        worse.len(),
        cases.len(),
        worse.join("; ")
    ))
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("narrow");
    let mut build = cargo();
    build.args([
        "build",
        "--release",
        "--package",
        "consilience-bench",
        "--features",
        "narrow",
        "--locked",
        "--target-dir",
    ]);
    if cfg!(target_arch = "x86_64") {
        let given = std::env::var("RUSTFLAGS").unwrap_or_default();
        build.env("RUSTFLAGS", format!("{given} -C target-feature=+avx2,+fma"));
    }
    let status = build
        .arg(&target)
        .current_dir(root)
        .status()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if status.success() {
        Ok(target.join("release/consilience-bench"))
    } else {
        Err("the benchmarks do not build".into())
    }
}

/// The instructions of one run.
fn count(program: &Path, words: &str, iters: u64) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(words.split_whitespace());
    let output = valgrind
        .args(["--repeats", "1", "--iters", &iters.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    collected(&said).filter(|_| output.status.success()).ok_or_else(|| {
        format!(
            "valgrind gave no count of `{words}`: {}",
            said.lines().rev().take(12).collect::<Vec<_>>().join("\n")
        )
    })
}

/// The number behind `Collected :`.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected :"))?.1.trim().parse().ok()
}

fn read(path: &Path) -> Result<Vec<Case>, String> {
    let complain = |problem: String| format!("{}: {problem}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| complain(error.to_string()))?;
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| complain(error.to_string()))?;
    let cases = table
        .get("case")
        .and_then(toml::Value::as_array)
        .ok_or_else(|| complain("there is no [[case]]".into()))?;
    let read = |case: &toml::Value| {
        let iters = case.get("iters")?.as_array()?;
        let iters = [iters.first()?.as_integer()? as u64, iters.get(1)?.as_integer()? as u64];
        let instructions = case.get("instructions")?.as_integer()? as f64;
        Some(Case { words: case.get("words")?.as_str()?.to_owned(), iters, instructions })
            .filter(|case| case.iters[1] > case.iters[0])
    };
    let asked = "every [[case]] has `words`, two ascending `iters` and `instructions`";
    cases
        .iter()
        .map(|case| read(case).ok_or_else(|| complain(format!("{asked}: {case}"))))
        .collect()
}

/// The file that [`read`] reads.
fn written(cases: &[Case]) -> String {
    let mut text = String::from(
        "# Instructions an iteration of consilience-bench, built with the feature `narrow`, on \
         made-up data,\n\
         # as Callgrind counts them. `cargo xtask bench --check` compares; BLESS=1 in its \
         environment writes\n\
         # this file anew.\n",
    );
    for Case { words, iters: [short, long], instructions } in cases {
        let _ = write!(
            text,
            "\n[[case]]\nwords = \"{words}\"\niters = [{short}, {long}]\n\
             instructions = {instructions:.0}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_read_as_it_is_written() {
        let case =
            |words: &str, instructions| Case { words: words.into(), iters: [1, 5], instructions };
        let cases = vec![case("qlsd_toy --oracle generic", 12_345.0), case("quantise_encode", 7.0)];
        let path = std::env::temp_dir()
            .join(format!("consilience-instructions-{}.toml", std::process::id()));
        std::fs::write(&path, written(&cases)).unwrap();
        assert_eq!(read(&path).unwrap(), cases);
        std::fs::write(&path, written(&cases).replace("[1, 5]", "[5, 5]")).unwrap();
        assert!(read(&path).unwrap_err().contains("ascending"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_record_of_this_workspace_is_well_formed() {
        assert!(read(&crate::root().join("crates/bench/instructions.toml")).unwrap().len() >= 8);
    }

    #[test]
    fn a_count_is_found_in_what_callgrind_says() {
        assert_eq!(
            collected("==1== Events    : Ir\n==1== Collected : 63948101\n==1== \n"),
            Some(63_948_101)
        );
        assert_eq!(collected("valgrind: failed to start"), None);
    }
}
