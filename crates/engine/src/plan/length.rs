//! Decide how long chains are, where the config says only how many effective draws are wanted.

use consilience_core::sampler::Recipe;

use super::Findings;
use super::choice::CHAINS;
use crate::config::RunConfig;
use crate::run::Length;
use crate::warnings::{Code, Warning};

/// Chains are so much longer than the slowest direction of a Gaussian posterior would need: others
/// have slower ones.
pub(super) const MARGIN: f64 = 1.3;
/// The fewest and the most iterations of a chain whose length is left open.
const LEAST_ITERATIONS: f64 = 1000.0;
const MOST_ITERATIONS: f64 = 5e5;
/// How many draws a chain whose length is left open keeps, about.
const KEPT_DRAWS: f64 = 5000.0;

/// The length of the chains of a recipe.
///
/// In the slowest direction a chain forgets at the rate `step * m` an iteration, so that one
/// effective draw takes `2 / (step * m)` of them.
pub(super) fn length(
    run: &RunConfig,
    recipe: &Recipe,
    findings: Option<&Findings>,
    warnings: &mut Vec<Warning>,
) -> Length {
    let (chains, threads) = (run.chains.unwrap_or(CHAINS), run.threads);
    let Some(iterations) = run.iterations else {
        let (step, rate) = (recipe.step().largest(), recipe.family().draws_per_iteration());
        let forgets = findings.map_or(0.0, |found| step * found.convexity);
        let each = if forgets > 0.0 { (2.0 / forgets).max(1.0 / rate) } else { 1.0 / rate };
        let wanted = if forgets > 0.0 {
            MARGIN * run.effective_draws as f64 / chains as f64 * each
        } else {
            GUESS
        };
        let kept = wanted.ceil().clamp(LEAST_ITERATIONS, MOST_ITERATIONS);
        if forgets <= 0.0 {
            let says = format!(
                "nothing is known of how fast these chains forget, so that {GUESS} iterations are \
                 a guess"
            );
            warnings.push(
                Warning::new(Code::LengthGuessed, says)
                    .remedy("State run.iterations, or leave the step out")
                    .number("iterations", GUESS),
            );
        } else if wanted > 1.01 * kept {
            let says = format!(
                "{} effective draws would take about {wanted:.1e} iterations of each chain at step \
                 {step:.1e}; they stop after {kept:.1e}",
                run.effective_draws
            );
            let narrow = findings.is_some_and(|found| found.convexity < 0.5 * found.smoothness);
            let remedy = format!(
                "State run.iterations for more, or use a sampler that takes larger steps, such as \
                 qlsd++{}",
                if narrow { ", and precondition = true" } else { "" }
            );
            warnings.push(
                Warning::new(Code::LengthCapped, says)
                    .remedy(remedy)
                    .number("wanted", wanted)
                    .number("iterations", kept),
            );
        }
        let burn_in = run.burn_in.unwrap_or((kept / 9.0).ceil() as u64);
        let thin = run.thin.unwrap_or(((kept * rate / KEPT_DRAWS) as u64).max(1));
        return Length { chains, iterations: burn_in + kept as u64, burn_in, thin, threads };
    };
    Length {
        chains,
        iterations,
        burn_in: run.burn_in.unwrap_or(iterations / 10),
        thin: run.thin.unwrap_or(1),
        threads,
    }
}

/// The iterations of a chain of which nothing is known.
const GUESS: f64 = 10_000.0;

/// The least step with which a chain can give the effective draws that are wanted in the iterations
/// that it may have.
pub(super) fn least_step(run: &RunConfig, convexity: f64) -> f64 {
    let most = run.iterations.map_or(MOST_ITERATIONS, |iterations| 0.9 * iterations as f64);
    2.0 * MARGIN * run.effective_draws as f64
        / (run.chains.unwrap_or(CHAINS) as f64 * convexity * most)
}
