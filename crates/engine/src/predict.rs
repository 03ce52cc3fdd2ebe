//! Predict new rows: average the predictions of all draws, and say how far they disagree.
//!
//! Rows are raw, as those that the run was made from: its encoding is kept, and applied to them.
//! Rows of a run that was made from plain numbers are such numbers.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use consilience_core::measure::{PredictiveError, equal_tailed, mean};
use consilience_core::model::Design;
use rayon::prelude::*;
use thiserror::Error;

use crate::config::{Config, ModelConfig, OwnData, Source};
use crate::data::formats::{DataFile, Format};
use crate::data::memory::Tables;
use crate::data::{GroupBy, Table, word};
use crate::draws::Draws;
use crate::encoding::{Encoded, Encoding, EncodingError};
use crate::held_out::{HeldOut, Scores};
use crate::loo::LooError;
use crate::models::{Predicts, RowModel, places, with_a_response};
use crate::numbers::{self, Numbers};
use crate::record::Record;
use crate::site_effects::{SiteEffects, effects, effects_with};

/// Why rows cannot be predicted.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PredictError {
    /// The model says nothing of rows.
    #[error(
        "the model \"{model}\" has no response that could be predicted: use a run of a model that \
         has one, that is, {}",
        with_a_response()
    )]
    NoResponse {
        /// The model.
        model: String,
    },
    /// The run has no draws.
    #[error("the run directory has no draws to predict from")]
    NoDraws,
    /// The run's columns were coded, and how was not kept.
    #[error(
        "the run does not say how its columns were coded (it was made by an older version): run it \
         again, e.g. \
         `consilience run {config} --out NEW`, and predict from that"
    )]
    NoEncoding {
        /// The run's config.
        config: String,
    },
    /// The run's config cannot be read, and nothing else says what its model is.
    #[error(
        "the run does not say how its columns were coded, and its config is not understood: \
         {problem}"
    )]
    Config {
        /// What is wrong with it.
        problem: String,
    },
    /// The encoding is that of another run.
    #[error(
        "encoding.json has the columns {found}, where the run has the parameters {expected}: it \
         belongs to another run"
    )]
    OtherEncoding {
        /// Its columns.
        found: String,
        /// The run's.
        expected: String,
    },
    /// Rows that cannot be encoded.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// Rows that are no plain numbers.
    #[error("{problem}")]
    Numbers {
        /// What is wrong with them.
        problem: String,
    },
    /// The config and the draws are not of one run.
    #[error("the run has {found} parameters where its model has {expected}")]
    Parameters {
        /// How many the draws have.
        found: usize,
        /// How many the model has.
        expected: usize,
    },
    /// There is no header.
    #[error(
        "{file}: there is no header: its first line must name the columns, which are {columns}"
    )]
    NoHeader {
        /// The file.
        file: String,
        /// The columns that are needed.
        columns: String,
    },
    /// Rows that do not say their group.
    #[error(
        "{file}: the rows do not say their `{column}`, whose effects are known: add that column, \
         or leave --site out"
    )]
    NoGroup {
        /// The file.
        file: String,
        /// The column.
        column: String,
    },
    /// Columns are missing.
    #[error("{file}, line 1: it lacks the columns {missing}; it has {found}")]
    Missing {
        /// The file.
        file: String,
        /// The columns.
        missing: String,
        /// What there is.
        found: String,
    },
    /// A column is there twice.
    #[error("{file}, line 1: the column \"{name}\" stands there twice")]
    Twice {
        /// The file.
        file: String,
        /// The column.
        name: String,
    },
}

/// Rows to be predicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The cells of the design, row by row.
    pub cells: Vec<f64>,
    /// What is added to the predictor of every row; empty where nothing is.
    pub offset: Vec<f64>,
    /// Rows whose response is known, and what it is.
    pub labels: Vec<(usize, f64)>,
    /// What was imputed, in sentences.
    pub notes: Vec<String>,
    /// The group of every row among those whose effects are known, if it is one of these; empty
    /// where none are.
    pub groups: Vec<Option<usize>>,
}

impl From<Encoded> for Rows {
    fn from(encoded: Encoded) -> Self {
        let Encoded { cells, offset, labels, notes } = encoded;
        Rows { cells, offset, labels, notes, groups: Vec::new() }
    }
}

/// What the draws say of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The mean over the draws.
    pub mean: f64,
    /// The lower end of the equal-tailed interval.
    pub lower: f64,
    /// The upper end.
    pub upper: f64,
}

/// Draws that predict.
#[derive(Debug)]
pub struct Predictor<'a> {
    draws: &'a Draws,
    model: Arc<dyn RowModel>,
    predicts: Predicts,
    /// The columns of the design, an intercept among them.
    columns: Vec<String>,
    intercept: bool,
    encoding: Option<&'a Encoding>,
    /// The groups of one site with their effects, where these are known.
    known: Option<SiteEffects>,
}

impl<'a> Predictor<'a> {
    /// From a run that was kept.
    pub fn new(record: &'a Record) -> Result<Self, PredictError> {
        let Record { encoding, config, parameters, draws, .. } = record;
        Predictor::of(encoding.as_ref(), config, parameters, draws)
    }

    /// From draws of a config's parameters, wherever they come from.
    pub fn of(
        encoding: Option<&'a Encoding>,
        config: &str,
        parameters: &[String],
        draws: &'a Draws,
    ) -> Result<Self, PredictError> {
        let (model, intercept, columns) = match encoding {
            Some(encoding) => (Arc::clone(encoding.model()), false, encoding.columns()),
            None => plain(config, parameters)?,
        };
        let Some(predicts) = model.predicts() else {
            return Err(PredictError::NoResponse { model: model.row().name.into() });
        };
        if draws.length() == 0 {
            return Err(PredictError::NoDraws);
        }
        let expected = model.dim(columns.len());
        if expected != draws.dim() {
            return Err(PredictError::Parameters { found: draws.dim(), expected });
        }
        let fits = |(column, name): (&String, &String)| {
            name == column || name.starts_with(&format!("{column}["))
        };
        if model.is_linear() && !columns.iter().zip(parameters).all(fits) {
            let (found, expected) = (columns.join(", "), parameters.join(", "));
            return Err(PredictError::OtherEncoding { found, expected });
        }
        Ok(Predictor { draws, model, predicts, columns, intercept, encoding, known: None })
    }

    /// The same for rows of a site that took part in a run with effects of groups, by the draws of
    /// those of its own; its rows, those of this file or of the one that the config names, are
    /// needed for that. A row of a group that the site has not is one of a group that nobody has
    /// seen.
    pub fn of_site(
        self,
        record: &Record,
        site: &str,
        file: Option<&Path>,
    ) -> Result<Self, LooError> {
        Ok(Predictor { known: Some(effects(record, site, file)?), ..self })
    }

    /// The same where clients of these names have their rows in memory.
    pub fn of_site_with(
        self,
        record: &Record,
        site: &str,
        tables: &Tables,
    ) -> Result<Self, LooError> {
        Ok(Predictor { known: Some(effects_with(record, site, tables)?), ..self })
    }

    /// Whether new rows may say their site, whoever's effects are known: sites have columns.
    pub fn has_site_terms(&self) -> bool {
        self.encoding().is_some_and(|encoding| encoding.usual_site().is_some())
    }

    /// Whether rows of a site that took part can be predicted by the effects of its groups.
    pub fn has_effects(&self) -> bool {
        self.model.group_by().is_some()
    }

    /// The model given the effects of groups.
    fn given(&self) -> &dyn RowModel {
        &**self.model.within().unwrap_or(&self.model)
    }

    /// The effects of a row's group at a draw, where they are known.
    fn effects_of(&self, groups: &[Option<usize>], row: usize, k: usize) -> Option<&[f64]> {
        let known = self.known.as_ref()?;
        let group = groups.get(row).copied().flatten()?;
        let each = known.draws.dim() / known.groups.len().max(1);
        known.draws.row(k)?.get(group * each..(group + 1) * each)
    }

    /// What one draw expects of rows.
    fn expected(
        &self,
        design: &Design,
        (offset, groups): (&[f64], &[Option<usize>]),
        k: usize,
        draw: &[f64],
    ) -> Vec<f64> {
        if self.known.is_none() {
            return self.model.predicted(design, offset, draw);
        }
        let model = self.given();
        let mut predictors = self.model.adjusted_predictors(design, offset, draw);
        for (row, t) in predictors.chunks_exact_mut(model.predictors()).enumerate() {
            match self.effects_of(groups, row, k) {
                Some(effects) => {
                    let effect = self.model.effect_at(effects, design, row);
                    t.iter_mut().for_each(|t| *t += effect);
                    model.expect(t, &self.model.beside_within(draw, design, row));
                }
                None => self.model.expect(t, &self.model.beside_at(draw, design, row)),
            }
        }
        predictors
    }

    /// Say of every row which of the known groups it is in.
    fn find_groups(
        &self,
        mut rows: Rows,
        table: impl FnOnce() -> Result<Table, PredictError>,
    ) -> Result<Rows, PredictError> {
        let Some(known) = &self.known else { return Ok(rows) };
        let count = rows.cells.len() / self.columns.len().max(1);
        let Some(GroupBy::Column(name)) = self.model.group_by() else {
            rows.groups = vec![Some(0); count]; // the site is the group
            return Ok(rows);
        };
        let table = table()?;
        let Some((_, column)) = table.column(name) else {
            return Err(PredictError::NoGroup { file: table.file().into(), column: name.clone() });
        };
        let group = |row: usize| {
            let word = word(column, row)?;
            known.groups.iter().position(|group| *group == word)
        };
        rows.groups = (0..count).map(group).collect();
        let others = rows.groups.iter().filter(|group| group.is_none()).count();
        if others > 0 {
            rows.notes.push(format!(
                "{others} of {count} rows are of a `{name}` that the site has no rows of: they are \
                 predicted as of one that nobody has seen."
            ));
        }
        Ok(rows)
    }

    /// How the run's raw rows became numbers, where they did not come as such.
    pub fn encoding(&self) -> Option<&Encoding> {
        self.encoding
    }

    /// Read rows from a file. All of them are of this site, where one is named and sites have
    /// effects.
    pub fn read(&self, path: &Path, site: Option<&str>) -> Result<Rows, PredictError> {
        if let Some(encoding) = self.encoding {
            let rows = encoding.read(path, site)?.into();
            return self.find_groups(rows, || {
                let table = DataFile::new(path).table(None);
                table.map_err(|e| EncodingError::from(e).into())
            });
        }
        let file = path.display().to_string();
        let table = match DataFile::new(path).format() {
            Ok(Format::Parquet) => DataFile::new(path)
                .table(None)
                .map_err(|e| e.to_string())
                .and_then(|table| numbers::of(&table)),
            _ => numbers::read(path),
        };
        self.plain_rows(&table.map_err(|problem| PredictError::Numbers { problem })?, &file, site)
    }

    /// Take rows of a table in memory.
    pub fn rows(&self, table: &Table, site: Option<&str>) -> Result<Rows, PredictError> {
        if let Some(encoding) = self.encoding {
            let rows = encoding.encode(table, site)?.into();
            return self.find_groups(rows, || Ok(table.clone()));
        }
        let numbers = numbers::of(table).map_err(|problem| PredictError::Numbers {
            problem: format!("{}: {problem}", table.file()),
        })?;
        self.plain_rows(&numbers, table.file(), site)
    }

    fn plain_rows(
        &self,
        table: &Numbers,
        file: &str,
        site: Option<&str>,
    ) -> Result<Rows, PredictError> {
        if let Some(site) = site {
            return Err(EncodingError::NeedlessSite { site: site.into() }.into());
        }
        let cells = self.design(table, file)?;
        Ok(Rows { cells, ..Rows::default() })
    }

    /// How well the rows whose response is known are predicted, where there are any.
    pub fn score(&self, rows: &Rows) -> Result<Option<Scores>, String> {
        if rows.labels.is_empty() || self.known.is_some() {
            return Ok(None); // rows of a known group are not new ones
        }
        let width = self.columns.len();
        let cells = rows
            .labels
            .iter()
            .flat_map(|(row, _)| &rows.cells[row * width..(row + 1) * width])
            .copied()
            .collect();
        let design = Design::dense(cells, width).map_err(|e| e.to_string())?;
        if let Some((row, label)) = rows.labels.iter().find(|(_, y)| !self.model.accepts(*y)) {
            let (title, responses) = (self.model.row().title, self.model.responses());
            return Err(format!(
                "row {} has the response {label}, and {title} explains {responses}: correct it, or \
                 leave it empty",
                row + 1
            ));
        }
        let labels = rows.labels.iter().map(|(_, label)| *label).collect();
        let of = |(row, _): &(usize, f64)| rows.offset.get(*row).copied();
        let offset = rows.labels.iter().filter_map(of).collect();
        let held_out = HeldOut { design, offset, labels, kind: Arc::clone(&self.model) };
        held_out.score(self.draws).map_err(|e: PredictiveError| e.to_string())
    }

    /// What is predicted, in words.
    pub fn predicts(&self) -> Predicts {
        self.predicts
    }

    /// How many numbers a row's prediction has.
    pub fn outputs(&self) -> usize {
        self.model.predictors()
    }

    /// The columns that a table of plain numbers needs.
    fn needed(&self) -> &[String] {
        &self.columns[usize::from(self.intercept)..]
    }

    /// The design of a table whose header names the columns, in any order; columns that the model
    /// does not know are left aside.
    fn design(&self, table: &Numbers, file: &str) -> Result<Vec<f64>, PredictError> {
        let file = || file.to_owned();
        let quoted = |names: &[String]| {
            names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ")
        };
        let Some(names) = &table.names else {
            return Err(PredictError::NoHeader { file: file(), columns: quoted(self.needed()) });
        };
        let (mut places, mut missing) = (Vec::new(), Vec::new());
        for name in self.needed() {
            let mut found = names.iter().enumerate().filter(|(_, n)| *n == name).map(|(k, _)| k);
            match (found.next(), found.next()) {
                (Some(place), None) => places.push(place),
                (None, _) => missing.push(name.clone()),
                (Some(_), Some(_)) => {
                    return Err(PredictError::Twice { file: file(), name: name.clone() });
                }
            }
        }
        if !missing.is_empty() {
            return Err(PredictError::Missing {
                file: file(),
                missing: quoted(&missing),
                found: quoted(names),
            });
        }
        let mut design = Vec::with_capacity(table.cells.len());
        for row in table.cells.chunks_exact(table.columns) {
            design.extend(self.intercept.then_some(1.0));
            design.extend(places.iter().map(|place| row[*place]));
        }
        Ok(design)
    }

    /// Predict every row: one number a row, or one for every class. Intervals have this
    /// mass; what they are of [`Predictor::predicts`] says: how far the draws disagree, or a new
    /// response, noise included.
    pub fn predict(&self, rows: &Rows, mass: f64) -> Vec<Vec<Prediction>> {
        let width = self.columns.len();
        let parts = rows.cells.par_chunks(ROWS_AT_ONCE * width.max(1)).enumerate();
        fn part<T>(all: &[T], part: usize) -> &[T] {
            let rest = all.get(part * ROWS_AT_ONCE..).unwrap_or_default();
            &rest[..rest.len().min(ROWS_AT_ONCE)]
        }
        let beside = |k: usize| (part(&rows.offset, k), part(&rows.groups, k));
        parts.flat_map_iter(|(k, cells)| self.predict_rows(cells, beside(k), mass)).collect()
    }

    /// What is expected of every row, and how far the draws disagree on that: without the noise of
    /// a new response, whatever [`Predictor::predicts`] says.
    pub fn expect(&self, rows: &Rows, mass: f64) -> Vec<Vec<Prediction>> {
        let width = self.columns.len();
        let Ok(design) = Design::dense(rows.cells.clone(), width) else { return Vec::new() };
        let mut values = vec![Vec::new(); design.rows() * self.outputs()];
        for (k, draw) in self.draws.rows().enumerate() {
            let all = self.expected(&design, (&rows.offset, &rows.groups), k, draw);
            values.iter_mut().zip(all).for_each(|(values, value)| values.push(value));
        }
        let of = |values: &Vec<f64>| {
            let (lower, upper) = equal_tailed(values, mass).unwrap_or((f64::NAN, f64::NAN));
            Prediction { mean: mean(values), lower, upper }
        };
        values.chunks_exact(self.outputs()).map(|row| row.iter().map(of).collect()).collect()
    }

    /// The probability of every level of every row, where responses have levels in an order: by the
    /// draws' mean, and how far they disagree. Else nothing.
    pub fn levels(&self, rows: &Rows, mass: f64) -> Vec<Vec<Prediction>> {
        let Ok(design) = Design::dense(rows.cells.clone(), self.columns.len()) else {
            return Vec::new();
        };
        let mut values: Vec<Vec<Vec<f64>>> = vec![Vec::new(); design.rows()];
        for (k, draw) in self.draws.rows().enumerate() {
            let predictors = self.model.adjusted_predictors(&design, &rows.offset, draw);
            for (row, values) in values.iter_mut().enumerate() {
                let t = predictors[row * self.outputs()];
                let said = match self.effects_of(&rows.groups, row, k) {
                    Some(effects) => {
                        let beside = self.model.beside_within(draw, &design, row);
                        let effect = self.model.effect_at(effects, &design, row);
                        self.given().levels(t + effect, &beside)
                    }
                    None => self.model.levels(t, &self.model.beside_at(draw, &design, row)),
                };
                values.resize(said.len(), Vec::new());
                values.iter_mut().zip(said).for_each(|(values, p)| values.push(p));
            }
        }
        let of = |values: &Vec<f64>| {
            let (lower, upper) = equal_tailed(values, mass).unwrap_or((f64::NAN, f64::NAN));
            Prediction { mean: mean(values), lower, upper }
        };
        let any = values.iter().any(|row| !row.is_empty());
        values.iter().filter(|_| any).map(|row| row.iter().map(of).collect()).collect()
    }

    /// Predict some rows: what every draw says of them, then each row by all draws.
    fn predict_rows(
        &self,
        rows: &[f64],
        (offset, groups): (&[f64], &[Option<usize>]),
        mass: f64,
    ) -> Vec<Vec<Prediction>> {
        let (outputs, width) = (self.outputs(), self.columns.len());
        let Ok(design) = Design::dense(rows.to_vec(), width) else {
            // what is no number predicts none
            let none = Prediction { mean: f64::NAN, lower: f64::NAN, upper: f64::NAN };
            return vec![vec![none; outputs]; rows.len() / width.max(1)];
        };
        let draws = self.draws.chains() * self.draws.length();
        let mut values = vec![Vec::with_capacity(draws); design.rows() * outputs];
        for (k, draw) in self.draws.rows().enumerate() {
            let all = self.expected(&design, (offset, groups), k, draw);
            values.iter_mut().zip(all).for_each(|(values, value)| values.push(value));
        }
        let of = |values: &mut Vec<f64>, is_known: bool, beside: &[&[f64]]| {
            let mean = mean(values);
            match is_known {
                true => self.given().scatter(values, beside),
                false => self.model.scatter(values, beside),
            }
            let (lower, upper) = equal_tailed(values, mass).unwrap_or((f64::NAN, f64::NAN));
            Prediction { mean, lower, upper }
        };
        let rows = values.chunks_exact_mut(outputs).enumerate();
        rows.map(|(row, values)| {
            let is_known = self.effects_of(groups, row, 0).is_some();
            let at = |draw| match is_known {
                true => self.model.beside_within(draw, &design, row),
                false => self.model.beside_at(draw, &design, row),
            };
            let beside: Vec<Cow<'_, [f64]>> = self.draws.rows().map(at).collect();
            let beside: Vec<&[f64]> = beside.iter().map(|beside| &**beside).collect();
            values.iter_mut().map(|values| of(values, is_known, &beside)).collect()
        })
        .collect()
    }
}

/// So many rows are predicted at a time.
const ROWS_AT_ONCE: usize = 64;

/// A model, whether it has an intercept, and its columns.
type Plain = (Arc<dyn RowModel>, bool, Vec<String>);

/// The model of a run whose rows were plain numbers, and its columns; a run whose columns were
/// coded in a way that it does not tell is refused.
fn plain(config: &str, parameters: &[String]) -> Result<Plain, PredictError> {
    const FILE: &str = "config.toml";
    let source = Source { file: FILE.into(), folder: ".".into(), text: config.into() };
    let config =
        Config::parse(source).map_err(|e| PredictError::Config { problem: e.to_string() })?;
    let none = |model: &str| Err(PredictError::NoResponse { model: model.into() });
    let (kind, intercept) = match &config.target.model {
        ModelConfig::Builtin(_) | ModelConfig::Named(_) => {
            return Err(PredictError::NoEncoding { config: FILE.into() });
        }
        ModelConfig::Own(own) if is_coded(own) => {
            return Err(PredictError::NoEncoding { config: FILE.into() });
        }
        ModelConfig::Own(own) => (
            Arc::clone(&own.kind),
            parameters.first().is_some_and(|name| own.intercept && name.starts_with("intercept")),
        ),
        ModelConfig::Gaussian(_) | ModelConfig::Generated(_) => return none("gaussian"),
        ModelConfig::External(_) => return none("external"),
        ModelConfig::Rows { kind, intercept, .. } => (Arc::clone(kind), *intercept),
    };
    let columns = match kind.columns() {
        Some(columns) => (1..=columns).map(|k| format!("x{k}")).collect(),
        None => columns_of(parameters, &*kind),
    };
    Ok((kind, intercept, columns))
}

/// Whether the columns of such data are changed before a model sees them.
fn is_coded(own: &OwnData) -> bool {
    own.formula.is_some() || own.scale
}

/// The columns of the design that a run's parameters belong to.
fn columns_of(parameters: &[String], kind: &dyn RowModel) -> Vec<String> {
    let predictors = kind.predictors();
    if predictors == 1 {
        let own = parameters.len().saturating_sub(places(&kind.beside()));
        return parameters[..own].to_vec();
    }
    let first = &parameters[..parameters.len() / predictors.max(1)];
    let column = |name: &String| {
        name.rsplit_once('[').map_or(name.as_str(), |(column, _)| column).to_owned()
    }; // `column[class]`
    first.iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use consilience_core::measure::normal_quantile;

    use super::*;
    use crate::rundir::tests::record;

    /// A run that was made from plain numbers.
    fn run(model: &str, parameters: &[&str], chains: Vec<Vec<f64>>) -> Record {
        let config = format!(
            "[target]\n{model}\nprior = {{ law = \"gaussian\", variance = 1.0 }}\n[[client]]\n\
             rows = [[0.5, 1], [0.1, 0]]\n[sampler]\nname = \"lmc\"\nstep = 0.1"
        );
        let parameters: Vec<String> = parameters.iter().map(|p| (*p).to_owned()).collect();
        let draws = Draws::from_chains(chains, parameters.len());
        Record {
            config,
            draws,
            parameters,
            statistics: Vec::new(),
            choice: None,
            bias: None,
            exchanges: (0, 0),
            reference: None,
            encoding: None,
            ..record()
        }
    }

    fn plain_rows(cells: Vec<f64>) -> Rows {
        Rows { cells, ..Rows::default() }
    }

    fn table(names: &[&str], cells: &[f64]) -> Numbers {
        Numbers {
            names: Some(names.iter().map(|n| (*n).to_owned()).collect()),
            cells: cells.to_vec(),
            columns: names.len(),
        }
    }

    #[test]
    fn probabilities_by_hand() {
        let run = run(
            "model = \"logistic\"",
            &["intercept", "x1"],
            vec![vec![0.0, 1.0], vec![1.0, -2.0]],
        );
        let predictor = Predictor::new(&run).unwrap();
        assert_eq!(
            (predictor.needed(), predictor.predicts().kind),
            (&["x1".to_owned()][..], "probability")
        );
        let design =
            predictor.design(&table(&["other", "x1"], &[9.0, 0.5, 9.0, 2.0]), "new.csv").unwrap();
        assert_eq!(design, [1.0, 0.5, 1.0, 2.0]);
        let rows = predictor.predict(&plain_rows(design), 0.5);
        let sigmoid = |t: f64| 1.0 / (1.0 + (-t).exp());
        let (low, high) = (sigmoid(0.0), sigmoid(0.5));
        let first = rows[0][0];
        assert!((first.mean - 0.5 * (low + high)).abs() < 1e-12);
        assert!(
            (first.lower - (0.75 * low + 0.25 * high)).abs() < 1e-12
                && (first.upper - (0.25 * low + 0.75 * high)).abs() < 1e-12
        );
        assert!((rows[1][0].mean - 0.5 * (sigmoid(2.0) + sigmoid(-3.0))).abs() < 1e-12);
    }

    #[test]
    fn classes_by_hand() {
        let names = ["intercept[0]", "x1[0]", "intercept[1]", "x1[1]", "intercept[2]", "x1[2]"];
        let run = run(
            "model = \"softmax\"\nclasses = 3",
            &names,
            vec![vec![0.0, 1.0, 0.5, 0.0, -1.0, 2.0]],
        );
        let predictor = Predictor::new(&run).unwrap();
        let rows = predictor.design(&table(&["x1"], &[3.0]), "new.csv").unwrap();
        let rows = predictor.predict(&plain_rows(rows), 0.94);
        let scores = [3.0f64.exp(), 0.5f64.exp(), 5.0f64.exp()];
        for (prediction, score) in rows[0].iter().zip(scores) {
            assert!((prediction.mean - score / scores.iter().sum::<f64>()).abs() < 1e-12);
        }
    }

    /// Parameters with standard deviation 2 and noise with standard deviation 1.5 make a new
    /// response with 2.5.
    #[test]
    fn a_new_number_has_its_noise() {
        let n = 20_000;
        // Quantiles in an order of their own.
        let draws: Vec<f64> = (0..n)
            .map(|k| 2.0 * normal_quantile(((k * 7919 % n) as f64 + 0.5) / n as f64))
            .collect();
        let run = run(
            "model = \"linear\"\nintercept = false\nnoise_variance = 2.25",
            &["x1"],
            vec![draws],
        );
        let predictor = Predictor::new(&run).unwrap();
        let of = predictor.predict(&plain_rows(vec![1.0]), 0.94)[0][0];
        let end = 2.5 * normal_quantile(0.97);
        assert!(of.mean.abs() < 1e-9);
        assert!(
            (of.lower + end).abs() < 0.03 * end && (of.upper - end).abs() < 0.03 * end,
            "{of:?} {end}"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let run =
            run("model = \"logistic\"", &["intercept", "age", "sex: male"], vec![vec![0.0; 3]]);
        let predictor = Predictor::new(&run).unwrap();
        let refused = |table: &Numbers| predictor.design(table, "new.csv").unwrap_err().to_string();
        assert_eq!(
            refused(&table(&["x", "age"], &[0.0, 0.0])),
            "new.csv, line 1: it lacks the columns \"sex: male\"; it has \"x\", \"age\""
        );
        assert!(
            refused(&table(&["age", "age", "sex: male"], &[0.0; 3]))
                .contains("\"age\" stands there twice")
        );
        assert!(
            refused(&Numbers { names: None, cells: vec![0.0; 2], columns: 2 })
                .contains("\"age\", \"sex: male\"")
        );
        let gaussian = "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [1.0]\n\
            precision = [[2.0]]\n[sampler]\nname = \"lmc\"\nstep = 0.1";
        let gaussian = Record { config: gaussian.into(), ..run.clone() };
        assert!(matches!(Predictor::new(&gaussian), Err(PredictError::NoResponse { .. })));
        let empty = Record { draws: Draws::new(3), ..run.clone() };
        assert_eq!(Predictor::new(&empty).unwrap_err(), PredictError::NoDraws);
    }
}
