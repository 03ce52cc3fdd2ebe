//! Keep the last two snapshots of something: the newest, and one to fall back on.
//!
//! ```text
//! snapshot   "CSNP" | number u64 | length u64 | payload | crc32 of all that u32
//! ```

use super::{Disk, StoreError};

const MAGIC: &[u8; 4] = b"CSNP";
const AROUND: usize = 4 + 8 + 8 + 4;

/// Snapshots under one name, numbered.
#[derive(Clone, Debug)]
pub struct Snapshots {
    prefix: String,
}

/// A snapshot that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub number: u64,
    /// What was saved.
    pub payload: Vec<u8>,
}

impl Snapshots {
    /// The snapshots whose files start with this name.
    pub fn new(prefix: &str) -> Self {
        Snapshots { prefix: prefix.to_owned() }
    }

    /// The file of a snapshot.
    pub fn file(&self, number: u64) -> String {
        format!("{}.{number:012}", self.prefix)
    }

    /// Save a snapshot, durable on return. Only then are those before the last one removed.
    pub fn save(&self, disk: &mut dyn Disk, number: u64, payload: &[u8]) -> Result<(), StoreError> {
        let file = self.file(number);
        let mut bytes = Vec::with_capacity(payload.len() + AROUND);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        disk.replace(&file, &bytes).map_err(StoreError::at(&file))?;
        let all = self.numbers(disk)?;
        for old in all.iter().rev().skip(2) {
            let file = self.file(*old);
            disk.remove(&file).map_err(StoreError::at(&file))?;
        }
        Ok(())
    }

    /// The numbers of the snapshots that are there, ascending.
    pub fn numbers(&self, disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
        let names = disk.list().map_err(StoreError::at(&self.prefix))?;
        let number =
            |name: &String| name.strip_prefix(&self.prefix)?.strip_prefix('.')?.parse::<u64>().ok();
        Ok(names.iter().filter_map(number).collect())
    }

    /// One snapshot.
    pub fn load(&self, disk: &dyn Disk, number: u64) -> Result<Vec<u8>, StoreError> {
        let file = self.file(number);
        let Some(bytes) = disk.read(&file).map_err(StoreError::at(&file))? else {
            return Err(StoreError::Missing { file });
        };
        let damaged = |problem: &str| Err(StoreError::damaged(&file, 0, problem));
        if bytes.len() < AROUND {
            return damaged("it is too short for a snapshot");
        }
        let (body, checksum) = bytes.split_at(bytes.len() - 4);
        if crc32fast::hash(body).to_le_bytes() != checksum {
            return damaged("its checksum is not that of its contents");
        }
        let word =
            |at: usize| body[at..at + 8].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        if &body[..4] != MAGIC || word(4) != number || word(12) != (bytes.len() - AROUND) as u64 {
            return damaged("it is another snapshot than its name says");
        }
        Ok(body[20..].to_vec())
    }

    /// The newest snapshot that is whole and that `take` can use, and what was wrong with those
    /// that are newer. `None` if there is no such.
    pub fn newest<T>(
        &self,
        disk: &mut dyn Disk,
        mut take: impl FnMut(&mut dyn Disk, Found) -> Result<T, StoreError>,
    ) -> Result<(Option<T>, Vec<StoreError>), StoreError> {
        let mut damaged = Vec::new();
        for number in self.numbers(disk)?.into_iter().rev() {
            let found = self.load(disk, number).map(|payload| Found { number, payload });
            match found.and_then(|found| take(disk, found)) {
                Ok(taken) => return Ok((Some(taken), damaged)),
                Err(error @ StoreError::Damaged { .. }) => damaged.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok((None, damaged))
    }
}
