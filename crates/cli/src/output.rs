//! Write to the terminal, and choose the exit code.

use std::io::Write;

use consilience_engine::checkpoint::CheckpointError;
use consilience_engine::config::ConfigError;
use consilience_engine::run::RunError;
use consilience_engine::rundir::RunDirError;

/// Why a command did not do its work.
#[derive(Debug)]
pub enum Failure {
    /// The config or its data is wrong: code 2.
    Config(ConfigError),
    /// An argument is wrong, or names what is not there: code 2.
    Argument(String),
    /// The run went wrong: code 3.
    Run(RunError),
    /// A party is away, or takes no part: code 4.
    Lost(String),
    /// A party is refused, or means another target: code 5.
    Refused(String),
    /// A party of a network was interrupted, and goes on when it is started again: code 6.
    Suspended(String),
    /// The operator ended a run early: code 7.
    Ended(String),
    /// A run over a network cannot go on: code 8.
    Aborted(String),
    /// Something else the user can mend: code 1.
    Other(String),
    /// Ctrl-C or SIGTERM stopped it before its end: code 130, as shells have it. What is left to
    /// say stands here.
    Interrupted(Option<String>),
    /// Whoever read our output went away.
    PipeClosed,
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Config(_) | Failure::Argument(_) => 2,
            Failure::Run(_) => 3,
            Failure::Lost(_) => 4,
            Failure::Refused(_) => 5,
            Failure::Suspended(_) => 6,
            Failure::Ended(_) => 7,
            Failure::Aborted(_) => 8,
            Failure::Other(_) => 1,
            Failure::Interrupted(_) => 130,
            Failure::PipeClosed => 0,
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::Config(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Failure::Run(error)
    }
}

impl From<RunDirError> for Failure {
    fn from(error: RunDirError) -> Self {
        match error {
            RunDirError::Exists { .. }
            | RunDirError::Unfinished { .. }
            | RunDirError::NotARun { .. } => Failure::Argument(error.to_string()),
            RunDirError::Io { .. } | RunDirError::Malformed { .. } => {
                Failure::Other(error.to_string())
            }
        }
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Nothing { .. } => Failure::Argument(error.to_string()),
            _ => Failure::Other(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Failure::PipeClosed
        } else {
            Failure::Other(error.to_string())
        }
    }
}

/// Print to standard output.
pub fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Print to standard error; if that is closed too, there is nobody to tell.
pub fn note(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Say why it did not work.
pub fn complain(failure: &Failure) {
    let text = match failure {
        Failure::Config(error) => error.to_string(),
        Failure::Run(error) => error.to_string(),
        Failure::Argument(text)
        | Failure::Lost(text)
        | Failure::Refused(text)
        | Failure::Aborted(text)
        | Failure::Other(text) => text.clone(),
        Failure::Interrupted(Some(text)) => text.clone(),
        // asked for: no error
        Failure::Suspended(text) | Failure::Ended(text) => return note(&format!("{text}\n")),
        Failure::Interrupted(None) | Failure::PipeClosed => return,
    };
    note(&format!("error: {text}\n"));
}
