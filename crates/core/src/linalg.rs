//! Add and multiply vectors in one fixed order, so that sums have the same bits for any width of
//! register.

use crate::simd::{LANES, wide};

/// The inner product of `a` and `b`, summed in eight interleaved parts.
#[inline(always)]
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    debug_assert_eq!(a.len(), b.len());
    let mut parts = [0.0; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            parts[lane] += x[lane] * y[lane];
        }
    }
    for (lane, (x, y)) in a_rest.iter().zip(b_rest).enumerate() {
        parts[lane] += x * y;
    }
    let [p0, p1, p2, p3, p4, p5, p6, p7] = parts;
    ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7))
}

/// `y += scale * x`.
#[inline(always)]
pub fn add_scaled(scale: f64, x: &[f64], y: &mut [f64]) {
    debug_assert_eq!(x.len(), y.len());
    for (target, value) in y.iter_mut().zip(x) {
        *target += scale * value;
    }
}

wide! {
    /// `y += scale * x`, for callers that are not compiled for wide registers themselves.
    pub fn accumulate<'a>(scale: f64, x: &'a [f64], y: &'a mut [f64]) -> () {
        add_scaled(scale, x, y);
    }
}

/// The squared Euclidean norm.
pub fn norm_squared(x: &[f64]) -> f64 {
    dot(x, x)
}

/// `x - y`, into `out`.
#[inline(always)]
pub fn subtract(x: &[f64], y: &[f64], out: &mut [f64]) {
    for ((target, a), b) in out.iter_mut().zip(x).zip(y) {
        *target = a - b;
    }
}

wide! {
    /// `x - y`, into `out`, for callers that are not compiled for wide registers themselves.
    pub fn difference<'a>(x: &'a [f64], y: &'a [f64], out: &'a mut [f64]) -> () {
        subtract(x, y, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_sums_every_coordinate_once() {
        for n in 0..40 {
            let a: Vec<f64> = (0..n).map(|k| k as f64 + 1.0).collect();
            let b: Vec<f64> = (0..n).map(|k| 2.0 * k as f64 - 3.0).collect();
            let plain: f64 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert_eq!(dot(&a, &b), plain); // small integers: every order gives the same sum
        }
    }
}
