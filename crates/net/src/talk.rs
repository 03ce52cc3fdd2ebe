//! Define what server and site send each other besides the protocol's messages.

use std::fmt;
use std::sync::Arc;

use consilience_engine::data::ColumnSpec;
use consilience_engine::data::knots::KnotsAsk;
use consilience_engine::plan::Decision;
use consilience_engine::site::{Agreement, Introduction, SumKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::audit::Signature;

/// The version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The versions of the protocol that this program speaks: these words, their order, and the
/// messages of the core. A change that the other side would not understand, or would take for
/// something else, is a new version. The first had no number.
pub const PROTOCOL: Versions = Versions { least: 6, most: 6 };

/// Versions of the protocol, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest.
    pub least: u32,
    /// The newest.
    pub most: u32,
}

impl Versions {
    /// The newest that both speak.
    pub fn common(self, other: Versions) -> Option<u32> {
        let most = self.most.min(other.most);
        (most >= self.least.max(other.least)).then_some(most)
    }

    /// Those of a party that names none.
    fn unnamed() -> Versions {
        Versions { least: 1, most: 1 }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(f, "{}", self.least)
        } else {
            write!(f, "{} to {}", self.least, self.most)
        }
    }
}

/// What is said where a server and a site have no version of the protocol in common.
pub fn strangers(server: Versions, site: Versions) -> String {
    let behind = if site.most < server.least { "site" } else { "server" };
    format!(
        "this server speaks protocol {server}, this site {site}: update the {behind}'s consilience"
    )
}

/// What the server asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Instruction {
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
    /// Say these counts and sums of your columns. Where the formula has splines.
    Knots(KnotsAsk),
    /// Say the key by which you hide your answers in a sum. Where the config says so.
    SumKey,
    /// This is how columns are coded, and all that is agreed on; say what you take that to be.
    Agree {
        /// How columns are coded.
        agreement: Agreement,
        /// All that is agreed on, in words.
        statement: String,
    },
    /// Say how large the gradient and the loss of one of your rows can be. Only where the model
    /// has a bound, and no budget of privacy says it.
    RowReach,
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
    /// These are draws of what all sites share: draw the effects of your own groups given each, and
    /// keep them. Nothing is told of them. Only where the model has groups.
    Draws {
        /// Which draw of the run the first of these is.
        first: u64,
        /// How many there are in all.
        of: u64,
        /// How many a chain has.
        length: u64,
        /// The draws on their natural scale, row by row.
        draws: Vec<f64>,
    },
    /// The chains have ended; say what they cost.
    Finish,
    /// It is over.
    Bye {
        /// Whether the run came to its end.
        finished: bool,
        /// How it ended, and where the draws are.
        #[serde(default)]
        farewell: Farewell,
    },
    /// You are refused, and this is why. No answer is awaited.
    Refused(String),
}

/// How a run came to be over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// It came to its end.
    Finished,
    /// Its operator ended it early: there are draws, fewer than were planned.
    Ended,
    /// It cannot go on: there are no draws.
    #[default]
    Aborted,
}

/// The last words of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// How the run ended.
    pub how: How,
    /// Where the draws are, or why there are none.
    pub says: String,
}

impl Farewell {
    /// The question that carries it.
    pub fn ask(&self) -> Instruction {
        Instruction::Bye { finished: self.how == How::Finished, farewell: self.clone() }
    }
}

/// The version of a server that names none.
fn first() -> u32 {
    Versions::unnamed().most
}

/// What a site is told when it comes in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the server's program.
    pub version: String,
    /// Which version of the protocol is spoken: the newest that both know.
    #[serde(default = "first")]
    pub protocol: u32,
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
        /// Which versions of the protocol it speaks.
        #[serde(default = "Versions::unnamed")]
        protocol: Versions,
    },
    /// What I am.
    Introduction(Introduction),
    /// The key by which I hide my answers in a sum.
    SumKey(SumKey),
    /// What I take all that is agreed on to be.
    Stated(Text),
    /// The same, signed by my certificate.
    Signed {
        /// What I take all that is agreed on to be.
        statement: Text,
        /// My signature.
        signature: Signature,
    },
    /// How large the gradient of one of my rows can be at any parameters, and its loss where they
    /// are 0, both rounded up to powers of two; none where there is no bound.
    RowReach(Option<(f64, f64)>),
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

/// A text that all sites say alike: it names them all, so a server with many keeps it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(Arc<str>);

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text.into())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        String::deserialize(deserializer).map(Text::from)
    }
}

impl Tell {
    fn text(&self) -> Option<&Text> {
        match self {
            Tell::Stated(statement) | Tell::Signed { statement, .. } => Some(statement),
            _ => None,
        }
    }

    /// What it takes all that is agreed on to be.
    pub(crate) fn stated(&self) -> Option<&str> {
        self.text().map(|text| &*text.0)
    }

    /// The same words, which share their text with another's if it is alike.
    pub(crate) fn sharing(mut self, other: &Tell) -> Tell {
        if let (Tell::Stated(own) | Tell::Signed { statement: own, .. }, Some(text)) =
            (&mut self, other.text())
            && own == text
        {
            *own = text.clone();
        }
        self
    }

    /// Whether it says the same as before. No two signatures of one text are alike.
    pub(crate) fn agrees(&self, before: &Tell) -> bool {
        match (self, before) {
            (Tell::Finished(_), Tell::Finished(_)) => true,
            (Tell::Signed { statement, .. }, Tell::Signed { statement: other, .. }) => {
                statement == other
            }
            _ => self == before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_alike_are_kept_once_and_travel_as_they_are() {
        let stated = |text: &str| Tell::Stated(text.into());
        let (first, second) = (stated("prior: flat"), stated("prior: flat"));
        let shared = second.clone().sharing(&first);
        assert_eq!(shared, second);
        assert!(Arc::ptr_eq(&shared.text().unwrap().0, &first.text().unwrap().0));
        assert_eq!(stated("prior: none").sharing(&first), stated("prior: none"));
        assert_eq!(serde_json::to_string(&first).unwrap(), r#"{"Stated":"prior: flat"}"#);
    }

    fn of(least: u32, most: u32) -> Versions {
        Versions { least, most }
    }

    #[test]
    fn the_newest_common_version_is_taken() {
        for (ours, theirs, common) in [
            (of(1, 4), of(2, 3), Some(3)),
            (of(2, 3), of(3, 9), Some(3)),
            (of(2, 2), of(2, 2), Some(2)),
            (of(3, 4), of(1, 2), None),
            (of(1, 2), of(3, 4), None),
            (of(1, 5), of(4, 3), None), // no versions at all
        ] {
            assert_eq!((ours.common(theirs), theirs.common(ours)), (common, common));
        }
    }

    #[test]
    fn strangers_are_told_who_must_be_updated() {
        assert_eq!(
            strangers(of(3, 4), of(1, 2)),
            "this server speaks protocol 3 to 4, this site 1 to 2: update the site's consilience"
        );
        assert_eq!(
            strangers(of(2, 2), of(3, 3)),
            "this server speaks protocol 2, this site 3: update the server's consilience"
        );
    }

    #[test]
    fn a_party_that_names_no_version_speaks_the_first() {
        let hello = r#"{"Hello": {"version": "0.1.0", "site": "east"}}"#;
        let Ok(Tell::Hello { protocol, .. }) = serde_json::from_str(hello) else { panic!() };
        assert_eq!(protocol, of(1, 1));
    }
}
