//! Speak bytes: the server and a client as state machines that eat messages and produce messages.
//!
//! Answers may come in any order; they are folded in the order of the cohort, so the chain does not depend on it. A refusal is a value and changes nothing.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use super::statement::Mismatch;
use super::wire::{OrderBuffer, ReplyBuffer, WireError, encode_order, encode_reply};
use super::{Device, Event, Exchange, Format, Ledger, Statement, Task};
use crate::rng::ClientId;

/// What the server wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes to a client.
    Send {
        /// To whom.
        to: ClientId,
        /// What.
        bytes: Vec<u8>,
    },
    /// An exchange is complete.
    Happened(Event),
}

/// Why a message was refused. Nothing changed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Refusal {
    /// The sender was not asked in this round.
    #[error("client {} was not asked in round {round}", .from.0)]
    NotAsked {
        /// Who.
        from: ClientId,
        /// The current round.
        round: u64,
    },
    /// The sender has answered already.
    #[error("client {} has answered round {round} already", .from.0)]
    Twice {
        /// Who.
        from: ClientId,
        /// The current round.
        round: u64,
    },
    /// The answer is to another round.
    #[error("client {} answers round {found}, where round {round} is open", .from.0)]
    WrongRound {
        /// Who.
        from: ClientId,
        /// The round of the answer.
        found: u64,
        /// The current round.
        round: u64,
    },
    /// The bytes are not a message.
    #[error("the message of client {} in round {round} is refused: {why}", .from.0)]
    Malformed {
        /// Who.
        from: ClientId,
        /// The current round.
        round: u64,
        /// What is wrong with it.
        why: WireError,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The orders of the next exchange are still to be written.
    Opening,
    /// Answers are awaited.
    Open,
    /// There is no next exchange.
    Ended,
}

/// The server's side of the protocol around any exchange. Drain [`Server::poll`] after every input: a draw stands until the next call.
#[derive(Debug)]
pub struct Server<E> {
    machine: E,
    statement: Statement,
    format: Format,
    outbox: VecDeque<Output>,
    task: Task,
    round: u64,
    /// Answers that came before their turn.
    waiting: BTreeMap<ClientId, Vec<u8>>,
    /// How many of the cohort are folded in.
    folded: usize,
    stage: Stage,
    buffer: ReplyBuffer,
    ledger: Ledger,
}

impl<E: Exchange> Server<E> {
    /// A server for so many clients.
    pub fn new(machine: E, statement: Statement, clients: usize, format: Format) -> Self {
        Server {
            machine,
            statement,
            format,
            outbox: VecDeque::new(),
            task: Task::Estimate,
            round: 0,
            waiting: BTreeMap::new(),
            folded: 0,
            stage: Stage::Opening,
            buffer: ReplyBuffer::default(),
            ledger: Ledger::new(clients),
        }
    }

    /// Check that a client means the same target.
    pub fn greet(&self, theirs: &Statement, who: &str) -> Result<(), Mismatch> {
        self.statement.check(theirs, who)
    }

    /// Take in the answer of a client.
    pub fn handle(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let round = self.round;
        if self.stage != Stage::Open {
            return Err(Refusal::NotAsked { from, round });
        }
        let Ok(turn) = self.machine.cohort().binary_search(&from) else { return Err(Refusal::NotAsked { from, round }) };
        if turn < self.folded || self.waiting.contains_key(&from) {
            return Err(Refusal::Twice { from, round });
        }
        let malformed = |why| Refusal::Malformed { from, round, why };
        let reply = self.buffer.decode(bytes, self.task, &self.format, from).map_err(malformed)?;
        if reply.round != round {
            return Err(Refusal::WrongRound { from, found: reply.round, round });
        }
        if turn > self.folded {
            self.waiting.insert(from, bytes.to_vec());
            return Ok(());
        }
        self.ledger.up(from, &reply);
        self.machine.absorb(from, &reply);
        self.folded += 1;
        while let Some(next) = self.machine.cohort().get(self.folded).copied()
            && let Some(bytes) = self.waiting.remove(&next)
        {
            if let Ok(reply) = self.buffer.decode(&bytes, self.task, &self.format, next) {
                self.ledger.up(next, &reply);
                self.machine.absorb(next, &reply);
            }
            self.folded += 1;
        }
        Ok(())
    }

    /// The next thing to do; `None`: wait for answers.
    pub fn poll(&mut self) -> Option<Output> {
        if self.stage == Stage::Opening {
            self.open();
        }
        if let Some(output) = self.outbox.pop_front() {
            return Some(output);
        }
        if self.stage == Stage::Ended || self.folded < self.machine.cohort().len() {
            return None;
        }
        let event = self.machine.advance(); // everybody has answered, or nobody was asked
        self.stage = if matches!(event, Event::Nothing | Event::Draw) { Stage::Opening } else { Stage::Ended };
        Some(Output::Happened(event))
    }

    /// The exchange that is carried.
    pub fn machine(&self) -> &E {
        &self.machine
    }

    /// What was sent and received.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn open(&mut self) {
        self.folded = 0;
        self.stage = Stage::Open;
        for to in self.machine.cohort() {
            let order = self.machine.order(*to);
            (self.task, self.round) = (order.task, order.round);
            self.ledger.down(*to, &order);
            let mut bytes = Vec::new();
            encode_order(&order, &mut bytes);
            self.outbox.push_back(Output::Send { to: *to, bytes });
        }
    }
}

/// A client's side of the protocol around any device.
pub struct Client<D> {
    device: D,
    format: Format,
    buffer: OrderBuffer,
}

impl<D: Device> Client<D> {
    /// A client that reads and writes in this format.
    pub fn new(device: D, format: Format) -> Self {
        Client { device, format, buffer: OrderBuffer::default() }
    }

    /// Do what an order asks; append the answer to `out`.
    pub fn handle(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        let order = self.buffer.decode(bytes, &self.format)?;
        let reply = self.device.answer(&order);
        encode_reply(&reply, out);
        Ok(())
    }
}
