//! Word the warnings of family B: what is wrong, and what helps.

use super::{Average, Local, NoiseScale};
use crate::target::Target;

/// Clients that walk alone and are not corrected drift to optima of their own.
pub(super) fn is_biased_by_design(recipe: &Local, target: &Target) -> bool {
    recipe.refresh.is_none() && recipe.synchronise.rate() < 1.0 && target.clients.len() > 1
}

/// What helps against a bias where a smaller step does not.
pub(super) fn remedy(recipe: &Local) -> &'static str {
    if recipe.refresh.is_none() {
        "Sites differ, and clients that walk alone drift apart: use vr-fald*, which corrects for \
         it, or a sampler whose clients send gradients, such as qlsd++ or lmc; synchronising more \
         often helps, too"
    } else {
        "Synchronise more often, such as synchronise = { probability = 0.5 }, or use a sampler \
         whose clients send gradients, such as qlsd++ or lmc"
    }
}

/// What is known to be wrong before anything is known of the target.
pub(super) fn cautions(recipe: &Local) -> Vec<String> {
    if recipe.average == Average::All || recipe.noise == NoiseScale::Participants {
        return Vec::new();
    }
    vec![format!(
        "only some of {} clients are averaged, with the private noise as published: the mean \
         carries too much noise, and the posterior comes out too wide. Set noise = \
         \"participants\" to mend that",
        recipe.weights.len()
    )]
}
