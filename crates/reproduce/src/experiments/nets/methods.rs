//! Run one method of a table: a sampler of the registry, on cores or a GPU, or a baseline.

use std::sync::Arc;

use consilience_core::model::{Model, Surrogate};
use consilience_core::protocol::Direction;
use consilience_core::rng::Seed;
use consilience_core::target::Target;
use consilience_engine::config::DeviceChoice;
use consilience_engine::plan::on_gpu;
use consilience_engine::run::Progress;

use super::baselines::{self, Descent};
use super::images::Images;
use super::scores::Average;
use super::setting::{Method, Setting};
use crate::chain::{Chain, Hands};
use crate::experiment::{Trouble, Values};
use crate::study::Study;

/// Steps of a client's own descent from which FSGLD's surrogate of it is made, and the part of them
/// that it waits.
const SURROGATE_STEPS: u64 = 200;
/// Clients of a reference, which are pooled rows dealt to as many cores.
const REFERENCE_CLIENTS: usize = 4;

/// What a chain needs to know of where it runs.
pub(super) struct Work<'a> {
    pub study: &'a Study,
    pub setting: &'a Setting,
    pub images: &'a Images,
    pub name: &'a str,
    pub run: u32,
    pub progress: &'a Progress,
}

impl Work<'_> {
    /// The scores of one method with one seed; where its chain diverged, when it did.
    pub(super) fn values(&self) -> Result<Values, Trouble> {
        let method = self.setting.method(self.name)?;
        let keep = self.setting.reference.is_some();
        let mut average = Average::new(self.images, method.is_reference());
        let sent = match self.walk(method, &mut |x| average.add(x)) {
            Ok(sent) => sent,
            Err(Trouble::Diverged { iteration, .. }) => {
                return Ok(Values::from([("diverged".into(), vec![iteration as f64])]));
            }
            Err(trouble) => return Err(trouble),
        };
        let mut values = average.values(keep)?;
        values.insert("megabytes up".into(), vec![sent]);
        Ok(values)
    }

    /// Go through its draws; megabytes that its clients sent come out.
    fn walk(&self, method: &Method, look: &mut (dyn FnMut(&[f64]) + Send)) -> Result<f64, Trouble> {
        let seed = Seed::new(self.study.seed).chain(self.run);
        let target = self.images.target(self.setting, method.pooled, seed)?;
        let mut start = self.images.start(self.setting, seed);
        if let Some(warm) = method.warm {
            let pooled = match method.pooled {
                true => target.clone(),
                false => self.images.target(self.setting, true, seed)?,
            };
            let mut descent = Descent::new(&pooled, seed, 0, warm.rate, warm.batch);
            for _ in 0..warm.iterations {
                descent.step(&mut start);
            }
        }
        let target = if method.is_reference() {
            let dealt = Setting {
                clients: REFERENCE_CLIENTS,
                scheme: "iid".into(),
                ..self.setting.clone()
            };
            self.images.target(&dealt, false, seed)?
        } else if method.by == "fsgld" {
            rebalanced(method, &target, &start, seed)?
        } else {
            target
        };
        let Some(recipe) = method.recipe(&target)? else {
            let starts = |net: u32| match net {
                0 => start.clone(),
                other => self.images.start(self.setting, seed.chain(other)),
            };
            baselines::walk(method, &target, &starts, seed, self.progress, look)?;
            return Ok(0.0);
        };
        let hands = self.hands(method, &target)?;
        let chain = Chain {
            recipe: &recipe,
            target: &target,
            start: &start,
            seed: self.study.seed,
            index: self.run,
        };
        let mut due = method.due();
        let ledger = chain.walk_with(&hands, method.iterations, self.progress, |at, x, _| {
            if due.is(at) {
                look(x);
            }
        })?;
        Ok(ledger.total(Direction::Up) as f64 / 8e6)
    }

    /// What computes: a GPU where one is asked for and there is one, for nets as they are.
    fn hands(&self, method: &Method, target: &Target) -> Result<Hands, Trouble> {
        if method.is_reference() {
            return Ok(Hands { joint: None, threads: REFERENCE_CLIENTS });
        }
        let nets = target.clients.iter().all(|client| client.net().is_some());
        let joint: Option<Arc<dyn Model>> = match self.study.device {
            DeviceChoice::Cpu => None,
            _ if !nets => None,
            DeviceChoice::Auto => on_gpu(&target.clients).ok(),
            DeviceChoice::Cuda => {
                Some(on_gpu(&target.clients).map_err(|error| Trouble::Other(error.to_string()))?)
            }
        };
        Ok(Hands { joint, threads: 1 })
    }
}

/// FSGLD's clients: each with a Gaussian in place of its rows, its coordinates independent, whose
/// precision is one over the variance that the client's own descent from `start` has (SWAG), and
/// whose gradient at `start` is the client's. A precision is at most what the step stands.
fn rebalanced(
    method: &Method,
    target: &Target,
    start: &[f64],
    seed: Seed,
) -> Result<Target, Trouble> {
    let most = 0.5 / (method.step * target.clients.len() as f64);
    let weights = shares(target);
    let rate = method.step * rows(target) as f64;
    let mut surrogates = Vec::new();
    for (client, model) in (1..).zip(&target.clients) {
        let alone = Target { clients: vec![Arc::clone(model)], ..target.clone() };
        let mut descent = Descent::new(&alone, seed, client, rate, method.batch);
        let mut x = start.to_vec();
        let (mut mean, mut square) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let kept = SURROGATE_STEPS / 2;
        for step in 0..SURROGATE_STEPS {
            descent.step(&mut x);
            if step >= SURROGATE_STEPS - kept {
                for ((x, mean), square) in x.iter().zip(&mut mean).zip(&mut square) {
                    *mean += x / kept as f64;
                    *square += x * x / kept as f64;
                }
            }
        }
        let precision = mean.iter().zip(&square).map(|(mean, square)| {
            let variance = (square - mean * mean).max(f64::MIN_POSITIVE);
            (1.0 / variance).min(most)
        });
        surrogates.push(Surrogate::at(start, precision.collect(), model));
    }
    Ok(target.rebalanced(&weights, &surrogates)?)
}

/// How many rows there are.
pub(super) fn rows(target: &Target) -> usize {
    target.clients.iter().map(|client| client.rows()).sum()
}

/// The clients' shares of the rows.
pub(super) fn shares(target: &Target) -> Vec<f64> {
    let all = rows(target) as f64;
    target.clients.iter().map(|client| client.rows() as f64 / all).collect()
}
