//! Every workload prints one line of JSON with the peers' fields, and its chain has the law that is
//! known of it.
#![allow(clippy::unwrap_used)] // a test may panic

use std::process::{Command, Output};

use serde_json::Value;

fn bench(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_consilience-bench")).args(words.split(' ')).output().unwrap()
}

fn line(words: &str) -> Value {
    let output = bench(words);
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let line: Value = serde_json::from_str(&text).unwrap();
    for field in ["threads", "chains", "iters", "seconds", "iters_per_second", "compile_seconds"] {
        assert!(line[field].is_number(), "{words}: {field} of {text}");
    }
    assert!(
        line["workload"].is_string() && line["impl"] == "consilience" && line["check"].is_object(),
        "{text}"
    );
    line
}

fn check(line: &Value, name: &str) -> f64 {
    line["check"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// 40000 draws of 50 coordinates, all but independent: a ratio is off by 0.1% or so, and by more
/// than 0.5% once in a million.
#[test]
fn the_toy_has_its_stationary_variance_with_either_oracle() {
    for oracle in ["generic", "collapsed"] {
        let line = line(&format!("qlsd_toy --oracle {oracle} --iters 5000 --chains 2 --repeats 3"));
        assert_eq!(line["oracle"], oracle);
        assert!((check(&line, "var_over_predicted") - 1.0).abs() < 0.005, "{line}");
        assert!(
            check(&line, "var_over_posterior") > 2.0,
            "the posterior instead would be noticed: {line}"
        );
    }
}

/// Averages of clients move by their noise, and by a drift that is far smaller: within 4.9 standard
/// errors and 2%.
#[test]
fn averages_of_lenets_move_by_their_noise() {
    for tau in [0, 1] {
        let line = line(&format!("lenet_vrfald --tau {tau} --iters 60 --repeats 1 --ni 16"));
        let error = 0.02 + 4.9 * check(&line, "standard_error");
        let ratio = check(&line, "increment_over_noise_only");
        assert!((ratio - 1.0).abs() < error, "{line}");
        assert!(check(&line, "averages") > 0.0 && check(&line, "test_nll") < 10.0, "{line}");
    }
}

/// Within 4.9 of its own standard errors: once in a million.
#[test]
fn the_gaussians_have_their_exact_second_moment() {
    for (algo, tau) in [("fald", 0), ("fald", 1), ("vr", 0)] {
        let line = line(&format!(
            "W2 --algo {algo} --tau {tau} --iters 2000 --chains 4 --threads 2 --repeats 3"
        ));
        let ratio =
            check(&line, if algo == "fald" { "ratio_to_exact" } else { "ratio_to_posterior" });
        assert!((ratio - 1.0).abs() < 4.9 * check(&line, "relative_standard_error"), "{line}");
    }
}

#[test]
fn vectors_are_read_back_whatever_the_code() {
    for codec in ["elias", "zstd", "huffman", "fixed"] {
        let line = line(&format!("W7 --s 16 --d 20000 --codec {codec} --iters 1 --repeats 1"));
        assert_eq!(line["check"]["round_trip"], true, "{line}");
    }
}

/// Nothing but noise moves weights of empty pixels; each ratio is off by 4.9 standard errors once
/// in a million.
#[test]
fn weights_that_no_image_moves_follow_what_is_known_of_them() {
    for (words, ratio) in [
        ("W3 --iters 1 --repeats 1", "dead_weight_var_over_exact"),
        ("W4 --iters 1 --repeats 1", "dead_weight_var_over_prior"),
    ] {
        let line = line(words);
        assert!(
            (check(&line, ratio) - 1.0).abs() < 4.9 * check(&line, "dead_standard_error"),
            "{line}"
        );
        assert!(check(&line, "train_nll") < 2.3, "{line}");
    }
}

/// Errors stay within sight: `g` follows the gradient. Both oracles are one chain, bit for bit:
/// `check` is all that is known of it.
#[test]
fn elf_follows_the_gradient_with_either_oracle() {
    let [full, incremental] = ["full", "incremental"].map(|oracle| {
        let line = line(&format!("elf_logreg --oracle {oracle} --iters 300 --repeats 2"));
        assert_eq!(line["oracle"], oracle);
        assert!(check(&line, "lag_of_g") < 0.3, "{line}");
        line
    });
    assert_eq!(full["check"], incremental["check"]);
}

#[test]
fn what_cannot_be_done_is_said() {
    let said = |words: &str| String::from_utf8(bench(words).stderr).unwrap();
    assert!(said("W1 --data /nowhere").contains("w1_count.bin"));
    assert!(said("W7 --codec lz4").contains("lz4"));
}
