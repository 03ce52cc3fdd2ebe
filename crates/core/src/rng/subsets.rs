//! Choose rows without replacement.

use super::Stream;

/// Draws uniform subsets without replacement, remembering nothing from one draw to the next.
#[derive(Clone, Debug)]
pub struct Subsets {
    /// One bit a row; all zero between draws.
    taken: Vec<u64>,
}

impl Subsets {
    /// A drawer of subsets of `0..population`.
    pub fn new(population: usize) -> Self {
        Subsets { taken: vec![0; population.div_ceil(64)] }
    }

    /// Put a uniform subset of `0..population` of size `out.len()` into `out`, in ascending order.
    ///
    /// Rows are drawn with replacement until enough different ones are there; of a subset with more
    /// than half of all rows, those that it lacks are drawn.
    pub fn draw(&mut self, population: u32, stream: &mut Stream, out: &mut [u32]) {
        let size = out.len() as u32;
        assert!(size <= population && self.taken.len() * 64 >= population as usize);
        if 2 * u64::from(size) > u64::from(population) {
            self.take(population, population - size, stream, &mut []);
            self.exchange(population);
            self.give(out);
        } else {
            self.take(population, size, stream, out);
            if out.len() * 8 < self.taken.len() {
                out.sort_unstable(); // the marks are far apart: to look for them would take longer
                for row in &*out {
                    self.taken[(row / 64) as usize] = 0;
                }
            } else {
                self.give(out);
            }
        }
    }

    /// Mark as many different rows, and list them where there is a list. As many words are used at
    /// a time as rows are missing, so that the loop has no end that depends on what is drawn.
    fn take(&mut self, population: u32, size: u32, stream: &mut Stream, list: &mut [u32]) {
        if size == 0 {
            return;
        }
        let threshold = population.wrapping_neg() % population; // as in `Stream::below`
        let mut missing = size;
        while missing > 0 {
            for word in stream.at_most(missing as usize) {
                let product = u64::from(*word) * u64::from(population);
                if (product as u32) < threshold {
                    continue;
                }
                let row = (product >> 32) as u32;
                if let Some(slot) = list.get_mut((size - missing) as usize) {
                    *slot = row; // a row that is there already is written over by the next
                }
                let (place, bit) = (&mut self.taken[(row / 64) as usize], row % 64);
                missing -= 1 - (*place >> bit & 1) as u32;
                *place |= 1 << bit;
            }
        }
    }

    /// Mark the rows that are not, and the other way round.
    fn exchange(&mut self, population: u32) {
        let (whole, rest) = ((population / 64) as usize, population % 64);
        self.taken[..whole].iter_mut().for_each(|word| *word = !*word);
        if rest > 0 {
            self.taken[whole] ^= (1 << rest) - 1;
        }
    }

    /// List the marked rows and unmark them.
    fn give(&mut self, out: &mut [u32]) {
        const FEW: usize = 8;
        let mut slot = 0;
        for (place, word) in self.taken.iter_mut().enumerate() {
            let (mut bits, first) = (std::mem::take(word), place as u32 * 64);
            let count = bits.count_ones() as usize;
            if let (true, Some(slots)) = (count <= FEW, out[slot..].first_chunk_mut::<FEW>()) {
                for slot in slots {
                    // those too many are written over: a loop to the last would end at random
                    *slot = first + bits.trailing_zeros();
                    bits &= bits.wrapping_sub(1);
                }
            } else {
                for slot in &mut out[slot..slot + count] {
                    *slot = first + bits.trailing_zeros();
                    bits &= bits - 1;
                }
            }
            slot += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClientId, Purpose, Seed};
    use super::*;

    #[test]
    fn subsets_are_uniform_and_ascending() {
        subsets_are_uniform(11, 4);
    }

    /// Of which the rows that they lack are drawn.
    #[test]
    fn large_subsets_are_uniform_and_ascending() {
        subsets_are_uniform(11, 9);
    }

    #[test]
    fn every_size_is_drawn_and_leaves_no_mark() {
        for population in [1, 63, 64, 65, 130, 1000] {
            let mut subsets = Subsets::new(population as usize);
            for size in [
                0,
                1,
                population / 3,
                population / 2,
                population / 2 + 1,
                population - 1,
                population,
            ] {
                let mut out = vec![0; size.min(population) as usize];
                subsets.draw(
                    population,
                    &mut Seed::new(6).stream(Purpose::Batch, ClientId(0), u64::from(size)),
                    &mut out,
                );
                assert!(
                    out.windows(2).all(|w| w[0] < w[1])
                        && out.last().is_none_or(|last| *last < population),
                    "{size} of {population}"
                );
                assert!(subsets.taken.iter().all(|word| *word == 0));
            }
        }
    }

    fn subsets_are_uniform(population: u32, size: usize) {
        let rounds = 100_000u64;
        let mut subsets = Subsets::new(population as usize);
        let mut pairs = vec![0u32; (population * population) as usize];
        let mut out = vec![0; size];
        for round in 0..rounds {
            subsets.draw(
                population,
                &mut Seed::new(5).stream(Purpose::Batch, ClientId(0), round),
                &mut out,
            );
            assert!(out.windows(2).all(|w| w[0] < w[1]) && out[size - 1] < population);
            for a in &out {
                for b in &out {
                    pairs[(a * population + b) as usize] += 1;
                }
            }
        }
        let (n, k) = (f64::from(population), size as f64);
        for a in 0..population {
            for b in 0..population {
                let p = if a == b { k / n } else { k * (k - 1.0) / (n * (n - 1.0)) };
                let seen = f64::from(pairs[(a * population + b) as usize]);
                let score = (seen - rounds as f64 * p) / (rounds as f64 * p * (1.0 - p)).sqrt();
                assert!(score.abs() < 5.7, "rows {a}, {b}: {score}"); // 66 pairs at 1e-8 each
            }
        }
    }

    #[test]
    fn large_populations_take_the_other_branch_with_the_same_law() {
        let mut subsets = Subsets::new(100_000);
        let mut out = vec![0; 10];
        let mut sum = 0.0;
        for round in 0..2000 {
            subsets.draw(
                100_000,
                &mut Seed::new(5).stream(Purpose::Batch, ClientId(0), round),
                &mut out,
            );
            assert!(out.windows(2).all(|w| w[0] < w[1]));
            sum += out.iter().map(|&r| f64::from(r)).sum::<f64>();
        }
        let (n, mean) = (20_000.0f64, 49_999.5);
        let sd = 100_000.0 / 12f64.sqrt();
        assert!(((sum / n - mean) * n.sqrt() / sd).abs() < 4.9);
    }
}
