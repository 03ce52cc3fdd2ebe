#![no_main]
use consilience_engine::data::formats::npy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(array) = npy::parse(data, "f") {
        assert_eq!(array.shape.iter().product::<usize>(), array.cells.len());
    }
});
