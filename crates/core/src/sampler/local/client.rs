//! Walk on one client's potential, with noise that is partly shared.

use std::any::Any;
use std::sync::OnceLock;

use super::super::Keys;
use super::super::encoder::{Encoder, Snap};
use super::Local;
use crate::ask::{Extent, Question, Sum};
use crate::compress::Channel;
use crate::linalg::add_scaled;
use crate::model::Evaluator;
use crate::protocol::{
    Carrier, Device, Event, Exchange, Kind, Ledger, Order, Payload, ReferencePoint, Reply, Task,
    Workspace, devices_of,
};
use crate::rng::{Blend, ClientId, Purpose, Rounds};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::step::{Schedule, noise_scale};
use crate::target::{Site, Target};
use crate::walk::{ControlVariate, Walk, WalkRoom};

/// A client of family B.
#[derive(Debug)]
pub struct Client {
    walker: Walker,
    /// Room for the drift, and for what is sent.
    workspace: Option<Box<Workspace>>,
}

/// The client but for its workspace.
#[derive(Debug)]
struct Walker {
    site: Site,
    step: Schedule,
    temperature: f64,
    inverse_weight: f64,
    encoder: Encoder,
    /// How fast the memory of the parameter follows, and the memory `h_c`.
    memory_rate: Option<f64>,
    memory: Option<Vec<f64>>,
    batches: Rounds,
    x: Vec<f64>,
    /// `1 / rho_c` and the server's parameter, where the client is tied to it; no parameter before
    /// the first.
    pull: Option<f64>,
    centre: Option<Vec<f64>>,
    /// The reference point and `grad U` there; `None` before the first.
    reference: Option<Control>,
    /// What takes their place at an iteration to come.
    next: Control,
    next_from: Option<u64>,
    /// By which the reference point is known elsewhere, once that was asked for.
    mark: OnceLock<u64>,
    noise: Blend,
    /// Where every step ends, where its noise keeps rows private.
    snap: Option<Snap>,
    /// The order that is being worked on: what it asks, in which round, and how far it is done.
    task: Task,
    round: u64,
    stage: Stage,
    /// The minibatches of the steps that are taken next, and how many these are.
    rows: Vec<u32>,
    walking: u64,
}

/// At most so many steps are taken in one walk, and rows of minibatches drawn for them ahead.
const LONGEST_WALK: u64 = 256;
const MOST_ROWS: usize = 1 << 20;

/// What a client must know next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The steps from iteration `k` to before `end`.
    Walk { k: u64, end: u64 },
    /// `grad U_c` at the next reference point.
    Refer,
    /// Nothing.
    Ready,
}

#[derive(Clone, Debug)]
struct Control {
    point: Vec<f64>,
    gradient: Vec<f64>,
}

impl Client {
    /// Client `id` of the target, whose answers go through this channel.
    pub fn new(
        recipe: &Local,
        target: &Target,
        id: ClientId,
        keys: Keys,
        channel: Option<Channel>,
    ) -> Self {
        let d = target.dim();
        let rows = target.clients[id.index()].rows();
        let (p, rho) = (recipe.weights[id.index()], recipe.correlation);
        let private_variance =
            (1.0 - rho * rho) / p * recipe.noise.factor(recipe.average, recipe.weights.len());
        let control = Control { point: vec![0.0; d], gradient: vec![0.0; d] };
        let own = (keys.private, private_variance.sqrt());
        let noise = Blend::new((keys.public, rho), own, id, d);
        let noise = if recipe.private { noise.private() } else { noise };
        // of every step, which are alike where a budget is kept
        let moved = || noise_scale(recipe.step.largest(), target.temperature) * own.1;
        let walker = Walker {
            site: target.site(id, recipe.batch.of(rows)),
            step: recipe.step,
            temperature: target.temperature,
            inverse_weight: 1.0 / p,
            encoder: Encoder::new(id, recipe.precision, channel, keys),
            memory_rate: recipe.memory_rate(),
            memory: None,
            batches: Rounds::new(keys.private, Purpose::Batch, id),
            x: vec![0.0; d],
            pull: recipe.pull(id.index()),
            centre: None,
            reference: recipe.refresh.map(|_| control.clone()),
            next: control,
            next_from: None,
            mark: OnceLock::new(),
            noise,
            snap: recipe.private.then(|| Snap::of(moved())),
            task: Task::Gradient,
            round: 0,
            stage: Stage::Ready,
            rows: Vec::new(),
            walking: 0,
        };
        Client { walker, workspace: None }
    }
}

impl Walker {
    /// Put the new reference point to use, if iteration `k` is its first.
    fn renew_reference(&mut self, k: u64) {
        if self.next_from.is_some_and(|from| k >= from)
            && let Some(control) = &mut self.reference
        {
            std::mem::swap(control, &mut self.next);
            self.next_from = None;
            self.mark = OnceLock::new();
        }
    }

    /// Make ready for the steps from iteration `k` on, or end the walk.
    fn approach(&mut self, k: u64, end: u64) {
        self.walking = 0;
        if k >= end {
            self.stage = Stage::Ready;
            return;
        }
        self.renew_reference(k);
        self.stage = Stage::Walk { k, end };
        self.walking = self.prepare(k, end); // here, where threads may do it for all clients
    }

    /// How many steps from `k` on are taken with the same reference point, and draw their rows.
    fn prepare(&mut self, k: u64, end: u64) -> u64 {
        // every step that is a release ends on the grid
        let longest = if self.snap.is_some() { 1 } else { LONGEST_WALK };
        // not yet used, so from > k
        let end = end.min(k + longest).min(self.next_from.unwrap_or(u64::MAX));
        let batch = self.site.for_walks().2;
        let end = end.min(k + (MOST_ROWS / batch.max(1)).max(1) as u64);
        let differences = self.reference.is_some();
        self.site.draw_all_rows(&mut self.batches, k..end, differences, &mut self.rows);
        end - k
    }

    /// Take in what an order brings.
    fn take_in(&mut self, order: &Order<'_>) {
        (self.task, self.round) = (order.task, order.round);
        self.renew_reference(order.round); // before a point that moves again takes its place
        if let Some(position) = &order.position {
            match &mut self.centre {
                Some(centre) => centre.copy_from_slice(position.values()),
                None => self.x.copy_from_slice(position.values()),
            }
            if self.pull.is_some() && self.centre.is_none() {
                self.centre = Some(self.x.clone()); // x_c = x_0 in the beginning
            }
            if self.memory.is_none() && self.memory_rate.is_some() {
                self.memory = Some(self.x.clone()); // h_c = x_0, as at the server
            }
        }
        match &order.reference {
            ReferencePoint::Keep => {}
            ReferencePoint::Position => self.next.point.copy_from_slice(&self.x),
            ReferencePoint::New(y) => self.next.point.copy_from_slice(y.values()),
        }
        if let Some((control, from)) = &order.control {
            self.next.gradient.copy_from_slice(control.values());
            self.next_from = Some(*from);
        }
        if let Task::Walk { .. } | Task::WalkAndShow { .. } = order.task {
            self.noise.start(order.round);
        }
    }

    #[inline(always)]
    fn begin(&mut self, order: &Order<'_>) {
        self.take_in(order);
        if let Task::Walk { steps } | Task::WalkAndShow { steps } = order.task {
            self.approach(order.round, order.round + steps);
        } else {
            self.stage = Stage::Refer;
        }
    }

    /// The answer: where a walk ended, or the gradient that is to be sent.
    #[inline(always)]
    fn reply<'a>(&'a mut self, workspace: &'a mut Workspace) -> Reply<'a> {
        let Workspace { outgoing, packed, .. } = workspace;
        if let Task::Walk { .. } | Task::WalkAndShow { .. } = self.task {
            outgoing.copy_from_slice(&self.x);
        }
        match (self.task, self.memory_rate) {
            (Task::Walk { .. }, Some(alpha)) => {
                let memory = self.memory.get_or_insert_default();
                add_scaled(-1.0, memory, outgoing);
                let reply = self.encoder.send(Kind::Parameter, outgoing, self.round, packed);
                add_scaled(alpha, reply.payload.values(), memory); // with what is *sent*
                reply
            }
            (Task::Walk { .. }, None) => {
                self.encoder.send_plain(Kind::Parameter, outgoing, self.round)
            }
            (Task::WalkAndShow { .. }, _) => {
                self.encoder.send_plain(Kind::Reference, outgoing, self.round)
            }
            _ => self.encoder.send_plain(Kind::Control, outgoing, self.round),
        }
    }

    /// The steps that it takes next, with room for the drift.
    #[inline(always)]
    fn walk<'a>(&'a mut self, drift: &'a mut [f64]) -> Option<(Walk<'a>, &'a mut dyn Evaluator)> {
        let Stage::Walk { k, .. } = self.stage else { return None };
        let client = self.site.id();
        let (prior, share, batch, inflation, evaluator) = self.site.for_walks();
        // Without control variates the drift is divided by p_c when the prior's share is in; with
        // them the difference alone is.
        let (asked, weight) = match &self.reference {
            None => (1.0, self.inverse_weight),
            Some(_) => (self.inverse_weight, 1.0),
        };
        let mark = &self.mark;
        let control = self.reference.as_ref().map(|control| ControlVariate {
            point: &control.point,
            drift: &control.gradient,
            mark,
        });
        let centre = self.centre.as_deref();
        let walk = Walk {
            client,
            x: &mut self.x,
            control,
            pull: self.pull.and_then(|pull| Some((pull, centre?))),
            rows: (!self.rows.is_empty()).then_some(&self.rows[..]),
            batch,
            scale: asked * inflation,
            prior: (prior, asked * share),
            weight,
            from: k,
            steps: self.walking,
            schedule: self.step,
            temperature: self.temperature,
            noise: &mut self.noise,
            drift,
        };
        Some((walk, evaluator))
    }

    fn walked(&mut self) {
        if let (Stage::Walk { k, end }, 1..) = (self.stage, self.walking) {
            if let Some(snap) = self.snap {
                self.x.iter_mut().for_each(|x| *x = snap.nearest(*x));
            }
            let points = if self.reference.is_some() { 2 } else { 1 };
            let batch = self.site.for_walks().2 as u64;
            self.site.count_rows(points * self.walking * batch);
            self.approach(k + self.walking, end);
        }
    }
}

/// The question for the gradient at a reference point.
fn about_reference<'a>(point: &'a [f64], room: &'a mut [f64]) -> Question<'a> {
    Question { sum: Sum::Gradient { x: point }, extent: Extent::All, scale: 1.0, out: room }
}

/// Carry an exchange whose order is the same for everybody: clients take it in and walk two by two.
fn carry(
    server: &mut dyn Exchange,
    clients: &mut [Box<dyn Device>],
    ledger: &mut Ledger,
) -> Option<Event> {
    let order = server.common_order()?;
    let (Task::Walk { .. } | Task::WalkAndShow { .. }) = order.task else { return None };
    if !devices_of(server.cohort(), clients).all(|device| walker(device).is_some()) {
        return None;
    }
    let first = server.cohort().first()?.index();
    let mut place = clients.first_mut()?.workspace()?.take(); // where it is between exchanges
    Workspace::at(&mut place, walker(&mut clients[first])?.x.len());
    let workspace = &mut **place.as_mut()?;
    ledger.down_to_all(server.cohort(), &order);
    for at in (0..server.cohort().len()).step_by(2) {
        let id = server.cohort()[at];
        let next = server.cohort().get(at + 1).copied();
        let (before, behind) = clients.split_at_mut(next.map_or(clients.len(), ClientId::index));
        let one = walker(&mut before[id.index()])?;
        let mut two = next.and_then(|id| Some((id, walker(behind.first_mut()?)?)));
        let order = server.common_order()?;
        one.begin(&order);
        if let Some((_, two)) = &mut two {
            two.begin(&order);
            walk_two([&mut *one, &mut **two], workspace);
        } else {
            walk_one(one, workspace);
        }
        for (id, walker) in [Some((id, one)), two].into_iter().flatten() {
            let reply = walker.reply(workspace);
            ledger.up(id, &reply);
            server.absorb(id, &reply);
        }
    }
    *clients.first_mut()?.workspace()? = place;
    Some(server.advance())
}

/// The walker of a device of this kind.
#[inline(always)]
fn walker(device: &mut Box<dyn Device>) -> Option<&mut Walker> {
    Some(&mut (**device).as_any()?.downcast_mut::<Client>()?.walker)
}

fn walk_two([one, two]: [&mut Walker; 2], workspace: &mut Workspace) {
    let Workspace { gradient, outgoing, walks, .. } = workspace;
    while let (Some((mut walk, evaluator)), Some((mut second, other))) =
        (one.walk(gradient), two.walk(outgoing))
    {
        if evaluator.walk_two(&mut walk, (other, &mut second), walks).is_err() {
            walk.x.fill(f64::NAN);
            second.x.fill(f64::NAN);
        }
        one.walked();
        two.walked();
    }
    walk_one(one, workspace);
    walk_one(two, workspace);
}

fn walk_one(walker: &mut Walker, workspace: &mut Workspace) {
    let Workspace { gradient, walks, .. } = workspace;
    while let Some((walk, evaluator)) = walker.walk(gradient) {
        let mut walks_of_one = [walk];
        if evaluator.walk(&mut walks_of_one, walks).is_err() {
            walks_of_one[0].x.fill(f64::NAN);
        }
        walker.walked();
    }
}

impl Device for Client {
    /// A gradient has no noise of ours: it is given only where the recipe has control variates.
    fn accepts(&self, order: &Order<'_>) -> bool {
        let walker = &self.walker;
        let kept_position = |payload: &Payload<'_>| matches!(payload, Payload::Plain(..));
        let ours = match order.task {
            Task::Walk { .. } => true,
            Task::WalkAndShow { .. } | Task::Gradient => walker.reference.is_some(),
            _ => false,
        };
        // far out a step is rounded before its noise comes to it, by more than the noise hides
        let near = |payload: &Payload<'_>| {
            let most = walker.snap.map_or(f64::INFINITY, Snap::most);
            walker.snap.is_none() || payload.values().iter().all(|x| x.abs() <= most)
        };
        ours && order.position.as_ref().is_none_or(|p| kept_position(p) && near(p))
    }

    #[inline(always)]
    fn begin(&mut self, order: &Order<'_>) {
        let Client { walker, workspace } = self;
        walker.begin(order);
        if walker.stage == Stage::Refer {
            Workspace::at(workspace, walker.x.len()).outgoing.fill(0.0);
        }
    }

    #[inline(always)]
    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        let Client { walker, workspace } = self;
        if walker.stage != Stage::Refer {
            return None;
        }
        let workspace = Workspace::at(workspace, walker.x.len());
        Some((&mut walker.site, about_reference(&walker.next.point, &mut workspace.outgoing)))
    }

    fn proceed(&mut self) {
        self.walker.stage = Stage::Ready;
    }

    #[inline(always)]
    fn reply(&mut self) -> Reply<'_> {
        let Client { walker, workspace } = self;
        walker.reply(Workspace::at(workspace, walker.x.len()))
    }

    #[inline(always)]
    fn walk(&mut self) -> Option<(Walk<'_>, &mut dyn Evaluator, &mut WalkRoom)> {
        let Client { walker, workspace } = self;
        if let Stage::Walk { .. } = walker.stage {
            let workspace = Workspace::at(workspace, walker.x.len());
            let (walk, evaluator) = walker.walk(&mut workspace.gradient)?;
            return Some((walk, evaluator, &mut workspace.walks));
        }
        None
    }

    fn walked(&mut self) {
        self.walker.walked();
    }

    fn rows_evaluated(&self) -> u64 {
        self.walker.site.rows_evaluated()
    }

    #[inline(always)]
    fn workspace(&mut self) -> Option<&mut Option<Box<Workspace>>> {
        Some(&mut self.workspace)
    }

    fn carrier(&self) -> Option<Carrier> {
        Some(carry)
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}

impl State for Client {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        let walker = &mut self.walker;
        visit.subject("a client of family B")?;
        walker.site.state(visit)?;
        visit.vector("the position", &mut walker.x)?;
        if walker.memory_rate.is_some() {
            visit.optional_vector("the memory", &mut walker.memory, walker.x.len())?;
        }
        if walker.pull.is_some() {
            visit.optional_vector("the server's parameter", &mut walker.centre, walker.x.len())?;
        }
        if let Some(control) = &mut walker.reference {
            visit.vector("the reference point", &mut control.point)?;
            visit.vector("the gradient there", &mut control.gradient)?;
            visit.vector("the next reference point", &mut walker.next.point)?;
            visit.vector("the gradient at the next one", &mut walker.next.gradient)?;
            visit.option("when the next one is used", &mut walker.next_from)?;
            walker.mark = OnceLock::new();
        }
        Ok(())
    }
}
