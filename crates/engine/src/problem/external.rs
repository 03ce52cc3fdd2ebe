//! State the target of a model that a program brings: all clients are evaluated in one call.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::Model;
use consilience_core::model::Prior;
use consilience_core::protocol::Statement;
use consilience_core::target::{Placement, Target};

use super::{Problem, read_prior, refuse};
use crate::config::{Config, ConfigError, FieldLocation, ModelConfig};
use crate::statement::{of_external, of_target};

impl Problem {
    /// The problem of a model that is evaluated in one call for all clients. Family A applies the
    /// prior at the server, family B splits it over the clients.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use consilience_core::ask::{Ask, Sum};
    /// use consilience_core::model::{EvaluationError, Evaluator, Model, Offers, Prior};
    /// use consilience_engine::problem::Problem;
    ///
    /// /// One row a client, normal around the one parameter.
    /// #[derive(Clone, Debug)]
    /// struct Rows(Vec<f64>);
    ///
    /// impl Model for Rows {
    ///     fn dim(&self) -> usize {
    ///         1
    ///     }
    ///     fn clients(&self) -> usize {
    ///         self.0.len()
    ///     }
    ///     fn rows(&self) -> usize {
    ///         self.0.len()
    ///     }
    ///     fn rows_of(&self, _client: consilience_core::rng::ClientId) -> usize {
    ///         1
    ///     }
    ///     fn offers(&self) -> Offers {
    ///         Offers::default() // gradients alone
    ///     }
    ///     fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
    ///         Box::new((*self).clone())
    ///     }
    /// }
    ///
    /// impl Evaluator for Rows {
    ///     fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
    ///         for ask in asks {
    ///             let row = self.0[ask.client.index()];
    ///             ask.each_point(1, |ask| match ask.sum {
    ///                 Sum::Gradient { x } => ask.tell(&[x[0] - row]),
    ///                 Sum::Difference { x, z } => ask.tell(&[x[0] - z[0]]),
    ///                 _ => {} // never asked: it offers gradients alone
    ///             });
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let model = Arc::new(Rows(vec![1.0, 2.0, 6.0]));
    /// let sites = ["a", "b", "c"].map(String::from).to_vec();
    /// let problem = Problem::from_joint(model, vec!["mean".into()], sites, Prior::Flat, 1.0)?;
    /// assert_eq!(problem.target.clients.len(), 3);
    /// # Ok::<(), consilience_core::error::DataError>(())
    /// ```
    pub fn from_joint(
        joint: Arc<dyn Model>,
        parameters: Vec<String>,
        clients: Vec<String>,
        prior: Prior,
        temperature: f64,
    ) -> Result<Problem, DataError> {
        let statement = of_external(&parameters, &clients, &prior, temperature);
        let target = Target::of_joint(joint, prior, Placement::Server, temperature)?;
        name(target, parameters, clients, statement)
    }

    /// The same with the prior and the temperature of a config that says `model = "external"`.
    pub fn external(
        config: &Config,
        joint: Arc<dyn Model>,
        parameters: Vec<String>,
        clients: Vec<String>,
    ) -> Result<Problem, ConfigError> {
        if let ModelConfig::External(external) = &config.target.model
            && !external.clients.is_empty()
            && external.clients.iter().map(|(name, _)| name).ne(&clients)
        {
            let stated: Vec<&str> =
                external.clients.iter().map(|(name, _)| name.as_str()).collect();
            return Err(config.source.complain(
                &external.clients[0].1,
                format!(
                    "the clients are {}, those of the model {}",
                    stated.join(", "),
                    clients.join(", ")
                ),
                "give the model the same clients in the same order, or remove the [[client]] \
                 tables",
            ));
        }
        let (prior, placement) = read_prior(config, joint.clients(), &parameters, None)?;
        let statement = of_target(config, &parameters, &clients);
        Target::of_joint(joint, prior, placement, config.target.temperature)
            .and_then(|target| name(target, parameters, clients, statement))
            .map_err(|error| refuse(config, &error))
    }
}

fn name(
    target: Target,
    parameters: Vec<String>,
    clients: Vec<String>,
    statement: Statement,
) -> Result<Problem, DataError> {
    for (what, found, expected) in [
        ("the list of the parameters' names", parameters.len(), target.dim()),
        ("the list of the clients' names", clients.len(), target.clients.len()),
    ] {
        if found != expected {
            return Err(DataError::Dimension { what: what.into(), found, expected });
        }
    }
    Ok(Problem {
        origin: vec![0.0; target.dim()],
        target,
        parameters,
        clients,
        statement,
        notes: Vec::new(),
        warnings: Vec::new(),
        moments_bits: (0, 0),
        held_out: None,
        elsewhere: None,
        encoding: None,
    })
}

/// What is said where only a config is at hand.
pub(crate) fn missing(config: &Config, place: &FieldLocation) -> ConfigError {
    let problem = "the model is external: a program must bring it";
    config.source.complain(
        place,
        problem,
        "run the program that has the model, or join a served run with it from Python \
         (consilience.network.join(invitation, model=...)); or name a model that is built in",
    )
}
