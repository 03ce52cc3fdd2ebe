//! FALD, Figure 1: how many communications and iterations its bounds ask for.
//!
//! ```text
//! A, only communications count:
//!     min lambda rho   with I exp(-lambda m/8) + (H + d/b) / rho^2 <= eps^2
//!     VR-FALD*: H = 0
//! B, only iterations count:
//!     min K over gamma with I exp(-K gamma m/8) + c1 gamma + c2 gamma^2 <= eps^2
//!     FALD: c1 = V_pi, c2 = J/b;   VR-FALD*: c1 = 0, c2 = (J + omega d)/b
//! ```
//! Both with shared noise and smooth Hessians; in B clients synchronise at every step.

use std::sync::atomic::Ordering;

use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;

use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// FALD, Figure 1.
pub struct FaldComplexity;

/// Table 5, and what it leaves open.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    dim: f64,
    convexity: f64,
    omega: f64,
    heterogeneity: f64,
    smoothness: f64,
    gradient_variance: f64,
    /// `b`, which the paper does not say.
    clients: f64,
    /// `I(mu_0)`, which the paper does not say.
    initial: f64,
    /// The precisions asked for, descending.
    precisions: Vec<f64>,
}

/// What a precision costs.
struct Cost {
    /// Communications (A) or iterations (B).
    count: f64,
    /// The time of the Langevin diffusion.
    time: f64,
    /// The time between two communications.
    between: f64,
}

const SCENARIOS: [&str; 2] = ["A", "B"];
const SAMPLERS: [&str; 2] = ["fald", "vr-fald*"];
const WHAT: [&str; 3] = ["count", "time", "between"];

impl Setting {
    fn cost(&self, scenario: &str, sampler: &str, eps: f64) -> Cost {
        let b = self.clients;
        match (scenario, sampler) {
            ("A", "fald") => self.fewest_communications(self.heterogeneity + self.dim / b, eps),
            ("A", _) => self.fewest_communications(self.dim / b, eps),
            (_, "fald") => self.fewest_iterations(self.gradient_variance, self.smoothness / b, eps),
            _ => self.fewest_iterations(0.0, (self.smoothness + self.omega * self.dim) / b, eps),
        }
    }

    /// Scenario A: over `lambda`, since the constraint then gives `rho`.
    fn fewest_communications(&self, drift: f64, eps: f64) -> Cost {
        let rate = self.convexity / 8.0;
        let rho = |time: f64| (drift / (eps * eps - self.initial * (-rate * time).exp())).sqrt();
        // below it the start alone is farther than eps
        let shortest = (self.initial / (eps * eps)).ln() / rate;
        let time = shortest
            + least(|extra| (shortest + extra) * rho(shortest + extra), 1e-9 / rate, 100.0 / rate);
        Cost { count: time * rho(time), time, between: 1.0 / rho(time) }
    }

    /// Scenario B: over `gamma`, since the constraint then gives `K`.
    fn fewest_iterations(&self, c1: f64, c2: f64, eps: f64) -> Cost {
        let time = |gamma: f64| {
            8.0 / self.convexity
                * (self.initial / (eps * eps - c1 * gamma - c2 * gamma * gamma)).ln()
        };
        let largest = 2.0 * eps * eps / (c1 + (c1 * c1 + 4.0 * c2 * eps * eps).sqrt());
        let gamma = least(|gamma| time(gamma) / gamma, largest * 1e-9, largest * (1.0 - 1e-12));
        Cost { count: time(gamma) / gamma, time: time(gamma), between: gamma }
    }
}

/// Where a function with one valley is least, between two positive numbers: golden section on the
/// logarithm.
fn least(f: impl Fn(f64) -> f64, low: f64, high: f64) -> f64 {
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (low.ln(), high.ln());
    for _ in 0..200 {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if f(left.exp()) < f(right.exp()) { high = right } else { low = left }
    }
    ((low + high) / 2.0).exp()
}

impl Experiment for FaldComplexity {
    fn cells(&self, _: &Study) -> Result<Vec<Cell>, Trouble> {
        Ok(SCENARIOS
            .iter()
            .flat_map(|scenario| {
                SAMPLERS.map(|sampler| Cell::new(format!("{scenario}|{sampler}"), 1))
            })
            .collect())
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let (scenario, sampler) =
            cell.split_once('|').ok_or_else(|| Trouble::Other(format!("no such cell: {cell}")))?;
        let costs: Vec<Cost> =
            setting.precisions.iter().map(|eps| setting.cost(scenario, sampler, *eps)).collect();
        progress.done.fetch_add(1, Ordering::Relaxed);
        let list = |of: fn(&Cost) -> f64| costs.iter().map(of).collect();
        Ok(Values::from([
            (WHAT[0].into(), list(|cost| cost.count)),
            (WHAT[1].into(), list(|cost| cost.time)),
            (WHAT[2].into(), list(|cost| cost.between)),
        ]))
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let eps = &setting.precisions;
        let (mut numbers, mut figures) = (Numbers::new(), Vec::new());
        for scenario in SCENARIOS {
            for sampler in SAMPLERS {
                let list = |what: &str| found.list(&format!("{scenario}|{sampler}"), what);
                for ((eps, count), time) in eps.iter().zip(list("count")?).zip(list("time")?) {
                    numbers
                        .push(Number::exact(format!("count/{scenario}/{sampler}/{eps}"), *count));
                    numbers.push(Number::exact(format!("time/{scenario}/{sampler}/{eps}"), *time));
                }
                if let ([.., e1, e0], [.., n1, n0]) = (&eps[..], list("count")?) {
                    numbers.push(Number::exact(
                        format!("order/{scenario}/{sampler}"),
                        (n0 / n1).ln() / (e1 / e0).ln(),
                    ));
                    // Without the logarithm that the soft O hides, which is the diffusion's time.
                    let [.., t1, t0] = list("time")? else { continue };
                    numbers.push(Number::exact(
                        format!("order without logarithm/{scenario}/{sampler}"),
                        (n0 / t0 * t1 / n1).ln() / (e1 / e0).ln(),
                    ));
                }
            }
            let counted = if scenario == "A" { "communications" } else { "iterations" };
            for (what, label) in WHAT.into_iter().zip([
                counted,
                "time of the diffusion",
                "time between communications",
            ]) {
                let series = |(colour, sampler): (usize, &str)| -> Result<Series, Trouble> {
                    let values = found.list(&format!("{scenario}|{sampler}"), what)?;
                    let points = eps
                        .iter()
                        .zip(values)
                        .map(|(x, y)| Point { x: *x, y: *y, error: 0.0 })
                        .collect();
                    Ok(Series {
                        name: sampler.to_uppercase(),
                        mark: Mark::LineAndPoints,
                        colour,
                        points,
                    })
                };
                figures.push(Figure {
                    title: format!("Figure 1, scenario {scenario}: {label}"),
                    caption: "Computed from the bounds of Theorems 1 and 3.".into(),
                    x: Axis::logarithmic("precision epsilon"),
                    y: if what == "time" {
                        Axis::straight(label)
                    } else {
                        Axis::logarithmic(label)
                    },
                    series: SAMPLERS
                        .into_iter()
                        .enumerate()
                        .map(series)
                        .collect::<Result<_, _>>()?,
                });
            }
        }
        Ok(Findings {
            readings: vec![Reading::ours(numbers)],
            figures,
            notes: vec![format!(
                "These are the optima of the paper's upper bounds, with every constant that it \
                 hides set to 1: they say what the bounds ask for, not what the samplers need. \
                 Table 5 lacks the number of \
                 clients and the distance of the start; ours are b = {} and I = {}. Section 9 \
                 writes exp(-8 k gamma / m) where Theorems 1 and 3, and its own next line, have \
                 exp(-k gamma m / 8).",
                setting.clients, setting.initial
            )],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimum_meets_the_bound_and_its_neighbours_cost_more() {
        let setting = Setting {
            dim: 10.0,
            convexity: 1.0,
            omega: 10.0,
            heterogeneity: 100.0,
            smoothness: 20.0,
            gradient_variance: 10.0,
            clients: 10.0,
            initial: 100.0,
            precisions: Vec::new(),
        };
        let eps: f64 = 0.05;
        let a = setting.cost("A", "fald", eps);
        let bound = 100.0 * (-a.time / 8.0).exp() + 101.0 * a.between * a.between;
        assert!((bound / (eps * eps) - 1.0).abs() < 1e-9);
        for factor in [0.99, 1.01] {
            let time = a.time * factor;
            let rho = (101.0 / (eps * eps - 100.0 * (-time / 8.0).exp())).sqrt();
            assert!(time * rho > a.count || rho.is_nan(), "A is least at {}", a.time);
        }
        let b = setting.cost("B", "vr-fald*", eps);
        assert!(
            (100.0 * (-b.time / 8.0).exp() + 12.0 * b.between * b.between - eps * eps).abs()
                < 1e-9 * eps * eps
        );
        assert!((b.count * b.between / b.time - 1.0).abs() < 1e-12);
    }
}
