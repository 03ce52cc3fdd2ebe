//! Give normal tails and the curve of a Gaussian mechanism, rounded against us.

use std::f64::consts::SQRT_2;

use super::PrivacyError;

/// The probability that a standard normal is at most `x`, to a few units in the last place at
/// either end.
pub(crate) fn phi(x: f64) -> f64 {
    0.5 * libm::erfc(-x / SQRT_2)
}

/// `delta` at `epsilon` of a Gaussian mechanism: two normals of variance 1 whose means are `mu`
/// apart (Balle and Wang 2018, theorem 8). Not below the truth.
///
/// `Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu)`: both terms have relative errors of some
/// `(4 + x^2) 2^-52`, `x` the larger argument, and their sum bounds what the difference can be off.
pub fn gaussian_delta(mu: f64, epsilon: f64) -> f64 {
    if mu == 0.0 {
        return 0.0;
    }
    let (near, far) = (mu / 2.0 - epsilon / mu, -mu / 2.0 - epsilon / mu);
    let gained = phi(near);
    // Beyond exp(700) the second term is at most the first; leaving it out is outward.
    let lost = if epsilon > 700.0 { 0.0 } else { libm::exp(epsilon) * phi(far) };
    let slack = (8.0 + 2.0 * far * far + epsilon.abs()) * f64::EPSILON * (gained + lost);
    (gained - lost + slack).clamp(0.0, 1.0)
}

/// The least `epsilon` at `delta` of a Gaussian mechanism, raised by 1e-9 of itself and of 1.
pub fn gaussian_epsilon(mu: f64, delta: f64) -> f64 {
    if gaussian_delta(mu, 0.0) <= delta {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while gaussian_delta(mu, high) > delta {
        (low, high) = (high, 2.0 * high);
        if high > 1e9 {
            return f64::INFINITY;
        }
    }
    // What is kept is always a point at which the curve is at most delta.
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if gaussian_delta(mu, middle) > delta {
            low = middle;
        } else {
            high = middle;
        }
    }
    high * (1.0 + 1e-9) + 1e-9
}

/// The largest `mu` whose Gaussian mechanism keeps (`epsilon`, `delta`), lowered by 1e-12 of
/// itself.
pub fn gaussian_mu(epsilon: f64, delta: f64) -> Result<f64, PrivacyError> {
    PrivacyError::check_budget(epsilon, delta)?;
    let (mut low, mut high) = (0.0, 1.0);
    while gaussian_delta(high, epsilon) <= delta {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if gaussian_delta(middle, epsilon) <= delta {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low * (1.0 - 1e-12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_is_that_of_balle_and_wang() {
        // By mpmath with 40 digits: ncdf(mu/2 - e/mu) - exp(e) ncdf(-mu/2 - e/mu).
        for (mu, epsilon, exact) in [
            (1.0, 0.0, 3.829_249_225_480_262e-1),
            (1.0, 1.0, 1.269_367_375_066_439_5e-1),
            (0.5, 2.0, 9.439_168_634_947_234e-6),
            (3.0, 10.0, 1.858_951_431_585_780_6e-2),
            (0.1, 0.5, 6.856_582_455_838_727e-9),
        ] {
            let ours = gaussian_delta(mu, epsilon);
            assert!(ours >= exact * (1.0 - 1e-15), "{mu} {epsilon}: {ours:e} below {exact:e}");
            assert!(ours <= exact * (1.0 + 1e-9), "{mu} {epsilon}: {ours:e} above {exact:e}");
        }
    }

    #[test]
    fn epsilon_and_mu_invert_the_curve_outward() {
        for mu in [0.01, 0.3, 1.0, 4.0] {
            for delta in [1e-4, 1e-6, 1e-12, 1e-18] {
                let epsilon = gaussian_epsilon(mu, delta);
                assert!(gaussian_delta(mu, epsilon) <= delta);
                if epsilon > 1e-6 {
                    assert!(gaussian_delta(mu, epsilon * (1.0 - 1e-7)) > delta);
                    let back = gaussian_mu(epsilon, delta).unwrap();
                    assert!(gaussian_delta(back, epsilon) <= delta);
                    assert!((back / mu - 1.0).abs() < 1e-6, "{mu} {delta}: {back}");
                }
            }
        }
    }

    #[test]
    fn known_sizes_come_out() {
        // The two budgets for which a release once is quoted.
        for (epsilon, exact) in [(1.0, 0.236_704_381), (3.0, 0.647_726_531)] {
            let mu = gaussian_mu(epsilon, 1e-6).unwrap();
            assert!((mu - exact).abs() < 1e-9, "{epsilon}: {mu}");
        }
    }
}
