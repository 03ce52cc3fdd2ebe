//! Walk on one client's potential, with noise that is partly shared.

use std::ops::Range;

use super::super::Keys;
use super::super::encoder::Encoder;
use super::Local;
use crate::ask::{Extent, Question, Reference, Sum, Tour, Walk};
use crate::compress::Channel;
use crate::linalg::add_scaled;
use crate::protocol::{Device, Kind, Order, Payload, ReferencePoint, Reply, Task, Workspace};
use crate::rng::{ClientId, Noise, Purpose, Rounds, Seed, SharedNoise};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::step::{Schedule, langevin_scaled};
use crate::target::{Site, Target};

/// A client of family B.
#[derive(Debug)]
pub struct Client {
    site: Site,
    /// Whether the site takes several steps at once.
    walks: bool,
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
    mark: Option<u64>,
    noise: Blend,
    /// Room for the drift, and for what is sent.
    workspace: Option<Box<Workspace>>,
    /// The order that is being worked on: what it asks, in which round, and how far it is done.
    task: Task,
    round: u64,
    stage: Stage,
    /// Whether the rows of the next iteration are drawn, and its drift started.
    prepared: bool,
    /// Minibatches and sizes of the steps that somebody else takes.
    toured: Toured,
}

/// Steps that are taken elsewhere.
#[derive(Debug, Default)]
struct Toured {
    rows: Vec<u32>,
    steps: Vec<f64>,
}

/// At most so many steps are taken elsewhere at a time.
const LONGEST_TOUR: u64 = 256;

impl Control {
    /// A number by which this is known: others have another one, but for a chance of 2^-64.
    fn mark(&self) -> u64 {
        let mix = |mark: u64, word: u64| {
            let mixed = (mark.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mixed ^ mixed >> 32
        };
        let numbers = self.point.iter().chain(&self.gradient);
        numbers.fold(0, |mark, number| mix(mark, number.to_bits()))
    }
}

/// What a client must know next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The drift of iteration `k`, of a walk that ends before `end`.
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
        let site = target.site(id, recipe.batch.of(rows));
        let pull = recipe.pull(id.index());
        Client {
            walks: site.walks() && pull.is_none() && (rho == 0.0 || private_variance == 0.0),
            site,
            step: recipe.step,
            temperature: target.temperature,
            inverse_weight: 1.0 / p,
            encoder: Encoder::new(id, recipe.precision, channel, keys),
            memory_rate: recipe.memory_rate(),
            memory: None,
            batches: Rounds::new(keys.private, Purpose::Batch, id),
            x: vec![0.0; d],
            pull,
            centre: None,
            reference: recipe.refresh.map(|_| control.clone()),
            next: control,
            next_from: None,
            mark: None,
            noise: Blend {
                shared_scale: rho,
                shared: keys.public,
                dim: d,
                private_scale: private_variance.sqrt(),
                private: Noise::new(keys.private, id, d),
                both: vec![0.0; if rho > 0.0 && private_variance > 0.0 { d } else { 0 }],
            },
            workspace: None,
            task: Task::Gradient,
            round: 0,
            stage: Stage::Ready,
            prepared: false,
            toured: Toured::default(),
        }
    }

    /// Put the new reference point to use, if iteration `k` is its first.
    fn renew_reference(&mut self, k: u64) {
        if self.next_from.is_some_and(|from| k >= from)
            && let Some(control) = &mut self.reference
        {
            std::mem::swap(control, &mut self.next);
            self.next_from = None;
            self.mark = None;
        }
    }

    /// Make ready for the drift of iteration `k`, or end the walk.
    fn approach(&mut self, k: u64, end: u64) {
        if k >= end {
            return self.arrive();
        }
        self.renew_reference(k);
        self.stage = Stage::Walk { k, end };
        self.prepared = false;
    }

    /// Draw the rows of iteration `k`, and let its drift start without them.
    fn prepare(&mut self, k: u64) {
        let drift = &mut Workspace::at(&mut self.workspace, self.x.len()).gradient;
        match &self.reference {
            None => {
                self.site.draw_rows(&mut self.batches, k);
                drift.fill(0.0);
                if let (Some(pull), Some(centre)) = (self.pull, &self.centre) {
                    for ((g, x), centre) in drift.iter_mut().zip(&self.x).zip(centre) {
                        *g = pull * (x - centre);
                    }
                }
            }
            Some(control) => {
                self.site.draw_rows_of_difference(&mut self.batches, k);
                drift.copy_from_slice(&control.gradient);
            }
        }
        self.prepared = true;
    }

    fn step(&mut self, k: u64) {
        let (step, temperature) = (self.step.at(k), self.temperature);
        let weight = if self.reference.is_none() { self.inverse_weight } else { 1.0 };
        let Workspace { gradient: drift, noise: shared, .. } =
            Workspace::at(&mut self.workspace, self.x.len());
        for stretch in self.noise.private.stretches() {
            let noise = self.noise.at(k, stretch.clone(), shared);
            langevin_scaled(
                &mut self.x[stretch.clone()],
                step,
                temperature,
                (weight, &drift[stretch]),
                noise,
            );
        }
    }

    /// Walk from iteration `k` to before `end`, several steps at once: the same steps as by a
    /// gradient for each.
    fn walk(&mut self, mut k: u64, end: u64) {
        while k < end {
            self.renew_reference(k);
            let step = self.step.at(k);
            let alike = if let Schedule::Constant(_) = self.step { end - k } else { 1 };
            // not yet used, so from > k
            let alike = self.next_from.map_or(alike, |from| alike.min(from - k));
            let Workspace { noise: shared, gradient: drift, .. } =
                Workspace::at(&mut self.workspace, self.x.len());
            let noise = self.noise.some_from(k, alike, shared);
            let (client, x, temperature) = (self.site.id(), &mut self.x[..], self.temperature);
            let (control, scale, weight) = match &self.reference {
                None => (None, 1.0, self.inverse_weight),
                Some(Control { point, gradient }) => {
                    (Some((&point[..], &gradient[..])), self.inverse_weight, 1.0)
                }
            };
            let walk = Walk { client, x, control, scale, weight, step, temperature, noise, drift };
            k += walk.steps();
            self.site.walk(walk);
        }
        self.arrive();
    }

    /// End a walk.
    fn arrive(&mut self) {
        Workspace::at(&mut self.workspace, self.x.len()).outgoing.copy_from_slice(&self.x);
        self.stage = Stage::Ready;
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
        if let Task::Walk { .. } | Task::WalkAndShow { .. } = order.task
            && let Some(noise) = &mut Workspace::at(&mut self.workspace, self.x.len()).noise
        {
            noise.start(order.round);
        }
    }
}

/// `rho Zs + sqrt((1 - rho^2)/p_c) Z_c`: noise that is partly everybody's.
#[derive(Debug)]
struct Blend {
    shared_scale: f64,
    /// The seed of everybody's.
    shared: Seed,
    dim: usize,
    private_scale: f64,
    private: Noise,
    both: Vec<f64>,
}

impl Blend {
    /// The noise of an iteration in one stretch, as a factor and a vector.
    fn at<'a>(
        &'a mut self,
        k: u64,
        stretch: Range<usize>,
        shared: &'a mut Option<SharedNoise>,
    ) -> (f64, &'a [f64]) {
        if self.shared_scale == 0.0 {
            return (self.private_scale, self.private.at(k, stretch));
        }
        let shared = SharedNoise::of(shared, self.shared, self.dim, k);
        if self.private_scale == 0.0 {
            return (self.shared_scale, shared.at(k, stretch));
        }
        let both = &mut self.both[stretch.clone()];
        let (shared, private) = (shared.at(k, stretch.clone()), self.private.at(k, stretch));
        for ((sum, zs), z) in both.iter_mut().zip(shared).zip(private) {
            *sum = self.shared_scale * zs + self.private_scale * z;
        }
        (1.0, both)
    }

    /// The same for some iterations in a row, at most so many, where it is everybody's or the
    /// client's alone.
    fn some_from<'a>(
        &'a mut self,
        k: u64,
        most: u64,
        shared: &'a mut Option<SharedNoise>,
    ) -> (f64, &'a [f64]) {
        if self.shared_scale == 0.0 {
            (self.private_scale, self.private.some_from(k, most))
        } else {
            (
                self.shared_scale,
                SharedNoise::of(shared, self.shared, self.dim, k).some_from(k, most),
            )
        }
    }
}

impl Device for Client {
    /// A gradient has no noise of ours: it is given only where the recipe has control variates.
    fn accepts(&self, order: &Order<'_>) -> bool {
        let kept_position = |payload: &Payload<'_>| matches!(payload, Payload::Plain(..));
        let ours = match order.task {
            Task::Walk { .. } => true,
            Task::WalkAndShow { .. } | Task::Gradient => self.reference.is_some(),
            _ => false,
        };
        ours && order.position.as_ref().is_none_or(kept_position)
    }

    #[inline(always)]
    fn begin(&mut self, order: &Order<'_>) {
        self.take_in(order);
        if let Task::Walk { steps } | Task::WalkAndShow { steps } = order.task {
            self.approach(order.round, order.round + steps);
        } else {
            Workspace::at(&mut self.workspace, self.x.len()).outgoing.fill(0.0);
            self.stage = Stage::Refer;
        }
    }

    #[inline(always)]
    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        if let (false, Stage::Walk { k, .. }) = (self.prepared, self.stage) {
            self.prepare(k);
        }
        let (x, workspace) = (&self.x, Workspace::at(&mut self.workspace, self.x.len()));
        let out = &mut workspace.gradient;
        let question = match (self.stage, &self.reference) {
            // The sum is divided by p_c with the prior's share, so the drift is scaled when that is
            // in.
            (Stage::Walk { .. }, None) => {
                Question { sum: Sum::Gradient { x }, extent: Extent::Minibatch, scale: 1.0, out }
            }
            (Stage::Walk { .. }, Some(control)) => {
                let sum = Sum::Difference { x, z: &control.point };
                Question { sum, extent: Extent::Minibatch, scale: self.inverse_weight, out }
            }
            (Stage::Refer, _) => Question {
                sum: Sum::Gradient { x: &self.next.point },
                extent: Extent::All,
                scale: 1.0,
                out: &mut workspace.outgoing,
            },
            (Stage::Ready, _) => return None,
        };
        Some((&mut self.site, question))
    }

    #[inline(always)]
    fn proceed(&mut self) {
        if let Stage::Walk { k, end } = self.stage {
            self.step(k);
            self.approach(k + 1, end);
        } else {
            self.stage = Stage::Ready;
        }
    }

    #[inline(always)]
    fn reply(&mut self) -> Reply<'_> {
        let Workspace { outgoing, packed, .. } = Workspace::at(&mut self.workspace, self.x.len());
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

    fn tour(&mut self) -> Option<Tour<'_>> {
        self.toured.steps.clear();
        let Stage::Walk { k, end } = self.stage else { return None };
        let Blend { shared_scale, shared, private_scale, ref private, .. } = self.noise;
        let own = private.seed()?;
        if self.pull.is_some() {
            return None;
        }
        let end = end.min(k + LONGEST_TOUR).min(self.next_from.unwrap_or(u64::MAX));
        let drawn = self.site.draw_all_rows(&mut self.batches, k..end, &mut self.toured.rows);
        self.toured.steps.extend((k..end).map(|k| self.step.at(k)));
        let (batch, inflation) = self.site.minibatch();
        // as by `question`, `complete` and `step`
        let (asked, weight) = match &self.reference {
            None => (1.0, self.inverse_weight),
            Some(_) => (self.inverse_weight, 1.0),
        };
        let (prior, share) = self.site.prior();
        let known = &mut self.mark;
        let control = self.reference.as_ref().map(|control| Reference {
            point: &control.point,
            drift: &control.gradient,
            mark: *known.get_or_insert_with(|| control.mark()),
        });
        Some(Tour {
            client: self.site.id(),
            x: &mut self.x,
            control,
            rows: drawn.then_some(&self.toured.rows[..]),
            batch,
            scale: asked * inflation,
            prior: (prior, asked * share),
            weight,
            from: k,
            steps: &self.toured.steps,
            temperature: self.temperature,
            shared: (shared, shared_scale),
            own: (own, private_scale),
        })
    }

    fn toured(&mut self) {
        let (Stage::Walk { k, end }, steps) = (self.stage, self.toured.steps.len() as u64) else {
            return;
        };
        if steps > 0 {
            self.toured.steps.clear();
            let points = if self.reference.is_some() { 2 } else { 1 };
            self.site.count_rows(points * steps * self.site.minibatch().0 as u64);
            self.approach(k + steps, end);
        }
    }

    fn answer(&mut self, order: &Order<'_>) -> Reply<'_> {
        if let (true, Task::Walk { steps } | Task::WalkAndShow { steps }) = (self.walks, order.task)
        {
            self.take_in(order);
            self.walk(order.round, order.round + steps);
            return self.reply();
        }
        self.begin(order);
        while let Some((site, question)) = self.question() {
            site.answer(question);
            self.proceed();
        }
        self.reply()
    }

    fn rows_evaluated(&self) -> u64 {
        self.site.rows_evaluated()
    }

    #[inline(always)]
    fn workspace(&mut self) -> Option<&mut Option<Box<Workspace>>> {
        Some(&mut self.workspace)
    }
}

impl State for Client {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a client of family B")?;
        self.site.state(visit)?;
        visit.vector("the position", &mut self.x)?;
        if self.memory_rate.is_some() {
            visit.optional_vector("the memory", &mut self.memory, self.x.len())?;
        }
        if self.pull.is_some() {
            visit.optional_vector("the server's parameter", &mut self.centre, self.x.len())?;
        }
        if let Some(control) = &mut self.reference {
            visit.vector("the reference point", &mut control.point)?;
            visit.vector("the gradient there", &mut control.gradient)?;
            visit.vector("the next reference point", &mut self.next.point)?;
            visit.vector("the gradient at the next one", &mut self.next.gradient)?;
            visit.option("when the next one is used", &mut self.next_from)?;
            self.mark = None;
        }
        Ok(())
    }
}
