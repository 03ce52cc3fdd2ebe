//! Sum over rows at eight points side by side, one in each lane of a register: a row is read once
//! for all of them, and the sum at a point has the bits that it has alone.

use pulp::{Simd, WithSimd};

use super::design::Entries;
use super::{Design, PointLoss, Rows};
use crate::ask::{Ask, Sum};
use crate::simd::{F8, LANES};

/// From so many points on, eight at a time are faster than one after the other.
const WORTH: usize = 3;

/// A model that sums at eight points at once. Points and sums lie coordinate by coordinate, with
/// the eight points side by side; behind the last coordinate of a point come zeros, up to a whole
/// number of eights.
pub trait Abreast {
    /// How many parameters there are.
    fn coordinates(&self) -> usize;

    /// Whether it does so for this sum over these rows: values, gradients, or both.
    fn takes(&self, sum: &Sum<'_>, rows: Rows<'_>) -> bool;

    /// `out += sum_{j in rows} U_ij(x)`.
    fn add_values(&self, points: &[F8], rows: Rows<'_>, out: &mut F8);

    /// `out += scale * sum_{j in rows} grad U_ij(x)`, with a scale for every point.
    fn add_gradients(&self, points: &[F8], rows: Rows<'_>, scale: &F8, out: &mut [F8]);
}

/// Room for eight points and their sums.
#[derive(Debug, Default)]
pub struct Lanes {
    points: Vec<F8>,
    sums: Vec<F8>,
}

/// A point, what the sum there is multiplied by, and what it is added to.
type Place<'a, 'b> = (&'a [f64], f64, &'b mut [f64]);

/// Points of one sum over the same rows, of one ask or of several that follow each other.
struct Group<'a, 'b> {
    places: [Option<Place<'a, 'b>>; LANES],
    count: usize,
}

impl Lanes {
    /// Answer these asks, eight points at a time where the model does so, else by `alone`.
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
            if points < WORTH || !model.takes(&sum, rows) {
                asks.iter_mut().for_each(&mut alone);
                continue;
            }
            let width = sum.width(d);
            let mut places = asks.iter_mut().flat_map(|ask| {
                let (points, scale) = (ask.sum.points().chunks_exact(d), ask.scale);
                points.zip(ask.out.chunks_exact_mut(width)).map(move |(x, out)| (x, scale, out))
            });
            loop {
                let mut group = Group { places: [const { None }; LANES], count: 0 };
                for place in group.places.iter_mut() {
                    *place = places.next();
                    group.count += usize::from(place.is_some());
                }
                match group.count {
                    0 => break,
                    1..WORTH => {
                        for (x, scale, out) in group.places.into_iter().flatten() {
                            let sum = match sum {
                                Sum::Value { .. } => Sum::Value { x },
                                Sum::GradientAndValue { .. } => Sum::GradientAndValue { x },
                                _ => Sum::Gradient { x },
                            };
                            alone(&mut Ask { client, sum, rows, scale, out });
                        }
                    }
                    _ => self.sum_up(model, &sum, rows, group),
                }
            }
        }
    }

    fn sum_up(
        &mut self,
        model: &dyn Abreast,
        sum: &Sum<'_>,
        rows: Rows<'_>,
        mut group: Group<'_, '_>,
    ) {
        let d = model.coordinates();
        self.points.clear();
        self.points.resize(d.next_multiple_of(LANES), [0.0; LANES]);
        let mut scale = [0.0; LANES];
        for (lane, (x, by, _)) in group.places.iter().flatten().enumerate() {
            scale[lane] = *by;
            for (coordinate, x) in self.points.iter_mut().zip(*x) {
                coordinate[lane] = *x;
            }
        }
        if let Sum::Value { .. } | Sum::GradientAndValue { .. } = sum {
            let mut values = [0.0; LANES];
            model.add_values(&self.points, rows, &mut values);
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
        self.sums.resize(d, [0.0; LANES]);
        for (lane, (_, _, out)) in group.places.iter().flatten().enumerate() {
            for (sum, out) in self.sums.iter_mut().zip(&**out) {
                sum[lane] = *out;
            }
        }
        model.add_gradients(&self.points, rows, &scale, &mut self.sums);
        for (lane, (_, _, out)) in group.places.iter_mut().flatten().enumerate() {
            for (sum, out) in self.sums.iter().zip(&mut **out) {
                *out = sum[lane];
            }
        }
    }
}

/// `out += sum_{j in rows} loss(a_j . x, y_j)` at eight points.
pub(super) fn add_losses<L: PointLoss>(
    (design, response, loss): (&Design, &[f64], &L),
    points: &[F8],
    rows: Rows<'_>,
    out: &mut F8,
) {
    run(Losses { design, response, loss, points, rows, out });
}

struct Losses<'a, L> {
    design: &'a Design,
    response: &'a [f64],
    loss: &'a L,
    points: &'a [F8],
    rows: Rows<'a>,
    out: &'a mut F8,
}

impl<L: PointLoss> WithSimd for Losses<'_, L> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Losses { design, response, loss, points, rows, out } = self;
        let mut totals = *out;
        for block in rows.blocks(design.rows()) {
            for j in block.iter() {
                let (mut t, y) = (predictors(simd, design, *j, points), response[*j]);
                loss.losses(&mut t, &[y; LANES]);
                for lane in 0..LANES {
                    totals[lane] += t[lane];
                }
            }
        }
        *out = totals;
    }
}

/// `out += scale * sum_{j in rows} loss'(a_j . x, y_j) a_j` at eight points.
pub(super) fn add_slopes<L: PointLoss>(
    (design, response, loss): (&Design, &[f64], &L),
    points: &[F8],
    rows: Rows<'_>,
    scale: &F8,
    out: &mut [F8],
) {
    run(Slopes { design, response, loss, points, rows, scale, out });
}

struct Slopes<'a, L> {
    design: &'a Design,
    response: &'a [f64],
    loss: &'a L,
    points: &'a [F8],
    rows: Rows<'a>,
    scale: &'a F8,
    out: &'a mut [F8],
}

impl<L: PointLoss> WithSimd for Slopes<'_, L> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Slopes { design, response, loss, points, rows, scale, out } = self;
        for block in rows.blocks(design.rows()) {
            for j in block.iter() {
                let (mut t, y) = (predictors(simd, design, *j, points), response[*j]);
                for lane in 0..LANES {
                    t[lane] = scale[lane] * loss.slope(t[lane], y);
                }
                add_row(simd, design, *j, &t, out);
            }
        }
    }
}

/// Run a kernel with the widest vector registers this machine has.
#[inline(always)]
fn run<K: WithSimd>(kernel: K) -> K::Output {
    if cfg!(feature = "narrow") {
        return kernel.with_simd(pulp::Scalar);
    }
    pulp::Arch::new().dispatch(kernel)
}

/// The inner products of a row with eight points, each with the bits of [`Design::row_dot`].
#[inline(always)]
fn predictors<S: Simd>(simd: S, design: &Design, row: usize, points: &[F8]) -> F8 {
    let mut sums = [0.0; LANES];
    let (points, _) = S::as_simd_f64s(points.as_flattened());
    let (out, _) = S::as_mut_simd_f64s(&mut sums);
    // eight points fill so many registers
    let each = out.len();
    for (place, out) in out.iter_mut().enumerate() {
        let plus = |sum: S::f64s, by: f64, coordinate: usize| {
            let product = simd.mul_f64s(simd.splat_f64s(by), points[coordinate * each + place]);
            simd.add_f64s(sum, product)
        };
        match design.row(row) {
            Entries::Dense(cells) => {
                // eight interleaved parts, as in `linalg::dot`
                let zero = simd.splat_f64s(0.0);
                let (mut p0, mut p1, mut p2, mut p3) = (zero, zero, zero, zero);
                let (mut p4, mut p5, mut p6, mut p7) = (zero, zero, zero, zero);
                let (blocks, rest) = cells.as_chunks::<LANES>();
                for (number, cells) in blocks.iter().enumerate() {
                    let first = number * LANES;
                    p0 = plus(p0, cells[0], first);
                    p1 = plus(p1, cells[1], first + 1);
                    p2 = plus(p2, cells[2], first + 2);
                    p3 = plus(p3, cells[3], first + 3);
                    p4 = plus(p4, cells[4], first + 4);
                    p5 = plus(p5, cells[5], first + 5);
                    p6 = plus(p6, cells[6], first + 6);
                    p7 = plus(p7, cells[7], first + 7);
                }
                let first = blocks.len() * LANES;
                let mut parts = [p0, p1, p2, p3, p4, p5, p6, p7];
                for (k, (part, cell)) in parts.iter_mut().zip(rest).enumerate() {
                    *part = plus(*part, *cell, first + k);
                }
                let [p0, p1, p2, p3, p4, p5, p6, p7] = parts;
                let add = |a, b| simd.add_f64s(a, b);
                *out = add(add(add(p0, p4), add(p2, p6)), add(add(p1, p5), add(p3, p7)));
            }
            Entries::Sparse(columns, values) => {
                let mut sum = simd.splat_f64s(-0.0); // where sums of numbers begin
                for (column, value) in columns.iter().zip(values) {
                    sum = plus(sum, *value, *column as usize);
                }
                *out = sum;
            }
        }
    }
    sums
}

/// `out += scale * row` at eight points.
#[inline(always)]
fn add_row<S: Simd>(simd: S, design: &Design, row: usize, scale: &F8, out: &mut [F8]) {
    let (scale, _) = S::as_simd_f64s(scale);
    let (out, _) = S::as_mut_simd_f64s(out.as_flattened_mut());
    let add = |out: &mut [S::f64s], by: f64| {
        for (out, scale) in out.iter_mut().zip(scale) {
            *out = simd.add_f64s(*out, simd.mul_f64s(*scale, simd.splat_f64s(by)));
        }
    };
    match design.row(row) {
        Entries::Dense(cells) => {
            for (out, cell) in out.chunks_exact_mut(scale.len()).zip(cells) {
                add(out, *cell);
            }
        }
        Entries::Sparse(columns, values) => {
            for (column, value) in columns.iter().zip(values) {
                add(&mut out[*column as usize * scale.len()..][..scale.len()], *value);
            }
        }
    }
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
    fn eight_points_are_told_what_each_is_told_alone() {
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
