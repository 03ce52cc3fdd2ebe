//! Build the target that a config states, and check it against its data.

mod external;
mod formula;
mod own;
mod priors;

pub(crate) use external::missing;
pub use formula::{CodeFacts, CodedSummary, Kinds, TableFacts};
pub(crate) use formula::{Judged, as_stated_error};
pub(crate) use own::{About, Complaint, FORMULA, READ, with_computed};
pub(crate) use priors::has_usual_coefficients;

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Absent, Design, Model, Offers, Prior, RowReach, Transforms};
use consilience_core::protocol::Statement;
use consilience_core::rng::Seed;
use consilience_core::target::{Placement, Target};

use crate::config::{
    Config, ConfigError, EVERY_GROUP, ModelConfig, NamedData, PlacementConfig, PriorConfig,
};
use crate::data::{ResponseMoments, catalogue, partition};
use crate::encoding::Encoding;
use crate::held_out::HeldOut;
use crate::models::{Observed, ParameterGroup};
use crate::site::{Agreed, Agreement, LocalSite, agree, names};
use crate::statement;
use crate::suggest::suggest;
use crate::warnings::Warning;

/// A target with the names that people know its parts by.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The target.
    pub target: Target,
    /// Where searches for the optimum start.
    pub origin: Vec<f64>,
    /// The parameters' names.
    pub parameters: Vec<String>,
    /// The clients' names.
    pub clients: Vec<String>,
    /// The target in words, for every party to check.
    pub statement: Statement,
    /// How the data was encoded, in sentences.
    pub notes: Vec<String>,
    /// What people should know of the data.
    pub warnings: Vec<Warning>,
    /// What the exchange of moments cost before sampling, in bits up and down.
    pub moments_bits: (u64, u64),
    /// Rows that no client learns from, if the config holds any out.
    pub held_out: Option<HeldOut>,
    /// Rows of another kind, and what they are: predictions of them should be uncertain.
    pub elsewhere: Option<(String, HeldOut)>,
    /// How raw rows became numbers, where they did not come as such.
    pub encoding: Option<Encoding>,
}

impl Problem {
    /// The problem of a config, all of whose data is here.
    pub fn new(config: &Config) -> Result<Problem, ConfigError> {
        let whole = match &config.target.model {
            ModelConfig::Named(named) => Some(from_catalogue(config, named)?),
            ModelConfig::Own(own) => Some(own::build(config, own)?),
            ModelConfig::Generated(toy) => Some(own::generate(config, toy)?),
            ModelConfig::External(external) => return Err(missing(config, &external.place)),
            ModelConfig::Builtin(_) | ModelConfig::Gaussian(_) | ModelConfig::Rows { .. } => None,
        };
        if let Some(mut problem) = whole {
            problem.statement = statement::of_target(config, &problem.parameters, &problem.clients);
            return Ok(problem);
        }
        let sites = LocalSite::open_all(config)?;
        let agreed = agree(
            config,
            None,
            &sites.iter().map(|site| site.introduce(config)).collect::<Result<Vec<_>, _>>()?,
        )?;
        let potentials = sites
            .iter()
            .map(|site| site.potential(config, &agreed.agreement))
            .collect::<Result<Vec<_>, _>>()?;
        Problem::assemble(config, potentials, agreed)
    }

    /// The problem as a server sees it: all that the sites said, and none of their rows.
    pub fn without_rows(config: &Config, agreed: Agreed) -> Result<Problem, ConfigError> {
        let dim = agreed.agreement.parameters.len();
        let absent = |rows: &u64| Arc::new(Absent::new(dim, *rows as usize)) as Arc<dyn Model>;
        // What models of the sites' own do not offer decides what can be sampled, and how.
        let models = agreed.agreement.models.as_ref().map(|models| -> Arc<dyn Model> {
            let (values, rows) = (models.derivatives, models.rows.iter().sum::<u64>() as usize);
            let offers = Offers { values, hessians: values, ..Offers::default() };
            Arc::new(Absent::new(dim, rows).offering(offers))
        });
        let potentials = agreed.rows.iter().map(absent).collect();
        let mut problem = Problem::assemble(config, potentials, agreed)?;
        problem.target.joint = models;
        Ok(problem)
    }

    /// Take in how large a row of each site can be, as the sites say: their answers have bounds
    /// then.
    pub fn bound_rows(&mut self, rows: &[Option<RowReach>]) {
        let dim = self.target.dim();
        for (client, row) in self.target.clients.iter_mut().zip(rows) {
            if let Some(row) = row {
                *client = Arc::new(Absent::new(dim, client.rows()).reaching(*row));
            }
        }
    }

    /// The problem as one site sees it: its own rows, and nobody else's.
    pub fn of_site(
        config: &Config,
        site: &LocalSite,
        agreement: &Agreement,
    ) -> Result<Problem, ConfigError> {
        let clients = names(config)?;
        let dim = agreement.parameters.len();
        let absent: Arc<dyn Model> = Arc::new(Absent::new(dim, 1));
        let mut potentials: Vec<Arc<dyn Model>> =
            clients.iter().map(|_| Arc::clone(&absent)).collect();
        if let Some(sites) = &agreement.secure {
            // how large their sum can be decides how many bits it has
            for (potential, site) in potentials.iter_mut().zip(sites) {
                *potential = Arc::new(Absent::new(dim, site.rows as usize));
            }
        }
        potentials[site.index()] = site.potential(config, agreement)?;
        let rows = potentials.iter().map(|potential| potential.rows() as u64).collect();
        let mut problem = Problem::assemble(
            config,
            potentials,
            Agreed {
                agreement: agreement.clone(),
                rows,
                notes: Vec::new(),
                warnings: Vec::new(),
                moments_bits: (0, 0),
                encoding: None,
            },
        )?;
        problem.target.joint = site.model().cloned();
        Ok(problem)
    }

    fn assemble(
        config: &Config,
        potentials: Vec<Arc<dyn Model>>,
        agreed: Agreed,
    ) -> Result<Problem, ConfigError> {
        let (parameters, clients) = (agreed.agreement.parameters, names(config)?);
        let response = agreed.agreement.moments.and_then(|moments| moments.response);
        let assembled = assemble(config, potentials, &parameters, response)?;
        let mut notes = agreed.notes;
        notes.extend(assembled.note);
        Ok(Problem {
            target: assembled.target,
            origin: assembled.origin,
            statement: statement::of_target(config, &parameters, &clients),
            parameters,
            clients,
            notes,
            warnings: agreed.warnings,
            moments_bits: agreed.moments_bits,
            held_out: None,
            elsewhere: None,
            encoding: agreed.encoding,
        })
    }
}

/// A data set of the catalogue, dealt to clients. What the clients would exchange to agree on the
/// columns' greatest values is counted.
fn from_catalogue(config: &Config, named: &NamedData) -> Result<Problem, ConfigError> {
    let complain = |problem: String, fix: &str| config.source.complain(&named.place, problem, fix);
    let fix = "see `consilience data check`; `consilience data describe` says which files it needs";
    let mut data = catalogue::load(&named.name, named.folder.as_deref())
        .map_err(|e| complain(e.to_string(), fix))?;
    let seed = Seed::new(config.seed);
    let mut notes = Vec::new();
    if let Some(rows) = named.rows.filter(|rows| *rows < data.rows()) {
        notes.push(format!("A random subset of {rows} of {} rows.", data.rows()));
        data = data.select(&partition::subset(data.rows(), rows, seed));
    }
    let dealt = partition::split(&data, &named.scheme, named.clients, seed)
        .map_err(|e| complain(e.to_string(), "correct clients, scheme or rows in [data]"))?;
    let b = dealt.rows.len();
    notes.push(format!(
        "{}: {} rows dealt to {b} clients by {}.",
        named.name,
        data.rows(),
        named.scheme
    ));
    let divisors = if named.scale { data.greatest() } else { vec![1.0; data.columns.len()] };
    let scaled = divisors.iter().filter(|divisor| **divisor != 1.0).count();
    let moments = if scaled > 0 { 64 * (b * data.columns.len()) as u64 } else { 0 };
    if scaled > 0 {
        notes.push(format!("{scaled} columns are divided by their greatest absolute value."));
    }
    let made = catalogue::encoding(&named.name, &data, Arc::clone(&named.kind))
        .map_err(|e| complain(e.to_string(), fix))?;
    let encoding = Some(made.scaled(&data.divisors(&divisors), named.intercept));
    let test_rows = |name: &str, count: usize| -> Result<HeldOut, ConfigError> {
        let rows: Vec<u32> = (0..count as u32).collect();
        let test = catalogue::load_test(name, named.folder.as_deref())
            .map_err(|e| complain(e.to_string(), fix))?
            .select(&rows);
        let design = test
            .design(&rows, named.intercept, &divisors)
            .map_err(|e| complain(e.to_string(), "use fewer test rows"))?;
        let (labels, kind) = (test.labels_of(&rows), Arc::clone(&named.kind));
        Ok(HeldOut { design, offset: Vec::new(), labels, kind })
    };
    let held_out = named.test.map(|count| test_rows(&named.name, count)).transpose()?;
    let elsewhere = match (&named.elsewhere, named.test) {
        (Some((other, most)), Some(count)) => {
            let rows = test_rows(other, count.min(*most))?;
            notes.push(format!("{} rows of {other} are of another kind.", rows.labels.len()));
            Some((other.clone(), rows))
        }
        _ => None,
    };
    let mut clients: Vec<Arc<dyn Model>> = Vec::new();
    for (name, rows) in dealt.names.iter().zip(&dealt.rows) {
        let complain = |e: DataError| {
            complain(format!("client \"{name}\": {e}"), "use another scheme, or fewer clients")
        };
        let design = data.design(rows, named.intercept, &divisors).map_err(complain)?;
        clients.push(named.kind.potential(design, data.labels_of(rows)).map_err(complain)?);
    }
    let columns: Vec<String> =
        named.intercept.then(|| "intercept".to_owned()).into_iter().chain(data.columns).collect();
    let parameters = named.kind.parameters(&columns, data.classes.as_deref());
    let Assembled { target, origin, .. } = assemble(config, clients, &parameters, None)?;
    Ok(Problem {
        target,
        origin,
        parameters,
        clients: dealt.names,
        statement: Statement::new::<&str, &str>([]),
        notes,
        warnings: Vec::new(),
        moments_bits: (moments, moments),
        held_out,
        elsewhere,
        encoding,
    })
}

/// The rows of one site, as numbers.
#[derive(Clone, Debug)]
pub struct SiteRows {
    /// The site.
    pub name: String,
    /// Their features.
    pub design: Design,
    /// What else is known of them.
    pub rows: Observed,
    /// What the groups are called that they are in, in the order of their numbers.
    pub group_names: Vec<String>,
}

/// The rows of all sites.
#[derive(Clone, Debug)]
pub struct AllRows {
    /// The names of the parameters that they have.
    pub parameters: Vec<String>,
    /// One entry a site, in order.
    pub sites: Vec<SiteRows>,
}

impl AllRows {
    /// The rows that a config states, all of which are here; `None` where it has a model without
    /// rows, or with images.
    pub fn new(config: &Config) -> Result<Option<AllRows>, ConfigError> {
        match &config.target.model {
            ModelConfig::Own(own) => own::rows(config, own).map(Some),
            ModelConfig::Builtin(_) | ModelConfig::Rows { .. } => {
                let open = LocalSite::open_all(config)?;
                let said = open.iter().map(|site| site.introduce(config));
                let agreed = agree(config, None, &said.collect::<Result<Vec<_>, _>>()?)?;
                let sites: Option<Vec<SiteRows>> = open
                    .iter()
                    .map(|site| site.rows(config, &agreed.agreement))
                    .collect::<Result<_, _>>()?;
                let parameters = agreed.agreement.parameters;
                Ok(sites.map(|sites| AllRows { parameters, sites }))
            }
            _ => Ok(None),
        }
    }
}

/// A target, where to look for its optimum first, and what is worth saying of its prior.
struct Assembled {
    target: Target,
    origin: Vec<f64>,
    note: Option<String>,
}

fn assemble(
    config: &Config,
    clients: Vec<Arc<dyn Model>>,
    parameters: &[String],
    response: Option<ResponseMoments>,
) -> Result<Assembled, ConfigError> {
    let (prior, placement) = read_prior(config, clients.len(), parameters, response)?;
    let model = config.target.model.of_rows();
    let transforms =
        model.as_ref().map_or(Transforms::default(), |model| model.transforms(parameters.len()));
    let note = match &prior {
        Prior::Laws(laws) => Some(priors::note(parameters, laws, &transforms)),
        _ => None,
    };
    let origin = priors::origin(model.as_deref(), parameters, response);
    let target = Target::new(clients, prior, placement, config.target.temperature)
        .map_err(|e| refuse(config, &e))?
        .shown_by(transforms);
    Ok(Assembled { target, origin, note })
}

fn refuse(config: &Config, error: &DataError) -> ConfigError {
    config.source.complain(&config.target.prior_place, error.to_string(), "correct [target]")
}

/// The variance of every parameter, by the groups that they belong to: the name that says most of a
/// group counts. A problem and its fix, where a name says nothing, or nothing names a group.
fn group_variances(
    stated: &[(String, f64)],
    fan_in: bool,
    groups: &[ParameterGroup],
) -> Result<Vec<f64>, (String, String)> {
    if groups.is_empty() {
        let problem = "the model has no layers, and its prior has variances by layer";
        return Err((problem.into(), "give one variance for all, or one for each".into()));
    }
    let names = |group: &ParameterGroup| {
        [group.name.clone(), group.layer.clone(), group.role.into(), EVERY_GROUP.into()]
    };
    if let Some((unknown, _)) =
        stated.iter().find(|(name, _)| !groups.iter().any(|group| names(group).contains(name)))
    {
        let known = groups.iter().map(|group| group.layer.as_str());
        let roles = groups.iter().map(|group| group.role);
        let fix = suggest(unknown, known.chain(roles).chain([EVERY_GROUP]));
        return Err((format!("no layer is called \"{unknown}\""), fix));
    }
    let mut variances = Vec::new();
    for group in groups {
        let found = names(group).into_iter().find_map(|name| {
            stated.iter().find(|(known, _)| *known == name).map(|(_, variance)| *variance)
        });
        let Some(variance) = found else {
            let problem = format!("nothing says the variance of {}", group.name);
            return Err((problem, format!("add {} = 1.0, or all = 1.0", group.role)));
        };
        let inputs = if fan_in && group.role == "weight" { group.fan_in as f64 } else { 1.0 };
        variances.extend(std::iter::repeat_n(variance / inputs, group.range.len()));
    }
    Ok(variances)
}

/// The prior that a config states for so many clients and parameters, and who applies it.
fn read_prior(
    config: &Config,
    b: usize,
    parameters: &[String],
    response: Option<ResponseMoments>,
) -> Result<(Prior, Placement), ConfigError> {
    let dim = parameters.len();
    let complain = |problem: String, fix: &str| {
        config.source.complain(&config.target.prior_place, problem, fix)
    };
    let prior = match (priors::laws(config, parameters, response)?, &config.target.prior) {
        (Some(laws), _) => Ok(laws),
        (None, PriorConfig::Flat | PriorConfig::Usual | PriorConfig::Named { .. }) => {
            Ok(Prior::Flat)
        }
        (None, PriorConfig::Gaussian(variances)) if variances.len() == 1 => {
            Prior::gaussian(variances[0], dim)
        }
        (None, PriorConfig::Gaussian(variances)) if variances.len() != dim => {
            let problem = format!("{} variances for {dim} parameters", variances.len());
            return Err(complain(problem, "give one variance for all, or one for each parameter"));
        }
        (None, PriorConfig::Gaussian(variances)) => Prior::gaussian_per_coordinate(variances),
        (None, PriorConfig::Groups { groups, fan_in }) => {
            let model = config.target.model.of_rows();
            let all = model.map_or(Vec::new(), |model| model.groups());
            let variances = group_variances(groups, *fan_in, &all);
            Prior::gaussian_per_coordinate(
                &variances.map_err(|(problem, fix)| complain(problem, &fix))?,
            )
        }
        (None, PriorConfig::Laplace(scale)) => Prior::laplace(*scale),
    };
    let placement = match &config.target.placement {
        PlacementConfig::Server if !config.sampler.row.server_applies_prior() => {
            let problem = format!(
                "the sampler \"{}\" has no server step that could apply a prior",
                config.sampler.row.name
            );
            return Err(complain(problem, "use at = \"split\", or leave `at` out"));
        }
        PlacementConfig::Default | PlacementConfig::Server => Placement::Server,
        PlacementConfig::Split(None) => Placement::Split(vec![1.0 / b as f64; b]),
        PlacementConfig::Split(Some(weights)) => Placement::Split(weights.clone()),
    };
    Ok((prior.map_err(|e| refuse(config, &e))?, placement))
}
