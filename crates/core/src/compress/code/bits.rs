//! Write and read bits, first bit highest, and count them without writing.

use super::CodeError;
use crate::simd::wide;

/// Where bits go: to memory, or only into a count. One function writes to both, so the count is
/// what is written.
pub(super) trait BitSink {
    /// The low `count <= 57` bits of `value`, highest first; the others must be 0.
    fn put(&mut self, value: u64, count: u32);

    /// The low bits of each word, as many as its length says, at least one: as [`put`](Self::put)
    /// does one by one.
    fn put_all(&mut self, words: &[u64], lengths: &[u64]);

    /// One whole byte, while whole bytes alone have been put.
    fn put_byte(&mut self, byte: u8);

    /// Take trailing zero bits back, down to the length `floor`.
    fn trim(&mut self, floor: u64);

    /// The number of bits put so far.
    fn length(&self) -> u64;

    /// All 64 bits.
    fn put_word(&mut self, value: u64) {
        self.put(value >> 32, 32);
        self.put(value & 0xFFFF_FFFF, 32);
    }

    /// That many zeros.
    fn put_zeros(&mut self, count: u64) {
        let mut left = count;
        while left > 0 {
            let now = left.min(56);
            self.put(0, now as u32);
            left -= now;
        }
    }
}

/// Counts.
#[derive(Default)]
pub(super) struct Counter {
    bits: u64,
    /// The length up to the last bit that is 1, as far as `put_byte` knows.
    solid: u64,
}

impl Counter {
    pub(super) fn finish(self) -> u64 {
        self.bits
    }
}

impl BitSink for Counter {
    #[inline(always)]
    fn put(&mut self, _: u64, count: u32) {
        self.bits += u64::from(count);
    }

    fn put_all(&mut self, _: &[u64], lengths: &[u64]) {
        self.bits += lengths.iter().sum::<u64>();
    }

    #[inline(always)]
    fn put_byte(&mut self, byte: u8) {
        self.bits += 8;
        if byte != 0 {
            self.solid = self.bits - u64::from(byte.trailing_zeros());
        }
    }

    fn trim(&mut self, floor: u64) {
        self.bits = self.solid.max(floor);
    }

    fn length(&self) -> u64 {
        self.bits
    }
}

/// Appends to bytes.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Where in `out` this message starts.
    start: usize,
    /// Bits not yet in `out`, in the high `pending < 64` places.
    held: u64,
    pending: u32,
    trimmed: Option<u64>,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        BitWriter { out, start, held: 0, pending: 0, trimmed: None }
    }

    /// Fill the last byte with zeros; the number of bits before that.
    pub(super) fn finish(mut self) -> u64 {
        let bits = self.length();
        self.flush();
        bits
    }

    /// All bits of each word.
    pub(super) fn put_words(&mut self, words: &[u32]) {
        if self.pending >= 32 {
            self.out.extend_from_slice(&self.held.to_be_bytes()[..4]);
            (self.held, self.pending) = (self.held << 32, self.pending - 32);
        }
        let start = self.out.len();
        self.out.resize(start + 4 * words.len(), 0);
        let mut held = self.held;
        for (four, word) in self.out[start..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            held |= u64::from(*word) << (32 - self.pending);
            *four = ((held >> 32) as u32).to_be_bytes();
            held <<= 32;
        }
        self.held = held;
    }

    /// Put what is held into `out`, with zeros in the last byte.
    fn flush(&mut self) {
        self.out.extend_from_slice(&self.held.to_be_bytes()[..self.pending.div_ceil(8) as usize]);
        (self.held, self.pending) = (0, 0);
    }
}

impl BitSink for BitWriter<'_> {
    #[inline(always)]
    fn put(&mut self, value: u64, count: u32) {
        debug_assert!(count <= 57 && value >> count == 0);
        let after = self.pending + count;
        if after < 64 {
            // in two steps, since nothing may be put where nothing is held
            self.held |= value << (63 - after) << 1;
            self.pending = after;
            return;
        }
        let left = after - 64; // below 57
        self.out.extend_from_slice(&(self.held | value >> left).to_be_bytes());
        self.held = value << (63 - left) << 1;
        self.pending = left;
    }

    fn put_all(&mut self, words: &[u64], lengths: &[u64]) {
        let start = self.out.len();
        self.out.resize(start + 8 * (words.len() + 2), 0);
        let bits = pack(words, lengths, self.held, self.pending, &mut self.out[start..]);
        let whole = start + (bits / 8) as usize;
        self.pending = (bits % 8) as u32;
        self.held = if self.pending > 0 { u64::from(self.out[whole]) << 56 } else { 0 };
        self.out.truncate(whole);
    }

    #[inline(always)]
    fn put_byte(&mut self, byte: u8) {
        debug_assert!(self.pending.is_multiple_of(8));
        self.put(u64::from(byte), 8);
    }

    fn trim(&mut self, floor: u64) {
        self.flush();
        let least = self.start + (floor / 8) as usize;
        while self.out.len() > least && self.out.last() == Some(&0) {
            self.out.pop();
        }
        let spare = if self.out.len() > least {
            self.out.last().map_or(0, |byte| byte.trailing_zeros())
        } else {
            0
        };
        self.trimmed = Some((self.out.len() - self.start) as u64 * 8 - u64::from(spare));
    }

    fn length(&self) -> u64 {
        self.trimmed.unwrap_or((self.out.len() - self.start) as u64 * 8 + u64::from(self.pending))
    }
}

wide! {
    /// Write the `pending` high bits of `held` and then the words to the beginning of `out`; how
    /// many bits that are. Eight bytes are written for each word, of which the next overwrites what
    /// is not filled: whether a word fills the eight would be a branch taken at random.
    fn pack<'a>(words: &'a [u64], lengths: &'a [u64], held: u64, pending: u32,
        out: &'a mut [u8]) -> u64 {
        out[..8].copy_from_slice(&held.to_be_bytes());
        let mut bits = u64::from(pending);
        let mut last = if pending > 0 { held >> (64 - pending) } else { 0 }; // the last 64 bits
        for (word, length) in words.iter().zip(lengths) {
            let byte = (bits / 8) as usize;
            bits += length;
            last = last << length | word;
            let filled = bits - 8 * byte as u64; // from 1 to 64
            out[byte..byte + 8].copy_from_slice(&(last << (64 - filled)).to_be_bytes());
        }
        bits
    }
}

/// Reads bits; never beyond the end.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The next bit's place.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes, at: 0 }
    }

    /// All bytes, read or not.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The place of the next bit.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Pass bits that were read elsewhere and are there.
    pub(super) fn pass(&mut self, bits: usize) {
        debug_assert!(bits <= self.left());
        self.at += bits;
    }

    fn left(&self) -> usize {
        self.bytes.len() * 8 - self.at
    }

    /// The bits ahead, first bit highest: at least 57 of them are right, zeros beyond the end.
    #[inline]
    fn ahead(&self) -> u64 {
        let byte = self.at / 8;
        let eight = match self
            .bytes
            .get(byte..byte + 8)
            .and_then(|eight| <[u8; 8]>::try_from(eight).ok())
        {
            Some(eight) => eight,
            None => {
                let mut last = [0; 8];
                let rest = &self.bytes[byte.min(self.bytes.len())..];
                last[..rest.len()].copy_from_slice(rest);
                last
            }
        };
        u64::from_be_bytes(eight) << (self.at % 8)
    }

    /// The next `count <= 57` bits.
    #[inline]
    pub(super) fn get(&mut self, count: u32) -> Result<u64, CodeError> {
        debug_assert!(count <= 57);
        if self.left() < count as usize {
            return Err(CodeError::Truncated);
        }
        let value = if count == 0 { 0 } else { self.ahead() >> (64 - count) };
        self.at += count as usize;
        Ok(value)
    }

    /// Pass the zeros ahead and the one behind them; how many zeros there were, at most `limit`.
    pub(super) fn zeros(&mut self, limit: u64, beyond: CodeError) -> Result<u64, CodeError> {
        let mut zeros = 0;
        loop {
            let run = u64::from(self.ahead().leading_zeros()).min(56);
            zeros += run;
            if zeros > limit {
                return Err(beyond);
            }
            if run < 56 {
                if (self.left() as u64) <= run {
                    return Err(CodeError::Truncated);
                }
                self.at += run as usize + 1;
                return Ok(zeros);
            }
            if (self.left() as u64) < run {
                return Err(CodeError::Truncated);
            }
            self.at += run as usize;
        }
    }

    /// The next words of 32 bits, at most so many and as many as are there; how many. They are not
    /// passed.
    pub(super) fn words(&self, most: usize, words: &mut Vec<u32>) -> usize {
        let count = (self.left() / 32).min(most);
        words.clear();
        let (rest, over) = (&self.bytes[self.at / 8..], self.at % 8);
        let next = |place: usize| rest.get(place).copied().unwrap_or(0);
        words.extend(rest.as_chunks::<4>().0.iter().take(count).enumerate().map(|(k, four)| {
            u32::from_be_bytes(*four) << over | u32::from(next(4 * k + 4)) >> (8 - over)
        }));
        count
    }

    /// All that is left must be zeros.
    pub(super) fn finish_zeros(mut self) -> Result<(), CodeError> {
        while self.left() > 0 {
            if self.get(self.left().min(56) as u32)? != 0 {
                return Err(CodeError::Padding);
            }
        }
        Ok(())
    }

    /// The bytes not read yet, if whole bytes have been read so far.
    pub(super) fn rest(&self) -> &'a [u8] {
        debug_assert!(self.at.is_multiple_of(8));
        &self.bytes[self.at / 8..]
    }

    /// Nothing may be left but zeros that fill up the last byte.
    pub(super) fn finish(self) -> Result<(), CodeError> {
        let left = self.left();
        if left >= 8 {
            return Err(CodeError::Surplus { bytes: left / 8 });
        }
        if left > 0 && self.ahead() != 0 {
            return Err(CodeError::Padding);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_in_order() {
        let mut bytes = vec![0xAA];
        let mut sink = BitWriter::new(&mut bytes);
        sink.put(0b101, 3);
        sink.put_zeros(130);
        sink.put(1, 1);
        sink.put_word(u64::MAX - 5);
        sink.put((1 << 57) - 2, 57);
        assert_eq!(sink.finish(), 3 + 130 + 1 + 64 + 57);
        assert_eq!(bytes.len(), 1 + 255usize.div_ceil(8));
        let mut source = BitReader::new(&bytes[1..]);
        assert_eq!(source.get(3), Ok(0b101));
        assert_eq!(source.zeros(130, CodeError::Integer), Ok(130));
        assert_eq!(source.get(32).unwrap() << 32 | source.get(32).unwrap(), u64::MAX - 5);
        assert_eq!(source.get(57), Ok((1 << 57) - 2));
        assert_eq!(source.finish(), Ok(()));
    }

    #[test]
    fn the_end_is_the_end() {
        assert_eq!(BitReader::new(&[1]).get(9), Err(CodeError::Truncated));
        assert_eq!(
            BitReader::new(&[0, 0]).zeros(99, CodeError::Integer),
            Err(CodeError::Truncated)
        );
        assert_eq!(BitReader::new(&[0; 20]).zeros(99, CodeError::Integer), Err(CodeError::Integer));
        assert_eq!(
            BitReader::new(&[0; 20]).zeros(200, CodeError::Integer),
            Err(CodeError::Truncated)
        );
        assert_eq!(BitReader::new(&[1]).finish(), Err(CodeError::Surplus { bytes: 1 }));
        let mut source = BitReader::new(&[0b1000_0001, 0]);
        source.get(1).unwrap();
        assert_eq!(
            BitReader { at: source.at, ..source }.finish(),
            Err(CodeError::Surplus { bytes: 1 })
        );
        let mut source = BitReader::new(&[0b1000_0001]);
        source.get(1).unwrap();
        assert_eq!(source.finish(), Err(CodeError::Padding));
    }

    #[test]
    fn words_are_put_as_they_are_one_by_one() {
        let words: Vec<u32> = (1..9u32).map(|k| k.wrapping_mul(0x9E37_79B9)).collect();
        for before in 0..70 {
            let (mut together, mut apart) = (Vec::new(), Vec::new());
            let (mut all, mut each) = (BitWriter::new(&mut together), BitWriter::new(&mut apart));
            for sink in [&mut all, &mut each] {
                (0..before).for_each(|k| sink.put(u64::from(k % 3 == 0), 1));
            }
            all.put_words(&words);
            words.iter().for_each(|word| each.put(u64::from(*word), 32));
            for sink in [&mut all, &mut each] {
                sink.put(0b101, 3);
            }
            assert_eq!(all.finish(), each.finish());
            assert_eq!(together, apart, "{before}");
        }
    }

    #[test]
    fn words_are_the_next_bits() {
        let bytes: Vec<u8> = (0..23u8).map(|k| k.wrapping_mul(83)).collect();
        for before in 0..40 {
            let mut source = BitReader::new(&bytes);
            source.get(before).unwrap();
            let (mut words, whole) = (vec![7], (184 - before as usize) / 32);
            assert_eq!(source.words(9, &mut words), whole);
            for word in &words {
                assert_eq!(source.get(32), Ok(u64::from(*word)), "{before}");
            }
            assert_eq!((words.len(), source.words(0, &mut words)), (whole, 0));
        }
        assert_eq!(BitReader::new(&[0; 9]).finish_zeros(), Ok(()));
        assert_eq!(
            BitReader::new(&[0, 0, 0, 0, 0, 0, 0, 0, 1]).finish_zeros(),
            Err(CodeError::Padding)
        );
        let mut source = BitReader::new(&[128, 0]);
        source.get(1).unwrap();
        assert_eq!(source.finish_zeros(), Ok(()));
    }

    #[test]
    fn all_at_once_are_one_by_one() {
        let lengths: Vec<u64> = (0..200).map(|k| 1 + k * 13 % 57).collect();
        let words: Vec<u64> =
            lengths.iter().map(|length| 0x9E37_79B9_7F4A_7C15 >> (64 - length)).collect();
        for before in 0..130 {
            let (mut together, mut apart) = (Vec::new(), Vec::new());
            let (mut all, mut each, mut counter) =
                (BitWriter::new(&mut together), BitWriter::new(&mut apart), Counter::default());
            for sink in [&mut all as &mut dyn BitSink, &mut each, &mut counter] {
                (0..before).for_each(|_| sink.put(1, 1));
            }
            all.put_all(&words, &lengths);
            counter.put_all(&words, &lengths);
            words.iter().zip(&lengths).for_each(|(word, length)| each.put(*word, *length as u32));
            for sink in [&mut all as &mut dyn BitSink, &mut each, &mut counter] {
                sink.put(0b101, 3);
            }
            let bits = each.finish();
            assert_eq!((all.finish(), counter.finish()), (bits, bits));
            assert_eq!(together, apart, "{before}");
        }
    }

    #[test]
    fn trimming_counts_alike() {
        for tail in [&[][..], &[0, 0], &[5, 0, 0], &[0, 128], &[1, 2, 3, 16, 0]] {
            let mut bytes = Vec::new();
            let mut sink = BitWriter::new(&mut bytes);
            let mut counter = Counter::default();
            for sink in [&mut sink as &mut dyn BitSink, &mut counter] {
                sink.put(0xFF00, 32); // never trimmed
                let floor = sink.length();
                for byte in tail {
                    sink.put_byte(*byte);
                }
                sink.trim(floor);
            }
            assert_eq!(counter.finish(), sink.finish());
            assert!(bytes.len() == 4 || bytes.last() != Some(&0));
        }
    }
}
