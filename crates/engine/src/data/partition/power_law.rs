//! Deal rows at random to clients whose sizes fall by a power law.

use consilience_core::rng::Seed;
use consilience_core::simd::{exp, ln};

use super::{Assignment, PartitionError, check_clients, shuffle, stream};

/// The size of client i, from 1, is in proportion to i to the power of minus the exponent, and at
/// least 1.
pub fn assign(
    rows: usize,
    clients: usize,
    exponent: f64,
    seed: Seed,
) -> Result<Assignment, PartitionError> {
    check_clients(rows, clients)?;
    let weights: Vec<f64> = (1..=clients).map(|i| exp(-exponent * ln(i as f64))).collect();
    let sum: f64 = weights.iter().sum();
    let free = rows - clients; // everybody has one already
    let mut all: Vec<u32> = (0..rows as u32).collect();
    shuffle(&mut all, &mut stream(seed, 0));
    let (mut dealt, mut so_far, mut from) = (Vec::new(), 0.0, 0);
    for (k, weight) in weights.iter().enumerate() {
        so_far += weight / sum;
        let to = if k + 1 == clients {
            rows
        } else {
            k + 1 + ((so_far * free as f64).round() as usize).min(free)
        };
        dealt.push(all[from..to].to_vec());
        from = to;
    }
    Assignment::new(None, dealt, rows)
}
