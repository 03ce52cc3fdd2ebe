//! Give kernels vectors of eight numbers, by whatever instructions this machine has.

use std::marker::PhantomData;

use pulp::NullaryFnOnce;
use pulp::bytemuck::{Pod, cast};

use super::GROUP;
use crate::model::real::Real;

/// Vectors of eight numbers: one number of a layer for each row of a group.
pub(in super::super) trait Lanes: Copy {
    /// One of the numbers.
    type T: Number;
    /// Eight of them.
    type V: Pod + std::fmt::Debug;
    /// How many vectors the machine keeps in registers.
    const REGISTERS: usize;
    /// Whether these are so many. Branches on them are known before code is generated, so that no
    /// kernel is made for registers that are not there.
    const HAS_32: bool = Self::REGISTERS >= 32;
    /// The same.
    const HAS_16: bool = Self::REGISTERS >= 16;
    /// The same.
    const HAS_8: bool = Self::REGISTERS >= 8;

    /// The same number eight times.
    fn splat(self, value: Self::T) -> Self::V;

    /// `a b + c`, rounded once.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// Run a kernel, compiled for this machine's registers.
    fn run<K: NullaryFnOnce>(self, kernel: K) -> K::Output;

    /// Eight zeros.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(Self::T::default())
    }

    /// The numbers of a vector.
    #[inline(always)]
    fn array(self, vector: Self::V) -> [Self::T; GROUP] {
        cast(vector)
    }

    /// A vector of numbers.
    #[inline(always)]
    fn vector(self, array: [Self::T; GROUP]) -> Self::V {
        cast(array)
    }

    /// A function of every number.
    #[inline(always)]
    fn map(self, a: Self::V, f: impl Fn(Self::T) -> Self::T) -> Self::V {
        let mut out = self.array(a);
        for lane in 0..GROUP {
            out[lane] = f(out[lane]);
        }
        self.vector(out)
    }

    /// A function of every pair of numbers.
    #[inline(always)]
    fn zip(self, a: Self::V, b: Self::V, f: impl Fn(Self::T, Self::T) -> Self::T) -> Self::V {
        let (mut out, b) = (self.array(a), self.array(b));
        for lane in 0..GROUP {
            out[lane] = f(out[lane], b[lane]);
        }
        self.vector(out)
    }

    /// The sum of the eight, in the order of all kernels.
    #[inline(always)]
    fn tree(self, vector: Self::V) -> Self::T {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = self.array(vector);
        ((r0 + r4) + (r2 + r6)) + ((r1 + r5) + (r3 + r7))
    }
}

/// Work that is done with some vectors.
pub(in super::super) trait Job<T> {
    /// What comes out.
    type Output;
    /// Do it.
    fn run<L: Lanes<T = T>>(self, lanes: L) -> Self::Output;
}

/// A number that a net computes with.
pub(in super::super) trait Number: Real + Send + Sync {
    /// Do a job with the best vectors that this machine has for these numbers.
    fn dispatch<J: Job<Self>>(job: J) -> J::Output;
}

impl Number for f32 {
    #[inline]
    fn dispatch<J: Job<f32>>(job: J) -> J::Output {
        #[cfg(all(target_arch = "x86_64", not(feature = "narrow")))]
        {
            if let Some(token) = pulp::x86::V4::try_new() {
                return job.run(x86::Long(token));
            }
            if let Some(token) = pulp::x86::V3::try_new() {
                return job.run(x86::Short(token));
            }
        }
        job.run(Arrays::new())
    }
}

impl Number for f64 {
    #[inline]
    fn dispatch<J: Job<f64>>(job: J) -> J::Output {
        #[cfg(all(target_arch = "x86_64", not(feature = "narrow")))]
        if let Some(token) = pulp::x86::V3::try_new() {
            return job.run(x86::Double(token));
        }
        job.run(Arrays::new())
    }
}

/// Vectors on any machine.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Arrays<T>(PhantomData<T>);

impl<T> Arrays<T> {
    pub(in super::super) fn new() -> Self {
        Arrays(PhantomData)
    }
}

impl<T: Number> Lanes for Arrays<T> {
    type T = T;
    type V = [T; GROUP];
    // the compiler decides: small kernels
    const REGISTERS: usize = 1;

    #[inline(always)]
    fn splat(self, value: T) -> [T; GROUP] {
        [value; GROUP]
    }

    #[inline(always)]
    fn mul_add(self, a: [T; GROUP], b: [T; GROUP], c: [T; GROUP]) -> [T; GROUP] {
        let mut out = c;
        for lane in 0..GROUP {
            out[lane] = a[lane].fused(b[lane], c[lane]);
        }
        out
    }

    #[inline(always)]
    fn run<K: NullaryFnOnce>(self, kernel: K) -> K::Output {
        kernel.call()
    }
}

/// Sixteen registers of 256 bits, on machines that have more.
#[cfg(all(test, target_arch = "x86_64", not(feature = "narrow")))]
pub(in super::super) fn short(token: pulp::x86::V3) -> impl Lanes<T = f32> {
    x86::Short(token)
}

#[cfg(all(target_arch = "x86_64", not(feature = "narrow")))]
mod x86 {
    use pulp::x86::{V3, V4};
    use pulp::{NullaryFnOnce, f32x8, f64x4};

    use super::Lanes;

    /// Sixteen registers of 256 bits.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super::super) struct Short(pub(super) V3);

    /// Thirty-two registers. Vectors have 256 bits here, too: those of 512 are two of a kind and
    /// no faster on most machines.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super::super) struct Long(pub(super) V4);

    /// Doubles, for checks.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super::super) struct Double(pub(super) V3);

    impl Lanes for Short {
        type T = f32;
        type V = f32x8;
        const REGISTERS: usize = 16;

        #[inline(always)]
        fn splat(self, value: f32) -> f32x8 {
            self.0.splat_f32x8(value)
        }

        #[inline(always)]
        fn mul_add(self, a: f32x8, b: f32x8, c: f32x8) -> f32x8 {
            self.0.mul_add_f32x8(a, b, c)
        }

        #[inline(always)]
        fn run<K: NullaryFnOnce>(self, kernel: K) -> K::Output {
            self.0.vectorize(kernel)
        }
    }

    impl Lanes for Long {
        type T = f32;
        type V = f32x8;
        const REGISTERS: usize = 32;

        #[inline(always)]
        fn splat(self, value: f32) -> f32x8 {
            self.0.splat_f32x8(value)
        }

        #[inline(always)]
        fn mul_add(self, a: f32x8, b: f32x8, c: f32x8) -> f32x8 {
            self.0.mul_add_f32x8(a, b, c)
        }

        #[inline(always)]
        fn run<K: NullaryFnOnce>(self, kernel: K) -> K::Output {
            self.0.vectorize(kernel)
        }
    }

    impl Lanes for Double {
        type T = f64;
        type V = [f64x4; 2];
        const REGISTERS: usize = 8;

        #[inline(always)]
        fn splat(self, value: f64) -> [f64x4; 2] {
            [self.0.splat_f64x4(value); 2]
        }

        #[inline(always)]
        fn mul_add(self, a: [f64x4; 2], b: [f64x4; 2], c: [f64x4; 2]) -> [f64x4; 2] {
            let half = |k: usize| self.0.mul_add_f64x4(a[k], b[k], c[k]);
            [half(0), half(1)]
        }

        #[inline(always)]
        fn run<K: NullaryFnOnce>(self, kernel: K) -> K::Output {
            self.0.vectorize(kernel)
        }
    }
}
