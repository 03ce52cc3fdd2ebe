//! What parties compare names every setting: whatever is changed in a config changes its field, and
//! the hash.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::{BTreeMap, BTreeSet};

use consilience_core::protocol::Statement;
use consilience_engine::config::{Config, Source};
use consilience_engine::data::CellRule;
use consilience_engine::data::spline::{Knots, Spline};
use consilience_engine::plan::Decision;
use consilience_engine::problem::Problem;
use consilience_engine::site::{Agreement, LocalSite, agree, names};
use consilience_engine::statement::of_run;

fn parse(text: &str) -> Config {
    Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text: text.into() })
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn agreement(config: &Config) -> Agreement {
    let sites = LocalSite::open_all(config).unwrap();
    let said: Vec<_> = sites.iter().map(|site| site.introduce(config).unwrap()).collect();
    agree(config, None, &said).unwrap().agreement
}

fn stated(text: &str) -> Statement {
    let config = parse(text);
    // Sites of a secure sum bring keys, which are no settings.
    let open = parse(&text.replace("secure_sum = true", "secure_sum = false"));
    of_run(&config, &agreement(&open), &names(&config).unwrap(), None)
}

const CLIENTS: &str = "[[client]]\nname = \"basel\"\nrows = [[0.5, 0.25, 1], [0.1, 0.75, 0]]\n\
    [[client]]\nname = \"bern\"\nrows = [[0.5, 0.5, 1], [0.3, -0.25, 0]]\n";

/// Samplers that have every setting between them.
fn bases() -> [String; 11] {
    let with = |sampler: &str| {
        format!(
            "seed = 3\n[target]\nmodel = \"logistic\"\nintercept = true\ntemperature = 0.5\n\
             prior = {{ law = \"gaussian\", variance = 4.0, at = \"server\" }}\n{CLIENTS}\
             [sampler]\n{sampler}\n[run]\nchains = 2\niterations = 50\nburn_in = 5\nthin = 2\n\
             start = \"zero\"\n[output]\nlp = true\n"
        )
    };
    [
        with(
            "name = \"qlsd++\"\nstep = 0.05\nprecondition = true\nbatch = 1\nrefresh = 7\n\
             memory = 0.1\nparticipation = 0.5\nweighting = \"1/p\"\nwire = \"f32\"\n\
             compress = \"qsgd(16)\"\ncode = \"elias\"",
        ),
        with(
            "name = \"fa-ld\"\nstep = 0.05\nbatch = 1\nsynchronise = { every = 4 }\n\
             correlation = 0.5\n\
             weights = [0.5, 0.5]\naverage = \"all\"\nnoise = \"published\"",
        )
        .replace("at = \"server\"", "at = \"split\""),
        with("name = \"b-elf\"\nstep = 0.05\ncompress_down = \"scaled(qsgd(16))\""),
        with("name = \"marina-ld\"\nstep = 0.05\nrestart = 0.5"),
        with("name = \"vr-fald*\"\nstep = 0.05\nrefresh = 0.5").replace("server", "split"),
        with("name = \"dg-lmc\"\nstep = 0.05\ntether = 2.0"),
        with(
            "name = \"lmc\"\nstep = 0.05\nparticipation = { elastic = 0.5, deadline = 1.5 }\n\
             clip = 2.5",
        ),
        with("name = \"imh\"\nblock = 256"),
        with("name = \"hmc\"\nstep = 0.05\nleapfrog = 3"),
        with("name = \"penalty\"\nstep = 0.05\npotential_noise = 200.0"),
        // what is limited and what is hidden, together: nothing of it is planned here
        with("name = \"lmc\"\nstep = 0.05")
            .replace("model = \"logistic\"", "model = \"linear\"\nnoise_variance = 1.0")
            + "[privacy]\nepsilon = 3.0\ndelta = 1e-6\nneighbour = \"replace\"\n\
               row_norm = 2.0\nrows = 500\nslope = 1.5\nresponse = 4.0\nserver_share = 0.125\n\
               colluding = 1\nsampling = \"poisson\"\nhot = true\nsecure_sum = true\n",
    ]
}

/// What is changed, and the one field that says so.
const CHANGES: &[(&str, &str, &str)] = &[
    ("model = \"logistic\"", "model = \"linear\"\nnoise_variance = 1.0", "model"),
    ("variance = 4.0", "variance = 4.000000000000001", "prior"),
    ("law = \"gaussian\", variance = 4.0", "law = \"laplace\", scale = 4.0", "prior"),
    ("at = \"server\"", "at = \"split\"", "prior applied by"),
    ("at = \"split\"", "at = \"split\", split = [0.5, 0.5]", "prior applied by"),
    ("temperature = 0.5", "temperature = 0.25", "temperature"),
    ("name = \"bern\"", "name = \"zug\"", "sites"),
    ("name = \"b-elf\"", "name = \"bi-qlsd++\"", "sampler"),
    ("step = 0.05", "step = 0.050000000000000003", ""),
    ("step = 0.05", "step = 0.05000000000000001", "step"),
    ("step = 0.05", "step = \"auto\"", "step"),
    ("step = 0.05", "step = { first = 0.05, delay = 10.0, power = 0.6 }", "step"),
    ("precondition = true", "precondition = false", "coordinates"),
    ("precondition = true\n", "", "coordinates"),
    ("batch = 1", "batch = 2", "batch"),
    ("batch = 1", "batch = 0.5", "batch"),
    ("refresh = 7", "refresh = 8", "reference point moves"),
    ("refresh = 0.5", "refresh = 0.25", "reference point moves"),
    ("restart = 0.5", "restart = 0.25", "gradients sent in full with probability"),
    ("tether = 2.0", "tether = 3.0", "tether"),
    ("elastic = 0.5", "elastic = 0.25", "participation"),
    ("deadline = 1.5", "deadline = 1.25", "a round is closed after"),
    ("memory = 0.1", "memory = 0.2", "memory rate"),
    ("participation = 0.5", "participation = 0.25", "participation"),
    ("weighting = \"1/p\"", "weighting = \"b/|A|\"", "weighting"),
    ("wire = \"f32\"", "wire = \"f64\"", "numbers on the wire"),
    ("compress = \"qsgd(16)\"", "compress = \"qsgd(8)\"", "compression by sites"),
    ("code = \"elias\"", "code = \"huffman\"", "code of what is compressed"),
    ("every = 4", "every = 5", "synchronisation"),
    ("correlation = 0.5", "correlation = 0.25", "correlation of the sites' noise"),
    ("weights = [0.5, 0.5]\n", "weights = [0.25, 0.75]\n", "weights"),
    ("average = \"all\"", "average = { scheme = \"II\", clients = 1 }", "average"),
    ("noise = \"published\"", "noise = \"participants\"", "private noise scaled for"),
    ("scaled(qsgd(16))", "scaled(qsgd(8))", "compression by the server"),
    ("chains = 2", "chains = 3", "chains"),
    ("iterations = 50", "iterations = 60", "iterations"),
    ("burn_in = 5", "burn_in = 6", "burn-in"),
    ("thin = 2", "thin = 3", "thinning"),
    ("start = \"zero\"", "start = \"optimum\"", "start"),
    ("seed = 3", "seed = 4", "seed"),
    ("seed = 3", "seeds = \"simulation\"\nseed = 3", "the sites' noise"),
    ("lp = true", "lp = false", "log-density of draws"),
    ("clip = 2.5", "clip = 2.25", "gradients of sites are shortened to the norm"),
    ("clip = 2.5", "", "gradients of sites are shortened to the norm"),
    ("block = 256", "block = 512", "proposals in an exchange"),
    ("leapfrog = 3", "leapfrog = 4", "leapfrog steps"),
    (
        "potential_noise = 200.0",
        "potential_noise = 100.0",
        "noise of sites on differences of potentials, for points 1 apart",
    ),
    ("epsilon = 3.0", "epsilon = 3.0000000000000004", "privacy, epsilon"),
    ("delta = 1e-6", "delta = 1e-7", "privacy, delta"),
    ("neighbour = \"replace\"", "neighbour = \"add-remove\"", "privacy, against"),
    ("row_norm = 2.0", "row_norm = 2.5", "privacy, rows are shortened to"),
    ("rows = 500", "rows = 501", "privacy, rows of all sites, at most"),
    ("slope = 1.5", "slope = 1.25", "privacy, slopes are held within"),
    ("response = 4.0", "response = 3.0", "privacy, responses are clipped to within"),
    ("server_share = 0.125", "server_share = 0.25", "privacy, noise left to the server"),
    ("colluding = 1", "colluding = 0", "privacy, sites that collude"),
    ("sampling = \"poisson\"", "sampling = \"fixed\"", "privacy, rows of a minibatch are drawn"),
    ("hot = true", "hot = false", "privacy, heat of rounding"),
    ("secure_sum = true", "secure_sum = false", "privacy, the server sees"),
];

/// Fields that no config changes alone: the version, and what the data says.
const OTHERS: [&str; 4] = ["consilience", "response", "parameters", "columns"];

#[test]
fn whatever_is_changed_changes_its_field_and_the_hash() {
    let (mut seen, mut all) = (BTreeSet::new(), BTreeSet::new());
    for base in bases() {
        let first = stated(&base);
        all.extend(first.fields().map(|(field, _)| field.to_owned()));
        for (from, to, field) in CHANGES.iter().filter(|(from, ..)| base.contains(from)) {
            let text = base.replacen(from, to, 1);
            let other = stated(&text);
            // a field that one of them lacks differs
            let (before, after): (BTreeMap<&str, &str>, BTreeMap<&str, &str>) =
                (first.fields().collect(), other.fields().collect());
            let either: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
            let differ: Vec<&str> =
                either.into_iter().filter(|f| before.get(f) != after.get(f)).collect();
            if field.is_empty() {
                assert_eq!(first, other, "{to}: the same number");
                continue;
            }
            assert_ne!(first.hash(), other.hash(), "{to}");
            if !["model", "sampler"].contains(field) {
                assert_eq!(differ, [*field], "{to}"); // a sampler has fields of its own
            }
            let message = first.check(&other, "site \"bern\"").unwrap_err().to_string();
            assert!(message.contains(&format!("\n  {field}:\n")), "{to}: {message}");
            seen.insert((*field).to_owned());
        }
    }
    let unseen: Vec<&String> =
        all.difference(&seen).filter(|field| !OTHERS.contains(&field.as_str())).collect();
    assert!(unseen.is_empty(), "nothing changes {unseen:?}");
    for change in CHANGES {
        assert!(bases().iter().any(|base| base.contains(change.0)), "{change:?}");
    }
}

/// How columns are coded is part of it: every level, every mean, every reference.
#[test]
fn so_do_columns_and_what_surveys_found() {
    let config = parse("[data]\nbuiltin = \"heart-disease\"\n[sampler]\nname = \"lmc\"\n");
    let (first, names) = (agreement(&config), names(&config).unwrap());
    let hash = |agreement: &Agreement| of_run(&config, agreement, &names, None).hash();
    let mut hashes = BTreeSet::from([hash(&first)]);
    let (mut changed, mut count) = (first.clone(), 1);
    let moments = changed.moments.as_mut().unwrap();
    let (columns, levels) = (moments.columns.len(), moments.levels.len());
    for k in 0..columns {
        let mut other = first.clone();
        let column = &mut other.moments.as_mut().unwrap().columns[k];
        column.name.push('x');
        let rule = column.rule.clone();
        hashes.insert(hash(&other));
        let more: Vec<CellRule> = match rule {
            CellRule::Standardised { term, mean, sd } => vec![
                CellRule::Standardised { term: term + 1, mean, sd },
                CellRule::Standardised { term, mean: mean.next_up(), sd },
                CellRule::Standardised { term, mean, sd: sd.next_up() },
            ],
            CellRule::Level { term, level, fill } => vec![
                CellRule::Level { term: term + 1, level: level.clone(), fill },
                CellRule::Level { term, level: format!("{level}x"), fill },
                CellRule::Level { term, level, fill: !fill },
            ],
            CellRule::Missing { term } => {
                vec![CellRule::Missing { term: term + 1 }, CellRule::Value { term }]
            }
            CellRule::Site { site } => vec![CellRule::Site { site: format!("{site}x") }],
            CellRule::Value { term } => vec![CellRule::Value { term: term + 1 }],
            CellRule::Raw { term, mean } => {
                vec![CellRule::Raw { term, mean: mean.next_up() }, CellRule::Value { term }]
            }
            CellRule::Intercept => vec![CellRule::Value { term: 0 }],
            CellRule::Spline { .. } | CellRule::Product { .. } => panic!("not in these data"),
        };
        count += 1 + more.len();
        for rule in more {
            let mut other = first.clone();
            other.moments.as_mut().unwrap().columns[k].rule = rule;
            hashes.insert(hash(&other));
        }
    }
    for k in 0..levels {
        let mut other = first.clone();
        other.moments.as_mut().unwrap().levels[k].push("another".into());
        hashes.insert(hash(&other));
    }
    moments.rows += 1;
    hashes.insert(hash(&changed));
    let decided = |sampler: Option<&str>, step, weights| {
        let decision = Decision {
            sampler: sampler.map(Into::into),
            step,
            weights,
            chains: None,
            attempt: 0,
            halved: false,
        };
        of_run(&config, &first, &names, Some(&decision)).hash()
    };
    let step = |step, weights| decided(None, step, weights);
    hashes.insert(decided(Some("imh"), None, None));
    hashes.extend([
        step(None, None),
        step(Some(0.1), None),
        step(Some(0.1f64.next_up()), None),
        step(Some(0.1), Some(vec![0.5, 0.5])),
        step(Some(0.1), Some(vec![0.5, 0.5f64.next_up()])),
    ]);
    assert_eq!(hashes.len(), count + levels + 1 + 6, "every change has a hash of its own");
}

/// What is changed of a spline: its knots, which column of which term, centre, scale and mean.
type Change = dyn Fn(&mut Knots, &mut [usize; 2], &mut [f64; 3]);

/// Every number and every part of a spline and of a product is part of it, too.
#[test]
fn so_do_splines_and_products() {
    let config = parse("[data]\nbuiltin = \"heart-disease\"\n[sampler]\nname = \"lmc\"\n");
    let (first, names) = (agreement(&config), names(&config).unwrap());
    let spline = |change: &Change| {
        let written = Spline { natural: false, df: 5, degree: 2, standardised: true };
        let inner = vec![0.25, 0.5, 0.75];
        let mut knots = Knots { spline: written, bounds: (0.0, 1.0), inner, moments: (0.5, 0.1) };
        let (mut places, mut numbers) = ([2, 1], [0.125, 0.375, 0.0625]);
        change(&mut knots, &mut places, &mut numbers);
        let ([term, part], [centre, scale, usual]) = (places, numbers);
        CellRule::Spline { term, part, knots, centre, scale, usual }
    };
    let (age, sex) = (CellRule::Value { term: 0 }, CellRule::Value { term: 1 });
    let product = |parts: &[&CellRule]| CellRule::Product {
        parts: parts.iter().map(|part| (*part).clone()).collect(),
    };
    let rules = [
        spline(&|_, _, _| ()),
        spline(&|knots, _, _| knots.spline.natural = true),
        spline(&|knots, _, _| knots.spline.degree = 3),
        spline(&|knots, _, _| knots.bounds.0 = 0.0f64.next_down()),
        spline(&|knots, _, _| knots.bounds.1 = 1.0f64.next_up()),
        spline(&|knots, _, _| knots.inner[1] = 0.5f64.next_up()),
        spline(&|_, places, _| places[0] = 3),
        spline(&|_, places, _| places[1] = 2),
        spline(&|_, _, numbers| numbers[0] = numbers[0].next_up()),
        spline(&|_, _, numbers| numbers[1] = numbers[1].next_up()),
        spline(&|_, _, numbers| numbers[2] = numbers[2].next_up()),
        product(&[&age, &sex]),
        product(&[&age, &age]),
        product(&[&age, &sex, &sex]),
        product(&[&age, &product(&[&sex, &sex])]),
    ];
    let hash = |rule: &CellRule| {
        let mut changed = first.clone();
        changed.moments.as_mut().unwrap().columns[0].rule = rule.clone();
        of_run(&config, &changed, &names, None).hash()
    };
    let hashes: BTreeSet<String> = rules.iter().map(hash).collect();
    assert_eq!(hashes.len(), rules.len(), "every change has a hash of its own");
}

/// People read it: words and numbers, and no names of types.
#[test]
fn it_reads_as_words() {
    let config = parse(&bases()[0]);
    let statement = of_run(&config, &agreement(&config), &names(&config).unwrap(), None);
    let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    assert_eq!(
        statement.text(),
        format!(
            "consilience: {version}\n\
             model: logistic regression, with an intercept\n\
             response: the last column\n\
             parameters: \"intercept\", \"x1\", \"x2\"\n\
             sites: \"basel\", \"bern\"\n\
             prior: normal, mean 0, variance 4 for every parameter\n\
             prior applied by: the server\n\
             temperature: 0.5\n\
             columns: numbers, as they are\n\
             sampler: qlsd++\n\
             step: 0.05\n\
             coordinates: those in which the posterior is round\n\
             batch: 1 rows\n\
             reference point moves: every 7 rounds\n\
             memory rate: 0.1\n\
             participation: with probability 0.5\n\
             weighting: 1/p\n\
             compression by sites: qsgd(16)\n\
             code of what is compressed: elias\n\
             numbers on the wire: 32 bits\n\
             chains: 2\n\
             iterations: 50\n\
             burn-in: 5\n\
             thinning: 2\n\
             start: zero\n\
             seed: 3\n\
             the sites' noise: from seeds of their own, which nobody else knows\n\
             log-density of draws: asked for\n"
        )
    );
    let target = Problem::new(&config).unwrap().statement;
    assert!(statement.text().starts_with(target.text()), "the target stands first");
}
