//! Draw the random words of a long vector, many at a time.

use crate::rng::{LOT, Stream};

/// A queue of words. No more of them are drawn from the stream than the vector takes.
pub(super) struct Words<'a> {
    stream: &'a mut Stream,
    /// Those that the rest of the vector takes beyond the ones that are drawn.
    due: usize,
    drawn: [u32; 5 * LOT],
    next: usize,
    end: usize,
}

impl<'a> Words<'a> {
    pub(super) fn new(stream: &'a mut Stream, due: usize) -> Self {
        Words { stream, due, drawn: [0; 5 * LOT], next: 0, end: 0 }
    }

    /// The next words, at most as many as a chunk takes.
    pub(super) fn take(&mut self, count: usize) -> &[u32] {
        if self.end - self.next < count {
            self.draw();
        }
        let start = self.next;
        self.next += count;
        &self.drawn[start..self.next]
    }

    /// A word more than was expected.
    pub(super) fn next(&mut self) -> u32 {
        if self.next == self.end && self.due > 0 {
            self.draw();
        }
        if self.next == self.end {
            return self.stream.word();
        }
        self.due += 1;
        self.take(1)[0]
    }

    fn draw(&mut self) {
        self.drawn.copy_within(self.next..self.end, 0);
        (self.next, self.end) = (0, self.end - self.next);
        // in whole lots, which are made fastest
        let room = (self.drawn.len() - self.end) / LOT * LOT;
        let more = room.min(self.due);
        self.stream.words(&mut self.drawn[self.end..self.end + more]);
        self.end += more;
        self.due -= more;
    }
}
