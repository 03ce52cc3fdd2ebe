//! Keep what a chain leaves behind while it runs: its draws, and what is recorded beside them.

use consilience_core::protocol::{Direction, Event, Ledger};
use consilience_core::sampler::Sampler;
use consilience_core::snapshot::{SnapshotError, State, Visit};

use crate::config::RunConfig;
use crate::draws::DrawSink;
use crate::plan::Plan;
use crate::run::{Chain, MOST_NOTED, Note, RunError};

/// What a chain leaves behind while it runs.
#[derive(Debug)]
pub struct Trail {
    sink: DrawSink,
    notes: Vec<Note>,
    /// How many draws there were, and how many were kept.
    draws: u64,
    kept: u64,
    outward: Vec<f64>,
}

impl Trail {
    /// A trail that keeps its draws there.
    pub fn new(sink: DrawSink, dim: usize) -> Self {
        Trail { sink, notes: Vec::new(), draws: 0, kept: 0, outward: vec![0.0; dim] }
    }

    /// Take note of what an exchange of chain `index` led to.
    pub fn follow(
        &mut self,
        (plan, run, index): (&Plan, &RunConfig, usize),
        event: Event,
        server: &dyn Sampler,
        (participants, gradients): (usize, Option<u64>),
        ledger: &Ledger,
    ) -> Result<(), RunError> {
        match event {
            Event::Draw if server.iteration() > run.burn_in => {
                if self.draws.is_multiple_of(run.thin) {
                    self.kept += 1;
                    if self.kept <= MOST_NOTED || self.sink.is_held() {
                        self.notes.push(Note {
                            iteration: server.iteration(),
                            bits_up: ledger.total(Direction::Up),
                            bits_down: ledger.total(Direction::Down),
                            gradients,
                            participants,
                        });
                    }
                    match &plan.coordinates {
                        None => self.sink.push(server.position())?,
                        Some(coordinates) => {
                            coordinates.outward(server.position(), &mut self.outward);
                            self.sink.push(&self.outward)?;
                        }
                    }
                }
                self.draws += 1;
                Ok(())
            }
            Event::Diverged => Err(RunError::Diverged { chain: index + 1, iteration: server.iteration(), step: plan.step().largest() }),
            _ => Ok(()),
        }
    }

    /// The chain as it ended.
    pub fn end(self, ledger: Ledger, rows_evaluated: u64, iterations: u64) -> Chain {
        Chain { sink: self.sink, notes: self.notes, kept: self.kept, ledger, rows_evaluated, iterations, failure: None }
    }

    /// The draws so far, row by row, where they are in memory.
    pub fn so_far(&self) -> &[f64] {
        if let DrawSink::Memory(draws) = &self.sink { draws } else { &[] }
    }
}

/// Draws in memory; those that are streamed to disk are not saved here.
impl State for Trail {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a chain's draws")?;
        visit.number("the draws", &mut self.draws)?;
        visit.number("the draws kept", &mut self.kept)?;
        let mut bytes: Vec<u8> = self.so_far().iter().flat_map(|x| x.to_le_bytes()).collect();
        visit.bytes("the draws kept", &mut bytes)?;
        let mut noted: Vec<u8> = self.notes.iter().flat_map(Note::bytes).collect();
        visit.bytes("what stands beside draws", &mut noted)?;
        if visit.restores() {
            self.notes = noted.as_chunks::<{ Note::BYTES }>().0.iter().map(Note::read).collect();
            let draws = bytes.as_chunks::<8>().0.iter().map(|x| f64::from_le_bytes(*x)).collect();
            if let DrawSink::Memory(all) = &mut self.sink {
                *all = draws;
            }
        }
        Ok(())
    }
}
