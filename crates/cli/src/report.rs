//! Print the result of a run, as tables or as JSON.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::PathBuf;

use consilience_core::measure::{MASS, Summary};
use consilience_core::protocol::Kind;
use consilience_core::sampler::forecast::Forecast;
use consilience_core::step::Schedule;
use consilience_engine::config::Config;
use consilience_engine::foretold::{Yield, foretold_and_actual};
use consilience_engine::held_out::Scores;
use consilience_engine::plan::{Choice, Plan};
use consilience_engine::privacy::PrivacyReport;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Record, SentRecord};
use consilience_engine::run::Length;
use consilience_engine::warnings::{
    Severity, Warning, khat, longest_stay, summaries, weights_in_words,
};
use serde_json::{Value, json};

/// Lines of the table.
const MOST_LINES: usize = 60;

/// So many of something, in words.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// What is sampled, before anything is.
pub fn opening(config: &Config, problem: &Problem) -> String {
    let model = config.target.model.of_rows();
    let grouped = model.as_ref().is_some_and(|model| model.group_by().is_some());
    // a site of Cox regression is one thing, however many rows it has
    let whole = model.is_some_and(|model| model.is_whole());
    let sites = problem.clients.iter().zip(&problem.target.clients);
    let rows: Vec<String> = sites
        .map(|(name, client)| match whole {
            true => name.clone(),
            false => format!("{name} ({})", client.rows()),
        })
        .collect();
    let mut text = format!(
        "{}, {}, one posterior. {}: {}.\n",
        count(problem.clients.len(), "site"),
        count(problem.parameters.len(), "parameter"),
        match (grouped, whole) {
            (true, _) => "Groups",
            (_, true) => "Strata",
            _ => "Rows",
        },
        if rows.len() > 12 {
            format!("{} and {} more", rows[..12].join(", "), rows.len() - 12)
        } else {
            rows.join(", ")
        }
    );
    for note in &problem.notes {
        let _ = writeln!(text, "  {note}");
    }
    let stated = |field: &str| problem.statement.fields().find(|(name, _)| *name == field);
    let said = |title: &str| problem.notes.iter().any(|n| n.starts_with(&format!("{title}: ")));
    for (title, field) in [("Model", "model"), ("Prior", "prior")] {
        if let Some((_, value)) = stated(field).filter(|_| !said(title)) {
            let _ = writeln!(text, "{title}: {value}");
        }
    }
    let _ = writeln!(text, "Sampler: {} ({})", config.sampler.row.name, config.sampler.row.says);
    text
}

/// What the surveys found.
pub fn plan(plan: &Plan) -> String {
    let step = match plan.step() {
        Schedule::Constant(step) => format!("{step:.3e}"),
        schedule => format!("{:.3e} at first, then smaller", schedule.largest()),
    };
    let mut text = String::new();
    if let Some(choice) = &plan.choice {
        let (up, down) = plan.survey_bits();
        text.push_str(&chosen(choice, (up, down)));
        if plan.row.has_step() {
            let _ = writeln!(text, "Step {step}.");
        }
    } else if let Some(found) = &plan.findings {
        let (up, down) = plan.survey_bits();
        let _ = writeln!(
            text,
            "Survey: curvature of the posterior from m = {:.3} to L = {:.1}; step {step}. It cost \
             {} up and {} down.",
            found.convexity,
            found.smoothness,
            bytes(up),
            bytes(down)
        );
    } else if plan.row.has_step() {
        let _ = writeln!(text, "Step {step}.");
    }
    if let Some((mean, sd)) = plan.forecast.as_ref().map(Forecast::worst) {
        let _ = writeln!(
            text,
            "Bias by forecast: means up to {mean:.3} posterior sd off, standard deviations up to \
             {:.1}%.",
            100.0 * sd
        );
    }
    let Length { chains, iterations, burn_in, thin, .. } = plan.length;
    let kept = if thin == 1 {
        "all others are kept".to_owned()
    } else {
        format!("of the others one in {thin} is kept")
    };
    let _ = writeln!(
        text,
        "{chains} chains of {iterations} iterations, of which {burn_in} are burn-in; {kept}."
    );
    text
}

/// What was tried before sampling, and what was chosen.
fn chosen(choice: &Choice, (up, down): (u64, u64)) -> String {
    let mut text = format!(
        "Survey: {} exchanges, {} up and {} down.\nChosen: {}",
        choice.exchanges,
        bytes(up),
        bytes(down),
        choice.chosen
    );
    if let Some(acceptance) = choice.acceptance {
        let _ = write!(text, "; by forecast {:.0}% of proposals are accepted", 100.0 * acceptance);
    }
    if let Some(khat) = choice.khat {
        let _ = write!(text, ", k-hat {khat:.2}");
    }
    if choice.bent > 0 {
        let axes = if choice.bent == 1 { "axis is" } else { "axes are" };
        let _ = write!(text, ", {} {axes} bent", choice.bent);
    }
    if let Some(scale) = &choice.nodes {
        let _ = write!(text, ", with nodes along the logarithm of {scale}");
    }
    let _ = writeln!(
        text,
        ".\nThe same effective draws by forecast (iterations of all chains, exchanges of one, \
         bytes of all sites, seconds of the network):\n  sampler   chains  iterations  exchanges  \
         \x20    bytes    seconds  bias of means and sds"
    );
    for one in choice.candidates.iter().filter(|one| one.iterations > 0.0) {
        let bias = match (&one.refused, one.bias) {
            (Some(why), _) => format!("not used: {why}"),
            (None, None) => "none".into(),
            (None, Some(sd)) => {
                let mean = one.mean_bias.map_or(String::new(), |mean| format!("{mean:.3} sd, "));
                format!("{mean}{:.1}%", 100.0 * sd)
            }
        };
        let _ = writeln!(
            text,
            "  {:9} {:>6} {:>11} {:>10} {:>11} {:>10}  {bias}",
            one.sampler,
            one.chains,
            thousands(one.iterations),
            thousands(one.exchanges),
            bytes((8.0 * one.bytes) as u64),
            seconds(one.seconds),
        );
    }
    text
}

/// Seconds with no more digits than people read.
fn seconds(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}") } else { thousands(number) }
}

/// A large number with its thousands apart.
fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.min(1e15));
    let mut text = String::new();
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What only a run that has just ended knows.
pub struct Live {
    /// How many of its record's warnings were shown before it began.
    pub shown: usize,
    /// How the reference was made.
    pub reference: Option<String>,
    /// How well rows that were held out are predicted.
    pub held_out: Option<Scores>,
    /// How many iterations all chains did.
    pub iterations: u64,
    /// The bits of the surveys, up and down.
    pub survey: (u64, u64),
    /// The bits of the exchange of moments, up and down.
    pub moments: (u64, u64),
    /// The bits up by the published formula, where there is one.
    pub published: Option<u64>,
    /// Where the draws were streamed to.
    pub draws: Option<PathBuf>,
    /// Where the run directory will be.
    pub folder: Option<PathBuf>,
    /// The config, where `consilience exact` knows the law of its sampler.
    pub exact: Option<String>,
}

/// The answer of a run.
pub struct Answer<'a> {
    record: &'a Record,
    live: Option<&'a Live>,
    names: Cow<'a, [String]>,
    summaries: Vec<Option<Summary>>,
    reference: Option<Vec<Option<Summary>>>,
}

impl<'a> Answer<'a> {
    /// Summarise a run, now or later.
    pub fn new(record: &'a Record, live: Option<&'a Live>) -> Self {
        let reference = record.reference.as_ref().map(summaries);
        let (names, draws) = record.shown();
        Answer { record, live, names, summaries: summaries(&draws), reference }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for warning in self.record.warnings.iter().skip(self.live.map_or(0, |live| live.shown)) {
            let said = if warning.code.severity() == Severity::Info { "Note" } else { "WARNING" };
            let _ = writeln!(text, "{said}: {warning}");
        }
        let (chains, length) = self.record.drawn();
        let _ = writeln!(
            text,
            "{length} draws of each of {chains} chains by {} in {:.1} s{}.\n",
            self.record.sampler.0,
            self.record.seconds,
            if self.record.interrupted { " (stopped before the end)" } else { "" }
        );
        if self.record.streamed.is_none() {
            let shown = self.names.len() - self.nuisance();
            let of = &self.summaries[..shown.min(self.summaries.len())];
            text.push_str(&table(&self.names[..shown], of, self.reference.as_deref()));
            text.push_str(&self.unshown(shown));
        } // else a warning says where the draws are, and what computes the table
        text.push_str(&self.distance());
        text.push_str(&self.held_out());
        text.push_str(&self.sent());
        text.push_str(&self.foretold());
        if let Some(path) = self.live.and_then(|live| live.draws.as_ref()) {
            let _ = writeln!(text, "The draws are in {}.", path.display());
        }
        text
    }

    /// How many parameters, the last ones, are of no interest by themselves.
    fn nuisance(&self) -> usize {
        let encoding = self.record.encoding.as_ref();
        let count = encoding.map_or(0, |encoding| encoding.model().nuisance(self.names.len()));
        count.min(self.names.len())
    }

    /// What is said of parameters that the table leaves out.
    fn unshown(&self, shown: usize) -> String {
        match &self.names[shown..] {
            [] => String::new(),
            [first, .., last] => format!(
                "And {} parameters of the laws of columns that lack values, {first} to {last}: \
                 --json has them all.\n",
                self.names.len() - shown
            ),
            [one] => format!("And {one}, of the law of a column that lacks values.\n"),
        }
    }

    /// The largest distances to the pooled reference: of means in its standard deviations, of
    /// standard deviations in per cent; and their Monte Carlo errors.
    fn distances(&self) -> Option<[f64; 3]> {
        let reference = self.reference.as_ref()?;
        let mut largest = [0.0f64; 3];
        for (s, r) in self.summaries.iter().zip(reference) {
            let (s, r) = (s.as_ref()?, r.as_ref()?);
            largest[0] = largest[0].max((s.mean - r.mean).abs() / r.sd);
            largest[1] = largest[1].max((s.sd / r.sd - 1.0).abs());
            largest[2] = largest[2].max(s.mcse_mean.hypot(r.mcse_mean) / r.sd);
        }
        Some(largest)
    }

    fn distance(&self) -> String {
        let Some([mean, sd, error]) = self.distances() else { return String::new() };
        let how = self
            .live
            .and_then(|live| live.reference.as_ref())
            .map_or_else(String::new, |how| format!(" ({how})"));
        format!(
            "\nPooled: the same posterior from all rows in one place{how}. Means differ by at most \
             {mean:.3} posterior sd\n\
             (Monte Carlo error up to {error:.3}), standard deviations by at most {:.1}%.\n",
            100.0 * sd
        )
    }

    fn held_out(&self) -> String {
        let Some(scores) = self.live.and_then(|live| live.held_out) else { return String::new() };
        format!("\nHeld out: {}.\n", score_words(&scores))
    }

    /// What sampling was foretold to give and to cost beside what it did, and what is known of
    /// proposals.
    fn foretold(&self) -> String {
        let mut text = String::new();
        if let Some((foretold, actual)) = foretold_and_actual(self.record, &self.summaries) {
            let both = |show: &dyn Fn(&Yield) -> String| {
                format!("{} and {}", show(&foretold), show(&actual))
            };
            let _ = writeln!(
                text,
                "Foretold and actual: {} effective draws, {} exchanges of a chain, {} of sampling.",
                both(&|of| thousands(of.draws)),
                both(&|of| thousands(of.exchanges)),
                both(&|of| bytes((8.0 * of.bytes) as u64)),
            );
        }
        let weights = weights_in_words(self.record, &self.summaries);
        if let (Some(weights), Some(stay)) = (weights, longest_stay(self.record)) {
            let _ = writeln!(
                text,
                "Weights of proposals: {weights}; at most {stay} rejections in a row."
            );
        }
        text
    }

    fn sent(&self) -> String {
        let (up, down) = (self.bits("up"), self.bits("down"));
        let mut text = format!(
            "\nSent while sampling: {} up, {} down, headers included",
            bytes(up),
            bytes(down)
        );
        let (plain_up, plain_down) = self.record.uncompressed;
        if plain_up > up || plain_down > down {
            let _ = write!(
                text,
                " ({:.1} and {:.1} times less than uncompressed: {} and {})",
                plain_up as f64 / up.max(1) as f64,
                plain_down as f64 / down.max(1) as f64,
                bytes(plain_up),
                bytes(plain_down)
            );
        }
        // What plain Langevin Monte Carlo would send for as many iterations: one gradient up for
        // each client.
        let every = self.iterations()
            * self.record.sites.len() as u64
            * self.record.parameters.len() as u64
            * 32;
        if every > plain_up {
            let _ = write!(
                text,
                " ({:.1} times less up than a gradient an iteration)",
                every as f64 / up.max(1) as f64
            );
        }
        if let Some(published) = self.live.and_then(|live| live.published) {
            let _ = write!(text, "; the published formula counts {} up", bytes(published));
        }
        let (before_up, before_down) = self.record.before_sampling;
        let (before, sampling) = self.record.exchanges;
        let _ = writeln!(
            text,
            ".\nSent before sampling: {} up, {} down\n  exchanges: {before} before sampling, \
             {sampling} of all chains",
            bytes(before_up),
            bytes(before_down)
        );
        match &self.record.bias {
            Some(bias) if bias.exact => text.push_str(
                "Bias: none. Proposals are accepted or rejected by the whole posterior.\n",
            ),
            Some(bias) => {
                let mean = bias.mean.iter().fold(0.0f64, |worst, m| worst.max(m.abs()));
                let sd = bias.sd.iter().fold(0.0f64, |worst, s| worst.max((s - 1.0).abs()));
                let _ = writeln!(
                    text,
                    "Bias by forecast: means up to {mean:.3} posterior sd off, standard \
                     deviations up to {:.1}%.",
                    100.0 * sd
                );
                if let Some(halved) = &bias.measured {
                    let ((mean, at), (sd, wide)) = halved.worst();
                    let _ = writeln!(
                        text,
                        "Bias as measured, at half the step: means up to {mean:.3} +- {:.3} \
                         posterior sd off, standard deviations up to {:.1}% +- {:.1}%. --json and \
                         the report have means and standard deviations without it.",
                        halved.mean_bias_error[at],
                        100.0 * sd,
                        100.0 * halved.sd_ratio_error[wide],
                    );
                }
            }
            None => {}
        }
        for direction in ["up", "down"] {
            let kinds: Vec<String> = self
                .of_direction(direction)
                .filter(|s| s.bits > 0)
                .map(|s| format!("{} {}", s.kind, bytes(s.bits)))
                .collect();
            // Every message has one header.
            let messages: u64 = self
                .of_direction(direction)
                .filter(|s| s.kind == Kind::Header.name())
                .map(|s| s.vectors)
                .sum();
            let _ = writeln!(text, "  {direction}: {} in {messages} messages", kinds.join(", "));
        }
        match PrivacyReport::of(self.record) {
            None => text.push_str(
                "No row left its site. What did (parameters, log-likelihoods, gradients, Hessians, \
                 sums of moments) is not private in the sense of differential privacy.\n",
            ),
            Some(told) => {
                let most = |threat: usize| {
                    let sites = told.plan.sites.iter().map(|site| site.exposures[threat].epsilon);
                    sites.fold(0.0, f64::max)
                };
                let _ = writeln!(
                    text,
                    "No row left its site. What did tells of one row at most epsilon {:.3} against \
                     the server, {:.3} against other sites and {:.3} against outsiders, at delta \
                     {:e}{}",
                    most(0),
                    most(1),
                    most(2),
                    told.plan.delta,
                    if told.simulated {
                        "; in one process, as here, nothing is private."
                    } else {
                        "."
                    }
                );
            }
        }
        text
    }

    fn of_direction(&self, direction: &str) -> impl Iterator<Item = &SentRecord> {
        self.record.sent.iter().filter(move |s| s.direction == direction)
    }

    fn bits(&self, direction: &str) -> u64 {
        self.of_direction(direction).map(|s| s.bits).sum()
    }

    /// Iterations of all chains: as counted, or as planned.
    fn iterations(&self) -> u64 {
        self.live
            .map_or(self.record.iterations.saturating_mul(self.record.drawn().0 as u64), |live| {
                live.iterations
            })
    }

    /// What was recorded beside the draws, by name.
    fn statistics(&self) -> serde_json::Map<String, Value> {
        let all = self.record.statistics.iter();
        all.map(|statistic| (statistic.name.clone(), json!(statistic.range()))).collect()
    }

    /// For programs: full precision.
    pub fn json(&self) -> String {
        let shown = self.record.shown().1;
        let draws = &*shown;
        let d = draws.dim();
        let of = |read: fn(&Summary) -> f64| -> Vec<Value> {
            self.summaries
                .iter()
                .map(|s| s.as_ref().map_or(Value::Null, |s| number(read(s))))
                .collect()
        };
        // else there is no mean: the draws are on disk alone, or there are none
        let held = draws.length() > 0;
        let covariance = draws.covariance();
        let kinds = |direction: &str| -> Value {
            let bits = |kind: Kind| {
                self.of_direction(direction)
                    .filter(|s| s.kind == kind.name())
                    .map(|s| s.bits)
                    .sum::<u64>()
            };
            Kind::ALL
                .into_iter()
                .map(|kind| (kind.name().to_owned(), json!(bits(kind))))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let both = foretold_and_actual(self.record, &self.summaries);
        let mut value = json!({
            "sampler": self.record.sampler.0,
            "seed": self.record.seed,
            "step": self.record.step,
            "parameters": self.names,
            "clients": self.record.sites.iter().map(|s| &s.name).collect::<Vec<_>>(),
            "chains": self.record.drawn().0,
            "draws": self.record.drawn().1,
            "draws_file": self.record.streamed.as_ref().map(|s| s.file.display().to_string()),
            "iterations": self.iterations(),
            "interrupted": self.record.interrupted,
            "seconds": self.record.seconds,
            "digest": held.then(|| self.record.draws.digest()),
            "mean": held.then(|| draws.mean()),
            "covariance": held.then(|| covariance.chunks(d.max(1)).collect::<Vec<_>>()),
            "sd": of(|s| s.sd),
            "interval_mass": MASS,
            "lower": of(|s| s.lower),
            "upper": of(|s| s.upper),
            "rhat": of(|s| s.rhat),
            "ess_bulk": of(|s| s.ess_bulk),
            "ess_tail": of(|s| s.ess_tail),
            "mcse_mean": of(|s| s.mcse_mean),
            "rows_evaluated": self.record.rows_evaluated,
            "bits": {
                "up": self.bits("up"),
                "down": self.bits("down"),
                "up_by_kind": kinds("up"),
                "down_by_kind": kinds("down"),
                "uncompressed_up": self.record.uncompressed.0,
                "uncompressed_down": self.record.uncompressed.1,
                "before_sampling_up": self.record.before_sampling.0,
                "before_sampling_down": self.record.before_sampling.1,
            },
            "pooled": self.reference.as_ref().map(|r| json!({
                "mean": r.iter().map(|s| s.as_ref().map_or(Value::Null,
                |s| number(s.mean))).collect::<Vec<_>>(),
                "sd": r.iter().map(|s| s.as_ref().map_or(Value::Null,
                |s| number(s.sd))).collect::<Vec<_>>(),
            })),
            "warnings": self.record.warnings.iter().map(Warning::value).collect::<Vec<_>>(),
            "exchanges": {
                "before_sampling": self.record.exchanges.0,
                "sampling": self.record.exchanges.1,
            },
            "privacy": PrivacyReport::of(self.record),
            "bias": self.record.bias.as_ref().map(|bias| json!({
                "exact": bias.exact, "mean": bias.mean, "sd": bias.sd, "measured": bias.measured,
            })),
            "khat": khat(self.record).map(number),
            "statistics": self.statistics(),
            "longest_stay": longest_stay(self.record),
            "foretold": both.map(|(foretold, _)| yielded(&foretold)),
            "actual": both.map(|(_, actual)| yielded(&actual)),
            "choice": self.record.choice,
            "check": self.record.check,
        });
        if let Some(live) = self.live {
            let bits = &mut value["bits"];
            bits["paper_up"] = json!(live.published);
            (bits["survey_up"], bits["survey_down"]) = (json!(live.survey.0), json!(live.survey.1));
            (bits["moments_up"], bits["moments_down"]) =
                (json!(live.moments.0), json!(live.moments.1));
            value["held_out"] = json!(live.held_out.map(scores_value));
            value["run_directory"] =
                json!(live.folder.as_ref().map(|path| path.display().to_string()));
        }
        format!("{value:#}\n")
    }
}

/// What a run gave and cost, for programs.
fn yielded(of: &Yield) -> Value {
    json!({
        "effective_draws": number(of.draws),
        "exchanges": number(of.exchanges),
        "bytes": number(of.bytes),
    })
}

/// How well rows are predicted, in words.
pub fn score_words(scores: &Scores) -> String {
    let each = [
        ("accuracy", scores.accuracy),
        ("Brier score summed over classes", scores.brier),
        ("root mean square error", scores.root_mean_square),
    ];
    let each: Vec<String> = each
        .iter()
        .filter_map(|(name, score)| score.map(|score| format!("{name} {score:.3}, ")))
        .collect();
    format!(
        "{} rows; {}minus log-likelihood {:.3} a row",
        scores.rows,
        each.concat(),
        scores.negative_log_likelihood
    )
}

/// The same as JSON.
pub fn scores_value(scores: Scores) -> Value {
    json!({
        "rows": scores.rows, "negative_log_likelihood": number(scores.negative_log_likelihood),
        "accuracy": scores.accuracy, "brier": scores.brier,
        "root_mean_square": scores.root_mean_square,
    })
}

/// A number of JSON, which has none for NaN.
pub fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

/// A table of summaries for people.
pub fn table(
    parameters: &[String],
    summaries: &[Option<Summary>],
    reference: Option<&[Option<Summary>]>,
) -> String {
    let width = parameters.iter().map(|p| p.chars().count()).max().unwrap_or(9).max(9);
    let mut text = format!(
        "{:<width$} {:>8} {:>7} {:>8} {:>8} {:>6} {:>7} {:>7}",
        "parameter", "mean", "sd", "5.5%", "94.5%", "R-hat", "bulk", "tail"
    );
    if reference.is_some() {
        let _ = write!(text, " | {:>8} {:>7} {:>9}", "pooled", "sd", "distance");
    }
    text.push('\n');
    for (k, name) in parameters.iter().enumerate().take(MOST_LINES) {
        let Some(Some(s)) = summaries.get(k) else { continue };
        let _ = write!(
            text,
            "{name:<width$} {:>8.3} {:>7.3} {:>8.3} {:>8.3} {:>6.3} {:>7.0} {:>7.0}",
            s.mean, s.sd, s.lower, s.upper, s.rhat, s.ess_bulk, s.ess_tail
        );
        if let Some(Some(Some(r))) = reference.map(|r| r.get(k)) {
            let _ =
                write!(text, " | {:>8.3} {:>7.3} {:>9.3}", r.mean, r.sd, (s.mean - r.mean) / r.sd);
        }
        text.push('\n');
    }
    if parameters.len() > MOST_LINES {
        let _ = writeln!(
            text,
            "... and {} more: use --json or --draws for all",
            parameters.len() - MOST_LINES
        );
    }
    text
}

/// A number of bits as people read it.
pub fn bytes(bits: u64) -> String {
    let bytes = bits as f64 / 8.0;
    match bytes {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.1} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}
