//! Compare what a net says with what was seen.

use super::{GROUP, Lanes};
use crate::model::real::Real;
use crate::simd::{exp, ln};

/// Slopes of minus the log-probability of labels: probabilities, less 1 at the label. Rows from
/// `count` on have none.
pub(in super::super) fn class_slopes<L: Lanes>(
    lanes: L,
    logits: &[L::V],
    labels: [usize; GROUP],
    count: usize,
    slopes: &mut [L::V],
) {
    probabilities(lanes, logits, slopes);
    let slopes: &mut [[L::T; GROUP]] = pulp::bytemuck::cast_slice_mut(slopes);
    for (lane, label) in labels[..count].iter().enumerate() {
        slopes[*label][lane] = slopes[*label][lane] - L::T::ONE;
    }
    for class in slopes {
        class[count..].fill(L::T::default());
    }
}

/// The probabilities of all classes.
pub(in super::super) fn probabilities<L: Lanes>(lanes: L, logits: &[L::V], out: &mut [L::V]) {
    let mut most = [L::T::LEAST; GROUP];
    for logit in logits {
        let logit = lanes.array(*logit);
        for lane in 0..GROUP {
            most[lane] = if logit[lane] > most[lane] { logit[lane] } else { most[lane] };
        }
    }
    let (most, mut sum) = (lanes.vector(most), lanes.zero());
    for (out, logit) in out.iter_mut().zip(logits) {
        *out = lanes.zip(*logit, most, |t, most| (t - most).exp());
        sum = lanes.zip(sum, *out, |sum, e| sum + e);
    }
    for out in out {
        *out = lanes.zip(*out, sum, |e, sum| e / sum);
    }
}

/// Minus the log-probability of one row's label.
pub(in super::super) fn class_loss<L: Lanes>(
    lanes: L,
    logits: &[L::V],
    lane: usize,
    label: usize,
) -> f64 {
    let logit = |v: &L::V| lanes.array(*v)[lane].widen();
    let most = logits.iter().fold(f64::NEG_INFINITY, |most, t| most.max(logit(t)));
    let sum: f64 = logits.iter().map(|t| exp(logit(t) - most)).sum();
    most + ln(sum) - logit(&logits[label])
}

/// Slopes of `(y - f)^2 / (2 variance)`. Rows from `count` on have none.
pub(in super::super) fn number_slopes<L: Lanes>(
    lanes: L,
    output: L::V,
    responses: [f64; GROUP],
    precision: f64,
    count: usize,
) -> L::V {
    let output = lanes.array(output);
    let mut slopes = [L::T::default(); GROUP];
    for lane in 0..count {
        slopes[lane] = L::T::narrow((output[lane].widen() - responses[lane]) * precision);
    }
    lanes.vector(slopes)
}
