//! Log what happens, for people or as JSON, to standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Start the log; the environment variable CONSILIENCE_LOG says how much of it (`info` where it
/// does not).
pub fn start(json: bool) {
    let filter =
        EnvFilter::try_from_env("CONSILIENCE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let _ = if json {
        log.json().try_init()
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
}
