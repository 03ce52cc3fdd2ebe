//! Read a file whole, plain or compressed by gzip or xz.

use std::io::Read;
use std::path::Path;

use super::{At, FormatError};

/// A file may expand to this many bytes, and to [`RATIO`] times its size.
const FLOOR: u64 = 64 << 20;
/// Text of zeros and ones compresses well; a bomb compresses better.
const RATIO: u64 = 200;

/// How much memory the decoder of xz may take, in KiB: what `xz -9` asks for, twice.
const MOST_DICTIONARY: u32 = 128 << 10;

/// How far a file of this size may expand.
pub(super) fn limit(size: u64) -> u64 {
    FLOOR.max(size.saturating_mul(RATIO))
}

/// The content of a file; a name that ends in `.gz` or `.xz` says that it is compressed.
pub fn read(path: &Path) -> Result<Vec<u8>, FormatError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| FormatError::Unreadable {
        file: name.clone(),
        problem: error.to_string(),
    })?;
    unpack(bytes, &name)
}

/// The content of bytes that came from a file of this name.
pub fn unpack(bytes: Vec<u8>, file: &str) -> Result<Vec<u8>, FormatError> {
    let size = bytes.len() as u64;
    let limit = limit(size);
    let expands = || FormatError::Expands { file: file.into(), bytes: size, limit };
    let damaged = |format, at: u64, problem: String| FormatError::Damaged {
        file: file.into(),
        at: At::Byte(at),
        format,
        problem,
    };
    if file.ends_with(".gz") {
        let mut out = Vec::new();
        let mut input = bytes.as_slice();
        let result =
            flate2::bufread::MultiGzDecoder::new(&mut input).take(limit + 1).read_to_end(&mut out);
        let at = size - input.len() as u64;
        result.map_err(|error| damaged("gz", at, error.to_string()))?;
        if out.len() as u64 > limit { Err(expands()) } else { Ok(out) }
    } else if file.ends_with(".xz") {
        let mut out = Vec::new();
        let mut input = bytes.as_slice();
        let reader = lzma_rust2::XzReader::new_mem_limit(&mut input, true, MOST_DICTIONARY);
        let result = reader.take(limit + 1).read_to_end(&mut out);
        let at = size - input.len() as u64;
        result.map_err(|error| damaged("xz", at, error.to_string()))?;
        if out.len() as u64 > limit { Err(expands()) } else { Ok(out) }
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn crc(bytes: &[u8]) -> [u8; 4] {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum().to_le_bytes()
    }

    /// A length as xz writes it: seven bits a byte, the lowest first.
    fn length(mut n: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while n >= 128 {
            out.push((n % 128) as u8 | 128);
            n /= 128;
        }
        out.push(n as u8);
        out
    }

    /// An xz file of one block with these LZMA2 chunks and a CRC32 of the content.
    fn xz_of(chunks: &[u8], content: &[u8]) -> Vec<u8> {
        let pad = |n: usize| vec![0; n.next_multiple_of(4) - n];
        let mut out = [&b"\xfd7zXZ\0\0\x01"[..], &crc(&[0, 1])].concat();
        let header = [2, 0, 0x21, 1, 0x16, 0, 0, 0];
        out.extend(
            [&header[..], &crc(&header), chunks, &pad(chunks.len()), &crc(content)].concat(),
        );
        let mut index = [vec![0, 1], length(12 + chunks.len() + 4), length(content.len())].concat();
        index.extend(pad(index.len()));
        let back = [&((index.len() / 4) as u32).to_le_bytes()[..], &[0, 1]].concat();
        out.extend([&index[..], &crc(&index), &crc(&back), &back, b"YZ"].concat());
        out
    }

    /// An xz file whose chunks are stored.
    fn xz(content: &[u8]) -> Vec<u8> {
        let chunk = |part: &[u8]| [&[1][..], &(part.len() as u16 - 1).to_be_bytes(), part].concat();
        let chunks: Vec<u8> = content.chunks(60_000).flat_map(chunk).chain([0]).collect();
        xz_of(&chunks, content)
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let text: Vec<u8> = (0..200_000u32).map(|k| (k.wrapping_mul(k) >> 7) as u8).collect();
        assert_eq!(unpack(gz(&text), "a.gz").unwrap(), text);
        assert_eq!(unpack(xz(&text), "a.xz").unwrap(), text);
        assert_eq!(unpack(text.clone(), "a").unwrap(), text);
        assert_eq!(unpack(xz(b""), "a.xz").unwrap(), b"");
    }

    #[test]
    fn every_cut_and_every_flip_is_named() {
        let text: Vec<u8> = (0..300u32).map(|k| ((k * k) >> 3) as u8).collect();
        for (name, packed) in [("a.gz", gz(&text)), ("a.xz", xz(&text))] {
            for cut in 0..packed.len() {
                let error = unpack(packed[..cut].to_vec(), name);
                // An empty gzip file has no member, which the decoder takes for no content.
                assert!(
                    matches!(error, Err(FormatError::Damaged { .. }))
                        || (cut == 0 && name == "a.gz"),
                    "{name} cut at {cut}: {error:?}"
                );
            }
            let mut noticed = 0;
            for at in 0..packed.len() {
                let mut wrong = packed.clone();
                wrong[at] ^= 0x10;
                noticed += usize::from(unpack(wrong, name).is_err_and(|e| {
                    matches!(e, FormatError::Damaged { .. } | FormatError::Expands { .. })
                }));
            }
            // gzip's time, system and flags may be anything.
            assert!(noticed + 10 >= packed.len(), "{name}: {noticed} of {} flips", packed.len());
        }
    }

    #[test]
    fn bombs_are_refused() {
        let zeros = vec![0; (FLOOR + 1) as usize];
        assert!(matches!(unpack(gz(&zeros), "a.gz"), Err(FormatError::Expands { .. })));
        let fast = lzma_rust2::XzOptions::with_preset(0);
        let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), fast).unwrap();
        encoder.write_all(&zeros).unwrap();
        let bomb = encoder.finish().unwrap();
        assert!(matches!(unpack(bomb, "a.xz"), Err(FormatError::Expands { .. })));
        // a dictionary of 1.5 GiB for a file of no bytes
        let mut greedy = xz_of(&[0], b"");
        greedy[16] = 0x25;
        let header: [u8; 8] = greedy[12..20].try_into().unwrap();
        greedy[20..24].copy_from_slice(&crc(&header));
        assert!(matches!(unpack(greedy, "a.xz"), Err(FormatError::Damaged { .. })));
    }
}
