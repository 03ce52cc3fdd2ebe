//! Count in whole multiples of 2^-40, so that a sum has the same bits in any order.
//!
//! Conversions are written with additions alone, which every machine vectorises: a number of 1.5 *
//! 2^52 and a little holds that little in its low bits as an integer.

/// How many units 1 has: 2^40.
const UNITS: f64 = 1_099_511_627_776.0;
/// 1.5 * 2^52, and its bits.
const SHIFT: f64 = 6_755_399_441_055_744.0;
const SHIFT_BITS: i64 = SHIFT.to_bits() as i64;

/// What one unit is: 2^-40.
pub(super) const UNIT: f64 = 1.0 / UNITS;

/// Numbers up to this one in absolute value can be converted, and their `exp` is a normal number;
/// sums of that size may be off by as much again through rounded terms.
pub(super) const LIMIT: f64 = 256.0;

/// The nearest multiple, in units.
#[inline(always)]
pub(super) fn from_real(number: f64) -> i64 {
    (number * UNITS + SHIFT).to_bits() as i64 - SHIFT_BITS
}

/// `1 / (1 + exp(-t))`, all in units, to 0.6 units.
#[inline(always)]
pub(super) fn sigmoid(t: i64) -> i64 {
    // exp(-t) = 2^k 2^f with |f| <= 1/2.
    let exponent =
        (f64::from_bits((t + SHIFT_BITS) as u64) - SHIFT) * (-core::f64::consts::LOG2_E * UNIT);
    let shifted = exponent + SHIFT;
    let f = exponent - (shifted - SHIFT);
    // Taylor, in an order with short chains of operations: the first term left out is below 2^-42
    // of the sum, and a quarter of that in the result.
    let (f2, c) = (f * f, POWERS_OF_LN2);
    let f4 = f2 * f2;
    let low = (c[0] + f * c[1]) + f2 * (c[2] + f * c[3]);
    let middle = (c[4] + f * c[5]) + f2 * (c[6] + f * c[7]);
    let high = (c[8] + f * c[9]) + f2 * c[10];
    let power = low + f4 * (middle + f4 * high);
    // the integer k sits in the low bits of `shifted`
    let exp = f64::from_bits(power.to_bits().wrapping_add(shifted.to_bits() << 52));
    (UNITS / (1.0 + exp) + SHIFT).to_bits() as i64 - SHIFT_BITS
}

/// `ln(2)^k / k!`.
const POWERS_OF_LN2: [f64; 11] = {
    let mut table = [1.0; 11];
    let mut k = 1;
    while k < 11 {
        table[k] = table[k - 1] * core::f64::consts::LN_2 / k as f64;
        k += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_kept_and_others_rounded() {
        for number in [
            0.0,
            1.0,
            -1.0,
            0.5,
            UNIT,
            -UNIT,
            3.0 * UNIT,
            LIMIT,
            -LIMIT,
            LIMIT + 1000.0,
            1.0 - UNIT,
        ] {
            assert_eq!(from_real(number) as f64, number * UNITS);
        }
        assert_eq!(
            (from_real(0.4 * UNIT), from_real(0.6 * UNIT), from_real(-0.6 * UNIT)),
            (0, 1, -1)
        );
    }

    #[test]
    fn the_sigmoid_is_right_to_a_unit() {
        for k in -512_000..=512_000 {
            let t = f64::from(k) * 1e-3 + 1e-7 * f64::from(k % 17);
            let units = from_real(t);
            let exact = UNITS * crate::simd::sigmoid(units as f64 * UNIT);
            assert!(
                (sigmoid(units) as f64 - exact).abs() < 0.6,
                "at {t}: {} is not {exact}",
                sigmoid(units)
            );
        }
        assert_eq!(sigmoid(0), UNITS as i64 / 2);
    }
}
