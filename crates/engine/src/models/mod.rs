//! List every model: one row a name that users write, one file a model.
//!
//! A model of rows is a [`RowModel`]: how it is built, what its parameters are called, what it
//! predicts and how it is scored are its methods, and whoever needs one of these asks the trait.
//! Nobody else asks which model it is.

mod cox;
mod gaussian;
mod grouped;
mod integrated;
pub mod kept;
mod linear;
mod logistic;
mod negative_binomial;
mod net;
mod ordinal;
mod poisson;
mod softmax;
mod student_t;
mod weibull;

use std::borrow::Cow;
use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::net::NetPlan;
use consilience_core::model::{
    Adjustment, Design, DrawEffects, Extended, ExtendedLoss, GAUSS_HERMITE, Law, Model, Transform,
    Transforms,
};
use consilience_core::privacy::Released;
use consilience_core::simd::ln;
use serde_json::Value as Json;
use toml::de::DeTable;

use crate::config::ConfigError;
use crate::config::fields::Field;
use crate::config::reader::{Document, Section, Value};
use crate::data::{GroupBy, GroupTerm, LackingTerms, VaryingSlope};
use crate::random::Random;
use grouped::Grouped;
use integrated::Integrated;

/// Every model, in the order in which they are listed. Where data with classes names no model, it
/// is the first that explains so many.
pub const MODELS: &[&ModelRow] = &[
    &gaussian::GAUSSIAN,
    &gaussian::ISOTROPIC,
    &linear::ROW,
    &logistic::ROW,
    &softmax::ROW,
    &poisson::ROW,
    &student_t::ROW,
    &negative_binomial::ROW,
    &ordinal::ROW,
    &weibull::ROW,
    &cox::ROW,
    &net::ROW,
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

/// Parameters beside the coefficients that belong together: a scale, a shape, cut points.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// What priors call them.
    pub group: &'static str,
    /// Their names.
    pub names: Vec<String>,
    /// What holds them in their place, if anything does.
    pub transform: Option<Transform>,
    /// Their law unless the config says otherwise.
    pub law: Law,
    /// Whether that is in standard deviations of the response.
    pub in_units: bool,
}

impl Beside {
    /// One positive parameter.
    pub(crate) fn positive(name: &'static str, law: Law, in_units: bool) -> Self {
        let (names, transform) = (vec![name.into()], Some(Transform::Positive));
        Beside { group: name, names, transform, law, in_units }
    }
}

/// Parameters that belong together: a tensor of a net.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterGroup {
    /// The layer: `conv1`.
    pub layer: String,
    /// Its name: `conv1.weight`.
    pub name: String,
    /// What it does: `weight`, `bias`, `scale`, `shift`.
    pub role: &'static str,
    /// Where it lies among all parameters.
    pub range: std::ops::Range<usize>,
    /// How many inputs an output of its layer sees.
    pub fan_in: usize,
}

/// The Gaussian law of the place where a chain starts, coordinate by coordinate.
#[derive(Clone, Debug, PartialEq)]
pub struct StartLaw {
    /// Means.
    pub mean: Vec<f64>,
    /// Standard deviations.
    pub sd: Vec<f64>,
}

/// How a start is taken downhill before a chain begins there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descent {
    /// How often every row is used.
    pub epochs: f64,
    /// The step, in units of the sampler's: times the number of all rows it is a learning rate.
    pub step: f64,
    /// Rows of a client that a step uses.
    pub batch: usize,
}

/// What is known of one client's rows beside their features. Lists are empty where nothing is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The response of every row.
    pub response: Vec<f64>,
    /// The group of every row, numbered from 0 without gaps.
    pub groups: Vec<u32>,
    /// What is added to the predictor of every row.
    pub offset: Vec<f64>,
    /// How often every row counts.
    pub weights: Vec<f64>,
}

impl Observed {
    fn into_parts(self) -> Result<(Vec<f64>, Vec<u32>, Adjustment), DataError> {
        let Observed { response, groups, offset, weights } = self;
        Ok((response, groups, Adjustment::new(offset, weights)?))
    }
}

/// One row as a draw sees it.
#[derive(Clone, Copy, Debug)]
pub struct RowAt<'a> {
    /// Its predictors, offset and effects of groups included.
    pub predictors: &'a [f64],
    /// What the draw says of the parameters beside the coefficients.
    pub beside: &'a [f64],
    /// Its response.
    pub y: f64,
}

/// What about responses that a model draws does not look like those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Their mean, or how many events there are.
    Centre,
    /// How far they vary.
    Spread,
    /// How many are 0.
    Zeros,
    /// How lopsided they are.
    Skew,
    /// How many are far from the others.
    Extremes,
    /// How many there are of each kind, or in each bin.
    Shape,
    /// How sites differ.
    Sites,
}

/// Rows in groups whose effects are integrated out.
pub type Effects = Box<dyn DrawEffects>;

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

    /// What the values of such a response are called, in the order of the classes, where a formula
    /// states the columns.
    fn class_names(&self) -> Option<Vec<String>> {
        None
    }

    /// How many predictors a row has. Each has a parameter for every column, where they are linear.
    fn predictors(&self) -> usize {
        1
    }

    /// Whether predictors are sums of columns times parameters: then there may be an intercept, one
    /// optimum, and columns that are collinear.
    fn is_linear(&self) -> bool {
        true
    }

    /// How many columns it needs; `None`: any number.
    fn columns(&self) -> Option<usize> {
        None
    }

    /// Parameters beside the coefficients, in the order in which they stand behind them.
    fn beside(&self) -> Vec<Beside> {
        Vec::new()
    }

    /// The same with as many names as there are where all parameters are so many.
    fn beside_of(&self, _dim: usize) -> Vec<Beside> {
        self.beside()
    }

    /// How many of so many parameters, the last ones, are of no interest by themselves.
    fn nuisance(&self, _dim: usize) -> usize {
        0
    }

    /// The columns that may lack values, which are integrated over, if any do.
    fn lacking_terms(&self) -> Option<&LackingTerms> {
        None
    }

    /// Whether coefficients are in units of the response: then usual priors are, too.
    fn is_in_units(&self) -> bool {
        false
    }

    /// Whether predictors are logarithms of the response: then the usual prior of the intercept is
    /// around the mean of these, whatever the units of time.
    fn is_in_logs(&self) -> bool {
        false
    }

    /// Whether a response below 0 is a time at which the event was not yet seen.
    fn censors(&self) -> bool {
        false
    }

    /// Whether all rows of a site count as one: a partial likelihood is no sum over rows, and there
    /// are no minibatches.
    fn is_whole(&self) -> bool {
        false
    }

    /// Whether a column of ones may stand first, where predictors are linear: cut points and the
    /// like are intercepts themselves.
    fn takes_intercept(&self) -> bool {
        true
    }

    /// How many parameters it has for so many columns.
    fn dim(&self, columns: usize) -> usize {
        columns * self.predictors() + places(&self.beside())
    }

    /// From the scale on which chains move to that on which parameters are shown, where there are
    /// so many of them.
    fn transforms(&self, dim: usize) -> Transforms {
        let beside = self.beside_of(dim);
        let mut next = dim.saturating_sub(places(&beside));
        Transforms::new(beside.iter().filter_map(|group| {
            let from = next;
            next += group.names.len();
            Some((from..next, group.transform?))
        }))
    }

    /// A draw's coefficients, and what stands beside them.
    fn split<'d>(&self, draw: &'d [f64]) -> (&'d [f64], &'d [f64]) {
        draw.split_at(draw.len().saturating_sub(places(&self.beside())))
    }

    /// The predictors of every row at a draw, row by row.
    fn predictors_of(&self, design: &Design, draw: &[f64]) -> Vec<f64> {
        let own = self.split(draw).0;
        let each = |row| own.chunks_exact(design.columns()).map(move |x| design.row_dot(row, x));
        (0..design.rows()).flat_map(each).collect()
    }

    /// The same with an offset of every row, or none.
    fn adjusted_predictors(&self, design: &Design, offset: &[f64], draw: &[f64]) -> Vec<f64> {
        let mut all = self.predictors_of(design, draw);
        all.iter_mut().zip(offset).for_each(|(t, offset)| *t += offset);
        all
    }

    /// What a draw expects of every row, row by row: see [`RowModel::expect`].
    fn predicted(&self, design: &Design, offset: &[f64], draw: &[f64]) -> Vec<f64> {
        let mut all = self.adjusted_predictors(design, offset, draw);
        for (row, each) in all.chunks_exact_mut(self.predictors()).enumerate() {
            self.expect(each, &self.beside_at(draw, design, row));
        }
        all
    }

    /// The parameters in groups, where they are many and have some.
    fn groups(&self) -> Vec<ParameterGroup> {
        Vec::new()
    }

    /// The layers and their sizes, where it has any.
    fn net(&self) -> Option<&NetPlan> {
        None
    }

    /// Where chains start unless the config says so, given the prior variance of every parameter;
    /// `None`: at 0, or at the optimum where that is looked for.
    fn start(&self, _prior: &dyn Fn(usize) -> f64) -> Option<StartLaw> {
        None
    }

    /// The file with the parameters that chains start from, where the model states one.
    fn start_file(&self) -> Option<&str> {
        None
    }

    /// How starts are taken downhill before chains begin, where the model states that.
    fn descent(&self) -> Option<Descent> {
        None
    }

    /// The largest norm that the gradient of one row can have at any parameters, where its features
    /// are at most `row_norm` long and the derivative of its loss is held within `slope`, where
    /// that is stated; or why there is none.
    fn row_gradient(&self, _row_norm: f64, _slope: Option<f64>) -> Result<f64, &'static str> {
        Err("no bound of a row's gradient is known for this model")
    }

    /// How far from 0 a response can be for the derivative of its loss to be within `slope` where
    /// all parameters are 0; `None` where slopes are not clipped.
    fn response_reach(&self, _slope: Option<f64>) -> Option<f64> {
        None
    }

    /// The largest curvature that the loss of one row can have at any parameters, where its
    /// features are at most `row_norm` long, if there is a bound.
    fn row_curvature(&self, _row_norm: f64) -> Option<f64> {
        None
    }

    /// What sites release of this model once, with responses clipped to within `response` where
    /// that is stated; or why it cannot be.
    fn released(&self, _response: Option<f64>) -> Result<Released, &'static str> {
        Err("dp-release knows linear and logistic regression alone")
    }

    /// The potential of one client's rows whose losses have derivatives within `slope`.
    fn bounded(
        &self,
        _slope: Option<f64>,
        design: Design,
        response: Vec<f64>,
    ) -> Result<Arc<dyn Model>, DataError> {
        self.potential(design, response)
    }

    /// The same with all that is known of the rows: offsets, weights and groups have no bound.
    fn bounded_of(
        &self,
        slope: Option<f64>,
        design: Design,
        rows: Observed,
    ) -> Result<Arc<dyn Model>, DataError> {
        let (response, groups, adjustment) = rows.into_parts()?;
        match groups.is_empty() && adjustment.is_none() {
            true => self.bounded(slope, design, response),
            false => Err(DataError::Adjusted { model: self.row().title }),
        }
    }

    /// The potential of one client's rows. A model without a response is given none.
    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError>;

    /// The loss of a row as a function of one predictor, where effects of groups may be added to
    /// it.
    fn loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        None
    }

    /// Which rows share an effect, if any do.
    fn group_by(&self) -> Option<&GroupBy> {
        None
    }

    /// The slope that differs between groups, if one does.
    fn slope_by(&self) -> Option<&VaryingSlope> {
        None
    }

    /// What a draw says of the parameters beside the coefficients, as a row of this design needs
    /// it: where effects of groups depend on the row, their standard deviation there is added.
    fn beside_at<'d>(&self, draw: &'d [f64], _design: &Design, _row: usize) -> Cow<'d, [f64]> {
        Cow::Borrowed(self.split(draw).1)
    }

    /// One client's rows in groups whose effects can be drawn, where there are such.
    fn effects(&self, _design: Design, _rows: Observed) -> Result<Option<Effects>, DataError> {
        Ok(None)
    }

    /// What the effects of a row's group, intercept first, add to its predictor.
    fn effect_at(&self, effects: &[f64], _design: &Design, _row: usize) -> f64 {
        effects.first().copied().unwrap_or(0.0)
    }

    /// The effects of a group that nobody has seen, where there are such.
    fn new_effects(&self, _draw: &[f64], _random: &mut Random) -> Vec<f64> {
        Vec::new()
    }

    /// The model given the effects of groups, where it has such: its parameters beside the
    /// coefficients stand first.
    fn within(&self) -> Option<&Arc<dyn RowModel>> {
        None
    }

    /// What stands beside the coefficients, as a row needs it for the model given the effects of
    /// its group ([`RowModel::within`]).
    fn beside_within<'d>(&self, draw: &'d [f64], _: &Design, _row: usize) -> Cow<'d, [f64]> {
        let (beside, within) = (self.split(draw).1, self.within());
        let own = within.map_or(beside.len(), |model| places(&model.beside()));
        Cow::Borrowed(&beside[..own.min(beside.len())])
    }

    /// Draw a new response of a row; where times are censored, the events that there would be until
    /// the row was last seen, if they could come again. `false`: there is no law to draw from.
    fn replicate(&self, at: RowAt<'_>, random: &mut Random, into: &mut Vec<f64>) -> bool {
        if self.classes().is_none() {
            return false;
        }
        let mut expected = at.predictors.to_vec();
        self.expect(&mut expected, at.beside);
        into.push(match expected[..] {
            [p] => f64::from(u8::from(random.coin(p))),
            _ => random.choice(expected.into_iter()) as f64,
        });
        true
    }

    /// What to do where responses that the model draws do not look like those that there are;
    /// `more`: there is more of it in those that there are.
    fn mend(&self, doubt: Doubt, _more: bool) -> &'static str {
        match doubt {
            Doubt::Sites if self.loss().is_some() && self.group_by().is_none() => BY_SITE,
            Doubt::Sites => BY_COLUMNS,
            _ => MORE_COLUMNS,
        }
    }

    /// What `exp` of a coefficient is, where that is something that people know.
    fn ratio(&self) -> Option<&'static str> {
        None
    }

    /// The loss of a row as a function of one predictor, where rows may have offsets and weights.
    fn row_loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        self.loss()
    }

    /// The potential of one client's rows with all that is known of them.
    fn potential_of(&self, design: Design, rows: Observed) -> Result<Arc<dyn Model>, DataError> {
        let (response, _, adjustment) = rows.into_parts()?;
        match self.row_loss() {
            _ if adjustment.is_none() => self.potential(design, response),
            Some(loss) => {
                Ok(Arc::new(Extended::new(design, response, loss)?.adjusted(adjustment)?))
            }
            None => Err(DataError::Adjusted { model: self.row().title }),
        }
    }

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
            // a name that a column has already is told apart
            let own = |name: String| {
                if columns.contains(&name) { format!("{name} of the model") } else { name }
            };
            let beside = self.beside().into_iter().flat_map(|group| group.names).map(own);
            return columns.iter().cloned().chain(beside).collect();
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
    /// (of the last alone, where there is one predictor); `beside` is what the draw says of the
    /// parameters beside the coefficients.
    fn expect(&self, predictors: &mut [f64], beside: &[f64]);

    /// The probability of every level, from 1, where the response has ordered levels; else none.
    fn levels(&self, _predictor: f64, _beside: &[f64]) -> Vec<f64> {
        Vec::new()
    }

    /// Make of what the draws expect what they say of a new response: add its noise, where
    /// intervals are of that. `beside` has one entry a draw.
    fn scatter(&self, _expected: &mut [f64], _beside: &[&[f64]]) {}

    /// The log-density, or log-probability, of a response, given the predictors of its row.
    fn log_probability(&self, predictors: &[f64], beside: &[f64], y: f64) -> f64 {
        if self.classes().is_none() {
            return self.log_density(predictors[0], beside, y);
        }
        let mut expected = predictors.to_vec();
        self.expect(&mut expected, beside);
        ln(match expected[..] {
            [p] if y == 1.0 => p,
            [p] => 1.0 - p,
            _ => expected[y as usize],
        })
    }

    /// What the log-density of a response has beside minus the loss of its row.
    fn constant(&self, beside: &[f64], y: f64) -> f64 {
        let loss = self.row_loss();
        loss.map_or(0.0, |loss| self.log_density(0.0, beside, y) + loss.loss(0.0, beside, y))
    }

    /// The log-density, or log-probability, of a number as response. Models with classes need none.
    fn log_density(&self, _predictor: f64, _beside: &[f64], _y: f64) -> f64 {
        f64::NAN
    }
}

const BY_SITE: &str = "Add (1 | site) to the formula, or columns that say how sites differ";
const BY_COLUMNS: &str = "Add columns that say how sites differ";
const MORE_COLUMNS: &str = "Add columns, products (a:b) or functions of columns (log(x), \
    poly(x, 2)) that the response depends on";

/// A model with an effect of every group; what is wrong where it cannot have such.
pub(crate) fn with_groups(
    model: &Arc<dyn RowModel>,
    by: GroupTerm,
) -> Result<Arc<dyn RowModel>, String> {
    let grouped = Grouped::new(model, by);
    grouped
        .map(|grouped| Arc::new(grouped) as Arc<dyn RowModel>)
        .ok_or_else(|| format!("{} has no effects of groups", model.row().title))
}

/// The mean of some numbers, over a normal law around a predictor.
fn averaged(t: f64, sd: f64, of: impl Fn(f64) -> Vec<f64>) -> Vec<f64> {
    let mut mean = of(t);
    if sd == 0.0 || mean.is_empty() {
        return mean;
    }
    mean.fill(0.0);
    for (z, weight) in GAUSS_HERMITE {
        for t in [t + sd * z, t - sd * z] {
            mean.iter_mut().zip(of(t)).for_each(|(mean, value)| *mean += weight * value);
        }
    }
    mean
}

/// A model some of whose columns lack values; what is wrong where it cannot have such.
pub(crate) fn with_missing(
    model: &Arc<dyn RowModel>,
    terms: LackingTerms,
) -> Result<Arc<dyn RowModel>, String> {
    Ok(Arc::new(Integrated::new(model, terms)?))
}

/// How many parameters these groups have.
pub(crate) fn places(beside: &[Beside]) -> usize {
    beside.iter().map(|group| group.names.len()).sum()
}

/// Where the standard deviations of effects stand among so many parameters of a model.
pub(crate) fn scales(model: &dyn RowModel, dim: usize) -> Vec<usize> {
    let beside = model.beside_of(dim);
    let groups = beside.iter().flat_map(|of| of.names.iter().map(move |_| of.group));
    let first = dim.saturating_sub(places(&beside));
    let is_scale = |(_, group): &(usize, &str)| *group == grouped::EFFECTS;
    groups.enumerate().filter(is_scale).map(|(k, _)| first + k).collect()
}

/// Levels between 0 and 1, spread evenly over the draws by multiples of the golden ratio: noise
/// that is added by its quantiles needs no random number, and nothing depends on a seed.
pub(crate) fn spread_levels(draws: usize) -> impl Iterator<Item = f64> {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    (0..draws).map(|k| ((k as f64 + 0.5) * GOLDEN).fract())
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
    image: Option<[usize; 3]>,
}

impl<'a> Stated<'a> {
    /// What this table says.
    pub(crate) fn new(section: &'a Section<'a>) -> Self {
        Stated { section, classes: None, image: None }
    }

    /// The same where the data says how many classes there are.
    pub(crate) fn with_classes(self, classes: usize) -> Self {
        Stated { classes: Some(classes), ..self }
    }

    /// The same where rows are images: channels, height, width.
    pub(crate) fn with_image(self, image: Option<[usize; 3]>) -> Self {
        Stated { image, ..self }
    }

    /// The shape of rows that are images.
    fn image(&self) -> Option<[usize; 3]> {
        self.image
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
        let whole = |from: usize| (0..13).map(|j| (from + j % classes) as f64).collect();
        [normals(1, 13), whole(0), whole(1)]
            .into_iter()
            .find(|all| all.iter().all(|y| model.accepts(*y)))
            .unwrap()
    }

    /// Some parameters beside the coefficients, on their natural scale.
    fn beside_of(model: &dyn RowModel) -> Vec<f64> {
        let count = places(&model.beside());
        let mut beside = normals(3, count).iter().map(|z| 0.3 * z + 0.4).collect::<Vec<f64>>();
        model.transforms(count).outward(&mut beside);
        beside
    }

    #[test]
    fn every_model_of_the_registry_keeps_what_models_promise() {
        for model in examples() {
            let design = Design::dense(normals(2, 39), 3).unwrap();
            let potential = model.potential(design, responses(&*model)).unwrap();
            let columns: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
            assert_eq!(potential.dim(), model.parameters(&columns, None).len(), "{model:?}");
            assert!(model.columns().is_none_or(|columns| columns == 3));
            if model.row().explains != Explains::Nothing {
                assert_eq!(potential.dim(), model.dim(3), "{model:?}");
            }
            if let Some(last) = model.groups().last() {
                assert_eq!(potential.dim(), last.range.end, "{model:?}");
            }
            contract::check(&potential).unwrap_or_else(|broken| panic!("{model:?}: {broken}"));
        }
    }

    /// Side by side in registers of any width, losses have the bits that they have one by one.
    #[test]
    fn losses_side_by_side_are_those_one_by_one() {
        let mut models = 0;
        for model in examples() {
            let Some(loss) = model.loss() else { continue };
            let beside = beside_of(&*model);
            let t: Vec<f64> = normals(4, 37).iter().map(|z| 5.0 * z).collect();
            for y in responses(&*model) {
                let mut together = t.clone();
                loss.losses(&mut together, &beside, y);
                let alone = t.iter().map(|t| loss.loss(*t, &beside, y).to_bits());
                assert!(together.iter().map(|l| l.to_bits()).eq(alone), "{model:?}, {y}");
            }
            models += 1;
        }
        assert!(models >= 6, "{models} models can have effects of groups");
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
                let columns = model.columns().unwrap_or(1);
                let design = Design::dense(vec![1.0; 2 * columns], columns).unwrap();
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
            if model.is_whole() {
                continue; // it has no density of a single row
            }
            let whole = !model.accepts(0.5);
            let step = if whole { 1.0 } else { 0.01 };
            let least = if model.accepts(-1.0) && !model.censors() { -60.0 } else { 0.0 };
            let even = (0..).map(|k| (least + step * f64::from(k), step));
            // times by their logarithms
            let times = (0..).map(|k| (-40.0 + 0.01 * f64::from(k)).exp()).map(|y| (y, 0.01 * y));
            let points: Box<dyn Iterator<Item = (f64, f64)>> =
                if model.censors() { Box::new(times) } else { Box::new(even) };
            let points = points.take_while(|(y, _)| *y <= 60.0);
            let t = 0.7;
            let beside = beside_of(&*model);
            let (mut mass, mut mean) = (0.0, 0.0);
            for (y, step) in points {
                let p = model.log_density(t, &beside, y).exp() * step;
                mass += p;
                mean += p * y;
            }
            let mut expected = [t];
            model.expect(&mut expected, &beside);
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
