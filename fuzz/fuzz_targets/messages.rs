#![no_main]
use consilience_core::compress::{Channel, CodeChoice, Compressor, Precision};
use consilience_core::protocol::wire::{OrderBuffer, ReplyBuffer, encode_order, encode_reply};
use consilience_core::protocol::{Format, Task};
use consilience_core::rng::ClientId;
use libfuzzer_sys::fuzz_target;

// Orders and replies, plain and compressed: bytes are refused, or are the one encoding of what they
// say.
fuzz_target!(|data: &[u8]| {
    let channel = Channel::new(Compressor::qsgd(5), CodeChoice::Auto, 4).expect("four coordinates");
    let plain = Format::plain(4, Precision::F32);
    let coded = Format { up: vec![Some(channel)], down: Some(channel), ..plain.clone() };
    for format in [plain, coded] {
        let mut buffer = OrderBuffer::default();
        if let Ok(order) = buffer.decode(data, &format) {
            let mut again = Vec::new();
            encode_order(&order, &mut again);
            assert_eq!(again, data);
        }
        let nodes = Task::Nodes { points: 2 };
        for task in [Task::Estimate, Task::Walk { steps: 3 }, Task::Gradient, Task::Value, nodes] {
            let mut buffer = ReplyBuffer::default();
            if let Ok(reply) = buffer.decode(data, task, &format, ClientId(0)) {
                let mut again = Vec::new();
                encode_reply(&reply, &mut again);
                assert_eq!(again, data);
            }
        }
    }
});
