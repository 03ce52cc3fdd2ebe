//! Run the server and a client as state machines that take and give encoded messages.
//!
//! Answers may come in any order; they are folded in the order of the cohort, so the chain does not
//! depend on it. A refusal is a value and changes nothing.
//!
//! Messages may be lost, doubled, reordered and replayed. The server gives an order again, in the
//! same bytes, as often as it is asked to ([`Server::again`]); the client gives the answer to its
//! last order again, in the same bytes, without computing anything. It never answers two different
//! orders with the same random numbers: the same noise on another point would give away the
//! difference of the gradients.

use std::collections::{BTreeMap, VecDeque};

use super::limit::{Excess, Limits};
use super::mask::Masks;
use super::refusal::{OrderRefusal, Refusal};
use super::statement::Mismatch;
use super::wire::{OrderBuffer, ReplyBuffer, encode_order, encode_reply};
use super::{
    Device, Event, Exchange, Format, Kind, Ledger, Payload, Reply, Statement, Task, answer_by,
};
use crate::model::{EvaluationError, Evaluator};
use crate::rng::{ClientId, ROUNDS};
use crate::snapshot::{SnapshotError, State, Visit};

/// How many of its answers a client keeps in this dimension, so that a server which loses its last
/// rounds can ask for them again: within 4 MiB.
pub fn kept_answers(dim: usize) -> u64 {
    ((4 << 20) / (16 * dim.max(1))).clamp(1, 256) as u64
}

/// A client that counts what it tells answers no order with larger numbers, which 32 bits do not
/// hold: beyond, the sum of two products of a row may be no number, by what stands in the row.
const FARTHEST: f64 = f32::MAX as f64;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The orders of the next exchange are still to be written.
    Opening,
    /// Answers are awaited.
    Open,
    /// There is no next exchange.
    Ended,
}

/// The server's side of the protocol around any exchange. Drain [`Server::poll`] after every input:
/// a draw stands until the next call.
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
    /// How many answers each client gave, and how many orders it got, in all.
    answers: Vec<u64>,
    asked: Vec<u64>,
    stage: Stage,
    buffer: ReplyBuffer,
    ledger: Ledger,
    /// How large answers may be.
    limits: Limits,
    /// How many rounds may be lost that clients remember.
    ahead: u64,
    /// The answer that was taken in last, for whoever watches.
    watched: Option<(Kind, Vec<f64>)>,
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
            answers: vec![0; clients],
            asked: vec![0; clients],
            stage: Stage::Opening,
            buffer: ReplyBuffer::default(),
            ledger: Ledger::new(clients),
            limits: Limits::new(f64::INFINITY),
            ahead: 0,
            watched: None,
        }
    }

    /// The same server that refuses answers which are larger than this.
    pub fn limited(self, limits: Limits) -> Self {
        Server { limits, ..self }
    }

    /// The same server that may lose so many of its last rounds: its clients keep as many answers
    /// ([`Client::keeping`]), and give them again.
    pub fn ahead(self, rounds: u64) -> Self {
        Server { ahead: rounds, ..self }
    }

    /// The same server that shows every answer that it takes in ([`Server::last_answer`]).
    pub fn watched(self) -> Self {
        Server { watched: Some((Kind::Gradient, Vec::new())), ..self }
    }

    /// Check that a client means the same target.
    pub fn greet(&self, theirs: &Statement, who: &str) -> Result<(), Mismatch> {
        self.statement.check(theirs, who)
    }

    /// Check that a client which comes (back) with so many answers given has forgotten nothing, and
    /// neither have we. Where either lost its last state unnoticed, the chain would silently become
    /// another.
    pub fn welcome(&self, from: ClientId, answered: u64) -> Result<(), Refusal> {
        let Some(needs) = self.answers.get(from.index()).copied() else {
            return Err(Refusal::NotAsked { from, round: self.round });
        };
        // Orders that are still to be written may have been sent before a restart.
        let opening = self.stage == Stage::Opening && self.turn(from).is_some();
        let most = self.asked[from.index()] + u64::from(opening);
        if answered < needs {
            return Err(Refusal::ClientForgot { from, has: answered, needs });
        }
        if answered > most + self.ahead {
            Err(Refusal::ServerForgot { from, has: answered, most })
        } else {
            Ok(())
        }
    }

    /// Take in the answer of a client.
    pub fn handle(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let round = self.round;
        if self.stage != Stage::Open {
            return Err(Refusal::NotAsked { from, round });
        }
        let Some(turn) = self.turn(from) else {
            return Err(Refusal::NotAsked { from, round });
        };
        if turn < self.folded || self.waiting.contains_key(&from) {
            return Err(Refusal::Twice { from, round });
        }
        let malformed = |why| Refusal::Malformed { from, round, why };
        let reply = self.buffer.decode(bytes, self.task, &self.format, from).map_err(malformed)?;
        if reply.round != round {
            return Err(Refusal::WrongRound { from, found: reply.round, round });
        }
        if let Some(Excess { norm, most, of_rows }) =
            self.limits.excess(&self.machine, from, &reply)
        {
            return Err(Refusal::TooLarge { from, round, norm, most, of_rows });
        }
        if let Some((kind, values)) = &mut self.watched {
            *kind = reply.kind;
            values.clear();
            values.extend_from_slice(reply.payload.values());
        }
        self.answers[from.index()] += 1;
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

    /// Wait no longer in this round, and say who is absent: the chain goes on without them. Only
    /// where the recipe allows it ([`Exchange::is_elastic`]); elsewhere, or with no round open,
    /// nothing changes.
    pub fn close(&mut self) -> Option<Vec<ClientId>> {
        if self.stage != Stage::Open || !self.machine.is_elastic() {
            return None;
        }
        let absent = self.outstanding().collect();
        while let Some(next) = self.machine.cohort().get(self.folded).copied() {
            if let Some(bytes) = self.waiting.remove(&next)
                && let Ok(reply) = self.buffer.decode(&bytes, self.task, &self.format, next)
            {
                self.ledger.up(next, &reply);
                self.machine.absorb(next, &reply);
            }
            self.folded += 1;
        }
        self.outbox.clear(); // orders that never left
        Some(absent)
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
        self.folded = 0;
        self.stage = if matches!(event, Event::Nothing | Event::Draw) {
            Stage::Opening
        } else {
            Stage::Ended
        };
        Some(Output::Happened(event))
    }

    /// Whose answers are awaited.
    pub fn outstanding(&self) -> impl Iterator<Item = ClientId> {
        let awaited =
            if self.stage == Stage::Open { &self.machine.cohort()[self.folded..] } else { &[] };
        awaited.iter().copied().filter(|id| !self.waiting.contains_key(id))
    }

    /// How many answers are awaited.
    pub fn awaits(&self) -> usize {
        if self.stage != Stage::Open {
            return 0;
        }
        self.machine.cohort().len() - self.folded - self.waiting.len()
    }

    /// The place of a client in the cohort, whose numbers ascend.
    fn turn(&self, client: ClientId) -> Option<usize> {
        self.machine.cohort().binary_search(&client).ok()
    }

    fn is_awaited(&self, client: ClientId) -> bool {
        self.stage == Stage::Open
            && self.turn(client).is_some_and(|turn| turn >= self.folded)
            && !self.waiting.contains_key(&client)
    }

    /// The order that a client has not answered yet, in the same bytes as before. It is not counted
    /// again.
    pub fn again(&self, to: ClientId) -> Option<Vec<u8>> {
        if !self.is_awaited(to) {
            return None;
        }
        let mut bytes = Vec::new();
        encode_order(&self.machine.order(to), &mut bytes);
        Some(bytes)
    }

    /// Have [`Server::poll`] give all orders again that were not answered.
    pub fn repeat(&mut self) {
        let outstanding: Vec<ClientId> = self.outstanding().collect();
        let again = |to| Some(Output::Send { to, bytes: self.again(to)? });
        self.outbox = outstanding.into_iter().filter_map(again).collect();
    }

    /// The exchange that is carried.
    pub fn machine(&self) -> &E {
        &self.machine
    }

    /// The vector of the answer that was taken in last, and what it is; of a server that is
    /// [`Server::watched`].
    pub fn last_answer(&self) -> Option<(Kind, &[f64])> {
        self.watched.as_ref().map(|(kind, values)| (*kind, values.as_slice()))
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
            self.asked[to.index()] += 1;
            let mut bytes = Vec::new();
            encode_order(&order, &mut bytes);
            self.outbox.push_back(Output::Send { to: *to, bytes });
        }
    }
}

/// A server that is restored in the middle of an exchange sends all orders again that were not
/// answered.
impl<E: Exchange> State for Server<E> {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("the server's side of the protocol")?;
        self.machine.state(visit)?;
        let mut stage = match self.stage {
            Stage::Opening => 0,
            Stage::Open => 1,
            Stage::Ended => 2,
        };
        visit.below("the stage", &mut stage, 2)?;
        self.stage = [Stage::Opening, Stage::Open, Stage::Ended][stage];
        visit.below("the answers folded in", &mut self.folded, self.machine.cohort().len())?;
        visit.number("the round", &mut self.round)?;
        visit.numbers("the answers of each client", &mut self.answers)?;
        visit.numbers("the orders to each client", &mut self.asked)?;
        self.ledger.state(visit)?;
        let mut waiting: Vec<(ClientId, Vec<u8>)> =
            std::mem::take(&mut self.waiting).into_iter().collect();
        let mut count = waiting.len();
        visit.below("the answers that wait", &mut count, self.machine.cohort().len())?;
        waiting.resize_with(count, || (ClientId(0), Vec::new()));
        for (id, bytes) in &mut waiting {
            let mut number = id.0 as usize;
            visit.below("a client that waits", &mut number, u32::MAX as usize)?;
            id.0 = number as u32;
            visit.bytes("an answer that waits", bytes)?;
        }
        self.waiting = waiting.into_iter().collect();
        if visit.restores() {
            self.reopen()?;
        }
        Ok(())
    }
}

impl<E: Exchange> Server<E> {
    /// Take up an open exchange after a restart.
    fn reopen(&mut self) -> Result<(), SnapshotError> {
        if let (Stage::Open, Some(first)) = (self.stage, self.machine.cohort().first()) {
            let order = self.machine.order(*first);
            (self.task, self.round) = (order.task, order.round);
        }
        for (from, bytes) in &self.waiting {
            let asked = self.machine.cohort()[self.folded..].contains(from);
            if !asked || self.buffer.decode(bytes, self.task, &self.format, *from).is_err() {
                return Err(SnapshotError::Value {
                    what: "a client that waits",
                    found: u64::from(from.0),
                });
            }
        }
        self.repeat();
        Ok(())
    }
}

/// A client's side of the protocol around any device.
///
/// Where it must know something of its rows it stops, and goes on when that is answered: by its own
/// potential, or by a model that somebody else wrote ([`Client::asking`]).
#[derive(Debug)]
pub struct Client<D> {
    device: D,
    format: Format,
    /// What answers in place of the device's own potential.
    model: Option<Box<dyn Evaluator>>,
    /// The order that the model could not answer, and why.
    failed: Option<(u64, EvaluationError)>,
    buffer: OrderBuffer,
    /// The last order, where it stands, and the answer to it.
    last: Option<(u64, u8)>,
    order: Vec<u8>,
    answer: Vec<u8>,
    /// How many row gradients the device had evaluated with the answer that was given last, and
    /// with the last new one.
    told_rows: u64,
    rows: u64,
    /// Earlier orders, their answers and rows, and how many of them are kept.
    kept: VecDeque<(Vec<u8>, Vec<u8>, u64)>,
    keep: usize,
    /// The first round whose random numbers are unused.
    unused: u64,
    answered: u64,
    allowance: Option<Allowance>,
    /// What levels of a secure sum are hidden behind.
    masks: Option<Masks>,
}

/// How much a client may tell of its rows, and has told.
///
/// A release is one noisy answer, or one step of a walk. The number of them is fixed before a run
/// from its statement, so that whatever a server asks, in whatever order, composes to no more than
/// the budget. What is counted is counted before the answer is made, and is part of the state that
/// is durable before the answer leaves: it is never below what was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allowance {
    most: u64,
    told: u64,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It was new, and the device moved on.
    Anew,
    /// It was the last one once more, and the answer is the same.
    Again,
}

impl<D: Device> Client<D> {
    /// A client that reads and writes in this format.
    pub fn new(device: D, format: Format) -> Self {
        Client {
            device,
            format,
            model: None,
            failed: None,
            buffer: OrderBuffer::default(),
            last: None,
            order: Vec::new(),
            answer: Vec::new(),
            told_rows: 0,
            rows: 0,
            kept: VecDeque::new(),
            keep: 0,
            unused: 0,
            answered: 0,
            allowance: None,
            masks: None,
        }
    }

    /// The same client that hides its levels of a secure sum behind these masks: without them it
    /// gives none.
    pub fn masked(self, masks: Masks) -> Self {
        Client { masks: Some(masks), ..self }
    }

    /// The same client that gives so many releases at most, and nothing that is no release: exact
    /// functions of rows are refused.
    pub fn allowed(self, releases: u64) -> Self {
        Client { allowance: Some(Allowance { most: releases, told: 0 }), ..self }
    }

    /// The same client that remembers so many answers besides the last, for a server that lost
    /// rounds: the same order gets the same answer again.
    pub fn keeping(self, answers: u64) -> Self {
        Client { keep: answers as usize, ..self }
    }

    /// How many gradients of single rows had been evaluated with the answer that was given last.
    pub fn told_rows(&self) -> u64 {
        self.told_rows
    }

    /// How many releases were given, or may have been, where they are limited.
    pub fn told(&self) -> Option<u64> {
        self.allowance.map(|allowance| allowance.told)
    }

    /// The same client whose questions this model answers: the device's own potential is a
    /// placeholder.
    pub fn asking(self, model: Box<dyn Evaluator>) -> Self {
        Client { model: Some(model), ..self }
    }

    /// Why the model gave no answer, if it did not. The device stands in the middle of an order
    /// then, which no snapshot describes: the client goes on from one that was taken before.
    pub fn failure(&self) -> Option<&EvaluationError> {
        self.failed.as_ref().map(|(_, error)| error)
    }

    /// Do what an order asks; append the answer to `out`.
    pub fn handle(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Answered, OrderRefusal> {
        if let Some((round, _)) = self.failed {
            return Err(OrderRefusal::Unanswered { round });
        }
        if self.last.is_some() && self.order == bytes {
            out.extend_from_slice(&self.answer);
            self.told_rows = self.rows;
            return Ok(Answered::Again);
        }
        let order = self.buffer.decode(bytes, &self.format)?;
        let (place, found) = (order.place(), order.round);
        match self.last {
            Some(last) if place == last => return Err(OrderRefusal::Changed { round: found }),
            Some(last) if place < last => {
                let before = self.kept.iter().find(|(order, ..)| order == bytes);
                let Some((_, answer, rows)) = before else {
                    return Err(OrderRefusal::Old { found, last: last.0 });
                };
                out.extend_from_slice(answer);
                self.told_rows = *rows;
                return Ok(Answered::Again);
            }
            _ => {}
        }
        if found < self.unused {
            return Err(OrderRefusal::Used { found, used: self.unused });
        }
        if order.end() > ROUNDS {
            return Err(OrderRefusal::Beyond { end: order.end() });
        }
        if !self.device.accepts(&order) {
            return Err(OrderRefusal::Unfit { task: order.task });
        }
        if self.format.levels.is_some() && self.masks.is_none() {
            return Err(OrderRefusal::Unmasked);
        }
        if let Some(Allowance { most, told }) = &mut self.allowance {
            let largest = order.largest();
            if largest > FARTHEST {
                return Err(OrderRefusal::Far { largest, most: FARTHEST });
            }
            let asked = match order.task {
                Task::Estimate
                | Task::Walk { .. }
                | Task::Release { .. }
                | Task::Propose { .. } => order.end() - found,
                task => return Err(OrderRefusal::Unfit { task }),
            };
            if asked > most.saturating_sub(*told) {
                return Err(OrderRefusal::Spent { asked, told: *told, most: *most });
            }
            *told += asked; // before anything is computed
        }
        (self.last, self.unused) = (Some(place), order.end());
        let reply = match &mut self.model {
            None => self.device.answer(&order),
            Some(model) => {
                self.device.begin(&order);
                if let Err(error) = answer_by(&mut self.device, model.as_mut()) {
                    self.failed = Some((found, error));
                    return Err(OrderRefusal::Unanswered { round: found });
                }
                self.device.reply()
            }
        };
        if self.keep > 0 && self.answered > 0 {
            let mut room = (Vec::new(), Vec::new(), 0);
            if self.kept.len() == self.keep {
                room = self.kept.pop_front().unwrap_or_default();
            }
            std::mem::swap(&mut room.0, &mut self.order);
            std::mem::swap(&mut room.1, &mut self.answer);
            room.2 = self.rows;
            self.kept.push_back(room);
        }
        self.answered += 1;
        self.answer.clear();
        match (reply.payload, &self.masks) {
            (Payload::Levels { values, bits }, Some(masks)) => {
                let mut values = values.to_vec();
                masks.add(reply.round, bits, &mut values);
                let payload = Payload::Levels { values: &values, bits };
                encode_reply(&Reply { payload, ..reply }, &mut self.answer);
            }
            _ => encode_reply(&reply, &mut self.answer),
        }
        self.order.clear();
        self.order.extend_from_slice(bytes);
        self.rows = self.device.rows_evaluated();
        self.told_rows = self.rows;
        out.extend_from_slice(&self.answer);
        Ok(Answered::Anew)
    }

    /// The device that answers.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// How many orders were answered: what a client says when it comes back ([`Server::welcome`]).
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// The first round whose random numbers are unused.
    pub fn unused(&self) -> u64 {
        self.unused
    }

    /// Take the random numbers of all rounds below this for used: a client that may have lost some
    /// of its answers must not give others with them.
    ///
    /// They count as told, for they may have been: also those that came before what is known here,
    /// which an earlier loss may have taken. A release uses up the random numbers of a round, so
    /// that there are never more releases than rounds.
    pub fn spend(&mut self, unused: u64) {
        self.unused = self.unused.max(unused);
        if let (Some(allowance), 1..) = (&mut self.allowance, unused) {
            allowance.told = allowance.told.max(self.unused);
        }
    }
}

impl<D: Device> State for Client<D> {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a client's side of the protocol")?;
        if visit.restores() {
            self.failed = None; // its device goes back to before the order
        }
        self.device.state(visit)?;
        self.rows = self.device.rows_evaluated();
        let (mut round, mut rank) =
            (self.last.map(|l| l.0), self.last.map_or(0, |l| usize::from(l.1)));
        visit.option("the last round", &mut round)?;
        visit.below("the last order's rank", &mut rank, 1)?;
        self.last = round.map(|round| (round, rank as u8));
        visit.number("the first unused round", &mut self.unused)?;
        visit.number("the orders answered", &mut self.answered)?;
        if let Some(allowance) = &mut self.allowance {
            visit.number("the releases told", &mut allowance.told)?;
        }
        visit.bytes("the last order", &mut self.order)?;
        visit.bytes("the last answer", &mut self.answer)?;
        if self.keep > 0 {
            let mut count = self.kept.len();
            visit.below("the answers that are kept", &mut count, self.keep)?;
            self.kept.resize_with(count, Default::default);
            for (order, answer, rows) in &mut self.kept {
                visit.bytes("an order that is kept", order)?;
                visit.bytes("an answer that is kept", answer)?;
                visit.number("the rows of an answer that is kept", rows)?;
            }
        }
        Ok(())
    }
}
