//! Every reproduction at its smallest: it ends, gives what its claims need, and gives the same
//! bytes on one thread and on two.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_engine::run::Progress;
use consilience_reproduce::output::Reproduction;
use consilience_reproduce::{CATALOGUE, Size, Verdict, scorecard};

fn all(threads: usize, name: &str) -> Vec<Reproduction> {
    let folder =
        std::env::temp_dir().join(format!("consilience-tiny-{}-{name}", std::process::id()));
    let one = |entry: &'static consilience_reproduce::Entry| {
        let config = entry.config().unwrap();
        let mut study = config.study(entry.paper.key, Size::Tiny);
        study.published = true;
        let done = Reproduction::run(
            entry,
            config,
            study,
            &folder.join(entry.id),
            true,
            threads,
            &Progress::default(),
        );
        done.unwrap_or_else(|trouble| panic!("{}: {trouble}", entry.id))
    };
    let done = CATALOGUE.iter().map(one).collect();
    std::fs::remove_dir_all(folder).unwrap();
    done
}

#[test]
fn every_reproduction_runs_and_does_not_depend_on_threads() {
    let (one, two) = (all(1, "one"), all(2, "two"));
    assert!(
        scorecard::markdown(&one, "") == scorecard::markdown(&two, ""),
        "the scorecard depends on the threads"
    );
    assert!(scorecard::page(&one, "") == scorecard::page(&two, ""));
    for reproduction in &one {
        if reproduction.findings.is_err() {
            continue;
        } // its data is elsewhere, or it cannot be run yet: the scorecard says so
        for (claim, verdicts) in &reproduction.judged {
            let ours = &verdicts[0].verdict;
            assert!(
                !matches!(ours, Verdict::Untested(why) if why.contains("there is no number")),
                "{}/{}: {ours:?}",
                reproduction.entry.id,
                claim.id
            );
        }
        assert!(reproduction.page().contains("<svg"), "{} has no figure", reproduction.entry.id);
    }
}
