//! Send a client's vectors: compressed, or rounded to what the wire carries.

use super::Keys;
use crate::compress::{Channel, Precision};
use crate::protocol::{Kind, Payload, Reply, Sender};
use crate::rng::{ClientId, Purpose, Rounds};

/// Where a client's vectors leave it.
#[derive(Debug)]
pub(super) struct Outlet {
    precision: Precision,
    /// The compressor, where there is one, and its random numbers.
    sender: Option<(Sender, Rounds)>,
}

impl Outlet {
    pub(super) fn new(id: ClientId, precision: Precision, channel: Option<Channel>, keys: Keys) -> Self {
        let sender = |channel: Channel| {
            // Both sides need the random numbers of some.
            let seed = if channel.compressor().needs_shared_stream() { keys.public } else { keys.private };
            (Sender::new(channel), Rounds::new(seed, Purpose::Compress, id))
        };
        Outlet { precision, sender: channel.map(sender) }
    }

    /// Send `vector`, compressed where there is a compressor; uncompressed it is rounded in place.
    pub(super) fn send<'a>(&'a mut self, kind: Kind, vector: &'a mut [f64], round: u64) -> Reply<'a> {
        let payload = match &mut self.sender {
            Some((sender, streams)) => {
                let stream = if sender.draws() { streams.stream(round) } else { streams.idle() };
                sender.send(vector, stream)
            }
            None => {
                self.precision.round(vector);
                Payload::Plain(vector, self.precision)
            }
        };
        Reply { round, kind, payload }
    }

    /// Send `vector` uncompressed; it is rounded in place.
    pub(super) fn send_plain<'a>(&self, kind: Kind, vector: &'a mut [f64], round: u64) -> Reply<'a> {
        self.precision.round(vector);
        Reply { round, kind, payload: Payload::Plain(vector, self.precision) }
    }
}
