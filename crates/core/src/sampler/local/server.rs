//! Send clients on walks and average them: the server of family B.

use super::super::Sampler;
use super::gibbs::Conditional;
use super::{Average, Local, Synchronise};
use crate::linalg::add_scaled;
use crate::protocol::{Event, Exchange, Order, Payload, Precision, ReferencePoint, Reply, Task};
use crate::rng::{ClientId, Purpose, SERVER, Seed, Subsets};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::Target;
use crate::threads::{Threads, at_once};

/// Coordinates that one thread adds up.
const PART: usize = 4096;

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
    /// `grad U` at the reference point, and the first iteration that uses it where the clients
    /// still have to be told.
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
        let sync_probability =
            if let Synchronise::Randomly(p) = recipe.synchronise { p } else { 0.0 };
        let pulls: Option<Vec<f64>> = (0..b).map(|c| recipe.pull(c)).collect();
        let conditional =
            pulls.as_ref().map(|pulls| Conditional::new(target, pulls.iter().sum(), public));
        let mut server = Server {
            weights: pulls.unwrap_or_else(|| recipe.weights.clone()),
            synchronise: recipe.synchronise,
            average: recipe.average,
            precision: recipe.precision,
            sync_coin: Coin::new(Purpose::Synchronise, sync_probability),
            reference_coin: recipe.refresh.map(|q| Coin::new(Purpose::Reference, q)),
            public,
            subsets: Subsets::new(b),
            chosen: if let Average::WithoutReplacement(s) = recipe.average {
                vec![0; s]
            } else {
                Vec::new()
            },
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

    /// Find the next event. `y_0 = x_0` stands already, so the reference coin of iteration 0
    /// changes nothing.
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
        self.cohort.extend(
            (0..self.shares.len()).filter(|c| self.shares[*c] > 0.0).map(|c| ClientId(c as u32)),
        );
    }

    fn order_to_all(&self) -> Order<'_> {
        let (task, reference) = match self.phase {
            Phase::WalkToAverage { steps } => (Task::Walk { steps }, ReferencePoint::Keep),
            Phase::WalkToReference { steps } => (Task::WalkAndShow { steps }, ReferencePoint::Keep),
            Phase::Refer { .. } if self.x_is_news => (Task::Gradient, ReferencePoint::Position),
            Phase::Refer { .. } => {
                (Task::Gradient, ReferencePoint::New(self.plain(&self.reference)))
            }
        };
        Order {
            round: self.iteration,
            task,
            position: self.x_is_news.then(|| self.plain(&self.x)),
            reference,
            control: self.control_is_news.map(|from| (self.plain(&self.control), from)),
            numbers: &[],
        }
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
        self.order_to_all()
    }

    fn common_order(&self) -> Option<Order<'_>> {
        Some(self.order_to_all())
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        let share =
            if let Phase::Refer { .. } = self.phase { 1.0 } else { self.shares[from.index()] };
        add_scaled(share, reply.payload.values(), &mut self.sum);
    }

    fn absorb_all(&mut self, from: &[ClientId], replies: &[Reply<'_>], spread: &dyn Threads) {
        let refers = matches!(self.phase, Phase::Refer { .. });
        let shares = &self.shares;
        let part = |(k, sum): (usize, &mut [f64])| {
            for (id, reply) in from.iter().zip(replies) {
                let share = if refers { 1.0 } else { shares[id.index()] };
                let values = &reply.payload.values()[k * PART..];
                add_scaled(share, &values[..sum.len()], sum);
            }
        };
        at_once(spread, self.sum.chunks_mut(PART).enumerate().collect(), part);
    }

    fn advance(&mut self) -> Event {
        if let (Phase::WalkToAverage { .. }, Some(alpha)) = (self.phase, self.memory_rate) {
            for (sum, h) in self.sum.iter_mut().zip(&mut self.memory) {
                let q = *sum;
                *sum += *h;
                *h += alpha * q;
            }
        }
        if let (Phase::WalkToAverage { steps }, Some(conditional)) =
            (self.phase, &mut self.conditional)
        {
            conditional.draw(self.iteration + steps, &mut self.sum);
        }
        self.precision.round(&mut self.sum);
        if !has_finite_norm(&self.sum) {
            return Event::Diverged;
        }
        // Partial participation keeps nothing on the clients, so the news of `x` goes to the next
        // cohort in any case.
        match self.phase {
            Phase::WalkToAverage { steps } => {
                self.iteration += steps;
                self.x.copy_from_slice(&self.sum);
                self.x_is_news = true;
                self.control_is_news = None;
                if self
                    .reference_coin
                    .as_mut()
                    .is_some_and(|coin| coin.at(self.public, self.iteration))
                {
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

/// Whether the sum of squares is a finite number, whatever the order of the sum.
fn has_finite_norm(x: &[f64]) -> bool {
    let (eights, rest) = x.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for eight in eights {
        sums.iter_mut().zip(eight).for_each(|(sum, x)| *sum += x * x);
    }
    sums.iter_mut().zip(rest).for_each(|(sum, x)| *sum += x * x);
    sums.iter().sum::<f64>().is_finite()
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
            self.faces = (0..64)
                .fold(0, |faces, bit| faces | u64::from(stream.coin(self.probability)) << bit);
        }
        self.faces >> (iteration % 64) & 1 == 1
    }
}
