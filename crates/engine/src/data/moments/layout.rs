//! Lay out the columns of the design, leaving out those that others determine.

use super::{CellRule, Coded, DesignColumn, Layout, TermSummary, show};
use crate::data::spline::{Knots, Spline};
use crate::data::{Coding, Missing, ReferenceLevel, Term};

/// Two indicators that share more than this part of their rows are said to be hard to tell apart.
const OVERLAP: f64 = 0.8;

impl Layout<'_> {
    /// Add a term's columns.
    pub(super) fn add_term(&mut self, at: usize) {
        let term = &self.plan.terms[at];
        let missing = self.missing(at);
        let levels = if term.coding.is_number() { Vec::new() } else { self.merge_levels(at) };
        self.levels.push(levels.iter().map(|(level, _)| level.clone()).collect());
        self.seen.push(
            levels.iter().filter(|(_, count)| *count > 0).map(|(level, _)| level.clone()).collect(),
        );
        self.coded.push(None);
        if missing == self.rows {
            return self
                .notes
                .push(format!("{}: left out, for no site has a value of it.", term.title));
        }
        if missing > 0 && term.missing == Missing::DropColumn {
            return self.notes.push(format!(
                "{}: left out, for {} missing.",
                term.title,
                self.share(missing)
            ));
        }
        let kept = match term.coding {
            Coding::Standardised | Coding::Raw | Coding::Centred => self.add_numbers(at, term),
            Coding::Spline(spline) => self.add_spline(at, term, spline),
            Coding::Binary => self.add_levels(at, term, levels, true),
            Coding::Dummy(_) => self.add_levels(at, term, levels, false),
        };
        if kept {
            self.add_indicator(at, term, missing);
        }
    }

    /// Add one column for every site but the first, or for all where they replace the intercept.
    pub(super) fn add_sites(&mut self) {
        let from = usize::from(!std::mem::take(&mut self.whole));
        for summary in &self.summaries[from.min(self.summaries.len())..] {
            let site = summary.site.clone();
            self.columns.push(DesignColumn {
                name: format!("site: {site}"),
                rule: CellRule::Site { site },
            });
        }
        if from == 1 {
            self.notes.push(format!(
                "Site effects compare each other site with {}.",
                self.summaries[0].site
            ));
        } else {
            self.notes.push("Each site has its own intercept.".into());
        }
    }

    /// Merge the sites' sums into a mean and a deviation.
    fn add_numbers(&mut self, at: usize, term: &Term) -> bool {
        let parts: Vec<(f64, f64, f64)> =
            self.summaries.iter().filter_map(|summary| parts(&summary.terms[at])).collect();
        let count: f64 = parts.iter().map(|(n, _, _)| n).sum();
        let mean = parts.iter().map(|(_, sum, _)| sum).sum::<f64>() / count;
        let within: f64 = parts.iter().map(|(_, _, squares)| squares).sum();
        let between: f64 =
            parts.iter().map(|(n, sum, _)| n * (sum / n - mean) * (sum / n - mean)).sum();
        let sd = |squares: f64| (squares / (count - 1.0).max(1.0)).sqrt();
        let flat = |sd: f64| sd <= 1e-12 * mean.abs();
        let whole = sd(within + between);
        let rule = match term.coding {
            Coding::Raw => CellRule::Raw { term: at, mean },
            Coding::Centred => CellRule::Standardised { term: at, mean, sd: 1.0 },
            _ => CellRule::Standardised { term: at, mean, sd: whole },
        };
        if !flat(whole) {
            self.coded[at] = Some(Coded::Numbers(vec![(None, rule.clone())]));
        }
        if flat(whole) {
            self.notes.push(format!(
                "{}: left out, for it is {} everywhere.",
                term.title,
                show(mean)
            ));
            return false;
        }
        if self.plan.site_effects && !term.hidden && flat(sd(within)) && self.missing(at) == 0 {
            self.notes.push(format!(
                "{}: left out, for it does not vary within a site, so the site \
                effects determine it.",
                term.title
            ));
            return false;
        }
        let (title, shown) = (&term.title, (show(mean), show(whole)));
        let note = match term.coding {
            Coding::Raw => {
                format!("{title}: as it is; its federated mean is {} ({count} values).", shown.0)
            }
            Coding::Centred => {
                format!("{title}: less the federated mean {} of {count} values.", shown.0)
            }
            _ => format!(
                "{title}: standardised by the federated mean {} and standard deviation {} of \
                 {count} values.",
                shown.0, shown.1
            ),
        };
        if !term.hidden {
            self.columns.push(DesignColumn { name: title.clone(), rule });
        }
        self.notes.push(note);
        true
    }

    /// Add the columns of a spline, once all agree on its knots.
    fn add_spline(&mut self, at: usize, term: &Term, spline: Spline) -> bool {
        let Some(agreed) = self.splines.iter().find(|agreed| agreed.term == at) else {
            return false; // no site has a value of it
        };
        let mut rules = Vec::new();
        for (part, (mean, sd)) in agreed.columns.iter().copied().enumerate() {
            let (centre, scale) = if spline.standardised { (mean, sd) } else { (0.0, 1.0) };
            let knots = agreed.knots.clone();
            let rule = CellRule::Spline { term: at, part, knots, centre, scale, usual: mean };
            let name = format!("{}: {}", term.title, part + 1);
            rules.push((Some((part + 1).to_string()), rule.clone()));
            if !term.hidden {
                self.columns.push(DesignColumn { name, rule });
            }
        }
        self.coded[at] = Some(Coded::Numbers(rules));
        let Knots { inner, bounds: (low, high), .. } = &agreed.knots;
        let inner = match &inner[..] {
            [] => "no inner knots".into(),
            [one] => format!("an inner knot at the median {}", show(*one)),
            all => {
                let all: Vec<String> = all.iter().map(|knot| show(*knot)).collect();
                format!("inner knots at the quantiles {}", all.join(", "))
            }
        };
        let columns = if spline.standardised { "standardised" } else { "as they are" };
        self.notes.push(format!(
            "{}: {inner}, outer ones at {} and {}, by counts of all sites' values; its {} columns \
             are {columns}.",
            term.title,
            show(*low),
            show(*high),
            agreed.columns.len(),
        ));
        true
    }

    /// Add a column for every level but the reference.
    fn add_levels(
        &mut self,
        at: usize,
        term: &Term,
        levels: Vec<(String, u64)>,
        binary: bool,
    ) -> bool {
        let seen: Vec<(String, u64)> = levels.into_iter().filter(|(_, count)| *count > 0).collect();
        let mode = seen
            .iter()
            .rev()
            .max_by_key(|(_, count)| *count)
            .map(|(level, _)| level.clone())
            .unwrap_or_default();
        let rule = |level: &String| CellRule::Level {
            term: at,
            level: level.clone(),
            fill: *level == mode,
        };
        if seen.len() == 1 && term.hidden && !binary {
            let all = seen.iter().map(|(level, _)| (level.clone(), rule(level))).collect();
            self.coded[at] = Some(Coded::Levels { all, reference: 0 });
            return true;
        }
        if seen.len() == 1 {
            self.notes.push(format!("{}: left out, for it is {mode} everywhere.", term.title));
            return false;
        }
        let named =
            term.reference.iter().find(|named| seen.iter().any(|(level, _)| level == *named));
        let (reference, why) = match term.coding {
            _ if named.is_some() => (named.cloned().unwrap_or_default(), "as the formula says"),
            Coding::Dummy(ReferenceLevel::MostCommon) => (mode.clone(), "the most common level"),
            _ => (seen[0].0.clone(), "the first level"),
        };
        // compared with 1 a column of 0 and 1 has levels
        let binary = binary && reference != "1";
        self.coded[at] = Some(if binary {
            Coded::Numbers(vec![(None, rule(&"1".into()))])
        } else {
            let all = seen.iter().map(|(level, _)| (level.clone(), rule(level))).collect();
            let place = seen.iter().position(|(level, _)| *level == reference);
            Coded::Levels { all, reference: place.unwrap_or(0) }
        });
        if term.hidden {
            return true;
        }
        let all = !binary && std::mem::take(&mut self.whole);
        let (mut names, mut determined) = (0, Vec::new());
        for (level, _) in seen.iter().filter(|(level, _)| all || *level != reference) {
            if self.plan.site_effects && self.constant_within_sites(at, level, level == &mode) {
                determined.push(level.as_str());
                continue;
            }
            names += 1;
            let name = if binary { term.title.clone() } else { format!("{}: {level}", term.title) };
            self.columns.push(DesignColumn { name, rule: rule(level) });
        }
        let of_reference =
            seen.iter().find(|(level, _)| *level == reference).map_or(0, |(_, count)| *count);
        self.notes.push(match (binary, all) {
            (true, _) => format!("{}: 0 or 1, as it is.", term.title),
            (false, true) => {
                format!("{}: one column a level, in place of the intercept.", term.title)
            }
            (false, false) => format!(
                "{}: compared with {reference} ({why}; {of_reference} of {} rows).",
                term.title, self.rows
            ),
        });
        if !determined.is_empty() {
            let levels = determined.join(", ");
            self.notes.push(format!(
                "{}: {levels} left out, for the site effects determine it.",
                term.title
            ));
        }
        names > 0
    }

    /// Say what is missing, and mark it where the rule asks for it and nothing else does already.
    fn add_indicator(&mut self, at: usize, term: &Term, missing: u64) {
        if missing == 0 {
            return;
        }
        if term.missing == Missing::Integrate {
            let share = self.share(missing);
            return self.notes.push(format!(
                "{}: {share} missing, integrated over: it is normal given the complete columns.",
                term.title
            ));
        }
        let by = if term.coding.is_number() {
            "the federated mean"
        } else {
            "the most common level of the federation"
        };
        let mut note = format!("{}: {} missing, imputed by {by}", term.title, self.share(missing));
        let wanted = matches!(term.missing, Missing::Indicate { above }
            if missing as f64 > above * self.rows as f64);
        let twin = self.nearest_indicator(at, missing);
        let all_or_none = |s: &super::SiteSummary| [0, s.rows].contains(&s.terms[at].observed());
        if !wanted {
            note += ".";
        } else if let Some((_, _, other)) = twin.filter(|(both, either, _)| both == either) {
            note += &format!(
                "; the indicator of {other} marks the same rows, so there is no second one."
            );
        } else if self.plan.site_effects && self.summaries.iter().all(all_or_none) {
            note +=
                "; no indicator, for whole sites are missing and the site effects determine it.";
        } else {
            note += "; an indicator marks them.";
            if let Some((both, either, other)) =
                twin.filter(|(both, either, _)| *both as f64 > OVERLAP * *either as f64)
            {
                note += &format!(
                    " It coincides with that of {other} in {both} of {either} rows, so read the \
                     two together."
                );
            }
            self.columns.push(DesignColumn {
                name: format!("{}: missing", term.title),
                rule: CellRule::Missing { term: at },
            });
        }
        self.notes.push(note);
    }

    /// The earlier indicator that is most like this one's would be: the rows that both mark, those
    /// that either marks, and its title.
    fn nearest_indicator(&self, at: usize, missing: u64) -> Option<(u64, u64, &str)> {
        let compare = |other: usize| {
            let said = self.summaries.iter().flat_map(|summary| &summary.both_missing);
            let both: u64 =
                said.filter(|(a, b, _)| (*a, *b) == (other, at)).map(|(_, _, rows)| rows).sum();
            (
                both,
                (missing + self.missing(other)).saturating_sub(both),
                self.plan.terms[other].title.as_str(),
            )
        };
        let marked = |term: &usize| {
            self.columns.iter().any(|column| column.rule == CellRule::Missing { term: *term })
        };
        let share = |(both, either, _): &(u64, u64, &str)| *both as f64 / (*either).max(1) as f64;
        (0..at).filter(marked).map(compare).max_by(|a, b| share(a).total_cmp(&share(b)))
    }

    /// In how many rows of the federation a term is missing.
    fn missing(&self, at: usize) -> u64 {
        self.summaries.iter().map(|summary| summary.rows - summary.terms[at].observed()).sum()
    }

    /// Whether, at every site, all rows have this level or none has.
    fn constant_within_sites(&self, at: usize, level: &str, fill: bool) -> bool {
        self.summaries.iter().all(|summary| {
            let TermSummary::Levels(counts) = &summary.terms[at] else { return false };
            let having =
                counts.iter().find(|(known, _)| known == level).map_or(0, |(_, count)| *count);
            let imputed = if fill { summary.rows - summary.terms[at].observed() } else { 0 };
            [0, summary.rows].contains(&(having + imputed))
        })
    }

    /// All levels with their counts in the federation: as declared, else sorted.
    fn merge_levels(&self, at: usize) -> Vec<(String, u64)> {
        let mut merged: Vec<(String, u64)> = Vec::new();
        for summary in self.summaries {
            let TermSummary::Levels(counts) = &summary.terms[at] else { continue };
            for (level, count) in counts {
                match merged.iter_mut().find(|(known, _)| known == level) {
                    Some((_, sum)) => *sum += count,
                    None => merged.push((level.clone(), *count)),
                }
            }
        }
        if self.plan.terms[at].coding == Coding::Dummy(ReferenceLevel::MostCommon) {
            let number = |level: &str| level.parse::<f64>().unwrap_or(f64::INFINITY);
            merged.sort_by(|(a, _), (b, _)| number(a).total_cmp(&number(b)).then_with(|| a.cmp(b)));
        }
        merged
    }

    fn share(&self, missing: u64) -> String {
        format!(
            "{missing} of {} values ({:.1}%)",
            self.rows,
            100.0 * missing as f64 / self.rows as f64
        )
    }
}

/// The count, sum and squares of a site that has any.
pub(super) fn parts(term: &TermSummary) -> Option<(f64, f64, f64)> {
    match term {
        TermSummary::Numbers { observed, sum, squares } if *observed > 0 => {
            Some((*observed as f64, *sum, *squares))
        }
        _ => None,
    }
}
