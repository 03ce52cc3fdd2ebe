//! Run on an NVIDIA GPU what takes the time of large models, with the same bits as on the CPU.
//!
//! Kernels are CUDA C, compiled once to PTX that is kept in `kernels/` (`compile.py` there makes
//! it); the driver is looked for when the program runs and compiles PTX for the GPU that it finds.
//! Neither a toolkit nor a GPU is needed to build this crate, or to run it and be told that there
//! is no GPU. No kernel has warp intrinsics or float atomics, or keeps anything in registers across
//! a barrier, so that a C++ compiler can run it thread after thread: `tests/emulated.rs` does.
//!
//! [`Device::langevin`] is the Langevin step of several parties with its noise. [`Nets`] are the
//! nets of all clients of a process: whole walks of theirs stay on the GPU. Random numbers are
//! those of [`consilience_core::rng`], by their addresses.

mod args;
mod board;
#[cfg(test)]
mod emulated;
mod nets;
mod shapes;

pub use nets::Nets;

use std::sync::Arc;

use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::step::noise_scale;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;
use thiserror::Error;

const LANGEVIN: &str = include_str!("../kernels/langevin.ptx");

/// Threads of a block, each of which makes sixteen normals.
const THREADS: u32 = 128;
/// The least that the driver must offer: that of version 550.
const LEAST_DRIVER: i32 = 12_040;
/// The least compute capability, that of A100.
const LEAST_CAPABILITY: (i32, i32) = (8, 0);

/// Why there is no GPU to be used, or why it failed.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The driver's library is not here.
    #[error("no NVIDIA driver was found on this machine (libcuda)")]
    NoDriver,
    /// The driver cannot read this PTX.
    #[error(
        "the NVIDIA driver offers CUDA {}.{}, and 12.4 or later is needed: install driver 550 or \
         later", found / 1000, found % 1000 / 10
    )]
    OldDriver {
        /// What it offers, as it numbers it.
        found: i32,
    },
    /// The GPU is too old.
    #[error(
        "{name} has compute capability {}.{}, and 8.0 or later is needed (A100, H100, RTX 30 and \
         later)", found.0, found.1
    )]
    OldDevice {
        /// The GPU.
        name: String,
        /// Its compute capability.
        found: (i32, i32),
    },
    /// A vector has another length than the others say.
    #[error("{what} has {found} numbers, and {expected} are needed")]
    Length {
        /// Which.
        what: &'static str,
        /// How many it has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// The models are no nets that a GPU can take the steps of.
    #[error("{why}")]
    NoNets {
        /// Why not.
        why: String,
    },
    /// A net has a step that no kernel takes.
    #[error("there is no kernel for {what}: use device = \"cpu\"")]
    Plan {
        /// Which.
        what: &'static str,
    },
    /// The driver says no.
    #[error("the NVIDIA driver failed: {0}")]
    Driver(#[from] DriverError),
}

/// A GPU, with the kernels loaded.
#[derive(Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    langevin: CudaFunction,
}

/// Numbers on the GPU.
#[derive(Debug)]
pub struct Numbers(CudaSlice<f64>);

/// Whose noise it is, for several parties: their keys and numbers, on the GPU.
#[derive(Debug)]
pub struct Parties {
    keys: CudaSlice<u32>,
    clients: CudaSlice<u32>,
    count: usize,
}

impl Device {
    /// The GPU of this number, counted from 0.
    pub fn open(number: usize) -> Result<Self, DeviceError> {
        // SAFETY: it looks for the driver's library, as everything after it does.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver);
        }
        let context = CudaContext::new(number)?;
        let mut found = 0;
        // SAFETY: the driver writes one number to the place that is given.
        unsafe { sys::cuDriverGetVersion(&mut found) }.result()?;
        if found < LEAST_DRIVER {
            return Err(DeviceError::OldDriver { found });
        }
        let found = context.compute_capability()?;
        if found < LEAST_CAPABILITY {
            return Err(DeviceError::OldDevice { name: context.name()?, found });
        }
        let langevin = context.load_module(Ptx::from_src(LANGEVIN))?.load_function("langevin")?;
        Ok(Device { stream: context.default_stream(), context, langevin })
    }

    /// What the GPU is called.
    pub fn name(&self) -> Result<String, DeviceError> {
        Ok(self.context.name()?)
    }

    /// Take numbers to the GPU.
    pub fn numbers(&self, numbers: &[f64]) -> Result<Numbers, DeviceError> {
        Ok(Numbers(self.stream.clone_htod(numbers)?))
    }

    /// Bring numbers back.
    pub fn read(&self, numbers: &Numbers) -> Result<Vec<f64>, DeviceError> {
        Ok(self.stream.clone_dtoh(&numbers.0)?)
    }

    /// Parties with a seed each (in simulation the same for all).
    pub fn parties(&self, parties: &[(Seed, ClientId)]) -> Result<Parties, DeviceError> {
        let keys: Vec<u32> = parties.iter().flat_map(|(seed, _)| seed.key()).collect();
        let clients: Vec<u32> = parties.iter().map(|(_, client)| client.0).collect();
        Ok(Parties {
            keys: self.stream.clone_htod(&keys)?,
            clients: self.stream.clone_htod(&clients)?,
            count: parties.len(),
        })
    }

    /// One step of every party, `x - step * drift + sqrt(2 step temperature) * noise`, with the
    /// noise of an iteration of as many numbers, more than 64, as each has: the same bits as
    /// [`consilience_core::step::langevin`] with [`consilience_core::rng::Noise`].
    pub fn langevin(
        &self,
        x: &mut Numbers,
        drift: &Numbers,
        parties: &Parties,
        iteration: u64,
        step: f64,
        temperature: f64,
    ) -> Result<(), DeviceError> {
        let (all, expected) = (x.0.len(), drift.0.len());
        let dim = all.checked_div(parties.count).unwrap_or(0);
        if all != expected {
            return Err(DeviceError::Length { what: "the position", found: all, expected });
        }
        if dim * parties.count != all || dim <= SHORTEST {
            let expected = parties.count * dim.max(SHORTEST + 1);
            return Err(DeviceError::Length { what: "the position", found: all, expected });
        }
        let tag = iteration | ((Purpose::Noise as u64) << 56);
        let (dim, sigma) = (dim as u64, noise_scale(step, temperature));
        let blocks = dim.div_ceil(64) * 4;
        let config = LaunchConfig {
            grid_dim: (blocks.div_ceil(u64::from(THREADS)) as u32, parties.count as u32, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.stream.launch_builder(&self.langevin);
        launch.arg(&mut x.0).arg(&drift.0).arg(&dim).arg(&parties.keys).arg(&parties.clients);
        launch.arg(&tag).arg(&step).arg(&sigma);
        // SAFETY: the arguments are those of the kernel, in order; `x` and `drift` have `dim`
        // numbers for each of `count` parties, and `keys` and `clients` are theirs; a thread
        // touches no number beyond `dim` of its party.
        unsafe { launch.launch(config) }?;
        Ok(())
    }

    /// Wait until everything is done.
    pub fn wait(&self) -> Result<(), DeviceError> {
        Ok(self.stream.synchronize()?)
    }
}

/// Vectors up to this long share what one address gives, and are none of a GPU's business.
const SHORTEST: usize = 64;
