//! Every reproduction at its quick size still gives the verdicts that are recorded in
//! papers/quick.csv (`BLESS=1` records them anew).
//!
//! Those that need data sets run where CONSILIENCE_DATA names their folder, and are named as
//! skipped elsewhere.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says what it skips

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use consilience_engine::run::Progress;
use consilience_reproduce::output::Reproduction;
use consilience_reproduce::{CATALOGUE, Entry, Size};

/// Experiment, claim, reading.
type Key = (String, String, String);

/// Where cells lie: some are of several experiments, and are done once.
fn everything() -> PathBuf {
    std::env::temp_dir().join(format!("consilience-quick-{}", std::process::id()))
}

fn verdicts(entry: &'static Entry) -> Vec<(Key, String)> {
    let shelf = entry.experiment.and_then(|experiment| experiment.shelf()).unwrap_or(entry.id);
    let folder = everything().join(shelf);
    let config = entry.config().unwrap();
    let mut study = config.study(entry.paper.key, Size::Quick);
    study.published = true;
    let done = Reproduction::run(entry, config, study, &folder, false, 0, &Progress::default());
    let done = done.unwrap_or_else(|trouble| panic!("{}: {trouble}", entry.id));
    let key =
        |claim: &str, reading: &str| (entry.id.to_owned(), claim.to_owned(), reading.to_owned());
    let all = done.judged.iter().flat_map(|(claim, list)| list.iter().map(move |one| (claim, one)));
    all.map(|(claim, one)| (key(&claim.id, &one.name), one.verdict.word().to_owned())).collect()
}

#[test]
fn quick_verdicts_are_those_on_record() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/quick.csv");
    let record = std::fs::read_to_string(&file).unwrap_or_default();
    let split = |line: &str| -> (Key, String) {
        let cells: Vec<&str> = line.split(',').collect();
        ((cells[0].into(), cells[1].into(), cells[2].into()), cells[3].into())
    };
    let mut known: BTreeMap<Key, String> = record.lines().skip(1).map(split).collect();
    let has_data = std::env::var_os("CONSILIENCE_DATA").is_some();
    let mut wrong = Vec::new();
    for entry in CATALOGUE.iter().filter(|entry| entry.experiment.is_some()) {
        let needed = entry.config().unwrap().data;
        if !needed.is_empty() && !has_data {
            println!("skipped: {} needs {} (set CONSILIENCE_DATA)", entry.id, needed.join(", "));
            continue;
        }
        let found = verdicts(entry);
        for (key, verdict) in &found {
            match known.get(key) {
                Some(recorded) if recorded == verdict => {}
                recorded => wrong.push(format!("{key:?}: {verdict}, on record {recorded:?}")),
            }
        }
        known.retain(|key, _| key.0 != entry.id);
        known.extend(found);
    }
    if everything().exists() {
        std::fs::remove_dir_all(everything()).unwrap();
    }
    if std::env::var_os("BLESS").is_some() {
        let lines: String = known
            .iter()
            .map(|((id, claim, reading), verdict)| format!("{id},{claim},{reading},{verdict}\n"))
            .collect();
        std::fs::write(file, format!("experiment,claim,reading,verdict\n{lines}")).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What holds at the largest size that was run holds at the quick one: where they differ, the quick
/// one is too small to tell, and says so.
#[test]
fn quick_verdicts_agree_with_the_scorecard() {
    let read = |name: &str| -> BTreeMap<Key, String> {
        let text = std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers").join(name),
        )
        .unwrap();
        let row = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            ((cells[0].into(), cells[1].into(), cells[2].into()), cells[3].to_owned())
        };
        text.lines().skip(1).map(row).collect()
    };
    let (quick, scorecard) = (read("quick.csv"), read("SCORECARD.csv"));
    let runs: Vec<&Key> = scorecard
        .keys()
        .filter(|key| CATALOGUE.iter().any(|entry| entry.id == key.0 && entry.experiment.is_some()))
        .collect();
    assert!(runs.len() > 90, "{} verdicts", runs.len());
    for key in runs {
        let (small, large) = (&quick[key], &scorecard[key]);
        assert!(
            small == large || small == "open" || small == "not tested",
            "{key:?}: {small} at the quick size, {large} on the scorecard"
        );
    }
}
