//! Send gradients up and take one Langevin step a round: family A.
//!
//! ```text
//! server   send x
//! clients  i in A:  H_i = oracle_i(x);  g_i = C_i(H_i - eta_i);  send g_i;  eta_i <- eta_i + alpha g_i
//! server   g = eta + sum_{i in A} omega_i g_i;   eta <- eta + alpha sum_{i in A} g_i
//!          x <- x - gamma (g + grad U_0(x)) + sqrt(2 gamma T) Z
//! ```
//!
//! It targets `exp(-U/T)` up to the bias of the step. Departures from the papers: the parameter goes to active clients only (the others would not use it); a client that was
//! away when the reference point moved is sent that point when it comes back; with the fixed point oracle the server adds the gradient at `x*`
//! that is left, so that the drift is unbiased however well `x*` was found, and wherever the prior is applied.

use super::Sampler;
use super::participation::Roll;
use super::recipe::{Oracle, Uplink};
use crate::error::DataError;
use crate::linalg::{add_scaled, norm_squared};
use crate::model::Prior;
use crate::protocol::{Device, Event, Exchange, Kind, Order, Payload, Precision, Reference, Reply, Task};
use crate::rng::{ClientId, Purpose, SERVER, Seed};
use crate::step::{Schedule, langevin};
use crate::target::{Placement, Site, Target};

/// The server of family A.
#[derive(Debug)]
pub struct Server {
    step: Schedule,
    oracle: Oracle,
    memory_rate: Option<f64>,
    precision: Precision,
    temperature: f64,
    prior: Prior,
    roll: Roll,
    public: Seed,
    round: u64,
    x: Vec<f64>,
    /// `x` as the clients see it.
    sent: Vec<f64>,
    /// `eta = sum_i eta_i`.
    memory: Vec<f64>,
    /// The reference point `z` (or `x*`), how often it was set, and which setting each client has seen.
    reference: Vec<f64>,
    version: u64,
    seen: Vec<u64>,
    /// `sum_{i in A} omega_i g_i` and `sum_{i in A} g_i` so far.
    weighted: Vec<f64>,
    plain: Vec<f64>,
    noise: Vec<f64>,
}

impl Server {
    /// A server that starts at `start`.
    pub fn new(recipe: &Uplink, target: &Target, start: &[f64], public: Seed) -> Result<Self, DataError> {
        let (d, b) = (target.dim(), target.clients.len());
        let roll = Roll::new(recipe.participation.clone(), recipe.weighting, b)?;
        let mut server = Server {
            step: recipe.step,
            oracle: recipe.oracle.clone(),
            memory_rate: recipe.memory_rate,
            precision: recipe.precision,
            temperature: target.temperature,
            prior: if target.placement == Placement::Server { target.prior.clone() } else { Prior::Flat },
            roll,
            public,
            round: 0,
            x: start.to_vec(),
            sent: vec![0.0; d],
            memory: vec![0.0; d],
            reference: vec![0.0; d],
            version: 0,
            seen: vec![0; b],
            weighted: vec![0.0; d],
            plain: vec![0.0; d],
            noise: vec![0.0; d],
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
        self.sent.copy_from_slice(&self.x);
        self.precision.round(&mut self.sent);
        if self.moves_reference() {
            self.reference.copy_from_slice(&self.sent); // [vono22] Alg. 2, "Set zeta_k = theta_k"
            self.version += 1;
        }
        self.weighted.copy_from_slice(&self.memory);
        self.plain.fill(0.0);
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
        let reference = if self.seen[to.index()] == self.version {
            Reference::Keep
        } else if self.moves_reference() {
            Reference::Position
        } else {
            Reference::New(Payload::Plain(&self.reference, self.precision))
        };
        Order {
            round: self.round,
            task: Task::Estimate,
            position: Some(Payload::Plain(&self.sent, self.precision)),
            reference,
            control: None,
        }
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        let g = reply.payload.values();
        add_scaled(self.roll.weight(from), g, &mut self.weighted);
        if self.memory_rate.is_some() {
            add_scaled(1.0, g, &mut self.plain);
        }
        self.seen[from.index()] = self.version;
    }

    fn advance(&mut self) -> Event {
        if let Some(alpha) = self.memory_rate {
            add_scaled(alpha, &self.plain, &mut self.memory);
        }
        let drift = &mut self.weighted;
        if let Oracle::FixedPoint(anchor) = &self.oracle {
            add_scaled(1.0, &anchor.residual, drift);
        }
        self.prior.add_gradient(&self.x, 1.0, drift);
        self.public.stream(Purpose::Noise, SERVER, self.round).normals(&mut self.noise);
        langevin(&mut self.x, self.step.at(self.round), self.temperature, drift, &self.noise);
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
}

/// A client of family A.
#[derive(Debug)]
pub struct Client {
    site: Site,
    oracle: Oracle,
    memory_rate: Option<f64>,
    precision: Precision,
    private: Seed,
    reference: Vec<f64>,
    /// `grad U_i` at the reference point.
    anchor: Vec<f64>,
    /// `eta_i`.
    memory: Vec<f64>,
    gradient: Vec<f64>,
}

impl Client {
    /// Client `id` of the target; its minibatches come from `private`.
    pub fn new(recipe: &Uplink, target: &Target, id: ClientId, private: Seed) -> Self {
        let d = target.dim();
        let rows = target.clients[id.index()].rows();
        Client {
            site: target.site(id, recipe.batch.of(rows)),
            oracle: recipe.oracle.clone(),
            memory_rate: recipe.memory_rate,
            precision: recipe.precision,
            private,
            reference: vec![0.0; d],
            anchor: vec![0.0; d],
            memory: vec![0.0; d],
            gradient: vec![0.0; d],
        }
    }
}

impl Device for Client {
    fn answer(&mut self, order: &Order<'_>) -> Reply<'_> {
        let x = order.position.as_ref().map_or(&[][..], Payload::values);
        let moved = match &order.reference {
            Reference::Keep => None,
            Reference::Position => Some(x),
            Reference::New(z) => Some(z.values()),
        };
        if let Some(z) = moved {
            self.reference.copy_from_slice(z);
            if matches!(self.oracle, Oracle::Svrg { .. }) {
                self.site.gradient(z, &mut self.anchor);
            }
        }
        let (private, id) = (self.private, self.site.id());
        self.site.draw_batch(|| private.stream(Purpose::Batch, id, order.round));
        match &self.oracle {
            Oracle::Plain => self.site.estimate(x, &mut self.gradient),
            Oracle::FixedPoint(_) => {
                self.gradient.fill(0.0);
                self.site.add_difference(x, &self.reference, 1.0, &mut self.gradient);
            }
            Oracle::Svrg { .. } => {
                self.gradient.copy_from_slice(&self.anchor);
                self.site.add_difference(x, &self.reference, 1.0, &mut self.gradient);
            }
        }
        if let Some(alpha) = self.memory_rate {
            for (g, eta) in self.gradient.iter_mut().zip(&self.memory) {
                *g -= eta; // [vono22] Alg. 2, "Compute g_i"
            }
            self.precision.round(&mut self.gradient);
            add_scaled(alpha, &self.gradient, &mut self.memory); // with what is *sent*
        } else {
            self.precision.round(&mut self.gradient);
        }
        Reply { round: order.round, kind: Kind::Gradient, payload: Payload::Plain(&self.gradient, self.precision) }
    }

    fn rows_evaluated(&self) -> u64 {
        self.site.rows_evaluated()
    }
}
