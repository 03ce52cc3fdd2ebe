//! Take the slopes of a dense layer's outputs to those of its inputs.

use pulp::NullaryFnOnce;

use super::Lanes;

/// `dx = weights' dy`.
pub(in super::super) struct DenseSlopes<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) dy: &'a [L::V],
    /// Output by output.
    pub(in super::super) weights: &'a [L::T],
    pub(in super::super) dx: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for DenseSlopes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let inputs = self.dx.len();
        let mut i = 0;
        while L::HAS_32 && i + 16 <= inputs {
            self.tile::<16>(i);
            i += 16;
        }
        while L::HAS_8 && i + 8 <= inputs {
            self.tile::<8>(i);
            i += 8;
        }
        while i < inputs {
            self.tile::<1>(i);
            i += 1;
        }
    }
}

impl<L: Lanes> DenseSlopes<'_, L> {
    /// `I` inputs from `i` on.
    #[inline(always)]
    fn tile<const I: usize>(&mut self, i: usize) {
        let (lanes, inputs) = (self.lanes, self.dx.len());
        let mut sums = [lanes.zero(); I];
        for (slope, weights) in self.dy.iter().zip(self.weights.chunks_exact(inputs)) {
            let weights = &weights[i..i + I];
            for k in 0..I {
                sums[k] = lanes.mul_add(*slope, lanes.splat(weights[k]), sums[k]);
            }
        }
        self.dx[i..i + I].copy_from_slice(&sums);
    }
}
