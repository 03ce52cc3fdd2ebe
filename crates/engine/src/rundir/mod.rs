//! Keep a run as a folder that people, ArviZ and the next command can read.
//!
//! | | |
//! |---|---|
//! | `config.toml` | the config as it was resolved |
//! | `draws.zarr/` | Zarr v3: the groups `posterior` and `sample_stats`, with the dimensions chain and draw |
//! | `reference.zarr/` | the group `posterior` from pooled rows, where it was made |
//! | `ledger.json` | what was sent, in bits |
//! | `encoding.json` | how raw rows became numbers, where they did not come as such ([`crate::encoding`]) |
//! | `judged.json` | calibration, the sites' influence and the check of the model, where they were computed |
//! | `run.json` | everything else |
//! | `log.txt` | what happened, in sentences |
//! | `served.txt` | the name of the run, where it was served over a network |
//! | `checkpoint/` | what an unfinished run goes on from ([`crate::checkpoint`]) |
//!
//! Every parameter is a variable of its own, under its own name: then a row of `az.summary` is
//! called `age`, and not `parameters[age]`. (A slash in a name becomes an underscore, since names
//! are paths; the attribute `long_name` has the parameter's own.) Beyond 256 parameters that would
//! be thousands of small files, and they become one variable `parameters` with their names as a
//! coordinate. The reference has a store of its own, since ArviZ warns of groups that it does not
//! know.

mod files;
mod judged;
mod names;
mod zarr;

pub use names::variables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use crate::checkpoint;
use crate::draws::Draws;
use crate::encoding::{self, Encoding};
use crate::record::{Record, Statistic};
use crate::store::sync_folder;
use files::{FORMAT, LedgerFile, RunFile};
use judged::JudgedFile;
use zarr::{ArrayValues, Group, Variable};

const CONFIG: &str = "config.toml";
const ENCODING: &str = "encoding.json";
const JUDGED: &str = "judged.json";
const LEDGER: &str = "ledger.json";
const RUN: &str = "run.json";
/// The file that names a run which was served.
pub const PUBLISHED: &str = "served.txt";

/// The most parameters that are variables of their own.
const MOST_VARIABLES: usize = 256;

/// Why a run directory cannot be written or read.
#[derive(Debug, Error)]
pub enum RunDirError {
    /// Something is there already.
    #[error("{} exists and is not an empty folder: nothing was overwritten. Choose another name, \
        or remove it first", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// An unfinished run is there.
    #[error("{0} holds an unfinished run. `consilience run --resume {0}` continues it; remove the \
        folder to begin anew", path.display())]
    Unfinished {
        /// Where.
        path: PathBuf,
    },
    /// There is no run.
    #[error("{} is no run directory: it has no run.json. `consilience run run.toml --out DIR` \
        makes one", path.display())]
    NotARun {
        /// Where.
        path: PathBuf,
    },
    /// A file cannot be written or read.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A file does not say what it should.
    #[error("{}: {problem}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl RunDirError {
    fn at(file: &Path) -> impl FnOnce(std::io::Error) -> RunDirError {
        let file = file.to_path_buf();
        move |error| RunDirError::Io { file, error }
    }

    fn malformed(file: &Path, problem: impl Into<String>) -> RunDirError {
        RunDirError::Malformed { file: file.to_path_buf(), problem: problem.into() }
    }
}

/// Whether a run could be written here: nothing is there, or an empty folder.
pub fn check(path: &Path) -> Result<(), RunDirError> {
    if checkpoint::is_unfinished(path) {
        return Err(RunDirError::Unfinished { path: path.to_path_buf() });
    }
    match std::fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(false) => Err(RunDirError::Exists { path: path.to_path_buf() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Err(RunDirError::Exists { path: path.to_path_buf() })
        }
        Err(error) => Err(RunDirError::at(path)(error)),
    }
}

/// Write a run. It is made under another name beside its place and then renamed: whoever stops it
/// half way leaves no half run.
pub fn write(path: &Path, record: &Record) -> Result<(), RunDirError> {
    if checkpoint::is_unfinished(path) {
        return finish(path, record);
    }
    check(path)?;
    let Some(name) = path.file_name() else {
        return Err(RunDirError::Exists { path: path.to_path_buf() });
    };
    let temporary = path.with_file_name(format!(".{}.{}.tmp", name.display(), std::process::id()));
    // What is left of a process that had the same number.
    let _ = std::fs::remove_dir_all(&temporary);
    let written = fill(&temporary, record).and_then(|()| {
        if path.is_dir() {
            std::fs::remove_dir(path).map_err(RunDirError::at(path))?;
        }
        std::fs::rename(&temporary, path).map_err(RunDirError::at(path))
    });
    if written.is_err() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    written
}

/// Write a run with more files, as somebody who may be stopped at any moment and begins again:
/// either nothing is at `path`, or all of it, durably. `name` is of this run alone, and stands in
/// [`PUBLISHED`].
pub fn publish(
    path: &Path,
    record: &Record,
    files: &[(&str, String)],
    name: &str,
) -> Result<(), RunDirError> {
    if is_published(path, name) {
        return Ok(());
    }
    check(path)?;
    let Some(own) = path.file_name() else {
        return Err(RunDirError::Exists { path: path.to_path_buf() });
    };
    let temporary = path.with_file_name(format!(".{}.{name}.tmp", own.display()));
    remove(&temporary)?;
    fill(&temporary, record)?;
    let mark = [(PUBLISHED, format!("{name}\n"))];
    for (file, text) in files.iter().chain(&mark) {
        zarr::put(&temporary.join(file), text.as_bytes())?;
    }
    sync(&temporary)?;
    if path.is_dir() {
        std::fs::remove_dir(path).map_err(RunDirError::at(path))?;
    }
    std::fs::rename(&temporary, path).map_err(RunDirError::at(path))?;
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_folder(parent).map_err(RunDirError::at(parent)),
        None => Ok(()),
    }
}

/// Whether the run of this name was published here.
pub fn is_published(path: &Path, name: &str) -> bool {
    std::fs::read_to_string(path.join(PUBLISHED)).is_ok_and(|text| text.trim_end() == name)
}

/// Write a run beside its checkpoint. `run.json` comes last, and only when all is durable does the
/// checkpoint go (if the run was stopped before its end, it stays): whoever is stopped half way
/// still has the checkpoint.
fn finish(path: &Path, record: &Record) -> Result<(), RunDirError> {
    let checkpoint = path.join(checkpoint::FOLDER);
    let temporary = checkpoint.join("finished");
    remove(&temporary)?;
    fill(&temporary, record)?;
    sync(&temporary)?;
    remove(&path.join(RUN))?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&temporary).map_err(RunDirError::at(&temporary))? {
        names.push(entry.map_err(RunDirError::at(&temporary))?.file_name());
    }
    names.sort_by_key(|name| name == RUN);
    for name in names {
        let to = path.join(&name);
        remove(&to)?;
        std::fs::rename(temporary.join(&name), &to).map_err(RunDirError::at(&to))?;
    }
    sync_folder(path).map_err(RunDirError::at(path))?;
    if record.interrupted { remove(&temporary) } else { remove(&checkpoint) }
}

/// Make a folder's files and names durable.
fn sync(folder: &Path) -> Result<(), RunDirError> {
    for entry in std::fs::read_dir(folder).map_err(RunDirError::at(folder))? {
        let entry = entry.map_err(RunDirError::at(folder))?.path();
        if entry.is_dir() {
            sync(&entry)?;
        } else {
            std::fs::File::open(&entry)
                .and_then(|file| file.sync_all())
                .map_err(RunDirError::at(&entry))?;
        }
    }
    sync_folder(folder).map_err(RunDirError::at(folder))
}

/// Remove a file or a folder, if it is there.
fn remove(path: &Path) -> Result<(), RunDirError> {
    let removed =
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RunDirError::at(path)(error))
        }
        _ => Ok(()),
    }
}

fn fill(folder: &Path, record: &Record) -> Result<(), RunDirError> {
    let posterior =
        Group { name: "posterior", variables: parameters(&record.parameters, &record.draws) };
    let statistics =
        Group { name: "sample_stats", variables: statistics(&record.statistics, &record.draws) };
    zarr::write(&folder.join("draws.zarr"), &attributes(record, true), &[posterior, statistics])?;
    if let Some(draws) = &record.reference {
        let posterior =
            Group { name: "posterior", variables: parameters(&record.parameters, draws) };
        zarr::write(&folder.join("reference.zarr"), &attributes(record, false), &[posterior])?;
    }
    texts(record).iter().try_for_each(|(name, text)| zarr::put(&folder.join(name), text.as_bytes()))
}

/// The files of a run that are texts, by their names: everything but its arrays.
pub fn texts(record: &Record) -> BTreeMap<String, String> {
    let all = [
        (CONFIG, Some(record.config.clone())),
        ("log.txt", Some(files::log(record))),
        (ENCODING, record.encoding.as_ref().map(|encoding| format!("{}\n", json!(encoding)))),
        (JUDGED, JudgedFile::of(record).map(|judged| format!("{}\n", json!(judged)))),
        (LEDGER, Some(format!("{:#}\n", json!(LedgerFile::of(record))))),
        (RUN, Some(format!("{:#}\n", json!(RunFile::of(record))))),
    ];
    all.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}

/// Keep what was found out of a run since, such as its cross-validation, in its folder.
pub fn keep_judged(path: &Path, record: &Record) -> Result<(), RunDirError> {
    let Some(judged) = JudgedFile::of(record) else { return Ok(()) };
    let (file, new) = (path.join(JUDGED), path.join("judged.json.new"));
    std::fs::write(&new, format!("{}\n", json!(judged))).map_err(RunDirError::at(&new))?;
    std::fs::rename(&new, &file).map_err(RunDirError::at(&file))
}

/// The run of [`texts`], as yet without its draws, its statistics and its reference. `place` is
/// what complaints call it.
pub fn from_texts(texts: &BTreeMap<String, String>, place: &Path) -> Result<Record, RunDirError> {
    Ok(without_arrays(&|name| Ok(texts.get(name).cloned()), place)?.0)
}

/// The same, the names of the statistics, and whether there is a reference.
fn without_arrays(
    text: &dyn Fn(&str) -> Result<Option<String>, RunDirError>,
    place: &Path,
) -> Result<(Record, Vec<String>, bool), RunDirError> {
    let need = |name: &str| {
        let missing = || RunDirError::at(&place.join(name))(std::io::ErrorKind::NotFound.into());
        text(name)?.ok_or_else(missing)
    };
    let run = need(RUN)?;
    let file = place.join(RUN);
    let Format { format } = parse(&file, &run)?;
    if format != FORMAT {
        return Err(RunDirError::malformed(
            &file,
            format!("it has layout {format}; this program knows layout {FORMAT}"),
        ));
    }
    let run: RunFile = parse(&file, &run)?;
    let (names, reference) = (run.statistics.clone(), run.reference);
    let mut record = run.into_record(parse(&place.join(LEDGER), &need(LEDGER)?)?);
    record.config = need(CONFIG)?;
    if let Some(encoding) = text(ENCODING)? {
        record.encoding = Some(read_encoding(&place.join(ENCODING), &encoding)?);
    }
    if let Some(judged) = text(JUDGED)? {
        parse::<JudgedFile>(&place.join(JUDGED), &judged)?.into_record(&mut record);
    }
    Ok((record, names, reference))
}

/// What ArviZ shows of where draws come from. The config is a text, since netCDF has no nested
/// attributes.
fn attributes(record: &Record, federated: bool) -> Value {
    let mut all = json!({
        "inference_library": "consilience",
        "inference_library_version": record.version,
        "created_at": record.created,
    });
    if federated {
        let config = record
            .config
            .parse::<toml::Table>()
            .map_or_else(|_| json!(record.config), |table| json!(table));
        all["sampling_time"] = json!(record.seconds);
        all["tuning_steps"] = json!(record.burn_in);
        all["sampler"] = json!(record.sampler.0);
        all["config"] = json!(config.to_string());
    } else {
        let by = record.reference_by.as_deref().unwrap_or("a sampler that was not noted");
        all["sampler"] = json!(format!("{by}, on pooled rows"));
    }
    all
}

fn grid(draws: &Draws) -> Vec<(&'static str, usize)> {
    vec![("chain", draws.chains()), ("draw", draws.length())]
}

fn coordinates(draws: &Draws) -> Vec<Variable> {
    vec![Variable::index("chain", draws.chains()), Variable::index("draw", draws.length())]
}

fn parameters(parameters: &[String], draws: &Draws) -> Vec<Variable> {
    let mut all = coordinates(draws);
    if parameters.len() > MOST_VARIABLES {
        let names = names::variables(parameters);
        let dims = vec![("parameter", names.len())];
        all.push(Variable {
            name: "parameter".into(),
            dims: dims.clone(),
            cells: ArrayValues::Words(names),
            title: None,
        });
        let cells = ArrayValues::Floats(draws.rows().flatten().copied().collect());
        all.push(Variable {
            name: "parameters".into(),
            dims: [grid(draws), dims].concat(),
            cells,
            title: None,
        });
        return all;
    }
    for (k, (name, title)) in names::variables(parameters).into_iter().zip(parameters).enumerate() {
        let cells = ArrayValues::Floats(draws.parameter(k).concat());
        all.push(Variable { name, dims: grid(draws), cells, title: Some(title.clone()) });
    }
    all
}

fn statistics(statistics: &[Statistic], draws: &Draws) -> Vec<Variable> {
    let mut all = coordinates(draws);
    for statistic in statistics {
        let dims = vec![
            ("chain", statistic.values.len()),
            ("draw", statistic.values.first().map_or(0, Vec::len)),
        ];
        all.push(Variable {
            name: statistic.name.clone(),
            dims,
            cells: ArrayValues::Floats(statistic.values.concat()),
            title: None,
        });
    }
    all
}

/// Read a run.
pub fn read(path: &Path) -> Result<Record, RunDirError> {
    let file = path.join(RUN);
    if !file.is_file() && checkpoint::is_unfinished(path) {
        return Err(RunDirError::Unfinished { path: path.to_path_buf() });
    }
    if !file.is_file() {
        return Err(RunDirError::NotARun { path: path.to_path_buf() });
    }
    let text = |name: &str| match std::fs::read_to_string(path.join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RunDirError::at(&path.join(name))(error)),
    };
    let (mut record, names, reference) = without_arrays(&text, path)?;
    let store = path.join("draws.zarr");
    record.draws = read_draws(&store.join("posterior"), &record.parameters)?;
    for name in names {
        let folder = store.join("sample_stats").join(&name);
        let ([chains, length], cells) = zarr::read::<2>(&folder)?;
        if (chains, length) != (record.draws.chains(), record.draws.length()) {
            return Err(RunDirError::malformed(&folder, "it has another shape than the draws"));
        }
        let values = (0..chains).map(|c| cells[c * length..(c + 1) * length].to_vec()).collect();
        record.statistics.push(Statistic { name, values });
    }
    if reference {
        record.reference =
            Some(read_draws(&path.join("reference.zarr/posterior"), &record.parameters)?);
    }
    Ok(record)
}

fn read_encoding(file: &Path, text: &str) -> Result<Encoding, RunDirError> {
    let Format { format } = parse(file, text)?;
    if !(1..=encoding::FORMAT).contains(&format) {
        let problem = format!(
            "it has layout {format}; this program knows layouts up to {}",
            encoding::FORMAT
        );
        return Err(RunDirError::malformed(file, problem));
    }
    let encoding: Encoding = parse(file, text)?;
    encoding.check().map_err(|problem| RunDirError::malformed(file, problem))?;
    Ok(encoding)
}

/// What every layout's `run.json` has.
#[derive(serde::Deserialize)]
struct Format {
    format: u32,
}

fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, RunDirError> {
    serde_json::from_str(text).map_err(|error| RunDirError::malformed(file, error.to_string()))
}

fn read_draws(group: &Path, parameters: &[String]) -> Result<Draws, RunDirError> {
    let d = parameters.len();
    if d > MOST_VARIABLES {
        let folder = group.join("parameters");
        let ([chains, length, found], cells) = zarr::read::<3>(&folder)?;
        if found != d {
            return Err(RunDirError::malformed(
                &folder,
                format!("it has {found} parameters where run.json has {d}"),
            ));
        }
        return Ok(Draws::from_chains(
            (0..chains).map(|c| cells[c * length * d..(c + 1) * length * d].to_vec()).collect(),
            d,
        ));
    }
    let mut all: Option<([usize; 2], Vec<Vec<f64>>)> = None;
    for (k, name) in names::variables(parameters).iter().enumerate() {
        let folder = group.join(name);
        let (shape, cells) = zarr::read::<2>(&folder)?;
        let (first, chains) =
            all.get_or_insert_with(|| (shape, vec![vec![0.0; shape[1] * d]; shape[0]]));
        if shape != *first {
            return Err(RunDirError::malformed(
                &folder,
                format!("it has the shape {shape:?}, another parameter {first:?}"),
            ));
        }
        for (chain, values) in chains.iter_mut().zip(cells.chunks_exact(shape[1].max(1))) {
            chain
                .iter_mut()
                .skip(k)
                .step_by(d)
                .zip(values)
                .for_each(|(place, value)| *place = *value);
        }
    }
    Ok(Draws::from_chains(all.map_or_else(Vec::new, |(_, chains)| chains), d))
}

#[cfg(test)]
pub(crate) mod tests;
