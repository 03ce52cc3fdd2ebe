//! Let clients draw the Langevin noise themselves, before anything leaves them.
//!
//! ```text
//! clients  send C_i(H_i + s_i xi_i),   s_i^2 = share 2 T / (gamma omega_i^2)
//! server   x <- x - gamma (g + grad U_0(x)) + sqrt(2 gamma T - gamma^2 v) Z,
//!          v = sum_{i in A} omega_i^2 (s_i^2 + e_i)
//! ```
//!
//! `xi_i` comes from the client's private key: whoever sees the answer sees its rows through noise
//! of deviation `s_i`. `e_i` is the variance of rounding to levels. The step has the noise
//! `2 gamma T` as before, so the law of the chain is that without privacy and without rounding.

use super::{MemoryRule, NoiseSource, Oracle, Uplink};
use crate::error::DataError;
use crate::privacy::MOST_BITS;
use crate::rng::ClientId;
use crate::sampler::participation::{Participation, Weighting};
use crate::sampler::recipe::Batch;
use crate::step::{Schedule, error_for_share};
use crate::target::Target;

impl Uplink {
    /// `s_i` of a client of the target, where clients draw noise.
    pub(super) fn deviation(&self, client: ClientId, target: &Target) -> Option<f64> {
        let (clients, step) = (target.clients.len(), self.step.largest());
        self.private?;
        Some(self.deviation_of(client.index(), clients, step, target.temperature))
    }

    fn deviation_of(&self, client: usize, clients: usize, step: f64, temperature: f64) -> f64 {
        let b = clients as f64;
        let (most, weight) = match &self.participation {
            Participation::All => (b, 1.0),
            Participation::Fixed(size) => (*size as f64, b / *size as f64),
            // How many take part is known when all have: each draws the share of one of all.
            Participation::Bernoulli(p) | Participation::Elastic(p) => (b, 1.0 / p[client]),
        };
        let left = 1.0 - self.private.map_or(0.0, |private| private.server_share);
        error_for_share(step, temperature, left / most, weight)
    }

    /// `s_i` of every client; or why this recipe keeps no rows private.
    pub(super) fn own_noise(
        &self,
        clients: usize,
        dim: usize,
        temperature: f64,
    ) -> Result<Vec<f64>, DataError> {
        let refuse = |why: &str, instead: &'static str| {
            Err(DataError::NotPrivate { why: why.to_owned(), instead })
        };
        let Schedule::Constant(step) = self.step else {
            return refuse(
                "its noise changes with the step, and a budget is kept by counting rounds alike",
                "state a constant step",
            );
        };
        if self.noise == NoiseSource::Compression {
            return refuse(
                "everybody knows the random numbers of its compressor",
                "use qlsd, whose clients draw noise of their own",
            );
        }
        if self.oracle != Oracle::Plain {
            return refuse(
                "the gradient at the reference point of its control variates is an exact function \
                 of rows, and noise on it would not be fresh in every round",
                "use lmc, sgld, qlsd or qlsd#",
            );
        }
        if self.memory_rate.is_some() || self.memory_rule != MemoryRule::FromZero {
            return refuse(
                "what its memory holds back arrives rounds later, and the noise with it",
                "use qlsd or qlsd#, without memory",
            );
        }
        let ratio = self.weighting == Weighting::Ratio;
        match &self.participation {
            Participation::All | Participation::Fixed(_) => {}
            Participation::Bernoulli(_) if !ratio => {}
            Participation::Bernoulli(_) | Participation::Elastic(_) => {
                return refuse(
                    "what an answer counts for is known only when all have answered, and its noise \
                     is drawn before",
                    "use participation by a fixed number of clients, or weights 1/p",
                );
            }
        }
        if let Some(sum) = self.secure {
            self.check_secure(clients)?;
            let own = sum.variance(clients).sqrt() * sum.grid(step, temperature);
            return Ok(vec![own; clients]);
        }
        for compressor in self.up.iter().filter(|c| c.plain().is_none()) {
            let Some(width) = compressor.level_width() else {
                return Err(DataError::NotPrivate {
                    why: format!(
                        "{compressor} changes the size of noise that has gone through it by more \
                         than is known"
                    ),
                    instead: "compress by qsgd(s), with s at least the root of the number of \
                              parameters, or not at all",
                });
            };
            if width * (dim as f64).sqrt() > 1.0 {
                return Err(DataError::NotPrivate {
                    why: format!(
                        "{compressor} rounds {dim} parameters to levels wider than the noise"
                    ),
                    instead: "use as many levels as the root of the number of parameters, or more",
                });
            }
        }
        if let Some(private) = self.private
            && !(0.0..1.0).contains(&private.server_share)
        {
            return refuse(
                "the server's share of the noise must be at least 0 and below 1",
                "leave it out",
            );
        }
        Ok((0..clients).map(|i| self.deviation_of(i, clients, step, temperature)).collect())
    }

    /// The grid, the bits and the variance of a client's noise of a secure sum, where there is one.
    pub(super) fn levels(&self, target: &Target) -> Option<(f64, u32, f64)> {
        let (sum, step, temperature) = (self.secure?, self.step.largest(), target.temperature);
        let rows = target.clients.iter().map(|client| client.rows() as u64).sum();
        let variance = sum.variance(target.clients.len());
        Some((sum.grid(step, temperature), sum.bits(rows, step, temperature), variance))
    }

    /// Why the server needs more than a sum of levels, if it does.
    fn check_secure(&self, clients: usize) -> Result<(), DataError> {
        let refuse = |why: &str, instead: &'static str| {
            Err(DataError::NotPrivate { why: format!("secure sum: {why}"), instead })
        };
        if clients < 2 {
            return refuse("the sum over one client is that client", "leave out secure_sum");
        }
        if self.participation != Participation::All {
            return refuse(
                "masks cancel only in the sum of everybody, and the difference of two cohorts is a \
                 client",
                "let everybody take part",
            );
        }
        if self.batch != Batch::Full {
            return refuse(
                "no bound is known for minibatches under its noise",
                "use batch = \"all\": at the same noise it is cheaper, too",
            );
        }
        if self.up.iter().any(|compressor| compressor.plain().is_none()) {
            return refuse(
                "it rounds to levels of its own, which are all that is sent",
                "use lmc, or leave out compress",
            );
        }
        Ok(())
    }

    /// Refuse a secure sum over this target that no message can carry.
    pub(super) fn check_levels(&self, target: &Target) -> Result<(), DataError> {
        match self.levels(target) {
            Some((grid, bits, _)) if bits > MOST_BITS || !(grid > 0.0 && grid.is_finite()) => {
                Err(DataError::NotPrivate {
                    why: format!(
                        "secure sum: its levels are {grid:e} apart and would take {bits} bits, \
                         where {MOST_BITS} are the most"
                    ),
                    instead: "use a smaller step or row_norm",
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether answers are rounded to levels with the noise of their clients in them.
    pub(super) fn is_rounded_with_noise(&self) -> bool {
        self.private.is_some() && self.up.iter().any(|compressor| compressor.plain().is_none())
    }

    /// `e_i / s_i^2` where noise is all there is: `d / (6 S^2)`.
    pub(super) fn heat_of_rounding(&self, dim: usize) -> f64 {
        let widths = self.up.iter().filter_map(|c| c.level_width());
        widths.map(|width| dim as f64 * width * width / 6.0).fold(0.0, f64::max)
    }
}
