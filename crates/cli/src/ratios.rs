//! Show coefficients as odds, rate, hazard or time ratios.

use std::fmt::Write;

use consilience_core::measure::MASS;
use consilience_engine::ratios::{Ratio, Ratios};
use serde_json::json;

use crate::report::number;

/// For people.
pub fn text(ratios: &Ratios) -> String {
    let width = ratios.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0).max(9);
    let mut text = format!(
        "{:<width$} {:>12} {:>8} {:>8} {:>7}  per\n",
        "parameter", ratios.what, "5.5%", "94.5%", "P(> 1)"
    );
    for Ratio { name, unit, median, ends, above } in &ratios.rows {
        let per = unit.map_or("1".into(), |sd| format!("{sd:.4} (one sd)"));
        let _ = writeln!(
            text,
            "{name:<width$} {median:>12.3} {:>8.3} {:>8.3} {above:>7.3}  {per}",
            ends.0, ends.1
        );
    }
    text
}

/// For programs.
pub fn json(ratios: &Ratios) -> String {
    let of = |read: fn(&Ratio) -> f64| -> Vec<_> {
        ratios.rows.iter().map(|row| number(read(row))).collect()
    };
    let value = json!({
        "ratios": ratios.what,
        "parameters": ratios.rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
        "median": of(|r| r.median), "interval_mass": MASS, "lower": of(|r| r.ends.0),
        "upper": of(|r| r.ends.1), "above_one": of(|r| r.above),
        "per": of(|r| r.unit.unwrap_or(1.0)),
    });
    format!("{value:#}\n")
}
