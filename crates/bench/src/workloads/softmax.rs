//! W3 and W4: softmax regression of images, by FA-LD and by QLSD++.
//!
//! Unlike the peers, W3's minibatches are drawn without replacement, as the library draws them all.

use clap::{Args, ValueEnum};
use consilience_core::compress::{CodeChoice, Compressor};
use consilience_core::model::{Arithmetic, Prior};
use consilience_core::sampler::{Batch, Local, Recipe, Sampler, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

use super::images::{CLASSES, COLUMNS, Images};
use crate::How;
use crate::chains::{self, Finished, Moments, Watch};
use crate::files::normals;
use crate::report::{self, Fields};

const DIM: usize = CLASSES * COLUMNS;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Width {
    F64,
    F32,
}

impl Width {
    fn name(self) -> &'static str {
        if matches!(self, Width::F32) { "f32" } else { "f64" }
    }
}

impl From<Width> for Arithmetic {
    fn from(width: Width) -> Arithmetic {
        if matches!(width, Width::F32) { Arithmetic::F32 } else { Arithmetic::F64 }
    }
}

/// What may be chosen in W3.
#[derive(Debug, Args)]
pub struct FaLd {
    /// Local steps of a round.
    #[arg(long, default_value_t = 10)]
    local: u64,
    /// Rows of a minibatch.
    #[arg(long, default_value_t = 200)]
    batch: usize,
    /// The numbers that sums over rows are made of; the peers' are of 32 bits.
    #[arg(long, value_enum, default_value = "f64")]
    arithmetic: Width,
    #[command(flatten)]
    how: How,
}

impl FaLd {
    pub fn run(&self) -> Result<String, String> {
        const CLIENTS: usize = 10;
        const TEMPERATURE: f64 = 0.05;
        const ETA: f64 = 5e-7;
        let images =
            Images::new(self.how.data.as_deref(), "w3", CLIENTS, 6000, self.arithmetic.into())?;
        let target =
            Target::new(images.clients.clone(), Prior::Flat, Placement::Server, TEMPERATURE)
                .map_err(|e| e.to_string())?;
        let weights = vec![1.0 / CLIENTS as f64; CLIENTS];
        let recipe = Local::fa_ld(
            Schedule::Constant(ETA),
            weights,
            self.local,
            0.0,
            Batch::Rows(self.batch),
        );
        // the library counts local steps, the peers rounds
        let steps = How { iters: self.how.iters * self.local, ..self.how.clone() };
        let Finished { timed, watches, .. } =
            chains::run(&steps, &Recipe::Local(recipe), target, &[0.0; DIM], |_| {
                Last::new(&[0.0; DIM])
            })?;

        let last = watches.into_iter().next().ok_or("there is no chain: use --chains 1")?;
        let dead = images.dead_parameters();
        let (rounds, variance) = (last.moments.samples, variance(&last.position, &dead));
        let check = Fields::default()
            .with("rounds", rounds)
            .rounded("train_nll", images.loss(&last.position))
            .rounded("test_accuracy", images.accuracy(&last.moments.mean()))
            .with("dead_pixels", images.dead.len())
            .rounded(
                "dead_weight_var_over_exact",
                variance / (2.0 * ETA * TEMPERATURE * (self.local * rounds) as f64),
            )
            .rounded("dead_standard_error", (2.0 / dead.len() as f64).sqrt());
        let per_second =
            (steps.iters * CLIENTS as u64 * u64::from(self.how.chains)) as f64 / timed.seconds;
        let variant = Fields::default()
            .with("arithmetic", self.arithmetic.name())
            .with("minibatch", "without replacement")
            .rounded("local_steps_per_second", per_second);
        report::line("softmax_mnist", &self.how, timed, &variant, &check)
    }
}

/// What may be chosen in W4.
#[derive(Debug, Args)]
pub struct QlsdPlusPlus {
    /// Images of a client: 200 in the peers' data.
    #[arg(long, default_value_t = 200)]
    ni: usize,
    /// Rounds that a reference point lasts; the iterations of a repeat are made a multiple of it.
    #[arg(long, default_value_t = 100)]
    refresh: u64,
    /// The numbers that sums over rows are made of; the peers' are of 32 bits.
    #[arg(long, value_enum, default_value = "f64")]
    arithmetic: Width,
    /// The code of the messages.
    #[arg(long, default_value = "auto")]
    code: CodeChoice,
    #[command(flatten)]
    how: How,
}

impl QlsdPlusPlus {
    pub fn run(&self) -> Result<String, String> {
        const CLIENTS: usize = 50;
        const PRIOR: f64 = 0.02;
        let images =
            Images::new(self.how.data.as_deref(), "w4", CLIENTS, self.ni, self.arithmetic.into())?;
        let prior = Prior::gaussian(PRIOR, DIM).map_err(|e| e.to_string())?;
        let shares = Placement::Split(vec![1.0 / CLIENTS as f64; CLIENTS]);
        let target =
            Target::new(images.clients.clone(), prior, shares, 1.0).map_err(|e| e.to_string())?;
        let qsgd = Compressor::qsgd(256);
        let rate = qsgd.omega(DIM).map(|omega| 1.0 / (1.0 + omega));
        let mut recipe = Uplink::qlsd_plus_plus(
            Schedule::Constant(1e-5),
            Batch::Fraction(0.1),
            self.refresh,
            rate,
            qsgd,
        );
        recipe.code = self.code;

        let dead = images.dead_parameters();
        // what no image moves starts in its stationary law, the prior
        let mut start = vec![0.0; DIM];
        dead.iter().zip(normals(8000, dead.len())).for_each(|(k, z)| start[*k] = PRIOR.sqrt() * z);
        let how =
            How { iters: self.how.iters.next_multiple_of(self.refresh.max(1)), ..self.how.clone() };
        let Finished { timed, watches, bits_up } =
            chains::run(&how, &Recipe::Uplink(recipe), target, &start, |_| Last::new(&[0.0; DIM]))?;

        let last = watches.into_iter().next().ok_or("there is no chain: use --chains 1")?;
        let dead_squares =
            dead.iter().map(|k| last.position[*k].powi(2)).sum::<f64>() / dead.len() as f64;
        let check = Fields::default()
            .with("iterations", last.moments.samples)
            .rounded("train_nll", images.loss(&last.position))
            .rounded("test_accuracy_of_mean", images.accuracy(&last.moments.mean()))
            .with("dead_pixels", images.dead.len())
            .rounded("dead_weight_var_over_prior", dead_squares / PRIOR)
            .rounded("dead_standard_error", (2.0 / dead.len() as f64).sqrt())
            .rounded(
                "mean_abs_theta",
                last.position.iter().map(|x| x.abs()).sum::<f64>() / DIM as f64,
            )
            .rounded("bits_up_a_message", bits_up);
        let variant = Fields::default()
            .with("arithmetic", self.arithmetic.name())
            .with("refresh_every", self.refresh)
            .with("code", self.code.to_string());
        report::line("qlsd_logreg", &how, timed, &variant, &check)
    }
}

/// Moments, and the newest draw.
struct Last {
    moments: Moments,
    position: Vec<f64>,
}

impl Last {
    fn new(centre: &[f64]) -> Self {
        Last { moments: Moments::about(centre), position: centre.to_vec() }
    }
}

impl Watch for Last {
    fn draw(&mut self, server: &dyn Sampler) {
        self.moments.draw(server);
        self.position.copy_from_slice(server.position());
    }
}

fn variance(x: &[f64], places: &[usize]) -> f64 {
    let n = places.len() as f64;
    let mean = places.iter().map(|k| x[*k]).sum::<f64>() / n;
    places.iter().map(|k| (x[*k] - mean).powi(2)).sum::<f64>() / n
}
