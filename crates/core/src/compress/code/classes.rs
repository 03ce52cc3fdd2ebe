//! Sort the sizes of levels into classes, and count how many levels each class has, many at a time.
//!
//! Sizes 0 to 7 are classes of their own; from there on an octave has four, and the bits below the
//! leading three of a size are its lower bits.

use crate::simd::wide;

/// How many classes there are, without what lies beyond them.
pub(super) const CLASSES: usize = 24;
/// The class of all sizes that lie beyond.
pub(super) const BEYOND: usize = CLASSES;
/// Levels that share a byte which says which of them are zero.
pub(super) const EIGHT: usize = 8;

/// The class of a size.
pub(super) const fn class(size: u32) -> usize {
    if size < 8 {
        return size as usize;
    }
    if size >= first(BEYOND) {
        return BEYOND;
    }
    let octave = size.ilog2();
    (4 * octave - 4 + (size >> (octave - 2) & 3)) as usize
}

/// The least size of a class.
pub(super) const fn first(class: usize) -> u32 {
    let class = class as u32;
    if class < 8 { class } else { (4 + class % 4) << (class / 4 - 1) }
}

/// How many lower bits the sizes of a class have.
pub(super) const fn lower_bits(class: usize) -> u32 {
    if class < 8 || class == BEYOND { 0 } else { class as u32 / 4 - 1 }
}

/// How many bits Elias's gamma code has for a size that is not 0.
pub(super) const fn gamma_bits(size: u32) -> u32 {
    2 * size.ilog2() + 1
}

/// How many levels of a message are of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// By the class of `|l|`.
    pub(super) classes: [u64; CLASSES + 1],
    /// Eights of levels, by how many of them are not zero; the last one may be cut short.
    pub(super) eights: [u64; EIGHT + 1],
    /// Bits of Elias's gamma code for all sizes beyond the classes.
    pub(super) gamma: u64,
}

impl Counts {
    /// Count. The eights are counted where `sparse`, and else left at 0.
    pub(super) fn new(levels: &[i32], sparse: bool) -> Self {
        let (mut reached, mut filled) = ([0; CLASSES + 1], [0; EIGHT + 1]);
        let mut counts = Counts::default();
        for part in levels.chunks(PART) {
            let top = count_part(part, &mut reached);
            if sparse {
                count_eights(part, &mut filled);
            }
            if top >= first(BEYOND) {
                let sizes = part.iter().map(|level| level.unsigned_abs());
                let beyond = sizes.filter(|size| *size >= first(BEYOND));
                counts.gamma += beyond.map(|size| u64::from(gamma_bits(size))).sum::<u64>();
            }
        }
        differences(levels.len() as u64, &reached, &mut counts.classes);
        if sparse {
            differences(levels.len().div_ceil(EIGHT) as u64, &filled, &mut counts.eights);
        }
        counts
    }
}

/// How many are in each class, if `reached[k]` of them are in class `k` or above.
fn differences<const N: usize>(all: u64, reached: &[u64; N], counts: &mut [u64; N]) {
    for class in 0..N {
        let here = if class == 0 { all } else { reached[class] };
        counts[class] = here - reached.get(class + 1).copied().unwrap_or(0);
    }
}

/// Levels whose sizes are made bytes together: so few that a byte can count those of each lane.
const PART: usize = ABREAST * 128;
/// One of the widest registers.
const ABREAST: usize = 64;

wide! {
    /// Add to `reached[k]` how many levels are in class `k >= 1` or above; the largest size.
    fn count_part<'a>(levels: &'a [i32], reached: &'a mut [u64; CLASSES + 1]) -> u32 {
        let (mut sizes, mut top) = ([0u8; PART], 0);
        for (byte, level) in sizes.iter_mut().zip(levels) {
            let size = level.unsigned_abs();
            top = if size > top { size } else { top };
            *byte = if size < 255 { size } else { 255 } as u8;
        }
        let sizes = sizes[..levels.len().next_multiple_of(ABREAST)].as_chunks::<ABREAST>().0;
        for class in 1..=CLASSES {
            if first(class) > top {
                break;
            }
            reached[class] += reach(sizes, first(class) as u8);
        }
        top
    }
}

wide! {
    /// Add to `filled[k]` how many eights of levels have `k >= 1` that are not zero, or more.
    fn count_eights<'a>(levels: &'a [i32], filled: &'a mut [u64; EIGHT + 1]) -> () {
        let mut marks = [0u8; PART];
        for (mark, level) in marks.iter_mut().zip(levels) {
            *mark = u8::from(*level != 0);
        }
        let eights = levels.len().div_ceil(EIGHT);
        let mut sums = [0u8; PART / EIGHT];
        let mut top = 0;
        for (sum, marks) in sums[..eights].iter_mut().zip(marks.as_chunks::<EIGHT>().0) {
            // the sum of eight bytes, in the highest
            *sum = (u64::from_le_bytes(*marks).wrapping_mul(0x0101_0101_0101_0101) >> 56) as u8;
            top = if *sum > top { *sum } else { top };
        }
        let sums = sums[..eights.next_multiple_of(ABREAST)].as_chunks::<ABREAST>().0;
        for count in 1..=top {
            filled[usize::from(count)] += reach(sums, count);
        }
    }
}

/// How many bytes are at least `least`.
#[inline(always)]
fn reach(bytes: &[[u8; ABREAST]], least: u8) -> u64 {
    let mut lanes = [0u8; ABREAST];
    for abreast in bytes {
        for lane in 0..ABREAST {
            lanes[lane] += u8::from(abreast[lane] >= least);
        }
    }
    lanes.iter().map(|lane| u64::from(*lane)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    #[test]
    fn classes_follow_each_other() {
        assert_eq!([0, 1, 7, 8, 9, 10, 127, 128].map(class), [0, 1, 7, 8, 8, 9, 23, 24]);
        for class_ in 0..CLASSES {
            let next = first(class_ + 1);
            assert_eq!(first(class_) + (1 << lower_bits(class_)), next, "{class_}");
            assert!((first(class_)..next).all(|size| class(size) == class_), "{class_}");
        }
        assert_eq!([1, 2, 3, 4, 1 << 30].map(gamma_bits), [1, 3, 3, 5, 61]);
    }

    #[test]
    fn counts_are_those_of_one_level_after_the_other() {
        let mut stream = Seed::new(1).stream(Purpose::Data, SERVER, 0);
        for length in [0, 1, 7, 8, 63, 64, 65, PART - 1, PART, PART + 9, 2 * PART + 70] {
            for (bound, rare) in [(1, 20), (3, 1), (90, 2), (300, 1), (1 << 29, 1)] {
                let levels: Vec<i32> = (0..length)
                    .map(|_| match stream.below(rare) {
                        0 => stream.below(2 * bound + 1) as i32 - bound as i32,
                        _ => 0,
                    })
                    .collect();
                let mut plain = Counts::default();
                for level in &levels {
                    let size = level.unsigned_abs();
                    plain.classes[class(size)] += 1;
                    plain.gamma += if size < 128 { 0 } else { u64::from(gamma_bits(size)) };
                }
                assert_eq!(Counts::new(&levels, false), plain, "{length} {bound}");
                for eight in levels.chunks(EIGHT) {
                    plain.eights[eight.iter().filter(|level| **level != 0).count()] += 1;
                }
                assert_eq!(Counts::new(&levels, true), plain, "{length} {bound}");
            }
        }
    }
}
