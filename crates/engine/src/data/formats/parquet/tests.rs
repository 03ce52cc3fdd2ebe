use super::*;
use crate::data::Kind;

/// One table, written by pyarrow in several ways.
const WAYS: [(&str, &[u8]); 5] = [
    ("plain", include_bytes!("../../../../tests/parquet/plain.parquet")),
    ("dictionary", include_bytes!("../../../../tests/parquet/dictionary.parquet")),
    ("snappy", include_bytes!("../../../../tests/parquet/snappy.parquet")),
    ("gzip", include_bytes!("../../../../tests/parquet/gzip.parquet")),
    ("zstd", include_bytes!("../../../../tests/parquet/zstd.parquet")),
];

fn numbers<'a>(table: &'a Table, name: &str) -> &'a [Option<f64>] {
    let Some((_, Column::Number(cells))) = table.column(name) else {
        panic!("{name} is not a column of numbers")
    };
    cells
}

fn words(table: &Table, name: &str) -> Vec<Option<String>> {
    let Some((_, Column::Category(category))) = table.column(name) else {
        panic!("{name} is not a category")
    };
    category.cells.iter().map(|cell| cell.map(|k| category.levels[k].clone())).collect()
}

#[test]
fn a_table_is_the_same_however_it_was_written() {
    for (way, bytes) in WAYS {
        let table = parse(bytes, way).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(table.rows(), 10, "{way}");
        let age = [Some(41.5), None, Some(57.0), None, Some(63.25)];
        assert_eq!(numbers(&table, "age")[..5], age, "{way}: a null and a NaN are missing");
        assert_eq!(numbers(&table, "dose")[..4], [Some(1.0), Some(-2.0), Some(3.0), None], "{way}");
        assert_eq!(numbers(&table, "weight")[1..3], [Some(1.5), None], "{way}");
        assert_eq!(numbers(&table, "day")[9], Some(1e12 + 9.0), "{way}");
        assert_eq!(numbers(&table, "price")[..3], [Some(12.34), Some(-0.05), Some(0.0)], "{way}");
        assert_eq!(words(&table, "sex")[..3], [Some("f".into()), Some("m".into()), None], "{way}");
        assert_eq!(words(&table, "sex")[7], Some("größer".into()), "{way}");
        let smokes = words(&table, "smokes");
        assert_eq!(
            (smokes[0].as_deref(), smokes[1].as_deref(), smokes[4].as_deref()),
            (Some("1"), Some("0"), None),
            "{way}"
        );
        let kinds: Vec<&Kind> = table.specs().iter().map(|spec| &spec.kind).collect();
        assert_eq!(
            (kinds[3], kinds[4], kinds[5]),
            (&Kind::Binary, &Kind::Binary, &Kind::Number),
            "{way}"
        );
    }
}

#[test]
fn many_pages_and_row_groups_are_read_in_order() {
    let table = parse(include_bytes!("../../../../tests/parquet/many.parquet"), "many").unwrap();
    assert_eq!(table.rows(), 4000);
    let expected = |k: usize| (!k.is_multiple_of(11)).then_some((k % 300) as f64 / 8.0);
    assert!(numbers(&table, "a").iter().enumerate().all(|(k, cell)| *cell == expected(k)));
    assert!(
        numbers(&table, "b")
            .iter()
            .enumerate()
            .all(|(k, cell)| *cell == Some((k * k % 1009) as f64))
    );
    let colours = ["red", "green", "blue", "grey", "black"];
    assert!(
        words(&table, "c")
            .iter()
            .enumerate()
            .all(|(k, word)| word.as_deref() == Some(colours[k * k % 5]))
    );
}

#[test]
fn what_cannot_be_read_is_named() {
    let says = |bytes: &[u8], part: &str| {
        let error = parse(bytes, "a.parquet").unwrap_err().to_string();
        assert!(error.starts_with("a.parquet") && error.contains(part), "{error}");
    };
    says(
        include_bytes!("../../../../tests/parquet/lz4.parquet"),
        "column `age`: it is compressed by LZ4: write it with snappy",
    );
    says(
        include_bytes!("../../../../tests/parquet/delta.parquet"),
        "column `day`: it is written in the encoding DELTA_BINARY_PACKED",
    );
    says(include_bytes!("../../../../tests/parquet/nested.parquet"), "column list: nested values");
    says(b"a,b\n1,2\n3,4\n", "found `a,b\\n` where PAR1 is expected");
    says(&WAYS[0].1[..WAYS[0].1.len() - 1], "cut short");
    says(b"PAR1\x00\x00\xff\xff\x00\x00PAR1", "footer is longer than the file");
    says(b"PAR1\x00\x01\x00\x00\x00PAR1", "no rows");
}

#[test]
fn small_files_that_state_great_sizes_are_refused() {
    // Six million times the same number, in a few runs.
    let bomb = include_bytes!("../../../../tests/parquet/bomb.parquet");
    assert!(matches!(parse(bomb, "a.parquet"), Err(FormatError::Expands { .. })));
    // The number of rows of the file, of its row group and of every page, made great: 10 is zigzag
    // 20.
    let wrong: Vec<u8> = WAYS[1].1.to_vec();
    let footer = wrong.len()
        - 8
        - u32::from_le_bytes(wrong[wrong.len() - 8..wrong.len() - 4].try_into().unwrap()) as usize;
    for at in footer..wrong.len() {
        let mut wrong = wrong.clone();
        if wrong[at] == 20 {
            wrong[at] = 127;
        }
        // whatever it says, it neither panics nor fills the memory
        let _ = parse(&wrong, "a.parquet");
    }
    assert!(page::hybrid(&[0xfe, 0xff, 0xff, 0xff, 0x0f, 1], 1, 5).unwrap() == [1; 5]);
    assert!(page::hybrid(&[3, 0b1010_1010], 1, 7).unwrap() == [0, 1, 0, 1, 0, 1, 0]);
    assert!(
        page::hybrid(&[3], 1, 7).is_err()
            && page::hybrid(&[0, 0], 1, 1).is_err()
            && page::hybrid(&[2], 40, 1).is_err()
    );
    assert!(page::hybrid(&[3, 0x88, 0xc6, 0xfa], 3, 8).unwrap() == [0, 1, 2, 3, 4, 5, 6, 7]);
}
