//! Turn rows so that they lie in lanes.

use pulp::NullaryFnOnce;

use super::{GROUP, Lanes};
use crate::model::design::{Design, Entries};

/// Eight rows of a table, number by number.
pub(in super::super) struct Turn<'a, L: Lanes> {
    pub(in super::super) lanes: L,
    pub(in super::super) design: &'a Design<L::T>,
    pub(in super::super) rows: [usize; GROUP],
    pub(in super::super) x: &'a mut [L::V],
}

impl<L: Lanes> NullaryFnOnce for Turn<'_, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Turn { lanes, design, rows, x } = self;
        x.fill(lanes.zero());
        let x: &mut [[L::T; GROUP]] = pulp::bytemuck::cast_slice_mut(x);
        for (lane, row) in rows.into_iter().enumerate() {
            match design.row(row) {
                Entries::Dense(values) => {
                    for (slot, value) in x.iter_mut().zip(values) {
                        slot[lane] = *value;
                    }
                }
                Entries::Sparse(columns, values) => {
                    for (column, value) in columns.iter().zip(values) {
                        x[*column as usize][lane] = *value;
                    }
                }
            }
        }
    }
}
