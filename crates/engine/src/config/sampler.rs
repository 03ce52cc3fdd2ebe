//! Read how it is sampled: the sampler, its step and its settings.

use consilience_core::compress::{Compressor, Precision, SpecError};
use consilience_core::protocol::MOST_POINTS;
use consilience_core::sampler::registry::{self, Axis, Row, Settings};
use consilience_core::sampler::{
    Anchor, Average, Batch, NoiseScale, Participation, Synchronise, Weighting,
};
use consilience_core::step::Schedule;

use super::reader::{ConfigError, Section, Value};
use super::{FieldLocation, SamplerConfig, boolean, optional, place};
use crate::suggest::suggest;

/// No draw takes more leapfrog steps than this.
const MOST_LEAPFROG: u64 = 1024;
/// No round takes longer than a day.
const MOST_SECONDS: f64 = 86_400.0;

pub(super) fn read_sampler(
    top: &Section<'_>,
    clients: Option<usize>,
) -> Result<SamplerConfig, ConfigError> {
    let Some(value) = top.get("sampler") else {
        return Ok(SamplerConfig {
            row: &registry::AUTO,
            step: None,
            settings: Settings::default(),
            weights_by_rows: false,
            participation_probability: None,
            round_deadline: None,
            precondition: None,
            place: FieldLocation { line: 0, field: "sampler".into() },
        });
    };
    let section = value.section()?;
    let row = read_name(&section)?;
    let step = read_step(&section)?;
    let mut settings =
        Settings { batch: optional(section.get("batch"), read_batch)?, ..Settings::default() };
    if let Some(refresh) = section.get("refresh") {
        // A sampler that has neither is refused below, by the setting that was meant.
        let every = row.has(Axis::RefreshEvery)
            || !row.has(Axis::RefreshProbability) && refresh.is_integer();
        if every {
            settings.refresh_every = Some(refresh.whole(1)?);
        } else {
            settings.refresh_probability = Some(refresh.fraction(true)?);
        }
    }
    settings.memory_rate = optional(section.get("memory"), |v| v.fraction(false))?;
    let (mut participation_probability, mut round_deadline) = (None, None);
    if let Some(value) = section.get("participation") {
        let (participation, p, deadline) = read_participation(&value, clients)?;
        (settings.participation, participation_probability, round_deadline) =
            (Some(participation), p, deadline);
    }
    settings.weighting = optional(section.get("weighting"), |v| {
        v.choice(&[("1/p", Weighting::InverseProbability), ("b/|A|", Weighting::Ratio)])
    })?;
    settings.synchronise = optional(section.get("synchronise"), read_synchronise)?;
    settings.correlation = optional(section.get("correlation"), |v| v.fraction(true))?;
    let mut weights_by_rows = false;
    if let Some(value) = section.get("weights") {
        settings.weights = read_weights(&value, clients, &mut weights_by_rows)?;
    }
    settings.average = optional(section.get("average"), |v| read_average(v, clients))?;
    settings.noise = optional(section.get("noise"), |v| {
        v.choice(&[
            ("published", NoiseScale::Everybody),
            ("participants", NoiseScale::Participants),
        ])
    })?;
    settings.tether = optional(section.get("tether"), Value::positive)?;
    settings.precision = optional(section.get("wire"), |v| {
        v.choice(&[("f32", Precision::F32), ("f64", Precision::F64)])
    })?;
    settings.compress = optional(section.get("compress"), |v| read_compressors(v, clients))?;
    settings.compress_down = optional(section.get("compress_down"), read_compressor)?;
    settings.code = optional(section.get("code"), |v| {
        let text = v.text("the name of a code")?;
        text.parse().map_err(|_| {
            v.error(
                format!("\"{text}\" is no code"),
                "use \"auto\", \"fixed\", \"elias\", \"huffman\", \"entropy\" or \"adaptive\"",
            )
        })
    })?;
    settings.restart = optional(section.get("restart"), |v| v.fraction(false))?;
    settings.block = optional(section.get("block"), |v| match v.whole(1)? {
        block @ 0..=MOST_POINTS => Ok(block),
        block => Err(v.error(
            format!("{block} proposals are too many for one exchange"),
            format!("use at most {MOST_POINTS}"),
        )),
    })?;
    settings.leapfrog = optional(section.get("leapfrog"), |v| match v.whole(1)? {
        steps @ 0..=MOST_LEAPFROG => Ok(steps as u32),
        steps => Err(v.error(
            format!("{steps} leapfrog steps are too many for one draw"),
            format!("use at most {MOST_LEAPFROG}"),
        )),
    })?;
    settings.clip = optional(section.get("clip"), Value::positive)?;
    settings.potential_noise = optional(section.get("potential_noise"), Value::positive)?;
    let precondition = optional(section.get("precondition"), boolean)?;
    for (axis, key) in settings.set() {
        if !row.axes.contains(&axis) {
            let having: Vec<_> = registry::REGISTRY
                .iter()
                .filter(|r| r.axes.contains(&axis))
                .map(|r| r.name)
                .collect();
            let why = (row.family.why_not)(axis).map_or(String::new(), |why| format!(": {why}"));
            return Err(section.error(
                key,
                format!("the sampler \"{}\" has no such setting{why}", row.name),
                format!("remove it, or use one of {}", having.join(", ")),
            ));
        }
    }
    if weights_by_rows && !row.axes.contains(&Axis::Weights) {
        return Err(section.error(
            "weights",
            format!("the sampler \"{}\" has no such setting", row.name),
            "remove it, or use fa-ld or dg-lmc",
        ));
    }
    if round_deadline.is_some() {
        check_elastic(&section, row, &settings, clients)?;
    }
    section.finish()?;
    let place = place(&section);
    Ok(SamplerConfig {
        row,
        step,
        settings,
        weights_by_rows,
        participation_probability,
        round_deadline,
        precondition,
        place,
    })
}

/// The sampler that is named; whichever is cheapest where none is.
fn read_name(section: &Section<'_>) -> Result<&'static Row, ConfigError> {
    let Some(name) = section.get("name") else { return Ok(&registry::AUTO) };
    let word = name.text("the name of a sampler")?;
    registry::find(word).ok_or_else(|| {
        let rows = registry::all();
        name.error(
            format!("there is no sampler \"{word}\""),
            suggest(word, rows.map(|row| row.name)),
        )
    })
}

fn read_step(section: &Section<'_>) -> Result<Option<Schedule>, ConfigError> {
    let Some(value) = section.get("step") else { return Ok(None) };
    if value.value.is_table() {
        let table = value.section()?;
        let schedule = match (table.get("smoothness"), table.get("first")) {
            (Some(smoothness), None) => Schedule::Decreasing {
                smoothness: smoothness.positive()?,
                convexity: table.need("convexity", "add m, e.g. convexity = 1.0")?.positive()?,
            },
            (None, Some(first)) => Schedule::Polynomial {
                first: first.positive()?,
                delay: table
                    .need("delay", "add when it starts to decay, e.g. delay = 1000")?
                    .positive()?,
                power: table
                    .need("power", "add how fast it decays, e.g. power = 0.5")?
                    .positive()?,
            },
            _ => {
                let fix = "use { smoothness = 5.0, convexity = 1.0 } or \
                    { first = 0.01, delay = 1000, power = 0.5 }";
                return Err(value.error("it is neither of the two schedules", fix));
            }
        };
        table.finish()?;
        return Ok(Some(schedule));
    }
    match value.value.as_str() {
        Some("auto") => Ok(None),
        Some(word) => Err(value.error(
            format!("\"{word}\" is not a step"),
            "use step = \"auto\", or a positive number such as 0.01",
        )),
        None => value.positive().map(|step| Some(Schedule::Constant(step))),
    }
}

fn read_compressor(value: &Value<'_>) -> Result<Compressor, ConfigError> {
    let text = value.text("a compressor, such as \"qsgd(16)\"")?;
    text.parse().map_err(|e: SpecError| {
        value.error(
            e.to_string(),
            "use e.g. \"qsgd(16)\" or \"scaled(rand_k(10))\"; `consilience list` says what each \
             does",
        )
    })
}

fn read_compressors(
    value: &Value<'_>,
    clients: Option<usize>,
) -> Result<Vec<Compressor>, ConfigError> {
    if !value.value.is_array() {
        return read_compressor(value).map(|c| vec![c]);
    }
    let list = value
        .list("a list of compressors")?
        .iter()
        .map(read_compressor)
        .collect::<Result<Vec<_>, _>>()?;
    if clients.is_some_and(|b| b != list.len()) {
        return Err(value.error(
            format!("{} compressors for {} clients", list.len(), clients.unwrap_or(0)),
            "give one for all, or one for each client",
        ));
    }
    Ok(list)
}

fn read_batch(value: &Value<'_>) -> Result<Batch, ConfigError> {
    if let Some(word) = value.value.as_str() {
        return if word == "all" {
            Ok(Batch::Full)
        } else {
            Err(value.error(
                format!("\"{word}\" is not a batch"),
                "use \"all\", a number of rows such as 20, or a fraction such as 0.1",
            ))
        };
    }
    if value.is_integer() {
        value.whole(1).map(|n| Batch::Rows(n as usize))
    } else {
        value.fraction(false).map(Batch::Fraction)
    }
}

/// After how many seconds a round is closed.
fn read_deadline(table: &Section<'_>) -> Result<f64, ConfigError> {
    let deadline = table.need(
        "deadline",
        "say how many seconds a round may take, e.g. { elastic = 0.7, deadline = 2.0 }",
    )?;
    let seconds = deadline.positive()?;
    if seconds > MOST_SECONDS {
        return Err(deadline.error(
            format!("{seconds} seconds are more than a day"),
            "wait for all: participation = \"all\"",
        ));
    }
    Ok(seconds)
}

/// Refuse samplers that a client which answers too late would put out of step.
fn check_elastic(
    section: &Section<'_>,
    row: &Row,
    settings: &Settings,
    clients: Option<usize>,
) -> Result<(), ConfigError> {
    let anchor = row.needs_optimum.then(|| Anchor { residual: vec![0.0], point: vec![0.0] });
    let recipe = row.recipe(Schedule::Constant(1.0), settings, clients.unwrap_or(1), 1, anchor);
    if !recipe.family().spares_answers() {
        let problem = format!(
            "\"{}\" cannot do without a client's answer: its memory here would no longer be that \
             of the client",
            row.name
        );
        return Err(section.error(
            "participation",
            problem,
            "use a sampler without memory, such as lmc, qlsd or qlsd*, or participation = 0.7",
        ));
    }
    if settings.weighting == Some(Weighting::Ratio) {
        let problem = "weights b/|A| are biased where clients drop out as they do";
        return Err(section.error("weighting", problem, "remove it: weights are 1/p then"));
    }
    Ok(())
}

/// Who takes part; the one probability of all, if it is one; how long a round may take, if it is
/// elastic.
fn read_participation(
    value: &Value<'_>,
    clients: Option<usize>,
) -> Result<(Participation, Option<f64>, Option<f64>), ConfigError> {
    if let Some(word) = value.value.as_str() {
        let fix = "use \"all\", a probability such as 0.5, a list of them, { clients = 3 }, or \
            { elastic = 0.7, deadline = 2.0 }";
        return if word == "all" {
            Ok((Participation::All, None, None))
        } else {
            Err(value.error(format!("\"{word}\" is not known"), fix))
        };
    }
    if !value.value.is_table() {
        let (list, one) = read_probabilities(value, clients)?;
        return Ok((Participation::Bernoulli(list), one, None));
    }
    let table = value.section()?;
    if let Some(elastic) = table.get("elastic") {
        let (list, one) = read_probabilities(&elastic, clients)?;
        let deadline = read_deadline(&table)?;
        table.finish()?;
        return Ok((Participation::Elastic(list), one, Some(deadline)));
    }
    let count = table.need(
        "clients",
        "say how many, e.g. { clients = 3 }; or use { elastic = 0.7, deadline = 2.0 }",
    )?;
    let size = count.whole(1)? as usize;
    if clients.is_some_and(|b| size > b) {
        return Err(count.error(
            format!("{size} of {} clients cannot take part", clients.unwrap_or(0)),
            "use at most the number of clients",
        ));
    }
    table.finish()?;
    Ok((Participation::Fixed(size), None, None))
}

/// A probability for each client, and the one of all if it is one.
fn read_probabilities(
    value: &Value<'_>,
    clients: Option<usize>,
) -> Result<(Vec<f64>, Option<f64>), ConfigError> {
    if !value.value.is_array() {
        let p = value.fraction(false)?;
        return Ok((vec![p; clients.unwrap_or(0)], Some(p)));
    }
    let list = value
        .list("a list of probabilities")?
        .iter()
        .map(|v| v.fraction(false))
        .collect::<Result<Vec<_>, _>>()?;
    if clients.is_some_and(|b| b != list.len()) {
        return Err(value.error(
            format!("{} probabilities for {} clients", list.len(), clients.unwrap_or(0)),
            "give one for each client",
        ));
    }
    Ok((list, None))
}

fn read_synchronise(value: &Value<'_>) -> Result<Synchronise, ConfigError> {
    let fix = "use { every = 10 } or { probability = 0.1 }";
    if !value.value.is_table() {
        return Err(
            value.error(format!("{} says neither how often nor how likely", value.written()), fix)
        );
    }
    let table = value.section()?;
    let read = match (table.get("every"), table.get("probability")) {
        (Some(every), None) => Synchronise::Every(every.whole(1)?),
        (None, Some(p)) => Synchronise::Randomly(p.fraction(false)?),
        _ => return Err(value.error("it must say either how often or how likely", fix)),
    };
    table.finish()?;
    Ok(read)
}

fn read_weights(
    value: &Value<'_>,
    clients: Option<usize>,
    by_rows: &mut bool,
) -> Result<Option<Vec<f64>>, ConfigError> {
    match value.value.as_str() {
        Some("equal") => Ok(None),
        Some("rows") => {
            *by_rows = true;
            Ok(None)
        }
        Some(word) => Err(value.error(
            format!("\"{word}\" is not known"),
            "use \"equal\", \"rows\", or a list of weights that sums to 1",
        )),
        None => {
            let list = value
                .list("a list of weights")?
                .iter()
                .map(Value::positive)
                .collect::<Result<Vec<_>, _>>()?;
            let sum: f64 = list.iter().sum();
            if clients.is_some_and(|b| b != list.len()) {
                return Err(value.error(
                    format!("{} weights for {} clients", list.len(), clients.unwrap_or(0)),
                    "give one for each client",
                ));
            }
            if (sum - 1.0).abs() > 1e-9 {
                return Err(value.error(format!("the weights sum to {sum}"), "make them sum to 1"));
            }
            Ok(Some(list))
        }
    }
}

fn read_average(value: &Value<'_>, clients: Option<usize>) -> Result<Average, ConfigError> {
    if let Some(word) = value.value.as_str() {
        let fix = "use \"all\" or { scheme = \"I\", clients = 3 }";
        return if word == "all" {
            Ok(Average::All)
        } else {
            Err(value.error(format!("\"{word}\" is not known"), fix))
        };
    }
    let table = value.section()?;
    let second = table
        .need("scheme", "add scheme = \"I\" or \"II\"")?
        .choice(&[("I", false), ("II", true)])?;
    let count = table.need("clients", "say how many are averaged, e.g. clients = 3")?;
    let size = count.whole(1)? as usize;
    if second && clients.is_some_and(|b| size > b) {
        return Err(count.error(
            format!("{size} of {} clients cannot be averaged", clients.unwrap_or(0)),
            "use at most the number of clients",
        ));
    }
    table.finish()?;
    Ok(if second { Average::WithoutReplacement(size) } else { Average::WithReplacement(size) })
}
