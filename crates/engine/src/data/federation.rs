//! Hold the sites' encoded rows, and say how they came about.

use consilience_core::error::DataError;
use consilience_core::model::{Design, Glm, GlmFamily};

use super::knots::{self, AgreedSpline, KnotSearch};
use super::{
    DesignPlan, EncodeError, MomentLedger, Moments, SiteSummary, Table, combine, differences,
    encode, summarise,
};
use crate::warnings::Warning;

/// One site's rows as numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteData {
    /// The site's name.
    pub name: String,
    /// The cells of the design, row by row.
    pub cells: Vec<f64>,
    /// How many columns a row has.
    pub columns: usize,
    /// One response a row.
    pub response: Vec<f64>,
    /// The group of every row, numbered from 0 as they come; empty where rows are in none.
    pub groups: Vec<u32>,
    /// What the groups are called, in the order of their numbers.
    pub group_names: Vec<String>,
    /// What is added to the predictor of every row; empty where nothing is.
    pub offset: Vec<f64>,
    /// How often every row counts; empty where all count once.
    pub weights: Vec<f64>,
}

impl SiteData {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.response.len()
    }

    /// The generalised linear model of these rows.
    pub fn glm(&self, family: GlmFamily) -> Result<Glm, DataError> {
        Glm::new(Design::dense(self.cells.clone(), self.columns)?, self.response.clone(), family)
    }

    /// Logistic regression on these rows: responses must be 0 or 1.
    pub fn logistic(&self) -> Result<Glm, DataError> {
        self.glm(GlmFamily::Bernoulli)
    }
}

/// Sites that explain one response by one design.
#[derive(Clone, Debug, PartialEq)]
pub struct Federation {
    /// What the data are called.
    pub name: String,
    /// The names of the design's columns, in order.
    pub parameters: Vec<String>,
    /// The sites, in order.
    pub sites: Vec<SiteData>,
    /// How the data were encoded and imputed, in plain sentences with the numbers.
    pub notes: Vec<String>,
    /// What people should know of the columns.
    pub warnings: Vec<Warning>,
    /// How many bits the sites sent, all together, to agree on the encoding.
    pub exchanged_bits_up: u64,
    /// How many bits they received for it, all together.
    pub exchanged_bits_down: u64,
    pub(super) moments: Moments,
}

impl Federation {
    /// Encode named tables by a plan. Only summaries and moments pass between a site and the
    /// server.
    pub fn new(
        name: &str,
        sites: &[(String, Table)],
        plan: &DesignPlan,
    ) -> Result<Self, EncodeError> {
        let summaries = sites
            .iter()
            .map(|(site, table)| summarise(site, table, plan))
            .collect::<Result<Vec<_>, _>>()?;
        let (splines, more) = agree_on_knots(sites, &summaries, plan)?;
        let moments = combine(&summaries, plan, &splines)?;
        let ledger = MomentLedger::count(&summaries, &moments);
        Ok(Federation {
            name: name.into(),
            parameters: moments.columns.iter().map(|column| column.name.clone()).collect(),
            sites: sites
                .iter()
                .map(|(site, table)| encode(site, table, plan, &moments))
                .collect::<Result<_, _>>()?,
            notes: moments.notes.clone(),
            warnings: differences::of_sums(&summaries, plan),
            moments: moments.clone(),
            exchanged_bits_up: ledger.up + more.0,
            exchanged_bits_down: ledger.down + more.1,
        })
    }

    /// Encode named tables by what is stated of their columns: nothing passes between a site and
    /// the server.
    pub(crate) fn stated(
        name: &str,
        sites: &[(String, Table)],
        plan: &DesignPlan,
        moments: Moments,
    ) -> Result<Self, EncodeError> {
        let encoded = sites.iter().map(|(site, table)| encode(site, table, plan, &moments));
        Ok(Federation {
            name: name.into(),
            parameters: moments.columns.iter().map(|column| column.name.clone()).collect(),
            sites: encoded.collect::<Result<_, _>>()?,
            notes: moments.notes.clone(),
            warnings: Vec::new(),
            exchanged_bits_up: 0,
            exchanged_bits_down: 0,
            moments,
        })
    }

    /// Encode more rows of the same sites by the moments that are agreed on, as rows of one table.
    pub(crate) fn encode_more(
        &self,
        sites: &[(String, Table)],
        plan: &DesignPlan,
    ) -> Result<SiteData, EncodeError> {
        let mut all = SiteData {
            name: self.name.clone(),
            cells: Vec::new(),
            columns: self.dim(),
            response: Vec::new(),
            groups: Vec::new(),
            group_names: Vec::new(),
            offset: Vec::new(),
            weights: Vec::new(),
        };
        for (site, table) in sites {
            let more = encode(site, table, plan, &self.moments)?;
            all.cells.extend(more.cells);
            all.response.extend(more.response);
            all.offset.extend(more.offset);
        }
        Ok(all)
    }

    /// What the sites agreed on.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.parameters.len()
    }

    /// How many rows all sites have together.
    pub fn rows(&self) -> usize {
        self.sites.iter().map(SiteData::rows).sum()
    }

    /// Logistic regression at every site, in order.
    pub fn logistic(&self) -> Result<Vec<Glm>, DataError> {
        self.sites.iter().map(SiteData::logistic).collect()
    }
}

/// Find the knots of all splines, by what the sites would say if each were elsewhere; and what that
/// takes, in bits up and down.
fn agree_on_knots(
    sites: &[(String, Table)],
    summaries: &[SiteSummary],
    plan: &DesignPlan,
) -> Result<(Vec<AgreedSpline>, (u64, u64)), EncodeError> {
    let mut search = KnotSearch::new(summaries, plan)?;
    while let Some(ask) = search.ask() {
        let told = sites.iter().map(|(_, table)| knots::tell(table, plan, &ask));
        search.hear(&told.collect::<Result<Vec<_>, _>>()?)?;
    }
    Ok(search.end())
}
