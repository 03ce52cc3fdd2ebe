//! Take Langevin steps one after the other, without an exchange between them: the one contract of
//! all who take them.
//!
//! A walk is data. [`step_by_step`] takes it by a gradient for each step, which any model can do;
//! an evaluator with a faster way of its own ends in the same place, bit for bit.

use std::sync::OnceLock;

use crate::ask::{Ask, Sum};
use crate::model::{
    EvaluationError, Evaluator, Prior, Rows, accumulate_difference, accumulate_gradient,
};
use crate::rng::{Blend, ClientId, SharedNoises};
use crate::step::{Schedule, langevin_scaled};

/// All that a client does by itself from one exchange to the next:
///
/// ```text
/// g = base + scale sum_{j in rows} (grad U_ij(x) - grad U_ij(z))
///     + prior (grad U_0(x) - grad U_0(z))
/// x <- x - step (weight g) + sqrt(2 step T) (its noise)
/// ```
///
/// Without control variates nothing is subtracted, and `g` starts at 0, or at a pull towards a
/// centre. Every operation has its place: sums over rows as the model takes them, times `scale`,
/// are added to `g` first, then the prior's share.
#[derive(Debug)]
pub struct Walk<'a> {
    /// Who walks.
    pub client: ClientId,
    /// Where it starts, and then where it ended.
    pub x: &'a mut [f64],
    /// `z` and `base`, if there are any.
    pub control: Option<ControlVariate<'a>>,
    /// `k` and `c` of `g = k (x - c)`, where the drift starts with it.
    pub pull: Option<(f64, &'a [f64])>,
    /// The rows of every step, one minibatch behind the other in ascending order; one alone is that
    /// of every step; `None`: all rows in every step.
    pub rows: Option<&'a [u32]>,
    /// How many rows a step uses.
    pub batch: usize,
    /// What sums over rows are multiplied by.
    pub scale: f64,
    /// `U_0`, and its share.
    pub prior: (&'a Prior, f64),
    /// What the drift is multiplied by.
    pub weight: f64,
    /// The number of the first step.
    pub from: u64,
    /// How many there are.
    pub steps: u64,
    /// Their sizes.
    pub schedule: Schedule,
    /// `T`.
    pub temperature: f64,
    /// The client's noise.
    pub noise: &'a mut Blend,
    /// Room for `g`.
    pub drift: &'a mut [f64],
}

/// The reference point of control variates, and the drift there.
#[derive(Clone, Copy, Debug)]
pub struct ControlVariate<'a> {
    /// Where.
    pub point: &'a [f64],
    /// The drift there.
    pub drift: &'a [f64],
    /// Room for [`ControlVariate::mark`], which is found when it is first asked for.
    pub mark: &'a OnceLock<u64>,
}

impl ControlVariate<'_> {
    /// A number by which this is known: others have another one, but for a chance of 2^-64.
    pub fn mark(&self) -> u64 {
        let mix = |mark: u64, number: &f64| {
            let mixed =
                (mark.rotate_left(29) ^ number.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mixed ^ mixed >> 32
        };
        *self.mark.get_or_init(|| self.point.iter().chain(self.drift).fold(0, mix))
    }
}

/// Room that walks share which are taken together or one after the other: no state.
#[derive(Debug, Default)]
pub struct WalkRoom {
    /// Noise that several walks have a share of, drawn once.
    pub shared: SharedNoises,
    asks: Vec<Ask<'static>>,
}

impl Walk<'_> {
    /// Whether nothing but the sums over all rows pulls: no prior, no centre, no minibatch.
    pub fn is_by_rows_alone(&self) -> bool {
        let (prior, share) = self.prior;
        (share == 0.0 || *prior == Prior::Flat) && self.pull.is_none() && self.rows.is_none()
    }

    /// Let the drift of a step start without rows.
    fn begin(&mut self) {
        match (&self.control, self.pull) {
            (Some(control), _) => self.drift.copy_from_slice(control.drift),
            (None, None) => self.drift.fill(0.0),
            (None, Some((pull, centre))) => {
                for ((g, x), centre) in self.drift.iter_mut().zip(&*self.x).zip(centre) {
                    *g = pull * (x - centre);
                }
            }
        }
    }

    /// What step `k` must know of the rows.
    fn ask(&mut self, k: u64) -> Ask<'_> {
        let rows = rows_of(self.rows, self.batch, k);
        let sum = match self.control {
            Some(control) => Sum::Difference { x: self.x, z: control.point },
            None => Sum::Gradient { x: self.x },
        };
        Ask { client: self.client, sum, rows, scale: self.scale, out: self.drift }
    }

    /// Take step `k`, whose sum over rows is in the drift.
    fn step(&mut self, k: u64, shared: &mut SharedNoises) {
        let (prior, share) = self.prior;
        if share != 0.0 {
            match self.control {
                Some(control) => {
                    accumulate_difference(prior, self.x, control.point, share, self.drift);
                }
                None => accumulate_gradient(prior, self.x, share, self.drift),
            }
        }
        let (number, temperature, weight) = (self.from + k, self.temperature, self.weight);
        let step = self.schedule.at(number);
        for stretch in self.noise.stretches() {
            let noise = self.noise.at(number, stretch.clone(), shared);
            let drift = (weight, &self.drift[stretch.clone()]);
            langevin_scaled(&mut self.x[stretch], step, temperature, drift, noise);
        }
    }
}

/// The minibatch of step `k`, from 0.
pub fn rows_of(all: Option<&[u32]>, batch: usize, k: u64) -> Rows<'_> {
    match all {
        None => Rows::All,
        Some(one) if one.len() == batch => Rows::Some(one),
        Some(all) => Rows::Some(&all[k as usize * batch..][..batch]),
    }
}

/// Take the steps of all these walks by a gradient for each, the same step of all of them in one
/// call: what every faster way must equal.
pub fn step_by_step<E: Evaluator + ?Sized>(
    evaluator: &mut E,
    walks: &mut [Walk<'_>],
    room: &mut WalkRoom,
) -> Result<(), EvaluationError> {
    let longest = walks.iter().map(|walk| walk.steps).max().unwrap_or(0);
    for k in 0..longest {
        let mut asks = emptied(std::mem::take(&mut room.asks));
        for walk in walks.iter_mut().filter(|walk| k < walk.steps) {
            walk.begin();
            asks.push(walk.ask(k));
        }
        let answered = evaluator.answer(&mut asks);
        room.asks = emptied(asks);
        answered?;
        for walk in walks.iter_mut().filter(|walk| k < walk.steps) {
            walk.step(k, &mut room.shared);
        }
    }
    Ok(())
}

/// The same room for asks of another time: collecting in place allocates nothing.
#[allow(clippy::unnecessary_filter_map)] // a filter would keep the lifetime
pub(crate) fn emptied<'a>(mut asks: Vec<Ask<'_>>) -> Vec<Ask<'a>> {
    asks.clear();
    asks.into_iter().filter_map(|_| None).collect()
}
