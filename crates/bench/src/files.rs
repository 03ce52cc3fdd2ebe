//! Read the peers' data, raw little-endian numbers; or make up data of the same shape.

use std::path::Path;

use consilience_core::rng::{Purpose, SERVER, Seed, Stream};

/// The doubles of `NAME.bin`.
pub fn doubles(folder: &Path, name: &str) -> Result<Vec<f64>, String> {
    numbers(folder, name, f64::from_le_bytes)
}

/// The singles of `NAME.bin`.
pub fn singles(folder: &Path, name: &str) -> Result<Vec<f32>, String> {
    numbers(folder, name, f32::from_le_bytes)
}

/// The whole numbers of `NAME.bin`, of 32 bits.
pub fn integers(folder: &Path, name: &str) -> Result<Vec<i32>, String> {
    numbers(folder, name, i32::from_le_bytes)
}

fn numbers<T, const N: usize>(
    folder: &Path,
    name: &str,
    read: fn([u8; N]) -> T,
) -> Result<Vec<T>, String> {
    let file = folder.join(name).with_extension("bin");
    let bytes = std::fs::read(&file).map_err(|error| {
        format!("{}: {error}; --data is the folder that the peers' data.py wrote", file.display())
    })?;
    let (whole, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        return Err(format!(
            "{}: {} bytes are no whole number of {N}-byte numbers: write it again",
            file.display(),
            bytes.len()
        ));
    }
    Ok(whole.iter().map(|n| read(*n)).collect())
}

/// Standard normals, the same in every run.
pub fn normals(address: usize, n: usize) -> Vec<f64> {
    let mut z = vec![0.0; n];
    stream(address).normals(&mut z);
    z
}

/// Random numbers for made-up data.
pub fn stream(address: usize) -> Stream {
    Seed::new(1).stream(Purpose::Data, SERVER, address as u64)
}
