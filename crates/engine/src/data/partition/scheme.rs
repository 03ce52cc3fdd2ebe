//! Name the schemes in text, as in a config or on the command line.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::suggest::did_you_mean;

/// How rows are dealt to clients.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    /// At random, equally.
    Iid,
    /// Neighbouring rows, equally.
    Contiguous,
    /// One client for each group of the data, or for each value of a column.
    Natural(Option<String>),
    /// By one Dirichlet draw for each label, with this concentration, or with one of each client's
    /// own.
    Dirichlet(Option<f64>),
    /// This share of every label to two clients.
    TwoClients(f64),
    /// This share of every client of one label.
    Dominant(f64),
    /// At random, with sizes that fall by a power law.
    PowerLaw(f64),
}

/// The schemes: how they are written, and what they do.
pub const SCHEMES: &[(&str, &str)] = &[
    ("iid", "at random, sizes equal up to one row"),
    ("contiguous", "neighbouring rows, sizes equal up to one row"),
    ("natural", "one client for each group that the data has (hospitals)"),
    ("natural(COLUMN)", "one client for each value of a column"),
    (
        "dirichlet(A)",
        "every label by its own Dirichlet(A, ..., A) draw; small A: few clients have most of a \
         label",
    ),
    ("dirichlet", "the same with a concentration of each client's own, uniform in (0, 1) (FALD)"),
    (
        "two-clients(S)",
        "share S of label y (default 0.8) to clients y + 1 and y + 10 of 20, the rest evenly \
         (FALD)",
    ),
    ("dominant(S)", "share S of each client (default 0.4) is one label, the rest others (QLSD)"),
    ("power-law(A)", "at random, the size of client i in proportion to i^-A (default 1)"),
];

/// Why a text names no scheme.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SchemeError {
    /// No such scheme.
    #[error("there is no scheme `{found}`: {hint}there are {known}")]
    Unknown {
        /// The text.
        found: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The schemes that there are.
        known: String,
    },
    /// A number that is wrong for this scheme.
    #[error("`{found}` is wrong: {scheme} takes {expected}")]
    Setting {
        /// The text.
        found: String,
        /// The scheme.
        scheme: &'static str,
        /// What it takes.
        expected: &'static str,
    },
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        let text = text.trim();
        let (name, inside) = match text.split_once('(') {
            Some((name, rest)) => (name.trim(), rest.strip_suffix(')').map(str::trim)),
            None => (text, None),
        };
        let wrong =
            |scheme, expected| SchemeError::Setting { found: text.into(), scheme, expected };
        let bare = |scheme: Scheme, word| {
            if text == name { Ok(scheme) } else { Err(wrong(word, "no setting")) }
        };
        let number = |scheme, expected, fits: fn(f64) -> bool| match inside {
            None if text == name => Ok(None),
            _ => {
                match inside.and_then(|word| word.parse::<f64>().ok()).filter(|value| fits(*value))
                {
                    Some(value) => Ok(Some(value)),
                    None => Err(wrong(scheme, expected)),
                }
            }
        };
        let share = |value: f64| value > 0.0 && value <= 1.0;
        match name {
            "iid" => bare(Scheme::Iid, "iid"),
            "contiguous" => bare(Scheme::Contiguous, "contiguous"),
            "natural" => match inside {
                None if text == name => Ok(Scheme::Natural(None)),
                Some(column) if !column.is_empty() => Ok(Scheme::Natural(Some(column.into()))),
                _ => Err(wrong("natural", "the name of a column, as in natural(sex)")),
            },
            "dirichlet" => {
                let fits = |value: f64| (1e-3..=1e6).contains(&value);
                Ok(Scheme::Dirichlet(number(
                    "dirichlet",
                    "a number from 0.001 to 1000000, as in dirichlet(0.5)",
                    fits,
                )?))
            }
            "two-clients" => Ok(Scheme::TwoClients(
                number("two-clients", "a share above 0, at most 1, as in two-clients(0.8)", share)?
                    .unwrap_or(0.8),
            )),
            "dominant" => Ok(Scheme::Dominant(
                number("dominant", "a share above 0, at most 1, as in dominant(0.4)", share)?
                    .unwrap_or(0.4),
            )),
            "power-law" => {
                let fits = |value: f64| (0.0..=10.0).contains(&value);
                Ok(Scheme::PowerLaw(
                    number("power-law", "an exponent from 0 to 10, as in power-law(1)", fits)?
                        .unwrap_or(1.0),
                ))
            }
            _ => {
                let words = || SCHEMES.iter().map(|(word, _)| *word);
                let hint =
                    did_you_mean(name, words().map(|word| word.split('(').next().unwrap_or(word)));
                Err(SchemeError::Unknown {
                    found: text.into(),
                    hint,
                    known: words().collect::<Vec<_>>().join(", "),
                })
            }
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Iid => write!(f, "iid"),
            Scheme::Contiguous => write!(f, "contiguous"),
            Scheme::Natural(None) => write!(f, "natural"),
            Scheme::Natural(Some(column)) => write!(f, "natural({column})"),
            Scheme::Dirichlet(None) => write!(f, "dirichlet"),
            Scheme::Dirichlet(Some(a)) => write!(f, "dirichlet({a})"),
            Scheme::TwoClients(s) => write!(f, "two-clients({s})"),
            Scheme::Dominant(s) => write!(f, "dominant({s})"),
            Scheme::PowerLaw(a) => write!(f, "power-law({a})"),
        }
    }
}
