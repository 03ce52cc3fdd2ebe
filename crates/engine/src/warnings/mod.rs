//! Say what a reader must know before relying on a run: which warning it is, by how much, and the
//! one thing to do.
//!
//! Warnings are values. They are made where something is noticed, kept with the run, and shown by
//! the command, the report and Python, which decide nothing.

pub mod draws;
mod weights;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

pub use draws::{LEAST_ESS, MOST_RHAT, clipped, of_draws, summaries};
pub(crate) use weights::{LOG_WEIGHT, WeightTail};
pub use weights::{MOST_KHAT, khat, longest_stay, weights_in_words};

/// How much a warning matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something was left out, or is elsewhere; the draws are what they should be.
    Info,
    /// The answer may be off, or less precise than was asked for.
    Warning,
    /// The draws are not to be relied on.
    Error,
}

impl Severity {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

macro_rules! codes {
    ($($variant:ident = $name:literal, $severity:ident, $says:literal;)*) => {
        /// Which warning it is. Programs may rely on the words: one that is in use keeps its
        /// meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $says] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the book.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// Its word.
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// How much it matters.
            pub fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity,)* }
            }

            /// When it is given, in one sentence.
            pub fn says(self) -> &'static str {
                match self { $(Code::$variant => $says,)* }
            }
        }
    };
}

codes! {
    ChainsDisagree = "chains-disagree", Error,
        "R-hat is above 1.01: the chains have not found the same law.";
    FewEffectiveDraws = "few-effective-draws", Warning,
        "There are fewer effective draws than are needed, or than were asked for.";
    RhatUnknown = "rhat-unknown", Warning,
        "The draws of a parameter hardly vary, so that it has no R-hat.";
    OneChain = "one-chain", Warning,
        "One chain cannot show whether chains agree.";
    TooFewDraws = "too-few-draws", Warning,
        "There are too few draws for a summary.";
    NotFinite = "draws-not-finite", Error,
        "Some draws are infinite or no numbers.";
    NoDraws = "no-draws", Error,
        "There are no draws to be summarised.";
    PrivacySimulated = "privacy-simulated", Warning,
        "The clients' private noise comes from the config's seed, so that nothing is private.";
    NoisyRelease = "noisy-release", Warning,
        "The noise of what sites released is more than half of what their rows say, somewhere.";
    DrawsOnDisk = "draws-on-disk", Info,
        "The draws are too many to be held, and are in a file alone.";
    Interrupted = "interrupted", Warning,
        "The run was stopped before its end.";
    ReferenceDisagrees = "reference-disagrees", Error,
        "The draws and the same posterior from pooled rows differ.";
    HeavyWeights = "heavy-weights", Error,
        "The weights of an independence chain's proposals have a heavy tail.";
    HeavyWeightsKept = "heavy-weights-kept", Info,
        "The weights have a heavy tail; what the chains may have missed is too little to matter.";
    PilotTooHopeful = "pilot-too-hopeful", Error,
        "An independence chain's tails have less than half the effective draws that were foretold.";
    ProposalUnfit = "proposal-unfit", Error,
        "The proposals of an exact sampler do not suit the posterior.";
    SamplerReplaced = "sampler-replaced", Info,
        "The sampler that was chosen first gave draws that could not be relied on.";
    RunLengthened = "run-lengthened", Info,
        "Chains had to be longer than was planned, for their pilot had foretold too much.";
    NoExactSampler = "no-exact-sampler", Warning,
        "No exact sampler can be used for this target, and another one is.";
    StepUnstable = "step-unstable", Error,
        "The step is beyond 2/L, and the chain will diverge.";
    BiasForecast = "bias-forecast", Warning,
        "The sampler is forecast to be biased at this step, by more than is usual.";
    BiasByDesign = "bias-by-design", Warning,
        "The sampler is biased by its design, by an amount that is not known beforehand.";
    BiasMeasured = "bias-measured", Warning,
        "The draws are biased by more than 0.1 posterior standard deviations, or 10%, as measured.";
    BiasLeftOut = "bias-left-out", Info,
        "The bias was to be measured by half the step, and could not be.";
    SamplerCaution = "sampler-caution", Warning,
        "The sampler's settings are as published, and known to be off.";
    LargeLearningRate = "large-learning-rate", Warning,
        "The step of a net times the number of rows is above 2.";
    NoGpu = "no-gpu", Info,
        "A GPU was to be used if there is one, and the cores are.";
    LengthGuessed = "length-guessed", Warning,
        "Nothing says how long the chains should be.";
    LengthCapped = "length-capped", Warning,
        "The effective draws that were asked for would take too many iterations.";
    OptimumNotReached = "optimum-not-reached", Warning,
        "The survey did not reach the optimum.";
    ImproperPosterior = "improper-posterior", Error,
        "The prior is flat, and in some direction the rows put no bound on the parameters.";
    UnitsDiffer = "units-differ", Warning,
        "A column is many times as large at one site as at others, as in another unit.";
    SitesAlike = "sites-alike", Warning,
        "Two sites say the same sums of every column, as of the same rows.";
    MissingCode = "missing-code", Warning,
        "A number of a column may stand for a value that is missing.";
    PriorDisagrees = "prior-disagrees", Warning,
        "A parameter lies more than three prior standard deviations from its prior's centre.";
    PriorOfRawColumns = "prior-of-raw-columns", Warning,
        "Usual priors are for standardised columns, and these enter as they are.";
    CollinearColumns = "collinear-columns", Warning,
        "Some columns determine others, and the prior alone tells them apart.";
    NotPreconditioned = "not-preconditioned", Warning,
        "The Hessian at the optimum is not positive definite.";
    SiteIrregular = "site-irregular", Warning,
        "A site takes part more or less often than was stated.";
    SiteDominates = "site-dominates", Warning,
        "A site's answers dominate those of the others, or drifted away from what they were.";
    AnswersClipped = "answers-clipped", Warning,
        "Gradients of sites were shortened to sampler.clip, and the draws are biased.";
    RoundingHeats = "rounding-heats", Warning,
        "Rounding made a private chain hotter than it should be.";
    SiteAway = "site-away", Info,
        "A site was away at the end, and its gradients are not counted.";
    CheckpointDamaged = "checkpoint-damaged", Info,
        "A snapshot was damaged, and a chain was sampled again from an earlier one.";
    LpLeftOut = "lp-left-out", Info,
        "The log-density of the draws was not computed.";
    CalibrationLeftOut = "calibration-left-out", Info,
        "Calibration was not computed.";
    ModelMisfit = "model-misfit", Warning,
        "Responses that the model would draw do not look like those that it was fitted to.";
    CheckLeftOut = "check-left-out", Info,
        "Responses that the model would draw were not held against those that there are.";
    InfluenceLeftOut = "influence-left-out", Info,
        "The influence of sites was not computed.";
    Other = "other", Warning,
        "A run that an older version kept has it without a code.";
}

/// One warning.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    /// Which it is.
    pub code: Code,
    /// What is wrong, and by how much.
    pub message: String,
    /// What to do about it; empty where nothing need be done.
    pub remedy: String,
    /// The numbers of the message, in full.
    pub numbers: BTreeMap<String, f64>,
}

impl Warning {
    /// A warning without numbers, and without a remedy.
    pub fn new(code: Code, message: impl Into<String>) -> Warning {
        let message = message.into();
        Warning { code, message, remedy: String::new(), numbers: BTreeMap::new() }
    }

    /// The same with what to do about it.
    pub fn remedy(self, remedy: impl Into<String>) -> Warning {
        Warning { remedy: remedy.into(), ..self }
    }

    /// The same with one of its numbers, if that is finite.
    pub fn number(mut self, name: &str, value: f64) -> Warning {
        if value.is_finite() {
            self.numbers.insert(name.into(), value);
        }
        self
    }

    /// For programs.
    pub fn value(&self) -> Value {
        json!({
            "code": self.code.name(),
            "severity": self.code.severity().name(),
            "message": self.message,
            "remedy": self.remedy,
            "numbers": self.numbers,
        })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remedy.is_empty() {
            true => f.write_str(&self.message),
            false => write!(f, "{}. {}", self.message, self.remedy),
        }
    }
}

impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(to)
    }
}

/// As it is kept: older versions kept the text alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Text(String),
    Whole {
        code: String,
        message: String,
        remedy: String,
        #[serde(default)]
        numbers: BTreeMap<String, f64>,
    },
}

impl<'de> Deserialize<'de> for Warning {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Kept::deserialize(from)? {
            Kept::Text(text) => Warning::new(Code::Other, text),
            Kept::Whole { code, message, remedy, numbers } => {
                let known = Code::ALL.iter().copied().find(|known| known.name() == code);
                Warning { code: known.unwrap_or(Code::Other), message, remedy, numbers }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_words_of_small_letters() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        let plain = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        assert!(names.iter().all(plain));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[test]
    fn what_is_kept_is_read_again_and_texts_of_older_versions_too() {
        let made = Warning::new(Code::OneChain, "one chain")
            .remedy("Run four")
            .number("chains", 1.0)
            .number("nothing", f64::NAN);
        assert_eq!(made.to_string(), "one chain. Run four");
        let text = serde_json::to_string(&made).unwrap();
        assert!(text.contains("\"severity\":\"warning\"") && !text.contains("nothing"));
        assert_eq!(serde_json::from_str::<Warning>(&text).unwrap(), made);
        let old: Warning = serde_json::from_str("\"beware\"").unwrap();
        assert_eq!((old.code, old.to_string()), (Code::Other, "beware".into()));
        let newer = text.replace("one-chain", "of-a-newer-version");
        assert_eq!(serde_json::from_str::<Warning>(&newer).unwrap().code, Code::Other);
    }
}
