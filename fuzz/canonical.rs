//! What every decoder must do with every input.

use consilience_core::compress::code::Code;
use consilience_core::compress::{Compressor, Message, rows};

/// The compressors of the registry; the first byte of an input chooses.
pub fn compressor(choice: u8) -> Compressor {
    let all: Vec<&str> = rows().flat_map(|row| row.examples).copied().collect();
    let text = all[usize::from(choice) % all.len()];
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// No panic; what is accepted is the one encoding of what it says, and no larger than agreed on.
pub fn check(code: Code, data: &[u8]) {
    let [choice, length, bytes @ ..] = data else { return };
    check_at(code, compressor(*choice), usize::from(*length), bytes);
}

/// The same for vectors of 512 coordinates and more.
pub fn check_long(code: Code, data: &[u8]) {
    let [choice, length, bytes @ ..] = data else { return };
    let levels = 16 + u32::from(*choice);
    check_at(code, Compressor::qsgd(levels), 512 + 16 * usize::from(*length), bytes);
}

fn check_at(code: Code, compressor: Compressor, dimension: usize, bytes: &[u8]) {
    let mut message = Message::new();
    if code.decode(bytes, &compressor, dimension, &mut message).is_ok() {
        let mut again = Vec::new();
        let bits = code.encode(&message, &mut again);
        assert_eq!(again, bytes, "{compressor} {code}");
        assert_eq!(bits, code.length_bits(&message));
        assert!(
            message.levels().len() <= dimension
                && message.indices().len() <= dimension
                && message.values().len() <= dimension
        );
    }
}

/// Check that a data set that was read is sound: finite features in their columns, labels within
/// the classes.
pub fn sound(data: &consilience_engine::data::Dataset) {
    assert!(data.rows() > 0 && !data.columns.is_empty());
    let classes = data.classes.as_ref().map_or(f64::INFINITY, |classes| classes.len() as f64);
    assert!(data.labels.iter().all(|label| label.is_finite() && *label < classes));
    for row in 0..data.rows() {
        assert!(data.entries(row).iter().all(|(column,
            value)| (*column as usize) < data.columns.len() && value.is_finite()));
    }
}
