//! Make one self-contained HTML page of a run: what was found, how far to trust it, what was sent.
//!
//! The page loads nothing, runs no script, follows the reader's choice of light or dark, and
//! prints.

mod calibration;
mod candidates;
mod chains;
mod check;
mod choice;
mod comparison;
mod contest;
mod effects;
mod facts;
pub mod figure;
mod images;
mod influence;
mod plot;
mod posterior;
mod scale;
mod traffic;
mod words;

use consilience_core::sampler::registry;
use consilience_engine::record::Record;
use consilience_engine::statistics::is_watched;
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use comparison::{COMPARISON_SECTIONS, Comparison, Contender, comparison};
pub use contest::Truth;
use facts::Facts;
use words::{bytes, count, duration, many, moment, number};

/// The sections of a page: what they are linked by, and their headings.
pub const SECTIONS: [(&str, &str); 14] = [
    ("warnings", "Warnings"),
    ("posterior", "Posterior"),
    ("summary", "Summary"),
    ("effects", "Ratios and effects"),
    ("check", "Does the model look like its rows?"),
    ("calibration", "Calibration"),
    ("convergence", "Convergence"),
    ("chains", "Chains"),
    ("pairs", "Pairs"),
    ("bits", "Bytes against error"),
    ("sites", "Sites"),
    ("influence", "Influence of the sites"),
    ("sent", "What was sent and what stayed"),
    ("reproduce", "Notes and how to reproduce this"),
];

/// The page of a run.
pub fn html(record: &Record) -> String {
    let facts = Facts::new(record);
    sections(&title(record), &opening(&facts), &SECTIONS, |id| section(id, &facts))
}

/// The means and intervals of a run as an SVG picture.
pub fn picture(record: &Record) -> String {
    posterior::picture(&Facts::new(record))
}

/// The held-out images of which predictions are least sure as an SVG picture, where there are such.
pub fn uncertain_images(record: &Record) -> Option<String> {
    let images = &record.calibration.as_ref()?.uncertain;
    (!images.is_empty()).then(|| images::alone(images))
}

/// A page of sections that are linked at its top.
fn sections(
    title: &str,
    opening: &Markup,
    sections: &[(&str, &str)],
    section: impl Fn(&str) -> Markup,
) -> String {
    let body = html! {
        header {
            h1 { (title) }
            (opening)
            nav aria-label="Sections" {
                ul { @for (id, heading) in sections { li { a href={ "#" (id) } { (heading) } } } } }
        }
        main { @for (id, heading) in sections {
            section id=(id) { h2 { (heading) } (section(id)) } } }
    };
    page(title, &body)
}

/// A self-contained page with this title and body, in the look of all pages.
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(plot::STYLE)) (PreEscaped(include_str!("style.css"))) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn title(record: &Record) -> String {
    match record.sites.len() as u64 {
        0 => format!("Posterior by {}", record.sampler.0),
        sites => format!("One posterior from {}, by {}", many(sites, "site"), record.sampler.0),
    }
}

fn section(id: &str, facts: &Facts) -> Markup {
    match id {
        "warnings" => warnings(facts),
        "posterior" => posterior::forest(facts),
        "summary" => html! { (posterior::distance(facts)) (posterior::table(facts)) },
        "effects" => effects::section(facts),
        "check" => check::section(facts),
        "calibration" => calibration::section(facts),
        "convergence" => chains::overview(facts),
        "chains" => html! {
            p.soft { "Lines: each chain's draws in order; chains that agree overlap. Bars: where \
                each chain's draws rank among all; bars near the dashed line show that no chain \
                favours a region. The parameters with the largest R-hat come first." }
            (chains::traces(facts))
        },
        "pairs" => posterior::pairs(facts),
        "bits" => traffic::error(facts),
        "sites" => traffic::sites(facts),
        "influence" => influence::section(facts),
        "sent" => html! { (traffic::in_words(facts)) (traffic::sent(facts)) },
        _ => reproduce(facts),
    }
}

fn opening(facts: &Facts) -> Markup {
    let record = facts.record;
    let rows: u64 = record.sites.iter().map(|s| s.rows).sum();
    let (chains, length) = record.drawn();
    let says = record.sampler.1.trim_end_matches('.');
    html! {
        p {
            (many(record.sites.len() as u64, "site")) " with " (many(rows, "row")) " in all \
                sampled one posterior of " (many(facts.parameters.len() as u64, "parameter"))
            " with " strong { (record.sampler.0) } @if !says.is_empty() { " (" (says) ")" }
            @if has_step(record) { ", step " (number(record.step)) } ". " (many(chains as u64,
                "chain")) " of " (many(record.iterations,
                    "iteration")) " took " (duration(record.seconds))
            " and left " (many(length as u64, "draw")) " each, after a burn-in \
                of " (count(record.burn_in)) @if record.thin > 1 { " and keeping one \
                in " (count(record.thin)) }
            ". Made by consilience " (record.version) " on " (moment(&record.created)) "."
        }
        @if let Some(target) = &record.target {
            p { strong { "Model:" } " " (target.model) ". "
                strong { "Prior:" } " " (target.prior) "." }
        }
        dl.facts {
            @for (name, value) in [
                ("Sites", count(record.sites.len() as u64)),
                ("Rows", count(rows)),
                ("Parameters", count(facts.parameters.len() as u64)),
                ("Chains × draws", format!("{} × {}", count(chains as u64), count(length as u64))),
                ("Sent up", bytes(facts.sent("up") as f64)),
                ("Sent down", bytes(facts.sent("down") as f64)),
                ("Time", duration(record.seconds)),
            ] { div { dt { (name) } dd { (value) } } }
        }
        (choice::section(record))
    }
}

/// Whether the sampler has a step: one that is not known here may.
fn has_step(record: &Record) -> bool {
    registry::find(&record.sampler.0).is_none_or(|row| row.has_step())
}

fn warnings(facts: &Facts) -> Markup {
    html! {
        @if facts.warnings.is_empty() {
            p.none role="status" { "None were found: chains agree (R-hat at \
                most " (facts::MOST_RHAT) "), and there are enough effective draws \
                (" (facts::LEAST_ESS) " a chain)." }
        } @else {
            div.warnings role="alert" {
                strong { (many(facts.warnings.len() as u64, "warning")) }
                    ul { @for warning in &facts.warnings {
                        li { (warning.to_string()) " " code.soft { (warning.code.name()) } }
                    } } }
        }
    }
}

fn reproduce(facts: &Facts) -> Markup {
    let record = facts.record;
    html! {
        @if record.notes.is_empty() {
            p.soft { "There are no notes on how the data was encoded." }
        } @else {
            p { "How the data was encoded:" }
            ul { @for note in &record.notes { li { (note) } } }
        }
        p {
            "Save the config below \
             as " code { "run.toml" } " and run it with \
             version " (record.version) "; the seed " code { (record.seed) }
            " fixes every random number, so that the draws are the same, bit for bit, on the same \
             kind of machine with the same data:"
        }
        pre { code { "consilience run run.toml" } }
        @if record.rows_evaluated > 0 { p.soft { "The sites evaluated the gradients \
            of " (many(record.rows_evaluated, "row")) " in all." } }
        (beside(record))
        details { summary { "The config, as it was resolved" } pre { code { (record.config) } } }
    }
}

/// What was recorded beside the draws, whatever the sampler names.
fn beside(record: &Record) -> Markup {
    let shown: Vec<_> = record
        .statistics
        .iter()
        .filter(|statistic| !is_watched(&statistic.name))
        .filter_map(|statistic| Some((&statistic.name, statistic.range()?)))
        .collect();
    html! { @if !shown.is_empty() { details {
        summary { "What was recorded beside the draws" }
        div.table tabindex="0" role="region" aria-label="What was recorded beside the draws" {
            table {
                thead { tr { @for title in ["", "mean", "smallest", "largest"] {
                    th scope="col" { (title) } } } }
                tbody { @for (name, range) in &shown { tr {
                    th scope="row" { span.name { (name) } }
                    @for x in [range.mean, range.lowest, range.highest] {
                        td { (number(x)) } }
                } } }
            }
        }
    } } }
}
