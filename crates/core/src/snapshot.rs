//! Save what the next step needs, and restore it: one visit of the fields for both directions.
//!
//! A type names its fields once, in [`State::state`]; saving writes them and restoring reads them
//! back, little-endian, each in one encoding. What is fixed by the recipe and the target (axes,
//! data, keys) is no state: whoever restores makes the party anew from these, then restores.
//! Scratch is no state either. A snapshot has no checksum: whoever stores it adds one.

use thiserror::Error;

/// The layout's number: a reader refuses one that it does not know.
const VERSION: u32 = 1;

/// Something whose state can be saved and restored.
pub trait State {
    /// Show every field that the next step needs, in a fixed order. Which ones these are may depend
    /// on what was visited before and on what a recipe fixes, on nothing else.
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError>;
}

impl<T: State + ?Sized> State for Box<T> {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        (**self).state(visit)
    }
}

impl<T: State + ?Sized> State for &mut T {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        (**self).state(visit)
    }
}

/// Why a snapshot does not fit. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// The snapshot ends too early.
    #[error("the snapshot is cut short: {what} needs {needed} more bytes at byte {at}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where the end came.
        at: usize,
        /// How many bytes were still expected.
        needed: usize,
    },
    /// Bytes follow the snapshot.
    #[error("{surplus} bytes follow the end of the snapshot")]
    Overlong {
        /// How many.
        surplus: usize,
    },
    /// It was made by another version of the program.
    #[error("the snapshot has layout {found}; this program knows layout {VERSION}")]
    Version {
        /// Its layout.
        found: u32,
    },
    /// It is a snapshot of something else.
    #[error(
        "the snapshot is not one of {expected}: it was made by another sampler or another party"
    )]
    Subject {
        /// What should have been in it.
        expected: &'static str,
    },
    /// A part has another length.
    #[error(
        "{what} has {found} entries in the snapshot, where {expected} are expected: it belongs to \
         another target or recipe"
    )]
    Length {
        /// Which part.
        what: &'static str,
        /// Its length in the snapshot.
        found: u64,
        /// Its length here.
        expected: u64,
    },
    /// A value that cannot be.
    #[error("{what} is {found} in the snapshot, which cannot be: the snapshot is damaged")]
    Value {
        /// Which value.
        what: &'static str,
        /// What was found.
        found: u64,
    },
}

/// The snapshot of a party.
pub fn save<T: State + ?Sized>(party: &mut T) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    let saved = party.state(&mut Visit::Save(&mut bytes));
    debug_assert_eq!(saved, Ok(()), "a state that is there can be saved");
    bytes
}

/// Go back to what a snapshot says. Where it does not fit, nothing changes.
pub fn restore<T: State + ?Sized>(party: &mut T, bytes: &[u8]) -> Result<(), SnapshotError> {
    let before = save(party);
    read(party, bytes).inspect_err(|_| {
        let back = read(party, &before);
        debug_assert_eq!(back, Ok(()), "what was saved can be restored");
    })
}

fn read<T: State + ?Sized>(party: &mut T, bytes: &[u8]) -> Result<(), SnapshotError> {
    let mut visit = Visit::Restore { bytes, at: 0 };
    let found = u32::from_le_bytes(visit.take("the layout")?);
    if found != VERSION {
        return Err(SnapshotError::Version { found });
    }
    party.state(&mut visit)?;
    match visit {
        Visit::Restore { bytes, at } if at < bytes.len() => {
            Err(SnapshotError::Overlong { surplus: bytes.len() - at })
        }
        _ => Ok(()),
    }
}

/// A visitor of fields: it writes them down, or fills them in.
#[derive(Debug)]
pub enum Visit<'a> {
    /// Append every field.
    Save(&'a mut Vec<u8>),
    /// Fill in every field.
    Restore {
        /// The snapshot.
        bytes: &'a [u8],
        /// How far it is read.
        at: usize,
    },
}

impl<'a> Visit<'a> {
    /// Whether fields are filled in: what follows from them must then be made anew.
    pub fn restores(&self) -> bool {
        matches!(self, Visit::Restore { .. })
    }

    /// Whose state follows: a snapshot of anything else is refused.
    pub fn subject(&mut self, name: &'static str) -> Result<(), SnapshotError> {
        if let Visit::Save(out) = self {
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
            return Ok(());
        }
        let wrong = SnapshotError::Subject { expected: name };
        let [length] = self.take("the name of the party")?;
        if usize::from(length) != name.len() || self.slice(name, name.len())? != name.as_bytes() {
            return Err(wrong);
        }
        Ok(())
    }

    /// A number.
    pub fn number(&mut self, what: &'static str, value: &mut u64) -> Result<(), SnapshotError> {
        match self {
            Visit::Save(out) => out.extend_from_slice(&value.to_le_bytes()),
            Visit::Restore { .. } => *value = u64::from_le_bytes(self.take(what)?),
        }
        Ok(())
    }

    /// A number of at most `most`.
    pub fn below(
        &mut self,
        what: &'static str,
        value: &mut usize,
        most: usize,
    ) -> Result<(), SnapshotError> {
        let mut number = *value as u64;
        self.number(what, &mut number)?;
        if number > most as u64 {
            return Err(SnapshotError::Value { what, found: number });
        }
        *value = number as usize;
        Ok(())
    }

    /// A yes or no.
    pub fn flag(&mut self, what: &'static str, value: &mut bool) -> Result<(), SnapshotError> {
        match self {
            Visit::Save(out) => out.push(u8::from(*value)),
            Visit::Restore { .. } => {
                let [byte] = self.take(what)?;
                if byte > 1 {
                    return Err(SnapshotError::Value { what, found: u64::from(byte) });
                }
                *value = byte == 1;
            }
        }
        Ok(())
    }

    /// A float, bit for bit.
    pub fn float(&mut self, what: &'static str, value: &mut f64) -> Result<(), SnapshotError> {
        let mut bits = value.to_bits();
        self.number(what, &mut bits)?;
        *value = f64::from_bits(bits);
        Ok(())
    }

    /// A number that may be missing.
    pub fn option(
        &mut self,
        what: &'static str,
        value: &mut Option<u64>,
    ) -> Result<(), SnapshotError> {
        let mut there = value.is_some();
        self.flag(what, &mut there)?;
        let mut number = value.unwrap_or(0);
        if there {
            self.number(what, &mut number)?;
        }
        *value = there.then_some(number);
        Ok(())
    }

    /// A vector whose length is known.
    pub fn vector(&mut self, what: &'static str, values: &mut [f64]) -> Result<(), SnapshotError> {
        self.length(what, values.len())?;
        match self {
            Visit::Save(out) => {
                out.reserve(values.len() * 8);
                values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
            }
            Visit::Restore { .. } => {
                let bytes = self.slice(what, values.len() * 8)?;
                values
                    .iter_mut()
                    .zip(bytes.as_chunks::<8>().0)
                    .for_each(|(v, b)| *v = f64::from_le_bytes(*b));
            }
        }
        Ok(())
    }

    /// Numbers whose count is known.
    pub fn numbers(&mut self, what: &'static str, values: &mut [u64]) -> Result<(), SnapshotError> {
        self.length(what, values.len())?;
        values.iter_mut().try_for_each(|value| self.number(what, value))
    }

    /// A vector that may be missing, of a known length where it is there.
    pub fn optional_vector(
        &mut self,
        what: &'static str,
        values: &mut Option<Vec<f64>>,
        length: usize,
    ) -> Result<(), SnapshotError> {
        let mut there = values.is_some();
        self.flag(what, &mut there)?;
        if !there {
            *values = None;
            return Ok(());
        }
        let mut own = values.take().unwrap_or_else(|| vec![0.0; length]);
        let visited = self.vector(what, &mut own);
        *values = Some(own);
        visited
    }

    /// Vectors that become more, up to `most`, each of a known length.
    pub fn growing(
        &mut self,
        what: &'static str,
        list: &mut Vec<Vec<f64>>,
        length: usize,
        most: usize,
    ) -> Result<(), SnapshotError> {
        let mut count = list.len();
        self.below(what, &mut count, most)?;
        list.resize_with(count, || vec![0.0; length]);
        list.iter_mut().try_for_each(|values| self.vector(what, values))
    }

    /// Bytes of any length. Restoring allocates no more than the snapshot has.
    pub fn bytes(&mut self, what: &'static str, value: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let mut length = value.len() as u64;
        self.number(what, &mut length)?;
        match self {
            Visit::Save(out) => out.extend_from_slice(value),
            Visit::Restore { .. } => {
                let bytes = self.slice(what, usize::try_from(length).unwrap_or(usize::MAX))?;
                value.clear();
                value.extend_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// A length that both sides know already.
    fn length(&mut self, what: &'static str, expected: usize) -> Result<(), SnapshotError> {
        let mut found = expected as u64;
        self.number(what, &mut found)?;
        if found == expected as u64 {
            Ok(())
        } else {
            Err(SnapshotError::Length { what, found, expected: expected as u64 })
        }
    }

    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], SnapshotError> {
        let mut out = [0; N];
        out.copy_from_slice(self.slice(what, N)?);
        Ok(out)
    }

    fn slice(&mut self, what: &'static str, n: usize) -> Result<&'a [u8], SnapshotError> {
        let Visit::Restore { bytes, at } = self else { return Ok(&[]) };
        let rest = &bytes[*at..];
        if rest.len() < n {
            return Err(SnapshotError::Truncated { what, at: bytes.len(), needed: n - rest.len() });
        }
        *at += n;
        Ok(&rest[..n])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Everything {
        number: u64,
        flag: bool,
        float: f64,
        option: Option<u64>,
        vector: Vec<f64>,
        numbers: [u64; 2],
        optional: Option<Vec<f64>>,
        growing: Vec<Vec<f64>>,
        bytes: Vec<u8>,
    }

    impl State for Everything {
        fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
            visit.subject("everything")?;
            visit.number("the number", &mut self.number)?;
            visit.flag("the flag", &mut self.flag)?;
            visit.float("the float", &mut self.float)?;
            visit.option("the option", &mut self.option)?;
            visit.vector("the vector", &mut self.vector)?;
            visit.numbers("the numbers", &mut self.numbers)?;
            visit.optional_vector("the optional vector", &mut self.optional, 2)?;
            visit.growing("the list", &mut self.growing, 1, 3)?;
            visit.bytes("the bytes", &mut self.bytes)
        }
    }

    fn full() -> Everything {
        Everything {
            number: 1 << 60,
            flag: true,
            float: -0.0,
            option: Some(7),
            vector: vec![1.5, f64::INFINITY],
            numbers: [3, 4],
            optional: Some(vec![0.1, 0.2]),
            growing: vec![vec![1.0], vec![2.0]],
            bytes: vec![9, 8, 7],
        }
    }

    fn empty() -> Everything {
        Everything {
            number: 0,
            flag: false,
            float: 1.0,
            option: None,
            vector: vec![0.0; 2],
            numbers: [0; 2],
            optional: None,
            growing: Vec::new(),
            bytes: Vec::new(),
        }
    }

    #[test]
    fn what_was_saved_comes_back() {
        for (from, mut to) in [(full(), empty()), (empty(), full())] {
            restore(&mut to, &save(&mut from.clone())).unwrap();
            assert_eq!(to, from);
            assert_eq!(save(&mut to), save(&mut from.clone()));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name_and_changes_nothing() {
        let bytes = save(&mut full());
        let refused = |bytes: &[u8]| {
            let mut to = empty();
            let error = restore(&mut to, bytes).unwrap_err();
            assert_eq!(to, empty());
            error
        };
        for cut in 0..bytes.len() {
            assert!(
                matches!(refused(&bytes[..cut]), SnapshotError::Truncated { .. }),
                "cut at {cut}"
            );
        }
        assert_eq!(refused(&[&bytes[..], &[0]].concat()), SnapshotError::Overlong { surplus: 1 });
        let with = |at: usize, byte: u8| {
            let mut other = bytes.clone();
            other[at] = byte;
            other
        };
        assert_eq!(refused(&with(0, 9)), SnapshotError::Version { found: 9 });
        assert_eq!(refused(&with(6, b'E')), SnapshotError::Subject { expected: "everything" });
        assert_eq!(refused(&with(23, 2)), SnapshotError::Value { what: "the flag", found: 2 });
        assert_eq!(
            refused(&with(41, 3)),
            SnapshotError::Length { what: "the vector", found: 3, expected: 2 }
        );
        let count = bytes.len() - 3 - 8 - 2 * 16 - 8;
        assert_eq!(refused(&with(count, 4)), SnapshotError::Value { what: "the list", found: 4 });
        let length = bytes.len() - 3 - 8;
        assert!(matches!(
            refused(&with(length + 7, 255)),
            SnapshotError::Truncated { what: "the bytes", .. }
        ));
    }
}
