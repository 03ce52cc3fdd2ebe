//! Add up the lengths of levels where a length rises with `|l|` at few places, many levels at a time.

use crate::lanes::wide;

/// More places than any code has: one for each bit of a level, or for each bit of the longest word.
const MOST: usize = 48;
/// Levels worked on at once: four of the widest registers.
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
}

impl Stairs {
    /// The length is `ground` at 0.
    pub(super) const fn new(ground: u32) -> Self {
        Stairs { ground, from: [0; MOST], by: [0; MOST], count: 0 }
    }

    /// From the size `from` on, which is above all before, the length is different by `by`.
    pub(super) const fn rise(&mut self, from: u32, by: i32) {
        if by != 0 {
            self.from[self.count] = from;
            self.by[self.count] = by;
            self.count += 1;
        }
    }

    /// The sum of the lengths of `levels`, of which `top` is the largest in absolute value.
    pub(super) fn total(&self, levels: &[i32], top: u32) -> u64 {
        const PART: usize = 1 << 16; // sums of a part fit 32 bits
        let steps = self.from[..self.count].partition_point(|from| *from <= top); // nobody climbs the others
        let rises: i64 = levels.chunks(PART).map(|part| i64::from(rises(&self.from[..steps], &self.by[..steps], part))).sum();
        (u64::from(self.ground) * levels.len() as u64).wrapping_add_signed(rises)
    }
}

wide! {
    /// The sum over all levels and steps of `by`, where `|l|` is at least `from`.
    fn rises<'a>(from: &'a [u32], by: &'a [i32], levels: &'a [i32]) -> i32 {
        let mut sum = 0;
        for abreast in levels.chunks(ABREAST) {
            let mut sizes = [0; ABREAST]; // a zero climbs nothing
            for (size, level) in sizes.iter_mut().zip(abreast) {
                *size = level.unsigned_abs();
            }
            for (&from, &by) in from.iter().zip(by) {
                sum += by * sizes.iter().map(|size| i32::from(*size >= from)).sum::<i32>();
            }
        }
        sum
    }
}

wide! {
    /// The largest `|l|`.
    pub(super) fn largest<'a>(levels: &'a [i32]) -> u32 {
        levels.iter().fold(0, |top, level| level.unsigned_abs().max(top))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_climbs_its_own_stairs() {
        let mut stairs = Stairs::new(3);
        for (from, by) in [(1, 2), (2, -1), (5, 4), (9, 0), (10, 7)] {
            stairs.rise(from, by);
        }
        let length =
            |size: u32| [(1, 2), (2, -1), (5, 4), (10, 7)].iter().fold(3, |sum, (from, by)| sum + if size >= *from { *by } else { 0 });
        for n in [0, 1, 63, 64, 65, 140, 70_000] {
            let levels: Vec<i32> = (0..n).map(|k: i32| (k * 7 % 13) * if k % 2 == 0 { 1 } else { -1 }).collect();
            let one_by_one: i32 = levels.iter().map(|level| length(level.unsigned_abs())).sum();
            assert_eq!(stairs.total(&levels, largest(&levels)), one_by_one as u64, "{n}");
        }
        for top in 0..12 {
            assert_eq!(stairs.total(&[0, -top], top.unsigned_abs()), (length(0) + length(top.unsigned_abs())) as u64, "{top}");
        }
    }
}
