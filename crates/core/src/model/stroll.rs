//! Take Langevin steps several in a row, where a potential has a faster way to than one gradient
//! after the other.

/// A walk of some steps on one potential, with nothing else in its drift:
///
/// ```text
/// g = base + scale (grad U(x) - grad U(z))        without control variates: g = scale grad U(x)
/// x <- x - step (weight g) + sqrt(2 step T) (factor Z)
/// ```
#[derive(Debug)]
pub struct Stroll<'a> {
    /// Where it starts, and then where it ended.
    pub x: &'a mut [f64],
    /// `z` and `base`.
    pub control: Option<(&'a [f64], &'a [f64])>,
    /// What gradients are multiplied by.
    pub scale: f64,
    /// What the drift is multiplied by.
    pub weight: f64,
    /// The step size of all steps.
    pub step: f64,
    /// `T`.
    pub temperature: f64,
    /// `factor`, and `Z` of every step, one behind the other: it says how many steps are taken.
    pub noise: (f64, &'a [f64]),
}

/// A potential that takes steps by itself.
pub trait Stroller {
    /// Take them, and say how many: the same, bit for bit, as by a gradient of all rows for each.
    fn stroll(&self, way: Stroll<'_>) -> u64;
}
