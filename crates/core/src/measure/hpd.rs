//! Compare highest posterior density regions by the one number that bounds them.
//!
//! The region of mass `1 - a` is where the potential `U = -log pi` lies below `h_a`. The papers
//! (QLSD sec. 4, FALD sec. 10.2) report the relative error of `h_a`, whose value depends on the
//! additive constants of `U`: give every method the same, and print which.

use super::{DrawsError, open_probability, quantile};

/// The bound `h_a`: the `1 - a` quantile of the potential over the draws.
pub fn hpd_threshold(potentials: &[f64], a: f64) -> Result<f64, DrawsError> {
    quantile(potentials, 1.0 - open_probability(a)?)
}

/// The relative error `|h_a / h_a_ref - 1|` of draws against reference draws; a reference bound of
/// 0 is refused.
pub fn hpd_error(potentials: &[f64], reference: &[f64], a: f64) -> Result<f64, DrawsError> {
    let (ours, theirs) = (hpd_threshold(potentials, a)?, hpd_threshold(reference, a)?);
    if theirs == 0.0 {
        return Err(DrawsError::Reference { value: theirs });
    }
    Ok((ours / theirs - 1.0).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let reference: Vec<f64> = (0..=100).map(f64::from).collect();
        let potentials: Vec<f64> = reference.iter().map(|u| 1.25 * u).collect();
        assert_eq!(hpd_threshold(&reference, 0.01).unwrap(), 99.0);
        assert!((hpd_error(&potentials, &reference, 0.01).unwrap() - 0.25).abs() < 1e-15);
        assert!((hpd_error(&reference, &potentials, 0.2).unwrap() - 0.2).abs() < 1e-15);
    }

    #[test]
    fn what_has_no_answer_is_refused_and_nan_is_passed_on() {
        assert_eq!(hpd_error(&[], &[1.0], 0.01), Err(DrawsError::Empty));
        assert_eq!(hpd_error(&[1.0], &[0.0], 0.01), Err(DrawsError::Reference { value: 0.0 }));
        assert!(hpd_error(&[1.0], &[1.0], 1.0).is_err());
        assert!(hpd_error(&[f64::NAN, 1.0], &[1.0], 0.01).unwrap().is_nan());
    }
}
