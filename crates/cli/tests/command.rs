//! The command does what its help says: it answers, refuses with a reason and a code, and stops
//! when it is told to.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use consilience::core::sampler::registry;
use consilience::engine::config::fields;
use serde_json::Value;

fn consilience(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_consilience"));
    command
        .args(arguments)
        .env("CONSILIENCE_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-cache"))
        .stdin(Stdio::null());
    command
}

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gaussian.toml").display().to_string()
}

/// An empty folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("command-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A config file with this text.
fn config(name: &str, text: &str) -> String {
    let file = folder(name).join("run.toml");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a command that succeeds prints.
fn succeed(arguments: &[&str]) -> String {
    let output = consilience(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    out(&output)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed(arguments)).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Two clients in one dimension, with whatever a test puts into the sampler and the run.
fn two_clients(sampler: &str, run: &str) -> String {
    format!(
        "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [0.0]\nprecision = [[1.0]]\n\
         [[client]]\nmean = [2.0]\nprecision = [[3.0]]\n\
         [sampler]\nname = \"lmc\"\n{sampler}\n[run]\n{run}\n"
    )
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        &[][..],
        &["run"],
        &["summary"],
        &["report"],
        &["predict"],
        &["loo"],
        &["compare-models"],
        &["effects"],
        &["exact"],
        &["compare"],
        &["list"],
        &["fields"],
        &["new"],
        &["control"],
        &["completions"],
    ] {
        let text = succeed(&[command, &["--help"]].concat());
        assert!(text.contains("Example:\n  consilience"), "{command:?}: {text}");
    }
}

#[test]
fn lists_are_complete() {
    let list = succeed(&["list"]);
    for row in registry::all() {
        assert!(
            list.contains(&format!("\n  {} ", row.name)) && list.contains(row.paper),
            "{}",
            row.name
        );
    }
    for row in consilience_core::compress::rows() {
        let line = format!("\n  {:<18} {} ({})", row.usage, row.says, row.constant);
        assert!(list.contains(&line), "{}", row.name);
    }
    let fields = succeed(&["fields"]);
    for field in fields::all() {
        assert!(
            fields.contains(&format!("\n  {} ", field.key)) && fields.contains(field.says),
            "{}.{}",
            field.section,
            field.key
        );
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeed(&["completions", shell]).contains("consilience"));
    }
}

/// Every template is a config; those that bring their data run as they are, and the one of files
/// runs with files of its names.
#[test]
fn templates_are_configs_that_run() {
    let folder = folder("templates");
    for name in ["heart", "csv", "network", "gaussian"] {
        let file = folder.join(format!("{name}.toml"));
        succeed(&["new", file.to_str().unwrap(), "--template", name]);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("[sampler]"), "{text}");
    }
    for site in ["north", "south"] {
        let row = |k: usize| {
            format!(
                "{},{},{}\n",
                20 + (k * 37) % 60,
                ["f", "m"][k % 2],
                usize::from((k * k) % 7 < 3)
            )
        };
        let rows: String =
            (0..40).map(|k| row(k + site.len() + usize::from(site == "south") * 5)).collect();
        std::fs::write(folder.join(format!("{site}.csv")), format!("age,sex,ill\n{rows}")).unwrap();
    }
    for name in ["csv", "gaussian"] {
        let file = folder.join(format!("{name}.toml"));
        let said: Value =
            serde_json::from_str(&succeed(&["run", file.to_str().unwrap(), "--json"])).unwrap();
        let rhat = said["rhat"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r.as_f64().unwrap())
            .fold(0.0, f64::max);
        assert!(
            rhat < 1.01 && said["warnings"].as_array().unwrap().is_empty(),
            "{name}: {rhat} {}",
            said["warnings"]
        );
    }
    let served = consilience(&["run", folder.join("network.toml").to_str().unwrap()]);
    assert_eq!(served.status.code(), Some(2), "its rows are elsewhere: {}", err(&served));
}

#[test]
fn new_writes_a_config_and_never_over_another() {
    let file = folder("new").join("run.toml");
    let path = file.display().to_string();
    succeed(&["new", &path]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), succeed(&["new"]));
    std::fs::write(&file, "mine").unwrap();
    let again = consilience(&["new", &path]);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        err(&again).contains("run.toml") && err(&again).contains("nothing was overwritten"),
        "{}",
        err(&again)
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

/// About 3,600 draws with an autocorrelation near 1/2 are worth about 1,200 independent ones: a
/// mean is off by 0.03 standard deviations, a covariance by 0.04 of their product. The bounds are
/// six times that, so that another seed would pass as well; a temperature of 2, or a client left
/// out, would not.
#[test]
fn the_draws_have_the_exact_law() {
    let exact = &json(&["exact", &example(), "--json"])["stationary"];
    let run = json(&["run", &example(), "--json", "--iterations", "4000"]);
    assert_eq!((run["interrupted"].as_bool(), run["chains"].as_u64()), (Some(false), Some(4)));
    assert!(run["draws"].as_u64().unwrap() > 700);
    let sd: Vec<f64> = (0..2).map(|k| exact["covariance"][k][k].as_f64().unwrap().sqrt()).collect();
    let (found, expected) = (numbers(&run["mean"]), numbers(&exact["mean"]));
    for i in 0..2 {
        assert!(
            (found[i] - expected[i]).abs() < 0.18 * sd[i],
            "mean {i}: {} is not {}",
            found[i],
            expected[i]
        );
        let (row, law) = (numbers(&run["covariance"][i]), numbers(&exact["covariance"][i]));
        for j in 0..2 {
            assert!(
                (row[j] - law[j]).abs() < 0.24 * sd[i] * sd[j],
                "covariance {i}, {j}: {} is not {}",
                row[j],
                law[j]
            );
        }
    }
}

/// What is sampled is said before anything is, the prior that nobody stated included.
#[test]
fn a_run_says_its_model_and_its_prior() {
    let path = config(
        "prior",
        "[target]\nformula = \"ill == 1 ~ age\"\n[[client]]\nfile = \"north.csv\"\n[run]\n\
         iterations = 50\n",
    );
    let rows = "age,ill\n31,0\n44,1\n52,0\n63,1\n70,1\n38,0\n";
    std::fs::write(Path::new(&path).with_file_name("north.csv"), rows).unwrap();
    let said = succeed(&["run", &path]);
    for line in [
        "\nModel: logistic regression, by \"ill == 1 ~ age\"\n",
        "\nPrior: normal, mean 0, variance 6.25 for every parameter\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn the_seed_decides_everything_and_the_threads_nothing() {
    let run = |seed: &str, threads: &str| {
        let mut value = json(&[
            "run",
            &example(),
            "--json",
            "--iterations",
            "2000",
            "--seed",
            seed,
            "--threads",
            threads,
        ]);
        assert!(value.as_object_mut().unwrap().remove("seconds").is_some());
        value
    };
    let one = run("5", "1");
    assert_eq!(one, run("5", "2"));
    assert_eq!(one, run("5", "7"));
    assert_ne!(one["mean"], run("6", "1")["mean"]);
}

#[test]
fn a_wrong_config_is_refused_with_its_place_and_a_fix() {
    let path = config("wrong", &two_clients("stepp = 0.1", "iterations = 10"));
    for verb in ["run", "exact"] {
        let output = consilience(&[verb, &path]);
        assert_eq!(output.status.code(), Some(2));
        let (line, text) = (11, err(&output));
        assert!(
            text.starts_with(&format!("error: {path}, line {line}: sampler.stepp: ")),
            "{text}"
        );
        assert!(text.contains("did you mean `step`?") && out(&output).is_empty(), "{text}");
    }
    let missing = consilience(&["run", "no such file.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        err(&missing).contains("no such file.toml") && err(&missing).contains("consilience new"),
        "{}",
        err(&missing)
    );
}

#[test]
fn wrong_arguments_are_refused_with_a_fix() {
    for (arguments, code, word) in [
        (&["run"][..], 2, "CONFIG"),
        (&["run", &example(), "--iterations", "0"], 2, "at least 1"),
        (&["run", &example(), "--draws", "draws.txt"], 2, ".csv or .npy"),
        (&["rnu"], 2, "--help"),
        (&["run", "--resume", "no such folder"], 2, "holds no unfinished run"),
        (&["summary", "no such folder"], 2, "is no run directory"),
        (&["report", "no such folder"], 2, "is no run directory"),
        (&["truth", &example(), "--method", "guess"], 2, "no such method"),
        (&["truth", &example(), "--chains", "0"], 2, "at least 1"),
        (&["reproduce", "toy-gausian"], 2, "did you mean `toy-gaussian`"),
        (&["data", "show", "titanik", "--clients", "4"], 2, "did you mean `titanic`"),
        (&["data", "check", "titanik"], 2, "did you mean `titanic`"),
        (
            &["data", "show", "titanic", "--clients", "4", "--scheme", "idd"],
            2,
            "did you mean `iid`",
        ),
        (&["data", "show", "no such file.csv", "--clients", "4"], 2, "cannot be read"),
    ] {
        let output = consilience(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(err(&output).contains(word), "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn a_divergence_says_what_to_do_and_leaves_nothing_behind() {
    let path = config("wild", &two_clients("step = 10.0", "iterations = 10_000"));
    let draws = Path::new(&path).with_file_name("draws.csv");
    let output = consilience(&["run", &path, "--json", "--draws", &draws.display().to_string()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        err(&output).contains("chain 1 diverged") && err(&output).contains("step = \"auto\""),
        "{}",
        err(&output)
    );
    let left: Vec<_> = std::fs::read_dir(draws.parent().unwrap())
        .unwrap()
        .map(|f| f.unwrap().file_name())
        .collect();
    assert_eq!(left, ["run.toml"]);
}

/// What a run offers next is what can be done with it.
#[test]
fn a_run_offers_what_can_be_done_with_it() {
    let next = |text: &str| text.split_once("\nNext: ").map_or("", |(_, next)| next).to_owned();
    let dir = folder("next");
    let gaussian = config("next-gaussian", &two_clients("step = 0.1", "iterations = 200"));
    let said = next(&succeed(&["run", &gaussian]));
    assert!(said.contains(&format!("`consilience exact {gaussian}`")), "{said}");
    assert!(said.contains("--out DIR") && !said.contains("predict"), "{said}");
    succeed(&["exact", &gaussian]);
    let rows = "[target]\nmodel = \"logistic\"\nprior = { law = \"gaussian\", variance = 1.0 }\n\
        [[client]]\nrows = [[0.2, 1], [-1.1, 0], [0.7, 1]]\n";
    let rows = config("next-rows", rows);
    let kept = dir.join("run").display().to_string();
    let said = next(&succeed(&["run", &rows, "--out", &kept]));
    assert_eq!(
        said.trim(),
        format!("`consilience predict {kept} --data new.csv` predicts new rows.")
    );
}

#[test]
fn exact_laws_are_refused_where_there_are_none() {
    let rows = "rows = [[0.3, 1.0], [-1.0, 0.0], [0.4, 1.0]]";
    let logistic = format!(
        "[target]\nmodel = \"logistic\"\nprior = {{ law = \"gaussian\", variance = 1.0 }}\n\
         [[client]]\n{rows}\n[sampler]\nname = \"lmc\"\nstep = 0.1\n"
    );
    let output = consilience(&["exact", &config("logistic", &logistic)]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("not Gaussian") && out(&output).is_empty(), "{}", err(&output));
}

/// In the coordinates in which the posterior is round LMC widens every direction alike: the
/// variance by 1 / (1 - step/2).
#[test]
fn exact_laws_of_preconditioned_chains_are_told_in_the_users_coordinates() {
    let text = "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [1.0, -2.0]\n\
        precision = [[4.0, 1.0], [1.0, 3.0]]\n\
                [sampler]\nname = \"lmc\"\nstep = 0.5\nprecondition = true\n";
    let output = consilience(&["exact", "--json", &config("round", text)]);
    let law: Value = serde_json::from_str(&out(&output)).unwrap();
    let entry = |of: &str, i: usize, j: usize| law[of]["covariance"][i][j].as_f64().unwrap();
    for (i, j) in [(0, 0), (0, 1), (1, 1)] {
        let (widened, truth) = (entry("stationary", i, j), entry("posterior", i, j));
        assert!((widened - truth / 0.75).abs() < 1e-6 * (1.0 + truth.abs()), "{widened} {truth}");
    }
}

/// Errors against the exact posterior: LMC at a large step widens a standard deviation by what
/// theory says, 1/sqrt(1 - step L/2); another target is refused.
#[test]
fn samplers_are_compared_on_one_target() {
    let large = config("large", &two_clients("step = 0.2", "iterations = 40_000"));
    let small = config("small", &two_clients("step = 0.02", "iterations = 40_000"));
    let table: Value =
        serde_json::from_str(&succeed(&["compare", &large, &small, "--json"])).unwrap();
    let error = |k: usize| table["runs"][k]["sd_error"].as_f64().unwrap();
    assert_eq!(table["reference"], "the exact posterior");
    // precision 4: 1 - 0.2 * 4 / 2 = 0.6; 160,000 draws of ESS 30,000 and more
    assert!((error(0) - (1.0 / 0.6f64.sqrt() - 1.0)).abs() < 0.03, "{}", error(0));
    assert!(error(1) < 0.1);
    let rate = |name: &str| table["runs"][0][name].as_f64().unwrap();
    let bits = table["runs"][0]["bits_up"].as_f64().unwrap()
        + table["runs"][0]["bits_down"].as_f64().unwrap();
    assert!(
        (rate("ess_per_megabyte") - rate("ess") / (bits / 8e6)).abs() < 1e-9
            && rate("ess_per_second") > 0.0
    );
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare.html");
    let said = succeed(&["compare", &large, &small, "--html", page.to_str().unwrap()]);
    assert!(said.contains("ESS/MB") && said.contains("The page is "), "{said}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(
        page.contains("Error against gradients") && page.contains("which is known in closed form")
    );
    assert_eq!(page.matches("<figure").count(), 3);
    let other = config(
        "other",
        &two_clients("step = 0.2", "iterations = 100")
            .replace("mean = [2.0]", "mean = [2.0]\nname = \"elsewhere\""),
    );
    let output = consilience(&["compare", &large, &other]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("does not mean the same") && err(&output).contains("elsewhere"),
        "{}",
        err(&output)
    );
}

/// Samplers of all families, on a Gaussian: what surveys and pilots send is counted, and who was
/// chosen is told.
#[test]
fn all_three_families_are_compared() {
    let samplers = ["auto", "imh", "pcn", "mala", "hmc", "lmc", "qlsd++", "fald"];
    let sites = "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [0.0, 1.0]\n\
        precision = [[1.0, 0.3], [0.3, 2.0]]\n[[client]]\nmean = [2.0, 0.0]\n\
        precision = [[3.0, 0.0], [0.0, 1.0]]\n";
    let files = samplers.map(|name| {
        let text = format!("{sites}[sampler]\nname = \"{name}\"\n[run]\neffective_draws = 400\n");
        config(&format!("family-{}", name.replace('+', "p")), &text)
    });
    let mut arguments = vec!["compare", "--json"];
    arguments.extend(files.iter().map(String::as_str));
    let table: Value = serde_json::from_str(&succeed(&arguments)).unwrap();
    let runs = table["runs"].as_array().unwrap();
    let number = |k: usize, name: &str| runs[k].pointer(name).unwrap().as_f64().unwrap();
    for (k, name) in samplers.iter().enumerate() {
        let told = runs[k]["sampler"].as_str().unwrap();
        assert_eq!(told, if k == 0 { "auto: imh" } else { name });
        let exact = ["auto", "imh"].contains(name);
        assert_eq!(runs[k]["step"].is_null(), exact, "{name} has a step or none");
        // 400 effective draws: 0.05 standard errors, and what biased samplers may add
        assert!(number(k, "/mean_error_sd") < 0.3, "{name}: {}", runs[k]);
        assert!(number(k, "/bits_up") + number(k, "/bits_down") > number(k, "/survey_bits"));
        assert!(number(k, "/survey_bits") > 0.0, "{name}: the survey is counted");
    }
    let exchanges = |k| number(k, "/exchanges/before_sampling") + number(k, "/exchanges/sampling");
    assert_eq!(exchanges(0), exchanges(1), "auto tried nothing but imh");
    assert!(exchanges(5) > 100.0 * exchanges(1), "lmc: {}, imh: {}", exchanges(5), exchanges(1));
}

/// Whatever a sampler names beside its draws is told, whichever sampler it is.
#[test]
fn what_is_recorded_beside_draws_is_told() {
    let run = "iterations = 200\nchains = 2\n";
    for (sampler, names) in [
        ("hmc", ["acceptance_rate", "energy", "step_size"]),
        ("imh", ["acceptance_rate", "accepted", "log_weight"]),
        ("lmc", ["bits_up", "gradients", "participants"]),
    ] {
        let text = two_clients("", run).replace("lmc", sampler);
        let (folder, file) = (folder("beside"), config("beside", &text));
        let out = folder.join("run").display().to_string();
        let told = &json(&["run", &file, "--json", "--out", &out])["statistics"];
        for name in names {
            let [mean, lowest, highest] =
                ["mean", "lowest", "highest"].map(|part| told[name][part].as_f64().unwrap());
            assert!(lowest <= mean && mean <= highest, "{name}: {told}");
        }
        let accepted = told["acceptance_rate"]["mean"].as_f64();
        assert!(accepted.is_none_or(|rate| rate > 0.5 && rate <= 1.0), "{told}");
        let page = std::fs::read_to_string(folder.join("run/report.html")).unwrap();
        assert!(names.iter().all(|name| page.contains(name)), "{sampler}");
        std::fs::remove_dir_all(folder.join("run")).unwrap();
    }
}

/// `consilience list | head -0`: the reader is gone before the first byte.
#[test]
fn a_closed_pipe_is_no_failure() {
    let mut gone = Command::new(env!("CARGO_BIN_EXE_consilience"))
        .arg("--version")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pipe = gone.stdin.take().unwrap();
    gone.wait().unwrap();
    let output = command(&["list"])
        .stdout(pipe)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!((output.status.code(), err(&output)), (Some(0), String::new()));
}

/// Ctrl-C keeps what was drawn, even where some chains still wait for a core.
#[cfg(unix)]
#[test]
fn an_interrupt_keeps_the_draws() {
    let path = config("interrupt", &two_clients("step = 0.1", "iterations = 1000\nburn_in = 0"));
    let draws = Path::new(&path).with_file_name("draws.npy");
    let file = draws.display().to_string();
    let arguments = [
        "run",
        &path,
        "--json",
        "--iterations",
        "9000000000000000000",
        "--threads",
        "1",
        "--draws",
        &file,
    ];
    let mut child =
        command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let first = format!("{file}.chain-1.part");
    let patience = Instant::now();
    while std::fs::metadata(&first).map_or(0, |part| part.len()) < 50_000 {
        let early = child.try_wait().unwrap();
        if early.is_some() || patience.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            panic!("no draws came: {}", err(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert!(
        err(&output).contains("what was drawn is kept") && !err(&output).contains("error:"),
        "{}",
        err(&output)
    );

    let value: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(value["interrupted"].as_bool(), Some(true));
    let (chains, length) = (value["chains"].as_u64().unwrap(), value["draws"].as_u64().unwrap());
    assert!(chains >= 1 && length >= 6_000, "{chains} chains of {length} draws");
    let mean = numbers(&value["mean"])[0];
    // standard deviation 0.56, at least 1,000 effective draws: fourteen standard errors
    assert!((mean - 1.5).abs() < 0.25, "{mean}");

    let bytes = std::fs::read(&draws).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    assert!(
        std::str::from_utf8(&bytes[10..header])
            .unwrap()
            .contains(&format!("'shape': ({chains}, {length}, 1)"))
    );
    let cells = bytes[header..].as_chunks::<8>();
    assert!(cells.1.is_empty() && cells.0.len() as u64 == chains * length);
    let average =
        cells.0.iter().map(|x| f64::from_le_bytes(*x)).sum::<f64>() / (chains * length) as f64;
    assert!((average - mean).abs() < 1e-9, "{average} is not {mean}");
    let left = std::fs::read_dir(draws.parent().unwrap()).unwrap().count();
    assert_eq!(left, 2, "the config and the draws, no parts");
}

/// Models of the same rows are judged, compared and explained by what a run kept; a site draws its
/// own groups' effects.
#[test]
fn runs_are_judged_by_their_rows() {
    let folder = folder("judged");
    let mut rows = String::from("site,ward,x,y\n");
    for k in 0..40 {
        let (x, y) = (f64::from(k % 7) - 3.0, (k * 5) % 4 + (k % 7) / 3);
        rows += &format!("{},w{},{x},{y}\n", if k < 20 { "north" } else { "south" }, k % 5);
    }
    std::fs::write(folder.join("rows.csv"), rows).unwrap();
    let run = |name: &str, model: &str, formula: &str| {
        let text = format!(
            "[target]\nmodel = \"{model}\"\nformula = \"{formula}\"\n[data]\nfile = \
             \"rows.csv\"\nscheme = \"natural(site)\"\n[run]\neffective_draws = 200\n"
        );
        let (file, out) = (folder.join(format!("{name}.toml")), folder.join(name));
        std::fs::write(&file, text).unwrap();
        let (file, out) = (file.display().to_string(), out.display().to_string());
        succeed(&["run", &file, "--out", &out, "--json"]);
        out
    };
    let (a, b) = (run("a", "poisson", "y ~ x"), run("b", "poisson", "y ~ 1"));
    let text = succeed(&["loo", &a]);
    assert!(text.contains("elpd") && text.contains("\nnorth ") && text.contains("\nall "));
    let found = json(&["loo", &a, "--json"]);
    let sum = |of: &Value| of["elpd"].as_f64().unwrap();
    let parts = sum(&found["sites"]["north"]) + sum(&found["sites"]["south"]);
    assert!((sum(&found["total"]) - parts).abs() < 1e-9 && found["total"]["rows"] == 40);
    let both = json(&["compare-models", &a, &b, "--json"]);
    let apart = sum(&both["a"]["total"]) - sum(&both["b"]["total"]);
    assert!((sum(&both["difference"]["total"]) - apart).abs() < 1e-9);
    assert!(succeed(&["compare-models", &a, &b]).contains("predicts better, by"));

    let ratios = json(&["summary", &a, "--ratios", "--json"]);
    assert_eq!((&ratios["ratios"], &ratios["parameters"][0]), (&"rate ratio".into(), &"x".into()));
    // numbers are standardised: -3 to 3, in a row
    assert!((ratios["per"][0].as_f64().unwrap() - 2.0).abs() < 0.1, "{ratios}");
    let own = json(&["summary", &a, "--json"]);
    let place = own["parameters"].as_array().unwrap().iter().position(|name| name == "x").unwrap();
    let lower = own["lower"][place].as_f64().unwrap().exp();
    assert!((ratios["lower"][0].as_f64().unwrap() - lower).abs() < 1e-6 * lower);
    assert!(succeed(&["summary", &a, "--ratios"]).contains("rate ratio"));

    let wards = run("wards", "poisson", "y ~ x + (1 | ward)");
    let kept = folder.join("effects.csv").display().to_string();
    let shown = succeed(&["effects", &wards, "--site", "north", "--out", &kept]);
    assert!(shown.contains("\nw0 ") && shown.contains("\nw4 "), "{shown}");
    let kept = std::fs::read_to_string(kept).unwrap();
    assert!(kept.starts_with("chain,draw,\"w0\",\"w1\",\"w2\",\"w3\",\"w4\"\n0,0,"));
    assert!(succeed(&["loo", &wards]).contains("groups"));
    // each site by itself, and the sum
    let part = |name: &str| folder.join(name).display().to_string();
    for site in ["south", "north"] {
        let said = succeed(&["loo", &a, "--site", site, "--out", &part(site)]);
        assert!(said.contains("--merge FILE"), "{said}");
        let both = format!("{site} of both");
        succeed(&["compare-models", &a, &b, "--site", site, "--out", &part(&both)]);
    }
    let (north, south) = (part("north"), part("south"));
    assert_eq!(json(&["loo", "--merge", &south, &north, "--json"]), found);
    let (x, y) = (part("north of both"), part("south of both"));
    assert_eq!(json(&["compare-models", "--json", "--merge", &x, &y]), both);
    assert!(succeed(&["compare-models", "--merge", &x, &y]).contains("predicts better, by"));

    // what the model would draw: sums first, then counts, and the sum of all
    let merged = json(&["check", &a, "--json"]);
    let first = [part("north.first"), part("south.first")];
    for (site, file) in ["north", "south"].iter().zip(&first) {
        let said = succeed(&["check", &a, "--site", site, "--out", file]);
        assert!(said.contains("--first FILE"), "{said}");
    }
    let counts = [part("north.counts"), part("south.counts")];
    for (site, file) in ["north", "south"].iter().zip(&counts) {
        let of_all = ["--first", &first[0], &first[1], "--out", file];
        succeed(&[&["check", &a, "--site", site][..], &of_all].concat());
    }
    let both = ["--merge", &counts[1], &counts[0], "--json"];
    assert_eq!(json(&[&["check", &a][..], &both].concat()), merged);
    // rows of a site that took part, and of one that nobody has seen
    let sites = run("sites", "poisson", "y ~ x + (1 | site)");
    let new = part("new.csv");
    std::fs::write(&new, "x\n-1\n2\n").unwrap();
    let known = json(&["predict", &sites, "--data", &new, "--site", "north", "--json"]);
    let unseen = json(&["predict", &sites, "--data", &new, "--json"]);
    assert_ne!(known["mean"], unseen["mean"]);
    let said = succeed(&["predict", &sites, "--data", &new, "--site", "north"]);
    assert!(said.contains("of site north: the effects of its groups are known"), "{said}");
    for (arguments, says) in [
        (&["loo", "--merge", &north][..], "the parts of these sites are missing: south"),
        (&["loo", "--merge", &north, &north, &south], "site `north` is there twice"),
        (&["loo", "--merge", &x], "it is no file that this command wrote"),
        (&["loo", "--merge", "nowhere.json"], "it cannot be read"),
        (&["loo", &a, "--site", "north"], "--out <FILE>"),
        (&["loo", &a, "--merge", &north], "cannot be used with"),
        (&["loo"], "<DIR>"),
        (&["predict", &sites, "--data", &new, "--site", "nort"], "did you mean `north`?"),
        (&["effects", &a, "--site", "north"][..], "the model has no effects of groups"),
        (&["effects", &wards, "--site", "nort"], "did you mean `north`?"),
        (&["compare-models", &a, &wards], "one leaves out rows, the other groups"),
        (&["loo", "nowhere"], "nowhere"),
    ] {
        let output = consilience(arguments);
        assert_ne!(output.status.code(), Some(0));
        assert!(err(&output).contains(says), "{}", err(&output));
    }
}
