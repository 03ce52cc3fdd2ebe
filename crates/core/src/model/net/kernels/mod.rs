//! Compute the steps of a net on groups of eight rows, one kernel a file.
//!
//! **Rows lie in lanes.** Every number of a layer is eight rows wide, in the order channel, y, x;
//! weights are the same for all rows. A group that is not full is padded with copies of one of its
//! rows, whose slopes are zero.
//!
//! **The order of every sum is part of the model.** Products are fused with the addition that
//! follows (`mul_add`, rounded once), which is the same on every machine that has the instruction
//! and on every other one, slowly. With `fma(a, b, c) = a b + c`, rounded once:
//!
//! 1. *Outputs* of dense and convolutional layers start with the bias (0 where there is none) and
//!    add weight times input by ascending input channel, then y, then x. What lies outside of the
//!    image is left out.
//! 2. *Slopes of inputs* start with 0 and add weight times slope by ascending output channel, then
//!    y, then x.
//! 3. *Gradients of dense weights and biases* add slope times input row after row, over all groups
//!    of a block of [`BLOCK`] rows, starting with 0.
//! 4. *Gradients of convolution weights and biases*, of scales and of shifts start with 0 for each
//!    row of a group and add by ascending y, then x; below a largest-of-squares pool square by
//!    square, by ascending y and x of the squares (one position of a square has a slope). The eight
//!    rows are added as `((r0+r4)+(r2+r6))+((r1+r5)+(r3+r7))`, and groups in order, starting with
//!    0 at each block.
//! 5. *Blocks* are added, times the scale that was asked for, in 64 bits, in order. A difference of
//!    gradients is taken in 64 bits block by block.
//! 6. *Means* add by ascending y, then x (group norm: channel, y, x), starting with 0, and
//!    multiply by one over the count. Sums of squares and of products are fused.
//! 7. *Losses* of rows are computed and added in 64 bits, row after row.
//!
//! A kernel may work on several outputs at a time, in any order: each is summed by itself. So
//! registers of any width give the same bits.

pub(super) mod activation;
pub(super) mod avg_pool;
pub(super) mod conv;
pub(super) mod conv_slopes;
pub(super) mod conv_weights;
pub(super) mod dense;
pub(super) mod dense_slopes;
pub(super) mod dense_weights;
pub(super) mod frn;
pub(super) mod group_norm;
pub(super) mod lanes;
pub(super) mod loss;
pub(super) mod max_pool;
pub(super) mod shortcut;
pub(super) mod turn;
pub(super) mod widths;
pub(super) mod window;

pub(super) use lanes::{Job, Lanes, Number};

/// Eight rows go through a net together.
pub(super) const GROUP: usize = crate::simd::LANES;

/// So many rows are summed in the net's own numbers before they are added in 64 bits.
pub const BLOCK: usize = 64 * GROUP;
