//! Read a formula such as `num > 0 ~ age + C(cp) + site` into a plan.
//!
//! | written | meaning |
//! |---|---|
//! | `y ~`, `y > 3 ~`, `y == word ~` | the response: a number (or 0/1), or whether a comparison holds |
//! | `age` | a number standardised, a binary column as it is, a category dummy-coded |
//! | `C(age)` | the numbers of `age` as levels, dummy-coded |
//! | `.` | every column but the response |
//! | `site` | an effect of each site but the first (unless a column has that name) |
//! | `- 1`, `0` | no intercept |
//!
//! Missing values are imputed by the federated mean or the most common level, and marked where they exceed [`MARK_ABOVE`].

use thiserror::Error;

use super::{Coding, ColumnSpec, Kind, Missing, Plan, Reference, Response, Schema, Term};
use crate::suggest::did_you_mean;

/// The share of missing values above which a formula's term gets an indicator.
pub const MARK_ABOVE: f64 = 0.05;

/// What is wrong with a formula.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FormulaError {
    /// Not of the form `response ~ terms`.
    #[error("the formula `{formula}` is not `response ~ terms`: write, say, `ill ~ age + sex`")]
    Shape {
        /// The formula.
        formula: String,
    },
    /// A word that is no column.
    #[error("`{term}` in the formula is not a column: {hint}the columns are {columns}")]
    NoColumn {
        /// The word.
        term: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The columns that there are.
        columns: String,
    },
    /// A column that some sites have not.
    #[error("site {site:?} has no column `{column}`, which the formula uses and site {elsewhere:?} has: {hint}its columns are {columns}")]
    Absent {
        /// The site.
        site: String,
        /// The column.
        column: String,
        /// A site that has it.
        elsewhere: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The columns that the site has.
        columns: String,
    },
    /// A term that stands there twice, or is the response.
    #[error("the term `{term}` stands there twice, or is the response: write each column once")]
    Twice {
        /// The term.
        term: String,
    },
    /// Only the intercept may be taken away.
    #[error("`- {term}` in the formula: only `- 1`, the intercept, can be taken away, so leave the term out instead")]
    Minus {
        /// The term.
        term: String,
    },
    /// A response that its column cannot give.
    #[error("the response `{response}` does not fit its column: {fix}")]
    Response {
        /// The response.
        response: String,
        /// What to do.
        fix: String,
    },
}

/// Read a formula over the columns of a schema.
pub fn parse(formula: &str, schema: &Schema) -> Result<Plan, FormulaError> {
    let shape = || FormulaError::Shape { formula: formula.into() };
    let (left, right) = formula.split_once('~').filter(|(_, right)| !right.contains('~')).ok_or_else(shape)?;
    let mut plan = Plan { response: response(left.trim(), schema)?, intercept: true, terms: Vec::new(), site_effects: false };
    for (added, term) in signed(right) {
        let name = term.strip_prefix("C(").and_then(|rest| rest.strip_suffix(')')).map(str::trim);
        match (added, term) {
            (_, "") => return Err(shape()),
            (true, "1") => plan.intercept = true,
            (false, "1") | (true, "0") => plan.intercept = false,
            (false, _) => return Err(FormulaError::Minus { term: term.into() }),
            (true, ".") => {
                for spec in schema.columns.iter().filter(|spec| spec.name != plan.response.column()) {
                    if !plan.terms.iter().any(|term| term.column == spec.name) {
                        plan.terms.push(default_term(spec, false));
                    }
                }
            }
            (true, "site") if schema.column("site").is_none() => plan.site_effects = true,
            (true, _) => {
                let spec = column(name.unwrap_or(term), schema)?;
                if spec.name == plan.response.column() || plan.terms.iter().any(|term| term.column == spec.name) {
                    return Err(FormulaError::Twice { term: term.into() });
                }
                plan.terms.push(default_term(spec, name.is_some()));
            }
        }
    }
    Ok(plan)
}

/// Which columns of these sites a formula uses, each once and the response first, before any of
/// them is read. A dot uses all that every site has; what is named must be there at every site.
pub fn used(formula: &str, sites: &[(String, Vec<String>)]) -> Result<Vec<String>, FormulaError> {
    let shape = || FormulaError::Shape { formula: formula.into() };
    let (left, right) = formula.split_once('~').filter(|(_, right)| !right.contains('~')).ok_or_else(shape)?;
    let response = left.split(['=', '>']).next().unwrap_or(left).trim();
    let known = |name: &str| sites.iter().any(|(_, columns)| columns.iter().any(|column| column == name));
    let mut all = vec![response.to_owned()];
    let mut dot = false;
    for (added, term) in signed(right) {
        let name = term.strip_prefix("C(").and_then(|rest| rest.strip_suffix(')')).map(str::trim);
        match (added, term) {
            (_, "") => return Err(shape()),
            (_, "0" | "1") | (false, _) => {}
            (true, ".") => dot = true,
            (true, "site") if !known("site") => {}
            (true, _) => all.push(name.unwrap_or(term).into()),
        }
    }
    for column in &all {
        let has = |site: &&(String, Vec<String>)| site.1.contains(column);
        let Some((elsewhere, _)) = sites.iter().find(has) else {
            let mut columns: Vec<&str> = Vec::new();
            let of_all = sites.iter().flat_map(|(_, columns)| columns.iter().map(String::as_str));
            of_all.for_each(|name| {
                if !columns.contains(&name) {
                    columns.push(name)
                }
            });
            let hint = did_you_mean(column, columns.iter().copied());
            return Err(FormulaError::NoColumn { term: column.clone(), hint, columns: columns.join(", ") });
        };
        if let Some((site, columns)) = sites.iter().find(|site| !has(site)) {
            return Err(FormulaError::Absent {
                site: site.clone(),
                column: column.clone(),
                elsewhere: elsewhere.clone(),
                hint: did_you_mean(column, columns.iter().map(String::as_str)),
                columns: columns.join(", "),
            });
        }
    }
    if let (true, Some((_, columns))) = (dot, sites.first()) {
        let everywhere = columns.iter().filter(|column| sites.iter().all(|(_, columns)| columns.contains(column)));
        all.extend(everywhere.cloned());
    }
    let mut found: Vec<String> = Vec::new();
    all.into_iter().for_each(|column| {
        if !found.contains(&column) {
            found.push(column)
        }
    });
    Ok(found)
}

/// The terms of a sum and whether each is added. A minus counts only after a space, so that names may hold one.
fn signed(sum: &str) -> Vec<(bool, &str)> {
    let (mut terms, mut added, mut start, mut before) = (Vec::new(), true, 0, ' ');
    for (at, letter) in sum.char_indices() {
        if letter == '+' || (letter == '-' && before.is_whitespace()) {
            let term = sum[start..at].trim();
            if !(terms.is_empty() && term.is_empty()) {
                terms.push((added, term));
            }
            (added, start) = (letter == '+', at + 1);
        }
        before = letter;
    }
    terms.push((added, sum[start..].trim()));
    terms
}

/// The left side.
fn response(text: &str, schema: &Schema) -> Result<Response, FormulaError> {
    let wrong = |fix: &str| FormulaError::Response { response: text.into(), fix: fix.into() };
    if let Some((name, value)) = text.split_once("==") {
        let (spec, value) = (column(name.trim(), schema)?, value.trim().trim_matches(['"', '\'']));
        match &spec.kind {
            Kind::Number if value.parse::<f64>().is_err() => return Err(wrong("compare numbers with a number")),
            Kind::Binary if value != "0" && value != "1" => return Err(wrong("a binary column is 0 or 1")),
            Kind::Category { levels } if !levels.is_empty() && !levels.iter().any(|(_, level)| level == value) => {
                let levels: Vec<&str> = levels.iter().map(|(_, level)| level.as_str()).collect();
                return Err(wrong(&format!("its levels are {}", levels.join(", "))));
            }
            _ => return Ok(Response::Equals { column: spec.name.clone(), value: value.into() }),
        }
    }
    if let Some((name, threshold)) = text.split_once('>') {
        let spec = column(name.trim(), schema)?;
        let threshold = threshold.trim().parse().ok().filter(|value: &f64| value.is_finite());
        return match (&spec.kind, threshold) {
            (Kind::Number, Some(threshold)) => Ok(Response::Above { column: spec.name.clone(), threshold }),
            (Kind::Number, None) => Err(wrong("write `column > number`")),
            _ => Err(wrong("only numbers can be compared by >, so write `column == level`")),
        };
    }
    let spec = column(text, schema)?;
    match spec.kind {
        Kind::Category { .. } => Err(wrong("it has words, so write `column == level`")),
        _ => Ok(Response::Value { column: spec.name.clone() }),
    }
}

fn column<'a>(name: &str, schema: &'a Schema) -> Result<&'a ColumnSpec, FormulaError> {
    schema.column(name).ok_or_else(|| FormulaError::NoColumn {
        term: name.into(),
        hint: did_you_mean(name, schema.columns.iter().map(|spec| spec.name.as_str())),
        columns: schema.listed(),
    })
}

/// How a column enters unless one says otherwise.
fn default_term(spec: &ColumnSpec, as_category: bool) -> Term {
    let coding = match &spec.kind {
        Kind::Number if as_category => Coding::Dummy(Reference::MostCommon),
        Kind::Number => Coding::Standardised,
        Kind::Binary => Coding::Binary,
        Kind::Category { levels } if levels.is_empty() => Coding::Dummy(Reference::MostCommon),
        Kind::Category { .. } => Coding::Dummy(Reference::First),
    };
    Term { column: spec.name.clone(), title: spec.title.clone(), coding, missing: Missing::Indicate { above: MARK_ABOVE } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let cp = ColumnSpec::codes("cp", &[("4", "none"), ("1", "typical")]).titled("chest pain");
        Schema::new(vec![
            ColumnSpec::number("age"),
            ColumnSpec::number("heart-rate"),
            cp,
            ColumnSpec::binary("smokes"),
            ColumnSpec::category("sex"),
            ColumnSpec::number("num"),
        ])
    }

    fn refusal(formula: &str) -> String {
        parse(formula, &schema()).unwrap_err().to_string()
    }

    #[test]
    fn column_kinds_choose_the_coding() {
        let plan = parse("num > 0 ~ age + cp + smokes + sex + C(heart-rate) + site", &schema()).unwrap();
        let codings: Vec<Coding> = plan.terms.iter().map(|term| term.coding).collect();
        let (first, common) = (Coding::Dummy(Reference::First), Coding::Dummy(Reference::MostCommon));
        assert_eq!(codings, [Coding::Standardised, first, Coding::Binary, common, common]);
        assert_eq!(plan.terms[1].title, "chest pain");
        assert!(plan.intercept && plan.site_effects);
        assert_eq!(plan.response, Response::Above { column: "num".into(), threshold: 0.0 });
    }

    #[test]
    fn the_intercept_can_be_taken_away() {
        for formula in ["num ~ age - 1", "num ~ -1 + age", "num ~ 0 + age", "num ~ age -1"] {
            let plan = parse(formula, &schema()).unwrap();
            assert!(!plan.intercept && !plan.site_effects, "{formula}");
            assert_eq!(plan.terms.len(), 1, "{formula}");
        }
    }

    #[test]
    fn a_dot_means_every_other_column_once() {
        let plan = parse("sex == 'f' ~ smokes + .", &schema()).unwrap();
        let columns: Vec<&str> = plan.terms.iter().map(|term| term.column.as_str()).collect();
        assert_eq!(columns, ["smokes", "age", "heart-rate", "cp", "num"]);
        assert_eq!(plan.response.to_string(), "sex == f");
    }

    #[test]
    fn refusals_name_the_term() {
        let columns = "the columns are age, heart-rate, cp, smokes, sex, num";
        assert_eq!(refusal("num ~ agee"), format!("`agee` in the formula is not a column: did you mean `age`? {columns}"));
        assert_eq!(refusal("y ~ age"), format!("`y` in the formula is not a column: {columns}"));
        assert!(refusal("num + age").contains("is not `response ~ terms`"));
        assert!(refusal("num ~ age + ").contains("is not `response ~ terms`"));
        assert!(refusal("num ~ ").contains("is not `response ~ terms`"));
        assert!(refusal("num ~ age + C(age)").contains("the term `C(age)` stands there twice"));
        assert!(refusal("num ~ num").contains("or is the response"));
        assert!(refusal("num ~ . - age").contains("`- age` in the formula: only `- 1`"));
    }

    #[test]
    fn what_a_formula_uses_is_known_before_rows_are_read() {
        let sites = |all: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
            all.iter().map(|(site, columns)| ((*site).into(), columns.iter().map(|c| (*c).into()).collect())).collect()
        };
        let names = |formula: &str, all: &[(&str, &[&str])]| -> Result<Vec<String>, String> {
            used(formula, &sites(all)).map_err(|e| e.to_string())
        };
        let both: &[(&str, &[&str])] = &[("a", &["age", "ill", "when", "cp"]), ("b", &["ill", "age", "cp", "more"])];
        assert_eq!(names("ill == 1 ~ age + C(cp) + site - 1", both).unwrap(), ["ill", "age", "cp"]);
        assert_eq!(names("ill > 0 ~ 0 + .", both).unwrap(), ["ill", "age", "cp"]);
        assert_eq!(names("ill ~ site", &[("a", &["site", "ill"])]).unwrap(), ["ill", "site"]);
        assert!(names("ill", both).unwrap_err().contains("is not `response ~ terms`"));
        assert!(names("ill ~ agee", both).unwrap_err().contains("did you mean `age`? the columns are age, ill, when, cp, more"));
        let absent = "site \"b\" has no column `when`, which the formula uses and site \"a\" has: its columns are ill, age, cp, more";
        assert_eq!(names("ill ~ when", both).unwrap_err(), absent);
    }

    #[test]
    fn a_response_must_fit_its_column() {
        assert!(refusal("cp == 4 ~ age").contains("its levels are none, typical"));
        assert!(refusal("cp > 3 ~ age").contains("only numbers can be compared by >"));
        assert!(refusal("num >= 3 ~ age").contains("write `column > number`"));
        assert!(refusal("num == high ~ age").contains("compare numbers with a number"));
        assert!(refusal("smokes == 2 ~ age").contains("a binary column is 0 or 1"));
        assert!(refusal("sex ~ age").contains("it has words"));
    }
}
