//! State a prior parameter by parameter, on the scale on which people know them.

use super::glm::GAUSS_HERMITE;
use super::transform::{Transform, Transforms, correlation};
use crate::error::DataError;
use crate::simd::{exp, ln};

/// The law of one parameter. Of one that is positive it is the half above 0: a half-normal is a
/// normal there, since constants do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// None.
    Flat,
    /// Normal.
    Normal {
        /// Its mean.
        mean: f64,
        /// Its standard deviation.
        sd: f64,
    },
    /// Student's t; with 1 degree of freedom Cauchy.
    StudentT {
        /// The degrees of freedom.
        df: f64,
        /// Its centre.
        location: f64,
        /// Its scale.
        scale: f64,
    },
    /// Laplace.
    Laplace {
        /// Its centre.
        location: f64,
        /// The mean distance from it.
        scale: f64,
    },
    /// Exponential.
    Exponential {
        /// One over its mean.
        rate: f64,
    },
    /// Gamma.
    Gamma {
        /// Its shape.
        shape: f64,
        /// Its rate.
        rate: f64,
    },
    /// That of Lewandowski, Kurowicka and Joe, of one correlation: `(1 - x^2)^(shape - 1)`.
    Lkj {
        /// Its shape: 1 is uniform, and more draws towards 0.
        shape: f64,
    },
}

impl Law {
    /// The same of a quantity that is measured in units so many times smaller.
    pub fn scaled(self, by: f64) -> Law {
        match self {
            Law::Flat => Law::Flat,
            Law::Normal { mean, sd } => Law::Normal { mean: mean * by, sd: sd * by },
            Law::StudentT { df, location, scale } => {
                Law::StudentT { df, location: location * by, scale: scale * by }
            }
            Law::Laplace { location, scale } => {
                Law::Laplace { location: location * by, scale: scale * by }
            }
            Law::Exponential { rate } => Law::Exponential { rate: rate / by },
            Law::Gamma { shape, rate } => Law::Gamma { shape, rate: rate / by },
            Law::Lkj { .. } => self, // it has no units
        }
    }

    /// Its centre; 0 where it has none.
    pub fn centre(&self) -> f64 {
        match self {
            Law::Normal { mean, .. } => *mean,
            Law::StudentT { location, .. } | Law::Laplace { location, .. } => *location,
            Law::Flat | Law::Exponential { .. } | Law::Gamma { .. } | Law::Lkj { .. } => 0.0,
        }
    }

    /// Whether all its numbers can be.
    fn check(&self) -> Result<(), DataError> {
        let positive = |what, value: f64| {
            if value > 0.0 && value.is_finite() {
                Ok(())
            } else {
                Err(DataError::NotPositive { what, value })
            }
        };
        let (scale, rate) = ("the scale of a prior", "the rate of a prior");
        match *self {
            Law::Flat => Ok(()),
            Law::Normal { sd, .. } => positive(scale, sd),
            Law::StudentT { df, scale: width, .. } => {
                positive("the degrees of freedom of a prior", df)?;
                positive(scale, width)
            }
            Law::Laplace { scale: width, .. } => positive(scale, width),
            Law::Exponential { rate: of } => positive(rate, of),
            Law::Gamma { shape, rate: of } => {
                positive("the shape of a prior", shape)?;
                positive(rate, of)
            }
            Law::Lkj { shape } => positive("the shape of a prior", shape),
        }
    }

    /// Minus the log-density, without its constant.
    pub fn value(&self, x: f64) -> f64 {
        match *self {
            Law::Flat => 0.0,
            Law::Normal { mean, sd } => 0.5 * ((x - mean) / sd).powi(2),
            Law::StudentT { df, location, scale } => {
                let z = (x - location) / scale;
                0.5 * (df + 1.0) * ln(1.0 + z * z / df)
            }
            Law::Laplace { location, scale } => (x - location).abs() / scale,
            Law::Exponential { rate } => rate * x,
            Law::Gamma { shape, rate } => rate * x - (shape - 1.0) * ln(x),
            Law::Lkj { shape } => -(shape - 1.0) * ln((1.0 - x) * (1.0 + x)),
        }
    }

    /// Its derivative; at a kink 0.
    pub fn slope(&self, x: f64) -> f64 {
        match *self {
            Law::Flat => 0.0,
            Law::Normal { mean, sd } => (x - mean) / (sd * sd),
            Law::StudentT { df, location, scale } => {
                let z = (x - location) / scale;
                (df + 1.0) * z / (df + z * z) / scale
            }
            Law::Laplace { location, scale } => {
                let z = x - location;
                if z == 0.0 { 0.0 } else { z.signum() / scale }
            }
            Law::Exponential { rate } => rate,
            Law::Gamma { shape, rate } => rate - (shape - 1.0) / x,
            Law::Lkj { shape } => 2.0 * (shape - 1.0) * x / ((1.0 - x) * (1.0 + x)),
        }
    }

    /// Its second derivative.
    pub fn bend(&self, x: f64) -> f64 {
        match *self {
            Law::Flat | Law::Laplace { .. } | Law::Exponential { .. } => 0.0,
            Law::Normal { sd, .. } => 1.0 / (sd * sd),
            Law::StudentT { df, location, scale } => {
                let z = (x - location) / scale;
                let below = df + z * z;
                (df + 1.0) * (df - z * z) / (below * below) / (scale * scale)
            }
            Law::Gamma { shape, .. } => (shape - 1.0) / (x * x),
            Law::Lkj { shape } => {
                let below = (1.0 - x) * (1.0 + x);
                2.0 * (shape - 1.0) * (1.0 + x * x) / (below * below)
            }
        }
    }
}

/// `U_0` as a sum of laws, one a parameter, with the Jacobian of what is not free:
/// `U_0(u) = sum_k -log p_k(x_k(u)) - log |dx/du|`.
#[derive(Clone, Debug, PartialEq)]
pub struct Laws {
    laws: Vec<Law>,
    transforms: Transforms,
    /// Coordinates that nothing holds in their place.
    free: Vec<usize>,
}

/// What holds a single coordinate in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Free,
    Positive,
    Correlation,
}

/// A law as a function of `u`: its value, slope and bend there.
fn along(law: &Law, hold: Hold, u: f64) -> (f64, f64, f64) {
    match hold {
        Hold::Free => (law.value(u), law.slope(u), law.bend(u)),
        Hold::Positive => {
            let x = exp(u);
            let slope = law.slope(x) * x;
            (law.value(x) - u, slope - 1.0, law.bend(x) * x * x + slope)
        }
        Hold::Correlation => {
            let (x, stretch) = correlation(u);
            let slope = law.slope(x) * stretch;
            let bend = law.bend(x) * stretch * stretch - 2.0 * x * slope + 2.0 * stretch;
            (law.value(x) - ln(stretch), slope + 2.0 * x, bend)
        }
    }
}

impl Laws {
    /// One law a parameter, on the natural scale of parameters that are transformed so.
    pub fn new(laws: Vec<Law>, transforms: Transforms) -> Result<Self, DataError> {
        laws.iter().try_for_each(Law::check)?;
        let held = |k: &usize| transforms.groups().iter().any(|(range, _)| range.contains(k));
        let free = (0..laws.len()).filter(|k| !held(k)).collect();
        Ok(Laws { laws, transforms, free })
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.laws.len()
    }

    /// The laws.
    pub fn laws(&self) -> &[Law] {
        &self.laws
    }

    /// Every coordinate that goes by itself, with what holds it.
    fn single(&self) -> impl Iterator<Item = (usize, Hold)> + '_ {
        let positive = self.groups(Transform::Positive).flatten().map(|k| (k, Hold::Positive));
        let between = self.groups(Transform::Correlation).flatten();
        let between = between.map(|k| (k, Hold::Correlation));
        self.free.iter().map(|k| (*k, Hold::Free)).chain(positive).chain(between)
    }

    fn groups(&self, of: Transform) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let groups = self.transforms.groups().iter();
        groups.filter(move |(_, transform)| *transform == of).map(|(range, _)| range.clone())
    }

    /// The laws of an ordered group at `u`: where the parameters are, the gradient there, and
    /// the transform of this group alone.
    fn ordered(&self, range: std::ops::Range<usize>, u: &[f64]) -> Ordered<'_> {
        let transform = Transforms::new([(0..range.len(), Transform::Ordered)]);
        let mut x = u[range.clone()].to_vec();
        transform.outward(&mut x);
        let laws = &self.laws[range];
        let slopes = laws.iter().zip(&x).map(|(law, x)| law.slope(*x)).collect();
        Ordered { laws, transform, x, slopes }
    }

    /// `U_0(u)`.
    pub(super) fn value(&self, u: &[f64]) -> f64 {
        let single: f64 = self.single().map(|(k, hold)| along(&self.laws[k], hold, u[k]).0).sum();
        let ordered = self.groups(Transform::Ordered).map(|range| {
            let found = self.ordered(range.clone(), u);
            let laws: f64 = found.laws.iter().zip(&found.x).map(|(law, x)| law.value(*x)).sum();
            laws - found.transform.log_jacobian(&u[range])
        });
        single + ordered.sum::<f64>()
    }

    /// `out += weight * grad U_0(u)`.
    pub(super) fn add_gradient(&self, u: &[f64], weight: f64, out: &mut [f64]) {
        for (k, hold) in self.single() {
            out[k] += weight * along(&self.laws[k], hold, u[k]).1;
        }
        for range in self.groups(Transform::Ordered) {
            let mut found = self.ordered(range.clone(), u);
            found.transform.pull_back(&u[range.clone()], &mut found.slopes);
            for (k, slope) in range.clone().zip(&found.slopes) {
                let stretch = f64::from(u8::from(k > range.start));
                out[k] += weight * (slope - stretch);
            }
        }
    }

    /// `out += weight * (grad U_0(u) - grad U_0(z))`; exactly nothing where they are equal.
    pub(super) fn add_gradient_difference(
        &self,
        u: &[f64],
        z: &[f64],
        weight: f64,
        out: &mut [f64],
    ) {
        let (mut here, mut there) = (vec![0.0; u.len()], vec![0.0; u.len()]);
        self.add_gradient(u, 1.0, &mut here);
        self.add_gradient(z, 1.0, &mut there);
        for ((out, here), there) in out.iter_mut().zip(here).zip(there) {
            *out += weight * (here - there);
        }
    }

    /// `out += weight * hess U_0(u) v`.
    pub(super) fn add_hessian_vector(&self, u: &[f64], v: &[f64], weight: f64, out: &mut [f64]) {
        for (k, hold) in self.single() {
            out[k] += weight * along(&self.laws[k], hold, u[k]).2 * v[k];
        }
        for range in self.groups(Transform::Ordered) {
            let Ordered { laws, transform, x, slopes } = self.ordered(range.clone(), u);
            let (u, v) = (&u[range.clone()], &v[range.clone()]);
            let mut image = v.to_vec();
            transform.push_forward(u, &mut image);
            for ((image, law), x) in image.iter_mut().zip(laws).zip(&x) {
                *image *= law.bend(*x);
            }
            transform.pull_back(u, &mut image);
            transform.bends(u, &slopes, |k, bend| image[k] += bend * v[k]);
            for (out, image) in out[range].iter_mut().zip(image) {
                *out += weight * image;
            }
        }
    }

    /// `out += weight` times the mean gradient, then the mean Hessian, under the normal law of this
    /// mean and spread. Ordered parameters are taken at their mean: averages only shape proposals.
    pub(super) fn add_average(
        &self,
        (mean, spread): (&[f64], &[f64]),
        weight: f64,
        out: &mut [f64],
    ) {
        let d = mean.len();
        let (gradient, hessian) = out.split_at_mut(d);
        for (k, hold) in self.single() {
            let sd = spread.iter().skip(k).step_by(d).map(|a| a * a).sum::<f64>().sqrt();
            let (mut slope, mut bend) = (0.0, 0.0);
            for (z, share) in GAUSS_HERMITE {
                for u in [mean[k] + sd * z, mean[k] - sd * z] {
                    let found = along(&self.laws[k], hold, u);
                    slope += share * found.1;
                    bend += share * found.2;
                }
            }
            if let (Law::Laplace { location, scale }, Hold::Free) = (self.laws[k], hold)
                && sd > 0.0
            {
                // all of its curvature is in the kink: twice the density there
                let z = (mean[k] - location) / sd;
                bend = 2.0 * exp(-0.5 * z * z) / (std::f64::consts::TAU.sqrt() * sd * scale);
            }
            gradient[k] += weight * slope;
            hessian[k * d + k] += weight * bend;
        }
        if self.groups(Transform::Ordered).next().is_none() {
            return;
        }
        let ordered = Laws { free: Vec::new(), ..self.clone() };
        let only = Transforms::new(
            self.groups(Transform::Ordered).map(|range| (range, Transform::Ordered)),
        );
        let ordered = Laws { transforms: only, ..ordered };
        ordered.add_gradient(mean, weight, gradient);
        ordered.add_hessian(mean, weight, hessian);
    }

    /// `out += weight * hess U_0(u)`, row by row.
    pub(super) fn add_hessian(&self, u: &[f64], weight: f64, out: &mut [f64]) {
        let mut unit = vec![0.0; u.len()];
        for (k, row) in out.chunks_exact_mut(u.len()).enumerate() {
            unit[k] = 1.0;
            self.add_hessian_vector(u, &unit, weight, row);
            unit[k] = 0.0;
        }
    }
}

/// An ordered group at a point.
struct Ordered<'a> {
    laws: &'a [Law],
    transform: Transforms,
    x: Vec<f64>,
    slopes: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::normals;
    use super::*;

    fn laws() -> Laws {
        let student = Law::StudentT { df: 3.0, location: 0.4, scale: 1.5 };
        let laws = vec![
            Law::Normal { mean: 1.0, sd: 2.0 },
            student,
            Law::Laplace { location: -0.2, scale: 0.7 },
            Law::Flat,
            Law::Normal { mean: 0.0, sd: 1.3 }, // half-normal
            Law::StudentT { df: 1.0, location: 0.0, scale: 2.5 }, // half-Cauchy
            Law::Exponential { rate: 0.8 },
            Law::Gamma { shape: 2.5, rate: 1.2 },
            Law::Flat,
            student,
            Law::Normal { mean: 0.0, sd: 3.0 },
            Law::Laplace { location: 0.0, scale: 2.0 },
            Law::Lkj { shape: 2.5 },
            Law::Flat,
        ];
        let held = [Transform::Positive, Transform::Ordered, Transform::Correlation];
        let groups = [4..9, 9..12, 12..14].into_iter().zip(held);
        Laws::new(laws, Transforms::new(groups)).unwrap()
    }

    #[test]
    fn derivatives_are_the_finite_differences_of_values() {
        let (laws, d, h) = (laws(), 14, 1e-5);
        let u = normals(40, d);
        let mut gradient = vec![0.0; d];
        laws.add_gradient(&u, 2.0, &mut gradient);
        let mut hessian = vec![0.0; d * d];
        laws.add_hessian(&u, 2.0, &mut hessian);
        for k in 0..d {
            let at = |by: f64| {
                let mut moved = u.clone();
                moved[k] += by;
                moved
            };
            let slope = (laws.value(&at(h)) - laws.value(&at(-h))) / h;
            assert!((slope - gradient[k]).abs() < 1e-6, "{k}: {slope} is not {}", gradient[k]);
            let (mut up, mut down) = (vec![0.0; d], vec![0.0; d]);
            laws.add_gradient(&at(h), 1.0, &mut up);
            laws.add_gradient(&at(-h), 1.0, &mut down);
            for j in 0..d {
                let bend = (up[j] - down[j]) / h;
                let exact = hessian[k * d + j];
                assert!((bend - exact).abs() < 1e-6, "{k}, {j}: {bend} is not {exact}");
            }
        }
        let mut nothing = vec![0.0; d];
        laws.add_gradient_difference(&u, &u, 1.0, &mut nothing);
        assert_eq!(nothing, vec![0.0; d]);
    }

    /// The density in `u` is that of the natural parameter times the Jacobian: both have the same
    /// mass between two points, by the trapezoidal rule.
    #[test]
    fn masses_are_those_of_the_natural_scale() {
        let held =
            |law: Law, by: Transform| Laws::new(vec![law], Transforms::new([(0..1, by)])).unwrap();
        let simple = |law: Law| held(law, Transform::Positive);
        let mass = |from: f64, to: f64, density: &dyn Fn(f64) -> f64| {
            let n = 4000;
            let step = (to - from) / f64::from(n);
            (0..n).map(|k| density(from + (f64::from(k) + 0.5) * step) * step).sum::<f64>()
        };
        for law in [Law::Flat, Law::Lkj { shape: 1.0 }, Law::Lkj { shape: 2.0 }] {
            let natural = mass(-0.7, 0.9, &|x| (-law.value(x)).exp());
            let between = held(law, Transform::Correlation);
            let ends = (f64::atanh(-0.7), f64::atanh(0.9));
            let moved = mass(ends.0, ends.1, &|u| (-between.value(&[u])).exp());
            assert!((natural / moved - 1.0).abs() < 1e-6, "{law:?}: {natural}, {moved}");
        }
        for law in [
            Law::Flat,
            Law::Normal { mean: 0.0, sd: 1.3 },
            Law::StudentT { df: 4.0, location: 0.0, scale: 0.5 },
            Law::Exponential { rate: 0.8 },
            Law::Gamma { shape: 2.5, rate: 1.2 },
        ] {
            let natural = mass(0.2, 3.0, &|x| (-law.value(x)).exp());
            let moved = mass(0.2f64.ln(), 3.0f64.ln(), &|u| (-simple(law).value(&[u])).exp());
            assert!((natural / moved - 1.0).abs() < 1e-6, "{law:?}: {natural}, {moved}");
        }
    }

    #[test]
    fn averages_are_the_means_over_the_law() {
        let groups = [(4..9, Transform::Positive)];
        let laws = Laws::new(laws().laws[..9].to_vec(), Transforms::new(groups)).unwrap();
        let d = 9;
        let (mean, spread) = (normals(41, d), normals(42, d * d));
        let spread: Vec<f64> = spread.iter().map(|a| 0.1 * a).collect();
        let mut found = vec![0.0; d + d * d];
        laws.add_average((&mean, &spread), 1.0, &mut found);
        let (mut gradient, mut hessian) = (vec![0.0; d], vec![0.0; d * d]);
        let n = 20_000;
        for k in 0..n / 2 {
            let z = normals(100 + k, d);
            for side in [1.0, -1.0] {
                let mut x = mean.clone();
                for (column, z) in spread.chunks_exact(d).zip(&z) {
                    crate::linalg::add_scaled(side * z, column, &mut x);
                }
                laws.add_gradient(&x, 1.0 / n as f64, &mut gradient);
                laws.add_hessian(&x, 1.0 / n as f64, &mut hessian);
            }
        }
        for k in 0..d {
            let (a, b) = (found[k], gradient[k]);
            assert!((a - b).abs() < 0.02 * (1.0 + b.abs()), "{k}: {a} {b}");
            if k != 2 {
                // the kink of a Laplace law has no second derivative to average
                let (a, b) = (found[d + k * d + k], hessian[k * d + k]);
                assert!((a - b).abs() < 0.02 * (1.0 + b.abs()), "{k}: {a} {b}");
            }
        }
        assert!(found[d + 2 * d + 2] > 0.0);
    }

    #[test]
    fn laws_that_cannot_be_are_refused() {
        for law in [
            Law::Normal { mean: 0.0, sd: 0.0 },
            Law::StudentT { df: -1.0, location: 0.0, scale: 1.0 },
            Law::Exponential { rate: f64::NAN },
            Law::Gamma { shape: 0.0, rate: 1.0 },
        ] {
            assert!(Laws::new(vec![law], Transforms::default()).is_err(), "{law:?}");
        }
    }
}
