//! Show ratios as a forest, and what is expected along one column while the others stay.

use consilience_core::measure::MASS;
use consilience_engine::encoding::Grid;
use consilience_engine::predict::{Prediction, Predictor, Rows};
use consilience_engine::ratios::{Ratio, Ratios};
use maud::{Markup, html};

use crate::facts::Facts;
use crate::plot::{self, Frame, Names, axis_label, dot, line, path};
use crate::posterior::MOST_ROWS;
use crate::scale::Scale;
use crate::words::number;

/// So many columns have a plot.
const MOST_COLUMNS: usize = 24;
const HEIGHT: f64 = 180.0;

/// The whole section.
pub fn section(facts: &Facts) -> Markup {
    let (ratios, effects) = (Ratios::new(facts.record).ok(), effects(facts));
    html! {
        @if let Some(ratios) = &ratios { (forest(ratios)) }
        @match &effects {
            Ok((predicts, site, all)) => {
                h3 { "Along one column" }
                p { "What is expected of a row (" (predicts) ") along one column, with the 89% \
                    interval of the draws. The other columns stay at what is usual: numbers at the \
                    mean of all sites, words at the level that others are compared with, unless \
                    it says so"
                    @if let Some(site) = site { "; the row is one of site " (site) }
                    ". Means and standard deviations are those that sites exchanged as sums: no \
                    row was looked at." }
                div.two { @for (grid, expected) in all.iter().take(MOST_COLUMNS) {
                    (along(grid, expected)) } }
                @if all.len() > MOST_COLUMNS {
                    p.soft { "The first " (MOST_COLUMNS) " of " (all.len()) " columns." }
                }
            }
            Err(why) if ratios.is_none() => { p.soft { "There is nothing to show: " (why) "." } }
            Err(why) => { p.soft { "There are no plots along single columns: " (why) "." } }
        }
    }
}

type Effects = (&'static str, Option<String>, Vec<(Grid, Vec<Prediction>)>);

fn effects(facts: &Facts) -> Result<Effects, String> {
    let Some(encoding) = &facts.record.encoding else {
        return Err("the run does not say how its columns were coded".into());
    };
    let predictor = Predictor::new(facts.record).map_err(|e| e.to_string())?;
    if predictor.outputs() != 1 {
        return Err("the model predicts several numbers of each row".into());
    }
    let mut all = Vec::new();
    for grid in encoding.grids()? {
        let (cells, offset) = (grid.cells.clone(), Vec::new());
        let rows = Rows { cells, offset, ..Rows::default() };
        let expected = predictor.expect(&rows, MASS).into_iter().flatten().collect();
        all.push((grid, expected));
    }
    Ok((predictor.predicts().what, encoding.usual_site().map(str::to_owned), all))
}

/// Ratios with their intervals, on a logarithmic axis around 1.
fn forest(ratios: &Ratios) -> Markup {
    let shown = &ratios.rows[..ratios.rows.len().min(MOST_ROWS)];
    let says = format!("{} of {} coefficients with 89% intervals", ratios.what, shown.len());
    let names = Names::new(shown.iter().map(|row| row.name.as_str()), 6.0, 22.0);
    let bottom = names.bottom();
    let frame = Frame { left: names.left, right: 8.0, height: bottom + 20.0 };
    let ends = |row: &Ratio| [row.ends.0, row.ends.1, row.median, 1.0];
    let is_known = |x: &f64| x.is_finite() && *x > 0.0;
    let values = shown.iter().flat_map(ends).filter(is_known);
    let Some(scale) = Scale::logarithmic(values, 0.0, 100.0) else {
        return html! {};
    };
    let inside = html! {
        (frame.below(&scale, 6.0, bottom, 5))
        (line("axis", (scale.at(1.0), 6.0), (scale.at(1.0), bottom)))
        @for (k, row) in shown.iter().enumerate() {
            (names.draw(k))
            @if ends(row).iter().all(is_known) {
                @let y = names.middle(k);
                g {
                    title { (row.name) ": " (number(row.median)) ", 89% from "
                        (number(row.ends.0)) " to " (number(row.ends.1)) }
                    (line("thin", (scale.at(row.ends.0), y), (scale.at(row.ends.1), y)))
                    (dot("dot", (scale.at(row.median), y), 4.0))
                }
            }
        }
    };
    let per_sd = shown.iter().any(|row| row.unit.is_some());
    html! {
        figure.wide {
            h3 { "The " (ratios.what) " of every coefficient" }
            (frame.draw(&says, &inside))
            figcaption { "Dot: median. Line: 89%. Right of the line at 1 the " (ratios.what)
                " is above 1."
                @if per_sd { " Of numbers it is per standard deviation." }
                @if ratios.rows.len() > shown.len() { " The first " (shown.len()) " of "
                    (ratios.rows.len()) "." } }
        }
    }
}

fn along(grid: &Grid, expected: &[Prediction]) -> Markup {
    let says = format!("What is expected along {}", title(grid));
    let (top, bottom) = (8.0, HEIGHT - 20.0);
    let ends = expected.iter().flat_map(|p| [p.mean, p.lower, p.upper]);
    let Some(up) = Scale::around(ends, bottom, top) else {
        return plot::nothing(HEIGHT, &says, "not finite");
    };
    let is_known = |p: &Prediction| [p.mean, p.lower, p.upper].iter().all(|x| x.is_finite());
    if !grid.is_number {
        return levels(grid, expected, &says);
    }
    let values: Vec<f64> = grid.values.iter().filter_map(|value| value.parse().ok()).collect();
    let Some(across) = Scale::around(values.iter().copied(), 0.0, 100.0) else {
        return plot::nothing(HEIGHT, &says, "not finite");
    };
    let curve = |read: fn(&Prediction) -> f64| {
        let points = values.iter().zip(expected);
        let points: Vec<Option<(f64, f64)>> =
            points.map(|(x, p)| is_known(p).then(|| (across.at(*x), up.at(read(p))))).collect();
        points
    };
    let frame = Frame { left: plot::gutter(&up, 4), right: 10.0, height: HEIGHT };
    let inside = html! {
        (plot::beside(&up, 4)) (frame.below(&across, top, bottom, 5))
        (path("pooled dashed", curve(|p| p.lower))) (path("pooled dashed", curve(|p| p.upper)))
        (path("thin", curve(|p| p.mean)))
    };
    html! { figure { (frame.draw(&says, &inside)) (axis_label("across", &title(grid))) } }
}

/// The column, and what stands beside it where that is not what is usual.
fn title(grid: &Grid) -> String {
    match &grid.beside {
        Some((column, level)) => format!("{}, where {column} is {level}", grid.column),
        None => grid.column.clone(),
    }
}

fn levels(grid: &Grid, expected: &[Prediction], says: &str) -> Markup {
    let count = grid.values.len().min(expected.len()).min(MOST_ROWS);
    let names = Names::new(grid.values[..count].iter().map(String::as_str), 6.0, 22.0);
    let bottom = names.bottom();
    let frame = Frame { left: names.left, right: 8.0, height: bottom + 20.0 };
    let ends = expected.iter().flat_map(|p| [p.lower, p.upper]);
    let Some(scale) = Scale::around(ends, 0.0, 100.0) else {
        return plot::nothing(HEIGHT, says, "not finite");
    };
    let inside = html! {
        (frame.below(&scale, 6.0, bottom, 5))
        @for (k, p) in expected[..count].iter().enumerate() {
            (names.draw(k))
            @if [p.mean, p.lower, p.upper].iter().all(|x| x.is_finite()) {
                @let y = names.middle(k);
                (line("thin", (scale.at(p.lower), y), (scale.at(p.upper), y)))
                (dot("dot", (scale.at(p.mean), y), 4.0))
            }
        }
    };
    html! { figure { (frame.draw(says, &inside)) (axis_label("across", &title(grid))) } }
}
