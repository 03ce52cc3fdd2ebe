//! Keep `k` coordinates chosen uniformly without replacement, times `d/k`.
//!
//! The receiver multiplies by `d/k`. A kept number travels as 32 bits, one of its two 32-bit
//! neighbours with mean exact: half the bits of a double for a relative variance below 2^-48.
//! `rand_k(k, f64)` sends the doubles.

use super::kept::KeptCoordinates;
use super::message::{Message, Rest, Symbols};
use super::operator::{CompressorRow, Operator, Quantiser, SecondMoments};
use super::spec::SpecError;
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
pub(super) struct RandK(KeptCoordinates);

impl Compressor {
    /// `keep` coordinates chosen uniformly without replacement, as 32-bit numbers rounded without
    /// bias.
    pub const fn rand_k(keep: u32) -> Self {
        Self::whole(Operator::RandK(RandK(KeptCoordinates::new(keep))))
    }
}

pub(super) fn read(arguments: &[&str]) -> Result<Option<RandK>, SpecError> {
    Ok(KeptCoordinates::read(arguments)?.map(RandK))
}

impl Quantiser for RandK {
    fn row(&self) -> &'static CompressorRow {
        &ROW
    }

    fn arguments(&self) -> Vec<String> {
        self.0.arguments()
    }

    fn symbols(&self) -> Symbols {
        self.0.symbols()
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
        message.indices.resize(start + self.0.of(v.len()), 0);
        let subsets = match &mut message.scratch.subsets {
            Some((population, subsets)) if *population >= v.len() => subsets,
            other => &mut other.insert((v.len(), Subsets::new(v.len()))).1,
        };
        subsets.draw(v.len() as u32, stream, &mut message.indices[start..]);
        for index in &message.indices[start..] {
            let x = v[*index as usize];
            message.values.push(match self.0.precision {
                Precision::F64 => x,
                Precision::F32 => coin::round_to_f32(x, first + *index as usize, stream)?,
            });
        }
        Ok(())
    }

    fn dequantise(&self, rest: &mut Rest<'_>, _shared: &mut Stream, out: &mut [f64]) {
        let factor = out.len() as f64 / self.0.of(out.len()) as f64;
        self.0.rebuild(factor, rest, out);
    }

    /// `d/k - 1`; 0 if all are kept.
    fn omega(&self, d: f64) -> Option<f64> {
        Some((d / f64::from(self.0.count) - 1.0).max(0.0))
    }

    fn alpha(&self, _d: f64) -> Option<f64> {
        None
    }

    fn at(&self, precision: Precision) -> Option<Operator> {
        Some(RandK(KeptCoordinates { precision, ..self.0 }).into())
    }

    /// A coordinate is kept with probability `k/d`, a pair with `k (k - 1) / (d (d - 1))`.
    fn moments(&self, d: usize) -> Option<SecondMoments> {
        let (n, k) = (d as f64, f64::from(self.0.count).min(d as f64));
        let squares = n / k;
        let pairs = if d > 1 { n * (k - 1.0) / (k * (n - 1.0)) } else { squares };
        Some(SecondMoments { mean: 1.0, squares, pairs, noise: 0.0 })
    }
}
