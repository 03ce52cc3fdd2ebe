//! Plot what samplers were foretold to give for what they cost: effective draws against bytes, and
//! against exchanges.

use consilience_engine::foretold::least_draws;
use consilience_engine::plan::{Candidate, Choice};
use consilience_engine::record::Record;
use consilience_engine::warnings::summaries;
use maud::{Markup, html};

use crate::plot::{self, COLOURS, Frame, Key, axis_label, dot, legend, path};
use crate::scale::Scale;
use crate::words::round_bytes;

/// Points of a curve.
const POINTS: usize = 40;
/// The fewest effective draws that are shown.
const FEWEST: f64 = 10.0;
/// Pixels from the top to the highest place, and to the axis.
const TOP: f64 = 8.0;
const BOTTOM: f64 = 220.0;

/// Both plots; nothing where fewer than two candidates are known.
pub fn plots(record: &Record, choice: &Choice) -> Markup {
    let known: Vec<&Candidate> =
        choice.candidates.iter().filter(|one| one.iterations > 0.0 && one.bytes > 0.0).collect();
    let goal = record.effective_draws.map_or(0.0, |draws| draws as f64);
    if known.len() < 2 || goal <= FEWEST {
        return html! {};
    }
    let (before, sampling) = record.exchanges;
    let chains = record.drawn().0.max(1) as f64;
    let sent: u64 = record.sent.iter().map(|sent| sent.bits).sum();
    let surveyed = record.before_sampling.0 + record.before_sampling.1;
    let by_bytes = Against {
        what: "bytes, both ways, of all sites, surveys included",
        before: surveyed as f64 / 8.0,
        cost: |one| one.bytes,
        actual: (surveyed + sent) as f64 / 8.0,
        tick: |x, _| round_bytes(x),
    };
    let by_exchanges = Against {
        what: "exchanges of a chain, all chains side by side, surveys included",
        before: before as f64,
        cost: |one| one.exchanges,
        actual: before as f64 + sampling as f64 / chains,
        tick: |_, text| text,
    };
    let chosen = |one: &Candidate| one.sampler == choice.chosen;
    let name = |one: &Candidate| {
        let mark = if chosen(one) {
            " (chosen)"
        } else if one.refused.is_some() {
            " (not used)"
        } else {
            ""
        };
        format!("{}{mark}", one.sampler)
    };
    let names: Vec<String> = known.iter().map(|one| name(one)).collect();
    let drawn = least_draws(&summaries(&record.shown().1));
    html! {
        figure.wide {
            @for against in [by_bytes, by_exchanges] {
                (axis_label("up", "effective draws"))
                (against.plot(&known, &choice.chosen, goal, drawn))
                (axis_label("across", against.what))
            }
            (legend(names.iter().enumerate().map(|(k, name)| Key {
                colour: k, mark: if known[k].refused.is_some() { "dashes" } else { "line" }, name
            })))
            figcaption {
                "Lines: what each sampler was foretold to give as it goes on, up to the draws that \
                 were wanted; the thick one was chosen, dashed ones could not be relied on."
                @if drawn.is_some() { " Dot: what this run gave, and what it cost." }
            }
        }
    }
}

/// What draws are plotted against.
struct Against {
    what: &'static str,
    /// What surveys and pilots cost.
    before: f64,
    /// What sampling costs.
    cost: fn(&Candidate) -> f64,
    /// What this run cost.
    actual: f64,
    tick: fn(f64, String) -> String,
}

impl Against {
    fn plot(&self, known: &[&Candidate], chosen: &str, goal: f64, drawn: Option<f64>) -> Markup {
        let spent = |one: &Candidate, draws: f64| self.before + (self.cost)(one) * draws / goal;
        let ends = known.iter().flat_map(|one| [spent(one, FEWEST), spent(one, goal)]);
        let says = format!("Effective draws against {}", self.what);
        let (Some(across), Some(up)) = (
            Scale::logarithmic(ends.chain([self.actual]), 0.0, 100.0),
            Scale::logarithmic([FEWEST, goal].into_iter().chain(drawn), BOTTOM, TOP),
        ) else {
            return plot::nothing(60.0, &says, "nothing is known of what draws cost");
        };
        let frame = Frame { left: plot::gutter(&up, 5), right: 14.0, height: BOTTOM + 20.0 };
        let curve = |one: &Candidate| {
            (0..=POINTS)
                .map(|k| FEWEST * (goal / FEWEST).powf(k as f64 / POINTS as f64))
                .map(|draws| Some((across.at(spent(one, draws)), up.at(draws))))
                .collect::<Vec<_>>()
        };
        let style = |k: usize, one: &Candidate| {
            let refused = if one.refused.is_some() { " dashed" } else { "" };
            let thick = if one.sampler == chosen { " chosen" } else { "" };
            format!("curve s{}{refused}{thick}", k % COLOURS)
        };
        let inside = html! {
            (frame.written_below(&across, TOP, BOTTOM, 5, &self.tick))
            (plot::beside(&up, 5))
            @for (k, one) in known.iter().enumerate() { (path(&style(k, one), curve(one))) }
            @if let Some(drawn) = drawn {
                (dot("dot", (across.at(self.actual), up.at(drawn)), 5.0)) }
            (plot::line("axis", (0.0, BOTTOM), (100.0, BOTTOM)))
        };
        frame.draw(&says, &inside)
    }
}
