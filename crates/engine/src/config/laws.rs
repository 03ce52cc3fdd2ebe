//! Read laws by their names: `normal(0, 2.5)`, `half_cauchy(2.5)`.

use consilience_core::model::Law;

use super::NamedLaw;
use super::reader::{ConfigError, Value};
use crate::suggest::did_you_mean;

/// What a law can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Any number.
    Line,
    /// Numbers above 0.
    Positive,
    /// Numbers between -1 and 1.
    Correlation,
    /// All of these.
    Any,
}

impl Support {
    /// Whether a law of this support can be one of parameters of that.
    pub fn fits(self, parameters: Support) -> bool {
        self == Support::Any || self == parameters
    }

    /// The laws that can be of such parameters, in words.
    pub fn laws(self) -> String {
        let fit = LAWS.iter().filter(|row| row.support.fits(self));
        fit.map(LawRow::written).collect::<Vec<_>>().join(", ")
    }
}

/// A law as users know it.
#[derive(Debug)]
pub struct LawRow {
    /// Its name.
    pub name: &'static str,
    /// What its numbers are called, in order.
    pub numbers: &'static [&'static str],
    /// What it can be of.
    pub support: Support,
    make: fn(&[f64]) -> Law,
}

impl LawRow {
    /// As it is written: `normal(mean, sd)`.
    fn written(&self) -> String {
        if self.numbers.is_empty() {
            return self.name.into();
        }
        format!("{}({})", self.name, self.numbers.join(", "))
    }
}

/// Every law, in the order in which they are listed.
pub const LAWS: &[LawRow] = &[
    row("normal", &["mean", "sd"], Support::Line, |n| Law::Normal { mean: n[0], sd: n[1] }),
    row("student_t", &["df", "location", "scale"], Support::Line, |n| Law::StudentT {
        df: n[0],
        location: n[1],
        scale: n[2],
    }),
    row("cauchy", &["location", "scale"], Support::Line, |n| Law::StudentT {
        df: 1.0,
        location: n[0],
        scale: n[1],
    }),
    row("laplace", &["location", "scale"], Support::Line, |n| Law::Laplace {
        location: n[0],
        scale: n[1],
    }),
    row("half_normal", &["scale"], Support::Positive, |n| Law::Normal { mean: 0.0, sd: n[0] }),
    row("half_cauchy", &["scale"], Support::Positive, |n| Law::StudentT {
        df: 1.0,
        location: 0.0,
        scale: n[0],
    }),
    row("half_student_t", &["df", "scale"], Support::Positive, |n| Law::StudentT {
        df: n[0],
        location: 0.0,
        scale: n[1],
    }),
    row("exponential", &["rate"], Support::Positive, |n| Law::Exponential { rate: n[0] }),
    row("gamma", &["shape", "rate"], Support::Positive, |n| Law::Gamma { shape: n[0], rate: n[1] }),
    row("lkj", &["shape"], Support::Correlation, |n| Law::Lkj { shape: n[0] }),
    row("flat", &[], Support::Any, |_| Law::Flat),
];

const fn row(
    name: &'static str,
    numbers: &'static [&'static str],
    support: Support,
    make: fn(&[f64]) -> Law,
) -> LawRow {
    LawRow { name, numbers, support, make }
}

/// A law, and what it can be of.
fn parse(value: &Value<'_>) -> Result<(Law, Support), ConfigError> {
    let text = value.text("a law, such as \"normal(0, 2.5)\"")?.trim();
    let (name, inside) = match text.split_once('(') {
        None => (text, ""),
        Some((name, rest)) => {
            let Some(inside) = rest.strip_suffix(')') else {
                let fix = "close the parenthesis, e.g. \"normal(0, 2.5)\"";
                return Err(value.error(format!("\"{text}\" has no `)` at its end"), fix));
            };
            (name.trim(), inside)
        }
    };
    let Some(row) = LAWS.iter().find(|row| row.name == name) else {
        return Err(unknown(value, name));
    };
    let numbers: Vec<&str> =
        inside.split(',').map(str::trim).filter(|number| !number.is_empty()).collect();
    if numbers.len() != row.numbers.len() {
        let problem = format!("`{name}` is given {} numbers", numbers.len());
        let fix = format!("{} are expected: {}", row.numbers.len(), row.written());
        return Err(value.error(problem, fix));
    }
    let mut read = Vec::new();
    for (written, called) in numbers.iter().zip(row.numbers) {
        let number = written.parse::<f64>().ok().filter(|number| number.is_finite());
        let free = matches!(*called, "mean" | "location");
        match number {
            Some(number) if free || number > 0.0 => read.push(number),
            Some(_) => {
                let problem = format!("the {called} of `{name}` is {written}");
                return Err(value.error(problem, "it must be above 0"));
            }
            None => {
                let problem =
                    format!("the {called} of `{name}` is `{written}`, which is no number");
                return Err(value.error(problem, format!("write {}", row.written())));
            }
        }
    }
    Ok(((row.make)(&read), row.support))
}

/// The complaint about a name that no law has.
pub(super) fn unknown(value: &Value<'_>, name: &str) -> ConfigError {
    let near = did_you_mean(name, LAWS.iter().map(|row| row.name));
    let all: Vec<String> = LAWS.iter().map(LawRow::written).collect();
    value.error(
        format!("there is no law \"{name}\""),
        format!("{near}the laws are {}; \"gaussian\" has a variance", all.join(", ")),
    )
}

/// A law of such parameters.
pub(super) fn read(value: &Value<'_>, parameters: Support) -> Result<Law, ConfigError> {
    let (law, support) = parse(value)?;
    if support.fits(parameters) {
        return Ok(law);
    }
    let written = value.written();
    let problem = match support {
        Support::Correlation => format!("{written} is a law of correlations, not of coefficients"),
        _ => format!("{written} is a law of numbers above 0, and coefficients may be below"),
    };
    Err(value.error(problem, format!("use one of {}", parameters.laws())))
}

/// `{ intercept = "normal(0, 10)", sigma = "half_cauchy(2.5)" }`.
pub(super) fn read_named(value: &Value<'_>) -> Result<Vec<NamedLaw>, ConfigError> {
    let Some(table) = value.value.as_table() else {
        let fix = "write a table, e.g. of = { sigma = \"half_cauchy(2.5)\" }";
        return Err(value.error(format!("{} is no table of laws", value.written()), fix));
    };
    let mut all = Vec::new();
    for (name, law) in table {
        let item = Value {
            document: value.document,
            field: format!("{}.{}", value.field, name.get_ref()),
            span: law.span(),
            value: law.get_ref(),
        };
        let (law, support) = parse(&item)?;
        all.push(NamedLaw { name: name.get_ref().to_string(), law, support, place: item.place() });
    }
    // in an order that does not depend on how tables are kept
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}
