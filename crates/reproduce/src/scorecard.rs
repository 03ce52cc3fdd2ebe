//! Put all verdicts on one page, and the numbers below it.

use std::fmt::Write;

use maud::{Markup, html};

use crate::claim::{Claim, Judged, Kind, Verdict, with_error};
use crate::output::{Reproduction, quoted, reasons};

/// A claim shows at most so many numbers.
const MOST_NUMBERS: usize = 8;

/// What the verdicts mean.
const MEANING: &str = "*Holds* and *does not hold* are beyond the error bars; *open* means that \
    the error bars at this size do not decide. \
    *Bound holds (not sharp)*: the paper gives an upper bound, and what it bounds is of a lower \
    order. *Tie*: numbers that were computed \
    without error are equal where one should be larger. *Not tested*: this size cannot answer, and \
    the sentence says why.";

/// The scorecard as Markdown: the same bytes for the same numbers.
pub fn markdown(all: &[Reproduction], command: &str) -> String {
    let made = "What the papers claim, and what came out, judged under the reading of each paper \
        that we stand by. Made by";
    let again = format!(
        "which gives the same bytes again. The numbers of an experiment are made and kept by \
         `consilience reproduce ID --SIZE --as-published --keep papers`. {MEANING}"
    );
    let mut text =
        format!("# Scorecard\n\n{}\n\n    {command}\n\n{}\n", lines(made), lines(&again));
    for tally in tallies(all) {
        let _ = write!(text, "\n- {}", lines(&tally).replace('\n', "\n  "));
    }
    text.push_str(
        "\n\nSizes, seeds, other readings of the papers and the numbers are \
        [below](#the-numbers).\n",
    );
    let mut paper = "";
    for (one, claim, judged) in first(all).filter(|(_, claim, _)| claim.kind == Kind::Claim) {
        if one.entry.paper.key != paper {
            paper = one.entry.paper.key;
            let _ = write!(
                text,
                "\n## {}\n\n| claim | verdict | what came out |\n|---|---|---|\n",
                one.entry.paper.title
            );
        }
        let sentence = sentence(claim, judged);
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            cell(&claim.says),
            judged.verdict.word(),
            cell(&sentence)
        );
    }
    text.push_str(
        "\n## Beside the papers' claims\n\n| | what it is | verdict | what came out |\n\
        |---|---|---|---|\n",
    );
    for kind in &Kind::ALL[1..] {
        for (_, claim, judged) in first(all).filter(|(_, claim, _)| claim.kind == *kind) {
            let sentence = sentence(claim, judged);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                cell(&claim.says),
                kind.name(),
                judged.verdict.word(),
                cell(&sentence)
            );
        }
    }
    text.push_str(
        "\n# The numbers\n\n\
        A reading is another way to read the paper, or what the authors' program did \
        (`--as-published`).\n",
    );
    let mut paper = "";
    for one in all {
        if one.entry.paper.key != paper {
            paper = one.entry.paper.key;
            let _ = write!(text, "\n## {}, in numbers\n", short(one.entry.paper.title));
        }
        numbers(one, &mut text);
    }
    text
}

/// One experiment in full.
fn numbers(one: &Reproduction, text: &mut String) {
    let _ = write!(text, "\n### {}: {}\n\n", one.entry.id, one.config.place);
    let _ = match &one.findings {
        Ok(_) => write!(text, "{}", lines(&size(one))),
        Err(why) => write!(text, "{}", lines(&format!("Not run: {why}."))),
    };
    text.push_str("\n\n");
    if !one.judged.is_empty() {
        text.push_str("| claim | reading | verdict | numbers |\n|---|---|---|---|\n");
    }
    for (claim, verdicts) in &one.judged {
        for (at, judged) in verdicts.iter().enumerate() {
            let says =
                if at == 0 { format!("{} ({})", claim.says, claim.source) } else { String::new() };
            let shown = evidence(one, claim, judged);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                cell(&says),
                cell(&judged.name),
                judged.verdict.word(),
                cell(&shown)
            );
        }
    }
    for note in one.findings.iter().flat_map(|f| &f.notes) {
        let _ = write!(text, "\n{}\n", lines(note));
    }
}

/// Size and seed, and how many digits were kept.
fn size(one: &Reproduction) -> String {
    let digits = if one.printed {
        " Numbers have the digits that an earlier scorecard printed."
    } else {
        ""
    };
    format!("Size: {}; seed {}.{digits}", one.size(), one.study.seed)
}

/// The authors of a paper.
fn short(title: &str) -> &str {
    title.split(':').next().unwrap_or(title)
}

/// The verdicts alone, as CSV: experiment, claim, reading, verdict, size, kind.
pub fn verdicts(all: &[Reproduction]) -> String {
    let mut text = String::from("experiment,claim,reading,verdict,size,kind\n");
    for one in all {
        for (claim, judged) in one
            .judged
            .iter()
            .flat_map(|(claim, list)| list.iter().map(move |judged| (claim, judged)))
        {
            let size = if one.study.papers_own { "full" } else { one.study.size.name() };
            let (name, word) = (quoted(&judged.name), judged.verdict.word());
            let _ = writeln!(
                text,
                "{},{},{name},{word},{size},{}",
                one.entry.id,
                claim.id,
                claim.kind.name()
            );
        }
    }
    text
}

/// The scorecard as a page.
pub fn page(all: &[Reproduction], command: &str) -> String {
    let title = "Scorecard";
    let body = html! {
        header {
            h1 { (title) }
            p { "What the papers claim, and what came out." }
            @for line in tallies(all) { p { (line) } }
            p.soft { (MEANING.replace('*', "")) }
        }
        main {
            section id="verdicts" {
                h2 { "Verdicts" }
                div.table { table.claims {
                    thead { tr { th.text { "Claim" } th { "Verdict" } th.text { "What came \
                        out" } } }
                    tbody {
                        @for kind in Kind::ALL {
                            @for (one, claim,
                                judged) in first(all).filter(|(_, claim, _)| claim.kind == kind) {
                                tr {
                                    td.text { a href={ "#" (one.entry.id) } { (claim.says) }
                                        @if kind != Kind::Claim { " (" (kind.name()) ")" } }
                                    (verdict(judged))
                                    td.text { (sentence(claim, judged)) }
                                }
                            }
                        }
                    }
                } }
            }
            @for one in all { (section(one)) }
            section id="again" { h2 { "The same again" } pre { code { (command) } } }
        }
    };
    consilience_report::page(title, &body)
}

/// The cell of a verdict.
fn verdict(judged: &Judged) -> Markup {
    html! {
        td.verdict.good[judged.verdict == Verdict::Holds].bad[matches!(judged.verdict,
            Verdict::Fails(_))] { (judged.verdict.word()) }
    }
}

fn section(one: &Reproduction) -> Markup {
    html! {
        section id=(one.entry.id) {
            h2 { a href={ (one.entry.id) "/page.html" } { (one.entry.id) } }
            p.soft { (one.entry.paper.title) ". " (one.config.place) ". " (size(one)) }
            @if let Err(why) = &one.findings { p { "Not run: " (why) } }
            @if !one.judged.is_empty() {
                div.table { table.claims {
                    thead { tr { th.text { "Claim" } th.text { "Reading" } th { "Verdict" }
                        th.text { "Numbers" } } }
                    tbody {
                        @for (claim, verdicts) in &one.judged {
                            @for (at, judged) in verdicts.iter().enumerate() {
                                tr {
                                    td.text { @if at == 0 { (claim.says) } }
                                    td.text.reading { (judged.name) }
                                    (verdict(judged))
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

/// Every claim with its first verdict: that of the reading that we stand by, or of the one that it
/// names.
fn first(all: &[Reproduction]) -> impl Iterator<Item = (&Reproduction, &Claim, &Judged)> {
    let of = |one| {
        let one: &Reproduction = one;
        one.judged.iter().filter_map(move |(claim, list)| Some((one, claim, list.first()?)))
    };
    all.iter().flat_map(of)
}

/// How many claims have which verdict: the papers' claims, and apart from them what is not theirs.
pub fn tallies(all: &[Reproduction]) -> Vec<String> {
    let line = |kind: Kind| {
        let words: Vec<&str> = first(all)
            .filter(|(_, claim, _)| claim.kind == kind)
            .map(|(_, _, j)| j.verdict.word())
            .collect();
        let count = |word: &str| words.iter().filter(|w| **w == word).count();
        let met = Verdict::WORDS.into_iter().filter(|word| count(word) > 0);
        let list: Vec<String> = met.map(|word| format!("{word}: {}", count(word))).collect();
        format!(
            "{} {}: {}.",
            words.len(),
            kind.plural(),
            if list.is_empty() { "none".into() } else { list.join(", ") }
        )
    };
    Kind::ALL.map(line).into()
}

/// What came out, in one sentence: the one that is written for this verdict, or what decided it.
fn sentence(claim: &Claim, judged: &Judged) -> String {
    let first = |tests: &[String]| {
        let rest =
            if tests.len() > 1 { format!(", and {} more", tests.len() - 1) } else { String::new() };
        format!("{}{rest}.", tests.first().map_or("", String::as_str))
    };
    match (claim.finds(&judged.verdict), &judged.verdict) {
        (Some(sentence), _) => sentence.into(),
        (None, Verdict::Holds) => "All comparisons hold beyond their error bars.".into(),
        (None, Verdict::Untested(why)) => format!("{why}."),
        (None, Verdict::Open(tests)) => {
            format!(
                "{} of {} comparisons are undecided at this size: {}",
                tests.len(),
                claim.comparisons(),
                first(tests)
            )
        }
        (None, Verdict::Fails(tests) | Verdict::Tie(tests) | Verdict::NotSharp(tests)) => {
            first(tests)
        }
    }
}

/// The numbers that a verdict rests on.
fn evidence(one: &Reproduction, claim: &Claim, judged: &Judged) -> String {
    match (&one.findings, &judged.verdict) {
        (_, Verdict::Untested(why)) => why.clone(),
        (
            _,
            Verdict::Fails(tests)
            | Verdict::Open(tests)
            | Verdict::Tie(tests)
            | Verdict::NotSharp(tests),
        ) => {
            let rest = tests.len().saturating_sub(MOST_NUMBERS);
            let shown: Vec<&str> = tests.iter().take(MOST_NUMBERS).map(String::as_str).collect();
            format!(
                "{}{}",
                shown.join("; "),
                if rest > 0 { format!("; and {rest} more") } else { String::new() }
            )
        }
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
            format!(
                "{}{}",
                shown.join(", "),
                if rest > 0 { format!(", and {rest} more") } else { String::new() }
            )
        }
    }
}

/// A paragraph in lines of at most 100 columns.
fn lines(text: &str) -> String {
    let options = textwrap::Options::new(100).break_words(false);
    textwrap::fill(text, options.word_splitter(textwrap::WordSplitter::NoHyphenation))
}

/// Text that fits into a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('*', "\\*")
}
