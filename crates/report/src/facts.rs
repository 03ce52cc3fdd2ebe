//! Work out what the report says: a summary of each parameter, and what to warn of.

use consilience_core::measure::{
    Chains, Gaussian, Interval, Summary, mean, quantile, sd, summarise,
};
use consilience_engine::draws::Draws;
use consilience_engine::record::Record;
pub use consilience_engine::warnings::{LEAST_ESS, MOST_RHAT};
use consilience_engine::warnings::{Warning, of_draws};

/// One parameter.
pub struct Parameter {
    /// Its place among the parameters.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// What the draws say; NaN where they are too few.
    pub summary: Summary,
    /// The middle half of the draws.
    pub half: (f64, f64),
    /// The same from pooled data, where it was made.
    pub pooled: Option<Summary>,
}

impl Parameter {
    /// How far the mean lies from the pooled one, in pooled standard deviations.
    pub fn distance(&self) -> Option<f64> {
        self.pooled.as_ref().map(|pooled| (self.summary.mean - pooled.mean) / pooled.sd)
    }

    /// R-hat for sorting: what is not known is the worst.
    pub fn suspicion(&self) -> f64 {
        if self.summary.rhat.is_nan() { f64::INFINITY } else { self.summary.rhat }
    }
}

/// Everything that the sections share.
pub struct Facts<'a> {
    /// The run.
    pub record: &'a Record,
    /// Its chains.
    pub chains: usize,
    /// The draws of each.
    pub length: usize,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// What the reader should know first.
    pub warnings: Vec<Warning>,
}

impl<'a> Facts<'a> {
    /// Work them out.
    pub fn new(record: &'a Record) -> Self {
        let (names, shown) = record.shown();
        let draws = &*shown;
        let length = if draws.dim() == 0 { 0 } else { draws.length() };
        let chains = if record.streamed.is_some() { 0 } else { draws.chains() };
        let name =
            |k: usize| names.get(k).cloned().unwrap_or_else(|| format!("parameter {}", k + 1));
        let parameters = (0..draws.dim().max(names.len()))
            .map(|index| {
                let own = column(draws, index);
                let all = own.concat();
                let half = (
                    quantile(&all, 0.25).unwrap_or(f64::NAN),
                    quantile(&all, 0.75).unwrap_or(f64::NAN),
                );
                let pooled = record
                    .reference
                    .as_ref()
                    .map(|reference| column(reference, index))
                    .filter(|pooled| !pooled.concat().is_empty());
                Parameter {
                    index,
                    name: name(index),
                    summary: summary(&own),
                    half,
                    pooled: pooled.map(|p| summary(&p)),
                }
            })
            .collect();
        let mut facts = Facts { record, chains, length, parameters, warnings: Vec::new() };
        facts.warnings = facts.find_warnings();
        facts
    }

    /// The parameters, the most suspicious first.
    pub fn worst_first(&self) -> Vec<&Parameter> {
        let mut sorted: Vec<&Parameter> = self.parameters.iter().collect();
        sorted.sort_by(|a, b| b.suspicion().total_cmp(&a.suspicion()));
        sorted
    }

    /// One parameter's draws, chain by chain.
    pub fn draws(&self, parameter: &Parameter) -> Vec<Vec<f64>> {
        column(&self.record.shown().1, parameter.index)
    }

    /// What was sent in a direction while sampling, in bits.
    pub fn sent(&self, direction: &str) -> u64 {
        self.record.sent.iter().filter(|s| s.direction == direction).map(|s| s.bits).sum()
    }

    /// Wasserstein's distance between the Gaussians that fit the draws and the pooled draws, in
    /// units in which pooled standard deviations are 1.
    pub fn w2(&self) -> Option<f64> {
        let reference = self.record.reference.as_ref()?;
        let d = self.record.draws.dim();
        if d == 0 || d > 64 || reference.dim() != d || self.length == 0 || reference.length() == 0 {
            return None;
        }
        let scales: Vec<f64> =
            self.parameters.iter().filter_map(|p| p.pooled.map(|s| s.sd)).collect();
        if scales.len() != d || !scales.iter().all(|s| s.is_finite() && *s > 0.0) {
            return None;
        }
        let fit = |draws: &Draws| {
            let scaled: Vec<f64> = draws
                .rows()
                .flat_map(|row| row.iter().zip(&scales).map(|(x, s)| x / s).collect::<Vec<_>>())
                .collect();
            Gaussian::of_draws(&scaled, d).ok()
        };
        fit(&self.record.draws)?.w2(&fit(reference)?).ok().filter(|w2| w2.is_finite())
    }

    fn find_warnings(&self) -> Vec<Warning> {
        let mut warnings = self.record.warnings.clone();
        warnings.extend(of_draws(self.record));
        unique(warnings)
    }
}

fn unique(warnings: Vec<Warning>) -> Vec<Warning> {
    let mut once: Vec<Warning> = Vec::new();
    for warning in warnings {
        if !once.contains(&warning) {
            once.push(warning);
        }
    }
    once
}

fn column(draws: &Draws, index: usize) -> Vec<Vec<f64>> {
    if index < draws.dim() { draws.parameter(index) } else { Vec::new() }
}

fn summary(chains: &[Vec<f64>]) -> Summary {
    let slices: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
    let full =
        Chains::new(&slices).ok().and_then(|chains| summarise(&chains, Interval::default()).ok());
    full.unwrap_or_else(|| {
        let all = chains.concat();
        let unknown = f64::NAN;
        let (lower, upper) = Interval::default().of(&all).unwrap_or((unknown, unknown));
        let (rhat, ess_bulk, ess_tail, mcse_mean, mcse_sd) =
            (unknown, unknown, unknown, unknown, unknown);
        Summary {
            mean: mean(&all),
            sd: sd(&all),
            lower,
            upper,
            rhat,
            ess_bulk,
            ess_tail,
            mcse_mean,
            mcse_sd,
        }
    })
}
