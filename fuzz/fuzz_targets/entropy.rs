#![no_main]
use consilience_core::compress::code::Code;
use libfuzzer_sys::fuzz_target;

// one of 256 laws
fuzz_target!(|data: &[u8]| consilience_fuzz::check_long(Code::Entropy, data));
