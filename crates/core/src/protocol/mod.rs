//! Exchange messages between one server and its clients, as state machines that neither send nor
//! wait.

mod jointly;
mod ledger;
mod limit;
mod mask;
mod message;
mod party;
mod refusal;
mod statement;
pub mod wire;
mod workspace;

pub use crate::compress::Precision;
pub use jointly::{Jointly, Together};
pub use ledger::{Direction, Kind, Ledger};
pub use limit::{Growth, Limits};
pub use mask::{Masks, PairSecret};
pub use message::{MOST_POINTS, Order, Packed, Payload, ReferencePoint, Reply, Sender, Task};
pub use party::{Answered, Client, Output, Server, kept_answers};
pub use refusal::{OrderRefusal, Refusal};
pub use statement::{Exactly, Mismatch, Statement};
pub use wire::{Format, encode_order};
pub use workspace::Workspace;

use std::any::Any;

use crate::ask::{Ask, Question};
use crate::model::{EvaluationError, Evaluator};
use crate::rng::ClientId;
use crate::snapshot::State;
use crate::target::Site;
use crate::threads::Threads;
use crate::walk::{Walk, WalkRoom};

/// The server's side of any exchange: a sampler, or a survey of the target before sampling.
///
/// One exchange: ask everybody in [`Exchange::cohort`] with its [`Exchange::order`], fold every
/// answer with [`Exchange::absorb`] *in the order of the cohort* (float addition is not
/// associative), then [`Exchange::advance`].
pub trait Exchange: State + Send {
    /// Whom this exchange asks, in ascending order.
    fn cohort(&self) -> &[ClientId];

    /// What it asks of one of them.
    fn order(&self, to: ClientId) -> Order<'_>;

    /// What it asks of everybody in the cohort, where that is the same.
    fn common_order(&self) -> Option<Order<'_>> {
        None
    }

    /// Fold one answer in.
    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>);

    /// Fold all answers in, in the order of the cohort; threads may share the coordinates.
    fn absorb_all(&mut self, from: &[ClientId], replies: &[Reply<'_>], _spread: &dyn Threads) {
        for (id, reply) in from.iter().zip(replies) {
            self.absorb(*id, reply);
        }
    }

    /// Finish this exchange and prepare the next.
    fn advance(&mut self) -> Event;

    /// This exchange, for the [`Carrier`] of its clients.
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// Whether it may be finished without everybody's answer.
    fn is_elastic(&self) -> bool {
        false
    }

    /// Where the gradient of an answer is taken, or its `k`-th value, into `out`; `false`: answers
    /// have no such place.
    fn point(&self, _k: usize, _out: &mut [f64]) -> bool {
        false
    }
}

/// What an exchange led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing to show: more exchanges follow.
    Nothing,
    /// A new draw stands at [`crate::sampler::Sampler::position`].
    Draw,
    /// A parameter became infinite or NaN: the chain is lost. The step is too large for this
    /// target.
    Diverged,
    /// A survey has its answer.
    Done,
}

/// The client's side of any exchange: a machine that stops wherever it must know something of its
/// rows.
///
/// One exchange: [`Device::begin`]; then, as long as there are steps to be taken or a question to
/// be answered, do so and go on; then [`Device::reply`]. What happens in between is no state:
/// snapshots are taken between exchanges.
pub trait Device: State + Send {
    /// Whether this is an order for this device: a task of its own, with the vectors that it needs.
    /// [`Device::begin`] may panic on any other.
    fn accepts(&self, order: &Order<'_>) -> bool;

    /// Take in an order.
    fn begin(&mut self, order: &Order<'_>);

    /// What must be known next of the rows of this site, if anything. Asked again, it is the same.
    fn question(&mut self) -> Option<(&mut Site, Question<'_>)>;

    /// Go on with the answer, which is complete.
    fn proceed(&mut self);

    /// Say the result; nothing is left to be asked.
    fn reply(&mut self) -> Reply<'_>;

    /// How many row gradients were evaluated so far.
    fn rows_evaluated(&self) -> u64;

    /// Where the device has its workspace, if it needs one. Between orders it may be taken away or
    /// changed for another: the device makes one where it finds none.
    fn workspace(&mut self) -> Option<&mut Option<Box<Workspace>>> {
        None
    }

    /// How exchanges are carried faster with clients of this kind than one after the other, if
    /// they are.
    fn carrier(&self) -> Option<Carrier> {
        None
    }

    /// This device, for its [`Carrier`].
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// The next question, to whoever knows the rows.
    fn pending(&mut self) -> Option<Ask<'_>> {
        self.question().map(|(site, question)| site.ask(question))
    }

    /// Go on with what was [`Device::pending`], which was answered; nothing happens if nothing was.
    fn resume(&mut self) {
        if let Some((site, question)) = self.question() {
            site.complete(question);
            self.proceed();
        }
    }

    /// The steps that it takes next by itself, if there are such, before anything is asked: with
    /// who takes them here, and room for it. Asked again, they are the same.
    fn walk(&mut self) -> Option<(Walk<'_>, &mut dyn Evaluator, &mut WalkRoom)> {
        None
    }

    /// Go on behind the last [`Device::walk`], which was taken; nothing happens if there was none.
    fn walked(&mut self) {}

    /// Do what is asked by the client's own potential, and say the result. Where that fails, the
    /// result is NaN, which every receiver refuses.
    #[inline(always)]
    fn answer(&mut self, order: &Order<'_>) -> Reply<'_> {
        self.begin(order);
        loop {
            if let Some((walk, evaluator, room)) = self.walk() {
                let mut walks = [walk];
                if evaluator.walk(&mut walks, room).is_err() {
                    walks[0].x.fill(f64::NAN);
                }
                self.walked();
            } else if let Some((site, question)) = self.question() {
                site.answer(question);
                self.proceed();
            } else {
                return self.reply();
            }
        }
    }
}

/// Carries a whole exchange in this process, or says `None` and has done nothing. Every client
/// gives the answer that it gives alone, and is counted and folded in as alone, bit for bit.
pub type Carrier = fn(&mut dyn Exchange, &mut [Box<dyn Device>], &mut Ledger) -> Option<Event>;

/// Do what a device has begun by somebody else's model.
pub(crate) fn answer_by<D: Device + ?Sized>(
    device: &mut D,
    model: &mut dyn Evaluator,
) -> Result<(), EvaluationError> {
    loop {
        if let Some((walk, _, room)) = device.walk() {
            model.walk(&mut [walk], room)?;
            device.walked();
        } else if let Some(ask) = device.pending() {
            model.answer(&mut [ask])?;
            device.resume();
        } else {
            return Ok(());
        }
    }
}

/// Carry one exchange in this process: every client answers in turn, all at one workspace, which
/// the first client has between exchanges.
pub fn exchange<S: Exchange + ?Sized>(
    server: &mut S,
    clients: &mut [Box<dyn Device>],
    ledger: &mut Ledger,
) -> Event {
    let carrier = server.cohort().first().and_then(|id| clients.get(id.index())?.carrier());
    if let Some(carrier) = carrier
        && let Some(event) = carrier(&mut &mut *server, clients, ledger)
    {
        return event;
    }
    let mut workspace =
        clients.first_mut().and_then(|client| client.workspace()).and_then(Option::take);
    for at in 0..server.cohort().len() {
        let id = server.cohort()[at];
        let order = server.order(id);
        ledger.down(id, &order);
        let client = &mut clients[id.index()];
        change_workspaces(client, &mut workspace);
        let reply = client.answer(&order);
        ledger.up(id, &reply);
        server.absorb(id, &reply);
        change_workspaces(client, &mut workspace);
    }
    if let Some(first) = clients.first_mut() {
        change_workspaces(first, &mut workspace);
    }
    server.advance()
}

fn change_workspaces(client: &mut Box<dyn Device>, other: &mut Option<Box<Workspace>>) {
    if let Some(own) = client.workspace() {
        std::mem::swap(own, other);
    }
}

/// The devices of a cohort, which is in ascending order; nobody else is visited.
pub fn devices_of<'a>(
    cohort: &'a [ClientId],
    clients: &'a mut [Box<dyn Device>],
) -> impl Iterator<Item = &'a mut Box<dyn Device>> {
    let (mut rest, mut passed) = (clients, 0);
    cohort.iter().map_while(move |id| {
        let (device, behind) = std::mem::take(&mut rest)
            .split_at_mut_checked(id.index() - passed)?
            .1
            .split_first_mut()?;
        (rest, passed) = (behind, id.index() + 1);
        Some(device)
    })
}

impl<E: Exchange + ?Sized> Exchange for Box<E> {
    fn cohort(&self) -> &[ClientId] {
        (**self).cohort()
    }

    fn common_order(&self) -> Option<Order<'_>> {
        (**self).common_order()
    }

    fn order(&self, to: ClientId) -> Order<'_> {
        (**self).order(to)
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        (**self).absorb(from, reply);
    }

    fn absorb_all(&mut self, from: &[ClientId], replies: &[Reply<'_>], spread: &dyn Threads) {
        (**self).absorb_all(from, replies, spread);
    }

    fn advance(&mut self) -> Event {
        (**self).advance()
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        (**self).as_any()
    }

    fn is_elastic(&self) -> bool {
        (**self).is_elastic()
    }

    fn point(&self, k: usize, out: &mut [f64]) -> bool {
        (**self).point(k, out)
    }
}

impl<E: Exchange + ?Sized> Exchange for &mut E {
    fn cohort(&self) -> &[ClientId] {
        (**self).cohort()
    }

    fn common_order(&self) -> Option<Order<'_>> {
        (**self).common_order()
    }

    fn order(&self, to: ClientId) -> Order<'_> {
        (**self).order(to)
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        (**self).absorb(from, reply);
    }

    fn absorb_all(&mut self, from: &[ClientId], replies: &[Reply<'_>], spread: &dyn Threads) {
        (**self).absorb_all(from, replies, spread);
    }

    fn advance(&mut self) -> Event {
        (**self).advance()
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        (**self).as_any()
    }

    fn is_elastic(&self) -> bool {
        (**self).is_elastic()
    }

    fn point(&self, k: usize, out: &mut [f64]) -> bool {
        (**self).point(k, out)
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn accepts(&self, order: &Order<'_>) -> bool {
        (**self).accepts(order)
    }

    fn begin(&mut self, order: &Order<'_>) {
        (**self).begin(order);
    }

    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        (**self).question()
    }

    fn proceed(&mut self) {
        (**self).proceed();
    }

    fn reply(&mut self) -> Reply<'_> {
        (**self).reply()
    }

    fn rows_evaluated(&self) -> u64 {
        (**self).rows_evaluated()
    }

    fn workspace(&mut self) -> Option<&mut Option<Box<Workspace>>> {
        (**self).workspace()
    }

    fn walk(&mut self) -> Option<(Walk<'_>, &mut dyn Evaluator, &mut WalkRoom)> {
        (**self).walk()
    }

    fn walked(&mut self) {
        (**self).walked();
    }

    fn carrier(&self) -> Option<Carrier> {
        (**self).carrier()
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        (**self).as_any()
    }

    fn answer(&mut self, order: &Order<'_>) -> Reply<'_> {
        (**self).answer(order) // one call for a whole answer, not one for each of its parts
    }
}
