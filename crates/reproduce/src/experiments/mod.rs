//! One file for each published table or figure.

pub mod bias_orders;
pub mod logreg;
pub mod memory;
pub mod toy_gaussian;
pub mod toy_stepsize;
