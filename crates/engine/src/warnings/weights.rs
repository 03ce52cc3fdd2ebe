//! Judge the weights of an independence chain's proposals, and how long it stays where it is: a
//! heavy tail means that the chain may not have seen where it would stay for long.

use consilience_core::measure::{Summary, pareto_k, unseen};

use super::{Code, Warning};
use crate::foretold::{foretold_and_actual, least_draws};
use crate::record::Record;

/// Above this tail of the weights draws are not to be relied on (Vehtari et al. 2024), unless
/// what the chains may have missed is nothing beside their Monte Carlo error.
pub const MOST_KHAT: f64 = 0.7;
/// What they may have missed is taken to lie so many posterior standard deviations away.
const AWAY: f64 = 5.0;

/// A run whose tails have less than this part of the effective draws that were foretold is stuck
/// somewhere, whatever k-hat says.
const LEAST_PART: f64 = 0.5;
/// Fewer than so many foretold are no forecast.
const LEAST_FORETOLD: f64 = 400.0;

/// What the logarithms of an independence chain's weights are called beside its draws.
pub(crate) const LOG_WEIGHT: &str = "log_weight";

/// The tail of the weights of proposals.
///
/// k-hat says how fast the largest weights grow with their number, not how large they are. Of a few
/// thousand proposals that resemble the posterior but for a hundredth of it, it is 0.7 to 1 where
/// no weight is beyond ten times the mean, so that no chain ever stays for long. Hence both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightTail {
    /// k-hat.
    pub(crate) khat: f64,
    /// What part of the posterior is expected where weights are larger than any of half as many.
    unseen: f64,
}

impl WeightTail {
    /// Of weights that are given by their logarithms.
    pub(crate) fn of(log_weights: &[f64]) -> Self {
        WeightTail { khat: pareto_k(log_weights), unseen: unseen(log_weights) }
    }

    /// Of proposals that cannot be made.
    pub(crate) fn none() -> Self {
        WeightTail { khat: f64::INFINITY, unseen: 1.0 }
    }

    /// Why so many effective draws are not to be relied on, if so: what the chains may have missed
    /// could shift a mean by more than its standard error.
    pub(crate) fn trouble(self, effective: f64) -> Option<String> {
        let WeightTail { khat, unseen } = self;
        (khat.is_nan() || (khat > MOST_KHAT && !self.is_small(effective))).then(|| {
            format!(
                "the weights of its proposals have too heavy a tail (k-hat {khat:.2}, above \
                 {MOST_KHAT}; {:.1}% of the posterior may lie where no proposal has been)",
                100.0 * unseen
            )
        })
    }

    /// What a reader should make of it, by so many effective draws.
    fn in_words(self, effective: f64) -> String {
        let WeightTail { khat, unseen } = self;
        let part = 100.0 * unseen;
        if khat <= MOST_KHAT {
            return format!("k-hat {khat:.2}, no heavy tail (that begins at {MOST_KHAT})");
        }
        match self.trouble(effective) {
            None => format!(
                "k-hat {khat:.2}: a heavy tail of weights that are too small to matter (about \
                 {part:.2}% of the posterior may lie where no proposal has been, which shifts no \
                 mean by its standard error)"
            ),
            Some(_) => format!(
                "k-hat {khat:.2}, too heavy a tail to be relied on ({part:.1}% of the posterior \
                 may lie where no proposal has been)"
            ),
        }
    }

    /// Whether what so many effective draws may have missed shifts no mean by more than its
    /// standard error.
    fn is_small(self, effective: f64) -> bool {
        AWAY * self.unseen * effective.max(1.0).sqrt() <= 1.0
    }
}

fn tail(record: &Record) -> Option<WeightTail> {
    let weights = record.statistics.iter().find(|s| s.name == LOG_WEIGHT)?;
    Some(WeightTail::of(&weights.values.concat()))
}

/// The tail of the weights of all proposals of a record, where it has weights.
pub fn khat(record: &Record) -> Option<f64> {
    tail(record).map(|tail| tail.khat)
}

/// What a reader should make of the tail of the weights of all proposals, where a record has
/// weights.
pub fn weights_in_words(record: &Record, summaries: &[Option<Summary>]) -> Option<String> {
    let tail = tail(record)?;
    Some(tail.in_words(least_draws(summaries).unwrap_or(f64::INFINITY)))
}

/// The warning of a heavy tail; a note where it is too little to matter.
pub(super) fn heavy(record: &Record, summaries: &[Option<Summary>]) -> Option<Warning> {
    let draws = least_draws(summaries).unwrap_or(f64::INFINITY);
    warning(&record.sampler.0, tail(record)?, draws)
}

/// What so many effective draws of a sampler with such a tail give reason to say.
fn warning(sampler: &str, tail: WeightTail, effective: f64) -> Option<Warning> {
    let WeightTail { khat, unseen } = tail;
    let warning = if let Some(why) = tail.trouble(effective) {
        Warning::new(Code::HeavyWeights, format!("{sampler} is not to be relied on: {why}"))
            .remedy("Use name = \"hmc\"")
    } else if khat > MOST_KHAT {
        let says = format!(
            "the weights of {sampler}'s proposals have a heavy tail (k-hat {khat:.2}, above \
             {MOST_KHAT}); about {:.2}% of the posterior may lie where no proposal has been, which \
             is too little to shift a mean by its standard error",
            100.0 * unseen
        );
        Warning::new(Code::HeavyWeightsKept, says)
            .remedy("name = \"hmc\" does without such proposals, at more exchanges")
    } else {
        return None;
    };
    Some(warning.number("khat", khat).number("unseen", unseen))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights `1 + scale u^-0.8` at equidistant `u`: k-hat is that of the tail whatever the scale,
    /// and so is a tail of the same shape that decides over everything.
    #[test]
    fn a_heavy_tail_matters_where_its_weights_do() {
        let weights = |scale: f64| -> Vec<f64> {
            let u = (0..4000).map(|k| (f64::from(k) + 0.5) / 4000.0);
            u.map(|u| (1.0 + scale * u.powf(-0.8)).ln()).collect()
        };
        let (light, heavy) = (WeightTail::of(&weights(0.004)), WeightTail::of(&weights(4.0)));
        assert!(light.khat > MOST_KHAT && heavy.khat > MOST_KHAT, "{light:?} {heavy:?}");
        assert!(light.trouble(2000.0).is_none(), "{light:?}");
        assert!(heavy.trouble(2000.0).unwrap_or_default().contains("k-hat"), "{heavy:?}");
        // what is no more than a standard error of few draws is more than that of many
        assert!(light.trouble(1e7).is_some(), "{light:?}");
        assert!(WeightTail::none().trouble(0.0).is_some());
        let words = |tail: WeightTail| tail.in_words(2000.0);
        assert!(words(light).contains("too small to matter"), "{}", words(light));
        assert!(words(heavy).contains("too heavy a tail"), "{}", words(heavy));
        assert!(words(WeightTail::of(&[0.0; 99])).contains("-1.00, no heavy tail"));
        // above the limit something is said in any case
        let code = |tail, draws| warning("imh", tail, draws).map(|w| w.code);
        assert_eq!(code(light, 2000.0), Some(Code::HeavyWeightsKept));
        assert_eq!(code(light, 1e7), Some(Code::HeavyWeights));
        assert_eq!(code(heavy, 2000.0), Some(Code::HeavyWeights));
        let even = (0..4000).map(|k| f64::from(k) / 4000.0).collect::<Vec<_>>();
        assert_eq!(code(WeightTail::of(&even), 2000.0), None);
        // all alike, and three that are a little larger: nothing that matters has been missed
        let alike =
            |more: f64| -> Vec<f64> { (0..4000).map(|k| if k < 3 { more } else { 0.0 }).collect() };
        assert_eq!(code(WeightTail::of(&alike(0.0)), 2000.0), None);
        assert_eq!(code(WeightTail::of(&alike(0.5)), 300.0), Some(Code::HeavyWeightsKept));
        assert_eq!(code(WeightTail::of(&alike(9.0)), 300.0), Some(Code::HeavyWeights));
        assert!(WeightTail::of(&[0.0, f64::NAN]).trouble(10.0).is_some());
    }
}
