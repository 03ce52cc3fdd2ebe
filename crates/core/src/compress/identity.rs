//! Send every coordinate as a number: 64 bits exactly, or 32 bits rounded to nearest (a bias of at
//! most 2^-25 of each coordinate).

use super::message::{Message, Rest, Symbols, take};
use super::operator::{CompressorRow, Operator, Quantiser};
use super::spec::{SpecError, read_precision};
use super::{CompressError, Compressor, Precision, coin, largest};
use crate::rng::Stream;

pub(super) const ROW: CompressorRow = CompressorRow {
    name: "identity",
    usage: "identity(f32|f64)",
    says: "nothing, but for rounding to the precision",
    constant: "omega = 0, alpha = 1",
    examples: &["identity(f32)", "identity(f64)"],
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Identity {
    precision: Precision,
}

impl Compressor {
    /// The vector itself, at 32 bits a coordinate (rounded to nearest) or 64 (exactly).
    pub const fn identity(precision: Precision) -> Self {
        Self::whole(Operator::Identity(Identity { precision }))
    }
}

pub(super) fn read(arguments: &[&str]) -> Result<Option<Identity>, SpecError> {
    Ok(match arguments {
        [] => Some(Identity { precision: Precision::F32 }),
        [precision] => Some(Identity { precision: read_precision(precision)? }),
        _ => None,
    })
}

impl Quantiser for Identity {
    fn row(&self) -> &'static CompressorRow {
        &ROW
    }

    fn arguments(&self) -> Vec<String> {
        vec![self.precision.to_string()]
    }

    fn symbols(&self) -> Symbols {
        Symbols::Numbers(self.precision)
    }

    fn quantise(
        &self,
        v: &[f64],
        first: usize,
        _stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        let top = largest(v, first)?;
        match self.precision {
            Precision::F64 => message.values.extend_from_slice(v),
            Precision::F32 => {
                if (top as f32).is_infinite() {
                    let place = v.iter().position(|x| (*x as f32).is_infinite()).unwrap_or(0);
                    coin::nearest_f32(v[place], first + place)?;
                }
                message.values.extend(v.iter().map(|x| f64::from(*x as f32)));
            }
        }
        Ok(())
    }

    fn dequantise(&self, rest: &mut Rest<'_>, _shared: &mut Stream, out: &mut [f64]) {
        out.copy_from_slice(take(&mut rest.values, out.len()));
    }

    fn omega(&self, _d: f64) -> Option<f64> {
        Some(0.0)
    }

    fn alpha(&self, _d: f64) -> Option<f64> {
        Some(1.0)
    }

    fn draws(&self) -> bool {
        false
    }

    fn at(&self, precision: Precision) -> Option<Operator> {
        Some(Identity { precision }.into())
    }

    fn plain(&self) -> Option<Precision> {
        Some(self.precision)
    }
}
