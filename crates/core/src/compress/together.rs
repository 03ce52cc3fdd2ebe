//! Round several short vectors of one channel together, so that one does not wait for the norm of
//! another.

use super::coin;
use super::operator::Quantiser;
use super::{Channel, qsgd};
use crate::simd::wide;

/// Room for some vectors, their random words and what becomes of them.
#[derive(Debug, Default)]
pub(crate) struct Together {
    /// The vectors, one behind the other; then what their receiver sees.
    pub(crate) vectors: Vec<f64>,
    /// Their words, one lot behind the other.
    pub(crate) words: Vec<u32>,
    /// How many bits each takes.
    pub(crate) bits: Vec<u64>,
    /// Those left as they were, which must be compressed alone: words did not decide, or a norm is
    /// out of the ordinary.
    pub(crate) left: Vec<bool>,
    levels: Vec<i32>,
    norms: Vec<f32>,
}

impl Channel {
    /// How many words each of several vectors takes that are compressed together, if they can be.
    pub(crate) fn words_together(&self) -> Option<usize> {
        let plain = self.compressor().is_whole() && !self.compressor().scaled;
        let rounds = self.compressor().operator.shares_of_norm().is_some();
        let short = (1..=coin::AT_ONCE).contains(&self.dimension());
        (plain && rounds && short && self.counts_levels_alone())
            .then(|| coin::words_for(self.dimension()))
    }

    /// Compress as many vectors as there are lots of words: each becomes what it becomes alone, by
    /// the first words of its stream.
    pub(crate) fn compress_together(&self, room: &mut Together) {
        let Together { vectors, words, bits, left, levels, norms } = room;
        let Some(top) = self.compressor().operator.shares_of_norm() else { return };
        let (d, count) = (self.dimension(), vectors.len() / self.dimension().max(1));
        levels.resize(vectors.len(), 0);
        norms.resize(count, 0.0);
        left.resize(count, false);
        bits.resize(count, 0);
        round_all((top, d), vectors, words, levels, (norms, left));
        for (bits, levels) in bits.iter_mut().zip(levels.chunks_exact(d)) {
            *bits = (32 + self.bits_of_levels(levels)).div_ceil(8) * 8;
        }
    }
}

wide! {
    fn round_all<'a>(of: (u32, usize), vectors: &'a mut [f64], words: &'a [u32],
        levels: &'a mut [i32], found: (&'a mut [f32], &'a mut [bool])) -> () {
        let ((top, d), (norms, left)) = (of, found);
        for ((v, norm), left) in vectors.chunks_exact(d).zip(&mut *norms).zip(&mut *left) {
            let ordinary = qsgd::ordinary_norm(v);
            (*norm, *left) = (ordinary.unwrap_or(1.0), ordinary.is_none());
        }
        let each = coin::words_for(d);
        for ((((v, words), levels), norm), left) in vectors
            .chunks_exact_mut(d)
            .zip(words.chunks_exact(each))
            .zip(levels.chunks_exact_mut(d))
            .zip(norms)
            .zip(left)
        {
            *left = *left || !qsgd::round_by_words(top, *norm, v, words, levels);
        }
    }
}
