//! Send gradients up and take one Langevin step a round: family A.
//!
//! ```text
//! server   v = Q_down(x - w);  w <- w + v;  send v             (uncompressed: w = x, send x)
//! clients  i in A, at w:  H_i = oracle_i(w);  g_i = C_i(H_i - eta_i);  send g_i;
//!          eta_i <- eta_i + alpha g_i
//! server   g = eta + sum_{i in A} omega_i g_i;   eta <- eta + alpha sum_{i in A} g_i
//!          x <- x - gamma (g + grad U_0(x)) + sqrt(2 gamma T) Z
//! ```
//!
//! It targets `exp(-U/T)` up to the bias of the step. Departures from the papers: the parameter
//! goes to active clients only (the others would not use it); a client that was away when the
//! reference point moved is sent that point when it comes back; with the fixed point oracle the
//! server adds the gradient at `x*` that is left, so that the drift is unbiased however well `x*`
//! was found, and wherever the prior is applied.

use super::attendance::Attendance;
use super::encoder::Encoder;
use super::participation::{Participation, Roll};
use super::recipe::{MemoryRule, NoiseSource, Oracle, Uplink};
use super::{Keys, Sampler};
use crate::ask::{Extent, Question, Sum};
use crate::compress::Channel;
use crate::error::DataError;
use crate::linalg::{add_scaled, difference, norm_squared};
use crate::model::Prior;
use crate::protocol::{
    Device, Event, Exchange, Kind, Order, Payload, Precision, Reference, Reply, Sender, Task,
    Workspace,
};
use crate::rng::{ClientId, Noise, Purpose, Rounds, SERVER, Seed};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::step::{Schedule, langevin};
use crate::target::{Placement, Site, Target};

/// The server of family A.
#[derive(Debug)]
pub struct Server {
    step: Schedule,
    oracle: Oracle,
    memory_rate: Option<f64>,
    memory_rule: MemoryRule,
    /// Whether all send their gradient in full this round.
    restarting: bool,
    precision: Precision,
    /// The temperature of the noise that the server draws.
    temperature: f64,
    prior: Prior,
    roll: Roll,
    public: Seed,
    round: u64,
    x: Vec<f64>,
    /// `w`: the parameter as the clients see it.
    sent: Vec<f64>,
    /// Compresses the increments of `w`.
    down: Option<Sender>,
    increment: Vec<f64>,
    /// `eta = sum_i eta_i`.
    memory: Vec<f64>,
    /// The reference point `z` (or `x*`), how often it was set, and which setting each client has
    /// seen.
    reference: Vec<f64>,
    version: u64,
    seen: Vec<u64>,
    /// `eta + sum_{i in A} omega_i g_i`, and what the memory will absorb, so far.
    weighted: Vec<f64>,
    absorbed: Vec<f64>,
    noise: Noise,
    /// Who answers, where clients may stay away.
    attendance: Option<Attendance>,
}

impl Server {
    /// A server that starts at `start`.
    pub fn new(
        recipe: &Uplink,
        target: &Target,
        start: &[f64],
        public: Seed,
    ) -> Result<Self, DataError> {
        let (d, b) = (target.dim(), target.clients.len());
        let roll = Roll::new(recipe.participation.clone(), recipe.weighting, b)?;
        let mut server = Server {
            step: recipe.step,
            oracle: recipe.oracle.clone(),
            memory_rate: recipe.effective_memory(),
            memory_rule: recipe.memory_rule,
            restarting: false,
            precision: recipe.plain(),
            temperature: if recipe.noise == NoiseSource::Server { target.temperature } else { 0.0 },
            prior: if target.placement == Placement::Server {
                target.prior.clone()
            } else {
                Prior::Flat
            },
            roll,
            public,
            round: 0,
            x: start.to_vec(),
            sent: vec![0.0; d],
            down: recipe.down_channel(d)?.map(Sender::new),
            increment: vec![0.0; d],
            memory: vec![0.0; d],
            reference: vec![0.0; d],
            version: 0,
            seen: vec![0; b],
            weighted: vec![0.0; d],
            absorbed: vec![0.0; d],
            noise: Noise::new(public, SERVER, d),
            attendance: if let Participation::Elastic(p) = &recipe.participation {
                Some(Attendance::new(p, d))
            } else {
                None
            },
        };
        if let Oracle::FixedPoint(anchor) = &server.oracle {
            server.reference.copy_from_slice(&anchor.point);
            server.precision.round(&mut server.reference);
            server.version = 1;
        }
        server.prepare();
        Ok(server)
    }

    fn prepare(&mut self) {
        self.roll.call(self.public, self.round);
        match &mut self.down {
            Some(sender) if self.round > 0 => {
                difference(&self.x, &self.sent, &mut self.increment);
                let v = sender.send(
                    &self.increment,
                    &mut self.public.stream(Purpose::Compress, SERVER, self.round),
                );
                v.add_to(1.0, &mut self.sent); // ELF Alg. 2: w <- w + Q(x - w)
            }
            _ => {
                self.sent.copy_from_slice(&self.x); // and w_0 = x_0, sent in full
                self.precision.round(&mut self.sent);
            }
        }
        if self.moves_reference() {
            self.reference.copy_from_slice(&self.sent); // [vono22] Alg. 2, "Set zeta_k = theta_k"
            self.version += 1;
        }
        self.restarting = match self.memory_rule {
            MemoryRule::Marina { restart } if self.memory_rate.is_some() => {
                self.round == 0
                    || self.public.stream(Purpose::Reference, SERVER, self.round).coin(restart)
            }
            _ => false,
        };
        if self.restarting {
            self.memory.fill(0.0);
        }
        self.weighted.copy_from_slice(&self.memory);
        self.absorbed.fill(0.0);
    }

    fn moves_reference(&self) -> bool {
        matches!(self.oracle, Oracle::Svrg { every } if self.round.is_multiple_of(every))
    }
}

impl Exchange for Server {
    fn cohort(&self) -> &[ClientId] {
        &self.roll.active
    }

    fn order(&self, to: ClientId) -> Order<'_> {
        let reference = if self.restarting {
            Reference::Position // no reference point is in use: it says to start anew
        } else if self.seen[to.index()] == self.version {
            Reference::Keep
        } else if self.moves_reference() {
            Reference::Position
        } else {
            Reference::New(Payload::Plain(&self.reference, self.precision))
        };
        Order {
            round: self.round,
            task: Task::Estimate,
            position: Some(match &self.down {
                Some(sender) if self.round > 0 => sender.last(),
                _ => Payload::Plain(&self.sent, self.precision),
            }),
            reference,
            control: None,
        }
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        reply.payload.add_to(self.roll.weight(from), &mut self.weighted);
        if let Some(alpha) = self.memory_rate {
            // what starts a memory is taken over whole
            let rate = if reply.kind == Kind::Reference { 1.0 } else { alpha };
            reply.payload.add_to(rate, &mut self.absorbed);
        }
        self.seen[from.index()] = self.version;
        if let Some(attendance) = &mut self.attendance {
            attendance.note(from, reply.payload.values());
        }
    }

    fn is_elastic(&self) -> bool {
        self.roll.is_elastic()
    }

    fn advance(&mut self) -> Event {
        if let Some(attendance) = &mut self.attendance {
            attendance.end_round();
        }
        add_scaled(1.0, &self.absorbed, &mut self.memory);
        let drift = &mut self.weighted;
        if let Oracle::FixedPoint(anchor) = &self.oracle {
            add_scaled(1.0, &anchor.residual, drift);
        }
        self.prior.add_gradient(&self.x, 1.0, drift);
        let (round, step) = (self.round, self.step.at(self.round));
        for stretch in self.noise.stretches() {
            let noise = self.noise.at(round, stretch.clone());
            langevin(&mut self.x[stretch.clone()], step, self.temperature, &drift[stretch], noise);
        }
        self.round += 1;
        if !norm_squared(&self.x).is_finite() {
            return Event::Diverged;
        }
        self.prepare();
        Event::Draw
    }
}

impl Sampler for Server {
    fn position(&self) -> &[f64] {
        &self.x
    }

    fn iteration(&self) -> u64 {
        self.round
    }

    fn attendance(&self) -> Option<&Attendance> {
        self.attendance.as_ref()
    }
}

impl State for Server {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a server of family A")?;
        visit.number("the round", &mut self.round)?;
        visit.flag("whether memories start anew", &mut self.restarting)?;
        visit.vector("the parameter", &mut self.x)?;
        visit.vector("the parameter as sent", &mut self.sent)?;
        if let Some(down) = self.down.as_mut().filter(|_| self.round > 0) {
            down.state(visit)?;
        }
        if self.memory_rate.is_some() {
            visit.vector("the memory", &mut self.memory)?;
            visit.vector("what the memory will absorb", &mut self.absorbed)?;
        }
        if let Oracle::Svrg { .. } = self.oracle {
            visit.vector("the reference point", &mut self.reference)?;
        }
        visit.number("how often the reference point was set", &mut self.version)?;
        visit.numbers("which reference point each client has", &mut self.seen)?;
        visit.vector("the answers so far", &mut self.weighted)?;
        if let Some(attendance) = &mut self.attendance {
            attendance.state(visit)?;
        }
        if visit.restores() {
            self.roll.call(self.public, self.round);
        }
        Ok(())
    }
}

/// A client of family A.
#[derive(Debug)]
pub struct Client {
    site: Site,
    oracle: Oracle,
    memory_rate: Option<f64>,
    memory_rule: MemoryRule,
    /// Whether the memory has its first gradient, where it starts from one.
    started: bool,
    encoder: Encoder,
    batches: Rounds,
    /// `w`: where the client stands.
    position: Vec<f64>,
    /// The reference point, `grad U_i` there and `eta_i`, where the recipe has them.
    reference: Vec<f64>,
    anchor: Vec<f64>,
    memory: Vec<f64>,
    /// Room for `H_i`, for `H_i - eta_i` and for what is sent of it.
    workspace: Option<Box<Workspace>>,
    /// The order that is being worked on: how far, which round, and whether it says to start anew.
    stage: Stage,
    round: u64,
    anew: bool,
}

/// What a client must know next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `grad U_i` at a new reference point.
    Anchor,
    /// `H_i` at the position.
    Estimate,
    /// Nothing.
    Ready,
}

impl Client {
    /// Client `id` of the target.
    pub fn new(
        recipe: &Uplink,
        target: &Target,
        id: ClientId,
        keys: Keys,
    ) -> Result<Self, DataError> {
        Ok(Client::over(recipe, target, id, keys, recipe.up_channel(id.index(), target)?))
    }

    /// The same where its channel is known already.
    pub fn over(
        recipe: &Uplink,
        target: &Target,
        id: ClientId,
        keys: Keys,
        channel: Option<Channel>,
    ) -> Self {
        let d = target.dim();
        let rows = target.clients[id.index()].rows();
        Client {
            site: target.site(id, recipe.batch.of(rows)),
            oracle: recipe.oracle.clone(),
            memory_rate: recipe.effective_memory(),
            memory_rule: recipe.memory_rule,
            started: false,
            encoder: Encoder::new(id, recipe.plain(), channel, keys),
            batches: Rounds::new(keys.private, Purpose::Batch, id),
            position: vec![0.0; d],
            reference: vec![0.0; if matches!(recipe.oracle, Oracle::Plain) { 0 } else { d }],
            anchor: vec![0.0; if matches!(recipe.oracle, Oracle::Svrg { .. }) { d } else { 0 }],
            memory: vec![0.0; if recipe.effective_memory().is_some() { d } else { 0 }],
            workspace: None,
            stage: Stage::Ready,
            round: 0,
            anew: false,
        }
    }

    /// Make ready for the gradient estimate at the position, by the oracle.
    #[inline(always)]
    fn approach_estimate(&mut self) {
        self.stage = Stage::Estimate;
        let gradient = &mut Workspace::at(&mut self.workspace, self.position.len()).gradient;
        match &self.oracle {
            Oracle::Plain => {
                self.site.draw_rows(&mut self.batches, self.round);
                gradient.fill(0.0);
            }
            Oracle::FixedPoint(_) => {
                self.site.draw_rows_of_difference(&mut self.batches, self.round);
                gradient.fill(0.0);
            }
            Oracle::Svrg { .. } => {
                self.site.draw_rows_of_difference(&mut self.batches, self.round);
                gradient.copy_from_slice(&self.anchor);
            }
        }
    }
}

impl Device for Client {
    fn accepts(&self, order: &Order<'_>) -> bool {
        order.task == Task::Estimate && order.position.is_some()
    }

    #[inline(always)]
    fn begin(&mut self, order: &Order<'_>) {
        self.round = order.round;
        self.anew = matches!(order.reference, Reference::Position);
        match &order.position {
            Some(Payload::Plain(x, _)) => self.position.copy_from_slice(x),
            Some(increment) => increment.add_to(1.0, &mut self.position),
            None => {}
        }
        match &order.reference {
            _ if matches!(self.oracle, Oracle::Plain) => {}
            Reference::Keep => {}
            Reference::Position => self.reference.copy_from_slice(&self.position),
            Reference::New(z) => self.reference.copy_from_slice(z.values()),
        }
        if matches!(self.oracle, Oracle::Svrg { .. }) && !matches!(order.reference, Reference::Keep)
        {
            self.anchor.fill(0.0);
            self.stage = Stage::Anchor;
        } else {
            self.approach_estimate();
        }
    }

    #[inline(always)]
    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        let (x, z) = (&self.position, &self.reference);
        let gradient = &mut Workspace::at(&mut self.workspace, x.len()).gradient;
        let question = match (self.stage, &self.oracle) {
            (Stage::Anchor, _) => Question {
                sum: Sum::Gradient { x: z },
                extent: Extent::All,
                scale: 1.0,
                out: &mut self.anchor,
            },
            (Stage::Estimate, Oracle::Plain) => Question {
                sum: Sum::Gradient { x },
                extent: Extent::Minibatch,
                scale: 1.0,
                out: gradient,
            },
            (Stage::Estimate, Oracle::FixedPoint(_) | Oracle::Svrg { .. }) => Question {
                sum: Sum::Difference { x, z },
                extent: Extent::Minibatch,
                scale: 1.0,
                out: gradient,
            },
            (Stage::Ready, _) => return None,
        };
        Some((&mut self.site, question))
    }

    #[inline(always)]
    fn proceed(&mut self) {
        match self.stage {
            Stage::Anchor => self.approach_estimate(),
            Stage::Estimate | Stage::Ready => self.stage = Stage::Ready,
        }
    }

    #[inline(always)]
    fn reply(&mut self) -> Reply<'_> {
        let round = self.round;
        let Workspace { gradient, outgoing, packed, .. } =
            Workspace::at(&mut self.workspace, self.position.len());
        let Some(alpha) = self.memory_rate else {
            return self.encoder.send(Kind::Gradient, gradient, round, packed);
        };
        let starts = match self.memory_rule {
            MemoryRule::FromZero => false,
            MemoryRule::FromGradient => !std::mem::replace(&mut self.started, true),
            MemoryRule::Marina { .. } => self.anew,
        };
        if starts {
            let reply = self.encoder.send_plain(Kind::Reference, gradient, round);
            self.memory.copy_from_slice(reply.payload.values());
            return reply;
        }
        difference(gradient, &self.memory, outgoing); // [vono22] Alg. 2, "Compute g_i"
        let reply = self.encoder.send(Kind::Gradient, outgoing, round, packed);
        match self.memory_rule {
            MemoryRule::Marina { .. } => self.memory.copy_from_slice(gradient),
            MemoryRule::FromZero | MemoryRule::FromGradient => {
                reply.payload.add_to(alpha, &mut self.memory)
            } // with what is *sent*
        }
        reply
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
        visit.subject("a client of family A")?;
        self.site.state(visit)?;
        visit.flag("whether the memory has started", &mut self.started)?;
        visit.vector("the position", &mut self.position)?;
        if !matches!(self.oracle, Oracle::Plain) {
            visit.vector("the reference point", &mut self.reference)?;
        }
        if let Oracle::Svrg { .. } = self.oracle {
            visit.vector("the gradient at the reference point", &mut self.anchor)?;
        }
        if self.memory_rate.is_some() {
            visit.vector("the memory", &mut self.memory)?;
        }
        Ok(())
    }
}
