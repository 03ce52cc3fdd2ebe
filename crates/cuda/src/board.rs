//! Where kernels run and numbers lie: a GPU, or something that behaves like one.

use std::fmt::Debug;
use std::sync::Arc;

use consilience_core::threads::{Piece, Threads, at_once};
use cudarc::driver::result;
use cudarc::driver::sys::{
    CUfunction_attribute_enum, CUgraphExec, CUgraphInstantiate_flags, CUstreamCaptureMode_enum,
};
use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaStream, DriverError};
use cudarc::nvrtc::Ptx;
use rayon::prelude::*;

use crate::DeviceError;
use crate::args::{Plain, bytes};

/// The kernels of `kernels/net.cu`, by name.
#[rustfmt::skip]
pub(crate) const KERNELS: [&str; 45] = [
    "conv_5_1", "conv_3_1", "conv_3_2", "conv_1_1", "conv_1_2", "conv_any",
    "conv_slopes_5_1", "conv_slopes_3_1", "conv_slopes_3_2", "conv_slopes_1_1", "conv_slopes_1_2",
    "conv_slopes_any", "conv_3_1_many", "conv_slopes_3_1_many", "conv_weights_3_1_few",
    "conv_weights_3_1", "conv_weights_3_2", "conv_weights_1_1", "conv_weights_1_2",
    "conv_weights", "conv_weights_staged",
    "conv_weights_sum", "dense_8", "dense_32", "dense_slopes", "dense_weights", "max_pool",
    "max_pool_slopes", "avg_pool", "avg_pool_slopes", "activate", "activate_slopes", "add", "skip",
    "norm_rates", "norm_forth", "norm_sums", "norm_weights", "norm_slopes", "norm_filters",
    "norm_filters_slopes", "loss", "step", "step_noise",
    "step_taken",
];
/// So many bytes of a block are shared at the most.
pub(crate) const MOST_SHARED: usize = 99 << 10;
/// Those that are launched with other arguments than all these.
pub(crate) const NARROW: &str = "narrow";

const NET: &str = include_str!("../kernels/net.ptx");

/// A machine with memory of its own that runs kernels one after the other.
pub(crate) trait Board: Send + Debug {
    /// Room for so many bytes; it is freed with the board.
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError>;

    /// Give room back.
    fn free(&mut self, address: u64) -> Result<(), DeviceError>;

    /// Bring bytes there.
    fn write(&mut self, to: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Fetch bytes, when all that was started is done.
    fn read(&mut self, from: u64, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Bring vectors of the same length there, one behind the other, by many threads.
    fn write_all(&mut self, to: u64, vectors: Vec<&[u8]>) -> Result<(), DeviceError>;

    /// Fetch them, when all that was started is done.
    fn read_all(&mut self, from: u64, vectors: Vec<&mut [u8]>) -> Result<(), DeviceError>;

    /// Whether what is started from here on goes on beside the rest: it waits for all that was
    /// started so far, and nothing waits for it before [`Board::join`].
    fn aside(&mut self, aside: bool) -> Result<(), DeviceError>;

    /// Let the rest wait for what was started aside.
    fn join(&mut self) -> Result<(), DeviceError>;

    /// Start nothing from here on, but keep it in mind.
    fn learn(&mut self) -> Result<(), DeviceError>;

    /// Start everything again, and what is kept in mind is a routine in place of the last one.
    fn learnt(&mut self) -> Result<(), DeviceError>;

    /// Start the routine.
    fn repeat(&mut self) -> Result<(), DeviceError>;

    /// Start a kernel, behind all that was started before, with these blocks of so many
    /// threads and shared bytes.
    ///
    /// # Safety
    ///
    /// The kernel of this name takes these arguments, and touches nothing but what lies at the
    /// addresses in them.
    unsafe fn launch(
        &mut self,
        kernel: &'static str,
        blocks: (u32, u32),
        threads_and_shared: (u32, u32),
        arguments: &[u8],
    ) -> Result<(), DeviceError>;
}

/// The threads of the pool that asks, or of the one that everybody has.
pub(crate) struct Pool;

impl Threads for Pool {
    fn each(&self, work: &mut [Piece<'_>]) {
        work.par_iter_mut().with_max_len(1).for_each(|piece| piece());
    }
}

/// Makes boards that see each other's memory.
pub(crate) trait Boards: Send + Sync + Debug {
    /// A new one.
    fn board(&self) -> Result<Box<dyn Board>, DeviceError>;
}

/// Room on a board that grows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) at: u64,
    bytes: usize,
}

impl Room {
    /// Make it so large, and do not keep what is there if it must grow; whether it had to.
    pub(crate) fn reserve(
        &mut self,
        board: &mut dyn Board,
        bytes: usize,
    ) -> Result<bool, DeviceError> {
        if bytes <= self.bytes && self.at != 0 {
            return Ok(false);
        }
        if self.at != 0 {
            board.free(self.at)?;
            self.at = 0;
        }
        self.at = board.allocate(bytes.max(64))?;
        self.bytes = bytes.max(64);
        Ok(true)
    }

    /// Put these there.
    pub(crate) fn put<T: Plain>(
        &mut self,
        board: &mut dyn Board,
        values: &[T],
    ) -> Result<u64, DeviceError> {
        self.reserve(board, size_of_val(values))?;
        board.write(self.at, bytes(values))?;
        Ok(self.at)
    }
}

/// Streams of one GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    context: Arc<CudaContext>,
    kernels: Arc<Vec<(&'static str, CudaFunction)>>,
}

impl Gpu {
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Self, DeviceError> {
        let module = context.load_module(Ptx::from_src(NET))?;
        let kernels = KERNELS
            .into_iter()
            .chain([NARROW])
            .map(|name| {
                let function = module.load_function(name)?;
                let most =
                    CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                if !["conv_weights", "step", "step_noise"].contains(&name) {
                    function.set_attribute(most, MOST_SHARED as i32)?;
                }
                Ok((name, function))
            })
            .collect::<Result<_, DeviceError>>()?;
        Ok(Gpu { context: Arc::clone(context), kernels: Arc::new(kernels) })
    }
}

impl Boards for Gpu {
    fn board(&self) -> Result<Box<dyn Board>, DeviceError> {
        Ok(Box::new(Stream {
            stream: self.context.new_stream()?,
            beside: self.context.new_stream()?,
            event: self.context.new_event(None)?,
            aside: false,
            routine: Routine(std::ptr::null_mut()),
            context: Arc::clone(&self.context),
            kernels: Arc::clone(&self.kernels),
            taken: Vec::new(),
            staging: Pinned { at: std::ptr::null_mut(), bytes: 0 },
            arrived: Vec::new(),
        }))
    }
}

#[derive(Debug)]
struct Stream {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// A second one, an event to wait for, and which of the two is meant.
    beside: Arc<CudaStream>,
    event: CudaEvent,
    aside: bool,
    routine: Routine,
    kernels: Arc<Vec<(&'static str, CudaFunction)>>,
    taken: Vec<u64>,
    staging: Pinned,
    /// One for each vector that is fetched.
    arrived: Vec<CudaEvent>,
}

/// Kernels that are started as one.
#[derive(Debug)]
struct Routine(CUgraphExec);

// SAFETY: nobody else has it.
unsafe impl Send for Routine {}

impl Routine {
    fn free(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it was made by the driver, and is done: streams have been waited for.
            let _ = unsafe { result::graph::exec_destroy(self.0) };
            self.0 = std::ptr::null_mut();
        }
    }
}

/// Memory of this machine that the GPU reads and writes by itself.
#[derive(Debug)]
struct Pinned {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: nobody else has the address.
unsafe impl Send for Pinned {}

impl Pinned {
    fn reserve(&mut self, bytes: usize) -> Result<(), DeviceError> {
        if bytes > self.bytes {
            self.free();
            // SAFETY: it is freed once, and written before it is read.
            let at: *mut u8 = unsafe { result::malloc_host(bytes, 0) }?.cast();
            // SAFETY: there are so many bytes, which nobody has written.
            unsafe { at.write_bytes(0, bytes) };
            *self = Pinned { at, bytes };
        }
        Ok(())
    }

    fn free(&mut self) {
        if !self.at.is_null() {
            // SAFETY: it was allocated by the driver, and nothing refers to it.
            let _ = unsafe { result::free_host(self.at.cast()) };
            *self = Pinned { at: std::ptr::null_mut(), bytes: 0 };
        }
    }

    fn first(&mut self, bytes: usize) -> &mut [u8] {
        if self.at.is_null() {
            return &mut [];
        }
        // SAFETY: there are so many, all initialised, and nobody else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.at, bytes.min(self.bytes)) }
    }
}

impl Board for Stream {
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        self.context.bind_to_thread()?;
        // SAFETY: what is allocated is freed once, and nothing reads it before it is written.
        let address = unsafe { result::malloc_sync(bytes) }?;
        self.taken.push(address);
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        self.stream.synchronize()?;
        self.taken.retain(|taken| *taken != address);
        // SAFETY: it was allocated here, and everything that used it is done.
        Ok(unsafe { result::free_sync(address) }?)
    }

    fn write(&mut self, to: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        // SAFETY: there is room for these bytes. The driver has copied memory that is not pinned,
        // as this is, when it returns.
        Ok(unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }?)
    }

    fn read(&mut self, from: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        // SAFETY: there are as many bytes there, and they are here when the stream is done.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.stream.cu_stream()) }?;
        Ok(self.stream.synchronize()?)
    }

    fn write_all(&mut self, to: u64, vectors: Vec<&[u8]>) -> Result<(), DeviceError> {
        let (length, stream) = (vectors.first().map_or(0, |v| v.len()), &self.stream);
        self.context.bind_to_thread()?;
        stream.synchronize()?;
        self.staging.reserve(length * vectors.len())?;
        let staging = self.staging.first(length * vectors.len()).chunks_mut(length.max(1));
        let parts = vectors.iter().zip(staging).collect();
        at_once(&Pool, parts, |(vector, staged)| staged.copy_from_slice(vector));
        let staged = self.staging.first(length * vectors.len());
        // SAFETY: there is room for these bytes, and they stay as they are until the stream is
        // done, for which all wait who write there.
        Ok(unsafe { result::memcpy_htod_async(to, staged, stream.cu_stream()) }?)
    }

    fn read_all(&mut self, from: u64, vectors: Vec<&mut [u8]>) -> Result<(), DeviceError> {
        let length = vectors.first().map_or(0, |v| v.len());
        self.context.bind_to_thread()?;
        if length * vectors.len() > self.staging.bytes {
            self.stream.synchronize()?; // something may be on its way from there
        }
        self.staging.reserve(length * vectors.len())?;
        while self.arrived.len() < vectors.len() {
            self.arrived.push(self.context.new_event(None)?);
        }
        let staging = self.staging.first(length * vectors.len()).chunks_mut(length.max(1));
        let mut parts = Vec::with_capacity(vectors.len());
        for ((k, vector), (staged, event)) in (0u64..).zip(vectors).zip(staging.zip(&self.arrived))
        {
            let at = from + k * length as u64;
            // SAFETY: there are as many bytes there, which are here when the event has come.
            unsafe { result::memcpy_dtoh_async(staged, at, self.stream.cu_stream()) }?;
            event.record(&self.stream)?;
            parts.push((&*staged, vector, event));
        }
        if let Some((.., first)) = parts.first() {
            first.synchronize()?;
        }
        // those that are here are copied while others come
        let taken = at_once(&Pool, parts, |(staged, vector, event)| {
            event.synchronize()?;
            vector.copy_from_slice(staged);
            Ok::<_, DriverError>(())
        });
        taken.into_iter().collect::<Result<(), _>>()?;
        Ok(self.stream.synchronize()?)
    }

    fn aside(&mut self, aside: bool) -> Result<(), DeviceError> {
        if aside {
            self.event.record(&self.stream)?;
            self.beside.wait(&self.event)?;
        }
        self.aside = aside;
        Ok(())
    }

    fn join(&mut self) -> Result<(), DeviceError> {
        self.event.record(&self.beside)?;
        Ok(self.stream.wait(&self.event)?)
    }

    fn learn(&mut self) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        self.stream.synchronize()?;
        let mode = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours.
        Ok(unsafe { result::stream::begin_capture(self.stream.cu_stream(), mode) }?)
    }

    fn learnt(&mut self) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        // SAFETY: the stream is ours, and kept kernels in mind; the graph is freed once.
        let made = unsafe {
            let graph = result::stream::end_capture(self.stream.cu_stream())?;
            let made = result::graph::instantiate(graph, CUgraphInstantiate_flags(0));
            result::graph::destroy(graph)?;
            made?
        };
        // not before: to free something would end what is being learnt
        self.routine.free();
        self.routine = Routine(made);
        Ok(())
    }

    fn repeat(&mut self) -> Result<(), DeviceError> {
        if self.routine.0.is_null() {
            return Err(DeviceError::Plan { what: "a routine that was not learnt" });
        }
        self.context.bind_to_thread()?;
        // SAFETY: those who let it be learnt answer for what its kernels touch.
        Ok(unsafe { result::graph::launch(self.routine.0, self.stream.cu_stream()) }?)
    }

    unsafe fn launch(
        &mut self,
        kernel: &'static str,
        blocks: (u32, u32),
        (threads, shared): (u32, u32),
        arguments: &[u8],
    ) -> Result<(), DeviceError> {
        let found = self.kernels.iter().find(|(name, _)| *name == kernel);
        let Some((_, function)) = found else { return Err(DeviceError::Plan { what: kernel }) };
        self.context.bind_to_thread()?;
        let stream = if self.aside { &self.beside } else { &self.stream }.cu_stream();
        let (grid, block) = ((blocks.0, blocks.1, 1), (threads, 1, 1));
        let mut list = [arguments.as_ptr().cast_mut().cast()];
        // SAFETY: the caller's, who gives the one argument that the kernel takes: the driver copies
        // it before it returns.
        unsafe {
            result::launch_kernel(function.cu_function(), grid, block, shared, stream, &mut list)
        }?;
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread().and_then(|()| {
            self.beside.synchronize()?;
            self.stream.synchronize()
        });
        for address in std::mem::take(&mut self.taken) {
            // SAFETY: it was allocated here, and everything that used it is done.
            let _ = unsafe { result::free_sync(address) };
        }
        self.routine.free();
        self.staging.free();
    }
}
