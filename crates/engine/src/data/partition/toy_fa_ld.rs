//! Make the toy Gaussian of FA-LD (Fig. 1): one covariance, means that alpha moves apart.

use consilience_core::rng::{ClientId, Purpose, Seed};

/// The covariance of every client.
pub const COVARIANCE: [f64; 4] = [5.0, -2.0, -2.0, 1.0];

/// The mean of each client: N = 50 clients in the paper. A mean is N(0, alpha) in both coordinates
/// (our reading of "heterogeneity alpha").
pub fn make(clients: usize, alpha: f64, seed: Seed) -> Vec<[f64; 2]> {
    let client = |k: u32| {
        let mut mean = [0.0; 2];
        seed.stream(Purpose::Data, ClientId(k), 0).normals(&mut mean);
        mean.map(|z| alpha.sqrt() * z)
    };
    (0..clients as u32).map(client).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_is_the_variance_of_the_means() {
        assert_eq!(make(50, 0.0, Seed::new(1)), [[0.0, 0.0]; 50]);
        let means = make(50, 100.0, Seed::new(1));
        assert_eq!(means, make(50, 100.0, Seed::new(1)));
        let sum = |variance: f64| means.iter().flatten().map(|m| m * m / variance).sum::<f64>();
        let z = |variance: f64| (sum(variance) - 100.0) / 200f64.sqrt();
        assert!(z(100.0).abs() < 4.9); // 1e-6 false alarms, but for the skew of chi-squared
        assert!(z(10.0).abs() > 4.9); // it would notice alpha as a standard deviation
    }
}
