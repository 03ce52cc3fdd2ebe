//! Let sites bring a model of their own: what each says of it, and whether all bring the same.

use std::sync::Arc;

use consilience_core::model::Model;
use serde::{Deserialize, Serialize};

use super::{Agreed, Agreement, Introduction, MOST_ROWS};
use crate::config::{Config, ConfigError, External, Start};

/// A model that a site brings, where the config leaves it to the sites.
#[derive(Clone, Debug)]
pub struct OwnModel {
    /// What it is called, if it has a name.
    pub name: Option<String>,
    /// The parameters' names.
    pub parameters: Vec<String>,
    /// Where chains start, if it knows.
    pub start: Option<Vec<f64>>,
    /// The model of this site's rows alone.
    pub model: Arc<dyn Model>,
}

impl OwnModel {
    /// What the site says of it.
    pub(super) fn introduce(&self) -> Introduction {
        Introduction::Model(OwnModelFacts {
            name: self.name.clone(),
            parameters: self.parameters.clone(),
            rows: self.model.rows() as u64,
            values: self.model.offers().values,
            hessians: self.model.offers().hessians,
            start: self.start.clone(),
        })
    }

    /// Check that the server takes it for what it is.
    pub(super) fn check(&self, index: usize, agreement: &Agreement) -> Result<(), String> {
        let Some(common) = &agreement.models else {
            return Err("the server does not know that sites bring their model".into());
        };
        let told = |what: &str, told: String, own: String| {
            Err(format!("the server takes the model's {what} for {told}, and it is {own}"))
        };
        let rows = self.model.rows() as u64;
        let of_us = common.rows.get(index).copied().unwrap_or(0);
        if of_us != rows {
            return told("rows here", of_us.to_string(), rows.to_string());
        }
        if common.name != self.name {
            return told("name", called(&common.name), called(&self.name));
        }
        if agreement.parameters != self.parameters {
            let (theirs, ours) = (agreement.parameters.join(", "), self.parameters.join(", "));
            return told("parameters", theirs, ours);
        }
        if self.model.dim() != self.parameters.len() {
            return told(
                "dimension",
                self.parameters.len().to_string(),
                self.model.dim().to_string(),
            );
        }
        Ok(())
    }
}

/// What a site says of the model that it brings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnModelFacts {
    /// What it is called, if it has a name.
    pub name: Option<String>,
    /// The parameters' names.
    pub parameters: Vec<String>,
    /// How many rows this site has.
    pub rows: u64,
    /// Whether it gives values of the potential.
    pub values: bool,
    /// Whether it gives Hessians.
    pub hessians: bool,
    /// Where chains start, if it knows.
    pub start: Option<Vec<f64>>,
}

/// What is common to the models that sites bring: all of them are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommonModel {
    /// What the model is called, if it has a name.
    pub name: Option<String>,
    /// How many rows each site has.
    pub rows: Vec<u64>,
    /// Whether all models give values and Hessians, as samplers that accept or reject need them.
    pub derivatives: bool,
    /// Where chains start, if the models know.
    pub start: Option<Vec<f64>>,
}

impl Agreement {
    /// The config with what it leaves to the models that sites bring.
    pub fn settle(&self, config: &Config) -> Config {
        let mut settled = config.clone();
        let start = self.models.as_ref().and_then(|models| models.start.clone());
        settled.run.start = settled.run.start.or(start.map(Start::Point));
        settled
    }
}

/// A name in quotation marks, or that there is none.
fn called(name: &Option<String>) -> String {
    name.as_ref().map_or("none".into(), |name| format!("\"{name}\""))
}

/// See that all sites bring the same model, and that it gives what the run needs.
pub(super) fn agree(
    config: &Config,
    external: &External,
    introductions: &[Introduction],
) -> Result<Agreed, ConfigError> {
    let mut first: Option<&OwnModelFacts> = None;
    let (mut rows, mut derivatives) = (Vec::new(), true);
    for ((name, place), said) in external.clients.iter().zip(introductions) {
        let complain = |problem: String, fix: &str| {
            Err(config.source.complain(place, format!("client \"{name}\": {problem}"), fix))
        };
        let Introduction::Model(said) = said else {
            return complain(
                "it brings rows, and no model".into(),
                "join from Python: consilience.network.join(invitation, model=...)",
            );
        };
        let (expected, whose) = match (&external.name, first) {
            (Some(_), _) => (&external.name, "the config's is"),
            (None, Some(first)) => (&first.name, "that of the first client is"),
            (None, None) => (&said.name, "it is"),
        };
        if said.name != *expected {
            let problem =
                format!("its model's name is {}, {whose} {}", called(&said.name), called(expected));
            return complain(
                problem,
                "give every site the same model, and its name: consilience.Model(..., name=...)",
            );
        }
        if !(1..=MOST_ROWS.min(u64::from(u32::MAX))).contains(&said.rows)
            || said.parameters.is_empty()
        {
            let problem =
                format!("it has {} rows and {} parameters", said.rows, said.parameters.len());
            return complain(problem, "leave it out, or give it rows");
        }
        if let Some(first) = first {
            if let Err((problem, fix)) =
                super::same_columns(&said.parameters, &first.parameters, "parameters")
            {
                return complain(problem, fix);
            }
            if config.run.start.is_none() && said.start != first.start {
                return complain(
                    "its model starts chains elsewhere than that of the first client".into(),
                    "state run.start in the config, or give every site the same model",
                );
            }
        }
        let wrong = said.start.as_ref().is_some_and(|start| {
            start.len() != said.parameters.len() || start.iter().any(|x| !x.is_finite())
        });
        if wrong {
            let problem = "where its model starts chains is no point of its parameters";
            return complain(problem.into(), "give one finite number for each parameter");
        }
        if config.lp == Some(true) && !said.values {
            return complain(
                "its model gives gradients and no values, and output.lp = true asks for them"
                    .into(),
                "remove output.lp",
            );
        }
        first = first.or(Some(said));
        rows.push(said.rows);
        derivatives &= said.values && said.hessians;
    }
    let (name, parameters, start) = first
        .map(|first| (first.name.clone(), first.parameters.clone(), first.start.clone()))
        .unwrap_or_default();
    let models = Some(CommonModel { name, rows: rows.clone(), derivatives, start });
    Ok(Agreed {
        agreement: Agreement { parameters, moments: None, models, secure: None },
        rows,
        notes: Vec::new(),
        warnings: Vec::new(),
        moments_bits: (0, 0),
        encoding: None,
    })
}
