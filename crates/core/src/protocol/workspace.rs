//! Hold the scratch memory that a device needs within one order.

use super::message::Packed;
use crate::compress::Together;
use crate::walk::WalkRoom;

/// Vectors that a device writes on while it works on an order: room, not state. Devices that answer
/// one after the other need only one between them, which then stays in the nearest cache; and a
/// device that rests takes no more memory than what it must remember.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Where the client stands, if it need not remember that.
    pub(crate) position: Vec<f64>,
    /// A gradient, or a drift.
    pub(crate) gradient: Vec<f64>,
    /// What is to be sent.
    pub(crate) outgoing: Vec<f64>,
    /// What is sent, compressed.
    pub(crate) packed: Packed,
    /// Room for walks, with the noise that everybody has a share of.
    pub(crate) walks: WalkRoom,
    /// Vectors of all clients, where they are compressed together.
    pub(crate) together: Together,
    /// Scratch memory of the evaluator that is asked.
    pub(crate) scratch: Vec<f64>,
}

impl Workspace {
    /// The workspace in this place, which is made if there is none, for vectors of so many
    /// coordinates.
    #[inline(always)]
    pub(crate) fn at(place: &mut Option<Box<Workspace>>, dim: usize) -> &mut Workspace {
        let workspace = place.get_or_insert_default();
        if workspace.gradient.len() != dim {
            workspace.gradient.resize(dim, 0.0);
            workspace.outgoing.resize(dim, 0.0);
        }
        workspace
    }
}
