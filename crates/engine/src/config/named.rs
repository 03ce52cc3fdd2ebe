//! Read `[data]` with a name: a data set of the catalogue, dealt to clients.

use std::path::PathBuf;
use std::sync::Arc;

use toml::de::DeTable;

use super::reader::{ConfigError, Section, Value};
use super::{
    FieldLocation, ModelConfig, PlacementConfig, PriorConfig, Source, TargetConfig, optional,
    place,
    target::{read_intercept, read_prior},
};
use crate::data::catalogue;
use crate::data::partition::Scheme;
use crate::models::{self, Explains, MODELS, ModelRow, RowModel, Stated};
use crate::suggest::suggest;

/// A data set of the catalogue and how it is dealt.
#[derive(Clone, Debug)]
pub struct NamedData {
    /// Its name.
    pub name: String,
    /// How many clients; the groups of a natural scheme if it is not said.
    pub clients: Option<usize>,
    /// How rows are dealt.
    pub scheme: Scheme,
    /// The data folder; else the environment names it.
    pub folder: Option<PathBuf>,
    /// A random subset of so many rows.
    pub rows: Option<usize>,
    /// Whether columns are divided by their greatest absolute value.
    pub scale: bool,
    /// So many of the data set's own test rows are held out.
    pub test: Option<usize>,
    /// Another data set, of whose rows predictions should be uncertain, and how many test rows it
    /// has.
    pub elsewhere: Option<(String, usize)>,
    /// A model that explains its classes.
    pub kind: Arc<dyn RowModel>,
    /// Whether a column of ones is put first.
    pub intercept: bool,
    /// Where the table stands.
    pub place: FieldLocation,
}

/// The target of a config whose `[data]` has a name.
pub(super) fn read_target(
    top: &Section<'_>,
    section: &Section<'_>,
    source: &Source,
) -> Result<TargetConfig, ConfigError> {
    if top.get("client").is_some() {
        return Err(top.error(
            "client",
            "there are clients and a data set",
            "remove either [data] or the [[client]] tables",
        ));
    }
    let name = section.need("name", "name a data set, e.g. name = \"a9a\"")?;
    let word = name.text("the name of a data set")?;
    let known = || catalogue::ENTRIES.iter().map(|entry| entry.name);
    let entry = catalogue::ENTRIES.iter().find(|entry| entry.name == word);
    let entry = entry.ok_or_else(|| {
        name.error(format!("there is no data set \"{word}\""), suggest(word, known()))
    })?;
    if section.get("builtin").is_some() {
        return Err(section.error("builtin", "a name is given too", "give one of the two"));
    }
    let clients = optional(section.get("clients"), |v| v.whole(1))?.map(|n| n as usize);
    let scheme = optional(section.get("scheme"), |v| {
        let text = v.text("a scheme, such as \"iid\"")?;
        text.parse::<Scheme>()
            .map_err(|e| v.error(e.to_string(), "see `consilience data split --help`"))
    })?;
    let scheme = scheme.unwrap_or(Scheme::Iid);
    if clients.is_none() && !matches!(scheme, Scheme::Natural(_)) {
        return Err(section.error(
            "clients",
            "it is not set",
            "say how many clients there are, e.g. clients = 20",
        ));
    }
    let folder = optional(section.get("folder"), |v| Ok(source.folder.join(v.text("a folder")?)))?;
    let rows = optional(section.get("rows"), |v| v.whole(1))?.map(|n| n as usize);
    let scale = optional(section.get("scale"), |v| v.choice(&[("max", true), ("none", false)]))?
        .unwrap_or(true);
    let test = optional(section.get("test"), |v| {
        let (rows, own) = (v.whole(1)? as usize, entry.test.as_ref().map_or(0, |part| part.rows));
        if rows > own {
            return Err(v.error(
                format!("\"{word}\" has {own} test rows of its own"),
                if own == 0 { "leave it out".into() } else { format!("use {own} or fewer") },
            ));
        }
        Ok(rows)
    })?;
    let elsewhere = optional(section.get("elsewhere"), |v| read_elsewhere(v, entry))?;
    if elsewhere.is_some() && test.is_none() {
        return Err(section.error(
            "elsewhere",
            "predictions of its rows are compared with those of rows held out, and there are none",
            "say how many of the data set's own test rows are held out, e.g. test = 1000",
        ));
    }
    section.finish()?;
    let prior = || (PriorConfig::Gaussian(vec![6.25]), PlacementConfig::Default);
    let mut prior_place = place(section);
    let (temperature, (prior, placement), kind, intercept) = match top.get("target") {
        None => {
            let nothing = DeTable::new();
            let target = Section::new(section.document, "target", section.span.clone(), &nothing);
            (1.0, prior(), model(&name, entry, None, &target)?, true)
        }
        Some(value) => {
            let target = value.section()?;
            let temperature = optional(target.get("temperature"), Value::positive)?.unwrap_or(1.0);
            prior_place = target.get("prior").as_ref().map_or(prior_place, Value::place);
            let prior =
                target.get("prior").map_or_else(|| Ok(prior()), |p| read_prior(&p.section()?))?;
            let kind = model(&name, entry, target.get("model"), &target)?;
            let intercept = read_intercept(&target, &*kind)?;
            target.finish()?;
            (temperature, prior, kind, intercept)
        }
    };
    let named = NamedData {
        name: word.into(),
        clients,
        scheme,
        folder,
        rows,
        scale,
        test,
        elsewhere,
        kind,
        intercept,
        place: place(section),
    };
    Ok(TargetConfig {
        model: ModelConfig::Named(named),
        temperature,
        prior,
        placement,
        prior_place,
        coding: None,
    })
}

/// Another data set whose rows are as wide, and how many test rows it has.
fn read_elsewhere(
    value: &Value<'_>,
    entry: &catalogue::Entry,
) -> Result<(String, usize), ConfigError> {
    let word = value.text("the name of a data set")?;
    let fits = |other: &&catalogue::Entry| {
        other.test.is_some() && other.columns == entry.columns && other.name != entry.name
    };
    let known = || catalogue::ENTRIES.iter().filter(fits).map(|other| other.name);
    let other = catalogue::ENTRIES.iter().find(|other| other.name == word);
    match other {
        None => {
            Err(value.error(format!("there is no data set \"{word}\""), suggest(word, known())))
        }
        Some(other) => match (&other.test, fits(&other)) {
            (Some(part), true) => Ok((word.into(), part.rows)),
            _ => {
                let names: Vec<&str> = known().collect();
                let fix = match names.is_empty() {
                    true => "leave it out".to_owned(),
                    false => format!("use one of: {}", names.join(", ")),
                };
                let problem = format!(
                    "\"{word}\" is no other data set with test rows of {} columns",
                    entry.columns
                );
                Err(value.error(problem, fix))
            }
        },
    }
}

/// The model that fits the classes: as stated, else the first that explains so many.
fn model(
    name: &Value<'_>,
    entry: &catalogue::Entry,
    stated: Option<Value<'_>>,
    target: &Section<'_>,
) -> Result<Arc<dyn RowModel>, ConfigError> {
    let classes = entry.classes.len();
    let fits = |row: &ModelRow| row.reader().is_some() && row.explains.fits(classes);
    let usual = MODELS.iter().copied().find(|row| fits(row));
    let Some(usual) = usual else {
        return Err(name.error(
            format!("\"{}\" has no classes", entry.name),
            "use a data set with classes: see `consilience data list`",
        ));
    };
    let row = match stated {
        None => usual,
        Some(value) => {
            let explains =
                |row: &ModelRow| matches!(row.explains, Explains::TwoClasses | Explains::Classes);
            let row = value.choice(&models::choices(explains))?;
            if !fits(row) {
                return Err(value.error(
                    format!("\"{}\" has {classes} classes, and {} two", entry.name, row.title),
                    format!("use model = \"{}\"", usual.name),
                ));
            }
            row
        }
    };
    let Some(read) = row.reader() else {
        return Err(name.error("this model explains no classes", "leave target.model out"));
    };
    read(&Stated::new(target).with_classes(classes).with_image(entry.image()))
}
