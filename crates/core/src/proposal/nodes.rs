//! Let the law of all other coordinates depend on the first: nodes along it.
//!
//! The width of an intercept depends on how much groups differ, so that no Gaussian, and no map of
//! single axes, resembles a posterior with effects of groups. Where the first coordinate is the
//! logarithm of their standard deviation, the law of the others given it is found at nine places of
//! it, the *nodes*: its mode by Newton's method, then the Gaussian that fits on average, at all
//! nodes in the same exchanges ([`Conditionals`]). A proposal draws the first coordinate from its
//! marginal law (Laplace's approximation at the nodes, a spline between them) and the others from a
//! Gaussian whose mean and root are interpolated linearly ([`Nodes`]). Its density accounts for
//! that, so that no draw's law depends on how good the approximation is.

use nalgebra::DMatrix;

use super::averaged::{positive, root};
use super::{AxisMap, solve, visit_matrix};
use crate::linalg::dot;
use crate::simd::ln;
use crate::snapshot::{SnapshotError, State, Visit};

/// Where nodes are along the first coordinate. The logarithm of a scale has the longer tail towards
/// small ones: there the law of the others no longer changes.
pub const NODES: [f64; 9] = [-8.0, -6.0, -4.0, -2.5, -1.25, 0.0, 1.0, 2.0, 3.0];
/// The most coordinates for which there are nodes: each has a matrix.
pub const MOST_NODED: usize = 100;

/// Newton's method ends when no step is longer than a tenth of a standard deviation, or after so
/// many exchanges.
const NEAR: f64 = 0.01;
const MOST_NEWTON: u64 = 5;
/// How many exchanges fit on average.
const AVERAGED: u64 = 2;
/// No step moves a coordinate further than this.
const LONGEST: f64 = 4.0;
/// Precisions are at least this in every direction.
const LEAST: f64 = 0.01;

/// How many numbers tell of nodes: the heights of the marginal law, and means and roots of the
/// others.
pub(super) fn told_numbers(dim: usize) -> usize {
    let others = dim.saturating_sub(1);
    NODES.len() * (1 + others + others * (others + 1) / 2)
}

/// The law of a proposal along nodes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Nodes {
    /// From a normal coordinate to the first one.
    first: AxisMap,
    /// Node by node: the mean of the others, and the upper triangle of the root of their
    /// covariance, row by row.
    means: Vec<f64>,
    roots: Vec<f64>,
    others: usize,
}

impl Nodes {
    /// The law that these numbers tell of; `None` where they make no sense.
    pub(super) fn told(dim: usize, numbers: &[f64]) -> Option<Self> {
        let others = dim.checked_sub(1)?;
        let sane = numbers.len() == told_numbers(dim) && dim <= MOST_NODED;
        if !sane || !numbers.iter().all(|x| x.is_finite()) {
            return None;
        }
        let (heights, rest) = numbers.split_at(NODES.len());
        let (means, roots) = rest.split_at(NODES.len() * others);
        let first = AxisMap::of_law(&NODES, heights)?;
        let nodes = Nodes { first, means: means.to_vec(), roots: roots.to_vec(), others };
        let is_positive = |node: usize| {
            let root = nodes.root(node);
            diagonal(others).all(|at| root[at] > 0.0)
        };
        (0..NODES.len()).all(is_positive).then_some(nodes)
    }

    fn mean(&self, node: usize) -> &[f64] {
        &self.means[node * self.others..(node + 1) * self.others]
    }

    fn root(&self, node: usize) -> &[f64] {
        let cells = self.others * (self.others + 1) / 2;
        &self.roots[node * cells..(node + 1) * cells]
    }

    /// Move a point with normal coordinates to where it is proposed, and say the logarithm of how
    /// much that stretches what is around it.
    pub(super) fn apply(&self, x: &mut [f64]) -> f64 {
        let Some((first, others)) = x.split_first_mut() else { return 0.0 };
        let (place, slope) = self.first.apply(*first);
        *first = place;
        // Beyond both ends roots are constant, and means go on as lines do: where the others no
        // longer depend on the scale they move in these coordinates, whose first axis does.
        let left = NODES[1..NODES.len() - 1].iter().filter(|node| place >= **node).count();
        let width = NODES[left + 1] - NODES[left];
        let along = (place - NODES[left]) / width;
        let between = |share: f64, a: f64, b: f64| (1.0 - share) * a + share * b;
        let share = along.clamp(0.0, 1.0);
        let mut stretch = ln(slope);
        let (mut before, mut after) = (self.root(left).iter(), self.root(left + 1).iter());
        let means = self.mean(left).iter().zip(self.mean(left + 1));
        for (row, (a, b)) in means.enumerate() {
            let mut moved = between(along, *a, *b);
            for (column, (a, b)) in (row..self.others).zip((&mut before).zip(&mut after)) {
                let cell = between(share, *a, *b);
                moved += cell * others[column];
                if column == row {
                    stretch += ln(cell);
                }
            }
            others[row] = moved; // rows below do not ask for it
        }
        stretch
    }
}

/// Where the diagonal of a triangle stands.
fn diagonal(dim: usize) -> impl Iterator<Item = usize> {
    (0..dim).scan(0, move |next, row| {
        let at = *next;
        *next += dim - row;
        Some(at)
    })
}

/// What an exchange says at one node: of the whole potential over the temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAnswer {
    /// Its value at the mean.
    pub value: f64,
    /// Its mean gradient under the law that was asked about, all coordinates.
    pub gradient: Vec<f64>,
    /// Its mean Hessian, row by row, all coordinates.
    pub hessian: Vec<f64>,
}

/// The search for the law of all other coordinates given the first, at all nodes side by side.
#[derive(Clone, Debug)]
pub struct Conditionals {
    means: Vec<Vec<f64>>,
    precisions: Vec<DMatrix<f64>>,
    /// Minus the logarithm of the marginal density of the first coordinate, up to a constant.
    heights: Vec<f64>,
    exchanges: u64,
    /// How many exchanges of these were for averages, and whether Newton's method has ended.
    averaged: u64,
    settled: bool,
}

impl Conditionals {
    /// Start where the others are standard normal whatever the first.
    pub fn new(dim: usize) -> Self {
        let others = dim.saturating_sub(1);
        Conditionals {
            means: vec![vec![0.0; others]; NODES.len()],
            precisions: vec![DMatrix::identity(others, others); NODES.len()],
            heights: vec![0.0; NODES.len()],
            exchanges: 0,
            averaged: 0,
            settled: false,
        }
    }

    /// What is asked about next: for every node the mean of a Gaussian and the upper triangle of
    /// its covariance's root, row by row; where that is nothing, derivatives at the mean. `None`
    /// when all is known.
    pub fn asks(&self) -> Option<Vec<f64>> {
        if self.averaged >= AVERAGED {
            return None;
        }
        let mut numbers = Vec::new();
        for ((place, mean), precision) in NODES.iter().zip(&self.means).zip(&self.precisions) {
            numbers.push(*place);
            numbers.extend(mean);
            let others = mean.len();
            numbers.extend(std::iter::repeat_n(0.0, 1 + others)); // the first stays where it is
            if self.settled {
                numbers.extend(root(precision));
            } else {
                numbers.extend(std::iter::repeat_n(0.0, others * (others + 1) / 2));
            }
        }
        Some(numbers)
    }

    /// Go on with the answers of all nodes. Such as are no numbers end the search with nothing.
    pub fn tell(&mut self, answers: &[NodeAnswer]) {
        self.exchanges += 1;
        let is_finite = |answer: &NodeAnswer| {
            let mut all = answer.gradient.iter().chain(&answer.hessian);
            answer.value.is_finite() && all.all(|x| x.is_finite())
        };
        if answers.len() != NODES.len() || !answers.iter().all(is_finite) {
            self.heights.fill(f64::NAN);
            self.averaged = AVERAGED;
            return;
        }
        let mut furthest = 0.0f64;
        for (node, answer) in answers.iter().enumerate() {
            let mean = &mut self.means[node];
            let d = mean.len() + 1;
            let whole = DMatrix::from_row_slice(d, d, &answer.hessian);
            let own = whole.view((1, 1), (d - 1, d - 1));
            let hessian = (own + own.transpose()) * 0.5;
            let precision = &mut self.precisions[node];
            *precision = if self.settled {
                positive((&*precision + hessian) * 0.5)
            } else {
                positive(hessian)
            };
            let gradient = &answer.gradient[1..];
            let step = solve(precision, gradient, LEAST);
            let decrease = dot(gradient, step.as_slice());
            if !self.settled {
                self.heights[node] = answer.value - 0.5 * decrease + log_root(precision);
                furthest = furthest.max(decrease);
            }
            let shorter = (LONGEST / step.amax().max(LONGEST)).min(1.0);
            mean.iter_mut().zip(step.iter()).for_each(|(m, s)| *m -= shorter * s);
        }
        if self.settled {
            self.averaged += 1;
        } else {
            self.settled = furthest < NEAR || self.exchanges >= MOST_NEWTON;
        }
    }

    /// How many exchanges it took.
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// The numbers that tell a proposal of the nodes; `None` where an answer was no number.
    pub fn told(&self) -> Option<Vec<f64>> {
        if !self.heights.iter().all(|height| height.is_finite()) {
            return None;
        }
        let least = self.heights.iter().copied().fold(f64::INFINITY, f64::min);
        // Nothing is ever proposed as high as that.
        let mut told: Vec<f64> = self.heights.iter().map(|f| (f - least).min(HIGHEST)).collect();
        told.extend(self.means.iter().flatten());
        told.extend(self.precisions.iter().flat_map(root));
        told.iter().all(|x| x.is_finite()).then_some(told)
    }
}

/// Heights beyond this are this.
const HIGHEST: f64 = 500.0;

/// `log det(P) / 2`.
fn log_root(precision: &DMatrix<f64>) -> f64 {
    let lower = precision.clone().cholesky().map(|cholesky| cholesky.unpack());
    lower.map_or(f64::NAN, |lower| lower.diagonal().iter().map(|l| ln(*l)).sum())
}

impl State for Conditionals {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        for mean in &mut self.means {
            visit.vector("the mean at a node", mean)?;
        }
        for precision in &mut self.precisions {
            visit_matrix(visit, "the precision at a node", precision)?;
        }
        visit.vector("the heights of nodes", &mut self.heights)?;
        visit.number("the exchanges", &mut self.exchanges)?;
        visit.number("those for averages", &mut self.averaged)?;
        visit.flag("whether modes are found", &mut self.settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::{PROFILE, Proposal};
    use crate::rng::{Purpose, Seed};

    /// A law whose others are wider the larger the first, lopsided in every number.
    fn made_up() -> Vec<f64> {
        let mut numbers: Vec<f64> = NODES.iter().map(|r| 0.4 * r * r - 0.02 * r * r * r).collect();
        numbers.extend(NODES.iter().flat_map(|r| [0.3 * r, 0.2 - 0.1 * r]));
        let root = |r: &f64| [(0.3 * r).exp(), 0.4 + 0.05 * r, 0.7 + 0.02 * r * r];
        numbers.extend(NODES.iter().flat_map(root));
        numbers
    }

    /// The density that is said is the one that is drawn from: the mean of `p/q` over draws of `q`,
    /// with both in full, is 1. With nodes alone, and with a bent axis.
    #[test]
    fn the_density_along_nodes_is_the_one_that_is_drawn_from() {
        let profile = PROFILE.map(|r: f64| 4.0 * ((-0.5 * r).exp() - 1.0 + 0.5 * r));
        for bent in [&[][..], &[(2, profile)]] {
            let proposal = Proposal::with_nodes(3, 0, bent, &made_up()).unwrap();
            assert!(proposal.has_nodes());
            let (n, mut sum, mut squares) = (100_000, 0.0, 0.0);
            for k in 0..n {
                let mut x = [0.0; 3];
                let log = proposal.draw(Seed::new(4), Purpose::Proposal, k, &mut x);
                // both have the constant of a standard normal in three dimensions
                let p = |x: f64, mean: f64, sd: f64| ((x - mean) / sd).powi(2) + 2.0 * sd.ln();
                let f = p(x[0], 0.4, 0.8) + p(x[1], -0.2, 0.6) + p(x[2], 0.1, 0.5);
                let weight = (-0.5 * f - log).exp();
                sum += weight;
                squares += weight * weight;
            }
            let mean = sum / n as f64;
            let error = ((squares / n as f64 - mean * mean) / n as f64).sqrt();
            assert!(error < 0.01 && (mean - 1.0).abs() < 4.9 * error, "{mean} +- {error}");
        }
    }

    /// Means lie on lines in the first coordinate beyond the outermost nodes, too, and roots are
    /// those of the last: a law that follows the first coordinate does so in its tails.
    #[test]
    fn means_go_on_beyond_the_nodes() {
        let mut numbers: Vec<f64> = NODES.iter().map(|r| 0.2 * r.abs()).collect();
        numbers.extend(NODES.iter().map(|r| 0.3 - 0.25 * r));
        numbers.extend(NODES.iter().map(|r| 0.9 + 0.02 * r));
        let nodes = Nodes::told(2, &numbers).unwrap();
        let mut furthest = [0.0f64; 2];
        for k in -60..=60 {
            let at = |z: f64| {
                let mut x = [0.1 * f64::from(k), z];
                nodes.apply(&mut x);
                x
            };
            let [first, mean] = at(0.0);
            let root = 0.9 + 0.02 * first.clamp(NODES[0], NODES[8]);
            assert!((mean - (0.3 - 0.25 * first)).abs() < 1e-12, "{first}: {mean}");
            assert!((at(1.0)[1] - mean - root).abs() < 1e-12, "{first}");
            furthest = [furthest[0].min(first), furthest[1].max(first)];
        }
        assert!(furthest[0] < -20.0 && furthest[1] > 6.0, "{furthest:?}");
    }

    /// Between nodes the law is interpolated; along the first coordinate a piece of a table at a
    /// time.
    #[test]
    fn the_stretch_is_that_of_the_map() {
        let nodes = Nodes::told(3, &made_up()).unwrap();
        for z in [[-7.0, 0.3, -0.4], [-1.234, 1.0, 2.0], [0.777, -1.0, 0.2], [9.0, 0.5, 0.5]] {
            let at = |z: [f64; 3]| {
                let mut x = z;
                let stretch = nodes.apply(&mut x);
                (x, stretch)
            };
            let h = 1e-6;
            let mut slopes = DMatrix::zeros(3, 3);
            for k in 0..3 {
                let (mut up, mut down) = (z, z);
                up[k] += h;
                down[k] -= h;
                for i in 0..3 {
                    slopes[(i, k)] = (at(up).0[i] - at(down).0[i]) / (2.0 * h);
                }
            }
            let exact = slopes.determinant().ln();
            assert!((at(z).1 - exact).abs() < 1e-6, "{z:?}: {} is not {exact}", at(z).1);
        }
    }

    #[test]
    fn what_is_told_is_the_same_law_and_nonsense_is_none() {
        let told = made_up();
        let proposal = Proposal::with_nodes(3, 50, &[(1, [0.5; 10])], &told).unwrap();
        assert_eq!(Proposal::told(3, proposal.parts()), Some(proposal.clone()));
        assert!(proposal.parts().len() <= Proposal::most_told(3));
        assert_eq!(Proposal::most_told(3), 1 + 3 * 11 + 1 + told.len());
        let refused = |change: &dyn Fn(&mut Vec<f64>)| {
            let mut numbers = told.clone();
            change(&mut numbers);
            Proposal::with_nodes(3, 50, &[], &numbers).is_none()
        };
        assert!(!refused(&|_| ()));
        assert!(refused(&|numbers| numbers[0] = f64::NAN));
        assert!(refused(&|numbers| numbers[20] = f64::INFINITY));
        assert!(refused(&|numbers| numbers.push(1.0)));
        assert!(refused(&|numbers| numbers.truncate(40)));
        let first_root = 9 + 18;
        for diagonal in [first_root, first_root + 2, first_root + 8 * 3 + 2] {
            assert!(refused(&|numbers| numbers[diagonal] = 0.0));
            assert!(refused(&|numbers| numbers[diagonal] = -1.0));
        }
        assert!(!refused(&|numbers| numbers[first_root + 1] = -1.0), "beside the diagonal");
        // an axis behind nodes, and nodes for another dimension
        let behind = [proposal.parts(), &[2.0], &[0.5; 10]].concat();
        assert!(Proposal::told(3, &behind).is_none());
        assert!(Proposal::told(4, proposal.parts()).is_none());
        let many = MOST_NODED + 1;
        let long = vec![1.0; told_numbers(many)];
        assert!(Proposal::with_nodes(many, 50, &[], &long).is_none());
    }

    /// Others that are normal given the first, wider the larger it is: modes, precisions and the
    /// marginal law are found as they are.
    #[test]
    fn a_normal_law_given_the_first_is_found_exactly() {
        let (shape, tilt) = (DMatrix::from_row_slice(2, 2, &[2.0, 0.6, 0.6, 1.0]), [0.9, -0.4]);
        let slack = |r: f64| (-0.5 * r).exp(); // the precision is that of the shape times this
        let marginal = |r: f64| 0.6 * r * r - 0.3 * r;
        // U = marginal + y' S y exp(-r/2)/2 - log det/2, with y = x - tilt r
        let answer = |law: &[f64]| {
            let r = law[0];
            let y = [law[1] - tilt[0] * r, law[2] - tilt[1] * r];
            let pull = [0, 1].map(|i| slack(r) * (shape[(i, 0)] * y[0] + shape[(i, 1)] * y[1]));
            let form = pull[0] * y[0] + pull[1] * y[1];
            let value = marginal(r) + 0.5 * form + 0.5 * r;
            let along = 1.2 * r - 0.3 - 0.25 * form - dot(&pull, &tilt) + 0.5;
            let mut hessian = vec![0.0; 9];
            for i in 0..2 {
                for k in 0..2 {
                    hessian[3 * (i + 1) + k + 1] = slack(r) * shape[(i, k)];
                }
                // what the first has to do with the others is none of their law given it
                hessian[i + 1] = 5.0;
                hessian[3 * (i + 1)] = 5.0;
            }
            hessian[0] = 7.0;
            NodeAnswer { value, gradient: vec![along, pull[0], pull[1]], hessian }
        };
        let mut search = Conditionals::new(3);
        while let Some(numbers) = search.asks() {
            let answers: Vec<NodeAnswer> = numbers.chunks_exact(3 + 6).map(answer).collect();
            search.tell(&answers);
        }
        assert!(search.exchanges() <= 7, "{}", search.exchanges());
        let told = search.told().unwrap();
        let root = root(&shape);
        let least = NODES.iter().map(|r| marginal(*r)).fold(f64::INFINITY, f64::min);
        for (k, r) in NODES.into_iter().enumerate() {
            assert!((told[k] - (marginal(r) - least)).abs() < 1e-6, "{r}: {}", told[k]);
            for (i, tilt) in tilt.iter().enumerate() {
                assert!((told[9 + 2 * k + i] - tilt * r).abs() < 1e-6);
            }
            for (i, cell) in root.iter().enumerate() {
                let exact = cell / slack(r).sqrt();
                assert!((told[27 + 3 * k + i] - exact).abs() < 1e-6, "{r}");
            }
        }
    }

    #[test]
    fn what_is_no_number_ends_the_search_with_nothing() {
        let mut search = Conditionals::new(2);
        let answer = NodeAnswer { value: f64::NAN, gradient: vec![0.0; 2], hessian: vec![1.0; 4] };
        search.tell(&vec![answer; NODES.len()]);
        assert!(search.asks().is_none() && search.told().is_none());
    }
}
