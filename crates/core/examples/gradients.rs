//! Time the gradients of regression models on made-up tables of the shape of known data sets:
//! microseconds a call, the best of many.
//!
//! `cargo run --release -p consilience-core --example gradients`
#![allow(clippy::print_stdout, clippy::unwrap_used)] // it is a program that prints and may panic

use std::sync::Arc;
use std::time::Instant;

use consilience_core::ask::Sum;
use consilience_core::model::{Arithmetic, Design, Glm, GlmFamily, Model, Rows, Single, Softmax};
use consilience_core::rng::{ClientId, Purpose, Seed, Stream, Subsets};

fn main() {
    println!("{:58} {:>10}", "", "us a call");
    for (name, arithmetic) in [("64 bits", Arithmetic::F64), ("32 bits", Arithmetic::F32)] {
        let many: Arc<dyn Model> = Arc::new(images(6000).with_arithmetic(arithmetic));
        time(&format!("softmax, 200 of 6000 images, {name}: gradient"), &many, 200, false);
        time(&format!("softmax, 6000 images, {name}: gradient"), &many, 6000, false);
        let few: Arc<dyn Model> = Arc::new(images(200).with_arithmetic(arithmetic));
        time(&format!("softmax, 20 of 200 images, {name}: gradient"), &few, 20, false);
        time(&format!("softmax, 20 of 200 images, {name}: difference"), &few, 20, true);
    }
    let (rows, columns) = (2000, 54);
    let cells: Vec<f64> = normals(rows * columns);
    let labels: Vec<u32> = (0..rows as u32).map(|row| row % 7).collect();
    let design = Design::dense(cells.clone(), columns).unwrap();
    let dense: Arc<dyn Model> = Arc::new(Softmax::new(design, labels, 7).unwrap());
    time("softmax, 2000 rows of 54 numbers, 7 classes: gradient", &dense, rows, false);
    let response: Vec<f64> = (0..rows).map(|row| (row % 2) as f64).collect();
    let design = Design::dense(cells, columns).unwrap();
    let dense: Arc<dyn Model> = Arc::new(Glm::new(design, response, GlmFamily::Bernoulli).unwrap());
    time("logistic, 2000 rows of 54 numbers: gradient", &dense, rows, false);
    for points in [1, 2, 4, 8] {
        time_points(&dense, points, |x| Sum::Gradient { x });
        time_points(&dense, points, |x| Sum::Value { x });
    }
    let census: Arc<dyn Model> = Arc::new(census(1628));
    time("logistic, 1628 rows with 14 ones of 123: gradient", &census, 1628, false);
    time("logistic, 162 of 1628 such rows: gradient", &census, 162, false);
    time("logistic, 162 of 1628 such rows: difference", &census, 162, true);
    let census: Arc<dyn Model> = Arc::new(self::census(32_561));
    time("logistic, 32561 such rows: gradient", &census, 32_561, false);
    for points in [1, 2, 4, 8] {
        time_points(&census, points, |x| Sum::Gradient { x });
    }
}

/// Time sums over all rows at several points at once.
fn time_points(model: &Arc<dyn Model>, points: usize, sum: fn(&[f64]) -> Sum<'_>) {
    let x: Vec<f64> = normals(points * model.dim()).iter().map(|z| 0.1 * z).collect();
    let (sum, mut single, mut best) = (sum(&x), Single::new(model), f64::INFINITY);
    let mut out = vec![0.0; points * sum.width(model.dim())];
    // all of them, by number: nothing is remembered from one call to the next
    let rows: Vec<u32> = (0..model.rows() as u32).collect();
    for _ in 0..400 {
        let start = Instant::now();
        single.add(sum, Rows::Some(&rows), 1.0, &mut out);
        best = best.min(start.elapsed().as_secs_f64());
    }
    let name = format!("logistic, the same: {} at {points} points at once", sum.name());
    println!("{name:58} {:>10.1}", best * 1e6);
}

/// Time calls on minibatches of one size, with a reference point that stays.
fn time(name: &str, model: &Arc<dyn Model>, batch: usize, difference: bool) {
    let x: Vec<f64> = normals(model.dim()).iter().map(|z| 0.1 * z).collect();
    let z: Vec<f64> = x.iter().map(|x| 0.9 * x).collect();
    let (mut out, mut single) = (vec![0.0; model.dim()], Single::new(model));
    let (mut subsets, mut chosen) = (Subsets::new(model.rows()), vec![0; batch]);
    let mut best = f64::INFINITY;
    for call in 0..400 {
        subsets.draw(model.rows() as u32, &mut stream(call), &mut chosen);
        let rows = if batch == model.rows() { Rows::All } else { Rows::Some(&chosen) };
        let start = Instant::now();
        if difference {
            single.add(Sum::Difference { x: &x, z: &z }, rows, 1.0, &mut out);
        } else {
            single.add_gradient(&x, rows, 1.0, &mut out);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    assert!(out.iter().all(|v| v.is_finite()));
    println!("{name:58} {:>10.1}", best * 1e6);
}

fn stream(at: u64) -> Stream {
    Seed::new(1).stream(Purpose::Data, ClientId(0), at)
}

fn normals(n: usize) -> Vec<f64> {
    let mut z = vec![0.0; n];
    stream(1 << 40).normals(&mut z);
    z
}

/// Ten classes of 28 x 28 images with a column of ones before them; one pixel in five holds
/// something, in runs as pens leave them.
fn images(rows: usize) -> Softmax {
    let mut words = stream(2 << 40);
    let mut row = || {
        let mut entries = vec![(0, 1.0)];
        let corner = 4 + words.below(6);
        for line in 4..24 {
            let first = corner + words.below(6);
            entries.extend(
                (0..7)
                    .map(|k| (1 + 28 * line + first + k, f64::from(1 + words.below(255)) / 255.0)),
            );
        }
        entries
    };
    let design = Design::sparse((0..rows).map(|_| row()).collect::<Vec<_>>(), 785).unwrap();
    Softmax::new(design, (0..rows as u32).map(|row| row % 10).collect(), 10).unwrap()
}

/// Rows with one level of each of fourteen attributes.
fn census(rows: usize) -> Glm {
    const LEVELS: [u32; 14] = [5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41];
    let mut words = stream(3 << 40);
    let mut row = || {
        let mut first = 0;
        let entry = |levels: &u32| {
            first += levels;
            // some levels are more frequent than others
            (first - levels + words.below(*levels).min(words.below(*levels)), 1.0)
        };
        LEVELS.iter().map(entry).collect()
    };
    let design = Design::sparse((0..rows).map(|_| row()).collect::<Vec<_>>(), 123).unwrap();
    Glm::new(design, (0..rows).map(|row| (row % 4 / 3) as f64).collect(), GlmFamily::Bernoulli)
        .unwrap()
}
