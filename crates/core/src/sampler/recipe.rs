//! Describe a sampler by its axes; the papers' names are constructors.

use super::local::Local;
use super::uplink::Uplink;
use crate::compress::{Channel, CodeChoice, Compressor};
use crate::error::DataError;

/// A sampler of either family.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// Gradients go up, one step a round.
    Uplink(Uplink),
    /// Clients walk on their own, parameters go up.
    Local(Local),
}

/// How many of its rows a client uses at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    /// All.
    Full,
    /// So many, or all where a client has fewer.
    Rows(usize),
    /// This fraction, rounded down, at least one.
    Fraction(f64),
}

impl Batch {
    /// The batch of a client with so many rows.
    pub fn of(&self, rows: usize) -> usize {
        match *self {
            Batch::Full => rows,
            Batch::Rows(n) => n.clamp(1, rows),
            // A few roundings more than was written: 0.29 times 100 is 28.999999999999996.
            Batch::Fraction(f) => {
                ((f * rows as f64 * (1.0 + 4.0 * f64::EPSILON)) as usize).clamp(1, rows)
            }
        }
    }
}

/// A channel, or why there is none.
pub(super) fn channel(
    compressor: Compressor,
    code: CodeChoice,
    dim: usize,
) -> Result<Channel, DataError> {
    Channel::new(compressor, code, dim).map_err(|e| DataError::Compressor {
        compressor: compressor.to_string(),
        problem: e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In integers: a fraction that a person can write is a number of thousandths.
    #[test]
    fn a_fraction_of_the_rows_is_rounded_down_and_never_nothing() {
        for rows in 1..=400 {
            for thousandths in 1..=1000 {
                let found = Batch::Fraction(thousandths as f64 / 1000.0).of(rows);
                assert_eq!(
                    found,
                    (thousandths * rows / 1000).max(1),
                    "{thousandths}/1000 of {rows}"
                );
            }
        }
    }
}
