//! One file for each published table or figure.

pub mod bias_orders;
pub mod elf_logreg;
pub mod fa_ld;
pub mod fald_complexity;
pub mod fald_gaussian;
pub mod fald_hetero;
pub mod fald_k;
pub mod fald_lowerbound;
pub mod fald_mnist;
pub mod fald_partial;
pub mod fald_privacy;
pub mod logreg;
pub mod memory;
pub mod nets;
mod pooled;
pub mod titanic;
pub mod toy_gaussian;
pub mod toy_stepsize;
