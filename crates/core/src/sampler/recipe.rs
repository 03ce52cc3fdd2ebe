//! List the families, and name a sampler of any of them with all its settings.

use std::sync::Arc;

use super::family::Family;
use super::lazy::Lazy;
use super::registry::{FamilyRow, PLAIN, Row};
use super::{Keys, Sampler};
use crate::compress::{Channel, CodeChoice, Compressor};
use crate::error::DataError;
use crate::protocol::{Device, Format};
use crate::rng::ClientId;
use crate::step::Schedule;
use crate::target::Target;

/// The registry of families: a family is a folder with a type of its name that is a [`Family`], its
/// row (`FAMILY`) and the rows of its samplers (`SAMPLERS`).
macro_rules! families {
    ($($(#[$says:meta])* $folder:ident::$name:ident),+ $(,)?) => {
        /// A sampler of any family.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Recipe {
            $($(#[$says])* $name(super::$folder::$name)),+
        }

        impl Recipe {
            /// What this sampler does as one of its family. Nothing else asks which family it is.
            pub fn family(&self) -> &dyn Family {
                match self {
                    $(Recipe::$name(recipe) => recipe),+
                }
            }
        }

        /// Every family, in the order in which they are listed.
        pub const FAMILIES: &[&FamilyRow] = &[$(&super::$folder::FAMILY),+];

        /// Every sampler, in the order in which they are listed.
        pub const REGISTRY: &[Row] = &{
            let mut all = [PLAIN; 0 $(+ super::$folder::SAMPLERS.len())+];
            let mut next = 0;
            $(
                let mut place = 0;
                while place < super::$folder::SAMPLERS.len() {
                    all[next] = super::$folder::SAMPLERS[place];
                    (next, place) = (next + 1, place + 1);
                }
            )+
            all
        };
    };
}

families! {
    /// Potentials go up, proposals are accepted or rejected.
    metropolis::Metropolis,
    /// Gradients go up, one step a round.
    uplink::Uplink,
    /// Clients walk on their own, parameters go up.
    local::Local,
    /// Noisy moments go up twice, and the server samples on its own.
    release::Release,
    /// Noisy differences of potentials go up, proposals are accepted or rejected.
    penalty::Penalty,
}

impl Recipe {
    /// Check the recipe against the target, and give the target as this sampler needs it.
    pub fn check(&self, target: Target) -> Result<Target, DataError> {
        self.family().check(target)
    }

    /// The server of a chain. The target must have passed [`Recipe::check`].
    pub fn server(
        &self,
        target: &Target,
        start: &[f64],
        keys: Keys,
    ) -> Result<Box<dyn Sampler>, DataError> {
        if start.len() != target.dim() {
            return Err(DataError::Dimension {
                what: "the starting point".into(),
                found: start.len(),
                expected: target.dim(),
            });
        }
        self.family().server(target, start, keys)
    }

    /// One client of a chain.
    pub fn client(
        &self,
        target: &Target,
        id: ClientId,
        keys: Keys,
    ) -> Result<Box<dyn Device>, DataError> {
        let mut channels = self.family().channels(target)?;
        let at = if channels.len() == 1 { 0 } else { id.index() };
        Ok(self.family().client(target, id, keys, channels.swap_remove(at)))
    }

    /// All clients of a chain, each made when it is first needed. The target must have passed
    /// [`Recipe::check`].
    pub fn clients(
        &self,
        target: &Arc<Target>,
        keys: Keys,
    ) -> Result<Vec<Box<dyn Device>>, DataError> {
        Lazy::clients(self, target, keys)
    }

    /// How vectors look on the wire.
    pub fn format(&self, target: &Target, keys: Keys) -> Result<Format, DataError> {
        self.family().format(target, keys)
    }

    /// The step of one iteration.
    pub fn step(&self) -> Schedule {
        self.family().step()
    }

    /// The same sampler with another step.
    pub fn with_step(&self, step: Schedule) -> Recipe {
        self.family().with_step(step)
    }
}

/// How many of its rows a client uses at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    /// All.
    Full,
    /// So many, or all where a client has fewer.
    Rows(usize),
    /// This fraction, rounded down, at least one.
    Fraction(f64),
    /// Every row with this probability, by itself: the sum is divided by it. Now and then none.
    Each(f64),
}

impl Batch {
    /// The batch of a client with so many rows, or what it is on average.
    pub fn of(&self, rows: usize) -> usize {
        match *self {
            Batch::Full => rows,
            Batch::Rows(n) => n.clamp(1, rows),
            // A few roundings more than was written: 0.29 times 100 is 28.999999999999996.
            Batch::Fraction(f) | Batch::Each(f) => {
                ((f * rows as f64 * (1.0 + 4.0 * f64::EPSILON)) as usize).clamp(1, rows)
            }
        }
    }
}

/// A channel, or why there is none.
pub(super) fn channel(
    compressor: &Compressor,
    code: CodeChoice,
    dim: usize,
) -> Result<Channel, DataError> {
    Channel::new(compressor.clone(), code, dim).map_err(|e| DataError::Compressor {
        compressor: compressor.to_string(),
        problem: e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In integers: a fraction that a person can write is a number of thousandths.
    #[test]
    fn a_fraction_of_the_rows_is_rounded_down_and_never_nothing() {
        for rows in 1..=400 {
            for thousandths in 1..=1000 {
                let found = Batch::Fraction(thousandths as f64 / 1000.0).of(rows);
                assert_eq!(
                    found,
                    (thousandths * rows / 1000).max(1),
                    "{thousandths}/1000 of {rows}"
                );
            }
        }
    }
}
