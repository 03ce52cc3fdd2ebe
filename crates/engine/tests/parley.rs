//! A run in questions and answers is the run of one process, bit for bit, whoever forgets everything but its state in between.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_engine::conductor::Lost;
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::parley::{ParleyError, Site, serve};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Progress, sample};

const SITES: &str = "seed = 3\nseeds = \"simulation\"\n[target]\nmodel = \"logistic\"\nprior = { law = \"gaussian\", variance = 2.0 }\n\
    [[client]]\nname = \"north\"\nrows = [[0.2, 1.0, 1], [-1.1, 0.3, 0], [0.7, -0.4, 1], [-0.5, 0.1, 0]]\n\
    [[client]]\nname = \"south\"\nrows = [[1.3, 0.2, 1], [0.4, -1.6, 0], [-0.9, 0.8, 1]]\n\
    [[client]]\nname = \"west\"\nrows = [[0.6, 0.2, 0], [0.1, 1.6, 1], [-0.3, 0.5, 1], [0.2, 0.2, 0]]\n[run]\nchains = 2\niterations = 120\n";

type Answers = Vec<(usize, Vec<u8>)>;

fn parse(text: &str) -> Config {
    Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text: text.into() }).unwrap()
}

fn site(text: &str, name: &str) -> Site {
    Site::new(parse(text), name, [7; 32]).unwrap()
}

/// Every message is given twice; the site has nothing but its saved state each time; answers come back to front.
#[test]
fn every_kind_of_sampler_is_that_of_one_process() {
    for sampler in [
        "name = \"lmc\"\nparticipation = 0.7",
        "name = \"qlsd++\"\nbatch = 2\nrefresh = 20\nprecondition = true",
        "name = \"b-elf\"\nstep = 0.05",
        "name = \"vr-fald*\"\nbatch = 2",
        "name = \"fa-ld\"\nweights = \"rows\"",
    ] {
        let text = format!("{SITES}[sampler]\n{sampler}\n");
        let config = parse(&text);
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        let here = sample(&plan, &config.run, config.seed, Sinks::Memory, &Progress::default()).unwrap();

        let names = ["north", "south", "west"];
        let mut states: Vec<Option<Vec<u8>>> = vec![None; 3];
        let mut carry = |asks: Vec<(usize, Vec<u8>)>| -> Result<Vec<(usize, Vec<u8>)>, Lost> {
            let answer = |(to, bytes): (usize, Vec<u8>)| {
                let fresh = site(&text, names[to]);
                let mut site = states[to].as_ref().map_or_else(|| site(&text, names[to]), |state| fresh.restored(state).unwrap());
                let answer = site.answer(&bytes).unwrap();
                states[to] = Some(site.save());
                let mut again = self::site(&text, names[to]).restored(states[to].as_ref().unwrap()).unwrap();
                assert_eq!(again.answer(&bytes).unwrap(), answer, "{sampler}");
                (to, answer)
            };
            Ok(asks.into_iter().rev().map(answer).collect())
        };
        let served = serve(&config, &mut carry, &Progress::default()).unwrap();
        assert_eq!(served.outcome.draws.digest(), here.draws.digest(), "{sampler}");
        assert_eq!(served.outcome.ledger, here.ledger, "{sampler}");
        assert_eq!(served.plan.survey_bits(), plan.survey_bits(), "{sampler}");
        assert_eq!(served.outcome.rows_evaluated, here.rows_evaluated, "{sampler}");
    }
}

#[test]
fn a_private_seed_is_not_the_servers() {
    let text = format!("{SITES}[sampler]\nname = \"vr-fald*\"\n").replace("simulation", "private");
    let draws = |private: u8| {
        let mut sites: Vec<Site> = ["north", "south", "west"].map(|name| Site::new(parse(&text), name, [private; 32]).unwrap()).into();
        let mut carry =
            |asks: Vec<(usize, Vec<u8>)>| Ok(asks.into_iter().map(|(to, bytes)| (to, sites[to].answer(&bytes).unwrap())).collect());
        serve(&parse(&text), &mut carry, &Progress::default()).unwrap().outcome.draws.digest()
    };
    assert_eq!(draws(1), draws(1));
    assert_ne!(draws(1), draws(2));
}

#[test]
fn sites_that_mean_something_else_and_answers_that_fail_are_named() {
    let text = format!("{SITES}[sampler]\nname = \"lmc\"\nstep = 0.1\n");
    let other = text.replace("variance = 2.0", "variance = 3.0");
    let run = |mut spoil: Box<dyn FnMut(&mut Answers)>, text_of_south: &str| {
        let mut sites = [site(&text, "north"), site(text_of_south, "south"), site(&text, "west")];
        let mut carry = |asks: Vec<(usize, Vec<u8>)>| {
            let answer = |(to, bytes): (usize, Vec<u8>)| sites[to].answer(&bytes).map(|a| (to, a)).map_err(|e| Lost(e.to_string()));
            let mut answers = asks.into_iter().map(answer).collect::<Result<Vec<_>, _>>()?;
            spoil(&mut answers);
            Ok(answers)
        };
        serve(&parse(&text), &mut carry, &Progress::default()).map(|_| ()).map_err(|e: ParleyError| e.to_string())
    };
    assert_eq!(run(Box::new(|_| {}), &text), Ok(()));
    let said = |result: Result<(), String>, part: &str| assert!(result.as_ref().is_err_and(|e| e.contains(part)), "{result:?}");
    said(run(Box::new(|_| {}), &other), "prior");
    said(run(Box::new(|answers| drop(answers.remove(1))), &text), "site \"south\" did not answer");
    said(run(Box::new(|answers| answers[2].1.truncate(3)), &text), "the answer of site \"west\" makes no sense");
}
