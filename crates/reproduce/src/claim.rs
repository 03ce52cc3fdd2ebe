//! Judge what a paper claims by our numbers and their error bars.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::experiment::Reading;
use crate::number::{Number, Numbers, width};

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
    /// It does not, beyond the error bars; the comparisons that fail.
    Fails(Vec<String>),
    /// The error bars are too wide at this size; the comparisons that are open.
    Open(Vec<String>),
    /// It was not tested, and why.
    Untested(String),
}

impl Verdict {
    /// The verdict in a word or three.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Fails(_) => "does not hold",
            Verdict::Open(_) => "open",
            Verdict::Untested(_) => "not tested",
        }
    }

    /// Why, where it does not simply hold.
    pub fn why(&self) -> String {
        match self {
            Verdict::Holds => String::new(),
            Verdict::Fails(tests) => tests.join("; "),
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
            return Err(format!("claim `{}`: the alarm rate is {}: it must be between 0 and 0.5", claim.id, claim.alarm));
        }
        for test in &claim.tests {
            let kinds = [test.less.is_some(), test.between.is_some(), test.ratio.is_some()];
            if kinds.into_iter().filter(|is| *is).count() != 1 {
                return Err(format!("claim `{}`: a test is one of less, between, ratio", claim.id));
            }
        }
    }
    Ok(file.claim)
}

impl Claim {
    /// Judge the claim by these numbers. The alarm rate is shared out evenly over all comparisons (Bonferroni).
    pub fn judge(&self, numbers: &Numbers) -> Verdict {
        if let Some(why) = &self.untested {
            return Verdict::Untested(why.clone());
        }
        let comparisons: Vec<Comparison> = self.tests.iter().flat_map(Test::comparisons).collect();
        let alarm = self.alarm / comparisons.len().max(1) as f64;
        let (mut fails, mut open) = (Vec::new(), Vec::new());
        for comparison in &comparisons {
            match comparison.decide(numbers, alarm) {
                Ok(Decision::Yes) => {}
                Ok(Decision::No(what)) => fails.push(what),
                Ok(Decision::Unclear(what)) => open.push(what),
                Err(missing) => return Verdict::Untested(format!("there is no number `{missing}` under this reading")),
            }
        }
        match (fails.is_empty(), open.is_empty()) {
            (false, _) => Verdict::Fails(fails),
            (_, false) => Verdict::Open(open),
            _ => Verdict::Holds,
        }
    }

    /// Judge the claim under every reading that it speaks of: all that have its numbers, unless it names one. The first reading always gets a verdict.
    pub fn judge_all(&self, readings: &[Reading]) -> Vec<Judged> {
        let concerned = |at: usize, reading: &Reading| match &self.reading {
            Some(name) => reading.name == *name,
            None => at == 0 || self.names().iter().all(|name| reading.numbers.get(name).is_some()),
        };
        let judged = readings.iter().enumerate().filter(|(at, reading)| concerned(*at, reading));
        let judged = judged.map(|(at, reading)| Judged { reading: at, name: reading.name.clone(), verdict: self.judge(&reading.numbers) });
        let all: Vec<Judged> = judged.collect();
        let why = || {
            format!("it is judged under the reading `{}`, which is shown with --as-published", self.reading.as_deref().unwrap_or_default())
        };
        if all.is_empty() { vec![Judged::untested(why())] } else { all }
    }

    /// The names of the numbers that it needs.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tests.iter().flat_map(Test::comparisons).flat_map(|c| c.names).collect();
        names.sort();
        names.dedup();
        names
    }
}

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
}

enum Decision {
    Yes,
    No(String),
    Unclear(String),
}

impl Test {
    fn comparisons(&self) -> Vec<Comparison> {
        let (form, names, low, high) = match (&self.less, &self.between, &self.ratio) {
            (Some(pair), _, _) => (Form::Difference { times: self.times }, pair.to_vec(), f64::NEG_INFINITY, 0.0),
            (_, Some(name), _) => (Form::Itself, vec![name.clone()], self.low, self.high),
            (_, _, Some(pair)) => (Form::Ratio, pair.to_vec(), self.low, self.high),
            _ => return Vec::new(),
        };
        let mut all = vec![names];
        for (key, values) in &self.each {
            let put = |names: &Vec<String>, value: &String| names.iter().map(|n| n.replace(&format!("{{{key}}}"), value)).collect();
            all = all.iter().flat_map(|names| values.iter().map(move |value| put(names, value))).collect();
        }
        all.into_iter().map(|names| Comparison { form, names, low, high }).collect()
    }
}

impl Comparison {
    fn decide(&self, numbers: &Numbers, alarm: f64) -> Result<Decision, String> {
        let known: Vec<&Number> = self.names.iter().map(|name| numbers.get(name).ok_or_else(|| name.clone())).collect::<Result<_, _>>()?;
        let (value, error) = match (self.form, &known[..]) {
            (Form::Difference { times }, [a, b]) => (a.value - times * b.value, a.error.hypot(times * b.error)),
            (Form::Ratio, [a, b]) => {
                let ratio = a.value / b.value;
                (ratio, ratio.abs() * (a.error / a.value).hypot(b.error / b.value))
            }
            (_, rest) => (rest[0].value, rest[0].error),
        };
        let fewest = known.iter().map(|n| n.runs).filter(|runs| *runs > 0).min().unwrap_or(0);
        let bar = if error == 0.0 { 0.0 } else { width(fewest, alarm) * error };
        let what = self.words(&known, value, error);
        Ok(if value.is_nan() {
            Decision::No(what)
        } else if bar.is_nan() {
            Decision::Unclear(what)
        } else if value - bar > self.low && value + bar < self.high {
            Decision::Yes
        } else if value + bar <= self.low || value - bar >= self.high {
            Decision::No(what)
        } else {
            Decision::Unclear(what)
        })
    }

    fn words(&self, known: &[&Number], value: f64, error: f64) -> String {
        let one = |n: &Number| format!("{} = {}", n.name, with_error(n.value, n.error));
        let list = known.iter().map(|n| one(n)).collect::<Vec<_>>().join(", ");
        match self.form {
            Form::Difference { times: 1.0 } => format!("{list}: the first is not smaller"),
            Form::Difference { times } => format!("{list}: the first is not below {times} times the second"),
            Form::Itself => format!("{list}: not {}", self.range()),
            Form::Ratio => format!("{list}: the ratio {} is not {}", with_error(value, error), self.range()),
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

/// A number with its standard error, as text.
pub fn with_error(value: f64, error: f64) -> String {
    let digits = |x: f64, n: usize| {
        let size = x.abs();
        if x != 0.0 && x.is_finite() && !(1e-3..1e5).contains(&size) {
            format!("{x:.*e}", n - 1)
        } else {
            let places = if x == 0.0 || !x.is_finite() { 0 } else { (n as i32 - 1 - size.log10().floor() as i32).max(0) as usize };
            format!("{x:.places$}")
        }
    };
    if error == 0.0 { digits(value, 4) } else { format!("{} ± {}", digits(value, 3), digits(error, 2)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(tests: &str) -> Claim {
        let text = format!("[[claim]]\nid = \"c\"\nexperiment = \"e\"\nsays = \"s\"\nsource = \"p\"\nalarm = 1e-3\ntests = [{tests}]\n");
        read(&text).unwrap().remove(0)
    }

    fn numbers(list: &[(&str, f64, f64, usize)]) -> Numbers {
        list.iter().map(|(name, value, error, runs)| Number { name: (*name).into(), value: *value, error: *error, runs: *runs }).collect()
    }

    #[test]
    fn error_bars_decide() {
        let claim = claim(r#"{ less = ["a", "b"] }"#);
        let judge = |a: f64, b: f64, error: f64| claim.judge(&numbers(&[("a", a, error, 100), ("b", b, error, 100)]));
        assert_eq!(judge(1.0, 2.0, 0.1), Verdict::Holds);
        assert!(matches!(judge(2.0, 1.0, 0.1), Verdict::Fails(_)));
        assert!(matches!(judge(1.0, 2.0, 0.4), Verdict::Open(_)));
        assert!(matches!(judge(1.0, f64::NAN, 0.4), Verdict::Fails(_)));
        assert_eq!(claim.judge(&numbers(&[("a", 1.0, 0.0, 0), ("b", 1.0 + 1e-12, 0.0, 0)])), Verdict::Holds); // exact numbers have no bars
        assert!(matches!(claim.judge(&numbers(&[("a", 1.0, 0.0, 0)])), Verdict::Untested(_)));
        let one_run = numbers(&[("a", 1.0, f64::NAN, 1), ("b", 9.0, 0.1, 30)]);
        assert!(matches!(claim.judge(&one_run), Verdict::Open(_)), "one run decides nothing");
    }

    #[test]
    fn patterns_and_ranges() {
        let each = claim(r#"{ less = ["{m}/{s}", "z"], times = 2, each = { m = ["a", "b"], s = ["1", "2"] } }"#);
        assert_eq!(each.names(), ["a/1", "a/2", "b/1", "b/2", "z"]);
        let mut known =
            numbers(&[("a/1", 1.0, 0.0, 0), ("a/2", 1.9, 0.0, 0), ("b/1", 0.1, 0.0, 0), ("b/2", 1.0, 0.0, 0), ("z", 1.0, 0.0, 0)]);
        assert_eq!(each.judge(&known), Verdict::Holds);
        known.push(Number::exact("b/2", 2.5));
        assert!(matches!(each.judge(&known), Verdict::Fails(why) if why.len() == 1 && why[0].contains("b/2 = 2.500")));
        let ratio = claim(r#"{ ratio = ["a", "b"], low = 0.5, high = 2 }, { between = "b", high = 5 }"#);
        assert_eq!(ratio.judge(&numbers(&[("a", 4.0, 0.1, 50), ("b", 3.0, 0.1, 50)])), Verdict::Holds);
        assert!(matches!(ratio.judge(&numbers(&[("a", 9.0, 0.1, 50), ("b", 3.0, 0.1, 50)])), Verdict::Fails(_)));
    }

    #[test]
    fn the_alarm_rate_is_what_it_says() {
        // Two equal means, 5 runs each: a false verdict comes about with probability 1e-1 or less, here 20,000 times.
        use consilience_core::rng::{Purpose, SERVER, Seed};
        let mut claim = claim(r#"{ less = ["a", "b"] }"#);
        claim.alarm = 0.1;
        let mut decided = 0;
        for trial in 0..20_000 {
            let mut z = [0.0; 10];
            Seed::new(5).stream(Purpose::Data, SERVER, trial).normals(&mut z);
            let numbers = [Number::mean("a", &z[..5]), Number::mean("b", &z[5..])].into_iter().collect();
            decided += i32::from(!matches!(claim.judge(&numbers), Verdict::Open(_)));
        }
        // The smaller of the two degrees of freedom is used, so the rate is below 0.1 and above that of 8 degrees at the same width (0.066).
        assert!((1100..2000).contains(&decided), "{decided}");
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |text: &str| read(text).unwrap_err();
        assert!(
            wrong("[[claim]]\nid = \"c\"\nexperiment = \"e\"\nsays = \"s\"\nsource = \"p\"\nalarm = 1e-3\n").contains("must have tests")
        );
        assert!(
            wrong("[[claim]]\nid = \"c\"\nexperiment = \"e\"\nsays = \"s\"\nsource = \"p\"\nalarm = 2\nuntested = \"x\"\n")
                .contains("alarm")
        );
    }
}
