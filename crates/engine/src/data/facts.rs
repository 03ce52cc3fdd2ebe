//! Say of a site's column what must be known elsewhere before all agree on what it means: of
//! numbers two values at most, unless they become levels, of which all are told in any case.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::differences::missing_code;
use super::hazards::{Hazard, Origin, Used, few_numbers, numbers_among_words};
use super::{Column, Kind, Table};

/// What one site says of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnFacts {
    /// The column.
    pub(crate) column: String,
    /// Whether it is of words here.
    pub(crate) words: bool,
    /// Whether it is of numbers here, others than 0 and 1.
    pub(crate) is_of_numbers: bool,
    /// How many rows have a value.
    pub(crate) observed: u64,
    /// Its different values as they are written; nothing is said of more numbers than two, unless
    /// another site has words.
    pub(crate) values: Option<BTreeSet<String>>,
    /// Its different numbers, where there are two at most.
    pub(crate) numbers: Option<Vec<f64>>,
    /// What whole numbers it has, where every row has one of its own and it may be an identifier.
    pub(crate) numbered: Option<Numbered>,
    /// A number that stands for what is missing, as it seems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) missing_code: Option<f64>,
    /// Numbers among which something else stands.
    pub(crate) mixed: Option<Hazard>,
}

/// Whole numbers that are all different.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbered {
    /// The least and the greatest.
    low: f64,
    high: f64,
    /// Whether they follow one another.
    consecutive: bool,
    /// The sum of their [`scrambled`] bits, which tells whether those of all sites together are a
    /// certain list of numbers, and nothing else.
    sum: u64,
}

impl ColumnFacts {
    /// The facts of a column; `None`: the table does not have it. `words`: some site has words in
    /// it.
    pub(crate) fn of(used: Used<'_>, table: &Table, words: bool) -> Option<ColumnFacts> {
        let (spec, column) = table.column(used.column)?;
        let mixed = if !used.levels && spec.kind == (Kind::Category { levels: Vec::new() }) {
            numbers_among_words(used.column, table, column).err()
        } else {
            None
        };
        let may_be_identifier = !used.response && !used.levels && used.origin != Origin::Written;
        Some(ColumnFacts {
            column: used.column.to_owned(),
            words: matches!(spec.kind, Kind::Category { .. }),
            is_of_numbers: spec.kind == Kind::Number,
            observed: (column.rows() - column.missing()) as u64,
            values: values(column, words),
            numbers: few_numbers(column),
            numbered: if may_be_identifier { Numbered::of(column) } else { None },
            missing_code: match column {
                Column::Number(cells) if !used.levels => {
                    missing_code(cells.iter().flatten().copied())
                }
                _ => None,
            },
            mixed,
        })
    }
}

/// The different values of a column as they are written.
fn values(column: &Column, words: bool) -> Option<BTreeSet<String>> {
    match column {
        Column::Category(category) => {
            let seen: BTreeSet<usize> = category.cells.iter().flatten().copied().collect();
            Some(seen.into_iter().map(|level| category.levels[level].clone()).collect())
        }
        Column::Number(cells) => {
            let mut all = BTreeSet::new();
            for value in cells.iter().flatten() {
                all.insert(value.to_string());
                if all.len() > 2 && !words {
                    return None;
                }
            }
            Some(all)
        }
    }
}

impl Numbered {
    fn of(column: &Column) -> Option<Numbered> {
        let Column::Number(cells) = column else { return None };
        let mut values: Vec<f64> = cells.iter().copied().collect::<Option<_>>()?;
        values.sort_by(f64::total_cmp);
        let own = values.windows(2).all(|pair| pair[0] != pair[1]);
        if !own || values.iter().any(|value| value.fract() != 0.0) {
            return None;
        }
        Some(Numbered {
            low: *values.first()?,
            high: *values.last()?,
            consecutive: values.windows(2).all(|pair| pair[1] - pair[0] == 1.0),
            sum: scrambled_sum(values.into_iter()),
        })
    }

    /// Whether the numbers of all sites, of which there are so many, follow one another, or those
    /// of each do.
    pub(crate) fn are_in_a_row(all: &[Numbered], count: usize) -> bool {
        if all.iter().all(|numbered| numbered.consecutive) {
            return true;
        }
        let low = all.iter().map(|numbered| numbered.low).fold(f64::INFINITY, f64::min);
        let high = all.iter().map(|numbered| numbered.high).fold(f64::NEG_INFINITY, f64::max);
        let sum = all.iter().fold(0u64, |sum, numbered| sum.wrapping_add(numbered.sum));
        high - low == count as f64 - 1.0 && sum == scrambled_sum((0..count).map(|k| low + k as f64))
    }
}

fn scrambled_sum(values: impl Iterator<Item = f64>) -> u64 {
    values.fold(0, |sum, value| sum.wrapping_add(scrambled(value)))
}

/// The bits of a number, mixed so that sums of few of them tell lists apart (SplitMix64).
fn scrambled(value: f64) -> u64 {
    let mut bits = (value + 0.0).to_bits().wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(values: &[i32]) -> Option<Numbered> {
        Numbered::of(&Column::Number(values.iter().map(|v| Some(f64::from(*v))).collect()))
    }

    #[test]
    fn numbers_in_a_row_are_found_without_the_numbers() {
        let in_a_row = |sites: &[&[i32]]| {
            let all: Vec<Numbered> = sites.iter().map(|site| numbered(site).unwrap()).collect();
            Numbered::are_in_a_row(&all, sites.iter().map(|site| site.len()).sum())
        };
        assert!(in_a_row(&[&[1, 3, 5], &[2, 4, 6]]), "together");
        assert!(in_a_row(&[&[7, 6, 5], &[5, 6, 7, 8]]), "each");
        assert!(in_a_row(&[&[-1, 1], &[0, 2]]));
        assert!(!in_a_row(&[&[1, 2, 4], &[2, 5, 6]]), "as many as there would be, one twice");
        assert!(!in_a_row(&[&[1, 3, 5], &[2, 4, 7]]));
        assert_eq!((numbered(&[1, 1]), numbered(&[])), (None, None));
        assert_eq!(Numbered::of(&Column::Number(vec![Some(0.5)])), None);
        assert_eq!(Numbered::of(&Column::Number(vec![Some(1.0), None])), None);
    }
}
