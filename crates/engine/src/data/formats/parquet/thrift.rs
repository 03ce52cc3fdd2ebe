//! Read Thrift's compact protocol, in which Parquet writes its headers.

/// How deep structures may lie in each other: Parquet's own are 6 deep at most.
const DEEPEST: usize = 16;

/// A value of a header.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Bool(bool),
    Whole(i64),
    Double,
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    Struct(Vec<(i16, Value<'a>)>),
}

static NOTHING: Value<'static> = Value::Double;

impl<'a> Value<'a> {
    /// A field of a structure; something of no use where it is not there.
    pub(super) fn field(&self, id: i16) -> &Value<'a> {
        match self {
            Value::Struct(fields) => {
                fields.iter().find(|(known, _)| *known == id).map_or(&NOTHING, |(_, value)| value)
            }
            _ => &NOTHING,
        }
    }

    pub(super) fn whole(&self) -> Option<i64> {
        if let Value::Whole(whole) = self { Some(*whole) } else { None }
    }

    /// A whole number that counts or measures something.
    pub(super) fn size(&self) -> Option<usize> {
        self.whole().and_then(|whole| usize::try_from(whole).ok())
    }

    pub(super) fn text(&self) -> Option<String> {
        if let Value::Bytes(bytes) = self {
            Some(String::from_utf8_lossy(bytes).into_owned())
        } else {
            None
        }
    }

    pub(super) fn list(&self) -> &[Value<'a>] {
        if let Value::List(list) = self { list } else { &[] }
    }
}

/// A reader of bytes; every refusal says where and why.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

type Found<T> = Result<T, (usize, &'static str)>;

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Reader { bytes, at }
    }

    pub(super) fn byte(&mut self) -> Found<u8> {
        let byte = *self.bytes.get(self.at).ok_or((self.at, "it is cut short"))?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn take(&mut self, n: usize) -> Found<&'a [u8]> {
        let end = self
            .at
            .checked_add(n)
            .filter(|end| *end <= self.bytes.len())
            .ok_or((self.at, "it is cut short"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Seven bits a byte, the lowest first.
    pub(super) fn varint(&mut self) -> Found<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err((self.at, "a number is too long"))
    }

    fn zigzag(&mut self) -> Found<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A structure up to its end.
    pub(super) fn structure(&mut self) -> Found<Value<'a>> {
        self.value(12, 0)
    }

    fn value(&mut self, kind: u8, depth: usize) -> Found<Value<'a>> {
        if depth > DEEPEST {
            return Err((self.at, "its header is too deep"));
        }
        Ok(match kind {
            1 => Value::Bool(true),
            2 => Value::Bool(false),
            3 => Value::Whole(i64::from(self.byte()? as i8)),
            4..=6 => Value::Whole(self.zigzag()?),
            7 => {
                self.take(8)?;
                Value::Double
            }
            8 => {
                let size = self.varint()? as usize;
                Value::Bytes(self.take(size)?)
            }
            9 | 10 => {
                let head = self.byte()?;
                let size =
                    if head >> 4 == 15 { self.varint()? as usize } else { usize::from(head >> 4) };
                // Every element takes a byte or more, so a size beyond the bytes that are left is a
                // lie.
                if size > self.bytes.len() - self.at {
                    return Err((self.at, "a list is longer than the file"));
                }
                let element = |reader: &mut Self| match head & 0xf {
                    1 | 2 => Ok(Value::Bool(reader.byte()? == 1)),
                    kind => reader.value(kind, depth + 1),
                };
                Value::List((0..size).map(|_| element(self)).collect::<Found<_>>()?)
            }
            12 => {
                let (mut fields, mut id) = (Vec::new(), 0i16);
                loop {
                    let head = self.byte()?;
                    if head == 0 {
                        break Value::Struct(fields);
                    }
                    let step = head >> 4;
                    id = if step == 0 {
                        self.zigzag()? as i16
                    } else {
                        id.wrapping_add(i16::from(step))
                    };
                    fields.push((id, self.value(head & 0xf, depth + 1)?));
                }
            }
            _ => return Err((self.at, "a field is of no known kind")),
        })
    }
}
