//! Refuse columns that cannot mean what they are taken for: identifiers, numbers among words, codes
//! that differ between sites.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::facts::{ColumnFacts, Numbered};
use super::formats::At;
use super::{Column, Kind, Table, formula};

/// The fewest different words of a column that may be an identifier, where some repeat.
const FEWEST_WORDS: usize = 10;
/// The fewest rows of whole numbers, all different, that are taken for numbers of rows if they are
/// consecutive, and if they are not.
const FEWEST_NUMBERS: (usize, usize) = (10, 50);
/// The most levels of a column whose codes are compared.
const MOST_CODES: usize = 10;

/// Why a column is refused.
#[derive(Clone, Debug, PartialEq, Error, Serialize, Deserialize)]
pub(crate) enum Hazard {
    #[error(
        "the column `{column}` has {different} different words in {rows} rows{example}: it is an \
         identifier, a date or free text, and no category"
    )]
    Identifier { column: String, different: usize, rows: usize, example: String, origin: Origin },
    #[error(
        "the column `{column}` has a whole number of its own in each of {rows} rows: it looks like \
         an identifier, and no measurement"
    )]
    Numbered { column: String, rows: usize, origin: Origin },
    #[error(
        "{file}, {at}, column `{column}`: `{found}` is no number, where {numbers} of {rows} values \
         of this column are numbers"
    )]
    Word {
        file: String,
        at: At,
        column: String,
        found: String,
        numbers: usize,
        rows: usize,
        overflow: bool,
    },
    #[error(
        "{file}, {at}, column `{column}`: `{found}` has a decimal comma or a thousands separator"
    )]
    Comma { file: String, at: At, column: String, found: String },
    #[error("{file}, {at}, column `{column}`: `{found}` is a number with something beside it")]
    Beside { file: String, at: At, column: String, found: String },
    #[error(
        "the column `{column}` has both `{one}` and `{other}` at `{site}`, which differ in \
         capitals alone"
    )]
    Spelling { column: String, site: String, one: String, other: String },
    #[error(
        "{file}: the column `{column}` has numbers that are written as words, such as `{found}`"
    )]
    Quoted { file: String, column: String, found: String },
    #[error(
        "the column `{column}` is written in different codes: {here} at site `{site}`, {there} at \
         site `{other}`"
    )]
    Codes { column: String, site: String, here: String, other: String, there: String },
}

impl Hazard {
    /// What to do.
    pub(crate) fn fix(&self) -> String {
        match self {
            Hazard::Identifier { column, origin: Origin::Dot, .. } => {
                format!(
                    "write `. - {column}`, or name the columns that explain the response instead \
                     of `.`; write dates as numbers, such as days"
                )
            }
            Hazard::Identifier { column, origin: Origin::Written, .. } => {
                format!(
                    "leave it out, or write C({column}) if each word is to have an effect of its \
                     own; write dates as numbers, such as days"
                )
            }
            Hazard::Numbered { column, origin: Origin::Dot, .. } => {
                format!(
                    "write `. - {column}`; if it is a measurement after all, name it: \
                    `{column} + .`"
                )
            }
            Hazard::Identifier { .. } | Hazard::Numbered { .. } => {
                "remove it from the file, or name the columns that explain the response in \
                 target.formula, e.g. ill == 1 ~ age"
                    .into()
            }
            Hazard::Word { overflow: true, .. } => "numbers go up to 1.8e308: correct it".into(),
            Hazard::Word { column, .. } => {
                format!(
                    "correct it; write a missing value as NA, or leave it empty; if the column has \
                     levels, write C({column}) in target.formula"
                )
            }
            Hazard::Comma { .. } => "write numbers with a decimal point and nothing between \
                thousands, as in 1234.5"
                .into(),
            Hazard::Beside { column, .. } => format!(
                "write the number alone, in one unit, as in 30; if they are levels, write \
                 C({column}) in a formula"
            ),
            Hazard::Spelling { column, .. } => format!(
                "write them alike; if they are two levels, write C({column}) in target.formula"
            ),
            Hazard::Quoted { column, .. } => format!(
                "give them as numbers; if they are levels, \
                write C({column}) in a formula"
            ),
            Hazard::Codes { .. } => "write the column alike at all sites".into(),
        }
    }
}

/// Where a column is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// In the formula, by name.
    Written,
    /// In the formula, by `.`.
    Dot,
    /// Nowhere: all columns are used.
    Every,
}

/// A column and how it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used<'a> {
    pub(crate) column: &'a str,
    pub(crate) origin: Origin,
    /// Whether it is declared to be levels.
    pub(crate) levels: bool,
    /// Whether it is what is explained.
    pub(crate) response: bool,
}

/// How a formula uses a column.
pub(crate) fn by_formula<'a>(formula: &str, column: &'a str, response: bool) -> Used<'a> {
    let written = formula::written(formula).contains(&column);
    let origin = if written || response { Origin::Written } else { Origin::Dot };
    Used { column, origin, levels: formula::levels(formula).contains(&column), response }
}

/// Refuse a column of tables that are all here, or say what should be known of it.
pub(crate) fn check(used: Used<'_>, sites: &[(&str, &Table)]) -> Result<Option<String>, Hazard> {
    let has_words = |table: &Table| {
        table
            .column(used.column)
            .is_some_and(|(spec, _)| matches!(spec.kind, Kind::Category { .. }))
    };
    let words = sites.iter().any(|(_, table)| has_words(table));
    let facts: Vec<(&str, ColumnFacts)> = sites
        .iter()
        .filter_map(|(site, table)| Some((*site, ColumnFacts::of(used, table, words)?)))
        .collect();
    let facts: Vec<(&str, &ColumnFacts)> =
        facts.iter().map(|(site, facts)| (*site, facts)).collect();
    judge(used, &facts)
}

/// Refuse a column by what sites say of it, in their order, or say what should be known of it.
pub(crate) fn judge(
    used: Used<'_>,
    sites: &[(&str, &ColumnFacts)],
) -> Result<Option<String>, Hazard> {
    if let Some(hazard) = sites.iter().find_map(|(_, facts)| facts.mixed.clone()) {
        return Err(hazard);
    }
    let seen: Vec<Seen<'_>> =
        sites.iter().filter_map(|(site, facts)| Seen::of(site, facts)).collect();
    let note = codes(used, &seen)?;
    spelling(used, &seen)?;
    if !used.response && !used.levels {
        identifier(used, &seen)?;
    }
    Ok(note)
}

/// The two values of a column of numbers that has no more of them, the lesser first.
pub(crate) fn two_values<'a>(columns: impl Iterator<Item = &'a Column>) -> Option<[f64; 2]> {
    let few: Vec<Vec<f64>> = columns.map(few_numbers).collect::<Option<_>>()?;
    two_numbers(few.iter().map(Vec::as_slice))
}

/// The same of what several sites say.
pub(crate) fn two_numbers<'a>(few: impl Iterator<Item = &'a [f64]>) -> Option<[f64; 2]> {
    let mut values: Vec<f64> = Vec::new();
    for value in few.flatten() {
        if !values.contains(value) {
            values.push(*value);
        }
    }
    values.sort_by(f64::total_cmp);
    values.try_into().ok()
}

/// The different numbers of a column that has two of them at most; `None`: it has more, or words.
pub(crate) fn few_numbers(column: &Column) -> Option<Vec<f64>> {
    let numbers: Box<dyn Iterator<Item = f64>> = match column {
        Column::Number(cells) => Box::new(cells.iter().flatten().copied()),
        Column::Category(category) if category.levels == ["0", "1"] => {
            Box::new(category.cells.iter().flatten().map(|level| *level as f64))
        }
        Column::Category(_) => return None,
    };
    let mut values: Vec<f64> = Vec::new();
    for value in numbers {
        if !values.contains(&value) {
            values.push(value);
        }
        if values.len() > 2 {
            return None;
        }
    }
    Some(values)
}

/// What is asked where a response of two values is explained, and nothing says by which model: a
/// problem and its fix.
pub(crate) fn ask_for_model(formula: &str, [low, high]: [f64; 2]) -> (String, String) {
    let (left, right) = formula::halves(formula).unwrap_or((formula, ""));
    let (left, right) = (left.trim(), right.trim());
    let problem = format!(
        "`{left}` has the two values {low} and {high} alone, and nothing says whether they are \
         classes or measurements"
    );
    let fix = format!(
        "write {left} == {high} ~ {right} for logistic regression, or set model = \"linear\" for \
         linear regression"
    );
    (problem, fix)
}

/// A column of one site that has values.
struct Seen<'a> {
    site: &'a str,
    facts: &'a ColumnFacts,
    words: bool,
}

impl<'a> Seen<'a> {
    fn of(site: &'a str, facts: &'a ColumnFacts) -> Option<Self> {
        (facts.observed > 0).then_some(Seen { site, facts, words: facts.words })
    }

    /// How many rows have a value.
    fn observed(&self) -> usize {
        self.facts.observed as usize
    }
}

/// Refuse a column of words most of which are numbers.
pub(crate) fn numbers_among_words(
    name: &str,
    table: &Table,
    column: &Column,
) -> Result<(), Hazard> {
    let Column::Category(category) = column else { return Ok(()) };
    let number = |word: &str| word.parse::<f64>().is_ok_and(f64::is_finite);
    let odd = |word: &String| has_comma(word) || is_beside(word);
    let kinds: Vec<(bool, bool)> =
        category.levels.iter().map(|word| (number(word), odd(word))).collect();
    let rows = || {
        category.cells.iter().enumerate().filter_map(|(row, level)| level.map(|level| (row, level)))
    };
    let numbers = rows().filter(|(_, level)| kinds[*level].0).count();
    let commas = rows().filter(|(_, level)| kinds[*level].1).count();
    let all = rows().count();
    if all == 0 || 2 * (numbers + commas) <= all {
        return Ok(());
    }
    let (file, column) = (table.file().to_owned(), name.to_owned());
    let first =
        |wanted: fn(&(bool, bool)) -> bool| rows().find(|(_, level)| wanted(&kinds[*level]));
    if let Some((row, level)) = first(|(_, odd)| *odd) {
        let (at, found) = (table.place(row), category.levels[level].clone());
        return Err(match is_beside(&found) {
            true => Hazard::Beside { file, at, column, found },
            false => Hazard::Comma { file, at, column, found },
        });
    }
    let Some((row, level)) = first(|(number, _)| !number) else {
        return Err(Hazard::Quoted {
            file,
            column,
            found: category.levels.first().cloned().unwrap_or_default(),
        });
    };
    let found = category.levels[level].clone();
    let overflow = found.parse::<f64>().is_ok_and(f64::is_infinite);
    Err(Hazard::Word { file, at: table.place(row), column, found, numbers, rows: all, overflow })
}

/// Whether a word is a number but for its commas.
fn has_comma(word: &str) -> bool {
    let digits = word.trim_start_matches(['+', '-']);
    let bounded = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit());
    bounded
        && digits.contains(',')
        && digits.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '.')
}

/// Whether a word is a number with a sign of percents, money or a limit beside it.
fn is_beside(word: &str) -> bool {
    const SIGNS: [char; 8] = ['%', '<', '>', '$', '€', '£', '~', '≤'];
    let bare = word.trim_matches(SIGNS).trim();
    bare.len() < word.len() && bare.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Refuse words of one site that differ in capitals alone.
fn spelling(used: Used<'_>, seen: &[Seen<'_>]) -> Result<(), Hazard> {
    for seen in seen.iter().filter(|seen| seen.words && !used.levels) {
        let mut known: BTreeMap<String, &String> = BTreeMap::new();
        for word in seen.facts.values.iter().flatten() {
            if let Some(one) = known.insert(word.to_lowercase(), word) {
                let (column, site) = (used.column.to_owned(), seen.site.to_owned());
                let (one, other) = (one.clone(), word.clone());
                return Err(Hazard::Spelling { column, site, one, other });
            }
        }
    }
    Ok(())
}

/// Refuse columns that sites write in different codes.
fn codes(used: Used<'_>, seen: &[Seen<'_>]) -> Result<Option<String>, Hazard> {
    // Of more numbers than two nothing is said, unless another site has words there.
    let nothing = BTreeSet::new();
    let values: Vec<&BTreeSet<String>> =
        seen.iter().map(|seen| seen.facts.values.as_ref().unwrap_or(&nothing)).collect();
    let refuse = |a: usize, b: usize| {
        let column = used.column.to_owned();
        let (site, other) = (seen[a].site.to_owned(), seen[b].site.to_owned());
        Err(Hazard::Codes { column, site, here: shown(values[a]), other, there: shown(values[b]) })
    };
    let words = seen.iter().position(|seen| seen.words);
    let numbers = seen.iter().position(|seen| !seen.words);
    if let (Some(a), Some(b)) = (numbers, words) {
        if used.levels && !values[a].is_disjoint(values[b]) {
            return Ok(None);
        }
        return if a < b { refuse(a, b) } else { refuse(b, a) };
    }
    if words.is_none() {
        let codes = |k: usize| values[k].len() == 2 && seen[k].observed() > 2;
        let other = (1..seen.len()).find(|k| values[*k] != values[0]);
        return match other {
            Some(other) if (0..seen.len()).all(codes) => refuse(0, other),
            _ => Ok(None),
        };
    }
    for b in 1..seen.len() {
        for a in 0..b {
            let spelt = |word: &String| {
                values[a].iter().any(|other| {
                    other != word
                        && other.to_lowercase() == word.to_lowercase()
                        && !values[b].contains(other)
                })
            };
            if values[b].iter().any(|word| !values[a].contains(word) && spelt(word)) {
                return refuse(a, b);
            }
        }
    }
    let many = |k: &usize| (2..=MOST_CODES).contains(&values[*k].len());
    for k in (0..seen.len()).rev().filter(many) {
        let others = || (0..seen.len()).filter(|other| *other != k);
        if others().next().is_none() || others().any(|other| !values[k].is_disjoint(values[other]))
        {
            continue;
        }
        let alike = others().find(|other| values[*other].len() == values[k].len());
        match alike {
            Some(other) if !used.levels || values[k].len() == 2 => {
                return if other < k { refuse(other, k) } else { refuse(k, other) };
            }
            _ => {
                let other = others().next().unwrap_or(k);
                return Ok(Some(format!(
                    "`{}` has {} at site `{}` and {} at site `{}`: no level is at both, so check \
                     that the codes are the same.",
                    used.column,
                    shown(values[other]),
                    seen[other].site,
                    shown(values[k]),
                    seen[k].site
                )));
            }
        }
    }
    Ok(None)
}

/// A few values, for a message.
fn shown(values: &BTreeSet<String>) -> String {
    let more = if values.len() > 4 { ", ..." } else { "" };
    values.iter().take(4).cloned().collect::<Vec<_>>().join(", ") + more
}

/// Refuse a column that is different in almost every row.
fn identifier(used: Used<'_>, seen: &[Seen<'_>]) -> Result<(), Hazard> {
    let (column, origin) = (used.column.to_owned(), used.origin);
    let rows: usize = seen.iter().map(Seen::observed).sum();
    if seen.iter().any(|seen| seen.words) {
        let values: BTreeSet<&String> =
            seen.iter().flat_map(|seen| seen.facts.values.iter().flatten()).collect();
        let different = values.len();
        if (different == rows && rows >= FEWEST_WORDS / 2)
            || (different >= FEWEST_WORDS && 2 * different > rows)
        {
            let example =
                values.first().map_or_else(String::new, |word| format!(" (such as `{word}`)"));
            return Err(Hazard::Identifier { column, different, rows, example, origin });
        }
        return Ok(());
    }
    if origin == Origin::Written {
        return Ok(());
    }
    let Some(numbered) =
        seen.iter().map(|seen| seen.facts.numbered).collect::<Option<Vec<Numbered>>>()
    else {
        return Ok(());
    };
    let (fewest, fewest_otherwise) = FEWEST_NUMBERS;
    if rows >= fewest_otherwise
        || (rows >= fewest && Numbered::are_in_a_row(&numbered, rows))
        || (rows > 2 && is_called_identifier(used.column))
    {
        return Err(Hazard::Numbered { column, rows, origin });
    }
    Ok(())
}

/// Whether a name is one that identifiers have, or the number of a row in what other programs
/// write.
fn is_called_identifier(name: &str) -> bool {
    let lower = name.to_lowercase();
    let ends = ["_id", "-id", ".id", " id"].iter().any(|end| lower.ends_with(end));
    let camel = name
        .strip_suffix("Id")
        .or(name.strip_suffix("ID"))
        .is_some_and(|rest| rest.ends_with(|c: char| c.is_ascii_lowercase()));
    ends || camel || ["", "id", "index", "rownames", "unnamed: 0"].contains(&lower.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::formats::csv::infer;

    fn table(text: &str) -> Table {
        Table::parse(text, "a.csv", &infer(text, "a.csv").unwrap()).unwrap()
    }

    fn column(cells: impl Iterator<Item = String>) -> Table {
        table(&format!("x;y\n{}", cells.map(|cell| format!("{cell};0\n")).collect::<String>()))
    }

    fn says(formula: &str, sites: &[&Table]) -> String {
        let names = ["north", "south", "west"];
        let sites: Vec<(&str, &Table)> = names.into_iter().zip(sites.iter().copied()).collect();
        match check(by_formula(formula, "x", false), &sites) {
            Ok(note) => note.unwrap_or_default(),
            Err(hazard) => format!("{hazard}\n{}", hazard.fix()),
        }
    }

    fn words(list: &str) -> Table {
        column(list.split(' ').map(str::to_owned))
    }

    #[test]
    fn identifiers_are_told_from_measurements_and_categories() {
        let refused = |cells: &dyn Fn(usize) -> String, rows: usize, formula: &str| {
            says(formula, &[&column((0..rows).map(cells))])
        };
        let word = |k: usize| format!("patient {k}");
        assert!(
            refused(&word, 40, "y ~ .")
                .contains("`x` has 40 different words in 40 rows (such as `patient 0`)")
        );
        assert!(refused(&word, 40, "y ~ .").contains("write `. - x`"));
        assert!(refused(&word, 40, "y ~ x").contains("leave it out, or write C(x)"));
        assert_eq!(refused(&word, 40, "y ~ C(x)"), "");
        assert!(
            refused(&|k| format!("ticket {}", k * 2 / 3), 60, "y ~ .")
                .contains("40 different words in 60 rows")
        );
        assert_eq!(refused(&|k| format!("ward {}", k % 12), 60, "y ~ ."), "");
        assert!(
            refused(&|k| (k + 100).to_string(), 12, "y ~ .")
                .contains("a whole number of its own in each of 12 rows")
        );
        assert!(refused(&|k| (k + 100).to_string(), 12, "y ~ .").contains("`x + .`"));
        assert_eq!(refused(&|k| (k + 100).to_string(), 12, "y ~ x + ."), "");
        assert_eq!(
            refused(&|k| (k * k).to_string(), 12, "y ~ ."),
            "",
            "few numbers may differ by chance"
        );
        assert!(
            refused(&|k| (k * k).to_string(), 60, "y ~ .")
                .contains("of its own in each of 60 rows")
        );
        assert_eq!(refused(&|k| format!("{}.5", k * k), 60, "y ~ ."), "", "a measurement");
        assert_eq!(refused(&|k| (k % 50).to_string(), 60, "y ~ ."), "");
        assert!(
            is_called_identifier("patient_id")
                && is_called_identifier("PatientId")
                && is_called_identifier("ID")
        );
        assert!(
            !is_called_identifier("paid")
                && !is_called_identifier("fluid")
                && !is_called_identifier("acid")
        );
    }

    #[test]
    fn numbers_among_words_are_named_by_line() {
        let said = says("y ~ x", &[&words("1.5 2 3 1O 4")]);
        assert!(
            said.contains("a.csv, line 5, column `x`: `1O` is no number, where 4 of 5")
                && said.contains("C(x)"),
            "{said}"
        );
        let said = says("y ~ x", &[&words("1.5 2 1e400 4")]);
        assert!(said.contains("`1e400`") && said.contains("up to 1.8e308"), "{said}");
        let said = says("y ~ x", &[&words("3,5 4,25 4 -1,5")]);
        assert!(
            said.contains("line 2, column `x`: `3,5` has a decimal comma")
                && said.contains("1234.5"),
            "{said}"
        );
        let said = says("y ~ x", &[&words("30% 25% 4% 30%")]);
        assert!(said.contains("line 2, column `x`: `30%` is a number with something"), "{said}");
        let said = says("y ~ x", &[&words("30 25 <4 30")]);
        assert!(said.contains("`<4` is a number with") && said.contains("C(x)"), "{said}");
        assert_eq!(says("y ~ C(x)", &[&words("10% 25% 10% 25%")]), "");
        assert_eq!(says("y ~ C(x)", &[&words("1 2 3 K 1 2 3")]), "");
        assert_eq!(says("y ~ x", &[&words("a b 1 a b a b 1 a b a b a")]), "", "mostly words");
        assert_eq!(
            says("y ~ x", &[&words("1 NaN nan NA NULL . 2 3.5 null N/A")]),
            "",
            "missing values"
        );
    }

    #[test]
    fn codes_that_differ_between_sites_are_shown() {
        let said = says("y ~ x", &[&words("0 1 1 0"), &words("No Yes No Yes")]);
        assert!(said.contains("0, 1 at site `north`, No, Yes at site `south`"), "{said}");
        assert_eq!(
            says("y ~ C(x)", &[&words("0 1 1 0"), &words("No Yes No Yes")]),
            said,
            "levels that have nothing in common"
        );
        let said = says("y ~ x", &[&words("no yes no yes"), &words("no Yes no no")]);
        assert!(said.contains("no, yes at site `north`, Yes, no at site `south`"), "{said}");
        let said = says(
            "y ~ C(x)",
            &[&words("f m m f"), &words("m f m f"), &words("female male male male")],
        );
        assert!(said.contains("at site `north`, female, male at site `west`"), "{said}");
        let said = says("y ~ x", &[&words("m f m f"), &words("m f M f")]);
        assert!(said.contains("`x` has both `M` and `m` at `south`"), "{said}");
        assert_eq!(says("y ~ C(x)", &[&words("m f m f"), &words("m f M f")]), "");
        let said = says("y ~ x", &[&words("0 1 1 0"), &words("1 2 1 2")]);
        assert!(said.contains("0, 1 at site `north`, 1, 2 at site `south`"), "{said}");
        assert_eq!(says("y ~ x", &[&words("0 1 1 0"), &words("1 2 3 2")]), "", "counts");
        assert_eq!(
            says("y ~ x", &[&words("a a a"), &words("b b b")]),
            "",
            "what a site has but one of"
        );
        let wards = [&words("a b c a b c a b c"), &words("d e d e d e d e d")];
        assert!(says("y ~ x", &wards).contains("no level is at both"));
        assert_eq!(
            says("y ~ C(x)", &[&words("1 2 3 1 2"), &words("1 2 K 1 2")]),
            "",
            "levels that are numbers at one site"
        );
    }

    #[test]
    fn two_values_are_found_over_all_sites() {
        let of =
            |sites: &[&Table]| two_values(sites.iter().map(|table| table.column("x").unwrap().1));
        assert_eq!(of(&[&words("1 2 1"), &words("2 2 2")]), Some([1.0, 2.0]));
        assert_eq!(of(&[&words("0 1 1"), &words("1 ? 0")]), Some([0.0, 1.0]));
        assert_eq!(
            (of(&[&words("1 2 1"), &words("3 2 2")]), of(&[&words("a b")]), of(&[&words("5 5")])),
            (None, None, None)
        );
        let (problem, fix) = ask_for_model("class ~ age", [1.0, 2.0]);
        assert!(
            problem.contains("the two values 1 and 2")
                && fix.contains("write class == 2 ~ age for logistic"),
            "{problem} {fix}"
        );
    }
}
