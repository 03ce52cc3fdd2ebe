//! Write the chapter: predicted and actual costs, and whether `auto` chose well.

use std::fmt::Write;

use super::lines;
use super::measured::{AUTOS, Cost, Judged, Measured};
use super::targets::DRAWS;

/// A choice is good if nothing that was run is cheaper by more than this.
const WITHIN: f64 = 1.25;

/// The chapter.
pub fn written(main: &[Judged], variations: &[Judged], bias: &str, absent: &[String]) -> String {
    let about = format!(
        "What `auto` foretells and chooses on real posteriors, and what came out when the other \
         samplers were run as well. Made by `cargo xtask choices`, with CONSILIENCE_DATA for the \
         data that is not built in; every run asks for {DRAWS} effective draws and states \
         nothing else. *Draws* are effective draws of the worst parameter, *tail* those at the \
         11 and 89% points, as a run reports them (forecasts, and `auto` where it judges \
         its own draws, take the 5 and 95% points, where there may be fewer); *exchanges* are \
         those of a chain, all chains side by side; *seconds* are seconds of computing, \
         all sites one after the other on one machine, and *at 20 ms* adds 20 ms for every \
         exchange. *Means* and *sds* are the largest differences to NUTS on the pooled rows, in \
         posterior standard deviations and in per cent, Monte Carlo error of both sides \
         included; *z* is that of a mean in standard errors of both."
    );
    let mut text = format!("# Predicted and actual\n\n{}\n", lines(&about, ""));
    text.push_str(&verdicts(main));
    text.push_str(&foretold(main));
    text.push_str(&costs(main));
    text.push_str(&others(variations));
    text.push_str(bias);
    if !absent.is_empty() {
        let _ = writeln!(text, "\n{}", lines(&format!("Not run: {}.", absent.join("; ")), ""));
    }
    text
}

/// What is to be small, and which `auto` is told to make it so.
const MEASURES: [fn(&Cost) -> f64; AUTOS.len()] = [|c| c.bytes, |c| c.exchanges, Cost::seconds];

/// What the best sampler that was run needs, by a measure of costs.
fn best(judged: &Judged, of: fn(&Cost) -> f64) -> Option<(&Measured, f64)> {
    let usable = judged.runs.iter().filter(|run| run.is_usable && !is_auto(run));
    usable.map(|run| (run, of(&run.cost()))).min_by(|a, b| a.1.total_cmp(&b.1))
}

fn is_auto(run: &Measured) -> bool {
    AUTOS.contains(&run.asked.as_str())
}

/// Whether `auto` was within 25% of the best.
fn verdicts(main: &[Judged]) -> String {
    let says = "What the effective draws that were wanted cost by `auto`, over what they cost by \
        the cheapest sampler that was run and whose draws can be relied on, surveys and pilots \
        of both included. `auto` was told each time what counts (`run.cost`); what it chose is in \
        front, what was cheapest in brackets.";
    let mut text = format!(
        "\n## Whether `auto` chooses well\n\n{}\n\n\
         | data | by bytes | by exchanges | by seconds at 20 ms | within 25% |\n\
         |---|---|---|---|---|\n",
        lines(says, "")
    );
    let (mut good, mut all) = (0, 0);
    for judged in main {
        let mut cells = Vec::new();
        let mut worst: f64 = 0.0;
        for (name, of) in AUTOS.into_iter().zip(MEASURES) {
            let auto = judged.runs.iter().find(|run| run.asked == name);
            let (Some(auto), Some((run, least))) = (auto, best(judged, of)) else { continue };
            let ratio = of(&auto.cost()) / least;
            worst = worst.max(ratio);
            cells.push(format!("{}: {ratio:.2} ({})", auto.sampler, run.sampler));
        }
        if cells.len() < MEASURES.len() {
            continue;
        }
        let within = worst <= WITHIN;
        all += 1;
        good += usize::from(within);
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            judged.target.name,
            cells.join(" | "),
            if within { "yes" } else { "no" }
        );
    }
    let _ = writeln!(text, "\n`auto` is within 25% in all three on {good} of {all}.");
    text
}

/// What sampling was foretold to give and cost, beside what it did.
fn foretold(main: &[Judged]) -> String {
    let says = format!(
        "Effective draws of the run, which is a little longer than its forecast asks for; then \
         what {DRAWS} of them take by sampling alone, surveys and pilots not included, as \
         foretold and by what came out. Forecasts of exact samplers grant their pilots to be a \
         quarter too hopeful."
    );
    let mut text = format!(
        "\n## Foretold and actual\n\n{}\n\n\
         | data | sampler | draws foretold | bulk | tail | exchanges foretold | actual | \
         bytes foretold | actual | k-hat |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        lines(&says, "")
    );
    for (judged, run) in main.iter().flat_map(|j| j.runs.iter().map(move |run| (j, run))) {
        let told = |of: fn(&Cost) -> f64, show: fn(f64) -> String| {
            run.foretold.as_ref().map_or_else(String::new, |cost| show(of(cost)))
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            judged.target.name,
            label(run),
            run.foretold_draws.map_or_else(String::new, count),
            count(run.bulk),
            count(run.tail),
            told(|c| c.exchanges, count),
            count(run.sampling_alone().exchanges),
            told(|c| c.bytes, megabytes),
            megabytes(run.sampling_alone().bytes),
            run.khat.map_or_else(String::new, |khat| format!("{khat:.2}")),
        );
    }
    text
}

/// What the draws that were wanted cost by each sampler.
fn costs(main: &[Judged]) -> String {
    let says = format!(
        "What {DRAWS} effective draws cost by each, surveys and pilots included, and how far \
         answers are off. In brackets: draws for a megabyte, an exchange and a second of \
         computing."
    );
    let mut text = format!(
        "\n## What draws cost\n\n{}\n\n\
         | data | sampler | bytes | exchanges | seconds | at 20 ms | means | z | sds | \
         not to be relied on |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        lines(&says, "")
    );
    for judged in main {
        for run in &judged.runs {
            let (cost, draws) = (run.cost(), DRAWS as f64);
            let _ = writeln!(
                text,
                "| {} ({} parameters, {} sites) | {} | {} ({}) | {} ({}) | {:.1} ({}) | {:.1} | {} \
                 | {} |",
                judged.target.name,
                run.parameters,
                run.sites,
                label(run),
                megabytes(cost.bytes),
                rate(1e6 * draws / cost.bytes),
                count(cost.exchanges),
                rate(draws / cost.exchanges),
                cost.cpu,
                rate(draws / cost.cpu),
                cost.seconds(),
                distance(run),
                run.warnings.join(", "),
            );
        }
        for (sampler, why) in &judged.failed {
            let name = &judged.target.name;
            let _ = writeln!(text, "| {name} | {sampler} | | | | | | | | {why} |");
        }
    }
    text
}

/// Other priors, and rows dealt otherwise: whether `auto` delivers.
fn others(variations: &[Judged]) -> String {
    let says = "The same data under other priors, and dealt otherwise; four sites and prior \
        variance 6.25 where nothing is said. Only `auto` was run.";
    let mut text = format!(
        "\n## Other priors, other sites\n\n{}\n\n\
         | data | chosen | k-hat | draws foretold | bulk | tail | bytes | exchanges | means | z | \
         sds | warnings |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        lines(says, "")
    );
    for (judged, run) in variations.iter().flat_map(|j| j.runs.first().map(|run| (j, run))) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            judged.target.name,
            run.sampler,
            run.khat.map_or_else(String::new, |khat| format!("{khat:.2}")),
            run.foretold_draws.map_or_else(String::new, count),
            count(run.bulk),
            count(run.tail),
            megabytes(run.before.bytes + run.sampling.bytes),
            count(run.before.exchanges + run.sampling.exchanges),
            distance(run),
            run.warnings.join(", "),
        );
    }
    let z: Vec<f64> = variations
        .iter()
        .flat_map(|j| j.runs.first())
        .filter_map(|run| Some(run.distance?.z))
        .collect();
    let (beyond, all) = (z.iter().filter(|z| **z > 4.0).count(), z.len());
    let _ = writeln!(text, "\nOf {all} answers {beyond} are more than 4 standard errors off.");
    text
}

fn label(run: &Measured) -> String {
    if is_auto(run) { format!("{}: {}", run.asked, run.sampler) } else { run.sampler.clone() }
}

fn distance(run: &Measured) -> String {
    run.distance.map_or_else(
        || "| |".into(),
        |off| format!("{:.3} | {:.1} | {:.1}%", off.mean, off.z, 100.0 * off.sd),
    )
}

fn count(number: f64) -> String {
    format!("{number:.0}")
}

fn rate(number: f64) -> String {
    if number < 9.5 { format!("{number:.1}") } else { count(number) }
}

fn megabytes(bytes: f64) -> String {
    let megabytes = bytes / 1e6;
    if megabytes < 9.95 { format!("{megabytes:.2} MB") } else { format!("{megabytes:.0} MB") }
}

#[cfg(test)]
mod tests {
    use super::super::targets;
    use super::*;

    fn run(asked: &str, sampler: &str, bytes: f64, is_usable: bool) -> Measured {
        let sampling = Cost { bytes, exchanges: 10.0, cpu: 1.0 };
        Measured {
            asked: asked.into(),
            sampler: sampler.into(),
            foretold_draws: None,
            bulk: DRAWS as f64,
            tail: DRAWS as f64,
            foretold: None,
            before: Cost::default(),
            sampling,
            distance: None,
            khat: None,
            warnings: vec![],
            is_usable,
            parameters: 3,
            sites: 4,
        }
    }

    #[test]
    fn auto_is_held_against_the_cheapest_that_can_be_relied_on() {
        let judged = |bytes: f64| Judged {
            target: targets::main().remove(0),
            runs: vec![
                run("auto", "imh", bytes, true),
                run("auto by exchanges", "imh", bytes, true),
                run("auto by seconds", "hmc", bytes, true),
                run("pcn", "pcn", 1e6, false),
                run("hmc", "hmc", 2e6, true),
            ],
            failed: vec![("lmc".into(), "stopped".into())],
        };
        let text = verdicts(&[judged(2.4e6), judged(2.6e6)]);
        assert!(text.contains("1.20 (hmc)") && text.contains("1.30 (hmc)"), "{text}");
        assert!(text.contains("| hmc: 1.00 (hmc) |"), "{text}");
        assert!(text.contains("within 25% in all three on 1 of 2"), "{text}");
        assert!(costs(&[judged(1e6)]).contains("| lmc | | | | | | | | stopped |"));
    }
}
