//! Preconditioned chains have the law that theory gives them: with the Hessian made the identity,
//! LMC widens every direction by the same `1 / (1 - step/2)`.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_core::sampler::exact::{posterior, stationary};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Progress, sample};

const CONFIG: &str = r#"
[target]
model = "gaussian"
[target.prior]
law = "gaussian"
variance = [1.0, 50.0]
[[client]]
mean = [10.0, -2.0]
precision = [[100.0, 9.0], [9.0, 1.0]]
[[client]]
mean = [12.0, 3.0]
precision = [[50.0, -1.0], [-1.0, 0.5]]
[sampler]
name = "lmc"
step = 0.5
precondition = true
[run]
chains = 200
iterations = 500
burn_in = 20
start = "optimum"
"#;

/// Means and variances of 200 chains; each z-score fails by chance once in a million, and the
/// unpreconditioned law is far out.
#[test]
fn the_law_of_preconditioned_lmc() {
    let config =
        Config::parse(Source { file: "test".into(), folder: ".".into(), text: CONFIG.into() })
            .unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let truth = posterior(&problem.target).unwrap();
    let coordinates = plan.coordinates.as_ref().unwrap();
    let law = stationary(&plan.recipe, &plan.target).unwrap();
    let covariance = coordinates.outward_covariance(&law.covariance);
    for (found, posterior) in covariance.iter().zip(&truth.covariance) {
        assert!(
            (found - posterior / 0.75).abs() < 1e-6 * posterior.abs(),
            "the exact law in whitened coordinates: {found} {posterior}"
        );
    }

    let outcome = sample(&plan, &plan.length, 3, Sinks::Memory, &Progress::default()).unwrap();
    for k in 0..2 {
        let chains = outcome.draws.parameter(k);
        let score = |of: &dyn Fn(f64) -> f64, expected: f64| {
            let means: Vec<f64> = chains
                .iter()
                .map(|c| c.iter().map(|x| of(*x)).sum::<f64>() / c.len() as f64)
                .collect();
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            let variance =
                means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
            (mean - expected) / (variance / means.len() as f64).sqrt()
        };
        let square = |x: f64| (x - truth.mean[k]).powi(2);
        assert!(score(&|x| x, truth.mean[k]).abs() < 4.9);
        assert!(score(&square, truth.covariance[k * 3] / 0.75).abs() < 4.9);
        assert!(score(&square, truth.covariance[k * 3]).abs() > 4.9, "and it is not the posterior");
    }
    // Two numbers of 64 bits each: the optimum, the Hessian and the map were told, and counted.
    assert!(plan.survey_bits().1 > 0);
}
