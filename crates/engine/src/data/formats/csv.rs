//! Infer what the columns of a CSV file are, and turn a table into features and labels.

use super::{FormatError, Labels};
use crate::data::dataset::{Dataset, Features};
use crate::data::{Category, Column, ColumnSpec, Schema, Table, TableError};
use crate::suggest::column_hint;

/// The most levels that a column of words may have.
const MOST_LEVELS: usize = 1000;

/// Text with one comma between fields, whatever number of spaces stood there; lines stay lines.
pub(crate) fn from_spaces(text: &str) -> String {
    text.lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>().join(",") + "\n")
        .collect()
}

/// What stands between two fields: of comma, semicolon and tab the one that the first line has most
/// of, a comma if it has none.
pub(crate) fn separator(text: &str) -> u8 {
    let first = text.lines().next().unwrap_or("");
    *b"\t;,".iter().max_by_key(|s| first.bytes().filter(|b| b == *s).count()).unwrap_or(&b',')
}

/// The schema of a file with a header: columns of numbers are numbers (of zeros and ones, binary),
/// others categories; one of [`crate::data::MISSING`] means "missing".
pub fn infer(text: &str, file: &str) -> Result<Schema, FormatError> {
    let separator = separator(text);
    let mut reader = ::csv::ReaderBuilder::new()
        .trim(::csv::Trim::All)
        .flexible(true)
        .delimiter(separator)
        .from_reader(text.as_bytes());
    let unreadable = |error: ::csv::Error| TableError::Unreadable {
        file: file.into(),
        line: 1,
        problem: error.to_string(),
    };
    let header = reader.headers().map_err(unreadable)?.clone();
    let (mut number, mut binary) = (vec![true; header.len()], vec![true; header.len()]);
    let missing = Schema::new(Vec::new()).missing;
    for record in reader.records() {
        for (k, field) in record.map_err(unreadable)?.iter().enumerate().take(header.len()) {
            if !missing.iter().any(|mark| mark == field) {
                let value = field.parse::<f64>().ok().filter(|v| v.is_finite());
                number[k] &= value.is_some();
                binary[k] &= value.is_some_and(|v| v == 0.0 || v == 1.0);
            }
        }
    }
    // A column of which nothing is there may be of any kind: binary gives way to what other files
    // have.
    let spec = |(k, name): (usize, &str)| match (number[k], binary[k]) {
        (true, true) => ColumnSpec::binary(name),
        (true, false) => ColumnSpec::number(name),
        (false, _) => ColumnSpec::category(name),
    };
    Ok(Schema::new(header.iter().enumerate().map(spec).collect()).separated_by(separator))
}

/// Features and labels of a table: numbers as they are, a category as one column for each level but
/// the first. A missing value is refused.
pub fn dataset(table: &Table, response: &str, labels: &Labels) -> Result<Dataset, FormatError> {
    let file = table.file();
    let names = || table.specs().iter().map(|spec| spec.name.as_str());
    let (_, target) = table.column(response).ok_or_else(|| TableError::NoColumn {
        file: file.into(),
        line: 1,
        column: response.into(),
        hint: column_hint(response, names()),
        header: names().collect::<Vec<_>>().join(", "),
    })?;
    let missing = |row: usize, column: &str| FormatError::Missing {
        file: file.into(),
        at: table.place(row),
        column: column.into(),
    };
    let (labels, classes) = match target {
        Column::Number(cells) => {
            let raw = cells
                .iter()
                .enumerate()
                .map(|(row, y)| y.ok_or_else(|| missing(row, response)))
                .collect::<Result<_, _>>()?;
            labels.apply(raw, file, |row| table.place(row))?
        }
        Column::Category(Category { levels, cells }) => {
            let class = |(row, y): (usize, &Option<usize>)| {
                y.map(|k| k as f64).ok_or_else(|| missing(row, response))
            };
            (cells.iter().enumerate().map(class).collect::<Result<_, _>>()?, Some(levels.clone()))
        }
    };
    let mut columns: Vec<String> = Vec::new();
    let mut makers: Vec<(&Column, Option<usize>)> = Vec::new();
    for spec in table.specs().iter().filter(|spec| spec.name != response) {
        let Some((_, column)) = table.column(&spec.name) else { continue };
        if let Some(row) = (0..table.rows()).find(|row| column.is_missing(*row)) {
            return Err(missing(row, &spec.name));
        }
        match column {
            Column::Number(_) => {
                columns.push(spec.name.clone());
                makers.push((column, None));
            }
            Column::Category(Category { levels, cells }) => {
                if levels.len() > MOST_LEVELS {
                    let row = cells.iter().position(|c| *c == Some(MOST_LEVELS)).unwrap_or(0);
                    let expected = format!(
                        "one of at most {MOST_LEVELS} levels: is it a name or a number with a \
                         typing error?"
                    );
                    let found = levels[MOST_LEVELS].clone();
                    return Err(FormatError::Field {
                        file: file.into(),
                        at: table.place(row),
                        found,
                        expected,
                    });
                }
                for (k, level) in levels.iter().enumerate().skip(1) {
                    columns.push(if levels == &["0", "1"] {
                        spec.name.clone()
                    } else {
                        format!("{}: {level}", spec.name)
                    });
                    makers.push((column, Some(k)));
                }
            }
        }
    }
    if columns.is_empty() {
        return Err(FormatError::Empty { file: file.into() });
    }
    let mut cells = Vec::with_capacity(table.rows() * columns.len());
    for row in 0..table.rows() {
        cells.extend(makers.iter().map(|(column, level)| match column {
            Column::Number(cells) => cells[row].unwrap_or(0.0),
            Column::Category(category) => f64::from(u8::from(category.cells[row] == *level)),
        }));
    }
    Ok(Dataset { features: Features::Dense(cells), labels, classes, columns, groups: None })
}

/// A column of a table before it was coded.
#[derive(Clone, Debug, PartialEq)]
pub struct RawColumn {
    /// What it is.
    pub spec: ColumnSpec,
    /// The levels that its words have, in the order of the code.
    pub levels: Vec<String>,
}

/// What a table's columns were before [`dataset`] made features and labels of them.
#[derive(Clone, Debug, PartialEq)]
pub struct RawTable {
    /// The columns that became features, in order.
    pub columns: Vec<RawColumn>,
    /// The column that became the labels.
    pub response: ColumnSpec,
}

impl RawTable {
    /// The columns of a table, one of which is the response.
    pub fn of(table: &Table, response: &str) -> Option<RawTable> {
        let raw = |spec: &ColumnSpec| {
            let levels = match table.column(&spec.name) {
                Some((_, Column::Category(category))) => category.levels.clone(),
                _ => Vec::new(),
            };
            RawColumn { spec: spec.clone(), levels }
        };
        let columns = table.specs().iter().filter(|spec| spec.name != response).map(raw).collect();
        Some(RawTable { columns, response: table.column(response)?.0.clone() })
    }

    /// The same with what another site has: other numbers than 0 and 1, and more levels.
    pub fn join(&mut self, other: &RawTable) {
        let wider = |mine: &mut ColumnSpec, theirs: &ColumnSpec| {
            *mine = Schema::union([&[mine.clone()][..], &[theirs.clone()][..]].into_iter())
                .columns
                .remove(0);
        };
        for (mine, theirs) in
            self.columns.iter_mut().zip(&other.columns).filter(|(a, b)| a.spec.name == b.spec.name)
        {
            wider(&mut mine.spec, &theirs.spec);
            let more: Vec<String> = theirs
                .levels
                .iter()
                .filter(|level| !mine.levels.contains(level))
                .cloned()
                .collect();
            mine.levels.extend(more);
        }
        if self.response.name == other.response.name {
            wider(&mut self.response, &other.response);
        }
    }
}

/// A data set from CSV text with a header: [`infer`], then [`dataset`].
pub fn parse(
    text: &str,
    file: &str,
    response: &str,
    labels: &Labels,
) -> Result<Dataset, FormatError> {
    dataset(&Table::parse(text, file, &infer(text, file)?)?, response, labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Kind;

    const GOOD: &str = "age;sex;dose;smokes;ill\n41;f;0.5;0;no\n63;m;1.5;1;yes\n57;m;1;1;no\n";

    #[test]
    fn columns_are_inferred() {
        let schema = infer(GOOD, "a.csv").unwrap();
        assert_eq!(schema.separator, b';');
        let kinds: Vec<&Kind> = schema.columns.iter().map(|c| &c.kind).collect();
        let words = Kind::Category { levels: Vec::new() };
        assert_eq!(kinds, [&Kind::Number, &words, &Kind::Number, &Kind::Binary, &words]);
        let gaps = infer("a,b\n1,NA\n?,x\n", "a.csv").unwrap();
        assert_eq!((&gaps.columns[0].kind, &gaps.columns[1].kind), (&Kind::Binary, &words));
    }

    #[test]
    fn a_table_becomes_features_and_labels() {
        let data = parse(GOOD, "a.csv", "ill", &Labels::Found(2)).unwrap();
        assert_eq!(data.columns, ["age", "sex: m", "dose", "smokes"]);
        assert_eq!(
            (data.labels.clone(), data.classes.clone().unwrap()),
            (vec![0.0, 1.0, 0.0], vec!["no".to_owned(), "yes".into()])
        );
        assert_eq!(data.entries(1), [(0, 63.0), (1, 1.0), (2, 1.5), (3, 1.0)]);
        assert_eq!(parse(GOOD, "a.csv", "dose", &Labels::Numbers).unwrap().labels, [0.5, 1.5, 1.0]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let says = |text: &str, response: &str, part: &str| {
            let error = parse(text, "a.csv", response, &Labels::Found(2)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        says(&GOOD.replace("1.5", "?"), "ill", "line 3, column `dose`: the value is missing");
        says(&GOOD.replace("yes", ""), "ill", "line 3, column `ill`: the value is missing");
        says(GOOD, "il", "no column `il`: did you mean `ill`?");
        says(&GOOD.replace("57;", "57;;"), "ill", "line 4: 6 fields where 5");
        says("a,b\n", "b", "no rows");
        says("a\n1\n0\n", "a", "no rows");
        says(
            &GOOD.replace("1.5", "9"),
            "dose",
            "line 4: the label 1 is out of range: there are 2 others",
        );
        assert_eq!(from_spaces("  1   2\n3 4 \n"), "1,2\n3,4\n");
    }
}
