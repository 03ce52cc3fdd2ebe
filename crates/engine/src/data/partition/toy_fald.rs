//! Make the toy Gaussian of FALD (Table 1): clients with means and full covariances of their own.

use consilience_core::rng::{ClientId, Purpose, Seed};

/// Mean and covariance (row-major) of each client: b = 100 clients in d = 20 dimensions in the
/// paper. The paper gives no law for them; here a mean is N(0, 1) in every coordinate and a
/// covariance A A^T / d + I / 10 with A of standard normals.
pub fn make(clients: usize, dim: usize, seed: Seed) -> Vec<(Vec<f64>, Vec<f64>)> {
    let client = |k: u32| {
        let (mut mean, mut a) = (vec![0.0; dim], vec![0.0; dim * dim]);
        seed.stream(Purpose::Data, ClientId(k), 0).normals(&mut mean);
        seed.stream(Purpose::Data, ClientId(k), 1).normals(&mut a);
        let cell = |at: usize| {
            let (i, j) = (at / dim, at % dim);
            let product: f64 = (0..dim).map(|l| a[i * dim + l] * a[j * dim + l]).sum();
            product / dim as f64 + if i == j { 0.1 } else { 0.0 }
        };
        (mean, (0..dim * dim).map(cell).collect())
    };
    (0..clients as u32).map(client).collect()
}

#[cfg(test)]
mod tests {
    use consilience_core::model::Gaussian;

    use super::*;

    #[test]
    fn covariances_are_full_and_definite_and_clients_differ() {
        let data = make(100, 20, Seed::new(1));
        assert_eq!(data, make(100, 20, Seed::new(1)));
        let traces: f64 =
            data.iter().map(|(_, c)| (0..20).map(|i| c[i * 21] - 0.1).sum::<f64>()).sum();
        // 20 traces: chi-squared of 40,000 degrees
        assert!((20.0 * (traces - 2000.0) / (2.0 * 40_000.0f64).sqrt()).abs() < 4.9);
        for (mean, covariance) in &data {
            assert!(covariance[1] != 0.0 && covariance[1] == covariance[20]);
            assert!(Gaussian::from_covariance(mean.clone(), covariance).is_ok());
        }
        assert_ne!(data[0], data[1]);
    }
}
