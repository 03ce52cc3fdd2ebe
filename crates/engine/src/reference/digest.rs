//! Hash a target by what it says at fixed points.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Model, Prior};
use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_core::target::{Placement, Target};
use sha2::{Digest, Sha256};

/// How far from 0 the points lie: near it every row has its say, farther out the rows' shapes
/// differ.
const SCALES: [f64; 4] = [0.0, 0.01, 0.1, 1.0];

/// The hash of a target, in 64 hexadecimal digits: SHA-256 of its dimension, its temperature, and
/// the bits of `U` and `grad U` at four points that are the same for all targets.
///
/// Rows, prior and model are in these numbers, names and the way to the posterior are not. The same
/// rows dealt to other clients are summed in another order, and so may have another hash; a change
/// of a row that is lost in the rounding of these sums has the same, as it has the same posterior.
pub fn digest(target: &Target) -> String {
    let d = target.dim();
    let mut hash = Sha256::new();
    hash.update((d as u64).to_le_bytes());
    hash.update(target.temperature.to_bits().to_le_bytes());
    let mut gradient = vec![0.0; d];
    for (place, scale) in (0..).zip(SCALES) {
        let mut point = vec![0.0; d];
        Seed::new(0).stream(Purpose::Data, SERVER, place).normals(&mut point);
        point.iter_mut().for_each(|x| *x *= scale);
        target.gradient(&point, &mut gradient);
        for number in gradient.iter().chain([&target.value(&point)]) {
            hash.update((number + 0.0).to_bits().to_le_bytes()); // -0 is 0
        }
    }
    hex(&hash.finalize())
}

/// The hash of one client's rows as they are coded: that of a target of them alone.
pub fn rows_digest(client: &Arc<dyn Model>) -> Result<String, DataError> {
    let alone = vec![Arc::clone(client)];
    Ok(digest(&Target::new(alone, Prior::Flat, Placement::Server, 1.0)?))
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
