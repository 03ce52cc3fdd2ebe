#![no_main]
use consilience_engine::data::formats::cifar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(read) = cifar::parse(data, "f", &["a", "b", "c"]) {
        consilience_fuzz::sound(&read);
    }
});
