//! Draw the parts that plots share: the frame, axes, legends, bars.
//!
//! Across, places are percents of the room between a plot's gutters; downward, they are CSS pixels.
//! So a plot fills any width that it is given, and its letters are as large on a phone as on a
//! workspace.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::scale::Scale;
use crate::words::{breadth, wrapped};

/// The pixels that a plot has across on a narrow phone: what must not overlap is laid out for them.
pub const NARROW: f64 = 326.0;
/// The height of a line of text.
pub const LINE: f64 = 14.0;
/// The most pixels that names at the left take; longer ones have several lines.
const GUTTER: f64 = 136.0;
/// The gap between a name and what it names.
const GAP: f64 = 8.0;
/// The pixels across of a plot that is a file of its own.
const ALONE: f64 = 760.0;
/// The colours and the look of plots, on a page and alone.
pub const STYLE: &str = include_str!("plot.css");
/// How many colours there are.
pub const COLOURS: usize = 8;

/// The frame of a plot.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The gutter at the left, for names or numbers.
    pub left: f64,
    /// The gutter at the right.
    pub right: f64,
    /// The height of all.
    pub height: f64,
}

/// A round number on an axis.
#[derive(Debug)]
pub struct Tick {
    /// The number.
    pub at: f64,
    /// How it is written.
    pub text: String,
    /// ` roomy` if a narrow phone has no room for it.
    pub class: &'static str,
}

impl Frame {
    /// The plot, with a name for those who cannot see it.
    pub fn draw(&self, says: &str, inside: &Markup) -> Markup {
        let room = format!(
            "--left:{}px;--right:{}px;height:{}px",
            place(self.left),
            place(self.right),
            place(self.height)
        );
        html! {
            svg.plot xmlns="http://www.w3.org/2000/svg" style=(room) role="img" aria-label=(says) {
                title { (says) }
                (inside)
            }
        }
    }

    /// The plot as an SVG file of its own, with the look of the page.
    pub fn alone(&self, says: &str, inside: &Markup, caption: &str) -> String {
        let height = self.height + 2.0 * LINE;
        let picture = html! {
            svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label=(says)
                font-family="system-ui, sans-serif"
                viewBox={ "0 0 " (place(ALONE)) " " (place(height)) }
                width=(place(ALONE)) height=(place(height)) {
                title { (says) }
                style { (PreEscaped(STYLE)) }
                rect.page width="100%" height="100%" {}
                svg x=(place(self.left)) width=(place(ALONE - self.left - self.right))
                    height=(place(self.height)) overflow="visible" { (inside) }
                (words("dim middle", (50.0, height - LINE / 2.0), caption))
            }
        };
        picture.into_string()
    }

    /// Why there is nothing to plot.
    pub fn reason(&self, why: &str) -> Markup {
        paragraph("dim middle", (50.0, self.height / 2.0), 0.0, &wrapped(why, NARROW))
    }

    /// The pixels between the gutters on a narrow phone.
    pub fn room(&self) -> f64 {
        NARROW - self.left - self.right
    }

    /// Round numbers on an axis. Where they would touch each other on a narrow phone, only every
    /// second (or third, ...) is shown there.
    pub fn ticks(
        &self,
        scale: &Scale,
        wanted: usize,
        written: &dyn Fn(f64, String) -> String,
    ) -> Vec<Tick> {
        let all: Vec<(f64, String)> =
            scale.ticks(wanted).into_iter().map(|(x, text)| (x, written(x, text))).collect();
        let pixels = |x: f64| scale.at(x) / 100.0 * self.room();
        let apart = |a: &(f64, String), b: &(f64, String)| {
            pixels(b.0) - pixels(a.0) >= f64::midpoint(breadth(&a.1), breadth(&b.1)) + GAP
        };
        let fit = |every: usize, first: usize| {
            let kept: Vec<&(f64, String)> = all.iter().skip(first).step_by(every).collect();
            kept.windows(2).all(|two| apart(two[0], two[1]))
        };
        let zero = all.iter().position(|tick| tick.0 == 0.0).unwrap_or(0);
        let every =
            (1..all.len()).find(|every| fit(*every, zero % every)).unwrap_or(all.len().max(1));
        let tick = |(k, (at, text))| Tick {
            at,
            text,
            class: if k % every == zero % every { "" } else { " roomy" },
        };
        all.into_iter().enumerate().map(tick).collect()
    }

    /// A horizontal axis with grid lines from `top` to `bottom`, numbers below.
    pub fn below(&self, scale: &Scale, top: f64, bottom: f64, wanted: usize) -> Markup {
        self.written_below(scale, top, bottom, wanted, &|_, text| text)
    }

    /// A horizontal axis with numbers of one's own writing.
    pub fn written_below(
        &self,
        scale: &Scale,
        top: f64,
        bottom: f64,
        wanted: usize,
        written: &dyn Fn(f64, String) -> String,
    ) -> Markup {
        html! {
            @for Tick { at, text, class } in self.ticks(scale, wanted, written) {
                (line(&format!("grid{class}"), (scale.at(at), top), (scale.at(at), bottom)))
                (words(&format!("dim middle{class}"), (scale.at(at), bottom + 14.0), &text))
            }
        }
    }
}

/// Names at the left of a plot, each in as many lines as it needs, and where their rows are.
pub struct Names {
    lines: Vec<Vec<String>>,
    edges: Vec<f64>,
    /// The gutter that they need.
    pub left: f64,
}

impl Names {
    /// Lay out rows of at least this height from `top` on.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>, top: f64, row: f64) -> Self {
        let lines: Vec<Vec<String>> = names.map(|name| wrapped(name, GUTTER)).collect();
        let widest = lines.iter().flatten().map(|line| breadth(line)).fold(20.0, f64::max);
        let mut edges = vec![top];
        for lines in &lines {
            let above = edges.last().copied().unwrap_or(top);
            edges.push(above + row.max(LINE * lines.len() as f64 + 6.0));
        }
        Names { lines, edges, left: widest + GAP + 2.0 }
    }

    /// The upper and lower edge of a row.
    pub fn row(&self, k: usize) -> (f64, f64) {
        (self.edges[k], self.edges[k + 1])
    }

    /// The middle of a row.
    pub fn middle(&self, k: usize) -> f64 {
        f64::midpoint(self.edges[k], self.edges[k + 1])
    }

    /// The lower edge of all.
    pub fn bottom(&self) -> f64 {
        self.edges.last().copied().unwrap_or(0.0)
    }

    /// A row's name, beside its middle.
    pub fn draw(&self, k: usize) -> Markup {
        paragraph("end", (0.0, self.middle(k)), -GAP, &self.lines[k])
    }
}

/// Lines of text that belong together, centred on a height; `shift` moves them sideways by pixels.
pub fn paragraph(class: &str, at: (f64, f64), shift: f64, lines: &[String]) -> Markup {
    let first = at.1 - LINE * (lines.len() as f64 - 1.0) / 2.0 + 4.0;
    html! {
        text class=(class) {
            @for (k, line) in lines.iter().enumerate() {
                tspan x={ (place(at.0)) "%" }
                    dx=[(shift != 0.0).then(|| place(shift))] y=(place(first + LINE * k as f64)) {
                        (line) }
            }
        }
    }
}

/// A place, with no more digits than can be seen.
pub fn place(x: f64) -> String {
    let text = format!("{:.1}", if x.is_finite() { x } else { 0.0 });
    text.strip_suffix(".0").unwrap_or(&text).into()
}

/// A percent, which may be of a wide screen.
fn percent(x: f64) -> String {
    let text = format!("{:.2}", if x.is_finite() { x } else { 0.0 });
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Steps of a percent in which paths are drawn.
const FINE: f64 = 10.0;

/// A path through points; those of `None` are gaps.
pub fn path(class: &str, points: impl IntoIterator<Item = Option<(f64, f64)>>) -> Markup {
    let (mut path, mut pen) = (String::new(), false);
    for point in points {
        if let Some((x, y)) = point {
            let _ = write!(path, "{}{} {}", if pen { "L" } else { "M" }, place(FINE * x), place(y));
        }
        pen = point.is_some();
    }
    stretched(class, &path)
}

/// A dot at each of many points.
pub fn cloud(class: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Markup {
    let mut path = String::new();
    for (x, y) in points {
        let _ = write!(path, "M{} {}h0", place(FINE * x), place(y));
    }
    stretched(class, &path)
}

/// A path whose numbers across are stretched over the width; its lines are not.
fn stretched(class: &str, path: &str) -> Markup {
    let units = 100.0 * FINE;
    html! {
        svg width="100%" height="100" viewBox={ "0 0 " (place(units)) " 100" }
            preserveAspectRatio="none" overflow="visible" {
            path class=(class) d=(path) {}
        }
    }
}

/// A line from here to there.
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! { line class=(class) x1=(percent(from.0)) y1=(place(from.1))
    x2=(percent(to.0)) y2=(place(to.1)) {} }
}

/// Words at a place.
pub fn words(class: &str, at: (f64, f64), text: &str) -> Markup {
    beside_words(class, at, 0.0, text)
}

/// Words so many pixels beside a place.
pub fn beside_words(class: &str, at: (f64, f64), shift: f64, text: &str) -> Markup {
    html! { text class=(class) x=(percent(at.0))
    dx=[(shift != 0.0).then(|| place(shift))] y=(place(at.1)) { (text) } }
}

/// Words that end at a place, coming down to it from the left.
pub fn slanted(class: &str, at: (f64, f64), text: &str) -> Markup {
    html! { svg x=(percent(at.0)) y=(place(at.1)) overflow="visible" {
    text class=(class) transform="rotate(45)" { (text) } } }
}

/// A vertical axis with grid lines over the whole width, numbers at the left.
pub fn beside(scale: &Scale, wanted: usize) -> Markup {
    html! {
        @for (y, text) in scale.ticks(wanted) {
            (line("grid", (0.0, scale.at(y)), (100.0, scale.at(y))))
            (beside_words("dim end", (0.0, scale.at(y) + 4.0), -5.0, &text))
        }
    }
}

/// The gutter that the numbers of a vertical axis need.
pub fn gutter(scale: &Scale, wanted: usize) -> f64 {
    scale.ticks(wanted).iter().map(|(_, text)| breadth(text)).fold(20.0, f64::max) + 6.0
}

/// A bar.
pub fn bar(class: &str, corner: (f64, f64), size: (f64, f64)) -> Markup {
    html! {
        rect class=(class) x=(percent(corner.0)) y=(place(corner.1))
            width=(percent(size.0.max(0.0))) height=(place(size.1.max(0.0))) {}
    }
}

/// A dot.
pub fn dot(class: &str, at: (f64, f64), radius: f64) -> Markup {
    html! { circle class=(class) cx=(percent(at.0)) cy=(place(at.1)) r=(place(radius)) {} }
}

/// A plot with nothing in it but the reason.
pub fn nothing(height: f64, says: &str, why: &str) -> Markup {
    let frame = Frame { left: 0.0, right: 0.0, height };
    frame.draw(says, &frame.reason(why))
}

/// What an axis shows, above or below a plot.
pub fn axis_label(side: &str, text: &str) -> Markup {
    html! { div class={ "label " (side) } { (text) } }
}

/// A line of a legend.
pub struct Key<'a> {
    /// Which colour.
    pub colour: usize,
    /// `line`, `dashes`, `dot`, `line dot` or `box`.
    pub mark: &'static str,
    /// What it stands for.
    pub name: &'a str,
}

/// A legend, below a plot.
pub fn legend<'a>(keys: impl IntoIterator<Item = Key<'a>>) -> Markup {
    html! {
        ul.legend {
            @for key in keys {
                li { i class={ (key.mark) " k" (key.colour % COLOURS) } aria-hidden="true" {}
                    span { (key.name) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_do_not_touch_on_a_phone() {
        for (left, high) in [(30.0, 10.0), (150.0, 10.0), (150.0, 123_456.0), (200.0, 9_876_543.0)]
        {
            let frame = Frame { left, right: 8.0, height: 50.0 };
            let scale = Scale::between(0.0, high, 0.0, 100.0);
            let ticks = frame.ticks(&scale, 6, &|_, text| text);
            let kept: Vec<&Tick> = ticks.iter().filter(|tick| tick.class.is_empty()).collect();
            assert!(!kept.is_empty() && kept.iter().any(|tick| tick.at == 0.0), "{ticks:?}");
            for two in kept.windows(2) {
                let apart = (scale.at(two[1].at) - scale.at(two[0].at)) / 100.0 * frame.room();
                assert!(
                    apart > f64::midpoint(breadth(&two[0].text), breadth(&two[1].text)),
                    "{left} {high}: {ticks:?}"
                );
            }
        }
        let wide = Frame { left: 30.0, right: 8.0, height: 50.0 };
        let all = wide.ticks(&Scale::between(0.0, 10.0, 0.0, 100.0), 6, &|_, text| text);
        assert!(
            all.len() == 6 && all.iter().all(|tick| tick.class.is_empty()),
            "where there is room all are shown"
        );
    }

    #[test]
    fn a_long_name_has_several_lines_and_a_taller_row() {
        let long = "electrocardiogram at rest: left ventricular hypertrophy";
        let names = Names::new(["age", long].into_iter(), 6.0, 22.0);
        let (first, second) = (names.row(0), names.row(1));
        assert_eq!(first, (6.0, 28.0));
        assert!(second.1 - second.0 > 2.0 * LINE && names.bottom() == second.1);
        assert!(names.left <= GUTTER + 12.0);
        assert_eq!(names.lines[1].concat(), long);
    }
}
