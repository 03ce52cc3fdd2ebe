//! Carry exchanges between the server and its clients, wherever these are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

    /// Whether all clients are in this process.
    fn is_here(&self) -> bool {
        false
    }
}

/// All clients are in this process.
#[derive(Clone, Copy, Debug)]
pub struct Here;

/// The same, until somebody asks to stop.
#[derive(Clone, Copy, Debug)]
pub struct HereUntil<'a>(pub &'a AtomicBool);

impl Conductor for HereUntil<'_> {
    fn survey(
        &mut self,
        target: &Target,
        survey: &mut dyn Exchange,
        ledger: &mut Ledger,
    ) -> Result<(), Lost> {
        carry(target, survey, ledger, || self.0.load(Ordering::Relaxed))
    }

    fn move_to(&mut self, _coordinates: &Coordinates, _shares: &[f64]) -> Result<(), Lost> {
        Ok(()) // the target says it
    }

    fn is_here(&self) -> bool {
        true
    }
}

/// Carry a survey here, unless somebody asks to stop.
fn carry(
    target: &Target,
    survey: &mut dyn Exchange,
    ledger: &mut Ledger,
    is_stopped: impl Fn() -> bool,
) -> Result<(), Lost> {
    let mut clients = Client::all(target);
    let mut joint = target.joint.as_ref().map(|joint| {
        let by_gradients = ByGradients(Arc::clone(joint));
        Jointly::new(Arc::new(by_gradients))
    });
    loop {
        let event = match &mut joint {
            None => exchange(survey, &mut clients, ledger),
            Some(carrier) => carrier
                .exchange(survey, &mut clients, ledger)
                .map_err(|error| Lost(error.to_string()))?,
        };
        if event != Event::Nothing {
            return Ok(());
        }
        if is_stopped() {
            return Err(Lost("somebody asked to stop".into()));
        }
    }
}

impl Conductor for Here {
    fn survey(
        &mut self,
        target: &Target,
        survey: &mut dyn Exchange,
        ledger: &mut Ledger,
    ) -> Result<(), Lost> {
        carry(target, survey, ledger, || false)
    }

    fn move_to(&mut self, _coordinates: &Coordinates, _shares: &[f64]) -> Result<(), Lost> {
        Ok(()) // the target says it
    }

    fn is_here(&self) -> bool {
        true
    }
}
