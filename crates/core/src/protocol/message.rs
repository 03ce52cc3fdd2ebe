//! Give every message one shape: what to do, and up to three vectors.

use super::ledger::Kind;
use crate::compress::{Channel, CompressError, Message, Precision};
use crate::linalg::accumulate;
use crate::proposal::{LADDER, PROFILE, Proposal};
use crate::rng::Stream;
use crate::snapshot::{SnapshotError, State, Visit};

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
    /// This many local Langevin steps, then the position reached, uncompressed, for the reference
    /// point to move there.
    WalkAndShow {
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
    /// The value, the gradient and the Hessian (its upper triangle, row by row) at the position;
    /// where asked for also values at [`crate::proposal::LADDER`] between the reference point and
    /// the position.
    Derivatives {
        /// Whether the ladder is asked for.
        ladder: bool,
    },
    /// The means of the gradient and of the Hessian (its upper triangle, row by row) under the law
    /// of `position + A z`; the order's numbers are the upper triangle of `A`, row by row.
    Averages,
    /// Values at [`crate::proposal::PROFILE`] along every axis through the origin, less the value
    /// there.
    Profiles,
    /// Values at so many points of a pilot, less the value at the origin; the order's numbers say
    /// how the points are drawn.
    Pilot {
        /// How many points.
        points: u64,
    },
    /// Value and gradient at each of several points, which are the order's numbers.
    Slopes {
        /// How many points.
        points: u64,
    },
    /// The value at each of several points, which are the order's numbers, less the value at the
    /// origin.
    Values {
        /// How many points.
        points: u64,
    },
    /// For each of several normal laws the value at its mean, and the means of the gradient and of
    /// the Hessian (its upper triangle, row by row) under it. The order's numbers are, law by law,
    /// the mean and the upper triangle of `A`, row by row, as for averages; where `A` is 0, they
    /// are the derivatives at the mean.
    Nodes {
        /// How many laws.
        points: u64,
    },
    /// Values at so many proposals from the round on, less the value at the origin; the order's
    /// numbers say how they are drawn.
    Potentials {
        /// How many proposals.
        points: u64,
    },
    /// The value at the proposal of this round, less the value at the origin, after it is known
    /// whether that of the last round was accepted.
    Propose {
        /// Whether it was.
        accepted: bool,
    },
    /// The gradient at the position, with the value beside it.
    Slope,
    /// Noisy sums over all rows, at the position where there is one: so many numbers.
    Release {
        /// How many.
        numbers: u64,
    },
}

/// The most points that one order may name: a bound on what a client makes room for.
pub const MOST_POINTS: u64 = 1 << 16;

impl Task {
    /// Whether this belongs to the survey of the target before sampling.
    pub(crate) fn is_survey(self) -> bool {
        match self {
            Task::Value
            | Task::HessianVector
            | Task::Curvature
            | Task::Derivatives { .. }
            | Task::Averages
            | Task::Profiles
            | Task::Pilot { .. }
            | Task::Slopes { .. }
            | Task::Values { .. }
            | Task::Nodes { .. } => true,
            Task::Estimate
            | Task::Walk { .. }
            | Task::WalkAndShow { .. }
            | Task::Gradient
            | Task::Potentials { .. }
            | Task::Propose { .. }
            | Task::Slope
            | Task::Release { .. } => false,
        }
    }

    /// How exactly the vectors of an order with this task and of its answers are carried, where
    /// those of the sampler's own draws are carried so. What shapes a sampler before it starts is
    /// as exact as it was computed.
    pub(crate) fn precision(self, usual: Precision) -> Precision {
        if self.is_survey() { Precision::F64 } else { usual }
    }

    /// How many numbers an order with this task carries beside its vectors, at the least and at
    /// the most.
    pub(crate) fn order_numbers(self, dim: usize) -> std::ops::RangeInclusive<usize> {
        let triangle = dim * (dim + 1) / 2;
        match self {
            Task::Averages => triangle..=triangle,
            Task::Slopes { points } | Task::Values { points } => {
                let all = (points.min(MOST_POINTS) as usize).saturating_mul(dim);
                all..=all
            }
            Task::Nodes { points } => {
                let all = (points.min(MOST_POINTS) as usize).saturating_mul(dim + triangle);
                all..=all
            }
            Task::Pilot { .. } | Task::Potentials { .. } => 1..=Proposal::most_told(dim),
            Task::Release { .. } => 0..=1,
            _ => 0..=0,
        }
    }

    /// How many numbers an answer has beside its vector.
    pub(crate) fn numbers_beside(self) -> usize {
        usize::from(self == Task::Slope)
    }

    /// How many numbers the answer has, where the model has `dim` parameters.
    pub(crate) fn answer_len(self, dim: usize) -> usize {
        match self {
            Task::Value => dim + 1,
            Task::Curvature | Task::Propose { .. } => 1,
            Task::Estimate
            | Task::Walk { .. }
            | Task::WalkAndShow { .. }
            | Task::Gradient
            | Task::Slope
            | Task::HessianVector => dim,
            Task::Derivatives { ladder } => {
                1 + dim + dim * (dim + 1) / 2 + if ladder { LADDER.len() } else { 0 }
            }
            Task::Averages => dim + dim * (dim + 1) / 2,
            Task::Profiles => PROFILE.len() * dim,
            Task::Pilot { points } | Task::Values { points } | Task::Potentials { points } => {
                points.min(MOST_POINTS) as usize
            }
            Task::Slopes { points } => points.min(MOST_POINTS) as usize * (dim + 1),
            Task::Nodes { points } => {
                points.min(MOST_POINTS) as usize * (1 + dim + dim * (dim + 1) / 2)
            }
            Task::Release { numbers } => numbers.min(MOST_POINTS) as usize,
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
    /// Where the client shall stand; `None`: where it stands already. A coded position is an
    /// increment to where it stands.
    pub position: Option<Payload<'a>>,
    /// What the client shall hold as its reference point.
    pub reference: ReferencePoint<'a>,
    /// The sum of all clients' gradients at the reference point, and the first iteration that uses
    /// both.
    pub control: Option<(Payload<'a>, u64)>,
    /// Numbers that the task needs beside vectors, always of 64 bits.
    pub numbers: &'a [f64],
}

impl Order<'_> {
    /// Where this order stands among all that one client gets in one exchange after another: every
    /// next one is greater. (In family B the gradient at a new reference point and the walk that
    /// follows share a round.)
    pub fn place(&self) -> (u64, u8) {
        (self.round, u8::from(self.task != Task::Gradient))
    }

    /// The largest of its numbers, whatever their signs.
    pub fn largest(&self) -> f64 {
        let reference = match &self.reference {
            ReferencePoint::New(payload) => Some(payload),
            ReferencePoint::Keep | ReferencePoint::Position => None,
        };
        let control = self.control.as_ref().map(|(payload, _)| payload);
        let vectors = [self.position.as_ref(), reference, control];
        let numbers = vectors.into_iter().flatten().flat_map(|payload| payload.values());
        numbers.chain(self.numbers).fold(0.0, |most: f64, v| most.max(v.abs()))
    }

    /// The first round whose random numbers this order leaves unused.
    pub fn end(&self) -> u64 {
        self.round.saturating_add(match self.task {
            Task::Estimate => 1,
            Task::Walk { steps } | Task::WalkAndShow { steps } => steps,
            Task::Potentials { points } => points,
            Task::Propose { .. } | Task::Slope | Task::Release { .. } => 1,
            Task::Gradient
            | Task::Value
            | Task::HessianVector
            | Task::Curvature
            | Task::Derivatives { .. }
            | Task::Averages
            | Task::Profiles
            | Task::Pilot { .. }
            | Task::Slopes { .. }
            | Task::Values { .. }
            | Task::Nodes { .. } => 0,
        })
    }
}

/// What happens to a client's reference point.
#[derive(Clone, Copy, Debug)]
pub enum ReferencePoint<'a> {
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
    /// Numbers beside it, always of 64 bits.
    pub beside: &'a [f64],
}

/// A vector as it crosses the wire: the receiver gets exactly these numbers.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Numbers that the given precision represents exactly.
    Plain(&'a [f64], Precision),
    /// A compressed vector.
    Coded {
        /// The numbers that the symbols stand for.
        values: &'a [f64],
        /// The symbols.
        message: &'a Message,
        /// How they are written.
        channel: &'a Channel,
    },
    /// Levels of a secure sum: whole numbers below `2^bits`, which wrap.
    Levels {
        /// The numbers.
        values: &'a [f64],
        /// How many bits each takes.
        bits: u32,
    },
}

impl<'a> Payload<'a> {
    /// The numbers that the receiver sees.
    #[inline]
    pub fn values(&self) -> &'a [f64] {
        match self {
            Payload::Plain(values, _)
            | Payload::Coded { values, .. }
            | Payload::Levels { values, .. } => values,
        }
    }

    /// `out += scale * values`; coordinates that a message does not name are not visited, if they
    /// are many.
    pub(crate) fn add_to(&self, scale: f64, out: &mut [f64]) {
        if let Payload::Coded { values, message, .. } = self
            && let Some(named) = message.named()
            && 4 * named.len() <= values.len()
        {
            for index in named {
                out[*index as usize] += scale * values[*index as usize];
            }
        } else {
            accumulate(scale, self.values(), out);
        }
    }

    /// The variance that rounding gave each coordinate, where its compressor rounds to levels.
    pub(crate) fn rounding_variance(&self) -> f64 {
        match self {
            Payload::Plain(..) | Payload::Levels { .. } => 0.0,
            Payload::Coded { message, channel, .. } => {
                channel.compressor().rounding_variance(message)
            }
        }
    }

    /// How many bits its encoding has: whole bytes.
    pub fn bits(&self) -> u64 {
        match self {
            Payload::Plain(values, precision) => values.len() as u64 * precision.bits(),
            Payload::Coded { message, channel, .. } => channel.length_bits(message).div_ceil(8) * 8,
            Payload::Levels { values, bits } => {
                (values.len() as u64 * u64::from(*bits)).div_ceil(8) * 8
            }
        }
    }
}

/// Room for one vector on its way into a channel: its symbols, and the numbers that the receiver
/// will see.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    message: Message,
    values: Vec<f64>,
    refused: bool,
}

impl Packed {
    /// Compress `v` for a channel with the random numbers of `stream`.
    ///
    /// A vector that cannot be compressed (NaN, infinity, too large for its numbers) is sent as it
    /// is, for the receiver to refuse by name.
    pub(crate) fn pack<'a>(
        &'a mut self,
        channel: &'a Channel,
        v: &[f64],
        stream: &mut Stream,
    ) -> Payload<'a> {
        self.values.resize(channel.dimension(), 0.0);
        self.refused = self.compress(channel, v, stream).is_err();
        if self.refused {
            self.values.copy_from_slice(v);
            self.values
                .iter_mut()
                .filter(|x| x.abs() > f64::from(f32::MAX))
                .for_each(|x| *x = f64::INFINITY);
        }
        self.payload(channel)
    }

    /// The vector that was packed last, for that channel.
    fn payload<'a>(&'a self, channel: &'a Channel) -> Payload<'a> {
        if self.refused {
            Payload::Plain(&self.values, Precision::F64)
        } else {
            Payload::Coded { values: &self.values, message: &self.message, channel }
        }
    }

    fn compress(
        &mut self,
        channel: &Channel,
        v: &[f64],
        stream: &mut Stream,
    ) -> Result<(), CompressError> {
        if channel.compressor().needs_shared_stream() {
            channel.quantise(v, &mut stream.clone(), &mut self.message)?;
        } else {
            // the receiver draws nothing: no need to start again
            channel.quantise(v, stream, &mut self.message)?;
        }
        self.message.dequantise(stream, &mut self.values)
    }
}

/// A sender's end of a channel, which knows the last vector.
#[derive(Clone, Debug)]
pub struct Sender {
    channel: Channel,
    packed: Packed,
}

impl Sender {
    /// The sender of a channel.
    pub fn new(channel: Channel) -> Self {
        let packed = Packed { values: vec![0.0; channel.dimension()], ..Packed::default() };
        Sender { channel, packed }
    }

    /// Compress `v` with the random numbers of `stream`.
    pub fn send(&mut self, v: &[f64], stream: &mut Stream) -> Payload<'_> {
        self.packed.pack(&self.channel, v, stream)
    }

    /// The last vector once more.
    pub fn last(&self) -> Payload<'_> {
        self.packed.payload(&self.channel)
    }
}

/// The last vector, so that it can be sent once more.
impl State for Sender {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        let Sender { channel, packed } = self;
        visit.flag("whether the last vector went uncompressed", &mut packed.refused)?;
        visit.vector("the last vector", &mut packed.values)?;
        if packed.refused {
            return Ok(());
        }
        let mut symbols = Vec::new();
        if !visit.restores() {
            channel.encode(&packed.message, &mut symbols);
        }
        visit.bytes("the last vector's symbols", &mut symbols)?;
        if visit.restores() && channel.decode(&symbols, &mut packed.message).is_err() {
            return Err(SnapshotError::Value {
                what: "the length of the last vector's symbols",
                found: symbols.len() as u64,
            });
        }
        Ok(())
    }
}
