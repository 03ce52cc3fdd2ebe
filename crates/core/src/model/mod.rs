//! Say what a client knows: the potential of its own rows, and its derivatives.

mod absent;
mod by_gradients;
mod coded;
mod design;
mod federation;
mod fixed;
mod gaussian;
mod glm;
mod indicators;
mod likelihood;
mod member;
mod panel;
mod plain;
mod prior;
mod real;
mod rebalanced;
mod single;
mod softmax;
mod symmetric;
mod whitened;

pub use absent::Absent;
pub use by_gradients::ByGradients;
pub use design::Design;
pub use federation::Federation;
pub use gaussian::{Gaussian, Isotropic};
pub use glm::{Family, Glm};
pub use likelihood::{Likelihood, Rowwise};
pub use member::{Member, Unusable};
pub use plain::Plain;
pub use prior::Prior;
pub(crate) use prior::{accumulate_difference, accumulate_gradient};
pub use real::{Arithmetic, Real};
pub use rebalanced::{Rebalanced, Surrogate};
pub use single::Single;
pub use softmax::Softmax;
pub use whitened::{Coordinates, Whitened};

use std::sync::Arc;

use thiserror::Error;

use crate::ask::{Ask, Sum, Walk};
use crate::rng::ClientId;
use crate::simd::LANES;
use crate::step::langevin_scaled;

/// Which of a client's rows a sum runs over.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// All of them.
    All,
    /// These, in ascending order.
    Some(&'a [u32]),
}

impl Rows<'_> {
    /// How many rows these are of a client that has `all`.
    pub fn count(&self, all: usize) -> usize {
        match self {
            Rows::All => all,
            Rows::Some(rows) => rows.len(),
        }
    }

    /// The rows in ascending order, eight at a time. A loop over them is part of the kernel that it
    /// stands in, as a closure would not be.
    #[inline(always)]
    fn blocks(&self, all: usize) -> impl Iterator<Item = Block> {
        let count = self.count(all);
        (0..count).step_by(LANES).map(move |start| {
            let len = LANES.min(count - start);
            let mut rows = [0; LANES];
            for (k, row) in rows[..len].iter_mut().enumerate() {
                *row = match self {
                    Rows::All => start + k,
                    Rows::Some(rows) => rows[start + k] as usize,
                };
            }
            Block { rows, len }
        })
    }
}

/// Up to eight rows.
struct Block {
    rows: [usize; LANES],
    len: usize,
}

impl std::ops::Deref for Block {
    type Target = [usize];

    #[inline(always)]
    fn deref(&self) -> &[usize] {
        &self.rows[..self.len]
    }
}

/// What the rows of one client know, or those of all clients of a process. It is built once, says
/// what it is, and is shared by chains on several threads; whatever asks it has an [`Evaluator`].
///
/// A model of one client's rows is simplest written as a [`Likelihood`]: every likelihood is a
/// model.
pub trait Model: Send + Sync + std::fmt::Debug {
    /// How many parameters there are.
    fn dim(&self) -> usize;

    /// How many clients it knows the rows of.
    fn clients(&self) -> usize {
        1
    }

    /// How many rows there are, of all its clients together.
    fn rows(&self) -> usize;

    /// How many rows a client has.
    fn rows_of(&self, _client: ClientId) -> usize {
        self.rows()
    }

    /// What it can be asked, and what may be known of the answers beforehand.
    fn offers(&self) -> Offers;

    /// What answers: with memory of its own, for one thread.
    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator>;

    /// Do work that asks many times on one thread: what it costs to be there, in another
    /// language's interpreter say, is paid once.
    fn host(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }

    /// A Lipschitz constant of `grad U_ij`, the same for every `x`; not a number where nobody
    /// knows one.
    fn row_smoothness(&self, _row: usize) -> f64 {
        f64::NAN
    }

    /// The rows' gradients as affine maps, where they are such: what the exact laws are computed
    /// from.
    fn quadratic(&self) -> Option<Quadratic> {
        None
    }

    /// The rows' labels and their probabilities, where the response is one of several classes.
    fn classifier(&self) -> Option<&dyn Classifier> {
        None
    }
}

/// Answers what is asked of a model's rows. It may remember whatever saves work, but no answer
/// depends on what was asked before: it is never part of a snapshot.
pub trait Evaluator: Send + std::fmt::Debug {
    /// Answer all of these: add the sums over rows, and nothing of the prior. What one ask is
    /// answered does not depend on who else is in the list, bit for bit. Only what
    /// [`Model::offers`] says is asked for.
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError>;

    /// Take the steps of all of these. A faster way than this one, a gradient for each step, must
    /// end in the same places, bit for bit.
    fn walk(&mut self, walks: &mut [Walk<'_>]) -> Result<(), EvaluationError> {
        for walk in walks {
            let d = walk.x.len();
            for k in 0..walk.steps() as usize {
                let noise = (walk.noise.0, &walk.noise.1[k * d..(k + 1) * d]);
                let sum = match walk.control {
                    Some((z, base)) => {
                        walk.drift.copy_from_slice(base);
                        Sum::Difference { x: walk.x, z }
                    }
                    None => {
                        walk.drift.fill(0.0);
                        Sum::Gradient { x: walk.x }
                    }
                };
                let (client, scale, out) = (walk.client, walk.scale, &mut *walk.drift);
                self.answer(&mut [Ask { client, sum, rows: Rows::All, scale, out }])?;
                let drift = (walk.weight, &*walk.drift);
                langevin_scaled(walk.x, walk.step, walk.temperature, drift, noise);
            }
        }
        Ok(())
    }
}

/// What a model can be asked beside gradients and their differences, and what is known of its
/// answers. What it cannot do it does not offer: the sampler that needs it is refused by name when
/// a plan is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offers {
    /// Values of the potential, with its gradient or alone.
    pub values: bool,
    /// Products of the Hessian with vectors, and the Hessian.
    pub hessians: bool,
    /// The relative error of a coordinate of a gradient: some 1e-7 where a model computes with 32
    /// bits.
    pub resolution: f64,
    /// Whether a difference of gradients has the same bits for any rows, as long as they are
    /// equally many: nobody need draw them then.
    pub differences_ignore_rows: bool,
    /// Whether [`Evaluator::walk`] is faster than a gradient for each step.
    pub walks: bool,
}

impl Default for Offers {
    /// Gradients and their differences alone, to the last bit.
    fn default() -> Self {
        Offers {
            values: false,
            hessians: false,
            resolution: f64::EPSILON,
            differences_ignore_rows: false,
            walks: false,
        }
    }
}

/// Why a model gave no answer; the cause is the model's own, a Python exception say.
#[derive(Debug, Error)]
#[error("the model cannot be evaluated: {0}")]
pub struct EvaluationError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// A client whose rows each have one of several labels.
pub trait Classifier: Send + Sync {
    /// How many labels there are.
    fn classes(&self) -> usize;

    /// The label of a row.
    fn label(&self, row: usize) -> usize;

    /// `out += scale * P(label | row, x)` for every row and label, row by row.
    fn add_probabilities(&self, x: &[f64], scale: f64, out: &mut [f64]);
}

/// A client whose row gradients are affine: `grad U_ij(x) = H_j x - r_j`. Matrices are row-major.
#[derive(Clone, Debug)]
pub struct Quadratic {
    /// `sum_j H_j`, d x d.
    pub precision: Vec<f64>,
    /// `sum_j r_j`, d.
    pub shift: Vec<f64>,
    /// How the rows differ from their mean.
    pub spread: Spread,
}

/// How affine row gradients differ between the rows of one client.
#[derive(Clone, Debug)]
pub enum Spread {
    /// One row, or rows that are all alike.
    None,
    /// All `H_j` are equal; this is `sum_j (r_j - mean r)(r_j - mean r)'`, d x d.
    Shifts(Vec<f64>),
    /// Row by row `H_j` (d x d) and `r_j` (d).
    Rows(Vec<(Vec<f64>, Vec<f64>)>),
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rng::{ClientId, Purpose, Seed};

    /// Standard normals for test data.
    pub(crate) fn normals(address: u64, n: usize) -> Vec<f64> {
        let mut z = vec![0.0; n];
        Seed::new(77).stream(Purpose::Data, ClientId(0), address).normals(&mut z);
        z
    }

    /// One of each model, with three or more parameters and rows that differ.
    pub(crate) fn zoo() -> Vec<Arc<dyn Model>> {
        let (rows, dim) = (13, 3);
        let dense = || Design::dense(normals(1, rows * dim), dim).unwrap();
        let sparse = || {
            Design::sparse(
                (0..rows).map(|j| vec![(j as u32 % 3, 0.5 + j as f64), (3 + (j as u32 % 2), -1.0)]),
                5,
            )
            .unwrap()
        };
        let binary: Vec<f64> = (0..rows).map(|j| f64::from(u8::from(j % 3 == 0))).collect();
        let binary_again = binary.clone();
        let coordinates = || {
            Arc::new(
                Coordinates::whitening(
                    &[0.2, -0.1, 0.4],
                    &[2.0, 0.3, 0.1, 0.3, 1.0, -0.2, 0.1, -0.2, 3.0],
                )
                .unwrap(),
            )
        };
        let classes: Vec<u32> = (0..rows as u32).map(|j| j % 4).collect();
        let surrogate = |precision: [f64; 3], shift: [f64; 3]| Surrogate {
            precision: precision.to_vec(),
            shift: shift.to_vec(),
        };
        let (own, whole) = (
            surrogate([2.0, 0.5, 1.0], [0.3, -2.0, 1.5]),
            surrogate([5.0, 3.0, 2.5], [-1.0, 0.5, 4.0]),
        );
        let rebalanced = |inner| Rebalanced::new(inner, &own, 0.3, &whole);
        vec![
            Arc::new(
                Gaussian::new(
                    vec![1.0, -2.0, 0.5],
                    vec![2.0, 0.3, 0.1, 0.3, 1.0, -0.2, 0.1, -0.2, 3.0],
                )
                .unwrap(),
            ),
            Arc::new(Isotropic::new(normals(2, rows * dim), dim).unwrap()),
            Arc::new(
                Glm::new(dense(), normals(3, rows), Family::Gaussian { variance: 0.7 }).unwrap(),
            ),
            Arc::new(
                Glm::new(sparse(), normals(4, rows), Family::Gaussian { variance: 2.0 }).unwrap(),
            ),
            Arc::new(Glm::new(dense(), binary.clone(), Family::Bernoulli).unwrap()),
            Arc::new(Glm::new(sparse(), binary, Family::Bernoulli).unwrap()),
            Arc::new(Softmax::new(dense(), classes.clone(), 4).unwrap()),
            Arc::new(Softmax::new(sparse(), classes, 4).unwrap()),
            Arc::new(Whitened::new(
                Arc::new(Glm::new(dense(), binary_again, Family::Bernoulli).unwrap()),
                Prior::gaussian(0.5, 3).unwrap(),
                vec![0.3],
                coordinates(),
            )),
            Arc::new(Whitened::new(
                Arc::new(Isotropic::new(normals(2, rows * dim), dim).unwrap()),
                Prior::gaussian(0.5, 3).unwrap(),
                vec![0.3],
                coordinates(),
            )),
            Arc::new(Whitened::new(
                Arc::new(
                    Glm::new(dense(), normals(3, rows), Family::Gaussian { variance: 0.7 })
                        .unwrap(),
                ),
                Prior::gaussian(0.5, 3).unwrap(),
                vec![0.3],
                coordinates(),
            )),
            Arc::new(rebalanced(Arc::new(Isotropic::new(normals(2, rows * dim), dim).unwrap()))),
            Arc::new(rebalanced(Arc::new(
                Glm::new(dense(), normals(3, rows), Family::Gaussian { variance: 0.7 }).unwrap(),
            ))),
        ]
    }

    fn gradient(model: &Arc<dyn Model>, x: &[f64], rows: Rows<'_>) -> Vec<f64> {
        let mut out = vec![0.0; model.dim()];
        Single::new(model).add_gradient(x, rows, 1.0, &mut out);
        out
    }

    fn difference(model: &Arc<dyn Model>, x: &[f64], z: &[f64], rows: Rows<'_>) -> Vec<f64> {
        let mut out = vec![0.0; model.dim()];
        Single::new(model).add(Sum::Difference { x, z }, rows, 1.0, &mut out);
        out
    }

    #[test]
    fn gradients_are_the_finite_differences_of_values() {
        for model in zoo() {
            let d = model.dim();
            let x = normals(5, d);
            let exact = gradient(&model, &x, Rows::All);
            let mut single = Single::new(&model);
            for k in 0..d {
                let h = 1e-5;
                let mut moved = |by: f64| {
                    let mut at = x.clone();
                    at[k] += by;
                    single.value(&at)
                };
                // Fourth order, so that truncation (1e-20) and rounding (1e-10) both stay far below
                // a wrong term.
                let numeric = (8.0 * (moved(h) - moved(-h)) - (moved(2.0 * h) - moved(-2.0 * h)))
                    / (12.0 * h);
                assert!(
                    (numeric - exact[k]).abs() < 1e-7 * (1.0 + exact[k].abs()),
                    "{model:?} coordinate {k}: {numeric} is not {}",
                    exact[k]
                );
            }
        }
    }

    #[test]
    fn hessian_products_are_the_finite_differences_of_gradients() {
        for model in zoo() {
            let d = model.dim();
            let (x, v) = (normals(6, d), normals(7, d));
            let mut exact = vec![0.0; d];
            Single::new(&model).add_hessian_vector(&x, &v, 1.0, &mut exact);
            let h = 1e-5;
            let at = |by: f64| {
                gradient(
                    &model,
                    &x.iter().zip(&v).map(|(a, b)| a + by * b).collect::<Vec<_>>(),
                    Rows::All,
                )
            };
            let (plus, minus) = (at(h), at(-h));
            for k in 0..d {
                let numeric = (plus[k] - minus[k]) / (2.0 * h);
                assert!(
                    (numeric - exact[k]).abs() < 1e-6 * (1.0 + exact[k].abs()),
                    "{model:?} coordinate {k}"
                );
            }
        }
    }

    #[test]
    fn rows_add_up_to_the_whole() {
        for model in zoo() {
            let x = normals(8, model.dim());
            let every: Vec<u32> = (0..model.rows() as u32).collect();
            let whole = gradient(&model, &x, Rows::All);
            assert_eq!(
                gradient(&model, &x, Rows::Some(&every)),
                whole,
                "all rows by index are all rows, bit for bit: {model:?}"
            );
            let mut sum = vec![0.0; model.dim()];
            for row in every {
                crate::linalg::add_scaled(1.0, &gradient(&model, &x, Rows::Some(&[row])), &mut sum);
            }
            for (a, b) in sum.iter().zip(&whole) {
                assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()));
            }
        }
    }

    #[test]
    fn differences_are_differences_and_vanish_exactly() {
        for model in zoo() {
            let (x, z) = (normals(9, model.dim()), normals(10, model.dim()));
            let rows: Vec<u32> = (0..model.rows() as u32).step_by(2).collect();
            let mut twice = vec![0.0; model.dim()];
            let mut single = Single::new(&model);
            single.add(Sum::Difference { x: &x, z: &z }, Rows::Some(&rows), 2.0, &mut twice);
            let (at_x, at_z) =
                (gradient(&model, &x, Rows::Some(&rows)), gradient(&model, &z, Rows::Some(&rows)));
            for k in 0..model.dim() {
                assert!(
                    (twice[k] - 2.0 * (at_x[k] - at_z[k])).abs()
                        < 1e-12 * (1.0 + at_x[k].abs() + at_z[k].abs()),
                    "{model:?}"
                );
            }
            let mut nothing = vec![0.0; model.dim()];
            single.add(Sum::Difference { x: &x, z: &x }, Rows::All, 3.0, &mut nothing);
            assert!(nothing.iter().all(|v| *v == 0.0), "{model:?}");
        }
    }

    #[test]
    fn who_ignores_rows_says_so() {
        let mut seen = 0;
        for model in zoo() {
            let (x, z) = (normals(9, model.dim()), normals(10, model.dim()));
            let of = |row: u32| difference(&model, &x, &z, Rows::Some(&[row]));
            let alike = (1..model.rows() as u32).all(|row| of(row) == of(0));
            let ignored = model.offers().differences_ignore_rows;
            assert!(model.rows() == 1 || alike == ignored, "{model:?}");
            seen += usize::from(ignored);
        }
        assert!(seen > 0);
    }

    /// Everything that can be asked, at one point and at several, of all rows and of some.
    fn sums<'a>(x: &'a [f64], z: &'a [f64], spread: &'a [f64], d: usize) -> Vec<Sum<'a>> {
        vec![
            Sum::Value { x },
            Sum::Value { x: &x[..d] },
            Sum::Gradient { x },
            Sum::Gradient { x: &x[d..2 * d] },
            Sum::Difference { x, z },
            Sum::Difference { x: &x[..d], z: &z[d..2 * d] },
            Sum::GradientAndValue { x: &x[..d] },
            Sum::HessianVector { x: &x[..d], v: &z[..d] },
            Sum::Hessian { x: &x[d..2 * d] },
            Sum::Average { x: &x[..d], spread },
        ]
    }

    /// Grouping changes no bit: what is asked alone of a fresh evaluator, and in shuffled lists of
    /// one that has been asked other things, has the same answer; so have several points at once
    /// and each of them.
    #[test]
    fn an_answer_does_not_depend_on_who_else_asks_nor_on_what_was_asked_before() {
        let client = ClientId(0);
        for model in zoo() {
            let (d, offers) = (model.dim(), model.offers());
            assert!(offers.values && offers.hessians, "a model of this house offers all");
            let (x, z) = (normals(20, 3 * d), normals(21, 3 * d));
            let spread: Vec<f64> = normals(23, d * d).iter().map(|a| 0.3 * a).collect();
            let some: Vec<u32> = (0..model.rows() as u32).step_by(3).collect();
            let list: Vec<(Sum<'_>, Rows<'_>)> = [Rows::All, Rows::Some(&some)]
                .into_iter()
                .flat_map(|rows| sums(&x, &z, &spread, d).into_iter().map(move |sum| (sum, rows)))
                .collect();
            let room = |sum: &Sum<'_>| vec![0.25; sum.points().len() / d * sum.width(d)];
            let alone: Vec<Vec<f64>> = list
                .iter()
                .map(|(sum, rows)| {
                    let mut out = room(sum);
                    Single::new(&model).add(*sum, *rows, 1.7, &mut out);
                    let mut each = room(sum);
                    for (k, out) in each.chunks_exact_mut(sum.width(d)).enumerate() {
                        Single::new(&model).add(sum.at(k, d), *rows, 1.7, out);
                    }
                    assert_eq!(out, each, "{model:?}: {sum:?}");
                    out
                })
                .collect();
            let mut evaluator = Arc::clone(&model).evaluator();
            for shift in 0..list.len() {
                let mut outs: Vec<Vec<f64>> = list.iter().map(|(sum, _)| room(sum)).collect();
                let mut asks: Vec<Ask<'_>> = list
                    .iter()
                    .zip(&mut outs)
                    .map(|(&(sum, rows), out)| Ask { client, sum, rows, scale: 1.7, out })
                    .collect();
                asks.rotate_left(shift);
                asks.swap(0, 2 * shift % list.len());
                evaluator.answer(&mut asks).unwrap();
                assert_eq!(outs, alone, "{model:?}");
            }
        }
    }

    #[test]
    fn hessians_are_their_products_with_unit_vectors_and_values_add_up() {
        for model in zoo() {
            let (d, n) = (model.dim(), model.rows() as u32);
            let x = normals(22, d);
            let mut single = Single::new(&model);
            let mut whole = vec![0.0; d * d];
            single.add(Sum::Hessian { x: &x }, Rows::All, 2.0, &mut whole);
            let (mut parts, mut value) = (vec![0.0; d * d], [0.0]);
            for row in 0..n {
                single.add(Sum::Hessian { x: &x }, Rows::Some(&[row]), 2.0, &mut parts);
                single.add(Sum::Value { x: &x }, Rows::Some(&[row]), 1.0, &mut value);
            }
            let all = single.value(&x);
            assert!((value[0] - all).abs() < 1e-12 * (1.0 + all.abs()), "{model:?}");
            for k in 0..d {
                let (mut unit, mut column) = (vec![0.0; d], vec![0.0; d]);
                unit[k] = 2.0;
                single.add_hessian_vector(&x, &unit, 1.0, &mut column);
                for j in 0..d {
                    let near = |a: f64| (a - column[j]).abs() < 1e-11 * (1.0 + column[j].abs());
                    assert!(
                        near(whole[k * d + j]) && near(whole[j * d + k]) && near(parts[k * d + j]),
                        "{model:?}"
                    );
                }
            }
        }
    }

    /// Averages are the means over the law, here over 8,000 points in pairs: the error of such a
    /// mean is a hundredth of what the gradients spread, and less for those that are nearly linear;
    /// where they are affine both are exact. Models that take 64 points are within a tenth. (The
    /// law is no wider than posteriors are: predictors of the widest row spread by about 2.)
    #[test]
    fn averages_are_the_means_over_the_law() {
        for model in zoo() {
            let d = model.dim();
            let (mean, mut single) = (normals(24, d), Single::new(&model));
            let spread: Vec<f64> = normals(25, d * d).iter().map(|a| 0.08 * a).collect();
            let mut found = vec![0.0; d + d * d];
            single.add(Sum::Average { x: &mean, spread: &spread }, Rows::All, 1.0, &mut found);
            let (mut exact, n) = (vec![0.0; d + d * d], 8000);
            for k in 0..n / 2 {
                let z = normals(100 + k, d);
                for side in [1.0, -1.0] {
                    let mut x = mean.clone();
                    for (column, z) in spread.chunks_exact(d).zip(&z) {
                        crate::linalg::add_scaled(side * z, column, &mut x);
                    }
                    let (gradient, hessian) = exact.split_at_mut(d);
                    single.add_gradient(&x, Rows::All, 1.0 / n as f64, gradient);
                    single.add(Sum::Hessian { x: &x }, Rows::All, 1.0 / n as f64, hessian);
                }
            }
            let size = exact.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            let by_points = format!("{model:?}").contains("Softmax");
            let bound = if by_points { 0.1 } else { 0.01 } * size;
            for (found, exact) in found.iter().zip(&exact) {
                assert!((found - exact).abs() < bound, "{found} is not {exact}: {model:?}");
            }
        }
    }

    /// A walk by an evaluator's own way ends where a gradient for each step leads, bit for bit.
    #[test]
    fn a_walk_is_its_steps() {
        let mut own = 0;
        let mut models = zoo();
        for d in [8, 13, 24, 25] {
            let z = normals(30, d * d + d);
            let entry = |k: usize| {
                0.1 * (z[k] + z[k % d * d + k / d])
                    + if k.is_multiple_of(d + 1) { 8.0 } else { 0.0 }
            };
            let precision = (0..d * d).map(entry).collect();
            models.push(Arc::new(Gaussian::new(z[d * d..].to_vec(), precision).unwrap()));
        }
        for model in models {
            let d = model.dim();
            own += usize::from(model.offers().walks);
            let (start, z, base, noise) =
                (normals(31, d), normals(32, d), normals(33, d), normals(34, 5 * d));
            for control in [None, Some((&z[..], &base[..]))] {
                let walked = |alone: bool| {
                    let mut evaluator = Arc::clone(&model).evaluator();
                    let (mut x, mut drift) = (start.clone(), vec![0.0; d]);
                    let walk = Walk {
                        client: ClientId(0),
                        x: &mut x,
                        control,
                        scale: 0.7,
                        weight: 1.3,
                        step: 1e-3,
                        temperature: 0.9,
                        noise: (0.6, &noise),
                        drift: &mut drift,
                    };
                    if alone {
                        Stepwise(evaluator).walk(&mut [walk]).unwrap();
                    } else {
                        evaluator.walk(&mut [walk]).unwrap();
                    }
                    x
                };
                assert_eq!(walked(false), walked(true), "{model:?}");
                assert_ne!(walked(false), start);
            }
        }
        assert_eq!(own, 3, "Gaussians of 8, 13 and 24 parameters walk by themselves");
    }

    /// An evaluator without a walk of its own.
    #[derive(Debug)]
    struct Stepwise(Box<dyn Evaluator>);

    impl Evaluator for Stepwise {
        fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
            self.0.answer(asks)
        }
    }

    #[test]
    fn row_smoothness_bounds_every_row() {
        for model in zoo() {
            let (x, z) = (normals(11, model.dim()), normals(12, model.dim()));
            let moved = crate::linalg::norm_squared(
                &x.iter().zip(&z).map(|(a, b)| a - b).collect::<Vec<_>>(),
            )
            .sqrt();
            for row in 0..model.rows() {
                let out = difference(&model, &x, &z, Rows::Some(&[row as u32]));
                let ratio = crate::linalg::norm_squared(&out).sqrt() / moved;
                assert!(
                    ratio <= model.row_smoothness(row) * (1.0 + 1e-12),
                    "{model:?} row {row}: {ratio}"
                );
            }
        }
    }

    #[test]
    fn a_classifier_gives_the_labels_the_probabilities_that_the_potential_has() {
        let mut found = 0;
        for model in zoo() {
            let Some(classifier) = model.classifier() else { continue };
            let classes = classifier.classes();
            // small, so that no probability is lost beside 1
            let x: Vec<f64> = normals(5, model.dim()).iter().map(|z| 0.1 * z).collect();
            let mut all = vec![0.5; model.rows() * classes];
            classifier.add_probabilities(&x, 2.0, &mut all);
            let row = |row: usize| {
                all[row * classes..(row + 1) * classes]
                    .iter()
                    .map(|p| (p - 0.5) / 2.0)
                    .collect::<Vec<f64>>()
            };
            assert!((0..model.rows()).all(|j| (row(j).iter().sum::<f64>() - 1.0).abs() < 1e-12));
            let minus_log: f64 = (0..model.rows()).map(|j| -row(j)[classifier.label(j)].ln()).sum();
            assert!((minus_log - Single::new(&model).value(&x)).abs() < 1e-9, "{model:?}");
            found += 1;
        }
        assert!(found >= 2);
    }

    #[test]
    fn quadratic_forms_give_the_gradients_back() {
        let mut seen = 0;
        for model in zoo() {
            let Some(form) = model.quadratic() else { continue };
            seen += 1;
            let d = model.dim();
            let x = normals(13, d);
            let affine = |h: &[f64], r: &[f64]| {
                (0..d)
                    .map(|i| crate::linalg::dot(&h[i * d..(i + 1) * d], &x) - r[i])
                    .collect::<Vec<_>>()
            };
            let close = |a: &[f64], b: &[f64]| {
                a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12 * (1.0 + b.abs()))
            };
            assert!(
                close(&affine(&form.precision, &form.shift), &gradient(&model, &x, Rows::All)),
                "{model:?}"
            );
            if let Spread::Rows(rows) = &form.spread {
                for (row, (h, r)) in rows.iter().enumerate() {
                    assert!(
                        close(&affine(h, r), &gradient(&model, &x, Rows::Some(&[row as u32]))),
                        "{model:?} row {row}"
                    );
                }
            }
            if let Spread::Shifts(sum) = &form.spread {
                let mean: Vec<f64> = gradient(&model, &x, Rows::All)
                    .iter()
                    .map(|g| g / model.rows() as f64)
                    .collect();
                let mut direct = vec![0.0; d * d];
                for row in 0..model.rows() {
                    let g = gradient(&model, &x, Rows::Some(&[row as u32]));
                    for i in 0..d {
                        for j in 0..d {
                            direct[i * d + j] += (g[i] - mean[i]) * (g[j] - mean[j]);
                        }
                    }
                }
                assert!(close(&direct, sum), "{model:?}");
            }
        }
        assert_eq!(seen, 8);
    }
}
