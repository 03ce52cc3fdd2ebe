//! Append numbers to a file whose length and checksum stand elsewhere: what is known of it is never
//! written again.

use consilience_core::snapshot::{SnapshotError, State, Visit};

use super::{Disk, StoreError};

/// How many numbers are written or read at once.
const AT_ONCE: usize = 1 << 15;
/// The bytes of a number.
const WIDTH: usize = size_of::<f64>();

/// How much of a file is known, and the checksum of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes.
    pub length: u64,
    /// Their CRC-32.
    pub checksum: u32,
}

impl Extent {
    /// Count bytes that were appended.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut hash = crc32fast::Hasher::new_with_initial_len(self.checksum, self.length);
        hash.update(bytes);
        (self.checksum, self.length) = (hash.finalize(), self.length + bytes.len() as u64);
    }

    /// Of all the numbers that a file shall hold, append those that it lacks: durable on return.
    pub fn append(
        &mut self,
        disk: &mut dyn Disk,
        name: &str,
        all: &[f64],
    ) -> Result<(), StoreError> {
        let lacking = all.get(self.length as usize / WIDTH..).unwrap_or_default();
        for part in lacking.chunks(AT_ONCE) {
            let bytes: Vec<u8> = part.iter().flat_map(|x| x.to_le_bytes()).collect();
            disk.append(name, &bytes).map_err(StoreError::at(name))?;
            self.add(&bytes);
        }
        if lacking.is_empty() { Ok(()) } else { disk.sync(name).map_err(StoreError::at(name)) }
    }

    /// The numbers that are known to be in a file. What stands behind them was written for a
    /// snapshot that never came about, and is cut off.
    pub fn read(&self, disk: &mut dyn Disk, name: &str) -> Result<Vec<f64>, StoreError> {
        let mut numbers = Vec::with_capacity(self.length as usize / WIDTH);
        let mut found = Extent::default();
        while found.length < self.length {
            let most = (AT_ONCE * WIDTH).min((self.length - found.length) as usize);
            let bytes = disk.part(name, found.length, most).map_err(StoreError::at(name))?;
            if bytes.len() < most {
                let end = found.length as usize + bytes.len();
                return Err(StoreError::damaged(name, end, "it ends there, and was longer"));
            }
            found.add(&bytes);
            numbers.extend(bytes.as_chunks::<WIDTH>().0.iter().map(|x| f64::from_le_bytes(*x)));
        }
        if found != *self {
            return Err(StoreError::damaged(name, 0, "its checksum is not that of its contents"));
        }
        if !disk.part(name, self.length, 1).map_err(StoreError::at(name))?.is_empty() {
            disk.cut(name, self.length).map_err(StoreError::at(name))?;
        }
        Ok(numbers)
    }
}

impl State for Extent {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.number("the length of a file", &mut self.length)?;
        let mut checksum = u64::from(self.checksum);
        visit.number("the checksum of a file", &mut checksum)?;
        self.checksum = checksum as u32;
        Ok(())
    }
}
