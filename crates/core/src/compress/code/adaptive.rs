//! Write levels at nearly their entropy with an adaptive range coder, which learns their law as
//! the message goes on: for short messages, and for levels of which little is known beforehand.
//!
//! A level is a few decisions: is it zero; its sign; how many bits `|l|` has, in unary, up or down
//! from the number it is expected to have; the two bits behind the first. These learn as the
//! message goes on. The bits behind those are as likely as not and are not modelled. What `s` and
//! the length rule out is not written.
//!
//! For `qsgd` the estimates start where a Gaussian vector would have them: since the norm is sent,
//! such levels have standard deviation `s/sqrt(d)`. That costs another vector a few bits and saves
//! the Gaussian one a few, which is what counts at d = 784 and s = 1 (about 170 bits in all). For
//! `natural` the exponents are the leaves of a tree of decisions.

use super::CodeError;
use super::bits::{BitSink, Counter};
use super::range::{Bit, Coder, Decoder, Encoder, Pricer};
use crate::compress::Compressor;
use crate::compress::message::Symbols;
use crate::compress::operator::{Quantiser, Spread};
use crate::simd::wide;

pub(super) fn write<S: BitSink>(
    compressor: &Compressor,
    dimension: usize,
    levels: &[i32],
    sink: &mut S,
) {
    let mut encoder = Encoder::new(sink);
    code(compressor, dimension, &mut encoder, levels.len(), |place| levels[place], |_, _| {});
    encoder.finish();
}

wide! {
    /// The number of bits that [`write`] writes. (It has no use for vectors, but for the other
    /// instructions that newer machines have.)
    pub(super) fn length<'a>(
        compressor: &'a Compressor,
        dimension: usize,
        levels: &'a [i32],
    ) -> u64 {
        let mut pricer = Pricer::new();
        code(compressor, dimension, &mut pricer, levels.len(), |place| levels[place], |_, _| {});
        match pricer.finish() {
            Some(bits) => bits,
            None => count(compressor, dimension, levels),
        }
    }
}

/// The same without a shortcut.
#[cold]
fn count(compressor: &Compressor, dimension: usize, levels: &[i32]) -> u64 {
    let mut counter = Counter::default();
    write(compressor, dimension, levels, &mut counter);
    counter.finish()
}

pub(super) fn read(
    compressor: &Compressor,
    dimension: usize,
    bytes: &[u8],
    levels: &mut [i32],
) -> Result<(), CodeError> {
    let mut decoder = Decoder::new(bytes);
    let mut beyond = None;
    code(
        compressor,
        dimension,
        &mut decoder,
        levels.len(),
        |_| 0,
        |place, level| levels[place] = level,
    );
    if let Symbols::Levels { max, .. } = compressor.operator.symbols() {
        beyond = levels
            .iter()
            .position(|level| level.unsigned_abs() > max)
            .map(|place| CodeError::Level { place, max });
    }
    match beyond {
        Some(error) => Err(error),
        None => decoder.finish(),
    }
}

#[inline(always)]
fn code<C: Coder>(
    compressor: &Compressor,
    dimension: usize,
    coder: &mut C,
    count: usize,
    wanted: impl Fn(usize) -> i32,
    mut found: impl FnMut(usize, i32),
) {
    let spread = compressor.operator.spread(compressor.longest_block(dimension));
    if spread == Spread::Exponents {
        let mut model = Exponents { tree: [Bit::UNKNOWN; 256] };
        for place in 0..count {
            found(place, model.level(coder, wanted(place)));
        }
    } else {
        let mut model = Sizes::new(compressor.operator.symbols(), spread);
        for place in 0..count {
            found(place, model.level(coder, wanted(place)));
        }
    }
}

/// Levels whose sizes fall off from zero.
struct Sizes {
    max: u32,
    nonzero: Bit,
    /// `|l|` is expected to have `middle + 1` bits; has it as many?
    middle: usize,
    reaches: Bit,
    /// Whether `|l|` has more than `k + 1` bits, given that it has as many.
    longer: [Bit; 32],
    /// Whether `|l|` has fewer than `k + 1` bits, given that it has no more.
    shorter: [Bit; 32],
    /// The first two bits behind the leading one, by the number of bits: the first, then the second
    /// after 0 and after 1.
    finer: [[Bit; 3]; 32],
}

/// Probabilities are in units of 2^-32.
const fn per_mille(p: u64) -> u64 {
    (p << 32) / 1000
}

impl Sizes {
    fn new(symbols: Symbols, spread: Spread) -> Self {
        let max = if let Symbols::Levels { max, .. } = symbols { max } else { 0 };
        if let Spread::Normal { square, .. } = spread {
            return Self::gaussian(max, square);
        }
        let (longer, finer) = ([Bit::UNKNOWN; 32], [[Bit::UNKNOWN; 3]; 32]);
        Sizes {
            max,
            nonzero: Bit::UNKNOWN,
            middle: 0,
            reaches: Bit::UNKNOWN,
            longer,
            shorter: longer,
            finer,
        }
    }

    /// Estimates for the levels of a Gaussian vector, with the weight of a few decisions.
    fn gaussian(max: u32, length: u64) -> Self {
        // The standard deviation s/sqrt(d), in units of 2^-16, and E|l|, which is sqrt(2/pi) of it.
        let deviation =
            ((u128::from(max).pow(2) << 32) / u128::from(length.max(1))).isqrt().max(1) as u64;
        let mean = (deviation * 4) / 5;
        let nonzero = ((u128::from(mean) << 32) / u128::from(mean + (1 << 16))) as u64;
        let rarer = nonzero.min((1 << 32) - nonzero).max(1);
        let mut longer = [Bit::UNKNOWN; 32];
        let mut finer = [[Bit::UNKNOWN; 3]; 32];
        for k in 0..32 {
            // Where the sizes of k + 1 bits begin, in thousandths of a standard deviation; what
            // follows is the normal table, coarsely.
            let begin = ((1000u128 << (k + 16)) / u128::from(deviation)).min(100_000) as u64;
            let (stop, first, second) = match begin {
                0..400 => (begin * 9 / 10, 490, 495),
                400..750 => (begin * 9 / 10, 450, 480),
                750..1500 => (850, 330, 410),
                _ => (980, 100, 250),
            };
            longer[k] = Bit::expected(
                per_mille(1000 - stop.max(1)),
                4000 / (1000 - stop).min(stop).clamp(40, 500),
            );
            finer[k] = [
                Bit::expected(per_mille(first), 8),
                Bit::expected(per_mille(second), 16),
                Bit::expected(per_mille(second), 16),
            ];
        }
        let nonzero = Bit::expected(nonzero, (4 << 32) / rarer);
        let middle = (deviation >> 16).max(1).ilog2() as usize;
        let even = Bit::expected(per_mille(500), 8);
        Sizes { max, nonzero, middle, reaches: even, longer, shorter: [even; 32], finer }
    }

    #[inline(always)]
    fn level<C: Coder>(&mut self, coder: &mut C, wanted: i32) -> i32 {
        let size = wanted.unsigned_abs();
        if !coder.bit(&mut self.nonzero, size != 0) {
            return 0;
        }
        let negative = coder.raw(u32::from(wanted < 0), 1) == 1;
        let last = size.max(1).ilog2() as usize;
        let mut behind = self.middle; // bits behind the leading one
        if behind == 0 || coder.bit(&mut self.reaches, last >= behind) {
            while 2 << behind <= self.max && coder.bit(&mut self.longer[behind], last > behind) {
                behind += 1;
            }
        } else {
            behind -= 1;
            while behind > 0 && coder.bit(&mut self.shorter[behind], last < behind) {
                behind -= 1;
            }
        }
        let (mut value, mut left) = (1, behind as u32);
        for known in 0..2 {
            if left > 0 {
                let model =
                    &mut self.finer[behind][if known == 0 { 0 } else { 1 + (value & 1) as usize }];
                // else a 1 here would be beyond the largest level
                let may = (2 * value + 1) << (left - 1) <= self.max;
                let one = may && coder.bit(model, size >> (left - 1) & 1 == 1);
                (value, left) = (2 * value + u32::from(one), left - 1);
            }
        }
        while left > 0 {
            if (2 * value + 1) << (left - 1) > self.max {
                (value, left) = (2 * value, left - 1);
            } else {
                let now = if ((value + 1) << left) - 1 <= self.max { left.min(8) } else { 1 };
                (value, left) = (value << now | coder.raw(size >> (left - now), now), left - now);
            }
        }
        if negative { -(value as i32) } else { value as i32 }
    }
}

/// Levels that are exponents: any of 255 values may be the common one.
struct Exponents {
    tree: [Bit; 256],
}

impl Exponents {
    #[inline(always)]
    fn level<C: Coder>(&mut self, coder: &mut C, wanted: i32) -> i32 {
        let size = wanted.unsigned_abs();
        let mut node = 1;
        for place in (0..8).rev() {
            let one = coder.bit(&mut self.tree[node], size >> place & 1 == 1);
            node = 2 * node + usize::from(one);
        }
        let found = node as i32 - 256;
        if found != 0 && coder.raw(u32::from(wanted < 0), 1) == 1 { -found } else { found }
    }
}
