//! Round every coordinate to a power of two at random, with mean exact (`[horvath19]`, natural
//! compression).
//!
//! `|v_j|` in `[2^e, 2^(e+1))` goes up with probability `|v_j| / 2^e - 1`, which is the fraction
//! that its mantissa holds. Powers are those of normal 32-bit numbers, `2^-126 ..= 2^127`: sign and
//! power fit nine bits. A smaller coordinate is sent as 0 or `2^-126`, with mean exact. The level
//! is the power's biased exponent, 0 standing for 0.

use super::coin::{self, Grid};
use super::message::{Message, Rest, Symbols, take};
use super::operator::{CompressorRow, Operator, Quantiser, Spread};
use super::spec::SpecError;
use super::{CompressError, Compressor, largest};
use crate::rng::Stream;
use crate::simd::exact_f64;

pub(super) const ROW: CompressorRow = CompressorRow {
    name: "natural",
    usage: "natural",
    says: "stochastic rounding of abs(v_j) to a power of two",
    constant: "omega = 1/8",
    examples: &["natural"],
};

/// The relative variance of x in [1, 2) is `(x - 1)(2 - x)/x^2`, at most 1/8, at x = 4/3.
const OMEGA: f64 = 0.125;
/// The largest level.
const MAX: u32 = 254;

const BIAS: i32 = 127;
const MANTISSA: u32 = 52;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Natural;

impl Compressor {
    /// Stochastic rounding to powers of two.
    pub const fn natural() -> Self {
        Self::whole(Operator::Natural(Natural))
    }
}

pub(super) fn read(arguments: &[&str]) -> Result<Option<Natural>, SpecError> {
    Ok(arguments.is_empty().then_some(Natural))
}

impl Quantiser for Natural {
    fn row(&self) -> &'static CompressorRow {
        &ROW
    }

    fn arguments(&self) -> Vec<String> {
        Vec::new()
    }

    fn symbols(&self) -> Symbols {
        Symbols::Levels { max: MAX, norms: false }
    }

    fn spread(&self, _length: usize) -> Spread {
        Spread::Exponents
    }

    fn quantise(
        &self,
        v: &[f64],
        first: usize,
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        let limit = power(MAX as i32);
        if largest(v, first)? > limit {
            let place = v.iter().position(|x| x.abs() > limit).unwrap_or(0);
            let (coordinate, value) = (first + place, v[place]);
            return Err(CompressError::TooLarge { coordinate, value, limit });
        }
        coin::round_to_levels(v, stream, message.room_for_levels(v.len()), Powers);
        Ok(())
    }

    fn dequantise(&self, rest: &mut Rest<'_>, _shared: &mut Stream, out: &mut [f64]) {
        let sent = take(&mut rest.levels, out.len());
        for (x, level) in out.iter_mut().zip(sent) {
            let size = if *level == 0 { 0.0 } else { power(level.abs()) };
            *x = if *level < 0 { -size } else { size };
        }
    }

    fn omega(&self, _d: f64) -> Option<f64> {
        Some(OMEGA)
    }

    fn alpha(&self, _d: f64) -> Option<f64> {
        None
    }
}

/// The levels are powers of two.
#[derive(Clone, Copy)]
struct Powers;

impl Powers {
    /// The cell of `size = |x|`, and how far into it that lies.
    #[inline(always)]
    fn locate(size: f64) -> (i64, f64) {
        let bits = size.to_bits();
        let fraction = f64::from_bits((bits & ((1 << MANTISSA) - 1)) | 1023 << MANTISSA) - 1.0;
        let level = (bits >> MANTISSA) as i64 - (1023 - i64::from(BIAS));
        let (level, chance) = if level < 1 {
            (0, size * (coin::CELLS / power(1)))
        } else {
            (level, fraction * coin::CELLS)
        };
        let cell = coin::floor(chance);
        ((level << 16) + cell, chance - exact_f64(cell as u64))
    }
}

impl Grid for Powers {
    const NARROW: bool = true;

    #[inline(always)]
    fn cell(self, x: f64) -> i64 {
        let (cell, fraction) = Self::locate(x.abs());
        if x < 0.0 { -cell - i64::from(fraction > 0.0) } else { cell }
    }

    fn fraction(self, size: f64) -> f64 {
        Self::locate(size).1
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
                Natural.quantise(&[x], 0, &mut stream, &mut message).unwrap();
            }
            for level in message.levels {
                let mut out = [0.0];
                let mut rest = Rest { scales: &[], levels: &[level], indices: &[], values: &[] };
                Natural.dequantise(&mut rest, &mut stream, &mut out);
                let (low, high) = if x.abs() < power(1) {
                    (0.0, power(1))
                } else {
                    (x.abs() / 2.0, x.abs() * 2.0)
                };
                assert!(
                    x == out[0]
                        || low <= out[0].abs()
                            && out[0].abs() < high.next_up()
                            && out[0] * x >= 0.0,
                    "{x} {}",
                    out[0]
                );
            }
        }
        assert_eq!(
            Natural.quantise(&[0.0, -limit.next_up()], 3, &mut stream, &mut Message::new()),
            Err(CompressError::TooLarge { coordinate: 4, value: -limit.next_up(), limit })
        );
    }
}
