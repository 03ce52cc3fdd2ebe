//! Turn rows of the registry into samplers of family A.

use super::{MemoryRule, Oracle, Uplink};
use crate::compress::Compressor;
use crate::sampler::registry::{Axis, FamilyRow, Feedback, Ingredients, Row};
use crate::sampler::{Participation, Recipe, Weighting};

/// The row of this family.
pub static FAMILY: FamilyRow = FamilyRow {
    name: "gradients up",
    says: "clients send gradients, and the server takes one step a round",
    recipe,
    server_applies_prior: |_| true,
    needs_shape: false,
    tuned: |_| None,
    why_not: |_| None,
};

/// What is compressed by where nothing is said: 16 levels, scaled down where error feedback asks
/// for a contraction. One coordinate of many (`top_k(1)`) would need steps that are smaller by
/// their number, and squared if both ways lose so much.
fn default_compressor(contractive: bool) -> Compressor {
    let unbiased = Compressor::qsgd(16);
    if contractive { unbiased.scaled() } else { unbiased }
}

fn recipe(row: &Row, make: &Ingredients<'_>) -> Recipe {
    let (settings, precision) = (make.settings, make.precision());
    let oracle = match &make.anchor {
        Some(anchor) if row.needs_optimum => Oracle::FixedPoint(anchor.clone()),
        _ if row.has(Axis::RefreshEvery) => {
            Oracle::Svrg { every: settings.refresh_every.unwrap_or(100) }
        }
        _ => Oracle::Plain,
    };
    let up = if row.has(Axis::Compress) {
        settings
            .compress
            .clone()
            .unwrap_or_else(|| vec![default_compressor(row.feedback == Feedback::ErrorFeedback)])
    } else {
        Vec::new()
    };
    let down = row
        .has(Axis::CompressDown)
        .then(|| settings.compress_down.clone().unwrap_or_else(|| default_compressor(true)));
    // Clients compress at the precision of the wire where they send numbers.
    let up: Vec<Compressor> = up.into_iter().map(|c| c.at(precision)).collect();
    let memory_rate = match row.feedback {
        Feedback::None => None,
        Feedback::Optional => settings.memory_rate,
        Feedback::Diana => {
            settings.memory_rate.or(up.iter().map(|c| make.largest_rate(c)).reduce(f64::min))
        }
        Feedback::ErrorFeedback | Feedback::Differences => Some(1.0),
    };
    Recipe::Uplink(Uplink {
        step: make.step,
        oracle,
        batch: make.batch(),
        memory_rate,
        memory_rule: match row.feedback {
            Feedback::ErrorFeedback => MemoryRule::FromGradient,
            Feedback::Differences => {
                MemoryRule::Marina { restart: settings.restart.unwrap_or(0.1) }
            }
            Feedback::None | Feedback::Optional | Feedback::Diana => MemoryRule::FromZero,
        },
        up,
        down: down.map(|c| c.at(precision)),
        code: make.code(),
        noise: row.noise,
        participation: settings.participation.clone().unwrap_or(Participation::All),
        weighting: settings.weighting.unwrap_or(Weighting::InverseProbability),
        precision,
    })
}
