//! Count bits as the QLSD paper's program did: an upper bound on the length of a code that nobody
//! wrote, with natural logarithms.

use crate::simd::ln;

/// The published count of a `qsgd(levels)` message of `dimension` coordinates
/// (`published-code.md`), for comparison with real lengths.
pub fn paper_bits(levels: u32, dimension: usize) -> f64 {
    let (s, d) = (f64::from(levels), dimension as f64);
    let root = d.sqrt();
    if s * s <= d / 2.0 - root {
        let kept = s * (s + root);
        (3.0 + 1.5 * ln(2.0 * (s * s + d) / kept)) * kept + 32.0
    } else if s == root {
        2.8 * d + 32.0
    } else {
        let spread = (s * s + d.min(s * root)) / d;
        (0.5 * (ln(1.0 + spread) + 1.0) + 2.0) * d + 32.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_efficiencies_come_out() {
        for (power, bits, efficiency) in
            [(4, 3288.0, 7.630), (8, 3736.0, 6.715), (16, 8074.0, 3.107)]
        {
            let ours = paper_bits(1 << power, 784);
            assert!((ours - bits).abs() < 0.5, "2^{power}: {ours}");
            assert!((32.0 * 784.0 / ours - efficiency).abs() < 5e-4, "2^{power}");
        }
        assert_eq!(paper_bits(28, 784), 2.8 * 784.0 + 32.0);
        // By hand, sparse up to s = sqrt(364): (3 + 1.5 ln(2 * 785 / 29)) * 29 + 32, and so on.
        for (levels, bits) in [(1, 292.6), (19, 3972.4), (20, 2305.4)] {
            assert!(
                (paper_bits(levels, 784) - bits).abs() < 0.1,
                "{levels}: {}",
                paper_bits(levels, 784)
            );
        }
    }
}
