//! Sites that bring a model of their own: the run of one process, bit for bit; and what is refused.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use consilience_core::ask::{Ask, Sum};
use consilience_core::model::{EvaluationError, Evaluator, Member, Model, Offers, Rows};
use consilience_core::rng::ClientId;
use consilience_engine::config::Config;
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Outcome, Progress, sample};
use consilience_engine::site::{Own, OwnModel};
use consilience_net::join::JoinError;
use consilience_net::serve::{ServeOptions, Served};
use consilience_net::worker::{Brings, SiteError};

const SITES: [&str; 3] = ["north", "east", "the south"];

/// One location and one that outliers pull less, by gradients alone.
#[derive(Clone, Debug)]
struct Robust {
    rows: Vec<Vec<f64>>,
    /// Gradients are NaN where the first coordinate is beyond.
    ends_at: f64,
}

impl Robust {
    fn new() -> Robust {
        let row = |i: usize, j: usize| ((7 * i + 3 * j) % 11) as f64 * 0.4 - 1.5 + i as f64;
        let rows = (0..3).map(|i| (0..5 + 4 * i).map(|j| row(i, j)).collect()).collect();
        Robust { rows, ends_at: f64::INFINITY }
    }
}

impl Model for Robust {
    fn dim(&self) -> usize {
        2
    }
    fn clients(&self) -> usize {
        self.rows.len()
    }
    fn rows(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }
    fn rows_of(&self, client: ClientId) -> usize {
        self.rows[client.index()].len()
    }
    fn offers(&self) -> Offers {
        Offers::default()
    }
    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        Box::new((*self).clone())
    }
}

impl Robust {
    fn gradient(&self, client: ClientId, rows: Rows<'_>, x: &[f64]) -> [f64; 2] {
        let all = &self.rows[client.index()];
        let mut sum = [0.0; 2];
        let mut add = |y: f64| {
            sum[0] += x[0] - y;
            let away = x[1] - y;
            sum[1] += away / (1.0 + away * away).sqrt();
        };
        match rows {
            Rows::All => all.iter().for_each(|y| add(*y)),
            Rows::Some(rows) => rows.iter().for_each(|row| add(all[*row as usize])),
        }
        if x[0].abs() > self.ends_at {
            sum[1] = f64::NAN;
        }
        sum
    }
}

impl Evaluator for Robust {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        for ask in asks {
            let (client, rows) = (ask.client, ask.rows);
            ask.each_point(2, |ask| match ask.sum {
                Sum::Gradient { x } => ask.tell(&self.gradient(client, rows, x)),
                Sum::Difference { x, z } => {
                    let (at, from) =
                        (self.gradient(client, rows, x), self.gradient(client, rows, z));
                    ask.tell(&[at[0] - from[0], at[1] - from[1]]);
                }
                _ => panic!("it offers gradients alone"),
            });
        }
        Ok(())
    }
}

fn parameters() -> Vec<String> {
    ["mean", "centre"].map(String::from).into()
}

fn stated(sampler: &str, more: &str) -> Config {
    let clients: String = SITES.iter().map(|s| format!("[[client]]\nname = \"{s}\"\n")).collect();
    config(&format!(
        "seed = 5\nseeds = \"simulation\"\n[target]\nmodel = \"external\"\n\
         model_name = \"robust 1\"\nprior = {{ law = \"gaussian\", variance = 4.0 }}\n{clients}\
         [sampler]\n{sampler}\n[run]\nchains = 2\niterations = 40\nburn_in = 5\n{more}"
    ))
}

/// What a site brings that has its part of a model.
fn model_of(site: &str, model: Robust) -> OwnModel {
    let place = SITES.iter().position(|known| *known == site).unwrap() as u32;
    OwnModel {
        name: Some("robust 1".into()),
        parameters: parameters(),
        start: None,
        model: Arc::new(Member::new(Arc::new(model), ClientId(place)).unwrap()),
    }
}

fn bringing(site: &str, model: OwnModel) -> Brings {
    Brings { data: Own::Model(model), ..brings(site) }
}

/// The run in one process, where all clients answer in one call.
fn jointly(config: &Config) -> (Problem, Plan, Outcome) {
    let sites = SITES.map(String::from).into();
    let problem = Problem::external(config, Arc::new(Robust::new()), parameters(), sites).unwrap();
    let plan = Plan::new(config, &problem).unwrap();
    let outcome =
        sample(&plan, &plan.length, config.seed, Sinks::Memory, &Progress::default()).unwrap();
    (problem, plan, outcome)
}

/// The run over loopback, every site with its model.
fn served(config: &Config, change: impl Fn(&str, OwnModel) -> Brings) -> Served {
    let serving = start(config, options());
    let join =
        |name: &&str| site(change(name, model_of(name, Robust::new())), joining(serving.address));
    let sites: Vec<_> = SITES.iter().map(join).collect();
    let served = serving.end().unwrap();
    sites.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    served
}

#[test]
fn a_model_at_every_site_gives_the_run_of_one_process_bit_for_bit() {
    for sampler in [
        "name = \"lmc\"",
        "name = \"lmc\"\nstep = 0.01",
        "name = \"qlsd++\"\nbatch = 3\nrefresh = 7\ncompress = \"qsgd(16)\"",
        "name = \"qlsd*\"\nbatch = 3",
        "name = \"vr-fald*\"\nbatch = 3",
        "name = \"dg-lmc\"\nstep = 0.01",
        "name = \"auto\"",
    ] {
        let config = stated(sampler, "");
        same(sampler, &served(&config, bringing), &jointly(&config));
    }
}

#[test]
fn what_a_site_states_of_its_model_is_part_of_what_all_check() {
    let served = served(&stated("name = \"lmc\"", ""), bringing);
    let text = served.statement.text();
    for line in [
        "model: external, called \"robust 1\"",
        "model brought by the sites: \"robust 1\"",
        "dimension of the model: 2",
        "rows of the sites: 5, 9, 13",
        "the models give: gradients",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in {text}");
    }
    assert_eq!(served.problem.target.clients[2].rows(), 13);
}

/// Chains start where all models say, unless the config says otherwise.
#[test]
fn models_may_say_where_chains_start() {
    let starting = |point: Vec<f64>| {
        move |site: &str, own: OwnModel| {
            bringing(site, OwnModel { start: Some(point.clone()), ..own })
        }
    };
    let plain = stated("name = \"lmc\"\nstep = 0.01", "");
    let from_here = served(&plain, starting(vec![3.0, -2.0]));
    assert!(from_here.statement.text().contains("start: 3, -2\n"));
    let stated = stated("name = \"lmc\"\nstep = 0.01", "start = [3.0, -2.0]\n");
    same("start", &from_here, &jointly(&stated));
    same("stated", &served(&stated, starting(vec![1.0, 1.0])), &jointly(&stated));
}

#[test]
fn a_site_that_keeps_its_state_gives_the_same_chain() {
    let folder = std::env::temp_dir().join(format!("consilience-models-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let config = stated("name = \"vr-fald*\"\nbatch = 3", "");
    let kept =
        served(&config, |site, own| Brings { state: Some(folder.clone()), ..bringing(site, own) });
    same("kept", &kept, &jointly(&config));
    let _ = std::fs::remove_dir_all(&folder);
}

/// What the server and the last site say of a run in which that site brings something else.
fn refusal(config: &Config, last: Brings) -> (String, JoinError) {
    let serving =
        start(config, ServeOptions { deadline: Some(Duration::from_secs(20)), ..options() });
    let others: Vec<_> = SITES[..2]
        .iter()
        .map(|name| site(bringing(name, model_of(name, Robust::new())), joining(serving.address)))
        .collect();
    let last = site(last, joining(serving.address));
    let error = serving.end().unwrap_err().to_string();
    others.into_iter().for_each(|site| drop(site.join().unwrap()));
    let own = last.join().unwrap();
    (error, own.err().unwrap_or(JoinError::Stopped))
}

#[test]
fn models_that_do_not_fit_together_are_refused_by_name() {
    let config = stated("name = \"lmc\"\nstep = 0.01", "");
    let own = || model_of("the south", Robust::new());
    let wider = ["mean", "centre", "scale"].map(String::from).into();
    let other = ["centre", "mean"].map(String::from).into();
    for (own, why) in [
        (
            OwnModel { parameters: wider, ..own() },
            "client \"the south\": it has 3 parameters, the first client has 2",
        ),
        (
            OwnModel { parameters: other, ..own() },
            "its parameters are centre, mean, those of the first client mean, centre",
        ),
        (
            OwnModel { name: Some("robust 2".into()), ..own() },
            "its model's name is \"robust 2\", the config's is \"robust 1\"",
        ),
        (OwnModel { name: None, ..own() }, "its model's name is none, the config's is"),
        (OwnModel { start: Some(vec![0.0; 2]), ..own() }, "its model starts chains elsewhere"),
    ] {
        let (error, _) = refusal(&config, bringing("the south", own));
        assert!(error.contains("client \"the south\"") && error.contains(why), "{error}");
    }
    let (error, own) = refusal(&config, brings("the south"));
    assert!(error.contains("site \"the south\" does not take part"), "{error}");
    assert!(own.to_string().contains("join a served run with it from Python"), "{own}");
    let asks_for_values = stated("name = \"lmc\"\nstep = 0.01", "[output]\nlp = true\n");
    let (error, _) =
        refusal(&asks_for_values, bringing("the south", model_of("the south", Robust::new())));
    assert!(error.contains("gives gradients and no values"), "{error}");
}

/// A sampler that needs more than gradients is refused in the words of one process.
#[test]
fn what_the_models_do_not_offer_is_not_asked_of_them() {
    let config = stated("name = \"mala\"", "");
    let sites = SITES.map(String::from).into();
    let problem = Problem::external(&config, Arc::new(Robust::new()), parameters(), sites).unwrap();
    let here = Plan::new(&config, &problem).unwrap_err();
    assert!(here.problem.contains("the model gives gradients alone"), "{here}");
    let own = bringing("the south", model_of("the south", Robust::new()));
    let (there, _) = refusal(&config, own);
    assert!(there.contains(&here.problem) && there.contains(&here.fix), "{there}");
}

#[test]
fn a_model_is_refused_where_the_config_states_another() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let serving =
        start(&config, ServeOptions { deadline: Some(Duration::from_secs(20)), ..options() });
    let own = bringing("north", model_of("north", Robust::new()));
    let error = site(own, joining(serving.address)).join().unwrap().unwrap_err().to_string();
    assert!(error.contains("brings a model of its own, and the config states another"), "{error}");
    assert!(serving.end().unwrap_err().to_string().contains("site \"north\" does not take part"));
}

#[test]
fn a_gradient_that_is_no_number_is_named_with_its_site_and_what_was_asked() {
    for (sampler, asked) in [
        ("name = \"lmc\"\nstep = 0.01", "the gradient was asked at mean = "),
        ("name = \"qlsd++\"\nstep = 0.01\nbatch = 2", "the difference of gradients was asked at"),
        ("name = \"lmc\"", "the gradient was asked at mean = "), // in a survey
    ] {
        let config = stated(sampler, "start = [0.0, 0.0]\n");
        let own = model_of("the south", Robust { ends_at: 0.2, ..Robust::new() });
        let (error, site) = refusal(&config, bringing("the south", own));
        assert!(matches!(site, JoinError::Site(SiteError::Model { .. })), "{site}");
        let own = site.to_string();
        for part in ["site \"the south\"", asked, "its part for centre is NaN"] {
            assert!(own.contains(part), "{part}: {own}");
        }
        // where and which is made of rows, perhaps: the server hears the kind
        for part in ["site \"the south\"", "its model gave no answer, or one that is no number"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("centre"), "{error}");
    }
}
