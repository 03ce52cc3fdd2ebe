//! ELF on data like a9a does not diverge, and samples what LMC samples: its moments, not just its
//! accuracy.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows what it measured

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::compress::Compressor;
use consilience_core::model::{Design, Glm, GlmFamily, Model, Prior};
use consilience_core::sampler::{Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

const DIM: usize = 22;

/// A score to sort by, the active columns, the label.
type Row = (f64, Vec<(u32, f64)>, f64);

/// Rows with one active column in each of six groups, labels by a logistic model, sorted by their
/// score so that five clients differ.
fn one_hot() -> Target {
    let groups: [usize; 6] = [5, 2, 4, 3, 2, 6];
    let truth = normals(90, DIM);
    let mut rows: Vec<Row> = (0..600)
        .map(|j| {
            let z = normals(1000 + j, 8);
            let mut first = 0;
            let entries: Vec<(u32, f64)> = groups
                .iter()
                .enumerate()
                .map(|(g, size)| {
                    let level = ((z[g].abs() * 1.3) as usize).min(size - 1);
                    first += size;
                    ((first - size + level) as u32, 1.0)
                })
                .collect();
            let score: f64 = entries.iter().map(|(c, _)| truth[*c as usize]).sum();
            (score + 2.0 * z[6], entries, f64::from(u8::from(score + 1.5 * z[7] > 0.0)))
        })
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let client = |part: &[Row]| -> Arc<dyn Model> {
        let design = Design::sparse(part.iter().map(|r| r.1.clone()), DIM).unwrap();
        Arc::new(
            Glm::new(design, part.iter().map(|r| r.2).collect(), GlmFamily::Bernoulli).unwrap(),
        )
    };
    Target::new(
        rows.chunks(120).map(client).collect(),
        Prior::gaussian(0.1, DIM).unwrap(),
        Placement::Server,
        1.0,
    )
    .unwrap()
}

/// Means and variances of every coordinate, with their standard errors over independent chains.
fn moments(recipe: Uplink, target: &Target) -> Vec<(f64, f64)> {
    let (chains, burn_in, draws) = (20, 500, 12_000);
    let mut per_chain = Vec::new();
    for c in 0..chains {
        let mut chain = start(&Recipe::Uplink(recipe.clone()), target, &[0.0; DIM], 3, c);
        chain.draws(burn_in);
        let mut sums = vec![0.0; 2 * DIM];
        for _ in 0..draws {
            for (k, x) in chain.draw().iter().enumerate() {
                assert!(x.abs() < 50.0, "it diverges");
                sums[k] += x / f64::from(draws);
                sums[DIM + k] += x * x / f64::from(draws);
            }
        }
        for k in 0..DIM {
            sums[DIM + k] -= sums[k] * sums[k]; // the chain's own variance
        }
        per_chain.push(sums);
    }
    let n = f64::from(chains);
    (0..2 * DIM)
        .map(|k| {
            let mean = per_chain.iter().map(|c| c[k]).sum::<f64>() / n;
            let variance = per_chain.iter().map(|c| (c[k] - mean).powi(2)).sum::<f64>() / (n - 1.0);
            (mean, (variance / n).sqrt())
        })
        .collect()
}

/// At equal step, no mean is further from LMC's than 0.25 and no standard deviation further than
/// 0.25 of LMC's standard deviation, Monte Carlo error (4.9 standard errors: one false alarm in a
/// million for each number) included. Accuracy could not tell: a chain that accumulates gradients
/// forever has it, too.
#[test]
fn the_moments_of_elf_are_those_of_lmc() {
    let target = one_hot();
    let step = Schedule::Constant(0.004);
    let lmc = moments(Uplink::lmc(step), &target);
    let sd = |m: &[(f64, f64)], k: usize| m[DIM + k].0.sqrt();
    let top = Compressor::top_k(5);
    for (name, recipe) in [
        ("D-ELF", Uplink::d_elf(step, top.clone())),
        ("P-ELF", Uplink::p_elf(step, top.clone())),
        ("B-ELF", Uplink::b_elf(step, top.clone(), top)),
    ] {
        let found = moments(recipe, &target);
        let mut worst = [0.0f64; 4];
        for k in 0..DIM {
            let unit = sd(&lmc, k);
            let now = [
                (found[k].0 - lmc[k].0).abs() / unit,
                4.9 * found[k].1.hypot(lmc[k].1) / unit,
                (sd(&found, k) / unit - 1.0).abs(),
                4.9 * found[DIM + k].1.hypot(lmc[DIM + k].1) / (2.0 * unit * unit),
            ];
            worst = std::array::from_fn(|i| worst[i].max(now[i]));
        }
        let [mean, mean_error, spread, spread_error] = worst;
        println!(
            "{name}: means off by up to {mean:.3} sd (error {mean_error:.3}), standard deviations \
             by {spread:.3} (error {spread_error:.3})"
        );
        assert!(mean + mean_error < 0.25 && spread + spread_error < 0.25, "{name}: {worst:?}");
    }
}
