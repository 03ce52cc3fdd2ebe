//! Judge importance weights by the tail of their law: the shape of a generalised Pareto
//! distribution.
//!
//! Above 0.7 averages by these weights are not to be relied on, however many there are (Vehtari,
//! Simpson, Gelman, Yao and Gabry 2024). The fit is that of Zhang and Stephens (2009) with the weak
//! prior on the shape that the first paper's appendix gives.

use crate::simd::{exp, ln};

/// The weight of the prior, which is worth so many observations of shape 1/2.
const PRIOR_OBSERVATIONS: f64 = 10.0;
/// How far the grid of the profile likelihood reaches.
const PRIOR_SCALE: f64 = 3.0;
/// Fewer weights in the tail than this say nothing.
const LEAST: usize = 5;
/// Weights that differ by no more than this part of the largest are alike.
const ALIKE: f64 = 1e-12;

/// The shape `k` of the tail of weights, given by their logarithms (up to a constant): infinite
/// where too few weights are above the rest to say, NaN where one of them is. Where the largest are
/// all alike there is no tail: -1, which is that of an even law.
pub fn pareto_k(log_weights: &[f64]) -> f64 {
    if log_weights.iter().any(|w| w.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = log_weights.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ends = cut(sorted.len(), 1.0).zip(sorted.last());
    if ends.is_some_and(|(cut, last)| last.is_finite() && last - sorted[cut] <= ALIKE) {
        return -1.0;
    }
    let Some(mut tail) = Tail::of(&sorted, 1.0) else { return f64::INFINITY };
    // what is above the rest by no more than rounding is not above it
    tail.above.retain(|x| *x > ALIKE);
    if tail.above.len() < LEAST { f64::INFINITY } else { shape(&tail.above).0 }
}

/// What part of the whole weight is expected where weights are larger than any of half as many:
/// the mean over all ways to halve them of the part that one half has above the largest of the
/// other. It takes no law of the tail for granted, and is an upper bound of what all of them have
/// missed on average. NaN where a weight is; 1 where none is finite.
pub fn unseen(log_weights: &[f64]) -> f64 {
    let mut sorted = log_weights.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let whole = log_sum(&sorted);
    if whole.is_nan() || log_weights.iter().any(|w| w.is_nan()) {
        return f64::NAN;
    }
    if !whole.is_finite() {
        return 1.0;
    }
    // The largest `j` are all in one half with the chance `2^-j`, and a half has half of the whole.
    let (mut sum, mut chance) = (0.0, 1.0);
    for weight in sorted.iter().take(64) {
        chance *= 0.5;
        sum += chance * exp(weight - whole);
    }
    2.0 * sum
}

/// Smooth the largest weights: they are replaced by what a generalised Pareto law that fits them
/// expects of their order, and are at most the largest. Weights are given by their logarithms, up
/// to a constant; `efficiency` is the number of effective draws over that of draws. The logarithms
/// of weights whose sum is 1, and the shape `k` of the tail, which is infinite where too few differ
/// (then nothing is smoothed).
pub fn smooth(log_weights: &[f64], efficiency: f64) -> (Vec<f64>, f64) {
    if log_weights.iter().any(|w| w.is_nan()) {
        return (vec![f64::NAN; log_weights.len()], f64::NAN);
    }
    let mut order: Vec<usize> = (0..log_weights.len()).collect();
    order.sort_by(|a, b| log_weights[*a].total_cmp(&log_weights[*b]));
    let sorted: Vec<f64> = order.iter().map(|k| log_weights[*k]).collect();
    let largest = sorted.last().copied().unwrap_or(0.0);
    let mut smoothed: Vec<f64> = log_weights.iter().map(|w| w - largest).collect();
    let mut k = f64::INFINITY;
    if let Some(Tail { base, above }) = Tail::of(&sorted, efficiency) {
        let (shape, scale) = shape(&above);
        k = shape;
        if k.is_finite() {
            let count = above.len() as f64;
            for (rank, place) in order[order.len() - above.len()..].iter().enumerate() {
                let level = (rank as f64 + 0.5) / count;
                let beyond = match -ln(1.0 - level) {
                    along if k.abs() < f64::EPSILON => along,
                    along => (k * along).exp_m1() / k,
                };
                smoothed[*place] = ln(scale * beyond + base).min(0.0);
            }
        }
    }
    let total = log_sum(&smoothed);
    smoothed.iter_mut().for_each(|w| *w -= total);
    (smoothed, k)
}

/// The logarithm of the sum of `exp` of these.
pub fn log_sum(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !most.is_finite() {
        return most;
    }
    most + ln(logs.iter().map(|log| exp(log - most)).sum())
}

/// Which of so many weights in ascending order is the last below the tail.
fn cut(n: usize, efficiency: f64) -> Option<usize> {
    let count = (0.2 * n as f64).min(3.0 * (n as f64 / efficiency).sqrt()).ceil() as usize;
    n.checked_sub(count + 1)
}

/// The largest weights, on a scale on which the largest of all is 1.
struct Tail {
    /// The largest weight that is not among them.
    base: f64,
    /// How far they are above it, in ascending order.
    above: Vec<f64>,
}

impl Tail {
    /// Of the logarithms of weights in ascending order; `None` where too few differ.
    fn of(sorted: &[f64], efficiency: f64) -> Option<Tail> {
        let largest = sorted.last().copied().filter(|w| w.is_finite())?;
        let cut = cut(sorted.len(), efficiency)?;
        // Weights that underflow are no tail.
        let cutoff = (sorted[cut] - largest).max(ln(f64::MIN_POSITIVE));
        let base = exp(cutoff);
        let above: Vec<f64> = sorted
            .iter()
            .map(|w| w - largest)
            .filter(|w| *w > cutoff)
            .map(|w| exp(w) - base)
            .collect();
        (above.len() >= LEAST && above.iter().any(|x| *x > 0.0)).then_some(Tail { base, above })
    }
}

/// The shape and the scale of a generalised Pareto law for numbers above 0 in ascending order.
fn shape(x: &[f64]) -> (f64, f64) {
    let n = x.len();
    let grid = 30 + (n as f64).sqrt() as usize;
    let quartile = x[((n as f64 / 4.0 + 0.5) as usize).max(1) - 1];
    let last = x[n - 1];
    let candidate = |j: usize| {
        let step = 1.0 - (grid as f64 / (j as f64 + 0.5)).sqrt();
        1.0 / last + step / (PRIOR_SCALE * quartile)
    };
    let fitted = |b: f64| x.iter().map(|x| ln(1.0 - b * x)).sum::<f64>() / n as f64;
    let points: Vec<(f64, f64)> = (0..grid)
        .map(|j| {
            let b = candidate(j);
            let k = fitted(b);
            (b, n as f64 * (ln(-b / k) - k - 1.0))
        })
        .collect();
    let best = points.iter().map(|(_, likelihood)| *likelihood).fold(f64::NEG_INFINITY, f64::max);
    let (mut sum, mut mean) = (0.0, 0.0);
    for (b, likelihood) in points {
        let weight = exp(likelihood - best);
        sum += weight;
        mean += weight * b;
    }
    let b = mean / sum;
    let k = fitted(b);
    let shape = (n as f64 * k + PRIOR_OBSERVATIONS * 0.5) / (n as f64 + PRIOR_OBSERVATIONS);
    (shape, -k / b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{ClientId, Purpose, Seed};

    fn uniforms(n: usize) -> Vec<f64> {
        let mut stream = Seed::new(5).stream(Purpose::Data, ClientId(0), 0);
        (0..n).map(|_| stream.uniform().max(1e-12)).collect()
    }

    /// Few distinct values: no tail where the largest are alike, however rounding spreads them;
    /// where fewer than five are above the rest nobody knows.
    #[test]
    fn weights_with_ties_are_no_heavy_tail() {
        let of = |value: fn(usize) -> f64| pareto_k(&(0..4000).map(value).collect::<Vec<_>>());
        assert_eq!(of(|_| 0.3), -1.0);
        assert_eq!(of(|k| if k % 3 == 0 { 0.0 } else { -1.0 }), -1.0);
        assert_eq!(of(|k| 1e-15 * (k % 7) as f64), -1.0);
        // a hundred on each of five values above the rest, which differ by rounding alone
        let steps = of(|k| match k {
            0..100 => -0.1 * (k % 5) as f64,
            _ => -3.0 + 1e-15 * (k % 11) as f64,
        });
        assert!(steps < 0.7, "{steps}");
        assert_eq!(of(|k| if k < 3 { 5.0 } else { 0.0 }), f64::INFINITY);
        assert!(of(|k| if k == 7 { f64::NAN } else { 0.0 }).is_nan());
    }

    /// Weights `u^-k` have a Pareto tail of shape `k`. The error of an estimate from 600 weights
    /// is about `(1 + k) / sqrt(600)`, and the prior pulls by 10/610 of the way to 1/2.
    #[test]
    fn a_pareto_tail_is_found() {
        for k in [0.1, 0.3, 0.7, 1.0, 1.5] {
            let log_weights: Vec<f64> = uniforms(40_000).iter().map(|u| -k * u.ln()).collect();
            let found = pareto_k(&log_weights);
            let bound = 4.9 * (1.0 + k) / 600f64.sqrt();
            assert!((found - k).abs() < bound, "{found} where {k} was planted");
        }
    }

    /// Against all halves of twelve weights, and a law whose tail is known: of `u^-k` the part of
    /// the weight beyond the largest of `n` is `n^(k-1)` but for a factor `Gamma(2-k)`.
    #[test]
    fn what_half_as_many_would_miss_is_counted() {
        let logs: Vec<f64> = uniforms(12).iter().map(|u| -0.8 * u.ln()).collect();
        let (mut sum, mut halves) = (0.0, 0.0);
        for half in 0..1u32 << 12 {
            let is_in = |k: usize| half >> k & 1 == 1;
            let rest = (0..12).filter(|k| !is_in(*k)).map(|k| logs[k]);
            let largest = rest.fold(f64::NEG_INFINITY, f64::max);
            let above = (0..12).filter(|k| is_in(*k) && logs[*k] > largest);
            sum += above.map(|k| logs[k].exp()).sum::<f64>();
            halves += 0.5;
        }
        let whole: f64 = logs.iter().map(|w| w.exp()).sum();
        assert!((unseen(&logs) - sum / halves / whole).abs() < 1e-12);
        for k in [0.2, 0.5] {
            let each =
                |block: &[f64]| unseen(&block.iter().map(|u| -k * u.ln()).collect::<Vec<_>>());
            let all = uniforms(400_000);
            let blocks: Vec<f64> = all.chunks(2000).map(each).collect();
            let mean = blocks.iter().sum::<f64>() / blocks.len() as f64;
            let squares = blocks.iter().map(|b| (b - mean).powi(2)).sum::<f64>();
            let error = (squares / (blocks.len() * (blocks.len() - 1)) as f64).sqrt();
            let exact = 1000f64.powf(k - 1.0) * crate::measure::ln_gamma(2.0 - k).exp();
            assert!((mean - exact).abs() < 4.9 * error + 0.02 * exact, "{k}: {mean}, {exact}");
        }
        assert!(unseen(&[0.0, f64::NAN]).is_nan());
        assert_eq!((unseen(&[]), unseen(&[f64::NEG_INFINITY; 3])), (1.0, 1.0));
    }

    /// What ArviZ 0.23.4 (`psislw`) finds in the same numbers.
    #[test]
    fn the_fit_is_that_of_arviz() {
        let n = 1000;
        let weights = |f: fn(f64) -> f64| (0..n).map(|i| f(f64::from(i))).collect::<Vec<f64>>();
        for (found, arviz) in [
            (pareto_k(&weights(|i| -0.4 * ((i + 0.5) / 1000.0).ln())), 0.410_320_208_804_826_1),
            (pareto_k(&weights(|i| -0.9 * ((i + 0.5) / 1000.0).ln())), 0.844_266_433_403_059_5),
            (
                pareto_k(&weights(|i| 3.0 * (i * 0.7).sin() * (i * i * 0.001).cos())),
                -0.492_890_702_696_455,
            ),
            (pareto_k(&weights(|i| 0.1 * i.cos())), -1.619_334_267_698_705),
        ] {
            assert!((found - arviz).abs() < 1e-8, "{found} is not {arviz}");
        }
    }

    #[test]
    fn a_constant_does_not_matter_and_nonsense_is_told() {
        let u = uniforms(2000);
        let some: Vec<f64> = u.iter().map(|u| -0.4 * u.ln()).collect();
        let moved: Vec<f64> = some.iter().map(|w| w + 700.0).collect();
        assert!((pareto_k(&some) - pareto_k(&moved)).abs() < 1e-9);
        assert!(pareto_k(&[0.0; 100]) == -1.0 && pareto_k(&[]).is_infinite());
        assert!(pareto_k(&[0.0, f64::NAN]).is_nan());
        assert!(pareto_k(&[f64::NEG_INFINITY; 50]).is_infinite());
    }
}
