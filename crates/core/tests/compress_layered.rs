//! The error of the layered quantiser is exactly Gaussian, whatever the vector.
#![allow(clippy::unwrap_used)]

use consilience_core::compress::{Compressor, Message};
use consilience_core::rng::{ClientId, Purpose, Seed, Stream};

fn at(round: u64) -> Stream {
    Seed::new(11).stream(Purpose::Compress, ClientId(3), round)
}

fn gaussian(d: usize) -> Vec<f64> {
    let mut v = vec![0.0; d];
    Seed::new(12).stream(Purpose::Data, ClientId(0), 0).normals(&mut v);
    v
}

fn square(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum()
}

fn compressed(
    compressor: Compressor,
    v: &[f64],
    round: u64,
    message: &mut Message,
    out: &mut [f64],
) {
    compressor.quantise(v, &mut at(round), message).unwrap();
    message.dequantise(&mut at(round), out).unwrap();
}

/// The distance of Kolmogorov and Smirnov from the standard normal law, times sqrt(n): above 2.69
/// once in a million.
fn kolmogorov(sample: &mut [f64]) -> f64 {
    sample.sort_unstable_by(f64::total_cmp);
    let n = sample.len() as f64;
    let mut widest = 0.0f64;
    for (k, z) in sample.iter().enumerate() {
        let below = normal_below(*z);
        widest = widest.max((below - k as f64 / n).abs()).max(((k + 1) as f64 / n - below).abs());
    }
    widest * n.sqrt()
}

/// The normal distribution function, by its Taylor series inside 6 standard deviations.
fn normal_below(z: f64) -> f64 {
    if z.abs() > 6.0 {
        return if z > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut k) = (z, z, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        term *= z * z / (2.0 * k + 1.0);
        sum += term;
        k += 1.0;
    }
    0.5 + sum * (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt()
}

/// Whatever the input, the error of the layered quantiser is Gaussian: Kolmogorov and four moments,
/// each with 1e-6 false alarms.
#[test]
fn the_layered_error_is_gaussian_whatever_the_input() {
    let (d, sigma) = (200_000, 0.3);
    let mut message = Message::new();
    let slow: Vec<f64> = (0..d).map(|k| f64::from(k) * 1e-5).collect();
    let inputs = [
        ("zero", vec![0.0; d as usize]),
        ("constant", vec![0.4; d as usize]),
        ("large", vec![-1234.5; d as usize]),
        ("slow", slow),
    ];
    for (name, v) in inputs.into_iter().chain([("Gaussian", gaussian(d as usize))]) {
        for compressor in [Compressor::layered(sigma), Compressor::layered(sigma).block(77)] {
            let mut out = vec![0.0; d as usize];
            compressed(compressor, &v, 5, &mut message, &mut out);
            let mut errors: Vec<f64> = out.iter().zip(&v).map(|(a, b)| (a - b) / sigma).collect();
            let n = f64::from(d);
            for (power, mean, variance) in
                [(1, 0.0, 1.0f64), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
            {
                let score = errors.iter().map(|e| e.powi(power) - mean).sum::<f64>()
                    / (n * variance).sqrt();
                assert!(score.abs() < 4.9, "{name}: moment {power}: {score}");
            }
            let neighbours =
                errors.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / n.sqrt();
            let with_input = errors.iter().zip(&v).map(|(e, x)| e * x).sum::<f64>()
                / square(&v).sqrt().max(1e-9);
            let squares_with_input =
                errors.iter().zip(&v).map(|(e, x)| (e * e - 1.0) * x).sum::<f64>()
                    / (2.0 * square(&v)).sqrt().max(1e-9);
            assert!(
                neighbours.abs() < 4.9 && with_input.abs() < 4.9 && squares_with_input.abs() < 4.9,
                "{name}"
            );
            let distance = kolmogorov(&mut errors);
            assert!(distance < 2.69, "{name}: {distance}");
        }
    }
    // The same test sees a uniform error of the same variance, and a deviation that is 1.5% off.
    let mut uniform: Vec<f64> =
        (0..d).map(|k| (f64::from(k) / f64::from(d) - 0.5) * 12f64.sqrt()).collect();
    assert!(kolmogorov(&mut uniform) > 2.69);
    let mut out = vec![0.0; d as usize];
    compressed(Compressor::layered(sigma * 1.015), &out.clone(), 5, &mut message, &mut out);
    let mut errors: Vec<f64> = out.iter().map(|a| a / sigma).collect();
    assert!((square(&errors) / f64::from(d) - 1.0) / (2.0 / f64::from(d)).sqrt() > 4.9);
    assert!(kolmogorov(&mut errors) < 30.0);
}

#[test]
fn the_layered_receiver_needs_the_senders_stream() {
    let (v, mut message, mut out) = (vec![50.0; 1000], Message::new(), vec![0.0; 1000]);
    let compressor = Compressor::layered(1.0);
    assert!(compressor.needs_shared_stream() && !Compressor::qsgd(1).needs_shared_stream());
    compressor.quantise(&v, &mut at(1), &mut message).unwrap();
    message.dequantise(&mut at(2), &mut out).unwrap();
    assert!(out.iter().zip(&v).map(|(a, b)| (a - b).powi(2)).sum::<f64>() > 10_000.0);
}
