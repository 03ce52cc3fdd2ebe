//! Accept or reject proposals by noisy differences of potentials: family E, noisy potentials up.
//!
//! ```text
//! propose   x' = x + h z                                          everybody computes it
//! client i  says (U_i(x) - U_i(x')) / T + s |x' - x| xi_i         xi_i of its own, fresh
//! accept if log u < sum_i (what it says) + (U_0(x) - U_0(x')) / T - v / 2,
//!           v = b s^2 |x' - x|^2
//! ```
//!
//! The penalty method (Ceperley and Dewing 1999; Yildirim and Ermis 2019): where the noise is
//! exactly Gaussian, fresh in every iteration, and of a known variance `v` that is the same for the
//! way back, taking `v / 2` off leaves `exp(-U / T)` as it is, whatever `h` and `s` are. A row
//! moves a client's difference by at most `C |x' - x| / T`, at any two points, so that every answer
//! is one Gaussian release of the same size: `s T` against `C`. Nothing is clipped: differences
//! that are clipped are those of no potential, and draws would have another law.
//!
//! Without noise it is the Metropolis algorithm with random steps. The server sends one bit:
//! clients replay the chain, and answer at no other points than its own.

mod client;
mod rows;
mod server;
mod walk;

pub(super) use rows::{FAMILY, SAMPLERS};

use super::exact::{NoClosedForm, StationaryLaw, posterior};
use super::family::{Curvatures, Family, HEADER, Traffic};
use super::forecast::{ForecastMoments, QuadraticModel};
use super::metropolis::Shared;
use super::{Keys, Recipe, Sampler};
use crate::compress::{Channel, Precision};
use crate::error::DataError;
use crate::protocol::{Device, Kind};
use crate::rng::ClientId;
use crate::step::Schedule;
use crate::target::{Placement, Target};

/// A sampler of family E.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalty {
    /// `h`: the standard deviation of a step in every coordinate, which must be constant.
    pub step: Schedule,
    /// `s`: the standard deviation of a client's own noise on its difference of potentials (divided
    /// by the temperature), for points that are 1 apart.
    pub noise: f64,
}

impl Penalty {
    /// Random steps of this size, and so much noise of every client.
    pub fn new(step: f64, noise: f64) -> Self {
        Penalty { step: Schedule::Constant(step), noise }
    }
}

impl Family for Penalty {
    fn check(&self, target: Target) -> Result<Target, DataError> {
        let refuse = |what: String, why| Err(DataError::Unsupported { what, why });
        let Schedule::Constant(step) = self.step else {
            return refuse(
                "a step that decreases".into(),
                "a Metropolis chain whose step changes has no stationary law, and needs none that \
                 does: its draws are exact at any step",
            );
        };
        if !(step > 0.0 && step.is_finite()) {
            return Err(DataError::NotPositive { what: "the step", value: step });
        }
        if !(self.noise >= 0.0 && self.noise.is_finite()) {
            return refuse(
                format!("potential_noise = {}", self.noise),
                "it must be a positive number, or left out",
            );
        }
        if target.joint.as_ref().is_some_and(|model| !model.offers().values) {
            return refuse(
                "a model that gives gradients alone".into(),
                "whether a proposal is accepted depends on values: use lmc",
            );
        }
        // What clients say has a bound in their rows, and the prior has none.
        Ok(Target { placement: Placement::Server, ..target })
    }

    fn server(
        &self,
        target: &Target,
        start: &[f64],
        keys: Keys,
    ) -> Result<Box<dyn Sampler>, DataError> {
        let shared = Shared::new(target, keys.public);
        Ok(Box::new(server::Server::new(shared, self.step.largest(), self.noise, start)))
    }

    fn client(
        &self,
        target: &Target,
        id: ClientId,
        keys: Keys,
        _channel: Option<Channel>,
    ) -> Box<dyn Device> {
        Box::new(client::Client::new(target, id, keys, self.step.largest(), self.noise))
    }

    fn channels(&self, _target: &Target) -> Result<Vec<Option<Channel>>, DataError> {
        Ok(vec![None])
    }

    fn precision(&self) -> Precision {
        Precision::F64
    }

    fn step(&self) -> Schedule {
        self.step
    }

    fn with_step(&self, step: Schedule) -> Recipe {
        Recipe::Penalty(Penalty { step, ..*self })
    }

    fn draws_per_iteration(&self) -> f64 {
        1.0
    }

    fn traffic(&self, _target: &Target) -> Traffic {
        Traffic { exchanges: 1.0, up: 8.0 + HEADER, down: HEADER }
    }

    /// `s T`: a row moves the difference by `C |x' - x| / T`, and the noise is `s |x' - x|`.
    fn own_noise(
        &self,
        clients: usize,
        _dim: usize,
        temperature: f64,
    ) -> Result<Vec<f64>, DataError> {
        if self.noise <= 0.0 {
            return Err(DataError::NotPrivate {
                why: "penalty without potential_noise tells exact differences of potentials".into(),
                instead: "state sampler.potential_noise, e.g. 4 times privacy.row_norm",
            });
        }
        Ok(vec![self.noise * temperature; clients])
    }

    fn noise_in_sum(&self, clients: usize, _client: usize, colluding: usize) -> f64 {
        (clients.saturating_sub(colluding).max(1) as f64).sqrt()
    }

    /// As Roberts, Gelman and Gilks 1997 say for Gaussians, were all directions as narrow as the
    /// narrowest; smaller where noise would take a proposal's chance away.
    fn cautious_step(&self, found: Curvatures<'_>) -> f64 {
        let (dim, clients) = (found.dim.max(1) as f64, found.local_smoothness.len().max(1) as f64);
        let quiet = 2.38 / (dim * found.smoothness.max(f64::MIN_POSITIVE)).sqrt();
        // v = 1 at the usual length of a step
        let noisy = 1.0 / (self.noise * (dim * clients).sqrt()).max(f64::MIN_POSITIVE);
        quiet.min(noisy)
    }

    fn law(&self, target: &Target) -> Result<StationaryLaw, NoClosedForm> {
        posterior(target)
    }

    fn forecast(&self, _model: &QuadraticModel) -> Option<ForecastMoments> {
        None
    }

    fn is_exact(&self) -> bool {
        true
    }

    fn numbers(&self) -> &'static [&'static str] {
        &["acceptance_rate", "accepted"]
    }

    fn spares_answers(&self) -> bool {
        false
    }

    fn is_biased_by_design(&self, _target: &Target) -> bool {
        false
    }

    fn remedy(&self, _target: &Target) -> &'static str {
        "Run more iterations: its draws have no bias, only error"
    }

    fn answers(&self) -> Kind {
        Kind::Potential
    }
}
