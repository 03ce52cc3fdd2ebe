//! Time the pieces that samplers are made of: random numbers, quantisers, codes, gradients, one
//! server step.
// benchmarks may panic, and their names say what they are
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;

use consilience_core::ask::Sum;
use consilience_core::compress::code::{Code, Integer, Layout};
use consilience_core::compress::{Channel, CodeChoice, Compressor, Message};
use consilience_core::model::{
    Design, Gaussian, Glm, GlmFamily, Isotropic, Model, Prior, Rows, Single, Softmax,
};
use consilience_core::protocol::{Ledger, exchange};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed, Subsets};
use consilience_core::sampler::{Batch, Keys, Local, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

fn normals(address: u64, n: usize) -> Vec<f64> {
    let mut z = vec![0.0; n];
    Seed::new(1).stream(Purpose::Data, SERVER, address).normals(&mut z);
    z
}

mod random {
    use super::*;

    #[divan::bench(args = [16, 128, 10_000])]
    fn normals(bencher: Bencher<'_, '_>, n: usize) {
        let (mut z, mut round) = (vec![0.0; n], 0);
        bencher.counter(ItemsCount::new(n)).bench_local(|| {
            round += 1;
            Seed::new(1).stream(Purpose::Noise, ClientId(1), round).normals(black_box(&mut z));
        });
    }

    #[divan::bench(args = [16, 128, 10_000])]
    fn words(bencher: Bencher<'_, '_>, n: usize) {
        let (mut w, mut round) = (vec![0; n], 0);
        bencher.counter(ItemsCount::new(n)).bench_local(|| {
            round += 1;
            Seed::new(1).stream(Purpose::Compress, ClientId(1), round).words(black_box(&mut w));
        });
    }

    #[divan::bench(args = [20, 200])]
    fn subset_of_a_tenth(bencher: Bencher<'_, '_>, population: usize) {
        let (mut subsets, mut rows, mut round) =
            (Subsets::new(population), vec![0; population / 10], 0);
        bencher.counter(ItemsCount::new(population / 10)).bench_local(|| {
            round += 1;
            subsets.draw(
                population as u32,
                &mut Seed::new(1).stream(Purpose::Batch, ClientId(1), round),
                black_box(&mut rows),
            );
        });
    }
}

mod compression {
    use super::*;

    const DIM: usize = 10_000;
    const OPERATORS: [&str; 5] = ["qsgd(16)", "qsgd(1024)", "natural", "top_k(100)", "rand_k(100)"];
    const CODES: [(u32, &str); 10] = [
        (16, "fixed"),
        (16, "elias(gamma, sparse)"),
        (16, "huffman"),
        (16, "entropy"),
        (16, "adaptive"),
        (1024, "fixed"),
        (1024, "elias(gamma, dense)"),
        (1024, "huffman"),
        (1024, "entropy"),
        (1024, "adaptive"),
    ];

    #[divan::bench(args = OPERATORS)]
    fn quantise(bencher: Bencher<'_, '_>, operator: &str) {
        let (v, compressor): (_, Compressor) = (normals(1, DIM), operator.parse().unwrap());
        let (mut message, mut round) = (Message::new(), 0);
        bencher.counter(ItemsCount::new(DIM)).bench_local(|| {
            round += 1;
            compressor
                .quantise(
                    black_box(&v),
                    &mut Seed::new(1).stream(Purpose::Compress, SERVER, round),
                    &mut message,
                )
                .unwrap();
        });
    }

    fn channel(levels: u32, code: &str) -> (Channel, Message) {
        let channel = Channel::new(Compressor::qsgd(levels), code.parse().unwrap(), DIM).unwrap();
        let mut message = Message::new();
        channel
            .quantise(
                &normals(1, DIM),
                &mut Seed::new(1).stream(Purpose::Compress, SERVER, 0),
                &mut message,
            )
            .unwrap();
        (channel, message)
    }

    #[divan::bench(args = CODES)]
    fn encode(bencher: Bencher<'_, '_>, (levels, code): (u32, &str)) {
        let ((channel, message), mut bytes) = (channel(levels, code), Vec::new());
        bencher.counter(ItemsCount::new(DIM)).bench_local(|| {
            bytes.clear();
            channel.encode(black_box(&message), &mut bytes)
        });
    }

    #[divan::bench(args = CODES)]
    fn decode(bencher: Bencher<'_, '_>, (levels, code): (u32, &str)) {
        let ((channel, message), mut bytes, mut read) =
            (channel(levels, code), Vec::new(), Message::new());
        channel.encode(&message, &mut bytes);
        bencher
            .counter(ItemsCount::new(DIM))
            .bench_local(|| channel.decode(black_box(&bytes), &mut read).unwrap());
    }

    #[divan::bench]
    fn dequantise(bencher: Bencher<'_, '_>) {
        let (_, message) = channel(16, "fixed");
        let mut values = vec![0.0; DIM];
        bencher.counter(ItemsCount::new(DIM)).bench_local(|| {
            message
                .dequantise(
                    &mut Seed::new(1).stream(Purpose::Compress, SERVER, 0),
                    black_box(&mut values),
                )
                .unwrap()
        });
    }

    #[divan::bench]
    fn published_elias_of_ten_thousand() -> Code {
        Channel::new(
            black_box(Compressor::qsgd(16)),
            CodeChoice::Exactly(Code::Elias(Integer::Omega, Layout::Sparse)),
            DIM,
        )
        .unwrap()
        .code()
    }
}

mod gradient {
    use super::*;

    const MODELS: [&str; 6] = [
        "gaussian d=20",
        "isotropic 200x50",
        "linear 1000x20",
        "logistic 1000x20",
        "logistic one-hot 1628x123",
        "softmax 200x785x10",
    ];

    pub fn model(name: &str) -> Arc<dyn Model> {
        let labels =
            |n: usize| (0..n).map(|k| f64::from(u8::from(k.is_multiple_of(3)))).collect::<Vec<_>>();
        match name {
            "gaussian d=20" => {
                let identity = (0..400)
                    .map(|k| if usize::is_multiple_of(k, 21) { 1.0 } else { 0.01 })
                    .collect();
                Arc::new(Gaussian::new(normals(1, 20), identity).unwrap())
            }
            "isotropic 200x50" => Arc::new(Isotropic::new(normals(2, 10_000), 50).unwrap()),
            "linear 1000x20" => Arc::new(
                Glm::new(
                    Design::dense(normals(3, 20_000), 20).unwrap(),
                    normals(4, 1000),
                    GlmFamily::Gaussian { variance: 1.0 },
                )
                .unwrap(),
            ),
            "logistic 1000x20" => Arc::new(
                Glm::new(
                    Design::dense(normals(3, 20_000), 20).unwrap(),
                    labels(1000),
                    GlmFamily::Bernoulli,
                )
                .unwrap(),
            ),
            "logistic one-hot 1628x123" => {
                let row =
                    |j: u32| (0..14).map(|g| (g * 8 + (j * (g + 3) + j / 7) % 8, 1.0)).collect();
                Arc::new(
                    Glm::new(
                        Design::sparse((0..1628).map(row), 123).unwrap(),
                        labels(1628),
                        GlmFamily::Bernoulli,
                    )
                    .unwrap(),
                )
            }
            _ => {
                let cells = normals(5, 200 * 785)
                    .into_iter()
                    .map(|z| if z > 0.88 { z } else { 0.0 })
                    .collect();
                Arc::new(
                    Softmax::new(
                        Design::dense(cells, 785).unwrap(),
                        (0..200).map(|k| k % 10).collect(),
                        10,
                    )
                    .unwrap(),
                )
            }
        }
    }

    #[divan::bench(args = MODELS)]
    fn all_rows(bencher: Bencher<'_, '_>, name: &str) {
        let model = model(name);
        let (x, mut out) = (normals(9, model.dim()), vec![0.0; model.dim()]);
        let mut single = Single::new(&model);
        bencher
            .counter(ItemsCount::new(model.rows()))
            .bench_local(|| single.add_gradient(black_box(&x), Rows::All, 1.0, &mut out));
    }

    #[divan::bench(args = MODELS)]
    fn difference_of_a_tenth(bencher: Bencher<'_, '_>, name: &str) {
        let model = model(name);
        let rows: Vec<u32> = (0..model.rows() as u32).step_by(10).collect();
        let (x, z) = (normals(9, model.dim()), normals(10, model.dim()));
        let (mut out, mut single) = (vec![0.0; model.dim()], Single::new(&model));
        bencher.counter(ItemsCount::new(rows.len())).bench_local(|| {
            let sum = Sum::Difference { x: black_box(&x), z: black_box(&z) };
            single.add(sum, Rows::Some(&rows), 1.0, &mut out)
        });
    }
}

/// One exchange of 20 clients with 100 rows of 50 numbers.
#[divan::bench(args = ["lmc", "qlsd", "b-elf", "fald"])]
fn server_step(bencher: Bencher<'_, '_>, sampler: &str) {
    let client =
        |i: u64| -> Arc<dyn Model> { Arc::new(Isotropic::new(normals(20 + i, 5000), 50).unwrap()) };
    let target =
        Target::new((0..20).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap();
    let step = Schedule::Constant(1e-5);
    let recipe = match sampler {
        "lmc" => Recipe::Uplink(Uplink::lmc(step)),
        "qlsd" => Recipe::Uplink(Uplink::qlsd(step, Batch::Fraction(0.1), Compressor::qsgd(16))),
        "b-elf" => Recipe::Uplink(Uplink::b_elf(step, Compressor::top_k(1), Compressor::top_k(1))),
        _ => Recipe::Local(Local::fald(step, 20, 0.0, 0.2, Batch::Full)),
    };
    let (target, keys) = (recipe.check(target).unwrap(), Keys::simulation(Seed::new(1), 0));
    let mut server = recipe.server(&target, &[0.0; 50], keys).unwrap();
    let mut clients: Vec<_> =
        (0..20).map(|i| recipe.client(&target, ClientId(i), keys).unwrap()).collect();
    let mut ledger = Ledger::new(20);
    bencher.bench_local(|| exchange(&mut *server, &mut clients, &mut ledger));
}
