//! Compress arrays as clients do.

use consilience_core::compress::{Channel, CodeChoice, Compressor as Core, Message};
use consilience_core::rng::{ClientId, Purpose, Seed, Stream};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{Failure, Raised};

/// A quantiser and a code.
#[pyclass(frozen, module = "consilience._consilience")]
pub struct Compressor {
    core: Core,
    code: CodeChoice,
}

fn wrong(error: impl ToString) -> Failure {
    Failure::new(Raised::Data, error)
}

/// Whose randomness is used: the first client's.
fn stream(seed: u64, round: u64) -> Stream {
    Seed::new(seed).stream(Purpose::Compress, ClientId(0), round)
}

#[pymethods]
impl Compressor {
    #[new]
    fn new(text: &str, code: &str) -> PyResult<Self> {
        let wrong = |e: consilience_core::compress::SpecError| Failure::new(Raised::Config, e);
        Ok(Compressor { core: text.parse().map_err(wrong)?, code: code.parse().map_err(wrong)? })
    }

    /// Quantise and encode a vector: the bytes, and how many bits they hold.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        vector: PyReadonlyArray1<'py, f64>,
        seed: u64,
        round: u64,
    ) -> PyResult<(Bound<'py, PyBytes>, u64)> {
        let vector = vector.as_array().to_vec();
        let channel = Channel::new(self.core.clone(), self.code, vector.len()).map_err(wrong)?;
        let (mut message, mut bytes) = (Message::new(), Vec::new());
        channel.quantise(&vector, &mut stream(seed, round), &mut message).map_err(wrong)?;
        let bits = channel.encode(&message, &mut bytes);
        Ok((PyBytes::new(py, &bytes), bits))
    }

    /// The vector that the receiver sees.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
        dimension: usize,
        seed: u64,
        round: u64,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let channel = Channel::new(self.core.clone(), self.code, dimension).map_err(wrong)?;
        let (mut message, mut vector) = (Message::new(), vec![0.0; dimension]);
        channel.decode(bytes, &mut message).map_err(|e| Failure::new(Raised::Refused, e))?;
        message.dequantise(&mut stream(seed, round), &mut vector).map_err(wrong)?;
        Ok(PyArray1::from_vec(py, vector))
    }

    /// Omega on vectors of this length, for unbiased compressors.
    fn omega(&self, dimension: usize) -> Option<f64> {
        self.core.omega(dimension)
    }

    /// Alpha on vectors of this length, for contractive compressors.
    fn alpha(&self, dimension: usize) -> Option<f64> {
        self.core.alpha(dimension)
    }

    fn __repr__(&self) -> String {
        format!("consilience.compressor(\"{}\", code=\"{}\")", self.core.clone(), self.code)
    }
}
