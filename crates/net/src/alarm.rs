//! Name a site whose answers dominate those of the others, or drift away from what they were.
//!
//! Answers of sites add up: gradients, or values of a potential.
//!
//! *Gradients.* When a chain is warm the gradients of all sites cancel but for the prior's, whoever
//! is wrong: one site that pulls with all its might is held by the others together. What shows it
//! is how hard they pull. The mean gradient of a site with the share `s` of all rows, over the root
//! mean square by which the sum of all gradients fluctuates, is about the root of `s` where the
//! rows of all sites follow one law: both are sums over rows at points that are a posterior
//! standard deviation apart. It is about the number of posterior standard deviations by which the
//! site moves the mean. A site is named where that is beyond [`MOST_PULL`] and the others pull
//! against it, nearly all of them. For sites of one law its square has the mean `s` and, at worst,
//! the law of `s` times the square of a normal number: a false alarm has a probability below 1e-22.
//!
//! *Values of potentials* do not cancel. There the *scales* of sites are compared: the root of the
//! mean square of their answers' norms, over the root of their rows, are alike for one law. A site
//! is named where its scale is more than [`threshold`] times that of nearly all others: of so many
//! of them that a third of all sites may be as wrong as this one and hide nothing.
//!
//! Sites whose rows really differ so much are named too, and rightly: the posterior follows them.
//! A site that lies about its rows, or lies a little, is not.

use consilience_core::linalg::norm_squared;
use consilience_core::protocol::Kind;

/// How often honest sites of one law raise an alarm by values of potentials, at most: once in a
/// thousand runs.
pub const FALSE_ALARMS: f64 = 1e-3;
/// A site that moves the mean by more posterior standard deviations than this dominates, if the
/// others' pulls against it add up to nearly theirs one by one.
pub const MOST_PULL: f64 = 10.0;
const MOST_AGREEMENT: f64 = 0.9;
/// From so many rounds of a warm chain on it is looked at.
const LEAST_ROUNDS: u64 = 200;
/// Sites of different laws are not named for less than this.
const LEAST_RATIO: f64 = 8.0;
/// Who grows so much more than the others since the chains were warm is said to drift.
const MOST_GROWTH: f64 = 10.0;
/// So many answers make a block; so many blocks are what later ones are compared with.
const BLOCK: u64 = 32;
const REFERENCE: u64 = 8;
/// From so many answers of every site on it is looked at.
const LEAST: u64 = 4;

/// What one site's answers in one chain were like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scale {
    count: u64,
    squares: f64,
    /// The block that is being filled.
    block: (u64, f64),
    blocks: u64,
    /// The largest mean square of a block of the reference, and that of the last block.
    reference: f64,
    last: f64,
}

impl Scale {
    /// An answer came with this norm; `warm`: after the burn-in.
    pub fn note(&mut self, norm: f64, warm: bool) {
        let square = norm * norm;
        self.count += 1;
        self.squares += square;
        if !warm {
            return;
        }
        self.block.0 += 1;
        self.block.1 += square;
        if self.block.0 < BLOCK {
            return;
        }
        let mean = self.block.1 / BLOCK as f64;
        self.block = (0, 0.0);
        if self.blocks < REFERENCE {
            self.reference = self.reference.max(mean);
        }
        self.blocks += 1;
        self.last = mean;
    }

    /// By how much it has grown since, where there is something to compare.
    fn growth(&self) -> Option<f64> {
        let known = self.blocks > REFERENCE && self.reference > 0.0;
        known.then(|| (self.last / self.reference).sqrt())
    }
}

/// What the answers of all sites in one chain were like.
#[derive(Clone, Debug)]
pub struct Watch {
    scales: Vec<Scale>,
    /// Whether answers are gradients.
    gradients: bool,
    /// The sum of each site's gradients since the chain is warm, and how many there were.
    sums: Vec<(u64, Vec<f64>)>,
    /// The sum of all sites' gradients in the open round.
    round: Vec<f64>,
    /// How many rounds there were, the sum of these sums, and that of their squares.
    rounds: u64,
    total: Vec<f64>,
    squares: f64,
}

impl Watch {
    /// Of so many sites.
    pub fn new(sites: usize) -> Watch {
        Watch {
            scales: vec![Scale::default(); sites],
            gradients: false,
            sums: vec![(0, Vec::new()); sites],
            round: Vec::new(),
            rounds: 0,
            total: Vec::new(),
            squares: 0.0,
        }
    }

    /// A site answered; `warm`: after the burn-in.
    pub fn answer(&mut self, site: usize, kind: Kind, values: &[f64], warm: bool) {
        self.gradients = kind == Kind::Gradient;
        if !matches!(kind, Kind::Gradient | Kind::Potential) || site >= self.sums.len() {
            return; // positions are averaged, and their norms say nothing
        }
        self.scales[site].note(norm_squared(values).sqrt(), warm);
        if !(warm && self.gradients) {
            return;
        }
        let (count, sum) = &mut self.sums[site];
        for room in [sum, &mut self.round, &mut self.total] {
            room.resize(values.len(), 0.0);
        }
        *count += 1;
        self.sums[site].1.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        self.round.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }

    /// The round is over.
    pub fn end_round(&mut self) {
        if self.round.is_empty() {
            return; // it is not warm, or says no gradients
        }
        self.rounds += 1;
        self.squares += norm_squared(&self.round);
        self.total.iter_mut().zip(&self.round).for_each(|(sum, value)| *sum += value);
        self.round.fill(0.0);
    }

    /// How hard each site pulls, in posterior standard deviations, and its pull over the sum of
    /// those of the others; `None` as long as too little is known.
    fn pulls(&self) -> Option<Vec<(f64, f64)>> {
        if self.rounds < LEAST_ROUNDS || self.sums.len() < 3 {
            return None;
        }
        let rounds = self.rounds as f64;
        let spread = self.squares / rounds - norm_squared(&self.total) / (rounds * rounds);
        let mean = |(count, sum): &(u64, Vec<f64>)| norm_squared(sum).sqrt() / *count as f64;
        let means: Vec<f64> = self.sums.iter().map(mean).collect();
        let all: f64 = means.iter().sum();
        if !(spread > 0.0 && all.is_finite()) {
            return None; // somebody said nothing
        }
        let of = |mean: &f64| (mean / spread.sqrt(), mean / (all - mean).max(f64::MIN_POSITIVE));
        Some(means.iter().map(of).collect())
    }
}

/// What is wrong with a site's answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alarm {
    /// It moves the mean by so many posterior standard deviations, against all others.
    Pulls(f64),
    /// They are so many times as large as those of nearly all others.
    Dominates(f64),
    /// They grew by so much more than those of the others.
    Drifts(f64),
}

/// How much each site dominates the others, over all chains: from 1 on there is an alarm. `None` as
/// long as too little is known.
pub fn influences(chains: &[Watch], rows: &[u64]) -> Option<Vec<f64>> {
    judged(chains, rows).map(|judged| judged.into_iter().map(|(influence, _)| influence).collect())
}

/// How much each site dominates the others, and in what way.
fn judged(chains: &[Watch], rows: &[u64]) -> Option<Vec<(f64, Alarm)>> {
    if chains.first()?.gradients {
        return by_pulls(chains);
    }
    let most = threshold(rows.len())?;
    let ratios = ratios(chains, rows)?;
    Some(ratios.into_iter().map(|ratio| (ratio / most, Alarm::Dominates(ratio))).collect())
}

fn by_pulls(chains: &[Watch]) -> Option<Vec<(f64, Alarm)>> {
    let pulls: Option<Vec<Vec<(f64, f64)>>> = chains.iter().map(Watch::pulls).collect();
    let pulls = pulls?;
    let of = |site: usize| {
        // in every chain
        let least = |of: fn(&(f64, f64)) -> f64| {
            pulls.iter().map(|chain| of(&chain[site])).fold(f64::INFINITY, f64::min)
        };
        let (pull, agreement) = (least(|pull| pull.0), least(|pull| pull.1));
        ((pull / MOST_PULL).min(agreement / MOST_AGREEMENT), Alarm::Pulls(pull))
    };
    Some((0..pulls.first()?.len()).map(of).collect())
}

/// Scales of sites over all chains, each over the root of its rows, divided by that of nearly all
/// others.
fn ratios(chains: &[Watch], rows: &[u64]) -> Option<Vec<f64>> {
    let total = |site: usize| {
        let scales = chains.iter().filter_map(|chain| chain.scales.get(site));
        scales.fold((0, 0.0), |(count, sum), scale| (count + scale.count, sum + scale.squares))
    };
    let scale = |site: usize| {
        let (count, squares) = total(site);
        (count >= LEAST).then(|| (squares / (count * rows[site].max(1)) as f64).sqrt())
    };
    let scales: Option<Vec<f64>> = (0..rows.len()).map(scale).collect();
    let scales = scales?;
    let (_, others) = compared(rows.len())?;
    let mut sorted = scales.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let ratio = |own: &f64| {
        // those behind its own move up by one, where it is taken out
        let behind = usize::from(own.total_cmp(&sorted[others - 1]).is_le());
        let usual = sorted[others - 1 + behind];
        if usual > 0.0 { own / usual } else { 0.0 } // nobody else has said anything
    };
    Some(scales.iter().map(ratio).collect())
}

/// Who dominates or drifts.
pub fn alarms(chains: &[Watch], rows: &[u64]) -> Vec<(usize, Alarm)> {
    let judged = judged(chains, rows).unwrap_or_default().into_iter().enumerate();
    let mut found: Vec<(usize, Alarm)> = judged
        .filter(|(_, (influence, _))| *influence > 1.0)
        .map(|(site, (_, alarm))| (site, alarm))
        .collect();
    let sites = rows.len();
    let mut named = vec![false; sites];
    found.iter().for_each(|(site, _)| named[*site] = true);
    for chain in chains {
        let growths: Option<Vec<f64>> = chain.scales.iter().map(Scale::growth).collect();
        let Some(growths) = growths.filter(|growths| growths.len() == sites && sites > 2) else {
            continue;
        };
        let mut sorted = growths.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let usual = sorted[sites / 2].max(1.0);
        for (site, growth) in growths.iter().enumerate() {
            if *growth > MOST_GROWTH * usual && !std::mem::replace(&mut named[site], true) {
                found.push((site, Alarm::Drifts(growth / usual)));
            }
        }
    }
    found
}

/// How many others a site has, and the place of the scale that its own is compared with among
/// theirs, the smallest first; `None`: with so few sites nobody can tell who is wrong.
fn compared(sites: usize) -> Option<(usize, usize)> {
    let wrong = ((sites.max(1) - 1) / 3).max(1); // this one among them
    (sites > 2).then(|| (sites - 1, sites - wrong))
}

/// How many times the scale of nearly all others is too much, so that honest sites of one law are
/// named in [`FALSE_ALARMS`] of all runs at most.
///
/// The worst law of a scale is that of one parameter, where it is the modulus of a normal number.
/// The `k`-th smallest of `m` such numbers is below `e` with a probability of at most
/// `C(m, k) (e sqrt(2 / pi))^k`; so one more exceeds it `t` times with at most
/// `C(m, k) (2 / pi)^(k / 2) E|Z|^k / t^k`, and any of all sites with that times their number.
pub fn threshold(sites: usize) -> Option<f64> {
    let (m, k) = compared(sites)?;
    let mut log_sum = (sites as f64 / FALSE_ALARMS).ln();
    for j in 0..k {
        log_sum += ((m - j) as f64 / (j + 1) as f64).ln();
    }
    log_sum += 0.5 * k as f64 * std::f64::consts::FRAC_2_PI.ln() + log_moment(k);
    Some((log_sum / k as f64).exp().max(LEAST_RATIO))
}

/// The logarithm of `E|Z|^k`, by `E|Z|^k = (k - 1) E|Z|^(k - 2)`.
fn log_moment(k: usize) -> f64 {
    let start = if k.is_multiple_of(2) { 0.0 } else { 0.5 * std::f64::consts::FRAC_2_PI.ln() };
    (1..k).rev().step_by(2).map(|factor| (factor as f64).ln()).sum::<f64>() + start
}

#[cfg(test)]
mod tests {
    use super::*;
    use consilience_core::rng::{Noise, SERVER, Seed};

    fn said(norms: &[f64]) -> Watch {
        let mut watch = Watch::new(norms.len());
        for (site, norm) in norms.iter().enumerate() {
            (0..LEAST).for_each(|_| watch.answer(site, Kind::Potential, &[*norm], false));
        }
        watch
    }

    #[test]
    fn moments_of_normal_numbers() {
        for (k, moment) in [(0, 1.0), (1, 0.797_884_56), (2, 1.0), (3, 1.595_769_12), (4, 3.0)] {
            assert!((log_moment(k).exp() - moment).abs() < 1e-7, "{k}");
        }
        assert!((log_moment(6).exp() - 15.0).abs() < 1e-9);
    }

    /// Honest sites of one law in one parameter, the worst case: 20,000 runs of each size. More
    /// than 50 alarms where 20 are the most to be expected have a probability below 1e-8.
    #[test]
    fn honest_sites_raise_as_few_alarms_as_is_said() {
        let runs = 20_000;
        for sites in [3, 4, 5, 7, 10, 30] {
            let rows: Vec<u64> = (0..sites as u64).map(|site| 10 + 100 * site).collect();
            let mut noise = Noise::new(Seed::new(sites as u64), SERVER, sites);
            let mut named = 0;
            for run in 0..runs {
                let normal = noise.at(run, 0..sites);
                let own = |(z, n): (&f64, &u64)| z.abs() * (*n as f64).sqrt();
                let norms: Vec<f64> = normal.iter().zip(&rows).map(own).collect();
                named += usize::from(!alarms(&[said(&norms)], &rows).is_empty());
            }
            assert!(named <= 50, "{named} of {runs} runs of {sites} sites");
        }
    }

    /// What a site is compared with is found without sorting all others for each.
    #[test]
    fn a_site_is_compared_with_the_others_alone() {
        for sites in 3..12 {
            let norms: Vec<f64> =
                (0..sites).map(|site| 1.0 + ((7 * site * site) % 11) as f64 / 2.0).collect();
            let (_, others) = compared(sites).unwrap();
            let found = ratios(&[said(&norms)], &vec![1; sites]).unwrap();
            for (site, ratio) in found.iter().enumerate() {
                let mut rest = norms.clone();
                let own = rest.remove(site);
                rest.sort_unstable_by(f64::total_cmp);
                let due = own / rest[others - 1];
                assert!((ratio / due - 1.0).abs() < 1e-12, "{sites}, {site}: {ratio}, {due}");
            }
        }
    }

    #[test]
    fn who_dominates_is_named_and_a_third_may_be_wrong_together() {
        for (sites, wrong, size) in [(3, 1, 100.0), (4, 1, 40.0), (7, 2, 30.0), (10, 3, 20.0)] {
            let mut norms = vec![1.0; sites];
            norms[..wrong].fill(size);
            let found = alarms(&[said(&norms), said(&norms)], &vec![5; sites]);
            assert_eq!(found.len(), wrong, "{sites}: {found:?}");
            for (k, (site, alarm)) in found.into_iter().enumerate() {
                let Alarm::Dominates(ratio) = alarm else { panic!("{alarm:?}") };
                assert!(site == k && (ratio / size - 1.0).abs() < 1e-12, "{sites}: {ratio}");
            }
        }
        assert_eq!(influences(&[said(&[1.0, 1e6])], &[1, 1]), None, "of two, either may be wrong");
        assert_eq!(influences(&[said(&[1.0, 1.0])], &[1, 1, 1]), None, "one said nothing");
    }

    /// A warm chain in one parameter: sites of these optima and rows, each row of precision 1. The
    /// chain stands at a new draw of the posterior in every round.
    fn warm(sites: &[(f64, u64)]) -> Watch {
        let all: f64 = sites.iter().map(|(_, rows)| *rows as f64).sum();
        let mean = sites.iter().map(|(at, rows)| at * *rows as f64).sum::<f64>() / all;
        let mut noise = Noise::new(Seed::new(7), SERVER, 1);
        let mut watch = Watch::new(sites.len());
        for round in 0..LEAST_ROUNDS {
            let x = mean + noise.at(round, 0..1)[0] / all.sqrt();
            for (site, (at, rows)) in sites.iter().enumerate() {
                watch.answer(site, Kind::Gradient, &[(x - at) * *rows as f64], true);
            }
            watch.end_round();
        }
        watch
    }

    /// Gradients cancel: what tells is how hard they pull.
    #[test]
    fn a_site_that_all_others_hold_is_named() {
        let rows = [100; 4];
        // two posterior standard deviations of a site apart: honest
        let honest = [(0.1, 100), (-0.1, 100), (0.15, 100), (-0.2, 100)];
        assert_eq!(alarms(&[warm(&honest)], &rows), []);
        let poisoned = [(0.1, 100), (-0.1, 100), (0.15, 100), (5.0, 100)];
        let found = alarms(&[warm(&poisoned), warm(&poisoned)], &rows);
        let [(3, Alarm::Pulls(pull))] = found[..] else { panic!("{found:?}") };
        // without it the others' mean is 0.05, with it 1.2875: 1.2375 less by sd 0.05, times the
        // others' share of the information
        assert!((pull - 0.75 * 4.95 * 100.0 / 20.0).abs() < 2.0, "{pull}");
        // two parties of equal weight: nobody knows who is wrong
        let split = [(5.0, 100), (5.1, 100), (-5.0, 100), (-5.1, 100)];
        assert_eq!(alarms(&[warm(&split)], &rows), []);
    }

    #[test]
    fn who_grows_alone_drifts_and_who_grows_with_all_does_not() {
        let chain = |later: [f64; 3]| {
            let mut watch = Watch::new(3);
            for k in 0..BLOCK * (REFERENCE + 2) {
                for (site, later) in later.iter().enumerate() {
                    let norm = if k < BLOCK * REFERENCE { 1.0 } else { *later };
                    watch.answer(site, Kind::Potential, &[norm], true);
                }
            }
            alarms(&[watch], &[1; 3])
        };
        assert_eq!(chain([1.0, 20.0, 1.0]), [(1, Alarm::Drifts(20.0))]);
        assert_eq!(chain([20.0, 20.0, 20.0]), []);
        assert_eq!(chain([1.0, 8.0, 1.0]), []);
    }
}
