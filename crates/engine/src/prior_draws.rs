//! Draw parameters from their prior, before any row is looked at.

use consilience_core::model::{Law, Prior, Transform};
use consilience_core::rng::{Purpose, SERVER, Seed};
use thiserror::Error;

use crate::draws::Draws;
use crate::problem::Problem;
use crate::random::Random;

/// Why there is nothing to draw from.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PriorError {
    /// Nothing says how large a parameter is.
    #[error(
        "the prior of {parameter} is flat, and no number can be drawn from it: give it a law in \
         [target.prior], e.g. law = \"normal(0, 2.5)\""
    )]
    Flat {
        /// The first such parameter.
        parameter: String,
    },
    /// A law that puts nearly all of its mass where the parameter cannot be.
    #[error(
        "the prior of {parameter} says hardly anything of where it can be: give it another law in \
         [target.prior]"
    )]
    Elsewhere {
        /// The parameter.
        parameter: String,
    },
}

/// So often a law is asked again that gave what cannot be.
const TRIES: usize = 100_000;

/// So many draws of all parameters from their prior, on their natural scale.
pub fn prior_draws(problem: &Problem, draws: usize, seed: u64) -> Result<Draws, PriorError> {
    let d = problem.parameters.len();
    let mut random = Random::new(Seed::new(seed).stream(Purpose::Prior, SERVER, 0));
    let laws: Vec<Law> = match &problem.target.prior {
        Prior::Flat => vec![Law::Flat; d],
        Prior::Gaussian(precisions) => precisions
            .iter()
            .map(|precision| match *precision > 0.0 {
                true => Law::Normal { mean: 0.0, sd: precision.sqrt().recip() },
                false => Law::Flat,
            })
            .collect(),
        Prior::Laplace { scale } => vec![Law::Laplace { location: 0.0, scale: *scale }; d],
        Prior::Laws(laws) => laws.laws().to_vec(),
    };
    let held = &problem.target.transforms;
    let name = |k: usize| problem.parameters.get(k).cloned().unwrap_or_default();
    if let Some(k) = laws.iter().position(|law| *law == Law::Flat) {
        return Err(PriorError::Flat { parameter: name(k) });
    }
    let mut cells = Vec::with_capacity(draws * d);
    for _ in 0..draws {
        let from = cells.len();
        cells.extend(laws.iter().map(|law| one(law, &mut random)));
        for (range, transform) in held.groups() {
            let place = from + range.start..from + range.end;
            let fits = |values: &[f64]| match transform {
                Transform::Positive => values.iter().all(|x| *x > 0.0),
                Transform::Correlation => values.iter().all(|x| x.abs() < 1.0),
                Transform::Ordered => values.windows(2).all(|two| two[0] < two[1]),
            };
            let laws = &laws[range.clone()];
            let mut tries = 0;
            while !fits(&cells[place.clone()]) {
                // laws that are alike give ordered numbers by being sorted
                if *transform == Transform::Ordered && laws.windows(2).all(|two| two[0] == two[1]) {
                    cells[place.clone()].sort_by(f64::total_cmp);
                    break;
                }
                tries += 1;
                if tries > TRIES {
                    return Err(PriorError::Elsewhere { parameter: name(range.start) });
                }
                for (cell, law) in cells[place.clone()].iter_mut().zip(laws) {
                    *cell = one(law, &mut random);
                }
            }
        }
    }
    Ok(Draws::from_chains(vec![cells], d))
}

fn one(law: &Law, random: &mut Random) -> f64 {
    match *law {
        Law::Flat => f64::NAN,
        Law::Normal { mean, sd } => mean + sd * random.normal(),
        Law::StudentT { df, location, scale } => location + scale * random.student_t(df),
        Law::Laplace { location, scale } => location + scale * random.laplace(),
        Law::Exponential { rate } => random.exponential() / rate,
        Law::Gamma { shape, rate } => random.gamma(shape) / rate,
        Law::Lkj { shape } => {
            // (x + 1) / 2 has a beta law, which two gammas make
            let (up, down) = (random.gamma(shape), random.gamma(shape));
            (up - down) / (up + down)
        }
    }
}
