//! Make small digits of MNIST's: 10,000 of them, 4 x 4 pixels, each the mean of 49.

use std::io::Read;
use std::path::Path;

const IMAGES: usize = 10_000;
const SIDE: usize = 28;
const POOLED: usize = 4;

/// Write images and labels into a folder, from the data folder that CONSILIENCE_DATA names. Nothing
/// happens where they are there already, or there is no such folder: runs then say what is missing.
pub fn make(folder: &Path) -> Result<(), String> {
    let Some(data) = std::env::var_os("CONSILIENCE_DATA") else { return Ok(()) };
    let data = Path::new(&data).join("mnist");
    let (images, labels) = (folder.join("images-idx3-ubyte"), folder.join("labels-idx1-ubyte"));
    if images.is_file() && labels.is_file() || !data.is_dir() {
        return Ok(());
    }
    let pooled = pool(&unpacked(&data.join("train-images-idx3-ubyte.xz"))?);
    let classes = unpacked(&data.join("train-labels-idx1-ubyte.xz"))?;
    let mut named = header(2049, &[IMAGES]);
    named.extend(classes.iter().skip(8).take(IMAGES));
    let write = |file: &Path, bytes: &[u8]| {
        std::fs::write(file, bytes).map_err(|error| format!("{}: {error}", file.display()))
    };
    write(&images, &pooled)?;
    write(&labels, &named)
}

fn unpacked(file: &Path) -> Result<Vec<u8>, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let bytes = std::fs::read(file).map_err(|error| told(&error))?;
    let mut plain = Vec::new();
    let mut reader = lzma_rust2::XzReader::new(bytes.as_slice(), true);
    reader.read_to_end(&mut plain).map_err(|error| told(&error))?;
    Ok(plain)
}

/// The first bytes of an idx file: its magic number, and how many there are of each.
fn header(magic: u32, counts: &[usize]) -> Vec<u8> {
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend(counts.iter().flat_map(|count| (*count as u32).to_be_bytes()));
    bytes
}

fn pool(images: &[u8]) -> Vec<u8> {
    let by = SIDE / POOLED;
    let mut pooled = header(2051, &[IMAGES, POOLED, POOLED]);
    for image in images.get(16..).unwrap_or_default().chunks_exact(SIDE * SIDE).take(IMAGES) {
        for k in 0..POOLED * POOLED {
            let (top, left) = (k / POOLED * by, k % POOLED * by);
            let pixels = (0..by * by).map(|p| image[(top + p / by) * SIDE + left + p % by]);
            let sum: u32 = pixels.map(u32::from).sum();
            pooled.push((sum / (by * by) as u32) as u8);
        }
    }
    pooled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pixel_is_the_mean_of_forty_nine() {
        let mut file = header(2051, &[1, SIDE, SIDE]);
        let mut image = vec![0; SIDE * SIDE];
        for (row, column) in [(7, 21), (13, 27)] {
            image[row * SIDE + column] = 245; // both in the last pixel of the second row
        }
        file.extend(&image);
        let pooled = pool(&file);
        assert_eq!(pooled[16 + POOLED + 3], 10);
        assert_eq!(pooled[16..].iter().map(|p| u32::from(*p)).sum::<u32>(), 10);
    }
}
