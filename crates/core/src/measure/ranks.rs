//! Replace draws by the normal scores of their ranks, so that diagnostics need no moments.

use super::normal::normal_quantile;

/// Ranks from 1, ties sharing their average; a NaN is ordered with the largest.
pub(super) fn average_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let mut end = first + 1;
        while end < order.len() && values[order[end]] == values[order[first]] {
            end += 1;
        }
        let shared = (first + 1 + end) as f64 / 2.0;
        for &place in &order[first..end] {
            ranks[place] = shared;
        }
        first = end;
    }
    ranks
}

/// Normal quantiles of the ranks, with Blom's offset of 3/8 (Vehtari et al. 2021, eq. 14); all NaN
/// if a value is.
pub(super) fn normal_scores(values: &[f64]) -> Vec<f64> {
    if values.iter().any(|value| value.is_nan()) {
        return vec![f64::NAN; values.len()];
    }
    let size = values.len() as f64;
    let mut scores = average_ranks(values);
    for score in &mut scores {
        *score = normal_quantile((*score - 0.375) / (size + 0.25));
    }
    scores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_share_their_average_rank() {
        assert_eq!(
            average_ranks(&[2.0, -1.0, 2.0, f64::INFINITY, 0.0, -0.0]),
            [4.5, 1.0, 4.5, 6.0, 2.5, 2.5]
        );
        assert!(average_ranks(&[]).is_empty());
    }

    #[test]
    fn scores_are_symmetric_and_the_middle_is_zero() {
        let scores = normal_scores(&[30.0, 10.0, 20.0]);
        assert_eq!(scores[2], 0.0);
        assert_eq!(scores[0], -scores[1]);
        // scipy: norm.ppf(2.625 / 3.25)
        assert!((scores[0] - 0.869_423_773_288_886_1).abs() < 1e-15);
        assert!(normal_scores(&[1.0, f64::NAN]).iter().all(|score| score.is_nan()));
    }
}
