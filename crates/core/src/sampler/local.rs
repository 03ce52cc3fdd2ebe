//! Walk on every client and average now and then: family B.
//!
//! ```text
//! every client, every iteration k
//!     x_c <- x_c - eta G_c + sqrt(2 eta T) ( rho Zs + sqrt((1 - rho^2)/p_c) Z_c )
//!     G_c = (1/p_c) H_c(x_c)                                 FALD, FA-LD
//!     G_c = (1/p_c) [H_c(x_c) - H_c(y)] + grad U(y)          VR-FALD*, one minibatch for both H_c
//! synchronise: x_c <- sum_c p_c x_c for all c; that is a draw
//! tied (DG-LMC): x_c stays where it is, G_c gains (1/p_c) (x_c - x) / rho_c, and x is drawn given all x_c: see `gibbs.rs`
//! with compression: x_c is sent as q_c = C(x_c - h_c), the mean is sum_c p_c (h_c + q_c), and h_c <- h_c + alpha q_c on both sides
//! with probability q: y <- sum_c p_c x_c, taken *before* this iteration's step and used from the next iteration on
//! ```
//!
//! It targets `exp(-U/T)` up to the bias of the step and of the walks. Departures from the papers: the shared noise is the supplement's (FALD eq. 4 would flatten the law);
//! clients that are not averaged are not asked, since their walk would be thrown away; where a reference point moves right after a synchronisation, nobody sends
//! what all have already.

use super::gibbs::Conditional;
use super::outlet::Outlet;
use super::recipe::{Average, Local, Synchronise};
use super::{Keys, Sampler};
use crate::ask::{Extent, Question, Sum};
use crate::compress::Channel;
use crate::error::DataError;
use crate::linalg::{add_scaled, norm_squared};
use crate::protocol::{Device, Event, Exchange, Kind, Order, Payload, Precision, Reference, Reply, Task};
use crate::rng::{ClientId, Purpose, SERVER, Seed, Stream, Subsets};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::step::{Schedule, langevin};
use crate::target::{Site, Target};

/// The server of family B.
#[derive(Debug)]
pub struct Server {
    /// What each client's parameter counts for: `p_c`, or `1 / rho_c` where they are tied.
    weights: Vec<f64>,
    synchronise: Synchronise,
    average: Average,
    precision: Precision,
    sync_coin: Coin,
    reference_coin: Option<Coin>,
    public: Seed,
    subsets: Subsets,
    chosen: Vec<u32>,

    /// The next iteration.
    iteration: u64,
    phase: Phase,
    /// The last mean; what every client starts its next walk from.
    x: Vec<f64>,
    /// Whether the clients still have to be told `x`.
    x_is_news: bool,
    reference: Vec<f64>,
    /// `grad U` at the reference point, and the first iteration that uses it where the clients still have to be told.
    control: Vec<f64>,
    control_is_news: Option<u64>,
    /// Who is asked, and what its answer counts for.
    cohort: Vec<ClientId>,
    shares: Vec<f64>,
    sum: Vec<f64>,
    /// How fast the memory of the clients' parameters follows, and its mean `sum_c p_c h_c`.
    memory_rate: Option<f64>,
    memory: Vec<f64>,
    /// The law of `x` given the clients', where they are tied to it in place of averaged.
    conditional: Option<Conditional>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Clients walk, then all are averaged.
    WalkToAverage { steps: u64 },
    /// Clients walk, then the reference point moves to their mean while they stay where they are.
    WalkToReference { steps: u64 },
    /// Clients send their gradients at the new reference point, to be used from this iteration on.
    Refer { from: u64 },
}

impl Server {
    /// A server whose clients all start at `start`.
    pub fn new(recipe: &Local, target: &Target, start: &[f64], public: Seed) -> Self {
        let (d, b) = (target.dim(), target.clients.len());
        let mut x = start.to_vec();
        recipe.precision.round(&mut x);
        let sync_probability = if let Synchronise::Randomly(p) = recipe.synchronise { p } else { 0.0 };
        let pulls: Option<Vec<f64>> = (0..b).map(|c| recipe.pull(c)).collect();
        let conditional = pulls.as_ref().map(|pulls| Conditional::new(target, pulls.iter().sum()));
        let mut server = Server {
            weights: pulls.unwrap_or_else(|| recipe.weights.clone()),
            synchronise: recipe.synchronise,
            average: recipe.average,
            precision: recipe.precision,
            sync_coin: Coin::new(Purpose::Synchronise, sync_probability),
            reference_coin: recipe.refresh.map(|q| Coin::new(Purpose::Reference, q)),
            public,
            subsets: Subsets::new(b),
            chosen: if let Average::WithoutReplacement(s) = recipe.average { vec![0; s] } else { Vec::new() },
            iteration: 0,
            phase: Phase::Refer { from: 0 },
            reference: x.clone(),
            x,
            x_is_news: true,
            control: vec![0.0; d],
            control_is_news: None,
            cohort: Vec::with_capacity(b),
            shares: vec![0.0; b],
            sum: vec![0.0; d],
            memory_rate: recipe.memory_rate(),
            memory: Vec::new(),
            conditional,
        };
        server.memory = server.x.clone(); // all start at x_0, which everybody knows
        if server.reference_coin.is_some() {
            server.ask_everybody();
        } else {
            server.plan_walk();
        }
        server
    }

    /// Find the next event. `y_0 = x_0` stands already, so the reference coin of iteration 0 changes nothing.
    fn plan_walk(&mut self) {
        let from = self.iteration;
        let mut k = from;
        self.phase = loop {
            let averages = match self.synchronise {
                Synchronise::Every(every) => (k + 1).is_multiple_of(every),
                Synchronise::Randomly(_) => self.sync_coin.at(self.public, k),
            };
            if averages {
                break Phase::WalkToAverage { steps: k + 1 - from };
            }
            k += 1;
            if self.reference_coin.as_mut().is_some_and(|coin| coin.at(self.public, k)) {
                break Phase::WalkToReference { steps: k - from };
            }
        };
        match self.average {
            Average::All => self.ask_everybody(),
            Average::WithReplacement(s) => {
                let mut coins = self.public.stream(Purpose::Participation, SERVER, k);
                self.shares.fill(0.0);
                for _ in 0..s {
                    let mut left = coins.uniform();
                    let drawn = self.weights.iter().position(|p| {
                        left -= p;
                        left < 0.0
                    });
                    self.shares[drawn.unwrap_or(self.weights.len() - 1)] += 1.0 / s as f64;
                }
                self.ask_sharers();
            }
            Average::WithoutReplacement(s) => {
                let mut coins = self.public.stream(Purpose::Participation, SERVER, k);
                self.subsets.draw(self.weights.len() as u32, &mut coins, &mut self.chosen);
                self.shares.fill(0.0);
                for c in &self.chosen {
                    self.shares[*c as usize] = 1.0 / s as f64;
                }
                self.ask_sharers();
            }
        }
    }

    fn ask_everybody(&mut self) {
        self.shares.copy_from_slice(&self.weights);
        self.ask_sharers();
    }

    fn ask_sharers(&mut self) {
        self.gather_cohort();
        self.sum.fill(0.0);
    }

    fn gather_cohort(&mut self) {
        self.cohort.clear();
        self.cohort.extend((0..self.shares.len()).filter(|c| self.shares[*c] > 0.0).map(|c| ClientId(c as u32)));
    }

    fn plain<'a>(&self, values: &'a [f64]) -> Payload<'a> {
        Payload::Plain(values, self.precision)
    }
}

impl Exchange for Server {
    fn cohort(&self) -> &[ClientId] {
        &self.cohort
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let (task, reference) = match self.phase {
            Phase::WalkToAverage { steps } => (Task::Walk { steps }, Reference::Keep),
            Phase::WalkToReference { steps } => (Task::WalkAndShow { steps }, Reference::Keep),
            Phase::Refer { .. } if self.x_is_news => (Task::Gradient, Reference::Position),
            Phase::Refer { .. } => (Task::Gradient, Reference::New(self.plain(&self.reference))),
        };
        Order {
            round: self.iteration,
            task,
            position: self.x_is_news.then(|| self.plain(&self.x)),
            reference,
            control: self.control_is_news.map(|from| (self.plain(&self.control), from)),
        }
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        let share = if let Phase::Refer { .. } = self.phase { 1.0 } else { self.shares[from.index()] };
        add_scaled(share, reply.payload.values(), &mut self.sum);
    }

    fn advance(&mut self) -> Event {
        if let (Phase::WalkToAverage { .. }, Some(alpha)) = (self.phase, self.memory_rate) {
            for (sum, h) in self.sum.iter_mut().zip(&mut self.memory) {
                let q = *sum;
                *sum += *h;
                *h += alpha * q;
            }
        }
        if let (Phase::WalkToAverage { steps }, Some(conditional)) = (self.phase, &mut self.conditional) {
            conditional.draw(self.public, self.iteration + steps, &mut self.sum);
        }
        self.precision.round(&mut self.sum);
        if !norm_squared(&self.sum).is_finite() {
            return Event::Diverged;
        }
        // Partial participation keeps nothing on the clients, so the news of `x` goes to the next cohort in any case.
        match self.phase {
            Phase::WalkToAverage { steps } => {
                self.iteration += steps;
                self.x.copy_from_slice(&self.sum);
                self.x_is_news = true;
                self.control_is_news = None;
                if self.reference_coin.as_mut().is_some_and(|coin| coin.at(self.public, self.iteration)) {
                    self.reference.copy_from_slice(&self.x);
                    self.phase = Phase::Refer { from: self.iteration + 1 };
                    self.ask_everybody();
                } else {
                    self.plan_walk();
                }
                Event::Draw
            }
            Phase::WalkToReference { steps } => {
                self.iteration += steps;
                self.x_is_news = false;
                self.control_is_news = None;
                self.reference.copy_from_slice(&self.sum);
                self.phase = Phase::Refer { from: self.iteration + 1 };
                self.ask_everybody();
                Event::Nothing
            }
            Phase::Refer { from } => {
                self.control.copy_from_slice(&self.sum);
                self.control_is_news = Some(from);
                self.x_is_news = false;
                self.plan_walk();
                Event::Nothing
            }
        }
    }
}

impl Sampler for Server {
    fn position(&self) -> &[f64] {
        &self.x
    }

    fn iteration(&self) -> u64 {
        self.iteration
    }
}

impl State for Server {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a server of family B")?;
        visit.number("the iteration", &mut self.iteration)?;
        self.phase.state(visit)?;
        visit.vector("the mean", &mut self.x)?;
        visit.flag("whether the mean is news", &mut self.x_is_news)?;
        if self.reference_coin.is_some() {
            visit.vector("the reference point", &mut self.reference)?;
            visit.vector("the gradient at the reference point", &mut self.control)?;
            visit.option("the first iteration with that gradient", &mut self.control_is_news)?;
        }
        if self.memory_rate.is_some() {
            visit.vector("the memory", &mut self.memory)?;
        }
        visit.vector("what each answer counts for", &mut self.shares)?;
        visit.vector("the answers so far", &mut self.sum)?;
        if visit.restores() {
            self.gather_cohort();
        }
        Ok(())
    }
}

impl State for Phase {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        let (mut which, mut number) = match *self {
            Phase::WalkToAverage { steps } => (0, steps),
            Phase::WalkToReference { steps } => (1, steps),
            Phase::Refer { from } => (2, from),
        };
        visit.below("the phase", &mut which, 2)?;
        visit.number("the phase's number", &mut number)?;
        *self = match which {
            0 => Phase::WalkToAverage { steps: number },
            1 => Phase::WalkToReference { steps: number },
            _ => Phase::Refer { from: number },
        };
        Ok(())
    }
}

/// One coin an iteration, the same for all clients, sixty-four at a time.
#[derive(Clone, Debug)]
struct Coin {
    purpose: Purpose,
    probability: f64,
    block: u64,
    faces: u64,
}

impl Coin {
    fn new(purpose: Purpose, probability: f64) -> Self {
        Coin { purpose, probability, block: u64::MAX, faces: 0 }
    }

    fn at(&mut self, seed: Seed, iteration: u64) -> bool {
        if iteration / 64 != self.block {
            self.block = iteration / 64;
            let mut stream = seed.stream(self.purpose, SERVER, self.block);
            self.faces = (0..64).fold(0, |faces, bit| faces | u64::from(stream.coin(self.probability)) << bit);
        }
        self.faces >> (iteration % 64) & 1 == 1
    }
}

/// A client of family B.
#[derive(Debug)]
pub struct Client {
    site: Site,
    step: Schedule,
    temperature: f64,
    inverse_weight: f64,
    shared_scale: f64,
    private_scale: f64,
    outlet: Outlet,
    /// How fast the memory of the parameter follows, and the memory `h_c`.
    memory_rate: Option<f64>,
    memory: Option<Vec<f64>>,
    keys: Keys,
    x: Vec<f64>,
    /// `1 / rho_c` and the server's parameter, where the client is tied to it; no parameter before the first.
    pull: Option<f64>,
    centre: Option<Vec<f64>>,
    /// The reference point and `grad U` there; `None` before the first.
    reference: Option<Control>,
    /// What takes their place at an iteration to come.
    next: Control,
    next_from: Option<u64>,
    drift: Vec<f64>,
    noise: Noise,
    sent: Vec<f64>,
    /// The order that is being worked on: what it asks, in which round, and how far it is done.
    task: Task,
    round: u64,
    stage: Stage,
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
    /// Client `id` of the target.
    pub fn new(recipe: &Local, target: &Target, id: ClientId, keys: Keys) -> Result<Self, DataError> {
        Ok(Client::over(recipe, target, id, keys, recipe.up_channel(target.dim())?))
    }

    /// The same where its channel is known already.
    pub fn over(recipe: &Local, target: &Target, id: ClientId, keys: Keys, channel: Option<Channel>) -> Self {
        let d = target.dim();
        let rows = target.clients[id.index()].rows();
        let (p, rho) = (recipe.weights[id.index()], recipe.correlation);
        let private_variance = (1.0 - rho * rho) / p * recipe.noise.factor(recipe.average, recipe.weights.len());
        let control = Control { point: vec![0.0; d], gradient: vec![0.0; d] };
        Client {
            site: target.site(id, recipe.batch.of(rows)),
            step: recipe.step,
            temperature: target.temperature,
            inverse_weight: 1.0 / p,
            shared_scale: rho,
            private_scale: private_variance.sqrt(),
            outlet: Outlet::new(id, recipe.precision, channel, keys),
            memory_rate: recipe.memory_rate(),
            memory: None,
            keys,
            x: vec![0.0; d],
            pull: recipe.pull(id.index()),
            centre: None,
            reference: recipe.refresh.map(|_| control.clone()),
            next: control,
            next_from: None,
            drift: vec![0.0; d],
            noise: Noise { sum: vec![0.0; d.min(STRETCH)], private: vec![0.0; d.min(STRETCH)] },
            sent: vec![0.0; d],
            task: Task::Gradient,
            round: 0,
            stage: Stage::Ready,
        }
    }

    /// Put the new reference point to use, if iteration `k` is its first.
    fn renew_reference(&mut self, k: u64) {
        if self.next_from.is_some_and(|from| k >= from)
            && let Some(control) = &mut self.reference
        {
            std::mem::swap(control, &mut self.next);
            self.next_from = None;
        }
    }

    /// Make ready for the drift of iteration `k`, or end the walk.
    fn approach(&mut self, k: u64, end: u64) {
        if k >= end {
            self.sent.copy_from_slice(&self.x);
            self.stage = Stage::Ready;
            return;
        }
        self.renew_reference(k);
        let (private, id) = (self.keys.private, self.site.id());
        let batch = || private.stream(Purpose::Batch, id, k);
        match &self.reference {
            None => {
                self.site.draw_rows(batch);
                self.drift.fill(0.0);
                if let (Some(pull), Some(centre)) = (self.pull, &self.centre) {
                    for ((g, x), centre) in self.drift.iter_mut().zip(&self.x).zip(centre) {
                        *g = pull * (x - centre);
                    }
                }
            }
            Some(control) => {
                self.site.draw_rows_of_difference(batch);
                self.drift.copy_from_slice(&control.gradient);
            }
        }
        self.stage = Stage::Walk { k, end };
    }

    fn step(&mut self, k: u64) {
        if self.reference.is_none() {
            for g in &mut self.drift {
                *g *= self.inverse_weight;
            }
        }
        let (step, temperature) = (self.step.at(k), self.temperature);
        let mut shared = self.keys.public.stream(Purpose::Noise, SERVER, k);
        let mut private = self.keys.private.stream(Purpose::Noise, self.site.id(), k);
        for (x, drift) in self.x.chunks_mut(STRETCH).zip(self.drift.chunks(STRETCH)) {
            let noise = self.noise.draw(x.len(), (self.shared_scale, &mut shared), (self.private_scale, &mut private));
            langevin(x, step, temperature, drift, noise);
        }
    }
}

/// Noise is drawn and used so many coordinates at a time, while they are in the cache: a whole number of a stream's refills.
const STRETCH: usize = 1024;

/// Room for the noise of one stretch.
#[derive(Debug)]
struct Noise {
    sum: Vec<f64>,
    private: Vec<f64>,
}

impl Noise {
    /// `rho Zs + sqrt((1 - rho^2)/p_c) Z_c`, for the next `n` coordinates; each part is a scale and its stream.
    fn draw(&mut self, n: usize, shared: (f64, &mut Stream), private: (f64, &mut Stream)) -> &[f64] {
        let (sum, own) = (&mut self.sum[..n], &mut self.private[..n]);
        if shared.0 > 0.0 {
            shared.1.normals(sum);
            for z in &mut *sum {
                *z *= shared.0;
            }
        } else {
            sum.fill(0.0);
        }
        if private.0 > 0.0 {
            private.1.normals(own);
            add_scaled(private.0, own, sum);
        }
        sum
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
            Reference::Keep => {}
            Reference::Position => self.next.point.copy_from_slice(&self.x),
            Reference::New(y) => self.next.point.copy_from_slice(y.values()),
        }
        if let Some((control, from)) = &order.control {
            self.next.gradient.copy_from_slice(control.values());
            self.next_from = Some(*from);
        }
        if let Task::Walk { steps } | Task::WalkAndShow { steps } = order.task {
            self.approach(order.round, order.round + steps);
        } else {
            self.sent.fill(0.0);
            self.stage = Stage::Refer;
        }
    }

    #[inline(always)]
    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        let (x, out) = (&self.x, &mut self.drift);
        let question = match (self.stage, &self.reference) {
            // The sum is divided by p_c with the prior's share, so the drift is scaled when that is in.
            (Stage::Walk { .. }, None) => Question { sum: Sum::Gradient { x }, extent: Extent::Minibatch, scale: 1.0, out },
            (Stage::Walk { .. }, Some(control)) => {
                let sum = Sum::Difference { x, z: &control.point };
                Question { sum, extent: Extent::Minibatch, scale: self.inverse_weight, out }
            }
            (Stage::Refer, _) => {
                Question { sum: Sum::Gradient { x: &self.next.point }, extent: Extent::All, scale: 1.0, out: &mut self.sent }
            }
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
        match (self.task, self.memory_rate) {
            (Task::Walk { .. }, Some(alpha)) => {
                let memory = self.memory.get_or_insert_default();
                add_scaled(-1.0, memory, &mut self.sent);
                let reply = self.outlet.send(Kind::Parameter, &mut self.sent, self.round);
                add_scaled(alpha, reply.payload.values(), memory); // with what is *sent*
                reply
            }
            (Task::Walk { .. }, None) => self.outlet.send_plain(Kind::Parameter, &mut self.sent, self.round),
            (Task::WalkAndShow { .. }, _) => self.outlet.send_plain(Kind::Reference, &mut self.sent, self.round),
            _ => self.outlet.send_plain(Kind::Control, &mut self.sent, self.round),
        }
    }

    fn rows_evaluated(&self) -> u64 {
        self.site.rows_evaluated()
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
        }
        Ok(())
    }
}
