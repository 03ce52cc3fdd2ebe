//! Print a run as one line of JSON, with the fields that the peers' programs print.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::How;
use crate::timing::Timed;

/// Names and what they stand for, in order.
#[derive(Clone, Debug, Default)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// One more; numbers that are not finite become null.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// One more, rounded to six digits.
    pub fn rounded(self, name: &str, value: f64) -> Self {
        self.with(name, digits(value))
    }

    /// All of them as one line of JSON.
    pub fn json(&self) -> Result<String, String> {
        serde_json::to_string(&self.0)
            .map_err(|error| format!("the result cannot be written as JSON: {error}"))
    }
}

#[derive(Serialize)]
struct Line<'a> {
    workload: &'a str,
    r#impl: &'a str,
    threads: usize,
    chains: u32,
    iters: u64,
    seconds: Option<f64>,
    iters_per_second: Option<f64>,
    cpu_seconds: Option<f64>,
    compile_seconds: f64,
    #[serde(flatten)]
    variant: &'a Map<String, Value>,
    check: &'a Map<String, Value>,
}

/// The line of one run.
pub fn line(
    workload: &str,
    how: &How,
    timed: Timed,
    variant: &Fields,
    check: &Fields,
) -> Result<String, String> {
    let line = Line {
        workload,
        r#impl: "consilience",
        threads: how.threads,
        chains: how.chains,
        iters: how.iters,
        seconds: digits(timed.seconds),
        iters_per_second: digits(how.iters as f64 / timed.seconds),
        cpu_seconds: digits(timed.cpu_seconds),
        compile_seconds: 0.0,
        variant: &variant.0,
        check: &check.0,
    };
    serde_json::to_string(&line)
        .map_err(|error| format!("the result cannot be written as JSON: {error}"))
}

fn digits(value: f64) -> Option<f64> {
    format!("{value:.5e}").parse().ok().filter(|v: &f64| v.is_finite())
}
