//! Carry the protocol over gRPC: one bidirectional stream a client, TLS with certificates on both
//! sides, the same bytes as in one process.

pub mod admission;
pub mod alarm;
pub mod audit;
pub mod certs;
pub mod chain;
pub mod control;
pub mod folders;
pub mod frame;
pub mod http;
pub mod hub;
pub mod join;
pub mod letter;
pub mod log;
pub mod mailbox;
mod memory;
pub mod party;
pub mod revoked;
pub mod serve;
pub mod service;
pub mod status;
mod sum;
pub mod talk;
pub mod ticket;
pub mod worker;
