//! Estimate how far the posterior mean would move without each site, from the draws.
//!
//! Without client `i` the posterior has the weight `exp(U_i(x) / T)` more at every `x`. To first
//! order in `U_i` its mean then moves by `Cov(x, U_i(x)) / T`, a covariance over the draws of the
//! posterior with everyone: no chain is run again, and a site sends one number a draw. On a
//! Gaussian target with precision `A = sum_i A_i` that is `A^-1 A_i (mean - mean_i)` where
//! `(A - A_i)^-1 A_i (mean - mean_i)` is exact: too small by the site's own share of the
//! information.

use consilience_core::measure::{Chains, mcse_mean, sd};
use consilience_core::model::Single;
use consilience_core::target::Target;
use rayon::prelude::*;

use crate::draws::Draws;

/// The most multiplications that this may cost: seconds, not minutes.
const MOST_WORK: u64 = 5_000_000_000;
/// With fewer draws a covariance is not worth showing.
const LEAST_DRAWS: usize = 100;

/// How far the mean of every parameter would move without each site.
#[derive(Clone, Debug, PartialEq)]
pub struct Influence {
    /// How many draws it is computed from.
    pub draws: usize,
    /// The sites, in order.
    pub sites: Vec<SiteInfluence>,
}

/// What one site does to the posterior mean.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteInfluence {
    /// By how many posterior standard deviations each parameter's mean would move without it.
    pub shift: Vec<f64>,
    /// The parameter that would move most.
    pub most: usize,
    /// The Monte Carlo standard error of that shift; NaN where it is not known.
    pub error: f64,
}

impl Influence {
    /// From draws of the posterior with all sites. `Err` says why it was left out.
    pub fn new(target: &Target, draws: &Draws) -> Result<Self, String> {
        if target.joint.is_some() {
            return Err(
                "the sites' influence was not computed: the model would be called once more \
                for every draw"
                    .into(),
            );
        }
        let (d, b, all) = (target.dim(), target.clients.len(), draws.chains() * draws.length());
        let rows: usize = target.clients.iter().map(|c| c.rows()).sum();
        let affordable = MOST_WORK / (d * (rows + b)) as u64;
        if all < LEAST_DRAWS || affordable < LEAST_DRAWS as u64 {
            let why = if all < LEAST_DRAWS { "are too few" } else { "are too much work" };
            return Err(format!(
                "the sites' influence was not computed: {all} draws on {rows} rows {why}"
            ));
        }
        let every = all.div_ceil(affordable as usize);
        let length = draws.length().div_ceil(every);
        let per_chain = |chain: Vec<f64>| chain.into_iter().step_by(every).collect::<Vec<f64>>();
        let columns: Vec<Vec<f64>> =
            (0..d).map(|k| draws.parameter(k).into_iter().flat_map(per_chain).collect()).collect();
        let place =
            |(k, row): (usize, _)| (k % draws.length()).is_multiple_of(every).then_some(row);
        let used: Vec<&[f64]> = draws.rows().enumerate().filter_map(place).collect();
        let unit: Vec<f64> = columns.iter().map(|column| sd(column) * target.temperature).collect();
        let site = |i: usize| {
            let mut client = Single::new(&target.clients[i]);
            let value = |draw: &&[f64]| {
                let mut x = draw.to_vec();
                target.transforms.inward(&mut x);
                client.value(&x)
            };
            let values = centred(used.iter().map(value).collect());
            let shift: Vec<f64> = columns
                .iter()
                .zip(&unit)
                .map(|(column, unit)| covariance(column, &values) / unit)
                .collect();
            let most =
                (0..d).max_by(|a, b| size(shift[*a]).total_cmp(&size(shift[*b]))).unwrap_or(0);
            let products: Vec<f64> = centred(columns[most].clone())
                .iter()
                .zip(&values)
                .map(|(x, u)| x * u / unit[most])
                .collect();
            let error = Chains::flat(&products, products.len() / length)
                .map_or(f64::NAN, |products| mcse_mean(&products));
            SiteInfluence { shift, most, error }
        };
        Ok(Influence { draws: used.len(), sites: (0..b).into_par_iter().map(site).collect() })
    }
}

/// Its size; what is not known is no size at all.
fn size(x: f64) -> f64 {
    if x.is_nan() { -1.0 } else { x.abs() }
}

fn centred(mut values: Vec<f64>) -> Vec<f64> {
    let mean = consilience_core::measure::mean(&values);
    values.iter_mut().for_each(|v| *v -= mean);
    values
}

/// The covariance with values whose mean is nothing.
fn covariance(column: &[f64], centred: &[f64]) -> f64 {
    let mean = consilience_core::measure::mean(column);
    column.iter().zip(centred).map(|(x, u)| (x - mean) * u).sum::<f64>()
        / (column.len() as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use consilience_core::measure::normal_quantile;
    use consilience_core::model::{Gaussian, Model, Prior};
    use consilience_core::target::Placement;

    use super::*;

    /// Clients on a plane: means and diagonal precisions.
    fn target(clients: &[([f64; 2], [f64; 2])], temperature: f64) -> Target {
        let client = |(mean, precision): &([f64; 2], [f64; 2])| -> Arc<dyn Model> {
            Arc::new(
                Gaussian::new(mean.to_vec(), vec![precision[0], 0.0, 0.0, precision[1]]).unwrap(),
            )
        };
        Target::new(
            clients.iter().map(client).collect(),
            Prior::gaussian(10.0, 2).unwrap(),
            Placement::Server,
            temperature,
        )
        .unwrap()
    }

    /// The posterior's mean and precision (over the temperature) in one coordinate, without one of
    /// the clients.
    fn law(clients: &[([f64; 2], [f64; 2])], k: usize, without: Option<usize>) -> (f64, f64) {
        let kept =
            || clients.iter().enumerate().filter(|(i, _)| Some(*i) != without).map(|(_, c)| c);
        let precision: f64 = kept().map(|c| c.1[k]).sum::<f64>() + 0.1;
        (kept().map(|c| c.1[k] * c.0[k]).sum::<f64>() / precision, precision)
    }

    /// Draws whose moments are those of the posterior, but for 1e-3: a lattice pushed through the
    /// normal quantile.
    fn draws(clients: &[([f64; 2], [f64; 2])], temperature: f64) -> Draws {
        let n = 20_000;
        let place = |step: f64, t: usize| normal_quantile(((t as f64 + 0.5) * step).fract());
        let point = |t: usize| {
            [0, 1].map(|k| {
                let (mean, precision) = law(clients, k, None);
                mean + (temperature / precision).sqrt()
                    * place([0.754_877_666_246_692_8, 0.569_840_290_998_053_2][k], t)
            })
        };
        Draws::from_chains(
            (0..2).map(|c| (0..n).flat_map(|t| point(c * n + t)).collect()).collect(),
            2,
        )
    }

    #[test]
    fn it_is_the_exact_leave_one_out_shift_to_first_order() {
        for temperature in [1.0, 0.5] {
            for share in [0.04, 0.02, 0.01] {
                let clients = [
                    ([0.0, 1.0], [3.0, 2.0]),
                    ([1.0, -2.0], [4.0, 5.0]),
                    ([4.0, 6.0], [7.0 * share, 7.0 * share]),
                ];
                let found =
                    Influence::new(&target(&clients, temperature), &draws(&clients, temperature))
                        .unwrap();
                for k in 0..2 {
                    let ((mean, precision), (without, rest)) =
                        (law(&clients, k, None), law(&clients, k, Some(2)));
                    let unit = (temperature / precision).sqrt();
                    let first_order = clients[2].1[k] / precision * (mean - clients[2].0[k]) / unit;
                    let exact = (without - mean) / unit;
                    let shift = found.sites[2].shift[k];
                    assert!((shift - first_order).abs() < 4e-3, "{shift} is not {first_order}");
                    // smaller by the site's share
                    assert!((first_order / exact - rest / precision).abs() < 1e-12);
                    assert!(
                        (shift / exact - 1.0).abs() < share + 0.02,
                        "{shift} and {exact} at a share of {share}"
                    );
                }
                assert_eq!(found.sites[2].most, 1);
            }
        }
    }

    #[test]
    fn large_sites_are_understated_by_their_share_and_few_draws_are_refused() {
        let clients = [([0.0, 0.0], [1.0, 1.0]), ([1.0, 2.0], [1.0, 1.0])];
        let found = Influence::new(&target(&clients, 1.0), &draws(&clients, 1.0)).unwrap();
        let ((mean, precision), (without, _)) = (law(&clients, 1, None), law(&clients, 1, Some(0)));
        let exact = (without - mean) * precision.sqrt();
        assert!((found.sites[0].shift[1] / exact - 1.1 / 2.1).abs() < 0.02);
        assert!(found.sites[0].error > 0.0 && found.sites[0].error < 0.05);
        let few = Draws::from_chains(vec![vec![0.0; 20]], 2);
        assert!(
            Influence::new(&target(&clients, 1.0), &few)
                .unwrap_err()
                .contains("10 draws on 2 rows are too few")
        );
    }
}
