//! FALD on ResNet-20, 20 clients with coloured images: one gradient of every client an iteration.

use std::sync::Arc;

use clap::Args;
use consilience_core::model::net::{NetPlan, Seen, preset};
use consilience_core::model::{Arithmetic, Design, Model, Net, Prior};
use consilience_core::sampler::{Batch, Local, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_cuda::{Device, Nets};

use super::images::CLASSES;
use super::lenet::{Increments, he};
use crate::How;
use crate::chains::{self, Finished};
use crate::files::normals;
use crate::report::{self, Fields};

const CLIENTS: usize = 20;
const GAMMA: f64 = 1e-7;
const INPUT: [usize; 3] = [3, 32, 32];

/// What may be chosen.
#[derive(Debug, Args)]
pub struct ResNet {
    /// Which net.
    #[arg(long, default_value = "resnet20")]
    net: String,
    /// Images of a minibatch.
    #[arg(long, default_value_t = 25)]
    batch: usize,
    /// Images of a client, which are made up.
    #[arg(long, default_value_t = 100)]
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

impl ResNet {
    pub fn run(&self) -> Result<String, String> {
        let layers = preset(&self.net, CLASSES).map_err(|e| e.to_string())?;
        let plan = Arc::new(NetPlan::new(&layers, INPUT).map_err(|e| e.to_string())?);
        let width: usize = INPUT.iter().product();
        let client = |k: usize| -> Result<Arc<dyn Model>, String> {
            let pixels = normals(7000 + k, self.ni * width);
            let design = Design::dense(pixels, width).map_err(|e| e.to_string())?;
            let labels = (0..self.ni).map(|row| ((row + k) % CLASSES) as u32).collect();
            let net = Net::new(Arc::clone(&plan), design, Seen::Labels(labels), Arithmetic::F32);
            Ok(Arc::new(net.map_err(|e| e.to_string())?))
        };
        let clients = (0..CLIENTS).map(client).collect::<Result<Vec<_>, String>>()?;
        let prior = Prior::gaussian(0.2, plan.dim()).map_err(|e| e.to_string())?;
        let shares = Placement::Split(vec![1.0 / CLIENTS as f64; CLIENTS]);
        let mut target =
            Target::new(clients.clone(), prior, shares, 1.0).map_err(|e| e.to_string())?;
        if self.cuda {
            let nets = Device::open(0).and_then(|device| Nets::new(&device, &clients));
            target.joint = Some(Arc::new(nets.map_err(|e| e.to_string())?));
        }
        let (step, batch) = (Schedule::Constant(GAMMA), Batch::Rows(self.batch));
        let recipe = Recipe::Local(Local::fald(step, CLIENTS, 0.0, self.averaged, batch));
        let start = he(&plan);
        let Finished { timed, watches, .. } =
            chains::run(&self.how, &recipe, target, &start, |_| Increments::new(&start))?;
        let seen = watches.into_iter().next().ok_or("there is no chain: use --chains 1")?;
        let noise = 2.0 * GAMMA / CLIENTS as f64;
        let check = Fields::default()
            .with("iterations", seen.iteration)
            .with("averages", seen.averages)
            .rounded("increment_over_noise_only", seen.squares / (noise * seen.moved as f64));
        let each = timed.seconds / self.how.iters as f64;
        let variant = Fields::default()
            .with("net", &*self.net)
            .with("batch", self.batch)
            .with("device", if self.cuda { "cuda" } else { "cpu" })
            .rounded("images_per_second", (CLIENTS * self.batch) as f64 / each);
        report::line("resnet_fald", &self.how, timed, &variant, &check)
    }
}
