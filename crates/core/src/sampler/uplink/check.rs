//! Refuse what family A cannot do, by name.

use super::{MemoryRule, NoiseSource, Oracle, Uplink};
use crate::compress::Compressor;
use crate::error::DataError;
use crate::sampler::participation::{Participation, Roll};
use crate::sampler::recipe::Batch;
use crate::step::Schedule;
use crate::target::{Placement, Target};

/// Check the recipe against the target, which stays as it is.
pub(super) fn check(recipe: &Uplink, target: Target) -> Result<Target, DataError> {
    let b = target.clients.len();
    let refuse = |what, problem: String| Err(DataError::Weights { what, problem });
    if let Some(alpha) = recipe.memory_rate
        && !(alpha > 0.0 && alpha <= 1.0)
    {
        return refuse(
            "the memory rate",
            format!("it is {alpha}: it must be above 0 and at most 1"),
        );
    }
    if let Oracle::Svrg { every: 0 } = recipe.oracle {
        return refuse(
            "the reference point",
            "it cannot move every 0 rounds: use at least 1".into(),
        );
    }
    let roll = Roll::new(recipe.participation.clone(), recipe.weighting, b)?;
    if roll.is_elastic() && recipe.memory_rate.is_some() {
        return refuse(
            "elastic participation",
            "a client that answers too late has moved its memory, and the server's has \
                         not moved with it: use a sampler without memory"
                .into(),
        );
    }
    check_each(recipe)?;
    check_clip(recipe)?;
    check_compression(recipe, &target)?;
    if recipe.private.is_some() || recipe.secure.is_some() {
        recipe.own_noise(b, target.dim(), target.temperature)?;
    }
    if recipe.secure.is_some() {
        recipe.check_levels(&target)?;
        // A client's levels are bounded by its rows; the prior's gradient has no bound.
        return Ok(Target { placement: Placement::Server, ..target });
    }
    Ok(target)
}

/// Check that rows can be drawn one by one: a difference to a reference point, and the law of what
/// is left of it, are known for minibatches of one size.
fn check_each(recipe: &Uplink) -> Result<(), DataError> {
    let Batch::Each(probability) = recipe.batch else { return Ok(()) };
    if !(probability > 0.0 && probability <= 1.0) {
        return Err(DataError::NotPositive { what: "the share of rows", value: probability });
    }
    if recipe.oracle == Oracle::Plain && recipe.memory_rate.is_none() {
        return Ok(());
    }
    let why = "its control variates are those of minibatches of one size";
    Err(DataError::Unsupported { what: "rows that are drawn one by one".into(), why })
}

/// Check that gradients can be shortened.
fn check_clip(recipe: &Uplink) -> Result<(), DataError> {
    let Some(clip) = recipe.clip else { return Ok(()) };
    if !(clip > 0.0 && clip.is_finite()) {
        return Err(DataError::NotPositive { what: "clip", value: clip });
    }
    let why = if recipe.memory_rate.is_some() {
        "clients remember what they sent, and the server must not add less of it"
    } else if recipe.private.is_some() {
        "gradients come with noise, which would be shortened with them: privacy.row_norm bounds \
         what a row can do"
    } else if recipe.secure.is_some() {
        "nobody sees more of the gradients than their sum"
    } else if recipe.noise == NoiseSource::Compression {
        "the error of the answers is the Langevin noise, and must not be shortened"
    } else {
        return Ok(());
    };
    Err(DataError::Unsupported { what: "clip".into(), why })
}

/// Check that a compressor does what the algorithm's theory asks of it.
fn check_compression(recipe: &Uplink, target: &Target) -> Result<(), DataError> {
    let (d, b) = (target.dim(), target.clients.len());
    let refuse = |compressor: &Compressor, problem: String| {
        Err(DataError::Compressor { compressor: compressor.to_string(), problem })
    };
    if recipe.up.len() > 1 && recipe.up.len() != b {
        return refuse(
            &recipe.up[0],
            format!(
                "there are {} compressors for {b} clients: give one, or one for each",
                recipe.up.len()
            ),
        );
    }
    let everybody = recipe.participation == Participation::All;
    for client in 0..recipe.up.len().max(1) {
        let Some(compressor) = recipe.compressor(client, b, target.temperature) else { continue };
        recipe.up_channel(client, target)?;
        if recipe.noise == NoiseSource::Compression {
            if !everybody
                || recipe.memory_rate.is_some()
                || !matches!(recipe.step, Schedule::Constant(_))
            {
                return refuse(
                    &compressor,
                    "its error is the Langevin noise, so everybody must take part, without memory, \
                     at a constant step".into(),
                );
            }
            continue;
        }
        match (recipe.memory_rate, recipe.memory_rule) {
            (Some(_), MemoryRule::FromGradient) => {
                if compressor.alpha(d).is_none() {
                    return refuse(
                        &compressor,
                        "error feedback needs a contractive one: use \
                        top_k(...), or wrap it as scaled(...)"
                            .into(),
                    );
                }
                if !everybody {
                    return refuse(
                        &compressor,
                        "error feedback needs every client in every round".into(),
                    );
                }
            }
            (rate, rule) => {
                let Some(omega) = compressor.omega(d) else {
                    return refuse(
                        &compressor,
                        "it is biased, which needs error feedback: use d-elf or b-elf, or an \
                         unbiased one such as qsgd(16)"
                            .into(),
                    );
                };
                let most = 1.0 / (1.0 + omega);
                if let (Some(alpha), MemoryRule::FromZero) = (rate, rule)
                    && alpha > most * (1.0 + 1e-9)
                {
                    return refuse(
                        &compressor,
                        format!(
                            "the memory rate {alpha} is too large for it: it must be at most 1/(1 \
                             + omega) = {most:.6}"
                        ),
                    );
                }
                if let (Some(_), MemoryRule::Marina { restart }) = (rate, rule)
                    && !(everybody && restart > 0.0 && restart <= 1.0)
                {
                    return refuse(
                        &compressor,
                        "differences of gradients need every client in every round, and a restart \
                         probability above 0"
                            .into(),
                    );
                }
            }
        }
    }
    if let Some(compressor) = &recipe.down {
        if compressor.alpha(d).is_none() {
            return refuse(
                compressor,
                "the way down needs a contractive one: use top_k(...), or wrap it as scaled(...)"
                    .into(),
            );
        }
        if !everybody {
            return refuse(
                compressor,
                "a client that is away would miss increments of the parameter: compress the way \
                 down only where everybody takes part"
                    .into(),
            );
        }
        recipe.down_channel(d)?;
    }
    Ok(())
}
