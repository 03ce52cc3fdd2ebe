//! Hold the rows that had an event against those that the partial likelihood would choose.
//!
//! Cox regression says nothing of when events come, only which of the rows at risk has one when one
//! comes. So that is drawn anew: at every time of a site at which there are events, as many rows of
//! those at risk have one, each with a chance in proportion to `exp` of its predictor. Events are
//! counted by the risk of their row, its predictor on average over draws. The mean count of a bin
//! is the sum over its rows of the hazard that each has been exposed to, by Breslow's estimate:
//! what is observed less that is the sum of the rows' martingale residuals. And the risks of the
//! later half of events less those of the earlier half are held against the same of replicates:
//! they are like these only where hazards are proportional.

use consilience_core::simd::exp;

use super::counts::{Bins, Sums};
use crate::random::Random;

/// The events of one site.
#[derive(Clone, Debug)]
pub(super) struct Risks {
    /// The rows, those of the latest times first: who is at risk at a time stands before others.
    order: Vec<u32>,
    /// The times at which there are events, latest first: how many rows are at risk, and the places
    /// in the order of those that have one.
    events: Vec<(usize, Vec<u32>)>,
    /// How many events there are before the later half of them.
    early: usize,
    /// Every row's risk.
    risk: Vec<f64>,
}

impl Risks {
    /// From responses, below 0 where the event was not seen, and every row's risk.
    pub(super) fn new(response: &[f64], risk: Vec<f64>) -> Risks {
        let mut order: Vec<u32> = (0..response.len() as u32).collect();
        let time = |row: &u32| response[*row as usize].abs();
        order.sort_by(|a, b| time(b).total_cmp(&time(a)));
        let mut events: Vec<(usize, Vec<u32>)> = Vec::new();
        let mut last = f64::NAN;
        for (place, row) in order.iter().enumerate() {
            let at_risk = order.partition_point(|other| time(other) >= time(row));
            if response[*row as usize] <= 0.0 {
                continue;
            }
            if time(row) != last {
                events.push((at_risk, Vec::new()));
                last = time(row);
            }
            if let Some((_, places)) = events.last_mut() {
                places.push(place as u32);
            }
        }
        let all: usize = events.iter().map(|(_, places)| places.len()).sum();
        Risks { order, events, early: all / 2, risk }
    }

    /// The risks of rows that had an event.
    pub(super) fn of_events(&self) -> impl Iterator<Item = f64> + '_ {
        let places = self.events.iter().flat_map(|(_, places)| places);
        places.map(|place| self.risk[self.order[*place as usize] as usize])
    }

    /// The sums of the events that there were.
    pub(super) fn observed(&self, bins: &Bins) -> Sums {
        let mut left = self.count();
        let mut sums = Sums::default();
        for risk in self.of_events() {
            left -= 1;
            sums.add_event(risk, left >= self.early, bins);
        }
        sums
    }

    fn count(&self) -> usize {
        self.events.iter().map(|(_, places)| places.len()).sum()
    }

    /// The sums of events that are drawn anew, by the rows' predictors at a draw.
    pub(super) fn replicate(&self, predictors: &[f64], bins: &Bins, random: &mut Random) -> Sums {
        let largest = predictors.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // the weight of all rows as far as each, in the order of risk sets
        let mut total = 0.0;
        let upto: Vec<f64> = self
            .order
            .iter()
            .map(|row| {
                total += exp(predictors[*row as usize] - largest);
                total
            })
            .collect();
        let (mut left, mut sums, mut drawn) = (self.count(), Sums::default(), Vec::new());
        for (at_risk, places) in &self.events {
            drawn.clear();
            for _ in places {
                // whoever has had an event at this time has no other one
                let place = (0..1000)
                    .map(|_| {
                        let level = random.uniform() * upto[at_risk - 1];
                        upto[..*at_risk].partition_point(|sum| *sum <= level).min(at_risk - 1)
                    })
                    .find(|place| !drawn.contains(place))
                    .or_else(|| (0..*at_risk).find(|place| !drawn.contains(place)));
                let Some(place) = place else { continue };
                drawn.push(place);
                left -= 1;
                let risk = self.risk[self.order[place] as usize];
                sums.add_event(risk, left >= self.early, bins);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use consilience_core::rng::{ClientId, Purpose, Seed};

    use super::super::counts::Kind;
    use super::*;

    /// Times with ties between events and with rows that are censored then; predictors.
    const RESPONSE: [f64; 9] = [3.0, -3.0, 1.0, 5.0, -2.0, 4.0, -6.0, 2.5, 0.5];
    const RISK: [f64; 9] = [0.2, -1.0, 0.9, -0.3, 1.4, 0.0, -2.0, 0.6, 1.1];

    fn bins() -> Bins {
        Bins { kind: Kind::Risks, edges: vec![-0.5, 0.5, 1.0], centre: 0.25 }
    }

    /// The mean count of a bin is Breslow's cumulated hazard times `exp` of predictors, summed over
    /// its rows: by the definition, row by row. Within 4.9 standard errors.
    #[test]
    fn counts_are_those_of_martingale_residuals() {
        let risks = Risks::new(&RESPONSE, RISK.to_vec());
        let predictors: Vec<f64> = RISK.iter().map(|x| 0.8 * x + 0.3).collect();
        let mut expected = [0.0; 4];
        for (row, x) in predictors.iter().enumerate() {
            let mut hazard = 0.0;
            for event in RESPONSE.iter().filter(|y| **y > 0.0 && **y <= RESPONSE[row].abs()) {
                let at_risk = (0..9).filter(|other| RESPONSE[*other].abs() >= *event);
                hazard += 1.0 / at_risk.map(|other| predictors[other].exp()).sum::<f64>();
            }
            let bin = bins().edges.partition_point(|edge| *edge < RISK[row]);
            expected[bin] += hazard * x.exp();
        }
        let (n, mut counts) = (20_000, [0.0; 4]);
        for k in 0..n {
            let mut random = Random::new(Seed::new(1).stream(Purpose::Data, ClientId(0), k));
            let sums = risks.replicate(&predictors, &bins(), &mut random);
            assert_eq!(sums.count, 6);
            counts.iter_mut().enumerate().for_each(|(k, count)| *count += sums.bin(k));
        }
        let observed = risks.observed(&bins());
        assert_eq!([0, 1, 2, 3].map(|k| observed.bin(k)), [0.0, 3.0, 2.0, 1.0]);
        for (found, expected) in counts.iter().map(|sum| sum / n as f64).zip(expected) {
            // a sum of six coins
            let error = (6.0f64 * 0.25 / n as f64).sqrt();
            assert!((found - expected).abs() < 4.9 * error, "{found} is not {expected}");
        }
    }

    /// Whoever has an event at a time is not at risk of another one then; who is censored at it is.
    #[test]
    fn ties_are_drawn_without_putting_back() {
        let risks = Risks::new(&[2.0, 2.0, -2.0, -1.0], vec![1.0, 2.0, 3.0, 4.0]);
        let edges = vec![1.5, 2.5, 3.5];
        let bins = Bins { kind: Kind::Risks, edges, centre: 0.0 };
        let mut seen = [0.0; 4];
        for k in 0..300 {
            let mut random = Random::new(Seed::new(1).stream(Purpose::Data, ClientId(0), k));
            let sums = risks.replicate(&[0.0, 0.0, 0.0, 9.0], &bins, &mut random);
            let counts = [0, 1, 2, 3].map(|k| sums.bin(k));
            assert!(sums.count == 2 && counts.iter().all(|count| *count <= 1.0), "{counts:?}");
            seen.iter_mut().zip(counts).for_each(|(seen, count)| *seen += count);
        }
        assert_eq!(seen[3], 0.0);
        assert!(seen[..3].iter().all(|count| *count > 150.0), "{seen:?}");
    }
}
