//! Push symbols onto states and pull them off again (rANS, Duda 2013): a symbol of frequency `f` in
//! 4096 makes a state `4096/f` times as large, and so takes its `log2` in bits.
//!
//! A state is a number in `[2^31, 2^63)`; where it would become larger, its low 32 bits leave as a
//! word. Pushing and pulling are each other's inverse, word by word, so that states and words have
//! one reading and symbols one writing. Several states take symbols in turns, which a processor
//! works on side by side. Since `x/f >= 2^19` in every step, a state grows by no more than
//! `4096/f (1 + 2^-19)`: lengths that are promised beforehand can be kept ([`EXCESS`]).

use super::CodeError;

/// Frequencies have so many bits.
const SCALE: u32 = 12;
/// What frequencies add up to.
pub(super) const WHOLE: u32 = 1 << SCALE;
/// The bits of a state that is as small as it may be, without the leading one.
pub(super) const LEAST: u32 = 31;
/// So many symbols together take less than one 256th of a bit more than the sum of their prices:
/// `log2(1 + 2^-19)` is below 2^-18 bits.
pub(super) const EXCESS: u64 = 1 << 10;
/// The most states: more do not fit the registers of a processor, and no longer help.
pub(super) const MOST: usize = 4;

/// What pushing one symbol does to a state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Step {
    /// From here on the state gives a word away first.
    limit: u64,
    /// Division by the frequency, as a product (Granlund and Montgomery 1994).
    reciprocal: u64,
    bias: u32,
    complement: u16,
    shift: u8,
}

impl Step {
    /// The symbol of frequency `f >= 1` in the slots from `start` on.
    fn new(start: u32, f: u32) -> Self {
        let (limit, complement) = (u64::from(f) << (63 - SCALE), (WHOLE - f) as u16);
        if f == 1 {
            // x - 1 is the quotient that the largest reciprocal gives: the bias makes up for it
            let bias = start + WHOLE - 1;
            return Step { limit, reciprocal: u64::MAX, bias, complement, shift: 0 };
        }
        let shift = (f - 1).ilog2(); // 2^shift < f <= 2^(shift + 1)
        let reciprocal = (1u128 << (64 + shift)).div_ceil(u128::from(f)) as u64;
        Step { limit, reciprocal, bias: start, complement, shift: shift as u8 }
    }

    /// Give the low bits away if they do not fit, and the state after the push.
    #[inline(always)]
    fn push(&self, state: u64) -> (bool, u64) {
        let full = state >= self.limit;
        let state = if full { state >> 32 } else { state };
        let quotient =
            ((u128::from(state) * u128::from(self.reciprocal)) >> 64) as u64 >> self.shift;
        (full, state + u64::from(self.bias) + quotient * u64::from(self.complement))
    }
}

/// The symbols of a law, each a byte, for either direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Alphabet {
    /// By symbol; several bytes may stand for the same.
    steps: [Step; 256],
    /// By the low bits of a state: symbol, frequency (12 bits) and offset within the symbol.
    slots: [u32; WHOLE as usize],
}

impl Alphabet {
    /// Symbols with their frequencies, each below 4096 and all together 4096. Bytes that are none
    /// of them are pushed as `alias` says.
    pub(super) fn new(
        frequencies: impl Iterator<Item = (u8, u32)>,
        alias: impl Fn(u8) -> u8,
    ) -> Box<Self> {
        let mut alphabet =
            Box::new(Alphabet { steps: [Step::default(); 256], slots: [0; WHOLE as usize] });
        let mut start = 0;
        for (symbol, f) in frequencies.filter(|(_, f)| *f > 0) {
            alphabet.steps[usize::from(symbol)] = Step::new(start, f);
            for offset in 0..f {
                alphabet.slots[(start + offset) as usize] =
                    u32::from(symbol) | f << 8 | offset << 20;
            }
            start += f;
        }
        debug_assert_eq!(start, WHOLE);
        for byte in 0..=255 {
            alphabet.steps[usize::from(byte)] = alphabet.steps[usize::from(alias(byte))];
        }
        alphabet
    }

    /// Push symbols, the last one first, so that they are pulled in order. Words go to the end of
    /// the first `at` of `words`, of which there must be `W` more than needed; the place of the
    /// first of them.
    #[inline(always)]
    pub(super) fn push<const W: usize, T: Copy>(
        &self,
        symbols: &[T],
        byte: impl Fn(T) -> u8,
        states: &mut [u64; W],
        words: &mut [u32],
        mut at: usize,
    ) -> usize {
        let (whole, rest) = symbols.as_chunks::<W>();
        for (lane, symbol) in rest.iter().enumerate().rev() {
            let (full, state) = self.steps[usize::from(byte(*symbol))].push(states[lane]);
            if full {
                at -= 1;
                words[at] = states[lane] as u32;
            }
            states[lane] = state;
        }
        let mut own = *states; // in registers
        for group in whole.iter().rev() {
            // `W` places are there by the promise above.
            let Some(room) = words[..at].last_chunk_mut::<W>() else { return at };
            let mut given = 0;
            for lane in (0..W).rev() {
                let (full, state) = self.steps[usize::from(byte(group[lane]))].push(own[lane]);
                room[(W - 1 - given) % W] = own[lane] as u32; // overwritten unless it is given
                given += usize::from(full);
                own[lane] = state;
            }
            at -= given;
        }
        *states = own;
        at
    }

    /// Pull symbols; the place of the first word that is left. Behind the words that may be read
    /// there must be `W` more.
    #[inline(always)]
    pub(super) fn pull<const W: usize, T>(
        &self,
        symbols: &mut [T],
        symbol: impl Fn(u8) -> T,
        states: &mut [u64; W],
        words: &[u32],
        mut at: usize,
    ) -> Result<usize, CodeError> {
        let (whole, rest) = symbols.as_chunks_mut::<W>();
        let mut own = *states; // in registers
        for group in whole {
            let Some(next) = words.get(at..).and_then(|words| words.first_chunk::<W>()) else {
                return Err(CodeError::Truncated);
            };
            let mut taken = 0;
            for lane in 0..W {
                let (byte, state) = self.pulled(own[lane]);
                group[lane] = symbol(byte);
                let short = state < 1 << LEAST;
                let longer = state << 32 | u64::from(next[taken % W]);
                own[lane] = if short { longer } else { state };
                taken += usize::from(short);
            }
            at += taken;
        }
        *states = own;
        for (lane, place) in rest.iter_mut().enumerate() {
            let (byte, state) = self.pulled(states[lane]);
            *place = symbol(byte);
            states[lane] = state;
            if state < 1 << LEAST {
                let word = words.get(at).ok_or(CodeError::Truncated)?;
                states[lane] = state << 32 | u64::from(*word);
                at += 1;
            }
        }
        Ok(at)
    }

    /// The symbol on top of a state, and what is below.
    #[inline(always)]
    fn pulled(&self, state: u64) -> (u8, u64) {
        let slot = self.slots[(state % u64::from(WHOLE)) as usize];
        (slot as u8, u64::from(slot >> 8 & 0xFFF) * (state >> SCALE) + u64::from(slot >> 20))
    }
}

/// What a symbol of frequency `f` takes, in 256ths of a bit, rounded up: `256 (12 - log2 f)`.
pub(super) fn price(f: u32) -> u16 {
    PRICES[f as usize]
}

static PRICES: [u16; WHOLE as usize + 1] = {
    let mut prices = [0; WHOLE as usize + 1];
    let mut f = 1;
    while f <= WHOLE {
        // The bits of log2 f, one square a bit: what is cut off makes it smaller, and the price
        // larger.
        let (whole, mut rest) = (f.ilog2(), (f as u64) << (31 - f.ilog2()));
        let (mut logarithm, mut bit) = (whole, 0);
        while bit < 8 {
            let square = (rest * rest) >> 31;
            logarithm = 2 * logarithm + (square >> 32) as u32;
            rest = square >> (square >> 32);
            bit += 1;
        }
        prices[f as usize] = (256 * SCALE - logarithm) as u16;
        f += 1;
    }
    prices
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    #[test]
    fn prices_are_logarithms_rounded_up() {
        for f in 1..=WHOLE {
            let exact = 256.0 * (12.0 - f64::from(f).log2());
            let over = f64::from(price(f)) - exact;
            assert!((0.0..1.0).contains(&over), "{f}: {over}");
        }
    }

    /// Division by reciprocals is division, at both ends of what a state may be.
    #[test]
    fn a_push_is_the_definition() {
        for f in (1..WHOLE).filter(|f| f % 7 == 1 || f.is_power_of_two() || *f == WHOLE - 1) {
            for start in [0, 1, WHOLE - f] {
                let step = Step::new(start, f);
                let least = u64::from(f) << (LEAST - SCALE);
                let most = (u64::from(f) << (63 - SCALE)) - 1;
                for x in [least, least + 1, least + u64::from(f) - 1, most / 3, most - 1, most] {
                    let q = x / u64::from(f);
                    let expected = q * u64::from(WHOLE) + u64::from(start) + x % u64::from(f);
                    if x >= 1 << LEAST {
                        assert_eq!(step.push(x), (false, expected), "{f} {start} {x}");
                    }
                    let before = x << 32 | 77;
                    if x < 1 << 31 {
                        assert_eq!(step.push(before), (true, expected), "{f} {start} {before}");
                    }
                }
            }
        }
    }

    fn there_and_back<const W: usize>(alphabet: &Alphabet, symbols: &[u8], bits: f64) {
        let begin: [u64; W] = std::array::from_fn(|lane| (1 << LEAST) + 12_345 * lane as u64);
        let mut words = vec![0; symbols.len() + W];
        let (mut states, end) = (begin, symbols.len() + W);
        let at = alphabet.push(symbols, |byte| byte, &mut states, &mut words, end);
        let used = 32.0 * (end - at) as f64
            + states.iter().zip(begin).map(|(x, x0)| (*x as f64 / x0 as f64).log2()).sum::<f64>();
        let allowed = bits + symbols.len() as f64 / (256 * EXCESS) as f64;
        assert!(used <= allowed && used >= bits - 1e-4 * symbols.len() as f64, "{used} {bits}");
        words.extend([0; W]);
        let (mut back, mut seen) = (states, vec![0; symbols.len()]);
        let stop = alphabet.pull(&mut seen, |byte| byte, &mut back, &words, at).unwrap();
        assert_eq!((stop, back), (end, begin));
        assert_eq!(seen, symbols);
    }

    /// Symbols come back with the states, and their bits are those of their frequencies and no more
    /// than promised, be they as likely as their frequencies say or not.
    #[test]
    fn what_is_pushed_is_pulled() {
        let laws: [&[u32]; 4] = [&[1, 4095], &[2048, 2048], &[4000, 90, 5, 1], &[1000, 1500, 1596]];
        for law in laws {
            let listed = |symbol: usize| (symbol as u8, law[symbol]);
            let alphabet = Alphabet::new((0..law.len()).map(listed), |byte| byte);
            for length in [0, 1, 3, 8, 9, 1000, 4099] {
                for likely in [true, false] {
                    let mut stream = Seed::new(1).stream(Purpose::Data, SERVER, length);
                    let symbols: Vec<u8> = (0..length)
                        .map(|_| {
                            let slot = stream.below(WHOLE);
                            let by_law = alphabet.slots[slot as usize] as u8;
                            if likely { by_law } else { (slot as usize % law.len()) as u8 }
                        })
                        .collect();
                    let bits: f64 = symbols
                        .iter()
                        .map(|symbol| 12.0 - f64::from(law[usize::from(*symbol)]).log2())
                        .sum();
                    there_and_back::<1>(&alphabet, &symbols, bits);
                    there_and_back::<4>(&alphabet, &symbols, bits);
                    there_and_back::<8>(&alphabet, &symbols, bits);
                }
            }
        }
    }
}
