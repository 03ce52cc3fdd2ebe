//! A run that is kept can be shown again and predicts; nothing is overwritten.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use consilience::engine::draws::{Draws, Streamed};
use consilience::engine::rundir;
use consilience::engine::warnings::{Warning, of_draws};
use serde_json::Value;

const SITES: &str = "[target]\nmodel = \"logistic\"\n\
    prior = { law = \"gaussian\", variance = 1.0 }\n\
    [[client]]\nname = \"north\"\nrows = [[0.3, 1.0, 1], [-1.0, 0.5, 0], [0.4, 0.1, 1]]\n\
    [[client]]\nname = \"south\"\nfile = \"south.csv\"\n\
    [sampler]\nname = \"lmc\"\nstep = \"auto\"\n[run]\niterations = 600\n";

/// A folder with a config and the data it names.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rundir-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("run.toml"), SITES).unwrap();
    std::fs::write(folder.join("south.csv"), "0.5,-1,0\n-0.2,0.7,1\n").unwrap();
    folder
}

fn consilience(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_consilience"))
        .args(arguments)
        .current_dir(folder)
        .env("CONSILIENCE_CACHE", folder.join("no-cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = consilience(folder, arguments);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn refuse(folder: &Path, arguments: &[&str]) -> String {
    let output = consilience(folder, arguments);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8(output.stderr).unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed(folder, arguments)).unwrap()
}

/// The lines from the table's head to the first empty one.
fn table(text: &str) -> String {
    let start = text.find("parameter ").unwrap_or_else(|| panic!("no table: {text}"));
    text[start..].split("\n\n").next().unwrap().to_owned()
}

#[test]
fn a_kept_run_is_shown_again_and_can_be_run_again_from_anywhere() {
    let folder = folder("again");
    let text = succeed(&folder, &["run", "run.toml", "--seed", "9", "--out", "kept"]);
    assert!(text.contains("The run is in kept: "), "{text}");
    let again = succeed(&folder, &["summary", "kept"]);
    assert_eq!(table(&again), table(&text));
    let (sent, sent_again) =
        (text.split("\nSent while").nth(1).unwrap(), again.split("\nSent while").nth(1).unwrap());
    assert!(
        text.contains("The report is kept/report.html")
            && folder.join("kept/report.html").is_file()
    );
    assert_eq!(sent.split("The report is").next(), Some(sent_again));

    // Another folder, no seed, the step that was found: the same chains.
    let elsewhere = folder.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let rerun = json(&elsewhere, &["run", "../kept/config.toml", "--json"]);
    let shown = json(&folder, &["summary", "kept", "--json"]);
    for key in ["seed", "step", "mean", "covariance", "rhat", "parameters", "clients", "iterations"]
    {
        assert_eq!(rerun[key], shown[key], "{key}");
    }
    assert_eq!(shown["seed"], 9);
}

#[test]
fn the_record_holds_what_the_command_says() {
    let folder = folder("record");
    let answer = json(&folder, &["run", "run.toml", "--json", "--out", "deep/er/kept"]);
    assert_eq!(answer["run_directory"], "deep/er/kept");
    let record = rundir::read(&folder.join("deep/er/kept")).unwrap();
    assert_eq!(
        (record.draws.chains(), record.draws.length(), record.iterations, record.burn_in),
        (4, 540, 600, 60)
    );
    let names: Vec<&str> = record.statistics.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["lp", "iteration", "bits_up", "bits_down", "gradients", "participants"]);
    let of = |name: &str| &record.statistics.iter().find(|s| s.name == name).unwrap().values;
    assert_eq!((of("iteration")[3][0], of("iteration")[3][539]), (61.0, 600.0));
    let last: f64 = of("bits_up").iter().map(|chain| chain[539]).sum();
    assert_eq!(last as u64, answer["bits"]["up"].as_u64().unwrap());
    assert_eq!(
        record.sites.iter().map(|s| (s.name.as_str(), s.rows)).collect::<Vec<_>>(),
        [("north", 3), ("south", 2)]
    );
    assert_eq!(
        record.sites.iter().map(|s| s.bits.0).sum::<u64>(),
        answer["bits"]["up"].as_u64().unwrap()
    );
    let kept: Vec<_> = record.warnings.iter().map(Warning::value).collect();
    assert_eq!(answer["warnings"], serde_json::Value::from(kept));
    let calibration = record.calibration.unwrap();
    assert_eq!(calibration.sites.iter().map(|site| site.total.all).collect::<Vec<_>>(), [3, 2]);
    let influence = record.influence.unwrap();
    assert_eq!(
        (influence.draws, influence.sites.len(), influence.sites[0].shift.len()),
        (4 * 540, 2, 3)
    );
    // Gradients of single rows: every chain's 600 iterations saw all five rows.
    let gradients: Vec<f64> = record
        .statistics
        .iter()
        .find(|s| s.name == "gradients")
        .unwrap()
        .values
        .iter()
        .map(|c| c[539])
        .collect();
    assert_eq!(gradients, [3000.0; 4]);
}

/// A run whose draws are on disk alone says how many they are, and what computes the table.
#[test]
fn draws_on_disk_alone_are_counted() {
    let folder = folder("alone");
    succeed(&folder, &["run", "run.toml", "--draws", "draws.npy", "--out", "held"]);
    let mut record = rundir::read(&folder.join("held")).unwrap();
    let streamed = Streamed {
        file: "draws.npy".into(),
        chains: record.draws.chains(),
        length: record.draws.length(),
    };
    (record.draws, record.streamed) = (Draws::new(3), Some(streamed));
    (record.statistics, record.calibration, record.influence) = (Vec::new(), None, None);
    record.warnings = of_draws(&record);
    rundir::write(&folder.join("alone"), &record).unwrap();
    let text = succeed(&folder, &["summary", "alone"]);
    assert!(text.contains("540 draws of each of 4 chains") && !text.contains("R-hat"), "{text}");
    assert_eq!(text.matches("`consilience summary draws.npy`").count(), 1, "{text}");
    let shown = json(&folder, &["summary", "alone", "--json"]);
    assert_eq!((shown["draws"].as_u64(), shown["chains"].as_u64()), (Some(540), Some(4)));
    assert!(shown["mean"].is_null() && shown["draws_file"] == "draws.npy");
    let page = folder.join("page.html");
    succeed(&folder, &["report", "alone", "--html", "page.html"]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<dd>4 × 540</dd>"));
    assert_eq!(page.matches("consilience summary draws.npy").count(), 1);
}

/// A file of draws is summarised as the run that wrote it was.
#[test]
fn a_file_of_draws_has_the_summary_of_its_run() {
    let folder = folder("file");
    for name in ["draws.npy", "draws.csv"] {
        let text = succeed(&folder, &["run", "run.toml", "--draws", name]);
        let again = succeed(&folder, &["summary", name]);
        assert!(again.starts_with("540 draws of each of 4 chains.\n"), "{again}");
        let numbers = |text: &str| {
            table(text)
                .lines()
                .skip(1)
                .map(|line| line[line.len() - 57..].to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(&again), numbers(&text));
        let shown = json(&folder, &["summary", name, "--json"]);
        assert_eq!(
            (
                shown["draws"].as_u64(),
                shown["chains"].as_u64(),
                shown["sd"].as_array().unwrap().len()
            ),
            (Some(540), Some(4), 3)
        );
    }
    assert!(refuse(&folder, &["summary", "run.toml"]).contains("must end in .npy or .csv"));
}

#[test]
fn nothing_is_overwritten_and_nothing_is_run_in_vain() {
    let folder = folder("taken");
    std::fs::create_dir(folder.join("taken")).unwrap();
    std::fs::write(folder.join("taken/mine"), "mine").unwrap();
    let output = consilience(&folder, &["run", "run.toml", "--out", "taken"]);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        complaint.contains("taken exists") && complaint.contains("nothing was overwritten"),
        "{complaint}"
    );
    assert!(output.stdout.is_empty(), "it was refused before it began");
    assert!(refuse(&folder, &["summary", "nowhere"]).contains("nowhere is no run directory"));
}

#[test]
fn the_main_job_is_kept_and_the_next_one_beside_it() {
    let folder = folder("main");
    let first = succeed(&folder, &["--iterations", "400", "--seed", "4"]);
    let second = json(&folder, &["--iterations", "400", "--seed", "4", "--json"]);
    assert!(first.contains("runs/heart-disease-4: "), "{first}");
    assert_eq!(second["run_directory"], "runs/heart-disease-4-2");
    let record = rundir::read(&folder.join("runs/heart-disease-4")).unwrap();
    assert_eq!(
        (record.parameters.len(), record.reference.as_ref().map(|r| r.length())),
        (22, Some(4000))
    );
    assert_eq!(table(&succeed(&folder, &["summary", "runs/heart-disease-4"])), table(&first));

    // The hospitals' own files are predicted: raw, without a header line, with their gaps.
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../data/heart-disease/processed.cleveland.data");
    let file = file.to_str().unwrap();
    let answer = json(
        &folder,
        &["predict", "runs/heart-disease-4", "--data", file, "--site", "cleveland", "--json"],
    );
    assert_eq!(
        (answer["rows"].as_u64(), answer["explained"].as_str()),
        (Some(303), Some("num > 0"))
    );
    let at = |key: &str, row: usize| answer[key][row].as_f64().unwrap();
    for row in 0..303 {
        assert!(
            0.0 < at("lower", row) && at("lower", row) < at("mean", row) && at("upper", row) < 1.0,
            "{row}: {answer}"
        );
    }
    assert!(answer["scores"]["accuracy"].as_f64().unwrap() > 0.75, "{}", answer["scores"]);
    let text = succeed(
        &folder,
        &["predict", "runs/heart-disease-4", "--data", file, "--site", "cleveland"],
    );
    assert!(
        text.starts_with("Predicted: the probability that num > 0;")
            && text.contains("\nWhere the response is known: 303 rows; accuracy 0.")
    );
    let complaint = refuse(&folder, &["predict", "runs/heart-disease-4", "--data", file]);
    assert!(
        complaint.contains("add a column `site`") && complaint.contains("--site"),
        "{complaint}"
    );
    // Without its encoding the run cannot know what raw columns mean.
    std::fs::remove_file(folder.join("runs/heart-disease-4/encoding.json")).unwrap();
    let complaint = refuse(
        &folder,
        &["predict", "runs/heart-disease-4", "--data", file, "--site", "cleveland"],
    );
    assert!(
        complaint.contains("does not say how its columns were coded")
            && complaint.contains("run it again"),
        "{complaint}"
    );
}

/// Raw columns are standardised by the run's own means: far from zero, none of these would be
/// within reach of the model otherwise.
#[test]
fn raw_rows_are_predicted_after_a_formula() {
    let folder = folder("formula");
    let rows = |from: usize| {
        let row = |k: usize| {
            format!(
                "{},{},{}\n",
                150 + (k * 37) % 53,
                ["f", "m"][k % 2],
                ["no", "yes"][usize::from((k * 37) % 53 > 26)]
            )
        };
        std::iter::once("dose,sex,ill\n".to_owned())
            .chain((from..from + 40).map(row))
            .collect::<String>()
    };
    std::fs::write(folder.join("a.csv"), rows(0)).unwrap();
    std::fs::write(folder.join("b.csv"), rows(40)).unwrap();
    let config = "[target]\nformula = \"ill == yes ~ dose + sex\"\n[[client]]\nfile = \"a.csv\"\n\
        [[client]]\nfile = \"b.csv\"\n\
                  [sampler]\nname = \"lmc\"\n[run]\niterations = 2000\n";
    std::fs::write(folder.join("formula.toml"), config).unwrap();
    succeed(&folder, &["run", "formula.toml", "--out", "kept"]);
    std::fs::write(folder.join("new.csv"), "sex,dose\nf,150\nm,202\nf,NA\n").unwrap();
    let answer = json(&folder, &["predict", "kept", "--data", "new.csv", "--json"]);
    let mean: Vec<f64> =
        answer["mean"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).collect();
    assert!(mean[0] < 0.1 && mean[1] > 0.9 && (0.1..0.9).contains(&mean[2]), "{mean:?}");
    assert_eq!(answer["scores"], Value::Null);
    assert_eq!(
        answer["notes"][0],
        "dose: 1 of 3 values are missing, imputed by the federated mean."
    );
    let scores = json(&folder, &["predict", "kept", "--data", "b.csv", "--json"])["scores"].clone();
    assert!(scores["rows"] == 40 && scores["accuracy"].as_f64().unwrap() > 0.9, "{scores}");
    for (text, part) in [
        (
            "sex,dose\nf,150\nx,160\n",
            "new.csv, line 3, column `sex`: no site has the level `x`: the levels are f, m",
        ),
        ("sex,dos\nf,150\n", "new.csv, line 1: there is no column `dose`: did you mean `dos`?"),
        ("sex,dose\nf,high\n", "new.csv, line 2, column `dose`: `high` is not a finite number"),
    ] {
        std::fs::write(folder.join("new.csv"), text).unwrap();
        let complaint = refuse(&folder, &["predict", "kept", "--data", "new.csv"]);
        assert!(complaint.contains(part), "{complaint}");
    }
}

#[test]
fn predictions_are_printed_row_by_row() {
    let folder = folder("predict");
    succeed(&folder, &["run", "run.toml", "--out", "kept"]);
    std::fs::write(folder.join("new.csv"), "x2,x1\n0.5,1.0\n-3,0.2\n").unwrap();
    let answer = json(&folder, &["predict", "kept", "--data", "new.csv", "--json"]);
    let text = succeed(&folder, &["predict", "kept", "--data", "new.csv"]);
    for row in 0..2 {
        let number = |key: &str| format!("{:>10.4}", answer[key][row].as_f64().unwrap());
        let line =
            format!("{:>6} {} {} {}\n", row + 1, number("mean"), number("lower"), number("upper"));
        assert!(text.contains(&line), "{line}: {text}");
    }
}
