//! Hold the privacy accountant against Google's dp_accounting (data/make_privacy_reference.py).

#![allow(clippy::unwrap_used)] // a test may panic

use consilience_core::privacy::{Composition, Neighbour, Release, Sampling};

/// One line of the reference.
struct Line {
    name: String,
    all: Composition,
    delta: f64,
    epsilon: f64,
    delta_at_epsilon: f64,
    renyi: Option<f64>,
}

fn lines() -> Vec<Line> {
    let text = include_str!("data/privacy.csv");
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |k: usize| fields[k].parse::<f64>();
        let (z, q) = (number(1).unwrap(), number(2).unwrap());
        let (sampling, neighbour) = match fields[0] {
            "poisson-add-remove" => (Sampling::Poisson { rate: q }, Neighbour::AddRemove),
            "poisson-replace" => (Sampling::Poisson { rate: q }, Neighbour::Replace),
            "fixed-replace" => (Sampling::Fixed { share: q }, Neighbour::Replace),
            other => panic!("{other}"),
        };
        let release = Release::new(sampling, neighbour, z).unwrap();
        Line {
            name: line.to_owned(),
            all: Composition::of(release, fields[3].parse().unwrap()),
            delta: number(4).unwrap(),
            epsilon: number(5).unwrap(),
            delta_at_epsilon: number(6).unwrap(),
            renyi: number(7).ok(),
        }
    };
    text.lines().skip(1).map(line).collect()
}

#[test]
fn epsilon_is_within_a_thousandth_of_dp_accounting_and_below_renyi_bounds() {
    let lines = lines();
    assert!(lines.len() >= 200);
    for line in lines {
        let ours = line.all.epsilon(line.delta).unwrap();
        assert!((ours / line.epsilon - 1.0).abs() < 1e-3, "{ours} for {}", line.name);
        let renyi = line.all.renyi_epsilon(line.delta).unwrap();
        assert!(ours <= renyi * (1.0 + 1e-6), "{ours} above {renyi} for {}", line.name);
        if let Some(theirs) = line.renyi {
            // They try a list of orders, and ours is the best there is.
            assert!(renyi <= theirs * 1.005, "{renyi} for {}", line.name);
        }
    }
}

#[test]
fn delta_is_within_a_hundredth_of_dp_accounting() {
    for line in lines().into_iter().step_by(4) {
        let ours = line.all.delta(line.epsilon).unwrap();
        assert!((ours / line.delta_at_epsilon - 1.0).abs() < 1e-2, "{ours:e} for {}", line.name);
    }
}
