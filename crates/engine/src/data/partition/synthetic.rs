//! Make the data SYNTHETIC(alpha, beta) of Li et al. 2020 ("Federated optimization in heterogeneous
//! networks", sec. 5.1).

use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::simd::{exp, ln};

use crate::data::dataset::{Dataset, Features, Groups};

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The variance of the clients' models around one another.
    pub alpha: f64,
    /// The variance of the clients' features around one another.
    pub beta: f64,
    /// How many clients.
    pub clients: usize,
    /// How many features.
    pub dim: usize,
    /// How many labels.
    pub classes: usize,
}

impl Settings {
    /// As in the paper: 30 clients, 60 features, 10 labels.
    pub fn new(alpha: f64, beta: f64) -> Self {
        Settings { alpha, beta, clients: 30, dim: 60, classes: 10 }
    }
}

/// Client k has a model W, b ~ N(u, 1) with u ~ N(0, alpha), features x ~ N(v, diag(j^-1.2)) with
/// v_j ~ N(B, 1) and B ~ N(0, beta), labels argmax(W x + b), and floor(exp(4 + 2 z)) + 50 rows, z
/// normal, at most 10,000. alpha and beta are variances, as the paper has it; its program takes
/// them for standard deviations.
pub fn make(settings: Settings, seed: Seed) -> Dataset {
    let Settings { alpha, beta, clients, dim, classes } = settings;
    let (mut cells, mut labels, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    for client in 0..clients as u32 {
        let normals = |place: u64, n: usize| {
            let mut out = vec![0.0; n];
            seed.stream(Purpose::Data, ClientId(client), place).normals(&mut out);
            out
        };
        let heads = normals(0, 3);
        let (u, b, size) =
            (alpha.sqrt() * heads[0], beta.sqrt() * heads[1], exp(4.0 + 2.0 * heads[2]));
        let rows = (size.min(10_000.0) as usize + 50).min(10_000);
        let model: Vec<f64> = normals(1, classes * (dim + 1)).iter().map(|z| u + z).collect();
        let centre: Vec<f64> = normals(2, dim).iter().map(|z| b + z).collect();
        for noise in normals(3, rows * dim).chunks_exact(dim) {
            let x: Vec<f64> =
                (0..dim).map(|j| centre[j] + noise[j] * exp(-0.6 * ln(j as f64 + 1.0))).collect();
            let score = |k: usize| {
                let row = &model[k * (dim + 1)..(k + 1) * (dim + 1)];
                row[dim] + row.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>()
            };
            let best = (0..classes)
                .map(|k| (score(k), k))
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .map_or(0, |(_, k)| k);
            cells.extend(x);
            labels.push(best as f64);
            groups.push(client);
        }
    }
    Dataset {
        features: Features::Dense(cells),
        labels,
        classes: Some((0..classes).map(|k| k.to_string()).collect()),
        columns: (1..=dim).map(|k| format!("x{k}")).collect(),
        groups: Some(Groups {
            names: (1..=clients).map(|k| format!("client {k}")).collect(),
            rows: groups,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_shape_and_the_spread_of_the_paper() {
        let settings = Settings { clients: 50, dim: 2, ..Settings::new(1.0, 1.0) };
        let data = make(settings, Seed::new(1));
        assert_eq!(data, make(settings, Seed::new(1)));
        assert_ne!(data.labels, make(settings, Seed::new(2)).labels);
        let groups = data.groups.clone().unwrap();
        let sizes: Vec<usize> =
            (0..50).map(|k| groups.rows.iter().filter(|g| **g == k).count()).collect();
        assert!(
            sizes.iter().all(|n| (50..=10_000).contains(n))
                && sizes.iter().max() > sizes.iter().min()
        );
        // Within a client, feature j has the variance j^-1.2; pooled over all rows this is
        // chi-squared.
        for j in 0..2 {
            let (mut sum, mut freedom) = (0.0, 0.0);
            for k in 0..50u32 {
                let x: Vec<f64> = (0..data.rows())
                    .filter(|row| groups.rows[*row] == k)
                    .map(|row| data.cell(row, j))
                    .collect();
                let mean = x.iter().sum::<f64>() / x.len() as f64;
                sum += x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
                freedom += x.len() as f64 - 1.0;
            }
            let z = |variance: f64| (sum / variance - freedom) / (2.0 * freedom).sqrt();
            assert!(z((j as f64 + 1.0).powf(-1.2)).abs() < 4.9); // 1e-6 false alarms
            // it would notice an exponent that starts elsewhere
            assert!(z((j as f64 + 2.0).powf(-1.2)).abs() > 4.9);
        }
    }

    #[test]
    fn alpha_and_beta_move_the_clients_apart() {
        let centres = |beta: f64| {
            let data = make(Settings { dim: 20, ..Settings::new(0.0, beta) }, Seed::new(3));
            let groups = data.groups.clone().unwrap();
            let mean = |k: u32| {
                let rows: Vec<usize> =
                    (0..data.rows()).filter(|row| groups.rows[*row] == k).collect();
                rows.iter().flat_map(|row| (0..20).map(|j| data.cell(*row, j))).sum::<f64>()
                    / (20.0 * rows.len() as f64)
            };
            let means: Vec<f64> = (0..30).map(mean).collect();
            means.iter().map(|m| m * m).sum::<f64>() / 30.0
        };
        let (near, far) = (centres(0.0), centres(100.0));
        assert!(near < 0.2 && far > 30.0, "{near} {far}");
    }
}
