#![no_main]
use consilience_core::compress::{CodeChoice, Compressor};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(compressor) = text.parse::<Compressor>() {
        assert_eq!(compressor.to_string().parse(), Ok(compressor));
    }
    if let Ok(choice) = text.parse::<CodeChoice>() {
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
});
