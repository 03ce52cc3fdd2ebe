//! Take the steps of all clients' nets on a GPU, from one exchange to the next.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use consilience_core::ask::{Ask, Sum};
use consilience_core::model::net::{self, Activation, BLOCK, NetPlan, Seen, Tensor};
use consilience_core::model::{
    Arithmetic, ClientModels, EvaluationError, Evaluator, Model, Offers, Prior, Rows,
};
use consilience_core::rng::{Addresses, ClientId, Purpose, Seed};
use consilience_core::step::noise_scale;
use consilience_core::threads::{Threads, at_once};
use consilience_core::walk::{
    ControlVariate, Walk, WalkRoom, rows_of as minibatch_of, step_by_step,
};

use crate::args::{
    Conv, Dense, Image, Loss, Moment, Narrow, Norm, Party, Pass, Plain, Step, TABLE, bytes,
    bytes_mut,
};
use crate::board::{Board, Boards, Gpu, NARROW, Pool, Room};
use crate::shapes::{self, Cut};
use crate::{Device, DeviceError};

/// Threads of a block.
const THREADS: u32 = 128;
/// Coordinates whose steps a block takes.
const NORMALS: usize = 2048;
/// The same where the noise is drawn before.
const STEPS: usize = 512;
/// Weights of a convolution that a block sums, and rows of each at a time.
const ABREAST: u32 = 32;
const SLOTS: u32 = 8;
/// Rows are cut so that what lies between layers takes no more than this.
const MOST_ARENA: usize = 4 << 30;
/// Numbers of a sample of which none takes another one's place.
const MOST_APART: usize = 1 << 16;
/// So many steps beyond the first of them are taken by one kernel.
const TOGETHER: usize = 4;
/// Vectors up to this long share what one address of noise gives.
const SHORTEST: usize = 64;

/// The nets of all clients of a process, with their rows on a GPU: a model that answers all of them
/// in one call, and takes whole walks of theirs, with the bits of their own.
#[derive(Debug)]
pub struct Nets {
    plan: Arc<NetPlan>,
    layout: Layout,
    /// For what is not asked of the GPU.
    clients: Arc<ClientModels>,
    /// The first row of every client in the table.
    starts: Vec<u32>,
    boards: Box<dyn Boards>,
    table: Table,
    /// Whose memory the table is.
    _home: Mutex<Box<dyn Board>>,
}

#[derive(Clone, Copy, Debug)]
struct Table {
    rows: u64,
    labels: u64,
    numbers: u64,
    precision: f64,
}

impl Nets {
    /// The nets of these clients, which must be such, alike, and compute with 32 bits.
    pub fn new(device: &Device, clients: &[Arc<dyn Model>]) -> Result<Self, DeviceError> {
        Nets::on(Box::new(Gpu::new(&device.context)?), clients)
    }

    pub(crate) fn on(
        boards: Box<dyn Boards>,
        clients: &[Arc<dyn Model>],
    ) -> Result<Self, DeviceError> {
        let refuse = |why: &str| DeviceError::NoNets { why: why.into() };
        let nets: Option<Vec<&net::Net>> = clients.iter().map(|client| client.net()).collect();
        let nets = nets.filter(|nets| !nets.is_empty());
        let nets = nets.ok_or_else(|| refuse("the model is not a net, and only nets run there"))?;
        if nets.iter().any(|net| net.arithmetic() != Arithmetic::F32) {
            return Err(refuse("arithmetic = \"f64\" is not for GPUs"));
        }
        let plan = Arc::clone(nets[0].plan());
        if nets.iter().any(|net| net.plan().forth() != plan.forth()) {
            return Err(refuse("the clients' nets differ"));
        }
        let joined = ClientModels::new(clients.to_vec());
        let joined = joined.ok_or_else(|| refuse("the clients' nets differ"))?;
        let mut home = boards.board()?;
        let (mut starts, mut rows, width) = (Vec::new(), 0, plan.input().len());
        for client in clients {
            starts.push(rows as u32);
            rows += client.rows();
        }
        let at = home.allocate(rows * width * size_of::<f32>())?;
        for (net, (client, start)) in nets.iter().zip(clients.iter().zip(&starts)) {
            let mut inputs = vec![0.0; client.rows() * width];
            for (row, to) in inputs.chunks_exact_mut(width).enumerate() {
                net.input(row, to);
            }
            home.write(at + *start as u64 * (width * size_of::<f32>()) as u64, bytes(&inputs))?;
        }
        let mut table = Table { rows: at, labels: 0, numbers: 0, precision: 0.0 };
        let (mut labels, mut numbers) = (Vec::new(), Vec::new());
        for net in &nets {
            match net.seen() {
                Seen::Labels(some) => labels.extend_from_slice(some),
                Seen::Numbers(some, variance) => {
                    numbers.extend_from_slice(some);
                    table.precision = 1.0 / variance;
                }
            }
        }
        let mut keep = |bytes: &[u8]| -> Result<u64, DeviceError> {
            let at = home.allocate(bytes.len())?;
            home.write(at, bytes)?;
            Ok(at)
        };
        if !labels.is_empty() {
            table.labels = keep(bytes(&labels))?;
        }
        if !numbers.is_empty() {
            table.numbers = keep(bytes(&numbers))?;
        }
        home.read(at, &mut [0; 4])?; // everything has arrived
        let (clients, home) = (Arc::new(joined), Mutex::new(home));
        Ok(Nets { layout: Layout::new(&plan), plan, clients, starts, boards, table, _home: home })
    }
}

impl Model for Nets {
    fn dim(&self) -> usize {
        self.plan.dim()
    }

    fn clients(&self) -> usize {
        self.clients.clients()
    }

    fn rows(&self) -> usize {
        self.clients.rows()
    }

    fn rows_of(&self, client: ClientId) -> usize {
        self.clients.rows_of(client)
    }

    fn offers(&self) -> Offers {
        self.clients.offers()
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        let others = Arc::clone(&self.clients).evaluator();
        let board = self.boards.board().map_err(Some);
        Box::new(OnDevice { others, board, seats: Seats::default(), nets: self })
    }
}

/// What a GPU has for one chain.
#[derive(Debug)]
struct OnDevice {
    nets: Arc<Nets>,
    others: Box<dyn Evaluator>,
    board: Result<Box<dyn Board>, Option<DeviceError>>,
    seats: Seats,
}

#[derive(Debug, Default)]
struct Seats {
    arena: Room,
    sums: Room,
    noise: Room,
    weights: Room,
    slots: Room,
    rows: Room,
    counts: Room,
    x: Room,
    z: Room,
    base: Room,
    precision: Room,
    parties: Room,
    moments: Room,
    turn: Room,
    /// What the board's routine was learnt for.
    learnt: Vec<u8>,
    /// The prior whose precisions are there.
    prior: Option<Prior>,
    /// Whose reference points are there, and their marks.
    marks: Vec<(ClientId, u64)>,
    /// Whether they are one.
    together: bool,
    room: Vec<f32>,
}

/// A sum that is wanted.
struct Wanted<'a, 'b> {
    ask: Ask<'b>,
    x: &'a [f64],
    z: Option<&'a [f64]>,
}

impl Evaluator for OnDevice {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let d = self.nets.plan.dim();
        let (mut gradients, mut differences) = (Vec::new(), Vec::new());
        for ask in asks {
            match ask.sum {
                Sum::Gradient { .. } | Sum::Difference { .. } => {
                    for ask in ask.split(d) {
                        match ask.sum {
                            Sum::Difference { x, z } => {
                                differences.push(Wanted { ask, x, z: Some(z) });
                            }
                            sum => gradients.push(Wanted { x: sum.points(), z: None, ask }),
                        }
                    }
                }
                _ => self.others.answer(std::slice::from_mut(ask))?,
            }
        }
        let failed = |e: DeviceError| EvaluationError(Box::new(e));
        let board = open(&mut self.board)?;
        for wanted in [&mut gradients[..], &mut differences[..]] {
            if !wanted.is_empty() {
                self.seats.answer(&self.nets, board, wanted).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn walk(&mut self, walks: &mut [Walk<'_>], room: &mut WalkRoom) -> Result<(), EvaluationError> {
        if !walks.iter().all(stays_here) {
            return step_by_step(self, walks, room);
        }
        let board = open(&mut self.board)?;
        let alike = |a: &Walk<'_>, b: &Walk<'_>| {
            (a.from, a.steps, a.batch) == (b.from, b.steps, b.batch)
                && (a.schedule, a.temperature) == (b.schedule, b.temperature)
                && a.control.is_some() == b.control.is_some()
                && a.rows.is_some() == b.rows.is_some()
                && shared(a) == shared(b)
        };
        for walks in walks.chunk_by_mut(alike) {
            let failed = |e: DeviceError| EvaluationError(Box::new(e));
            self.seats.walk(&self.nets, board, walks).map_err(failed)?;
        }
        Ok(())
    }

    fn threads(&self) -> Option<&'static dyn Threads> {
        Some(&Pool)
    }
}

/// Whether a GPU can take these steps.
fn stays_here(walk: &Walk<'_>) -> bool {
    let prior = !matches!(walk.prior.0, Prior::Laws(_));
    let addressed = walk.x.len() > SHORTEST && walk.noise.addresses().is_some();
    prior && addressed && walk.pull.is_none()
}

fn shared(walk: &Walk<'_>) -> Option<(Seed, f64)> {
    walk.noise.addresses().map(|noise| noise.shared)
}

fn open(
    board: &mut Result<Box<dyn Board>, Option<DeviceError>>,
) -> Result<&mut dyn Board, EvaluationError> {
    match board {
        Ok(board) => Ok(&mut **board),
        Err(error) => Err(EvaluationError(match error.take() {
            Some(error) => Box::new(error),
            None => "the GPU failed before".into(),
        })),
    }
}

/// Rows that go through the net together: a multiple of eight that divides a block.
fn rows_at_a_time(stride: usize, seats: usize, most: usize) -> usize {
    let row = size_of::<f32>() * stride * seats;
    let mut each = BLOCK;
    while each > 8 && (each * row > MOST_ARENA || each / 2 >= most) {
        each /= 2;
    }
    each.min(most.max(1))
}

/// Where everything of a sample lies in its arena: what is between layers, and behind it rooms for
/// what it adds to gradients of parameters.
#[derive(Debug)]
struct Layout {
    places: Vec<Range<usize>>,
    /// The room of each step that has one, by its first parameter.
    rooms: Vec<(usize, usize)>,
    /// How many numbers there are.
    stride: usize,
    /// Whether nothing lies where something else was: then steps may be taken side by side.
    apart: bool,
}

impl Layout {
    fn new(plan: &NetPlan) -> Self {
        let apart = Layout::of(plan, usize::MAX);
        if apart.stride <= MOST_APART { apart } else { Layout::of(plan, TOGETHER) }
    }

    /// Numbers stay for so many steps beyond the last that touches them; for all: there is no end
    /// to it, and every room is another.
    fn of(plan: &NetPlan, longer: usize) -> Self {
        let (places, arena) = plan.places_for(longer);
        let apart = longer == usize::MAX;
        let (mut rooms, mut end) = (Vec::new(), arena);
        for step in plan.back() {
            let (p, numbers) = match step {
                net::Step::FrnSlopes { of, p, .. } | net::Step::GroupNormSlopes { of, p, .. } => {
                    (p, 2 * of.channels)
                }
                net::Step::ConvWeights { p, .. } => (p, p.weight.len() + p.bias.len()),
                _ => continue,
            };
            let start = if apart { end } else { arena };
            rooms.push((p.weight.from, start));
            end = end.max((start + numbers).next_multiple_of(4));
        }
        Layout { places, rooms, stride: end.next_multiple_of(4), apart }
    }

    fn room(&self, first: u32) -> u32 {
        let found = self.rooms.iter().find(|(parameter, _)| *parameter == first as usize);
        found.map_or(TABLE, |(_, at)| *at as u32)
    }
}

/// How far parameters of one point are from those of the next.
fn wide(plan: &NetPlan) -> usize {
    plan.dim().next_multiple_of(4)
}

impl Seats {
    /// Room for so many seats of so many samples.
    fn reserve(
        &mut self,
        nets: &Nets,
        board: &mut dyn Board,
        (seats, each, blocks, slots): (usize, usize, usize, usize),
    ) -> Result<(), DeviceError> {
        let (d, f) = (wide(&nets.plan), size_of::<f32>());
        self.arena.reserve(board, seats * each * nets.layout.stride * f)?;
        self.sums.reserve(board, blocks * seats * d * f)?;
        if self.weights.reserve(board, slots * d * f)? {
            self.marks.clear();
        }
        Ok(())
    }

    /// Gradients at points that are brought here, block by block of rows.
    fn answer(
        &mut self,
        nets: &Nets,
        board: &mut dyn Board,
        wanted: &mut [Wanted<'_, '_>],
    ) -> Result<(), DeviceError> {
        let plan = &*nets.plan;
        let points = if wanted[0].z.is_some() { 2 } else { 1 };
        let seats = wanted.len() * points;
        // Points that several parties ask about are brought once.
        let mut known: Vec<&[f64]> = Vec::new();
        let mut slots = Vec::with_capacity(seats);
        for one in &*wanted {
            for point in [Some(one.x), one.z].into_iter().flatten() {
                let same = |other: &&[f64]| std::ptr::eq(*other, point) || *other == point;
                slots.push(known.iter().position(same).unwrap_or_else(|| {
                    known.push(point);
                    known.len() - 1
                }) as u32);
            }
        }
        let rows: Vec<Vec<u32>> = wanted.iter().map(|one| nets.rows(&one.ask)).collect();
        let counts: Vec<u32> = rows.iter().map(|rows| rows.len() as u32).collect();
        let most = rows.iter().map(Vec::len).max().unwrap_or(0);
        let each = rows_at_a_time(nets.layout.stride, seats, most);
        self.reserve(nets, board, (seats, each, 1, known.len()))?;
        self.marks.clear(); // slots are taken
        for (slot, point) in known.iter().enumerate() {
            self.room.clear();
            self.room.extend(point.iter().map(|x| *x as f32));
            let to = (slot * wide(plan) * size_of::<f32>()) as u64;
            board.write(self.weights.at + to, bytes(&self.room))?;
        }
        let mut all = vec![0; most * rows.len()];
        for (to, rows) in all.chunks_exact_mut(most.max(1)).zip(&rows) {
            to[..rows.len()].copy_from_slice(rows);
        }
        let mut pass = self.pass(nets, (each, points, seats));
        pass.rows = self.rows.put(board, &all)?;
        pass.counts = self.counts.put(board, &counts)?;
        pass.slots = self.slots.put(board, &slots)?;
        pass.pitch = most as u32;
        self.room.resize(seats * wide(plan), 0.0);
        for block in (0..most).step_by(BLOCK) {
            for first in (block..most.min(block + BLOCK)).step_by(each) {
                (pass.first, pass.resume) = (first as u32, u32::from(first > block));
                Launcher { nets, board, pass }.run()?;
            }
            board.read(self.sums.at, bytes_mut(&mut self.room))?;
            for (one, sums) in wanted.iter_mut().zip(self.room.chunks_exact(points * wide(plan))) {
                if block >= rows_of(&one.ask, nets) {
                    continue;
                }
                let (at_x, at_z) = sums.split_at(wide(plan));
                widen(one.ask.scale, at_x, at_z, one.ask.out);
            }
        }
        Ok(())
    }

    /// Steps of parties that start where they are said to, and whose reference points may be here.
    fn walk(
        &mut self,
        nets: &Nets,
        board: &mut dyn Board,
        walks: &mut [Walk<'_>],
    ) -> Result<(), DeviceError> {
        let (plan, d) = (&*nets.plan, nets.plan.dim());
        let first = &walks[0];
        let points = if first.control.is_some() { 2 } else { 1 };
        let (parties, batch, steps) = (walks.len(), first.batch, first.steps as usize);
        let (from, schedule, temperature) = (first.from, first.schedule, first.temperature);
        let seats = parties * points;
        let each = rows_at_a_time(nets.layout.stride, seats, batch);
        let blocks = batch.div_ceil(BLOCK);
        self.reserve(nets, board, (seats, each, blocks, 2 * parties))?;
        let vector = d * size_of::<f64>();
        for room in [&mut self.x, &mut self.z, &mut self.base] {
            if room.reserve(board, parties * vector)? {
                self.marks.clear();
            }
        }
        self.bring_references(nets, board, walks)?;
        let starts: Vec<&[u8]> = walks.iter().map(|walk| bytes(walk.x)).collect();
        // behind an average all start from it, which is brought once
        let others = starts[1..].iter().collect();
        let same = at_once(&Pool, others, |other| *other == starts[0]).into_iter().all(|is| is);
        board.write_all(self.x.at, if same { vec![starts[0]] } else { starts })?;
        let order = self.slots.at + (seats * size_of::<u32>()) as u64;
        self.narrow(nets, board, self.x.at, (parties, same), order)?;
        let noises: Vec<Addresses> = walks.iter().filter_map(|w| w.noise.addresses()).collect();
        let people: Vec<Party> = (0u32..)
            .zip(walks.iter().zip(&noises))
            .map(|(k, (walk, noise))| Party {
                scale: walk.scale,
                prior: walk.prior.1,
                weight: walk.weight,
                shared: noise.shared.1,
                own: noise.own.1,
                key: noise.own.0.key(),
                client: walk.client.0,
                slot: k,
            })
            .collect();
        // Rows of all parties, step by step.
        let mut rows = Vec::with_capacity(steps * parties * batch);
        for step in 0..steps {
            for walk in &*walks {
                let start = nets.starts[walk.client.index()];
                match minibatch_of(walk.rows, batch, step as u64) {
                    Rows::Some(some) => rows.extend(some.iter().map(|row| start + row)),
                    Rows::All => rows.extend((0..batch as u32).map(|row| start + row)),
                }
            }
        }
        let mut pass = self.pass(nets, (each, points, seats));
        pass.rows = self.rows.put(board, &rows)?;
        pass.slots = self.slots.at;
        pass.counts = self.counts.put(board, &vec![batch as u32; parties])?;
        pass.pitch = batch as u32;
        let mut step = Step {
            x: self.x.at,
            z: if points == 2 { self.z.at } else { 0 },
            base: self.base.at,
            parties: self.parties.put(board, &people)?,
            sums: self.sums.at,
            weights: self.weights.at,
            key: noises[0].shared.0.key(),
            dim: d as u32,
            wide: wide(plan) as u32,
            seats: seats as u32,
            blocks: blocks as u32,
            apart: u32::from(!self.together),
            ..Step::default()
        };
        match walks[0].prior.0 {
            Prior::Gaussian(precision) => {
                if self.prior.as_ref() != Some(walks[0].prior.0) {
                    self.precision.put(board, precision)?;
                    self.prior = Some(walks[0].prior.0.clone());
                }
                step.precision = self.precision.at;
            }
            Prior::Laplace { scale } => step.laplace = *scale,
            Prior::Flat | Prior::Laws(_) => {}
        }
        if nets.layout.apart {
            let numbers = (parties + 1) * wide(plan);
            self.noise.reserve(board, numbers * size_of::<f32>())?;
            step.noise = self.noise.at;
        }
        let moments: Vec<Moment> = (from..from + steps as u64)
            .map(|number| {
                let size = schedule.at(number);
                let tag = number | ((Purpose::Noise as u64) << 56);
                Moment { tag, step: size, sigma: noise_scale(size, temperature) }
            })
            .collect();
        step.moments = self.moments.put(board, &moments)?;
        pass.turn = self.turn.put(board, &[0u32, 0])?;
        step.turn = pass.turn;
        pass.every = (parties * batch) as u32;
        // kernels of an iteration are the same in all of them, and often in the next walk
        let said = [bytes(&[pass]), bytes(&[step]), bytes(&[batch as u64])].concat();
        if self.learnt != said {
            self.learnt.clear();
            board.learn()?;
            let started = self.iteration(nets, board, (pass, step), batch);
            let learnt = board.learnt();
            started.and(learnt)?;
            self.learnt = said;
        }
        for _ in 0..steps {
            board.repeat()?;
        }
        let to = walks.iter_mut().map(|walk| bytes_mut(walk.x)).collect();
        board.read_all(self.x.at, to)
    }

    /// Start the kernels of one iteration of all parties.
    fn iteration(
        &self,
        nets: &Nets,
        board: &mut dyn Board,
        (mut pass, step): (Pass, Step),
        batch: usize,
    ) -> Result<(), DeviceError> {
        let (d, wide) = (step.dim as usize, u64::from(step.wide));
        let (apart, across) = (nets.layout.apart, d.div_ceil(NORMALS) as u32);
        let parties = pass.samples / pass.each / pass.points;
        if apart {
            let blocks = (across, parties + 1);
            board.aside(true)?;
            // SAFETY: the kernel takes a `Step`; there is room for the noise of every party, and of
            // everybody.
            unsafe { start(board, "step_noise", blocks, (THREADS, 0), step) }?;
            board.aside(false)?;
        }
        for block in 0..step.blocks as usize {
            let sums = block as u64 * u64::from(step.seats) * wide * size_of::<f32>() as u64;
            pass.sums = self.sums.at + sums;
            let block = block * BLOCK;
            for first in (block..batch.min(block + BLOCK)).step_by(pass.each as usize) {
                (pass.first, pass.resume) = (first as u32, u32::from(first > block));
                Launcher { nets, board, pass }.run()?;
            }
        }
        // it goes on when the noise is there, too: what was started aside has been waited for
        let (kernel, across) = match apart {
            true => ("step_taken", d.div_ceil(STEPS) as u32),
            false => ("step", across),
        };
        // SAFETY: the kernel takes a `Step`; every vector has `dim` numbers for each party, and no
        // thread touches one beyond.
        unsafe { start(board, kernel, (across, parties), (THREADS, 0), step) }
    }

    /// Reference points that are not here yet, and which seat has which parameters: a slot for
    /// every party, and behind these one for all reference points, or for each its own.
    fn bring_references(
        &mut self,
        nets: &Nets,
        board: &mut dyn Board,
        walks: &[Walk<'_>],
    ) -> Result<(), DeviceError> {
        let controls: Vec<_> =
            walks.iter().filter_map(|walk| Some((walk.client, walk.control?))).collect();
        let marks: Vec<_> = controls.iter().map(|(client, c)| (*client, c.mark())).collect();
        if !self.marks.is_empty() && self.marks == marks {
            return Ok(());
        }
        let (parties, vector) = (walks.len(), nets.plan.dim() * size_of::<f64>());
        let first = controls.first().map(|(_, first)| *first);
        let alike = |(_, c): &(ClientId, ControlVariate<'_>)| {
            first.is_some_and(|first| c.point == first.point && c.drift == first.drift)
        };
        self.together = controls.iter().all(alike);
        let apart = if self.together { controls.len().min(1) } else { parties };
        let slots: Vec<u32> = match controls.is_empty() {
            true => (0..parties as u32).collect(),
            false => (0..parties as u32)
                .flat_map(|k| [k, parties as u32 + if self.together { 0 } else { k }])
                .collect(),
        };
        // behind them, the slots of parties and of reference points in order
        let order = (0..(parties + apart) as u32).collect::<Vec<u32>>();
        self.slots.put(board, &[slots.clone(), order].concat())?;
        for (k, (_, control)) in controls.iter().take(apart).enumerate() {
            board.write(self.z.at + (k * vector) as u64, bytes(control.point))?;
            board.write(self.base.at + (k * vector) as u64, bytes(control.drift))?;
        }
        let order = self.slots.at + ((slots.len() + parties) * size_of::<u32>()) as u64;
        self.narrow(nets, board, self.z.at, (apart, false), order)?;
        self.marks = marks;
        Ok(())
    }

    /// So many vectors from `x` on into these slots, in 32 bits; all may be as the first one, which
    /// alone is there.
    fn narrow(
        &self,
        nets: &Nets,
        board: &mut dyn Board,
        x: u64,
        (count, same): (usize, bool),
        slots: u64,
    ) -> Result<(), DeviceError> {
        if count == 0 {
            return Ok(());
        }
        let (dim, wide) = (nets.plan.dim() as u32, wide(&nets.plan) as u32);
        let weights = self.weights.at;
        let narrow = Narrow { x, slots, weights, dim, wide, same: u32::from(same), unused: 0 };
        let blocks = (dim.div_ceil(THREADS), count as u32);
        // SAFETY: the kernel takes a `Narrow`; there are `dim` numbers at both ends of each.
        unsafe { start(board, NARROW, blocks, (THREADS, 0), narrow) }
    }

    fn pass(&self, nets: &Nets, (each, points, seats): (usize, usize, usize)) -> Pass {
        Pass {
            table: nets.table.rows,
            weights: self.weights.at,
            arena: self.arena.at,
            sums: self.sums.at,
            dim: wide(&nets.plan) as u32,
            stride: nets.layout.stride as u32,
            width: nets.plan.input().len() as u32,
            each: each as u32,
            points: points as u32,
            samples: (seats * each) as u32,
            ..Pass::default()
        }
    }
}

impl Nets {
    /// The rows of an ask, as they are numbered in the table.
    fn rows(&self, ask: &Ask<'_>) -> Vec<u32> {
        let start = self.starts[ask.client.index()];
        match ask.rows {
            Rows::All => (start..start + self.rows_of(ask.client) as u32).collect(),
            Rows::Some(rows) => rows.iter().map(|row| start + row).collect(),
        }
    }
}

fn rows_of(ask: &Ask<'_>, nets: &Nets) -> usize {
    ask.rows.count(nets.rows_of(ask.client))
}

/// `out += scale * (at_x - at_z)`, or without the latter, where it is empty.
fn widen(scale: f64, at_x: &[f32], at_z: &[f32], out: &mut [f64]) {
    if at_z.is_empty() {
        for (out, x) in out.iter_mut().zip(at_x) {
            *out += scale * f64::from(*x);
        }
        return;
    }
    for ((out, x), z) in out.iter_mut().zip(at_x).zip(at_z) {
        *out += scale * (f64::from(*x) - f64::from(*z));
    }
}

/// Start a kernel that takes these arguments.
///
/// # Safety
///
/// That of [`Board::launch`].
unsafe fn start<T: Plain>(
    board: &mut dyn Board,
    kernel: &'static str,
    blocks: (u32, u32),
    threads: (u32, u32),
    arguments: T,
) -> Result<(), DeviceError> {
    // SAFETY: the caller's.
    unsafe { board.launch(kernel, blocks, threads, bytes(std::slice::from_ref(&arguments))) }
}

/// Starts the kernels of one pass of all samples, forth and back.
struct Launcher<'a> {
    nets: &'a Nets,
    board: &'a mut dyn Board,
    pass: Pass,
}

impl Launcher<'_> {
    fn run(&mut self) -> Result<(), DeviceError> {
        let plan = Arc::clone(&self.nets.plan);
        let mut forth = plan.forth();
        while !forth.is_empty() {
            forth = &forth[self.forth(forth)?..];
        }
        self.turn()?;
        let back = plan.back();
        let mut at = 0;
        while at < back.len() {
            at += self.back(&back[at..])?;
        }
        if self.nets.layout.apart { self.board.join() } else { Ok(()) }
    }

    /// Start what nothing waits for before all is done: gradients of parameters.
    fn beside(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if !self.nets.layout.apart {
            return work(self);
        }
        self.board.aside(true)?;
        work(self)?;
        self.board.aside(false)
    }

    fn place(&self, tensor: Tensor) -> u32 {
        if tensor.0 == 0 { TABLE } else { self.nets.layout.places[tensor.0].start as u32 }
    }

    /// Start a kernel as it is cut.
    fn start<T: Plain>(&mut self, cut: Cut<T>) -> Result<(), DeviceError> {
        let Cut { arguments, kernel, blocks, threads } = cut;
        // SAFETY: those who cut a step give every kernel its own arguments and as much shared
        // memory as it stages, with tensors of the plan, which all samples have room for.
        unsafe { start(self.board, kernel, blocks, threads, arguments) }
    }

    /// Start a kernel on every sample, with so many threads each.
    fn on_samples<T: Plain>(
        &mut self,
        kernel: &'static str,
        threads: usize,
        arguments: T,
    ) -> Result<(), DeviceError> {
        let across = (threads as u32).div_ceil(THREADS).max(1);
        let blocks = (self.pass.samples, across);
        // SAFETY: those who call it give every kernel its own arguments, with tensors of the plan,
        // which all samples have room for.
        unsafe { start(self.board, kernel, blocks, (THREADS, 0), arguments) }
    }

    /// The same on every seat.
    fn on_seats<T: Plain>(
        &mut self,
        kernel: &'static str,
        threads: usize,
        arguments: T,
    ) -> Result<(), DeviceError> {
        let across = (threads as u32).div_ceil(THREADS).max(1);
        let blocks = (self.pass.samples / self.pass.each, across);
        // SAFETY: as above.
        unsafe { start(self.board, kernel, blocks, (THREADS, 0), arguments) }
    }

    /// Take the first of these steps, and those that are taken with it: how many.
    fn forth(&mut self, steps: &[net::Step]) -> Result<usize, DeviceError> {
        let pass = self.pass;
        // relu in place is the end of the step before it
        let activated = |y: Tensor, at: usize| {
            matches!(
                steps.get(at),
                Some(net::Step::Activate { kind: Activation::Relu, x, y: to })
                    if *x == y && *to == y
            )
        };
        match steps[0] {
            net::Step::Conv { at, p, x, y } => {
                let conv = Conv { x: self.place(x), y: self.place(y), tile: 1, ..self.conv(at, p) };
                // a pool of squares of side 2 is part of it
                if let Some(net::Step::MaxPool { side: 2, x: from, y: to, winners, .. }) =
                    steps.get(1)
                    && *from == y
                {
                    let relu = activated(*to, 2);
                    let (y, winners) = (self.place(*to), self.place(*winners));
                    let conv = Conv { y, winners, tile: 2, relu: u32::from(relu), ..conv };
                    if let Some(cut) = shapes::tiles(conv, false) {
                        self.start(cut)?;
                        return Ok(2 + usize::from(relu));
                    }
                }
                let relu = activated(y, 1);
                let conv = Conv { relu: u32::from(relu), ..conv };
                match shapes::tiles(conv, false) {
                    Some(cut) => self.start(cut)?,
                    None => self.on_samples("conv_any", at.output.len(), conv)?,
                }
                return Ok(1 + usize::from(relu));
            }
            net::Step::Dense { p, x, y } => {
                let relu = activated(y, 1);
                let dense = Dense { x: self.place(x), y: self.place(y), ..self.dense(p) };
                self.start(shapes::dense(Dense { relu: u32::from(relu), ..dense }))?;
                return Ok(1 + usize::from(relu));
            }
            net::Step::MaxPool { of, side, x, y, winners } => {
                let relu = activated(y, 1);
                let (x, y, winners) = (self.place(x), self.place(y), self.place(winners));
                let image = Image { x, y, winners, ..self.image(of, (side, side)) };
                let image = Image { kind: u32::from(relu), ..image };
                self.on_samples("max_pool", of.len() / (side * side), image)?;
                return Ok(1 + usize::from(relu));
            }
            net::Step::AvgPool { of, sides, x, y } => {
                let image = Image { x: self.place(x), y: self.place(y), ..self.image(of, sides) };
                self.on_samples("avg_pool", of.len() / (sides.0 * sides.1), image)?;
            }
            net::Step::Activate { kind, x, y } => {
                let count = self.nets.plan.place(y).len();
                let (x, y, kind) = (self.place(x), self.place(y), kind_of(kind));
                let image = Image { pass, x, y, channels: count as u32, kind, ..Image::default() };
                self.on_samples("activate", count.div_ceil(4), image)?;
            }
            net::Step::Frn { of, p, x, y, rates } => {
                let swish = match steps.get(1) {
                    Some(net::Step::Activate { kind: Activation::Swish, x, y: z }) if *x == y => {
                        Some(*z)
                    }
                    _ => None,
                };
                let norm = Norm {
                    x: self.place(x),
                    y: self.place(y),
                    rates: self.place(rates),
                    ..self.norm(of, 0, p)
                };
                let with = Norm {
                    swish: u32::from(swish.is_some()),
                    of: swish.map_or(TABLE, |z| self.place(z)),
                    ..norm
                };
                if let Some(cut) = shapes::filters(with, false) {
                    self.start(cut)?;
                    return Ok(1 + usize::from(swish.is_some()));
                }
                self.norm_forth(of, norm)?;
            }
            net::Step::GroupNorm { of, groups, p, x, y, rates } => {
                let [x, y, rates] = [x, y, rates].map(|tensor| self.place(tensor));
                self.norm_forth(of, Norm { x, y, rates, ..self.norm(of, groups, p) })?;
            }
            net::Step::Add { x, y } => {
                // a function of the sum is taken with it
                if let Some(net::Step::Activate { kind, x: of, y: z }) = steps.get(1)
                    && *of == y
                    && *z != y
                {
                    let winners = self.place(*z);
                    self.add(x, y, Image { winners, across: kind_of(*kind), ..Image::default() })?;
                    return Ok(2);
                }
                self.add(x, y, Image { winners: TABLE, ..Image::default() })?;
            }
            net::Step::Copy { x, y } => {
                self.add(x, y, Image { kind: 1, winners: TABLE, ..Image::default() })?;
            }
            net::Step::Pad { of, to, stride, x, y } => {
                let image = Image { x: self.place(x), y: self.place(y), ..self.skip(of, to) };
                let image = Image { down: stride as u32, ..image };
                self.on_samples("skip", to.len(), image)?;
            }
            _ => return Err(DeviceError::Plan { what: "this way forth" }),
        }
        Ok(1)
    }

    fn turn(&mut self) -> Result<(), DeviceError> {
        let (logits, slopes) = self.nets.plan.turning_point();
        let Table { labels, numbers, precision, .. } = self.nets.table;
        let loss = Loss {
            pass: self.pass,
            labels,
            numbers,
            precision,
            y: self.place(logits),
            dy: self.place(slopes),
            outputs: self.nets.plan.outputs() as u32,
            unused: 0,
        };
        // SAFETY: the kernel takes a `Loss`; there is a label or a number for every row.
        unsafe { start(self.board, "loss", (self.pass.samples.div_ceil(32), 1), (32, 0), loss) }
    }

    /// Take the first of these steps, and those that are taken with it: how many.
    fn back(&mut self, steps: &[net::Step]) -> Result<usize, DeviceError> {
        let pass = self.pass;
        // relu in place is the end of the slopes before it
        let masked = |dx: Tensor| match steps.get(1) {
            Some(net::Step::ActivateSlopes { kind: Activation::Relu, of, dy, dx: to })
                if *dy == dx && *to == dx =>
            {
                Some(*of)
            }
            _ => None,
        };
        match steps[0] {
            net::Step::ConvSlopes { at, p, dy, dx } => {
                let of = masked(dx);
                let conv = Conv { x: self.place(dx), y: self.place(dy), ..self.conv(at, p) };
                let of_place = of.map_or(TABLE, |of| self.place(of));
                let conv = Conv { of: of_place, tile: 1, ..conv };
                match shapes::tiles(conv, true) {
                    Some(cut) => self.start(cut)?,
                    None => self.on_samples("conv_slopes_any", at.input.len(), conv)?,
                }
                return Ok(1 + usize::from(of.is_some()));
            }
            net::Step::DenseSlopes { p, dy, dx } => {
                let of = masked(dx);
                let dense = Dense { x: self.place(dx), y: self.place(dy), ..self.dense(p) };
                let dense = Dense { of: of.map_or(TABLE, |of| self.place(of)), ..dense };
                self.start(shapes::dense_slopes(dense))?;
                return Ok(1 + usize::from(of.is_some()));
            }
            net::Step::ConvWeights { at, p, tile: 1, x, dy } => {
                let conv = Conv { x: self.place(x), y: self.place(dy), ..self.conv(at, p) };
                self.conv_weights(Conv { tile: 1, ..conv })?;
            }
            net::Step::ConvWeights { .. } => {
                return Err(DeviceError::Plan {
                    what: "a pool that is not behind its convolution",
                });
            }
            net::Step::MaxPoolSlopes { of, side, dy, winners, dx } => {
                let (y, winners) = (self.place(dy), self.place(winners));
                let image = Image { x: self.place(dx), y, ..self.image(of, (side, side)) };
                let image = Image { winners, ..image };
                let (at, p, x) = match steps.get(1) {
                    Some(net::Step::ConvWeights { at, p, x, dy, .. }) if *dy == dx => (*at, *p, *x),
                    _ => {
                        self.on_samples("max_pool_slopes", of.len(), image)?;
                        return Ok(1);
                    }
                };
                // What comes behind the pool needs the winners alone.
                let conv = Conv { y, winners, tile: side as u32, ..self.conv(at, p) };
                let weights = Conv { x: self.place(x), ..conv };
                let to = match steps.get(2) {
                    Some(net::Step::ConvSlopes { dy, dx: to, .. }) if *dy == dx => *to,
                    _ => {
                        self.conv_weights(weights)?;
                        return Ok(2);
                    }
                };
                let of_slopes = match steps.get(3) {
                    Some(net::Step::ActivateSlopes { kind: Activation::Relu, of, dy, dx })
                        if *dy == to && *dx == to =>
                    {
                        Some(*of)
                    }
                    _ => None,
                };
                let from = Conv { x: self.place(to), ..conv };
                let from = Conv { of: of_slopes.map_or(TABLE, |of| self.place(of)), ..from };
                self.conv_weights(weights)?;
                if let Some(cut) = shapes::tiles(from, true).filter(|_| side == 2) {
                    self.start(cut)?;
                    return Ok(3 + usize::from(of_slopes.is_some()));
                }
                self.on_samples("max_pool_slopes", of.len(), image)?;
                return Ok(2);
            }
            net::Step::DenseWeights { p, x, dy } => {
                let dense = Dense { x: self.place(x), y: self.place(dy), ..self.dense(p) };
                let threads = (dense.inputs + 1) * dense.outputs.div_ceil(4);
                self.beside(|me| me.on_seats("dense_weights", threads as usize, dense))?;
            }
            net::Step::AvgPoolSlopes { of, sides, dy, dx } => {
                let image = Image { x: self.place(dx), y: self.place(dy), ..self.image(of, sides) };
                self.on_samples("avg_pool_slopes", of.len(), image)?;
            }
            net::Step::ActivateSlopes { kind, of, dy, dx } => {
                if let Some(cut) = self.swish_and_filters(steps) {
                    self.start(cut)?;
                    self.norm_weights(cut.arguments)?;
                    return Ok(2);
                }
                let count = self.nets.plan.place(dx).len();
                let (x, y, winners) = (self.place(dx), self.place(dy), self.place(of));
                let (channels, kind) = (count as u32, kind_of(kind));
                let image = Image { pass, x, y, winners, channels, kind, ..Image::default() };
                self.on_samples("activate_slopes", count.div_ceil(4), image)?;
            }
            net::Step::FrnSlopes { of, p, x, rates, dy, dx } => {
                let norm = self.norm_slopes(of, 0, p, [x, rates, dy, dx]);
                match shapes::filters(norm, true) {
                    Some(cut) => {
                        self.start(cut)?;
                        self.norm_weights(norm)?;
                    }
                    None => self.norm_back(of, norm)?,
                }
            }
            net::Step::GroupNormSlopes { of, groups, p, x, rates, dy, dx } => {
                self.norm_back(of, self.norm_slopes(of, groups, p, [x, rates, dy, dx]))?;
            }
            net::Step::Add { x, y } => {
                // slopes of a sum go on through the function that it was made by
                if let Some(net::Step::ActivateSlopes { kind, of, dy, dx }) = steps.get(1)
                    && (*dy, *dx) == (y, y)
                    && of.0 != 0
                {
                    let (winners, across) = (self.place(*of), kind_of(*kind));
                    self.add(x, y, Image { winners, across, down: 1, ..Image::default() })?;
                    return Ok(2);
                }
                self.add(x, y, Image { winners: TABLE, ..Image::default() })?;
            }
            net::Step::Copy { x, y } => {
                self.add(x, y, Image { kind: 1, winners: TABLE, ..Image::default() })?;
            }
            net::Step::PadSlopes { of, to, stride, dy, dx } => {
                let image = Image { x: self.place(dx), y: self.place(dy), ..self.skip(of, to) };
                let image = Image { down: stride as u32, kind: 1, ..image };
                self.on_samples("skip", of.len(), image)?;
            }
            _ => return Err(DeviceError::Plan { what: "this way back" }),
        }
        Ok(1)
    }

    fn conv(&self, at: net::Window, p: net::Affine) -> Conv {
        Conv {
            pass: self.pass,
            weight: p.weight.from as u32,
            bias: if p.bias.is_empty() { TABLE } else { p.bias.from as u32 },
            inputs: at.input.channels as u32,
            height: at.input.height as u32,
            width: at.input.width as u32,
            outputs: at.output.channels as u32,
            rows: at.output.height as u32,
            columns: at.output.width as u32,
            kernel: at.kernel as u32,
            stride: at.stride as u32,
            pad: at.pad as u32,
            of: TABLE,
            ..Conv::default()
        }
    }

    fn conv_weights(&mut self, conv: Conv) -> Result<(), DeviceError> {
        let biases = if conv.bias == TABLE { 0 } else { conv.outputs };
        let all = conv.outputs * conv.inputs * conv.kernel * conv.kernel + biases;
        let conv = Conv { room: self.nets.layout.room(conv.weight), ..conv };
        if let Some(cut) = shapes::sheets(conv).or_else(|| shapes::squares(conv)) {
            return self.beside(|me| {
                me.start(cut)?;
                me.on_seats("conv_weights_sum", all as usize, cut.arguments)
            });
        }
        let seats = self.pass.samples / self.pass.each;
        let rows = self.pass.each.next_multiple_of(SLOTS).min(4 * SLOTS);
        let (blocks, threads) = ((seats, all.div_ceil(ABREAST)), (ABREAST * rows, 0));
        // threads for some rows of as many weights as it sums at a time
        self.start(Cut { arguments: conv, kernel: "conv_weights", blocks, threads })
    }

    /// Slopes through swish that go through filter response normalisation next, if they may go
    /// through both at once.
    fn swish_and_filters(&self, steps: &[net::Step]) -> Option<Cut<Norm>> {
        let [
            net::Step::ActivateSlopes { kind: Activation::Swish, of: swished, dy: from, dx: to },
            net::Step::FrnSlopes { of, p, x, rates, dy, dx },
            others @ ..,
        ] = steps
        else {
            return None;
        };
        let wanted = others.iter().any(|step| step.touches().contains(to));
        if dy != to || swished.0 == 0 || (wanted && from != to) {
            return None;
        }
        let norm = self.norm_slopes(*of, 0, *p, [*x, *rates, *from, *dx]);
        let swish = if wanted { 2 } else { 1 };
        shapes::filters(Norm { swish, of: self.place(*swished), ..norm }, true)
    }

    fn dense(&self, p: net::Affine) -> Dense {
        let outputs = p.bias.len();
        Dense {
            pass: self.pass,
            weight: p.weight.from as u32,
            bias: p.bias.from as u32,
            inputs: (p.weight.len() / outputs) as u32,
            outputs: outputs as u32,
            of: TABLE,
            ..Dense::default()
        }
    }

    fn image(&self, of: net::Shape, sides: (usize, usize)) -> Image {
        Image {
            pass: self.pass,
            channels: of.channels as u32,
            height: of.height as u32,
            width: of.width as u32,
            down: sides.0 as u32,
            across: sides.1 as u32,
            ..Image::default()
        }
    }

    fn skip(&self, of: net::Shape, to: net::Shape) -> Image {
        Image {
            outputs: to.channels as u32,
            rows: to.height as u32,
            columns: to.width as u32,
            ..self.image(of, (1, 1))
        }
    }

    fn add(&mut self, x: Tensor, y: Tensor, how: Image) -> Result<(), DeviceError> {
        let (count, pass) = (self.nets.plan.place(y).len(), self.pass);
        let (x, y, channels) = (self.place(x), self.place(y), count as u32);
        self.on_samples("add", count.div_ceil(4), Image { pass, x, y, channels, ..how })
    }

    fn norm(&self, of: net::Shape, groups: usize, p: net::Affine) -> Norm {
        Norm {
            pass: self.pass,
            room: self.nets.layout.room(p.weight.from as u32),
            weight: p.weight.from as u32,
            bias: p.bias.from as u32,
            channels: of.channels as u32,
            area: of.area() as u32,
            groups: groups as u32,
            ..Norm::default()
        }
    }

    fn norm_slopes(
        &self,
        of: net::Shape,
        groups: usize,
        p: net::Affine,
        tensors: [Tensor; 4],
    ) -> Norm {
        let [x, rates, y, dx] = tensors.map(|tensor| self.place(tensor));
        Norm { x, y, dx, rates, ..self.norm(of, groups, p) }
    }

    fn norm_forth(&mut self, of: net::Shape, norm: Norm) -> Result<(), DeviceError> {
        let rates = if norm.groups == 0 { of.channels } else { norm.groups as usize };
        self.on_samples("norm_rates", rates, norm)?;
        self.on_samples("norm_forth", of.len(), norm)
    }

    fn norm_back(&mut self, of: net::Shape, norm: Norm) -> Result<(), DeviceError> {
        self.on_samples("norm_sums", of.channels, norm)?;
        self.norm_weights(norm)?;
        self.on_samples("norm_slopes", of.len(), norm)
    }

    fn norm_weights(&mut self, norm: Norm) -> Result<(), DeviceError> {
        self.beside(|me| me.on_seats("norm_weights", 2 * norm.channels as usize, norm))
    }
}

fn kind_of(kind: Activation) -> u32 {
    match kind {
        Activation::Relu => 0,
        Activation::Tanh => 1,
        Activation::Sigmoid => 2,
        Activation::Swish => 3,
    }
}

#[cfg(test)]
mod tests;
