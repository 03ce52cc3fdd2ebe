//! Show how far draws may be off, what was tried before sampling, and what was chosen.

use consilience_engine::foretold::foretold_and_actual;
use consilience_engine::halved::Halved;
use consilience_engine::plan::{Candidate, Choice};
use consilience_engine::record::Record;
use consilience_engine::warnings::{longest_stay, summaries, weights_in_words};
use maud::{Markup, html};

use crate::candidates;
use crate::words::{bytes, count, decimals, many};

/// The bias of the draws, and the choice of the sampler.
pub fn section(record: &Record) -> Markup {
    html! {
        @if let Some(bias) = &record.bias {
            p {
                strong { "Bias: " }
                @if bias.exact {
                    "none. Proposals are accepted or rejected by the whole posterior, so that the \
                     draws have its law at any step."
                } @else {
                    "by forecast means are up to "
                    (decimals(bias.mean.iter().fold(0.0f64, |worst, m| worst.max(m.abs())), 3))
                    " posterior standard deviations off, and standard deviations up to "
                    (decimals(
                        100.0 * bias.sd.iter().fold(0.0f64, |worst, s| worst.max((s - 1.0).abs())),
                        1,
                    ))
                    "%."
                }
            }
        }
        @if let Some(halved) = record.bias.as_ref().and_then(|bias| bias.measured.as_ref()) {
            (measured(record, halved))
        }
        @if let Some(choice) = &record.choice { (chosen(record, choice)) }
    }
}

/// The bias as chains of half the step show it, and what is left without it.
fn measured(record: &Record, halved: &Halved) -> Markup {
    let ((mean, _), (sd, _)) = halved.worst();
    let both = |value: f64, error: f64, places: usize| {
        format!("{} ± {}", decimals(value, places), decimals(error, places))
    };
    html! {
        p {
            strong { "Bias as measured: " } "means are up to " (decimals(mean, 3))
            " posterior standard deviations off, and standard deviations up to "
            (decimals(100.0 * sd, 1)) "%, by chains of half the step along the same paths."
        }
        div.table tabindex="0" role="region" aria-label="The bias as measured" {
            table {
                thead { tr {
                    @for title in ["parameter", "mean without it", "standard deviation without it",
                        "bias of the mean, in sd", "bias of the sd, in %"] {
                        th scope="col" { (title) } }
                } }
                tbody { @for (k, name) in record.parameters.iter().enumerate() { tr {
                    th scope="row" { span.name { (name) } }
                    td { (both(halved.mean[k], halved.mean_error[k], 3)) }
                    td { (both(halved.sd[k], halved.sd_error[k], 3)) }
                    td { (both(halved.mean_bias[k], halved.mean_bias_error[k], 3)) }
                    td { (both(
                        100.0 * (halved.sd_ratio[k] - 1.0),
                        100.0 * halved.sd_ratio_error[k],
                        1,
                    )) }
                } } }
            }
        }
    }
}

fn chosen(record: &Record, choice: &Choice) -> Markup {
    let (before, sampling) = record.exchanges;
    let actual = |name: &str| -> Option<f64> {
        let found = record.statistics.iter().find(|s| s.name == name)?;
        found.range().map(|range| range.mean)
    };
    let drawn = summaries(&record.shown().1);
    html! {
        p {
            strong { "Choice: " } (choice.chosen) ", after " (many(before, "exchange"))
            " of surveys and pilots; sampling took " (many(sampling, "exchange")) " of all chains."
            @if let Some(foretold) = choice.acceptance {
                " Proposals were foretold to be accepted in " (decimals(100.0 * foretold, 0)) "%"
                @if let Some(actual) = actual("acceptance_rate") {
                    " of all cases, and were in " (decimals(100.0 * actual, 0)) "%" }
                "."
            }
            @if let Some(scale) = &choice.nodes {
                " How widely they were spread depended on " (scale) ", by nodes along its \
                 logarithm." }
            @if let Some(weights) = weights_in_words(record, &drawn) {
                " Their weights: " (weights) "." }
            @if let Some(stay) = longest_stay(record) {
                " The longest run of rejections has " (count(stay)) "." }
        }
        @if let Some((foretold, actual)) = foretold_and_actual(record, &drawn) {
            p {
                strong { "Foretold and actual: " }
                (count(foretold.draws as u64)) " and " (count(actual.draws as u64))
                " effective draws, " (count(foretold.exchanges.round() as u64)) " and "
                (count(actual.exchanges.round() as u64)) " exchanges of a chain, "
                (bytes(8.0 * foretold.bytes)) " and " (bytes(8.0 * actual.bytes))
                " of sampling, for a run of this length."
            }
        }
        (candidates::plots(record, choice))
        @if choice.candidates.iter().any(known) {
            div.table tabindex="0" role="region" aria-label="What the same draws would have cost" {
                table {
                    thead { tr {
                        @for title in ["sampler", "iterations of all chains", "exchanges of one",
                            "sent", "seconds of the network",
                            "bias of means and standard deviations"] {
                            th scope="col" { (title) } }
                    } }
                    tbody { @for one in choice.candidates.iter().filter(|one| known(one)) { tr {
                        th scope="row" { span.name { (one.sampler) } }
                        td { (count(one.iterations as u64)) }
                        td { (count(one.exchanges as u64)) }
                        td { (bytes(8.0 * one.bytes)) }
                        td { (decimals(one.seconds, 1)) }
                        td {
                            @if let Some(why) = &one.refused { "not used: " (why) }
                            @else if let Some(bias) = one.bias {
                                @if let Some(mean) = one.mean_bias {
                                    (decimals(mean, 3)) " sd, " }
                                (decimals(100.0 * bias, 1)) "%"
                            }
                            @else { "none" }
                        }
                    } } }
                }
            }
            p.soft { "What the same effective draws were foretold to cost, surveys not included." }
        }
    }
}

fn known(candidate: &Candidate) -> bool {
    candidate.iterations > 0.0
}
