//! Draw the parts that plots share: the frame, axes, legends, bars.

use std::fmt::Write;

use maud::{Markup, html};

use crate::scale::Scale;
use crate::words::cut;

/// The width of most plots, in their own units: a phone shows about 360 of them.
pub const WIDTH: f64 = 440.0;
/// Names of parameters and sites longer than this are cut.
pub const LONGEST: usize = 20;
/// How many colours there are.
pub const COLOURS: usize = 8;

/// How much room names need at the left.
pub fn room<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    14.0 + 6.4 * longest.clamp(3, LONGEST) as f64
}

/// A plot of that size with a name for those who cannot see it.
pub fn plot(width: f64, height: f64, says: &str, inside: &Markup) -> Markup {
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (place(width)) " " (place(height)) } role="img" aria-label=(says) {
            title { (says) }
            (inside)
        }
    }
}

/// A coordinate, with no more digits than can be seen.
pub fn place(x: f64) -> String {
    let text = format!("{:.1}", if x.is_finite() { x } else { 0.0 });
    text.strip_suffix(".0").unwrap_or(&text).into()
}

/// A path through points; those of `None` are gaps.
pub fn path(points: impl IntoIterator<Item = Option<(f64, f64)>>) -> String {
    let (mut path, mut pen) = (String::new(), false);
    for point in points {
        if let Some((x, y)) = point {
            let _ = write!(path, "{}{} {}", if pen { "L" } else { "M" }, place(x), place(y));
        }
        pen = point.is_some();
    }
    path
}

/// A line from here to there.
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! { path class=(class) d={ "M" (place(from.0)) " " (place(from.1)) "L" (place(to.0)) " " (place(to.1)) } {} }
}

/// Words at a place.
pub fn words(class: &str, at: (f64, f64), text: &str) -> Markup {
    html! { text class=(class) x=(place(at.0)) y=(place(at.1)) { (text) } }
}

/// A name that is cut to a width of so many characters, whole when pointed at.
pub fn name(class: &str, at: (f64, f64), text: &str, most: usize) -> Markup {
    let short = cut(text, most);
    html! {
        text class=(class) x=(place(at.0)) y=(place(at.1)) { (short) @if short != text { title { (text) } } }
    }
}

/// A horizontal axis with grid lines from `top` to `bottom`, numbers below.
pub fn below(scale: &Scale, top: f64, bottom: f64, wanted: usize) -> Markup {
    html! {
        @for (x, text) in scale.ticks(wanted) {
            (line("grid", (scale.at(x), top), (scale.at(x), bottom)))
            (words("dim middle", (scale.at(x), bottom + 13.0), &text))
        }
    }
}

/// A horizontal axis of bytes.
pub fn bytes_below(scale: &Scale, top: f64, bottom: f64, wanted: usize) -> Markup {
    html! {
        @for (x, _) in scale.ticks(wanted) {
            (line("grid", (scale.at(x), top), (scale.at(x), bottom)))
            (words("dim middle", (scale.at(x), bottom + 13.0), &crate::words::bytes(8.0 * x).replace(".0 ", " ").replace(".00 ", " ")))
        }
    }
}

/// A vertical axis with grid lines from `left` to `right`, numbers at the left.
pub fn beside(scale: &Scale, left: f64, right: f64, wanted: usize) -> Markup {
    html! {
        @for (y, text) in scale.ticks(wanted) {
            (line("grid", (left, scale.at(y)), (right, scale.at(y))))
            (words("dim end", (left - 4.0, scale.at(y) + 3.5), &text))
        }
    }
}

/// A bar.
pub fn bar(class: &str, corner: (f64, f64), size: (f64, f64)) -> Markup {
    html! { rect class=(class) x=(place(corner.0)) y=(place(corner.1)) width=(place(size.0.max(0.0))) height=(place(size.1.max(0.0))) {} }
}

/// A dot.
pub fn dot(class: &str, at: (f64, f64), radius: f64) -> Markup {
    html! { circle class=(class) cx=(place(at.0)) cy=(place(at.1)) r=(place(radius)) {} }
}

/// A plot with nothing in it but the reason.
pub fn nothing(width: f64, height: f64, says: &str, why: &str) -> Markup {
    plot(width, height, says, &words("dim middle", (width / 2.0, height / 2.0), why))
}
