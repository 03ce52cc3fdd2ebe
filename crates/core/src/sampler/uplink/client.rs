//! Estimate a gradient where the server says, and send it: a client of family A.

use std::any::Any;

use super::super::Keys;
use super::super::encoder::Encoder;
use super::super::recipe::Batch;
use super::server::Server;
use super::{MemoryRule, Oracle, Uplink};
use crate::ask::{Extent, Question, Sum};
use crate::compress::Channel;
use crate::linalg::difference;
use crate::protocol::{
    Carrier, Device, Event, Exchange, Kind, Ledger, Order, Payload, ReferencePoint, Reply, Task,
    Workspace, devices_of,
};
use crate::rng::{ClientId, Purpose, Rounds};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};

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
    dim: usize,
    /// `w`: where the client stands, if the server sends increments of it; else every order says
    /// it anew, and it is in the workspace.
    position: Option<Vec<f64>>,
    /// The reference point, `grad U_i` there and `eta_i`, where the recipe has them.
    reference: Vec<f64>,
    anchor: Vec<f64>,
    memory: Vec<f64>,
    /// How often the reference point moved.
    references: u64,
    /// How many words a message takes, where those of all clients are compressed together.
    words: Option<usize>,
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
    /// Client `id` of the target, whose answers go through this channel.
    pub fn new(
        recipe: &Uplink,
        target: &Target,
        id: ClientId,
        keys: Keys,
        channel: Option<Channel>,
    ) -> Self {
        let d = target.dim();
        let rows = target.clients[id.index()].rows();
        // the same channel for everybody, and nothing remembered of what is sent
        let alike = recipe.up.len() == 1 && recipe.effective_memory().is_none();
        let mut encoder = Encoder::new(id, recipe.plain(), channel, keys).with_noise(
            id,
            recipe.deviation(id, target),
            keys,
        );
        if let Some(levels) = recipe.levels(target) {
            encoder = encoder.with_levels(id, levels, keys);
        }
        let words = encoder.channel_alone().and_then(Channel::words_together);
        Client {
            words: words.filter(|_| alike && !matches!(recipe.oracle, Oracle::Svrg { .. })),
            site: match recipe.batch {
                Batch::Each(probability) => target.site_drawing_each(id, probability),
                _ => target.site(id, recipe.batch.of(rows)),
            },
            oracle: recipe.oracle.clone(),
            memory_rate: recipe.effective_memory(),
            memory_rule: recipe.memory_rule,
            started: false,
            encoder,
            batches: Rounds::new(keys.private, Purpose::Batch, id),
            dim: d,
            position: recipe.down.is_some().then(|| vec![0.0; d]),
            reference: vec![0.0; if matches!(recipe.oracle, Oracle::Plain) { 0 } else { d }],
            anchor: vec![0.0; if matches!(recipe.oracle, Oracle::Svrg { .. }) { d } else { 0 }],
            memory: vec![0.0; if recipe.effective_memory().is_some() { d } else { 0 }],
            references: 0,
            workspace: None,
            stage: Stage::Ready,
            round: 0,
            anew: false,
        }
    }

    /// Draw the rows that this round's estimate is of.
    #[inline(always)]
    fn draw_rows(&mut self) {
        match self.oracle {
            Oracle::Plain => self.site.draw_rows(&mut self.batches, self.round),
            Oracle::FixedPoint(_) | Oracle::Svrg { .. } => {
                self.site.draw_rows_of_difference(&mut self.batches, self.round);
            }
        }
    }

    /// Make ready for the gradient estimate at the position, by the oracle.
    #[inline(always)]
    fn approach_estimate(&mut self) {
        self.stage = Stage::Estimate;
        let gradient = &mut Workspace::at(&mut self.workspace, self.dim).gradient;
        match &self.oracle {
            Oracle::Plain | Oracle::FixedPoint(_) => gradient.fill(0.0),
            Oracle::Svrg { .. } => gradient.copy_from_slice(&self.anchor),
        }
        self.draw_rows();
    }
}

impl Client {
    /// Add the gradient estimate at `x` to nothing: what the order asks, where it is the same for
    /// everybody.
    #[inline(always)]
    fn estimate_together(
        &mut self,
        order: &Order<'_>,
        x: &[f64],
        gradient: &mut [f64],
        scratch: &mut Vec<f64>,
    ) {
        self.round = order.round;
        if let Some(position) = &mut self.position {
            position.copy_from_slice(x);
        }
        self.site.swap_scratch(scratch);
        self.draw_rows();
        self.site.refer_to(self.references);
        let sum = match self.oracle {
            Oracle::Plain => Sum::Gradient { x },
            Oracle::FixedPoint(_) | Oracle::Svrg { .. } => {
                Sum::Difference { x, z: &self.reference }
            }
        };
        let extent = Extent::Minibatch;
        self.site.answer(Question { sum, extent, scale: 1.0, out: gradient });
        self.site.swap_scratch(scratch);
        self.stage = Stage::Ready;
    }
}

impl Device for Client {
    fn accepts(&self, order: &Order<'_>) -> bool {
        order.task == Task::Estimate && order.position.is_some()
    }

    #[inline(always)]
    fn begin(&mut self, order: &Order<'_>) {
        self.round = order.round;
        self.anew = matches!(order.reference, ReferencePoint::Position);
        let workspace = Workspace::at(&mut self.workspace, self.dim);
        self.site.swap_scratch(&mut workspace.scratch);
        let position = match &mut self.position {
            Some(position) => position,
            None => {
                workspace.position.resize(self.dim, 0.0);
                &mut workspace.position
            }
        };
        match &order.position {
            Some(Payload::Plain(x, _)) => position.copy_from_slice(x),
            Some(increment) => increment.add_to(1.0, position),
            None => {}
        }
        let moved = match &order.reference {
            _ if matches!(self.oracle, Oracle::Plain) => None,
            ReferencePoint::Keep => None,
            ReferencePoint::Position => Some(&position[..]),
            ReferencePoint::New(z) => Some(z.values()),
        };
        if let Some(z) = moved {
            self.reference.copy_from_slice(z);
            self.references += 1;
        }
        self.site.refer_to(self.references);
        if matches!(self.oracle, Oracle::Svrg { .. })
            && !matches!(order.reference, ReferencePoint::Keep)
        {
            self.anchor.fill(0.0);
            self.stage = Stage::Anchor;
        } else {
            self.approach_estimate();
        }
    }

    #[inline(always)]
    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        let Workspace { position, gradient, .. } = Workspace::at(&mut self.workspace, self.dim);
        let (x, z) = (self.position.as_ref().unwrap_or(position), &self.reference);
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
        let Workspace { gradient, outgoing, packed, scratch, .. } =
            Workspace::at(&mut self.workspace, self.dim);
        self.site.swap_scratch(scratch);
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

    fn carrier(&self) -> Option<Carrier> {
        self.words.map(|_| carry as Carrier)
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}

/// This client behind a device, if its messages are compressed together with those of others.
#[inline(always)]
fn client(device: &mut Box<dyn Device>) -> Option<&mut Client> {
    (**device).as_any()?.downcast_mut::<Client>().filter(|client| client.words.is_some())
}

/// Carry an exchange whose order is the same for everybody: all estimate their gradients, which
/// are then compressed, counted and added up together.
fn carry(
    server: &mut dyn Exchange,
    clients: &mut [Box<dyn Device>],
    ledger: &mut Ledger,
) -> Option<Event> {
    let server = server.as_any()?.downcast_mut::<Server>()?;
    let order = server.order_to_all()?;
    let Some(Payload::Plain(x, _)) = order.position else { return None };
    if !devices_of(server.cohort(), clients).all(|device| client(device).is_some()) {
        return None;
    }
    let first = server.cohort().first()?.index();
    let mut place = clients.first_mut()?.workspace()?.take(); // where it is between exchanges
    let Workspace { scratch, outgoing, packed, together, .. } = Workspace::at(&mut place, x.len());
    let count = server.cohort().len();
    together.vectors.clear();
    together.vectors.resize(count * x.len(), 0.0);
    together.words.clear();
    let rows = together.vectors.chunks_exact_mut(x.len());
    for (device, gradient) in devices_of(server.cohort(), clients).zip(rows) {
        let Some(client) = client(device) else { continue };
        client.estimate_together(&order, x, gradient, scratch);
        let needed = client.words.unwrap_or(0);
        together.words.extend_from_slice(client.encoder.first_words(order.round, needed));
    }
    ledger.down_to_all(server.cohort(), &order);
    let round = order.round;
    client(&mut clients[first])?.encoder.channel_alone()?.compress_together(together);
    for (at, id) in server.cohort().iter().enumerate().filter(|(at, _)| together.left[*at]) {
        let Some(client) = client(&mut clients[id.index()]) else { continue };
        let vector = &mut together.vectors[at * x.len()..(at + 1) * x.len()];
        outgoing.copy_from_slice(vector);
        let reply = client.encoder.send(Kind::Gradient, outgoing, round, packed);
        together.bits[at] = reply.payload.bits();
        vector.copy_from_slice(reply.payload.values());
    }
    ledger.up_from_all(server.cohort(), (round, Kind::Gradient), &together.bits);
    server.absorb_vectors(&together.vectors);
    *clients.first_mut()?.workspace()? = place;
    Some(server.advance())
}

impl State for Client {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a client of family A")?;
        self.site.state(visit)?;
        visit.flag("whether the memory has started", &mut self.started)?;
        let mut anew = Vec::new();
        let position = self.position.as_mut().unwrap_or_else(|| {
            anew.resize(self.dim, 0.0); // the next order says it
            &mut anew
        });
        visit.vector("the position", position)?;
        if !matches!(self.oracle, Oracle::Plain) {
            visit.vector("the reference point", &mut self.reference)?;
            self.references += 1;
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
