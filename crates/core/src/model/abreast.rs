//! Sum over rows at four or eight points side by side, one in each lane of a register: a row is
//! read once for all of them, and the sum at a point has the bits that it has alone.

use pulp::{Simd, WithSimd};

use super::design::Entries;
use super::{Block, Design, PointLoss, Rows};
use crate::ask::{Ask, Sum};
use crate::simd::{F8, LANES, run_with_registers};

/// From so many points on, several at a time are faster than one after the other.
const WORTH: usize = 2;

/// Up to so many points lie in half of the lanes.
pub(super) const HALF: usize = LANES / 2;

/// A model that sums at four or eight points at once: at as many as there are numbers for one
/// coordinate. Points and sums lie coordinate by coordinate, with the points side by side.
pub trait Abreast {
    /// How many parameters there are.
    fn coordinates(&self) -> usize;

    /// Whether it does so for this sum over these rows: values, gradients, or both.
    fn takes(&self, sum: &Sum<'_>, rows: Rows<'_>) -> bool;

    /// How many places of scratch gradients at so many points need.
    fn scratch_for(&self, points: usize) -> usize {
        let _ = points;
        0
    }

    /// `out += sum_{j in rows} U_ij(x)`, with a place for every point.
    fn add_values(&self, points: &[f64], rows: Rows<'_>, out: &mut [f64]);

    /// `out += scale * sum_{j in rows} grad U_ij(x)`, with a scale for every point.
    fn add_gradients(
        &self,
        points: &[f64],
        rows: Rows<'_>,
        scale: &[f64],
        out: &mut [f64],
        scratch: &mut [f64],
    );
}

/// Room for points and their sums.
#[derive(Debug, Default)]
pub struct Lanes {
    points: Vec<f64>,
    sums: Vec<f64>,
    scratch: Vec<f64>,
}

/// A point, what the sum there is multiplied by, and what it is added to.
pub(super) type Place<'a, 'b> = (&'a [f64], f64, &'b mut [f64]);

/// Points of one sum over the same rows, of one ask or of several that follow each other: the first
/// places are filled.
pub(super) struct Group<'a, 'b> {
    pub(super) places: [Option<Place<'a, 'b>>; LANES],
    pub(super) count: usize,
}

impl<'a, 'b> Group<'a, 'b> {
    pub(super) fn new() -> Self {
        Group { places: [const { None }; LANES], count: 0 }
    }

    /// Add a point, where there is a place.
    pub(super) fn add(&mut self, place: Place<'a, 'b>) {
        self.places[self.count] = Some(place);
        self.count += 1;
    }

    /// Whether these are faster together than one after the other.
    pub(super) fn is_worth(&self) -> bool {
        self.count >= WORTH
    }
}

impl Lanes {
    /// Answer these asks, several points at a time where the model does so, else by `alone`.
    pub(super) fn answer(
        &mut self,
        model: &dyn Abreast,
        asks: &mut [Ask<'_>],
        mut alone: impl FnMut(&mut Ask<'_>),
    ) {
        let d = model.coordinates();
        let alike = |a: &Ask<'_>, b: &Ask<'_>| {
            std::mem::discriminant(&a.sum) == std::mem::discriminant(&b.sum)
                && a.client == b.client
                && a.rows.is_same(b.rows)
        };
        for asks in asks.chunk_by_mut(alike) {
            let (sum, rows, client) = (asks[0].sum, asks[0].rows, asks[0].client);
            let points: usize = asks.iter().map(|ask| ask.sum.points().len() / d.max(1)).sum();
            if points < WORTH || !asks.iter().all(|ask| model.takes(&ask.sum, rows)) {
                asks.iter_mut().for_each(&mut alone);
                continue;
            }
            let width = sum.width(d);
            let mut places = asks.iter_mut().flat_map(|ask| {
                let (points, scale) = (ask.sum.points().chunks_exact(d), ask.scale);
                points.zip(ask.out.chunks_exact_mut(width)).map(move |(x, out)| (x, scale, out))
            });
            loop {
                let mut group = Group::new();
                places.by_ref().take(LANES).for_each(|place| group.add(place));
                if group.count == 0 {
                    break;
                }
                if group.is_worth() {
                    self.sum_up(model, &sum, rows, group);
                    continue;
                }
                for (x, scale, out) in group.places.into_iter().flatten() {
                    let sum = match sum {
                        Sum::Value { .. } => Sum::Value { x },
                        Sum::GradientAndValue { .. } => Sum::GradientAndValue { x },
                        _ => Sum::Gradient { x },
                    };
                    alone(&mut Ask { client, sum, rows, scale, out });
                }
            }
        }
    }

    /// Add the sums at the points of a group.
    pub(super) fn sum_up(
        &mut self,
        model: &dyn Abreast,
        sum: &Sum<'_>,
        rows: Rows<'_>,
        mut group: Group<'_, '_>,
    ) {
        let d = model.coordinates();
        let lanes = if group.count <= HALF { HALF } else { LANES };
        self.points.clear();
        self.points.resize(d * lanes, 0.0);
        let mut scale = [0.0; LANES];
        for (lane, (x, by, _)) in group.places.iter().flatten().enumerate() {
            scale[lane] = *by;
            for (coordinate, x) in self.points.chunks_exact_mut(lanes).zip(*x) {
                coordinate[lane] = *x;
            }
        }
        if let Sum::Value { .. } | Sum::GradientAndValue { .. } = sum {
            let mut values = [0.0; LANES];
            model.add_values(&self.points, rows, &mut values[..lanes]);
            for (lane, (_, scale, out)) in group.places.iter_mut().flatten().enumerate() {
                if let Some(value) = out.last_mut() {
                    *value += *scale * values[lane];
                }
            }
        }
        if let Sum::Value { .. } = sum {
            return;
        }
        self.sums.clear();
        self.sums.resize(d * lanes, 0.0);
        for (lane, (_, _, out)) in group.places.iter().flatten().enumerate() {
            for (sum, out) in self.sums.chunks_exact_mut(lanes).zip(&**out) {
                sum[lane] = *out;
            }
        }
        self.scratch.resize(model.scratch_for(lanes).max(self.scratch.len()), 0.0);
        let (scale, scratch) = (&scale[..lanes], &mut self.scratch[..]);
        model.add_gradients(&self.points, rows, scale, &mut self.sums, scratch);
        for (lane, (_, _, out)) in group.places.iter_mut().flatten().enumerate() {
            for (sum, out) in self.sums.chunks_exact(lanes).zip(&mut **out) {
                *out = sum[lane];
            }
        }
    }
}

/// `out += sum_{j in rows} loss(a_j . x, y_j)` at as many points as `out` has places.
pub(super) fn add_losses<L: PointLoss>(
    of: (&Design, &[f64], &L),
    points: &[f64],
    rows: Rows<'_>,
    out: &mut [f64],
) {
    if out.len() == HALF {
        run_half(Losses::<L, HALF> { of, points, rows, out });
    } else {
        run_with_registers(Losses::<L, LANES> { of, points, rows, out });
    }
}

struct Losses<'a, L, const N: usize> {
    of: (&'a Design, &'a [f64], &'a L),
    points: &'a [f64],
    rows: Rows<'a>,
    out: &'a mut [f64],
}

impl<L: PointLoss, const N: usize> WithSimd for Losses<'_, L, N> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Losses { of: (design, response, loss), points, rows, out } = self;
        for block in rows.blocks(design.rows()) {
            let (mut t, mut y) = ([[0.0; N]; LANES], [[0.0; N]; LANES]);
            for (k, row) in block.iter().enumerate() {
                t[k] = predictors(simd, design, *row, points);
                y[k] = [response[*row]; N];
            }
            let eights = t.as_flattened_mut().as_chunks_mut::<LANES>().0;
            for (t, y) in eights.iter_mut().zip(y.as_flattened().as_chunks::<LANES>().0) {
                loss.losses(t, y);
            }
            for t in &t[..block.len()] {
                for lane in 0..N {
                    out[lane] += t[lane];
                }
            }
        }
    }
}

/// `out += scale * sum_{j in rows} loss'(a_j . x, y_j) a_j` at as many points as there are scales.
pub(super) fn add_slopes<L: PointLoss>(
    of: (&Design, &[f64], &L),
    points: &[f64],
    rows: Rows<'_>,
    scale: &[f64],
    out: &mut [f64],
) {
    if let Some(scale) = scale.first_chunk::<HALF>().filter(|_| scale.len() == HALF) {
        run_half(Slopes { of, points, rows, scale, out });
    } else if let Some(scale) = scale.first_chunk::<LANES>() {
        run_with_registers(Slopes { of, points, rows, scale, out });
    }
}

struct Slopes<'a, L, const N: usize> {
    of: (&'a Design, &'a [f64], &'a L),
    points: &'a [f64],
    rows: Rows<'a>,
    scale: &'a [f64; N],
    out: &'a mut [f64],
}

impl<L: PointLoss, const N: usize> WithSimd for Slopes<'_, L, N> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Slopes { of: (design, response, loss), points, rows, scale, out } = self;
        let mut scales = [[0.0; N]; LANES];
        for k in 0..LANES {
            scales[k] = *scale;
        }
        for block in rows.blocks(design.rows()) {
            let (mut t, mut y) = ([[0.0; N]; LANES], [[0.0; N]; LANES]);
            for (k, row) in block.iter().enumerate() {
                t[k] = predictors(simd, design, *row, points);
                y[k] = [response[*row]; N];
            }
            // slopes are long chains of operations: those of all rows at once
            let eights = t.as_flattened_mut().as_chunks_mut::<LANES>().0;
            let (y, scales) = (y.as_flattened().as_chunks().0, scales.as_flattened().as_chunks().0);
            for ((t, y), scale) in eights.iter_mut().zip(y).zip(scales) {
                let (y, scale): (&F8, &F8) = (y, scale);
                for lane in 0..LANES {
                    t[lane] = scale[lane] * loss.slope(t[lane], y[lane]);
                }
            }
            add_rows(simd, design, &block, &t, out);
        }
    }
}

/// Run a kernel whose vectors have four numbers. What it does with arrays of eight, such as slopes,
/// has the widest registers all the same.
#[cfg(all(target_arch = "x86_64", not(feature = "narrow")))]
#[inline(always)]
fn run_half<K: WithSimd>(kernel: K) -> K::Output {
    use pulp::x86::{V3, V4};
    struct OfFour<K>(K, V3);
    impl<K: WithSimd> pulp::NullaryFnOnce for OfFour<K> {
        type Output = K::Output;
        #[inline(always)]
        fn call(self) -> K::Output {
            self.0.with_simd(self.1)
        }
    }
    match (V3::try_new(), V4::try_new()) {
        (Some(four), Some(wide)) => wide.vectorize(OfFour(kernel, four)),
        (Some(four), None) => four.vectorize(OfFour(kernel, four)),
        _ => kernel.with_simd(pulp::Scalar),
    }
}

/// Run a kernel whose vectors have four numbers.
#[cfg(not(all(target_arch = "x86_64", not(feature = "narrow"))))]
#[inline(always)]
fn run_half<K: WithSimd>(kernel: K) -> K::Output {
    run_with_registers(kernel)
}

/// The inner products of a row with some points, each with the bits of [`Design::row_dot`].
#[inline(always)]
fn predictors<S: Simd, const N: usize>(
    simd: S,
    design: &Design,
    row: usize,
    points: &[f64],
) -> [f64; N] {
    let mut sums = [0.0; N];
    let (points, _) = S::as_simd_f64s(points);
    let (out, _) = S::as_mut_simd_f64s(&mut sums);
    // the points fill so many registers
    let each = N / S::F64_LANES;
    for (place, out) in out.iter_mut().enumerate() {
        let plus = |sum: S::f64s, by: f64, point: S::f64s| {
            simd.add_f64s(sum, simd.mul_f64s(simd.splat_f64s(by), point))
        };
        match design.row(row) {
            Entries::Dense(cells) => {
                // eight interleaved parts, as in `linalg::dot`
                let zero = simd.splat_f64s(0.0);
                let (mut p0, mut p1, mut p2, mut p3) = (zero, zero, zero, zero);
                let (mut p4, mut p5, mut p6, mut p7) = (zero, zero, zero, zero);
                let (blocks, rest) = cells.as_chunks::<LANES>();
                let (whole, last) = points.split_at(blocks.len() * LANES * each);
                for (cells, points) in blocks.iter().zip(whole.chunks_exact(LANES * each)) {
                    p0 = plus(p0, cells[0], points[place]);
                    p1 = plus(p1, cells[1], points[each + place]);
                    p2 = plus(p2, cells[2], points[2 * each + place]);
                    p3 = plus(p3, cells[3], points[3 * each + place]);
                    p4 = plus(p4, cells[4], points[4 * each + place]);
                    p5 = plus(p5, cells[5], points[5 * each + place]);
                    p6 = plus(p6, cells[6], points[6 * each + place]);
                    p7 = plus(p7, cells[7], points[7 * each + place]);
                }
                let mut parts = [p0, p1, p2, p3, p4, p5, p6, p7];
                for ((part, cell), points) in parts.iter_mut().zip(rest).zip(last.chunks(each)) {
                    *part = plus(*part, *cell, points[place]);
                }
                let [p0, p1, p2, p3, p4, p5, p6, p7] = parts;
                let add = |a, b| simd.add_f64s(a, b);
                *out = add(add(add(p0, p4), add(p2, p6)), add(add(p1, p5), add(p3, p7)));
            }
            Entries::Sparse(columns, values) => {
                let mut sum = simd.splat_f64s(-0.0); // where sums of numbers begin
                for (column, value) in columns.iter().zip(values) {
                    sum = plus(sum, *value, points[*column as usize * each + place]);
                }
                *out = sum;
            }
        }
    }
    sums
}

/// `out += scale * row` at some points, one row after the other. Sums of eight dense rows stay in
/// registers.
#[inline(always)]
fn add_rows<S: Simd, const N: usize>(
    simd: S,
    design: &Design,
    block: &Block,
    scales: &[[f64; N]; LANES],
    out: &mut [f64],
) {
    let (out, _) = S::as_mut_simd_f64s(out);
    let (scales, _) = S::as_simd_f64s(scales.as_flattened());
    let each = N / S::F64_LANES;
    if let Some(rows) = eight_dense(design, block) {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
        let columns = r0.len();
        let [r1, r2, r3] = [&r1[..columns], &r2[..columns], &r3[..columns]];
        let [r4, r5, r6, r7] = [&r4[..columns], &r5[..columns], &r6[..columns], &r7[..columns]];
        for place in 0..each {
            let mut scale = [simd.splat_f64s(0.0); LANES];
            for k in 0..LANES {
                scale[k] = scales[k * each + place];
            }
            let plus = |sum: S::f64s, k: usize, by: f64| {
                simd.add_f64s(sum, simd.mul_f64s(scale[k], simd.splat_f64s(by)))
            };
            for (j, out) in out.chunks_exact_mut(each).enumerate().take(columns) {
                let sum = plus(plus(out[place], 0, r0[j]), 1, r1[j]);
                let sum = plus(plus(sum, 2, r2[j]), 3, r3[j]);
                let sum = plus(plus(sum, 4, r4[j]), 5, r5[j]);
                out[place] = plus(plus(sum, 6, r6[j]), 7, r7[j]);
            }
        }
        return;
    }
    for (row, scale) in block.iter().zip(scales.chunks_exact(each)) {
        let add = |out: &mut [S::f64s], by: f64| {
            for (out, scale) in out.iter_mut().zip(scale) {
                *out = simd.add_f64s(*out, simd.mul_f64s(*scale, simd.splat_f64s(by)));
            }
        };
        match design.row(*row) {
            Entries::Dense(cells) => {
                for (out, cell) in out.chunks_exact_mut(each).zip(cells) {
                    add(out, *cell);
                }
            }
            Entries::Sparse(columns, values) => {
                for (column, value) in columns.iter().zip(values) {
                    add(&mut out[*column as usize * each..][..each], *value);
                }
            }
        }
    }
}

/// The cells of eight rows, where a block has as many and they are dense.
#[inline(always)]
fn eight_dense<'a>(design: &'a Design, block: &Block) -> Option<[&'a [f64]; LANES]> {
    let mut rows: [&[f64]; LANES] = [&[]; LANES];
    if block.len() < LANES {
        return None;
    }
    for k in 0..LANES {
        let Entries::Dense(cells) = design.row(block[k]) else { return None };
        rows[k] = &cells[..design.columns()];
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::regression::tests::Bernoulli;
    use super::super::tests::normals;
    use super::super::{Glm, GlmFamily, Model, Regression, Single};
    use super::*;
    use crate::rng::ClientId;

    /// Dense and sparse rows of eleven columns, by both ways to write a regression.
    fn models() -> Vec<Arc<dyn Model>> {
        let (rows, d) = (21, 11);
        let dense = || Design::dense(normals(40, rows * d), d).unwrap();
        let entry = |j: u32, k: u32| ((j + 3 * k) % 11, f64::from(j) - 0.3 * f64::from(k));
        let sparse = || {
            let row = |j: u32| {
                let mut row: Vec<(u32, f64)> = (0..3).map(|k| entry(j, k)).collect();
                row.sort_by_key(|(column, _)| *column);
                row
            };
            Design::sparse((0..rows as u32).map(row), d).unwrap()
        };
        let binary: Vec<f64> = (0..rows).map(|j| f64::from(u8::from(j % 3 == 0))).collect();
        let mut all: Vec<Arc<dyn Model>> = Vec::new();
        for design in [dense(), sparse()] {
            let gaussian = GlmFamily::Gaussian { variance: 0.7 };
            all.push(Arc::new(Glm::new(design.clone(), binary.clone(), gaussian).unwrap()));
            let glm = Glm::new(design.clone(), binary.clone(), GlmFamily::Bernoulli).unwrap();
            all.push(Arc::new(glm));
            all.push(Arc::new(Regression::new(design, binary.clone(), Bernoulli).unwrap()));
        }
        all
    }

    #[test]
    fn several_points_are_told_what_each_is_told_alone() {
        let some = [0, 2, 3, 7, 11, 12, 13, 14, 20];
        for model in models() {
            let d = model.dim();
            for (count, rows) in (1..20).flat_map(|n| [(n, Rows::All), (n, Rows::Some(&some))]) {
                let points = normals(41, count * d);
                let value: fn(&[f64]) -> Sum<'_> = |x| Sum::Value { x };
                for sum in [value, |x| Sum::Gradient { x }, |x| Sum::GradientAndValue { x }] {
                    let width = sum(&points[..d]).width(d);
                    let scale = |k: usize| 1.0 + 0.3 * k as f64;
                    let (mut alone, mut together) =
                        (vec![0.25; count * width], vec![0.25; count * width]);
                    for (k, (x, out)) in points.chunks(d).zip(alone.chunks_mut(width)).enumerate() {
                        Single::new(&model).add(sum(x), rows, scale(k), out);
                    }
                    let asks = points.chunks(d).zip(together.chunks_mut(width)).enumerate();
                    let mut asks: Vec<Ask<'_>> = asks
                        .map(|(k, (x, out))| {
                            let (client, scale) = (ClientId(0), scale(k));
                            Ask { client, sum: sum(x), rows, scale, out }
                        })
                        .collect();
                    Arc::clone(&model).evaluator().answer(&mut asks).unwrap();
                    assert_eq!(together, alone, "{count} points of {model:?}");
                }
            }
        }
    }
}
