//! Print what a run would tell of one row, without reading any but those of a site that asks.

use std::fmt::Write;

use consilience_engine::config::Config;
use consilience_engine::privacy::{self, OncePlan, PrivacyPlan, Published, Shortened, Threat};
use consilience_engine::site::{LocalSite, Own, names};
use serde_json::json;

use crate::args::PrivacyCommand;
use crate::output::{Failure, say};

/// `consilience privacy`.
pub fn privacy(command: &PrivacyCommand) -> Result<(), Failure> {
    let config = Config::load(&command.config)?;
    let refused = privacy::refusals(&config);
    if !refused.is_empty() {
        if command.json {
            return say(&format!("{:#}\n", json!({ "refused": refused })));
        }
        let mut text = String::from("This run would be refused:\n");
        for refusal in &refused {
            let _ = writeln!(text, "  {}: {}", refusal.field, refusal.problem);
            let _ = writeln!(text, "    {}", refusal.fix);
        }
        return say(&text);
    }
    let plan = privacy::of_config(&config)?;
    let shortened = command.site.as_deref().map(|site| read(&config, site, command)).transpose()?;
    if command.json {
        let all = json!({ "refused": refused, "plan": plan, "shortened": shortened });
        return say(&format!("{all:#}\n"));
    }
    let text = told(&plan);
    let Some(shortened) = shortened else { return say(&format!("{text}No rows were read.\n")) };
    let site = command.site.as_deref().unwrap_or_default();
    say(&format!("{text}At {site}, which alone should know: {shortened}.\n"))
}

/// How many rows of one site are longer than they may be.
fn read(config: &Config, site: &str, command: &PrivacyCommand) -> Result<Shortened, Failure> {
    let names = names(config)?;
    let Some(index) = names.iter().position(|name| name == site) else {
        let all = names.join(", ");
        return Err(Failure::Other(format!("the config has no site \"{site}\": there are {all}")));
    };
    let own = command.data.clone().map_or(Own::Stated, Own::File);
    Ok(LocalSite::open(config, index, &own)?.shortened().unwrap_or_default())
}

/// What is said at the end of every plan.
const READ: &str = "That delta is below one over the rows of every site is \
    checked when the run starts.\nSites keep the budget in runs that they `join`, and count what \
    they tell; a run in one process draws the noise from the config's seed, and keeps nothing \
    private.";

/// The plan of two releases, for people.
fn released(plan: &PrivacyPlan, once: &OncePlan) -> String {
    let mut text = format!(
        "Budget: epsilon {} at delta {:e}: mu {:.4}, of which {:.4} for the first release and \
         {:.4} for the second.\n{}: every site answers twice, and {} draws follow that ask \
         nobody.\n\nnoise of one site, standard deviation:\n",
        plan.epsilon, plan.delta, once.mu[0], once.mu[1], once.mu[2], plan.sampler, plan.iterations,
    );
    for (what, deviation) in &once.noise {
        let _ = writeln!(text, "  {what:<44} {deviation:>10.4}");
    }
    let _ = writeln!(text, "\n{:<12} {:>13} {:>13} {:>9}", "against", "after one", "both", "Renyi");
    if let Some(first) = plan.sites.first() {
        for told in &first.exposures {
            let _ = writeln!(
                text,
                "{:<12} {:>13.4} {:>13.4} {:>9.4}",
                told.threat.name(),
                told.curve[0].1,
                told.epsilon,
                told.renyi
            );
        }
    }
    let _ = writeln!(
        text,
        "epsilon of {} of any of the {} sites; longer chains cost nothing.",
        match plan.person {
            1 => "one row".into(),
            k => format!("{k} rows of one person"),
        },
        plan.sites.len()
    );
    if let Some(width) = plan.release_width {
        let _ = writeln!(
            text,
            "At the curvature expected, intervals are at least {width:.2} times as wide as without \
             privacy."
        );
    }
    let _ = writeln!(text, "\nThe run keeps the budget against {}.", Threat::Server.name());
    text.push_str(READ);
    text.push('\n');
    text
}

/// Against whom the budget does not last beside the server, where the noise of all sites hides a
/// row and the server knows none of it.
fn broken(plan: &PrivacyPlan) -> Vec<Threat> {
    let over = |threat: &Threat| {
        let exposures = plan.sites.iter().flat_map(|site| &site.exposures);
        exposures.filter(|told| told.threat == *threat).any(|told| told.allowed < plan.iterations)
    };
    let others = Threat::ALL.into_iter().filter(|threat| *threat != Threat::Server);
    others.filter(|threat| plan.secure.is_some() && over(threat)).collect()
}

/// The plan for people.
fn told(plan: &PrivacyPlan) -> String {
    if let Some(once) = &plan.once {
        return released(plan, once);
    }
    let mut text = String::new();
    let line = |text: &mut String, says: String| {
        let _ = writeln!(text, "{says}");
    };
    line(
        &mut text,
        format!(
            "Budget: epsilon {} at delta {:e}. {} a gradient by at most {:.4}.",
            plan.epsilon,
            plan.delta,
            match plan.person {
                1 => "A row moves".into(),
                k => format!("A person of {k} rows moves"),
            },
            plan.reach * plan.row_gradient
        ),
    );
    line(
        &mut text,
        format!(
            "{}: {} chain{} of {} iterations{}; every chain counts.",
            plan.sampler,
            plan.chains,
            if plan.chains == 1 { "" } else { "s" },
            plan.iterations,
            if plan.time > 0.0 {
                format!(", Langevin time {:.4} in all", plan.time)
            } else {
                ", each a release of one number".into()
            }
        ),
    );
    if let Some(secure) = &plan.secure {
        line(
            &mut text,
            format!(
                "Secure sum: sites send whole numbers of steps of {:.4} behind masks, and nobody \
                 sees more than their sum; the noise of {} sites hides a row. Both columns are by \
                 Renyi divergences.",
                secure.grid, secure.honest
            ),
        );
    }
    if let (Some(draws), Some(allowed)) = (plan.effective_draws, plan.effective_draws_allowed) {
        line(
            &mut text,
            format!(
                "At the curvature expected these are about {draws:.3} effective draws; what the \
                 budget allows is worth {allowed:.3}."
            ),
        );
    }
    let width = plan.sites.iter().map(|site| site.site.chars().count()).max().unwrap_or(4).max(4);
    line(
        &mut text,
        format!(
            "\n{:<width$} {:<12} {:>9} {:>9} {:>9} {:>12}  within",
            "site", "against", "noise z", "epsilon", "Renyi", "allowed"
        ),
    );
    for site in &plan.sites {
        for told in &site.exposures {
            let within = if told.allowed >= plan.iterations { "yes" } else { "no" };
            line(
                &mut text,
                format!(
                    "{:<width$} {:<12} {:>9.4} {:>9.4} {:>9.4} {:>12}  {within}",
                    site.site,
                    told.threat.name(),
                    told.ratio,
                    told.epsilon,
                    told.renyi,
                    told.allowed
                ),
            );
        }
    }
    if let Some(first) = plan.sites.first() {
        line(&mut text, format!("\nepsilon against iterations, site {}:", first.site));
        let at: Vec<u64> = first.exposures[0].curve.iter().map(|(n, _)| *n).collect();
        let head: String = at.iter().map(|n| format!(" {n:>9}")).collect();
        line(&mut text, format!("{:<12}{head}", "iterations"));
        for told in &first.exposures {
            let row: String = told.curve.iter().map(|(_, e)| format!(" {e:>9.4}")).collect();
            line(&mut text, format!("{:<12}{row}", told.threat.name()));
        }
    }
    let claims = match plan.published {
        None => None,
        Some(Published::Epsilon(epsilon)) => Some(format!("claims epsilon {epsilon:.4}")),
        Some(Published::Step(step)) => {
            Some(format!("says nothing of this step: it needs at most {step:.3e}"))
        }
    };
    if let Some(claims) = claims {
        let compare = "FA-LD's Theorem G.3, as published, which does not hold and which nothing \
                       here rests on,";
        line(&mut text, format!("\nTo compare: {compare} {claims}."));
    }
    let kept = plan.sites.iter().all(|site| site.exposures[0].allowed >= plan.iterations);
    let headline = Threat::Server.name();
    line(
        &mut text,
        if kept {
            format!("\nThe run keeps the budget against {headline}.")
        } else {
            let least = plan.sites.iter().map(|site| site.exposures[0].allowed).min();
            format!(
                "\nThe run breaks the budget against {headline}: it allows {} iterations of every \
                 chain, and the run asks for {}.",
                least.unwrap_or(0),
                plan.iterations
            )
        },
    );
    for threat in broken(plan).into_iter().filter(|_| kept) {
        line(
            &mut text,
            format!(
                "It breaks it against {}, who know noise of their own and take it off: state \
                 colluding in [privacy] for as many of them as may be curious, and the run is \
                 refused where it would.",
                threat.name()
            ),
        );
    }
    if let Some(allowed) = plan.allowed_by_secure_sum {
        line(
            &mut text,
            format!(
                "With secure_sum = true in [privacy] the server would see the sum of all answers \
                 alone, and the budget would allow {allowed} iterations of every chain."
            ),
        );
    }
    if let Some(width) = plan.release_width {
        line(
            &mut text,
            format!(
                "What the budget allows is too few draws to summarise a posterior. Release once \
                 instead: with name = \"dp-release\" in [sampler] every site answers twice, any \
                 number of draws follows, and intervals are at least {width:.2} times as wide as \
                 without privacy."
            ),
        );
    }
    line(&mut text, READ.into());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use consilience_engine::config::Source;

    fn text(iterations: u64, more: &str) -> String {
        plan_of(text_of(iterations, more))
    }

    fn plan_of(text: String) -> String {
        let source = Source { file: "run.toml".into(), folder: ".".into(), text };
        told(&privacy::of_config(&Config::parse(source).unwrap()).unwrap())
    }

    fn text_of(iterations: u64, more: &str) -> String {
        let sites =
            "[[client]]\nname = \"a\"\n[[client]]\nname = \"b\"\n[[client]]\nname = \"c\"\n";
        format!(
            "[target]\nmodel = \"logistic\"\n{sites}[sampler]\nname = \"lmc\"\nstep = 1e-5\n\
             [run]\nchains = 2\niterations = {iterations}\n[privacy]\nepsilon = 3.0\n\
             delta = 1e-6\nrow_norm = 2.0\n{more}"
        )
    }

    /// In a secure sum the other sites know more than the server: their own noise.
    #[test]
    fn a_budget_that_lasts_against_the_server_alone_is_said_to() {
        let (kept, breaks) =
            ("keeps the budget against the server", "breaks it against other sites");
        let short = text(1000, "secure_sum = true\n");
        assert!(short.contains(kept) && !short.contains("breaks"), "{short}");
        let long = text(2000, "secure_sum = true\n");
        assert!(long.contains(kept) && long.contains(breaks), "{long}");
        let stated = text(2000, "secure_sum = true\ncolluding = 1\n");
        assert!(stated.contains("breaks the budget against the server"), "{stated}");
        assert!(!stated.contains(breaks), "{stated}");
        assert!(text(100, "").contains("With secure_sum = true"));
    }

    /// The published theorem stands beside the plan of the sampler that it is about, with its own
    /// condition on the step.
    #[test]
    fn a_published_theorem_is_shown_to_compare() {
        let walks = |step: &str| {
            let of_lmc = text_of(20, "");
            let walks = of_lmc.replace(
                "name = \"lmc\"\nstep = 1e-5",
                &format!("name = \"fa-ld\"\nstep = {step}"),
            );
            assert_ne!(walks, of_lmc);
            plan_of(walks)
        };
        let told = walks("1e-9");
        assert!(told.contains("G.3") && told.contains("claims epsilon"), "{told}");
        let told = walks("0.1");
        assert!(told.contains("says nothing of this step"), "{told}");
        assert!(!text(20, "").contains("G.3"), "of lmc there is none");
    }
}
