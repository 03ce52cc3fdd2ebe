//! Sum over rows at eight points side by side, one in each lane of a register: a row is read once
//! for all of them, and the sum at a point has the bits that it has alone.

use super::design::Entries;
use super::{Design, PointLoss, Rows};
use crate::ask::{Ask, Sum};
use crate::simd::{F8, Kernel, LANES, run_vectorised};

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

/// Points of one sum over the same rows, of one ask or of several that follow each other.
struct Group<'a, 'b> {
    places: [Option<(&'a [f64], f64, &'b mut [f64])>; LANES],
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
    run_vectorised(Losses { design, response, loss, points, rows, out });
}

struct Losses<'a, L> {
    design: &'a Design,
    response: &'a [f64],
    loss: &'a L,
    points: &'a [F8],
    rows: Rows<'a>,
    out: &'a mut F8,
}

impl<L: PointLoss> Kernel for Losses<'_, L> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Losses { design, response, loss, points, rows, out } = self;
        let mut totals = *out;
        for block in rows.blocks(design.rows()) {
            for j in block.iter() {
                let (t, y) = (predictors(design, *j, points), response[*j]);
                for lane in 0..LANES {
                    totals[lane] += loss.loss(t[lane], y);
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
    run_vectorised(Slopes { design, response, loss, points, rows, scale, out });
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

impl<L: PointLoss> Kernel for Slopes<'_, L> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Slopes { design, response, loss, points, rows, scale, out } = self;
        for block in rows.blocks(design.rows()) {
            for j in block.iter() {
                let (mut t, y) = (predictors(design, *j, points), response[*j]);
                for lane in 0..LANES {
                    t[lane] = scale[lane] * loss.slope(t[lane], y);
                }
                add_row(design, *j, &t, out);
            }
        }
    }
}

/// The inner products of a row with eight points, each with the bits of [`Design::row_dot`].
#[inline(always)]
fn predictors(design: &Design, row: usize, points: &[F8]) -> F8 {
    match design.row(row) {
        Entries::Dense(cells) => {
            // eight interleaved parts, as in `linalg::dot`
            let mut parts = [[0.0; LANES]; LANES];
            let (blocks, rest) = cells.as_chunks::<LANES>();
            let (points, _) = points.as_chunks::<LANES>();
            for (cells, points) in blocks.iter().zip(points) {
                add_products(cells, points, &mut parts);
            }
            if let (false, Some(points)) = (rest.is_empty(), points.get(blocks.len())) {
                let mut cells = [0.0; LANES];
                cells[..rest.len()].copy_from_slice(rest);
                add_products(&cells, points, &mut parts);
            }
            let mut sums = [0.0; LANES];
            let [p0, p1, p2, p3, p4, p5, p6, p7] = parts;
            for k in 0..LANES {
                sums[k] = ((p0[k] + p4[k]) + (p2[k] + p6[k])) + ((p1[k] + p5[k]) + (p3[k] + p7[k]));
            }
            sums
        }
        Entries::Sparse(columns, values) => {
            let mut sums = [-0.0; LANES]; // where sums of numbers begin
            for (column, value) in columns.iter().zip(values) {
                let point = &points[*column as usize];
                for lane in 0..LANES {
                    sums[lane] += value * point[lane];
                }
            }
            sums
        }
    }
}

#[inline(always)]
fn add_products(cells: &F8, points: &[F8; LANES], parts: &mut [F8; LANES]) {
    for part in 0..LANES {
        for lane in 0..LANES {
            parts[part][lane] += cells[part] * points[part][lane];
        }
    }
}

/// `out += scale * row` at eight points.
#[inline(always)]
fn add_row(design: &Design, row: usize, scale: &F8, out: &mut [F8]) {
    match design.row(row) {
        Entries::Dense(cells) => {
            for (cell, out) in cells.iter().zip(out) {
                for lane in 0..LANES {
                    out[lane] += scale[lane] * cell;
                }
            }
        }
        Entries::Sparse(columns, values) => {
            for (column, value) in columns.iter().zip(values) {
                let out = &mut out[*column as usize];
                for lane in 0..LANES {
                    out[lane] += scale[lane] * value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::regression::tests::Bernoulli;
    use super::super::tests::normals;
    use super::super::{Family, Glm, Model, Regression, Single};
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
            let gaussian = Family::Gaussian { variance: 0.7 };
            all.push(Arc::new(Glm::new(design.clone(), binary.clone(), gaussian).unwrap()));
            let glm = Glm::new(design.clone(), binary.clone(), Family::Bernoulli).unwrap();
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
