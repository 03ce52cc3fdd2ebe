//! Judge what a paper claims by our numbers and their error bars.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::experiment::Reading;
use crate::number::{Number, Numbers, width};

/// Whose sentence a claim is: only those of the papers count as their claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A sentence of the paper.
    #[default]
    Claim,
    /// Something written into a figure, which no sentence of the paper states.
    Annotation,
    /// A sentence of ours: what the paper does not measure, or leaves to be corrected.
    Ours,
    /// Whether our samplers do what we compute.
    SelfCheck,
}

impl Kind {
    /// All of them, the papers' own first.
    pub const ALL: [Kind; 4] = [Kind::Claim, Kind::Annotation, Kind::Ours, Kind::SelfCheck];

    /// Its name in the plural.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Claim => "claims of the papers",
            Kind::Annotation => "annotations of figures",
            Kind::Ours => "statements of ours",
            Kind::SelfCheck => "self-checks",
        }
    }

    /// Its name in configs, tables and programs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Claim => "claim",
            Kind::Annotation => "annotation",
            Kind::Ours => "ours",
            Kind::SelfCheck => "self-check",
        }
    }
}

/// A sentence that a paper states, with a test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// The experiment that tests it.
    pub experiment: String,
    /// The sentence.
    pub says: String,
    /// Where it stands.
    pub source: String,
    /// Whose sentence it is.
    #[serde(default)]
    pub kind: Kind,
    /// What came out, in one sentence for each verdict that was met, by the verdict's words.
    #[serde(default)]
    finds: BTreeMap<String, String>,
    /// The probability that an error bar misleads: of all tests of this claim together.
    pub alarm: f64,
    /// All of these must hold.
    #[serde(default)]
    tests: Vec<Test>,
    /// Why it cannot be tested, if so.
    untested: Option<String>,
    /// The reading under which it is judged, if only under that one.
    reading: Option<String>,
}

/// A comparison of numbers by name; `{x}` in a name stands for every value of `each.x` in turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    /// The first is smaller than the second,
    less: Option<[String; 2]>,
    /// times this.
    #[serde(default = "one")]
    times: f64,
    /// This lies between `low` and `high`.
    between: Option<String>,
    /// The first over the second lies between `low` and `high`.
    ratio: Option<[String; 2]>,
    #[serde(default = "nothing")]
    low: f64,
    #[serde(default = "anything")]
    high: f64,
    /// This exponent is at most that of an upper bound,
    order: Option<String>,
    /// which is this,
    #[serde(default = "one")]
    bound: f64,
    /// of something that goes to zero (the step), so that a larger exponent is a smaller quantity,
    #[serde(default)]
    vanishing: bool,
    /// and is sharp if the two differ by no more than this.
    #[serde(default)]
    tolerance: f64,
    /// The first agrees with the second, or with `to`, up to its error bars,
    agrees: Option<Vec<String>>,
    #[serde(default)]
    to: f64,
    /// which must be narrower than this (of the second; of 1 beside `to`), or nothing is shown,
    #[serde(default)]
    within: f64,
    /// and up to what the computed number leaves out (measured alike).
    #[serde(default)]
    slack: f64,
    #[serde(default)]
    each: BTreeMap<String, Vec<String>>,
}

fn one() -> f64 {
    1.0
}

fn nothing() -> f64 {
    f64::NEG_INFINITY
}

fn anything() -> f64 {
    f64::INFINITY
}

/// Whether a claim holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does, beyond the error bars.
    Holds,
    /// An upper bound, which holds; what it bounds is of a lower order.
    NotSharp(Vec<String>),
    /// Numbers without error bars are equal where one should be larger; the comparisons that are
    /// tied.
    Tie(Vec<String>),
    /// It does not, beyond the error bars; the comparisons that fail.
    Fails(Vec<String>),
    /// The error bars are too wide at this size; the comparisons that are open.
    Open(Vec<String>),
    /// It was not tested, and why.
    Untested(String),
}

impl Verdict {
    /// The words of all verdicts.
    pub const WORDS: [&str; 6] =
        ["holds", "bound holds (not sharp)", "tie", "does not hold", "open", "not tested"];

    /// The verdict in a word or four.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::NotSharp(_) => "bound holds (not sharp)",
            Verdict::Tie(_) => "tie",
            Verdict::Fails(_) => "does not hold",
            Verdict::Open(_) => "open",
            Verdict::Untested(_) => "not tested",
        }
    }

    /// Why, where it does not simply hold.
    pub fn why(&self) -> String {
        match self {
            Verdict::Holds => String::new(),
            Verdict::Fails(tests) | Verdict::Tie(tests) | Verdict::NotSharp(tests) => {
                tests.join("; ")
            }
            Verdict::Open(tests) => format!("undecided at this size: {}", tests.join("; ")),
            Verdict::Untested(why) => why.clone(),
        }
    }
}

/// A verdict under one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Which reading.
    pub reading: usize,
    /// Its name; empty for the one that we stand by.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
}

impl Judged {
    /// Not tested, and why.
    pub fn untested(why: String) -> Self {
        Judged { reading: 0, name: String::new(), verdict: Verdict::Untested(why) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    claim: Vec<Claim>,
}

/// Read the claims of a paper.
pub fn read(text: &str) -> Result<Vec<Claim>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    for claim in &file.claim {
        if claim.tests.is_empty() == claim.untested.is_none() {
            return Err(format!("claim `{}` must have tests, or say why it is untested", claim.id));
        }
        if !(claim.alarm > 0.0 && claim.alarm < 0.5) {
            return Err(format!(
                "claim `{}`: the alarm rate is {}: it must be between 0 and 0.5",
                claim.id, claim.alarm
            ));
        }
        // what is open depends on the size
        let told = |word: &str| Verdict::WORDS.contains(&word) && word != "open";
        if let Some(word) = claim.finds.keys().find(|word| !told(word)) {
            return Err(format!(
                "claim `{}`: `{word}` is no verdict that can be told in advance",
                claim.id
            ));
        }
        for test in &claim.tests {
            let agrees = test.agrees.is_some();
            let kinds = [
                test.less.is_some(),
                test.between.is_some(),
                test.ratio.is_some(),
                test.order.is_some(),
                agrees,
            ];
            if kinds.into_iter().filter(|is| *is).count() != 1 {
                return Err(format!(
                    "claim `{}`: a test is one of less, between, ratio, order, agrees",
                    claim.id
                ));
            }
            if test
                .agrees
                .as_ref()
                .is_some_and(|names| !matches!(names.len(), 1 | 2) || test.within <= 0.0)
            {
                return Err(format!(
                    "claim `{}`: agrees takes one name or two, and a positive `within`",
                    claim.id
                ));
            }
        }
    }
    Ok(file.claim)
}

impl Claim {
    /// Judge the claim by these numbers. The alarm rate is shared out evenly over all comparisons
    /// (Bonferroni).
    pub fn judge(&self, numbers: &Numbers) -> Verdict {
        if let Some(why) = &self.untested {
            return Verdict::Untested(why.clone());
        }
        let comparisons: Vec<Comparison> = self.tests.iter().flat_map(Test::comparisons).collect();
        let alarm = self.alarm / comparisons.len().max(1) as f64;
        let (mut fails, mut open, mut ties, mut blunt, mut missing) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), None);
        for comparison in &comparisons {
            match comparison.decide(numbers, alarm) {
                Ok(Decision::Yes) => {}
                Ok(Decision::No(what)) => fails.push(what),
                Ok(Decision::Unclear(what)) => open.push(what),
                Ok(Decision::Tie(what)) => ties.push(what),
                Ok(Decision::NotSharp(what)) => blunt.push(what),
                Err(name) => missing = missing.or(Some(name)),
            }
        }
        // One comparison that fails is enough; all others must be known.
        match missing {
            _ if !fails.is_empty() => Verdict::Fails(fails),
            Some(name) => Verdict::Untested(match numbers.why_absent(&name) {
                Some(why) => why.into(),
                None => format!("there is no number `{name}` under this reading"),
            }),
            None if !open.is_empty() => Verdict::Open(open),
            None if !ties.is_empty() => Verdict::Tie(ties),
            None if !blunt.is_empty() => Verdict::NotSharp(blunt),
            None => Verdict::Holds,
        }
    }

    /// What came out, in one sentence, if one is written for this verdict.
    pub fn finds(&self, verdict: &Verdict) -> Option<&str> {
        self.finds.get(verdict.word()).map(String::as_str)
    }

    /// Judge the claim under every reading that it speaks of: all that have its numbers, unless it
    /// names one. The first reading always gets a verdict.
    pub fn judge_all(&self, readings: &[Reading]) -> Vec<Judged> {
        let has = |reading: &Reading, name: &str| {
            reading.numbers.get(name).is_some() || reading.numbers.why_absent(name).is_some()
        };
        let concerned = |at: usize, reading: &Reading| match &self.reading {
            Some(name) => reading.name == *name,
            None => at == 0 || self.names().iter().all(|name| has(reading, name)),
        };
        let judged = readings.iter().enumerate().filter(|(at, reading)| concerned(*at, reading));
        let judged = judged.map(|(at, reading)| Judged {
            reading: at,
            name: reading.name.clone(),
            verdict: self.judge(&reading.numbers),
        });
        let all: Vec<Judged> = judged.collect();
        let why = || {
            format!(
                "it is judged under the reading `{}`, which is shown with --as-published",
                self.reading.as_deref().unwrap_or_default()
            )
        };
        if all.is_empty() { vec![Judged::untested(why())] } else { all }
    }

    /// How many comparisons all of its tests make.
    pub fn comparisons(&self) -> usize {
        self.tests.iter().map(|test| test.comparisons().len()).sum()
    }

    /// The names of the numbers that it needs.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.tests.iter().flat_map(Test::comparisons).flat_map(|c| c.names).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Numbers without error bars are equal if they differ by less than this part: by a hair decides
/// nothing.
const TIE: f64 = 1e-6;

/// One comparison: `low < form(names) < high`.
struct Comparison {
    form: Form,
    names: Vec<String>,
    low: f64,
    high: f64,
}

#[derive(Clone, Copy)]
enum Form {
    /// The number itself.
    Itself,
    /// `first - times * second`.
    Difference { times: f64 },
    /// `first / second`.
    Ratio,
    /// The number itself, an exponent, against that of an upper bound.
    Order { bound: f64, vanishing: bool, tolerance: f64 },
    /// `first - second`, or `first - to`, against the error bars.
    Agreement { to: f64, within: f64, slack: f64 },
}

enum Decision {
    Yes,
    /// The bound holds, and what it bounds is smaller.
    NotSharp(String),
    Tie(String),
    No(String),
    Unclear(String),
}

impl Test {
    fn comparisons(&self) -> Vec<Comparison> {
        let (low, high) = (self.low, self.high);
        let (form, names, low, high) = if let Some(pair) = &self.less {
            (Form::Difference { times: self.times }, pair.to_vec(), f64::NEG_INFINITY, 0.0)
        } else if let Some(name) = &self.between {
            (Form::Itself, vec![name.clone()], low, high)
        } else if let Some(pair) = &self.ratio {
            (Form::Ratio, pair.to_vec(), low, high)
        } else if let Some(name) = &self.order {
            let form = Form::Order {
                bound: self.bound,
                vanishing: self.vanishing,
                tolerance: self.tolerance,
            };
            (form, vec![name.clone()], low, high)
        } else if let Some(names) = &self.agrees {
            (
                Form::Agreement { to: self.to, within: self.within, slack: self.slack },
                names.clone(),
                low,
                high,
            )
        } else {
            return Vec::new();
        };
        let mut all = vec![names];
        for (key, values) in &self.each {
            let put = |names: &Vec<String>, value: &String| {
                names.iter().map(|n| n.replace(&format!("{{{key}}}"), value)).collect()
            };
            all = all
                .iter()
                .flat_map(|names| values.iter().map(move |value| put(names, value)))
                .collect();
        }
        all.into_iter().map(|names| Comparison { form, names, low, high }).collect()
    }
}

impl Comparison {
    fn decide(&self, numbers: &Numbers, alarm: f64) -> Result<Decision, String> {
        let known: Vec<&Number> = self
            .names
            .iter()
            .map(|name| numbers.get(name).ok_or_else(|| name.clone()))
            .collect::<Result<_, _>>()?;
        let (value, error) = match (self.form, &known[..]) {
            (Form::Difference { times }, [a, b]) => {
                (a.value - times * b.value, a.error.hypot(times * b.error))
            }
            (Form::Ratio, [a, b]) => {
                let ratio = a.value / b.value;
                (ratio, ratio.abs() * (a.error / a.value).hypot(b.error / b.value))
            }
            (Form::Agreement { .. }, [a, b]) => (a.value - b.value, a.error.hypot(b.error)),
            (Form::Agreement { to, .. }, rest) => (rest[0].value - to, rest[0].error),
            (_, rest) => (rest[0].value, rest[0].error),
        };
        let fewest = known.iter().map(|n| n.runs).filter(|runs| *runs > 0).min().unwrap_or(0);
        let bar = if error == 0.0 { 0.0 } else { width(fewest, alarm) * error };
        let what = self.words(&known, value, error);
        Ok(if value.is_nan() {
            Decision::No(what)
        } else if bar.is_nan() {
            Decision::Unclear(what)
        } else if let Form::Order { bound, vanishing, tolerance } = self.form {
            // How much faster what is bounded grows than its bound.
            let faster = if vanishing { bound - value } else { value - bound };
            match () {
                () if faster - bar > tolerance => Decision::No(what),
                () if faster + bar < -tolerance => Decision::NotSharp(what),
                () if faster + bar <= tolerance && faster - bar >= -tolerance => Decision::Yes,
                () => Decision::Unclear(what),
            }
        } else if let Form::Agreement { within, slack, .. } = self.form {
            let scale = if let [_, b] = known[..] { b.value.abs() } else { 1.0 };
            match () {
                // whatever it is, nobody would notice
                () if bar > within * scale => Decision::Unclear(what),
                () if error == 0.0 && value.abs() <= within * scale => Decision::Yes,
                () if value.abs() > bar + slack * scale => Decision::No(what),
                () => Decision::Yes,
            }
        } else if error == 0.0 && self.tied(&known, value) {
            Decision::Tie(self.tie_words(&known))
        } else if value - bar > self.low && value + bar < self.high {
            Decision::Yes
        } else if value + bar <= self.low || value - bar >= self.high {
            Decision::No(what)
        } else {
            Decision::Unclear(what)
        })
    }

    /// Whether numbers without error bars are equal where one should be larger, or lie on the limit
    /// itself.
    fn tied(&self, known: &[&Number], value: f64) -> bool {
        let equal = |a: f64, b: f64| (a - b).abs() <= TIE * a.abs().max(b.abs());
        let even = self.low < 1.0 && 1.0 < self.high;
        match (self.form, known) {
            (Form::Difference { times }, [a, b]) => {
                (times <= 1.0 && equal(a.value, b.value)) || equal(a.value, times * b.value)
            }
            (Form::Ratio, [a, b]) if !even && equal(a.value, b.value) => true,
            _ => [self.low, self.high]
                .into_iter()
                .any(|limit| limit.is_finite() && equal(value, limit)),
        }
    }

    fn tie_words(&self, known: &[&Number]) -> String {
        let list = list(known);
        match (self.form, known) {
            (Form::Difference { .. } | Form::Ratio, [a, b])
                if (a.value - b.value).abs() <= TIE * b.value.abs() =>
            {
                format!("{list}: equal, and without error")
            }
            _ => format!("{list}: on the limit itself, and without error"),
        }
    }

    fn words(&self, known: &[&Number], value: f64, error: f64) -> String {
        let list = list(known);
        match self.form {
            Form::Order { bound, vanishing: true, .. } => {
                format!("{list}: the bound's order is {bound} in what goes to zero")
            }
            Form::Order { bound, .. } => format!("{list}: the bound's order is {bound}"),
            Form::Agreement { to, within, .. } if known.len() == 1 => {
                format!("{list}: computed {to}, to be told within {within}")
            }
            Form::Agreement { within, .. } => {
                format!(
                    "{list}: the difference is {}, to be told within {within} of the second",
                    with_error(value, error)
                )
            }
            Form::Difference { times: 1.0 } => format!("{list}: the first is not smaller"),
            Form::Difference { times } => {
                format!("{list}: the first is not below {times} times the second")
            }
            Form::Itself => format!("{list}: not {}", self.range()),
            Form::Ratio => {
                format!("{list}: the ratio {} is not {}", with_error(value, error), self.range())
            }
        }
    }

    fn range(&self) -> String {
        match (self.low.is_finite(), self.high.is_finite()) {
            (true, true) => format!("between {} and {}", self.low, self.high),
            (true, false) => format!("above {}", self.low),
            _ => format!("below {}", self.high),
        }
    }
}

fn list(known: &[&Number]) -> String {
    known
        .iter()
        .map(|n| format!("{} = {}", n.name, with_error(n.value, n.error)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A number with its standard error, as text.
pub fn with_error(value: f64, error: f64) -> String {
    let digits = |x: f64, n: usize| {
        let size = x.abs();
        if x != 0.0 && x.is_finite() && !(1e-3..1e5).contains(&size) {
            format!("{x:.*e}", n - 1)
        } else {
            let places = if x == 0.0 || !x.is_finite() {
                0
            } else {
                (n as i32 - 1 - size.log10().floor() as i32).max(0) as usize
            };
            format!("{x:.places$}")
        }
    };
    if error == 0.0 {
        digits(value, 4)
    } else {
        format!("{} ± {}", digits(value, 3), digits(error, 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(tests: &str) -> Claim {
        let text = format!(
            "[[claim]]\nid = \"c\"\nexperiment = \"e\"\nsays = \"s\"\nsource = \"p\"\n\
             alarm = 1e-3\ntests = [{tests}]\n"
        );
        read(&text).unwrap().remove(0)
    }

    fn numbers(list: &[(&str, f64, f64, usize)]) -> Numbers {
        list.iter()
            .map(|(name, value, error, runs)| Number {
                name: (*name).into(),
                value: *value,
                error: *error,
                runs: *runs,
            })
            .collect()
    }

    #[test]
    fn error_bars_decide() {
        let claim = claim(r#"{ less = ["a", "b"] }"#);
        let judge = |a: f64, b: f64, error: f64| {
            claim.judge(&numbers(&[("a", a, error, 100), ("b", b, error, 100)]))
        };
        assert_eq!(judge(1.0, 2.0, 0.1), Verdict::Holds);
        assert!(matches!(judge(2.0, 1.0, 0.1), Verdict::Fails(_)));
        assert!(matches!(judge(1.0, 2.0, 0.4), Verdict::Open(_)));
        assert!(matches!(judge(1.0, f64::NAN, 0.4), Verdict::Fails(_)));
        assert_eq!(
            claim.judge(&numbers(&[("a", 1.0, 0.0, 0), ("b", 1.0 + 1e-4, 0.0, 0)])),
            Verdict::Holds
        ); // exact numbers have no bars
        assert!(matches!(claim.judge(&numbers(&[("a", 1.0, 0.0, 0)])), Verdict::Untested(_)));
        let one_run = numbers(&[("a", 1.0, f64::NAN, 1), ("b", 9.0, 0.1, 30)]);
        assert!(matches!(claim.judge(&one_run), Verdict::Open(_)), "one run decides nothing");
    }

    #[test]
    fn equal_numbers_without_error_are_tied() {
        let exact = |a: f64, b: f64| numbers(&[("a", a, 0.0, 0), ("b", b, 0.0, 0)]);
        let less = claim(r#"{ less = ["a", "b"] }"#);
        for (a, b) in [(734.0, 734.0), (1.0, 1.0 + 1e-9), (1.0 + 1e-9, 1.0), (0.0, 0.0)] {
            assert!(
                matches!(less.judge(&exact(a, b)), Verdict::Tie(why) if why[0].contains("equal")),
                "{a} {b}"
            );
        }
        assert!(matches!(less.judge(&exact(1.01, 1.0)), Verdict::Fails(_)));
        // All runs gave the same: no error bar either.
        assert!(matches!(
            less.judge(&numbers(&[("a", 100.0, 0.0, 12), ("b", 100.0, 0.0, 12)])),
            Verdict::Tie(_)
        ));
        // Equal is less than twice, and no less than half.
        assert_eq!(
            claim(r#"{ less = ["a", "b"], times = 2 }"#).judge(&exact(1.0, 1.0)),
            Verdict::Holds
        );
        assert!(matches!(
            claim(r#"{ less = ["a", "b"], times = 0.5 }"#).judge(&exact(1.0, 1.0)),
            Verdict::Tie(_)
        ));
        // With error bars the same numbers are undecided.
        assert!(matches!(
            less.judge(&numbers(&[("a", 1.0, 0.1, 12), ("b", 1.0, 0.1, 12)])),
            Verdict::Open(_)
        ));
        let larger = claim(r#"{ ratio = ["a", "b"], low = 1.1 }"#);
        assert!(matches!(larger.judge(&exact(2.0, 2.0)), Verdict::Tie(_)));
        assert!(
            matches!(larger.judge(&exact(1.1, 1.0)), Verdict::Tie(why) if why[0].contains("limit"))
        );
        assert!(matches!(larger.judge(&exact(2.1, 2.0)), Verdict::Fails(_)));
        // Where equal is what the claim says, equal holds.
        assert_eq!(
            claim(r#"{ ratio = ["a", "b"], low = 0.5, high = 2 }"#).judge(&exact(2.0, 2.0)),
            Verdict::Holds
        );
        // A comparison that fails outweighs one that is tied.
        let both = claim(r#"{ less = ["a", "b"] }, { less = ["c", "b"] }"#);
        let mut known = exact(1.0, 1.0);
        known.push(Number::exact("c", 2.0));
        assert!(matches!(both.judge(&known), Verdict::Fails(why) if why.len() == 1));
    }

    #[test]
    fn an_order_below_that_of_a_bound_does_not_refute_it() {
        let judge = |test: &str, value: f64, error: f64| {
            claim(test).judge(&numbers(&[("e", value, error, 20)]))
        };
        let grows = r#"{ order = "e", bound = 1, tolerance = 0.1 }"#;
        assert_eq!(judge(grows, 1.05, 0.0), Verdict::Holds);
        assert!(matches!(judge(grows, 0.3, 0.0), Verdict::NotSharp(_)));
        assert!(matches!(judge(grows, 1.3, 0.0), Verdict::Fails(_)));
        assert!(matches!(judge(grows, 0.9, 0.05), Verdict::Open(_)));
        let vanishes = r#"{ order = "e", bound = 1, vanishing = true, tolerance = 0.1 }"#;
        assert!(matches!(judge(vanishes, 2.0, 0.0), Verdict::NotSharp(_)));
        assert!(matches!(judge(vanishes, 0.5, 0.0), Verdict::Fails(_)));
        assert_eq!(judge(vanishes, 0.95, 0.0), Verdict::Holds);
        // One order that is lower makes a claim not sharp; one that is higher refutes it.
        let two =
            claim(r#"{ order = "{x}", bound = 1, tolerance = 0.1, each = { x = ["a", "b"] } }"#);
        assert!(matches!(two.judge(&numbers(&[("a", 1.0, 0.0, 0), ("b", 0.2, 0.0, 0)])),
                Verdict::NotSharp(why) if why.len() == 1));
        assert!(matches!(
            two.judge(&numbers(&[("a", 1.5, 0.0, 0), ("b", 0.2, 0.0, 0)])),
            Verdict::Fails(_)
        ));
    }

    #[test]
    fn agreement_can_fail_and_can_have_no_power() {
        let judge = |test: &str, value: f64, error: f64| {
            claim(test).judge(&numbers(&[("a", value, error, 100), ("b", 2.0, 0.0, 0)]))
        };
        // 0.1 at 2; 3.4 standard errors at the alarm rate of 1e-3
        let pair = r#"{ agrees = ["a", "b"], within = 0.05 }"#;
        assert_eq!(judge(pair, 2.02, 0.01), Verdict::Holds);
        assert!(
            matches!(judge(pair, 2.05, 0.01), Verdict::Fails(_)),
            "five standard errors off, though within 5 %"
        );
        assert!(
            matches!(judge(pair, 2.0, 0.1), Verdict::Open(_)),
            "an error bar that hides a difference of 5 % shows nothing"
        );
        assert!(matches!(judge(pair, f64::NAN, 0.01), Verdict::Fails(_)));
        assert_eq!(
            judge(r#"{ agrees = ["a", "b"], within = 0.05, slack = 0.02 }"#, 2.05, 0.01),
            Verdict::Holds
        );
        let one = r#"{ agrees = ["a"], to = 1, within = 0.1 }"#;
        assert_eq!(judge(one, 1.02, 0.01), Verdict::Holds);
        assert!(matches!(judge(one, 1.07, 0.01), Verdict::Fails(_)));
    }

    /// Every self-check, on the numbers that were kept: with any of them off by its tolerance, up
    /// or down, it fails.
    #[test]
    fn self_checks_notice_numbers_that_are_off_by_their_tolerance() {
        let papers = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers");
        let mut comparisons = 0;
        for entry in crate::CATALOGUE {
            let checks: Vec<Claim> = entry
                .claims()
                .unwrap()
                .into_iter()
                .filter(|claim| claim.kind == Kind::SelfCheck)
                .collect();
            if checks.is_empty() {
                continue;
            }
            let record = crate::record::Record::read(&papers, entry).unwrap().unwrap();
            let known = record.findings().readings.remove(0).numbers;
            for check in checks {
                assert_eq!(check.judge(&known), Verdict::Holds, "{}", check.id);
                for comparison in check.tests.iter().flat_map(Test::comparisons) {
                    let number = known.get(&comparison.names[0]).unwrap().clone();
                    let off = match comparison.form {
                        Form::Agreement { within, slack, .. } => {
                            let scale = comparison
                                .names
                                .get(1)
                                .map_or(1.0, |name| known.get(name).unwrap().value.abs());
                            1.01 * (within + slack) * scale
                        }
                        _ => 1.01 * comparison.high,
                    };
                    let fails = [off, -off].map(|off| {
                        let mut wrong = known.clone();
                        wrong.push(Number { value: number.value + off, ..number.clone() });
                        matches!(check.judge(&wrong), Verdict::Fails(_))
                    });
                    assert!(
                        fails.contains(&true),
                        "{}: {} off by {off} is not noticed",
                        check.id,
                        number.name
                    );
                    comparisons += 1;
                }
            }
        }
        assert!(comparisons > 30, "{comparisons}");
    }

    #[test]
    fn a_number_that_is_absent_says_why_unless_the_claim_fails_anyway() {
        let claim = claim(r#"{ less = ["a", "b"] }, { less = ["a", "best/x"] }"#);
        let mut known = numbers(&[("a", 1.0, 0.0, 0), ("b", 2.0, 0.0, 0)]);
        known.leave_out("best/", "not tested at this size: too few rounds");
        assert_eq!(
            claim.judge(&known),
            Verdict::Untested("not tested at this size: too few rounds".into())
        );
        known.push(Number::exact("b", 0.5));
        assert!(matches!(claim.judge(&known), Verdict::Fails(_)));
    }

    #[test]
    fn patterns_and_ranges() {
        let each = claim(
            r#"{ less = ["{m}/{s}", "z"], times = 2, each = { m = ["a", "b"], s = ["1", "2"] } }"#,
        );
        assert_eq!(each.names(), ["a/1", "a/2", "b/1", "b/2", "z"]);
        let mut known = numbers(&[
            ("a/1", 1.0, 0.0, 0),
            ("a/2", 1.9, 0.0, 0),
            ("b/1", 0.1, 0.0, 0),
            ("b/2", 1.0, 0.0, 0),
            ("z", 1.0, 0.0, 0),
        ]);
        assert_eq!(each.judge(&known), Verdict::Holds);
        known.push(Number::exact("b/2", 2.5));
        assert!(matches!(each.judge(&known),
                Verdict::Fails(why) if why.len() == 1 && why[0].contains("b/2 = 2.500")));
        let ratio =
            claim(r#"{ ratio = ["a", "b"], low = 0.5, high = 2 }, { between = "b", high = 5 }"#);
        assert_eq!(
            ratio.judge(&numbers(&[("a", 4.0, 0.1, 50), ("b", 3.0, 0.1, 50)])),
            Verdict::Holds
        );
        assert!(matches!(
            ratio.judge(&numbers(&[("a", 9.0, 0.1, 50), ("b", 3.0, 0.1, 50)])),
            Verdict::Fails(_)
        ));
    }

    #[test]
    fn the_alarm_rate_is_what_it_says() {
        // Two equal means, 5 runs each: a false verdict comes about with probability 1e-1 or less,
        // here 20,000 times.
        use consilience_core::rng::{Purpose, SERVER, Seed};
        let mut claim = claim(r#"{ less = ["a", "b"] }"#);
        claim.alarm = 0.1;
        let mut decided = 0;
        for trial in 0..20_000 {
            let mut z = [0.0; 10];
            Seed::new(5).stream(Purpose::Data, SERVER, trial).normals(&mut z);
            let numbers =
                [Number::mean("a", &z[..5]), Number::mean("b", &z[5..])].into_iter().collect();
            decided += i32::from(!matches!(claim.judge(&numbers), Verdict::Open(_)));
        }
        // The smaller of the two degrees of freedom is used, so the rate is below 0.1 and above
        // that of 8 degrees at the same width (0.066).
        assert!((1100..2000).contains(&decided), "{decided}");
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |text: &str| read(text).unwrap_err();
        assert!(
            wrong(
                "[[claim]]\nid = \"c\"\nexperiment = \"e\"\nsays = \"s\"\nsource = \"p\"\n\
                alarm = 1e-3\n"
            )
            .contains("must have tests")
        );
        let head = "[[claim]]\nid = \"c\"\nexperiment = \"e\"\nsays = \"s\"\nsource = \"p\"\n\
            alarm = 1e-3\n";
        assert!(
            wrong(&format!("{head}tests = [{{ agrees = [\"a\"] }}]")).contains("positive `within`")
        );
        assert!(
            wrong(&format!("{head}untested = \"x\"\nfinds = {{ held = \"y\" }}"))
                .contains("`held` is no verdict")
        );
        assert!(
            wrong(
                "[[claim]]\nid = \"c\"\nexperiment = \"e\"\nsays = \"s\"\nsource = \"p\"\n\
                alarm = 2\nuntested = \"x\"\n"
            )
            .contains("alarm")
        );
    }
}
