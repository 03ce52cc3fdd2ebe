//! Code binary decisions at their probability: a range coder whose ending is the shortest there is.
//!
//! The coder narrows an interval (Martin 1979; carries as in LZMA) and at the end writes the number
//! inside it that has the most trailing zeros, without those zeros. That number is unique, so an
//! encoding is too: the decoder checks that what it read is that number. The arithmetic is of
//! integers alone.

use super::CodeError;
use super::bits::BitSink;

/// Below this the range is widened by a byte.
const NARROW: u32 = 1 << 24;
/// Probabilities stay this far from 0 and 1, in units of 2^-32.
const MARGIN: u32 = 1 << 12;
/// After so many decisions an estimate goes on to forget: a message may change its statistics on
/// the way.
const MEMORY: u32 = 1 << 14;

/// What is known of one kind of decision: its probability of `true`, and how many decisions that
/// knowledge is worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bit {
    yes: u32,
    weight: u32,
}

impl Bit {
    /// Nothing is known: the estimate of Krichevsky and Trofimov (1981).
    pub(super) const UNKNOWN: Bit = Bit { yes: 1 << 31, weight: 1 };

    /// Probability `yes / 2^32` as if seen in `weight` decisions.
    pub(super) fn expected(yes: u64, weight: u64) -> Bit {
        let yes = yes.clamp(u64::from(MARGIN), u64::from(u32::MAX - MARGIN)) as u32;
        Bit { yes, weight: weight.clamp(1, u64::from(MEMORY)) as u32 }
    }

    #[inline(always)]
    fn split(self, range: u32) -> u32 {
        ((u64::from(range) * u64::from(self.yes)) >> 32) as u32
    }

    #[inline(always)]
    fn learn(&mut self, seen: bool) {
        let gap = if seen { u32::MAX - MARGIN - self.yes } else { self.yes - MARGIN };
        let step = if self.weight == MEMORY {
            gap / MEMORY // a shift: in a long message nearly all decisions come here
        } else {
            self.weight += 1;
            gap / self.weight
        };
        self.yes = if seen { self.yes + step } else { self.yes - step };
    }
}

/// Both directions: the encoder writes what is wanted and returns it, the decoder returns what was
/// written. A model that follows what is returned is therefore the same on both sides.
pub(super) trait Coder {
    fn bit(&mut self, model: &mut Bit, wanted: bool) -> bool;

    /// The low `count <= 8` bits of `wanted`, each as likely as not.
    fn raw(&mut self, wanted: u32, count: u32) -> u32;
}

pub(super) struct Encoder<'a, S> {
    sink: &'a mut S,
    /// Length of `sink` before the first byte.
    floor: u64,
    low: u64,
    range: u32,
    /// The byte that a carry may still change, and how many 255s follow it.
    cache: Option<u8>,
    carriers: u64,
}

impl<'a, S: BitSink> Encoder<'a, S> {
    pub(super) fn new(sink: &'a mut S) -> Self {
        let floor = sink.length();
        Encoder { sink, floor, low: 0, range: u32::MAX, cache: None, carriers: 0 }
    }

    #[inline(always)]
    fn widen(&mut self) {
        while self.range < NARROW {
            self.range <<= 8;
            self.shift();
        }
    }

    fn shift(&mut self) {
        let carry = self.low > u64::from(u32::MAX);
        if carry || self.low < 0xFF00_0000 {
            if let Some(byte) = self.cache {
                self.sink.put_byte(byte.wrapping_add(u8::from(carry)));
            }
            for _ in 0..self.carriers {
                self.sink.put_byte(if carry { 0 } else { 0xFF });
            }
            self.carriers = 0;
            self.cache = Some((self.low >> 24) as u8);
        } else {
            self.carriers += 1;
        }
        self.low = (self.low & 0x00FF_FFFF) << 8;
    }

    pub(super) fn finish(mut self) {
        let last = self.low + u64::from(self.range) - 1;
        // The number in low..=last with the most trailing zeros: clear what is below the highest
        // bit in which low - 1 and last differ.
        self.low = match self.low {
            0 => 0,
            low => last >> ((low - 1) ^ last).ilog2() << ((low - 1) ^ last).ilog2(),
        };
        for _ in 0..5 {
            self.shift();
        }
        self.sink.trim(self.floor);
    }
}

impl<S: BitSink> Coder for Encoder<'_, S> {
    #[inline(always)]
    fn bit(&mut self, model: &mut Bit, wanted: bool) -> bool {
        let split = model.split(self.range);
        if wanted {
            self.range = split;
        } else {
            self.low += u64::from(split);
            self.range -= split;
        }
        model.learn(wanted);
        self.widen();
        wanted
    }

    #[inline(always)]
    fn raw(&mut self, wanted: u32, count: u32) -> u32 {
        let wanted = wanted & ((1 << count) - 1);
        self.range >>= count;
        self.low += u64::from(wanted) * u64::from(self.range);
        self.widen();
        wanted
    }
}

/// Counts the bits that an [`Encoder`] would write. Its range is widened when it is used next: to
/// find out by how much takes as long as the product that waits for it, and no branch has to be
/// guessed.
pub(super) struct Pricer {
    /// The last 64 bits of the interval's lower end, carries included: the encoder's 32 and those
    /// before.
    low: u64,
    range: u32,
    /// How many bits lie before the encoder's 32.
    passed: u64,
}

impl Pricer {
    pub(super) fn new() -> Self {
        Pricer { low: 0, range: u32::MAX, passed: 0 }
    }

    /// By how many bits the range is to be widened: whole bytes.
    #[inline(always)]
    fn widen(&mut self) -> u32 {
        // 8 zeros and more are those of a range below `NARROW`
        let shift = self.range.leading_zeros() & 24;
        self.low <<= shift;
        self.passed += u64::from(shift);
        shift
    }

    /// The number of bits; `None` if it takes more than the last 64 to tell.
    pub(super) fn finish(mut self) -> Option<u64> {
        let shift = self.widen();
        let last = self.low.checked_add(u64::from(self.range << shift) - 1)?;
        // behind the last 1 of the number that the encoder chooses
        let zeros = (self.low.checked_sub(1)? ^ last).ilog2();
        Some(self.passed + 32 - u64::from(zeros))
    }
}

impl Coder for Pricer {
    #[inline(always)]
    fn bit(&mut self, model: &mut Bit, wanted: bool) -> bool {
        let shift = self.widen();
        // that of the range widened
        let split = (u64::from(self.range) * u64::from(model.yes)) >> (32 - shift);
        if wanted {
            self.range = split as u32;
        } else {
            self.low = self.low.wrapping_add(split);
            self.range = (self.range << shift) - split as u32;
        }
        model.learn(wanted);
        wanted
    }

    #[inline(always)]
    fn raw(&mut self, wanted: u32, count: u32) -> u32 {
        let wanted = wanted & ((1 << count) - 1);
        let shift = self.widen();
        self.range = self.range << shift >> count;
        self.low = self.low.wrapping_add(u64::from(wanted) * u64::from(self.range));
        wanted
    }
}

pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    /// Bytes taken, those behind the end included.
    taken: usize,
    /// How far the number read lies above the interval's lower end.
    above: u32,
    range: u32,
    outside: bool,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Decoder { bytes, taken: 0, above: 0, range: u32::MAX, outside: false };
        for _ in 0..4 {
            decoder.take();
        }
        decoder.outside = decoder.above >= decoder.range;
        decoder
    }

    #[inline(always)]
    fn take(&mut self) {
        let byte = self.bytes.get(self.taken).copied().unwrap_or(0);
        self.above = self.above << 8 | u32::from(byte);
        self.taken += 1;
    }

    #[inline(always)]
    fn widen(&mut self) {
        while self.range < NARROW {
            self.range <<= 8;
            self.take();
        }
    }

    /// Whether the encoder would have written these bytes.
    pub(super) fn finish(self) -> Result<(), CodeError> {
        if self.taken < self.bytes.len() {
            return Err(CodeError::Surplus { bytes: self.bytes.len() - self.taken });
        }
        if self.outside {
            return Err(CodeError::Ending);
        }
        let Some(last) = self.bytes.last() else { return Ok(()) };
        if *last == 0 {
            return Err(CodeError::Padding);
        }
        // With t trailing zeros, the nearest numbers with more lie 2^t below and above: neither may
        // be in the interval.
        let zeros = (self.taken - self.bytes.len()) as u64 * 8 + u64::from(last.trailing_zeros());
        let next = 1u64.checked_shl(zeros.min(64) as u32).unwrap_or(u64::MAX);
        if u64::from(self.above) >= next || u64::from(self.range - self.above) > next {
            return Err(CodeError::Ending);
        }
        Ok(())
    }
}

impl Coder for Decoder<'_> {
    #[inline(always)]
    fn bit(&mut self, model: &mut Bit, _: bool) -> bool {
        let split = model.split(self.range);
        let seen = self.above < split;
        if seen {
            self.range = split;
        } else {
            self.above -= split;
            self.range -= split;
        }
        model.learn(seen);
        self.widen();
        seen
    }

    #[inline(always)]
    fn raw(&mut self, _: u32, count: u32) -> u32 {
        self.range >>= count;
        let most = (1 << count) - 1;
        let value = self.above / self.range;
        self.outside |= value > most; // the few numbers that the division of the range leaves over
        let value = value.min(most);
        self.above = self.above.wrapping_sub(value * self.range);
        self.widen();
        value
    }
}

#[cfg(test)]
mod tests {
    use super::super::bits::{BitWriter, Counter};
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    /// Decisions with all kinds of probabilities, the estimates learning or wrong, and raw bits
    /// between them.
    fn decide<C: Coder>(coder: &mut C, wanted: &[(bool, u32)]) -> Vec<(bool, u32)> {
        let mut models = [
            Bit::UNKNOWN,
            Bit::expected(0, 100),
            Bit::expected(u64::MAX, 100_000),
            Bit::expected(1 << 30, 3),
        ];
        let four = wanted.iter().enumerate().map(|(k, (bit, raw))| {
            (coder.bit(&mut models[k % 4], *bit), coder.raw(*raw, k as u32 % 9))
        });
        four.collect()
    }

    #[test]
    fn decisions_come_back_and_the_count_is_right() {
        let mut priced = 0;
        for round in 0..3000u64 {
            let mut stream = Seed::new(1).stream(Purpose::Compress, SERVER, round);
            let bias = stream.uniform();
            let count = stream.below(60);
            let wanted: Vec<(bool, u32)> =
                (0..count).map(|k| (stream.coin(bias), stream.below(1 << (k % 9)))).collect();
            let mut bytes = vec![9, 9];
            let mut sink = BitWriter::new(&mut bytes);
            let mut encoder = Encoder::new(&mut sink);
            decide(&mut encoder, &wanted);
            encoder.finish();
            let bits = sink.finish();
            let mut counter = Counter::default();
            let mut encoder = Encoder::new(&mut counter);
            decide(&mut encoder, &wanted);
            encoder.finish();
            assert_eq!(bits, counter.finish());
            let mut pricer = Pricer::new();
            decide(&mut pricer, &wanted);
            if let Some(price) = pricer.finish() {
                assert_eq!(price, bits);
                priced += 1;
            }
            assert_eq!(bits.div_ceil(8) as usize, bytes.len() - 2);
            let mut decoder = Decoder::new(&bytes[2..]);
            assert_eq!(decide(&mut decoder, &wanted), wanted);
            assert_eq!(decoder.finish(), Ok(()));
        }
        assert!(priced > 2500, "{priced}"); // the others are short
    }

    /// All strings of up to two bytes, after which at most one number each may be accepted for what
    /// it decodes to.
    #[test]
    fn no_two_strings_say_the_same() {
        let mut accepted = std::collections::BTreeMap::new();
        let strings = (0..=255u8)
            .map(|a| vec![a])
            .chain((0..=255u8).flat_map(|a| (0..=255u8).map(move |b| vec![a, b])));
        for bytes in strings.chain([vec![]]) {
            let mut decoder = Decoder::new(&bytes);
            let said = decide(&mut decoder, &[(false, 0); 5]);
            if decoder.finish().is_ok() {
                assert_eq!(accepted.insert(said, bytes), None);
            }
        }
        assert!(accepted.len() > 100, "{}", accepted.len());
    }

    #[test]
    fn a_long_run_of_carriers_is_carried() {
        // Wanted bits that keep the interval across a carry: low near 2^32 - 1, then a step over
        // it.
        let wanted: Vec<(bool, u32)> = (0..400).map(|k| (k == 399, 255)).collect();
        let mut bytes = Vec::new();
        let mut sink = BitWriter::new(&mut bytes);
        let mut encoder = Encoder::new(&mut sink);
        decide(&mut encoder, &wanted);
        encoder.finish();
        sink.finish();
        let mut decoder = Decoder::new(&bytes);
        let kept: Vec<(bool, u32)> = wanted
            .iter()
            .enumerate()
            .map(|(k, (bit, raw))| (*bit, raw & ((1 << (k % 9)) - 1)))
            .collect();
        assert_eq!(decide(&mut decoder, &wanted), kept);
        assert_eq!(decoder.finish(), Ok(()));
    }
}
