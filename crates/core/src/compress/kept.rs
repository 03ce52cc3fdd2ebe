//! Hold what operators share that keep `k` coordinates of a block: their arguments, their symbols,
//! and how the block is rebuilt.

use super::Precision;
use super::message::{Rest, Symbols, take};
use super::spec::{SpecError, number, read_precision};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KeptCoordinates {
    /// How many coordinates are kept.
    pub(super) count: u32,
    /// How they travel.
    pub(super) precision: Precision,
}

impl KeptCoordinates {
    /// So many coordinates, as 32-bit numbers.
    pub(super) const fn new(count: u32) -> Self {
        KeptCoordinates { count, precision: Precision::F32 }
    }

    pub(super) fn read(arguments: &[&str]) -> Result<Option<Self>, SpecError> {
        Ok(match arguments {
            [count] => Some(KeptCoordinates::new(number(count)?)),
            [count, precision] => Some(KeptCoordinates {
                count: number(count)?,
                precision: read_precision(precision)?,
            }),
            _ => None,
        })
    }

    pub(super) fn arguments(self) -> Vec<String> {
        match self.precision {
            Precision::F32 => vec![self.count.to_string()],
            other => vec![self.count.to_string(), other.to_string()],
        }
    }

    pub(super) fn symbols(self) -> Symbols {
        Symbols::Sparse { keep: self.count, precision: self.precision }
    }

    /// How many are kept of a block of this length.
    pub(super) fn of(self, length: usize) -> usize {
        length.min(self.count as usize)
    }

    /// Take the kept coordinates of a block off those that are left, and rebuild the block: each
    /// times `factor`, zeros elsewhere.
    pub(super) fn rebuild(self, factor: f64, rest: &mut Rest<'_>, out: &mut [f64]) {
        let kept = self.of(out.len());
        out.fill(0.0);
        let values = take(&mut rest.values, kept);
        for (index, value) in take(&mut rest.indices, kept).iter().zip(values) {
            out[*index as usize] = value * factor;
        }
    }
}
