//! Consilience's engine: what stands between the mathematics of `consilience-core` and a person's files.

pub mod data;
