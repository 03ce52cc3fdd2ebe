//! List the samplers, and turn their rows into recipes, of family E.

use super::Penalty;
use crate::sampler::Recipe;
use crate::sampler::registry::{Axis, FamilyRow, Ingredients, PLAIN, Row};

/// The row of this family.
pub static FAMILY: FamilyRow = FamilyRow {
    name: "noisy potentials up",
    says: "clients say by how much the potential changes, with noise of their own: no bias",
    recipe,
    server_applies_prior: |_| true,
    needs_shape: false,
    asks_twice: false,
    tuned: |_| None,
    why_not: |axis| match axis {
        Axis::Clip => Some(
            "differences that are clipped are those of no potential, and draws would have another \
             law: a variance of 0.73 where it is 0.2",
        ),
        Axis::Batch => Some(
            "whether a proposal is accepted depends on all rows, and a minibatch would make the \
             draws wrong",
        ),
        Axis::Participation => Some(
            "whether a proposal is accepted depends on every site, and a run without one would \
             sample another posterior",
        ),
        _ => None,
    },
};

/// Its samplers, in the order in which they are listed.
pub const SAMPLERS: &[Row] = &[Row {
    name: "penalty",
    family: &FAMILY,
    paper: "Ceperley and Dewing 1999; Yildirim and Ermis 2019",
    says: "random steps, accepted or rejected by noisy differences of potentials: one number up \
        and one bit down for each",
    axes: &[Axis::PotentialNoise],
    beyond: true,
    ..PLAIN
}];

fn recipe(_row: &Row, make: &Ingredients<'_>) -> Recipe {
    let noise = make.settings.potential_noise.unwrap_or(0.0);
    Recipe::Penalty(Penalty { step: make.step, noise })
}
