//! Turn a TOML file into a checked config, or say what is wrong with it.

mod coding;
mod external;
pub mod fields;
pub mod laws;
mod named;
mod own;
mod privacy;
pub(crate) mod reader;
mod resolved;
mod sampler;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use consilience_core::model::Law;
use consilience_core::sampler::registry::{Row, Settings};
use consilience_core::step::Schedule;
use toml::de::DeTable;

pub use coding::CodingConfig;
pub use external::External;
pub use named::NamedData;
pub use own::{Generated, OwnData, OwnSource};
pub use privacy::PrivacyConfig;
pub use reader::ConfigError;
use reader::{Document, Section, Value};
pub use resolved::Shown;
pub(crate) use target::EVERY_GROUP;

use crate::data::Table;
use crate::data::memory::Tables;
use crate::models::{self, RowModel};
use laws::Support;

/// How many effective draws of every parameter a run gives unless it says otherwise: means are then
/// known to about 0.02 posterior standard deviations, standard deviations to about 1%.
pub(crate) const EFFECTIVE_DRAWS: u64 = 4000;
/// What a network is like where nobody says: between cities.
pub(crate) const LATENCY_MS: f64 = 20.0;
pub(crate) const BANDWIDTH_MBIT: f64 = 100.0;
/// How far an automatic step may shift a mean, in posterior standard deviations, where nobody says.
pub(crate) const MOST_BIAS: f64 = 0.03;

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
    /// Whether the log-density of every draw is wanted, if the config says so.
    pub lp: Option<bool>,
    /// Where clients that join over a network take their noise from.
    pub seeds: Seeds,
    /// What a site may tell of one row, where that is limited.
    pub privacy: Option<PrivacyConfig>,
}

/// Where the clients' own noise comes from, where they are not in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seeds {
    /// From each client's operating system: nobody else can compute it.
    #[default]
    Private,
    /// From the config's seed, as in one process: for tests.
    Simulation,
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
    /// Where the prior stands; where none does, the table that would hold it.
    pub prior_place: FieldLocation,
    /// How columns are coded, where that is stated and no site is asked.
    pub coding: Option<CodingConfig>,
}

/// What the clients know.
#[derive(Clone, Debug)]
pub enum ModelConfig {
    /// A data set that comes with the program.
    Builtin(String),
    /// A data set of the catalogue, dealt to clients.
    Named(NamedData),
    /// Files of one's own, or generated rows.
    Own(Box<OwnData>),
    /// A toy target that is generated.
    Generated(Generated),
    /// Brought by the program that reads the config, or by the sites.
    External(External),
    /// Gaussian clients.
    Gaussian(Vec<GaussianClient>),
    /// Clients with rows.
    Rows {
        /// Which model.
        kind: Arc<dyn RowModel>,
        /// Whether a column of ones is put first.
        intercept: bool,
        /// The clients.
        clients: Vec<RowsClient>,
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
    pub matrix: TableSource,
    /// Whether the matrix is a covariance.
    pub is_covariance: bool,
    /// Where it stands in the config.
    pub place: FieldLocation,
}

/// One client with rows.
#[derive(Clone, Debug)]
pub struct RowsClient {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub cells: TableSource,
    /// The column that is the response.
    pub response: Option<String>,
    /// Where it stands in the config.
    pub place: FieldLocation,
}

/// Where a table of numbers is.
#[derive(Clone, Debug)]
pub enum TableSource {
    /// In the config: row-major, and how many columns.
    Inline(Vec<f64>, usize),
    /// In a CSV file.
    File(PathBuf),
    /// In memory.
    Table(Arc<Table>),
    /// With the client alone, which brings them when it joins.
    Elsewhere,
}

/// Where a field is in the config.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldLocation {
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
    /// Normal, with a variance for every group of parameters: by layer (`conv1`), by tensor
    /// (`conv1.weight`), by what they do (`weight`), or for `all`; what says most of a parameter
    /// counts.
    Groups {
        /// Names and variances.
        groups: Vec<(String, f64)>,
        /// Whether variances of weights are divided by how many inputs a unit sees.
        fan_in: bool,
    },
    /// Laplace with this scale.
    Laplace(f64),
    /// Weakly informative, in units of the response.
    Usual,
    /// By the names of laws.
    Named {
        /// That of all coefficients; `None`: the usual one.
        all: Option<Law>,
        /// Those of some parameters.
        of: Vec<NamedLaw>,
    },
}

/// A law by the name of what it is of: a parameter, a term, a group of parameters, the intercept,
/// or all coefficients but that.
#[derive(Clone, Debug)]
pub struct NamedLaw {
    /// The name.
    pub name: String,
    /// The law.
    pub law: Law,
    /// What the law can be of.
    pub support: Support,
    /// Where it stands.
    pub place: FieldLocation,
}

impl PartialEq for NamedLaw {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.law == other.law && self.support == other.support
    }
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
    /// How many seconds a round may take before it is closed without those who have not answered,
    /// where participation is elastic.
    pub round_deadline: Option<f64>,
    /// Whether chains move in coordinates in which the posterior is round; `None`: wherever that
    /// can be had.
    pub precondition: Option<bool>,
    /// Where the table stands.
    pub place: FieldLocation,
}

/// How long a run is to be. What is `None` follows from what the surveys find: see
/// [`crate::plan::Plan`].
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// How many chains; `None`: 4, or more of them where that takes fewer exchanges.
    pub chains: Option<usize>,
    /// How many iterations each; `None`: what `effective_draws` take.
    pub iterations: Option<u64>,
    /// How many effective draws of every parameter all chains together are to give.
    pub effective_draws: u64,
    /// How many iterations are not kept.
    pub burn_in: Option<u64>,
    /// Keep every so many draws.
    pub thin: Option<u64>,
    /// How many threads; 0: as many as there are cores.
    pub threads: usize,
    /// What computes, and where that is stated.
    pub device: Option<(DeviceChoice, FieldLocation)>,
    /// Where chains start.
    pub start: Option<Start>,
    /// What a sampler is chosen by.
    pub cost: Cost,
    /// How long an exchange takes whatever it carries, in milliseconds, and how many megabits a
    /// second the server's line carries: what seconds are counted by.
    pub latency_ms: f64,
    /// The server's line, in megabits a second.
    pub bandwidth_mbit: f64,
    /// By how many posterior standard deviations an automatic step may shift a mean; half of that,
    /// relatively, is for standard deviations.
    pub most_bias: f64,
    /// Whether the bias is measured by chains of half the step.
    pub halve: bool,
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// This machine's cores.
    Cpu,
    /// Its first GPU, or nothing.
    Cuda,
    /// Its first GPU if it can be used, else its cores.
    Auto,
}

/// What a sampler is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// What is sent, both ways.
    Bytes,
    /// How often the server and the sites exchange something.
    Exchanges,
    /// How long the network takes.
    Seconds,
}

/// Where chains start.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// At 0.
    Zero,
    /// At the optimum.
    Optimum,
    /// Where the model's own law of starts says.
    Drawn,
    /// Here.
    Point(Vec<f64>),
}

impl ModelConfig {
    /// The model of the clients' rows, where it is one of the registry's; built-in data is always
    /// compared.
    pub fn of_rows(&self) -> Option<Arc<dyn RowModel>> {
        match self {
            ModelConfig::Builtin(_) => Some(models::of_comparison()),
            ModelConfig::Named(named) => Some(Arc::clone(&named.kind)),
            ModelConfig::Own(own) => Some(Arc::clone(&own.kind)),
            ModelConfig::Rows { kind, .. } => Some(Arc::clone(kind)),
            ModelConfig::Gaussian(_) | ModelConfig::Generated(_) | ModelConfig::External(_) => None,
        }
    }
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
            fix: match error.kind() {
                std::io::ErrorKind::InvalidData => "save the file as UTF-8 text".into(),
                _ => "check the path, or make a config with `consilience new run.toml`".into(),
            },
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Config::parse(Source { file, folder, text })
    }

    /// Check a config's text.
    pub fn parse(source: Source) -> Result<Config, ConfigError> {
        Config::parse_with(source, &Tables::new())
    }

    /// Check the text of a config, some of whose clients have their rows in memory.
    pub fn parse_with(source: Source, tables: &Tables) -> Result<Config, ConfigError> {
        let parsed = DeTable::parse(&source.text).map_err(|error| {
            let document = Document { file: &source.file, text: &source.text };
            let span = error.span().unwrap_or(0..0);
            document.error(
                &span,
                "TOML",
                error.message(),
                "see toml.io for the syntax; `consilience new` prints a config to start from",
            )
        })?;
        let document = Document { file: &source.file, text: &source.text };
        let top = Section::new(document, "", parsed.span(), parsed.get_ref());
        let seed = optional(top.get("seed"), |v| v.whole(0))?.unwrap_or(1);
        let seeds = optional(top.get("seeds"), |v| {
            v.choice(&[("private", Seeds::Private), ("simulation", Seeds::Simulation)])
        })?
        .unwrap_or_default();
        let target = target::read_target(&top, &source, tables)?;
        let clients = match &target.model {
            ModelConfig::Builtin(_) => None,
            ModelConfig::External(external) if external.clients.is_empty() => None,
            ModelConfig::External(external) => Some(external.clients.len()),
            ModelConfig::Named(named) => named.clients,
            ModelConfig::Own(own) => own.clients(),
            ModelConfig::Generated(toy) => Some(toy.clients),
            ModelConfig::Gaussian(clients) => Some(clients.len()),
            ModelConfig::Rows { clients, .. } => Some(clients.len()),
        };
        let sampler = sampler::read_sampler(&top, clients)?;
        let run = read_run(&top)?;
        let (draws, lp) = read_output(&top, &source)?;
        let privacy = privacy::read_privacy(&top)?;
        top.finish()?;
        drop(top);
        let mut config = Config { seed, target, sampler, run, draws, lp, seeds, privacy, source };
        if config.sampler.step.is_none() {
            config.sampler.step = crate::privacy::public_step(&config).map(Schedule::Constant);
        }
        Ok(config)
    }
}

impl Source {
    /// A complaint that only the data could bring to light.
    pub fn complain(
        &self,
        place: &FieldLocation,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: place.line,
            field: place.field.clone(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

fn optional<'a, T>(
    value: Option<Value<'a>>,
    read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
) -> Result<Option<T>, ConfigError> {
    value.map(|v| read(&v)).transpose()
}

fn place(section: &Section<'_>) -> FieldLocation {
    let at = section.error("", "", "");
    FieldLocation { line: at.line, field: section.path.clone() }
}

fn boolean(value: &Value<'_>) -> Result<bool, ConfigError> {
    value.value.as_bool().ok_or_else(|| {
        value.error(
            format!("{} is neither true nor false", value.written()),
            "true or false is expected",
        )
    })
}

fn read_run(top: &Section<'_>) -> Result<RunConfig, ConfigError> {
    let default = RunConfig {
        chains: None,
        iterations: None,
        effective_draws: EFFECTIVE_DRAWS,
        burn_in: None,
        thin: None,
        threads: 0,
        device: None,
        start: None,
        cost: Cost::Bytes,
        latency_ms: LATENCY_MS,
        bandwidth_mbit: BANDWIDTH_MBIT,
        most_bias: MOST_BIAS,
        halve: false,
    };
    let Some(value) = top.get("run") else { return Ok(default) };
    let section = value.section()?;
    let chains = optional(section.get("chains"), |v| v.whole(1))?.map(|n| n as usize);
    let iterations = optional(section.get("iterations"), |v| v.whole(1))?;
    let effective_draws = optional(section.get("effective_draws"), |v| v.whole(1))?;
    if let (Some(iterations), Some(draws)) = (iterations, effective_draws) {
        return Err(section.error(
            "effective_draws",
            format!("{draws} effective draws and {iterations} iterations cannot both be asked for"),
            "remove one of the two: iterations follow from effective_draws",
        ));
    }
    let burn_in = optional(section.get("burn_in"), |v| v.whole(0))?;
    if let (Some(burn_in), Some(iterations)) = (burn_in, iterations)
        && burn_in >= iterations
    {
        return Err(section.error(
            "burn_in",
            format!("{burn_in} of {iterations} iterations leaves nothing to keep"),
            "make it smaller than iterations",
        ));
    }
    let thin = optional(section.get("thin"), |v| v.whole(1))?;
    let threads = optional(section.get("threads"), |v| v.whole(0))?.unwrap_or(0) as usize;
    let devices =
        [("cpu", DeviceChoice::Cpu), ("cuda", DeviceChoice::Cuda), ("auto", DeviceChoice::Auto)];
    let device = optional(section.get("device"), |v| Ok((v.choice(&devices)?, v.place())))?;
    let start = match section.get("start") {
        None => None,
        Some(v) if v.value.is_array() => Some(Start::Point(v.numbers()?)),
        Some(v) => Some(match v.choice(&[("zero", 0), ("optimum", 1), ("drawn", 2)])? {
            0 => Start::Zero,
            1 => Start::Optimum,
            _ => Start::Drawn,
        }),
    };
    let costs =
        [("bytes", Cost::Bytes), ("exchanges", Cost::Exchanges), ("seconds", Cost::Seconds)];
    let cost = optional(section.get("cost"), |v| v.choice(&costs))?.unwrap_or(default.cost);
    let above_zero = |key: &'static str, usual: f64| {
        Ok(optional(section.get(key), |v| v.positive())?.unwrap_or(usual))
    };
    let latency_ms = above_zero("latency_ms", default.latency_ms)?;
    let bandwidth_mbit = above_zero("bandwidth_mbit", default.bandwidth_mbit)?;
    let most_bias = above_zero("most_bias", default.most_bias)?;
    let how = [("forecast", false), ("halve", true)];
    let halve = optional(section.get("bias"), |v| v.choice(&how))?.unwrap_or(default.halve);
    section.finish()?;
    let effective_draws = effective_draws.unwrap_or(EFFECTIVE_DRAWS);
    Ok(RunConfig {
        chains,
        iterations,
        effective_draws,
        burn_in,
        thin,
        threads,
        device,
        start,
        cost,
        latency_ms,
        bandwidth_mbit,
        most_bias,
        halve,
    })
}

fn read_output(
    top: &Section<'_>,
    source: &Source,
) -> Result<(Option<PathBuf>, Option<bool>), ConfigError> {
    let Some(value) = top.get("output") else { return Ok((None, None)) };
    let section = value.section()?;
    let draws = optional(section.get("draws"), |v| {
        let file = v.text("a file name")?;
        if file.ends_with(".csv") || file.ends_with(".npy") {
            Ok(source.folder.join(file))
        } else {
            Err(v.error(
                format!("\"{file}\" is of no known kind"),
                "use a name that ends in .csv or .npy",
            ))
        }
    })?;
    let lp = optional(section.get("lp"), boolean)?;
    section.finish()?;
    Ok((draws, lp))
}
