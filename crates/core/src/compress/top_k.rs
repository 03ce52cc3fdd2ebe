//! Keep the `k` coordinates that are largest in absolute value; among equals the lowest index wins.
//!
//! Kept numbers travel as 32 bits rounded to nearest: the operator is biased anyway, and the
//! rounding adds a relative 2^-50 to what is lost.

use super::kept::KeptCoordinates;
use super::message::{Message, Rest, Symbols};
use super::operator::{CompressorRow, Operator, Quantiser};
use super::spec::SpecError;
use super::{CompressError, Compressor, Precision, coin, largest};
use crate::rng::Stream;
use crate::simd::{LANES, wide};
use std::cmp::Reverse;

pub(super) const ROW: CompressorRow = CompressorRow {
    name: "top_k",
    usage: "top_k(k)",
    says: "the k largest in absolute value; ties: lowest index",
    constant: "alpha = k/d",
    examples: &["top_k(1)", "top_k(3, f64)", "top_k(4)"],
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TopK(KeptCoordinates);

impl Compressor {
    /// The `keep` largest coordinates, as 32-bit numbers; among equals the lowest index wins.
    pub const fn top_k(keep: u32) -> Self {
        Self::whole(Operator::TopK(TopK(KeptCoordinates::new(keep))))
    }
}

pub(super) fn read(arguments: &[&str]) -> Result<Option<TopK>, SpecError> {
    Ok(KeptCoordinates::read(arguments)?.map(TopK))
}

impl Quantiser for TopK {
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
        _stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        let top = largest(v, first)?;
        let kept = self.0.of(v.len());
        let order = &mut message.scratch.order;
        order.clear();
        if kept == 1 {
            order.extend(first_of_size(v, top)); // no need to sort for the one that is known
        } else {
            order.extend(0..v.len() as u32);
        }
        if 1 < kept && kept < v.len() {
            // Absolute values in the order of their bits, which for them is the order of numbers.
            order.select_nth_unstable_by_key(kept, |index| {
                (Reverse(v[*index as usize].abs().to_bits()), *index)
            });
            order[..kept].sort_unstable();
        }
        for index in &order[..kept] {
            let x = v[*index as usize];
            message.indices.push(*index);
            message.values.push(match self.0.precision {
                Precision::F64 => x,
                Precision::F32 => coin::nearest_f32(x, first + *index as usize)?,
            });
        }
        Ok(())
    }

    fn dequantise(&self, rest: &mut Rest<'_>, _shared: &mut Stream, out: &mut [f64]) {
        self.0.rebuild(1.0, rest, out);
    }

    fn omega(&self, _d: f64) -> Option<f64> {
        None
    }

    /// `k/d`; 1 if all are kept.
    fn alpha(&self, d: f64) -> Option<f64> {
        Some((f64::from(self.0.count) / d).min(1.0))
    }

    fn draws(&self) -> bool {
        false
    }

    fn at(&self, precision: Precision) -> Option<Operator> {
        Some(TopK(KeptCoordinates { precision, ..self.0 }).into())
    }
}

wide! {
    /// The first coordinate of this absolute value.
    fn first_of_size<'a>(v: &'a [f64], size: f64) -> Option<u32> {
        let (whole, _) = v.as_chunks::<LANES>();
        let mut block = 0;
        for eight in whole {
            let mut found = false;
            for lane in 0..LANES {
                found |= eight[lane].abs() == size;
            }
            if found {
                break;
            }
            block += 1;
        }
        for (index, x) in v.iter().enumerate().skip(block * LANES) {
            if x.abs() == size {
                return Some(index as u32);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    fn kept(keep: u32, v: &[f64]) -> Vec<u32> {
        let mut message = Message::new();
        let mut stream = Seed::new(1).stream(Purpose::Compress, SERVER, 0);
        let top = TopK(KeptCoordinates::new(keep));
        top.quantise(v, 0, &mut stream, &mut message).unwrap();
        message.indices
    }

    #[test]
    fn ties_go_to_the_lowest_index() {
        assert_eq!(kept(2, &[1.0, -1.0, 1.0, -1.0]), [0, 1]);
        assert_eq!(kept(2, &[0.0, -1.0, 2.0, 1.0]), [1, 2]);
        assert_eq!(kept(3, &[0.0; 5]), [0, 1, 2]);
        assert_eq!(kept(5, &[1.0, 2.0]), [0, 1]);
        assert_eq!(kept(1, &[0.0; 5]), [0]);
        assert_eq!(kept(1, &[7.0]), [0]);
        for places in [[3, 5], [7, 8], [8, 9], [15, 16], [18, 19]] {
            let mut v = vec![0.5; 20];
            v[places[0]] = -2.0;
            v[places[1]] = 2.0;
            assert_eq!(kept(1, &v), [places[0] as u32]);
        }
        let mut many = vec![1.0; 10_000];
        many[7000] = -3.0;
        assert_eq!(kept(4, &many), [0, 1, 2, 7000]);
    }
}
