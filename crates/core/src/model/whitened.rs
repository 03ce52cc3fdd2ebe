//! Transform a model to coordinates in which the posterior is round.
//!
//! With `x = centre + C u` and `C C'` the inverse Hessian at the optimum, the posterior of `u` is
//! close to a standard normal whatever the scales and correlations of `x`: the step can be as large
//! in every direction, and chains mix in a few iterations. The map is affine, so draws of `u`
//! become draws of `x` by applying it: nothing is approximated.

use std::borrow::Cow;
use std::sync::Arc;

use nalgebra::{DMatrix, DVector};

use super::{EvaluationError, Evaluator, Model, Offers, Prior, Quadratic, Reach, Rows, Spread};
use crate::ask::{Ask, Sum};
use crate::linalg::{add_scaled, dot, norm_squared};
use crate::rng::ClientId;
use crate::simd::vectorised;

/// `x = centre + C u`.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinates {
    centre: Vec<f64>,
    map: Map,
}

/// `C`.
#[derive(Clone, Debug, PartialEq)]
enum Map {
    /// A matrix.
    Dense {
        /// Row by row.
        matrix: Vec<f64>,
        /// `C'`, row by row.
        transposed: Vec<f64>,
        /// `L'` with `L L'` the Hessian: the inverse of `C`, row by row.
        inverse: Vec<f64>,
    },
    /// `base (1 + sum_i f_i y_i y_i')` with orthonormal `y_i`, where there are too many parameters
    /// for a matrix: `base`, all `f_i`, then all `y_i`.
    LowRank {
        /// These numbers.
        told: Vec<f64>,
    },
}

/// The most directions of a map of low rank.
pub const MOST_DIRECTIONS: usize = 64;

impl Coordinates {
    /// The coordinates in which the Hessian (row-major) is the identity; `None` if it is not
    /// positive definite.
    pub fn whitening(centre: &[f64], hessian: &[f64]) -> Option<Self> {
        let d = centre.len();
        let lower = DMatrix::from_row_slice(d, d, hessian).cholesky()?.unpack();
        let matrix = lower.transpose().solve_upper_triangular(&DMatrix::identity(d, d))?;
        // nalgebra is column-major: the slice of a matrix is its transpose row by row.
        let rows = |m: &DMatrix<f64>| m.transpose().as_slice().to_vec();
        let map = Map::Dense {
            matrix: rows(&matrix),
            transposed: rows(&matrix.transpose()),
            inverse: rows(&lower.transpose()),
        };
        Some(Coordinates { centre: centre.to_vec(), map })
    }

    /// The coordinates in which a Hessian is the identity that has these eigenvalues along these
    /// orthonormal directions, at most [`MOST_DIRECTIONS`] and fewer than half the parameters, and
    /// the eigenvalue `others` along all that are perpendicular to them. `None` if an eigenvalue is
    /// not positive.
    pub fn of_low_rank(
        centre: &[f64],
        others: f64,
        directions: &[(f64, Vec<f64>)],
    ) -> Option<Self> {
        let base = others.sqrt().recip();
        let mut told = vec![base];
        told.extend(directions.iter().map(|(value, _)| (others / value).sqrt() - 1.0));
        told.extend(directions.iter().flat_map(|(_, direction)| direction));
        let positive = others > 0.0 && directions.iter().all(|(value, _)| *value > 0.0);
        if positive { Coordinates::told(centre.to_vec(), told) } else { None }
    }

    /// The coordinates of a centre and the numbers of [`Coordinates::parts`], found here or by
    /// another party; `None` if they are not finite numbers, or `C` has no inverse.
    pub fn told(centre: Vec<f64>, numbers: Vec<f64>) -> Option<Self> {
        let d = centre.len();
        let finite = |numbers: &[f64]| numbers.iter().all(|x| x.is_finite());
        if d == 0 || !finite(&centre) || !finite(&numbers) {
            return None;
        }
        if numbers.len() != d * d {
            let rank = (numbers.len().checked_sub(1)?) / (1 + d);
            let fits = numbers.len() == 1 + rank * (1 + d) && 2 * rank < d;
            let stretches = fits && numbers[0] > 0.0 && numbers[1..=rank].iter().all(|f| *f > -1.0);
            let map = Map::LowRank { told: numbers };
            return (stretches && rank <= MOST_DIRECTIONS).then_some(Coordinates { centre, map });
        }
        let matrix = numbers;
        let c = DMatrix::from_row_slice(d, d, &matrix);
        let upper = matrix.iter().enumerate().all(|(at, c)| at % d >= at / d || *c == 0.0);
        let inverse = if upper {
            c.solve_upper_triangular(&DMatrix::identity(d, d))?
        } else {
            c.clone().try_inverse()?
        };
        if !finite(inverse.as_slice()) {
            return None;
        }
        let transposed = c.as_slice().to_vec(); // nalgebra is column-major
        let inverse = inverse.transpose().as_slice().to_vec();
        Some(Coordinates { centre, map: Map::Dense { matrix, transposed, inverse } })
    }

    /// The centre, and the numbers of `C` (row by row, or those of a map of low rank): what another
    /// party must be told.
    pub fn parts(&self) -> (&[f64], &[f64]) {
        let numbers = match &self.map {
            Map::Dense { matrix, .. } => matrix,
            Map::LowRank { told } => told,
        };
        (&self.centre, numbers)
    }

    /// `C`, row by row.
    pub fn matrix(&self) -> Cow<'_, [f64]> {
        match &self.map {
            Map::Dense { matrix, .. } => Cow::Borrowed(matrix),
            Map::LowRank { .. } => {
                let d = self.dim();
                let (mut unit, mut cells) = (vec![0.0; d], vec![0.0; d * d]);
                for (k, row) in cells.chunks_exact_mut(d).enumerate() {
                    unit[k] = 1.0;
                    self.add_direction(&unit, row); // it is symmetric
                    unit[k] = 0.0;
                }
                Cow::Owned(cells)
            }
        }
    }

    /// How far the longest step of unit length reaches.
    fn stretch(&self) -> f64 {
        match &self.map {
            Map::Dense { matrix, .. } => {
                DMatrix::from_row_slice(self.dim(), self.dim(), matrix).singular_values().max()
            }
            Map::LowRank { told } => {
                let (base, factors, _) = low_rank(told, self.dim());
                base * factors.iter().fold(1.0, |most: f64, f| most.max(1.0 + f))
            }
        }
    }

    /// No less than [`Coordinates::stretch`], in no time: the root of the sum of all squares.
    fn most_stretch(&self) -> f64 {
        match &self.map {
            Map::Dense { matrix, .. } => norm_squared(matrix).sqrt(),
            Map::LowRank { .. } => self.stretch(),
        }
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.centre.len()
    }

    /// `x` from `u`, into `out`.
    pub fn outward(&self, u: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&self.centre);
        self.add_direction(u, out);
    }

    /// `out += C v`: a direction in `u` as a direction in `x`.
    pub(crate) fn add_direction(&self, v: &[f64], out: &mut [f64]) {
        match &self.map {
            Map::Dense { transposed, .. } => add_product(transposed, v, 1.0, out),
            Map::LowRank { told } => add_low_rank(told, v, 1.0, out),
        }
    }

    /// `out += scale * C' gradient`: a gradient in `x` as a gradient in `u`.
    pub fn add_pulled_back(&self, gradient: &[f64], scale: f64, out: &mut [f64]) {
        match &self.map {
            Map::Dense { matrix, .. } => add_product(matrix, gradient, scale, out),
            Map::LowRank { told } => add_low_rank(told, gradient, scale, out),
        }
    }

    /// `out += scale * C' (H + weight hess U_0(x)) C`, all row by row.
    fn add_hessian(
        &self,
        (hessian, x): (&[f64], &[f64]),
        prior: &Prior,
        weight: f64,
        scale: f64,
        out: &mut [f64],
    ) {
        let d = self.dim();
        let mut unit = vec![0.0; d];
        let mut direction = vec![0.0; d];
        let mut image = vec![0.0; d];
        for (k, out) in out.chunks_exact_mut(d).enumerate() {
            unit[k] = 1.0;
            direction.fill(0.0);
            self.add_direction(&unit, &mut direction);
            for (image, row) in image.iter_mut().zip(hessian.chunks_exact(d)) {
                *image = dot(row, &direction);
            }
            prior.add_hessian_vector(x, &direction, weight, &mut image);
            self.add_pulled_back(&image, scale, out);
            unit[k] = 0.0;
        }
    }

    /// The covariance of `x` from that of `u`, both row-major.
    pub fn outward_covariance(&self, covariance: &[f64]) -> Vec<f64> {
        let d = self.dim();
        let c = DMatrix::from_row_slice(d, d, &self.matrix());
        let moved = &c * DMatrix::from_row_slice(d, d, covariance) * c.transpose();
        ((&moved + moved.transpose()) * 0.5).as_slice().to_vec()
    }

    /// `u` from `x`.
    pub fn inward(&self, x: &[f64]) -> Vec<f64> {
        let moved: Vec<f64> = x.iter().zip(&self.centre).map(|(x, c)| x - c).collect();
        match &self.map {
            Map::Dense { inverse, .. } => {
                inverse.chunks_exact(self.dim()).map(|row| dot(row, &moved)).collect()
            }
            Map::LowRank { told } => {
                let (base, factors, directions) = low_rank(told, self.dim());
                let mut u: Vec<f64> = moved.iter().map(|x| x / base).collect();
                for (f, y) in factors.iter().zip(directions) {
                    add_scaled(-f / (1.0 + f) * dot(y, &moved) / base, y, &mut u);
                }
                u
            }
        }
    }
}

/// The numbers of a map of low rank: its base, its factors and its directions.
fn low_rank(told: &[f64], d: usize) -> (f64, &[f64], impl Iterator<Item = &[f64]>) {
    let rank = (told.len() - 1) / (1 + d);
    let (factors, directions) = told[1..].split_at(rank);
    (told[0], factors, directions.chunks_exact(d))
}

/// `out += scale * C v`; such a `C` is its own transpose.
fn add_low_rank(told: &[f64], v: &[f64], scale: f64, out: &mut [f64]) {
    vectorised(|| {
        let (base, factors, directions) = low_rank(told, v.len());
        add_scaled(scale * base, v, out);
        for (f, y) in factors.iter().zip(directions) {
            add_scaled(scale * base * f * dot(y, v), y, out);
        }
    });
}

/// `out += scale * M v`, where `columns` are the columns of `M` one after the other.
fn add_product(columns: &[f64], v: &[f64], scale: f64, out: &mut [f64]) {
    vectorised(|| {
        for (column, by) in columns.chunks_exact(out.len()).zip(v) {
            add_scaled(scale * by, column, out);
        }
    });
}

/// A model with the clients' shares of the prior, as a function of `u`. The prior is spread evenly
/// over a client's rows, so that any minibatch, scaled up, carries it exactly.
#[derive(Clone, Debug)]
pub struct Whitened {
    inner: Arc<dyn Model>,
    prior: Prior,
    /// One for each client of the model.
    shares: Vec<f64>,
    coordinates: Arc<Coordinates>,
}

impl Whitened {
    /// The model `inner + share * prior` of each client, in other coordinates.
    pub fn new(
        inner: Arc<dyn Model>,
        prior: Prior,
        shares: Vec<f64>,
        coordinates: Arc<Coordinates>,
    ) -> Self {
        Whitened { inner, prior, shares, coordinates }
    }

    /// A client's share of the prior.
    #[inline(always)]
    fn weight(&self, client: ClientId) -> f64 {
        if let [only] = self.shares[..] { only } else { self.shares[client.index()] }
    }

    /// What some of a client's rows have of it.
    #[inline(always)]
    fn share(&self, client: ClientId, rows: Rows<'_>) -> f64 {
        let all = self.inner.rows_of(client);
        self.weight(client) * rows.count(all) as f64 / all as f64
    }

    /// The same, exactly the client's own for all rows.
    #[inline(always)]
    fn share_of_value(&self, client: ClientId, rows: Rows<'_>) -> f64 {
        match rows {
            Rows::All => self.weight(client),
            Rows::Some(_) => self.share(client, rows),
        }
    }
}

/// One ask in the coordinates of the model: points, others that they are compared with or
/// vectors, and the answer.
#[derive(Debug, Default)]
struct Outward {
    x: Vec<f64>,
    other: Vec<f64>,
    answer: Vec<f64>,
}

impl Outward {
    /// Write down an ask.
    #[inline(always)]
    fn write(&mut self, coordinates: &Coordinates, ask: &Ask<'_>) {
        let d = coordinates.dim();
        let move_all = |from: &[f64], to: &mut Vec<f64>| {
            to.resize(from.len(), 0.0);
            for (u, x) in from.chunks_exact(d).zip(to.chunks_exact_mut(d)) {
                coordinates.outward(u, x);
            }
        };
        move_all(ask.sum.points(), &mut self.x);
        match ask.sum {
            Sum::Difference { z, .. } => move_all(z, &mut self.other),
            Sum::Average { spread, .. } => {
                self.other.clear();
                self.other.resize(d * d, 0.0);
                for (a, out) in spread.chunks_exact(d).zip(self.other.chunks_exact_mut(d)) {
                    coordinates.add_direction(a, out);
                }
            }
            Sum::HessianVector { v, .. } => {
                self.other.clear();
                self.other.resize(d, 0.0);
                coordinates.add_direction(v, &mut self.other);
            }
            _ => {}
        }
        self.answer.clear();
        self.answer.resize(ask.out.len(), 0.0);
    }

    #[inline(always)]
    fn ask<'a>(&'a mut self, of: &Ask<'a>) -> Ask<'a> {
        let (x, other) = (&self.x, &self.other);
        let sum = match of.sum {
            Sum::Value { .. } => Sum::Value { x },
            Sum::Gradient { .. } => Sum::Gradient { x },
            Sum::Difference { .. } => Sum::Difference { x, z: other },
            Sum::GradientAndValue { .. } => Sum::GradientAndValue { x },
            Sum::HessianVector { .. } => Sum::HessianVector { x, v: other },
            Sum::Hessian { .. } => Sum::Hessian { x },
            Sum::Average { .. } => Sum::Average { x, spread: other },
        };
        Ask { client: of.client, sum, rows: of.rows, scale: 1.0, out: &mut self.answer }
    }

    /// Add the prior to the answer, and add all of it to what was asked.
    #[inline(always)]
    fn pull_back(&mut self, model: &Whitened, ask: &mut Ask<'_>) {
        let (d, prior, coordinates) = (model.dim(), &model.prior, &model.coordinates);
        let (share, value_share) =
            (model.share(ask.client, ask.rows), model.share_of_value(ask.client, ask.rows));
        let width = ask.sum.width(d);
        let answers = self.answer.chunks_exact_mut(width).zip(ask.out.chunks_exact_mut(width));
        for (k, (answer, out)) in answers.enumerate() {
            let x = &self.x[k * d..(k + 1) * d];
            match ask.sum {
                Sum::Value { .. } => {
                    out[0] += ask.scale * (answer[0] + value_share * prior.value(x));
                }
                Sum::Gradient { .. } => {
                    prior.add_gradient(x, share, answer);
                    coordinates.add_pulled_back(answer, ask.scale, out);
                }
                Sum::GradientAndValue { .. } => {
                    let (gradient, value) = answer.split_at_mut(d);
                    prior.add_gradient(x, share, gradient);
                    coordinates.add_pulled_back(gradient, ask.scale, &mut out[..d]);
                    out[d] += ask.scale * (value[0] + value_share * prior.value(x));
                }
                Sum::Difference { .. } => {
                    let z = &self.other[k * d..(k + 1) * d];
                    prior.add_gradient_difference(x, z, share, answer);
                    coordinates.add_pulled_back(answer, ask.scale, out);
                }
                Sum::HessianVector { .. } => {
                    prior.add_hessian_vector(x, &self.other, value_share, answer);
                    coordinates.add_pulled_back(answer, ask.scale, out);
                }
                Sum::Average { .. } => {
                    let (gradient, hessian) = answer.split_at_mut(d);
                    let (to_gradient, to_hessian) = out.split_at_mut(d);
                    let mut left = prior;
                    if let Prior::Laws(laws) = prior {
                        let mut both = vec![0.0; d + d * d];
                        laws.add_average((x, &self.other), value_share, &mut both);
                        add_scaled(1.0, &both[..d], gradient);
                        add_scaled(1.0, &both[d..], hessian);
                        left = &Prior::Flat;
                    }
                    left.add_gradient(x, share, gradient);
                    coordinates.add_pulled_back(gradient, ask.scale, to_gradient);
                    let hessian = (&*hessian, x);
                    coordinates.add_hessian(hessian, left, value_share, ask.scale, to_hessian);
                }
                Sum::Hessian { .. } => {
                    coordinates.add_hessian((answer, x), prior, value_share, ask.scale, out);
                }
            }
        }
    }
}

/// Answers in other coordinates.
#[derive(Debug)]
struct WhitenedEvaluator {
    inner: Box<dyn Evaluator>,
    model: Arc<Whitened>,
    room: Vec<Outward>,
}

impl Evaluator for WhitenedEvaluator {
    #[inline]
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let WhitenedEvaluator { inner, model, room } = self;
        if room.len() < asks.len() {
            room.resize_with(asks.len(), Outward::default);
        }
        for (ask, outward) in asks.iter().zip(&mut *room) {
            outward.write(&model.coordinates, ask);
        }
        if let ([ask], [outward, ..]) = (&*asks, &mut room[..]) {
            inner.answer(&mut [outward.ask(ask)])?; // the usual case allocates nothing
        } else {
            let mut outer: Vec<Ask<'_>> =
                asks.iter().zip(&mut *room).map(|(ask, outward)| outward.ask(ask)).collect();
            inner.answer(&mut outer)?;
        }
        for (ask, outward) in asks.iter_mut().zip(room) {
            outward.pull_back(model, ask);
        }
        Ok(())
    }
}

impl Model for Whitened {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn clients(&self) -> usize {
        self.inner.clients()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn rows_of(&self, client: ClientId) -> usize {
        self.inner.rows_of(client)
    }

    fn offers(&self) -> Offers {
        self.inner.offers()
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        let inner = Arc::clone(&self.inner).evaluator();
        Box::new(WhitenedEvaluator { inner, model: self, room: Vec::new() })
    }

    fn host(&self, work: &mut (dyn FnMut() + Send)) {
        self.inner.host(work);
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        let stretch = self.coordinates.stretch();
        let prior = self.shares[0] * self.prior.curvature().0 / self.rows() as f64;
        (self.inner.row_smoothness(row) + prior) * stretch * stretch
    }

    fn reach(&self, u: &[f64]) -> Option<Reach> {
        let d = self.dim();
        let (mut x, mut gradient, mut pulled) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
        self.coordinates.outward(u, &mut x);
        let inner = self.inner.reach(&x)?;
        self.prior.add_gradient(&x, self.shares[0], &mut gradient);
        self.coordinates.add_pulled_back(&gradient, 1.0, &mut pulled);
        let prior = norm_squared(&pulled).sqrt();
        Some(Reach {
            value: inner.value + self.shares[0] * self.prior.value(&x).abs(),
            gradient: inner.gradient * self.coordinates.most_stretch() + prior,
        })
    }

    fn quadratic(&self) -> Option<Quadratic> {
        let d = self.dim();
        let prior = match &self.prior {
            Prior::Flat => DMatrix::zeros(d, d),
            Prior::Gaussian(precision) => {
                DMatrix::from_diagonal(&DVector::from_column_slice(precision)) * self.shares[0]
            }
            Prior::Laplace { .. } | Prior::Laws(_) => return None,
        };
        let form = self.inner.quadratic()?;
        let c = DMatrix::from_row_slice(d, d, &self.coordinates.matrix());
        let centre = DVector::from_column_slice(&self.coordinates.centre);
        // With gradient H x - r in x it is C' H C u - C' (r - H centre) in u.
        let whiten = |h: &[f64], r: &[f64], share: f64| {
            let h = DMatrix::from_row_slice(d, d, h) + &prior * share;
            let r = DVector::from_column_slice(r) - &h * &centre;
            let precision = c.tr_mul(&h) * &c;
            (
                ((&precision + precision.transpose()) * 0.5).as_slice().to_vec(),
                c.tr_mul(&r).as_slice().to_vec(),
            )
        };
        let (precision, shift) = whiten(&form.precision, &form.shift, 1.0);
        let spread = match form.spread {
            Spread::None => Spread::None,
            Spread::Shifts(sum) => Spread::Shifts(
                (c.tr_mul(&DMatrix::from_row_slice(d, d, &sum)) * &c).as_slice().to_vec(),
            ),
            Spread::Rows(rows) => Spread::Rows(
                rows.iter().map(|(h, r)| whiten(h, r, 1.0 / self.rows() as f64)).collect(),
            ),
        };
        Some(Quadratic { precision, shift, spread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by a matrix: the Hessian is `2 (1 - y y') + 8 y y'`.
    #[test]
    fn a_map_of_low_rank_is_that_of_its_matrix() {
        let (centre, y) = ([1.0, -2.0, 0.5], [0.6, 0.0, -0.8]);
        let map = Coordinates::of_low_rank(&centre, 2.0, &[(8.0, y.to_vec())]).unwrap();
        let hessian = DMatrix::from_fn(3, 3, |i, j| 6.0 * y[i] * y[j] + f64::from(i == j) * 2.0);
        let c = DMatrix::from_row_slice(3, 3, &map.matrix());
        assert!((c.transpose() * hessian * &c - DMatrix::identity(3, 3)).amax() < 1e-14);
        let dense = Coordinates::told(centre.to_vec(), map.matrix().into_owned()).unwrap();
        let told = Coordinates::told(centre.to_vec(), map.parts().1.to_vec()).unwrap();
        assert_eq!(told, map);
        let (u, near) = ([0.3, -0.7, 1.1], |a: &[f64], b: &[f64]| {
            a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-13)
        });
        let (mut x, mut by_matrix) = ([0.0; 3], [0.0; 3]);
        map.outward(&u, &mut x);
        dense.outward(&u, &mut by_matrix);
        assert!(near(&x, &by_matrix) && near(&map.inward(&x), &u), "{x:?} {by_matrix:?}");
        let (mut pulled, mut also) = ([1.0; 3], [1.0; 3]);
        map.add_pulled_back(&u, 0.5, &mut pulled);
        dense.add_pulled_back(&u, 0.5, &mut also);
        assert!(near(&pulled, &also));
        assert!((map.stretch() - dense.stretch()).abs() < 1e-13);
        // What makes no sense: a number too few, no inverse, a direction that is flat.
        for numbers in [vec![1.0; 4], vec![0.0], vec![1.0, -1.0, 1.0, 0.0, 0.0]] {
            assert!(Coordinates::told(centre.to_vec(), numbers).is_none());
        }
        assert!(Coordinates::of_low_rank(&centre, 1.0, &[(0.0, y.to_vec())]).is_none());
    }

    #[test]
    fn inward_undoes_outward_and_the_hessian_becomes_the_identity() {
        let (centre, hessian) = ([1.0, -2.0], [4.0, 1.0, 1.0, 3.0]);
        let coordinates = Coordinates::whitening(&centre, &hessian).unwrap();
        let (u, mut x) = ([0.3, -0.7], [0.0; 2]);
        coordinates.outward(&u, &mut x);
        assert!(coordinates.inward(&x).iter().zip(u).all(|(a, b)| (a - b).abs() < 1e-14));
        let c = DMatrix::from_row_slice(2, 2, &coordinates.matrix());
        let white = c.transpose() * DMatrix::from_row_slice(2, 2, &hessian) * c;
        assert!((white - DMatrix::identity(2, 2)).amax() < 1e-14);
        let (centre_told, matrix) = coordinates.parts();
        let told = Coordinates::told(centre_told.to_vec(), matrix.to_vec()).unwrap();
        let mut again = [0.0; 2];
        told.outward(&u, &mut again);
        assert_eq!((told.parts(), again), (coordinates.parts(), x));
        assert!(told.inward(&x).iter().zip(u).all(|(a, b)| (a - b).abs() < 1e-14));
        assert!(
            Coordinates::told(vec![0.0], vec![f64::NAN]).is_none()
                && Coordinates::told(vec![0.0], vec![0.0]).is_none()
        );
        assert!(Coordinates::whitening(&centre, &[1.0, 2.0, 2.0, 1.0]).is_none());
    }
}
