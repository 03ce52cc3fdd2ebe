//! Nets in every family of samplers: they run, resume, predict and refuse what is wrong with them.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_core::measure::{Chains, mcse_mean};
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::models::{from_settings, kept};
use consilience_engine::plan::Plan;
use consilience_engine::predict::{Predictor, Rows};
use consilience_engine::problem::Problem;
use consilience_engine::session::{Control, Session};
use consilience_engine::{rundir, statistics};

/// Two clients with images of 4 x 4 pixels, whose class is the brighter half.
fn config(layers: &str, sampler: &str, more: &str) -> String {
    let row = |k: usize| {
        let label = k % 2;
        let pixel = |j: usize| {
            let bright = f64::from(u8::from((j % 4 < 2) == (label == 0)));
            bright + 0.3 * ((7 * k + 3 * j) as f64).sin()
        };
        let pixels: Vec<String> = (0..16).map(|j| format!("{:.3}", pixel(j))).collect();
        format!("[{}, {label}]", pixels.join(", "))
    };
    let rows = |from: usize| (from..from + 12).map(row).collect::<Vec<_>>().join(", ");
    format!(
        "seed = 3\n[target]\nmodel = \"net\"\nlayers = {layers}\ninput = [1, 4, 4]\nclasses = 2\n\
         {more}\n[target.prior]\nlaw = \"gaussian\"\nvariance = {{ weight = 0.5, all = 1.0 }}\n\
         [[client]]\nrows = [{}]\n[[client]]\nrows = [{}]\n[sampler]\n{sampler}\n\
         [run]\nchains = 2\niterations = 400\n",
        rows(0),
        rows(12)
    )
}

const SMALL: &str = r#"["conv(3, 3, pad = 1)", "max_pool(2)", "relu", "flatten", "linear(2)"]"#;

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text: text.into() })
}

fn planned(text: &str) -> Result<(Problem, Plan), ConfigError> {
    let config = read(text)?;
    let problem = Problem::new(&config)?;
    let plan = Plan::new(&config, &problem)?;
    Ok((problem, plan))
}

#[test]
fn samplers_of_all_families_learn_and_say_so_layer_by_layer() {
    for sampler in ["lmc", "qlsd", "qlsd++", "fald", "vr-fald*", "hmc"] {
        let text = config(SMALL, &format!("name = \"{sampler}\"\nstep = 0.01\nbatch = 4"), "");
        let text = match sampler {
            "lmc" => text.replace("\nbatch = 4", ""),
            "hmc" => text.replace("step = 0.01\nbatch = 4", "step = 0.1\nleapfrog = 5"),
            _ => text,
        };
        let planned = Session::new(read(&text).unwrap()).unwrap().plan().unwrap();
        let record = planned.run(&Default::default(), Control::default()).unwrap().record;
        assert_eq!(record.draws.dim(), 3 * 9 + 3 + 12 * 2 + 2, "{sampler}");
        // those with local steps draw at communications alone
        let least = if sampler.contains("fald") { 5 } else { 150 };
        assert!((least..=200).contains(&record.draws.length()), "{sampler}");
        let (names, shown) = record.shown();
        assert_eq!(names[..], ["rms(conv1)", "rms(linear1)"], "{sampler}");
        assert_eq!(shown.length(), record.draws.length());
        assert!(statistics::is_watched(&names[0]) && !statistics::is_watched("lp"));
        // chains started at different places, and both of them learnt
        let lp = record.statistics.iter().find(|s| s.name == "lp").unwrap();
        assert!(lp.values.iter().all(|chain| chain.len() == record.draws.length()));
        let predictor = Predictor::new(&record).unwrap();
        let bright_left: Vec<f64> = (0..16).map(|j| f64::from(u8::from(j % 4 < 2))).collect();
        let rows = Rows { cells: bright_left, ..Rows::default() };
        let said = predictor.predict(&rows, 0.9);
        assert!(said[0][0].mean > 0.8, "{sampler}: {said:?}");
        assert!((said[0][0].mean + said[0][1].mean - 1.0).abs() < 1e-9);
    }
}

#[test]
fn chains_start_where_the_model_says_and_apart() {
    for (start, first) in [("he", 2.0 / 9.0), ("torch", 1.0 / 27.0), ("prior", 0.5)] {
        let wide = r#"["conv(200, 3)", "relu", "flatten", "linear(2)"]"#;
        let text = config(wide, "name = \"lmc\"\nstep = 1e-9", &format!("start = \"{start}\""));
        let text = text.replace("iterations = 400", "iterations = 2\nburn_in = 1");
        let planned = Session::new(read(&text).unwrap()).unwrap().plan().unwrap();
        let record = planned.run(&Default::default(), Control::default()).unwrap().record;
        let draws: Vec<&[f64]> = record.draws.rows().collect();
        assert_ne!(draws[0][0], draws[1][0]);
        for draw in draws {
            let mean_square = draw[..1800].iter().map(|x| x * x).sum::<f64>() / 1800.0;
            // 5 standard errors of 1,800 squares
            assert!((mean_square / first - 1.0).abs() < 5.0 * (2.0f64 / 1800.0).sqrt(), "{start}");
            let bias = draw[1800..2000].iter().any(|x| x.abs() > 1e-2);
            assert_eq!(bias, start != "he", "{start}");
        }
    }
}

#[test]
fn chains_start_from_the_parameters_of_a_file() {
    let folder = std::env::temp_dir().join(format!("consilience-start-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("weights.csv");
    let numbers: Vec<f64> = (0..56).map(|k| 0.01 * f64::from(k) - 0.3).collect();
    let written = |count: usize| {
        let cells: Vec<String> = numbers[..count].iter().map(f64::to_string).collect();
        std::fs::write(&file, cells.join("\n") + "\n").unwrap();
    };
    let text = config(SMALL, "name = \"lmc\"\nstep = 1e-14", "start = \"weights.csv\"")
        .replace("iterations = 400", "iterations = 2\nburn_in = 1");
    let stated = || {
        let (file, folder) = ("run.toml".into(), folder.clone());
        Config::parse(Source { file, folder, text: text.clone() }).unwrap()
    };
    written(56);
    let planned = Session::new(stated()).unwrap().plan().unwrap();
    let record = planned.run(&Default::default(), Control::default()).unwrap().record;
    for draw in record.draws.rows() {
        assert!(draw.iter().zip(&numbers).all(|(x, start)| (x - start).abs() < 1e-5));
    }
    // The config as it was resolved names the file in full, and runs from anywhere.
    let again = Session::new(read(&record.config).unwrap()).unwrap().plan().unwrap();
    let twice = again.run(&Default::default(), Control::default()).unwrap().record;
    assert_eq!(twice.draws.digest(), record.draws.digest());
    written(55);
    let config = stated();
    let problem = Problem::new(&config).unwrap();
    let found = Plan::new(&config, &problem).unwrap_err();
    assert!(found.problem.contains("55 numbers, and the net 56 parameters"), "{found:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn descent_before_a_chain_leads_downhill_and_is_counted() {
    let run = |start: &str| {
        let text = config(SMALL, "name = \"lmc\"\nstep = 1e-14", &format!("start = {start}"))
            .replace("iterations = 400", "iterations = 2\nburn_in = 1");
        let planned = Session::new(read(&text).unwrap()).unwrap().plan().unwrap();
        planned.run(&Default::default(), Control::default()).unwrap().record
    };
    let sgd = "{ sgd = { epochs = 50, step = 0.02, batch = 4 } }";
    let (drawn, down) = (run("\"he\""), run(sgd));
    let lp = |record: &consilience_engine::record::Record| {
        let lp = record.statistics.iter().find(|s| s.name == "lp").unwrap();
        lp.values.iter().map(|chain| chain[0]).fold(f64::NEG_INFINITY, f64::max)
    };
    assert!(lp(&down) > lp(&drawn) + 5.0, "{} {}", lp(&down), lp(&drawn));
    // 12 rows of each of two clients, 50 times, 4 at a time: 150 steps of each of two chains
    assert_eq!(down.exchanges.1 - drawn.exchanges.1, 2 * 150);
    assert_eq!(down.rows_evaluated - drawn.rows_evaluated, 2 * 150 * 2 * 4);
    assert!(down.sites[0].bits.0 > 150 * 56 * 32);
    // chains descend from different places
    let first: Vec<f64> = down.draws.rows().map(|draw| draw[0]).collect();
    assert!((first[0] - first[1]).abs() > 1e-3);
    assert_eq!(run(sgd).draws.digest(), down.draws.digest());
}

/// A net of one linear layer is linear regression, whose posterior is known: `hmc` with momenta of
/// unit variance has its law. False alarms: twelve comparisons at 4.9 standard errors, 1e-5.
#[test]
fn hmc_on_a_net_has_the_law_of_the_posterior() {
    let rows: [([f64; 2], f64); 6] = [
        ([0.5, -1.0], 0.7),
        ([1.5, 0.2], -0.4),
        ([-0.3, 0.8], 1.1),
        ([0.9, 0.9], 0.2),
        ([-1.2, 0.1], 0.9),
        ([0.1, -0.6], -1.3),
    ];
    let written = |some: &[([f64; 2], f64)]| {
        let each = |(x, y): &([f64; 2], f64)| format!("[{}, {}, {y}]", x[0], x[1]);
        some.iter().map(each).collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "seed = 5\n[target]\nmodel = \"net\"\nlayers = [\"linear(1)\"]\ninput = [2]\n\
         likelihood = {{ gaussian = 0.5 }}\narithmetic = \"f64\"\n[target.prior]\n\
         law = \"gaussian\"\nvariance = {{ weight = 2.0, bias = 0.25 }}\n\
         [[client]]\nrows = [{}]\n[[client]]\nrows = [{}]\n[sampler]\nname = \"hmc\"\n\
         step = 0.25\nleapfrog = 5\n[run]\nchains = 4\niterations = 6000\nburn_in = 200\n\
         thin = 1\n",
        written(&rows[..4]),
        written(&rows[4..])
    );
    let planned = Session::new(read(&text).unwrap()).unwrap().plan().unwrap();
    let record = planned.run(&Default::default(), Control::default()).unwrap().record;
    // Precision and shift of (w1, w2, bias).
    let (mut a, mut r) = ([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 4.0]], [0.0; 3]);
    for (x, y) in rows {
        let row = [x[0], x[1], 1.0];
        for i in 0..3 {
            r[i] += 2.0 * row[i] * y;
            (0..3).for_each(|j| a[i][j] += 2.0 * row[i] * row[j]);
        }
    }
    let minor = |i: usize, j: usize| {
        let (p, q) = ((i + 1) % 3, (i + 2) % 3);
        let (s, t) = ((j + 1) % 3, (j + 2) % 3);
        a[p][s] * a[q][t] - a[p][t] * a[q][s]
    };
    let determinant: f64 = (0..3).map(|j| a[0][j] * minor(0, j)).sum();
    let covariance = |i: usize, j: usize| minor(j, i) / determinant;
    let z = |values: Vec<Vec<f64>>, right: f64| {
        let slices: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        let chains = Chains::new(&slices).unwrap();
        let all = values.concat();
        (all.iter().sum::<f64>() / all.len() as f64 - right) / mcse_mean(&chains)
    };
    for i in 0..3 {
        let mean: f64 = (0..3).map(|j| covariance(i, j) * r[j]).sum();
        let found = z(record.draws.parameter(i), mean);
        assert!(found.abs() < 4.9, "mean {i}: {found}");
        let squares = |chain: Vec<f64>| chain.iter().map(|x| (x - mean).powi(2)).collect();
        let of = || record.draws.parameter(i).into_iter().map(squares).collect::<Vec<Vec<f64>>>();
        let found = z(of(), covariance(i, i));
        assert!(found.abs() < 4.9, "variance {i}: {found}");
        // it would notice variances that are off by a tenth
        assert!(z(of(), 1.1 * covariance(i, i)).abs() > 4.9, "power {i}");
    }
    let accepted = record.statistics.iter().find(|s| s.name == "acceptance_rate").unwrap();
    let rate = accepted.values.concat().iter().sum::<f64>() / accepted.values.concat().len() as f64;
    assert!((0.5..1.0).contains(&rate), "{rate}");
    assert!(record.bias.as_ref().is_some_and(|bias| bias.exact));
    assert_eq!(record.exchanges.0, 0, "nothing was surveyed");
}

#[test]
fn prior_variances_go_by_tensor_then_layer_then_role() {
    let of = |variance: &str, scale: &str| {
        let text = config(SMALL, "name = \"lmc\"\nstep = 0.01", "")
            .replace("{ weight = 0.5, all = 1.0 }", &format!("{variance}\n{scale}"));
        planned(&text).map(|(problem, _)| match &problem.target.prior {
            consilience_core::model::Prior::Gaussian(precision) => {
                // conv1: 27 and 3; linear1: 24 and 2
                [0, 27, 30, 54].map(|k| 1.0 / precision[k])
            }
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(of("{ weight = 0.5, all = 2.0 }", "").unwrap(), [0.5, 2.0, 0.5, 2.0]);
    let named = "{ weight = 0.5, bias = 2.0, conv1 = 0.25, \"linear1.bias\" = 8.0 }";
    assert_eq!(of(named, "").unwrap(), [0.25, 0.25, 0.5, 8.0]);
    let scaled = of("0.9", "scale = \"fan-in\"").unwrap();
    for (found, right) in scaled.into_iter().zip([0.1, 0.9, 0.075, 0.9]) {
        assert!((found - right).abs() < 1e-15);
    }
    let unknown = of("{ weight = 0.5, bias = 1.0, conv2 = 1.0 }", "").unwrap_err();
    assert!(unknown.problem.contains("no layer is called \"conv2\""), "{unknown:?}");
    assert!(unknown.fix.contains("did you mean `conv1`"), "{unknown:?}");
    let open = of("{ weight = 0.5 }", "").unwrap_err();
    assert!(open.problem.contains("nothing says the variance of conv1.bias"), "{open:?}");
}

/// Layers and sampler, more lines of `[target]`, the field that is complained of, and words of
/// problem and fix.
const MISTAKES: &[(&str, &str, &str, &str, &str, &str)] = &[
    ("\"lenet\"", "", "", "target.layers", "no layer \"lenet\"", "did you mean \"lenet5\"?"),
    ("[\"liner(2)\"]", "", "", "target.layers[0]", "no layer", "did you mean \"linear\"?"),
    ("[\"linear(2)\"]", "", "", "target.layers", "a list of numbers, and 1 x 4 x 4", "put flatten"),
    ("[\"max_pool(3)\"]", "", "", "target.layers", "do not divide 1 x 4 x 4", "divides height"),
    ("[\"flatten\", \"linear(3)\"]", "", "", "target.layers", "3 outputs", "linear(2)"),
    ("[\"batch_norm\"]", "", "", "target.layers[0]", "no posterior", "frn"),
    ("[\"dropout(0.5)\"]", "", "", "target.layers[0]", "likelihood", "leave it out"),
    ("[3]", "", "", "target.layers[0]", "3 is no layer", "linear(50)"),
    ("\"mlp(4)\"", "", "arithmetic = \"tf32\"", "target.arithmetic", "10 bits", "f32"),
    ("\"mlp(4)\"", "", "intercept = true", "target.intercept", "biases", "leave it out"),
    ("\"mlp(4)\"", "", "start = \"hee\"", "target.start", "not known", "he"),
    ("\"mlp(4)\"", "", "likelihood = \"poisson\"", "target.likelihood", "not known", "classes"),
    ("\"mlp(4)\"", "name = \"lmc\"", "", "sampler.step", "many optima", "learning rate"),
    ("\"mlp(4)\"", "name = \"auto\"", "", "sampler.name", "has many", "vr-fald*"),
    ("\"mlp(4)\"", "name = \"lsd*\"\nstep = 1e-3", "", "sampler.name", "optimum", "lmc"),
    ("\"mlp(4)\"", "name = \"pcn\"\nstep = 0.1", "", "sampler.name", "has many", "hmc"),
    ("\"mlp(4)\"", "name = \"hmc\"\nstep = 0.1", "", "sampler.leapfrog", "pilots", "leapfrog = 20"),
    ("\"mlp(4)\"", "name = \"hmc\"\nleapfrog = 9", "", "sampler.step", "many optima", "accepted"),
    ("\"mlp(4)\"", "", "start = \"no.npy\"", "target.start", "no.npy", "name a file"),
    (
        "\"mlp(4)\"",
        "",
        "start = { sgd = { epochs = 1, step = 1e-3 } }",
        "target.start.sgd.batch",
        "not set",
        "batch = 16",
    ),
    (
        "\"mlp(4)\"",
        "",
        "start = { sgd = { epochs = 1, step = 1e-3, batch = 13 } }",
        "target.start",
        "smallest client has 12",
        "smaller batch",
    ),
    (
        "\"mlp(4)\"",
        "name = \"lmc\"\nstep = 1e-3\nprecondition = true",
        "",
        "sampler.precondition",
        "curvature",
        "leave it out",
    ),
];

#[test]
fn what_is_wrong_with_a_net_is_said_with_its_field_and_what_to_do() {
    for (layers, sampler, more, field, problem, fix) in MISTAKES {
        let sampler = if sampler.is_empty() { "name = \"lmc\"\nstep = 0.01" } else { sampler };
        let found = planned(&config(layers, sampler, more)).unwrap_err();
        assert_eq!(found.field, *field, "{layers}: {found:?}");
        let said = format!("{} {}", found.problem, found.fix);
        assert!(said.contains(problem) && said.contains(fix), "{layers}: {found:?}");
    }
    let width = config(SMALL, "name = \"lmc\"\nstep = 0.01", "").replace("[1, 4, 4]", "[1, 4, 5]");
    let found = planned(&width.replace("max_pool(2)", "relu")).unwrap_err();
    assert!(found.problem.contains("whose input is 1 x 4 x 5"), "{found:?}");
    let optimum = config("\"mlp(4)\"", "name = \"lmc\"\nstep = 0.01", "")
        .replace("chains = 2", "chains = 2\nstart = \"optimum\"");
    assert_eq!(planned(&optimum).unwrap_err().field, "run.start");
    let many = config("\"mlp(5000)\"", "name = \"lmc\"\nstep = 0.01", "")
        .replace("iterations = 400", "iterations = 40000\nthin = 1");
    assert!(planned(&many).unwrap_err().problem.contains("more than 2"));
}

#[test]
fn a_step_that_is_no_learning_rate_is_warned_of() {
    let at = |step: &str| {
        let text = config(SMALL, &format!("name = \"lmc\"\nstep = {step}"), "");
        let (_, plan) = planned(&text).unwrap();
        plan.warnings.iter().any(|w| w.code.name() == "large-learning-rate")
    };
    assert!(at("0.1") && !at("0.05")); // 24 rows
}

#[test]
fn numbers_are_explained_too_and_settings_are_kept() {
    let text = "model = \"net\"\ninput = [2, 3, 3]\nlikelihood = { gaussian = 0.25 }\n\
        layers = [{ residual = [\"conv(4, 3, pad = 1)\", \"frn\"], shortcut = \"pad\" }, \
        \"global_avg_pool\", \"linear(1)\"]";
    let model = from_settings(text).unwrap();
    assert_eq!(model.classes(), None);
    let again = kept::read(&kept::write(&*model)).unwrap();
    assert_eq!((again.statement(), again.settings()), (model.statement(), model.settings()));
    let sum: f64 =
        (-400..400).map(|k| 0.01 * model.log_density(0.3, &[], 0.01 * f64::from(k)).exp()).sum();
    assert!((sum - 1.0).abs() < 1e-6);
}

#[test]
fn a_run_of_a_net_is_kept_and_read_back() {
    let text = config(SMALL, "name = \"fald\"\nstep = 0.01", "");
    let planned = Session::new(read(&text).unwrap()).unwrap().plan().unwrap();
    let record = planned.run(&Default::default(), Control::default()).unwrap().record;
    let folder = std::env::temp_dir().join(format!("consilience-nets-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    rundir::write(&folder, &record).unwrap();
    let again = rundir::read(&folder).unwrap();
    assert_eq!((again.shown(), &again.draws), (record.shown(), &record.draws));
    assert!(Predictor::new(&again).is_ok());
    // The config as it was resolved makes the same chains.
    let resolved = Session::new(read(&again.config).unwrap()).unwrap().plan().unwrap();
    let twice = resolved.run(&Default::default(), Control::default()).unwrap().record;
    assert_eq!(twice.draws.digest(), record.draws.digest());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_chain_that_diverges_says_in_which_layer() {
    let text = config(SMALL, "name = \"lmc\"\nstep = 1e6", "");
    let planned = Session::new(read(&text).unwrap()).unwrap().plan().unwrap();
    let ended = planned.run(&Default::default(), Control::default());
    let said = match ended {
        Err(error) => error.to_string(),
        Ok(ended) => ended.failure.map(|failure| failure.to_string()).unwrap_or_default(),
    };
    assert!(said.contains("diverged at iteration") && said.contains("in layer "), "{said}");
    assert!(said.contains("a tenth of it") && !said.contains("auto"), "{said}");
}

/// Where there is no GPU that is said; where there is one, nobody can tell by the draws.
#[test]
fn draws_do_not_depend_on_the_device() {
    let text = config(SMALL, "name = \"vr-fald*\"\nstep = 0.01\nbatch = 4", "");
    let draws = |text: &str| {
        let planned = Session::new(read(text).unwrap()).unwrap().plan().unwrap();
        planned.run(&Default::default(), Control::default()).unwrap().record.draws
    };
    let on_any = draws(&(text.clone() + "device = \"auto\"\n"));
    assert!(on_any == draws(&(text + "device = \"cpu\"\n")));
}

/// No GPU evaluates other models than nets, so `auto` has something to say on every machine.
#[test]
fn a_model_that_no_gpu_evaluates_falls_back_and_says_so() {
    let text = "seed = 1\n[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [0.0]\n\
                precision = [[1.0]]\n[sampler]\nname = \"lmc\"\nstep = 0.1\n[run]\n\
                iterations = 10\ndevice = \"auto\"\n";
    let (_, plan) = planned(text).unwrap();
    let codes: Vec<&str> = plan.warnings.iter().map(|warning| warning.code.name()).collect();
    assert!(codes.contains(&"no-gpu"), "{codes:?}");
}
