//! Find the knots of splines at quantiles of all sites' values, by counts that sites add up.
//!
//! What a site is asked is how many of its values are at most `t`, for some numbers `t`; never a
//! value. Sums of these counts bracket every quantile, and a few passes narrow the brackets. All
//! `t` are multiples of a power of two near a thousandth of the standard deviation, so that knots
//! are the same numbers whatever the sites' order, and whoever shares a site. Outer knots are
//! sought on a grid that is 64 times as coarse, and lie outside all values: nobody learns more of
//! the least and the greatest one.
//!
//! A quantile is that of R (type 7): between the two values next to it, each rounded up to the
//! grid. Once knots are known, sites say the sums and squares of the spline's columns.

use serde::{Deserialize, Serialize};

use super::encode::numbers;
use super::moments::{check, merged, sums};
use super::spline::{Basis, Knots};
use super::{Coding, DesignPlan, EncodeError, SiteSummary, Table, Term, TermSummary};

/// Knots are on a grid of the standard deviation divided by at least this.
const FINE: f64 = 1024.0;
/// How many steps of that grid a step of the outer knots' has.
const COARSE: i64 = 64;
/// Into how many parts a bracket is divided in one pass.
pub(super) const PARTS: i64 = 64;

/// What a site is asked once its sums are known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KnotsAsk {
    /// How many values are below some numbers.
    Count(Vec<CountAsk>),
    /// What the columns of these splines add up to.
    Sum(Vec<(usize, Knots)>),
}

/// How many values of a term are below some numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountAsk {
    /// The term's place in the plan.
    pub term: usize,
    /// Numbers, ascending, of which the values below are counted.
    pub below: Vec<f64>,
    /// The same of values below or equal.
    pub up_to: Vec<f64>,
}

/// What a site answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KnotsTold {
    /// One entry for each term that was asked about: counts below, and up to, those numbers.
    Counts(Vec<(Vec<u64>, Vec<u64>)>),
    /// One entry for each spline: of every column the sum, and the squared deviations from its own
    /// mean, added up.
    Sums(Vec<Vec<(f64, f64)>>),
}

/// A spline that all agree on.
#[derive(Clone, Debug, PartialEq)]
pub struct AgreedSpline {
    /// The term's place in the plan.
    pub term: usize,
    /// The spline.
    pub knots: Knots,
    /// The federated mean of every column, and its standard deviation.
    pub columns: Vec<(f64, f64)>,
}

/// Answer what is asked of one site's rows.
pub fn tell(table: &Table, plan: &DesignPlan, ask: &KnotsAsk) -> Result<KnotsTold, EncodeError> {
    let values = |term: usize| -> Result<Vec<f64>, EncodeError> {
        // nothing is told of a column that is no spline
        let is_spline = |term: &&Term| matches!(term.coding, Coding::Spline(_));
        let term = plan.terms.get(term).filter(is_spline);
        let term = term.ok_or(EncodeError::OtherPlan { terms: plan.terms.len() })?;
        Ok(numbers(table, term)?.iter().flatten().copied().collect())
    };
    Ok(match ask {
        KnotsAsk::Count(asks) => KnotsTold::Counts(
            asks.iter()
                .map(|ask| {
                    let mut values = values(ask.term)?;
                    values.sort_by(f64::total_cmp);
                    let count = |holds: &dyn Fn(f64) -> bool| {
                        values.partition_point(|value| holds(*value)) as u64
                    };
                    let below = ask.below.iter().map(|t| count(&|value| value < *t));
                    let up_to = ask.up_to.iter().map(|t| count(&|value| value <= *t));
                    Ok((below.collect(), up_to.collect()))
                })
                .collect::<Result<_, EncodeError>>()?,
        ),
        KnotsAsk::Sum(splines) => KnotsTold::Sums(
            splines
                .iter()
                .map(|(term, knots)| {
                    if !knots.check() {
                        return Err(EncodeError::OtherPlan { terms: plan.terms.len() });
                    }
                    let basis = Basis::new(knots);
                    let rows: Vec<Vec<f64>> =
                        values(*term)?.into_iter().map(|value| basis.at(value)).collect();
                    let column =
                        |k: usize| sums(&rows.iter().map(|row| row[k]).collect::<Vec<f64>>());
                    Ok((0..knots.spline.df as usize).map(column).collect())
                })
                .collect::<Result<_, EncodeError>>()?,
        ),
    })
}

/// What is sought: the least multiple of a step such that at least `rank` values are up to it, or
/// below it. It is above `low` and at most `high`.
#[derive(Clone, Debug)]
struct Sought {
    rank: u64,
    below: bool,
    step: f64,
    low: i64,
    high: i64,
}

impl Sought {
    fn at(&self, k: i64) -> f64 {
        k as f64 * self.step // exact: a power of two
    }

    /// Where the bracket is divided.
    fn cuts(&self) -> impl Iterator<Item = i64> + '_ {
        let (low, width) = (self.low, self.high - self.low);
        let parts = width.min(PARTS);
        (1..parts).map(move |part| {
            low + (i128::from(width) * i128::from(part) / i128::from(parts)) as i64
        })
    }

    fn is_found(&self) -> bool {
        self.high - self.low <= 1
    }
}

/// The search for the knots of one term.
#[derive(Clone, Debug)]
struct Search {
    term: usize,
    count: u64,
    /// How many of them each site has.
    observed: Vec<u64>,
    moments: (f64, f64),
    /// The lower outer knot, the upper one, then all values that quantiles lie between.
    sought: Vec<Sought>,
    knots: Option<Knots>,
}

/// The search for the knots of all splines of a plan.
#[derive(Clone, Debug)]
pub struct KnotSearch<'a> {
    plan: &'a DesignPlan,
    sites: Vec<(String, u64)>,
    searches: Vec<Search>,
    agreed: Vec<AgreedSpline>,
    /// What was sent so far, in bits up and down.
    bits: (u64, u64),
}

impl<'a> KnotSearch<'a> {
    /// Begin with the sites' sums.
    pub fn new(summaries: &[SiteSummary], plan: &'a DesignPlan) -> Result<Self, EncodeError> {
        check(summaries, plan)?;
        let mut searches = Vec::new();
        for (at, term) in plan.terms.iter().enumerate() {
            let Coding::Spline(spline) = term.coding else { continue };
            let said: Vec<&TermSummary> =
                summaries.iter().filter_map(|summary| summary.terms.get(at)).collect();
            let observed: Vec<u64> = said.iter().map(|said| said.observed()).collect();
            let count: u64 = observed.iter().sum();
            if count == 0 {
                continue; // the term is left out
            }
            let (mean, sd) = merged(said.into_iter());
            if sd <= 1e-12 * mean.abs() || sd <= f64::MIN_POSITIVE * 1e16 {
                let problem = format!("`{}` is {mean} everywhere: leave it out", term.column);
                return Err(EncodeError::Spline { spline: term.title.clone(), problem });
            }
            let fine = power_of_two(sd / FINE);
            // no value is farther from the mean (Samuelson)
            let n = count as f64;
            let reach = 1.001 * sd * (n - 1.0) / n.sqrt();
            let sought = |rank: u64, below: bool, step: f64| Sought {
                rank,
                below,
                step,
                low: ((mean - reach) / step).floor() as i64 - 2,
                high: ((mean + reach) / step).ceil() as i64 + 2,
            };
            let coarse = fine * COARSE as f64;
            let mut all = vec![sought(1, true, coarse), sought(count, false, coarse)];
            for (rank, weight) in ranks(count, spline.inner_knots()) {
                all.push(sought(rank, false, fine));
                if weight > 0.0 {
                    all.push(sought(rank + 1, false, fine));
                }
            }
            searches.push(Search {
                term: at,
                count,
                observed,
                moments: (mean, sd),
                sought: all,
                knots: None,
            });
        }
        let sites = summaries.iter().map(|summary| (summary.site.clone(), summary.rows)).collect();
        Ok(KnotSearch { plan, sites, searches, agreed: Vec::new(), bits: (0, 0) })
    }

    /// A search for nothing.
    pub fn none(plan: &'a DesignPlan) -> Self {
        let (sites, searches) = (Vec::new(), Vec::new());
        KnotSearch { plan, sites, searches, agreed: Vec::new(), bits: (0, 0) }
    }

    /// What all sites are asked next; `None`: nothing any more.
    pub fn ask(&self) -> Option<KnotsAsk> {
        if self.searches.is_empty() || !self.agreed.is_empty() {
            return None;
        }
        if self.searches.iter().all(|search| search.knots.is_some()) {
            let known = |search: &Search| Some((search.term, search.knots.clone()?));
            return Some(KnotsAsk::Sum(self.searches.iter().filter_map(known).collect()));
        }
        let ask = |search: &Search| {
            let cuts = |below: bool| {
                let open = search.sought.iter().filter(|sought| sought.below == below);
                let mut all: Vec<f64> =
                    open.flat_map(|sought| sought.cuts().map(|k| sought.at(k))).collect();
                all.sort_by(f64::total_cmp);
                all.dedup();
                all
            };
            CountAsk { term: search.term, below: cuts(true), up_to: cuts(false) }
        };
        Some(KnotsAsk::Count(self.searches.iter().map(ask).collect()))
    }

    /// Hear the answers of all sites, in their order.
    pub fn hear(&mut self, told: &[KnotsTold]) -> Result<(), EncodeError> {
        let Some(ask) = self.ask() else { return Ok(()) };
        let sites = self.sites.clone();
        let refuse = |site: usize, problem: &str| EncodeError::Summary {
            site: sites.get(site).map_or_else(String::new, |(site, _)| site.clone()),
            problem: problem.into(),
        };
        if told.len() != self.sites.len() {
            return Err(refuse(told.len(), "it did not answer"));
        }
        let numbers = match &ask {
            KnotsAsk::Count(asks) => asks.iter().map(|ask| ask.below.len() + ask.up_to.len()).sum(),
            KnotsAsk::Sum(splines) => {
                splines.iter().map(|(_, knots)| 2 * knots.spline.df as usize).sum::<usize>()
            }
        };
        self.bits.0 += 64 * (numbers * self.sites.len()) as u64;
        self.bits.1 += 64 * (numbers * self.sites.len()) as u64;
        match ask {
            KnotsAsk::Count(asks) => {
                for (k, ask) in asks.iter().enumerate() {
                    let mut below = vec![0u64; ask.below.len()];
                    let mut up_to = vec![0u64; ask.up_to.len()];
                    for (site, told) in told.iter().enumerate() {
                        let counts = match told {
                            KnotsTold::Counts(all) => all.get(k),
                            KnotsTold::Sums(_) => None,
                        };
                        let most = self.sites[site].1;
                        let fits = |counts: &[u64], asked: usize| {
                            counts.len() == asked
                                && counts.is_sorted()
                                && counts.last().is_none_or(|last| *last <= most)
                        };
                        match counts {
                            Some((a, b)) if fits(a, below.len()) && fits(b, up_to.len()) => {
                                below.iter_mut().zip(a).for_each(|(sum, count)| *sum += count);
                                up_to.iter_mut().zip(b).for_each(|(sum, count)| *sum += count);
                            }
                            _ => return Err(refuse(site, "its counts of values are none")),
                        }
                    }
                    self.narrow(k, ask, &below, &up_to)?;
                }
                Ok(())
            }
            KnotsAsk::Sum(splines) => {
                for (k, (term, knots)) in splines.into_iter().enumerate() {
                    let mut columns = Vec::new();
                    for column in 0..knots.spline.df as usize {
                        let mut parts = Vec::new();
                        for (site, told) in told.iter().enumerate() {
                            let sums = match told {
                                KnotsTold::Sums(all) => all.get(k).and_then(|all| all.get(column)),
                                KnotsTold::Counts(_) => None,
                            };
                            match sums {
                                Some((sum, squares))
                                    if sum.is_finite()
                                        && squares.is_finite()
                                        && *squares >= 0.0 =>
                                {
                                    parts.push((site, *sum, *squares));
                                }
                                _ => return Err(refuse(site, "its sums of a spline are none")),
                            }
                        }
                        columns.push(parts);
                    }
                    let agreed = self.spread(k, term, knots, &columns)?;
                    self.agreed.push(agreed);
                }
                Ok(())
            }
        }
    }

    /// Narrow the brackets of a term by these counts.
    fn narrow(
        &mut self,
        k: usize,
        ask: &CountAsk,
        below: &[u64],
        up_to: &[u64],
    ) -> Result<(), EncodeError> {
        let search = &mut self.searches[k];
        for sought in &mut search.sought {
            let (cuts, counts) =
                if sought.below { (&ask.below, below) } else { (&ask.up_to, up_to) };
            let (mut low, mut high) = (sought.low, sought.high);
            for cut in sought.cuts() {
                let at = sought.at(cut);
                let Ok(place) = cuts.binary_search_by(|known| known.total_cmp(&at)) else {
                    continue; // never: it was asked about
                };
                if counts[place] >= sought.rank {
                    high = cut;
                    break;
                }
                low = cut;
            }
            (sought.low, sought.high) = (low, high);
        }
        if !search.sought.iter().all(Sought::is_found) {
            return Ok(());
        }
        let term = &self.plan.terms[search.term];
        let Coding::Spline(spline) = term.coding else { return Ok(()) };
        let found: Vec<f64> = search.sought.iter().map(|sought| sought.at(sought.high)).collect();
        // the least multiple that some value is below, less one step
        let bounds = (found[0] - search.sought[0].step, found[1]);
        let mut values = found[2..].iter();
        let mut inner = Vec::new();
        for (_, weight) in ranks(search.count, spline.inner_knots()) {
            let first = values.next().copied().unwrap_or(f64::NAN);
            let second =
                if weight > 0.0 { values.next().copied().unwrap_or(f64::NAN) } else { first };
            inner.push((1.0 - weight) * first + weight * second);
        }
        let all: Vec<f64> =
            [bounds.0].into_iter().chain(inner.iter().copied()).chain([bounds.1]).collect();
        if let Some(twice) = all.windows(2).find(|pair| pair[0] >= pair[1]) {
            let problem = format!(
                "two of its knots are at {}, for too many rows have that value: use fewer degrees \
                 of freedom, or C({}) for a column with few values",
                twice[1], term.column
            );
            return Err(EncodeError::Spline { spline: term.title.clone(), problem });
        }
        search.knots = Some(Knots { spline, bounds, inner, moments: search.moments });
        Ok(())
    }

    /// The means and deviations of a spline's columns.
    fn spread(
        &self,
        k: usize,
        term: usize,
        knots: Knots,
        columns: &[Vec<(usize, f64, f64)>],
    ) -> Result<AgreedSpline, EncodeError> {
        let Search { count, observed, .. } = &self.searches[k];
        let mut means = Vec::new();
        for parts in columns {
            let said = parts.iter().map(|(site, sum, squares)| TermSummary::Numbers {
                observed: observed[*site],
                sum: *sum,
                squares: *squares,
            });
            let said: Vec<TermSummary> = said.collect();
            let (mean, sd) = merged(said.iter());
            if sd.is_nan() || sd <= 0.0 {
                let problem = format!(
                    "one of its columns is the same for all {count} values: use fewer degrees of \
                     freedom"
                );
                let spline = self.plan.terms[term].title.clone();
                return Err(EncodeError::Spline { spline, problem });
            }
            means.push((mean, sd));
        }
        Ok(AgreedSpline { term, knots, columns: means })
    }

    /// The splines, once nothing is asked any more, and what it cost to agree on them, in bits up
    /// and down.
    pub fn end(self) -> (Vec<AgreedSpline>, (u64, u64)) {
        (self.agreed, self.bits)
    }
}

/// The greatest power of two that is at most `x`, which is positive and normal.
fn power_of_two(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & (0x7ff << 52))
}

/// Where so many quantiles lie that are evenly spaced: the rank of the value before each, from 1,
/// and the weight of the value behind it.
fn ranks(count: u64, quantiles: usize) -> impl Iterator<Item = (u64, f64)> {
    let (steps, parts) = (u128::from(count - 1), quantiles as u128 + 1);
    (1..parts).map(move |k| {
        let (whole, rest) = (steps * k / parts, steps * k % parts);
        (whole as u64 + 1, rest as f64 / parts as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ColumnSpec, Schema, formula, summarise};
    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![ColumnSpec::number("x"), ColumnSpec::number("y")])
    }

    /// A plan with one spline, and sites with these values.
    fn sites(spline: &str, values: &[&[f64]]) -> (DesignPlan, Vec<Table>) {
        let plan = formula::parse(&format!("y ~ {spline}"), &schema()).unwrap();
        let table = |values: &&[f64]| {
            let text: String = values.iter().map(|value| format!("{value},1\n")).collect();
            Table::parse(&format!("x,y\n{text}"), "x.csv", &schema()).unwrap()
        };
        (plan, values.iter().map(table).collect())
    }

    fn summaries(plan: &DesignPlan, tables: &[Table]) -> Vec<SiteSummary> {
        let each = tables.iter().enumerate();
        each.map(|(k, table)| summarise(&format!("site {k}"), table, plan).unwrap()).collect()
    }

    #[test]
    fn a_few_passes_of_counts_on_a_grid_find_quantiles() {
        let values: Vec<f64> =
            (0..2000).map(|k| f64::from(k * 7919 % 2003).powi(3) / 1e5 + 0.0137).collect();
        let (plan, tables) =
            sites("ns(x, 5)", &[&values[..300], &values[300..301], &values[301..]]);
        let summaries = summaries(&plan, &tables);
        let mut search = KnotSearch::new(&summaries, &plan).unwrap();
        let (_, sd) = search.searches[0].moments;
        let step = power_of_two(sd / FINE);
        assert!(step <= sd / FINE && sd / FINE < 2.0 * step);
        let mut passes = 0;
        while let Some(ask) = search.ask() {
            if let KnotsAsk::Count(asks) = &ask {
                passes += 1;
                let (fine, coarse) = (&asks[0].up_to, &asks[0].below);
                // what is asked about is on the grid, whatever the values are
                assert!(fine.iter().all(|t| (t / step).fract() == 0.0));
                assert!(coarse.iter().all(|t| (t / step / COARSE as f64).fract() == 0.0));
                assert!(fine.len() + coarse.len() <= 10 * (PARTS as usize - 1));
            }
            let told = tables.iter().map(|table| tell(table, &plan, &ask).unwrap());
            search.hear(&told.collect::<Vec<_>>()).unwrap();
        }
        assert!((3..=5).contains(&passes), "{passes}");
        let (agreed, bits) = search.end();
        assert!(bits.0 > 0 && bits.0 == bits.1);
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        for (k, knot) in agreed[0].knots.inner.iter().enumerate() {
            let place = 1999.0 * (k as f64 + 1.0) / 5.0;
            let (at, rest) = (place as usize, place.fract());
            let quantile = (1.0 - rest) * sorted[at] + rest * sorted[at + 1];
            assert!(*knot >= quantile - 1e-9 && knot - quantile <= step, "{knot} {quantile}");
        }
    }

    #[test]
    fn values_that_do_not_vary_have_no_spline() {
        let (plan, tables) = sites("bs(x, 3)", &[&[7.5, 7.5], &[7.5]]);
        let error = KnotSearch::new(&summaries(&plan, &tables), &plan).unwrap_err().to_string();
        assert_eq!(error, "`bs(x, 3)` in the formula: `x` is 7.5 everywhere: leave it out");
        let (plan, tables) = sites("bs(x, 5)", &[&[1.0, 1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]]);
        let all = summaries(&plan, &tables);
        let mut search = KnotSearch::new(&all, &plan).unwrap();
        let error = loop {
            let ask = search.ask().unwrap();
            let told: Vec<KnotsTold> =
                tables.iter().map(|table| tell(table, &plan, &ask).unwrap()).collect();
            if let Err(error) = search.hear(&told) {
                break error.to_string();
            }
        };
        assert!(error.contains("two of its knots are at 1") && error.contains("C(x)"), "{error}");
    }

    #[test]
    fn answers_that_are_none_are_refused_by_their_site() {
        let (plan, tables) = sites("ns(x, 2)", &[&[1.0, 2.0, 3.0], &[4.0, 5.5]]);
        let all = summaries(&plan, &tables);
        let refused = |change: &dyn Fn(&mut KnotsTold)| {
            let mut search = KnotSearch::new(&all, &plan).unwrap();
            let ask = search.ask().unwrap();
            let mut told: Vec<KnotsTold> =
                tables.iter().map(|table| tell(table, &plan, &ask).unwrap()).collect();
            change(&mut told[1]);
            search.hear(&told).unwrap_err().to_string()
        };
        let counts = |change: fn(&mut Vec<u64>)| {
            move |told: &mut KnotsTold| {
                if let KnotsTold::Counts(all) = told {
                    change(&mut all[0].1);
                }
            }
        };
        for said in [
            refused(&counts(|all| all.reverse())),
            refused(&counts(|all| *all.last_mut().unwrap() = 9)),
            refused(&counts(|all| all.push(2))),
            refused(&|told| *told = KnotsTold::Counts(Vec::new())),
            refused(&|told| *told = KnotsTold::Sums(Vec::new())),
        ] {
            let expected = "the summary of site `site 1` is refused: its counts of values are none";
            assert_eq!(said, expected);
        }
    }

    /// Nothing is told of columns that are no splines, however it is asked.
    #[test]
    fn only_splines_are_counted() {
        let (mut plan, tables) = sites("ns(x, 2)", &[&[1.0, 2.0, 3.0]]);
        let ask =
            |term| KnotsAsk::Count(vec![CountAsk { term, below: vec![2.0], up_to: vec![2.0] }]);
        let told = tell(&tables[0], &plan, &ask(0)).unwrap();
        assert_eq!(told, KnotsTold::Counts(vec![(vec![1], vec![2])]));
        assert!(tell(&tables[0], &plan, &ask(1)).is_err());
        plan.terms[0].coding = Coding::Standardised;
        assert!(tell(&tables[0], &plan, &ask(0)).is_err());
    }
}
