//! Write family B as a program on moments, whose fixed point is the law of its draws.

use nalgebra::{DMatrix, DVector};

use super::{Average, Local, Synchronise};
use crate::sampler::exact::moments::{Blocks, Linear, Op, apply, fixed_point};
use crate::sampler::exact::programs::{At, ONE, collect, column, compress, constant_step};
use crate::sampler::exact::{Affine, NoClosedForm, prior_precision};
use crate::target::{Placement, Target};

/// The second moment of family B's draws: the state is every client's parameter, a mean, the shared
/// noise, the reference point and its successor.
pub(super) fn second_moment(
    recipe: &Local,
    target: &Target,
    clients: &[Affine],
    centre: &[f64],
) -> Result<DMatrix<f64>, NoClosedForm> {
    let (d, b) = (target.dim(), clients.len());
    let eta = constant_step(&recipe.step)?;
    let identity = DMatrix::<f64>::identity(d, d);
    let variance = 2.0 * eta * target.temperature;
    let rho = recipe.correlation;
    let factor = recipe.noise.factor(recipe.average, b);
    // the mean first: it is what the draws are
    let (mean, shared, y, next_y, sent, first) = (1, 2, 3, 4, 5, 6);
    let compression = recipe.up.as_ref().filter(|(c, _)| c.plain().is_none());
    let blocks = Blocks::new(vec![d; 5 + b + if compression.is_some() { b } else { 0 }]);
    let weighted = |weights: &[f64]| -> Linear {
        (0..b).filter(|c| weights[*c] > 0.0).map(|c| (first + c, &identity * weights[c])).collect()
    };

    let mut iteration = Vec::new();
    if let Some(q) = recipe.refresh {
        let moves = vec![Op::set(next_y, weighted(&recipe.weights))]; // before the step
        let stays = vec![Op::set(next_y, vec![(y, identity.clone())])];
        iteration.push(Op::Mix(vec![(q, moves), (1.0 - q, stays)]));
    } else {
        // a block that nobody sets would keep whatever it had
        iteration.extend([Op::set(y, Vec::new()), Op::set(next_y, Vec::new())]);
    }
    let shared_noise = Some(&identity * (variance * rho * rho));
    iteration.push(Op::Set {
        block: shared,
        linear: Vec::new(),
        noise: shared_noise,
        spread: Vec::new(),
    });
    for (c, client) in clients.iter().enumerate() {
        let (x, p) = (first + c, recipe.weights[c]);
        let at = if recipe.refresh.is_some() { At::Difference(x, y) } else { At::Plain(x) };
        let mut linear = vec![(x, identity.clone()), (shared, identity.clone())];
        linear.extend(client.mean(&at, -eta / p));
        if let Some(pull) = recipe.pull(c) {
            linear
                .extend([(x, &identity * (-eta / p * pull)), (mean, &identity * (eta / p * pull))]);
        }
        if recipe.refresh.is_some() {
            for other in clients {
                linear.extend(other.mean(&At::Plain(y), -eta)); // grad U(y), prior included
            }
        }
        let (constant, spread) = client.spread(&at, recipe.batch.of(client.rows), eta / p);
        let private = &identity * (variance * (1.0 - rho * rho) / p * factor);
        let noise = Some(constant.map_or(private.clone(), |constant| constant + private));
        iteration.push(Op::Set { block: x, linear: collect(linear), noise, spread });
    }
    if recipe.refresh.is_some() {
        iteration.push(Op::set(y, vec![(next_y, identity.clone())]));
    }

    let average = match compression {
        None => [vec![Op::set(sent, Vec::new())], average(recipe, b, &weighted, mean)?].concat(),
        Some((compressor, rate)) => {
            let mut program = vec![Op::set(mean, Vec::new())];
            for c in 0..b {
                let (memory, p) = (first + b + c, recipe.weights[c]);
                program
                    .push(Op::set(sent, vec![(first + c, identity.clone()), (memory, -&identity)]));
                program.extend(compress(Some(compressor), sent, d)?);
                program.push(Op::set(
                    mean,
                    vec![(mean, identity.clone()), (memory, &identity * p), (sent, &identity * p)],
                ));
                program.push(Op::set(
                    memory,
                    vec![(memory, identity.clone()), (sent, &identity * *rate)],
                ));
            }
            program
        }
    };
    let spread_out: Vec<Op> =
        (0..b).map(|c| Op::set(first + c, vec![(mean, identity.clone())])).collect();
    let synchronise: Vec<Op> = match (0..b).map(|c| recipe.pull(c)).collect::<Option<Vec<f64>>>() {
        Some(pulls) => vec![
            Op::set(sent, Vec::new()),
            condition(&pulls, target, &weighted(&pulls), mean, centre)?,
        ],
        None => average.into_iter().chain(spread_out).collect(),
    };

    let unstable = |growth| NoClosedForm::Unstable { growth, step: eta };
    match recipe.synchronise {
        Synchronise::Every(every) => {
            let mut cycle = Vec::new();
            for _ in 0..every {
                cycle.extend(iteration.iter().cloned());
            }
            cycle.extend(synchronise);
            fixed_point(&cycle, &blocks).map_err(unstable)
        }
        Synchronise::Randomly(p) => {
            let mut cycle = iteration.clone();
            cycle.push(Op::Mix(vec![(p, synchronise.clone()), (1.0 - p, Vec::new())]));
            let mut moment = fixed_point(&cycle, &blocks).map_err(unstable)?;
            apply(&iteration, &blocks, &mut moment);
            // a draw is what follows a coin that fell on 1
            apply(&synchronise, &blocks, &mut moment);
            Ok(moment)
        }
    }
}

/// Draw the block `mean` given the clients, whose sum of `x_c / rho_c` is `pulled`. The prior is
/// centred at 0, and the state at `centre`.
fn condition(
    pulls: &[f64],
    target: &Target,
    pulled: &Linear,
    mean: usize,
    centre: &[f64],
) -> Result<Op, NoClosedForm> {
    let d = target.dim();
    let prior = if target.placement == Placement::Server {
        prior_precision(target)?
    } else {
        DMatrix::zeros(d, d)
    };
    let inverse = DMatrix::from_fn(d, d, |i, j| {
        if i == j { 1.0 / (pulls.iter().sum::<f64>() + prior[(i, i)]) } else { 0.0 }
    });
    let mut linear: Linear =
        pulled.iter().map(|(block, matrix)| (*block, &inverse * matrix)).collect();
    linear.push((ONE, column(&(&inverse * prior * DVector::from_column_slice(centre)), -1.0)));
    Ok(Op::Set {
        block: mean,
        linear,
        noise: Some(inverse * target.temperature),
        spread: Vec::new(),
    })
}

/// Set the block `mean` to the average of the clients that take part.
fn average(
    recipe: &Local,
    b: usize,
    weighted: &impl Fn(&[f64]) -> Linear,
    mean: usize,
) -> Result<Vec<Op>, NoClosedForm> {
    let (off_diagonal, s) = match recipe.average {
        Average::All => return Ok(vec![Op::set(mean, weighted(&recipe.weights))]),
        // E[w w'] = a p p' + diag(c): scheme I has a = 1 - 1/S, c = p/S; scheme II a = N (S - 1) /
        // (S (N - 1)).
        Average::WithReplacement(s) => (1.0 - 1.0 / s as f64, s),
        Average::WithoutReplacement(_) if b == 1 => {
            return Ok(vec![Op::set(mean, weighted(&recipe.weights))]);
        }
        Average::WithoutReplacement(s) => {
            (b as f64 * (s as f64 - 1.0) / (s as f64 * (b as f64 - 1.0)), s)
        }
    };
    // The mean of w is p in both, so w = p + noise with covariance E[w w'] - p p'.
    let mut spread = vec![(off_diagonal - 1.0, weighted(&recipe.weights))];
    for c in 0..b {
        let p = recipe.weights[c];
        let diagonal = match recipe.average {
            Average::WithReplacement(_) => p / s as f64,
            _ => 1.0 / (s as f64 * b as f64) - off_diagonal * p * p,
        };
        let mut only = vec![0.0; b];
        only[c] = 1.0;
        spread.push((diagonal, weighted(&only)));
    }
    Ok(vec![Op::Set { block: mean, linear: weighted(&recipe.weights), noise: None, spread }])
}
