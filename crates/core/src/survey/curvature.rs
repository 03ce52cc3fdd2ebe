//! Measure how curved `U` is, by products of its Hessian with vectors: power iteration in the form
//! of Lanczos, which finds both ends of the spectrum.

use nalgebra::DMatrix;

use super::everybody;
use crate::linalg::{add_scaled, dot, norm_squared};
use crate::model::Prior;
use crate::protocol::{Event, Exchange, Order, Payload, Precision, ReferencePoint, Reply, Task};
use crate::rng::{ClientId, Purpose, SERVER, Seed, Stream};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Placement, Target};

/// How many products are asked for at the most.
const MOST_PRODUCTS: usize = 48;
/// Both ends are known when they move by less than this, relatively.
const TOLERANCE: f64 = 1e-4;

/// The Lanczos iteration with full orthogonalisation: it asks for products and is told them.
#[derive(Clone, Debug)]
pub struct Lanczos {
    basis: Vec<Vec<f64>>,
    diagonal: Vec<f64>,
    beside: Vec<f64>,
    extremes: (f64, f64),
    /// The length of what the last image has outside the basis.
    left: f64,
    done: bool,
}

/// A direction is known when its image is off by less than this, relatively.
const KNOWN: f64 = 0.1;

impl Lanczos {
    /// Start from a random direction.
    pub fn new(dim: usize, stream: &mut Stream) -> Self {
        let mut v = vec![0.0; dim];
        stream.normals(&mut v);
        let norm = norm_squared(&v).sqrt();
        v.iter_mut().for_each(|v| *v /= norm);
        Lanczos {
            basis: vec![v],
            diagonal: Vec::new(),
            beside: Vec::new(),
            extremes: (0.0, 0.0),
            left: 0.0,
            done: false,
        }
    }

    /// The vector whose image is needed next; `None` when both ends are known.
    pub fn ask(&self) -> Option<&[f64]> {
        if self.done { None } else { self.basis.last().map(Vec::as_slice) }
    }

    /// The image of the vector that was asked for.
    pub fn tell(&mut self, image: &[f64]) {
        let Some(v) = self.basis.last() else { return };
        self.diagonal.push(dot(image, v));
        let mut rest = image.to_vec();
        for _ in 0..2 {
            for v in &self.basis {
                let along = dot(&rest, v);
                add_scaled(-along, v, &mut rest);
            }
        }
        let k = self.diagonal.len();
        let values = self.tridiagonal().symmetric_eigen().eigenvalues;
        let (before, now) = (self.extremes, (values.min(), values.max()));
        self.extremes = now;
        let still = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * b.abs();
        let norm = norm_squared(&rest).sqrt();
        self.left = norm;
        let settled = k > 8 && still(before.0, now.0) && still(before.1, now.1);
        self.done = settled
            || k == MOST_PRODUCTS.min(rest.len())
            || norm <= 1e-12 * now.1.abs()
            || !norm.is_finite();
        if !self.done {
            rest.iter_mut().for_each(|v| *v /= norm);
            self.beside.push(norm);
            self.basis.push(rest);
        }
    }

    /// The matrix within the basis.
    fn tridiagonal(&self) -> DMatrix<f64> {
        let k = self.diagonal.len();
        DMatrix::from_fn(k, k, |i, j| match i.abs_diff(j) {
            0 => self.diagonal[i],
            1 => self.beside[i.min(j)],
            _ => 0.0,
        })
    }

    /// The largest eigenvalues whose directions are known, at most so many, and an eigenvalue that
    /// stands for all others: the geometric mean of the largest and the smallest of them.
    pub fn directions(&self, most: usize) -> (f64, Vec<(f64, Vec<f64>)>) {
        let eigen = self.tridiagonal().symmetric_eigen();
        let mut order: Vec<usize> = (0..eigen.eigenvalues.len()).collect();
        order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
        let is_known = |at: usize| {
            let last = eigen.eigenvectors.column(at).iter().next_back().map_or(1.0, |s| s.abs());
            eigen.eigenvalues[at] > 0.0 && last * self.left <= KNOWN * eigen.eigenvalues[at]
        };
        let known = order.iter().take_while(|at| is_known(**at)).count();
        // What is left must tell of the others.
        let known = known.min(most).min(order.len().saturating_sub(1));
        let directions = order[..known].iter().map(|at| {
            let mut direction = vec![0.0; self.basis[0].len()];
            for (v, s) in self.basis.iter().zip(eigen.eigenvectors.column(*at).iter()) {
                add_scaled(*s, v, &mut direction);
            }
            let norm = norm_squared(&direction).sqrt();
            direction.iter_mut().for_each(|x| *x /= norm);
            (eigen.eigenvalues[*at], direction)
        });
        let rest = || order[known..].iter().map(|at| eigen.eigenvalues[*at].abs());
        let largest = rest().fold(f64::MIN_POSITIVE, f64::max);
        let smallest = rest().fold(f64::INFINITY, f64::min).clamp(1e-6 * largest, largest);
        ((largest * smallest).sqrt(), directions.collect())
    }

    /// The smallest and the largest eigenvalue, as far as they are known.
    pub fn extremes(&self) -> (f64, f64) {
        self.extremes
    }
}

/// The extreme eigenvalues of the Hessian of `U` at a point.
#[derive(Clone, Debug)]
pub struct Curvature {
    everybody: Vec<ClientId>,
    prior: Prior,
    point: Vec<f64>,
    lanczos: Lanczos,
    round: u64,
    sum: Vec<f64>,
}

impl Curvature {
    /// Ask for the curvature at `point`.
    pub fn new(target: &Target, point: &[f64], seed: Seed) -> Self {
        Curvature {
            everybody: everybody(target),
            prior: if target.placement == Placement::Server {
                target.prior.clone()
            } else {
                Prior::Flat
            },
            point: point.to_vec(),
            lanczos: Lanczos::new(point.len(), &mut seed.stream(Purpose::Curvature, SERVER, 0)),
            round: 0,
            sum: vec![0.0; point.len()],
        }
    }

    /// `(m, L)`: the smallest and the largest eigenvalue.
    pub fn extremes(&self) -> (f64, f64) {
        self.lanczos.extremes()
    }

    /// What [`Lanczos::directions`] knows of it.
    pub fn directions(&self, most: usize) -> (f64, Vec<(f64, Vec<f64>)>) {
        self.lanczos.directions(most)
    }

    /// How many exchanges it took.
    pub fn exchanges(&self) -> u64 {
        self.round
    }
}

impl Exchange for Curvature {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let plain = |values| Payload::Plain(values, Precision::F64);
        Order {
            round: self.round,
            task: Task::HessianVector,
            position: self.lanczos.ask().map(plain),
            reference: if self.round == 0 {
                ReferencePoint::New(plain(&self.point))
            } else {
                ReferencePoint::Keep
            },
            control: None,
            numbers: &[],
        }
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        add_scaled(1.0, reply.payload.values(), &mut self.sum);
    }

    fn advance(&mut self) -> Event {
        if let Some(v) = self.lanczos.ask() {
            self.prior.add_hessian_vector(&self.point, v, 1.0, &mut self.sum);
        }
        self.lanczos.tell(&self.sum);
        self.sum.fill(0.0);
        self.round += 1;
        if self.lanczos.ask().is_some() { Event::Nothing } else { Event::Done }
    }
}

/// The whole Hessian of `U` at a point, column by column: for models of a few hundred parameters.
#[derive(Clone, Debug)]
pub struct Hessian {
    everybody: Vec<ClientId>,
    prior: Prior,
    point: Vec<f64>,
    unit: Vec<f64>,
    columns: Vec<f64>,
    /// The columns of each client, where they are wanted: its own answers, with its share of the
    /// prior.
    each: Vec<Vec<f64>>,
    column: usize,
}

impl Hessian {
    /// Ask for the Hessian at `point`, and keep each client's part of it.
    pub fn of_each(target: &Target, point: &[f64]) -> Self {
        let d = point.len();
        Hessian {
            each: vec![vec![0.0; d * d]; target.clients.len()],
            ..Hessian::new(target, point)
        }
    }

    /// Ask for the Hessian at `point`.
    pub fn new(target: &Target, point: &[f64]) -> Self {
        let d = point.len();
        let mut unit = vec![0.0; d];
        unit[0] = 1.0;
        Hessian {
            everybody: everybody(target),
            prior: if target.placement == Placement::Server {
                target.prior.clone()
            } else {
                Prior::Flat
            },
            point: point.to_vec(),
            unit,
            columns: vec![0.0; d * d],
            each: Vec::new(),
            column: 0,
        }
    }

    /// The Hessian; symmetric, so row-major is column-major.
    pub fn matrix(&self) -> Vec<f64> {
        symmetric(&self.columns, self.point.len())
    }

    /// The parts of the clients, with their shares of the prior, where they were kept.
    pub fn parts(&self) -> Vec<Vec<f64>> {
        self.each.iter().map(|columns| symmetric(columns, self.point.len())).collect()
    }
}

impl Exchange for Hessian {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let plain = |values| Payload::Plain(values, Precision::F64);
        Order {
            round: self.column as u64,
            task: Task::HessianVector,
            position: Some(plain(&self.unit)),
            reference: if self.column == 0 {
                ReferencePoint::New(plain(&self.point))
            } else {
                ReferencePoint::Keep
            },
            control: None,
            numbers: &[],
        }
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        let d = self.point.len();
        let column = self.column * d..(self.column + 1) * d;
        add_scaled(1.0, reply.payload.values(), &mut self.columns[column.clone()]);
        if let Some(own) = self.each.get_mut(from.index()) {
            own[column].copy_from_slice(reply.payload.values());
        }
    }

    fn advance(&mut self) -> Event {
        let d = self.point.len();
        self.prior.add_hessian_vector(
            &self.point,
            &self.unit,
            1.0,
            &mut self.columns[self.column * d..(self.column + 1) * d],
        );
        self.unit[self.column] = 0.0;
        self.column += 1;
        if self.column == d {
            return Event::Done;
        }
        self.unit[self.column] = 1.0;
        Event::Nothing
    }
}

fn symmetric(columns: &[f64], d: usize) -> Vec<f64> {
    (0..d * d).map(|k| 0.5 * (columns[k] + columns[k % d * d + k / d])).collect()
}

/// The largest eigenvalue of each client's own Hessian at a point: one number from each.
#[derive(Clone, Debug)]
pub struct LocalCurvature {
    everybody: Vec<ClientId>,
    point: Vec<f64>,
    largest: Vec<f64>,
}

impl LocalCurvature {
    /// Ask at `point`.
    pub fn new(target: &Target, point: &[f64]) -> Self {
        LocalCurvature {
            everybody: everybody(target),
            point: point.to_vec(),
            largest: vec![0.0; target.clients.len()],
        }
    }

    /// `L_i`, client by client.
    pub fn largest(&self) -> &[f64] {
        &self.largest
    }
}

impl Exchange for LocalCurvature {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let position = Some(Payload::Plain(&self.point, Precision::F64));
        Order {
            round: 0,
            task: Task::Curvature,
            position,
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        }
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        self.largest[from.index()] = reply.payload.values()[0];
    }

    fn advance(&mut self) -> Event {
        Event::Done
    }
}

impl State for Lanczos {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        let dim = self.basis.first().map_or(0, Vec::len);
        visit.growing("the basis", &mut self.basis, dim, MOST_PRODUCTS)?;
        for (what, list) in
            [("the diagonal", &mut self.diagonal), ("the entries beside it", &mut self.beside)]
        {
            let mut count = list.len();
            visit.below(what, &mut count, MOST_PRODUCTS)?;
            list.resize(count, 0.0);
            visit.vector(what, list)?;
        }
        visit.float("the smallest eigenvalue", &mut self.extremes.0)?;
        visit.float("the largest eigenvalue", &mut self.extremes.1)?;
        visit.float("what is left of the last image", &mut self.left)?;
        visit.flag("whether both ends are known", &mut self.done)?;
        let products = self.diagonal.len();
        if self.basis.len() != products + usize::from(!self.done)
            || self.beside.len() + 1 != self.basis.len()
        {
            return Err(SnapshotError::Value {
                what: "the length of the diagonal",
                found: products as u64,
            });
        }
        Ok(())
    }
}

impl State for Curvature {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a survey of curvature")?;
        visit.number("the round", &mut self.round)?;
        visit.vector("the point", &mut self.point)?;
        self.lanczos.state(visit)?;
        visit.vector("the answers so far", &mut self.sum)
    }
}

impl State for Hessian {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a survey of the Hessian")?;
        let d = self.point.len();
        visit.below("the column", &mut self.column, d)?;
        visit.vector("the point", &mut self.point)?;
        visit.vector("the columns", &mut self.columns)?;
        for columns in &mut self.each {
            visit.vector("the columns of a client", columns)?;
        }
        if visit.restores() {
            self.unit.fill(0.0);
            self.unit.iter_mut().skip(self.column).take(1).for_each(|one| *one = 1.0);
        }
        Ok(())
    }
}

impl State for LocalCurvature {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a survey of the clients' curvature")?;
        visit.vector("the point", &mut self.point)?;
        visit.vector("the answers so far", &mut self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A diagonal matrix, whose directions are the axes: three stand out.
    #[test]
    fn directions_that_stand_out_are_found() {
        let values: Vec<f64> = (0..80)
            .map(|k| match k {
                5 => 400.0,
                17 => 100.0,
                60 => 40.0,
                _ => 1.0 + 3.0 * f64::from(k) / 80.0,
            })
            .collect();
        let mut lanczos = Lanczos::new(80, &mut Seed::new(1).stream(Purpose::Curvature, SERVER, 0));
        while let Some(v) = lanczos.ask() {
            let image: Vec<f64> = v.iter().zip(&values).map(|(v, value)| v * value).collect();
            lanczos.tell(&image);
        }
        let (others, found) = lanczos.directions(3);
        for ((value, direction), (axis, right)) in
            found.iter().zip([(5, 400.0), (17, 100.0), (60, 40.0)])
        {
            assert!((value / right - 1.0).abs() < 1e-6, "{value}");
            assert!(direction[axis].abs() > 0.999, "{}", direction[axis]);
        }
        assert_eq!(found.len(), 3);
        assert!((1.5..2.5).contains(&others), "{others} is not about 2, the middle of 1 to 4");
        assert_eq!(lanczos.directions(0).1.len(), 0);
    }
}
