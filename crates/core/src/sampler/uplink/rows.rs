//! List the samplers, and turn their rows into recipes, of family A.

use super::{MemoryRule, Oracle, Uplink};
use crate::compress::Compressor;
use crate::sampler::registry::{Axis, FamilyRow, Feedback, Ingredients, PLAIN, Row};
use crate::sampler::{NoiseSource, Participation, Recipe, Weighting};

/// The row of this family.
pub static FAMILY: FamilyRow = FamilyRow {
    name: "gradients up",
    says: "clients send gradients, and the server takes one step a round",
    recipe,
    server_applies_prior: |_| true,
    needs_shape: false,
    asks_twice: false,
    tuned: |_| None,
    why_not: |axis| {
        let clip = "clients remember what they sent, and the server must not add less of it";
        (axis == Axis::Clip).then_some(clip)
    },
};

/// What its rows have in common.
const OURS: Row = Row { family: &FAMILY, ..PLAIN };

/// Its samplers, in the order in which they are listed.
pub const SAMPLERS: &[Row] = &[
    Row {
        name: "lmc",
        paper: "Karagulyan and Richtarik 2025, eq. 2",
        says: "Langevin Monte Carlo with full gradients",
        axes: &[Axis::Participation, Axis::Clip],
        ..OURS
    },
    Row {
        name: "sgld",
        paper: "Vono et al. 2022, eq. 3",
        says: "minibatch gradients, no control variates: biased when the rows differ",
        axes: &[Axis::Batch, Axis::Participation, Axis::Clip],
        ..OURS
    },
    Row {
        name: "lsd*",
        paper: "Vono et al. 2022, Alg. S2",
        says: "minibatch gradients with control variates at the optimum",
        axes: &[Axis::Batch, Axis::Participation, Axis::Clip],
        needs_optimum: true,
        ..OURS
    },
    Row {
        name: "lsd++",
        paper: "Vono et al. 2022, Alg. S3",
        says: "minibatch gradients with control variates that are renewed every so many rounds, \
            and a memory",
        axes: &[Axis::Batch, Axis::RefreshEvery, Axis::Memory, Axis::Participation],
        feedback: Feedback::Optional,
        ..OURS
    },
    Row {
        name: "qlsd",
        paper: "Vono et al. 2022, Alg. 1",
        says: "compressed gradients",
        axes: &[Axis::Batch, Axis::Compress, Axis::Participation, Axis::Clip],
        ..OURS
    },
    Row {
        name: "qlsd#",
        paper: "Vono et al. 2022, sec. 2",
        says: "compressed minibatch gradients: biased when clients or rows differ",
        axes: &[Axis::Batch, Axis::Compress, Axis::Participation, Axis::Clip],
        ..OURS
    },
    Row {
        name: "qlsd*",
        paper: "Vono et al. 2022, Alg. S1",
        says: "compressed minibatch gradients with control variates at the optimum",
        axes: &[Axis::Batch, Axis::Compress, Axis::Participation, Axis::Clip],
        needs_optimum: true,
        ..OURS
    },
    Row {
        name: "qlsd++",
        paper: "Vono et al. 2022, Alg. 2",
        says: "compressed differences to a memory, with control variates that are renewed every so \
            many rounds",
        axes: &[Axis::Batch, Axis::RefreshEvery, Axis::Memory, Axis::Compress, Axis::Participation],
        feedback: Feedback::Diana,
        ..OURS
    },
    Row {
        name: "d-elf",
        paper: "Karagulyan and Richtarik 2025, Alg. 1",
        says: "contractive compression of gradients with error feedback (with a batch: beyond the \
            paper)",
        axes: &[Axis::Batch, Axis::Compress],
        feedback: Feedback::ErrorFeedback,
        ..OURS
    },
    Row {
        name: "p-elf",
        paper: "Karagulyan and Richtarik 2025, Alg. 2",
        says: "contractive compression of the parameter on its way down",
        axes: &[Axis::CompressDown, Axis::Clip],
        ..OURS
    },
    Row {
        name: "b-elf",
        paper: "Karagulyan and Richtarik 2025, Alg. 3",
        says: "contractive compression both ways, with error feedback",
        axes: &[Axis::Batch, Axis::Compress, Axis::CompressDown],
        feedback: Feedback::ErrorFeedback,
        ..OURS
    },
    Row {
        name: "bi-qlsd++",
        paper: "Vono et al. 2022, Alg. 2 with Karagulyan and Richtarik 2025, Alg. 2",
        says: "QLSD++ with a compressed way down (bidirectional DIANA)",
        axes: &[Axis::Batch, Axis::RefreshEvery, Axis::Memory, Axis::Compress, Axis::CompressDown],
        feedback: Feedback::Diana,
        beyond: true,
        ..OURS
    },
    Row {
        name: "marina-ld",
        paper: "after Gorbunov et al. 2021",
        says: "compressed differences of successive gradients, sent in full now and then \
            (Langevin-MARINA)",
        axes: &[Axis::Compress, Axis::Restart],
        feedback: Feedback::Differences,
        beyond: true,
        ..OURS
    },
    Row {
        name: "diana-ld",
        paper: "after Mishchenko et al. 2019",
        says: "compressed differences of gradients to a memory: clients that differ cost no noise \
            (Langevin-DIANA)",
        axes: &[Axis::Batch, Axis::Memory, Axis::Compress, Axis::Participation],
        feedback: Feedback::Diana,
        beyond: true,
        ..OURS
    },
    Row {
        name: "qlsd*-exact",
        paper: "Hegazy et al. 2024",
        says: "QLSD* whose compression error is exactly the Langevin noise: the server draws none",
        axes: &[Axis::Batch],
        needs_optimum: true,
        noise: NoiseSource::Compression,
        beyond: true,
        ..OURS
    },
];

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
        private: None,
        secure: None,
        clip: settings.clip,
        most_heat: settings.most_heat,
    })
}
