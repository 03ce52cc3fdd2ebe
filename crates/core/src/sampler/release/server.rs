//! Ask twice, then sample without asking: the server of a release.

use nalgebra::{DMatrix, DVector};

use super::super::{Keys, Sampler};
use super::chain::Chain;
use super::posterior::{Linear, Logistic, Posterior};
use super::start::{floored, logistic_start, shrink, symmetric};
use super::{Answer, Release, bounds};
use crate::compress::Precision;
use crate::linalg::add_scaled;
use crate::model::Prior;
use crate::privacy::{Once, Released};
use crate::protocol::{Event, Exchange, Order, Payload, ReferencePoint, Reply, Task};
use crate::rng::{ClientId, Seed};
use crate::simd::ln;
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::Target;

/// The largest ratio of noise at which draws are given without being asked for twice.
const MOST_RATIO: f64 = 1.2;

#[derive(Debug)]
pub(super) struct Server {
    everybody: Vec<ClientId>,
    once: Once,
    weak: bool,
    /// `N`, and how many coefficients there are.
    rows: f64,
    columns: usize,
    prior: Prior,
    seed: Seed,
    /// How many of the two answers are there.
    stage: u64,
    /// The sums of the clients' answers.
    sums: [Vec<f64>; 2],
    start: Option<Start>,
    chain: Option<Chain>,
    /// The first address that the warm-up left unused.
    first: u64,
    /// How large the noise of the matrix is against its least eigenvalue; below 0 where that is.
    ratio: f64,
    x: Vec<f64>,
    iteration: u64,
    numbers: [f64; 2],
}

/// What the first release gives.
#[derive(Clone, Debug)]
struct Start {
    /// `theta0`, as long as the parameters.
    point: Vec<f64>,
    /// `B2`, in linear regression.
    bound: Vec<f64>,
    first: Option<First>,
}

/// What linear regression keeps of the first release.
#[derive(Clone, Debug)]
struct First {
    moments: DMatrix<f64>,
    alpha: f64,
    pull: DVector<f64>,
    square: f64,
    /// `sigma^2` at the start, about, and the deviation of the noise in it times `N`.
    variance: f64,
    error: f64,
}

impl Server {
    pub(super) fn new(release: &Release, once: Once, target: &Target, keys: Keys) -> Self {
        let columns = release.columns(target.dim());
        let rows: usize = target.clients.iter().map(|client| client.rows()).sum();
        let room = |round| vec![0.0; Answer::new(&once, columns, round).len()];
        Server {
            everybody: (0..target.clients.len() as u32).map(ClientId).collect(),
            once,
            weak: release.weak,
            rows: rows as f64,
            columns,
            prior: target.prior.clone(),
            seed: keys.public,
            stage: 0,
            sums: [room(0), room(1)],
            start: None,
            chain: None,
            first: 0,
            ratio: 0.0,
            x: vec![0.0; target.dim()],
            iteration: 0,
            numbers: [0.0; 2],
        }
    }

    /// The deviation of the sum of all clients' noise, each of which has this one.
    fn summed(&self, deviation: f64) -> f64 {
        deviation * (self.everybody.len() as f64).sqrt()
    }

    fn is_weak(&self) -> bool {
        !(0.0..=MOST_RATIO).contains(&self.ratio)
    }

    /// Where the second release is taken; `None` where the first is too noisy to say.
    fn started(&self) -> Option<Start> {
        let (d, n, t) = (self.columns, self.rows, self.summed(self.once.first_deviation()));
        let shape = Answer::new(&self.once, d, 0);
        let (triangle, pulls) = self.sums[0].split_at(shape.triangle());
        let padded = |theta: &DVector<f64>| {
            let mut point = theta.as_slice().to_vec();
            point.resize(self.x.len(), 0.0);
            point
        };
        let Released::Linear { response, .. } = self.once.regression else {
            let (moments, _) =
                floored(&symmetric(triangle, d), t * (0.5 * d as f64).sqrt() + 0.02 * n);
            // Clients add up w y x, whose noise is that of the matrix.
            let pull = DVector::from_column_slice(pulls) / self.once.weight();
            let theta = logistic_start(&moments, &pull, n)?;
            return Some(Start { point: padded(&theta), bound: Vec::new(), first: None });
        };
        let (c, joint) = (self.once.weight(), symmetric(triangle, d + 1));
        let (moments, alpha) = shrink(&joint.view((0, 0), (d, d)).into_owned(), t);
        let pull = joint.view((0, d), (d, 1)).column(0) / c;
        let square = joint[(d, d)] / (c * c);
        let (raised, _) = floored(&moments, t * (0.5 * alpha * d as f64).sqrt() + 0.02 * n);
        let theta = raised.cholesky()?.solve(&pull);
        let left = square - 2.0 * theta.dot(&pull) + theta.dot(&(&moments * &theta));
        let error = t * (1.0 / (c * c) + theta.norm_squared());
        let least = response / 60.0;
        let variance = ((left + error) / n).clamp(least * least, response * response);
        let bound =
            (2.5 * variance.sqrt()).clamp(*bounds(response).start(), *bounds(response).end());
        let point = padded(&theta);
        let first = First { moments, alpha, pull, square, variance, error };
        Some(Start { point, bound: vec![bound], first: Some(first) })
    }

    /// The posterior and a chain in it, not yet warm; `None` where there is none.
    fn released(&mut self, start: &Start) -> Option<Chain> {
        let (d, n) = (self.columns, self.rows);
        let theta0 = DVector::from_column_slice(&start.point[..d]);
        let shape = Answer::new(&self.once, d, 1);
        let (triangle, pulls) = self.sums[1].split_at(shape.triangle());
        let second_pull = DVector::from_column_slice(pulls);
        let bound = start.bound.first().copied().unwrap_or(1.0);
        let pull_deviation = self.summed(self.once.second_deviation(bound));
        let own = DMatrix::identity(d, d) * (pull_deviation * pull_deviation);
        let many = 2.0 * d as f64;
        // How curved the prior is along each coefficient.
        let mut prior = DMatrix::zeros(d, d);
        for i in 0..d {
            let (mut unit, mut image) = (vec![0.0; self.x.len()], vec![0.0; self.x.len()]);
            unit[i] = 1.0;
            self.prior.add_hessian_vector(&start.point, &unit, 1.0, &mut image);
            prior[(i, i)] = image[i].max(1e-8);
        }
        let (posterior, place, root) = match (&start.first, self.once.regression) {
            (Some(first), Released::Linear { noise_variance, .. }) => {
                let t = self.summed(self.once.first_deviation());
                let (raised, least) = floored(&first.moments, 0.02 * n);
                self.ratio = t * (first.alpha * many).sqrt() / least;
                let around = noise_variance.unwrap_or(first.variance);
                let wide = &raised * around + own + DMatrix::identity(d, d) * (0.01 * t * t);
                let spread = &raised * wide.cholesky()?.solve(&raised) + prior;
                let spread = spread.cholesky()?.inverse();
                let mut place = &theta0 + raised.clone().cholesky()?.solve(&second_pull);
                let mut root = DMatrix::zeros(self.x.len(), self.x.len());
                root.view_mut((0, 0), (d, d)).copy_from(&spread.cholesky()?.unpack());
                if noise_variance.is_none() {
                    place = place.push(0.5 * ln(first.variance));
                    let error = first.error / (2.0 * n * first.variance);
                    root[(d, d)] = (0.5 / n + error * error).sqrt().min(0.5);
                }
                let posterior = Posterior::Linear(Linear {
                    moments: first.moments.clone(),
                    floored: raised,
                    pull: first.pull.clone(),
                    square: first.square,
                    rows: n,
                    weight: self.once.weight(),
                    deviation: t,
                    alpha: first.alpha,
                    start: theta0,
                    bound,
                    pull_deviation,
                    second_pull,
                    noise_variance,
                });
                (posterior, place, root)
            }
            _ => {
                let t = self.summed(self.once.hessian_deviation());
                let (hessian, alpha) = shrink(&symmetric(triangle, d), t);
                let (raised, least) = floored(&hessian, 0.005 * n);
                self.ratio = t * (alpha * many).sqrt() / least;
                let wide = (&raised + own).cholesky()?;
                let spread = (&raised * wide.solve(&raised) + prior).cholesky()?.inverse();
                let mut drift = &raised * wide.solve(&second_pull);
                self.prior.add_gradient(&start.point, -1.0, drift.as_mut_slice());
                let place = &theta0 + &spread * drift;
                let root = spread.cholesky()?.unpack();
                let posterior = Posterior::Logistic(Logistic {
                    hessian,
                    floored: raised,
                    deviation: t,
                    alpha,
                    start: theta0,
                    pull_deviation,
                    pull: second_pull,
                });
                (posterior, place, root)
            }
        };
        debug_assert_eq!(posterior.dim(), self.x.len());
        Some(Chain::new(posterior, self.prior.clone(), self.seed, (place, root)))
    }
}

impl Exchange for Server {
    fn cohort(&self) -> &[ClientId] {
        if self.stage < 2 { &self.everybody } else { &[] }
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let numbers = Answer::new(&self.once, self.columns, self.stage).len() as u64;
        let start = self.start.as_ref().filter(|_| self.stage > 0);
        Order {
            round: self.stage,
            task: Task::Release { numbers },
            position: start.map(|start| Payload::Plain(&start.point, Precision::F64)),
            reference: ReferencePoint::Keep,
            control: None,
            numbers: start.map_or(&[], |start| &start.bound),
        }
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        if let Some(sums) = self.sums.get_mut(self.stage as usize) {
            add_scaled(1.0, reply.payload.values(), sums);
        }
    }

    fn advance(&mut self) -> Event {
        if self.stage == 0 {
            self.start = self.started();
            self.stage = 1;
            return if self.start.is_some() { Event::Nothing } else { Event::Diverged };
        }
        if self.stage == 1 {
            let Some(start) = self.start.clone() else { return Event::Diverged };
            let Some(mut chain) = self.released(&start) else { return Event::Diverged };
            if !self.weak && self.is_weak() {
                return Event::Diverged;
            }
            self.first = chain.warm();
            self.x.copy_from_slice(chain.x.as_slice());
            (self.chain, self.stage) = (Some(chain), 2);
            return Event::Nothing;
        }
        let Some(chain) = &mut self.chain else { return Event::Diverged };
        chain.advance(self.first + self.iteration);
        self.x.copy_from_slice(chain.x.as_slice());
        self.numbers = [chain.acceptance, self.ratio];
        self.iteration += 1;
        if self.x.iter().all(|x| x.is_finite()) { Event::Draw } else { Event::Diverged }
    }
}

impl Sampler for Server {
    fn position(&self) -> &[f64] {
        &self.x
    }

    fn iteration(&self) -> u64 {
        self.iteration
    }

    fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    fn refusal(&self) -> Option<String> {
        let found = match (&self.start, &self.chain) {
            (None, _) => "the first release has no positive moments".into(),
            (_, None) if self.is_weak() => format!(
                "the noise of the released matrix is {:.1} times what the rows say in some \
                 direction, and beyond {MOST_RATIO} draws are mostly those of the prior",
                self.ratio.abs()
            ),
            _ => return None,
        };
        Some(format!(
            "{found}. What was told is told: state privacy.weak = true before a run to have its \
             draws nonetheless, a larger epsilon, fewer columns or a shorter row_norm, or bring \
             more rows"
        ))
    }
}

impl State for Server {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a server of a release")?;
        visit.number("the releases there", &mut self.stage)?;
        let [first, second] = &mut self.sums;
        visit.vector("the first release", first)?;
        visit.vector("the second release", second)?;
        visit.number("the iteration", &mut self.iteration)?;
        visit.number("the random numbers used", &mut self.first)?;
        visit.vector("the parameter", &mut self.x)?;
        visit.vector("the numbers beside it", &mut self.numbers)?;
        // All else is a function of the releases, but for what the warm-up found.
        let d = self.x.len();
        let mut step = self.chain.as_ref().map_or(0.0, |chain| chain.step);
        let mut root: Vec<f64> = match &self.chain {
            Some(chain) => chain.root.as_slice().to_vec(),
            None => vec![0.0; d * d],
        };
        visit.float("the step", &mut step)?;
        visit.vector("the coordinates", &mut root)?;
        if !visit.restores() {
            return Ok(());
        }
        if self.stage > 2 {
            return Err(SnapshotError::Value { what: "the releases there", found: self.stage });
        }
        (self.start, self.chain) = (None, None);
        if self.stage > 0 {
            self.start = self.started();
        }
        if let (2, Some(start)) = (self.stage, self.start.clone()) {
            self.chain = self.released(&start);
            if let Some(chain) = &mut self.chain {
                (chain.step, chain.acceptance) = (step, self.numbers[0]);
                chain.root = DMatrix::from_column_slice(d, d, &root);
                chain.x = DVector::from_column_slice(&self.x);
            }
        }
        Ok(())
    }
}
