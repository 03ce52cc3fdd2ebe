//! Put all verdicts on one page.

use std::fmt::Write;

use maud::{Markup, html};

use crate::claim::{Claim, Judged, Verdict, with_error};
use crate::output::{Reproduction, reasons};

/// A claim shows at most so many numbers.
const MOST_NUMBERS: usize = 8;

/// The scorecard as Markdown: the same bytes for the same setting and seeds.
pub fn markdown(all: &[Reproduction], command: &str) -> String {
    let mut text = format!(
        "# Scorecard\n\nWhat the papers claim, and what came out. Made by\n\n    {command}\n\n\
         and by nothing else: sizes and seeds are stated, and the same command gives the same bytes. \
         *Holds* and *does not hold* are beyond the error bars; *open* means that the error bars at this size do not decide. \
         A name in brackets is another reading of the paper, or what the authors' program did (`--as-published`).\n\n{}\n",
        tally(all)
    );
    let mut paper = "";
    for one in all {
        if one.entry.paper.key != paper {
            paper = one.entry.paper.key;
            let _ = write!(text, "\n## {}\n", one.entry.paper.title);
        }
        let _ = write!(text, "\n### {}: {}\n\n", one.entry.id, one.config.place);
        let _ = match &one.findings {
            Ok(_) => write!(text, "Size: {}; seed {}.", one.size(), one.study.seed),
            Err(why) => write!(text, "Not run: {why}."),
        };
        text.push_str("\n\n");
        if !one.judged.is_empty() {
            text.push_str("| claim | reading | verdict | numbers |\n|---|---|---|---|\n");
        }
        for (claim, verdicts) in &one.judged {
            for (at, judged) in verdicts.iter().enumerate() {
                let says = if at == 0 { format!("{} ({})", claim.says, claim.source) } else { String::new() };
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} |",
                    cell(&says),
                    cell(&judged.name),
                    judged.verdict.word(),
                    cell(&evidence(one, claim, judged))
                );
            }
        }
        for note in one.findings.iter().flat_map(|f| &f.notes) {
            let _ = write!(text, "\n{note}\n");
        }
    }
    text
}

/// The verdicts alone, as CSV: experiment, claim, reading, verdict, size.
pub fn verdicts(all: &[Reproduction]) -> String {
    let mut text = String::from("experiment,claim,reading,verdict,size\n");
    for one in all {
        for (claim, judged) in one.judged.iter().flat_map(|(claim, list)| list.iter().map(move |judged| (claim, judged))) {
            let size = if one.study.papers_own { "full" } else { one.study.size.name() };
            let _ = writeln!(text, "{},{},{},{},{size}", one.entry.id, claim.id, judged.name, judged.verdict.word());
        }
    }
    text
}

/// The scorecard as a page.
pub fn page(all: &[Reproduction], command: &str) -> String {
    let title = "Scorecard";
    let body = html! {
        header { h1 { (title) } p { "What the papers claim, and what came out. " (tally(all)) } }
        main {
            @for one in all { (section(one)) }
            section id="again" { h2 { "The same again" } pre { code { (command) } } }
        }
    };
    consilience_report::page(title, &body)
}

fn section(one: &Reproduction) -> Markup {
    html! {
        section id=(one.entry.id) {
            h2 { a href={ (one.entry.id) "/page.html" } { (one.entry.id) } }
            p.soft { (one.entry.paper.title) ". " (one.config.place) ". Size: " (one.size()) "; seed " (one.study.seed) "." }
            @if let Err(why) = &one.findings { p { "Not run: " (why) } }
            @if !one.judged.is_empty() {
                div.table { table.claims {
                    thead { tr { th.text { "Claim" } th.text { "Reading" } th { "Verdict" } th.text { "Numbers" } } }
                    tbody {
                        @for (claim, verdicts) in &one.judged {
                            @for (at, judged) in verdicts.iter().enumerate() {
                                tr {
                                    td.text { @if at == 0 { (claim.says) } }
                                    td.text.reading { (judged.name) }
                                    td.verdict.good[judged.verdict == Verdict::Holds].bad[matches!(judged.verdict, Verdict::Fails(_))] { (judged.verdict.word()) }
                                    td.text { (reasons(&evidence(one, claim, judged))) }
                                }
                            }
                        }
                    }
                } }
            }
        }
    }
}

/// How many claims hold, under the reading that we stand by.
fn tally(all: &[Reproduction]) -> String {
    let first: Vec<&'static str> =
        all.iter().flat_map(|one| &one.judged).filter_map(|(_, v)| v.first()).map(|j| j.verdict.word()).collect();
    let count = |word: &str| first.iter().filter(|w| **w == word).count();
    let list = ["holds", "does not hold", "open", "not tested"].map(|word| format!("{word}: {}", count(word)));
    format!("Of {} claims, under the reading that we stand by, {}.", first.len(), list.join(", "))
}

/// The numbers that a verdict rests on.
fn evidence(one: &Reproduction, claim: &Claim, judged: &Judged) -> String {
    match (&one.findings, &judged.verdict) {
        (_, Verdict::Untested(why)) => why.clone(),
        (_, Verdict::Fails(_) | Verdict::Open(_)) => judged.verdict.why(),
        (Err(why), _) => why.clone(),
        (Ok(findings), Verdict::Holds) => {
            let names = claim.names();
            let shown: Vec<String> = names
                .iter()
                .take(MOST_NUMBERS)
                .filter_map(|name| findings.readings[judged.reading].numbers.get(name))
                .map(|n| format!("{} = {}", n.name, with_error(n.value, n.error)))
                .collect();
            let rest = names.len().saturating_sub(MOST_NUMBERS);
            format!("{}{}", shown.join(", "), if rest > 0 { format!(", and {rest} more") } else { String::new() })
        }
    }
}

/// Text that fits into a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('*', "\\*")
}
