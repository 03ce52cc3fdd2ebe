//! Sum the gradients of a convolution's weights and biases over positions and rows.

use pulp::NullaryFnOnce;

use super::Lanes;
use super::window::Window;

/// `dw += dy * x`, `db += dy`.
pub(in super::super) struct ConvWeights<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) at: Window,
    /// The side of the squares that the outputs were pooled in; 1 where they were not.
    pub(in super::super) tile: usize,
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) dy: &'a [L::V],
    pub(in super::super) dw: &'a mut [L::T],
    /// One for each output channel, or none.
    pub(in super::super) db: &'a mut [L::T],
}

impl<L: Lanes> NullaryFnOnce for ConvWeights<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        self.biases();
        if L::HAS_16 {
            match (self.at.kernel, self.tile) {
                (5, 2) => return self.columns::<5, 2>(),
                (5, _) => return self.columns::<5, 0>(),
                (3, _) => return self.columns::<3, 0>(),
                _ => {}
            }
        }
        self.columns::<1, 0>();
    }
}

impl<L: Lanes> ConvWeights<'_, L> {
    #[inline(always)]
    fn biases(&mut self) {
        let (lanes, to) = (self.lanes, self.at.output);
        for (slopes, sum) in self.dy.chunks_exact(to.area()).zip(&mut *self.db) {
            let mut rows = lanes.zero();
            for ti in (0..to.height).step_by(self.tile) {
                for tj in (0..to.width).step_by(self.tile) {
                    for i in ti..ti + self.tile {
                        for j in tj..tj + self.tile {
                            rows = lanes.zip(rows, slopes[i * to.width + j], |a, b| a + b);
                        }
                    }
                }
            }
            *sum += lanes.tree(rows);
        }
    }

    /// `V` columns of the kernel at a time; squares of side `T`, or whatever it is if that is 0.
    #[inline(always)]
    fn columns<const V: usize, const T: usize>(&mut self) {
        let channels = self.at.output.channels;
        for v in (0..self.at.kernel).step_by(V) {
            let mut o = 0;
            if L::HAS_32 {
                while o + 4 <= channels && channels != 6 {
                    self.channels::<4, V, T>(o, v);
                    o += 4;
                }
                while o + 3 <= channels {
                    self.channels::<3, V, T>(o, v);
                    o += 3;
                }
            }
            while L::HAS_16 && !L::HAS_32 && o + 2 <= channels {
                self.channels::<2, V, T>(o, v);
                o += 2;
            }
            while o < channels {
                self.channels::<1, V, T>(o, v);
                o += 1;
            }
        }
    }

    #[inline(always)]
    fn channels<const O: usize, const V: usize, const T: usize>(&mut self, o: usize, v: usize) {
        let (lanes, at) = (self.lanes, self.at);
        let (from, to) = (at.input, at.output);
        let tile = if T == 0 { self.tile } else { T };
        let slopes: [&[L::V]; O] =
            std::array::from_fn(|k| &self.dy[(o + k) * to.area()..(o + k + 1) * to.area()]);
        let whole = at.whole(from.width, to.width);
        for c in 0..from.channels {
            let image = &self.x[c * from.area()..(c + 1) * from.area()];
            for u in 0..at.kernel {
                let mut sums = [[lanes.zero(); V]; O];
                for ti in (0..to.height).step_by(tile) {
                    for tj in (0..to.width).step_by(tile) {
                        let inside = whole.start <= tj && tj + tile <= whole.end;
                        for i in ti..ti + tile {
                            let y = i * at.stride + u;
                            if y < at.pad || y - at.pad >= from.height {
                                continue;
                            }
                            let row = &image[(y - at.pad) * from.width..][..from.width];
                            for j in tj..tj + tile {
                                let x = j * at.stride + v;
                                let seen = if inside {
                                    row[x - at.pad..].first_chunk::<V>().copied()
                                } else {
                                    let zero = lanes.zero();
                                    let at = |k: usize| row.get((x + k).wrapping_sub(at.pad));
                                    Some(std::array::from_fn(|k| at(k).copied().unwrap_or(zero)))
                                };
                                let Some(seen) = seen else { continue };
                                for k in 0..O {
                                    let slope = slopes[k][i * to.width + j];
                                    for w in 0..V {
                                        sums[k][w] = lanes.mul_add(seen[w], slope, sums[k][w]);
                                    }
                                }
                            }
                        }
                    }
                }
                for k in 0..O {
                    let first = (((o + k) * from.channels + c) * at.kernel + u) * at.kernel + v;
                    for (slot, rows) in self.dw[first..first + V].iter_mut().zip(sums[k]) {
                        *slot += lanes.tree(rows);
                    }
                }
            }
        }
    }
}
