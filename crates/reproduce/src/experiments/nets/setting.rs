//! Say which net, which rows and which methods: what papers/nets/ and the papers' configs state.

use std::collections::BTreeMap;

use consilience_core::sampler::registry::{self, Settings};
use consilience_core::sampler::{Batch, Local, Participation, Recipe, Synchronise};
use consilience_core::step::Schedule;
use consilience_core::target::Target;
use serde::Deserialize;

use super::methods::shares;
use crate::experiment::Trouble;
use crate::study::Study;

/// The credibilities above which accuracies are counted.
pub(super) const CREDIBILITIES: [f64; 12] =
    [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];

/// A table of methods on one net.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    /// What is learnt from.
    pub data: String,
    /// How many rows are learnt from and tested on, at most.
    pub rows: usize,
    pub test_rows: usize,
    /// Squares of so many pixels are averaged into one.
    pub pool: usize,
    /// Rows of other kinds, and what they are: a data set, or test images that were `rotated`,
    /// `blurred`, made `noisy` or `shuffled`.
    pub elsewhere: BTreeMap<String, String>,
    pub elsewhere_rows: usize,
    pub clients: usize,
    /// How rows are dealt to them.
    pub scheme: String,
    /// The net: a name or a list.
    pub layers: toml::Value,
    /// The law of starts: `he`, `torch` or `prior`.
    pub start: String,
    pub prior_variance: f64,
    /// How many times everything is done: split, start and noise are those of the seed.
    pub seeds: u32,
    /// Which of the rows are run.
    pub methods: Vec<String>,
    /// The rows of the table.
    pub row: BTreeMap<String, Method>,
    /// The one whose predictions are the truth, if any, and how many chains of it there are.
    #[serde(default)]
    pub reference: Option<String>,
    #[serde(default)]
    pub reference_chains: u32,
    /// Which methods are compared seed by seed.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// What this size cannot answer: how names of numbers begin, and why.
    #[serde(default)]
    pub untold: BTreeMap<String, String>,
}

/// One row: a sampler of the registry, or a baseline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Method {
    /// Its name in the registry, or a baseline's.
    pub by: String,
    /// Whether one party has all rows.
    #[serde(default)]
    pub pooled: bool,
    pub step: f64,
    pub batch: usize,
    pub iterations: u64,
    #[serde(default)]
    pub burn_in: u64,
    /// Of so many draws the predictions are averaged.
    pub draws: u64,
    /// From where descent leads, if it begins so.
    #[serde(default)]
    pub warm: Option<Warm>,
    #[serde(default)]
    pub compress: Option<String>,
    #[serde(default)]
    pub participation: Option<f64>,
    /// Every how many rounds, or with which probability, the reference point moves.
    #[serde(default)]
    pub refresh_every: Option<u64>,
    #[serde(default)]
    pub refresh: Option<f64>,
    /// With which probability, or every how many local steps, clients synchronise.
    #[serde(default)]
    pub synchronise: Option<f64>,
    #[serde(default)]
    pub every: Option<u64>,
    #[serde(default)]
    pub correlation: Option<f64>,
    #[serde(default)]
    pub tether: Option<f64>,
    #[serde(default)]
    pub leapfrog: Option<u32>,
}

/// Gradient descent by minibatches of all rows; the rate is that of the mean loss.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Warm {
    pub rate: f64,
    pub batch: usize,
    pub iterations: u64,
}

impl Setting {
    /// What a study states, checked.
    pub(super) fn of(study: &Study) -> Result<Setting, Trouble> {
        let setting: Setting = study.setting()?;
        let complain = |problem: String| Trouble::Setting {
            paper: study.paper.clone(),
            id: study.id.clone(),
            problem,
        };
        let compared = setting.pairs.iter().flatten().chain(&setting.reference);
        if let Some(unknown) =
            setting.methods.iter().chain(compared).find(|name| !setting.row.contains_key(*name))
        {
            return Err(complain(format!("no row is called `{unknown}`")));
        }
        for (name, method) in &setting.row {
            if method.burn_in >= method.iterations || method.draws == 0 {
                return Err(complain(format!("row.{name} keeps no draws")));
            }
        }
        Ok(setting)
    }

    /// The row of a method.
    pub(super) fn method(&self, name: &str) -> Result<&Method, Trouble> {
        self.row.get(name).ok_or_else(|| Trouble::Other(format!("no row is called `{name}`")))
    }

    /// The methods that are run, each with the numbers of its chains: those of a reference are
    /// independent chains, and not paired with anything.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&str, u32)> {
        let of = |name: &str| match self.reference.as_deref() == Some(name) {
            true => self.reference_chains,
            false => self.seeds,
        };
        self.methods.iter().flat_map(move |name| (0..of(name)).map(move |run| (name.as_str(), run)))
    }
}

impl Method {
    /// Whether predictions of a chain are kept row by row.
    pub(super) fn is_reference(&self) -> bool {
        self.by == "hmc"
    }

    /// The sampler of the registry, if it is one.
    pub(super) fn recipe(&self, target: &Target) -> Result<Option<Recipe>, Trouble> {
        let (step, clients) = (Schedule::Constant(self.step), target.clients.len());
        if self.by == "fsgld" {
            let (batch, every) = (Batch::Rows(self.batch), self.every.unwrap_or(1));
            return Ok(Some(Recipe::Local(Local::fsgld(step, shares(target), every, batch))));
        }
        let Some(row) = registry::find(&self.by) else { return Ok(None) };
        let compress = self.compress.as_deref().map(str::parse).transpose();
        let compress = compress.map_err(|error| Trouble::Other(format!("compress: {error}")))?;
        let settings = Settings {
            batch: (self.batch > 0).then_some(Batch::Rows(self.batch)),
            refresh_every: self.refresh_every,
            refresh_probability: self.refresh,
            participation: self.participation.map(|p| Participation::Bernoulli(vec![p; clients])),
            synchronise: match (self.every, self.synchronise) {
                (Some(every), _) => Some(Synchronise::Every(every)),
                (None, p) => p.map(Synchronise::Randomly),
            },
            correlation: self.correlation,
            tether: self.tether,
            compress: compress.map(|one| vec![one]),
            leapfrog: self.leapfrog,
            ..Settings::default()
        };
        Ok(Some(row.recipe(step, &settings, clients, target.dim(), None)))
    }

    /// Looks at draws: at the first from every so many iterations on.
    pub(super) fn due(&self) -> Due {
        let each = ((self.iterations - self.burn_in) / self.draws).max(1);
        Due { from: self.burn_in, each, seen: 0 }
    }
}

/// Says which draws are looked at.
pub(super) struct Due {
    from: u64,
    each: u64,
    seen: u64,
}

impl Due {
    /// Whether the draw after so many iterations is.
    pub(super) fn is(&mut self, iteration: u64) -> bool {
        let place = iteration.saturating_sub(self.from) / self.each;
        let due = iteration > self.from && place > self.seen;
        if due {
            self.seen = place;
        }
        due
    }
}
