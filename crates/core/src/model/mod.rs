//! Say what a client knows: the potential of its own rows, and its derivatives.

mod abreast;
mod absent;
mod adjustment;
mod by_gradients;
mod coded;
pub mod contract;
mod cox;
mod design;
mod dual;
mod extended;
mod federation;
mod fixed;
mod gaussian;
mod glm;
mod group_effects;
mod incomplete;
mod indicators;
mod law;
mod likelihood;
mod member;
pub mod net;
mod panel;
mod plain;
mod prior;
mod real;
mod rebalanced;
mod regression;
mod single;
mod softmax;
mod symmetric;
mod transform;
mod whitened;

pub use abreast::{Abreast, Lanes};
pub use absent::Absent;
pub use adjustment::Adjustment;
pub use by_gradients::ByGradients;
pub use cox::Cox;
pub use design::Design;
pub use extended::{Extended, ExtendedLoss, MOST_BESIDE, Unextended, settled};
pub use federation::ClientModels;
pub use gaussian::{Gaussian, Isotropic};
pub use glm::{GAUSS_HERMITE, Glm, GlmFamily};
pub use group_effects::{DrawEffects, GroupEffects, Varying};
pub use incomplete::{ABSENT, Incomplete, Lacking};
pub use law::{Law, Laws};
pub use likelihood::{Likelihood, Rowwise};
pub use member::{Member, Unusable};
pub use net::Net;
pub use plain::Plain;
pub use prior::Prior;
pub(crate) use prior::{accumulate_difference, accumulate_gradient};
pub use real::{Arithmetic, Real};
pub use rebalanced::{Rebalanced, Surrogate};
pub use regression::{PointLoss, Regression};
pub use single::Single;
pub use softmax::Softmax;
pub use transform::{Transform, Transforms};
pub use whitened::{Coordinates, MOST_DIRECTIONS, Whitened};

use std::sync::Arc;

use thiserror::Error;

use crate::ask::Ask;
use crate::rng::ClientId;
use crate::simd::LANES;
use crate::threads::Threads;
use crate::walk::{Walk, WalkRoom, step_by_step};

/// How large one row of a model can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowReach {
    /// The norm of its gradient, at any parameters.
    pub gradient: f64,
    /// Its loss where all parameters are 0.
    pub loss: f64,
}

impl RowReach {
    /// The same, rounded up to powers of two: what it says of a single row is no more than needed.
    pub fn rounded_up(self) -> RowReach {
        let up = |value: f64| {
            let below = f64::from_bits(value.to_bits() & (0x7FF << 52));
            if below < value { 2.0 * below } else { value }
        };
        RowReach { gradient: up(self.gradient), loss: up(self.loss) }
    }

    /// Whether these can be bounds of a row.
    pub fn is_plausible(self) -> bool {
        let fits = |value: f64| value.is_finite() && value >= 0.0;
        fits(self.gradient) && fits(self.loss)
    }
}

/// How large a model can be at one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    /// The absolute value of its value.
    pub value: f64,
    /// The norm of its gradient.
    pub gradient: f64,
}

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

    /// Whether these are the same rows, said in the same place.
    fn is_same(&self, other: Rows<'_>) -> bool {
        match (self, other) {
            (Rows::All, Rows::All) => true,
            (Rows::Some(a), Rows::Some(b)) => std::ptr::eq(*a, b),
            _ => false,
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

    /// How large one row can be, whatever the parameters are, where that has a bound.
    fn row_reach(&self) -> Option<RowReach> {
        None
    }

    /// How large value and gradient can be at `x`, where somebody has said how large a row can be:
    /// for models whose rows are elsewhere.
    fn reach(&self, _x: &[f64]) -> Option<Reach> {
        None
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

    /// The net, where the model is one: for whoever takes its steps elsewhere.
    fn net(&self) -> Option<&Net> {
        None
    }

    /// The rows themselves, where they are the rows of a regression on one predictor.
    fn observed(&self) -> Option<&dyn RegressionRows> {
        None
    }
}

/// The rows of a regression: features and a response each.
pub trait RegressionRows {
    /// How many features a row has: the first so many parameters are their coefficients.
    fn columns(&self) -> usize;

    /// The features of a row into `out`; the response is returned.
    fn row(&self, row: usize, out: &mut [f64]) -> f64;
}

/// Answers what is asked of a model's rows. It may remember whatever saves work, but no answer
/// depends on what was asked before: it is never part of a snapshot.
pub trait Evaluator: Send + std::fmt::Debug {
    /// Answer all of these: add the sums over rows, and nothing of the prior. What one ask is
    /// answered does not depend on who else is in the list, bit for bit. Only what
    /// [`Model::offers`] says is asked for.
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError>;

    /// Take the steps of all of these walks. A faster way than this one, a gradient for each step,
    /// must end in the same places, bit for bit.
    fn walk(&mut self, walks: &mut [Walk<'_>], room: &mut WalkRoom) -> Result<(), EvaluationError> {
        step_by_step(self, walks, room)
    }

    /// Take two walks of two clients, the second by the other's evaluator: this or a faster way,
    /// which must end in the same places, bit for bit.
    fn walk_two(
        &mut self,
        walk: &mut Walk<'_>,
        (other, beside): (&mut dyn Evaluator, &mut Walk<'_>),
        room: &mut WalkRoom,
    ) -> Result<(), EvaluationError> {
        self.walk(std::slice::from_mut(walk), room)?;
        other.walk(std::slice::from_mut(beside), room)
    }

    /// Scratch memory that evaluators of one process may lend each other between calls, if it is so
    /// large that each had better not keep its own: no state.
    fn scratch(&mut self) -> Option<&mut Vec<f64>> {
        None
    }

    /// Until this is called again, differences are from one reference point, whose number this is:
    /// nobody need compare it with the last one. A point that moves gets another number.
    fn refer_to(&mut self, _number: u64) {}

    /// This evaluator, for another of its type that takes a walk beside it.
    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        None
    }

    /// The threads that copy what goes to and fro, where what is asked is far away, on a GPU say.
    fn threads(&self) -> Option<&'static dyn Threads> {
        None
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
    /// Whether asks about the same rows are answered faster together than one after the other:
    /// chains of one process then go on side by side.
    pub together: bool,
}

impl Default for Offers {
    /// Gradients and their differences alone, to the last bit.
    fn default() -> Self {
        Offers {
            values: false,
            hessians: false,
            resolution: f64::EPSILON,
            differences_ignore_rows: false,
            together: false,
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
    use super::regression::tests::Bernoulli;
    use super::*;
    use crate::rng::{Purpose, Seed};

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
                Glm::new(dense(), normals(3, rows), GlmFamily::Gaussian { variance: 0.7 }).unwrap(),
            ),
            Arc::new(
                Glm::new(sparse(), normals(4, rows), GlmFamily::Gaussian { variance: 2.0 })
                    .unwrap(),
            ),
            Arc::new(Glm::new(dense(), binary.clone(), GlmFamily::Bernoulli).unwrap()),
            Arc::new(Glm::new(sparse(), binary, GlmFamily::Bernoulli).unwrap()),
            Arc::new(Regression::new(dense(), binary_again.clone(), Bernoulli).unwrap()),
            Arc::new(Softmax::new(dense(), classes.clone(), 4).unwrap()),
            Arc::new(Softmax::new(sparse(), classes, 4).unwrap()),
            Arc::new(Whitened::new(
                Arc::new(Glm::new(dense(), binary_again, GlmFamily::Bernoulli).unwrap()),
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
                    Glm::new(dense(), normals(3, rows), GlmFamily::Gaussian { variance: 0.7 })
                        .unwrap(),
                ),
                Prior::gaussian(0.5, 3).unwrap(),
                vec![0.3],
                coordinates(),
            )),
            Arc::new(rebalanced(Arc::new(Isotropic::new(normals(2, rows * dim), dim).unwrap()))),
            Arc::new(rebalanced(Arc::new(
                Glm::new(dense(), normals(3, rows), GlmFamily::Gaussian { variance: 0.7 }).unwrap(),
            ))),
        ]
    }

    fn gradient(model: &Arc<dyn Model>, x: &[f64], rows: Rows<'_>) -> Vec<f64> {
        let mut out = vec![0.0; model.dim()];
        Single::new(model).add_gradient(x, rows, 1.0, &mut out);
        out
    }

    /// Whether each model of the zoo keeps a promise, and of how many it says anything.
    fn kept(models: &[Arc<dyn Model>], promise: contract::Promise) -> usize {
        let keeps = |model: &Arc<dyn Model>| {
            promise(model).unwrap_or_else(|broken| panic!("{broken}: {model:?}"))
        };
        models.iter().filter(|model| keeps(model)).count()
    }

    #[test]
    fn gradients_are_the_finite_differences_of_values() {
        assert_eq!(kept(&zoo(), contract::gradients), zoo().len(), "our models offer all");
    }

    #[test]
    fn hessian_products_are_the_finite_differences_of_gradients() {
        assert_eq!(kept(&zoo(), contract::hessian_products), zoo().len(), "our models offer all");
    }

    #[test]
    fn rows_add_up_to_the_whole() {
        kept(&zoo(), contract::rows_add_up);
    }

    #[test]
    fn differences_are_differences_and_vanish_exactly() {
        kept(&zoo(), contract::differences);
    }

    #[test]
    fn who_ignores_rows_says_so() {
        assert!(kept(&zoo(), contract::rows_ignored) > 0);
    }

    #[test]
    fn an_answer_does_not_depend_on_who_else_asks_nor_on_what_was_asked_before() {
        kept(&zoo(), contract::grouping);
    }

    #[test]
    fn hessians_are_their_products_with_unit_vectors_and_values_add_up() {
        kept(&zoo(), contract::hessians);
    }

    #[test]
    fn averages_are_the_means_over_the_law() {
        let by_points = |model: &Arc<dyn Model>| format!("{model:?}").contains("Softmax");
        let (coarse, fine): (Vec<_>, Vec<_>) = zoo().into_iter().partition(by_points);
        kept(&coarse, |model| contract::averages(model, 0.1));
        kept(&fine, |model| contract::averages(model, 0.01));
    }

    #[test]
    fn a_walk_is_its_steps() {
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
        assert_eq!(kept(&models, contract::walks), models.len());
    }

    #[test]
    fn row_smoothness_bounds_every_row() {
        assert_eq!(kept(&zoo(), contract::smoothness), zoo().len(), "all of these have a bound");
    }

    /// Squared distances with a slope that is off by a thousandth.
    #[derive(Clone, Copy, Debug)]
    struct Off;

    impl PointLoss for Off {
        fn loss(&self, t: f64, y: f64) -> f64 {
            0.5 * (t - y) * (t - y)
        }

        fn slope(&self, t: f64, y: f64) -> f64 {
            1.001 * (t - y)
        }

        fn bend(&self, _t: f64, _y: f64) -> f64 {
            1.001
        }
    }

    #[test]
    fn a_model_that_breaks_a_promise_is_told_which() {
        let design = || Design::dense(normals(1, 39), 3).unwrap();
        let family = GlmFamily::Gaussian { variance: 1.0 };
        let sound: Arc<dyn Model> = Arc::new(Glm::new(design(), normals(3, 13), family).unwrap());
        assert_eq!(contract::check(&sound), Ok(()));
        let off: Arc<dyn Model> = Arc::new(Regression::new(design(), normals(3, 13), Off).unwrap());
        let broken = contract::check(&off).unwrap_err();
        assert_eq!(broken.promise, "gradients are the derivatives of values");
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
