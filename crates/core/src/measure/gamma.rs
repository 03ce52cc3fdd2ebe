//! Compute the logarithm of the gamma function, and of rising products with their derivatives.

use crate::simd::ln;

/// Beyond this the series of Stirling has fifteen digits.
const FAR: f64 = 10.0;

/// `ln gamma(x)` for `x` above 0.
pub fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < FAR {
        product *= x;
        x += 1.0;
    }
    let w = 1.0 / (x * x);
    let series = 1.0 / 12.0
        - w * (1.0 / 360.0 - w * (1.0 / 1260.0 - w * (1.0 / 1680.0 - w * (1.0 / 1188.0))));
    (x - 0.5) * ln(x) - x + 0.5 * ln(std::f64::consts::TAU) + series / x - ln(product)
}

/// Products of up to so many factors are multiplied out.
const FEW: f64 = 64.0;

/// `ln (k (k + 1) .. (k + n - 1))` for `k` above 0 and a whole number `n`, with its first and
/// second derivatives in `k`.
pub fn rising(k: f64, n: f64) -> [f64; 3] {
    if n > FEW {
        let [a, b] = [polygamma(k + n), polygamma(k)];
        return [ln_gamma(k + n) - ln_gamma(k), a[0] - b[0], a[1] - b[1]];
    }
    let (mut sums, mut factor) = ([0.0; 3], k);
    for _ in 0..n as u32 {
        sums[0] += ln(factor);
        sums[1] += 1.0 / factor;
        sums[2] -= 1.0 / (factor * factor);
        factor += 1.0;
    }
    sums
}

/// The first and second derivative of `ln gamma` at `x` above 0.
fn polygamma(x: f64) -> [f64; 2] {
    let (mut x, mut before) = (x, [0.0; 2]);
    while x < FAR {
        before[0] -= 1.0 / x;
        before[1] += 1.0 / (x * x);
        x += 1.0;
    }
    let w = 1.0 / (x * x);
    let first = ln(x)
        - 0.5 / x
        - w * (1.0 / 12.0 - w * (1.0 / 120.0 - w * (1.0 / 252.0 - w * (1.0 / 240.0))));
    let second =
        (1.0 + 0.5 / x + w * (1.0 / 6.0 - w * (1.0 / 30.0 - w * (1.0 / 42.0 - w * (1.0 / 30.0)))))
            / x;
    [before[0] + first, before[1] + second]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Python's math.lgamma.
    #[test]
    fn logarithms_of_gamma() {
        for (x, expected) in [
            (0.01, 4.599_479_878_042_022),
            (0.5, 0.572_364_942_924_700_4),
            (1.0, 0.0),
            (2.5, 0.284_682_870_472_919_6),
            (7.3, 7.147_892_523_022_248),
            (123.4, 469.336_097_442_190_6),
            (1e6, 12_815_504.569_147_611),
        ] {
            let found = ln_gamma(x);
            let near = (found - expected).abs() < 1e-13 * (1.0 + expected.abs());
            assert!(near, "{x}: {found} is not {expected}");
        }
    }

    #[test]
    fn many_factors_are_as_few_ones_and_derivatives_are_derivatives() {
        for k in [0.02, 0.7, 3.0, 45.6] {
            let (few, many) = (rising(k, 64.0), rising(k, 65.0));
            assert!((many[0] - few[0] - (k + 64.0).ln()).abs() < 1e-11, "{k}");
            for n in [5.0, 64.0, 65.0, 900.0] {
                let h = 1e-5 * k;
                let (up, down, here) = (rising(k + h, n), rising(k - h, n), rising(k, n));
                for j in 0..2 {
                    let slope = (up[j] - down[j]) / (2.0 * h);
                    let near = (slope - here[j + 1]).abs() < 1e-6 * (1.0 + slope.abs());
                    assert!(near, "{k}, {n}: {slope} is not {}", here[j + 1]);
                }
            }
        }
    }
}
