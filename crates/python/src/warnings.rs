//! List the warnings about a run.

use consilience_engine::record::Record;
use consilience_engine::warnings::Warning;
use serde_json::Value;

/// The warnings of a run: of each its `code`, `severity`, `message`, `remedy` and `numbers`.
pub fn warnings(record: &Record) -> Vec<Value> {
    record.warnings.iter().map(Warning::value).collect()
}
