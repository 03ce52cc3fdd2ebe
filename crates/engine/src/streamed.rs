//! Summarise draws that are in a file, a few parameters at a time: the file may be larger than
//! memory.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use consilience_core::measure::{Chains, Interval, Summary, summarise};

use crate::draws::MOST_HELD;

/// A `.npy` or `.csv` file of draws, as `--draws` writes it.
#[derive(Clone, Debug)]
pub struct DrawsFile {
    path: PathBuf,
    /// Where the numbers of a `.npy` file begin; none for a `.csv` file.
    body: Option<u64>,
    /// The parameters' names; a `.npy` file has none, and they are numbered.
    pub parameters: Vec<String>,
    /// How many chains there are.
    pub chains: usize,
    /// How many draws each has.
    pub length: usize,
}

impl DrawsFile {
    /// Look at a file.
    pub fn open(path: &Path) -> Result<Self, String> {
        let wrong = |problem: String| format!("{}: {problem}", path.display());
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => open_npy(path).map_err(wrong),
            Some("csv") => open_csv(path).map_err(wrong),
            _ => Err(wrong("this is no file of draws: its name must end in .npy or .csv".into())),
        }
    }

    /// The summary of every parameter; `None` where there are too few draws. The file is read once
    /// for every 256 MiB of it.
    pub fn summaries(&self, interval: Interval) -> Result<Vec<Option<Summary>>, String> {
        let draws = self.chains * self.length;
        let at_once =
            (MOST_HELD as usize / (8 * draws.max(1))).clamp(1, self.parameters.len().max(1));
        self.summaries_of(at_once, interval)
    }

    fn summaries_of(
        &self,
        at_once: usize,
        interval: Interval,
    ) -> Result<Vec<Option<Summary>>, String> {
        let mut all = Vec::with_capacity(self.parameters.len());
        for from in (0..self.parameters.len()).step_by(at_once) {
            let columns = from..(from + at_once).min(self.parameters.len());
            let read = if self.body.is_some() {
                self.npy_columns(columns)
            } else {
                self.csv_columns(columns)
            };
            let columns = read.map_err(|problem| format!("{}: {problem}", self.path.display()))?;
            let summary = |column: &Vec<f64>| {
                summarise(&Chains::flat(column, self.chains).ok()?, interval).ok()
            };
            all.extend(columns.iter().map(summary));
        }
        Ok(all)
    }

    /// Some parameters' draws, chain after chain.
    fn npy_columns(&self, columns: std::ops::Range<usize>) -> Result<Vec<Vec<f64>>, String> {
        let mut file = File::open(&self.path).map_err(|e| e.to_string())?;
        file.seek(SeekFrom::Start(self.body.unwrap_or(0))).map_err(|e| e.to_string())?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut row = vec![0; 8 * self.parameters.len()];
        let mut found = vec![Vec::with_capacity(self.chains * self.length); columns.len()];
        for _ in 0..self.chains * self.length {
            reader.read_exact(&mut row).map_err(|e| e.to_string())?;
            let cells = &row.as_chunks::<8>().0[columns.clone()];
            found
                .iter_mut()
                .zip(cells)
                .for_each(|(column, cell)| column.push(f64::from_le_bytes(*cell)));
        }
        Ok(found)
    }

    fn csv_columns(&self, columns: std::ops::Range<usize>) -> Result<Vec<Vec<f64>>, String> {
        let mut reader = csv::Reader::from_path(&self.path).map_err(|e| e.to_string())?;
        let mut found = vec![Vec::with_capacity(self.chains * self.length); columns.len()];
        for (line, record) in reader.records().enumerate() {
            let record = record.map_err(|e| e.to_string())?;
            for (column, k) in found.iter_mut().zip(columns.clone()) {
                let cell = record.get(k + 2).unwrap_or("");
                column.push(
                    cell.trim()
                        .parse()
                        .map_err(|_| format!("line {}: \"{cell}\" is no number", line + 2))?,
                );
            }
        }
        Ok(found)
    }
}

fn open_npy(path: &Path) -> Result<DrawsFile, String> {
    let mut file = File::open(path).map_err(|e| e.to_string())?;
    let mut start = [0; 10];
    file.read_exact(&mut start).map_err(|_| "this is no .npy file: it is too short")?;
    if !start.starts_with(b"\x93NUMPY\x01") {
        return Err("this is no .npy file of version 1, as `--draws` writes it".into());
    }
    let mut header = vec![0; usize::from(u16::from_le_bytes([start[8], start[9]]))];
    file.read_exact(&mut header).map_err(|e| e.to_string())?;
    let header = String::from_utf8_lossy(&header);
    let expected = || {
        format!(
            "its header is {}: draws are '<f8' in C order with the shape (chains, draws, \
             parameters)",
            header.trim()
        )
    };
    let shape = header
        .split("'shape': (")
        .nth(1)
        .and_then(|rest| rest.split(')').next())
        .ok_or_else(expected)?;
    let sizes: Vec<usize> = shape
        .split(',')
        .map(|size| size.trim().parse().map_err(|_| expected()))
        .collect::<Result<_, _>>()?;
    let [chains, length, dim] = sizes[..] else { return Err(expected()) };
    if !header.contains("'<f8'") || !header.contains("'fortran_order': False") {
        return Err(expected());
    }
    let body = 10 + header.len() as u64;
    let (found, wanted) = (
        file.metadata().map_err(|e| e.to_string())?.len(),
        body + 8 * (chains * length * dim) as u64,
    );
    if found != wanted {
        return Err(format!(
            "it has {found} bytes where its header promises {wanted}: is it complete?"
        ));
    }
    let parameters = (1..=dim).map(|k| format!("parameter {k}")).collect();
    Ok(DrawsFile { path: path.into(), body: Some(body), parameters, chains, length })
}

fn open_csv(path: &Path) -> Result<DrawsFile, String> {
    let mut reader = csv::Reader::from_path(path).map_err(|e| e.to_string())?;
    let header: Vec<String> =
        reader.headers().map_err(|e| e.to_string())?.iter().map(str::to_owned).collect();
    if header.len() < 3 || header[0] != "chain" || header[1] != "draw" {
        return Err("its first line must be chain,draw and the parameters' names".into());
    }
    let mut counts: Vec<usize> = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|e| e.to_string())? {
        let (chain, draw) = (record.get(0).unwrap_or(""), record.get(1).unwrap_or(""));
        if draw == "1" {
            counts.push(0);
        }
        let expected = (counts.len().to_string(), counts.last().map_or(1, |n| n + 1).to_string());
        if (chain, draw) != (expected.0.as_str(), expected.1.as_str()) {
            let line = counts.iter().sum::<usize>() + 2;
            return Err(format!(
                "line {line} has draw {draw} of chain {chain} where draw {} of chain {} is next",
                expected.1, expected.0
            ));
        }
        if let Some(last) = counts.last_mut() {
            *last += 1;
        }
    }
    let length = counts.first().copied().unwrap_or(0);
    if let Some(chain) = counts.iter().position(|n| *n != length) {
        return Err(format!(
            "chain {} has {} draws where chain 1 has {length}: is the file complete?",
            chain + 1,
            counts[chain]
        ));
    }
    Ok(DrawsFile {
        path: path.into(),
        body: None,
        parameters: header[2..].to_vec(),
        chains: counts.len(),
        length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::{Draws, Sinks};

    #[test]
    fn a_file_says_what_its_draws_say_whatever_is_held_at_once() {
        let folder = std::env::temp_dir()
            .join(format!("consilience-streamed-summary-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let chain = |c: usize| {
            (0..150).map(|k| ((k * 37 + c * 11) % 101) as f64 / 7.0).collect::<Vec<f64>>()
        };
        let draws = Draws::from_chains(vec![chain(0), chain(1)], 3);
        let parameters: Vec<String> = ["a", "b, c", "d"].map(String::from).to_vec();
        for name in ["draws.npy", "draws.csv"] {
            let path = folder.join(name);
            let sinks = Sinks::File { path: path.clone(), parameters: parameters.clone(), hold: 0 };
            let mut parts = sinks.open(2, 3).unwrap();
            for (c, part) in parts.iter_mut().enumerate() {
                chain(c).chunks(3).for_each(|row| part.push(row).unwrap());
            }
            let streamed = sinks.close(parts, 3).unwrap().1.unwrap();
            assert_eq!((streamed.chains, streamed.length), (2, 50));
            let file = DrawsFile::open(&path).unwrap();
            assert_eq!((file.chains, file.length, file.parameters.len()), (2, 50, 3));
            assert_eq!(
                file.parameters[1],
                if name.ends_with("csv") { "b, c" } else { "parameter 2" }
            );
            let expected: Vec<Option<Summary>> = (0..3)
                .map(|k| {
                    summarise(
                        &Chains::flat(&draws.parameter(k).concat(), 2).unwrap(),
                        Interval::default(),
                    )
                    .ok()
                })
                .collect();
            for at_once in [1, 2, 3] {
                assert_eq!(
                    file.summaries_of(at_once, Interval::default()).unwrap(),
                    expected,
                    "{name} {at_once}"
                );
            }
            assert_eq!(file.summaries(Interval::default()).unwrap(), expected);
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() - 120]).unwrap();
            let complaint =
                DrawsFile::open(&path).map(|file| file.summaries(Interval::default())).unwrap_err();
            assert!(complaint.contains("complete?"), "{complaint}");
        }
        assert!(DrawsFile::open(&folder.join("draws.txt")).unwrap_err().contains(".npy or .csv"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
