//! Read a target whose model a program brings: who takes part, and what the model is called.

use super::reader::{ConfigError, Section, Value};
use super::target::same_name;
use super::{FieldLocation, ModelConfig, optional, place};

/// A model that the program which reads the config brings, or every site that joins its run.
#[derive(Clone, Debug)]
pub struct External {
    /// What the model is called, if the config says so: every site must say the same.
    pub name: Option<String>,
    /// The clients' names, and where each stands; empty where the program says who they are.
    pub clients: Vec<(String, FieldLocation)>,
    /// Where the table stands.
    pub place: FieldLocation,
}

pub(super) fn read(
    section: &Section<'_>,
    clients: Option<Value<'_>>,
) -> Result<ModelConfig, ConfigError> {
    let name = optional(section.get("model_name"), |v| Ok(v.text("a name")?.to_owned()))?;
    let mut known: Vec<(String, FieldLocation)> = Vec::new();
    let list = clients.map(|v| v.list("a list of [[client]] tables")).transpose()?;
    for (k, value) in list.unwrap_or_default().iter().enumerate() {
        let section = value.section()?;
        let name = optional(section.get("name"), |v| v.text("a name"))?
            .map_or_else(|| format!("client {}", k + 1), str::to_owned);
        section.finish()?;
        if let Some(first) = known.iter().position(|(other, _)| *other == name) {
            return Err(same_name(&section, &name, first));
        }
        known.push((name, place(&section)));
    }
    Ok(ModelConfig::External(External { name, clients: known, place: place(section) }))
}
