//! Give a device room for what it makes and uses up within one order.

use super::message::Parcel;
use crate::rng::SharedNoise;

/// Vectors that a device writes on while it works on an order: room, not state. Devices that answer
/// one after the other need only one between them, which then stays in the nearest cache; and a
/// device that rests takes no more memory than what it must remember.
#[derive(Debug, Default)]
pub struct Desk {
    /// A gradient, or a drift.
    pub(crate) gradient: Vec<f64>,
    /// What is to be sent.
    pub(crate) outgoing: Vec<f64>,
    /// What is sent, compressed.
    pub(crate) parcel: Parcel,
    /// Noise that everybody has a share of.
    pub(crate) noise: Option<SharedNoise>,
}

impl Desk {
    /// The desk in this place, which is made if there is none, for vectors of so many coordinates.
    #[inline(always)]
    pub(crate) fn at(place: &mut Option<Box<Desk>>, dim: usize) -> &mut Desk {
        let desk = place.get_or_insert_default();
        if desk.gradient.len() != dim {
            desk.gradient.resize(dim, 0.0);
            desk.outgoing.resize(dim, 0.0);
        }
        desk
    }
}
