//! Send a client's vectors: compressed, or rounded to what the wire carries.

use super::Keys;
use crate::compress::{Channel, Precision};
use crate::protocol::{Kind, Packed, Payload, Reply};
use crate::rng::{ClientId, Purpose, Rounds};

/// Where a client's vectors leave it.
#[derive(Debug)]
pub(super) struct Encoder {
    precision: Precision,
    /// The channel, where vectors are compressed, and its random numbers.
    channel: Option<(Channel, Rounds)>,
}

impl Encoder {
    pub(super) fn new(
        id: ClientId,
        precision: Precision,
        channel: Option<Channel>,
        keys: Keys,
    ) -> Self {
        let with_rounds = |channel: Channel| {
            // Both sides need the random numbers of some.
            let seed =
                if channel.compressor().needs_shared_stream() { keys.public } else { keys.private };
            (channel, Rounds::new(seed, Purpose::Compress, id))
        };
        Encoder { precision, channel: channel.map(with_rounds) }
    }

    /// Send `vector`, compressed where there is a channel, with the packed for room; uncompressed
    /// it is rounded in place.
    pub(super) fn send<'a>(
        &'a mut self,
        kind: Kind,
        vector: &'a mut [f64],
        round: u64,
        packed: &'a mut Packed,
    ) -> Reply<'a> {
        let payload = match &mut self.channel {
            Some((channel, streams)) => {
                let stream = if channel.compressor().draws() {
                    streams.stream(round)
                } else {
                    streams.idle()
                };
                packed.pack(channel, vector, stream)
            }
            None => {
                self.precision.round(vector);
                Payload::Plain(vector, self.precision)
            }
        };
        Reply { round, kind, payload, beside: &[] }
    }

    /// Send `vector` uncompressed; it is rounded in place.
    pub(super) fn send_plain<'a>(
        &self,
        kind: Kind,
        vector: &'a mut [f64],
        round: u64,
    ) -> Reply<'a> {
        self.precision.round(vector);
        Reply { round, kind, payload: Payload::Plain(vector, self.precision), beside: &[] }
    }
}
