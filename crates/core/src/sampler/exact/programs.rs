//! Write the steps that families share as programs on moments.

use nalgebra::{DMatrix, DVector};

use super::moments::{Linear, Op};
use super::{Affine, NoClosedForm};
use crate::compress::{Compressor, SecondMoments};
use crate::step::Schedule;

/// The block of the constant 1.
pub(in crate::sampler) const ONE: usize = 0;

pub(in crate::sampler) fn constant_step(step: &Schedule) -> Result<f64, NoClosedForm> {
    if let Schedule::Constant(step) = step { Ok(*step) } else { Err(NoClosedForm::NotStationary) }
}

/// Where a client's gradient is taken.
pub(in crate::sampler) enum At {
    /// At this block, as it is.
    Plain(usize),
    /// At this block, minus the same at the other; the rows' shifts cancel.
    Difference(usize, usize),
}

impl Affine {
    /// `scale` times the mean of the estimate, as a linear map of the state.
    pub(in crate::sampler) fn mean(&self, at: &At, scale: f64) -> Linear {
        match at {
            At::Plain(x) => vec![(*x, &self.precision * scale), (ONE, column(&self.shift, -scale))],
            At::Difference(x, z) => {
                vec![(*x, &self.precision * scale), (*z, &self.precision * -scale)]
            }
        }
    }

    /// The minibatch's noise in `scale` times the estimate: for `n` of `N` rows without replacement
    /// its covariance is `N (N - n) / (n (N - 1))` times the sum over rows of the outer product of
    /// their deviation.
    pub(in crate::sampler) fn spread(
        &self,
        at: &At,
        batch: usize,
        scale: f64,
    ) -> (Option<DMatrix<f64>>, Vec<(f64, Linear)>) {
        let (all, n) = (self.rows as f64, batch as f64);
        if batch == self.rows {
            return (None, Vec::new());
        }
        let factor = scale * scale * all * (all - n) / (n * (all - 1.0));
        let constant = match at {
            At::Plain(_) => self.constant_spread.as_ref().map(|s| s * factor),
            At::Difference(..) => None,
        };
        let linear = |(h, r): &(DMatrix<f64>, DVector<f64>)| match at {
            At::Plain(x) => vec![(*x, h.clone()), (ONE, column(r, -1.0))],
            At::Difference(x, z) => vec![(*x, h.clone()), (*z, -h)],
        };
        (constant, self.row_spread.iter().map(|row| (factor, linear(row))).collect())
    }
}

pub(in crate::sampler) fn column(v: &DVector<f64>, scale: f64) -> DMatrix<f64> {
    DMatrix::from_fn(v.len(), 1, |i, _| v[i] * scale)
}

/// Compress a block in place: its new mean given the old, and the noise around it. Exact for
/// operators whose error has a known second moment.
pub(in crate::sampler) fn compress(
    compressor: Option<&Compressor>,
    block: usize,
    d: usize,
) -> Result<Vec<Op>, NoClosedForm> {
    let Some(compressor) = compressor.filter(|c| c.plain().is_none()) else {
        return Ok(Vec::new());
    };
    let identity = DMatrix::<f64>::identity(d, d);
    let unknown = || NoClosedForm::Unknown {
        what: format!("the compressor {compressor}"),
        instead: "rand_k(...), scaled(rand_k(...)), identity and the exact-error quantiser have \
            closed forms",
    };
    let SecondMoments { mean, squares, pairs, noise } =
        compressor.moments(d).ok_or_else(unknown)?;
    let mut spread = Vec::new();
    if pairs != mean * mean {
        spread.push((pairs - mean * mean, vec![(block, identity.clone())]));
    }
    for i in (0..d).filter(|_| squares != pairs) {
        let only = DMatrix::from_fn(d, d, |r, c| f64::from(u8::from(r == i && c == i)));
        spread.push((squares - pairs, vec![(block, only)]));
    }
    let noise = (noise > 0.0).then(|| &identity * noise);
    Ok(vec![Op::Set { block, linear: vec![(block, identity * mean)], noise, spread }])
}

/// Add up the matrices of equal blocks.
pub(in crate::sampler) fn collect(linear: Linear) -> Linear {
    let mut collected: Linear = Vec::new();
    for (block, matrix) in linear {
        match collected.iter_mut().find(|(known, _)| *known == block) {
            Some((_, sum)) => *sum += matrix,
            None => collected.push((block, matrix)),
        }
    }
    collected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::exact::moments::{Blocks, apply};

    /// The second moment of what `rand_k` makes of a fixed vector, against the average over all
    /// subsets of coordinates.
    #[test]
    fn compression_has_the_moments_of_all_its_subsets() {
        let v = [1.0, -2.0, 0.5];
        let blocks = Blocks::new([3]);
        for keep in 1..=3u32 {
            for (compressor, scale) in [
                (Compressor::rand_k(keep), 3.0 / f64::from(keep)),
                (Compressor::rand_k(keep).scaled(), 1.0),
            ] {
                let mut moment = DMatrix::from_fn(4, 4, |i, j| {
                    [1.0, v[0], v[1], v[2]][i] * [1.0, v[0], v[1], v[2]][j]
                });
                apply(&compress(Some(&compressor), 1, 3).unwrap(), &blocks, &mut moment);
                let subsets: Vec<u32> =
                    (0..8u32).filter(|mask| mask.count_ones() == keep).collect();
                let mut expected = DMatrix::zeros(4, 4);
                for mask in &subsets {
                    let kept = |i: usize| {
                        if i == 0 { 1.0 } else { scale * v[i - 1] * f64::from(mask >> (i - 1) & 1) }
                    };
                    expected +=
                        DMatrix::from_fn(4, 4, |i, j| kept(i) * kept(j)) / subsets.len() as f64;
                }
                assert!((moment - expected).amax() < 1e-13, "{compressor}");
            }
        }
    }
}
