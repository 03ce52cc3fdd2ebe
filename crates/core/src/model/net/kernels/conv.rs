//! Convolve images: several output channels and columns at a time, each in a register.

use std::ops::Range;

use pulp::NullaryFnOnce;

use super::Lanes;
use super::window::Window;

/// `y = bias + weights * x`.
pub(in super::super) struct Conv<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) at: Window,
    pub(in super::super) x: &'a [L::V],
    /// Output channel, input channel, y, x.
    pub(in super::super) weights: &'a [L::T],
    /// One for each output channel, or none.
    pub(in super::super) bias: &'a [L::T],
    pub(in super::super) y: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for Conv<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let at = self.at;
        let channels = at.output.channels;
        let whole = at.whole(at.input.width, at.output.width);
        let mut o = 0;
        while L::HAS_32 && o + 4 <= channels && !channels.is_multiple_of(3) {
            self.inner::<4>(o, &whole);
            o += 4;
        }
        while L::HAS_16 && o + 3 <= channels {
            self.inner::<3>(o, &whole);
            o += 3;
        }
        while o < channels {
            self.inner::<1>(o, &whole);
            o += 1;
        }
        if whole.len() == at.output.width {
            return;
        }
        // One column needs many channels to keep the machine busy.
        let mut o = 0;
        while L::HAS_32 && o + 8 <= channels {
            self.edges::<8>(o, &whole);
            o += 8;
        }
        while L::HAS_16 && o + 6 <= channels {
            self.edges::<6>(o, &whole);
            o += 6;
        }
        while o < channels {
            self.edges::<1>(o, &whole);
            o += 1;
        }
    }
}

impl<L: Lanes> Conv<'_, L> {
    /// Columns whose kernel lies inside of the image.
    #[inline(always)]
    fn inner<const O: usize>(&mut self, o: usize, whole: &Range<usize>) {
        let every = 0..self.at.kernel;
        for i in 0..self.at.output.height {
            let us = self.at.inside(i, self.at.input.height);
            let mut j = whole.start;
            if L::HAS_32 {
                while whole.len().is_multiple_of(6) && j < whole.end {
                    self.tile::<O, 6>(o, i, j, &us, &every);
                    j += 6;
                }
                while whole.len().is_multiple_of(5) && j < whole.end {
                    self.tile::<O, 5>(o, i, j, &us, &every);
                    j += 5;
                }
            }
            while L::HAS_8 && j + 4 <= whole.end {
                self.tile::<O, 4>(o, i, j, &us, &every);
                j += 4;
            }
            while j < whole.end {
                self.tile::<O, 1>(o, i, j, &us, &every);
                j += 1;
            }
        }
    }

    /// The other columns.
    #[inline(always)]
    fn edges<const O: usize>(&mut self, o: usize, whole: &Range<usize>) {
        for i in 0..self.at.output.height {
            let us = self.at.inside(i, self.at.input.height);
            for j in (0..whole.start).chain(whole.end..self.at.output.width) {
                let vs = self.at.inside(j, self.at.input.width);
                self.tile::<O, 1>(o, i, j, &us, &vs);
            }
        }
    }

    /// `O` output channels from `o` on, in row `i` and `W` columns from `j` on, by this part of the
    /// kernel.
    #[inline(always)]
    fn tile<const O: usize, const W: usize>(
        &mut self,
        o: usize,
        i: usize,
        j: usize,
        us: &Range<usize>,
        vs: &Range<usize>,
    ) {
        let (lanes, at) = (self.lanes, self.at);
        let each = at.input.channels * at.kernel * at.kernel;
        let weights: [&[L::T]; O] =
            std::array::from_fn(|k| &self.weights[(o + k) * each..(o + k + 1) * each]);
        let mut sums = [[lanes.zero(); W]; O];
        if !self.bias.is_empty() {
            for k in 0..O {
                sums[k] = [lanes.splat(self.bias[o + k]); W];
            }
        }
        for c in 0..at.input.channels {
            for u in us.clone() {
                let row = (c * at.input.height + i * at.stride + u - at.pad) * at.input.width;
                let row = &self.x[row..row + at.input.width];
                let first = (c * at.kernel + u) * at.kernel;
                for v in vs.clone() {
                    let from = j * at.stride + v - at.pad;
                    let seen: [L::V; W] = if at.stride == 1 {
                        let part = &row[from..from + W];
                        std::array::from_fn(|k| part[k])
                    } else {
                        std::array::from_fn(|k| row[from + k * at.stride])
                    };
                    for k in 0..O {
                        let weight = lanes.splat(weights[k][first + v]);
                        for w in 0..W {
                            sums[k][w] = lanes.mul_add(seen[w], weight, sums[k][w]);
                        }
                    }
                }
            }
        }
        for k in 0..O {
            let from = ((o + k) * at.output.height + i) * at.output.width + j;
            self.y[from..from + W].copy_from_slice(&sums[k]);
        }
    }
}
