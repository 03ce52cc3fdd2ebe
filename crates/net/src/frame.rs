//! Wrap messages in a thin frame: what it is, which phase and chain it belongs to, the bytes.
//!
//! `proto/session.proto` says the same for other languages; it is written by hand, so that nobody
//! needs `protoc`.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The gRPC method.
pub const PATH: &str = "/consilience.Session/Join";
/// A frame of JSON.
pub const WORDS: u32 = 1;
/// A frame with a message of the protocol core.
pub const MESSAGE: u32 = 2;
/// The phase of words that belong to no step: greetings, questions where a site stands, farewells.
pub const ASIDE: u32 = u32::MAX;
/// The most bytes that a site's words may have: a summary of thousands of levels.
pub const MOST_WORDS: usize = 4 << 20;

/// One message of the stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Frame {
    /// [`WORDS`] or [`MESSAGE`].
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Which step or phase it belongs to.
    #[prost(uint32, tag = "2")]
    pub phase: u32,
    /// Which chain it belongs to.
    #[prost(uint32, tag = "3")]
    pub chain: u32,
    /// What it says.
    #[prost(bytes = "bytes", tag = "4")]
    pub body: Bytes,
    /// With an answer: how many gradients of single rows the site has evaluated in this chain so
    /// far.
    #[prost(uint64, tag = "5")]
    pub rows: u64,
}

impl Frame {
    /// A message of the protocol core.
    pub fn message(phase: u32, chain: usize, body: Vec<u8>) -> Frame {
        Frame { kind: MESSAGE, phase, chain: chain as u32, body: body.into(), rows: 0 }
    }

    /// Words.
    pub fn words<T: Serialize>(phase: u32, words: &T) -> Frame {
        // plain data: nothing can go wrong
        let body = serde_json::to_vec(words).unwrap_or_default();
        Frame { kind: WORDS, phase, chain: 0, body: body.into(), rows: 0 }
    }

    /// The words that it carries.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        if self.kind != WORDS {
            return Err(format!("a frame of kind {} came, where words were due", self.kind));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| format!("the words cannot be read: {error}"))
    }
}
