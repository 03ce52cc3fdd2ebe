//! Lay out the columns of the design by what a config states of them.

use super::{CellRule, Coded, DesignColumn, Layout, Moments, ResponseMoments, show};
use crate::data::spline::{Basis, Knots, Spline};
use crate::data::stated::{StatedCoding, StatedColumn, StatedError, line};
use crate::data::{Coding, DesignPlan, Kind, Missing, Schema, SiteSummary, Term, VaryingSlope};

/// What a plan and a statement make of the columns: the plan with what happens where a value is
/// missing, and the layout that all sites know without having said anything.
pub(crate) fn lay_out(
    coding: &StatedCoding,
    plan: &DesignPlan,
    schema: &Schema,
    sites: &[String],
) -> Result<(DesignPlan, Moments), StatedError> {
    let mut plan = plan.clone();
    let mut stated: Vec<StatedColumn> = Vec::new();
    let (mut columns, mut lines) = (Vec::new(), Vec::new());
    for term in &mut plan.terms {
        let known = by_schema(coding, term, schema);
        match known.filter(|known| suffices(known, term)) {
            Some(known) => {
                check(&known, term)?;
                term.missing = missing(&known, term)?;
                stated.push(known);
            }
            None => {
                columns.push(term.column.clone());
                lines.push(line(term, schema.column(&term.column)));
            }
        }
    }
    if !columns.is_empty() {
        return Err(StatedError::Lacks { columns, lines });
    }
    // sites that have said nothing
    let silent = |site: &String| SiteSummary {
        site: site.clone(),
        rows: 0,
        groups: None,
        response_sum: 0.0,
        response_squares: None,
        terms: Vec::new(),
        both_missing: Vec::new(),
        combinations: Vec::new(),
    };
    let silent: Vec<SiteSummary> = sites.iter().map(silent).collect();
    let mut layout = Layout {
        summaries: &silent,
        plan: &plan,
        splines: &[],
        rows: 0,
        stated: true,
        whole: !plan.intercept,
        levels: Vec::new(),
        seen: Vec::new(),
        coded: Vec::new(),
        columns: Vec::new(),
        notes: vec!["Columns are coded by target.coding: no site was asked of its rows.".into()],
    };
    if plan.intercept && plan.ones {
        layout.columns.push(DesignColumn { name: "intercept".into(), rule: CellRule::Intercept });
    }
    for (at, stated) in stated.iter().enumerate() {
        layout.add_stated(at, stated)?;
    }
    layout.add_products();
    if plan.site_effects {
        layout.add_sites();
    }
    let otherwise = |column: &str, problem: &str| {
        Err(StatedError::Otherwise { column: column.into(), problem: problem.into() })
    };
    if layout.columns.is_empty() {
        return otherwise(".", "the design has no columns: keep the intercept or name a term");
    }
    let ones = usize::from(plan.intercept && plan.ones);
    let place = |k: usize| layout.columns.get(k).and_then(|column| column.rule.term());
    for (at, term) in plan.terms.iter().enumerate() {
        if term.missing == Missing::Integrate && place(ones + at) != Some(at) {
            return otherwise(&term.column, "mi( ) is of numbers that are standardised");
        }
    }
    if let Some(VaryingSlope { along, place: first, .. }) = &plan.slope {
        let is_it = |term: &Term| term.column == *along && term.coding.is_one_column();
        if !(place(*first) == Some(0) && plan.terms.first().is_some_and(is_it)) {
            return otherwise(along, "a slope differs between groups along a number");
        }
    }
    let moments = Moments {
        rows: 0,
        sites: sites.to_vec(),
        levels: layout.levels,
        columns: layout.columns,
        response: response(coding, &plan)?,
        notes: layout.notes,
        seen: layout.seen,
    };
    Ok((plan, moments))
}

/// What is stated of a term; levels whose codes the schema has are known without.
fn by_schema(coding: &StatedCoding, term: &Term, schema: &Schema) -> Option<StatedColumn> {
    let stated = coding.of_term(term).cloned();
    let declared = schema.column(&term.column).and_then(|spec| match &spec.kind {
        Kind::Category { levels } if !levels.is_empty() => {
            Some(levels.iter().map(|(_, level)| level.clone()).collect())
        }
        Kind::Binary => Some(vec!["0".to_owned(), "1".to_owned()]),
        _ => None,
    });
    match (stated, declared) {
        (Some(stated), Some(levels)) if stated.levels.is_empty() => {
            Some(StatedColumn { levels, ..stated })
        }
        (None, Some(levels)) => {
            Some(StatedColumn { name: term.column.clone(), levels, ..StatedColumn::default() })
        }
        (stated, _) => stated,
    }
}

/// Whether there is all that a term needs.
fn suffices(stated: &StatedColumn, term: &Term) -> bool {
    match term.coding {
        Coding::Standardised => !stated.centre.is_empty() && !stated.scale.is_empty(),
        Coding::Centred => !stated.centre.is_empty(),
        Coding::Raw => true,
        Coding::Binary | Coding::Dummy(_) => !stated.levels.is_empty(),
        Coding::Spline(spline) => {
            stated.bounds.is_some() && (spline.inner_knots() == 0 || !stated.knots.is_empty())
        }
    }
}

/// Refuse what does not go with a term.
fn check(stated: &StatedColumn, term: &Term) -> Result<(), StatedError> {
    let wrong =
        |problem: String| Err(StatedError::Otherwise { column: term.column.clone(), problem });
    let of_levels = matches!(term.coding, Coding::Binary | Coding::Dummy(_));
    let (knots, bounds) = (!stated.knots.is_empty(), stated.bounds.is_some());
    match term.coding {
        Coding::Spline(spline) => {
            let (df, inner) = (spline.df as usize, spline.inner_knots());
            if stated.knots.len() != inner {
                let found = stated.knots.len();
                return wrong(format!("`{}` has {inner} inner knots, not {found}", term.title));
            }
            let (centre, scale) = (&stated.centre, &stated.scale);
            for (list, name) in [(centre, "centre"), (scale, "scale"), (&stated.filled, "impute")] {
                if ![0, df].contains(&list.len()) {
                    let found = list.len();
                    let problem = format!(
                        "`{}` has {df} columns, and {name} has {found} numbers: state one for \
                         each, or none",
                        term.title
                    );
                    return wrong(problem);
                }
            }
            if stated.centre.is_empty() != stated.scale.is_empty() {
                return wrong("centre and scale of a spline go together".into());
            }
            if !agreed(stated, spline).check() {
                return wrong("knots ascend, and lie within the bounds".into());
            }
        }
        _ if !stated.filled.is_empty() => {
            return wrong("impute is one value; a list is of a spline's columns".into());
        }
        _ if knots || bounds => {
            let name = &term.column;
            return wrong(format!("knots and bounds are of ns({name}, 4) or bs({name}, 5)"));
        }
        _ if of_levels && !(stated.centre.is_empty() && stated.scale.is_empty()) => {
            return wrong("what has levels has no centre and no scale".into());
        }
        Coding::Raw if !(stated.centre.is_empty() && stated.scale.is_empty()) => {
            return wrong("standardise = false: numbers enter as they are, and have none".into());
        }
        _ if stated.centre.len() > 1 || stated.scale.len() > 1 => {
            return wrong("centre and scale are one number each".into());
        }
        _ => {}
    }
    if !of_levels && !stated.levels.is_empty() {
        let problem = format!("it enters as a number here, and C({0}) as levels", term.column);
        return wrong(problem);
    }
    let known =
        |level: &Option<String>| level.as_ref().is_none_or(|level| stated.levels.contains(level));
    let reference = term.reference.as_ref().or(stated.reference.as_ref()).cloned();
    if of_levels && !(known(&reference) && known(&stated.impute)) {
        let levels = stated.levels.join(", ");
        return wrong(format!("reference and impute are among its levels: {levels}"));
    }
    if !of_levels && stated.reference.is_some() {
        return wrong("only levels are compared with a reference".into());
    }
    Ok(())
}

/// What happens where a value of a term is missing: without a statement it is refused.
fn missing(stated: &StatedColumn, term: &Term) -> Result<Missing, StatedError> {
    let wrong = |problem: &str| {
        Err(StatedError::Otherwise { column: term.column.clone(), problem: problem.into() })
    };
    let centred = !stated.centre.is_empty();
    let imputes = stated.impute.is_some() || !stated.filled.is_empty();
    let fills = centred || imputes;
    match term.missing {
        Missing::Integrate if stated.mark || imputes => {
            wrong("what is missing in mi( ) is integrated over: leave impute and mark out")
        }
        Missing::Integrate => Ok(Missing::Integrate),
        Missing::Refuse if stated.mark || imputes => {
            wrong("missing = \"refuse\" in [target]: leave impute and mark out, or that")
        }
        Missing::Refuse => Ok(Missing::Refuse),
        _ if imputes && centred => {
            wrong("a value that is missing is at the centre: leave impute out")
        }
        _ if stated.mark && !fills => {
            wrong("what is marked needs a value in its place: state impute")
        }
        Missing::Impute if stated.mark => {
            wrong("missing = \"impute\" in [target] marks nothing: leave mark out, or that")
        }
        _ if !fills => Ok(Missing::Refuse),
        _ => Ok(Missing::Impute),
    }
}

/// A spline with its stated knots. The values lie about the middle of the outer ones.
fn agreed(stated: &StatedColumn, spline: Spline) -> Knots {
    let (low, high) = stated.bounds.unwrap_or((0.0, 0.0));
    let moments = (0.5 * (low + high), 0.25 * (high - low));
    Knots { spline, bounds: (low, high), inner: stated.knots.clone(), moments }
}

/// In which units usual priors are, where they are in those of the response.
fn response(
    coding: &StatedCoding,
    plan: &DesignPlan,
) -> Result<Option<ResponseMoments>, StatedError> {
    let column = plan.response.column();
    let Some(stated) = coding.column(column) else { return Ok(None) };
    let wrong = |problem: &str| {
        Err(StatedError::Otherwise { column: column.into(), problem: problem.into() })
    };
    let bare = StatedColumn {
        name: stated.name.clone(),
        centre: stated.centre.clone(),
        scale: stated.scale.clone(),
        levels: stated.levels.clone(),
        ..StatedColumn::default()
    };
    if bare != *stated {
        return wrong("of the response levels are stated, or centre and scale, and nothing else");
    }
    match (&stated.centre[..], &stated.scale[..]) {
        ([], []) => Ok(None),
        ([mean], [sd]) if plan.spread => Ok(Some(ResponseMoments { mean: *mean, sd: *sd })),
        ([_], [_]) => wrong("no prior of this model is in units of the response: leave it out"),
        _ => wrong("centre and scale are one number each"),
    }
}

/// The number that stands for a value that is missing.
fn number(stated: &StatedColumn, term: &Term) -> Result<Option<f64>, StatedError> {
    let parse = |text: &String| {
        text.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| {
            let problem = format!("impute is `{text}`, where a number stands for a missing one");
            StatedError::Otherwise { column: term.column.clone(), problem }
        })
    };
    stated.impute.as_ref().map(parse).transpose()
}

impl Layout<'_> {
    /// Add a term's columns by what is stated of it.
    fn add_stated(&mut self, at: usize, stated: &StatedColumn) -> Result<(), StatedError> {
        let term = &self.plan.terms[at];
        let levels = match term.coding {
            Coding::Binary | Coding::Dummy(_) => stated.levels.clone(),
            _ => Vec::new(),
        };
        self.levels.push(levels.clone());
        self.seen.push(levels);
        self.coded.push(None);
        let of = |list: &[f64], k: usize, usual: f64| list.get(k).copied().unwrap_or(usual);
        let (centre, scale) = (of(&stated.centre, 0, 0.0), of(&stated.scale, 0, 1.0));
        let title = &term.title;
        match term.coding {
            Coding::Standardised | Coding::Centred | Coding::Raw => {
                let (rule, note) = match term.coding {
                    Coding::Raw => {
                        let mean = number(stated, term)?.unwrap_or(0.0);
                        (CellRule::Raw { term: at, mean }, format!("{title}: as it is."))
                    }
                    _ => (
                        CellRule::Standardised { term: at, mean: centre, sd: scale },
                        format!("{title}: less {}, divided by {}.", show(centre), show(scale)),
                    ),
                };
                self.coded[at] = Some(Coded::Numbers(vec![(None, rule.clone())]));
                if !term.hidden {
                    self.columns.push(DesignColumn { name: title.clone(), rule });
                }
                self.notes.push(note);
            }
            Coding::Spline(spline) => {
                let knots = agreed(stated, spline);
                let value = number(stated, term)?;
                let filled = value.map(|value| Basis::new(&knots).at(value));
                let filled = filled.or(Some(stated.filled.clone()).filter(|list| !list.is_empty()));
                let mut rules = Vec::new();
                for part in 0..spline.df as usize {
                    let centre = of(&stated.centre, part, 0.0);
                    let usual = filled.as_ref().map_or(centre, |filled| filled[part]);
                    let scale = of(&stated.scale, part, 1.0);
                    let knots = knots.clone();
                    let rule = CellRule::Spline { term: at, part, knots, centre, scale, usual };
                    let name = format!("{title}: {}", part + 1);
                    rules.push((Some((part + 1).to_string()), rule.clone()));
                    if !term.hidden {
                        self.columns.push(DesignColumn { name, rule });
                    }
                }
                self.coded[at] = Some(Coded::Numbers(rules));
                let (low, high) = (show(knots.bounds.0), show(knots.bounds.1));
                let inner: Vec<String> = knots.inner.iter().map(|knot| show(*knot)).collect();
                let inner = if inner.is_empty() { "no".into() } else { inner.join(", ") };
                self.notes.push(format!("{title}: inner knots {inner}, outer {low} and {high}."));
            }
            Coding::Binary | Coding::Dummy(_) => self.add_stated_levels(at, stated),
        }
        if stated.mark {
            self.columns.push(DesignColumn {
                name: format!("{title}: missing"),
                rule: CellRule::Missing { term: at },
            });
        }
        Ok(())
    }

    /// Add a column for every stated level but the reference.
    fn add_stated_levels(&mut self, at: usize, stated: &StatedColumn) {
        let term = &self.plan.terms[at];
        let reference = term.reference.as_ref().or(stated.reference.as_ref());
        let reference = reference.unwrap_or(&stated.levels[0]).clone();
        let rule = |level: &String| CellRule::Level {
            term: at,
            level: level.clone(),
            fill: stated.impute.as_ref() == Some(level),
        };
        // compared with 1 a column of 0 and 1 has levels
        let binary = term.coding == Coding::Binary && reference != "1";
        self.coded[at] = Some(if binary {
            Coded::Numbers(vec![(None, rule(&"1".into()))])
        } else {
            let all = stated.levels.iter().map(|level| (level.clone(), rule(level))).collect();
            let place = stated.levels.iter().position(|level| *level == reference);
            Coded::Levels { all, reference: place.unwrap_or(0) }
        });
        if term.hidden {
            return;
        }
        let all = !binary && std::mem::take(&mut self.whole);
        for level in stated.levels.iter().filter(|level| all || **level != reference) {
            let name = match binary {
                true => term.title.clone(),
                false => format!("{}: {level}", term.title),
            };
            self.columns.push(DesignColumn { name, rule: rule(level) });
        }
        self.notes.push(match (binary, all) {
            (true, _) => format!("{}: 0 or 1, as it is.", term.title),
            (false, true) => {
                format!("{}: one column a level, in place of the intercept.", term.title)
            }
            (false, false) => format!("{}: compared with {reference}.", term.title),
        });
    }
}
