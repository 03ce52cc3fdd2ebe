//! W7: quantise a vector of normals by qsgd and write it as bytes.

use clap::Args;
use consilience_core::compress::code::{Code, Integer, Layout};
use consilience_core::compress::{Channel, CodeChoice, Compressor, Message};
use consilience_core::linalg::norm_squared;
use consilience_core::rng::{Purpose, SERVER, Seed};

use crate::How;
use crate::files::normals;
use crate::report::{self, Fields};
use crate::timing::{best_of, pin_to_one_core};

/// What may be chosen.
#[derive(Debug, Args)]
pub struct Quantise {
    /// Levels of the quantiser.
    #[arg(long, default_value_t = 1024)]
    s: u32,
    /// The code: `elias` (gamma, sparse below sqrt(d) levels), or any of the library's; `zstd`
    /// stands for `entropy`, the library's own.
    #[arg(long, default_value = "elias")]
    codec: String,
    /// Coordinates.
    #[arg(long, default_value_t = 1_000_000)]
    d: usize,
    #[command(flatten)]
    how: How,
}

impl Quantise {
    pub fn run(&self) -> Result<String, String> {
        let v = normals(5000, self.d);
        let channel = Channel::new(Compressor::qsgd(self.s), self.code()?, self.d)
            .map_err(|e| e.to_string())?;
        let (mut message, mut bytes, mut bits, mut round) = (Message::new(), Vec::new(), 0, 0);
        let stream = |round| Seed::new(self.how.seed).stream(Purpose::Compress, SERVER, round);
        pin_to_one_core();
        let mut vectors = |encode: bool| -> Result<f64, String> {
            for _ in 0..self.how.iters {
                round += 1;
                channel
                    .quantise(&v, &mut stream(round), &mut message)
                    .map_err(|e| e.to_string())?;
                if encode {
                    bytes.clear();
                    bits = channel.encode(&message, &mut bytes);
                }
            }
            Ok(1.0)
        };
        let alone = best_of(self.how.repeats, || vectors(false))?;
        let timed = best_of(self.how.repeats, || vectors(true))?;

        let (mut read, mut values) = (Message::new(), vec![0.0; self.d]);
        channel.decode(&bytes, &mut read).map_err(|e| e.to_string())?;
        read.dequantise(&mut stream(round), &mut values).map_err(|e| e.to_string())?;
        let unit = f64::from(norm_squared(&v).sqrt() as f32) / f64::from(self.s);
        let (mut bias, mut squares, mut expected) = (0.0, 0.0, 0.0);
        for (v, sent) in v.iter().zip(&values) {
            let fraction = (v.abs() / unit).fract();
            bias += (sent - v) * v.signum();
            squares += (sent - v).powi(2);
            expected += fraction * (1.0 - fraction);
        }
        let check = Fields::default()
            .rounded("bits_per_coordinate", bits as f64 / self.d as f64)
            .rounded(
                "nonzero_fraction",
                values.iter().filter(|v| **v != 0.0).count() as f64 / self.d as f64,
            )
            .rounded("bias_in_standard_errors", bias / (expected.sqrt() * unit))
            .rounded("variance_over_exact", squares / (expected * unit * unit))
            .with("round_trip", read == message);
        // as the peers count: four bytes a number
        let rate = |seconds: f64| 4e-6 * (self.d as u64 * self.how.iters) as f64 / seconds;
        let variant = Fields::default()
            .with("s", self.s)
            .with("codec", channel.code().to_string())
            .rounded("mb_per_second", rate(timed.seconds))
            .rounded("quantise_only_mb_per_second", rate(alone.seconds));
        report::line("quantise_encode", &self.how, timed, &variant, &check)
    }

    fn code(&self) -> Result<CodeChoice, String> {
        let layout =
            if f64::from(self.s) < (self.d as f64).sqrt() { Layout::Sparse } else { Layout::Dense };
        match self.codec.as_str() {
            "elias" => Ok(CodeChoice::Exactly(Code::Elias(Integer::Gamma, layout))),
            "zstd" => Ok(CodeChoice::Exactly(Code::Entropy)),
            other => other.parse().map_err(|e| format!("--codec {other}: {e}")),
        }
    }
}
