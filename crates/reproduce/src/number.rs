//! Carry a number with its error bar.

use consilience_core::measure::{mean, sd, student_quantile};

/// A measured or computed number.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// What it is, as the claims call it: `mse/qlsd*/16`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its standard error; 0 for what was computed without sampling.
    pub error: f64,
    /// From how many independent runs the error is known; 0 for what was computed without sampling.
    pub runs: usize,
}

impl Number {
    /// A number that was computed without sampling.
    pub fn exact(name: impl Into<String>, value: f64) -> Self {
        Number { name: name.into(), value, error: 0.0, runs: 0 }
    }

    /// The mean of independent runs.
    pub fn mean(name: impl Into<String>, runs: &[f64]) -> Self {
        let error = if runs.len() > 1 { sd(runs) / (runs.len() as f64).sqrt() } else { f64::NAN };
        Number { name: name.into(), value: mean(runs), error, runs: runs.len() }
    }

    /// How many standard errors make an interval that misses the truth with this probability
    /// (two-sided).
    pub fn errors_for(&self, alarm: f64) -> f64 {
        width(self.runs, alarm)
    }
}

/// How many standard errors make an interval that misses the truth with this probability, if the
/// error is known from so many runs.
pub(crate) fn width(runs: usize, alarm: f64) -> f64 {
    match runs {
        0 => 0.0,
        1 | 2 => f64::INFINITY, // nothing is known about the error
        n => student_quantile(1.0 - alarm / 2.0, n as f64 - 1.0),
    }
}

/// Numbers by name, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    list: Vec<Number>,
    absent: Vec<(String, String)>,
}

impl Numbers {
    /// None yet.
    pub fn new() -> Self {
        Numbers::default()
    }

    /// One more; a number of the same name is replaced.
    pub fn push(&mut self, number: Number) {
        match self.list.iter_mut().find(|known| known.name == number.name) {
            Some(known) => *known = number,
            None => self.list.push(number),
        }
    }

    /// The number of this name.
    pub fn get(&self, name: &str) -> Option<&Number> {
        self.list.iter().find(|number| number.name == name)
    }

    /// Numbers whose names begin so cannot be had at this size, and why. What ends in the middle of
    /// a name (not at a `/`, space, colon or hyphen) is a whole one: `ece/fald` is no `ece/fald 2`.
    pub fn leave_out(&mut self, beginning: impl Into<String>, why: impl Into<String>) {
        self.absent.push((beginning.into(), why.into()));
    }

    /// Why the number of this name cannot be had, if that is known.
    pub fn why_absent(&self, name: &str) -> Option<&str> {
        self.absent
            .iter()
            .find(|(beginning, _)| {
                let ends = beginning.ends_with(['/', ' ', ':', '-']);
                name.strip_prefix(beginning.as_str()).is_some_and(|rest| ends || rest.is_empty())
            })
            .map(|(_, why)| why.as_str())
    }

    /// What cannot be had: how names begin, and why.
    pub fn absent(&self) -> &[(String, String)] {
        &self.absent
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Number> {
        self.list.iter()
    }
}

impl FromIterator<Number> for Numbers {
    fn from_iter<I: IntoIterator<Item = Number>>(numbers: I) -> Self {
        let mut all = Numbers::new();
        numbers.into_iter().for_each(|number| all.push(number));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A method that diverged takes no number of another away whose name begins with its own.
    #[test]
    fn what_is_left_out_is_a_whole_name_or_the_beginning_of_one() {
        let mut numbers = Numbers::new();
        numbers.leave_out("ece/fald", "it diverged");
        numbers.leave_out("tv gap/", "chains do not agree");
        assert_eq!(numbers.why_absent("ece/fald"), Some("it diverged"));
        assert_eq!(numbers.why_absent("ece/fald 2"), None);
        assert_eq!(numbers.why_absent("tv gap/fald/sgld"), Some("chains do not agree"));
        assert_eq!(numbers.why_absent("tv/fald"), None);
    }

    #[test]
    fn few_runs_make_wide_bars() {
        let number = Number::mean("x", &[1.0, 2.0, 3.0]);
        assert_eq!((number.value, number.runs), (2.0, 3));
        assert!((number.error - 1.0 / 3f64.sqrt()).abs() < 1e-15);
        // Student's t, 2 degrees of freedom
        assert!((number.errors_for(0.05) - 4.302_652_7).abs() < 1e-6);
        assert_eq!(Number::exact("x", 1.0).errors_for(1e-9), 0.0);
        assert_eq!(Number::mean("x", &[1.0]).errors_for(0.05), f64::INFINITY);
    }
}
