//! Renew the gradient of logistic regression where predictors of rows moved, and nowhere else.
//!
//! Rows of indicators say which levels of some attributes a row has: all entries of a column are alike. Here predictors, probabilities and their sums are counted in units of 2^-40
//! (`fixed.rs`). Sums of integers do not depend on their order or history, so what is kept from the last point, and renewed for rows that have an entry where the point moved, is what
//! a fresh sum would be, bit for bit. The gradient is that at a point within 2^-41 of `x` in each predictor's products, with each row's slope right to 2^-41: of `n` rows with entries
//! up to `v`, a coordinate is within `n v 2^-40` or so of the plain sum, and far nearer as a rule, since roundings cancel.

use super::design::{Design, Entries};
use super::fixed;
use crate::lanes::{LANES, sigmoid, wide};

/// Marks of a row are kept and read so many at a time.
const PACK: usize = 4;

/// If more columns moved than this, all is computed anew.
const MOST_MOVED: usize = 8;

/// With more rows than this, sums of slopes would not be certain to fit 63 bits.
const MOST_ROWS: usize = 1 << 22;

/// Rows that are renewed together.
const CHUNK: usize = 256;

/// Which rows have an entry in a column, and which columns a row's slope is added to.
#[derive(Clone, Debug)]
pub(super) struct Indicators {
    /// What all entries of a column are.
    values: Vec<f64>,
    /// How large a parameter may be in absolute value, for all predictors to be within the limit.
    reach: f64,
    /// Where rows stand here: those with equally many marks together.
    places: Vec<u32>,
    runs: Vec<Run>,
    /// Place by place, the columns that a row's slope is added to; filled up with one behind the last.
    marks: Vec<[u16; PACK]>,
    /// Column by column, the places of rows with an entry there, ascending: those of column `k` are `starts[k]..starts[k + 1]`.
    holders: Vec<u32>,
    starts: Vec<usize>,
    partitions: Vec<Partition>,
}

/// Places of rows with equally many marks.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The places.
    start: u32,
    end: u32,
    /// Packs of marks of each row, and the first row's first.
    packs: usize,
    first: usize,
}

/// Neighbouring columns of which every row has exactly one, the levels of an attribute. The sum of the most frequent one is what the others leave of the sum of all slopes,
/// so that column is no mark.
#[derive(Clone, Copy, Debug)]
struct Partition {
    start: usize,
    end: usize,
    implied: usize,
}

/// What is kept of the last point. It is no part of a chain's state: without it the same numbers are found, later.
#[derive(Clone, Debug)]
pub struct Memo {
    /// The last point; not a number where there is none.
    at: Vec<f64>,
    /// The predictor and the probability of each row at that point, by place; none as long as nothing was saved by them.
    rows: Vec<Kept>,
    /// The slopes' sums for each column, and one for what fills up marks.
    sums: Vec<i64>,
    /// The sum of all slopes.
    total: i64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    predictor: i64,
    chance: i64,
}

impl Memo {
    /// Forget everything.
    pub(super) fn forget(&mut self) {
        self.at.fill(f64::NAN);
        self.rows.clear();
    }
}

impl Indicators {
    /// Of sparse rows, if all entries of each column are alike.
    pub(super) fn new(design: &Design) -> Option<Self> {
        let (rows, columns) = (design.rows(), design.columns());
        if rows > MOST_ROWS || columns >= usize::from(u16::MAX) {
            return None;
        }
        let (mut values, mut counts, mut longest) = (vec![0.0; columns], vec![0; columns], 0.0f64);
        for row in 0..rows {
            let Entries::Sparse(places, entries) = design.row(row) else { return None };
            for (column, entry) in places.iter().zip(entries) {
                let value = &mut values[*column as usize];
                if counts[*column as usize] > 0 && *value != *entry {
                    return None;
                }
                *value = *entry;
                counts[*column as usize] += 1;
            }
            longest = longest.max(entries.iter().map(|entry| entry.abs()).sum());
        }
        let partitions = partitions(design, &counts);
        let mut is_mark = vec![true; columns];
        partitions.iter().for_each(|partition| is_mark[partition.implied] = false);
        let marks_of = |row: usize| marked(design, row, &is_mark);
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order.sort_by_key(|row| marks_of(*row as usize).count().div_ceil(PACK));
        let mut index = Indicators {
            values,
            reach: fixed::LIMIT / longest.max(f64::MIN_POSITIVE),
            places: vec![0; rows],
            runs: Vec::new(),
            marks: Vec::new(),
            holders: vec![0; counts.iter().sum()],
            starts: Vec::with_capacity(columns + 1),
            partitions,
        };
        let mut end = 0;
        index.starts.push(0);
        for count in &counts {
            end += count;
            index.starts.push(end);
        }
        let mut next = index.starts.clone();
        for (place, row) in (0u32..).zip(&order) {
            let row = *row as usize;
            index.places[row] = place;
            let columns: Vec<u16> = marks_of(row).collect();
            let packs = columns.len().div_ceil(PACK);
            if index.runs.last().is_none_or(|run| run.packs != packs) {
                index.runs.push(Run { start: place, end: place, packs, first: index.marks.len() });
            }
            if let Some(run) = index.runs.last_mut() {
                run.end = place + 1;
            }
            for some in columns.chunks(PACK) {
                let mut pack = [design.columns() as u16; PACK];
                pack[..some.len()].copy_from_slice(some);
                index.marks.push(pack);
            }
            if let Entries::Sparse(columns, _) = design.row(row) {
                for column in columns {
                    index.holders[next[*column as usize]] = place;
                    next[*column as usize] += 1;
                }
            }
        }
        Some(index)
    }

    /// A memo that knows nothing yet.
    pub(super) fn memo(&self) -> Memo {
        let columns = self.values.len();
        Memo { at: vec![f64::NAN; columns], rows: Vec::new(), sums: vec![0; columns + 1], total: 0 }
    }

    /// Whether predictors at `x` are small enough to be counted in units: so they are wherever a logistic model has anything to say.
    #[inline(always)]
    pub(super) fn reaches(&self, x: &[f64]) -> bool {
        let mut beyond = false;
        for x in x {
            beyond |= !(x.abs() <= self.reach);
        }
        !beyond
    }

    /// `out += scale * sum_j slope_j a_j`, from the slopes' sums for each column.
    #[inline(always)]
    pub(super) fn add_sums(&self, sums: &[i64], scale: f64, out: &mut [f64]) {
        let scale = scale * fixed::UNIT;
        for ((out, value), sum) in out.iter_mut().zip(&self.values).zip(sums) {
            *out += (scale * value) * *sum as f64;
        }
    }

    /// The rows with an entry where `x` is not the last point, counted more than once if they have more; `None` if that is no small move.
    fn moved(&self, memo: &Memo, x: &[f64]) -> Option<usize> {
        let (mut columns, mut rows) = (0, 0);
        for (column, (x, at)) in x.iter().zip(&memo.at).enumerate() {
            if x != at {
                columns += 1;
                rows += self.starts[column + 1] - self.starts[column];
                if columns > MOST_MOVED || rows > self.places.len() {
                    return None;
                }
            }
        }
        Some(rows)
    }

    /// Add the gradient at `x` if that is near the last point; else say whether it is worth keeping what a fresh sum finds.
    pub(super) fn add_renewed(&self, memo: &mut Memo, x: &[f64], scale: f64, out: &mut [f64]) -> Renewal {
        if !memo.rows.is_empty() && renew(self, memo, x, scale, out) {
            return Renewal::Done;
        }
        memo.rows.clear();
        let near = self.reaches(x) && self.moved(memo, x).is_some();
        memo.at.copy_from_slice(x);
        if near { Renewal::Keep } else { Renewal::Leave }
    }

    /// Places for what a fresh sum finds of each row and column.
    pub(super) fn room<'a>(&self, memo: &'a mut Memo) -> (&'a mut [Kept], &'a mut [i64]) {
        memo.rows.resize(self.places.len(), Kept::default());
        (&mut memo.rows, &mut memo.sums)
    }

    /// Note what a fresh sum found of a row.
    #[inline(always)]
    pub(super) fn keep(&self, row: usize, predictor: i64, chance: i64, rows: &mut [Kept]) {
        rows[self.places[row] as usize] = Kept { predictor, chance };
    }

    /// Finish a memo whose rows and sums are those of a fresh sum.
    pub(super) fn close(&self, memo: &mut Memo) {
        memo.total = self.partitions.first().map_or(0, |levels| memo.sums[levels.start..levels.end].iter().sum());
    }
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

/// The columns of a row that are marks.
fn marked<'a>(design: &'a Design, row: usize, is_mark: &'a [bool]) -> impl Iterator<Item = u16> + 'a {
    let columns = if let Entries::Sparse(columns, _) = design.row(row) { columns } else { &[] };
    columns.iter().filter(|column| is_mark[**column as usize]).map(|column| *column as u16)
}

/// Runs of neighbouring columns of which every row has exactly one.
fn partitions(design: &Design, counts: &[usize]) -> Vec<Partition> {
    let mut columns = vec![Vec::new(); design.columns()];
    for row in 0..design.rows() {
        if let Entries::Sparse(places, _) = design.row(row) {
            places.iter().for_each(|column| columns[*column as usize].push(row));
        }
    }
    let (mut found, mut start, mut covered) = (Vec::new(), 0, 0);
    let mut group = vec![usize::MAX; design.rows()]; // where the group started that has an entry of the row
    for (column, rows) in columns.iter().enumerate() {
        if rows.iter().any(|row| group[*row] == start) {
            (start, covered) = (column, 0); // two of one row: what was before is no partition
        }
        rows.iter().for_each(|row| group[*row] = start);
        covered += rows.len();
        if covered == design.rows() {
            let most = (start..=column).max_by_key(|k| (counts[*k], usize::MAX - k));
            found.push(Partition { start, end: column + 1, implied: most.unwrap_or(column) });
            (start, covered) = (column + 1, 0);
        }
    }
    found
}

wide! {
    /// Move the memo to `x`, if that is near, and add the gradient there.
    fn renew<'a>(index: &'a Indicators, memo: &'a mut Memo, x: &'a [f64], scale: f64, out: &'a mut [f64]) -> bool {
        if !index.reaches(x) {
            return false;
        }
        let (mut columns, mut moved, mut rows) = ([0; MOST_MOVED], 0, 0);
        let (whole, rest) = x.as_chunks::<LANES>();
        let (whole_at, rest_at) = memo.at.as_chunks::<LANES>();
        for (block, (x, at)) in whole.iter().zip(whole_at).enumerate() {
            let mut differs = false;
            for lane in 0..LANES {
                differs |= x[lane] != at[lane];
            }
            if differs {
                for lane in 0..LANES {
                    if x[lane] != at[lane] {
                        if moved == MOST_MOVED {
                            return false;
                        }
                        columns[moved] = block * LANES + lane;
                        moved += 1;
                    }
                }
            }
        }
        for (lane, (x, at)) in rest.iter().zip(rest_at).enumerate() {
            if x != at {
                if moved == MOST_MOVED {
                    return false;
                }
                columns[moved] = whole.len() * LANES + lane;
                moved += 1;
            }
        }
        for column in &columns[..moved] {
            rows += index.starts[column + 1] - index.starts[*column];
        }
        if rows > index.places.len() {
            return false;
        }
        for column in &columns[..moved] {
            let product = |x: f64| fixed::from_real(index.values[*column] * x);
            let by = product(x[*column]) - product(memo.at[*column]);
            memo.at[*column] = x[*column];
            let mut holders = &index.holders[index.starts[*column]..index.starts[column + 1]];
            while !holders.is_empty() {
                let (chunk, later) = holders.split_at(holders.len().min(CHUNK));
                index.renew_rows(chunk, by, memo);
                holders = later;
            }
        }
        for levels in &index.partitions {
            let mut others = 0;
            memo.sums[levels.implied] = 0;
            for sum in &memo.sums[levels.start..levels.end] {
                others += sum;
            }
            memo.sums[levels.implied] = memo.total - others;
        }
        index.add_sums(&memo.sums, scale, out);
        true
    }
}

impl Indicators {
    /// Move the predictors of some rows, and what follows from them.
    #[inline(always)]
    fn renew_rows(&self, places: &[u32], by: i64, memo: &mut Memo) {
        let (mut new, mut old) = ([0; CHUNK], [0; CHUNK]);
        for ((place, new), old) in places.iter().zip(&mut new).zip(&mut old) {
            let row = &mut memo.rows[*place as usize];
            row.predictor += by;
            (*new, *old) = (row.predictor, row.chance);
        }
        let blocks = places.len().div_ceil(LANES);
        for (new, old) in new.as_chunks_mut::<LANES>().0[..blocks].iter_mut().zip(&mut old.as_chunks_mut::<LANES>().0[..blocks]) {
            for lane in 0..LANES {
                new[lane] = fixed::from_real(sigmoid(fixed::to_real(new[lane])));
                old[lane] = new[lane] - old[lane];
            }
        }
        let changes = &old;
        let mut at = 0;
        for run in &self.runs {
            while at < places.len() && places[at] < run.end {
                let change = changes[at];
                memo.rows[places[at] as usize].chance = new[at];
                memo.total += change;
                let first = run.first + (places[at] - run.start) as usize * run.packs;
                for pack in &self.marks[first..first + run.packs] {
                    for mark in pack {
                        memo.sums[*mark as usize] += change;
                    }
                }
                at += 1;
            }
        }
    }
}
