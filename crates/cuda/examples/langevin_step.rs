//! Time the Langevin step with its noise for twenty parties of 61,706 numbers, on a GPU and on one
//! core of this machine: `cargo run --release -p consilience-cuda --example langevin_step`.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use consilience_core::rng::{ClientId, Noise, Seed};
use consilience_core::step::langevin;
use consilience_cuda::{Device, DeviceError};

const PARTIES: u32 = 20;
const DIM: usize = 61_706;
const STEPS: u64 = 2000;

fn main() -> Result<(), DeviceError> {
    let started = Instant::now();
    let device = Device::open(0)?;
    println!("{}: ready after {:.2} s", device.name()?, started.elapsed().as_secs_f64());
    let seed = Seed::new(1);
    let parties: Vec<_> = (0..PARTIES).map(|k| (seed, ClientId(k))).collect();
    let zeros = vec![0.0; PARTIES as usize * DIM];
    let (mut x, drift) = (device.numbers(&zeros)?, device.numbers(&zeros)?);
    let parties = device.parties(&parties)?;
    let mut best = f64::INFINITY;
    for round in 0..5 {
        device.wait()?;
        let started = Instant::now();
        for k in 0..STEPS {
            device.langevin(&mut x, &drift, &parties, round * STEPS + k, 1e-4, 1.0)?;
        }
        device.wait()?;
        best = best.min(started.elapsed().as_secs_f64() / STEPS as f64);
    }
    println!("on the GPU: {:.1} us a step of {PARTIES} parties", best * 1e6);

    let (mut x, drift, mut z) = (vec![0.0; DIM], vec![0.0; DIM], vec![0.0; DIM]);
    let (started, steps) = (Instant::now(), 20);
    let mut noise = Noise::new(seed, ClientId(0), DIM);
    for k in 0..steps {
        for start in (0..DIM).step_by(1024) {
            let end = DIM.min(start + 1024);
            z[start..end].copy_from_slice(noise.at(k, start..end));
        }
        langevin(&mut x, 1e-4, 1.0, &drift, &z);
    }
    let each = started.elapsed().as_secs_f64() / steps as f64 * f64::from(PARTIES);
    println!("on one core: {:.0} us, {:.0} times as long", each * 1e6, each / best);
    Ok(())
}
