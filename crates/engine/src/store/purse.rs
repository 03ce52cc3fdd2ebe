//! Keep what a site may tell in all its runs together: every run takes its whole budget out, and
//! nothing is put back.
//!
//! Budgets of runs add up, whatever was chosen after what was seen (basic composition): sums of
//! epsilons and of deltas are bounds for a server that adapts. A run is paid for once, durably,
//! before its first answer; a run that was paid for and has lost its state is not gone on with,
//! since what it has told is not known any more. A purse that is copied, or restored from an old
//! copy, forgets what was paid since: nothing on the same disk can notice that.

use thiserror::Error;

use super::{Disk, StoreError};

const FILE: &str = "purse";

/// What was taken out of a site's budget, run by run.
#[derive(Debug)]
pub struct Purse<D> {
    disk: D,
    runs: Vec<(String, f64, f64)>,
}

/// Whether a run was paid for before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payment {
    /// It is now.
    Paid,
    /// It was.
    Before,
}

/// Why a run is not paid for.
#[derive(Debug, Error)]
pub enum PurseError {
    /// Too little is left.
    #[error(
        "the run takes epsilon {epsilon} and delta {delta:e}, and of what this site may tell in \
         all its runs {left_epsilon} and {left_delta:e} are left: {runs} runs have taken the rest"
    )]
    Empty {
        /// What the run takes.
        epsilon: f64,
        /// Its delta.
        delta: f64,
        /// What is left.
        left_epsilon: f64,
        /// Of delta.
        left_delta: f64,
        /// How many runs were paid for.
        runs: usize,
    },
    /// It cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<D: Disk> Purse<D> {
    /// Read what was paid.
    pub fn open(disk: D) -> Result<Self, StoreError> {
        let Some(bytes) = disk.read(FILE).map_err(StoreError::at(FILE))? else {
            return Ok(Purse { disk, runs: Vec::new() });
        };
        let damaged = || StoreError::damaged(FILE, 0, "its checksum is not that of its contents");
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32fast::hash(body).to_le_bytes() != *checksum {
            return Err(damaged());
        }
        let (mut runs, mut rest) = (Vec::new(), body);
        while !rest.is_empty() {
            let (epsilon, more) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
            let (delta, more) = more.split_first_chunk::<8>().ok_or_else(damaged)?;
            let (length, more) = more.split_first_chunk::<4>().ok_or_else(damaged)?;
            let length = u32::from_le_bytes(*length) as usize;
            let (name, more) = more.split_at_checked(length).ok_or_else(damaged)?;
            let name = String::from_utf8(name.to_vec()).map_err(|_| damaged())?;
            runs.push((name, f64::from_le_bytes(*epsilon), f64::from_le_bytes(*delta)));
            rest = more;
        }
        Ok(Purse { disk, runs })
    }

    /// What all runs have taken: epsilon and delta.
    pub fn spent(&self) -> (f64, f64) {
        self.runs.iter().fold((0.0, 0.0), |(e, d), (_, epsilon, delta)| (e + epsilon, d + delta))
    }

    /// Take the budget of a run out of what there is in all; durable on return.
    pub fn pay(
        &mut self,
        run: &str,
        (epsilon, delta): (f64, f64),
        (all_epsilon, all_delta): (f64, f64),
    ) -> Result<Payment, PurseError> {
        if self.runs.iter().any(|(known, ..)| known == run) {
            return Ok(Payment::Before);
        }
        let (spent_epsilon, spent_delta) = self.spent();
        // A sum of a few decimals may be off in its last digits.
        let fits = |spent: f64, wanted: f64, all: f64| spent + wanted <= all * (1.0 + 1e-9);
        if !fits(spent_epsilon, epsilon, all_epsilon) || !fits(spent_delta, delta, all_delta) {
            return Err(PurseError::Empty {
                epsilon,
                delta,
                left_epsilon: (all_epsilon - spent_epsilon).max(0.0),
                left_delta: (all_delta - spent_delta).max(0.0),
                runs: self.runs.len(),
            });
        }
        self.runs.push((run.to_owned(), epsilon, delta));
        let mut bytes = Vec::new();
        for (name, epsilon, delta) in &self.runs {
            bytes.extend_from_slice(&epsilon.to_le_bytes());
            bytes.extend_from_slice(&delta.to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        let written = self.disk.replace(FILE, &bytes).map_err(StoreError::at(FILE));
        if written.is_err() {
            self.runs.pop(); // it may be on disk, and is read from there the next time
        }
        written?;
        Ok(Payment::Paid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Faults, Simulated};
    use super::*;

    #[test]
    fn runs_take_their_budgets_out_and_nothing_comes_back() {
        let disk = Simulated::new(1, Faults::default());
        let mut purse = Purse::open(disk.clone()).unwrap();
        let all = (5.0, 3e-6);
        assert_eq!(purse.pay("one", (2.0, 1e-6), all).unwrap(), Payment::Paid);
        assert_eq!(purse.pay("one", (2.0, 1e-6), all).unwrap(), Payment::Before);
        // Another program, later, knows it too.
        let mut later = Purse::open(disk.clone()).unwrap();
        assert_eq!(later.spent(), (2.0, 1e-6));
        assert_eq!(later.pay("two", (3.0, 1e-6), all).unwrap(), Payment::Paid);
        let refused = later.pay("three", (0.1, 1e-7), all).unwrap_err();
        assert!(matches!(refused, PurseError::Empty { runs: 2, .. }), "{refused}");
        assert!(refused.to_string().contains("0.1"), "{refused}");
        // A larger budget is the site's own decision; what was told stays told.
        assert_eq!(later.pay("three", (0.1, 1e-7), (6.0, 3e-6)).unwrap(), Payment::Paid);
        let deltas = later.pay("four", (0.1, 2e-6), (9.0, 3e-6)).unwrap_err();
        assert!(matches!(deltas, PurseError::Empty { .. }), "{deltas}");
    }

    #[test]
    fn a_payment_is_durable_on_return() {
        let disk = Simulated::new(7, Faults::default());
        for k in 0..20u32 {
            let mut purse = Purse::open(disk.clone()).unwrap();
            assert_eq!(purse.spent().0, f64::from(k));
            purse.pay(&k.to_string(), (1.0, 1e-9), (100.0, 1.0)).unwrap();
            disk.power_cut();
        }
    }

    #[test]
    fn a_damaged_purse_is_refused() {
        let mut disk = Simulated::new(1, Faults::default());
        Purse::open(disk.clone()).unwrap().pay("one", (2.0, 1e-6), (5.0, 1.0)).unwrap();
        let mut bytes = disk.read(FILE).unwrap().unwrap();
        bytes[3] ^= 1;
        disk.replace(FILE, &bytes).unwrap();
        assert!(Purse::open(disk).is_err());
    }
}
