//! The scorecard follows from the kept numbers alone (`BLESS=1` writes it anew), and what is said
//! of it elsewhere is so.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_reproduce::output::Reproduction;
use consilience_reproduce::record::Record;
use consilience_reproduce::{CATALOGUE, Kind, Verdict, scorecard};

const COMMAND: &str = "consilience reproduce all --kept papers --scorecard papers/SCORECARD.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every experiment from its kept numbers.
fn all() -> Vec<Reproduction> {
    let one = |entry| match Record::read(&root().join("papers"), entry).unwrap() {
        Some(record) => Reproduction::kept(entry, &record).unwrap(),
        None => {
            let later = entry.config().unwrap().later;
            Reproduction::none(
                entry,
                later.unwrap_or_else(|| panic!("{} has no kept numbers", entry.id)),
            )
            .unwrap()
        }
    };
    CATALOGUE.iter().map(one).collect()
}

#[test]
fn the_scorecard_is_what_the_kept_numbers_say() {
    let all = all();
    for (name, text) in [
        ("SCORECARD.md", scorecard::markdown(&all, COMMAND)),
        ("SCORECARD.csv", scorecard::verdicts(&all)),
    ] {
        let file = root().join("papers").join(name);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(file, text).unwrap();
        } else {
            assert!(
                std::fs::read_to_string(file).unwrap() == text,
                "{name} is not what the kept numbers say: `{COMMAND}` writes it"
            );
        }
    }
}

#[test]
fn every_verdict_has_its_sentence() {
    for one in &all() {
        for (claim, verdicts) in &one.judged {
            let verdict = &verdicts[0].verdict;
            // What is open or untested depends on the size, and is told from the numbers.
            let said = claim.finds(verdict).is_some()
                || matches!(verdict, Verdict::Untested(_) | Verdict::Open(_));
            assert!(said, "{}/{}: no sentence for `{}`", one.entry.id, claim.id, verdict.word());
        }
    }
}

/// The headline counts the papers' claims apart from annotations, from what is ours and from
/// self-checks.
#[test]
fn the_headline_counts_claims_by_whose_they_are() {
    let (all, table) =
        (all(), std::fs::read_to_string(root().join("papers/SCORECARD.csv")).unwrap());
    let (mut rows, mut seen): (Vec<Vec<&str>>, Vec<&str>) =
        (table.lines().skip(1).map(|l| l.split(',').collect()).collect(), Vec::new());
    rows.retain(|row| {
        !seen.contains(&row[1]) && {
            seen.push(row[1]);
            true
        }
    }); // the first reading of each
    let lines = scorecard::tallies(&all);
    let text = std::fs::read_to_string(root().join("papers/SCORECARD.md")).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" "); // lines are wrapped
    for (kind, line) in Kind::ALL.into_iter().zip(&lines) {
        let of: Vec<&Vec<&str>> = rows.iter().filter(|row| row[5] == kind.name()).collect();
        assert!(line.starts_with(&format!("{} {}: ", of.len(), kind.plural())), "{line}");
        for word in Verdict::WORDS {
            let count = of.iter().filter(|row| row[3] == word).count();
            assert_eq!(line.contains(&format!("{word}: {count}")), count > 0, "{line}");
        }
        assert!(text.contains(&format!("- {line} ")), "{line}");
    }
    assert!(lines[0].contains("claims of the papers") && lines[3].contains("self-checks"));
}

/// The papers' claims come first, each with a verdict and a sentence, before any number.
#[test]
fn the_first_page_has_every_claim_and_the_numbers_come_below() {
    let text = std::fs::read_to_string(root().join("papers/SCORECARD.md")).unwrap();
    let (page, numbers) = text.split_once("\n# The numbers\n").unwrap();
    for one in &all() {
        for (claim, _) in &one.judged {
            let says = claim.says.replace('|', "\\|").replace('*', "\\*");
            assert!(page.contains(&format!("\n| {says} | ")), "{}", claim.says);
        }
        let heading = format!("### {}: ", one.entry.id);
        assert!(
            numbers.contains(&heading) && !page.contains(&heading),
            "the numbers of {} stand below",
            one.entry.id
        );
    }
}

#[test]
fn the_book_says_how_many_experiments_have_the_papers_own_size() {
    let words = [
        "no",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
        "twenty-one",
        "twenty-two",
        "twenty-three",
    ];
    let all = all();
    let run: Vec<&Reproduction> = all.iter().filter(|one| one.findings.is_ok()).collect();
    let own = run.iter().filter(|one| one.study.papers_own).count();
    let sentence =
        format!("{} of the {} experiments at the paper's own size", words[own], words[run.len()]);
    let chapter = std::fs::read_to_string(root().join("docs/src/papers.md")).unwrap();
    assert!(
        chapter.split_whitespace().collect::<Vec<_>>().join(" ").contains(&sentence),
        "docs/src/papers.md does not say: {sentence}"
    );
}
