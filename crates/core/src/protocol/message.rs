//! Give every message one shape: what to do, and up to three vectors.

use super::ledger::Kind;

/// What an order asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One (compressed) gradient estimate at the position.
    Estimate,
    /// This many local Langevin steps, then the position reached.
    Walk {
        /// How many steps.
        steps: u64,
    },
    /// The exact gradient at the reference point.
    Gradient,
    /// The value and exact gradient at the position.
    Value,
    /// The Hessian at the reference point times the position.
    HessianVector,
    /// The largest eigenvalue of the client's own Hessian at the position.
    Curvature,
}

impl Task {
    /// Whether this belongs to the survey of the target before sampling.
    pub fn is_survey(self) -> bool {
        matches!(self, Task::Value | Task::HessianVector | Task::Curvature)
    }

    /// How many numbers the answer has, where the model has `dim` parameters.
    pub fn answer_len(self, dim: usize) -> usize {
        match self {
            Task::Value => dim + 1,
            Task::Curvature => 1,
            Task::Estimate | Task::Walk { .. } | Task::Gradient | Task::HessianVector => dim,
        }
    }
}

/// A message from the server to a client.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The round (or the first local iteration): the address of the client's random numbers.
    pub round: u64,
    /// What to do.
    pub task: Task,
    /// Where the client shall stand; `None`: where it stands already.
    pub position: Option<Payload<'a>>,
    /// What the client shall hold as its reference point.
    pub reference: Reference<'a>,
    /// The sum of all clients' gradients at the reference point, and the first iteration that uses both.
    pub control: Option<(Payload<'a>, u64)>,
}

/// What happens to a client's reference point.
#[derive(Clone, Copy, Debug)]
pub enum Reference<'a> {
    /// It stays.
    Keep,
    /// It becomes the position: nothing needs to be sent.
    Position,
    /// It becomes this.
    New(Payload<'a>),
}

/// A message from a client to the server.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The round of the order that it answers.
    pub round: u64,
    /// What the vector is.
    pub kind: Kind,
    /// The vector.
    pub payload: Payload<'a>,
}

/// A vector as it crosses the wire: the receiver gets exactly these numbers.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Numbers that the given precision represents exactly.
    Plain(&'a [f64], Precision),
}

impl<'a> Payload<'a> {
    /// The numbers that the receiver sees.
    #[inline]
    pub fn values(&self) -> &'a [f64] {
        match self {
            Payload::Plain(values, _) => values,
        }
    }

    /// How many bits its encoding has.
    pub fn bits(&self) -> u64 {
        match self {
            Payload::Plain(values, precision) => values.len() as u64 * precision.bits(),
        }
    }
}

/// How many bits an uncompressed number has on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits, as the papers count.
    F32,
    /// 64 bits: nothing is rounded.
    F64,
}

impl Precision {
    /// How many bits a number has.
    pub fn bits(self) -> u64 {
        match self {
            Precision::F32 => 32,
            Precision::F64 => 64,
        }
    }

    /// Round `values` to what the wire carries. Numbers beyond the range of 32 bits become infinite, which the receiver refuses.
    #[inline]
    pub fn round(self, values: &mut [f64]) {
        if self == Precision::F32 {
            for v in values {
                *v = f64::from(*v as f32);
            }
        }
    }
}
