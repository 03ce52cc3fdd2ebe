//! Sample a regression for ever from two private releases of every site: family D, moments up.
//!
//! ```text
//! 1   sum z z' + noise, z = (x, c y); logistic: sum x x', sum y x     -> a start theta0
//! 2   at theta0: sum x clamp(y - x'theta0); logistic: sum (y - p) x, sum p (1 - p) x x'
//! *   draws from prior times the density of both releases, their noise included
//! ```
//!
//! Every site adds noise of its own before anything leaves it ([`crate::privacy::Once`] says how
//! much), and answers twice: whatever the server does with the sums is computed from what was told
//! already. The law of the draws is the posterior given the noisy releases, which is wider than
//! that of the rows and covers what it should; it is approximate where log densities are far from
//! quadratic between the start and the posterior.

mod chain;
mod client;
mod posterior;
mod rows;
mod server;
mod start;

pub use rows::{DP_RELEASE, NOISE_RATIO};
pub(super) use rows::{FAMILY, SAMPLERS};

use super::exact::{NoClosedForm, StationaryLaw};
use super::family::{Curvatures, Family, Traffic};
use super::forecast::{ForecastMoments, QuadraticModel};
use super::{Keys, Recipe, Sampler};
use crate::compress::{Channel, Precision};
use crate::error::DataError;
use crate::linalg::add_scaled;
use crate::privacy::{Once, Released};
use crate::protocol::{Device, Kind, MOST_POINTS};
use crate::rng::ClientId;
use crate::step::Schedule;
use crate::target::{Placement, Target};

/// A sampler of family D.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// What is released, with how much noise; `None` where no budget is stated, and then nothing
    /// is.
    pub once: Option<Once>,
    /// Whether draws are wanted even where noise prevails: they are mostly those of the prior.
    pub weak: bool,
}

impl Release {
    /// How many coefficients there are of so many parameters.
    fn columns(&self, dim: usize) -> usize {
        match self.once.map(|once| once.regression) {
            Some(Released::Linear { noise_variance: None, .. }) => dim.saturating_sub(1),
            _ => dim,
        }
    }

    fn stated(&self) -> Result<Once, DataError> {
        self.once.ok_or(DataError::Unsupported {
            what: "dp-release without a budget".into(),
            why: "its noise is as large as the budget says: state [privacy]",
        })
    }
}

/// The bounds `B2` of residuals that may be asked for, where responses are clipped to within this.
fn bounds(response: f64) -> std::ops::RangeInclusive<f64> {
    2.5 / 60.0 * response..=2.5 * response
}

/// What the numbers of an answer are: the upper triangle of a symmetric matrix, row by row, then a
/// vector.
struct Answer {
    side: usize,
    vector: usize,
    /// What the vector is multiplied by, and its noise beside the deviation `t` of the matrix.
    weight: f64,
    second: bool,
}

impl Answer {
    /// That of a round, with so many coefficients.
    fn new(once: &Once, columns: usize, round: u64) -> Self {
        let (side, vector, weight) = match (round, once.regression) {
            (0, Released::Linear { .. }) => (columns + 1, 0, 1.0),
            (_, Released::Linear { .. }) => (0, columns, 1.0),
            (0, Released::Logistic) => (columns, columns, once.weight()),
            (_, Released::Logistic) => (columns, columns, 1.0),
        };
        Answer { side, vector, weight, second: round > 0 }
    }

    /// How many numbers the matrix has.
    fn triangle(&self) -> usize {
        self.side * (self.side + 1) / 2
    }

    fn len(&self) -> usize {
        self.triangle() + self.vector
    }

    /// Add `scale a a'`.
    fn add_square(&self, scale: f64, a: &[f64], sums: &mut [f64]) {
        let mut rest = sums;
        for i in 0..self.side {
            let (row, behind) = rest.split_at_mut(self.side - i);
            add_scaled(scale * a[i], &a[i..], row);
            rest = behind;
        }
    }

    /// Add `scale a` to the vector.
    fn add_pull(&self, scale: f64, a: &[f64], sums: &mut [f64]) {
        add_scaled(scale * self.weight, a, &mut sums[self.triangle()..]);
    }

    /// The deviation of the noise of every number, where residuals are held within `bound`.
    fn deviations(&self, once: &Once, bound: f64) -> Vec<f64> {
        let (matrix, vector) = if self.second {
            (once.hessian_deviation(), once.second_deviation(bound))
        } else {
            (once.first_deviation(), once.first_deviation())
        };
        let off = matrix * std::f64::consts::FRAC_1_SQRT_2;
        let mut all = Vec::with_capacity(self.len());
        for i in 0..self.side {
            all.push(matrix);
            all.extend(std::iter::repeat_n(off, self.side - i - 1));
        }
        all.extend(std::iter::repeat_n(vector, self.vector));
        all
    }
}

impl Family for Release {
    fn check(&self, target: Target) -> Result<Target, DataError> {
        let once = self.stated()?;
        let refuse = |what: String, why| Err(DataError::Unsupported { what, why });
        let (dim, columns) = (target.dim(), self.columns(target.dim()));
        if columns == 0 || Answer::new(&once, columns, 0).len() as u64 > MOST_POINTS {
            return refuse(
                format!("a release of {dim} parameters"),
                "there must be 1 to 350 coefficients",
            );
        }
        if target.temperature != 1.0 {
            return refuse(
                format!("a temperature of {}", target.temperature),
                "the noise of a release is part of the model, which knows Bayes alone: use 1",
            );
        }
        if target.prior.is_flat(dim) {
            return refuse(
                "a flat prior".into(),
                "where noise prevails nothing else holds the parameters: state a law for each, \
                 e.g. law = \"normal(0, 2.5)\", of = { sigma = \"exponential(1)\" }",
            );
        }
        Ok(Target { placement: Placement::Server, ..target })
    }

    fn server(
        &self,
        target: &Target,
        _start: &[f64],
        keys: Keys,
    ) -> Result<Box<dyn Sampler>, DataError> {
        Ok(Box::new(server::Server::new(self, self.stated()?, target, keys)))
    }

    fn client(
        &self,
        target: &Target,
        id: ClientId,
        keys: Keys,
        _channel: Option<Channel>,
    ) -> Box<dyn Device> {
        // Checked before: there is always a budget.
        let nothing = Once {
            regression: Released::Logistic,
            row_norm: 1.0,
            neighbour: crate::privacy::Neighbour::Replace,
            mu: f64::MIN_POSITIVE,
            person: 1,
        };
        Box::new(client::Client::new(target, id, keys, self.once.unwrap_or(nothing)))
    }

    fn channels(&self, _target: &Target) -> Result<Vec<Option<Channel>>, DataError> {
        Ok(vec![None])
    }

    fn precision(&self) -> Precision {
        Precision::F64
    }

    fn step(&self) -> Schedule {
        Schedule::Constant(1.0)
    }

    fn with_step(&self, _step: Schedule) -> Recipe {
        Recipe::Release(self.clone())
    }

    fn draws_per_iteration(&self) -> f64 {
        1.0
    }

    fn traffic(&self, _target: &Target) -> Traffic {
        Traffic { exchanges: 0.0, up: 0.0, down: 0.0 } // two answers in all, and none a draw
    }

    fn own_noise(
        &self,
        clients: usize,
        _dim: usize,
        _temperature: f64,
    ) -> Result<Vec<f64>, DataError> {
        // That of the gradient of the second release, where a row pulls by its length.
        Ok(vec![self.stated()?.second_deviation(1.0); clients])
    }

    fn noise_in_sum(&self, clients: usize, _client: usize, colluding: usize) -> f64 {
        (clients.saturating_sub(colluding).max(1) as f64).sqrt()
    }

    fn cautious_step(&self, _found: Curvatures<'_>) -> f64 {
        1.0
    }

    fn law(&self, _target: &Target) -> Result<StationaryLaw, NoClosedForm> {
        Err(NoClosedForm::Unknown {
            what: "draws given noisy releases".into(),
            instead: "their coverage is tested (crates/core/tests/release_once.rs)",
        })
    }

    fn forecast(&self, _model: &QuadraticModel) -> Option<ForecastMoments> {
        None
    }

    fn numbers(&self) -> &'static [&'static str] {
        &["acceptance_rate", NOISE_RATIO]
    }

    fn spares_answers(&self) -> bool {
        false
    }

    fn is_biased_by_design(&self, _target: &Target) -> bool {
        false
    }

    fn remedy(&self, _target: &Target) -> &'static str {
        "State a larger budget, or more rows: the draws are those of what was released"
    }

    fn answers(&self) -> Kind {
        Kind::Survey
    }
}
