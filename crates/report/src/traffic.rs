//! Show what was sent, by whom, and how the error fell with it.

use consilience_engine::privacy::{PrivacyReport, Threat};
use consilience_engine::record::SiteRecord;
use maud::{Markup, html};

use crate::facts::Facts;
use crate::plot::{self, Frame, Key, Names, axis_label, bar, beside_words, legend, line, path};
use crate::scale::Scale;
use crate::words::{breadth, bytes, count, decimals, many, number, round_bytes};

/// Points of the curve.
const POINTS: usize = 160;
/// Sites with bars of their own.
const MOST_SITES: usize = 40;

/// The error of the running mean against the bits that it took.
pub fn error(facts: &Facts) -> Markup {
    let Some(curve) = Curve::of(facts) else {
        return html! { p.soft { "There are too few draws, or none that vary, for a curve." } };
    };
    let (top, bottom) = (8.0, 230.0);
    let plain = (facts.record.uncompressed.0 as f64 / facts.sent("up") as f64 > 1.05)
        .then(|| facts.record.uncompressed.0 as f64 / facts.sent("up") as f64);
    let stretch = plain.unwrap_or(1.0);
    let xs = curve.points.iter().flat_map(|(bits, _)| [bits / 8.0, bits / 8.0 * stretch]);
    let ys = curve.points.iter().map(|p| p.1).chain(curve.floor);
    let says = "Error of the posterior mean against bytes sent by the sites";
    let (Some(across), Some(up)) =
        (Scale::logarithmic(xs, 0.0, 100.0), Scale::logarithmic(ys, bottom, top))
    else {
        return html! { p.soft { "Nothing was sent, so that there is no curve." } };
    };
    let frame = Frame { left: plot::gutter(&up, 5), right: 12.0, height: bottom + 20.0 };
    let through = |class: &str, stretch: f64| {
        path(
            class,
            curve.points.iter().map(|(bits, error)| {
                (*bits > 0.0 && *error > 0.0)
                    .then(|| (across.at(bits / 8.0 * stretch), up.at(*error)))
            }),
        )
    };
    let inside = html! {
        (frame.written_below(&across, top, bottom, 5, &|x, _| round_bytes(x)))
        (plot::beside(&up, 5))
        @if let Some(floor) = curve.floor {
            (line("limit", (0.0, up.at(floor)), (100.0, up.at(floor)))) }
        @if plain.is_some() { (through("pooled dashed", stretch)) }
        (through("thin", 1.0))
    };
    html! {
        figure.wide {
            (axis_label("up", "error of the mean"))
            (frame.draw(says, &inside))
            (axis_label("across", "sent by the sites"))
            figcaption {
                "Solid: the root mean square distance, over all parameters, of the mean of the \
                 draws so far from "
                @if curve.pooled { "the pooled mean, in pooled standard deviations" } @else { "the \
                    final mean, in posterior standard deviations (it falls to nothing at the end \
                    by construction)" }
                @if plain.is_some() { ". Dashed: the same draws, had no message been compressed" }
                @if curve.floor.is_some() { ". Dashed and level: the Monte Carlo error at the end; \
                    a curve that stays well above it shows bias" }
                "."
                @if !curve.counted { " Bytes are taken to grow evenly with the iterations." }
            }
        }
    }
}

struct Curve {
    /// Bits up so far, and the error.
    points: Vec<(f64, f64)>,
    /// The Monte Carlo error of all draws.
    floor: Option<f64>,
    pooled: bool,
    /// Whether the bits were counted draw by draw.
    counted: bool,
}

impl Curve {
    fn of(facts: &Facts) -> Option<Self> {
        let shown = facts.record.shown().1;
        let (d, length, chains) = (shown.dim(), facts.length, facts.chains);
        if length < 4 || d == 0 {
            return None;
        }
        // Where to, in which unit, and the Monte Carlo error of the difference.
        let pooled = facts.parameters.iter().all(|p| p.pooled.is_some());
        let goals: Vec<(usize, f64, f64, f64)> = facts
            .parameters
            .iter()
            .filter(|p| p.index < d)
            .filter_map(|p| {
                let own = p.summary;
                let (mean, sd, error) =
                    p.pooled.filter(|_| pooled).map_or((own.mean, own.sd, own.mcse_mean), |o| {
                        (o.mean, o.sd, own.mcse_mean.hypot(o.mcse_mean))
                    });
                (mean.is_finite() && own.mean.is_finite() && sd.is_finite() && sd > 0.0)
                    .then_some((p.index, mean, sd, error / sd))
            })
            .collect();
        if goals.is_empty() {
            return None;
        }
        let stops: Vec<usize> = {
            let ratio = (length as f64).powf(1.0 / POINTS as f64);
            let mut stops: Vec<usize> = (0..=POINTS)
                .map(|k| ratio.powi(k as i32).round() as usize)
                .map(|n| n.clamp(1, length))
                .collect();
            stops.dedup();
            stops
        };
        let rows: Vec<&[f64]> = shown.rows().collect();
        let mut sums = vec![0.0; d];
        let mut errors = Vec::with_capacity(stops.len());
        let mut next = stops.iter().peekable();
        for draw in 0..length {
            for chain in 0..chains {
                sums.iter_mut().zip(rows[chain * length + draw]).for_each(|(sum, x)| *sum += x);
            }
            if next.next_if_eq(&&(draw + 1)).is_some() {
                let n = ((draw + 1) * chains) as f64;
                let square = |&(k, mean, sd, _): &(usize, f64, f64, f64)| {
                    ((sums[k] / n - mean) / sd).powi(2)
                };
                errors.push((goals.iter().map(square).sum::<f64>() / goals.len() as f64).sqrt());
            }
        }
        let (bits, counted) = bits_after(facts, length);
        let mut points: Vec<(f64, f64)> =
            stops.iter().zip(errors).map(|(n, error)| (bits[n - 1], error)).collect();
        if !pooled {
            points.pop(); // the mean is at no distance from itself, but for rounding
        }
        let floor = (goals.iter().map(|g| g.3 * g.3).sum::<f64>() / goals.len() as f64).sqrt();
        Some(Curve {
            points,
            floor: (pooled && floor.is_finite() && floor > 0.0).then_some(floor),
            pooled,
            counted,
        })
    }
}

/// All chains' bits up after each draw, and whether they were counted: `bits_up` is what a chain
/// had sent until then.
fn bits_after(facts: &Facts, length: usize) -> (Vec<f64>, bool) {
    let record = facts.record;
    let sound = |values: &Vec<f64>| {
        values.len() >= length && values.iter().all(|x| x.is_finite() && *x >= 0.0)
    };
    let counted = record.statistics.iter().find(|s| {
        s.name == "bits_up" && s.values.len() == facts.chains && s.values.iter().all(sound)
    });
    if let Some(statistic) = counted {
        let mut total = vec![0.0; length];
        for values in &statistic.values {
            total.iter_mut().zip(values).for_each(|(sum, so_far)| *sum += so_far);
        }
        return (total, true);
    }
    let (all, total) = (record.iterations.max(1) as f64, facts.sent("up") as f64);
    let after =
        |draw: usize| record.burn_in as f64 + (draw as f64 + 1.0) * record.thin.max(1) as f64;
    let last = after(length - 1).max(all);
    ((0..length).map(|draw| total * after(draw) / last).collect(), false)
}

/// The sites' sizes, and what each sent.
pub fn sites(facts: &Facts) -> Markup {
    let mut sites: Vec<SiteRecord> = facts.record.sites.clone();
    if sites.is_empty() {
        return html! { p.soft { "The record names no sites." } };
    }
    if sites.len() > MOST_SITES {
        let rest = sites.split_off(MOST_SITES - 1);
        let sum = |of: fn(&SiteRecord) -> u64| rest.iter().map(of).sum::<u64>();
        sites.push(SiteRecord {
            name: format!("{} others", rest.len()),
            rows: sum(|s| s.rows),
            bits: (sum(|s| s.bits.0), sum(|s| s.bits.1)),
        });
    }
    let rows: Vec<Bars> = sites
        .iter()
        .map(|s| Bars { name: &s.name, parts: vec![("bar", s.rows as f64, count(s.rows))] })
        .collect();
    let sent: Vec<Bars> = sites
        .iter()
        .map(|s| Bars {
            name: &s.name,
            parts: vec![
                ("bar", s.bits.0 as f64, bytes(s.bits.0 as f64)),
                ("bar2", s.bits.1 as f64, bytes(s.bits.1 as f64)),
            ],
        })
        .collect();
    html! {
        div.two {
            figure { (bars("Rows at each site", &rows)) figcaption { "Rows at each site. They \
                stayed there." } }
            figure { (bars("Bytes sent and received by each site", &sent)) figcaption { "Sent by \
                each site (upper bar) and received by it (lower bar)." } }
        }
    }
}

struct Bars<'a> {
    name: &'a str,
    parts: Vec<(&'static str, f64, String)>,
}

fn bars(says: &str, all: &[Bars]) -> Markup {
    const THICK: f64 = 14.0;
    let parts = || all.iter().flat_map(|b| &b.parts);
    let each = all.first().map_or(1, |b| b.parts.len()) as f64 * THICK;
    let names = Names::new(all.iter().map(|b| b.name), 0.0, each + 8.0);
    // The numbers stand behind their bars, of which the longest has the whole width.
    let numbers = parts().map(|part| breadth(&part.2)).fold(0.0, f64::max);
    let frame = Frame { left: names.left, right: numbers + 8.0, height: names.bottom() };
    let scale = Scale::between(0.0, parts().map(|part| part.1).fold(0.0, f64::max), 0.0, 100.0);
    let inside = html! {
        @for (k, site) in all.iter().enumerate() {
            (names.draw(k))
            @for (j, (class, length, text)) in site.parts.iter().enumerate() {
                @let top = names.middle(k) - each / 2.0 + THICK * j as f64;
                (bar(class, (0.0, top), (scale.at(*length).max(0.3), THICK - 1.0)))
                (beside_words("dim", (scale.at(*length).max(0.3), top + THICK - 3.0), 5.0, text))
            }
        }
        (line("axis", (0.0, 0.0), (0.0, names.bottom())))
    };
    frame.draw(says, &inside)
}

/// What was sent by kind and direction, with the uncompressed cost beside it.
pub fn sent(facts: &Facts) -> Markup {
    let record = facts.record;
    let mut kinds: Vec<&str> = Vec::new();
    for s in record.sent.iter().filter(|s| s.bits > 0) {
        if !kinds.contains(&s.kind.as_str()) {
            kinds.push(&s.kind);
        }
    }
    let (row, thick) = (22.0, 16.0);
    let (up, down) = (facts.sent("up"), facts.sent("down"));
    let most =
        [up, down, record.uncompressed.0, record.uncompressed.1].into_iter().max().unwrap_or(0);
    let scale = Scale::between(0.0, most as f64, 0.0, 100.0);
    let bar_rows = [
        ("up", "up, as sent", up),
        ("", "up, uncompressed", record.uncompressed.0),
        ("down", "down, as sent", down),
        ("", "down, uncompressed", record.uncompressed.1),
    ];
    let colour = |kind: &str| kinds.iter().position(|k| *k == kind).unwrap_or(0);
    let names = Names::new(bar_rows.iter().map(|row| row.1), 0.0, row);
    let numbers = bar_rows.iter().map(|row| breadth(&bytes(row.2 as f64))).fold(0.0, f64::max);
    let frame = Frame { left: names.left, right: numbers + 8.0, height: names.bottom() };
    let stacked = |direction: &str, y: f64| {
        let parts = record.sent.iter().filter(|s| s.direction == direction && s.bits > 0);
        let placed = parts.scan(0, |before, s| {
            let from = scale.at(*before as f64);
            *before += s.bits;
            Some((s, from, scale.at(*before as f64)))
        });
        html! {
            @for (s, from, to) in placed {
                g { title { (s.kind) ", " (direction) ": " (bytes(s.bits as f64)) }
                    (bar(&format!("f{}", colour(&s.kind) % plot::COLOURS), (from, y),
                        (to - from, thick))) }
            }
        }
    };
    let inside = html! {
        @for (k, (direction, _, total)) in bar_rows.iter().enumerate() {
            @let y = names.middle(k) - thick / 2.0;
            (names.draw(k))
            @if direction.is_empty() {
                (bar("hollow", (0.0, y), (scale.at(*total as f64), thick))) }
                    @else { (stacked(direction, y)) }
            (beside_words("dim", (scale.at(*total as f64), y + 12.0), 5.0, &bytes(*total as f64)))
        }
        (line("axis", (0.0, 0.0), (0.0, names.bottom())))
    };
    html! {
        @if record.sent.is_empty() {
            p.soft { "The record counts no messages." }
        } @else {
            figure.wide {
                (frame.draw("What was sent, by direction and kind, and what it would have been \
                    uncompressed", &inside))
                (legend(kinds.iter().enumerate().map(|(colour, name)| Key {
                    colour, mark: "box", name })))
                figcaption { "Up: from the sites. Down: to the sites. Uncompressed: the same \
                    messages with 32 bits a number." }
            }
            (kinds_table(facts))
        }
    }
}

fn kinds_table(facts: &Facts) -> Markup {
    html! {
        details {
            summary { "The numbers" }
            div.table tabindex="0" role="region" aria-label="What was sent" {
                table {
                    thead { tr { @for column in ["direction", "kind", "sent", "vectors", "bits a \
                        vector"] { th scope="col" { (column) } } } }
                    tbody {
                        @for s in facts.record.sent.iter().filter(|s| s.bits > 0) {
                            tr {
                                th scope="row" { (s.direction) }
                                td { (s.kind) }
                                td { (bytes(s.bits as f64)) }
                                td { @if s.vectors > 0 { (count(s.vectors)) } @else { "–" } }
                                td { @if s.vectors > 0 {
                                    (decimals(s.bits as f64 / s.vectors as f64, 1)) } @else { "–" }
                                        }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The same in plain words.
pub fn in_words(facts: &Facts) -> Markup {
    let record = facts.record;
    let (up, down) = (facts.sent("up"), facts.sent("down"));
    let (before_up, before_down) = record.before_sampling;
    let rows: u64 = record.sites.iter().map(|s| s.rows).sum();
    let saved = record.uncompressed.0 as f64 / up as f64;
    html! {
        p {
            strong { "What stayed: " } "the rows. Not one of \
                the " (many(rows, "row")) " left its site. "
            strong { "What left: " } "while sampling, the sites sent " (bytes(up as f64)) " \
                (gradients, parameters or log-likelihoods, compressed where the sampler \
                compresses, with their headers) and received " (bytes(down as f64)) "."
            @if saved.is_finite() && saved > 1.05 { " Uncompressed, the sites would have \
                sent " (decimals(saved, 1)) " times as much." }
            @if before_up + before_down > 0 { " Before sampling, sums and surveys (means, spreads, \
                curvature) \
                took " (bytes(before_up as f64)) " up and " (bytes(before_down as f64)) " down." }
        }
        @match PrivacyReport::of(record) {
            Some(told) => (private(&told)),
            None => p {
                strong { "What is not claimed: " } "differential privacy. Gradients, Hessians, \
                    log-likelihoods, parameters and sums are computed from the rows and can reveal \
                    something about them to whoever receives them."
            },
        }
    }
}

/// What was told of one row, at most.
fn private(told: &PrivacyReport) -> Markup {
    let plan = &told.plan;
    let curve = plan.sites.first().map(|site| (&site.site, &site.exposures));
    html! {
        p {
            strong { "What was told of one row, at most: " } "the budget was \
                epsilon " (plan.epsilon) " at delta " (number(plan.delta)) ". Whether "
            (told.neighbours) " changes the probability of anything that was seen by at most a \
                factor of exp(epsilon), but for delta."
            @if told.simulated { " " strong { "This run was in one process, with noise from the \
                config's seed, and kept nothing private:" } " these are the numbers of the same \
                run over a network." }
        }
        table {
            thead { tr { th { "Site" } @for threat in Threat::ALL { th { "Against "
                (threat.name()) } } th { @if plan.once.is_some() { "Answers allowed" } @else {
                    "Iterations allowed" } } } }
            tbody {
                @for site in &plan.sites {
                    tr { th scope="row" { (site.site) }
                        @for exposure in &site.exposures { td { (decimals(exposure.epsilon, 3)) } }
                        td { (count(site.exposures[0].allowed)) } }
                }
            }
        }
        @if let Some((site, exposures)) = curve {
            p.soft { "epsilon of site " (site) " after so many "
                @if plan.once.is_some() { "answers" } @else { "iterations" } ":" }
            table {
                thead { tr { th { "Against" } @for (n, _) in &exposures[0].curve {
                    th { (count(*n)) } } } }
                tbody { @for exposure in exposures {
                    tr { th scope="row" { (exposure.threat.name()) }
                        @for (_, epsilon) in &exposure.curve { td { (decimals(*epsilon, 3)) } } }
                } }
            }
        }
        p { strong { "Left out: " } @for (k, (what, why)) in told.left_out.iter().enumerate() {
            @if k > 0 { "; " } (what) ", since " (why) } "." }
        p { strong { "Assumed: " } (told.assumed.join("; ")) "." }
    }
}
