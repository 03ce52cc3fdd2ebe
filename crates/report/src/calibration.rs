//! Show how often predictions are right, against how sure they were.

use consilience_core::measure::{Bin, Tally};
use consilience_engine::calibration::{Calibration, Entropies, Judged};
use maud::{Markup, html};

use crate::facts::Facts;
use crate::images;
use crate::plot::{self, Frame, Key, axis_label, bar, dot, line, path, words};
use crate::scale::Scale;
use crate::words::{breadth, bytes, count, decimals, many};

/// Sites with a line of their own in the table.
const MOST_SITES: usize = 100;
const HEIGHT: f64 = 280.0;
const FRAME: Frame = Frame { left: 32.0, right: 10.0, height: HEIGHT };

/// The whole section.
pub fn section(facts: &Facts) -> Markup {
    let Some(calibration) = &facts.record.calibration else {
        return html! { p.soft { "There are no predictions to judge: the model has no labels, or \
        there was nothing to compute them from (see the warnings)." } };
    };
    let total = calibration.total();
    if total.total.all == 0 {
        return html! { p.soft { "There are no rows to predict." } };
    }
    html! {
        (opening(calibration, &total))
        dl.facts {
            @for (name, value) in [
                ("Rows", count(total.total.all)),
                ("Accuracy", decimals(total.accuracy(), 3)),
                ("ECE", decimals(total.calibration_error(), 3)),
                ("Brier score", decimals(total.mean_brier(), 3)),
                ("nNLL", decimals(total.mean_minus_log_likelihood(), 3)),
            ] { div { dt { (name) } dd { (value) } } }
        }
        div.two {
            figure {
                (axis_label("up", "accuracy"))
                (reliability(&total.curve()))
                (axis_label("across", "confidence"))
                figcaption { "Reliability: the share of predictions that are right, by how sure \
                    they were, with 95% intervals (Wilson). On the dashed line they are as often \
                    right as they claim. Below: how many predictions each bin has." }
            }
            figure {
                (axis_label("up", "accuracy, and share of the rows"))
                (credible(&total, calibration.classes))
                (axis_label("across", "credibility of at least"))
                figcaption { "Accuracy (solid) among the predictions of at least each credibility, \
                    and the share of rows that have one (dashed)." }
            }
        }
        @if !calibration.points.is_empty() { (points(calibration, &total)) }
        @if let Some(seen) = &calibration.elsewhere { (elsewhere(seen, calibration.classes)) }
        @if !calibration.uncertain.is_empty() {
            figure {
                (images::picture(&calibration.uncertain))
                figcaption { "The images that were held out of which predictions are least sure: \
                    the two most probable classes of each, and what it is." }
            }
        }
        (sent(facts, calibration, &total))
    }
}

/// What averaging over draws is worth beside single parameters.
fn points(calibration: &Calibration, total: &Tally) -> Markup {
    let all = ("all draws, averaged", total);
    let lines = calibration.points.iter().map(|point| (point.name.as_str(), &point.tally));
    html! {
        p { "Predictions by one parameter, as an optimiser would give, are often too sure of \
            themselves. The same rows:" }
        div.table tabindex="0" role="region" aria-label="Averaged and single predictions" {
            table {
                thead { tr { @for column in ["predicted by", "accuracy", "ECE", "Brier", "nNLL"] {
                    th scope="col" { (column) } } } }
                tbody {
                    @for (name, tally) in std::iter::once(all).chain(lines) {
                        tr {
                            th scope="row" { (name) }
                            @for x in [tally.accuracy(), tally.calibration_error(),
                                tally.mean_brier(), tally.mean_minus_log_likelihood()] {
                                    td { (decimals(x, 4)) } }
                        }
                    }
                }
            }
        }
    }
}

/// How uncertain predictions are of rows of another kind.
fn elsewhere(seen: &Entropies, classes: usize) -> Markup {
    let says = "Entropies of predictions of rows held out, and of rows of another kind";
    let (top, bottom) = (8.0, HEIGHT - 18.0);
    let most_known = (classes as f64).ln();
    let share = |counts: &[u64]| -> Vec<f64> {
        let all = counts.iter().sum::<u64>().max(1) as f64;
        counts.iter().map(|count| *count as f64 / all).collect()
    };
    let (here, there) = (share(&seen.here), share(&seen.there));
    let most = here.iter().chain(&there).copied().fold(0.0, f64::max).max(1e-9);
    let across = Scale::between(0.0, most_known, 0.0, 100.0);
    let up = Scale::between(0.0, most, bottom, top);
    let steps = |shares: &[f64]| -> Vec<Option<(f64, f64)>> {
        let at = |k: usize| across.at(most_known * k as f64 / shares.len().max(1) as f64);
        let step = |(k, share): (usize, &f64)| {
            [Some((at(k), up.at(*share))), Some((at(k + 1), up.at(*share)))]
        };
        shares.iter().enumerate().flat_map(step).collect()
    };
    let inside = html! {
        (plot::beside(&up, 4))
        (FRAME.below(&across, top, bottom, 5))
        (path("curve s0", steps(&here)))
        (path("curve s1", steps(&there)))
        (line("axis", (0.0, bottom), (100.0, bottom)))
    };
    html! {
        figure {
            (axis_label("up", "share of the rows"))
            (FRAME.draw(says, &inside))
            (axis_label("across", "entropy of the prediction, in nats"))
            (plot::legend([
                Key { colour: 0, mark: "line", name: "rows held out" },
                Key { colour: 1, mark: "line", name: &seen.name },
            ]))
            figcaption { "How little is known of a row's class: 0 where one class is certain, "
                (decimals(most_known, 2)) " where all are alike. A row of " (seen.name)
                " is the more uncertain of two in " (decimals(100.0 * seen.auc, 1))
                "% of all pairs (area under the ROC curve " (decimals(seen.auc, 3)) ")." }
        }
    }
}

fn opening(calibration: &Calibration, total: &Tally) -> Markup {
    html! {
        p {
            "The label of each of " (many(total.total.all, "row")) " was predicted by averaging \
                over " (many(calibration.draws as u64, "draw")) " and compared with the truth, "
            @match calibration.judged {
                Judged::HeldOut => { strong { "on rows that were held out" } ": no site used them \
                    to sample." },
                Judged::Fitted => { strong { "on the rows that were fitted" } ", since none were \
                    held out: new rows may be predicted less well." },
            }
            " ECE is the mean distance of accuracy from confidence \
             over " (total.bins.len()) " bins; the Brier score sums squared errors over \
             the " (calibration.classes)
            " classes (0 to 2); nNLL is the mean of −log p(label). For all three, less is better."
        }
    }
}

/// The reliability curve above, the counts below.
fn reliability(curve: &[Bin]) -> Markup {
    let says = "Accuracy of predictions against their confidence";
    let half = 0.5 / curve.len() as f64;
    let Some(least) = curve.iter().find(|bin| bin.count > 0).map(|bin| bin.centre - half) else {
        return plot::nothing(HEIGHT, says, "no predictions");
    };
    let (top, bottom, floor) = (8.0, 190.0, HEIGHT - 18.0);
    let (across, up) =
        (Scale::between(least, 1.0, 0.0, 100.0), Scale::between(0.0, 1.0, bottom, top));
    let most = curve.iter().map(|bin| bin.count).max().unwrap_or(0);
    let tall = Scale::between(0.0, most as f64, floor, bottom + 26.0);
    let filled: Vec<&Bin> = curve.iter().filter(|bin| bin.count > 0).collect();
    let at = |bin: &Bin| (across.at(bin.confidence), up.at(bin.accuracy));
    // Counts that would touch each other on a phone are left out there; the table has them.
    let column = (across.at(least + 2.0 * half) - across.at(least)) / 100.0 * FRAME.room();
    let fit = filled.iter().all(|bin| breadth(&short(bin.count)) <= column);
    let counts = if fit { "dim middle" } else { "dim middle roomy" };
    let inside = html! {
        (plot::beside(&up, 5))
        (FRAME.below(&across, top, floor, 5))
        (line("level", (across.at(least), up.at(least)), (across.at(1.0), up.at(1.0))))
        (path("thin", filled.iter().map(|bin| Some(at(bin)))))
        @for bin in &filled {
            @let (x, _) = at(bin);
            @let (low, high) = wilson(bin);
            g {
                title { (many(bin.count as u64, "prediction")) " with confidence around "
                    (decimals(bin.confidence, 2)) ": "
                    (decimals(100.0 * bin.accuracy, 1)) "% right" }
                (line("thin", (x, up.at(low)), (x, up.at(high))))
                (dot("dot", at(bin), 3.6))
            }
            @let (from, to) = (across.at(bin.centre - half) + 0.2,
                across.at(bin.centre + half) - 0.2);
            @let y = tall.at(bin.count as f64);
            (bar("bar", (from, y), (to - from, (floor - y).max(0.6))))
            (words(counts, (f64::midpoint(from, to), y - 3.0), &short(bin.count)))
        }
        (line("axis", (0.0, floor), (100.0, floor)))
    };
    FRAME.draw(says, &inside)
}

/// Wilson's interval of a share, with 95% confidence.
fn wilson(bin: &Bin) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    let (n, right) = (bin.count as f64, bin.accuracy * bin.count as f64);
    let middle = (right + Z * Z / 2.0) / (n + Z * Z);
    let half = Z / (n + Z * Z) * (right * (n - right) / n + Z * Z / 4.0).max(0.0).sqrt();
    (middle - half, middle + half)
}

/// A count that fits above a bar.
fn short(n: usize) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{}k", n / 1000),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

/// Accuracy against the credibility that is asked for.
fn credible(total: &Tally, classes: usize) -> Markup {
    let says = "Accuracy among predictions of at least each credibility";
    // Below one over the number of classes no prediction is left out.
    let points: Vec<_> = total
        .above()
        .into_iter()
        .filter(|p| p.threshold + 0.05 > 1.0 / classes as f64 && p.count > 0)
        .collect();
    let (top, bottom) = (8.0, HEIGHT - 18.0);
    let first = points.first().map_or(0.0, |p| p.threshold);
    let (across, up) =
        (Scale::between(first - 0.03, 1.0, 0.0, 100.0), Scale::between(0.0, 1.0, bottom, top));
    let share = |n: usize| n as f64 / total.total.all as f64;
    let inside = html! {
        (plot::beside(&up, 5))
        (FRAME.below(&across, top, bottom, 5))
        (path("pooled \
            dashed", points.iter().map(|p| Some((across.at(p.threshold), up.at(share(p.count)))))))
        (path("thin", points.iter().map(|p| Some((across.at(p.threshold), up.at(p.accuracy))))))
        @for p in &points {
            g {
                title { "at least " (decimals(p.threshold, 2)) ": " (decimals(100.0 * p.accuracy,
                    1)) "% of " (many(p.count as u64, "prediction")) " right" }
                (dot("dot", (across.at(p.threshold), up.at(p.accuracy)), 3.0))
            }
        }
        (line("axis", (0.0, bottom), (100.0, bottom)))
    };
    FRAME.draw(says, &inside)
}

/// What the sites would send for this, and its numbers.
fn sent(facts: &Facts, calibration: &Calibration, total: &Tally) -> Markup {
    html! {
        p.soft {
            "In a federation this takes one table of counts from each \
             site, " (count(total.numbers() as u64)) " numbers \
             (" (bytes(64.0 * total.numbers() as f64))
            " at 64 bits each): for each bin how many predictions fall into it, how many of them \
             are right and the sum of their confidences; for each credibility how many have it and \
             how many of these are right; and the sums of both scores. "
            "The curves above are computed from the sum of these tables. No row and no label is \
             sent by itself, but a bin with a single prediction tells whether it was right."
        }
        details {
            summary { "The numbers" }
            (bins_table(total))
            (sites_table(facts, calibration))
        }
    }
}

fn bins_table(total: &Tally) -> Markup {
    let half = 0.5 / total.bins.len() as f64;
    html! {
        div.table tabindex="0" role="region" aria-label="Predictions by confidence" {
            table {
                thead { tr { @for column in ["confidence", "predictions", "right", "mean \
                    confidence", "accuracy"] { th scope="col" { (column) } } } }
                tbody {
                    @for (bin, (counted, _)) in total.curve().iter().zip(&total.bins).filter(|(bin,
                        _)| bin.count > 0) {
                        tr {
                            th scope="row" { (decimals(bin.centre - half, 3)) " \
                                to " (decimals(bin.centre + half, 3)) }
                            td { (count(counted.all)) }
                            td { (count(counted.right)) }
                            td { (decimals(bin.confidence, 3)) }
                            td { (decimals(bin.accuracy, 3)) }
                        }
                    }
                }
            }
        }
    }
}

fn sites_table(facts: &Facts, calibration: &Calibration) -> Markup {
    let left_out = calibration.sites.len().saturating_sub(MOST_SITES);
    let name = |k: usize| {
        facts
            .record
            .sites
            .get(k)
            .map_or_else(|| format!("site {}", k + 1), |site| site.name.clone())
    };
    html! {
        div.table tabindex="0" role="region" aria-label="Predictions by site" {
            table {
                thead { tr { @for column in ["site", "rows", "accuracy", "ECE", "Brier", "nNLL"] {
                    th scope="col" { (column) } } } }
                tbody {
                    @for (k, site) in calibration.sites.iter().enumerate().take(MOST_SITES) {
                        tr {
                            th scope="row" { span.name { (name(k)) } }
                            td { (count(site.total.all)) }
                            @for x in [site.accuracy(), site.calibration_error(),
                                site.mean_brier(), site.mean_minus_log_likelihood()] {
                                    td { (decimals(x, 3)) } }
                        }
                    }
                }
            }
        }
        @if left_out > 0 { p.soft { "And " (many(left_out as u64, "site")) " more." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_by_hand() {
        let bin =
            |accuracy: f64, count: usize| Bin { centre: 0.5, confidence: 0.5, accuracy, count };
        let (low, high) = wilson(&bin(0.5, 10));
        assert!((low - 0.2366).abs() < 1e-4 && (high - 0.7634).abs() < 1e-4, "{low} {high}");
        let (low, high) = wilson(&bin(1.0, 10));
        assert!((low - 0.7225).abs() < 1e-4 && (high - 1.0).abs() < 1e-12, "{low} {high}");
        assert_eq!([short(7), short(12_345), short(2_340_000)], ["7", "12k", "2.3M"]);
    }
}
