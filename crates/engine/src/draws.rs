//! Keep draws in memory, or stream them to a file.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::checkpoint::Part;
use crate::run::RunError;

/// Draws of several chains, all equally long.
#[derive(Clone, Debug, PartialEq)]
pub struct Draws {
    dim: usize,
    chains: Vec<Vec<f64>>,
}

impl Draws {
    /// No draws.
    pub fn new(dim: usize) -> Self {
        Draws { dim, chains: Vec::new() }
    }

    /// From each chain's draws, row by row; longer chains are cut to the shortest.
    pub fn from_chains(mut chains: Vec<Vec<f64>>, dim: usize) -> Self {
        let shortest = chains.iter().map(Vec::len).min().unwrap_or(0);
        for chain in &mut chains {
            chain.truncate(shortest);
        }
        Draws { dim, chains }
    }

    /// How many chains there are.
    pub fn chains(&self) -> usize {
        self.chains.len()
    }

    /// How many draws each has.
    pub fn length(&self) -> usize {
        self.chains.first().map_or(0, |c| c.len() / self.dim)
    }

    /// How many parameters a draw has.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// One parameter's draws, chain by chain.
    pub fn parameter(&self, k: usize) -> Vec<Vec<f64>> {
        self.chains
            .iter()
            .map(|chain| chain.iter().skip(k).step_by(self.dim).copied().collect())
            .collect()
    }

    /// All draws, chain after chain, row by row.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.chains.iter().flat_map(|chain| chain.chunks_exact(self.dim))
    }

    /// One draw, counted over all chains.
    pub fn row(&self, k: usize) -> Option<&[f64]> {
        let length = self.length();
        let (chain, place) = (k.checked_div(length)?, k % length);
        self.chains.get(chain)?.get(place * self.dim..(place + 1) * self.dim)
    }

    /// The draws' fingerprint, in 64 hexadecimal digits: SHA-256 of all numbers as little-endian
    /// bytes, chain after chain, draw after draw. Two runs with the same fingerprint have the same
    /// chains, bit for bit. In Python: `hashlib.sha256(draws.tobytes()).hexdigest()`.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for number in self.chains.iter().flatten() {
            hash.update(number.to_le_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// All numbers in one block: chain after chain, draw after draw.
    pub fn into_flat(self) -> Vec<f64> {
        let mut chains = self.chains.into_iter();
        let mut all = chains.next().unwrap_or_default();
        all.reserve_exact(chains.as_slice().iter().map(Vec::len).sum());
        chains.for_each(|chain| all.extend_from_slice(&chain));
        all
    }

    /// The mean of all draws.
    pub fn mean(&self) -> Vec<f64> {
        let n = self.rows().count() as f64;
        let mut mean = vec![0.0; self.dim];
        for row in self.rows() {
            for (m, x) in mean.iter_mut().zip(row) {
                *m += x / n;
            }
        }
        mean
    }

    /// The covariance of all draws about their mean (divided by one less than their number),
    /// row-major.
    pub fn covariance(&self) -> Vec<f64> {
        let (d, mean) = (self.dim, self.mean());
        let n = self.rows().count() as f64;
        let mut covariance = vec![0.0; d * d];
        for row in self.rows() {
            for i in 0..d {
                for j in 0..d {
                    covariance[i * d + j] += (row[i] - mean[i]) * (row[j] - mean[j]);
                }
            }
        }
        covariance.iter_mut().for_each(|c| *c /= (n - 1.0).max(1.0));
        covariance
    }
}

/// Draws that are in a file and nowhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct Streamed {
    /// The file.
    pub file: PathBuf,
    /// How many chains it has.
    pub chains: usize,
    /// How many draws each has.
    pub length: usize,
}

/// The most bytes of draws that are held in memory once they are on disk.
pub const MOST_HELD: u64 = 256 << 20;

/// Where draws go.
#[derive(Clone, Debug)]
pub enum Sinks {
    /// Into memory.
    Memory,
    /// Into a file, `.csv` or `.npy`, with these parameter names.
    File {
        /// The file.
        path: PathBuf,
        /// The parameters' names.
        parameters: Vec<String>,
        /// The most bytes of draws that are given back when the run ends; usually [`MOST_HELD`].
        hold: u64,
    },
    /// Into files of a checkpoint, which outlive the run, and from there on as said.
    Kept {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// A file for all of them, with the parameters' names; `None`: into memory.
        file: Option<(PathBuf, Vec<String>)>,
    },
}

/// Where one chain's draws go while it runs.
#[derive(Debug)]
pub enum DrawSink {
    /// Into memory.
    Memory(Vec<f64>),
    /// Into a part file of raw little-endian numbers.
    Part {
        /// The part file.
        path: PathBuf,
        /// Its writer.
        writer: BufWriter<File>,
    },
    /// Into a file of a checkpoint, opened once it is known where the chain goes on.
    Kept {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// The file, and its writer.
        open: Option<(PathBuf, BufWriter<File>)>,
        /// Whether all draws will be in memory in the end.
        held: bool,
    },
}

impl DrawSink {
    /// Keep a draw.
    pub fn push(&mut self, draw: &[f64]) -> Result<(), RunError> {
        match self {
            DrawSink::Memory(all) => {
                all.extend_from_slice(draw);
                Ok(())
            }
            DrawSink::Part { path, writer } => {
                let all = draw.iter().try_for_each(|x| writer.write_all(&x.to_le_bytes()));
                all.map_err(|error| RunError::Write { file: path.display().to_string(), error })
            }
            DrawSink::Kept { folder, .. } => Err(RunError::Write {
                file: folder.display().to_string(),
                error: std::io::ErrorKind::InvalidInput.into(),
            }),
        }
    }

    /// Whether all draws are held in memory, now or in the end.
    pub(crate) fn is_held(&self) -> bool {
        match self {
            DrawSink::Memory(_) => true,
            DrawSink::Part { .. } => false,
            DrawSink::Kept { held, .. } => *held,
        }
    }

    /// Go on behind what a checkpoint has of this chain's draws.
    pub(crate) fn go_on(&mut self, part: &Part) -> Result<(), RunError> {
        if let DrawSink::Kept { folder, open, .. } = self {
            let path = part.path(folder);
            let file = open_at(&path, part.extent.length)
                .map_err(|error| RunError::Write { file: path.display().to_string(), error })?;
            *open = Some((path, BufWriter::new(file)));
        }
        Ok(())
    }

    /// Keep a draw, and count it as part of a checkpoint.
    pub(crate) fn keep(&mut self, draw: &[f64], part: &mut Part) -> Result<(), RunError> {
        let DrawSink::Kept { open: Some((path, writer)), .. } = self else {
            return self.push(draw);
        };
        let bytes: Vec<u8> = draw.iter().flat_map(|x| x.to_le_bytes()).collect();
        part.extent.add(&bytes);
        writer
            .write_all(&bytes)
            .map_err(|error| RunError::Write { file: path.display().to_string(), error })
    }

    /// Make durable what was kept.
    pub(crate) fn sync(&mut self) -> Result<(), RunError> {
        let DrawSink::Kept { open: Some((path, writer)), .. } = self else { return Ok(()) };
        let synced = writer.flush().and_then(|()| writer.get_ref().sync_data());
        synced.map_err(|error| RunError::Write { file: path.display().to_string(), error })
    }
}

/// Open a file to go on at a length; what is behind it is cut off.
pub(crate) fn open_at(path: &Path, length: u64) -> std::io::Result<File> {
    let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.set_len(length)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

impl Sinks {
    /// One sink a chain.
    pub fn open(&self, chains: usize, _dim: usize) -> Result<Vec<DrawSink>, RunError> {
        match self {
            Sinks::Memory => Ok((0..chains).map(|_| DrawSink::Memory(Vec::new())).collect()),
            Sinks::Kept { folder, file } => Ok((0..chains)
                .map(|_| DrawSink::Kept {
                    folder: folder.clone(),
                    open: None,
                    held: file.is_none(),
                })
                .collect()),
            Sinks::File { path, .. } => (1..=chains)
                .map(|chain| {
                    let path = part(path, chain);
                    let file = File::create(&path).map_err(|error| RunError::Write {
                        file: path.display().to_string(),
                        error,
                    })?;
                    Ok(DrawSink::Part { path, writer: BufWriter::new(file) })
                })
                .collect(),
        }
    }

    /// Put the chains together, in memory or as one file. Draws on disk are given back too, unless
    /// they are too many to hold: then only their number is.
    pub fn close(
        &self,
        sinks: Vec<DrawSink>,
        dim: usize,
    ) -> Result<(Draws, Option<Streamed>), RunError> {
        let at = |file: &Path| {
            let file = file.display().to_string();
            move |error| RunError::Write { file: file.clone(), error }
        };
        let mut parts = Vec::new();
        let mut memory = Vec::new();
        for sink in sinks {
            match sink {
                DrawSink::Memory(all) => memory.push(all),
                DrawSink::Part { path, mut writer }
                | DrawSink::Kept { open: Some((path, mut writer)), .. } => {
                    writer.flush().map_err(at(&path))?;
                    parts.push(path);
                }
                DrawSink::Kept { open: None, .. } => {}
            }
        }
        let (path, parameters, hold) = match self {
            Sinks::Memory => return Ok((Draws::from_chains(memory, dim), None)),
            Sinks::Kept { folder, file: None } => {
                return Ok((read_back(&parts, dim).map_err(at(folder))?, None));
            }
            Sinks::Kept { file: Some((path, parameters)), .. } => (path, parameters, MOST_HELD),
            Sinks::File { path, parameters, hold } => (path, parameters, *hold),
        };
        let length = merge(path, &parts, parameters, dim).map_err(at(path))? as usize;
        let too_many = (parts.len() * length * dim * 8) as u64 > hold;
        let draws =
            if too_many { Draws::new(dim) } else { read_back(&parts, dim).map_err(at(path))? };
        let streamed =
            too_many.then(|| Streamed { file: path.clone(), chains: parts.len(), length });
        if let Sinks::File { .. } = self {
            for part in parts {
                std::fs::remove_file(&part).map_err(at(&part))?;
            }
        }
        Ok((draws, streamed))
    }

    /// Remove the part files that are still there; a file that cannot be removed is no reason to
    /// fail.
    pub(crate) fn discard(&self, chains: usize) {
        if let Sinks::File { path, .. } = self {
            (1..=chains).for_each(|chain| drop(std::fs::remove_file(part(path, chain))));
        }
    }
}

fn read_back(parts: &[PathBuf], dim: usize) -> std::io::Result<Draws> {
    let read = |part: &PathBuf| {
        Ok(std::fs::read(part)?.as_chunks::<8>().0.iter().map(|x| f64::from_le_bytes(*x)).collect())
    };
    Ok(Draws::from_chains(parts.iter().map(read).collect::<std::io::Result<_>>()?, dim))
}

fn part(path: &Path, chain: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".chain-{chain}.part"));
    PathBuf::from(name)
}

/// Write all parts as one file under a temporary name, then give it its own. The draws of each
/// chain.
fn merge(
    path: &Path,
    parts: &[PathBuf],
    parameters: &[String],
    dim: usize,
) -> std::io::Result<u64> {
    let row = dim as u64 * 8;
    let mut shortest = u64::MAX;
    for part in parts {
        shortest = shortest.min(std::fs::metadata(part)?.len() / row);
    }
    let draws = if parts.is_empty() { 0 } else { shortest };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let mut out = BufWriter::new(File::create(&temporary)?);
    let npy = path.extension().is_some_and(|e| e == "npy");
    if npy {
        let shape = format!(
            "{{'descr': '<f8', 'fortran_order': False, 'shape': ({}, {draws}, {dim}), }}",
            parts.len()
        );
        let padded = (10 + shape.len() + 1).div_ceil(64) * 64 - 10;
        out.write_all(b"\x93NUMPY\x01\x00")?;
        out.write_all(&(padded as u16).to_le_bytes())?;
        writeln!(out, "{shape:<width$}", width = padded - 1)?;
    } else {
        let mut header = csv::Writer::from_writer(Vec::new());
        header.write_record(
            ["chain", "draw"].into_iter().chain(parameters.iter().map(String::as_str)),
        )?;
        out.write_all(&header.into_inner().map_err(|e| e.into_error())?)?;
    }
    for (chain, part) in parts.iter().enumerate() {
        let mut reader = BufReader::new(File::open(part)?);
        let mut bytes = vec![0; dim * 8];
        for draw in 0..draws {
            reader.read_exact(&mut bytes)?;
            if npy {
                out.write_all(&bytes)?;
                continue;
            }
            write!(out, "{},{}", chain + 1, draw + 1)?;
            for x in bytes.as_chunks::<8>().0 {
                write!(out, ",{:?}", f64::from_le_bytes(*x))?;
            }
            out.write_all(b"\n")?;
        }
    }
    out.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    std::fs::rename(&temporary, path)?;
    Ok(draws)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_by_hand() {
        let draws = Draws::from_chains(
            vec![vec![1.0, 0.0, 3.0, 2.0], vec![5.0, 4.0, 7.0, 2.0, 9.0, 9.0]],
            2,
        );
        assert_eq!((draws.chains(), draws.length(), draws.dim()), (2, 2, 2));
        assert_eq!(draws.mean(), [4.0, 2.0]);
        let expected = [20.0 / 3.0, 8.0 / 3.0, 8.0 / 3.0, 8.0 / 3.0];
        assert!(draws.covariance().iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15));
        assert_eq!(draws.parameter(1), [[0.0, 2.0], [4.0, 2.0]]);
    }
}
