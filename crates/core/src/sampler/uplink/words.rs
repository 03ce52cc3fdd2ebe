//! Word the warnings of family A: what is wrong, and what helps.

use super::{Oracle, Uplink};
use crate::protocol::{Direction, Kind, Ledger};
use crate::target::Target;

/// Minibatches without control variates are noise that no memory takes away.
pub(super) fn is_biased_by_design(recipe: &Uplink, target: &Target) -> bool {
    recipe.oracle == Oracle::Plain
        && target.clients.iter().any(|c| recipe.batch.of(c.rows()) < c.rows())
}

/// What shortened gradients do.
pub(super) fn cautions(recipe: &Uplink) -> Vec<String> {
    let caution = |clip: f64| {
        format!(
            "gradients of a site that are longer than {clip} (clip) are shortened to that: no site \
             can pull harder, and the draws are not those of the posterior where one does. They \
             follow such a site less than its rows say, and are drawn towards the others: means \
             are off by up to what its gradient lost over the curvature of all, and intervals too \
             wide"
        )
    };
    recipe.clip.map(caution).into_iter().collect()
}

/// What helps against a bias where a smaller step does not.
pub(super) fn remedy(recipe: &Uplink, target: &Target) -> &'static str {
    if is_biased_by_design(recipe, target) && recipe.up.is_empty() {
        "Its minibatches have no control variates: use lsd++, which has, or batch = \"all\""
    } else if is_biased_by_design(recipe, target) {
        "Its minibatches have no control variates: use qlsd++, which has, or batch = \"all\""
    } else if !recipe.up.is_empty() || recipe.down.is_some() {
        "Use a finer compressor, such as compress = \"qsgd(64)\", or qlsd++, which compresses \
         differences"
    } else {
        "Use a smaller step and more iterations"
    }
}

/// What QLSD's published formula (natural logarithms, no headers) counts for the compressed
/// gradients, where all clients use `qsgd`.
pub(super) fn published_bits(recipe: &Uplink, dim: usize, ledger: &Ledger) -> Option<u64> {
    let [compressor] = &recipe.up[..] else { return None };
    let each = compressor.published_bits(dim)?;
    Some((each * ledger.vectors(Direction::Up, Kind::Gradient) as f64) as u64)
}
