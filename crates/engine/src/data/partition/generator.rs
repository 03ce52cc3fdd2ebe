//! Name the papers' generated data in text, as in a config.

use std::str::FromStr;

use thiserror::Error;

use crate::suggest::did_you_mean;

/// Data that is generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Generator {
    /// SYNTHETIC(alpha, beta): labels by a softmax model of each client's own.
    Synthetic(f64, f64),
    /// QLSD's rows around means of the clients' own.
    QlsdToy,
    /// FALD's Gaussian clients with covariances of their own.
    FaldToy,
    /// FA-LD's Gaussian clients in the plane, with this heterogeneity.
    FaLdToy(f64),
}

/// What can be generated: how it is written, and what it is.
pub const GENERATORS: &[(&str, &str)] = &[
    (
        "synthetic(ALPHA, BETA)",
        "softmax labels and features that differ between clients (Li et al. 2020)",
    ),
    ("qlsd-toy", "isotropic Gaussian rows around a mean of each client's own (QLSD, Fig. 1)"),
    ("fald-toy", "Gaussian clients with means and covariances of their own (FALD, Table 1)"),
    (
        "fa-ld-toy(ALPHA)",
        "Gaussian clients in the plane whose means ALPHA moves apart (FA-LD, Fig. 1)",
    ),
];

/// Why a text names no generator.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GeneratorError {
    /// No such generator.
    #[error("`{found}` cannot be generated: {hint}there are {known}")]
    Unknown {
        /// The text.
        found: String,
        /// A nearby name, or nothing.
        hint: String,
        /// What there is.
        known: String,
    },
    /// Settings that are wrong for this generator.
    #[error("`{found}` is wrong: write {expected}, with numbers from 0 to 1000000")]
    Setting {
        /// The text.
        found: String,
        /// How it is written.
        expected: &'static str,
    },
}

impl Generator {
    /// How many clients and dimensions the paper has.
    pub(crate) fn usual_size(self) -> (usize, usize) {
        match self {
            Generator::Synthetic(..) => (30, 60),
            Generator::QlsdToy => (20, 50),
            Generator::FaldToy => (100, 20),
            Generator::FaLdToy(_) => (50, 2),
        }
    }
}

impl FromStr for Generator {
    type Err = GeneratorError;

    fn from_str(text: &str) -> Result<Self, GeneratorError> {
        let text = text.trim();
        let (name, inside) = text
            .split_once('(')
            .map_or((text, None), |(name, rest)| (name.trim(), rest.strip_suffix(')')));
        let number = |word: &str| {
            word.trim().parse::<f64>().ok().filter(|value| (0.0..=1e6).contains(value))
        };
        let numbers: Option<Vec<f64>> =
            inside.map_or(Some(Vec::new()), |inside| inside.split(',').map(number).collect());
        let (found, bare) = (numbers.unwrap_or_default(), text == name);
        let wrong = |expected| GeneratorError::Setting { found: text.into(), expected };
        match (name, &found[..]) {
            ("synthetic", [alpha, beta]) => Ok(Generator::Synthetic(*alpha, *beta)),
            ("synthetic", _) => Err(wrong("synthetic(1, 1)")),
            ("qlsd-toy", []) if bare => Ok(Generator::QlsdToy),
            ("fald-toy", []) if bare => Ok(Generator::FaldToy),
            ("qlsd-toy", _) => Err(wrong("qlsd-toy")),
            ("fald-toy", _) => Err(wrong("fald-toy")),
            ("fa-ld-toy", [alpha]) => Ok(Generator::FaLdToy(*alpha)),
            ("fa-ld-toy", _) => Err(wrong("fa-ld-toy(10)")),
            _ => {
                let words = || GENERATORS.iter().map(|(word, _)| *word);
                let hint =
                    did_you_mean(name, words().map(|word| word.split('(').next().unwrap_or(word)));
                Err(GeneratorError::Unknown {
                    found: text.into(),
                    hint,
                    known: words().collect::<Vec<_>>().join(", "),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_others_refused() {
        assert_eq!("synthetic(0.5, 1)".parse(), Ok(Generator::Synthetic(0.5, 1.0)));
        assert_eq!(" fa-ld-toy( 100 ) ".parse(), Ok(Generator::FaLdToy(100.0)));
        assert_eq!(
            ("qlsd-toy".parse(), "fald-toy".parse()),
            (Ok(Generator::QlsdToy), Ok(Generator::FaldToy))
        );
        let says = |text: &str, part: &str| {
            let error = text.parse::<Generator>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        says("syntetic(1, 1)", "did you mean `synthetic`?");
        for (text, part) in [
            ("synthetic", "synthetic(1, 1)"),
            ("synthetic(1)", "synthetic(1, 1)"),
            ("synthetic(1, -1)", "synthetic(1, 1)"),
            ("qlsd-toy(3)", "write qlsd-toy"),
            ("fa-ld-toy(x)", "fa-ld-toy(10)"),
            ("fald-toy(", "write fald-toy"),
        ] {
            says(text, part);
        }
    }
}
