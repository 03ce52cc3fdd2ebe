//! Take the Langevin step: the only place where a drift meets its noise.

use crate::simd::wide;

/// How the step size moves with the iteration `k`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// The same step at every iteration.
    Constant(f64),
    /// `1 / (2 L + m k / 12)`: FA-LD, Theorem 5.8.
    Decreasing {
        /// The smoothness `L` of the potential.
        smoothness: f64,
        /// The strong convexity `m` of the potential.
        convexity: f64,
    },
    /// `first * (1 + k / delay)^-power`, with a power in (1/2, 1] the schedule of Welling and Teh
    /// (2011).
    Polynomial {
        /// The step at iteration 0.
        first: f64,
        /// After how many iterations the decay sets in.
        delay: f64,
        /// How fast it decays.
        power: f64,
    },
}

impl Schedule {
    /// The step size at iteration `k`.
    #[inline]
    pub fn at(&self, k: u64) -> f64 {
        match *self {
            Schedule::Constant(step) => step,
            Schedule::Decreasing { smoothness, convexity } => {
                1.0 / (2.0 * smoothness + convexity * k as f64 / 12.0)
            }
            Schedule::Polynomial { first, delay, power } => {
                first * crate::simd::exp(-power * crate::simd::ln(1.0 + k as f64 / delay))
            }
        }
    }

    /// The largest step it takes: the one that stability depends on.
    pub fn largest(&self) -> f64 {
        self.at(0)
    }

    /// The schedule with every step multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Schedule {
        match *self {
            Schedule::Constant(step) => Schedule::Constant(step * factor),
            Schedule::Decreasing { smoothness, convexity } => Schedule::Decreasing {
                smoothness: smoothness / factor,
                convexity: convexity / factor,
            },
            Schedule::Polynomial { first, delay, power } => {
                Schedule::Polynomial { first: first * factor, delay, power }
            }
        }
    }
}

/// `x <- x - step * drift + sqrt(2 step temperature) * noise`.
pub fn langevin(x: &mut [f64], step: f64, temperature: f64, drift: &[f64], noise: &[f64]) {
    langevin_scaled(x, step, temperature, (1.0, drift), (1.0, noise));
}

/// `sqrt(2 step temperature)`: what a step multiplies its noise by.
#[inline(always)]
pub fn noise_scale(step: f64, temperature: f64) -> f64 {
    (2.0 * step * temperature).sqrt()
}

wide! {
    /// The same with drift and noise times a number each.
    pub fn langevin_scaled<'a>(x: &'a mut [f64], step: f64, temperature: f64,
        drift: (f64, &'a [f64]), noise: (f64, &'a [f64])) -> () {
        let sigma = noise_scale(step, temperature);
        for ((x, g), z) in x.iter_mut().zip(drift.1).zip(noise.1) {
            *x = (*x - step * (drift.0 * g)) + sigma * (noise.0 * z);
        }
    }
}

/// The standard deviation of a coordinate's error on each of `clients` messages whose sum, times
/// the step, is Langevin noise: `step^2 clients sigma^2 = 2 step T`.
pub fn error_for_noise(step: f64, temperature: f64, clients: usize) -> f64 {
    (2.0 * temperature / (step * clients as f64)).sqrt()
}

/// The standard deviation of what a client adds to each coordinate of its answer, where that is
/// `share` of the Langevin noise and the answer counts `weight` times:
/// `step^2 weight^2 sigma^2 = share 2 step T`.
pub fn error_for_share(step: f64, temperature: f64, share: f64, weight: f64) -> f64 {
    (2.0 * temperature * share / step).sqrt() / weight
}

/// The temperature of the noise that is left to the server, where answers bring an error of this
/// variance already, summed with the squares of their weights: `2 step T' = 2 step T - step^2 v`.
pub fn temperature_left(step: f64, temperature: f64, variance: f64) -> f64 {
    (temperature - 0.5 * step * variance).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_by_hand() {
        let mut x = [1.0, -2.0];
        langevin(&mut x, 0.5, 4.0, &[2.0, 0.0], &[0.0, 3.0]);
        assert_eq!(x, [0.0, 4.0]); // sqrt(2 * 0.5 * 4) = 2
    }

    #[test]
    fn noise_that_clients_bring_and_the_rest_make_the_whole() {
        // Two clients with a share of 0.3 each, which count twice: 0.4 of the noise is left.
        let (step, temperature) = (0.1, 1.5);
        let sigma = error_for_share(step, temperature, 0.3, 2.0);
        let left = temperature_left(step, temperature, 2.0 * (2.0 * sigma).powi(2));
        assert!((left - 0.4 * temperature).abs() < 1e-14, "{left}");
        assert_eq!(temperature_left(step, temperature, 1e9), 0.0);
    }

    #[test]
    fn schedules_by_hand() {
        let theorem = Schedule::Decreasing { smoothness: 5.0, convexity: 12.0 };
        assert_eq!((theorem.at(0), theorem.at(10)), (0.1, 0.05));
        let decay = Schedule::Polynomial { first: 0.3, delay: 2.0, power: 1.0 };
        assert!((decay.at(4) - 0.1).abs() < 1e-15);
        for schedule in [theorem, decay, Schedule::Constant(0.2)] {
            assert!((schedule.scaled(0.5).at(7) - 0.5 * schedule.at(7)).abs() < 1e-16);
        }
    }
}
