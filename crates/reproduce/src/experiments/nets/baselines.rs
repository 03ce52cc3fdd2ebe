//! Walk what is no sampler of the registry, for the tables that have it: descent and ensembles of
//! it, federated averaging with laws around its clients (FedBE), preconditioned SGLD.

use std::sync::atomic::Ordering;

use consilience_core::model::{Prior, Rows, Single};
use consilience_core::rng::{ClientId, Noise, Purpose, SERVER, Seed, Stream, Subsets};
use consilience_core::target::Target;
use consilience_engine::run::Progress;

use super::methods::{rows, shares};
use super::setting::Method;
use crate::experiment::Trouble;

/// The chains of descents: other addresses than those of the chains that sample.
const DESCENTS: u32 = 1 << 30;
/// How often somebody looks at the stop sign.
const PATIENCE: u64 = 64;

/// Minibatch gradient descent on the mean loss of all rows of a target, prior included.
pub(super) struct Descent {
    models: Vec<(Single, usize)>,
    prior: Prior,
    seed: Seed,
    place: u32,
    rate: f64,
    batch: usize,
    steps: u64,
    subsets: Subsets,
    chosen: Vec<u32>,
    gradient: Vec<f64>,
}

impl Descent {
    /// The descent at `place`: no two places use the same minibatches.
    pub(super) fn new(target: &Target, seed: Seed, place: u32, rate: f64, batch: usize) -> Self {
        let models: Vec<(Single, usize)> =
            target.clients.iter().map(|model| (Single::new(model), model.rows())).collect();
        let most = models.iter().map(|(_, rows)| *rows).max().unwrap_or(0);
        Descent {
            models,
            prior: target.prior.clone(),
            seed: seed.chain(DESCENTS),
            place,
            rate,
            batch,
            steps: 0,
            subsets: Subsets::new(most),
            chosen: Vec::new(),
            gradient: vec![0.0; target.dim()],
        }
    }

    /// `1/N` of an unbiased gradient of `U` at `x`, by one minibatch of every client.
    fn slope(&mut self, x: &[f64]) -> &[f64] {
        self.gradient.fill(0.0);
        let all: usize = self.models.iter().map(|(_, rows)| rows).sum();
        for (client, (model, rows)) in (self.place..).zip(&mut self.models) {
            self.chosen.resize(self.batch.min(*rows), 0);
            let mut stream = self.seed.stream(Purpose::Batch, ClientId(client), self.steps);
            self.subsets.draw(*rows as u32, &mut stream, &mut self.chosen);
            let scale = *rows as f64 / (self.chosen.len() * all) as f64;
            model.add_gradient(x, Rows::Some(&self.chosen), scale, &mut self.gradient);
        }
        self.prior.add_gradient(x, 1.0 / all as f64, &mut self.gradient);
        self.steps += 1;
        &self.gradient
    }

    /// One step.
    pub(super) fn step(&mut self, x: &mut [f64]) {
        let rate = self.rate;
        let slope = self.slope(x);
        x.iter_mut().zip(slope).for_each(|(x, g)| *x -= rate * g);
    }
}

/// Go through what a baseline has in place of draws; every net of an ensemble has its own start.
pub(super) fn walk(
    method: &Method,
    target: &Target,
    starts: &dyn Fn(u32) -> Vec<f64>,
    seed: Seed,
    progress: &Progress,
    look: &mut dyn FnMut(&[f64]),
) -> Result<(), Trouble> {
    let mut look = |iteration: u64, x: &[f64]| -> Result<(), Trouble> {
        if x.iter().any(|x| !x.is_finite()) {
            return Err(Trouble::Diverged { cell: String::new(), iteration });
        }
        look(x);
        Ok(())
    };
    match method.by.as_str() {
        "sgd" => {
            for net in 0..method.draws as u32 {
                let mut x = starts(net);
                let mut descent = Descent::new(target, seed, net << 8, method.step, method.batch);
                for k in 0..method.iterations {
                    descent.step(&mut x);
                    if net == 0 {
                        tick(k, progress)?;
                    }
                }
                look(method.iterations, &x)?;
            }
        }
        "psgld" => {
            Preconditioned::PUBLISHED.walk(method, target, starts(0), seed, progress, look)?
        }
        "fedbe-gauss" | "fedbe-dirichlet" => {
            let (global, clients) = averaged(method, target, starts(0), seed, progress)?;
            let shares = shares(target);
            for draw in 0..method.draws {
                let mut stream = seed.stream(Purpose::Data, ClientId(DESCENTS), draw);
                let around = match method.by.as_str() {
                    "fedbe-gauss" => gaussian(&global, &clients, &shares, &mut stream),
                    _ => dirichlet(&clients, &mut stream),
                };
                look(method.iterations, &around)?;
            }
            clients.iter().chain([&global]).try_for_each(|x| look(method.iterations, x))?;
        }
        other => return Err(Trouble::Other(format!("there is no method called `{other}`"))),
    }
    Ok(())
}

fn tick(iteration: u64, progress: &Progress) -> Result<(), Trouble> {
    progress.done.fetch_add(1, Ordering::Relaxed);
    match iteration.is_multiple_of(PATIENCE) && progress.is_stopped() {
        true => Err(Trouble::Stopped),
        false => Ok(()),
    }
}

/// SGLD with a diagonal preconditioner (Li et al. 2016, Alg. 1, without the term of its curvature,
/// as they do): another law than the posterior.
///
/// ```text
/// V <- a V + (1 - a) g o g,  g the mean gradient of a minibatch's rows;   G = 1/(l + sqrt V)
/// x <- x - gamma G grad U + sqrt(2 gamma G) Z
/// ```
struct Preconditioned {
    /// `a`.
    decay: f64,
    /// `l`.
    floor: f64,
}

impl Preconditioned {
    const PUBLISHED: Self = Preconditioned { decay: 0.99, floor: 1e-5 };

    fn walk(
        &self,
        method: &Method,
        target: &Target,
        mut x: Vec<f64>,
        seed: Seed,
        progress: &Progress,
        mut look: impl FnMut(u64, &[f64]) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let (mut due, all) = (method.due(), rows(target) as f64);
        let mut descent = Descent::new(target, seed, 0, 0.0, method.batch);
        let (dim, mut drawn) = (x.len(), Noise::new(seed, SERVER, x.len()));
        let (mut squares, mut noise) = (vec![0.0; dim], vec![0.0; dim]);
        for k in 0..method.iterations {
            let slope = descent.slope(&x);
            for from in (0..dim).step_by(1024) {
                let stretch = from..dim.min(from + 1024);
                noise[stretch.clone()].copy_from_slice(drawn.at(k, stretch));
            }
            for (((x, g), v), z) in x.iter_mut().zip(slope).zip(&mut squares).zip(&noise) {
                *v = self.decay * *v + (1.0 - self.decay) * g * g;
                let step = method.step / (self.floor + v.sqrt());
                *x += -step * all * g + (2.0 * step).sqrt() * z;
            }
            tick(k, progress)?;
            if due.is(k + 1) {
                look(k + 1, &x)?;
            }
        }
        Ok(())
    }
}

/// Federated averaging: the mean of the clients' nets, and these, after the last round of local
/// descent. The prior is left out, as the tables' weight decay is.
fn averaged(
    method: &Method,
    target: &Target,
    mut global: Vec<f64>,
    seed: Seed,
    progress: &Progress,
) -> Result<(Vec<f64>, Vec<Vec<f64>>), Trouble> {
    let (shares, local) = (shares(target), method.every.unwrap_or(1));
    let alone = |model| Target { clients: vec![model], prior: Prior::Flat, ..target.clone() };
    let mut descents: Vec<Descent> = (1..)
        .zip(&target.clients)
        .map(|(at, model)| Descent::new(&alone(model.clone()), seed, at, method.step, method.batch))
        .collect();
    let mut clients = vec![global.clone(); descents.len()];
    for round in 0..method.iterations / local {
        for (descent, x) in descents.iter_mut().zip(&mut clients) {
            x.copy_from_slice(&global);
            (0..local).for_each(|_| descent.step(x));
        }
        global.fill(0.0);
        for (x, share) in clients.iter().zip(&shares) {
            global.iter_mut().zip(x).for_each(|(sum, x)| *sum += share * x);
        }
        progress.done.fetch_add(local, Ordering::Relaxed);
        if progress.is_stopped() {
            return Err(Trouble::Stopped);
        }
        if global.iter().any(|x| !x.is_finite()) {
            return Err(Trouble::Diverged { cell: String::new(), iteration: round * local });
        }
    }
    Ok((global, clients))
}

/// A draw of the Gaussian with the mean and the variances of the clients' nets.
fn gaussian(global: &[f64], clients: &[Vec<f64>], shares: &[f64], stream: &mut Stream) -> Vec<f64> {
    let mut draw = vec![0.0; global.len()];
    stream.normals(&mut draw);
    for (k, z) in draw.iter_mut().enumerate() {
        let off = |(x, share): (&Vec<f64>, &f64)| share * (x[k] - global[k]).powi(2);
        let variance: f64 = clients.iter().zip(shares).map(off).sum();
        *z = global[k] + variance.sqrt() * *z;
    }
    draw
}

/// A mean of the clients' nets with weights that are uniform on the simplex.
fn dirichlet(clients: &[Vec<f64>], stream: &mut Stream) -> Vec<f64> {
    let waits: Vec<f64> = clients.iter().map(|_| -(1.0 - stream.uniform()).ln()).collect();
    let all: f64 = waits.iter().sum();
    let mut draw = vec![0.0; clients.first().map_or(0, Vec::len)];
    for (x, wait) in clients.iter().zip(&waits) {
        draw.iter_mut().zip(x).for_each(|(sum, x)| *sum += wait / all * x);
    }
    draw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Chain;
    use consilience_core::model::{Isotropic, Model};
    use consilience_core::sampler::{Recipe, Uplink};
    use consilience_core::step::Schedule;
    use consilience_core::target::Placement;
    use std::sync::Arc;

    fn method(by: &str, extra: &str) -> Method {
        let text = format!("by = \"{by}\"\nbatch = 4\n{extra}");
        toml::from_str(&text).unwrap()
    }

    /// Rows around 0 for one client and around 3 for the other.
    fn target() -> Target {
        let client = |at: f64| -> Arc<dyn Model> {
            let rows = [1.0, -1.0, 0.5, 2.5].map(|off| vec![at + off, at - off]).concat();
            Arc::new(Isotropic::new(rows, 2).unwrap())
        };
        let clients = vec![client(0.0), client(3.0)];
        Target::new(clients, Prior::gaussian(0.5, 2).unwrap(), Placement::Server, 1.0).unwrap()
    }

    #[test]
    fn a_still_preconditioner_leaves_langevin_monte_carlo() {
        let (target, progress) = (target(), Progress::default());
        let method = method("psgld", "step = 0.06\niterations = 40\ndraws = 40");
        let still = Preconditioned { decay: 1.0, floor: 2.0 };
        let mut found = Vec::new();
        let seed = Seed::new(5).chain(3);
        still
            .walk(&method, &target, vec![1.0, -1.0], seed, &progress, |_, x| {
                found.push(x.to_vec());
                Ok(())
            })
            .unwrap();
        let recipe = Recipe::Uplink(Uplink {
            precision: consilience_core::compress::Precision::F64,
            ..Uplink::lmc(Schedule::Constant(0.03))
        });
        let (start, mut lmc) = ([1.0, -1.0], Vec::new());
        let chain = Chain { recipe: &recipe, target: &target, start: &start, seed: 5, index: 3 };
        chain.walk(40, &progress, |_, x, _| lmc.push(x.to_vec())).unwrap();
        assert_eq!(found.len(), 40);
        for (ours, theirs) in found.concat().iter().zip(lmc.concat()) {
            assert!((ours - theirs).abs() < 1e-12, "{ours} {theirs}");
        }
    }

    #[test]
    fn descent_ends_at_the_optimum() {
        let target = target();
        let mut descent = Descent::new(&target, Seed::new(1), 0, 0.1, 4);
        let mut x = vec![9.0, -9.0];
        (0..2000).for_each(|_| descent.step(&mut x));
        let mut gradient = vec![0.0; 2];
        target.gradient(&x, &mut gradient);
        assert!(gradient.iter().all(|g| g.abs() < 1e-9), "{gradient:?}");
    }

    #[test]
    fn averaging_weighs_clients_and_laws_have_their_moments() {
        let (target, progress) = (target(), Progress::default());
        let method = method(
            "fedbe-gauss",
            "step = 0.5\niterations = 60\nevery = 20\ndraws = 1\nburn_in = 0",
        );
        let found = averaged(&method, &target, vec![5.0, 5.0], Seed::new(2), &progress).unwrap();
        let (global, clients) = found;
        // Each client ends at the mean of its rows, without a prior; batches are all rows.
        let ends = [[0.75, -0.75], [3.75, 2.25]];
        for (x, end) in clients.iter().zip(ends) {
            assert!(x.iter().zip(end).all(|(x, end)| (x - end).abs() < 1e-5), "{x:?}");
        }
        assert!((global[0] - 2.25).abs() < 1e-5 && (global[1] - 0.75).abs() < 1e-5);
        let n = 4000;
        let (mut normal, mut simplex) = ([0.0; 2], [0.0; 2]);
        for k in 0..n {
            let stream = |client| Seed::new(3).stream(Purpose::Data, ClientId(client), k);
            let x = gaussian(&global, &clients, &[0.5, 0.5], &mut stream(0));
            let y = dirichlet(&clients, &mut stream(1));
            for (sums, x) in [(&mut normal, x[0]), (&mut simplex, y[0])] {
                sums[0] += x / n as f64;
                sums[1] += (x - 2.25).powi(2) / n as f64;
            }
        }
        // Variances: those of the two clients, 1.5^2; of a uniform place between them, 3^2/12. Five
        // standard errors of 4000 draws: means 0.12 and 0.07, variances 0.25 and 0.053.
        assert!((normal[0] - 2.25).abs() < 0.12 && (normal[1] - 2.25).abs() < 0.25, "{normal:?}");
        assert!((simplex[0] - 2.25).abs() < 0.07, "{simplex:?}");
        assert!((simplex[1] - 0.75).abs() < 0.053, "{simplex:?}");
    }
}
