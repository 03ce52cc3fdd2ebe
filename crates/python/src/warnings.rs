//! List the warnings about a run.

use consilience_engine::record::Record;
use serde_json::{Value, json};

/// The warnings of a run: the `code` of each, its `message`, and what to do about it (`remedy`),
/// where the message does not say so itself.
pub fn warnings(record: &Record) -> Vec<Value> {
    // That it was stopped has a category of its own in Python.
    let code = |warning: &str| {
        if record.interrupted && warning.contains("was stopped before its end") {
            "interrupted"
        } else {
            ""
        }
    };
    let told =
        |warning: &String| json!({ "code": code(warning), "message": warning, "remedy": "" });
    record.warnings.iter().map(told).collect()
}
