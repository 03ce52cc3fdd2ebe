//! The in-process engine: configs, data, plans and runs around the pure core.

pub mod calibration;
pub mod checkpoint;
mod collinear;
pub mod conductor;
pub mod config;
pub mod data;
pub mod draws;
pub mod exact;
pub mod growth;
pub mod held_out;
pub mod influence;
pub mod numbers;
pub mod plan;
pub mod pooled;
pub mod predict;
pub mod problem;
pub mod record;
pub mod reference;
pub mod run;
pub mod rundir;
pub mod site;
pub mod statistics;
pub mod store;
pub mod streamed;
pub mod suggest;
pub mod trail;
pub mod world;
