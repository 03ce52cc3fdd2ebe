//! Draws given two noisy releases cover what they should, through the answers that leave a site.
//!
//! `REPETITIONS=300 ROWS=10000 COLUMNS=20 EPSILON=1 SITES=1 cargo test --release -p
//! consilience-core --test release_once covers -- --nocapture` for other sizes: the tables of the
//! book.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows its numbers

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{
    Design, Extended, ExtendedLoss, Glm, GlmFamily as Glms, Law, Model, Prior, Transform,
    Transforms,
};
use consilience_core::privacy::{Neighbour, Once, Released};
use consilience_core::protocol::{
    Device, Event, Exchange, Ledger, Order, Payload, Precision, ReferencePoint, Task, exchange,
};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::{Keys, Recipe, Release, Sampler};
use consilience_core::snapshot::{restore, save};
use consilience_core::target::{Placement, Target};

/// Linear regression with its `sigma`, as far as a release needs it: rows and responses.
#[derive(Debug)]
struct Normal;

impl ExtendedLoss for Normal {
    fn beside(&self) -> (usize, Transforms) {
        (1, Transforms::new([(0..1, Transform::Positive)]))
    }

    fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
        0.5 * ((y - t) / beside[0]).powi(2) + beside[0].ln()
    }

    fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
        let (s, z) = (beside[0], (y - t) / beside[0]);
        slopes.copy_from_slice(&[-z / s, (1.0 - z * z) / s]);
        bends.fill(0.0);
    }

    fn reach(&self, _beside: &[f64]) -> f64 {
        f64::INFINITY
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Linear,
    Logistic,
}

struct World {
    target: Target,
    truth: Vec<f64>,
    /// The standard deviation of each coefficient without privacy.
    apart: Vec<f64>,
}

/// How many sites there are, unless somebody says otherwise.
const SITES: usize = 2;

fn row_norm(columns: usize) -> f64 {
    1.4 * (columns as f64).sqrt()
}

/// Correlated rows, shortened, and responses by a truth whose predictors have a variance of about
/// 1, at so many sites.
fn world(kind: Kind, (rows, sites): (usize, usize), d: usize, seed: u64) -> World {
    let mut all = vec![0.0; d + rows * (d + 1)];
    Seed::new(seed).stream(Purpose::Data, SERVER, 0).normals(&mut all);
    let mut normals = all.into_iter();
    let mut truth: Vec<f64> = normals.by_ref().take(d).collect();
    let norm = truth.iter().map(|t| t * t).sum::<f64>().sqrt();
    truth.iter_mut().for_each(|t| *t /= norm);
    let mut coins = Seed::new(seed).stream(Purpose::Data, SERVER, 1);
    let mut hessian = nalgebra::DMatrix::<f64>::identity(d, d);
    let mut clients: Vec<Arc<dyn Model>> = Vec::new();
    for _ in 0..sites {
        let (mut cells, mut responses) = (Vec::new(), Vec::new());
        for _ in 0..rows / sites {
            let z: Vec<f64> = normals.by_ref().take(d + 1).collect();
            let mut x: Vec<f64> = (0..d).map(|k| 0.9 * z[k] + 0.4 * z[(k + 1) % d]).collect();
            let long = x.iter().map(|x| x * x).sum::<f64>().sqrt();
            x.iter_mut().for_each(|x| *x *= (row_norm(d) / long).min(1.0));
            let t: f64 = x.iter().zip(&truth).map(|(x, t)| x * t).sum();
            let p = 1.0 / (1.0 + (-t).exp());
            let (y, bend) = match kind {
                Kind::Linear => (t + z[d], 1.0),
                Kind::Logistic => (f64::from(u8::from(coins.uniform() < p)), p * (1.0 - p)),
            };
            for i in 0..d {
                for j in 0..d {
                    hessian[(i, j)] += bend * x[i] * x[j];
                }
            }
            cells.extend(x);
            responses.push(y);
        }
        let design = Design::dense(cells, d).unwrap();
        clients.push(match kind {
            Kind::Linear => Arc::new(Extended::new(design, responses, Normal).unwrap()),
            Kind::Logistic => Arc::new(Glm::new(design, responses, Glms::Bernoulli).unwrap()),
        });
    }
    let prior = match kind {
        Kind::Linear => {
            let mut laws = vec![Law::Normal { mean: 0.0, sd: 1.0 }; d];
            laws.push(Law::Exponential { rate: 1.0 });
            let sigma = Transforms::new([(d..d + 1, Transform::Positive)]);
            Prior::laws(laws, sigma).unwrap()
        }
        Kind::Logistic => Prior::gaussian(4.0, d).unwrap(),
    };
    let spread = hessian.cholesky().unwrap().inverse();
    let apart = (0..d).map(|i| spread[(i, i)].sqrt()).collect();
    let target = Target::new(clients, prior, Placement::Server, 1.0).unwrap();
    World { target, truth, apart }
}

fn recipe(kind: Kind, d: usize, epsilon: f64) -> Recipe {
    let regression = match kind {
        Kind::Linear => Released::Linear { response: 5.0, noise_variance: None },
        Kind::Logistic => Released::Logistic,
    };
    let once = Once::new(regression, row_norm(d), Neighbour::Replace, (epsilon, 1e-6)).unwrap();
    Recipe::Release(Release { once: Some(once), weak: true })
}

struct Chain {
    server: Box<dyn Sampler>,
    clients: Vec<Box<dyn Device>>,
    ledger: Ledger,
}

impl Chain {
    fn new(recipe: &Recipe, target: &Target, seed: u64) -> Self {
        let target = Arc::new(recipe.check(target.clone()).unwrap());
        let keys = Keys::simulation(Seed::new(seed), 0);
        let start = vec![0.0; target.dim()];
        Chain {
            server: recipe.server(&target, &start, keys).unwrap(),
            clients: recipe.clients(&target, keys).unwrap(),
            ledger: Ledger::new(target.clients.len()),
        }
    }

    fn exchange(&mut self) -> Event {
        exchange(&mut *self.server, &mut self.clients, &mut self.ledger)
    }

    fn draws(&mut self, n: usize) -> Vec<Vec<f64>> {
        let mut all = Vec::new();
        while all.len() < n {
            match self.exchange() {
                Event::Draw => all.push(self.server.position().to_vec()),
                event => assert_eq!(event, Event::Nothing),
            }
        }
        all
    }
}

fn of_environment(name: &str, usual: f64) -> f64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// How many 90% intervals hold the truth, how many would without knowing of the noise, and how much
/// wider they are than without privacy.
fn coverage(
    kind: Kind,
    (rows, sites): (usize, usize),
    d: usize,
    epsilon: f64,
    repetitions: u64,
) -> [f64; 3] {
    let (mut held, mut naive, mut widths) = (0.0, 0.0, Vec::new());
    for repetition in 0..repetitions {
        let World { target, truth, apart } = world(kind, (rows, sites), d, 100 + repetition);
        let mut chain = Chain::new(&recipe(kind, d, epsilon), &target, repetition);
        let draws = chain.draws(600);
        for k in 0..d {
            let mut of: Vec<f64> = draws.iter().map(|draw| draw[k]).collect();
            of.sort_by(f64::total_cmp);
            let (low, high) = (of[30], of[569]);
            held += f64::from(u8::from(low < truth[k] && truth[k] < high));
            widths.push((high - low) / (2.0 * 1.645 * apart[k]));
            // The same centre with the width of the rows alone.
            let centre = 0.5 * (low + high);
            naive += f64::from(u8::from((truth[k] - centre).abs() < 1.645 * apart[k]));
        }
        let moved = draws.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(moved > 300, "{moved} of 600 proposals were accepted");
    }
    let all = (repetitions as usize * d) as f64;
    widths.sort_by(f64::total_cmp);
    [held / all, naive / all, widths[widths.len() / 2]]
}

/// 90% intervals of 60 data sets hold three coefficients each: beyond 0.80 to 0.98 is four standard
/// errors off. Intervals that do not know of the noise hold far fewer, so that this would notice.
#[test]
fn a_release_covers_the_truth_and_knows_its_noise() {
    let rows = of_environment("ROWS", 2000.0) as usize;
    let sites = of_environment("SITES", SITES as f64) as usize;
    let d = of_environment("COLUMNS", 3.0) as usize;
    let epsilon = of_environment("EPSILON", 1.0);
    let repetitions = of_environment("REPETITIONS", 60.0) as u64;
    for (name, kind) in [("linear", Kind::Linear), ("logistic", Kind::Logistic)] {
        let [held, naive, width] = coverage(kind, (rows, sites), d, epsilon, repetitions);
        println!("{name}: covers {held:.3} (naive {naive:.3}), {width:.2} times as wide");
        assert!((0.80..=0.98).contains(&held), "{name}: {held}");
        let usual = std::env::var("ROWS").is_err();
        assert!(!usual || naive < 0.75 && width > 1.2, "{name}: {naive} {width}");
    }
}

/// Sites answer twice, and no draw asks anybody: each of the first two exchanges has one answer of
/// every site, and none of the others has any.
#[test]
fn sites_are_asked_twice_and_never_again() {
    for kind in [Kind::Linear, Kind::Logistic] {
        let World { target, .. } = world(kind, (400, SITES), 2, 1);
        let mut chain = Chain::new(&recipe(kind, 2, 3.0), &target, 1);
        for stage in 0..2 {
            assert_eq!(chain.server.cohort().len(), SITES, "{stage}");
            assert_eq!(chain.exchange(), Event::Nothing);
        }
        let told = chain.ledger.clone();
        for _ in 0..20 {
            assert!(chain.server.cohort().is_empty());
            assert_eq!(chain.exchange(), Event::Draw);
        }
        assert_eq!(chain.ledger, told);
    }
}

#[test]
fn a_restored_chain_goes_on_as_the_uninterrupted_one() {
    for kind in [Kind::Linear, Kind::Logistic] {
        let World { target, .. } = world(kind, (400, SITES), 2, 1);
        let recipe = recipe(kind, 2, 3.0);
        for exchanges in [0, 1, 2, 5] {
            let mut chain = Chain::new(&recipe, &target, 4);
            (0..exchanges).for_each(|_| assert_ne!(chain.exchange(), Event::Diverged));
            let mut other = Chain::new(&recipe, &target, 4);
            restore(&mut *other.server, &save(&mut *chain.server)).unwrap();
            for (from, to) in chain.clients.iter_mut().zip(&mut other.clients) {
                restore(&mut **to, &save(&mut **from)).unwrap();
            }
            assert_eq!(chain.draws(7), other.draws(7), "after {exchanges}");
        }
    }
}

fn order(
    round: u64,
    numbers: u64,
    at: Option<&'static [f64]>,
    bound: &'static [f64],
) -> Order<'static> {
    Order {
        round,
        task: Task::Release { numbers },
        position: at.map(|at| Payload::Plain(at, Precision::F64)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: bound,
    }
}

/// A site gives each release once, in its turn, with the bounds that were agreed on.
#[test]
fn a_site_gives_each_release_once_and_in_its_turn() {
    let World { target, .. } = world(Kind::Linear, (40, SITES), 2, 1);
    let recipe = recipe(Kind::Linear, 2, 3.0);
    let target = Arc::new(recipe.check(target).unwrap());
    let keys = Keys::simulation(Seed::new(1), 0);
    let mut client = recipe.client(&target, ClientId(0), keys).unwrap();
    let first = order(0, 6, None, &[]);
    let second = order(1, 2, Some(&[0.5, 0.1, 0.0]), &[2.0]);
    assert!(client.accepts(&first) && !client.accepts(&second));
    assert!(!client.accepts(&order(0, 7, None, &[])));
    client.answer(&first);
    assert!(!client.accepts(&first), "the first release again");
    assert!(client.accepts(&second));
    for bound in [&[][..], &[0.0], &[-2.0], &[1e-9], &[1e9], &[f64::NAN]] {
        assert!(!client.accepts(&order(1, 2, Some(&[0.5, 0.1, 0.0]), bound)), "{bound:?}");
    }
    assert!(!client.accepts(&order(1, 2, None, &[2.0])));
    client.answer(&second);
    assert!(!client.accepts(&second) && !client.accepts(&first));
    assert!(!client.accepts(&order(2, 2, Some(&[0.5, 0.1, 0.0]), &[2.0])), "a third one");
    assert!(!client.accepts(&Order { task: Task::Estimate, ..first }));
}

/// Answers differ from the sums over rows by noise of the deviations that are accounted for: over
/// 2000 keys, means within 4.9 standard errors and variances too.
#[test]
fn answers_have_the_noise_that_is_accounted_for() {
    let World { target, .. } = world(Kind::Linear, (40, SITES), 2, 1);
    let recipe = recipe(Kind::Linear, 2, 3.0);
    let target = Arc::new(recipe.check(target).unwrap());
    let Recipe::Release(Release { once: Some(once), .. }) = &recipe else { panic!() };
    let rows = target.clients[0].observed().unwrap();
    let (mut row, mut exact) = (vec![0.0; 2], [0.0; 6]);
    for j in 0..target.clients[0].rows() {
        let y = rows.row(j, &mut row).clamp(-5.0, 5.0) * once.weight();
        let z = [row[0], row[1], y];
        for (k, (a, b)) in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)].into_iter().enumerate()
        {
            exact[k] += z[a] * z[b];
        }
    }
    let t = once.first_deviation();
    let keys = 2000;
    let (mut means, mut squares) = ([0.0; 6], [0.0; 6]);
    for key in 0..keys {
        let keys = Keys::simulation(Seed::new(key), 0);
        let mut client = recipe.client(&target, ClientId(0), keys).unwrap();
        let reply = client.answer(&order(0, 6, None, &[]));
        for (k, value) in reply.payload.values().iter().enumerate() {
            let deviation = if [0, 3, 5].contains(&k) { t } else { t / 2f64.sqrt() };
            let z = (value - exact[k]) / deviation;
            means[k] += z;
            squares[k] += z * z - 1.0;
        }
    }
    let n = keys as f64;
    for k in 0..6 {
        assert!((means[k] / n.sqrt()).abs() < 4.9, "{k}: {}", means[k] / n.sqrt());
        let variance = squares[k] / (2.0 * n).sqrt();
        assert!(variance.abs() < 4.9, "{k}: {variance}");
    }
}

/// Where noise prevails there are no draws, unless somebody has said that he wants them.
#[test]
fn a_release_that_says_nothing_gives_draws_only_where_they_are_wanted() {
    for kind in [Kind::Linear, Kind::Logistic] {
        let World { target, .. } = world(kind, (100, SITES), 6, 1);
        let Recipe::Release(release) = recipe(kind, 6, 0.5) else { panic!() };
        let strict = Recipe::Release(Release { weak: false, ..release.clone() });
        let mut chain = Chain::new(&strict, &target, 1);
        let lost = (0..3).any(|_| chain.exchange() == Event::Diverged);
        assert!(lost);
        let why = chain.server.refusal().unwrap();
        assert!(why.contains("weak = true"), "{why}");
        let mut chain = Chain::new(&Recipe::Release(Release { weak: true, ..release }), &target, 1);
        assert_eq!(chain.draws(50).len(), 50);
        assert!(chain.server.refusal().is_none());
        assert!(!(0.0..1.2).contains(&chain.server.numbers()[1]));
    }
}

#[test]
fn what_cannot_be_released_is_refused() {
    let World { target, .. } = world(Kind::Logistic, (40, SITES), 2, 1);
    let recipe = recipe(Kind::Logistic, 2, 3.0);
    let told = |target: Target| match recipe.check(target) {
        Err(DataError::Unsupported { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert!(told(Target { prior: Prior::Flat, ..target.clone() }).contains("flat"));
    assert!(told(Target { temperature: 0.5, ..target.clone() }).contains("temperature"));
    let without = Recipe::Release(Release { once: None, weak: false });
    assert!(without.check(target).unwrap_err().to_string().contains("budget"));
}
