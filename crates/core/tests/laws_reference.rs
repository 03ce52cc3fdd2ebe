//! The exact laws are those that the papers' pseudo-code has, computed apart from this program.
//!
//! `laws.rs` holds the samplers against `sampler::exact`, and cannot see a mistake in what both of
//! them read. These are the places that they share, each with cases below whose numbers come from
//! `data/make_laws_reference.py`, which shares nothing with either:
//!
//! - `Batch::of`, the rows of a minibatch: `sgld rows`, `sgld fraction`;
//! - `Target`, who applies the prior, the temperature, the models' own numbers: `posterior`, `lmc`,
//!   `lmc split prior`, `lmc flat prior`, `sgld fraction` (isotropic rows), `sgld rows` (linear);
//! - `Recipe::check`, by which family B splits the prior: `fa-ld`, `fa-ld own split`, `fald 0.5`;
//! - `Anchor`, the fixed point and what is left there: `lsd* off`, `lsd* coins`;
//! - `Uplink::compressor`, whose compressor it is: `qlsd client by client`; and the error that is
//!   the noise (`step::error_for_noise`): `qlsd* exact error`;
//! - `Uplink::effective_memory` and `Local::memory_rate`, whether there is a memory: `d-elf`,
//!   `lsd++ memory coins`, `fa-ld compressed`;
//! - `Compressor::omega`, which is the default memory rate and whether a mask is scaled up:
//!   `default qlsd++`, `default fa-ld compressed`, `d-elf`, and the second test here;
//! - `Local::fald` and `Schedule::scaled`, FALD's letters in ours: `fald 0.5`, `vr-fald*`;
//! - `NoiseScale::factor`, noise for those who are averaged: `fa-ld scheme I participants`, ...;
//! - `Local::pull`, how a client is tied: `dg-lmc`, `default dg-lmc`, `default dg-lmc weights`;
//! - `Local::fsgld` and `Target::rebalanced`: `fsgld`, `fsgld minibatches`;
//! - `Target::whitened` and `Coordinates`: `lmc whitened`, `sgld whitened`;
//! - `Row::recipe`, what a name means where nothing more is said: `default ...`.
//!
//! What is not shared: coins and weights of participation, minibatches, masks, schemes of averaging
//! and the Langevin step, for which `exact` has formulas of its own. They are in the cases too.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::anchor;
use consilience_core::compress::{Compressor, Precision};
use consilience_core::model::{Coordinates, Prior, Surrogate};
use consilience_core::model::{Design, Gaussian, Glm, GlmFamily, Isotropic, Model};
use consilience_core::sampler::exact::{StationaryLaw, posterior, stationary};
use consilience_core::sampler::registry::{Settings, find};
use consilience_core::sampler::{Average, Local, NoiseScale, Synchronise};
use consilience_core::sampler::{Batch, Participation, Recipe, Uplink, Weighting};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

const LAWS: &str = include_str!("data/laws.csv");
const ROWS: &str = include_str!("data/laws_rows.csv");
const WEIGHTS: [f64; 3] = [0.5, 0.2, 0.3];
const UNEQUAL: [f64; 3] = [0.4, 0.9, 0.6];
const OFF: [f64; 3] = [0.6, 1.1, -0.3];

fn numbers(field: &str) -> Vec<f64> {
    field.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn prior() -> Prior {
    Prior::gaussian_per_coordinate(&[2.0, 0.8, 1.25]).unwrap() // variances
}

fn split() -> Placement {
    Placement::Split(vec![0.1, 0.2, 0.7])
}

/// Features and responses of each client.
fn rows() -> Vec<(Vec<f64>, Vec<f64>)> {
    let mut clients = vec![(Vec::new(), Vec::new()); 3];
    for line in ROWS.lines() {
        let [client, features, response] = line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let (all, responses) = &mut clients[client.parse::<usize>().unwrap()];
        all.extend(numbers(features));
        responses.push(response.parse().unwrap());
    }
    clients
}

fn linear(placement: Placement, temperature: f64) -> Target {
    let client = |(features, responses)| -> Arc<dyn Model> {
        let design = Design::dense(features, 3).unwrap();
        Arc::new(Glm::new(design, responses, GlmFamily::Gaussian { variance: 1.5 }).unwrap())
    };
    Target::new(rows().into_iter().map(client).collect(), prior(), placement, temperature).unwrap()
}

fn isotropic() -> Target {
    let mut clients: Vec<Arc<dyn Model>> = Vec::new();
    for (features, _) in rows() {
        clients.push(Arc::new(Isotropic::new(features, 3).unwrap()));
    }
    Target::new(clients, prior(), Placement::Server, 1.0).unwrap()
}

fn gaussian(prior: Prior, placement: Placement, temperature: f64) -> Target {
    let client = |mean: [f64; 3], precision: [f64; 9]| -> Arc<dyn Model> {
        let (mean, precision) = (mean.to_vec(), precision.to_vec());
        Arc::new(Gaussian::new(mean, precision).unwrap())
    };
    let clients = vec![
        client([1.0, -2.0, 0.5], [1.0, 0.4, 0.1, 0.4, 0.6, -0.2, 0.1, -0.2, 0.9]),
        client([-1.5, 0.5, 2.0], [0.5, -0.3, 0.0, -0.3, 1.4, 0.3, 0.0, 0.3, 0.4]),
        client([3.0, 2.0, -1.0], [1.2, 0.2, 0.5, 0.2, 0.3, 0.1, 0.5, 0.1, 0.8]),
    ];
    Target::new(clients, prior, placement, temperature).unwrap()
}

fn form(temperature: f64) -> Target {
    gaussian(prior(), Placement::Server, temperature)
}

fn table(temperature: f64) -> Target {
    linear(Placement::Server, temperature)
}

fn step(step: f64) -> Schedule {
    Schedule::Constant(step)
}

fn coins(recipe: Uplink) -> Uplink {
    Uplink { participation: Participation::Bernoulli(UNEQUAL.to_vec()), ..recipe }
}

fn rand_k(keep: u32) -> Compressor {
    Compressor::rand_k(keep).at(Precision::F64)
}

/// The recipe and target of a case of family A; `None` where it is of the other.
fn uplink(case: &str) -> Option<(Uplink, Target)> {
    let lmc = || Uplink::lmc(step(0.08));
    let of = |participation| Uplink { participation, ..lmc() };
    let off = |target: &Target| anchor(target, OFF.to_vec());
    let (two, most, part) = (Batch::Rows(2), Batch::Rows(3), Batch::Fraction(0.45));
    let one = rand_k(1);
    Some(match case {
        "lmc" => (Uplink::lmc(step(0.2)), form(0.7)),
        "lmc split prior" => (Uplink::lmc(step(0.2)), gaussian(prior(), split(), 1.0)),
        "lmc flat prior" => (Uplink::lmc(step(0.2)), gaussian(Prior::Flat, Placement::Server, 1.0)),
        "lmc coins" => (coins(lmc()), form(1.0)),
        "lmc elastic" => (of(Participation::Elastic(UNEQUAL.to_vec())), form(1.0)),
        "lmc coins ratio" => {
            let recipe = of(Participation::Bernoulli(vec![0.5; 3]));
            (Uplink { weighting: Weighting::Ratio, ..recipe }, form(1.0))
        }
        "lmc two of three" => (of(Participation::Fixed(2)), form(1.0)),
        "sgld rows" => (Uplink::sgld(step(0.03), two), table(1.0)),
        "sgld fraction" => (Uplink::sgld(step(0.03), part), isotropic()),
        "sgld fraction split prior" => (Uplink::sgld(step(0.03), part), linear(split(), 1.0)),
        "lsd* off" => (Uplink::lsd_star(step(0.03), two, off(&table(1.0))), table(1.0)),
        "lsd* coins" => {
            let target = linear(split(), 1.0);
            (coins(Uplink::lsd_star(step(0.02), two, off(&target))), target)
        }
        "lsd++" => (Uplink::lsd_plus_plus(step(0.03), two, 4, None), table(1.0)),
        "lsd++ memory coins" => {
            let recipe = Uplink::lsd_plus_plus(step(0.012), most, 3, Some(0.4));
            (coins(recipe), table(1.0))
        }
        "lsd++ memory two of three" => {
            let recipe = Uplink::lsd_plus_plus(step(0.012), most, 3, Some(0.7));
            (Uplink { participation: Participation::Fixed(2), ..recipe }, table(1.0))
        }
        "qlsd" => (Uplink::qlsd(step(0.02), Batch::Full, rand_k(2)), table(1.0)),
        "qlsd coins" => (coins(Uplink::qlsd(step(0.012), two, rand_k(2))), table(1.0)),
        "qlsd client by client" => {
            let up = vec![rand_k(1), Compressor::identity(Precision::F64), rand_k(2)];
            (Uplink { up, ..Uplink::lmc(step(0.02)) }, table(1.0))
        }
        "qlsd* coins" => {
            let recipe = Uplink::qlsd_star(step(0.012), two, off(&table(1.0)), one);
            (coins(recipe), table(1.0))
        }
        "qlsd++" => (Uplink::qlsd_plus_plus(step(0.012), two, 3, Some(0.2), rand_k(2)), table(1.0)),
        "qlsd++ coins" => {
            let recipe = Uplink::qlsd_plus_plus(step(0.008), two, 3, Some(0.2), one);
            (coins(recipe), table(1.0))
        }
        "bi-qlsd++" => {
            let recipe = Uplink::qlsd_plus_plus(step(0.01), two, 3, Some(0.2), rand_k(2));
            (Uplink { down: Some(rand_k(1).scaled()), ..recipe }, table(1.0))
        }
        "qlsd* exact error" => {
            let optimum = off(&table(0.6));
            (Uplink::qlsd_star_exact_error(step(0.03), two, optimum), table(0.6))
        }
        "d-elf" => (Uplink::d_elf(step(0.05), rand_k(1).scaled()), form(1.0)),
        "p-elf" => (Uplink::p_elf(step(0.05), rand_k(1).scaled()), form(1.0)),
        "b-elf" => (Uplink::b_elf(step(0.05), rand_k(1).scaled(), rand_k(2).scaled()), form(1.0)),
        "d-elf minibatches" => {
            let recipe = Uplink::d_elf(step(0.008), one.scaled());
            (Uplink { batch: two, ..recipe }, table(1.0))
        }
        "marina" => (Uplink::marina(step(0.05), 0.3, rand_k(1)), form(0.6)),
        _ => return None,
    })
}

/// The recipe and target of a case of family B; `None` where it is of the other.
fn local(case: &str) -> Option<(Local, Target)> {
    let (weights, equal, two) = (|| WEIGHTS.to_vec(), || vec![1.0 / 3.0; 3], Batch::Rows(2));
    let fald = |shared| Local::fald(step(0.25), 3, shared, 0.3, Batch::Full);
    let fa_ld = || Local::fa_ld(step(0.06), weights(), 4, 0.6, Batch::Full);
    let first = |noise| {
        let recipe = Local::fa_ld(step(0.05), weights(), 3, 0.6, Batch::Full);
        Local { average: Average::WithReplacement(2), noise, ..recipe }
    };
    let second = |noise| {
        let recipe = Local::fa_ld(step(0.05), equal(), 3, 0.3, Batch::Full);
        Local { average: Average::WithoutReplacement(2), noise, ..recipe }
    };
    let dg_lmc = || Local::dg_lmc(step(0.05), weights(), 4, 3.0, Batch::Full);
    let rebalanced = |target: Target| {
        let precisions = [[0.8, 0.5, 0.3], [0.6, 0.9, 0.7], [1.0, 0.4, 1.2]];
        let shifts = [[0.4, -0.6, 0.2], [-0.9, 0.7, 1.1], [2.5, 0.8, -0.5]];
        let surrogates = [0, 1, 2].map(|c| {
            let (precision, shift) = (precisions[c].to_vec(), shifts[c].to_vec());
            Surrogate { precision, shift }
        });
        target.rebalanced(&WEIGHTS, &surrogates).unwrap()
    };
    Some(match case {
        "fald 0.0" => (fald(0.0), form(1.0)),
        "fald 0.5" => (fald(0.5), form(1.0)),
        "fald 1.0" => (fald(1.0), form(1.0)),
        "fald minibatches" => (Local::fald(step(0.05), 3, 0.5, 0.4, two), table(1.0)),
        "vr-fald*" => (Local::vr_fald_star(step(0.25), 3, 0.4, 0.3, 0.2, Batch::Full), form(0.8)),
        "vr-fald* minibatches" => {
            let recipe = Local::vr_fald_star(step(0.05), 3, 0.5, 0.4, 0.3, two);
            (recipe, table(1.0))
        }
        "vr-fald* weights" => {
            let recipe = Local::fa_ld(step(0.08), weights(), 4, 0.4, Batch::Full);
            (Local { refresh: Some(0.4), ..recipe }, form(0.8))
        }
        "fa-ld" => (fa_ld(), form(0.8)),
        "fa-ld own split" => (fa_ld(), gaussian(prior(), split(), 1.0)),
        "fa-ld minibatches" => (Local::fa_ld(step(0.012), weights(), 3, 0.6, two), table(1.0)),
        "fa-ld scheme I published" => (first(NoiseScale::Everybody), form(0.8)),
        "fa-ld scheme I participants" => (first(NoiseScale::Participants), form(0.8)),
        "fa-ld scheme II published" => (second(NoiseScale::Everybody), form(1.0)),
        "fa-ld scheme II participants" => (second(NoiseScale::Participants), form(1.0)),
        "fa-ld compressed" => (Local { up: Some((rand_k(2), 0.5)), ..fa_ld() }, form(0.8)),
        "vr-fald* compressed" => {
            let recipe = Local::vr_fald_star(step(3.0 * 0.08), 3, 0.2, 0.3, 0.3, Batch::Full);
            (Local { up: Some((rand_k(1), 0.25)), ..recipe }, form(1.0))
        }
        "dg-lmc" => (dg_lmc(), form(0.7)),
        "dg-lmc split prior" => (dg_lmc(), gaussian(prior(), split(), 1.0)),
        "dg-lmc random" => {
            let synchronise = Synchronise::Randomly(0.4);
            (Local { synchronise, ..dg_lmc() }, form(1.0))
        }
        "dg-lmc minibatches" => (Local::dg_lmc(step(0.01), weights(), 3, 2.0, two), table(1.0)),
        "fsgld" => (Local::fsgld(step(0.04), weights(), 3, Batch::Full), rebalanced(form(0.8))),
        "fsgld minibatches" => {
            let target = rebalanced(table(1.0));
            (Local::fsgld(step(0.004), weights(), 3, two), target)
        }
        _ => return None,
    })
}

/// A sampler by its name in the registry, with as little said as possible.
fn default(case: &str) -> Option<(Recipe, Target)> {
    let two = || Settings { batch: Some(Batch::Rows(2)), ..Settings::default() };
    let one_coordinate = |settings| {
        let (compress, precision) = (Some(vec![rand_k(1)]), Some(Precision::F64));
        Settings { compress, precision, ..settings }
    };
    let every_five = || Settings { refresh_every: Some(5), ..one_coordinate(two()) };
    let both_ways = || Settings { compress_down: Some(rand_k(1).scaled()), ..every_five() };
    let (synchronise, weights) = (Some(Synchronise::Every(4)), Some(WEIGHTS.to_vec()));
    let tied = Settings { synchronise, weights, ..Settings::default() };
    let plain = Settings::default;
    let (name, eta, settings, target) = match case.strip_prefix("default ")? {
        "lsd++" => ("lsd++", 0.03, two(), table(1.0)),
        "qlsd++" => ("qlsd++", 0.01, every_five(), table(1.0)),
        "bi-qlsd++" => ("bi-qlsd++", 0.008, both_ways(), table(1.0)),
        "marina-ld" => ("marina-ld", 0.04, one_coordinate(plain()), form(1.0)),
        name @ ("fald" | "vr-fald*" | "fa-ld" | "dg-lmc") => (name, 0.03, plain(), form(1.0)),
        "fa-ld compressed" => ("fa-ld", 0.03, one_coordinate(plain()), form(1.0)),
        "dg-lmc weights" => ("dg-lmc", 0.03, tied, form(1.0)),
        _ => return None,
    };
    Some((find(name).unwrap().recipe(step(eta), &settings, 3, 3, None), target))
}

/// The law in `u`, as one in `x`.
fn whitened(case: &str) -> Option<StationaryLaw> {
    let (recipe, target) = match case {
        "lmc whitened" => (Uplink::lmc(step(0.3)), table(0.7)),
        "sgld whitened" => (Uplink::sgld(step(0.1), Batch::Rows(2)), table(1.0)),
        _ => return None,
    };
    let truth = posterior(&target).unwrap();
    let covariance: Vec<f64> = truth.covariance.iter().map(|c| c / target.temperature).collect();
    let hessian = nalgebra::DMatrix::from_row_slice(3, 3, &covariance).try_inverse().unwrap();
    let coordinates = Arc::new(Coordinates::whitening(&truth.mean, hessian.as_slice()).unwrap());
    let target = target.whitened(&coordinates, &[0.1, 0.2, 0.7]);
    let law = stationary(&Recipe::Uplink(recipe), &target).unwrap();
    let mut mean = vec![0.0; 3];
    coordinates.outward(&law.mean, &mut mean);
    Some(StationaryLaw { mean, covariance: coordinates.outward_covariance(&law.covariance) })
}

fn law(case: &str) -> StationaryLaw {
    let of = |(recipe, target): (Recipe, Target)| {
        let target = recipe.check(target).unwrap();
        stationary(&recipe, &target).unwrap()
    };
    if case == "posterior" {
        return posterior(&table(0.8)).unwrap();
    }
    let first = || uplink(case).map(|(recipe, target)| (Recipe::Uplink(recipe), target));
    let second = || local(case).map(|(recipe, target)| (Recipe::Local(recipe), target));
    let law = first().or_else(second).or_else(|| default(case)).map(of);
    law.or_else(|| whitened(case)).unwrap_or_else(|| panic!("no recipe for `{case}`"))
}

/// Every mean and covariance to 1e-10, relative to the largest of its kind.
#[test]
fn exact_laws_are_those_of_the_papers_pseudo_code() {
    let mut apart = Vec::new();
    let mut cases = BTreeMap::new();
    for line in LAWS.lines() {
        let [case, mean, covariance] = line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let ours = law(case);
        let theirs = StationaryLaw { mean: numbers(mean), covariance: numbers(covariance) };
        let means = ("mean", &ours.mean, &theirs.mean);
        let covariances = ("covariance", &ours.covariance, &theirs.covariance);
        for (what, ours, theirs) in [means, covariances] {
            assert_eq!(ours.len(), theirs.len(), "{case}: {what}");
            let scale = theirs.iter().fold(0.0f64, |most, v| most.max(v.abs()));
            let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-10 * scale;
            if !ours.iter().zip(theirs).all(near) {
                apart.push(format!("{case}: the {what} {ours:?} is not {theirs:?}"));
            }
        }
        assert_eq!(cases.insert(case, ()), None, "{case} stands twice");
    }
    assert!(apart.is_empty(), "{}", apart.join("\n"));
    assert_eq!(cases.len(), 63);
}

/// `1/(1 + omega)`, with the papers' constants written out: `min(d/s^2, sqrt(d)/s)` for qsgd, 1/8
/// for natural, `d/k - 1` for rand_k; of several clients the slowest.
#[test]
fn memories_follow_by_default_as_fast_as_their_compressors_allow() {
    let rate = |name: &str, compress: &[&str], dim: usize| {
        let list = || compress.iter().map(|text| text.parse().unwrap()).collect();
        let compress = (!compress.is_empty()).then(list);
        let settings = Settings { compress, ..Settings::default() };
        match find(name).unwrap().recipe(step(0.01), &settings, 3, dim, None) {
            Recipe::Uplink(recipe) => recipe.memory_rate,
            Recipe::Local(recipe) => recipe.up.map(|(_, rate)| rate),
            Recipe::Metropolis(_) | Recipe::Release(_) | Recipe::Penalty(_) => None,
        }
    };
    let root = 1000f64.sqrt();
    for name in ["qlsd++", "bi-qlsd++", "fald", "vr-fald*", "fa-ld"] {
        for (compressor, dim, omega) in [
            ("qsgd(16)", 3, 3.0 / 256.0),
            ("qsgd(16)", 1000, root / 16.0),
            ("qsgd(4)", 3, 3.0 / 16.0),
            ("natural", 3, 0.125),
            ("rand_k(1)", 3, 2.0),
            ("rand_k(2)", 3, 0.5),
            ("block(qsgd(4), 2)", 3, 2.0 / 16.0),
            ("identity", 3, 0.0),
        ] {
            let (found, expected) = (rate(name, &[compressor], dim).unwrap(), 1.0 / (1.0 + omega));
            assert!((found - expected).abs() < 1e-15, "{name}, {compressor}: {found}, {expected}");
        }
    }
    assert_eq!(rate("qlsd++", &[], 3), Some(256.0 / 259.0), "qsgd(16) where nothing is said");
    assert_eq!(rate("qlsd++", &["rand_k(2)", "rand_k(1)", "natural"], 3), Some(1.0 / 3.0));
    assert_eq!(["d-elf", "b-elf", "marina-ld"].map(|name| rate(name, &[], 3)), [Some(1.0); 3]);
    assert_eq!(["lmc", "lsd++", "qlsd", "fald", "fa-ld"].map(|name| rate(name, &[], 3)), [None; 5]);
}
