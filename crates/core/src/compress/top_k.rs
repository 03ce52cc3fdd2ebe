//! Keep the `k` coordinates that are largest in absolute value; among equals the lowest index wins.
//!
//! Kept numbers travel as 32 bits rounded to nearest: the operator is biased anyway, and the
//! rounding adds a relative 2^-50 to what is lost.

use super::message::{Message, Rest, take};
use super::{CompressError, Precision, coin, largest};
use crate::simd::{LANES, wide};
use std::cmp::Reverse;

/// `k/d`; 1 if all are kept.
pub(super) fn alpha(keep: u32, d: f64) -> f64 {
    (f64::from(keep) / d).min(1.0)
}

pub(super) fn quantise(
    keep: u32,
    precision: Precision,
    v: &[f64],
    first: usize,
    message: &mut Message,
) -> Result<(), CompressError> {
    let top = largest(v, first)?;
    let kept = v.len().min(keep as usize);
    let order = &mut message.scratch.order;
    order.clear();
    if kept == 1 {
        order.extend(first_of_size(v, top)); // no need to sort for the one that is known already
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
        message.values.push(match precision {
            Precision::F64 => x,
            Precision::F32 => coin::nearest_f32(x, first + *index as usize)?,
        });
    }
    Ok(())
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

pub(super) fn dequantise(keep: u32, rest: &mut Rest<'_>, out: &mut [f64]) {
    let kept = out.len().min(keep as usize);
    out.fill(0.0);
    for (index, value) in take(&mut rest.indices, kept).iter().zip(take(&mut rest.values, kept)) {
        out[*index as usize] = *value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(keep: u32, v: &[f64]) -> Vec<u32> {
        let mut message = Message::new();
        quantise(keep, Precision::F32, v, 0, &mut message).unwrap();
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
