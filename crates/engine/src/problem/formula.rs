//! Agree on what the columns of a formula mean by what sites say of their tables: which columns
//! there are and of what kinds, then codes and sums.

use serde::{Deserialize, Serialize};

use super::own::{About, Complaint, FORMULA, READ, with_computed};
use crate::config::OwnData;
use crate::data::derived;
use crate::data::differences;
use crate::data::formats::At;
use crate::data::hazards::{self, Hazard, Used};
use crate::data::knots::AgreedSpline;
use crate::data::stated::{StatedCoding, StatedError};
use crate::data::{
    Coding, Column, ColumnFacts, ColumnSpec, DesignPlan, EncodeError, GroupBy, Kind, Missing,
    Moments, Part, Response, Schema, SiteSummary, Table, formula, lay_out,
};
use crate::warnings::Warning;

/// What to do about what is stated of columns.
pub(crate) const CODING: &str = "correct [target.coding], or the formula";

/// Why a site's rows do not go with what is stated of their columns: for its own screen.
pub(crate) fn as_stated_error(error: EncodeError) -> String {
    match error {
        EncodeError::UnknownLevel { file, at, column, level, known } => format!(
            "{file}, {at}, column `{column}`: target.coding states no level `{level}`: {known}"
        ),
        EncodeError::MissingValue { file, at, column, .. } => format!(
            "{file}, {at}, column `{column}`: the value is missing, and target.coding does not \
             state what stands for it (impute, or centre and scale)"
        ),
        other => other.to_string(),
    }
}

/// What a site says of its table first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableFacts {
    /// Its columns, and of what kinds they are.
    columns: Vec<ColumnSpec>,
    /// Columns that the formula names and that are numbers but for something among them.
    suspects: Vec<(String, Hazard)>,
}

impl TableFacts {
    /// What is said of this table.
    pub(crate) fn of(table: &Table, formula: &str) -> TableFacts {
        let suspect = |column: &str| {
            let used = hazards::by_formula(formula, column, false);
            let mixed = ColumnFacts::of(used, table, false)?.mixed?;
            Some((column.to_owned(), mixed))
        };
        TableFacts {
            columns: table.specs().to_vec(),
            suspects: formula::written(formula).into_iter().filter_map(suspect).collect(),
        }
    }

    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|spec| spec.name == column)
    }
}

/// What all sites together agree their columns are, and what the formula makes of them.
#[derive(Clone, Debug)]
pub struct Kinds {
    all: Schema,
    pub(crate) plan: DesignPlan,
    /// The splines that sites agreed on since, and what that took, in bits up and down.
    pub(crate) splines: (Vec<AgreedSpline>, (u64, u64)),
}

impl Kinds {
    /// Merge what the sites say, in their order; refuse columns that some have not.
    pub(crate) fn agree(
        own: &OwnData,
        formula: &str,
        sites: &[(&str, &TableFacts)],
    ) -> Result<Kinds, Complaint> {
        let all = Schema::union(sites.iter().map(|(_, facts)| &facts.columns[..]));
        let classes = own.kind.class_names();
        let plan = formula::parse_with(formula, &all, classes.as_deref()).map_err(|error| {
            // A typing error among numbers makes words of them, and should be named first.
            let suspects = |column: &str| {
                let of = |facts: &TableFacts| {
                    facts.suspects.iter().find(|(name, _)| name == column).map(|(_, h)| h.clone())
                };
                sites.iter().find_map(|(_, facts)| of(facts))
            };
            let found = formula::written(formula).into_iter().find_map(suspects);
            let odd = || formula::written(formula).into_iter().find_map(|c| of_two_kinds(c, sites));
            let otherwise = || odd().unwrap_or_else(|| About::Formula.complain(error, FORMULA));
            found.map_or_else(otherwise, hazard)
        })?;
        let kinds = Kinds { all, plan: suit(plan, own), splines: Default::default() };
        let group = match &kinds.plan.group {
            Some(GroupBy::Column(name)) => Some(name.as_str()),
            _ => None,
        };
        if let Some(name) = group.filter(|name| kinds.all.column(name).is_none()) {
            let error = formula::no_column(name, &kinds.all);
            return Err(About::Formula.complain(error, FORMULA));
        }
        if let Some(name) = group.filter(|name| formula::written(formula)[1..].contains(name)) {
            let error = formula::FormulaError::TermAndGroup { column: name.into() };
            return Err(About::Formula.complain(error, FORMULA));
        }
        for (k, (site, facts)) in sites.iter().enumerate() {
            if let Some(column) = kinds
                .columns()
                .into_iter()
                .chain(kinds.beside())
                .chain(group)
                .find(|column| !facts.has(column))
            {
                return Err(missing_column(k, site, facts, column, sites));
            }
        }
        Ok(kinds)
    }

    /// The same as a site is told it.
    pub(crate) fn told(
        own: &OwnData,
        formula: &str,
        columns: Vec<ColumnSpec>,
    ) -> Result<Kinds, Complaint> {
        let all = Schema::new(columns);
        let classes = own.kind.class_names();
        let plan = formula::parse_with(formula, &all, classes.as_deref())
            .map_err(|error| About::Formula.complain(error, FORMULA))?;
        Ok(Kinds { all, plan: suit(plan, own), splines: Default::default() })
    }

    /// What the config states of the columns: nobody needs to agree.
    pub(crate) fn stated(
        own: &OwnData,
        formula: &str,
        coding: &StatedCoding,
    ) -> Result<Kinds, Complaint> {
        let wrong = |error: StatedError| About::Coding.complain(error, CODING);
        let mut all = coding.schema(formula);
        let classes = own.kind.class_names();
        let plan = formula::parse_with(formula, &all, classes.as_deref())
            .map_err(|error| wrong(error.into()))?;
        let plan = suit(plan, own);
        let titles = plan.terms.iter().map(|term| term.title.as_str());
        let columns = plan.terms.iter().map(|term| term.column.as_str());
        let used: Vec<&str> = titles.chain(columns).chain([plan.response.column()]).collect();
        coding.check_used(&used).map_err(wrong)?;
        // what others are computed of, and what names groups, is no term
        let mut more: Vec<ColumnSpec> = Vec::new();
        for name in formula::written(formula) {
            let spec = match name.starts_with("interaction(") {
                true => ColumnSpec::category,
                false => ColumnSpec::number,
            };
            more.extend(derived::columns_of(name).iter().map(|column| spec(column)));
        }
        if let Some(GroupBy::Column(name)) = &plan.group {
            more.push(ColumnSpec::category(name));
        }
        for spec in more {
            if all.column(&spec.name).is_none() {
                all.columns.push(spec);
            }
        }
        for spec in &mut all.columns {
            if coding.has_numbers_for_levels(&spec.name) {
                spec.kind = Kind::Number; // 1 and 1.0 are one level
            }
        }
        Ok(Kinds { all, plan, splines: Default::default() })
    }

    /// A site's table with the columns that the formula uses, of the stated kinds.
    pub(crate) fn read(
        &self,
        own: &OwnData,
        formula: &str,
        (place, site): (usize, &str),
        table: &Table,
    ) -> Result<Table, Complaint> {
        let table = self.convert(place, &with_computed(table, formula)?)?;
        let Response::Value { column } = &self.plan.response else { return Ok(table) };
        match OddOne::of(own, column, &table) {
            None => Ok(table),
            Some(odd) => {
                let (problem, fix) = odd.complaint(own, (site, column), None);
                Err(About::File(place).complain(problem, fix))
            }
        }
    }

    /// The layout of the design that is stated, for these sites.
    pub(crate) fn lay_out(
        &mut self,
        coding: &StatedCoding,
        sites: &[String],
    ) -> Result<Moments, Complaint> {
        let (plan, moments) = lay_out(coding, &self.plan, &self.all, sites)
            .map_err(|error| About::Coding.complain(error, CODING))?;
        self.plan = plan;
        Ok(moments)
    }

    /// Know the splines that sites agreed on, and what that took, in bits up and down.
    pub fn agree_on_splines(&mut self, splines: (Vec<AgreedSpline>, (u64, u64))) {
        self.splines = splines;
    }

    /// What sites are told.
    pub fn specs(&self) -> &[ColumnSpec] {
        &self.all.columns
    }

    /// The columns that the formula uses, the response first.
    fn columns(&self) -> Vec<&str> {
        let terms = self.plan.terms.iter().map(|term| term.column.as_str());
        std::iter::once(self.plan.response.column()).chain(terms).collect()
    }

    /// The columns of offsets and weights.
    fn beside(&self) -> impl Iterator<Item = &str> {
        self.plan.offsets.iter().chain(&self.plan.weights).map(String::as_str)
    }

    /// The columns that those which the formula computes are made of, and who predicts needs.
    pub(crate) fn raw(&self) -> Vec<ColumnSpec> {
        let offsets = self.plan.offsets.iter().map(String::as_str);
        let names: Vec<String> =
            self.columns().into_iter().chain(offsets).flat_map(derived::columns_of).collect();
        let used = |spec: &&ColumnSpec| names.contains(&spec.name);
        self.all.columns.iter().filter(used).cloned().collect()
    }

    fn uses<'a>(&'a self, formula: &'a str) -> impl Iterator<Item = Used<'a>> {
        let columns = self.columns().into_iter().enumerate();
        columns.map(move |(k, column)| hazards::by_formula(formula, column, k == 0))
    }

    /// The columns that the formula uses, in the order in which sites have them.
    pub(crate) fn used(&self) -> Schema {
        let columns: Vec<&str> = self.columns().into_iter().chain(self.beside()).collect();
        let used = |spec: &&ColumnSpec| columns.contains(&spec.name.as_str());
        Schema {
            columns: self.all.columns.iter().filter(used).cloned().collect(),
            ..Schema::new(Vec::new())
        }
    }

    /// What a site says of the columns that the formula uses.
    pub(crate) fn facts(&self, own: &OwnData, formula: &str, table: &Table) -> CodeFacts {
        let has_words = |column: &str| {
            self.all.column(column).is_some_and(|spec| matches!(spec.kind, Kind::Category { .. }))
        };
        let facts = |used: Used<'_>| ColumnFacts::of(used, table, has_words(used.column));
        CodeFacts {
            columns: self.uses(formula).filter_map(facts).collect(),
            odd_one: match &self.plan.response {
                Response::Value { column } => OddOne::of(own, column, table),
                _ => None,
            },
        }
    }

    /// Refuse columns that mean different things at different sites, or say what should be known of
    /// them; and what it cost to agree, in bits up and down. `dealt`: the sites are made of one
    /// file, and have no codes of their own.
    pub(crate) fn judge(
        &self,
        own: &OwnData,
        formula: &str,
        sites: &[(&str, &CodeFacts)],
        dealt: bool,
    ) -> Result<Judged, Complaint> {
        // Every site says of every column what kind it is, and hears what all agreed on: a byte
        // each.
        let kinds = 8 * (self.all.columns.len() * sites.len()) as u64;
        let (mut notes, mut warnings, mut codes) = (Vec::new(), Vec::new(), 0);
        for (k, used) in self.uses(formula).enumerate() {
            let facts: Vec<(&str, &ColumnFacts)> = sites
                .iter()
                .filter_map(|(site, facts)| Some((*site, facts.columns.get(k)?)))
                .collect();
            notes.extend(hazards::judge(used, &facts).map_err(hazard)?);
            warnings.extend(differences::of_codes(used.column, &facts));
            if !dealt {
                // A site that has but two numbers in a column tells them.
                let two = |facts: &ColumnFacts| {
                    facts.is_of_numbers && facts.numbers.as_ref().is_some_and(|n| n.len() == 2)
                };
                codes += 2 * 64 * facts.iter().filter(|(_, facts)| two(facts)).count() as u64;
            }
        }
        self.judge_response(own, formula, sites)?;
        Ok(Judged { notes, warnings, bits: (kinds + codes, kinds) })
    }

    /// A response that is compared with nothing must fit the model, and two values are no
    /// measurement unless the config says so.
    fn judge_response(
        &self,
        own: &OwnData,
        formula: &str,
        sites: &[(&str, &CodeFacts)],
    ) -> Result<(), Complaint> {
        let Response::Value { column } = &self.plan.response else { return Ok(()) };
        let few: Option<Vec<&[f64]>> = sites
            .iter()
            .map(|(_, facts)| facts.columns.first().and_then(|facts| facts.numbers.as_deref()))
            .collect();
        let two = few.and_then(|few| hazards::two_numbers(few.into_iter()));
        if let (Some(values), false) = (two, own.stated) {
            let (problem, fix) = hazards::ask_for_model(formula, values);
            return Err(About::Formula.complain(problem, fix));
        }
        let odd = |(site, facts): &(&str, &CodeFacts)| {
            facts.odd_one.clone().map(|odd| (site.to_string(), odd))
        };
        if let Some((site, odd)) = sites.iter().find_map(odd) {
            let right = formula::halves(formula).map_or("", |(_, right)| right.trim());
            let (problem, fix) = odd.complaint(own, (&site, column), Some(right));
            return Err(About::Formula.complain(problem, fix));
        }
        Ok(())
    }

    /// A site's table with the columns that the formula uses, of the kinds that are agreed on.
    pub(crate) fn convert(&self, place: usize, table: &Table) -> Result<Table, Complaint> {
        let mut used = self.used();
        if let Some(GroupBy::Column(name)) = &self.plan.group {
            used.columns.extend(self.all.column(name).cloned());
        }
        table.with_kinds(&used).map_err(|e| About::File(place).complain(e, READ))
    }
}

/// What is to be known of columns that are not refused.
#[derive(Debug)]
pub(crate) struct Judged {
    /// In sentences.
    pub(crate) notes: Vec<String>,
    /// What people should know first.
    pub(crate) warnings: Vec<Warning>,
    /// What it cost to agree, in bits up and down.
    pub(crate) bits: (u64, u64),
}

/// The plan as the model and the config want it.
fn suit(plan: DesignPlan, own: &OwnData) -> DesignPlan {
    let mut terms = plan.terms;
    for term in terms.iter_mut() {
        if term.missing != Missing::Integrate {
            term.missing = own.missing;
        }
        match &mut term.coding {
            Coding::Standardised if !own.standardise => term.coding = Coding::Raw,
            Coding::Spline(spline) => spline.standardised = own.standardise,
            _ => {}
        }
    }
    let (ones, logs) = (own.kind.takes_intercept(), own.kind.is_in_logs());
    let spread = logs || own.kind.is_in_units();
    let (group, slope) = (own.kind.group_by().cloned(), own.kind.slope_by().cloned());
    let mut products = plan.products;
    if let Some(GroupBy::Column(column)) = &group
        && let Some(place) = terms.iter().position(|term| term.column == *column)
    {
        terms.remove(place); // a dot means all columns but that one
        for part in products.iter_mut().flat_map(|product| &mut product.parts) {
            match part {
                Part::Term(term) if *term > place => *term -= 1,
                _ => {}
            }
        }
    }
    // a model that is its own intercept cannot go without
    let intercept = plan.intercept || !ones;
    DesignPlan { terms, products, ones, spread, logs, intercept, group, slope, ..plan }
}

/// What a site says of the columns that a formula uses, before they are coded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodeFacts {
    /// One for each column, the response first.
    columns: Vec<ColumnFacts>,
    odd_one: Option<OddOne>,
}

impl CodeFacts {
    /// Check that they are about the columns that were asked about.
    pub(crate) fn check(&self, kinds: &Kinds) -> Result<(), String> {
        let said: Vec<&str> = self.columns.iter().map(|facts| facts.column.as_str()).collect();
        if said == kinds.columns() {
            return Ok(());
        }
        Err(format!(
            "it says something of the columns {}, where {} were asked about",
            said.join(", "),
            kinds.columns().join(", ")
        ))
    }
}

/// A response that the model does not explain, and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OddOne {
    file: String,
    at: At,
    value: f64,
}

impl OddOne {
    /// The first of a table, if there is one among its numbers.
    pub(super) fn of(own: &OwnData, column: &str, table: &Table) -> Option<OddOne> {
        let (_, Column::Number(cells)) = table.column(column)? else { return None };
        let odd = |(row, cell): (usize, &Option<f64>)| {
            cell.filter(|value| !own.kind.accepts(*value)).map(|value| (row, value))
        };
        let (row, value) = cells.iter().enumerate().find_map(odd)?;
        Some(OddOne { file: table.file().into(), at: table.place(row), value })
    }

    /// What is wrong with it at this site, in this column, and what to do.
    pub(super) fn complaint(
        &self,
        own: &OwnData,
        (site, column): (&str, &str),
        right: Option<&str>,
    ) -> (String, String) {
        let (title, explained) = (own.kind.row().title, own.kind.responses());
        let OddOne { file, at, value } = self;
        let problem = format!(
            "{title} explains {explained}, and `{column}` is {value} at site `{site}` ({file}, \
             {at})"
        );
        (problem, own.kind.remedy(column, *value, right))
    }
}

/// What a site says once it knows what the columns are: their codes, and the sums that the design
/// is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodedSummary {
    /// Of its columns.
    pub(crate) facts: CodeFacts,
    /// Of its rows.
    pub(crate) summary: SiteSummary,
}

fn hazard(hazard: Hazard) -> Complaint {
    About::Formula.complain(&hazard, hazard.fix())
}

/// A column that has words at one site and numbers at another.
fn of_two_kinds(column: &str, sites: &[(&str, &TableFacts)]) -> Option<Complaint> {
    let kind = |facts: &TableFacts| {
        let spec = facts.columns.iter().find(|spec| spec.name == column)?;
        Some(matches!(spec.kind, Kind::Category { .. }))
    };
    let first = |words: bool| {
        let found = sites.iter().find(|(_, facts)| kind(facts) == Some(words));
        found.map(|(site, _)| *site)
    };
    let (words, numbers) = (first(true)?, first(false)?);
    let problem = format!(
        "the column `{column}` has words at site `{words}`, and numbers at site `{numbers}`"
    );
    Some(About::Formula.complain(problem, "write the column alike at all sites"))
}

/// A site lacks a column that others have.
fn missing_column(
    k: usize,
    site: &str,
    facts: &TableFacts,
    column: &str,
    sites: &[(&str, &TableFacts)],
) -> Complaint {
    let elsewhere = sites.iter().find(|(_, facts)| facts.has(column)).map_or("", |(site, _)| site);
    let problem = formula::absent(
        site,
        column,
        elsewhere,
        facts.columns.iter().map(|spec| spec.name.as_str()),
    );
    About::File(k).complain(
        problem,
        format!(
            "add the column there, or leave it out of the formula (`. - \
            {column}` leaves it out of all columns)"
        ),
    )
}
