//! Plant known bugs one at a time and demand that the tests named for each catch it.
//!
//! A copy of the workspace is changed, never the workspace. A mutant is caught when *every* test
//! command named for it builds and then fails: what does not compile is no catch, and neither is a
//! test that would fail anyway, so all commands must pass before anything is planted.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::cargo;

/// A planted bug.
#[derive(Debug, PartialEq)]
struct Mutant {
    name: String,
    file: String,
    /// Text that occurs in the file once.
    find: String,
    replace: String,
    /// Arguments of `cargo test`, each of which must fail.
    tests: Vec<String>,
}

/// What became of a mutant.
enum Fate {
    /// The tests that failed.
    Caught(Vec<String>),
    /// The commands that passed all the same.
    Survived(Vec<String>),
    NotPlanted(String),
    NotCompiled(String),
}

/// Plant all mutants, or those of these names (with commas between them), and print what became of
/// each.
pub fn run(root: &Path, only: Option<&str>) -> Result<(), String> {
    let start = Instant::now();
    let mut mutants = read(&root.join("mutants.toml"))?;
    if let Some(names) = only {
        let names: Vec<&str> = names.split(',').collect();
        let known = |name: &&str| mutants.iter().any(|mutant| mutant.name == *name);
        if let Some(name) = names.iter().find(|name| !known(name)) {
            return Err(format!("mutants.toml has no mutant `{name}`"));
        }
        mutants.retain(|mutant| names.contains(&mutant.name.as_str()));
    }
    let bench = Bench {
        tree: root.join("target/mutants/tree"),
        target: root.join("target/mutants/target"),
    };
    bench.copy(root)?;

    let commands: BTreeSet<&str> =
        mutants.iter().flat_map(|mutant| &mutant.tests).map(String::as_str).collect();
    for tests in commands {
        println!("unchanged: cargo test {tests}");
        let output = bench.test(tests, false)?;
        let failed = failures(&output);
        if !output.status.success() {
            return Err(format!(
                "`cargo test {tests}` fails without any mutant: {}\n{}",
                failed.join(", "),
                tail(&output)
            ));
        }
        if passes(&output) == 0 {
            return Err(format!("`cargo test {tests}` runs no test"));
        }
    }

    let width = mutants.iter().map(|mutant| mutant.name.len()).max().unwrap_or(0);
    println!("\n{:width$}  caught by", "mutant");
    let mut wrong = 0;
    for mutant in &mutants {
        let (name, fate) = (&mutant.name, bench.fate(mutant)?);
        wrong += usize::from(!matches!(fate, Fate::Caught(_)));
        match fate {
            Fate::Caught(tests) => println!("{name:width$}  {}", tests.join(", ")),
            Fate::Survived(commands) => {
                println!("{name:width$}  SURVIVED {}", commands.join(" and "))
            }
            Fate::NotPlanted(problem) => println!("{name:width$}  NOT PLANTED {problem}"),
            Fate::NotCompiled(errors) => println!("{name:width$}  NOT COMPILED\n{errors}"),
        }
    }
    println!(
        "\nmutants: {} caught, {wrong} not, in {:.0} s",
        mutants.len() - wrong,
        start.elapsed().as_secs_f64()
    );
    if wrong == 0 {
        Ok(())
    } else {
        Err(format!("{wrong} of {} mutants were not caught", mutants.len()))
    }
}

/// Read the list of mutants. Every field is required, `why` too: a bug that nobody can explain is
/// not worth planting.
fn read(path: &Path) -> Result<Vec<Mutant>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let table: toml::Table =
        text.parse().map_err(|error| format!("{}: {error}", path.display()))?;
    let list = table
        .get("mutant")
        .and_then(toml::Value::as_array)
        .ok_or("mutants.toml has no [[mutant]]")?;
    let mut mutants: Vec<Mutant> = Vec::new();
    for (place, entry) in list.iter().enumerate() {
        let text = |key: &str| {
            let value = entry.get(key).and_then(toml::Value::as_str);
            value
                .map(str::to_owned)
                .ok_or(format!("mutants.toml: mutant {} has no text `{key}`", place + 1))
        };
        let tests = entry.get("tests").and_then(toml::Value::as_array).into_iter().flatten();
        let tests: Vec<String> =
            tests.filter_map(|test| test.as_str().map(str::to_owned)).collect();
        let name = text("name")?;
        text("why")?;
        if tests.is_empty() {
            return Err(format!("mutants.toml: `{name}` names no tests"));
        }
        if mutants.iter().any(|known| known.name == name) {
            return Err(format!("mutants.toml: two mutants are called `{name}`"));
        }
        mutants.push(Mutant {
            name,
            file: text("file")?,
            find: text("find")?,
            replace: text("replace")?,
            tests,
        });
    }
    Ok(mutants)
}

impl Mutant {
    /// The file's text with the bug in it.
    fn planted(&self, original: &str) -> Result<String, String> {
        match occurrences(original, &self.find).as_slice() {
            [only] => {
                Ok([&original[..only.start], self.replace.as_str(), &original[only.end..]].concat())
            }
            all => {
                let (n, file) = (all.len(), &self.file);
                Err(format!("its text occurs {n} times in {file}: it must occur once"))
            }
        }
    }
}

/// Where `find` occurs in a text, however either of them is laid out: white space does not count,
/// nor does the comma that the formatter leaves behind the last item of a list.
fn occurrences(text: &str, find: &str) -> Vec<Range<usize>> {
    let (places, letters) = bare(text);
    let (_, wanted) = bare(find);
    let mut found = Vec::new();
    if wanted.is_empty() {
        return found;
    }
    let mut from = 0;
    while let Some(at) =
        letters[from..].windows(wanted.len()).position(|window| window == wanted).map(|k| from + k)
    {
        let last = at + wanted.len() - 1;
        found.push(places[at]..places[last] + letters[last].len_utf8());
        from = at + wanted.len();
    }
    found
}

/// The characters of a text that count, and where each of them stands.
fn bare(text: &str) -> (Vec<usize>, Vec<char>) {
    let mut kept: Vec<(usize, char)> = Vec::new();
    for (place, letter) in text.char_indices().filter(|(_, letter)| !letter.is_whitespace()) {
        if matches!(letter, ')' | ']' | '}') && kept.last().is_some_and(|(_, last)| *last == ',') {
            kept.pop();
        }
        kept.push((place, letter));
    }
    kept.into_iter().unzip()
}

/// Where mutants are built and run.
struct Bench {
    tree: PathBuf,
    target: PathBuf,
}

impl Bench {
    /// Make the tree equal to the workspace as git sees it. Files that are equal already are left
    /// alone, so that they are not built again.
    fn copy(&self, root: &Path) -> Result<(), String> {
        let git = Command::new("git")
            .args(["ls-files", "-z", "-co", "--exclude-standard"])
            .current_dir(root)
            .output();
        let listing = git.map_err(|error| format!("git does not start: {error}"))?;
        if !listing.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr)));
        }
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let files: BTreeSet<PathBuf> = listing
            .split_terminator('\0')
            .map(PathBuf::from)
            .filter(|file| root.join(file).is_file())
            .collect();
        for file in &files {
            let (from, to) = (root.join(file), self.tree.join(file));
            let bytes = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            let made = to.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::write(&to, bytes))
                .map_err(|error| format!("{}: {error}", to.display()))?;
        }
        self.remove_others(&self.tree, &files)
            .map_err(|error| format!("{}: {error}", self.tree.display()))
    }

    fn remove_others(&self, directory: &Path, files: &BTreeSet<PathBuf>) -> std::io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                self.remove_others(&path, files)?;
            } else if !path.strip_prefix(&self.tree).is_ok_and(|file| files.contains(file)) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Plant, build, test, restore.
    fn fate(&self, mutant: &Mutant) -> Result<Fate, String> {
        let path = self.tree.join(&mutant.file);
        let write = |text: &str| {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        let original =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let planted = match mutant.planted(&original) {
            Ok(planted) => planted,
            Err(problem) => return Ok(Fate::NotPlanted(problem)),
        };
        write(&planted)?;
        let fate = self.judge(&mutant.tests);
        write(&original)?;
        fate
    }

    fn judge(&self, commands: &[String]) -> Result<Fate, String> {
        let (mut caught, mut survived) = (Vec::new(), Vec::new());
        for tests in commands {
            let build = self.test(tests, true)?;
            if !build.status.success() {
                return Ok(Fate::NotCompiled(tail(&build)));
            }
            let output = self.test(tests, false)?;
            match failures(&output) {
                failed if !output.status.success() && !failed.is_empty() => caught.extend(failed),
                _ => survived.push(tests.clone()),
            }
        }
        Ok(if survived.is_empty() { Fate::Caught(caught) } else { Fate::Survived(survived) })
    }

    /// `cargo test` with these arguments, or only its build.
    fn test(&self, arguments: &str, build_only: bool) -> Result<Output, String> {
        let mut command = cargo();
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        // a mutant may leave a variable unused: that is a warning, not a catch
        command.env_remove("RUSTFLAGS");
        command
            .args(["test", "--locked"])
            .args(build_only.then_some("--no-run"))
            .args(arguments.split_whitespace());
        command.output().map_err(|error| format!("cargo does not start: {error}"))
    }
}

/// The names of the tests that failed.
fn failures(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let name =
        |line: &str| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned);
    text.lines().filter_map(name).collect()
}

/// How many tests passed.
fn passes(output: &Output) -> usize {
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.starts_with("test ") && line.ends_with(" ... ok"))
        .count()
}

/// The end of what a command said.
fn tail(output: &Output) -> String {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code moves; the list must move with it.
    #[test]
    fn every_mutant_can_still_be_planted() {
        let root = crate::root();
        for mutant in read(&root.join("mutants.toml")).unwrap() {
            let original = fs::read_to_string(root.join(&mutant.file)).unwrap();
            let planted = mutant
                .planted(&original)
                .unwrap_or_else(|problem| panic!("{}: {problem}", mutant.name));
            assert_ne!(planted, original, "{} changes nothing", mutant.name);
        }
    }

    /// A test that was renamed would else be missed only when all mutants are planted.
    #[test]
    fn every_test_named_for_a_mutant_exists() {
        let root = crate::root();
        for mutant in read(&root.join("mutants.toml")).unwrap() {
            for command in &mutant.tests {
                let words: Vec<&str> = command.split_whitespace().collect();
                let after = |flag| Some(words[words.iter().position(|word| *word == flag)? + 1]);
                let package = match after("-p").unwrap() {
                    "consilience" => "cli",
                    name => name.strip_prefix("consilience-").unwrap(),
                };
                let package = root.join("crates").join(package);
                let code = match after("--test") {
                    Some(file) => sources(&package.join(format!("tests/{file}.rs"))),
                    None => sources(&package.join("src")),
                };
                let name = after("--exact").and_then(|path| path.rsplit("::").next());
                let found = name.is_none_or(|name| code.contains(&format!("fn {name}(")));
                assert!(found && !code.is_empty(), "{}: no test `{command}`", mutant.name);
            }
        }
    }

    /// The text of a file, or of all files in a folder.
    fn sources(path: &Path) -> String {
        if !path.is_dir() {
            return fs::read_to_string(path).unwrap_or_default();
        }
        let entries = fs::read_dir(path).unwrap();
        entries.map(|entry| sources(&entry.unwrap().path())).collect()
    }

    #[test]
    fn a_text_that_is_absent_or_ambiguous_is_refused() {
        let text = |find: &str| Mutant {
            name: "m".into(),
            file: "f.rs".into(),
            find: find.into(),
            replace: "c".into(),
            tests: Vec::new(),
        };
        assert_eq!(text("b").planted("a b a"), Ok("a c a".into()));
        assert_eq!(
            text("a").planted("a b a"),
            Err("its text occurs 2 times in f.rs: it must occur once".into())
        );
        assert_eq!(
            text("d").planted("a b a"),
            Err("its text occurs 0 times in f.rs: it must occur once".into())
        );
    }
}
