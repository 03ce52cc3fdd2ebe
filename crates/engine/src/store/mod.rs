//! Keep state so that it survives a power cut at any instruction.
//!
//! | | |
//! |---|---|
//! | [`Disk`] | what a disk can do; [`Folder`] does it, [`Simulated`] does it until the power fails |
//! | [`Log`] | an append-only file of records, each durable before the next is written |
//! | [`Snapshots`] | whole states, the last two of them |
//! | [`Extent`] | what is known of a file that only grows: draws, which no snapshot holds |
//! | [`Journal`] | a snapshot and the log of what came after it: a party's memory |
//! | [`RoundLog`] | the open round at the server, as it will be written |
//! | [`DurableServer`], [`DurableClient`] | the parties of the protocol, who write down what they say before they say it |
//!
//! **What is written down, and why that.** A client's answer is a function of its state, the order
//! and its private seed, so the seed (once) and the orders (each before its answer leaves) would be
//! enough to compute every answer again. The answers are logged beside the orders all the same:
//! computed on another kind of processor they could differ in the last bit, and a second answer
//! that differs, however little, is a second answer. The log is what makes it safe to be asked
//! twice. A reservation of rounds ahead ([`DurableClient::reserving`]) is cheaper, and keeps noise
//! from being used twice; but a client that lost the orders behind it can neither go on with the
//! chain nor tell a repeated order from a changed one, and refuses both. The server logs the
//! answers of a round before it opens the next, since an order for the next round tells clients
//! that they may forget the last. That is one sync a round on either side: where walks are long,
//! nothing; where rounds take microseconds, most of the time. [`DurableClient::without_sync`]
//! trades it away: a party that is killed still goes on as if nothing had happened, one that loses
//! its power is told so.
//!
//! A simulation needs none of this: what is lost is computed again. It takes snapshots now and
//! then.

mod client;
mod disk;
mod extent;
mod journal;
mod log;
mod purse;
mod reserve;
mod round_log;
mod server;
mod simulated;
mod snapshots;

pub use client::{DurableClient, Silence, private_seed};
pub(crate) use disk::sync_folder;
pub use disk::{Disk, Folder};
pub use extent::Extent;
pub use journal::{Journal, Replay};
pub use log::Log;
pub use purse::{Payment, Purse, PurseError};
pub use round_log::RoundLog;
pub use server::{DurableServer, ServedChain, ServerError};
pub use simulated::{Faults, Simulated};
pub use snapshots::{Found, Snapshots};

use thiserror::Error;

/// Why state cannot be kept or found again.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The disk does not do what is asked.
    #[error(
        "{file}: {error}. Free some space or mend the disk, and start again: what was written down \
         before is safe"
    )]
    Io {
        /// The file.
        file: String,
        /// Why not.
        error: std::io::Error,
    },
    /// Somebody else uses the folder.
    #[error("{0}")]
    InUse(String),
    /// A file is not as it was written.
    #[error(
        "{file} is damaged at byte {at}: {problem}. It was complete once, so this is no power cut: \
         restore it from a copy, or start the run anew"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Where.
        at: u64,
        /// What is wrong.
        problem: String,
    },
    /// A file that should be there is not.
    #[error("{file} is missing: restore it from a copy, or start the run anew")]
    Missing {
        /// The file.
        file: String,
    },
    /// A file holds the state of something else.
    #[error("{file} does not fit: {problem}")]
    Unfit {
        /// The file.
        file: String,
        /// Why not.
        problem: String,
    },
    /// A secret that others can read.
    #[error(
        "{file} can be read by others (mode {mode:o}): whoever has it can compute this client's \
         noise. Make a new one, or chmod 600 it if nobody has looked"
    )]
    Exposed {
        /// The file.
        file: String,
        /// Its permissions.
        mode: u32,
    },
}

impl StoreError {
    /// The same by its kind, for others than whose state it is: no file is named.
    pub fn told(&self) -> String {
        match self {
            StoreError::Io { error, .. } => format!("its state cannot be kept: {error}"),
            StoreError::InUse(_) => "another process of it uses its state".into(),
            StoreError::Damaged { .. } => "a file of its state is damaged".into(),
            StoreError::Missing { .. } => "a file of its state is missing".into(),
            StoreError::Unfit { .. } => "its state is that of something else".into(),
            StoreError::Exposed { .. } => "others can read the seed of its noise".into(),
        }
    }

    fn at(file: &str) -> impl FnOnce(std::io::Error) -> StoreError {
        let file = file.to_owned();
        move |error| StoreError::Io { file, error }
    }

    /// Why a folder could not be opened.
    pub fn opening(folder: &std::path::Path) -> impl FnOnce(std::io::Error) -> StoreError + use<> {
        let file = folder.display().to_string();
        move |error| match error.kind() {
            std::io::ErrorKind::WouldBlock => StoreError::InUse(error.to_string()),
            _ => StoreError::Io { file, error },
        }
    }

    fn damaged(file: &str, at: usize, problem: impl Into<String>) -> StoreError {
        StoreError::Damaged { file: file.to_owned(), at: at as u64, problem: problem.into() }
    }
}
