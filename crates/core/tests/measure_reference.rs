//! Compare the measures with what ArviZ 0.23.4, numpy and scipy said of the same numbers (see
//! `data/make_arviz_reference.py`).

use consilience_core::measure::*;
use std::collections::BTreeMap;

const DRAWS: &str = include_str!("data/draws.csv");
const ARVIZ: &str = include_str!("data/arviz.csv");
const ARVIZ_1: &str = include_str!("data/arviz1.csv");
const SCIPY: &str = include_str!("data/scipy.csv");

fn numbers(field: &str) -> Vec<f64> {
    field.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

/// Draws of every case, chain after chain, and how many chains they are.
fn recorded() -> BTreeMap<&'static str, (Vec<f64>, usize)> {
    let mut cases = BTreeMap::<_, (Vec<f64>, usize)>::new();
    for line in DRAWS.lines() {
        let [case, chain, draws] =
            line.split(',').collect::<Vec<_>>().try_into().expect("three fields");
        let (all, count) = cases.entry(case).or_default();
        assert_eq!(chain.parse(), Ok(*count));
        all.extend(numbers(draws));
        *count += 1;
    }
    cases
}

/// Both NaN, or within 1e-10 of the reference relative to it.
fn agree(ours: f64, theirs: f64) -> bool {
    ours.is_nan() && theirs.is_nan() || (ours - theirs).abs() <= 1e-10 * theirs.abs()
}

#[test]
fn draws_are_measured_as_arviz_measures_them() {
    let cases = recorded();
    let mut compared = BTreeMap::<&str, usize>::new();
    let mut apart = Vec::new();
    for line in ARVIZ.lines() {
        let [case, measure, argument, theirs] =
            line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let (draws, count) = &cases[case];
        let chains = Chains::flat(draws, *count).unwrap();
        let (argument, theirs): (f64, f64) = (argument.parse().unwrap(), theirs.parse().unwrap());
        let ours = match measure {
            "rhat" => rhat(&chains),
            "ess_bulk" => ess_bulk(&chains),
            "ess_tail" => ess_tail(&chains),
            "ess_mean" => ess_mean(&chains),
            "ess_quantile" => ess_quantile(&chains, argument).unwrap(),
            "mcse_mean" => mcse_mean(&chains),
            "mcse_sd" => mcse_sd(&chains),
            "mcse_quantile" => mcse_quantile(&chains, argument).unwrap(),
            "mean" => mean(draws),
            "sd" => sd(draws),
            "quantile" => quantile(draws, argument).unwrap(),
            "hdi_lower" => hdi(draws, argument).unwrap().0,
            "hdi_upper" => hdi(draws, argument).unwrap().1,
            other => panic!("unknown measure {other}"),
        };
        if !agree(ours, theirs) {
            apart.push(format!("{case} {measure} {argument}: {ours} is not {theirs}"));
        }
        *compared.entry(measure).or_default() += 1;
    }
    assert!(apart.is_empty(), "{apart:#?}");
    assert_eq!((cases.len(), compared.len(), compared.values().sum()), (19, 13, 19 * (8 + 15 + 4)));
}

#[test]
fn a_summary_is_that_of_the_current_arviz() {
    let cases = recorded();
    let (mut apart, mut compared) = (Vec::new(), 0);
    for line in ARVIZ_1.lines() {
        let [case, measure, theirs] = line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let (draws, count) = &cases[case];
        let ours = summarise(&Chains::flat(draws, *count).unwrap(), Interval::default()).unwrap();
        let ours = match measure {
            "mean" => ours.mean,
            "sd" => ours.sd,
            "eti89_lb" => ours.lower,
            "eti89_ub" => ours.upper,
            "ess_bulk" => ours.ess_bulk,
            "ess_tail" => ours.ess_tail,
            "r_hat" => ours.rhat,
            "mcse_mean" => ours.mcse_mean,
            "mcse_sd" => ours.mcse_sd,
            other => panic!("unknown measure {other}"),
        };
        let theirs: f64 = theirs.parse().unwrap();
        if !agree(ours, theirs) {
            apart.push(format!("{case} {measure}: {ours} is not {theirs}"));
        }
        compared += 1;
    }
    assert!(apart.is_empty(), "{apart:#?}");
    assert_eq!((cases.len(), compared), (19, 19 * 9));
}

#[test]
fn distances_and_quantiles_are_those_of_scipy() {
    let mut apart = Vec::new();
    let mut compared = 0;
    for line in SCIPY.lines() {
        let (function, rest) = line.split_once(',').unwrap();
        let fields: Vec<Vec<f64>> = rest.split(',').map(numbers).collect();
        let theirs = fields.last().unwrap();
        let dimension = fields[0][0] as usize;
        let gaussians = || {
            (
                Gaussian::new(&fields[0], &fields[1]).unwrap(),
                Gaussian::new(&fields[2], &fields[3]).unwrap(),
            )
        };
        let ours = match function {
            "normal_quantile" => vec![normal_quantile(fields[0][0])],
            "w2_between_samples" => {
                vec![w2_between_samples(&fields[1], &fields[2], dimension).unwrap()]
            }
            "gaussian_w2" => vec![gaussians().0.w2(&gaussians().1).unwrap()],
            "gaussian_kl" => vec![gaussians().0.kl_to(&gaussians().1).unwrap()],
            "covariance" => {
                Gaussian::of_draws(&fields[1], dimension).unwrap().covariance().to_vec()
            }
            "auc" => vec![auc(&fields[0], &fields[1]).unwrap()],
            other => panic!("unknown function {other}"),
        };
        assert_eq!(ours.len(), theirs.len());
        let tolerance = if function == "normal_quantile" { 2e-15 } else { 1e-10 };
        for (ours, theirs) in ours.iter().zip(theirs) {
            if (ours - theirs).abs() > tolerance * theirs.abs() {
                apart.push(format!("{function} {:?}: {ours} is not {theirs}", fields[0]));
            }
        }
        compared += 1;
    }
    assert!(apart.is_empty(), "{apart:#?}");
    assert_eq!(compared, 16 + 4 + 3 + 3 + 1 + 1);
}
