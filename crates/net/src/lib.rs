//! Carry the protocol over gRPC: one bidirectional stream a client, TLS with certificates on both
//! sides, the same bytes as in one process.

pub mod certs;
pub mod chain;
pub mod frame;
pub mod http;
pub mod hub;
pub mod join;
pub mod log;
pub mod mailbox;
pub mod party;
pub mod serve;
pub mod service;
pub mod status;
pub mod talk;
pub mod ticket;
pub mod worker;
