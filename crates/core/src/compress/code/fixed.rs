//! Give every symbol the same number of bits.

use super::CodeError;
use super::bits::{BitReader, BitSink};

/// Bits that tell `count >= 1` things apart.
fn width(count: u64) -> u32 {
    64 - (count - 1).leading_zeros()
}

/// `ceil(log2(2s + 1))` bits a level: `l + s`.
pub(super) fn write<S: BitSink>(max: u32, levels: &[i32], sink: &mut S) {
    let bits = width(2 * u64::from(max) + 1);
    for level in levels {
        sink.put((i64::from(*level) + i64::from(max)) as u64, bits);
    }
}

/// The number of bits that [`write`] would write.
pub(super) fn length(max: u32, levels: &[i32]) -> u64 {
    u64::from(width(2 * u64::from(max) + 1)) * levels.len() as u64
}

pub(super) fn read(
    max: u32,
    source: &mut BitReader<'_>,
    levels: &mut [i32],
) -> Result<(), CodeError> {
    let bits = width(2 * u64::from(max) + 1);
    for (place, level) in levels.iter_mut().enumerate() {
        let value = source.get(bits)? as i64 - i64::from(max);
        if value > i64::from(max) {
            return Err(CodeError::Level { place, max });
        }
        *level = value as i32;
    }
    Ok(())
}

/// `ceil(log2 d)` bits an index.
pub(super) fn write_indices<S: BitSink>(length: usize, indices: &[u32], sink: &mut S) {
    for index in indices {
        sink.put(u64::from(*index), width(length as u64));
    }
}

pub(super) fn read_indices(
    length: usize,
    source: &mut BitReader<'_>,
    indices: &mut [u32],
) -> Result<(), CodeError> {
    let mut least = 0;
    for (place, index) in indices.iter_mut().enumerate() {
        let value = source.get(width(length as u64))?;
        if value < least || value >= length as u64 {
            return Err(CodeError::Index { place });
        }
        least = value + 1;
        *index = value as u32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths() {
        for (count, bits) in
            [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (33, 6), (131_073, 18), (1 << 32, 32)]
        {
            assert_eq!(width(count), bits);
        }
    }
}
