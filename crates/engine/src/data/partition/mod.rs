//! Deal rows to clients: one scheme a file, each a pure function of the data, its settings and a
//! seed.
//!
//! Every row goes to exactly one client and no client is left without rows; where that cannot be,
//! the error says why.

pub mod contiguous;
pub mod dirichlet;
pub mod dominant;
mod gamma;
mod generator;
pub mod iid;
pub mod natural;
pub mod power_law;
mod scheme;
pub mod synthetic;
pub mod toy_fa_ld;
pub mod toy_fald;
pub mod toy_qlsd;
pub mod two_clients;

use consilience_core::rng::{Purpose, SERVER, Seed, Stream};
use thiserror::Error;

use super::Dataset;
pub use gamma::Gammas;
pub use generator::{GENERATORS, Generator, GeneratorError};
pub use scheme::{SCHEMES, Scheme, SchemeError};

/// Which rows each client has, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The clients' names.
    pub names: Vec<String>,
    /// The rows of each.
    pub rows: Vec<Vec<u32>>,
}

/// Why rows cannot be dealt.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PartitionError {
    /// No clients, or more than there are rows.
    #[error("{rows} rows cannot be dealt to {clients} clients: ask for 1 to {rows}")]
    Clients {
        /// How many rows there are.
        rows: usize,
        /// How many clients were asked for.
        clients: usize,
    },
    /// A scheme that must be told how many clients there are.
    #[error("the scheme must know how many clients there are: say so, e.g. 10")]
    HowMany,
    /// Labels that are numbers, where the scheme needs classes.
    #[error(
        "the scheme deals rows by label, and this data has no classes: use iid, contiguous or \
         power-law"
    )]
    NoClasses,
    /// Data that has no groups of its own.
    #[error(
        "the data has no groups of its own: name a column, as in natural(sex), or use another \
         scheme"
    )]
    NoGroups,
    /// A column that does not exist.
    #[error("there is no column `{column}`: {hint}there are {known}")]
    NoColumn {
        /// The column.
        column: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The first columns that there are.
        known: String,
    },
    /// Another number of groups than of clients.
    #[error(
        "there are {groups} groups and {clients} clients: ask for {groups} clients, or leave their \
         number out"
    )]
    Groups {
        /// How many groups there are.
        groups: usize,
        /// How many clients were asked for.
        clients: usize,
    },
    /// A column that would make a client of almost every row.
    #[error(
        "column `{column}` has more than {most} values: a group is a client, so use a column of \
         few values"
    )]
    TooManyGroups {
        /// The column.
        column: String,
        /// The most groups allowed.
        most: usize,
    },
    /// A client without rows.
    #[error("client {client} would have no rows")]
    Empty {
        /// The client, from 1.
        client: usize,
    },
    /// Fewer rows of a label than the scheme needs.
    #[error(
        "class {class} has {found} rows, and the clients that it dominates need {needed}: use a \
         smaller share, or more balanced data"
    )]
    Shortage {
        /// The class.
        class: usize,
        /// How many rows it has.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
}

impl Assignment {
    /// An assignment of `total` rows, checked: every row once, no client empty.
    fn new(
        names: Option<Vec<String>>,
        mut rows: Vec<Vec<u32>>,
        total: usize,
    ) -> Result<Self, PartitionError> {
        if let Some(client) = rows.iter().position(Vec::is_empty) {
            return Err(PartitionError::Empty { client: client + 1 });
        }
        for client in &mut rows {
            client.sort_unstable();
        }
        debug_assert!(is_partition(&rows, total), "a row is missing or dealt twice");
        let names =
            names.unwrap_or_else(|| (1..=rows.len()).map(|k| format!("client {k}")).collect());
        Ok(Assignment { names, rows })
    }

    /// How many rows of each class each client has: one list a client.
    pub fn counts(&self, data: &Dataset) -> Vec<Vec<usize>> {
        let classes = data.classes.as_ref().map_or(0, Vec::len);
        let count = |rows: &Vec<u32>| {
            let mut counts = vec![0; classes.max(1)];
            for row in rows {
                counts[if classes == 0 { 0 } else { data.labels[*row as usize] as usize }] += 1;
            }
            counts
        };
        self.rows.iter().map(count).collect()
    }
}

/// Whether every row of `0..total` is there exactly once.
fn is_partition(rows: &[Vec<u32>], total: usize) -> bool {
    let mut all: Vec<u32> = rows.iter().flatten().copied().collect();
    all.sort_unstable();
    all.len() == total && all.iter().enumerate().all(|(k, row)| k as u32 == *row)
}

/// Deal the rows of a data set.
pub fn split(
    data: &Dataset,
    scheme: &Scheme,
    clients: Option<usize>,
    seed: Seed,
) -> Result<Assignment, PartitionError> {
    if let Scheme::Natural(column) = scheme {
        return natural::assign(data, column.as_deref(), clients);
    }
    let clients = clients.ok_or(PartitionError::HowMany)?;
    let rows = data.rows();
    check_clients(rows, clients)?;
    let labels = || data.class_labels().ok_or(PartitionError::NoClasses);
    match scheme {
        Scheme::Natural(_) | Scheme::Contiguous => contiguous::assign(rows, clients),
        Scheme::Iid => iid::assign(rows, clients, seed),
        Scheme::PowerLaw(exponent) => power_law::assign(rows, clients, *exponent, seed),
        Scheme::Dirichlet(concentration) => {
            dirichlet::assign(&labels()?, clients, *concentration, seed)
        }
        Scheme::TwoClients(share) => two_clients::assign(&labels()?, clients, *share, seed),
        Scheme::Dominant(share) => dominant::assign(&labels()?, clients, *share, seed),
    }
}

/// A uniform subset of the rows, in the file's order.
pub fn subset(rows: usize, keep: usize, seed: Seed) -> Vec<u32> {
    let mut all: Vec<u32> = (0..rows as u32).collect();
    shuffle(&mut all, &mut stream(seed, SUBSET));
    all.truncate(keep);
    all.sort_unstable();
    all
}

/// A uniform set of `held` rows to test on, in the file's order: another one for each `place`.
pub fn held_out(rows: usize, held: usize, seed: Seed, place: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..rows as u32).collect();
    shuffle(&mut all, &mut stream(seed, HELD_OUT + place));
    all.truncate(held);
    all.sort_unstable();
    all
}

/// The address of subsets, apart from those of the schemes.
const SUBSET: u64 = 1 << 40;
/// The address of rows to test on, apart from those.
const HELD_OUT: u64 = 1 << 41;

fn stream(seed: Seed, place: u64) -> Stream {
    seed.stream(Purpose::Data, SERVER, place)
}

fn check_clients(rows: usize, clients: usize) -> Result<(), PartitionError> {
    if clients == 0 || clients > rows {
        Err(PartitionError::Clients { rows, clients })
    } else {
        Ok(())
    }
}

/// Put a list in uniform random order (Fisher and Yates).
fn shuffle(list: &mut [u32], stream: &mut Stream) {
    for k in (1..list.len()).rev() {
        list.swap(k, stream.below(k as u32 + 1) as usize);
    }
}

/// The rows of each label, each in random order.
fn by_label(labels: &[u32], seed: Seed) -> Vec<Vec<u32>> {
    let classes = labels.iter().max().map_or(0, |most| *most as usize + 1);
    let mut rows = vec![Vec::new(); classes];
    for (row, label) in labels.iter().enumerate() {
        rows[*label as usize].push(row as u32);
    }
    for (label, rows) in rows.iter_mut().enumerate() {
        shuffle(rows, &mut stream(seed, 1 + label as u64));
    }
    rows
}

/// Give every client without rows one of the client that has most.
fn top_up(rows: &mut [Vec<u32>]) {
    while let Some(empty) = rows.iter().position(Vec::is_empty) {
        let Some(richest) =
            (0..rows.len()).rev().max_by_key(|k| rows[*k].len()).filter(|k| rows[*k].len() > 1)
        else {
            return;
        };
        let Some(row) = rows[richest].pop() else { return };
        rows[empty].push(row);
    }
}

#[cfg(test)]
mod tests;
