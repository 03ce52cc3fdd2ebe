//! Sum the gradients of a dense layer's weights and biases, row after row.

use pulp::NullaryFnOnce;
use pulp::bytemuck::cast_slice;

use super::{GROUP, Lanes};
use crate::model::real::Real;

/// `dw += dy x'`, `db += dy`.
pub(in super::super) struct DenseWeights<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) dy: &'a [L::V],
    /// Room for the inputs, row by row.
    pub(in super::super) turned: &'a mut [L::T],
    pub(in super::super) dw: &'a mut [L::T],
    pub(in super::super) db: &'a mut [L::T],
}

/// So many vectors of inputs are summed at a time.
const VECTORS: usize = 2;

impl<L: Lanes> NullaryFnOnce for DenseWeights<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let inputs = self.x.len();
        for (i, vector) in self.x.iter().enumerate() {
            let rows = self.lanes.array(*vector);
            for row in 0..GROUP {
                self.turned[row * inputs + i] = rows[row];
            }
        }
        for (slopes, sum) in self.dy.iter().zip(&mut *self.db) {
            for slope in self.lanes.array(*slopes) {
                *sum += slope;
            }
        }
        let outputs = self.dy.len();
        let mut o = 0;
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

impl<L: Lanes> DenseWeights<'_, L> {
    /// The weights of `O` outputs from `o` on: eight inputs lie in a vector here.
    #[inline(always)]
    fn tile<const O: usize>(&mut self, o: usize) {
        let (lanes, inputs) = (self.lanes, self.x.len());
        let slopes: [[L::T; GROUP]; O] = std::array::from_fn(|k| lanes.array(self.dy[o + k]));
        let width = VECTORS * GROUP;
        let mut i = 0;
        while i + width <= inputs {
            let mut sums = [[lanes.zero(); VECTORS]; O];
            for k in 0..O {
                let from = (o + k) * inputs + i;
                sums[k].copy_from_slice(cast_slice(&self.dw[from..from + width]));
            }
            for row in 0..GROUP {
                let from = row * inputs + i;
                let x: &[L::V] = cast_slice(&self.turned[from..from + width]);
                let x: [L::V; VECTORS] = std::array::from_fn(|n| x[n]);
                for k in 0..O {
                    let slope = lanes.splat(slopes[k][row]);
                    for n in 0..VECTORS {
                        sums[k][n] = lanes.mul_add(slope, x[n], sums[k][n]);
                    }
                }
            }
            for k in 0..O {
                let from = (o + k) * inputs + i;
                self.dw[from..from + width].copy_from_slice(cast_slice(&sums[k]));
            }
            i += width;
        }
        for i in i..inputs {
            for k in 0..O {
                let slot = &mut self.dw[(o + k) * inputs + i];
                for row in 0..GROUP {
                    *slot = slopes[k][row].fused(self.turned[row * inputs + i], *slot);
                }
            }
        }
    }
}
