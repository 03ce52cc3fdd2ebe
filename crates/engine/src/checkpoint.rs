//! Keep a running simulation so that it can be stopped, killed, copied and continued: snapshots of
//! its chains, and the draws so far.
//!
//! | in `DIR/checkpoint/` | |
//! |---|---|
//! | `config.toml` | the config with all that the command line said, files by their full names |
//! | `plan` | a fingerprint of target, sampler and start: what is continued must be what was begun |
//! | `chain-N.draws`, `chain-N.notes` | the draws so far, and what stands beside them |
//! | `again/` | the same of the sampler that was chosen when the first one's draws were given up |
//! | `chain-N.state.K` | the chain after `K` exchanges, the last two such snapshots |
//!
//! Whatever is damaged or missing here costs time and nothing else: a chain goes back to the newest
//! snapshot that is whole, or to its start, and is sampled again from there, to the same bits.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use consilience_core::protocol::{Device, Ledger, Together};
use consilience_core::sampler::Sampler;
use consilience_core::snapshot::{SnapshotError, State, Visit, restore, save};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::config::{Config, Source};
use crate::plan::Plan;
use crate::run::Length;
use crate::store::{Disk, Extent, Folder, Snapshots, StoreError};
use crate::warnings::{Code, Warning};

/// What the folder is called inside a run directory.
pub const FOLDER: &str = "checkpoint";
const CONFIG: &str = "config.toml";
const PLAN: &str = "plan";
const AGAIN: &str = "again";

/// Decides when chains are saved. The engine has no clock: whoever has one decides.
pub trait Pace: Sync {
    /// Whether a chain shall be saved now. If so it is, and [`Pace::saved`] follows.
    fn due(&self, chain: usize) -> bool;

    /// The chain is saved.
    fn saved(&self, chain: usize);
}

/// Why a checkpoint cannot be used.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// There is none.
    #[error("{} holds no unfinished run: there is nothing to continue", path.display())]
    Nothing {
        /// Where.
        path: PathBuf,
    },
    /// It is of something else.
    #[error(
        "{} was begun with another target, sampler or start: the data, the config or the program \
         has changed since. Give it back what it had, or run the config into another folder",
        path.display()
    )]
    Changed {
        /// Where.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("the checkpoint: {0}")]
    Store(#[from] StoreError),
    /// The disk refuses.
    #[error("the checkpoint {}: {error}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// The checkpoint of one run. Only one process at a time can have it.
pub struct Checkpoint<'a> {
    path: PathBuf,
    disk: Mutex<Folder>,
    pace: &'a dyn Pace,
    warnings: Mutex<Vec<Warning>>,
}

/// Whether a run directory holds an unfinished run.
pub fn is_unfinished(dir: &Path) -> bool {
    dir.join(FOLDER).join(PLAN).is_file()
}

/// The config that the unfinished run of a run directory was begun with.
pub fn config_of(dir: &Path) -> Result<Source, CheckpointError> {
    if !is_unfinished(dir) {
        return Err(CheckpointError::Nothing { path: dir.to_path_buf() });
    }
    let file = dir.join(FOLDER).join(CONFIG);
    let text = std::fs::read_to_string(&file)
        .map_err(|error| CheckpointError::Io { path: file.clone(), error })?;
    Ok(Source { file: file.display().to_string(), folder: ".".into(), text })
}

/// What makes a run this run and no other: every number that chains start from.
pub fn fingerprint(plan: &Plan, run: &Length, seed: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(format!(
        "{seed} {} {} {} {}\n{:?}\n",
        run.chains, run.iterations, run.burn_in, run.thin, plan.recipe
    ));
    let mut point = |x: &[f64]| x.iter().for_each(|x| hash.update(x.to_le_bytes()));
    point(&plan.start);
    point(&[plan.dispersion, plan.target.temperature]);
    point(plan.spread.as_deref().unwrap_or_default());
    if let Some(downhill) = &plan.downhill {
        point(&[downhill.rounds as f64, downhill.recipe.step().largest()]);
    }
    // Of a model that is called, the sizes alone: not every one gives the same bits in another
    // process.
    let mut gradient = vec![0.0; plan.target.dim()];
    for client in &plan.target.clients {
        point(&consilience_core::model::Single::new(client).gradient(&plan.start));
        point(&[client.rows() as f64]);
    }
    plan.target.gradient(&plan.start, &mut gradient);
    point(&gradient);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl<'a> Checkpoint<'a> {
    /// Begin one in a run directory that is to be.
    pub fn begin(
        dir: &Path,
        config: &Config,
        fingerprint: &str,
        pace: &'a dyn Pace,
    ) -> Result<Self, CheckpointError> {
        let checkpoint = Self::at(dir, pace)?;
        let mut disk = checkpoint.disk();
        for (name, text) in [(CONFIG, config.pinned()), (PLAN, fingerprint.to_owned())] {
            disk.replace(name, text.as_bytes())
                .map_err(|error| StoreError::Io { file: name.into(), error })?;
        }
        drop(disk);
        Ok(checkpoint)
    }

    /// Take up the one that is there.
    pub fn resume(
        dir: &Path,
        fingerprint: &str,
        pace: &'a dyn Pace,
    ) -> Result<Self, CheckpointError> {
        if !is_unfinished(dir) {
            return Err(CheckpointError::Nothing { path: dir.to_path_buf() });
        }
        let checkpoint = Self::at(dir, pace)?;
        let found = checkpoint
            .disk()
            .read(PLAN)
            .map_err(|error| StoreError::Io { file: PLAN.into(), error })?;
        if found.is_none_or(|found| found != fingerprint.as_bytes()) {
            return Err(CheckpointError::Changed { path: dir.to_path_buf() });
        }
        Ok(checkpoint)
    }

    fn at(dir: &Path, pace: &'a dyn Pace) -> Result<Self, CheckpointError> {
        let path = dir.join(FOLDER);
        let disk = Folder::open(&path)
            .map_err(|error| CheckpointError::Io { path: path.clone(), error })?;
        Ok(Checkpoint { path, disk: Mutex::new(disk), pace, warnings: Mutex::new(Vec::new()) })
    }

    /// One inside it for the chains of another sampler, where those of the first were given up.
    /// What the first did is kept: whoever resumes comes to the same conclusion.
    pub(crate) fn again(&self) -> Result<Checkpoint<'a>, StoreError> {
        let path = self.path.join(AGAIN);
        let disk = Folder::open(&path).map_err(StoreError::opening(&path))?;
        let (pace, warnings) = (self.pace, Mutex::new(Vec::new()));
        Ok(Checkpoint { path, disk: Mutex::new(disk), pace, warnings })
    }

    fn disk(&self) -> std::sync::MutexGuard<'_, Folder> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder that it is in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was damaged and had to be computed again.
    pub fn warnings(&self) -> Vec<Warning> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_due(&self, chain: usize) -> bool {
        self.pace.due(chain)
    }

    /// Save a chain whose draws and notes are durable.
    pub(crate) fn save(&self, chain: usize, state: &mut Running) -> Result<(), StoreError> {
        let bytes = save(state);
        snapshots(chain).save(&mut *self.disk(), state.exchanges, &bytes)?;
        self.pace.saved(chain);
        Ok(())
    }

    /// Bring a fresh chain to its newest snapshot whose draws are all there; to its start if there
    /// is none.
    pub(crate) fn restore(&self, chain: usize, state: &mut Running) -> Result<(), StoreError> {
        let snapshots = snapshots(chain);
        let fresh = save(state);
        let numbers = snapshots.numbers(&*self.disk())?;
        for number in numbers.into_iter().rev() {
            let loaded = snapshots.load(&*self.disk(), number);
            let usable = loaded.map_err(|e| e.to_string()).and_then(|bytes| {
                restore(state, &bytes).map_err(|e| e.to_string())?;
                self.check(state.draws_file)?;
                self.check(state.notes_file)
            });
            match usable {
                Ok(()) => return Ok(()),
                Err(why) => {
                    let says =
                        format!("chain {chain} is sampled again from an earlier point: {why}");
                    let warning =
                        Warning::new(Code::CheckpointDamaged, says).number("chain", chain as f64);
                    self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
                }
            }
        }
        let _ = restore(state, &fresh); // what was saved here a moment ago
        Ok(())
    }

    /// Check that a file begins with what a snapshot says.
    fn check(&self, part: Part) -> Result<(), String> {
        let path = self.path.join(format!("chain-{}.{}", part.chain, part.kind));
        let problem = |what: String| format!("{}: {what}", path.display());
        let read = |hash: &mut crc32fast::Hasher| -> std::io::Result<u64> {
            let mut reader =
                BufReader::with_capacity(1 << 20, File::open(&path)?.take(part.extent.length));
            let (mut buffer, mut all) = (vec![0; 1 << 16], 0);
            loop {
                let n = reader.read(&mut buffer)?;
                if n == 0 {
                    return Ok(all);
                }
                hash.update(&buffer[..n]);
                all += n as u64;
            }
        };
        let mut hash = crc32fast::Hasher::new();
        let found = if part.extent.length == 0 {
            0
        } else {
            read(&mut hash).map_err(|e| problem(e.to_string()))?
        };
        if found < part.extent.length {
            return Err(problem(format!("{found} of {} bytes are there", part.extent.length)));
        }
        if hash.finalize() != part.extent.checksum {
            Err(problem("its contents are not what was written".into()))
        } else {
            Ok(())
        }
    }
}

fn snapshots(chain: usize) -> Snapshots {
    Snapshots::new(&format!("chain-{chain}.state"))
}

/// How much of a file belongs to a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    chain: usize,
    kind: &'static str,
    pub(crate) extent: Extent,
}

impl Part {
    fn new(chain: usize, kind: &'static str) -> Self {
        Part { chain, kind, extent: Extent::default() }
    }

    /// Where it is.
    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("chain-{}.{}", self.chain, self.kind))
    }
}

/// A chain as it runs: all that goes on in it.
pub(crate) struct Running {
    pub(crate) server: Box<dyn Sampler>,
    pub(crate) clients: Vec<Box<dyn Device>>,
    pub(crate) ledger: Ledger,
    pub(crate) exchanges: u64,
    /// Draws after the burn-in, and how many of them were kept.
    pub(crate) draws: u64,
    pub(crate) kept: u64,
    pub(crate) draws_file: Part,
    pub(crate) notes_file: Part,
}

impl Running {
    pub(crate) fn new(
        chain: usize,
        server: Box<dyn Sampler>,
        clients: Vec<Box<dyn Device>>,
    ) -> Self {
        let ledger = Ledger::new(clients.len());
        let (draws_file, notes_file) = (Part::new(chain, "draws"), Part::new(chain, "notes"));
        Running { server, clients, ledger, exchanges: 0, draws: 0, kept: 0, draws_file, notes_file }
    }

    /// For an exchange beside those of other chains.
    pub(crate) fn side_by_side(&mut self) -> Together<'_> {
        let Running { server, clients, ledger, .. } = self;
        Together { server: &mut **server, clients, ledger }
    }
}

impl State for Running {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a chain")?;
        self.server.state(visit)?;
        self.clients.iter_mut().try_for_each(|client| client.state(visit))?;
        self.ledger.state(visit)?;
        visit.number("the exchanges", &mut self.exchanges)?;
        visit.number("the draws", &mut self.draws)?;
        visit.number("the draws kept", &mut self.kept)?;
        self.draws_file.extent.state(visit)?;
        self.notes_file.extent.state(visit)
    }
}
