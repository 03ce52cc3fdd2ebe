//! Take the input of residual layers past them.

use pulp::NullaryFnOnce;

use super::super::plan::Shape;
use super::Lanes;

/// `y += x`.
pub(in super::super) struct Add<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) x: &'a [L::V],
    pub(in super::super) y: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for Add<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y = self.lanes.zip(*y, *x, |y, x| y + x);
        }
    }
}

/// Every `stride`th row and column, and channels of zeros behind the others; or back.
pub(in super::super) struct Pad<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) of: Shape,
    pub(in super::super) to: Shape,
    pub(in super::super) stride: usize,
    pub(in super::super) way: Way<'a, L>,
}

/// Forth or back.
pub(in super::super) enum Way<'a, L: Lanes> {
    Forth { x: &'a [L::V], y: &'a mut [L::V] },
    Back { dy: &'a [L::V], dx: &'a mut [L::V] },
}

impl<L: Lanes> NullaryFnOnce for Pad<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Pad { lanes, of, to, stride, way } = self;
        let pairs = (0..of.channels).flat_map(|c| {
            (0..to.area()).map(move |k| {
                let (i, j) = (stride * (k / to.width), stride * (k % to.width));
                (c * of.area() + i * of.width + j, c * to.area() + k)
            })
        });
        match way {
            Way::Forth { x, y } => {
                y.fill(lanes.zero());
                pairs.for_each(|(from, at)| y[at] = x[from]);
            }
            Way::Back { dy, dx } => {
                dx.fill(lanes.zero());
                pairs.for_each(|(from, at)| dx[from] = dy[at]);
            }
        }
    }
}
