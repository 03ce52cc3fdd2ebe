//! List the samplers, and turn their rows into recipes, of family C.

use super::{BLOCK, JITTER, Kernel, Metropolis};
use crate::compress::{Compressor, Precision};
use crate::proposal::Proposal;
use crate::sampler::Recipe;
use crate::sampler::registry::{Axis, FamilyRow, Ingredients, PLAIN, Row};
use crate::survey::Trial;

/// The row of this family.
pub static FAMILY: FamilyRow = FamilyRow {
    name: "potentials up",
    says: "clients say the potential at proposals, and the server accepts or rejects: no bias",
    recipe,
    server_applies_prior: |_| true,
    needs_shape: true,
    asks_twice: false,
    tuned: |row| {
        if row.has(Axis::Block) {
            None
        } else if row.has(Axis::Leapfrog) {
            Some(Trial::Hamiltonian)
        } else if row.has(Axis::Compress) {
            Some(Trial::Langevin)
        } else {
            Some(Trial::Autoregressive)
        }
    },
    why_not: |axis| match axis {
        Axis::Batch => Some(
            "whether a proposal is accepted depends on all rows, and a minibatch would make the \
             draws wrong",
        ),
        Axis::Participation => Some(
            "whether a proposal is accepted depends on every site, and a run without one would \
             sample another posterior",
        ),
        Axis::Clip => Some(
            "its draws are exact because every answer counts as it is, and with shortened ones \
             they would not be",
        ),
        Axis::Memory | Axis::RefreshEvery | Axis::RefreshProbability => Some(
            "a proposal must not depend on more of the past than where the chain is, or the draws \
             are no longer exact",
        ),
        _ => None,
    },
};

/// What its rows have in common.
const OURS: Row = Row { family: &FAMILY, ..PLAIN };

/// Its samplers, in the order in which they are listed.
pub const SAMPLERS: &[Row] = &[
    Row {
        name: "imh",
        paper: "Tierney 1994, sec. 2.3",
        says: "independence Metropolis: thousands of proposals in an exchange, one number for each",
        axes: &[Axis::Block],
        beyond: true,
        ..OURS
    },
    Row {
        name: "pcn",
        paper: "Cotter et al. 2013, eq. 4.9",
        says: "Crank-Nicolson proposals: one number up and one bit down for each",
        beyond: true,
        ..OURS
    },
    Row {
        name: "mala",
        paper: "Roberts and Tweedie 1996, sec. 1.4",
        says: "Langevin proposals that are accepted or rejected, also with compressed gradients",
        axes: &[Axis::Compress],
        beyond: true,
        ..OURS
    },
    Row {
        name: "hmc",
        paper: "Neal 2011, sec. 3",
        says: "Hamiltonian Monte Carlo: a gradient for each of several leapfrog steps",
        axes: &[Axis::Leapfrog],
        beyond: true,
        ..OURS
    },
];

fn recipe(row: &Row, make: &Ingredients<'_>) -> Recipe {
    let settings = make.settings;
    let kernel = if row.has(Axis::Block) {
        // What surveys found; on its own a standard Student law.
        let proposal = settings
            .proposal
            .as_ref()
            .and_then(|told| Proposal::told(make.dim, told))
            .or_else(|| Proposal::new(make.dim, Proposal::usual_freedom(make.dim), &[]));
        match proposal {
            Some(proposal) => {
                let block = settings.block.map_or(BLOCK, |block| block as usize);
                Kernel::Independence { proposal, block }
            }
            None => Kernel::Autoregressive, // there is always one
        }
    } else if row.has(Axis::Leapfrog) || row.has(Axis::Compress) {
        let steps = if row.has(Axis::Leapfrog) { settings.leapfrog.unwrap_or(3) } else { 1 };
        Kernel::Hamiltonian { steps, jitter: JITTER }
    } else {
        Kernel::Autoregressive
    };
    let precision = settings.precision.unwrap_or(Precision::F64);
    let at = |c: &Compressor| c.clone().at(precision);
    Recipe::Metropolis(Metropolis {
        kernel,
        step: make.step,
        precision,
        up: settings.compress.iter().flatten().map(at).collect(),
        code: make.code(),
    })
}
