//! Simulate a disk that loses power: what was not synced is torn, kept or gone, as a seed decides.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard};

use consilience_core::rng::{Purpose, SERVER, Seed, Stream};

use super::Disk;

/// What can go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// The most bytes that fit.
    pub capacity: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Faults { capacity: usize::MAX }
    }
}

/// A disk in memory. Clones share it: the one who crashes drops its clone, and whoever starts again
/// takes another.
#[derive(Clone, Debug)]
pub struct Simulated(Arc<Mutex<Platter>>);

#[derive(Debug)]
struct Platter {
    files: BTreeMap<String, Contents>,
    /// Files that were removed, but perhaps not for good.
    removed: BTreeMap<String, Vec<u8>>,
    dice: Dice,
    faults: Faults,
    /// How many steps are left before the power fails; `None`: it stays.
    fuse: Option<u64>,
    dark: bool,
    steps: u64,
    /// How often the power has failed, and how many files that left with a part of what was
    /// written last.
    cuts: u64,
    torn: u64,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    now: Vec<u8>,
    /// How much of it is durable.
    synced: usize,
    /// Whether its name is.
    named: bool,
}

struct Dice(Stream);

impl std::fmt::Debug for Dice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dice")
    }
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        if n < 2 { 0 } else { self.0.below(n.min(u32::MAX as usize) as u32) as usize }
    }

    fn coin(&mut self) -> bool {
        self.0.below(2) == 0
    }
}

impl Simulated {
    /// An empty disk whose misfortunes follow from a seed.
    pub fn new(seed: u64, faults: Faults) -> Self {
        let dice = Dice(Seed::new(seed).stream(Purpose::Data, SERVER, 0));
        Simulated(Arc::new(Mutex::new(Platter {
            files: BTreeMap::new(),
            removed: BTreeMap::new(),
            dice,
            faults,
            fuse: None,
            dark: false,
            steps: 0,
            cuts: 0,
            torn: 0,
        })))
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Let the power fail after so many more steps (a write has several).
    pub fn fail_after(&self, steps: u64) {
        self.platter().fuse = Some(steps);
    }

    /// Whether the power has failed.
    pub fn is_dark(&self) -> bool {
        self.platter().dark
    }

    /// Cut the power now, and bring it back: what was not synced is torn, kept or gone.
    pub fn power_cut(&self) {
        self.platter().lose_power();
        let mut platter = self.platter();
        (platter.dark, platter.fuse) = (false, None);
    }

    /// Flip one bit of a file.
    pub fn flip(&self, name: &str, bit: usize) {
        if let Some(file) = self.platter().files.get_mut(name)
            && let Some(byte) = file.now.get_mut(bit / 8)
        {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// How many steps were done so far: a power cut can come before each of them.
    pub fn steps(&self) -> u64 {
        self.platter().steps
    }

    /// How many files a power cut has left with a part of what was written last.
    pub fn torn(&self) -> u64 {
        self.platter().torn
    }

    /// A disk with the same contents, and a life of its own.
    pub fn copy(&self, seed: u64) -> Simulated {
        let copy = Simulated::new(seed, self.platter().faults);
        copy.platter().files = self.platter().files.clone();
        copy.platter().cuts = self.platter().cuts;
        copy
    }
}

impl Platter {
    /// One step: the moment before it the power may fail.
    fn step(&mut self) -> Result<()> {
        if self.dark {
            return Err(Error::new(ErrorKind::BrokenPipe, "the power is off"));
        }
        self.steps += 1;
        match &mut self.fuse {
            Some(0) => {
                self.lose_power();
                Err(Error::new(ErrorKind::BrokenPipe, "the power is off"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn lose_power(&mut self) {
        self.dark = true;
        self.cuts += 1;
        for (name, bytes) in std::mem::take(&mut self.removed) {
            if self.dice.coin() && !self.files.contains_key(&name) {
                self.files.insert(name, Contents { synced: bytes.len(), now: bytes, named: true });
            }
        }
        let names: Vec<String> = self.files.keys().cloned().collect();
        for name in names {
            let Some(mut file) = self.files.remove(&name) else { continue };
            if !file.named && self.dice.coin() {
                continue; // the name never reached the disk
            }
            let unsynced = file.now.len() - file.synced;
            match self.dice.below(4) {
                0 => file.now.truncate(file.synced),
                1 => {}
                how => {
                    let part = self.dice.below(unsynced + 1);
                    self.torn += u64::from(0 < part && part < unsynced);
                    if how == 2 {
                        file.now.truncate(file.synced + part);
                    } else {
                        // Room was made for all of it, and filled in part.
                        file.now[file.synced + part..].fill(0);
                    }
                }
            }
            file.synced = file.now.len();
            file.named = true;
            self.files.insert(name, file);
        }
    }

    fn used(&self) -> usize {
        self.files.values().map(|f| f.now.len()).sum()
    }
}

impl Disk for Simulated {
    fn session(&self) -> Option<String> {
        Some(self.platter().cuts.to_string())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut platter = self.platter();
        platter.step()?;
        let room = platter.faults.capacity.saturating_sub(platter.used());
        let fits = bytes.len().min(room);
        platter.files.entry(name.to_owned()).or_default().now.extend_from_slice(&bytes[..fits]);
        platter.step()?;
        if fits < bytes.len() { Err(Error::from(ErrorKind::StorageFull)) } else { Ok(()) }
    }

    fn sync(&mut self, name: &str) -> Result<()> {
        let mut platter = self.platter();
        platter.step()?;
        if let Some(file) = platter.files.get_mut(name) {
            (file.synced, file.named) = (file.now.len(), true);
        }
        platter.step()
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let temporary = format!("{name}.tmp");
        self.platter().files.remove(&temporary);
        self.append(&temporary, bytes)?;
        self.sync(&temporary)?;
        let mut platter = self.platter();
        platter.step()?;
        // Until the folder is synced, the new name may be there or not.
        if platter.fuse == Some(0) && platter.dice.coin() {
            return platter.step();
        }
        if let Some(file) = platter.files.remove(&temporary) {
            platter.removed.remove(name);
            platter.files.insert(name.to_owned(), file);
        }
        platter.step()
    }

    fn cut(&mut self, name: &str, length: u64) -> Result<()> {
        let mut platter = self.platter();
        platter.step()?;
        if let Some(file) = platter.files.get_mut(name) {
            file.now.truncate(length as usize);
            (file.synced, file.named) = (file.now.len(), true);
        }
        platter.step()
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let platter = self.platter();
        if platter.dark {
            return Err(Error::new(ErrorKind::BrokenPipe, "the power is off"));
        }
        Ok(platter.files.get(name).map(|f| f.now.clone()))
    }

    fn part(&self, name: &str, from: u64, most: usize) -> Result<Vec<u8>> {
        let platter = self.platter();
        if platter.dark {
            return Err(Error::new(ErrorKind::BrokenPipe, "the power is off"));
        }
        let all = platter.files.get(name).map_or(&[][..], |f| &f.now[..]);
        let rest = all.get(from as usize..).unwrap_or_default();
        Ok(rest[..most.min(rest.len())].to_vec())
    }

    fn list(&self) -> Result<Vec<String>> {
        let platter = self.platter();
        if platter.dark {
            return Err(Error::new(ErrorKind::BrokenPipe, "the power is off"));
        }
        Ok(platter.files.keys().filter(|name| !name.ends_with(".tmp")).cloned().collect())
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        let mut platter = self.platter();
        platter.step()?;
        if let Some(file) = platter.files.remove(name) {
            platter.removed.insert(name.to_owned(), file.now);
        }
        platter.step()
    }
}
