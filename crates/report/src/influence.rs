//! Show how far the posterior mean would move without each site.

use consilience_engine::influence::{Influence, SiteInfluence};
use maud::{Markup, html};

use crate::facts::Facts;
use crate::plot::{Frame, NARROW, Names, bar, line, slanted, words};
use crate::words::{breadth, bytes, count, decimals, many};

/// Parameters and sites with cells of their own.
const MOST_CELLS: usize = 40;
/// With more sites than this, cells hold no number and columns are numbered.
const MOST_NAMED: usize = 6;
/// Lines of the table.
const MOST_LINES: usize = 100;
const ROW: f64 = 20.0;
/// The widest name over a column; where there is a wider one, columns are numbered.
const LONGEST: f64 = 190.0;
/// What a slanting text takes of its length, across and downward.
const SLANT: f64 = 0.71;

/// The whole section.
pub fn section(facts: &Facts) -> Markup {
    let Some(influence) = facts.record.influence.as_ref().filter(|i| !i.sites.is_empty()) else {
        return html! { p.soft { "It was not computed for this run (see the warnings)." } };
    };
    html! {
        p {
            "By how many posterior standard deviations each parameter's mean would move if a site \
             had not taken part, to first order: "
            strong { "Cov(θ, Uᵢ(θ)) / (T · sd(θ))" }
            ", over " (many(influence.draws as u64, "draw"))
            ", where Uᵢ is the site's negative log-likelihood and T the temperature. "
            "No chain was run again. The true shift is larger for a site that holds much of the \
             information on a parameter: about 1/(1 − share) times the number shown, and without \
             limit for a parameter that this site alone informs."
        }
        (map(facts, influence))
        (table(facts, influence))
        p.soft { "In a federation this takes one number a draw from each site, its Uᵢ, and the \
            draws down to the sites. It is not among the bytes counted here." }
    }
}

/// The sites, by their place and name.
fn sites<'a>(
    facts: &'a Facts,
    influence: &'a Influence,
) -> Vec<(usize, String, &'a SiteInfluence)> {
    let named = |k: usize| {
        facts
            .record
            .sites
            .get(k)
            .map_or_else(|| format!("site {}", k + 1), |site| site.name.clone())
    };
    influence.sites.iter().enumerate().map(|(k, site)| (k, named(k), site)).collect()
}

/// Those with the largest numbers, in their order.
fn largest<T>(
    mut all: Vec<T>,
    most: usize,
    size: impl Fn(&T) -> f64,
    index: impl Fn(&T) -> usize,
) -> Vec<T> {
    if all.len() > most {
        all.sort_by(|a, b| size(b).total_cmp(&size(a)));
        all.truncate(most);
        all.sort_by_key(index);
    }
    all
}

/// The largest finite size among some numbers.
fn peak(values: impl Iterator<Item = f64>) -> f64 {
    values.map(f64::abs).filter(|x| x.is_finite()).fold(0.0, f64::max)
}

/// One cell for each parameter and site.
fn map(facts: &Facts, influence: &Influence) -> Markup {
    let columns = largest(
        sites(facts, influence),
        MOST_CELLS,
        |(_, _, site)| peak(site.shift.iter().copied()),
        |(k, _, _)| *k,
    );
    let parameters: Vec<usize> = (0..facts.parameters.len()).collect();
    let shift = |site: &SiteInfluence, k: usize| site.shift.get(k).copied().unwrap_or(f64::NAN);
    let rows = largest(
        parameters,
        MOST_CELLS,
        |k| peak(influence.sites.iter().map(|site| shift(site, *k))),
        |k| *k,
    );
    let most = peak(columns.iter().flat_map(|(_, _, site)| rows.iter().map(|k| shift(site, *k))));
    let named = columns.len() <= MOST_NAMED;
    let titled = named && columns.iter().all(|(_, title, _)| breadth(title) <= LONGEST);
    let wide = 100.0 / columns.len() as f64;
    // The names of the sites stand over their columns: level where they fit, else slanting to the
    // left, over the names of the parameters.
    let longest = if titled {
        columns.iter().map(|(_, title, _)| breadth(title)).fold(0.0, f64::max)
    } else {
        0.0
    };
    let parameters = || rows.iter().map(|k| facts.parameters[*k].name.as_str());
    let column = |left: f64| (NARROW - left - 4.0) * wide / 100.0;
    let level = Names::new(parameters(), 0.0, ROW).left;
    let slant = longest + 6.0 > column(level);
    let (left, top) =
        if slant { (level.max(SLANT * longest), SLANT * longest + 14.0) } else { (level, 18.0) };
    let names = Names::new(parameters(), top, ROW);
    let frame = Frame { left, right: 4.0, height: names.bottom() + 4.0 };
    let every = (breadth("0000") / column(left)).ceil().max(1.0) as usize;
    let inside = html! {
        @for (j, (site, title, _)) in columns.iter().enumerate() {
            @let x = wide * (j as f64 + 0.5);
            @if titled && slant { (slanted("dim end", (x, top - 6.0), title)) }
            @else if titled { (words("dim middle", (x, 12.0), title)) }
            @else if every == 1 || (j + 1) % every.next_multiple_of(5) == 0 || j == 0 {
                (words("dim middle", (x, 12.0), &(site + 1).to_string())) }
        }
        @for (i, k) in rows.iter().enumerate() {
            @let (from, to) = names.row(i);
            (names.draw(i))
            @for (j, (_, title, site)) in columns.iter().enumerate() {
                @let value = shift(site, *k);
                @let strength = if most > 0.0 && value.is_finite() { 0.6 * value.abs() / most }
                    else { 0.0 };
                g {
                    title { (facts.parameters[*k].name) " \
                        without " (title) ": " (decimals(value, 2)) " sd" }
                    g fill-opacity=(format!("{strength:.2}")) {
                        (bar(if value < 0.0 { "cold" } else { "hot" }, (wide * j as f64, from),
                            (wide, to - from))) }
                    @if named { (words("middle",
                        (wide * (j as f64 + 0.5), f64::midpoint(from, to) + 4.0),
                            &decimals(value, 2))) }
                }
            }
            (line("grid", (0.0, from), (100.0, from)))
        }
        @for j in 0..=columns.len() {
            (line("grid", (wide * j as f64, top), (wide * j as f64, names.bottom()))) }
        (line("grid", (0.0, names.bottom()), (100.0, names.bottom())))
    };
    let left_out = (facts.parameters.len() - rows.len(), influence.sites.len() - columns.len());
    html! {
        figure.wide {
            (frame.draw("How far each parameter's mean would move without each site", &inside))
            figcaption {
                "Orange: the mean would rise without the site; blue: it would fall. The strongest \
                 colour is " (decimals(most, 2)) " posterior standard deviations."
                @if !titled { " Columns are the sites by their number in the table." }
                @if left_out.0 > 0 { " The " (rows.len()) " parameters that would move most, \
                    of " (count(facts.parameters.len() as u64)) "." }
                @if left_out.1 > 0 { " The " (columns.len()) " sites that move them most, \
                    of " (count(influence.sites.len() as u64)) "." }
            }
        }
    }
}

/// The sites: rows, bytes and influence.
fn table(facts: &Facts, influence: &Influence) -> Markup {
    let shown = largest(
        sites(facts, influence),
        MOST_LINES,
        |(_, _, site)| peak(site.shift.iter().copied()),
        |(k, _, _)| *k,
    );
    let rms =
        |shift: &[f64]| (shift.iter().map(|s| s * s).sum::<f64>() / shift.len() as f64).sqrt();
    html! {
        div.table tabindex="0" role="region" aria-label="Rows, bytes and influence of the sites" {
            table {
                thead { tr { @for column in ["site", "rows", "sent", "received", "moves most",
                    "by (sd)", "Monte Carlo error", "typical (sd)"] { th scope="col" { (column) } }
                        } }
                tbody {
                    @for (k, title, site) in &shown {
                        tr {
                            th scope="row" { span.name { (k + 1) ". " (title) } }
                            @if let Some(record) = facts.record.sites.get(*k) {
                                td { (count(record.rows)) }
                                td { (bytes(record.bits.0 as f64)) }
                                td { (bytes(record.bits.1 as f64)) }
                            } @else { td { "–" } td { "–" } td { "–" } }
                            td { (facts.parameters.get(site.most).map_or("–",
                                |p| p.name.as_str())) }
                            td { (decimals(site.shift.get(site.most).copied().unwrap_or(f64::NAN),
                                2)) }
                            td { (decimals(site.error, 2)) }
                            td { (decimals(rms(&site.shift), 2)) }
                        }
                    }
                }
            }
        }
        @if influence.sites.len() > shown.len() { p.soft { "The " (shown.len()) " sites with the \
            largest shifts, of " (count(influence.sites.len() as u64)) "." } }
        p.soft { "Typical: the root mean square over all parameters." }
    }
}
