//! Say what a client knows: the potential of its own rows, and its derivatives.

mod absent;
mod coded;
mod columns;
mod design;
mod fixed;
mod gaussian;
mod glm;
mod indicators;
mod panel;
mod plain;
mod prior;
mod real;
mod rebalanced;
mod softmax;
mod stroll;
mod whitened;

pub use absent::Absent;
pub use design::Design;
pub use gaussian::{Gaussian, Isotropic};
pub use glm::{Family, Glm};
pub use indicators::Memo;
pub use plain::Plain;
pub use prior::Prior;
pub(crate) use prior::{accumulate_difference, accumulate_gradient};
pub use real::{Arithmetic, Real};
pub use rebalanced::{Rebalanced, Surrogate};
pub use softmax::Softmax;
pub use stroll::{Stroll, Stroller};
pub use whitened::{Coordinates, Whitened};

use crate::simd::LANES;

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

/// `U_i(x) = sum_j U_ij(x)`: the negative log-likelihood of one client's rows.
///
/// Nothing here allocates: `scratch` has at least [`Potential::scratch`] places. It is zeros at
/// first and then one model's own: what that keeps there between calls may save work and changes no
/// answer. Sums over rows run in ascending order, or are exact, so all rows, and the set of all
/// rows, give the same bits.
pub trait Potential: Send + Sync + std::fmt::Debug {
    /// How many parameters there are.
    fn dim(&self) -> usize;

    /// How many rows the client has.
    fn rows(&self) -> usize;

    /// How many places of scratch the other calls need.
    fn scratch(&self) -> usize;

    /// `U_i(x)`.
    fn value(&self, x: &[f64], scratch: &mut [f64]) -> f64;

    /// `out += scale * sum_{j in rows} grad U_ij(x)`.
    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    );

    /// Something that remembers the last point at which all rows were summed, empty at first, for
    /// models that sum faster at a point that differs in few coordinates. It allocates memory once,
    /// when it first remembers something of each row.
    fn memo(&self) -> Option<Box<Memo>> {
        None
    }

    /// What [`Potential::add_gradient`] does with all rows, bit for bit, with the memo of this
    /// model that was there at the calls before.
    fn add_gradient_near(
        &self,
        _memo: &mut Memo,
        x: &[f64],
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.add_gradient(x, Rows::All, scale, out, scratch);
    }

    /// `out += scale * sum_{j in rows} (grad U_ij(x) - grad U_ij(z))`; exactly nothing where `x`
    /// equals `z`.
    fn add_gradient_difference(
        &self,
        x: &[f64],
        z: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    );

    /// `out += scale * hess U_i(x) v`.
    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    );

    /// Whether [`Potential::add_gradient_difference`] gives the same bits for any rows, as long as
    /// they are equally many: nobody need draw them then.
    fn differences_ignore_rows(&self) -> bool {
        false
    }

    /// A faster way to take Langevin steps than by one gradient after the other, if it has one.
    fn stroller(&self) -> Option<&dyn Stroller> {
        None
    }

    /// A Lipschitz constant of `grad U_ij`, the same for every `x`.
    fn row_smoothness(&self, row: usize) -> f64;

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
    pub(crate) fn zoo() -> Vec<Box<dyn Potential>> {
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
            std::sync::Arc::new(
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
            Box::new(
                Gaussian::new(
                    vec![1.0, -2.0, 0.5],
                    vec![2.0, 0.3, 0.1, 0.3, 1.0, -0.2, 0.1, -0.2, 3.0],
                )
                .unwrap(),
            ),
            Box::new(Isotropic::new(normals(2, rows * dim), dim).unwrap()),
            Box::new(
                Glm::new(dense(), normals(3, rows), Family::Gaussian { variance: 0.7 }).unwrap(),
            ),
            Box::new(
                Glm::new(sparse(), normals(4, rows), Family::Gaussian { variance: 2.0 }).unwrap(),
            ),
            Box::new(Glm::new(dense(), binary.clone(), Family::Bernoulli).unwrap()),
            Box::new(Glm::new(sparse(), binary, Family::Bernoulli).unwrap()),
            Box::new(Softmax::new(dense(), classes.clone(), 4).unwrap()),
            Box::new(Softmax::new(sparse(), classes, 4).unwrap()),
            Box::new(Whitened::new(
                std::sync::Arc::new(Glm::new(dense(), binary_again, Family::Bernoulli).unwrap()),
                Prior::gaussian(0.5, 3).unwrap(),
                0.3,
                coordinates(),
            )),
            Box::new(Whitened::new(
                std::sync::Arc::new(Isotropic::new(normals(2, rows * dim), dim).unwrap()),
                Prior::gaussian(0.5, 3).unwrap(),
                0.3,
                coordinates(),
            )),
            Box::new(Whitened::new(
                std::sync::Arc::new(
                    Glm::new(dense(), normals(3, rows), Family::Gaussian { variance: 0.7 })
                        .unwrap(),
                ),
                Prior::gaussian(0.5, 3).unwrap(),
                0.3,
                coordinates(),
            )),
            Box::new(rebalanced(std::sync::Arc::new(
                Isotropic::new(normals(2, rows * dim), dim).unwrap(),
            ))),
            Box::new(rebalanced(std::sync::Arc::new(
                Glm::new(dense(), normals(3, rows), Family::Gaussian { variance: 0.7 }).unwrap(),
            ))),
        ]
    }

    fn gradient(model: &dyn Potential, x: &[f64], rows: Rows<'_>) -> Vec<f64> {
        let mut out = vec![0.0; model.dim()];
        model.add_gradient(x, rows, 1.0, &mut out, &mut vec![0.0; model.scratch()]);
        out
    }

    #[test]
    fn gradients_are_the_finite_differences_of_values() {
        for model in zoo() {
            let d = model.dim();
            let x = normals(5, d);
            let exact = gradient(&*model, &x, Rows::All);
            let mut scratch = vec![0.0; model.scratch()];
            for k in 0..d {
                let h = 1e-5;
                let mut moved = |by: f64| {
                    let mut at = x.clone();
                    at[k] += by;
                    model.value(&at, &mut scratch)
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
            model.add_hessian_vector(&x, &v, 1.0, &mut exact, &mut vec![0.0; model.scratch()]);
            let h = 1e-5;
            let at = |by: f64| {
                gradient(
                    &*model,
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
            let whole = gradient(&*model, &x, Rows::All);
            assert_eq!(
                gradient(&*model, &x, Rows::Some(&every)),
                whole,
                "all rows by index are all rows, bit for bit: {model:?}"
            );
            let mut sum = vec![0.0; model.dim()];
            for row in every {
                crate::linalg::add_scaled(
                    1.0,
                    &gradient(&*model, &x, Rows::Some(&[row])),
                    &mut sum,
                );
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
            let mut scratch = vec![0.0; model.scratch()];
            let mut difference = vec![0.0; model.dim()];
            model.add_gradient_difference(
                &x,
                &z,
                Rows::Some(&rows),
                2.0,
                &mut difference,
                &mut scratch,
            );
            let (at_x, at_z) = (
                gradient(&*model, &x, Rows::Some(&rows)),
                gradient(&*model, &z, Rows::Some(&rows)),
            );
            for k in 0..model.dim() {
                assert!(
                    (difference[k] - 2.0 * (at_x[k] - at_z[k])).abs()
                        < 1e-12 * (1.0 + at_x[k].abs() + at_z[k].abs()),
                    "{model:?}"
                );
            }
            let mut nothing = vec![0.0; model.dim()];
            model.add_gradient_difference(&x, &x, Rows::All, 3.0, &mut nothing, &mut scratch);
            assert!(nothing.iter().all(|v| *v == 0.0), "{model:?}");
        }
    }

    #[test]
    fn who_ignores_rows_says_so() {
        let mut seen = 0;
        for model in zoo() {
            let (x, z) = (normals(9, model.dim()), normals(10, model.dim()));
            let difference = |row: u32| {
                let mut out = vec![0.0; model.dim()];
                model.add_gradient_difference(
                    &x,
                    &z,
                    Rows::Some(&[row]),
                    2.0,
                    &mut out,
                    &mut vec![0.0; model.scratch()],
                );
                out
            };
            let alike = (1..model.rows() as u32).all(|row| difference(row) == difference(0));
            assert!(model.rows() == 1 || alike == model.differences_ignore_rows(), "{model:?}");
            seen += usize::from(model.differences_ignore_rows());
        }
        assert!(seen > 0);
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
                let mut out = vec![0.0; model.dim()];
                model.add_gradient_difference(
                    &x,
                    &z,
                    Rows::Some(&[row as u32]),
                    1.0,
                    &mut out,
                    &mut vec![0.0; model.scratch()],
                );
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
            assert!(
                (minus_log - model.value(&x, &mut vec![0.0; model.scratch()])).abs() < 1e-9,
                "{model:?}"
            );
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
                close(&affine(&form.precision, &form.shift), &gradient(&*model, &x, Rows::All)),
                "{model:?}"
            );
            if let Spread::Rows(rows) = &form.spread {
                for (row, (h, r)) in rows.iter().enumerate() {
                    assert!(
                        close(&affine(h, r), &gradient(&*model, &x, Rows::Some(&[row as u32]))),
                        "{model:?} row {row}"
                    );
                }
            }
            if let Spread::Shifts(sum) = &form.spread {
                let mean: Vec<f64> = gradient(&*model, &x, Rows::All)
                    .iter()
                    .map(|g| g / model.rows() as f64)
                    .collect();
                let mut direct = vec![0.0; d * d];
                for row in 0..model.rows() {
                    let g = gradient(&*model, &x, Rows::Some(&[row as u32]));
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
