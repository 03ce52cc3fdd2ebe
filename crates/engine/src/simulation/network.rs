//! Lose, double, delay, reorder and cut off messages in virtual time, as a seed decides.

use std::collections::BTreeMap;

use consilience_core::rng::{Purpose, SERVER, Seed, Stream};

/// How bad the network, the disks and the power are. Times are in ticks, chances out of a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// How many messages are lost.
    pub loss: u32,
    /// How many arrive twice.
    pub doubling: u32,
    /// A message takes between one and so many ticks: those sent later may arrive earlier.
    pub delay: u32,
    /// How often, in ticks, a partition cuts a client off; 0: never.
    pub partition_every: u32,
    /// For how many ticks at the most.
    pub partition_lasts: u32,
    /// After how many steps of its disk, on average, a party loses its power; 0: never.
    pub power: u32,
    /// How long it stays away at the most.
    pub away: u32,
    /// How often a server that starts is tried on a copy of its disk with one flipped bit.
    pub flips: u32,
}

impl Weather {
    /// Nothing goes wrong.
    pub const FAIR: Weather = Weather {
        loss: 0,
        doubling: 0,
        delay: 1,
        partition_every: 0,
        partition_lasts: 1,
        power: 0,
        away: 1,
        flips: 0,
    };

    /// A tenth of all messages is lost, a tenth comes twice, order is chance, and clients are cut
    /// off; the power stays.
    pub const ROUGH: Weather = Weather {
        loss: 100,
        doubling: 100,
        delay: 10,
        partition_every: 2000,
        partition_lasts: 200,
        power: 0,
        away: 1,
        flips: 0,
    };

    /// The same, and in about 6 rounds of 100 somebody starts again after a power cut.
    pub const RESTARTS: Weather = Weather { power: 160, away: 30, ..Weather::ROUGH };

    /// All that, everybody loses power again and again, and disks do not keep every bit.
    pub const FOUL: Weather = Weather { power: 60, away: 30, flips: 200, ..Weather::ROUGH };
}

/// The dice of a world.
pub(super) struct Dice(Stream);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice(Seed::new(seed).stream(Purpose::Data, SERVER, 1))
    }

    /// Between 0 and `n - 1`.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        self.0.below(n.max(1))
    }

    /// True so many times out of a thousand.
    pub(super) fn chance(&mut self, thousandths: u32) -> bool {
        self.0.below(1000) < thousandths
    }
}

/// What is to happen when, in order; what is to happen at one time happens in the order in which it
/// was decided.
pub(super) struct Agenda<T> {
    now: u64,
    decided: u64,
    items: BTreeMap<(u64, u64), T>,
}

impl<T> Agenda<T> {
    pub(super) fn new() -> Self {
        Agenda { now: 0, decided: 0, items: BTreeMap::new() }
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn add(&mut self, after: u64, item: T) {
        self.decided += 1;
        self.items.insert((self.now + after, self.decided), item);
    }

    pub(super) fn next(&mut self) -> Option<T> {
        let ((time, _), item) = self.items.pop_first()?;
        self.now = time;
        Some(item)
    }
}
