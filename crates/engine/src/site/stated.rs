//! Code a site's rows by what the config states of their columns: the site says their names, which
//! all know, and how many rows it has.

use std::sync::Arc;

use consilience_core::model::{Design, Model};

use super::coded::coded_by_sites;
use super::{Agreed, Agreement, Introduction, MOST_ROWS, SiteRows, data_place};
use crate::config::{Config, ConfigError, ModelConfig, OwnData};
use crate::data::stated::StatedCoding;
use crate::data::{DesignPlan, Moments, SiteData, Study, Table, builtin, derived, encode, lay_out};
use crate::encoding::Encoding;
use crate::models::{self, Observed, RowModel};
use crate::privacy::{self, Shortened};
use crate::problem::{About, Complaint, Kinds, READ, as_stated_error};

/// The design that a config states.
#[derive(Clone, Debug)]
pub(crate) struct StatedDesign {
    /// The model of its rows.
    pub(crate) kind: Arc<dyn RowModel>,
    /// How tables become numbers.
    pub(crate) plan: DesignPlan,
    /// The columns, and in which order.
    pub(crate) moments: Moments,
    encoding: Encoding,
    /// The formula's columns, where it is a formula.
    kinds: Option<(Kinds, String)>,
}

/// One site's rows, coded so.
#[derive(Clone, Debug)]
pub(super) struct StatedRows {
    pub(super) columns: Vec<String>,
    pub(super) potential: Arc<dyn Model>,
    pub(super) shortened: Option<Shortened>,
    /// The rows themselves, where this process may be asked about them.
    pub(super) rows: Option<SiteRows>,
    moments: Moments,
}

impl StatedDesign {
    /// The design of a config whose sites bring tables; `None` where they agree on one, or have
    /// numbers.
    pub(crate) fn of(config: &Config) -> Result<Option<StatedDesign>, ConfigError> {
        let Some(coding) = &config.target.coding else { return Ok(None) };
        let coding = &coding.stated;
        match &config.target.model {
            ModelConfig::Builtin(name) => of_builtin(config, name, coding).map(Some),
            ModelConfig::Own(own) => match coded_by_sites(own) {
                None => Ok(None),
                Some((formula, sites)) => {
                    let names: Vec<String> = sites.iter().map(|(name, _)| name.clone()).collect();
                    let header = sites.iter().find_map(|(_, file)| file.header.clone());
                    let made = of_formula(own, formula, coding, (&names, header));
                    made.map(Some).map_err(|complaint| complaint.about(config, own))
                }
            },
            _ => Ok(None),
        }
    }

    /// The names of the design's columns.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.moments.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// Code a site's table.
    pub(super) fn rows(
        self,
        config: &Config,
        (index, name): (usize, &str),
        table: &Table,
    ) -> Result<StatedRows, ConfigError> {
        let complain = |problem: String| match &config.target.model {
            ModelConfig::Own(own) => About::File(index).complain(problem, READ).about(config, own),
            _ => config.source.complain(&data_place(), problem, "correct the table"),
        };
        let read;
        let table = match (&self.kinds, &config.target.model) {
            (Some((kinds, formula)), ModelConfig::Own(own)) => {
                read = kinds
                    .read(own, formula, (index, name), table)
                    .map_err(|complaint| complaint.about(config, own))?;
                &read
            }
            _ => table,
        };
        let coded = encode(name, table, &self.plan, &self.moments);
        let coded = coded.map_err(|e| complain(as_stated_error(e)))?;
        let SiteData { mut cells, columns, response, groups, group_names, offset, weights, .. } =
            coded;
        let bounds = config.privacy.as_ref();
        let clipped = privacy::clipped(config, &*self.kind, &response);
        let shortened = bounds.map(|bounds| Shortened {
            clipped,
            ..privacy::shorten(&mut cells, columns, bounds.row_norm)
        });
        let design = Design::dense(cells, columns).map_err(|e| complain(e.to_string()))?;
        let rows = Observed { response, groups, offset, weights };
        // a private run is asked for no rows
        let kept = bounds.is_none() && matches!(config.target.model, ModelConfig::Builtin(_));
        let kept = kept.then(|| SiteRows {
            name: name.into(),
            design: design.clone(),
            rows: rows.clone(),
            group_names,
        });
        let potential = match bounds {
            None => self.kind.potential_of(design, rows),
            Some(bounds) => self.kind.bounded_of(bounds.slope, design, rows),
        };
        Ok(StatedRows {
            columns: self.columns(),
            potential: potential.map_err(|e| complain(e.to_string()))?,
            shortened,
            rows: kept,
            moments: self.moments,
        })
    }
}

impl StatedRows {
    /// Check that the server was told of the columns what this site states of them.
    pub(super) fn check(&self, agreement: &Agreement) -> Result<(), String> {
        let own = &self.moments;
        let same = agreement.moments.as_ref().is_some_and(|told| {
            (&told.columns, &told.levels, &told.sites) == (&own.columns, &own.levels, &own.sites)
                && told.response == own.response
        });
        match same {
            true => Ok(()),
            false => Err("the server codes columns otherwise than the config states".into()),
        }
    }
}

/// Built-in data: how its files are written is known.
fn of_builtin(
    config: &Config,
    name: &str,
    coding: &StatedCoding,
) -> Result<StatedDesign, ConfigError> {
    let place =
        config.target.coding.as_ref().map_or_else(data_place, |coding| coding.place.clone());
    let wrong =
        |problem: String| config.source.complain(&place, problem, "correct [target.coding]");
    let study = builtin::study(name).map_err(|e| wrong(e.to_string()))?;
    let used: Vec<&str> = study.plan.terms.iter().map(|term| term.column.as_str()).collect();
    coding.check_used(&used).map_err(|e| wrong(e.to_string()))?;
    let (plan, moments) = lay_out(coding, &study.plan, &study.schema, &study.sites)
        .map_err(|e| wrong(e.to_string()))?;
    let kind = models::of_comparison();
    // what is missing of a new row is what is missing here
    let study = Study { plan: plan.clone(), ..study };
    let encoding = Encoding::of_study(&study, &moments, Arc::clone(&kind)).stated(true);
    Ok(StatedDesign { kind, plan, moments, encoding, kinds: None })
}

/// Tables whose columns a formula codes.
fn of_formula(
    own: &OwnData,
    formula: &str,
    coding: &StatedCoding,
    (sites, header): (&[String], Option<Vec<String>>),
) -> Result<StatedDesign, Complaint> {
    let formula = derived::write_out(formula);
    let mut kinds = Kinds::stated(own, &formula, coding)?;
    let moments = kinds.lay_out(coding, sites)?;
    let model = Arc::clone(&own.kind);
    let encoding = Encoding::by_formula(&kinds.used(), header, &kinds.plan, &moments, model)
        .with_computed(kinds.raw())
        .stated(true);
    let (kind, plan) = (Arc::clone(&own.kind), kinds.plan.clone());
    Ok(StatedDesign { kind, plan, moments, encoding, kinds: Some((kinds, formula)) })
}

/// What all sites are told: what they know, and how many rows there are.
pub(super) fn agree(
    config: &Config,
    design: StatedDesign,
    introductions: &[Introduction],
) -> Result<Agreed, ConfigError> {
    let StatedDesign { kind, plan, mut moments, encoding, .. } = design;
    let columns: Vec<String> = moments.columns.iter().map(|column| column.name.clone()).collect();
    let mut rows = Vec::new();
    for (name, said) in moments.sites.iter().zip(introductions) {
        let refuse = |problem: &str| {
            let problem = format!("site \"{name}\": {problem}");
            Err(config.source.complain(
                &data_place(),
                problem,
                "start every party with the same config",
            ))
        };
        let Introduction::Numbers { columns: said, rows: count } = said else {
            return refuse("it says more of its columns than their names");
        };
        if *said != columns {
            return refuse("its columns are not those that the config states");
        }
        if !(1..=MOST_ROWS).contains(count) {
            return refuse("it has no rows, or too many");
        }
        rows.push(*count);
    }
    if rows.len() < moments.sites.len() {
        let (said, all) = (rows.len(), moments.sites.len());
        let problem = format!("{said} of {all} sites introduced themselves");
        return Err(config.source.complain(&data_place(), problem, "start every site"));
    }
    moments.rows = rows.iter().sum();
    Ok(Agreed {
        agreement: Agreement {
            parameters: kind.parameters(&columns, plan.response.classes()),
            moments: Some(moments.clone()),
            models: None,
            secure: None,
        },
        rows,
        notes: moments.notes,
        warnings: Vec::new(),
        moments_bits: (0, 0),
        encoding: Some(encoding),
    })
}
