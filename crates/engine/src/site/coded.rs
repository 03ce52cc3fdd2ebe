//! Let sites bring tables that a formula codes: each says what its columns are, then their codes
//! and sums, and all are told one design.

use std::sync::Arc;

use consilience_core::model::{Design, Model};

use super::{Agreed, Agreement, Introduction, Own};
use crate::config::{Config, ConfigError, OwnData, OwnSource};
use crate::data::derived;
use crate::data::differences;
use crate::data::disclosed::Disclosed;
use crate::data::formats::DataFile;
use crate::data::knots::{self, KnotSearch, KnotsAsk, KnotsTold};
use crate::data::{
    Coding, ColumnSpec, EncodeError, MomentLedger, Moments, SiteSummary, Table, combine, encode,
    summarise,
};
use crate::encoding::Encoding;
use crate::models::Observed;
use crate::problem::{
    About, CodedSummary, Complaint, FORMULA, Judged, Kinds, READ, SiteRows, TableFacts,
    with_computed,
};
use crate::site_effects::EffectsLaw;

/// A site's table, and what its columns are once that is agreed on.
#[derive(Clone, Debug)]
pub(super) struct CodedTable {
    own: OwnData,
    formula: String,
    raw: Table,
    coded: Option<(Kinds, Table)>,
    disclosed: Disclosed,
}

/// Data whose columns a formula codes, and that sites bring.
pub(super) fn coded_by_sites(own: &OwnData) -> Option<(&str, &[(String, DataFile)])> {
    match (&own.formula, &own.source, own.test) {
        (Some(formula), OwnSource::Sites(sites), None) => Some((formula, sites)),
        _ => None,
    }
}

/// The table of one site.
pub(super) fn read(
    config: &Config,
    own: &OwnData,
    index: usize,
    rows: &Own,
) -> Result<Table, ConfigError> {
    let complain = |complaint: Complaint| complaint.about(config, own);
    let Some((_, sites)) = coded_by_sites(own) else {
        return Err(complain(About::Data.complain("no formula codes the rows", READ)));
    };
    let stated = &sites[index].1;
    let table = match rows {
        Own::File(path) => DataFile { path: path.clone(), memory: None, ..stated.clone() }
            .table(None)
            .map_err(|e| About::File(index).complain(e, READ)),
        Own::Text(text) => stated
            .table_of(text, "the site's rows")
            .map_err(|e| About::File(index).complain(e, READ)),
        Own::Table(table) => Ok(Table::clone(table)),
        Own::Stated if !stated.is_elsewhere() => {
            stated.table(None).map_err(|e| About::File(index).complain(e, READ))
        }
        Own::Stated => Err(About::File(index)
            .complain("this site's rows are not stated", "name its file: --data FILE")),
        Own::Builtin => Err(About::File(index).complain(
            "the config names no built-in data, and the site has no other",
            "name the site's file: --data FILE",
        )),
        Own::Numbers(_) => Err(About::File(index).complain(
            "a formula needs columns with names and kinds, and these are plain numbers",
            "give them as the text of a CSV file",
        )),
        Own::Model(_) => Err(About::File(index).complain(
            "the site brings a model of its own, and the config states another",
            "leave the model out: name the site's file, --data FILE",
        )),
    };
    table.map_err(complain)
}

impl CodedTable {
    /// Read a site's rows.
    pub(super) fn open(
        config: &Config,
        own: &OwnData,
        index: usize,
        rows: &Own,
    ) -> Result<CodedTable, ConfigError> {
        let complain = |complaint: Complaint| complaint.about(config, own);
        let Some((formula, _)) = coded_by_sites(own) else {
            return Err(complain(About::Data.complain("no formula codes the rows", READ)));
        };
        let formula = derived::write_out(formula);
        let table = read(config, own, index, rows)?;
        Ok(CodedTable {
            own: own.clone(),
            raw: with_computed(&table, &formula).map_err(complain)?,
            formula,
            coded: None,
            disclosed: Disclosed::default(),
        })
    }

    /// What the site says first: which columns it has.
    pub(super) fn introduce(&self) -> Introduction {
        Introduction::Columns(TableFacts::of(&self.raw, &self.formula))
    }

    /// Hear what all columns are; say their codes, and the sums of the rows.
    pub(super) fn code(
        &mut self,
        config: &Config,
        (index, name): (usize, &str),
        columns: Vec<ColumnSpec>,
    ) -> Result<Introduction, ConfigError> {
        let complain = |complaint: Complaint| complaint.about(config, &self.own);
        let kinds = Kinds::told(&self.own, &self.formula, columns).map_err(complain)?;
        let facts = kinds.facts(&self.own, &self.formula, &self.raw);
        let table = kinds.convert(index, &self.raw).map_err(complain)?;
        let summary = summarise(name, &table, &kinds.plan)
            .map_err(|e| complain(About::Formula.complain(e, FORMULA)))?;
        self.coded = Some((kinds, table));
        Ok(Introduction::Coded(CodedSummary { facts, summary }))
    }

    /// Answer what is asked for the knots of splines.
    pub(super) fn knots(
        &mut self,
        config: &Config,
        ask: &KnotsAsk,
    ) -> Result<Introduction, ConfigError> {
        let Some((kinds, table)) = &self.coded else {
            let problem = "the server did not say of what kinds the columns are";
            return Err(About::Formula.complain(problem, FORMULA).about(config, &self.own));
        };
        let admitted = self.disclosed.admit(&kinds.plan, ask);
        let told = admitted.and_then(|()| knots::tell(table, &kinds.plan, ask));
        told.map(Introduction::Knots).map_err(|e| about_formula(config, e))
    }

    /// The potential of the rows, as the moments code them.
    pub(super) fn potential(
        &self,
        name: &str,
        moments: &Moments,
    ) -> Result<Arc<dyn Model>, String> {
        let SiteRows { design, rows, .. } = self.rows(name, moments)?;
        self.own.kind.potential_of(design, rows).map_err(|e| e.to_string())
    }

    /// The law of the effects of the site's own groups; `None` where the model has none.
    pub(super) fn effects(
        &self,
        name: &str,
        moments: &Moments,
        (seed, place, dim): (u64, usize, usize),
    ) -> Result<Option<EffectsLaw>, String> {
        let rows = self.rows(name, moments)?;
        EffectsLaw::new(&*self.own.kind, rows, (seed, place, dim)).map_err(|e| e.to_string())
    }

    /// The rows, as the moments code them.
    fn rows(&self, name: &str, moments: &Moments) -> Result<SiteRows, String> {
        let Some((kinds, table)) = &self.coded else {
            return Err("the server did not say of what kinds the columns are".into());
        };
        let rows = encode(name, table, &kinds.plan, moments).map_err(|e| e.to_string())?;
        let design = Design::dense(rows.cells, rows.columns).map_err(|e| e.to_string())?;
        let observed = Observed {
            response: rows.response,
            groups: rows.groups,
            offset: rows.offset,
            weights: rows.weights,
        };
        let group_names = rows.group_names;
        Ok(SiteRows { name: name.into(), design, rows: observed, group_names })
    }
}

/// Merge what sites say of their columns, in their order; `None`: nobody needs to agree on kinds.
pub fn kinds(
    config: &Config,
    introductions: &[Introduction],
) -> Result<Option<Kinds>, ConfigError> {
    let crate::config::ModelConfig::Own(own) = &config.target.model else { return Ok(None) };
    if config.target.coding.is_some() {
        return Ok(None); // that is stated
    }
    let Some((formula, sites)) = coded_by_sites(own) else { return Ok(None) };
    let formula = &*derived::write_out(formula);
    let complain = |complaint: Complaint| complaint.about(config, own);
    let mut said = Vec::new();
    for (k, ((name, _), introduction)) in sites.iter().zip(introductions).enumerate() {
        let Introduction::Columns(facts) = introduction else {
            return Err(complain(About::File(k).complain(
                format!("client \"{name}\": it did not say which columns it has"),
                "start every party with the same config",
            )));
        };
        said.push((name.as_str(), facts));
    }
    Kinds::agree(own, formula, &said).map(Some).map_err(complain)
}

/// The search for the knots of the formula's splines, from the sums that all sites sent, in their
/// order. Who leads it asks until nothing is asked any more.
pub fn knots<'k>(
    config: &Config,
    kinds: &'k Kinds,
    introductions: &[Introduction],
) -> Result<KnotSearch<'k>, ConfigError> {
    let names = super::names(config)?;
    // what is no summary, or that of somebody else, is refused where all are merged
    let said = |(introduction, name): (&Introduction, &String)| match introduction {
        Introduction::Coded(said) if said.facts.check(kinds).is_ok() => {
            Some(said.summary.clone()).filter(|summary| summary.site == *name)
        }
        _ => None,
    };
    let summaries: Option<Vec<SiteSummary>> = introductions.iter().zip(&names).map(said).collect();
    let plan = &kinds.plan;
    let has_splines = plan.terms.iter().any(|term| matches!(term.coding, Coding::Spline(_)));
    match summaries.filter(|_| has_splines) {
        Some(all) => KnotSearch::new(&all, plan).map_err(|e| about_formula(config, e)),
        None => Ok(KnotSearch::none(plan)),
    }
}

/// Hear what all sites say to what the search asked, in their order.
pub fn hear_knots(
    config: &Config,
    search: &mut KnotSearch<'_>,
    introductions: Vec<Introduction>,
) -> Result<(), ConfigError> {
    let told = |introduction| match introduction {
        Introduction::Knots(told) => told,
        _ => KnotsTold::Counts(Vec::new()), // refused as such, by its site
    };
    let told: Vec<KnotsTold> = introductions.into_iter().map(told).collect();
    search.hear(&told).map_err(|e| about_formula(config, e))
}

fn about_formula(config: &Config, error: EncodeError) -> ConfigError {
    let complaint = About::Formula.complain(error, FORMULA);
    match &config.target.model {
        crate::config::ModelConfig::Own(own) => complaint.about(config, own),
        _ => config.source.complain(&super::data_place(), complaint.problem(), FORMULA),
    }
}

/// Merge the sites' codes and sums, in their order, into one design.
pub(super) fn agree(
    config: &Config,
    own: &OwnData,
    kinds: &Kinds,
    introductions: &[Introduction],
) -> Result<Agreed, ConfigError> {
    let complain = |complaint: Complaint| complaint.about(config, own);
    let wrong = |e: EncodeError| complain(About::Formula.complain(e, FORMULA));
    let Some((formula, sites)) = coded_by_sites(own) else {
        return Err(complain(About::Data.complain("no formula codes the rows", READ)));
    };
    let formula = &*derived::write_out(formula);
    let (mut facts, mut summaries): (Vec<_>, Vec<SiteSummary>) = (Vec::new(), Vec::new());
    for (k, ((name, _), introduction)) in sites.iter().zip(introductions).enumerate() {
        let refuse = |problem: String| {
            let problem = format!("client \"{name}\": {problem}");
            complain(About::File(k).complain(problem, "start every party with the same config"))
        };
        let Introduction::Coded(said) = introduction else {
            return Err(refuse("it sent no sums of its rows".into()));
        };
        said.facts.check(kinds).map_err(refuse)?;
        if said.summary.site != *name {
            return Err(refuse(format!("it calls itself `{}`", said.summary.site)));
        }
        facts.push((name.as_str(), &said.facts));
        summaries.push(said.summary.clone());
    }
    let judged = kinds.judge(own, formula, &facts, false).map_err(complain)?;
    let Judged { mut notes, mut warnings, bits } = judged;
    warnings.extend(differences::of_sums(&summaries, &kinds.plan));
    let (splines, more) = &kinds.splines;
    let moments = combine(&summaries, &kinds.plan, splines).map_err(wrong)?;
    let exchanged = MomentLedger::count(&summaries, &moments);
    notes.splice(0..0, moments.notes.iter().cloned());
    let header = sites.iter().find_map(|(_, file)| file.header.clone());
    let model = Arc::clone(&own.kind);
    let encoding = Encoding::by_formula(&kinds.used(), header, &kinds.plan, &moments, model)
        .with_computed(kinds.raw());
    let columns: Vec<String> = moments.columns.iter().map(|column| column.name.clone()).collect();
    Ok(Agreed {
        agreement: Agreement {
            parameters: own.kind.parameters(&columns, kinds.plan.response.classes()),
            moments: Some(moments),
            models: None,
            secure: None,
        },
        rows: summaries.iter().map(|summary| summary.groups.unwrap_or(summary.rows)).collect(),
        notes,
        warnings,
        moments_bits: (exchanged.up + bits.0 + more.0, exchanged.down + bits.1 + more.1),
        encoding: Some(encoding),
    })
}
