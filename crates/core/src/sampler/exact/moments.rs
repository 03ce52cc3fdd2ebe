//! Push second moments through a random affine recursion, and find its stationary moments.
//!
//! The state is a list of blocks, of which block 0 is the number 1; `M = E[s s']` over all blocks
//! then holds means and covariances at once. A program is a list of operations, each of which sets
//! one block to a random affine function of the others. Independent noise of mean zero adds to the
//! block's own corner only; a coin mixes two programs.

use nalgebra::DMatrix;

/// Sizes and places of the blocks.
#[derive(Clone, Debug)]
pub(in crate::sampler) struct Blocks {
    starts: Vec<usize>,
}

impl Blocks {
    /// Block 0 (the number 1) followed by blocks of these sizes.
    pub(in crate::sampler) fn new(sizes: impl IntoIterator<Item = usize>) -> Self {
        let mut starts = vec![0, 1];
        for size in sizes {
            starts.push(starts[starts.len() - 1] + size);
        }
        Blocks { starts }
    }

    fn total(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    fn start(&self, block: usize) -> usize {
        self.starts[block]
    }

    fn size(&self, block: usize) -> usize {
        self.starts[block + 1] - self.starts[block]
    }
}

/// A sum of matrices times blocks.
pub(in crate::sampler) type Linear = Vec<(usize, DMatrix<f64>)>;

/// One operation on the state.
#[derive(Clone, Debug)]
pub(in crate::sampler) enum Op {
    /// `block <- linear + noise`.
    Set {
        /// Which block.
        block: usize,
        /// Its new mean given the state.
        linear: Linear,
        /// The covariance of the noise that does not depend on the state.
        noise: Option<DMatrix<f64>>,
        /// Noise that does: covariance `weight * linear M linear'`, for each.
        spread: Vec<(f64, Linear)>,
    },
    /// With these probabilities, one of these programs.
    Mix(Vec<(f64, Vec<Op>)>),
}

impl Op {
    /// `block <- linear`.
    pub(in crate::sampler) fn set(block: usize, linear: Linear) -> Op {
        Op::Set { block, linear, noise: None, spread: Vec::new() }
    }
}

/// Apply a program to the second moment.
pub(in crate::sampler) fn apply(program: &[Op], blocks: &Blocks, moment: &mut DMatrix<f64>) {
    for op in program {
        match op {
            Op::Set { block, linear, noise, spread } => {
                let (at, size) = (blocks.start(*block), blocks.size(*block));
                let rows = product(linear, blocks, moment, size);
                let mut corner = corner(linear, blocks, &rows);
                if let Some(noise) = noise {
                    corner += noise * moment[(0, 0)];
                }
                for (weight, linear) in spread {
                    let rows = product(linear, blocks, moment, size);
                    corner += self::corner(linear, blocks, &rows) * *weight;
                }
                moment.view_mut((at, 0), (size, blocks.total())).copy_from(&rows);
                moment.view_mut((0, at), (blocks.total(), size)).copy_from(&rows.transpose());
                // Rounding must not leave a part that is not symmetric: the recursion may blow such
                // a part up.
                moment
                    .view_mut((at, at), (size, size))
                    .copy_from(&((&corner + corner.transpose()) * 0.5));
            }
            Op::Mix(cases) => {
                let before = moment.clone();
                moment.fill(0.0);
                for (probability, program) in cases {
                    let mut case = before.clone();
                    apply(program, blocks, &mut case);
                    *moment += case * *probability;
                }
            }
        }
    }
}

/// `linear M`, size x total.
fn product(linear: &Linear, blocks: &Blocks, moment: &DMatrix<f64>, size: usize) -> DMatrix<f64> {
    let mut rows = DMatrix::zeros(size, blocks.total());
    for (from, matrix) in linear {
        rows.gemm(1.0, matrix, &moment.rows(blocks.start(*from), blocks.size(*from)), 1.0);
    }
    rows
}

/// `linear M linear'` from `linear M`.
fn corner(linear: &Linear, blocks: &Blocks, rows: &DMatrix<f64>) -> DMatrix<f64> {
    let mut corner = DMatrix::zeros(rows.nrows(), rows.nrows());
    for (from, matrix) in linear {
        corner += rows.columns(blocks.start(*from), blocks.size(*from)) * matrix.transpose();
    }
    corner
}

/// The fixed point of a program, or its growth factor if it has no stable one.
pub(in crate::sampler) fn fixed_point(
    program: &[Op],
    blocks: &Blocks,
) -> Result<DMatrix<f64>, f64> {
    let n = blocks.total();
    let with_one = |v: &DMatrix<f64>, one: f64| {
        let mut moment = v.clone();
        moment[(0, 0)] = one;
        apply(program, blocks, &mut moment);
        moment[(0, 0)] = 0.0;
        moment
    };
    let growth = growth(|v| with_one(v, 0.0), n);
    if growth >= 1.0 {
        return Err(growth);
    }
    let constant = with_one(&DMatrix::zeros(n, n), 1.0);
    let mut solution = gmres(|v| v - with_one(v, 0.0), &constant);
    for _ in 0..3 {
        solution = with_one(&solution, 1.0);
        solution = (&solution + solution.transpose()) * 0.5;
    }
    solution[(0, 0)] = 1.0;
    Ok(solution)
}

/// The spectral radius of a map that keeps positive matrices positive, by power iteration from the
/// identity.
fn growth(map: impl Fn(&DMatrix<f64>) -> DMatrix<f64>, n: usize) -> f64 {
    let mut v = DMatrix::identity(n, n);
    v[(0, 0)] = 0.0;
    let mut factor: f64 = 0.0;
    for round in 0..300 {
        let next = map(&v);
        let size = next.amax();
        if size == 0.0 || !size.is_finite() {
            return if size == 0.0 { 0.0 } else { f64::INFINITY };
        }
        let before = factor;
        factor = size;
        v = next / size;
        if round > 20 && (factor - before).abs() < 1e-9 {
            break;
        }
    }
    factor
}

/// Solve `a v = b` by restarted GMRES (Saad and Schultz 1986).
fn gmres(a: impl Fn(&DMatrix<f64>) -> DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    const RESTART: usize = 60;
    let target = 1e-15 * b.norm();
    let mut x = b.clone();
    let mut best = f64::INFINITY;
    for _ in 0..100 {
        let residual = b - a(&x);
        let beta = residual.norm();
        if beta <= target || beta > 0.5 * best {
            break; // solved, or as good as rounding allows
        }
        best = beta;
        let mut basis = vec![residual / beta];
        let mut hessenberg = DMatrix::<f64>::zeros(RESTART + 1, RESTART);
        let mut used = 0;
        for k in 0..RESTART {
            let mut w = a(&basis[k]);
            for _ in 0..2 {
                for (i, v) in basis.iter().enumerate() {
                    let h = w.dot(v);
                    hessenberg[(i, k)] += h;
                    w -= v * h;
                }
            }
            let norm = w.norm();
            hessenberg[(k + 1, k)] = norm;
            used = k + 1;
            if norm <= 1e-15 {
                break;
            }
            basis.push(w / norm);
        }
        let small = hessenberg.view((0, 0), (used + 1, used)).into_owned();
        let mut right = nalgebra::DVector::zeros(used + 1);
        right[0] = beta;
        let Ok(y) = small.svd(true, true).solve(&right, 1e-300) else { break };
        for k in 0..used {
            x += &basis[k] * y[k];
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(v: f64) -> DMatrix<f64> {
        DMatrix::from_element(1, 1, v)
    }

    #[test]
    fn an_autoregression_has_its_known_moments() {
        // x <- 0.8 x + 1 + N(0, 2): mean 5, variance 2 / (1 - 0.64).
        let blocks = Blocks::new([1]);
        let step = Op::Set {
            block: 1,
            linear: vec![(1, scalar(0.8)), (0, scalar(1.0))],
            noise: Some(scalar(2.0)),
            spread: Vec::new(),
        };
        let moment = fixed_point(&[step], &blocks).unwrap();
        assert!((moment[(0, 1)] - 5.0).abs() < 1e-12);
        assert!((moment[(1, 1)] - 25.0 - 2.0 / 0.36).abs() < 1e-10);
    }

    #[test]
    fn coins_and_multiplicative_noise_by_hand() {
        // With probability 1/4: x <- 0, else x <- x/2 + noise of variance 1 + x^2/10: E x^2 = (3/4)
        // (E x^2/4 + E x^2/10 + 1).
        let blocks = Blocks::new([1]);
        let reset = Op::set(1, vec![]);
        let step = Op::Set {
            block: 1,
            linear: vec![(1, scalar(0.5))],
            noise: Some(scalar(1.0)),
            spread: vec![(0.1, vec![(1, scalar(1.0))])],
        };
        let moment =
            fixed_point(&[Op::Mix(vec![(0.25, vec![reset]), (0.75, vec![step])])], &blocks)
                .unwrap();
        assert!((moment[(1, 1)] - 0.75 / (1.0 - 0.75 * 0.35)).abs() < 1e-12);
    }

    #[test]
    fn growth_is_reported() {
        let step = Op::Set {
            block: 1,
            linear: vec![(1, scalar(-1.1))],
            noise: Some(scalar(1.0)),
            spread: Vec::new(),
        };
        assert!((fixed_point(&[step], &Blocks::new([1])).unwrap_err() - 1.21).abs() < 1e-6);
    }
}
