//! FALD, Table 2, Figures 3 and 4: logistic regression on the Titanic's passengers, dealt unevenly
//! to ten clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use consilience_core::measure::{Gaussian, Predictive, hpd_threshold, mean};
use consilience_core::model::{Design, Glm, GlmFamily, Model, Prior, Single};
use consilience_core::rng::Seed;
use consilience_core::sampler::{Batch, Local, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::data::builtin;
use consilience_engine::data::partition::{dirichlet, subset};
use consilience_engine::pooled;
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use nalgebra::{DMatrix, DVector};
use serde::Deserialize;

use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// FALD, Table 2.
pub struct Titanic;

const DIM: usize = 4;
const SAMPLERS: [(&str, &str); 3] = [("lsd", "LSD"), ("fald", "FALD"), ("vr-fald*", "VR-FALD*")];
/// Where the highest density regions are compared: they hold 1 - a of the mass.
const OUTSIDE: [f64; 6] = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7];
/// At so many draws the potential is evaluated, and no more are predicted from: neighbours say
/// little that is new.
const LOOKED_AT: usize = 4000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    clients: usize,
    test_rows: usize,
    /// The rows of a minibatch.
    batch: usize,
    /// The probability that clients synchronise, and that the reference point moves.
    sync: f64,
    iterations: u64,
    runs: u32,
    /// Draws of the reference.
    reference: usize,
}

impl Setting {
    /// One draw of LSD is kept of so many: as often as clients synchronise.
    fn thinning(&self) -> u64 {
        (1.0 / self.sync) as u64
    }

    /// The iterations of the program's reference.
    fn long_run(&self) -> u64 {
        self.reference as u64 * self.thinning()
    }
}

/// What is ambiguous about the posterior.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The prior N(0, I), once in all.
    Once,
    /// `norm(x)^2` in every client, as the formula of section 10.2 has it.
    Formula,
    /// What the authors' program did.
    Program,
}

impl Way {
    fn all(study: &Study) -> &'static [Way] {
        if study.published {
            &[Way::Once, Way::Formula, Way::Program]
        } else {
            &[Way::Once, Way::Formula]
        }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Once => "once",
            Way::Formula => "formula",
            Way::Program => "program",
        }
    }
}

/// The data as one way has it.
struct Data {
    clients: Vec<Arc<dyn Model>>,
    /// Rows of each label, client by client.
    counts: Vec<[usize; 2]>,
    test: Vec<f64>,
    labels: Vec<usize>,
    /// `2 / (lambda_min + lambda_max)` of Z'Z.
    gamma: f64,
}

impl Data {
    fn new(setting: &Setting, way: Way, seed: u64) -> Result<Self, Trouble> {
        let (rows, labels) = table(way)?;
        let seed = Seed::new(seed);
        let train = subset(labels.len(), labels.len().saturating_sub(setting.test_rows), seed);
        let test: Vec<u32> =
            (0..labels.len() as u32).filter(|row| train.binary_search(row).is_err()).collect();
        let label = |row: &u32| labels[*row as usize];
        let of = |list: &[u32]| -> Vec<f64> {
            list.iter().flat_map(|row| rows[*row as usize]).collect()
        };
        let train_labels: Vec<u32> = train.iter().map(|row| label(row) as u32).collect();
        let dealt = dirichlet::assign(&train_labels, setting.clients, None, seed)
            .map_err(|e| Trouble::Other(e.to_string()))?;
        let (mut clients, mut counts) = (Vec::new(), Vec::new());
        for mine in &dealt.rows {
            let mine: Vec<u32> = mine.iter().map(|at| train[*at as usize]).collect();
            let response: Vec<f64> = mine.iter().map(|row| label(row) as f64).collect();
            let survived = response.iter().sum::<f64>() as usize;
            counts.push([mine.len() - survived, survived]);
            clients.push(Arc::new(Glm::new(
                Design::dense(of(&mine), DIM)?,
                response,
                GlmFamily::Bernoulli,
            )?) as Arc<dyn Model>);
        }
        let z = DMatrix::from_row_slice(train.len(), DIM, &of(&train));
        let spectrum = z.tr_mul(&z).symmetric_eigenvalues();
        let gamma = 2.0 / (spectrum.min() + spectrum.max());
        Ok(Data {
            clients,
            counts,
            test: of(&test),
            labels: test.iter().map(label).collect(),
            gamma,
        })
    }

    fn target(&self, prior_precision: f64) -> Result<Target, Trouble> {
        Ok(Target::new(
            self.clients.clone(),
            Prior::gaussian(1.0 / prior_precision, DIM)?,
            Placement::Server,
            1.0,
        )?)
    }

    /// What clients sample, and what the reference does.
    fn targets(&self, way: Way) -> Result<(Target, Target), Trouble> {
        let b = self.clients.len() as f64;
        let (clients, reference) = match way {
            Way::Once => (1.0, 1.0),
            Way::Formula => (2.0 * b, 2.0 * b),
            Way::Program => (b, 1.0),
        };
        Ok((self.target(clients)?, self.target(reference)?))
    }

    fn recipe(&self, setting: &Setting, way: Way, sampler: &str) -> Recipe {
        let b = self.clients.len();
        let (gamma, p) = match way {
            Way::Program => (self.gamma * b as f64, 2.0 * setting.sync),
            _ => (self.gamma, setting.sync),
        };
        let (batch, step) = (Batch::Rows(setting.batch), Schedule::Constant(gamma));
        match sampler {
            "lsd" | "reference" => Recipe::Uplink(Uplink::sgld(step.scaled(1.0 / b as f64), batch)),
            "fald" => Recipe::Local(Local::fald(step, b, 0.0, p, batch)),
            _ => Recipe::Local(Local::vr_fald_star(step, b, 0.0, p, p, batch)),
        }
    }

    /// What the comparisons need of draws: the probability of having survived for each test row,
    /// mean and covariance, and the bounds of the densest regions of the target.
    fn look(&self, draws: &[f64], target: &Target) -> Result<Values, Trouble> {
        let some: Vec<&[f64]> = draws
            .chunks_exact(DIM)
            .step_by((draws.len() / DIM).div_ceil(LOOKED_AT).max(1))
            .collect();
        let survival = |row: &[f64]| {
            let one = |x: &&[f64]| {
                1.0 / (1.0 + (-x.iter().zip(row).map(|(x, z)| x * z).sum::<f64>()).exp())
            };
            some.iter().map(one).sum::<f64>() / some.len() as f64
        };
        let law =
            Gaussian::of_draws(draws, DIM).map_err(|error| Trouble::Other(error.to_string()))?;
        let potentials: Vec<f64> = some.iter().map(|x| target.value(x)).collect();
        let bounds =
            OUTSIDE.iter().map(|a| hpd_threshold(&potentials, *a)).collect::<Result<_, _>>();
        Ok(Values::from([
            ("survival".into(), self.test.chunks_exact(DIM).map(survival).collect()),
            ("mean".into(), law.mean().to_vec()),
            ("covariance".into(), law.covariance().to_vec()),
            (
                "bounds".into(),
                bounds.map_err(|error: consilience_core::measure::DrawsError| {
                    Trouble::Other(error.to_string())
                })?,
            ),
        ]))
    }
}

/// Features and labels: an intercept and KEEL's codes of class, age and sex; or, as in the authors'
/// program, the row's number in place of the intercept, and all in standard deviations.
fn table(way: Way) -> Result<(Vec<[f64; DIM]>, Vec<usize>), Trouble> {
    let text = builtin::file("titanic/titanic.csv")
        .ok_or_else(|| Trouble::Other("the built-in table of the Titanic is missing".into()))?;
    let (mut rows, mut labels) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().skip(1).enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let code = |k: usize| cells.get(k).and_then(|cell| cell.parse::<f64>().ok());
        let (Some(class), Some(age), Some(sex)) = (code(4), code(5), code(6)) else {
            return Err(Trouble::Other(format!(
                "titanic.csv:{}: not three codes: {line}",
                number + 2
            )));
        };
        let first = if way == Way::Program { number as f64 } else { 1.0 };
        rows.push([first, class, age, sex]);
        labels.push(usize::from(cells[3] == "Yes"));
    }
    if way == Way::Program {
        for k in 0..DIM {
            let column: Vec<f64> = rows.iter().map(|row| row[k]).collect();
            let centre = mean(&column);
            let spread = (column.iter().map(|v| (v - centre) * (v - centre)).sum::<f64>()
                / column.len() as f64)
                .sqrt();
            rows.iter_mut().for_each(|row| row[k] = (row[k] - centre) / spread);
        }
    }
    Ok((rows, labels))
}

/// Where the posterior is densest, by Newton's method.
fn mode(target: &Target) -> Result<Vec<f64>, Trouble> {
    let mut x = DVector::zeros(DIM);
    for _ in 0..50 {
        let mut gradient = DVector::zeros(DIM);
        target.gradient(x.as_slice(), gradient.as_mut_slice());
        let mut hessian = DMatrix::zeros(DIM, DIM);
        for k in 0..DIM {
            let (mut unit, mut column) = (vec![0.0; DIM], vec![0.0; DIM]);
            unit[k] = 1.0;
            for client in &target.clients {
                Single::new(client).add_hessian_vector(x.as_slice(), &unit, 1.0, &mut column);
            }
            target.prior.add_hessian_vector(x.as_slice(), &unit, 1.0, &mut column);
            hessian.set_column(k, &DVector::from_vec(column));
        }
        let step = hessian
            .cholesky()
            .ok_or_else(|| Trouble::Other("the posterior is not log-concave".into()))?
            .solve(&gradient);
        x -= &step;
        if step.amax() < 1e-10 {
            break;
        }
    }
    Ok(x.as_slice().to_vec())
}

impl Experiment for Titanic {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let mut cells = Vec::new();
        for way in Way::all(study) {
            let cost = if *way == Way::Program { setting.long_run() } else { setting.iterations };
            let way = way.name();
            cells.push(Cell::new(format!("{way}|reference|0"), cost));
            for (sampler, _) in SAMPLERS {
                cells
                    .extend((0..setting.runs).map(|run| {
                        Cell::new(format!("{way}|{sampler}|{run}"), setting.iterations)
                    }));
            }
        }
        Ok(cells)
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let unknown = || Trouble::Other(format!("no such cell: {cell}"));
        let [way, sampler, run] = cell.split('|').collect::<Vec<_>>()[..] else {
            return Err(unknown());
        };
        let way = [Way::Once, Way::Formula, Way::Program]
            .into_iter()
            .find(|w| w.name() == way)
            .ok_or_else(unknown)?;
        let data = Data::new(&setting, way, study.seed)?;
        let (target, truth) = data.targets(way)?;
        if sampler == "reference" && way != Way::Program {
            let reference = pooled::mala(&truth, &mode(&truth)?, 1, setting.reference, study.seed)
                .ok_or_else(|| Trouble::Other("the posterior is improper".into()))?;
            progress.done.fetch_add(setting.iterations, Ordering::Relaxed);
            return data
                .look(&reference.draws.rows().flatten().copied().collect::<Vec<_>>(), &truth);
        }
        // The program's reference is LSD itself; its LSD has the prior once.
        let own_prior = matches!(sampler, "lsd" | "reference");
        let sampled = if own_prior { &truth } else { &target };
        let recipe = data.recipe(&setting, way, sampler);
        let index = if sampler == "reference" {
            setting.runs
        } else {
            run.parse().map_err(|_| unknown())?
        };
        let chain = Chain {
            recipe: &recipe,
            target: sampled,
            start: &mode(sampled)?,
            seed: study.seed,
            index,
        };
        let every = if own_prior { setting.thinning() } else { 1 }; // as many draws of each
        let iterations =
            if sampler == "reference" { setting.long_run() } else { setting.iterations };
        let mut draws = Vec::new();
        chain.walk(iterations, progress, |iteration, x, _| {
            if iteration > iterations / 10 && iteration.is_multiple_of(every) {
                draws.extend_from_slice(x);
            }
        })?;
        data.look(&draws, &truth)
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let mut findings = Findings::default();
        findings.notes.push(
            "No reading gives the printed table. With --as-published the program's own comes \
             nearest: only there, with the row's number as a feature, do samplers and reference \
             disagree about \
             labels. Without it passengers differ in class, age and sex alone, which makes 14 \
             kinds, and FALD's error does not reach any label."
                .into(),
        );
        for way in Way::all(study) {
            let data = Data::new(&setting, *way, study.seed)?;
            let numbers = compare(&setting, *way, &data, found)?;
            if *way == Way::Once {
                findings.figures = figures(&data, &numbers);
                findings.notes.push(format!(
                    "Rows of clients (died + survived): {}. The reference is Metropolis-adjusted \
                     Langevin on the pooled rows, {} draws; W2 is that of Gaussians with the \
                     draws' means and \
                     covariances; the densest regions are bounded by U with all its constants. \
                     LSD, too, has minibatches of {} a client.",
                    data.counts
                        .iter()
                        .map(|[died, survived]| format!("{died}+{survived}"))
                        .collect::<Vec<_>>()
                        .join(", "),
                    setting.reference,
                    setting.batch
                ));
            }
            findings.readings.push(match way {
                Way::Once => Reading::ours(numbers),
                Way::Formula => Reading::other(
                    "prior in every client",
                    "every client adds \
                    norm(x)^2, as the formula of section 10.2 has it: a prior of precision 20 in \
                    all",
                    numbers,
                ),
                Way::Program => Reading::published(
                    "the program",
                    "the row's number as a feature, no intercept; every client adds the whole \
                     prior, LSD adds it once; steps b gamma and gamma; p = 1/10; the reference is \
                     another run of LSD",
                    numbers,
                ),
            });
        }
        Ok(findings)
    }
}

/// Every sampler against the reference.
fn compare(setting: &Setting, way: Way, data: &Data, found: &Found) -> Result<Numbers, Trouble> {
    let reference = format!("{}|reference|0", way.name());
    let table = |cell: &str| -> Result<Vec<f64>, Trouble> {
        Ok(found.list(cell, "survival")?.iter().flat_map(|p| [1.0 - p, *p]).collect())
    };
    let law = |cell: &str| {
        Gaussian::new(found.list(cell, "mean")?, found.list(cell, "covariance")?)
            .map_err(|e| Trouble::Other(e.to_string()))
    };
    let by_mean = |cell: &str| -> Result<f64, Trouble> {
        let x = found.list(cell, "mean")?;
        let right = |(row, label): (&[f64], &usize)| {
            (x.iter().zip(row).map(|(x, z)| x * z).sum::<f64>() > 0.0) == (*label == 1)
        };
        Ok(data
            .test
            .chunks_exact(DIM)
            .zip(&data.labels)
            .filter(|(row, label)| right((row, label)))
            .count() as f64
            / data.labels.len() as f64)
    };
    let (true_table, true_law) = (table(&reference)?, law(&reference)?);
    let true_predictive =
        Predictive::new(&true_table, 2).map_err(|e| Trouble::Other(e.to_string()))?;
    let mut numbers = Numbers::new();
    for (sampler, _) in SAMPLERS {
        let mut lists: Vec<(String, Vec<f64>)> = Vec::new();
        let mut note =
            |name: String, value: f64| match lists.iter_mut().find(|(known, _)| *known == name) {
                Some((_, list)) => list.push(value),
                None => lists.push((name, vec![value])),
            };
        for run in 0..setting.runs {
            let cell = format!("{}|{sampler}|{run}", way.name());
            let probabilities = table(&cell)?;
            let predictive =
                Predictive::new(&probabilities, 2).map_err(|e| Trouble::Other(e.to_string()))?;
            let score = |value: Result<f64, _>| {
                value.map_err(|e: consilience_core::measure::PredictiveError| {
                    Trouble::Other(e.to_string())
                })
            };
            note(format!("accuracy/{sampler}"), 100.0 * by_mean(&cell)?);
            note(
                format!("accuracy of the predictive/{sampler}"),
                100.0 * score(predictive.accuracy(&data.labels))?,
            );
            note(
                format!("agreement/{sampler}"),
                100.0 * score(predictive.agreement(&true_predictive))?,
            );
            note(
                format!("tv/{sampler}"),
                1e4 * score(predictive.total_variation(&true_predictive))?,
            );
            note(
                format!("ece/{sampler}"),
                10.0 * score(predictive.calibration_error(&data.labels, 15))?,
            );
            note(format!("brier/{sampler}"), 10.0 * score(predictive.brier(&data.labels))?);
            note(
                format!("nnll/{sampler}"),
                10.0 * score(predictive.negative_log_likelihood(&data.labels))?,
            );
            note(
                format!("w2/{sampler}"),
                law(&cell)?.w2(&true_law).map_err(|e| Trouble::Other(e.to_string()))?,
            );
            let bounds = found.list(&cell, "bounds")?.iter().zip(found.list(&reference, "bounds")?);
            for (a, (ours, theirs)) in OUTSIDE.iter().zip(bounds) {
                note(format!("hpd error/{a}/{sampler}"), (ours / theirs - 1.0).abs());
            }
        }
        lists.into_iter().for_each(|(name, list)| numbers.push(Number::mean(name, &list)));
    }
    Ok(numbers)
}

fn figures(data: &Data, numbers: &Numbers) -> Vec<Figure> {
    let count = |label: usize| {
        data.counts
            .iter()
            .enumerate()
            .map(move |(client, n)| Point {
                x: client as f64 + 1.0,
                y: n[label] as f64,
                error: 0.0,
            })
            .collect()
    };
    let dealt = |(label, name): (usize, &str)| Series {
        name: name.into(),
        mark: Mark::Points,
        colour: label,
        points: count(label),
    };
    let regions = |(colour, (sampler, label)): (usize, (&str, &str))| {
        let point = |a: &f64| {
            numbers.get(&format!("hpd error/{a}/{sampler}")).map(|n| Point {
                x: *a,
                y: n.value,
                error: if n.error.is_finite() { n.error } else { 0.0 },
            })
        };
        Series {
            name: label.into(),
            mark: Mark::LineAndPoints,
            colour,
            points: OUTSIDE.iter().filter_map(point).collect(),
        }
    };
    vec![
        Figure {
            title: "Figure 3, left: who has which rows".into(),
            caption: "A point is the number of a client's rows of one label; clients without any \
                are left out."
                .into(),
            x: Axis::straight("client"),
            y: Axis::logarithmic("rows"),
            series: [(0, "died"), (1, "survived")].into_iter().map(dealt).collect(),
        },
        Figure {
            title: "Figure 4, left: relative error of the bound of highest density regions".into(),
            caption: "A bar is one standard error.".into(),
            x: Axis::straight("mass outside the region"),
            y: Axis::logarithmic("relative error"),
            series: SAMPLERS.into_iter().enumerate().map(regions).collect(),
        },
    ]
}
