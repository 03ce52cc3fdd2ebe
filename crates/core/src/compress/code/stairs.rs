//! Add up the lengths of levels where a length rises with `|l|` at few places, many levels at a
//! time.

use crate::simd::wide;

/// More places than any code has: one for each bit of a level, or for each bit of the longest word.
const MOST: usize = 48;
/// Levels worked on at once: one of the widest registers where each fits a byte, four where it does
/// not.
const ABREAST: usize = 64;

/// A length as a function of `|l|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stairs {
    /// The length at 0.
    ground: u32,
    /// From which `|l|` on the length is different, and by how much.
    from: [u32; MOST],
    by: [i32; MOST],
    count: usize,
    /// How many of these places are bytes.
    bytes: usize,
}

impl Stairs {
    /// The length is `ground` at 0.
    pub(super) const fn new(ground: u32) -> Self {
        Stairs { ground, from: [0; MOST], by: [0; MOST], count: 0, bytes: 0 }
    }

    /// From the size `from` on, which is above all before, the length is different by `by`.
    pub(super) const fn rise(&mut self, from: u32, by: i32) {
        if by != 0 {
            self.from[self.count] = from;
            self.by[self.count] = by;
            self.count += 1;
            self.bytes += (from <= u8::MAX as u32) as usize;
        }
    }

    /// The sum of the lengths of `levels`, and the largest `|l|`.
    pub(super) fn total(&self, levels: &[i32]) -> (u64, u32) {
        const PART: usize = 1 << 16; // sums of a part fit 32 bits
        let (mut rises, mut highest) = (0, 0);
        for part in levels.chunks(PART) {
            let (rise, top) =
                climb(&self.from[..self.count], &self.by[..self.count], self.bytes, part);
            (rises, highest) = (rises + i64::from(rise), top.max(highest));
        }
        ((u64::from(self.ground) * levels.len() as u64).wrapping_add_signed(rises), highest)
    }
}

wide! {
    /// The sum over all levels and steps of `by`, where `|l|` is at least `from`, and the largest
    /// `|l|`.
    fn climb<'a>(from: &'a [u32], by: &'a [i32], bytes: usize, levels: &'a [i32]) -> (i32, u32) {
        let top = levels.iter().fold(0, |top, level| level.unsigned_abs().max(top));
        let small = top <= u32::from(u8::MAX);
        // Nobody climbs the others; where levels are few, finding out takes longer than climbing in
        // vain.
        let climbed = if small && levels.len() <= ABREAST { bytes }
            else { from.partition_point(|from| *from <= top) };
        let (from, by) = (&from[..climbed], &by[..climbed]);
        let mut sum = 0;
        if small {
            for abreast in levels.chunks(ABREAST) {
                let mut sizes = [0; ABREAST]; // a zero climbs nothing
                for (size, level) in sizes.iter_mut().zip(abreast) {
                    *size = level.unsigned_abs() as u8;
                }
                for (&from, &by) in from.iter().zip(by) {
                    let from = from as u8;
                    let reached = sizes.iter().map(|size| u8::from(*size >= from)).sum::<u8>();
                    sum += by * i32::from(reached);
                }
            }
        } else {
            for abreast in levels.chunks(ABREAST) {
                let mut sizes = [0; ABREAST];
                for (size, level) in sizes.iter_mut().zip(abreast) {
                    *size = level.unsigned_abs();
                }
                for (&from, &by) in from.iter().zip(by) {
                    sum += by * sizes.iter().map(|size| i32::from(*size >= from)).sum::<i32>();
                }
            }
        }
        (sum, top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_climbs_its_own_stairs() {
        let mut stairs = Stairs::new(3);
        let steps = [(1, 2), (2, -1), (5, 4), (9, 0), (10, 7), (255, 11), (257, 13), (1000, 17)];
        for (from, by) in steps {
            stairs.rise(from, by);
        }
        let length = |size: u32| {
            steps.iter().fold(3, |sum, (from, by)| sum + if size >= *from { *by } else { 0 })
        };
        for n in [0, 1, 63, 64, 65, 140, 70_000] {
            for factor in [1, 21, 99] {
                let levels: Vec<i32> = (0..n)
                    .map(|k: i32| factor * (k * 7 % 13) * if k % 2 == 0 { 1 } else { -1 })
                    .collect();
                let one_by_one: i32 = levels.iter().map(|level| length(level.unsigned_abs())).sum();
                let top = levels.iter().map(|level| level.unsigned_abs()).max().unwrap_or(0);
                assert_eq!(stairs.total(&levels), (one_by_one as u64, top), "{n} {factor}");
            }
        }
        for top in (0..12).chain(253..260) {
            assert_eq!(
                stairs.total(&[0, -top]),
                ((length(0) + length(top.unsigned_abs())) as u64, top.unsigned_abs()),
                "{top}"
            );
        }
    }
}
