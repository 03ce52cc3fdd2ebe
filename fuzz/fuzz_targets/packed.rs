#![no_main]
use consilience_engine::data::formats::unpack;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for name in ["f.gz", "f.xz"] {
        if let Ok(content) = unpack(data.to_vec(), name) {
            assert!(content.len() as u64 <= (64 << 20).max(200 * data.len() as u64));
        }
    }
});
