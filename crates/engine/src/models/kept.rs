//! Keep a model with its settings in a file, and read it back.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::{RowModel, from_settings, with_groups, with_missing};
use crate::data::{GroupBy, GroupTerm};

/// Where what rows are grouped by stands beside a model's settings.
pub(super) const GROUPS: &str = "groups";
/// Where columns that may lack values stand there.
pub(super) const LACKING: &str = "lacking";

/// The model's name and settings.
pub fn write(model: &dyn RowModel) -> Value {
    let name = ("model".to_owned(), model.row().name.into());
    let settings = model.settings().into_iter().map(|(key, value)| (key.to_owned(), value));
    Value::Object(std::iter::once(name).chain(settings).collect())
}

/// The model of a name and settings, or what is wrong with them.
pub fn read(value: &Value) -> Result<Arc<dyn RowModel>, String> {
    let value = of_layout_1(value).unwrap_or_else(|| value.clone());
    let mut settings = value.as_object().cloned().ok_or("a model with its settings is expected")?;
    // no setting of `[target]`: a formula says it
    let (groups, lacking) = (settings.remove(GROUPS), settings.remove(LACKING));
    let line = |(key, value): (&String, &Value)| format!("{key} = {}\n", inline(value));
    let text: String = settings.iter().map(line).collect();
    let model = from_settings(&text).map_err(|e| format!("{}: {}", e.field, e.problem))?;
    let model = match groups {
        Some(Value::String(name)) => with_groups(&model, GroupBy::of(&name).into())?,
        Some(other) => {
            let term: GroupTerm = serde_json::from_value(other).map_err(|e| e.to_string())?;
            with_groups(&model, term)?
        }
        None => model,
    };
    match lacking {
        Some(lacking) => {
            let terms = serde_json::from_value(lacking).map_err(|e| e.to_string())?;
            with_missing(&model, terms)
        }
        None => Ok(model),
    }
}

/// A value in TOML, on one line. Numbers, words and truth values are written as in JSON.
fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{key} = {}", inline(value));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// What encodings of layout 1 said instead: what is predicted.
fn of_layout_1(value: &Value) -> Option<Value> {
    if value == "Probability" {
        return Some(json!({ "model": "logistic" }));
    }
    if let Some(number) = value.get("Number") {
        let variance = number.get("noise_variance")?;
        return Some(json!({ "model": "linear", "noise_variance": variance }));
    }
    let classes = value.get("Classes")?;
    Some(json!({ "model": "softmax", "classes": classes }))
}

/// A model as a field of what is kept.
#[derive(Clone, Debug)]
pub struct Kept(pub Arc<dyn RowModel>);

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write(&*self.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(&Value::deserialize(from)?).map(Kept).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_layout_1_said_is_understood() {
        let read = |text: &str| read(&serde_json::from_str(text).unwrap()).unwrap().statement();
        assert_eq!(read("\"Probability\""), "logistic regression");
        let linear = read(r#"{"Number": {"noise_variance": 2.5}}"#);
        assert_eq!(linear, "linear regression with noise of variance 2.5");
        let softmax = read(r#"{"Classes": 3}"#);
        assert_eq!(softmax, "softmax regression with 3 classes in 64-bit sums");
    }

    #[test]
    fn nonsense_is_refused_with_the_field() {
        let refused = |text: &str| read(&serde_json::from_str(text).unwrap()).unwrap_err();
        assert_eq!(refused("3"), "a model with its settings is expected");
        assert!(refused(r#"{"model": "linaer"}"#).starts_with("target.model: \"linaer\""));
        assert!(refused(r#"{"model": "ordinal"}"#).starts_with("target.levels"));
        assert!(refused(r#"{"model": "gaussian"}"#).contains("reads no rows"));
    }
}
