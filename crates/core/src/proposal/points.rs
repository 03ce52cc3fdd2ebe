//! Ask for a site's potential at many points, some at a time.

use crate::ask::{Extent, Question, Sum};
use crate::target::Site;

/// How many points are asked about at a time: a bound on the room that they take.
const PORTION: usize = 512;
/// A potential that is larger than this is this: a proposal there is never accepted, and the number
/// crosses every wire.
const MOST: f64 = 1e30;

/// Values of a site's potential at points that somebody names, less the value at the origin.
#[derive(Clone, Debug)]
pub struct Potentials {
    dim: usize,
    /// The points that are asked about now; before the first of all stands the origin.
    points: Vec<f64>,
    answers: Vec<f64>,
    origin: Option<f64>,
    /// The values so far, and how many there will be.
    values: Vec<f64>,
    total: usize,
}

impl Potentials {
    /// For points of so many coordinates.
    pub fn new(dim: usize) -> Self {
        Potentials {
            dim,
            points: Vec::new(),
            answers: Vec::new(),
            origin: None,
            values: Vec::new(),
            total: 0,
        }
    }

    /// Ask about so many points; `name` writes the point of a number.
    pub fn begin(&mut self, total: usize, name: impl FnMut(usize, &mut [f64])) {
        (self.total, self.origin) = (total, None);
        self.values.clear();
        self.portion(name);
    }

    fn portion(&mut self, mut name: impl FnMut(usize, &mut [f64])) {
        let done = self.values.len();
        let count = (self.total - done).min(PORTION);
        let first = usize::from(self.origin.is_none());
        self.points.clear();
        self.points.resize((first + count) * self.dim, 0.0);
        for (k, point) in self.points[first * self.dim..].chunks_exact_mut(self.dim).enumerate() {
            name(done + k, point);
        }
        self.answers.clear();
        self.answers.resize(first + count, 0.0);
    }

    /// What is asked next; `None` when all values are known.
    pub fn question<'a>(&'a mut self, site: &'a mut Site) -> Option<(&'a mut Site, Question<'a>)> {
        if self.values.len() == self.total {
            return None;
        }
        let sum = Sum::Value { x: &self.points };
        Some((site, Question { sum, extent: Extent::All, scale: 1.0, out: &mut self.answers }))
    }

    /// Go on with the answer; `name` is that of [`Potentials::begin`].
    pub fn proceed(&mut self, name: impl FnMut(usize, &mut [f64])) {
        let first = usize::from(self.origin.is_none());
        let origin = *self.origin.get_or_insert(self.answers[0]);
        // What is not a number stays that, and is refused by name.
        let less = |value: &f64| if *value - origin > MOST { MOST } else { *value - origin };
        self.values.extend(self.answers[first..].iter().map(less));
        if self.values.len() < self.total {
            self.portion(name);
        }
    }

    /// The values, once all are known.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The same, to be rounded to what the wire carries.
    pub(crate) fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }
}
