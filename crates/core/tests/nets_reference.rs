//! Nets against PyTorch, in 64 bits: `data/make_nets_reference.py` has the same layers and
//! formulas.

#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;

use consilience_core::ask::Sum;
use consilience_core::model::net::{Layer, Net, NetPlan, Seen, Shortcut, preset};
use consilience_core::model::{Arithmetic, Design, Model, Rows, Single};

const TORCH: &str = include_str!("data/nets.csv");
const ROWS: usize = 11;

fn layers(words: &[&str]) -> Vec<Layer> {
    words.iter().map(|words| words.parse().unwrap()).collect()
}

fn plan(name: &str) -> NetPlan {
    let (layers, input) = match name {
        "lenet5" => (preset("lenet5", 10).unwrap(), [1, 28, 28]),
        "mlp" => (preset("mlp(9)", 10).unwrap(), [1, 28, 28]),
        "resnet" => (preset("resnet(8, 4)", 5).unwrap(), [3, 12, 12]),
        "norms" => {
            let words = [
                "conv(6, 3, pad = 1)",
                "group_norm(3)",
                "tanh",
                "avg_pool(2)",
                "conv(5, 3)",
                "sigmoid",
                "flatten",
                "linear(4)",
            ];
            (layers(&words), [2, 8, 10])
        }
        "strides" => {
            let mut list = layers(&["conv(3, 4, pad = 1, stride = 2)", "swish"]);
            let inner = layers(&["conv(5, 3, pad = 1, stride = 2)", "tanh"]);
            list.push(Layer::Residual { layers: inner, shortcut: Shortcut::Pad });
            list.extend(layers(&["flatten", "linear(3)"]));
            (list, [2, 14, 13])
        }
        other => panic!("{other}"),
    };
    NetPlan::new(&layers, input).unwrap()
}

fn parameters(plan: &NetPlan) -> Vec<f64> {
    let mut x = vec![0.0; plan.dim()];
    for (at, parameter) in plan.parameters().iter().enumerate() {
        for (k, x) in x[parameter.range()].iter_mut().enumerate() {
            let k = k as f64;
            let wave = (0.7 * k + 0.01 * k * (0.001 * k).cos() + 1.3 * at as f64).sin();
            *x = if parameter.sizes.len() > 1 {
                wave * (2.0 / parameter.fan_in as f64).sqrt()
            } else {
                0.5 + 0.3 * wave
            };
        }
    }
    x
}

#[test]
fn losses_and_gradients_are_those_of_pytorch() {
    let mut names: Vec<&str> = TORCH.lines().filter_map(|line| line.split(',').next()).collect();
    names.dedup();
    assert_eq!(names, ["lenet5", "mlp", "resnet", "norms", "strides"]);
    for name in names {
        let plan = Arc::new(plan(name));
        let (size, x) = (plan.input().len(), parameters(&plan));
        let cell = |k: usize| (0.37 * k as f64 + 0.11 * (k / size) as f64).cos();
        let design = Design::dense((0..ROWS * size).map(cell).collect(), size).unwrap();
        let labels = (0..ROWS).map(|row| (row * 7 % plan.outputs()) as u32).collect();
        let net = Net::new(Arc::clone(&plan), design, Seen::Labels(labels), Arithmetic::F64);
        let model: Arc<dyn Model> = Arc::new(net.unwrap());
        let mut found = vec![0.0; plan.dim() + 1];
        Single::new(&model).add(Sum::GradientAndValue { x: &x }, Rows::All, 1.0, &mut found);
        let of = |line: &&str| line.starts_with(&format!("{name},"));
        let mut lines = TORCH.lines().filter(of).map(|line| line.split(',').skip(1));
        let number = |word: Option<&str>| word.unwrap().parse::<f64>().unwrap();
        let loss = number(lines.next().unwrap().nth(1));
        assert!((found[plan.dim()] - loss).abs() < 1e-10 * loss, "{name}: {loss}");
        assert_eq!(lines.clone().count(), plan.parameters().len());
        for (parameter, mut words) in plan.parameters().iter().zip(lines) {
            let part = &found[parameter.range()];
            assert_eq!(number(words.next()) as usize, part.len(), "{name}: {}", parameter.name);
            let norm = number(words.next());
            let own = part.iter().map(|g| g * g).sum::<f64>().sqrt();
            assert!((own - norm).abs() < 1e-9 * norm, "{name}: {}", parameter.name);
            for g in part.iter().step_by(part.len().div_ceil(8)) {
                let theirs = number(words.next());
                assert!((g - theirs).abs() < 1e-9 * norm, "{name}: {}", parameter.name);
            }
            assert_eq!(words.next(), None);
        }
    }
}
