#![no_main]
use consilience_engine::data::Table;
use consilience_engine::data::formats::{Labels, csv};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(schema) = csv::infer(text, "f") else { return };
    let Ok(table) = Table::parse(text, "f", &schema) else { return };
    if let Some(last) = schema.columns.last()
        && let Ok(read) = csv::dataset(&table, &last.name, &Labels::Numbers)
    {
        consilience_fuzz::sound(&read);
    }
});
