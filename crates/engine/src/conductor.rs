//! Carry exchanges between the server and its clients, wherever these are.

use std::sync::Arc;

use consilience_core::model::ByGradients;
use consilience_core::model::Coordinates;
use consilience_core::protocol::{Event, Exchange, Jointly, Ledger, exchange};
use consilience_core::survey::Client;
use consilience_core::target::Target;
use thiserror::Error;

/// Why an exchange came to no end.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{0}")]
pub struct Lost(pub String);

/// Whoever carries messages. What a plan finds out does not depend on who it is.
pub trait Conductor {
    /// Carry a survey of the target to its end, and count what was sent.
    fn survey(
        &mut self,
        target: &Target,
        survey: &mut dyn Exchange,
        ledger: &mut Ledger,
    ) -> Result<(), Lost>;

    /// Tell every client the coordinates of all that follows, and its share of the prior there.
    fn move_to(&mut self, coordinates: &Coordinates, shares: &[f64]) -> Result<(), Lost>;
}

/// All clients are in this process.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Conductor for Here {
    fn survey(
        &mut self,
        target: &Target,
        survey: &mut dyn Exchange,
        ledger: &mut Ledger,
    ) -> Result<(), Lost> {
        let mut clients = Client::all(target);
        let Some(joint) = &target.joint else {
            while exchange(survey, &mut clients, ledger) == Event::Nothing {}
            return Ok(());
        };
        let mut carrier = Jointly::new(Arc::new(ByGradients(Arc::clone(joint))));
        while carrier
            .exchange(survey, &mut clients, ledger)
            .map_err(|error| Lost(error.to_string()))?
            == Event::Nothing
        {}
        Ok(())
    }

    fn move_to(&mut self, _coordinates: &Coordinates, _shares: &[f64]) -> Result<(), Lost> {
        Ok(()) // the target says it
    }
}
