//! Draw from the laws of responses and priors, by numbers of one addressed stream.

use consilience_core::measure::{ln_gamma, normal_quantile};
use consilience_core::rng::Stream;
use consilience_core::simd::{exp, ln};

/// Random numbers of the usual laws.
pub struct Random(Stream);

impl Random {
    /// From the numbers of this stream.
    pub fn new(stream: Stream) -> Self {
        Random(stream)
    }

    /// Uniform between 0 and 1, neither of them.
    pub fn uniform(&mut self) -> f64 {
        const HALF: f64 = 1.0 / 18_014_398_509_481_984.0;
        self.0.uniform() + HALF
    }

    /// Whether something of this probability happens.
    pub fn coin(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A place in a list of probabilities.
    pub fn choice(&mut self, probabilities: impl Iterator<Item = f64>) -> usize {
        let (mut left, mut last) = (self.uniform(), 0);
        for (k, p) in probabilities.enumerate() {
            last = k;
            left -= p;
            if left < 0.0 {
                break;
            }
        }
        last
    }

    /// Standard normal.
    pub fn normal(&mut self) -> f64 {
        normal_quantile(self.uniform())
    }

    /// Exponential of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -ln(self.uniform())
    }

    /// Gamma of this shape and rate 1 (Marsaglia and Tsang 2000).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let power = ln(self.uniform()) / shape;
            return self.gamma(shape + 1.0) * exp(power);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let z = self.normal();
            let v = (1.0 + c * z).powi(3);
            if v > 0.0 && ln(self.uniform()) < 0.5 * z * z + d * (1.0 - v + ln(v)) {
                return d * v;
            }
        }
    }

    /// Student's t with these degrees of freedom.
    pub fn student_t(&mut self, df: f64) -> f64 {
        let z = self.normal();
        z / (2.0 * self.gamma(0.5 * df) / df).sqrt()
    }

    /// Laplace of scale 1.
    pub fn laplace(&mut self) -> f64 {
        let size = self.exponential();
        if self.coin(0.5) { size } else { -size }
    }

    /// Poisson of this mean: by products of uniforms where it is small, else by transformed
    /// rejection (Hoermann 1993, PTRS). What is too large to be counted is infinite.
    pub fn poisson(&mut self, mean: f64) -> f64 {
        if mean.is_nan() || mean > 1e15 {
            return mean + f64::INFINITY;
        }
        if mean < 10.0 {
            let (least, mut product, mut count) = (exp(-mean), self.uniform(), 0.0);
            while product > least {
                product *= self.uniform();
                count += 1.0;
            }
            return count;
        }
        let b = 0.931 + 2.53 * mean.sqrt();
        let a = -0.059 + 0.02483 * b;
        let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        let quick = 0.9277 - 3.6224 / (b - 2.0);
        loop {
            let (u, v) = (self.uniform() - 0.5, self.uniform());
            let edge = 0.5 - u.abs();
            let k = ((2.0 * a / edge + b) * u + mean + 0.43).floor();
            if edge >= 0.07 && v <= quick {
                return k;
            }
            if k < 0.0 || (edge < 0.013 && v > edge) {
                continue;
            }
            let left = ln(v * inverse_alpha / (a / (edge * edge) + b));
            if left <= k * ln(mean) - mean - ln_gamma(k + 1.0) {
                return k;
            }
        }
    }
}
