//! Write and read small levels in the dense layout of the gamma code, many at a time: almost all levels of a quantised vector are small.
//!
//! A level up to [`SMALL`] takes at most six bits, so that eight of them fit a word. Neighbours are joined to pairs, pairs to fours and fours to eights by
//! arithmetic that vectorises: `a, b -> a 2^length(b) + b`. The reader looks up all levels that end within the next few bits at once.

use super::bits::{BitReader, BitSink};
use crate::lanes::wide;

/// The largest level that is small.
pub(super) const SMALL: u32 = 6;
/// Levels that are joined to one word.
const JOINED: usize = 8;
/// Levels that are joined in one step.
const STEP: usize = 64;
/// Levels that are worked on at once.
pub(super) const BLOCK: usize = 512;

/// Write levels from the front as long as whole blocks of them are small; how many were written.
pub(super) fn write<S: BitSink>(levels: &[i32], sink: &mut S) -> usize {
    let mut written = 0;
    let (mut words, mut powers) = ([0; BLOCK / JOINED], [0; BLOCK / JOINED]);
    for block in levels.as_chunks::<BLOCK>().0 {
        if !join_block(block, &mut words, &mut powers) {
            break;
        }
        for (word, power) in words.iter().zip(&powers) {
            sink.put(*word, power.trailing_zeros());
        }
        written += BLOCK;
    }
    written
}

wide! {
    /// Eights of levels as words, with 2 to the power of their lengths; false if some level is not small.
    fn join_block<'a>(levels: &'a [i32; BLOCK], words: &'a mut [u64; BLOCK / JOINED], powers: &'a mut [u64; BLOCK / JOINED]) -> bool {
        let mut small = true;
        let targets = words.as_chunks_mut::<{ STEP / JOINED }>().0.iter_mut().zip(powers.as_chunks_mut::<{ STEP / JOINED }>().0);
        for (step, (words, powers)) in levels.as_chunks::<STEP>().0.iter().zip(targets) {
            small &= join(step, words, powers);
        }
        small
    }
}

#[inline(always)]
fn join(levels: &[i32; STEP], words: &mut [u64; STEP / JOINED], powers: &mut [u64; STEP / JOINED]) -> bool {
    let (mut code, mut power, mut top) = ([0u16; STEP], [0u16; STEP], 0);
    for ((level, code), power) in levels.iter().zip(&mut code).zip(&mut power) {
        let size = level.unsigned_abs();
        top |= if size > SMALL { 1 } else { 0 };
        let size = size.min(SMALL); // what a larger one would give is not used
        let number = size as u16 + 1; // 1, 01x, 001xx; behind all but the first a sign
        let sign = (*level < 0) as u16;
        *code = if size > 0 { 2 * number + sign } else { 1 };
        *power = if size > 2 {
            64
        } else if size > 0 {
            16
        } else {
            2
        };
    }
    let (mut pairs, mut pair_powers) = ([0u32; STEP / 2], [0u32; STEP / 2]);
    for k in 0..STEP / 2 {
        pairs[k] = u32::from(code[2 * k]) * u32::from(power[2 * k + 1]) + u32::from(code[2 * k + 1]);
        pair_powers[k] = u32::from(power[2 * k]) * u32::from(power[2 * k + 1]);
    }
    let (mut fours, mut four_powers) = ([0u32; STEP / 4], [0u32; STEP / 4]);
    for k in 0..STEP / 4 {
        fours[k] = pairs[2 * k] * pair_powers[2 * k + 1] + pairs[2 * k + 1];
        four_powers[k] = pair_powers[2 * k] * pair_powers[2 * k + 1];
    }
    for k in 0..STEP / JOINED {
        words[k] = u64::from(fours[2 * k]) * u64::from(four_powers[2 * k + 1]) + u64::from(fours[2 * k + 1]);
        powers[k] = u64::from(four_powers[2 * k]) * u64::from(four_powers[2 * k + 1]);
    }
    top == 0
}

/// How many bits are looked up at once.
const LOOKED: u32 = 10;
/// The most levels that one look finds.
const FOUND: usize = 8;

/// The levels that end within some bits, in the bytes of a number, lowest first; how many they are, and how many bits they take.
#[derive(Clone, Copy)]
struct Found {
    levels: u64,
    count: u8,
    bits: u8,
}

/// By the next bits.
static FINDINGS: [Found; 1 << LOOKED] = {
    let mut table = [Found { levels: 0, count: 0, bits: 0 }; 1 << LOOKED];
    let mut ahead = 0;
    while ahead < table.len() {
        let window = (ahead as u32) << (32 - LOOKED);
        let (mut levels, mut count, mut bits) = (0, 0, 0);
        while count < FOUND {
            let left = window << bits;
            let zeros = left.leading_zeros();
            let length = if zeros == 0 { 1 } else { 2 * zeros + 2 };
            if zeros > 2 || bits + length > LOOKED {
                break;
            }
            let size = (left >> (31 - 2 * zeros)) as u64 - 1;
            let negative = zeros > 0 && left >> (32 - length) & 1 == 1;
            let level = if negative { 256 - size } else { size };
            levels |= level << (8 * count);
            count += 1;
            bits += length;
        }
        table[ahead] = Found { levels, count: count as u8, bits: bits as u8 };
        ahead += 1;
    }
    table
};

/// Read levels as long as the next is small and the end is far; how many were read.
pub(super) fn read(source: &mut BitReader<'_>, levels: &mut [i32]) -> usize {
    let (bits, count) = look_up(source.bytes(), source.place(), levels);
    source.pass(bits);
    count
}

wide! {
    /// How many bits were read from place `at` on, and how many levels.
    fn look_up<'a>(bytes: &'a [u8], at: usize, levels: &'a mut [i32]) -> (usize, usize) {
        let (mut place, mut count) = (at, 0);
        'windows: while let Some(eight) = bytes.get(place / 8..).and_then(|rest| rest.first_chunk::<8>()) {
            let start = place % 8;
            let window = u64::from_be_bytes(*eight) << start;
            let mut used = 0;
            while used + LOOKED <= 57 {
                let Some(out) = levels[count..].first_chunk_mut::<FOUND>() else {
                    place += used as usize;
                    break 'windows;
                };
                let found = &FINDINGS[(window << used >> (64 - LOOKED)) as usize];
                if found.count == 0 {
                    place += used as usize;
                    break 'windows;
                }
                for (k, out) in out.iter_mut().enumerate() {
                    *out = i32::from((found.levels >> (8 * k)) as i8);
                }
                count += usize::from(found.count);
                used += u32::from(found.bits);
            }
            place += used as usize;
        }
        (place - at, count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bits::{BitReader, BitWriter};
    use super::super::elias::{Integer, Layout, read as read_levels, write as write_levels};
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    /// One level after the other, as the code is defined.
    fn plainly(levels: &[i32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut sink = BitWriter::new(&mut bytes);
        for level in levels {
            Integer::Gamma.put(u64::from(level.unsigned_abs()) + 1, &mut sink);
            if *level != 0 {
                sink.put(u64::from(*level < 0), 1);
            }
        }
        sink.finish();
        bytes
    }

    #[test]
    fn many_at_a_time_are_one_after_the_other() {
        let mut stream = Seed::new(1).stream(Purpose::Data, SERVER, 0);
        for (number, length) in [0, 1, 7, 63, 64, 65, 511, 512, 513, 1024, 5000].into_iter().enumerate() {
            // All small, some large, most large; the largest of 30 bits.
            for spread in [1, 6, 7, 40, 1 << 29] {
                let rare = [1, 3, 700][number % 3];
                let levels: Vec<i32> = (0..length)
                    .map(|_| {
                        let bound = if stream.below(rare) == 0 { spread } else { 6 };
                        stream.below(2 * bound + 1) as i32 - bound as i32
                    })
                    .collect();
                let mut bytes = Vec::new();
                let mut sink = BitWriter::new(&mut bytes);
                write_levels(Integer::Gamma, Layout::Dense, &levels, &mut sink);
                sink.finish();
                assert_eq!(bytes, plainly(&levels), "{length} {spread}");
                let (mut source, mut back) = (BitReader::new(&bytes), vec![99; length]);
                read_levels(Integer::Gamma, Layout::Dense, (1 << 30) - 1, &mut source, &mut back).unwrap();
                source.finish().unwrap();
                assert_eq!(back, levels, "{length} {spread}");
            }
        }
    }
}
