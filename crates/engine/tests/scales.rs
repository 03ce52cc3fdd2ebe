//! Effects of groups in few exchanges: proposals with nodes along the logarithm of their standard
//! deviation, on real data, against NUTS with every effect as a parameter.
//!
//! References are those of `examples/real/references.py`: NUTS. Their errors are worked out from
//! how many effective draws they have at least.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows its numbers

use std::path::Path;

use consilience_engine::config::{Config, Source};
use consilience_engine::session::{Control, Session};
use consilience_engine::warnings::summaries;

/// Sample an example by whatever is chosen: it is `imh` along nodes, in few exchanges, and means
/// and standard deviations are those of the reference within 4.9 standard errors of both sides.
fn check(example: &str, scale: &str, reference: &[(&str, f64, f64)], draws: f64) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/real");
    let config = Config::load(&folder.join(example)).unwrap();
    let planned = Session::new(config).unwrap().plan().unwrap();
    let choice = planned.plan.choice.clone().unwrap();
    println!("{example}: {choice:?}");
    let record = planned.run(&Default::default(), Control::default()).unwrap().record;
    let bits: u64 = record.sent.iter().map(|sent| sent.bits).sum();
    println!("{example}: {:?} exchanges, {} bytes", record.exchanges, bits / 8);
    let summaries = summaries(&record.draws);
    let mut wrong = Vec::new();
    for (k, (name, mean, sd)) in reference.iter().enumerate() {
        assert_eq!(record.parameters[k], *name);
        let found = summaries[k].as_ref().unwrap();
        // a standard deviation is as uncertain as a mean where tails are heavy
        let error = found.mcse_mean.hypot(sd / draws.sqrt());
        let spread = found.mcse_sd.hypot(sd / draws.sqrt());
        let z = ((found.mean - mean) / error, (found.sd - sd) / spread);
        let (bulk, tail) = (found.ess_bulk, found.ess_tail);
        println!(
            "{name}: {:.4} {:.4} ({mean} {sd}) z {z:.1?} bulk {bulk:.0} tail {tail:.0}",
            found.mean, found.sd
        );
        if z.0.abs() > 4.9 || z.1.abs() > 4.9 {
            wrong.push((name, z));
        }
    }
    assert!(wrong.is_empty(), "{example}: {wrong:?}");
    assert_eq!(record.parameters.len(), reference.len());
    assert_eq!((record.sampler.0.as_str(), choice.nodes.as_deref()), ("imh", Some(scale)));
    let (before, while_sampling) = record.exchanges;
    assert!(before + while_sampling <= 30, "{example}: {before} + {while_sampling} exchanges");
    assert!(record.warnings.is_empty(), "{:?}", record.warnings);
}

#[test]
fn heart_disease_at_hospitals_that_differ() {
    check(
        "heart-site.toml",
        "sd(1 | site)",
        &[
            ("intercept", 1.6942, 0.8009),
            ("age", 0.4673, 0.1000),
            ("sex: 0", -1.3126, 0.2281),
            ("cp: 1", -1.5503, 0.3529),
            ("cp: 2", -2.7071, 0.2635),
            ("cp: 3", -1.8531, 0.2046),
            ("sd(1 | site)", 1.5389, 0.8339),
        ],
        20_985.0,
    );
}

#[test]
fn survival_at_institutions_that_hardly_differ() {
    check(
        "lung-weibull.toml",
        "sd(1 | site)",
        &[
            ("intercept", 5.8923, 0.0834),
            ("age", -0.0707, 0.0637),
            ("sex: 2", 0.4105, 0.1264),
            ("ph_ecog", -0.2630, 0.0638),
            ("shape", 1.3505, 0.0852),
            ("sd(1 | site)", 0.1231, 0.0842),
        ],
        4_550.0,
    );
}

/// Effects of wards, whose standard deviations may be 0 or not, of intercepts and of slopes: their
/// laws are held against references in `groups.rs`.
#[test]
fn few_exchanges_are_planned_for_wards() {
    for (file, model, formula) in [
        ("groups.csv", "logistic", "ill ~ x + (1 | ward)"),
        ("groups.csv", "linear", "pain ~ x + (1 | ward)"),
        ("groups.csv", "poisson", "visits ~ x + (1 | ward)"),
        ("slopes.csv", "linear", "pain ~ x + (x | ward)"),
        ("slopes.csv", "logistic", "ill ~ x + (0 + x | ward)"),
    ] {
        let text = format!(
            "seed = 3\n[target]\nmodel = \"{model}\"\nformula = \"{formula}\"\n\
             prior = {{ law = \"normal(0, 2.5)\", of = {{ effects = \"half_normal(2)\" }} }}\n\
             [data]\nfile = \"{file}\"\nscheme = \"natural(site)\"\n"
        );
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let source = Source { file: "run.toml".into(), folder, text };
        let planned = Session::new(Config::parse(source).unwrap()).unwrap().plan().unwrap();
        let choice = planned.plan.choice.clone().unwrap();
        println!("{formula}: {choice:?}");
        assert_eq!((choice.chosen.as_str(), choice.nodes.is_some()), ("imh", true), "{formula}");
        assert!(choice.exchanges <= 25, "{formula}: {}", choice.exchanges);
    }
}
