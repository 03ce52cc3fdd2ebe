//! Write what a client sends to disk before it is sent, so that the client survives a crash.

use consilience_core::protocol::{Answered, Client, Device, OrderRefusal};
use consilience_core::rng::Seed;
use thiserror::Error;

use super::journal::{Journal, Replay};
use super::reserve::Reservation;
use super::round_log::split;
use super::{Disk, StoreError};

/// Why a durable client gave no answer.
#[derive(Debug, Error)]
pub enum Silence {
    /// The order is refused; nothing changed.
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    /// The answer could not be written down, so it was not given. Nothing more is, before the state
    /// is read again from disk.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A client whose answers are on disk before they leave.
#[derive(Debug)]
pub struct DurableClient<D, V> {
    client: Client<V>,
    journal: Journal<D>,
    answer: Vec<u8>,
    record: Vec<u8>,
    /// Which rounds may be answered, where answers are not synced one by one.
    reservation: Option<Reservation>,
}

impl<D: Disk, V: Device> DurableClient<D, V> {
    /// Bring a fresh client to where it was. The texts say what was damaged and could be done
    /// without.
    pub fn open(disk: D, mut client: Client<V>) -> Result<(Self, Vec<String>), StoreError> {
        let (journal, warnings) = Journal::open(disk, "client", &mut client)?;
        Ok((
            DurableClient {
                client,
                journal,
                answer: Vec::new(),
                record: Vec::new(),
                reservation: None,
            },
            warnings,
        ))
    }

    /// Bring a fresh client to where it was, and let it reserve so many rounds ahead instead of
    /// syncing every answer (the module `reserve` says what that is worth).
    pub fn reserving(
        disk: D,
        client: Client<V>,
        ahead: u64,
    ) -> Result<(Self, Vec<String>), StoreError> {
        let reservation = Reservation::open(&disk, ahead)?;
        let (mut opened, warnings) = DurableClient::open(disk, client)?;
        opened.client.spend(reservation.floor());
        opened.reservation = Some(reservation);
        Ok((opened.without_sync(), warnings))
    }

    /// Make all answers durable, and give back what was reserved and not used: for a client that is
    /// stopped in good order.
    pub fn rest(&mut self) -> Result<(), StoreError> {
        self.journal.sync()?;
        let unused = self.client.unused();
        match &mut self.reservation {
            None => Ok(()),
            Some(reservation) => reservation
                .release(self.journal.disk_mut(), unused)
                .inspect_err(|_| self.journal.has_failed()),
        }
    }

    /// The same client that survives its own end, but not that of the machine
    /// ([`Journal::without_sync`]): a sync costs up to milliseconds, a thousand times an answer.
    pub fn without_sync(self) -> Self {
        DurableClient { journal: self.journal.without_sync(), ..self }
    }

    /// Do what an order asks; append the answer to `out` once it is durable.
    pub fn handle(&mut self, order: &[u8], out: &mut Vec<u8>) -> Result<Answered, Silence> {
        self.answer.clear();
        let answered = self.client.handle(order, &mut self.answer)?;
        if answered == Answered::Anew {
            self.journal.whole()?;
            if let Some(reservation) = &mut self.reservation {
                let unused = self.client.unused();
                reservation
                    .cover(self.journal.disk_mut(), unused)
                    .inspect_err(|_| self.journal.has_failed())?;
            }
            self.record.clear();
            self.record.extend_from_slice(&(order.len() as u32).to_le_bytes());
            self.record.extend_from_slice(order);
            self.record.extend_from_slice(&self.answer);
            self.journal.commit(&self.record)?;
            if self.journal.is_long() {
                self.journal.checkpoint(&mut self.client)?;
            }
        } else {
            self.journal.whole()?;
        }
        out.extend_from_slice(&self.answer);
        Ok(answered)
    }

    /// The client.
    pub fn client(&self) -> &Client<V> {
        &self.client
    }

    /// Save the state now, and begin the log anew.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.journal.checkpoint(&mut self.client)
    }
}

impl<V: Device> Replay for Client<V> {
    fn replay(&mut self, record: &[u8]) -> Result<(), String> {
        let Some((order, answer)) = split(record) else { return Err("it is too short".into()) };
        let mut again = Vec::new();
        match self.handle(order, &mut again) {
            Ok(Answered::Anew) if again == answer => Ok(()),
            Ok(Answered::Anew) => {
                Err("the answer comes out differently than it was given: use the data, the config \
                    and the kind of processor that it was given with"
                    .into())
            }
            Ok(Answered::Again) => Err("it stands there twice".into()),
            Err(refusal) => Err(refusal.to_string()),
        }
    }
}

/// The seed of a client's own noise: made from the operating system's entropy where there is none,
/// and durable before anybody uses it.
pub fn private_seed(
    disk: &mut dyn Disk,
    entropy: impl FnOnce(&mut [u8; 32]) -> std::io::Result<()>,
) -> Result<Seed, StoreError> {
    const FILE: &str = "private.seed";
    if let Some(bytes) = disk.read(FILE).map_err(StoreError::at(FILE))? {
        let mode = disk.mode(FILE).map_err(StoreError::at(FILE))?.unwrap_or(0o600);
        if mode & 0o077 != 0 {
            return Err(StoreError::Exposed { file: FILE.into(), mode });
        }
        return match bytes.split_first_chunk::<32>() {
            Some((seed, checksum)) if checksum == crc32fast::hash(seed).to_le_bytes() => {
                Ok(Seed::from_bytes(*seed))
            }
            _ => Err(StoreError::damaged(FILE, 0, "its checksum is not that of its contents")),
        };
    }
    if !disk.list().map_err(StoreError::at(FILE))?.is_empty() {
        // a new seed would be new noise for old rounds
        return Err(StoreError::Missing { file: FILE.into() });
    }
    let mut seed = [0; 32];
    entropy(&mut seed).map_err(StoreError::at(FILE))?;
    disk.replace(FILE, &[&seed[..], &crc32fast::hash(&seed).to_le_bytes()].concat())
        .map_err(StoreError::at(FILE))?;
    Ok(Seed::from_bytes(seed))
}
