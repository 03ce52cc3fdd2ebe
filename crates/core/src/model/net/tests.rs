//! Hold nets against finite differences, plain sums, other arithmetic, other models and PyTorch.

use std::sync::Arc;

use super::kernels::lanes::Arrays;
use super::*;
use crate::model::tests::normals;
use crate::model::{Single, Softmax, contract};

fn layers(words: &[&str]) -> Vec<Layer> {
    words.iter().map(|words| words.parse().unwrap()).collect()
}

fn residual(words: &[&str], shortcut: Shortcut) -> Layer {
    Layer::Residual { layers: layers(words), shortcut }
}

/// Nets with every layer in several settings, and every preset.
fn zoo() -> Vec<(Vec<Layer>, [usize; 3])> {
    let lists: &[(&[&str], [usize; 3])] = &[
        (&["linear(3)"], [5, 1, 1]),
        (&["flatten", "linear(13)", "tanh", "linear(4)"], [2, 3, 3]),
        (&["flatten", "linear(17)", "sigmoid", "linear(4)"], [1, 4, 5]),
        (&["flatten", "linear(6)", "swish", "linear(4)"], [1, 4, 5]),
        (&["flatten", "linear(6)", "swish", "relu", "relu", "linear(4)"], [1, 4, 5]),
        (&["conv(3, 3)", "relu", "flatten", "linear(4)"], [2, 6, 7]),
        (&["conv(7, 3, pad = 1)", "tanh", "conv(2, 3)", "flatten", "linear(3)"], [2, 5, 6]),
        (
            &[
                "tanh",
                "conv(4, 5, pad = 2)",
                "swish",
                "conv(3, 5, pad = 4)",
                "flatten",
                "linear(3)",
            ],
            [1, 7, 6],
        ),
        (
            &["conv(3, 4, pad = 1)", "max_pool(3)", "conv(4, 2)", "flatten", "linear(3)"],
            [2, 10, 10],
        ),
        (&["conv(6, 3, pad = 1)", "max_pool(2)", "relu", "flatten", "linear(3)"], [2, 6, 8]),
        (
            &[
                "conv(5, 3, stride = 2)",
                "relu",
                "conv(2, 2, stride = 3, pad = 1)",
                "flatten",
                "linear(3)",
            ],
            [2, 9, 8],
        ),
        (
            &[
                "conv(4, 1)",
                "swish",
                "conv(4, 3, pad = 1, stride = 2, bias = false)",
                "flatten",
                "linear(3)",
            ],
            [2, 6, 5],
        ),
        (&["conv(4, 3)", "avg_pool(2)", "sigmoid", "flatten", "linear(3)"], [1, 6, 8]),
        (
            &["conv(4, 3)", "swish", "conv(5, 3, pad = 1)", "global_avg_pool", "linear(3)"],
            [1, 6, 7],
        ),
        (&["conv(4, 3, bias = false)", "frn", "swish", "flatten", "linear(3)"], [2, 5, 5]),
        (&["frn", "flatten", "linear(3)"], [2, 4, 3]),
        (&["conv(6, 3)", "group_norm(3)", "relu", "flatten", "linear(3)"], [2, 5, 5]),
        (&["group_norm(1)", "flatten", "linear(3)"], [2, 4, 3]),
        (&["max_pool(2)", "relu", "flatten", "linear(3)"], [2, 4, 4]),
    ];
    let mut all: Vec<(Vec<Layer>, [usize; 3])> =
        lists.iter().map(|(words, input)| (layers(words), *input)).collect();
    let last = layers(&["flatten", "linear(3)"]);
    for (inner, shortcut) in [
        (&["conv(2, 3, pad = 1)", "frn"][..], Shortcut::Projection),
        (&["relu", "conv(2, 3, pad = 1)", "relu"], Shortcut::Projection),
        (&["conv(4, 3, pad = 1, stride = 2)", "tanh"], Shortcut::Projection),
        (&["conv(4, 3, pad = 1, stride = 2)", "swish"], Shortcut::Pad),
        (&["tanh"], Shortcut::Pad),
        (&["flatten", "linear(50)"], Shortcut::Projection),
    ] {
        if inner[0] == "flatten" {
            let wide = residual(&["linear(50)", "relu"], shortcut);
            let mut flat = layers(&["flatten", "linear(20)"]);
            flat.extend([wide, residual(&["linear(50)"], shortcut)]);
            flat.push("linear(3)".parse().unwrap());
            all.push((flat, [2, 5, 5]));
            continue;
        }
        let mut behind = layers(&["conv(2, 3, pad = 1)"]);
        behind.push(residual(inner, shortcut));
        behind.extend(last.clone());
        all.push((behind, [1, 5, 5]));
        let mut first = vec![residual(inner, shortcut)];
        first.extend(last.clone());
        all.push((first, [2, 5, 5]));
    }
    let nested = Layer::Residual {
        layers: vec![
            residual(&["conv(2, 3, pad = 1)", "swish"], Shortcut::Pad),
            "frn".parse().unwrap(),
        ],
        shortcut: Shortcut::Pad,
    };
    all.push((vec![nested, Layer::Flatten, Layer::Linear { outputs: 3 }], [2, 4, 4]));
    for (words, input) in [
        ("mlp(9)", [1, 4, 4]),
        ("lenet5", [1, 28, 28]),
        ("resnet(8, 2)", [3, 8, 8]),
        ("resnet20", [3, 8, 8]),
    ] {
        all.push((preset(words, 4).unwrap(), input));
    }
    all
}

fn seen(plan: &NetPlan, rows: usize) -> Seen {
    Seen::Labels((0..rows as u32).map(|row| row * 7 % plan.outputs() as u32).collect())
}

fn cells(plan: &NetPlan, rows: usize) -> Vec<f64> {
    normals(1, rows * plan.input().len())
}

fn net(plan: &Arc<NetPlan>, rows: usize, arithmetic: Arithmetic) -> Net {
    let design = Design::dense(cells(plan, rows), plan.input().len()).unwrap();
    Net::new(Arc::clone(plan), design, seen(plan, rows), arithmetic).unwrap()
}

/// Parameters at which a net is alive: what a common start would draw, with biases.
fn point(plan: &NetPlan, address: u64) -> Vec<f64> {
    let mut x = normals(address, plan.dim());
    for parameter in plan.parameters() {
        let part = &mut x[parameter.range()];
        match parameter.role {
            Role::Weight => {
                let scale = (1.5 / parameter.fan_in as f64).sqrt();
                part.iter_mut().for_each(|v| *v *= scale);
            }
            Role::Scale => part.iter_mut().for_each(|v| *v = 1.0 + 0.2 * *v),
            Role::Bias | Role::Shift => part.iter_mut().for_each(|v| *v *= 0.2),
        }
    }
    x
}

fn gradient(net: &Net, x: &[f64], rows: Rows<'_>) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    let model: Arc<dyn Model> = Arc::new(net.clone());
    Single::new(&model).add_gradient(x, rows, 1.0, &mut out);
    out
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

#[test]
fn gradients_are_central_differences_for_every_layer_and_preset() {
    for (layers, input) in zoo() {
        let plan = Arc::new(NetPlan::new(&layers, input).unwrap());
        let (net, x) = (net(&plan, 11, Arithmetic::F64), point(&plan, 3));
        let model: Arc<dyn Model> = Arc::new(net.clone());
        let (found, mut single) = (gradient(&net, &x, Rows::All), Single::new(&model));
        // A few coordinates of every parameter, and one random direction through all of it.
        for parameter in plan.parameters() {
            let range = parameter.range();
            let step = range.len().div_ceil(if plan.dim() > 20_000 { 1 } else { 4 });
            let mut directions: Vec<Vec<(usize, f64)>> =
                range.clone().step_by(step).map(|k| vec![(k, 1.0)]).collect();
            let z = normals(4, range.len());
            let size = norm(&z);
            directions.push(range.clone().zip(z.iter().map(|z| z / size)).collect());
            for direction in directions {
                let h = 1e-5;
                let mut at = |by: f64| {
                    let mut moved = x.clone();
                    direction.iter().for_each(|(k, z)| moved[*k] += by * z);
                    single.value(&moved)
                };
                let numeric = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
                let exact: f64 = direction.iter().map(|(k, z)| found[*k] * z).sum();
                assert!(
                    (numeric - exact).abs() < 1e-6 * (1.0 + exact.abs()),
                    "{layers:?}: {} at {:?}: {numeric} is not {exact}",
                    parameter.name,
                    direction[0]
                );
            }
        }
    }
}

#[test]
fn numbers_of_32_bits_agree_with_those_of_64() {
    for (layers, input) in zoo() {
        let plan = Arc::new(NetPlan::new(&layers, input).unwrap());
        let x = point(&plan, 5);
        let short = gradient(&net(&plan, 9, Arithmetic::F32), &x, Rows::All);
        let long = gradient(&net(&plan, 9, Arithmetic::F64), &x, Rows::All);
        let net = net(&plan, 9, Arithmetic::F64);
        let each: Vec<Vec<f64>> =
            (0..9).map(|row| gradient(&net, &x, Rows::Some(&[row]))).collect();
        let depth = plan.parameters().len() as f64;
        for parameter in plan.parameters() {
            let range = parameter.range();
            let (a, b) = (&short[range.clone()], &long[range.clone()]);
            let off: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
            // 2e-6 of the layer's norm before rows cancel; deep nets lose as much every few layers
            let size: f64 = each.iter().map(|row| norm(&row[range.clone()])).sum();
            let tolerance = 2e-6 * size * (1.0 + depth / 16.0);
            assert!(norm(&off) < tolerance, "{}: {} of {size}", parameter.name, norm(&off));
        }
    }
}

#[test]
fn nets_keep_what_models_promise() {
    for (layers, input) in zoo() {
        let plan = Arc::new(NetPlan::new(&layers, input).unwrap());
        if plan.dim() > 400 {
            continue; // a finite difference for every parameter
        }
        let model: Arc<dyn Model> = Arc::new(net(&plan, 13, Arithmetic::F64));
        contract::check(&model).unwrap_or_else(|broken| panic!("{layers:?}: {broken}"));
    }
    let plan =
        Arc::new(NetPlan::new(&layers(&["linear(4)", "tanh", "linear(1)"]), [3, 1, 1]).unwrap());
    let design = Design::dense(cells(&plan, 13), 3).unwrap();
    let seen = Seen::Numbers(normals(2, 13), 0.3);
    let model: Arc<dyn Model> = Arc::new(Net::new(plan, design, seen, Arithmetic::F64).unwrap());
    contract::check(&model).unwrap();
}

#[test]
fn registers_of_any_width_give_the_same_bits() {
    for (layers, input) in zoo() {
        let plan = Arc::new(NetPlan::new(&layers, input).unwrap());
        let (net, x) = (net(&plan, 11, Arithmetic::F32), point(&plan, 6));
        let Table::F32(data) = &net.table else { panic!() };
        let mut plain = vec![0.0; x.len()];
        let job = Gradient {
            data,
            x: &x,
            z: None,
            rows: Rows::All,
            scale: 1.0,
            out: &mut plain,
            room: &mut Room::new(&plan),
        };
        job.run(Arrays::new());
        assert_eq!(plain, gradient(&net, &x, Rows::All), "{layers:?}");
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = pulp::x86::V3::try_new() {
            let mut short = vec![0.0; x.len()];
            let job = Gradient {
                data,
                x: &x,
                z: None,
                rows: Rows::All,
                scale: 1.0,
                out: &mut short,
                room: &mut Room::new(&plan),
            };
            job.run(super::kernels::lanes::short(token));
            assert_eq!(plain, short, "{layers:?}");
        }
    }
}

#[test]
fn one_linear_layer_is_softmax_regression() {
    let (features, classes, rows) = (7, 10, 29);
    let plan = Arc::new(NetPlan::new(&layers(&["linear(10)"]), [features, 1, 1]).unwrap());
    // softmax regression has its bias as a feature that is 1
    let with_one: Vec<f64> = cells(&plan, rows)
        .chunks(features)
        .flat_map(|row| row.iter().copied().chain([1.0]))
        .collect();
    let Seen::Labels(labels) = seen(&plan, rows) else { panic!() };
    let other =
        Softmax::new(Design::dense(with_one, features + 1).unwrap(), labels, classes).unwrap();
    let other: Arc<dyn Model> = Arc::new(other);
    let model: Arc<dyn Model> = Arc::new(net(&plan, rows, Arithmetic::F64));
    let x = normals(7, plan.dim());
    let place = |k: usize| match k.checked_sub(features * classes) {
        None => k / features * (features + 1) + k % features,
        Some(class) => class * (features + 1) + features,
    };
    let mut turned = vec![0.0; x.len()];
    (0..x.len()).for_each(|k| turned[place(k)] = x[k]);
    let (found, right) = (Single::new(&model).gradient(&x), Single::new(&other).gradient(&turned));
    for k in 0..x.len() {
        assert!((found[k] - right[place(k)]).abs() < 1e-12, "{k}");
    }
    let (found, right) = (Single::new(&model).value(&x), Single::new(&other).value(&turned));
    assert!((found - right).abs() < 1e-12 * right.abs());
    let (mut p, mut q) = (vec![0.0; rows * classes], vec![0.0; rows * classes]);
    model.classifier().unwrap().add_probabilities(&x, 1.0, &mut p);
    other.classifier().unwrap().add_probabilities(&turned, 1.0, &mut q);
    assert!(p.iter().zip(&q).all(|(p, q)| (p - q).abs() < 1e-14));
}

#[test]
fn padded_rows_count_for_nothing() {
    for (layers, input) in zoo().into_iter().rev().step_by(3) {
        let plan = Arc::new(NetPlan::new(&layers, input).unwrap());
        for arithmetic in [Arithmetic::F32, Arithmetic::F64] {
            let (net, x) = (net(&plan, 10, arithmetic), point(&plan, 8));
            // row 9 alone, whose group is seven copies of it; and with seven others
            let alone = gradient(&net, &x, Rows::Some(&[9]));
            let eight = gradient(&net, &x, Rows::Some(&[2, 3, 4, 5, 6, 7, 8, 9]));
            let seven = gradient(&net, &x, Rows::Some(&[2, 3, 4, 5, 6, 7, 8]));
            let tolerance = if arithmetic == Arithmetic::F32 { 2e-5 } else { 1e-12 };
            let size = norm(&eight).max(1.0);
            for k in 0..x.len() {
                let off = (alone[k] + seven[k] - eight[k]).abs();
                assert!(off < tolerance * size, "{layers:?}: {off}");
            }
        }
    }
}

#[test]
fn many_rows_are_summed_block_by_block() {
    let plan =
        Arc::new(NetPlan::new(&layers(&["linear(5)", "relu", "linear(3)"]), [4, 1, 1]).unwrap());
    let (net, x) = (net(&plan, BLOCK + 30, Arithmetic::F32), point(&plan, 8));
    let every: Vec<u32> = (0..(BLOCK + 30) as u32).collect();
    let (first, second) = every.split_at(BLOCK);
    let (a, b) = (gradient(&net, &x, Rows::Some(first)), gradient(&net, &x, Rows::Some(second)));
    let sum: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(sum, gradient(&net, &x, Rows::All));
}

/// The bits of a gradient, in one number (FNV-1a).
fn digest(numbers: &[f64]) -> u64 {
    let bytes = numbers.iter().flat_map(|x| x.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The order of sums is part of the model: these are the bits of every machine.
#[test]
fn gradients_have_the_bits_on_record() {
    let found: Vec<(&str, u64)> = [
        ("lenet5", [1, 28, 28]),
        ("mlp(20)", [1, 28, 28]),
        ("resnet(8, 4)", [3, 16, 16]),
        ("resnet20", [3, 8, 8]),
    ]
    .into_iter()
    .map(|(words, input)| {
        let plan = Arc::new(NetPlan::new(&preset(words, 10).unwrap(), input).unwrap());
        let net = net(&plan, 21, Arithmetic::F32);
        (words, digest(&gradient(&net, &point(&plan, 9), Rows::All)))
    })
    .collect();
    let recorded = [
        ("lenet5", 367_385_098_849_480_394),
        ("mlp(20)", 17_958_102_547_983_255_516),
        ("resnet(8, 4)", 8_657_867_715_030_609_901),
        ("resnet20", 5_861_995_056_381_131_381),
    ];
    assert_eq!(found, recorded);
}

#[test]
fn presets_have_the_parameters_of_their_papers() {
    let count = |words: &str, input| {
        let plan = NetPlan::new(&preset(words, 10).unwrap(), input).unwrap();
        assert_eq!(plan.outputs(), 10);
        plan.dim()
    };
    assert_eq!(count("lenet5", [1, 28, 28]), 61_706);
    assert_eq!(count("mlp(100)", [1, 28, 28]), 79_510);
    // 270,896 weights, 2 x 688 scales and shifts, 650 of the last layer, 2,560 of the shortcuts
    let (convs, scales) = (
        3 * 16 * 9 + 6 * 16 * 16 * 9 + (16 * 32 + 5 * 32 * 32) * 9 + (32 * 64 + 5 * 64 * 64) * 9,
        2 * (16 * 7 + 32 * 6 + 64 * 6),
    );
    assert_eq!(count("resnet20", [3, 32, 32]), convs + scales + 650 + 16 * 32 + 32 * 64);
    assert_eq!(count("resnet(20, 16)", [3, 32, 32]), count("resnet20", [3, 32, 32]));
}

#[test]
fn parameters_lie_in_the_order_of_pytorch() {
    let plan = NetPlan::new(&preset("lenet5", 10).unwrap(), [1, 28, 28]).unwrap();
    let names: Vec<&str> = plan.parameters().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "conv1.weight",
            "conv1.bias",
            "conv2.weight",
            "conv2.bias",
            "linear1.weight",
            "linear1.bias",
            "linear2.weight",
            "linear2.bias",
            "linear3.weight",
            "linear3.bias"
        ]
    );
    let starts: Vec<usize> = plan.parameters().iter().map(|p| p.start).collect();
    assert_eq!(starts, [0, 150, 156, 2556, 2572, 50572, 50692, 60772, 60856, 61696]);
    assert_eq!(plan.parameters()[2].sizes, [16, 6, 5, 5]);
}

#[test]
fn shapes_that_do_not_fit_are_refused_with_the_shapes_so_far() {
    let said = |words: &[&str], input| NetPlan::new(&layers(words), input).unwrap_err().to_string();
    let flat = said(&["conv(6, 5)", "linear(10)"], [1, 28, 28]);
    assert!(flat.contains("put flatten before"), "{flat}");
    assert!(flat.contains("layer 2, linear(10)") && flat.contains("1 x 28 x 28 -> 6 x 24 x 24"));
    let pool = said(&["max_pool(3)", "flatten", "linear(10)"], [1, 28, 28]);
    assert!(pool.contains("do not divide"), "{pool}");
    assert!(said(&["conv(6, 5)"], [1, 4, 4]).contains("larger than"));
    assert!(said(&["conv(6, 3)", "group_norm(4)"], [1, 4, 4]).contains("no 4 groups"));
    assert!(said(&["linear(10)"], [0, 1, 1]).contains("no shape of a row"));
    assert!(said(&["linear(1000000)", "linear(1000000)"], [9, 1, 1]).contains("more than"));
    assert_eq!(NetPlan::new(&layers(&["relu"]), [3, 1, 1]).unwrap_err(), LayerError::None);
    let plan = Arc::new(NetPlan::new(&layers(&["linear(3)"]), [4, 1, 1]).unwrap());
    let built = |columns: usize, seen: Seen| {
        let design = Design::dense(vec![1.0; 2 * columns], columns).unwrap();
        Net::new(Arc::clone(&plan), design, seen, Arithmetic::F32)
    };
    assert!(built(4, Seen::Labels(vec![0, 2])).is_ok());
    assert!(built(5, Seen::Labels(vec![0, 2])).is_err());
    assert!(built(4, Seen::Labels(vec![0])).is_err());
    assert!(built(4, Seen::Labels(vec![0, 3])).is_err());
    assert!(built(4, Seen::Numbers(vec![0.0, 1.0], 1.0)).is_err());
}
