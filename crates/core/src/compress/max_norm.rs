//! Round every coordinate to one of `s` levels of the largest at random, with mean exact: TernGrad
//! (`[wen17]`) for `s = 1`.
//!
//! As `qsgd`, with `m = max |v_j|` in place of the norm. A level has more to say of a small
//! coordinate, since `m` is smaller than the norm: the variance is a fraction of `qsgd`'s at the
//! same number of levels, and the messages are longer.
//!
//! The bound. With `u_j = s |v_j| / m` in `[0, s]` and its fraction `p_j`, the error is
//! `(m/s)^2 sum p_j (1 - p_j)` and the vector's square `(m/s)^2 sum u_j^2`. One `u_j` is `s` and
//! adds no error; for the others a given `p` counts most at `u = p`. What is left is the largest
//! value of `u (1 - u) / (c + u^2)` with `c = s^2 / (d - 1)`. It lies at `u = sqrt(c^2 + c) - c`,
//! and is `(sqrt(1 + 1/c) - 1) / 2`: attained where all other coordinates are equal to that.

use super::message::{Message, Rest, Symbols};
use super::operator::{CompressorRow, Operator, Quantiser, Spread};
use super::qsgd::{check_levels, rebuild_shares, round_to_shares, round_up};
use super::spec::{SpecError, number};
use super::{CompressError, Compressor, largest};
use crate::rng::Stream;

pub(super) const ROW: CompressorRow = CompressorRow {
    name: "max_norm",
    usage: "max_norm(s)",
    says: "stochastic rounding of `s abs(v_j) / max abs(v)` to an integer level, with sign and max",
    constant: "omega = (sqrt(1 + (d - 1)/s^2) - 1)/2",
    examples: &["max_norm(1)", "max_norm(4)", "max_norm(1000)"],
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MaxNorm {
    /// `s`, the number of levels above zero.
    levels: u32,
}

impl Compressor {
    /// Stochastic rounding to `levels` levels of the largest coordinate.
    pub const fn max_norm(levels: u32) -> Self {
        Self::whole(Operator::MaxNorm(MaxNorm { levels }))
    }
}

pub(super) fn read(arguments: &[&str]) -> Result<Option<MaxNorm>, SpecError> {
    Ok(match arguments {
        [levels] => Some(MaxNorm { levels: number(levels)? }),
        _ => None,
    })
}

impl Quantiser for MaxNorm {
    fn row(&self) -> &'static CompressorRow {
        &ROW
    }

    fn arguments(&self) -> Vec<String> {
        vec![self.levels.to_string()]
    }

    fn check(&self) -> Result<(), SpecError> {
        check_levels(self.levels, || Operator::from(*self))
    }

    fn symbols(&self) -> Symbols {
        Symbols::Levels { max: self.levels, norms: true }
    }

    /// The largest of `d` normal numbers is about `sqrt(2 ln d)` standard deviations.
    fn spread(&self, length: usize) -> Spread {
        Spread::Normal { square: u64::from(length.max(1).ilog2()) + 1, exact: false }
    }

    fn quantise(
        &self,
        v: &[f64],
        first: usize,
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        let top = round_up(largest(v, first)?, first)?;
        round_to_shares(self.levels, top, v, stream, message);
        Ok(())
    }

    fn dequantise(&self, rest: &mut Rest<'_>, _shared: &mut Stream, out: &mut [f64]) {
        rebuild_shares(self.levels, rest, out);
    }

    fn omega(&self, d: f64) -> Option<f64> {
        let s = f64::from(self.levels);
        Some(0.5 * ((1.0 + (d - 1.0) / (s * s)).sqrt() - 1.0))
    }

    fn alpha(&self, _d: f64) -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    /// The error of a vector is `(m/s)^2 sum p (1 - p)`: no vector has more than the bound, and the
    /// one of the proof has as much.
    #[test]
    fn the_bound_is_the_least() {
        let error = |levels: f64, v: &[f64]| {
            let step = v.iter().fold(0.0f64, |top, x| top.max(x.abs())) / levels;
            let one = |x: &f64| (x.abs() / step).fract() * (1.0 - (x.abs() / step).fract());
            let size: f64 = v.iter().map(|x| x * x).sum();
            step * step * v.iter().map(one).sum::<f64>() / size
        };
        for (levels, d) in [(1u32, 2usize), (1, 100), (3, 10), (4, 1000), (20, 50)] {
            let omega = MaxNorm { levels }.omega(d as f64).unwrap();
            let s = f64::from(levels);
            let c = s * s / (d as f64 - 1.0);
            let mut worst = vec![((c * c + c).sqrt() - c) / s; d];
            worst[d / 2] = -1.0;
            assert!((error(s, &worst) / omega - 1.0).abs() < 1e-12, "{levels} {d}");
            for round in 0..1000 {
                let mut v = vec![0.0; d];
                Seed::new(1).stream(Purpose::Data, SERVER, round).normals(&mut v);
                assert!(error(s, &v) <= omega, "{levels} {d}");
            }
        }
        assert_eq!(MaxNorm { levels: 7 }.omega(1.0), Some(0.0)); // one coordinate is exact
    }

    /// The mean squared error of what is sent is that of the formula.
    #[test]
    fn what_is_sent_has_the_error_of_the_formula() {
        let (v, levels, n) = ([0.2, -0.9, 1.3, 0.0, 0.05, 1.0, -0.4], 3, 40_000);
        let step = 1.3f64 / 3.0;
        let share = |x: &f64| (x.abs() / step).fract();
        let expected: f64 = v.iter().map(|x| step * step * share(x) * (1.0 - share(x))).sum();
        let compressor = Compressor::max_norm(levels);
        let (mut message, mut out) = (Message::new(), [0.0; 7]);
        let (mut total, mut squares) = (0.0, 0.0);
        for round in 0..n {
            let mut stream = Seed::new(2).stream(Purpose::Compress, SERVER, round);
            compressor.quantise(&v, &mut stream, &mut message).unwrap();
            message.dequantise(&mut stream, &mut out).unwrap();
            assert!((out[2] - 1.3).abs() < 1e-7 && out[3] == 0.0);
            let error: f64 = out.iter().zip(&v).map(|(a, b)| (a - b) * (a - b)).sum();
            total += error;
            squares += error * error;
        }
        let mean = total / n as f64;
        let spread = ((squares / n as f64 - mean * mean) / n as f64).sqrt();
        // 1e-6 false alarms; the largest travels as 32 bits, rounded up
        assert!((mean - expected).abs() < 4.9 * spread + 1e-6, "{mean} {expected} {spread}");
        // and it would notice the error of qsgd, whose levels are shares of the norm
        let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt() / 3.0;
        let of_norm = |x: &f64| (x.abs() / norm).fract() * (1.0 - (x.abs() / norm).fract());
        let other: f64 = v.iter().map(|x| norm * norm * of_norm(x)).sum();
        assert!((mean - other).abs() > 4.9 * spread, "{other}");
    }
}
