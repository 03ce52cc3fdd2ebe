//! Take the steps of all clients' nets on a GPU, from one exchange to the next.

use std::sync::{Arc, Mutex};

use consilience_core::ask::{Ask, Sum, Tour};
use consilience_core::model::net::{self, Activation, BLOCK, Plan, Seen, Tensor};
use consilience_core::model::{
    Arithmetic, ClientModels, EvaluationError, Evaluator, Guide, Model, Offers, Prior, Rows,
};
use consilience_core::rng::{ClientId, Purpose};
use consilience_core::step::noise_scale;

use crate::args::{
    Conv, Dense, Image, Loss, Narrow, Norm, Party, Pass, Plain, Step, TABLE, bytes, bytes_mut,
};
use crate::board::{Board, Boards, Gpu, NARROW, Room};
use crate::{Device, DeviceError};

/// Threads of a block.
const THREADS: u32 = 128;
/// Weights of a convolution that a block sums, and rows of each at a time.
const ABREAST: u32 = 32;
const SLOTS: u32 = 8;
/// Rows are cut so that what lies between layers takes no more than this.
const MOST_ARENA: usize = 4 << 30;
/// Vectors up to this long share what one address of noise gives.
const SHORTEST: usize = 64;

/// The nets of all clients of a process, with their rows on a GPU: a model that answers all of them
/// in one call, and takes whole walks of theirs, with the bits of their own.
#[derive(Debug)]
pub struct Nets {
    plan: Arc<Plan>,
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
        Ok(Nets { plan, clients, starts, boards, table, _home: home })
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
        Box::new(Desk { others, board, seats: Seats::default(), nets: self })
    }
}

/// What a GPU has for one chain.
#[derive(Debug)]
struct Desk {
    nets: Arc<Nets>,
    others: Box<dyn Evaluator>,
    board: Result<Box<dyn Board>, Option<DeviceError>>,
    seats: Seats,
}

#[derive(Debug, Default)]
struct Seats {
    arena: Room,
    sums: Room,
    weights: Room,
    slots: Room,
    rows: Room,
    counts: Room,
    x: Room,
    z: Room,
    base: Room,
    precision: Room,
    parties: Room,
    /// The prior whose precisions are there.
    prior: Option<Prior>,
    /// Whose reference point is there, and its mark.
    marks: Vec<Option<(ClientId, u64)>>,
    room: Vec<f32>,
}

/// A sum that is wanted.
struct Wanted<'a, 'b> {
    ask: Ask<'b>,
    x: &'a [f64],
    z: Option<&'a [f64]>,
}

impl Evaluator for Desk {
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

    fn guide(&mut self) -> Option<&mut dyn Guide> {
        Some(self)
    }
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

impl Guide for Desk {
    fn takes(&self, tour: &Tour<'_>) -> bool {
        tour.x.len() > SHORTEST && !matches!(tour.prior.0, Prior::Laws(_))
    }

    fn tour(&mut self, tours: &mut [Tour<'_>]) -> Result<(), EvaluationError> {
        let board = open(&mut self.board)?;
        let alike = |a: &Tour<'_>, b: &Tour<'_>| {
            (a.from, a.steps, a.batch, a.temperature) == (b.from, b.steps, b.batch, b.temperature)
                && a.control.is_some() == b.control.is_some()
                && a.rows.is_some() == b.rows.is_some()
                && a.shared == b.shared
        };
        for tours in tours.chunk_by_mut(alike) {
            let failed = |e: DeviceError| EvaluationError(Box::new(e));
            self.seats.tour(&self.nets, board, tours).map_err(failed)?;
        }
        Ok(())
    }
}

/// Rows that go through the net together: a multiple of eight that divides a block.
fn rows_at_a_time(plan: &Plan, seats: usize, most: usize) -> usize {
    let row = size_of::<f32>() * stride(plan) * seats;
    let mut each = BLOCK;
    while each > 8 && (each * row > MOST_ARENA || each / 2 >= most) {
        each /= 2;
    }
    each.min(most.max(1))
}

/// How many numbers a sample has: those between layers, and room for two a channel behind them.
fn stride(plan: &Plan) -> usize {
    (plan.arena() + room(plan)).next_multiple_of(4)
}

fn room(plan: &Plan) -> usize {
    let channels = plan.back().iter().map(|step| match step {
        net::Step::FrnSlopes { of, .. } | net::Step::GroupNormSlopes { of, .. } => of.channels,
        _ => 0,
    });
    2 * channels.max().unwrap_or(0)
}

impl Seats {
    /// Room for so many seats of so many samples.
    fn reserve(
        &mut self,
        nets: &Nets,
        board: &mut dyn Board,
        (seats, each, blocks, slots): (usize, usize, usize, usize),
    ) -> Result<(), DeviceError> {
        let (d, f) = (nets.plan.dim(), size_of::<f32>());
        self.arena.reserve(board, seats * each * stride(&nets.plan) * f)?;
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
        let (plan, d) = (&*nets.plan, nets.plan.dim());
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
        let each = rows_at_a_time(plan, seats, most);
        self.reserve(nets, board, (seats, each, 1, known.len()))?;
        self.marks.clear(); // slots are taken
        for (slot, point) in known.iter().enumerate() {
            self.room.clear();
            self.room.extend(point.iter().map(|x| *x as f32));
            board
                .write(self.weights.at + (slot * d * size_of::<f32>()) as u64, bytes(&self.room))?;
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
        self.room.resize(seats * d, 0.0);
        for block in (0..most).step_by(BLOCK) {
            for first in (block..most.min(block + BLOCK)).step_by(each) {
                (pass.first, pass.resume) = (first as u32, u32::from(first > block));
                Launcher { nets, board, pass }.run()?;
            }
            board.read(self.sums.at, bytes_mut(&mut self.room))?;
            for (one, sums) in wanted.iter_mut().zip(self.room.chunks_exact(points * d)) {
                if block >= rows_of(&one.ask, nets) {
                    continue;
                }
                let (at_x, at_z) = sums.split_at(d);
                widen(one.ask.scale, at_x, at_z, one.ask.out);
            }
        }
        Ok(())
    }

    /// Steps of parties that start where they are said to, and whose reference points may be here.
    fn tour(
        &mut self,
        nets: &Nets,
        board: &mut dyn Board,
        tours: &mut [Tour<'_>],
    ) -> Result<(), DeviceError> {
        let (plan, d) = (&*nets.plan, nets.plan.dim());
        let first = &tours[0];
        let points = if first.control.is_some() { 2 } else { 1 };
        let (parties, batch, steps) = (tours.len(), first.batch, first.steps.len());
        let seats = parties * points;
        let each = rows_at_a_time(plan, seats, batch);
        let blocks = batch.div_ceil(BLOCK);
        self.reserve(nets, board, (seats, each, blocks, seats))?;
        let vector = d * size_of::<f64>();
        for room in [&mut self.x, &mut self.z, &mut self.base] {
            if room.reserve(board, parties * vector)? {
                self.marks.clear();
            }
        }
        self.marks.resize(parties, None);
        let slots: Vec<u32> = (0..seats as u32).collect();
        let slots = self.slots.put(board, &slots)?;
        let mut people = Vec::with_capacity(parties);
        for (k, tour) in tours.iter().enumerate() {
            board.write(self.x.at + (k * vector) as u64, bytes(tour.x))?;
            self.narrow(nets, board, (self.x.at, k), slots, k * points)?;
            if let Some(control) = &tour.control {
                let mark = Some((tour.client, control.mark));
                if self.marks[k] != mark {
                    board.write(self.z.at + (k * vector) as u64, bytes(control.point))?;
                    board.write(self.base.at + (k * vector) as u64, bytes(control.drift))?;
                    self.narrow(nets, board, (self.z.at, k), slots, k * points + 1)?;
                    self.marks[k] = mark;
                }
            }
            people.push(Party {
                scale: tour.scale,
                prior: tour.prior.1,
                weight: tour.weight,
                shared: tour.shared.1,
                own: tour.own.1,
                key: tour.own.0.key(),
                client: tour.client.0,
                slot: (k * points) as u32,
            });
        }
        // Rows of all parties, step by step.
        let mut rows = Vec::with_capacity(steps * parties * batch);
        for step in 0..steps {
            for tour in &*tours {
                let start = nets.starts[tour.client.index()];
                match tour.rows {
                    Some(all) => {
                        let some = &all[step * batch..(step + 1) * batch];
                        rows.extend(some.iter().map(|row| start + row));
                    }
                    None => rows.extend((0..batch as u32).map(|row| start + row)),
                }
            }
        }
        let rows = self.rows.put(board, &rows)?;
        let mut pass = self.pass(nets, (each, points, seats));
        pass.slots = slots;
        pass.counts = self.counts.put(board, &vec![batch as u32; parties])?;
        pass.pitch = batch as u32;
        let mut step = Step {
            x: self.x.at,
            z: if points == 2 { self.z.at } else { 0 },
            base: self.base.at,
            parties: self.parties.put(board, &people)?,
            sums: self.sums.at,
            weights: self.weights.at,
            key: tours[0].shared.0.key(),
            dim: d as u32,
            seats: seats as u32,
            points: points as u32,
            blocks: blocks as u32,
            ..Step::default()
        };
        match tours[0].prior.0 {
            Prior::Gaussian(precision) => {
                if self.prior.as_ref() != Some(tours[0].prior.0) {
                    self.precision.put(board, precision)?;
                    self.prior = Some(tours[0].prior.0.clone());
                }
                step.precision = self.precision.at;
            }
            Prior::Laplace { scale } => step.laplace = *scale,
            Prior::Flat | Prior::Laws(_) => {}
        }
        for (k, size) in tours[0].steps.iter().enumerate() {
            pass.rows = rows + (k * parties * batch * size_of::<u32>()) as u64;
            for block in 0..blocks {
                pass.sums = self.sums.at + (block * seats * d * size_of::<f32>()) as u64;
                let block = block * BLOCK;
                for first in (block..batch.min(block + BLOCK)).step_by(each) {
                    (pass.first, pass.resume) = (first as u32, u32::from(first > block));
                    Launcher { nets, board, pass }.run()?;
                }
            }
            step.tag = (tours[0].from + k as u64) | ((Purpose::Noise as u64) << 56);
            (step.step, step.sigma) = (*size, noise_scale(*size, tours[0].temperature));
            let across = (d.div_ceil(SHORTEST) * 4).div_ceil(THREADS as usize) as u32;
            // SAFETY: the kernel takes a `Step`; every vector has `dim` numbers for each party, and
            // no thread touches one beyond.
            unsafe { start(board, "step", (across, parties as u32), THREADS, step) }?;
        }
        for (k, tour) in tours.iter_mut().enumerate() {
            board.read(self.x.at + (k * vector) as u64, bytes_mut(tour.x))?;
        }
        Ok(())
    }

    /// Vector `k` of those at `from` into a slot, in 32 bits.
    fn narrow(
        &self,
        nets: &Nets,
        board: &mut dyn Board,
        (from, k): (u64, usize),
        slots: u64,
        slot: usize,
    ) -> Result<(), DeviceError> {
        let d = nets.plan.dim();
        let narrow = Narrow {
            x: from + (k * d * size_of::<f64>()) as u64,
            slots: slots + (slot * size_of::<u32>()) as u64,
            weights: self.weights.at,
            dim: d as u32,
            unused: 0,
        };
        // SAFETY: the kernel takes a `Narrow`; there are `dim` numbers at both ends.
        unsafe { start(board, NARROW, ((d as u32).div_ceil(THREADS), 1), THREADS, narrow) }
    }

    fn pass(&self, nets: &Nets, (each, points, seats): (usize, usize, usize)) -> Pass {
        Pass {
            table: nets.table.rows,
            weights: self.weights.at,
            arena: self.arena.at,
            sums: self.sums.at,
            dim: nets.plan.dim() as u32,
            stride: stride(&nets.plan) as u32,
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
    threads: u32,
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
        let forth = plan.forth();
        let mut at = 0;
        while at < forth.len() {
            // relu in place is the end of the step before it
            let relu = matches!(
                (output(&forth[at]), forth.get(at + 1)),
                (Some(y), Some(net::Step::Activate { kind: Activation::Relu, x, y: to }))
                    if *x == y && *to == y
            );
            self.forth(&forth[at], relu)?;
            at += 1 + usize::from(relu);
        }
        self.turn()?;
        let back = plan.back();
        let mut at = 0;
        while at < back.len() {
            at += self.back(&back[at..])?;
        }
        Ok(())
    }

    fn place(&self, tensor: Tensor) -> u32 {
        if tensor.0 == 0 { TABLE } else { self.nets.plan.place(tensor).start as u32 }
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
        unsafe { start(self.board, kernel, blocks, THREADS, arguments) }
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
        unsafe { start(self.board, kernel, blocks, THREADS, arguments) }
    }

    fn forth(&mut self, step: &net::Step, relu: bool) -> Result<(), DeviceError> {
        let (pass, relu) = (self.pass, u32::from(relu));
        match *step {
            net::Step::Conv { at, p, x, y } => {
                let conv = Conv { x: self.place(x), y: self.place(y), relu, ..self.conv(at, p) };
                let (kernel, rows) = match conv_kernel(at, at.output.height) {
                    Some((5, 5)) => ("conv_5_5", 5),
                    Some((5, _)) => ("conv_5_4", 4),
                    Some(_) => ("conv_3_4", 4),
                    None => ("conv_any", 1),
                };
                let to = at.output;
                let threads = to.channels * to.height.div_ceil(rows) * to.width;
                self.on_samples(kernel, threads, conv)
            }
            net::Step::Dense { p, x, y } => {
                let dense = Dense { x: self.place(x), y: self.place(y), relu, ..self.dense(p) };
                let pairs = (pass.each.div_ceil(2) * dense.outputs.div_ceil(2)) as usize;
                self.on_seats("dense", pairs, dense)
            }
            net::Step::MaxPool { of, side, x, y, winners } => {
                let (x, y, winners) = (self.place(x), self.place(y), self.place(winners));
                let image = Image { x, y, winners, kind: relu, ..self.image(of, (side, side)) };
                self.on_samples("max_pool", of.len() / (side * side), image)
            }
            net::Step::AvgPool { of, sides, x, y } => {
                let image = Image { x: self.place(x), y: self.place(y), ..self.image(of, sides) };
                self.on_samples("avg_pool", of.len() / (sides.0 * sides.1), image)
            }
            net::Step::Activate { kind, x, y } => {
                let count = self.nets.plan.place(y).len();
                let (x, y, kind) = (self.place(x), self.place(y), kind_of(kind));
                let image = Image { pass, x, y, channels: count as u32, kind, ..Image::default() };
                self.on_samples("activate", count, image)
            }
            net::Step::Frn { of, p, x, y, rates } => self.norm_forth(of, 0, p, [x, y, rates]),
            net::Step::GroupNorm { of, groups, p, x, y, rates } => {
                self.norm_forth(of, groups, p, [x, y, rates])
            }
            net::Step::Add { x, y } => self.add(x, y, 0),
            net::Step::Copy { x, y } => self.add(x, y, 1),
            net::Step::Pad { of, to, stride, x, y } => {
                let image = Image { x: self.place(x), y: self.place(y), ..self.skip(of, to) };
                let image = Image { down: stride as u32, ..image };
                self.on_samples("skip", to.len(), image)
            }
            _ => Err(DeviceError::Plan { what: "this way forth" }),
        }
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
        unsafe { start(self.board, "loss", (self.pass.samples.div_ceil(32), 1), 32, loss) }
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
                let conv = Conv { of: of.map_or(TABLE, |of| self.place(of)), ..conv };
                let (kernel, rows) = match conv_kernel(at, at.input.height) {
                    Some((5, 5)) => ("conv_slopes_5_5", 5),
                    Some((5, _)) => ("conv_slopes_5_4", 4),
                    Some(_) => ("conv_slopes_3_4", 4),
                    None => ("conv_slopes_any", 1),
                };
                let to = at.input;
                let threads = to.channels * to.height.div_ceil(rows) * to.width;
                self.on_samples(kernel, threads, conv)?;
                return Ok(1 + usize::from(of.is_some()));
            }
            net::Step::DenseSlopes { p, dy, dx } => {
                let of = masked(dx);
                let dense = Dense { x: self.place(dx), y: self.place(dy), ..self.dense(p) };
                let dense = Dense { of: of.map_or(TABLE, |of| self.place(of)), ..dense };
                self.on_seats(
                    "dense_slopes",
                    (pass.each.div_ceil(4) * dense.inputs) as usize,
                    dense,
                )?;
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
                let from =
                    Conv { y: self.place(dy), winners: self.place(winners), ..Conv::default() };
                let weights = match steps.get(1) {
                    Some(net::Step::ConvWeights { at, p, tile, x, dy }) if *dy == dx => {
                        let conv = Conv { x: self.place(*x), ..self.conv(*at, *p) };
                        Some(Conv { y: from.y, winners: from.winners, tile: *tile as u32, ..conv })
                    }
                    _ => None,
                };
                let wanted = match steps.get(1 + usize::from(weights.is_some())) {
                    Some(net::Step::ConvSlopes { dy, .. }) => *dy == dx,
                    _ => weights.is_none(),
                };
                if wanted {
                    let image = Image { x: self.place(dx), ..self.image(of, (side, side)) };
                    let image = Image { y: from.y, winners: from.winners, ..image };
                    self.on_samples("max_pool_slopes", of.len(), image)?;
                }
                if let Some(conv) = weights {
                    self.conv_weights(conv)?;
                    return Ok(2);
                }
            }
            net::Step::DenseWeights { p, x, dy } => {
                let dense = Dense { x: self.place(x), y: self.place(dy), ..self.dense(p) };
                let threads = (dense.inputs + 1) * dense.outputs.div_ceil(4);
                self.on_seats("dense_weights", threads as usize, dense)?;
            }
            net::Step::AvgPoolSlopes { of, sides, dy, dx } => {
                let image = Image { x: self.place(dx), y: self.place(dy), ..self.image(of, sides) };
                self.on_samples("avg_pool_slopes", of.len(), image)?;
            }
            net::Step::ActivateSlopes { kind, of, dy, dx } => {
                let count = self.nets.plan.place(dx).len();
                let (x, y, winners) = (self.place(dx), self.place(dy), self.place(of));
                let (channels, kind) = (count as u32, kind_of(kind));
                let image = Image { pass, x, y, winners, channels, kind, ..Image::default() };
                self.on_samples("activate_slopes", count, image)?;
            }
            net::Step::FrnSlopes { of, p, x, rates, dy, dx } => {
                self.norm_back(of, 0, p, [x, rates, dy, dx])?;
            }
            net::Step::GroupNormSlopes { of, groups, p, x, rates, dy, dx } => {
                self.norm_back(of, groups, p, [x, rates, dy, dx])?;
            }
            net::Step::Add { x, y } => self.add(x, y, 0)?,
            net::Step::Copy { x, y } => self.add(x, y, 1)?,
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
        let blocks = (self.pass.samples / self.pass.each, all.div_ceil(ABREAST));
        let rows = self.pass.each.next_multiple_of(SLOTS).min(4 * SLOTS);
        // SAFETY: the kernel takes a `Conv`, with threads for some rows of as many weights as it
        // sums at a time.
        unsafe { start(self.board, "conv_weights", blocks, ABREAST * rows, conv) }
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

    fn add(&mut self, x: Tensor, y: Tensor, kind: u32) -> Result<(), DeviceError> {
        let (count, pass) = (self.nets.plan.place(y).len(), self.pass);
        let (x, y, channels) = (self.place(x), self.place(y), count as u32);
        let image = Image { pass, x, y, channels, kind, ..Image::default() };
        self.on_samples("add", count, image)
    }

    fn norm(&self, of: net::Shape, groups: usize, p: net::Affine) -> Norm {
        Norm {
            pass: self.pass,
            room: self.nets.plan.arena() as u32,
            weight: p.weight.from as u32,
            bias: p.bias.from as u32,
            channels: of.channels as u32,
            area: of.area() as u32,
            groups: groups as u32,
            ..Norm::default()
        }
    }

    fn norm_forth(
        &mut self,
        of: net::Shape,
        groups: usize,
        p: net::Affine,
        [x, y, rates]: [Tensor; 3],
    ) -> Result<(), DeviceError> {
        let [x, y, rates] = [x, y, rates].map(|tensor| self.place(tensor));
        let norm = Norm { x, y, rates, ..self.norm(of, groups, p) };
        self.on_samples("norm_rates", if groups == 0 { of.channels } else { groups }, norm)?;
        self.on_samples("norm_forth", of.len(), norm)
    }

    fn norm_back(
        &mut self,
        of: net::Shape,
        groups: usize,
        p: net::Affine,
        [x, rates, dy, dx]: [Tensor; 4],
    ) -> Result<(), DeviceError> {
        let [x, rates, y, dx] = [x, rates, dy, dx].map(|tensor| self.place(tensor));
        let norm = Norm { x, y, dx, rates, ..self.norm(of, groups, p) };
        self.on_samples("norm_sums", of.channels, norm)?;
        self.on_seats("norm_weights", 2 * of.channels, norm)?;
        self.on_samples("norm_slopes", of.len(), norm)
    }
}

/// The output of a step that relu may be the end of.
fn output(step: &net::Step) -> Option<Tensor> {
    match step {
        net::Step::Conv { y, .. } | net::Step::Dense { y, .. } | net::Step::MaxPool { y, .. } => {
            Some(*y)
        }
        _ => None,
    }
}

/// The side of the kernel and how many rows a thread has, where there is a kernel for these.
fn conv_kernel(at: net::Window, rows: usize) -> Option<(usize, usize)> {
    match at.kernel {
        5 if at.stride == 1 => {
            Some((5, if rows.is_multiple_of(5) && !rows.is_multiple_of(4) { 5 } else { 4 }))
        }
        3 if at.stride == 1 => Some((3, 4)),
        _ => None,
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
