//! Make up a run: chains of correlated autoregressions around known means, the same on every
//! machine.

use consilience_core::measure::{CALIBRATION_BINS, Elpd, Predictive, Tally};
use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_engine::calibration::{Calibration, Entropies, Judged, Point, UncertainImage};
use consilience_engine::check::{Check, Compared, Fit};
use consilience_engine::draws::Draws;
use consilience_engine::growth::Stop;
use consilience_engine::influence::{Influence, SiteInfluence};
use consilience_engine::loo::Loo;
use consilience_engine::plan::{Candidate, Choice};
use consilience_engine::record::{Record, SentRecord, SiteRecord, Statistic, TargetWords};
use consilience_report::{Comparison, Contender};

/// Rows left out at these sites, one of which the draws tell nothing of.
fn left_out(sites: &[&str]) -> Loo {
    let elpd = |(k, name): (usize, &&str)| {
        let by_k = [100, k as u64 % 2, u64::from(k == 3)];
        let (sum, squares, seen) = (-40.25 - k as f64, 6.5, -38.0);
        ((*name).to_owned(), Elpd { rows: by_k.iter().sum(), sum, squares, seen, by_k })
    };
    let sites: Vec<(String, Elpd)> = sites.iter().enumerate().map(elpd).collect();
    let total = Elpd::merge(&sites.iter().map(|(_, elpd)| *elpd).collect::<Vec<_>>());
    Loo { sites, total, draws: 4000, good_k: 0.7, unit: "rows" }
}

/// A run with so many chains, draws and parameters, with a pooled reference or without.
pub fn record(chains: usize, length: usize, dim: usize, reference: bool) -> Record {
    let known = [
        "intercept",
        "age",
        "sex = male",
        "chest pain = typical angina",
        "chest pain = atypical",
        "chest pain = none",
        "resting blood pressure",
        "cholesterol",
        "fasting sugar > 120",
        "ECG = ST-T abnormal",
        "electrocardiogram at rest = left ventricular hypertrophy by Estes criteria",
        "max heart rate",
        "exercise angina",
        "oldpeak",
        "slope = flat",
        "slope_of_the_ST_segment_at_the_peak_of_exercise_is_down",
    ];
    let parameters = (0..dim)
        .map(|k| known.get(k).map_or_else(|| format!("x{k}"), |name| (*name).to_owned()))
        .collect();
    let sites =
        [("Cleveland", 303), ("Budapest", 294), ("Zurich and Basel", 123), ("Long Beach", 200)];
    let sent = [
        ("up", "gradient", 41_000_000, 640_000),
        ("up", "control", 9_000_000, 12_800),
        ("up", "header", 6_100_000, 0),
        ("down", "parameter", 112_000_000, 640_000),
        ("down", "reference", 9_000_000, 12_800),
        ("down", "header", 6_100_000, 0),
    ];
    let bits_up = (0..chains)
        .map(|_| (0..length).map(|t| (2000.0 + 10.0 * t as f64) * 638.0).collect())
        .collect();
    Record {
        version: "0.1.0".into(),
        created: "2026-01-31T12:00:00Z".into(),
        config: "seed = 1\n\n[data]\nbuiltin = \"heart-disease\"\n\n[sampler]\n\
            name = \"qlsd++\" # <compressed> & corrected\n"
            .into(),
        sampler: (
            "qlsd++".into(),
            "minibatch gradients, corrected by the gradient at a reference \
            point, compressed"
                .into(),
        ),
        seed: 1,
        step: 3.2e-3,
        choice: None,
        bias: None,
        exchanges: (0, 0),
        effective_draws: None,
        iterations: 40_000,
        burn_in: 2000,
        thin: 10,
        seconds: 12.34,
        interrupted: false,
        parameters,
        draws: draws(chains, length, dim, 1, 0.02),
        statistics: vec![Statistic { name: "bits_up".into(), values: bits_up }],
        sites: sites
            .map(|(name, rows)| SiteRecord {
                name: name.into(),
                rows,
                bits: (rows * 61_000, rows * 138_000),
            })
            .into(),
        row_hashes: Vec::new(),
        sent: sent
            .map(|(direction, kind, bits, vectors)| SentRecord {
                direction: direction.into(),
                kind: kind.into(),
                bits,
                vectors,
            })
            .into(),
        uncompressed: (460_000_000, 127_100_000),
        before_sampling: (180_000, 210_000),
        rows_evaluated: 73_600_000,
        notes: vec![
            "Cholesterol of 0 is taken as missing; missing values are the mean of all \
             sites."
                .into(),
            "Numbers are standardised by sums over the sites.".into(),
        ],
        warnings: Vec::new(),
        streamed: None,
        encoding: None,
        calibration: Some(calibration(&sites.map(|s| s.1))),
        target: Some(TargetWords {
            model: "logistic regression, by \"ill == 1 ~ age\"".into(),
            prior: "normal, mean 0, variance 6.25 for every parameter".into(),
        }),
        influence: Some(influence(sites.len(), dim)),
        loo: Some(left_out(&sites.map(|s| s.0))),
        check: Some(check(&sites.map(|s| s.0))),
        reference: reference.then(|| draws(4, 1000.min(length), dim, 2, 0.0)),
        reference_by: reference.then(|| "NUTS".into()),
    }
}

/// A check whose spread is off.
fn check(sites: &[&str]) -> Check {
    let compared = |name: &str, observed: f64, p: f64| {
        let name = name.into();
        Compared { name, observed, replicated: 2.0, lower: 1.5, upper: 2.6, p }
    };
    Check {
        prior: false,
        unit: "responses".into(),
        rows: 920,
        replicates: 1000,
        mass: 0.89,
        statistics: vec![compared("mean", 2.1, 0.7), compared("standard deviation", 6.25, 0.002)],
        bins: vec![compared("0", 1.0, 0.1), compared("1 to 4", 2.0, 0.9)],
        sites: sites.iter().map(|site| compared(site, 2.2, 0.5)).collect(),
        fit: Some(Fit { measure: "AUC".into(), value: 0.876, lower: 0.874, upper: 0.878 }),
        bytes: 123_456,
        doubts: vec![("it varies more".into(), "Use another model".into())],
    }
}

/// What was tried before sampling: one that is used, one that is not to be relied on, one with a
/// bias.
pub fn choice() -> Choice {
    let one =
        |sampler: &str, iterations, exchanges, bytes, bias, refused: Option<&str>| Candidate {
            sampler: sampler.into(),
            efficiency: 0.5,
            chains: 4,
            iterations,
            exchanges,
            bytes,
            seconds: 0.02 * exchanges,
            bias,
            mean_bias: bias,
            refused: refused.map(Into::into),
        };
    let heavy = Some("its weights are heavy");
    Choice {
        candidates: vec![
            one("hmc", 8000.0, 6000.0, 12e6, None, None),
            one("imh", 90_000.0, 6.0, 3e6, None, heavy),
            one("lmc", 300_000.0, 75_000.0, 110e6, Some(0.013), None),
        ],
        chosen: "hmc".into(),
        acceptance: Some(0.75),
        khat: Some(1.2),
        bent: 0,
        nodes: None,
        exchanges: 9,
    }
}

/// So many samplers, the later the cheaper and the more biased, each with a bar at every stop.
pub fn comparison(runs: usize) -> Comparison {
    let names = ["lmc", "qlsd++", "vr-fald*", "fald", "sgld", "qlsd"];
    let run = |k: usize| {
        let (bits, bias) = (20_000.0 / (k as f64 + 1.0), 0.02 * k as f64);
        let stop = |j: usize| {
            let draws = 1.3f64.powi(j as i32).round();
            let wobble = 1.0 + 0.15 * (j as f64 * 1.7 + k as f64).sin();
            let square = bias * bias + 6.0 / (draws + 5.0) * wobble;
            Stop {
                draws: draws as usize,
                iteration: 100.0 + draws,
                bits: bits * (100.0 + draws),
                gradients: 900.0 * (100.0 + draws) / (1.0 + 2.0 * k as f64),
                error: square.sqrt(),
                bar: ((0.6 * square).sqrt(), (1.4 * square).sqrt()),
            }
        };
        Contender {
            config: format!("configs/{}.toml", names[k % names.len()]),
            sampler: names[k % names.len()].into(),
            step: Some(1.3e-3 * (k as f64 + 1.0)),
            chains: (4, 9_000),
            errors: [0.031 + bias, 0.042 + bias, 0.1234],
            ess: 1234.5 / (k as f64 + 1.0),
            bits: (180_000_000 / (k as u64 + 1), 720_000_000 / (k as u64 + 1)),
            surveys: 1_200_000,
            exchanges: (12, 36_000),
            gradients: 33_120_000,
            seconds: 3.21,
            growth: (0..36).map(stop).collect(),
        }
    };
    let reference = "pooled rows (Metropolis-adjusted)".into();
    Comparison {
        reference,
        reference_error: Some(0.011),
        size: (22, 4),
        runs: (0..runs).map(run).collect(),
    }
}

/// Predictions of two classes at sites of these sizes, a little too sure of themselves.
fn calibration(rows: &[u64]) -> Calibration {
    let site = |(k, rows): (usize, &u64)| {
        let mut stream = Seed::new(3).stream(Purpose::Data, SERVER, k as u64);
        let (mut tally, mut z) = (
            Tally::new(CALIBRATION_BINS, &std::array::from_fn::<f64, 20, _>(|k| k as f64 / 20.0)),
            [0.0; 2],
        );
        for _ in 0..*rows {
            stream.normals(&mut z);
            let chance = |t: f64| 1.0 / (1.0 + (-t).exp());
            let sure = chance(2.2 * z[0]);
            let label = usize::from(chance(1.7 * z[1]) < chance(1.6 * z[0]));
            let counted =
                Predictive::new(&[1.0 - sure, sure], 2).map(|table| tally.count(&table, &[label]));
            assert!(matches!(counted, Ok(Ok(()))));
        }
        tally
    };
    let sites: Vec<Tally> = rows.iter().enumerate().map(site).collect();
    let points = sites.first().cloned().map(|tally| Point { name: "one draw".into(), tally });
    Calibration {
        judged: Judged::Fitted,
        classes: 2,
        draws: 1000,
        points: points.into_iter().collect(),
        sites,
        elsewhere: None,
        uncertain: Vec::new(),
    }
}

/// The same where rows are images, and others are of another kind.
#[allow(dead_code)] // not every test shows images
pub fn of_images(calibration: Calibration) -> Calibration {
    let image = |k: usize| UncertainImage {
        row: 10 * k,
        label: k % 10,
        size: (8, 6),
        pixels: (0..48).map(|j| ((j * (k + 3)) % 9 * 28) as u8).collect(),
        said: vec![((k + 1) % 10, 0.48), (k % 10, 0.31), ((k + 5) % 10, 0.1)],
    };
    let counts = |from: u64| (0..30).map(|k| 500 / (1 + (k as u64).abs_diff(from))).collect();
    Calibration {
        judged: Judged::HeldOut,
        classes: 10,
        elsewhere: Some(Entropies {
            name: "fashion-mnist".into(),
            here: counts(0),
            there: counts(17),
            auc: 0.934,
        }),
        uncertain: (0..12).map(image).collect(),
        ..calibration
    }
}

fn influence(sites: usize, dim: usize) -> Influence {
    let site = |i: usize| {
        let shift: Vec<f64> = (0..dim)
            .map(|k| 0.7 * ((k * k + 3 * i) as f64 * 1.3).sin() / (1.0 + i as f64))
            .collect();
        let most = (0..dim).max_by(|a, b| shift[*a].abs().total_cmp(&shift[*b].abs())).unwrap_or(0);
        SiteInfluence { shift, most, error: 0.031 }
    };
    Influence { draws: 8000, sites: (0..sites).map(site).collect() }
}

/// Autoregressions that mix more slowly the later the parameter, neighbours correlated.
fn draws(chains: usize, length: usize, dim: usize, seed: u64, bias: f64) -> Draws {
    let one = |chain: usize| {
        let mut stream = Seed::new(seed).chain(chain as u32).stream(Purpose::Data, SERVER, 0);
        let (mut noise, mut at, mut all) =
            (vec![0.0; dim], vec![0.0; dim], Vec::with_capacity(length * dim));
        for _ in 0..length {
            stream.normals(&mut noise);
            for k in 0..dim {
                let keep = 0.3 * (k as f64 / dim as f64);
                at[k] = keep * at[k] + (1.0f64 - keep * keep).sqrt() * noise[k];
            }
            all.extend((0..dim).map(|k| {
                let own = if k % 3 == 1 { 0.5 * at[k] - 0.85 * at[k - 1] } else { at[k] };
                0.9 * (k as f64 * 1.7).sin() + (0.12 + 0.02 * (k % 5) as f64) * (own + bias)
            }));
        }
        all
    };
    Draws::from_chains((0..chains).map(one).collect(), dim)
}
