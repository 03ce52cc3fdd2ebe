//! The page of a reproduction shows verdicts on small screens, and folds long lists of numbers.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_reproduce::output::Reproduction;
use consilience_reproduce::{Findings, Number, Reading, Size, find};

/// The page of a reproduction with a number that the paper states, and so many others.
fn page(others: usize) -> String {
    let entry = find("fald-k").unwrap();
    let config = entry.config().unwrap();
    assert!(config.paper.contains_key("gamma/10"));
    let stated = Number::exact("gamma/10", 3e12);
    let numbers = [stated].into_iter().chain((0..others).map(|k| Number::exact(format!("cell/{k}"), k as f64))).collect();
    let findings = Findings { readings: vec![Reading::ours(numbers)], figures: Vec::new(), notes: Vec::new() };
    let judged = entry.claims().unwrap().into_iter().map(|claim| (claim.clone(), claim.judge_all(&findings.readings))).collect();
    let study = config.study(entry.paper.key, Size::Tiny);
    Reproduction { entry, config, study, findings: Ok(findings), judged }.page()
}

/// A section of a page.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    page.split(&format!("<section id=\"{id}\">")).nth(1).unwrap().split("</section>").next().unwrap()
}

#[test]
fn long_lists_of_numbers_are_folded_but_not_what_the_paper_states() {
    let page_of_many = page(40);
    let (open, folded) = section(&page_of_many, "numbers").split_once("<details>").unwrap();
    assert!(open.contains("gamma/10") && !open.contains("cell/"));
    assert!(folded.contains("40 numbers that the paper does not state") && folded.contains("cell/0<") && folded.contains("cell/39<"));
    let page_of_few = page(4);
    let numbers = section(&page_of_few, "numbers");
    assert!(!numbers.contains("<details>") && numbers.contains("gamma/10") && numbers.contains("cell/3<"));
}

#[test]
fn every_claim_has_a_verdict_that_small_screens_show() {
    let page = page(4);
    let claims = section(&page, "claims");
    let rows = claims.split("<tbody>").nth(1).unwrap().matches("<tr>").count();
    assert!(rows >= 3 && claims.contains("<table class=\"claims\">"));
    assert_eq!(claims.matches("<td class=\"verdict").count(), rows);
}
