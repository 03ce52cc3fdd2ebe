//! Append records to a file, each durable before the next: after a power cut at most the last is
//! torn, and is cut off.
//!
//! ```text
//! record   length u32 | sequence u64 | crc32 of the payload u32
//!          | crc32 of these sixteen bytes u32 | payload | 0xED
//! ```
//!
//! All little-endian. A torn record is shorter than it says, or ends in zeros where the disk had
//! made room for what it did not get. Any other damage did not come from a power cut, and is
//! refused: cutting there would forget what others were told.

use super::{Disk, StoreError};

const HEADER: usize = 20;
/// What a record ends with: never zero, so that room that was never filled is seen.
const END: u8 = 0xED;
/// No record is longer: a length beyond it is damage.
const MOST: usize = 1 << 30;

/// An append-only log.
#[derive(Debug)]
pub struct Log {
    name: String,
    /// The number of the next record.
    next: u64,
    /// How long the file is.
    length: u64,
}

impl Log {
    /// Open a log whose first record has the number `first`, and read its records. A torn tail is
    /// cut off.
    pub fn open(
        disk: &mut dyn Disk,
        name: &str,
        first: u64,
    ) -> Result<(Log, Vec<Vec<u8>>), StoreError> {
        Log::open_lacking(disk, name, first, 0)
    }

    /// The same where a power cut may have taken any of the last so many records, in any order:
    /// what stands behind a record that is not whole is cut off with it.
    pub fn open_lacking(
        disk: &mut dyn Disk,
        name: &str,
        first: u64,
        lacking: u64,
    ) -> Result<(Log, Vec<Vec<u8>>), StoreError> {
        let bytes = disk.read(name).map_err(StoreError::at(name))?.unwrap_or_default();
        let (records, whole) = read(name, &bytes, first, lacking)?;
        if whole < bytes.len() {
            disk.cut(name, whole as u64).map_err(StoreError::at(name))?;
        }
        Ok((
            Log { name: name.to_owned(), next: first + records.len() as u64, length: whole as u64 },
            records,
        ))
    }

    /// Write a record down. It is durable on return; if that fails, nothing may be said that
    /// depends on it.
    pub fn commit(&mut self, disk: &mut dyn Disk, payload: &[u8]) -> Result<(), StoreError> {
        self.append(disk, payload)?;
        self.sync(disk)
    }

    /// Make durable what was appended.
    pub fn sync(&self, disk: &mut dyn Disk) -> Result<(), StoreError> {
        disk.sync(&self.name).map_err(StoreError::at(&self.name))
    }

    /// Hand a record to the operating system: it survives the end of this process, but not a power
    /// cut.
    pub fn append(&mut self, disk: &mut dyn Disk, payload: &[u8]) -> Result<(), StoreError> {
        if payload.len() > MOST {
            let error = std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                format!("a record of {} bytes is too long", payload.len()),
            );
            return Err(StoreError::Io { file: self.name.clone(), error });
        }
        let mut record = Vec::with_capacity(HEADER + payload.len() + 1);
        record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        record.extend_from_slice(&self.next.to_le_bytes());
        record.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        record.extend_from_slice(&crc32fast::hash(&record).to_le_bytes());
        record.extend_from_slice(payload);
        record.push(END);
        disk.append(&self.name, &record).map_err(StoreError::at(&self.name))?;
        self.next += 1;
        self.length += record.len() as u64;
        Ok(())
    }

    /// The number of the next record.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// How many bytes the log has.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// All whole records, and where the last of them ends.
fn read(
    name: &str,
    bytes: &[u8],
    first: u64,
    lacking: u64,
) -> Result<(Vec<Vec<u8>>, usize), StoreError> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let damaged = |problem: &str| Err(StoreError::damaged(name, at, problem));
        let expected = first + records.len() as u64;
        // A record that is not whole is torn if it is the last, and the disk had made room for what
        // it did not get.
        let torn = || {
            let last = rest.last() == Some(&0) && !another_follows(&rest[1..], expected);
            last || (lacking > 0 && !another_follows(&rest[1..], expected + lacking))
        };
        if rest.len() < HEADER {
            break; // torn
        }
        let word = |i: usize| u32::from_le_bytes([rest[i], rest[i + 1], rest[i + 2], rest[i + 3]]);
        if crc32fast::hash(&rest[..16]) != word(16) {
            if torn() {
                break;
            }
            return damaged("the header of a record is not what was written");
        }
        let length = word(0) as usize;
        let end = HEADER + length + 1;
        if length > MOST {
            return damaged("a record is longer than any can be");
        }
        let sequence = u64::from(word(4)) | u64::from(word(8)) << 32;
        if sequence != expected {
            return damaged(&format!(
                "record {sequence} stands where record {expected} should: another log's, or one is \
                 missing"
            ));
        }
        if rest.len() < end {
            break; // torn: the header is whole, and what it announces is not there
        }
        let payload = &rest[HEADER..HEADER + length];
        if rest[end - 1] != END || crc32fast::hash(payload) != word(12) {
            if torn() {
                break;
            }
            return damaged("a record is not what was written");
        }
        records.push(payload.to_vec());
        at += end;
    }
    Ok((records, at))
}

/// Whether the header of a later record stands anywhere in `bytes`.
fn another_follows(bytes: &[u8], after: u64) -> bool {
    bytes.windows(HEADER).any(|header| {
        let (body, checksum) = header.split_at(16);
        let sequence = body[4..12].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        sequence > after && crc32fast::hash(body).to_le_bytes() == checksum
    })
}
