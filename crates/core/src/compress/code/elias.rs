//! Write integers in Elias's codes, as QSGD does (`[alistarh17]` section 3.1 and appendix A.2,
//! A.3).
//!
//! Dense layout: every coordinate as the integer `|l| + 1`, then a sign if `l != 0`. Sparse layout:
//! for every non-zero level the distance from the last one, its sign, and `|l|`; at the end the
//! distance to the place behind the last coordinate, unless the last coordinate is not zero.

use super::super::spec::{SpecError, unknown};
use super::bits::{BitReader, BitSink};
use super::nonzero::for_each_nonzero;
use super::stairs::Stairs;
use super::{CodeError, small};
use std::fmt;
use std::str::FromStr;

/// Elias's codes of the positive integers (Elias 1975).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integer {
    /// The number of bits less one in unary, then the bits.
    Gamma,
    /// The number of bits in gamma, then the bits after the first.
    Delta,
    /// The number of bits, and its number of bits, and so on ("recursive Elias coding" in
    /// `[alistarh17]`).
    Omega,
}

/// Where the zeros go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Zeros as run lengths.
    Sparse,
    /// Zeros one by one.
    Dense,
}

impl Integer {
    /// The lengths of the integers of 1, 2, ... bits: that is all they depend on.
    const LENGTHS: [[u8; 64]; 3] = {
        let mut table = [[0; 64]; 3];
        let mut bits = 0;
        while bits < 64 {
            table[0][bits] = 2 * bits as u8 + 1;
            table[1][bits] = bits as u8 + 2 * (bits + 1).ilog2() as u8 + 1;
            let (mut omega, mut rest) = (1, bits);
            while rest > 0 {
                omega += rest as u8 + 1;
                rest = rest.ilog2() as usize;
            }
            table[2][bits] = omega;
            bits += 1;
        }
        table
    };

    /// The length of a level in the dense layout.
    const DENSE: [Stairs; 3] = {
        let mut table = [Stairs::new(1); 3];
        let mut code = 0;
        while code < 3 {
            let mut bits = 1;
            while bits < 31 {
                let sign = (bits == 1) as i32;
                let rise = Self::LENGTHS[code][bits] as i32 - Self::LENGTHS[code][bits - 1] as i32;
                // |l| + 1 has one bit more from here on
                table[code].rise((1 << bits) - 1, rise + sign);
                bits += 1;
            }
            code += 1;
        }
        table
    };

    /// How many bits [`Integer::put`] writes.
    #[inline(always)]
    pub(super) fn length(self, n: u64) -> u64 {
        u64::from(Self::LENGTHS[self as usize][n.ilog2() as usize])
    }

    /// Write `n >= 1`.
    #[inline]
    pub(super) fn put<S: BitSink>(self, n: u64, sink: &mut S) {
        let bits = n.ilog2();
        match self {
            Integer::Gamma if bits <= 28 => sink.put(n, 2 * bits + 1),
            Integer::Gamma => {
                sink.put_zeros(u64::from(bits));
                put_wide(n, bits + 1, sink);
            }
            Integer::Delta => {
                Integer::Gamma.put(u64::from(bits) + 1, sink);
                put_wide(n - (1 << bits), bits, sink);
            }
            Integer::Omega => {
                // Groups come out last first: at most five for 64 bits.
                let (mut groups, mut count, mut rest) = ([0; 6], 0, n);
                while rest > 1 {
                    groups[count] = rest;
                    count += 1;
                    rest = u64::from(rest.ilog2());
                }
                for group in groups[..count].iter().rev() {
                    put_wide(*group, group.ilog2() + 1, sink);
                }
                sink.put(0, 1);
            }
        }
    }

    /// Read an integer of at most 63 bits.
    #[inline]
    pub(super) fn get(self, source: &mut BitReader<'_>) -> Result<u64, CodeError> {
        match self {
            Integer::Gamma => {
                let bits = source.zeros(62, CodeError::Integer)?;
                Ok(1 << bits | get_wide(bits as u32, source)?)
            }
            Integer::Delta => match Integer::Gamma.get(source)? - 1 {
                bits if bits > 62 => Err(CodeError::Integer),
                bits => Ok(1 << bits | get_wide(bits as u32, source)?),
            },
            Integer::Omega => {
                let mut n = 1;
                while source.get(1)? == 1 {
                    if n > 62 {
                        return Err(CodeError::Integer);
                    }
                    n = 1 << n | get_wide(n as u32, source)?;
                }
                Ok(n)
            }
        }
    }
}

fn put_wide<S: BitSink>(value: u64, bits: u32, sink: &mut S) {
    if bits > 32 {
        sink.put(value >> 32, bits - 32);
        sink.put(value & 0xFFFF_FFFF, 32);
    } else {
        sink.put(value, bits);
    }
}

fn get_wide(bits: u32, source: &mut BitReader<'_>) -> Result<u64, CodeError> {
    if bits > 32 { Ok(source.get(bits - 32)? << 32 | source.get(32)?) } else { source.get(bits) }
}

pub(super) fn write<S: BitSink>(integer: Integer, layout: Layout, levels: &[i32], sink: &mut S) {
    match layout {
        Layout::Dense if integer == Integer::Gamma => {
            let mut left = levels;
            while !left.is_empty() {
                left = &left[small::write(left, sink)..];
                let (block, after) = left.split_at(left.len().min(small::BLOCK));
                write_dense(integer, block, sink);
                left = after;
            }
        }
        Layout::Dense => write_dense(integer, levels, sink),
        Layout::Sparse => {
            let mut next = 0;
            for_each_nonzero(levels, |place, level| {
                let (distance, sign, size) = (
                    (place + 1 - next) as u64,
                    u64::from(level < 0),
                    u64::from(level.unsigned_abs()),
                );
                next = place + 1;
                if integer == Integer::Gamma && distance | size < 1 << 14 {
                    // 27 bits at most
                    let (first, last) = (2 * distance.ilog2() + 1, 2 * size.ilog2() + 1);
                    sink.put((distance << 1 | sign) << last | size, first + 1 + last);
                } else {
                    integer.put(distance, sink);
                    sink.put(sign, 1);
                    integer.put(size, sink);
                }
            });
            if next < levels.len() {
                integer.put((levels.len() + 1 - next) as u64, sink);
            }
        }
    }
}

fn write_dense<S: BitSink>(integer: Integer, levels: &[i32], sink: &mut S) {
    for level in levels {
        let size = u64::from(level.unsigned_abs());
        integer.put(size + 1, sink);
        if size > 0 {
            sink.put(u64::from(*level < 0), 1);
        }
    }
}

/// The number of bits that [`write`] would write.
pub(super) fn length(integer: Integer, layout: Layout, levels: &[i32]) -> u64 {
    match layout {
        Layout::Dense => Integer::DENSE[integer as usize].total(levels).0,
        Layout::Sparse => {
            let (mut bits, mut next) = (0, 0);
            for_each_nonzero(levels, |place, level| {
                bits += integer.length((place + 1 - next) as u64)
                    + 1
                    + integer.length(u64::from(level.unsigned_abs()));
                next = place + 1;
            });
            bits + if next < levels.len() {
                integer.length((levels.len() + 1 - next) as u64)
            } else {
                0
            }
        }
    }
}

pub(super) fn read(
    integer: Integer,
    layout: Layout,
    max: u32,
    source: &mut BitReader<'_>,
    levels: &mut [i32],
) -> Result<(), CodeError> {
    let dimension = levels.len();
    let many = (integer, layout) == (Integer::Gamma, Layout::Dense) && max >= small::SMALL;
    let (mut place, mut try_many_from) = (0, 0);
    while place < dimension {
        if many && place >= try_many_from {
            let found = small::read(source, &mut levels[place..]);
            place += found;
            if place == dimension {
                break;
            }
            // where one is large, others may be
            try_many_from = place + if found > 0 { 1 } else { 16 };
        }
        let (size, negative) = match layout {
            Layout::Dense => {
                let size = integer.get(source)? - 1;
                (size, size > 0 && source.get(1)? == 1)
            }
            Layout::Sparse => {
                let distance = integer.get(source)? - 1;
                let left = (dimension - place) as u64;
                if distance > left {
                    return Err(CodeError::Run { dimension });
                }
                levels[place..place + distance as usize].fill(0);
                place += distance as usize;
                if place == dimension {
                    break;
                }
                let negative = source.get(1)? == 1;
                (integer.get(source)?, negative)
            }
        };
        if size > u64::from(max) {
            return Err(CodeError::Level { place, max });
        }
        levels[place] = if negative { -(size as i32) } else { size as i32 };
        place += 1;
    }
    Ok(())
}

/// Indices as distances from the last one.
pub(super) fn write_indices<S: BitSink>(integer: Integer, indices: &[u32], sink: &mut S) {
    let mut next = 0;
    for index in indices {
        integer.put(u64::from(index - next) + 1, sink);
        next = index + 1;
    }
}

pub(super) fn read_indices(
    integer: Integer,
    length: usize,
    source: &mut BitReader<'_>,
    indices: &mut [u32],
) -> Result<(), CodeError> {
    let mut next = 0;
    for (place, index) in indices.iter_mut().enumerate() {
        let value = next + integer.get(source)? - 1;
        if value >= length as u64 {
            return Err(CodeError::Index { place });
        }
        *index = value as u32;
        next = value + 1;
    }
    Ok(())
}

impl fmt::Display for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Integer::Gamma => "gamma",
            Integer::Delta => "delta",
            Integer::Omega => "omega",
        })
    }
}

impl FromStr for Integer {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "gamma" => Ok(Integer::Gamma),
            "delta" => Ok(Integer::Delta),
            "omega" => Ok(Integer::Omega),
            _ => Err(unknown(text, "gamma, delta, omega")),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Sparse => "sparse",
            Layout::Dense => "dense",
        })
    }
}

impl FromStr for Layout {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "sparse" => Ok(Layout::Sparse),
            "dense" => Ok(Layout::Dense),
            _ => Err(unknown(text, "sparse, dense")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bits::BitWriter;
    use super::*;

    fn bits_of(integer: Integer, n: u64) -> String {
        let mut bytes = Vec::new();
        let mut sink = BitWriter::new(&mut bytes);
        integer.put(n, &mut sink);
        let length = sink.finish() as usize;
        bytes.iter().map(|byte| format!("{byte:08b}")).collect::<String>()[..length].to_owned()
    }

    /// The tables of Elias (1975), as everybody prints them.
    #[test]
    fn the_codes_are_the_published_ones() {
        for (n, gamma, delta, omega) in [
            (1, "1", "1", "0"),
            (2, "010", "0100", "100"),
            (3, "011", "0101", "110"),
            (4, "00100", "01100", "101000"),
            (7, "00111", "01111", "101110"),
            (8, "0001000", "00100000", "1110000"),
            (17, "000010001", "001010001", "10100100010"),
            (100, "0000001100100", "00111100100", "1011011001000"),
        ] {
            assert_eq!(bits_of(Integer::Gamma, n), gamma);
            assert_eq!(bits_of(Integer::Delta, n), delta);
            assert_eq!(bits_of(Integer::Omega, n), omega);
        }
    }

    #[test]
    fn integers_come_back_and_too_long_ones_do_not() {
        for integer in [Integer::Gamma, Integer::Delta, Integer::Omega] {
            let numbers = (0..63).flat_map(|k| [1u64 << k, (1 << k) + (1 << k >> 1), (2 << k) - 1]);
            for n in numbers {
                let mut bytes = Vec::new();
                let mut sink = BitWriter::new(&mut bytes);
                integer.put(n, &mut sink);
                sink.finish();
                assert_eq!(integer.get(&mut BitReader::new(&bytes)), Ok(n));
            }
            let mut bytes = Vec::new();
            let mut sink = BitWriter::new(&mut bytes);
            integer.put(1 << 63, &mut sink);
            sink.finish();
            assert_eq!(
                integer.get(&mut BitReader::new(&bytes)),
                Err(CodeError::Integer),
                "{integer}"
            );
        }
    }

    #[test]
    fn the_sparse_layout_is_the_published_one() {
        let mut bytes = Vec::new();
        let mut sink = BitWriter::new(&mut bytes);
        write(Integer::Gamma, Layout::Sparse, &[0, -2, 1, 0, 0], &mut sink);
        // distance 2, minus, 2; distance 1, plus, 1; distance 3 to the place behind the end.
        let expected = ["010", "1", "010", "1", "0", "1", "011"].concat();
        assert_eq!(sink.finish() as usize, expected.len());
        let written: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
        assert_eq!(written[..expected.len()], expected);
    }
}
