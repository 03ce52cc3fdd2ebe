//! Show responses that the model would draw beside those that there are.

use consilience_engine::check::{Check, Compared, DOUBTFUL, short};
use consilience_engine::loo::Loo;
use maud::{Markup, html};

use crate::facts::Facts;
use crate::plot::{Frame, Names, dot, line};
use crate::scale::Scale;
use crate::words::{bytes, decimals, many};

/// Sites with a line of their own.
const MOST_SITES: usize = 60;

/// The whole section.
pub fn section(facts: &Facts) -> Markup {
    let Some(check) = &facts.record.check else {
        return html! { (left_out(facts)) p.soft { "Nothing was drawn anew: the model has no law of \
        single responses, the sites have not been asked, or it was left out (see the warnings). "
        code { "consilience check" } " does it for a run that was kept." } };
    };
    let events = check.unit == "events";
    let doubtful: Vec<&Compared> = check.statistics.iter().filter(|s| s.p <= DOUBTFUL).collect();
    html! {
        p {
            "The sites drew the " (check.unit) " of their " (many(check.rows, "row")) " anew at "
            (many(check.replicates as u64, "draw")) ", and sent counts and sums of them. "
            @if doubtful.is_empty() {
                strong { "They look like those that there are" }
                ": no p is below " (DOUBTFUL) "."
            } @else {
                strong { "They do not look like those that there are" } ": p is below " (DOUBTFUL)
                " for " (doubtful.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", "))
                ". The warnings say what to do."
            }
        }
        @if let Some(fit) = &check.fit {
            p { strong { (fit.measure) " " (decimals(fit.value, 3)) }
                @if fit.measure == "AUC" {
                    " (between " (decimals(fit.lower, 3)) " and " (decimals(fit.upper, 3))
                    ", from counts in bins of the probability): how often of two rows with \
                    different labels the one with label 1 has the higher probability."
                } @else {
                    " (89% between " (decimals(fit.lower, 3)) " and " (decimals(fit.upper, 3))
                    "): the variance of what is expected over that of responses."
                }
            }
        }
        (table(check))
        div.two {
            figure {
                h3 { @if events { "Events by time" } @else { "Responses by bin" } }
                (beside(&check.bins, "Counts by bin, observed and replicated"))
            }
            @if !check.sites.is_empty() {
                figure {
                    h3 { @if events { "Events of the sites" } @else { "Means of the sites" } }
                    (beside(&check.sites[..check.sites.len().min(MOST_SITES)],
                        "Sites, observed and replicated"))
                    @if check.sites.len() > MOST_SITES {
                        figcaption { "The first " (MOST_SITES) " sites." }
                    }
                }
            }
        }
        p.soft { "Ring: what was observed. Line: where 89% of replicates are; dot: their mean. \
            Sites would send " (bytes(8.0 * check.bytes as f64)) " in all for this." }
        (left_out(facts))
    }
}

/// How well rows are predicted that were left out, where that is known.
fn left_out(facts: &Facts) -> Markup {
    let Some(loo) = &facts.record.loo else {
        return html! { p.soft { "How well rows would be predicted that were left out is not known \
        here: " code { "consilience loo" } " finds it, and keeps it for this page." } };
    };
    let Loo { total, unit, .. } = loo;
    let all = [("all".to_owned(), *total)];
    let rows = loo.sites.iter().take(MOST_SITES).chain(&all);
    html! {
        h3 { "Rows left out" }
        p {
            "Of " (many(total.rows, &unit[..unit.len() - 1])) " each predicted by all others \
            (PSIS-LOO, by each site of its own): "
            strong { "elpd " (decimals(total.sum, 1)) } ", standard error "
            (decimals(total.error(), 1)) "; effective number of parameters "
            (decimals(total.parameters(), 1)) ". "
            @if loo.doubtful() == 0 {
                "The draws tell of all of them what would be without it (k at most "
                (decimals(loo.good_k, 2)) ")."
            } @else {
                strong {
                    "Of " (loo.doubtful()) " the draws do not tell what would be without them"
                }
                " (k above " (decimals(loo.good_k, 2)) "), so that elpd is not to be relied on."
            }
        }
        div.table tabindex="0" role="region" aria-label="Rows left out, by site" {
            table {
                thead { tr {
                    @for column in ["", unit, "elpd", "se", "p_loo", "k good", "k bad", "k > 1"] {
                        th scope="col" { (column) } }
                } }
                tbody { @for (name, elpd) in rows { tr {
                    th scope="row" { span.name { (name) } }
                    td { (elpd.rows) }
                    @for x in [elpd.sum, elpd.error(), elpd.parameters()] {
                        td { (decimals(x, 1)) }
                    }
                    @for count in elpd.by_k { td { (count) } }
                } } }
            }
        }
    }
}

fn table(check: &Check) -> Markup {
    html! {
        div.table tabindex="0" role="region" aria-label="Observed and replicated" {
            table {
                thead { tr {
                    th scope="col" { "of the " (check.unit) }
                    @for column in ["observed", "replicated", "5.5%", "94.5%", "p"] {
                        th scope="col" { (column) } }
                } }
                tbody { @for s in &check.statistics { tr {
                    th scope="row" { span.name { (s.name) } }
                    @for x in [s.observed, s.replicated, s.lower, s.upper] { td { (short(x)) } }
                    td.bad[s.p <= DOUBTFUL] { (decimals(s.p, 3)) }
                } } }
            }
        }
    }
}

/// Replicates as intervals, what was observed as a ring.
fn beside(all: &[Compared], says: &str) -> Markup {
    let top = 6.0;
    let names = Names::new(all.iter().map(|of| of.name.as_str()), top, 22.0);
    let bottom = names.bottom();
    let frame = Frame { left: names.left, right: 8.0, height: bottom + 20.0 };
    let ends = |of: &Compared| [of.lower, of.upper, of.observed, of.replicated];
    let Some(scale) = Scale::around(all.iter().flat_map(ends), 0.0, 100.0) else {
        return frame.draw(says, &frame.reason("nothing was counted"));
    };
    let inside = html! {
        (frame.below(&scale, top, bottom, 5))
        @for (k, of) in all.iter().enumerate() {
            @let y = names.middle(k);
            (names.draw(k))
            g {
                title { (of.name) ": observed " (short(of.observed)) ", replicated "
                    (short(of.replicated)) ", 89% from " (short(of.lower)) " to "
                    (short(of.upper)) }
                (line("thin", (scale.at(of.lower), y), (scale.at(of.upper), y)))
                (dot("dot", (scale.at(of.replicated), y), 3.0))
                (dot("ring", (scale.at(of.observed), y), 4.5))
            }
        }
    };
    frame.draw(says, &inside)
}
