#![no_main]
use consilience_engine::data::formats::npz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(arrays) = npz::parse(data, "f") {
        assert!(
            arrays
                .iter()
                .all(|(_, array)| array.shape.iter().product::<usize>() == array.cells.len())
        );
    }
});
