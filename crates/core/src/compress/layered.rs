//! Round with a dither that both sides know, so that the error is exactly `N(0, sigma^2)` and
//! independent of the vector.
//!
//! The shifted layered quantiser (`[hegazy24]`, Hegazy, Leluc, Li, Dieuleveut 2024, "Compression
//! with exact error distribution for federated learning"). Let `f` be the density of the error,
//! `f0 = f(0)`, and `b(y) > 0` the point where `f(b) = y`. For a height `y` in `(0, f0)` the layer
//! is the interval `(-b(y), b(f0 - y))`, of width `w(y)`. Integrated over the heights, the layers
//! cover a point z exactly `f(z)` times: for `z < 0` those with `y < f(z)`, for `z > 0` those with
//! `f0 - y < f(z)`. So an error that is uniform on a layer whose height has density `w` has density
//! `f`. (The direct layered quantiser takes `(-b(y), b(y))`; its widths come near 0, so its levels
//! are not bounded. Here the two ends trade: `w >= 2 b(f0/2) = 2.355 sigma`.)
//!
//! Per coordinate both sides draw from the shared stream
//!
//! ```text
//!   z ~ N(0, 1), u ~ U(0, 1)       a point under the graph of f:
//!                                  y = u f(z) if z < 0, else f0 - u f(z), has density w
//!   t ~ U(-1/2, 1/2)               the dither
//!   sender    m = round(x/w + t)
//!   receiver  x' = (m - t) w + c,  c = (b(f0 - y) - b(y))/2
//! ```
//!
//! and `x' - x - c = w (round(x/w + t) - (x/w + t))` is uniform on `(-w/2, w/2)` whatever x is.
//! Draws have 32 bits (the dither 52), so the law is Gaussian up to 9.6 standard deviations and to
//! that resolution.

use super::message::{Message, Rest, Symbols, take};
use super::operator::{CompressorRow, Operator, Quantiser, SecondMoments};
use super::spec::{SpecError, number};
use super::{CompressError, Compressor, MAX_LEVEL, largest};
use crate::rng::Stream;
use crate::simd::{Kernel, cos_sin_turns, exact_f64, exp, ln, run_vectorised, unit};

pub(super) const ROW: CompressorRow = CompressorRow {
    name: "layered",
    usage: "layered(sigma)",
    says: "v + N(0, sigma^2 I), exactly, whatever v is",
    constant: "absolute error",
    examples: &["layered(0.125)", "layered(0.01)"],
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Layered {
    /// Standard deviation of the error.
    sigma: f64,
}

impl Compressor {
    /// Rounding whose error is exactly Gaussian with standard deviation `sigma`. Sender and
    /// receiver must share its stream.
    pub const fn layered(sigma: f64) -> Self {
        Self::whole(Operator::Layered(Layered { sigma }))
    }
}

pub(super) fn read(arguments: &[&str]) -> Result<Option<Layered>, SpecError> {
    Ok(match arguments {
        [sigma] => Some(Layered { sigma: number(sigma)? }),
        _ => None,
    })
}

impl Quantiser for Layered {
    fn row(&self) -> &'static CompressorRow {
        &ROW
    }

    fn arguments(&self) -> Vec<String> {
        vec![self.sigma.to_string()]
    }

    fn check(&self) -> Result<(), SpecError> {
        if self.sigma > 0.0 && self.sigma < f64::INFINITY {
            return Ok(());
        }
        Err(SpecError::Argument {
            text: Operator::from(*self).to_string(),
            must: "the standard deviation must be positive and finite",
        })
    }

    fn symbols(&self) -> Symbols {
        Symbols::Levels { max: MAX_LEVEL, norms: false }
    }

    fn quantise(
        &self,
        v: &[f64],
        first: usize,
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError> {
        largest(v, first)?;
        let mut layers = Layers::new();
        let levels = message.room_for_levels(v.len());
        for (number, (values, out)) in v.chunks(CHUNK).zip(levels.chunks_mut(CHUNK)).enumerate() {
            layers.draw(self.sigma, values.len(), stream);
            for (place, (x, out)) in values.iter().zip(out).enumerate() {
                let level = (x / layers.width[place] + layers.dither[place] + 0.5).floor();
                if level.abs() > f64::from(MAX_LEVEL) {
                    let limit = f64::from(MAX_LEVEL) * layers.width[place];
                    return Err(CompressError::TooLarge {
                        coordinate: first + number * CHUNK + place,
                        value: *x,
                        limit,
                    });
                }
                *out = level as i32;
            }
        }
        Ok(())
    }

    fn dequantise(&self, rest: &mut Rest<'_>, shared: &mut Stream, out: &mut [f64]) {
        let mut layers = Layers::new();
        let levels = take(&mut rest.levels, out.len());
        for (values, levels) in out.chunks_mut(CHUNK).zip(levels.chunks(CHUNK)) {
            layers.draw(self.sigma, values.len(), shared);
            for (place, (x, level)) in values.iter_mut().zip(levels).enumerate() {
                *x = (f64::from(*level) - layers.dither[place]) * layers.width[place]
                    + layers.centre[place];
            }
        }
    }

    fn omega(&self, _d: f64) -> Option<f64> {
        None
    }

    fn alpha(&self, _d: f64) -> Option<f64> {
        None
    }

    fn shares_stream(&self) -> bool {
        true
    }

    fn moments(&self, _d: usize) -> Option<SecondMoments> {
        Some(SecondMoments { mean: 1.0, squares: 1.0, pairs: 1.0, noise: self.sigma * self.sigma })
    }
}

/// Coordinates whose layers are drawn at once.
const CHUNK: usize = 64;
/// Random words a coordinate: a point under the graph (3), the dither (2).
const WORDS: usize = 5;

/// Intervals of errors, and dithers.
struct Layers {
    width: [f64; CHUNK],
    centre: [f64; CHUNK],
    dither: [f64; CHUNK],
}

impl Layers {
    fn new() -> Self {
        Layers { width: [0.0; CHUNK], centre: [0.0; CHUNK], dither: [0.0; CHUNK] }
    }

    /// The layers of the next `count <= CHUNK` coordinates: `count` first words of each, then
    /// `count` second words, and so on.
    fn draw(&mut self, sigma: f64, count: usize, stream: &mut Stream) {
        let mut words = [[0; CHUNK]; WORDS];
        for row in &mut words {
            stream.words(&mut row[..count]);
        }
        run_vectorised(Shaping { layers: self, sigma, words: &words });
    }
}

struct Shaping<'a> {
    layers: &'a mut Layers,
    sigma: f64,
    words: &'a [[u32; CHUNK]; WORDS],
}

impl Kernel for Shaping<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Shaping { layers, sigma, words: [radius, angle, height, upper, lower] } = self;
        for k in 0..CHUNK {
            // -ln(y/f0), or -ln(1 - y/f0), is z^2/2 - ln u, with z^2/2 = -ln(u') cos^2 by Box and
            // Muller; the sign of z says which.
            let (cos, _) = cos_sin_turns(angle[k]);
            let depth = -ln(unit(height[k])) - ln(unit(radius[k])) * cos * cos;
            let far = (2.0 * depth).sqrt();
            let near = (-2.0 * ln(1.0 - exp(-depth))).sqrt();
            let (left, right) = if cos < 0.0 { (far, near) } else { (near, far) };
            layers.width[k] = sigma * (left + right);
            layers.centre[k] = sigma * 0.5 * (right - left);
            // 52 bits: the upper word and most of the lower.
            let whole = exact_f64(u64::from(upper[k]) << 20 | u64::from(lower[k] >> 12));
            layers.dither[k] = (whole + 0.5) * (1.0 / 4_503_599_627_370_496.0) - 0.5;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    #[test]
    fn layers_are_never_narrower_than_two_half_height_points() {
        let mut layers = Layers::new();
        let (mut least, mut mean) = (f64::INFINITY, 0.0);
        for round in 0..2000 {
            layers.draw(3.0, CHUNK, &mut Seed::new(1).stream(Purpose::Compress, SERVER, round));
            for k in 0..CHUNK {
                least = least.min(layers.width[k]);
                mean += layers.width[k] / (2000.0 * CHUNK as f64);
                assert!(
                    layers.dither[k].abs() < 0.5 && layers.centre[k].abs() < layers.width[k] / 2.0
                );
            }
        }
        let half = 3.0 * 2.0 * (2.0 * 2f64.ln()).sqrt();
        assert!(least >= half * (1.0 - 1e-12) && least < half * 1.001, "{least} {half}");
        // E width = int w^2 dy over (0, f0), by quadrature in units of sigma: 2.9012.
        let n = 200_000;
        let exact = (0..n)
            .map(|k| (k as f64 + 0.5) / f64::from(n))
            .map(|r| ((-2.0 * r.ln()).sqrt() + (-2.0 * (1.0 - r).ln()).sqrt()).powi(2))
            .sum::<f64>()
            / (f64::from(n) * std::f64::consts::TAU.sqrt());
        assert!(
            (mean / 3.0 - exact).abs() < 4.9 * 0.6 / (2000.0 * CHUNK as f64).sqrt(),
            "{} {exact}",
            mean / 3.0
        );
    }

    #[test]
    fn levels_beyond_the_limit_are_refused() {
        let mut stream = Seed::new(1).stream(Purpose::Compress, SERVER, 0);
        let fine = Layered { sigma: 1e-12 };
        let error = fine.quantise(&[0.0, 1.0], 5, &mut stream, &mut Message::new()).unwrap_err();
        assert!(
            matches!(error, CompressError::TooLarge { coordinate: 6, value: 1.0, .. }),
            "{error}"
        );
    }
}
