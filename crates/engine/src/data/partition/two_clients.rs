//! Give most of every label to two clients (FALD's LeNet: 80% of label y to clients y + 1 and y +
//! 10 of 20).

use consilience_core::rng::Seed;

use super::{Assignment, PartitionError, by_label, check_clients, top_up};

/// The share of label y in halves to clients y + 1 and y + the number of labels, both from 1 and
/// around the end; the rest evenly to the others. Taken literally, as here, client 10 of FALD's 20
/// has two labels and client 20 none.
pub fn assign(
    labels: &[u32],
    clients: usize,
    share: f64,
    seed: Seed,
) -> Result<Assignment, PartitionError> {
    check_clients(labels.len(), clients)?;
    let of_labels = by_label(labels, seed);
    let classes = of_labels.len();
    let mut rows = vec![Vec::new(); clients];
    let mut next = 0;
    for (y, of_label) in of_labels.iter().enumerate() {
        let pair = [y % clients, (y + classes - 1) % clients];
        let (given, rest) = of_label.split_at((share * of_label.len() as f64).round() as usize);
        for (k, row) in given.iter().enumerate() {
            rows[pair[k % 2]].push(*row);
        }
        let others: Vec<usize> = (0..clients).filter(|client| !pair.contains(client)).collect();
        let takers = if others.is_empty() { (0..clients).collect() } else { others };
        for row in rest {
            rows[takers[next % takers.len()]].push(*row);
            next += 1;
        }
    }
    top_up(&mut rows);
    Assignment::new(None, rows, labels.len())
}
