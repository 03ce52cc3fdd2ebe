//! Deal rows at random, sizes equal up to one row.

use consilience_core::rng::Seed;

use super::{Assignment, PartitionError, check_clients, shuffle, stream};

/// Shuffle, then cut.
pub fn assign(rows: usize, clients: usize, seed: Seed) -> Result<Assignment, PartitionError> {
    check_clients(rows, clients)?;
    let mut all: Vec<u32> = (0..rows as u32).collect();
    shuffle(&mut all, &mut stream(seed, 0));
    let cut = |k: usize| all[k * rows / clients..(k + 1) * rows / clients].to_vec();
    Assignment::new(None, (0..clients).map(cut).collect(), rows)
}
