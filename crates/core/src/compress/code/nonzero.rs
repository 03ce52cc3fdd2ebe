//! Find the levels that are not zero where most are.

use crate::simd::wide;

/// Levels whose bits go into one number.
const BLOCK: usize = 64;
/// Levels that are looked at at once.
const STRETCH: usize = 1024;
/// So few are looked at one by one.
const FEW: usize = 256;
/// Places that are written for every block, be there so many or not: a branch for each level that
/// is not zero would be taken at random.
const USUAL: usize = 4;

/// Visit what is not zero, with its place.
#[inline(always)]
pub(super) fn for_each_nonzero(levels: &[i32], mut visit: impl FnMut(usize, i32)) {
    if levels.len() < FEW {
        for (place, level) in levels.iter().enumerate().filter(|(_, level)| **level != 0) {
            visit(place, *level);
        }
        return;
    }
    let (whole, rest) = levels.as_chunks::<STRETCH>();
    let padded = (!rest.is_empty()).then(|| {
        let mut padded = [0; STRETCH];
        padded[..rest.len()].copy_from_slice(rest);
        padded
    });
    let mut places = [0; STRETCH + USUAL];
    for (number, stretch) in whole.iter().chain(&padded).enumerate() {
        let count = find(stretch, &mut places);
        for place in &places[..count] {
            visit(number * STRETCH + usize::from(*place), stretch[usize::from(*place)]);
        }
    }
}

wide! {
    /// The places of what is not zero, ascending; how many.
    fn find<'a>(levels: &'a [i32; STRETCH], places: &'a mut [u16; STRETCH + USUAL]) -> usize {
        let mut count = 0;
        for (number, mut left) in marks(levels).into_iter().enumerate() {
            let first = (number * BLOCK) as u16;
            let all = left.count_ones() as usize;
            for place in &mut places[count..count + USUAL] {
                *place = first + left.trailing_zeros() as u16;
                left &= left.wrapping_sub(1);
            }
            if left != 0 {
                for place in &mut places[count + USUAL..count + all] {
                    *place = first + left.trailing_zeros() as u16;
                    left &= left.wrapping_sub(1);
                }
            }
            count += all;
        }
        count
    }
}

// brings the lowest bits of eight bytes together in the highest
const GATHER: u64 = 0x0102_0408_1020_4080;

wide! {
    /// For each eight levels, of which the last may be fewer, a byte: a bit for each that is not
    /// zero, the first lowest.
    pub(super) fn mark_eights<'a>(levels: &'a [i32], eights: &'a mut [u8]) -> () {
        for (levels, eights) in levels.chunks(STRETCH).zip(eights.chunks_mut(STRETCH / 8)) {
            let mut bytes = [0u8; STRETCH];
            for (byte, level) in bytes.iter_mut().zip(levels) {
                *byte = u8::from(*level != 0);
            }
            for (eight, bytes) in eights.iter_mut().zip(bytes.as_chunks().0) {
                *eight = (u64::from_le_bytes(*bytes).wrapping_mul(GATHER) >> 56) as u8;
            }
        }
    }
}

/// A bit for each level that is not zero, the first lowest.
#[inline(always)]
fn marks(levels: &[i32; STRETCH]) -> [u64; STRETCH / BLOCK] {
    let mut bytes = [0u8; STRETCH];
    for (byte, level) in bytes.iter_mut().zip(levels) {
        *byte = u8::from(*level != 0);
    }
    gathered(&bytes)
}

/// The lowest bits of bytes that are 0 or 1, of 64 in one number, the first lowest.
#[inline(always)]
pub(super) fn gathered<const N: usize, const M: usize>(bytes: &[u8; N]) -> [u64; M] {
    let mut marks = [0; M];
    for (mark, bytes) in marks.iter_mut().zip(bytes.as_chunks::<BLOCK>().0) {
        let mut gathered = [0; BLOCK / 8];
        for (eight, bytes) in gathered.iter_mut().zip(bytes.as_chunks().0) {
            *eight = (u64::from_le_bytes(*bytes).wrapping_mul(GATHER) >> 56) as u8;
        }
        *mark = u64::from_le_bytes(gathered);
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    #[test]
    fn what_is_not_zero_is_visited_in_order() {
        let mut stream = Seed::new(1).stream(Purpose::Data, SERVER, 0);
        for length in [0, 1, 63, 64, 1023, 1024, 1025, 5000] {
            for rare in [1, 2, 5, 100, 3000] {
                let levels: Vec<i32> =
                    (0..length).map(|k| if stream.below(rare) == 0 { k + 1 } else { 0 }
                        * [1, -1][k as usize % 2]).collect();
                let mut visited = Vec::new();
                for_each_nonzero(&levels, |place, level| visited.push((place, level)));
                let expected: Vec<(usize, i32)> =
                    levels.iter().copied().enumerate().filter(|(_, level)| *level != 0).collect();
                assert_eq!(visited, expected, "{length} {rare}");
                let mut eights = vec![0; levels.len().div_ceil(8)];
                mark_eights(&levels, &mut eights);
                let marked: Vec<usize> = (0..8 * eights.len())
                    .filter(|place| eights[place / 8] >> (place % 8) & 1 == 1)
                    .collect();
                assert!(marked.iter().eq(expected.iter().map(|(place, _)| place)), "{length}");
            }
        }
    }
}
