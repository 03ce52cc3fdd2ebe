//! Sample the chain of a fair day, to compare with.

use std::collections::BTreeMap;

use consilience_core::protocol::{Device, Event, Ledger, exchange};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Sampler};

use super::Setup;

/// The chain without faults, by direct calls.
pub(super) struct FairDay {
    server: Box<dyn Sampler>,
    clients: Vec<Box<dyn Device>>,
    ledger: Ledger,
    /// The bits of the newest draws; older ones are not drawn again.
    draws: BTreeMap<u64, Vec<u64>>,
    drawn: u64,
}

impl FairDay {
    pub(super) fn new(setup: &Setup, public: Seed) -> Result<Self, String> {
        let b = setup.target.clients.len();
        let keys = |i: usize| Keys { public, private: secret(i) };
        let text = |e: consilience_core::error::DataError| e.to_string();
        let clients = (0..b)
            .map(|i| setup.recipe.client(&setup.target, ClientId(i as u32), keys(i)).map_err(text))
            .collect::<Result<_, _>>()?;
        let server = setup.recipe.server(&setup.target, &setup.start, keys(0)).map_err(text)?;
        Ok(FairDay { server, clients, ledger: Ledger::new(b), draws: BTreeMap::new(), drawn: 0 })
    }

    /// Compare a draw.
    pub(super) fn compare(&mut self, number: u64, position: &[f64]) -> Result<(), String> {
        while self.drawn <= number {
            if exchange(&mut *self.server, &mut self.clients, &mut self.ledger) == Event::Draw {
                self.draws.insert(self.drawn, bits(self.server.position()));
                self.drawn += 1;
                if self.drawn.is_multiple_of(1000) {
                    self.draws.retain(|k, _| k + 5000 > self.drawn);
                }
            }
        }
        match self.draws.get(&number) {
            Some(draw) if *draw == bits(position) => Ok(()),
            Some(_) => Err(format!("draw {number} is not the one of a fair day")),
            None => Err(format!("draw {number} is drawn again, where {} are", self.drawn)),
        }
    }
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// A client's own seed: in this world its entropy is known, so that there is a chain to compare
/// with.
fn secret(client: usize) -> Seed {
    Seed::from_bytes([client as u8 + 1; 32])
}
