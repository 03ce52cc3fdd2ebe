//! Multiply by a symmetric matrix, and walk along its quadratic form.

use pulp::{Simd, WithSimd};

use crate::simd::{F8, LANES, run_with_registers};
use crate::step::noise_scale;

/// Eight numbers in one line of the cache: a register that is read across two takes twice as long.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Eight(F8);

/// A symmetric matrix. Where a column needs a few registers, the last of them starts earlier, so
/// that it is full too, and what it shares with the one before is computed twice; other columns are
/// filled up.
#[derive(Clone, Debug)]
pub(super) struct SymmetricMatrix {
    eights: Vec<Eight>,
    /// Eights in a column.
    height: usize,
    columns: usize,
}

impl SymmetricMatrix {
    pub(super) fn new(matrix: &[f64], d: usize) -> Self {
        let height = d.div_ceil(LANES);
        let mut eights = Vec::with_capacity(d * height);
        for column in matrix.chunks_exact(d.max(1)) {
            for n in 0..height {
                let first = if is_short(d) { (n * LANES).min(d - LANES) } else { n * LANES };
                let mut eight = [0.0; LANES];
                eight.iter_mut().zip(&column[first..]).for_each(|(place, value)| *place = *value);
                eights.push(Eight(eight));
            }
        }
        SymmetricMatrix { eights, height, columns: d }
    }

    /// Whether [`walk_in_registers`] works, and two at once.
    pub(super) fn is_short(&self) -> bool {
        is_short(self.columns)
    }
}

/// Whether columns, and so vectors to be multiplied, fill one register and have room in a few.
#[inline(always)]
fn is_short(d: usize) -> bool {
    (LANES..=3 * LANES).contains(&d)
}

/// `out += scale * matrix (x - z)`. Every sum is a chain of fused products, column by column.
pub(super) fn add_product(
    matrix: &SymmetricMatrix,
    x: &[f64],
    z: &[f64],
    scale: f64,
    out: &mut [f64],
    moved: &mut [f64],
) {
    run_with_registers(Product { matrix, x, z, scale, out, moved });
}

struct Product<'a> {
    matrix: &'a SymmetricMatrix,
    x: &'a [f64],
    z: &'a [f64],
    scale: f64,
    out: &'a mut [f64],
    moved: &'a mut [f64],
}

impl WithSimd for Product<'_> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.matrix.height {
            1 if self.matrix.is_short() => self.short::<S, 1>(simd),
            2 => self.short::<S, 2>(simd),
            3 => self.short::<S, 3>(simd),
            _ => self.long(simd),
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn short<S: Simd, const N: usize>(self, simd: S) {
        let Product { matrix, x, z, scale, out, .. } = self;
        let (x, z): ([_; N], [_; N]) = (load(simd, x), load(simd, z));
        let mut eights: [Registers<S>; N] = load(simd, out);
        let [sums] = product(simd, [matrix], [&x], [&z], [simd.splat_f64s(scale)]);
        for (eight, sum) in eights.iter_mut().zip(&sums) {
            for h in 0..parts::<S>() {
                eight[h] = simd.add_f64s(eight[h], sum[h]);
            }
        }
        store::<S, N>(&eights, out);
    }

    #[inline(always)]
    fn long<S: Simd>(self, simd: S) {
        let Product { matrix, x, z, scale, out, moved } = self;
        for ((moved, x), z) in moved.iter_mut().zip(x).zip(z) {
            *moved = scale * (x - z);
        }
        let mut first = 0;
        for rows in out.chunks_mut(TILE * LANES) {
            match matrix.height - first {
                1 => add_tile::<S, 1>(simd, matrix, first, moved, rows),
                2 => add_tile::<S, 2>(simd, matrix, first, moved, rows),
                3 => add_tile::<S, 3>(simd, matrix, first, moved, rows),
                4 => add_tile::<S, 4>(simd, matrix, first, moved, rows),
                5 => add_tile::<S, 5>(simd, matrix, first, moved, rows),
                _ => add_tile::<S, TILE>(simd, matrix, first, moved, rows),
            }
            first += TILE;
        }
    }
}

/// Eights of rows whose sums stay in registers where columns are long: a sum waits four cycles for
/// the one before, and there are sixteen registers at the least.
const TILE: usize = 6;

/// The registers of an eight: as many as it fills, the others unused.
type Registers<S> = [<S as Simd>::f64s; LANES];

/// How many registers an eight fills.
#[inline(always)]
const fn parts<S: Simd>() -> usize {
    LANES / S::F64_LANES
}

/// `scale matrix (x - z)` of `K` clients, where columns are short. It goes column by column, which
/// needs no sums across a register, and from one client to the next and back, since a sum waits
/// for the one before.
#[inline(always)]
fn product<S: Simd, const K: usize, const N: usize>(
    simd: S,
    matrices: [&SymmetricMatrix; K],
    x: [&[Registers<S>; N]; K],
    z: [&[Registers<S>; N]; K],
    scale: [S::f64s; K],
) -> [[Registers<S>; N]; K] {
    let columns = matrices[0].columns.min(N * LANES);
    let mut by = [[[0.0; LANES]; N]; K];
    for k in 0..K {
        let mut differences = [[simd.splat_f64s(0.0); LANES]; N];
        for n in 0..N {
            for h in 0..parts::<S>() {
                let moved = simd.sub_f64s(x[k][n][h], z[k][n][h]);
                differences[n][h] = simd.mul_f64s(scale[k], moved);
            }
        }
        store::<S, N>(&differences, &mut by[k].as_flattened_mut()[..columns]);
    }
    let mut sums = [[[simd.splat_f64s(0.0); LANES]; N]; K];
    let mut of = [&[][..]; K];
    for k in 0..K {
        of[k] = &matrices[k].eights.as_chunks::<N>().0[..columns];
    }
    for j in 0..columns {
        for k in 0..K {
            let by = simd.splat_f64s(by[k].as_flattened()[j]);
            add_column(simd, by, &of[k][j], &mut sums[k]);
        }
    }
    sums
}

/// `out += matrix v`, for the rows of `N` eights from number `first` on, where columns are long.
#[inline(always)]
fn add_tile<S: Simd, const N: usize>(
    simd: S,
    matrix: &SymmetricMatrix,
    first: usize,
    v: &[f64],
    out: &mut [f64],
) {
    let mut sums = [[simd.splat_f64s(0.0); LANES]; N];
    for (by, column) in v.iter().zip(matrix.eights.chunks_exact(matrix.height)) {
        if let Some(tile) = column[first..].first_chunk::<N>() {
            add_column(simd, simd.splat_f64s(*by), tile, &mut sums);
        }
    }
    for (out, sum) in out.chunks_mut(LANES).zip(&sums) {
        let mut eight = [0.0; LANES];
        S::as_mut_simd_f64s(&mut eight).0.copy_from_slice(&sum[..parts::<S>()]);
        for (out, sum) in out.iter_mut().zip(eight) {
            *out += sum;
        }
    }
}

#[inline(always)]
fn add_column<S: Simd, const N: usize>(
    simd: S,
    by: S::f64s,
    column: &[Eight; N],
    sums: &mut [Registers<S>; N],
) {
    for n in 0..N {
        let eight = S::as_simd_f64s(&column[n].0).0;
        for h in 0..parts::<S>() {
            sums[n][h] = simd.mul_add_f64s(by, eight[h], sums[n][h]);
        }
    }
}

/// A vector as short columns are kept: its last eight numbers come last.
#[inline(always)]
fn load<S: Simd, const N: usize>(simd: S, vector: &[f64]) -> [Registers<S>; N] {
    let mut eights = [[simd.splat_f64s(0.0); LANES]; N];
    for n in 0..N {
        let first = (n * LANES).min(vector.len() - LANES);
        let eight = S::as_simd_f64s(&vector[first..first + LANES]).0;
        eights[n][..parts::<S>()].copy_from_slice(eight);
    }
    eights
}

/// The other way round.
#[inline(always)]
fn store<S: Simd, const N: usize>(eights: &[Registers<S>; N], vector: &mut [f64]) {
    for n in 0..N {
        let first = (n * LANES).min(vector.len() - LANES);
        let eight = S::as_mut_simd_f64s(&mut vector[first..first + LANES]).0;
        eight.copy_from_slice(&eights[n][..parts::<S>()]);
    }
}

/// Some steps of one size in a row.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    /// What is subtracted from the parameter, and what a drift starts from, if anything.
    pub(super) z: &'a [f64],
    pub(super) base: Option<&'a [f64]>,
    /// What gradients are multiplied by, and drifts.
    pub(super) scale: f64,
    pub(super) weight: f64,
    pub(super) step: f64,
    pub(super) temperature: f64,
    /// A factor, and the noise of every step, one behind the other.
    pub(super) noise: (f64, &'a [f64]),
}

/// Take these steps from `x` along the form of a matrix whose columns are short: the parameter
/// stays in registers all the way.
pub(super) fn walk_in_registers(matrix: &SymmetricMatrix, steps: Steps<'_>, x: &mut [f64]) {
    run_with_registers(Walks { matrices: [matrix], steps: [steps], places: [x] });
}

/// The same for two of one length, which take as many steps: one computes while the other waits.
pub(super) fn walk_two_in_registers(
    matrices: [&SymmetricMatrix; 2],
    steps: [Steps<'_>; 2],
    places: [&mut [f64]; 2],
) {
    run_with_registers(Walks { matrices, steps, places });
}

struct Walks<'a, const K: usize> {
    matrices: [&'a SymmetricMatrix; K],
    steps: [Steps<'a>; K],
    places: [&'a mut [f64]; K],
}

impl<const K: usize> WithSimd for Walks<'_, K> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.matrices[0].height {
            1 => self.take::<S, 1>(simd),
            2 => self.take::<S, 2>(simd),
            _ => self.take::<S, 3>(simd),
        }
    }
}

impl<const K: usize> Walks<'_, K> {
    #[inline(always)]
    fn take<S: Simd, const N: usize>(self, simd: S) {
        let Walks { matrices, steps, places } = self;
        let d = matrices[0].columns;
        let all = |of: [f64; K]| of.map(|number| simd.splat_f64s(number));
        let (scale, weight) = (all(steps.map(|s| s.scale)), all(steps.map(|s| s.weight)));
        let (step, factor) = (all(steps.map(|s| s.step)), all(steps.map(|s| s.noise.0)));
        let sigma = all(steps.map(|s| noise_scale(s.step, s.temperature)));
        let nothing = [[simd.splat_f64s(0.0); LANES]; N];
        let (mut z, mut base, mut x) = ([nothing; K], [nothing; K], [nothing; K]);
        for k in 0..K {
            z[k] = load(simd, steps[k].z);
            x[k] = load(simd, places[k]);
            if let Some(drift) = steps[k].base {
                base[k] = load(simd, drift);
            }
        }
        let count = steps.iter().map(|s| s.noise.1.len() / d).min().unwrap_or(0);
        for now in 0..count {
            let mut noise = [nothing; K];
            for k in 0..K {
                noise[k] = load(simd, &steps[k].noise.1[now * d..(now + 1) * d]);
            }
            let sums = product(simd, matrices, x.each_ref(), z.each_ref(), scale);
            for k in 0..K {
                for n in 0..N {
                    for h in 0..parts::<S>() {
                        let g = simd.add_f64s(base[k][n][h], sums[k][n][h]);
                        let drift = simd.mul_f64s(step[k], simd.mul_f64s(weight[k], g));
                        let noise = simd.mul_f64s(factor[k], noise[k][n][h]);
                        let moved = simd.sub_f64s(x[k][n][h], drift);
                        x[k][n][h] = simd.add_f64s(moved, simd.mul_f64s(sigma[k], noise));
                    }
                }
            }
        }
        for (x, place) in x.iter().zip(places) {
            store::<S, N>(x, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::real::Real;

    /// Eights of rows are summed in tiles of up to six, with a short one behind them or not: all
    /// give the sums of each row alone, bit for bit.
    #[test]
    fn products_of_every_size_are_plain_sums() {
        for d in 1..=110 {
            let z = crate::model::tests::normals(d as u64, d * d + 3 * d);
            let matrix: Vec<f64> = (0..d * d).map(|k| z[k.min(k % d * d + k / d)]).collect();
            let (x, rest) = z[d * d..].split_at(d);
            let (from, start) = rest.split_at(d);
            let mut out = start.to_vec();
            add_product(
                &SymmetricMatrix::new(&matrix, d),
                x,
                from,
                0.3,
                &mut out,
                &mut vec![0.0; d],
            );
            for (row, out) in out.iter().enumerate() {
                let sum = (0..d).fold(0.0, |sum: f64, column| {
                    (0.3 * (x[column] - from[column])).fused(matrix[column * d + row], sum)
                });
                assert_eq!(*out, start[row] + sum, "row {row} of {d}");
            }
        }
    }
    /// Two walks at once, and any width of registers, have the bits of one walk.
    #[test]
    fn walks_beside_each_other_are_those_of_each() {
        for d in LANES..=3 * LANES {
            let z = crate::model::tests::normals(7, 2 * d * d + 14 * d);
            let (entries, rest) = z.split_at(2 * d * d);
            let matrices = [0, 1].map(|k| {
                let entry = |i: usize| 0.1 * entries[k * d * d + i.min(i % d * d + i / d)];
                SymmetricMatrix::new(&(0..d * d).map(entry).collect::<Vec<_>>(), d)
            });
            let of = |k: usize| &rest[k * d..(k + 1) * d];
            let steps = [0, 1].map(|k| Steps {
                z: of(k),
                base: (k == 1).then(|| of(2)),
                scale: 1.5,
                weight: 0.25,
                step: 1e-2 * (k + 1) as f64,
                temperature: 2.0,
                noise: (0.5, &rest[(4 + 5 * k) * d..(9 + 5 * k) * d]),
            });
            let (mut a, mut b) = (of(3).to_vec(), of(2).to_vec());
            let both = |a: &mut [f64], b: &mut [f64]| {
                walk_two_in_registers(matrices.each_ref(), steps, [a, b]);
            };
            let (mut alone, mut narrow) = ([a.clone(), b.clone()], [a.clone(), b.clone()]);
            both(&mut a, &mut b);
            for k in 0..2 {
                walk_in_registers(&matrices[k], steps[k], &mut alone[k]);
                Walks { matrices: [&matrices[k]], steps: [steps[k]], places: [&mut narrow[k]] }
                    .with_simd(pulp::Scalar);
            }
            assert_eq!([&a, &b], alone.each_ref(), "{d}");
            assert_eq!(alone, narrow, "{d}");
        }
    }
}
