//! Take every input to every output of a dense layer.

use pulp::NullaryFnOnce;

use super::Lanes;

/// `y = bias + weights x`.
pub(in super::super) struct Dense<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) x: &'a [L::V],
    /// Output by output.
    pub(in super::super) weights: &'a [L::T],
    pub(in super::super) bias: &'a [L::T],
    pub(in super::super) y: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for Dense<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let outputs = self.y.len();
        let mut o = 0;
        while L::HAS_16 && o + 12 <= outputs {
            self.tile::<12>(o);
            o += 12;
        }
        while L::HAS_8 && o + 4 <= outputs {
            self.tile::<4>(o);
            o += 4;
        }
        while o < outputs {
            self.tile::<1>(o);
            o += 1;
        }
    }
}

impl<L: Lanes> Dense<'_, L> {
    /// `O` outputs from `o` on.
    #[inline(always)]
    fn tile<const O: usize>(&mut self, o: usize) {
        let (lanes, inputs) = (self.lanes, self.x.len());
        let weights: [&[L::T]; O] =
            std::array::from_fn(|k| &self.weights[(o + k) * inputs..(o + k + 1) * inputs]);
        let mut sums: [L::V; O] = std::array::from_fn(|k| lanes.splat(self.bias[o + k]));
        for i in 0..inputs {
            for k in 0..O {
                sums[k] = lanes.mul_add(self.x[i], lanes.splat(weights[k][i]), sums[k]);
            }
        }
        self.y[o..o + O].copy_from_slice(&sums);
    }
}
