//! Consilience's mathematics and protocol: pure functions and state machines, with no IO, clock,
//! threads, globals or unkeyed randomness.
//!
//! Sites that may not pool their data draw samples from the one posterior they would get if they
//! did. See `ARCHITECTURE.md` for the map and `NOTATION.md` for how the papers' letters became
//! names.

pub mod ask;
pub mod compress;
pub mod error;
mod fourier;
pub mod linalg;
pub mod measure;
pub mod model;
pub mod privacy;
pub mod proposal;
pub mod protocol;
pub mod rng;
pub mod sampler;
pub mod simd;
pub mod snapshot;
pub mod step;
pub mod survey;
pub mod target;
pub mod threads;
pub mod walk;
