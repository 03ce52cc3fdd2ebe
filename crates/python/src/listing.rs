//! List samplers and the fields of configs.

use consilience_core::sampler::registry::{self, Row};
use consilience_engine::config::fields::{self as documented, Field};
use consilience_engine::models::{MODELS, ModelRow};
use pyo3::prelude::*;
use serde_json::{Value, json};

/// Every sampler, as JSON.
#[pyfunction]
pub fn samplers() -> String {
    let row = |row: &Row| {
        let family = row.family.name;
        json!({ "name": row.name, "family": family, "paper": row.paper, "says": row.says })
    };
    Value::from(registry::all().map(row).collect::<Vec<_>>()).to_string()
}

/// Every model, as JSON.
#[pyfunction]
pub fn models() -> String {
    let row = |row: &&ModelRow| json!({ "name": row.name, "says": row.says });
    Value::from(MODELS.iter().map(row).collect::<Vec<_>>()).to_string()
}

/// Every field of a config, as JSON.
#[pyfunction]
pub fn fields() -> String {
    let row = |f: &Field| {
        json!({
        "table": f.section, "key": f.key, "values": f.values, "default": f.default,
        "says": f.says })
    };
    Value::from(documented::all().map(row).collect::<Vec<_>>()).to_string()
}
