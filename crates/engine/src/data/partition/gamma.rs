//! Draw gamma variates from an address (Marsaglia and Tsang 2000), in logarithms so that small
//! shapes do not underflow.

use consilience_core::rng::{ClientId, Purpose, Seed, Stream};
use consilience_core::simd::{exp, ln};

/// Gamma variates of scale 1 at one address.
pub struct Gammas {
    uniforms: Stream,
    normals: Stream,
    ready: [f64; 128],
    used: usize,
}

impl Gammas {
    /// The variates of a client at `place`. Normals and uniforms come from two addresses: `2 place`
    /// and `2 place + 1` of those kept for gammas.
    pub fn new(seed: Seed, client: ClientId, place: u64) -> Self {
        let at = |k: u64| seed.stream(Purpose::Data, client, (1 << 41) + 2 * place + k);
        Gammas { normals: at(0), uniforms: at(1), ready: [0.0; 128], used: 128 }
    }

    fn normal(&mut self) -> f64 {
        if self.used == self.ready.len() {
            self.normals.normals(&mut self.ready);
            self.used = 0;
        }
        self.used += 1;
        self.ready[self.used - 1]
    }

    /// The logarithm of a variate; the shape must be positive.
    pub fn log(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // If G has shape a + 1 and U is uniform, G U^(1/a) has shape a.
            let more = self.log(shape + 1.0);
            return more + ln(1.0 - self.uniforms.uniform()) / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root > 0.0 {
                let v = root * root * root;
                let u = 1.0 - self.uniforms.uniform();
                if ln(u) < 0.5 * x * x + d * (1.0 - v + ln(v)) {
                    return ln(d * v);
                }
            }
        }
    }

    /// A draw from the Dirichlet law with these concentrations.
    pub fn dirichlet(&mut self, concentrations: &[f64]) -> Vec<f64> {
        let logs: Vec<f64> = concentrations.iter().map(|a| self.log(*a)).collect();
        let most = logs.iter().fold(f64::NEG_INFINITY, |m, l| m.max(*l));
        let parts: Vec<f64> = logs.iter().map(|l| exp(l - most)).collect();
        let sum: f64 = parts.iter().sum();
        parts.iter().map(|p| p / sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// z-scores of mean and variance under the gamma law of this shape: the variance of a squared
    /// deviation is 2 a^2 + 6 a.
    fn scores(draws: &[f64], a: f64) -> [f64; 2] {
        let n = draws.len() as f64;
        let mean = draws.iter().sum::<f64>() / n;
        let variance = draws.iter().map(|g| (g - a) * (g - a)).sum::<f64>() / n;
        [(mean - a) / (a / n).sqrt(), (variance - a) / ((2.0 * a * a + 6.0 * a) / n).sqrt()]
    }

    #[test]
    fn moments_are_those_of_the_law() {
        for (k, a) in [0.1, 0.5, 1.0, 2.5, 30.0].into_iter().enumerate() {
            let mut gammas = Gammas::new(Seed::new(5), ClientId(0), k as u64);
            let draws: Vec<f64> = (0..400_000).map(|_| gammas.log(a).exp()).collect();
            for z in scores(&draws, a) {
                // 1e-6 false alarms, were the seed not fixed
                assert!(z.abs() < 4.9, "shape {a}: {z}");
            }
            let [mean, _] = scores(&draws, a * 1.06);
            assert!(mean.abs() > 4.9, "shape {a}: a shape 6% off would pass ({mean})");
        }
    }

    #[test]
    fn the_logarithm_has_its_mean_where_the_variate_underflows() {
        // E ln G = digamma(a) and Var ln G = trigamma(a); at a = 0.001 these are -1000.5755719 and
        // 1000001.6425332.
        let mut gammas = Gammas::new(Seed::new(6), ClientId(0), 0);
        let n = 100_000;
        let mean = (0..n).map(|_| gammas.log(0.001)).sum::<f64>() / f64::from(n);
        assert!(((mean + 1000.5755719) / (1000001.6425332 / f64::from(n)).sqrt()).abs() < 4.9);
    }

    #[test]
    fn dirichlet_means_are_the_shares_of_the_concentrations() {
        let mut gammas = Gammas::new(Seed::new(7), ClientId(0), 0);
        let a = [0.2, 0.3, 1.5];
        let n = 100_000;
        let mut sums = [0.0; 3];
        for _ in 0..n {
            let draw = gammas.dirichlet(&a);
            assert!((draw.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            for (sum, p) in sums.iter_mut().zip(draw) {
                *sum += p;
            }
        }
        for (sum, a) in sums.iter().zip(a) {
            let (mean, n) = (a / 2.0, f64::from(n));
            // of a share, where the concentrations sum to 2
            let variance = mean * (1.0 - mean) / 3.0;
            assert!(((sum / n - mean) / (variance / n).sqrt()).abs() < 4.9);
        }
    }
}
