//! List the samplers, and turn their rows into recipes, of family B.

use super::{Average, Local, NoiseScale, Synchronise};
use crate::sampler::Recipe;
use crate::sampler::registry::{Axis, FamilyRow, Ingredients, PLAIN, Row};

/// The row of this family.
pub static FAMILY: FamilyRow = FamilyRow {
    name: "local steps",
    says: "clients take steps on their own, and the server averages them now and then",
    recipe,
    // a server that draws its parameter given the clients'
    server_applies_prior: |row| row.has(Axis::Tether),
    needs_shape: false,
    asks_twice: false,
    tuned: |_| None,
    why_not: |axis| {
        let clip = "clients send where they are, not gradients, and a position has no norm that \
                    could be too large";
        (axis == Axis::Clip).then_some(clip)
    },
};

/// What its rows have in common.
const OURS: Row = Row { family: &FAMILY, ..PLAIN };

/// Its samplers, in the order in which they are listed.
pub const SAMPLERS: &[Row] = &[
    Row {
        name: "fald",
        paper: "Plassier et al. 2023, Alg. 2",
        says: "local Langevin steps, averaged at random times",
        axes: &[Axis::Batch, Axis::Synchronise, Axis::Correlation, Axis::Compress],
        ..OURS
    },
    Row {
        name: "vr-fald*",
        paper: "Plassier et al. 2023, Alg. 3",
        says: "FALD with control variates: local drift corrected by the global gradient at a \
            reference point",
        axes: &[
            Axis::Batch,
            Axis::Synchronise,
            Axis::Correlation,
            Axis::RefreshProbability,
            Axis::Compress,
        ],
        ..OURS
    },
    Row {
        name: "fa-ld",
        paper: "Deng et al. 2021, Alg. 1",
        says: "local Langevin steps, averaged every K of them, with weights and partial \
            participation",
        axes: &[
            Axis::Batch,
            Axis::Synchronise,
            Axis::Correlation,
            Axis::Weights,
            Axis::Average,
            Axis::Compress,
        ],
        ..OURS
    },
    Row {
        name: "dg-lmc",
        paper: "Plassier et al. 2021, Alg. 1",
        says: "local Langevin steps tied to the server's parameter, which is drawn given the \
            clients' (with a batch: DG-SGLD)",
        axes: &[Axis::Batch, Axis::Synchronise, Axis::Weights, Axis::Tether],
        ..OURS
    },
];

fn recipe(row: &Row, make: &Ingredients<'_>) -> Recipe {
    let (settings, precision) = (make.settings, make.precision());
    let default = if row.has(Axis::Average) || row.has(Axis::Tether) {
        Synchronise::Every(10)
    } else {
        Synchronise::Randomly(0.1)
    };
    let synchronise = settings.synchronise.unwrap_or(default);
    let rate = synchronise.rate();
    Recipe::Local(Local {
        step: make.step,
        weights: settings
            .weights
            .clone()
            .unwrap_or_else(|| vec![1.0 / make.clients as f64; make.clients]),
        correlation: settings.correlation.unwrap_or(0.0),
        synchronise,
        average: settings.average.unwrap_or(Average::All),
        noise: settings.noise.unwrap_or(NoiseScale::Everybody),
        refresh: row
            .has(Axis::RefreshProbability)
            .then(|| settings.refresh_probability.unwrap_or(rate)),
        tether: row.has(Axis::Tether).then(|| settings.tether.unwrap_or(1.0 / rate)),
        batch: make.batch(),
        up: settings
            .compress
            .as_ref()
            .and_then(|list| list.first())
            .map(|c| (c.clone().at(precision), make.largest_rate(c))),
        code: make.code(),
        precision,
        private: false,
    })
}
