//! Ask clients for gradients and take one Langevin step a round: the server of family A.

use std::any::Any;

use super::super::Sampler;
use super::super::attendance::Attendance;
use super::super::participation::{Participation, Roll};
use super::{MemoryRule, NoiseSource, Oracle, Uplink};
use crate::error::DataError;
use crate::linalg::{add_scaled, difference, norm_squared};
use crate::model::Prior;
use crate::privacy::nearest;
use crate::protocol::{
    Event, Exchange, Kind, Order, Payload, Precision, ReferencePoint, Reply, Sender, Task,
};
use crate::rng::{ClientId, Noise, Purpose, SERVER, Seed};
use crate::simd::{LANES, wide};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::step::{Schedule, langevin, temperature_left};
use crate::target::{Placement, Target};

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
    /// What answers count for, where they are folded in together.
    counts: Vec<f64>,
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
    /// `s_i^2` of every client, where they add noise of their own, and
    /// `sum_{i in A} omega_i^2 (s_i^2 + e_i)` so far: what the server must not draw again.
    own_noise: Vec<f64>,
    brought: f64,
    /// The grid and the bits of levels of a secure sum, where answers are such levels: the noise is
    /// in them.
    levels: Option<(f64, u32)>,
    /// Who answers, where clients may stay away.
    attendance: Option<Attendance>,
    /// The norm to which longer answers are shortened, how many were in this round, and in the last
    /// one.
    clip: Option<f64>,
    shortened: u64,
    /// How many answers of each client were shortened in all.
    shortened_of: Vec<u64>,
    /// Whether rounding may heat the chain, by how much at most, by how much it did in this block
    /// of rounds, and the block's average where that was too much.
    rounded: bool,
    most_heat: Option<f64>,
    heat: f64,
    too_hot: Option<f64>,
    numbers: [f64; 1],
}

/// Over how many rounds the heat of rounding is averaged; the first block, far from where the
/// chain will be, is not judged.
const BLOCK: u64 = 200;

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
            temperature: if recipe.noise == NoiseSource::Server && recipe.secure.is_none() {
                target.temperature
            } else {
                0.0
            },
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
            counts: Vec::new(),
            down: recipe.down_channel(d)?.map(Sender::new),
            increment: vec![0.0; d],
            memory: vec![0.0; d],
            reference: vec![0.0; d],
            version: 0,
            seen: vec![0; b],
            weighted: vec![0.0; d],
            absorbed: vec![0.0; d],
            noise: Noise::new(public, SERVER, d),
            own_noise: (0..if recipe.private.is_some() { b as u32 } else { 0 })
                .filter_map(|i| recipe.deviation(ClientId(i), target))
                .map(|deviation| deviation * deviation)
                .collect(),
            brought: 0.0,
            levels: recipe.levels(target).map(|(grid, bits, _)| (grid, bits)),
            attendance: if let Participation::Elastic(p) = &recipe.participation {
                Some(Attendance::new(p, d))
            } else {
                None
            },
            clip: recipe.clip,
            shortened: 0,
            shortened_of: vec![0; b],
            rounded: recipe.is_rounded_with_noise(),
            most_heat: recipe.most_heat,
            heat: 0.0,
            too_hot: None,
            numbers: [0.0],
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

    /// By which factor an answer is shortened.
    fn shorten(&mut self, from: ClientId, reply: &Reply<'_>) -> f64 {
        let Some(clip) = self.clip else { return 1.0 };
        let norm = norm_squared(reply.payload.values()).sqrt();
        if norm <= clip {
            return 1.0;
        }
        self.shortened += 1;
        self.shortened_of[from.index()] += 1;
        clip / norm
    }

    /// Take note of what rounding brought beyond all noise that there should be: the chain is
    /// hotter by that. `false`: it was too much for too long.
    fn warms(&mut self, step: f64) -> bool {
        let heat = (0.5 * step * self.brought / self.temperature - 1.0).max(0.0);
        self.numbers = [heat];
        self.heat += heat / BLOCK as f64;
        if !(self.round + 1).is_multiple_of(BLOCK) {
            return true;
        }
        let block = std::mem::take(&mut self.heat);
        if self.round >= BLOCK && self.most_heat.is_some_and(|most| block > most) {
            self.too_hot = Some(block);
        }
        self.too_hot.is_none()
    }

    /// The order of this round, where everybody gets the same, and answers are compressed vectors
    /// that are added up and no more.
    pub(super) fn order_to_all(&self) -> Option<Order<'_>> {
        let plain = self.down.is_none()
            && self.memory_rate.is_none()
            && self.own_noise.is_empty()
            && self.levels.is_none()
            && self.attendance.is_none()
            && self.clip.is_none()
            && !self.restarting
            && !self.moves_reference();
        let known = |id: &ClientId| self.seen[id.index()] == self.version;
        if !plain || !self.roll.active.iter().all(known) {
            return None;
        }
        Some(self.order(*self.roll.active.first()?))
    }

    /// Fold in what all sent in answer to that order, one vector behind the other.
    pub(super) fn absorb_vectors(&mut self, vectors: &[f64]) {
        self.counts.clear();
        self.counts.extend(self.roll.active.iter().map(|id| self.roll.weight(*id)));
        add_all(&self.counts, vectors, &mut self.weighted);
    }

    fn moves_reference(&self) -> bool {
        matches!(self.oracle, Oracle::Svrg { every } if self.round.is_multiple_of(every))
    }
}

wide! {
    /// `out += count * vector` for one vector after the other; eight coordinates at a time stay in
    /// a register.
    fn add_all<'a>(counts: &'a [f64], vectors: &'a [f64], out: &'a mut [f64]) -> () {
        let d = out.len();
        let (blocks, rest) = out.as_chunks_mut::<LANES>();
        let first_left = blocks.len() * LANES;
        for (block, out) in blocks.iter_mut().enumerate() {
            let mut sums = *out;
            for (count, vector) in counts.iter().zip(vectors.chunks_exact(d)) {
                if let Some(eight) = vector[block * LANES..].first_chunk::<LANES>() {
                    for lane in 0..LANES {
                        sums[lane] += count * eight[lane];
                    }
                }
            }
            *out = sums;
        }
        for (coordinate, out) in (first_left..).zip(rest) {
            for (count, vector) in counts.iter().zip(vectors.chunks_exact(d)) {
                *out += count * vector[coordinate];
            }
        }
    }
}

impl Exchange for Server {
    fn cohort(&self) -> &[ClientId] {
        &self.roll.active
    }

    fn order(&self, to: ClientId) -> Order<'_> {
        let reference = if self.restarting {
            ReferencePoint::Position // no reference point is in use: it says to start anew
        } else if self.seen[to.index()] == self.version {
            ReferencePoint::Keep
        } else if self.moves_reference() {
            ReferencePoint::Position
        } else {
            ReferencePoint::New(Payload::Plain(&self.reference, self.precision))
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
            numbers: &[],
        }
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        let weight = self.roll.weight(from) * self.shorten(from, reply);
        reply.payload.add_to(weight, &mut self.weighted);
        if let Some(alpha) = self.memory_rate {
            // what starts a memory is taken over whole
            let rate = if reply.kind == Kind::Reference { 1.0 } else { alpha };
            reply.payload.add_to(rate, &mut self.absorbed);
        }
        self.seen[from.index()] = self.version;
        if let Some(own) = self.own_noise.get(from.index()) {
            let weight = self.roll.weight(from);
            self.brought += weight * weight * (own + reply.payload.rounding_variance());
        }
        if let Some(attendance) = &mut self.attendance {
            attendance.note(from, reply.payload.values());
        }
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }

    fn is_elastic(&self) -> bool {
        self.roll.is_elastic()
    }

    fn point(&self, _k: usize, out: &mut [f64]) -> bool {
        out.copy_from_slice(&self.sent);
        true
    }

    fn advance(&mut self) -> Event {
        if let Some(attendance) = &mut self.attendance {
            attendance.end_round();
        }
        if self.clip.is_some() {
            self.numbers = [std::mem::take(&mut self.shortened) as f64];
        }
        let (round, step) = (self.round, self.step.at(self.round));
        if self.rounded && !self.warms(step) {
            return Event::Diverged;
        }
        add_scaled(1.0, &self.absorbed, &mut self.memory);
        let drift = &mut self.weighted;
        if let Some((grid, bits)) = self.levels {
            // whole numbers below 2^53, so that their sum is exact in any order
            drift.iter_mut().for_each(|sum| *sum = grid * nearest(*sum, bits));
        }
        if let Oracle::FixedPoint(anchor) = &self.oracle {
            add_scaled(1.0, &anchor.residual, drift);
        }
        self.prior.add_gradient(&self.x, 1.0, drift);
        let mut temperature = self.temperature;
        if !self.own_noise.is_empty() {
            temperature = temperature_left(step, temperature, self.brought);
            self.brought = 0.0;
        }
        for stretch in self.noise.stretches() {
            let noise = self.noise.at(round, stretch.clone());
            langevin(&mut self.x[stretch.clone()], step, temperature, &drift[stretch], noise);
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

    fn numbers(&self) -> &[f64] {
        if self.clip.is_some() || self.rounded { &self.numbers } else { &[] }
    }

    fn refusal(&self) -> Option<String> {
        let (heat, most) = (100.0 * self.too_hot?, 100.0 * self.most_heat?);
        Some(format!(
            "rounding to levels adds more than the noise that is left to the server: over {BLOCK} \
             rounds the chain was hotter by {heat:.1}%, where {most:.0}% is the most. State more \
             levels in sampler.compress or a larger privacy.server_share, or privacy.hot = true to \
             have the draws as they are"
        ))
    }

    fn shortened(&self) -> &[u64] {
        if self.clip.is_some() { &self.shortened_of } else { &[] }
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
        if !self.own_noise.is_empty() {
            visit.float("the noise that they brought", &mut self.brought)?;
        }
        if let Some(attendance) = &mut self.attendance {
            attendance.state(visit)?;
        }
        if self.clip.is_some() {
            visit.number("the answers shortened", &mut self.shortened)?;
            visit.numbers("the answers of each client shortened", &mut self.shortened_of)?;
        }
        if self.rounded {
            visit.float("the heat of this block", &mut self.heat)?;
        }
        if self.clip.is_some() || self.rounded {
            visit.vector("the numbers beside it", &mut self.numbers)?;
        }
        if visit.restores() {
            self.roll.call(self.public, self.round);
        }
        Ok(())
    }
}
