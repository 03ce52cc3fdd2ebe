//! Consilience: sites that may not pool their data draw samples from the one posterior they would
//! get if they did.
//!
//! The library in one place: [`core`] is the mathematics and the protocol, [`engine`] runs them in
//! one process. The command of the same name is a face of both, and a function here, so that the
//! Python package has it too.
//!
//! ```
//! use consilience::engine::config::{Config, Source};
//! use consilience::engine::session::{Control, Session};
//!
//! let text = r#"
//!     seed = 3
//!     [target]
//!     model = "gaussian"
//!     [[client]]
//!     mean = [0.0, 1.0]
//!     precision = [[2.0, 0.0], [0.0, 1.0]]
//!     [[client]]
//!     mean = [3.0, 1.0]
//!     precision = [[1.0, 0.0], [0.0, 1.0]]
//!     [sampler]
//!     name = "lmc"
//!     step = 0.1
//!     [run]
//!     iterations = 4000
//! "#;
//! let config = Config::parse(Source {
//!     file: "example".into(),
//!     folder: ".".into(),
//!     text: text.into(),
//! })?;
//! let run = Session::new(config)?.plan()?.run(&Default::default(), Control::default())?;
//! let mean = run.record.draws.mean();
//! // The pooled posterior mean is (1, 1).
//! assert!((mean[0] - 1.0).abs() < 0.1 && (mean[1] - 1.0).abs() < 0.1);
//! for warning in &run.record.warnings {
//!     eprintln!("{}: {warning}", warning.code.name());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "cli")]
mod args;
#[cfg(feature = "cli")]
mod check;
#[cfg(feature = "cli")]
mod clock;
#[cfg(feature = "cli")]
mod command;
mod compare;
#[cfg(feature = "cli")]
mod data;
#[cfg(feature = "cli")]
mod effects;
#[cfg(feature = "cli")]
mod exact;
#[cfg(feature = "cli")]
mod layers;
#[cfg(feature = "cli")]
mod listing;
#[cfg(feature = "cli")]
mod loo;
#[cfg(feature = "cli")]
mod network;
#[cfg(feature = "cli")]
mod output;
#[cfg(feature = "cli")]
mod pace;
#[cfg(feature = "cli")]
mod page;
#[cfg(feature = "cli")]
mod picture;
#[cfg(feature = "cli")]
mod plan;
#[cfg(feature = "cli")]
mod predict;
#[cfg(feature = "cli")]
mod privacy;
#[cfg(feature = "cli")]
mod progress;
#[cfg(feature = "cli")]
mod ratios;
#[cfg(feature = "cli")]
mod report;
#[cfg(feature = "cli")]
mod reproduce;
#[cfg(feature = "cli")]
mod run;
#[cfg(feature = "cli")]
mod summary;
#[cfg(feature = "cli")]
mod truth;

#[cfg(feature = "cli")]
pub use command::command;
pub use consilience_core as core;
pub use consilience_engine as engine;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/rust.md")]
struct FromRust;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/adding-a-sampler.md")]
struct AddingASampler;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/adding-a-model.md")]
struct AddingAModel;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/adding-a-compressor.md")]
struct AddingACompressor;
