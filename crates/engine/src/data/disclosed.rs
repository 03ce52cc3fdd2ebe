//! Count what a site tells of the columns of splines, and refuse a server that asks for more than
//! their knots can need.

use std::collections::{BTreeMap, BTreeSet};

use super::knots::{KnotsAsk, PARTS};
use super::spline::Knots;
use super::{Coding, DesignPlan, EncodeError, Term};

/// A search takes no more passes than this: brackets of 64^6 steps are those of 10^13 values.
const MOST_PASSES: usize = 6;
/// How often a search begins anew in a run, since a site was mended: a few times.
const MOST_SEARCHES: usize = 3;

/// What a site has told of its splines in a run: a server that asks for more than a few searches
/// can need would learn the values themselves.
#[derive(Clone, Debug, Default)]
pub struct Disclosed {
    /// The numbers, in bits, below or up to which values of a column were counted.
    counted: BTreeMap<String, BTreeSet<(bool, u64)>>,
    summed: Vec<Vec<(usize, Knots)>>,
}

impl Disclosed {
    /// Take note of what is asked, or refuse it. What was told before may be asked again.
    pub fn admit(&mut self, plan: &DesignPlan, ask: &KnotsAsk) -> Result<(), EncodeError> {
        match ask {
            KnotsAsk::Count(asks) => {
                for ask in asks {
                    let Some(Term { column, coding: Coding::Spline(spline), .. }) =
                        plan.terms.get(ask.term)
                    else {
                        continue; // refused where it is answered
                    };
                    let known = self.counted.entry(column.clone()).or_default();
                    known.extend(ask.below.iter().map(|t| (true, t.to_bits())));
                    known.extend(ask.up_to.iter().map(|t| (false, t.to_bits())));
                    let sought = 2 + 2 * spline.inner_knots();
                    let most = sought * PARTS as usize * MOST_PASSES * MOST_SEARCHES;
                    if known.len() > most {
                        return Err(EncodeError::TooCurious { column: column.clone(), most });
                    }
                }
            }
            KnotsAsk::Sum(splines) if self.summed.contains(splines) => {}
            KnotsAsk::Sum(_) if self.summed.len() == MOST_SEARCHES => {
                let (column, most) = ("every spline".to_owned(), MOST_SEARCHES);
                return Err(EncodeError::TooCurious { column, most });
            }
            KnotsAsk::Sum(splines) => self.summed.push(splines.clone()),
        }
        Ok(())
    }
}
