//! Read an experiment's config: where it stands in the paper, its setting, and its sizes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use consilience_engine::config::DeviceChoice;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::experiment::Trouble;

/// How large a reproduction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Seconds: the form that the tests run.
    Tiny,
    /// A minute or so on two cores.
    Quick,
    /// The paper's own size where that ends within an hour on two cores, else the largest that
    /// does.
    Hour,
    /// The paper's own size.
    Full,
}

impl Size {
    /// All of them.
    pub const ALL: [Size; 4] = [Size::Tiny, Size::Quick, Size::Hour, Size::Full];

    /// Its name in configs and folders.
    pub fn name(self) -> &'static str {
        match self {
            Size::Tiny => "tiny",
            Size::Quick => "quick",
            Size::Hour => "hour",
            Size::Full => "full",
        }
    }
}

/// An experiment's config file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Its id.
    pub id: String,
    /// Where it stands in the paper.
    pub place: String,
    /// What the paper claims with it, in one line.
    pub says: String,
    /// Why it cannot be run yet, if so.
    pub later: Option<String>,
    /// The data sets that it needs from the data folder.
    #[serde(default)]
    pub data: Vec<String>,
    /// The seed of all its random numbers.
    #[serde(default)]
    pub seed: u64,
    /// About how many minutes each size takes on two cores.
    #[serde(default)]
    pub minutes: BTreeMap<Size, f64>,
    /// The paper's numbers, by the names that ours have.
    #[serde(default)]
    pub paper: BTreeMap<String, f64>,
    /// The setting that all sizes share.
    #[serde(default)]
    setting: toml::Table,
    /// What each size changes; a size without a table is the next larger one.
    #[serde(default)]
    sizes: BTreeMap<Size, toml::Table>,
}

impl Config {
    /// Read a config.
    pub fn read(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// Read a config that says what it has beside, or in place of, what several share.
    pub fn read_over(shared: &str, text: &str) -> Result<Config, String> {
        let table = |text: &str| text.parse::<toml::Table>().map_err(|error| error.to_string());
        let mut whole = table(shared)?;
        lay_over(&mut whole, &table(text)?);
        whole.try_into().map_err(|error: toml::de::Error| error.to_string())
    }

    /// What a size changes; and whether that is the paper's own size.
    fn overlay(&self, size: Size) -> (Option<&toml::Table>, bool) {
        let found = self.sizes.range(size..).next();
        (found.map(|(_, table)| table), found.is_none_or(|(size, _)| *size == Size::Full))
    }

    fn setting(&self, size: Size) -> toml::Table {
        let mut setting = self.setting.clone();
        if let (Some(changes), _) = self.overlay(size) {
            lay_over(&mut setting, changes);
        }
        setting
    }

    /// The study of one size.
    pub fn study(&self, paper: &str, size: Size) -> Study {
        let (setting, full) = (self.setting(size), self.setting(Size::Full));
        let smaller: Vec<String> = setting
            .iter()
            .filter(|(key, ours)| full.get(*key) != Some(ours))
            .map(|(key, ours)| match full.get(key) {
                Some(papers) if brief(ours) && brief(papers) => {
                    format!("{} {ours} (full size: {papers})", key.replace('_', " "))
                }
                _ => format!("{} changed", key.replace('_', " ")),
            })
            .collect();
        let papers_own = self.overlay(size).1;
        Study {
            id: self.id.clone(),
            paper: paper.into(),
            seed: self.seed,
            size,
            papers_own,
            smaller,
            setting,
            published: false,
            data: None,
            device: DeviceChoice::Cpu,
        }
    }
}

/// Change a table: tables within it entry by entry, anything else as a whole.
fn lay_over(table: &mut toml::Table, changes: &toml::Table) {
    for (key, change) in changes {
        match (table.get_mut(key), change) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(changes)) => {
                lay_over(inner, changes);
            }
            _ => {
                table.insert(key.clone(), change.clone());
            }
        }
    }
}

/// Whether a value can be read in a sentence.
fn brief(value: &toml::Value) -> bool {
    !value.is_table() && !value.is_array()
}

/// An experiment at one size.
#[derive(Clone, Debug)]
pub struct Study {
    /// The experiment.
    pub id: String,
    /// The paper's key.
    pub paper: String,
    /// The seed of all its random numbers.
    pub seed: u64,
    /// How large it is.
    pub size: Size,
    /// Whether this is the paper's own size.
    pub papers_own: bool,
    /// In what the setting is not that of the full size, in words.
    pub smaller: Vec<String>,
    /// The setting.
    pub setting: toml::Table,
    /// Whether what the authors' program did is to be shown, too.
    pub published: bool,
    /// Where data sets lie.
    pub data: Option<PathBuf>,
    /// What computes where the experiment has a use for a GPU; numbers do not depend on it.
    pub device: DeviceChoice,
}

impl Study {
    /// The setting as the experiment's own type; fields that it does not know are refused.
    pub fn setting<S: DeserializeOwned>(&self) -> Result<S, Trouble> {
        self.setting.clone().try_into().map_err(|error: toml::de::Error| Trouble::Setting {
            paper: self.paper.clone(),
            id: self.id.clone(),
            problem: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        id = "toy"
        place = "Figure 1"
        says = "it works"
        seed = 3
        minutes = { quick = 0.5, full = 600 }
        [paper]
        "mse" = 1.5
        [setting]
        runs = 30
        clients = 20
        [sizes.quick]
        runs = 4
        [sizes.hour]
        runs = 10
    "#;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Setting {
        runs: usize,
        clients: usize,
    }

    #[test]
    fn sizes_lie_over_the_setting() {
        let config = Config::read(TEXT).unwrap();
        let runs = |size| {
            let study = config.study("qlsd", size);
            (study.setting::<Setting>().unwrap().runs, study.papers_own)
        };
        assert_eq!(Size::ALL.map(runs), [(4, false), (4, false), (10, false), (30, true)]);
        assert_eq!(config.study("qlsd", Size::Hour).smaller, ["runs 10 (full size: 30)"]);
        assert!(config.study("qlsd", Size::Full).smaller.is_empty());
    }

    #[test]
    fn what_is_shared_is_changed_entry_by_entry() {
        let shared = "[setting]\nruns = 3\nrow.a = { step = 1, batch = 8 }\nrow.b = { step = 2 }\n\
            [sizes.quick]\nrow.a.step = 7\n";
        let own = "id = \"t\"\nplace = \"p\"\nsays = \"s\"\n[setting]\nrow.a.batch = 4\n\
            [sizes.quick]\nruns = 1\n";
        let config = Config::read_over(shared, own).unwrap();
        let setting = |size| config.study("qlsd", size).setting;
        let full = "runs = 3\nrow.a = { step = 1, batch = 4 }\nrow.b = { step = 2 }";
        assert_eq!(setting(Size::Full), full.parse().unwrap());
        let quick = "runs = 1\nrow.a = { step = 7, batch = 4 }\nrow.b = { step = 2 }";
        assert_eq!(setting(Size::Quick), quick.parse().unwrap());
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(Config::read(&TEXT.replace("seed", "sead")).unwrap_err().contains("sead"));
        let config = Config::read(&TEXT.replace("clients", "klients")).unwrap();
        let error = config.study("qlsd", Size::Full).setting::<Setting>().unwrap_err().to_string();
        assert!(error.contains("papers/qlsd/toy.toml") && error.contains("klients"), "{error}");
    }
}
