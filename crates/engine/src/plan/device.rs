//! Let a GPU evaluate the clients' models, where that is asked for.

use std::sync::Arc;

use consilience_cuda::{Device, DeviceError, Nets};

use super::Plan;
use crate::config::{Config, ConfigError, DeviceChoice};
use crate::warnings::{Code, Warning};

impl Plan {
    /// Put the clients' models on the GPU that the config asks for.
    pub(super) fn accelerate(&mut self, config: &Config) -> Result<(), ConfigError> {
        let Some((choice, place)) = &config.run.device else { return Ok(()) };
        if *choice == DeviceChoice::Cpu {
            return Ok(());
        }
        let opened = Device::open(0).and_then(|device| Nets::new(&device, &self.target.clients));
        match (opened, choice) {
            (Ok(nets), _) => self.accelerator = Some(Arc::new(nets)),
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
