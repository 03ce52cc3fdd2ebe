//! Show whether the chains agree: traces, ranks, R-hat and effective draws.

use maud::{Markup, html};

use crate::facts::{Facts, LEAST_ESS, MOST_RHAT, Parameter};
use crate::plot::{self, COLOURS, Frame, Names, bar, beside_words, dot, line, path, words};
use crate::scale::{Scale, range};
use crate::words::{count, decimals};

/// Parameters whose chains are shown at once.
const OPEN: usize = 12;
/// Parameters whose chains are shown on request.
const FOLDED: usize = 28;
/// Rows of the overviews.
const MOST_ROWS: usize = 40;
/// Columns of a trace: each shows the least and largest draw that fall into it.
const COLUMNS: usize = 190;
const BINS: usize = 20;
const HEIGHT: f64 = 132.0;

/// Traces and ranks, the worst first.
pub fn traces(facts: &Facts) -> Markup {
    let sorted = facts.worst_first();
    let open = &sorted[..sorted.len().min(OPEN)];
    let folded = &sorted[open.len()..sorted.len().min(OPEN + FOLDED)];
    let left_out = sorted.len() - open.len() - folded.len();
    html! {
        @for p in open { (one(facts, p)) }
        @if !folded.is_empty() {
            details {
                summary { "The chains of " (count(folded.len() as u64)) " more parameters"
                    @if left_out > 0 { " (and none of the other " (count(left_out as u64)) ")" } }
                @for p in folded { (one(facts, p)) }
            }
        }
    }
}

fn one(facts: &Facts, p: &Parameter) -> Markup {
    let draws = facts.draws(p);
    html! {
        div.chains {
            h3 { (p.name) " " span.soft { "R-hat " (decimals(p.summary.rhat, 3)) } }
            figure { (trace(&p.name, &draws)) }
            figure { (ranks(&p.name, &draws)) }
        }
    }
}

fn trace(parameter: &str, chains: &[Vec<f64>]) -> Markup {
    let says = format!("Trace of {parameter}");
    let (top, bottom) = (6.0, HEIGHT - 20.0);
    let Some(up) = Scale::around(chains.iter().flatten().copied(), bottom, top) else {
        return plot::nothing(HEIGHT, &says, "no finite draws");
    };
    let frame = Frame { left: plot::gutter(&up, 5), right: 4.0, height: HEIGHT };
    let length = chains.iter().map(Vec::len).max().unwrap_or(0);
    let across = Scale::between(1.0, (length as f64).max(2.0), 0.0, 100.0);
    let inside = html! {
        (plot::beside(&up, 5))
        @for tick in frame.ticks(&across, 5, &|x,
            _| count(x as u64)).iter().filter(|tick| tick.at.fract() == 0.0) {
            (words(&format!("dim \
                middle{}", tick.class), (across.at(tick.at), HEIGHT - 6.0), &tick.text))
        }
        @for (k, chain) in chains.iter().enumerate() {
            (path(&format!("trace s{}", k % COLOURS), thinned(chain, &across, &up)))
            @if chain.len() == 1 && chain[0].is_finite() {
                (dot(&format!("f{}", k % COLOURS), (across.at(1.0), up.at(chain[0])), 3.0)) }
        }
    };
    frame.draw(&says, &inside)
}

/// The points of a trace: all draws, or the least and largest of every column where there are many.
/// A draw that is not finite is a gap.
fn thinned(chain: &[f64], across: &Scale, up: &Scale) -> Vec<Option<(f64, f64)>> {
    let at = |draw: usize| across.at(draw as f64 + 1.0);
    if chain.len() <= 2 * COLUMNS {
        return chain
            .iter()
            .enumerate()
            .map(|(k, x)| x.is_finite().then(|| (at(k), up.at(*x))))
            .collect();
    }
    let mut points = Vec::with_capacity(2 * COLUMNS);
    for column in 0..COLUMNS {
        let (from, to) = (column * chain.len() / COLUMNS, (column + 1) * chain.len() / COLUMNS);
        let part = &chain[from..to];
        let x = at((from + to) / 2);
        if let Some((low, high)) = range(part.iter().copied()) {
            // In the order in which they came, so that a drift looks like one.
            let rises = part.iter().position(|v| *v == low) <= part.iter().position(|v| *v == high);
            let (first, second) = if rises { (low, high) } else { (high, low) };
            points.extend([Some((x, up.at(first))), Some((x, up.at(second)))]);
        }
        if part.iter().any(|v| !v.is_finite()) {
            points.push(None);
        }
    }
    points
}

/// Where each chain's draws rank among all: flat where the chains agree.
fn ranks(parameter: &str, chains: &[Vec<f64>]) -> Markup {
    let says = format!("Ranks of the draws of {parameter}, chain by chain");
    let counts = rank_counts(chains);
    let shown = &counts[..counts.len().min(COLOURS)];
    if shown.iter().flatten().all(|n| *n == 0.0) {
        return plot::nothing(HEIGHT, &says, "no finite draws");
    }
    let (top, bottom) = (6.0, HEIGHT - 20.0);
    let row = (bottom - top) / shown.len() as f64;
    let width = 100.0 / BINS as f64;
    let most = counts.iter().flatten().copied().fold(0.0, f64::max).max(1e-12);
    let inside = html! {
        @for (k, bins) in shown.iter().enumerate() {
            @let floor = top + row * (k as f64 + 1.0);
            @let level = bins.iter().sum::<f64>() / BINS as f64;
            (beside_words("dim end", (0.0, floor - row / 2.0 + 4.0), -5.0, &(k + 1).to_string()))
            @for (b, n) in bins.iter().enumerate() {
                @let height = (row - 4.0) * n / most;
                (bar(&format!("f{}", k % COLOURS), (b as f64 * width, floor - height),
                    (0.94 * width, height)))
            }
            (line("axis", (0.0, floor), (100.0, floor)))
            @let height = floor - (row - 4.0) * level / most;
            (line("level", (0.0, height), (100.0, height)))
        }
        (words("dim", (0.0, HEIGHT - 6.0), "lowest"))
        (words("dim end", (100.0, HEIGHT - 6.0), "highest rank"))
    };
    Frame { left: 16.0, right: 4.0, height: HEIGHT }.draw(&says, &inside)
}

/// How many of each chain's draws fall in each bin of ranks among all finite draws; equal draws
/// share their mean rank.
fn rank_counts(chains: &[Vec<f64>]) -> Vec<[f64; BINS]> {
    let mut all: Vec<(f64, usize)> = Vec::new();
    for (k, chain) in chains.iter().enumerate() {
        all.extend(chain.iter().filter(|x| x.is_finite()).map(|x| (*x, k)));
    }
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut counts = vec![[0.0; BINS]; chains.len()];
    let mut from = 0;
    while from < all.len() {
        let equal = all[from..].iter().take_while(|x| x.0 == all[from].0).count();
        let middle = from as f64 + (equal as f64 - 1.0) / 2.0;
        let bin = (((middle + 0.5) * BINS as f64 / all.len() as f64) as usize).min(BINS - 1);
        all[from..from + equal].iter().for_each(|(_, chain)| counts[*chain][bin] += 1.0);
        from += equal;
    }
    counts
}

/// R-hat and effective draws of all parameters.
pub fn overview(facts: &Facts) -> Markup {
    let sorted = facts.worst_first();
    let rhats: Vec<&Parameter> =
        sorted.iter().copied().filter(|p| p.summary.rhat.is_finite()).take(MOST_ROWS).collect();
    let mut effective: Vec<&Parameter> = sorted
        .iter()
        .copied()
        .filter(|p| p.summary.ess_bulk.is_finite() && p.summary.ess_tail.is_finite())
        .collect();
    effective.sort_by(|a, b| {
        a.summary
            .ess_bulk
            .min(a.summary.ess_tail)
            .total_cmp(&b.summary.ess_bulk.min(b.summary.ess_tail))
    });
    effective.truncate(MOST_ROWS);
    let least = LEAST_ESS * facts.chains as f64;
    let highest = rhats.iter().map(|p| p.summary.rhat).fold(1.015, f64::max);
    let lowest = rhats.iter().map(|p| p.summary.rhat).fold(0.999, f64::min);
    let most = effective
        .iter()
        .map(|p| p.summary.ess_bulk.max(p.summary.ess_tail))
        .fold(least * 1.2, f64::max);
    let rhat_marks = |p: &Parameter| vec![("dot", p.summary.rhat)];
    let ess_marks = |p: &Parameter| vec![("ring", p.summary.ess_tail), ("dot", p.summary.ess_bulk)];
    let more = |shown: usize| {
        if sorted.len() > shown && shown == MOST_ROWS {
            format!(" The worst {shown} of {}.", sorted.len())
        } else {
            String::new()
        }
    };
    html! {
        div.two {
            figure {
                (dots("R-hat of the parameters", &rhats,
                    (lowest, highest + (highest - 1.0) * 0.05), Some(MOST_RHAT), rhat_marks))
                figcaption { "R-hat: 1 where the chains agree, \
                    above " (MOST_RHAT) " (dashed) where they do not." (more(rhats.len())) }
            }
            figure {
                (dots("Effective draws of the \
                    parameters", &effective, (0.0, most * 1.03), Some(least), ess_marks))
                figcaption { "Effective draws. Dot: for the centre (bulk). Ring: for the tails. At \
                    least " (count(least as u64)) " (dashed) are wanted." (more(effective.len())) }
            }
        }
    }
}

fn dots(
    says: &str,
    shown: &[&Parameter],
    ends: (f64, f64),
    limit: Option<f64>,
    marks: impl Fn(&Parameter) -> Vec<(&'static str, f64)>,
) -> Markup {
    if shown.is_empty() {
        return plot::nothing(60.0, says, "not known: too few draws, or draws that do not vary");
    }
    let top = 6.0;
    let names = Names::new(shown.iter().map(|p| p.name.as_str()), top, 20.0);
    let bottom = names.bottom();
    let frame = Frame { left: names.left, right: 14.0, height: bottom + 20.0 };
    let scale = Scale::between(ends.0, ends.1, 0.0, 100.0);
    let inside = html! {
        (frame.below(&scale, top, bottom, 4))
        @if let Some(limit) = limit {
            (line("limit", (scale.at(limit), top), (scale.at(limit), bottom))) }
        @for (k, p) in shown.iter().enumerate() {
            @let y = names.middle(k);
            (names.draw(k))
            (line("grid", (0.0, y), (100.0, y)))
            @for (class, x) in marks(p) { (dot(class, (scale.at(x), y), 3.6)) }
        }
    };
    frame.draw(says, &inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_by_hand() {
        let counts =
            rank_counts(&[(0..20).map(f64::from).collect(), (20..40).map(f64::from).collect()]);
        assert!(
            (0..BINS)
                .all(|b| (counts[0][b], counts[1][b])
                    == if b < 10 { (2.0, 0.0) } else { (0.0, 2.0) })
        );
        let equal = rank_counts(&[vec![1.0; 4], vec![1.0, 1.0, f64::NAN, 1.0]]);
        assert_eq!(
            (equal[0][10], equal[1][10]),
            (4.0, 3.0),
            "equal draws share a rank, and a NaN has none"
        );
    }

    #[test]
    fn a_thinned_trace_keeps_its_extremes() {
        let mut chain = vec![0.0; 10_000];
        (chain[777], chain[5000], chain[9999]) = (9.0, f64::NAN, -9.0);
        let (across, up) =
            (Scale::between(1.0, 1e4, 0.0, 100.0), Scale::between(-9.0, 9.0, 0.0, 18.0));
        let points = thinned(&chain, &across, &up);
        assert!(points.len() <= 2 * COLUMNS + 1);
        assert_eq!(points.iter().filter(|p| p.is_none()).count(), 1);
        assert_eq!(range(points.iter().flatten().map(|p| p.1)), Some((0.0, 18.0)));
    }
}
