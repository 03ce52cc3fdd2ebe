//! Keep `k` coordinates chosen uniformly without replacement, times `d/k`.
//!
//! The receiver multiplies by `d/k`. A kept number travels as 32 bits, one of its two 32-bit
//! neighbours with mean exact: half the bits of a double for a relative variance below 2^-48.
//! `rand_k(k, f64)` sends the doubles.

use super::message::{Message, Rest, take};
use super::{CompressError, Precision, coin, largest};
use crate::rng::{Stream, Subsets};

/// `d/k - 1`; 0 if all are kept.
pub(super) fn omega(keep: u32, d: f64) -> f64 {
    (d / f64::from(keep) - 1.0).max(0.0)
}

pub(super) fn quantise(
    keep: u32,
    precision: Precision,
    v: &[f64],
    first: usize,
    stream: &mut Stream,
    message: &mut Message,
) -> Result<(), CompressError> {
    largest(v, first)?;
    let start = message.indices.len();
    message.indices.resize(start + v.len().min(keep as usize), 0);
    let subsets = match &mut message.scratch.subsets {
        Some((population, subsets)) if *population >= v.len() => subsets,
        other => &mut other.insert((v.len(), Subsets::new(v.len()))).1,
    };
    subsets.draw(v.len() as u32, stream, &mut message.indices[start..]);
    for index in &message.indices[start..] {
        let x = v[*index as usize];
        message.values.push(match precision {
            Precision::F64 => x,
            Precision::F32 => coin::round_to_f32(x, first + *index as usize, stream)?,
        });
    }
    Ok(())
}

pub(super) fn dequantise(keep: u32, rest: &mut Rest<'_>, out: &mut [f64]) {
    let kept = out.len().min(keep as usize);
    let factor = out.len() as f64 / kept as f64;
    out.fill(0.0);
    for (index, value) in take(&mut rest.indices, kept).iter().zip(take(&mut rest.values, kept)) {
        out[*index as usize] = value * factor;
    }
}
