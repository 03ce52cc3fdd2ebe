//! Let one label dominate each client (QLSD's LeNet: 40% of a client's rows).

use consilience_core::rng::Seed;

use super::{Assignment, PartitionError, by_label, check_clients, shuffle, stream};

/// Clients of equal size; label i mod classes makes up the share of client i, and other labels the
/// rest, as far as they suffice.
pub fn assign(
    labels: &[u32],
    clients: usize,
    share: f64,
    seed: Seed,
) -> Result<Assignment, PartitionError> {
    check_clients(labels.len(), clients)?;
    let total = labels.len();
    let mut of_labels = by_label(labels, seed);
    let classes = of_labels.len();
    let size = |client: usize| (client + 1) * total / clients - client * total / clients;
    let quota = |client: usize| (share * size(client) as f64).round() as usize;
    for (class, of_label) in of_labels.iter().enumerate() {
        let needed: usize = (class..clients).step_by(classes).map(quota).sum();
        if needed > of_label.len() {
            return Err(PartitionError::Shortage { class, found: of_label.len(), needed });
        }
    }
    let mut rows: Vec<Vec<u32>> = (0..clients)
        .map(|client| {
            let pool = &mut of_labels[client % classes];
            pool.split_off(pool.len() - quota(client))
        })
        .collect();
    let mut rest: Vec<u32> = of_labels.concat();
    let mut random = stream(seed, 0);
    shuffle(&mut rest, &mut random);
    // Places that the rest fills, client by client; a row at a client that its label dominates is
    // swapped with one that may go there.
    let places: Vec<usize> =
        (0..clients).flat_map(|client| vec![client; size(client) - quota(client)]).collect();
    let fits = |row: u32, place: usize| labels[row as usize] as usize != places[place] % classes;
    for place in 0..rest.len() {
        let mut tries = 0;
        while !fits(rest[place], place) && tries < 1000 {
            let other = random.below(rest.len() as u32) as usize;
            if fits(rest[place], other) && fits(rest[other], place) {
                rest.swap(place, other);
            }
            tries += 1;
        }
    }
    for (row, client) in rest.iter().zip(&places) {
        rows[*client].push(*row);
    }
    Assignment::new(None, rows, total)
}
