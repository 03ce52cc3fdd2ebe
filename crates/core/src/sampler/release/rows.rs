//! List the samplers, and turn their rows into recipes, of family D.

use super::Release;
use crate::sampler::Recipe;
use crate::sampler::registry::{FamilyRow, Ingredients, PLAIN, Row};

/// What the number beside every draw is called that says how much noise there is: that of the
/// released matrix against its least eigenvalue.
pub const NOISE_RATIO: &str = "noise_ratio";

/// The row of this family.
pub static FAMILY: FamilyRow = FamilyRow {
    name: "moments up",
    says: "clients say noisy moments twice, and the server samples from these for ever",
    recipe,
    server_applies_prior: |_| true,
    needs_shape: false,
    asks_twice: true,
    tuned: |_| None,
    why_not: |_| Some("sites answer twice, by all their rows, and are never asked again"),
};

/// Its samplers that run on any target: none.
pub const SAMPLERS: &[Row] = &[];

/// `dp-release`, which needs the rows of a regression and a budget, and so stands apart from the
/// samplers that run on any target.
pub static DP_RELEASE: Row = Row {
    name: "dp-release",
    family: &FAMILY,
    paper: "Bernstein and Sheldon 2019; two releases, here",
    says: "two noisy answers of every site, then draws without end; needs [privacy]",
    beyond: true,
    ..PLAIN
};

fn recipe(_row: &Row, make: &Ingredients<'_>) -> Recipe {
    Recipe::Release(Release { once: make.settings.once, weak: make.settings.weak })
}
