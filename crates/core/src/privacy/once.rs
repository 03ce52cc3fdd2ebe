//! Size the noise of the two releases from which a regression is sampled for ever.
//!
//! The first release has second moments, the second is one step of Newton's method from a start
//! that the first one gave. A symmetric matrix gets noise whose deviation off the diagonal is the
//! `sqrt(2)`-th part of that on it, so that it is round in the norm of Frobenius, in which
//! sensitivities are stated. All of these are attained: nothing is given away.

use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

use super::{Neighbour, PrivacyError, gaussian_mu};

/// Which regression is released.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Released {
    /// Linear regression whose responses are clipped in the first release.
    Linear {
        /// `B`: responses are clipped to within this.
        response: f64,
        /// The variance of the noise, where it is known; else it is a parameter.
        noise_variance: Option<f64>,
    },
    /// Logistic regression.
    Logistic,
}

/// Two releases that together keep one budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Once {
    /// Which regression.
    pub regression: Released,
    /// `R`: no row is longer.
    pub row_norm: f64,
    /// What makes two data sets neighbours.
    pub neighbour: Neighbour,
    /// `mu` of both releases together.
    pub mu: f64,
    /// How many rows of a site may be one person's: what is hidden is all of them.
    pub person: u64,
}

impl Once {
    /// Two releases that keep (`epsilon`, `delta`).
    pub fn new(
        regression: Released,
        row_norm: f64,
        neighbour: Neighbour,
        (epsilon, delta): (f64, f64),
    ) -> Result<Self, PrivacyError> {
        Ok(Once { regression, row_norm, neighbour, mu: gaussian_mu(epsilon, delta)?, person: 1 })
    }

    /// The same where so many rows of a site may be one person's. Each moves a release by at most
    /// its sensitivity, so all of them by at most as many times that.
    pub fn for_persons_of(self, rows: u64) -> Self {
        Once { person: rows.max(1), ..self }
    }

    /// The first release's share of `mu^2`.
    pub fn share(&self) -> f64 {
        match self.regression {
            Released::Linear { .. } => 0.4,
            Released::Logistic => 0.25,
        }
    }

    /// `mu` of the first release.
    pub fn first_mu(&self) -> f64 {
        self.mu * self.share().sqrt()
    }

    /// `mu` of the second release. It may depend on what the first one told: Gaussian mechanisms
    /// compose adaptively, since which of them follows changes no `mu`.
    pub fn second_mu(&self) -> f64 {
        self.mu * (1.0 - self.share()).sqrt()
    }

    /// `c`, by which a response is multiplied beside its row; in logistic regression `w`, by which
    /// the sum of responses times rows is.
    pub fn weight(&self) -> f64 {
        match self.regression {
            Released::Linear { response, .. } => self.row_norm * FRAC_1_SQRT_2 / response,
            Released::Logistic => 0.7 * self.row_norm,
        }
    }

    /// How far one row can move the first release: in linear regression `sum z z'` with
    /// `z = (x, c y)`; in logistic regression `sum x x'` beside `w sum y x` with `y` of 1 or -1.
    pub fn first_sensitivity(&self) -> f64 {
        let square = self.row_norm * self.row_norm;
        match (self.regression, self.neighbour) {
            // |z|^2 is at most 3/2 R^2, and two squares are farthest apart where rows are
            // orthogonal.
            (Released::Linear { .. }, Neighbour::Replace) => SQRT_2 * 1.5 * square,
            (Released::Linear { .. }, Neighbour::AddRemove) => 1.5 * square,
            (Released::Logistic, Neighbour::Replace) => {
                SQRT_2 * (square + 0.5 * self.weight().powi(2))
            }
            (Released::Logistic, Neighbour::AddRemove) => {
                self.row_norm * (square + self.weight().powi(2)).sqrt()
            }
        }
    }

    /// `t`: the deviation of the first release's noise on the diagonal of its matrix.
    pub fn first_deviation(&self) -> f64 {
        self.person as f64 * self.first_sensitivity() / self.first_mu()
    }

    /// `t_g`: the deviation of the noise of the second release's gradient, where a row pulls by at
    /// most `bound` times its length.
    pub fn second_deviation(&self, bound: f64) -> f64 {
        let each = self.neighbour.reach() * self.row_norm * bound;
        self.person as f64 * each / self.second_mu()
    }

    /// The deviation of the noise on the diagonal of the second release's Hessian, in logistic
    /// regression. It costs nothing beside the gradient: where a row pulls most, with a slope of 1,
    /// it does not curve, and in between both together stay within what the slope of 1 takes.
    pub fn hessian_deviation(&self) -> f64 {
        let factor = match self.neighbour {
            Neighbour::Replace => 0.42,
            Neighbour::AddRemove => 0.3003,
        };
        self.person as f64 * factor * self.row_norm * self.row_norm / self.second_mu()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    fn once(regression: Released, epsilon: f64, neighbour: Neighbour) -> Once {
        Once::new(regression, 3.0, neighbour, (epsilon, 1e-6)).unwrap()
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6 * expected.abs(), "{found} is not {expected}");
    }

    const LINEAR: Released = Released::Linear { response: 2.0, noise_variance: None };

    /// Numbers of a script (privacy.md, section 10), which found the pairs by optimisation.
    #[test]
    fn noise_is_as_large_as_was_computed_elsewhere() {
        let linear = once(LINEAR, 1.0, Neighbour::Replace);
        close(linear.first_sensitivity(), 19.091_883);
        let t = linear.first_sensitivity() / linear.mu;
        close(t, 80.657_1);
        close(t * FRAC_1_SQRT_2 / linear.weight(), 53.771_4);
        close(t / linear.weight().powi(2), 71.695_2);
        let logistic = once(Released::Logistic, 3.0, Neighbour::Replace);
        close(logistic.first_sensitivity(), 15.846_263);
        close(logistic.first_deviation(), 48.928_868);
        close(logistic.second_deviation(1.0), 10.696_186);
        close(logistic.hessian_deviation(), 6.738_597);
        let other = once(Released::Logistic, 3.0, Neighbour::AddRemove);
        close(other.first_sensitivity(), 10.985_900);
    }

    #[test]
    fn a_person_of_several_rows_takes_as_many_times_the_noise() {
        for regression in [LINEAR, Released::Logistic] {
            let one = once(regression, 1.0, Neighbour::Replace);
            let four = one.for_persons_of(4);
            assert_eq!(four.first_deviation(), 4.0 * one.first_deviation());
            assert_eq!(four.second_deviation(0.5), 4.0 * one.second_deviation(0.5));
            assert_eq!(four.hessian_deviation(), 4.0 * one.hessian_deviation());
            assert_eq!((four.mu, four.weight()), (one.mu, one.weight()));
        }
    }

    /// The square of a vector as a vector whose norm is that of Frobenius.
    fn square(z: &[f64], scale: f64) -> Vec<f64> {
        z.iter().flat_map(|a| z.iter().map(move |b| scale * a * b)).collect()
    }

    /// What one row adds to each release, in units of that release's noise.
    fn told(once: &Once, x: &[f64], y: f64, slope: f64) -> [Vec<f64>; 2] {
        let t = once.first_deviation();
        match once.regression {
            Released::Linear { response, .. } => {
                let mut z = x.to_vec();
                z.push(once.weight() * y * response);
                let pull = x.iter().map(|x| slope * x / once.second_deviation(1.0)).collect();
                [square(&z, 1.0 / t), pull]
            }
            Released::Logistic => {
                let sign = if y > 0.0 { 1.0 } else { -1.0 };
                let mut first = square(x, 1.0 / t);
                first.extend(x.iter().map(|x| once.weight() * sign * x / t));
                let bend = slope.abs() * (1.0 - slope.abs());
                let mut second = square(x, bend / once.hessian_deviation());
                second.extend(x.iter().map(|x| slope * x / once.second_deviation(1.0)));
                [first, second]
            }
        }
    }

    /// Rows at random, then the worst of them moved about: none tells more than was paid for, and
    /// some tell all of it.
    #[test]
    fn no_row_tells_more_than_is_paid_for() {
        for regression in [LINEAR, Released::Logistic] {
            for neighbour in [Neighbour::Replace, Neighbour::AddRemove] {
                let once = once(regression, 1.0, neighbour);
                let most = [once.first_mu(), once.second_mu()];
                // Two rows in three columns, each with a response and a slope, from ten numbers.
                let moves = |at: &[f64; 10]| {
                    let row = |at: &[f64]| {
                        let norm = at[..3].iter().map(|a| a * a).sum::<f64>().sqrt();
                        let x: Vec<f64> = at[..3].iter().map(|a| a * 3.0 / norm.max(3.0)).collect();
                        told(&once, &x, at[3].clamp(-1.0, 1.0), at[4].clamp(-1.0, 1.0))
                    };
                    let (one, other) = (row(&at[..5]), row(&at[5..]));
                    let kept = if neighbour == Neighbour::Replace { 1.0 } else { 0.0 };
                    [0, 1].map(|k| {
                        let apart = one[k].iter().zip(&other[k]).map(|(a, b)| a - kept * b);
                        apart.map(|v| v * v).sum::<f64>().sqrt()
                    })
                };
                let mut stream = Seed::new(3).stream(Purpose::Data, SERVER, 0);
                let mut z = [0.0; 10];
                for k in 0..2 {
                    let mut worst = 0.0;
                    for _ in 0..20 {
                        stream.normals(&mut z);
                        let (mut at, mut best) = (z.map(|z| 3.0 * z), 0.0);
                        for step in 0..3000 {
                            stream.normals(&mut z);
                            let size = 2.0 * 0.997f64.powi(step);
                            let mut tried = at;
                            tried.iter_mut().zip(z).for_each(|(a, z)| *a += size * z);
                            let found = moves(&tried)[k];
                            if found > best {
                                (at, best) = (tried, found);
                            }
                        }
                        worst = f64::max(worst, best);
                    }
                    let part = worst / most[k];
                    assert!(part <= 1.0 + 1e-9, "{regression:?} {neighbour:?} {k}: {part}");
                    assert!(part > 0.99, "{regression:?} {neighbour:?} {k}: {part}");
                }
            }
        }
    }
}
