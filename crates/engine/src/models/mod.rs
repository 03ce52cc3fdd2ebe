//! List every model: one row a name that users write, one file a model.
//!
//! A model of rows is a [`RowModel`]: how it is built, what its parameters are called, what it
//! predicts and how it is scored are its methods, and whoever needs one of these asks the trait.
//! Nobody else asks which model it is.

mod gaussian;
pub mod kept;
mod linear;
mod logistic;
mod poisson;
mod softmax;

use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Design, Model};
use serde_json::Value as Json;
use toml::de::DeTable;

use crate::config::ConfigError;
use crate::config::fields::Field;
use crate::config::reader::{Document, Section, Value};

/// Every model, in the order in which they are listed. Where data with classes names no model, it
/// is the first that explains so many.
pub const MODELS: &[&ModelRow] = &[
    &gaussian::GAUSSIAN,
    &gaussian::ISOTROPIC,
    &linear::ROW,
    &logistic::ROW,
    &softmax::ROW,
    &poisson::ROW,
    &EXTERNAL,
];

/// The model of a formula that compares, and names none.
pub const OF_COMPARISON: &ModelRow = &logistic::ROW;

/// That model; it has no settings.
pub fn of_comparison() -> Arc<dyn RowModel> {
    Arc::new(logistic::Logistic)
}

/// The model of a formula that compares nothing, and names none.
pub const OF_VALUE: &ModelRow = &linear::ROW;

/// A model that the program brings, with its clients.
const EXTERNAL: ModelRow = ModelRow {
    name: "external",
    title: "a model of the program's own",
    says: "brought by the program that reads the config, with its clients",
    reads: Reads::Program,
    explains: Explains::Nothing,
    by_formula: false,
    fields: &[],
    example: "",
};

/// One model as users know it.
#[derive(Debug)]
pub struct ModelRow {
    /// Its name in configs.
    pub name: &'static str,
    /// What sentences call it.
    pub title: &'static str,
    /// What it says of a client's data, in one line.
    pub says: &'static str,
    /// What it reads.
    pub reads: Reads,
    /// What it explains.
    pub explains: Explains,
    /// Whether a formula may state its columns.
    pub by_formula: bool,
    /// Its settings in `[target]`, beside those that all models have.
    pub fields: &'static [Field],
    /// Settings with which it can be tried, as lines of `[target]`.
    pub example: &'static str,
}

/// What a model is built from.
#[derive(Clone, Copy, Debug)]
pub enum Reads {
    /// A mean and a matrix of every client.
    Moments,
    /// Every client's rows. The settings of `[target]` make it.
    Rows(ReadRows),
    /// Nothing: the program that reads the config brings it.
    Program,
}

/// What the response of a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explains {
    /// It has none.
    Nothing,
    /// A number.
    Numbers,
    /// One of two classes.
    TwoClasses,
    /// One of as many classes as its settings say.
    Classes,
}

impl Explains {
    /// Whether a response of so many classes can be explained.
    pub fn fits(self, classes: usize) -> bool {
        match self {
            Explains::Nothing | Explains::Numbers => false,
            Explains::TwoClasses => classes == 2,
            Explains::Classes => classes >= 2,
        }
    }
}

/// How rows and settings make a model.
pub type ReadRows = fn(&Stated<'_>) -> Result<Arc<dyn RowModel>, ConfigError>;

impl ModelRow {
    /// How rows and settings make such a model, where it explains a response by rows.
    pub fn reader(&self) -> Option<ReadRows> {
        match self.reads {
            Reads::Rows(read) if self.explains != Explains::Nothing => Some(read),
            _ => None,
        }
    }
}

/// What a prediction is, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicts {
    /// For programs.
    pub kind: &'static str,
    /// What is predicted, where nothing says what the response is called.
    pub what: &'static str,
    /// What stands before the response's name, where that is known and wanted.
    pub of: Option<&'static str>,
    /// What the interval is of.
    pub interval: &'static str,
}

/// A model of rows with its settings.
pub trait RowModel: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Its row.
    fn row(&self) -> &'static ModelRow;

    /// Its settings, by their keys in `[target]`: with them the row makes this model again.
    fn settings(&self) -> Vec<(&'static str, Json)> {
        Vec::new()
    }

    /// The model with its settings, in words that parties agree on.
    fn statement(&self) -> String {
        self.row().title.into()
    }

    /// How many classes the response has; `None`: it is a number, or there is none.
    fn classes(&self) -> Option<usize> {
        None
    }

    /// How many linear predictors a row has. Each has a parameter for every column.
    fn predictors(&self) -> usize {
        1
    }

    /// The potential of one client's rows. A model without a response is given none.
    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError>;

    /// Whether this can be a response; classes are numbered from 0.
    fn accepts(&self, y: f64) -> bool {
        self.classes()
            .map_or(y.is_finite(), |classes| y >= 0.0 && y.fract() == 0.0 && y < classes as f64)
    }

    /// Which responses there are, in words.
    fn responses(&self) -> String {
        self.classes().map_or("finite numbers".into(), |classes| {
            format!("whole numbers from 0 to {}", classes - 1)
        })
    }

    /// What to do about a response that cannot be: in this column, explained by a formula with
    /// this right side, if by any.
    fn remedy(&self, _column: &str, _found: f64, _right: Option<&str>) -> String {
        format!("the response must be one of {}", self.responses())
    }

    /// The parameters' names, from those of the columns and of the classes.
    fn parameters(&self, columns: &[String], classes: Option<&[String]>) -> Vec<String> {
        if self.predictors() == 1 {
            return columns.to_vec();
        }
        let class = |k: usize| {
            classes.and_then(|names| names.get(k).cloned()).unwrap_or_else(|| k.to_string())
        };
        let of = |k: usize| columns.iter().map(move |column| format!("{column}[{}]", class(k)));
        (0..self.predictors()).flat_map(of).collect()
    }

    /// What is explained, in words, where the response is this column as it is.
    fn explained(&self, column: &str, _classes: Option<&[String]>) -> Option<String> {
        Some(column.into())
    }

    /// What a prediction is; `None`: nothing can be predicted.
    fn predicts(&self) -> Option<Predicts>;

    /// From a row's predictors to what one draw expects: a number, or the probabilities of classes
    /// (of the last alone, where there is one predictor).
    fn expect(&self, predictors: &mut [f64]);

    /// Make of what the draws expect what they say of a new response: add its noise, where
    /// intervals are of that.
    fn scatter(&self, _expected: &mut [f64]) {}

    /// The log-density, or log-probability, of a number as response. Models with classes need none.
    fn log_density(&self, _predictor: f64, _y: f64) -> f64 {
        f64::NAN
    }
}

impl PartialEq for dyn RowModel {
    fn eq(&self, other: &Self) -> bool {
        self.row().name == other.row().name && self.settings() == other.settings()
    }
}

/// Names and rows of the models that a config may state here.
pub(crate) fn choices(may: impl Fn(&ModelRow) -> bool) -> Vec<(&'static str, &'static ModelRow)> {
    MODELS.iter().filter(|row| may(row)).map(|row| (row.name, *row)).collect()
}

/// The names of models that explain a response, in a sentence.
pub fn with_a_response() -> String {
    let names: Vec<&str> =
        MODELS.iter().filter(|row| row.reader().is_some()).map(|row| row.name).collect();
    names.join(", ")
}

/// The settings of a model as `[target]` states them.
pub struct Stated<'a> {
    section: &'a Section<'a>,
    classes: Option<usize>,
}

impl<'a> Stated<'a> {
    /// What this table says.
    pub(crate) fn new(section: &'a Section<'a>) -> Self {
        Stated { section, classes: None }
    }

    /// The same where the data says how many classes there are.
    pub(crate) fn with_classes(self, classes: usize) -> Self {
        Stated { classes: Some(classes), ..self }
    }

    /// How many classes there are, if the data says so.
    fn classes(&self) -> Option<usize> {
        self.classes
    }

    /// A setting that must be there, or a complaint with this fix.
    fn need(&self, key: &'static str, fix: &str) -> Result<Value<'a>, ConfigError> {
        self.section.need(key, fix)
    }

    /// A setting that may be there.
    fn get(&self, key: &'static str) -> Option<Value<'a>> {
        self.section.get(key)
    }
}

/// Build a model from lines such as stand in `[target]`.
pub fn from_settings(text: &str) -> Result<Arc<dyn RowModel>, ConfigError> {
    let document = Document { file: "the model's settings", text };
    let wrong =
        |problem: &str| document.error(&(0..0), "TOML", problem, "see `consilience fields`");
    let table = DeTable::parse(text).map_err(|e| wrong(e.message()))?;
    let section = Section::new(document, "target", table.span(), table.get_ref());
    let row = section.need("model", "name it")?.choice(&choices(|_| true))?;
    match row.reads {
        Reads::Rows(read) => read(&Stated::new(&section)),
        Reads::Moments | Reads::Program => {
            Err(wrong(&format!("the model \"{}\" reads no rows", row.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use consilience_core::model::contract;
    use consilience_core::rng::{ClientId, Purpose, Seed};

    use super::*;

    /// Every model of rows with the settings of its example.
    fn examples() -> Vec<Arc<dyn RowModel>> {
        let of = |row: &&&ModelRow| matches!(row.reads, Reads::Rows(_));
        let make = |row: &&ModelRow| {
            from_settings(&format!("model = \"{}\"\n{}", row.name, row.example)).unwrap()
        };
        MODELS.iter().filter(of).map(make).collect()
    }

    fn normals(address: u64, n: usize) -> Vec<f64> {
        let mut z = vec![0.0; n];
        Seed::new(5).stream(Purpose::Data, ClientId(0), address).normals(&mut z);
        z
    }

    /// Thirteen responses that a model accepts, not all of them alike.
    fn responses(model: &dyn RowModel) -> Vec<f64> {
        if model.row().explains == Explains::Nothing {
            return Vec::new();
        }
        let classes = model.classes().unwrap_or(4);
        let whole = (0..13).map(|j| (j % classes) as f64).collect();
        [normals(1, 13), whole]
            .into_iter()
            .find(|all| all.iter().all(|y| model.accepts(*y)))
            .unwrap()
    }

    #[test]
    fn every_model_of_the_registry_keeps_what_models_promise() {
        for model in examples() {
            let design = Design::dense(normals(2, 39), 3).unwrap();
            let potential = model.potential(design, responses(&*model)).unwrap();
            let columns: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
            assert_eq!(potential.dim(), model.parameters(&columns, None).len(), "{model:?}");
            contract::check(&potential).unwrap_or_else(|broken| panic!("{model:?}: {broken}"));
        }
    }

    #[test]
    fn settings_make_the_model_again() {
        for model in examples() {
            let again = kept::read(&kept::write(&*model)).unwrap();
            assert_eq!(*again, *model);
            assert_eq!(again.statement(), model.statement());
        }
    }

    #[test]
    fn a_response_that_a_model_does_not_explain_is_refused_by_its_potential_too() {
        for model in examples().iter().filter(|model| model.row().reader().is_some()) {
            for y in [-1.0, 0.5, 7.0, f64::NAN, f64::INFINITY] {
                let design = Design::dense(vec![1.0, 2.0], 1).unwrap();
                let good = responses(&**model)[0];
                let built = model.potential(design, vec![good, y]);
                assert_eq!(built.is_ok(), model.accepts(y), "{model:?}: {y}");
            }
            assert!(!model.responses().is_empty() && !model.remedy("y", -1.0, None).is_empty());
        }
    }

    /// What a draw expects of a number is the mean of its law, and the law's mass is 1; here by
    /// sums over whole numbers, or over a fine grid.
    #[test]
    fn densities_have_mass_one_and_the_mean_that_is_expected() {
        for model in examples() {
            let numbers = model.row().explains == Explains::Numbers;
            if !numbers {
                continue;
            }
            let whole = !model.accepts(0.5);
            let step = if whole { 1.0 } else { 0.01 };
            let least = if model.accepts(-1.0) { -60.0 } else { 0.0 };
            let points = (0..).map(|k| least + step * f64::from(k)).take_while(|y| *y <= 60.0);
            let t = 0.7;
            let (mut mass, mut mean) = (0.0, 0.0);
            for y in points {
                let p = model.log_density(t, y).exp() * step;
                mass += p;
                mean += p * y;
            }
            let mut expected = [t];
            model.expect(&mut expected);
            assert!((mass - 1.0).abs() < 1e-6, "{model:?}: mass {mass}");
            assert!((mean - expected[0]).abs() < 1e-6, "{model:?}: mean {mean}");
        }
    }

    #[test]
    fn names_are_unique_and_every_setting_is_documented_once() {
        let mut names: Vec<&str> = MODELS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MODELS.len());
        for model in examples() {
            for (key, _) in model.settings() {
                let documented = crate::config::fields::all()
                    .filter(|field| field.section == "target" && field.key == key)
                    .count();
                assert_eq!(documented, 1, "{model:?}: {key}");
            }
        }
    }
}
