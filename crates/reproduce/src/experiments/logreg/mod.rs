//! QLSD, Tables 3 and S1: highest posterior density regions of logistic regression by QLSD++ and
//! its competitors, and the bits that they send.

mod problem;

use consilience_core::compress::paper_bits;
use consilience_core::measure::{hpd_threshold, sd};
use consilience_core::protocol::Direction;
use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_engine::pooled::mala;
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};

use self::problem::{Problem, Setting, shared};
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
            cells.extend(
                (0..setting.runs)
                    .map(|run| Cell::new(format!("{sampler}|{run}"), setting.iterations)),
            );
        }
        Ok(cells)
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let problem = shared(&setting, study)?;
        let Problem { target, rebalanced, optimum, length, .. } = &*problem;
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
            let Some(reference) = mala(
                target,
                optimum,
                REFERENCE_CHAINS,
                setting.draws / REFERENCE_CHAINS,
                study.seed,
            ) else {
                return Err(Trouble::Other(
                    "the posterior's Hessian is not positive definite".into(),
                ));
            };
            let potentials: Vec<f64> = reference.draws.rows().map(|x| target.value(x)).collect();
            let parts = potentials
                .chunks_exact(reference.draws.length())
                .map(thresholds)
                .collect::<Result<Vec<_>, _>>()?;
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
        // Where the rows say little, the posterior is as wide as the prior and chains are slow;
        // where they say much, chains are fast. So this start is soon forgotten.
        let mut start = vec![0.0; target.dim()];
        Seed::new(study.seed).chain(index).stream(Purpose::Start, SERVER, 0).normals(&mut start);
        start
            .iter_mut()
            .zip(optimum)
            .for_each(|(z, x)| *z = x + setting.prior_variance.sqrt() * *z);
        let sampled = if sampler == "fsgld" { rebalanced } else { target };
        let chain =
            Chain { recipe: &recipe, target: sampled, start: &start, seed: study.seed, index };
        let (mut potentials, mut noted) = (Vec::new(), setting.burn_in / setting.thinning);
        let ledger = chain.walk(setting.iterations, progress, |iteration, x, _| {
            // Not every iteration ends in a draw where steps are local: the first draw from a
            // multiple on counts.
            if iteration / setting.thinning > noted {
                noted = iteration / setting.thinning;
                potentials.push(target.value(x));
            }
        })?;
        let [threshold, published] = thresholds(&potentials)?;
        Ok(Values::from([
            ("threshold".into(), vec![threshold]),
            ("published threshold".into(), vec![published]),
            (
                "bits".into(),
                vec![
                    ledger.bits(Direction::Up, recipe.family().answers()) as f64
                        / setting.iterations as f64,
                ],
            ),
        ]))
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let against_mala = matches!(self, LogReg::AgainstMala);
        let of = |sampler: &str, what: &str| -> Result<Vec<f64>, Trouble> {
            (0..setting.runs).map(|run| found.number(&format!("{sampler}|{run}"), what)).collect()
        };
        // The relative error of the threshold, signed: run by run against the uncompressed run with
        // the same noise, or against the reference's mean.
        let error = |sampler: &str, what: &str| -> Result<Number, Trouble> {
            let ours = of(sampler, what)?;
            Ok(match self {
                LogReg::AgainstLsd => Number::mean(
                    "",
                    &ours
                        .iter()
                        .zip(of("lsd++", what)?)
                        .map(|(h, reference)| h / reference - 1.0)
                        .collect::<Vec<_>>(),
                ),
                LogReg::AgainstMala => {
                    let reference = Number::mean("", found.list("reference", what)?);
                    let ratio = Number::mean(
                        "",
                        &ours.iter().map(|h| h / reference.value - 1.0).collect::<Vec<_>>(),
                    );
                    let error = ratio.error.hypot(reference.error / reference.value);
                    Number { error, runs: ratio.runs.min(reference.runs), ..ratio }
                }
            })
        };
        let compared = |what: &str| -> Result<Numbers, Trouble> {
            let samplers = setting.samplers().into_iter().skip(usize::from(!against_mala));
            let one = |name: String| {
                error(&name, what).map(|e| Number {
                    name: format!("hpd/{name}"),
                    value: e.value.abs(),
                    ..e
                })
            };
            samplers.map(one).collect()
        };
        let (mut numbers, mut counted) = (compared("threshold")?, Numbers::new());
        let (quantile, dim) = (compared("published threshold")?, found.number("size", "dim")?);
        let plain = Number::mean("", &of("lsd++", "bits")?);
        let mut points = Vec::new();
        for name in setting.compared() {
            let efficiency: Vec<f64> =
                of(&name, "bits")?.iter().map(|sent| plain.value / sent).collect();
            let number = Number::mean(format!("efficiency/{name}"), &efficiency);
            let bits = name.parse::<u32>().ok();
            if let (Some(_), Some(hpd)) = (bits, numbers.get(&format!("hpd/{name}"))) {
                points.push(Point { x: number.value, y: hpd.value, error: hpd.error });
            }
            let length = setting.published_length;
            let upper_bound = |bits: u32| 32.0 * length as f64 / paper_bits(1 << bits, length);
            counted.push(bits.map_or_else(
                || number.clone(),
                |bits| Number::exact(&number.name, upper_bound(bits)),
            ));
            numbers.push(number);
        }
        let mut independent = Vec::new();
        if !against_mala {
            // The paper's number: one run of each, with noise of their own. Here run by run against
            // the next run of the reference.
            for name in setting.compared() {
                let (ours, mut reference) = (of(&name, "threshold")?, of("lsd++", "threshold")?);
                reference.rotate_left(1);
                let errors: Vec<f64> = ours
                    .iter()
                    .zip(&reference)
                    .map(|(h, reference)| (h / reference - 1.0).abs())
                    .collect();
                let number = Number::mean(format!("independent/{name}"), &errors);
                independent.push(format!("{:.1e} ± {:.0e} ({name})", number.value, number.error));
                numbers.push(number);
            }
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
            numbers
                .iter()
                .filter(|n| n.name.starts_with(from))
                .chain(others.iter())
                .cloned()
                .collect()
        };
        let mut readings = vec![Reading::ours(numbers.clone())];
        readings.push(Reading::published(
            "natural-log bits",
            "bits are an upper bound of a code, with natural logarithms, for one message of the \
             paper's length a class, as in the authors' program",
            with(&numbers, "hpd/", &counted),
        ));
        readings.push(Reading::published(
            "0.4975 quantile",
            "the threshold is the 0.4975 quantile of the potential, which the authors' program \
             calls the 99 % region",
            with(&numbers, "efficiency/", &quantile),
        ));
        let (place, reference) = match self {
            LogReg::AgainstLsd => (
                "Table 3",
                "LSD++. QLSD++ and FSGLD have the noise of the LSD++ run that they are held \
                 against, so that Monte Carlo error mostly cancels in `hpd` and what is left is \
                 what the sampler changes; \
                 DG-SGLD has noise of its own",
            ),
            LogReg::AgainstMala => (
                "Table S1",
                "a Metropolis-adjusted chain, so that the bias of the step counts, too (hpd/lsd++ \
                 has nothing else)",
            ),
        };
        let dg_sgld = format!(
            "DG-SGLD takes {} steps between messages, at the same step and with the same \
             minibatches. It ties a client to the server's parameter by {} of the client's own \
             steps, the tie that has the least bias to first order. The paper says neither.",
            setting.local, setting.tether,
        );
        let fsgld = format!(
            "FSGLD takes {} steps, too, before it passes its one chain on, so that one client \
             speaks where all do in LSD++: that is what it saves here. Its surrogates have the \
             clients' gradients and mean curvatures at the optimum.",
            setting.local,
        );
        let alone = (!independent.is_empty()).then(|| {
            format!(
                "Single runs with noise of their own, which is what the paper has, differ from \
                 LSD++ by {} (`independent`): Monte Carlo error, for QLSD++ at any number of bits \
                 alike.",
                independent.join(", ")
            )
        });
        let told = [("dg-sgld", dg_sgld), ("fsgld", fsgld)].into_iter();
        let competitors = told
            .filter(|(name, _)| setting.competitors.iter().any(|known| known == name))
            .map(|(_, note)| note);
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
                series: vec![Series {
                    name: "QLSD++".into(), mark: Mark::LineAndPoints, colour: 0, points }],
            }],
            notes: [
                format!(
                    "{} rows of {} at {} clients ({fewest} to {most} rows each, labels and sizes \
                     by Dirichlet({}) draws), {dim} parameters. The reference is {reference}.",
                    sizes.iter().sum::<f64>(),
                    setting.data,
                    setting.clients,
                    setting.concentration,
                ),
                format!(
                    "The potential includes the prior, without constants. Its least value is \
                     {least:.1} and the bound of the 99 % region {:.1}; a Gaussian posterior of \
                     {dim} parameters, however wide, adds {:.1} on average. \
                     One standard deviation of a single draw's potential is {:.1e} of the bound, \
                     and the bound itself differs by {scatter:.1e} (`scatter`) between runs of \
                     LSD++ with independent noise: an error of that size, \
                     from one run of each, says nothing about compression.",
                    threshold.value,
                    0.5 * dim,
                    (0.5 * dim).sqrt() / threshold.value
                ),
                "What QLSD++ compresses is a client's change since its memory last followed, which \
                 is small beside the Langevin noise at this step: QLSD++ and LSD++ with the same \
                 noise stay together.".into(),
            ]
            .into_iter()
            .chain(alone)
            .chain(competitors)
            .collect(),
        })
    }
}
