//! Write and read the part of Zarr v3 that draws need: groups of named arrays, one compressed chunk
//! each.
//!
//! The root repeats the metadata of everything below it ("consolidated"), so that ArviZ opens a
//! store with one read and no warning. Readers in Python want that block sorted by depth and name,
//! and every group in it with an empty block of its own.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::RunDirError;

/// Draws look random to a compressor: what there is to gain is gained at once.
const LEVEL: u32 = 1;
/// What a folder's metadata is called.
const METADATA: &str = "zarr.json";

/// What an array holds, row-major.
#[derive(Debug)]
pub(super) enum ArrayValues {
    Floats(Vec<f64>),
    Integers(Vec<i64>),
    Words(Vec<String>),
}

/// A named array with named dimensions.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) dims: Vec<(&'static str, usize)>,
    pub(super) cells: ArrayValues,
    /// What people call it.
    pub(super) title: Option<String>,
}

/// Arrays that belong together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) variables: Vec<Variable>,
}

impl Variable {
    /// `0, 1, ..., n - 1` along a dimension of the same name.
    pub(super) fn index(name: &'static str, n: usize) -> Self {
        Variable {
            name: name.into(),
            dims: vec![(name, n)],
            cells: ArrayValues::Integers((0..n as i64).collect()),
            title: None,
        }
    }

    fn metadata(&self) -> Value {
        let (kind, fill, first) = match self.cells {
            ArrayValues::Floats(_) => ("float64", json!("NaN"), bytes_codec()),
            ArrayValues::Integers(_) => ("int64", json!(0), bytes_codec()),
            ArrayValues::Words(_) => ("string", json!(""), json!({ "name": "vlen-utf8" })),
        };
        let shape: Vec<usize> = self.dims.iter().map(|(_, n)| *n).collect();
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": kind,
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk(&shape) } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": fill,
            "codecs": [first, { "name": "gzip", "configuration": { "level": LEVEL } }],
            "attributes": self.title.as_ref().map_or_else(|| json!({}),
            |title| json!({ "long_name": title })),
            "dimension_names": self.dims.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        })
    }

    fn write(&self, folder: &Path, metadata: &Value) -> Result<(), RunDirError> {
        put(&folder.join(METADATA), pretty(metadata).as_bytes())?;
        if self.dims.iter().any(|(_, n)| *n == 0) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        match &self.cells {
            ArrayValues::Floats(cells) => cells.iter().for_each(|x| bytes.extend(x.to_le_bytes())),
            ArrayValues::Integers(cells) => {
                cells.iter().for_each(|x| bytes.extend(x.to_le_bytes()))
            }
            ArrayValues::Words(words) => {
                bytes.extend((words.len() as u32).to_le_bytes());
                for word in words {
                    bytes.extend((word.len() as u32).to_le_bytes());
                    bytes.extend(word.as_bytes());
                }
            }
        }
        let file = chunk_file(folder, self.dims.len());
        let mut packer = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        let packed = packer
            .write_all(&bytes)
            .and_then(|()| packer.finish())
            .map_err(RunDirError::at(&file))?;
        put(&file, &packed)
    }
}

fn bytes_codec() -> Value {
    json!({ "name": "bytes", "configuration": { "endian": "little" } })
}

/// One chunk holds everything; it cannot be empty, even where the array is.
fn chunk(shape: &[usize]) -> Vec<usize> {
    shape.iter().map(|n| (*n).max(1)).collect()
}

fn chunk_file(folder: &Path, dims: usize) -> PathBuf {
    (0..dims).fold(folder.join("c"), |path, _| path.join("0"))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Write a file and the folders above it.
pub(super) fn put(file: &Path, bytes: &[u8]) -> Result<(), RunDirError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, bytes))
        .map_err(RunDirError::at(file))
}

/// Write a store.
pub(super) fn write(root: &Path, attributes: &Value, groups: &[Group]) -> Result<(), RunDirError> {
    let group = |consolidated: Option<Value>| {
        let mut metadata =
            json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes });
        if let Some(block) = consolidated {
            metadata["consolidated_metadata"] = block;
        }
        metadata
    };
    let mut nodes: Vec<(usize, String, Value)> = Vec::new();
    for part in groups {
        put(&root.join(part.name).join(METADATA), pretty(&group(None)).as_bytes())?;
        let empty = json!({ "kind": "inline", "must_understand": false, "metadata": {} });
        nodes.push((1, part.name.to_owned(), group(Some(empty))));
        for variable in &part.variables {
            let metadata = variable.metadata();
            variable.write(&root.join(part.name).join(&variable.name), &metadata)?;
            nodes.push((2, format!("{}/{}", part.name, variable.name), metadata));
        }
    }
    nodes.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    // By hand, since a JSON map would sort its keys by the alphabet alone.
    let lines: Vec<String> = nodes
        .iter()
        .map(|(_, path, metadata)| format!("{}: {metadata}", Value::from(path.as_str())))
        .collect();
    let text = format!(
        "{{\n\"zarr_format\": 3,\n\"node_type\": \"group\",\n\
         \"attributes\": {attributes},\n\
         \"consolidated_metadata\": {{\n\"kind\": \"inline\",\n\
         \"must_understand\": false,\n\"metadata\": {{\n{}\n}}}}}}\n",
        lines.join(",\n")
    );
    put(&root.join(METADATA), text.as_bytes())
}

/// Read an array of numbers that [`write`] wrote, with so many dimensions: its shape and its cells.
pub(super) fn read<const N: usize>(folder: &Path) -> Result<([usize; N], Vec<f64>), RunDirError> {
    let file = folder.join(METADATA);
    let text = std::fs::read_to_string(&file).map_err(RunDirError::at(&file))?;
    let metadata: Value =
        serde_json::from_str(&text).map_err(|e| RunDirError::malformed(&file, e.to_string()))?;
    let wrong = |what: &str| {
        RunDirError::malformed(
            &file,
            format!("{what} is {}, which this program does not write", metadata[what]),
        )
    };
    let list = |value: &Value| {
        value
            .as_array()?
            .iter()
            .map(|n| usize::try_from(n.as_u64()?).ok())
            .collect::<Option<Vec<usize>>>()
    };
    let shape: [usize; N] = list(&metadata["shape"])
        .and_then(|shape| shape.try_into().ok())
        .ok_or_else(|| wrong("shape"))?;
    if metadata["data_type"] != "float64" {
        return Err(wrong("data_type"));
    }
    if list(&metadata["chunk_grid"]["configuration"]["chunk_shape"]) != Some(chunk(&shape)) {
        return Err(wrong("chunk_grid"));
    }
    if metadata["codecs"].as_array().is_none_or(|codecs| {
        codecs.len() != 2 || codecs[0] != bytes_codec() || codecs[1]["name"] != "gzip"
    }) {
        return Err(wrong("codecs"));
    }
    let size = shape
        .iter()
        .try_fold(8usize, |size, n| size.checked_mul(*n))
        .ok_or_else(|| wrong("shape"))?;
    if size == 0 {
        // Nothing on the disk vouches for such a shape.
        return if shape.iter().all(|n| *n <= 1 << 20) {
            Ok((shape, Vec::new()))
        } else {
            Err(wrong("shape"))
        };
    }
    let file = chunk_file(folder, N);
    let packed = std::fs::File::open(&file).map_err(RunDirError::at(&file))?;
    let mut bytes = Vec::new();
    GzDecoder::new(packed)
        .take(size as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(RunDirError::at(&file))?;
    if bytes.len() != size {
        let found = if bytes.len() > size { "more".into() } else { bytes.len().to_string() };
        return Err(RunDirError::malformed(
            &file,
            format!("it holds {found} bytes where its shape {shape:?} has {size}"),
        ));
    }
    Ok((shape, bytes.as_chunks::<8>().0.iter().map(|x| f64::from_le_bytes(*x)).collect()))
}
