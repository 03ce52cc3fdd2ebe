//! Arguments of the kernels in `kernels/net.cu`, field by field.

/// What has no padding and no meaning beyond its bits.
///
/// # Safety
///
/// Every bit pattern is a value, and there is no padding.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {
        $(
            // SAFETY: numbers, or a `repr(C)` list of such whose sizes leave no gap.
            unsafe impl Plain for $type {}
        )*
    };
}
plain!(u8, u32, u64, f32, f64, Pass, Conv, Dense, Image, Norm, Loss, Party, Moment, Step, Narrow);

/// As bytes.
pub(crate) fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` has no padding, so all of these bytes are initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The same, to be written.
pub(crate) fn bytes_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: `Plain` has no padding, and takes any bytes.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// No tensor of the arena, but the table of rows; no bias; no relu.
pub(crate) const TABLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Pass {
    pub(crate) table: u64,
    pub(crate) rows: u64,
    pub(crate) counts: u64,
    pub(crate) slots: u64,
    pub(crate) weights: u64,
    pub(crate) arena: u64,
    pub(crate) sums: u64,
    pub(crate) turn: u64,
    pub(crate) dim: u32,
    pub(crate) stride: u32,
    pub(crate) width: u32,
    pub(crate) pitch: u32,
    pub(crate) first: u32,
    pub(crate) each: u32,
    pub(crate) points: u32,
    pub(crate) samples: u32,
    pub(crate) resume: u32,
    pub(crate) every: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Conv {
    pub(crate) pass: Pass,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) weight: u32,
    pub(crate) bias: u32,
    pub(crate) inputs: u32,
    pub(crate) height: u32,
    pub(crate) width: u32,
    pub(crate) outputs: u32,
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) kernel: u32,
    pub(crate) stride: u32,
    pub(crate) pad: u32,
    pub(crate) relu: u32,
    pub(crate) of: u32,
    pub(crate) tile: u32,
    pub(crate) winners: u32,
    pub(crate) room: u32,
    pub(crate) abreast: u32,
    pub(crate) chunk: u32,
    pub(crate) group: u32,
    pub(crate) band: u32,
    pub(crate) slab: u32,
    pub(crate) pitch: u32,
    pub(crate) wide: u32,
    pub(crate) turned: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Dense {
    pub(crate) pass: Pass,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) weight: u32,
    pub(crate) bias: u32,
    pub(crate) inputs: u32,
    pub(crate) outputs: u32,
    pub(crate) relu: u32,
    pub(crate) of: u32,
    pub(crate) rows: u32,
    pub(crate) chunk: u32,
    pub(crate) slab: u32,
    pub(crate) pitch: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Image {
    pub(crate) pass: Pass,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) winners: u32,
    pub(crate) channels: u32,
    pub(crate) height: u32,
    pub(crate) width: u32,
    pub(crate) down: u32,
    pub(crate) across: u32,
    pub(crate) outputs: u32,
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) kind: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Norm {
    pub(crate) pass: Pass,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) dx: u32,
    pub(crate) rates: u32,
    pub(crate) room: u32,
    pub(crate) weight: u32,
    pub(crate) bias: u32,
    pub(crate) channels: u32,
    pub(crate) area: u32,
    pub(crate) groups: u32,
    pub(crate) chunk: u32,
    pub(crate) pitch: u32,
    pub(crate) swish: u32,
    pub(crate) of: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Loss {
    pub(crate) pass: Pass,
    pub(crate) labels: u64,
    pub(crate) numbers: u64,
    pub(crate) precision: f64,
    pub(crate) y: u32,
    pub(crate) dy: u32,
    pub(crate) outputs: u32,
    pub(crate) unused: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Party {
    pub(crate) scale: f64,
    pub(crate) prior: f64,
    pub(crate) weight: f64,
    pub(crate) shared: f64,
    pub(crate) own: f64,
    pub(crate) key: [u32; 8],
    pub(crate) client: u32,
    pub(crate) slot: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Moment {
    pub(crate) tag: u64,
    pub(crate) step: f64,
    pub(crate) sigma: f64,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Step {
    pub(crate) x: u64,
    pub(crate) z: u64,
    pub(crate) base: u64,
    pub(crate) precision: u64,
    pub(crate) parties: u64,
    pub(crate) sums: u64,
    pub(crate) weights: u64,
    pub(crate) noise: u64,
    pub(crate) moments: u64,
    pub(crate) turn: u64,
    pub(crate) laplace: f64,
    pub(crate) key: [u32; 8],
    pub(crate) dim: u32,
    pub(crate) wide: u32,
    pub(crate) seats: u32,
    pub(crate) blocks: u32,
    pub(crate) apart: u32,
    pub(crate) unused: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Narrow {
    pub(crate) x: u64,
    pub(crate) slots: u64,
    pub(crate) weights: u64,
    pub(crate) dim: u32,
    pub(crate) wide: u32,
    pub(crate) same: u32,
    pub(crate) unused: u32,
}
