//! The entropy code is within 2% of the entropy, at 1 to 65,536 levels and 784 to a million
//! coordinates.
//!
//! Two entropies stand beside each other. *Empirical*: of each message's own frequencies. No code
//! can reach it where most levels occur once (s = 65536 at d = 784: it is log2 of 784 and says
//! nothing about the levels), because the receiver does not know the frequencies, and stating them
//! costs more than 2%. *Ideal*: `-log2` of the law that the levels of Gaussian vectors have one by
//! one. The code is held to 2% of the second everywhere, and of the first wherever stating the
//! frequencies costs less than the levels' entropy.
//!
//! Lengths are in bits, without the norm, before the last byte is filled up: that adds 3.5 bits on
//! average, which is 2% at s = 1, d = 784 (168 bits) and less everywhere else.

use consilience_core::compress::code::Code;
use consilience_core::compress::{Channel, CodeChoice, Compressor, Message};
use consilience_core::rng::{Purpose, SERVER, Seed};
use std::collections::BTreeMap;

#[path = "../examples/code_table.rs"]
mod table;

/// Gradients of softmax regression have coordinates of all sizes, and many that are exactly zero.
/// Where there are enough of them for their frequencies to be known, one of 256 laws is as short as
/// those.
#[test]
fn levels_of_gradients_are_within_two_percent() {
    for (d, s) in [(7850, 16), (7850, 64), (7850, 256), (7850, 1024), (61_706, 256)] {
        let channel =
            |code| Channel::new(Compressor::qsgd(s), CodeChoice::Exactly(code), d).expect("valid");
        let (entropy, adaptive) = (channel(Code::Entropy), channel(Code::Adaptive));
        let (mut v, mut message) = (vec![0.0; d], Message::new());
        let (mut least, mut bits, mut learnt) = (0.0, 0.0, 0.0);
        for round in 0..4 {
            Seed::new(8).stream(Purpose::Data, SERVER, round).normals(&mut v);
            for (place, x) in v.iter_mut().enumerate() {
                let share = (place * 7919 % d) as f64 / d as f64;
                *x *= if share < 0.3 { 0.0 } else { (-6.0 * (share - 0.3)).exp() };
            }
            let mut stream = Seed::new(8).stream(Purpose::Compress, SERVER, round);
            entropy.quantise(&v, &mut stream, &mut message).expect("finite");
            let mut counts = BTreeMap::new();
            message.levels().iter().for_each(|level| *counts.entry(*level).or_insert(0.0) += 1.0);
            least -= counts.values().map(|n: &f64| n * (n / d as f64).log2()).sum::<f64>();
            bits += (entropy.length_bits(&message) - 32) as f64;
            learnt += (adaptive.length_bits(&message) - 32) as f64;
        }
        assert!(bits <= 1.02 * least, "s = {s}, d = {d}: {}", bits / least);
        assert!(bits <= 1.015 * learnt, "s = {s}, d = {d}: {}", bits / learnt);
    }
}

#[test]
fn the_entropy_code_is_within_two_percent() {
    let mut beyond_the_empirical = Vec::new();
    for d in [784, 7850, 1_000_000] {
        for s in [1, 2, 4, 16, 256, 65_536] {
            let row = table::measure(s, d);
            assert!(
                row.entropy <= 1.02 * row.ideal,
                "s = {s}, d = {d}: {} against the law's {}",
                row.entropy,
                row.ideal
            );
            if row.entropy > 1.02 * row.empirical {
                beyond_the_empirical.push((s, d));
                // Shown to be out of reach: with the frequencies' statement the empirical entropy
                // is no bound at all.
                assert!(row.empirical + row.statement > 1.02 * row.entropy, "s = {s}, d = {d}");
                assert!(row.ideal > 1.02 * row.empirical, "s = {s}, d = {d}");
            }
            assert!(
                row.entropy < row.best_elias && row.best_elias <= row.elias,
                "s = {s}, d = {d}"
            );
            assert!(
                row.auto <= 1.002 * row.entropy,
                "s = {s}, d = {d}: {} against {}",
                row.auto,
                row.entropy
            ); // huffman, by the choice of a few vectors
            assert!(row.empirical < row.entropy && row.entropy < row.fixed, "s = {s}, d = {d}");
        }
    }
    assert_eq!(beyond_the_empirical, [(65_536, 784), (65_536, 7850)]);
}
