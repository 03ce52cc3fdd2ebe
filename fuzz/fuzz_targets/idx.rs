#![no_main]
use consilience_engine::data::formats::idx;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (images, labels) = data.split_at(data.len() / 2);
    if let Ok(read) = idx::parse((images.to_vec(), "i"), (labels, "l"), &["a", "b", "c"]) {
        consilience_fuzz::sound(&read);
    }
});
