//! A GPU gives the bits of the core, where there is one.
#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::print_stderr)] // what is skipped is said

use consilience_core::rng::{ClientId, Noise, Seed};
use consilience_core::step::langevin;
use consilience_cuda::{Device, DeviceError};

/// `None` where there is no GPU, which is said; where `CONSILIENCE_GPU` is set there must be one.
fn device() -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("CONSILIENCE_GPU").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn walks_of_twenty_parties_have_the_bits_of_the_core() {
    let Some(device) = device() else { return };
    let (dim, seed, step) = (61_706, Seed::new(4).chain(1), 1e-4);
    let parties: Vec<_> = (0..20).map(|k| (seed, ClientId(k))).collect();
    let mut x: Vec<f64> = (0..20 * dim).map(|k| (k as f64 * 0.01).sin()).collect();
    let drift: Vec<f64> = (0..20 * dim).map(|k| (k as f64 * 0.03).cos() * 9.0).collect();
    let (mut there, pull) = (device.numbers(&x).unwrap(), device.numbers(&drift).unwrap());
    let known = device.parties(&parties).unwrap();
    for iteration in 0..5 {
        device.langevin(&mut there, &pull, &known, iteration, step, 1.0).unwrap();
    }
    for (p, x) in x.chunks_exact_mut(dim).enumerate() {
        let mut noise = Noise::new(seed, ClientId(p as u32), dim);
        for iteration in 0..5 {
            let mut z = Vec::new();
            for start in (0..dim).step_by(1024) {
                z.extend_from_slice(noise.at(iteration, start..dim.min(start + 1024)));
            }
            langevin(x, step, 1.0, &drift[p * dim..(p + 1) * dim], &z);
        }
    }
    let bits = |numbers: &[f64]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&device.read(&there).unwrap()), bits(&x));
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let Some(device) = device() else { return };
    let parties = device.parties(&[(Seed::new(1), ClientId(0)), (Seed::new(1), ClientId(1))]);
    let parties = parties.unwrap();
    for (x, drift) in [(200, 201), (201, 201), (128, 128)] {
        let mut x = device.numbers(&vec![0.0; x]).unwrap();
        let drift = device.numbers(&vec![0.0; drift]).unwrap();
        let refused = device.langevin(&mut x, &drift, &parties, 0, 0.1, 1.0);
        assert!(matches!(refused, Err(DeviceError::Length { .. })), "{refused:?}");
    }
}
