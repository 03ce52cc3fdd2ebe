//! One file for each published table or figure.

pub mod toy_gaussian;
