//! What is said of draws that are known.

use super::*;
use crate::record::Record;

/// Draws of `parameters` columns: chain, draw and parameter decide each number.
fn record(
    chains: usize,
    length: usize,
    parameters: usize,
    value: impl Fn(usize, usize, usize) -> f64,
) -> Record {
    let mut record = crate::rundir::tests::record();
    record.parameters = (0..parameters).map(|k| format!("beta{k}")).collect();
    record.draws = draws(chains, length, parameters, value);
    (record.reference, record.effective_draws, record.interrupted) = (None, None, false);
    record.config = "[sampler]\nname = \"lmc\"\nprecondition = true\n".into();
    (record.iterations, record.step) = (length as u64, 0.05);
    record.sampler = ("fald".into(), String::new());
    record
}

fn draws(
    chains: usize,
    length: usize,
    parameters: usize,
    value: impl Fn(usize, usize, usize) -> f64,
) -> Draws {
    let chain = |c: usize| {
        (0..length * parameters).map(|at| value(c, at / parameters, at % parameters)).collect()
    };
    Draws::from_chains((0..chains).map(chain).collect(), parameters)
}

/// Numbers that look independent and standard normal.
fn normal(c: usize, i: usize, k: usize) -> f64 {
    use consilience_core::rng::{ClientId, Purpose, Seed};
    let mut z = [0.0];
    Seed::new(c as u64).stream(Purpose::Noise, ClientId(k as u32), i as u64).normals(&mut z);
    z[0]
}

fn texts(record: &Record) -> Vec<String> {
    of_draws(record).iter().map(ToString::to_string).collect()
}

#[test]
fn good_draws_are_not_warned_of() {
    assert_eq!(texts(&record(4, 1000, 2, normal)), Vec::<String>::new());
}

/// One parameter whose draws never vary has no R-hat; the other's chains disagree, and that is
/// still said.
#[test]
fn an_unknown_rhat_does_not_hide_a_bad_one() {
    let said =
        texts(&record(4, 1000, 2, |c, i, k| if k == 0 { 1.0 } else { normal(c, i, k) + c as f64 }));
    assert!(said.iter().any(|w| w.contains("not known for 1 of 2")), "{said:?}");
    assert!(said.iter().any(|w| w.contains("R-hat is up to") && w.contains("beta1")), "{said:?}");
}

/// More iterations are advised where they help, and otherwise something else is.
#[test]
fn advice_is_what_helps() {
    let slow = |c: usize, i: usize, k: usize| normal(c, i / 20, k);
    let longer = texts(&record(4, 4000, 1, slow)).concat();
    assert!(
        longer.is_empty(),
        "800 effective draws are enough unless more were asked for: {longer}"
    );
    let mut asked = record(4, 4000, 1, slow);
    asked.effective_draws = Some(4000);
    let longer = texts(&asked).concat();
    assert!(
        longer.contains("where 4000 are wanted") && longer.contains("(--iterations)"),
        "{longer}"
    );
    let mut unscaled = asked.clone();
    unscaled.config = "[sampler]\nprecondition = false\n".into();
    assert!(texts(&unscaled).concat().contains("precondition = true"));
    let stuck = texts(&record(4, 4000, 1, |c, _, k| normal(c, 0, k))).concat();
    assert!(!stuck.contains("--iterations"), "{stuck}");
    let crawling = texts(&record(4, 4000, 1, |c, i, _| c as f64 + i as f64 * 1e-4)).concat();
    assert!(
        crawling.contains("another sampler than fald") && !crawling.contains("--iterations"),
        "{crawling}"
    );
}

#[test]
fn a_reference_that_disagrees_is_a_warning() {
    let mut wide = record(4, 5000, 2, |c, i, k| normal(c, i, k) * if k == 1 { 1.57 } else { 1.0 });
    wide.reference = Some(draws(4, 5000, 2, |c, i, k| normal(c + 10, i, k)));
    let said = texts(&wide).concat();
    assert!(
        said.contains("standard deviations by up to")
            && said.contains("beta1")
            && said.contains("biased"),
        "{said}"
    );
    assert!(!said.contains("means differ"), "{said}");
    let mut few = record(4, 120, 1, |c, i, k| normal(c, i, k) + 0.12);
    few.reference = Some(draws(4, 5000, 1, |c, i, k| normal(c + 10, i, k)));
    let said = texts(&few).concat();
    assert!(said.contains("Monte Carlo error may explain it"), "{said}");
    wide.reference = Some(wide.draws.clone());
    assert!(of_draws(&wide).is_empty());
}

/// Programs read codes and numbers, not sentences.
#[test]
fn codes_and_numbers_say_the_same_as_the_words() {
    let apart = record(4, 1000, 1, |c, i, k| normal(c, i, k) + c as f64);
    let found = &of_draws(&apart)[0];
    assert_eq!(found.code, Code::ChainsDisagree);
    assert!(found.numbers["rhat"] > 1.5 && found.message.contains("R-hat"), "{found:?}");
    let slow = |c: usize, i: usize, k: usize| normal(c, i / 20, k);
    let few = Record { effective_draws: Some(4000), ..record(4, 4000, 1, slow) };
    let found = &of_draws(&few)[0];
    assert_eq!(found.code, Code::FewEffectiveDraws);
    assert_eq!(found.numbers["wanted"], 4000.0);
    assert!(found.numbers["effective_draws"] < 2000.0 && !found.remedy.is_empty());
    // A fifth too few is said, too: 16,000 draws of which every second repeats the one before.
    let wanted = |asked: u64| {
        let twice = |c: usize, i: usize, k: usize| normal(c, i / 2, k);
        Record { effective_draws: Some(asked), ..record(4, 4000, 1, twice) }
    };
    assert_eq!(of_draws(&wanted(10_000))[0].code, Code::FewEffectiveDraws);
    assert_eq!(of_draws(&wanted(7_000)), []);
    let stopped = Record { interrupted: true, ..record(4, 1000, 2, normal) };
    assert_eq!(of_draws(&stopped)[0].code, Code::Interrupted);
}
