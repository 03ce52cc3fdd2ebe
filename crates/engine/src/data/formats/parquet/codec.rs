//! Expand a page to the size that its header states, and to no more.

use std::io::Read;

/// The greatest window that a zstd frame may ask for.
const WINDOW: u64 = 16 << 20;

/// The content of a page, or what is wrong with it.
pub(super) fn expand(codec: i64, packed: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let content = match codec {
        0 => packed.to_vec(),
        1 => {
            let announced = snap::raw::decompress_len(packed).map_err(|error| error.to_string())?;
            if announced != size {
                return Err(format!("a page of {announced} bytes where {size} are stated"));
            }
            snap::raw::Decoder::new().decompress_vec(packed).map_err(|error| error.to_string())?
        }
        2 => upto(flate2::bufread::MultiGzDecoder::new(packed), size)?,
        6 => {
            let window = window(packed).ok_or("a zstd frame is cut short")?;
            if window > WINDOW.max(size as u64) {
                return Err(format!("a zstd frame asks for a window of {window} bytes"));
            }
            upto(
                ruzstd::decoding::StreamingDecoder::new(packed)
                    .map_err(|error| error.to_string())?,
                size,
            )?
        }
        other => {
            let name = match other {
                3 => "LZO",
                4 => "Brotli",
                5 | 7 => "LZ4",
                _ => "an unknown method",
            };
            return Err(format!(
                "it is compressed by {name}: write it with snappy, gzip, zstd or without \
                 compression"
            ));
        }
    };
    if content.len() == size {
        Ok(content)
    } else {
        Err(format!("a page of {} bytes where {size} are stated", content.len()))
    }
}

fn upto(reader: impl Read, size: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    reader.take(size as u64 + 1).read_to_end(&mut out).map_err(|error| error.to_string())?;
    Ok(out)
}

/// The window that a zstd frame asks for (RFC 8878, 3.1.1.1): stated, or the size of the content.
fn window(frame: &[u8]) -> Option<u64> {
    let descriptor = *frame.get(4)?;
    if descriptor & 0x20 == 0 {
        let byte = *frame.get(5)?;
        let base = 1u64 << (10 + (byte >> 3));
        return Some(base + base / 8 * u64::from(byte & 7));
    }
    let after = 5 + [0, 1, 2, 4][usize::from(descriptor & 3)];
    let width = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let stated = frame
        .get(after..after + width)?
        .iter()
        .rev()
        .fold(0u64, |size, byte| size << 8 | u64::from(*byte));
    Some(if width == 2 { stated + 256 } else { stated })
}
