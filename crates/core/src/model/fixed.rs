//! Count in whole multiples of 2^-40, so that a sum has the same bits in any order.
//!
//! Conversions are written with additions alone, which every machine vectorises: a number of 1.5 * 2^52 and a little holds that little in its low bits as an integer.

/// How many units 1 has: 2^40.
const UNITS: f64 = 1_099_511_627_776.0;
/// 1.5 * 2^52, and its bits.
const SHIFT: f64 = 6_755_399_441_055_744.0;
const SHIFT_BITS: i64 = SHIFT.to_bits() as i64;

/// What one unit is: 2^-40.
pub(super) const UNIT: f64 = 1.0 / UNITS;

/// Numbers up to this one in absolute value can be converted, with room for the rounding of a thousand million terms.
pub(super) const LIMIT: f64 = 1024.0;

/// The nearest multiple, in units.
#[inline(always)]
pub(super) fn from_real(number: f64) -> i64 {
    (number * UNITS + SHIFT).to_bits() as i64 - SHIFT_BITS
}

/// So many units, exactly.
#[inline(always)]
pub(super) fn to_real(units: i64) -> f64 {
    (f64::from_bits((units + SHIFT_BITS) as u64) - SHIFT) * UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_kept_and_others_rounded() {
        for number in [0.0, 1.0, -1.0, 0.5, UNIT, -UNIT, 3.0 * UNIT, LIMIT, -LIMIT, LIMIT + 1000.0, 1.0 - UNIT] {
            assert_eq!(from_real(number) as f64, number * UNITS);
            assert_eq!(to_real(from_real(number)), number);
        }
        assert_eq!((from_real(0.4 * UNIT), from_real(0.6 * UNIT), from_real(-0.6 * UNIT)), (0, 1, -1));
        for k in 1..2000 {
            let number = f64::from(k) / 1.9 - 500.0;
            assert!((to_real(from_real(number)) - number).abs() <= UNIT / 2.0);
        }
    }
}
