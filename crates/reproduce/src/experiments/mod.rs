//! One file for each published table or figure.

pub mod elf_logreg;
pub mod fald_complexity;
pub mod fald_gaussian;
pub mod fald_lowerbound;
pub mod titanic;
pub mod bias_orders;
pub mod logreg;
pub mod memory;
pub mod toy_gaussian;
pub mod toy_stepsize;
