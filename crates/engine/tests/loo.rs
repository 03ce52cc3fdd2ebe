//! Leave-one-out cross-validation at the sites: sums are those of ArviZ on the same draws, whatever
//! rows are where, and models are compared of the same rows alone.
//!
//! `data/loo_draws.csv` and ArviZ's numbers in `data/loo_reference.csv` are written by
//! `data/make_loo_reference.py`, of the rows of `data/offsets.csv`.
#![allow(clippy::unwrap_used)] // a test may panic

mod published;

use std::path::Path;

use consilience_engine::config::{Config, Source};
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::loo::{
    ComparedPart, LooError, LooPart, compare, compare_at, loo, loo_at, merge, merge_compared,
};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run;
use consilience_engine::rundir;
use consilience_engine::session::{Control, Session};
use consilience_engine::site_effects::effects;
use published::{data, records};

fn reference(what: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(data().join("loo_reference.csv")).unwrap();
    let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let found: Vec<f64> =
        lines.filter(|line| line[0] == what).map(|line| line[2].parse().unwrap()).collect();
    assert!(!found.is_empty(), "{what}");
    found
}

/// The draws of one model, chain by chain.
fn draws(model: &str) -> Draws {
    let text = std::fs::read_to_string(data().join("loo_draws.csv")).unwrap();
    let (mut chains, mut dim) = (vec![Vec::new(); 4], 0);
    for line in text.lines().map(|line| line.split(',').collect::<Vec<_>>()) {
        if line[0] == model {
            let values: Vec<f64> = line[3].split(' ').map(|v| v.parse().unwrap()).collect();
            dim = values.len();
            chains[line[1].parse::<usize>().unwrap()].extend(values);
        }
    }
    Draws::from_chains(chains, dim)
}

const SITES: &str = "[data]\nfile = \"offsets.csv\"\nscheme = \"natural(site)\"";

/// The record of a run that has these draws.
fn record(target: &str, rows: &str, draws: Draws) -> Record {
    let text = format!("[target]\nstandardise = false\n{target}\n{rows}\n[sampler]\nname=\"lmc\"");
    let source = Source { file: "run.toml".into(), folder: data(), text };
    let config = Config::parse(source).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let length = run::Length { iterations: 10, burn_in: 0, thin: 1, ..plan.length };
    let mut outcome = run::sample(&plan, &length, 1, Sinks::Memory, &Default::default()).unwrap();
    outcome.draws = draws;
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    Record::new(made, &config, &problem, &plan, outcome, None)
}

fn target(model: &str) -> String {
    let (name, formula) = match model {
        "logistic" => (model, "ill ~ x + offset(log(days / 100))"),
        "linear" => (model, "visits ~ x"),
        "groups" => ("poisson", "visits ~ x + offset(log(days / 100)) + (1 | site)"),
        _ => (model, "visits ~ x + offset(log(days / 100))"),
    };
    format!("model = \"{name}\"\nformula = \"{formula}\"")
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-8 * expected.abs().max(1.0)
}

#[test]
fn sums_of_the_sites_are_those_of_arviz() {
    for model in ["poisson", "negative_binomial", "logistic", "linear", "groups"] {
        let found = loo(&record(&target(model), SITES, draws(model))).unwrap();
        let one = |what: &str| reference(&format!("{model} {what}"))[0];
        for (what, found) in [
            ("elpd", found.total.sum),
            ("se", found.total.error()),
            ("p_loo", found.total.parameters()),
            ("good_k", found.good_k),
        ] {
            assert!(near(found, one(what)), "{model}, {what}: {found} is not {}", one(what));
        }
        let by_k: Vec<f64> = found.total.by_k.iter().map(|n| *n as f64).collect();
        assert_eq!(by_k, reference(&format!("{model} by_k")), "{model}");
        assert_eq!(found.unit, if model == "groups" { "groups" } else { "rows" });
        assert_eq!(found.draws, 600);
        if model == "groups" {
            continue;
        }
        let names: Vec<&str> = found.sites.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["north", "south", "west"]);
        for ((_, site), expected) in found.sites.iter().zip(reference(&format!("{model} sites"))) {
            assert!(near(site.sum, expected), "{model}: {} is not {expected}", site.sum);
        }
    }
}

#[test]
fn where_rows_are_does_not_matter() {
    let here = loo(&record(&target("linear"), SITES, draws("linear"))).unwrap();
    let dealt = "[data]\nfile = \"offsets.csv\"\nclients = 7";
    let there = loo(&record(&target("linear"), dealt, draws("linear"))).unwrap();
    assert_eq!(there.sites.len(), 7);
    let (a, b) = (here.total, there.total);
    assert!(near(a.sum, b.sum) && near(a.error(), b.error()) && a.by_k == b.by_k);
}

/// A weight of 2 counts what the row says twice.
#[test]
fn weights_count_and_rows_of_plain_numbers_are_left_out_too() {
    let weighted = "model = \"linear\"\nformula = \"visits ~ x + weights(2 + 0 * x)\"";
    let twice = loo(&record(weighted, SITES, draws("linear"))).unwrap();
    let once = loo(&record(&target("linear"), SITES, draws("linear"))).unwrap();
    let (twice, once) = (twice.total.sum, once.total.sum);
    assert!(twice < 1.9 * once && twice > 2.5 * once, "{twice} is not about twice {once}");

    let plain = |response: &str| {
        format!(
            "model = \"linear\"\nprior = {{ law = \"gaussian\", variance = 9.0 }}\n\
             noise_variance = 1.0\n[[client]]\nname = \"a\"\nrows = [[0.5, 1], [0.1, {response}]]\n\
             [[client]]\nname = \"b\"\nrows = [[1.5, 2], [-0.3, 0.5]]\n"
        )
    };
    let chains = |shift: f64| {
        let values = (0..80).map(|k| 0.3 * f64::from(k).sin() + shift);
        Draws::from_chains(vec![values.collect()], 2)
    };
    let plain_record = |response: &str| {
        let text = plain(response);
        let text = format!("[target]\n{text}[sampler]\nname = \"lmc\"\nstep = 0.01\n");
        let source = Source { file: "run.toml".into(), folder: data(), text };
        let config = Config::parse(source).unwrap();
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        let length = run::Length { iterations: 10, burn_in: 0, thin: 1, ..plan.length };
        let mut outcome =
            run::sample(&plan, &length, 1, Sinks::Memory, &Default::default()).unwrap();
        outcome.draws = chains(0.5);
        let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
        Record::new(made, &config, &problem, &plan, outcome, None)
    };
    let found = loo(&plain_record("0")).unwrap();
    assert_eq!((found.total.rows, found.sites.len()), (4, 2));
    let refused = compare(&plain_record("0"), &plain_record("0.25")).unwrap_err().to_string();
    assert!(refused.contains("row 2 of site `a` has two responses"), "{refused}");
}

#[test]
fn two_models_differ_as_arviz_says() {
    let a = record(&target("poisson"), SITES, draws("poisson"));
    let b = record(&target("negative_binomial"), SITES, draws("negative_binomial"));
    let [one, other, difference] = compare(&a, &b).unwrap();
    let (sum, error) = (difference.total.sum, difference.total.error());
    assert!(near(sum, reference("difference")[0]), "{sum}");
    assert!(near(error, reference("difference se")[0]), "{error}");
    assert!(near(one.total.sum - other.total.sum, sum));
    let back = compare(&b, &a).unwrap()[2].total;
    assert!(near(back.sum, -sum) && near(back.error(), error));
}

#[test]
fn what_cannot_be_left_out_or_compared_is_refused() {
    let a = record(&target("poisson"), SITES, draws("poisson"));
    let says = |found: Result<_, LooError>| found.map(|_| ()).unwrap_err().to_string();
    let logistic = record(&target("logistic"), SITES, draws("logistic"));
    let said = says(compare(&a, &logistic).map(|_| ()));
    assert!(said.contains("site `north` has two responses"), "{said}");
    let dealt = "[data]\nfile = \"offsets.csv\"\nclients = 2";
    let elsewhere = record(&target("poisson"), dealt, draws("poisson"));
    assert!(says(compare(&a, &elsewhere).map(|_| ())).contains("the sites are"));
    let groups = record(&target("groups"), SITES, draws("groups"));
    assert!(says(compare(&a, &groups).map(|_| ())).contains("one leaves out rows"));
    let few = record(&target("poisson"), SITES, Draws::from_chains(vec![vec![0.1; 20]], 2));
    assert!(says(loo(&few).map(|_| ())).contains("has 10 draws"));
    let cox = "model = \"cox\"\nformula = \"Surv(days, ill) ~ x\"";
    let cox = record(cox, SITES, Draws::from_chains(vec![vec![0.1; 40]; 2], 1));
    assert!(says(loo(&cox).map(|_| ())).contains("one of a whole site"));
    let mut other = a.clone();
    other.parameters[1] = "y".into();
    assert!(says(loo(&other).map(|_| ())).contains("the files give the parameters"));
    let mut lost = a;
    lost.config = lost.config.replace("offsets.csv", "lost.csv");
    assert!(says(loo(&lost).map(|_| ())).contains("lost.csv"));
}

/// A site needs the run and its own rows, and the sums of all are those of one process.
#[test]
fn sites_find_their_sums_by_themselves() {
    for (name, target) in [
        ("poisson", target("poisson").replace("x +", "x + site +")),
        ("weights", "model = \"linear\"\nformula = \"visits ~ x + weights(days)\"".into()),
        ("products", "model = \"poisson\"\nformula = \"visits ~ x*site\"".into()),
        ("wards", "model = \"poisson\"\nformula = \"visits ~ x + (1 | ill)\"".into()),
    ] {
        let (folder, here, published) = records(name, &target, Draws::new(1));
        let expected = loo(&here).unwrap();
        assert!(loo(&published).is_err(), "nobody has the rows of all");
        let mut parts = Vec::new();
        for site in ["west", "north", "south"] {
            let file = folder.join(format!("{site}.csv"));
            let part = loo_at(&published, site, Some(&file)).unwrap();
            parts.push(LooPart::read(&part.text()).unwrap());
        }
        let found = merge(&parts).unwrap();
        assert_eq!(found.unit, expected.unit, "{name}");
        for ((site, a), (other, b)) in found.sites.iter().zip(&expected.sites) {
            assert_eq!(site, other);
            assert!(near(a.sum, b.sum) && near(a.squares, b.squares), "{name}: {a:?} {b:?}");
            assert!(near(a.seen, b.seen) && a.by_k == b.by_k, "{name}: {a:?} {b:?}");
        }
        assert!(near(found.total.error(), expected.total.error()));
        // what leaves a site has nothing of single rows
        let text = parts[0].text();
        assert!(text.len() < 600, "{text}");
        let missing = merge(&parts[..2]).unwrap_err().to_string();
        assert!(missing.contains("the parts of these sites are missing: south"), "{missing}");
        let twice = merge(&[parts[0].clone(), parts[0].clone()]).unwrap_err().to_string();
        assert!(twice.contains("site `west` is there twice"), "{twice}");
        let mut other = published.clone();
        other.seed += 1;
        let other = loo_at(&other, "south", Some(&folder.join("south.csv"))).unwrap();
        let refused = merge(&[parts[0].clone(), parts[1].clone(), other]).unwrap_err();
        assert!(refused.to_string().contains("are of different runs"), "{refused}");
        if name == "wards" {
            let file = folder.join("south.csv");
            let alone = effects(&published, "south", Some(&file)).unwrap();
            let together = effects(&here, "south", None).unwrap();
            assert_eq!((alone.names, alone.draws), (together.names, together.draws));
        }
    }
}

#[test]
fn sites_compare_two_models_by_themselves() {
    let other = "model = \"negative_binomial\"\nformula = \"visits ~ x\"";
    let (_, a, first) = records("a", &target("poisson"), draws("poisson"));
    let (folder, b, second) = records("b", other, Draws::new(1));
    let expected = compare(&a, &b).unwrap();
    let part = |site: &str| {
        let file = folder.join(format!("{site}.csv"));
        let part = compare_at([&first, &second], site, Some(&file)).unwrap();
        ComparedPart::read(&part.text()).unwrap()
    };
    let found = merge_compared(&["south", "north", "west"].map(part)).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        let (a, b) = (found.total, expected.total);
        assert!(near(a.sum, b.sum) && near(a.error(), b.error()) && a.by_k == b.by_k);
    }
}

#[test]
fn what_a_site_cannot_do_is_refused_with_what_to_do() {
    let (folder, here, published) = records("wrong", &target("poisson"), draws("poisson"));
    let says = |found: Result<LooPart, LooError>| found.unwrap_err().to_string();
    let said = says(loo_at(&published, "nort", None));
    assert!(said.contains("there is no site `nort`") && said.contains("`north`?"), "{said}");
    assert!(says(loo_at(&published, "north", None)).contains("name it: --data FILE"));
    let lost = folder.join("lost.csv");
    assert!(says(loo_at(&published, "north", Some(&lost))).contains("lost.csv"));
    let bare = folder.join("bare.csv");
    std::fs::write(&bare, "x,days\n1,20\n").unwrap();
    assert!(says(loo_at(&published, "north", Some(&bare))).contains("have no response"));
    let gap = folder.join("gap.csv");
    let text = std::fs::read_to_string(folder.join("north.csv")).unwrap();
    let line = text.lines().nth(1).unwrap();
    let place = text.lines().next().unwrap().split(',').position(|c| c == "visits").unwrap();
    let mut cells: Vec<&str> = line.split(',').collect();
    cells[place] = "NA";
    std::fs::write(&gap, text.replace(line, &cells.join(","))).unwrap();
    assert!(says(loo_at(&published, "north", Some(&gap))).contains("1 rows have no response"));
    let short = folder.join("short.csv");
    std::fs::write(&short, text.lines().take(5).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let said = says(loo_at(&published, "north", Some(&short)));
    assert!(said.contains("site `north` had ") && said.contains("and has 4 now"), "{said}");
    assert!(loo_at(&here, "north", None).is_ok(), "the config names its file");
    assert!(LooPart::read("{}").is_err() && merge(&[]).is_err());
    let dealt = record(&target("poisson"), SITES, draws("poisson"));
    let said = says(loo_at(&dealt, "north", Some(&folder.join("north.csv"))));
    assert!(said.contains("no files of their own"), "{said}");
    assert!(loo_at(&dealt, "north", None).is_ok());
}

/// Rows that were edited are refused by the site that has them, and by no other: files are coded
/// as those of the run were, whatever the means of what they are now.
#[test]
fn changed_rows_are_refused_by_their_site() {
    for (name, target) in [
        ("numbers", target("poisson").replace("x +", "x + site +")),
        ("counted", "model = \"linear\"\nformula = \"visits ~ x + weights(days)\"".into()),
        ("effects", "model = \"poisson\"\nformula = \"visits ~ x + (1 | ill)\"".into()),
        ("missing", "model = \"poisson\"\nformula = \"visits ~ mi(x) + days\"".into()),
    ] {
        let (folder, mut here, mut published) = records(name, &target, Draws::new(1));
        let text = here.config.clone();
        let source = Source { file: "run.toml".into(), folder: folder.clone(), text };
        let config = Config::parse(source).unwrap();
        here.mark_rows(&config, &Problem::new(&config).unwrap());
        assert_eq!(here.row_hashes.len(), 3);
        published.row_hashes = here.row_hashes.clone();
        let file = folder.join("north.csv");
        let unchanged = loo(&here).unwrap();
        assert!(loo_at(&published, "north", Some(&file)).is_ok(), "{name}");
        let text = std::fs::read_to_string(&file).unwrap();
        let place = text.lines().next().unwrap().split(',').position(|c| c == "x").unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut cells: Vec<String> = lines[2].split(',').map(str::to_owned).collect();
        cells[place] = "7.5".into();
        lines[2] = cells.join(",");
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        let said = loo(&here).unwrap_err().to_string();
        assert!(said.contains("the rows of site `north`, coded as"), "{name}: {said}");
        let said = loo_at(&published, "north", Some(&file)).unwrap_err().to_string();
        assert!(said.contains("the rows of site `north`, coded as"), "{name}: {said}");
        assert!(loo_at(&published, "south", Some(&folder.join("south.csv"))).is_ok());
        if name == "effects" {
            assert!(effects(&here, "north", None).is_err());
        }
        std::fs::write(&file, text).unwrap();
        assert_eq!(loo(&here).unwrap(), unchanged);
    }
}

/// A run of few rows is cross-validated at once, and keeps it: the numbers are those of asking.
#[test]
fn a_run_of_few_rows_is_cross_validated_at_once() {
    for target in ["poisson", "groups"] {
        let text =
            format!("[target]\n{}\n{SITES}\n[run]\neffective_draws = 200", self::target(target));
        let config = Config::parse(Source { file: "run.toml".into(), folder: data(), text });
        let planned = Session::new(config.unwrap()).unwrap().plan().unwrap();
        let mut record = planned.run(&Default::default(), Control::default()).unwrap().record;
        assert_eq!(record.row_hashes.len(), 3);
        let found = record.loo.clone().unwrap();
        assert_eq!(loo(&record).unwrap(), found);
        assert!(found.total.rows > 0 && found.total.sum.is_finite());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loo-kept-{target}"));
        let _ = std::fs::remove_dir_all(&folder);
        rundir::write(&folder, &record).unwrap();
        assert_eq!(rundir::read(&folder).unwrap().loo, Some(found.clone()));
        // what is found later is kept in the folder, too
        record.loo = None;
        rundir::keep_judged(&folder, &record).unwrap();
        assert_eq!(rundir::read(&folder).unwrap().loo, None);
        record.loo = Some(found.clone());
        rundir::keep_judged(&folder, &record).unwrap();
        assert_eq!(rundir::read(&folder).unwrap().loo, Some(found));
    }
}
