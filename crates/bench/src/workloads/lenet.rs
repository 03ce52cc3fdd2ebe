//! W5: VR-FALD* on LeNet5, 20 clients with images.
//!
//! The reference point is renewed with probability 8/60000, at the cost of a pass over all images:
//! that is so rare that it is timed apart, as the peers do.

use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use consilience_core::model::net::{NetPlan, Role, Seen, preset};
use consilience_core::model::{Arithmetic, Model, Net, Prior, Single};
use consilience_core::sampler::{Batch, Local, Recipe, Sampler};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_cuda::{Device, Nets};

use super::images::{CLASSES, Shown, dealt};
use crate::How;
use crate::chains::{self, Finished, Watch};
use crate::files::normals;
use crate::report::{self, Fields};

const CLIENTS: usize = 20;
const GAMMA: f64 = 1e-7;
/// How often the reference point is renewed.
const RENEWED: f64 = 8.0 / 60_000.0;

/// What may be chosen.
#[derive(Debug, Args)]
pub struct LeNet {
    /// The share of the noise that all clients have in common.
    #[arg(long, default_value_t = 0.0)]
    tau: f64,
    /// Images of a minibatch.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Images of a client, where they are made up.
    #[arg(long, default_value_t = 2880)]
    ni: usize,
    /// How often the clients are averaged: with this probability after each iteration.
    #[arg(long, default_value_t = 1.0 / 20.0)]
    averaged: f64,
    /// Whether the first GPU takes the clients' steps.
    #[arg(long)]
    cuda: bool,
    #[command(flatten)]
    how: How,
}

impl LeNet {
    pub fn run(&self) -> Result<String, String> {
        let layers = preset("lenet5", CLASSES).map_err(|e| e.to_string())?;
        let plan = Arc::new(NetPlan::new(&layers, [1, 28, 28]).map_err(|e| e.to_string())?);
        let (images, test) = dealt(self.how.data.as_deref(), CLIENTS, self.ni)?;
        let net = |shown: Shown| -> Result<Arc<dyn Model>, String> {
            let seen = Seen::Labels(shown.labels);
            let net = Net::new(Arc::clone(&plan), shown.design, seen, Arithmetic::F32);
            Ok(Arc::new(net.map_err(|e| e.to_string())?))
        };
        let clients: Vec<Arc<dyn Model>> = images.into_iter().map(net).collect::<Result<_, _>>()?;
        let (test, d) = (net(test)?, plan.dim());
        let prior = Prior::gaussian(0.2, d).map_err(|e| e.to_string())?;
        let shares = Placement::Split(vec![1.0 / CLIENTS as f64; CLIENTS]);
        let mut target =
            Target::new(clients.clone(), prior, shares, 1.0).map_err(|e| e.to_string())?;
        if self.cuda {
            let nets = Device::open(0).and_then(|device| Nets::new(&device, &clients));
            target.joint = Some(Arc::new(nets.map_err(|e| e.to_string())?));
        }
        let recipe = Recipe::Local(Local::vr_fald_star(
            Schedule::Constant(GAMMA),
            CLIENTS,
            self.tau,
            self.averaged,
            RENEWED,
            Batch::Rows(self.batch),
        ));
        let start = he(&plan);
        let begun = Instant::now();
        let passes: Vec<Vec<f64>> =
            clients.iter().map(|client| Single::new(client).gradient(&start)).collect();
        let renewal = begun.elapsed().as_secs_f64();
        let Finished { timed, watches, .. } =
            chains::run(&self.how, &recipe, target, &start, |_| Increments::new(&start))?;

        let seen = watches.into_iter().next().ok_or("there is no chain: use --chains 1")?;
        // Noise alone moves an average of clients so far in one iteration, whatever tau is.
        let noise = 2.0 * GAMMA / CLIENTS as f64;
        let loss = Single::new(&test).value(&seen.position) / test.rows() as f64;
        let check = Fields::default()
            .with("iterations", seen.iteration)
            .with("averages", seen.averages)
            .rounded("test_nll", loss)
            .rounded("increment_over_noise_only", seen.squares / (noise * seen.moved as f64))
            .rounded("standard_error", (2.0 / (d as u64 * seen.averages.max(1)) as f64).sqrt());
        let each = timed.seconds / self.how.iters as f64;
        let images = (2 * passes.len() * self.batch) as f64 / each;
        let variant = Fields::default()
            .with("tau", self.tau)
            .with("batch", self.batch)
            .with("device", if self.cuda { "cuda" } else { "cpu" })
            .rounded("refresh_seconds", renewal)
            .rounded("amortised_iters_per_second", 1.0 / (each + RENEWED * renewal))
            .rounded("images_per_second", images);
        report::line("lenet_vrfald", &self.how, timed, &variant, &check)
    }
}

/// Weights of variance two over the inputs of a unit, no biases.
pub(super) fn he(plan: &NetPlan) -> Vec<f64> {
    let mut x = normals(9000, plan.dim());
    for parameter in plan.parameters() {
        let weight = f64::from(u8::from(parameter.role == Role::Weight));
        let scale = weight * (2.0 / parameter.fan_in as f64).sqrt();
        x[parameter.range()].iter_mut().for_each(|x| *x *= scale);
    }
    x
}

/// How far averages of the clients are from each other.
pub(super) struct Increments {
    position: Vec<f64>,
    pub iteration: u64,
    pub averages: u64,
    /// The mean square of a coordinate's increment, summed over averages, and over how many
    /// iterations.
    pub squares: f64,
    pub moved: u64,
}

impl Increments {
    pub(super) fn new(start: &[f64]) -> Self {
        let position = start.to_vec();
        Increments { position, iteration: 0, averages: 0, squares: 0.0, moved: 0 }
    }
}

impl Watch for Increments {
    fn draw(&mut self, server: &dyn Sampler) {
        let (x, d) = (server.position(), self.position.len() as f64);
        let mut sums = [0.0; 8]; // side by side: this is timed
        for (a, b) in x.chunks(8).zip(self.position.chunks(8)) {
            sums.iter_mut()
                .zip(a.iter().zip(b))
                .for_each(|(sum, (a, b))| *sum += (a - b) * (a - b));
        }
        let squares: f64 = sums.iter().sum();
        self.squares += squares / d;
        self.moved += server.iteration() - self.iteration;
        self.averages += 1;
        self.iteration = server.iteration();
        self.position.copy_from_slice(x);
    }
}
