//! A model that a program brings, evaluated in one call for all clients, gives the run of the same
//! model built in, bit for bit.
#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use consilience_core::ask::Ask;
use consilience_core::model::{ClientModels, EvaluationError, Evaluator, Model, Offers, Prior};
use consilience_core::rng::ClientId;
use consilience_engine::checkpoint::{Checkpoint, Pace, fingerprint};
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::influence::Influence;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Outcome, Progress, sample, sample_kept};
use consilience_engine::statistics::log_density;

#[derive(Debug)]
struct Called {
    models: Vec<Arc<dyn Model>>,
    offers: Offers,
    calls: AtomicUsize,
    /// It fails from this call on.
    fails_at: usize,
}

impl Model for Called {
    fn dim(&self) -> usize {
        self.models[0].dim()
    }

    fn clients(&self) -> usize {
        self.models.len()
    }

    fn rows(&self) -> usize {
        self.models.iter().map(|model| model.rows()).sum()
    }

    fn rows_of(&self, client: ClientId) -> usize {
        self.models[client.index()].rows()
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        let federation = Arc::new(ClientModels::new(self.models.clone()).unwrap());
        Box::new(Calling(federation.evaluator(), self))
    }
}

#[derive(Debug)]
struct Calling(Box<dyn Evaluator>, Arc<Called>);

impl Evaluator for Calling {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let Calling(inner, model) = self;
        if model.calls.fetch_add(1, Ordering::Relaxed) >= model.fails_at {
            return Err(EvaluationError("ValueError: a hole in the network".into()));
        }
        inner.answer(asks)
    }
}

fn parse(text: String) -> Result<Config, ConfigError> {
    Config::parse(Source { file: "test".into(), folder: ".".into(), text })
}

const PRIOR: &str = "temperature = 0.8\nprior = { law = \"gaussian\", variance = 4.0 }\n";

fn tail(sampler: &str) -> String {
    format!(
        "[sampler]\n{sampler}\n[run]\nchains = 3\niterations = 200\nburn_in = 20\nthreads = 2\n"
    )
}

/// Gaussian clients, and three with rows, as a config states them.
fn built_in(sampler: &str, rows: bool) -> Config {
    let clients = if rows {
        let client = |c: usize| {
            let cell = |j: usize, k: usize| ((c * 31 + j * 7 + k * 3) % 11) as f64 / 5.0 - 1.0;
            let row = |j: usize| format!("[{:?}, {:?}, {:?}]", cell(j, 0), cell(j, 1), cell(j, 2));
            format!("[[client]]\nrows = [{}]\n", (0..8 + c).map(row).collect::<Vec<_>>().join(", "))
        };
        format!(
            "model = \"linear\"\nnoise_variance = 1.0\nintercept = false\n{PRIOR}{}",
            (0..3).map(client).collect::<String>()
        )
    } else {
        format!(
            "model = \"gaussian\"\n{PRIOR}\
             [[client]]\nmean = [1.0, -2.0]\nprecision = [[1.0, 0.4], [0.4, 0.6]]\n\
             [[client]]\nmean = [-1.5, 0.5]\nprecision = [[0.5, -0.3], [-0.3, 1.4]]\n"
        )
    };
    parse(format!("seed = 5\n[target]\n{clients}{}", tail(sampler))).unwrap()
}

fn everything() -> Offers {
    Offers { values: true, hessians: true, ..Offers::default() }
}

/// The same problem from a program, with a config that says no more than that.
fn brought(
    sampler: &str,
    like: &Problem,
    offers: Offers,
    fails_at: usize,
) -> (Config, Problem, Arc<Called>) {
    let config =
        parse(format!("seed = 5\n[target]\nmodel = \"external\"\n{PRIOR}{}", tail(sampler)))
            .unwrap();
    let model = Arc::new(Called {
        models: like.target.clients.clone(),
        offers,
        calls: AtomicUsize::new(0),
        fails_at,
    });
    let joint: Arc<dyn Model> = Arc::<Called>::clone(&model);
    let problem =
        Problem::external(&config, joint, like.parameters.clone(), like.clients.clone()).unwrap();
    (config, problem, model)
}

fn run(config: &Config, problem: &Problem) -> (Plan, Outcome) {
    let plan = Plan::new(config, problem).unwrap();
    let outcome =
        sample(&plan, &plan.length, config.seed, Sinks::Memory, &Progress::default()).unwrap();
    (plan, outcome)
}

#[test]
fn the_same_run_with_one_call_an_iteration() {
    let samplers = [
        "name = \"lmc\"",
        "name = \"lsd*\"\nbatch = 0.3",
        "name = \"qlsd++\"\nbatch = 0.3\nrefresh = 7\nparticipation = 0.6",
        "name = \"vr-fald*\"\nbatch = 0.3\ncorrelation = 0.5",
        "name = \"fald\"\nstep = 0.01",
        "name = \"sgld\"\nbatch = 0.5\nprecondition = true",
    ];
    for (sampler, rows) in samplers.iter().flat_map(|sampler| [(sampler, false), (sampler, true)]) {
        let config = built_in(sampler, rows);
        let problem = Problem::new(&config).unwrap();
        let (plan, outcome) = run(&config, &problem);
        let (config, problem, model) = brought(sampler, &problem, everything(), usize::MAX);
        let (plan_too, outcome_too) = run(&config, &problem);
        assert_eq!(
            (plan_too.step(), &plan_too.survey, &plan_too.start),
            (plan.step(), &plan.survey, &plan.start),
            "{sampler}"
        );
        assert!(outcome.draws.length() > 5 && outcome.draws == outcome_too.draws, "{sampler}");
        assert_eq!(
            (&outcome_too.ledger, outcome_too.rows_evaluated),
            (&outcome.ledger, outcome.rows_evaluated),
            "{sampler}"
        );
        assert!(outcome_too.failure.is_none() && !outcome_too.interrupted);
        // Without a survey: one call an iteration of each of the three chains.
        if plan.survey_bits() == (0, 0) {
            assert_eq!(model.calls.load(Ordering::Relaxed) as u64, outcome.iterations, "{sampler}");
        }
        assert!(
            log_density(&plan_too.target, &outcome_too.draws).is_err()
                && Influence::new(&plan_too.target, &outcome_too.draws).is_err()
        );
    }
}

#[test]
fn gradients_alone_are_enough_to_plan_a_run() {
    for sampler in
        ["name = \"lmc\"", "name = \"fald\"", "name = \"sgld\"\nbatch = 0.5\nprecondition = true"]
    {
        let config = built_in(sampler, true);
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        let (config, problem, _) = brought(sampler, &problem, Offers::default(), usize::MAX);
        let (found, outcome) = run(&config, &problem);
        // Gradients are affine here: what is found differs by rounding alone.
        assert!((found.step().largest() / plan.step().largest() - 1.0).abs() < 1e-6, "{sampler}");
        assert!(
            outcome.draws.length() > 5 && outcome.draws.rows().flatten().all(|x| x.is_finite())
        );
    }
}

#[test]
fn without_a_config_for_the_target() {
    let config = built_in("name = \"lmc\"", false);
    let known = Problem::new(&config).unwrap();
    let (_, _, model) = brought("name = \"lmc\"", &known, everything(), usize::MAX);
    let names = |n: usize| (0..n).map(|i| format!("x{i}")).collect::<Vec<_>>();
    let from = |parameters: usize, clients: usize| {
        Problem::from_joint(
            Arc::<Called>::clone(&model),
            names(parameters),
            names(clients),
            Prior::gaussian(4.0, 2).unwrap(),
            0.8,
        )
    };
    let (_, outcome) = run(&config, &from(2, 2).unwrap());
    assert!(outcome.draws == run(&config, &known).1.draws);
    assert!(
        from(3, 2)
            .unwrap_err()
            .to_string()
            .contains("parameters' names has dimension 3, where 2 is expected")
    );
    assert!(
        from(2, 1)
            .unwrap_err()
            .to_string()
            .contains("clients' names has dimension 1, where 2 is expected")
    );
}

struct EveryTime;

impl Pace for EveryTime {
    fn due(&self, _chain: usize) -> bool {
        true
    }

    fn saved(&self, _chain: usize) {}
}

#[test]
fn a_failing_model_keeps_the_draws_so_far_and_the_run_can_be_taken_up() {
    let sampler = "name = \"fald\"\nstep = 0.01";
    let known = Problem::new(&built_in(sampler, true)).unwrap();
    let (config, problem, _) = brought(sampler, &known, everything(), usize::MAX);
    let (_, whole) = run(&config, &problem);
    let (mut config, broken, _) = brought(sampler, &known, everything(), 150);
    config.run.threads = 1;
    let (_, outcome) = run(&config, &broken);
    let failure = outcome.failure.unwrap();
    assert!(
        failure
            .to_string()
            .contains("the model cannot be evaluated: ValueError: a hole in the network"),
        "{failure}"
    );
    assert!(
        failure.chain == 1 && (100..=150).contains(&failure.iteration) && outcome.interrupted,
        "{failure}"
    );
    // The first chain came that far, the others had not begun.
    assert_eq!(outcome.draws.chains(), 1);
    assert!(outcome.draws.length() > 5 && outcome.draws.length() < whole.draws.length());
    assert!(outcome.draws.rows().eq(whole.draws.rows().take(outcome.draws.length())));

    // Saved as it goes, it goes on from before the failure, and comes to the same end.
    let dir = std::env::temp_dir().join(format!("consilience-joint-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let print = |problem: &Problem| {
        let plan = Plan::new(&config, problem).unwrap();
        fingerprint(&plan, &plan.length, config.seed)
    };
    let kept = |problem: &Problem, checkpoint: &Checkpoint<'_>| {
        let plan = Plan::new(&config, problem).unwrap();
        let sinks = Sinks::Kept { folder: checkpoint.path().to_path_buf(), file: None };
        sample_kept(&plan, &plan.length, config.seed, sinks, &Progress::default(), Some(checkpoint))
            .unwrap()
    };
    let first =
        kept(&broken, &Checkpoint::begin(&dir, &config, &print(&broken), &EveryTime).unwrap());
    assert!(first.failure.is_some());
    let second = kept(&problem, &Checkpoint::resume(&dir, &print(&problem), &EveryTime).unwrap());
    assert!(
        second.failure.is_none() && second.draws == whole.draws && second.ledger == whole.ledger
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn mistakes_are_named() {
    let known = Problem::new(&built_in("name = \"lmc\"", false)).unwrap();
    let (config, ..) = brought("name = \"lmc\"", &known, everything(), usize::MAX);
    let missing = Problem::new(&config).unwrap_err().to_string();
    assert!(missing.contains("a program must bring it"), "{missing}");
    // Sites that the config names are those of the model.
    let stated = |names: &[&str]| {
        let client = |name: &&str| format!("[[client]]\nname = \"{name}\"\n");
        let clients: String = names.iter().map(client).collect();
        parse(format!("[target]\nmodel = \"external\"\n{clients}[sampler]\nname = \"lmc\"\n"))
    };
    let other = stated(&["a"]).unwrap();
    let joint = Arc::clone(
        brought("name = \"lmc\"", &known, everything(), usize::MAX)
            .1
            .target
            .joint
            .as_ref()
            .unwrap(),
    );
    let names = (known.parameters.clone(), known.clients.clone());
    let clients = Problem::external(&other, joint, names.0, names.1).unwrap_err().to_string();
    assert!(clients.contains("the clients are a, those of the model"), "{clients}");
    let twice = stated(&["a", "a"]).unwrap_err().to_string();
    assert!(twice.contains("client[0] is called \"a\", too"), "{twice}");
    let (config, problem, _) = brought("name = \"lmc\"", &known, everything(), 0);
    let failed = Plan::new(&config, &problem).unwrap_err().to_string();
    assert!(
        failed.contains("a hole in the network") && failed.contains("correct the model"),
        "{failed}"
    );
}
