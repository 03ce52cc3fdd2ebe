//! Run the papers' experiments again, and test their claims.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use consilience_engine::config::DeviceChoice;
use consilience_engine::run::Progress;
use consilience_engine::suggest::suggest;
use consilience_reproduce::experiment::Trouble;
use consilience_reproduce::output::Reproduction;
use consilience_reproduce::record::Record;
use consilience_reproduce::runner::Work;
use consilience_reproduce::{CATALOGUE, Entry, Size, scorecard};
use serde_json::{Value, json};

use crate::args::{DeviceWord, ReproduceCommand};
use crate::output::{Failure, note, say};
use crate::progress::with_progress;

/// `consilience reproduce`.
pub fn reproduce(command: &ReproduceCommand) -> Result<(), Failure> {
    match command.id.as_deref() {
        None => list(command.json),
        Some("all") => all(command),
        Some(id) if command.kept.is_some() => {
            let entry = entry(id)?;
            let done = kept(command, entry)?;
            if command.json { say(&format!("{:#}\n", done.json())) } else { say(&done.text()) }
        }
        Some(id) => {
            let entry = entry(id)?;
            let done = one(command, entry, &Arc::new(Progress::default()))?;
            keep(command, &done)?;
            let page = done.write(&folder(command).join(entry.id)).map_err(failure)?;
            if command.json {
                return say(&format!("{:#}\n", done.json()));
            }
            say(&done.text())?;
            say(&format!("\nthe figures are in {}\n", page.display()))
        }
    }
}

fn entry(id: &str) -> Result<&'static Entry, Failure> {
    CATALOGUE.iter().find(|entry| entry.id == id).ok_or_else(|| {
        let hint = suggest(id, CATALOGUE.iter().map(|entry| entry.id));
        Failure::Argument(format!("there is no reproduction `{id}`: {hint}"))
    })
}

/// All of them, and the scorecard.
fn all(command: &ReproduceCommand) -> Result<(), Failure> {
    command.quick_for.iter().try_for_each(|id| entry(id).map(|_| ()))?;
    let progress = Arc::new(Progress::default());
    let mut done = Vec::new();
    for entry in CATALOGUE {
        let reproduction = if command.kept.is_some() {
            kept(command, entry)?
        } else {
            one(command, entry, &progress)?
        };
        if command.kept.is_none() {
            reproduction.write(&folder(command).join(entry.id)).map_err(failure)?;
        }
        keep(command, &reproduction)?;
        if !command.json {
            for (claim, verdicts) in &reproduction.judged {
                let word = verdicts.first().map_or("not tested", |judged| judged.verdict.word());
                say(&format!("{:<16} {word:<23} {}\n", entry.id, claim.says))?;
            }
        }
        done.push(reproduction);
    }
    let mut how = String::from("consilience reproduce all");
    if let Some(folder) = &command.kept {
        let _ = write!(how, " --kept {}", folder.display());
        if let Some(file) = &command.scorecard {
            let _ = write!(how, " --scorecard {}", file.display());
        }
    } else {
        let published = if command.as_published { " --as-published" } else { "" };
        let _ = write!(how, " --{}{published}", size(command).name());
    }
    if !command.quick_for.is_empty() {
        let _ = write!(how, " --quick-for {}", command.quick_for.join(","));
    }
    let write = |file: &Path, text: String| {
        std::fs::write(file, text).map_err(|e| Failure::Other(format!("{}: {e}", file.display())))
    };
    let made = folder(command);
    std::fs::create_dir_all(&made)
        .map_err(|e| Failure::Other(format!("{}: {e}", made.display())))?;
    let page = made.join("scorecard.html");
    write(&page, scorecard::page(&done, &how))?;
    let markdown =
        command.scorecard.clone().unwrap_or_else(|| folder(command).join("scorecard.md"));
    write(&markdown, scorecard::markdown(&done, &how))?;
    write(&markdown.with_extension("csv"), scorecard::verdicts(&done))?;
    if command.json {
        return say(&format!(
            "{:#}\n",
            Value::from(done.iter().map(Reproduction::json).collect::<Vec<_>>())
        ));
    }
    say(&format!("\nthe scorecard is in {} and {}\n", page.display(), markdown.display()))
}

/// Keep the numbers where that was asked for.
fn keep(command: &ReproduceCommand, done: &Reproduction) -> Result<(), Failure> {
    match (&command.keep, Record::of(done)) {
        (Some(folder), Some(record)) => {
            record.write(folder, done.entry).map(|_| ()).map_err(failure)
        }
        _ => Ok(()),
    }
}

/// What the kept numbers of an experiment say.
fn kept(command: &ReproduceCommand, entry: &'static Entry) -> Result<Reproduction, Failure> {
    let folder = command.kept.as_deref().unwrap_or(Path::new("."));
    match Record::read(folder, entry).map_err(failure)? {
        Some(record) => Reproduction::kept(entry, &record),
        None => {
            let later = entry.config().map_err(Failure::Other)?.later;
            Reproduction::none(
                entry,
                later.unwrap_or_else(|| format!("{} has no numbers of it", folder.display())),
            )
        }
    }
    .map_err(failure)
}

fn one(
    command: &ReproduceCommand,
    entry: &'static Entry,
    progress: &Arc<Progress>,
) -> Result<Reproduction, Failure> {
    let config = entry.config().map_err(Failure::Other)?;
    let quick = command.quick_for.iter().any(|id| id == entry.id);
    let mut study = config.study(entry.paper.key, if quick { Size::Quick } else { size(command) });
    study.published = command.as_published;
    study.data = command.data.clone();
    study.device = match command.device {
        DeviceWord::Cpu => DeviceChoice::Cpu,
        DeviceWord::Cuda => DeviceChoice::Cuda,
        DeviceWord::Auto => DeviceChoice::Auto,
    };
    if let Some(seed) = command.seed {
        study.seed = seed;
    }
    let shelf = entry.experiment.and_then(|experiment| experiment.shelf());
    let cells = folder(command).join(shelf.unwrap_or(entry.id)).join("cells");
    let left = match entry.experiment {
        Some(experiment) => match Work::new(&study, experiment, &cells, command.fresh) {
            Ok(work) => work.left(),
            Err(Trouble::Data(_)) => 0, // said below
            Err(trouble) => return Err(failure(trouble)),
        },
        None => 0,
    };
    progress.done.store(0, Ordering::Relaxed);
    let threads = command.threads.unwrap_or(0);
    let work = || Reproduction::run(entry, config, study, &cells, command.fresh, threads, progress);
    with_progress(entry.id, left, progress, work).map_err(failure)
}

/// What there is, what it claims, what it costs.
fn list(json: bool) -> Result<(), Failure> {
    let configs = CATALOGUE
        .iter()
        .map(|entry| Ok((entry, entry.config()?)))
        .collect::<Result<Vec<_>, String>>()
        .map_err(Failure::Other)?;
    if json {
        let row = |(entry, config): &(&Entry, consilience_reproduce::study::Config)| {
            let minutes: serde_json::Map<String, Value> =
                config.minutes.iter().map(|(size, m)| (size.name().into(), json!(m))).collect();
            json!({ "id": entry.id, "paper": entry.paper.key, "place": config.place,
                "claim": config.says, "minutes": minutes, "later": config.later,
                "data": config.data })
        };
        return say(&format!("{:#}\n", Value::from(configs.iter().map(row).collect::<Vec<_>>())));
    }
    let mut text = String::from(
        "About how long each size takes on two cores, in minutes; `hour` is the largest that ends \
         within one.\n",
    );
    let mut paper = "";
    for (entry, config) in &configs {
        if entry.paper.key != paper {
            paper = entry.paper.key;
            let _ = writeln!(
                text,
                "\n{}\n  {:<16} {:>6} {:>6} {:>6}  claim",
                entry.paper.title, "", "quick", "hour", "full"
            );
        }
        let cost = |size| config.minutes.get(&size).map_or("-".into(), |m| brief(*m));
        let costs = [Size::Quick, Size::Hour, Size::Full].map(cost);
        let says = match &config.later {
            Some(why) => format!("{} (not yet: {why})", config.says),
            None if config.data.is_empty() => config.says.clone(),
            None => format!("{} (data: {})", config.says, config.data.join(", ")),
        };
        let _ = writeln!(
            text,
            "  {:<16} {:>6} {:>6} {:>6}  {says}",
            entry.id, costs[0], costs[1], costs[2]
        );
    }
    text.push_str("\nExample:\n  consilience reproduce toy-gaussian --quick\n");
    say(&text)
}

fn brief(minutes: f64) -> String {
    if minutes < 1.0 { format!("{minutes:.1}") } else { format!("{minutes:.0}") }
}

fn size(command: &ReproduceCommand) -> Size {
    match (command.tiny, command.hour, command.full) {
        (true, _, _) => Size::Tiny,
        (_, true, _) => Size::Hour,
        (_, _, true) => Size::Full,
        _ => Size::Quick,
    }
}

fn folder(command: &ReproduceCommand) -> std::path::PathBuf {
    let name = if command.kept.is_some() { "kept" } else { size(command).name() };
    command.out.clone().unwrap_or_else(|| Path::new("reproductions").join(name))
}

fn failure(trouble: Trouble) -> Failure {
    if matches!(trouble, Trouble::Stopped) {
        note("\n");
        return Failure::Interrupted(Some(trouble.to_string()));
    }
    Failure::Other(trouble.to_string())
}
