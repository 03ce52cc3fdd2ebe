//! What the README and the book show works: their configs run, their commands do what they say.
//! (Their Rust runs as documentation tests of the library.)
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience::engine::config::{Config, Source};
use consilience::engine::{draws::Sinks, plan::Plan, problem::Problem, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README, and the chapters of the book.
fn documents() -> Vec<PathBuf> {
    let mut all = vec![root().join("README.md")];
    let chapters =
        std::fs::read_dir(root().join("docs/src")).unwrap().map(|entry| entry.unwrap().path());
    all.extend(chapters.filter(|file| file.extension().is_some_and(|e| e == "md")));
    all.sort();
    all
}

/// The fenced blocks of one language in a document.
fn blocks(document: &Path, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(document).unwrap();
    let fenced = text.split("```").skip(1).step_by(2);
    fenced
        .filter_map(|block| block.strip_prefix(&format!("{language}\n")))
        .map(str::to_owned)
        .collect()
}

/// A folder as the document's reader would have it: the examples, built-in data, and the document's
/// files under the names that their first lines give.
fn folder(document: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("documents")
        .join(document.file_stem().unwrap());
    let _ = std::fs::remove_dir_all(&folder);
    for part in [
        "examples",
        "examples/real",
        "data/heart-disease",
        "data/titanic",
        "data/lung",
        "data/anes96",
        "data/randhie",
    ] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
        for file in std::fs::read_dir(root().join(part)).unwrap() {
            let file = file.unwrap();
            if file.path().is_file() {
                std::fs::copy(file.path(), folder.join(part).join(file.file_name())).unwrap();
            }
        }
    }
    for text in blocks(document, "toml") {
        std::fs::write(folder.join(name(&text)), &text).unwrap();
    }
    for text in blocks(document, "csv") {
        std::fs::write(folder.join(name(&text)), text.split_once('\n').unwrap().1).unwrap();
    }
    folder
}

fn name(text: &str) -> &str {
    let name = text.lines().next().unwrap().trim_start_matches("# ");
    assert!(
        name.ends_with(".toml") || name.ends_with(".csv"),
        "a file begins with its name: {name}"
    );
    name
}

/// All of it: configs run, shortened; then every `consilience` command of every shell block, in
/// order.
#[cfg(unix)]
#[test]
fn configs_and_commands_run() {
    let program = Path::new(env!("CARGO_BIN_EXE_consilience")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let (mut configs, mut commands) = (0, 0);
    for document in documents() {
        let folder = folder(&document);
        for text in blocks(&document, "toml") {
            let source = Source {
                file: document.file_name().unwrap().to_string_lossy().into(),
                folder: folder.clone(),
                text,
            };
            let mut config = Config::parse(source).unwrap();
            config.run.iterations = Some(200);
            config.run.burn_in = Some(20);
            let problem = Problem::new(&config).unwrap();
            let plan = Plan::new(&config, &problem).unwrap();
            let outcome =
                run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Default::default())
                    .unwrap();
            assert!(
                outcome.draws.length() > 0 && outcome.draws.mean().iter().all(|x| x.is_finite())
            );
            configs += 1;
        }
        let all = blocks(&document, "sh").join("\n");
        for command in all.lines().filter(|line| line.starts_with("consilience ")) {
            let mut shell = std::process::Command::new("sh");
            shell
                .args(["-c", command])
                .current_dir(&folder)
                .env("PATH", &path)
                .env("CONSILIENCE_CACHE", folder.join("cache"));
            let shell = shell.output().unwrap();
            assert!(
                shell.status.success(),
                "{}: {command}: {}",
                document.display(),
                String::from_utf8_lossy(&shell.stderr)
            );
            if let Some((_, file)) = command.split_once("> ") {
                let text = std::fs::read_to_string(folder.join(file)).unwrap();
                assert!(
                    serde_json::from_str::<serde_json::Value>(&text).unwrap().is_object(),
                    "{command}"
                );
            }
            commands += 1;
        }
    }
    assert!(configs >= 8 && commands >= 20, "{configs} configs, {commands} commands");
}

/// Every chapter is in the table of contents, and links within the repository lead somewhere.
#[test]
fn chapters_are_listed_and_links_lead_somewhere() {
    let contents = std::fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .filter(|link| !link.contains("://") && !link.starts_with('#'))
        {
            let file = link.split('#').next().unwrap();
            assert!(
                document.parent().unwrap().join(file).exists(),
                "{}: {link}",
                document.display()
            );
        }
        let file = document.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            file == "README.md" || file == "SUMMARY.md" || contents.contains(&format!("({file})")),
            "{file} is not in SUMMARY.md"
        );
        assert!(
            file == "README.md"
                || file == "SUMMARY.md"
                || readme.contains(&format!("(docs/src/{file})")),
            "{file} is not in the contents of README.md"
        );
    }
}

/// What `exact` is shown to print is what it prints.
#[test]
fn the_exact_law_is_the_printed_one() {
    let example = root().join("examples/gaussian.toml");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_consilience"))
        .arg("exact")
        .arg(example)
        .output()
        .unwrap();
    assert!(
        blocks(&root().join("docs/src/checking.md"), "text")
            .contains(&String::from_utf8(output.stdout).unwrap())
    );
}

/// The picture of the README is the one that the two commands beside it make, today. `BLESS=1` puts
/// a new one in its place.
#[test]
fn the_picture_is_the_one_that_the_command_makes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("picture");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let made = folder.join("picture.svg");
    for arguments in
        [&[][..], &["report", "runs/heart-disease-1", "--svg", made.to_str().unwrap()][..]]
    {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_consilience"))
            .args(arguments)
            .current_dir(&folder)
            .env("CONSILIENCE_CACHE", folder.join("cache"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let kept = root().join("docs/src/images/heart-disease.svg");
    let made = std::fs::read_to_string(made).unwrap();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&kept, &made).unwrap();
    }
    assert!(
        std::fs::read_to_string(&kept).is_ok_and(|kept| kept == made),
        "{} is not what the command makes: BLESS=1 puts the new one there",
        kept.display()
    );
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains("](docs/src/images/heart-disease.svg)"));
    assert!(readme.contains("consilience report runs/heart-disease-1 --svg"));
}

/// The numbers by which the README asks for trust are those of the pages that it cites.
#[test]
fn the_readme_cites_the_numbers_of_its_sources() {
    let read = |file: &str| {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (readme, answers, scorecard) =
        (read("README.md"), read("docs/src/answers.md"), read("papers/SCORECARD.md"));
    let cited =
        readme.split("default settings, ").nth(1).unwrap().split(" answers").next().unwrap();
    assert!(answers.contains(&format!("{cited} answers are acceptable")), "{cited}");
    // | heart-disease | 22 | `imh` | 0 | 12 + 4 | 0.64 MB | ...
    let exact = std::fs::read_to_string(root().join("docs/src/exact.md")).unwrap();
    let row = exact.lines().find(|line| line.starts_with("| heart-disease |")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let exchanges: u32 = cells[5].split(" + ").map(|n| n.parse::<u32>().unwrap()).sum();
    let cited = format!("it takes {exchanges} exchanges with the sites and {}", cells[6]);
    assert!(readme.contains(&cited), "{cited}");
    // "49 claims of the papers: holds: 33, ..."
    let (before, after) = scorecard.split_once(" claims of the papers: holds: ").unwrap();
    let (claims, holds) = (before.rsplit(' ').next().unwrap(), after.split(',').next().unwrap());
    assert!(readme.contains(&format!("{holds} of their {claims} claims hold")), "{holds}");
}
