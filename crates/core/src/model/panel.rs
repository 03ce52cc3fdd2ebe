//! Keep one number for each feature and class with the classes side by side, so that one
//! instruction serves all of them.
//!
//! Parameters lie class by class. A panel is the same the other way round: feature by feature, `W`
//! classes in one array, padded with zeros. The products with a row's features then need none of
//! the columns in which the row has nothing, and no sum across a register. More than `W` classes
//! are several groups, one panel after the other.
//!
//! The order of every sum is that of the arrays, so it is the same for any width of register. There
//! are loops where closures would be shorter: a closure that is not inlined is compiled for the
//! narrowest registers.

use super::design::{Design, Entries};
use super::real::Real;

/// How many features are turned back at a time.
const TILE: usize = 4;

/// How parameters are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) features: usize,
    pub(super) classes: usize,
    /// `W`.
    pub(super) width: usize,
}

impl Shape {
    /// The narrowest arrays that hold all classes, or else several of the widest.
    pub(super) fn new(features: usize, classes: usize) -> Self {
        Shape { features, classes, width: (classes.div_ceil(4) * 4).clamp(4, 16) }
    }

    /// How many arrays hold the classes.
    pub(super) fn groups(&self) -> usize {
        self.classes.div_ceil(self.width)
    }

    /// How many places hold the classes, padding included.
    pub(super) fn lanes(&self) -> usize {
        self.groups() * self.width
    }

    /// The classes of a group.
    #[inline(always)]
    fn classes_of(&self, group: usize) -> std::ops::Range<usize> {
        group * self.width..self.classes.min((group + 1) * self.width)
    }
}

/// Fill a panel from parameters, four classes at a time.
#[inline(always)]
pub(super) fn turn<T: Real, const W: usize>(shape: Shape, x: &[f64], panel: &mut [[T; W]]) {
    let features = shape.features;
    for (group, panel) in panel.chunks_exact_mut(features).enumerate() {
        for quad in 0..W / 4 {
            let first = group * W + quad * 4;
            let of = |k: usize| &x[(first + k) * features..(first + k + 1) * features];
            match shape.classes.saturating_sub(first) {
                0 => turn_some::<T, W, 0>(quad, [], panel),
                1 => turn_some(quad, [of(0)], panel),
                2 => turn_some(quad, [of(0), of(1)], panel),
                3 => turn_some(quad, [of(0), of(1), of(2)], panel),
                _ => turn_some(quad, [of(0), of(1), of(2), of(3)], panel),
            }
        }
    }
}

/// Fill four places of every array from `N` classes, and the others with zeros.
#[inline(always)]
fn turn_some<T: Real, const W: usize, const N: usize>(
    quad: usize,
    classes: [&[f64]; N],
    panel: &mut [[T; W]],
) {
    let (tiles, rest) = panel.as_chunks_mut::<4>();
    let whole = 4 * tiles.len();
    let from: [&[[f64; 4]]; N] = std::array::from_fn(|k| classes[k].as_chunks::<4>().0);
    for (at, tile) in tiles.iter_mut().enumerate() {
        // four numbers of four classes, turned in registers
        let mut four = [[T::default(); 4]; 4];
        for k in 0..N {
            four[k] = from[k][at].map(T::narrow);
        }
        let turned: [[T; 4]; 4] = std::array::from_fn(|j| std::array::from_fn(|k| four[k][j]));
        for j in 0..4 {
            tile[j].as_chunks_mut::<4>().0[quad] = turned[j];
        }
    }
    for (at, slot) in rest.iter_mut().enumerate() {
        let mut four = [T::default(); 4];
        for k in 0..N {
            four[k] = T::narrow(classes[k][whole + at]);
        }
        slot[quad * 4..quad * 4 + 4].copy_from_slice(&four);
    }
}

/// `out += scale * panel`.
#[inline(always)]
pub(super) fn turn_back<T: Real, const W: usize>(
    shape: Shape,
    panel: &[[T; W]],
    scale: f64,
    out: &mut [f64],
) {
    let features = shape.features;
    for (group, panel) in panel.chunks_exact(features).enumerate() {
        let classes = shape.classes_of(group);
        let out = &mut out[classes.start * features..classes.end * features];
        let (tiles, rest) = panel.as_chunks::<TILE>();
        let last = tiles.len() * TILE;
        for (at, tile) in tiles.iter().enumerate() {
            for quad in 0..W / 4 {
                // four places of four arrays, turned in registers
                let four: [[T; 4]; TILE] =
                    std::array::from_fn(|j| std::array::from_fn(|k| tile[j][quad * 4 + k]));
                for k in 0..4 {
                    let lane = quad * 4 + k;
                    if lane < classes.len() {
                        let from = lane * features + at * TILE;
                        let slots = &mut out[from..from + TILE];
                        for j in 0..TILE {
                            slots[j] += scale * four[j][k].widen();
                        }
                    }
                }
            }
        }
        for (at, slot) in rest.iter().enumerate() {
            for lane in 0..classes.len() {
                out[lane * features + last + at] += scale * slot[lane].widen();
            }
        }
    }
}

/// `out = row . panel`, group by group. Entries at even and odd places are summed apart, which
/// halves the time that one sum waits for the last.
#[inline(always)]
pub(super) fn product<T: Real, const W: usize>(
    design: &Design<T>,
    row: usize,
    panel: &[[T; W]],
    out: &mut [[T; W]],
) {
    for (panel, out) in panel.chunks_exact(design.columns()).zip(out) {
        let (mut even, mut odd) = ([T::default(); W], [T::default(); W]);
        match design.row(row) {
            Entries::Dense(cells) => {
                let ((pairs, rest), (slots, last)) =
                    (cells.as_chunks::<2>(), panel.as_chunks::<2>());
                for (values, slots) in pairs.iter().zip(slots) {
                    add(&mut even, values[0], &slots[0]);
                    add(&mut odd, values[1], &slots[1]);
                }
                for (value, slot) in rest.iter().zip(last) {
                    add(&mut even, *value, slot);
                }
            }
            Entries::Sparse(columns, values) => {
                let ((twos, last), (pairs, rest)) =
                    (columns.as_chunks::<2>(), values.as_chunks::<2>());
                for (columns, values) in twos.iter().zip(pairs) {
                    add(&mut even, values[0], &panel[columns[0] as usize]);
                    add(&mut odd, values[1], &panel[columns[1] as usize]);
                }
                for (column, value) in last.iter().zip(rest) {
                    add(&mut even, *value, &panel[*column as usize]);
                }
            }
        }
        for lane in 0..W {
            out[lane] = even[lane] + odd[lane];
        }
    }
}

/// `panel += row' weights` for some rows, one after the other, group by group: row `k` has the
/// arrays from `k * groups`.
#[inline(always)]
pub(super) fn add_outer<T: Real, const W: usize>(
    design: &Design<T>,
    rows: &[usize],
    weights: &[[T; W]],
    panel: &mut [[T; W]],
) {
    let groups = panel.len() / design.columns();
    for (group, panel) in panel.chunks_exact_mut(design.columns()).enumerate() {
        let (mut rows, mut weights) = (rows, &weights[group..]);
        while let [a, b, c, d, rest @ ..] = rows {
            let four = [design.row(*a), design.row(*b), design.row(*c), design.row(*d)];
            let [Entries::Dense(a), Entries::Dense(b), Entries::Dense(c), Entries::Dense(d)] = four
            else {
                break;
            };
            add_four(
                panel,
                [a, b, c, d],
                &[weights[0], weights[groups], weights[2 * groups], weights[3 * groups]],
            );
            (rows, weights) = (rest, weights.get(4 * groups..).unwrap_or(&[]));
        }
        for (row, weights) in rows.iter().zip(weights.iter().step_by(groups)) {
            add_one(panel, design.row(*row), weights);
        }
    }
}

#[inline(always)]
fn add_one<T: Real, const W: usize>(
    panel: &mut [[T; W]],
    entries: Entries<'_, T>,
    weights: &[T; W],
) {
    let weights = *weights;
    match entries {
        Entries::Dense(cells) => {
            for (value, slot) in cells.iter().zip(panel) {
                add(slot, *value, &weights);
            }
        }
        Entries::Sparse(columns, values) => {
            for (column, value) in columns.iter().zip(values) {
                add(&mut panel[*column as usize], *value, &weights);
            }
        }
    }
}

/// Four dense rows in one walk over the panel, with the bits of four walks.
#[inline(always)]
fn add_four<T: Real, const W: usize>(
    panel: &mut [[T; W]],
    cells: [&[T]; 4],
    weights: &[[T; W]; 4],
) {
    let n = panel.len();
    let [a, b, c, d] = [&cells[0][..n], &cells[1][..n], &cells[2][..n], &cells[3][..n]];
    for (j, slot) in panel.iter_mut().enumerate() {
        let mut sum = *slot;
        add(&mut sum, a[j], &weights[0]);
        add(&mut sum, b[j], &weights[1]);
        add(&mut sum, c[j], &weights[2]);
        add(&mut sum, d[j], &weights[3]);
        *slot = sum;
    }
}

/// `to += scale * values`, rounded once.
#[inline(always)]
fn add<T: Real, const W: usize>(to: &mut [T; W], scale: T, values: &[T; W]) {
    for lane in 0..W {
        to[lane] = values[lane].fused(scale, to[lane]);
    }
}

/// Make the logits of some rows probabilities, in place; the padding becomes 0. Exponentials of all
/// rows are one loop, since each of them is a long chain of operations.
#[inline(always)]
pub(super) fn normalise<T: Real, const W: usize>(
    shape: Shape,
    valid: &Valid<T, W>,
    logits: &mut [[T; W]],
) {
    for row in logits.chunks_exact_mut(shape.groups()) {
        valid.pad(row, &valid.plus);
        let most = largest(row);
        for four in row.as_flattened_mut().as_chunks_mut::<4>().0 {
            for lane in 0..4 {
                four[lane] = four[lane] - most;
            }
        }
    }
    for four in logits.as_flattened_mut().as_chunks_mut::<4>().0 {
        for lane in 0..4 {
            four[lane] = four[lane].exp();
        }
    }
    for row in logits.chunks_exact_mut(shape.groups()) {
        valid.pad(row, &[T::default(); W]);
        let share = T::ONE / sum(row);
        for four in row.as_flattened_mut().as_chunks_mut::<4>().0 {
            for lane in 0..4 {
                four[lane] = four[lane] * share;
            }
        }
    }
}

/// The sum of all lanes of a row, four side by side.
#[inline(always)]
fn sum<T: Real, const W: usize>(row: &[[T; W]]) -> T {
    let mut sums = [T::default(); 4];
    for four in row.as_flattened().as_chunks::<4>().0 {
        for lane in 0..4 {
            sums[lane] += four[lane];
        }
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

/// The largest lane of a row.
#[inline(always)]
fn largest<T: Real, const W: usize>(row: &[[T; W]]) -> T {
    let mut most = [T::LEAST; 4];
    for four in row.as_flattened().as_chunks::<4>().0 {
        for lane in 0..4 {
            most[lane] = if four[lane] > most[lane] { four[lane] } else { most[lane] };
        }
    }
    let left = if most[0] > most[2] { most[0] } else { most[2] };
    let right = if most[1] > most[3] { most[1] } else { most[3] };
    if left > right { left } else { right }
}

/// Which lanes of the last array are no padding: 1 or 0, and nothing or less than any logit. They
/// are numbers since choices would not be vectorised.
pub(super) struct Valid<T, const W: usize> {
    times: [T; W],
    plus: [T; W],
}

impl<T: Real, const W: usize> Valid<T, W> {
    #[inline(always)]
    pub(super) fn new(shape: Shape) -> Self {
        let valid = shape.classes - (shape.groups() - 1) * W;
        Valid {
            times: std::array::from_fn(|lane| if lane < valid { T::ONE } else { T::default() }),
            plus: std::array::from_fn(|lane| if lane < valid { T::default() } else { T::LEAST }),
        }
    }

    /// Put `what` into the padding, which `what` must be 0 beside.
    #[inline(always)]
    fn pad(&self, row: &mut [[T; W]], what: &[T; W]) {
        if let Some(last) = row.last_mut() {
            for lane in 0..W {
                last[lane] = last[lane] * self.times[lane] + what[lane];
            }
        }
    }
}
