//! Refuse what family B cannot do, by name, and give the prior to the clients.

use super::super::recipe::Batch;
use super::{Average, Local, Synchronise};
use crate::error::DataError;
use crate::step::{Schedule, error_for_share};
use crate::target::{Placement, Target, check_probabilities};

/// Walks go by minibatches of one size.
fn check_each(recipe: &Local) -> Result<(), DataError> {
    if let Batch::Each(_) = recipe.batch {
        return Err(DataError::NotPrivate {
            why: "its clients walk by minibatches of one size, and not by rows that are drawn one \
                  by one"
                .into(),
            instead: "use sgld or qlsd#, or leave out privacy.sampling",
        });
    }
    Ok(())
}

/// Check the recipe against the target, and split the prior by `p_c` unless it is split already, or
/// the server draws.
pub(super) fn check(recipe: &Local, target: Target) -> Result<Target, DataError> {
    let b = target.clients.len();
    let refuse = |what, problem: String| Err(DataError::Weights { what, problem });
    check_probabilities("the clients' weights", &recipe.weights, b)?;
    check_each(recipe)?;
    if let Some(c) = recipe.weights.iter().position(|p| *p == 0.0) {
        return refuse(
            "the clients' weights",
            format!("client {c} has weight 0: leave it out instead"),
        );
    }
    if !(0.0..=1.0).contains(&recipe.correlation) {
        return refuse(
            "the noise correlation",
            format!("it is {}: it must be between 0 and 1", recipe.correlation),
        );
    }
    match recipe.synchronise {
        Synchronise::Every(0) => {
            return refuse(
                "synchronisation",
                "it cannot happen every 0 iterations: use at least 1".into(),
            );
        }
        Synchronise::Randomly(p) if !(p > 0.0 && p <= 1.0) => {
            return refuse(
                "synchronisation",
                format!("its probability is {p}: it must be above 0 and at most 1"),
            );
        }
        _ => {}
    }
    if let Some(q) = recipe.refresh
        && !(0.0..=1.0).contains(&q)
    {
        return refuse(
            "the reference point",
            format!("it moves with probability {q}: it must be between 0 and 1"),
        );
    }
    if let Average::WithReplacement(s) | Average::WithoutReplacement(s) = recipe.average {
        if recipe.refresh.is_some() {
            return refuse(
                "partial participation",
                "control variates need every client: use it without a reference point".into(),
            );
        }
        if s == 0 {
            return refuse(
                "partial participation",
                "0 clients cannot be averaged: use at least 1".into(),
            );
        }
    }
    if let Average::WithoutReplacement(s) = recipe.average {
        if s > b {
            return refuse(
                "partial participation",
                format!("{s} of {b} clients cannot take part: use at most {b}"),
            );
        }
        if recipe.weights.iter().any(|p| (p - recipe.weights[0]).abs() > 1e-12) {
            return refuse(
                "partial participation",
                "scheme II is biased unless all weights are equal: use scheme I".into(),
            );
        }
    }
    if let Some(tether) = recipe.tether {
        if !(tether > 0.0 && tether.is_finite()) {
            return refuse("the tether", format!("it is {tether}: it must be above 0"));
        }
        if recipe.refresh.is_some()
            || recipe.correlation > 0.0
            || recipe.average != Average::All
            || recipe.up.is_some()
        {
            return refuse(
                "the tether",
                "clients that are tied have noise of their own, no reference point and \
                             no compression, and all take part: leave these settings out"
                    .into(),
            );
        }
    }
    if let Some((compressor, rate)) = &recipe.up {
        let refuse = |problem: String| {
            Err(DataError::Compressor { compressor: compressor.to_string(), problem })
        };
        if recipe.average != Average::All {
            return refuse(
                "with partial participation the server would have to \
                            remember every client: average all"
                    .into(),
            );
        }
        let Some(omega) = compressor.omega(target.dim()) else {
            return refuse("it is biased: use an unbiased one, such as qsgd(16)".into());
        };
        if !(*rate > 0.0 && *rate <= 1.0 / (1.0 + omega) + 1e-12) {
            return refuse(format!(
                "its memory rate is {rate}: it must be above 0 and at most 1/(1 + \
                             omega) = {}",
                1.0 / (1.0 + omega)
            ));
        }
        recipe.up_channel(target.dim())?;
    }
    let server_knows_the_prior = recipe.tether.is_some() && target.prior.is_quadratic();
    Ok(match target.placement {
        Placement::Server if server_knows_the_prior => target,
        Placement::Server => target.split_by(&recipe.weights),
        Placement::Split(_) => target,
    })
}

/// The deviation of each client's own noise on the scale of its gradient, at every local step:
/// `x_c` moves by `eta/p_c H_c` and by `sqrt(2 eta T (1 - rho^2) kappa / p_c) Z_c`, kappa by
/// [`super::NoiseScale::factor`]. What all share counts for nothing.
pub(super) fn own_noise(recipe: &Local, temperature: f64) -> Result<Vec<f64>, DataError> {
    check_each(recipe)?;
    let refuse = |why: &str, instead: &'static str| {
        Err(DataError::NotPrivate { why: why.to_owned(), instead })
    };
    let Schedule::Constant(step) = recipe.step else {
        return refuse(
            "its noise changes with the step, and a budget is kept by counting rounds alike",
            "state a constant step",
        );
    };
    if recipe.refresh.is_some() {
        return refuse(
            "its control variates are exact functions of rows",
            "use fald, fa-ld or dg-lmc, without control variates",
        );
    }
    if recipe.memory_rate().is_some() {
        return refuse(
            "what the memory of its compressed parameters holds back arrives rounds later",
            "leave out the compressor",
        );
    }
    if recipe.correlation >= 1.0 {
        return refuse(
            "all clients have one noise, which everybody knows",
            "use a noise correlation below 1",
        );
    }
    let own = 1.0 - recipe.correlation * recipe.correlation;
    let kappa = recipe.noise.factor(recipe.average, recipe.weights.len());
    Ok(recipe
        .weights
        .iter()
        .map(|p| error_for_share(step, temperature, own * kappa * p, 1.0))
        .collect())
}

/// Why the server needs more than the sum of what clients send, if it does.
pub(super) fn check_sum(recipe: &Local) -> Result<(), DataError> {
    let refuse = |why: &str, instead: &'static str| {
        Err(DataError::NotPrivate { why: format!("secure sum: {why}"), instead })
    };
    if recipe.synchronise.rate() != 1.0 {
        return refuse(
            "clients walk on their own for several steps, and the noise of others hides no path \
             that is not theirs",
            "use one local step a round: local_steps = 1, or sync_probability = 1",
        );
    }
    if recipe.average != Average::All {
        return refuse(
            "masks cancel only in the sum of everybody, and the difference of two cohorts is a \
             client",
            "average all clients",
        );
    }
    if recipe.tether.is_some() {
        return refuse(
            "clients that are tied to the server's parameter stand at points of their own",
            "use fald or fa-ld with one local step a round, or lmc",
        );
    }
    own_noise(&Local { correlation: 0.0, ..recipe.clone() }, 1.0).map(|_| ())
}
