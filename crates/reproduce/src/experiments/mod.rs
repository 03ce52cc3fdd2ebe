//! One file for each published table or figure.

pub mod fa_ld;
pub mod fald_hetero;
pub mod fald_k;
pub mod fald_mnist;
pub mod fald_partial;
pub mod toy_gaussian;
