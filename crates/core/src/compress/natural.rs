//! Round every coordinate to a power of two at random, with mean exact (`[horvath19]`, natural compression).
//!
//! `|v_j|` in `[2^e, 2^(e+1))` goes up with probability `|v_j| / 2^e - 1`, which is the fraction that its mantissa holds. Powers are those of
//! normal 32-bit numbers, `2^-126 ..= 2^127`: sign and power fit nine bits. A smaller coordinate is sent as 0 or `2^-126`, with mean exact. The level is the
//! power's biased exponent, 0 standing for 0.

use super::coin::{self, Grid};
use super::message::{Message, Rest, take};
use super::{CompressError, largest};
use crate::lanes::exact_f64;
use crate::rng::Stream;

/// The relative variance of x in [1, 2) is `(x - 1)(2 - x)/x^2`, at most 1/8, at x = 4/3.
pub(super) const OMEGA: f64 = 0.125;
/// The largest level.
pub(super) const MAX: u32 = 254;

const BIAS: i32 = 127;
const MANTISSA: u32 = 52;

pub(super) fn quantise(v: &[f64], first: usize, stream: &mut Stream, message: &mut Message) -> Result<(), CompressError> {
    let limit = power(MAX as i32);
    if largest(v, first)? > limit {
        let place = v.iter().position(|x| x.abs() > limit).unwrap_or(0);
        return Err(CompressError::TooLarge { coordinate: first + place, value: v[place], limit });
    }
    coin::round_to_levels(v, stream, message.room_for_levels(v.len()), Powers);
    Ok(())
}

/// The levels are powers of two.
#[derive(Clone, Copy)]
struct Powers;

impl Powers {
    /// The power below, and the chance of the one above in units of 2^-16.
    #[inline(always)]
    fn neighbours(size: f64) -> (f64, f64) {
        let bits = size.to_bits();
        let fraction = f64::from_bits((bits & ((1 << MANTISSA) - 1)) | 1023 << MANTISSA) - 1.0;
        let level = exact_f64(bits >> MANTISSA) - f64::from(1023 - BIAS);
        if level < 1.0 { (0.0, size * (coin::CELLS / power(1))) } else { (level, fraction * coin::CELLS) }
    }
}

impl Grid for Powers {
    #[inline(always)]
    fn locate(self, size: f64) -> u64 {
        let (level, chance) = Self::neighbours(size);
        coin::place(level, chance)
    }

    fn remainder(self, size: f64) -> f64 {
        let (_, chance) = Self::neighbours(size);
        chance - coin::floor(chance)
    }
}

pub(super) fn dequantise(rest: &mut Rest<'_>, out: &mut [f64]) {
    let sent = take(&mut rest.levels, out.len());
    for (x, level) in out.iter_mut().zip(sent) {
        let size = if *level == 0 { 0.0 } else { power(level.abs()) };
        *x = if *level < 0 { -size } else { size };
    }
}

/// `2^(level - 127)`.
#[inline(always)]
fn power(level: i32) -> f64 {
    f64::from_bits(((level - BIAS + 1023) as u64) << MANTISSA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    #[test]
    fn powers_of_two_stay_and_others_go_to_a_neighbour() {
        let mut stream = Seed::new(1).stream(Purpose::Compress, SERVER, 0);
        let limit = 2f64.powi(127);
        for x in [1.0, -2.0, 0.5, limit, -limit, 2f64.powi(-126), 0.0, 1.5, -0.7, 3e-39, 5e-324] {
            let mut message = Message::new();
            for _ in 0..50 {
                quantise(&[x], 0, &mut stream, &mut message).unwrap();
            }
            for level in message.levels {
                let mut out = [0.0];
                dequantise(&mut Rest { scales: &[], levels: &[level], indices: &[], values: &[] }, &mut out);
                let (low, high) = if x.abs() < power(1) { (0.0, power(1)) } else { (x.abs() / 2.0, x.abs() * 2.0) };
                assert!(x == out[0] || low <= out[0].abs() && out[0].abs() < high.next_up() && out[0] * x >= 0.0, "{x} {}", out[0]);
            }
        }
        assert_eq!(
            quantise(&[0.0, -limit.next_up()], 3, &mut stream, &mut Message::new()),
            Err(CompressError::TooLarge { coordinate: 4, value: -limit.next_up(), limit })
        );
    }
}
