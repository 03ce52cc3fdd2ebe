//! Get to know the target before sampling it: its optimum and its curvature, by messages like any
//! other, counted like any other.

mod curvature;
mod nodes;
mod optimum;
mod shape;
mod skewness;
mod tuning;

pub use curvature::{Curvature, Hessian, Lanczos, LocalCurvature};
pub use nodes::AlongScale;
pub use optimum::{Evaluate, Optimum};
pub use shape::{ClientAverage, Fit, Minimum, Pilot, Profiles};
pub use skewness::Skewness;
pub use tuning::{Trial, Tuning};

use crate::ask::{Extent, Question, Sum};
use crate::proposal::{LADDER, PROFILE, Potentials, Proposal, triangle, upper_columns};
use crate::protocol::wire::UNKNOWN;
use crate::protocol::{
    Device, Event, Exchange, Kind, Ledger, Order, Payload, Precision, ReferencePoint, Reply, Task,
    exchange,
};
use crate::rng::{ClientId, Purpose, Seed};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};

/// A client that answers the questions of a survey.
#[derive(Debug)]
pub struct Client {
    site: Site,
    reference: Vec<f64>,
    answer: Vec<f64>,
    /// The order that is being worked on: its task, round, point and numbers, and how many of its
    /// questions are answered.
    task: Task,
    round: u64,
    point: Vec<f64>,
    numbers: Vec<f64>,
    answered: usize,
    /// Room for the answer to one of several questions.
    room: Vec<f64>,
    /// The search for the client's own largest curvature.
    lanczos: Option<Lanczos>,
    /// Values at many points, and the law of those that are drawn.
    potentials: Potentials,
    proposal: Option<Proposal>,
}

impl Client {
    /// Client `id` of the target.
    pub fn new(target: &Target, id: ClientId) -> Self {
        let d = target.dim();
        let rows = target.clients[id.index()].rows();
        Client {
            site: target.site(id, rows),
            reference: vec![0.0; d],
            answer: Vec::new(),
            task: Task::Value,
            round: 0,
            point: vec![0.0; d],
            numbers: Vec::new(),
            answered: 0,
            room: Vec::new(),
            lanczos: None,
            potentials: Potentials::new(d),
            proposal: None,
        }
    }

    /// All clients of a target.
    pub fn all(target: &Target) -> Vec<Box<dyn Device>> {
        (0..target.clients.len() as u32)
            .map(|i| Box::new(Client::new(target, ClientId(i))) as Box<dyn Device>)
            .collect()
    }

    /// How many questions the task has, but for those whose number shows on the way.
    fn questions(&self) -> usize {
        match self.task {
            Task::Derivatives { ladder } => 2 + usize::from(ladder),
            Task::Slopes { points } => points as usize,
            Task::Nodes { points } => 1 + points as usize,
            _ => 1,
        }
    }

    /// How many numbers the answer to the next question has.
    fn width(&self) -> usize {
        let d = self.point.len();
        match (self.task, self.answered) {
            (Task::Value | Task::Slopes { .. } | Task::Derivatives { .. }, 0)
            | (Task::Slopes { .. }, _) => d + 1,
            (Task::Derivatives { .. }, 1) => d * d,
            (Task::Derivatives { .. }, _) => LADDER.len(),
            (Task::Nodes { points }, 0) => points as usize,
            (Task::Averages | Task::Nodes { .. }, _) => d + d * d,
            _ => d,
        }
    }

    /// Make room for the next answer.
    fn clear(&mut self) {
        let width = self.width();
        self.room.clear();
        self.room.resize(width, 0.0);
    }
}

/// What is said at a node in place of what is no number: nodes far out may be beyond all numbers,
/// and there are none then.
const BEYOND: f64 = 1e300;

fn said(value: f64) -> f64 {
    if value.abs() < BEYOND { value } else { BEYOND }
}

/// The point of a number, where a task names many: a proposal's, one that is told, or a profile's.
fn name(proposal: Option<&Proposal>, told: &[f64], k: usize, x: &mut [f64]) {
    let d = x.len();
    if let Some(proposal) = proposal {
        proposal.draw(Seed::new(shape::PILOT), Purpose::Pilot, k as u64, x);
    } else if let Some(point) = told.get(k * d..(k + 1) * d) {
        x.copy_from_slice(point);
    } else {
        x[k / PROFILE.len()] = PROFILE[k % PROFILE.len()];
    }
}

impl State for Client {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a client of a survey")?;
        self.site.state(visit)?;
        visit.vector("the reference point", &mut self.reference)
    }
}

impl Device for Client {
    fn accepts(&self, order: &Order<'_>) -> bool {
        let stands = matches!(order.position, Some(Payload::Plain(..)));
        let d = self.point.len();
        order.task.is_survey()
            && order.task.order_numbers(d).contains(&order.numbers.len())
            && match order.task {
                Task::Profiles | Task::Slopes { .. } | Task::Values { .. } | Task::Nodes { .. } => {
                    true
                }
                Task::Pilot { .. } => Proposal::told(d, order.numbers).is_some(),
                Task::Derivatives { ladder: true } => {
                    stands && matches!(order.reference, ReferencePoint::New(Payload::Plain(..)))
                }
                _ => stands,
            }
    }

    fn begin(&mut self, order: &Order<'_>) {
        (self.task, self.round, self.answered) = (order.task, order.round, 0);
        let d = self.point.len();
        if let Some(point) = &order.position {
            self.point.copy_from_slice(point.values());
        }
        if let ReferencePoint::New(point) = &order.reference {
            self.reference.copy_from_slice(point.values());
        }
        self.answer.clear();
        self.answer.resize(self.task.answer_len(d), 0.0);
        self.clear();
        self.numbers.clear();
        self.numbers.extend_from_slice(order.numbers);
        self.lanczos = None;
        self.proposal = None;
        match self.task {
            Task::Curvature => {
                let address = (Purpose::Curvature, self.site.id());
                let mut stream = Seed::new(0).stream(address.0, address.1, 0);
                self.lanczos = Some(Lanczos::new(d, &mut stream));
            }
            Task::Derivatives { ladder: true } => {
                for t in LADDER {
                    let rung = self.reference.iter().zip(&self.point).map(|(x, p)| x + t * (p - x));
                    self.numbers.extend(rung);
                }
            }
            Task::Averages => {
                self.numbers = upper_columns(order.numbers, d);
            }
            Task::Nodes { .. } => {
                let laws = || order.numbers.chunks_exact(d + d * (d + 1) / 2);
                self.numbers.clear();
                self.numbers.extend(laws().flat_map(|law| &law[..d]));
                self.numbers.extend(laws().flat_map(|law| upper_columns(&law[d..], d)));
            }
            Task::Profiles | Task::Pilot { .. } | Task::Values { .. } => {
                if let Task::Pilot { .. } = self.task {
                    self.proposal = Proposal::told(d, &self.numbers);
                }
                let (proposal, told) = (self.proposal.as_ref(), &self.numbers);
                self.potentials.begin(self.answer.len(), |k, x| name(proposal, told, k, x));
            }
            _ => {}
        }
    }

    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        if let Task::Profiles | Task::Pilot { .. } | Task::Values { .. } = self.task {
            return self.potentials.question(&mut self.site);
        }
        if self.answered == self.questions() {
            return None;
        }
        let (x, d) = (&self.point[..], self.point.len());
        let sum = match (self.task, &self.lanczos) {
            (Task::Value, _) => Sum::GradientAndValue { x },
            (Task::Curvature, Some(lanczos)) => Sum::HessianVector { x, v: lanczos.ask()? },
            (Task::Derivatives { .. }, _) => match self.answered {
                0 => Sum::GradientAndValue { x },
                1 => Sum::Hessian { x },
                _ => Sum::Value { x: &self.numbers },
            },
            (Task::Averages, _) => Sum::Average { x, spread: &self.numbers },
            (Task::Slopes { .. }, _) => {
                let x = &self.numbers[self.answered * d..(self.answered + 1) * d];
                Sum::GradientAndValue { x }
            }
            (Task::Nodes { points }, _) => {
                let (means, roots) = self.numbers.split_at(points as usize * d);
                match self.answered.checked_sub(1) {
                    None => Sum::Value { x: means },
                    Some(law) => Sum::Average {
                        x: &means[law * d..(law + 1) * d],
                        spread: &roots[law * d * d..(law + 1) * d * d],
                    },
                }
            }
            _ => Sum::HessianVector { x: &self.reference, v: x },
        };
        let out = &mut self.room;
        Some((&mut self.site, Question { sum, extent: Extent::All, scale: 1.0, out }))
    }

    fn proceed(&mut self) {
        let (d, room) = (self.point.len(), &self.room);
        match (self.task, self.answered) {
            (Task::Profiles | Task::Pilot { .. } | Task::Values { .. }, _) => {
                let (proposal, told) = (self.proposal.as_ref(), &self.numbers);
                self.potentials.proceed(|k, x| name(proposal, told, k, x));
                let values = self.potentials.values();
                if values.len() == self.answer.len() {
                    self.answer.copy_from_slice(values);
                }
                return;
            }
            (Task::Curvature, _) => {
                if let Some(lanczos) = &mut self.lanczos {
                    lanczos.tell(room);
                    if lanczos.ask().is_some() {
                        return self.clear();
                    }
                    self.answer[0] = lanczos.extremes().1;
                }
            }
            (Task::Derivatives { .. }, 0) => {
                self.answer[0] = room[d];
                self.answer[1..=d].copy_from_slice(&room[..d]);
            }
            (Task::Derivatives { .. }, 1) => {
                let places = self.answer[1 + d..].iter_mut();
                places.zip(triangle(room, d)).for_each(|(place, value)| *place = value);
            }
            (Task::Derivatives { .. }, _) => {
                // A rung may lie where the potential overflows: it is one that nobody steps on.
                let first = self.answer.len() - LADDER.len();
                let places = self.answer[first..].iter_mut();
                let most = |value: f64| if value < TOO_HIGH { value } else { TOO_HIGH };
                places.zip(room.iter()).for_each(|(place, value)| *place = most(*value));
            }
            (Task::Averages, _) => {
                self.answer[..d].copy_from_slice(&room[..d]);
                let places = self.answer[d..].iter_mut();
                places.zip(triangle(&room[d..], d)).for_each(|(place, value)| *place = value);
            }
            (Task::Slopes { .. }, k) => {
                self.answer[k * (d + 1)..(k + 1) * (d + 1)].copy_from_slice(room);
            }
            (Task::Nodes { .. }, k) => {
                let width = 1 + d + d * (d + 1) / 2;
                match k.checked_sub(1) {
                    None => {
                        let answers = self.answer.chunks_exact_mut(width);
                        answers.zip(room).for_each(|(answer, value)| answer[0] = said(*value));
                    }
                    Some(law) => {
                        let answer = &mut self.answer[law * width + 1..(law + 1) * width];
                        let (gradient, hessian) = room.split_at(d);
                        let values = gradient.iter().copied().chain(triangle(hessian, d));
                        let places = answer.iter_mut().zip(values);
                        places.for_each(|(place, value)| *place = said(value));
                    }
                }
            }
            _ => self.answer.copy_from_slice(room),
        }
        self.answered += 1;
        self.clear();
        if self.task == Task::Value && self.answer[d].is_nan() {
            self.answer[d] = UNKNOWN; // whichever NaN it is, there is one that is sent
        }
    }

    fn reply(&mut self) -> Reply<'_> {
        Reply {
            round: self.round,
            kind: Kind::Survey,
            payload: Payload::Plain(&self.answer, Precision::F64),
            beside: &[],
        }
    }

    fn rows_evaluated(&self) -> u64 {
        self.site.rows_evaluated()
    }
}

/// A potential that no step should lead to; sums of it over sites are finite.
const TOO_HIGH: f64 = 1e300;

/// Carry a survey to its end in this process.
pub fn conduct<S: Exchange>(
    mut survey: S,
    clients: &mut [Box<dyn Device>],
    ledger: &mut Ledger,
) -> S {
    while exchange(&mut survey, clients, ledger) == Event::Nothing {}
    survey
}

fn everybody(target: &Target) -> Vec<ClientId> {
    (0..target.clients.len() as u32).map(ClientId).collect()
}
