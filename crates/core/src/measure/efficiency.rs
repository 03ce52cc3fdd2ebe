//! Relate the precision of a run to what it sent.

use super::DrawsError;
use super::summary::{mean, sd};

/// The mean squared error of a test function's average, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanSquaredError {
    /// Mean over the runs of the squared error.
    pub value: f64,
    /// Standard error of that mean; NaN for a single run.
    pub error_bar: f64,
}

/// The mean squared error of one estimate a run, each the average of a test function over the run's
/// kept draws, against its expectation.
pub fn mean_squared_error(estimates: &[f64], truth: f64) -> Result<MeanSquaredError, DrawsError> {
    if estimates.is_empty() {
        return Err(DrawsError::Empty);
    }
    if !truth.is_finite() {
        return Err(DrawsError::Reference { value: truth });
    }
    let squares: Vec<f64> =
        estimates.iter().map(|estimate| (estimate - truth) * (estimate - truth)).collect();
    Ok(MeanSquaredError {
        value: mean(&squares),
        error_bar: sd(&squares) / (squares.len() as f64).sqrt(),
    })
}

/// What a run sent, and in how many iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Bits sent in all, as counted by the ledger.
    pub bits: u64,
    /// Iterations of the run.
    pub iterations: u64,
}

/// Bits an iteration of the uncompressed run over bits an iteration of this one; infinite if this
/// one sent nothing, NaN without iterations.
pub fn relative_efficiency(uncompressed: Traffic, this: Traffic) -> f64 {
    let rate = |traffic: Traffic| traffic.bits as f64 / traffic.iterations as f64;
    if uncompressed.iterations == 0 || this.iterations == 0 {
        return f64::NAN;
    }
    rate(uncompressed) / rate(this)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_by_hand() {
        let error = mean_squared_error(&[1.0, 3.0, 2.0, 5.0], 2.0).unwrap(); // squares 1 1 0 9
        assert_eq!(error.value, 2.75);
        // deviations -1.75 -1.75 -2.75 6.25
        assert!((error.error_bar - (52.75f64 / 3.0 / 4.0).sqrt()).abs() < 1e-15);
        assert!(mean_squared_error(&[1.0], 2.0).unwrap().error_bar.is_nan());
        assert_eq!(mean_squared_error(&[], 2.0), Err(DrawsError::Empty));
        assert!(mean_squared_error(&[1.0], f64::NAN).is_err());
        assert!(mean_squared_error(&[1.0, f64::NAN], 2.0).unwrap().value.is_nan());
    }

    #[test]
    fn the_rate_is_per_iteration() {
        let (plain, ours) =
            (Traffic { bits: 6400, iterations: 100 }, Traffic { bits: 1600, iterations: 200 });
        assert_eq!(relative_efficiency(plain, ours), 8.0);
        assert!(relative_efficiency(plain, Traffic { bits: 0, iterations: 0 }).is_nan());
        assert_eq!(relative_efficiency(plain, Traffic { bits: 0, iterations: 5 }), f64::INFINITY);
    }
}
