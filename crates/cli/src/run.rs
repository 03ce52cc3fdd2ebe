//! Run a config, and show the result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use consilience_engine::checkpoint::{self, Checkpoint};
use consilience_engine::config::{Config, Source};
use consilience_engine::data::memory::Tables;
use consilience_engine::exact::laws;
use consilience_engine::predict::Predictor;
use consilience_engine::record::Record;
use consilience_engine::reference::{self, Reference, ReferenceSettings};
use consilience_engine::run::{Progress, RunError};
use consilience_engine::rundir;
use consilience_engine::session::{Control, Planned, Session};
use consilience_engine::site_effects::{EFFECTS_FILE, KeptEffects, SITES_FOLDER, keep_effects};

use crate::args::{RunCommand, RunOptions};
use crate::clock;
use crate::listing::MAIN_JOB;
use crate::output::{Failure, note, say};
use crate::pace::Clocked;
use crate::page;
use crate::progress::with_progress;
use crate::report::{self, Answer, Live};
use crate::truth;

/// How many draws the pooled reference has, in each of as many chains.
const REFERENCE_DRAWS: usize = 4000;

/// `consilience` alone: four hospitals, one posterior, kept in a folder of its own.
pub fn main_job(options: &RunOptions) -> Result<(), Failure> {
    let source =
        Source { file: "the built-in config".into(), folder: ".".into(), text: MAIN_JOB.into() };
    let mut config = Config::parse(source)?;
    apply(&mut config, options)?;
    let place = match &options.out {
        Some(path) => RunFolder::Asked(path.clone()),
        None => {
            RunFolder::Usual(free(Path::new("runs"), &format!("heart-disease-{}", config.seed)))
        }
    };
    perform(config, options, Some(place), true)
}

/// `consilience run`.
pub fn run(command: &RunCommand) -> Result<(), Failure> {
    if let Some(dir) = &command.resume {
        if !checkpoint::is_unfinished(dir) && rundir::read(dir).is_ok() {
            return Err(Failure::Argument(format!(
                "{0} is finished: `consilience summary {0}` shows it",
                dir.display()
            )));
        }
        let mut config = Config::parse(checkpoint::config_of(dir)?)?;
        apply(&mut config, &command.options)?;
        return perform(config, &command.options, Some(RunFolder::Begun(dir.clone())), false);
    }
    let Some(file) = &command.config else {
        return Err(Failure::Argument("give a config, or --resume DIR".into()));
    };
    let mut config = Config::load(file)?;
    apply(&mut config, &command.options)?;
    perform(config, &command.options, command.options.out.clone().map(RunFolder::Asked), false)
}

/// Where the run directory goes.
pub enum RunFolder {
    /// Where the user said: it is there in the end, or the command has failed.
    Asked(PathBuf),
    /// Where an unfinished run is.
    Begun(PathBuf),
    /// Where the user said, for a run that was served: with the run's name and more files.
    Served(PathBuf, String, Vec<(&'static str, String)>),
    /// Where nobody said otherwise: if it cannot be written, that is no more than a pity.
    Usual(PathBuf),
}

impl RunFolder {
    pub fn path(&self) -> &Path {
        match self {
            RunFolder::Asked(path)
            | RunFolder::Begun(path)
            | RunFolder::Served(path, ..)
            | RunFolder::Usual(path) => path,
        }
    }
}

/// The first of `name`, `name-2`, `name-3`, ... that is not there yet.
fn free(folder: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|k: u64| folder.join(format!("{name}-{k}")));
    std::iter::once(folder.join(name))
        .chain(numbered)
        .find(|path| rundir::check(path).is_ok())
        .unwrap_or_else(|| folder.join(name))
}

fn perform(
    config: Config,
    options: &RunOptions,
    place: Option<RunFolder>,
    with_reference: bool,
) -> Result<(), Failure> {
    if let Some(RunFolder::Asked(path)) = &place {
        rundir::check(path)?; // before hours are spent
    }
    let session = Session::new(config)?;
    if !options.json {
        say(&report::opening(session.config(), session.problem()))?;
    }
    let planned = session.plan()?;
    let Planned { config, problem, plan } = &planned;
    if place.is_some() {
        let text = config.resolved(plan);
        Config::parse(Source { file: "the config as resolved".into(), folder: ".".into(), text })?;
    }
    for warning in &plan.warnings {
        note(&format!("warning: {warning}\n"));
    }
    if !options.json {
        say(&report::plan(plan))?;
    }
    let (pace, fingerprint) =
        (Clocked::default(), checkpoint::fingerprint(plan, &plan.length, config.seed));
    let checkpoint = match &place {
        Some(RunFolder::Asked(dir)) => Some(Checkpoint::begin(dir, config, &fingerprint, &pace)?),
        Some(RunFolder::Begun(dir)) => Some(Checkpoint::resume(dir, &fingerprint, &pace)?),
        Some(RunFolder::Usual(_) | RunFolder::Served(..)) | None => None,
    };
    let progress = Arc::new(Progress::default());
    let started = Instant::now();
    let seconds = || started.elapsed().as_secs_f64();
    let reference = |planned: &Planned| find_reference(planned, options, with_reference);
    let control = Control {
        version: env!("CARGO_PKG_VERSION").into(),
        created: clock::utc(SystemTime::now()),
        clock: Some(&seconds),
        checkpoint: checkpoint.as_ref(),
        reference: Some(&reference),
        draws_alone: place.is_none(),
    };
    let ended = with_progress("sampling", plan.length.total(), &progress, || {
        planned.run(&progress, control)
    });
    let ended = ended.inspect_err(|error| abandon(error, place.as_ref()))?;
    let record = ended.record;
    let live = Live {
        held_out: ended.held_out,
        shown: plan.warnings.len(),
        reference: record.reference_by.clone(),
        iterations: ended.iterations,
        survey: plan.survey_bits(),
        moments: problem.moments_bits,
        published: ended.published,
        draws: config.draws.clone(),
        folder: place.as_ref().map(|place| place.path().to_path_buf()),
        exact: has_exact_law(&planned).then(|| config.source.file.clone()),
    };
    keep(&record, live, place, options.json)
}

/// The reference that is kept for this target; else, for the main job, one by MALA.
fn find_reference(planned: &Planned, options: &RunOptions, make: bool) -> Option<Reference> {
    let Planned { config, problem, plan } = planned;
    if let Some(kept) = truth::kept(problem, options.cache.as_deref()) {
        return Some(kept);
    }
    let found = plan.findings.as_ref().filter(|_| make)?;
    reference::mala(
        problem,
        &found.optimum,
        ReferenceSettings {
            chains: config.run.chains.unwrap_or(4),
            draws: REFERENCE_DRAWS,
            seed: config.seed,
        },
    )
    .ok()
}

/// Write the run directory, and show the answer whether that worked or not.
pub fn keep(
    record: &Record,
    mut live: Live,
    place: Option<RunFolder>,
    json: bool,
) -> Result<(), Failure> {
    let written = match &place {
        None => Ok(()),
        Some(RunFolder::Served(path, name, files)) => rundir::publish(path, record, files, name),
        Some(place) => rundir::write(place.path(), record),
    };
    if written.is_err() {
        live.folder = None;
    }
    if let (Some(folder), false) = (&live.folder, matches!(place, Some(RunFolder::Served(..)))) {
        page::write(&page::inside(folder), record)?;
    }
    let effects = match (&live.folder, &place) {
        (None, _) | (_, Some(RunFolder::Served(..))) => Ok(KeptEffects::None),
        (Some(folder), _) => keep_effects(record, &Tables::new(), folder),
    };
    let answer = Answer::new(record, Some(&live));
    let mut text = if json { answer.json() } else { answer.text() };
    if let (Some(path), true) = (
        &live.folder,
        record.interrupted && live.folder.as_deref().is_some_and(checkpoint::is_unfinished),
    ) {
        note(&format!("`consilience run --resume {}` continues it\n", path.display()));
    }
    if let (Some(path), false) = (&live.folder, json) {
        text.push_str(&format!(
            "The report is {}.\nThe run is in {1}: `consilience summary {1}` shows it again.\n",
            page::inside(path).display(),
            path.display()
        ));
    }
    match (effects, &live.folder) {
        (Ok(KeptEffects::Files(_)), Some(path)) if !json => text.push_str(&format!(
            "Every site's draws of the effects of its own groups are in {}.\n",
            path.join(SITES_FOLDER).join("NAME").join(EFFECTS_FILE).display()
        )),
        (Ok(KeptEffects::Costly), Some(path)) => note(&format!(
            "The effects of groups were not drawn: there are many rows. `consilience effects {} \
             --site NAME --out FILE` draws those of a site.\n",
            path.display()
        )),
        (Ok(_), _) => {}
        (Err(why), _) => note(&format!("warning: the effects of groups were not kept: {why}\n")),
    }
    if !json {
        text.push_str(&next(record, &live, place.as_ref()));
    }
    say(&text)?;
    match (written, place) {
        (Err(error), Some(RunFolder::Usual(_))) => {
            note(&format!("warning: the run was not kept: {error}\n"))
        }
        (Err(error), _) => return Err(error.into()),
        (Ok(()), _) => {}
    }
    if record.interrupted { Err(Failure::Interrupted(None)) } else { Ok(()) }
}

/// Whether `consilience exact` says how biased a sampler is here.
fn has_exact_law(planned: &Planned) -> bool {
    const MOST: usize = 30; // parameters for which it is known at once
    !planned.plan.recipe.family().is_exact()
        && planned.problem.parameters.len() <= MOST
        && laws(&planned.problem, &planned.plan).is_ok()
}

/// Where to go from here.
fn next(record: &Record, live: &Live, place: Option<&RunFolder>) -> String {
    let mut ways = Vec::new();
    match (&live.folder, place) {
        (_, Some(RunFolder::Usual(_))) => ways.push(
            "`consilience new run.toml` writes a config to start from; `consilience list` shows \
             samplers and models."
                .into(),
        ),
        (Some(folder), _) if Predictor::new(record).is_ok() => {
            let folder = folder.display();
            ways.push(format!("`consilience predict {folder} --data new.csv` predicts new rows."));
        }
        (Some(_), _) => {}
        (None, _) => {
            ways.push("with `--out DIR` the run is kept in a folder, with its report.".into());
        }
    }
    if let Some(config) = &live.exact {
        ways.push(format!("`consilience exact {config}` prints the sampler's exact bias here."));
    }
    if ways.is_empty() { String::new() } else { format!("\nNext: {}\n", ways.join("\n      ")) }
}

/// A run that failed: where it diverged, it would again, and nothing is left of it; otherwise it
/// can go on.
fn abandon(error: &RunError, place: Option<&RunFolder>) {
    let Some(dir) = place.map(RunFolder::path).filter(|dir| checkpoint::is_unfinished(dir)) else {
        return;
    };
    if let RunError::Diverged { .. } = error {
        let _ = std::fs::remove_dir_all(dir.join(checkpoint::FOLDER));
        let _ = std::fs::remove_dir(dir); // unless something else is there
    } else {
        note(&format!(
            "what was sampled is kept: `consilience run --resume {}` continues it\n",
            dir.display()
        ));
    }
}

/// Take over what the command line says.
pub fn apply(config: &mut Config, options: &RunOptions) -> Result<(), Failure> {
    if let Some(seed) = options.seed {
        config.seed = seed;
    }
    if let Some(threads) = options.threads {
        config.run.threads = threads;
    }
    if let Some(iterations) = options.iterations {
        if iterations == 0 {
            return Err(Failure::Argument(
                "--iterations 0 leaves nothing to do: give at least 1".into(),
            ));
        }
        if let (Some(burn_in), Some(stated)) = (config.run.burn_in, config.run.iterations) {
            let share = u128::from(burn_in) * u128::from(iterations) / u128::from(stated);
            config.run.burn_in = Some(share as u64); // below iterations, since burn_in is
        } else if config.run.burn_in.is_some_and(|burn_in| burn_in >= iterations) {
            config.run.burn_in = None;
        }
        config.run.iterations = Some(iterations);
    }
    if let Some(path) = &options.draws {
        let known = |path: &Path| path.extension().is_some_and(|e| e == "csv" || e == "npy");
        if !known(path) {
            return Err(Failure::Argument(format!(
                "--draws {}: use a name that ends in .csv or .npy",
                path.display()
            )));
        }
        config.draws = Some(path.clone());
    }
    Ok(())
}
