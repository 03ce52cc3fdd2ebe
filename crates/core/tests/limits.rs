//! What clients answer has bounds that follow from their rows: honest answers are never beyond,
//! those of other rows are refused; and gradients that are shortened bias the draws as is said.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::compress::{Compressor, Message, rows};
use consilience_core::model::{
    Absent, Coordinates, Design, Gaussian, Glm, GlmFamily, Model, Prior, Single, Softmax,
};
use consilience_core::protocol::{
    Client, Event, Exchange, Format, Growth, Limits, Output, Precision, Refusal, Server, Statement,
};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::registry::{REGISTRY, Settings};
use consilience_core::sampler::{Batch, Keys, PrivateNoise, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::survey::{self, Evaluate, Minimum, Optimum};
use consilience_core::target::{Placement, Target};

const ROWS: usize = 12;

/// Rows of two features and a column of ones, `size` times as long as usual.
fn model(client: u64, classes: usize, size: f64) -> Arc<dyn Model> {
    let mut stream = Seed::new(5).stream(Purpose::Data, ClientId(client as u32), 0);
    let mut cells = vec![0.0; 3 * ROWS];
    stream.normals(&mut cells);
    cells.chunks_exact_mut(3).for_each(|row| row[2] = 1.0);
    cells.iter_mut().for_each(|cell| *cell *= size);
    let labels: Vec<u32> = (0..ROWS).map(|_| stream.below(classes as u32)).collect();
    let design = Design::dense(cells, 3).unwrap();
    if classes > 2 {
        return Arc::new(Softmax::new(design, labels, classes).unwrap());
    }
    let response = labels.into_iter().map(f64::from).collect();
    Arc::new(Glm::new(design, response, GlmFamily::Bernoulli).unwrap())
}

/// The target as the sites have it, and as the server sees it, in coordinates of their own or not.
fn both(classes: usize, size: f64, whitened: bool, placement: &Placement) -> [Target; 2] {
    let honest: Vec<Arc<dyn Model>> = (0..3).map(|i| model(i, classes, 1.0)).collect();
    let dim = honest[0].dim();
    let absent = |model: &Arc<dyn Model>| -> Arc<dyn Model> {
        let row = model.row_reach().unwrap().rounded_up();
        Arc::new(Absent::new(dim, ROWS).reaching(row))
    };
    let seen = honest.iter().map(absent).collect();
    let sites = (0..3).map(|i| model(i, classes, if i == 1 { size } else { 1.0 })).collect();
    let prior = || Prior::gaussian(4.0, dim).unwrap();
    [sites, seen].map(|clients| {
        let target = Target::new(clients, prior(), placement.clone(), 1.0).unwrap();
        if !whitened {
            return target;
        }
        let mut hessian = vec![0.0; dim * dim];
        (0..dim).for_each(|k| hessian[k * (dim + 1)] = 1.0 + k as f64);
        hessian[1] = 0.4;
        hessian[dim] = 0.4;
        let centre: Vec<f64> = (0..dim).map(|k| 0.3 - 0.2 * k as f64).collect();
        let coordinates = Arc::new(Coordinates::whitening(&centre, &hessian).unwrap());
        target.whitened(&coordinates, &[0.5, 0.2, 0.3])
    })
}

/// Run a chain whose server knows no rows but their bounds; the first answer that it refuses.
fn carried(recipe: &Recipe, [sites, seen]: &[Target; 2], draws: usize) -> Option<Refusal> {
    let keys = Keys::simulation(Seed::new(2), 0);
    let [sites, seen] = [sites, seen].map(|target| recipe.check(target.clone()).unwrap());
    let start = vec![3.0; seen.dim()]; // far out, where values are large
    let machine = recipe.server(&seen, &start, keys).unwrap();
    let format = recipe.format(&seen, keys).unwrap();
    let growths = (0..3).map(|i| recipe.family().growth(&seen, ClientId(i))).collect();
    let mut server = Server::new(machine, Statement::new::<&str, &str>([]), 3, format.clone())
        .limited(Limits::new(1e12).with_rows_of(&seen, growths));
    let client = |i| Client::new(recipe.client(&sites, ClientId(i), keys).unwrap(), format.clone());
    let mut clients: Vec<_> = (0..3).map(client).collect();
    let mut drawn = 0;
    while drawn < draws {
        match server.poll() {
            Some(Output::Send { to, bytes }) => {
                let mut answer = Vec::new();
                clients[to.index()].handle(&bytes, &mut answer).unwrap();
                if let Err(refusal) = server.handle(to, &answer) {
                    return Some(refusal);
                }
            }
            Some(Output::Happened(event)) => drawn += usize::from(event == Event::Draw),
            None => panic!("nobody is asked"),
        }
    }
    None
}

/// Every sampler that runs on any target, in both coordinates, with two and with three classes.
#[test]
fn honest_answers_are_never_beyond_what_rows_can_give() {
    for (classes, whitened) in [(2, false), (2, true), (3, true)] {
        for placement in [Placement::Server, Placement::Split(vec![0.2, 0.3, 0.5])] {
            let targets = both(classes, 1.0, whitened, &placement);
            for row in REGISTRY {
                let step = Schedule::Constant(if row.family.needs_shape { 0.3 } else { 0.01 });
                let settings = Settings::default();
                let dim = targets[0].dim();
                let anchor = row.needs_optimum.then(|| anchor(&targets[0], vec![0.1; dim]));
                let recipe = row.recipe(step, &settings, 3, dim, anchor);
                let found = carried(&recipe, &targets, 300);
                assert_eq!(found, None, "{} {classes} {whitened} {placement:?}", row.name);
            }
            if !whitened {
                let private = Uplink {
                    private: Some(PrivateNoise { server_share: 0.1 }),
                    ..Uplink::qlsd(Schedule::Constant(0.01), Batch::Rows(4), Compressor::qsgd(16))
                };
                assert_eq!(carried(&Recipe::Uplink(private), &targets, 300), None);
            }
        }
    }
}

/// The second site has rows a thousand times as long as it said.
#[test]
fn answers_of_other_rows_are_refused_by_the_limit_of_the_model() {
    for whitened in [false, true] {
        let targets = both(2, 1000.0, whitened, &Placement::Server);
        let recipe = |name: &str| {
            let row = REGISTRY.iter().find(|row| row.name == name).unwrap();
            let (small, dim) = (Schedule::Constant(0.01), targets[0].dim());
            row.recipe(small, &Settings::default(), 3, dim, None)
        };
        for name in ["lmc", "sgld", "qlsd", "p-elf", "mala", "hmc", "pcn", "imh"] {
            let found = carried(&recipe(name), &targets, 3000);
            let Some(Refusal::TooLarge { from, norm, most, of_rows, .. }) = found else {
                panic!("{name}: {found:?}")
            };
            assert!(from == ClientId(1) && of_rows && norm > most && most < 1e5, "{name}: {most}");
        }
        // What these send has no bound: the limit of all answers is all that they have.
        for name in ["qlsd++", "d-elf", "fald", "fa-ld"] {
            assert_eq!(carried(&recipe(name), &targets, 20), None, "{name}");
        }
    }
}

/// Conduct a survey whose server knows no rows but their bounds; the first answer that it refuses.
fn surveyed(survey: impl Exchange, [sites, seen]: &[Target; 2]) -> Option<Refusal> {
    let format = Format::plain(seen.dim(), Precision::F64);
    let growths = vec![Some(Growth { factor: 1.0, addend: 0.0 }); 3];
    let mut server = Server::new(survey, Statement::new::<&str, &str>([]), 3, format.clone())
        .limited(Limits::new(f64::INFINITY).with_rows_of(seen, growths));
    let client = |i| Client::new(survey::Client::new(sites, ClientId(i)), format.clone());
    let mut clients: Vec<_> = (0..3).map(client).collect();
    loop {
        match server.poll() {
            Some(Output::Send { to, bytes }) => {
                let mut answer = Vec::new();
                clients[to.index()].handle(&bytes, &mut answer).unwrap();
                if let Err(refusal) = server.handle(to, &answer) {
                    return Some(refusal);
                }
            }
            Some(Output::Happened(Event::Done)) => return None,
            Some(Output::Happened(_)) => {}
            None => panic!("nobody is asked"),
        }
    }
}

/// What a site says before anything is sampled has the same limits, at every point that is asked
/// about.
#[test]
fn surveys_are_told_no_more_than_rows_can_give() {
    for (classes, whitened) in [(2, false), (2, true), (3, true)] {
        for placement in [Placement::Server, Placement::Split(vec![0.2, 0.3, 0.5])] {
            for (size, refused) in [(1.0, false), (1000.0, true)] {
                let targets = both(classes, size, whitened, &placement);
                let far = vec![3.0; targets[0].dim()];
                let found = [
                    surveyed(Optimum::new(&targets[1], &far, 1e-8, 50), &targets),
                    surveyed(Minimum::new(&targets[1], &far, 1e-8, 50), &targets),
                    surveyed(Evaluate::new(&targets[1], &far), &targets),
                ];
                for found in found {
                    let about = format!("{classes} {whitened} {placement:?} {size}: {found:?}");
                    assert_eq!(found.is_some(), refused, "{about}");
                    if let Some(refusal) = found {
                        let Refusal::TooLarge { from, of_rows, .. } = refusal else {
                            panic!("{about}")
                        };
                        assert!(from == ClientId(1) && of_rows, "{about}");
                    }
                }
            }
        }
    }
}

/// At any parameters: gradients of single rows, and values by the mean value theorem.
#[test]
fn rows_reach_no_further_than_their_model_says() {
    for classes in [2, 3] {
        let model = model(0, classes, 1.0);
        let reach = model.row_reach().unwrap();
        assert_eq!(reach.loss, (classes as f64).ln());
        let longest = (0..ROWS).map(|row| model.row_smoothness(row)).fold(0.0, f64::max);
        let norm = (longest * if classes == 2 { 4.0 } else { 2.0 }).sqrt();
        let slope = if classes == 2 { 1.0 } else { 2f64.sqrt() };
        assert!((reach.gradient - slope * norm).abs() < 1e-12);
        let up = reach.rounded_up();
        assert!(up.gradient >= reach.gradient && up.gradient < 2.0 * reach.gradient);
        assert_eq!(up.gradient.log2().fract(), 0.0);
        let absent = Absent::new(model.dim(), ROWS).reaching(reach);
        let mut stream = Seed::new(8).stream(Purpose::Data, SERVER, 1);
        let mut closest: f64 = 0.0;
        for k in 0..400 {
            let mut x = vec![0.0; model.dim()];
            stream.normals(&mut x);
            x.iter_mut().for_each(|x| *x *= f64::from(k));
            let mut gradient = vec![0.0; x.len()];
            let mut single = Single::new(&model);
            single.add_gradient(&x, consilience_core::model::Rows::All, 1.0, &mut gradient);
            let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            let most = Model::reach(&absent, &x).unwrap();
            assert!(norm <= most.gradient && single.value(&x).abs() <= most.value, "{x:?}");
            closest = closest.max(norm / most.gradient);
        }
        assert!(closest > 0.2, "a bound that nothing comes near: {closest}");
    }
    let design = Design::dense(vec![1.0], 1).unwrap();
    let linear = Glm::new(design, vec![0.0], GlmFamily::Gaussian { variance: 1.0 });
    assert_eq!(Model::row_reach(&linear.unwrap()), None, "a residual has no bound");
}

/// Every compressor of the registry on vectors of all kinds.
#[test]
fn compressors_lengthen_vectors_by_no_more_than_they_say() {
    let (mut tested, mut message) = (0, Message::new());
    for text in rows().flat_map(|row| row.examples) {
        let compressor: Compressor = text.parse().unwrap();
        for d in [4, 7, 64] {
            let Some(growth) = compressor.growth(d) else { continue };
            let mut normal = vec![0.0; d];
            Seed::new(3).stream(Purpose::Data, SERVER, d as u64).normals(&mut normal);
            let mut one = vec![0.0; d];
            one[1] = 0.7;
            let mut many = vec![0.3; d];
            many[0] = 5.0;
            for v in [normal, one, many, vec![1.3; d]] {
                for round in 0..300 {
                    let stream = || Seed::new(4).stream(Purpose::Compress, ClientId(0), round);
                    let mut out = vec![0.0; d];
                    compressor.quantise(&v, &mut stream(), &mut message).unwrap();
                    message.dequantise(&mut stream(), &mut out).unwrap();
                    let square = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
                    assert!(
                        square(&out) <= growth * square(&v) * (1.0 + 1e-5),
                        "{text} {growth} {v:?} {out:?}"
                    );
                    tested += 1;
                }
            }
        }
    }
    assert!(tested > 20_000, "{tested}");
}

fn clipped(step: f64, clip: Option<f64>) -> Recipe {
    let lmc = Uplink::lmc(Schedule::Constant(step));
    Recipe::Uplink(Uplink { clip, precision: Precision::F64, ..lmc })
}

/// Three Gaussian sites of precision 1 in one parameter, the last of them far away.
fn one_far_away(at: f64) -> Target {
    let site = |mean: f64| Arc::new(Gaussian::new(vec![mean], vec![1.0]).unwrap()) as _;
    let sites = vec![site(0.0), site(0.5), site(at)];
    Target::new(sites, Prior::Flat, Placement::Server, 1.0).unwrap()
}

#[test]
fn a_clip_that_no_gradient_reaches_changes_nothing() {
    let target = gaussian(Prior::Flat, Placement::Server, 1.0);
    let plain = run(&clipped(0.05, None), &target, 300);
    assert!(run(&clipped(0.05, Some(1e9)), &target, 300) == plain);
    assert!(run(&clipped(0.05, Some(1e-2)), &target, 300) != plain);
}

/// With the far site's pull held at `c` the mean solves `2 m - 0.5 = c`, and the curvature there is
/// that of the other two: mean `(0.5 + c) / 2`, variance 1/2, as long as the chain never comes
/// where another gradient is that long. Means of 60,000 draws with autocorrelation time
/// `2 / (gamma 2)`: within 4.9 standard errors.
#[test]
fn one_site_pulls_no_harder_than_its_clip_and_the_draws_are_biased_as_is_said() {
    let (step, clip, n) = (0.05, 8.0, 60_000);
    let target = one_far_away(1000.0);
    let draws = run(&clipped(step, Some(clip)), &target, n);
    let kept = &draws[1000..];
    let mean = kept.iter().map(|x| x[0]).sum::<f64>() / kept.len() as f64;
    let variance = kept.iter().map(|x| (x[0] - mean).powi(2)).sum::<f64>() / kept.len() as f64;
    // that of the Langevin step at curvature 2
    let law = 1.0 / (2.0 * (1.0 - step));
    let error = (law / (kept.len() as f64 * step)).sqrt();
    assert!((mean - (0.5 + clip) / 2.0).abs() < 4.9 * error, "{mean}");
    assert!((variance / law - 1.0).abs() < 4.9 * (2.0 / (kept.len() as f64 * step)).sqrt());
    let recipe = clipped(step, Some(clip));
    let says = recipe.family().cautions().join(" ");
    assert!(says.contains("shortened") && says.contains("drawn towards the others"), "{says}");
    let mut chain = start(&recipe, &target, &[0.0], 1, 0);
    chain.draws(5);
    assert_eq!(chain.server.numbers(), [1.0], "one answer of the round was shortened");
}

#[test]
fn clips_are_refused_where_they_make_no_sense() {
    let target = one_far_away(1.0);
    let small = Schedule::Constant(0.01);
    let clip = Some(1.0);
    for (recipe, why) in [
        (Uplink { clip: Some(0.0), ..Uplink::lmc(small) }, "clip"),
        (Uplink { clip: Some(f64::NAN), ..Uplink::lmc(small) }, "clip"),
        (Uplink { clip, ..Uplink::d_elf(small, Compressor::top_k(1)) }, "remember what they sent"),
        (
            Uplink {
                clip,
                private: Some(PrivateNoise { server_share: 0.0 }),
                ..Uplink::lmc(small)
            },
            "come with noise",
        ),
    ] {
        let refused = Recipe::Uplink(recipe).check(target.clone()).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
