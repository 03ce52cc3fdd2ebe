//! The codes lose nothing, count right, and accept one encoding a message.
#![allow(clippy::unwrap_used)]

use consilience_core::compress::code::{Code, CodeError, Integer, Layout};
use consilience_core::compress::{Channel, CodeChoice, Compressor, Message, rows};
use consilience_core::rng::{ClientId, Purpose, Seed, Stream};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use sha2::{Digest, Sha256};

fn codes() -> Vec<Code> {
    let elias = [Integer::Gamma, Integer::Delta, Integer::Omega].into_iter().flat_map(|integer| {
        [Code::Elias(integer, Layout::Sparse), Code::Elias(integer, Layout::Dense)]
    });
    elias.chain([Code::Fixed, Code::Huffman, Code::Entropy, Code::Adaptive]).collect()
}

/// Those of the registry, and some that are hard on codes.
fn compressors() -> Vec<Compressor> {
    let hard = ["qsgd(3)", "qsgd(4)", "qsgd(5)", "qsgd(16)", "qsgd(256)", "block(qsgd(2), 5)"];
    let listed = rows().flat_map(|row| row.examples);
    listed.chain(&hard).map(|text| text.parse().unwrap()).collect()
}

fn at(seed: u64) -> Stream {
    Seed::new(seed).stream(Purpose::Compress, ClientId(1), 2)
}

/// Vectors of all kinds: dense, mostly zero, wide in scale.
fn vectors() -> impl Strategy<Value = Vec<f64>> {
    let coordinate = prop_oneof![3 => Just(0.0), 3 => -1.0..1.0f64, 1 => -1e20..1e20f64,
        1 => -1e-40..1e-40f64, 1 => Just(1.0)];
    prop_oneof![
        prop::collection::vec(coordinate, 4..60),
        prop::collection::vec(-1.0..1.0f64, 4..200),
        prop::collection::vec(Just(0.0), 4..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000, failure_persistence: None, rng_seed: RngSeed::Fixed(3),
            ..ProptestConfig::default() })]

    /// decode(encode(m)) = m, the length is the count, and the receiver sees the sender's vector.
    #[test]
    fn messages_come_back(v in vectors(), seed: u64) {
        for compressor in compressors() {
            let mut message = Message::new();
            if compressor.quantise(&v, &mut at(seed), &mut message).is_err() {
                continue; // layered(0.01) of 1e20
            }
            for code in codes() {
                let mut bytes = vec![7];
                let bits = code.encode(&message, &mut bytes);
                prop_assert_eq!(bits, code.length_bits(&message));
                prop_assert_eq!(bits.div_ceil(8) as usize, bytes.len() - 1);
                let mut read = Message::new();
                code.decode(&bytes[1..], &compressor, v.len(), &mut read)
                    .map_err(|e| TestCaseError::fail(format!("{compressor} {code}: {e}")))?;
                prop_assert_eq!(&message, &read, "{} {}", compressor, code);
                let (mut sent, mut seen) = (vec![0.0; v.len()], vec![0.0; v.len()]);
                message.dequantise(&mut at(seed), &mut sent).unwrap();
                read.dequantise(&mut at(seed), &mut seen).unwrap();
                prop_assert_eq!(sent, seen);
            }
        }
    }

    /// What a decoder accepts is the encoding of what it says: arbitrary bytes.
    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in prop::collection::vec(any::<u8>(), 0..40),
        d in 1usize..12) {
        for compressor in compressors() {
            for code in codes() {
                check_canonical(code, compressor.clone(), d, &bytes)?;
            }
        }
    }

    /// The same for valid encodings with a bit turned, a byte less or a byte more.
    #[test]
    fn damaged_encodings_are_refused_or_canonical(v in vectors(), seed: u64,
        place: prop::sample::Index, extra: u8) {
        for compressor in compressors() {
            let mut message = Message::new();
            if compressor.quantise(&v, &mut at(seed), &mut message).is_err() {
                continue;
            }
            for code in codes() {
                let mut bytes = Vec::new();
                code.encode(&message, &mut bytes);
                let mut turned = bytes.clone();
                turned[place.index(bytes.len())] ^= 1 << place.index(8);
                check_canonical(code, compressor.clone(), v.len(), &turned)?;
                check_canonical(code, compressor.clone(), v.len(), &bytes[..bytes.len() - 1])?;
                bytes.push(extra);
                let accepted = check_canonical(code, compressor.clone(), v.len(), &bytes)?;
                // A range coder's string may be the beginning of another message's; the others end
                // where they end.
                let ends = !matches!(code, Code::Entropy | Code::Adaptive);
                prop_assert!(!accepted || !ends, "{} {}", compressor, code);
            }
        }
    }
}

/// Compressors of which `entropy` writes long messages by a law.
const LONG: [&str; 6] = [
    "qsgd(16)",
    "qsgd(64)",
    "qsgd(150)",
    "qsgd(380)",
    "scaled(qsgd(256))",
    "block(qsgd(128), 600)",
];

/// Vectors of 600 to 2000 coordinates: Gaussian, mostly zero, of many sizes, all alike.
fn long_vectors() -> impl Strategy<Value = Vec<f64>> {
    (600usize..2000, 0u64..1000, 0..6).prop_map(|(length, seed, kind)| {
        let mut v = vec![0.0; length];
        Seed::new(seed).stream(Purpose::Data, ClientId(7), 0).normals(&mut v);
        for (place, x) in v.iter_mut().enumerate() {
            match kind {
                0 | 1 => {}
                2 => *x *= f64::from(u8::from(place % 11 == 0)),
                3 => *x *= (x.abs() * 4.0).exp(),
                4 => *x = x.signum(),
                _ => *x = if place < 640 { 0.0 } else { 1e-3 * *x },
            }
        }
        v
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, rng_seed: RngSeed::Fixed(4),
            ..ProptestConfig::default() })]

    /// What is said of messages holds for long ones: they come back, in the bits that were counted;
    /// what is damaged is refused, or else is the encoding of what it says.
    #[test]
    fn long_messages_come_back(v in long_vectors(), seed: u64, place: prop::sample::Index,
        extra: u8) {
        for text in LONG {
            let compressor: Compressor = text.parse().unwrap();
            let channel = |code| {
                Channel::new(compressor.clone(), CodeChoice::Exactly(code), v.len()).unwrap()
            };
            let (entropy, adaptive) = (channel(Code::Entropy), channel(Code::Adaptive));
            let (mut message, mut read, mut bytes) = (Message::new(), Message::new(), vec![7]);
            compressor.quantise(&v, &mut at(seed), &mut message).unwrap();
            let bits = entropy.encode(&message, &mut bytes);
            prop_assert_eq!(bits, entropy.length_bits(&message));
            prop_assert_eq!(bits.div_ceil(8) as usize, bytes.len() - 1);
            bytes.remove(0);
            let refused = |e| TestCaseError::fail(format!("{text}: {e}"));
            entropy.decode(&bytes, &mut read).map_err(refused)?;
            prop_assert_eq!(&message, &read, "{}", text);
            let mut other = Vec::new();
            adaptive.encode(&message, &mut other);
            prop_assert_ne!(&other, &bytes, "{}", text); // it is not the same code

            let mut canonical = |bytes: &[u8]| -> Result<bool, TestCaseError> {
                if entropy.decode(bytes, &mut read).is_err() {
                    return Ok(false);
                }
                let mut again = Vec::new();
                entropy.encode(&read, &mut again);
                prop_assert_eq!(&again, bytes, "{}", text);
                Ok(true)
            };
            let mut turned = bytes.clone();
            turned[place.index(bytes.len())] ^= 1 << place.index(8);
            canonical(&turned)?;
            canonical(&bytes[..place.index(bytes.len())])?;
            let random = at(u64::from(extra)).below(256) as u8;
            let noise: Vec<u8> = bytes.iter().map(|b| b.wrapping_mul(31) ^ random).collect();
            canonical(&noise)?;
            bytes.push(extra);
            prop_assert!(!canonical(&bytes)?);
        }
    }
}

fn check_canonical(
    code: Code,
    compressor: Compressor,
    d: usize,
    bytes: &[u8],
) -> Result<bool, TestCaseError> {
    let mut message = Message::new();
    if code.decode(bytes, &compressor, d, &mut message).is_err() {
        return Ok(false);
    }
    let mut again = Vec::new();
    code.encode(&message, &mut again);
    prop_assert_eq!(&again, bytes, "{} {}", compressor, code);
    prop_assert_eq!(message.dimension(), d);
    prop_assert!(
        message.levels().len() <= d && message.indices().len() <= d && message.values().len() <= d
    );
    Ok(true)
}

/// The property above is not empty: of all short strings, some are accepted by every code.
#[test]
fn every_code_accepts_some_short_strings() {
    for code in codes() {
        for compressor in [Compressor::natural(), Compressor::layered(1.0)] {
            let strings = (0..=u16::MAX)
                .map(u16::to_be_bytes)
                .filter(|bytes| check_canonical(code, compressor.clone(), 1, bytes).unwrap());
            let accepted = strings.count();
            // 31 bits are four bytes
            let expected = !(code == Code::Fixed && compressor == Compressor::layered(1.0));
            assert_eq!(accepted > 0, expected, "{code} {compressor}: {accepted}");
        }
    }
}

fn refusal(code: Code, compressor: &str, d: usize, bits: &str) -> CodeError {
    let padded: Vec<char> = bits.chars().filter(|c| *c != ' ').collect();
    let bytes: Vec<u8> = padded
        .chunks(8)
        .map(|eight| eight.iter().enumerate().map(|(k, c)| u8::from(*c == '1') << (7 - k)).sum())
        .collect();
    code.decode(&bytes, &compressor.parse().unwrap(), d, &mut Message::new()).unwrap_err()
}

#[test]
fn what_is_not_canonical_is_refused_by_name() {
    let one = format!("{:032b}", 1f32.to_bits());
    let with_norm = |rest: &str| format!("{one} {rest}");
    let (sparse, dense) =
        (Code::Elias(Integer::Gamma, Layout::Sparse), Code::Elias(Integer::Gamma, Layout::Dense));
    // qsgd(2) in fixed width: levels -2..=2 as 000..100.
    assert_eq!(
        refusal(Code::Fixed, "qsgd(2)", 2, &with_norm("000 101")),
        CodeError::Level { place: 1, max: 2 }
    );
    assert_eq!(refusal(Code::Fixed, "qsgd(2)", 2, &with_norm("000 100 01")), CodeError::Padding);
    assert_eq!(
        refusal(Code::Fixed, "qsgd(2)", 2, &with_norm("000 100 00 00000000")),
        CodeError::Surplus { bytes: 1 }
    );
    assert_eq!(refusal(Code::Fixed, "qsgd(2)", 3, &with_norm("000 100 10")), CodeError::Truncated);
    assert_eq!(
        refusal(dense, "qsgd(2)", 1, &with_norm("00100 0")),
        CodeError::Level { place: 0, max: 2 }
    );
    assert_eq!(refusal(sparse, "qsgd(2)", 3, &with_norm("00101")), CodeError::Run { dimension: 3 });
    assert_eq!(refusal(dense, "natural", 1, &"0".repeat(100)), CodeError::Integer);
    assert_eq!(refusal(dense, "natural", 1, "0000"), CodeError::Truncated);
    for code in codes() {
        for norm in [f32::NAN, f32::INFINITY, -1.0, -0.0] {
            assert_eq!(
                refusal(code, "qsgd(2)", 1, &format!("{:032b}", norm.to_bits())),
                CodeError::Norm { place: 0 }
            );
        }
        assert_eq!(refusal(code, "qsgd(2)", 1, "0101"), CodeError::Truncated);
        assert_eq!(
            refusal(code, "identity(f32)", 1, &format!("{:032b}", f32::NAN.to_bits())),
            CodeError::NotFinite { place: 0 }
        );
        assert!(matches!(refusal(code, "rand_k(3)", 2, ""), CodeError::Spec(_)));
    }
    let half = format!("{:032b}{:032b}", 0.5f32.to_bits(), 0.5f32.to_bits());
    assert_eq!(
        refusal(Code::Fixed, "top_k(2)", 5, &format!("010 001 {half}")),
        CodeError::Index { place: 1 }
    ); // descending
    assert_eq!(
        refusal(Code::Fixed, "top_k(2)", 5, &format!("010 010 {half}")),
        CodeError::Index { place: 1 }
    ); // twice
    assert_eq!(
        refusal(Code::Fixed, "top_k(2)", 5, &format!("010 101 {half}")),
        CodeError::Index { place: 1 }
    ); // beyond
    assert_eq!(
        refusal(sparse, "top_k(2)", 5, &format!("00100 010 {half}")),
        CodeError::Index { place: 1 }
    );
    assert_eq!(
        refusal(Code::Entropy, "top_k(2)", 5, &format!("01 0001 {half}")),
        CodeError::Index { place: 1 }
    );
    assert_eq!(
        refusal(Code::Fixed, "top_k(1)", 4, &format!("11 {:032b}", f32::INFINITY.to_bits())),
        CodeError::NotFinite { place: 0 }
    );
    // Three of seven dropped, the first of them so late that too many would be kept.
    assert_eq!(refusal(Code::Entropy, "top_k(4)", 7, "000001 1 1"), CodeError::Index { place: 0 });
    // The range coder: an ending that is longer than it need be, a zero byte, bytes that no symbol
    // asks for.
    assert_eq!(refusal(Code::Entropy, "qsgd(1)", 1, &with_norm("00000001")), CodeError::Ending);
    assert_eq!(refusal(Code::Entropy, "qsgd(1)", 1, &with_norm("00000000")), CodeError::Padding);
    assert_eq!(
        refusal(Code::Entropy, "qsgd(1)", 1, &with_norm(&"01".repeat(20))),
        CodeError::Surplus { bytes: 1 }
    );
    assert_eq!(
        refusal(Code::Entropy, "qsgd(1)", 1, &with_norm(&"1".repeat(32))),
        CodeError::Ending
    );
    assert_eq!(
        refusal(Code::Entropy, "natural", 1, &"01".repeat(24)),
        CodeError::Surplus { bytes: 1 }
    );
}

/// The same bytes on every machine: the digest of what compressors and codes make of one vector. A
/// change of this value is a change of the wire format.
#[test]
fn bytes_are_the_same_everywhere() {
    let texts = [
        "qsgd(1)",
        "qsgd(2)",
        "qsgd(3)",
        "qsgd(4)",
        "qsgd(5)",
        "qsgd(16)",
        "qsgd(37)",
        "qsgd(256)",
        "qsgd(65536)",
        "qsgd(1073741823)",
        "identity(f32)",
        "identity(f64)",
        "natural",
        "layered(0.01)",
        "rand_k(1)",
        "rand_k(3, f64)",
        "top_k(2)",
        "top_k(4)",
        "scaled(qsgd(4))",
        "block(qsgd(2), 5)",
        "block(rand_k(3), 4)",
        "block(top_k(4), 4)",
    ];
    let mut v = vec![0.0; 1000];
    Seed::new(5).stream(Purpose::Data, ClientId(0), 0).normals(&mut v);
    let (mut digest, mut huffman, mut entropy) = (Sha256::new(), Sha256::new(), Sha256::new());
    for text in texts {
        let compressor: Compressor = text.parse().unwrap();
        let mut message = Message::new();
        compressor.quantise(&v, &mut at(9), &mut message).unwrap();
        for code in codes() {
            let mut bytes = Vec::new();
            code.encode(&message, &mut bytes);
            match code {
                Code::Huffman => &mut huffman,
                Code::Entropy => &mut entropy,
                _ => &mut digest,
            }
            .update(&bytes);
        }
        let mut out = vec![0.0; 1000];
        message.dequantise(&mut at(9), &mut out).unwrap();
        for x in out {
            digest.update(x.to_bits().to_le_bytes());
        }
    }
    let hex = |digest: Sha256| {
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(
        (hex(digest).as_str(), hex(huffman).as_str(), hex(entropy).as_str()),
        ("dc5ced01bbec0299", "305d6079bb5d9048", "5319067b5597d3cb")
    );
}

/// Each class of message gets a code that is no longer than any other on vectors like those it was
/// chosen for.
#[test]
fn auto_chooses_the_shortest() {
    for compressor in compressors() {
        for d in [4, 50, 784] {
            let channel = Channel::new(compressor.clone(), CodeChoice::Auto, d).unwrap();
            let mut totals = vec![0; codes().len()];
            let (mut chosen, mut v, mut message) = (0, vec![0.0; d], Message::new());
            for round in 0..200 {
                Seed::new(6).stream(Purpose::Data, ClientId(0), round).normals(&mut v);
                channel.quantise(&v, &mut at(round), &mut message).unwrap();
                chosen += channel.length_bits(&message);
                for (total, code) in totals.iter_mut().zip(codes()) {
                    *total += code.length_bits(&message);
                }
            }
            let least = totals.into_iter().min().unwrap();
            assert!(
                chosen as f64 <= 1.02 * least as f64,
                "{compressor} at {d}: {} takes {chosen}, {least} is possible",
                channel.code()
            );
        }
    }
}

/// A compressor that is given no random numbers of its own must not draw any, or it would draw the
/// same ones again.
#[test]
fn compressors_draw_random_numbers_if_they_say_so() {
    let mut v = vec![0.0; 50];
    Seed::new(6).stream(Purpose::Data, ClientId(0), 0).normals(&mut v);
    for compressor in compressors() {
        let (mut stream, mut message) = (at(3), Message::new());
        compressor.quantise(&v, &mut stream, &mut message).unwrap();
        let untouched = (0..4).all({
            let mut fresh = at(3);
            move |_| stream.word() == fresh.word()
        });
        assert_eq!(compressor.draws(), !untouched, "{compressor}");
    }
}
