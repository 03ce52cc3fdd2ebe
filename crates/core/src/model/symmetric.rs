//! Multiply by a symmetric matrix, and walk along its quadratic form.

use crate::simd::{F8, LANES, wide};
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

    /// Whether [`walk_in_registers`] works.
    pub(super) fn is_short(&self) -> bool {
        is_short(self.columns)
    }
}

/// Whether columns, and so vectors to be multiplied, fill one register and have room in a few.
#[inline(always)]
fn is_short(d: usize) -> bool {
    (LANES..=3 * LANES).contains(&d)
}

wide! {
    /// `out += scale * matrix (x - z)`.
    pub(super) fn add_product<'a>(matrix: &'a SymmetricMatrix, x: &'a [f64], z: &'a [f64],
        scale: f64, out: &'a mut [f64], moved: &'a mut [f64]) -> () {
        match matrix.height {
            1 if matrix.is_short() => return add_short::<1>(matrix, x, z, scale, out),
            2 => return add_short::<2>(matrix, x, z, scale, out),
            3 => return add_short::<3>(matrix, x, z, scale, out),
            _ => {}
        }
        for ((moved, x), z) in moved.iter_mut().zip(x).zip(z) {
            *moved = scale * (x - z);
        }
        let mut first = 0;
        for rows in out.chunks_mut(3 * LANES) {
            match matrix.height - first {
                1 => add_eights(&long_product::<1>(matrix, first, moved), rows),
                2 => add_eights(&long_product::<2>(matrix, first, moved), rows),
                _ => add_eights(&long_product::<3>(matrix, first, moved), rows),
            }
            first += 3;
        }
    }
}

#[inline(always)]
fn add_short<const N: usize>(
    matrix: &SymmetricMatrix,
    x: &[f64],
    z: &[f64],
    scale: f64,
    out: &mut [f64],
) {
    let mut eights: [F8; N] = load(out);
    let sums = product::<N>(matrix, &load(x), &load(z), scale);
    for n in 0..N {
        for lane in 0..LANES {
            eights[n][lane] += sums[n][lane];
        }
    }
    store(&eights, out);
}

/// `scale matrix (x - z)`, where columns are short. It goes column by column, which needs no sums
/// across a register; even and odd columns are summed apart, since a sum waits for the one before.
#[inline(always)]
fn product<const N: usize>(
    matrix: &SymmetricMatrix,
    x: &[F8; N],
    z: &[F8; N],
    scale: f64,
) -> [F8; N] {
    let mut differences = [[0.0; LANES]; N];
    for n in 0..N {
        for lane in 0..LANES {
            differences[n][lane] = scale * (x[n][lane] - z[n][lane]);
        }
    }
    let mut by = [[0.0; LANES]; N];
    let by = &mut by.as_flattened_mut()[..matrix.columns];
    store(&differences, by);
    let (mut even, mut odd) = ([[0.0; LANES]; N], [[0.0; LANES]; N]);
    let (pairs, last) = by.as_chunks::<2>();
    let columns = matrix.eights.as_chunks::<N>().0;
    if let ([by], Some(column)) = (last, columns.last()) {
        add_column(*by, column, &mut even);
    }
    for (by, columns) in pairs.iter().zip(columns.as_chunks::<2>().0) {
        add_column(by[0], &columns[0], &mut even);
        add_column(by[1], &columns[1], &mut odd);
    }
    sum(even, odd)
}

/// `matrix v`, for the rows of `N` eights from number `first` on, where columns are long.
#[inline(always)]
fn long_product<const N: usize>(matrix: &SymmetricMatrix, first: usize, v: &[f64]) -> [F8; N] {
    let (mut even, mut odd) = ([[0.0; LANES]; N], [[0.0; LANES]; N]);
    let columns = matrix.eights.chunks_exact(2 * matrix.height);
    if let (Some(by), Some(eights)) =
        (v.last(), columns.remainder().get(first..).and_then(<[Eight]>::first_chunk::<N>))
    {
        add_column(*by, eights, &mut even);
    }
    for (by, both) in v.as_chunks::<2>().0.iter().zip(columns) {
        let (one, other) = both.split_at(matrix.height);
        let (Some(one), Some(other)) =
            (one[first..].first_chunk::<N>(), other[first..].first_chunk::<N>())
        else {
            break;
        };
        add_column(by[0], one, &mut even);
        add_column(by[1], other, &mut odd);
    }
    sum(even, odd)
}

#[inline(always)]
fn add_column<const N: usize>(by: f64, column: &[Eight; N], sums: &mut [F8; N]) {
    for n in 0..N {
        for lane in 0..LANES {
            sums[n][lane] += by * column[n].0[lane];
        }
    }
}

#[inline(always)]
fn sum<const N: usize>(mut even: [F8; N], odd: [F8; N]) -> [F8; N] {
    for n in 0..N {
        for lane in 0..LANES {
            even[n][lane] += odd[n][lane];
        }
    }
    even
}

#[inline(always)]
fn add_eights(eights: &[F8], out: &mut [f64]) {
    for (out, eight) in out.chunks_mut(LANES).zip(eights) {
        if let Ok(whole) = <&mut F8>::try_from(&mut *out) {
            for lane in 0..LANES {
                whole[lane] += eight[lane];
            }
        } else {
            for lane in 0..out.len() {
                out[lane] += eight[lane];
            }
        }
    }
}

/// A vector as short columns are kept: its last eight numbers come last.
#[inline(always)]
fn load<const N: usize>(vector: &[f64]) -> [F8; N] {
    let mut eights = [[0.0; LANES]; N];
    for n in 0..N {
        eights[n] = vector[(n * LANES).min(vector.len() - LANES)..].as_chunks::<LANES>().0[0];
    }
    eights
}

/// The other way round.
#[inline(always)]
fn store<const N: usize>(eights: &[F8; N], vector: &mut [f64]) {
    for n in 0..N {
        let first = (n * LANES).min(vector.len() - LANES);
        vector[first..].as_chunks_mut::<LANES>().0[0] = eights[n];
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

wide! {
    /// Take these steps from `x` along the form of a matrix whose columns are short: the parameter
    /// stays in registers all the way.
    pub(super) fn walk_in_registers<'a>(matrix: &'a SymmetricMatrix, steps: Steps<'a>,
        x: &'a mut [f64]) -> () {
        match matrix.height {
            1 => walk_short::<1>(matrix, steps, x),
            2 => walk_short::<2>(matrix, steps, x),
            _ => walk_short::<3>(matrix, steps, x),
        }
    }
}

#[inline(always)]
fn walk_short<const N: usize>(matrix: &SymmetricMatrix, steps: Steps<'_>, place: &mut [f64]) {
    let Steps { z, base, scale, weight, step, temperature, noise } = steps;
    let (factor, mut noise) = noise;
    let sigma = noise_scale(step, temperature);
    let z: [F8; N] = load(z);
    let base: [F8; N] = base.map_or([[0.0; LANES]; N], load);
    let mut x: [F8; N] = load(place);
    while let Some((now, later)) = noise.split_at_checked(place.len()) {
        let sums = product::<N>(matrix, &x, &z, scale);
        let noise_now: [F8; N] = load(now);
        for n in 0..N {
            for lane in 0..LANES {
                let g = base[n][lane] + sums[n][lane];
                x[n][lane] =
                    (x[n][lane] - step * (weight * g)) + sigma * (factor * noise_now[n][lane]);
            }
        }
        noise = later;
    }
    store(&x, place);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eights of rows are summed in ones, twos and threes, with a short one behind them or not: all
    /// give the sums of each row alone, bit for bit.
    #[test]
    fn products_of_every_size_are_plain_sums() {
        for d in 1..=40 {
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
                let term =
                    |column: usize| 0.3 * (x[column] - from[column]) * matrix[column * d + row];
                let last = if d % 2 == 1 { term(d - 1) } else { 0.0 };
                let even = (0..d - d % 2).step_by(2).fold(last, |sum, column| sum + term(column));
                let odd = (1..d).step_by(2).fold(0.0, |sum, column| sum + term(column));
                assert_eq!(*out, start[row] + (even + odd), "row {row} of {d}");
            }
        }
    }
}
