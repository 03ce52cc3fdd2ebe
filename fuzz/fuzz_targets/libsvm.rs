#![no_main]
use consilience_engine::data::formats::{Labels, libsvm};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for dimension in [None, Some(8)] {
        if let Ok(read) = libsvm::parse(data, "f", dimension, &Labels::Numbers) {
            consilience_fuzz::sound(&read);
        }
    }
});
