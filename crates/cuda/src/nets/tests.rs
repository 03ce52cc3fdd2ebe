//! Chains on an emulated board have the bits of the core.

use std::sync::Arc;

use consilience_core::ask::{Ask, Sum};
use consilience_core::model::net::{Layer, NetPlan, Seen, Stated, parse, preset};
use consilience_core::model::{Arithmetic, Design, Model, Net, Prior, Rows, Single};
use consilience_core::protocol::{Event, Jointly, Ledger, exchange};
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::sampler::{Batch, Keys, Local, Recipe};
use consilience_core::snapshot;
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

use super::Nets;
use crate::Device;
use crate::emulated::Emulated;

fn normals(address: u64, n: usize, scale: f64) -> Vec<f64> {
    let mut z = vec![0.0; n];
    Seed::new(5).stream(Purpose::Data, ClientId(0), address).normals(&mut z);
    z.iter().map(|z| scale * z).collect()
}

/// Clients with so many rows each.
fn clients(plan: &Arc<NetPlan>, rows: &[usize], gaussian: bool) -> Vec<Arc<dyn Model>> {
    let (width, classes) = (plan.input().len(), plan.outputs());
    let one = |(k, n): (usize, &usize)| -> Arc<dyn Model> {
        // images are black here and there
        let cells = normals(10 + k as u64, n * width, 1.0).iter().map(|x| x.max(0.0)).collect();
        let seen = if gaussian {
            Seen::Numbers(normals(50 + k as u64, *n, 1.0), 0.3)
        } else {
            Seen::Labels((0..*n as u32).map(|j| (j * 7 + k as u32) % classes as u32).collect())
        };
        let design = Design::dense(cells, width).unwrap();
        Arc::new(Net::new(Arc::clone(plan), design, seen, Arithmetic::F32).unwrap())
    };
    rows.iter().enumerate().map(one).collect()
}

fn plan(layers: &[Layer], input: [usize; 3]) -> Arc<NetPlan> {
    Arc::new(NetPlan::new(layers, input).unwrap())
}

fn list(layers: &[&str]) -> Vec<Layer> {
    let stated: Vec<Stated> = layers.iter().map(|l| Stated::Words((*l).into())).collect();
    parse(&stated).unwrap()
}

/// Where `CONSILIENCE_GPU` is set, on a GPU; `None` where there is no compiler, which is said.
fn joined(clients: &[Arc<dyn Model>]) -> Option<Arc<dyn Model>> {
    if std::env::var_os("CONSILIENCE_GPU").is_some() {
        return Some(Arc::new(Nets::new(&Device::open(0).unwrap(), clients).unwrap()));
    }
    let Some(boards) = Emulated::new() else {
        eprintln!("skipped: there is no C++ compiler (c++) here");
        return None;
    };
    Some(Arc::new(Nets::on(Box::new(boards), clients).unwrap()))
}

/// Gradients and differences of all rows and of some, at equal and at different points.
fn same_gradients(plan: &Arc<NetPlan>, clients: &[Arc<dyn Model>]) {
    let Some(model) = joined(clients) else { return };
    let d = plan.dim();
    let (x, z) = (normals(1, d, 0.2), normals(2, d, 0.2));
    let mut evaluator = Arc::clone(&model).evaluator();
    let few: Vec<u32> = vec![0, 2, 3];
    for rows in [Rows::All, Rows::Some(&few)] {
        for (sum, k) in [(Sum::Gradient { x: &x }, 0), (Sum::Difference { x: &x, z: &z }, 1)] {
            let mut out: Vec<Vec<f64>> =
                (0..clients.len()).map(|c| normals(90 + c as u64 + k, d, 1.0)).collect();
            let mut expected = out.clone();
            let mut asks: Vec<Ask<'_>> = (0u32..)
                .zip(&mut out)
                .map(|(c, out)| Ask { client: ClientId(c), sum, rows, scale: 1.7, out })
                .collect();
            evaluator.answer(&mut asks).unwrap();
            for (client, out) in clients.iter().zip(&mut expected) {
                let ask = Ask { client: ClientId(0), sum, rows, scale: 1.7, out };
                Arc::clone(client).evaluator().answer(&mut [ask]).unwrap();
            }
            for (c, (found, expected)) in out.iter().zip(&expected).enumerate() {
                let differs =
                    found.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits());
                assert!(
                    differs.is_none(),
                    "{sum:.0?}: client {c}, coordinate {differs:?} of {:?}",
                    plan.parameters().iter().map(|p| (&p.name, p.range())).collect::<Vec<_>>()
                );
            }
        }
    }
}

#[test]
fn gradients_of_lenet5_have_the_bits_of_the_core() {
    let plan = plan(&preset("lenet5", 10).unwrap(), [1, 28, 28]);
    same_gradients(&plan, &clients(&plan, &[9, 16, 4], false));
}

/// Every layer that there is, on images that are no squares, with strides and pads.
#[test]
fn gradients_of_every_layer_have_the_bits_of_the_core() {
    for layers in [
        &["flatten", "linear(9)", "tanh", "linear(7)", "sigmoid", "linear(5)"][..],
        &["conv(3, 3, pad = 1)", "relu", "max_pool(2)", "swish", "flatten", "linear(4)"],
        &["avg_pool(2)", "conv(5, 2, stride = 2, pad = 1)", "frn", "relu", "flatten", "linear(3)"],
        &[
            "conv(4, 3, pad = 2)",
            "group_norm(2)",
            "tanh",
            "global_avg_pool",
            "flatten",
            "linear(3)",
        ],
        &["conv(2, 5, pad = 3)", "max_pool(2)", "conv(4, 1)", "swish", "flatten", "linear(2)"],
    ] {
        let plan = plan(&list(layers), [2, 8, 6]);
        same_gradients(&plan, &clients(&plan, &[11, 5], false));
    }
    let plan = plan(&list(&["flatten", "linear(3)", "relu", "linear(1)"]), [1, 3, 4]);
    same_gradients(&plan, &clients(&plan, &[11, 5], true));
}

#[test]
fn gradients_of_residual_nets_have_the_bits_of_the_core() {
    let plan = plan(&preset("resnet(8, 4)", 3).unwrap(), [3, 8, 8]);
    same_gradients(&plan, &clients(&plan, &[9, 4], false));
    let padded = |layers: Vec<Layer>| Layer::Residual {
        layers,
        shortcut: consilience_core::model::net::Shortcut::Pad,
    };
    let inner = list(&["conv(5, 3, pad = 1, stride = 2, bias = false)", "frn"]);
    let mut layers = vec![padded(inner)];
    layers.extend(list(&["swish", "flatten", "linear(3)"]));
    let plan = self::plan(&layers, [2, 6, 6]);
    same_gradients(&plan, &clients(&plan, &[9, 4], false));
}

/// Past two convolutions slopes go as they are: they are wanted twice, after filters took them.
#[test]
fn gradients_of_a_block_with_an_equal_shortcut_have_the_bits_of_the_core() {
    use consilience_core::model::net::Shortcut;
    for end in ["swish", "relu"] {
        let inner = ["conv(9, 3, pad = 1, bias = false)", "frn", "swish", "conv(9, 3, pad = 1)"];
        let inner = list(&[&inner[..], &["frn"]].concat());
        let mut layers = list(&["conv(9, 3, pad = 1)", "swish"]);
        layers.push(Layer::Residual { layers: inner, shortcut: Shortcut::Projection });
        layers.extend(list(&[end, "conv(3, 3, pad = 1)", "frn", "swish", "flatten", "linear(3)"]));
        let plan = plan(&layers, [2, 7, 12]);
        same_gradients(&plan, &clients(&plan, &[9, 4], false));
    }
}

/// More rows than go through the net together, and more than a block.
#[test]
fn gradients_of_many_rows_have_the_bits_of_the_core() {
    let layers = list(&["conv(2, 3)", "max_pool(2)", "relu", "flatten", "linear(3)"]);
    let plan = plan(&layers, [1, 6, 6]);
    same_gradients(&plan, &clients(&plan, &[1100, 513, 40], false));
}

fn target(clients: Vec<Arc<dyn Model>>, prior: Prior) -> Target {
    let n = clients.len();
    let split = Placement::Split(vec![1.0 / n as f64; n]);
    Target::new(clients, prior, split, 0.9).unwrap()
}

/// Two chains side by side: on the board, and client by client.
fn same_chain(name: &str, recipe: &Recipe, target: &Target, exchanges: usize) {
    let Some(model) = joined(&target.clients) else { return };
    let target = Arc::new(recipe.check(target.clone()).unwrap());
    let start = normals(3, target.dim(), 0.1);
    let keys = Keys::simulation(Seed::new(8), 0);
    let chain = || {
        let server = recipe.server(&target, &start, keys).unwrap();
        (server, recipe.clients(&target, keys).unwrap())
    };
    let ((mut server, mut clients), (mut other, mut others)) = (chain(), chain());
    let (mut ledger, mut ledger_of_others) = (Ledger::new(9), Ledger::new(9));
    let mut there = Jointly::new(model);
    let mut draws = 0;
    for k in 0..exchanges {
        let event = there.exchange(&mut *server, &mut clients, &mut ledger).unwrap();
        assert_eq!(event, exchange(&mut *other, &mut others, &mut ledger_of_others), "{name}");
        draws += usize::from(event == Event::Draw);
        assert!(server.position() == other.position(), "{name}: exchange {k}");
        let counts = |clients: &[Box<dyn consilience_core::protocol::Device>]| {
            clients.iter().map(|client| client.rows_evaluated()).collect::<Vec<_>>()
        };
        assert_eq!(counts(&clients), counts(&others), "{name}: exchange {k}");
    }
    assert!(draws > 1, "{name}");
    for (client, other) in clients.iter_mut().zip(&mut others) {
        assert_eq!(snapshot::save(client), snapshot::save(other), "{name}");
    }
}

#[test]
fn walks_have_the_bits_of_the_core() {
    let layers = list(&["conv(3, 3, pad = 1)", "max_pool(2)", "relu", "flatten", "linear(4)"]);
    let plan = plan(&layers, [1, 6, 6]);
    let clients = clients(&plan, &[21, 12, 30], false);
    let gaussian = Prior::gaussian(0.2, plan.dim()).unwrap();
    let step = Schedule::Constant(1e-3);
    let decreasing = Schedule::Polynomial { first: 1e-3, delay: 5.0, power: 0.6 };
    let vr = |tau, batch| Local::vr_fald_star(step, 3, tau, 0.3, 0.2, batch);
    let fald = |tau, batch| Local::fald(decreasing, 3, tau, 0.25, batch);
    let some = Local {
        average: consilience_core::sampler::Average::WithReplacement(2),
        ..fald(0.0, Batch::Rows(5))
    };
    for (name, recipe, prior) in [
        ("own noise", vr(0.0, Batch::Rows(9)), gaussian.clone()),
        ("both noises", vr(0.3, Batch::Rows(8)), Prior::laplace(0.4).unwrap()),
        ("shared noise", vr(1.0, Batch::Full), Prior::Flat),
        ("no control", fald(0.5, Batch::Rows(3)), gaussian.clone()),
        ("all rows", fald(0.0, Batch::Full), Prior::laplace(0.4).unwrap()),
        ("some clients", some, gaussian),
    ] {
        same_chain(name, &Recipe::Local(recipe), &target(clients.clone(), prior), 25);
    }
}

/// A large minibatch is more than a block of rows.
#[test]
fn walks_on_many_rows_have_the_bits_of_the_core() {
    let plan = plan(&list(&["flatten", "linear(7)", "relu", "linear(3)"]), [1, 3, 4]);
    let clients = clients(&plan, &[700, 650], false);
    let recipe = Local::vr_fald_star(Schedule::Constant(1e-4), 2, 0.0, 0.5, 0.2, Batch::Rows(600));
    same_chain("large", &Recipe::Local(recipe), &target(clients, Prior::Flat), 5);
}

/// Family A asks for gradients at one point of all clients.
#[test]
fn compressed_gradients_have_the_bits_of_the_core() {
    use consilience_core::sampler::registry::{self, Settings};
    let plan = plan(&list(&["flatten", "linear(7)", "relu", "linear(3)"]), [1, 3, 4]);
    let clients = clients(&plan, &[20, 25, 30], false);
    let row = registry::find("qlsd++").unwrap();
    let settings =
        Settings { batch: Some(Batch::Rows(6)), refresh_every: Some(4), ..Settings::default() };
    let recipe = row.recipe(Schedule::Constant(1e-4), &settings, 3, plan.dim(), None);
    same_chain("qlsd++", &recipe, &target(clients, Prior::gaussian(0.2, plan.dim()).unwrap()), 12);
}

#[test]
fn models_that_are_no_nets_are_refused() {
    if std::env::var_os("CONSILIENCE_GPU").is_some() {
        return; // where there is a GPU there may be no sources of kernels
    }
    let Some(boards) = Emulated::new() else { return };
    let design = Design::dense(vec![1.0, 2.0, 3.0, 4.0], 2).unwrap();
    let softmax = consilience_core::model::Softmax::new(design, vec![0, 1], 2).unwrap();
    let refused = Nets::on(Box::new(boards), &[Arc::new(softmax)]).unwrap_err();
    assert!(refused.to_string().contains("not a net"), "{refused}");
}

/// What is not asked of the GPU comes from the clients themselves.
#[test]
fn values_are_those_of_the_clients() {
    let plan = plan(&list(&["flatten", "linear(3)"]), [1, 3, 4]);
    let clients = clients(&plan, &[5], false);
    let Some(model) = joined(&clients) else { return };
    let x = normals(1, plan.dim(), 0.3);
    let mut out = [0.0];
    let (client, sum, rows) = (ClientId(0), Sum::Value { x: &x }, Rows::All);
    model.evaluator().answer(&mut [Ask { client, sum, rows, scale: 1.0, out: &mut out }]).unwrap();
    assert_eq!(out[0], Single::new(&clients[0]).value(&x));
}
