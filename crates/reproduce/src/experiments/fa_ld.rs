//! Compute FA-LD's toy Gaussian exactly: mean and covariance after every round, by recursion.
//!
//! Every client walks `x <- M_c x + eta b_c / p_c + noise` with `M_c = I - eta H_c / p_c`, so the
//! synchronised parameter is a random affine map of the one before, and its first two moments
//! follow a recursion in 2 x 2 matrices. With all clients the law is Gaussian; with some of them it
//! is a mixture, of which mean and covariance are still exact.

use std::sync::Arc;

use consilience_core::measure::Gaussian as Normal;
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::rng::{ClientId, Purpose, Seed, Stream};
use consilience_core::sampler::{Average, Batch, Local, Recipe, Synchronise, exact};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::data::partition::toy_fa_ld;
use nalgebra::{Matrix2, Vector2};

use crate::experiment::Trouble;

/// The toy Gaussian of section 7.1.
pub struct Toy {
    /// What is sampled.
    pub target: Target,
    /// The posterior.
    pub posterior: Normal,
    /// How unlike the clients are: the greatest `norm(grad f^c(x*))^2`.
    pub gamma: f64,
}

impl Toy {
    /// Clients with so many rows each, whose means alpha moves apart. Of the rows only the mean
    /// counts, so it alone is drawn: N(theta_c, Sigma / rows).
    pub fn new(clients: usize, rows: usize, alpha: f64, seed: u64) -> Result<Self, Trouble> {
        let seed = Seed::new(seed);
        let [a, b, _, d] = toy_fa_ld::COVARIANCE;
        let determinant = a * d - b * b;
        let precision = [d, -b, -b, a].map(|v| v / determinant * rows as f64);
        let root = [a.sqrt(), b / a.sqrt(), (d - b * b / a).sqrt()];
        let client = |(k, theta): (u32, [f64; 2])| -> Result<Arc<dyn Model>, Trouble> {
            let mut z = [0.0; 2];
            seed.stream(Purpose::Data, ClientId(k), 1).normals(&mut z);
            let z = z.map(|z| z / (rows as f64).sqrt());
            let mean = vec![theta[0] + root[0] * z[0], theta[1] + root[1] * z[0] + root[2] * z[1]];
            Ok(Arc::new(Gaussian::new(mean, precision.to_vec())?))
        };
        let all = (0..)
            .zip(toy_fa_ld::make(clients, alpha, seed))
            .map(client)
            .collect::<Result<_, _>>()?;
        Toy::of(Target::new(all, Prior::Flat, Placement::Server, 1.0)?)
    }

    fn of(target: Target) -> Result<Self, Trouble> {
        let law = exact::posterior(&target).map_err(|e| Trouble::Other(e.to_string()))?;
        let posterior =
            Normal::new(&law.mean, &law.covariance).map_err(|e| Trouble::Other(e.to_string()))?;
        let b = target.clients.len() as f64;
        let affine = target
            .clients
            .iter()
            .map(|client| quadratic(client.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let optimum = Vector2::from_column_slice(&law.mean);
        let gamma =
            affine.iter().map(|(h, r)| ((h * optimum - r) * b).norm_squared()).fold(0.0, f64::max);
        Ok(Toy { target, posterior, gamma })
    }

    /// FA-LD with equal weights and full gradients.
    pub fn recipe(&self, eta: f64, every: u64, rho: f64) -> Local {
        let b = self.target.clients.len();
        Local::fa_ld(Schedule::Constant(eta), vec![1.0 / b as f64; b], every, rho, Batch::Full)
    }

    /// The distance of a law from the posterior.
    pub fn w2(&self, law: &Law) -> Result<f64, Trouble> {
        let law = Normal::new(law.mean.as_slice(), law.covariance.as_slice())
            .and_then(|law| law.w2(&self.posterior));
        law.map_err(|e| Trouble::Other(e.to_string()))
    }

    /// The distance that the paper reports: of the Gaussian that fits these draws.
    pub fn estimated_w2(&self, draws: &[f64]) -> Result<f64, Trouble> {
        Normal::of_draws(draws, 2)
            .and_then(|law| law.w2(&self.posterior))
            .map_err(|e| Trouble::Other(e.to_string()))
    }

    /// A sampler as [`Chain`](crate::chain::Chain) needs it.
    pub fn sampler(recipe: Local) -> Recipe {
        Recipe::Local(recipe)
    }
}

fn quadratic(client: &dyn Model) -> Result<(Matrix2<f64>, Vector2<f64>), Trouble> {
    let form = client
        .quadratic()
        .ok_or_else(|| Trouble::Other("the toy's clients are Gaussian".into()))?;
    Ok((Matrix2::from_row_slice(&form.precision), Vector2::from_column_slice(&form.shift)))
}

/// Mean and covariance of a draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// The mean.
    pub mean: Vector2<f64>,
    /// The covariance.
    pub covariance: Matrix2<f64>,
}

impl Law {
    /// All mass at one point.
    pub fn at(point: [f64; 2]) -> Self {
        Law { mean: Vector2::from(point), covariance: Matrix2::zeros() }
    }

    /// A draw in units of this law: mean 0 and covariance I if it follows it.
    pub fn standardise(&self, draw: &[f64]) -> Result<[f64; 2], Trouble> {
        let root = self
            .covariance
            .cholesky()
            .ok_or_else(|| Trouble::Other("a law without spread".into()))?;
        let z = root.l().solve_lower_triangular(&(Vector2::from_column_slice(draw) - self.mean));
        z.map(Into::into).ok_or_else(|| Trouble::Other("a law without spread".into()))
    }
}

/// What `K` local steps make of the parameter that they start from: `matrix x + shift + noise`.
struct Walk {
    matrix: Matrix2<f64>,
    shift: Vector2<f64>,
    noise: Matrix2<f64>,
}

/// One round of FA-LD as a map of laws.
pub struct Round {
    walks: Vec<Walk>,
    /// The mean of all clients.
    whole: Walk,
    /// `E[w w'] = together p p' + diag(alone)` for the random weights `w` of those who are
    /// averaged, with mean `p`.
    together: f64,
    alone: Vec<f64>,
}

impl Round {
    /// The round of a recipe with a constant step that synchronises every so many steps.
    pub fn new(recipe: &Local, target: &Target) -> Result<Self, Trouble> {
        let (Schedule::Constant(eta), Synchronise::Every(steps)) =
            (recipe.step, recipe.synchronise)
        else {
            return Err(Trouble::Other(
                "a round needs a constant step and a fixed number of local steps".into(),
            ));
        };
        let b = target.clients.len();
        let (variance, rho) = (2.0 * eta * target.temperature, recipe.correlation);
        let private = variance * (1.0 - rho * rho) * recipe.noise.factor(recipe.average, b);
        let shared = variance * rho * rho;
        let affine = target
            .clients
            .iter()
            .map(|client| quadratic(client.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let p = &recipe.weights;
        let one_step: Vec<(Matrix2<f64>, Vector2<f64>)> = affine
            .iter()
            .zip(p)
            .map(|((h, r), p)| (Matrix2::identity() - h * (eta / p), r * (eta / p)))
            .collect();
        let mut powers = vec![Matrix2::identity(); b];
        let (mut shifts, mut noises) = (vec![Vector2::zeros(); b], vec![Matrix2::zeros(); b]);
        let mut noise_of_all = Matrix2::zeros();
        for _ in 0..steps {
            let mut mean_power = Matrix2::zeros();
            for c in 0..b {
                let (matrix, shift) = &one_step[c];
                let square = powers[c] * powers[c].transpose();
                shifts[c] += powers[c] * shift;
                noises[c] += square * (shared + private / p[c]);
                noise_of_all += square * (private * p[c]);
                mean_power += powers[c] * p[c];
                powers[c] *= matrix;
            }
            noise_of_all += mean_power * mean_power.transpose() * shared;
        }
        let mean =
            |list: &[Matrix2<f64>]| list.iter().zip(p).map(|(m, p)| m * *p).sum::<Matrix2<f64>>();
        let whole = Walk {
            matrix: mean(&powers),
            shift: shifts.iter().zip(p).map(|(s, p)| s * *p).sum::<Vector2<f64>>(),
            noise: noise_of_all,
        };
        let walks = (0..b)
            .map(|c| Walk { matrix: powers[c], shift: shifts[c], noise: noises[c] })
            .collect();
        let n = b as f64;
        let (together, alone) = match recipe.average {
            Average::All => (1.0, vec![0.0; b]),
            Average::WithReplacement(s) => {
                (1.0 - 1.0 / s as f64, p.iter().map(|p| p / s as f64).collect())
            }
            Average::WithoutReplacement(s) => {
                let s = s as f64;
                let together = n * (s - 1.0) / (s * (n - 1.0));
                (together, p.iter().map(|p| 1.0 / (s * n) - together * p * p).collect())
            }
        };
        Ok(Round { walks, whole, together, alone })
    }

    /// The law after a round that starts from this one.
    pub fn apply(&self, law: &Law) -> Law {
        let after = |walk: &Walk| {
            let mean = walk.matrix * law.mean + walk.shift;
            (mean, walk.matrix * law.covariance * walk.matrix.transpose() + walk.noise)
        };
        let (mean, covariance) = after(&self.whole);
        let mut all = covariance * self.together;
        for (walk, alone) in self.walks.iter().zip(&self.alone).filter(|(_, alone)| **alone != 0.0)
        {
            let (own, covariance) = after(walk);
            // sum_c alone_c = 1 - together, and sum_c alone_c (own_c - mean) = 0
            let apart = own - mean;
            all += (covariance + apart * apart.transpose()) * *alone;
        }
        Law { mean, covariance: (all + all.transpose()) * 0.5 }
    }

    /// The stationary law: rounds until nothing moves.
    pub fn stationary(&self, from: &Law) -> Law {
        let mut law = *from;
        for _ in 0..MOST_ROUNDS {
            let next = self.apply(&law);
            let moved = (next.mean - law.mean).amax()
                + (next.covariance - law.covariance).amax().sqrt() * 1e-3;
            law = next;
            if moved < 1e-13 {
                break;
            }
        }
        law
    }

    /// Move one draw by a round in which all take part: a draw from the law that the real chain
    /// has, at the cost of one step.
    pub fn draw(&self, draws: &mut [f64], stream: &mut Stream) -> Result<(), Trouble> {
        let root = self
            .whole
            .noise
            .cholesky()
            .ok_or_else(|| Trouble::Other("a round without noise".into()))?
            .l();
        let mut z = vec![0.0; draws.len()];
        stream.normals(&mut z);
        for (x, z) in draws.chunks_exact_mut(2).zip(z.chunks_exact(2)) {
            let next = self.whole.matrix * Vector2::new(x[0], x[1])
                + self.whole.shift
                + root * Vector2::new(z[0], z[1]);
            x.copy_from_slice(next.as_slice());
        }
        Ok(())
    }
}

/// Where a search for the stationary law ends in any case.
const MOST_ROUNDS: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use consilience_core::sampler::NoiseScale;

    fn lopsided() -> Target {
        let client = |mean: [f64; 2], precision: [f64; 4]| {
            Arc::new(Gaussian::new(mean.to_vec(), precision.to_vec()).unwrap()) as Arc<dyn Model>
        };
        let clients = vec![
            client([1.0, -2.0], [2.0, 0.5, 0.5, 1.0]),
            client([-3.0, 0.0], [1.0, -0.2, -0.2, 3.0]),
            client([0.5, 4.0], [0.7, 0.0, 0.0, 0.4]),
        ];
        Target::new(clients, Prior::Flat, Placement::Server, 0.7).unwrap()
    }

    #[test]
    fn rounds_end_in_the_stationary_law_that_the_core_knows() {
        let target = lopsided();
        let third = vec![1.0 / 3.0; 3];
        for average in [Average::All, Average::WithReplacement(2), Average::WithoutReplacement(2)] {
            for noise in [NoiseScale::Everybody, NoiseScale::Participants] {
                let recipe = Local {
                    average,
                    noise,
                    ..Local::fa_ld(Schedule::Constant(0.03), third.clone(), 4, 0.6, Batch::Full)
                };
                let checked = Recipe::Local(recipe.clone()).check(target.clone()).unwrap();
                let expected = exact::stationary(&Recipe::Local(recipe.clone()), &checked).unwrap();
                let law = Round::new(&recipe, &target).unwrap().stationary(&Law::at([9.0, 9.0]));
                for (a, b) in law.mean.iter().zip(&expected.mean) {
                    assert!((a - b).abs() < 1e-9, "{average:?} {noise:?}: {a} {b}");
                }
                for (a, b) in law.covariance.iter().zip(&expected.covariance) {
                    assert!((a - b).abs() < 1e-9, "{average:?} {noise:?}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn where_clients_curve_alike_neither_local_steps_nor_correlation_matter() {
        let toy = Toy::new(5, 40, 10.0, 3).unwrap();
        let law = |every: u64, rho: f64| {
            let round = Round::new(&toy.recipe(1e-4, every, rho), &toy.target).unwrap();
            (0..60 / every).fold(Law::at([0.0; 2]), |law, _| round.apply(&law))
        };
        let one = law(1, 0.0);
        for (every, rho) in [(1, 0.9), (12, 0.0), (60, 0.5)] {
            let other = law(every, rho);
            assert!(
                (one.mean - other.mean).amax() < 1e-12
                    && (one.covariance - other.covariance).amax() < 1e-14
            );
        }
        assert!(toy.w2(&one).unwrap() > 0.1, "it has not arrived yet");
    }

    #[test]
    fn standardised_draws_have_mean_0_and_covariance_1() {
        let law =
            Law { mean: Vector2::new(1.0, 2.0), covariance: Matrix2::new(4.0, 2.0, 2.0, 10.0) };
        let z = law.standardise(&[3.0, 6.0]).unwrap();
        // L = [[2, 0], [1, 3]]
        assert!((z[0] - 1.0).abs() < 1e-15 && (z[1] - 1.0).abs() < 1e-15, "{z:?}");
    }
}
