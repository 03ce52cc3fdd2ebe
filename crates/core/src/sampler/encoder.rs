//! Send a client's vectors: with noise of its own where its rows are private, then compressed, or
//! rounded to what the wire carries.

use super::Keys;
use crate::compress::{Channel, Precision};
use crate::privacy::Skellam;
use crate::protocol::{Kind, Packed, Payload, Reply};
use crate::rng::{ClientId, Purpose, Rounds, Seed};

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

/// Noise that nobody else can compute, added to whatever leaves.
struct OwnNoise {
    /// `s_i`.
    deviation: f64,
    /// What leaves is a multiple of this power of two, at most `2^-10 s_i`: the last bits of a sum
    /// of doubles tell more of it than noise of any size hides (Mironov 2012).
    grid: f64,
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
        let noisy = *value + deviation * 0.5 * ((four[0] + four[1]) + (four[2] + four[3]));
        let grid = grid(*deviation);
        *value = (noisy / grid).round() * grid;
    }
}

impl OwnNoise {
    /// Add the noise of a round. A normal here is half the sum of four, so that no single one can
    /// be read off its last bits (Holohan and Braghin 2021).
    fn add(&mut self, round: u64, vector: &mut [f64]) {
        self.normals.resize(4 * vector.len(), 0.0);
        self.seed.stream(Purpose::Privacy, self.client, round).normals(&mut self.normals);
        for (value, four) in vector.iter_mut().zip(self.normals.as_chunks::<4>().0) {
            let normal = 0.5 * ((four[0] + four[1]) + (four[2] + four[3]));
            let noisy = *value + self.deviation * normal;
            *value = (noisy / self.grid).round() * self.grid;
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
            grid: grid(deviation),
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
