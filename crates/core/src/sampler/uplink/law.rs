//! Write family A as a program on moments, whose fixed point is the law of its draws.

use nalgebra::{DMatrix, DVector};

use super::{MemoryRule, NoiseSource, Oracle, Uplink};
use crate::model::Prior;
use crate::sampler::exact::moments::{Blocks, Op, apply, fixed_point};
use crate::sampler::exact::programs::{At, ONE, collect, column, compress, constant_step};
use crate::sampler::exact::{Affine, NoClosedForm, prior_precision};
use crate::sampler::{Participation, Weighting};
use crate::target::{Placement, Target};

/// The most active sets whose law is spelled out case by case.
const MOST_CASES: usize = 4096;

/// The second moment of family A's draws. The state is x, the sum of answers, the reference point,
/// this client's estimate, the parameter as clients see it, the server's memory (MARINA's), what a
/// client sends, and every client's memory.
pub(super) fn second_moment(
    recipe: &Uplink,
    target: &Target,
    clients: &[Affine],
    centre: &[f64],
) -> Result<DMatrix<f64>, NoClosedForm> {
    let (d, b) = (target.dim(), clients.len());
    let gamma = constant_step(&recipe.step)?;
    let identity = DMatrix::<f64>::identity(d, d);
    let (x, sum, z, estimate, w, server_memory, sent, first_memory) = (1, 2, 3, 4, 5, 6, 7, 8);
    // Where clients draw the noise, what they draw and what rounding adds is taken off the
    // server's: the law is that without either.
    let up =
        |i: usize| recipe.compressor(i, b, target.temperature).filter(|_| recipe.private.is_none());
    let lossy = (0..b).any(|i| up(i).is_some());
    let memory =
        recipe.effective_memory().filter(|_| lossy || recipe.participation != Participation::All);
    let marina = match recipe.memory_rule {
        MemoryRule::Marina { restart } if memory.is_some() => Some(restart),
        _ => None,
    };
    let memories = if memory.is_some() { b } else { 0 };
    let blocks = Blocks::new(vec![d; 7 + memories]);

    let down = recipe.down.as_ref().filter(|c| c.plain().is_none());
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
            program.extend(compress(up(i).as_ref(), sent, d)?);
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
