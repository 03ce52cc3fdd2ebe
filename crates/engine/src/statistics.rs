//! Compute what is known of draws only once they are there.

use consilience_core::target::Target;
use rayon::prelude::*;

use crate::draws::Draws;
use crate::held_out::HeldOut;
use crate::models::{ParameterGroup, RowModel};
use crate::record::Statistic;

/// The most multiplications that the log-density of all draws may cost: seconds, not minutes.
const MOST_WORK: u64 = 20_000_000_000;

/// `lp`: minus the potential over the temperature at every draw, up to a constant the log-density
/// of the posterior on the scale on which chains move. `Err` says why it was left out: every draw
/// costs a pass over all rows.
pub fn log_density(target: &Target, draws: &Draws) -> Result<Statistic, String> {
    if target.joint.is_some() {
        return Err(
            "the log-density of the draws (lp) was not computed: the model would be called \
            once more for every draw"
                .into(),
        );
    }
    let rows: u64 = target.clients.iter().map(|c| c.rows() as u64).sum();
    let all = (draws.chains() * draws.length()) as u64;
    let work = rows.max(1).saturating_mul(all).saturating_mul(target.dim() as u64);
    if work > MOST_WORK {
        return Err(format!(
            "the log-density of the draws (lp) was not computed: {all} draws on {rows} rows are \
             too much work"
        ));
    }
    let rows: Vec<&[f64]> = draws.rows().collect();
    let inward = |draw: &[f64]| {
        let mut x = draw.to_vec();
        target.transforms.inward(&mut x);
        x
    };
    let values: Vec<f64> =
        rows.par_iter().map(|draw| -target.value(&inward(draw)) / target.temperature).collect();
    Ok(Statistic {
        name: "lp".into(),
        values: values.chunks(draws.length().max(1)).map(<[f64]>::to_vec).collect(),
    })
}

/// The most held-out rows whose predictions are watched one by one.
const WATCHED_ROWS: usize = 50;

/// Whether a statistic is one of [`watched`].
pub fn is_watched(name: &str) -> bool {
    name.ends_with(')') && (name.starts_with("rms(") || name.starts_with("p("))
}

/// What is watched of a model with too many parameters to show: the root mean square of every
/// layer, and what draws predict of held-out rows (the probability of a row's class, or the mean of
/// its number). Chains of a net may agree in what they predict, and never in their weights.
pub fn watched(model: &dyn RowModel, held_out: Option<&HeldOut>, draws: &Draws) -> Vec<Statistic> {
    let groups = model.groups();
    if groups.is_empty() || draws.length() == 0 {
        return Vec::new();
    }
    let rows: Vec<&[f64]> = draws.rows().collect();
    let statistic = |name: String, values: Vec<f64>| {
        let values = values.chunks(draws.length()).map(<[f64]>::to_vec).collect();
        Statistic { name, values }
    };
    let mut all = Vec::new();
    for layer in groups.chunk_by(|a, b| a.layer == b.layer) {
        let range = layer[0].range.start..layer[layer.len() - 1].range.end;
        let size = |draw: &&[f64]| {
            let squares: f64 = draw[range.clone()].iter().map(|x| x * x).sum();
            (squares / range.len() as f64).sqrt()
        };
        let name = |group: &ParameterGroup| format!("rms({})", group.layer);
        all.push(statistic(name(&layer[0]), rows.iter().map(size).collect()));
    }
    let Some(held_out) = held_out else { return all };
    let Some((design, labels)) = held_out.first(WATCHED_ROWS) else { return all };
    let outputs = model.predictors();
    let said: Vec<Vec<f64>> =
        rows.par_iter().map(|draw| model.predicted(&design, &[], draw)).collect();
    for (row, label) in labels.iter().enumerate() {
        let (place, name) = match model.classes() {
            Some(_) => (*label as usize, format!("p(row {} is {label})", row + 1)),
            None => (0, format!("p(row {})", row + 1)),
        };
        let values = said.iter().map(|said| said[row * outputs + place]).collect();
        all.push(statistic(name, values));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use consilience_core::model::{Gaussian, Prior};
    use consilience_core::target::Placement;

    use super::*;

    #[test]
    fn by_hand() {
        let client = |mean: f64, precision: f64| -> Arc<dyn consilience_core::model::Model> {
            Arc::new(Gaussian::new(vec![mean], vec![precision]).unwrap())
        };
        let target = Target::new(
            vec![client(1.0, 2.0), client(0.0, 4.0)],
            Prior::Flat,
            Placement::Server,
            0.5,
        )
        .unwrap();
        let draws = Draws::from_chains(vec![vec![0.0, 1.0], vec![2.0, 3.0]], 1);
        let lp = log_density(&target, &draws).unwrap();
        // U(x) = (x - 1)^2 + 2 x^2, and the temperature is a half.
        assert_eq!(
            (lp.name.as_str(), lp.values),
            ("lp", vec![vec![-2.0, -4.0], vec![-18.0, -44.0]])
        );
    }

    #[test]
    fn too_much_work_is_refused() {
        let target = Target::new(
            vec![Arc::new(Gaussian::new(vec![0.0], vec![1.0]).unwrap())],
            Prior::Flat,
            Placement::Server,
            1.0,
        )
        .unwrap();
        let work = |rows: usize| Target {
            clients: vec![Arc::clone(&target.clients[0]); rows],
            ..target.clone()
        };
        let draws = Draws::from_chains(vec![vec![0.0; 1_000_000]], 1);
        assert!(
            log_density(&work(20_001), &draws).unwrap_err().contains("1000000 draws on 20001 rows")
        );
    }
}
