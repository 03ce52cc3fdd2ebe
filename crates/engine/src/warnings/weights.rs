//! Judge the weights of an independence chain's proposals: a heavy tail means that the chain may
//! not have seen where it would stay for long.

use consilience_core::measure::pareto_k;

use super::{Code, Warning};
use crate::record::Record;

/// Above this tail of the weights draws are not to be relied on (Vehtari et al. 2024).
const MOST_KHAT: f64 = 0.7;

/// What the logarithms of an independence chain's weights are called beside its draws.
pub(crate) const LOG_WEIGHT: &str = "log_weight";

/// The tail of the weights of all proposals of a record, where it has weights.
pub fn khat(record: &Record) -> Option<f64> {
    let weights = record.statistics.iter().find(|s| s.name == LOG_WEIGHT)?;
    Some(pareto_k(&weights.values.concat()))
}

/// The warning of a heavy tail.
pub(super) fn heavy(record: &Record) -> Option<Warning> {
    let khat = khat(record)?;
    (khat > MOST_KHAT || khat.is_nan()).then(|| {
        let says = format!(
            "the weights of the proposals have a heavy tail (k-hat {khat:.2}, above {MOST_KHAT}): \
             the chains may not have been where they would stay for long"
        );
        Warning::new(Code::HeavyWeights, says).remedy("Use name = \"hmc\"").number("khat", khat)
    })
}
