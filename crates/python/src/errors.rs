//! Raise the package's own exceptions, which `consilience/errors.py` declares.

use consilience_engine::config::ConfigError;
use consilience_engine::run::RunError;
use pyo3::prelude::*;

/// Which exception is raised.
#[derive(Clone, Copy, Debug)]
pub enum Raised {
    /// Anything else that went wrong.
    Error,
    /// The config is wrong.
    Config,
    /// The data is wrong.
    Data,
    /// A chain failed.
    Sampling,
    /// A message of the protocol was refused.
    Refused,
}

impl Raised {
    fn class(self) -> &'static str {
        match self {
            Raised::Error => "Error",
            Raised::Config => "ConfigError",
            Raised::Data => "DataError",
            Raised::Sampling => "SamplingError",
            Raised::Refused => "Refused",
        }
    }
}

/// What went wrong, in words, while no Python was at hand.
#[derive(Debug)]
pub struct Failure {
    raised: Raised,
    message: String,
    /// The field of a config, what is wrong with it, and what to do.
    field: Option<(String, String, String)>,
}

impl Failure {
    /// A failure with a message of its own.
    pub fn new(raised: Raised, message: impl ToString) -> Self {
        Failure { raised, message: message.to_string(), field: None }
    }

    /// A complaint about a setting, whatever it was written in.
    pub fn field(raised: Raised, field: &str, problem: String, fix: String) -> Self {
        Failure {
            raised,
            message: format!("{field}: {problem}\n  {fix}"),
            field: Some((field.into(), problem, fix)),
        }
    }

    /// A complaint about a config. Its line means something only where a person wrote the text.
    pub fn complaint(raised: Raised, error: ConfigError, written: bool) -> Self {
        let message = if written {
            error.to_string()
        } else {
            format!("{}: {}\n  {}", error.field, error.problem, error.fix)
        };
        Failure { raised, message, field: Some((error.field, error.problem, error.fix)) }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Failure::new(Raised::Sampling, error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| {
            let raise = || -> PyResult<PyErr> {
                let class = py.import("consilience.errors")?.getattr(failure.raised.class())?;
                let exception = class.call1((&failure.message,))?;
                if let Some((field, problem, fix)) = &failure.field {
                    exception.setattr("field", field)?;
                    exception.setattr("problem", problem)?;
                    exception.setattr("fix", fix)?;
                }
                Ok(PyErr::from_value(exception))
            };
            raise().unwrap_or_else(|error| error)
        })
    }
}
