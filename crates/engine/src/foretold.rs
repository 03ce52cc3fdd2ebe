//! Hold what an exact sampler was foretold to give and to cost against what it gave and cost.

use consilience_core::measure::Summary;

use crate::record::Record;

/// Effective draws, exchanges and bytes: foretold, or actual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yield {
    /// Effective draws of the worst parameter, bulk or tail.
    pub draws: f64,
    /// Exchanges of a chain, all chains side by side.
    pub exchanges: f64,
    /// Bytes between the server and all sites, both ways.
    pub bytes: f64,
}

/// What sampling for as long as this run did was foretold to give and to cost, and what it did;
/// surveys and pilots not included. `None` where nothing was foretold, or the run was stopped.
pub fn foretold_and_actual(
    record: &Record,
    summaries: &[Option<Summary>],
) -> Option<(Yield, Yield)> {
    let is_it = |name: &str| name == record.sampler.0;
    let mut candidates = record.choice.iter().flat_map(|choice| &choice.candidates);
    let one = candidates.find(|one| is_it(&one.sampler) && one.iterations > 0.0)?;
    let least = least_draws(summaries)?;
    if record.interrupted || one.efficiency <= 0.0 {
        return None;
    }
    let chains = record.drawn().0 as f64;
    let longer = chains * record.iterations as f64 / one.iterations;
    let kept = chains * record.iterations.saturating_sub(record.burn_in) as f64;
    let foretold = Yield {
        draws: one.efficiency * kept,
        exchanges: (one.exchanges * longer).round().max(1.0),
        bytes: one.bytes * longer,
    };
    let actual = Yield {
        draws: least,
        exchanges: record.exchanges.1 as f64 / chains,
        bytes: record.sent.iter().map(|sent| sent.bits).sum::<u64>() as f64 / 8.0,
    };
    Some((foretold, actual))
}

/// The fewest effective draws of a parameter, bulk or tail.
pub fn least_draws(summaries: &[Option<Summary>]) -> Option<f64> {
    let each = summaries.iter().flatten().map(|s| s.ess_bulk.min(s.ess_tail));
    Some(each.fold(f64::INFINITY, f64::min)).filter(|least| least.is_finite() && *least > 0.0)
}
