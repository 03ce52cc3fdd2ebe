//! The in-process engine: configs, data, plans and runs around the pure core.

pub mod checkpoint;
pub mod conductor;
pub mod config;
pub mod data;
pub mod draws;
pub mod numbers;
pub mod plan;
pub mod pooled;
pub mod predict;
pub mod problem;
pub mod record;
pub mod run;
pub mod rundir;
pub mod site;
pub mod statistics;
pub mod store;
mod suggest;
pub mod trail;
pub mod world;
