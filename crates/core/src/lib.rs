//! Consilience's mathematics and protocol: pure functions and state machines, with no IO, clock, threads, globals or unkeyed randomness.
//!
//! Sites that may not pool their data draw samples from the one posterior they would get if they did. See `ARCHITECTURE.md` for the
//! map and `NOTATION.md` for how the papers' letters became names.

pub mod compress;
pub mod lanes;
pub mod rng;
