//! Invert the beta distribution function, whose quantiles say between which order statistics a
//! quantile lies.

use super::log;
use crate::simd;

/// The number below which a beta(a, b) variable falls with the given probability, for `a, b >= 1`.
///
/// By bisection: 60 evaluations of a continued fraction that takes of the order of
/// `sqrt(max(a, b))` terms. Right to about 1e-16 times the logarithms of the gamma functions, which
/// is far more than finding an order statistic needs. NaN if a parameter is.
pub(super) fn beta_quantile(probability: f64, a: f64, b: f64) -> f64 {
    if !(a >= 1.0 && b >= 1.0 && probability >= 0.0) {
        return f64::NAN;
    }
    let log_beta = log_gamma(a) + log_gamma(b) - log_gamma(a + b);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if beta_cdf(middle, a, b, log_beta) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// The regularised incomplete beta function, on the side of the mean where its continued fraction
/// converges fast.
fn beta_cdf(x: f64, a: f64, b: f64, log_beta: f64) -> f64 {
    let front = simd::exp(a * log(x) + b * log(1.0 - x) - log_beta);
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22) by the modified Lentz
/// method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for term in 1..100_000 {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = value;
        for numerator in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + numerator * d);
            c = away_from_zero(1.0 + numerator / c);
            value *= c * d;
        }
        if (value - before).abs() <= 1e-16 * value.abs() {
            break;
        }
    }
    value
}

/// Logarithm of the gamma function for `x >= 1`, by Stirling's series above 12.
fn log_gamma(x: f64) -> f64 {
    const STIRLING: [f64; 7] = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
        1.0 / 156.0,
    ];
    const HALF_LOG_TAU: f64 = 0.918_938_533_204_672_8;
    let (mut x, mut product) = (x, 1.0);
    while x < 12.0 {
        product *= x;
        x += 1.0;
    }
    let mut series = 0.0;
    for coefficient in STIRLING.iter().rev() {
        series = coefficient + series / (x * x);
    }
    (x - 0.5) * log(x) - x + HALF_LOG_TAU + series / x - log(product)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_gamma_gives_factorials() {
        let mut factorial = 1.0;
        for n in 1..40 {
            let exact = log(factorial);
            assert!((log_gamma(f64::from(n)) - exact).abs() < 2e-14 * exact.max(1.0), "{n}");
            factorial *= f64::from(n);
        }
        assert!((log_gamma(1.5) - -0.120_782_237_635_245_22).abs() < 1e-14); // ln(sqrt(pi) / 2)
    }

    #[test]
    fn closed_forms_come_out() {
        assert!((beta_quantile(0.3, 1.0, 1.0) - 0.3).abs() < 1e-13);
        assert!((beta_quantile(0.3, 5.0, 1.0) - 0.3f64.powf(0.2)).abs() < 1e-13);
        assert!((beta_quantile(0.3, 1.0, 5.0) - (1.0 - 0.7f64.powf(0.2))).abs() < 1e-13);
        assert!((beta_quantile(0.5, 300.0, 300.0) - 0.5).abs() < 1e-13);
        assert!(beta_quantile(0.5, f64::NAN, 2.0).is_nan());
    }

    #[test]
    fn scipy_agrees() {
        for (p, a, b, exact) in SCIPY {
            let ours = beta_quantile(p, a, b);
            assert!((ours - exact).abs() < 1e-11 * exact, "{p} {a} {b}: {ours}");
        }
    }

    /// `scipy.stats.beta.ppf(p, a, b)`, scipy 1.17.1.
    const SCIPY: [(f64, f64, f64, f64); 6] = [
        (0.1586553, 1.5, 3.25, 0.11283089023353797),
        (0.8413447, 1.5, 3.25, 0.5263682476327571),
        (0.1586553, 41.7, 371.2, 0.08620748980925068),
        (0.8413447, 801.3, 90.1, 0.9090055869397494),
        (0.1586553, 1.0, 1000.0, 0.0001727389126949914),
        (0.8413447, 123456.7, 98765.4, 0.5566095481818771),
    ];
}
