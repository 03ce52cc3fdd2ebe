//! Run every sampler that can be afforded on real posteriors, and hold what `auto` foretold and
//! chose against what came out.
//!
//! What was run is kept in `docs/choices`, a file for each posterior, so that a part can be run and
//! the rest stays; a config that has changed is run again. `--again` runs what is kept, too, after
//! the samplers have changed.

mod bias;
mod digits;
mod measured;
mod page;
mod rates;
mod runs;
mod targets;

use std::path::Path;

use crate::cargo;
use measured::judge;
use runs::Runs;

/// Run the targets of these names, those whose names begin with one of these words, or all; and
/// write `docs/src/choices.md`, and the tables of `docs/src/choosing.md`, from all that is kept.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let is_option = |word: &&str| word.starts_with("--");
    let (options, words): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| is_option(word));
    if let Some(option) = options.iter().find(|option| !["--built", "--again"].contains(option)) {
        return Err(format!("there is no option `{option}`: there are --built and --again"));
    }
    let (is_built, again) = (options.contains(&"--built"), options.contains(&"--again"));
    let build = || cargo().args(["build", "--release", "--locked"]).current_dir(root).status();
    if !is_built && !build().is_ok_and(|status| status.success()) {
        return Err("the command does not build".into());
    }
    let folder = runs::folder(root.join("target/choices"))?;
    digits::make(&folder)?;
    let mut runs = Runs {
        program: root.join("target/release/consilience"),
        folder,
        kept: runs::folder(root.join("docs/choices"))?,
        kept_alone: false,
        again,
    };
    let lists = [targets::main(), targets::variations()];
    let is_name = |word: &str| lists.iter().flatten().any(|target| target.name == word);
    let means = |word: &str, name: &str| {
        if is_name(word) { name == word } else { name.starts_with(word) }
    };
    let asked = |name: &str| words.is_empty() || words.iter().any(|word| means(word, name));
    let known = |word: &&&str| lists.iter().flatten().any(|target| target.name.starts_with(**word));
    let special = |word: &str| ["nothing", "bias"].contains(&word);
    if let Some(word) = words.iter().find(|word| !special(word) && !known(word)) {
        let names: Vec<&str> = lists.iter().flatten().map(|target| target.name.as_str()).collect();
        return Err(format!("no target begins with `{word}`: there are {}", names.join("; ")));
    }
    for target in lists.iter().flatten().filter(|target| asked(&target.name)) {
        judge(&runs, target);
    }
    let biased = lists[0].iter().filter(|target| target.has_bias_judged());
    if words.is_empty() || words.contains(&"bias") {
        bias::section(&runs, &biased.clone().collect::<Vec<_>>());
    }
    runs.kept_alone = true;
    let biases = bias::section(&runs, &biased.collect::<Vec<_>>());
    let mut absent = Vec::new();
    let [main, variations] = lists.map(|list| {
        let mut kept = Vec::new();
        for target in list {
            match judge(&runs, &target) {
                Some(judged) => kept.push(judged),
                None => absent.push(target.name),
            }
        }
        kept
    });
    let book = root.join("docs/src");
    write(&book.join("choices.md"), &page::written(&main, &variations, &biases, &absent))?;
    let choosing = book.join("choosing.md");
    let told = |error: std::io::Error| format!("{}: {error}", choosing.display());
    let chapter = std::fs::read_to_string(&choosing).map_err(told)?;
    write(&choosing, &rates::renewed(&chapter, &main)?)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// A paragraph in lines of at most 100 columns.
fn lines(text: &str, indent: &str) -> String {
    let options = textwrap::Options::new(100).break_words(false).subsequent_indent(indent);
    textwrap::fill(text, options.word_splitter(textwrap::WordSplitter::NoHyphenation))
}
