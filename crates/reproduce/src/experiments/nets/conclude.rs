//! Make the tables' numbers, the differences between methods seed by seed, and the figures.

use consilience_core::measure::{Chains, Predictive, mean, rhat};
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};

use super::cell;
use super::scores::{HEAPS, SCORES, VIEWS};
use super::setting::{CREDIBILITIES, Setting};
use crate::experiment::{Findings, Found, Reading, Trouble};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// Agreement with the reference is told where the chains of the reference agree: R-hat of the
/// predicted probability below this, for this part of the rows.
const MOST_RHAT: f64 = 1.1;
const LEAST_SHARE: f64 = 0.9;

/// What all runs of the methods gave.
struct Table<'a> {
    setting: &'a Setting,
    found: &'a Found,
}

impl<'a> Table<'a> {
    /// When the first run of a method that diverged did.
    fn diverged(&self, method: &str) -> Option<(u32, f64)> {
        (0..self.setting.seeds).find_map(|run| {
            let at = self.found.number(&cell(method, run), "diverged").ok()?;
            Some((run, at))
        })
    }

    fn list(&self, method: &str, run: u32, name: &str) -> Result<&'a [f64], Trouble> {
        self.found.list(&cell(method, run), name)
    }

    /// A number of every seed.
    fn all(&self, method: &str, name: &str) -> Result<Vec<f64>, Trouble> {
        (0..self.setting.seeds).map(|run| self.found.number(&cell(method, run), name)).collect()
    }

    /// One place of a list of every seed.
    fn place(&self, method: &str, name: &str, at: usize) -> Result<Vec<f64>, Trouble> {
        let one = |run| Ok(self.list(method, run, name)?.get(at).copied().unwrap_or(0.0));
        (0..self.setting.seeds).map(one).collect()
    }
}

/// The reference's predictions, chain by chain.
struct Reference<'a> {
    chains: Vec<&'a [f64]>,
    mean: Vec<f64>,
    classes: usize,
}

impl Reference<'_> {
    /// Agreement and total variation of a table with the mean of all chains.
    fn compared(&self, table: &[f64]) -> Result<[f64; 2], Trouble> {
        apart(table, &self.mean, self.classes)
    }

    /// The same of each of its chains with the mean of the others: the most that can be had.
    fn ceiling(&self) -> Result<Vec<[f64; 2]>, Trouble> {
        let n = self.chains.len() as f64;
        let one = |chain: &&[f64]| {
            let others: Vec<f64> =
                self.mean.iter().zip(*chain).map(|(m, p)| (m * n - p) / (n - 1.0)).collect();
            apart(chain, &others, self.classes)
        };
        self.chains.iter().map(one).collect()
    }
}

/// Agreement and total variation of two tables.
fn apart(table: &[f64], other: &[f64], classes: usize) -> Result<[f64; 2], Trouble> {
    // What was kept has six digits.
    let whole = |table: &[f64]| -> Vec<f64> {
        let row = |row: &[f64]| -> Vec<f64> {
            let sum: f64 = row.iter().sum();
            row.iter().map(|p| (p / sum).clamp(0.0, 1.0)).collect()
        };
        table.chunks_exact(classes).flat_map(row).collect()
    };
    let (ours, theirs) = (whole(table), whole(other));
    let both = || {
        let (ours, theirs) = (Predictive::new(&ours, classes)?, Predictive::new(&theirs, classes)?);
        Ok::<_, consilience_core::measure::PredictiveError>([
            100.0 * ours.agreement(&theirs)?,
            ours.total_variation(&theirs)?,
        ])
    };
    both().map_err(|error| Trouble::Other(error.to_string()))
}

/// What follows from all runs.
pub(super) fn conclude(
    study: &Study,
    setting: &Setting,
    found: &Found,
) -> Result<Findings, Trouble> {
    let table = Table { setting, found };
    let mut numbers = Numbers::new();
    for (beginning, why) in &setting.untold {
        numbers.leave_out(beginning, why);
    }
    let mut notes = vec![said(setting)];
    let mut run = Vec::new();
    for method in setting.methods.iter().filter(|m| Some(*m) != setting.reference.as_ref()) {
        if let Some((seed, iteration)) = table.diverged(method) {
            let why = format!("{method} diverged with seed {seed} at iteration {iteration}");
            notes.push(format!("{why}: it has no numbers."));
            for (score, _) in SCORES {
                numbers.leave_out(format!("{score}/{method}"), &why);
            }
            for pair in setting.pairs.iter().filter(|pair| pair.contains(method)) {
                for what in ["accuracy gap", "nnll ratio", "brier ratio", "ece ratio"] {
                    numbers.leave_out(format!("{what}/{}/{}", pair[0], pair[1]), &why);
                }
            }
            continue;
        }
        run.push(method.as_str());
        one(&table, method, &mut numbers)?;
    }
    for [a, b] in &setting.pairs {
        if run.contains(&a.as_str()) && run.contains(&b.as_str()) {
            pair(&table, a, b, &mut numbers)?;
        }
    }
    if let Some(name) = &setting.reference {
        notes.push(against(&table, name, &run, &mut numbers)?);
    }
    let told = |number: &Number| numbers.why_absent(&number.name).is_none();
    let mut kept: Numbers = numbers.iter().filter(|number| told(number)).cloned().collect();
    for (beginning, why) in numbers.absent() {
        kept.leave_out(beginning, why);
    }
    let figures = figures(&table, &run, study)?;
    Ok(Findings { readings: vec![Reading::ours(kept)], figures, notes })
}

/// The numbers of one method.
fn one(table: &Table<'_>, method: &str, numbers: &mut Numbers) -> Result<(), Trouble> {
    for view in VIEWS {
        for (score, _) in SCORES {
            let runs = table.all(method, &format!("{score}{view}"))?;
            numbers.push(Number::mean(format!("{score}{view}/{method}"), &runs));
        }
    }
    // Averaging over draws against one net, seed by seed.
    for (what, over) in [("of one draw", "averaging"), ("of the mean", "over the mean")] {
        for score in ["nnll", "brier", "ece"] {
            let (averaged, single) =
                (table.all(method, score)?, table.all(method, &format!("{score} {what}"))?);
            numbers.push(Number::mean(
                format!("{over}: {score} ratio/{method}"),
                &ratios(&averaged, &single),
            ));
        }
    }
    let (averaged, single) =
        (table.all(method, "accuracy")?, table.all(method, "accuracy of one draw")?);
    let gap: Vec<f64> = averaged.iter().zip(&single).map(|(a, b)| a - b).collect();
    numbers.push(Number::mean(format!("averaging: accuracy gap/{method}"), &gap));
    for (at, credibility) in CREDIBILITIES.iter().enumerate() {
        let right = table.place(method, "right above", at)?;
        let name = format!("accuracy above {credibility}/{method}");
        numbers.push(Number::mean(name, &right.iter().map(|p| 100.0 * p).collect::<Vec<_>>()));
    }
    for name in table.setting.elsewhere.keys() {
        let area = table.all(method, &format!("auroc {name}"))?;
        numbers.push(Number::mean(format!("auroc/{name}/{method}"), &area));
        let told = table.all(method, &format!("told {name}"))?;
        numbers.push(Number::mean(format!("told by densities/{name}/{method}"), &told));
    }
    let sent = table.all(method, "megabytes up")?;
    if sent.iter().any(|sent| *sent > 0.0) && !table.setting.method(method)?.pooled {
        numbers.push(Number::mean(format!("megabytes up/{method}"), &sent));
    }
    Ok(())
}

/// What one method has and another lacks, seed by seed: split, start and noise are the same.
fn pair(table: &Table<'_>, a: &str, b: &str, numbers: &mut Numbers) -> Result<(), Trouble> {
    let both = |name: &str| Ok::<_, Trouble>((table.all(a, name)?, table.all(b, name)?));
    let gaps = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>();
    let (ours, theirs) = both("accuracy")?;
    numbers.push(Number::mean(format!("accuracy gap/{a}/{b}"), &gaps(&ours, &theirs)));
    for score in ["nnll", "brier", "ece"] {
        let (ours, theirs) = both(score)?;
        numbers.push(Number::mean(format!("{score} ratio/{a}/{b}"), &ratios(&ours, &theirs)));
    }
    for (at, credibility) in CREDIBILITIES.iter().enumerate() {
        let gap = gaps(&table.place(a, "right above", at)?, &table.place(b, "right above", at)?);
        numbers.push(Number::mean(format!("curve gap/{credibility}/{a}/{b}"), &gap));
    }
    for kind in table.setting.elsewhere.keys() {
        let (ours, theirs) = both(&format!("auroc {kind}"))?;
        numbers.push(Number::mean(format!("auroc gap/{kind}/{a}/{b}"), &gaps(&ours, &theirs)));
    }
    Ok(())
}

fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    // A score of 0 is as good as it gets.
    ours.iter().zip(theirs).map(|(a, b)| a / b.max(1e-9)).collect()
}

/// How far methods are from the reference, where its chains agree; what is to be said of it.
fn against(
    table: &Table<'_>,
    name: &str,
    run: &[&str],
    numbers: &mut Numbers,
) -> Result<String, Trouble> {
    let setting = table.setting;
    let list = |chain, what| table.list(name, chain, what);
    let chains = (0..setting.reference_chains)
        .map(|chain| list(chain, "probabilities"))
        .collect::<Result<Vec<_>, _>>()?;
    let traces = (0..setting.reference_chains)
        .map(|chain| list(chain, "traces"))
        .collect::<Result<Vec<_>, _>>()?;
    let draws = setting.method(name)?.draws as usize;
    let rows = traces[0].len() / draws.max(1);
    let classes = chains[0].len() / rows.max(1);
    let agrees = |row: usize| {
        let of = |trace: &&[f64]| -> Vec<f64> {
            trace.iter().skip(row).step_by(rows).copied().collect()
        };
        let parts: Vec<Vec<f64>> = traces.iter().map(of).collect();
        let parts: Vec<&[f64]> = parts.iter().map(Vec::as_slice).collect();
        // Probabilities that never move agree where they are the same.
        let still = parts.concat().iter().all(|p| *p == parts[0][0]);
        still || Chains::new(&parts).is_ok_and(|chains| rhat(&chains) < MOST_RHAT)
    };
    let share = (0..rows).filter(|row| agrees(*row)).count() as f64 / rows.max(1) as f64;
    numbers.push(Number::exact(format!("rows on which chains agree/{name}"), share));
    let whole = |k: usize| mean(&chains.iter().map(|chain| chain[k]).collect::<Vec<_>>());
    let mean_table = (0..chains[0].len()).map(whole).collect();
    let reference = Reference { chains, mean: mean_table, classes };
    for (score, k) in [("agreement", 0), ("tv", 1)] {
        let each: Vec<f64> = reference.ceiling()?.iter().map(|both| both[k]).collect();
        numbers.push(Number::mean(format!("{score}/{name}"), &each));
    }
    for (score, _) in SCORES {
        let each = (0..setting.reference_chains)
            .map(|chain| table.found.number(&cell(name, chain), score))
            .collect::<Result<Vec<_>, _>>()?;
        numbers.push(Number::mean(format!("{score}/{name}"), &each));
    }
    let mut of = std::collections::BTreeMap::new();
    for method in run {
        let each = (0..setting.seeds)
            .map(|run| reference.compared(table.list(method, run, "probabilities")?))
            .collect::<Result<Vec<_>, _>>()?;
        for (score, k) in [("agreement", 0), ("tv", 1)] {
            let runs: Vec<f64> = each.iter().map(|both| both[k]).collect();
            numbers.push(Number::mean(format!("{score}/{method}"), &runs));
            of.insert((score, *method), runs);
        }
    }
    for [a, b] in &setting.pairs {
        for score in ["agreement", "tv"] {
            if let (Some(ours), Some(theirs)) =
                (of.get(&(score, a.as_str())), of.get(&(score, b.as_str())))
            {
                let gap: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a - b).collect();
                numbers.push(Number::mean(format!("{score} gap/{a}/{b}"), &gap));
            }
        }
    }
    let chains = setting.reference_chains;
    let gate = format!(
        "R-hat of the predicted probability of the label is below {MOST_RHAT} on {:.1}% of the \
         rows",
        100.0 * share
    );
    if share < LEAST_SHARE {
        let why = format!(
            "{chains} chains of {name} do not agree: {gate}, and {:.0}% are needed before \
             distances to it are judged",
            100.0 * LEAST_SHARE
        );
        for beginning in ["agreement gap/", "tv gap/"] {
            numbers.leave_out(beginning, &why);
        }
        return Ok(format!("{why}."));
    }
    Ok(format!("The reference is the average of {chains} chains of {name}: {gate}."))
}

/// What the numbers are.
fn said(setting: &Setting) -> String {
    let strange: Vec<String> = setting
        .elsewhere
        .iter()
        .map(|(name, what)| if name == what { name.clone() } else { format!("{name} ({what})") })
        .collect();
    format!(
        "{}: {} rows to learn from, {} to test on, dealt to {} clients by {}; {} seeds. The net \
         is {}, the prior N(0, {}). Rows of other kinds: {}. Accuracies are in percent. Numbers \
         without a word are of the average over draws; `of the mean` is the net whose \
         parameters are the mean of all draws', `of one draw` the last. A ratio or a gap is \
         taken seed by seed: the split, the start and the noise are the same for both.",
        setting.data,
        setting.rows,
        setting.test_rows,
        setting.clients,
        setting.scheme,
        setting.seeds,
        setting.layers,
        setting.prior_variance,
        if strange.is_empty() { "none".into() } else { strange.join(", ") }
    )
}

fn figures(table: &Table<'_>, run: &[&str], study: &Study) -> Result<Vec<Figure>, Trouble> {
    let setting = table.setting;
    let (mut above, mut reliable) = (Vec::new(), Vec::new());
    for (colour, method) in run.iter().enumerate() {
        let series = |mark, points| Series { name: (*method).to_owned(), mark, colour, points };
        let point = |x: f64, runs: &[f64]| {
            let number = Number::mean("", runs);
            let error = if number.error.is_finite() { number.error } else { 0.0 };
            Point { x, y: number.value, error }
        };
        let points = CREDIBILITIES.iter().enumerate();
        let points = points
            .map(|(at, credibility)| {
                Ok(point(*credibility, &table.place(method, "right above", at)?))
            })
            .collect::<Result<_, Trouble>>()?;
        above.push(series(Mark::LineAndPoints, points));
        let mut points = Vec::new();
        for at in 0..super::scores::BINS {
            let place = |name| table.place(method, name, at);
            let (counts, confident, right) = (place("bins")?, place("confident")?, place("right")?);
            let all: f64 = counts.iter().sum();
            if all > 0.0 {
                let mean = |of: &[f64]| {
                    of.iter().zip(&counts).map(|(v, count)| v * count).sum::<f64>() / all
                };
                let (confident, right) = (mean(&confident), mean(&right));
                points.push(Point { x: confident, y: right - confident, error: 0.0 });
            }
        }
        reliable.push(series(Mark::LineAndPoints, points));
    }
    let mut figures = vec![
        Figure {
            title: "Accuracy of predictions above a credibility".into(),
            caption: format!("The mean of {} seeds; {}.", setting.seeds, study.size.name()),
            x: Axis::straight("credibility"),
            y: Axis::straight("accuracy"),
            series: above,
        },
        Figure {
            title: "Accuracy less confidence".into(),
            caption: "Nearer to 0 is better; predictions of all seeds in fifteen bins.".into(),
            x: Axis::straight("confidence"),
            y: Axis::straight("accuracy - confidence"),
            series: reliable,
        },
    ];
    for kind in setting.elsewhere.keys() {
        let mut series = Vec::new();
        for (colour, method) in run.iter().enumerate() {
            let strange = format!("entropies {kind}");
            for (name, mark) in [("entropies", Mark::Line), (strange.as_str(), Mark::Dashes)] {
                let points = (0..HEAPS)
                    .map(|at| {
                        let share = mean(&table.place(method, name, at)?);
                        let x = (at as f64 + 0.5) / HEAPS as f64;
                        Ok(Point { x, y: share, error: 0.0 })
                    })
                    .collect::<Result<_, Trouble>>()?;
                let what =
                    if mark == Mark::Line { (*method).into() } else { format!("{method}, {kind}") };
                series.push(Series { name: what, mark, colour, points });
            }
        }
        figures.push(Figure {
            title: format!("Entropies of predictions, {} and {kind}", setting.data),
            caption: "Shares of rows; lines for rows held out, dashes for those of another kind."
                .into(),
            x: Axis::straight("entropy over the largest"),
            y: Axis::straight("share"),
            series,
        });
    }
    Ok(figures)
}
