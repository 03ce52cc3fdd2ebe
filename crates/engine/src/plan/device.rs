//! Let a GPU evaluate the clients' models, where that is asked for.

use std::sync::Arc;

use consilience_core::model::Model;
use consilience_cuda::{Device, Nets};

pub use consilience_cuda::DeviceError;

use super::Plan;
use crate::config::{Config, ConfigError, DeviceChoice};
use crate::warnings::{Code, Warning};

/// The nets of these clients on the first GPU, as a model that answers all of them in one call.
pub fn on_gpu(clients: &[Arc<dyn Model>]) -> Result<Arc<dyn Model>, DeviceError> {
    let device = Device::open(0)?;
    Ok(Arc::new(Nets::new(&device, clients)?))
}

impl Plan {
    /// Put the clients' models on the GPU that the config asks for.
    pub(super) fn accelerate(&mut self, config: &Config) -> Result<(), ConfigError> {
        let Some((choice, place)) = &config.run.device else { return Ok(()) };
        if *choice == DeviceChoice::Cpu {
            return Ok(());
        }
        match (on_gpu(&self.target.clients), choice) {
            (Ok(nets), _) => self.accelerator = Some(nets),
            (Err(error), DeviceChoice::Auto) => {
                let says = format!("the cores evaluate the model: {error}");
                self.warnings.push(Warning::new(Code::NoGpu, says));
            }
            (Err(error), _) => {
                let fix = match error {
                    DeviceError::NoNets { .. } => "use device = \"cpu\"",
                    _ => {
                        "correct that, or use device = \"auto\" or \"cpu\": the draws are the same"
                    }
                };
                return Err(config.source.complain(place, error.to_string(), fix));
            }
        }
        Ok(())
    }
}
