//! Fit power laws.

/// The exponent `q` of the power law `y = c x^q` that fits best on logarithmic axes (least
/// squares). All numbers must be positive, else it is NaN.
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let logs = || points.iter().map(|(x, y)| (x.ln(), y.ln()));
    let (mean_x, mean_y) =
        (logs().map(|p| p.0).sum::<f64>() / n, logs().map(|p| p.1).sum::<f64>() / n);
    let together: f64 = logs().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    together / logs().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_found() {
        let points: Vec<(f64, f64)> =
            [0.5, 1.0, 3.0, 10.0].iter().map(|x: &f64| (*x, 7.0 * x.powf(-1.5))).collect();
        assert!((exponent(&points) + 1.5).abs() < 1e-12);
        // By hand: log y is 0, 1, 0 at log x = 0, 1, 2, so no line but a flat one fits best.
        let e = std::f64::consts::E;
        assert!(exponent(&[(1.0, 1.0), (e, e), (e * e, 1.0)]).abs() < 1e-12);
        assert!(exponent(&[(1.0, 1.0), (2.0, -1.0)]).is_nan());
    }
}
