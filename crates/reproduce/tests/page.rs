//! The page of a reproduction shows verdicts on small screens, and folds long lists of numbers.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_reproduce::output::Reproduction;
use consilience_reproduce::{Findings, Number, Numbers, Reading, Size, find};

/// The page of a reproduction with a number that the paper states, and so many others.
fn page(others: usize) -> String {
    let entry = find("fald-k").unwrap();
    assert!(entry.config().unwrap().paper.contains_key("gamma/10"));
    let stated = Number::exact("gamma/10", 3e12);
    page_with(
        [stated]
            .into_iter()
            .chain((0..others).map(|k| Number::exact(format!("cell/{k}"), k as f64)))
            .collect(),
    )
}

/// The page of a reproduction with these numbers.
fn page_with(numbers: Numbers) -> String {
    let entry = find("fald-k").unwrap();
    let config = entry.config().unwrap();
    let findings =
        Findings { readings: vec![Reading::ours(numbers)], figures: Vec::new(), notes: Vec::new() };
    let judged = entry
        .claims()
        .unwrap()
        .into_iter()
        .map(|claim| (claim.clone(), claim.judge_all(&findings.readings)))
        .collect();
    let study = config.study(entry.paper.key, Size::Tiny);
    Reproduction { entry, config, study, findings: Ok(findings), judged, printed: false }.page()
}

/// A section of a page.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    page.split(&format!("<section id=\"{id}\">"))
        .nth(1)
        .unwrap()
        .split("</section>")
        .next()
        .unwrap()
}

#[test]
fn long_lists_of_numbers_are_folded_but_not_what_the_paper_states() {
    let page_of_many = page(40);
    let (open, folded) = section(&page_of_many, "numbers").split_once("<details>").unwrap();
    assert!(open.contains("gamma/10") && !open.contains("cell/"));
    assert!(
        folded.contains("40 numbers that the paper does not state")
            && folded.contains("cell/0<")
            && folded.contains("cell/39<")
    );
    let page_of_few = page(4);
    let numbers = section(&page_of_few, "numbers");
    assert!(
        !numbers.contains("<details>")
            && numbers.contains("gamma/10")
            && numbers.contains("cell/3<")
    );
}

#[test]
fn every_claim_has_a_verdict_that_small_screens_show() {
    let page = page(4);
    let claims = section(&page, "claims");
    let rows = claims.split("<tbody>").nth(1).unwrap().matches("<tr>").count();
    assert!(rows >= 3 && claims.contains("<table class=\"claims\">"));
    assert_eq!(claims.matches("<td class=\"verdict").count(), rows);
}

#[test]
fn many_reasons_for_a_verdict_are_folded() {
    // The first claim fails on each of five pairs: all are named, one is in sight.
    let pairs = ["0", "1", "10", "100", "1000"];
    let numbers = pairs.iter().flat_map(|alpha| {
        [("rounds", 1), ("rounds", 3000)].map(|(what, steps)| format!("{what}/{alpha}/{steps}"))
    });
    let page = page_with(numbers.map(|name| Number::exact(name, 7.0)).collect());
    let claims = section(&page, "claims");
    let (before, folded) = claims.split_once("<details>").unwrap();
    let (list, _) = folded.split_once("</details>").unwrap();
    assert!(before.contains("rounds/0/3000 = 7") && !before.contains("rounds/1000/"), "{before}");
    assert!(
        list.contains("4 more")
            && pairs[1..].iter().all(|alpha| list.contains(&format!("rounds/{alpha}/3000 = 7"))),
        "{list}"
    );
}
