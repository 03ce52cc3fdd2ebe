//! QLSD, Tables 3 and S1: highest posterior density regions of logistic regression by QLSD++, and the bits that it sends.

use std::sync::{Arc, Mutex};

use consilience_core::compress::{Compressor, paper_bits};
use consilience_core::measure::{hpd_threshold, sd};
use consilience_core::model::{Family, Glm, Potential, Prior, Softmax};
use consilience_core::protocol::{Direction, Kind, Ledger};
use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_core::sampler::{Batch, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::survey::{Client, Optimum, conduct};
use consilience_core::target::{Placement, Target};
use consilience_engine::data::partition::{Scheme, split, subset};
use consilience_engine::data::{Dataset, Features, catalogue};
use consilience_engine::pooled::mala;
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;

use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// The region of mass 99 %.
const TAIL: f64 = 0.01;
/// What the authors' program took for it: entry 99 of 200 levels between 0.01 and 0.99.
const PUBLISHED_TAIL: f64 = 1.0 - 0.4975;
/// How many chains the Metropolis-adjusted reference has.
const REFERENCE_CHAINS: usize = 8;

/// QLSD, Table 3 or S1: which reference the errors are against.
pub enum LogReg {
    /// Table 3: the uncompressed sampler.
    AgainstLsd,
    /// Table S1: a Metropolis-adjusted chain.
    AgainstMala,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Setting {
    /// A data set of the catalogue.
    data: String,
    /// How many of its rows, chosen at random.
    rows: usize,
    /// Images become the means of squares of so many pixels by as many.
    pool: usize,
    /// The class whose probability is modelled, where there are to be two.
    positive: Option<u32>,
    intercept: bool,
    clients: usize,
    /// The concentration of the clients' labels and sizes.
    concentration: f64,
    prior_variance: f64,
    every: u64,
    step: f64,
    /// Minibatches are this part of a client's rows.
    batch: f64,
    bits: Vec<u32>,
    iterations: u64,
    burn_in: u64,
    /// Every so many iterations the potential is noted.
    thinning: u64,
    runs: u32,
    /// Draws of the Metropolis-adjusted reference.
    draws: usize,
    /// The length of a message in the authors' count of bits.
    published_length: usize,
}

/// The target, and what is known about it.
struct Problem {
    target: Target,
    optimum: Vec<f64>,
    /// How many coordinates a message has: one message for each class.
    length: usize,
}

impl Setting {
    /// The samplers, by the names that cells and numbers have.
    fn samplers(&self) -> Vec<String> {
        std::iter::once("lsd++".to_owned()).chain(self.bits.iter().map(u32::to_string)).collect()
    }

    fn problem(&self, study: &Study) -> Result<Problem, Trouble> {
        let all = catalogue::load(&self.data, study.data.as_deref())?;
        let seed = Seed::new(study.seed);
        let mut data = all.select(&subset(all.rows(), self.rows.min(all.rows()), seed));
        if let Some(positive) = self.positive {
            data.labels.iter_mut().for_each(|label| *label = f64::from(u8::from(*label == f64::from(positive))));
            data.classes = Some(vec!["others".into(), "this".into()]);
        }
        if self.pool > 1 {
            data = pooled(&data, self.pool)?;
        }
        let other = |e: &dyn std::fmt::Display| Trouble::Other(e.to_string());
        let dealt = split(&data, &Scheme::Dirichlet(Some(self.concentration)), Some(self.clients), seed).map_err(|e| other(&e))?;
        let classes = data.classes.as_ref().map_or(0, Vec::len);
        let greatest = data.greatest();
        let client = |rows: &Vec<u32>| -> Result<Arc<dyn Potential>, Trouble> {
            let design = data.design(rows, self.intercept, &greatest)?;
            let labels = data.labels_of(rows);
            Ok(match classes {
                2 => Arc::new(Glm::new(design, labels, Family::Bernoulli)?),
                _ => Arc::new(Softmax::new(design, labels.iter().map(|label| *label as u32).collect(), classes)?),
            })
        };
        let clients: Vec<_> = dealt.rows.iter().map(client).collect::<Result<_, _>>()?;
        let dim = clients.first().map_or(0, |client| client.dim());
        let target = Target::new(clients, Prior::gaussian(self.prior_variance, dim)?, Placement::Server, 1.0)?;
        let search = Optimum::new(&target, &vec![0.0; dim], 1e-6, 1000);
        let optimum = conduct(search, &mut Client::all(&target), &mut Ledger::new(self.clients)).point().to_vec();
        Ok(Problem { target, optimum, length: data.columns.len() + usize::from(self.intercept) })
    }

    fn recipe(&self, sampler: &str, problem: &Problem) -> Recipe {
        let (step, batch) = (Schedule::Constant(self.step), Batch::Fraction(self.batch));
        Recipe::Uplink(match sampler.parse::<u32>() {
            Ok(bits) => {
                let whole = Compressor::qsgd(1 << bits);
                let up = if problem.length < problem.target.dim() { whole.block(problem.length) } else { whole };
                let rate = 1.0 / (1.0 + up.omega(problem.target.dim()).unwrap_or(0.0));
                Uplink::qlsd_plus_plus(step, batch, self.every, Some(rate), up)
            }
            Err(_) => Uplink::lsd_plus_plus(step, batch, self.every, None),
        })
    }
}

/// Images as means over squares of pixels.
fn pooled(data: &Dataset, by: usize) -> Result<Dataset, Trouble> {
    let side = data.columns.len().isqrt();
    if side * side != data.columns.len() || !side.is_multiple_of(by) {
        return Err(Trouble::Other(format!("{} columns are no square image whose side {by} divides", data.columns.len())));
    }
    let small = side / by;
    let mut cells = vec![0.0; data.rows() * small * small];
    for row in 0..data.rows() {
        for (column, value) in data.entries(row) {
            let (down, across) = (column as usize / side / by, column as usize % side / by);
            cells[row * small * small + down * small + across] += value / (by * by) as f64;
        }
    }
    let columns = (0..small * small).map(|k| format!("square {k}")).collect();
    Ok(Dataset { features: Features::Dense(cells), columns, ..data.clone() })
}

/// The problem that was read last: all cells of a study share it, and reading takes longer than some cells do.
static READ: Mutex<Option<(Setting, u64, Arc<Problem>)>> = Mutex::new(None);

fn shared(setting: &Setting, study: &Study) -> Result<Arc<Problem>, Trouble> {
    let Ok(mut read) = READ.lock() else { return Ok(Arc::new(setting.problem(study)?)) };
    match &*read {
        Some((known, seed, problem)) if known == setting && *seed == study.seed => Ok(problem.clone()),
        _ => {
            let problem = Arc::new(setting.problem(study)?);
            *read = Some((setting.clone(), study.seed, problem.clone()));
            Ok(problem)
        }
    }
}

fn thresholds(potentials: &[f64]) -> Result<[f64; 2], Trouble> {
    let of = |a: f64| hpd_threshold(potentials, a).map_err(|e| Trouble::Other(e.to_string()));
    Ok([of(TAIL)?, of(PUBLISHED_TAIL)?])
}

impl Experiment for LogReg {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        shared(&setting, study)?; // data that is missing is said before anything runs
        let mut cells = vec![Cell::new("size", 1)];
        if let LogReg::AgainstMala = self {
            cells.push(Cell::new("reference", setting.draws as u64));
        }
        for sampler in setting.samplers() {
            cells.extend((0..setting.runs).map(|run| Cell::new(format!("{sampler}|{run}"), setting.iterations)));
        }
        Ok(cells)
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let problem = shared(&setting, study)?;
        let Problem { target, optimum, length } = &*problem;
        if cell == "size" {
            let rows: Vec<f64> = target.clients.iter().map(|c| c.rows() as f64).collect();
            let least = target.value(optimum);
            return Ok(Values::from([
                ("rows".into(), rows),
                ("dim".into(), vec![target.dim() as f64]),
                ("length".into(), vec![*length as f64]),
                ("least".into(), vec![least]),
            ]));
        }
        if cell == "reference" {
            let Some(reference) = mala(target, optimum, REFERENCE_CHAINS, setting.draws / REFERENCE_CHAINS, study.seed) else {
                return Err(Trouble::Other("the posterior's Hessian is not positive definite".into()));
            };
            let potentials: Vec<f64> = reference.draws.rows().map(|x| target.value(x)).collect();
            let parts = potentials.chunks_exact(reference.draws.length()).map(thresholds).collect::<Result<Vec<_>, _>>()?;
            return Ok(Values::from([
                ("threshold".into(), parts.iter().map(|t| t[0]).collect()),
                ("published threshold".into(), parts.iter().map(|t| t[1]).collect()),
                ("acceptance".into(), vec![reference.acceptance]),
            ]));
        }
        let wrong = || Trouble::Other(format!("no such cell: {cell}"));
        let (sampler, run) = cell.split_once('|').ok_or_else(wrong)?;
        let index: u32 = run.parse().map_err(|_| wrong())?;
        let recipe = setting.recipe(sampler, &problem);
        // Where the rows say little, the posterior is as wide as the prior and chains are slow; where they say much, chains are fast. So this start is soon forgotten.
        let mut start = vec![0.0; target.dim()];
        Seed::new(study.seed).chain(index).stream(Purpose::Start, SERVER, 0).normals(&mut start);
        start.iter_mut().zip(optimum).for_each(|(z, x)| *z = x + setting.prior_variance.sqrt() * *z);
        let chain = Chain { recipe: &recipe, target, start: &start, seed: study.seed, index };
        let mut potentials = Vec::new();
        let ledger = chain.walk(setting.iterations, progress, |iteration, x, _| {
            if iteration > setting.burn_in && iteration.is_multiple_of(setting.thinning) {
                potentials.push(target.value(x));
            }
        })?;
        let [threshold, published] = thresholds(&potentials)?;
        Ok(Values::from([
            ("threshold".into(), vec![threshold]),
            ("published threshold".into(), vec![published]),
            ("bits".into(), vec![ledger.bits(Direction::Up, Kind::Gradient) as f64 / setting.iterations as f64]),
        ]))
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let of = |sampler: &str, what: &str| -> Result<Vec<f64>, Trouble> {
            (0..setting.runs).map(|run| found.number(&format!("{sampler}|{run}"), what)).collect()
        };
        // The relative error of the threshold, signed: run by run against the uncompressed run with the same noise, or against the reference's mean.
        let error = |sampler: &str, what: &str| -> Result<Number, Trouble> {
            let ours = of(sampler, what)?;
            Ok(match self {
                LogReg::AgainstLsd => {
                    Number::mean("", &ours.iter().zip(of("lsd++", what)?).map(|(h, reference)| h / reference - 1.0).collect::<Vec<_>>())
                }
                LogReg::AgainstMala => {
                    let reference = Number::mean("", found.list("reference", what)?);
                    let ratio = Number::mean("", &ours.iter().map(|h| h / reference.value - 1.0).collect::<Vec<_>>());
                    let error = ratio.error.hypot(reference.error / reference.value);
                    Number { error, runs: ratio.runs.min(reference.runs), ..ratio }
                }
            })
        };
        let compared = |what: &str| -> Result<Numbers, Trouble> {
            let samplers = setting.samplers().into_iter().skip(usize::from(matches!(self, LogReg::AgainstLsd)));
            let one = |name: String| error(&name, what).map(|e| Number { name: format!("hpd/{name}"), value: e.value.abs(), ..e });
            samplers.map(one).collect()
        };
        let (mut numbers, mut counted) = (compared("threshold")?, Numbers::new());
        let (quantile, dim) = (compared("published threshold")?, found.number("size", "dim")?);
        let plain = Number::mean("", &of("lsd++", "bits")?);
        let mut points = Vec::new();
        for bits in &setting.bits {
            let efficiency: Vec<f64> = of(&bits.to_string(), "bits")?.iter().map(|sent| plain.value / sent).collect();
            let number = Number::mean(format!("efficiency/{bits}"), &efficiency);
            if let Some(hpd) = numbers.get(&format!("hpd/{bits}")) {
                points.push(Point { x: number.value, y: hpd.value, error: hpd.error });
            }
            numbers.push(number);
            let length = setting.published_length;
            counted.push(Number::exact(format!("efficiency/{bits}"), 32.0 * length as f64 / paper_bits(1 << bits, length)));
        }
        let threshold = Number::mean("threshold", &of("lsd++", "threshold")?);
        let scatter = sd(&of("lsd++", "threshold")?) / threshold.value;
        let least = found.number("size", "least")?;
        numbers.push(threshold.clone());
        numbers.push(Number::exact("scatter", scatter));
        let sizes = found.list("size", "rows")?;
        let most = sizes.iter().copied().fold(0.0, f64::max);
        let fewest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        let with = |numbers: &Numbers, from: &str, others: &Numbers| -> Numbers {
            numbers.iter().filter(|n| n.name.starts_with(from)).chain(others.iter()).cloned().collect()
        };
        let mut readings = vec![Reading::ours(numbers.clone())];
        readings.push(Reading::published(
            "natural-log bits",
            "bits are an upper bound of a code, with natural logarithms, for one message of the paper's length a class, as in the authors' program",
            with(&numbers, "hpd/", &counted),
        ));
        readings.push(Reading::published(
            "0.4975 quantile",
            "the threshold is the 0.4975 quantile of the potential, which the authors' program calls the 99 % region",
            with(&numbers, "efficiency/", &quantile),
        ));
        let (place, reference) = match self {
            LogReg::AgainstLsd => ("Table 3", "LSD++ with the same noise, run by run, so that Monte Carlo error mostly cancels"),
            LogReg::AgainstMala => {
                ("Table S1", "a Metropolis-adjusted chain, so that the bias of the step counts, too (hpd/lsd++ has nothing else)")
            }
        };
        Ok(Findings {
            readings,
            figures: vec![Figure {
                title: format!("{place}: error of the 99 % region against what is saved"),
                caption: format!(
                    "QLSD++ with {} bits, {} runs of each; a bar is one standard error.",
                    setting.bits.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
                    setting.runs
                ),
                x: Axis::straight("bits of LSD++ over bits of QLSD++"),
                y: Axis::logarithmic("relative error of the threshold"),
                series: vec![Series { name: "QLSD++".into(), mark: Mark::LineAndPoints, colour: 0, points }],
            }],
            notes: vec![
                format!(
                    "{} rows of {} at {} clients ({fewest} to {most} rows each, labels and sizes by Dirichlet({}) draws), {dim} parameters. The reference is {reference}.",
                    sizes.iter().sum::<f64>(),
                    setting.data,
                    setting.clients,
                    setting.concentration,
                ),
                format!(
                    "The potential includes the prior, without constants. Its least value is {least:.1} and the bound of the 99 % region {:.1}; a Gaussian posterior of {dim} parameters, however wide, adds {:.1} on average. \
                     One standard deviation of a single draw's potential is {:.1e} of the bound, and the bound itself differs by {scatter:.1e} (`scatter`) between runs of LSD++ with independent noise: an error of that size, \
                     from one run of each, says nothing about compression.",
                    threshold.value,
                    0.5 * dim,
                    (0.5 * dim).sqrt() / threshold.value
                ),
                "What QLSD++ compresses is a client's change since its memory last followed, which is small beside the Langevin noise at this step: QLSD++ and LSD++ with the same noise stay together.".into(),
                "FSGLD and DG-SGLD are not part of this library, so what the paper says about them is not tested.".into(),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_shrink_to_means() {
        let data = Dataset {
            features: Features::Dense((0..16).map(f64::from).collect()),
            labels: vec![0.0],
            classes: None,
            columns: (0..16).map(|k| k.to_string()).collect(),
            groups: None,
        };
        let small = pooled(&data, 2).unwrap();
        assert_eq!(small.features, Features::Dense(vec![2.5, 4.5, 10.5, 12.5])); // (0 + 1 + 4 + 5) / 4, ...
        assert!(pooled(&data, 3).is_err());
    }
}
