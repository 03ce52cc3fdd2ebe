//! Decode the values of a page: which are there, and what they are.

use std::sync::Arc;

use super::thrift::Reader;

/// How a column's values are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Physical {
    Boolean,
    Int32 { signed: bool },
    Int64 { signed: bool },
    Float,
    Double,
    Bytes,
}

/// Values that are there.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    Numbers(Vec<f64>),
    /// A word of the dictionary is there once, however often it is referred to.
    Words(Vec<Arc<str>>),
}

impl Values {
    pub(super) fn none(physical: Physical) -> Self {
        if physical == Physical::Bytes {
            Values::Words(Vec::new())
        } else {
            Values::Numbers(Vec::new())
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Values::Numbers(numbers) => numbers.len(),
            Values::Words(words) => words.len(),
        }
    }

    pub(super) fn extend(&mut self, more: Values) {
        match (self, more) {
            (Values::Numbers(all), Values::Numbers(more)) => all.extend(more),
            (Values::Words(all), Values::Words(more)) => all.extend(more),
            _ => {} // one column has one kind
        }
    }

    /// The values at these places.
    pub(super) fn pick(&self, places: &[u32]) -> Option<Values> {
        let places = places.iter().map(|place| *place as usize);
        match self {
            Values::Numbers(all) => {
                places.map(|k| all.get(k).copied()).collect::<Option<_>>().map(Values::Numbers)
            }
            Values::Words(all) => {
                places.map(|k| all.get(k).cloned()).collect::<Option<_>>().map(Values::Words)
            }
        }
    }
}

/// What is wrong with a page.
pub(super) type Problem = String;

fn said((_, problem): (usize, &'static str)) -> Problem {
    problem.into()
}

/// Whole numbers in runs and bit-packed groups of eight.
pub(super) fn hybrid(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u32>, Problem> {
    if width > 32 {
        return Err(format!("numbers of {width} bits"));
    }
    let mut reader = Reader::new(bytes, 0);
    let mut out = Vec::with_capacity(count);
    while out.len() < count {
        let head = reader.varint().map_err(said)?;
        if head >> 1 == 0 {
            return Err("a run of no values".into());
        }
        let left = count - out.len();
        if head & 1 == 0 {
            let bytes = reader.take(width.div_ceil(8) as usize).map_err(said)?;
            let value = bytes.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
            out.extend(std::iter::repeat_n(value, left.min((head >> 1) as usize)));
        } else {
            // The last group may be cut where its values end.
            let groups = ((head >> 1) as usize).min(left.div_ceil(8));
            let wanted = groups.saturating_mul(width as usize);
            let packed = reader.take(wanted).map_err(said)?;
            for k in 0..left.min(8 * groups) {
                let bit = k * width as usize;
                let value =
                    (0..width as usize).fold(0u32, |value, i| value | bit_at(packed, bit + i) << i);
                out.push(value);
            }
        }
    }
    Ok(out)
}

fn bit_at(bytes: &[u8], bit: usize) -> u32 {
    u32::from(bytes[bit / 8] >> (bit % 8) & 1)
}

/// Values that stand one after the other.
pub(super) fn plain(bytes: &[u8], physical: Physical, count: usize) -> Result<Values, Problem> {
    let short = || format!("{} bytes are too few for {count} values", bytes.len());
    let fixed = |width: usize| {
        let size =
            count.checked_mul(width).filter(|size| *size <= bytes.len()).ok_or_else(short)?;
        Ok::<_, Problem>(bytes[..size].chunks_exact(width))
    };
    let four = |cell: &[u8]| u32::from_le_bytes(cell.try_into().unwrap_or_default());
    let eight = |cell: &[u8]| u64::from_le_bytes(cell.try_into().unwrap_or_default());
    Ok(match physical {
        Physical::Boolean => {
            if count.div_ceil(8) > bytes.len() {
                return Err(short());
            }
            Values::Numbers((0..count).map(|k| f64::from(bit_at(bytes, k))).collect())
        }
        Physical::Int32 { signed } => Values::Numbers(
            fixed(4)?
                .map(four)
                .map(|w| if signed { f64::from(w as i32) } else { f64::from(w) })
                .collect(),
        ),
        Physical::Int64 { signed } => Values::Numbers(
            fixed(8)?.map(eight).map(|w| if signed { w as i64 as f64 } else { w as f64 }).collect(),
        ),
        Physical::Float => {
            Values::Numbers(fixed(4)?.map(|cell| f64::from(f32::from_bits(four(cell)))).collect())
        }
        Physical::Double => {
            Values::Numbers(fixed(8)?.map(|cell| f64::from_bits(eight(cell))).collect())
        }
        Physical::Bytes => {
            let mut reader = Reader::new(bytes, 0);
            let mut words = Vec::new();
            for _ in 0..count {
                let size = four(reader.take(4).map_err(|_| short())?) as usize;
                let word = std::str::from_utf8(reader.take(size).map_err(|_| short())?)
                    .map_err(|_| "a word is not UTF-8 text".to_owned())?;
                words.push(word.into());
            }
            Values::Words(words)
        }
    })
}

/// The values of a data page that are there: `count` of them, by this encoding.
pub(super) fn values(
    bytes: &[u8],
    encoding: i64,
    physical: Physical,
    dictionary: Option<&Values>,
    count: usize,
) -> Result<Values, Problem> {
    match encoding {
        0 => plain(bytes, physical, count),
        2 | 8 => {
            let dictionary = dictionary.ok_or("a page refers to a dictionary that is not there")?;
            if count == 0 {
                return Ok(Values::none(physical));
            }
            let (width, packed) = bytes.split_first().ok_or("a page is empty")?;
            let places = hybrid(packed, u32::from(*width), count)?;
            dictionary.pick(&places).ok_or_else(|| {
                format!(
                    "a page refers beyond its dictionary of \
                {}",
                    dictionary.len()
                )
            })
        }
        3 if physical == Physical::Boolean => {
            let packed = bytes.get(4..).ok_or("a page is cut short")?;
            Ok(Values::Numbers(hybrid(packed, 1, count)?.into_iter().map(f64::from).collect()))
        }
        5 => Err("it is written in the encoding DELTA_BINARY_PACKED: write it with the plain or \
            dictionary encoding"
            .into()),
        6 | 7 => Err("it is written in a DELTA encoding of texts: write it with the plain or \
            dictionary encoding"
            .into()),
        9 => Err("it is written in the encoding BYTE_STREAM_SPLIT: write it with the plain or \
            dictionary encoding"
            .into()),
        other => Err(format!(
            "it is written in encoding {other}: write it with the plain or \
            dictionary encoding"
        )),
    }
}
