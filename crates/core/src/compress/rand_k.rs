//! Keep `k` coordinates chosen uniformly without replacement, times `d/k`.
//!
//! The receiver multiplies by `d/k`. A kept number travels as 32 bits, one of its two 32-bit
//! neighbours with mean exact: half the bits of a double for a relative variance below 2^-48.
//! `rand_k(k, f64)` sends the doubles.

use super::message::{Message, Rest, Symbols, take};
use super::operator::{CompressorRow, Operator, Quantiser, SecondMoments};
use super::spec::{SpecError, number, read_precision};
use super::{CompressError, Compressor, Precision, coin, largest};
use crate::rng::{Stream, Subsets};

pub(super) const ROW: CompressorRow = CompressorRow {
    name: "rand_k",
    usage: "rand_k(k)",
    says: "k coordinates uniformly without replacement, times d/k",
    constant: "omega = d/k - 1",
    examples: &["rand_k(1)", "rand_k(3, f64)"],
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RandK {
    /// How many coordinates are kept.
    keep: u32,
    /// How they travel.
    precision: Precision,
}

impl Compressor {
    /// `keep` coordinates chosen uniformly without replacement, as 32-bit numbers rounded without
    /// bias.
    pub const fn rand_k(keep: u32) -> Self {
        Self::whole(Operator::RandK(RandK { keep, precision: Precision::F32 }))
    }
}

pub(super) fn read(arguments: &[&str]) -> Result<Option<RandK>, SpecError> {
    Ok(match arguments {
        [keep] => Some(RandK { keep: number(keep)?, precision: Precision::F32 }),
        [keep, precision] => {
            Some(RandK { keep: number(keep)?, precision: read_precision(precision)? })
        }
        _ => None,
    })
}

impl Quantiser for RandK {
    fn row(&self) -> &'static CompressorRow {
        &ROW
    }

    fn arguments(&self) -> Vec<String> {
        match self.precision {
            Precision::F32 => vec![self.keep.to_string()],
            other => vec![self.keep.to_string(), other.to_string()],
        }
    }

    fn symbols(&self) -> Symbols {
        Symbols::Sparse { keep: self.keep, precision: self.precision }
    }

    fn quantise(
        &self,
        v: &[f64],
        first: usize,
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        largest(v, first)?;
        let start = message.indices.len();
        message.indices.resize(start + v.len().min(self.keep as usize), 0);
        let subsets = match &mut message.scratch.subsets {
            Some((population, subsets)) if *population >= v.len() => subsets,
            other => &mut other.insert((v.len(), Subsets::new(v.len()))).1,
        };
        subsets.draw(v.len() as u32, stream, &mut message.indices[start..]);
        for index in &message.indices[start..] {
            let x = v[*index as usize];
            message.values.push(match self.precision {
                Precision::F64 => x,
                Precision::F32 => coin::round_to_f32(x, first + *index as usize, stream)?,
            });
        }
        Ok(())
    }

    fn dequantise(&self, rest: &mut Rest<'_>, _shared: &mut Stream, out: &mut [f64]) {
        let kept = out.len().min(self.keep as usize);
        let factor = out.len() as f64 / kept as f64;
        out.fill(0.0);
        let values = take(&mut rest.values, kept);
        for (index, value) in take(&mut rest.indices, kept).iter().zip(values) {
            out[*index as usize] = value * factor;
        }
    }

    /// `d/k - 1`; 0 if all are kept.
    fn omega(&self, d: f64) -> Option<f64> {
        Some((d / f64::from(self.keep) - 1.0).max(0.0))
    }

    fn alpha(&self, _d: f64) -> Option<f64> {
        None
    }

    fn at(&self, precision: Precision) -> Option<Operator> {
        Some(RandK { precision, ..*self }.into())
    }

    /// A coordinate is kept with probability `k/d`, a pair with `k (k - 1) / (d (d - 1))`.
    fn moments(&self, d: usize) -> Option<SecondMoments> {
        let (n, k) = (d as f64, f64::from(self.keep).min(d as f64));
        let squares = n / k;
        let pairs = if d > 1 { n * (k - 1.0) / (k * (n - 1.0)) } else { squares };
        Some(SecondMoments { mean: 1.0, squares, pairs, noise: 0.0 })
    }
}
