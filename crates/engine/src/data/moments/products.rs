//! Lay out the columns of products: those of their parts multiplied, as many as are not determined
//! by others.
//!
//! Which levels of a part have columns follows patsy (N. J. Smith, "Coding categorical data"): a
//! product of terms with levels spans the products of all subsets of them, each less its reference
//! level; those that other terms span already are left out, and what is left is written with as
//! few blocks of columns as can be. So `age*sex` compares slopes with that of the reference level,
//! and `sex + age:sex` has a slope for every level.

use std::collections::{BTreeMap, BTreeSet};

use super::{CellRule, Combination, DesignColumn, Layout, has_levels};
use crate::data::derived;
use crate::data::{Coding, Part, Product};

/// How a term is coded.
#[derive(Clone, Debug)]
pub(super) enum Coded {
    /// By numbers: the columns, with what tells them apart where there are several.
    Numbers(Vec<(Option<String>, CellRule)>),
    /// By levels: a column for each, and which one is the reference.
    Levels { all: Vec<(String, CellRule)>, reference: usize },
}

/// Some terms with levels, and whether the column of the reference is among those of each.
type Block = BTreeMap<Part, bool>;

/// For products with these numbers, which sets of terms with levels are spanned already.
type Spanned = BTreeMap<BTreeSet<Part>, BTreeSet<BTreeSet<Part>>>;

impl Layout<'_> {
    /// Add the columns of all products.
    pub(super) fn add_products(&mut self) {
        let mut spanned = self.spanned();
        for (at, product) in self.plan.products.iter().enumerate() {
            if let Some(title) = product.parts.iter().find_map(|part| self.constant(part)) {
                let note = format!("{}: left out, for {title} is.", self.title(&product.parts));
                self.notes.push(note);
                continue;
            }
            let is_factor = |part: &&Part| has_levels(part, self.plan);
            let factors: Vec<Part> = product.parts.iter().filter(is_factor).copied().collect();
            let numbers: BTreeSet<Part> =
                product.parts.iter().filter(|part| !is_factor(part)).copied().collect();
            let of_ones = numbers.is_empty();
            let known = spanned.entry(numbers).or_default();
            let mut blocks: Vec<Block> = Vec::new();
            for subset in subsets(&factors) {
                if known.insert(subset.iter().copied().collect()) {
                    blocks.push(subset.into_iter().map(|part| (part, false)).collect());
                }
            }
            if of_ones {
                self.whole = false; // the columns add up to one, if none did before
            }
            while absorb(&mut blocks) {}
            let before = self.columns.len();
            let empty: usize =
                blocks.iter().map(|block| self.add_block(at, product, &factors, block)).sum();
            let title = self.title(&product.parts);
            self.notes.push(match self.columns.len() - before {
                0 => format!("{title}: no columns, for other terms determine it."),
                1 => format!("{title}: one column, the product of those of its parts."),
                count => format!("{title}: {count} columns, products of those of its parts."),
            });
            if empty > 0 {
                let which = if empty == 1 { "one combination" } else { "some combinations" };
                self.notes.push(format!(
                    "{title}: {which} of levels ({empty}) left out, for no row has it."
                ));
            }
        }
    }

    /// What the terms span that are no products.
    fn spanned(&self) -> Spanned {
        let mut spanned = Spanned::new();
        let ones = spanned.entry(BTreeSet::new()).or_default();
        if !self.whole {
            ones.insert(BTreeSet::new());
        }
        if self.plan.site_effects {
            ones.insert([Part::Site].into());
        }
        for (at, term) in self.plan.terms.iter().enumerate().filter(|(_, term)| !term.hidden) {
            if matches!(term.coding, Coding::Dummy(_)) {
                spanned.entry(BTreeSet::new()).or_default().insert([Part::Term(at)].into());
                continue;
            }
            // a product of numbers is a number of its own: it is that of its parts, too
            let column = |name: &&str| {
                let is_it = |other: &crate::data::Term| {
                    other.column == *name && !matches!(other.coding, Coding::Spline(_))
                };
                self.plan.terms.iter().position(is_it).map(Part::Term)
            };
            let parts = derived::parts(&term.column);
            let of_parts: Option<BTreeSet<Part>> = parts.iter().map(column).collect();
            for numbers in of_parts.into_iter().chain([[Part::Term(at)].into()]) {
                spanned.entry(numbers).or_default().insert(BTreeSet::new());
            }
        }
        spanned
    }

    /// The title of a term that has no columns, for it does not vary.
    fn constant(&self, part: &Part) -> Option<String> {
        match part {
            Part::Site => None,
            Part::Term(term) => match self.coded[*term] {
                Some(_) => None,
                None => Some(self.plan.terms[*term].title.clone()),
            },
        }
    }

    fn title(&self, parts: &[Part]) -> String {
        let title = |part: &Part| match part {
            Part::Site => "site",
            Part::Term(term) => &self.plan.terms[*term].title,
        };
        parts.iter().map(title).collect::<Vec<_>>().join(":")
    }

    /// The columns of one part: what tells them apart, and how they are filled.
    fn columns_of(&self, part: &Part, all: bool) -> Vec<(Option<String>, CellRule)> {
        match part {
            Part::Site => {
                let sites = self.summaries.iter().map(|summary| summary.site.clone());
                let from = usize::from(!all);
                let rule = |site: String| (Some(site.clone()), CellRule::Site { site });
                sites.skip(from).map(rule).collect()
            }
            Part::Term(term) => match &self.coded[*term] {
                Some(Coded::Numbers(columns)) => columns.clone(),
                Some(Coded::Levels { all: levels, reference }) => {
                    let kept = levels.iter().enumerate().filter(|(k, _)| all || k != reference);
                    kept.map(|(_, (level, rule))| (Some(level.clone()), rule.clone())).collect()
                }
                None => Vec::new(),
            },
        }
    }

    /// Add the columns of a block, the first part's fastest; how many combinations no row has.
    fn add_block(
        &mut self,
        at: usize,
        product: &Product,
        factors: &[Part],
        block: &Block,
    ) -> usize {
        let is_in = |part: &&Part| !has_levels(part, self.plan) || block.contains_key(part);
        let parts: Vec<Part> = product.parts.iter().filter(is_in).copied().collect();
        let columns: Vec<Vec<(Option<String>, CellRule)>> = parts
            .iter()
            .map(|part| self.columns_of(part, block.get(part).copied().unwrap_or(false)))
            .collect();
        let (title, mut empty) = (self.title(&parts), 0);
        let count: usize = columns.iter().map(Vec::len).product();
        for mut k in 0..count {
            let (mut words, mut rules) = (Vec::new(), Vec::new());
            let mut levels: BTreeMap<Part, &str> = BTreeMap::new();
            for (part, columns) in parts.iter().zip(&columns) {
                let (word, rule) = &columns[k % columns.len()];
                k /= columns.len();
                if let Some(word) = word.as_deref() {
                    words.push(word);
                    if block.contains_key(part) {
                        levels.insert(*part, word);
                    }
                }
                rules.push(rule.clone());
            }
            if levels.len() > 1 && !self.stated && !self.occurs(at, factors, &levels) {
                empty += 1;
                continue;
            }
            let name = match words.is_empty() {
                true => title.clone(),
                false => format!("{title}: {}", words.join(":")),
            };
            let rule = match (rules.len(), rules.pop()) {
                (1, Some(one)) => one,
                (_, last) => {
                    rules.extend(last);
                    CellRule::Product { parts: rules }
                }
            };
            self.columns.push(DesignColumn { name, rule });
        }
        empty
    }

    /// Whether some row has these levels; those that are missing count as the most common one.
    fn occurs(&self, at: usize, factors: &[Part], levels: &BTreeMap<Part, &str>) -> bool {
        let is_usual = |part: &Part, level: &str| match part {
            Part::Site => false,
            Part::Term(term) => match &self.coded[*term] {
                Some(Coded::Levels { all, .. }) => all.iter().any(|(known, rule)| {
                    known == level && matches!(rule, CellRule::Level { fill: true, .. })
                }),
                _ => false,
            },
        };
        let has = |row: &Combination| {
            factors.iter().zip(row).all(|(part, found)| match (levels.get(part), found) {
                (None, _) => true,
                (Some(level), Some(found)) => level == found,
                (Some(level), None) => is_usual(part, level),
            })
        };
        self.summaries.iter().any(|summary| summary.combinations[at].iter().any(has))
    }
}

/// All subsets, fewer members first, else in order.
fn subsets(all: &[Part]) -> Vec<Vec<Part>> {
    let mut masks: Vec<u32> = (0..1u32 << all.len().min(16)).collect();
    masks.sort_by_key(|mask| (mask.count_ones(), std::cmp::Reverse(mask.reverse_bits())));
    let chosen = |mask: u32| {
        let places = (0..all.len()).filter(move |k| mask & (1 << k) != 0);
        places.map(|k| all[k]).collect()
    };
    masks.into_iter().map(chosen).collect()
}

/// Write the first block that another one can take in as a part of that: `a` and `a:b`, each less
/// its reference, are `a:b` with all levels of `b`.
fn absorb(blocks: &mut Vec<Block>) -> bool {
    for short in 0..blocks.len() {
        for long in short + 1..blocks.len() {
            let (a, b) = (&blocks[short], &blocks[long]);
            let within = a.iter().all(|(part, all)| b.get(part) == Some(all));
            if b.len() != a.len() + 1 || !within {
                continue;
            }
            let more = b.keys().find(|part| !a.contains_key(part)).copied();
            if let Some(part) = more {
                blocks[long].insert(part, true);
                blocks.remove(short);
                return true;
            }
        }
    }
    false
}
