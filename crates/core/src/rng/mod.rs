//! Draw every random number from an address, never from a sequence.
//!
//! A [`Stream`] is a pure function of (seed, chain, purpose, client, round). Nobody's numbers move
//! when a client drops out, a thread is added, or a new draw appears elsewhere. Underneath is
//! ChaCha with eight rounds used as a counter-based generator: the seed is the key, the address is
//! the counter and nonce, so there is nothing to set up and nothing to store. It is a cryptographic
//! function: whoever lacks a client's key cannot compute that client's noise.

mod blocks;
mod noise;
mod normal;
mod rounds;
mod subsets;

pub(crate) use noise::half_of_four;
pub use noise::{Addresses, Blend, Noise, SharedNoises};
pub use rounds::Rounds;
pub use subsets::Subsets;

pub(crate) use blocks::LOT;
use blocks::{BLOCKS, GROUP, StreamAddress};

/// Rounds have random numbers below this: the purpose stands above them in an address.
pub const ROUNDS: u64 = 1 << 56;

/// A client's number, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// The address of what belongs to no client: the server's noise, shared noise, coins.
pub const SERVER: ClientId = ClientId(u32::MAX);

impl ClientId {
    /// The client's place in a list of clients.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a random number is for. The discriminants are part of the address: never renumber them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Langevin noise: the server's (or shared) at [`SERVER`], a client's own at its id.
    Noise = 1,
    /// A client's minibatch.
    Batch = 2,
    /// Who takes part in a round.
    Participation = 3,
    /// The coin that decides whether local chains synchronise.
    Synchronise = 4,
    /// The coin that decides whether the reference point moves.
    Reference = 5,
    /// A client's (or, at [`SERVER`], the server's) random compression.
    Compress = 6,
    /// Starting points.
    Start = 7,
    /// Directions of the power iteration that estimates curvature.
    Curvature = 8,
    /// Synthetic data and partitions.
    Data = 9,
    /// The keys of chains.
    Derive = 10,
    /// Points that are proposed: everybody computes them.
    Proposal = 11,
    /// Whether a proposal is accepted.
    Accept = 12,
    /// Points of a pilot, which is thrown away.
    Pilot = 13,
    /// What tells the two halves of an iteration's noise apart, where a chain takes half the step.
    Bridge = 14,
    /// What a client adds to its answers so that they do not tell its rows.
    Privacy = 15,
    /// Effects of groups, which a site draws from their law given the parameters.
    Effects = 16,
    /// Responses that a model would draw for rows that are there, to hold against those that they
    /// have.
    Replicate = 17,
    /// Parameters that are drawn from their prior.
    Prior = 18,
}

/// A key from which every stream of one party (or, in simulation, of all parties) is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    key: [u32; 8],
    /// Whether a chain takes half the step, along the path of the chain that does not.
    halved: bool,
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(secret)") // a log must not give away a client's noise
    }
}

impl Seed {
    /// The seed that a number stands for, as in `seed = 1` in a config.
    pub fn new(number: u64) -> Self {
        let mut key = [0; 8];
        key[0] = number as u32;
        key[1] = (number >> 32) as u32;
        Seed { key, halved: false }
    }

    /// A seed from 256 bits of entropy.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut key = [0; 8];
        for (word, four) in key.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        }
        Seed { key, halved: false }
    }

    /// The same for a chain of half the step: two of its iterations have, together, the noise of
    /// one of the other chain's, so that both follow the same path.
    pub fn halved(self) -> Self {
        Seed { halved: true, ..self }
    }

    /// The key, for another machine that draws the same numbers. Whoever has it knows all of them.
    pub fn key(self) -> [u32; 8] {
        self.key
    }

    /// The seed of one of several independent chains.
    pub fn chain(self, chain: u32) -> Self {
        let mut words = [0; 8];
        self.stream(Purpose::Derive, SERVER, u64::from(chain)).words(&mut words);
        Seed { key: words, ..self }
    }

    /// The stream at an address. Rounds are numbered below 2^56.
    pub fn stream(self, purpose: Purpose, client: ClientId, round: u64) -> Stream {
        Stream {
            place: self.place(purpose, client, round),
            next_block: 0,
            buffer: [[0; BLOCKS]; 16],
            used: GROUP,
        }
    }

    fn place(self, purpose: Purpose, client: ClientId, round: u64) -> StreamAddress {
        debug_assert!(round < ROUNDS, "round {round} does not fit its address");
        StreamAddress { key: self.key, client: client.0, tag: round | ((purpose as u64) << 56) }
    }
}

/// Random numbers at one address, in order.
#[derive(Clone)]
pub struct Stream {
    place: StreamAddress,
    next_block: u32,
    /// Word `i` of block `lane` of a group is at `buffer[i][lane]`; words are handed out row by
    /// row.
    buffer: [[u32; BLOCKS]; 16],
    used: usize,
}

impl Stream {
    /// The next word, uniform over all 2^32 values.
    #[inline]
    pub fn word(&mut self) -> u32 {
        if self.used == GROUP {
            self.refill();
        }
        let word = self.buffer.as_flattened()[self.used];
        self.used += 1;
        word
    }

    /// Fill `out` with words.
    pub fn words(&mut self, out: &mut [u32]) {
        let mut out = out;
        while !out.is_empty() {
            if self.used == GROUP && out.len() >= LOT {
                let (lots, later) = out.as_chunks_mut::<LOT>();
                blocks::lots(&self.place, self.next_block, lots);
                self.next_block = self.next_block.wrapping_add((lots.len() * LOT / 16) as u32);
                out = later;
                continue;
            }
            if self.used == GROUP && out.len() >= GROUP {
                let (now, later) = out.split_at_mut(out.len() / GROUP * GROUP);
                blocks::words(&self.place, self.next_block, now.len(), now);
                self.next_block = self.next_block.wrapping_add((now.len() / 16) as u32);
                out = later;
                continue;
            }
            let ready = self.at_most(out.len());
            let (now, later) = out.split_at_mut(ready.len());
            now.copy_from_slice(ready);
            out = later;
        }
    }

    /// The next words, where they stand: `most` of them or, at the end of what was made together,
    /// fewer.
    #[inline]
    pub(crate) fn at_most(&mut self, most: usize) -> &[u32] {
        if self.used == GROUP {
            self.refill();
        }
        let ready = &self.buffer.as_flattened()[self.used..];
        let ready = &ready[..ready.len().min(most)];
        self.used += ready.len();
        ready
    }

    /// A number uniform in [0, 1), a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        let (low, high) = (u64::from(self.word()), u64::from(self.word()));
        ((high << 32 | low) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// True with the given probability.
    pub fn coin(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A number uniform in `0..bound` (Lemire 2019: multiply, shift, reject the few words that
    /// would bias it).
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        debug_assert!(bound > 0);
        let mut product = u64::from(self.word()) * u64::from(bound);
        if (product as u32) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u32) < threshold {
                product = u64::from(self.word()) * u64::from(bound);
            }
        }
        (product >> 32) as u32
    }

    /// Fill `out` with standard normals. Normal `k` of a stream is a function of its address and
    /// `k` alone.
    pub fn normals(&mut self, out: &mut [f64]) {
        assert!(
            self.used == GROUP,
            "normals start at a fresh address or after a whole number of refills"
        );
        blocks::normals(&self.place, self.next_block, out.len(), out);
        self.next_block = self.next_block.wrapping_add((out.len().div_ceil(GROUP) * BLOCKS) as u32);
    }

    fn refill(&mut self) {
        blocks::group(&self.place, self.next_block, &mut self.buffer);
        self.next_block = self.next_block.wrapping_add(BLOCKS as u32);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    #[test]
    fn words_are_those_of_chacha8() {
        let mut bytes = [0u8; 32];
        for (k, byte) in bytes.iter_mut().enumerate() {
            *byte = k as u8 * 7 + 1;
        }
        let (client, round) = (ClientId(5), 1234);
        let mut ours = Seed::from_bytes(bytes).stream(Purpose::Noise, client, round);
        let mut theirs = ChaCha8Rng::from_seed(bytes);
        theirs.set_stream(round | (Purpose::Noise as u64) << 56);
        // Ours hands out word i of four blocks before word i + 1 of any.
        for chunk in 0..3u128 {
            let mut blocks = [[0u32; 16]; BLOCKS];
            for (lane, block) in blocks.iter_mut().enumerate() {
                theirs.set_word_pos(
                    ((u128::from(client.0) << 32) + chunk * BLOCKS as u128 + lane as u128) * 16,
                );
                for word in block {
                    *word = theirs.next_u32();
                }
            }
            for i in 0..16 {
                for block in &blocks {
                    assert_eq!(ours.word(), block[i]);
                }
            }
        }
    }

    #[test]
    fn addresses_do_not_overlap() {
        let seed = Seed::new(3);
        let mut firsts = Vec::new();
        for chain in 0..3 {
            for purpose in [Purpose::Noise, Purpose::Batch, Purpose::Compress] {
                for client in [ClientId(0), ClientId(1), SERVER] {
                    for round in [0, 1, 2, (1 << 56) - 1] {
                        firsts.push(seed.chain(chain).stream(purpose, client, round).word());
                    }
                }
            }
        }
        let n = firsts.len();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), n); // 108 words of 32 bits collide by chance once in 700,000 seeds
    }

    #[test]
    fn normal_k_does_not_depend_on_how_many_are_drawn() {
        let draw = |n: usize| {
            let mut z = vec![0.0; n];
            Seed::new(1).stream(Purpose::Noise, SERVER, 9).normals(&mut z);
            z
        };
        let long = draw(1000);
        for n in [1, 7, 8, 15, 16, 17, 127, 128, 129, 255, 256, 257, 300, 511, 512, 700] {
            assert_eq!(draw(n), long[..n]);
        }
    }

    /// First four moments and the tails of a million normals; each z-score fails by chance once in
    /// a million.
    #[test]
    fn normals_are_normal() {
        let n = 1_000_000;
        let mut z = vec![0.0; n];
        Seed::new(2).stream(Purpose::Noise, ClientId(1), 4).normals(&mut z);
        let moment = |power: i32| z.iter().map(|v| v.powi(power)).sum::<f64>() / n as f64;
        let root = (n as f64).sqrt();
        // Var of z^p is E z^2p - (E z^p)^2: 1, 2, 15, 96.
        for (power, mean, variance) in
            [(1, 0.0, 1.0f64), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
        {
            let score = (moment(power) - mean) * root / variance.sqrt();
            assert!(score.abs() < 4.9, "moment {power}: {score}");
        }
        for (bound, mass) in [
            (1.0, 0.317_310_507_863),
            (2.0, 0.045_500_263_896),
            (3.0, 0.002_699_796_063),
            (4.0, 6.334_248_4e-5),
        ] {
            let beyond = z.iter().filter(|v| v.abs() > bound).count() as f64 / n as f64;
            let score = (beyond - mass) * root / (mass * (1.0f64 - mass)).sqrt();
            assert!(score.abs() < 4.9, "beyond {bound}: {score}");
        }
        let product = z.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / root;
        let paired = z.chunks_exact(8).map(|c| c[0] * c[4]).sum::<f64>() / (n as f64 / 8.0).sqrt();
        assert!(
            product.abs() < 4.9 && paired.abs() < 4.9,
            "neighbours {product}, cosine and sine {paired}"
        );
    }
}
