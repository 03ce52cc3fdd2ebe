//! State what an operator is, the contract of all, and list them: one row a name that users write,
//! one file an operator.

use super::message::{Message, Rest, Symbols};
use super::{CompressError, Precision, SpecError};
use crate::rng::Stream;
use std::fmt;

/// What is done to one block of a vector. Whoever needs to know something of an operator asks here:
/// nobody else asks which one it is.
pub(super) trait Quantiser {
    /// Its row of the registry.
    fn row(&self) -> &'static CompressorRow;

    /// Its arguments, as `read` of its file reads them back.
    fn arguments(&self) -> Vec<String>;

    /// Whether the arguments make sense, whatever the length; what is said of symbols is checked
    /// elsewhere.
    fn check(&self) -> Result<(), SpecError> {
        Ok(())
    }

    /// Which symbols its messages consist of.
    fn symbols(&self) -> Symbols;

    /// How levels are spread in blocks of this length, as codes expect it before they have seen
    /// any.
    fn spread(&self, _length: usize) -> Spread {
        Spread::Unknown
    }

    /// Append the symbols of a block to the message. The block starts at coordinate `first`.
    fn quantise(
        &self,
        v: &[f64],
        first: usize,
        stream: &mut Stream,
        message: &mut Message,
    ) -> Result<(), CompressError>;

    /// Take the symbols of a block off those that are left, and rebuild the block. `shared` is the
    /// sender's stream, where it [is shared](Self::shares_stream).
    fn dequantise(&self, rest: &mut Rest<'_>, shared: &mut Stream, out: &mut [f64]);

    /// The least known omega on blocks of `d` coordinates, if it is unbiased with a relative error;
    /// no smaller on longer ones.
    fn omega(&self, d: f64) -> Option<f64>;

    /// The largest known alpha on blocks of `d` coordinates, if it is contractive as it is; no
    /// larger on longer ones.
    fn alpha(&self, d: f64) -> Option<f64>;

    /// Whether random numbers are drawn.
    fn draws(&self) -> bool {
        true
    }

    /// Whether the receiver needs the stream that the sender drew from.
    fn shares_stream(&self) -> bool {
        false
    }

    /// The same with its numbers at another precision, where it sends any.
    fn at(&self, _precision: Precision) -> Option<Operator> {
        None
    }

    /// At which precision it sends the vector as it is, if that is all that it does.
    fn plain(&self) -> Option<Precision> {
        None
    }

    /// The law of what the receiver sees of a block of `d` coordinates, to second order, where it
    /// is known.
    fn moments(&self, _d: usize) -> Option<SecondMoments> {
        None
    }

    /// By which share of a block's norm two levels differ, where coordinates are rounded to one of
    /// the two levels around them with the right mean.
    fn level_width(&self) -> Option<f64> {
        None
    }

    /// How many levels there are above zero, where coordinates are rounded to shares of the norm by
    /// 16 bits each, which decide nearly always.
    fn shares_of_norm(&self) -> Option<u32> {
        None
    }

    /// The bits of a message of `d` coordinates by the formula of a paper, where there is one.
    fn published_bits(&self, _d: usize) -> Option<f64> {
        None
    }
}

/// One compressor as users know it.
#[derive(Debug)]
pub struct CompressorRow {
    /// Its name in configs.
    pub name: &'static str,
    /// How it is written.
    pub usage: &'static str,
    /// What it does to a vector, in one line.
    pub says: &'static str,
    /// Its constant on vectors of `d` coordinates.
    pub constant: &'static str,
    /// Some of its kind, with which it is tested: on vectors of 4 coordinates and more.
    pub examples: &'static [&'static str],
}

/// How levels are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Spread {
    /// Like normal numbers whose standard deviation is the largest level divided by
    /// `sqrt(square)`. If that is `exact`, other vectors' levels have it too, whatever their shape.
    Normal { square: u64, exact: bool },
    /// They are exponents of 8 bits: many are alike, and any may be the common one.
    Exponents,
    /// Nobody knows.
    Unknown,
}

/// What is known of a vector `C` that stands for `v`: `E C = mean v`; `E C_i C_j` is
/// `pairs v_i v_j`, and for `i = j` it is `squares v_i^2 + noise`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SecondMoments {
    pub(crate) mean: f64,
    pub(crate) squares: f64,
    pub(crate) pairs: f64,
    pub(crate) noise: f64,
}

/// The registry: an operator is a type in a file that also has its `ROW` and a function `read`,
/// which makes it of its arguments (nothing if they are too many or too few). The union of all is
/// an operator itself, so that no call is made through a pointer.
macro_rules! operators {
    ($($file:ident::$name:ident),+ $(,)?) => {
        /// One operator of the registry. One with a table of its own keeps it behind an `Arc`:
        /// every message has a clone of what made it.
        #[derive(Clone, Debug, PartialEq)]
        pub(super) enum Operator {
            $($name(super::$file::$name)),+
        }

        /// Every operator, in the order in which they are listed.
        pub(super) const OPERATORS: &[&CompressorRow] = &[$(&super::$file::ROW),+];

        impl Operator {
            /// The operator of this name with these arguments; nothing if there is none.
            pub(super) fn read(name: &str, arguments: &[&str]) -> Result<Option<Self>, SpecError> {
                $(if name == super::$file::ROW.name {
                    return Ok(super::$file::read(arguments)?.map(Operator::$name));
                })+
                Ok(None)
            }
        }

        $(impl From<super::$file::$name> for Operator {
            fn from(operator: super::$file::$name) -> Self {
                Operator::$name(operator)
            }
        })+

        operators! { @union [$($name),+]
            fn row(&self) -> &'static CompressorRow;
            fn arguments(&self) -> Vec<String>;
            fn check(&self) -> Result<(), SpecError>;
            fn symbols(&self) -> Symbols;
            fn spread(&self, length: usize) -> Spread;
            fn quantise(
                &self,
                v: &[f64],
                first: usize,
                stream: &mut Stream,
                message: &mut Message
            ) -> Result<(), CompressError>;
            fn dequantise(&self, rest: &mut Rest<'_>, shared: &mut Stream, out: &mut [f64]) -> ();
            fn omega(&self, d: f64) -> Option<f64>;
            fn alpha(&self, d: f64) -> Option<f64>;
            fn draws(&self) -> bool;
            fn shares_stream(&self) -> bool;
            fn at(&self, precision: Precision) -> Option<Operator>;
            fn plain(&self) -> Option<Precision>;
            fn moments(&self, d: usize) -> Option<SecondMoments>;
            fn level_width(&self) -> Option<f64>;
            fn shares_of_norm(&self) -> Option<u32>;
            fn published_bits(&self, d: usize) -> Option<f64>;
        }
    };
    (@union $names:tt $(fn $method:ident(
        &self $(, $argument:ident: $kind:ty)*
    ) -> $output:ty;)+) => {
        impl Quantiser for Operator {
            $(operators! { @method $names $method [$($argument: $kind),*] $output })+
        }
    };
    (@method [$($name:ident),+] $method:ident $arguments:tt $output:ty) => {
        operators! { @arms $method $arguments $output, $($name $arguments),+ }
    };
    (@arms $method:ident [$($argument:ident: $kind:ty),*] $output:ty,
        $($name:ident [$($passed:ident: $_:ty),*]),+) => {
        #[inline]
        fn $method(&self $(, $argument: $kind)*) -> $output {
            match self {
                $(Operator::$name(operator) => operator.$method($($passed),*)),+
            }
        }
    };
}

operators! {
    identity::Identity,
    qsgd::Qsgd,
    max_norm::MaxNorm,
    natural::Natural,
    rand_k::RandK,
    top_k::TopK,
    layered::Layered,
}

/// The text that [`Operator::read`] reads back.
impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)?;
        match self.arguments() {
            none if none.is_empty() => Ok(()),
            some => write!(f, "({})", some.join(", ")),
        }
    }
}
