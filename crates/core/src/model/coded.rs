//! Read rows that are alike in parts once for each part.
//!
//! Columns are cut into segments of neighbours. What a row has in a segment is one of at most 256
//! patterns there, so that a row is one byte a segment: levels of a few attributes, each a column
//! of zeros and ones, come to a byte together. An inner product is then a sum of table entries, one
//! a segment, and a sum of rows is a sum into such tables. This is the co-coding of columns in
//! compressed linear algebra (Elgohary and others, VLDB 2016).

use std::collections::BTreeMap;

use super::design::{Design, Entries};
use super::fixed;

/// Patterns of a segment.
pub(super) const CODES: usize = 256;

/// One number for each pattern of a segment.
pub(super) type Table<N> = [N; CODES];

/// What inner products and sums of rows are made of: plain numbers, or multiples of a unit, whose
/// sums are exact; or several of either, one for each of some points.
pub(super) trait Term: Copy {
    /// A parameter, or as many as there are points.
    type Parameter: Copy;
    const ZERO: Self;
    fn plus(self, other: Self) -> Self;
    /// An entry times a parameter.
    fn product(entry: f64, x: Self::Parameter) -> Self;
    /// The share in a column's sum of rows that have this entry there.
    fn share(self, entry: f64) -> Self;
}

impl Term for f64 {
    type Parameter = f64;
    const ZERO: f64 = 0.0;

    #[inline(always)]
    fn plus(self, other: f64) -> f64 {
        self + other
    }

    #[inline(always)]
    fn product(entry: f64, x: f64) -> f64 {
        entry * x
    }

    #[inline(always)]
    fn share(self, entry: f64) -> f64 {
        self * entry
    }
}

/// For columns whose entries are all alike: whoever takes the sums multiplies them by that.
impl Term for i64 {
    type Parameter = f64;
    const ZERO: i64 = 0;

    #[inline(always)]
    fn plus(self, other: i64) -> i64 {
        self + other
    }

    #[inline(always)]
    fn product(entry: f64, x: f64) -> i64 {
        fixed::from_real(entry * x)
    }

    #[inline(always)]
    fn share(self, _entry: f64) -> i64 {
        self
    }
}

/// There are loops where `from_fn` would be shorter: a closure may be compiled for the narrowest
/// registers.
impl<N: Term<Parameter = f64>, const L: usize> Term for [N; L] {
    type Parameter = [f64; L];
    const ZERO: [N; L] = [N::ZERO; L];

    #[inline(always)]
    fn plus(mut self, other: [N; L]) -> [N; L] {
        for lane in 0..L {
            self[lane] = self[lane].plus(other[lane]);
        }
        self
    }

    #[inline(always)]
    fn product(entry: f64, x: [f64; L]) -> [N; L] {
        let mut products = [N::ZERO; L];
        for lane in 0..L {
            products[lane] = N::product(entry, x[lane]);
        }
        products
    }

    #[inline(always)]
    fn share(mut self, entry: f64) -> [N; L] {
        for lane in 0..L {
            self[lane] = self[lane].share(entry);
        }
        self
    }
}

/// Rows as codes of patterns.
#[derive(Clone, Debug)]
pub(super) struct Coded {
    segments: Vec<Patterns>,
    /// Row by row, one a segment.
    codes: Vec<u8>,
    /// From so many rows on, tables are made in less time than they save.
    worth: usize,
}

/// The patterns of a segment: the first has nothing, and each other one entry more than one before
/// it.
type Patterns = Vec<Pattern>;

#[derive(Clone, Copy, Debug, Default)]
struct Pattern {
    /// The pattern with one entry less.
    shorter: u8,
    /// The last entry.
    column: u32,
    value: f64,
}

impl Coded {
    /// The codes of sparse rows, if they are alike in parts: if the rows have twice as many entries
    /// as codes at least.
    pub(super) fn new(design: &Design) -> Option<Self> {
        let mut columns = vec![Vec::new(); design.columns()];
        let mut entries = 0;
        for row in 0..design.rows() {
            let Entries::Sparse(places, values) = design.row(row) else { return None };
            entries += places.len();
            for (column, value) in places.iter().zip(values) {
                columns[*column as usize].push((row, *value));
            }
        }
        let most = CODES.min(design.rows() / 4);
        let mut closed = Vec::new();
        let mut open = Segment::new(design.rows());
        for (column, entries) in
            columns.iter().enumerate().filter(|(_, entries)| !entries.is_empty())
        {
            if !open.extend(column as u32, entries, most) {
                closed.push(std::mem::replace(&mut open, Segment::new(design.rows())));
                if !open.extend(column as u32, entries, most) {
                    return None;
                }
            }
        }
        closed.push(open);
        let saved = entries
            .checked_sub(closed.len() * design.rows())
            .filter(|saved| 2 * saved >= entries)?;
        let codes = (0..design.rows())
            .flat_map(|row| closed.iter().map(move |segment| segment.codes[row]))
            .collect();
        let segments: Vec<Patterns> = closed.into_iter().map(|segment| segment.patterns).collect();
        let patterns: usize = segments.iter().map(Vec::len).sum();
        Some(Coded { segments, codes, worth: 2 * patterns * design.rows() / saved.max(1) })
    }

    /// How many tables there are.
    pub(super) fn tables(&self) -> usize {
        self.segments.len()
    }

    /// Whether so many rows are read faster by codes.
    pub(super) fn is_worth(&self, rows: usize) -> bool {
        rows > self.worth
    }

    /// The inner products of all patterns with `x`.
    #[inline(always)]
    pub(super) fn tabulate<N: Term>(&self, x: &[N::Parameter], tables: &mut [Table<N>]) {
        for (patterns, table) in self.segments.iter().zip(tables) {
            table[0] = N::ZERO;
            for (code, Pattern { shorter, column, value }) in patterns.iter().enumerate().skip(1) {
                let product = N::product(*value, x[*column as usize]);
                table[code] = table[*shorter as usize].plus(product);
            }
        }
    }

    /// The inner product of a row with what was tabulated.
    #[inline(always)]
    pub(super) fn dot<N: Term>(&self, row: usize, tables: &[Table<N>]) -> N {
        let mut sum = N::ZERO;
        for (code, table) in
            self.codes[row * tables.len()..(row + 1) * tables.len()].iter().zip(tables)
        {
            sum = sum.plus(table[*code as usize]);
        }
        sum
    }

    /// Add a row times `scale` to a sum of rows.
    #[inline(always)]
    pub(super) fn add_row<N: Term>(&self, row: usize, scale: N, tables: &mut [Table<N>]) {
        for (code, table) in
            self.codes[row * tables.len()..(row + 1) * tables.len()].iter().zip(tables)
        {
            let place = &mut table[*code as usize];
            *place = place.plus(scale);
        }
    }

    /// Add a sum of rows to `out`; the tables are used up.
    #[inline(always)]
    pub(super) fn add_sum<N: Term>(&self, tables: &mut [Table<N>], out: &mut [N]) {
        for (patterns, table) in self.segments.iter().zip(tables) {
            // patterns with the same last column stand together
            let (mut last, mut sum) = (0, N::ZERO);
            for (code, Pattern { shorter, column, value }) in
                patterns.iter().enumerate().skip(1).rev()
            {
                let scale = table[code];
                table[*shorter as usize] = table[*shorter as usize].plus(scale);
                if *column != last {
                    out[last as usize] = out[last as usize].plus(sum);
                    (last, sum) = (*column, N::ZERO);
                }
                sum = sum.plus(scale.share(*value));
            }
            out[last as usize] = out[last as usize].plus(sum);
        }
    }
}

/// A segment that columns are added to.
struct Segment {
    patterns: Patterns,
    /// The pattern of each row.
    codes: Vec<u8>,
}

impl Segment {
    fn new(rows: usize) -> Self {
        Segment { patterns: vec![Pattern::default()], codes: vec![0; rows] }
    }

    /// Add a column, unless there would be too many patterns.
    fn extend(&mut self, column: u32, entries: &[(usize, f64)], most: usize) -> bool {
        let mut longer = BTreeMap::new();
        for (row, value) in entries {
            longer.insert((self.codes[*row], value.to_bits()), 0);
        }
        if self.patterns.len() + longer.len() > most {
            return false;
        }
        for ((shorter, value), code) in &mut longer {
            *code = self.patterns.len() as u8; // below `most`, which is at most 256
            self.patterns.push(Pattern {
                shorter: *shorter,
                column,
                value: f64::from_bits(*value),
            });
        }
        for (row, value) in entries {
            self.codes[*row] = longer[&(self.codes[*row], value.to_bits())];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes with 5, 7, 30, 1 and 2 levels, and a column that few rows have.
    fn alike(rows: u32) -> Vec<Vec<(u32, f64)>> {
        let row = |j: u32| {
            let mut entries = vec![
                (j % 5, 1.0),
                (5 + j / 3 % 7, 1.0),
                (12 + j * j % 30, if j.is_multiple_of(2) { 0.5 } else { 1.0 }),
            ];
            entries.extend([(42, 1.0), (43 + j / 5 % 2, -1.0)]);
            entries.extend(j.is_multiple_of(11).then_some((45, -2.0)));
            entries
        };
        (0..rows).map(row).collect()
    }

    #[test]
    fn codes_give_the_rows_back() {
        let rows = alike(2000);
        let design = Design::sparse(rows.clone(), 46).unwrap();
        let coded = Coded::new(&design).unwrap();
        assert!(coded.tables() == 2 && coded.is_worth(2000) && !coded.is_worth(10), "{coded:?}");
        let mut tables = vec![[0.0; CODES]; coded.tables()];
        for j in [0, 1, 17, 22, 1999] {
            tables.iter_mut().for_each(|table| table.fill(0.0));
            coded.add_row(j, 3.0, &mut tables);
            let mut out = vec![0.0; 46];
            coded.add_sum(&mut tables, &mut out);
            let mut right = vec![0.0; 46];
            rows[j].iter().for_each(|(column, value)| right[*column as usize] = 3.0 * value);
            assert_eq!(out, right);
            // whole numbers: every order gives the same sum
            let x: Vec<f64> = (0..46).map(|k| f64::from(k * k)).collect();
            coded.tabulate(&x, &mut tables);
            assert_eq!(coded.dot(j, &tables), design.row_dot(j, &x));
        }
    }

    #[test]
    fn rows_that_are_not_alike_have_no_codes() {
        let numbers =
            |rows: usize| (0..rows).map(|j| vec![(0, 1.0 + j as f64), (3, 1.0), (4, 1.0)]);
        assert!(Coded::new(&Design::sparse(numbers(1100), 5).unwrap()).is_none());
        assert!(
            Coded::new(&Design::sparse((0..900).map(|j| vec![(j % 9, 1.0)]), 9).unwrap()).is_none()
        ); // nothing to save
        assert!(Coded::new(&Design::dense(vec![1.0; 4000], 4).unwrap()).is_none());
    }
}
