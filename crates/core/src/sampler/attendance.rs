//! Watch who stays away in elastic mode, and say what that does to the drift.
//!
//! An answer counts `1/p_i`, so the drift is right on average if client `i` is there with
//! probability `p_i`, whatever the parameter. If it is there with frequency `f_i` instead, the
//! drift is off by `sum_i (f_i/p_i - 1) g_i`: nothing where absent clients have no pull of their
//! own, a bias where those who stay away differ from the rest.

use crate::linalg::{add_scaled, norm_squared};
use crate::rng::ClientId;
use crate::snapshot::{SnapshotError, State, Visit};

/// Who answered, how often, and with what.
#[derive(Clone, Debug)]
pub struct Attendance {
    stated: Vec<f64>,
    rounds: u64,
    present: Vec<u64>,
    /// The sum of each client's answers.
    sums: Vec<Vec<f64>>,
}

/// A client that is there more or less often than was stated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Irregular {
    /// Who.
    pub client: ClientId,
    /// How often it should be there.
    pub stated: f64,
    /// How often it is.
    pub observed: f64,
    /// How many standard errors these are apart.
    pub z: f64,
    /// How far the drift is off because of it, where 1 is the length of all clients' mean answers
    /// together.
    pub pull: f64,
}

impl Attendance {
    pub(super) fn new(stated: &[f64], dim: usize) -> Self {
        Attendance {
            stated: stated.to_vec(),
            rounds: 0,
            present: vec![0; stated.len()],
            sums: vec![vec![0.0; dim]; stated.len()],
        }
    }

    pub(super) fn note(&mut self, client: ClientId, answer: &[f64]) {
        self.present[client.index()] += 1;
        add_scaled(1.0, answer, &mut self.sums[client.index()]);
    }

    pub(super) fn end_round(&mut self) {
        self.rounds += 1;
    }

    /// The clients whose frequency is more than `most` standard errors from what was stated. At 4.9
    /// a client that keeps its word is named once in a million looks. A client that stays away for
    /// many rounds at a stretch is named sooner: its rounds are no independent coins.
    pub fn irregular(&self, most: f64) -> Vec<Irregular> {
        let n = self.rounds as f64;
        let mean =
            |i: usize| norm_squared(&self.sums[i]).sqrt() / (self.present[i] as f64).max(1.0);
        let all: f64 = (0..self.stated.len()).map(mean).sum();
        let look = |i: usize| {
            let (stated, observed) = (self.stated[i], self.present[i] as f64 / n.max(1.0));
            let error = (stated * (1.0 - stated) / n.max(1.0)).sqrt();
            let off = observed - stated;
            let z = if off == 0.0 || self.rounds == 0 { 0.0 } else { off / error };
            Irregular {
                client: ClientId(i as u32),
                stated,
                observed,
                z,
                pull: (off / stated).abs() * mean(i) / all.max(f64::MIN_POSITIVE),
            }
        };
        (0..self.stated.len()).map(look).filter(|found| found.z.abs() > most).collect()
    }
}

impl State for Attendance {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.number("the rounds", &mut self.rounds)?;
        visit.numbers("how often each client was there", &mut self.present)?;
        self.sums.iter_mut().try_for_each(|sum| visit.vector("the sum of a client's answers", sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_does_not_keep_its_word_is_named_with_its_pull() {
        let mut attendance = Attendance::new(&[0.5, 0.5, 1.0], 1);
        for round in 0..1000 {
            if round % 2 == 0 {
                attendance.note(ClientId(0), &[1.0]);
            }
            if round % 4 == 0 {
                attendance.note(ClientId(1), &[-3.0]);
            }
            attendance.note(ClientId(2), &[0.0]);
            attendance.end_round();
        }
        let found = attendance.irregular(4.9);
        assert_eq!(found.len(), 1, "{found:?}");
        let Irregular { client, observed, z, pull, .. } = found[0];
        assert_eq!((client, observed, pull), (ClientId(1), 0.25, 0.5 * 3.0 / 4.0));
        assert!((z + 0.25 / (0.25f64 / 1000.0).sqrt()).abs() < 1e-12, "{z}");
    }
}
