//! Define what the server's side of one chain of exchanges must do, for whoever carries its
//! messages.

use std::time::Duration;

use consilience_core::protocol::{Exchange, Output, Refusal, Server};
use consilience_core::rng::ClientId;

use crate::status::Status;

/// The server's side of one chain of exchanges.
pub trait Party {
    /// Take in the answer of a site, which has evaluated so many gradients of single rows by now.
    fn handle(&mut self, from: ClientId, bytes: &[u8], rows: u64) -> Result<(), Refusal>;

    /// The next thing to do, if there is any before more answers come.
    fn poll(&mut self) -> Result<Option<Output>, Complaint>;

    /// Whether more exchanges are wanted.
    fn goes_on(&self) -> bool;

    /// Whether a site that has given so many answers can go on.
    fn welcome(&self, from: ClientId, answered: u64) -> Result<(), Refusal>;

    /// The order that a site has not answered yet.
    fn again(&self, to: ClientId) -> Option<Vec<u8>>;

    /// How long a round may take before it is closed without those who have not answered; `None`:
    /// as long as it takes.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// How many answers the open round awaits, and whose.
    fn awaits(&self) -> usize {
        0
    }

    /// Whose answers these are.
    fn awaited(&self) -> Vec<ClientId> {
        Vec::new()
    }

    /// Wait no longer in the open round, and say who is absent; `None`: it waits for everybody.
    fn close(&mut self) -> Option<Vec<ClientId>> {
        None
    }

    /// Say how all of them stand.
    fn measure(parties: &[Self], status: &Status)
    where
        Self: Sized,
    {
        let _ = (parties, status);
    }
}

/// Why a party gave up.
pub type Complaint = Box<dyn std::error::Error + Send + Sync>;

impl<E: Exchange + ?Sized> Party for Server<&mut E> {
    fn handle(&mut self, from: ClientId, bytes: &[u8], _rows: u64) -> Result<(), Refusal> {
        Server::handle(self, from, bytes)
    }

    fn poll(&mut self) -> Result<Option<Output>, Complaint> {
        Ok(Server::poll(self))
    }

    fn goes_on(&self) -> bool {
        true // until it is done
    }

    fn welcome(&self, from: ClientId, answered: u64) -> Result<(), Refusal> {
        Server::welcome(self, from, answered)
    }

    fn again(&self, to: ClientId) -> Option<Vec<u8>> {
        Server::again(self, to)
    }
}
