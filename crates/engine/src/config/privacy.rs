//! Read what a site may tell of one row: the budget, and what bounds a row.

use consilience_core::privacy::Neighbour;

use super::reader::{ConfigError, Section};
use super::{FieldLocation, boolean, optional, place};

/// `[privacy]` as stated.
#[derive(Clone, Debug)]
pub struct PrivacyConfig {
    /// How much the answers of one site may tell of one of its rows.
    pub epsilon: f64,
    /// With which probability they may tell more.
    pub delta: f64,
    /// What makes two data sets neighbours.
    pub neighbour: Neighbour,
    /// Rows that are longer are shortened to this.
    pub row_norm: f64,
    /// The derivative of a row's loss is held within this, where the model has no bound of its own.
    pub slope: Option<f64>,
    /// Responses are clipped to within this, where they are released (dp-release, linear).
    pub response: Option<f64>,
    /// Whether draws are wanted where the noise of what is released prevails (dp-release).
    pub weak: bool,
    /// Whether nobody, the server included, sees more of the answers than their sum.
    pub secure_sum: bool,
    /// How many clients may tell each other what they know.
    pub colluding: usize,
    /// The share of the Langevin noise that is left to the server; `None`: what rounding needs.
    pub server_share: Option<f64>,
    /// Whether every row is in a minibatch by a coin of its own; else minibatches have one size.
    pub poisson: bool,
    /// Whether draws are wanted where rounding heats the chain.
    pub hot: bool,
    /// A curvature of the posterior that is expected, for what a budget buys.
    pub expect_curvature: Option<f64>,
    /// The most rows that all sites have together: by it a step may be left open.
    pub rows: Option<u64>,
    /// How many rows of a site may be one person's.
    pub rows_per_person: u64,
    /// Where the table stands.
    pub place: FieldLocation,
}

/// `[privacy]`, if there is one.
pub(super) fn read_privacy(top: &Section<'_>) -> Result<Option<PrivacyConfig>, ConfigError> {
    let Some(value) = top.get("privacy") else { return Ok(None) };
    let section = value.section()?;
    let epsilon = section
        .need("epsilon", "state how much may be told of one row, e.g. epsilon = 3.0")?
        .positive()?;
    let given = section.need(
        "delta",
        "state a delta below one over the rows of every site, e.g. \
                                       delta = 1e-6",
    )?;
    let delta = given.fraction(false)?;
    if !(1e-30..1.0).contains(&delta) {
        return Err(given.error(
            format!("{delta} is no delta"),
            "use a number between 1e-30 and one over the rows of every site",
        ));
    }
    let neighbours = [("replace", Neighbour::Replace), ("add-remove", Neighbour::AddRemove)];
    let neighbour = optional(section.get("neighbour"), |v| v.choice(&neighbours))?;
    let row_norm = section
        .need(
            "row_norm",
            "state the length to which rows are shortened, e.g. row_norm = 3.0: without it one row \
             can move an answer by anything",
        )?
        .positive()?;
    let slope = optional(section.get("slope"), |v| v.positive())?;
    let response = optional(section.get("response"), |v| v.positive())?;
    let weak = optional(section.get("weak"), boolean)?;
    let secure_sum = optional(section.get("secure_sum"), boolean)?;
    let colluding = optional(section.get("colluding"), |v| v.whole(0))?;
    let server_share = match section.get("server_share") {
        None => None,
        Some(v) => {
            let share = v.fraction(true)?;
            if share >= 1.0 {
                return Err(v.error("the clients would draw no noise", "use a share below 1"));
            }
            Some(share)
        }
    };
    if let Some(v) = section.get("noise") {
        // All noise is that of the Langevin step: more of it is a higher temperature.
        let extra = v.choice(&[("langevin", false), ("extra", true)])?;
        if extra {
            return Err(v.error(
                "noise beyond that of the Langevin step is a higher temperature T': the chain is \
                 that of target.temperature = T' with the noise of its steps at the sites",
                "remove it, and state the temperature that you mean",
            ));
        }
    }
    let samplings = [("fixed", false), ("poisson", true)];
    let poisson = optional(section.get("sampling"), |v| v.choice(&samplings))?;
    let hot = optional(section.get("hot"), boolean)?;
    let expect_curvature = optional(section.get("expect_curvature"), |v| v.positive())?;
    let rows = optional(section.get("rows"), |v| v.whole(1))?;
    let rows_per_person = optional(section.get("rows_per_person"), |v| v.whole(1))?.unwrap_or(1);
    let place = place(&section);
    section.finish()?;
    Ok(Some(PrivacyConfig {
        epsilon,
        delta,
        neighbour: neighbour.unwrap_or(Neighbour::Replace),
        row_norm,
        slope,
        response,
        weak: weak.unwrap_or(false),
        secure_sum: secure_sum.unwrap_or(false),
        colluding: colluding.unwrap_or(0) as usize,
        server_share,
        poisson: poisson.unwrap_or(false),
        hot: hot.unwrap_or(false),
        expect_curvature,
        rows,
        rows_per_person,
        place,
    }))
}
