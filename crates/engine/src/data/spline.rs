//! Turn a number into the columns of a spline: `ns(age, 4)`, `bs(age, 6, degree = 2)`.
//!
//! | written | columns | inner knots |
//! |---|---|---|
//! | `bs(x, df, degree = 3)` | the B-splines of that degree, but for the first | `df - degree` |
//! | `ns(x, df)` | cubic splines that are straight beyond their outer knots | `df - 1` |
//!
//! Both have the meaning, and the columns, that they have in R's package splines: inner knots at
//! evenly spaced quantiles, the intercept left out. A natural spline's columns are those of the
//! cubic one turned by the reflections of a QR decomposition of its second derivatives at the outer
//! knots. Beyond these a natural spline goes on straight, and a B-spline as its outermost
//! polynomial. Only sums, products, quotients and square roots are taken: the same bits everywhere.

use serde::{Deserialize, Serialize};

use crate::suggest::did_you_mean;

/// The most columns that a spline has.
const MOST: u32 = 50;
/// The highest degree of a B-spline.
const MOST_DEGREE: u32 = 9;

/// What a formula says of a spline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spline {
    /// Whether it is straight beyond its outer knots.
    pub natural: bool,
    /// How many columns it has.
    pub df: u32,
    /// The degree of its pieces.
    pub degree: u32,
    /// Whether its columns are standardised, as numbers are.
    pub standardised: bool,
}

impl Spline {
    /// How many knots lie within the outer ones.
    pub fn inner_knots(self) -> usize {
        (self.df - if self.natural { 1 } else { self.degree }) as usize
    }
}

/// A spline with its knots: what sites agreed on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knots {
    /// What the formula says.
    pub spline: Spline,
    /// The outer knots.
    pub bounds: (f64, f64),
    /// The inner ones, ascending.
    pub inner: Vec<f64>,
    /// The federated mean of the values, and their standard deviation.
    pub moments: (f64, f64),
}

impl Knots {
    /// Whether they are knots: as many as there must be, and ascending.
    pub(crate) fn check(&self) -> bool {
        let Spline { natural, df, degree, .. } = self.spline;
        let (low, high) = self.bounds;
        let all: Vec<f64> =
            [low].into_iter().chain(self.inner.iter().copied()).chain([high]).collect();
        (1..=MOST_DEGREE).contains(&degree)
            && (!natural || degree == 3)
            && (if natural { 2 } else { degree }..=MOST).contains(&df)
            && self.inner.len() == self.spline.inner_knots()
            && all.iter().all(|knot| knot.is_finite())
            && all.is_sorted_by(|a, b| a < b)
    }
}

/// What is written as a call of a spline: its name, what it is of, and its other arguments.
fn call(term: &str) -> Option<(&str, &str, Vec<&str>)> {
    let (name, rest) = term.trim().split_once('(')?;
    let name = name.trim();
    let inside = rest.strip_suffix(')').filter(|_| ["ns", "bs"].contains(&name))?;
    let (mut depth, mut quoted, mut start, mut parts) = (0usize, false, 0, Vec::new());
    for (at, letter) in inside.char_indices() {
        match letter {
            '`' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth == 0 => return None, // another call follows
            ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(inside[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(inside[start..].trim());
    Some((name, parts[0], parts[1..].to_vec()))
}

/// What a term is a spline of, if it is one.
pub(super) fn argument(term: &str) -> Option<&str> {
    call(term).map(|(_, argument, _)| argument)
}

/// The spline of a term; `None` where it is none, else what is wrong with it, and what to write.
pub(super) fn parse(term: &str) -> Option<Result<Spline, String>> {
    let (name, of, arguments) = call(term)?;
    Some(read(name == "ns", of, &arguments))
}

fn read(natural: bool, of: &str, arguments: &[&str]) -> Result<Spline, String> {
    let (mut df, mut degree) = (None, None);
    for (k, argument) in arguments.iter().enumerate() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name.trim(), value.trim()),
            None if k == 0 => ("df", *argument),
            None if k == 1 && !natural => ("degree", *argument),
            None => ("", *argument),
        };
        let place = match name {
            "df" => &mut df,
            "degree" if !natural => &mut degree,
            "degree" => return Err(format!("it is cubic: write ns({of}, 4), or bs({of}, 5, 2)")),
            "" => return Err(format!("`{argument}` is one argument too many")),
            "knots" | "Boundary.knots" | "lower_bound" | "upper_bound" | "intercept"
            | "include_intercept" => {
                return Err(format!(
                    "`{name}` cannot be stated: knots lie at quantiles of all sites' values"
                ));
            }
            other => {
                let known: &[&str] = if natural { &["df"] } else { &["df", "degree"] };
                let hint = did_you_mean(other, known.iter().copied());
                let list = if natural { "there is `df`" } else { "there are `df` and `degree`" };
                return Err(format!("there is no argument `{other}`: {hint}{list}"));
            }
        };
        let number: u32 = value
            .parse()
            .map_err(|_| format!("`{value}` is no whole number of degrees of freedom"))?;
        *place = Some(number);
    }
    let example = if natural { format!("ns({of}, 4)") } else { format!("bs({of}, 5)") };
    let df = df.ok_or(format!("its degrees of freedom are missing: write, say, {example}"))?;
    let degree = degree.unwrap_or(3);
    if !(1..=MOST_DEGREE).contains(&degree) {
        return Err(format!("its degree is {degree}, where 1 to {MOST_DEGREE} are possible"));
    }
    let least = if natural { 2 } else { degree };
    if df < least {
        let straight =
            if natural { format!("; a straight line is `{of}` itself") } else { "".into() };
        return Err(format!(
            "{df} degrees of freedom are too few, where {least} is the least{straight}"
        ));
    }
    if df > MOST {
        return Err(format!("{df} degrees of freedom are too many, where {MOST} is the most"));
    }
    Ok(Spline { natural, df, degree, standardised: true })
}

/// A spline ready to be evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Basis<'a> {
    of: &'a Knots,
    /// All knots, the outer ones as often as pieces meet there.
    knots: Vec<f64>,
    /// What turns the columns of a natural spline: reflections along these, one after the other.
    reflections: Vec<Vec<f64>>,
}

impl<'a> Basis<'a> {
    pub(crate) fn new(of: &'a Knots) -> Self {
        let outer = of.spline.degree as usize + 1;
        let (low, high) = of.bounds;
        let knots = std::iter::repeat_n(low, outer)
            .chain(of.inner.iter().copied())
            .chain(std::iter::repeat_n(high, outer))
            .collect();
        let mut basis = Basis { of, knots, reflections: Vec::new() };
        if of.spline.natural {
            for x in [low, high] {
                let mut along = basis.all(x, 2);
                basis.turn(&mut along);
                let from = basis.reflections.len();
                along[..from].fill(0.0);
                let norm = along.iter().map(|a| a * a).sum::<f64>().sqrt();
                along[from] += norm.copysign(along[from]);
                basis.reflections.push(along);
            }
        }
        basis
    }

    /// Its columns at a value.
    pub(crate) fn at(&self, x: f64) -> Vec<f64> {
        let Knots { spline, bounds: (low, high), .. } = *self.of;
        if !spline.natural {
            return self.all(x, 0);
        }
        let inside = x.clamp(low, high);
        let mut row = self.all(inside, 0);
        if x != inside {
            let slopes = self.all(inside, 1);
            row.iter_mut().zip(slopes).for_each(|(value, slope)| *value += (x - inside) * slope);
        }
        self.turn(&mut row);
        row.split_off(self.reflections.len())
    }

    /// Apply the reflections.
    fn turn(&self, row: &mut [f64]) {
        for along in &self.reflections {
            let square: f64 = along.iter().map(|a| a * a).sum();
            let dot: f64 = along.iter().zip(&*row).map(|(a, b)| a * b).sum();
            row.iter_mut().zip(along).for_each(|(b, a)| *b -= 2.0 * dot / square * a);
        }
    }

    /// A derivative of all B-splines but the first.
    fn all(&self, x: f64, derivative: usize) -> Vec<f64> {
        let degree = self.of.spline.degree as usize;
        let piece = degree + self.of.inner.iter().filter(|knot| **knot <= x).count();
        let count = self.knots.len() - degree - 1;
        let piece = piece.min(count - 1);
        (1..count).map(|k| self.one(k, degree, derivative, piece, x)).collect()
    }

    /// A derivative of the B-spline of this degree that begins at a knot (Cox and de Boor), by its
    /// polynomial on a piece.
    fn one(&self, from: usize, degree: usize, derivative: usize, piece: usize, x: f64) -> f64 {
        if degree == 0 {
            return if from == piece && derivative == 0 { 1.0 } else { 0.0 };
        }
        let t = &self.knots;
        let part = |from: usize, up: bool| {
            let width = t[from + degree] - t[from];
            if width <= 0.0 {
                return 0.0;
            }
            let (way, factor) = match (up, derivative) {
                (true, 0) => (x - t[from], 1.0),
                (false, 0) => (t[from + degree] - x, 1.0),
                (true, _) => (1.0, degree as f64),
                (false, _) => (-1.0, degree as f64),
            };
            let below = derivative.saturating_sub(1);
            factor * way / width * self.one(from, degree - 1, below, piece, x)
        };
        part(from, true) + part(from + 1, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knots(natural: bool, df: u32, degree: u32, inner: &[f64]) -> Knots {
        let spline = Spline { natural, df, degree, standardised: true };
        Knots { spline, bounds: (-1.0, 4.0), inner: inner.to_vec(), moments: (1.0, 1.0) }
    }

    #[test]
    fn calls_are_read_with_what_is_wrong_with_them() {
        let good = |term: &str| {
            let spline = parse(term).unwrap().unwrap();
            (argument(term).unwrap().to_owned(), spline.natural, spline.df, spline.degree)
        };
        assert_eq!(good("ns(age, 4)"), ("age".into(), true, 4, 3));
        assert_eq!(good("bs(log(age), df = 6, degree = 2)"), ("log(age)".into(), false, 6, 2));
        assert_eq!(good("bs(`a, b`, 5, 1)"), ("`a, b`".into(), false, 5, 1));
        assert_eq!(parse("ns(age, 4):sex"), None);
        assert_eq!(parse("ns(age, 4) * bs(age, 3)"), None);
        assert_eq!(parse("tanh(age)"), None);
        for (term, part) in [
            ("ns(age)", "its degrees of freedom are missing: write, say, ns(age, 4)"),
            ("ns(age, 1)", "1 degrees of freedom are too few, where 2 is the least; a straight"),
            ("bs(age, 2)", "2 degrees of freedom are too few, where 3 is the least"),
            ("bs(age, 51)", "too many, where 50"),
            ("bs(age, 5, 10)", "its degree is 10"),
            ("ns(age, 4, 2)", "`2` is one argument too many"),
            ("ns(age, degree = 2)", "it is cubic"),
            ("bs(age, degre = 2)", "did you mean `degree`?"),
            ("bs(age, knots = c(1, 2))", "`knots` cannot be stated"),
            ("bs(age, many)", "`many` is no whole number"),
            ("ns(age, -4)", "`-4` is no whole number"),
        ] {
            let said = parse(term).unwrap().unwrap_err();
            assert!(said.contains(part), "{term}: {said}");
        }
    }

    #[test]
    fn b_splines_add_up_to_one_with_the_first_and_go_on_as_polynomials() {
        for (df, degree, inner) in [(5, 3, &[0.5, 2.0][..]), (3, 1, &[0.0, 1.0]), (2, 2, &[])] {
            let knots = knots(false, df, degree, inner);
            let basis = Basis::new(&knots);
            for x in [-3.0, -1.0, -0.9, 0.5, 1.2, 4.0, 6.0] {
                let first = basis.one(
                    0,
                    degree as usize,
                    0,
                    {
                        let within = knots.inner.iter().filter(|knot| **knot <= x).count();
                        degree as usize + within
                    },
                    x,
                );
                let sum: f64 = basis.at(x).iter().sum::<f64>() + first;
                assert!((sum - 1.0).abs() < 1e-12, "{x}: {sum}");
                assert_eq!(basis.at(x).len(), df as usize);
            }
        }
    }

    #[test]
    fn natural_splines_are_straight_beyond_their_outer_knots_and_smooth_within() {
        let knots = knots(true, 4, 3, &[0.5, 2.0, 3.0]);
        let basis = Basis::new(&knots);
        assert_eq!(basis.at(0.0).len(), 4);
        let second = |x: f64, h: f64| -> Vec<f64> {
            let (a, b, c) = (basis.at(x - h), basis.at(x), basis.at(x + h));
            (0..4).map(|k| (a[k] - 2.0 * b[k] + c[k]) / (h * h)).collect()
        };
        for x in [-2.0, 5.0] {
            assert!(second(x, 0.5).iter().all(|bend| bend.abs() < 1e-12), "{x}");
        }
        for bound in [-1.0, 4.0] {
            let bends = second(bound, 1e-4);
            assert!(bends.iter().all(|bend| bend.abs() < 1e-3), "{bound}: {bends:?}");
        }
        for knot in [0.5, 2.0, 3.0] {
            let (before, after) = (second(knot - 1e-3, 1e-4), second(knot + 1e-3, 1e-4));
            for (a, b) in before.iter().zip(&after) {
                assert!((a - b).abs() < 0.02, "the second derivative is continuous: {a} {b}");
            }
        }
    }
}
