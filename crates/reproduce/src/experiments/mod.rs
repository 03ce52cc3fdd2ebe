//! One file for each published table or figure.

pub mod elf_logreg;
pub mod toy_gaussian;
