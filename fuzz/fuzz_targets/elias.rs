#![no_main]
use consilience_core::compress::code::{Code, Integer, Layout};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for integer in [Integer::Gamma, Integer::Delta, Integer::Omega] {
        for layout in [Layout::Sparse, Layout::Dense] {
            consilience_fuzz::check(Code::Elias(integer, layout), data);
        }
    }
});
