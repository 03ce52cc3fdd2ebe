//! Bound an answer by what is known of a client's rows: how many there are, and how large one can
//! be.
//!
//! A client says once, before anything is sampled, how large the gradient of one of its rows can be
//! at any parameters. From then on its answers have bounds at every point: what is larger cannot
//! come from such rows. Where the model has no bound, or the sampler's answers are no gradients or
//! values (positions of walks, differences to a memory), one number bounds them all.

use super::{Exchange, Kind, Order, Payload, Reply, Task};
use crate::linalg::norm_squared;
use crate::model::Reach;
use crate::rng::ClientId;
use crate::target::Target;

/// Numbers of 32 bits are rounded, and sums over rows are.
const ROUNDING: f64 = 1.0 + 1e-5;

/// By how much an answer can exceed the gradient that it stands for: `factor |g| + addend`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// What compression and control variates do.
    pub factor: f64,
    /// What noise of the client's own does.
    pub addend: f64,
}

/// The limits of all clients' answers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest norm of any answer.
    most: f64,
    bounds: Option<Bounds>,
}

/// What follows from the rows of clients.
#[derive(Clone, Debug)]
struct Bounds {
    /// Its clients say how large they can be.
    target: Target,
    /// What the answers of each make of a gradient.
    growths: Vec<Option<Growth>>,
    /// How large each can be at the origin.
    origin: Vec<Option<Reach>>,
}

/// An answer that is too large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Excess {
    pub(super) norm: f64,
    pub(super) most: f64,
    /// Whether the limit follows from the client's rows.
    pub(super) of_rows: bool,
}

impl Limits {
    /// One limit for the norms of all answers.
    pub fn new(most: f64) -> Limits {
        Limits { most, bounds: None }
    }

    /// The same, with what follows from the rows of this target's clients, whose answers can exceed
    /// gradients by this.
    pub fn with_rows_of(self, target: &Target, growths: Vec<Option<Growth>>) -> Limits {
        let there = vec![0.0; target.dim()];
        let clients = 0..target.clients.len() as u32;
        let origin: Vec<_> = clients.map(|i| target.reach(ClientId(i), &there)).collect();
        let known = origin.iter().any(Option::is_some);
        let bounds = known.then(|| Bounds { target: target.clone(), growths, origin });
        Limits { bounds, ..self }
    }

    /// By how much an answer is too large, if it is.
    pub(super) fn excess<E: Exchange + ?Sized>(
        &self,
        machine: &E,
        from: ClientId,
        reply: &Reply<'_>,
    ) -> Option<Excess> {
        if let Payload::Levels { .. } = reply.payload {
            return None; // they are uniform, and bounded by their bits
        }
        let values = reply.payload.values();
        let norm = norm_squared(values).sqrt();
        if norm > self.most {
            return Some(Excess { norm, most: self.most, of_rows: false });
        }
        let Bounds { target, growths, origin } = self.bounds.as_ref()?;
        let origin = origin[from.index()]?;
        let mut point = Vec::new();
        let mut at = |k: usize| {
            point.resize(target.dim(), 0.0);
            machine.point(k, &mut point).then(|| target.reach(from, &point)).flatten()
        };
        match reply.kind {
            Kind::Gradient => {
                let growth = growths[from.index()]?;
                let most = |reach: Reach| growth.factor * reach.gradient + growth.addend;
                // What is possible at the origin is looked at no further.
                if norm > most(origin) {
                    let excess = at(0).and_then(|reach| beyond(norm, most(reach)));
                    if excess.is_some() {
                        return excess;
                    }
                }
                let value = reply.beside.first()?.abs();
                if value > origin.value { beyond(value, at(0)?.value) } else { None }
            }
            // Values less that at the origin.
            Kind::Potential => values.iter().enumerate().find_map(|(k, value)| {
                if value.abs() <= origin.value {
                    return None;
                }
                beyond(value.abs(), at(k)?.value + origin.value)
            }),
            Kind::Survey => surveyed(target, from, &machine.order(from), values),
            _ => None,
        }
    }
}

/// By how much what a client says to a survey is too large: values and gradients at points that
/// the order names.
fn surveyed(target: &Target, from: ClientId, order: &Order<'_>, values: &[f64]) -> Option<Excess> {
    let d = target.dim();
    let position = order.position.as_ref().map(Payload::values);
    let told: Vec<(&[f64], &[f64], f64)> = match order.task {
        Task::Value => vec![(position?, &values[..d], values[d])],
        Task::Derivatives { .. } => vec![(position?, &values[1..=d], values[0])],
        Task::Slopes { .. } => {
            let answers = values.chunks_exact(d + 1);
            let pairs = order.numbers.chunks_exact(d).zip(answers);
            pairs.map(|(point, answer)| (point, &answer[..d], answer[d])).collect()
        }
        _ => return None,
    };
    told.into_iter().find_map(|(point, gradient, value)| {
        let reach = target.reach(from, point)?;
        let found = [(norm_squared(gradient).sqrt(), reach.gradient), (value.abs(), reach.value)];
        // a value that its client does not know is no number, and beyond nothing
        found.into_iter().find_map(|(norm, most)| beyond(norm, most))
    })
}

/// What is beyond all that rows can give.
fn beyond(norm: f64, most: f64) -> Option<Excess> {
    (norm > most * ROUNDING).then_some(Excess { norm, most, of_rows: true })
}
