//! Take a config from Python: as text, or as the JSON of a dictionary. It crosses the border once,
//! and the engine's own parser complains about it.

use std::path::PathBuf;

use consilience_engine::config::{Config, Source};
use consilience_engine::data::memory::Tables;
use pyo3::prelude::*;

use crate::errors::{Failure, Raised};

/// A config as Python states it.
#[derive(Clone, Debug, FromPyObject)]
pub struct Stated {
    /// TOML, or JSON of a dictionary.
    text: String,
    /// Whether it is JSON.
    json: bool,
    /// What complaints call it.
    file: String,
    /// What its files are relative to.
    folder: PathBuf,
}

impl Stated {
    /// Whether a person wrote the text, so that its lines mean something to them.
    pub fn written(&self) -> bool {
        !self.json
    }

    /// Check it. Clients of these names have their rows in memory.
    pub fn parse(self, tables: &Tables) -> Result<Config, Failure> {
        let written = self.written();
        let text = if self.json {
            let wrong = |e: serde_json::Error| {
                Failure::new(Raised::Config, format!("the config cannot be written as TOML: {e}"))
            };
            serde_json::from_str::<toml::Table>(&self.text).map_err(wrong)?.to_string()
        } else {
            self.text
        };
        let source = Source { file: self.file, folder: self.folder, text };
        Config::parse_with(source, tables)
            .map_err(|e| Failure::complaint(Raised::Config, e, written))
    }
}
