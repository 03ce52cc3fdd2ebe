//! Hide a client's levels behind masks that cancel in the sum of all.
//!
//! Every two clients share a secret. From it, the run, the chain, the round and the cohort both
//! derive one key (HKDF-SHA256) and from that one stream (ChaCha20); the client with the lower
//! number adds it, the other one subtracts it, modulo `2^bits`. What one client sends is uniform to
//! whoever lacks one of its secrets; the sum of all that the cohort sends is that of the levels, to
//! the last bit. There is no way to the sum of a part of the cohort: a round in which one client is
//! missing has no sum.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::rng::ClientId;

/// What HKDF is salted with, so that no key made for something else is one of these.
const SALT: &[u8] = b"consilience secure sum 1";

/// A secret that two clients share and nobody else has.
pub type PairSecret = [u8; 32];

/// The masks of one client in one chain of a run.
pub struct Masks {
    own: ClientId,
    /// The others of the cohort, in ascending order, with what is shared with each.
    pairs: Vec<Pair>,
    /// What names the run, the chain and the cohort.
    place: Vec<u8>,
}

struct Pair {
    with: ClientId,
    secret: PairSecret,
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl ZeroizeOnDrop for Pair {}

impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Masks({:?}, secret)", self.own)
    }
}

impl Masks {
    /// The masks of a client, by what it shares with each of the others: everybody is asked in
    /// every round. `None` if nobody is named, somebody twice or itself, or a secret is all zeros.
    pub fn new(
        own: ClientId,
        shared: &[(ClientId, PairSecret)],
        run: &[u8],
        chain: u32,
    ) -> Option<Masks> {
        let mut pairs: Vec<Pair> =
            shared.iter().map(|(with, secret)| Pair { with: *with, secret: *secret }).collect();
        pairs.sort_by_key(|pair| pair.with);
        let twice = pairs.windows(2).any(|two| two[0].with == two[1].with);
        let bad = |pair: &Pair| pair.with == own || pair.secret == [0; 32];
        if pairs.is_empty() || twice || pairs.iter().any(bad) {
            return None;
        }
        let mut cohort: Vec<ClientId> = pairs.iter().map(|pair| pair.with).collect();
        cohort.push(own);
        cohort.sort();
        let mut place = (run.len() as u64).to_le_bytes().to_vec();
        place.extend_from_slice(run);
        place.extend_from_slice(&chain.to_le_bytes());
        cohort.iter().for_each(|id| place.extend_from_slice(&id.0.to_le_bytes()));
        Some(Masks { own, pairs, place })
    }

    /// Mask the levels of a round, which are whole numbers below `2^bits`.
    pub(super) fn add(&self, round: u64, bits: u32, levels: &mut [f64]) {
        let low = u32::MAX >> (32 - bits);
        let mut words = vec![0u32; levels.len()];
        for Pair { with, secret } in &self.pairs {
            let mut key = [0; 32];
            let info = [&round.to_le_bytes()[..], &self.place];
            // 32 bytes are within what HKDF can give
            if Hkdf::<Sha256>::new(Some(SALT), secret).expand_multi_info(&info, &mut key).is_err() {
                unreachable!("one block of output");
            }
            let mut stream = ChaCha20Rng::from_seed(key);
            key.zeroize();
            for word in &mut words {
                let mask = stream.next_u32();
                // who is who is no secret
                *word = if self.own < *with {
                    word.wrapping_add(mask)
                } else {
                    word.wrapping_sub(mask)
                };
            }
        }
        for (level, word) in levels.iter_mut().zip(&words) {
            *level = f64::from((*level as u32).wrapping_add(*word) & low);
        }
        words.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(a: u32, b: u32) -> PairSecret {
        let mut bytes = [7; 32];
        (bytes[0], bytes[1]) = (a.min(b) as u8, a.max(b) as u8);
        bytes
    }

    fn masks(own: u32, of: u32, run: &[u8], chain: u32) -> Masks {
        let others: Vec<_> =
            (0..of).filter(|i| *i != own).map(|i| (ClientId(i), secret(own, i))).collect();
        Masks::new(ClientId(own), &others, run, chain).unwrap()
    }

    #[test]
    fn masks_cancel_in_the_sum_of_all_and_in_no_other() {
        for bits in [1, 12, 17, 31] {
            let modulus = f64::from(bits).exp2();
            let levels = |i: u32| -> Vec<f64> {
                (0..50).map(|k| f64::from(i * 7919 + k * 104_729).rem_euclid(modulus)).collect()
            };
            let (mut sum, mut plain) = (vec![0.0; 50], vec![0.0; 50]);
            let mut all_but_one = vec![0.0; 50];
            for i in 0..5 {
                let mut masked = levels(i);
                masks(i, 5, b"run", 2).add(9, bits, &mut masked);
                assert!(masked.iter().all(|v| (0.0..modulus).contains(v) && v.fract() == 0.0));
                for k in 0..50 {
                    sum[k] += masked[k];
                    plain[k] += levels(i)[k];
                    all_but_one[k] += if i == 3 { levels(i)[k] } else { masked[k] };
                }
            }
            let same = |other: &[f64]| {
                (0..50).filter(|k| (other[*k] - plain[*k]).rem_euclid(modulus) == 0.0).count()
            };
            assert_eq!(same(&sum), 50);
            assert!(bits == 1 || same(&all_but_one) < 3);
        }
    }

    /// By another program, from RFC 5869 and RFC 8439: a changed salt, order of fields or byte
    /// order would be another mask.
    #[test]
    fn masks_are_those_of_before() {
        let mut levels = [0.0; 4];
        masks(0, 3, b"run", 0).add(0, 16, &mut levels);
        let first = levels;
        let mut again = [0.0; 4];
        masks(0, 3, b"run", 0).add(0, 16, &mut again);
        assert_eq!(first, again);
        assert_eq!(first, PINNED);
    }

    const PINNED: [f64; 4] = [63378.0, 16334.0, 25824.0, 48502.0];

    #[test]
    fn every_run_chain_round_and_cohort_has_masks_of_its_own() {
        let mask = |of: u32, run: &[u8], chain: u32, round: u64| {
            let mut levels = vec![0.0; 8];
            masks(0, of, run, chain).add(round, 31, &mut levels);
            levels.iter().map(|v| *v as u32).collect::<Vec<_>>()
        };
        let mut all = Vec::new();
        for of in [2, 3, 4] {
            for run in [&b"run"[..], b"run2", b"ru"] {
                for chain in 0..3 {
                    for round in [0, 1, 2, 256, (1 << 55) + 1] {
                        all.push(mask(of, run, chain, round));
                    }
                }
            }
        }
        let n = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), n);
    }

    #[test]
    fn cohorts_that_are_none_are_refused() {
        let new = |others: &[(u32, PairSecret)]| {
            let others: Vec<_> = others.iter().map(|(i, s)| (ClientId(*i), *s)).collect();
            Masks::new(ClientId(1), &others, b"run", 0).is_some()
        };
        assert!(new(&[(0, [1; 32]), (2, [2; 32])]));
        assert!(!new(&[]));
        assert!(!new(&[(0, [1; 32]), (0, [2; 32])]));
        assert!(!new(&[(1, [1; 32])]));
        assert!(!new(&[(0, [0; 32])]), "a secret of a point of small order");
    }
}
