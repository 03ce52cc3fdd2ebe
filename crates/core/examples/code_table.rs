//! Print what `qsgd` messages of Gaussian vectors cost, in bits a coordinate, against their
//! entropy.
//!
//! `cargo run --release -p consilience-core --example code_table`
#![allow(clippy::print_stdout)]

use consilience_core::compress::code::{Code, Integer, Layout};
use consilience_core::compress::{Channel, CodeChoice, Compressor, Message, paper_bits};
use consilience_core::rng::{Purpose, SERVER, Seed};
use std::collections::BTreeMap;

/// What messages of one kind cost, in bits a coordinate. Codes are counted without the norm's 32
/// bits, which all of them pay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    /// Entropy of each message's own frequencies: a code would have to know them beforehand.
    pub(crate) empirical: f64,
    /// `-log2` of the law that the levels of Gaussian vectors have one by one.
    pub(crate) ideal: f64,
    /// Bits to state each message's own frequencies, by the usual (m - 1)/2 log2 d for m distinct
    /// levels.
    pub(crate) statement: f64,
    /// The entropy code.
    pub(crate) entropy: f64,
    /// Elias omega in the published layout.
    pub(crate) elias: f64,
    /// The shortest of all Elias codes.
    pub(crate) best_elias: f64,
    /// Fixed width.
    pub(crate) fixed: f64,
    /// What [`CodeChoice::Auto`] takes.
    pub(crate) auto: f64,
    /// The QLSD paper's formula, without its 32.
    pub(crate) paper: f64,
}

/// Averages over Gaussian vectors of `d` coordinates, about 200,000 coordinates in all.
pub(crate) fn measure(s: u32, d: usize) -> Row {
    let compressor = Compressor::qsgd(s);
    let code = |choice| Channel::new(compressor.clone(), choice, d).expect("valid").code();
    let (elias, auto) = (code(CodeChoice::Elias), code(CodeChoice::Auto));
    let integers = [Integer::Gamma, Integer::Delta, Integer::Omega];
    let all = integers
        .into_iter()
        .flat_map(|n| [Layout::Sparse, Layout::Dense].map(|layout| Code::Elias(n, layout)));
    let mut elias_totals: Vec<(Code, u64)> = all.map(|code| (code, 0)).collect();
    let repeats = (200_000 / d).clamp(1, 400);
    let mut laws = BTreeMap::new();
    let (mut row, mut v, mut message) = (Row::default(), vec![0.0; d], Message::new());
    for repeat in 0..repeats as u64 {
        Seed::new(7).stream(Purpose::Data, SERVER, repeat).normals(&mut v);
        compressor
            .quantise(&v, &mut Seed::new(7).stream(Purpose::Compress, SERVER, repeat), &mut message)
            .expect("finite");
        let mut counts = BTreeMap::new();
        for level in message.levels() {
            *counts.entry(*level).or_insert(0u32) += 1;
        }
        for (level, count) in &counts {
            let share = f64::from(*count) / d as f64;
            row.empirical -= f64::from(*count) * share.log2();
            let law = *laws.entry(level.abs()).or_insert_with(|| {
                probability(f64::from(level.abs()), f64::from(s) / (d as f64).sqrt())
            });
            row.ideal -= f64::from(*count) * law.log2();
        }
        row.statement += 0.5 * (counts.len() as f64 - 1.0) * (d as f64).log2();
        let bits = |code: Code| (code.length_bits(&message) - 32) as f64;
        row.entropy += bits(Code::Entropy);
        row.elias += bits(elias);
        row.fixed += bits(Code::Fixed);
        row.auto += bits(auto);
        for (code, total) in &mut elias_totals {
            *total += code.length_bits(&message) - 32;
        }
    }
    row.best_elias = elias_totals.iter().map(|(_, total)| *total).min().unwrap_or(0) as f64;
    let n = (repeats * d) as f64;
    let fields =
        [&mut row.empirical, &mut row.ideal, &mut row.statement, &mut row.entropy, &mut row.elias];
    for field in fields.into_iter().chain([&mut row.best_elias, &mut row.fixed, &mut row.auto]) {
        *field /= n;
    }
    row.paper = (paper_bits(s, d) - 32.0) / d as f64;
    row
}

/// The probability that a normal number of this deviation is rounded at random to this level: the
/// integral of `(1 - |x - level|)` over its law, by Simpson's rule on either side of the level.
fn probability(level: f64, deviation: f64) -> f64 {
    let density = |z: f64| (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    let half = |from: f64, to: f64| {
        let (from, to) = (from.clamp(-12.0, 12.0), to.clamp(-12.0, 12.0));
        let n = 400;
        let step = (to - from) / f64::from(n);
        let weight = |k: i32| if k == 0 || k == n { 1.0 } else { f64::from(2 + 2 * (k % 2)) };
        let value = |z: f64| density(z) * (1.0 - (deviation * z - level).abs()).max(0.0);
        (0..=n).map(|k| weight(k) * value(from + step * f64::from(k))).sum::<f64>() * step / 3.0
    };
    half((level - 1.0) / deviation, level / deviation)
        + half(level / deviation, (level + 1.0) / deviation)
}

#[allow(dead_code)] // the test that reads these rows has its own main
fn main() {
    println!(
        "Bits a coordinate of qsgd(s) on Gaussian vectors, without the norm's 32 bits (of which \
         the last column is the share).\n"
    );
    println!(
        "      s        d  empirical    ideal  entropy  /empir.  /ideal    elias  best el.    \
         fixed     auto    paper   32/d"
    );
    for d in [50, 784, 7850, 1_000_000] {
        for s in [1, 2, 4, 16, 256, 65_536] {
            let row = measure(s, d);
            println!(
                "{s:7} {d:8} {:10.4} {:8.4} {:8.4} {:8.4} {:7.4} {:8.4} {:9.4} {:8.4} {:8.4} \
                 {:8.4} {:6.4}",
                row.empirical,
                row.ideal,
                row.entropy,
                row.entropy / row.empirical,
                row.entropy / row.ideal,
                row.elias,
                row.best_elias,
                row.fixed,
                row.auto,
                row.paper,
                32.0 / d as f64
            );
        }
    }
}
