//! Build the target that a config states, and check it against its data.

mod own;

pub(crate) use own::model;

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Design, Family, Gaussian, Glm, Isotropic, Potential, Prior, Softmax};
use consilience_core::protocol::Statement;
use consilience_core::rng::Seed;
use consilience_core::sampler::registry;
use consilience_core::target::{Placement, Target};

use crate::config::{
    Cells, Config, ConfigError, GaussianClient, ModelConfig, NamedData, PlacementConfig, PriorConfig, RowsClient, RowsModel,
};
use crate::data::{builtin, catalogue, partition};
use crate::held_out::HeldOut;
use crate::numbers::{self, Numbers};
use crate::suggest::suggest;

/// A target with the names that people know its parts by.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The target.
    pub target: Target,
    /// The parameters' names.
    pub parameters: Vec<String>,
    /// The clients' names.
    pub clients: Vec<String>,
    /// The target in words, for every party to check.
    pub statement: Statement,
    /// How the data was encoded, in sentences.
    pub notes: Vec<String>,
    /// What the exchange of moments cost before sampling, in bits up and down.
    pub moments_bits: (u64, u64),
    /// Rows that no client learns from, if the config holds any out.
    pub held_out: Option<HeldOut>,
}

impl Problem {
    /// The problem of a config.
    pub fn new(config: &Config) -> Result<Problem, ConfigError> {
        let mut problem = match &config.target.model {
            ModelConfig::Builtin(name) => from_builtin(config, name)?,
            ModelConfig::Named(named) => from_catalogue(config, named)?,
            ModelConfig::Own(own) => own::build(config, own)?,
            ModelConfig::Generated(toy) => own::generate(config, toy)?,
            ModelConfig::Gaussian(clients) => from_gaussians(config, clients)?,
            ModelConfig::Rows { kind, intercept, clients } => from_rows(config, *kind, *intercept, clients)?,
        };
        problem.statement = state(config, &problem);
        Ok(problem)
    }
}

fn from_builtin(config: &Config, name: &str) -> Result<Problem, ConfigError> {
    let place = &config.sampler.place;
    let federation =
        builtin::load(name).map_err(|e| config.source.complain(place, e.to_string(), "this is a fault of the program: report it"))?;
    let mut clients: Vec<Arc<dyn Potential>> = Vec::new();
    for site in &federation.sites {
        let model =
            site.logistic().map_err(|e| config.source.complain(place, format!("site {}: {e}", site.name), "check the site's data"))?;
        clients.push(Arc::new(model));
    }
    Ok(Problem {
        target: assemble(config, clients, federation.parameters.len())?,
        clients: federation.sites.iter().map(|s| s.name.clone()).collect(),
        parameters: federation.parameters,
        statement: Statement::new::<&str, &str>([]),
        notes: federation.notes,
        moments_bits: (federation.exchanged_bits_up, federation.exchanged_bits_down),
        held_out: None,
    })
}

/// A data set of the catalogue, dealt to clients. What the clients would exchange to agree on the columns' greatest values is counted.
fn from_catalogue(config: &Config, named: &NamedData) -> Result<Problem, ConfigError> {
    let complain = |problem: String, fix: &str| config.source.complain(&named.place, problem, fix);
    let fix = "see `consilience data check`; `consilience data describe` says which files it needs";
    let mut data = catalogue::load(&named.name, named.folder.as_deref()).map_err(|e| complain(e.to_string(), fix))?;
    let seed = Seed::new(config.seed);
    let mut notes = Vec::new();
    if let Some(rows) = named.rows.filter(|rows| *rows < data.rows()) {
        notes.push(format!("A random subset of {rows} of {} rows.", data.rows()));
        data = data.select(&partition::subset(data.rows(), rows, seed));
    }
    let dealt = partition::split(&data, &named.scheme, named.clients, seed)
        .map_err(|e| complain(e.to_string(), "correct clients, scheme or rows in [data]"))?;
    let b = dealt.rows.len();
    notes.push(format!("{}: {} rows dealt to {b} clients by {}.", named.name, data.rows(), named.scheme));
    let divisors = if named.scale { data.greatest() } else { vec![1.0; data.columns.len()] };
    let scaled = divisors.iter().filter(|divisor| **divisor != 1.0).count();
    let moments = if scaled > 0 { 64 * (b * data.columns.len()) as u64 } else { 0 };
    if scaled > 0 {
        notes.push(format!("{scaled} columns are divided by their greatest absolute value."));
    }
    let mut clients: Vec<Arc<dyn Potential>> = Vec::new();
    for (name, rows) in dealt.names.iter().zip(&dealt.rows) {
        let complain = |e: DataError| complain(format!("client \"{name}\": {e}"), "use another scheme, or fewer clients");
        let design = data.design(rows, named.intercept, &divisors).map_err(complain)?;
        let labels = data.labels_of(rows);
        clients.push(match named.kind {
            RowsModel::Softmax { classes } => {
                Arc::new(Softmax::new(design, labels.iter().map(|y| *y as u32).collect(), classes).map_err(complain)?)
            }
            _ => Arc::new(Glm::new(design, labels, Family::Bernoulli).map_err(complain)?),
        });
    }
    let columns: Vec<String> = named.intercept.then(|| "intercept".to_owned()).into_iter().chain(data.columns).collect();
    let parameters = match (named.kind, &data.classes) {
        (RowsModel::Softmax { .. }, Some(classes)) => {
            classes.iter().flat_map(|class| columns.iter().map(move |column| format!("{column}[{class}]"))).collect()
        }
        _ => columns,
    };
    Ok(Problem {
        target: assemble(config, clients, parameters.len())?,
        parameters,
        clients: dealt.names,
        statement: Statement::new::<&str, &str>([]),
        notes,
        moments_bits: (moments, moments),
        held_out: None,
    })
}

fn from_gaussians(config: &Config, clients: &[GaussianClient]) -> Result<Problem, ConfigError> {
    let mut potentials: Vec<Arc<dyn Potential>> = Vec::new();
    for client in clients {
        let complain = |problem: String, fix: &str| config.source.complain(&client.place, problem, fix);
        let cells = match &client.matrix {
            Cells::Inline(cells, _) => cells.clone(),
            Cells::File(path) => numbers::read(path).map_err(|e| complain(e, "give a CSV file with one row of the matrix a line"))?.cells,
        };
        let built = if client.is_covariance {
            Gaussian::from_covariance(client.mean.clone(), &cells)
        } else {
            Gaussian::new(client.mean.clone(), cells)
        };
        let gaussian = built.map_err(|e| complain(format!("client \"{}\": {e}", client.name), "correct its mean or its matrix"))?;
        if gaussian.dim() != clients[0].mean.len() {
            let problem =
                format!("client \"{}\" has {} parameters, the first client has {}", client.name, gaussian.dim(), clients[0].mean.len());
            return Err(complain(problem, "all clients must have the same parameters"));
        }
        potentials.push(Arc::new(gaussian));
    }
    let d = clients[0].mean.len();
    Ok(Problem {
        target: assemble(config, potentials, d)?,
        parameters: (1..=d).map(|k| format!("x{k}")).collect(),
        clients: clients.iter().map(|c| c.name.clone()).collect(),
        statement: Statement::new::<&str, &str>([]),
        notes: Vec::new(),
        moments_bits: (0, 0),
        held_out: None,
    })
}

fn from_rows(config: &Config, kind: RowsModel, intercept: bool, clients: &[RowsClient]) -> Result<Problem, ConfigError> {
    let mut potentials: Vec<Arc<dyn Potential>> = Vec::new();
    let mut first: Option<Vec<String>> = None;
    for client in clients {
        let complain =
            |problem: String, fix: &str| config.source.complain(&client.place, format!("client \"{}\": {problem}", client.name), fix);
        let table = match &client.cells {
            Cells::Inline(cells, columns) => Numbers { names: None, cells: cells.clone(), columns: *columns },
            Cells::File(path) => numbers::read(path).map_err(|e| complain(e, "give a CSV file with one row of numbers a line"))?,
        };
        let (names, potential) = build_client(&table, client, kind, intercept).map_err(|(problem, fix)| complain(problem, &fix))?;
        match &first {
            None => first = Some(names),
            Some(expected) if *expected != names => {
                let problem = format!("its columns are {}, those of the first client {}", names.join(", "), expected.join(", "));
                return Err(complain(problem, "all clients must have the same columns in the same order"));
            }
            Some(_) => {}
        }
        potentials.push(potential);
    }
    let mut parameters = first.unwrap_or_default();
    if let RowsModel::Softmax { classes } = kind {
        parameters = (0..classes).flat_map(|k| parameters.iter().map(move |p| format!("{p}[{k}]")).collect::<Vec<_>>()).collect();
    }
    Ok(Problem {
        target: assemble(config, potentials, parameters.len())?,
        parameters,
        clients: clients.iter().map(|c| c.name.clone()).collect(),
        statement: Statement::new::<&str, &str>([]),
        notes: Vec::new(),
        moments_bits: (0, 0),
        held_out: None,
    })
}

type Built = (Vec<String>, Arc<dyn Potential>);

/// One client's potential and its columns' names, or a problem and its fix.
fn build_client(table: &Numbers, client: &RowsClient, kind: RowsModel, intercept: bool) -> Result<Built, (String, String)> {
    let names = table.names.clone().unwrap_or_else(|| (1..=table.columns).map(|k| format!("x{k}")).collect());
    let data = |e: DataError| (e.to_string(), "correct the client's rows".to_owned());
    if kind == RowsModel::Isotropic {
        let model = Isotropic::new(table.cells.clone(), table.columns).map_err(data)?;
        return Ok((names, Arc::new(model)));
    }
    if table.columns < 2 && !intercept {
        return Err(("there is no column beside the response".into(), "add a feature, or set intercept = true".into()));
    }
    let response = match &client.response {
        None => table.columns - 1,
        Some(name) => {
            let missing = || (format!("there is no column \"{name}\""), suggest(name, names.iter().map(String::as_str)));
            names.iter().position(|n| n == name).ok_or_else(missing)?
        }
    };
    let mut features = Vec::new();
    let mut labels = Vec::new();
    for row in table.cells.chunks_exact(table.columns) {
        if intercept {
            features.push(1.0);
        }
        features.extend(row.iter().enumerate().filter(|(k, _)| *k != response).map(|(_, v)| v));
        labels.push(row[response]);
    }
    let mut columns: Vec<String> = names.iter().enumerate().filter(|(k, _)| *k != response).map(|(_, n)| n.clone()).collect();
    if intercept {
        columns.insert(0, "intercept".into());
    }
    let design = Design::dense(features, columns.len()).map_err(data)?;
    let potential: Arc<dyn Potential> = match kind {
        RowsModel::Linear { noise_variance } => {
            Arc::new(Glm::new(design, labels, Family::Gaussian { variance: noise_variance }).map_err(data)?)
        }
        RowsModel::Softmax { classes } => {
            if let Some((row, label)) = labels.iter().enumerate().find(|(_, y)| !(**y >= 0.0 && y.fract() == 0.0 && **y < classes as f64)) {
                return Err((
                    format!("row {} has the label {label}", row + 1),
                    format!("labels must be whole numbers from 0 to {}", classes - 1),
                ));
            }
            Arc::new(Softmax::new(design, labels.iter().map(|y| *y as u32).collect(), classes).map_err(data)?)
        }
        RowsModel::Logistic | RowsModel::Isotropic => Arc::new(Glm::new(design, labels, Family::Bernoulli).map_err(data)?),
    };
    Ok((columns, potential))
}

fn assemble(config: &Config, clients: Vec<Arc<dyn Potential>>, dim: usize) -> Result<Target, ConfigError> {
    let place = crate::config::Place { line: 1, field: "target.prior".into() };
    let complain = |problem: String, fix: &str| config.source.complain(&place, problem, fix);
    let b = clients.len();
    let prior = match &config.target.prior {
        PriorConfig::Flat => Ok(Prior::Flat),
        PriorConfig::Gaussian(variances) if variances.len() == 1 => Prior::gaussian(variances[0], dim),
        PriorConfig::Gaussian(variances) if variances.len() != dim => {
            let problem = format!("{} variances for {dim} parameters", variances.len());
            return Err(complain(problem, "give one variance for all, or one for each parameter"));
        }
        PriorConfig::Gaussian(variances) => Prior::gaussian_per_coordinate(variances),
        PriorConfig::Laplace(scale) => Prior::laplace(*scale),
    };
    let placement = match &config.target.placement {
        PlacementConfig::Server if config.sampler.row.family == registry::Family::Local => {
            let problem = format!("the sampler \"{}\" has no server step that could apply a prior", config.sampler.row.name);
            return Err(complain(problem, "use at = \"split\", or leave `at` out"));
        }
        PlacementConfig::Default | PlacementConfig::Server => Placement::Server,
        PlacementConfig::Split(None) => Placement::Split(vec![1.0 / b as f64; b]),
        PlacementConfig::Split(Some(weights)) => Placement::Split(weights.clone()),
    };
    let fix = "correct [target]";
    let prior = prior.map_err(|e| complain(e.to_string(), fix))?;
    Target::new(clients, prior, placement, config.target.temperature).map_err(|e| complain(e.to_string(), fix))
}

/// The target in words. It names everything that parties must agree on, and nothing that only one of them may know.
fn state(config: &Config, problem: &Problem) -> Statement {
    let model = match &config.target.model {
        ModelConfig::Builtin(name) => format!("logistic regression on {name}"),
        ModelConfig::Named(named) => format!("{:?}, intercept {}, on {}", named.kind, named.intercept, named.name),
        ModelConfig::Own(own) => {
            let formula = own.formula.as_ref().map_or_else(|| format!("intercept {}", own.intercept), |formula| format!("by {formula}"));
            format!("{:?}, {formula}", own.kind)
        }
        ModelConfig::Generated(toy) => format!("{:?}", toy.what),
        ModelConfig::Gaussian(_) => "gaussian".into(),
        ModelConfig::Rows { kind, intercept, .. } => format!("{kind:?}, intercept {intercept}"),
    };
    let lines = [
        ("consilience", env!("CARGO_PKG_VERSION").to_owned()),
        ("model", model),
        ("parameters", problem.parameters.join(", ")),
        ("clients", problem.clients.join(", ")),
        ("prior", format!("{:?}", config.target.prior)),
        ("placement", format!("{:?}", config.target.placement)),
        ("temperature", config.target.temperature.to_string()),
    ];
    Statement::new(lines)
}
