//! Judge the weights of an independence chain's proposals, and how long it stays where it is: a
//! heavy tail means that the chain may not have seen where it would stay for long.

use consilience_core::measure::{Summary, pareto_k};

use super::{Code, Warning};
use crate::foretold::foretold_and_actual;
use crate::record::Record;

/// Above this tail of the weights draws are not to be relied on (Vehtari et al. 2024).
const MOST_KHAT: f64 = 0.7;

/// A run whose tails have less than this part of the effective draws that were foretold is stuck
/// somewhere, whatever k-hat says.
const LEAST_PART: f64 = 0.5;
/// Fewer than so many foretold are no forecast.
const LEAST_FORETOLD: f64 = 400.0;

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

/// For how many iterations an independence chain stayed in one place at the longest, where the
/// record has weights: as far as the draws that were kept show.
pub fn longest_stay(record: &Record) -> Option<u64> {
    record.statistics.iter().find(|s| s.name == LOG_WEIGHT)?;
    let (mut longest, chains) = (0, record.draws.chains());
    let length = record.draws.length();
    let rows: Vec<&[f64]> = record.draws.rows().collect();
    for chain in rows.chunks(length.max(1)).take(chains) {
        let mut stays = 0;
        for pair in chain.windows(2) {
            stays = if pair[0] == pair[1] { stays + 1 } else { 0 };
            longest = longest.max(stays);
        }
    }
    Some(longest * record.thin.max(1))
}

/// The warning of tails that were hardly visited, at a k-hat that need not show it.
pub(super) fn stuck(record: &Record, summaries: &[Option<Summary>]) -> Option<Warning> {
    let stay = longest_stay(record)?;
    let (foretold, _) = foretold_and_actual(record, summaries)?;
    let tail = summaries.iter().flatten().map(|s| s.ess_tail).fold(f64::INFINITY, f64::min);
    let short = foretold.draws >= LEAST_FORETOLD && tail < LEAST_PART * foretold.draws;
    short.then(|| {
        let says = format!(
            "the tails have {tail:.0} effective draws where the pilot foretold {:.0}, and a chain \
             stayed in one place for {stay} iterations: there may be more where the chains have \
             not been",
            foretold.draws
        );
        Warning::new(Code::PilotTooHopeful, says)
            .remedy("Use name = \"hmc\", or \"auto\", which goes on with what suits")
            .number("effective_draws", tail)
            .number("foretold", foretold.draws)
            .number("longest_stay", stay as f64)
    })
}
