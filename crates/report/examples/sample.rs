//! Write the pages of a made-up run and a made-up comparison:
//! `cargo run -p consilience-report --example sample -- report.html compare.html`.
#![allow(clippy::print_stderr)] // its reader sits at a terminal

#[path = "../tests/made_up/mod.rs"]
mod made_up;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    let [report, compare] = &files[..] else {
        eprintln!("usage: sample REPORT COMPARISON");
        return ExitCode::FAILURE;
    };
    let mut record = made_up::record(4, 2000, 22, true);
    (record.choice, record.effective_draws) = (Some(made_up::choice()), Some(4000));
    let report = (report, consilience_report::html(&record));
    let compare = (compare, consilience_report::comparison(&made_up::comparison(3)));
    for (path, page) in [report, compare] {
        if let Err(error) = std::fs::write(path, page) {
            eprintln!("{}: {error}", Path::new(path).display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
