//! Round with a dither that both sides know, so that the error is exactly `N(0, sigma^2)` and independent of the vector.
//!
//! The shifted layered quantiser ([hegazy24], Hegazy, Leluc, Li, Dieuleveut 2024, "Compression with exact error distribution for federated
//! learning"). Let `f` be the density of the error, `f0 = f(0)`, and `b(y) > 0` the point where `f(b) = y`. For a height `y` in `(0, f0)`
//! the layer is the interval `(-b(y), b(f0 - y))`, of width `w(y)`. Integrated over the heights, the layers cover a point z exactly `f(z)` times: for
//! `z < 0` those with `y < f(z)`, for `z > 0` those with `f0 - y < f(z)`. So an error that is uniform on a layer whose height has
//! density `w` has density `f`. (The direct layered quantiser takes `(-b(y), b(y))`; its widths come near 0, so its levels are not
//! bounded. Here the two ends trade: `w >= 2 b(f0/2) = 2.355 sigma`.)
//!
//! Per coordinate both sides draw from the shared stream
//!
//! ```text
//!   z ~ N(0, 1), u ~ U(0, 1)       a point under the graph of f: y = u f(z) if z < 0, else f0 - u f(z), has density w
//!   t ~ U(-1/2, 1/2)               the dither
//!   sender    m = round(x/w + t)
//!   receiver  x' = (m - t) w + c,  c = (b(f0 - y) - b(y))/2
//! ```
//!
//! and `x' - x - c = w (round(x/w + t) - (x/w + t))` is uniform on `(-w/2, w/2)` whatever x is. Draws have 32 bits (the dither 53), so the law is
//! Gaussian up to 9.6 standard deviations and to that resolution.

use super::message::{Message, Rest, take};
use super::{CompressError, MAX_LEVEL, largest};
use crate::lanes::{cos_sin_turns, exp, ln, unit, vectorised};
use crate::rng::Stream;

pub(super) fn quantise(sigma: f64, v: &[f64], first: usize, stream: &mut Stream, message: &mut Message) -> Result<(), CompressError> {
    largest(v, first)?;
    let mut layers = [Layer::default(); CHUNK];
    for (number, values) in v.chunks(CHUNK).enumerate() {
        draw(sigma, stream, &mut layers[..values.len()]);
        for (place, (x, layer)) in values.iter().zip(&layers).enumerate() {
            let level = (x / layer.width + layer.dither + 0.5).floor();
            if level.abs() > f64::from(MAX_LEVEL) {
                let limit = f64::from(MAX_LEVEL) * layer.width;
                return Err(CompressError::TooLarge { coordinate: first + number * CHUNK + place, value: *x, limit });
            }
            message.levels.push(level as i32);
        }
    }
    Ok(())
}

pub(super) fn dequantise(sigma: f64, rest: &mut Rest<'_>, shared: &mut Stream, out: &mut [f64]) {
    let mut layers = [Layer::default(); CHUNK];
    let levels = take(&mut rest.levels, out.len());
    for (values, levels) in out.chunks_mut(CHUNK).zip(levels.chunks(CHUNK)) {
        draw(sigma, shared, &mut layers[..values.len()]);
        for ((x, level), layer) in values.iter_mut().zip(levels).zip(&layers) {
            *x = (f64::from(*level) - layer.dither) * layer.width + layer.centre;
        }
    }
}

/// Coordinates whose layers are drawn at once.
const CHUNK: usize = 64;
/// Random words a coordinate: point (3), dither (2).
const WORDS: usize = 5;

/// One coordinate's interval of errors, and its dither.
#[derive(Clone, Copy, Default)]
struct Layer {
    width: f64,
    centre: f64,
    dither: f64,
}

fn draw(sigma: f64, stream: &mut Stream, layers: &mut [Layer]) {
    let mut words = [0; CHUNK * WORDS];
    let words = &mut words[..layers.len() * WORDS];
    stream.words(words);
    vectorised(|| {
        for (layer, word) in layers.iter_mut().zip(words.chunks_exact(WORDS)) {
            *layer = shape(sigma, word);
        }
    });
}

#[inline(always)]
fn shape(sigma: f64, word: &[u32]) -> Layer {
    // -ln(y/f0), or -ln(1 - y/f0), is z^2/2 - ln u, with z^2/2 = -ln(u') cos^2 by Box and Muller; the sign of z says which.
    let (cos, _) = cos_sin_turns(word[1]);
    let depth = -ln(unit(word[2])) - ln(unit(word[0])) * cos * cos;
    let far = (2.0 * depth).sqrt();
    let near = (-2.0 * ln(1.0 - exp(-depth))).sqrt();
    let (left, right) = if cos < 0.0 { (far, near) } else { (near, far) };
    let dither = (u64::from(word[3]) << 21 | u64::from(word[4]) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0) - 0.5;
    Layer { width: sigma * (left + right), centre: sigma * 0.5 * (right - left), dither }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    #[test]
    fn layers_are_never_narrower_than_two_half_height_points() {
        let mut layers = [Layer::default(); CHUNK];
        let (mut least, mut mean) = (f64::INFINITY, 0.0);
        for round in 0..2000 {
            draw(3.0, &mut Seed::new(1).stream(Purpose::Compress, SERVER, round), &mut layers);
            for layer in layers {
                least = least.min(layer.width);
                mean += layer.width / (2000.0 * CHUNK as f64);
                assert!(layer.dither.abs() <= 0.5 && layer.centre.abs() < layer.width / 2.0);
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
        assert!((mean / 3.0 - exact).abs() < 4.9 * 0.6 / (2000.0 * CHUNK as f64).sqrt(), "{} {exact}", mean / 3.0);
    }

    #[test]
    fn levels_beyond_the_limit_are_refused() {
        let mut stream = Seed::new(1).stream(Purpose::Compress, SERVER, 0);
        let error = quantise(1e-12, &[0.0, 1.0], 5, &mut stream, &mut Message::new()).unwrap_err();
        assert!(matches!(error, CompressError::TooLarge { coordinate: 6, value: 1.0, .. }), "{error}");
    }
}
