//! Turn the tables of sites that may not pool rows into one design.
//!
//! ```
//! use consilience_engine::data::{ColumnSpec, Federation, Schema, Table, formula};
//!
//! let schema = Schema::new(vec![
//!     ColumnSpec::number("age"),
//!     ColumnSpec::category("sex"),
//!     ColumnSpec::binary("ill"),
//! ]);
//! let plan = formula::parse("ill ~ age + sex + site", &schema)?;
//! let north = Table::parse("age,sex,ill\n41,f,0\n63,m,1\n57,m,0\n", "north.csv", &schema)?;
//! let south = Table::parse("age,sex,ill\n39,m,0\n70,f,1\n?,f,1\n", "south.csv", &schema)?;
//! let sites = [("north".into(), north), ("south".into(), south)];
//! let federation = Federation::new("two clinics", &sites, &plan)?;
//! let names = ["intercept", "age", "age: missing", "sex: m", "site: south"];
//! assert_eq!(federation.parameters, names);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod builtin;
pub mod catalogue;
mod dataset;
pub mod derived;
pub(crate) mod differences;
pub mod disclosed;
mod encode;
pub(crate) mod facts;
mod federation;
pub mod formats;
pub mod formula;
pub(crate) mod hazards;
pub mod knots;
pub mod memory;
mod moments;
pub mod partition;
mod plan;
mod schema;
pub mod spline;
pub mod stated;
mod study;
mod table;

pub use dataset::{Dataset, Features, Groups};
pub use encode::{EncodeError, encode};
pub(crate) use encode::{
    class_of, design, group_names, groups, known_levels, lookup, offset, response, weights, word,
};
pub use facts::ColumnFacts;
pub use federation::{Federation, SiteData};
pub use moments::{
    CellRule, DesignColumn, MomentLedger, Moments, ResponseMoments, SiteSummary, TermSummary,
    combine, summarise,
};
pub(crate) use moments::{lay_out, sums};
pub use plan::{
    BesideSlope, Coding, DesignPlan, GroupBy, GroupTerm, LackingTerms, Missing, Part, Product,
    ReferenceLevel, Response, Term, VaryingSlope,
};
pub use schema::{ColumnSpec, Kind, MISSING, Schema};
pub use study::{AgreedDesign, SiteReport, Study};
pub(crate) use table::utf8;
pub use table::{Category, Column, Table, TableError};
