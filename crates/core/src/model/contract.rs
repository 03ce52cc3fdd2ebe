//! Check that a model keeps what all models promise: sums are sums, derivatives are derivatives,
//! and no answer depends on who else asks.
//!
//! Every model of this project passes; whoever writes one elsewhere calls [`check`] in a test of
//! their own, with a few rows that differ. Nothing is drawn at random: a model that passes passes
//! always.

use std::sync::{Arc, OnceLock};

use thiserror::Error;

use super::{EvaluationError, Evaluator, Model, Prior, Rows, Single};
use crate::ask::{Ask, Sum};
use crate::linalg::{add_scaled, norm_squared};
use crate::rng::{Blend, ClientId, Purpose, Seed};
use crate::step::Schedule;
use crate::walk::{ControlVariate, Walk, WalkRoom};

/// What a model does not keep.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{promise}: {found}")]
pub struct Broken {
    /// What was promised.
    pub promise: &'static str,
    /// The numbers that show it.
    pub found: String,
}

/// One promise, checked: whether it says anything of this model, or how it is broken.
pub type Promise = fn(&Arc<dyn Model>) -> Result<bool, Broken>;

/// Every promise.
pub const PROMISES: &[Promise] = &[
    gradients,
    hessian_products,
    rows_add_up,
    differences,
    rows_ignored,
    grouping,
    hessians,
    |model| averages(model, 0.1),
    walks,
    smoothness,
];

/// Check every promise on a model of one client's rows, three or more of them.
pub fn check(model: &Arc<dyn Model>) -> Result<(), Broken> {
    PROMISES.iter().try_for_each(|promise| promise(model).map(|_| ()))
}

macro_rules! ensure {
    ($promise:ident, $holds:expr, $($found:tt)*) => {
        let holds: bool = $holds;
        if !holds {
            return Err(Broken { promise: $promise, found: format!($($found)*) });
        }
    };
}

fn normals(address: u64, n: usize) -> Vec<f64> {
    let mut z = vec![0.0; n];
    Seed::new(77).stream(Purpose::Data, ClientId(0), address).normals(&mut z);
    z
}

fn gradient(model: &Arc<dyn Model>, x: &[f64], rows: Rows<'_>) -> Vec<f64> {
    let mut out = vec![0.0; model.dim()];
    Single::new(model).add_gradient(x, rows, 1.0, &mut out);
    out
}

fn difference(model: &Arc<dyn Model>, x: &[f64], z: &[f64], rows: Rows<'_>) -> Vec<f64> {
    let mut out = vec![0.0; model.dim()];
    Single::new(model).add(Sum::Difference { x, z }, rows, 1.0, &mut out);
    out
}

/// Gradients are the finite differences of values.
pub fn gradients(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "gradients are the derivatives of values";
    if !model.offers().values {
        return Ok(false);
    }
    let d = model.dim();
    let x = normals(5, d);
    let exact = gradient(model, &x, Rows::All);
    let mut single = Single::new(model);
    for k in 0..d {
        let h = 1e-5;
        let mut moved = |by: f64| {
            let mut at = x.clone();
            at[k] += by;
            single.value(&at)
        };
        // Fourth order, so that truncation (1e-20) and rounding (1e-10) both stay far below a
        // wrong term.
        let numeric =
            (8.0 * (moved(h) - moved(-h)) - (moved(2.0 * h) - moved(-2.0 * h))) / (12.0 * h);
        let near = (numeric - exact[k]).abs() < 1e-7 * (1.0 + exact[k].abs());
        ensure!(PROMISE, near, "coordinate {k}: {numeric} is not {}", exact[k]);
    }
    Ok(true)
}

/// Products with the Hessian are the finite differences of gradients.
pub fn hessian_products(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "products with the Hessian are the derivatives of gradients";
    if !model.offers().hessians {
        return Ok(false);
    }
    let d = model.dim();
    let (x, v) = (normals(6, d), normals(7, d));
    let mut exact = vec![0.0; d];
    Single::new(model).add_hessian_vector(&x, &v, 1.0, &mut exact);
    let h = 1e-5;
    let at = |by: f64| {
        let moved: Vec<f64> = x.iter().zip(&v).map(|(a, b)| a + by * b).collect();
        gradient(model, &moved, Rows::All)
    };
    let (plus, minus) = (at(h), at(-h));
    for k in 0..d {
        let numeric = (plus[k] - minus[k]) / (2.0 * h);
        let near = (numeric - exact[k]).abs() < 1e-6 * (1.0 + exact[k].abs());
        ensure!(PROMISE, near, "coordinate {k}: {numeric} is not {}", exact[k]);
    }
    Ok(true)
}

/// The gradients of single rows add up to that of all, which has the same bits by index.
pub fn rows_add_up(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "the gradients of single rows add up to that of all";
    let x = normals(8, model.dim());
    let every: Vec<u32> = (0..model.rows() as u32).collect();
    let whole = gradient(model, &x, Rows::All);
    let named = gradient(model, &x, Rows::Some(&every));
    ensure!(PROMISE, named == whole, "all rows by index give {named:?}, all rows {whole:?}");
    let mut sum = vec![0.0; model.dim()];
    for row in every {
        add_scaled(1.0, &gradient(model, &x, Rows::Some(&[row])), &mut sum);
    }
    for (a, b) in sum.iter().zip(&whole) {
        ensure!(PROMISE, (a - b).abs() < 1e-12 * (1.0 + b.abs()), "{a} is not {b}");
    }
    Ok(true)
}

/// A difference of gradients is that, and exactly nothing where both points are one.
pub fn differences(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "differences of gradients are such, and vanish exactly";
    let d = model.dim();
    let (x, z) = (normals(9, d), normals(10, d));
    let rows: Vec<u32> = (0..model.rows() as u32).step_by(2).collect();
    let mut twice = vec![0.0; d];
    let mut single = Single::new(model);
    single.add(Sum::Difference { x: &x, z: &z }, Rows::Some(&rows), 2.0, &mut twice);
    let (at_x, at_z) =
        (gradient(model, &x, Rows::Some(&rows)), gradient(model, &z, Rows::Some(&rows)));
    for k in 0..d {
        let (found, expected) = (twice[k], 2.0 * (at_x[k] - at_z[k]));
        let near = (found - expected).abs() < 1e-12 * (1.0 + at_x[k].abs() + at_z[k].abs());
        ensure!(PROMISE, near, "coordinate {k}: {found} is not {expected}");
    }
    let mut nothing = vec![0.0; d];
    single.add(Sum::Difference { x: &x, z: &x }, Rows::All, 3.0, &mut nothing);
    ensure!(PROMISE, nothing.iter().all(|v| *v == 0.0), "{nothing:?} at one point");
    Ok(true)
}

/// A model whose differences do not depend on which rows are meant says so, and no other does.
pub fn rows_ignored(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "who ignores rows says so";
    let (x, z) = (normals(9, model.dim()), normals(10, model.dim()));
    let of = |row: u32| difference(model, &x, &z, Rows::Some(&[row]));
    let alike = (1..model.rows() as u32).all(|row| of(row) == of(0));
    let ignored = model.offers().differences_ignore_rows;
    let told = model.rows() == 1 || alike == ignored;
    ensure!(PROMISE, told, "differences are alike for all rows: {alike}; it says {ignored}");
    Ok(ignored)
}

/// Everything that can be asked, at one point and at several.
fn sums<'a>(x: &'a [f64], z: &'a [f64], spread: &'a [f64], model: &dyn Model) -> Vec<Sum<'a>> {
    let (d, offers) = (model.dim(), model.offers());
    let mut sums = vec![
        Sum::Gradient { x },
        Sum::Gradient { x: &x[d..2 * d] },
        Sum::Difference { x, z },
        Sum::Difference { x: &x[..d], z: &z[d..2 * d] },
    ];
    if offers.values {
        let gradient = Sum::GradientAndValue { x: &x[..d] };
        sums.extend([Sum::Value { x }, Sum::Value { x: &x[..d] }, gradient]);
    }
    if offers.hessians {
        sums.extend([
            Sum::HessianVector { x: &x[..d], v: &z[..d] },
            Sum::Hessian { x: &x[d..2 * d] },
            Sum::Average { x: &x[..d], spread },
        ]);
    }
    sums
}

/// Grouping changes no bit: what is asked alone of a fresh evaluator, and in shuffled lists of one
/// that has been asked other things, has the same answer; so have several points at once and each
/// of them.
pub fn grouping(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "an answer depends neither on who else asks nor on what was asked before";
    let (client, d) = (ClientId(0), model.dim());
    // eight points are taken at once by some, and then three are left
    let (x, z) = (normals(20, 11 * d), normals(21, 11 * d));
    let spread: Vec<f64> = normals(23, d * d).iter().map(|a| 0.3 * a).collect();
    let some: Vec<u32> = (0..model.rows() as u32).step_by(3).collect();
    let list: Vec<(Sum<'_>, Rows<'_>)> = [Rows::All, Rows::Some(&some)]
        .into_iter()
        .flat_map(|rows| sums(&x, &z, &spread, &**model).into_iter().map(move |sum| (sum, rows)))
        .collect();
    let room = |sum: &Sum<'_>| vec![0.25; sum.points().len() / d * sum.width(d)];
    let mut alone: Vec<Vec<f64>> = Vec::new();
    for (sum, rows) in &list {
        let mut out = room(sum);
        Single::new(model).add(*sum, *rows, 1.7, &mut out);
        let mut each = room(sum);
        for (k, out) in each.chunks_exact_mut(sum.width(d)).enumerate() {
            Single::new(model).add(sum.at(k, d), *rows, 1.7, out);
        }
        ensure!(PROMISE, out == each, "several points at once: {sum:?}");
        alone.push(out);
    }
    let mut evaluator = Arc::clone(model).evaluator();
    for shift in 0..list.len() {
        let mut outs: Vec<Vec<f64>> = list.iter().map(|(sum, _)| room(sum)).collect();
        let mut asks: Vec<Ask<'_>> = list
            .iter()
            .zip(&mut outs)
            .map(|(&(sum, rows), out)| Ask { client, sum, rows, scale: 1.7, out })
            .collect();
        asks.rotate_left(shift);
        asks.swap(0, 2 * shift % list.len());
        let answered = evaluator.answer(&mut asks);
        ensure!(PROMISE, answered.is_ok(), "a list of asks is not answered: {answered:?}");
        ensure!(PROMISE, outs == alone, "in a list: {outs:?}, alone: {alone:?}");
    }
    Ok(true)
}

/// A Hessian is its products with unit vectors, and so are values and Hessians sums over rows.
pub fn hessians(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "a Hessian is its products with unit vectors; rows add up";
    let offers = model.offers();
    if !(offers.values && offers.hessians) {
        return Ok(false);
    }
    let (d, n) = (model.dim(), model.rows() as u32);
    let x = normals(22, d);
    let mut single = Single::new(model);
    let mut whole = vec![0.0; d * d];
    single.add(Sum::Hessian { x: &x }, Rows::All, 2.0, &mut whole);
    let (mut parts, mut value) = (vec![0.0; d * d], [0.0]);
    for row in 0..n {
        single.add(Sum::Hessian { x: &x }, Rows::Some(&[row]), 2.0, &mut parts);
        single.add(Sum::Value { x: &x }, Rows::Some(&[row]), 1.0, &mut value);
    }
    let (all, sum) = (single.value(&x), value[0]);
    ensure!(PROMISE, (sum - all).abs() < 1e-12 * (1.0 + all.abs()), "values: {sum} is not {all}");
    for k in 0..d {
        let (mut unit, mut column) = (vec![0.0; d], vec![0.0; d]);
        unit[k] = 2.0;
        single.add_hessian_vector(&x, &unit, 1.0, &mut column);
        for j in 0..d {
            let near = |a: f64| (a - column[j]).abs() < 1e-11 * (1.0 + column[j].abs());
            let (right, left, sum) = (whole[k * d + j], whole[j * d + k], parts[k * d + j]);
            let same = near(right) && near(left) && near(sum);
            ensure!(PROMISE, same, "{k}, {j}: {right}, {left}, {sum} are not {}", column[j]);
        }
    }
    Ok(true)
}

/// Averages are the means over the law, here over 8,000 points in pairs: the error of such a mean
/// is a hundredth of what the gradients spread, and less for those that are nearly linear; where
/// they are affine both are exact. Models that take 64 points are within a tenth. (The law is no
/// wider than posteriors are: predictors of the widest row spread by about 2.)
pub fn averages(model: &Arc<dyn Model>, tolerance: f64) -> Result<bool, Broken> {
    const PROMISE: &str = "averages are the means over the law";
    if !model.offers().hessians {
        return Ok(false);
    }
    let d = model.dim();
    let (mean, mut single) = (normals(24, d), Single::new(model));
    let spread: Vec<f64> = normals(25, d * d).iter().map(|a| 0.08 * a).collect();
    let mut found = vec![0.0; d + d * d];
    single.add(Sum::Average { x: &mean, spread: &spread }, Rows::All, 1.0, &mut found);
    let (mut exact, n) = (vec![0.0; d + d * d], 8000);
    for k in 0..n / 2 {
        let z = normals(100 + k, d);
        for side in [1.0, -1.0] {
            let mut x = mean.clone();
            for (column, z) in spread.chunks_exact(d).zip(&z) {
                add_scaled(side * z, column, &mut x);
            }
            let (gradient, hessian) = exact.split_at_mut(d);
            single.add_gradient(&x, Rows::All, 1.0 / n as f64, gradient);
            single.add(Sum::Hessian { x: &x }, Rows::All, 1.0 / n as f64, hessian);
        }
    }
    let size = exact.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    for (found, exact) in found.iter().zip(&exact) {
        let near = (found - exact).abs() < tolerance * size;
        ensure!(PROMISE, near, "{found} is not {exact}");
    }
    Ok(true)
}

/// A walk by an evaluator's own way ends where a gradient for each step leads, bit for bit: with
/// minibatches, control variates, a prior and any noise, taken alone or with others.
pub fn walks(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "a walk is its steps";
    let (d, rows) = (model.dim(), model.rows());
    let (start, z, base) = (normals(31, d), normals(32, d), normals(33, d));
    let prior = Prior::gaussian(0.8, d).map_err(|e| unexpected(PROMISE, &e))?;
    let mark = OnceLock::new();
    let control = ControlVariate { point: &z, drift: &base, mark: &mark };
    let chosen: Vec<u32> = (0..5).flat_map(|k| [0, 1 + k % (rows as u32 - 1).max(1)]).collect();
    // how it is done, who else does it, and what each of the steps needs
    let walked = |how: fn(Box<dyn Evaluator>) -> Box<dyn Evaluator>, variants: &[usize]| {
        let mut evaluator = how(Arc::clone(model).evaluator());
        let (mut x, mut drift) = (vec![start.clone(); 4], vec![vec![0.0; d]; 4]);
        let noise = |(shared, own)| {
            Blend::new((Seed::new(35), shared), (Seed::new(36), own), ClientId(3), d)
        };
        let mut noises = [(0.0, 0.6), (0.5, 0.0), (0.4, 0.3), (0.0, 0.6)].map(noise);
        let places = x.iter_mut().zip(&mut drift).zip(&mut noises).enumerate();
        let mut walks: Vec<Walk<'_>> = places
            .filter(|(variant, _)| variants.contains(variant))
            .map(|(variant, ((x, drift), noise))| Walk {
                client: ClientId(0),
                x,
                control: [None, Some(control), Some(control), None][variant],
                pull: None,
                rows: if variant > 1 && rows > 2 { Some(&chosen) } else { None },
                batch: if variant > 1 && rows > 2 { 2 } else { rows },
                scale: 0.7,
                prior: (&prior, if variant > 1 { 0.25 } else { 0.0 }),
                weight: 1.3,
                from: 9,
                steps: [5, 5, 4, 3][variant],
                schedule: Schedule::Constant(1e-3),
                temperature: 0.9,
                noise,
                drift,
            })
            .collect();
        let answer = evaluator.walk(&mut walks, &mut WalkRoom::default());
        drop(walks);
        answer.map(|()| x).map_err(|e| unexpected(PROMISE, &e))
    };
    let together = walked(|evaluator| evaluator, &[0, 1, 2, 3])?;
    for variant in 0..4 {
        let alone = walked(|evaluator| evaluator, &[variant])?;
        let stepwise = walked(|evaluator| Box::new(Stepwise(evaluator)), &[variant])?;
        let (own, stepwise) = (&alone[variant], &stepwise[variant]);
        ensure!(PROMISE, own == stepwise, "it ends at {own:?}, its steps at {stepwise:?}");
        let with = &together[variant];
        ensure!(PROMISE, own == with, "it ends at {own:?}, with others at {with:?}");
        ensure!(PROMISE, *own != start, "it does not move");
    }
    Ok(true)
}

fn unexpected(promise: &'static str, error: &dyn std::fmt::Display) -> Broken {
    Broken { promise, found: error.to_string() }
}

/// An evaluator without a walk of its own.
#[derive(Debug)]
struct Stepwise(Box<dyn Evaluator>);

impl Evaluator for Stepwise {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        self.0.answer(asks)
    }
}

/// No row's gradient changes faster than the model says, where it says so.
pub fn smoothness(model: &Arc<dyn Model>) -> Result<bool, Broken> {
    const PROMISE: &str = "no gradient of a row changes faster than its smoothness";
    let (x, z) = (normals(11, model.dim()), normals(12, model.dim()));
    let apart: Vec<f64> = x.iter().zip(&z).map(|(a, b)| a - b).collect();
    let moved = norm_squared(&apart).sqrt();
    let mut known = false;
    for row in 0..model.rows() {
        let most = model.row_smoothness(row);
        let out = difference(model, &x, &z, Rows::Some(&[row as u32]));
        let ratio = norm_squared(&out).sqrt() / moved;
        let bounded = most.is_nan() || ratio <= most * (1.0 + 1e-12);
        ensure!(PROMISE, bounded, "row {row}: {ratio} is more than {most}");
        known |= most.is_finite();
    }
    Ok(known)
}
