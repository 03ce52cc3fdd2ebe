//! Scale an unbiased compressor down by `1 + omega`: it is then contractive with
//! `alpha = 1/(1 + omega)`.
//!
//! With `E C = v` and `E norm(C - v)^2 <= omega norm(v)^2`, and `c = 1/(1 + omega)`:
//! `E norm(c C - v)^2 = c^2 E norm(C - v)^2 + (1 - c)^2 norm(v)^2
//! <= (c^2 omega + (1 - c)^2) norm(v)^2 = (1 - c) norm(v)^2`.
//! The receiver scales, so the message is that of the unbiased compressor.

/// `1 / (1 + omega)`, which is also alpha.
pub(super) fn factor(omega: f64) -> f64 {
    1.0 / (1.0 + omega)
}

pub(super) fn apply(omega: f64, out: &mut [f64]) {
    let factor = factor(omega);
    for x in out {
        *x *= factor;
    }
}
