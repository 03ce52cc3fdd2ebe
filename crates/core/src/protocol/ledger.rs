//! Count what is sent.

use super::message::{Order, ReferencePoint, Reply};
use crate::rng::ClientId;
use crate::snapshot::{SnapshotError, State, Visit};

/// What a vector on the wire is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A gradient, or a compressed difference to a memory.
    Gradient = 0,
    /// A parameter vector.
    Parameter = 1,
    /// A reference point, or the start of a memory: what control variates are taken from.
    Reference = 2,
    /// Gradients at the reference point, and their sum.
    Control = 3,
    /// What finding the optimum, the curvature or the data's moments costs before sampling.
    Survey = 4,
    /// Rounds, tasks and lengths.
    Header = 5,
    /// Values of the potential, and what says where they are taken.
    Potential = 6,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 7] = [
        Kind::Gradient,
        Kind::Parameter,
        Kind::Reference,
        Kind::Control,
        Kind::Survey,
        Kind::Header,
        Kind::Potential,
    ];

    /// The kind's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Gradient => "gradient",
            Kind::Parameter => "parameter",
            Kind::Reference => "reference",
            Kind::Control => "control",
            Kind::Survey => "survey",
            Kind::Header => "header",
            Kind::Potential => "potential",
        }
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// From a client to the server.
    Up = 0,
    /// From the server to a client.
    Down = 1,
}

/// Bits by direction and kind, in all and for each client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    bits: [[u64; Kind::ALL.len()]; 2],
    vectors: [[u64; Kind::ALL.len()]; 2],
    messages: [u64; 2],
    per_client: Vec<[u64; 2]>,
}

impl Ledger {
    /// An empty ledger for so many clients.
    pub fn new(clients: usize) -> Self {
        Ledger { per_client: vec![[0; 2]; clients], ..Ledger::default() }
    }

    /// Count an order.
    #[inline]
    pub fn down(&mut self, to: ClientId, order: &Order<'_>) {
        self.down_to_all(&[to], order);
    }

    /// Count an order to each of some clients.
    #[inline]
    pub fn down_to_all(&mut self, cohort: &[ClientId], order: &Order<'_>) {
        let times = cohort.len() as u64;
        let survey = order.task.is_survey();
        let kind = |usual: Kind| if survey { Kind::Survey } else { usual };
        let mut note = |kind: Kind, bits: u64| {
            self.bits[Direction::Down as usize][kind as usize] += times * bits;
            self.vectors[Direction::Down as usize][kind as usize] += times;
            bits
        };
        let mut sum = note(Kind::Header, super::wire::order_header_bits(order));
        if let Some(position) = &order.position {
            sum += note(kind(Kind::Parameter), position.bits());
        }
        if let ReferencePoint::New(reference) = &order.reference {
            sum += note(kind(Kind::Reference), reference.bits());
        }
        if let Some((control, _)) = &order.control {
            sum += note(Kind::Control, control.bits());
        }
        if !order.numbers.is_empty() {
            sum += note(kind(Kind::Potential), 64 * order.numbers.len() as u64);
        }
        self.messages[Direction::Down as usize] += times;
        for to in cohort {
            self.per_client[to.index()][Direction::Down as usize] += sum;
        }
    }

    /// Count replies of some clients in a round, of a vector of so many bits each.
    #[inline]
    pub(crate) fn up_from_all(
        &mut self,
        cohort: &[ClientId],
        (round, kind): (u64, Kind),
        bits: &[u64],
    ) {
        let header = super::wire::reply_header_bits_in(round);
        let (up, times) = (Direction::Up as usize, cohort.len() as u64);
        self.bits[up][Kind::Header as usize] += times * header;
        self.vectors[up][Kind::Header as usize] += times;
        self.vectors[up][kind as usize] += times;
        self.messages[up] += times;
        for (from, bits) in cohort.iter().zip(bits) {
            self.bits[up][kind as usize] += bits;
            self.per_client[from.index()][up] += header + bits;
        }
    }

    /// Count a reply.
    #[inline]
    pub fn up(&mut self, from: ClientId, reply: &Reply<'_>) {
        let header = super::wire::reply_header_bits(reply);
        let mut sum = self.note(Direction::Up, Kind::Header, header);
        sum += self.note(Direction::Up, reply.kind, reply.payload.bits());
        if !reply.beside.is_empty() {
            sum += self.note(Direction::Up, Kind::Potential, 64 * reply.beside.len() as u64);
        }
        self.messages[Direction::Up as usize] += 1;
        self.per_client[from.index()][Direction::Up as usize] += sum;
    }

    /// Count `bits` of one kind, of no client yet.
    #[inline(always)]
    fn note(&mut self, direction: Direction, kind: Kind, bits: u64) -> u64 {
        self.bits[direction as usize][kind as usize] += bits;
        self.vectors[direction as usize][kind as usize] += 1;
        bits
    }

    /// Count `bits` of one kind.
    pub fn add(&mut self, direction: Direction, client: ClientId, kind: Kind, bits: u64) {
        self.per_client[client.index()][direction as usize] += self.note(direction, kind, bits);
    }

    /// The bits of one direction and kind.
    pub fn bits(&self, direction: Direction, kind: Kind) -> u64 {
        self.bits[direction as usize][kind as usize]
    }

    /// How many vectors of one kind (or headers) went this way.
    pub fn vectors(&self, direction: Direction, kind: Kind) -> u64 {
        self.vectors[direction as usize][kind as usize]
    }

    /// All bits of one direction, headers included.
    pub fn total(&self, direction: Direction) -> u64 {
        self.bits[direction as usize].iter().sum()
    }

    /// How many messages went this way.
    pub fn messages(&self, direction: Direction) -> u64 {
        self.messages[direction as usize]
    }

    /// All bits that one client sent or received.
    pub fn client(&self, client: ClientId, direction: Direction) -> u64 {
        self.per_client[client.index()][direction as usize]
    }

    /// Add what another ledger of the same clients counted.
    pub fn merge(&mut self, other: &Ledger) {
        for direction in 0..2 {
            for kind in 0..Kind::ALL.len() {
                self.bits[direction][kind] += other.bits[direction][kind];
                self.vectors[direction][kind] += other.vectors[direction][kind];
            }
            self.messages[direction] += other.messages[direction];
        }
        for (mine, theirs) in self.per_client.iter_mut().zip(&other.per_client) {
            mine[0] += theirs[0];
            mine[1] += theirs[1];
        }
    }
}

impl State for Ledger {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a ledger")?;
        visit.numbers("the ledger's bits", self.bits.as_flattened_mut())?;
        visit.numbers("the ledger's vectors", self.vectors.as_flattened_mut())?;
        visit.numbers("the ledger's messages", &mut self.messages)?;
        visit.numbers("the ledger's clients", self.per_client.as_flattened_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of two ledgers is another one, so that each sum has one way to come out right.
    #[test]
    fn merging_adds_every_number_of_both() {
        let fill = |base: u64, step: u64| {
            let mut next = base;
            let mut ledger = Ledger::new(3);
            let Ledger { bits, vectors, messages, per_client } = &mut ledger;
            let all = bits.as_flattened_mut().iter_mut().chain(vectors.as_flattened_mut());
            for number in all.chain(messages).chain(per_client.as_flattened_mut()) {
                *number = next;
                next += step;
            }
            ledger
        };
        let mut merged = fill(1, 1);
        merged.merge(&fill(1000, 100));
        assert_eq!(merged, fill(1001, 101));
        let last = merged.client(ClientId(2), Direction::Down);
        assert_eq!(last, 1001 + 101 * 35, "the last of 14 + 14 + 2 + 6");
    }
}
