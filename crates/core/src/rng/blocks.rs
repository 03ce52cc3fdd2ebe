//! Make many random words and normals at once.
//!
//! Four blocks of ChaCha8 are a *group* of 64 words: word 0 of all four, then word 1 of all four,
//! and so on. The widest registers hold four groups, of one round or of four rounds in a row; a
//! short vector takes one. In 16 lanes the four words that belong together lie side by side, so
//! nothing is shuffled.

use super::normal::box_muller;
use crate::simd::wide;

/// Blocks of a group.
pub(super) const BLOCKS: usize = 4;
/// Words of a group, or normals.
pub(super) const GROUP: usize = 16 * BLOCKS;
/// Groups that are made at once where there are so many.
const AT_ONCE: usize = 4;
const WIDE: usize = AT_ONCE * BLOCKS;
/// Normals that two rows of a group give.
const PAIR: usize = 2 * BLOCKS;

/// The address of a stream.
#[derive(Clone, Copy)] // and not `Debug`: a log must not give away a client's noise
pub(super) struct StreamAddress {
    pub(super) key: [u32; 8],
    pub(super) client: u32,
    /// The purpose and the round: rounds in a row have tags in a row.
    pub(super) tag: u64,
}

wide! {
    /// The words of one group.
    pub(super) fn group<'a>(place: &'a StreamAddress, block: u32,
        out: &'a mut [[u32; BLOCKS]; 16]) -> () {
        *out = alone(place, place.tag, block);
    }
}

/// The words of four groups: words are made fastest by so many at a time.
pub(crate) const LOT: usize = AT_ONCE * GROUP;

wide! {
    /// The next words of one round, from `block` on.
    pub(super) fn lots<'a>(place: &'a StreamAddress, block: u32, out: &'a mut [[u32; LOT]]) -> () {
        let (low, high) = ([place.tag as u32; WIDE], [(place.tag >> 32) as u32; WIDE]);
        let mut blocks = [0; WIDE];
        for (lane, next) in blocks.iter_mut().enumerate() {
            *next = block.wrapping_add(lane as u32);
        }
        for out in out {
            let rows = chacha8(place, &low, &high, &blocks);
            for (cell, group) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
                for (four, row) in group.as_chunks_mut::<BLOCKS>().0.iter_mut().zip(&rows) {
                    *four = row.as_chunks::<BLOCKS>().0[cell];
                }
            }
            for next in &mut blocks {
                *next = next.wrapping_add(WIDE as u32);
            }
        }
    }
}

wide! {
    /// The next `each` words, from `block` on, of as many rounds in a row as fill `out`, round by
    /// round.
    pub(super) fn words<'a>(place: &'a StreamAddress, block: u32, each: usize,
        out: &'a mut [u32]) -> () {
        let mut cells = GroupWords::new(place, block, each, out.len());
        while cells.left > 0 {
            let lot = cells.next();
            if lot.len == 1 {
                copy_words(&alone(place, lot.tags[0], lot.first_blocks[0]), 0,
                    &mut out[lot.starts[0]..lot.ends[0]]);
                continue;
            }
            let words = together(place, &lot);
            for cell in 0..lot.len {
                copy_words(&words, cell, &mut out[lot.starts[cell]..lot.ends[cell]]);
            }
        }
    }
}

wide! {
    /// The next `each` normals, from `block` on, of as many rounds in a row as fill `out`, round by
    /// round.
    pub(super) fn normals<'a>(place: &'a StreamAddress, block: u32, each: usize,
        out: &'a mut [f64]) -> () {
        let mut cells = GroupWords::new(place, block, each, out.len());
        while cells.left > 0 {
            let lot = cells.next();
            if lot.len == 1 {
                let words = alone(place, lot.tags[0], lot.first_blocks[0]);
                let out = &mut out[lot.starts[0]..lot.ends[0]];
                // Four pairs of rows at a time fill the registers that four groups would.
                for (rows, out) in words.as_chunks::<{
                    2 * AT_ONCE }>().0.iter().zip(out.chunks_mut(AT_ONCE * PAIR)) {
                    let (mut radius, mut angle) = ([0; WIDE], [0; WIDE]);
                    for pair in 0..AT_ONCE {
                        radius[pair * BLOCKS..][..BLOCKS].copy_from_slice(&rows[2 * pair]);
                        angle[pair * BLOCKS..][..BLOCKS].copy_from_slice(&rows[2 * pair + 1]);
                    }
                    let both = box_muller(&radius, &angle);
                    for (pair, out) in out.chunks_mut(PAIR).enumerate() {
                        copy_normals(&both, pair, out);
                    }
                }
                continue;
            }
            let words = together(place, &lot);
            for (pair, rows) in words.as_chunks::<2>().0.iter().enumerate() {
                if pair * PAIR >= lot.longest {
                    break;
                }
                let both = box_muller(&rows[0], &rows[1]);
                for cell in 0..lot.len {
                    let (start, end) = (lot.starts[cell] + pair * PAIR, lot.ends[cell]);
                    if start < end {
                        copy_normals(&both, cell, &mut out[start..end.min(start + PAIR)]);
                    }
                }
            }
        }
    }
}

/// Walks over the groups of rounds in a row, a few at a time.
struct GroupWords {
    each: usize,
    first_block: u32,
    /// Of the next group: its round's tag, where that round's numbers begin, and where the group's
    /// begin among them.
    tag: u64,
    origin: usize,
    start: usize,
    left: usize,
}

/// Some groups: their addresses, and where their numbers go.
struct Lot {
    len: usize,
    tags: [u64; AT_ONCE],
    first_blocks: [u32; AT_ONCE],
    starts: [usize; AT_ONCE],
    ends: [usize; AT_ONCE],
    /// The most numbers that one of them gives.
    longest: usize,
}

impl GroupWords {
    #[inline(always)]
    fn new(place: &StreamAddress, first_block: u32, each: usize, all: usize) -> Self {
        let left = all.checked_div(each).unwrap_or(0) * each.div_ceil(GROUP);
        GroupWords { each, first_block, tag: place.tag, origin: 0, start: 0, left }
    }

    #[inline(always)]
    fn next(&mut self) -> Lot {
        let (len, none) = (self.left.min(AT_ONCE), [0; AT_ONCE]);
        let longest = self.each.min(GROUP);
        let mut lot = Lot {
            len,
            tags: [self.tag; AT_ONCE],
            first_blocks: [0; AT_ONCE],
            starts: none,
            ends: none,
            longest,
        };
        for cell in 0..len {
            lot.tags[cell] = self.tag;
            lot.first_blocks[cell] = self.first_block.wrapping_add((self.start / 16) as u32);
            lot.starts[cell] = self.origin + self.start;
            lot.ends[cell] = self.origin + self.each.min(self.start + GROUP);
            self.start += GROUP;
            if self.start >= self.each {
                (self.tag, self.origin, self.start) = (self.tag + 1, self.origin + self.each, 0);
            }
        }
        self.left -= len;
        lot
    }
}

#[inline(always)]
fn alone(place: &StreamAddress, tag: u64, block: u32) -> [[u32; BLOCKS]; 16] {
    let mut blocks = [block; BLOCKS];
    for (lane, block) in blocks.iter_mut().enumerate() {
        *block = block.wrapping_add(lane as u32);
    }
    chacha8(place, &[tag as u32; BLOCKS], &[(tag >> 32) as u32; BLOCKS], &blocks)
}

#[inline(always)]
fn together(place: &StreamAddress, lot: &Lot) -> [[u32; WIDE]; 16] {
    let (mut low, mut high, mut blocks) = ([0; WIDE], [0; WIDE], [0; WIDE]);
    for lane in 0..WIDE {
        let tag = lot.tags[lane / BLOCKS];
        (low[lane], high[lane]) = (tag as u32, (tag >> 32) as u32);
        blocks[lane] = lot.first_blocks[lane / BLOCKS].wrapping_add((lane % BLOCKS) as u32);
    }
    chacha8(place, &low, &high, &blocks)
}

/// The words of group `cell` among the lanes.
#[inline(always)]
fn copy_words<const N: usize>(words: &[[u32; N]; 16], cell: usize, out: &mut [u32]) {
    const QUARTER: usize = GROUP / 4;
    for (rows, out) in words.as_chunks::<4>().0.iter().zip(out.chunks_mut(QUARTER)) {
        let mut quarter = [0; QUARTER];
        for (row, four) in quarter.as_chunks_mut::<BLOCKS>().0.iter_mut().enumerate() {
            *four = rows[row].as_chunks::<BLOCKS>().0[cell];
        }
        if let Ok(whole) = <&mut [u32; QUARTER]>::try_from(&mut *out) {
            *whole = quarter;
        } else {
            for (out, word) in out.iter_mut().zip(quarter) {
                *out = word;
            }
        }
    }
}

/// Four cosines and four sines, or as many as there is room for.
#[inline(always)]
fn copy_normals(both: &[[f32; WIDE]; 2], cell: usize, out: &mut [f64]) {
    let (cos, sin) =
        (&both[0].as_chunks::<BLOCKS>().0[cell], &both[1].as_chunks::<BLOCKS>().0[cell]);
    if let Ok(whole) = <&mut [f64; PAIR]>::try_from(&mut *out) {
        for lane in 0..BLOCKS {
            whole[lane] = f64::from(cos[lane]);
            whole[BLOCKS + lane] = f64::from(sin[lane]);
        }
    } else {
        for (out, z) in out.iter_mut().zip(cos.iter().chain(sin)) {
            *out = f64::from(*z);
        }
    }
}

/// `N` blocks of ChaCha8 (Bernstein 2008), word by word. The loop over lanes is the outer one: that
/// is what vectorises. Nothing in it has 64 bits, or half as many lanes would go into a register.
#[inline(always)]
fn chacha8<const N: usize>(
    place: &StreamAddress,
    low: &[u32; N],
    high: &[u32; N],
    blocks: &[u32; N],
) -> [[u32; N]; 16] {
    const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    let mut out = [[0; N]; 16];
    for lane in 0..N {
        let [k0, k1, k2, k3, k4, k5, k6, k7] = place.key;
        let start = [
            SIGMA[0],
            SIGMA[1],
            SIGMA[2],
            SIGMA[3],
            k0,
            k1,
            k2,
            k3,
            k4,
            k5,
            k6,
            k7,
            blocks[lane],
            place.client,
            low[lane],
            high[lane],
        ];
        let mut x = start;
        double_round(&mut x);
        double_round(&mut x);
        double_round(&mut x);
        double_round(&mut x);
        for i in 0..16 {
            out[i][lane] = x[i].wrapping_add(start[i]);
        }
    }
    out
}

#[inline(always)]
fn double_round(x: &mut [u32; 16]) {
    quarter::<0, 4, 8, 12>(x);
    quarter::<1, 5, 9, 13>(x);
    quarter::<2, 6, 10, 14>(x);
    quarter::<3, 7, 11, 15>(x);
    quarter::<0, 5, 10, 15>(x);
    quarter::<1, 6, 11, 12>(x);
    quarter::<2, 7, 8, 13>(x);
    quarter::<3, 4, 9, 14>(x);
}

#[inline(always)]
fn quarter<const A: usize, const B: usize, const C: usize, const D: usize>(x: &mut [u32; 16]) {
    x[A] = x[A].wrapping_add(x[B]);
    x[D] = (x[D] ^ x[A]).rotate_left(16);
    x[C] = x[C].wrapping_add(x[D]);
    x[B] = (x[B] ^ x[C]).rotate_left(12);
    x[A] = x[A].wrapping_add(x[B]);
    x[D] = (x[D] ^ x[A]).rotate_left(8);
    x[C] = x[C].wrapping_add(x[D]);
    x[B] = (x[B] ^ x[C]).rotate_left(7);
}
