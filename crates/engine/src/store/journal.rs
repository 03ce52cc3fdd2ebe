//! Restore a party from its last snapshot and the log of what came after it.
//!
//! Generation `g` is the snapshot `NAME.g` and the log `NAME.log.g` of what happened since. The
//! last two generations are kept, so that a damaged snapshot costs time and nothing else: the older
//! one and both logs lead to the same state. Generation 0 has no snapshot: a party starts from what
//! its recipe says. What only ever grows (draws) is in no snapshot, which would be written again
//! and again with all of it: it is appended to files of its own ([`Replay::file`]), and a snapshot
//! says how much of them belongs to it.

use super::snapshots::Snapshots;
use super::{Disk, Log, StoreError};
use consilience_core::snapshot::{State, restore, save};

/// A party that can do again what is written in its log.
pub trait Replay: State {
    /// Do what a record says; the text says why that cannot be.
    fn replay(&mut self, record: &[u8]) -> Result<(), String>;

    /// Append to files of its own what only ever grows, before a snapshot is taken: the snapshot
    /// says how long they are then, and stays small. Durable on return.
    fn file(&mut self, _disk: &mut dyn Disk) -> Result<(), StoreError> {
        Ok(())
    }

    /// Read these files as far as the snapshot says that has been restored; what stands behind that
    /// is cut off.
    fn recall(&mut self, _disk: &mut dyn Disk) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A log is begun anew when it is this many times as long as the last snapshot.
const GROWTH: u64 = 4;
/// A log shorter than this is never worth a snapshot: synced record by record it is a small part of
/// what was spent on it; else a snapshot's own syncs would be most of it.
const LEAST: u64 = 1 << 20;
const LEAST_UNSYNCED: u64 = 1 << 26;

/// The memory of one party on one disk.
#[derive(Debug)]
pub struct Journal<D> {
    disk: D,
    name: String,
    snapshots: Snapshots,
    generation: u64,
    log: Log,
    snapshot_length: u64,
    /// Whether the disk has failed: what it holds is unknown then, until it is read again.
    broken: bool,
    /// Whether records are durable before anything is said.
    synced: bool,
    /// How many records may wait to be made durable, and how many do.
    ahead: u64,
    waiting: u64,
}

impl<D: Disk> Journal<D> {
    /// Bring a fresh party to where it was. The texts say what was damaged and could be done
    /// without.
    pub fn open<P: Replay + ?Sized>(
        disk: D,
        name: &str,
        party: &mut P,
    ) -> Result<(Self, Vec<String>), StoreError> {
        Journal::open_ahead(disk, name, party, 0)
    }

    /// The same for a party that can find its last so many records elsewhere if the power takes
    /// them: they are made durable together. Where the power has failed since it was last open,
    /// records among the last so many that are not whole are cut off, and what follows on them.
    pub fn open_ahead<P: Replay + ?Sized>(
        mut disk: D,
        name: &str,
        party: &mut P,
        ahead: u64,
    ) -> Result<(Self, Vec<String>), StoreError> {
        let session_file = format!("{name}.session");
        let at = || StoreError::at(&session_file);
        let mut lost = 0;
        if ahead > 0 {
            let session = disk.session().map(String::into_bytes);
            let known = disk.read(&session_file).map_err(at())?;
            if session.is_none() || known != session {
                lost = ahead;
            }
        }
        let snapshots = Snapshots::new(name);
        let newest = snapshots.numbers(&disk)?.last().copied().unwrap_or(0);
        let fresh = save(party);
        let (found, damaged) = snapshots.newest(&mut disk, |disk, found| {
            let file = snapshots.file(found.number);
            let Some((count, state)) = found.payload.split_first_chunk::<8>() else {
                return Err(StoreError::damaged(&file, 0, "it has no record count"));
            };
            restore(party, state)
                .map_err(|error| StoreError::Unfit { file, problem: error.to_string() })?;
            party.recall(disk)?;
            Ok((found.number, u64::from_le_bytes(*count), state.len() as u64))
        })?;
        let warnings = damaged.iter().map(StoreError::to_string).collect();
        let (mut generation, mut first, snapshot_length) = match found {
            Some(found) => found,
            None => {
                let _ = restore(party, &fresh); // what was saved here a moment ago
                party.recall(&mut disk)?;
                (0, 0, 0)
            }
        };
        if newest > generation + 1 {
            let missing = StoreError::Missing { file: snapshots.file(generation + 1) };
            return Err(damaged.into_iter().last().unwrap_or(missing));
        }
        loop {
            let file = log_file(name, generation);
            let may_lack = if generation == newest { lost } else { 0 };
            let (log, records) = Log::open_lacking(&mut disk, &file, first, may_lack)?;
            for (k, record) in records.iter().enumerate() {
                let number = first + k as u64;
                party.replay(record).map_err(|problem| StoreError::Unfit {
                    file: file.clone(),
                    problem: format!("record {number}: {problem}"),
                })?;
            }
            if generation == newest {
                if let (true, Some(session)) = (lost > 0, disk.session()) {
                    disk.replace(&session_file, session.as_bytes()).map_err(at())?;
                }
                return Ok((
                    Journal {
                        disk,
                        name: name.to_owned(),
                        snapshots,
                        generation,
                        log,
                        snapshot_length,
                        broken: false,
                        synced: true,
                        ahead,
                        waiting: 0,
                    },
                    warnings,
                ));
            }
            first = log.next();
            generation += 1;
        }
    }

    /// Leave records to the operating system: the party then survives its own end at any
    /// instruction, but not that of the machine. What a power cut takes is noticed (a damaged log,
    /// or [`consilience_core::protocol::Server::welcome`]), and not replaced.
    pub fn without_sync(self) -> Self {
        Journal { synced: false, ..self }
    }

    /// Write a record down, durable on return, or with those that follow it.
    pub fn commit(&mut self, record: &[u8]) -> Result<(), StoreError> {
        self.whole()?;
        self.broken = true;
        self.log.append(&mut self.disk, record)?;
        self.waiting += 1;
        if self.synced && self.waiting >= self.ahead.max(1) {
            self.log.sync(&mut self.disk)?;
            self.waiting = 0;
        }
        self.broken = false;
        Ok(())
    }

    /// Whether the log has grown so long that a snapshot is worth its while.
    pub(crate) fn is_long(&self) -> bool {
        let each = self.synced && self.ahead < 2;
        let least = if each { LEAST } else { LEAST_UNSYNCED };
        self.log.length() > least.max(GROWTH * self.snapshot_length)
    }

    /// Save the party and begin the log anew.
    pub fn checkpoint<P: Replay + ?Sized>(&mut self, party: &mut P) -> Result<(), StoreError> {
        self.whole()?;
        self.broken = true;
        party.file(&mut self.disk)?;
        if self.synced && self.waiting > 0 {
            self.log.sync(&mut self.disk)?; // for whoever falls back on the snapshot before
            self.waiting = 0;
        }
        let state = save(party);
        self.snapshot_length = state.len() as u64;
        let next = self.log.next();
        let payload = [&next.to_le_bytes()[..], &state].concat();
        self.snapshots.save(&mut self.disk, self.generation + 1, &payload)?;
        self.generation += 1;
        self.log = Log::open(&mut self.disk, &log_file(&self.name, self.generation), next)?.0;
        let names = self.disk.list().map_err(StoreError::at(&self.name))?;
        let oldest = log_file(&self.name, self.generation - 1);
        for file in names
            .iter()
            .filter(|file| file.starts_with(&format!("{}.log.", self.name)) && **file < oldest)
        {
            self.disk.remove(file).map_err(StoreError::at(file))?;
        }
        self.broken = false;
        Ok(())
    }

    /// Whether the disk has done all that was asked of it so far.
    pub fn whole(&self) -> Result<(), StoreError> {
        if !self.broken {
            return Ok(());
        }
        let error = std::io::Error::other(
            "the disk has failed before: what it holds must be read again first",
        );
        Err(StoreError::Io { file: self.name.clone(), error })
    }

    /// The disk that it writes to.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    pub(super) fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// The disk has failed, in the hands of whoever uses it beside this journal.
    pub(super) fn has_failed(&mut self) {
        self.broken = true;
    }

    /// Make all records durable that were left to the operating system.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.whole()?;
        self.broken = true;
        self.log.sync(&mut self.disk)?;
        (self.broken, self.waiting) = (false, 0);
        Ok(())
    }

    /// How many records were written in all.
    pub fn records(&self) -> u64 {
        self.log.next()
    }
}

fn log_file(name: &str, generation: u64) -> String {
    format!("{name}.log.{generation:012}")
}
