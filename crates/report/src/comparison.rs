//! Make one self-contained HTML page of several samplers on one target: their errors, and what they
//! cost.

use consilience_engine::growth::Stop;
use maud::{Markup, html};

use crate::plot::{self, COLOURS, Frame, Key, axis_label, legend, line, path};
use crate::scale::Scale;
use crate::words::{bytes, count, decimals, duration, many, number, round_bytes};

/// The sections of the page: what they are linked by, and their headings.
pub const COMPARISON_SECTIONS: [(&str, &str); 5] = [
    ("bits", "Error against bytes"),
    ("gradients", "Error against gradients"),
    ("seconds", "Error against seconds"),
    ("table", "The numbers"),
    ("method", "How this was computed"),
];
/// Every how many stops there is an error bar.
const BARS: usize = 5;

/// Several samplers on one target.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What errors are against, in words.
    pub reference: String,
    /// The Monte Carlo error of the reference's own means, in posterior standard deviations; none
    /// where it is exact.
    pub reference_error: Option<f64>,
    /// How many parameters and sites the target has.
    pub size: (usize, usize),
    /// The samplers.
    pub runs: Vec<Contender>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Contender {
    /// The config's name.
    pub config: String,
    /// The sampler's name.
    pub sampler: String,
    /// The step, where the sampler has one.
    pub step: Option<f64>,
    /// How many chains ran, and the iterations of each.
    pub chains: (usize, u64),
    /// The largest error of a mean in posterior standard deviations, the largest relative error of
    /// a standard deviation, and W2 between Gaussians of the same moments.
    pub errors: [f64; 3],
    /// The smallest effective sample size, bulk or tail.
    pub ess: f64,
    /// Bits up and down, of surveys and of all chains.
    pub bits: (u64, u64),
    /// The bits of surveys and pilots among them, both ways.
    pub surveys: u64,
    /// Exchanges of surveys and pilots, and of all chains.
    pub exchanges: (u64, u64),
    /// Gradients of single rows, of all chains.
    pub gradients: u64,
    /// How long all chains took.
    pub seconds: f64,
    /// How the error falls as the chains grow.
    pub growth: Vec<Stop>,
}

impl Contender {
    fn title(&self) -> String {
        format!("{} ({})", self.sampler, self.config)
    }
}

/// The page.
pub fn comparison(comparison: &Comparison) -> String {
    let runs = &comparison.runs;
    let title = format!("{} on one target", many(runs.len() as u64, "sampler"));
    let opening = html! {
        p {
            (many(runs.len() as u64, "sampler")) " drew from one posterior of "
            (many(comparison.size.0 as u64, "parameter")) " at "
            (many(comparison.size.1 as u64, "site"))
            ". Their errors are against " (comparison.reference) "."
        }
        p {
            "Each line is the error of one chain's mean as the chain grows: the root mean square \
             over all parameters, in posterior standard deviations, with bars of a standard error \
             over the chains. A line that flattens shows the sampler's bias."
            @if comparison.reference_error.is_some() { " Dashed and level: the Monte Carlo error \
                of the reference itself; below it nothing can be told." }
        }
    };
    let seconds =
        |run: &Contender, stop: &Stop| run.seconds * stop.iteration / run.chains.1.max(1) as f64;
    let section = |id: &str| match id {
        "bits" => curves(
            comparison,
            "bytes sent and received by all sites for surveys and one chain",
            &|run, stop| (run.surveys as f64 + stop.bits) / 8.0,
            &round_bytes,
        ),
        "gradients" => curves(
            comparison,
            "gradients of single rows for one chain",
            &|_, stop| stop.gradients,
            &plain,
        ),
        "seconds" => html! {
            (curves(comparison, "seconds, with all chains at work", &seconds, &plain))
            p.soft { "Seconds are those of this machine at this moment, and the only numbers here \
                that change from run to run. They are taken to grow evenly with the iterations." }
        },
        "table" => table(runs),
        _ => method(comparison),
    };
    crate::sections(&title, &opening, &COMPARISON_SECTIONS, section)
}

/// A round number on an axis, without zeros at its end; from ten thousand on as a power of ten.
fn plain(x: f64) -> String {
    let raised = |n: i32| {
        n.to_string()
            .chars()
            .map(|c| {
                ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹']
                    [c.to_digit(10).unwrap_or(0) as usize]
            })
            .collect::<String>()
    };
    if x >= 9_999.0 {
        let power = (x * 1.000_001).log10().floor() as i32;
        let digit = (x / 10f64.powi(power)).round();
        return if digit == 1.0 {
            format!("10{}", raised(power))
        } else {
            format!("{digit}·10{}", raised(power))
        };
    }
    let text = number(x).replace("1.00·10", "10").replace(".00·10", "·10");
    if text.contains('.') && !text.contains('·') {
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        text
    }
}

fn curves(
    comparison: &Comparison,
    across_says: &str,
    cost: &dyn Fn(&Contender, &Stop) -> f64,
    tick: &dyn Fn(f64) -> String,
) -> Markup {
    let runs = &comparison.runs;
    let says = format!(
        "Error of the mean against {across_says}, for {}",
        many(runs.len() as u64, "sampler")
    );
    let (top, bottom) = (8.0, 260.0);
    let xs = runs.iter().flat_map(|run| run.growth.iter().map(|stop| cost(run, stop)));
    let ys = runs
        .iter()
        .flat_map(|run| run.growth.iter().map(|stop| stop.error))
        .chain(comparison.reference_error);
    let (Some(across), Some(up)) =
        (Scale::logarithmic(xs, 0.0, 100.0), Scale::logarithmic(ys, bottom, top))
    else {
        return plot::nothing(60.0, &says, "there are no draws, or none that cost anything");
    };
    let frame = Frame { left: plot::gutter(&up, 5), right: 14.0, height: bottom + 20.0 };
    let within = |y: f64| y.clamp(top, bottom);
    let sound = |run: &Contender, stop: &Stop| {
        cost(run, stop) > 0.0 && stop.error > 0.0 && stop.error.is_finite()
    };
    let style =
        |k: usize| format!("curve s{}{}", k % COLOURS, if k >= COLOURS { " dashed" } else { "" });
    let inside = html! {
        (frame.written_below(&across, top, bottom, 5, &|x, _| tick(x)))
        (plot::beside(&up, 5))
        @if let Some(floor) = comparison.reference_error {
            (line("limit", (0.0, up.at(floor)), (100.0, up.at(floor)))) }
        @for (k, run) in runs.iter().enumerate() {
            (path(&style(k),
                run.growth.iter().map(|stop| sound(run,
                    stop).then(|| (across.at(cost(run, stop)), up.at(stop.error))))))
            @for (_, stop) in run.growth.iter().enumerate().filter(|(j, stop)| (j + k) % BARS == 0
                && sound(run, stop) && stop.bar.1.is_finite()) {
                @let x = across.at(cost(run, stop));
                @let low = if stop.bar.0 > 0.0 { within(up.at(stop.bar.0)) } else { bottom };
                (line(&style(k), (x, low), (x, within(up.at(stop.bar.1)))))
            }
        }
        (line("axis", (0.0, bottom), (100.0, bottom)))
    };
    let titles: Vec<String> = runs.iter().map(Contender::title).collect();
    let mark = |k: usize| if k >= COLOURS { "dashes" } else { "line" };
    html! {
        figure.wide {
            (axis_label("up", "error of the mean, in posterior standard deviations"))
            (frame.draw(&says, &inside))
            (axis_label("across", across_says))
            (legend(titles.iter().enumerate().map(|(k, name)| Key {
                colour: k, mark: mark(k), name })))
        }
    }
}

fn table(runs: &[Contender]) -> Markup {
    let columns = [
        "sampler",
        "config",
        "step",
        "mean error (sd)",
        "sd error",
        "W2",
        "ESS",
        "up",
        "down",
        "exchanges",
        "gradients",
        "time",
        "ESS per MB",
        "ESS per s",
    ];
    html! {
        div.table tabindex="0" role="region" aria-label="The samplers" {
            table {
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody {
                    @for run in runs {
                        @let [mean, spread, w2] = run.errors;
                        tr {
                            th scope="row" { span.name { (run.sampler) } }
                            td { (run.config) }
                            td { (run.step.map_or_else(|| "–".into(), number)) }
                            td { (decimals(mean, 3)) }
                            td { (decimals(100.0 * spread, 1)) "%" }
                            td { (decimals(w2, 4)) }
                            td { (if run.ess.is_finite() { count(run.ess.round() as u64) }
                                else { number(run.ess) }) }
                            td { (bytes(run.bits.0 as f64)) }
                            td { (bytes(run.bits.1 as f64)) }
                            td { (count(run.exchanges.0)) " + " (count(run.exchanges.1)) }
                            td { (count(run.gradients)) }
                            td { (duration(run.seconds)) }
                            td { (rate(run.ess / ((run.bits.0 + run.bits.1) as f64 / 8e6))) }
                            td { (rate(run.ess / run.seconds)) }
                        }
                    }
                }
            }
        }
    }
}

/// Three digits are enough of a rate.
fn rate(x: f64) -> String {
    if (100.0..1e6).contains(&x) {
        count(x.round() as u64)
    } else if (1.0..100.0).contains(&x) {
        decimals(x, 1)
    } else {
        number(x)
    }
}

fn method(comparison: &Comparison) -> Markup {
    let exact = comparison.reference_error.is_none();
    html! {
        p {
            "All configs state the same target. Errors are \
             against " strong { (comparison.reference) }
            @if exact { ", which is known in closed form." } @else { ": chains on the rows of all \
                sites in one place, a check that only data that may be pooled allows." }
        }
        p {
            "The table has all chains together: the largest error of a mean in posterior standard \
             deviations, the largest relative error of a standard deviation, and the 2-Wasserstein \
             distance between Gaussians with these means and covariances. "
            "ESS is the smallest effective sample size of any parameter, bulk or tail; a megabyte \
             is what all sites sent and received, surveys, pilots and headers included. Exchanges \
             are those of surveys and pilots, and those of all chains. The sums by which sites \
             agree on columns are the same for all, and are not counted."
        }
        p { "Bytes and gradients are counted draw by draw, burn-in included." }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_for_people() {
        assert_eq!(
            [0.05, 0.5, 2.0, 5000.0, 1e4, 2e5, 1e6, 1e-4].map(plain),
            ["0.05", "0.5", "2", "5\u{202f}000", "10⁴", "2·10⁵", "10⁶", "10⁻⁴"]
        );
        assert_eq!([0.5, 12.34, 1234.5].map(rate), ["0.500", "12.3", "1\u{202f}235"]);
    }
}
