//! Draw the Langevin noise of one party, iteration by iteration.

use std::ops::Range;

use super::blocks::{self, GROUP};
use super::{ClientId, Purpose, SERVER, Seed};

/// Coordinates whose noise is drawn and used together, while they are in the cache: a whole number
/// of groups.
const STRETCH: usize = 1024;
/// Lots that are drawn together where they will be used one after the other.
const AHEAD: u64 = 4;

/// Standard normals for every iteration of one party: a pure function of seed, party, dimension and
/// iteration.
///
/// Where the seed is [`Seed::halved`], iterations `2k` and `2k + 1` have `(z + y)/sqrt(2)` and
/// `(z - y)/sqrt(2)`: independent standard normals, whose sum is `sqrt(2)` times the noise `z` of
/// iteration `k` of the chain with twice the step. Both chains then follow one Brownian path.
#[derive(Clone, Debug)]
pub struct Noise {
    lots: Lots,
    /// The noise `y` and room for the sum, where the seed is halved.
    bridge: Option<Box<(Lots, Vec<f64>)>>,
    /// Room for halved sums of four, where a normal is one.
    sums: Option<Vec<f64>>,
}

impl Noise {
    /// The noise of a client, or of all together at [`super::SERVER`].
    pub fn new(seed: Seed, client: ClientId, dim: usize) -> Self {
        let lots = |purpose| Lots::new(seed, purpose, client, dim);
        let bridge = seed.halved.then(|| Box::new((lots(Purpose::Bridge), Vec::new())));
        Noise { lots: lots(Purpose::Noise), bridge, sums: None }
    }

    /// The noise that keeps a client's rows private: of every normal half the sum of four, so that
    /// no single one can be read off its last bits (Holohan and Braghin 2021). No seed halves it.
    pub fn private(seed: Seed, client: ClientId, dim: usize) -> Self {
        let lots = Lots::new(seed, Purpose::Privacy, client, 4 * dim);
        Noise { lots, bridge: None, sums: Some(Vec::new()) }
    }

    /// How many coordinates there are.
    fn dim(&self) -> usize {
        if self.sums.is_some() { self.lots.dim / 4 } else { self.lots.dim }
    }

    /// The seed, where the noise of an iteration is what stands at its own address and no more: the
    /// vector is long enough, the seed is not halved, and nothing is summed.
    pub(crate) fn seed(&self) -> Option<Seed> {
        let plain = self.bridge.is_none() && self.sums.is_none();
        (plain && self.lots.dim > GROUP).then_some(self.lots.seed)
    }

    /// The coordinates, cut into stretches to be asked for one after the other.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let dim = self.dim();
        (0..dim).step_by(STRETCH).map(move |start| start..dim.min(start + STRETCH))
    }

    /// The noise of an iteration in one of the stretches.
    #[inline]
    pub fn at(&mut self, iteration: u64, stretch: Range<usize>) -> &[f64] {
        if self.sums.is_some() {
            return self.sum(iteration, stretch);
        }
        if self.bridge.is_none() {
            return self.lots.at(iteration, stretch);
        }
        self.half(iteration, stretch)
    }

    fn sum(&mut self, iteration: u64, stretch: Range<usize>) -> &[f64] {
        let fours = self.lots.at(iteration, 4 * stretch.start..4 * stretch.end);
        let Some(room) = &mut self.sums else { return fours };
        room.clear();
        room.extend(fours.as_chunks::<4>().0.iter().map(half_of_four));
        room
    }

    fn half(&mut self, iteration: u64, stretch: Range<usize>) -> &[f64] {
        let whole = self.lots.at(iteration / 2, stretch.clone());
        let Some(bridge) = &mut self.bridge else { return whole };
        let (apart, room) = &mut **bridge;
        let sign = if iteration.is_multiple_of(2) { 1.0 } else { -1.0 };
        let halves = whole.iter().zip(apart.at(iteration / 2, stretch));
        room.clear();
        room.extend(halves.map(|(z, y)| (z + sign * y) * std::f64::consts::FRAC_1_SQRT_2));
        room
    }

    /// The noise of an iteration, and behind it that of those which follow and are here, at most so
    /// many in all: for vectors that are a single stretch.
    #[inline]
    pub(crate) fn some_from(&mut self, iteration: u64, most: u64) -> &[f64] {
        if self.sums.is_some() {
            return self.sum(iteration, 0..self.lots.dim / 4);
        }
        if self.bridge.is_none() {
            return self.lots.some_from(iteration, most);
        }
        self.half(iteration, 0..self.lots.dim)
    }

    /// The same, if it is here, drawn.
    #[inline]
    fn held(&self, iteration: u64, most: u64) -> Option<&[f64]> {
        let plain = self.bridge.is_none() && self.sums.is_none();
        if plain { self.lots.held_from(iteration, most) } else { None }
    }
}

/// A normal of four: its last bits are those of none of them.
pub(crate) fn half_of_four(four: &[f64; 4]) -> f64 {
    0.5 * ((four[0] + four[1]) + (four[2] + four[3]))
}

/// Standard normals by address.
///
/// Short vectors share what one address gives: a *lot* of so many iterations in a row. What is kept
/// here was drawn already or is likely to be asked next; it is no state.
#[derive(Clone, Debug)]
struct Lots {
    seed: Seed,
    purpose: Purpose,
    client: ClientId,
    dim: usize,
    /// Iterations of a lot.
    per: u64,
    /// Which lots are here.
    held: Range<u64>,
    /// Room for them, from the first one on.
    normals: Vec<f64>,
}

impl Lots {
    fn new(seed: Seed, purpose: Purpose, client: ClientId, dim: usize) -> Self {
        let per = (GROUP / dim.max(1)).max(1) as u64;
        Lots { seed, purpose, client, dim, per, held: 0..0, normals: Vec::new() }
    }

    #[inline]
    fn at(&mut self, iteration: u64, stretch: Range<usize>) -> &[f64] {
        let lot = iteration / self.per;
        if self.normals.is_empty() {
            let room = if self.dim <= GROUP {
                AHEAD as usize * self.per as usize * self.dim
            } else {
                self.dim.min(STRETCH)
            };
            self.normals = vec![0.0; room];
        }
        if self.dim > GROUP {
            if self.normals.len() < stretch.len() {
                self.normals.resize(stretch.len(), 0.0); // four for one
            }
            let normals = &mut self.normals[..stretch.len()];
            let place = self.seed.place(self.purpose, self.client, lot);
            blocks::normals(&place, (stretch.start / 16) as u32, stretch.len(), normals);
            return normals;
        }
        if !self.held.contains(&lot) {
            self.draw(lot);
        }
        let first = ((lot - self.held.start) * self.per + iteration % self.per) as usize * self.dim;
        &self.normals[first..first + self.dim]
    }

    #[inline]
    fn some_from(&mut self, iteration: u64, most: u64) -> &[f64] {
        self.at(iteration, 0..self.dim);
        if self.dim > GROUP {
            return &self.normals[..self.dim];
        }
        let (first, held) =
            (iteration - self.held.start * self.per, (self.held.end - self.held.start) * self.per);
        &self.normals[first as usize * self.dim..held.min(first + most) as usize * self.dim]
    }

    /// What is here of an iteration and of those which follow, of vectors that share lots.
    #[inline]
    fn held_from(&self, iteration: u64, most: u64) -> Option<&[f64]> {
        let first = iteration.checked_sub(self.held.start * self.per)?;
        let held = (self.held.end - self.held.start) * self.per;
        if first >= held || self.dim > GROUP {
            return None;
        }
        Some(&self.normals[first as usize * self.dim..held.min(first + most) as usize * self.dim])
    }

    fn draw(&mut self, lot: u64) {
        let each = self.per as usize * self.dim;
        let lots = if lot == self.held.end { AHEAD } else { 1 };
        let place = self.seed.place(self.purpose, self.client, lot);
        blocks::normals(&place, 0, each, &mut self.normals[..lots as usize * each]);
        self.held = lot..lot + lots;
    }
}

/// The noise of all parties together, kept for the length of a walk: devices that walk the same
/// iterations one after the other find it drawn.
#[derive(Clone, Debug)]
struct SharedNoise {
    noise: Noise,
    /// Which iterations are kept.
    kept: Range<u64>,
    normals: Vec<f64>,
}

impl SharedNoise {
    /// More normals than this are not kept, but drawn for everybody.
    const MOST: usize = 1 << 17;

    /// The noise of this seed; what is kept starts with this iteration.
    fn new(seed: Seed, dim: usize, iteration: u64) -> SharedNoise {
        let noise = Noise::new(seed, SERVER, dim);
        SharedNoise { noise, kept: iteration..iteration, normals: Vec::new() }
    }

    #[inline]
    fn is_of(&self, seed: Seed, dim: usize) -> bool {
        (self.noise.lots.seed, self.noise.lots.dim) == (seed, dim)
    }

    /// The noise of an iteration in one of its stretches.
    #[inline]
    fn at(&mut self, iteration: u64, stretch: Range<usize>) -> &[f64] {
        let dim = self.noise.lots.dim;
        if iteration == self.kept.end {
            self.keep_next();
        }
        if !self.kept.contains(&iteration) {
            return self.noise.at(iteration, stretch);
        }
        let first = (iteration - self.kept.start) as usize * dim;
        &self.normals[first + stretch.start..first + stretch.end]
    }

    /// The noise of an iteration, and behind it that of those which follow, at most so many in all:
    /// for vectors that are a single stretch.
    #[inline]
    fn some_from(&mut self, iteration: u64, most: u64) -> &[f64] {
        let dim = self.noise.lots.dim;
        if (self.kept.start..=self.kept.end).contains(&iteration) {
            while self.kept.end < iteration + most && self.keep_next() {}
        }
        if !self.kept.contains(&iteration) {
            return self.at(iteration, 0..dim);
        }
        let (first, held) = (iteration - self.kept.start, self.kept.end - self.kept.start);
        &self.normals[first as usize * dim..held.min(first + most) as usize * dim]
    }

    /// What is kept of an iteration and of those which follow.
    #[inline]
    fn held(&self, iteration: u64, most: u64) -> Option<&[f64]> {
        if !self.kept.contains(&iteration) {
            return None;
        }
        let dim = self.noise.lots.dim;
        let (first, held) = (iteration - self.kept.start, self.kept.end - self.kept.start);
        Some(&self.normals[first as usize * dim..held.min(first + most) as usize * dim])
    }

    /// Draw and keep the iteration after those that are kept; false if there is no room.
    fn keep_next(&mut self) -> bool {
        let (dim, count) = (self.noise.lots.dim, (self.kept.end - self.kept.start) as usize);
        if (count + 1) * dim > Self::MOST {
            return false;
        }
        if self.normals.is_empty() {
            // once, and mapped to memory as far as it is used
            self.normals = vec![0.0; Self::MOST / dim.max(1) * dim];
        }
        for stretch in self.noise.stretches() {
            let drawn = self.noise.at(self.kept.end, stretch.clone());
            self.normals[count * dim..][stretch].copy_from_slice(drawn);
        }
        self.kept.end += 1;
        true
    }
}

/// `rho Zs + c Z_c`: noise that is partly everybody's and partly one party's own.
#[derive(Clone, Debug)]
pub struct Blend {
    shared: Seed,
    shared_factor: f64,
    own: Noise,
    own_factor: f64,
    dim: usize,
    /// From which iteration on everybody's is kept, since others will ask for it too.
    since: u64,
    both: Vec<f64>,
}

/// Where the two parts of a noise stand, and what each is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Addresses {
    /// Everybody's.
    pub shared: (Seed, f64),
    /// The party's own.
    pub own: (Seed, f64),
}

impl Blend {
    /// Of everybody's noise and of that of a party, with a factor each.
    pub fn new(shared: (Seed, f64), own: (Seed, f64), client: ClientId, dim: usize) -> Self {
        let mixed = shared.1 != 0.0 && own.1 != 0.0;
        Blend {
            shared: shared.0,
            shared_factor: shared.1,
            own: Noise::new(own.0, client, dim),
            own_factor: own.1,
            dim,
            since: 0,
            both: vec![0.0; if mixed { dim } else { 0 }],
        }
    }

    /// The same, with the party's own part from where nobody else can compute it, as it must be to
    /// keep rows private.
    pub fn private(self) -> Self {
        let Lots { seed, client, .. } = self.own.lots;
        Blend { own: Noise::private(seed, client, self.dim), ..self }
    }

    /// Make ready for walks from this iteration on, which others take as well.
    pub fn start(&mut self, iteration: u64) {
        self.since = iteration;
    }

    /// Its addresses, for whoever draws it elsewhere; `None` where the noise of an iteration is
    /// more than what stands at its own address.
    pub fn addresses(&self) -> Option<Addresses> {
        let own = (self.own.seed()?, self.own_factor);
        Some(Addresses { shared: (self.shared, self.shared_factor), own })
    }

    /// Whether it is everybody's or the party's alone.
    pub(crate) fn is_of_one(&self) -> bool {
        self.shared_factor == 0.0 || self.own_factor == 0.0
    }

    /// The coordinates, cut into stretches to be asked for one after the other.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        self.own.stretches()
    }

    /// The noise of an iteration in one stretch, as a factor and a vector.
    pub(crate) fn at<'a>(
        &'a mut self,
        k: u64,
        stretch: Range<usize>,
        shared: &'a mut SharedNoises,
    ) -> (f64, &'a [f64]) {
        if self.shared_factor == 0.0 {
            return (self.own_factor, self.own.at(k, stretch));
        }
        let shared = shared.of(self.shared, self.dim, self.since);
        if self.own_factor == 0.0 {
            return (self.shared_factor, shared.at(k, stretch));
        }
        let both = &mut self.both[stretch.clone()];
        let (shared, own) = (shared.at(k, stretch.clone()), self.own.at(k, stretch));
        for ((sum, zs), z) in both.iter_mut().zip(shared).zip(own) {
            *sum = self.shared_factor * zs + self.own_factor * z;
        }
        (1.0, both)
    }

    /// The same for some iterations in a row, at most so many, where it is everybody's or the
    /// party's alone.
    pub(crate) fn some_from<'a>(
        &'a mut self,
        k: u64,
        most: u64,
        shared: &'a mut SharedNoises,
    ) -> (f64, &'a [f64]) {
        if self.shared_factor == 0.0 {
            (self.own_factor, self.own.some_from(k, most))
        } else {
            (self.shared_factor, shared.of(self.shared, self.dim, self.since).some_from(k, most))
        }
    }

    /// What [`Blend::some_from`] gave or would give, if it is here, drawn: two parties can look at
    /// theirs together.
    pub(crate) fn held<'a>(
        &'a self,
        k: u64,
        most: u64,
        shared: &'a SharedNoises,
    ) -> Option<(f64, &'a [f64])> {
        if self.shared_factor == 0.0 {
            return Some((self.own_factor, self.own.held(k, most)?));
        }
        let shared = shared.0.iter().find(|shared| shared.is_of(self.shared, self.dim))?;
        Some((self.shared_factor, shared.held(k, most)?))
    }
}

/// The noise that all parties of a chain have a share of, for one chain or for several that go on
/// together.
#[derive(Debug, Default)]
pub struct SharedNoises(Vec<SharedNoise>);

impl SharedNoises {
    /// At most so many chains are kept apart.
    const MOST: usize = 128;

    /// That of one seed, of which is kept what is asked for from this iteration on.
    #[inline]
    fn of(&mut self, seed: Seed, dim: usize, since: u64) -> &mut SharedNoise {
        let known = self.0.iter().position(|shared| shared.is_of(seed, dim));
        let at = known.unwrap_or_else(|| {
            if self.0.len() == Self::MOST {
                self.0.clear();
            }
            self.0.push(SharedNoise::new(seed, dim, since));
            self.0.len() - 1
        });
        let shared = &mut self.0[at];
        if shared.kept.start != since {
            shared.kept = since..since; // what is kept of others is of no more use
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(noise: &mut Noise, iteration: u64) -> Vec<f64> {
        noise.stretches().flat_map(|stretch| noise.at(iteration, stretch).to_vec()).collect()
    }

    /// Two halves add up to the whole, are as wide as it, and have nothing to do with each other.
    #[test]
    fn halves_follow_the_path_of_the_whole() {
        for dim in [1, 3, 70, 2000] {
            let mut whole_of = Noise::new(Seed::new(4), ClientId(2), dim);
            let mut half_of = Noise::new(Seed::new(4).halved(), ClientId(2), dim);
            let (mut squares, mut products, mut count) = ([0.0; 2], 0.0, 0.0);
            for k in 0..(8000 / dim as u64).max(4) {
                let (a, b) = (whole(&mut half_of, 2 * k), whole(&mut half_of, 2 * k + 1));
                if dim <= STRETCH {
                    assert_eq!(half_of.some_from(2 * k, 3)[..dim], a);
                }
                for ((z, a), b) in whole(&mut whole_of, k).iter().zip(&a).zip(&b) {
                    assert!((a + b - 2.0f64.sqrt() * z).abs() < 1e-12);
                    squares = [squares[0] + a * a, squares[1] + b * b];
                    products += a * b;
                    count += 1.0;
                }
            }
            // five standard errors of a mean of 8000
            for square in squares {
                assert!((square / count - 1.0).abs() < 0.08, "{dim}: {}", square / count);
            }
            assert!((products / count).abs() < 0.06, "{dim}: {}", products / count);
        }
    }

    /// In any dimension and order a private normal is half the sum of the four at its address.
    #[test]
    fn private_normals_are_halved_sums_of_four() {
        for dim in [1, 3, 20, 63, 64, 65, 1024, 1025, 3000] {
            let lots = || Lots::new(Seed::new(4), Purpose::Privacy, ClientId(2), 4 * dim);
            let mut noise = Noise::private(Seed::new(4), ClientId(2), dim);
            for iteration in [0, 1, 2, 70, 3] {
                let found = whole(&mut noise, iteration);
                let mut fours = Vec::new();
                for start in (0..4 * dim).step_by(STRETCH) {
                    let stretch = start..(4 * dim).min(start + STRETCH);
                    let drawn = lots().at(iteration, stretch.clone()).to_vec();
                    fours.extend_from_slice(&drawn[..stretch.len().min(drawn.len())]);
                }
                let fours = &fours[..4 * dim];
                let expected: Vec<f64> =
                    fours.chunks(4).map(|z| 0.5 * (z[0] + z[1] + (z[2] + z[3]))).collect();
                assert_eq!(found, expected, "{dim}: {iteration}");
                if dim <= STRETCH {
                    assert_eq!(noise.some_from(iteration, 3), expected, "{dim}: {iteration}");
                }
            }
            assert_eq!(noise.seed(), None, "nobody else draws it");
        }
    }

    #[test]
    fn noise_does_not_depend_on_what_was_drawn_before() {
        for dim in [0, 1, 3, 20, 33, 63, 64, 65, 1023, 1024, 1025, 3000] {
            let fresh = || Noise::new(Seed::new(4), ClientId(2), dim);
            let mut in_order = fresh();
            let mut back_and_forth = fresh();
            for iteration in (0..40).chain([7, 8, 1000, 1001, 5]) {
                let alone = whole(&mut fresh(), iteration);
                assert_eq!(alone.len(), dim);
                assert_eq!(whole(&mut in_order, iteration), alone, "{dim}: {iteration}");
                whole(&mut back_and_forth, iteration ^ 13);
                assert_eq!(whole(&mut back_and_forth, iteration), alone, "{dim}: {iteration}");
                if (1..=STRETCH).contains(&dim) {
                    let some = back_and_forth.some_from(iteration, 3).to_vec();
                    assert!((1..=3).contains(&(some.len() / dim)) && some.len() % dim == 0);
                    for (k, of_one) in (iteration..).zip(some.chunks_exact(dim)) {
                        assert_eq!(of_one, whole(&mut fresh(), k), "{dim}: {k} behind {iteration}");
                    }
                }
            }
        }
    }

    #[test]
    fn shared_noise_is_that_of_each_iteration() {
        for dim in [1, 20, 65, 1025, 70_000, 140_000] {
            let mut all = SharedNoises::default();
            // Two parties walk alike, then both go on, then somebody comes with another seed, or
            // skips an iteration, or goes back.
            for (seed, from, to) in [
                (1, 0, 4),
                (1, 0, 4),
                (1, 4, 7),
                (1, 4, 9),
                (2, 4, 6),
                (2, 5, 6),
                (1, 5, 7),
                (1, 3, 6),
            ] {
                for iteration in (from..to).chain([to + 1]) {
                    let shared = all.of(Seed::new(seed), dim, from);
                    let found: Vec<f64> = shared
                        .noise
                        .stretches()
                        .flat_map(|stretch| shared.at(iteration, stretch).to_vec())
                        .collect();
                    assert!(
                        found == whole(&mut Noise::new(Seed::new(seed), SERVER, dim), iteration),
                        "{dim}: {iteration}"
                    );
                    let some = if dim <= STRETCH {
                        shared.some_from(iteration, 4).to_vec()
                    } else {
                        Vec::new()
                    };
                    for (k, of_one) in (iteration..).zip(some.chunks_exact(dim)) {
                        assert_eq!(
                            of_one,
                            whole(&mut Noise::new(Seed::new(seed), SERVER, dim), k),
                            "{dim}: {k} behind {iteration}"
                        );
                    }
                }
            }
        }
        let mut all = SharedNoises::default();
        let shared = all.of(Seed::new(1), 2, 0);
        let most = (SharedNoise::MOST / 2) as u64;
        assert!(
            (0..most + 3)
                .all(|k| shared.at(k, 0..2) == Noise::new(Seed::new(1), SERVER, 2).at(k, 0..2))
        );
        assert_eq!(shared.kept, 0..most);
    }

    #[test]
    fn no_normal_is_used_twice() {
        for dim in [1, 3, 20, 50, 64, 65, 1500] {
            let mut noise = Noise::new(Seed::new(4), ClientId(2), dim);
            let mut all: Vec<u64> =
                (0..200).flat_map(|k| whole(&mut noise, k)).map(f64::to_bits).collect();
            let drawn = all.len();
            all.sort_unstable();
            all.dedup();
            // Of 32-bit numbers some are equal by chance: about n^2 / 2^26 of n where they are
            // densest.
            assert!(
                all.len() + 2 + drawn * drawn / (1 << 24) >= drawn,
                "{dim}: {} of {drawn}",
                all.len()
            );
        }
    }

    #[test]
    fn a_lot_is_the_stream_at_its_address() {
        let mut stream = vec![0.0; 60];
        Seed::new(4).stream(Purpose::Noise, ClientId(2), 5).normals(&mut stream);
        let mut noise = Noise::new(Seed::new(4), ClientId(2), 20);
        for k in 0..3 {
            assert_eq!(noise.at(15 + k, 0..20), &stream[20 * k as usize..][..20]);
        }
    }
}
