//! Carry the protocol over gRPC.
