//! List what there is.

use consilience_core::sampler::registry::REGISTRY;
use consilience_engine::config::fields::FIELDS;
use pyo3::prelude::*;
use serde_json::{Value, json};

/// Every sampler, as JSON.
#[pyfunction]
pub fn samplers() -> String {
    let row = |row: &consilience_core::sampler::registry::Row| {
        let family = row.family.name;
        json!({ "name": row.name, "family": family, "paper": row.paper, "says": row.says })
    };
    Value::from(REGISTRY.iter().map(row).collect::<Vec<_>>()).to_string()
}

/// Every field of a config, as JSON.
#[pyfunction]
pub fn fields() -> String {
    let row = |f: &consilience_engine::config::fields::Field| {
        json!({
        "table": f.section, "key": f.key, "values": f.values, "default": f.default,
        "says": f.says })
    };
    Value::from(FIELDS.iter().map(row).collect::<Vec<_>>()).to_string()
}
