//! Write levels at nearly their entropy by a law that one byte names, with states that take symbols
//! in turns ([`super::ans`]): as short as an adaptive code where messages are long, and several
//! times as fast.
//!
//! ```text
//! law (8 bits) | states (5 bits of length each, then all of them without their leading one)
//!              | words | what stands behind symbols | zeros
//! ```
//!
//! A level is one symbol, its sign and class ([`super::laws`]); where most levels are zero, the
//! symbols are the bytes that say which of eight levels are not, then those of these bytes that
//! escaped, then the classes of the levels that are not zero. Behind symbols stand the signs (where
//! zeros prevail) and then, level by level, its lower bits, or the whole of it in Elias's gamma
//! code if its class escaped. The states begin with the norm and then with the first of those bits
//! instead of with nothing, so that they cost little. Where there are several norms they are
//! written before all else.
//!
//! The length is *defined*: 37 bits a state, the symbols at their prices (rounded up to 256ths of a
//! bit), and what stands behind them. No message takes more, because every push is worth its price
//! but for a part in 2^19; zeros fill up what it takes less. So the length is a sum over counts of
//! levels and is known without writing. Of the laws that one is taken by which this sum is
//! smallest; a reader refuses any other.

use super::CodeError;
use super::ans::{Alphabet, EXCESS, LEAST, MOST};
use super::bits::{BitReader, BitSink, BitWriter};
use super::classes::{Counts, EIGHT, gamma_bits};
use super::laws::{Alphabets, Cost, ESCAPE, ESCAPED_EIGHT, ESCAPES, Laws, Levels};
use super::nonzero::{for_each_nonzero, gathered, mark_eights};
use crate::compress::Compressor;
use crate::compress::message::{Message, Scratch, Symbols};
use crate::compress::operator::{Quantiser, Spread};
use crate::simd::{Kernel, ln, run_vectorised, wide};
use std::sync::OnceLock;

/// Shorter vectors are not worth their law's name.
const SHORTEST: usize = 512;
/// Messages that are expected to have fewer bits are not, either.
const LEAST_BITS: f64 = 1024.0;
/// Beyond this standard deviation most levels would have lower bits.
const WIDEST: f64 = 16.0;
/// A level is expected to have more bits than this, or rounding prices up would cost much of them.
const LEAST_ENTROPY: f64 = 0.06;
/// From these expected bits on there is more than one state.
const SEVERAL: f64 = 8192.0;
/// Bits of a state beyond what it begins with: its length, and what rounding loses.
const ENDING: u64 = 5 + 1;

/// The code for messages of one channel.
pub(in crate::compress) struct Parametric {
    levels: Levels,
    states: usize,
    /// Whether the one norm is what the first state begins with.
    whole: bool,
    laws: OnceLock<Laws>,
}

/// The laws follow from the rest.
impl PartialEq for Parametric {
    fn eq(&self, other: &Self) -> bool {
        (self.levels, self.states, self.whole) == (other.levels, other.states, other.whole)
    }
}

impl std::fmt::Debug for Parametric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parametric")
            .field("levels", &self.levels)
            .field("states", &self.states)
            .finish()
    }
}

impl Parametric {
    /// The code for what `compressor` makes of vectors of `dimension` coordinates, if messages are
    /// long enough and the mean square of levels is known.
    pub(super) fn new(compressor: &Compressor, dimension: usize) -> Option<Self> {
        let length = compressor.longest_block(dimension);
        let Symbols::Levels { max, norms: true } = compressor.operator.symbols() else {
            return None;
        };
        let Spread::Normal { square, exact: true } = compressor.operator.spread(length) else {
            return None;
        };
        let deviation = f64::from(max) / (square as f64).sqrt();
        if length < SHORTEST || u32::try_from(dimension).is_err() || deviation >= WIDEST {
            return None;
        }
        let entropy = normal_entropy(deviation);
        let bits = dimension as f64 * entropy;
        if bits < LEAST_BITS || entropy < LEAST_ENTROPY {
            return None;
        }
        Some(Parametric {
            levels: Levels { deviation, max, sparse: deviation < 0.25 },
            states: if bits < SEVERAL { 1 } else { MOST },
            whole: compressor.is_whole(),
            laws: OnceLock::new(),
        })
    }

    fn laws(&self) -> &Laws {
        self.laws.get_or_init(|| Laws::new(self.levels))
    }

    /// The number of bits of a message, norms included.
    pub(super) fn length(&self, message: &Message) -> u64 {
        let (norms, levels) = (message.scales.len(), &message.levels);
        if levels.is_empty() {
            return 32 * norms as u64;
        }
        let counts = self.count(levels);
        self.length_by(
            self.laws().cost(self.laws().shortest(&counts), &counts),
            norms,
            levels.len(),
        )
    }

    fn count(&self, levels: &[i32]) -> Counts {
        Counts::new(levels, self.levels.sparse)
    }

    /// The number of bits of a message with so many norms and levels, which are not none.
    fn length_by(&self, cost: Cost, norms: usize, levels: usize) -> u64 {
        // Eight levels have 10 symbols at most.
        let excess = 2 * levels as u64 / EXCESS + 1;
        let symbols = (cost.symbols + excess).div_ceil(256);
        let behind = cost.raw - u64::from(self.room_for_bits()).min(cost.raw);
        let norms = if self.whole { 0 } else { 32 * norms as u64 };
        let states = self.states as u64 * (u64::from(LEAST) + ENDING);
        norms + 8 + states + symbols + behind
    }

    /// How many of the bits behind symbols states can begin with.
    fn room_for_bits(&self) -> u32 {
        LEAST * (self.states as u32 - u32::from(self.whole))
    }

    /// Append a message to `out`; how many bits it has.
    pub(super) fn write(&self, message: &Message, out: &mut Vec<u8>) -> u64 {
        if message.levels.is_empty() {
            let mut sink = BitWriter::new(out);
            message.scales.iter().for_each(|norm| sink.put(u64::from(norm.to_bits()), 32));
            return sink.finish();
        }
        let counts = self.count(&message.levels);
        let law = self.laws().shortest(&counts);
        match self.states {
            1 => self.write_by::<1>(law, &counts, message, out),
            _ => self.write_by::<MOST>(law, &counts, message, out),
        }
    }

    /// Append a message that has levels, by this law.
    fn write_by<const W: usize>(
        &self,
        law: u8,
        counts: &Counts,
        message: &Message,
        out: &mut Vec<u8>,
    ) -> u64 {
        let (norms, levels) = (&message.scales, message.levels.as_slice());
        let cost = self.laws().cost(law, counts);
        let length = self.length_by(cost, norms.len(), levels.len());
        let mut sink = BitWriter::new(out);
        if !self.whole {
            norms.iter().for_each(|norm| sink.put(u64::from(norm.to_bits()), 32));
        }
        let (mut eights, mut nonzero) = (Vec::new(), Vec::new());
        if self.levels.sparse {
            eights.resize(levels.len().div_ceil(EIGHT), 0);
            mark_eights(levels, &mut eights);
            for_each_nonzero(levels, |_, level| nonzero.push(level));
        }
        let values = if self.levels.sparse { &nonzero } else { levels };
        let mut begin = Beginning::<W>::new(self.whole.then(|| norms[0].to_bits()));
        if cost.raw > 0 {
            self.put_behind(law, values, &mut begin);
        }
        let escaped: Vec<u8> = eights
            .iter()
            .copied()
            .filter(|byte| self.laws().eight_escapes(law, byte.count_ones()))
            .collect();
        let (mut states, mut words) = (begin.states, vec![0; (length / 32) as usize + W]);
        let at = run_vectorised(Pushing {
            alphabets: self.laws().alphabets(law),
            values,
            eights: &eights,
            escaped: &escaped,
            states: &mut states,
            words: &mut words,
        });

        sink.put(u64::from(law), 8);
        for state in states {
            sink.put(u64::from(state.ilog2() - LEAST), 5);
        }
        for state in states {
            let low = state.ilog2().min(32);
            let high = state.ilog2() - low;
            sink.put(state >> 32 & ((1 << high) - 1), high);
            sink.put(state & ((1 << low) - 1), low);
        }
        sink.put_words(&words[at..]);
        if cost.raw > u64::from(self.room_for_bits()) {
            let mut rest = Rest { begun: self.room_for_bits(), sink: &mut sink };
            self.put_behind(law, values, &mut rest);
        }
        sink.put_zeros(length.saturating_sub(sink.length()));
        sink.finish()
    }

    /// Put what stands behind symbols, until no more is wanted. `values` are all levels, or those
    /// that are not zero where zeros prevail.
    fn put_behind<B: Behind>(&self, law: u8, values: &[i32], sink: &mut B) {
        if self.levels.sparse {
            for some in values.chunks(32) {
                let signs = some.iter().fold(0, |bits, level| bits << 1 | u64::from(*level < 0));
                sink.put(signs, some.len() as u32);
                if sink.is_full() {
                    return;
                }
            }
        }
        let alphabets = self.laws().alphabets(law);
        // behind smaller sizes stands nothing
        let plain = alphabets.lower.iter().position(|lower| *lower > 0).unwrap_or(0) as u32;
        for group in values.chunks(GROUP) {
            for (some, marks) in group.chunks(BLOCK).zip(reaching(group, plain)) {
                if marks.count_ones() <= FEW {
                    for place in places(marks) {
                        self.put_one(alphabets, some[place], sink);
                    }
                } else {
                    some.chunks(EIGHT).for_each(|eight| self.put_eight(alphabets, eight, sink));
                }
            }
            if sink.is_full() {
                return;
            }
        }
    }

    /// What stands behind eight levels.
    fn put_eight<B: Behind>(&self, alphabets: &Alphabets, levels: &[i32], sink: &mut B) {
        let (mut bits, mut count, mut kinds) = (0, 0, 0);
        for level in levels {
            let lower = alphabets.lower(level.unsigned_abs());
            bits = bits << (lower % 64) | u64::from(level.unsigned_abs() & mask(lower));
            (count, kinds) = (count + u32::from(lower), kinds | lower);
        }
        // mostly there are lower bits alone, which fit a word
        if kinds & ESCAPES == 0 {
            sink.put(bits, count);
        } else {
            levels.iter().for_each(|level| self.put_one(alphabets, *level, sink));
        }
    }

    /// What stands behind one level.
    #[inline]
    fn put_one<B: Behind>(&self, alphabets: &Alphabets, level: i32, sink: &mut B) {
        let size = level.unsigned_abs();
        match alphabets.lower(size) {
            0 => {}
            ESCAPES => {
                // Elias's gamma code, and the sign unless it stands before
                let signs = u32::from(!self.levels.sparse);
                let sign = u64::from(level < 0 && !self.levels.sparse);
                sink.put(u64::from(size) << signs | sign, gamma_bits(size) + signs);
            }
            lower => sink.put(u64::from(size & mask(lower)), u32::from(lower)),
        }
    }

    /// Read a message; whatever [`write`](Self::write) would not have written is refused.
    pub(super) fn read(
        &self,
        bytes: &[u8],
        compressor: &Compressor,
        dimension: usize,
        message: &mut Message,
    ) -> Result<(), CodeError> {
        let mut source = BitReader::new(bytes);
        // The one norm is read with the levels, except where it is 0 and there are none.
        let count = if self.whole && bytes != [0; 4] {
            dimension
        } else {
            super::read_norms(compressor, dimension, &mut source, &mut message.scales)?
        };
        if count == 0 {
            message.end();
            return source.finish();
        }
        let mut scratch = std::mem::take(&mut message.scratch);
        let levels = match self.states {
            1 => self.read_levels::<1>(&mut source, message, count, &mut scratch),
            _ => self.read_levels::<MOST>(&mut source, message, count, &mut scratch),
        };
        message.scratch = scratch;
        let law = levels?;
        message.end();
        let counts = self.count(&message.levels);
        let shortest = self.laws().shortest(&counts);
        if law != shortest {
            return Err(CodeError::Law { found: law, shortest });
        }
        let cost = self.laws().cost(law, &counts);
        let needed = self.length_by(cost, message.scales.len(), count).div_ceil(8) as usize;
        if bytes.len() < needed {
            return Err(CodeError::Truncated);
        }
        if bytes.len() > needed {
            return Err(CodeError::Surplus { bytes: bytes.len() - needed });
        }
        source.finish_zeros()
    }

    /// Read `count` levels, and the norm if the first state begins with it; the law.
    fn read_levels<const W: usize>(
        &self,
        source: &mut BitReader<'_>,
        message: &mut Message,
        count: usize,
        scratch: &mut Scratch,
    ) -> Result<u8, CodeError> {
        let law = source.get(8)? as u8;
        let (mut lengths, mut states) = ([0; W], [0; W]);
        for length in &mut lengths {
            *length = LEAST + source.get(5)? as u32;
        }
        for (state, length) in states.iter_mut().zip(lengths) {
            let high = source.get(length.max(32) - 32)?;
            *state = 1 << length | high << 32 | source.get(length.min(32))?;
        }
        let Scratch { words, eights, escaped, nonzero, .. } = scratch;
        // A symbol takes a word at most, and 8 levels have 10 symbols at most.
        let present = source.words(2 * count, words);
        words.extend([0; W]);
        let Alphabets { levels: symbols, eights: alphabets, .. } = self.laws().alphabets(law);
        let levels = message.room_for_levels(count);
        let mut pulled = Pulled { states, words, at: 0 };
        if let Some((which, bytes)) = alphabets {
            pulled.resized(which, eights, count.div_ceil(EIGHT))?;
            let any = eights.iter().filter(|byte| **byte == ESCAPED_EIGHT).count();
            pulled.resized(bytes, escaped, any)?;
            self.replace_escaped(law, eights, escaped)?;
            if let (Some(last), over @ 1..) = (eights.last(), count % EIGHT)
                && last >> over != 0
            {
                return Err(CodeError::Beyond { dimension: count });
            }
            let any = eights.iter().map(|byte| byte.count_ones() as usize).sum();
            nonzero.clear();
            nonzero.resize(any, 1);
            if let Some(sizes) = symbols {
                pulled.pull(sizes, nonzero, i32::from)?;
            }
        } else if let Some(symbols) = symbols {
            pulled.pull(symbols, levels, |byte| i32::from(byte as i8))?;
        }
        let Pulled { states, at, .. } = pulled;
        if at > present {
            return Err(CodeError::Truncated);
        }
        source.pass(32 * at);
        let mut behind = Begun::new(states, source)?;
        let norm = if self.whole { Some(f32::from_bits(behind.get(LEAST)? as u32)) } else { None };
        if self.levels.sparse {
            self.read_behind(law, nonzero, &mut behind)?;
            behind.finish()?;
            place(eights, nonzero, levels);
        } else {
            self.read_behind(law, levels, &mut behind)?;
            behind.finish()?;
        }
        if let Some(norm) = norm {
            if !(norm.is_finite() && norm > 0.0) {
                return Err(CodeError::Norm { place: 0 });
            }
            message.scales.push(norm);
        }
        Ok(law)
    }

    /// Put the bytes that escaped where they belong.
    fn replace_escaped(&self, law: u8, eights: &mut [u8], escaped: &[u8]) -> Result<(), CodeError> {
        let places = eights.iter_mut().enumerate().filter(|(_, byte)| **byte == ESCAPED_EIGHT);
        for ((place, byte), escaped) in places.zip(escaped) {
            if !self.laws().eight_escapes(law, escaped.count_ones()) {
                return Err(CodeError::Escape { place });
            }
            *byte = *escaped;
        }
        Ok(())
    }

    /// Make levels of what their symbols stand for and what stands behind these.
    fn read_behind<const W: usize>(
        &self,
        law: u8,
        values: &mut [i32],
        behind: &mut Begun<'_, '_, W>,
    ) -> Result<(), CodeError> {
        let alphabets = self.laws().alphabets(law);
        if self.levels.sparse {
            // Signs come first; of what escaped the size is not known yet.
            for some in values.chunks_mut(32) {
                let signs = behind.get(some.len() as u32)?;
                for (bit, value) in some.iter_mut().rev().enumerate() {
                    *value |= NEGATIVE * (signs >> bit & 1) as i32;
                }
            }
            for (place, value) in values.iter_mut().enumerate() {
                let (base, negative) = ((*value & 0xFF) as u32, *value & NEGATIVE != 0);
                *value = self.read_one(alphabets, place, base, negative, behind)?;
            }
            return Ok(());
        }
        for (number, group) in values.chunks_mut(GROUP).enumerate() {
            let all = reaching(group, 8);
            for (block, (some, marks)) in group.chunks_mut(BLOCK).zip(all).enumerate() {
                let first = number * GROUP + block * BLOCK;
                if marks.count_ones() <= FEW {
                    for place in places(marks) {
                        let (base, negative) = (some[place].unsigned_abs(), some[place] < 0);
                        some[place] =
                            self.read_one(alphabets, first + place, base, negative, behind)?;
                    }
                } else {
                    for (eight, values) in some.chunks_mut(EIGHT).enumerate() {
                        self.read_eight(alphabets, first + EIGHT * eight, values, behind)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The same for levels that stand together, the first of them at this place.
    #[inline(always)]
    fn read_eight<const W: usize>(
        &self,
        alphabets: &Alphabets,
        first: usize,
        values: &mut [i32],
        behind: &mut Begun<'_, '_, W>,
    ) -> Result<(), CodeError> {
        let (mut count, mut kinds) = (0, 0);
        for value in values.iter() {
            let lower = alphabets.lower(value.unsigned_abs());
            (count, kinds) = (count + u32::from(lower), kinds | lower);
        }
        if kinds & ESCAPES != 0 {
            for (place, value) in values.iter_mut().enumerate() {
                let (base, negative) = (value.unsigned_abs(), *value < 0);
                *value = self.read_one(alphabets, first + place, base, negative, behind)?;
            }
            return Ok(());
        }
        let bits = behind.get(count)?;
        for (place, value) in values.iter_mut().enumerate() {
            let lower = alphabets.lower(value.unsigned_abs());
            count -= u32::from(lower);
            let size = value.unsigned_abs() + ((bits >> count) as u32 & mask(lower));
            if size > self.levels.max {
                return Err(CodeError::Level { place: first + place, max: self.levels.max });
            }
            *value = if *value < 0 { -(size as i32) } else { size as i32 };
        }
        Ok(())
    }

    /// The level whose symbol stands for the size `base` with this sign, or is an escape.
    #[inline(always)]
    fn read_one<const W: usize>(
        &self,
        alphabets: &Alphabets,
        place: usize,
        base: u32,
        mut negative: bool,
        behind: &mut Begun<'_, '_, W>,
    ) -> Result<i32, CodeError> {
        let size = match alphabets.lower(base) {
            0 => base,
            ESCAPES => {
                let size = behind.gamma()?;
                if alphabets.lower(size) != ESCAPES {
                    return Err(CodeError::Escape { place });
                }
                if !self.levels.sparse {
                    negative = behind.get(1)? == 1;
                }
                size
            }
            lower => base + behind.get(u32::from(lower))? as u32,
        };
        if size > self.levels.max {
            return Err(CodeError::Level { place, max: self.levels.max });
        }
        Ok(if negative { -(size as i32) } else { size as i32 })
    }
}

/// So many ones.
#[inline(always)]
fn mask(bits: u8) -> u32 {
    (1 << (bits % 32)) - 1
}

/// Marks a size that belongs to a level below zero.
const NEGATIVE: i32 = 1 << 16;

/// The entropy of a normal number of this deviation that is rounded at random, in bits, roughly.
fn normal_entropy(deviation: f64) -> f64 {
    let log2 = |x: f64| ln(x) / core::f64::consts::LN_2;
    if deviation >= 0.5 {
        let around = 2.0 * core::f64::consts::PI * core::f64::consts::E;
        return 0.5 * log2(around * (deviation * deviation + 1.0 / 6.0));
    }
    let nonzero = 0.8 * deviation.max(1e-12);
    nonzero - nonzero * log2(nonzero) - (1.0 - nonzero) * log2(1.0 - nonzero)
}

/// Levels that are searched together for such behind which bits stand, and those of them whose
/// marks are one number.
const GROUP: usize = 8 * BLOCK;
const BLOCK: usize = 64;
/// So few of a block are visited one by one.
const FEW: u32 = 12;

wide! {
    /// Which of at most [`GROUP`] levels are of size `least` or more, the first lowest.
    fn reaching<'a>(levels: &'a [i32], least: u32) -> [u64; GROUP / BLOCK] {
        let mut reaches = [0u8; GROUP];
        for (reaches, level) in reaches.iter_mut().zip(levels) {
            *reaches = u8::from(level.unsigned_abs() >= least);
        }
        gathered(&reaches)
    }
}

/// The places of ones, the lowest first.
fn places(mut marks: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = marks.trailing_zeros() as usize;
        marks &= marks.wrapping_sub(1);
        (place < BLOCK).then_some(place)
    })
}

wide! {
    /// Spread levels over the places that are marked, with zeros elsewhere.
    fn place<'a>(eights: &'a [u8], nonzero: &'a [i32], levels: &'a mut [i32]) -> () {
        levels.fill(0);
        let mut next = nonzero.iter();
        for (eight, levels) in eights.iter().zip(levels.chunks_mut(EIGHT)) {
            let mut left = *eight;
            while left != 0 {
                if let (Some(level), Some(value)) =
                    (levels.get_mut(left.trailing_zeros() as usize), next.next()) {
                    *level = *value;
                }
                left &= left - 1;
            }
        }
    }
}

/// Pushes all symbols of a message; where the words begin.
struct Pushing<'a, const W: usize> {
    alphabets: &'a Alphabets,
    values: &'a [i32],
    eights: &'a [u8],
    escaped: &'a [u8],
    states: &'a mut [u64; W],
    words: &'a mut [u32],
}

impl<const W: usize> Kernel for Pushing<'_, W> {
    type Output = usize;
    #[inline(always)]
    fn run(self) -> usize {
        let Pushing { alphabets, values, eights, escaped, states, words } = self;
        let mut at = words.len();
        if let Some((which, bytes)) = &alphabets.eights {
            if let Some(sizes) = &alphabets.levels {
                let size = |level: i32| level.unsigned_abs().min(u32::from(ESCAPE)) as u8;
                at = sizes.push(values, size, states, words, at);
            }
            at = bytes.push(escaped, |byte| byte, states, words, at);
            return which.push(eights, |byte| byte, states, words, at);
        }
        let Some(symbols) = &alphabets.levels else { return at };
        const PART: usize = 512;
        let mut bytes = [0; PART];
        for part in values.chunks(PART).rev() {
            for (byte, level) in bytes.iter_mut().zip(part) {
                let size = level.unsigned_abs();
                let size = if size < 128 { size } else { 128 } as i32;
                *byte = if *level < 0 { -size } else { size } as u8;
            }
            at = symbols.push(&bytes[..part.len()], |byte| byte, states, words, at);
        }
        at
    }
}

/// Pulls symbols.
struct Pulled<'a, const W: usize> {
    states: [u64; W],
    words: &'a [u32],
    at: usize,
}

impl<const W: usize> Pulled<'_, W> {
    /// So many bytes.
    fn resized(
        &mut self,
        alphabet: &Alphabet,
        bytes: &mut Vec<u8>,
        count: usize,
    ) -> Result<(), CodeError> {
        bytes.clear();
        bytes.resize(count, 0);
        self.pull(alphabet, bytes, |byte| byte)
    }

    fn pull<T>(
        &mut self,
        alphabet: &Alphabet,
        symbols: &mut [T],
        symbol: impl Fn(u8) -> T,
    ) -> Result<(), CodeError> {
        let Pulled { states, words, at } = self;
        let pulling = Pulling { alphabet, symbols, symbol, states, words, at: *at };
        *at = pulling.run()?;
        Ok(())
    }
}

struct Pulling<'a, T, F, const W: usize> {
    alphabet: &'a Alphabet,
    symbols: &'a mut [T],
    symbol: F,
    states: &'a mut [u64; W],
    words: &'a [u32],
    at: usize,
}

impl<T, F: Fn(u8) -> T, const W: usize> Kernel for Pulling<'_, T, F, W> {
    type Output = Result<usize, CodeError>;
    #[inline(always)]
    fn run(self) -> Result<usize, CodeError> {
        let Pulling { alphabet, symbols, symbol, states, words, at } = self;
        alphabet.pull(symbols, symbol, states, words, at)
    }
}

/// Where bits behind symbols go.
trait Behind {
    /// The low `count <= 57` bits of `value`, highest first; the others are 0.
    fn put(&mut self, value: u64, count: u32);

    /// Whether no more are wanted.
    fn is_full(&self) -> bool;
}

/// The states that a message begins with: each has room for [`LEAST`] bits.
struct Beginning<const W: usize> {
    states: [u64; W],
    filled: u32,
}

impl<const W: usize> Beginning<W> {
    fn new(norm: Option<u32>) -> Self {
        let mut begin = Beginning { states: [1 << LEAST; W], filled: 0 };
        if let Some(norm) = norm {
            begin.put(u64::from(norm), LEAST);
        }
        begin
    }
}

impl<const W: usize> Behind for Beginning<W> {
    fn put(&mut self, value: u64, count: u32) {
        let mut left = count;
        while left > 0 && !self.is_full() {
            let room = LEAST - self.filled % LEAST;
            let now = left.min(room);
            let bits = value >> (left - now) & ((1 << now) - 1);
            self.states[(self.filled / LEAST) as usize] |= bits << (room - now);
            (self.filled, left) = (self.filled + now, left - now);
        }
    }

    fn is_full(&self) -> bool {
        self.filled == LEAST * W as u32
    }
}

/// What follows the bits that states began with.
struct Rest<'a, S> {
    /// How many bits are still to be left out.
    begun: u32,
    sink: &'a mut S,
}

impl<S: BitSink> Behind for Rest<'_, S> {
    #[inline(always)]
    fn put(&mut self, value: u64, count: u32) {
        let out = self.begun.min(count);
        self.begun -= out;
        self.sink.put(value & ((1 << (count - out)) - 1), count - out);
    }

    fn is_full(&self) -> bool {
        false
    }
}

/// Reads the bits that states began with, and then those behind the words.
struct Begun<'a, 'b, const W: usize> {
    states: [u64; W],
    taken: u32,
    source: &'a mut BitReader<'b>,
}

impl<'a, 'b, const W: usize> Begun<'a, 'b, W> {
    fn new(states: [u64; W], source: &'a mut BitReader<'b>) -> Result<Self, CodeError> {
        if states.iter().any(|state| state >> LEAST != 1) {
            return Err(CodeError::Ending);
        }
        Ok(Begun { states, taken: 0, source })
    }

    #[inline(always)]
    fn get(&mut self, count: u32) -> Result<u64, CodeError> {
        if self.taken == LEAST * W as u32 { self.source.get(count) } else { self.get_begun(count) }
    }

    fn get_begun(&mut self, count: u32) -> Result<u64, CodeError> {
        let (mut value, mut left) = (0, count);
        while left > 0 && self.taken < LEAST * W as u32 {
            let room = LEAST - self.taken % LEAST;
            let now = left.min(room);
            let state = self.states[(self.taken / LEAST) as usize];
            value = value << now | state >> (room - now) & ((1 << now) - 1);
            (self.taken, left) = (self.taken + now, left - now);
        }
        Ok(value << left | self.source.get(left)?)
    }

    /// A size in Elias's gamma code.
    fn gamma(&mut self) -> Result<u32, CodeError> {
        let mut zeros = 0;
        if self.taken == LEAST * W as u32 {
            zeros = self.source.zeros(30, CodeError::Integer)? as u32;
        } else {
            while self.get(1)? == 0 {
                zeros += 1;
                if zeros > 30 {
                    return Err(CodeError::Integer);
                }
            }
        }
        Ok(1 << zeros | self.get(zeros)? as u32)
    }

    /// What was not needed to begin with must be zeros.
    fn finish(mut self) -> Result<(), CodeError> {
        while self.taken < LEAST * W as u32 {
            if self.get_begun(1)? == 1 {
                return Err(CodeError::Padding);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};
    use std::collections::BTreeSet;

    fn message(compressor: &Compressor, dimension: usize, seed: u64) -> Message {
        let (mut v, mut message) = (vec![0.0; dimension], Message::new());
        Seed::new(seed).stream(Purpose::Data, SERVER, 0).normals(&mut v);
        let mut stream = Seed::new(seed).stream(Purpose::Compress, SERVER, 0);
        compressor.quantise(&v, &mut stream, &mut message).unwrap();
        message
    }

    fn read(code: &Parametric, bytes: &[u8], message: &Message) -> Result<Message, CodeError> {
        let mut back = Message::new();
        back.start(&message.compressor, message.dimension);
        code.read(bytes, &message.compressor, message.dimension, &mut back)?;
        Ok(back)
    }

    /// One state and several, zeros rare, common and prevailing.
    const KINDS: [(u32, usize); 6] =
        [(16, 784), (256, 784), (16, 7850), (256, 7850), (1024, 7850), (500, 1000)];

    #[test]
    fn any_law_is_read_but_the_shortest_alone_is_accepted() {
        for (levels, dimension) in KINDS {
            let compressor = Compressor::qsgd(levels);
            let code = Parametric::new(&compressor, dimension).unwrap();
            let message = message(&compressor, dimension, 1);
            let counts = code.count(&message.levels);
            let shortest = code.laws().shortest(&counts);
            for law in (0..=255).filter(|law| law % 17 == 3 || *law == shortest) {
                let (mut bytes, cost) = (Vec::new(), code.laws().cost(law, &counts));
                let bits = match code.states {
                    1 => code.write_by::<1>(law, &counts, &message, &mut bytes),
                    _ => code.write_by::<MOST>(law, &counts, &message, &mut bytes),
                };
                // what is promised is kept, and nearly used up
                assert_eq!(bits, code.length_by(cost, 1, dimension), "{levels} {law}");
                let found = read(&code, &bytes, &message);
                if law == shortest {
                    assert_eq!(found.as_ref(), Ok(&message), "{levels} {law}");
                } else {
                    assert_eq!(found, Err(CodeError::Law { found: law, shortest }), "{levels}");
                    let least = code.laws().cost(shortest, &counts);
                    assert!(bits + 1 >= code.length_by(least, 1, dimension), "{levels} {law}");
                }
            }
        }
    }

    #[test]
    fn a_message_ends_where_it_ends() {
        for (levels, dimension) in KINDS {
            let compressor = Compressor::qsgd(levels);
            let code = Parametric::new(&compressor, dimension).unwrap();
            let message = message(&compressor, dimension, 2);
            let mut bytes = Vec::new();
            code.write(&message, &mut bytes);
            assert_eq!(read(&code, &bytes, &message).as_ref(), Ok(&message));
            let short = read(&code, &bytes[..bytes.len() - 1], &message);
            assert_eq!(short, Err(CodeError::Truncated), "{levels}");
            let (last, mut turned) = (bytes.len() - 1, bytes.clone());
            turned[last] |= 1;
            if turned != bytes {
                assert_eq!(read(&code, &turned, &message), Err(CodeError::Padding), "{levels}");
            }
            bytes.push(0);
            let long = read(&code, &bytes, &message);
            assert_eq!(long, Err(CodeError::Surplus { bytes: 1 }), "{levels}");
        }
    }

    /// No coordinate is so rare or so large that its length is not known beforehand.
    #[test]
    fn the_length_is_kept_by_the_most_unlikely_levels() {
        for (levels, dimension) in KINDS {
            let compressor = Compressor::qsgd(levels);
            let code = Parametric::new(&compressor, dimension).unwrap();
            let mut message = message(&compressor, dimension, 3);
            let top = levels as i32;
            let kinds: [&dyn Fn(usize) -> i32; 7] = [
                &|_| 0,
                &|_| 1,
                &|_| -1,
                &|place| if place == 700 { top } else { 0 },
                &|_| -top,
                &|place| (place as i32 * 7 % 300 - 150).clamp(-top, top),
                &|place| (1 << (place % 20)).min(top) * [1, -1][place % 2],
            ];
            for (kind, level) in kinds.into_iter().enumerate() {
                message.levels = (0..dimension).map(level).collect();
                let mut bytes = Vec::new();
                let bits = code.write(&message, &mut bytes);
                assert_eq!(bits, code.length(&message), "{levels} {kind}");
                assert_eq!(bits.div_ceil(8) as usize, bytes.len(), "{levels} {kind}");
                assert_eq!(read(&code, &bytes, &message).as_ref(), Ok(&message), "{levels} {kind}");
            }
        }
    }

    #[test]
    fn bytes_that_need_no_escape_are_refused() {
        let code = Parametric::new(&Compressor::qsgd(16), 7850).unwrap();
        assert!(code.levels.sparse);
        let escapes = |count| code.laws().eight_escapes(0, count);
        assert_eq!((escapes(0), escapes(1), escapes(8)), (false, false, true));
        let mut eights = [1, ESCAPED_EIGHT, 0, ESCAPED_EIGHT];
        assert_eq!(code.replace_escaped(0, &mut eights, &[255, 127]), Ok(()));
        assert_eq!(eights, [1, 255, 0, 127]);
        let mut eights = [1, ESCAPED_EIGHT, 0, ESCAPED_EIGHT];
        let found = code.replace_escaped(0, &mut eights, &[255, 4]);
        assert_eq!(found, Err(CodeError::Escape { place: 3 }));
    }

    #[test]
    fn what_states_begin_with_is_checked() {
        let code = Parametric::new(&Compressor::qsgd(256), 7850).unwrap();
        let alphabets = code.laws().alphabets(0);
        assert_eq!([alphabets.lower(1), alphabets.lower(200)], [0, ESCAPES]);
        let (mut source, begin) = (BitReader::new(&[]), 1 << LEAST);
        let escape = |behind: &mut Begun<'_, '_, 2>| {
            code.read_one(alphabets, 5, u32::from(ESCAPE), false, behind)
        };
        // 1 in Elias's gamma code; 200 in it, and a sign; a number of 32 bits
        let mut behind = Begun::new([begin | 1 << 30, begin], &mut source).unwrap();
        assert_eq!(escape(&mut behind), Err(CodeError::Escape { place: 5 }));
        let mut behind = Begun::new([begin | 200 << 16 | 1 << 15, begin], &mut source).unwrap();
        assert_eq!(escape(&mut behind), Ok(-200));
        assert_eq!(behind.finish(), Ok(()));
        let mut behind = Begun::new([begin, begin], &mut source).unwrap();
        assert_eq!(escape(&mut behind), Err(CodeError::Integer));
        // what is left over must be nothing, and states must be where they begin
        let mut behind = Begun::new([begin | 3, begin | 1], &mut source).unwrap();
        assert_eq!(behind.get(LEAST), Ok(3));
        assert_eq!(behind.finish(), Err(CodeError::Padding));
        assert_eq!(Begun::new([begin, 2 * begin], &mut source).err(), Some(CodeError::Ending));
    }

    /// What is accepted is the encoding of what it says, and much that may be wrong is met.
    #[test]
    fn strings_at_random_are_refused_for_many_reasons() {
        let mut reasons = BTreeSet::new();
        for (levels, dimension) in KINDS {
            let compressor = Compressor::qsgd(levels);
            let code = Parametric::new(&compressor, dimension).unwrap();
            let message = message(&compressor, dimension, 4);
            let mut bytes = Vec::new();
            code.write(&message, &mut bytes);
            for round in 0..300 {
                let mut stream = Seed::new(9).stream(Purpose::Data, SERVER, round);
                let (mut turned, first) = (bytes.clone(), stream.below(bytes.len() as u32));
                for byte in turned.iter_mut().skip(first as usize) {
                    *byte = stream.below(256) as u8;
                }
                match read(&code, &turned, &message) {
                    Ok(other) => {
                        let mut again = Vec::new();
                        code.write(&other, &mut again);
                        assert!(again == turned, "{levels} {round}");
                    }
                    Err(error) => {
                        let text = format!("{error:?}");
                        reasons.insert(text.split(' ').next().unwrap_or_default().to_owned());
                    }
                }
            }
        }
        let met = ["Beyond", "Ending", "Escape", "Law", "Truncated"];
        assert!(met.iter().all(|name| reasons.contains(*name)), "{reasons:?}");
    }
}
