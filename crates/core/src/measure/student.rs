//! Say how far a mean of few runs may lie from the truth.

use super::beta::beta_quantile;

/// The number below which Student's t with so many degrees of freedom (at least 2) falls with the
/// given probability; NaN for fewer.
///
/// If B is beta(n/2, n/2), then `sqrt(n) (2 B - 1) / (2 sqrt(B (1 - B)))` is t with n degrees of
/// freedom.
pub fn student_quantile(probability: f64, freedom: f64) -> f64 {
    let b = beta_quantile(probability.min(1.0 - probability), freedom / 2.0, freedom / 2.0);
    let below = freedom.sqrt() * (2.0 * b - 1.0) / (2.0 * (b * (1.0 - b)).sqrt());
    if probability < 0.5 { below } else { -below }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.t.ppf(p, n)`, scipy 1.17.1; with 2 degrees also by hand:
    /// `(2 p - 1) / sqrt(2 p (1 - p))`.
    const SCIPY: [(f64, f64, f64); 5] = [
        (0.975, 2.0, 4.302652729749462),
        (0.975, 3.0, 3.1824463052837078),
        (0.9995, 5.0, 6.868826625881276),
        (0.001, 29.0, -3.396240288356803),
        (0.9999995, 29.0, 6.1700561014489566),
    ];

    #[test]
    fn scipy_agrees() {
        for (p, n, exact) in SCIPY {
            assert!(
                (student_quantile(p, n) - exact).abs() < 1e-6 * exact.abs(),
                "{p} {n}: {}",
                student_quantile(p, n)
            );
        }
        assert!((student_quantile(0.9, 2.0) - 0.8 / (0.18f64).sqrt()).abs() < 1e-9);
        assert!(student_quantile(0.5, 7.0).abs() < 1e-9);
        assert!(student_quantile(0.9, 1.0).is_nan());
    }
}
