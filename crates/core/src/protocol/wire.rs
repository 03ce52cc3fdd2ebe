//! Write messages as bytes, and read back exactly those bytes: each message has one encoding, and
//! anything else is refused by name.
//!
//! A header (task, round, which vectors follow), then the vectors: numbers little-endian, or the
//! code of a [`crate::compress::Channel`], which comes last and runs to the end. Dimension,
//! precision and channels are part of what parties agree on ([`Format`]), never of a message, so a
//! hostile length cannot make anybody allocate.

use thiserror::Error;

use super::ledger::Kind;
use super::message::{MOST_POINTS, Order, Payload, ReferencePoint, Reply, Task};
use crate::compress::code::CodeError;
use crate::compress::{Channel, CompressError, Message, Precision};
use crate::rng::{ClientId, Purpose, ROUNDS, SERVER, Seed};

/// How vectors look on the wire: agreed on before the first message.
#[derive(Clone, Debug)]
pub struct Format {
    /// How many parameters the model has.
    pub dim: usize,
    /// How a number crosses uncompressed.
    pub precision: Precision,
    /// How clients compress what they send in rounds: one for all, or one for each; none where the
    /// list ends.
    pub up: Vec<Option<Channel>>,
    /// How the server compresses increments of the position.
    pub down: Option<Channel>,
    /// What compressors that share a stream draw it from.
    pub public: Seed,
    /// How many bits a level of a secure sum has, where clients answer with such levels.
    pub levels: Option<u32>,
}

impl Format {
    /// A format without compression.
    pub fn plain(dim: usize, precision: Precision) -> Self {
        Format { dim, precision, up: Vec::new(), down: None, public: Seed::new(0), levels: None }
    }

    fn up_of(&self, client: ClientId) -> Option<&Channel> {
        let place = if self.up.len() == 1 { 0 } else { client.index() };
        self.up.get(place)?.as_ref()
    }
}

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum WireError {
    /// The message ends too early.
    #[error("the message is cut short: {needed} more bytes are needed at byte {at}")]
    Truncated {
        /// Where the end came.
        at: usize,
        /// How many bytes were still expected.
        needed: usize,
    },
    /// Bytes follow the message.
    #[error("{surplus} bytes follow the end of the message")]
    Overlong {
        /// How many.
        surplus: usize,
    },
    /// An unknown task, kind or flag.
    #[error("byte {at} is {found}, which names no {what}")]
    Unknown {
        /// What it should have named.
        what: &'static str,
        /// Where.
        at: usize,
        /// What was found.
        found: u8,
    },
    /// A task that this program does not know.
    #[error("task {code} is none that this program knows: update it")]
    Task {
        /// Its number.
        code: u64,
    },
    /// A number that has a shorter encoding.
    #[error("the number that ends at byte {at} is not in its shortest form")]
    NotCanonical {
        /// Where.
        at: usize,
    },
    /// A NaN or an infinity.
    #[error("coordinate {coordinate} is not finite")]
    NotFinite {
        /// Which one.
        coordinate: usize,
    },
    /// A compressed vector that is not the encoding of any message.
    #[error("the compressed vector is refused: {0}")]
    Code(#[from] CodeError),
    /// A compressed vector of a round beyond all that have random numbers.
    #[error(
        "the compressed vector is of round {round}: there are random numbers for those below 2^56"
    )]
    Round {
        /// Which one.
        round: u64,
    },
    /// Symbols that stand for no vector.
    #[error("the compressed vector is refused: {0}")]
    Symbols(#[from] CompressError),
    /// More or fewer numbers than the task needs, or more points than anybody may ask for.
    #[error("{found} numbers or points are announced, where at most {most} make sense")]
    Numbers {
        /// How many.
        found: u64,
        /// How many at the most.
        most: usize,
    },
    /// A vector that the task does not carry, or lacks.
    #[error("the answer is a {found}, where a {expected} was asked for")]
    WrongKind {
        /// What came.
        found: &'static str,
        /// What was asked for.
        expected: &'static str,
    },
}

/// The low bits of the first byte name the task; where all of them are set, the number of a further
/// task follows, counted from there.
const TASK: u8 = 7;
const HAS_POSITION: u8 = 1 << 3;
const REFERENCE_IS_POSITION: u8 = 1 << 4;
const HAS_REFERENCE: u8 = 1 << 5;
const HAS_CONTROL: u8 = 1 << 6;
const POSITION_IS_CODED: u8 = 1 << 7;

/// A value that the client does not know, behind its gradient: the one NaN that is no mistake.
pub(crate) const UNKNOWN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

fn task_code(task: Task) -> u64 {
    match task {
        Task::Estimate => 0,
        Task::Walk { .. } => 1,
        Task::Gradient => 2,
        Task::Value => 3,
        Task::HessianVector => 4,
        Task::Curvature => 5,
        Task::WalkAndShow { .. } => 6,
        Task::Derivatives { ladder } => 7 + u64::from(ladder),
        Task::Averages => 9,
        Task::Profiles => 10,
        Task::Pilot { .. } => 11,
        Task::Slopes { .. } => 12,
        Task::Potentials { .. } => 13,
        Task::Propose { accepted } => 14 + u64::from(accepted),
        Task::Slope => 16,
        Task::Values { .. } => 17,
        Task::Release { .. } => 18,
        Task::Nodes { .. } => 19,
    }
}

/// Whether orders with this task say how many numbers they carry beside vectors.
fn has_numbers(code: u64) -> bool {
    code >= 7
}

/// The count that follows some tasks.
fn count_of(task: Task) -> Option<u64> {
    match task {
        Task::Walk { steps } | Task::WalkAndShow { steps } => Some(steps),
        Task::Pilot { points }
        | Task::Slopes { points }
        | Task::Values { points }
        | Task::Nodes { points }
        | Task::Potentials { points } => Some(points),
        Task::Release { numbers } => Some(numbers),
        _ => None,
    }
}

/// The part of a task's number that stands in the first byte.
fn task_field(code: u64) -> u8 {
    code.min(u64::from(TASK)) as u8
}

/// The part of it that follows, if one does.
fn push_task(code: u64, out: &mut Vec<u8>) {
    if code >= u64::from(TASK) {
        push_number(code - u64::from(TASK), out);
    }
}

fn task_len(code: u64) -> u64 {
    code.checked_sub(u64::from(TASK)).map_or(0, number_len)
}

/// Append an order.
pub fn encode_order(order: &Order<'_>, out: &mut Vec<u8>) {
    let code = task_code(order.task);
    let mut first = task_field(code);
    first |= match order.position {
        None => 0,
        Some(Payload::Plain(..) | Payload::Levels { .. }) => HAS_POSITION,
        Some(Payload::Coded { .. }) => HAS_POSITION | POSITION_IS_CODED,
    };
    first |= match order.reference {
        ReferencePoint::Keep => 0,
        ReferencePoint::Position => REFERENCE_IS_POSITION,
        ReferencePoint::New(_) => HAS_REFERENCE,
    };
    if order.control.is_some() {
        first |= HAS_CONTROL;
    }
    out.push(first);
    push_task(code, out);
    push_number(order.round, out);
    if let Some(count) = count_of(order.task) {
        push_number(count, out);
    }
    if has_numbers(code) {
        push_number(order.numbers.len() as u64, out);
        push_payload(&Payload::Plain(order.numbers, Precision::F64), out);
    }
    if let Some((_, from)) = order.control {
        push_number(from, out);
    }
    if let ReferencePoint::New(reference) = &order.reference {
        push_payload(reference, out);
    }
    if let Some((control, _)) = &order.control {
        push_payload(control, out);
    }
    if let Some(position) = &order.position {
        push_payload(position, out);
    }
}

/// Append a reply.
pub fn encode_reply(reply: &Reply<'_>, out: &mut Vec<u8>) {
    out.push(reply.kind as u8);
    push_number(reply.round, out);
    push_payload(&Payload::Plain(reply.beside, Precision::F64), out);
    push_payload(&reply.payload, out);
}

/// The bits of an order that are not vectors.
pub(crate) fn order_header_bits(order: &Order<'_>) -> u64 {
    let count = count_of(order.task).map_or(0, number_len);
    let control = order.control.map_or(0, |(_, from)| number_len(from));
    let code = task_code(order.task);
    let numbers = if has_numbers(code) { number_len(order.numbers.len() as u64) } else { 0 };
    8 * (1 + task_len(code) + numbers + number_len(order.round) + count + control)
}

/// The bits of a reply that are not vectors.
pub(crate) fn reply_header_bits(reply: &Reply<'_>) -> u64 {
    reply_header_bits_in(reply.round)
}

/// The same of any reply in a round.
pub(crate) fn reply_header_bits_in(round: u64) -> u64 {
    8 * (1 + number_len(round))
}

/// A message that owns its vectors, read from bytes into buffers that are used again.
#[derive(Clone, Debug, Default)]
pub struct OrderBuffer {
    position: Vec<f64>,
    reference: Vec<f64>,
    control: Vec<f64>,
    numbers: Vec<f64>,
    message: Message,
}

impl OrderBuffer {
    /// Read an order in a format (surveys always use 64 bits).
    pub fn decode<'a>(
        &'a mut self,
        bytes: &[u8],
        format: &'a Format,
    ) -> Result<Order<'a>, WireError> {
        let mut reader = Reader { bytes, at: 0 };
        let first = reader.byte()?;
        let flags = first & !TASK;
        let unknown = |what| WireError::Unknown { what, at: 0, found: first };
        let both = |a: u8, b: u8| flags & a != 0 && flags & b != 0;
        let without_position =
            flags & HAS_POSITION == 0 && flags & (REFERENCE_IS_POSITION | POSITION_IS_CODED) != 0;
        if both(REFERENCE_IS_POSITION, HAS_REFERENCE) || without_position {
            return Err(unknown("set of vectors"));
        }
        let code = reader.task(first)?;
        let round = reader.number()?;
        let task = match code {
            0 => Task::Estimate,
            1 => Task::Walk { steps: reader.number()? },
            2 => Task::Gradient,
            3 => Task::Value,
            4 => Task::HessianVector,
            5 => Task::Curvature,
            6 => Task::WalkAndShow { steps: reader.number()? },
            7..=8 => Task::Derivatives { ladder: code == 8 },
            9 => Task::Averages,
            10 => Task::Profiles,
            11 => Task::Pilot { points: reader.points()? },
            12 => Task::Slopes { points: reader.points()? },
            13 => Task::Potentials { points: reader.points()? },
            14..=15 => Task::Propose { accepted: code == 15 },
            16 => Task::Slope,
            17 => Task::Values { points: reader.points()? },
            18 => Task::Release { numbers: reader.points()? },
            19 => Task::Nodes { points: reader.points()? },
            code => return Err(WireError::Task { code }),
        };
        self.numbers.clear();
        if has_numbers(code) {
            let (count, allowed) = (reader.number()?, task.order_numbers(format.dim));
            match usize::try_from(count).ok().filter(|count| allowed.contains(count)) {
                Some(count) => reader.vector(count, Precision::F64, &mut self.numbers)?,
                None => return Err(WireError::Numbers { found: count, most: *allowed.end() }),
            }
        }
        let precision = task.precision(format.precision);
        let from = if flags & HAS_CONTROL != 0 { reader.number()? } else { 0 };
        if flags & HAS_REFERENCE != 0 {
            reader.vector(format.dim, precision, &mut self.reference)?;
        }
        if flags & HAS_CONTROL != 0 {
            reader.vector(format.dim, precision, &mut self.control)?;
        }
        let coded = match &format.down {
            Some(channel) if flags & POSITION_IS_CODED != 0 => Some(channel),
            None if flags & POSITION_IS_CODED != 0 => {
                return Err(unknown("set of vectors: nothing is compressed on this way"));
            }
            _ => None,
        };
        if let Some(channel) = coded {
            reader.coded(channel, format, SERVER, round, &mut self.message, &mut self.position)?;
        } else if flags & HAS_POSITION != 0 {
            reader.vector(format.dim, precision, &mut self.position)?;
        }
        reader.end()?;
        Ok(Order {
            round,
            task,
            position: match coded {
                Some(channel) => {
                    Some(Payload::Coded { values: &self.position, message: &self.message, channel })
                }
                None => {
                    (flags & HAS_POSITION != 0).then_some(Payload::Plain(&self.position, precision))
                }
            },
            reference: if flags & HAS_REFERENCE != 0 {
                ReferencePoint::New(Payload::Plain(&self.reference, precision))
            } else if flags & REFERENCE_IS_POSITION != 0 {
                ReferencePoint::Position
            } else {
                ReferencePoint::Keep
            },
            control: (flags & HAS_CONTROL != 0)
                .then_some((Payload::Plain(&self.control, precision), from)),
            numbers: &self.numbers,
        })
    }
}

/// A reply that owns its vector.
#[derive(Clone, Debug, Default)]
pub struct ReplyBuffer {
    values: Vec<f64>,
    beside: Vec<f64>,
    message: Message,
}

impl ReplyBuffer {
    /// Read a client's reply to an order with this task.
    pub fn decode<'a>(
        &'a mut self,
        bytes: &[u8],
        task: Task,
        format: &'a Format,
        from: ClientId,
    ) -> Result<Reply<'a>, WireError> {
        let mut reader = Reader { bytes, at: 0 };
        let code = reader.byte()?;
        let Some(kind) = Kind::ALL.into_iter().find(|k| *k as u8 == code) else {
            return Err(WireError::Unknown { what: "kind", at: 0, found: code });
        };
        let expected: &[Kind] = match task {
            // the latter starts a memory, uncompressed
            Task::Estimate => &[Kind::Gradient, Kind::Reference],
            Task::Walk { .. } => &[Kind::Parameter],
            Task::WalkAndShow { .. } => &[Kind::Reference],
            Task::Gradient => &[Kind::Control],
            Task::Slope => &[Kind::Gradient],
            Task::Potentials { .. } | Task::Propose { .. } => &[Kind::Potential],
            Task::Value
            | Task::HessianVector
            | Task::Curvature
            | Task::Derivatives { .. }
            | Task::Averages
            | Task::Profiles
            | Task::Pilot { .. }
            | Task::Slopes { .. }
            | Task::Values { .. }
            | Task::Nodes { .. }
            | Task::Release { .. } => &[Kind::Survey],
        };
        if !expected.contains(&kind) {
            return Err(WireError::WrongKind { found: kind.name(), expected: expected[0].name() });
        }
        let round = reader.number()?;
        let precision = task.precision(format.precision);
        reader.vector(task.numbers_beside(), Precision::F64, &mut self.beside)?;
        let channel =
            format.up_of(from).filter(|_| matches!(kind, Kind::Gradient | Kind::Parameter));
        let levels = format.levels.filter(|_| kind == Kind::Gradient);
        if let Some(channel) = channel {
            reader.coded(channel, format, from, round, &mut self.message, &mut self.values)?;
        } else if let Some(bits) = levels {
            reader.levels(format.dim, bits, &mut self.values)?;
        } else if task == Task::Value && reader.ends_in(&UNKNOWN.to_le_bytes()) {
            reader.vector(format.dim, precision, &mut self.values)?;
            reader.take(8)?;
            self.values.push(UNKNOWN);
        } else {
            reader.vector(task.answer_len(format.dim), precision, &mut self.values)?;
        }
        reader.end()?;
        let payload = match (channel, levels) {
            (Some(channel), _) => {
                Payload::Coded { values: &self.values, message: &self.message, channel }
            }
            (None, Some(bits)) => Payload::Levels { values: &self.values, bits },
            (None, None) => Payload::Plain(&self.values, precision),
        };
        Ok(Reply { round, kind, payload, beside: &self.beside })
    }
}

fn push_payload(payload: &Payload<'_>, out: &mut Vec<u8>) {
    match payload {
        Payload::Plain(values, Precision::F32) => {
            for v in *values {
                out.extend_from_slice(&(*v as f32).to_le_bytes());
            }
        }
        Payload::Plain(values, Precision::F64) => {
            for v in *values {
                out.extend_from_slice(&v.to_le_bytes());
            }
        }
        Payload::Coded { message, channel, .. } => {
            channel.encode(message, out);
        }
        Payload::Levels { values, bits } => push_levels(values, *bits, out),
    }
}

/// So many bits a number, low bits first; what is left of the last byte is 0.
fn push_levels(values: &[f64], bits: u32, out: &mut Vec<u8>) {
    let (mut held, mut count) = (0u64, 0);
    for value in values {
        held |= (*value as u64) << count;
        count += bits;
        while count >= 8 {
            out.push(held as u8);
            (held, count) = (held >> 8, count - 8);
        }
    }
    if count > 0 {
        out.push(held as u8);
    }
}

/// Seven bits a byte, low first, the high bit of a byte says that more follow.
fn push_number(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn number_len(n: u64) -> u64 {
    u64::from((64 - (n | 1).leading_zeros()).div_ceil(7))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let rest = &self.bytes[self.at..];
        if rest.len() < n {
            return Err(WireError::Truncated { at: self.bytes.len(), needed: n - rest.len() });
        }
        self.at += n;
        Ok(&rest[..n])
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, WireError> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 0 && byte == 0 || shift == 63 && byte > 1 {
                return Err(WireError::NotCanonical { at: self.at - 1 });
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(WireError::NotCanonical { at: self.at })
    }

    /// The number of a task whose first byte this is.
    fn task(&mut self, first: u8) -> Result<u64, WireError> {
        let field = first & TASK;
        if field < TASK {
            return Ok(u64::from(field));
        }
        let beyond = self.number()?;
        beyond.checked_add(u64::from(TASK)).ok_or(WireError::NotCanonical { at: self.at - 1 })
    }

    /// How many points a task names.
    fn points(&mut self) -> Result<u64, WireError> {
        let found = self.number()?;
        if (1..=MOST_POINTS).contains(&found) {
            Ok(found)
        } else {
            Err(WireError::Numbers { found, most: MOST_POINTS as usize })
        }
    }

    fn vector(
        &mut self,
        n: usize,
        precision: Precision,
        out: &mut Vec<f64>,
    ) -> Result<(), WireError> {
        let bytes = self.take(n * precision.bits() as usize / 8)?;
        out.clear();
        match precision {
            Precision::F32 => {
                out.extend(
                    bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))),
                );
            }
            Precision::F64 => {
                out.extend(bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)))
            }
        }
        match out.iter().position(|v| !v.is_finite()) {
            Some(coordinate) => Err(WireError::NotFinite { coordinate }),
            None => Ok(()),
        }
    }

    /// Numbers of so many bits.
    fn levels(&mut self, n: usize, bits: u32, out: &mut Vec<f64>) -> Result<(), WireError> {
        let bytes = self.take((n * bits as usize).div_ceil(8))?;
        out.clear();
        let (mut held, mut count) = (0u64, 0);
        for byte in bytes {
            held |= u64::from(*byte) << count;
            count += 8;
            while count >= bits && out.len() < n {
                out.push((held & ((1 << bits) - 1)) as f64);
                (held, count) = (held >> bits, count - bits);
            }
        }
        // what is left of the last byte
        if held == 0 { Ok(()) } else { Err(WireError::NotCanonical { at: self.at - 1 }) }
    }

    /// A compressed vector: all the bytes that are left.
    fn coded(
        &mut self,
        channel: &Channel,
        format: &Format,
        from: ClientId,
        round: u64,
        message: &mut Message,
        out: &mut Vec<f64>,
    ) -> Result<(), WireError> {
        if round >= ROUNDS {
            return Err(WireError::Round { round });
        }
        channel.decode(&self.bytes[self.at..], message)?;
        self.at = self.bytes.len();
        out.resize(format.dim, 0.0);
        message.dequantise(&mut format.public.stream(Purpose::Compress, from, round), out)?;
        match out.iter().position(|v| !v.is_finite()) {
            Some(coordinate) => Err(WireError::NotFinite { coordinate }),
            None => Ok(()),
        }
    }

    /// Whether the message ends so.
    fn ends_in(&self, bytes: &[u8]) -> bool {
        self.bytes[self.at..].ends_with(bytes)
    }

    fn end(&self) -> Result<(), WireError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            surplus => Err(WireError::Overlong { surplus }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn orders() -> impl Strategy<Value = (u64, u8, Vec<f64>, u8, u64, bool)> {
        let values = proptest::collection::vec(-1e6f32..1e6, 3)
            .prop_map(|v| v.into_iter().map(f64::from).collect());
        (any::<u64>(), 0..7u8, values, 0..8u8, any::<u64>(), any::<bool>())
    }

    proptest! {
        #[test]
        fn orders_and_replies_come_back_as_they_were((round, code, values, vectors, number,
            wide) in orders()) {
            let task = [Task::Estimate, Task::Walk { steps: number }, Task::Gradient, Task::Value,
                Task::HessianVector, Task::Curvature,
                    Task::WalkAndShow { steps: number }][code as usize];
            let precision = if wide || task.is_survey() { Precision::F64 } else { Precision::F32 };
            let payload = Payload::Plain(&values, precision);
            let position = (vectors & 1 != 0).then_some(payload);
            let reference = match vectors & 2 {
                0 => ReferencePoint::Keep,
                _ if position.is_some() => ReferencePoint::Position,
                _ => ReferencePoint::New(payload),
            };
            let order = Order {
                round, task, position, reference,
                    control: (vectors & 4 != 0).then_some((payload, number)), numbers: &[] };
            let mut bytes = Vec::new();
            encode_order(&order, &mut bytes);
            let vectors_bits = [order.position,
                match reference { ReferencePoint::New(p) => Some(p), _ => None },
                    order.control.map(|c| c.0)]
                .iter().flatten().map(Payload::bits).sum::<u64>();
            prop_assert_eq!(bytes.len() as u64 * 8, order_header_bits(&order) + vectors_bits);
            let mut buffer = OrderBuffer::default();
            let format = Format::plain(3, precision);
            let back = buffer.decode(&bytes, &format).unwrap();
            prop_assert_eq!(format!("{back:?}"), format!("{order:?}"));

            let length = task.answer_len(3);
            let answer: Vec<f64> = values.iter().copied().cycle().take(length).collect();
            let kind = [Kind::Gradient, Kind::Parameter, Kind::Control, Kind::Survey, Kind::Survey,
                Kind::Survey, Kind::Reference][code as usize];
            let payload = Payload::Plain(&answer, precision);
            let reply = Reply { round, kind, payload, beside: &[] };
            let mut bytes = Vec::new();
            encode_reply(&reply, &mut bytes);
            prop_assert_eq!(bytes.len() as u64 * 8,
                reply_header_bits(&reply) + reply.payload.bits());
            let mut buffer = ReplyBuffer::default();
            let format = Format::plain(3, precision);
            let back = buffer.decode(&bytes, task, &format, ClientId(0)).unwrap();
            prop_assert_eq!(format!("{back:?}"), format!("{reply:?}"));
        }

        #[test]
        fn any_bytes_are_refused_or_are_the_one_encoding(
            bytes in proptest::collection::vec(any::<u8>(), 0..40), wide: bool
        ) {
            let precision = if wide { Precision::F64 } else { Precision::F32 };
            let mut buffer = OrderBuffer::default();
            if let Ok(order) = buffer.decode(&bytes, &Format::plain(1, precision)) {
                let mut again = Vec::new();
                encode_order(&order, &mut again);
                prop_assert_eq!(&again, &bytes);
            }
            let mut buffer = ReplyBuffer::default();
            if let Ok(reply) = buffer.decode(&bytes, Task::Estimate, &Format::plain(1, precision),
                ClientId(0)) {
                let mut again = Vec::new();
                encode_reply(&reply, &mut again);
                prop_assert_eq!(&again, &bytes);
            }
        }
    }

    #[test]
    fn tasks_have_room_and_those_that_exist_take_one_byte() {
        for code in (0..2000).chain([u64::MAX - 7, u64::MAX]) {
            let mut bytes = vec![task_field(code)];
            push_task(code, &mut bytes);
            assert_eq!(bytes.len() as u64, 1 + task_len(code));
            let mut reader = Reader { bytes: &bytes, at: 1 };
            // the number that follows is one of 64 bits
            assert_eq!(reader.task(bytes[0] | HAS_POSITION), Ok(code), "{code}");
            assert_eq!((reader.at, code < 7), (bytes.len(), bytes.len() == 1));
        }
        let order = |bytes: &[u8]| {
            let (mut buffer, format) = (OrderBuffer::default(), Format::plain(1, Precision::F32));
            buffer.decode(bytes, &format).map(|order| order.task).unwrap_err()
        };
        assert_eq!(order(&[TASK, 50, 5]), WireError::Task { code: 57 });
        assert_eq!(order(&[TASK | HAS_CONTROL, 57, 5]), WireError::Task { code: 64 });
        assert_eq!(order(&[TASK, 0x80, 0x00, 5]), WireError::NotCanonical { at: 2 });
        assert_eq!(order(&[TASK]), WireError::Truncated { at: 1, needed: 1 });
        let most = [&[TASK][..], &[0xff; 9], &[1, 5]].concat();
        assert_eq!(order(&most), WireError::NotCanonical { at: 10 }, "beyond all numbers");
    }

    #[test]
    fn orders_of_nodes_come_back_and_have_as_many_numbers_as_they_need() {
        let (format, numbers) = (Format::plain(2, Precision::F64), [0.5; 3 * 5]);
        let order = |points: u64, numbers: &[f64]| {
            let order = Order {
                round: 4,
                task: Task::Nodes { points },
                position: None,
                reference: ReferencePoint::Keep,
                control: None,
                numbers,
            };
            let mut bytes = Vec::new();
            encode_order(&order, &mut bytes);
            assert_eq!(
                8 * bytes.len() as u64,
                order_header_bits(&order) + 64 * numbers.len() as u64
            );
            let mut buffer = OrderBuffer::default();
            buffer.decode(&bytes, &format).map(|back| {
                assert_eq!(format!("{back:?}"), format!("{order:?}"));
                back.task.answer_len(2)
            })
        };
        assert_eq!(order(3, &numbers), Ok(3 * 6));
        assert_eq!(order(3, &numbers[1..]), Err(WireError::Numbers { found: 14, most: 15 }));
        assert_eq!(order(2, &numbers), Err(WireError::Numbers { found: 15, most: 10 }));
        let most = MOST_POINTS as usize;
        assert_eq!(order(0, &[]), Err(WireError::Numbers { found: 0, most }));
    }

    #[test]
    fn a_value_may_be_unknown_and_nothing_else() {
        let message = |numbers: &[f64]| {
            let payload = Payload::Plain(numbers, Precision::F64);
            let mut bytes = Vec::new();
            encode_reply(&Reply { round: 3, kind: Kind::Survey, payload, beside: &[] }, &mut bytes);
            bytes
        };
        let read = |bytes: &[u8], task| {
            let mut buffer = ReplyBuffer::default();
            let format = Format::plain(2, Precision::F64);
            let reply = buffer.decode(bytes, task, &format, ClientId(0));
            reply.map(|reply| reply.payload.values().to_vec())
        };
        let unknown = message(&[1.0, -2.0, UNKNOWN]);
        let values = read(&unknown, Task::Value).unwrap();
        assert_eq!(message(&values), unknown, "one encoding");
        let not_finite = |coordinate| Err(WireError::NotFinite { coordinate });
        assert_eq!(read(&message(&[1.0, UNKNOWN, 5.0]), Task::Value), not_finite(1));
        assert_eq!(read(&message(&[1.0, UNKNOWN, UNKNOWN]), Task::Value), not_finite(1));
        assert_eq!(read(&message(&[1.0, 2.0, -UNKNOWN]), Task::Value), not_finite(2));
        assert_eq!(read(&message(&[1.0, 2.0, f64::INFINITY]), Task::Value), not_finite(2));
        assert_eq!(read(&message(&[1.0, UNKNOWN]), Task::Value), not_finite(1));
        assert_eq!(read(&message(&[1.0, UNKNOWN]), Task::HessianVector), not_finite(1));
        let surplus = [&message(&[1.0, 2.0, 3.0])[..], &UNKNOWN.to_le_bytes()].concat();
        assert_eq!(read(&surplus, Task::Value), Err(WireError::Overlong { surplus: 8 }));
    }

    #[test]
    fn a_compressed_vector_of_a_round_without_random_numbers_is_refused() {
        let channel =
            Channel::new("layered(0.5)".parse().unwrap(), "elias".parse().unwrap(), 3).unwrap();
        let format = Format { up: vec![Some(channel.clone())], ..Format::plain(3, Precision::F32) };
        let mut stream = format.public.stream(Purpose::Compress, ClientId(0), 0);
        let mut packed = crate::protocol::Packed::default();
        let payload = packed.pack(&channel, &[1.0, -2.0, 0.5], &mut stream);
        for (round, refused) in [(ROUNDS - 1, false), (ROUNDS, true), (u64::MAX, true)] {
            let mut bytes = Vec::new();
            encode_reply(&Reply { round, kind: Kind::Gradient, payload, beside: &[] }, &mut bytes);
            let found =
                ReplyBuffer::default().decode(&bytes, Task::Estimate, &format, ClientId(0)).err();
            assert_eq!(found, refused.then_some(WireError::Round { round }));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_in_a_compressed_format_are_refused_or_are_the_one_encoding(
            bytes in proptest::collection::vec(any::<u8>(), 0..24),
            which in 0..5usize,
        ) {
            let compressor = ["qsgd(3)", "natural", "rand_k(1)", "top_k(2)",
                "layered(0.5)"][which].parse::<crate::compress::Compressor>().unwrap();
            for code in ["fixed", "elias", "huffman", "entropy"] {
                let channel = Channel::new(compressor.clone(), code.parse().unwrap(), 3).unwrap();
                let format = Format {
                    up: vec![Some(channel.clone())], down: Some(channel),
                        ..Format::plain(3, Precision::F32) };
                let mut buffer = OrderBuffer::default();
                if let Ok(order) = buffer.decode(&bytes, &format) {
                    let mut again = Vec::new();
                    encode_order(&order, &mut again);
                    prop_assert_eq!(&again, &bytes);
                }
                for task in [Task::Estimate, Task::Walk { steps: 1 }] {
                    let mut buffer = ReplyBuffer::default();
                    if let Ok(reply) = buffer.decode(&bytes, task, &format, ClientId(0)) {
                        let mut again = Vec::new();
                        encode_reply(&reply, &mut again);
                        prop_assert_eq!(&again, &bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn bad_messages_are_refused_by_name() {
        let mut bytes = Vec::new();
        encode_reply(
            &Reply {
                round: 300,
                kind: Kind::Gradient,
                payload: Payload::Plain(&[1.0, 2.0], Precision::F32),
                beside: &[],
            },
            &mut bytes,
        );
        let refused = |bytes: &[u8], task| {
            ReplyBuffer::default()
                .decode(bytes, task, &Format::plain(2, Precision::F32), ClientId(0))
                .unwrap_err()
        };
        assert_eq!(
            refused(&bytes[..bytes.len() - 1], Task::Estimate),
            WireError::Truncated { at: 10, needed: 1 }
        );
        assert_eq!(
            refused(&[&bytes[..], &[0]].concat(), Task::Estimate),
            WireError::Overlong { surplus: 1 }
        );
        assert_eq!(
            refused(&bytes, Task::Gradient),
            WireError::WrongKind { found: "gradient", expected: "control" }
        );
        assert_eq!(
            refused(&[99], Task::Estimate),
            WireError::Unknown { what: "kind", at: 0, found: 99 }
        );
        assert_eq!(refused(&[0, 0x80, 0x00], Task::Estimate), WireError::NotCanonical { at: 2 });
        let nan = bytes.len() - 4;
        bytes[nan..].copy_from_slice(&f32::NAN.to_le_bytes());
        assert_eq!(refused(&bytes, Task::Estimate), WireError::NotFinite { coordinate: 1 });
    }
}
