//! Make the toy Gaussian of QLSD (Fig. 1): clients whose rows lie around means of their own.

use consilience_core::rng::{ClientId, Purpose, Seed};

/// Rows of each client, row-major: b = 20 clients in d = 50 dimensions in the paper. The number of
/// rows is uniform in 10..200, a client's mean N(0, 25) and a row N(mean, 1) in every coordinate.
pub fn make(clients: usize, dim: usize, seed: Seed) -> Vec<Vec<f64>> {
    let client = |k: u32| {
        let rows = 10 + seed.stream(Purpose::Data, ClientId(k), 0).below(190) as usize;
        let mut mean = vec![0.0; dim];
        seed.stream(Purpose::Data, ClientId(k), 1).normals(&mut mean);
        let mut cells = vec![0.0; rows * dim];
        seed.stream(Purpose::Data, ClientId(k), 2).normals(&mut cells);
        cells.iter().enumerate().map(|(at, z)| 5.0 * mean[at % dim] + z).collect()
    };
    (0..clients as u32).map(client).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_means_and_spreads_are_those_of_the_paper() {
        let data = make(20, 50, Seed::new(1));
        assert_eq!(data, make(20, 50, Seed::new(1)));
        let sizes: Vec<usize> = data.iter().map(|cells| cells.len() / 50).collect();
        assert!(
            sizes.iter().all(|n| (10..200).contains(n)) && sizes.iter().max() > sizes.iter().min()
        );
        let (mut between, mut within, mut freedom) = (0.0, 0.0, 0.0);
        for (cells, rows) in data.iter().zip(&sizes) {
            for j in 0..50 {
                let mean = cells.chunks(50).map(|row| row[j]).sum::<f64>() / *rows as f64;
                between += mean * mean / (25.0 + 1.0 / *rows as f64);
                within +=
                    cells.chunks(50).map(|row| (row[j] - mean) * (row[j] - mean)).sum::<f64>();
                freedom += *rows as f64 - 1.0;
            }
        }
        // chi-squared; 1e-6 false alarms
        assert!(((between - 1000.0) / 2000f64.sqrt()).abs() < 4.9);
        assert!(((within - freedom) / (2.0 * freedom).sqrt()).abs() < 4.9);
        // it would notice a spread of 4
        assert!(((between * 25.0 / 16.0 - 1000.0) / 2000f64.sqrt()).abs() > 4.9);
    }
}
