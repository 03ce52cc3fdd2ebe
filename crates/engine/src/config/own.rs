//! Read targets on data of your own: files in any format, one a site or one to be dealt, with or
//! without a formula; and generated data.

use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use super::coding::read_coding;
use super::reader::{ConfigError, NOT_SET, Section, Value};
use super::target::{read_intercept, read_prior, same_file, same_name};
use super::{
    FieldLocation, ModelConfig, PlacementConfig, PriorConfig, Source, TargetConfig, boolean,
    optional, place,
};
use crate::data::formats::{DataFile, FORMATS, Format};
use crate::data::formula::{self, FormulaError};
use crate::data::hazards::{ask_for_model, two_values};
use crate::data::memory::Tables;
use crate::data::partition::{Generator, Scheme, synthetic};
use crate::data::{Missing, Schema, Table, derived};
use crate::models::{self, Explains, ModelRow, RowModel, Stated, with_groups, with_missing};

/// Data of your own and what is modelled.
#[derive(Clone, Debug)]
pub struct OwnData {
    /// Where the rows come from.
    pub source: OwnSource,
    /// `response ~ terms`: which columns explain what.
    pub formula: Option<String>,
    /// The same as it is written, with effects of groups.
    pub written: Option<String>,
    /// A model with a response.
    pub kind: Arc<dyn RowModel>,
    /// Whether a column of ones is put first; a formula says so itself.
    pub intercept: bool,
    /// The values of the labels, in the order of the classes.
    pub labels: Option<Vec<f64>>,
    /// Whether columns are divided by their greatest absolute value.
    pub scale: bool,
    /// The share of the rows that is held out, to test on.
    pub test: Option<f64>,
    /// The seed of everything random about the data, if not the config's own.
    pub seed: Option<u64>,
    /// Whether the config names the model, or the formula compares; else it is linear regression
    /// since nothing says otherwise.
    pub stated: bool,
    /// Whether numbers of a formula are standardised; else they enter as they are.
    pub standardise: bool,
    /// What happens where a value is missing that a formula's term needs, unless that is `mi( )`.
    pub missing: Missing,
    /// Where the table stands.
    pub place: FieldLocation,
    /// Where the formula stands.
    pub formula_place: Option<FieldLocation>,
    /// Where the files are named, in their order.
    pub file_places: Vec<FieldLocation>,
}

/// Where rows come from.
#[derive(Clone, Debug)]
pub enum OwnSource {
    /// One file, dealt to clients.
    File {
        /// The file.
        file: DataFile,
        /// How many clients; the groups of a natural scheme if it is not said.
        clients: Option<usize>,
        /// How rows are dealt.
        scheme: Scheme,
        /// A random subset of so many rows.
        rows: Option<usize>,
    },
    /// One file for each client.
    Sites(Vec<(String, DataFile)>),
    /// SYNTHETIC(alpha, beta).
    Synthetic(synthetic::Settings),
}

impl OwnData {
    /// What a client is called, where each has a file of its own.
    pub(super) fn site(&self, index: usize) -> Option<&str> {
        let OwnSource::Sites(sites) = &self.source else { return None };
        sites.get(index).map(|(name, _)| name.as_str())
    }

    /// How many clients there are, where that is known before the data is read.
    pub fn clients(&self) -> Option<usize> {
        match &self.source {
            OwnSource::File { clients, .. } => *clients,
            OwnSource::Sites(sites) => Some(sites.len()),
            OwnSource::Synthetic(settings) => Some(settings.clients),
        }
    }
}

/// A toy target that is generated.
#[derive(Clone, Debug)]
pub struct Generated {
    /// What is generated.
    pub what: Generator,
    /// How many clients.
    pub clients: usize,
    /// How many dimensions.
    pub dim: usize,
    /// The seed, if not the config's own.
    pub seed: Option<u64>,
    /// Where the table stands.
    pub place: FieldLocation,
}

/// Whether a config means data of its own: it says so in `[data]`, has a formula, or has clients'
/// files that are not plain numbers.
pub(super) fn is_meant(top: &Section<'_>, data: Option<&Section<'_>>) -> Result<bool, ConfigError> {
    let clients = top.get("client").filter(|v| v.value.is_array());
    if let Some(data) = data {
        let named = data.get("builtin").is_some() || data.get("name").is_some();
        return Ok(data.get("file").is_some()
            || data.get("generate").is_some()
            || (clients.is_some() && !named));
    }
    if let Some(target) = top.get("target").filter(|v| v.value.is_table())
        && target.section()?.get("formula").is_some()
    {
        return Ok(true);
    }
    let unusual = |v: &Value<'_>| -> Result<bool, ConfigError> {
        if !v.value.is_table() {
            return Ok(false);
        }
        let section = v.section()?;
        let numbers = |file: Value<'_>| {
            file.value.as_str().is_none_or(|name| {
                DataFile::new(name).format().is_ok_and(|f| f != Format::Csv)
                    || name.ends_with(".gz")
                    || name.ends_with(".xz")
            })
        };
        Ok(section.get("file").is_some_and(|file| file.value.as_str().is_some() && numbers(file)))
    };
    clients.map_or(Ok(false), |clients| {
        clients
            .list("a list of [[client]] tables")?
            .iter()
            .try_fold(false, |any, v| Ok(any || unusual(v)?))
    })
}

/// The target of such a config.
pub(super) fn read_target(
    top: &Section<'_>,
    data: Option<&Section<'_>>,
    source: &Source,
    tables: &Tables,
) -> Result<TargetConfig, ConfigError> {
    let target = top.get("target").map(|value| value.section()).transpose()?;
    let target = target.as_ref();
    let clients = top.get("client");
    if let (Some(data), Some(_)) = (data, &clients)
        && (data.get("file").is_some() || data.get("generate").is_some())
    {
        return Err(top.error(
            "client",
            "there are clients and a data set",
            "remove either the [[client]] tables or file in [data]",
        ));
    }
    let get = |key: &'static str| data.and_then(|data| data.get(key));
    let here = data.or(target).map_or(FieldLocation { line: 1, field: "target".into() }, place);
    let seed = optional(get("seed"), |v| v.whole(0))?;
    let generator = optional(get("generate"), |v| {
        let text = v.text("what is generated, such as \"synthetic(1, 1)\"")?;
        text.parse::<Generator>().map_err(|e| v.error(e.to_string(), "see `consilience fields`"))
    })?;
    let whole = |key: &'static str| {
        Ok::<_, ConfigError>(optional(get(key), |v| v.whole(1))?.map(|n| n as usize))
    };
    let (model, usual_prior) = match generator {
        Some(what @ (Generator::QlsdToy | Generator::FaldToy | Generator::FaLdToy(_))) => {
            let (clients, dim) = what.usual_size();
            let dim = if matches!(what, Generator::FaLdToy(_)) {
                dim
            } else {
                whole("columns")?.unwrap_or(dim)
            };
            let toy = Generated {
                what,
                clients: whole("clients")?.unwrap_or(clients),
                dim,
                seed,
                place: here.clone(),
            };
            (ModelConfig::Generated(toy), PriorConfig::Flat)
        }
        generator => {
            let scale = optional(get("scale"), |v| v.choice(&[("max", true), ("none", false)]))?
                .unwrap_or(true);
            let test = optional(get("test"), |v| {
                let share = v.fraction(false)?;
                if share < 1.0 {
                    Ok(share)
                } else {
                    Err(v
                        .error("nothing is left to learn from", "use a share below 1, such as 0.2"))
                }
            })?;
            let labels = optional(get("labels"), Value::numbers)?;
            let standardise = target.and_then(|target| target.get("standardise"));
            let standardise = optional(standardise, boolean)?.unwrap_or(true);
            let formula = target.and_then(|target| target.get("formula"));
            let formula_place = formula.as_ref().map(Value::place);
            let formula = optional(formula, |v| {
                Ok(v.text("a formula, such as \"ill ~ age + sex\"")?.to_owned())
            })?;
            let written = formula.clone();
            let (formula, group) = match formula {
                Some(whole) => {
                    let (rest, by) = formula::without_groups(&whole).map_err(|e| {
                        let here = formula_place.as_ref().unwrap_or(&here);
                        source.complain(here, e.to_string(), "correct target.formula")
                    })?;
                    (Some(rest), by)
                }
                None => (None, None),
            };
            let (formula, lacking) = match formula {
                Some(whole) => {
                    let (first, lacking) = formula::integrated_first(&whole);
                    (Some(first), lacking)
                }
                None => (None, None),
            };
            let missing = optional(target.and_then(|target| target.get("missing")), |v| {
                v.choice(&[
                    ("mark", Missing::Indicate { above: formula::MARK_ABOVE }),
                    ("impute", Missing::Impute),
                    ("refuse", Missing::Refuse),
                ])
            })?
            .unwrap_or(Missing::Indicate { above: formula::MARK_ABOVE });
            let mut generated_classes = 0;
            let (kind, intercept) = match (&generator, target) {
                (Some(Generator::Synthetic(..)), target) => {
                    let classes = target.and_then(|target| target.get("classes"));
                    let classes = optional(classes, |v| v.whole(2))?.unwrap_or(10) as usize;
                    generated_classes = classes;
                    {
                        let kind = of_generated_classes(top, target, classes)?;
                        let ones = read_own_intercept(target, &*kind)?;
                        (kind, ones)
                    }
                }
                (_, Some(target)) => {
                    let model =
                        read_model(target, formula.as_deref()).map_err(|error| match &formula {
                            // a setting is missing where perhaps another model was meant
                            Some(formula) if error.problem == NOT_SET => {
                                let files =
                                    read_files(data, clients.clone(), source, tables, true).ok();
                                let asked = files.and_then(|(files, _)| {
                                    unfit_formula(&files, formula, &formula_place)
                                });
                                asked.map_or(error, |(place, (problem, fix))| {
                                    source.complain(&place, problem, fix)
                                })
                            }
                            _ => error,
                        })?;
                    {
                        let ones = formula.is_some() || read_intercept(target, &*model)?;
                        let model = match group {
                            Some(by) => with_groups(&model, by).map_err(|problem| {
                                let here = formula_place.as_ref().unwrap_or(&here);
                                let fix = "leave (1 | group) out, or take another model, e.g. \
                                    model = \"logistic\"";
                                source.complain(here, problem, fix)
                            })?,
                            None => model,
                        };
                        let model = match lacking {
                            Some(terms) => {
                                let here = formula_place.as_ref().unwrap_or(&here);
                                let parts =
                                    formula::adjustments(formula.as_deref().unwrap_or_default());
                                let weights =
                                    parts.into_iter().find(|part| part.starts_with("weights"));
                                let with_missing = with_missing(&model, terms);
                                let problem = match (weights, standardise, with_missing) {
                                    (None, true, Ok(model)) => Ok(model),
                                    (Some(part), ..) => {
                                        Err(format!("mi( ) and `{part}` do not go together"))
                                    }
                                    (_, false, _) => {
                                        Err("the law that mi( ) gives a column is of \
                                        standardised ones, and standardise = false"
                                            .into())
                                    }
                                    (.., Err(problem)) => Err(problem),
                                };
                                problem.map_err(|problem| {
                                    let fix = "leave one out: without mi( ) what is missing is \
                                        imputed";
                                    source.complain(here, problem, fix)
                                })?
                            }
                            None => model,
                        };
                        let written = derived::write_out(formula.as_deref().unwrap_or(""));
                        if written.trim_start().starts_with("Surv(") && !model.censors() {
                            // else times that were censored would be numbers below 0
                            let here = formula_place.as_ref().unwrap_or(&here);
                            let problem = format!(
                                "Surv(...) ~ in the formula: {} explains no times that may be \
                                 censored",
                                model.row().title
                            );
                            let fix = "use model = \"weibull\" or model = \"cox\"";
                            return Err(source.complain(here, problem, fix));
                        }
                        if let (Some(part), None) =
                            (formula::adjustments(&written).first(), model.row_loss())
                        {
                            let here = formula_place.as_ref().unwrap_or(&here);
                            let problem = format!(
                                "`{part}` in the formula: {} takes no offsets and no weights",
                                model.row().title
                            );
                            let fix = "leave it out, or take another model, e.g. \
                                model = \"poisson\"";
                            return Err(source.complain(here, problem, fix));
                        }
                        (model, ones)
                    }
                }
                (_, None) => {
                    return Err(top.error(
                        "target",
                        "it is not set",
                        "add a table [target] with a model, e.g. model = \"logistic\"",
                    ));
                }
            };
            let (source, file_places) = match generator {
                Some(Generator::Synthetic(alpha, beta)) => {
                    let usual = synthetic::Settings::new(alpha, beta);
                    let (clients, dim) = (
                        whole("clients")?.unwrap_or(usual.clients),
                        whole("columns")?.unwrap_or(usual.dim),
                    );
                    (
                        OwnSource::Synthetic(synthetic::Settings {
                            clients,
                            dim,
                            classes: generated_classes,
                            ..usual
                        }),
                        Vec::new(),
                    )
                }
                _ => read_files(data, clients, source, tables, formula.is_some())?,
            };
            let stated = target.is_some_and(|target| target.get("model").is_some())
                || formula.as_deref().is_none_or(compares);
            let place = here.clone();
            let own = OwnData {
                source,
                formula,
                written,
                kind,
                intercept,
                labels,
                scale,
                test,
                seed,
                stated,
                standardise,
                missing,
                place,
                formula_place,
                file_places,
            };
            let usual = match own.kind.is_in_units() || own.kind.is_in_logs() {
                true => PriorConfig::Usual,
                false => PriorConfig::Gaussian(vec![6.25]),
            };
            (ModelConfig::Own(Box::new(own)), usual)
        }
    };
    let usual_prior =
        if data.is_none() && !matches!(&model, ModelConfig::Own(own) if own.formula.is_some()) {
            PriorConfig::Flat
        } else {
            usual_prior
        };
    let temperature =
        optional(target.and_then(|target| target.get("temperature")), Value::positive)?
            .unwrap_or(1.0);
    let prior = target.and_then(|target| target.get("prior"));
    let prior_place = prior.as_ref().map_or(here, Value::place);
    let (prior, placement) = match prior {
        Some(prior) => read_prior(&prior.section()?)?,
        None => (usual_prior, PlacementConfig::Default),
    };
    let coded = matches!(&model, ModelConfig::Own(own) if own.formula.is_some());
    let coding = match target.filter(|_| coded) {
        Some(target) => read_coding(target)?,
        None => None,
    };
    target.map_or(Ok(()), Section::finish)?;
    data.map_or(Ok(()), Section::finish)?;
    Ok(TargetConfig { model, temperature, prior, placement, prior_place, coding })
}

fn read_own_intercept(
    target: Option<&Section<'_>>,
    kind: &dyn RowModel,
) -> Result<bool, ConfigError> {
    let usual = kind.is_linear() && kind.takes_intercept();
    target.map_or(Ok(usual), |target| read_intercept(target, kind))
}

/// Whether the left side of a formula is a comparison.
fn compares(formula: &str) -> bool {
    formula.split('~').next().is_some_and(|left| left.contains('>') || left.contains("=="))
}

/// What is said of a formula that names what is no column or is not supported, or whose response
/// has two values and is compared with neither, and where.
fn unfit_formula(
    files: &OwnSource,
    formula: &str,
    at: &Option<FieldLocation>,
) -> Option<(FieldLocation, (String, String))> {
    let files: Vec<&DataFile> = match files {
        OwnSource::File { file, .. } => vec![file],
        OwnSource::Sites(sites) => sites.iter().map(|(_, file)| file).collect(),
        OwnSource::Synthetic(_) => return None,
    };
    let formula = &*derived::write_out(formula);
    let computed = |table: Table| derived::extend(&table, &formula::written(formula), |_| true);
    let tables = files
        .into_iter()
        .map(|file| file.table(None).ok().and_then(|table| computed(table).ok()))
        .collect::<Option<Vec<_>>>()?;
    let all = Schema::union(tables.iter().map(Table::specs));
    if let Err(error @ (FormulaError::NoColumn { .. } | FormulaError::Unsupported { .. })) =
        formula::parse(formula, &all)
    {
        return Some((
            at.clone()?,
            (error.to_string(), "correct it, or the files' columns".into()),
        ));
    }
    let response = *formula::written(formula).first()?;
    let columns = tables
        .iter()
        .map(|table| table.column(response).map(|(_, column)| column))
        .collect::<Option<Vec<_>>>()?;
    Some((at.clone()?, ask_for_model(formula, two_values(columns.into_iter())?)))
}

/// The model of generated rows with so many classes: as stated, else the first that explains any
/// number of them.
fn of_generated_classes(
    top: &Section<'_>,
    target: Option<&Section<'_>>,
    classes: usize,
) -> Result<Arc<dyn RowModel>, ConfigError> {
    let choices = models::choices(|row| row.explains == Explains::Classes);
    let stated = optional(target.and_then(|target| target.get("model")), |v| v.choice(&choices))?;
    let read = stated.or(choices.first().map(|(_, row)| *row)).and_then(ModelRow::reader);
    let nothing = DeTable::new();
    let empty = Section::new(top.document, "target", top.span.clone(), &nothing);
    match read {
        Some(read) => read(&Stated::new(target.unwrap_or(&empty)).with_classes(classes)),
        None => Err(top.error("target.model", "no model explains classes", "remove [data]")),
    }
}

/// The model as stated; a formula alone says by its left side which it is.
fn read_model(
    target: &Section<'_>,
    formula: Option<&str>,
) -> Result<Arc<dyn RowModel>, ConfigError> {
    let fits = |row: &ModelRow| row.reader().is_some() && (formula.is_none() || row.by_formula);
    let usual = formula.map(|formula| match compares(formula) {
        true => models::OF_COMPARISON,
        false => models::OF_VALUE,
    });
    let row = match (target.get("model"), usual) {
        (None, Some(usual)) => usual,
        (None, None) => {
            let fix = "name the likelihood, e.g. model = \"logistic\"";
            return Err(target.error("model", NOT_SET, fix));
        }
        (Some(value), _) => {
            let row = value.choice(&models::choices(|_| true))?;
            if !fits(row) {
                let names: Vec<String> =
                    models::choices(fits).iter().map(|(name, _)| format!("\"{name}\"")).collect();
                return Err(value.error(
                    "this model does not go with files of your own, or not with a formula",
                    format!("use one of {}", names.join(", ")),
                ));
            }
            row
        }
    };
    match row.reader() {
        Some(read) => read(&Stated::new(target)),
        None => Err(target.error("model", "this model has no response", "use another one")),
    }
}

/// One file to be dealt, or one for each client.
fn read_files(
    data: Option<&Section<'_>>,
    clients: Option<Value<'_>>,
    source: &Source,
    tables: &Tables,
    formula: bool,
) -> Result<(OwnSource, Vec<FieldLocation>), ConfigError> {
    let get = |key: &'static str| data.and_then(|data| data.get(key));
    let words: Vec<(&'static str, Format)> =
        FORMATS.iter().map(|(word, format, _)| (*word, *format)).collect();
    let format = optional(get("format"), |v| v.choice(&words))?;
    let columns = optional(get("columns"), |v| v.whole(1))?.map(|n| n as usize);
    let header = optional(get("header"), |v| {
        v.list("a list of names")?.iter().map(|name| Ok(name.text("a name")?.to_owned())).collect()
    })?;
    let read = |section: &Section<'_>, response: Option<String>| -> Result<DataFile, ConfigError> {
        let join =
            |v: &Value<'_>| Ok::<_, ConfigError>(source.folder.join(v.text("the name of a file")?));
        let own = section.get("response");
        if let (Some(response), true) = (&own, formula) {
            return Err(response.error("the formula names the response already", "remove it"));
        }
        let response =
            optional(own, |v| Ok(v.text("the name of a column")?.to_owned()))?.or(response);
        let client = section.get("name").and_then(|v| v.value.as_str()).unwrap_or_default();
        if let (Some(table), None) = (tables.get(client), section.get("file")) {
            return Ok(DataFile { memory: Some(table.clone()), response, ..DataFile::new(client) });
        }
        if section.get("file").is_none() && formula {
            let elsewhere = DataFile::new("");
            return Ok(DataFile { format, header: header.clone(), columns, ..elsewhere });
        }
        let name =
            section.need("file", "give the file with the rows, e.g. file = \"basel.csv\"")?;
        let label_file = optional(section.get("label_file"), join)?;
        let file = DataFile {
            path: join(&name)?,
            label_file,
            format,
            response,
            columns,
            header: header.clone(),
            memory: None,
        };
        let known = file.format().map_err(|e| {
            name.error(e.to_string(), "rename the file, or state format = \"csv\" in [data]")
        })?;
        if formula && !matches!(known, Format::Csv | Format::Parquet) {
            return Err(name.error(
                "a formula needs columns with names, which this format has not",
                "use a CSV or Parquet file",
            ));
        }
        if known == Format::Idx && file.label_file.is_none() {
            return Err(section.error(
                "label_file",
                "it is not set",
                "idx files have their labels in a file of their own: name it",
            ));
        }
        Ok(file)
    };
    let Some(data) = data.filter(|data| data.get("file").is_some()) else {
        let shared = optional(get("response"), |v| Ok(v.text("the name of a column")?.to_owned()))?;
        let fix = "add one [[client]] table for each client, or file = \"all.csv\" to [data]";
        let Some(list) = clients else {
            return Err(ConfigError {
                file: source.file.clone(),
                line: 1,
                field: "client".into(),
                problem: "there are no clients".into(),
                fix: fix.into(),
            });
        };
        let (mut sites, mut places): (Vec<(String, DataFile)>, Vec<FieldLocation>) =
            (Vec::new(), Vec::new());
        for (k, value) in list.list("a list of [[client]] tables")?.iter().enumerate() {
            let section = value.section()?;
            let stem = |path: &Path| {
                path.file_name().map_or_else(String::new, |name| {
                    name.to_string_lossy().split('.').next().unwrap_or("").to_owned()
                })
            };
            let name = optional(section.get("name"), |v| v.text("a name"))?.map(str::to_owned);
            let file = read(&section, shared.clone())?;
            section.finish()?;
            let missing = || {
                let whole = place(&section);
                FieldLocation { field: format!("{}.file", whole.field), ..whole }
            };
            places.push(section.get("file").as_ref().map_or_else(missing, Value::place));
            let usual = Some(stem(&file.path))
                .filter(|stem| !stem.is_empty() && sites.iter().all(|(known, _)| known != stem));
            let name = name.or(usual).unwrap_or_else(|| format!("client {}", k + 1));
            if let Some(first) = sites.iter().position(|(known, _)| *known == name) {
                return Err(same_name(&section, &name, first));
            }
            let is_elsewhere = file.memory.is_some() || section.get("file").is_none();
            let same = sites.iter().position(|(_, known)| known.path == file.path);
            if let Some(first) = same.filter(|_| !is_elsewhere) {
                return Err(same_file(&section, first));
            }
            sites.push((name, file));
        }
        return Ok((OwnSource::Sites(sites), places));
    };
    let file = read(data, None)?;
    let places = data.get("file").as_ref().map(Value::place).into_iter().collect();
    let clients = optional(data.get("clients"), |v| v.whole(1))?.map(|n| n as usize);
    let scheme = optional(data.get("scheme"), |v| {
        let text = v.text("a scheme, such as \"iid\"")?;
        text.parse::<Scheme>()
            .map_err(|e| v.error(e.to_string(), "see `consilience data split --help`"))
    })?;
    let scheme = scheme.unwrap_or(Scheme::Iid);
    if clients.is_none() && !matches!(scheme, Scheme::Natural(_)) {
        return Err(data.error(
            "clients",
            "it is not set",
            "say how many clients there are, e.g. clients = 20",
        ));
    }
    let rows = optional(data.get("rows"), |v| v.whole(1))?.map(|n| n as usize);
    Ok((OwnSource::File { file, clients, scheme, rows }, places))
}
