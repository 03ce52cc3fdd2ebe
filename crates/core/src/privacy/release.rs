//! Say what one release of a noisy sum of rows costs: pairs of laws that are worst for it.
//!
//! A release is `(1/q) sum of the rows drawn + s xi`, with every row's contribution at most `C`
//! long; only `z = q s / C` matters. Some row is in the sum or not (or is another): the two laws of
//! what leaves are no easier to tell apart than the *dominating pair* (P, Q) given here, by its
//! privacy loss `L = log dP/dQ`. Poisson: Zhu, Dong and Wang (2022); subsets of a fixed size: the
//! same, proposition 30. Full batches: two normals.

use super::PrivacyError;
use super::normal::phi;

/// What makes two data sets neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// One row of one site becomes any other row; how many rows there are is public.
    Replace,
    /// One row of one site becomes an empty one, whose gradient is 0, or an empty one a row.
    AddRemove,
}

impl Neighbour {
    /// How far one row moves a sum of rows of length at most 1: `D / C`.
    pub fn reach(self) -> f64 {
        match self {
            Neighbour::Replace => 2.0,
            Neighbour::AddRemove => 1.0,
        }
    }
}

/// Which rows a release sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// All.
    Full,
    /// Each by itself, with this probability.
    Poisson {
        /// The probability `q`.
        rate: f64,
    },
    /// A subset of a fixed size, drawn without replacement.
    Fixed {
        /// The share `q` of rows that are drawn.
        share: f64,
    },
}

impl Sampling {
    /// The share of rows that a release uses, or uses on average.
    pub fn share(self) -> f64 {
        match self {
            Sampling::Full => 1.0,
            Sampling::Poisson { rate: share } | Sampling::Fixed { share } => share,
        }
    }
}

/// One release: rows summed, neighbours, noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Release {
    sampling: Sampling,
    neighbour: Neighbour,
    ratio: f64,
}

impl Release {
    /// A release whose noise has standard deviation `z` times what one row contributes at most.
    pub fn new(sampling: Sampling, neighbour: Neighbour, z: f64) -> Result<Self, PrivacyError> {
        if !(z > 0.0 && z.is_finite()) {
            return Err(PrivacyError::Noise { ratio: z });
        }
        let sampling = match sampling {
            Sampling::Full => Sampling::Full,
            Sampling::Poisson { rate: q } | Sampling::Fixed { share: q }
                if !(q > 0.0 && q <= 1.0) =>
            {
                return Err(PrivacyError::Share { share: q });
            }
            Sampling::Poisson { rate: 1.0 } | Sampling::Fixed { share: 1.0 } => Sampling::Full,
            Sampling::Fixed { .. } if neighbour == Neighbour::AddRemove => {
                return Err(PrivacyError::FixedAddRemove);
            }
            other => other,
        };
        Ok(Release { sampling, neighbour, ratio: z })
    }

    /// `z`: the noise against what one row contributes at most.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// `mu`, where the release is a Gaussian mechanism.
    pub fn gaussian(&self) -> Option<f64> {
        (self.sampling == Sampling::Full).then(|| self.neighbour.reach() / self.ratio)
    }

    /// The dominating pair for a row that goes, and for one that comes: the same where the pair is
    /// its own mirror image.
    pub(super) fn pairs(&self) -> [Pair; 2] {
        let mu = 1.0 / self.ratio;
        match (self.sampling, self.neighbour) {
            (Sampling::Full, neighbour) => [Pair::Gaussian { mu: neighbour.reach() * mu }; 2],
            (Sampling::Poisson { rate: q }, Neighbour::AddRemove) => {
                [Pair::Remove { mu, q }, Pair::Add { mu, q }]
            }
            (Sampling::Poisson { rate: q }, Neighbour::Replace) => [Pair::Replace { mu, q }; 2],
            // Whichever row is drawn in place of the other: the inner sums are 2C apart.
            (Sampling::Fixed { share: q }, _) => [Pair::Fixed { mu: 2.0 * mu, q }; 2],
        }
    }
}

/// A dominating pair, by the law of its privacy loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pair {
    /// N(mu, 1) and N(0, 1).
    Gaussian { mu: f64 },
    /// (1 - q) N(0, 1) + q N(mu, 1), and N(0, 1).
    Remove { mu: f64, q: f64 },
    /// N(0, 1), and (1 - q) N(0, 1) + q N(mu, 1).
    Add { mu: f64, q: f64 },
    /// (1 - q) N(0, 1) + q N(mu, 1), and the same with -mu.
    Replace { mu: f64, q: f64 },
    /// The pair of subsets of a fixed size, given by its curve: `q` of the rows, inner pair
    /// N(mu, 1), N(0, 1).
    Fixed { mu: f64, q: f64 },
}

/// The probabilities of P and of Q that the loss is above a number, and that it is below.
///
/// A mass at the number itself, which only [`Pair::Fixed`] has, at 0, is in neither.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Split {
    pub(super) above: [f64; 2],
    pub(super) below: [f64; 2],
}

impl Pair {
    /// Where the loss is above `e`, and where below.
    pub(super) fn split(&self, e: f64) -> Split {
        match *self {
            Pair::Gaussian { mu } => {
                let (p, q) = (mu / 2.0 - e / mu, -mu / 2.0 - e / mu);
                Split { above: [phi(p), phi(q)], below: [phi(-p), phi(-q)] }
            }
            Pair::Remove { mu, q } => {
                let x = remove_cut(mu, q, e);
                Split {
                    above: [(1.0 - q) * phi(-x) + q * phi(mu - x), phi(-x)],
                    below: [(1.0 - q) * phi(x) + q * phi(x - mu), phi(x)],
                }
            }
            Pair::Add { mu, q } => {
                let x = remove_cut(mu, q, -e); // the loss falls with x
                Split {
                    above: [phi(x), (1.0 - q) * phi(x) + q * phi(x - mu)],
                    below: [phi(-x), (1.0 - q) * phi(-x) + q * phi(mu - x)],
                }
            }
            Pair::Replace { mu, q } => {
                let x = replace_cut(mu, q, e);
                let mixed = |x: f64, shift: f64| (1.0 - q) * phi(x) + q * phi(x + shift);
                Split {
                    above: [mixed(-x, mu), mixed(-x, -mu)],
                    below: [mixed(x, -mu), mixed(x, mu)],
                }
            }
            Pair::Fixed { mu, q } => {
                // P(L > e) and Q(L > e) for e >= 0; P(L < -e) = Q(L > e), since the pair is its own
                // mirror image.
                let size = e.abs();
                let g = widened(q, size);
                let (p, far) = (phi(mu / 2.0 - g / mu), phi(-mu / 2.0 - g / mu));
                let up = [q * p + (1.0 - q) * far, far];
                let mirrored = [up[1], up[0]];
                if e == 0.0 {
                    Split { above: up, below: mirrored }
                } else if e > 0.0 {
                    Split { above: up, below: [1.0 - up[0], 1.0 - up[1]] }
                } else {
                    Split { above: [1.0 - mirrored[0], 1.0 - mirrored[1]], below: mirrored }
                }
            }
        }
    }

    /// The mass at loss 0, which P and Q share.
    pub(super) fn atom(&self) -> f64 {
        match *self {
            Pair::Fixed { mu, q } => (1.0 - q) * (1.0 - 2.0 * phi(-mu / 2.0)),
            _ => 0.0,
        }
    }

    /// Losses beyond which P has at most the mass of a standard normal beyond `t`, on either side.
    pub(super) fn range(&self, t: f64) -> (f64, f64) {
        match *self {
            Pair::Gaussian { mu } => (mu * mu / 2.0 - t * mu, mu * mu / 2.0 + t * mu),
            Pair::Remove { mu, q } => (remove_loss(mu, q, -t), remove_loss(mu, q, t + mu)),
            Pair::Add { mu, q } => (-remove_loss(mu, q, t), -remove_loss(mu, q, -t)),
            Pair::Replace { mu, q } => {
                let top = remove_loss(mu, q, t + mu) - remove_loss(mu, q, -t - mu);
                (-top, top)
            }
            Pair::Fixed { mu, q } => {
                let top = narrowed(q, mu * mu / 2.0 + t * mu);
                (-top, top)
            }
        }
    }
}

/// `log(1 + (exp(e) - 1)/q)`, `e >= log(1 - q)`.
fn widened(q: f64, e: f64) -> f64 {
    if e > 600.0 { e - libm::log(q) } else { libm::log1p(libm::expm1(e) / q) }
}

/// Its inverse, `log(1 + q (exp(g) - 1))`.
fn narrowed(q: f64, g: f64) -> f64 {
    if g > 600.0 { g + libm::log(q) } else { libm::log1p(q * libm::expm1(g)) }
}

/// Where the loss of [`Pair::Remove`] is `e`; minus infinity where it is above `e` everywhere.
fn remove_cut(mu: f64, q: f64, e: f64) -> f64 {
    if e <= 600.0 && libm::expm1(e) <= -q {
        return f64::NEG_INFINITY;
    }
    widened(q, e) / mu + mu / 2.0
}

/// The loss of [`Pair::Remove`] at `x`.
fn remove_loss(mu: f64, q: f64, x: f64) -> f64 {
    narrowed(q, mu * x - mu * mu / 2.0)
}

/// Where the loss of [`Pair::Replace`] is `e`: `(asinh(a sinh(e/2)) + e/2)/mu`, with
/// `a = exp(mu^2/2) (1 - q)/q`.
fn replace_cut(mu: f64, q: f64, e: f64) -> f64 {
    let half = e.abs() / 2.0;
    // The logarithm of a sinh(e/2): both may overflow.
    let ln_a = mu * mu / 2.0 + libm::log((1.0 - q) / q);
    let x = if half < 20.0 && ln_a < 600.0 {
        libm::asinh(libm::exp(ln_a) * libm::sinh(half))
    } else {
        let ln_sinh = half + libm::log1p(-libm::exp(-2.0 * half)) - std::f64::consts::LN_2;
        let ln = ln_a + ln_sinh;
        if ln > 20.0 { ln + std::f64::consts::LN_2 } else { libm::asinh(libm::exp(ln)) }
    };
    ((x + half) / mu).copysign(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: [Pair; 9] = [
        Pair::Gaussian { mu: 0.7 },
        Pair::Remove { mu: 1.3, q: 0.2 },
        Pair::Add { mu: 1.3, q: 0.2 },
        Pair::Replace { mu: 0.9, q: 0.3 },
        Pair::Replace { mu: 30.0, q: 1e-3 },
        Pair::Fixed { mu: 0.8, q: 0.25 },
        Pair::Remove { mu: 1e-3, q: 0.5 },
        Pair::Add { mu: 4.0, q: 1e-4 },
        Pair::Fixed { mu: 3.0, q: 0.9 },
    ];

    #[test]
    fn masses_above_and_below_make_one_and_fall_outside_the_range() {
        for pair in PAIRS {
            let (low, high) = pair.range(5.0);
            for k in -10..=30 {
                let e = low + (high - low) * f64::from(k) / 20.0;
                let Split { above, below } = pair.split(e);
                let atom = if e == 0.0 { pair.atom() } else { 0.0 };
                for of in 0..2 {
                    assert!((above[of] + below[of] + atom - 1.0).abs() < 1e-13, "{pair:?} {e}");
                }
            }
            assert!(pair.split(low).below[0] <= 1.01 * phi(-5.0), "{pair:?}");
            assert!(pair.split(high).above[0] <= 1.01 * phi(-5.0), "{pair:?}");
        }
    }

    #[test]
    fn the_loss_is_the_logarithm_of_the_ratio_of_the_masses() {
        // In a short interval of losses near e, P has exp(e) times the mass of Q.
        for pair in PAIRS {
            let (low, high) = pair.range(4.0);
            let h = (high - low) / 4000.0;
            for k in [300, 1500, 2500, 3700] {
                let e = low + h * f64::from(k);
                let (left, right) = (pair.split(e), pair.split(e + h));
                let mass = |of: usize| {
                    if e >= 0.0 {
                        left.above[of] - right.above[of]
                    } else {
                        right.below[of] - left.below[of]
                    }
                };
                let loss = (mass(0) / mass(1)).ln();
                if mass(0) > 1e-9 && mass(1) > 1e-9 {
                    assert!((loss - e - h / 2.0).abs() < 0.51 * h + 1e-6, "{pair:?} {e} {loss}");
                }
            }
        }
    }

    #[test]
    fn the_planning_law_holds() {
        // b clients of equal noise, step gamma, temperature T: z = sqrt(2 T b^-1 / gamma) / C, so
        // K rounds have mu = 2 C sqrt(b gamma K / (2 T)); t = gamma K, replaced rows.
        for (epsilon, time) in [(1.0, 0.0359), (3.0, 0.2586), (8.0, 1.388)] {
            let z = (2.0f64 / 0.01).sqrt();
            let release = Release::new(Sampling::Full, Neighbour::Replace, z).unwrap();
            let rounds = time / 0.01;
            let mu = release.gaussian().unwrap() * f64::sqrt(rounds);
            let ours = crate::privacy::gaussian_epsilon(mu, 1e-5);
            assert!((ours / epsilon - 1.0).abs() < 2e-3, "{ours}");
            let other = Release::new(Sampling::Full, Neighbour::AddRemove, z).unwrap();
            assert_eq!(release.gaussian().unwrap(), 2.0 * other.gaussian().unwrap());
        }
    }

    #[test]
    fn what_has_no_pair_is_refused() {
        let fixed = Sampling::Fixed { share: 0.1 };
        assert_eq!(
            Release::new(fixed, Neighbour::AddRemove, 1.0),
            Err(PrivacyError::FixedAddRemove)
        );
        for z in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Release::new(Sampling::Full, Neighbour::Replace, z).is_err());
        }
        for q in [0.0, 1.1, f64::NAN] {
            assert!(Release::new(Sampling::Poisson { rate: q }, Neighbour::Replace, 1.0).is_err());
        }
    }
}
