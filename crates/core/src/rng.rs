//! Draw every random number from an address, never from a sequence.
//!
//! A [`Stream`] is a pure function of (seed, chain, purpose, client, round). Nobody's numbers move when a client drops out, a thread is
//! added, or a new draw appears elsewhere. Underneath is ChaCha with eight rounds used as a counter-based generator: the seed is
//! the key, the address is the counter and nonce, so there is nothing to set up and nothing to store. It is a cryptographic
//! function: whoever lacks a client's key cannot compute that client's noise.

use crate::lanes::{self, LANES, W8, wide};

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
}

/// A key from which every stream of one party (or, in simulation, of all parties) is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed([u32; 8]);

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
        Seed(key)
    }

    /// A seed from 256 bits of entropy.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut key = [0; 8];
        for (word, four) in key.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        }
        Seed(key)
    }

    /// The seed of one of several independent chains.
    pub fn chain(self, chain: u32) -> Self {
        let mut words = [0; 8];
        self.stream(Purpose::Derive, SERVER, u64::from(chain)).words(&mut words);
        Seed(words)
    }

    /// The stream at an address. Rounds are numbered below 2^56.
    pub fn stream(self, purpose: Purpose, client: ClientId, round: u64) -> Stream {
        debug_assert!(round < 1 << 56, "round {round} does not fit its address");
        let tag = round | ((purpose as u64) << 56);
        Stream {
            key: self.0,
            client: client.0,
            tag: [tag as u32, (tag >> 32) as u32],
            next_block: 0,
            buffer: [[0; LANES]; 16],
            used: WORDS,
        }
    }
}

const WORDS: usize = 16 * LANES;

/// Random numbers at one address, in order.
#[derive(Clone)]
pub struct Stream {
    key: [u32; 8],
    client: u32,
    tag: [u32; 2],
    next_block: u32,
    /// Word `i` of block `lane` is at `buffer[i][lane]`; words are handed out row by row.
    buffer: [W8; 16],
    used: usize,
}

impl Stream {
    /// The next word, uniform over all 2^32 values.
    #[inline]
    pub fn word(&mut self) -> u32 {
        if self.used == WORDS {
            self.refill();
        }
        let word = self.buffer[self.used / LANES][self.used % LANES];
        self.used += 1;
        word
    }

    /// Fill `out` with words.
    pub fn words(&mut self, out: &mut [u32]) {
        let mut out = out;
        while !out.is_empty() {
            if self.used == WORDS && out.len() >= 2 * WORDS {
                let (now, later) = out.split_at_mut(out.len() / (2 * WORDS) * (2 * WORDS));
                words_in_bulk(&self.key, self.next_block, self.client, self.tag, now);
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

    /// The next words, where they stand: `most` of them or, at the end of what was made together, fewer.
    #[inline]
    pub fn at_most(&mut self, most: usize) -> &[u32] {
        if self.used == WORDS {
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

    /// A number uniform in `0..bound` (Lemire 2019: multiply, shift, reject the few words that would bias it).
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

    /// Fill `out` with standard normals. Normal `k` of a stream is a function of its address and `k` alone.
    ///
    /// A normal is made from 32 random bits of radius and 32 of angle for each pair, so none exceeds 6.77 in absolute value (the normal law
    /// has 1.4e-11 of its mass beyond).
    pub fn normals(&mut self, out: &mut [f64]) {
        assert!(self.used == WORDS, "normals start at a fresh address or after a whole number of refills");
        let mut out = out;
        while !out.is_empty() {
            let in_bulk = out.len() / (2 * WORDS) * (2 * WORDS);
            let (now, later) = out.split_at_mut(if in_bulk > 0 { in_bulk } else { out.len().min(WORDS) });
            if in_bulk > 0 {
                normals_in_bulk(&self.key, self.next_block, self.client, self.tag, now);
            } else {
                normals_of_blocks(&self.key, self.next_block, self.client, self.tag, now);
            }
            self.next_block = self.next_block.wrapping_add((now.len().div_ceil(WORDS) * LANES) as u32);
            out = later;
        }
    }

    fn refill(&mut self) {
        words_of_blocks(&self.key, self.next_block, self.client, self.tag, &mut self.buffer);
        self.next_block = self.next_block.wrapping_add(LANES as u32);
        self.used = 0;
    }
}

wide! {
    /// The words of eight blocks.
    fn words_of_blocks<'a>(key: &'a [u32; 8], block: u32, client: u32, tag: [u32; 2], out: &'a mut [W8; 16]) -> () {
        *out = chacha8(key, block, client, tag);
    }
}

wide! {
    /// The same words for many blocks, sixteen at a time: as many as the widest registers hold. `out` has a whole number of them.
    fn words_in_bulk<'a>(key: &'a [u32; 8], block: u32, client: u32, tag: [u32; 2], out: &'a mut [u32]) -> () {
        let mut block = block;
        for pair in out.as_chunks_mut::<{ 2 * WORDS }>().0 {
            let words = chacha8::<{ 2 * LANES }>(key, block, client, tag);
            let (first, second) = pair.split_at_mut(WORDS);
            for ((row, first), second) in words.iter().zip(first.as_chunks_mut::<LANES>().0).zip(second.as_chunks_mut::<LANES>().0) {
                first.copy_from_slice(&row[..LANES]);
                second.copy_from_slice(&row[LANES..]);
            }
            block = block.wrapping_add(2 * LANES as u32);
        }
    }
}

wide! {
    /// At most as many normals as eight blocks give.
    fn normals_of_blocks<'a>(key: &'a [u32; 8], block: u32, client: u32, tag: [u32; 2], out: &'a mut [f64]) -> () {
        let words = chacha8::<LANES>(key, block, client, tag);
        for (pair, target) in words.chunks_exact(2).zip(out.chunks_mut(2 * LANES)) {
            if let Ok(whole) = <&mut [f64; 2 * LANES]>::try_from(&mut *target) {
                lanes::box_muller(&pair[0], &pair[1], whole);
            } else {
                let mut normals = [0.0; 2 * LANES];
                lanes::box_muller(&pair[0], &pair[1], &mut normals);
                target.copy_from_slice(&normals[..target.len()]);
            }
        }
    }
}

wide! {
    /// The same normals for many blocks, sixteen at a time. `out` has a whole number of them.
    fn normals_in_bulk<'a>(key: &'a [u32; 8], block: u32, client: u32, tag: [u32; 2], out: &'a mut [f64]) -> () {
        let mut block = block;
        for both in out.as_chunks_mut::<{ 2 * WORDS }>().0 {
            let words = chacha8::<{ 2 * LANES }>(key, block, client, tag);
            let (first, second) = both.split_at_mut(WORDS);
            for (half, out) in [first, second].into_iter().enumerate() {
                for (pair, target) in words.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<{ 2 * LANES }>().0) {
                    let part = |row: &[u32; 2 * LANES]| -> W8 { row.as_chunks::<LANES>().0[half] };
                    lanes::box_muller(&part(&pair[0]), &part(&pair[1]), target);
                }
            }
            block = block.wrapping_add(2 * LANES as u32);
        }
    }
}

/// `N` consecutive blocks of ChaCha8 (Bernstein 2008), word by word. The loop over lanes is the outer one: that is what vectorises.
#[inline(always)]
fn chacha8<const N: usize>(key: &[u32; 8], block: u32, client: u32, tag: [u32; 2]) -> [[u32; N]; 16] {
    const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    let mut out = [[0; N]; 16];
    for lane in 0..N {
        let counter = block.wrapping_add(lane as u32);
        let [k0, k1, k2, k3, k4, k5, k6, k7] = *key;
        let start = [SIGMA[0], SIGMA[1], SIGMA[2], SIGMA[3], k0, k1, k2, k3, k4, k5, k6, k7, counter, client, tag[0], tag[1]];
        let mut x = start;
        double_round(&mut x);
        double_round(&mut x);
        double_round(&mut x);
        double_round(&mut x);
        for i in 0..16 {
            out[i][lane] = x[i].wrapping_add(start[i]);
        }
    }
    out
}

#[inline(always)]
fn double_round(x: &mut [u32; 16]) {
    quarter::<0, 4, 8, 12>(x);
    quarter::<1, 5, 9, 13>(x);
    quarter::<2, 6, 10, 14>(x);
    quarter::<3, 7, 11, 15>(x);
    quarter::<0, 5, 10, 15>(x);
    quarter::<1, 6, 11, 12>(x);
    quarter::<2, 7, 8, 13>(x);
    quarter::<3, 4, 9, 14>(x);
}

#[inline(always)]
fn quarter<const A: usize, const B: usize, const C: usize, const D: usize>(x: &mut [u32; 16]) {
    x[A] = x[A].wrapping_add(x[B]);
    x[D] = (x[D] ^ x[A]).rotate_left(16);
    x[C] = x[C].wrapping_add(x[D]);
    x[B] = (x[B] ^ x[C]).rotate_left(12);
    x[A] = x[A].wrapping_add(x[B]);
    x[D] = (x[D] ^ x[A]).rotate_left(8);
    x[C] = x[C].wrapping_add(x[D]);
    x[B] = (x[B] ^ x[C]).rotate_left(7);
}

/// Draws uniform subsets without replacement, remembering nothing from one draw to the next.
#[derive(Clone, Debug)]
pub struct Subsets {
    /// One bit a row; all zero between draws.
    taken: Vec<u64>,
}

impl Subsets {
    /// A drawer of subsets of `0..population`.
    pub fn new(population: usize) -> Self {
        Subsets { taken: vec![0; population.div_ceil(64)] }
    }

    /// Put a uniform subset of `0..population` of size `out.len()` into `out`, in ascending order.
    ///
    /// Rows are drawn with replacement until enough different ones are there; of a subset with more than half of all rows, those that it lacks are drawn.
    pub fn draw(&mut self, population: u32, stream: &mut Stream, out: &mut [u32]) {
        let size = out.len() as u32;
        assert!(size <= population && self.taken.len() * 64 >= population as usize);
        if 2 * u64::from(size) > u64::from(population) {
            self.take(population, population - size, stream, &mut []);
            self.exchange(population);
            self.give(out);
        } else {
            self.take(population, size, stream, out);
            if out.len() * 8 < self.taken.len() {
                out.sort_unstable(); // the marks are far apart: to look for them would take longer
                for row in &*out {
                    self.taken[(row / 64) as usize] = 0;
                }
            } else {
                self.give(out);
            }
        }
    }

    /// Mark as many different rows, and list them where there is a list. As many words are used at a time as rows are missing, so that the loop has no end that depends on
    /// what is drawn.
    fn take(&mut self, population: u32, size: u32, stream: &mut Stream, list: &mut [u32]) {
        if size == 0 {
            return;
        }
        let threshold = population.wrapping_neg() % population; // as in `Stream::below`
        let mut missing = size;
        while missing > 0 {
            for word in stream.at_most(missing as usize) {
                let product = u64::from(*word) * u64::from(population);
                if (product as u32) < threshold {
                    continue;
                }
                let row = (product >> 32) as u32;
                if let Some(slot) = list.get_mut((size - missing) as usize) {
                    *slot = row; // a row that is there already is written over by the next
                }
                let (place, bit) = (&mut self.taken[(row / 64) as usize], row % 64);
                missing -= 1 - (*place >> bit & 1) as u32;
                *place |= 1 << bit;
            }
        }
    }

    /// Mark the rows that are not, and the other way round.
    fn exchange(&mut self, population: u32) {
        let (whole, rest) = ((population / 64) as usize, population % 64);
        self.taken[..whole].iter_mut().for_each(|word| *word = !*word);
        if rest > 0 {
            self.taken[whole] ^= (1 << rest) - 1;
        }
    }

    /// List the marked rows and unmark them.
    fn give(&mut self, out: &mut [u32]) {
        const FEW: usize = 8;
        let mut slot = 0;
        for (place, word) in self.taken.iter_mut().enumerate() {
            let (mut bits, first) = (std::mem::take(word), place as u32 * 64);
            let count = bits.count_ones() as usize;
            if let (true, Some(slots)) = (count <= FEW, out[slot..].first_chunk_mut::<FEW>()) {
                for slot in slots {
                    *slot = first + bits.trailing_zeros(); // those too many are written over: a loop to the last would end at random
                    bits &= bits.wrapping_sub(1);
                }
            } else {
                for slot in &mut out[slot..slot + count] {
                    *slot = first + bits.trailing_zeros();
                    bits &= bits - 1;
                }
            }
            slot += count;
        }
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
        // Ours hands out word i of eight blocks before word i + 1 of any.
        for chunk in 0..3u128 {
            let mut blocks = [[0u32; 16]; LANES];
            for (lane, block) in blocks.iter_mut().enumerate() {
                theirs.set_word_pos(((u128::from(client.0) << 32) + chunk * LANES as u128 + lane as u128) * 16);
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

    /// First four moments and the tails of a million normals; each z-score fails by chance once in a million.
    #[test]
    fn normals_are_normal() {
        let n = 1_000_000;
        let mut z = vec![0.0; n];
        Seed::new(2).stream(Purpose::Noise, ClientId(1), 4).normals(&mut z);
        let moment = |power: i32| z.iter().map(|v| v.powi(power)).sum::<f64>() / n as f64;
        let root = (n as f64).sqrt();
        // Var of z^p is E z^2p - (E z^p)^2: 1, 2, 15, 96.
        for (power, mean, variance) in [(1, 0.0, 1.0f64), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            let score = (moment(power) - mean) * root / variance.sqrt();
            assert!(score.abs() < 4.9, "moment {power}: {score}");
        }
        for (bound, mass) in [(1.0, 0.317_310_507_863), (2.0, 0.045_500_263_896), (3.0, 0.002_699_796_063), (4.0, 6.334_248_4e-5)] {
            let beyond = z.iter().filter(|v| v.abs() > bound).count() as f64 / n as f64;
            let score = (beyond - mass) * root / (mass * (1.0f64 - mass)).sqrt();
            assert!(score.abs() < 4.9, "beyond {bound}: {score}");
        }
        let product = z.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / root;
        let paired = z.chunks_exact(16).map(|c| c[0] * c[8]).sum::<f64>() / (n as f64 / 16.0).sqrt();
        assert!(product.abs() < 4.9 && paired.abs() < 4.9, "neighbours {product}, cosine and sine {paired}");
    }

    #[test]
    fn subsets_are_uniform_and_ascending() {
        subsets_are_uniform(11, 4);
    }

    /// Of which the rows that they lack are drawn.
    #[test]
    fn large_subsets_are_uniform_and_ascending() {
        subsets_are_uniform(11, 9);
    }

    #[test]
    fn every_size_is_drawn_and_leaves_no_mark() {
        for population in [1, 63, 64, 65, 130, 1000] {
            let mut subsets = Subsets::new(population as usize);
            for size in [0, 1, population / 3, population / 2, population / 2 + 1, population - 1, population] {
                let mut out = vec![0; size.min(population) as usize];
                subsets.draw(population, &mut Seed::new(6).stream(Purpose::Batch, ClientId(0), u64::from(size)), &mut out);
                assert!(out.windows(2).all(|w| w[0] < w[1]) && out.last().is_none_or(|last| *last < population), "{size} of {population}");
                assert!(subsets.taken.iter().all(|word| *word == 0));
            }
        }
    }

    fn subsets_are_uniform(population: u32, size: usize) {
        let rounds = 100_000u64;
        let mut subsets = Subsets::new(population as usize);
        let mut pairs = vec![0u32; (population * population) as usize];
        let mut out = vec![0; size];
        for round in 0..rounds {
            subsets.draw(population, &mut Seed::new(5).stream(Purpose::Batch, ClientId(0), round), &mut out);
            assert!(out.windows(2).all(|w| w[0] < w[1]) && out[size - 1] < population);
            for a in &out {
                for b in &out {
                    pairs[(a * population + b) as usize] += 1;
                }
            }
        }
        let (n, k) = (f64::from(population), size as f64);
        for a in 0..population {
            for b in 0..population {
                let p = if a == b { k / n } else { k * (k - 1.0) / (n * (n - 1.0)) };
                let seen = f64::from(pairs[(a * population + b) as usize]);
                let score = (seen - rounds as f64 * p) / (rounds as f64 * p * (1.0 - p)).sqrt();
                assert!(score.abs() < 5.7, "rows {a}, {b}: {score}"); // 66 pairs at 1e-8 each
            }
        }
    }

    #[test]
    fn large_populations_take_the_other_branch_with_the_same_law() {
        let mut subsets = Subsets::new(100_000);
        let mut out = vec![0; 10];
        let mut sum = 0.0;
        for round in 0..2000 {
            subsets.draw(100_000, &mut Seed::new(5).stream(Purpose::Batch, ClientId(0), round), &mut out);
            assert!(out.windows(2).all(|w| w[0] < w[1]));
            sum += out.iter().map(|&r| f64::from(r)).sum::<f64>();
        }
        let (n, mean) = (20_000.0f64, 49_999.5);
        let sd = 100_000.0 / 12f64.sqrt();
        assert!(((sum / n - mean) * n.sqrt() / sd).abs() < 4.9);
    }
}
