//! Turn a TOML file into a checked config, or say what is wrong with it.

pub mod fields;
mod named;
mod reader;
mod resolved;

use std::path::{Path, PathBuf};

use consilience_core::compress::{Compressor, Precision, SpecError};
use consilience_core::sampler::registry::{self, Row, Settings};
use consilience_core::sampler::{Average, Batch, NoiseScale, Participation, Synchronise, Weighting};
use consilience_core::step::Schedule;
use toml::de::DeTable;

use crate::suggest::suggest;
pub use named::NamedData;
pub use reader::ConfigError;
use reader::{Document, Section, Value};

/// Everything that a config says, checked as far as that is possible without its data.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it came from: complaints cite it, and its files are relative to it.
    pub source: Source,
    /// The master seed.
    pub seed: u64,
    /// What is sampled.
    pub target: TargetConfig,
    /// How.
    pub sampler: SamplerConfig,
    /// How long.
    pub run: RunConfig,
    /// Where streamed draws go.
    pub draws: Option<PathBuf>,
}

/// A config's file and text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name.
    pub file: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Its text.
    pub text: String,
}

/// The target as stated.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The clients' potentials.
    pub model: ModelConfig,
    /// The temperature.
    pub temperature: f64,
    /// The prior.
    pub prior: PriorConfig,
    /// Who applies it.
    pub placement: PlacementConfig,
}

/// What the clients know.
#[derive(Clone, Debug)]
pub enum ModelConfig {
    /// A data set that comes with the program.
    Builtin(String),
    /// A data set of the catalogue, dealt to clients.
    Named(NamedData),
    /// Gaussian clients.
    Gaussian(Vec<GaussianClient>),
    /// Clients with rows.
    Rows {
        /// Which model.
        kind: RowsModel,
        /// Whether a column of ones is put first.
        intercept: bool,
        /// The clients.
        clients: Vec<RowsClient>,
    },
}

/// A model of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowsModel {
    /// Squared distances to the rows.
    Isotropic,
    /// Linear regression with a known noise variance.
    Linear {
        /// The variance.
        noise_variance: f64,
    },
    /// Logistic regression.
    Logistic,
    /// Softmax regression.
    Softmax {
        /// How many labels there are.
        classes: usize,
    },
}

/// One Gaussian client.
#[derive(Clone, Debug)]
pub struct GaussianClient {
    /// Its name.
    pub name: String,
    /// Its mean.
    pub mean: Vec<f64>,
    /// Its precision or covariance.
    pub matrix: Cells,
    /// Whether the matrix is a covariance.
    pub is_covariance: bool,
    /// Where it stands in the config.
    pub place: Place,
}

/// One client with rows.
#[derive(Clone, Debug)]
pub struct RowsClient {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub cells: Cells,
    /// The column that is the response.
    pub response: Option<String>,
    /// Where it stands in the config.
    pub place: Place,
}

/// A table of numbers.
#[derive(Clone, Debug)]
pub enum Cells {
    /// In the config: row-major, and how many columns.
    Inline(Vec<f64>, usize),
    /// In a CSV file.
    File(PathBuf),
}

/// A field's place in the config.
#[derive(Clone, Debug)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The field.
    pub field: String,
}

/// The prior as stated.
#[derive(Clone, Debug, PartialEq)]
pub enum PriorConfig {
    /// None.
    Flat,
    /// Normal, one variance for all parameters or one for each.
    Gaussian(Vec<f64>),
    /// Laplace with this scale.
    Laplace(f64),
}

/// Who applies the prior.
#[derive(Clone, Debug, PartialEq)]
pub enum PlacementConfig {
    /// The server in family A, the clients in family B.
    Default,
    /// The server.
    Server,
    /// The clients, equally or by these weights.
    Split(Option<Vec<f64>>),
}

/// The sampler as stated.
#[derive(Clone, Debug)]
pub struct SamplerConfig {
    /// Its row in the registry.
    pub row: &'static Row,
    /// The step, or `None`: to be found.
    pub step: Option<Schedule>,
    /// The other settings. Weights by rows are left open until the data is known.
    pub settings: Settings,
    /// Whether the clients' weights are proportional to their rows.
    pub weights_by_rows: bool,
    /// One participation probability for all, until the number of clients is known.
    pub participation_probability: Option<f64>,
    /// Whether chains move in coordinates in which the posterior is round.
    pub precondition: bool,
    /// Where the table stands.
    pub place: Place,
}

/// How long a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// How many chains.
    pub chains: usize,
    /// How many iterations each.
    pub iterations: u64,
    /// How many of them are not kept.
    pub burn_in: u64,
    /// Keep every so many draws.
    pub thin: u64,
    /// How many threads; 0: as many as there are cores.
    pub threads: usize,
    /// Where chains start.
    pub start: Start,
}

/// Where chains start.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// At 0.
    Zero,
    /// At the optimum.
    Optimum,
    /// Here.
    Point(Vec<f64>),
}

impl Config {
    /// Read and check a file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            file: file.clone(),
            line: 0,
            field: "the file".into(),
            problem: format!("it cannot be read: {error}"),
            fix: "check the path, or make a config with `consilience new run.toml`".into(),
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Config::parse(Source { file, folder, text })
    }

    /// Check a config's text.
    pub fn parse(source: Source) -> Result<Config, ConfigError> {
        let parsed = DeTable::parse(&source.text).map_err(|error| {
            let document = Document { file: &source.file, text: &source.text };
            let span = error.span().unwrap_or(0..0);
            document.error(&span, "TOML", error.message(), "see toml.io for the syntax; `consilience new` prints a config to start from")
        })?;
        let document = Document { file: &source.file, text: &source.text };
        let top = Section::new(document, "", parsed.span(), parsed.get_ref());
        let seed = optional(top.get("seed"), |v| v.whole(0))?.unwrap_or(1);
        let target = read_target(&top, &source)?;
        let clients = match &target.model {
            ModelConfig::Builtin(_) => None,
            ModelConfig::Named(named) => named.clients,
            ModelConfig::Gaussian(clients) => Some(clients.len()),
            ModelConfig::Rows { clients, .. } => Some(clients.len()),
        };
        let sampler = read_sampler(&top, clients)?;
        let run = read_run(&top)?;
        let draws = read_output(&top, &source)?;
        top.finish()?;
        drop(top);
        Ok(Config { seed, target, sampler, run, draws, source })
    }
}

impl Source {
    /// A complaint that only the data could bring to light.
    pub fn complain(&self, place: &Place, problem: impl Into<String>, fix: impl Into<String>) -> ConfigError {
        ConfigError { file: self.file.clone(), line: place.line, field: place.field.clone(), problem: problem.into(), fix: fix.into() }
    }
}

fn optional<'a, T>(value: Option<Value<'a>>, read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>) -> Result<Option<T>, ConfigError> {
    value.map(|v| read(&v)).transpose()
}

fn place(section: &Section<'_>) -> Place {
    let at = section.error("", "", "");
    Place { line: at.line, field: section.path.clone() }
}

fn boolean(value: &Value<'_>) -> Result<bool, ConfigError> {
    value.value.as_bool().ok_or_else(|| value.error(format!("{} is neither true nor false", value.written()), "true or false is expected"))
}

#[derive(Clone, Copy, PartialEq)]
enum ModelName {
    Gaussian,
    Isotropic,
    Linear,
    Logistic,
    Softmax,
}

const MODELS: &[(&str, ModelName)] = &[
    ("gaussian", ModelName::Gaussian),
    ("isotropic", ModelName::Isotropic),
    ("linear", ModelName::Linear),
    ("logistic", ModelName::Logistic),
    ("softmax", ModelName::Softmax),
];

fn read_target(top: &Section<'_>, source: &Source) -> Result<TargetConfig, ConfigError> {
    let data = top.get("data").map(|value| value.section()).transpose()?;
    if let Some(section) = data.as_ref().filter(|section| section.get("name").is_some()) {
        return named::read_target(top, section, source);
    }
    let builtin = match data {
        None => None,
        Some(section) => {
            let fix = "name a built-in data set, e.g. builtin = \"heart-disease\", or one of the catalogue, e.g. name = \"a9a\"";
            let name = section.need("builtin", fix)?;
            let known = crate::data::builtin::names();
            let word = name.text("the name of a built-in data set")?;
            if !known.contains(&word) {
                return Err(name.error(format!("there is no built-in data set \"{word}\""), suggest(word, known.iter().copied())));
            }
            section.finish()?;
            Some(word.to_owned())
        }
    };
    let clients = top.get("client");
    let (temperature, prior, placement, model) = match top.get("target") {
        None if builtin.is_some() => (1.0, PriorConfig::Gaussian(vec![6.25]), PlacementConfig::Default, None),
        None => return Err(top.error("target", "it is not set", "add a table [target] with a model, or [data] with a built-in data set")),
        Some(value) => {
            let section = value.section()?;
            let temperature = optional(section.get("temperature"), Value::positive)?.unwrap_or(1.0);
            let (prior, placement) = match section.get("prior") {
                Some(prior) => read_prior(&prior.section()?)?,
                None if builtin.is_some() => (PriorConfig::Gaussian(vec![6.25]), PlacementConfig::Default),
                None => (PriorConfig::Flat, PlacementConfig::Default),
            };
            let model = if builtin.is_some() { None } else { Some(read_model(&section, clients.clone(), source)?) };
            section.finish()?;
            (temperature, prior, placement, model)
        }
    };
    let model = match (builtin, model) {
        (Some(_), _) if clients.is_some() => {
            return Err(top.error("client", "there are clients and a built-in data set", "remove either [data] or the [[client]] tables"));
        }
        (Some(name), _) => ModelConfig::Builtin(name),
        (None, Some(model)) => model,
        (None, None) => return Err(top.error("target", "no model is stated", "add model = \"gaussian\" to [target]")),
    };
    Ok(TargetConfig { model, temperature, prior, placement })
}

fn read_prior(section: &Section<'_>) -> Result<(PriorConfig, PlacementConfig), ConfigError> {
    let law = section.need("law", "add law = \"gaussian\" (or \"flat\", \"laplace\")")?.choice(&[
        ("flat", 0),
        ("gaussian", 1),
        ("laplace", 2),
    ])?;
    let prior = match law {
        1 => {
            let variance = section.need("variance", "a gaussian prior needs a variance, e.g. variance = 1.0")?;
            let list = if variance.value.is_array() {
                variance.list("a list of variances")?.iter().map(Value::positive).collect::<Result<Vec<_>, _>>()?
            } else {
                vec![variance.positive()?]
            };
            PriorConfig::Gaussian(list)
        }
        2 => PriorConfig::Laplace(section.need("scale", "a laplace prior needs a scale, e.g. scale = 1.0")?.positive()?),
        _ => PriorConfig::Flat,
    };
    let at = optional(section.get("at"), |v| v.choice(&[("server", false), ("split", true)]))?;
    let placement = match at {
        None => PlacementConfig::Default,
        Some(false) => PlacementConfig::Server,
        Some(true) => PlacementConfig::Split(optional(section.get("split"), Value::numbers)?),
    };
    section.finish()?;
    Ok((prior, placement))
}

fn read_model(section: &Section<'_>, clients: Option<Value<'_>>, source: &Source) -> Result<ModelConfig, ConfigError> {
    let model = section.need("model", "name the likelihood, e.g. model = \"logistic\"")?.choice(MODELS)?;
    let fix = "add one [[client]] table for each client";
    let Some(clients) = clients else { return Err(section.error("client", "there are no clients", fix)) };
    let list = clients.list("a list of [[client]] tables")?;
    if list.is_empty() {
        return Err(clients.error("there are no clients", fix));
    }
    if model == ModelName::Gaussian {
        let read = |(i, v): (usize, &Value<'_>)| read_gaussian_client(i, &v.section()?, source);
        return Ok(ModelConfig::Gaussian(list.iter().enumerate().map(read).collect::<Result<_, _>>()?));
    }
    let kind = match model {
        ModelName::Linear => RowsModel::Linear { noise_variance: optional(section.get("noise_variance"), Value::positive)?.unwrap_or(1.0) },
        ModelName::Logistic => RowsModel::Logistic,
        ModelName::Softmax => {
            let classes = section.need("classes", "softmax needs the number of labels, e.g. classes = 10")?.whole(2)?;
            RowsModel::Softmax { classes: classes as usize }
        }
        ModelName::Gaussian | ModelName::Isotropic => RowsModel::Isotropic,
    };
    let intercept = kind != RowsModel::Isotropic && optional(section.get("intercept"), boolean)?.unwrap_or(true);
    let read = |(i, v): (usize, &Value<'_>)| read_rows_client(i, &v.section()?, source, kind);
    Ok(ModelConfig::Rows { kind, intercept, clients: list.iter().enumerate().map(read).collect::<Result<_, _>>()? })
}

fn client_name(i: usize, section: &Section<'_>) -> Result<String, ConfigError> {
    Ok(optional(section.get("name"), |v| v.text("a name"))?.map_or_else(|| format!("client {}", i + 1), str::to_owned))
}

fn cells(value: &Value<'_>, source: &Source) -> Result<Cells, ConfigError> {
    match value.value.as_str() {
        Some(file) => Ok(Cells::File(source.folder.join(file))),
        None => value.matrix().map(|(cells, columns)| Cells::Inline(cells, columns)),
    }
}

fn read_gaussian_client(i: usize, section: &Section<'_>, source: &Source) -> Result<GaussianClient, ConfigError> {
    let name = client_name(i, section)?;
    let mean = section.need("mean", "a gaussian client needs a mean, e.g. mean = [0.0, 1.0]")?.numbers()?;
    let (precision, covariance) = (section.get("precision"), section.get("covariance"));
    let (matrix, is_covariance) = match (precision, covariance) {
        (Some(matrix), None) => (matrix, false),
        (None, Some(matrix)) => (matrix, true),
        (None, None) => {
            return Err(section.error("precision", "it is not set", "give a precision or a covariance, e.g. precision = [[1.0]]"));
        }
        (Some(_), Some(_)) => return Err(section.error("covariance", "a precision is given too", "give one of the two")),
    };
    let client = GaussianClient { name, mean, matrix: cells(&matrix, source)?, is_covariance, place: place(section) };
    if let Cells::Inline(cells, columns) = &client.matrix
        && (*columns != client.mean.len() || cells.len() != columns * columns)
    {
        let d = client.mean.len();
        return Err(matrix.error(
            format!("it is {} x {columns}, the mean has {d} numbers", cells.len().checked_div(*columns).unwrap_or(0)),
            format!("give {d} rows of {d} numbers"),
        ));
    }
    section.finish()?;
    Ok(client)
}

fn read_rows_client(i: usize, section: &Section<'_>, source: &Source, kind: RowsModel) -> Result<RowsClient, ConfigError> {
    let name = client_name(i, section)?;
    let cells = match (section.get("file"), section.get("rows")) {
        (Some(file), None) => Cells::File(source.folder.join(file.text("the name of a CSV file")?)),
        (None, Some(rows)) => {
            let (numbers, columns) = rows.matrix()?;
            if numbers.is_empty() {
                return Err(rows.error("there are no rows", "a client needs at least one row: leave empty clients out"));
            }
            Cells::Inline(numbers, columns)
        }
        (None, None) => return Err(section.error("file", "it is not set", "give the client's rows, e.g. file = \"basel.csv\"")),
        (Some(_), Some(_)) => return Err(section.error("rows", "a file is given too", "give one of the two")),
    };
    let response = if kind == RowsModel::Isotropic { None } else { optional(section.get("response"), |v| v.text("the name of a column"))? };
    section.finish()?;
    Ok(RowsClient { name, cells, response: response.map(str::to_owned), place: place(section) })
}

fn read_sampler(top: &Section<'_>, clients: Option<usize>) -> Result<SamplerConfig, ConfigError> {
    let value = top.need("sampler", "add a table [sampler] with a name, e.g. name = \"lmc\"")?;
    let section = value.section()?;
    let name = section.need("name", "name a sampler, e.g. name = \"lmc\"; `consilience list` shows all")?;
    let word = name.text("the name of a sampler")?;
    let Some(row) = registry::find(word) else {
        return Err(name.error(format!("there is no sampler \"{word}\""), suggest(word, registry::REGISTRY.iter().map(|r| r.name))));
    };
    let step = read_step(&section)?;
    let mut settings = Settings { batch: optional(section.get("batch"), read_batch)?, ..Settings::default() };
    if let Some(refresh) = section.get("refresh") {
        match row.family {
            registry::Family::Uplink => settings.refresh_every = Some(refresh.whole(1)?),
            registry::Family::Local => settings.refresh_probability = Some(refresh.fraction(true)?),
        }
    }
    settings.memory_rate = optional(section.get("memory"), |v| v.fraction(false))?;
    let mut participation_probability = None;
    if let Some(value) = section.get("participation") {
        settings.participation = Some(read_participation(&value, clients, &mut participation_probability)?);
    }
    settings.weighting =
        optional(section.get("weighting"), |v| v.choice(&[("1/p", Weighting::InverseProbability), ("b/|A|", Weighting::Ratio)]))?;
    settings.synchronise = optional(section.get("synchronise"), read_synchronise)?;
    settings.correlation = optional(section.get("correlation"), |v| v.fraction(true))?;
    let mut weights_by_rows = false;
    if let Some(value) = section.get("weights") {
        settings.weights = read_weights(&value, clients, &mut weights_by_rows)?;
    }
    settings.average = optional(section.get("average"), |v| read_average(v, clients))?;
    settings.noise =
        optional(section.get("noise"), |v| v.choice(&[("published", NoiseScale::Everybody), ("participants", NoiseScale::Participants)]))?;
    settings.precision = optional(section.get("wire"), |v| v.choice(&[("f32", Precision::F32), ("f64", Precision::F64)]))?;
    settings.compress = optional(section.get("compress"), |v| read_compressors(v, clients))?;
    settings.compress_down = optional(section.get("compress_down"), read_compressor)?;
    settings.code = optional(section.get("code"), |v| {
        let text = v.text("the name of a code")?;
        text.parse().map_err(|_| v.error(format!("\"{text}\" is no code"), "use \"auto\", \"fixed\", \"elias\" or \"entropy\""))
    })?;
    settings.restart = optional(section.get("restart"), |v| v.fraction(false))?;
    let precondition = optional(section.get("precondition"), boolean)?.unwrap_or(false);
    for (axis, key) in settings.set() {
        if !row.axes.contains(&axis) {
            let having: Vec<_> = registry::REGISTRY.iter().filter(|r| r.axes.contains(&axis)).map(|r| r.name).collect();
            return Err(section.error(
                key,
                format!("the sampler \"{}\" has no such setting", row.name),
                format!("remove it, or use one of {}", having.join(", ")),
            ));
        }
    }
    if weights_by_rows && !row.axes.contains(&registry::Axis::Weights) {
        return Err(section.error("weights", format!("the sampler \"{}\" has no such setting", row.name), "remove it, or use fa-ld"));
    }
    section.finish()?;
    Ok(SamplerConfig { row, step, settings, weights_by_rows, participation_probability, precondition, place: place(&section) })
}

fn read_step(section: &Section<'_>) -> Result<Option<Schedule>, ConfigError> {
    let Some(value) = section.get("step") else { return Ok(None) };
    if value.value.is_table() {
        let table = value.section()?;
        let schedule = match (table.get("smoothness"), table.get("first")) {
            (Some(smoothness), None) => Schedule::Decreasing {
                smoothness: smoothness.positive()?,
                convexity: table.need("convexity", "add m, e.g. convexity = 1.0")?.positive()?,
            },
            (None, Some(first)) => Schedule::Polynomial {
                first: first.positive()?,
                delay: table.need("delay", "add when it starts to decay, e.g. delay = 1000")?.positive()?,
                power: table.need("power", "add how fast it decays, e.g. power = 0.5")?.positive()?,
            },
            _ => {
                let fix = "use { smoothness = 5.0, convexity = 1.0 } or { first = 0.01, delay = 1000, power = 0.5 }";
                return Err(value.error("it is neither of the two schedules", fix));
            }
        };
        table.finish()?;
        return Ok(Some(schedule));
    }
    match value.value.as_str() {
        Some("auto") => Ok(None),
        Some(word) => Err(value.error(format!("\"{word}\" is not a step"), "use step = \"auto\", or a positive number such as 0.01")),
        None => value.positive().map(|step| Some(Schedule::Constant(step))),
    }
}

fn read_compressor(value: &Value<'_>) -> Result<Compressor, ConfigError> {
    let text = value.text("a compressor, such as \"qsgd(16)\"")?;
    text.parse().map_err(|e: SpecError| {
        value.error(
            e.to_string(),
            "use e.g. \"qsgd(16)\", \"natural\", \"rand_k(10)\", \"top_k(1)\", \"scaled(qsgd(4))\", \"block(qsgd(2), 128)\"",
        )
    })
}

fn read_compressors(value: &Value<'_>, clients: Option<usize>) -> Result<Vec<Compressor>, ConfigError> {
    if !value.value.is_array() {
        return read_compressor(value).map(|c| vec![c]);
    }
    let list = value.list("a list of compressors")?.iter().map(read_compressor).collect::<Result<Vec<_>, _>>()?;
    if clients.is_some_and(|b| b != list.len()) {
        return Err(value.error(
            format!("{} compressors for {} clients", list.len(), clients.unwrap_or(0)),
            "give one for all, or one for each client",
        ));
    }
    Ok(list)
}

fn read_batch(value: &Value<'_>) -> Result<Batch, ConfigError> {
    if let Some(word) = value.value.as_str() {
        return if word == "all" {
            Ok(Batch::Full)
        } else {
            Err(value.error(format!("\"{word}\" is not a batch"), "use \"all\", a number of rows such as 20, or a fraction such as 0.1"))
        };
    }
    if value.is_integer() { value.whole(1).map(|n| Batch::Rows(n as usize)) } else { value.fraction(false).map(Batch::Fraction) }
}

fn read_participation(value: &Value<'_>, clients: Option<usize>, one: &mut Option<f64>) -> Result<Participation, ConfigError> {
    if let Some(word) = value.value.as_str() {
        let fix = "use \"all\", a probability such as 0.5, a list of them, or { clients = 3 }";
        return if word == "all" { Ok(Participation::All) } else { Err(value.error(format!("\"{word}\" is not known"), fix)) };
    }
    if value.value.is_table() {
        let table = value.section()?;
        let count = table.need("clients", "say how many, e.g. { clients = 3 }")?;
        let size = count.whole(1)? as usize;
        if clients.is_some_and(|b| size > b) {
            return Err(
                count.error(format!("{size} of {} clients cannot take part", clients.unwrap_or(0)), "use at most the number of clients")
            );
        }
        table.finish()?;
        return Ok(Participation::Fixed(size));
    }
    if value.value.is_array() {
        let list = value.list("a list of probabilities")?.iter().map(|v| v.fraction(false)).collect::<Result<Vec<_>, _>>()?;
        if clients.is_some_and(|b| b != list.len()) {
            return Err(
                value.error(format!("{} probabilities for {} clients", list.len(), clients.unwrap_or(0)), "give one for each client")
            );
        }
        return Ok(Participation::Bernoulli(list));
    }
    let p = value.fraction(false)?;
    *one = Some(p);
    Ok(Participation::Bernoulli(vec![p; clients.unwrap_or(0)]))
}

fn read_synchronise(value: &Value<'_>) -> Result<Synchronise, ConfigError> {
    let fix = "use { every = 10 } or { probability = 0.1 }";
    if !value.value.is_table() {
        return Err(value.error(format!("{} says neither how often nor how likely", value.written()), fix));
    }
    let table = value.section()?;
    let read = match (table.get("every"), table.get("probability")) {
        (Some(every), None) => Synchronise::Every(every.whole(1)?),
        (None, Some(p)) => Synchronise::Randomly(p.fraction(false)?),
        _ => return Err(value.error("it must say either how often or how likely", fix)),
    };
    table.finish()?;
    Ok(read)
}

fn read_weights(value: &Value<'_>, clients: Option<usize>, by_rows: &mut bool) -> Result<Option<Vec<f64>>, ConfigError> {
    match value.value.as_str() {
        Some("equal") => Ok(None),
        Some("rows") => {
            *by_rows = true;
            Ok(None)
        }
        Some(word) => Err(value.error(format!("\"{word}\" is not known"), "use \"equal\", \"rows\", or a list of weights that sums to 1")),
        None => {
            let list = value.list("a list of weights")?.iter().map(Value::positive).collect::<Result<Vec<_>, _>>()?;
            let sum: f64 = list.iter().sum();
            if clients.is_some_and(|b| b != list.len()) {
                return Err(value.error(format!("{} weights for {} clients", list.len(), clients.unwrap_or(0)), "give one for each client"));
            }
            if (sum - 1.0).abs() > 1e-9 {
                return Err(value.error(format!("the weights sum to {sum}"), "make them sum to 1"));
            }
            Ok(Some(list))
        }
    }
}

fn read_average(value: &Value<'_>, clients: Option<usize>) -> Result<Average, ConfigError> {
    if let Some(word) = value.value.as_str() {
        let fix = "use \"all\" or { scheme = \"I\", clients = 3 }";
        return if word == "all" { Ok(Average::All) } else { Err(value.error(format!("\"{word}\" is not known"), fix)) };
    }
    let table = value.section()?;
    let second = table.need("scheme", "add scheme = \"I\" or \"II\"")?.choice(&[("I", false), ("II", true)])?;
    let count = table.need("clients", "say how many are averaged, e.g. clients = 3")?;
    let size = count.whole(1)? as usize;
    if second && clients.is_some_and(|b| size > b) {
        return Err(
            count.error(format!("{size} of {} clients cannot be averaged", clients.unwrap_or(0)), "use at most the number of clients")
        );
    }
    table.finish()?;
    Ok(if second { Average::WithoutReplacement(size) } else { Average::WithReplacement(size) })
}

fn read_run(top: &Section<'_>) -> Result<RunConfig, ConfigError> {
    let default = RunConfig { chains: 4, iterations: 10_000, burn_in: 1_000, thin: 1, threads: 0, start: Start::Zero };
    let Some(value) = top.get("run") else { return Ok(default) };
    let section = value.section()?;
    let chains = optional(section.get("chains"), |v| v.whole(1))?.unwrap_or(4) as usize;
    let iterations = optional(section.get("iterations"), |v| v.whole(1))?.unwrap_or(default.iterations);
    let burn_in = optional(section.get("burn_in"), |v| v.whole(0))?.unwrap_or(iterations / 10);
    if burn_in >= iterations {
        return Err(section.error(
            "burn_in",
            format!("{burn_in} of {iterations} iterations leaves nothing to keep"),
            "make it smaller than iterations",
        ));
    }
    let thin = optional(section.get("thin"), |v| v.whole(1))?.unwrap_or(1);
    let threads = optional(section.get("threads"), |v| v.whole(0))?.unwrap_or(0) as usize;
    let start = match section.get("start") {
        None => Start::Zero,
        Some(v) if v.value.is_array() => Start::Point(v.numbers()?),
        Some(v) => {
            if v.choice(&[("zero", false), ("optimum", true)])? {
                Start::Optimum
            } else {
                Start::Zero
            }
        }
    };
    section.finish()?;
    Ok(RunConfig { chains, iterations, burn_in, thin, threads, start })
}

fn read_output(top: &Section<'_>, source: &Source) -> Result<Option<PathBuf>, ConfigError> {
    let Some(value) = top.get("output") else { return Ok(None) };
    let section = value.section()?;
    let draws = optional(section.get("draws"), |v| {
        let file = v.text("a file name")?;
        if file.ends_with(".csv") || file.ends_with(".npy") {
            Ok(source.folder.join(file))
        } else {
            Err(v.error(format!("\"{file}\" is of no known kind"), "use a name that ends in .csv or .npy"))
        }
    })?;
    section.finish()?;
    Ok(draws)
}
