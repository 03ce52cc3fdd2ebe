//! Decide when a running chain is saved: every few seconds, and rarely enough to cost less than 1%
//! of the time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use consilience_engine::checkpoint::Pace;

/// What a kill costs at the most, where saving is cheap.
const USUAL: Duration = Duration::from_secs(5);
/// Saving takes at most one part in so many of the time.
const SHARE: u32 = 100;

/// A pace by the clock.
#[derive(Debug, Default)]
pub struct Clocked(Mutex<BTreeMap<usize, Turn>>);

#[derive(Clone, Copy, Debug)]
struct Turn {
    began: Instant,
    next: Instant,
}

impl Pace for Clocked {
    fn due(&self, chain: usize) -> bool {
        let now = Instant::now();
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = turns.entry(chain).or_insert(Turn { began: now, next: now + USUAL });
        if now < turn.next {
            return false;
        }
        turn.began = now;
        true
    }

    fn saved(&self, chain: usize) {
        let now = Instant::now();
        if let Some(turn) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&chain) {
            turn.next = now + USUAL.max((now - turn.began) * SHARE);
        }
    }
}
