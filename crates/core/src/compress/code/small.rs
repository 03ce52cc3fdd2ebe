//! Write and read small levels in the dense layout of the gamma code, many at a time: almost all
//! levels of a quantised vector are small.
//!
//! A level up to [`SMALL`] takes at most six bits, so that eight of them fit a word. Neighbours are
//! joined to pairs, pairs to fours and fours to eights, each time as the two halves of a number
//! twice as wide: so nothing is moved, and all is in lanes. The reader looks up at once all levels
//! that end within the next few bits.

use super::bits::{BitReader, BitSink};
use crate::simd::wide;

/// The largest level that is small.
pub(super) const SMALL: u32 = 6;
/// Levels that are joined to one word.
const JOINED: usize = 8;
/// Levels that are worked on at once.
pub(super) const BLOCK: usize = 512;

/// Write levels from the front as long as whole blocks of them are small; how many were written.
pub(super) fn write<S: BitSink>(levels: &[i32], sink: &mut S) -> usize {
    let mut written = 0;
    let (mut words, mut lengths) = ([0; BLOCK / JOINED], [0; BLOCK / JOINED]);
    for block in levels.as_chunks::<BLOCK>().0 {
        if !join_block(block, &mut words, &mut lengths) {
            break;
        }
        sink.put_all(&words, &lengths);
        written += BLOCK;
    }
    written
}

wide! {
    /// Eights of levels as words, with their lengths; false if some level is not small.
    fn join_block<'a>(levels: &'a [i32; BLOCK], words: &'a mut [u64; BLOCK / JOINED],
        lengths: &'a mut [u64; BLOCK / JOINED]) -> bool {
        // Bytes throughout, whatever numbers stand in them: a loop over numbers of two widths would
        // take the lanes of the wider.
        let (mut bytes, mut top) = ([0u8; BLOCK], 0);
        for (byte, level) in bytes.iter_mut().zip(levels) {
            *byte = *level as u8;
            top = top.max(level.wrapping_add(SMALL as i32) as u32);
        }
        if top > 2 * SMALL {
            return false;
        }
        let (mut codes, mut counts) = ([0u8; BLOCK], [0u8; BLOCK]);
        for ((byte, code), count) in bytes.iter().zip(&mut codes).zip(&mut counts) {
            let size = (*byte as i8).unsigned_abs();
            let sign = u8::from((*byte as i8) < 0);
            // 1, 01x, 001xx; behind all but the first a sign
            *code = if size > 0 { 2 * (size + 1) + sign } else { 1 };
            *count = if size > 2 { 6 } else { 4 };
            *count = if size > 0 { *count } else { 1 };
        }
        let (mut pairs, mut pair_counts) = ([[0u8; 2]; BLOCK / 2], [[0u8; 2]; BLOCK / 2]);
        for k in 0..BLOCK / 2 {
            let (code, count) = (u16::from_le_bytes(codes.as_chunks().0[k]),
                u16::from_le_bytes(counts.as_chunks().0[k]));
            pairs[k] = ((code & 0xFF) << (count >> 8) | code >> 8).to_le_bytes();
            pair_counts[k] = ((count & 0xFF) + (count >> 8)).to_le_bytes();
        }
        let (mut fours, mut four_counts) = ([[0u8; 4]; BLOCK / 4], [[0u8; 4]; BLOCK / 4]);
        for k in 0..BLOCK / 4 {
            let code = u32::from_le_bytes(pairs.as_flattened().as_chunks().0[k]);
            let count = u32::from_le_bytes(pair_counts.as_flattened().as_chunks().0[k]);
            fours[k] = ((code & 0xFFFF) << (count >> 16) | code >> 16).to_le_bytes();
            four_counts[k] = ((count & 0xFFFF) + (count >> 16)).to_le_bytes();
        }
        for k in 0..BLOCK / JOINED {
            let code = u64::from_le_bytes(fours.as_flattened().as_chunks().0[k]);
            let count = u64::from_le_bytes(four_counts.as_flattened().as_chunks().0[k]);
            words[k] = (code & 0xFFFF_FFFF) << (count >> 32) | code >> 32;
            lengths[k] = (count & 0xFFFF_FFFF) + (count >> 32);
        }
        true
    }
}

/// How many bits are looked up at once.
const LOOKED: u32 = 13;
/// The most levels that one look finds.
const FOUND: usize = 7;
/// Looks for which 56 bits are enough.
const LOOKS: usize = (56 / LOOKED) as usize;

/// How many bits the levels take that end within the next bits. A table of its own and so a small
/// one: the next look waits for this alone.
static TAKEN: [u8; 1 << LOOKED] = {
    let mut table = [0; 1 << LOOKED];
    let mut ahead = 0;
    while ahead < table.len() {
        table[ahead] = find(ahead as u32).1;
        ahead += 1;
    }
    table
};

/// Those levels, a byte each and the first lowest; in the highest byte how many they are.
static LEVELS: [u64; 1 << LOOKED] = {
    let mut table = [0; 1 << LOOKED];
    let mut ahead = 0;
    while ahead < table.len() {
        table[ahead] = find(ahead as u32).0;
        ahead += 1;
    }
    table
};

/// An entry of each table.
const fn find(ahead: u32) -> (u64, u8) {
    let window = ahead << (32 - LOOKED);
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
    (levels | (count as u64) << (8 * FOUND), bits as u8)
}

/// Read levels as long as the next is small and the end is far; how many were read.
pub(super) fn read(source: &mut BitReader<'_>, levels: &mut [i32]) -> usize {
    let (bits, count) = look_up(source.bytes(), source.place(), levels);
    source.pass(bits);
    count
}

wide! {
    /// How many bits were read from place `at` on, and how many levels.
    fn look_up<'a>(bytes: &'a [u8], at: usize, levels: &'a mut [i32]) -> (usize, usize) {
        // bytes for every look, of which the next overwrites what is no level
        const WRITTEN: usize = FOUND + 1;
        const WIDENED: usize = 256; // levels that are made numbers of 32 bits together
        let Some(eight) = bytes.get(at / 8..).and_then(|rest| rest.first_chunk::<8>()) else {
            return (0, 0) };
        // The bits ahead in the highest places, of which `held` are counted, and which byte has the
        // next ones.
        let (mut window, mut held, mut next) = (u64::from_be_bytes(*eight) << (at % 8),
            56 - at % 8, at / 8 + 7);
        let (mut narrow, mut found, mut count) = ([0; WIDENED + LOOKS * WRITTEN], 0, 0);
        while let Some(eight) = bytes.get(next..).and_then(|rest| rest.first_chunk::<8>()) {
            window |= u64::from_be_bytes(*eight) >> held;
            next += (63 - held) / 8;
            held |= 56;
            let room = (levels.len() - count - found) / FOUND;
            let looks = if room >= LOOKS { LOOKS } else { room.min(1) };
            let (mut taken, mut last) = (0, 0);
            for _ in 0..looks {
                let ahead = (window >> (64 - LOOKED)) as usize;
                last = usize::from(TAKEN[ahead]);
                window <<= last;
                taken += last;
                narrow[found..found + WRITTEN].copy_from_slice(&LEVELS[ahead].to_le_bytes());
                found += (LEVELS[ahead] >> (8 * FOUND)) as usize;
            }
            held -= taken;
            if found >= WIDENED {
                // read first: behind the levels it would wait until they are stored
                let mut rest = [0; LOOKS * WRITTEN];
                rest.copy_from_slice(&narrow[WIDENED..]);
                widen(&narrow[..WIDENED], &mut levels[count..count + WIDENED]);
                narrow[..LOOKS * WRITTEN].copy_from_slice(&rest);
                (count, found) = (count + WIDENED, found - WIDENED);
            }
            if last == 0 {
                break; // there is no more room, or the next level is large
            }
        }
        widen(&narrow[..found], &mut levels[count..count + found]);
        (8 * next - held - at, count + found)
    }
}

#[inline(always)]
fn widen(narrow: &[u8], levels: &mut [i32]) {
    for (level, byte) in levels.iter_mut().zip(narrow) {
        *level = i32::from(*byte as i8);
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
        for (number, length) in
            [0, 1, 7, 63, 64, 65, 511, 512, 513, 1024, 5000].into_iter().enumerate()
        {
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
                read_levels(Integer::Gamma, Layout::Dense, (1 << 30) - 1, &mut source, &mut back)
                    .unwrap();
                source.finish().unwrap();
                assert_eq!(back, levels, "{length} {spread}");
            }
        }
    }
}
