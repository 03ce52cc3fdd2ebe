//! Propose points by their address: everybody who knows the law computes the same ones.

use super::nodes::{self, Nodes};
use super::{AxisMap, MOST_NODED, PROFILE};
use crate::linalg::norm_squared;
use crate::rng::{Purpose, SERVER, Seed};
use crate::simd::ln;

/// How many numbers tell of one bent axis: which, and its profile.
const TOLD: usize = 1 + PROFILE.len();

/// `T(z)` with `z` of a standard Student law: its tails are heavier than a posterior's, so that
/// weights stay bounded. `T` bends some of the axes, and may let the law of all others depend on
/// the first coordinate. In coordinates in which the posterior is round these are proposals for
/// it.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    dim: usize,
    /// The axes that are bent.
    maps: Vec<(usize, AxisMap)>,
    /// What depends on the first coordinate, where anything does.
    nodes: Option<Nodes>,
    freedom: u32,
    /// What another party must be told.
    told: Vec<f64>,
}

impl Proposal {
    /// A proposal for so many parameters whose axes are bent after their profiles where these are
    /// given (see [`AxisMap::new`]). `freedom` is the Student law's degrees of freedom; 0 stands
    /// for a Gaussian.
    pub fn new(dim: usize, freedom: u32, bent: &[(usize, [f64; PROFILE.len()])]) -> Option<Self> {
        Proposal::with_nodes(dim, freedom, bent, &[])
    }

    /// The same where the law of all other coordinates depends on the first, by the numbers of
    /// [`super::Conditionals::told`]; bent are axes of that law.
    pub fn with_nodes(
        dim: usize,
        freedom: u32,
        bent: &[(usize, [f64; PROFILE.len()])],
        nodes: &[f64],
    ) -> Option<Self> {
        let mut told = vec![f64::from(freedom)];
        for (axis, profile) in bent {
            told.push(*axis as f64);
            told.extend_from_slice(profile);
        }
        if !nodes.is_empty() {
            told.push(dim as f64); // no axis has this number
            told.extend_from_slice(nodes);
        }
        Proposal::told(dim, &told)
    }

    /// The proposal that another party tells of; `None` where the numbers make no sense.
    pub fn told(dim: usize, told: &[f64]) -> Option<Self> {
        let whole = |x: f64, below: f64| (x >= 0.0 && x < below && x.fract() == 0.0).then_some(x);
        let (freedom, mut rest) = told.split_first()?;
        let freedom = whole(*freedom, 1e6)? as u32;
        let (mut maps, mut nodes): (Vec<(usize, AxisMap)>, _) = (Vec::new(), None);
        while let Some((axis, numbers)) = rest.split_first() {
            let axis = whole(*axis, dim as f64 + 1.0)? as usize;
            if axis == dim {
                nodes = Some(Nodes::told(dim, numbers)?);
                break;
            }
            let (profile, others) = numbers.split_first_chunk()?;
            if maps.last().is_some_and(|(last, _)| *last >= axis) {
                return None;
            }
            maps.push((axis, AxisMap::new(profile)?.0));
            rest = others;
        }
        Some(Proposal { dim, maps, nodes, freedom, told: told.to_vec() })
    }

    /// What another party must be told.
    pub fn parts(&self) -> &[f64] {
        &self.told
    }

    /// How many numbers it takes to tell, at the most.
    pub(crate) fn most_told(dim: usize) -> usize {
        let nodes = if dim <= MOST_NODED { 1 + nodes::told_numbers(dim) } else { 0 };
        1 + TOLD * dim + nodes
    }

    /// The degrees of freedom that fit a posterior of so many parameters, unless a pilot shows
    /// heavier tails.
    pub fn usual_freedom(dim: usize) -> u32 {
        (4 * dim).max(50) as u32
    }

    /// The degrees of freedom.
    pub fn freedom(&self) -> u32 {
        self.freedom
    }

    /// How many axes are bent.
    pub fn bent(&self) -> usize {
        self.maps.len()
    }

    /// Whether the law of other coordinates depends on the first.
    pub fn has_nodes(&self) -> bool {
        self.nodes.is_some()
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Write proposal number `k` of a chain to `x`, and say the logarithm of the proposal's density
    /// there, up to a constant that is the same for all points.
    pub fn draw(&self, seed: Seed, purpose: Purpose, k: u64, x: &mut [f64]) -> f64 {
        let mut stream = seed.stream(purpose, SERVER, k);
        stream.normals(x);
        if self.freedom > 0 {
            // A chi-square by its normals, a few at a time.
            let (mut left, mut sum, mut some) = (self.freedom as usize, 0.0, [0.0; 64]);
            while left > 0 {
                let now = &mut some[..left.min(64)];
                stream.normals(now);
                sum += norm_squared(now);
                left -= now.len();
            }
            let stretch = (sum / f64::from(self.freedom)).sqrt();
            x.iter_mut().for_each(|z| *z /= stretch);
        }
        let mut log = self.log_density(norm_squared(x));
        for (axis, map) in &self.maps {
            let (bent, slope) = map.apply(x[*axis]);
            x[*axis] = bent;
            log -= ln(slope);
        }
        if let Some(nodes) = &self.nodes {
            log -= nodes.apply(x);
        }
        log
    }

    /// By the square of `z`.
    fn log_density(&self, square: f64) -> f64 {
        if self.freedom == 0 {
            return -0.5 * square;
        }
        let freedom = f64::from(self.freedom);
        -0.5 * (freedom + self.dim as f64) * ln(1.0 + square / freedom)
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    fn draw(proposal: &Proposal, seed: u64, k: u64) -> (Vec<f64>, f64) {
        let mut x = vec![0.0; proposal.dim()];
        let log = proposal.draw(Seed::new(seed), Purpose::Proposal, k, &mut x);
        (x, log)
    }

    /// Moments of 40,000 draws against those of the law: the covariance of a Student law is
    /// `nu / (nu - 2)`. A mean is off by 1/200 of a standard deviation, a second moment by about
    /// 1/100: bounds are 4.9 such errors.
    #[test]
    fn draws_have_the_moments_of_their_law() {
        for freedom in [0, 8, 50, 130] {
            let proposal = Proposal::new(2, freedom, &[]).unwrap();
            let n = 40_000;
            let (mut sum, mut squares) = ([0.0; 2], [0.0; 3]);
            for k in 0..n {
                let (x, _) = draw(&proposal, 3, k);
                let (a, b) = (x[0], x[1]);
                sum = [sum[0] + a, sum[1] + b];
                squares = [squares[0] + a * a, squares[1] + a * b, squares[2] + b * b];
            }
            let wider =
                if freedom == 0 { 1.0 } else { f64::from(freedom) / f64::from(freedom - 2) };
            // The fourth moment of a Student law of 8 is (nu - 2)/(nu - 4) = 1.5 times as large.
            let error = 4.9 * 0.011 * if freedom == 8 { 1.5 } else { 1.0 };
            for (found, exact) in squares.map(|s| s / n as f64).iter().zip([wider, 0.0, wider]) {
                assert!((found - exact).abs() < error * exact.max(1.0), "{found} {exact}");
            }
            assert!(sum.iter().all(|s| (s / n as f64).abs() < 4.9 / 200.0 * 1.2), "{sum:?}");
        }
    }

    /// The density that is said is the density that is drawn from: the mean of `p/q` over draws of
    /// `q`, with both in full, is 1 for any `p`.
    #[test]
    fn the_density_that_is_said_is_the_one_that_is_drawn_from() {
        let proposal = Proposal::new(1, 5, &[]).unwrap();
        // q(x) = q0 * exp(log density), with q0 = Gamma(3) / (Gamma(5/2) sqrt(5 pi))
        let constant = 2.0 / (0.75 * PI.sqrt() * (5.0 * PI).sqrt());
        let n = 200_000;
        let normal =
            |x: f64| (-0.5 * (x - 0.4) * (x - 0.4) / 0.36).exp() / (0.6 * (2.0 * PI).sqrt());
        let weight = |k| {
            let (x, log) = draw(&proposal, 4, k);
            normal(x[0]) / (constant * log.exp())
        };
        let mean = (0..n).map(weight).sum::<f64>() / n as f64;
        assert!((mean - 1.0).abs() < 4.9 * 1.2 / (n as f64).sqrt(), "{mean}");
    }

    /// The same along a bent axis, where the slope of the map stands in the density.
    #[test]
    fn the_density_of_a_bent_axis_is_the_one_that_is_drawn_from() {
        let profile = PROFILE.map(|r: f64| 4.0 * ((-0.6 * r).exp() - 1.0 + 0.6 * r));
        let proposal = Proposal::new(1, 0, &[(0, profile)]).unwrap();
        let constant = 1.0 / (2.0 * PI).sqrt();
        let n = 200_000;
        let normal = |x: f64| (-0.5 * ((x - 0.4) / 0.6).powi(2)).exp() / (0.6 * (2.0 * PI).sqrt());
        let weight = |k| {
            let (x, log) = draw(&proposal, 4, k);
            normal(x[0]) / (constant * log.exp())
        };
        let mean = (0..n).map(weight).sum::<f64>() / n as f64;
        assert!((mean - 1.0).abs() < 4.9 * 1.2 / (n as f64).sqrt(), "{mean}");
    }

    #[test]
    fn a_point_is_its_address_and_what_is_told_is_the_same_proposal() {
        let profile = PROFILE.map(|r: f64| 4.0 * ((-0.6 * r).exp() - 1.0 + 0.6 * r));
        let proposal = Proposal::new(3, 50, &[(1, profile)]).unwrap();
        let told = Proposal::told(3, proposal.parts()).unwrap();
        assert_eq!(draw(&proposal, 9, 7), draw(&told, 9, 7));
        assert_ne!(draw(&proposal, 9, 7), draw(&proposal, 9, 8));
        assert!(proposal.parts().len() <= Proposal::most_told(3));
    }

    #[test]
    fn what_makes_no_sense_is_no_proposal() {
        let profile = [0.5; 10];
        let axis = |k: f64| [&[k][..], &profile].concat();
        for told in [
            vec![],
            vec![-1.0],
            vec![f64::NAN],
            vec![2.5],
            vec![50.0, 1.0],
            [vec![50.0], axis(3.0)].concat(),
            [vec![50.0], axis(-1.0)].concat(),
            [vec![50.0], axis(1.0), axis(1.0)].concat(),
            [vec![50.0], axis(1.0), axis(0.0)].concat(),
        ] {
            assert!(Proposal::told(3, &told).is_none(), "{told:?}");
        }
    }
}
