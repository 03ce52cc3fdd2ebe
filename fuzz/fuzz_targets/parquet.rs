#![no_main]
use consilience_engine::data::formats::parquet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(table) = parquet::parse(data, "f") {
        for spec in table.specs() {
            assert!(
                table.column(&spec.name).is_some_and(|(_, column)| column.rows() == table.rows())
            );
        }
    }
});
