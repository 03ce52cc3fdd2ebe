//! Write each family as a program on moments.

use nalgebra::{DMatrix, DVector};

use super::moments::{Blocks, Linear, Op, apply, fixed_point};
use super::{Affine, NoClosedForm, prior_precision};
use crate::model::Prior;
use crate::sampler::recipe::{Average, Local, Oracle, Synchronise, Uplink};
use crate::sampler::{Participation, Weighting};
use crate::step::Schedule;
use crate::target::{Placement, Target};

/// The most active sets whose law is spelled out case by case.
const MOST_CASES: usize = 4096;

const ONE: usize = 0;

fn constant_step(step: &Schedule) -> Result<f64, NoClosedForm> {
    if let Schedule::Constant(step) = step { Ok(*step) } else { Err(NoClosedForm::NotStationary) }
}

/// Where a client's gradient is taken.
enum At {
    /// At this block, as it is.
    Plain(usize),
    /// At this block, minus the same at the other; the rows' shifts cancel.
    Difference(usize, usize),
}

impl Affine {
    /// `scale` times the mean of the estimate, as a linear map of the state.
    fn mean(&self, at: &At, scale: f64) -> Linear {
        match at {
            At::Plain(x) => vec![(*x, &self.precision * scale), (ONE, column(&self.shift, -scale))],
            At::Difference(x, z) => vec![(*x, &self.precision * scale), (*z, &self.precision * -scale)],
        }
    }

    /// The minibatch's noise in `scale` times the estimate: for `n` of `N` rows without replacement its covariance is `N (N - n) / (n (N - 1))` times
    /// the sum over rows of the outer product of their deviation.
    fn spread(&self, at: &At, batch: usize, scale: f64) -> (Option<DMatrix<f64>>, Vec<(f64, Linear)>) {
        let (all, n) = (self.rows as f64, batch as f64);
        if batch == self.rows {
            return (None, Vec::new());
        }
        let factor = scale * scale * all * (all - n) / (n * (all - 1.0));
        let constant = match at {
            At::Plain(_) => self.constant_spread.as_ref().map(|s| s * factor),
            At::Difference(..) => None,
        };
        let linear = |(h, r): &(DMatrix<f64>, DVector<f64>)| match at {
            At::Plain(x) => vec![(*x, h.clone()), (ONE, column(r, -1.0))],
            At::Difference(x, z) => vec![(*x, h.clone()), (*z, -h)],
        };
        (constant, self.row_spread.iter().map(|row| (factor, linear(row))).collect())
    }
}

fn column(v: &DVector<f64>, scale: f64) -> DMatrix<f64> {
    DMatrix::from_fn(v.len(), 1, |i, _| v[i] * scale)
}

/// The second moment of family A's draws: the state is x, the sum of answers, the reference point, this client's estimate, and every memory.
pub(super) fn uplink(recipe: &Uplink, target: &Target, clients: &[Affine], centre: &[f64]) -> Result<DMatrix<f64>, NoClosedForm> {
    let (d, b) = (target.dim(), clients.len());
    let gamma = constant_step(&recipe.step)?;
    let identity = DMatrix::<f64>::identity(d, d);
    let (x, sum, z, estimate, first_memory) = (1, 2, 3, 4, 5);
    let memories = if recipe.memory_rate.is_some() && recipe.participation != Participation::All { b } else { 0 };
    let blocks = Blocks::new(vec![d; 4 + memories]);

    let at = match &recipe.oracle {
        Oracle::Plain => At::Plain(x),
        Oracle::FixedPoint(_) => At::Difference(x, z),
        Oracle::Svrg { .. } => At::Difference(x, z),
    };
    let fixed = match &recipe.oracle {
        Oracle::FixedPoint(anchor) => Some(DVector::from_fn(d, |i, _| anchor.point[i] - centre[i])),
        _ => None,
    };
    // What client i does when it is active: its estimate, then memory and sum.
    let active = |i: usize, weight: f64| {
        let client = &clients[i];
        let mut linear = client.mean(&at, 1.0);
        if let Oracle::Svrg { .. } = recipe.oracle {
            linear.extend(client.mean(&At::Plain(z), 1.0));
        }
        let (noise, spread) = client.spread(&at, recipe.batch.of(client.rows), 1.0);
        let mut program = vec![Op::Set { block: estimate, linear, noise, spread }];
        let mut into_sum = vec![(sum, identity.clone()), (estimate, &identity * weight)];
        if memories > 0 {
            let alpha = recipe.memory_rate.unwrap_or(0.0);
            let memory = first_memory + i;
            into_sum.push((memory, &identity * -weight));
            program.push(Op::set(sum, into_sum));
            program.push(Op::set(memory, vec![(memory, &identity * (1.0 - alpha)), (estimate, &identity * alpha)]));
        } else {
            program.push(Op::set(sum, into_sum));
        }
        program
    };

    // The sum starts at the memories' sum, taken before this round changes them.
    let mut round = vec![Op::set(sum, (0..memories).map(|i| (first_memory + i, identity.clone())).collect())];
    match (&recipe.participation, recipe.weighting) {
        (Participation::All, _) => round.extend((0..b).flat_map(|i| active(i, 1.0))),
        (Participation::Bernoulli(p), Weighting::InverseProbability) => {
            round.extend((0..b).map(|i| Op::Mix(vec![(p[i], active(i, 1.0 / p[i])), (1.0 - p[i], Vec::new())])));
        }
        (participation, _) => {
            let sets = active_sets(participation, b)?;
            let weight = |set: &[usize]| b as f64 / set.len() as f64;
            let case = |set: &Vec<usize>| set.iter().flat_map(|i| active(*i, weight(set))).collect::<Vec<_>>();
            round.push(Op::Mix(sets.iter().map(|(p, set)| (*p, case(set))).collect()));
        }
    }
    let mut step = vec![(x, identity.clone()), (sum, &identity * -gamma)];
    if let (Placement::Server, Prior::Gaussian(_)) = (&target.placement, &target.prior) {
        let prior = prior_precision(target)?;
        step[0].1 -= &prior * gamma;
        step.push((ONE, column(&(&prior * DVector::from_column_slice(centre)), -gamma)));
    }
    if let Oracle::FixedPoint(anchor) = &recipe.oracle {
        step.push((ONE, column(&DVector::from_column_slice(&anchor.residual), -gamma)));
    }
    let noise = Some(&identity * (2.0 * gamma * target.temperature));
    round.push(Op::Set { block: x, linear: step, noise, spread: Vec::new() });

    // A cycle: with SVRG as many rounds as a reference point lasts; every round ends in a draw.
    let (period, start) = match (&recipe.oracle, fixed) {
        (Oracle::Svrg { every }, _) => (*every, vec![Op::set(z, vec![(x, identity)])]),
        (_, Some(fixed)) => (1, vec![Op::set(z, vec![(ONE, column(&fixed, 1.0))])]),
        _ => (1, vec![Op::set(z, Vec::new())]), // a block that nobody sets would keep whatever it had
    };
    let mut cycle = start.clone();
    for _ in 0..period {
        cycle.extend(round.iter().cloned());
    }
    let mut moment = fixed_point(&cycle, &blocks).map_err(|growth| NoClosedForm::Unstable { growth, step: gamma })?;
    let mut draws = DMatrix::zeros(moment.nrows(), moment.ncols());
    apply(&start, &blocks, &mut moment);
    for _ in 0..period {
        apply(&round, &blocks, &mut moment);
        draws += &moment / period as f64;
    }
    Ok(draws)
}

/// Every active set with its probability.
fn active_sets(participation: &Participation, b: usize) -> Result<Vec<(f64, Vec<usize>)>, NoClosedForm> {
    if b > MOST_CASES.ilog2() as usize {
        return Err(NoClosedForm::Unknown {
            what: format!("dependent participation of {b} clients"),
            instead: "use Bernoulli participation with weights 1/p, or at most 12 clients",
        });
    }
    let sets = (1u32..1 << b).map(|mask| (0..b).filter(|i| mask >> i & 1 == 1).collect::<Vec<_>>());
    Ok(match participation {
        Participation::Fixed(size) => {
            let sets: Vec<_> = sets.filter(|set| set.len() == *size).collect();
            let p = 1.0 / sets.len() as f64;
            sets.into_iter().map(|set| (p, set)).collect()
        }
        Participation::Bernoulli(p) => {
            let p = p[0];
            let odds = |n: usize| p.powi(n as i32) * (1.0 - p).powi((b - n) as i32) / (1.0 - (1.0 - p).powi(b as i32));
            sets.map(|set| (odds(set.len()), set)).collect()
        }
        Participation::All => vec![(1.0, (0..b).collect())],
    })
}

/// The second moment of family B's draws: the state is every client's parameter, a mean, the shared noise, the reference point and its successor.
pub(super) fn local(recipe: &Local, target: &Target, clients: &[Affine]) -> Result<DMatrix<f64>, NoClosedForm> {
    let (d, b) = (target.dim(), clients.len());
    let eta = constant_step(&recipe.step)?;
    let identity = DMatrix::<f64>::identity(d, d);
    let variance = 2.0 * eta * target.temperature;
    let rho = recipe.correlation;
    let factor = recipe.noise.factor(recipe.average, b);
    let (mean, shared, y, next_y, first) = (1, 2, 3, 4, 5); // the mean first: it is what the draws are
    let blocks = Blocks::new(vec![d; 4 + b]);
    let weighted =
        |weights: &[f64]| -> Linear { (0..b).filter(|c| weights[*c] > 0.0).map(|c| (first + c, &identity * weights[c])).collect() };

    let mut iteration = Vec::new();
    if let Some(q) = recipe.refresh {
        let moves = vec![Op::set(next_y, weighted(&recipe.weights))]; // before the step
        let stays = vec![Op::set(next_y, vec![(y, identity.clone())])];
        iteration.push(Op::Mix(vec![(q, moves), (1.0 - q, stays)]));
    } else {
        iteration.extend([Op::set(y, Vec::new()), Op::set(next_y, Vec::new())]); // a block that nobody sets would keep whatever it had
    }
    let shared_noise = Some(&identity * (variance * rho * rho));
    iteration.push(Op::Set { block: shared, linear: Vec::new(), noise: shared_noise, spread: Vec::new() });
    for (c, client) in clients.iter().enumerate() {
        let (x, p) = (first + c, recipe.weights[c]);
        let at = if recipe.refresh.is_some() { At::Difference(x, y) } else { At::Plain(x) };
        let mut linear = vec![(x, identity.clone()), (shared, identity.clone())];
        linear.extend(client.mean(&at, -eta / p));
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

    let average = average(recipe, b, &weighted, mean)?;
    let spread_out: Vec<Op> = (0..b).map(|c| Op::set(first + c, vec![(mean, identity.clone())])).collect();
    let synchronise: Vec<Op> = average.into_iter().chain(spread_out).collect();

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
            apply(&synchronise, &blocks, &mut moment); // a draw is what follows a coin that fell on 1
            Ok(moment)
        }
    }
}

/// Set the block `mean` to the average of the clients that take part.
fn average(recipe: &Local, b: usize, weighted: &impl Fn(&[f64]) -> Linear, mean: usize) -> Result<Vec<Op>, NoClosedForm> {
    let (off_diagonal, s) = match recipe.average {
        Average::All => return Ok(vec![Op::set(mean, weighted(&recipe.weights))]),
        // E[w w'] = a p p' + diag(c): scheme I has a = 1 - 1/S, c = p/S; scheme II a = N (S - 1) / (S (N - 1)).
        Average::WithReplacement(s) => (1.0 - 1.0 / s as f64, s),
        Average::WithoutReplacement(_) if b == 1 => return Ok(vec![Op::set(mean, weighted(&recipe.weights))]),
        Average::WithoutReplacement(s) => (b as f64 * (s as f64 - 1.0) / (s as f64 * (b as f64 - 1.0)), s),
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

/// Add up the matrices of equal blocks.
fn collect(linear: Linear) -> Linear {
    let mut collected: Linear = Vec::new();
    for (block, matrix) in linear {
        match collected.iter_mut().find(|(known, _)| *known == block) {
            Some((_, sum)) => *sum += matrix,
            None => collected.push((block, matrix)),
        }
    }
    collected
}
