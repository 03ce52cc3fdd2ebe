//! Send a client's vectors: compressed, or rounded to what the wire carries.

use super::Keys;
use crate::compress::{Channel, Precision};
use crate::protocol::{Kind, Payload, Reply, Sender};
use crate::rng::{ClientId, Purpose};

/// Where a client's vectors leave it.
#[derive(Debug)]
pub(super) struct Outlet {
    id: ClientId,
    precision: Precision,
    sender: Option<Sender>,
    keys: Keys,
    /// Whether the compression's random numbers are public: both sides need them then.
    shared_stream: bool,
}

impl Outlet {
    pub(super) fn new(id: ClientId, precision: Precision, channel: Option<Channel>, keys: Keys) -> Self {
        let shared_stream = channel.is_some_and(|c| c.compressor().needs_shared_stream());
        Outlet { id, precision, sender: channel.map(Sender::new), keys, shared_stream }
    }

    /// Send `vector`, compressed where there is a compressor; uncompressed it is rounded in place.
    pub(super) fn send<'a>(&'a mut self, kind: Kind, vector: &'a mut [f64], round: u64) -> Reply<'a> {
        let seed = if self.shared_stream { self.keys.public } else { self.keys.private };
        let payload = match &mut self.sender {
            Some(sender) => sender.send(vector, &mut seed.stream(Purpose::Compress, self.id, round)),
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
