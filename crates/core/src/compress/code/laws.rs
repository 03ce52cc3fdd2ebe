//! Describe how the levels of a vector may be spread, by 256 laws of which a byte names one.
//!
//! The norm of a vector is sent, so the mean square of its levels is known, `s^2/d`; what is not
//! known is their shape. A law is one of 16 generalised Gaussians (a density that falls off as
//! `exp(-|x|^beta)`, beta from 2 down to 0.15) mixed with one of 16 shares of coordinates that are
//! exactly zero; such numbers are rounded at random to levels. Gradients are like that, with many
//! coordinates that hardly matter, and a Gaussian vector is the first law. A law is used as
//! frequencies in 4096. Classes that are too rare for a frequency share one, the *escape*.

use super::ans::{Alphabet, WHOLE, price};
use super::classes::{BEYOND, CLASSES, Counts, EIGHT, class, first, gamma_bits, lower_bits};
use crate::simd::{exp, ln, wide};
use std::sync::OnceLock;

/// How many laws there are.
pub(super) const LAWS: usize = 256;
/// Beta is multiplied by this from one shape to the next: `0.075^(1/15)`.
const SLIMMER: f64 = 0.8414;
const SHAPES: usize = 16;
const SHARES: usize = 16;
/// What would have a smaller frequency shares the escape.
const RARE: f64 = 0.35;

/// The byte that stands for an escape among levels: -128 is no level that has a byte.
pub(super) const ESCAPE: u8 = 128;
/// The byte that stands for an escape among eights: all of them being not zero is rare.
pub(super) const ESCAPED_EIGHT: u8 = 255;

/// What is known of the levels of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Levels {
    /// Their standard deviation.
    pub(super) deviation: f64,
    /// The largest.
    pub(super) max: u32,
    /// Whether zeros are so many that eight levels are a symbol, which says where the others are.
    pub(super) sparse: bool,
}

impl Levels {
    /// Whether all sizes that are not zero are alike, so that nothing need be said of them.
    pub(super) fn alike(&self) -> bool {
        self.sparse && self.max == 1
    }
}

/// How many bits stand behind a symbol of this class, without those of the sign: where it has a
/// symbol of its own, or where it has none (and what lies beyond the classes is counted apart).
fn raw_bits(class: usize, own: bool) -> u32 {
    match (own, class) {
        (true, _) => lower_bits(class),
        (false, BEYOND) => 0,
        (false, _) => gamma_bits(first(class)),
    }
}

/// The laws of a channel.
pub(super) struct Laws {
    levels: Levels,
    frequencies: Vec<Frequencies>,
    /// What a level takes under each law, in 256ths of a bit, by its class.
    class_prices: Vec<[u16; LAWS]>,
    /// What says where they are takes under each law, by how many of eight levels are not zero.
    eight_prices: Vec<[u16; LAWS]>,
    alphabets: Vec<OnceLock<Alphabets>>,
}

/// Symbols of one law.
#[derive(Debug)]
pub(super) struct Alphabets {
    /// Signed levels by their classes; without signs and zero where there are eights, and nothing
    /// where those are all alike.
    pub(super) levels: Option<Box<Alphabet>>,
    /// Where zeros prevail, which of eight levels are not zero; and the bytes of which this
    /// escaped, all alike.
    pub(super) eights: Option<(Box<Alphabet>, Box<Alphabet>)>,
    /// How many lower bits stand behind a size, or [`ESCAPES`].
    pub(super) lower: [u8; ESCAPE as usize + 1],
}

/// A size that is an escape, as all from 128 on are.
pub(super) const ESCAPES: u8 = 128;

impl Alphabets {
    /// How many lower bits stand behind this size, or [`ESCAPES`].
    #[inline(always)]
    pub(super) fn lower(&self, size: u32) -> u8 {
        self.lower[size.min(u32::from(ESCAPE)) as usize]
    }
}

/// The frequencies of one law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frequencies {
    /// Of one symbol of each class, which has a sign except where levels are sparse; 0 if it has
    /// none of its own.
    classes: [u16; CLASSES],
    escape: u16,
    /// Of each way in which so many of eight levels are not zero, if they are sparse.
    eights: [u16; EIGHT],
    escaped_eight: u16,
}

/// What a message takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// All symbols, in 256ths of a bit.
    pub(super) symbols: u64,
    /// What stands behind them, in bits: lower bits, escapes, signs that are no part of a symbol.
    pub(super) raw: u64,
}

impl Laws {
    pub(super) fn new(levels: Levels) -> Self {
        let thresholds = Thresholds::new();
        let mut frequencies = Vec::with_capacity(LAWS);
        let mut beta = 2.0;
        for _ in 0..SHAPES {
            let shape = Shape::new(beta);
            for share in 0..SHARES {
                let zero = share as f64 / SHARES as f64;
                frequencies.push(Frequencies::new(levels, &shape.law(levels, &thresholds, zero)));
            }
            beta *= SLIMMER;
        }
        let mut class_prices = vec![[0; LAWS]; CLASSES + 1];
        let mut eight_prices = vec![[0; LAWS]; EIGHT + 1];
        for (law, frequencies) in frequencies.iter().enumerate() {
            for (class, prices) in class_prices.iter_mut().enumerate() {
                prices[law] = frequencies.class_price(&levels, class);
            }
            for (count, prices) in eight_prices.iter_mut().enumerate() {
                prices[law] = if levels.sparse { frequencies.eight_price(count) } else { 0 };
            }
        }
        let alphabets = frequencies.iter().map(|_| OnceLock::new()).collect();
        Laws { levels, frequencies, class_prices, eight_prices, alphabets }
    }

    /// The law by which levels with these counts are shortest, the first among equals.
    pub(super) fn shortest(&self, counts: &Counts) -> u8 {
        let mut totals = [0; LAWS];
        add_products(&counts.classes, &self.class_prices, &mut totals);
        if self.levels.sparse {
            add_products(&counts.eights, &self.eight_prices, &mut totals);
        }
        let least = totals.iter().copied().min().unwrap_or(0);
        totals.iter().position(|total| *total == least).unwrap_or(0) as u8
    }

    /// What levels with these counts take by a law.
    pub(super) fn cost(&self, law: u8, counts: &Counts) -> Cost {
        let law = usize::from(law);
        let sum = |counts: &[u64], prices: &[[u16; LAWS]]| -> u64 {
            counts.iter().zip(prices).map(|(count, prices)| count * u64::from(prices[law])).sum()
        };
        let eights = if self.levels.sparse { sum(&counts.eights, &self.eight_prices) } else { 0 };
        let all = sum(&counts.classes, &self.class_prices) + eights;
        let raw = self.frequencies[law].raw(&self.levels, counts);
        Cost { symbols: all + 256 * counts.gamma - 256 * raw, raw }
    }

    /// Whether which of eight are not zero is an escape, if so many are not.
    pub(super) fn eight_escapes(&self, law: u8, count: u32) -> bool {
        self.frequencies[usize::from(law)].eight(count as usize) == 0
    }

    pub(super) fn alphabets(&self, law: u8) -> &Alphabets {
        self.alphabets[usize::from(law)].get_or_init(|| {
            let frequencies = &self.frequencies[usize::from(law)];
            if self.levels.sparse {
                frequencies.sparse(self.levels.alike())
            } else {
                frequencies.dense()
            }
        })
    }
}

wide! {
    /// Add what levels of these counts take under each law. A count fits 32 bits.
    fn add_products<'a>(
        counts: &'a [u64],
        prices: &'a [[u16; LAWS]],
        totals: &'a mut [u64; LAWS],
    ) -> () {
        const ABREAST: usize = 32; // in registers
        for (block, totals) in totals.as_chunks_mut::<ABREAST>().0.iter_mut().enumerate() {
            let mut sums = *totals;
            for (count, prices) in counts.iter().zip(prices) {
                if *count == 0 {
                    continue;
                }
                let prices = &prices.as_chunks::<ABREAST>().0[block];
                for lane in 0..ABREAST {
                    sums[lane] += u64::from(*count as u32) * u64::from(prices[lane]);
                }
            }
            *totals = sums;
        }
    }
}

impl Frequencies {
    /// From the probabilities of the classes.
    fn new(levels: Levels, law: &[f64; CLASSES + 1]) -> Self {
        let whole = f64::from(WHOLE);
        let mut frequencies =
            Frequencies { classes: [0; CLASSES], escape: 0, eights: [0; EIGHT], escaped_eight: 0 };
        // A class has two symbols, one a sign; or one, of what is not zero.
        let (least, signs, unit) =
            if levels.sparse { (1, 1, whole / (1.0 - law[0]).max(1e-9)) } else { (0, 2, whole) };
        let top = class(levels.max).min(CLASSES - 1);
        let (mut rare, mut escapes) = (law[BEYOND] * unit, levels.max >= first(BEYOND));
        // From the rarest on, each with what rounding left over, so that in the end all is given
        // to the commonest.
        let (mut left, mut over) = (WHOLE, 0.0);
        for class in (least + 1..=top).rev() {
            let wanted = law[class] * unit / f64::from(signs);
            if wanted < RARE {
                (rare, escapes) = (rare + law[class] * unit, true);
                continue;
            }
            let given = (wanted + over).round().max(1.0);
            over += wanted - given;
            frequencies.classes[class] = given as u16;
            left = left.saturating_sub(signs * given as u32);
        }
        if escapes {
            frequencies.escape = rare.round().max(1.0) as u16;
            left = left.saturating_sub(u32::from(frequencies.escape));
        }
        frequencies.classes[least] = left as u16;
        if levels.sparse {
            frequencies.count_eights(1.0 - law[0]);
        }
        frequencies
    }

    /// Each of eight levels is not zero with this probability.
    fn count_eights(&mut self, nonzero: f64) {
        let (mut probability, mut ways) = (1.0, 1.0);
        for _ in 0..EIGHT {
            probability *= 1.0 - nonzero;
        }
        let (mut rare, mut left) = (0.0, WHOLE);
        for count in 0..=EIGHT {
            let wanted = probability * f64::from(WHOLE);
            if count == EIGHT || (count > 0 && wanted < RARE) {
                rare += ways * wanted;
            } else if count > 0 {
                let given = wanted.round().max(1.0);
                self.eights[count] = given as u16;
                left = left.saturating_sub((ways * given) as u32);
            }
            probability *= nonzero / (1.0 - nonzero);
            ways = ways * (EIGHT - count) as f64 / (count + 1) as f64;
        }
        self.escaped_eight = rare.round().max(1.0) as u16;
        self.eights[0] = left.saturating_sub(u32::from(self.escaped_eight)) as u16;
    }

    fn class(&self, class: usize) -> u16 {
        self.classes.get(class).copied().unwrap_or(0)
    }

    fn eight(&self, count: usize) -> u16 {
        self.eights.get(count).copied().unwrap_or(0)
    }

    fn class_price(&self, levels: &Levels, class: usize) -> u16 {
        let own = self.class(class) > 0;
        let symbol = match (levels.sparse && class == 0, own, self.escape) {
            (true, ..) => return 0, // the eights say so
            (_, true, _) => price(u32::from(self.class(class))),
            (_, false, 0) => return 0, // there are none
            (_, false, escape) => price(u32::from(escape)),
        };
        let sign = u32::from(levels.sparse || !own);
        symbol + 256 * (raw_bits(class, own) + sign) as u16
    }

    fn eight_price(&self, count: usize) -> u16 {
        match self.eight(count) {
            0 => price(u32::from(self.escaped_eight)) + price(WHOLE / 256),
            f => price(u32::from(f)),
        }
    }

    /// The bits behind the symbols of levels with these counts.
    fn raw(&self, levels: &Levels, counts: &Counts) -> u64 {
        let mut bits = counts.gamma;
        for (class, count) in counts.classes.iter().enumerate() {
            if !(levels.sparse && class == 0) {
                let own = self.class(class) > 0;
                let sign = u32::from(levels.sparse || !own);
                bits += count * u64::from(raw_bits(class, own) + sign);
            }
        }
        bits
    }

    fn lower(&self) -> [u8; ESCAPE as usize + 1] {
        std::array::from_fn(|size| {
            let class = class(size as u32);
            if self.class(class) == 0 { ESCAPES } else { lower_bits(class) as u8 }
        })
    }

    fn dense(&self) -> Alphabets {
        let signed = (1..CLASSES).flat_map(|class| {
            let (level, f) = (first(class) as u8, u32::from(self.classes[class]));
            [(level, f), (level.wrapping_neg(), f)]
        });
        let all = [(0, u32::from(self.classes[0])), (ESCAPE, u32::from(self.escape))];
        let levels = Alphabet::new(all.into_iter().chain(signed), |byte| {
            let class = class(u32::from((byte as i8).unsigned_abs()));
            match (self.class(class), first(class) as u8) {
                (0, _) => ESCAPE,
                (_, size) if (byte as i8) < 0 => size.wrapping_neg(),
                (_, size) => size,
            }
        });
        Alphabets { levels: Some(levels), eights: None, lower: self.lower() }
    }

    fn sparse(&self, alike: bool) -> Alphabets {
        let sizes = (1..CLASSES).map(|class| (first(class) as u8, u32::from(self.classes[class])));
        let all = sizes.chain([(ESCAPE, u32::from(self.escape))]);
        let levels = (!alike).then(|| {
            Alphabet::new(all, |byte| {
                let class = class(u32::from(byte));
                if self.class(class) == 0 { ESCAPE } else { first(class) as u8 }
            })
        });
        let f = |byte: u8| u32::from(self.eight(byte.count_ones() as usize));
        let eights = (0..ESCAPED_EIGHT).map(|byte| (byte, f(byte)));
        let all = eights.chain([(ESCAPED_EIGHT, u32::from(self.escaped_eight))]);
        let eights = Alphabet::new(all, |byte| if f(byte) == 0 { ESCAPED_EIGHT } else { byte });
        let bytes = Alphabet::new((0..=255).map(|byte| (byte, WHOLE / 256)), |byte| byte);
        Alphabets { levels, eights: Some((eights, bytes)), lower: self.lower() }
    }
}

/// Where classes begin: their least sizes and the sizes before these, with logarithms.
struct Thresholds([[(f64, f64); 2]; CLASSES + 1]);

impl Thresholds {
    fn new() -> Self {
        let with_logarithm = |size: u32| {
            let size = f64::from(size);
            (size, if size > 0.0 { ln(size) } else { 0.0 })
        };
        Thresholds(std::array::from_fn(|class| {
            let size = first(class);
            [size, size.saturating_sub(1)].map(with_logarithm)
        }))
    }
}

/// The law of `|x|` with the density `exp(-x^beta)`, times a constant.
struct Shape {
    beta: f64,
    /// It is even between edges, which are evenly spread in `ln x^beta`, but for the first, 0.
    edges: [f64; CELLS + 1],
    /// The probability of each cell.
    masses: [f64; CELLS],
    /// The probability below each edge, and the mean over what is below it.
    below: [(f64, f64); CELLS + 1],
    /// The root of the mean square.
    deviation: f64,
}

const CELLS: usize = 256;
/// Logarithms of the least and the largest `x^beta`: 1/1000 and 80.
const LOWEST: f64 = -6.907_755_278_982_137;
const HIGHEST: f64 = 4.382_026_634_673_881;
const CELL: f64 = (HIGHEST - LOWEST) / CELLS as f64;

impl Shape {
    fn new(beta: f64) -> Self {
        let (mut edges, mut masses) = ([0.0; CELLS + 1], [0.0; CELLS]);
        let (mut below, mut squares, mut total) = ([(0.0, 0.0); CELLS + 1], 0.0, 0.0);
        for cell in 1..=CELLS {
            edges[cell] = exp((LOWEST + CELL * cell as f64) / beta);
        }
        for cell in 0..CELLS {
            let middle = LOWEST + CELL * (cell as f64 + 0.5);
            let (lower, upper) = (edges[cell], edges[cell + 1]);
            masses[cell] = exp(-exp(middle)) * (upper - lower);
            total += masses[cell];
            squares += masses[cell] * (lower * lower + lower * upper + upper * upper) / 3.0;
        }
        for cell in 0..CELLS {
            masses[cell] /= total;
            let (probability, mean) = below[cell];
            let middle = 0.5 * (edges[cell] + edges[cell + 1]);
            below[cell + 1] = (probability + masses[cell], mean + masses[cell] * middle);
        }
        Shape { beta, edges, masses, below, deviation: (squares / total).sqrt() }
    }

    /// The probabilities of the classes, where numbers of this shape that are not zero with
    /// probability `1 - zero` are rounded at random to levels.
    fn law(&self, levels: Levels, thresholds: &Thresholds, zero: f64) -> [f64; CLASSES + 1] {
        // levels that are 1 in the shape's own units
        let unit = levels.deviation / ((1.0 - zero).sqrt() * self.deviation);
        let (per_level, shorter) = (1.0 / unit, ln(unit));
        let mut reached = [1.0; CLASSES + 2];
        reached[CLASSES + 1] = 0.0;
        for class in 1..=CLASSES {
            // the mean of the probability below y, over y from the size before to the size
            let [upper, lower] = thresholds.0[class]
                .map(|(size, logarithm)| self.integral(size * per_level, logarithm - shorter));
            let below = unit * (upper - lower);
            reached[class] = ((1.0 - zero) * (1.0 - below)).clamp(0.0, reached[class - 1]);
        }
        std::array::from_fn(|class| reached[class] - reached[class + 1])
    }

    /// In which cell `y` lies, if any.
    fn cell(&self, y: f64, logarithm: f64) -> Option<usize> {
        if y < self.edges[1] {
            return Some(0);
        }
        let cell = ((self.beta * logarithm - LOWEST) / CELL) as usize;
        (cell < CELLS).then_some(cell)
    }

    /// The integral of the probability below, from 0 to `y`.
    fn integral(&self, y: f64, logarithm: f64) -> f64 {
        let Some(cell) = self.cell(y, logarithm) else { return y - self.below[CELLS].1 };
        let ((probability, mean), inside) = (self.below[cell], y - self.edges[cell]);
        let width = self.edges[cell + 1] - self.edges[cell];
        y * probability - mean + self.masses[cell] * inside * inside / (2.0 * width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels() -> impl Iterator<Item = Levels> {
        let deviations = [1e-3, 0.02, 0.1, 0.249, 0.25, 0.6, 1.0, 2.9, 8.0, 15.9];
        deviations.into_iter().flat_map(|deviation: f64| {
            [1, 2, 16, 127, 128, 1 << 20, (1 << 30) - 1].into_iter().map(move |max| {
                let deviation = deviation.min(f64::from(max));
                Levels { deviation, max, sparse: deviation < 0.25 }
            })
        })
    }

    /// Every size that may occur has a symbol or the escape, and frequencies fill the whole.
    #[test]
    fn frequencies_are_complete() {
        for levels in channels() {
            let laws = Laws::new(levels);
            for (law, f) in laws.frequencies.iter().enumerate() {
                let least = usize::from(levels.sparse);
                let classes: u32 = f.classes[least + 1..].iter().map(|f| u32::from(*f)).sum();
                let signs = if levels.sparse { 1 } else { 2 };
                let sum = u32::from(f.classes[least]) + signs * classes + u32::from(f.escape);
                assert_eq!(sum, WHOLE, "{levels:?} {law}: {f:?}");
                assert!(f.classes[least] > 0, "{levels:?} {law}: {f:?}");
                for class in least..=class(levels.max) {
                    assert!(f.class(class) > 0 || f.escape > 0, "{levels:?} {law}: {f:?}");
                }
                if levels.sparse {
                    let ways = [1, 8, 28, 56, 70, 56, 28, 8];
                    let eights = ways.iter().zip(f.eights).map(|(ways, f)| ways * u32::from(f));
                    assert_eq!(eights.sum::<u32>() + u32::from(f.escaped_eight), WHOLE);
                    assert!(f.eights[0] > 0 && f.escaped_eight > 0, "{levels:?} {law}: {f:?}");
                }
            }
        }
    }

    /// The first shape is the normal law, and every law has the mean square that is known.
    #[test]
    fn laws_are_those_described() {
        for deviation in [0.3, 1.0, 2.9] {
            let levels = Levels { deviation, max: 1 << 20, sparse: false };
            let thresholds = Thresholds::new();
            let law = Shape::new(2.0).law(levels, &thresholds, 0.0);
            // P(level = 0) is the integral of (1 - |x|) over the normal density, by midpoints.
            let density = |x: f64| (-0.5 * (x / deviation).powi(2)).exp();
            let n = 20_000i32;
            let middles = || (0..20 * n).map(|k| (f64::from(k) + 0.5) / f64::from(n));
            let zero: f64 = middles().take(n as usize).map(|x| (1.0 - x) * density(x)).sum();
            let all: f64 = middles().map(density).sum();
            assert!((law[0] - zero / all).abs() < 2e-4, "{deviation}: {} {}", law[0], zero / all);
            for (beta, share) in [(2.0, 0.0f64), (2.0, 0.5), (1.0, 0.25), (0.6, 0.0)] {
                let shape = Shape::new(beta);
                let unit = deviation / ((1.0 - share).sqrt() * shape.deviation);
                // E |l| = E |x|, whatever the rounding; from the tail of the law, with all sizes
                // below 8 and classes beyond them small.
                let law = shape.law(levels, &thresholds, share);
                let expected = (1.0 - share) * shape.below[CELLS].1 * unit;
                let mean: f64 = (0..CLASSES)
                    .map(|c| {
                        let middle = 0.5 * f64::from(first(c) + first(c + 1) - 1);
                        law[c] * middle
                    })
                    .sum();
                assert!((mean / expected - 1.0).abs() < 0.01, "{beta} {share}: {mean} {expected}");
            }
        }
    }
}
