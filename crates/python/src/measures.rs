//! Measure arrays of draws: convergence, effective sample size, distances.

use consilience_core::measure::{self, Chains, Interval};
use consilience_core::rng::Seed;
use numpy::ndarray::Axis;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2, PyReadonlyArray3};
use pyo3::prelude::*;

use crate::errors::{Failure, Raised};

fn wrong(error: impl ToString) -> Failure {
    Failure::new(Raised::Data, error)
}

/// One number for each parameter of draws by chain, draw and parameter.
fn each(
    draws: &PyReadonlyArray3<'_, f64>,
    of: impl Fn(&Chains<'_>) -> Result<Vec<f64>, Failure>,
) -> Result<Vec<Vec<f64>>, Failure> {
    let array = draws.as_array();
    let (chains, _, d) = array.dim();
    let one = |k: usize| {
        let all: Vec<f64> = array.index_axis(Axis(2), k).iter().copied().collect();
        of(&Chains::flat(&all, chains).map_err(wrong)?)
    };
    (0..d).map(one).collect()
}

/// Mean, standard deviation, interval, R-hat, bulk and tail effective sample size, errors of mean
/// and standard deviation: one row for each parameter.
#[pyfunction]
pub fn summarise<'py>(
    py: Python<'py>,
    draws: PyReadonlyArray3<'py, f64>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let rows = each(&draws, |chains| {
        let s = measure::summarise(chains, Interval::default()).map_err(wrong)?;
        Ok(vec![
            s.mean,
            s.sd,
            s.lower,
            s.upper,
            s.rhat,
            s.ess_bulk,
            s.ess_tail,
            s.mcse_mean,
            s.mcse_sd,
        ])
    })?;
    PyArray1::from_vec(py, rows.concat()).reshape([rows.len(), 9])
}

/// A measure of each parameter, by name.
#[pyfunction]
pub fn measured<'py>(
    py: Python<'py>,
    name: &str,
    draws: PyReadonlyArray3<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let of: fn(&Chains<'_>) -> f64 = match name {
        "rhat" => measure::rhat,
        "ess_bulk" => measure::ess_bulk,
        "ess_tail" => measure::ess_tail,
        "ess_mean" => measure::ess_mean,
        "mcse_mean" => measure::mcse_mean,
        "mcse_sd" => measure::mcse_sd,
        other => return Err(wrong(format!("there is no measure `{other}`")).into()),
    };
    let rows = each(&draws, |chains| Ok(vec![of(chains)]))?;
    Ok(PyArray1::from_vec(py, rows.concat()))
}

/// The rows of a matrix, one after the other.
fn rows(matrix: &PyReadonlyArray2<'_, f64>) -> (Vec<f64>, usize) {
    let array = matrix.as_array();
    (array.iter().copied().collect(), array.ncols())
}

/// The distance between two samples of points, by name.
#[pyfunction]
#[pyo3(signature = (name, left, right, directions=100, seed=1))]
pub fn distance(
    py: Python<'_>,
    name: &str,
    left: PyReadonlyArray2<'_, f64>,
    right: PyReadonlyArray2<'_, f64>,
    directions: u32,
    seed: u64,
) -> PyResult<f64> {
    let ((a, d), (b, other)) = (rows(&left), rows(&right));
    if d != other {
        return Err(wrong(format!(
            "the points have {d} and {other} coordinates: give as many on both sides"
        ))
        .into());
    }
    let found = py.detach(|| match name {
        "w2" => measure::w2_between_samples(&a, &b, d).map_err(wrong),
        "sliced_w2" => measure::sliced_w2(&a, &b, d, directions, Seed::new(seed)).map_err(wrong),
        "gaussian_w2" => {
            let (left, right) = (
                measure::Gaussian::of_draws(&a, d).map_err(wrong)?,
                measure::Gaussian::of_draws(&b, d).map_err(wrong)?,
            );
            left.w2(&right).map_err(wrong)
        }
        other => Err(wrong(format!("there is no distance `{other}`"))),
    });
    Ok(found?)
}
