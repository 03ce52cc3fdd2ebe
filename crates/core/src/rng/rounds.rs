//! Open the streams of one party at one purpose, round after round.

use super::blocks::{self, BLOCKS, GROUP};
use super::{ClientId, Purpose, Seed, Stream};

/// Rounds whose first words are made together.
const AHEAD: usize = 4;

/// Streams of which nearly every round's is used: where rounds follow each other, the first words
/// of several are made together, which takes little longer than those of one.
///
/// A stream is the one of [`Seed::stream`], whatever was asked before. What is made ahead is no
/// state.
#[derive(Clone)]
pub struct Rounds {
    seed: Seed,
    purpose: Purpose,
    client: ClientId,
    /// Fresh streams of the rounds up to `end`, those of its last rounds; before them, used ones.
    streams: Vec<Stream>,
    fresh: usize,
    end: u64,
}

impl std::fmt::Debug for Rounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rounds(secret)")
    }
}

impl Rounds {
    /// The streams of a client at a purpose.
    pub fn new(seed: Seed, purpose: Purpose, client: ClientId) -> Self {
        Rounds {
            seed,
            purpose,
            client,
            streams: vec![seed.stream(purpose, client, 0)],
            fresh: 0,
            end: u64::MAX,
        }
    }

    /// The stream of a round, at its beginning.
    #[inline]
    pub fn stream(&mut self, round: u64) -> &mut Stream {
        let is_next = self.end.wrapping_sub(self.fresh as u64) == round;
        if self.fresh == 0 || !is_next {
            self.open(round, is_next);
        }
        let at = self.streams.len() - self.fresh;
        self.fresh -= 1;
        &mut self.streams[at]
    }

    /// Some stream, for who draws nothing from it: none is made.
    #[inline]
    pub fn idle(&mut self) -> &mut Stream {
        &mut self.streams[0]
    }

    fn open(&mut self, round: u64, goes_on: bool) {
        let first = self.seed.stream(self.purpose, self.client, round);
        let count = if goes_on { AHEAD } else { 1 };
        self.streams.resize(self.streams.len().max(count), first.clone());
        let mut words = [0; AHEAD * GROUP];
        let words = &mut words[..count * GROUP];
        blocks::words(&first.place, 0, GROUP, words);
        let from = self.streams.len() - count;
        for ((k, stream), words) in
            (0..).zip(&mut self.streams[from..]).zip(words.as_chunks::<GROUP>().0)
        {
            stream.place = first.place;
            stream.place.tag += k;
            stream.buffer.as_flattened_mut().copy_from_slice(words);
            (stream.next_block, stream.used) = (BLOCKS as u32, 0);
        }
        (self.fresh, self.end) = (count, round + count as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_does_not_depend_on_what_was_asked_before() {
        let seed = Seed::new(3);
        let mut rounds = Rounds::new(seed, Purpose::Batch, ClientId(7));
        for round in (0..20).chain([3, 3, 4, 5, 9, 8, 7, 100, 101, 102, 103, 104, 105, 106, 107, 0])
        {
            let (stream, mut alone) =
                (rounds.stream(round), seed.stream(Purpose::Batch, ClientId(7), round));
            for _ in 0..round * 13 {
                assert_eq!(stream.word(), alone.word(), "round {round}");
            }
        }
    }
}
