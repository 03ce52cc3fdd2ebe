//! Measure the bias of draws by chains of half the step, along the same paths.
//!
//! To first order the bias of a sampler is proportional to its step. With `x` drawn at step `h` and
//! `y` at `h/2`, `2 E f(y) - E f(x)` has none of that order. Both chains follow one Brownian path,
//! so that `x - y` varies little, and the difference is known far better than either mean.

use consilience_core::measure::{Chains, ess_mean};
use serde::{Deserialize, Serialize};

use crate::draws::Draws;
use crate::warnings::{Code, Warning};

/// The bias of means beyond which people are warned, in posterior standard deviations, and that of
/// standard deviations, relatively; so many standard errors must be beyond it.
const ALARM: f64 = 0.1;
const SURE: f64 = 2.0;

/// What draws at half the step say of the bias, parameter by parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Halved {
    /// Half the step.
    pub step: f64,
    /// Means without the bias of first order, and their standard errors.
    pub mean: Vec<f64>,
    /// The standard errors of these.
    pub mean_error: Vec<f64>,
    /// Standard deviations without the bias of first order.
    pub sd: Vec<f64>,
    /// The standard errors of these.
    pub sd_error: Vec<f64>,
    /// How far the means of the draws are off, in posterior standard deviations.
    pub mean_bias: Vec<f64>,
    /// The standard errors of these.
    pub mean_bias_error: Vec<f64>,
    /// The standard deviations of the draws over those of the posterior.
    pub sd_ratio: Vec<f64>,
    /// The standard errors of these.
    pub sd_ratio_error: Vec<f64>,
}

impl Halved {
    /// From the draws, and those at half the step.
    pub fn new(draws: &Draws, halved: &Draws, step: f64) -> Result<Self, String> {
        let length = draws.length().min(halved.length());
        if draws.chains() != halved.chains() || length < 10 {
            return Err(format!(
                "there are {} and {} draws of each chain to compare, and 10 are needed",
                draws.length(),
                halved.length()
            ));
        }
        let mut all = Halved {
            step,
            mean: Vec::new(),
            mean_error: Vec::new(),
            sd: Vec::new(),
            sd_error: Vec::new(),
            mean_bias: Vec::new(),
            mean_bias_error: Vec::new(),
            sd_ratio: Vec::new(),
            sd_ratio_error: Vec::new(),
        };
        for k in 0..draws.dim() {
            all.add(&draws.parameter(k), &halved.parameter(k), length)?;
        }
        Ok(all)
    }

    fn add(&mut self, x: &[Vec<f64>], y: &[Vec<f64>], length: usize) -> Result<(), String> {
        let centre = |all: &[Vec<f64>]| {
            let sum: f64 = all.iter().flat_map(|chain| &chain[..length]).sum();
            sum / (all.len() * length) as f64
        };
        let (x_mean, y_mean) = (centre(x), centre(y));
        let mean = estimate(x, y, length, |x, y| 2.0 * y - x)?;
        let shift = estimate(x, y, length, |x, y| 2.0 * (x - y))?;
        let square = |x: f64, mean: f64| (x - mean).powi(2);
        let variance = estimate(x, y, length, |x, y| 2.0 * square(y, y_mean) - square(x, x_mean))?;
        let wider = estimate(x, y, length, |x, y| 2.0 * (square(x, x_mean) - square(y, y_mean)))?;
        if variance.0 <= 0.0 {
            return Err("the step is so large that its half says nothing of the limit".into());
        }
        let sd = variance.0.sqrt();
        self.mean.push(mean.0);
        self.mean_error.push(mean.1);
        self.sd.push(sd);
        self.sd_error.push(0.5 * variance.1 / sd);
        self.mean_bias.push(shift.0 / sd);
        self.mean_bias_error.push(shift.1 / sd);
        // Where the variance is (1 + w) times that of the posterior.
        let ratio = (1.0 + wider.0 / variance.0).max(0.0).sqrt();
        self.sd_ratio.push(ratio);
        self.sd_ratio_error.push(0.5 * wider.1 / (variance.0 * ratio.max(f64::MIN_POSITIVE)));
        Ok(())
    }

    /// The largest bias of a mean and of a standard deviation, each with its parameter.
    pub fn worst(&self) -> ((f64, usize), (f64, usize)) {
        let largest = |all: &mut dyn Iterator<Item = f64>| {
            all.enumerate().fold(
                (0.0, 0),
                |best, (k, bias)| {
                    if bias > best.0 { (bias, k) } else { best }
                },
            )
        };
        (
            largest(&mut self.mean_bias.iter().map(|bias| bias.abs())),
            largest(&mut self.sd_ratio.iter().map(|ratio| (ratio - 1.0).abs())),
        )
    }

    /// The warning of a bias that is large beyond doubt.
    pub(crate) fn warning(
        &self,
        parameters: &[String],
        step: f64,
        remedy: &str,
    ) -> Option<Warning> {
        let name = |k: usize| parameters.get(k).map_or("", String::as_str);
        let mut how = Vec::new();
        let ((mean, at), (sd, wide)) = self.worst();
        if mean - SURE * self.mean_bias_error.get(at)? > ALARM {
            how.push(format!("means up to {mean:.2} posterior sd off (`{}`)", name(at)));
        }
        if sd - SURE * self.sd_ratio_error.get(wide)? > ALARM {
            let percent = 100.0 * sd;
            how.push(format!("standard deviations up to {percent:.0}% off (`{}`)", name(wide)));
        }
        (!how.is_empty()).then(|| {
            let says = format!(
                "the draws at step {step:.1e} are biased, as chains of half the step show: {}",
                how.join(", ")
            );
            Warning::new(Code::BiasMeasured, says)
                .remedy(format!("Use the extrapolated numbers, or a smaller step. {remedy}"))
                .number("step", step)
                .number("mean_shift_sd", mean)
                .number("sd_ratio_off", sd)
        })
    }
}

/// The mean of a function of both draws, and its standard error.
fn estimate(
    x: &[Vec<f64>],
    y: &[Vec<f64>],
    length: usize,
    f: impl Fn(f64, f64) -> f64,
) -> Result<(f64, f64), String> {
    let series: Vec<Vec<f64>> = x
        .iter()
        .zip(y)
        .map(|(x, y)| x.iter().zip(y).take(length).map(|(x, y)| f(*x, *y)).collect())
        .collect();
    let slices: Vec<&[f64]> = series.iter().map(Vec::as_slice).collect();
    let chains = Chains::new(&slices).map_err(|error| error.to_string())?;
    let count = (series.len() * length) as f64;
    let mean = series.iter().flatten().sum::<f64>() / count;
    let squares: f64 = series.iter().flatten().map(|e| (e - mean).powi(2)).sum();
    let ess = ess_mean(&chains).min(count);
    let error = (squares / (count - 1.0) / ess).sqrt();
    Ok((mean, if error.is_nan() { 0.0 } else { error }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use consilience_core::rng::{ClientId, Purpose, Seed};

    /// Draws of means `1 + h` and standard deviations `2 sqrt(1 + h)`, of one normal each.
    fn drawn(h: f64) -> Draws {
        let chain = |c: u32| {
            let mut chain = vec![0.0; 4000];
            Seed::new(3).stream(Purpose::Data, ClientId(c), 0).normals(&mut chain);
            chain.iter_mut().for_each(|z| *z = 1.0 + h + 2.0 * (1.0 + h).sqrt() * *z);
            chain
        };
        Draws::from_chains(vec![chain(0), chain(1)], 1)
    }

    #[test]
    fn a_bias_of_first_order_is_measured_and_removed() {
        let found = Halved::new(&drawn(0.4), &drawn(0.2), 0.2).unwrap();
        let near = |what: &str, found: f64, law: f64, error: f64| {
            assert!(error > 0.0, "{what}");
            assert!((found - law).abs() < 4.9 * error, "{what}: {found} +- {error}, by law {law}");
        };
        near("mean", found.mean[0], 1.0, found.mean_error[0]);
        near("sd", found.sd[0], 2.0, found.sd_error[0]);
        near("bias of the mean", found.mean_bias[0], 0.2, found.mean_bias_error[0]);
        near("ratio of sds", found.sd_ratio[0], 1.4f64.sqrt(), found.sd_ratio_error[0]);
    }
}
