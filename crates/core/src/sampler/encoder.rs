//! Send a client's vectors: with noise of its own where its rows are private, then compressed, or
//! rounded to what the wire carries.

use super::Keys;
use crate::compress::{Channel, Precision};
use crate::privacy::Skellam;
use crate::protocol::{Kind, Packed, Payload, Reply};
use crate::rng::{ClientId, Purpose, Rounds, Seed, half_of_four};

/// Where a client's vectors leave it.
#[derive(Debug)]
pub(super) struct Encoder {
    precision: Precision,
    /// The channel, where vectors are compressed, and its random numbers.
    channel: Option<(Channel, Rounds)>,
    privacy: Option<OwnNoise>,
    /// What turns vectors into levels of a secure sum.
    levels: Option<Levels>,
}

/// Rounds vectors at random to levels that wrap, with Skellam noise on each.
struct Levels {
    grid: f64,
    bits: u32,
    noise: Skellam,
    seed: Seed,
    client: ClientId,
}

impl std::fmt::Debug for Levels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Levels({}, {} bits, secret)", self.grid, self.bits)
    }
}

impl Levels {
    fn replace(&self, round: u64, vector: &mut [f64]) {
        let mut stream = self.seed.stream(Purpose::Privacy, self.client, round);
        for value in vector {
            let rounded = (*value / self.grid + stream.uniform()).floor();
            let level = (rounded as i64).wrapping_add(self.noise.draw(&mut stream));
            *value = level.rem_euclid(1 << self.bits) as f64;
        }
    }
}

/// The power of two that is at most `2^-10` of a deviation, and above half of that.
fn grid(deviation: f64) -> f64 {
    f64::from_bits(deviation.to_bits() & (0x7FF << 52)) / 1024.0
}

/// Puts what has noise on a grid of the noise's own: the last bits of a sum of doubles tell more of
/// it than noise of any size hides (Mironov 2012).
#[derive(Clone, Copy, Debug)]
pub(super) struct Snap {
    grid: f64,
}

impl Snap {
    /// For noise of this deviation.
    pub(super) fn of(deviation: f64) -> Snap {
        Snap { grid: grid(deviation) }
    }

    /// The nearest multiple.
    pub(super) fn nearest(self, noisy: f64) -> f64 {
        (noisy / self.grid).round() * self.grid
    }

    /// Beyond this, sums are rounded to more than a hundredth of the grid, and a row that moves one
    /// by little could move what is sent by much.
    pub(super) fn most(self) -> f64 {
        (1u64 << 45) as f64 * self.grid
    }

    /// A sum, with noise. One beyond [`Snap::most`] tells that alone: no row moves it by more than
    /// before.
    fn with_noise(self, sum: f64, noise: f64) -> f64 {
        self.nearest(sum.clamp(-self.most(), self.most()) + noise)
    }
}

/// Noise that nobody else can compute, added to whatever leaves.
struct OwnNoise {
    /// `s_i`.
    deviation: f64,
    /// What leaves is a multiple of a power of two, at most `2^-10 s_i`.
    snap: Snap,
    seed: Seed,
    client: ClientId,
    normals: Vec<f64>,
}

impl std::fmt::Debug for OwnNoise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnNoise({}, secret)", self.deviation)
    }
}

/// Add noise of these deviations, number by number, and snap each to its own grid: as [`OwnNoise`]
/// does, for answers whose numbers have different sizes.
pub(super) fn add_noise(
    (key, client, round): (Seed, ClientId, u64),
    deviations: &[f64],
    answer: &mut [f64],
) {
    let mut normals = vec![0.0; 4 * answer.len()];
    key.stream(Purpose::Privacy, client, round).normals(&mut normals);
    let sized = answer.iter_mut().zip(deviations);
    for ((value, deviation), four) in sized.zip(normals.as_chunks::<4>().0) {
        *value = Snap::of(*deviation).with_noise(*value, deviation * half_of_four(four));
    }
}

impl OwnNoise {
    /// Add the noise of a round: of every normal half the sum of four, as [`Noise::private`] has
    /// it.
    ///
    /// [`Noise::private`]: crate::rng::Noise::private
    fn add(&mut self, round: u64, vector: &mut [f64]) {
        self.normals.resize(4 * vector.len(), 0.0);
        self.seed.stream(Purpose::Privacy, self.client, round).normals(&mut self.normals);
        for (value, four) in vector.iter_mut().zip(self.normals.as_chunks::<4>().0) {
            let noise = self.deviation * half_of_four(four);
            *value = self.snap.with_noise(*value, noise);
        }
    }
}

impl Encoder {
    pub(super) fn new(
        id: ClientId,
        precision: Precision,
        channel: Option<Channel>,
        keys: Keys,
    ) -> Self {
        let with_rounds = |channel: Channel| {
            // Both sides need the random numbers of some.
            let seed =
                if channel.compressor().needs_shared_stream() { keys.public } else { keys.private };
            (channel, Rounds::new(seed, Purpose::Compress, id))
        };
        Encoder { precision, channel: channel.map(with_rounds), privacy: None, levels: None }
    }

    /// The same, with noise of this deviation on everything that leaves, from the private key.
    pub(super) fn with_noise(self, id: ClientId, deviation: Option<f64>, keys: Keys) -> Self {
        let privacy = deviation.map(|deviation| OwnNoise {
            deviation,
            snap: Snap::of(deviation),
            seed: keys.private,
            client: id,
            normals: Vec::new(),
        });
        Encoder { privacy, ..self }
    }

    /// The same, which sends levels of this grid and so many bits, with Skellam noise of this
    /// variance from the private key.
    pub(super) fn with_levels(
        self,
        id: ClientId,
        (grid, bits, variance): (f64, u32, f64),
        keys: Keys,
    ) -> Self {
        let noise = Skellam::new(variance);
        let levels = Levels { grid, bits, noise, seed: keys.private, client: id };
        Encoder { levels: Some(levels), ..self }
    }

    /// The channel, where vectors are compressed and nothing else is done to them.
    pub(super) fn channel_alone(&self) -> Option<&Channel> {
        let (channel, _) = self.channel.as_ref()?;
        let alone = self.privacy.is_none() && self.levels.is_none();
        alone.then_some(channel).filter(|channel| !channel.compressor().needs_shared_stream())
    }

    /// The first words of a round's compression: so few that all are at hand.
    #[inline(always)]
    pub(super) fn first_words(&mut self, round: u64, count: usize) -> &[u32] {
        match &mut self.channel {
            Some((_, rounds)) => rounds.stream(round).at_most(count),
            None => &[],
        }
    }

    /// Send `vector`, compressed where there is a channel, with the packed for room; uncompressed
    /// it is rounded in place.
    pub(super) fn send<'a>(
        &'a mut self,
        kind: Kind,
        vector: &'a mut [f64],
        round: u64,
        packed: &'a mut Packed,
    ) -> Reply<'a> {
        if let Some(noise) = &mut self.privacy {
            noise.add(round, vector); // before compression: what follows only processes it
        }
        if let Some(levels) = &self.levels {
            levels.replace(round, vector);
            let payload = Payload::Levels { values: vector, bits: levels.bits };
            return Reply { round, kind, payload, beside: &[] };
        }
        let payload = match &mut self.channel {
            Some((channel, streams)) => {
                let stream = if channel.compressor().draws() {
                    streams.stream(round)
                } else {
                    streams.idle()
                };
                packed.pack(channel, vector, stream)
            }
            None => {
                self.precision.round(vector);
                Payload::Plain(vector, self.precision)
            }
        };
        Reply { round, kind, payload, beside: &[] }
    }

    /// Send `vector` uncompressed; it is rounded in place.
    pub(super) fn send_plain<'a>(
        &mut self,
        kind: Kind,
        vector: &'a mut [f64],
        round: u64,
    ) -> Reply<'a> {
        if let Some(noise) = &mut self.privacy {
            noise.add(round, vector);
        }
        self.precision.round(vector);
        Reply { round, kind, payload: Payload::Plain(vector, self.precision), beside: &[] }
    }
}
