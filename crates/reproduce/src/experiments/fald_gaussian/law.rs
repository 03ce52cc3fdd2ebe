//! Compute the law of FALD and VR-FALD* with many Gaussian clients, random synchronisation and full
//! gradients.
//!
//! `sampler::exact::stationary` keeps the second moment of all clients together, (b d)^2 numbers,
//! and iterates on it. Here every pair of clients is eliminated in closed form. Coordinates are
//! centred at the posterior mean; `x_c` is client c just before a step, `X` the mean of all, and
//!
//! ```text
//! x_c <- M_c x_c + G_c y + noise,        M_c = I - gamma S_c
//! FALD       y = 1,                      G_c = gamma S_c mu_c
//! VR-FALD*   y the reference point,      G_c = gamma (S_c - mean S)
//! then, with probability p, x_c <- X;    y <- the X before the step, with probability q
//! ```
//!
//! With `C = E[X X']`, `Y_c = E[x_c y']` and `K = E[y y']` given, stationarity is one Stein
//! equation for each pair,
//! `Q_cd = (1 - p) M_c Q_cd M_d + p C
//!  + (1 - p) (M_c Y_c G_d' + G_c Y_d' M_d + G_c K G_d' + noise)`,
//! which is diagonal in the eigenvectors of `S_c` and `S_d`. What is left is linear in `C` (FALD),
//! or in `E[x_c X']` and `Y_c` (VR-FALD*), and solved by GMRES.

use nalgebra::{DMatrix, DVector};

/// The clients' potentials `(x - mu_c)' S_c (x - mu_c) / 2`, in the eigenvectors of each.
pub struct Clients {
    dim: usize,
    /// The eigenvectors of every `S_c`, and its eigenvalues.
    bases: Vec<DMatrix<f64>>,
    curvatures: Vec<DVector<f64>>,
    precisions: Vec<DMatrix<f64>>,
    mean_precision: DMatrix<f64>,
    /// `S_c (mu_c - x*)`.
    pulls: Vec<DVector<f64>>,
}

/// How clients walk.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// A client's own step, FALD's gamma.
    pub step: f64,
    /// The probability that clients synchronise, and that the reference point moves.
    pub p: f64,
    /// How much of the noise is shared, FALD's tau.
    pub shared: f64,
}

/// The stationary law of the mean of all clients, about the posterior mean.
#[derive(Clone, Debug)]
pub struct Law {
    /// Its mean.
    pub mean: DVector<f64>,
    /// Its second moment.
    pub second: DMatrix<f64>,
}

impl Clients {
    /// Clients with these means and precisions.
    pub fn new(means: &[DVector<f64>], precisions: Vec<DMatrix<f64>>) -> Option<Self> {
        let (dim, b) = (means.first()?.len(), means.len() as f64);
        let sum = precisions.iter().fold(DMatrix::zeros(dim, dim), |sum, s| sum + s);
        let weighted =
            precisions.iter().zip(means).fold(DVector::zeros(dim), |sum, (s, m)| sum + s * m);
        let centre = sum.clone().cholesky()?.solve(&weighted);
        let pulls = precisions.iter().zip(means).map(|(s, m)| s * (m - &centre)).collect();
        let eigen: Vec<_> = precisions.iter().map(|s| s.clone().symmetric_eigen()).collect();
        let bases = eigen.iter().map(|e| e.eigenvectors.clone()).collect();
        let curvatures = eigen.into_iter().map(|e| e.eigenvalues).collect();
        Some(Clients { dim, bases, curvatures, precisions, mean_precision: sum / b, pulls })
    }

    /// The posterior's precision.
    pub fn precision(&self) -> DMatrix<f64> {
        &self.mean_precision * self.count()
    }

    fn count(&self) -> f64 {
        self.bases.len() as f64
    }

    /// The law of FALD; `None` where it has none that is stable.
    pub fn fald(&self, walk: Walk) -> Option<Law> {
        let (d, b, p) = (self.dim, self.count(), walk.p);
        let inputs: Vec<_> = self
            .pulls
            .iter()
            .map(|pull| DMatrix::from_column_slice(d, 1, (pull * walk.step).as_slice()))
            .collect();
        // The mean of a client just before a step is m_c = p m + (1 - p) (M_c m_c + G_c), with m
        // the mean of them.
        let resolvents: Vec<_> =
            (0..self.bases.len()).map(|c| self.resolvent(c, walk.step, 1.0 - p)).collect();
        let average = resolvents.iter().fold(DMatrix::zeros(d, d), |sum, r| sum + r) / b;
        let driven =
            resolvents.iter().zip(&inputs).fold(DMatrix::zeros(d, 1), |sum, (r, g)| sum + r * g)
                * ((1.0 - p) / b);
        let mean = (DMatrix::identity(d, d) - average * p).lu().solve(&driven)?;
        let means: Vec<_> =
            resolvents.iter().zip(&inputs).map(|(r, g)| r * (&mean * p + g * (1.0 - p))).collect();
        let one = DMatrix::identity(1, 1);
        let pairs = Pairs { clients: self, walk, inputs: &inputs };
        let with = |c: &DMatrix<f64>| average_of(&pairs.with_mean(c, &one, &means, true));
        let nothing: Vec<_> = means.iter().map(|m| m * 0.0).collect();
        let without =
            |c: &DMatrix<f64>| average_of(&pairs.with_mean(c, &(&one * 0.0), &nothing, false));
        let second = gmres(|c| c - without(c), &with(&DMatrix::zeros(d, d)))?;
        stable(Law { mean: mean.column(0).into_owned(), second })
    }

    /// The law of VR-FALD*; `None` where it has none that is stable.
    pub fn vr_fald(&self, walk: Walk) -> Option<Law> {
        let (d, b) = (self.dim, self.bases.len());
        let (p, q) = (walk.p, walk.p);
        let inputs: Vec<_> =
            self.precisions.iter().map(|s| (s - &self.mean_precision) * walk.step).collect();
        let pairs = Pairs { clients: self, walk, inputs: &inputs };
        let resolvents: Vec<_> =
            (0..b).map(|c| self.resolvent(c, walk.step, (1.0 - p) * (1.0 - q))).collect();
        let map = |state: &DMatrix<f64>, noise: bool| {
            let block = |k: usize| state.columns(k * d, d).into_owned();
            let with_mean: Vec<_> = (0..b).map(block).collect(); // E[x_c X']
            let with_reference: Vec<_> = (b..2 * b).map(block).collect(); // E[x_c y']
            // E[X X'] = E[y y'], E[X y']
            let (second, cross) = (average_of(&with_mean), average_of(&with_reference));
            let moved = pairs.with_mean(&second, &second, &with_reference, noise);
            let mut out = DMatrix::zeros(d, 2 * b * d);
            for c in 0..b {
                // M_c E[x_c X']
                let walked = &with_mean[c] - &self.precisions[c] * &with_mean[c] * walk.step;
                let renewed = (walked + &inputs[c] * cross.transpose()) * ((1.0 - p) * q);
                let kept = &inputs[c] * &second * ((1.0 - p) * (1.0 - q));
                out.columns_mut(c * d, d).copy_from(&moved[c]);
                out.columns_mut((b + c) * d, d)
                    .copy_from(&(&resolvents[c] * (&cross * p + renewed + kept)));
            }
            out
        };
        let solution =
            gmres(|state| state - map(state, false), &map(&DMatrix::zeros(d, 2 * b * d), true))?;
        let with_mean: Vec<_> = (0..b).map(|c| solution.columns(c * d, d).into_owned()).collect();
        stable(Law { mean: DVector::zeros(d), second: average_of(&with_mean) })
    }

    /// `(I - weight M_c)^-1`.
    fn resolvent(&self, c: usize, step: f64, weight: f64) -> DMatrix<f64> {
        let inverse = self.curvatures[c].map(|s| 1.0 / (1.0 - weight * (1.0 - step * s)));
        &self.bases[c] * DMatrix::from_diagonal(&inverse) * self.bases[c].transpose()
    }
}

fn average_of(list: &[DMatrix<f64>]) -> DMatrix<f64> {
    let sum = list.iter().skip(1).fold(list[0].clone(), |sum, m| sum + m);
    sum / list.len() as f64
}

/// A law whose covariance is one.
fn stable(law: Law) -> Option<Law> {
    let symmetric = (&law.second + law.second.transpose()) * 0.5;
    let covariance = &symmetric - &law.mean * law.mean.transpose();
    covariance.cholesky().map(|_| Law { second: symmetric, ..law })
}

/// All pairs of clients at once.
struct Pairs<'a> {
    clients: &'a Clients,
    walk: Walk,
    /// `G_c`.
    inputs: &'a [DMatrix<f64>],
}

impl Pairs<'_> {
    /// `E[x_c X'] = (1/b) sum_d Q_cd` for every client, from `C`, `K` and every `Y_c`.
    fn with_mean(
        &self,
        c: &DMatrix<f64>,
        k: &DMatrix<f64>,
        ys: &[DMatrix<f64>],
        noise: bool,
    ) -> Vec<DMatrix<f64>> {
        let Clients { dim: d, bases, curvatures, precisions, .. } = self.clients;
        let (d, b, r) = (*d, bases.len(), k.nrows());
        let Walk { step, p, shared } = self.walk;
        let stays = 1.0 - p;
        let variance = if noise { 2.0 * step * stays } else { 0.0 };
        let everywhere = c * p + DMatrix::identity(d, d) * (variance * shared / b as f64);
        let private = variance * (1.0 - shared);
        // In the eigenvectors, the right side of pair (c, e) is left_c times right_e.
        let mut right = DMatrix::zeros(d + 2 * r, b * d);
        let mut upright = DMatrix::zeros(b * d, d);
        for e in 0..b {
            let walked = &ys[e] - &precisions[e] * &ys[e] * step; // M_e Y_e
            right.view_mut((0, e * d), (d, d)).copy_from(&bases[e]);
            right.view_mut((d, e * d), (r, d)).copy_from(&self.inputs[e].tr_mul(&bases[e]));
            right.view_mut((d + r, e * d), (r, d)).copy_from(&walked.tr_mul(&bases[e]));
            upright.view_mut((e * d, 0), (d, d)).copy_from(&bases[e].transpose());
        }
        let factor = |client: usize, i: usize| 1.0 - step * curvatures[client][i];
        let of_client = |client: usize| {
            let walked =
                &ys[client] - &precisions[client] * &ys[client] * step + &self.inputs[client] * k;
            let mut left = DMatrix::zeros(d, d + 2 * r);
            left.columns_mut(0, d).copy_from(&everywhere);
            left.columns_mut(d, r).copy_from(&(walked * stays));
            left.columns_mut(d + r, r).copy_from(&(&self.inputs[client] * stays));
            let mut pairs = bases[client].tr_mul(&left) * &right;
            for i in 0..d {
                pairs[(i, client * d + i)] += private;
            }
            for e in 0..b {
                for j in 0..d {
                    let other = stays * factor(e, j);
                    let mut column = pairs.column_mut(e * d + j);
                    for i in 0..d {
                        column[i] /= 1.0 - other * factor(client, i);
                    }
                }
            }
            &bases[client] * (pairs * &upright) / b as f64
        };
        (0..b).map(of_client).collect()
    }
}

/// The most directions that GMRES tries.
const DIRECTIONS: usize = 200;

/// Solve `map(x) = goal` to twelve digits, or say that it cannot.
fn gmres(map: impl Fn(&DMatrix<f64>) -> DMatrix<f64>, goal: &DMatrix<f64>) -> Option<DMatrix<f64>> {
    let size = goal.norm();
    let mut basis = vec![goal / size];
    let mut triangle: Vec<Vec<f64>> = Vec::new(); // columns of R
    let mut rotations: Vec<(f64, f64)> = Vec::new();
    let mut rest = vec![size];
    while triangle.len() < DIRECTIONS {
        let mut next = map(&basis[triangle.len()]);
        let mut column = Vec::new();
        for direction in &basis {
            let share = direction.dot(&next);
            next -= direction * share;
            column.push(share);
        }
        let left = next.norm();
        for (k, (cos, sin)) in rotations.iter().enumerate() {
            let (upper, lower) = (column[k], column[k + 1]);
            column[k] = cos * upper + sin * lower;
            column[k + 1] = cos * lower - sin * upper;
        }
        let last = column.len() - 1;
        let radius = column[last].hypot(left);
        let (cos, sin) = (column[last] / radius, left / radius);
        column[last] = radius;
        rotations.push((cos, sin));
        triangle.push(column);
        rest.push(-sin * rest[last]);
        rest[last] *= cos;
        if rest[last + 1].abs() <= 1e-12 * size {
            break;
        }
        basis.push(next / left);
    }
    let n = triangle.len();
    if rest[n].abs() > 1e-10 * size || !rest[n].is_finite() {
        return None;
    }
    let mut weights = rest[..n].to_vec();
    for k in (0..n).rev() {
        weights[k] /= triangle[k][k];
        for above in 0..k {
            weights[above] -= triangle[k][above] * weights[k];
        }
    }
    Some(
        weights
            .iter()
            .zip(&basis)
            .fold(goal * 0.0, |sum, (weight, direction)| sum + direction * *weight),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use consilience_core::model::{Gaussian, Model, Prior};
    use consilience_core::sampler::exact::{posterior, stationary};
    use consilience_core::sampler::{Batch, Local, Recipe};
    use consilience_core::step::Schedule;
    use consilience_core::target::{Placement, Target};

    use super::*;

    /// The same laws as those of the general method, which keeps all moments.
    #[test]
    fn pairs_in_closed_form_give_the_general_law() {
        let means = [[1.0, -2.0], [0.5, 3.0], [-4.0, 0.0]].map(|m| DVector::from_column_slice(&m));
        let precisions = [[2.0, 0.3, 0.3, 0.5], [0.4, -0.1, -0.1, 1.5], [1.0, 0.6, 0.6, 3.0]]
            .map(|s| DMatrix::from_row_slice(2, 2, &s));
        let potentials = means.iter().zip(&precisions).map(|(m, s)| {
            Arc::new(
                Gaussian::new(m.as_slice().to_vec(), s.transpose().as_slice().to_vec()).unwrap(),
            ) as Arc<dyn Model>
        });
        let target =
            Target::new(potentials.collect(), Prior::Flat, Placement::Server, 1.0).unwrap();
        let centre = DVector::from_vec(posterior(&target).unwrap().mean);
        let clients = Clients::new(&means, precisions.to_vec()).unwrap();
        for shared in [0.0, 0.4, 1.0] {
            let walk = Walk { step: 0.11, p: 0.3, shared };
            let gamma = Schedule::Constant(walk.step);
            let plain = Local::fald(gamma, 3, shared, walk.p, Batch::Full);
            let reduced = Local::vr_fald_star(gamma, 3, shared, walk.p, walk.p, Batch::Full);
            for (local, ours) in
                [(plain, clients.fald(walk).unwrap()), (reduced, clients.vr_fald(walk).unwrap())]
            {
                let recipe = Recipe::Local(local);
                let law = stationary(&recipe, &recipe.check(target.clone()).unwrap()).unwrap();
                let mean = DVector::from_vec(law.mean) - &centre;
                let second =
                    DMatrix::from_row_slice(2, 2, &law.covariance) + &mean * mean.transpose();
                assert!((mean - ours.mean).amax() < 1e-9, "mean, shared {shared}");
                assert!((second - ours.second).amax() < 1e-9, "second moment, shared {shared}");
            }
        }
        let far = Walk { step: 5.0, p: 0.3, shared: 1.0 };
        assert!(
            clients.fald(far).is_none() && clients.vr_fald(far).is_none(),
            "too large a step has no law"
        );
    }
}
