//! Deal each label by its own Dirichlet draw over the clients (FALD, sec. 10.2).

use consilience_core::rng::{SERVER, Seed};

use super::{Assignment, Gammas, PartitionError, by_label, check_clients, stream, top_up};

/// Label by label: draw the clients' shares, then cut the label's shuffled rows by them. Without a
/// concentration each client has its own, uniform in (0, 1), as in FALD's program. A client that
/// would have no rows gets one of the client that has most.
pub fn assign(
    labels: &[u32],
    clients: usize,
    concentration: Option<f64>,
    seed: Seed,
) -> Result<Assignment, PartitionError> {
    check_clients(labels.len(), clients)?;
    let concentrations: Vec<f64> = match concentration {
        Some(a) => vec![a; clients],
        None => {
            let mut uniforms = stream(seed, 0);
            (0..clients).map(|_| uniforms.uniform().max(1e-3)).collect()
        }
    };
    let mut rows = vec![Vec::new(); clients];
    for (label, of_label) in by_label(labels, seed).iter().enumerate() {
        let shares = Gammas::new(seed, SERVER, label as u64).dirichlet(&concentrations);
        let (mut sum, mut from) = (0.0, 0);
        for (client, share) in shares.iter().enumerate() {
            sum += share;
            let to = if client + 1 == clients {
                of_label.len()
            } else {
                (sum * of_label.len() as f64).round() as usize
            };
            let to = to.clamp(from, of_label.len());
            rows[client].extend_from_slice(&of_label[from..to]);
            from = to;
        }
    }
    top_up(&mut rows);
    Assignment::new(None, rows, labels.len())
}
