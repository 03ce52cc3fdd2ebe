//! Measure how the cost of an iteration grows with clients, parameters, rows and chains, and fit
//! the exponent of each.

use std::fmt::Write;
use std::sync::Arc;

use clap::Args;
use consilience_core::compress::Compressor;
use consilience_core::model::{Design, Glm, GlmFamily, Model, Prior};
use consilience_core::protocol::{Device, Event, Ledger, exchange};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Batch, Keys, Recipe, Sampler, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

use crate::files::normals;
use crate::timing::{cpu_seconds, pin_to_one_core};

/// What may be chosen.
#[derive(Debug, Args)]
pub struct Growth {
    /// The least CPU seconds of a timed repeat.
    #[arg(long, default_value_t = 0.02)]
    patience: f64,
}

/// A federation's size.
#[derive(Clone, Copy)]
struct Size {
    clients: usize,
    parameters: usize,
    rows: usize,
    chains: u32,
}

/// Makes one side of a size so many times as large.
type Grow = fn(&mut Size, usize);

const BASE: Size = Size { clients: 16, parameters: 64, rows: 64, chains: 1 };

impl Growth {
    /// A table of microseconds an iteration: logistic regression, gradients of all rows, with and
    /// without compression.
    pub fn run(&self) -> Result<String, String> {
        pin_to_one_core();
        let mut table = String::from(
            "| sampler | growing | microseconds an iteration, doubled from row to row | exponent \
             |\n|---|---|---|---|\n",
        );
        for (name, compressor) in [("lmc", None), ("qlsd, qsgd(16)", Some(Compressor::qsgd(16)))] {
            let axes: [(&str, Grow); 4] = [
                ("clients, from 16", |size, by| size.clients *= by),
                ("parameters, from 64", |size, by| size.parameters *= by),
                ("rows of a client, from 64", |size, by| size.rows *= by),
                ("chains, from 1", |size, by| size.chains *= by as u32),
            ];
            for (axis, grow) in axes {
                let mut points = Vec::new();
                for doublings in 0..5 {
                    let mut size = BASE;
                    grow(&mut size, 1 << doublings);
                    points.push(self.seconds(size, compressor.clone())?);
                }
                let shown: Vec<String> = points.iter().map(|s| format!("{:.1}", s * 1e6)).collect();
                let _ = writeln!(
                    table,
                    "| {name} | {axis} | {} | {:.2} |",
                    shown.join(", "),
                    exponent(&points)
                );
            }
        }
        Ok(table.trim_end().to_owned())
    }

    /// CPU seconds of one iteration of all chains, at best.
    fn seconds(&self, size: Size, compressor: Option<Compressor>) -> Result<f64, String> {
        let Size { clients, parameters, rows, chains } = size;
        let client = |i: usize| -> Result<Arc<dyn Model>, String> {
            let design = Design::dense(normals(i, rows * parameters), parameters)
                .map_err(|e| e.to_string())?;
            let labels =
                (0..rows).map(|k| f64::from(u8::from((k + i).is_multiple_of(3)))).collect();
            Ok(Arc::new(Glm::new(design, labels, GlmFamily::Bernoulli).map_err(|e| e.to_string())?))
        };
        let potentials = (0..clients).map(client).collect::<Result<_, _>>()?;
        let step = Schedule::Constant(1e-6);
        let recipe = Recipe::Uplink(
            compressor.map_or_else(|| Uplink::lmc(step), |c| Uplink::qlsd(step, Batch::Full, c)),
        );
        let prior = Prior::gaussian(1.0, parameters).map_err(|e| e.to_string())?;
        let target = Target::new(potentials, prior, Placement::Server, 1.0)
            .and_then(|t| recipe.check(t))
            .map_err(|e| e.to_string())?;
        let made = (0..chains).map(|c| start(&recipe, &target, c));
        let mut all = made.collect::<Result<Vec<_>, String>>()?;
        let mut ledger = Ledger::new(clients);
        let (mut iterations, mut best) = (1, f64::INFINITY);
        let mut repeats = 0;
        while repeats < 5 {
            let before = cpu_seconds();
            for (server, devices) in &mut all {
                for _ in 0..iterations {
                    if exchange(&mut **server, devices, &mut ledger) == Event::Diverged {
                        return Err("the chain diverged".into());
                    }
                }
            }
            let spent = cpu_seconds() - before;
            if spent < self.patience {
                iterations *= 2;
            } else {
                best = best.min(spent / f64::from(iterations));
                repeats += 1;
            }
        }
        Ok(best)
    }
}

type Parties = (Box<dyn Sampler>, Vec<Box<dyn Device>>);

fn start(recipe: &Recipe, target: &Target, chain: u32) -> Result<Parties, String> {
    let keys = Keys::simulation(Seed::new(1), chain);
    let devices = (0..target.clients.len() as u32)
        .map(|i| recipe.client(target, ClientId(i), keys))
        .collect::<Result<_, _>>();
    let server = recipe.server(target, &vec![0.0; target.dim()], keys);
    Ok((server.map_err(|e| e.to_string())?, devices.map_err(|e| e.to_string())?))
}

/// The slope of the logarithms, by least squares, of values at sizes that double.
fn exponent(values: &[f64]) -> f64 {
    let middle = (values.len() - 1) as f64 / 2.0;
    let logs: Vec<f64> = values.iter().map(|v| v.log2()).collect();
    let products: f64 = logs.iter().enumerate().map(|(k, y)| (k as f64 - middle) * y).sum();
    products / (0..values.len()).map(|k| (k as f64 - middle).powi(2)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::exponent;

    #[test]
    fn the_exponent_of_a_power_is_its_own() {
        assert!((exponent(&[3.0, 6.0, 12.0, 24.0]) - 1.0).abs() < 1e-12);
        assert!((exponent(&[1.0, 4.0, 16.0]) - 2.0).abs() < 1e-12);
        assert_eq!(exponent(&[5.0, 5.0, 5.0]), 0.0);
    }
}
