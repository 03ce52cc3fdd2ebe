//! Compute the columns that a formula makes of others: `log(x)`, `I(x^2)`, `a:b`,
//! `Surv(time, status)`.
//!
//! Each is a number of its row alone, so a site computes it by itself before anything is said of
//! its columns; from then on it is a column like any other, called as it is written.

use thiserror::Error;

use super::formats::At;
use super::{Category, Column, ColumnSpec, Kind, Table};
use crate::suggest::column_hint;

/// Why a column cannot be computed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DerivedError {
    /// A column that the table does not have.
    #[error("{file}: `{term}` needs the column `{column}`: {hint}the columns are {columns}")]
    NoColumn {
        /// The file.
        file: String,
        /// The term.
        term: String,
        /// The column.
        column: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The columns that there are.
        columns: String,
    },
    /// A column of words.
    #[error(
        "{file}: `{term}` is computed of numbers, and `{column}` has words: name a column of \
         numbers, or add a column of 0 and 1 for a level to every site's file"
    )]
    Words {
        /// The file.
        file: String,
        /// The term.
        term: String,
        /// The column.
        column: String,
    },
    /// What cannot be computed of a row.
    #[error("{file}, {at}: `{term}` is no finite number: {fix}")]
    NotFinite {
        /// The file.
        file: String,
        /// The row.
        at: At,
        /// The term.
        term: String,
        /// What to do.
        fix: String,
    },
    /// What is no expression.
    #[error("`{term}` in the formula cannot be read: {problem}")]
    Syntax {
        /// The term.
        term: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// The functions of one number.
type Function = fn(f64) -> f64;
const FUNCTIONS: &[(&str, Function)] = &[
    ("log", f64::ln),
    ("log10", f64::log10),
    ("log2", f64::log2),
    ("sqrt", f64::sqrt),
    ("exp", f64::exp),
    ("abs", f64::abs),
    ("I", |x| x),
];

/// The names of functions, in a sentence.
pub(crate) fn functions() -> String {
    FUNCTIONS.iter().map(|(name, _)| format!("{name}(x)")).collect::<Vec<_>>().join(", ")
}

/// What is computed of a row.
#[derive(Clone, Debug, PartialEq)]
enum Expression {
    Number(f64),
    Column(String),
    Apply(usize, Box<Expression>),
    Negative(Box<Expression>),
    Binary(char, Box<Expression>, Box<Expression>),
    /// A time, with a minus where the event was not seen.
    Survival(String, String),
    /// The words of several columns as one.
    Interaction(Vec<String>),
}

impl Expression {
    /// The columns that it is computed of, in order.
    fn columns(&self) -> Vec<&str> {
        match self {
            Expression::Number(_) => Vec::new(),
            Expression::Column(name) => vec![name],
            Expression::Apply(_, inner) | Expression::Negative(inner) => inner.columns(),
            Expression::Binary(_, a, b) => [a.columns(), b.columns()].concat(),
            Expression::Survival(time, status) => vec![time, status],
            Expression::Interaction(names) => names.iter().map(String::as_str).collect(),
        }
    }

    /// Its value where every column has one.
    fn value(&self, of: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        Some(match self {
            Expression::Number(number) => *number,
            Expression::Column(name) => of(name)?,
            Expression::Apply(function, inner) => FUNCTIONS[*function].1(inner.value(of)?),
            Expression::Negative(inner) => -inner.value(of)?,
            Expression::Binary(sign, a, b) => {
                let (a, b) = (a.value(of)?, b.value(of)?);
                match sign {
                    '+' => a + b,
                    '-' => a - b,
                    '/' => a / b,
                    '^' => a.powf(b),
                    _ => a * b,
                }
            }
            Expression::Survival(time, status) => {
                let (time, status) = (of(time)?, of(status)?);
                match status {
                    _ if time <= 0.0 => f64::NAN,
                    1.0 => time,
                    0.0 => -time,
                    _ => f64::NAN,
                }
            }
            Expression::Interaction(_) => return None, // it is no number
        })
    }

    /// What to do where it is no finite number.
    fn fix(&self) -> String {
        match self {
            Expression::Survival(time, status) => format!(
                "`{time}` must be above 0, and `{status}` 1 where the event was seen and 0 where \
                 it was not"
            ),
            _ => "correct the row, or leave it out; logarithms are of numbers above 0".into(),
        }
    }
}

/// Whether a term is computed, and is no column as it is.
pub(crate) fn is_computed(term: &str) -> bool {
    matches!(parse(term), Ok(Some(_)))
}

/// The columns that a computed term or a product is made of; none where it is no such term.
pub(crate) fn columns_of(term: &str) -> Vec<String> {
    match parse(term) {
        Ok(Some(found)) => found.columns().into_iter().map(str::to_owned).collect(),
        _ => {
            let parts = parts(term);
            if parts.len() < 2 {
                return Vec::new();
            }
            let of = |part: &&str| match (columns_of(part), super::formula::bare(part).0) {
                (own, name) if own.is_empty() => vec![name.to_owned()],
                (own, _) => own,
            };
            parts.iter().flat_map(of).collect()
        }
    }
}

/// The parts of a product `a:b:c`; one where a term is none. Colons within parentheses and
/// backquotes are of names.
pub(crate) fn parts(term: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0usize, 0, Vec::new());
    for (at, letter) in outside(term) {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => {
                found.push(term[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(term[start..].trim());
    found
}

/// Whether a term is a product of parts of which one is no number of this table: that is no column
/// of its own, for how its parts are coded is agreed on first.
fn is_coded_later(table: &Table, term: &str) -> bool {
    const CODED: [&str; 7] = ["C(", "ns(", "bs(", "mi(", "interaction(", "offset(", "weights("];
    let later = |part: &&str| {
        let name = unquoted(part);
        let words = |column: &str| {
            let found = table.column(column);
            found.is_some_and(|(spec, column)| numbers(spec, column).is_none())
        };
        CODED.iter().any(|call| part.starts_with(call))
            || words(name)
            || (name == "site" && table.column(name).is_none())
    };
    let parts = parts(term);
    parts.len() > 1 && parts.iter().any(later)
}

/// The expression of a term; `None` where it is a name, or nothing that is known here.
fn parse(term: &str) -> Result<Option<Expression>, String> {
    let term = term.trim();
    let call = term.split_once('(').map(|(name, _)| name.trim());
    if call == Some("Surv") && term.ends_with(')') {
        let inside = &term[term.find('(').unwrap_or(0) + 1..term.len() - 1];
        let names: Vec<&str> = inside.split(',').map(|name| unquoted(name.trim())).collect();
        return match names[..] {
            [time, status] if !time.is_empty() && !status.is_empty() => {
                Ok(Some(Expression::Survival(time.into(), status.into())))
            }
            _ => Err("write Surv(time, status)".into()),
        };
    }
    if call == Some("interaction") && term.ends_with(')') {
        let inside = &term[term.find('(').unwrap_or(0) + 1..term.len() - 1];
        let names: Vec<String> =
            inside.split(',').map(|name| unquoted(name.trim()).to_owned()).collect();
        if names.len() < 2 || names.iter().any(String::is_empty) {
            return Err("write interaction(a, b), with the names of columns".into());
        }
        return Ok(Some(Expression::Interaction(names)));
    }
    let function = call.is_some_and(|name| FUNCTIONS.iter().any(|(known, _)| *known == name));
    if !function && !outside(term).any(|(_, letter)| letter == ':') {
        return Ok(None);
    }
    let mut reader = Reader { rest: term };
    let found = reader.interaction()?;
    match reader.rest.trim_start() {
        "" => Ok(Some(found)),
        rest => Err(format!("`{rest}` is left over")),
    }
}

/// The letters of a text that stand in no backquotes, with their places.
fn outside(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut quoted = false;
    text.char_indices().filter(move |(_, letter)| {
        if *letter == '`' {
            quoted = !quoted;
        }
        !quoted
    })
}

fn unquoted(name: &str) -> &str {
    name.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).unwrap_or(name)
}

/// Reads an expression from its left.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn takes(&mut self, sign: char) -> bool {
        self.rest = self.rest.trim_start();
        let found = self.rest.strip_prefix(sign);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    /// `a:b:c`.
    fn interaction(&mut self) -> Result<Expression, String> {
        let mut found = self.factor()?;
        while self.takes(':') {
            found = Expression::Binary('*', Box::new(found), Box::new(self.factor()?));
        }
        Ok(found)
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut found = self.product()?;
        loop {
            let sign = match () {
                () if self.takes('+') => '+',
                () if self.takes('-') => '-',
                () => return Ok(found),
            };
            found = Expression::Binary(sign, Box::new(found), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut found = self.power()?;
        loop {
            let sign = match () {
                () if self.takes('*') => '*',
                () if self.takes('/') => '/',
                () => return Ok(found),
            };
            found = Expression::Binary(sign, Box::new(found), Box::new(self.power()?));
        }
    }

    fn power(&mut self) -> Result<Expression, String> {
        if self.takes('-') {
            return Ok(Expression::Negative(Box::new(self.power()?)));
        }
        let base = self.factor()?;
        if self.takes('^') {
            return Ok(Expression::Binary('^', Box::new(base), Box::new(self.power()?)));
        }
        Ok(base)
    }

    /// A number, a column, a function of something, or something in parentheses.
    fn factor(&mut self) -> Result<Expression, String> {
        self.rest = self.rest.trim_start();
        if self.takes('(') {
            let found = self.sum()?;
            return self.takes(')').then_some(found).ok_or_else(|| "a `)` is missing".into());
        }
        if self.takes('`') {
            let Some((name, rest)) = self.rest.split_once('`') else {
                return Err("a backquote is not closed".into());
            };
            self.rest = rest;
            return Ok(Expression::Column(name.into()));
        }
        let digits = |c: char| c.is_ascii_digit() || c == '.';
        if self.rest.starts_with(digits) {
            let mut end = self.rest.find(|c: char| !digits(c)).unwrap_or(self.rest.len());
            let exponent = self.rest[end..].strip_prefix(['e', 'E']).map(|rest| {
                let sign = usize::from(rest.starts_with(['-', '+']));
                let count = rest[sign..].chars().take_while(char::is_ascii_digit).count();
                if count == 0 { 0 } else { 1 + sign + count }
            });
            end += exponent.unwrap_or(0);
            let (number, rest) = self.rest.split_at(end);
            self.rest = rest;
            let wrong = |_| format!("`{number}` is no number");
            return number.parse().map(Expression::Number).map_err(wrong);
        }
        let name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c: char| !name(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(format!("a column or a number is expected before `{rest}`"));
        }
        self.rest = rest;
        if !self.takes('(') {
            return Ok(Expression::Column(word.into()));
        }
        if ["ns", "bs"].contains(&word) {
            return Err("a spline is a term of its own, and no part of another".into());
        }
        let Some(function) = FUNCTIONS.iter().position(|(known, _)| *known == word) else {
            return Err(format!("there is no function `{word}`: there are {}", functions()));
        };
        let inner = self.sum()?;
        if !self.takes(')') {
            return Err("a `)` is missing".into());
        }
        Ok(Expression::Apply(function, Box::new(inner)))
    }
}

/// The numbers of a column; `None` where they are words.
fn numbers<'a>(
    spec: &ColumnSpec,
    column: &'a Column,
) -> Option<Box<dyn Fn(usize) -> Option<f64> + 'a>> {
    match column {
        Column::Number(cells) => Some(Box::new(move |row| cells[row])),
        Column::Category(category) if spec.kind == Kind::Binary => {
            Some(Box::new(move |row| category.cells[row].map(|level| level as f64)))
        }
        Column::Category(_) => None,
    }
}

/// The table with a column for every one of these terms that is computed, and that it has not.
/// Where `lenient` allows it a term is left out whose columns are not there.
pub(crate) fn extend(
    table: &Table,
    terms: &[&str],
    lenient: impl Fn(&str) -> bool,
) -> Result<Table, DerivedError> {
    let file = || table.file().to_owned();
    let mut more: Vec<(ColumnSpec, Column)> = Vec::new();
    for term in terms {
        if table.column(term).is_some() || more.iter().any(|(spec, _)| spec.name == *term) {
            continue;
        }
        if is_coded_later(table, term) {
            continue;
        }
        let syntax = |problem| DerivedError::Syntax { term: (*term).into(), problem };
        let Some(expression) = parse(term).map_err(syntax)? else { continue };
        let mut columns = Vec::new();
        let absent = expression.columns().into_iter().find(|name| table.column(name).is_none());
        if let (Expression::Interaction(names), None) = (&expression, absent) {
            more.push((ColumnSpec::category(term), combined(table, names)));
            continue;
        }
        for name in expression.columns().into_iter().filter(|_| absent.is_none()) {
            let Some((spec, column)) = table.column(name) else { continue };
            let Some(numbers) = numbers(spec, column) else {
                let column = name.into();
                return Err(DerivedError::Words { file: file(), term: (*term).into(), column });
            };
            columns.push((name, numbers));
        }
        if let Some(column) = absent {
            if lenient(term) {
                continue;
            }
            let known = || table.specs().iter().map(|spec| spec.name.as_str());
            return Err(DerivedError::NoColumn {
                file: file(),
                term: (*term).into(),
                column: column.into(),
                hint: column_hint(column, known()),
                columns: known().collect::<Vec<_>>().join(", "),
            });
        }
        let mut cells = Vec::with_capacity(table.rows());
        for row in 0..table.rows() {
            let of = |name: &str| {
                columns.iter().find(|(known, _)| *known == name).and_then(|(_, cell)| cell(row))
            };
            let value = expression.value(&of);
            if value.is_some_and(|value| !value.is_finite()) {
                let (term, fix) = ((*term).into(), expression.fix());
                return Err(DerivedError::NotFinite {
                    file: file(),
                    at: table.place(row),
                    term,
                    fix,
                });
            }
            cells.push(value);
        }
        more.push((ColumnSpec::number(term), Column::Number(cells)));
    }
    Ok(table.with_columns(more))
}

/// The words of several columns as those of one: `a:b`; missing where one of them is.
fn combined(table: &Table, names: &[String]) -> Column {
    let word = |name: &String, row: usize| match &table.column(name)?.1 {
        Column::Number(cells) => cells[row].map(|value| value.to_string()),
        Column::Category(category) => {
            category.cells[row].map(|level| category.levels[level].clone())
        }
    };
    let mut found = Category { levels: Vec::new(), cells: Vec::with_capacity(table.rows()) };
    for row in 0..table.rows() {
        let words: Option<Vec<String>> = names.iter().map(|name| word(name, row)).collect();
        let place = words.map(|words| {
            let level = words.join(":");
            found.levels.iter().position(|known| *known == level).unwrap_or_else(|| {
                found.levels.push(level);
                found.levels.len() - 1
            })
        });
        found.cells.push(place);
    }
    Column::Category(found)
}

/// The formula with `a*b` written out as `a + b + a:b`, and `poly(x, n)` as powers of `x`.
pub(crate) fn write_out(formula: &str) -> String {
    let Some((left, right)) = formula.split_once('~') else { return formula.into() };
    let mut terms: Vec<(bool, String)> = Vec::new();
    let mut add = |added: bool, term: String| {
        if !terms.contains(&(added, term.clone())) {
            terms.push((added, term));
        }
    };
    for (added, term) in super::formula::signed(right) {
        if let Some(powers) = powers(term) {
            powers.into_iter().for_each(|term| add(added, term));
            continue;
        }
        if let Some(part) = super::formula::arithmetic_within(term) {
            add(added, part);
            continue;
        }
        let factors = factors(term);
        if factors.len() < 2 || !added {
            add(added, term.to_owned());
            continue;
        }
        // every product of some of them, fewer factors first
        let mut subsets: Vec<u32> = (1..1u32 << factors.len()).collect();
        subsets
            .sort_by_key(|subset| (subset.count_ones(), std::cmp::Reverse(subset.reverse_bits())));
        for subset in subsets {
            let chosen = (0..factors.len()).filter(|k| subset & (1 << k) != 0).map(|k| factors[k]);
            add(true, chosen.collect::<Vec<_>>().join(":"));
        }
    }
    let mut out = format!("{}~", left);
    for (k, (added, term)) in terms.iter().enumerate() {
        let sign = match (added, k) {
            (true, 0) => " ",
            (true, _) => " + ",
            (false, _) => " - ",
        };
        out.push_str(sign);
        out.push_str(term);
    }
    out
}

/// `poly(x, 3)` as `x`, `I(x^2)`, `I(x^3)`.
fn powers(term: &str) -> Option<Vec<String>> {
    let inside = term.strip_prefix("poly(")?.strip_suffix(')')?;
    let (name, degree) = inside.rsplit_once(',')?;
    let degree: u32 = degree.trim().parse().ok().filter(|degree| (1..=9).contains(degree))?;
    let name = name.trim();
    let power = |k: u32| if k == 1 { name.to_owned() } else { format!("I({name}^{k})") };
    Some((1..=degree).map(power).collect())
}

/// The factors of `a*b*c`; at most six, so that there are not more than 63 products.
fn factors(term: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0usize, 0, Vec::new());
    for (at, letter) in outside(term) {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '*' if depth == 0 => {
                found.push(term[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(term[start..].trim());
    let whole = found.len() <= 6 && found.iter().all(|factor| !factor.is_empty());
    if whole { found } else { vec![term] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let number = |values: &[f64]| Column::Number(values.iter().map(|v| Some(*v)).collect());
        let specs = ["a", "b c", "time", "status"].map(ColumnSpec::number).to_vec();
        let columns = vec![
            number(&[1.0, 4.0, 9.0]),
            Column::Number(vec![Some(2.0), None, Some(-1.0)]),
            number(&[5.0, 6.0, 7.0]),
            number(&[1.0, 0.0, 1.0]),
        ];
        Table::from_columns("t.csv", specs, columns).unwrap()
    }

    fn values(term: &str) -> Vec<Option<f64>> {
        let extended = extend(&table(), &[term], |_| false).unwrap();
        let Some((_, Column::Number(cells))) = extended.column(term) else { panic!("{term}") };
        cells.clone()
    }

    #[test]
    fn terms_are_computed_row_by_row() {
        assert_eq!(values("sqrt(a)"), [Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!(values("log(a)"), [1.0f64, 4.0, 9.0].map(|a| Some(a.ln())));
        assert_eq!(values("I(a^2 - 2*a/4)"), [Some(0.5), Some(14.0), Some(76.5)]);
        assert_eq!(values("I(-(a - 1.5e0)^2)"), [Some(-0.25), Some(-6.25), Some(-56.25)]);
        assert_eq!(values("a:`b c`"), [Some(2.0), None, Some(-9.0)]);
        assert_eq!(values("sqrt(a):time:a"), [Some(5.0), Some(48.0), Some(189.0)]);
        assert_eq!(values("Surv(time, status)"), [Some(5.0), Some(-6.0), Some(7.0)]);
        assert_eq!(values("log(time * a)").len(), 3);
        for plain in ["a", "b c", "C(a)", "site", "."] {
            assert!(!is_computed(plain), "{plain}");
        }
        assert_eq!(columns_of("log(time*a)"), ["time", "a"]);
    }

    #[test]
    fn combinations_of_levels_are_words() {
        let town = Column::Category(Category {
            levels: vec!["bern".into(), "chur".into()],
            cells: vec![Some(0), Some(1), Some(0)],
        });
        let table = table().with_columns(vec![(ColumnSpec::category("town"), town)]);
        let extended = extend(&table, &["interaction(town, status)"], |_| false).unwrap();
        let (spec, column) = extended.column("interaction(town, status)").unwrap();
        assert_eq!(spec.kind, Kind::Category { levels: Vec::new() });
        let Column::Category(found) = column else { panic!("{column:?}") };
        assert_eq!(found.levels, ["bern:1", "chur:0"]);
        assert_eq!(found.cells, [Some(0), Some(1), Some(0)]);
        let missing = extend(&table, &["interaction(town, `b c`)"], |_| false).unwrap();
        let Some((_, Column::Category(found))) = missing.column("interaction(town, `b c`)") else {
            panic!("it is there")
        };
        assert_eq!(found.cells, [Some(0), None, Some(1)]);
        assert_eq!(columns_of("interaction(town, `b c`)"), ["town", "b c"]);
        let wrong = |term: &str| extend(&table, &[term], |_| false).unwrap_err().to_string();
        assert!(wrong("interaction(town)").contains("write interaction(a, b)"));
        assert!(wrong("interaction(town, statu)").contains("did you mean `status`?"));
        assert!(wrong("log(town)").contains("`town` has words"), "{}", wrong("log(town)"));
        let same = extend(&table, &["a:town", "C(a):time", "a:site"], |_| false).unwrap();
        assert_eq!(same.specs(), table.specs(), "these are coded when all agree on levels");
    }

    #[test]
    fn what_cannot_be_computed_is_refused_with_its_row() {
        let wrong = |term: &str| extend(&table(), &[term], |_| false).unwrap_err().to_string();
        assert!(wrong("log(a - 4)").starts_with("t.csv, row 1: `log(a - 4)` is no finite"));
        assert!(wrong("log(tine)").contains("did you mean `time`?"), "{}", wrong("log(tine)"));
        assert!(wrong("I(a + )").contains("cannot be read"));
        assert!(wrong("I(a").contains("a `)` is missing"));
        assert!(wrong("Surv(a, time)").contains("1 where the event was seen"));
        assert!(wrong("Surv(time)").contains("write Surv(time, status)"));
    }

    #[test]
    fn products_are_written_out() {
        assert_eq!(write_out("y ~ a*b"), "y ~ a + b + a:b");
        assert_eq!(write_out("y ~ b + a*b - 1"), "y ~ b + a + a:b - 1");
        assert_eq!(write_out("y ~ a*b*c"), "y ~ a + b + c + a:b + a:c + b:c + a:b:c");
        assert_eq!(write_out("log(y) ~ I(a*b) + `a*b`"), "log(y) ~ I(a*b) + `a*b`");
        assert_eq!(write_out("y ~ poly(x, 3)"), "y ~ x + I(x^2) + I(x^3)");
    }
}
