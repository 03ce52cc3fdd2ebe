//! Show the posterior: the forest of intervals, the table, and pairs of parameters.

use maud::{Markup, html};

use crate::facts::{Facts, LEAST_ESS, MOST_RHAT, Parameter};
use crate::plot::{self, Frame, LINE, NARROW, Names, bar, dot, line, paragraph};
use crate::scale::{Scale, range};
use crate::words::{self, count, decimals, number, wrapped};

/// No more rows than this in one plot.
pub const MOST_ROWS: usize = 60;
/// Points of one scatter plot.
const POINTS: usize = 500;
/// What the marks of a forest are.
const LEGEND: &str = "Dot: mean. Thick line: the middle 50%. Thin line: 89%.";
/// How many parameters pairs are shown of.
const PAIRED: usize = 4;

/// Means and intervals, with the pooled ones beside them, and what they are.
pub fn forest(facts: &Facts) -> Markup {
    let (forest, shown) = (intervals(facts), facts.parameters.len().min(MOST_ROWS));
    let all = facts.parameters.len();
    html! {
        figure.wide {
            (forest.frame.draw(&forest.says, &forest.inside))
            figcaption {
                (LEGEND)
                @if facts.parameters[..shown].iter().any(|p| p.pooled.is_some()) {
                    " The ring and line below: the same from all rows in one place, a \
                    check that only data that may be pooled allows." }
                @if all > shown { " The first " (shown) " of " (count(all as u64)) " \
                    parameters; the table has all." }
            }
        }
    }
}

/// Means and intervals as a picture of its own.
pub fn picture(facts: &Facts) -> String {
    let forest = intervals(facts);
    let pooled = facts.parameters.iter().any(|p| p.pooled.is_some());
    let caption = if pooled { " Ring: the same from all rows in one place." } else { "" };
    forest.frame.alone(&forest.says, &forest.inside, &format!("{LEGEND}{caption}"))
}

/// A plot, not yet drawn.
struct Plot {
    frame: Frame,
    /// What it shows, for those who cannot see it.
    says: String,
    inside: Markup,
}

fn intervals(facts: &Facts) -> Plot {
    let shown = &facts.parameters[..facts.parameters.len().min(MOST_ROWS)];
    let pooled = shown.iter().any(|p| p.pooled.is_some());
    let top = 6.0;
    let names =
        Names::new(shown.iter().map(|p| p.name.as_str()), top, if pooled { 26.0 } else { 20.0 });
    let bottom = names.bottom();
    let frame = Frame { left: names.left, right: 8.0, height: bottom + 20.0 };
    let ends = |p: &Parameter| {
        let other = p.pooled.map_or([f64::NAN; 2], |s| [s.lower, s.upper]);
        [p.summary.lower, p.summary.upper, p.summary.mean, other[0], other[1]]
    };
    let says = format!(
        "Mean, 50% and 89% interval of {} parameters{}",
        shown.len(),
        if pooled { ", with those from pooled data" } else { "" }
    );
    let Some(scale) = Scale::around(shown.iter().flat_map(ends), 0.0, 100.0) else {
        let frame = Frame { left: 0.0, right: 0.0, height: 60.0 };
        return Plot { frame, says, inside: frame.reason("no finite draws") };
    };
    let zero = scale.at(0.0);
    let inside = html! {
        (frame.below(&scale, top, bottom, 6))
        @if zero > 0.0 && zero < 100.0 { (line("axis", (zero, top), (zero, bottom))) }
        @for (k, p) in shown.iter().enumerate() {
            @let y = names.middle(k);
            @let own = if p.pooled.is_some() { y - 4.0 } else { y };
            (names.draw(k))
            @if [p.summary.lower, p.summary.upper, p.summary.mean, p.half.0,
                p.half.1].iter().all(|x| x.is_finite()) {
                g {
                    title { (p.name) ": mean " (number(p.summary.mean)) ", 89% \
                        from " (number(p.summary.lower)) " to " (number(p.summary.upper)) }
                    (line("thin", (scale.at(p.summary.lower), own),
                        (scale.at(p.summary.upper), own)))
                    (line("thick", (scale.at(p.half.0), own), (scale.at(p.half.1), own)))
                    (dot("dot", (scale.at(p.summary.mean), own), 4.0))
                }
            } @else {
                (plot::beside_words("dim", (0.0, own + 4.0), 4.0, "not finite"))
            }
            @if let Some(s) = p.pooled.filter(|s| [s.lower, s.upper,
                s.mean].iter().all(|x| x.is_finite())) {
                g {
                    title { (p.name) ", pooled: \
                        mean " (number(s.mean)) ", 89% \
                        from " (number(s.lower)) " to " (number(s.upper)) }
                    (line("pooled", (scale.at(s.lower), y + 5.0), (scale.at(s.upper), y + 5.0)))
                    (dot("ring", (scale.at(s.mean), y + 5.0), 3.0))
                }
            }
        }
    };
    Plot { frame, says, inside }
}

/// All numbers.
pub fn table(facts: &Facts) -> Markup {
    let pooled = facts.parameters.iter().any(|p| p.pooled.is_some());
    let least = LEAST_ESS * facts.chains as f64;
    html! {
        div.table tabindex="0" role="region" aria-label="Summary of the parameters" {
            table {
                thead {
                    tr {
                        th scope="col" { "parameter" }
                        @for column in ["mean", "sd", "5.5%", "94.5%", "R-hat", "ESS \
                            bulk", "ESS \
                            tail", "MCSE"] { th.keep[column == "R-hat"] scope="col" { (column) } }
                        @if pooled {
                            th.apart scope="col" { "pooled mean" }
                            th scope="col" { "pooled sd" }
                            th scope="col" { "distance (sd)" }
                        }
                    }
                }
                tbody {
                    @for p in &facts.parameters {
                        @let s = &p.summary;
                        @let places = words::places(s.sd);
                        tr {
                            th scope="row" { span.name { (p.name) } }
                            @for x in [s.mean, s.sd, s.lower, s.upper] {
                                td { (decimals(x, places)) } }
                            td.bad[s.rhat > MOST_RHAT] { (decimals(s.rhat, 3)) }
                            @for x in [s.ess_bulk, s.ess_tail] {
                                td.bad[x < least] {
                                    (if x.is_finite() { count(x.max(0.0).round() as u64) }
                                        else { number(x) }) } }
                            td { (decimals(s.mcse_mean, places + 1)) }
                            @if pooled {
                                @let other = p.pooled.map_or([f64::NAN; 2], |o| [o.mean, o.sd]);
                                td.apart { (decimals(other[0], places)) }
                                td { (decimals(other[1], places)) }
                                td { (decimals(p.distance().unwrap_or(f64::NAN), 3)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What the pooled reference says about the whole.
pub fn distance(facts: &Facts) -> Markup {
    let largest = |of: fn(&Parameter) -> Option<f64>| {
        facts
            .parameters
            .iter()
            .filter_map(of)
            .filter(|x| x.is_finite())
            .map(f64::abs)
            .max_by(f64::total_cmp)
    };
    let mean = largest(Parameter::distance);
    let error = largest(|p| p.pooled.map(|o| p.summary.mcse_mean.hypot(o.mcse_mean) / o.sd));
    let spread = largest(|p| p.pooled.map(|o| p.summary.sd / o.sd - 1.0));
    html! {
        @if let Some(mean) = mean {
            p {
                "Held against the posterior from all rows in one place, means differ by at \
                 most " strong { (decimals(mean, 3)) " posterior standard deviations" }
                @if let Some(error) = error { " (Monte Carlo error up \
                    to " (decimals(error, 3)) ")" }
                @if let Some(spread) = spread { ", standard deviations by at \
                    most " strong { (decimals(100.0 * spread, 1)) "%" } }
                "."
                @if let Some(w2) = facts.w2() {
                    " The Gaussians that fit the two lie " (decimals(w2, 3))
                    " apart (Wasserstein, in pooled standard deviations, all parameters \
                     together)." }
            }
        } @else {
            p { "There is no pooled reference to hold these against: in a real federation there is \
                none." }
        }
    }
}

/// The most correlated parameters against each other.
pub fn pairs(facts: &Facts) -> Markup {
    let Some(chosen) = most_correlated(facts) else {
        return html! { p.soft { "There are fewer than two parameters with draws that vary." } };
    };
    let n = chosen.len();
    // Across in percents, downward in pixels.
    let (gap, between) = (2.0, 8.0);
    let wide = (100.0 - gap * (n as f64 - 1.0)) / n as f64;
    let names: Vec<Vec<String>> =
        chosen.iter().map(|c| wrapped(&c.parameter.name, wide / 100.0 * NARROW)).collect();
    let above = |k: usize| LINE * names[k].len() as f64;
    let tall = (0..n).map(|k| above(k) + 60.0).fold(104.0, f64::max);
    let corner = |i: usize, j: usize| (j as f64 * (wide + gap), i as f64 * (tall + between));
    let says = format!(
        "Draws of {} against each other",
        chosen.iter().map(|c| c.parameter.name.as_str()).collect::<Vec<_>>().join(", ")
    );
    let inside = html! {
        @for (i, row) in chosen.iter().enumerate() {
            @for (j, column) in chosen.iter().enumerate() {
                @let (x, y) = corner(i, j);
                @if i == j {
                    (histogram(&row.values, (x, y + above(i) + 6.0), (wide, tall - above(i) - 6.0)))
                    (paragraph("middle", (x + wide / 2.0, y + above(i) / 2.0), 0.0, &names[i]))
                } @else if i > j {
                    (scatter(&column.values, &row.values, (x, y), (wide, tall)))
                } @else {
                    @let found = decimals(correlation(&row.values, &column.values), 2);
                    (plot::words("middle", (x + wide / 2.0, y + tall / 2.0 + 4.0), &found))
                }
            }
        }
    };
    let frame = Frame { left: 0.0, right: 0.0, height: corner(n, 0).1 - between };
    html! {
        figure.square {
            (frame.draw(&says, &inside))
            figcaption { "The " (n) " most correlated parameters: draws below the diagonal, \
                histograms on it, correlations above it." }
        }
    }
}

struct Chosen<'a> {
    parameter: &'a Parameter,
    values: Vec<f64>,
}

/// The pair with the largest correlation, then whoever is most correlated with those that are in.
fn most_correlated<'a>(facts: &'a Facts) -> Option<Vec<Chosen<'a>>> {
    let rows = facts.chains * facts.length;
    let every = rows.div_ceil(POINTS).max(1);
    let mut candidates: Vec<Chosen> = facts
        .parameters
        .iter()
        .map(|parameter| Chosen {
            parameter,
            values: facts.draws(parameter).concat().into_iter().step_by(every).collect(),
        })
        .collect();
    candidates.retain(|c| {
        c.values.iter().all(|x| x.is_finite())
            && range(c.values.iter().copied()).is_some_and(|(low, high)| low < high)
    });
    let n = candidates.len();
    if n < 2 {
        return None;
    }
    let mut strengths = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..i {
            let strength = correlation(&candidates[i].values, &candidates[j].values).abs();
            (strengths[i * n + j], strengths[j * n + i]) = (strength, strength);
        }
    }
    let best = (0..n * n).max_by(|a, b| strengths[*a].total_cmp(&strengths[*b]))?;
    let mut chosen = vec![best / n, best % n];
    if chosen[0] == chosen[1] {
        chosen = vec![0, 1];
    }
    while chosen.len() < PAIRED.min(n) {
        let strongest = |k: usize| chosen.iter().map(|c| strengths[k * n + c]).fold(0.0, f64::max);
        let next = (0..n)
            .filter(|k| !chosen.contains(k))
            .max_by(|a, b| strongest(*a).total_cmp(&strongest(*b)))?;
        chosen.push(next);
    }
    chosen.sort_unstable();
    let mut slots: Vec<Option<Chosen>> = candidates.into_iter().map(Some).collect();
    Some(chosen.into_iter().filter_map(|k| slots[k].take()).collect())
}

/// Pearson's correlation; 0 where it is not defined.
fn correlation(left: &[f64], right: &[f64]) -> f64 {
    let (a, b) = (consilience_core::measure::mean(left), consilience_core::measure::mean(right));
    let product = |f: &dyn Fn(f64, f64) -> f64| {
        left.iter().zip(right).map(|(x, y)| f(x - a, y - b)).sum::<f64>()
    };
    let correlation =
        product(&|x, y| x * y) / (product(&|x, _| x * x).sqrt() * product(&|_, y| y * y).sqrt());
    if correlation.is_finite() { correlation } else { 0.0 }
}

fn scatter(xs: &[f64], ys: &[f64], corner: (f64, f64), size: (f64, f64)) -> Markup {
    let across = Scale::around(xs.iter().copied(), corner.0, corner.0 + size.0);
    let up = Scale::around(ys.iter().copied(), corner.1 + size.1, corner.1);
    html! {
        (bar("grid", corner, size))
        @if let (Some(across), Some(up)) = (across, up) {
            (plot::cloud("points", xs.iter().zip(ys).map(|(x, y)| (across.at(*x), up.at(*y)))))
        }
    }
}

fn histogram(values: &[f64], corner: (f64, f64), size: (f64, f64)) -> Markup {
    const BINS: usize = 16;
    let scale = Scale::around(values.iter().copied(), 0.0, BINS as f64);
    let mut counts = [0u32; BINS];
    if let Some(scale) = scale {
        values.iter().for_each(|x| counts[(scale.at(*x) as usize).min(BINS - 1)] += 1);
    }
    let most = f64::from(counts.iter().copied().max().unwrap_or(1).max(1));
    let width = size.0 / BINS as f64;
    html! {
        @for (k, n) in counts.iter().enumerate() {
            @let height = size.1 * f64::from(*n) / most;
            (bar("bar", (corner.0 + k as f64 * width, corner.1 + size.1 - height),
                (0.9 * width, height)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::correlation;

    #[test]
    fn correlation_by_hand() {
        assert!((correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]) - 1.0).abs() < 1e-15);
        assert!((correlation(&[1.0, 2.0, 3.0], &[1.0, -2.0, 1.0])).abs() < 1e-15);
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }
}
