//! Send groups of rows through a plan, forth and back.

use pulp::bytemuck::{Pod, cast_slice_mut};

use super::kernels::activation::{Activate, ActivateSlopes};
use super::kernels::avg_pool::{AvgPool, AvgPoolSlopes};
use super::kernels::conv::Conv;
use super::kernels::conv_slopes::{ConvSlopes, half_turn};
use super::kernels::conv_weights::ConvWeights;
use super::kernels::dense::Dense;
use super::kernels::dense_slopes::DenseSlopes;
use super::kernels::dense_weights::DenseWeights;
use super::kernels::frn::{Frn, FrnSlopes};
use super::kernels::group_norm::{GroupNorm, GroupNormSlopes};
use super::kernels::max_pool::{MaxPool, MaxPoolSlopes};
use super::kernels::shortcut::{Add, Pad, Way};
use super::kernels::turn::Turn;
use super::kernels::{GROUP, Lanes, Number};
use super::plan::NetPlan;
use super::steps::{Affine, Step, Tensor};
use crate::model::design::Design;

/// Up to eight rows; those from `count` on repeat the first.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) rows: [usize; GROUP],
    pub(super) count: usize,
}

/// What one thread needs to send rows through a net. Nothing in it means anything between calls.
#[derive(Debug, Default)]
pub(super) struct Room<T> {
    arena: Vec<T>,
    turned: Vec<T>,
    /// Parameters in the net's own numbers.
    pub(super) weights: Vec<T>,
    /// Gradients of a block of rows; at the other point, where there is one.
    pub(super) sums: [Vec<T>; 2],
}

/// Arenas start at a line of the cache. No bit depends on it.
const LINE: usize = 64;

impl<T: Number> Room<T> {
    pub(super) fn new(plan: &NetPlan) -> Self {
        let widest = plan.forth.iter().map(|step| match step {
            Step::Conv { p, .. } => p.weight.len(),
            Step::Dense { x, .. } => GROUP * plan.places[x.0].len(),
            _ => 0,
        });
        let zeros = |n: usize| vec![T::default(); n];
        Room {
            turned: zeros(widest.max().unwrap_or(0)),
            arena: zeros(plan.arena * GROUP + LINE / size_of::<T>()),
            weights: zeros(plan.dim()),
            sums: [zeros(plan.dim()), Vec::new()],
        }
    }
}

/// A plan on its way.
pub(super) struct Pass<'a, L: Lanes> {
    lanes: L,
    plan: &'a NetPlan,
    arena: &'a mut [L::V],
    turned: &'a mut [L::T],
}

/// The tensors of a step: those that it reads, and those that it writes.
fn tensors<'a, V: Pod, const N: usize>(
    plan: &NetPlan,
    arena: &'a mut [V],
    names: [Tensor; N],
) -> [&'a mut [V]; N] {
    match arena.get_disjoint_mut(names.map(|name| plan.places[name.0].clone())) {
        Ok(parts) => parts,
        Err(e) => unreachable!("tensors that are alive together overlap: {e}"),
    }
}

/// The gradients of weights and of biases.
fn both<T>(p: Affine, sums: &mut [T]) -> (&mut [T], &mut [T]) {
    sums[p.weight.from..p.bias.to].split_at_mut(p.weight.len())
}

impl<'a, L: Lanes> Pass<'a, L> {
    pub(super) fn new(lanes: L, plan: &'a NetPlan, room: &'a mut Room<L::T>) -> PassAndSums<'a, L> {
        let Room { arena, turned, weights, sums } = room;
        let skip = arena.as_ptr().align_offset(LINE).min(LINE / size_of::<L::T>());
        let arena = cast_slice_mut(&mut arena[skip..skip + plan.arena * GROUP]);
        (Pass { lanes, plan, arena, turned }, weights, sums)
    }

    /// What the net says of a group of rows.
    pub(super) fn forth(
        &mut self,
        design: &Design<L::T>,
        weights: &[L::T],
        group: Group,
    ) -> &mut [L::V] {
        let (lanes, plan) = (self.lanes, self.plan);
        let x = &mut self.arena[plan.places[0].clone()];
        lanes.run(Turn { lanes, design, rows: group.rows, x });
        for step in &plan.forth {
            self.step(step, weights, &mut []);
        }
        &mut self.arena[plan.places[plan.logits.0].clone()]
    }

    /// Outputs, and room for their slopes.
    pub(super) fn turning_point(&mut self) -> (&[L::V], &mut [L::V]) {
        let [logits, slopes] = tensors(self.plan, self.arena, [self.plan.logits, self.plan.slopes]);
        (logits, slopes)
    }

    /// `sums +=` the gradient by all parameters, from the slopes of the outputs.
    pub(super) fn back(&mut self, weights: &[L::T], sums: &mut [L::T]) {
        let plan = self.plan;
        for step in &plan.back {
            self.step(step, weights, sums);
        }
    }

    fn step(&mut self, step: &Step, weights: &[L::T], sums: &mut [L::T]) {
        let Pass { lanes, plan, arena, turned } = self;
        let lanes = *lanes;
        match *step {
            Step::Conv { at, p, x, y } => {
                let [x, y] = tensors(plan, arena, [x, y]);
                let (weights, bias) = (p.weight.of(weights), p.bias.of(weights));
                lanes.run(Conv { lanes, at, x, weights, bias, y });
            }
            Step::ConvSlopes { at, p, dy, dx } => {
                let [dy, dx] = tensors(plan, arena, [dy, dx]);
                let weights = p.weight.of(weights);
                if at.stride == 1 {
                    half_turn(at, weights, turned);
                    let (at, weights) = (at.back(), &turned[..weights.len()]);
                    lanes.run(Conv { lanes, at, x: dy, weights, bias: &[], y: dx });
                } else {
                    lanes.run(ConvSlopes { lanes, at, dy, weights, dx });
                }
            }
            Step::ConvWeights { at, p, tile, x, dy } => {
                let [x, dy] = tensors(plan, arena, [x, dy]);
                let (dw, db) = both(p, sums);
                lanes.run(ConvWeights { lanes, at, tile, x, dy, dw, db });
            }
            Step::Dense { p, x, y } => {
                let [x, y] = tensors(plan, arena, [x, y]);
                let (weights, bias) = (p.weight.of(weights), p.bias.of(weights));
                lanes.run(Dense { lanes, x, weights, bias, y });
            }
            Step::DenseSlopes { p, dy, dx } => {
                let [dy, dx] = tensors(plan, arena, [dy, dx]);
                lanes.run(DenseSlopes { lanes, dy, weights: p.weight.of(weights), dx });
            }
            Step::DenseWeights { p, x, dy } => {
                let [x, dy] = tensors(plan, arena, [x, dy]);
                let (dw, db) = both(p, sums);
                lanes.run(DenseWeights { lanes, x, dy, turned, dw, db });
            }
            Step::MaxPool { of, side, x, y, winners } => {
                let [x, y, winners] = tensors(plan, arena, [x, y, winners]);
                lanes.run(MaxPool { lanes, of, side, x, y, winners });
            }
            Step::MaxPoolSlopes { of, side, dy, winners, dx } => {
                let [dy, winners, dx] = tensors(plan, arena, [dy, winners, dx]);
                lanes.run(MaxPoolSlopes { lanes, of, side, dy, winners, dx });
            }
            Step::AvgPool { of, sides, x, y } => {
                let [x, y] = tensors(plan, arena, [x, y]);
                lanes.run(AvgPool { lanes, of, sides, x, y });
            }
            Step::AvgPoolSlopes { of, sides, dy, dx } => {
                let [dy, dx] = tensors(plan, arena, [dy, dx]);
                lanes.run(AvgPoolSlopes { lanes, of, sides, dy, dx });
            }
            Step::Activate { kind, x, y } => {
                if x != y {
                    let [x, y] = tensors(plan, arena, [x, y]);
                    y.copy_from_slice(x);
                }
                let [y] = tensors(plan, arena, [y]);
                lanes.run(Activate { lanes, kind, y });
            }
            Step::ActivateSlopes { kind, of, dy, dx } => {
                if dy != dx {
                    let [dy, dx] = tensors(plan, arena, [dy, dx]);
                    dx.copy_from_slice(dy);
                }
                let [of, dy] = tensors(plan, arena, [of, dx]);
                lanes.run(ActivateSlopes { lanes, kind, of, dy });
            }
            Step::Frn { of, p, x, y, rates } => {
                let [x, y, rates] = tensors(plan, arena, [x, y, rates]);
                let (scales, shifts) = (p.weight.of(weights), p.bias.of(weights));
                lanes.run(Frn { lanes, of, x, scales, shifts, y, rates });
            }
            Step::FrnSlopes { of, p, x, rates, dy, dx } => {
                let [x, rates, dy, dx] = tensors(plan, arena, [x, rates, dy, dx]);
                let (scales, (dscales, dshifts)) = (p.weight.of(weights), both(p, sums));
                lanes.run(FrnSlopes { lanes, of, x, rates, scales, dy, dx, dscales, dshifts });
            }
            Step::GroupNorm { of, groups, p, x, y, rates } => {
                let [x, y, rates] = tensors(plan, arena, [x, y, rates]);
                let (scales, shifts) = (p.weight.of(weights), p.bias.of(weights));
                lanes.run(GroupNorm { lanes, of, groups, x, scales, shifts, y, rates });
            }
            Step::GroupNormSlopes { of, groups, p, x, rates, dy, dx } => {
                let [x, rates, dy, dx] = tensors(plan, arena, [x, rates, dy, dx]);
                let (scales, (dscales, dshifts)) = (p.weight.of(weights), both(p, sums));
                lanes.run(GroupNormSlopes {
                    lanes,
                    of,
                    groups,
                    x,
                    rates,
                    scales,
                    dy,
                    dx,
                    dscales,
                    dshifts,
                });
            }
            Step::Add { x, y } => {
                let [x, y] = tensors(plan, arena, [x, y]);
                lanes.run(Add { lanes, x, y });
            }
            Step::Copy { x, y } => {
                let [x, y] = tensors(plan, arena, [x, y]);
                y.copy_from_slice(x);
            }
            Step::Pad { of, to, stride, x, y } => {
                let [x, y] = tensors(plan, arena, [x, y]);
                lanes.run(Pad { lanes, of, to, stride, way: Way::Forth { x, y } });
            }
            Step::PadSlopes { of, to, stride, dy, dx } => {
                let [dy, dx] = tensors(plan, arena, [dy, dx]);
                lanes.run(Pad { lanes, of, to, stride, way: Way::Back { dy, dx } });
            }
        }
    }
}

/// A pass, parameters in its numbers, and gradients of a block of rows.
pub(super) type PassAndSums<'a, L> =
    (Pass<'a, L>, &'a mut Vec<<L as Lanes>::T>, &'a mut [Vec<<L as Lanes>::T>; 2]);
