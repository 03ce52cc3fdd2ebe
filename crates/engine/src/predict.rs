//! Predict new rows: average over the draws what each of them says, and tell how far they disagree.

use consilience_core::lanes::{exp, sigmoid};
use consilience_core::linalg::dot;
use consilience_core::measure::{equal_tailed, mean, normal_quantile};
use rayon::prelude::*;
use thiserror::Error;

use crate::config::{Config, ModelConfig, RowsModel};
use crate::draws::Draws;
use crate::numbers::Numbers;
use crate::record::Record;

/// Why rows cannot be predicted.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PredictError {
    /// The model says nothing of rows.
    #[error("the model \"{model}\" has no response that could be predicted: use a run of a linear, logistic or softmax model")]
    NoResponse {
        /// The model.
        model: String,
    },
    /// The run has no draws.
    #[error("the run directory has no draws to predict from")]
    NoDraws,
    /// The config and the draws are not of one run.
    #[error("the run has {found} parameters where its model has {expected}")]
    Parameters {
        /// How many the draws have.
        found: usize,
        /// How many the model has.
        expected: usize,
    },
    /// There is no header.
    #[error("the file has no header: its first line must name the columns, which are {columns}")]
    NoHeader {
        /// The columns that are needed.
        columns: String,
    },
    /// Columns are missing.
    #[error("the file lacks the columns {missing}; it has {found}")]
    Missing {
        /// The columns.
        missing: String,
        /// What there is.
        found: String,
    },
    /// A column is there twice.
    #[error("the file has the column \"{name}\" twice")]
    Twice {
        /// The column.
        name: String,
    },
}

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Response {
    /// The probability of the label 1.
    Probability,
    /// A new response of linear regression, which scatters around its expectation with this variance.
    Number {
        /// The noise variance.
        noise_variance: f64,
    },
    /// The probability of every class.
    Classes(usize),
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
    response: Response,
    /// The columns of the design, an intercept among them.
    columns: Vec<String>,
    intercept: bool,
}

impl<'a> Predictor<'a> {
    /// From a run and its config.
    pub fn new(config: &Config, record: &'a Record) -> Result<Self, PredictError> {
        let none = |model: &str| Err(PredictError::NoResponse { model: model.into() });
        let (kind, intercept) = match &config.target.model {
            ModelConfig::Builtin(_) => (RowsModel::Logistic, record.parameters.first().is_some_and(|name| name == "intercept")),
            ModelConfig::Named(named) => (named.kind, named.intercept),
            ModelConfig::Own(own) => {
                (own.kind, record.parameters.first().is_some_and(|name| own.intercept && name.starts_with("intercept")))
            }
            ModelConfig::Gaussian(_) | ModelConfig::Generated(_) => return none("gaussian"),
            ModelConfig::External(_) => return none("external"),
            ModelConfig::Rows { kind, intercept, .. } => (*kind, *intercept),
        };
        let response = match kind {
            RowsModel::Isotropic => return none("isotropic"),
            RowsModel::Logistic => Response::Probability,
            RowsModel::Linear { noise_variance } => Response::Number { noise_variance },
            RowsModel::Softmax { classes, .. } => Response::Classes(classes),
        };
        if record.draws.length() == 0 {
            return Err(PredictError::NoDraws);
        }
        let columns: Vec<String> = match response {
            Response::Classes(classes) => {
                let first = &record.parameters[..record.parameters.len() / classes];
                first.iter().map(|name| name.rsplit_once('[').map_or(name.as_str(), |(column, _)| column).to_owned()).collect() // `column[class]`
            }
            _ => record.parameters.clone(),
        };
        let expected = columns.len() * if let Response::Classes(classes) = response { classes } else { 1 };
        if expected != record.draws.dim() {
            return Err(PredictError::Parameters { found: record.draws.dim(), expected });
        }
        Ok(Predictor { draws: &record.draws, response, columns, intercept })
    }

    /// What is predicted.
    pub fn response(&self) -> Response {
        self.response
    }

    /// The columns that a table of new rows needs.
    pub fn needed(&self) -> &[String] {
        &self.columns[usize::from(self.intercept)..]
    }

    /// The design of a table whose header names the columns, in any order; columns that the model does not know are left aside.
    pub fn design(&self, table: &Numbers) -> Result<Vec<f64>, PredictError> {
        let quoted = |names: &[String]| names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
        let Some(names) = &table.names else { return Err(PredictError::NoHeader { columns: quoted(self.needed()) }) };
        let (mut places, mut missing) = (Vec::new(), Vec::new());
        for name in self.needed() {
            let mut found = names.iter().enumerate().filter(|(_, n)| *n == name).map(|(k, _)| k);
            match (found.next(), found.next()) {
                (Some(place), None) => places.push(place),
                (None, _) => missing.push(name.clone()),
                (Some(_), Some(_)) => return Err(PredictError::Twice { name: name.clone() }),
            }
        }
        if !missing.is_empty() {
            return Err(PredictError::Missing { missing: quoted(&missing), found: quoted(names) });
        }
        let mut design = Vec::with_capacity(table.cells.len());
        for row in table.cells.chunks_exact(table.columns) {
            design.extend(self.intercept.then_some(1.0));
            design.extend(places.iter().map(|place| row[*place]));
        }
        Ok(design)
    }

    /// Predict every row of a design: one number a row, or one for every class. Intervals have this mass. Those of probabilities show how far the draws
    /// disagree; those of a number are of a new response, noise included.
    pub fn predict(&self, design: &[f64], mass: f64) -> Vec<Vec<Prediction>> {
        design.par_chunks_exact(self.columns.len()).map(|row| self.predict_row(row, mass)).collect()
    }

    fn predict_row(&self, row: &[f64], mass: f64) -> Vec<Prediction> {
        let outputs = if let Response::Classes(classes) = self.response { classes } else { 1 };
        let mut values = vec![Vec::with_capacity(self.draws.chains() * self.draws.length()); outputs];
        let mut each = vec![0.0; outputs];
        for draw in self.draws.rows() {
            for (value, parameters) in each.iter_mut().zip(draw.chunks_exact(row.len())) {
                *value = dot(row, parameters);
            }
            match self.response {
                Response::Probability => each[0] = sigmoid(each[0]),
                Response::Number { .. } => {}
                Response::Classes(_) => softmax(&mut each),
            }
            values.iter_mut().zip(&each).for_each(|(all, value)| all.push(*value));
        }
        let of = |values: &mut Vec<f64>| {
            let mean = mean(values);
            if let Response::Number { noise_variance } = self.response {
                scatter(values, noise_variance.sqrt());
            }
            let (lower, upper) = equal_tailed(values, mass).unwrap_or((f64::NAN, f64::NAN));
            Prediction { mean, lower, upper }
        };
        values.iter_mut().map(of).collect()
    }
}

/// Add normal noise whose quantiles are spread evenly over the draws, by multiples of the golden ratio: no random number is needed, and nothing depends on a seed.
fn scatter(values: &mut [f64], sd: f64) {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    for (k, value) in values.iter_mut().enumerate() {
        *value += sd * normal_quantile(((k as f64 + 0.5) * GOLDEN).fract());
    }
}

fn softmax(values: &mut [f64]) {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter_mut().for_each(|t| *t = exp(*t - most));
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|t| *t /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;
    use crate::rundir::tests::record;

    fn config(model: &str) -> Config {
        let text = format!(
            "[target]\n{model}\nprior = {{ law = \"gaussian\", variance = 1.0 }}\n[[client]]\nrows = [[0.5, 1], [0.1, 0]]\n[sampler]\nname = \"lmc\"\nstep = 0.1"
        );
        Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text }).unwrap()
    }

    fn run(parameters: &[&str], chains: Vec<Vec<f64>>) -> Record {
        let parameters: Vec<String> = parameters.iter().map(|p| (*p).to_owned()).collect();
        Record { draws: Draws::from_chains(chains, parameters.len()), parameters, statistics: Vec::new(), reference: None, ..record() }
    }

    fn table(names: &[&str], cells: &[f64]) -> Numbers {
        Numbers { names: Some(names.iter().map(|n| (*n).to_owned()).collect()), cells: cells.to_vec(), columns: names.len() }
    }

    #[test]
    fn probabilities_by_hand() {
        let run = run(&["intercept", "x1"], vec![vec![0.0, 1.0], vec![1.0, -2.0]]);
        let config = config("model = \"logistic\"");
        let predictor = Predictor::new(&config, &run).unwrap();
        assert_eq!((predictor.needed(), predictor.response()), (&["x1".to_owned()][..], Response::Probability));
        let design = predictor.design(&table(&["other", "x1"], &[9.0, 0.5, 9.0, 2.0])).unwrap();
        assert_eq!(design, [1.0, 0.5, 1.0, 2.0]);
        let rows = predictor.predict(&design, 0.5);
        let sigmoid = |t: f64| 1.0 / (1.0 + (-t).exp());
        let (low, high) = (sigmoid(0.0), sigmoid(0.5));
        let first = rows[0][0];
        assert!((first.mean - 0.5 * (low + high)).abs() < 1e-12);
        assert!((first.lower - (0.75 * low + 0.25 * high)).abs() < 1e-12 && (first.upper - (0.25 * low + 0.75 * high)).abs() < 1e-12);
        assert!((rows[1][0].mean - 0.5 * (sigmoid(2.0) + sigmoid(-3.0))).abs() < 1e-12);
    }

    #[test]
    fn classes_by_hand() {
        let run =
            run(&["intercept[0]", "x1[0]", "intercept[1]", "x1[1]", "intercept[2]", "x1[2]"], vec![vec![0.0, 1.0, 0.5, 0.0, -1.0, 2.0]]);
        let config = config("model = \"softmax\"\nclasses = 3");
        let predictor = Predictor::new(&config, &run).unwrap();
        let rows = predictor.predict(&predictor.design(&table(&["x1"], &[3.0])).unwrap(), 0.94);
        let scores = [3.0f64.exp(), 0.5f64.exp(), 5.0f64.exp()];
        for (prediction, score) in rows[0].iter().zip(scores) {
            assert!((prediction.mean - score / scores.iter().sum::<f64>()).abs() < 1e-12);
        }
    }

    /// Parameters with standard deviation 2 and noise with standard deviation 1.5 make a new response with 2.5.
    #[test]
    fn a_new_number_has_its_noise() {
        let n = 20_000;
        // Quantiles in an order of their own.
        let draws: Vec<f64> = (0..n).map(|k| 2.0 * normal_quantile(((k * 7919 % n) as f64 + 0.5) / n as f64)).collect();
        let run = run(&["x1"], vec![draws]);
        let config = config("model = \"linear\"\nintercept = false\nnoise_variance = 2.25");
        let predictor = Predictor::new(&config, &run).unwrap();
        let of = predictor.predict(&[1.0], 0.94)[0][0];
        let end = 2.5 * normal_quantile(0.97);
        assert!(of.mean.abs() < 1e-9);
        assert!((of.lower + end).abs() < 0.03 * end && (of.upper - end).abs() < 0.03 * end, "{of:?} {end}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let run = run(&["intercept", "age", "sex: male"], vec![vec![0.0; 3]]);
        let config = config("model = \"logistic\"");
        let predictor = Predictor::new(&config, &run).unwrap();
        let refused = |table: &Numbers| predictor.design(table).unwrap_err().to_string();
        assert_eq!(refused(&table(&["x", "age"], &[0.0, 0.0])), "the file lacks the columns \"sex: male\"; it has \"x\", \"age\"");
        assert!(refused(&table(&["age", "age", "sex: male"], &[0.0; 3])).contains("\"age\" twice"));
        assert!(refused(&Numbers { names: None, cells: vec![0.0; 2], columns: 2 }).contains("\"age\", \"sex: male\""));
        let gaussian =
            "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [1.0]\nprecision = [[2.0]]\n[sampler]\nname = \"lmc\"\nstep = 0.1";
        let gaussian = Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text: gaussian.into() }).unwrap();
        assert!(matches!(Predictor::new(&gaussian, &run), Err(PredictError::NoResponse { .. })));
        let empty = Record { draws: Draws::new(3), ..run.clone() };
        assert_eq!(Predictor::new(&config, &empty).unwrap_err(), PredictError::NoDraws);
    }
}
