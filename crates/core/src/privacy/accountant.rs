//! Compose releases by the Fourier transform of their tilted losses, and read off epsilon and
//! delta.
//!
//! ```text
//! kappa(theta) = sum_j K_j log sum_k w_jk exp(theta k h)           w: masses of `loss`
//! r            = the K_j-fold convolutions of w_jk exp(theta k h) / (their sum)
//! delta(e)     = inf + exp(kappa - theta e)
//!                      (sum_{l > e} r_l exp(-theta (l - e)) (1 - exp(e - l)) + err)
//! ```
//!
//! Untilted, the rounding noise of a transform is as large as delta itself, and errs to either
//! side. Tilted by the theta at which Chernoff's bound is least, losses near epsilon are the
//! typical ones, and noise is small against them.
//!
//! Every error is added to delta:
//!
//! - *Grid*: `loss` rounds up. Mass beyond its range is `inf`.
//! - *Wrapping round*: a mass of at most `TAU` on either side of the window (Chernoff again) is
//!   folded into it, or missed above it, where it would count for at most itself.
//! - *Transform*: a tilted sequence sums to 1, and every number of its spectrum is a sum of
//!   products over `log2 n` stages, each off by at most `(2 sqrt(2) + 2) 2^-53` of what it adds (a
//!   complex sum, a complex product, a root of unity to a unit in the last place): by at most `3
//!   log2(n) 2^-52` in all. Its K-th power is off by K times that, and by a rounding of at most `2
//!   K 2^-52`. Back in the window the *sum of squares* of the errors is at most that squared
//!   (Parseval), plus the way back; so what is read off, a sum with weights, is off by at most `4
//!   (K + 1) log2(n) 2^-52` times the root of the weights' sum of squares (Cauchy and Schwarz).
//! - *Tilting*: exponents `theta k h` are off by a unit in the last place, and so is each mass.
//!   After K rounds that is a factor `1 + K (8 + 2 theta max|k h| + |log M|) 2^-52`, put into
//!   kappa.
//! - *Reading off*: sums of positive numbers, with a factor of `1 + 8 n 2^-52`.

use super::PrivacyError;
use super::loss::{Losses, discretise, moments};
use super::normal::{gaussian_delta, gaussian_epsilon};
use super::release::{Pair, Release};
use crate::fourier::{Turns, change_spectrum, raised, times};

/// What tilted mass may lie beyond either end of the window.
const TAU: f64 = 1e-13;

/// Releases of fixed kinds and numbers, all told to one listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Composition {
    parts: Vec<(Release, u64)>,
}

/// What a composition is asked for, by which its tilt is chosen.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// epsilon at this delta.
    AtDelta(f64),
    /// delta at this epsilon; it is above the other number, roughly.
    AtEpsilon(f64, f64),
}

impl Composition {
    /// One kind of release, so many times.
    pub fn of(release: Release, count: u64) -> Self {
        Composition::default().and(release, count)
    }

    /// These releases and some more.
    pub fn and(mut self, release: Release, count: u64) -> Self {
        if count > 0 {
            self.parts.push((release, count));
        }
        self
    }

    /// How many releases there are.
    pub fn count(&self) -> u64 {
        self.parts.iter().map(|(_, count)| count).sum()
    }

    /// `mu` of the whole, where every release is a Gaussian mechanism: it is one, too.
    pub fn gaussian(&self) -> Option<f64> {
        let squares = self
            .parts
            .iter()
            .map(|(release, count)| release.gaussian().map(|mu| mu * mu * *count as f64));
        let sum: Option<f64> = squares.sum();
        // Raised by more than a sum of squares and its root can lose.
        sum.map(|sum| sum.sqrt() * (1.0 + (8.0 + self.parts.len() as f64) * f64::EPSILON))
    }

    /// The least epsilon at delta, from above: for a row that goes or comes, the larger.
    pub fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        PrivacyError::check_budget(1.0, delta)?;
        if let Some(mu) = self.gaussian() {
            return Ok(gaussian_epsilon(mu, delta));
        }
        Ok(self.epsilon_by_transform(delta))
    }

    /// The same by the transform even where there is a closed form.
    fn epsilon_by_transform(&self, delta: f64) -> f64 {
        self.directions()
            .map(|parts| Composed::new(&parts, Goal::AtDelta(delta)).epsilon(delta))
            .fold(0.0, f64::max)
    }

    /// The least delta at epsilon, from above.
    pub fn delta(&self, epsilon: f64) -> Result<f64, PrivacyError> {
        PrivacyError::check_budget(epsilon.max(f64::MIN_POSITIVE), 0.5)?;
        if let Some(mu) = self.gaussian() {
            return Ok(gaussian_delta(mu, epsilon));
        }
        Ok(self.delta_by_transform(epsilon))
    }

    fn delta_by_transform(&self, epsilon: f64) -> f64 {
        let composed = self.directions().map(|parts| {
            // Chernoff's bound says how small delta is, a few orders of magnitude or less too high;
            // what is taken for infinite must be small against it.
            let rough = Losses::on_a_grid_for(&parts, 1e-12).chernoff(epsilon);
            Composed::new(&parts, Goal::AtEpsilon(epsilon, 1e-3 * rough)).delta(epsilon)
        });
        composed.fold(0.0, f64::max).min(1.0)
    }

    /// epsilon at delta by Renyi divergences of the best order, with the conversion of Canonne,
    /// Kamath and Steinke (2020): never below [`Composition::epsilon`] but by rounding, and often
    /// far above it. A cross-check.
    pub fn renyi_epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        PrivacyError::check_budget(1.0, delta)?;
        let of = |parts: Vec<(Pair, u64)>| Losses::on_a_grid_for(&parts, delta).renyi(delta);
        Ok(self.directions().map(of).fold(0.0, f64::max))
    }

    /// How many releases of one kind keep (epsilon, delta), at most `limit`.
    pub fn most(
        release: Release,
        epsilon: f64,
        delta: f64,
        limit: u64,
    ) -> Result<u64, PrivacyError> {
        PrivacyError::check_budget(epsilon, delta)?;
        let keeps = |count: u64| -> Result<bool, PrivacyError> {
            Ok(Composition::of(release, count).epsilon(delta)? <= epsilon)
        };
        if limit == 0 || !keeps(1)? {
            return Ok(0);
        }
        let (mut kept, mut broken) = (1, 2);
        while broken <= limit && keeps(broken)? {
            (kept, broken) = (broken, broken.saturating_mul(2));
        }
        broken = broken.min(limit.saturating_add(1));
        while kept + 1 < broken {
            let middle = kept + (broken - kept) / 2;
            if keeps(middle)? {
                kept = middle;
            } else {
                broken = middle;
            }
        }
        Ok(kept)
    }

    /// The pairs of a row that goes, and those of a row that comes where they are others.
    fn directions(&self) -> impl Iterator<Item = Vec<(Pair, u64)>> {
        let along = |direction: usize| -> Vec<(Pair, u64)> {
            self.parts.iter().map(|(release, count)| (release.pairs()[direction], *count)).collect()
        };
        let (goes, comes) = (along(0), along(1));
        let same = goes == comes;
        [goes, comes].into_iter().take(if same { 1 } else { 2 })
    }
}

/// Losses of all kinds on one grid, with how often each occurs.
struct OnGrid {
    h: f64,
    /// The root of the summed variances.
    deviation: f64,
    kinds: Vec<(Losses, u64)>,
    /// The same with far losses in blocks, each at both its ends: for searches.
    thinned: Vec<(Vec<Block>, u64)>,
    /// What is taken for infinite, in all.
    infinite: f64,
}

/// Neighbouring losses with the logarithm of their mass.
struct Block {
    low: f64,
    high: f64,
    ln_mass: f64,
}

impl Losses {
    /// The losses of all pairs on the grid that suits them; at most `1e-4 delta` is taken for
    /// infinite in all.
    fn on_a_grid_for(parts: &[(Pair, u64)], delta: f64) -> OnGrid {
        let count: u64 = parts.iter().map(|(_, count)| count).sum();
        let rounds = count.max(1) as f64;
        let tail = (1e-4 * delta / rounds).max(1e-290);
        let variance: f64 = parts.iter().map(|(pair, count)| *count as f64 * moments(pair).1).sum();
        let range = parts
            .iter()
            .map(|(pair, _)| {
                let (low, high) = pair.range(-crate::measure::normal_quantile(tail / 2.0));
                high - low
            })
            .fold(0.0, f64::max);
        let deviation = variance.sqrt();
        let h = (0.02 * (variance / rounds).sqrt())
            .min(16.0 * deviation / 16_384.0)
            .max(range / 524_288.0)
            .max(20.0 * deviation / 4_194_304.0);
        let kinds: Vec<_> =
            parts.iter().map(|(pair, count)| (discretise(pair, h, tail), *count)).collect();
        let thinned = kinds.iter().map(|(losses, count)| (losses.blocks(h), *count)).collect();
        let infinite = kinds.iter().map(|(losses, count)| *count as f64 * losses.infinite).sum();
        OnGrid { h, deviation, kinds, thinned, infinite }
    }

    /// The masses times `exp(theta k h)` over their sum, and the logarithm of that sum.
    fn tilted(&self, theta: f64, h: f64) -> (Vec<f64>, f64) {
        let exponent = |place: usize| theta * ((self.first + place as i64) as f64 * h);
        let lns: Vec<f64> = self
            .masses
            .iter()
            .enumerate()
            .map(
                |(place, &mass)| {
                    if mass > 0.0 { libm::log(mass) + exponent(place) } else { f64::NEG_INFINITY }
                },
            )
            .collect();
        let ln_sum = ln_sum_exp(lns.iter().copied().filter(|ln| ln.is_finite()));
        let masses =
            lns.iter().map(|&ln| if ln - ln_sum < -700.0 { 0.0 } else { libm::exp(ln - ln_sum) });
        (masses.collect(), ln_sum)
    }

    /// Blocks of cells, each at most 1/512 of its distance from 0 wide.
    fn blocks(&self, h: f64) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut place = 0;
        while place < self.masses.len() {
            let k = self.first + place as i64;
            // Below 0 a block ends before the distance has halved: its width is by its near end.
            let width = if k >= 0 { k / 512 } else { -k / 1024 }.max(1) as usize;
            let end = (place + width).min(self.masses.len());
            let mass: f64 = self.masses[place..end].iter().sum();
            if mass > 0.0 {
                blocks.push(Block {
                    low: k as f64 * h,
                    high: (self.first + end as i64 - 1) as f64 * h,
                    ln_mass: libm::log(mass),
                });
            }
            place = end;
        }
        blocks
    }
}

/// `log sum exp(t)` of the terms.
fn ln_sum_exp(terms: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = terms.clone().fold(f64::NEG_INFINITY, f64::max);
    largest + libm::log(terms.map(|term| crate::simd::exp(term - largest)).sum::<f64>())
}

/// A number of a spectrum to the power `count`; 0 where that is below exp(-40), which is nothing
/// against the errors of the transform.
fn power(one: [f64; 2], count: u64) -> [f64; 2] {
    let square = one[0] * one[0] + one[1] * one[1];
    // |one|^count < exp(-40), since log(x) <= x - 1.
    if (square - 1.0) * count as f64 <= -80.0 { [0.0; 2] } else { raised(one, count) }
}

/// The `x > 0` in `[low, high]` at which a function that falls and then rises is least, roughly.
fn least(low: f64, high: f64, f: impl Fn(f64) -> f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let at = |ln: f64| f(libm::exp(ln));
    let (mut a, mut b) = (libm::log(low), libm::log(high));
    let (mut c, mut d) = (b - GOLDEN * (b - a), a + GOLDEN * (b - a));
    let (mut at_c, mut at_d) = (at(c), at(d));
    while b - a > 0.02 {
        if at_c < at_d {
            (b, d, at_d) = (d, c, at_c);
            c = b - GOLDEN * (b - a);
            at_c = at(c);
        } else {
            (a, c, at_c) = (c, d, at_d);
            d = a + GOLDEN * (b - a);
            at_d = at(d);
        }
    }
    libm::exp(0.5 * (a + b))
}

impl OnGrid {
    /// kappa at theta, with blocks at their upper ends for theta above 0, at their lower below:
    /// from above.
    fn thinned_kappa(&self, theta: f64) -> f64 {
        self.thinned
            .iter()
            .map(|(blocks, count)| {
                let end = |b: &Block| if theta > 0.0 { b.high } else { b.low };
                *count as f64 * ln_sum_exp(blocks.iter().map(|b| b.ln_mass + theta * end(b)))
            })
            .sum()
    }

    /// The range in which a best theta lies.
    fn tilts(&self) -> (f64, f64) {
        (1e-3 / self.deviation, (1e3 / self.deviation).max(1e3))
    }

    /// The tilt that suits a goal.
    fn tilt(&self, goal: Goal) -> f64 {
        let (low, high) = self.tilts();
        match goal {
            Goal::AtDelta(delta) => {
                let ln_delta = libm::log(delta);
                least(low, high, |theta| (self.thinned_kappa(theta) - ln_delta) / theta)
            }
            Goal::AtEpsilon(epsilon, _) => {
                least(low, high, |theta| self.thinned_kappa(theta) - theta * epsilon)
            }
        }
    }

    /// Chernoff's bound of delta at epsilon.
    fn chernoff(&self, epsilon: f64) -> f64 {
        let theta = self.tilt(Goal::AtEpsilon(epsilon, 0.0));
        let bound = libm::exp((self.thinned_kappa(theta) - theta * epsilon).min(0.0));
        bound + self.infinite
    }

    /// epsilon at delta by the Renyi divergence of order `1 + theta`, the best theta.
    fn renyi(&self, delta: f64) -> f64 {
        let ln_delta = libm::log(delta - self.infinite);
        let bound = |theta: f64| {
            let ln_order = libm::log1p(theta);
            (self.thinned_kappa(theta) - ln_delta - ln_order) / theta + libm::log(theta) - ln_order
        };
        let (low, high) = self.tilts();
        bound(least(low, high, bound)).max(0.0)
    }
}

/// The tilted composition, ready to be read off from loss 0 upwards.
struct Composed {
    h: f64,
    theta: f64,
    kappa: f64,
    infinite: f64,
    /// What reading off may be off by, before `exp(kappa - theta e)`.
    error: f64,
    /// At loss `k h`, `k = 0, 1, ...`: `sum_{l >= k h} r_l exp(-theta (l - kh)) (1 - exp(kh - l))`
    /// and the same with `exp(kh - l)` in place of the bracket.
    gained: Vec<f64>,
    lost: Vec<f64>,
}

impl Composed {
    fn new(parts: &[(Pair, u64)], goal: Goal) -> Self {
        let delta = match goal {
            Goal::AtDelta(delta) | Goal::AtEpsilon(_, delta) => delta,
        };
        let grid = Losses::on_a_grid_for(parts, delta);
        let theta = grid.tilt(goal);
        let h = grid.h;

        let (mut kappa, mut rounds, mut slack) = (0.0, 0.0, 0.0);
        let mut tilted = Vec::with_capacity(grid.kinds.len());
        for (losses, count) in &grid.kinds {
            let (masses, ln_sum) = losses.tilted(theta, h);
            let k = *count as f64;
            let reach = losses.first.unsigned_abs().max(losses.masses.len() as u64) as f64 * h;
            rounds += k;
            kappa += k * ln_sum;
            slack += k * (8.0 + 2.0 * theta * reach + ln_sum.abs()) * f64::EPSILON;
            tilted.push((losses.first, masses, *count));
        }

        // The window outside of which tilted losses lie with a probability of at most 2 TAU.
        let ln_tau = libm::log(TAU);
        let (near, far) = grid.tilts();
        let up = |s: f64| (grid.thinned_kappa(theta + s) - kappa - ln_tau) / s;
        let down = |s: f64| (grid.thinned_kappa(theta - s) - kappa - ln_tau) / s;
        let high = (up(least(near, far, up)) / h).ceil() as i64;
        let low = (-down(least(near, far, down)) / h).floor() as i64;
        let n = ((high - low + 2) as usize).next_power_of_two();

        let turns = Turns::new(n);
        let mut product: Vec<[f64; 2]> = Vec::new();
        for (first, masses, count) in tilted {
            let mut spectrum = vec![[0.0; 2]; n];
            for (place, mass) in masses.iter().enumerate() {
                spectrum[(first + place as i64).rem_euclid(n as i64) as usize][0] += mass;
            }
            turns.forward(&mut spectrum, first.rem_euclid(n as i64) as usize, masses.len());
            if product.is_empty() {
                change_spectrum(&mut spectrum, |_, one| power(one, count));
                product = spectrum;
            } else {
                change_spectrum(&mut product, |place, all| {
                    times(all, power(spectrum[place], count))
                });
            }
        }
        turns.back(&mut product);

        // From the top down: sums of positive numbers. Noise below 0 counts as 0.
        let cells = high.max(0) as usize + 1;
        let (mut gained, mut lost) = (vec![0.0; cells + 1], vec![0.0; cells + 1]);
        let (fall, drop) = (libm::exp(-theta * h), -libm::expm1(-h));
        let scale = 1.0 / n as f64;
        for k in (0..cells).rev() {
            let l = k as i64;
            let mass = if l >= low && l <= high {
                // Place t comes back at -t.
                product[(-l).rem_euclid(n as i64) as usize][0].max(0.0) * scale
            } else {
                0.0
            };
            gained[k] = fall * (gained[k + 1] + drop * lost[k + 1]);
            lost[k] = mass + fall * (1.0 - drop) * lost[k + 1];
        }

        let stages = f64::from(n.trailing_zeros()).max(1.0);
        let a = 2.0 * theta;
        let squares = 1.0 + 2.0 / (a * (a + 1.0) * (a + 2.0)) / h;
        let error = 4.0 * TAU + 4.0 * (rounds + 1.0) * stages * f64::EPSILON * squares.sqrt();
        // Sums of n terms; the exponential in front.
        let kappa = kappa + slack + 8.0 * n as f64 * f64::EPSILON + 1e-14 * kappa.abs();
        Composed { h, theta, kappa, infinite: grid.infinite, error, gained, lost }
    }

    /// delta at epsilon, from above.
    fn delta(&self, epsilon: f64) -> f64 {
        // The first loss at or above epsilon; what lies further down does not count.
        let place = (epsilon / self.h).ceil().max(0.0);
        let above = place * self.h;
        let last = self.gained.len() - 1;
        let k = (place as usize).min(last);
        let (gained, lost) = (self.gained[k], self.lost[k]);
        // sum r_l exp(-theta (l - e)) (1 - exp(e - l)), by the sums at the grid point above e.
        let back = (above - epsilon).max(0.0);
        let sum = libm::exp(-self.theta * back) * (gained + -libm::expm1(-back) * lost);
        self.infinite + libm::exp(self.kappa - self.theta * epsilon) * (sum + self.error)
    }

    /// The least epsilon at delta, from above, raised by 1e-9.
    fn epsilon(&self, delta: f64) -> f64 {
        if self.delta(0.0) <= delta {
            return 0.0;
        }
        // Chernoff: beyond this the sum, at most 1, cannot matter.
        let most =
            (self.kappa - libm::log(delta - self.infinite) + libm::log1p(self.error)) / self.theta;
        let (mut low, mut high) = (0.0, most.max(self.h));
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if self.delta(middle) > delta {
                low = middle;
            } else {
                high = middle;
            }
            if high - low < 1e-12 * high {
                break;
            }
        }
        high * (1.0 + 1e-9) + 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Neighbour, Sampling};
    use super::*;

    fn full(z: f64) -> Release {
        Release::new(Sampling::Full, Neighbour::AddRemove, z).unwrap()
    }

    fn poisson(z: f64, rate: f64, neighbour: Neighbour) -> Release {
        Release::new(Sampling::Poisson { rate }, neighbour, z).unwrap()
    }

    #[test]
    fn never_below_the_closed_form() {
        for rounds in [1, 10, 1000, 100_000] {
            for mu in [0.1, 0.5, 2.0] {
                let all = Composition::of(full((rounds as f64).sqrt() / mu), rounds);
                for delta in [1e-5, 1e-9, 1e-15, 1e-20] {
                    let (exact, ours) =
                        (gaussian_epsilon(mu, delta), all.epsilon_by_transform(delta));
                    let case = format!("{rounds} rounds, mu {mu}, delta {delta}: {ours}, {exact}");
                    // The closed form is itself raised by 1e-9 of itself and of 1.
                    assert!(ours >= (exact - 1e-9) / (1.0 + 1e-9), "{case}");
                    assert!(ours <= exact * (1.0 + 5e-5), "{case}");
                    let back = all.delta_by_transform(exact);
                    assert!(back <= 1.01 * delta, "{case}: {back:e}");
                    assert!(back >= gaussian_delta(mu, exact) * (1.0 - 1e-6), "{case}: {back:e}");
                }
            }
        }
    }

    #[test]
    fn kinds_compose_and_splitting_a_kind_changes_nothing() {
        // 500 (2, .1) + 20 (8, 1) + 1000 (1, .01), delta 1e-6: dp_accounting.
        let add = Neighbour::AddRemove;
        let mixed = Composition::of(poisson(2.0, 0.1, add), 500)
            .and(full(8.0), 20)
            .and(poisson(1.0, 0.01, add), 1000);
        assert_eq!(mixed.count(), 1520);
        let epsilon = mixed.epsilon(1e-6).unwrap();
        assert!((epsilon / 7.28151 - 1.0).abs() < 1e-3, "{epsilon}");
        let split = Composition::of(poisson(2.0, 0.1, add), 200)
            .and(poisson(1.0, 0.01, add), 1000)
            .and(full(8.0), 20)
            .and(poisson(2.0, 0.1, add), 300);
        assert!((split.epsilon(1e-6).unwrap() / epsilon - 1.0).abs() < 1e-6);
        assert_eq!(Composition::default().epsilon(1e-6), Ok(0.0));
    }

    #[test]
    fn both_adjacencies_count() {
        // Both directions are composed, and the larger counts.
        let release = poisson(0.7, 0.01, Neighbour::AddRemove);
        for (rounds, delta) in [(1, 1e-5), (2000, 0.3)] {
            let all = Composition::of(release, rounds);
            let each: Vec<f64> = all
                .directions()
                .map(|parts| Composed::new(&parts, Goal::AtDelta(delta)).epsilon(delta))
                .collect();
            assert_eq!(each.len(), 2);
            assert!((each[0] - each[1]).abs() > 1e-3 * each[0], "{each:?}");
            assert_eq!(all.epsilon(delta).unwrap(), each[0].max(each[1]));
        }
    }

    #[test]
    fn renyi_bounds_are_the_closed_form_of_a_gaussian_and_never_below() {
        for mu in [0.1, 1.0, 3.0] {
            let all = Composition::of(full(10.0 / mu), 100);
            let renyi = all.renyi_epsilon(1e-6).unwrap();
            // The least over orders of order mu^2 / 2 and the same conversion, on a fine grid.
            let exact = (1..200_000)
                .map(|k| {
                    let order = 1.0 + f64::from(k) * 0.005;
                    order * mu * mu / 2.0 + ((order - 1.0) / order).ln()
                        - (1e-6f64.ln() + order.ln()) / (order - 1.0)
                })
                .fold(f64::INFINITY, f64::min);
            assert!((renyi / exact - 1.0).abs() < 5e-3, "{mu}: {renyi} is not {exact}");
            assert!(all.epsilon_by_transform(1e-6) < renyi);
        }
    }

    #[test]
    fn the_most_releases_are_one_fewer_than_too_many() {
        for release in [full(40.0), poisson(4.0, 0.2, Neighbour::Replace)] {
            let most = Composition::most(release, 3.0, 1e-6, 100_000).unwrap();
            let epsilon = |count| Composition::of(release, count).epsilon(1e-6).unwrap();
            assert!(epsilon(most) <= 3.0 && epsilon(most + 1) > 3.0, "{most}");
            assert_eq!(Composition::most(release, 3.0, 1e-6, most - 1), Ok(most - 1));
        }
        assert_eq!(Composition::most(full(0.1), 1.0, 1e-6, 10), Ok(0));
        assert!(Composition::most(full(1.0), 0.0, 1e-6, 10).is_err());
        assert!(Composition::most(full(1.0), 1.0, 2.0, 10).is_err());
    }
}
