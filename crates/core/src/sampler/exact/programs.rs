//! Write each family as a program on moments.

use nalgebra::{DMatrix, DVector};

use super::moments::{Blocks, Linear, Op, apply, fixed_point};
use super::{Affine, NoClosedForm, prior_precision};
use crate::compress::{Compressor, Operator};
use crate::model::Prior;
use crate::protocol::plain_precision;
use crate::sampler::{Average, Local, MemoryRule, NoiseSource, Oracle, Synchronise, Uplink};
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
            At::Difference(x, z) => {
                vec![(*x, &self.precision * scale), (*z, &self.precision * -scale)]
            }
        }
    }

    /// The minibatch's noise in `scale` times the estimate: for `n` of `N` rows without replacement
    /// its covariance is `N (N - n) / (n (N - 1))` times the sum over rows of the outer product of
    /// their deviation.
    fn spread(
        &self,
        at: &At,
        batch: usize,
        scale: f64,
    ) -> (Option<DMatrix<f64>>, Vec<(f64, Linear)>) {
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

/// Compress a block in place: its new mean given the old, and the noise around it. Exact for
/// operators whose error has a known second moment.
fn compress(
    compressor: Option<Compressor>,
    block: usize,
    d: usize,
) -> Result<Vec<Op>, NoClosedForm> {
    let Some(compressor) = compressor.filter(|c| plain_precision(*c).is_none()) else {
        return Ok(Vec::new());
    };
    let identity = DMatrix::<f64>::identity(d, d);
    let unknown = || NoClosedForm::Unknown {
        what: format!("the compressor {compressor}"),
        instead: "rand_k(...), scaled(rand_k(...)), identity and the exact-error quantiser have \
            closed forms",
    };
    if !compressor.is_whole() {
        return Err(unknown());
    }
    let set = |scale: f64, noise, spread| {
        vec![Op::Set { block, linear: vec![(block, &identity * scale)], noise, spread }]
    };
    match compressor.operator() {
        Operator::Layered { sigma } => Ok(set(1.0, Some(&identity * (sigma * sigma)), Vec::new())),
        Operator::RandK { keep, .. } => {
            // k of d coordinates, scaled by d/k, or not at all: E C = scale v, E C_i^2 = diagonal
            // v_i^2, E C_i C_j = beside v_i v_j.
            let (n, k) = (d as f64, f64::from(keep).min(d as f64));
            let scale = if compressor.omega(d).is_some() { n / k } else { 1.0 };
            let mean = scale * k / n;
            let diagonal = scale * scale * k / n;
            let beside =
                if d > 1 { scale * scale * k * (k - 1.0) / (n * (n - 1.0)) } else { diagonal };
            let mut spread = vec![(beside - mean * mean, vec![(block, identity.clone())])];
            for i in 0..d {
                let only = DMatrix::from_fn(d, d, |r, c| f64::from(u8::from(r == i && c == i)));
                spread.push((diagonal - beside, vec![(block, only)]));
            }
            Ok(set(mean, None, spread))
        }
        _ => Err(unknown()),
    }
}

/// The second moment of family A's draws. The state is x, the sum of answers, the reference point,
/// this client's estimate, the parameter as clients see it, the server's memory (MARINA's), what a
/// client sends, and every client's memory.
pub(super) fn uplink(
    recipe: &Uplink,
    target: &Target,
    clients: &[Affine],
    centre: &[f64],
) -> Result<DMatrix<f64>, NoClosedForm> {
    let (d, b) = (target.dim(), clients.len());
    let gamma = constant_step(&recipe.step)?;
    let identity = DMatrix::<f64>::identity(d, d);
    let (x, sum, z, estimate, w, server_memory, sent, first_memory) = (1, 2, 3, 4, 5, 6, 7, 8);
    let up = |i: usize| recipe.compressor(i, b, target.temperature);
    let lossy = (0..b).any(|i| up(i).is_some());
    let memory =
        recipe.effective_memory().filter(|_| lossy || recipe.participation != Participation::All);
    let marina = match recipe.memory_rule {
        MemoryRule::Marina { restart } if memory.is_some() => Some(restart),
        _ => None,
    };
    let memories = if memory.is_some() { b } else { 0 };
    let blocks = Blocks::new(vec![d; 7 + memories]);

    let down = recipe.down.filter(|c| plain_precision(*c).is_none());
    let point = if down.is_some() { w } else { x };
    let at = match &recipe.oracle {
        Oracle::Plain => At::Plain(point),
        Oracle::FixedPoint(_) | Oracle::Svrg { .. } => At::Difference(point, z),
    };
    let fixed = match &recipe.oracle {
        Oracle::FixedPoint(anchor) => Some(DVector::from_fn(d, |i, _| anchor.point[i] - centre[i])),
        _ => None,
    };
    // What client i does when it is active: its estimate, what it sends of it, then sum and memory.
    let active = |i: usize, weight: f64, in_full: bool| -> Result<Vec<Op>, NoClosedForm> {
        let client = &clients[i];
        let mut linear = client.mean(&at, 1.0);
        if let Oracle::Svrg { .. } = recipe.oracle {
            linear.extend(client.mean(&At::Plain(z), 1.0));
        }
        let (noise, spread) = client.spread(&at, recipe.batch.of(client.rows), 1.0);
        let mut program = vec![Op::Set { block: estimate, linear: collect(linear), noise, spread }];
        let own = first_memory + i;
        let mut difference = vec![(estimate, identity.clone())];
        if memory.is_some() && !in_full {
            difference.push((own, -&identity));
        }
        program.push(Op::set(sent, difference));
        if !in_full {
            program.extend(compress(up(i), sent, d)?);
        }
        program.push(Op::set(sum, vec![(sum, identity.clone()), (sent, &identity * weight)]));
        if marina.is_some() {
            program.push(Op::set(own, vec![(estimate, identity.clone())]));
        } else if let Some(alpha) = memory {
            program.push(Op::set(own, vec![(own, identity.clone()), (sent, &identity * alpha)]));
        }
        Ok(program)
    };
    let everybody = |in_full: bool| -> Result<Vec<Op>, NoClosedForm> {
        Ok((0..b).map(|i| active(i, 1.0, in_full)).collect::<Result<Vec<_>, _>>()?.concat())
    };

    let mut answers = Vec::new();
    match (&recipe.participation, recipe.weighting) {
        (Participation::All, _) => {
            if let Some(restart) = marina {
                let in_full = [vec![Op::set(sum, Vec::new())], everybody(true)?].concat();
                let compressed = [
                    vec![Op::set(sum, vec![(server_memory, identity.clone())])],
                    everybody(false)?,
                ]
                .concat();
                answers.push(Op::Mix(vec![(restart, in_full), (1.0 - restart, compressed)]));
                answers.push(Op::set(server_memory, vec![(sum, identity.clone())]));
            } else {
                answers.extend(everybody(false)?);
            }
        }
        (
            Participation::Bernoulli(p) | Participation::Elastic(p),
            Weighting::InverseProbability,
        ) => {
            for i in 0..b {
                answers.push(Op::Mix(vec![
                    (p[i], active(i, 1.0 / p[i], false)?),
                    (1.0 - p[i], Vec::new()),
                ]));
            }
        }
        (participation, _) => {
            let mut cases = Vec::new();
            for (p, set) in active_sets(participation, b)? {
                let weight = b as f64 / set.len() as f64;
                cases.push((
                    p,
                    set.iter()
                        .map(|i| active(*i, weight, false))
                        .collect::<Result<Vec<_>, _>>()?
                        .concat(),
                ));
            }
            answers.push(Op::Mix(cases));
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
    let temperature = if recipe.noise == NoiseSource::Server { target.temperature } else { 0.0 };
    let noise = Some(&identity * (2.0 * gamma * temperature));
    let step = Op::Set { block: x, linear: step, noise, spread: Vec::new() };

    // One round: the parameter goes down, the reference point moves there or not, answers come up,
    // a step. A block that nobody sets would keep whatever it had.
    let downward = match down {
        Some(_) => [
            vec![Op::set(sent, vec![(x, identity.clone()), (w, -&identity)])],
            compress(down, sent, d)?,
            vec![Op::set(w, vec![(w, identity.clone()), (sent, identity.clone())])],
        ]
        .concat(),
        None => vec![Op::set(w, Vec::new())],
    };
    let mut before_answers = Vec::new();
    if marina.is_none() {
        before_answers.push(Op::set(server_memory, Vec::new()));
    }
    // The sum starts at the memories' sum, taken before this round changes them.
    before_answers.push(Op::set(
        sum,
        if marina.is_some() {
            Vec::new()
        } else {
            (0..memories).map(|i| (first_memory + i, identity.clone())).collect()
        },
    ));
    let round = |moves_reference: bool| {
        let mut round = downward.clone();
        if moves_reference {
            let there = match (&recipe.oracle, &fixed) {
                (Oracle::Svrg { .. }, _) => vec![(point, identity.clone())],
                (_, Some(fixed)) => vec![(ONE, column(fixed, 1.0))],
                _ => Vec::new(),
            };
            round.push(Op::set(z, there));
        }
        round.extend(before_answers.iter().cloned());
        round.extend(answers.iter().cloned());
        round.push(step.clone());
        round
    };
    // A cycle: with SVRG as many rounds as a reference point lasts; every round ends in a draw.
    let period = if let Oracle::Svrg { every } = recipe.oracle { every } else { 1 };
    let rounds: Vec<Vec<Op>> = (0..period).map(|k| round(k == 0)).collect();
    let mut moment = fixed_point(&rounds.concat(), &blocks)
        .map_err(|growth| NoClosedForm::Unstable { growth, step: gamma })?;
    let mut draws = DMatrix::zeros(moment.nrows(), moment.ncols());
    for round in &rounds {
        apply(round, &blocks, &mut moment);
        draws += &moment / period as f64;
    }
    Ok(draws)
}

/// Every active set with its probability.
fn active_sets(
    participation: &Participation,
    b: usize,
) -> Result<Vec<(f64, Vec<usize>)>, NoClosedForm> {
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
        Participation::Bernoulli(p) | Participation::Elastic(p) => {
            let p = p[0];
            let odds = |n: usize| {
                p.powi(n as i32) * (1.0 - p).powi((b - n) as i32) / (1.0 - (1.0 - p).powi(b as i32))
            };
            sets.map(|set| (odds(set.len()), set)).collect()
        }
        Participation::All => vec![(1.0, (0..b).collect())],
    })
}

/// The second moment of family B's draws: the state is every client's parameter, a mean, the shared
/// noise, the reference point and its successor.
pub(super) fn local(
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
    let compression = recipe.up.filter(|(c, _)| plain_precision(*c).is_none());
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
                    vec![(memory, identity.clone()), (sent, &identity * rate)],
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The second moment of what `rand_k` makes of a fixed vector, against the average over all
    /// subsets of coordinates.
    #[test]
    fn compression_has_the_moments_of_all_its_subsets() {
        let v = [1.0, -2.0, 0.5];
        let blocks = Blocks::new([3]);
        for keep in 1..=3u32 {
            for (compressor, scale) in [
                (Compressor::rand_k(keep), 3.0 / f64::from(keep)),
                (Compressor::rand_k(keep).scaled(), 1.0),
            ] {
                let mut moment = DMatrix::from_fn(4, 4, |i, j| {
                    [1.0, v[0], v[1], v[2]][i] * [1.0, v[0], v[1], v[2]][j]
                });
                apply(&compress(Some(compressor), 1, 3).unwrap(), &blocks, &mut moment);
                let subsets: Vec<u32> =
                    (0..8u32).filter(|mask| mask.count_ones() == keep).collect();
                let mut expected = DMatrix::zeros(4, 4);
                for mask in &subsets {
                    let kept = |i: usize| {
                        if i == 0 { 1.0 } else { scale * v[i - 1] * f64::from(mask >> (i - 1) & 1) }
                    };
                    expected +=
                        DMatrix::from_fn(4, 4, |i, j| kept(i) * kept(j)) / subsets.len() as f64;
                }
                assert!((moment - expected).amax() < 1e-13, "{compressor}");
            }
        }
    }
}
