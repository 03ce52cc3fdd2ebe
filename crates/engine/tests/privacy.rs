//! What a config tells of a row is planned without its rows, and what tells more is refused by
//! name.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_core::privacy::{Composition, Neighbour, Release, Sampling, gaussian_epsilon};
use consilience_core::protocol::{Direction, Kind};
use consilience_core::sampler::{Batch, Recipe};
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::privacy::{PrivacyReport, Threat, of_config, refusals};
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run::{Progress, sample};
use consilience_engine::session::{Control, Session};
use consilience_engine::warnings::Code;

const GOOD: &str = r#"seed = 1
[target]
model = "logistic"
intercept = false
[target.prior]
law = "gaussian"
variance = 2.0
[[client]]
name = "north"
rows = [[0.2, 1.0, 1], [-1.1, 0.3, 0], [30.0, -40.0, 1]]
[[client]]
name = "south"
rows = [[1.3, 0.2, 1], [0.4, -1.6, 0], [-0.9, 0.8, 1], [0.1, -0.2, 0]]
[sampler]
name = "lmc"
step = 1e-4
[run]
chains = 2
iterations = 100
[privacy]
epsilon = 3.0
delta = 1e-6
row_norm = 2.0
"#;

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Source {
        file: "run.toml".into(),
        folder: env!("CARGO_MANIFEST_DIR").into(),
        text: text.into(),
    })
}

/// Full batches are one Gaussian mechanism: mu = D sqrt(b t / (2 T)) against the server, without
/// the b against outsiders, with all but one of it against another site.
#[test]
fn epsilon_is_that_of_the_planning_law() {
    let plan = of_config(&read(GOOD).unwrap()).unwrap();
    assert_eq!((plan.chains, plan.iterations, plan.row_gradient), (2, 100, 2.0));
    let (reach, time) = (2.0 * 2.0, 2.0 * 100.0 * 1e-4);
    assert!((plan.time - time).abs() < 1e-15);
    let north = &plan.sites[0];
    for (exposure, b) in north.exposures.iter().zip([2.0, 2.0, 1.0]) {
        let mu = reach * (b * time / 2.0f64).sqrt();
        let exact = gaussian_epsilon(mu, 1e-6);
        let found = exposure.epsilon;
        assert!((found / exact - 1.0).abs() < 1e-6, "{:?}: {found}, {exact}", exposure.threat);
        assert!(exposure.renyi >= found);
        assert_eq!(exposure.curve.last().unwrap(), &(100, found));
    }
    assert_eq!(north.exposures[0].threat, Threat::Server);
    // As many iterations as are allowed keep the budget, and one more does not.
    let allowed = north.exposures[0].allowed;
    let at = |n: u64| {
        let text = GOOD.replace("iterations = 100", &format!("iterations = {n}"));
        of_config(&read(&text).unwrap()).unwrap().sites[0].exposures[0].epsilon
    };
    assert!(at(allowed) <= 3.0 && at(allowed + 1) > 3.0, "{allowed}");
}

#[test]
fn clients_draw_noise_and_long_rows_are_shortened() {
    let config = read(GOOD).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let told: Vec<Code> = plan.warnings.iter().map(|warning| warning.code).collect();
    assert!(told.contains(&Code::PrivacySimulated), "{told:?}");
    let noise = plan.recipe.family().own_noise(2, 2, 1.0).unwrap();
    let by_hand = (2.0f64 / (1e-4 * 2.0)).sqrt();
    assert!((noise[0] / by_hand - 1.0).abs() < 1e-12, "{noise:?}");
    // The gradient of (30, -40; 1), shortened to 2, at 0 is -(1.2, -1.6)/2; the others are short.
    let mut gradient = vec![0.0; 2];
    let site = consilience_core::rng::ClientId(0);
    problem.target.site(site, 3).gradient(&[0.0, 0.0], &mut gradient);
    let rows = [[0.2, 1.0, -0.5], [-1.1, 0.3, 0.5], [1.2, -1.6, -0.5]];
    for k in 0..2 {
        let expected: f64 = rows.iter().map(|row| row[k] * row[2]).sum();
        assert!((gradient[k] - expected).abs() < 1e-12, "{gradient:?}");
    }
    // Without a budget rows stay as they are, and so does the sampler.
    let open = read(GOOD.split("[privacy]").next().unwrap()).unwrap();
    let plain = Plan::new(&open, &Problem::new(&open).unwrap()).unwrap();
    assert!(plain.recipe != plan.recipe);
}

/// What is replaced by what, the field that must be named, a word of the problem or of its fix.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("row_norm = 2.0", "", "privacy.row_norm", "anything"),
    ("epsilon = 3.0", "", "privacy.epsilon", "epsilon ="),
    ("epsilon = 3.0", "epsilon = -1.0", "privacy.epsilon", "positive"),
    ("delta = 1e-6", "delta = 1.5", "privacy.delta", "1"),
    ("delta = 1e-6", "delta = 0.3", "privacy.delta", "1/4"),
    ("delta = 1e-6", "delta = 1e-6\nslop = 1.0", "privacy.slop", "slope"),
    ("step = 1e-4", "", "sampler.step", "constant step"),
    ("step = 1e-4", "step = 1e-4\nprecondition = true", "sampler.precondition", "Hessian"),
    ("name = \"lmc\"\nstep = 1e-4", "name = \"auto\"", "sampler.name", "exact functions"),
    ("name = \"lmc\"", "name = \"lsd*\"", "sampler.name", "optimum"),
    ("name = \"lmc\"", "name = \"lsd++\"", "sampler", "control variates"),
    ("name = \"lmc\"", "name = \"qlsd++\"", "sampler", "control variates"),
    ("name = \"lmc\"", "name = \"d-elf\"", "sampler", "memory"),
    ("name = \"lmc\"", "name = \"qlsd\"\ncompress = \"rand_k(1)\"", "sampler", "qsgd"),
    ("name = \"lmc\"", "name = \"fa-ld\"\ncorrelation = 1.0", "sampler", "one noise"),
    ("chains = 2", "", "run", "chains and iterations"),
    ("iterations = 100", "", "run", "chains and iterations"),
    ("iterations = 100", "iterations = 100\nstart = \"optimum\"", "run.start", "exact function"),
    ("iterations = 100", "iterations = 100\nbias = \"halve\"", "run.bias", "half the step"),
    ("row_norm = 2.0", "row_norm = 2.0\nnoise = \"extra\"", "privacy.noise", "target.temperature"),
    ("row_norm = 2.0", "row_norm = 2.0\nsampling = \"poisson\"", "privacy.sampling", "batch ="),
    ("row_norm = 2.0", "row_norm = 2.0\nhot = true", "privacy.hot", "rounded"),
    ("seed = 1", "seed = 1\noutput = { lp = true }", "output.lp", "exact functions"),
    ("iterations = 100", "iterations = 100000", "privacy.epsilon", "the run asks for 100000"),
    ("model = \"logistic\"", "model = \"linear\"\nnoise_variance = 1.0", "target.model", "bound"),
    ("model = \"logistic\"", "model = \"poisson\"", "target.model", "bound"),
    (
        "name = \"lmc\"",
        "name = \"sgld\"\nbatch = 0.5\nwire = \"f64\"",
        "privacy.neighbour",
        "fixed size",
    ),
];

#[test]
fn what_tells_more_is_refused_by_its_field() {
    for (find, replace, field, word) in REFUSED {
        let mut text = GOOD.replacen(find, replace, 1);
        assert_ne!(text, GOOD, "{find}");
        if *field == "privacy.neighbour" {
            text = format!("{text}neighbour = \"add-remove\"\n");
        }
        let tried = read(&text).and_then(|config| {
            let problem = Problem::new(&config)?;
            Plan::new(&config, &problem).map(|_| ())
        });
        let error = tried.expect_err(replace);
        let told = format!("{} {}", error.problem, error.fix);
        assert!(error.field.starts_with(field), "{replace}: {} for {field}", error.field);
        assert!(told.contains(word), "{replace}: {told}");
    }
    assert!(refusals(&read(GOOD).unwrap()).is_empty());
    let open = read(GOOD.split("[privacy]").next().unwrap()).unwrap();
    assert_eq!(refusals(&open)[0].field, "privacy");
}

/// A step that is left open follows from how curved so many rows can be at most, which no row
/// moves: l R^2 N and the prior, with l = 1/4, 1/2 and 1/variance.
#[test]
fn a_step_that_is_left_open_follows_from_public_bounds() {
    let open = GOOD.replace("step = 1e-4\n", "") + "rows = 1000\n";
    let linear = "model = \"linear\"\nnoise_variance = 0.5";
    let linear = open.replace("model = \"logistic\"", linear) + "slope = 1.5\n";
    let softmax = open.replace("\"logistic\"", "\"softmax\"\nclasses = 3");
    for (text, l) in [(&open, 0.25), (&softmax, 0.5), (&linear, 2.0)] {
        let config = read(text).unwrap();
        let curvature = l * 4.0 * 1000.0 + 0.5;
        let step = config.sampler.step.unwrap().largest();
        assert!((step * curvature - 0.05).abs() < 1e-12, "{l}: {step}");
        assert!(refusals(&config).is_empty(), "{l}: {:?}", refusals(&config));
        // and is the one that runs, whatever the rows are
        let planned = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap();
        assert_eq!(planned.step().largest(), step);
    }
    // The steepest rows that may be: a step that contracts.
    let other = open.replace("[0.2, 1.0, 1], [-1.1, 0.3, 0]", "[90.0, 1.0, 1], [90.0, 0.3, 0]");
    assert_ne!(other, open);
    let steps = [&open, &other].map(|text| read(text).unwrap().sampler.step);
    assert_eq!(steps[0], steps[1]);
    let few = read(&open.replace("rows = 1000\n", "rows = 6\n")).unwrap();
    let error = Plan::new(&few, &Problem::new(&few).unwrap()).err().unwrap();
    assert!(error.field == "privacy.rows" && error.problem.contains("7 rows"), "{error}");
    // Where there is no bound the step must be stated.
    for (find, with) in [
        ("law = \"gaussian\"\nvariance = 2.0", "law = \"laplace\"\nscale = 1.0"),
        ("name = \"lmc\"", "name = \"qlsd\"\ncompress = \"qsgd(16)\""),
    ] {
        let text = open.replace(find, with);
        assert_ne!(text, open);
        let told = refusals(&read(&text).unwrap());
        let word = told.iter().any(|t| t.field == "sampler.step" && t.fix.contains("privacy.rows"));
        assert!(word, "{told:?}");
    }
}

/// Who sees draws alone that are far apart, of a chain that a strong prior pulls together, learns
/// less than who sees the rounds; by the formula of Bok, Su and Altschuler with the prior for `m`
/// and as many rows as there are for `L`.
#[test]
fn draws_that_are_far_apart_tell_outsiders_less_than_rounds() {
    let run = "burn_in = 4000\nthin = 4000\niterations = 12000";
    let text = GOOD
        .replace("variance = 2.0", "variance = 0.01")
        .replace("step = 1e-4", "step = 1e-4\nwire = \"f64\"")
        .replace("iterations = 100", run)
        + "rows = 7\n";
    let told = |text: &str| {
        let plan = of_config(&read(text).unwrap()).unwrap();
        plan.sites[0].exposures.iter().map(|e| (e.epsilon, e.renyi)).collect::<Vec<_>>()
    };
    let found = told(&text);
    let (m, l, step, reach) = (100.0, 0.25 * 4.0 * 7.0 + 100.0, 1e-4, 4.0f64);
    let c = f64::max(1.0 - step * m, 1.0 - step * l);
    let mu = |rounds: i32| {
        let power = c.powi(rounds);
        let longer = (1.0 - power) / (1.0 + power) * (1.0 + c) / (1.0 - c);
        reach * (step / 2.0 * longer).sqrt()
    };
    // two chains of three draws at most, the first after 8000 rounds at most
    let mu = (2.0 * (mu(8000).powi(2) + 2.0 * mu(4000).powi(2))).sqrt();
    let expected = gaussian_epsilon(mu, 1e-6);
    assert!((found[2].0 / expected - 1.0).abs() < 1e-6, "{found:?}, {expected}");
    assert!(found[2].1 >= found[2].0 && found[2].0 < 0.7 * found[1].0, "{found:?}");
    // What is rounded to 32 bits does not contract; and where draws follow each other closely they
    // tell what the rounds tell.
    let rounds = gaussian_epsilon(reach * (2.0 * 12000.0 * step / 2.0).sqrt(), 1e-6);
    for (find, with) in [
        ("wire = \"f64\"", ""),
        ("burn_in = 4000\nthin = 4000", "burn_in = 1\nthin = 1"),
        ("rows = 7\n", ""),
    ] {
        let other = told(&text.replace(find, with));
        assert!((other[2].0 / rounds - 1.0).abs() < 1e-6, "{find}: {other:?}, {rounds}");
        assert_eq!(other[0], found[0], "{find}: the server sees every round");
    }
}

/// Linear regression is clipped where a slope is stated: far from the line every row pulls alike.
#[test]
fn slopes_are_held_within_their_bound() {
    let linear = "model = \"linear\"\nnoise_variance = 0.5";
    let text = GOOD.replace("model = \"logistic\"", linear) + "slope = 1.5\n";
    let config = read(&text).unwrap();
    assert_eq!(of_config(&config).unwrap().row_gradient, 1.5 * 2.0);
    let problem = Problem::new(&config).unwrap();
    let gradient = |x: [f64; 2]| {
        let mut gradient = vec![0.0; 2];
        let site = consilience_core::rng::ClientId(1);
        problem.target.site(site, 4).gradient(&x, &mut gradient);
        gradient
    };
    // Far out all four predictors are beyond their responses: slopes of 1.5 with the sign of t.
    let rows = [[1.3, 0.2], [0.4, -1.6], [-0.9, 0.8], [0.1, -0.2]];
    let x = [300.0, -200.0];
    let found = gradient(x);
    for k in 0..2 {
        let signs = rows.iter().map(|a| 1.5 * (a[0] * x[0] + a[1] * x[1]).signum() * a[k]);
        let expected: f64 = signs.sum();
        assert!((found[k] - expected).abs() < 1e-12, "{found:?}");
    }
    // Near the line it is linear regression: (t - y) / 0.5.
    let x = [0.3, 0.1];
    let found = gradient(x);
    for k in 0..2 {
        let pulls = rows
            .iter()
            .zip([1.0, 0.0, 1.0, 0.0])
            .map(|(a, y)| ((a[0] * x[0] + a[1] * x[1] - y) / 0.5f64).clamp(-1.5, 1.5) * a[k]);
        let expected: f64 = pulls.sum();
        assert!((found[k] - expected).abs() < 1e-12, "{found:?}");
    }
}

/// Samplers whose server draws no noise have no share of it to leave; and walks have minibatches of
/// one size.
#[test]
fn settings_that_a_sampler_has_no_use_for_are_refused() {
    let first = |text: &str| refusals(&read(text).unwrap()).into_iter().next();
    let penalty = GOOD.replace(
        "name = \"lmc\"\nstep = 1e-4",
        "name = \"penalty\"\nstep = 0.05\npotential_noise = 200.0",
    );
    assert_eq!(first(&penalty), None);
    let told = first(&format!("{penalty}server_share = 0.2\n")).unwrap();
    assert!(told.field == "privacy.server_share" && told.problem.contains("alone"), "{told:?}");
    assert_eq!(first(&format!("{GOOD}server_share = 0.2\n")), None);
    let walks = GOOD.replace("name = \"lmc\"", "name = \"fald\"\nbatch = 0.5");
    assert_eq!(first(&walks), None);
    let told = first(&format!("{walks}sampling = \"poisson\"\n")).unwrap();
    assert!(told.problem.contains("one by one"), "{told:?}");
}

/// Rows that are drawn one by one are accounted for as such, for both kinds of neighbours.
#[test]
fn rows_drawn_one_by_one_are_planned_as_such() {
    for (word, neighbour) in [("replace", Neighbour::Replace), ("add-remove", Neighbour::AddRemove)]
    {
        let text = GOOD.replace("name = \"lmc\"", "name = \"sgld\"\nbatch = 0.5");
        let text = format!("{text}sampling = \"poisson\"\nneighbour = \"{word}\"\n");
        let config = read(&text).unwrap();
        let plan = of_config(&config).unwrap();
        let exposure = &plan.sites[0].exposures[0];
        let drawn = Sampling::Poisson { rate: 0.5 };
        let release = Release::new(drawn, neighbour, exposure.ratio).unwrap();
        let expected = Composition::of(release, 200).epsilon(1e-6).unwrap();
        assert_eq!(exposure.epsilon, expected, "{word}");
        // and so the site's clients draw them
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        let Recipe::Uplink(uplink) = &plan.recipe else { panic!("{:?}", plan.recipe) };
        assert_eq!(uplink.batch, Batch::Each(0.5));
        assert!(sample(&plan, &plan.length, 1, Sinks::Memory, &Progress::default()).is_ok());
    }
}

/// A private run in one process leaves out what its report says is left out: exact functions of
/// rows.
#[test]
fn a_private_run_leaves_out_what_its_report_says() {
    let ended = |text: &str| {
        let planned = Session::new(read(text).unwrap()).unwrap().plan().unwrap();
        planned.run(&Progress::default(), Control::default()).unwrap().record
    };
    let private = ended(GOOD);
    let report = PrivacyReport::of(&private).unwrap();
    assert!(report.left_out.iter().any(|(what, _)| what.contains("calibration, influence")));
    assert!(private.calibration.is_none() && private.influence.is_none());
    assert!(private.check.is_none() && private.statistics.iter().all(|s| s.name != "lp"));
    let open = ended(GOOD.split("[privacy]").next().unwrap());
    assert!(open.calibration.is_some() && open.influence.is_some(), "else nothing is left out");
    assert!(open.statistics.iter().any(|s| s.name == "lp"));
}

#[test]
fn fixed_minibatches_cost_more_than_full_batches() {
    let text = GOOD.replace("name = \"lmc\"", "name = \"sgld\"\nbatch = 0.5");
    let plan = of_config(&read(&text).unwrap()).unwrap();
    let full = of_config(&read(GOOD).unwrap()).unwrap();
    assert_eq!(plan.sites[0].share, 0.5);
    assert!(plan.sites[0].exposures[0].epsilon > full.sites[0].exposures[0].epsilon);
}

const ONCE: &str = r#"seed = 1
[target]
model = "logistic"
intercept = false
[target.prior]
law = "gaussian"
variance = 2.0
[[client]]
name = "north"
rows = [[0.2, 1.0, 1], [-1.1, 0.3, 0], [30.0, -40.0, 1]]
[[client]]
name = "south"
rows = [[1.3, 0.2, 1], [0.4, -1.6, 0], [-0.9, 0.8, 1], [0.1, -0.2, 0]]
[sampler]
name = "dp-release"
[run]
iterations = 300
[privacy]
epsilon = 3.0
delta = 1e-6
row_norm = 3.0
weak = true
"#;

fn as_linear(prior: &str) -> String {
    let model = ONCE.replace("\"logistic\"", "\"linear\"") + "response = 2.0\n";
    model.replace("law = \"gaussian\"\nvariance = 2.0", prior)
}

const SIGMA: &str = "law = \"normal(0, 1)\"\nof = { sigma = \"exponential(1)\" }";

/// Two answers of a Gaussian mechanism: epsilon against the server is the budget, and less against
/// those who see sums alone. The noise is that of the tests of privacy.md, section 10.
#[test]
fn a_release_is_planned_as_one_gaussian_mechanism() {
    let plan = of_config(&read(ONCE).unwrap()).unwrap();
    let once = plan.once.as_ref().unwrap();
    assert!((once.mu[0] - 0.647_726_531).abs() < 1e-9, "{once:?}");
    let noise = once.noise.iter().map(|(_, deviation)| *deviation);
    for (found, expected) in noise.zip([48.928_868, 23.299_461, 10.696_186, 6.738_597]) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    }
    let told: Vec<f64> = plan.sites[0].exposures.iter().map(|e| e.epsilon).collect();
    assert!((told[0] - 3.0).abs() < 1e-6, "{told:?}");
    let outside = gaussian_epsilon(once.mu[0] / 2f64.sqrt(), 1e-6);
    assert!((told[2] - outside).abs() < 1e-4, "{told:?} {outside}");
    assert_eq!(told[0], told[1], "one of two sites sees the other alone");
    assert!(plan.sites[0].exposures[0].curve[0].1 < 3.0);
    assert!(of_config(&read(&as_linear(SIGMA)).unwrap()).unwrap().once.is_some());
}

/// Where chains buy too few draws the plan says what a release would give.
#[test]
fn a_release_is_recommended_where_chains_buy_too_few_draws() {
    let curved = |m: f64| {
        let text = format!("{GOOD}expect_curvature = {m:?}\n");
        of_config(&read(&text).unwrap()).unwrap()
    };
    let plan = curved(1000.0);
    let draws = plan.effective_draws_allowed.unwrap();
    assert!(draws < 100.0, "{draws}");
    let width = plan.release_width.unwrap();
    assert!((width - (1.0 + 1.0 / (0.75 * draws)).sqrt()).abs() < 1e-12, "{width}");
    assert!(curved(1e7).release_width.is_none());
    assert!(of_config(&read(GOOD).unwrap()).unwrap().release_width.is_none());
}

#[test]
fn a_release_is_run_from_a_config() {
    for text in [ONCE.to_owned(), as_linear(SIGMA)] {
        let config = read(&text).unwrap();
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        assert_eq!((plan.length.chains, plan.length.iterations), (1, 300));
        let outcome = sample(&plan, &plan.length, 1, Sinks::Memory, &Progress::default()).unwrap();
        assert_eq!((outcome.draws.length(), outcome.draws.dim()), (300, problem.parameters.len()));
        assert_eq!(outcome.rows_evaluated, 2 * 7, "every row twice");
        // Where noise prevails, as in seven rows, there are no draws unless they are wanted.
        let text = text.replace("weak = true", "");
        let config = read(&text).unwrap();
        let plan = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap();
        let tried = sample(&plan, &plan.length, 1, Sinks::Memory, &Progress::default());
        let why = tried.unwrap_err().to_string();
        assert!(why.contains("weak = true"), "{why}");
    }
}

#[test]
fn what_cannot_be_released_is_refused_by_its_field() {
    let refused = |text: &str| {
        let tried = read(text).and_then(|config| {
            let problem = Problem::new(&config)?;
            Plan::new(&config, &problem).map(|_| ())
        });
        let error = tried.expect_err(text);
        (error.field, format!("{} {}", error.problem, error.fix))
    };
    let linear = as_linear(SIGMA);
    for (text, find, replace, field, word) in [
        (ONCE, "iterations = 300", "iterations = 300\nchains = 4", "run.chains", "chains = 1"),
        (ONCE, "\"dp-release\"", "\"dp-release\"\nstep = 0.1", "sampler.step", "remove"),
        (ONCE, "\"dp-release\"", "\"dp-release\"\nbatch = 2", "sampler.batch", "twice"),
        (ONCE, "iterations = 300", "start = \"optimum\"", "run.start", "first release"),
        (ONCE, "row_norm = 3.0", "row_norm = 3.0\nslope = 1.0", "privacy.slope", "residuals"),
        (ONCE, "row_norm = 3.0", "row_norm = 3.0\nresponse = 1.0", "target.model", "0 or 1"),
        (ONCE, "\"logistic\"", "\"poisson\"", "target.model", "linear and logistic"),
        (ONCE, "law = \"gaussian\"\nvariance = 2.0", "law = \"flat\"", "target.prior", "flat"),
        (ONCE, "delta = 1e-6", "delta = 0.3", "privacy.delta", "1/4"),
        (&linear, "response = 2.0", "", "target.model", "privacy.response"),
        (&linear, SIGMA, "law = \"gaussian\"\nvariance = 2.0", "target.prior", "sigma"),
        (
            GOOD,
            "row_norm = 2.0",
            "row_norm = 2.0\nresponse = 1.0",
            "privacy.response",
            "dp-release",
        ),
        (GOOD, "name = \"lmc\"\nstep = 1e-4", "name = \"dp-relase\"", "sampler.name", "dp-release"),
    ] {
        let changed = text.replacen(find, replace, 1);
        assert_ne!(changed, text, "{find}");
        let (found, told) = refused(&changed);
        assert!(found.starts_with(field), "{replace}: {found}: {told}");
        assert!(told.contains(word), "{replace}: {told}");
    }
    let open = ONCE.split("[privacy]").next().unwrap();
    assert!(refused(open).1.contains("[privacy]"));
}

/// What a run told is computed again from its record: by its own config and its sites' rows.
#[test]
fn a_record_says_what_was_told() {
    for text in [GOOD, ONCE, &secure()] {
        let record = |text: &str| {
            let config = read(text).unwrap();
            let problem = Problem::new(&config).unwrap();
            let plan = Plan::new(&config, &problem).unwrap();
            let outcome =
                sample(&plan, &plan.length, 1, Sinks::Memory, &Progress::default()).unwrap();
            let made = Circumstances { version: "0".into(), created: "now".into(), seconds: 1.0 };
            Record::new(made, &config, &problem, &plan, outcome, None)
        };
        let told = PrivacyReport::of(&record(text)).unwrap();
        assert!(told.simulated, "in one process");
        let mut planned = of_config(&read(text).unwrap()).unwrap();
        if let Some(secure) = &mut planned.secure {
            // the record has the numbers of rows, from which the bits follow
            assert_eq!(secure.bits, None);
            secure.bits = Some(11);
            assert!(told.assumed.iter().any(|assumed| assumed.contains("X25519")));
        }
        assert_eq!(told.plan, planned);
        assert!(told.neighbours.contains("another row"));
        if text == GOOD {
            let open = record(text.split("[privacy]").next().unwrap());
            assert_eq!(PrivacyReport::of(&open), None);
        }
    }
}

fn secure() -> String {
    format!("{GOOD}secure_sum = true\n")
}

/// In a sum the noise of all honest sites counts, also against the server: `mu = D sqrt(t / (2 T))`
/// with all of them. Renyi divergences cost a little more.
#[test]
fn in_a_secure_sum_the_noise_of_all_sites_counts() {
    let plan = of_config(&read(&secure()).unwrap()).unwrap();
    let north = &plan.sites[0];
    for (exposure, share) in north.exposures.iter().zip([1.0, 0.5, 1.0]) {
        let mu = 4.0 * (plan.time / 2.0 / share).sqrt();
        let exact = gaussian_epsilon(mu, 1e-6);
        let found = exposure.epsilon;
        assert!(found > exact && found < 1.15 * exact, "{:?}: {found}, {exact}", exposure.threat);
        assert_eq!(exposure.curve.last().unwrap(), &(100, found));
    }
    let apart = of_config(&read(GOOD).unwrap()).unwrap();
    let allowed = [&apart, &plan].map(|plan| plan.sites[0].exposures[0].allowed);
    assert!(allowed[1] as f64 > 1.6 * allowed[0] as f64, "{allowed:?} for two sites");
    assert_eq!(apart.allowed_by_secure_sum, Some(allowed[1]));
    assert_eq!(plan.allowed_by_secure_sum, None);
    let at = |n: u64| {
        let text = secure().replace("iterations = 100", &format!("iterations = {n}"));
        of_config(&read(&text).unwrap()).unwrap().sites[0].exposures[0].epsilon
    };
    assert!(at(allowed[1]) <= 3.0 && at(allowed[1] + 1) > 3.0, "{allowed:?}");
    // One of three sites that tells the server its noise takes a third of it away.
    let third = "[[client]]\nname = \"east\"\nrows = [[0.3, 0.1, 1]]\n[sampler]";
    let three = secure().replace("[sampler]", third);
    let ratio = |text: &str| of_config(&read(text).unwrap()).unwrap().sites[0].exposures[0].ratio;
    let told = ratio(&format!("{three}colluding = 1\n")) / ratio(&three);
    assert!((told - (2.0f64 / 3.0).sqrt()).abs() < 1e-12, "{told}");
}

/// In one process it is the same sampler: levels are sent, of as many bits as are counted.
#[test]
fn a_secure_sum_is_run_from_a_config() {
    let walks = secure().replace("name = \"lmc\"", "name = \"fa-ld\"\nsynchronise = { every = 1 }");
    for text in [secure(), walks] {
        let config = read(&text).unwrap();
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        assert_eq!(plan.recipe.family().level_bits(&plan.target), Some(11));
        let outcome = sample(&plan, &plan.length, 1, Sinks::Memory, &Progress::default()).unwrap();
        assert!(outcome.draws.rows().flatten().all(|x| x.abs() < 2.0));
        let bits = outcome.ledger.bits(Direction::Up, Kind::Gradient);
        assert_eq!(bits, 2 * 2 * 100 * 24, "two levels of 11 bits in three bytes");
    }
}

#[test]
fn what_is_more_than_a_sum_is_refused_by_its_field() {
    for (find, replace, field, word) in [
        (
            "name = \"lmc\"",
            "name = \"qlsd\"\ncompress = \"qsgd(16)\"",
            "sampler",
            "levels of its own",
        ),
        ("name = \"lmc\"", "name = \"sgld\"\nbatch = 0.5", "sampler", "minibatches"),
        ("name = \"lmc\"", "name = \"d-elf\"\ncompress = \"top_k(1)\"", "sampler", "memory"),
        ("name = \"lmc\"", "name = \"dg-lmc\"", "sampler", "secure sum"),
        (
            "name = \"lmc\"",
            "name = \"fa-ld\"\nsynchronise = { every = 3 }",
            "sampler",
            "one local step a round",
        ),
        (
            "name = \"lmc\"",
            "name = \"lmc\"\nparticipation = { elastic = 0.5, deadline = 2.0 }",
            "sampler",
            "known only when all",
        ),
        (
            "name = \"lmc\"",
            "name = \"lmc\"\nparticipation = { clients = 1 }",
            "sampler",
            "difference of two cohorts",
        ),
        ("delta = 1e-6", "delta = 1e-6\ncolluding = 1", "privacy.secure_sum", "two honest sites"),
        ("delta = 1e-6", "delta = 1e-6\nserver_share = 0.1", "privacy.server_share", "draws none"),
    ] {
        let text = secure().replacen(find, replace, 1);
        let refused = refusals(&read(&text).unwrap());
        let told = refused.iter().any(|refusal| {
            let says = format!("{} {}", refusal.problem, refusal.fix);
            refusal.field.starts_with(field) && says.contains(word)
        });
        assert!(told, "{replace}: {refused:?}");
    }
    let once = format!("{ONCE}secure_sum = true\n");
    let refused = refusals(&read(&once).unwrap());
    assert!(refused.iter().any(|refusal| refusal.field == "privacy.secure_sum"), "{refused:?}");
}

fn noisy_differences() -> String {
    let sampler = "name = \"penalty\"\nstep = 0.05\npotential_noise = 80.0";
    GOOD.replace("name = \"lmc\"\nstep = 1e-4", sampler)
}

/// Every answer of `penalty` is one Gaussian release: `mu = D / (s T)`, against those who see the
/// sum alone with the noise of all honest sites.
#[test]
fn noisy_differences_of_potentials_are_accounted_for_as_gaussian_releases() {
    let text = noisy_differences();
    let plan = of_config(&read(&text).unwrap()).unwrap();
    assert_eq!((plan.time, plan.effective_draws), (0.0, None), "no Langevin time");
    for (exposure, honest) in plan.sites[0].exposures.iter().zip([1.0, 1.0, 2.0f64]) {
        let mu = 2.0 * 2.0 / 80.0 * (200.0 / honest).sqrt();
        let (found, exact) = (exposure.epsilon, gaussian_epsilon(mu, 1e-6));
        assert!((found / exact - 1.0).abs() < 1e-6, "{:?}: {found}, {exact}", exposure.threat);
    }
    assert!(plan.sites[0].exposures[0].allowed < 100, "this budget is too small");
    let error = Plan::new(&read(&text).unwrap(), &Problem::new(&read(&text).unwrap()).unwrap());
    assert!(error.unwrap_err().problem.contains("allows"), "and the run is refused");
    let config = read(&text.replace("= 80.0", "= 200.0")).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let outcome = sample(&plan, &plan.length, 1, Sinks::Memory, &Progress::default()).unwrap();
    assert!(outcome.draws.rows().flatten().all(|x| x.is_finite()));
    assert_eq!(outcome.ledger.bits(Direction::Up, Kind::Gradient), 0);
    assert!(outcome.ledger.bits(Direction::Up, Kind::Potential) > 0);
    // Without noise of its own, and with differences that are clipped, it is refused by name.
    let silent = refusals(&read(&text.replace("potential_noise = 80.0\n", "")).unwrap());
    assert!(silent[0].problem.contains("potential_noise"), "{silent:?}");
    let clipped = text.replace("potential_noise", "clip = 1.0\npotential_noise");
    let error = read(&clipped).unwrap_err();
    assert!(error.field == "sampler.clip" && error.problem.contains("no potential"), "{error}");
}

/// What a site allows itself goes by the noise of those alone who do not collude.
#[test]
fn an_allowance_in_a_secure_sum_does_not_count_on_colluders() {
    let third = "[[client]]\nname = \"east\"\nrows = [[0.3, 0.1, 1]]\n[sampler]";
    let three = secure().replace("[sampler]", third);
    let allowed = |text: &str| {
        let config = read(text).unwrap();
        let plan = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap();
        consilience_engine::privacy::allowance(&config, &plan.recipe, 0, 3, 2).unwrap()
    };
    let (alone, told) = (allowed(&three), allowed(&format!("{three}colluding = 1\n")));
    let ratio = told as f64 / alone as f64;
    assert!((ratio - 2.0 / 3.0).abs() < 0.02, "{told} of {alone}");
}

/// A person of k rows moves what leaves a site k times as far: epsilon is that of k times the mu,
/// for chains, secure sums and releases alike; with minibatches there is no such bound.
#[test]
fn a_person_of_several_rows_is_hidden_by_as_many_times_the_noise() {
    let epsilon = |text: &str| {
        let plan = of_config(&read(text).unwrap()).unwrap();
        (plan.sites[0].exposures[0].epsilon, plan.sites[0].exposures[0].allowed, plan.reach)
    };
    let one = epsilon(GOOD);
    let three = format!("{GOOD}rows_per_person = 3\n");
    let found = epsilon(&three);
    let mu = 3.0 * 2.0 * 2.0 * (2.0 * 2.0 * 100.0 * 1e-4 / 2.0f64).sqrt();
    let exact = gaussian_epsilon(mu, 1e-6);
    assert!((found.0 / exact - 1.0).abs() < 1e-6, "{found:?} {exact}");
    assert_eq!(found.2, 3.0 * one.2);
    let ratio = one.1 as f64 / found.1 as f64;
    assert!((8.5..9.7).contains(&ratio), "a ninth of the rounds, all of them: {one:?} {found:?}");
    // A site allows no more than that either, nor does a run begin that asks for more.
    let asked = three.replace("iterations = 100", &format!("iterations = {}", found.1 + 1));
    let config = read(&asked).unwrap();
    let error = Plan::new(&config, &Problem::new(&config).unwrap()).err().unwrap();
    assert!(error.field == "privacy.epsilon" && error.problem.contains("allows"), "{error}");
    // In a secure sum, and released once.
    let summed = format!("{GOOD}secure_sum = true\n");
    let (alone, all) = (epsilon(&summed), epsilon(&format!("{summed}rows_per_person = 3\n")));
    assert!((7.0..11.0).contains(&(alone.1 as f64 / all.1 as f64)), "{alone:?} {all:?}");
    let chains = "name = \"lmc\"\nstep = 1e-4\n[run]\nchains = 2\niterations = 100";
    let once = GOOD.replace(chains, "name = \"dp-release\"\n[run]\niterations = 100");
    let noise = |text: &str| of_config(&read(text).unwrap()).unwrap().once.unwrap().noise;
    for ((what, one), (_, all)) in
        noise(&once).into_iter().zip(noise(&format!("{once}rows_per_person = 3\n")))
    {
        assert!((all / one - 3.0).abs() < 1e-12, "{what}");
    }
    let part = three.replace("name = \"lmc\"", "name = \"sgld\"\nbatch = 0.5");
    let told = refusals(&read(&part).unwrap());
    assert!(told.iter().any(|told| told.field == "privacy.rows_per_person"), "{told:?}");
    // It is a part of what is agreed on.
    let stated = |text: &str| Problem::new(&read(text).unwrap()).unwrap().statement;
    assert!(stated(&three).text().contains("rows of one person, at most"));
    assert!(!stated(GOOD).text().contains("rows of one person"));
}

/// Responses that are clipped are counted as rows that are shortened are: for the site alone.
#[test]
fn a_site_is_told_how_many_responses_are_clipped() {
    use consilience_engine::site::{LocalSite, Own};
    let linear = "model = \"linear\"\nnoise_variance = 0.5";
    let rows = GOOD.replace("model = \"logistic\"", linear).replace("0.8, 1]", "0.8, -7]");
    let told = |text: &str| {
        let config = read(text).unwrap();
        LocalSite::open(&config, 1, &Own::Stated).unwrap().shortened().unwrap()
    };
    // slope times the variance is 0.75: responses of 1, and -7, are beyond it at 0
    assert_eq!(told(&format!("{rows}slope = 1.5\n")).clipped, Some(2));
    let chains = "name = \"lmc\"\nstep = 1e-4\n[run]\nchains = 2\niterations = 100";
    let once = rows.replace(chains, "name = \"dp-release\"\n[run]\niterations = 100");
    let clipped = told(&format!("{once}response = 5.0\n"));
    assert_eq!((clipped.clipped, clipped.of), (Some(1), 4));
    assert!(clipped.to_string().contains("1 of 4 responses"), "{clipped}");
    assert_eq!(told(GOOD).clipped, None, "0 and 1 are within any bound");
}
