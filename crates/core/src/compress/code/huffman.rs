//! Write levels in Huffman's code (1952) for the law that the levels of Gaussian vectors have: no
//! code that gives each level its own whole bits is shorter on them.
//!
//! Both ends know `s` and the length, so the standard deviation `s/sqrt(d)` and the code follow,
//! and nothing is learnt on the way: that is shorter than `entropy` where a message is too short to
//! learn from, and its length is a sum of table entries. Sizes `|l|` that share their upper bits
//! share a symbol, behind which the lower bits stand as they are; then the sign, unless `l = 0`.
//! Sizes beyond six standard deviations are one symbol together, followed by the excess in Elias's
//! gamma code, so that a vector that is far from Gaussian costs a few bits more and not many.

use super::CodeError;
use super::bits::{BitReader, BitSink};
use super::elias::Integer;
use super::stairs::Stairs;
use crate::compress::Compressor;
use crate::compress::message::Symbols;
use crate::compress::operator::{Quantiser, Spread};
use crate::simd::exp;

/// More symbols than any table has: six standard deviations of at most 16 steps, zero, and what
/// lies beyond.
const SYMBOLS: usize = 128;
/// A standard deviation has at least half as many steps, where it has at least as many levels.
const STEPS: f64 = 16.0;
/// More bits than any symbol has: weights lie between 2^19 and 2^34, and a depth of 32 would need
/// weights that differ by 2^22.
const LONGEST: usize = 40;

/// The lengths of all symbols' words: all that both ends must agree on.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::compress) struct Book {
    lengths: [u8; SYMBOLS],
    /// How many symbols there are.
    count: u8,
    /// How many of them stand for sizes of their own; what lies beyond shares the last one, where
    /// it is one more.
    plain: u8,
    /// Lower bits that are written as they are.
    shift: u8,
    /// The largest size.
    max: u32,
    /// How long a level is, by its size.
    stairs: Stairs,
}

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book")
            .field("lengths", &&self.lengths[..usize::from(self.count)])
            .field("shift", &self.shift)
            .finish()
    }
}

impl Book {
    /// For other codes.
    pub(super) const NONE: Book = Book {
        lengths: [0; SYMBOLS],
        count: 0,
        plain: 0,
        shift: 0,
        max: 0,
        stairs: Stairs::new(0),
    };

    /// The book for what `compressor` makes of vectors of `dimension` coordinates; none where it
    /// makes no levels.
    pub(super) fn new(compressor: &Compressor, dimension: usize) -> Book {
        let Symbols::Levels { max, .. } = compressor.operator.symbols() else { return Book::NONE };
        let deviation = match compressor.operator.spread(compressor.longest_block(dimension)) {
            Spread::Normal { square, .. } => f64::from(max) / (square.max(1) as f64).sqrt(),
            Spread::Exponents => f64::from(max) / 4.0,
            Spread::Unknown => 1.0,
        };
        let mut shift = 0;
        while deviation / f64::from(1u32 << shift) >= STEPS {
            shift += 1;
        }
        let width = f64::from(1u32 << shift);
        let plain = ((max >> shift) + 1).min((6.0 * deviation / width) as u32 + 2) as usize;
        let count = plain + usize::from((max >> shift) as usize >= plain);
        // Rounding at random adds 1/6 to the variance, or nearly: it is what a fraction that is
        // uniform would add.
        let precision = 1.0 / (deviation * deviation + 1.0 / 6.0);
        let mut weights = [0; SYMBOLS];
        for (symbol, weight) in weights[..count].iter_mut().enumerate() {
            let middle = symbol as f64 * width + if shift > 0 { 0.5 * width } else { 0.0 };
            let signs = if shift == 0 && symbol == 0 { 1.0 } else { 2.0 };
            *weight = (signs * exp(-0.5 * precision * middle * middle) * 4_294_967_296.0) as u64
                + (1 << 19);
        }
        let mut lengths = depths(&weights[..count]);
        lengths[1..count].sort_unstable(); // no longer on average: larger sizes are rarer
        let book = Book {
            lengths,
            count: count as u8,
            plain: plain as u8,
            shift: shift as u8,
            max,
            ..Book::NONE
        };
        Book { stairs: book.stairs(), ..book }
    }

    /// The number of bits that [`Book::write`] would write.
    pub(super) fn length(&self, levels: &[i32]) -> u64 {
        let (mut bits, top) = self.stairs.total(levels);
        if top >= self.beyond() {
            let excess =
                levels.iter().filter_map(|level| level.unsigned_abs().checked_sub(self.beyond()));
            bits += excess.map(|excess| Integer::Gamma.length(u64::from(excess) + 1)).sum::<u64>();
        }
        bits
    }

    /// The length of a level as a function of its size, but for the excess beyond the last symbol.
    fn stairs(&self) -> Stairs {
        let length = |symbol: u8| i32::from(self.lengths[usize::from(symbol)]);
        let (shift, mut stairs) = (
            i32::from(self.shift),
            Stairs::new(u32::from(self.lengths[0]) + u32::from(self.shift)),
        );
        if self.shift > 0 {
            stairs.rise(1, 1); // the sign
        }
        for symbol in 1..self.count {
            let sign = i32::from(self.shift == 0 && symbol == 1);
            let lower = if symbol == self.plain { -shift } else { 0 };
            stairs.rise(
                u32::from(symbol) << self.shift,
                length(symbol) - length(symbol - 1) + sign + lower,
            );
        }
        stairs
    }

    /// The least size that has no symbol of its own.
    fn beyond(&self) -> u32 {
        u32::from(self.plain) << self.shift
    }

    pub(super) fn write<S: BitSink>(&self, levels: &[i32], sink: &mut S) {
        let (words, plain, shift) = (self.words(), u32::from(self.plain), u32::from(self.shift));
        for level in levels {
            let size = level.unsigned_abs();
            let symbol = (size >> shift).min(plain) as usize;
            sink.put(u64::from(words[symbol]), u32::from(self.lengths[symbol]));
            if symbol < plain as usize {
                sink.put(u64::from(size & ((1 << shift) - 1)), shift);
            } else {
                Integer::Gamma.put(u64::from(size - self.beyond()) + 1, sink);
            }
            if size > 0 {
                sink.put(u64::from(*level < 0), 1);
            }
        }
    }

    pub(super) fn read(
        &self,
        source: &mut BitReader<'_>,
        levels: &mut [i32],
    ) -> Result<(), CodeError> {
        let (order, firsts) = self.ranks();
        let (plain, shift, max) = (u32::from(self.plain), u32::from(self.shift), self.max);
        for (place, level) in levels.iter_mut().enumerate() {
            let symbol = self.read_symbol(source, &order, &firsts)?;
            let size = if symbol < plain {
                u64::from(symbol << shift) | source.get(shift)?
            } else {
                u64::from(self.beyond()).saturating_add(Integer::Gamma.get(source)? - 1)
            };
            if size > u64::from(max) {
                return Err(CodeError::Level { place, max });
            }
            let negative = size > 0 && source.get(1)? == 1;
            *level = if negative { -(size as i32) } else { size as i32 };
        }
        Ok(())
    }

    fn read_symbol(
        &self,
        source: &mut BitReader<'_>,
        order: &[u8; SYMBOLS],
        firsts: &[(u32, u32); LONGEST],
    ) -> Result<u32, CodeError> {
        let mut word = 0;
        for length in 1..LONGEST {
            word = word << 1 | source.get(1)? as u32;
            let (first, before) = firsts[length];
            let (_, up_to) = firsts[(length + 1).min(LONGEST - 1)];
            if word >= first && word - first < up_to - before {
                return Ok(u32::from(order[(before + word - first) as usize]));
            }
        }
        Err(CodeError::Truncated) // no word is so long
    }

    /// The symbols by length, and for each length its first word and how many symbols are shorter.
    fn ranks(&self) -> ([u8; SYMBOLS], [(u32, u32); LONGEST]) {
        let (mut order, mut firsts) = ([0; SYMBOLS], [(0, 0); LONGEST]);
        let (mut word, mut rank) = (0, 0);
        for (length, first) in firsts.iter_mut().enumerate() {
            word <<= 1;
            *first = (word, rank);
            for symbol in (0..self.count)
                .filter(|symbol| usize::from(self.lengths[usize::from(*symbol)]) == length)
            {
                order[rank as usize] = symbol;
                (word, rank) = (word + 1, rank + 1);
            }
        }
        (order, firsts)
    }

    /// The word of each symbol: those of one length are consecutive numbers, shorter ones come
    /// first.
    fn words(&self) -> [u32; SYMBOLS] {
        let (order, firsts) = self.ranks();
        let mut words = [0; SYMBOLS];
        for (rank, symbol) in order[..usize::from(self.count)].iter().enumerate() {
            let (first, before) = firsts[usize::from(self.lengths[usize::from(*symbol)])];
            words[usize::from(*symbol)] = first + (rank as u32 - before);
        }
        words
    }
}

/// The depths of the leaves of Huffman's tree: join the two lightest until one is left. Among
/// equals older ones go first, so that both ends build one tree.
fn depths(weights: &[u64]) -> [u8; SYMBOLS] {
    let mut nodes: Vec<(u64, usize)> =
        weights.iter().copied().enumerate().map(|(symbol, weight)| (weight, symbol)).collect();
    let mut parents = vec![0; 2 * weights.len()];
    let mut next = weights.len();
    while nodes.len() > 1 {
        nodes.sort_unstable_by(|a, b| b.cmp(a));
        if let (Some((light, a)), Some((heavier, b))) = (nodes.pop(), nodes.pop()) {
            (parents[a], parents[b]) = (next, next);
            nodes.push((light + heavier, next));
            next += 1;
        }
    }
    let mut depth = vec![0u8; next];
    for node in (0..next.saturating_sub(1)).rev() {
        depth[node] = depth[parents[node]] + 1;
    }
    let mut lengths = [0; SYMBOLS];
    lengths[..weights.len()].copy_from_slice(&depth[..weights.len()]);
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_by_hand() {
        assert_eq!(depths(&[8, 4, 2, 1, 1])[..5], [1, 2, 3, 4, 4]);
        assert_eq!(depths(&[1, 1, 1, 1])[..4], [2, 2, 2, 2]);
        assert_eq!(depths(&[5, 3])[..2], [1, 1]);
    }

    /// Kraft's sum is 1: every string of bits is the beginning of words, and none is wasted.
    #[test]
    fn books_are_complete_and_short() {
        for levels in [1, 2, 3, 16, 255, 256, 65_536, (1 << 30) - 1] {
            for dimension in [1, 2, 20, 50, 784, 1_000_000] {
                let book = Book::new(&Compressor::qsgd(levels), dimension);
                let used = &book.lengths[..usize::from(book.count)];
                assert!(
                    used.len() < SYMBOLS
                        && used.iter().all(|length| (1..LONGEST as u8 - 1).contains(length)),
                    "{levels} {dimension}: {book:?}"
                );
                assert_eq!(
                    used.iter().map(|length| 1u64 << (LONGEST - usize::from(*length))).sum::<u64>(),
                    1 << LONGEST
                );
            }
        }
    }
}
