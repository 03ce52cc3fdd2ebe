//! Parse the command line and run the command.

use std::ffi::OsString;
use std::io::Write;

use clap::Parser;

use crate::args::{Args, Command};
use crate::output::{self, Failure};
use crate::{
    check, compare, data, effects, exact, layers, listing, loo, network, page, plan, predict,
    privacy, reproduce, run, summary, truth,
};

/// The command `consilience`: what stands behind its name, done; its exit code.
pub fn command(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let name = OsString::from("consilience");
    let args = match Args::try_parse_from(std::iter::once(name).chain(arguments)) {
        Ok(args) => args,
        Err(told) => {
            // Help and the version are told so too. Nobody may read them, which is no failure.
            let _ = told.print();
            let _ = std::io::stdout().flush();
            return u8::try_from(told.exit_code()).unwrap_or(2);
        }
    };
    let result = match args.command {
        None => run::main_job(&args.run),
        Some(Command::Run(command)) => run::run(&command),
        Some(Command::Summary(command)) => summary::summary(&command),
        Some(Command::Report(command)) => page::report(&command),
        Some(Command::Predict(command)) => predict::predict(&command),
        Some(Command::Check(command)) => check::check(&command),
        Some(Command::Loo(command)) => loo::loo(&command),
        Some(Command::CompareModels(command)) => loo::compare(&command),
        Some(Command::Effects(command)) => effects::effects(&command),
        Some(Command::Exact(command)) => exact::exact(&command),
        Some(Command::Plan(command)) => plan::plan(&command),
        Some(Command::Privacy(command)) => privacy::privacy(&command),
        Some(Command::Net(command)) => layers::net(&command),
        Some(Command::Truth(command)) => truth::truth(&command),
        Some(Command::Compare(command)) => compare::compare(&command),
        Some(Command::Reproduce(command)) => reproduce::reproduce(&command),
        Some(Command::List) => listing::list(),
        Some(Command::Data(command)) => data::data(&command),
        Some(Command::Certs(command)) => network::certs(&command),
        Some(Command::Serve(command)) => network::serve(&command),
        Some(Command::Join(command)) => network::join(&command),
        Some(Command::Control(command)) => network::control(&command),
        Some(Command::Audit(command)) => network::audit(&command),
        Some(Command::Fields) => listing::fields(),
        Some(Command::New(command)) => listing::new(&command),
        Some(Command::Completions { shell }) => listing::completions(shell),
    };
    match result {
        Ok(()) => 0,
        // `consilience list | head`: nobody reads on, so there is nothing to say
        Err(Failure::PipeClosed) => 0,
        Err(failure) => {
            output::complain(&failure);
            failure.code()
        }
    }
}
