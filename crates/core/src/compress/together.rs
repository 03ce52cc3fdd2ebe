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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::{CodeChoice, Compressor, Message};
    use crate::rng::{ClientId, Purpose, SERVER, Seed};

    /// Bits, numbers and all: what can be made together is what it is alone, and what cannot is
    /// left as it was. Of 50 words of 16 bits some do not decide in one vector of 650.
    #[test]
    fn vectors_together_become_what_they_become_alone() {
        for (text, code, d) in [
            ("qsgd(16)", CodeChoice::Auto, 50),
            ("qsgd(16)", CodeChoice::Elias, 16),
            ("qsgd(300)", CodeChoice::Auto, 7),
            ("qsgd(1)", CodeChoice::Auto, 128),
        ] {
            let compressor: Compressor = text.parse().unwrap();
            let channel = Channel::new(compressor, code, d).unwrap();
            let each = channel.words_together().unwrap();
            let (mut message, mut left_alone) = (Message::new(), 0);
            for round in 0..100 {
                let stream = |k| Seed::new(1).stream(Purpose::Compress, ClientId(k), round);
                let mut room = Together { vectors: vec![0.0; 40 * d], ..Together::default() };
                Seed::new(2).stream(Purpose::Data, SERVER, round).normals(&mut room.vectors);
                room.vectors[3] = f64::NAN;
                room.vectors[d..2 * d].fill(0.0);
                room.vectors[2 * d] = 1e300;
                let before = room.vectors.clone();
                for k in 0..40 {
                    room.words.extend_from_slice(stream(k).at_most(each));
                }
                channel.compress_together(&mut room);
                for (k, (found, v)) in room.vectors.chunks(d).zip(before.chunks(d)).enumerate() {
                    if room.left[k] {
                        assert_eq!(found[0].to_bits(), v[0].to_bits());
                        left_alone += usize::from(k > 2);
                        continue;
                    }
                    let mut alone = vec![0.0; d];
                    let stream = &mut stream(k as u32);
                    channel.quantise(v, stream, &mut message).unwrap();
                    message.dequantise(stream, &mut alone).unwrap();
                    assert_eq!(found, alone, "{text}: {k} in round {round}");
                    assert_eq!(room.bits[k], channel.length_bits(&message).div_ceil(8) * 8);
                }
                assert!(room.left[..3] == [true; 3]);
            }
            assert!(left_alone < 400, "{text}: {left_alone} of 3700");
        }
    }

    #[test]
    fn what_is_long_or_otherwise_made_is_made_alone() {
        for (text, d) in
            [("qsgd(16)", 129), ("natural", 50), ("max_norm(16)", 50), ("qsgd(40000)", 50)]
        {
            let compressor: Compressor = text.parse().unwrap();
            let channel = Channel::new(compressor, CodeChoice::Auto, d).unwrap();
            assert_eq!(channel.words_together(), None, "{text}");
        }
    }
}
