//! Read a site's own rows, and agree with the other sites on what columns mean: each site
//! introduces itself, all are told the agreement.

mod brought;
mod coded;
mod stated;

pub use brought::{CommonModel, OwnModel, OwnModelFacts};
use coded::{CodedTable, coded_by_sites};
pub use coded::{hear_knots, kinds, knots};
pub(crate) use stated::StatedDesign;
use stated::StatedRows;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Absent, Design, Gaussian, Model};
use serde::{Deserialize, Serialize};

use crate::config::{
    Config, ConfigError, FieldLocation, GaussianClient, Generated, ModelConfig, NamedData,
    OwnSource, RowsClient, TableSource,
};
use crate::data::knots::{KnotsAsk, KnotsTold};
use crate::data::{
    ColumnSpec, Moments, Schema, SiteReport, SiteSummary, Study, Table, builtin, differences,
    lookup,
};
use crate::encoding::Encoding;
use crate::models::{self, Explains, Observed, RowModel};
use crate::numbers::{self, Numbers};
use crate::privacy::{self, Shortened};
use crate::problem::{CodedSummary, Kinds, SiteRows, TableFacts};
use crate::site_effects::EffectsLaw;
use crate::suggest::suggest;
use crate::warnings::Warning;

/// The most rows that a site may claim.
const MOST_ROWS: u64 = 1 << 40;

/// One site with its rows.
#[derive(Clone, Debug)]
pub struct LocalSite {
    index: usize,
    name: String,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    /// A table that the sites encode alike.
    Table(Box<(Study, Table)>),
    /// Numbers that need no encoding.
    Numbers { columns: Vec<String>, potential: Arc<dyn Model>, shortened: Option<Shortened> },
    /// A table that a formula codes, alike at all sites.
    Coded(Box<CodedTable>),
    /// A table that is coded by what the config states.
    Stated(Box<StatedRows>),
    /// A model that the site brings.
    Model(OwnModel),
}

/// Where a site has its rows.
#[derive(Clone, Debug, Default)]
pub enum Own {
    /// In the config.
    #[default]
    Stated,
    /// Built in: its part of the data that the config names.
    Builtin,
    /// In a file.
    File(PathBuf),
    /// In memory, as they would stand in a file.
    Text(Arc<str>),
    /// In memory, as columns whose kinds are known.
    Table(Arc<Table>),
    /// In memory, as numbers.
    Numbers(Arc<Numbers>),
    /// With a model of its own, which alone knows them.
    Model(OwnModel),
}

impl Own {
    /// What complaints call it.
    fn name(&self) -> String {
        match self {
            Own::File(file) => file.display().to_string(),
            _ => "the site's rows".into(),
        }
    }

    /// The numbers that it holds; `None`: the config does.
    fn numbers(&self) -> Result<Option<Numbers>, String> {
        match self {
            Own::Stated => Ok(None),
            Own::Builtin => {
                Err("the config names no built-in data, and the site has no other".into())
            }
            Own::Model(_) => Err("the site brings a model of its own, and the config states \
                another"
                .into()),
            Own::File(file) => numbers::read(file).map(Some),
            Own::Text(text) => numbers::read_from(text.as_bytes(), &self.name()).map(Some),
            Own::Table(table) => numbers::of(table)
                .map(Some)
                .map_err(|problem| format!("{}: {problem}", self.name())),
            Own::Numbers(numbers) => {
                let whole = numbers.columns > 0
                    && !numbers.cells.is_empty()
                    && numbers.cells.len().is_multiple_of(numbers.columns);
                let named =
                    numbers.names.as_ref().is_none_or(|names| names.len() == numbers.columns);
                match numbers.cells.iter().position(|cell| !cell.is_finite()) {
                    _ if !whole => Err(format!(
                        "{} numbers are no rows of {} columns",
                        numbers.cells.len(),
                        numbers.columns
                    )),
                    _ if !named => {
                        Err(format!("there are {} columns and not as many names", numbers.columns))
                    }
                    Some(at) => Err(format!(
                        "row {}, column {} is not finite",
                        at / numbers.columns + 1,
                        at % numbers.columns + 1
                    )),
                    None => Ok(Some(Numbers::clone(numbers))),
                }
            }
        }
    }
}

/// What a site says of itself before anything is sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Introduction {
    /// The summary of a table.
    Table(SiteReport),
    /// The names of its columns, and how many rows it has.
    Numbers {
        /// The names.
        columns: Vec<String>,
        /// How many rows.
        rows: u64,
    },
    /// What the site says of the model that it brings.
    Model(OwnModelFacts),
    /// Which columns the site has that a formula may code.
    Columns(TableFacts),
    /// The codes of these columns, and sums of its rows, once all know what the columns are.
    Coded(CodedSummary),
    /// Counts and sums for the knots of splines.
    Knots(KnotsTold),
}

/// What all sites are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// The parameters' names.
    pub parameters: Vec<String>,
    /// How tables are encoded.
    pub moments: Option<Moments>,
    /// What is common to the models that sites bring, where they do.
    pub models: Option<CommonModel>,
    /// What sites must know of each other to hide their answers in a sum, where they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<Vec<SecureSite>>,
}

/// What the others must know of a site, so that nobody sees more than the sum of all answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecureSite {
    /// How many rows it has.
    pub rows: u64,
    /// What it shares secrets by.
    pub key: SumKey,
}

/// A site's public key for one run, and by what others know that it is this site's. All in
/// hexadecimal digits.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
pub struct SumKey {
    /// The key (X25519).
    pub public: String,
    /// The site's certificate.
    pub certificate: String,
    /// What the certificate's key signed: the run, the site and the key.
    pub signature: String,
}

/// No two signatures of one text are alike: a site that starts again says the same with another.
impl PartialEq for SumKey {
    fn eq(&self, other: &SumKey) -> bool {
        self.public == other.public
    }
}

/// The agreement, and what stays at the server.
#[derive(Clone, Debug)]
pub struct Agreed {
    /// What all sites are told.
    pub agreement: Agreement,
    /// How many rows each site has.
    pub rows: Vec<u64>,
    /// How the data was encoded, in sentences.
    pub notes: Vec<String>,
    /// What people should know of the columns.
    pub warnings: Vec<Warning>,
    /// What it cost to agree, in bits up and down.
    pub moments_bits: (u64, u64),
    /// How tables become numbers, for rows to come.
    pub encoding: Option<Encoding>,
}

/// The sites' names, in order; data sets of the catalogue have them only once they are dealt.
pub fn names(config: &Config) -> Result<Vec<String>, ConfigError> {
    Ok(match &config.target.model {
        ModelConfig::Builtin(name) => study(config, name)?.sites,
        ModelConfig::Gaussian(clients) => clients.iter().map(|c| c.name.clone()).collect(),
        ModelConfig::Rows { clients, .. } => clients.iter().map(|c| c.name.clone()).collect(),
        ModelConfig::Named(NamedData { place, .. }) => {
            return Err(in_one_process(config, place, DEALT));
        }
        ModelConfig::Generated(Generated { place, .. }) => {
            return Err(in_one_process(config, place, GENERATED));
        }
        ModelConfig::Own(own) => {
            if let Some((_, sites)) = coded_by_sites(own) {
                return Ok(sites.iter().map(|(name, _)| name.clone()).collect());
            }
            let why = match (&own.source, &own.formula) {
                (OwnSource::File { .. }, _) => DEALT,
                (OwnSource::Sites(_), Some(_)) => HELD_OUT,
                (OwnSource::Sites(_), None) => AGREED,
                (OwnSource::Synthetic(_), _) => GENERATED,
            };
            return Err(in_one_process(config, &own.place, why));
        }
        ModelConfig::External(external) if external.clients.is_empty() => {
            return Err(config.source.complain(
                &external.place,
                "the model is external, and the config does not say which sites there are",
                "add one [[client]] with a name for each site that joins with the model; or run \
                 the program that has the model, with all its clients",
            ));
        }
        ModelConfig::External(external) => {
            external.clients.iter().map(|(name, _)| name.clone()).collect()
        }
    })
}

/// Why data cannot be served, and what to do.
type Why = (&'static str, &'static str);

const DEALT: Why = (
    "this program deals the rows: no site holds a part of them",
    "deal them with `consilience data split`, and state one [[client]] for each file; or \
     `consilience run` it",
);
const GENERATED: Why = (
    "this program generates the rows: no site holds a part of them",
    "`consilience run` it; to rehearse with sites, give each a file and state one [[client]] for \
     each",
);
const HELD_OUT: Why = (
    "rows that are held out stay at their sites, and nobody there tests the draws on them",
    "remove data.test; or `consilience run` it",
);
const AGREED: Why = (
    "labels, scales and held-out rows are settled for all sites in one process",
    "give every site a CSV file of numbers, and state one [[client]] for each with response = \
     \"COLUMN\", or a formula; or `consilience run` it",
);

fn in_one_process(config: &Config, place: &FieldLocation, (problem, fix): Why) -> ConfigError {
    config.source.complain(place, problem, fix)
}

/// What complaints about built-in data and its sites' files are about: the file is named in them,
/// and no line of the config is to blame.
fn data_place() -> FieldLocation {
    FieldLocation { line: 0, field: "data".into() }
}

fn study(config: &Config, name: &str) -> Result<Study, ConfigError> {
    builtin::study(name).map_err(|e| {
        config.source.complain(
            &data_place(),
            e.to_string(),
            "this is a fault of the program: report it",
        )
    })
}

impl LocalSite {
    /// All sites of a config whose data is here.
    pub fn open_all(config: &Config) -> Result<Vec<LocalSite>, ConfigError> {
        let names = names(config)?;
        let mut tables = match &config.target.model {
            ModelConfig::Builtin(name) => {
                let fault = |e: builtin::BuiltinError| {
                    config.source.complain(
                        &data_place(),
                        e.to_string(),
                        "this is a fault of the program: report it",
                    )
                };
                builtin::tables(name).map_err(fault)?
            }
            _ => Vec::new(),
        }
        .into_iter();
        (0..names.len())
            .map(|index| LocalSite::from(config, index, tables.next(), &Own::Stated))
            .collect()
    }

    /// One site of a config, with rows of its own; where it has none the config must state them.
    pub fn open(config: &Config, index: usize, own: &Own) -> Result<LocalSite, ConfigError> {
        let mut table = None;
        if let ModelConfig::Builtin(name) = &config.target.model {
            let complain =
                |problem: String, fix: &str| config.source.complain(&data_place(), problem, fix);
            let shown = own.name();
            let reader: Box<dyn Read> = match own {
                Own::Builtin => {
                    let all = builtin::tables(name).map_err(|e| {
                        complain(e.to_string(), "this is a fault of the program: report it")
                    })?;
                    return LocalSite::from(config, index, all.into_iter().nth(index), own);
                }
                Own::File(file) => {
                    let file = std::fs::File::open(file).map_err(|e| {
                        complain(format!("{shown} cannot be read: {e}"), "check the path")
                    })?;
                    Box::new(file)
                }
                Own::Text(text) => Box::new(std::io::Cursor::new(text.as_bytes().to_vec())),
                Own::Table(table) => {
                    let Schema { columns, missing, .. } = study(config, name)?.schema;
                    let there = columns.iter().try_for_each(|spec| {
                        lookup(table, &spec.name).map(|_| ()).map_err(|e| e.to_string())
                    });
                    let read = there
                        .and_then(|()| table.reread(&columns, &missing).map_err(|e| e.to_string()));
                    let read = read.map_err(|problem| complain(problem, "correct the table"))?;
                    return LocalSite::from(config, index, Some(read), own);
                }
                Own::Stated => {
                    return Err(complain(
                        "this site's rows are not stated".into(),
                        "name its file: --data FILE",
                    ));
                }
                Own::Model(_) => {
                    return Err(complain(
                        format!("the config states the data \"{name}\", and the site a model"),
                        "leave the model out: name the site's file, --data FILE",
                    ));
                }
                Own::Numbers(_) => {
                    let fix = "give them as the text of such a file";
                    return Err(complain(
                        format!("the rows of \"{name}\" have a schema, and are no plain numbers"),
                        fix,
                    ));
                }
            };
            let read = Table::read(reader, &shown, &study(config, name)?.schema);
            table = Some(read.map_err(|e| complain(e.to_string(), "correct the file"))?);
        }
        LocalSite::from(config, index, table, own)
    }

    fn from(
        config: &Config,
        index: usize,
        table: Option<Table>,
        own: &Own,
    ) -> Result<LocalSite, ConfigError> {
        let name = names(config)?.swap_remove(index);
        let stated = StatedDesign::of(config)?;
        let data = match (&config.target.model, table) {
            (ModelConfig::Builtin(_), Some(table)) if let Some(design) = stated => {
                Data::Stated(Box::new(design.rows(config, (index, &name), &table)?))
            }
            (ModelConfig::Own(data), _) if let Some(design) = stated => {
                let table = coded::read(config, data, index, own)?;
                Data::Stated(Box::new(design.rows(config, (index, &name), &table)?))
            }
            (ModelConfig::Builtin(name), Some(table)) => {
                Data::Table(Box::new((study(config, name)?, table)))
            }
            (ModelConfig::Gaussian(clients), _) => gaussian(config, &clients[index], own)?,
            (ModelConfig::Rows { kind, intercept, clients }, _) => {
                rows(config, &clients[index], own, (&**kind, *intercept))?
            }
            (ModelConfig::Own(data), _) => {
                Data::Coded(Box::new(CodedTable::open(config, data, index, own)?))
            }
            (ModelConfig::External(external), _) => match own {
                Own::Model(model) => Data::Model(model.clone()),
                _ => return Err(crate::problem::missing(config, &external.place)),
            },
            _ => {
                return Err(config.source.complain(
                    &data_place(),
                    "a site has no table",
                    "name its file: --data FILE",
                ));
            }
        };
        Ok(LocalSite { index, name, data })
    }

    /// Its place in the list of sites.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many of its rows were shortened, where the config bounds them: for its own screen.
    pub fn shortened(&self) -> Option<Shortened> {
        match &self.data {
            Data::Numbers { shortened, .. } => *shortened,
            Data::Stated(rows) => rows.shortened,
            Data::Table(_) | Data::Coded(_) | Data::Model(_) => None,
        }
    }

    /// What it says of itself.
    pub fn introduce(&self, config: &Config) -> Result<Introduction, ConfigError> {
        Ok(match &self.data {
            Data::Table(data) => {
                let (study, table) = data.as_ref();
                let complain = |e: crate::data::EncodeError| {
                    config.source.complain(&data_place(), e.to_string(), "correct the data")
                };
                Introduction::Table(study.report(self.index, table).map_err(complain)?)
            }
            Data::Numbers { columns, potential, .. } => {
                Introduction::Numbers { columns: columns.clone(), rows: potential.rows() as u64 }
            }
            Data::Coded(table) => table.introduce(),
            Data::Stated(rows) => {
                let (columns, count) = (rows.columns.clone(), rows.potential.rows() as u64);
                Introduction::Numbers { columns, rows: count }
            }
            Data::Model(model) => model.introduce(),
        })
    }

    /// Hear what the columns of all sites are that a formula codes; say their codes and sums.
    pub fn code(
        &mut self,
        config: &Config,
        columns: Vec<ColumnSpec>,
    ) -> Result<Introduction, ConfigError> {
        match &mut self.data {
            Data::Coded(table) => table.code(config, (self.index, &self.name), columns),
            _ => Err(config.source.complain(
                &data_place(),
                "the server told the kinds of columns, and no formula codes this site's",
                "start every party with the same config",
            )),
        }
    }

    /// Say the counts and sums that are asked for the knots of splines.
    pub fn knots(&mut self, config: &Config, ask: &KnotsAsk) -> Result<Introduction, ConfigError> {
        match &mut self.data {
            Data::Coded(table) => table.knots(config, ask),
            _ => Err(config.source.complain(
                &data_place(),
                "the server asked for counts, and no formula codes this site's columns",
                "start every party with the same config",
            )),
        }
    }

    /// The model that it brings, if it does: it answers in place of its [`LocalSite::potential`],
    /// which is a placeholder.
    pub fn model(&self) -> Option<&Arc<dyn Model>> {
        if let Data::Model(own) = &self.data { Some(&own.model) } else { None }
    }

    /// Its rows as numbers, where they are of a table or plain; `None` where it has none.
    pub fn rows(
        &self,
        config: &Config,
        agreement: &Agreement,
    ) -> Result<Option<SiteRows>, ConfigError> {
        let complain = |problem: String| {
            let problem = format!("site {}: {problem}", self.name);
            config.source.complain(&data_place(), problem, "check the site's data")
        };
        if let Data::Stated(stated) = &self.data {
            return Ok(stated.rows.clone());
        }
        let (design, response) = match (&self.data, &agreement.moments, &config.target.model) {
            (Data::Table(data), Some(moments), _) => {
                let (study, table) = data.as_ref();
                let rows = study.encode(self.index, table, moments);
                let rows = rows.map_err(|e| complain(e.to_string()))?;
                let design = Design::dense(rows.cells, rows.columns);
                (design.map_err(|e| complain(e.to_string()))?, rows.response)
            }
            (Data::Numbers { .. }, _, ModelConfig::Rows { kind, intercept, clients }) => {
                if kind.row().explains == Explains::Nothing {
                    return Ok(None);
                }
                let client = &clients[self.index];
                let table = read_numbers(config, client, &Own::Stated)?;
                let bound = config.privacy.as_ref().map(|privacy| privacy.row_norm);
                let plain = features(&table, client, *intercept, bound);
                let (_, design, labels, ..) = plain.map_err(|(problem, _)| complain(problem))?;
                (design, labels)
            }
            _ => return Ok(None),
        };
        let rows = Observed { response, ..Observed::default() };
        let (name, group_names) = (self.name.clone(), Vec::new());
        Ok(Some(SiteRows { name, design, rows, group_names }))
    }

    /// The law of the effects of its own groups; `None` where the model has none.
    pub fn effects(
        &self,
        config: &Config,
        agreement: &Agreement,
    ) -> Result<Option<EffectsLaw>, ConfigError> {
        let (Data::Coded(table), Some(moments)) = (&self.data, &agreement.moments) else {
            return Ok(None);
        };
        let place = (config.seed, self.index, agreement.parameters.len());
        table.effects(&self.name, moments, place).map_err(|problem| {
            let problem = format!("site {}: {problem}", self.name);
            config.source.complain(&data_place(), problem, "check the site's data")
        })
    }

    /// The potential of its rows.
    pub fn potential(
        &self,
        config: &Config,
        agreement: &Agreement,
    ) -> Result<Arc<dyn Model>, ConfigError> {
        let complain = |problem: String| {
            config.source.complain(
                &data_place(),
                format!("site {}: {problem}", self.name),
                "check the site's data",
            )
        };
        let potential = match (&self.data, &agreement.moments) {
            (Data::Table(_), Some(_)) => {
                let Some(SiteRows { design, rows, .. }) = self.rows(config, agreement)? else {
                    return Err(complain("its table has no rows".into()));
                };
                let data = |e: DataError| complain(e.to_string());
                models::of_comparison().potential(design, rows.response).map_err(data)?
            }
            (Data::Coded(table), Some(moments)) => {
                table.potential(&self.name, moments).map_err(complain)?
            }
            (Data::Table(_) | Data::Coded(_), None) => {
                return Err(complain("the server told no moments".into()));
            }
            (Data::Numbers { potential, .. }, _) => Arc::clone(potential),
            (Data::Stated(rows), _) => {
                rows.check(agreement).map_err(complain)?;
                Arc::clone(&rows.potential)
            }
            (Data::Model(own), _) => {
                own.check(self.index, agreement).map_err(complain)?;
                Arc::new(Absent::new(own.model.dim(), own.model.rows()))
            }
        };
        if potential.dim() != agreement.parameters.len() {
            return Err(complain(format!(
                "it has {} parameters, the agreement has {}",
                potential.dim(),
                agreement.parameters.len()
            )));
        }
        Ok(potential)
    }
}

/// Merge what the sites say, in their order; refuse sites that do not fit together. Where a formula
/// codes their columns, [`kinds`] comes first, and sites say more ([`LocalSite::code`]).
pub fn agree(
    config: &Config,
    kinds: Option<&Kinds>,
    introductions: &[Introduction],
) -> Result<Agreed, ConfigError> {
    if let Some(design) = StatedDesign::of(config)? {
        return stated::agree(config, design, introductions);
    }
    if let (ModelConfig::Own(own), Some(kinds)) = (&config.target.model, kinds) {
        return coded::agree(config, own, kinds, introductions);
    }
    if let ModelConfig::Builtin(name) = &config.target.model {
        let study = study(config, name)?;
        let report = |said: &Introduction| {
            if let Introduction::Table(report) = said { Some(report.clone()) } else { None }
        };
        let reports: Vec<SiteReport> = introductions.iter().filter_map(report).collect();
        let complain = |problem: String| {
            config.source.complain(&data_place(), problem, "check the sites' data")
        };
        if reports.len() < study.sites.len() {
            return Err(complain(format!(
                "{} of {} sites sent a summary",
                reports.len(),
                study.sites.len()
            )));
        }
        let summaries: Vec<SiteSummary> =
            reports.iter().map(|report| report.summary.clone()).collect();
        let design = study.design(&reports).map_err(|e| complain(e.to_string()))?;
        return Ok(Agreed {
            rows: reports.iter().map(|report| report.summary.rows).collect(),
            encoding: Some(Encoding::of_study(&study, &design.moments, models::of_comparison())),
            agreement: Agreement {
                parameters: design
                    .moments
                    .columns
                    .iter()
                    .map(|column| column.name.clone())
                    .collect(),
                moments: Some(design.moments),
                models: None,
                secure: None,
            },
            warnings: differences::of_sums(&summaries, &study.plan),
            notes: design.notes,
            moments_bits: (design.exchanged.up, design.exchanged.down),
        });
    }
    if let ModelConfig::External(external) = &config.target.model {
        return brought::agree(config, external, introductions);
    }
    let (names, places) = (names(config)?, places(config));
    let mut first: Option<&Vec<String>> = None;
    let mut rows = Vec::new();
    for ((name, place), said) in names.iter().zip(&places).zip(introductions) {
        let complain = |problem: String, fix: &str| {
            Err(config.source.complain(place, format!("client \"{name}\": {problem}"), fix))
        };
        let Introduction::Numbers { columns, rows: count } = said else {
            return complain(
                "it sent no columns of numbers".into(),
                "start every party with the same config",
            );
        };
        if !(1..=MOST_ROWS).contains(count) || columns.is_empty() {
            return complain(
                format!("it has {count} rows and {} columns", columns.len()),
                "leave it out, or give it rows",
            );
        }
        if let Some(expected) = first
            && let Err((problem, fix)) = same_columns(columns, expected, "columns")
        {
            return complain(problem, fix);
        }
        first = first.or(Some(columns));
        rows.push(*count);
    }
    let mut parameters = first.cloned().unwrap_or_default();
    if let ModelConfig::Rows { kind, .. } = &config.target.model {
        parameters = kind.parameters(&parameters, None);
    }
    Ok(Agreed {
        agreement: Agreement { parameters, moments: None, models: None, secure: None },
        rows,
        notes: Vec::new(),
        warnings: Vec::new(),
        moments_bits: (0, 0),
        encoding: None,
    })
}

/// Check that a client has the columns, or the parameters, of the first one; else what is wrong,
/// and what would be right.
fn same_columns(
    columns: &[String],
    expected: &[String],
    what: &str,
) -> Result<(), (String, &'static str)> {
    if columns.len() != expected.len() {
        return Err((
            format!("it has {} parameters, the first client has {}", columns.len(), expected.len()),
            "all clients must have the same parameters, from the same columns in the same order",
        ));
    }
    if columns != expected {
        return Err((
            format!(
                "its {what} are {}, those of the first client {}",
                columns.join(", "),
                expected.join(", ")
            ),
            "all clients must have the same columns in the same order",
        ));
    }
    Ok(())
}

fn places(config: &Config) -> Vec<FieldLocation> {
    match &config.target.model {
        ModelConfig::Gaussian(clients) => clients.iter().map(|c| c.place.clone()).collect(),
        ModelConfig::Rows { clients, .. } => clients.iter().map(|c| c.place.clone()).collect(),
        ModelConfig::Builtin(_)
        | ModelConfig::Named(_)
        | ModelConfig::Own(_)
        | ModelConfig::Generated(_)
        | ModelConfig::External(_) => Vec::new(),
    }
}

fn elsewhere(config: &Config, place: &FieldLocation, key: &str, example: &str) -> ConfigError {
    let place = FieldLocation { line: place.line, field: format!("{}.{key}", place.field) };
    let fix = format!(
        "give the client's data, e.g. {example}; or let the client bring it, with `consilience \
         serve` and `consilience join`"
    );
    config.source.complain(&place, "it is not set", fix)
}

fn gaussian(config: &Config, client: &GaussianClient, own: &Own) -> Result<Data, ConfigError> {
    let complain = |problem: String, fix: &str| config.source.complain(&client.place, problem, fix);
    let fix = "give a CSV file with one row of the matrix a line";
    let cells = match (own.numbers().map_err(|e| complain(e, fix))?, &client.matrix) {
        (Some(numbers), _) => numbers.cells,
        (None, TableSource::Inline(cells, _)) => cells.clone(),
        (None, TableSource::File(path)) => numbers::read(path).map_err(|e| complain(e, fix))?.cells,
        (None, TableSource::Table(table)) => {
            numbers::of(table).map_err(|e| complain(e, "give the matrix as a list of rows"))?.cells
        }
        (None, TableSource::Elsewhere) => {
            return Err(elsewhere(
                config,
                &client.place,
                "mean",
                "mean = [0.0] and precision = [[1.0]]",
            ));
        }
    };
    let built = if client.is_covariance {
        Gaussian::from_covariance(client.mean.clone(), &cells)
    } else {
        Gaussian::new(client.mean.clone(), cells)
    };
    let gaussian = built.map_err(|e| {
        complain(format!("client \"{}\": {e}", client.name), "correct its mean or its matrix")
    })?;
    Ok(Data::Numbers {
        columns: (1..=client.mean.len()).map(|k| format!("x{k}")).collect(),
        potential: Arc::new(gaussian),
        shortened: None,
    })
}

fn rows(
    config: &Config,
    client: &RowsClient,
    own: &Own,
    (kind, intercept): (&dyn RowModel, bool),
) -> Result<Data, ConfigError> {
    let complain = |problem: String, fix: &str| {
        config.source.complain(&client.place, format!("client \"{}\": {problem}", client.name), fix)
    };
    let table = read_numbers(config, client, own)?;
    let file = match (own, &client.cells) {
        (Own::File(file), _) | (Own::Stated, TableSource::File(file)) => Some(file.as_path()),
        _ => None,
    };
    let (columns, potential, shortened) =
        build_client(config, &table, client, (kind, intercept), file)
            .map_err(|(problem, fix)| complain(problem, &fix))?;
    Ok(Data::Numbers { columns, potential, shortened })
}

/// The table of a client with plain numbers.
fn read_numbers(config: &Config, client: &RowsClient, own: &Own) -> Result<Numbers, ConfigError> {
    let complain = |problem: String, fix: &str| {
        config.source.complain(&client.place, format!("client \"{}\": {problem}", client.name), fix)
    };
    let fix = "give a CSV file with one row of numbers a line";
    Ok(match (own.numbers().map_err(|e| complain(e, fix))?, &client.cells) {
        (Some(numbers), _) => numbers,
        (None, TableSource::Inline(cells, columns)) => {
            Numbers { names: None, cells: cells.clone(), columns: *columns }
        }
        (None, TableSource::File(path)) => numbers::read(path).map_err(|e| complain(e, fix))?,
        (None, TableSource::Table(table)) => numbers::of(table).map_err(|e| {
            complain(e, "state a formula, which codes words and imputes what is missing")
        })?,
        (None, TableSource::Elsewhere) => {
            return Err(elsewhere(config, &client.place, "file", "file = \"basel.csv\""));
        }
    })
}

type Built = (Vec<String>, Arc<dyn Model>, Option<Shortened>);

/// The names of one client's columns, its potential and how many rows were shortened for it; or a
/// problem and its fix.
fn build_client(
    config: &Config,
    table: &Numbers,
    client: &RowsClient,
    (kind, intercept): (&dyn RowModel, bool),
    file: Option<&Path>,
) -> Result<Built, (String, String)> {
    let bound = config.privacy.as_ref().map(|privacy| (privacy.row_norm, privacy.slope));
    let names = table.column_names();
    let data = |e: DataError| (e.to_string(), "correct the client's rows".to_owned());
    if kind.row().explains == Explains::Nothing {
        let design = Design::dense(table.cells.clone(), table.columns).map_err(data)?;
        return Ok((names, kind.potential(design, Vec::new()).map_err(data)?, None));
    }
    let (columns, design, labels, response, shortened) =
        features(table, client, intercept, bound.map(|(row_norm, _)| row_norm))?;
    if let Some((row, label)) = labels.iter().enumerate().find(|(_, y)| !kind.accepts(**y)) {
        let line = file.and_then(|file| Some((file, numbers::line_of(file, row + 1)?)));
        let place = line.map_or_else(
            || format!("row {}", row + 1),
            |(file, line)| format!("{}, line {line}", file.display()),
        );
        let what = if kind.classes().is_some() { "label" } else { "response" };
        let fix = kind.remedy(&names[response], *label, None);
        return Err((format!("{place} has the {what} {label}"), fix));
    }
    let clipped = privacy::clipped(config, kind, &labels);
    let shortened = shortened.map(|shortened| Shortened { clipped, ..shortened });
    let potential = match bound {
        Some((_, slope)) => kind.bounded(slope, design, labels),
        None => kind.potential(design, labels),
    };
    Ok((columns, potential.map_err(data)?, shortened))
}

/// The names of the columns of plain numbers, their design, the response, which column it is, and
/// how many rows were shortened.
type Plain = (Vec<String>, Design, Vec<f64>, usize, Option<Shortened>);

/// Columns as they are, perhaps with ones before them and rows held to a norm; or a problem and its
/// fix.
fn features(
    table: &Numbers,
    client: &RowsClient,
    intercept: bool,
    bound: Option<f64>,
) -> Result<Plain, (String, String)> {
    let names = table.column_names();
    let data = |e: DataError| (e.to_string(), "correct the client's rows".to_owned());
    if table.columns < 2 && !intercept {
        return Err((
            "there is no column beside the response".into(),
            "add a feature, or set intercept = true".into(),
        ));
    }
    let response = match &client.response {
        None => table.columns - 1,
        Some(name) => {
            let missing = || {
                (
                    format!("there is no column \"{name}\""),
                    suggest(name, names.iter().map(String::as_str)),
                )
            };
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
    let mut columns: Vec<String> =
        names.iter().enumerate().filter(|(k, _)| *k != response).map(|(_, n)| n.clone()).collect();
    if intercept {
        columns.insert(0, "intercept".into());
    }
    let shortened = bound.map(|row_norm| privacy::shorten(&mut features, columns.len(), row_norm));
    let design = Design::dense(features, columns.len()).map_err(data)?;
    Ok((columns, design, labels, response, shortened))
}
