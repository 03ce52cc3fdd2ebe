//! Renew the gradient of logistic regression where predictors of rows moved, and nowhere else.
//!
//! Rows of indicators say which levels of some attributes an observation has: all entries of a
//! column are alike. Of such rows predictors, probabilities and sums of slopes are counted in units
//! of 2^-40 (`fixed.rs`). Sums of integers depend neither on their order nor on their history, so
//! what is kept from the last point, and renewed for the rows that have an entry where the point
//! moved, is what a fresh sum would be, bit for bit.
//!
//! Every term of a predictor is rounded by 2^-41 at most, and every probability by 0.6 * 2^-40. So
//! a coordinate to which `n` rows of `k` entries add is within `n (0.6 + k/8) 2^-40` of the exact
//! sum, times what the column's entries are, and far nearer as a rule, since roundings cancel.

use std::cmp::Reverse;
use std::ops::Range;

use super::coded::{CODES, Table};
use super::design::{Design, Entries};
use super::fixed;
use crate::simd::{LANES, wide};

/// If more columns moved than this, all is computed anew.
const MOST_MOVED: usize = 8;

/// With more rows than this, sums of slopes would not be certain to fit 63 bits.
const MOST_ROWS: usize = 1 << 22;

/// Rows that are renewed together.
const CHUNK: usize = 256;

/// Of the columns that a column's rows mark, the most frequent ones, whose sums are made in
/// registers.
const FREQUENT: usize = 3 * LANES;

/// Marks of other columns that are read together.
const MARKS: usize = 3;

/// With more columns than this, marks and what fills them up would not fit a byte.
const MOST_COLUMNS: usize = CODES - MARKS;

/// Which rows have an entry in a column, and which columns a row's slope is added to.
#[derive(Clone, Debug)]
pub(super) struct Indicators {
    /// What all entries of a column are.
    values: Vec<f64>,
    /// How large a parameter may be in absolute value, for all predictors to be within the limit.
    reach: f64,
    /// Where rows stand here: those that are alike beside each other.
    places: Vec<u32>,
    columns: Vec<Column>,
    /// Column by column, the rows with an entry there, by place.
    holders: Vec<Holder>,
    /// Column by column and holder by holder, the marks that holders have no room for.
    others: Vec<Other>,
    partitions: Vec<Partition>,
}

/// Where a column's holders stand, and their other marks.
#[derive(Clone, Debug)]
struct Column {
    holders: Range<usize>,
    others: Range<usize>,
    /// The columns that most of them mark.
    frequent: [u8; FREQUENT],
}

/// A row with an entry in a column. What it marks is said once for each column, since it is read
/// there one row after the other.
#[derive(Clone, Copy, Debug)]
struct Holder {
    place: u32,
    /// One bit for each frequent column that its slope is added to.
    frequent: u32,
    /// Other columns that it is added to, filled up with numbers of no column. The column itself is
    /// not among them, since all of its rows have it.
    rare: [u8; MARKS],
}

/// One more column that the slope of a column's holder is added to.
#[derive(Clone, Copy, Debug)]
struct Other {
    holder: u32,
    mark: u8,
}

/// Neighbouring columns of which every row has exactly one: the levels of an attribute. The sum of
/// the most frequent one is what the others leave of the sum of all slopes, so that column is no
/// mark.
#[derive(Clone, Copy, Debug)]
struct Partition {
    start: usize,
    end: usize,
    implied: usize,
}

/// What a model keeps of the last point. It is no part of a chain's state: without it the same
/// numbers are found, later.
#[derive(Clone, Debug)]
pub struct Memo {
    /// The last point; not a number at first.
    at: Vec<f64>,
    /// What each row has at that point, by place; none as long as nothing was saved by them.
    rows: Vec<Kept>,
    /// The slopes' sums for each column, and then what was added to numbers of no column.
    sums: Box<Table<i64>>,
    /// The sum of all slopes.
    total: i64,
    /// Of rows that are renewed together first the predictors, then the probabilities.
    renewed: Vec<[i64; LANES]>,
    /// First the probabilities before, then by how much they changed.
    changes: Vec<[i64; LANES]>,
}

/// What is kept of a row: its predictor and its probability.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    predictor: i64,
    chance: i64,
}

/// What came of a memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// The gradient was added.
    Done,
    /// It must be computed anew, and what is found is worth keeping.
    Keep,
    /// It must be computed anew.
    Leave,
}

impl Indicators {
    /// Of sparse rows, if all entries of each column are alike.
    pub(super) fn new(design: &Design) -> Option<Self> {
        let (rows, columns) = (design.rows(), design.columns());
        if rows > MOST_ROWS || columns > MOST_COLUMNS {
            return None;
        }
        let (mut values, mut longest) = (vec![0.0; columns], 0.0f64);
        let mut holders = vec![Vec::new(); columns];
        for row in 0..rows {
            let Entries::Sparse(places, entries) = design.row(row) else { return None };
            for (column, entry) in places.iter().zip(entries) {
                let column = *column as usize;
                if !holders[column].is_empty() && values[column] != *entry {
                    return None;
                }
                values[column] = *entry;
                holders[column].push(row as u32);
            }
            longest = longest.max(entries.iter().map(|entry| entry.abs()).sum());
        }
        let partitions = partitions(&holders, rows);
        let mut marking: Vec<usize> =
            (0..columns).filter(|k| partitions.iter().all(|levels| levels.implied != *k)).collect();
        marking.sort_by_key(|column| Reverse(holders[*column].len()));
        let (mut bits, mut marks) = (vec![0u32; rows], vec![Vec::new(); rows]);
        for (rank, column) in marking.iter().enumerate() {
            for row in &holders[*column] {
                bits[*row as usize] |= 1u32.checked_shl(rank as u32).unwrap_or(0);
                marks[*row as usize].push(*column);
            }
        }
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order.sort_by_key(|row| u32::reverse_bits(bits[*row as usize]));
        let mut places = vec![0; rows];
        for (place, row) in order.iter().enumerate() {
            places[*row as usize] = place as u32;
        }
        let mut index = Indicators {
            values,
            reach: fixed::LIMIT / longest.max(f64::MIN_POSITIVE),
            places,
            columns: Vec::with_capacity(columns),
            holders: Vec::with_capacity(holders.iter().map(Vec::len).sum()),
            others: Vec::new(),
            partitions,
        };
        for (column, holders) in holders.iter_mut().enumerate() {
            holders.sort_unstable_by_key(|row| index.places[*row as usize]);
            index.add_column(column, holders, &marks);
        }
        Some(index)
    }

    /// Add a column and its holders: these rows, each of which marks these columns.
    fn add_column(&mut self, column: usize, rows: &[u32], marks: &[Vec<usize>]) {
        let columns = self.values.len();
        let mut counts = vec![0; columns];
        rows.iter().for_each(|row| marks[*row as usize].iter().for_each(|mark| counts[*mark] += 1));
        let mut ranked: Vec<usize> =
            (0..columns).filter(|mark| *mark != column && counts[*mark] > 0).collect();
        ranked.sort_by_key(|mark| Reverse(counts[*mark]));
        let mut ranks = vec![None; columns];
        ranked.iter().enumerate().for_each(|(rank, mark)| ranks[*mark] = Some(rank));
        let (first, first_other) = (self.holders.len(), self.others.len());
        for (holder, row) in rows.iter().enumerate() {
            let (mut frequent, mut rare) = (0, Vec::new());
            for mark in &marks[*row as usize] {
                match ranks[*mark] {
                    Some(rank) if rank < FREQUENT => frequent |= bit_of(rank),
                    Some(_) => rare.push(*mark as u8),
                    None => {} // the column itself
                }
            }
            // a number that is not used again soon: sums there would wait for each other
            let nobody = |k| (columns + (MARKS * self.holders.len() + k) % (CODES - columns)) as u8;
            let filled = std::array::from_fn(|k| rare.get(k).copied().unwrap_or(nobody(k)));
            self.holders.push(Holder { place: self.places[*row as usize], frequent, rare: filled });
            self.others.extend(
                rare.iter().skip(MARKS).map(|mark| Other { holder: holder as u32, mark: *mark }),
            );
        }
        self.columns.push(Column {
            holders: first..self.holders.len(),
            others: first_other..self.others.len(),
            frequent: std::array::from_fn(|rank| {
                ranked.get(rank).copied().unwrap_or(CODES - 1) as u8
            }),
        });
    }

    /// A memo that knows nothing yet.
    pub(super) fn memo(&self) -> Memo {
        let (renewed, changes) = (vec![[0; LANES]; CHUNK / LANES], vec![[0; LANES]; CHUNK / LANES]);
        Memo {
            at: vec![f64::NAN; self.values.len()],
            rows: Vec::new(),
            sums: Box::new([0; CODES]),
            total: 0,
            renewed,
            changes,
        }
    }

    /// Whether predictors at `x` are small enough to be counted in units: beyond that a logistic
    /// model has nothing to say.
    #[inline(always)]
    pub(super) fn reaches(&self, x: &[f64]) -> bool {
        let mut within = true;
        for x in x {
            within &= x.abs() <= self.reach; // which is false of what is not a number
        }
        within
    }

    /// The same at several points: sums lie column by column, with the points side by side.
    #[inline(always)]
    pub(super) fn add_all_sums<const L: usize>(
        &self,
        sums: &[[i64; L]],
        scale: &[f64; L],
        out: &mut [[f64; L]],
    ) {
        for ((out, value), sum) in out.iter_mut().zip(&self.values).zip(sums) {
            for lane in 0..L {
                out[lane] += ((scale[lane] * fixed::UNIT) * value) * sum[lane] as f64;
            }
        }
    }

    /// `out += scale * sum_j slope_j a_j`, from the slopes' sums for each column.
    #[inline(always)]
    pub(super) fn add_sums(&self, sums: &[i64], scale: f64, out: &mut [f64]) {
        let scale = scale * fixed::UNIT;
        for ((out, value), sum) in out.iter_mut().zip(&self.values).zip(sums) {
            *out += (scale * value) * *sum as f64;
        }
    }

    /// Add the gradient at `x` if that is near the last point; else say what to do.
    pub(super) fn add_renewed(
        &self,
        memo: &mut Memo,
        x: &[f64],
        scale: f64,
        out: &mut [f64],
    ) -> Renewal {
        if !memo.rows.is_empty() && renew(self, memo, x, scale, out) {
            return Renewal::Done;
        }
        memo.rows.clear();
        let near = self.reaches(x) && self.moved(memo, x).is_some();
        memo.at.copy_from_slice(x);
        if near { Renewal::Keep } else { Renewal::Leave }
    }

    /// Room for what a fresh sum at the last point finds of each row and column.
    pub(super) fn room<'a>(&self, memo: &'a mut Memo) -> (&'a mut [Kept], &'a mut [i64]) {
        memo.rows.clear();
        memo.rows.resize(self.places.len(), Kept { predictor: 0, chance: 0 });
        (&mut memo.rows, &mut memo.sums[..self.values.len()])
    }

    /// Note what a fresh sum found of a row.
    #[inline(always)]
    pub(super) fn keep(&self, row: usize, predictor: i64, chance: i64, rows: &mut [Kept]) {
        rows[self.places[row] as usize] = Kept { predictor, chance };
    }

    /// Finish a memo whose rows and sums are those of a fresh sum.
    pub(super) fn close(&self, memo: &mut Memo) {
        memo.total = self
            .partitions
            .first()
            .map_or(0, |levels| memo.sums[levels.start..levels.end].iter().sum());
    }

    /// The columns in which `x` is not the last point; `None` if they are many, or have many rows.
    #[inline(always)]
    fn moved(&self, memo: &Memo, x: &[f64]) -> Option<Moved> {
        let mut moved = Moved { columns: [0; MOST_MOVED], count: 0, rows: 0 };
        let (blocks, rest) = x.as_chunks::<LANES>();
        let (blocks_at, rest_at) = memo.at.as_chunks::<LANES>();
        for (block, (x, at)) in blocks.iter().zip(blocks_at).enumerate() {
            let mut differs = false;
            for lane in 0..LANES {
                differs |= x[lane] != at[lane];
            }
            if differs && !self.note_moved(block * LANES, x, at, &mut moved) {
                return None;
            }
        }
        self.note_moved(blocks.len() * LANES, rest, rest_at, &mut moved).then_some(moved)
    }

    /// Note which columns moved of those that start with `first`; whether they are still few.
    #[inline(always)]
    fn note_moved(&self, first: usize, x: &[f64], at: &[f64], moved: &mut Moved) -> bool {
        for (lane, (x, at)) in x.iter().zip(at).enumerate() {
            if x != at {
                moved.rows += self.columns[first + lane].holders.len();
                if moved.count == MOST_MOVED || moved.rows > self.places.len() {
                    return false;
                }
                moved.columns[moved.count] = first + lane;
                moved.count += 1;
            }
        }
        true
    }

    /// Move the predictors of a column's rows, and what follows from them.
    #[inline(always)]
    fn renew_column(&self, column: usize, by: i64, memo: &mut Memo) {
        let Column { holders, others, frequent } = &self.columns[column];
        let mut others = &self.others[others.clone()];
        let sums: &mut Table<i64> = &mut memo.sums;
        let (mut all, mut often, mut first) = (0, [[0; LANES]; FREQUENT / LANES], 0);
        for holders in self.holders[holders.clone()].chunks(CHUNK) {
            renew_rows(holders, by, &mut memo.rows, &mut memo.renewed, &mut memo.changes);
            let (chances, changes) = (memo.renewed.as_flattened(), memo.changes.as_flattened());
            for ((holder, chance), change) in holders.iter().zip(chances).zip(changes) {
                memo.rows[holder.place as usize].chance = *chance;
                all += change;
                for (part, sums) in often.iter_mut().enumerate() {
                    for lane in 0..LANES {
                        sums[lane] += if holder.frequent & bit_of(part * LANES + lane) == 0 {
                            0
                        } else {
                            *change
                        };
                    }
                }
                for mark in &holder.rare {
                    // what is no column's has no bound, and is never read
                    sums[*mark as usize] = sums[*mark as usize].wrapping_add(*change);
                }
            }
            while let Some((Other { holder, mark }, rest)) = others.split_first()
                && let Some(change) = changes.get(*holder as usize - first)
            {
                sums[*mark as usize] += change;
                others = rest;
            }
            first += CHUNK;
        }
        // else the compiler keeps the sums in pieces all the way, as they are read here
        let often = std::hint::black_box(often);
        for (column, sum) in frequent.iter().zip(often.as_flattened()) {
            sums[*column as usize] += sum;
        }
        sums[column] += all;
        memo.total += all;
    }
}

/// The bit of a frequent column. Eight of them descend, else the compiler would take them out of
/// the vector registers for masks.
const fn bit_of(rank: usize) -> u32 {
    1 << (rank / LANES * LANES + LANES - 1 - rank % LANES)
}

/// Move the predictors of some rows; find their probabilities, and by how much these change.
#[inline(always)]
fn renew_rows(
    holders: &[Holder],
    by: i64,
    rows: &mut [Kept],
    renewed: &mut [[i64; LANES]],
    changes: &mut [[i64; LANES]],
) {
    for ((holder, predictor), before) in
        holders.iter().zip(renewed.as_flattened_mut()).zip(changes.as_flattened_mut())
    {
        let row = &mut rows[holder.place as usize];
        row.predictor += by;
        *predictor = row.predictor;
        *before = row.chance;
    }
    for (renewed, changes) in renewed.iter_mut().zip(changes).take(holders.len().div_ceil(LANES)) {
        let mut chances = *renewed;
        for lane in 0..LANES {
            chances[lane] = fixed::sigmoid(chances[lane]);
        }
        *renewed = chances;
        for lane in 0..LANES {
            changes[lane] = chances[lane] - changes[lane];
        }
    }
}

/// Some columns.
struct Moved {
    columns: [usize; MOST_MOVED],
    count: usize,
    /// The rows that have an entry there, counted once for each.
    rows: usize,
}

/// Runs of neighbouring columns of which every row has exactly one.
fn partitions(holders: &[Vec<u32>], rows: usize) -> Vec<Partition> {
    let (mut found, mut start, mut covered) = (Vec::new(), 0, 0);
    // the first column of the run that has an entry of the row
    let mut group = vec![usize::MAX; rows];
    for (column, holders_of) in holders.iter().enumerate() {
        if holders_of.iter().any(|row| group[*row as usize] == start) {
            (start, covered) = (column, 0); // a row with two of them: the run is over
        }
        holders_of.iter().for_each(|row| group[*row as usize] = start);
        covered += holders_of.len();
        if covered == rows {
            let most = (start..=column).fold(start, |most, k| {
                if holders[k].len() > holders[most].len() { k } else { most }
            });
            found.push(Partition { start, end: column + 1, implied: most });
            (start, covered) = (column + 1, 0);
        }
    }
    found
}

wide! {
    /// Move the memo to `x`, if that is near, and add the gradient there.
    fn renew<'a>(index: &'a Indicators, memo: &'a mut Memo, x: &'a [f64], scale: f64,
        out: &'a mut [f64]) -> bool {
        let Some(moved) = index.moved(memo, x) else { return false };
        let columns = &moved.columns[..moved.count];
        for column in columns {
            if !index.reaches(&x[*column..=*column]) {
                return false; // elsewhere it is the last point, which was within reach
            }
        }
        for column in columns {
            let value = index.values[*column];
            let by = fixed::from_real(value * x[*column])
                - fixed::from_real(value * memo.at[*column]);
            memo.at[*column] = x[*column];
            index.renew_column(*column, by, memo);
        }
        // the sums of all columns before each: there is room for them
        let (sums, before) = (&mut memo.sums, memo.renewed.as_flattened_mut());
        for levels in &index.partitions {
            sums[levels.implied] = 0;
        }
        let mut sum = 0;
        before[0] = 0;
        for (before, column) in before[1..].iter_mut().zip(&sums[..index.values.len()]) {
            sum += column;
            *before = sum;
        }
        for levels in &index.partitions {
            sums[levels.implied] = memo.total - (before[levels.end] - before[levels.start]);
        }
        index.add_sums(&memo.sums[..], scale, out);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::{Ask, Sum};
    use crate::model::glm::GlmEvaluator;
    use crate::model::tests::normals;
    use crate::model::{Evaluator, Glm, GlmFamily, Likelihood, Rows};
    use crate::rng::ClientId;
    use std::sync::Arc;

    const ROWS: u32 = 2000;
    const COLUMNS: usize = 58;

    /// Three attributes of 5, 3 and 40 levels, a constant, and nine columns that rows have or not;
    /// with `scaled` entries other than 1.
    fn census(scaled: bool) -> Glm {
        let row = |j: u32| {
            let hash = (j + 1).wrapping_mul(2_654_435_761) >> 7;
            let mut columns = vec![hash % 7 % 5, 5 + hash / 5 % 3, 8 + hash / 64 % 40, 48];
            columns
                .extend((0..9).filter(|k| hash >> (k + 8) & 3 == 0 || j % 50 == 7).map(|k| 49 + k));
            columns
                .into_iter()
                .map(|c| (c, if scaled { 0.25 + f64::from(c % 4) } else { 1.0 }))
                .collect()
        };
        let response = (0..ROWS).map(|j| f64::from(u8::from(j % 3 == 0 || j % 7 == 2))).collect();
        Glm::new(
            Design::sparse((0..ROWS).map(row), COLUMNS).unwrap(),
            response,
            GlmFamily::Bernoulli,
        )
        .unwrap()
    }

    fn fresh(model: &Glm, x: &[f64], scale: f64) -> Vec<u64> {
        let mut out = vec![0.5; COLUMNS];
        model.add_gradient(x, Rows::All, scale, &mut out, &mut vec![0.0; model.scratch()]);
        out.iter().map(|g| g.to_bits()).collect()
    }

    fn remembered(evaluator: &mut GlmEvaluator, x: &[f64]) -> Vec<u64> {
        let mut out: Vec<f64> = vec![0.5; COLUMNS];
        let (sum, rows, scale) = (Sum::Gradient { x }, Rows::All, 1.3);
        let ask = Ask { client: ClientId(0), sum, rows, scale, out: &mut out };
        evaluator.answer(&mut [ask]).unwrap();
        out.iter().map(|g| g.to_bits()).collect()
    }

    #[test]
    fn what_is_renewed_is_what_is_computed_anew() {
        for scaled in [false, true] {
            let model = Arc::new(census(scaled));
            let mut evaluator = GlmEvaluator::new(Arc::clone(&model));
            let (mut x, steps) = (normals(1, COLUMNS), normals(2, 1200));
            let mut renewed = 0;
            for (k, step) in steps.iter().enumerate() {
                match k % 100 {
                    40 => x = normals(3 + k as u64, COLUMNS), // far away
                    // several at once, and then too many
                    60..65 => (0..k % 12).for_each(|c| x[(7 * c + k) % COLUMNS] += step),
                    80 => x[5] = 1e5, // beyond reach
                    81 => x[5] = 0.1, // and back
                    90 => {}          // nowhere
                    _ => x[(k * k + 3 * k) % COLUMNS] += step,
                }
                let memo = evaluator.memos[0].as_ref();
                renewed += usize::from(memo.is_some_and(|memo| !memo.rows.is_empty()));
                assert_eq!(remembered(&mut evaluator, &x), fresh(&model, &x, 1.3), "step {k}");
                if k == 700 {
                    evaluator.memos[0] = None; // as a chain that is restored
                }
            }
            assert!((1000..1200).contains(&renewed), "{renewed}");
        }
    }

    /// Chains side by side: each has a last point of its own, and those that are far from it are
    /// summed together.
    #[test]
    fn chains_side_by_side_have_the_sums_of_each_alone() {
        for (scaled, chains) in [(false, 2), (true, 3), (false, 4), (true, 7), (false, 11)] {
            let model = Arc::new(census(scaled));
            let mut evaluator = GlmEvaluator::new(Arc::clone(&model));
            let scale = |c: usize| 1.3 - 0.1 * c as f64;
            let mut points: Vec<Vec<f64>> = (0..chains).map(|c| normals(c, COLUMNS)).collect();
            for (k, step) in normals(90, 60).iter().enumerate() {
                for (c, x) in points.iter_mut().enumerate() {
                    match (k + 5 * c) % 9 {
                        0 | 1 => *x = normals((100 * k + c) as u64, COLUMNS),
                        2 if k.is_multiple_of(4) => x[48] = 1e5, // beyond reach
                        3 => x[48] = 0.1,
                        _ => x[(k * k + 3 * c) % COLUMNS] += step,
                    }
                }
                let mut sums: Vec<Vec<f64>> = vec![vec![0.5; COLUMNS]; points.len()];
                let asks = points.iter().zip(&mut sums).enumerate().map(|(c, (x, out))| {
                    let (sum, rows, scale) = (Sum::Gradient { x }, Rows::All, scale(c));
                    Ask { client: ClientId(0), sum, rows, scale, out }
                });
                evaluator.answer(&mut asks.collect::<Vec<_>>()).unwrap();
                for (c, (x, sum)) in points.iter().zip(&sums).enumerate() {
                    let sum: Vec<u64> = sum.iter().map(|g| g.to_bits()).collect();
                    assert_eq!(sum, fresh(&model, x, scale(c)), "step {k}, chain {c} of {chains}");
                }
            }
            let known = evaluator.memos.iter().flatten().count();
            assert_eq!(known as u64, chains.min(8));
        }
    }

    #[test]
    fn exact_sums_are_near_plain_ones() {
        for scaled in [false, true] {
            let model = census(scaled);
            let every: Vec<u32> = (0..ROWS).collect();
            for at in 0..20 {
                let x = normals(50 + at, COLUMNS);
                let (mut exact, mut plain) = (vec![0.0; COLUMNS], vec![0.0; COLUMNS]);
                model.add_gradient(
                    &x,
                    Rows::Some(&every),
                    1.0,
                    &mut exact,
                    &mut vec![0.0; model.scratch()],
                );
                let mut rest = vec![0.0; COLUMNS];
                for part in every.chunks(2) {
                    // so few rows are summed plainly
                    model.add_gradient(&x, Rows::Some(part), 1.0, &mut plain, &mut rest);
                }
                let largest =
                    exact.iter().zip(&plain).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                let bound = f64::from(ROWS)
                    * (0.6 + 13.0 / 8.0)
                    * fixed::UNIT
                    * if scaled { 3.25 } else { 1.0 };
                assert!(largest < bound / 10.0 && largest > 0.0, "{largest:e} against {bound:e}");
            }
        }
    }

    #[test]
    fn a_large_parameter_is_summed_plainly() {
        let mut evaluator = GlmEvaluator::new(Arc::new(census(false)));
        let index =
            Indicators::new(&Design::sparse([vec![(0, 1.0), (2, -3.0)]], 4).unwrap()).unwrap();
        assert!(
            index.reaches(&[0.0, 64.0, -64.0, 64.0])
                && !index.reaches(&[0.0, 64.1, 0.0, 0.0])
                && !index.reaches(&[f64::NAN; 4])
        );
        let mut x = normals(1, COLUMNS);
        x[48] = 1e4; // every row has it
        let gradient: Vec<f64> =
            remembered(&mut evaluator, &x).into_iter().map(f64::from_bits).collect();
        let zeros = (0..ROWS).filter(|j| !(j % 3 == 0 || j % 7 == 2)).count();
        assert!((gradient[48] - 0.5 - 1.3 * zeros as f64).abs() < 1e-9); // all probabilities are 1
        let [memo, ..] = evaluator.memos;
        assert!(memo.is_some_and(|memo| memo.rows.is_empty()));
    }

    #[test]
    fn levels_of_an_attribute_are_found() {
        let row = |j: u32| {
            let either = if j.is_multiple_of(2) { [6, 7] } else { [7, 8] };
            [j % 4 / 3, 2, 3 + j % 3]
                .into_iter()
                .chain(either)
                .map(|column| (column, 1.0))
                .collect()
        };
        let index = Indicators::new(&Design::sparse((0..12).map(row), 9).unwrap()).unwrap();
        let found: Vec<_> = index
            .partitions
            .iter()
            .map(|levels| (levels.start, levels.end, levels.implied))
            .collect();
        assert_eq!(found, [(0, 2, 0), (2, 3, 2), (3, 6, 3), (7, 8, 7)]);
    }

    #[test]
    fn only_columns_of_equal_entries_are_indicators() {
        let index = |entries: [f64; 2]| {
            Indicators::new(&Design::sparse(entries.map(|entry| vec![(1, entry)]), 2).unwrap())
        };
        assert!(index([2.0, 2.0]).is_some() && index([2.0, 1.0]).is_none());
        assert!(
            Indicators::new(&Design::sparse([vec![(3, 1.0)]], MOST_COLUMNS + 1).unwrap()).is_none()
        );
        assert!(Indicators::new(&Design::dense(vec![1.0; 6], 3).unwrap()).is_none());
    }
}
