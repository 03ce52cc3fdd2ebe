//! Notice by what sites say of their columns that one has a column in another unit, that two have
//! the same rows, and that a number stands for what is missing.

use super::facts::ColumnFacts;
use super::{DesignPlan, Response, SiteSummary, TermSummary};
use crate::warnings::{Code, Warning};

/// The fewest values of a site that are compared with those of others.
const FEWEST: u64 = 10;
/// A site's mean is so many times another's before it is noticed without a unit that explains it.
const MANY: f64 = 5.0;
/// The mean and the spread of a column in another unit differ by the same factor, to within this
/// one.
const ALIKE: f64 = 1.6;
/// By so many standard deviations means differ where a unit is but a few times another.
const APART: f64 = 2.5;
/// So many sites are named.
const NAMED: usize = 3;

/// How many times as large a number is in one unit as in another, and what these may be.
const UNITS: [(f64, &str); 15] = [
    (1000.0, "grams for kilograms, say"),
    (365.25, "days for years, say"),
    (100.0, "centimetres for metres, or percentages for shares, say"),
    (88.4, "µmol/l for mg/dl, say"),
    (60.0, "minutes for hours, say"),
    (38.67, "mg/dl for mmol/l, say"),
    (30.44, "days for months, say"),
    (24.0, "hours for days, say"),
    (18.02, "mg/dl for mmol/l, say"),
    (12.0, "months for years, say"),
    (10.0, "millimetres for centimetres, say"),
    (7.0, "days for weeks, say"),
    (4.184, "kilojoules for kilocalories, say"),
    (2.54, "centimetres for inches, say"),
    (2.2046, "pounds for kilograms, say"),
];
const DEGREES: &str = "degrees Fahrenheit for Celsius, say";

/// Mean and standard deviation of one site's column.
#[derive(Clone, Copy, Debug)]
struct Spread {
    mean: f64,
    sd: f64,
}

/// What people should know of the sums that sites said of their rows.
pub(crate) fn of_sums(summaries: &[SiteSummary], plan: &DesignPlan) -> Vec<Warning> {
    let mut found: Vec<Warning> = Vec::new();
    if let Response::Value { column } = &plan.response
        && !plan.logs
    {
        let of = |site: &SiteSummary| spread(site.rows, site.response_sum, site.response_squares?);
        found.extend(units(column, summaries, of));
    }
    for (k, term) in plan.terms.iter().enumerate() {
        let of = |site: &SiteSummary| match site.terms.get(k)? {
            TermSummary::Numbers { observed, sum, squares } => spread(*observed, *sum, *squares),
            TermSummary::Levels(_) => None,
        };
        found.extend(units(&term.column, summaries, of));
    }
    found.extend(twice(summaries));
    found
}

fn spread(observed: u64, sum: f64, squares: f64) -> Option<Spread> {
    let n = observed as f64;
    let (mean, sd) = (sum / n, (squares / (n - 1.0)).sqrt());
    (observed >= FEWEST && mean != 0.0 && sd > 0.0 && sd.is_finite()).then_some(Spread { mean, sd })
}

/// Warn of sites where a column is many times as large as at the site in the middle.
fn units(
    column: &str,
    summaries: &[SiteSummary],
    of: impl Fn(&SiteSummary) -> Option<Spread>,
) -> Option<Warning> {
    let mut all: Vec<(&str, Spread)> =
        summaries.iter().filter_map(|site| Some((site.site.as_str(), of(site)?))).collect();
    all.sort_by(|a, b| a.1.mean.abs().total_cmp(&b.1.mean.abs()));
    let (usual, middle) = *all.get(all.len().checked_sub(1)? / 2)?;
    let odd: Vec<(&str, f64, Option<&str>)> = summaries
        .iter()
        .filter_map(|site| {
            let (name, spread) = all.iter().find(|(name, _)| *name == site.site)?;
            let (times, unit) = differs(*spread, middle)?;
            Some((*name, times, unit))
        })
        .collect();
    let (_, times, unit) = *odd.first()?;
    let names: Vec<String> = odd.iter().take(NAMED).map(|(name, ..)| format!("`{name}`")).collect();
    let more = if odd.len() > NAMED { " and others" } else { "" };
    let size = match times >= 1.0 {
        true => format!("about {times:.1} times what they are"),
        false => format!("about 1/{:.1} of what they are", 1.0 / times),
    };
    let unit = unit.map_or_else(String::new, |unit| format!(": another unit, {unit}?"));
    let says = format!(
        "the mean and the spread of the column `{column}` at {}{more} are {size} at \
         `{usual}`{unit}",
        names.join(", ")
    );
    let remedy = "Write the column in one unit at all sites; where it is so, go on";
    Some(Warning::new(Code::UnitsDiffer, says).remedy(remedy).number("times", times))
}

/// By which factor a column is larger, and the units that would explain it, if it is noticed.
fn differs(site: Spread, usual: Spread) -> Option<(f64, Option<&'static str>)> {
    let (times, wider) = (site.mean / usual.mean, site.sd / usual.sd);
    let is_near = |a: f64, b: f64, within: f64| a > b / within && a < b * within;
    if times <= 0.0 || !is_near(times, wider, ALIKE) {
        return None;
    }
    let (large, small) = if times > 1.0 { (site, usual) } else { (usual, site) };
    let factor = large.mean / small.mean;
    let unit = |within: f64| {
        let near = UNITS.iter().filter(|(unit, _)| is_near(factor, *unit, within));
        let off = |unit: f64| (factor / unit).ln().abs();
        near.min_by(|a, b| off(a.0).total_cmp(&off(b.0))).map(|(_, says)| *says)
    };
    if factor >= MANY {
        return Some((times, unit(1.25)));
    }
    let apart = (large.mean - small.mean).abs() > APART * large.sd.max(small.sd);
    // degrees have another zero, too
    let degrees = (large.mean - (1.8 * small.mean + 32.0)).abs() < large.sd
        && is_near(large.sd / small.sd, 1.8, 1.3);
    let unit = if degrees { Some(DEGREES) } else { unit(1.12) };
    unit.filter(|_| apart).map(|unit| (times, Some(unit)))
}

/// Warn of two sites that say the same of all their columns, to the last bit.
fn twice(summaries: &[SiteSummary]) -> Option<Warning> {
    let alike =
        |a: &SiteSummary, b: &SiteSummary| SiteSummary { site: b.site.clone(), ..a.clone() } == *b;
    let tells = |site: &&SiteSummary| {
        let numbers = |term: &TermSummary| match term {
            TermSummary::Numbers { squares, .. } => *squares > 0.0,
            TermSummary::Levels(_) => false,
        };
        site.rows >= FEWEST && (site.terms.iter().any(numbers) || site.response_squares.is_some())
    };
    let all: Vec<&SiteSummary> = summaries.iter().filter(tells).collect();
    let pair = all
        .iter()
        .enumerate()
        .find_map(|(k, a)| all[k + 1..].iter().find(|b| alike(a, b)).map(|b| (&a.site, &b.site)))?;
    let says = format!(
        "the sites `{}` and `{}` say the same sums of every column: they have the same rows, which \
         count twice",
        pair.0, pair.1
    );
    Some(Warning::new(Code::SitesAlike, says).remedy("Give each row to one site"))
}

/// Warn of numbers that may stand for what is missing, by what sites say of a column.
pub(crate) fn of_codes(column: &str, sites: &[(&str, &ColumnFacts)]) -> Option<Warning> {
    let (site, code) = sites.iter().find_map(|(site, facts)| Some((*site, facts.missing_code?)))?;
    let says = format!(
        "the column `{column}` has the number {code} at site `{site}`, far from all others: it may \
         stand for a value that is missing, and is taken for a number"
    );
    let remedy = "Write what is missing as NA, or leave it empty; where it is a number, go on";
    Some(Warning::new(Code::MissingCode, says).remedy(remedy).number("code", code))
}

/// A number of a column that stands for what is missing, as it seems: the only one below 0, or one
/// far above all others, written in nines or eights.
pub(crate) fn missing_code(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    const BELOW: [f64; 8] = [-9.0, -99.0, -999.0, -9999.0, -99999.0, -88.0, -888.0, -8888.0];
    const ABOVE: [f64; 5] = [99.0, 999.0, 9999.0, 99999.0, 888.0];
    let (mut code, mut least, mut most, mut others) = (None::<f64>, f64::INFINITY, 0.0f64, 0);
    for x in numbers {
        match code {
            _ if !BELOW.contains(&x) && !ABOVE.contains(&x) => {
                (least, most, others) = (least.min(x), most.max(x), others + 1);
            }
            Some(known) if known != x => return None,
            _ => code = Some(x),
        }
    }
    let code = code?;
    let is_far = match code < 0.0 {
        true => least >= 0.0,
        false => code > 4.0 * most && least >= 0.0,
    };
    (is_far && others >= FEWEST as usize / 2).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{ColumnSpec, Schema, Table, formula, summarise};

    fn said(sites: &[(&str, f64, f64)]) -> Vec<String> {
        let schema = Schema::new(vec![ColumnSpec::number("age"), ColumnSpec::number("y")]);
        let plan = formula::parse("y ~ age", &schema).unwrap();
        let table = |(k, (_, factor, shift)): (usize, &(&str, f64, f64))| {
            let row = |j: usize| {
                let (age, y) = (40.0 + 1.3 * j as f64 + k as f64, (j * j % 7) as f64 - 3.0);
                format!("{},{y}\n", factor * age + shift)
            };
            Table::parse(&format!("age,y\n{}", (0..20).map(row).collect::<String>()), "f", &schema)
        };
        let summary = |one: (usize, &(&str, f64, f64))| {
            summarise(one.1.0, &table(one).unwrap(), &plan).unwrap()
        };
        let all: Vec<SiteSummary> = sites.iter().enumerate().map(summary).collect();
        of_sums(&all, &plan).iter().map(|warning| warning.message.clone()).collect()
    }

    #[test]
    fn another_unit_is_named_by_its_site() {
        let at =
            |factor: f64| said(&[("a", 1.0, 0.0), ("b", factor, 0.0), ("c", 1.0, 0.0)]).join("; ");
        assert!(at(12.0).contains("`age` at `b` are about 11.8 times"), "{}", at(12.0));
        assert!(at(12.0).contains("months for years"), "{}", at(12.0));
        assert!(at(0.001).contains("`b` are about 1/98"), "{}", at(0.001));
        assert!(at(2.54).contains("centimetres for inches"), "{}", at(2.54));
        assert_eq!(at(1.0), "");
        assert_eq!(at(1.5), "", "sites differ");
        let two = said(&[("a", 12.0, 0.0), ("b", 1.0, 0.0)]).join("");
        assert!(two.contains("`a` are about 11") && two.contains("at `b`"), "{two}");
        let degrees = said(&[("a", 0.1, 31.0), ("b", 0.18, 31.0 * 1.8 + 32.0)]).join("");
        assert!(degrees.contains("Fahrenheit"), "{degrees}");
        assert_eq!(said(&[("a", 1.0, 0.0), ("b", 1.0, 600.0)]).len(), 0, "as wide as elsewhere");
    }

    #[test]
    fn rows_that_are_there_twice_are_named() {
        let mut sites = vec![("a", 1.0, 0.0), ("b", 1.0, -1.0), ("c", 1.1, 3.0)];
        let text = said(&sites).join("");
        assert!(text.contains("the sites `a` and `b` say the same sums"), "{text}");
        sites[1].2 = -1.01;
        assert_eq!(said(&sites).len(), 0);
    }

    #[test]
    fn numbers_that_stand_for_nothing_are_found() {
        let of = |numbers: &[f64]| missing_code(numbers.iter().copied());
        assert_eq!(of(&[3.0, 0.0, -99.0, 5.0, 7.0, -99.0, 8.0]), Some(-99.0));
        assert_eq!(of(&[3.0, 30.0, 999.0, 5.0, 7.0, 8.0]), Some(999.0));
        assert_eq!(of(&[3.0, -1.0, -99.0, 5.0, 7.0, 8.0]), None, "others are below 0, too");
        assert_eq!(of(&[30.0, 80.0, 99.0, 75.0, 97.0, 98.0]), None, "an age");
        assert_eq!(of(&[-9.0, -99.0, 3.0, 4.0, 5.0, 6.0, 7.0]), None, "two of them");
        assert_eq!(of(&[-99.0, 3.0]), None, "few");
    }
}
