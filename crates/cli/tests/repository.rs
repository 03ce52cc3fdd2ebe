//! The repository is as its documents say: the code map leaves out nothing, lines are short.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_core::compress::rows;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The paths that the map's lines begin with.
fn mapped() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = text.split("\n## ").find(|section| section.starts_with("Code map")).unwrap();
    let lines = map.lines().filter_map(|line| line.trim_start().strip_prefix("- `"));
    lines
        .map(|line| {
            line.split_once("`: ")
                .unwrap_or_else(|| panic!("no path and sentence: {line}"))
                .0
                .to_owned()
        })
        .collect()
}

fn rust_files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = folder.join(entry.unwrap().file_name());
        if root().join(&path).is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path.to_str().unwrap().replace('\\', "/"));
        }
    }
}

/// The files of the repository with one of these endings; what is built or downloaded is left out.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    let built = ["target", "runs", "reproductions", "corpus", "artifacts", "coverage"];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("__") && !built.contains(&&*name) {
                files(&path, endings, found);
            }
        } else if path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)) {
            found.push(path);
        }
    }
}

/// Why a line may have more than 100 columns.
fn excuse(document: bool, printed: bool, line: &str) -> Option<&'static str> {
    let words = line.trim_start();
    let comment = words.strip_prefix("//!").or(words.strip_prefix("///")).map(str::trim_start);
    if (document && words.starts_with('|')) || comment.is_some_and(|c| c.starts_with('|')) {
        return Some("a row of a table is one line");
    }
    if document && words.starts_with('#') {
        return Some("a heading is one line");
    }
    printed.then_some("a program prints it so")
}

#[test]
fn no_line_is_longer_than_100_columns() {
    let mut all = Vec::new();
    let endings = ["rs", "md", "py", "pyi", "toml", "proto", "html", "css", "js"];
    files(&root(), &endings, &mut all);
    assert!(all.len() > 300, "{} files", all.len());
    let mut long = Vec::new();
    for file in all {
        let text = std::fs::read_to_string(&file).unwrap();
        let document = file.extension().is_some_and(|e| e == "md");
        let mut printed = false;
        for (number, line) in text.lines().enumerate() {
            if document && line.starts_with("```") {
                printed = line == "```text";
            }
            if line.chars().count() > 100 && excuse(document, printed, line).is_none() {
                long.push(format!("{}:{}", file.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than 100 columns: {long:#?}");
}

#[test]
fn every_path_on_the_map_exists() {
    let mapped = mapped();
    assert!(mapped.len() > 50, "{} paths", mapped.len());
    for path in &mapped {
        let place = root().join(path);
        assert!(
            if path.ends_with('/') { place.is_dir() } else { place.is_file() },
            "{path} is on the map and not in the tree"
        );
    }
    let mut once = mapped.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), mapped.len(), "a path is on the map twice");
}

#[test]
fn every_source_file_is_on_the_map() {
    let mapped = mapped();
    for member in std::fs::read_dir(root().join("crates")).unwrap() {
        let sources = Path::new("crates").join(member.unwrap().file_name()).join("src");
        let mut files = Vec::new();
        rust_files(&sources, &mut files);
        assert!(!files.is_empty());
        for file in files {
            let covers =
                |path: &String| *path == file || path.ends_with('/') && file.starts_with(path);
            assert!(mapped.iter().any(covers), "{file} is in the tree and not on the map");
        }
    }
}

/// Whatever differs between families stands in their folders, behind the trait.
#[test]
fn one_place_asks_which_family_a_sampler_is_of() {
    let mut asking = Vec::new();
    for member in ["core", "engine", "net", "cli", "python", "report", "truth"] {
        let mut files = Vec::new();
        rust_files(&Path::new("crates").join(member).join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(root().join(&file)).unwrap();
            // what is matched on, not what is made
            let asks = |line: &str| {
                let variant = |(at, name): &(usize, &str)| {
                    line[at + name.len()..].starts_with(char::is_uppercase)
                };
                line.match_indices("Recipe::").find(variant).is_some_and(|(at, _)| {
                    let rest = &line[at..];
                    rest.contains("=>") || rest.contains(") =") || rest.contains(") if ")
                })
            };
            asking.extend(text.lines().filter(|line| asks(line)).map(|_| file.clone()));
        }
    }
    assert_eq!(asking, [""; 0], "use Recipe::family instead");
    let recipe = std::fs::read_to_string(root().join("crates/core/src/sampler/recipe.rs")).unwrap();
    assert_eq!(recipe.matches("Recipe::$name(recipe) => recipe").count(), 1);
}

/// Whatever differs between models stands in their files, behind the trait.
#[test]
fn nobody_asks_which_model_it_is() {
    let mut models = Vec::new();
    rust_files(Path::new("crates/engine/src/models"), &mut models);
    let named = |file: &String| {
        let name = |line: &str| Some(line.strip_prefix("    name: ")?.trim_end_matches(',').into());
        read(file).lines().filter_map(name).collect::<Vec<String>>()
    };
    let quoted: Vec<String> = models.iter().flat_map(named).collect();
    assert!(quoted.len() >= 6 && quoted.contains(&"\"logistic\"".into()), "{quoted:?}");
    for member in ["engine", "net", "cli", "python", "report", "truth"] {
        let mut files = Vec::new();
        rust_files(&Path::new("crates").join(member).join("src"), &mut files);
        files.retain(|file| {
            !file.starts_with("crates/engine/src/models/") && !file.ends_with("tests.rs")
        });
        for file in files {
            let text = std::fs::read_to_string(root().join(&file)).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines() {
                let asks = |name: &String| {
                    let ways = [
                        format!("{name} =>"),
                        format!("{name} |"),
                        format!("== {name}"),
                        format!("!= {name}"),
                    ];
                    ways.iter().any(|way| line.contains(way.as_str()))
                };
                assert!(!quoted.iter().any(asks), "{file} asks which model it is: {line}");
                let builds = ["Glm::new(", "Softmax::new(", "Regression::new("];
                let builds = builds.iter().any(|made| line.contains(made));
                let of_old = file == "crates/engine/src/data/federation.rs"; // built-in data alone
                assert!(!builds || of_old, "{file} builds a model of its own: {line}");
            }
        }
    }
}

/// Whatever differs between compressors stands in their files, behind the trait.
#[test]
fn nobody_asks_which_compressor_it_is() {
    let listed: Vec<String> = rows().map(|row| format!("\"{}\"", row.name)).collect();
    assert!(listed.len() > 8, "{listed:?}");
    for member in ["core", "engine", "net", "cli", "python", "report"] {
        let mut files = Vec::new();
        rust_files(&Path::new("crates").join(member).join("src"), &mut files);
        // `scaled` and `block` are made of others, where these are read
        files.retain(|file| file != "crates/core/src/compress/spec.rs");
        for file in files {
            let text = read(&file);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines() {
                let variant = line.contains("Operator::") && line.contains("=>");
                let of_all = file == "crates/core/src/compress/operator.rs";
                assert!(!variant || of_all, "{file} asks which compressor it is: {line}");
                let asks = |name: &String| line.contains("name() ==") && line.contains(name);
                assert!(!listed.iter().any(asks), "{file} asks which compressor it is: {line}");
            }
        }
    }
}

#[test]
fn every_compressor_has_its_line_of_the_notation() {
    let notation = read("NOTATION.md");
    for row in rows() {
        let line = notation.lines().find(|line| {
            line.starts_with(&format!("| `{}", row.name)) && line.contains(row.constant)
        });
        assert!(line.is_some(), "NOTATION.md: {} with {}", row.usage, row.constant);
    }
}

/// What a chapter shows as a change is in the tree: lines that were added stand in their file, and
/// those that were removed do not; files that it counts exist.
#[test]
fn chapters_that_add_something_show_what_is_there() {
    let mut shown = 0;
    for chapter in ["model", "compressor", "sampler", "family"] {
        let text = read(&format!("docs/src/adding-a-{chapter}.md"));
        let blocks = |kind: &str| -> Vec<String> {
            let open = format!("```{kind}\n");
            let after = text.split(&open).skip(1);
            after.filter_map(|block| block.split("```").next()).map(str::to_owned).collect()
        };
        for block in blocks("diff") {
            let mut file = Vec::new();
            for line in block.lines() {
                if let Some(path) = line.strip_prefix("@@ ").and_then(|l| l.strip_suffix(" @@")) {
                    file = read(path).lines().map(str::to_owned).collect();
                } else if line != "@@" {
                    let (sign, rest) = line.split_at(1);
                    let there = file.iter().any(|found| found == rest);
                    assert_eq!(there, sign != "-", "adding-a-{chapter}.md: {line}");
                    shown += 1;
                }
            }
        }
        for line in blocks("text").iter().flat_map(|block| block.lines()) {
            if let Some((path, _)) = line.split_once(" |") {
                assert!(root().join(path.trim()).exists(), "adding-a-{chapter}.md: {path}");
                shown += 1;
            }
        }
    }
    assert!(shown > 15, "{shown}");
}

/// The spans of code in a text.
fn spans(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(|s| s.split_whitespace().collect()).collect()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|_| panic!("there is no {file}"))
}

/// The items of the lists in a section of a document.
fn items(document: &str, heading: &str) -> Vec<String> {
    let text = read(document);
    let section = text
        .split("\n## ")
        .find(|section| section.starts_with(heading))
        .unwrap_or_else(|| panic!("{document} has no section {heading}"));
    let mut items = Vec::new();
    for line in section.lines() {
        let number = line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
        if number || line.starts_with("- ") {
            items.push(line.to_owned());
        } else if line.starts_with("  ")
            && let Some(item) = items.last_mut()
        {
            item.push('\n');
            item.push_str(line);
        }
    }
    items
}

/// Check that the tests which an item says it is held by exist: how many there are. The words are
/// `Held by`, then files, each with names of tests behind it.
fn holders(item: &str) -> usize {
    let item = item.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((_, held)) = item.split_once("Held by ") else { return 0 };
    let (mut file, mut found) = (String::new(), 0);
    for span in spans(held) {
        if span.ends_with(".rs") {
            file = span;
        } else if !file.is_empty() {
            let test = format!("fn {span}(");
            assert!(read(&file).contains(&test), "{file} has no test {span}");
            found += 1;
        }
    }
    found
}

#[test]
fn every_invariant_names_the_tests_that_hold_it() {
    let all = items("ARCHITECTURE.md", "Invariants");
    assert!(all.len() > 10, "{} invariants", all.len());
    for item in all {
        assert!(holders(&item) > 0 || item.contains("Not tested"), "who holds this?\n{item}");
    }
}

#[test]
fn every_step_of_a_recipe_names_the_tests_that_hold_it() {
    for recipe in ["To add a sampler", "To add a model", "To add a compressor"] {
        let all = items("CONTRIBUTING.md", recipe);
        assert!(all.len() > 3, "{recipe}: {} steps", all.len());
        for item in all {
            let words = item.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
            assert!(
                holders(&item) > 0 || words.contains("not tested") || words.contains("held by"),
                "{recipe}: who holds this?\n{item}"
            );
        }
    }
}

#[test]
fn a_round_can_be_followed_in_six_files() {
    let text = read("ARCHITECTURE.md");
    let section = text.split("\n## ").find(|s| s.starts_with("Following one round")).unwrap();
    let walks: Vec<&str> = section.split("\n### ").skip(1).collect();
    assert_eq!(walks.len(), 2);
    for walk in walks {
        let stops: Vec<&str> = walk.split("\n\n").nth(1).unwrap().split(". `").skip(1).collect();
        assert!((1..=6).contains(&stops.len()), "{} files", stops.len());
        for stop in stops {
            let (file, says) = stop.split_once("`: ").unwrap();
            for name in spans(says) {
                let source = read(file);
                let defined =
                    ["(", "<"].iter().any(|end| source.contains(&format!("fn {name}{end}")));
                assert!(defined, "{file} has no function {name}");
            }
        }
    }
}

/// Words that would let the world into the core, and a clock into the engine.
#[test]
fn the_core_is_pure_and_the_engine_has_no_clock() {
    let world = [
        "std::fs",
        "std::io",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "HashMap",
        "HashSet",
        "static mut",
        "OnceLock",
        "LazyLock",
        "thread_local",
        "Mutex",
        "Atomic",
        "println!",
        "rayon",
    ];
    let clock = ["std::time", "Instant::", "SystemTime"];
    for (member, words) in [("core", [&world[..], &clock].concat()), ("engine", clock.to_vec())] {
        let mut files = Vec::new();
        rust_files(&Path::new("crates").join(member).join("src"), &mut files);
        for file in files {
            let text = read(&file);
            let code = text.split("#[cfg(test)]").next().unwrap();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for word in &words {
                    // what one value remembers of itself is no global
                    let own = *word == "OnceLock" && !line.contains("static ");
                    assert!(own || !line.contains(word), "{file} uses {word}: {line}");
                }
            }
        }
    }
}

/// A factor of 2 under a root is Langevin noise, or an error that stands for it.
#[test]
fn one_place_scales_the_langevin_noise() {
    let mut found = Vec::new();
    for folder in ["sampler", "model", "protocol", "survey"] {
        rust_files(&Path::new("crates/core/src").join(folder), &mut found);
    }
    found.extend(["crates/core/src/target.rs".to_owned(), "crates/core/src/step.rs".to_owned()]);
    found.retain(|file| {
        let text = read(file);
        let code = text.split("#[cfg(test)]").next().unwrap();
        code.lines().any(|line| line.contains("(2.0 * ") && line.contains(").sqrt()"))
    });
    assert_eq!(found, ["crates/core/src/step.rs"]);
}

#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    assert!(read("Cargo.toml").contains("unsafe_code = \"forbid\""));
    for member in std::fs::read_dir(root().join("crates")).unwrap() {
        let manifest = member.unwrap().path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let kernels = text.contains("name = \"consilience-cuda\""); // launched by unsafe code
        let lints =
            if kernels { "undocumented_unsafe_blocks" } else { "[lints]\nworkspace = true" };
        assert!(text.contains(lints), "{}", manifest.display());
    }
}

/// `faer` comes with `nuts-rs` and `ndarray` with `numpy`: no code of ours uses them.
#[test]
fn one_crate_is_used_for_linear_algebra() {
    let mut sources = Vec::new();
    files(&root().join("crates"), &["rs", "toml"], &mut sources);
    for file in sources.iter().filter(|file| !file.ends_with("tests/repository.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        for other in ["use faer", "use ndarray", "\nfaer", "\nndarray"] {
            assert!(!text.contains(other), "{} uses {other}", file.display());
        }
    }
}
