//! Over the network a run is the one of one process, bit for bit: every sampler, every kind of
//! data.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::*;
use consilience_core::sampler::registry::{AUTO, Axis, REGISTRY};
use consilience_engine::session::{Control, Session};

#[test]
fn every_sampler_gives_the_same_bits_as_in_one_process() {
    for row in REGISTRY.iter().chain([&AUTO]) {
        let mut sampler = format!("name = \"{}\"\n", row.name);
        if row.axes.contains(&Axis::Participation) && row.name != "lsd*" {
            sampler.push_str("participation = 0.6\n");
        }
        let full = config(&gaussians(&sampler, 40));
        let config = match consilience_engine::problem::Problem::new(&full)
            .and_then(|p| consilience_engine::plan::Plan::new(&full, &p))
        {
            Ok(_) => full,
            // it needs everybody
            Err(_) => config(&gaussians(&format!("name = \"{}\"\n", row.name), 40)),
        };
        same(row.name, &over_the_network(&config, options()), &in_process(&config));
    }
}

/// Messages of `mala` that are compressed at random, with the coins of each site.
#[test]
fn compressed_proposals_too() {
    for compress in ["qsgd(2)", "rand_k(1)", "top_k(1)"] {
        let sampler = format!("name = \"mala\"\nstep = 0.9\ncompress = \"{compress}\"");
        let config = config(&gaussians(&sampler, 60));
        same(compress, &over_the_network(&config, options()), &in_process(&config));
    }
}

#[test]
fn hospitals_too_preconditioned_and_compressed_or_by_what_is_chosen() {
    let langevin = hospitals(60);
    let (before, _) = langevin.split_once("[sampler]").unwrap();
    for text in [&langevin[..], &format!("{before}[run]\nchains = 2\niterations = 300\n")] {
        hospitals_are_the_same(text);
    }
}

/// Proposals that are drawn beforehand do not suit this posterior, and their draws are given up.
#[test]
fn a_choice_that_goes_on_too() {
    let text = "seeds = \"simulation\"\n[target]\nmodel = \"logistic\"\n\
        prior = { law = \"gaussian\", variance = 100.0 }\n[[client]]\n\
        rows = [[1, 0.2, 0.1, 0], [1, 0.7, -0.4, 1], [1, -0.6, 0, 1], [1, -0.5, -0.8, 0],\n\
        [1, 0.9, 0.5, 1], [1, -1.3, 1.1, 1]]\n[[client]]\nname = \"b\"\n\
        rows = [[1, 0, 0.6, 1], [1, -0.2, -0.6, 0], [1, -1.3, 0.1, 0], [1, -0.1, 0, 0],\n\
        [1, 0.9, -0.7, 0], [1, 0.4, 2.1, 1]]\n[run]\neffective_draws = 1000\n";
    let config = config(text);
    let planned = Session::new(config.clone()).unwrap().plan().unwrap();
    let here = planned.run(&Default::default(), Control::default()).unwrap().record;
    let served = over_the_network(&config, options());
    assert_eq!((served.plan.row.name, planned.plan.row.name), ("hmc", "imh"));
    assert_eq!(served.outcome.draws, here.draws);
    let (record, _) = served.record(&config, "", String::new());
    assert_eq!((record.sampler, record.sent), (here.sampler, here.sent));
    assert_eq!(record.before_sampling, here.before_sampling);
    assert_eq!(record.exchanges, here.exchanges);
}

/// Sites are told other coordinates while the sampler is chosen, and go by the last.
#[test]
fn a_choice_of_other_axes_too() {
    let rows = |from: usize| -> String {
        let row = |k: usize| {
            let cells: String = (0..4).map(|g| if g == k / 6 { "1, " } else { "0, " }).collect();
            format!("[{cells}{}], ", u8::from(k.is_multiple_of(if k < 24 { 6 } else { 2 })))
        };
        (from..40).step_by(2).map(row).collect()
    };
    let text = format!(
        "seeds = \"simulation\"\n[target]\nmodel = \"logistic\"\n\
         prior = {{ law = \"gaussian\", variance = 25.0 }}\n[[client]]\nrows = [{}]\n\
         [[client]]\nname = \"b\"\nrows = [{}]\n[run]\neffective_draws = 500\n",
        rows(0),
        rows(1)
    );
    let config = config(&text);
    let planned = Session::new(config.clone()).unwrap().plan().unwrap();
    assert_eq!(planned.plan.choice.as_ref().unwrap().bent, 5);
    let here = planned.run(&Default::default(), Control::default()).unwrap().record;
    let served = over_the_network(&config, options());
    assert_eq!(served.outcome.draws, here.draws);
    let (record, _) = served.record(&config, "", String::new());
    assert_eq!((record.sampler, record.sent), (here.sampler, here.sent));
    assert_eq!(record.before_sampling, here.before_sampling);
}

/// Proposals with nodes along the standard deviation of effects: sites are told of these with a
/// pilot and with every chain.
#[test]
fn nodes_along_a_scale_too() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/real");
    let text = std::fs::read_to_string(folder.join("heart-site.toml")).unwrap();
    let text = text.replace("seed = 1", "seed = 1\nseeds = \"simulation\"");
    let text = text.replace("C(sex, ref = '1') + C(cp, ref = '4') + ", "");
    let text = format!("{text}[run]\neffective_draws = 200\n");
    let choice = in_process(&config(&text)).1.choice.unwrap();
    assert_eq!((choice.chosen.as_str(), choice.nodes.as_deref()), ("imh", Some("sd(1 | site)")));
    hospitals_are_the_same(&text);
}

/// Chains of half the step follow the paths of the others, those of sites with noise of their own
/// too.
#[test]
fn a_bias_that_is_measured_too() {
    for sampler in ["lmc", "fald"] {
        let text = gaussians(&format!("name = \"{sampler}\"\nstep = 0.05"), 400);
        let text = text.replace("[run]\n", "[run]\nbias = \"halve\"\n");
        let config = config(&text);
        let planned = Session::new(config.clone()).unwrap().plan().unwrap();
        let here = planned.run(&Default::default(), Control::default()).unwrap().record;
        let served = over_the_network(&config, options());
        assert_eq!(served.outcome.draws, here.draws, "{sampler}");
        let (record, _) = served.record(&config, "", String::new());
        assert!(here.bias.as_ref().unwrap().measured.is_some(), "{sampler}");
        assert_eq!((record.bias, record.sent), (here.bias, here.sent), "{sampler}");
        assert_eq!(record.exchanges, here.exchanges, "{sampler}");
    }
}

/// Chains of a net start where its own law says, and its clients have convolutions.
#[test]
fn nets_too() {
    let row = |k: usize| {
        let pixels: Vec<String> =
            (0..16).map(|j| format!("{:.3}", ((5 * k + 3 * j) as f64).sin())).collect();
        format!("[{}, {}]", pixels.join(", "), k % 2)
    };
    let rows = |from: usize| (from..from + 9).map(row).collect::<Vec<_>>().join(", ");
    for sampler in ["lmc", "qlsd++", "vr-fald*"] {
        let text = format!(
            "seeds = \"simulation\"\n[target]\nmodel = \"net\"\n\
             layers = [\"conv(2, 3)\", \"relu\", \"flatten\", \"linear(2)\"]\n\
             input = [1, 4, 4]\nclasses = 2\nprior = {{ law = \"gaussian\", variance = 0.5 }}\n\
             [[client]]\nrows = [{}]\n[[client]]\nname = \"b\"\nrows = [{}]\n\
             [sampler]\nname = \"{sampler}\"\nstep = 0.01\n[run]\nchains = 2\n\
             iterations = 40\n",
            rows(0),
            rows(9)
        );
        let config = config(&text);
        same(sampler, &over_the_network(&config, options()), &in_process(&config));
    }
}

fn hospitals_are_the_same(text: &str) {
    let config = config(text);
    let serving = start(&config, options());
    let join = |name: &str| {
        site(
            consilience_net::worker::Brings { data: hospital(name), ..brings(name) },
            joining(serving.address),
        )
    };
    // In another order than the config's.
    let sites: Vec<_> =
        ["va", "cleveland", "switzerland", "hungarian"].iter().map(|name| join(name)).collect();
    same("heart", &serving.end().unwrap(), &in_process(&config));
    sites.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
}

/// Each site tells its potential at the draws where the config says so, and the log-density is the
/// one of one process.
#[test]
fn the_log_density_of_draws_is_the_same_where_it_is_asked_for() {
    let text = gaussians("name = \"lmc\"\nstep = 0.05", 40);
    let asked = config(&format!("{text}[output]\nlp = true\n"));
    let (served, (problem, _, outcome)) = (over_the_network(&asked, options()), in_process(&asked));
    let lp = consilience_engine::statistics::log_density(&problem.target, &outcome.draws).unwrap();
    assert_eq!(served.outcome.statistics[0], lp);
    assert!(lp.values.iter().flatten().all(|value| value.is_finite()) && lp.values.len() == 2);
    let unasked = over_the_network(&config(&text), options());
    assert!(unasked.outcome.statistics.iter().all(|s| s.name != "lp"));
}

#[test]
fn rows_and_weights_by_rows_too() {
    let text = "seeds = \"simulation\"\n[target]\nmodel = \"logistic\"\n\
        prior = { law = \"gaussian\", variance = 1.0 }\n\
                [[client]]\nrows = [[0.3, 1.0, 1], [-1.0, 0.5, 0], [0.4, 0.1, 1]]\n[[client]]\n\
                name = \"b\"\nrows = [[0.5, -1, 0], [-0.2, 0.7, 1]]\n\
                [sampler]\nname = \"fa-ld\"\nweights = \"rows\"\nbatch = 1\n[run]\nchains = 1\n\
                iterations = 200\n";
    let config = config(text);
    same("rows", &over_the_network(&config, options()), &in_process(&config));
}

#[test]
fn data_that_this_program_deals_is_refused_with_what_to_do() {
    let rest = "[sampler]\nname = \"lmc\"\n[run]\nchains = 1\niterations = 10\n";
    let held_out = "[target]\nmodel = \"logistic\"\nformula = \"y ~ age\"\n[data]\ntest = 0.2\n\
        [[client]]\nname = \"a\"\nfile = \"a.csv\"\n";
    let dealt = "[target]\nformula = \"y == 1 ~ age\"\n[data]\nfile = \"all.csv\"\nclients = 3\n";
    for (data, problem, fix) in [
        (
            "[data]\ngenerate = \"synthetic(1, 1)\"\nclients = 5\n",
            "generates the rows",
            "`consilience run` it",
        ),
        ("[data]\nname = \"a9a\"\nclients = 5\n", "deals the rows", "`consilience data split`"),
        (held_out, "rows that are held out stay at their sites", "remove data.test"),
        (dealt, "deals the rows", "`consilience data split`"),
    ] {
        let error = consilience_engine::site::names(&config(&format!("{data}{rest}")))
            .unwrap_err()
            .to_string();
        assert!(error.contains(problem) && error.contains(fix), "{error}");
    }
}
