//! Write the page of a made-up run: `cargo run -p consilience-report --example sample -- report.html`.
#![allow(clippy::print_stderr)] // its reader sits at a terminal

#[path = "../tests/made_up/mod.rs"]
mod made_up;

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: sample FILE");
        return ExitCode::FAILURE;
    };
    match std::fs::write(&path, consilience_report::html(&made_up::record(4, 2000, 22, true))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
