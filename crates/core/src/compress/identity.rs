//! Send every coordinate as a number: 64 bits exactly, or 32 bits rounded to nearest (a bias of at
//! most 2^-25 of each coordinate).

use super::message::{Message, Rest, take};
use super::{CompressError, Precision, coin, largest};

pub(super) fn quantise(
    precision: Precision,
    v: &[f64],
    first: usize,
    message: &mut Message,
) -> Result<(), CompressError> {
    let top = largest(v, first)?;
    match precision {
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

pub(super) fn dequantise(rest: &mut Rest<'_>, out: &mut [f64]) {
    out.copy_from_slice(take(&mut rest.values, out.len()));
}
