//! Decide by public coins who takes part, and what an answer then counts for.

use crate::error::DataError;
use crate::rng::{ClientId, Purpose, SERVER, Seed, Stream, Subsets};
use crate::simd;

/// Who takes part in a round of family A.
#[derive(Clone, Debug, PartialEq)]
pub enum Participation {
    /// Everybody.
    All,
    /// Each client by its own coin with its own probability: QLSD H4 and HS4.
    Bernoulli(Vec<f64>),
    /// A uniform subset of this size.
    Fixed(usize),
    /// Everybody is asked, and whoever answers in time takes part: each client with this
    /// probability, as it is known or estimated. The chain is a function of the seed and of who
    /// answered.
    Elastic(Vec<f64>),
}

/// What the answer of an active client is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// `1 / p_i`: QLSD eq. S3.
    InverseProbability,
    /// `b / |A|`: QLSD Alg. 1. The active set is then drawn conditioned on being non-empty, and all
    /// `p_i` must be equal (else it is biased).
    Ratio,
}

/// From so many clients on, if all have the same probability, nobody tosses a coin for each: the
/// gaps between those who take part are drawn. (Below, coins cost nothing, and the draws are those
/// of unequal probabilities.)
const MANY: usize = 4096;

/// The clients that take part where each does with the same probability: the gaps between them are
/// geometric.
struct Gaps<'a> {
    coins: &'a mut Stream,
    /// `1 / ln(1 - p)`; 0 where everybody takes part.
    scale: f64,
    next: usize,
    clients: usize,
}

impl<'a> Gaps<'a> {
    fn new(p: f64, clients: usize, coins: &'a mut Stream) -> Self {
        let scale = if p < 1.0 { 1.0 / ln_of_rest(p) } else { 0.0 };
        Gaps { coins, scale, next: 0, clients }
    }
}

impl Iterator for Gaps<'_> {
    type Item = ClientId;

    fn next(&mut self) -> Option<ClientId> {
        let u = 1.0 - self.coins.uniform(); // in (0, 1]
        let gap = simd::ln(u) * self.scale; // P(gap >= k) = (1 - p)^k
        let place = self.next.saturating_add(gap as usize);
        self.next = place.saturating_add(1);
        (place < self.clients).then_some(ClientId(place as u32))
    }
}

/// `ln(1 - p)`, small `p` included.
fn ln_of_rest(p: f64) -> f64 {
    let rest = 1.0 - p;
    // the factor restores what 1 - p rounds away (Goldberg 1991, theorem 4)
    if rest == 1.0 { -p } else { simd::ln(rest) * (p / (1.0 - rest)) }
}

/// Draws the active set of each round.
#[derive(Clone, Debug)]
pub struct Roll {
    participation: Participation,
    weighting: Weighting,
    clients: usize,
    subsets: Subsets,
    chosen: Vec<u32>,
    /// The probability that all clients have, where it is one.
    alike: Option<f64>,
    /// The active clients, ascending.
    pub active: Vec<ClientId>,
}

impl Roll {
    /// A checked rule for so many clients.
    pub fn new(
        participation: Participation,
        weighting: Weighting,
        clients: usize,
    ) -> Result<Self, DataError> {
        let refuse = |problem: String| Err(DataError::Weights { what: "participation", problem });
        match &participation {
            Participation::All => {}
            Participation::Bernoulli(p) | Participation::Elastic(p) => {
                if p.len() != clients {
                    return refuse(format!(
                        "{} probabilities for {clients} clients: there must be one for each",
                        p.len()
                    ));
                }
                if let Some((i, p)) = p.iter().enumerate().find(|(_, p)| !(**p > 0.0 && **p <= 1.0))
                {
                    return refuse(format!(
                        "client {i} takes part with probability {p}: it must be above 0 and at \
                         most 1"
                    ));
                }
                if weighting == Weighting::Ratio
                    && matches!(participation, Participation::Elastic(_))
                {
                    return refuse(
                        "weights b/|A| are biased where clients drop out as they do: use \
                        weights 1/p"
                            .into(),
                    );
                }
                if weighting == Weighting::Ratio && p.iter().any(|q| *q != p[0]) {
                    return refuse(
                        "weights b/|A| are biased when probabilities differ between \
                        clients: use weights 1/p"
                            .into(),
                    );
                }
            }
            Participation::Fixed(size) => {
                if !(1..=clients).contains(size) {
                    return refuse(format!(
                        "{size} of {clients} clients cannot take part: the number must be between \
                         1 and {clients}"
                    ));
                }
            }
        }
        let size = if let Participation::Fixed(size) = participation { size } else { 0 };
        let alike = match &participation {
            Participation::Bernoulli(p) => {
                p.first().copied().filter(|first| p.iter().all(|q| q == first))
            }
            _ => None,
        };
        let most = if let Participation::Fixed(size) = participation { size } else { clients };
        Ok(Roll {
            participation,
            weighting,
            clients,
            subsets: Subsets::new(clients),
            chosen: vec![0; size],
            alike,
            active: Vec::with_capacity(if alike.is_some() && clients >= MANY { 0 } else { most }),
        })
    }

    /// Draw the active set of a round into [`Roll::active`].
    pub fn call(&mut self, seed: Seed, round: u64) {
        let everybody = || (0..self.clients as u32).map(ClientId);
        match &self.participation {
            Participation::All | Participation::Elastic(_) => {
                if self.active.is_empty() {
                    self.active.extend(everybody());
                }
            }
            Participation::Bernoulli(p) => {
                let mut coins = seed.stream(Purpose::Participation, SERVER, round);
                loop {
                    self.active.clear();
                    match self.alike {
                        Some(p) if self.clients >= MANY => {
                            self.active.extend(Gaps::new(p, self.clients, &mut coins))
                        }
                        _ => self.active.extend(everybody().filter(|i| coins.coin(p[i.index()]))),
                    }
                    if self.weighting == Weighting::InverseProbability || !self.active.is_empty() {
                        break;
                    }
                }
            }
            Participation::Fixed(_) => {
                let mut coins = seed.stream(Purpose::Participation, SERVER, round);
                self.subsets.draw(self.clients as u32, &mut coins, &mut self.chosen);
                self.active.clear();
                self.active.extend(self.chosen.iter().map(|i| ClientId(*i)));
            }
        }
    }

    /// Whether a round may end without everybody's answer.
    pub(crate) fn is_elastic(&self) -> bool {
        matches!(self.participation, Participation::Elastic(_))
    }

    /// The weight `omega_i` of an active client's answer.
    pub fn weight(&self, client: ClientId) -> f64 {
        match (&self.participation, self.weighting) {
            (Participation::All, _) => 1.0,
            (Participation::Bernoulli(_) | Participation::Fixed(_), Weighting::Ratio) => {
                self.clients as f64 / self.active.len() as f64
            }
            (Participation::Elastic(p), _)
            | (Participation::Bernoulli(p), Weighting::InverseProbability) => {
                1.0 / p[client.index()]
            }
            (Participation::Fixed(size), Weighting::InverseProbability) => {
                self.clients as f64 / *size as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The weighted count of every client is 1 on average; each z-score fails by chance once in a
    /// million.
    #[test]
    fn weights_are_unbiased() {
        let rounds = 200_000u64;
        let unequal = vec![0.2, 0.9, 0.5, 1.0];
        for (participation, weighting) in [
            (Participation::All, Weighting::InverseProbability),
            (Participation::Bernoulli(unequal), Weighting::InverseProbability),
            (Participation::Bernoulli(vec![0.3; 4]), Weighting::Ratio),
            (Participation::Fixed(3), Weighting::InverseProbability),
            (Participation::Fixed(1), Weighting::Ratio),
        ] {
            let mut roll = Roll::new(participation.clone(), weighting, 4).unwrap();
            let (mut sum, mut squares) = ([0.0; 4], [0.0; 4]);
            for round in 0..rounds {
                roll.call(Seed::new(8), round);
                for i in roll.active.clone() {
                    sum[i.index()] += roll.weight(i);
                    squares[i.index()] += roll.weight(i).powi(2);
                }
            }
            for i in 0..4 {
                let mean = sum[i] / rounds as f64;
                let variance = squares[i] / rounds as f64 - mean * mean;
                let error = (variance / rounds as f64).sqrt();
                assert!(
                    (mean - 1.0).abs() <= 4.9 * error + 1e-12,
                    "{participation:?} {weighting:?} client {i}: {mean} +- {error}"
                );
            }
        }
    }

    /// Whether they are drawn by coins or by gaps, every client takes part with its probability,
    /// and so do neighbours together; each z-score fails by chance once in a million.
    #[test]
    fn many_clients_take_part_as_often_as_few() {
        let (clients, rounds) = (MANY, 4000u64);
        for p in [0.002, 0.3, 1.0] {
            let mut roll = Roll::new(
                Participation::Bernoulli(vec![p; clients]),
                Weighting::InverseProbability,
                clients,
            )
            .unwrap();
            let (mut all, mut first, mut last, mut pairs) = (0usize, 0usize, 0usize, 0usize);
            for round in 0..rounds {
                roll.call(Seed::new(5), round);
                assert!(
                    roll.active.is_sorted_by(|a, b| a < b)
                        && roll.active.iter().all(|i| i.index() < clients)
                );
                all += roll.active.len();
                first += usize::from(roll.active.first() == Some(&ClientId(0)));
                last += usize::from(roll.active.last() == Some(&ClientId(clients as u32 - 1)));
                pairs += roll.active.windows(2).filter(|two| two[0].0 + 1 == two[1].0).count();
            }
            let n = rounds as f64;
            // Pairs of neighbours overlap: Var = n (b - 1) p^2 (1 - p^2) + 2 n (b - 2) (p^3 - p^4).
            let neighbours = n * (clients - 1) as f64 * p * p;
            let overlap = n * 2.0 * (clients - 2) as f64 * (p.powi(3) - p.powi(4));
            for (name, count, mean, variance) in [
                ("all", all, n * clients as f64 * p, n * clients as f64 * p * (1.0 - p)),
                ("the first", first, n * p, n * p * (1.0 - p)),
                ("the last", last, n * p, n * p * (1.0 - p)),
                ("neighbours", pairs, neighbours, neighbours * (1.0 - p * p) + overlap),
            ] {
                let off = (count as f64 - mean).abs();
                assert!(off <= 4.9 * variance.sqrt() + 1.0, "{name} at {p}: {count}, not {mean}");
            }
        }
    }

    #[test]
    fn biased_or_impossible_rules_are_refused() {
        let refused = |p, w| Roll::new(p, w, 3).unwrap_err().to_string();
        assert!(
            refused(Participation::Bernoulli(vec![0.1, 0.2, 0.2]), Weighting::Ratio)
                .contains("biased")
        );
        assert!(
            refused(Participation::Bernoulli(vec![0.1, 0.0, 0.2]), Weighting::InverseProbability)
                .contains("client 1")
        );
        assert!(
            refused(Participation::Bernoulli(vec![0.1]), Weighting::InverseProbability)
                .contains("one for each")
        );
        assert!(refused(Participation::Fixed(4), Weighting::Ratio).contains("4 of 3"));
        assert!(refused(Participation::Elastic(vec![0.5; 3]), Weighting::Ratio).contains("biased"));
        assert!(
            refused(Participation::Elastic(vec![0.5, 0.0, 1.0]), Weighting::InverseProbability)
                .contains("client 1")
        );
    }

    #[test]
    fn a_round_may_be_empty_with_inverse_probabilities_and_never_with_the_ratio() {
        let empty = |weighting| {
            let mut roll = Roll::new(Participation::Bernoulli(vec![0.1; 3]), weighting, 3).unwrap();
            (0..1000).filter(|k| (roll.call(Seed::new(1), *k), roll.active.is_empty()).1).count()
        };
        assert!(empty(Weighting::InverseProbability) > 600);
        assert_eq!(empty(Weighting::Ratio), 0);
    }
}
