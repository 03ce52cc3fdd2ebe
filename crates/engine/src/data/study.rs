//! Agree on one design where every site has its own table: each says a summary, all are told the
//! moments, and each encodes its own rows.

use serde::{Deserialize, Serialize};

use super::{
    DesignPlan, EncodeError, Federation, MomentLedger, Moments, Schema, SiteData, SiteSummary,
    Table, combine, differences, encode, summarise,
};

/// What all sites know beforehand: how their files are written, and how rows become a design.
#[derive(Clone, Debug)]
pub struct Study {
    /// What the data are called.
    pub name: String,
    /// How a site's file is written.
    pub schema: Schema,
    /// How a table becomes a design.
    pub plan: DesignPlan,
    /// The sites, in order.
    pub sites: Vec<String>,
    /// Columns that are left out since most values of them are missing: all sites but the first say
    /// how many.
    pub left_out: Vec<&'static str>,
    /// What else people should know, in sentences.
    pub remarks: Vec<String>,
}

/// What one site says before anything is sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteReport {
    /// The summary of its rows.
    pub summary: SiteSummary,
    /// How many values are missing in each column that is left out; the first site says nothing.
    pub missing: Vec<u64>,
}

/// What the server makes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgreedDesign {
    /// The layout of the design: what every site is told.
    pub moments: Moments,
    /// How the data were encoded, in sentences.
    pub notes: Vec<String>,
    /// What was exchanged.
    pub exchanged: MomentLedger,
}

impl Study {
    /// What the site at this place in the list says about its table.
    pub fn report(&self, site: usize, table: &Table) -> Result<SiteReport, EncodeError> {
        let count =
            |column: &&str| table.column(column).map_or(0, |(_, column)| column.missing() as u64);
        let missing =
            if site == 0 { Vec::new() } else { self.left_out.iter().map(count).collect() };
        Ok(SiteReport { summary: summarise(&self.sites[site], table, &self.plan)?, missing })
    }

    /// Merge the reports of all sites, in order.
    pub fn design(&self, reports: &[SiteReport]) -> Result<AgreedDesign, EncodeError> {
        for (at, (site, report)) in self.sites.iter().zip(reports).enumerate() {
            let refuse =
                |problem: String| Err(EncodeError::Summary { site: site.clone(), problem });
            if report.summary.site != *site {
                return refuse(format!("it calls itself `{}`", report.summary.site));
            }
            let expected = if at == 0 { 0 } else { self.left_out.len() };
            if report.missing.len() != expected
                || report.missing.iter().any(|count| *count > report.summary.rows)
            {
                return refuse(format!(
                    "it counts missing values as {:?}, where {expected} counts are due",
                    report.missing
                ));
            }
        }
        let summaries: Vec<SiteSummary> =
            reports.iter().map(|report| report.summary.clone()).collect();
        let moments = combine(&summaries, &self.plan, &[])?;
        let mut exchanged = MomentLedger::count(&summaries, &moments);
        let mut notes = moments.notes.clone();
        if !self.left_out.is_empty() {
            let elsewhere = &reports[1..];
            let rows: u64 = elsewhere.iter().map(|report| report.summary.rows).sum();
            let missing = |(k, column): (usize, &&str)| {
                let count: u64 = elsewhere.iter().map(|report| report.missing[k]).sum();
                format!("{column} (missing in {count} of {rows} rows)")
            };
            let left_out: Vec<String> = self.left_out.iter().enumerate().map(missing).collect();
            exchanged.up += 64 * (left_out.len() * elsewhere.len()) as u64;
            notes.push(format!(
                "Left out, for most of their values outside {} are missing: {}.",
                title(&self.sites[0]),
                left_out.join(", ")
            ));
        }
        notes.extend(self.remarks.iter().cloned());
        Ok(AgreedDesign { moments, notes, exchanged })
    }

    /// A site's rows, as the moments encode them.
    pub fn encode(
        &self,
        site: usize,
        table: &Table,
        moments: &Moments,
    ) -> Result<SiteData, EncodeError> {
        encode(&self.sites[site], table, &self.plan, moments)
    }

    /// All sites in this process.
    pub fn federation(&self, tables: &[Table]) -> Result<Federation, EncodeError> {
        let reports = tables
            .iter()
            .enumerate()
            .map(|(site, table)| self.report(site, table))
            .collect::<Result<Vec<_>, _>>()?;
        let design = self.design(&reports)?;
        let summaries: Vec<SiteSummary> =
            reports.iter().map(|report| report.summary.clone()).collect();
        let encoded = self
            .sites
            .iter()
            .zip(tables)
            .map(|(site, table)| encode(site, table, &self.plan, &design.moments));
        Ok(Federation {
            name: self.name.clone(),
            parameters: design.moments.columns.iter().map(|column| column.name.clone()).collect(),
            sites: encoded.collect::<Result<_, _>>()?,
            notes: design.notes,
            warnings: differences::of_sums(&summaries, &self.plan),
            exchanged_bits_up: design.exchanged.up,
            exchanged_bits_down: design.exchanged.down,
            moments: design.moments,
        })
    }
}

/// A name with a capital.
fn title(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
