#![no_main]
use consilience_core::compress::code::Code;
use libfuzzer_sys::fuzz_target;

// the range coder, and Golomb-coded gaps
fuzz_target!(|data: &[u8]| consilience_fuzz::check(Code::Adaptive, data));
