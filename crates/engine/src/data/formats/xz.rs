//! Add up the sizes that the chunks of an xz file announce, without decoding it.

/// How many bytes an xz file of one stream announces, or where and why it is no such file.
pub(super) fn announced(bytes: &[u8]) -> Result<u64, (u64, &'static str)> {
    let cut = |at: usize| (at.min(bytes.len()) as u64, "it is cut short");
    let byte = |at: usize| bytes.get(at).map(|b| *b as usize).ok_or(cut(at));
    if !bytes.starts_with(b"\xfd7zXZ\0") {
        return Err((0, "it does not start like an xz file"));
    }
    let check = match byte(7)? {
        0 => 0,
        1 => 4,
        4 => 8,
        10 => 32,
        _ => return Err((7, "its check is of no known kind")),
    };
    let (mut at, mut total) = (12, 0u64);
    loop {
        let header = byte(at)?;
        if header == 0 {
            return Ok(total); // the index: the blocks are over
        }
        at += (header + 1) * 4;
        let start = at;
        loop {
            let control = byte(at)?;
            match control {
                0 => break,
                1 | 2 => {
                    let size = byte(at + 1)? * 256 + byte(at + 2)? + 1;
                    total += size as u64;
                    at += 3 + size;
                }
                0x80.. => {
                    let size = ((control & 0x1f) << 16) + byte(at + 1)? * 256 + byte(at + 2)? + 1;
                    let packed = byte(at + 3)? * 256 + byte(at + 4)? + 1;
                    total += size as u64;
                    at += 5 + usize::from(control >= 0xc0) + packed;
                }
                _ => return Err((at as u64, "a chunk is of no known kind")),
            }
        }
        at += 1;
        at += (start.wrapping_sub(at)) % 4 + check;
    }
}
