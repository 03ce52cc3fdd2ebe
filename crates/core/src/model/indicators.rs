//! Renew the gradient of logistic regression where predictors of rows moved, and nowhere else.
//!
//! Rows of indicators say which levels of some attributes an observation has: all entries of a column are alike. Of such rows predictors, probabilities and sums of slopes are counted
//! in units of 2^-40 (`fixed.rs`). Sums of integers depend neither on their order nor on their history, so what is kept from the last point, and renewed for the rows that have an entry
//! where the point moved, is what a fresh sum would be, bit for bit.
//!
//! The gradient is that of predictors whose every term is rounded by 2^-41 at most, with every slope right to 0.6 * 2^-40. A coordinate of `n` rows that have `k` entries each is within
//! `n (1 + k/8) 2^-40` times its entry of the plain sum, and far nearer as a rule, since roundings cancel.

use std::cmp::Reverse;

use super::coded::{CODES, Table};
use super::design::{Design, Entries};
use super::fixed;
use crate::lanes::{LANES, wide};

/// If more columns moved than this, all is computed anew.
const MOST_MOVED: usize = 8;

/// With more rows than this, sums of slopes would not be certain to fit 63 bits.
const MOST_ROWS: usize = 1 << 22;

/// Rows that are renewed together.
const CHUNK: usize = 512;

/// Columns that most rows mark, whose sums are made in registers.
const FREQUENT: usize = 3 * LANES;

/// Marks of other columns that are read together.
const MARKS: usize = 4;

/// With more columns than this, marks and what fills them up would not fit a byte.
const MOST_COLUMNS: usize = CODES - MARKS;

/// Which rows have an entry in a column, and which columns a row's slope is added to.
#[derive(Clone, Debug)]
pub(super) struct Indicators {
    /// What all entries of a column are.
    values: Vec<f64>,
    /// How large a parameter may be in absolute value, for all predictors to be within the limit.
    reach: f64,
    /// Where rows stand here: those with more marks than others behind them.
    places: Vec<u32>,
    /// The columns that most rows mark.
    frequent: Vec<u8>,
    /// Place by place, the columns that a row's slope is added to.
    marks: Vec<Marks>,
    /// The first place with more marks than that; then place by place where the others start, and the others.
    long: u32,
    other_starts: Vec<usize>,
    others: Vec<[u8; MARKS]>,
    /// Column by column, the places of rows with an entry there, ascending.
    holders: Vec<u32>,
    spans: Vec<Span>,
    partitions: Vec<Partition>,
}

/// The columns that a row's slope is added to.
#[derive(Clone, Copy, Debug)]
struct Marks {
    /// One bit for each that is frequent.
    frequent: u32,
    /// The others, filled up with numbers of no column.
    rare: [u8; MARKS],
}

/// Where a column's rows stand among all holders; from `long` on they have others than the first marks.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    long: usize,
    end: usize,
}

/// Neighbouring columns of which every row has exactly one: the levels of an attribute. The sum of the most frequent one is what the others leave of the sum of all slopes,
/// so that column is no mark.
#[derive(Clone, Copy, Debug)]
struct Partition {
    start: usize,
    end: usize,
    implied: usize,
}

/// What a model keeps of the last point. It is no part of a chain's state: without it the same numbers are found, later.
#[derive(Clone, Debug)]
pub struct Memo {
    /// The last point; not a number at first.
    at: Vec<f64>,
    /// The predictor and the probability of each row at that point, by place; none as long as nothing was saved by them.
    rows: Vec<Kept>,
    /// The slopes' sums for each column, and then what was added to numbers of no column.
    sums: Box<Table<i64>>,
    /// The sum of all slopes.
    total: i64,
    /// What is found of rows that are renewed together.
    renewed: Vec<[i64; LANES]>,
}

/// What is kept of a row, with its marks once more: what is read together stands together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    predictor: i64,
    chance: i64,
    marks: Marks,
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
        let mut marking: Vec<usize> = (0..columns).filter(|k| partitions.iter().all(|levels| levels.implied != *k)).collect();
        marking.sort_by_key(|column| Reverse(holders[*column].len()));
        let (frequent, rare) = marking.split_at(marking.len().min(FREQUENT));
        let (mut bits, mut marks) = (vec![0; rows], vec![Vec::new(); rows]);
        for (bit, column) in frequent.iter().enumerate() {
            holders[*column].iter().for_each(|row| bits[*row as usize] |= 1 << bit);
        }
        for column in rare {
            holders[*column].iter().for_each(|row| marks[*row as usize].push(*column as u8));
        }
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order.sort_by_key(|row| (marks[*row as usize].len().max(MARKS), u32::reverse_bits(bits[*row as usize])));
        let mut index = Indicators {
            values,
            reach: fixed::LIMIT / longest.max(f64::MIN_POSITIVE),
            places: vec![0; rows],
            frequent: frequent.iter().map(|column| *column as u8).collect(),
            marks: Vec::with_capacity(rows),
            long: order.partition_point(|row| marks[*row as usize].len() <= MARKS) as u32,
            other_starts: vec![0],
            others: Vec::new(),
            holders: Vec::with_capacity(holders.iter().map(Vec::len).sum()),
            spans: Vec::with_capacity(columns),
            partitions,
        };
        for (place, row) in order.iter().enumerate() {
            index.places[*row as usize] = place as u32;
            let all = &marks[*row as usize];
            let filled = |some: &[u8]| std::array::from_fn(|k| some.get(k).copied().unwrap_or((MOST_COLUMNS + k) as u8));
            let (first, others) = all.split_at(all.len().min(MARKS));
            index.marks.push(Marks { frequent: bits[*row as usize], rare: filled(first) });
            if !others.is_empty() {
                index.others.extend(others.chunks(MARKS).map(filled));
                index.other_starts.push(index.others.len());
            }
        }
        for holders in &mut holders {
            holders.iter_mut().for_each(|row| *row = index.places[*row as usize]);
            holders.sort_unstable();
            let start = index.holders.len();
            index.holders.extend(&*holders);
            let long = start + holders.partition_point(|place| *place < index.long);
            index.spans.push(Span { start, long, end: index.holders.len() });
        }
        Some(index)
    }

    /// A memo that knows nothing yet.
    pub(super) fn memo(&self) -> Memo {
        let renewed = vec![[0; LANES]; CHUNK / LANES];
        Memo { at: vec![f64::NAN; self.values.len()], rows: Vec::new(), sums: Box::new([0; CODES]), total: 0, renewed }
    }

    /// Whether predictors at `x` are small enough to be counted in units: beyond that a logistic model has nothing to say.
    #[inline(always)]
    pub(super) fn reaches(&self, x: &[f64]) -> bool {
        let mut beyond = false;
        for x in x {
            beyond |= !(x.abs() <= self.reach); // not a number is beyond, too
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

    /// Add the gradient at `x` if that is near the last point; else say what to do.
    pub(super) fn add_renewed(&self, memo: &mut Memo, x: &[f64], scale: f64, out: &mut [f64]) -> Renewal {
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
        memo.rows.extend(self.marks.iter().map(|marks| Kept { predictor: 0, chance: 0, marks: *marks }));
        (&mut memo.rows, &mut memo.sums[..self.values.len()])
    }

    /// Note what a fresh sum found of a row.
    #[inline(always)]
    pub(super) fn keep(&self, row: usize, predictor: i64, chance: i64, rows: &mut [Kept]) {
        let row = &mut rows[self.places[row] as usize];
        (row.predictor, row.chance) = (predictor, chance);
    }

    /// Finish a memo whose rows and sums are those of a fresh sum.
    pub(super) fn close(&self, memo: &mut Memo) {
        memo.total = self.partitions.first().map_or(0, |levels| memo.sums[levels.start..levels.end].iter().sum());
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
                let span = self.spans[first + lane];
                moved.rows += span.end - span.start;
                if moved.count == MOST_MOVED || moved.rows > self.places.len() {
                    return false;
                }
                moved.columns[moved.count] = first + lane;
                moved.count += 1;
            }
        }
        true
    }

    /// Move the predictors of some rows, and what follows from them. From `long` on they have other marks than the first.
    #[inline(always)]
    fn renew_rows(&self, places: &[u32], long: usize, by: i64, memo: &mut Memo) {
        let Memo { rows, renewed, sums, total, .. } = memo;
        let (rows, sums): (&mut [Kept], &mut Table<i64>) = (rows, sums);
        for (place, predictor) in places.iter().zip(renewed.as_flattened_mut()) {
            let row = &mut rows[*place as usize];
            row.predictor += by;
            *predictor = row.predictor;
        }
        for block in renewed.iter_mut().take(places.len().div_ceil(LANES)) {
            let mut chances = *block;
            for lane in 0..LANES {
                chances[lane] = fixed::sigmoid(chances[lane]);
            }
            *block = chances;
        }
        let chances = renewed.as_flattened();
        let (mut all, mut often) = (0, [[0; LANES]; FREQUENT / LANES]);
        for (place, chance) in places[long..].iter().zip(&chances[long..]) {
            let change = chance - rows[*place as usize].chance;
            let other = (*place - self.long) as usize;
            for marks in &self.others[self.other_starts[other]..self.other_starts[other + 1]] {
                for mark in marks {
                    sums[*mark as usize] += change;
                }
            }
        }
        for (place, chance) in places.iter().zip(chances) {
            let row = &mut rows[*place as usize];
            let change = chance - row.chance;
            row.chance = *chance;
            all += change;
            for (part, sums) in often.iter_mut().enumerate() {
                for lane in 0..LANES {
                    sums[lane] += if row.marks.frequent & (1 << (part * LANES + lane)) == 0 { 0 } else { change };
                }
            }
            for mark in &row.marks.rare {
                sums[*mark as usize] += change;
            }
        }
        for (column, sum) in self.frequent.iter().zip(often.as_flattened()) {
            sums[*column as usize] += sum;
        }
        *total += all;
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
    let mut group = vec![usize::MAX; rows]; // the first column of the run that has an entry of the row
    for (column, holders_of) in holders.iter().enumerate() {
        if holders_of.iter().any(|row| group[*row as usize] == start) {
            (start, covered) = (column, 0); // a row with two of them: the run is over
        }
        holders_of.iter().for_each(|row| group[*row as usize] = start);
        covered += holders_of.len();
        if covered == rows {
            let most = (start..column).fold(column, |most, k| if holders[k].len() > holders[most].len() { k } else { most });
            found.push(Partition { start, end: column + 1, implied: most });
            (start, covered) = (column + 1, 0);
        }
    }
    found
}

wide! {
    /// Move the memo to `x`, if that is near, and add the gradient there.
    fn renew<'a>(index: &'a Indicators, memo: &'a mut Memo, x: &'a [f64], scale: f64, out: &'a mut [f64]) -> bool {
        let Some(moved) = index.moved(memo, x) else { return false };
        let columns = &moved.columns[..moved.count];
        for column in columns {
            if !(x[*column].abs() <= index.reach) {
                return false; // elsewhere it is the last point, which was within reach
            }
        }
        for column in columns {
            let value = index.values[*column];
            let by = fixed::from_real(value * x[*column]) - fixed::from_real(value * memo.at[*column]);
            memo.at[*column] = x[*column];
            let Span { start, long, end } = index.spans[*column];
            let mut first = start;
            while first < end {
                let next = end.min(first + CHUNK);
                index.renew_rows(&index.holders[first..next], long.clamp(first, next) - first, by, memo);
                first = next;
            }
        }
        let Memo { renewed, sums, total, .. } = memo;
        for levels in &index.partitions {
            sums[levels.implied] = 0;
        }
        let sums_before = renewed.as_flattened_mut();
        let mut sum = 0;
        sums_before[0] = 0;
        for (before, column) in sums_before[1..].iter_mut().zip(&sums[..index.values.len()]) {
            sum += column;
            *before = sum;
        }
        for levels in &index.partitions {
            sums[levels.implied] = *total - (sums_before[levels.end] - sums_before[levels.start]);
        }
        index.add_sums(&memo.sums[..], scale, out);
        true
    }
}
