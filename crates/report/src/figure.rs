//! Draw a figure of lines and points with error bars, on straight or logarithmic axes.

use maud::{Markup, html};

use crate::plot::{self, COLOURS, Frame, Key, axis_label, beside, dot, legend, line, path};
use crate::scale::Scale;

const HEIGHT: f64 = 280.0;
const TOP: f64 = 8.0;
/// Where the axis across is.
const FLOOR: f64 = HEIGHT - 20.0;

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
        if self.logarithmic {
            Scale::logarithmic(values, from, to)
        } else {
            Scale::around(values, from, to)
        }
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

impl Mark {
    /// How the legend shows it.
    fn in_legend(self) -> &'static str {
        match self {
            Mark::Line => "line",
            Mark::Dashes => "dashes",
            Mark::Points => "dot",
            Mark::LineAndPoints => "line dot",
        }
    }
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
                (axis_label("up", &self.y.label))
                (self.picture())
                (axis_label("across", &self.x.label))
                (legend(self.series.iter().map(|s| Key {
                    colour: s.colour, mark: s.mark.in_legend(), name: &s.name })))
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
        let ends = |p: &Point| [p.y - p.error, p.y, p.y + p.error];
        let (Some(x), Some(y)) = (
            self.x.scale(all().map(|p| p.x), 0.0, 100.0),
            self.y.scale(all().flat_map(ends).filter(|y| self.y.shows(*y)), FLOOR, TOP),
        ) else {
            return plot::nothing(HEIGHT, &self.title, "no points");
        };
        let frame = Frame { left: plot::gutter(&y, 5), right: 10.0, height: HEIGHT };
        let inside = html! {
            (frame.below(&x, TOP, FLOOR, 5)) (beside(&y, 5))
            (line("axis", (0.0, TOP), (0.0, FLOOR))) (line("axis", (0.0, FLOOR), (100.0, FLOOR)))
            @for series in &self.series { (self.draw_series(series, &x, &y)) }
        };
        frame.draw(&self.title, &inside)
    }

    fn draw_series(&self, series: &Series, x: &Scale, y: &Scale) -> Markup {
        let colour = series.colour % COLOURS;
        let at = |p: &Point| (x.at(p.x), y.at(p.y));
        html! {
            @if series.mark != Mark::Points {
                @let dashes = if series.mark == Mark::Dashes { " dashed" } else { "" };
                (path(&format!("curve s{colour}{dashes}"), self.shown(series).map(|p| Some(at(p)))))
            }
            @if matches!(series.mark, Mark::Points | Mark::LineAndPoints) {
                @for p in self.shown(series) {
                    @if p.error > 0.0 && p.error.is_finite() {
                        @let low = if self.y.shows(p.y - p.error) { y.at(p.y - p.error) }
                            else { FLOOR };
                        (line(&format!("curve \
                            s{colour}"), (x.at(p.x), low), (x.at(p.x), y.at(p.y + p.error))))
                    }
                    (dot(&format!("f{colour}"), at(p), 3.0))
                }
            }
        }
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
            series: vec![Series {
                name: "QLSD*".into(),
                mark: Mark::LineAndPoints,
                colour: 9,
                points,
            }],
        }
    }

    #[test]
    fn what_an_axis_cannot_show_is_left_out() {
        let page =
            figure(&[(1.0, 2.0), (10.0, 3.0), (-1.0, 4.0), (5.0, f64::NAN)]).draw().into_string();
        assert_eq!(page.matches("<circle").count(), 2, "two points");
        assert!(page.contains("class=\"line dot k1\""), "the legend shows a line with points");
        assert!(
            page.contains("QLSD*") && page.contains("bits") && page.contains("Lower is better.")
        );
        assert!(page.contains("curve s1"), "colours start over after the last");
        assert!(figure(&[]).draw().into_string().contains("no points"));
    }
}
