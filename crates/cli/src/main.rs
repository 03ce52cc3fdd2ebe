//! The `consilience` command.

mod args;
mod clock;
mod compare;
mod data;
mod exact;
mod listing;
mod network;
mod output;
mod pace;
mod page;
mod picture;
mod predict;
mod progress;
mod report;
mod reproduce;
mod run;
mod summary;
mod truth;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use output::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.command {
        None => run::main_job(&args.run),
        Some(Command::Run(command)) => run::run(&command),
        Some(Command::Summary(command)) => summary::summary(&command),
        Some(Command::Report(command)) => page::report(&command),
        Some(Command::Predict(command)) => predict::predict(&command),
        Some(Command::Exact(command)) => exact::exact(&command),
        Some(Command::Truth(command)) => truth::truth(&command),
        Some(Command::Compare(command)) => compare::compare(&command),
        Some(Command::Reproduce(command)) => reproduce::reproduce(&command),
        Some(Command::List) => listing::list(),
        Some(Command::Data(command)) => data::data(&command),
        Some(Command::Certs(command)) => network::certs(&command),
        Some(Command::Serve(command)) => network::serve(&command),
        Some(Command::Join(command)) => network::join(&command),
        Some(Command::Fields) => listing::fields(),
        Some(Command::New(command)) => listing::new(&command),
        Some(Command::Completions { shell }) => listing::completions(shell),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::PipeClosed) => ExitCode::SUCCESS, // `consilience list | head`: nobody reads on, so there is nothing to say
        Err(failure) => {
            output::complain(&failure);
            failure.code()
        }
    }
}
