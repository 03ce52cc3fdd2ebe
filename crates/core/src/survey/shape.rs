//! Learn the shape of the posterior in a handful of exchanges: its optimum by Newton's method, the
//! Gaussian that fits on average, the profiles of its axes, and how well a proposal does.
//!
//! The searches themselves are [`crate::proposal`]'s; here they ask by messages.

use super::everybody;
use crate::linalg::add_scaled;
use crate::model::Prior;
use crate::proposal::{
    Averaged, AveragedAnswer, LADDER, Newton, NewtonAnswer, PROFILE, Proposal, from_triangle,
    upper_columns,
};
use crate::protocol::{Event, Exchange, Order, Payload, Precision, ReferencePoint, Reply, Task};
use crate::rng::{ClientId, Purpose, Seed};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Placement, Target};

/// What the server adds to the clients' sums.
pub(super) fn prior_of_server(target: &Target) -> Prior {
    if target.placement == Placement::Server { target.prior.clone() } else { Prior::Flat }
}

fn plain(values: &[f64]) -> Payload<'_> {
    Payload::Plain(values, Precision::F64)
}

/// The optimum by [`Newton`]'s method: value, gradient and Hessian in one exchange.
#[derive(Clone, Debug)]
pub struct Minimum {
    everybody: Vec<ClientId>,
    prior: Prior,
    newton: Newton,
    round: u64,
    sum: Vec<f64>,
    /// The Hessian at the start, row by row.
    first: Vec<f64>,
}

impl Minimum {
    /// Start at `start`, as [`Newton::new`] does.
    pub fn new(target: &Target, start: &[f64], tolerance: f64, most_exchanges: u64) -> Self {
        let length = Task::Derivatives { ladder: false }.answer_len(start.len());
        Minimum {
            everybody: everybody(target),
            prior: prior_of_server(target),
            newton: Newton::new(start.to_vec(), tolerance, most_exchanges),
            round: 0,
            sum: vec![0.0; length + LADDER.len()],
            first: vec![0.0; start.len() * start.len()],
        }
    }

    /// The search.
    pub fn newton(&self) -> &Newton {
        &self.newton
    }

    /// The Hessian where the search started, row by row.
    pub fn first_hessian(&self) -> &[f64] {
        &self.first
    }

    fn task(&self) -> Task {
        Task::Derivatives { ladder: !self.newton.ladder().is_empty() }
    }
}

impl Exchange for Minimum {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let task = self.task();
        Order {
            round: self.round,
            task,
            position: self.newton.asks().map(plain),
            reference: match (task, self.newton.known()) {
                (Task::Derivatives { ladder: true }, Some(known)) => {
                    ReferencePoint::New(plain(known))
                }
                _ => ReferencePoint::Keep,
            },
            control: None,
            numbers: &[],
        }
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        let values = reply.payload.values();
        add_scaled(1.0, values, &mut self.sum[..values.len()]);
    }

    fn advance(&mut self) -> Event {
        let Some(x) = self.newton.asks() else { return Event::Done };
        let (d, ladder) = (x.len(), self.newton.ladder());
        let value = self.sum[0] + self.prior.value(x);
        let mut gradient = self.sum[1..=d].to_vec();
        self.prior.add_gradient(x, 1.0, &mut gradient);
        let triangle = d * (d + 1) / 2;
        let mut hessian = from_triangle(&self.sum[1 + d..1 + d + triangle], d);
        self.prior.add_hessian(x, 1.0, &mut hessian);
        if self.round == 0 {
            self.first.copy_from_slice(&hessian);
        }
        let rungs = self.sum[1 + d + triangle..].iter().zip(ladder.chunks_exact(d));
        let ladder = rungs.map(|(value, x)| value + self.prior.value(x)).collect();
        self.newton.tell(NewtonAnswer { value, gradient, hessian, ladder });
        self.sum.fill(0.0);
        self.round += 1;
        if self.newton.asks().is_some() { Event::Nothing } else { Event::Done }
    }
}

impl State for Minimum {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a search by Newton's method")?;
        visit.number("the round", &mut self.round)?;
        self.newton.state(visit)?;
        visit.vector("the answers so far", &mut self.sum)?;
        visit.vector("the Hessian at the start", &mut self.first)
    }
}

/// The Gaussian that fits on average, by [`Averaged`] steps.
///
/// Where clients are kept apart, one exchange more asks for averages over a Gaussian that is wider
/// than the last one that was asked about: by how much each client's mean gradient moves then is
/// what shifts the mean of draws that are spread too widely.
#[derive(Clone, Debug)]
pub struct Fit {
    everybody: Vec<ClientId>,
    prior: Prior,
    averaged: Averaged,
    /// The mean that is asked about, and the upper triangle of the root of the covariance, row by
    /// row.
    mean: Vec<f64>,
    root: Vec<f64>,
    /// The square root of the temperature.
    scale: f64,
    round: u64,
    sum: Vec<f64>,
    /// The newest answer of each client, where they are wanted, and that for the wider Gaussian.
    each: Vec<Vec<f64>>,
    wider: Vec<Vec<f64>>,
    widens: bool,
}

/// The variance of the wider Gaussian over that of the other.
const WIDER: f64 = 1.2;

/// What a client says on average over the Gaussian, with its share of the prior.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientAverage {
    /// The mean of its gradient.
    pub gradient: Vec<f64>,
    /// The mean of its Hessian, row by row.
    pub hessian: Vec<f64>,
    /// By how much its mean gradient moves where the Gaussian is wider, over how much larger its
    /// variance is, relatively.
    pub skewness: Vec<f64>,
}

impl Fit {
    /// Start from the optimum and its Hessian; `apart` keeps what each client says.
    pub fn new(
        target: &Target,
        optimum: &[f64],
        hessian: &[f64],
        most_exchanges: u64,
        apart: bool,
    ) -> Self {
        let d = optimum.len();
        let length = Task::Averages.answer_len(d);
        let clients = if apart { target.clients.len() } else { 0 };
        let mut fit = Fit {
            everybody: everybody(target),
            prior: prior_of_server(target),
            averaged: Averaged::new(optimum.to_vec(), hessian, most_exchanges),
            mean: Vec::new(),
            root: Vec::new(),
            scale: target.temperature.sqrt(),
            round: 0,
            sum: vec![0.0; length],
            each: vec![vec![0.0; length]; clients],
            wider: vec![vec![0.0; d]; clients],
            widens: false,
        };
        fit.aim();
        fit
    }

    /// Make the root of the covariance that is asked about.
    fn aim(&mut self) {
        self.mean = self.averaged.mean().to_vec();
        self.root.clear();
        self.root.extend(self.averaged.root().iter().map(|a| a * self.scale));
    }

    /// The fit.
    pub fn averaged(&self) -> &Averaged {
        &self.averaged
    }

    /// The mean of the Gaussian whose averages [`Fit::parts`] are: the last that was asked about.
    pub fn asked(&self) -> &[f64] {
        &self.mean
    }

    /// What each client said, where they are kept apart.
    pub fn parts(&self) -> impl Iterator<Item = ClientAverage> {
        let d = self.mean.len();
        self.each.iter().zip(&self.wider).map(move |(own, wider)| ClientAverage {
            gradient: own[..d].to_vec(),
            hessian: from_triangle(&own[d..], d),
            skewness: wider.iter().zip(own).map(|(w, g)| (w - g) / (WIDER - 1.0)).collect(),
        })
    }
}

impl Exchange for Fit {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        Order {
            round: self.round,
            task: Task::Averages,
            position: Some(plain(&self.mean)),
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &self.root,
        }
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        let values = reply.payload.values();
        let d = self.mean.len();
        if self.widens {
            if let Some(wider) = self.wider.get_mut(from.index()) {
                wider.copy_from_slice(&values[..d]);
            }
            return;
        }
        add_scaled(1.0, values, &mut self.sum);
        if let Some(own) = self.each.get_mut(from.index()) {
            own.copy_from_slice(values);
        }
    }

    fn advance(&mut self) -> Event {
        self.round += 1;
        if self.widens {
            return Event::Done;
        }
        let d = self.mean.len();
        let mut both = self.sum[..d].to_vec();
        both.extend(from_triangle(&self.sum[d..], d));
        self.prior.add_average((&self.mean, &upper_columns(&self.root, d)), 1.0, &mut both);
        let hessian = both.split_off(d);
        let gradient = both;
        self.averaged.tell(&AveragedAnswer { gradient, hessian });
        self.sum.fill(0.0);
        if self.averaged.asks().is_some() {
            self.aim();
            return Event::Nothing;
        }
        if self.each.is_empty() {
            return Event::Done;
        }
        self.widens = true;
        self.root.iter_mut().for_each(|a| *a *= WIDER.sqrt());
        Event::Nothing
    }
}

impl State for Fit {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a fit of a Gaussian on average")?;
        visit.number("the round", &mut self.round)?;
        self.averaged.state(visit)?;
        visit.vector("the mean asked about", &mut self.mean)?;
        visit.vector("the root asked about", &mut self.root)?;
        visit.vector("the answers so far", &mut self.sum)?;
        for own in self.each.iter_mut().chain(&mut self.wider) {
            visit.vector("the answer of a client", own)?;
        }
        visit.flag("whether a wider Gaussian is asked about", &mut self.widens)
    }
}

/// The potential along every axis of the coordinates in which the posterior is round.
#[derive(Clone, Debug)]
pub struct Profiles {
    everybody: Vec<ClientId>,
    prior: Prior,
    temperature: f64,
    sum: Vec<f64>,
}

/// Profiles are flat above this: nothing there is ever proposed.
const STEEPEST: f64 = 500.0;

impl Profiles {
    /// Of a target in such coordinates.
    pub fn new(target: &Target) -> Self {
        Profiles {
            everybody: everybody(target),
            prior: prior_of_server(target),
            temperature: target.temperature,
            sum: vec![0.0; Task::Profiles.answer_len(target.dim())],
        }
    }

    /// The profile of every axis: the potential over the temperature, less what it is at the
    /// origin.
    pub fn profiles(&self) -> impl Iterator<Item = [f64; PROFILE.len()]> {
        let d = self.sum.len() / PROFILE.len();
        let (prior, mut point) = (&self.prior, vec![0.0; d]);
        let origin = prior.value(&point);
        let (axes, _) = self.sum.as_chunks::<{ PROFILE.len() }>();
        axes.iter().enumerate().map(move |(axis, profile)| {
            std::array::from_fn(|k| {
                point[axis] = PROFILE[k];
                let own = prior.value(&point) - origin;
                point[axis] = 0.0;
                ((profile[k] + own) / self.temperature).min(STEEPEST)
            })
        })
    }
}

impl Exchange for Profiles {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        Order {
            round: 0,
            task: Task::Profiles,
            position: None,
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        }
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        add_scaled(1.0, reply.payload.values(), &mut self.sum);
    }

    fn advance(&mut self) -> Event {
        Event::Done
    }
}

impl State for Profiles {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a survey of profiles")?;
        visit.vector("the answers so far", &mut self.sum)
    }
}

/// The seed of pilots, which are thrown away: the same for everybody.
pub(super) const PILOT: u64 = 0;

/// Weights of points that a proposal names, to judge it by.
#[derive(Clone, Debug)]
pub struct Pilot {
    everybody: Vec<ClientId>,
    prior: Prior,
    temperature: f64,
    proposal: Proposal,
    sum: Vec<f64>,
}

impl Pilot {
    /// Try so many points of a proposal, for a target in coordinates in which it is round.
    pub fn new(target: &Target, proposal: Proposal, points: usize) -> Self {
        Pilot {
            everybody: everybody(target),
            prior: prior_of_server(target),
            temperature: target.temperature,
            proposal,
            sum: vec![0.0; points],
        }
    }

    /// The points, one behind the other, and the logarithms of their weights up to a constant.
    pub fn weighed(&self) -> (Vec<f64>, Vec<f64>) {
        let d = self.proposal.dim();
        let mut points = vec![0.0; d * self.sum.len()];
        let weights = points
            .chunks_exact_mut(d)
            .zip(&self.sum)
            .enumerate()
            .map(|(k, (x, sum))| {
                let log = self.proposal.draw(Seed::new(PILOT), Purpose::Pilot, k as u64, x);
                -(sum + self.prior.value(x)) / self.temperature - log
            })
            .collect();
        (points, weights)
    }
}

impl Exchange for Pilot {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        Order {
            round: 0,
            task: Task::Pilot { points: self.sum.len() as u64 },
            position: None,
            reference: ReferencePoint::Keep,
            control: None,
            numbers: self.proposal.parts(),
        }
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        add_scaled(1.0, reply.payload.values(), &mut self.sum);
    }

    fn advance(&mut self) -> Event {
        Event::Done
    }
}

impl State for Pilot {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a pilot")?;
        visit.vector("the answers so far", &mut self.sum)
    }
}
