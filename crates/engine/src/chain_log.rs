//! Keep what a chain leaves behind while it runs: its draws, and what is recorded beside them.

use consilience_core::protocol::{Direction, Event, Ledger};
use consilience_core::sampler::Sampler;
use consilience_core::snapshot::{SnapshotError, State, Visit};

use crate::draws::DrawSink;
use crate::models::ParameterGroup;
use crate::plan::Plan;
use crate::run::{Chain, Length, MOST_NOTED, RunError, width};
use crate::store::{Disk, Extent, StoreError};

/// What an exchange led to, wherever its chain runs.
pub(crate) struct Moment<'a> {
    /// The plan, how long the chain is, and which it is.
    pub(crate) about: (&'a Plan, &'a Length, usize),
    pub(crate) event: Event,
    pub(crate) server: &'a dyn Sampler,
    pub(crate) participants: usize,
    pub(crate) ledger: &'a Ledger,
}

/// The layer of the first parameter that is no finite number, else of the largest.
pub(crate) fn layer_that_left(layers: &[ParameterGroup], x: &[f64]) -> Option<String> {
    let size = |k: &usize| if x[*k].is_finite() { x[*k].abs() } else { f64::INFINITY };
    // of several that are largest the last is found: so from behind
    let worst = (0..x.len()).rev().max_by(|a, b| size(a).total_cmp(&size(b)))?;
    layers.iter().find(|group| group.range.contains(&worst)).map(|group| group.layer.clone())
}

impl Moment<'_> {
    /// Count the draws and those that are kept. One that is kept is given to `keep`, in the
    /// parameters' own coordinates and on their natural scale, behind the numbers that stand beside
    /// it; these are none where there are too many draws: `held` says whether draws are in memory.
    pub(crate) fn follow(
        &self,
        (draws, kept): (&mut u64, &mut u64),
        held: bool,
        outward: &mut [f64],
        gradients: impl FnOnce() -> Option<u64>,
        keep: impl FnOnce(&[f64], &[f64]) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let (plan, run, index) = self.about;
        let iteration = self.server.iteration();
        if let (Event::Diverged, Some(why)) = (self.event, self.server.refusal()) {
            return Err(RunError::NoDraws { why });
        }
        if self.event == Event::Diverged {
            return Err(RunError::Diverged {
                chain: index + 1,
                iteration,
                step: plan.step().largest(),
                layer: layer_that_left(&plan.layers, self.server.position()),
            });
        }
        if self.event != Event::Draw || iteration <= run.burn_in {
            return Ok(());
        }
        *draws += 1;
        if !(*draws - 1).is_multiple_of(run.thin) {
            return Ok(());
        }
        *kept += 1;
        let mut numbers = [0.0; MOST_NUMBERS];
        let own = [
            iteration as f64,
            self.ledger.total(Direction::Up) as f64,
            self.ledger.total(Direction::Down) as f64,
            gradients().map_or(f64::NAN, |n| n as f64),
            self.participants as f64,
        ];
        let all = own.iter().chain(self.server.numbers());
        numbers.iter_mut().zip(all).for_each(|(place, number)| *place = *number);
        let noted = if *kept <= MOST_NOTED || held { width(plan).min(MOST_NUMBERS) } else { 0 };
        match &plan.coordinates {
            None if plan.target.transforms.is_empty() => {
                return keep(&numbers[..noted], self.server.position());
            }
            None => outward.copy_from_slice(self.server.position()),
            Some(coordinates) => coordinates.outward(self.server.position(), outward),
        }
        plan.target.transforms.outward(outward);
        keep(&numbers[..noted], outward)
    }
}

/// The most numbers that stand beside a draw: no sampler has more.
const MOST_NUMBERS: usize = 16;

/// How many draws are recent.
const RECENT: usize = 1000;

/// What a chain leaves behind while it runs.
#[derive(Debug)]
pub struct ChainLog {
    sink: DrawSink,
    numbers: Vec<f64>,
    /// How many draws there were, and how many were kept.
    draws: u64,
    kept: u64,
    outward: Vec<f64>,
    /// How much of the draws, and of what stands beside them, is in files of a disk.
    filed: [Extent; 2],
}

/// The names of these files.
const FILES: [&str; 2] = ["server.draws", "server.notes"];

impl ChainLog {
    /// A chain_log that keeps its draws there.
    pub fn new(sink: DrawSink, dim: usize) -> Self {
        ChainLog {
            sink,
            numbers: Vec::new(),
            draws: 0,
            kept: 0,
            outward: vec![0.0; dim],
            filed: [Extent::default(); 2],
        }
    }

    /// Take note of what an exchange of a chain led to: the plan, how long it is, and which chain.
    pub fn follow(
        &mut self,
        about: (&Plan, &Length, usize),
        event: Event,
        server: &dyn Sampler,
        (participants, gradients): (usize, Option<u64>),
        ledger: &Ledger,
    ) -> Result<(), RunError> {
        let ChainLog { sink, numbers, draws, kept, outward, .. } = self;
        let moment = Moment { about, event, server, participants, ledger };
        moment.follow(
            (draws, kept),
            sink.is_held(),
            outward,
            || gradients,
            |noted, draw| {
                numbers.extend_from_slice(noted);
                sink.push(draw)
            },
        )
    }

    /// The chain as it ended.
    pub fn end(
        self,
        ledger: Ledger,
        rows_evaluated: u64,
        iterations: u64,
        shortened: &[u64],
    ) -> Chain {
        Chain {
            sink: self.sink,
            numbers: self.numbers,
            kept: self.kept,
            ledger,
            rows_evaluated,
            iterations,
            shortened: shortened.to_vec(),
            failure: None,
        }
    }

    /// The draws so far, row by row, where they are in memory.
    pub fn so_far(&self) -> &[f64] {
        if let DrawSink::Memory(draws) = &self.sink { draws } else { &[] }
    }

    /// What the sampler says of its last draws, on average, by the names that it gives.
    pub(crate) fn recently(&self, plan: &Plan) -> Vec<(&'static str, f64)> {
        let width = width(plan).min(MOST_NUMBERS);
        let names = plan.recipe.family().numbers();
        let first = (self.numbers.len() / width).saturating_sub(RECENT) * width;
        let rows = self.numbers[first..].chunks_exact(width);
        if rows.len() == 0 {
            return Vec::new();
        }
        let own = width - names.len();
        let mean = |k: usize| rows.clone().map(|row| row[own + k]).sum::<f64>() / rows.len() as f64;
        names.iter().enumerate().map(|(k, name)| (*name, mean(k))).collect()
    }
}

impl ChainLog {
    /// Append to files what they lack of the draws in memory and of what stands beside them:
    /// durable on return.
    pub(crate) fn file(&mut self, disk: &mut dyn Disk) -> Result<(), StoreError> {
        let draws = if let DrawSink::Memory(draws) = &self.sink { &draws[..] } else { &[] };
        for ((extent, name), all) in self.filed.iter_mut().zip(FILES).zip([draws, &self.numbers]) {
            extent.append(disk, name, all)?;
        }
        Ok(())
    }

    /// Read these files as far as the state that was restored says.
    pub(crate) fn recall(&mut self, disk: &mut dyn Disk) -> Result<(), StoreError> {
        let [draws, numbers] = self.filed;
        let (draws, numbers) = (draws.read(disk, FILES[0])?, numbers.read(disk, FILES[1])?);
        self.numbers = numbers;
        if let DrawSink::Memory(all) = &mut self.sink {
            *all = draws;
        }
        Ok(())
    }

    /// All that it leaves behind, whatever of it is in files: to compare with another's.
    pub(crate) fn left_behind(&self) -> Vec<u8> {
        let counts = [self.draws, self.kept].into_iter().flat_map(u64::to_le_bytes);
        let numbers = self.so_far().iter().chain(&self.numbers);
        counts.chain(numbers.flat_map(|x| x.to_le_bytes())).collect()
    }
}

/// Draws in memory are in files of their own (`ChainLog::file`), and here it is said how much of
/// them; those that are streamed to disk are not saved.
impl State for ChainLog {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a chain's draws")?;
        visit.number("the draws", &mut self.draws)?;
        visit.number("the draws kept", &mut self.kept)?;
        self.filed.iter_mut().try_for_each(|extent| extent.state(visit))
    }
}
