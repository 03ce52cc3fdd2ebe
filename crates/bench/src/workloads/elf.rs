//! W6: B-ELF with top-1 both ways on logistic regression of one-hot rows.
//!
//! The peers' potential is a mean of means,
//! `F(x) = (1/n) sum_i (1/m) sum_j loss_ij(x) + (lambda/2) norm(x)^2`. Here it is the sum of all
//! losses at temperature `n m`, with the step divided by as much: the same chain.
//!
//! In every round the parameter that the clients see moves in one coordinate, and the library's
//! model renews only what depends on it: that is `--oracle incremental`. `--oracle full` hides it,
//! so that every gradient is a sum over all rows. The chain is the same, bit for bit.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use consilience_core::compress::Compressor;
use consilience_core::linalg::{dot, norm_squared};
use consilience_core::model::{Design, Glm, GlmFamily, Model, Plain, Prior};
use consilience_core::rng::{ClientId, Noise, SERVER};
use consilience_core::sampler::{Keys, Recipe, Sampler, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

use crate::How;
use crate::chains::{self, Finished, Watch};
use crate::files::{self, normals, stream};
use crate::report::{self, Fields};

/// How many levels each of 14 attributes has: a9a's 123 columns.
const LEVELS: [u32; 14] = [5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41];
const DIM: usize = 123;
const CLIENTS: usize = 20;
const EACH: usize = 1628;

/// What may be chosen.
#[derive(Debug, Args)]
pub struct Elf {
    /// The step on the scale of the mean of means.
    #[arg(long, default_value_t = 0.01)]
    gamma: f64,
    /// The weight of `norm(x)^2 / 2`.
    #[arg(long, default_value_t = 0.1)]
    lam: f64,
    /// Whether every gradient is computed anew, or renewed where the parameter moved.
    #[arg(long, value_enum, default_value = "full")]
    oracle: Oracle,
    #[command(flatten)]
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Oracle {
    Full,
    Incremental,
}

impl Elf {
    pub fn run(&self) -> Result<String, String> {
        let (columns, positive) = self.data()?;
        let rows = (CLIENTS * EACH) as f64;
        let client = |(columns, positive): (&[u32], &[bool])| -> Result<Arc<dyn Model>, String> {
            let row = |columns: &[u32]| columns.iter().map(|c| (*c, 1.0)).collect();
            let design = Design::sparse(columns.chunks_exact(LEVELS.len()).map(row), DIM)
                .map_err(|e| e.to_string())?;
            let response = positive.iter().map(|y| f64::from(u8::from(*y))).collect();
            let model =
                Glm::new(design, response, GlmFamily::Bernoulli).map_err(|e| e.to_string())?;
            Ok(if self.oracle == Oracle::Incremental {
                Arc::new(model)
            } else {
                Arc::new(Plain(model))
            })
        };
        let dealt = columns.chunks_exact(EACH * LEVELS.len()).zip(positive.chunks_exact(EACH));
        let clients = dealt.map(client).collect::<Result<_, _>>()?;
        let prior = Prior::gaussian(1.0 / (self.lam * rows), DIM).map_err(|e| e.to_string())?;
        let shares = Placement::Split(vec![1.0 / CLIENTS as f64; CLIENTS]);
        let target = Target::new(clients, prior, shares, rows).map_err(|e| e.to_string())?;
        let recipe = Uplink::b_elf(
            Schedule::Constant(self.gamma / rows),
            Compressor::top_k(1),
            Compressor::top_k(1),
        );
        let start: Vec<f64> =
            normals(9000, DIM).iter().map(|z| z / (self.lam + 0.02).sqrt()).collect();
        let watch = |keys| Balance::new(&start, self.gamma, keys);
        let Finished { timed, watches, bits_up } =
            chains::run(&self.how, &Recipe::Uplink(recipe), target.clone(), &start, watch)?;

        let last = watches.into_iter().next().ok_or("there is no chain: use --chains 1")?;
        let (n, d) = (last.iterations as f64, DIM as f64);
        let mut gradient = vec![0.0; DIM];
        target.gradient(&last.sent, &mut gradient);
        let scaled: Vec<f64> = gradient.iter().map(|g| g / rows).collect();
        let apart =
            |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let check = Fields::default()
            .with("iterations", last.iterations)
            .rounded(
                "balance_over_d",
                (last.products - self.gamma / 2.0 * last.squares_of_g) / n / d,
            )
            .rounded("mean_square_x", last.squares_of_x / n / d)
            .rounded("potential", target.value(&last.x) / rows)
            .rounded("lag_of_w", (apart(&last.x, &last.sent) / d).sqrt())
            .rounded("lag_of_g", (apart(&last.g, &scaled) / norm_squared(&scaled)).sqrt())
            .rounded("bits_up_a_message", bits_up);
        let oracle = if self.oracle == Oracle::Incremental { "incremental" } else { "full" };
        report::line(
            "elf_logreg",
            &self.how,
            timed,
            &Fields::default().with("k", 1).with("oracle", oracle),
            &check,
        )
    }

    /// The active columns of each row, ascending, and whether its label is positive.
    fn data(&self) -> Result<(Vec<u32>, Vec<bool>), String> {
        let cells = CLIENTS * EACH * LEVELS.len();
        if let Some(folder) = &self.how.data {
            let (columns, labels) =
                (files::integers(folder, "w6_columns")?, files::integers(folder, "w6_y")?);
            if (columns.len(), labels.len()) != (cells, CLIENTS * EACH) {
                return Err(format!(
                    "w6_columns.bin and w6_y.bin have {} and {} numbers: write both again",
                    columns.len(),
                    labels.len()
                ));
            }
            return Ok((
                columns.into_iter().map(|c| c as u32).collect(),
                labels.into_iter().map(|y| y > 0).collect(),
            ));
        }
        let (mut random, weights) = (stream(9001), normals(9002, DIM));
        let (mut columns, mut positive) =
            (Vec::with_capacity(cells), Vec::with_capacity(CLIENTS * EACH));
        for _ in 0..CLIENTS * EACH {
            let (mut first, mut predictor) = (0, -2.0);
            for levels in LEVELS {
                // low levels are more frequent
                let column = first + random.below(levels).min(random.below(levels));
                predictor += 0.4 * weights[column as usize];
                columns.push(column);
                first += levels;
            }
            positive.push(random.coin(1.0 / (1.0 + f64::exp(-predictor))));
        }
        Ok((columns, positive))
    }
}

/// What the balance of `norm(x)^2` needs: at stationarity `E[x.g] - (gamma/2) E norm(g)^2 = d`,
/// whatever the compressors.
///
/// The server does not show the gradient estimate `g` that it used; it follows from two draws and
/// the noise between them.
struct Balance {
    gamma: f64,
    x: Vec<f64>,
    g: Vec<f64>,
    noise: Noise,
    /// The parameter as the clients see it.
    sent: Vec<f64>,
    iterations: u64,
    products: f64,
    squares_of_g: f64,
    squares_of_x: f64,
}

impl Balance {
    fn new(start: &[f64], gamma: f64, keys: Keys) -> Self {
        let zero = || vec![0.0; start.len()];
        let sent = start.iter().map(|x| f64::from(*x as f32)).collect();
        Balance {
            gamma,
            x: start.to_vec(),
            g: zero(),
            noise: Noise::new(keys.public, SERVER, start.len()),
            sent,
            iterations: 0,
            products: 0.0,
            squares_of_g: 0.0,
            squares_of_x: 0.0,
        }
    }
}

impl Watch for Balance {
    fn draw(&mut self, server: &dyn Sampler) {
        let scale = (2.0 * self.gamma).sqrt();
        let new = server.position();
        for (((g, old), new), z) in self
            .g
            .iter_mut()
            .zip(&self.x)
            .zip(new)
            .zip(self.noise.at(self.iterations, 0..new.len()))
        {
            *g = (old + scale * z - new) / self.gamma;
        }
        self.products += dot(&self.x, &self.g);
        self.squares_of_g += norm_squared(&self.g);
        self.squares_of_x += norm_squared(&self.x);
        self.x.copy_from_slice(new);
        if let Some(increment) = server.order(ClientId(0)).position {
            self.sent.iter_mut().zip(increment.values()).for_each(|(w, v)| *w += v);
        }
        self.iterations += 1;
    }
}
