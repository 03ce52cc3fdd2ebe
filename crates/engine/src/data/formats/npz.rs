//! Read NumPy's archives of arrays: zip files whose members are stored or deflated.

use std::io::Read;

use super::npy::{self, Array};
use super::packed::limit;
use super::{At, FormatError};

/// The arrays of an archive, by name without `.npy`, in its order.
pub fn parse(bytes: &[u8], file: &str) -> Result<Vec<(String, Array)>, FormatError> {
    let damaged = |at: usize, problem: &str| FormatError::Damaged {
        file: file.into(),
        at: At::Byte(at as u64),
        format: "zip",
        problem: problem.into(),
    };
    let slice = |at: usize, n: usize| {
        at.checked_add(n)
            .and_then(|end| bytes.get(at..end))
            .ok_or_else(|| damaged(at.min(bytes.len()), "it is cut short"))
    };
    let short = |at: usize| {
        Ok::<usize, FormatError>(usize::from(u16::from_le_bytes(
            slice(at, 2)?.try_into().unwrap_or_default(),
        )))
    };
    let long = |at: usize| {
        Ok::<usize, FormatError>(
            u32::from_le_bytes(slice(at, 4)?.try_into().unwrap_or_default()) as usize
        )
    };
    if !bytes.starts_with(b"PK\x03\x04") {
        return Err(FormatError::Magic {
            file: file.into(),
            at: At::Byte(0),
            found: "other bytes".into(),
            expected: "PK\\x03\\x04".into(),
        });
    }
    // The directory's end stands within the last 64 KiB, before a comment.
    let end = bytes
        .windows(4)
        .rposition(|four| four == b"PK\x05\x06")
        .ok_or_else(|| damaged(bytes.len(), "it has no directory"))?;
    let (count, mut at) = (short(end + 10)?, long(end + 16)?);
    let mut arrays: Vec<(String, Array)> = Vec::new();
    let mut total = 0u64;
    for _ in 0..count {
        if slice(at, 4)? != b"PK\x01\x02" {
            return Err(damaged(at, "an entry of the directory is wrong"));
        }
        let (method, crc, packed, size, local) =
            (short(at + 10)?, long(at + 16)?, long(at + 20)?, long(at + 24)?, long(at + 42)?);
        let name = String::from_utf8_lossy(slice(at + 46, short(at + 28)?)?).into_owned();
        let label = format!("{file}, member {name}");
        let mut sizes = (packed, size, local);
        wide_sizes(slice(at + 46 + name.len(), short(at + 30)?)?, &mut sizes);
        let (packed, size, local) = sizes;
        if slice(local, 4)? != b"PK\x03\x04" {
            return Err(damaged(local, "a member does not start where the directory says"));
        }
        let body = slice(local + 30 + short(local + 26)? + short(local + 28)?, packed)?;
        // Members may overlap, so that a small archive could hold the same great one many times.
        total = total.saturating_add(size as u64);
        if total > limit(bytes.len() as u64) {
            return Err(FormatError::Expands {
                file: file.into(),
                bytes: bytes.len() as u64,
                limit: limit(bytes.len() as u64),
            });
        }
        let content = match method {
            0 => body.to_vec(),
            8 => {
                let mut out = Vec::new(); // deflate expands 1,032 times at most
                let inflated = flate2::read::DeflateDecoder::new(body)
                    .take(size as u64 + 1)
                    .read_to_end(&mut out);
                inflated.map_err(|error| damaged(local, &error.to_string()))?;
                out
            }
            _ => {
                return Err(damaged(
                    at + 10,
                    "a member is packed by a method that is not known: use numpy.savez or \
                     savez_compressed",
                ));
            }
        };
        let mut check = flate2::Crc::new();
        check.update(&content);
        if content.len() != size || check.sum() as usize != crc {
            return Err(damaged(local, "a member's size or checksum is wrong"));
        }
        arrays.push((name.trim_end_matches(".npy").into(), npy::parse(&content, &label)?));
        at += 46 + short(at + 28)? + short(at + 30)? + short(at + 32)?;
    }
    if arrays.is_empty() { Err(FormatError::Empty { file: file.into() }) } else { Ok(arrays) }
}

/// Sizes that did not fit into 32 bits stand in an extra field, in this order and only where they
/// are needed.
fn wide_sizes(extra: &[u8], (packed, size, local): &mut (usize, usize, usize)) {
    let mut rest = extra;
    while let [a, b, c, d, tail @ ..] = rest {
        let (id, length) =
            (u16::from_le_bytes([*a, *b]), usize::from(u16::from_le_bytes([*c, *d])));
        if id == 1 {
            let mut words = tail[..length.min(tail.len())].chunks_exact(8);
            for slot in [size, packed, local] {
                if *slot == u32::MAX as usize
                    && let Some(word) = words.next()
                {
                    *slot = u64::from_le_bytes(word.try_into().unwrap_or_default()) as usize;
                }
            }
            return;
        }
        rest = tail.get(length..).unwrap_or(&[]);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::data::formats::npy::tests::file as npy_file;

    fn archive(deflate: bool) -> Vec<u8> {
        archive_of(
            deflate,
            [
                ("x.npy", npy_file("|u1", "(2, 2)", &[1, 2, 3, 4])),
                ("y.npy", npy_file("|u1", "(2,)", &[0, 1])),
            ],
        )
    }

    fn archive_of(deflate: bool, members: [(&str, Vec<u8>); 2]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, content) in members {
            let mut crc = flate2::Crc::new();
            crc.update(&content);
            let mut encoder =
                flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&content).unwrap();
            let body = if deflate { encoder.finish().unwrap() } else { content.clone() };
            let common = [
                &[20, 0, 0, 0, if deflate { 8 } else { 0 }, 0, 0, 0, 0, 0][..],
                &crc.sum().to_le_bytes(),
                &(body.len() as u32).to_le_bytes(),
                &(content.len() as u32).to_le_bytes(),
                &[name.len() as u8, 0, 0, 0],
            ]
            .concat();
            let start = (out.len() as u32).to_le_bytes();
            out.extend([b"PK\x03\x04", &common[..], name.as_bytes(), &body].concat());
            directory.extend(
                [b"PK\x01\x02\x14\0", &common[..], &[0; 10], &start, name.as_bytes()].concat(),
            );
        }
        let at = (out.len() as u32).to_le_bytes();
        out.extend_from_slice(&directory);
        out.extend(
            [
                b"PK\x05\x06\0\0\0\0",
                &[2, 0, 2, 0][..],
                &(directory.len() as u32).to_le_bytes(),
                &at,
                &[0, 0],
            ]
            .concat(),
        );
        out
    }

    #[test]
    fn stored_and_deflated_members_are_read() {
        for deflate in [false, true] {
            let arrays = parse(&archive(deflate), "a.npz").unwrap();
            assert_eq!(arrays.len(), 2);
            assert_eq!((arrays[0].0.as_str(), arrays[0].1.shape.clone()), ("x", vec![2, 2]));
            assert_eq!(arrays[1], ("y".into(), Array { shape: vec![2], cells: vec![0.0, 1.0] }));
        }
    }

    #[test]
    fn bombs_are_refused() {
        let zeros = npy_file("|u1", "(36000000,)", &vec![0; 36_000_000]); // two of them pass 64 MiB
        let error = parse(&archive_of(true, [("x.npy", zeros.clone()), ("y.npy", zeros)]), "a.npz")
            .unwrap_err();
        assert!(matches!(error, FormatError::Expands { .. }), "{error}");
    }

    #[test]
    fn cuts_and_flips_are_named() {
        for deflate in [false, true] {
            let good = archive(deflate);
            for cut in 0..good.len() - 2 {
                assert!(parse(&good[..cut], "a.npz").is_err(), "cut at {cut}");
            }
            let mut wrong = good.clone();
            wrong[60] ^= 1; // within the first member
            assert!(matches!(
                parse(&wrong, "a.npz"),
                Err(FormatError::Damaged { .. } | FormatError::Size { .. })
            ));
            for at in 0..good.len() {
                let mut wrong = good.clone();
                wrong[at] ^= 0x81;
                let _ = parse(&wrong, "a.npz"); // whatever it says, it does not panic
            }
        }
        assert!(
            parse(b"PK", "a.npz").unwrap_err().to_string().contains("PK\\x03\\x04 is expected")
        );
    }
}
