//! Mistakes in a config get a message that names the field and the fix, with the line; none of them
//! panics.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;

const GOOD: &str = r#"seed = 1
[target]
model = "gaussian"
temperature = 1.0
[target.prior]
law = "gaussian"
variance = 2.0
[[client]]
mean = [0.0, 1.0]
precision = [[1.0, 0.0], [0.0, 1.0]]
[[client]]
mean = [2.0, 1.0]
precision = [[1.0, 0.2], [0.2, 1.0]]
[sampler]
name = "lmc"
step = 0.1
[run]
iterations = 100
"#;

fn try_config(text: &str) -> Result<(), ConfigError> {
    let config = Config::parse(Source {
        file: "run.toml".into(),
        folder: env!("CARGO_MANIFEST_DIR").into(),
        text: text.into(),
    })?;
    let problem = Problem::new(&config)?;
    Plan::new(&config, &problem).map(|_| ())
}

/// What is replaced by what, the field that the message must name, and a word of the fix.
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    ("seed = 1", "seed = -1", "seed", "whole number"),
    ("seed = 1", "seed = \"one\"", "seed", "whole number"),
    ("seed = 1", "sede = 1", "sede", "did you mean `seed`"),
    ("seed = 1", "seed = 1\nfoo = 3", "foo", "known are"),
    ("seed = 1", "seed = ", "TOML", "toml.io"),
    ("model = \"gaussian\"", "model = \"gausian\"", "target.model", "did you mean `gaussian`"),
    ("model = \"gaussian\"", "model = 3", "target.model", "one of"),
    ("model = \"gaussian\"", "", "target.model", "model ="),
    ("model = \"gaussian\"", "model = \"softmax\"", "target.classes", "classes = 10"),
    ("model = \"gaussian\"", "model = \"logistic\"", "client[0].file", "file ="),
    ("temperature = 1.0", "temperature = 0.0", "target.temperature", "positive"),
    ("temperature = 1.0", "temperature = nan", "target.temperature", "finite"),
    ("temperature = 1.0", "temperature = \"hot\"", "target.temperature", "number"),
    ("temperature = 1.0", "temprature = 1.0", "target.temprature", "did you mean `temperature`"),
    ("temperature = 1.0", "noise_variance = 1.0", "target.noise_variance", "remove"),
    ("law = \"gaussian\"", "law = \"normal\"", "target.prior.law", "gaussian"),
    ("law = \"gaussian\"", "", "target.prior.law", "law ="),
    ("law = \"gaussian\"", "law = \"laplace\"", "target.prior.scale", "scale ="),
    ("variance = 2.0", "variance = -2.0", "target.prior.variance", "positive"),
    ("variance = 2.0", "", "target.prior.variance", "variance ="),
    ("variance = 2.0", "varance = 2.0", "target.prior.varance", "did you mean `variance`"),
    ("variance = 2.0", "variance = [1.0, 2.0, 3.0]", "target.prior", "one for each"),
    ("variance = 2.0", "variance = [1.0, 0.0]", "target.prior.variance[1]", "positive"),
    ("variance = 2.0", "variance = 2.0\nat = \"client\"", "target.prior.at", "\"split\""),
    (
        "variance = 2.0",
        "variance = 2.0\nat = \"split\"\nsplit = [0.5, 0.6]",
        "target.prior",
        "correct",
    ),
    ("mean = [0.0, 1.0]", "mean = [0.0, 1.0, 2.0]", "client[0].precision", "3 rows of 3"),
    ("mean = [0.0, 1.0]", "mean = [0.0, inf]", "client[0].mean[1]", "finite"),
    ("mean = [0.0, 1.0]", "mean = 0.0", "client[0].mean", "list"),
    ("mean = [0.0, 1.0]", "", "client[0].mean", "mean ="),
    ("mean = [0.0, 1.0]", "mean = [0.0, 1.0]\nmu = 3", "client[0].mu", "known are"),
    ("precision = [[1.0, 0.0], [0.0, 1.0]]", "", "client[0].precision", "covariance"),
    (
        "precision = [[1.0, 0.0], [0.0, 1.0]]",
        "precision = [[1.0, 0.0], [0.0]]",
        "client[0].precision[1]",
        "equally long",
    ),
    (
        "precision = [[1.0, 0.0], [0.0, 1.0]]",
        "precision = [[1.0, 0.5], [0.0, 1.0]]",
        "client[0]",
        "correct",
    ),
    (
        "precision = [[1.0, 0.0], [0.0, 1.0]]",
        "precision = [[1.0, 2.0], [2.0, 1.0]]",
        "client[0]",
        "correct",
    ),
    (
        "precision = [[1.0, 0.0], [0.0, 1.0]]",
        "covariance = [[1.0, 1.0], [1.0, 1.0]]",
        "client[0]",
        "correct",
    ),
    (
        "precision = [[1.0, 0.0], [0.0, 1.0]]",
        "precision = \"no such file.csv\"",
        "client[0]",
        "CSV",
    ),
    (
        "precision = [[1.0, 0.0], [0.0, 1.0]]",
        "precision = [[1.0, 0.0], [0.0, 1.0]]\ncovariance = [[1.0, 0.0], [0.0, 1.0]]",
        "client[0].covariance",
        "one of the two",
    ),
    (
        "mean = [2.0, 1.0]\nprecision = [[1.0, 0.2], [0.2, 1.0]]",
        "mean = [2.0]\nprecision = [[1.0]]",
        "client[1]",
        "same parameters",
    ),
    ("name = \"lmc\"", "name = \"lcm\"", "sampler.name", "did you mean `lmc`"),
    ("name = \"lmc\"", "name = \"slice\"", "sampler.name", "known are"),
    ("name = \"lmc\"", "name = \"imh\"\nbatch = 10", "sampler.batch", "all rows"),
    ("name = \"lmc\"", "participation = 0.5", "sampler.participation", "every site"),
    (
        "name = \"lmc\"",
        "name = \"pcn\"\nparticipation = 0.5",
        "sampler.participation",
        "every site",
    ),
    (
        "name = \"lmc\"",
        "name = \"hmc\"\nparticipation = { elastic = 0.7, deadline = 5.0 }",
        "sampler.participation",
        "every site",
    ),
    (
        "name = \"lmc\"",
        "name = \"mala\"\ncompress = \"rand_k(1)\"\nmemory = 0.5",
        "sampler.memory",
        "no longer exact",
    ),
    ("name = \"lmc\"", "name = \"mala\"\nrefresh = 5", "sampler.refresh", "no longer exact"),
    ("name = \"lmc\"", "name = \"imh\"\nblock = 70000", "sampler.block", "65536"),
    ("name = \"lmc\"", "name = \"hmc\"\nleapfrog = 2000", "sampler.leapfrog", "1024"),
    ("name = \"lmc\"", "name = \"imh\"\nprecondition = false", "sampler", "precondition"),
    ("name = \"lmc\"", "name = \"lmc\"\nbatch = 10", "sampler.batch", "use one of sgld"),
    ("name = \"lmc\"", "name = \"sgld\"\nbatch = 0", "sampler.batch", "at least 1"),
    ("name = \"lmc\"", "name = \"sgld\"\nbatch = 1.5", "sampler.batch", "at most 1"),
    ("name = \"lmc\"", "name = \"sgld\"\nbatch = \"half\"", "sampler.batch", "\"all\""),
    ("name = \"lmc\"", "name = \"lsd++\"\nrefresh = 0", "sampler.refresh", "at least 1"),
    ("name = \"lmc\"", "name = \"lsd++\"\nmemory = 2.0", "sampler.memory", "at most 1"),
    ("name = \"lmc\"", "name = \"lmc\"\nparticipation = 0.0", "sampler.participation", "above 0"),
    (
        "name = \"lmc\"",
        "name = \"lmc\"\nparticipation = [0.5]",
        "sampler.participation",
        "one for each",
    ),
    (
        "name = \"lmc\"",
        "name = \"lmc\"\nparticipation = { clients = 3 }",
        "sampler.participation.clients",
        "at most",
    ),
    (
        "name = \"lmc\"",
        "name = \"lmc\"\nparticipation = [0.5, 0.7]\nweighting = \"b/|A|\"",
        "sampler",
        "1/p",
    ),
    (
        "name = \"lmc\"",
        "name = \"fald\"\ncorrelation = 1.5",
        "sampler.correlation",
        "between 0 and 1",
    ),
    ("name = \"lmc\"", "name = \"dg-lmc\"\ntether = 0", "sampler.tether", "above 0"),
    ("name = \"lmc\"", "name = \"fa-ld\"\ntether = 2", "sampler.tether", "use one of dg-lmc"),
    (
        "name = \"lmc\"",
        "name = \"fald\"\nsynchronise = 10",
        "sampler.synchronise",
        "{ every = 10 }",
    ),
    (
        "name = \"lmc\"",
        "name = \"fald\"\nsynchronise = { every = 0 }",
        "sampler.synchronise.every",
        "at least 1",
    ),
    (
        "name = \"lmc\"",
        "name = \"fald\"\nsynchronise = { evry = 2 }",
        "sampler.synchronise",
        "{ every = 10 }",
    ),
    ("name = \"lmc\"", "name = \"vr-fald*\"\nrefresh = 100", "sampler.refresh", "between 0 and 1"),
    ("name = \"lmc\"", "name = \"fald\"\nmemory = 0.5", "sampler.memory", "lsd++"),
    ("name = \"lmc\"", "name = \"fa-ld\"\nweights = [0.5, 0.6]", "sampler.weights", "sum to 1"),
    (
        "name = \"lmc\"",
        "name = \"fa-ld\"\nweights = [0.9, 0.1]\naverage = { scheme = \"II\", clients = 1 }",
        "sampler",
        "scheme I",
    ),
    (
        "name = \"lmc\"",
        "name = \"fa-ld\"\naverage = { scheme = \"III\", clients = 1 }",
        "sampler.average.scheme",
        "\"II\"",
    ),
    ("name = \"lmc\"", "name = \"qlsd\"\ncompress = \"qsg(16)\"", "sampler.compress", "qsgd(16)"),
    ("name = \"lmc\"", "name = \"qlsd\"\ncompress = \"qsgd(0)\"", "sampler.compress", "levels"),
    ("name = \"lmc\"", "name = \"qlsd\"\ncompress = \"top_k(1)\"", "sampler", "error feedback"),
    (
        "name = \"lmc\"",
        "name = \"qlsd\"\ncompress = [\"natural\"]",
        "sampler.compress",
        "one for each",
    ),
    ("name = \"lmc\"", "name = \"qlsd\"\ncompress = \"rand_k(5)\"", "sampler", "rand_k(5)"),
    ("name = \"lmc\"", "name = \"d-elf\"\ncompress = \"qsgd(4)\"", "sampler", "scaled"),
    ("name = \"lmc\"", "name = \"qlsd++\"\nmemory = 1.0", "sampler", "1/(1 + omega)"),
    ("name = \"lmc\"", "name = \"p-elf\"\ncompress_down = \"rand_k(1)\"", "sampler", "contractive"),
    (
        "name = \"lmc\"",
        "name = \"lmc\"\ncompress = \"natural\"",
        "sampler.compress",
        "use one of mala, qlsd",
    ),
    ("name = \"lmc\"", "name = \"qlsd\"\ncode = \"zip\"", "sampler.code", "entropy"),
    ("name = \"lmc\"", "name = \"marina-ld\"\nrestart = 0.0", "sampler.restart", "above 0"),
    (
        "step = 0.1",
        "start = \"zero\"",
        "sampler.start",
        "`start` is a field of [target] and of [run]",
    ),
    ("name = \"lmc\"", "name = \"fald\"\n[run2]", "run2", "did you mean `run`"),
    ("step = 0.1", "step = 0.0", "sampler.step", "positive"),
    ("step = 0.1", "step = -1", "sampler.step", "positive"),
    ("step = 0.1", "step = \"big\"", "sampler.step", "\"auto\""),
    ("step = 0.1", "step = { first = 0.1 }", "sampler.step.delay", "delay ="),
    ("step = 0.1", "step = {}", "sampler.step", "smoothness"),
    ("step = 0.1", "stepsize = 0.1", "sampler.stepsize", "known are"),
    ("step = 0.1", "step = 0.1\nwire = \"f16\"", "sampler.wire", "\"f32\""),
    ("iterations = 100", "iterations = 0", "run.iterations", "at least 1"),
    ("iterations = 100", "iterations = 1e5", "run.iterations", "whole number"),
    ("iterations = 100", "iterations = 100\nburn_in = 100", "run.burn_in", "smaller"),
    ("iterations = 100", "iterations = 100\ndevice = \"tpu\"", "run.device", "cuda"),
    ("iterations = 100", "iterations = 100\ndevice = \"cuda\"", "run.device", "\"cpu\""),
    ("iterations = 100", "iterations = 100\nchains = 0", "run.chains", "at least 1"),
    ("iterations = 100", "iterations = 100\nthin = 0", "run.thin", "at least 1"),
    ("iterations = 100", "iterations = 100\nstart = [1.0]", "sampler", "one number for each"),
    ("iterations = 100", "iterations = 100\nstart = \"here\"", "run.start", "optimum"),
    (
        "iterations = 100",
        "iterations = 100\n[output]\ndraws = \"draws.xls\"",
        "output.draws",
        ".npy",
    ),
    (
        "iterations = 100",
        "iterations = 100\n[data]\nbuiltin = \"hart\"",
        "data.builtin",
        "heart-disease",
    ),
];

#[test]
fn the_good_config_is_good() {
    try_config(GOOD).unwrap();
}

#[test]
fn every_mistake_is_named_with_its_field_line_and_fix() {
    assert!(MISTAKES.len() >= 40);
    let mut wrong = Vec::new();
    for (what, by, field, fix) in MISTAKES {
        assert!(GOOD.contains(what), "{what} is not in the config");
        let text = GOOD.replacen(what, by, 1);
        match try_config(&text) {
            Ok(()) => wrong.push(format!("{by}: accepted")),
            Err(error) => {
                let line_ok = (1..=text.lines().count() + 1).contains(&error.line);
                if !(error.field == *field && error.to_string().contains(fix) && line_ok) {
                    wrong.push(format!(
                        "{by}:\n{error}\n   expected field {field}, fix with \"{fix}\""
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} mistakes:\n{}",
        wrong.len(),
        MISTAKES.len(),
        wrong.join("\n")
    );
}

#[test]
fn lines_point_to_the_mistake() {
    let error = try_config(&GOOD.replace("step = 0.1", "step = -0.1")).unwrap_err();
    assert_eq!(error.line, 16);
    assert_eq!(
        error.to_string(),
        "run.toml, line 16: sampler.step: -0.1 is not above 0\n  a positive number is expected"
    );
}

#[test]
fn a_missing_table_says_which() {
    // one without [sampler] is sampled by whichever is cheapest
    for (table, field) in [("[sampler]", None), ("[target]", Some("target"))] {
        let text: String = {
            let mut skipping = false;
            let keep = |line: &&str| {
                if line.starts_with('[') {
                    skipping =
                        *line == table || (table == "[target]" && line.starts_with("[target"));
                }
                !skipping
            };
            GOOD.lines().filter(keep).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(try_config(&text).err().map(|e| e.field).as_deref(), field);
    }
    let no_clients = GOOD.split("[[client]]").next().unwrap().to_owned()
        + GOOD.split("[sampler]").nth(1).map(|s| format!("[sampler]{s}")).unwrap().as_str();
    assert!(try_config(&no_clients).unwrap_err().problem.contains("no clients"));
}

/// Rows from files: the message has the file, the line and the column.
#[test]
fn wrong_files_are_named_with_their_line() {
    let folder = std::env::temp_dir().join(format!("consilience-mistakes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = |content: &str, more: &str| {
        std::fs::write(folder.join("rows.csv"), content).unwrap();
        let text = format!(
            "[target]\nmodel = \"logistic\"\n[target.prior]\nlaw = \"gaussian\"\nvariance = 1.0\n\
             [[client]]\nname = \"basel\"\nfile = \"rows.csv\"\n{more}\n[sampler]\nname = \"lmc\"\n\
             step = 0.1\n"
        );
        let config =
            Config::parse(Source { file: "run.toml".into(), folder: folder.clone(), text })?;
        Problem::new(&config)
    };
    assert_eq!(config("age,y\n0.1,1\n0.3,0\n", "").unwrap().parameters, ["intercept", "age"]);
    assert_eq!(
        config("y,age\n1,0.1\n", "response = \"y\"").unwrap().parameters,
        ["intercept", "age"]
    );
    let refused = |content: &str, more: &str| config(content, more).unwrap_err().to_string();
    assert!(
        refused("age,y\n0.1,1\nx,0\n", "")
            .contains("line 3, column 1 (age): \"x\" is not a finite number")
    );
    assert!(refused("age,y\n0.1,1\n0.1\n", "").contains("line 3 has 1 cells"));
    assert!(refused("age,y\n0.1,2\n", "").contains("labels must be 0 or 1"));
    assert!(refused("age,y\n", "").contains("has no rows"));
    assert!(refused("", "").contains("has no rows"));
    assert!(refused("age,y\n0.1,1\n", "response = \"z\"").contains("there is no column \"z\""));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Mistakes in [data] with a name: what stands there, the field and a word of the message.
#[test]
fn wrong_data_sets_are_named() {
    let refused = |data: &str, target: &str| {
        try_config(&format!("[data]\n{data}\n{target}\n[sampler]\nname = \"lmc\"\nstep = 0.001\n"))
            .unwrap_err()
    };
    let good = "name = \"titanic\"\nclients = 4\n";
    assert!(
        try_config(&format!(
            "[data]\n{good}scheme = \"dirichlet(0.5)\"\nrows = 500\n[sampler]\n\
            name = \"lmc\"\nstep = 0.001\n"
        ))
        .is_ok()
    );
    assert!(
        try_config(
            "[data]\nname = \"heart-disease\"\nscheme = \"natural\"\n[sampler]\n\
        name = \"lmc\"\nstep = 0.001\n"
        )
        .is_ok()
    );
    let mistakes = [
        ("name = \"titanik\"\nclients = 4", "", "data.name", "did you mean `titanic`"),
        ("name = 3\nclients = 4", "", "data.name", "name of a data set"),
        ("name = \"titanic\"", "", "data.clients", "clients = 20"),
        ("name = \"titanic\"\nclients = 0", "", "data.clients", "at least 1"),
        (
            "name = \"titanic\"\nclients = 3000",
            "",
            "data",
            "2201 rows cannot be dealt to 3000 clients",
        ),
        (
            "name = \"titanic\"\nclients = 4\nscheme = \"dirichelt\"",
            "",
            "data.scheme",
            "did you mean `dirichlet`",
        ),
        (
            "name = \"titanic\"\nclients = 4\nscheme = \"dirichlet(0)\"",
            "",
            "data.scheme",
            "from 0.001",
        ),
        ("name = \"titanic\"\nclients = 4\nscheme = \"natural\"", "", "data", "no groups"),
        (
            "name = \"heart-disease\"\nclients = 5\nscheme = \"natural\"",
            "",
            "data",
            "4 groups and 5 clients",
        ),
        ("name = \"titanic\"\nclients = 4\nrows = 0", "", "data.rows", "at least 1"),
        ("name = \"titanic\"\nclients = 4\nrows = 3", "", "data", "3 rows cannot be dealt"),
        ("name = \"titanic\"\nclients = 4\nscale = \"min\"", "", "data.scale", "\"none\""),
        (
            "name = \"titanic\"\nclients = 4\nbuiltin = \"titanic\"",
            "",
            "data.builtin",
            "one of the two",
        ),
        ("name = \"titanic\"", "", "data.clients", "clients = 20"),
        ("name = \"titanic\"\nclient = 4", "", "data.client", "did you mean `clients`"),
        ("name = \"titanic\"\nclients = 4\nrow = 5", "", "data.row", "did you mean `rows`"),
        ("builtin = \"titanic\"\nclients = 4", "", "data.clients", "remove it"),
        ("clients = 4", "", "data.builtin", "name ="),
        ("name = \"diabetes\"\nclients = 4", "", "data.name", "has no classes"),
        (
            "name = \"mnist\"\nclients = 4",
            "[target]\nmodel = \"logistic\"",
            "target.model",
            "softmax",
        ),
        (
            "name = \"titanic\"\nclients = 4",
            "[target]\nmodel = \"linear\"",
            "target.model",
            "logistic",
        ),
        (
            "name = \"mnist\"\nclients = 4",
            "[target]\narithmetic = \"f16\"",
            "target.arithmetic",
            "\"f32\"",
        ),
        (
            "name = \"titanic\"\nclients = 4",
            "[target]\narithmetic = \"f32\"",
            "target.arithmetic",
            "arithmetic",
        ),
        ("name = \"titanic\"\nclients = 4", "[[client]]\nmean = [0.0]", "client", "remove either"),
        ("name = \"a9a\"\nclients = 4\nfolder = \"no such folder\"", "", "data", "cannot be read"),
    ];
    for (data, target, field, part) in mistakes {
        let error = refused(data, target);
        assert!(
            error.field == field && error.to_string().contains(part),
            "{data}\n{target}\n{error}"
        );
    }
}
