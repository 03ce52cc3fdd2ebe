//! The `consilience` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    consilience::command(std::env::args_os().skip(1)).into()
}
