//! Take down a round at the server: who answered what, and whether it was closed without some.

use consilience_core::protocol::{Exchange, Refusal, Server};
use consilience_core::rng::ClientId;

/// What the record of a round that was closed without some answers ends with, where a client's
/// number would be.
const CLOSED: u32 = u32::MAX;

/// The open round, as it will be written.
#[derive(Clone, Debug, Default)]
pub struct RoundLog {
    round: Vec<u8>,
    closed: bool,
}

impl RoundLog {
    /// Have the server take in an answer, and take it down with a number that came beside it.
    pub fn handle<E: Exchange>(
        &mut self,
        server: &mut Server<E>,
        from: ClientId,
        bytes: &[u8],
        aside: u64,
    ) -> Result<(), Refusal> {
        server.handle(from, bytes)?;
        self.round.extend_from_slice(&from.0.to_le_bytes());
        self.round.extend_from_slice(&aside.to_le_bytes());
        self.round.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.round.extend_from_slice(bytes);
        Ok(())
    }

    /// Have the server close the round ([`Server::close`]), and take it down.
    pub fn close<E: Exchange>(&mut self, server: &mut Server<E>) -> Option<Vec<ClientId>> {
        let absent = server.close()?;
        self.closed = true;
        Some(absent)
    }

    /// The record of the round, once nobody's answer is awaited and if there is anything to write.
    /// It must be durable before the next round is opened, and then [`RoundLog::clear`]ed.
    pub fn record<E: Exchange>(&self, server: &Server<E>) -> Option<Vec<u8>> {
        let complete = !self.is_empty() && server.outstanding().next().is_none();
        let end = if self.closed { &CLOSED.to_le_bytes()[..] } else { &[] };
        complete.then(|| [&self.round, end].concat())
    }

    /// Whether nothing was taken down.
    pub fn is_empty(&self) -> bool {
        self.round.is_empty() && !self.closed
    }

    /// Begin the next round.
    pub fn clear(&mut self) {
        self.round.clear();
        self.closed = false;
    }

    /// Have a server that waits for answers take in those of a record; `answered` is told of each,
    /// with the number beside it.
    pub fn replay<E: Exchange>(
        server: &mut Server<E>,
        record: &[u8],
        mut answered: impl FnMut(ClientId, u64),
    ) -> Result<(), String> {
        let mut rest = record;
        while let Some((from, more)) = rest.split_first_chunk::<4>() {
            let from = ClientId(u32::from_le_bytes(*from));
            if from.0 == CLOSED && more.is_empty() {
                server.close();
                rest = more;
                break;
            }
            let Some((aside, (bytes, more))) =
                more.split_first_chunk::<8>().and_then(|(aside, more)| Some((aside, split(more)?)))
            else {
                return Err("it is too short".into());
            };
            server.handle(from, bytes).map_err(|refusal| refusal.to_string())?;
            answered(from, u64::from_le_bytes(*aside));
            rest = more;
        }
        if !rest.is_empty() || server.outstanding().next().is_some() {
            Err("it lacks an answer".into())
        } else {
            Ok(())
        }
    }
}

/// A length and what it counts, and the rest.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}
