//! Hold everything that a run leaves behind, as plain data: what a run directory stores and a
//! report shows.

use std::borrow::Cow;

use consilience_core::protocol::{Direction, Kind, Ledger};
use consilience_core::rng::ClientId;
use serde::{Deserialize, Serialize};

use crate::calibration::Calibration;
use crate::check::{self, Check};
use crate::config::Config;
use crate::draws::{Draws, Streamed};
use crate::encoding::Encoding;
use crate::halved::Halved;
use crate::influence::Influence;
use crate::loo::{self, Loo};
use crate::plan::{Choice, Plan};
use crate::problem::Problem;
use crate::reference::{Reference, rows_digest};
use crate::run::Outcome;
use crate::statistics::{is_watched, watched};
use crate::warnings::{Code, Warning};

/// A finished (or interrupted) run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The version of the program that made it.
    pub version: String,
    /// When it was made, in UTC, such as `2026-01-31T12:00:00Z`. The caller reads the clock.
    pub created: String,
    /// The config as it was resolved, in TOML.
    pub config: String,
    /// The sampler's name and what it does.
    pub sampler: (String, String),
    /// The master seed.
    pub seed: u64,
    /// The first (and largest) step.
    pub step: f64,
    /// How many effective draws the run was to give, where that decided how long it is.
    pub effective_draws: Option<u64>,
    /// Iterations of each chain, and how many of them were not kept.
    pub iterations: u64,
    /// Iterations that were not kept.
    pub burn_in: u64,
    /// Every how many draws one was kept.
    pub thin: u64,
    /// How long sampling took, in seconds.
    pub seconds: f64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// The parameters' names.
    pub parameters: Vec<String>,
    /// What the posterior is, in words; `None` in runs that an older version kept.
    pub target: Option<TargetWords>,
    /// The kept draws; none where they were streamed to disk and are too many to hold.
    pub draws: Draws,
    /// Draws that are on disk alone.
    pub streamed: Option<Streamed>,
    /// What was recorded beside every draw.
    pub statistics: Vec<Statistic>,
    /// What was tried and chosen before sampling, where something was.
    pub choice: Option<Choice>,
    /// How far the draws are foretold to be off, where that is known.
    pub bias: Option<Bias>,
    /// How many exchanges came before sampling, and how many all chains had.
    pub exchanges: (u64, u64),
    /// The sites.
    pub sites: Vec<SiteRecord>,
    /// A hash of the rows of each site, as they are coded; empty where they were not all here, and
    /// where runs are private.
    pub row_hashes: Vec<String>,
    /// What was sent, by direction and kind.
    pub sent: Vec<SentRecord>,
    /// What the same messages would have cost at 32 bits a coordinate, up and down, in bits.
    pub uncompressed: (u64, u64),
    /// What was sent before sampling (moments and surveys), up and down, in bits.
    pub before_sampling: (u64, u64),
    /// Row gradients that were evaluated.
    pub rows_evaluated: u64,
    /// How the data was encoded, in sentences.
    pub notes: Vec<String>,
    /// What the user should know first.
    pub warnings: Vec<Warning>,
    /// Draws from pooled data, where they were made.
    pub reference: Option<Draws>,
    /// How they were made, where that is known.
    pub reference_by: Option<String>,
    /// How raw rows became numbers, where they did not come as such.
    pub encoding: Option<Encoding>,
    /// How often predictions are right, where the model has labels and somebody asked.
    pub calibration: Option<Calibration>,
    /// How far the mean would move without each site, where somebody asked.
    pub influence: Option<Influence>,
    /// Whether responses that the model would draw look like those that there are, where somebody
    /// asked.
    pub check: Option<Check>,
    /// How well rows are predicted that were left out, where somebody asked.
    pub loo: Option<Loo>,
}

/// The model and the prior, in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetWords {
    /// The model, and what it is of.
    pub model: String,
    /// The prior.
    pub prior: String,
}

impl TargetWords {
    fn of(problem: &Problem) -> Option<Self> {
        let stated = |field: &str| {
            let found = problem.statement.fields().find(|(name, _)| *name == field);
            found.map(|(_, words)| words.to_owned())
        };
        Some(TargetWords { model: stated("model")?, prior: stated("prior")? })
    }
}

/// How far draws are foretold to be off, parameter by parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bias {
    /// Whether the sampler is exact: then there is none.
    pub exact: bool,
    /// By how many posterior standard deviations means are off.
    pub mean: Vec<f64>,
    /// Standard deviations over those of the posterior.
    pub sd: Vec<f64>,
    /// The same as measured, where chains of half the step were run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Halved>,
}

impl Bias {
    fn of(plan: &Plan) -> Option<Self> {
        let d = plan.target.dim();
        if plan.recipe.family().is_exact() {
            let (mean, sd) = (vec![0.0; d], vec![1.0; d]);
            return Some(Bias { exact: true, mean, sd, measured: None });
        }
        let forecast = plan.forecast.as_ref()?;
        let (mean, sd) = (forecast.mean.clone(), forecast.sd.clone());
        Some(Bias { exact: false, mean, sd, measured: None })
    }
}

/// What only the caller knows of a run: its program, its clock.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The version of the program.
    pub version: String,
    /// When it was made, in UTC, such as `2026-01-31T12:00:00Z`.
    pub created: String,
    /// How long sampling took, in seconds.
    pub seconds: f64,
}

impl Record {
    /// The record of a run that has just ended. Its warnings are those of the plan and of the draws
    /// ([`crate::warnings`]); whoever asks for calibration and influence adds to them.
    pub fn new(
        made: Circumstances,
        config: &Config,
        problem: &Problem,
        plan: &Plan,
        outcome: Outcome,
        reference: Option<Reference>,
    ) -> Self {
        let ledger = &outcome.ledger;
        let model = config.target.model.of_rows();
        let of_draws = model
            .map(|model| watched(&*model, problem.held_out.as_ref(), &outcome.draws))
            .unwrap_or_default();
        let (up, down) = plan.survey_bits();
        let both = [(Direction::Up, "up"), (Direction::Down, "down")];
        let sent = both.iter().flat_map(|(direction, name)| {
            Kind::ALL.into_iter().filter(|kind| ledger.vectors(*direction, *kind) > 0).map(|kind| {
                SentRecord {
                    direction: (*name).into(),
                    kind: kind.name().into(),
                    bits: ledger.bits(*direction, kind),
                    vectors: ledger.vectors(*direction, kind),
                }
            })
        });
        let plain = |direction| {
            let vectors: u64 = Kind::ALL
                .into_iter()
                .filter(|k| ![Kind::Header, Kind::Potential].contains(k))
                .map(|k| ledger.vectors(direction, k))
                .sum();
            // Values of the potential are numbers, and not compressed.
            vectors * problem.parameters.len() as u64 * 32
                + ledger.bits(direction, Kind::Header)
                + ledger.bits(direction, Kind::Potential)
        };
        let site = |(i, (name, client)): (
            usize,
            (&String, &std::sync::Arc<dyn consilience_core::model::Model>),
        )| {
            let bits = |direction| ledger.client(ClientId(i as u32), direction);
            SiteRecord {
                name: name.clone(),
                rows: client.rows() as u64,
                bits: (bits(Direction::Up), bits(Direction::Down)),
            }
        };
        let sites = problem.clients.len().max(1) as u64;
        let rounds = |ledger: &Ledger| ledger.messages(Direction::Down) / sites;
        // Levels first, then moments.
        let coded = if problem.moments_bits.0 > 0 { 2 } else { 0 };
        let exchanges = (coded + rounds(&plan.survey), rounds(ledger));
        let mut record = Record {
            version: made.version,
            created: made.created,
            config: config.resolved(plan),
            sampler: (plan.row.name.into(), plan.row.says.into()),
            seed: config.seed,
            step: plan.step().largest(),
            effective_draws: config.run.iterations.is_none().then_some(config.run.effective_draws),
            iterations: plan.length.iterations,
            burn_in: plan.length.burn_in,
            thin: plan.length.thin,
            seconds: made.seconds,
            interrupted: outcome.interrupted,
            parameters: problem.parameters.clone(),
            target: TargetWords::of(problem),
            sites: problem
                .clients
                .iter()
                .zip(&problem.target.clients)
                .enumerate()
                .map(site)
                .collect(),
            row_hashes: Vec::new(),
            sent: sent.collect(),
            uncompressed: (plain(Direction::Up), plain(Direction::Down)),
            before_sampling: (up + problem.moments_bits.0, down + problem.moments_bits.1),
            rows_evaluated: outcome.rows_evaluated,
            notes: problem.notes.clone(),
            warnings: plan.warnings.clone(),
            draws: outcome.draws,
            streamed: outcome.streamed,
            statistics: outcome.statistics.into_iter().chain(of_draws).collect(),
            choice: plan.choice.clone(),
            bias: Bias::of(plan),
            exchanges,
            reference_by: reference.as_ref().map(Reference::describe),
            reference: reference.map(|reference| reference.draws),
            encoding: problem.encoding.clone(),
            calibration: None,
            influence: None,
            check: None,
            loo: None,
        };
        let judged = crate::warnings::of_draws(&record);
        record.warnings.extend(judged);
        record.warnings.extend(crate::warnings::clipped(&record, &outcome.shortened));
        record
    }
}

impl Record {
    /// Measure the bias by what was drawn at half the step, and warn of one that is large.
    pub fn halve(&mut self, plan: &Plan, halved: &Outcome) {
        let measured = match Halved::new(&self.draws, &halved.draws, 0.5 * self.step) {
            Ok(measured) => measured,
            Err(why) => {
                let says = format!("the bias was not measured: {why}");
                self.warnings.push(Warning::new(Code::BiasLeftOut, says));
                return;
            }
        };
        let remedy = plan.recipe.family().remedy(&plan.target);
        self.warnings.extend(measured.warning(&self.parameters, self.step, remedy));
        match &mut self.bias {
            Some(bias) => bias.measured = Some(measured),
            None => {
                let (mean, sd) = (measured.mean_bias.clone(), measured.sd_ratio.clone());
                let measured = Some(measured);
                self.bias = Some(Bias { exact: false, mean, sd, measured });
            }
        }
    }

    /// Add what the sites can say of the draws: how often predictions are right, and how far each
    /// site moves the mean.
    pub fn judge(&mut self, problem: &Problem) {
        if self.draws.length() == 0 {
            return; // on disk alone, which is said elsewhere
        }
        let held_out =
            problem.held_out.as_ref().and_then(|rows| rows.potential().ok()).map(|rows| [rows]);
        let judged = Calibration::new(
            &problem.target.clients,
            held_out.as_ref().map(|rows| &rows[..]),
            &self.draws,
        );
        match judged {
            Ok(calibration) => self.calibration = calibration,
            Err(why) => self.warnings.push(Warning::new(Code::CalibrationLeftOut, why)),
        }
        let others = problem
            .elsewhere
            .as_ref()
            .and_then(|(name, rows)| Some((name.as_str(), rows.potential().ok()?)));
        if let (Some([rows]), Some((name, others)), Some(calibration)) =
            (&held_out, &others, &mut self.calibration)
            && let Err(why) = calibration.look_elsewhere(rows, (name, others), &self.draws)
        {
            self.warnings.push(Warning::new(Code::CalibrationLeftOut, why));
        }
        match Influence::new(&problem.target, &self.draws) {
            Ok(influence) => self.influence = Some(influence),
            Err(why) => self.warnings.push(Warning::new(Code::InfluenceLeftOut, why)),
        }
    }

    /// Keep a hash of the rows of each site, which are all here: whoever asks about them later is
    /// told if they are others.
    pub fn mark_rows(&mut self, config: &Config, problem: &Problem) {
        let model = config.target.model.of_rows();
        if config.privacy.is_some() || model.is_none_or(|model| model.net().is_some()) {
            return;
        }
        let hashes: Result<Vec<String>, _> =
            problem.target.clients.iter().map(rows_digest).collect();
        self.row_hashes = hashes.unwrap_or_default();
    }

    /// Add whether responses that the model would draw look like those that there are, and warn
    /// where they do not.
    pub fn check(&mut self, config: &Config) {
        match check::after_a_run(config, self) {
            Ok(found) => {
                self.warnings.extend(found.as_ref().and_then(Check::warning));
                self.check = found;
            }
            Err(why) => self.warnings.push(Warning::new(Code::CheckLeftOut, why)),
        }
    }

    /// Add how well rows are predicted that were left out, where that is little work.
    pub fn cross_validate(&mut self, config: &Config) {
        self.loo = loo::after_a_run(config, self);
    }

    /// The names and draws of what a summary has a line for: the parameters, or what is watched
    /// where these are too many.
    pub fn shown(&self) -> (Cow<'_, [String]>, Cow<'_, Draws>) {
        let watched: Vec<&Statistic> =
            self.statistics.iter().filter(|s| is_watched(&s.name)).collect();
        let (chains, length) = (self.draws.chains(), self.draws.length());
        let fit = |s: &&Statistic| {
            s.values.len() == chains && s.values.iter().all(|chain| chain.len() == length)
        };
        if watched.is_empty() || !watched.iter().all(fit) {
            return (Cow::Borrowed(&self.parameters[..]), Cow::Borrowed(&self.draws));
        }
        let chain = |c: usize| {
            (0..length).flat_map(|k| watched.iter().map(move |s| s.values[c][k])).collect()
        };
        let draws = Draws::from_chains((0..chains).map(chain).collect(), watched.len());
        (Cow::Owned(watched.iter().map(|s| s.name.clone()).collect()), Cow::Owned(draws))
    }

    /// How many chains there are and how many draws each has, held or on disk.
    pub fn drawn(&self) -> (usize, usize) {
        self.streamed
            .as_ref()
            .map_or((self.draws.chains(), self.draws.length()), |s| (s.chains, s.length))
    }
}

/// One number beside every draw: `values[chain][draw]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistic {
    /// Its name, such as `lp` (minus the potential over the temperature), `bits_up` or
    /// `participants`.
    pub name: String,
    /// Its values, chain by chain.
    pub values: Vec<Vec<f64>>,
}

impl Statistic {
    /// Its mean over all draws, and its smallest and largest value; `None` where a value is no
    /// number, or there is none.
    pub fn range(&self) -> Option<StatisticRange> {
        let count: usize = self.values.iter().map(Vec::len).sum();
        let all = || self.values.iter().flatten().copied();
        let mean = all().sum::<f64>() / count as f64;
        let (lowest, highest) = all()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| {
                (x.min(least), x.max(most))
            });
        mean.is_finite().then_some(StatisticRange { mean, lowest, highest })
    }
}

/// What the values of a statistic are like.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct StatisticRange {
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub lowest: f64,
    /// The largest.
    pub highest: f64,
}

/// One site's part.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteRecord {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub rows: u64,
    /// What it sent and received, in bits.
    pub bits: (u64, u64),
}

/// What was sent of one kind in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct SentRecord {
    /// `up` or `down`.
    pub direction: String,
    /// `gradient`, `parameter`, `reference`, `control`, `survey` or `header`.
    pub kind: String,
    /// How many bits.
    pub bits: u64,
    /// In how many vectors.
    pub vectors: u64,
}
