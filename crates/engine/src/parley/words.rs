//! Write what server and site say to each other: words as JSON, the protocol's messages as they are.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plan::Decision;
use crate::site::{Agreement, Introduction};

/// The first byte of words, and of a packet of messages.
pub(super) const WORDS: u8 = b'W';
const PACKET: u8 = b'P';

/// What all messages of the chains belong to; surveys are numbered from 1.
pub(super) const CHAINS: u32 = 0;

/// What the server asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Ask {
    Introduce,
    Agree { agreement: Agreement, statement: String },
    MoveTo { centre: Vec<f64>, matrix: Vec<f64>, share: f64 },
    Decide(Decision),
    Finish,
}

/// What a site says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Tell {
    Introduction(Introduction),
    Done,
    Finished(Vec<u64>),
}

pub(super) fn write<T: Serialize>(words: &T) -> Vec<u8> {
    let mut bytes = vec![WORDS];
    bytes.extend(serde_json::to_vec(words).unwrap_or_default()); // plain data with text keys: it can be written
    bytes
}

pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        Some((&WORDS, json)) => serde_json::from_slice(json).map_err(|e| e.to_string()),
        _ => Err("words were expected".into()),
    }
}

/// Messages of one phase, each with its chain.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Packet {
    pub(super) phase: u32,
    pub(super) items: Vec<(u32, Vec<u8>)>,
}

impl Packet {
    pub(super) fn new(phase: u32) -> Self {
        Packet { phase, items: Vec::new() }
    }

    pub(super) fn push(&mut self, chain: u32, bytes: Vec<u8>) {
        self.items.push((chain, bytes));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut all = vec![PACKET];
        all.extend(self.phase.to_le_bytes());
        for (chain, bytes) in &self.items {
            all.extend(chain.to_le_bytes());
            all.extend((bytes.len() as u32).to_le_bytes());
            all.extend(bytes);
        }
        all
    }

    /// Whatever the bytes claim, no more is allocated than they hold.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let cut = || "it is cut short".to_owned();
        let Some((&PACKET, rest)) = bytes.split_first() else { return Err("messages were expected".into()) };
        let (phase, mut rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let mut packet = Packet::new(u32::from_le_bytes(*phase));
        while !rest.is_empty() {
            let (chain, more) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
            let (length, more) = more.split_first_chunk::<4>().ok_or_else(cut)?;
            let (item, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(cut)?;
            packet.push(u32::from_le_bytes(*chain), item.to_vec());
            rest = more;
        }
        Ok(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_back_and_cut_ones_refused() {
        let packet = Packet { phase: 3, items: vec![(0, vec![1, 2]), (7, vec![]), (1, vec![9; 300])] };
        let bytes = packet.bytes();
        assert_eq!(Packet::read(&bytes), Ok(packet));
        let whole: Vec<usize> = (0..bytes.len()).filter(|cut| Packet::read(&bytes[..*cut]).is_ok()).collect();
        assert_eq!(whole, [5, 15, 23], "only between two messages");
        assert!(Packet::read(&write(&Tell::Done)).is_err());
        assert_eq!(read::<Tell>(&write(&Tell::Finished(vec![3]))), Ok(Tell::Finished(vec![3])));
        assert!(read::<Tell>(&bytes).is_err() && read::<Ask>(b"W{").is_err());
    }
}
