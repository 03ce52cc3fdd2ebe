//! Compare a sampler's draws with the truth: their errors, and what they cost.

use consilience_core::measure::{Chains, Gaussian, ess_bulk, ess_tail, mcse_mean};
use consilience_core::protocol::{Direction, Ledger};
use consilience_core::sampler::exact::posterior;
use consilience_engine::config::Config;
use consilience_engine::draws::Draws;
use consilience_engine::growth::growth;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::reference::{self, Reference, ReferenceSettings};
use consilience_engine::run::Outcome;

use crate::Contender;

/// How many draws the pooled reference has, in each of four chains, where the posterior is not
/// known exactly.
const REFERENCE_DRAWS: usize = 8000;

/// What the posterior is, exactly or from pooled rows.
#[derive(Clone, Debug)]
pub struct Truth {
    /// How it was found, in words.
    pub how: String,
    /// The Monte Carlo error of its means, in standard deviations (root mean square); none where it
    /// is exact.
    pub error: Option<f64>,
    gaussian: Gaussian,
    sd: Vec<f64>,
}

impl Truth {
    /// Find the truth of a problem: by formula, else from a reference that is at hand, else from
    /// one that is made.
    pub fn find(
        config: &Config,
        problem: &Problem,
        plan: &Plan,
        kept: Option<Reference>,
    ) -> Result<Truth, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("no reference could be made: {e}");
        if let Ok(law) = posterior(&problem.target) {
            let gaussian = Gaussian::new(&law.mean, &law.covariance).map_err(|e| wrong(&e))?;
            return Ok(Truth {
                how: "the exact posterior".into(),
                sd: gaussian.sd(),
                gaussian,
                error: None,
            });
        }
        let start = plan
            .findings
            .as_ref()
            .map_or_else(|| vec![0.0; problem.target.dim()], |f| f.optimum.clone());
        let settings = ReferenceSettings { chains: 4, draws: REFERENCE_DRAWS, seed: config.seed };
        let reference = match kept {
            Some(kept) => kept,
            None => reference::mala(problem, &start, settings).map_err(|e| wrong(&e))?,
        };
        let rows: Vec<f64> = reference.draws.rows().flatten().copied().collect();
        let gaussian = Gaussian::of_draws(&rows, problem.target.dim()).map_err(|e| wrong(&e))?;
        let sd = gaussian.sd();
        let square = |k: usize| {
            let all = reference.draws.parameter(k).concat();
            Chains::flat(&all, reference.draws.chains())
                .map_or(f64::NAN, |chains| (mcse_mean(&chains) / sd[k]).powi(2))
        };
        let error = ((0..sd.len()).map(square).sum::<f64>() / sd.len() as f64).sqrt();
        Ok(Truth {
            how: format!("pooled rows ({})", reference.describe()),
            sd,
            gaussian,
            error: Some(error).filter(|e| e.is_finite()),
        })
    }

    /// The largest error of a mean in posterior standard deviations, the largest relative error of
    /// a standard deviation, and W2 between Gaussians with these moments.
    fn errors(&self, draws: &Draws) -> [f64; 3] {
        let rows: Vec<f64> = draws.rows().flatten().copied().collect();
        let Ok(found) = Gaussian::of_draws(&rows, draws.dim()) else { return [f64::NAN; 3] };
        let largest = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(0.0f64, |m, v| if v > m || v.is_nan() { v } else { m })
        };
        let means = largest(
            &mut found
                .mean()
                .iter()
                .zip(self.gaussian.mean())
                .zip(&self.sd)
                .map(|((a, b), sd)| (a - b).abs() / sd),
        );
        let spreads =
            largest(&mut found.sd().iter().zip(&self.sd).map(|(a, b)| (a / b - 1.0).abs()));
        [means, spreads, found.w2(&self.gaussian).unwrap_or(f64::NAN)]
    }

    /// How a run of this name, which took so many seconds, compares.
    pub fn judge(
        &self,
        name: &str,
        config: &Config,
        plan: &Plan,
        outcome: &Outcome,
        seconds: f64,
    ) -> Contender {
        let (ledger, survey) = (&outcome.ledger, &plan.survey);
        let bits = |direction| (survey.total(direction), ledger.total(direction));
        let (up, down) = (bits(Direction::Up), bits(Direction::Down));
        let rounds = |ledger: &Ledger| {
            ledger.messages(Direction::Down) / plan.target.clients.len().max(1) as u64
        };
        let sampler = if config.sampler.row.is_auto() {
            format!("auto: {}", plan.row.name)
        } else {
            plan.row.name.into()
        };
        Contender {
            config: name.into(),
            sampler,
            step: plan.row.has_step().then(|| plan.step().largest()),
            chains: (outcome.draws.chains(), plan.length.iterations),
            growth: growth(&outcome.draws, &outcome.statistics, self.gaussian.mean(), &self.sd),
            errors: self.errors(&outcome.draws),
            ess: least_ess(&outcome.draws),
            bits: (up.0 + up.1, down.0 + down.1),
            surveys: up.0 + down.0,
            exchanges: (rounds(survey), rounds(ledger)),
            gradients: outcome.rows_evaluated,
            seconds,
        }
    }
}

/// The smallest effective sample size of any parameter, bulk or tail.
fn least_ess(draws: &Draws) -> f64 {
    let of = |k: usize| {
        let chains = draws.parameter(k);
        let slices: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
        Chains::new(&slices).map_or(f64::NAN, |chains| ess_bulk(&chains).min(ess_tail(&chains)))
    };
    (0..draws.dim()).map(of).fold(f64::INFINITY, |m, e| if e < m || e.is_nan() { e } else { m })
}
