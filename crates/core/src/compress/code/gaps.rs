//! Write which `k` of `d` coordinates are kept as Golomb-coded gaps, near `log2 C(d, k)` bits.
//!
//! The gaps of a uniform subset are nearly geometric with ratio `1 - k/d`; the best prefix code of
//! a geometric law is Golomb's (1966; Gallager and van Voorhis 1975): the quotient by `m` in unary,
//! the remainder in truncated binary. If more than half are kept, the dropped ones are written. One
//! index alone is uniform: truncated binary.

use super::CodeError;
use super::bits::{BitReader, BitSink};
use crate::simd::ln;

/// The least `m` with `(1 - p)^m + (1 - p)^(m + 1) <= 1`, for `p = listed/length` at most 1/2. Both
/// sides compute it, with the same bits.
fn divisor(length: usize, listed: usize) -> u64 {
    let p = listed as f64 / length as f64;
    (ln(2.0 - p) / -ln(1.0 - p)).ceil().max(1.0) as u64
}

pub(super) fn write<S: BitSink>(length: usize, kept: &[u32], sink: &mut S) {
    let dropped = length - kept.len();
    if kept.len() <= dropped {
        write_list(length, kept.len(), kept.iter().copied(), sink);
    } else {
        let mut ahead = kept.iter().copied().peekable();
        let missing = (0..length as u32).filter(|index| ahead.next_if_eq(index).is_none());
        write_list(length, dropped, missing, sink);
    }
}

fn write_list<S: BitSink>(
    length: usize,
    listed: usize,
    list: impl Iterator<Item = u32>,
    sink: &mut S,
) {
    if listed == 0 {
        return;
    }
    let m = if listed == 1 { length as u64 } else { divisor(length, listed) };
    let mut next = 0;
    for index in list {
        let gap = u64::from(index - next);
        if listed > 1 {
            sink.put_zeros(gap / m);
            sink.put(1, 1);
        }
        put_truncated(gap % m, m, sink);
        next = index + 1;
    }
}

pub(super) fn read(
    length: usize,
    source: &mut BitReader<'_>,
    kept: &mut [u32],
) -> Result<(), CodeError> {
    let dropped = length - kept.len();
    if kept.len() <= dropped {
        return read_list(length, kept.len(), source, |place, index| kept[place] = index);
    }
    let (mut next, mut filled) = (0, 0);
    let mut keep_until = |end: u32| {
        while next < end {
            kept[filled] = next;
            filled += 1;
            next += 1;
        }
        next += 1;
    };
    read_list(length, dropped, source, |_, index| keep_until(index))?;
    keep_until(length as u32);
    Ok(())
}

fn read_list(
    length: usize,
    listed: usize,
    source: &mut BitReader<'_>,
    mut found: impl FnMut(usize, u32),
) -> Result<(), CodeError> {
    if listed == 0 {
        return Ok(());
    }
    let m = if listed == 1 { length as u64 } else { divisor(length, listed) };
    let mut next = 0;
    for place in 0..listed {
        let quotient = if listed > 1 {
            source.zeros(length as u64 / m, CodeError::Index { place })?
        } else {
            0
        };
        let index = next + quotient * m + get_truncated(m, source)?;
        if index + (listed - place) as u64 > length as u64 {
            return Err(CodeError::Index { place }); // no room for the rest
        }
        found(place, index as u32);
        next = index + 1;
    }
    Ok(())
}

/// Truncated binary: `floor(log2 m)` bits for the first values, one more for the others.
fn put_truncated<S: BitSink>(value: u64, m: u64, sink: &mut S) {
    let bits = m.ilog2();
    let short = (2 << bits) - m;
    if value < short { sink.put(value, bits) } else { sink.put(value + short, bits + 1) }
}

fn get_truncated(m: u64, source: &mut BitReader<'_>) -> Result<u64, CodeError> {
    let bits = m.ilog2();
    let short = (2 << bits) - m;
    let value = source.get(bits)?;
    if value < short { Ok(value) } else { Ok((value << 1 | source.get(1)?) - short) }
}

#[cfg(test)]
mod tests {
    use super::super::bits::Counter;
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed, Subsets};

    #[test]
    fn the_divisor_is_golombs() {
        for (length, listed) in [
            (100, 50),
            (100, 10),
            (784, 10),
            (1_000_000, 1000),
            (1_000_000, 2),
            (u32::MAX as usize, 2),
            (3, 1),
        ] {
            let (m, q) = (divisor(length, listed), 1.0 - listed as f64 / length as f64);
            let total = |m: f64| q.powf(m) + q.powf(m + 1.0);
            assert!(
                total(m as f64) <= 1.0 + 1e-9 && (m == 1 || total(m as f64 - 1.0) > 1.0 - 1e-9),
                "{length} {listed} {m}"
            );
        }
    }

    /// Averages of 200 uniform subsets; the bound is deterministic in practice (the standard error
    /// is below 0.3%).
    #[test]
    fn lengths_are_near_the_logarithm_of_the_binomial() {
        for (d, k) in [
            (784usize, 1usize),
            (784, 10),
            (784, 78),
            (784, 392),
            (784, 700),
            (784, 783),
            (784, 784),
            (100_000, 100),
            (1_000_000, 1000),
        ] {
            let exact: f64 =
                (0..k.min(d - k)).map(|j| ((d - j) as f64 / (j + 1) as f64).log2()).sum();
            let (mut subsets, mut kept) = (Subsets::new(d), vec![0; k]);
            let mut counter = Counter::default();
            for round in 0..200 {
                subsets.draw(
                    d as u32,
                    &mut Seed::new(1).stream(Purpose::Compress, SERVER, round),
                    &mut kept,
                );
                write(d, &kept, &mut counter);
            }
            let mean = counter.finish() as f64 / 200.0;
            // 0.04 bits an index for Golomb against the entropy of the gaps, and what knowing k
            // saves: log2 sqrt(2 pi k) or so.
            let listed = k.min(d - k) as f64;
            let slack = 0.045 * listed + 0.5 * (6.3 * listed + 1.0).log2() + 1.0;
            assert!(
                mean >= exact - 1e-6 && mean <= exact + slack,
                "C({d}, {k}): {mean} against {exact} + {slack}"
            );
        }
    }
}
