//! Say what server and site say to each other besides the protocol's messages.

use consilience_engine::data::ColumnSpec;
use consilience_engine::plan::Decision;
use consilience_engine::site::{Agreement, Introduction};
use serde::{Deserialize, Serialize};

/// The version of this talk and of the program: both sides must have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the server asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// Come in: this is the run. No answer is awaited.
    Welcome(Box<Welcome>),
    /// Say what you are.
    Introduce,
    /// This is what the columns of all sites are; say the codes and sums of yours. Where a formula
    /// codes them.
    Summarise {
        /// The columns.
        columns: Vec<ColumnSpec>,
    },
    /// This is how columns are coded, and all that is agreed on; say what you take that to be.
    Agree {
        /// How columns are coded.
        agreement: Agreement,
        /// All that is agreed on, in words.
        statement: String,
    },
    /// Move to these coordinates.
    MoveTo {
        /// Their centre.
        centre: Vec<f64>,
        /// Their map, row by row.
        matrix: Vec<f64>,
        /// Your share of the prior.
        share: f64,
    },
    /// Make ready for these chains; say what you take all that is agreed on to be.
    Decide {
        /// What the surveys decided.
        decision: Decision,
        /// All that is agreed on, in words, with what was decided.
        statement: String,
    },
    /// Say how many orders of this phase you have answered.
    Where {
        /// The phase.
        phase: u32,
        /// Whether it is a survey; else it is the chains.
        survey: bool,
    },
    /// Say what your potential is at these draws, one after another. Only where the config says so.
    Evaluate {
        /// The draws, row by row.
        draws: Vec<f64>,
    },
    /// The chains have ended; say what they cost.
    Finish,
    /// It is over.
    Bye {
        /// Whether the run came to its end.
        finished: bool,
    },
    /// You are refused, and this is why. No answer is awaited.
    Refused(String),
}

/// What a site is told when it comes in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the server's program.
    pub version: String,
    /// The name of the run: a new one for every run.
    pub run: String,
    /// A number for every start of the server: surveys do not outlive it.
    pub boot: u64,
    /// The config, without anybody else's rows.
    pub config: String,
    /// The site's place in the list of sites.
    pub index: usize,
    /// Whether clients draw their noise from the config's seed, as in a simulation.
    pub simulation: bool,
}

/// What a site answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Tell {
    /// Here I am.
    Hello {
        /// The version of the site's program.
        version: String,
        /// Its name.
        site: String,
    },
    /// What I am.
    Introduction(Introduction),
    /// What I take all that is agreed on to be.
    Stated(String),
    /// Done.
    Done,
    /// How many orders I answered, chain by chain.
    At(Vec<u64>),
    /// My potential at every draw.
    Potentials(Vec<f64>),
    /// How many row gradients the chains took.
    Finished(Vec<u64>),
    /// I do not take part, and this is why.
    Refused(String),
}
