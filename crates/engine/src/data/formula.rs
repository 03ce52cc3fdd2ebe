//! Read a formula such as `num > 0 ~ age + C(cp) + site` into a plan.
//!
//! | written | meaning |
//! |---|---|
//! | `y ~`, `y > 3 ~`, `y == word ~` | the response: a number (or 0/1), or whether a comparison holds |
//! | `age` | a number standardised, a binary column as it is, a category dummy-coded |
//! | `C(age)` | the numbers of `age` as levels, dummy-coded |
//! | `C(town, ref = "b")` | the same, compared with the level `b` |
//! | `log(age)`, `I(age^2)`, `a:b` | what a site computes of its rows: see [`super::derived`] |
//! | `age:sex` | where one of both has levels, or is a spline: products of the coded columns |
//! | `a*b`, `poly(age, 2)` | `a + b + a:b`; `age + I(age^2)` |
//! | `interaction(town, sex)` | the levels of both together, as those of one column |
//! | `ns(age, 4)`, `bs(age, 5)` | a natural spline, a B-spline: see [`super::spline`] |
//! | `mi(chol)` | a number whose missing values are integrated over |
//! | `Surv(time, status) ~` | a time to an event, seen (1) or censored (0) |
//! | `(1 \| ward)`, `(x \| ward)` | effects of groups, which are integrated out |
//! | `offset(log(days))` | a number that is added to the predictor as it is |
//! | `weights(n)` | how often a row counts |
//! | `.` | every column but the response |
//! | `. - id` | every column but the response and `id` |
//! | `site` | an effect of each site but the first (unless a column has that name) |
//! | `- 1`, `0` | no intercept |
//! | `` `age + 1` `` | a column whose name has signs or spaces in it |
//!
//! Missing values are imputed by the federated mean or the most common level, and marked where they
//! exceed a twentieth of the rows.

use std::borrow::Cow;

use thiserror::Error;

use super::derived::{columns_of, is_computed, parts, write_out};
use super::spline;
use super::{
    BesideSlope, Coding, ColumnSpec, DesignPlan, GroupBy, GroupTerm, Kind, LackingTerms, Missing,
    Part, Product, ReferenceLevel, Response, Schema, Term, VaryingSlope,
};
use crate::suggest::{column_hint, did_you_mean};

/// The share of missing values above which a formula's term gets an indicator.
pub(crate) const MARK_ABOVE: f64 = 0.05;

/// What is wrong with a formula.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FormulaError {
    /// Not of the form `response ~ terms`.
    #[error("the formula `{formula}` is not `response ~ terms`: write, say, `ill ~ age + sex`")]
    Shape {
        /// The formula.
        formula: String,
    },
    /// A column that is a term and names the groups of an effect.
    #[error(
        "`{column}` is a term of the formula and names groups in `(... | {column})`, where it can \
         be one of both: leave one out, or give every file a copy of the column under another name"
    )]
    TermAndGroup {
        /// The column.
        column: String,
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
    #[error(
        "site {site:?} has no column `{column}`, which the formula uses and site {elsewhere:?} \
         has: {hint}its columns are {columns}"
    )]
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
    /// A term is taken away that is not there.
    #[error("`- {term}` in the formula: there is no such term before it, so leave it out")]
    Minus {
        /// The term.
        term: String,
    },
    /// What other programs know, and this one does not.
    #[error("`{part}` in the formula is not supported yet ({what}): {fix}")]
    Unsupported {
        /// The part of the formula.
        part: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        fix: Cow<'static, str>,
    },
    /// A term that cannot be.
    #[error("`{term}` in the formula: {problem}")]
    Term {
        /// The term.
        term: String,
        /// What is wrong, and what to write.
        problem: String,
    },
    /// A part that must be a number, of a column that is none.
    #[error("`{part}` in the formula must be a number, and the column has words: name another")]
    Words {
        /// The part of the formula.
        part: String,
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
pub fn parse(formula: &str, schema: &Schema) -> Result<DesignPlan, FormulaError> {
    parse_with(formula, schema, None)
}

/// The same where the response is one of these values, if a model says so.
pub(crate) fn parse_with(
    formula: &str,
    schema: &Schema,
    classes: Option<&[String]>,
) -> Result<DesignPlan, FormulaError> {
    let shape = || FormulaError::Shape { formula: formula.into() };
    let (left, right) = halves(formula).ok_or_else(shape)?;
    let mut plan = DesignPlan {
        response: response(left.trim(), schema, classes)?,
        intercept: true,
        ones: true,
        spread: false,
        logs: false,
        terms: Vec::new(),
        products: Vec::new(),
        site_effects: false,
        group: None,
        slope: None,
        offsets: Vec::new(),
        weights: None,
    };
    for (added, term) in signed(right).into_iter().filter(|(_, term)| role(term).0 != Role::Term) {
        let later = |what, fix| FormulaError::Unsupported {
            part: term.into(),
            what,
            fix: Cow::Borrowed(fix),
        };
        let (role, spec) = (role(term).0, column(bare(term).0, schema)?);
        if matches!(spec.kind, Kind::Category { .. }) {
            return Err(FormulaError::Words { part: term.into() });
        }
        if spec.name == plan.response.column() {
            return Err(FormulaError::Twice { term: term.into() });
        }
        match role {
            _ if !added => return Err(FormulaError::Minus { term: term.into() }),
            Role::Weights if plan.weights.is_some() => {
                return Err(later("several weights of a row", "multiply them: weights(a * b)"));
            }
            Role::Weights => plan.weights = Some(spec.name.clone()),
            Role::Offset if plan.offsets.contains(&spec.name) => {
                return Err(FormulaError::Twice { term: term.into() });
            }
            Role::Offset | Role::Term => plan.offsets.push(spec.name.clone()),
        }
    }
    // a dot means no column that enters otherwise
    let is_beside = |name: &String, plan: &DesignPlan| {
        plan.offsets.contains(name) || plan.weights.as_ref() == Some(name)
    };
    let mut products: Vec<&str> = Vec::new();
    for (added, term) in signed(right) {
        let (name, as_levels) = bare(term);
        match (added, term) {
            _ if role(term).0 != Role::Term => {}
            (_, "") => return Err(shape()),
            (true, _) if is_product(term, schema)? => {
                if products.iter().any(|known| same_parts(known, term)) {
                    return Err(FormulaError::Twice { term: term.into() });
                }
                products.push(term);
            }
            (false, _) if is_product(term, schema)? => {
                let there = products.iter().position(|known| same_parts(known, term));
                products.remove(there.ok_or_else(|| FormulaError::Minus { term: term.into() })?);
            }
            (true, "1") => plan.intercept = true,
            (false, "1") | (true, "0") => plan.intercept = false,
            (true, ".") => {
                let computed = |spec: &&ColumnSpec| {
                    written(formula).contains(&spec.name.as_str()) && is_computed(&spec.name)
                };
                let plain = schema.columns.iter().filter(|spec| !computed(spec));
                for spec in plain.filter(|spec| spec.name != plan.response.column()) {
                    if !is_beside(&spec.name, &plan)
                        && !plan.terms.iter().any(|term| term.column == spec.name)
                    {
                        plan.terms.push(default_term(spec, false));
                    }
                }
            }
            (true, "site") if schema.column("site").is_none() => plan.site_effects = true,
            (false, "site") if schema.column("site").is_none() && plan.site_effects => {
                plan.site_effects = false
            }
            (false, _) => {
                let spec = column(name, schema)?;
                let there = plan.terms.iter().position(|term| term.column == spec.name);
                plan.terms.remove(there.ok_or_else(|| FormulaError::Minus { term: term.into() })?);
            }
            (true, _) => {
                let spec = column(name, schema)?;
                if spec.name == plan.response.column()
                    || plan.terms.iter().any(|term| term.column == spec.name)
                {
                    return Err(FormulaError::Twice { term: term.into() });
                }
                let mut new = coded_term(term, spec, as_levels)?;
                if integrated(term).is_some() {
                    let wrong = |problem| FormulaError::Term { term: term.into(), problem };
                    if new.coding != Coding::Standardised {
                        let problem = format!(
                            "what is missing is normal given the other columns, and `{name}` is no \
                             number of that kind: write `{name}`, which imputes it"
                        );
                        return Err(wrong(problem));
                    }
                    new.missing = Missing::Integrate;
                }
                plan.terms.push(new);
            }
        }
    }
    products.sort_by_key(|product| parts(product).len());
    for product in products {
        add_product(&mut plan, product, schema)?;
    }
    once_where_integrated(&plan)?;
    Ok(plan)
}

/// A term as it is written, of this column.
fn coded_term(term: &str, spec: &ColumnSpec, as_levels: bool) -> Result<Term, FormulaError> {
    let mut new = Term { reference: reference(term), ..default_term(spec, as_levels) };
    if let Some(found) = spline::parse(term) {
        let wrong = |problem| FormulaError::Term { term: term.into(), problem };
        if matches!(spec.kind, Kind::Category { .. }) {
            return Err(FormulaError::Words { part: term.into() });
        }
        if spec.kind == Kind::Binary {
            let name = &spec.name;
            return Err(wrong(format!("`{name}` is 0 or 1 everywhere: write `{name}`")));
        }
        new.coding = Coding::Spline(found.map_err(wrong)?);
        new.title = term.into();
    }
    Ok(new)
}

/// Whether a term is a product of which one part at least has levels, or several columns. Products
/// of numbers are numbers, which sites compute.
fn is_product(term: &str, schema: &Schema) -> Result<bool, FormulaError> {
    let parts = parts(term);
    if parts.len() < 2 {
        return Ok(false);
    }
    let is_site = |part: &str| part == "site" && schema.column("site").is_none();
    let known = |part: &&str| is_site(part) || schema.column(bare(part).0).is_some();
    if schema.column(term).is_some() && !parts.iter().all(known) {
        return Ok(false); // a column of that name
    }
    let wrong = |problem: String| FormulaError::Term { term: term.into(), problem };
    let mut coded = false;
    for (k, part) in parts.iter().enumerate() {
        let (name, as_levels) = bare(part);
        if integrated(part).is_some() {
            return Err(wrong(format!(
                "what is missing in mi({name}) is integrated over, and a product with it is no \
                 longer normal: write `{name}` in its place, everywhere, which imputes it"
            )));
        }
        if role(part).0 != Role::Term || *part == "." || part.contains('|') {
            return Err(wrong(format!(
                "`{part}` cannot be a part of a product: write the names of columns, as in age:sex"
            )));
        }
        if part.parse::<f64>().is_ok() {
            return Err(wrong(format!(
                "`{part}` is a number, and products are of columns: write I({part} * x) for a \
                 multiple"
            )));
        }
        if parts[..k].iter().any(|other| bare(other).0 == name) {
            return Err(wrong(format!("`{name}` stands there twice: write each column once")));
        }
        if is_site(part) {
            coded = true;
            continue;
        }
        let of_words = matches!(column(name, schema)?.kind, Kind::Category { .. });
        coded |= of_words || as_levels || spline::argument(part).is_some();
    }
    Ok(coded)
}

/// Whether two products are of the same parts.
fn same_parts(a: &str, b: &str) -> bool {
    let sorted = |product: &str| {
        let mut found: Vec<String> = parts(product).into_iter().map(str::to_owned).collect();
        found.sort();
        found
    };
    sorted(a) == sorted(b)
}

/// Add a product, and those of its parts that are no terms of their own.
fn add_product(plan: &mut DesignPlan, product: &str, schema: &Schema) -> Result<(), FormulaError> {
    let wrong = |problem: String| FormulaError::Term { term: product.into(), problem };
    let mut found = Vec::new();
    for part in parts(product) {
        if part == "site" && schema.column(part).is_none() {
            found.push(Part::Site);
            continue;
        }
        let (name, as_levels) = bare(part);
        let spec = column(name, schema)?;
        if spec.name == plan.response.column() {
            return Err(FormulaError::Twice { term: part.into() });
        }
        let new = Term { hidden: true, ..coded_term(part, spec, as_levels)? };
        let is_it = |term: &Term| term.column == new.column && term.coding == new.coding;
        let known = match plan.terms.iter().position(is_it) {
            Some(known) => known,
            None => {
                if plan
                    .terms
                    .iter()
                    .any(|term| term.column == new.column && term.missing == Missing::Integrate)
                {
                    return Err(wrong(format!("write `{name}` in place of mi({name})")));
                }
                plan.terms.push(new);
                found.push(Part::Term(plan.terms.len() - 1));
                continue;
            }
        };
        let term = &plan.terms[known];
        if term.missing == Missing::Integrate {
            return Err(wrong(format!(
                "what is missing in mi({name}) is integrated over, and a product with it is no \
                 longer normal: write `{name}` in place of mi({name}), which imputes it"
            )));
        }
        if new.reference.is_some() && new.reference != term.reference {
            return Err(wrong(format!(
                "`{name}` is compared with another level elsewhere in the formula: write {part} \
                 there, too"
            )));
        }
        found.push(Part::Term(known));
    }
    plan.products.push(Product { parts: found });
    Ok(())
}

/// Refuse a column whose missing values are integrated over, and that enters otherwise too: then
/// the predictor is no sum that is normal.
fn once_where_integrated(plan: &DesignPlan) -> Result<(), FormulaError> {
    let raw = |column: &String| match columns_of(column) {
        of if of.is_empty() => vec![column.clone()],
        of => of,
    };
    let all: Vec<&String> =
        plan.terms.iter().map(|term| &term.column).chain(&plan.offsets).collect();
    for (at, term) in plan.terms.iter().enumerate() {
        if term.missing != Missing::Integrate {
            continue;
        }
        let own = raw(&term.column);
        let others = all.iter().enumerate().filter(|(k, _)| *k != at);
        let shared = |column: &String| raw(column).into_iter().find(|name| own.contains(name));
        if let Some((other, name)) =
            others.map(|(_, other)| other).find_map(|other| Some((other, shared(other)?)))
        {
            let problem = format!(
                "`{name}` enters by `{other}` as well: leave one out, or write `{}`, which imputes \
                 it",
                term.column
            );
            return Err(FormulaError::Term { term: format!("mi({})", term.column), problem });
        }
    }
    Ok(())
}

/// What stands within `mi( )`, if a term is that.
fn integrated(term: &str) -> Option<&str> {
    let inside = term.trim().strip_prefix("mi(")?.strip_suffix(')')?;
    let mut depth = 0i32;
    let closed = inside.chars().all(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth >= 0
    });
    (closed && depth == 0).then_some(inside.trim())
}

/// A formula whose `mi( )` stand first, and which columns these are; `None`: there are none.
pub(crate) fn integrated_first(formula: &str) -> (String, Option<LackingTerms>) {
    let Some((left, right)) = halves(formula) else { return (formula.into(), None) };
    let (first, rest): (Vec<_>, Vec<_>) =
        signed(right).into_iter().partition(|(added, term)| *added && integrated(term).is_some());
    if first.is_empty() {
        return (formula.into(), None);
    }
    let mut ones = true;
    for term in &rest {
        match term {
            (true, "1") => ones = true,
            (true, "0") | (false, "1") => ones = false,
            _ => {}
        }
    }
    let columns = first.iter().map(|(_, term)| bare(term).0.to_owned()).collect();
    let terms: Vec<(bool, &str)> = first.iter().chain(&rest).copied().collect();
    (format!("{left}~ {}", summed(&terms)), Some(LackingTerms { columns, ones }))
}

/// A formula without its `(1 | group)` or `(x | group)`, and what these say. The term along which
/// slopes differ stands first then.
pub fn without_groups(formula: &str) -> Result<(String, Option<GroupTerm>), FormulaError> {
    let Some((left, right)) = halves(formula) else { return Ok((formula.into(), None)) };
    let (mut found, mut terms) = (None, Vec::new());
    for (added, term) in signed(right) {
        let inner = term.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let Some((effect, name)) = inner.and_then(|inner| inner.split_once('|')) else {
            terms.push((added, term));
            continue;
        };
        let later = |what, fix| FormulaError::Unsupported {
            part: term.into(),
            what,
            fix: Cow::Borrowed(fix),
        };
        let (effect, independent) = (effect.trim(), name.starts_with('|'));
        let name = name.strip_prefix('|').unwrap_or(name).trim();
        if name.is_empty() || name.contains(['|', ':', '/', '+', '(']) {
            let fix = "write (1 | column), or (1 | site)";
            return Err(later("groups by more than one column", fix));
        }
        if !added || found.is_some() {
            let fix = "write one such part: several that cross are one integral over all groups \
                at once. A column for every site, `site`, may stand beside (1 | group); \
                (1 + x || group) has an intercept and a slope that are independent";
            return Err(later("several effects of groups", fix));
        }
        let (mut intercept, mut slopes) = (true, Vec::new());
        for part in signed(effect) {
            match part {
                (true, "1") => intercept = true,
                (true, "0") | (false, "1") => intercept = false,
                (true, part) if !part.is_empty() => slopes.push(part),
                _ => {
                    let fix = "write (1 | group), (x | group) or (0 + x | group)";
                    return Err(later("effects of this form", fix));
                }
            }
        }
        let beside = match (intercept, independent) {
            (true, false) => BesideSlope::CorrelatedIntercept,
            (true, true) => BesideSlope::Intercept,
            (false, _) => BesideSlope::Nothing,
        };
        let along = match slopes[..] {
            [] if intercept => None,
            [along] => Some((along, beside)),
            [] => {
                let fix = "write (1 | group) or (0 + x | group)";
                return Err(later("groups without an effect", fix));
            }
            _ => {
                let fix = "write one slope, e.g. (1 + x | group): effects are integrated out, in \
                    at most two dimensions";
                return Err(later("several slopes that differ between groups", fix));
            }
        };
        let name = name.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).unwrap_or(name);
        found = Some((GroupBy::of(name), along, term));
    }
    let Some((by, along, term)) = found else { return Ok((formula.into(), None)) };
    let Some((along, beside)) = along else {
        return Ok((format!("{left}~ {}", summed(&terms)), Some(by.into())));
    };
    let later =
        |what, fix| FormulaError::Unsupported { part: term.into(), what, fix: Cow::Borrowed(fix) };
    let whole = write_out(&format!("{left}~ {}", summed(&terms)));
    let mut terms = halves(&whole).map(|(_, right)| signed(right)).unwrap_or_default();
    let (name, as_levels) = bare(along);
    if spline::argument(along).is_some() {
        let fix = "write (x | group), where x is a column of numbers that is a term of its own";
        return Err(later("slopes along splines", fix));
    }
    if as_levels || along == "." {
        let fix = "slopes are along numbers: make a column of 0 and 1 of a level";
        return Err(later("slopes along levels", fix));
    }
    let is_it = |(added, term): &(bool, &str)| *added && bare(term).0 == name;
    match terms.iter().position(is_it) {
        Some(place) => {
            let term = terms.remove(place);
            terms.insert(0, term);
        }
        None if terms.contains(&(true, ".")) => terms.insert(0, (true, along)),
        None => {
            let fix = "add the column to the formula, y ~ x + (x | group): effects of groups are \
                around the mean of all";
            return Err(later("a slope without its mean over all groups", fix));
        }
    }
    let mut ones = true;
    for term in &terms {
        match term {
            (true, "1") => ones = true,
            (true, "0") | (false, "1") => ones = false,
            _ => {}
        }
    }
    let slope = VaryingSlope { along: name.into(), place: usize::from(ones), beside };
    let sum = summed(&terms);
    Ok((format!("{left}~ {sum}"), Some(GroupTerm { by, slope: Some(slope) })))
}

/// These terms as a sum.
fn summed(terms: &[(bool, &str)]) -> String {
    let mut sum = String::new();
    for (k, (added, term)) in terms.iter().enumerate() {
        let sign = match (k, added) {
            (0, true) => "",
            (0, false) => "- ",
            (_, true) => " + ",
            (_, false) => " - ",
        };
        sum += sign;
        sum += term;
    }
    if sum.is_empty() {
        sum.push('1');
    }
    sum
}

/// Which columns of these sites a formula uses, each once and the response first, before any of
/// them is read. Each must be there at every site; a dot uses all that any site has.
pub fn used(formula: &str, sites: &[(String, Vec<String>)]) -> Result<Vec<String>, FormulaError> {
    let shape = || FormulaError::Shape { formula: formula.into() };
    let (formula, by) = without_groups(formula)?;
    let written_out = write_out(&formula);
    let (left, right) = halves(&written_out).ok_or_else(shape)?;
    let specs: Vec<Vec<ColumnSpec>> = sites
        .iter()
        .map(|(_, columns)| columns.iter().map(|name| ColumnSpec::number(name)).collect())
        .collect();
    let schema = Schema::union(specs.iter().map(Vec::as_slice));
    let left = bare(left.split(['=', '>', '<', '!']).next().unwrap_or(left)).0;
    let raw = |term: &str| -> Result<Vec<String>, FormulaError> {
        let mut of = columns_of(term);
        if parts(term).contains(&"site") && schema.column("site").is_none() {
            of.retain(|name| name != "site");
        }
        let names =
            if of.is_empty() || schema.column(term).is_some() { vec![term.to_owned()] } else { of };
        names.iter().map(|name| column(name, &schema).map(|spec| spec.name.clone())).collect()
    };
    let response = raw(left)?;
    let mut found: Vec<String> = response.clone();
    for (added, term) in signed(right) {
        match (added, term) {
            (_, "") => return Err(shape()),
            (_, "0" | "1") => {}
            (true, ".") => {
                for spec in &schema.columns {
                    if !found.contains(&spec.name) {
                        found.push(spec.name.clone());
                    }
                }
            }
            (_, "site") if schema.column("site").is_none() => {}
            (added, _) => {
                let own = raw(bare(term).0)?;
                let single = !is_computed(bare(term).0) && parts(term).len() == 1;
                if single && role(term).0 == Role::Term {
                    found.retain(|name| !own.contains(name) || response.contains(name));
                }
                for name in own {
                    if added && !found.contains(&name) {
                        found.push(name);
                    }
                }
            }
        }
    }
    let by = by.map(|found| found.by);
    let is_site = by == Some(GroupBy::Site) && schema.column("site").is_none();
    if let Some(by) = by.filter(|_| !is_site) {
        let name = column(&by.to_string(), &schema)?.name.clone();
        if !found.contains(&name) {
            found.push(name);
        }
    }
    for column in &found {
        let has = |site: &&(String, Vec<String>)| site.1.contains(column);
        if let (Some((elsewhere, _)), Some((site, columns))) =
            (sites.iter().find(has), sites.iter().find(|site| !has(site)))
        {
            return Err(absent(site, column, elsewhere, columns.iter().map(String::as_str)));
        }
    }
    Ok(found)
}

/// A site has not a column that another one has.
pub(crate) fn absent<'a>(
    site: &str,
    column: &str,
    elsewhere: &str,
    columns: impl Iterator<Item = &'a str> + Clone,
) -> FormulaError {
    FormulaError::Absent {
        site: site.into(),
        column: column.into(),
        elsewhere: elsewhere.into(),
        hint: column_hint(column, columns.clone()),
        columns: columns.collect::<Vec<_>>().join(", "),
    }
}

/// Which columns a formula writes out, whatever columns there are: the response's first. Of a
/// product its parts, too.
pub(crate) fn written(formula: &str) -> Vec<&str> {
    let Some((left, right)) = halves(formula) else { return Vec::new() };
    let response = left.split(['=', '>', '<', '!']).next().map(|name| bare(name).0);
    let terms = signed(right).into_iter().filter(|(added, _)| *added);
    response.into_iter().chain(terms.flat_map(|(_, term)| with_parts(term))).collect()
}

/// The name of a term, and those of its parts where it is a product.
fn with_parts(term: &str) -> Vec<&str> {
    let parts = match role(term).0 {
        Role::Term => parts(term),
        _ => Vec::new(),
    };
    let own = if parts.len() > 1 { parts } else { Vec::new() };
    std::iter::once(bare(term).0).chain(own.into_iter().map(|part| bare(part).0)).collect()
}

/// Which columns a formula declares to be levels, by `C(column)`.
pub(crate) fn levels(formula: &str) -> Vec<&str> {
    let terms = halves(formula).map(|(_, right)| signed(right)).unwrap_or_default();
    terms
        .into_iter()
        .flat_map(|(_, term)| parts(term))
        .map(bare)
        .filter(|(_, as_levels)| *as_levels)
        .map(|(name, _)| name)
        .collect()
}

/// The two sides.
pub(crate) fn halves(formula: &str) -> Option<(&str, &str)> {
    formula.split_once('~').filter(|(_, right)| !right.contains('~'))
}

/// What a part of the right side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Term,
    Offset,
    Weights,
}

/// What a part is, and what stands within `offset( )` or `weights( )`.
fn role(part: &str) -> (Role, &str) {
    let part = part.trim();
    let within = |call: &str| {
        Some(part.strip_prefix(call)?.trim_start().strip_prefix('(')?.strip_suffix(')')?.trim())
    };
    let offset = within("offset").map(|inner| (Role::Offset, inner));
    offset.or(within("weights").map(|inner| (Role::Weights, inner))).unwrap_or((Role::Term, part))
}

/// The parts of a formula that change what a row is worth, or its predictor, as they are written.
pub(crate) fn adjustments(formula: &str) -> Vec<&str> {
    let parts = halves(formula).map(|(_, right)| signed(right)).unwrap_or_default();
    parts.into_iter().map(|(_, part)| part).filter(|part| role(part).0 != Role::Term).collect()
}

/// The column that says how often a row counts, where one does.
pub(crate) fn weights(formula: &str) -> Option<&str> {
    let mut parts = adjustments(formula).into_iter();
    parts.find(|part| role(part).0 == Role::Weights).map(|part| bare(part).0)
}

/// A part `offset( )` or `weights( )` whose inside is arithmetic, as `I( )` of it.
pub(super) fn arithmetic_within(part: &str) -> Option<String> {
    let (role, inner) = role(part);
    let call = match role {
        Role::Term => return None,
        Role::Offset => "offset",
        Role::Weights => "weights",
    };
    let plain = !inner.contains(['*', '/', '^', '+']) && !inner.contains(" - ");
    let quoted = inner.starts_with('`') && inner.ends_with('`') && inner.matches('`').count() == 2;
    (!plain && !quoted && !is_computed(inner)).then(|| format!("{call}(I({inner}))"))
}

/// A term without `C( )` and quotes, and whether `C( )` was there.
pub(crate) fn bare(term: &str) -> (&str, bool) {
    let term = role(term).1;
    if parts(term).len() > 1 {
        return (term, false);
    }
    let inner = term.strip_prefix("C(").and_then(|rest| rest.strip_suffix(')'));
    let inner = inner.map(|inner| inner.split_once(", ref").map_or(inner, |(name, _)| name).trim());
    let name = inner.or(integrated(term)).or(spline::argument(term)).unwrap_or(term);
    (
        name.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).unwrap_or(name),
        inner.is_some(),
    )
}

/// The level that others are compared with, by `C(column, ref = "level")`.
fn reference(term: &str) -> Option<String> {
    let inner = term.trim().strip_prefix("C(")?.strip_suffix(')')?;
    let level = inner.split_once(", ref")?.1.trim().strip_prefix('=')?.trim();
    Some(level.trim_matches(['"', '\'']).to_owned())
}

/// The terms of a sum and whether each is added. A minus counts only after a space, so that names
/// may hold one; signs within parentheses and backquotes
/// are parts of a term.
pub(super) fn signed(sum: &str) -> Vec<(bool, &str)> {
    let (mut terms, mut added, mut start, mut before) = (Vec::new(), true, 0, ' ');
    let (mut depth, mut quoted) = (0usize, false);
    for (at, letter) in sum.char_indices() {
        match letter {
            '`' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && !quoted && (letter == '+' || (letter == '-' && before.is_whitespace())) {
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
fn response(
    text: &str,
    schema: &Schema,
    classes: Option<&[String]>,
) -> Result<Response, FormulaError> {
    let wrong = |fix: &str| FormulaError::Response { response: text.into(), fix: fix.into() };
    let later = |what, fix| {
        Err(FormulaError::Unsupported { part: text.into(), what, fix: Cow::Borrowed(fix) })
    };
    for (sign, what, fix) in [
        (
            ">=",
            "a comparison by >=",
            "write `column > number` with a number that lies between two values",
        ),
        (
            "<=",
            "a comparison by <=",
            "write `column > number`, whose coefficients have the opposite signs",
        ),
        (
            "!=",
            "a comparison by !=",
            "write `column == level`, whose coefficients have the opposite signs",
        ),
        (
            "<",
            "a comparison by <",
            "write `column > number`, whose coefficients have the opposite signs",
        ),
    ] {
        if text.contains(sign) && !text.contains("==") && schema.column(text).is_none() {
            return later(what, fix);
        }
    }
    if classes.is_some() && text.contains(['=', '>']) && schema.column(text).is_none() {
        return Err(wrong(
            "the model explains all classes, so write the column alone; a comparison is for \
             model = \"logistic\"",
        ));
    }
    if let Some((name, value)) = text.split_once("==") {
        let (spec, value) = (column(bare(name).0, schema)?, value.trim().trim_matches(['"', '\'']));
        match &spec.kind {
            Kind::Number if value.parse::<f64>().is_err() => {
                return Err(wrong("compare numbers with a number"));
            }
            Kind::Binary if value != "0" && value != "1" => {
                return Err(wrong("a binary column is 0 or 1"));
            }
            Kind::Category { levels }
                if !levels.is_empty() && !levels.iter().any(|(_, level)| level == value) =>
            {
                let levels: Vec<&str> = levels.iter().map(|(_, level)| level.as_str()).collect();
                return Err(wrong(&format!("its levels are {}", levels.join(", "))));
            }
            _ => return Ok(Response::Equals { column: spec.name.clone(), value: value.into() }),
        }
    }
    if let Some((name, threshold)) = text.split_once('>') {
        let spec = column(bare(name).0, schema)?;
        let threshold = threshold.trim().parse().ok().filter(|value: &f64| value.is_finite());
        return match (&spec.kind, threshold) {
            (Kind::Number, Some(threshold)) => {
                Ok(Response::Above { column: spec.name.clone(), threshold })
            }
            (Kind::Number, None) => Err(wrong("write `column > number`")),
            _ => Err(wrong("only numbers can be compared by >, so write `column == level`")),
        };
    }
    let spec = column(bare(text).0, schema)?;
    match (&spec.kind, classes) {
        (_, Some(classes)) => {
            Ok(Response::Class { column: spec.name.clone(), classes: classes.to_vec() })
        }
        (Kind::Category { .. }, None) => Err(wrong(
            "it has words, so write `column == level`, or name them all: model = \"softmax\" and \
             classes = [\"low\", \"middle\", \"high\"]",
        )),
        _ => Ok(Response::Value { column: spec.name.clone() }),
    }
}

fn column<'a>(name: &str, schema: &'a Schema) -> Result<&'a ColumnSpec, FormulaError> {
    if let Some(spec) = schema.column(name) {
        return Ok(spec);
    }
    if let Some((what, fix)) = unsupported(name) {
        return Err(FormulaError::Unsupported { part: name.into(), what, fix });
    }
    Err(no_column(name, schema))
}

/// What is said of a name that no column has.
pub(crate) fn no_column(name: &str, schema: &Schema) -> FormulaError {
    FormulaError::NoColumn {
        term: name.into(),
        hint: column_hint(name, schema.columns.iter().map(|spec| spec.name.as_str())),
        columns: schema.listed(),
    }
}

/// What a part of a formula would mean in R, and what to do without it.
fn unsupported(part: &str) -> Option<(&'static str, Cow<'static, str>)> {
    const FUNCTIONS: [&str; 16] = [
        "log",
        "log10",
        "log2",
        "sqrt",
        "exp",
        "abs",
        "I",
        "poly",
        "ns",
        "bs",
        "C",
        "offset",
        "weights",
        "interaction",
        "mi",
        "Surv",
    ];
    const POLY: &str = "write, say, poly(age, 2) for age + I(age^2)";
    let call = part.find('(').filter(|_| part.ends_with(')')).map(|at| part[..at].trim());
    let function = |name: &str| {
        let hint = did_you_mean(name, FUNCTIONS);
        format!(
            "{hint}there are {}; or add a column with these values to every site's file, and name \
             it",
            FUNCTIONS.join(", ")
        )
    };
    let open = part.matches('(').count();
    let (what, fix) = match call {
        _ if open != part.matches(')').count() => {
            let lacks = if open > part.matches(')').count() { ")" } else { "(" };
            ("parentheses that do not match", format!("a `{lacks}` is missing").into())
        }
        Some("factor" | "as.factor" | "as_factor") => {
            let inner = part.find('(').map_or("x", |at| part[at + 1..part.len() - 1].trim());
            ("R's word for levels", format!("write C({inner})").into())
        }
        _ if part.contains('|') => (
            "effects of groups that are no term of their own",
            Cow::Borrowed("write ... + (1 | column), or (1 | site)"),
        ),
        Some("poly") => ("its degree is missing, or is not a whole number from 2", POLY.into()),
        Some("") => ("terms in parentheses", "write the terms out".into()),
        Some(name) => ("a function that is not known", function(name).into()),
        None if part.contains(['^', '/', '%']) => {
            ("powers and nesting", "write I(x^2) for a power, and a:b for an interaction".into())
        }
        None => return None,
    };
    Some((what, fix))
}

/// How a column enters unless one says otherwise.
fn default_term(spec: &ColumnSpec, as_category: bool) -> Term {
    let coding = match &spec.kind {
        Kind::Number if as_category => Coding::Dummy(ReferenceLevel::MostCommon),
        Kind::Number => Coding::Standardised,
        Kind::Binary => Coding::Binary,
        Kind::Category { levels } if levels.is_empty() => Coding::Dummy(ReferenceLevel::MostCommon),
        Kind::Category { .. } => Coding::Dummy(ReferenceLevel::First),
    };
    Term {
        column: spec.name.clone(),
        title: spec.title.clone(),
        coding,
        missing: Missing::Indicate { above: MARK_ABOVE },
        reference: None,
        hidden: false,
    }
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
        let plan =
            parse("num > 0 ~ age + cp + smokes + sex + C(heart-rate) + site", &schema()).unwrap();
        let codings: Vec<Coding> = plan.terms.iter().map(|term| term.coding).collect();
        let (first, common) =
            (Coding::Dummy(ReferenceLevel::First), Coding::Dummy(ReferenceLevel::MostCommon));
        assert_eq!(codings, [Coding::Standardised, first, Coding::Binary, common, common]);
        assert_eq!(plan.terms[1].title, "chest pain");
        assert!(plan.intercept && plan.site_effects);
        assert_eq!(plan.response, Response::Above { column: "num".into(), threshold: 0.0 });
    }

    #[test]
    fn what_others_write_is_told_as_it_is_written_here() {
        let said = refusal("num ~ age + factor(sex)");
        assert!(said.contains("`factor(sex)`") && said.contains("write C(sex)"), "{said}");
        for open in ["num ~ age + C(sex", "num ~ C(sex + age"] {
            let said = refusal(open);
            assert!(said.contains("a `)` is missing"), "{said}");
        }
        assert!(refusal("num ~ age + sex)").contains("a `(` is missing"));
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
        assert_eq!(
            refusal("num ~ agee"),
            format!("`agee` in the formula is not a column: did you mean `age`? {columns}")
        );
        assert_eq!(refusal("y ~ age"), format!("`y` in the formula is not a column: {columns}"));
        assert!(refusal("num + age").contains("is not `response ~ terms`"));
        assert!(refusal("num ~ age + ").contains("is not `response ~ terms`"));
        assert!(refusal("num ~ ").contains("is not `response ~ terms`"));
        assert!(refusal("num ~ age + C(age)").contains("the term `C(age)` stands there twice"));
        assert!(refusal("num ~ num").contains("or is the response"));
        assert!(
            refusal("num ~ age - sex")
                .contains("`- sex` in the formula: there is no such term before it")
        );
        assert!(refusal("num ~ . - agee").contains("did you mean `age`?"));
    }

    #[test]
    fn columns_are_taken_away_from_all() {
        let columns = |formula: &str| {
            parse(formula, &schema())
                .unwrap()
                .terms
                .iter()
                .map(|t| t.column.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(columns("num ~ . - age - `heart-rate`"), ["cp", "smokes", "sex"]);
        assert_eq!(columns("num ~ age + . - age"), ["heart-rate", "cp", "smokes", "sex"]);
        let plan = parse("num ~ . + site - site - 1", &schema()).unwrap();
        assert!(!plan.site_effects && !plan.intercept);
    }

    #[test]
    fn names_may_hold_signs() {
        let schema = Schema::new(vec![
            ColumnSpec::number("y"),
            ColumnSpec::number("dose (mg) + salt"),
            ColumnSpec::number("a:b"),
        ]);
        let plan = parse("y ~ `dose (mg) + salt` + a:b", &schema).unwrap();
        assert_eq!(
            plan.terms.iter().map(|term| term.column.as_str()).collect::<Vec<_>>(),
            ["dose (mg) + salt", "a:b"]
        );
    }

    #[test]
    fn what_is_not_supported_yet_is_called_so() {
        for (formula, part, what) in [
            ("num ~ cp + tanh(age)", "`tanh(age)`", "a function"),
            ("num ~ age^2", "`age^2`", "powers"),
            ("num ~ (age + sex)^2", "`(age + sex)^2`", "powers"),
            ("num ~ weights(age) + weights(`heart-rate`)", "heart-rate", "several weights"),
            ("tanh(num) ~ age", "`tanh(num)`", "a function"),
            ("num >= 3 ~ age", "`num >= 3`", "a comparison by >="),
            ("num < 3 ~ age", "`num < 3`", "a comparison by <"),
            ("sex != f ~ age", "`sex != f`", "a comparison by !="),
        ] {
            let said = refusal(formula);
            assert!(
                said.contains(part) && said.contains("not supported yet") && said.contains(what),
                "{formula}: {said}"
            );
            assert!(!said.contains("not a column"), "{said}");
        }
    }

    #[test]
    fn columns_that_are_written_out_are_known_without_a_schema() {
        assert_eq!(written("ill == yes ~ age + C(ward) + . - id"), ["ill", "age", "ward", "."]);
        assert_eq!(levels("ill == yes ~ age + C(ward) + C(`a b`)"), ["ward", "a b"]);
    }

    #[test]
    fn what_a_formula_uses_is_known_before_rows_are_read() {
        let sites = |all: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
            all.iter()
                .map(|(site, columns)| {
                    ((*site).into(), columns.iter().map(|c| (*c).into()).collect())
                })
                .collect()
        };
        let names = |formula: &str, all: &[(&str, &[&str])]| -> Result<Vec<String>, String> {
            used(formula, &sites(all)).map_err(|e| e.to_string())
        };
        let both: &[(&str, &[&str])] =
            &[("a", &["age", "ill", "when", "cp"]), ("b", &["ill", "age", "cp", "more"])];
        assert_eq!(names("ill == 1 ~ age + C(cp) + site - 1", both).unwrap(), ["ill", "age", "cp"]);
        assert_eq!(names("ill > 0 ~ 0 + . - when - more", both).unwrap(), ["ill", "age", "cp"]);
        assert!(
            names("ill > 0 ~ .", both).unwrap_err().starts_with("site \"b\" has no column `when`")
        );
        assert!(names("ill > 0 ~ tanh(age)", both).unwrap_err().contains("not supported yet"));
        assert_eq!(names("log(ill) ~ age*cp", both).unwrap(), ["ill", "age", "cp"]);
        assert_eq!(names("Surv(ill, cp) ~ I(age^2)", both).unwrap(), ["ill", "cp", "age"]);
        assert_eq!(names("ill ~ site", &[("a", &["site", "ill"])]).unwrap(), ["ill", "site"]);
        assert!(names("ill", both).unwrap_err().contains("is not `response ~ terms`"));
        assert!(
            names("ill ~ agee", both)
                .unwrap_err()
                .contains("did you mean `age`? the columns are age, ill, when, cp, more")
        );
        let absent = "site \"b\" has no column `when`, which the formula uses and site \"a\" has: \
            its columns are ill, age, cp, more";
        assert_eq!(names("ill ~ when", both).unwrap_err(), absent);
    }

    #[test]
    fn a_response_must_fit_its_column() {
        assert!(refusal("cp == 4 ~ age").contains("its levels are none, typical"));
        assert!(refusal("cp > 3 ~ age").contains("only numbers can be compared by >"));
        assert!(refusal("num > high ~ age").contains("write `column > number`"));
        assert!(refusal("num == high ~ age").contains("compare numbers with a number"));
        assert!(refusal("smokes == 2 ~ age").contains("a binary column is 0 or 1"));
        assert!(refusal("sex ~ age").contains("it has words"));
    }
}
