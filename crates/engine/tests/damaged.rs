//! Files that are cut, flipped or made up give an error or a sound data set, never a panic, and
//! never more memory than their size accounts for.
#![allow(clippy::unwrap_used)] // a test may panic

use std::io::Write;

use allocation_counter::measure;
use consilience_engine::data::formats::{
    Labels, cifar, covtype, csv, idx, libsvm, npy, npz, parquet, unpack,
};
use consilience_engine::data::{Dataset, Table};
use proptest::prelude::*;
use proptest::test_runner::{Config as Settings, RngAlgorithm, TestRng, TestRunner};

/// What a reader does with bytes.
type Read = fn(&[u8]) -> Result<(), String>;

/// Every reader by its name: a sound file for it, and what it does with bytes.
fn readers() -> Vec<(&'static str, Vec<u8>, Read)> {
    let text = b"age;sex;dose;ill\n41;f;0.5;no\n63;m;1.5;yes\n57;m;?;no\n39;f;2;yes\n".to_vec();
    let numbers = b"age,dose,ill\n41,0.5,0\n63,1.5,1\n57,2,0\n39,2,1\n".to_vec();
    let sparse = b"-1 1:1 3:0.5\n+1 2:-2 # a remark\n\n+1 1:4\n-1\n".to_vec();
    let images = [vec![0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2], vec![7; 12]].concat();
    let record: Vec<u8> =
        (0..2u8).flat_map(|k| std::iter::once(k).chain((0..3072).map(|j| j as u8))).collect();
    let numbers16: Vec<u8> =
        (0..10i16).flat_map(|c| (0..2).flat_map(move |r| (c * 300 + r).to_le_bytes())).collect();
    let forest = [numbers16, vec![1, 4, 40, 1, 2, 1]].concat();
    let array = include_bytes!("../../../examples/arrays.npz").to_vec();
    let mut inner =
        b"\x93NUMPY\x01\0\x3a\0{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2)}\n"
            .to_vec();
    inner.extend([1.0f64, 2.0, 3.0, -4.0].iter().flat_map(|x| x.to_le_bytes()));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&numbers).unwrap();
    let gz = encoder.finish().unwrap();
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    encoder.write_all(&numbers).unwrap();
    let xz = encoder.finish().unwrap();
    vec![
        ("csv", text, |b| table(&csv_table(b)?)),
        ("csv of numbers", numbers, |b| sound(csv::parse(utf8(b)?, "f", "ill", &Labels::Found(2)))),
        ("libsvm", sparse.clone(), |b| sound(libsvm::parse(b, "f", Some(3), &Labels::Found(2)))),
        ("libsvm of any width", sparse, |b| sound(libsvm::parse(b, "f", None, &Labels::Numbers))),
        ("idx", images, |b| {
            sound(idx::parse(
                (b.to_vec(), "f"),
                (&[0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 1], "l"),
                &["a", "b"],
            ))
        }),
        ("idx labels", vec![0, 0, 8, 1, 0, 0, 0, 2, 0, 1], |b| {
            let images =
                [vec![0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1], vec![7; 2]].concat();
            sound(idx::parse((images, "f"), (b, "l"), &["a", "b"]))
        }),
        ("cifar", record, |b| sound(cifar::parse(b, "f", &["a", "b"]))),
        ("covtype", forest, |b| sound(covtype::parse(b, "f", &["a", "b"]))),
        ("npy", inner, |b| {
            npy::parse(b, "f")
                .map(|a| assert_eq!(a.shape.iter().product::<usize>(), a.cells.len()))
                .map_err(|e| e.to_string())
        }),
        ("npz", array, |b| {
            let arrays = npz::parse(b, "f").map_err(|e| e.to_string())?;
            assert!(arrays.iter().all(|(_, a)| a.cells.iter().all(|x| x.is_finite())));
            Ok(())
        }),
        ("parquet, snappy", include_bytes!("parquet/snappy.parquet").to_vec(), |b| {
            table(&parquet::parse(b, "f").map_err(|e| e.to_string())?)
        }),
        ("parquet, gzip, second version", include_bytes!("parquet/gzip.parquet").to_vec(), |b| {
            table(&parquet::parse(b, "f").map_err(|e| e.to_string())?)
        }),
        ("parquet, zstd", include_bytes!("parquet/zstd.parquet").to_vec(), |b| {
            table(&parquet::parse(b, "f").map_err(|e| e.to_string())?)
        }),
        ("parquet, dictionary", include_bytes!("parquet/dictionary.parquet").to_vec(), |b| {
            table(&parquet::parse(b, "f").map_err(|e| e.to_string())?)
        }),
        ("gz", gz, |b| unpack(b.to_vec(), "f.gz").map(|_| ()).map_err(|e| e.to_string())),
        ("xz", xz, |b| unpack(b.to_vec(), "f.xz").map(|_| ()).map_err(|e| e.to_string())),
    ]
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|e| e.to_string())
}

fn csv_table(bytes: &[u8]) -> Result<Table, String> {
    let text = utf8(bytes)?;
    let schema = csv::infer(text, "f").map_err(|e| e.to_string())?;
    Table::parse(text, "f", &schema).map_err(|e| e.to_string())
}

/// A table whose columns are equally long.
fn table(table: &Table) -> Result<(), String> {
    for spec in table.specs() {
        let (_, column) = table.column(&spec.name).unwrap();
        assert_eq!(column.rows(), table.rows());
    }
    Ok(())
}

/// A data set that a model can be made of: finite features, labels within the classes.
fn sound(
    read: Result<Dataset, consilience_engine::data::formats::FormatError>,
) -> Result<(), String> {
    let data = read.map_err(|error| {
        assert!(error.to_string().len() < 2000, "a message is for people");
        error.to_string()
    })?;
    assert!(data.rows() > 0 && !data.columns.is_empty());
    let classes = data.classes.as_ref().map_or(f64::INFINITY, |classes| classes.len() as f64);
    assert!(data.labels.iter().all(|label| label.is_finite() && *label < classes));
    for row in 0..data.rows() {
        assert!(data.entries(row).iter().all(|(column,
            value)| (*column as usize) < data.columns.len() && value.is_finite()));
    }
    Ok(())
}

/// The most memory that reading a file of so many bytes may take at once. A compressed file may
/// hold 64 MiB, an unpacked one a multiple of its own size: a cell is a byte of text at least, and
/// becomes a number, a name and a place.
fn most(name: &str, size: usize) -> u64 {
    let packed = ["gz", "xz", "npz", "parquet"].iter().any(|word| name.starts_with(word));
    (if packed { 3 * (64 << 20) } else { 1 << 16 }) + 400 * size as u64
}

fn check(name: &str, bytes: &[u8], read: Read) {
    let used = measure(|| drop(read(bytes)));
    assert!(
        used.bytes_max <= most(name, bytes.len()),
        "{name}: {} bytes of memory for a file of {}",
        used.bytes_max,
        bytes.len()
    );
}

#[test]
fn sound_files_are_read() {
    for (name, bytes, read) in readers() {
        read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        check(name, &bytes, read);
    }
}

#[test]
fn every_cut_and_every_flipped_byte_is_survived() {
    for (name, bytes, read) in readers() {
        // All places of small files, some thousand of greater ones.
        let step = bytes.len().div_ceil(1500);
        for at in (0..bytes.len()).step_by(step) {
            check(name, &bytes[..at], read);
            for flip in [0x01, 0x80, 0xff] {
                let mut wrong = bytes.clone();
                wrong[at] ^= flip;
                check(name, &wrong, read);
            }
        }
    }
}

/// Several changes at once, pieces left out, doubled and made up: the same cases on every machine.
#[test]
fn arbitrary_damage_is_survived() {
    let settings = Settings { cases: 400, failure_persistence: None, ..Settings::default() };
    let mut runner =
        TestRunner::new_with_rng(settings, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..6u8), 1..6);
    for (name, bytes, read) in readers() {
        runner
            .run(
                &(damage.clone(), prop::collection::vec(any::<u8>(), 0..64)),
                |(changes, made_up)| {
                    let mut wrong = bytes.clone();
                    for (place, by, what) in changes {
                        let at = place.index(wrong.len().max(1)).min(wrong.len().saturating_sub(1));
                        match what {
                            _ if wrong.is_empty() => {}
                            0 | 1 => wrong[at] ^= by,
                            2 => wrong[at] = by,
                            3 => drop(wrong.drain(at..(at + usize::from(by)).min(wrong.len()))),
                            4 => {
                                let piece =
                                    wrong[at..(at + usize::from(by)).min(wrong.len())].to_vec();
                                wrong.splice(at..at, piece);
                            }
                            _ => drop(wrong.splice(at..at, made_up.iter().copied())),
                        }
                    }
                    check(name, &wrong, read);
                    check(name, &made_up, read);
                    Ok(())
                },
            )
            .unwrap();
    }
}
