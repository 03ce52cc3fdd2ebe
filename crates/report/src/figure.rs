//! Draw a figure of lines and points with error bars, on straight or logarithmic axes.

use maud::{Markup, html};

use crate::plot::{COLOURS, below, beside, dot, line, path, plot, words};
use crate::scale::Scale;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 34.0;
/// The room of one line of the legend.
const LEGEND: f64 = 16.0;

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// Whether it is logarithmic; numbers that are not positive are then left out.
    pub logarithmic: bool,
}

impl Axis {
    /// A straight axis.
    pub fn straight(label: impl Into<String>) -> Self {
        Axis { label: label.into(), logarithmic: false }
    }

    /// A logarithmic axis.
    pub fn logarithmic(label: impl Into<String>) -> Self {
        Axis { label: label.into(), logarithmic: true }
    }

    fn scale(&self, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Scale> {
        if self.logarithmic { Scale::logarithmic(values, from, to) } else { Scale::around(values, from, to) }
    }

    fn shows(&self, x: f64) -> bool {
        x.is_finite() && (!self.logarithmic || x > 0.0)
    }
}

/// A point with an error bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where, across.
    pub x: f64,
    /// Where, upward.
    pub y: f64,
    /// Half the length of the bar: one standard error; 0 for none.
    pub error: f64,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line.
    Line,
    /// A broken line.
    Dashes,
    /// Points, with their bars.
    Points,
    /// Both.
    LineAndPoints,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Their name in the legend.
    pub name: String,
    /// How they are drawn.
    pub mark: Mark,
    /// Which colour; series of one colour belong together.
    pub colour: usize,
    /// The points.
    pub points: Vec<Point>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it shows, and where the paper has it.
    pub title: String,
    /// What to look at.
    pub caption: String,
    /// The axis across.
    pub x: Axis,
    /// The axis upward.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

impl Figure {
    /// The figure with its heading and caption.
    pub fn draw(&self) -> Markup {
        html! {
            figure.wide {
                h3 { (self.title) }
                (self.picture())
                figcaption { (self.caption) }
            }
        }
    }

    /// The points that the axes can show.
    fn shown<'a>(&'a self, series: &'a Series) -> impl Iterator<Item = &'a Point> {
        series.points.iter().filter(|p| self.x.shows(p.x) && self.y.shows(p.y))
    }

    fn picture(&self) -> Markup {
        let all = || self.series.iter().flat_map(|series| self.shown(series));
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let ends = |p: &Point| [p.y - p.error, p.y, p.y + p.error];
        let (Some(x), Some(y)) =
            (self.x.scale(all().map(|p| p.x), LEFT, right), self.y.scale(all().flat_map(ends).filter(|y| self.y.shows(*y)), bottom, TOP))
        else {
            return crate::plot::nothing(WIDTH, HEIGHT, &self.title, "no points");
        };
        let columns = if self.series.iter().all(|s| s.name.chars().count() <= 24) { 2 } else { 1 };
        let rows = self.series.len().div_ceil(columns);
        let inside = html! {
            (below(&x, TOP, bottom, 5)) (beside(&y, LEFT, right, 5))
            (line("axis", (LEFT, TOP), (LEFT, bottom))) (line("axis", (LEFT, bottom), (right, bottom)))
            (words("dim middle", (f64::midpoint(LEFT, right), HEIGHT - 4.0), &self.x.label))
            text.dim.middle transform={ "translate(11 " (crate::plot::place(f64::midpoint(TOP, bottom))) ") rotate(-90)" } { (self.y.label) }
            @for series in &self.series { (self.draw_series(series, &x, &y)) }
            @for (at, series) in self.series.iter().enumerate() {
                (key(series, (LEFT + (right - LEFT) / columns as f64 * (at % columns) as f64, HEIGHT + LEGEND * ((at / columns) as f64 + 0.75))))
            }
        };
        plot(WIDTH, HEIGHT + LEGEND * rows as f64 + 4.0, &self.title, &inside)
    }

    fn draw_series(&self, series: &Series, x: &Scale, y: &Scale) -> Markup {
        let colour = series.colour % COLOURS;
        let at = |p: &Point| (x.at(p.x), y.at(p.y));
        html! {
            @if series.mark != Mark::Points {
                @let dashes = if series.mark == Mark::Dashes { " dashed" } else { "" };
                path class={ "curve s" (colour) (dashes) } d=(path(self.shown(series).map(|p| Some(at(p))))) {}
            }
            @if matches!(series.mark, Mark::Points | Mark::LineAndPoints) {
                @for p in self.shown(series) {
                    @if p.error > 0.0 && p.error.is_finite() {
                        @let low = if self.y.shows(p.y - p.error) { y.at(p.y - p.error) } else { HEIGHT - BOTTOM };
                        (line(&format!("curve s{colour}"), (x.at(p.x), low), (x.at(p.x), y.at(p.y + p.error))))
                    }
                    (dot(&format!("f{colour}"), at(p), 3.0))
                }
            }
        }
    }
}

/// A line of the legend.
fn key(series: &Series, at: (f64, f64)) -> Markup {
    let colour = series.colour % COLOURS;
    let middle = at.1 - 4.0;
    html! {
        @if series.mark != Mark::Points {
            @let dashes = if series.mark == Mark::Dashes { " dashed" } else { "" };
            (line(&format!("curve s{colour}{dashes}"), (at.0, middle), (at.0 + 18.0, middle)))
        }
        @if matches!(series.mark, Mark::Points | Mark::LineAndPoints) { (dot(&format!("f{colour}"), (at.0 + 9.0, middle), 3.0)) }
        (words("", (at.0 + 24.0, at.1), &series.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(points: &[(f64, f64)]) -> Figure {
        let points = points.iter().map(|(x, y)| Point { x: *x, y: *y, error: 0.1 }).collect();
        Figure {
            title: "Errors".into(),
            caption: "Lower is better.".into(),
            x: Axis::logarithmic("bits"),
            y: Axis::straight("error"),
            series: vec![Series { name: "QLSD*".into(), mark: Mark::LineAndPoints, colour: 9, points }],
        }
    }

    #[test]
    fn what_an_axis_cannot_show_is_left_out() {
        let page = figure(&[(1.0, 2.0), (10.0, 3.0), (-1.0, 4.0), (5.0, f64::NAN)]).draw().into_string();
        assert_eq!(page.matches("<circle").count(), 2 + 1, "two points and the legend's");
        assert!(page.contains("QLSD*") && page.contains("bits") && page.contains("Lower is better."));
        assert!(page.contains("curve s1"), "colours start over after the last");
        assert!(figure(&[]).draw().into_string().contains("no points"));
    }
}
