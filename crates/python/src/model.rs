//! Ask a model that is written in Python: one call for all clients of an iteration, and the
//! interpreter is taken once for it.

use std::sync::{Arc, Mutex, PoisonError};

use consilience_core::ask::{Ask, Sum};
use consilience_core::model::{EvaluationError, Evaluator, Model, Offers, Rows};
use consilience_core::rng::ClientId;
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;

/// How a batch says that its points want all rows, or unequal numbers of them.
const ALL_ROWS: i64 = -1;
const UNEQUAL: i64 = -2;

/// A model as the front describes it (`consilience/_model.py`).
#[derive(Debug, FromPyObject)]
pub struct Brought {
    /// The parameters' names.
    pub parameters: Vec<String>,
    /// The clients' names.
    pub sites: Vec<String>,
    /// Where chains start, if the model knows.
    pub start: Option<Vec<f64>>,
    /// Whether it may be called on several threads at once.
    pub concurrent: bool,
    /// How many rows each client has.
    rows: Vec<usize>,
    /// Whether it gives differences of gradients itself.
    differences: bool,
    /// The relative error of a gradient's coordinate.
    resolution: f64,
    /// Makes a `Batch`.
    room: Py<PyAny>,
    /// What it is called.
    pub name: Option<String>,
}

/// The same as the core asks it.
#[derive(Debug)]
pub struct Asked {
    brought: Brought,
    /// Batches that nobody is using: as many as there were calls at a time.
    rooms: Mutex<Vec<Room>>,
    /// What the model raised first.
    raised: Mutex<Option<PyErr>>,
    /// Where a gradient was no number although the point was, the last time.
    undefined: Mutex<Option<String>>,
}

/// How many coordinates of a point are shown.
const SHOWN: usize = 6;

impl Asked {
    /// A model that nobody has asked yet.
    pub fn new(brought: Brought) -> Self {
        Asked {
            brought,
            rooms: Mutex::default(),
            raised: Mutex::default(),
            undefined: Mutex::default(),
        }
    }

    /// What the front said of it.
    pub fn brought(&self) -> &Brought {
        &self.brought
    }

    /// What the model raised, if it did.
    pub fn raised(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Where a gradient was no number, if one was: a search turns around there, a chain cannot.
    pub fn undefined(&self) -> Option<String> {
        self.undefined.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn answer(&self, py: Python<'_>, asks: &mut [Ask<'_>]) -> PyResult<()> {
        let kept = self.rooms.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut room = kept.map_or_else(|| Room::new(self.brought.room.bind(py)), Ok)?;
        let answered = room.answer(py, asks, self.dim(), self.brought.differences);
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner).push(room);
        if let Some((asked, parameter)) = answered? {
            let told = self.describe(&asks[asked], parameter);
            *self.undefined.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        }
        Ok(())
    }

    fn evaluate(&self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        Python::attach(|py| {
            self.answer(py, asks).map_err(|error| {
                let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
                raised.get_or_insert_with(|| error.clone_ref(py));
                EvaluationError(Box::new(error))
            })
        })
    }

    /// Whose gradient is no number, in which coordinate, and where.
    fn describe(&self, ask: &Ask<'_>, parameter: usize) -> String {
        let (site, names) = (&self.brought.sites[ask.client.index()], &self.brought.parameters);
        let mut at: Vec<String> = names
            .iter()
            .zip(ask.sum.points())
            .take(SHOWN)
            .map(|(name, x)| format!("{name} = {x}"))
            .collect();
        at.extend((names.len() > SHOWN).then(|| "...".to_owned()));
        format!(
            "the model's gradient is NaN: client {site:?}, parameter {:?}, at {}",
            names[parameter],
            at.join(", ")
        )
    }
}

impl Model for Asked {
    fn dim(&self) -> usize {
        self.brought.parameters.len()
    }

    fn clients(&self) -> usize {
        self.brought.rows.len()
    }

    fn rows(&self) -> usize {
        self.brought.rows.iter().sum()
    }

    fn rows_of(&self, client: ClientId) -> usize {
        self.brought.rows[client.index()]
    }

    fn offers(&self) -> Offers {
        Offers { resolution: self.brought.resolution, ..Offers::default() }
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        Box::new(Asking(self))
    }

    /// The interpreter's state of a thread lives as long as the outermost hold on it: made anew for
    /// every call it would cost more than most calls.
    fn host(&self, work: &mut (dyn FnMut() + Send)) {
        Python::attach(|py| py.detach(work));
    }
}

/// Asks the model for one thread.
#[derive(Debug)]
struct Asking(Arc<Asked>);

impl Evaluator for Asking {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let (model, d) = (&self.0, self.0.dim());
        if asks.iter().all(|ask| ask.sum.points().len() == d) {
            return model.evaluate(asks);
        }
        // A model in Python knows one point an ask.
        let mut each: Vec<Ask<'_>> = asks.iter_mut().flat_map(|ask| ask.split(d)).collect();
        model.evaluate(&mut each)
    }
}

/// A `Batch` and its arrays, which are NumPy's and used again for every call.
#[derive(Debug)]
struct Room {
    batch: Py<PyAny>,
    /// The points, one a line: where clients are, and behind them all what some of them compare
    /// with.
    points: Py<PyArray2<f64>>,
    /// What the model answers, in the same order.
    sums: Py<PyArray2<f64>>,
    /// Who asks.
    clients: Py<PyArray1<i64>>,
    /// How many rows each point is about; `ALL_ROWS` for all.
    counts: Py<PyArray1<i64>>,
    /// Which rows, point after point.
    rows: Py<PyArray1<i64>>,
}

impl Room {
    fn new(make: &Bound<'_, PyAny>) -> PyResult<Self> {
        let batch = make.call0()?;
        Ok(Room {
            points: batch.getattr("_points")?.extract()?,
            sums: batch.getattr("_sums")?.extract()?,
            clients: batch.getattr("_clients")?.extract()?,
            counts: batch.getattr("_counts")?.extract()?,
            rows: batch.getattr("_rows")?.extract()?,
            batch: batch.unbind(),
        })
    }

    /// Fill the asks in. The first of them that got NaN at a finite point, and in which coordinate.
    fn answer(
        &mut self,
        py: Python<'_>,
        asks: &mut [Ask<'_>],
        d: usize,
        differences: bool,
    ) -> PyResult<Option<(usize, usize)>> {
        // Somebody who gives differences is asked for them where everybody wants one; else they are
        // made of gradients at both points.
        let paired =
            differences && asks.iter().all(|ask| matches!(ask.sum, Sum::Difference { .. }));
        let compared = asks.iter().filter(|ask| matches!(ask.sum, Sum::Difference { .. })).count();
        let count = asks.len() + if paired { 0 } else { compared };
        let once = Once::of(asks, paired || compared == 0);
        let size = self.write(py, asks, d, once)?;
        self.batch.bind(py).call_method1(
            intern!(py, "_answer"),
            (count, paired, size, once.here, once.compared),
        )?;
        let mut sums = self.sums.bind(py).readwrite();
        let (told, others) = sums.as_slice_mut()?.split_at_mut(asks.len() * d);
        let mut others = others.chunks_exact(d);
        let mut undefined = None;
        for (k, (ask, told)) in asks.iter_mut().zip(told.chunks_exact_mut(d)).enumerate() {
            if let Sum::Difference { x, z } = ask.sum {
                if let Some(other) = others.next().filter(|_| !paired) {
                    told.iter_mut().zip(other).for_each(|(told, other)| *told -= other);
                }
                // Exactly nothing between equal points, however the model rounds.
                if x == z {
                    continue;
                }
            }
            if undefined.is_none() && ask.sum.points().iter().all(|x| x.is_finite()) {
                undefined = told.iter().position(|g| g.is_nan()).map(|parameter| (k, parameter));
            }
            ask.tell(told);
        }
        Ok(undefined)
    }

    /// Write down what is asked; how many rows each point is about, if it is the same number. A
    /// point that is the same for all is written once.
    fn write(&mut self, py: Python<'_>, asks: &[Ask<'_>], d: usize, once: Once) -> PyResult<i64> {
        self.make_room(py, asks)?;
        let (mut points, mut clients, mut counts, mut rows) = (
            self.points.bind(py).readwrite(),
            self.clients.bind(py).readwrite(),
            self.counts.bind(py).readwrite(),
            self.rows.bind(py).readwrite(),
        );
        let (points, clients, counts, rows) = (
            points.as_slice_mut()?,
            clients.as_slice_mut()?,
            counts.as_slice_mut()?,
            rows.as_slice_mut()?,
        );
        let compared = asks.iter().filter_map(|ask| {
            if let Sum::Difference { z, .. } = ask.sum { Some((ask, z)) } else { None }
        });
        let here = asks.iter().map(|ask| (ask, ask.sum.points()));
        let (mut at, mut size) = (0, None);
        for (k, (ask, point)) in here.chain(compared).enumerate() {
            let (told, first) =
                if k < asks.len() { (once.here, 0) } else { (once.compared, asks.len()) };
            if !told || k == first {
                points[k * d..(k + 1) * d].copy_from_slice(point);
            }
            clients[k] = i64::from(ask.client.0);
            counts[k] = match ask.rows {
                Rows::All => ALL_ROWS,
                Rows::Some(some) => {
                    rows[at..at + some.len()]
                        .iter_mut()
                        .zip(some)
                        .for_each(|(place, row)| *place = i64::from(*row));
                    at += some.len();
                    some.len() as i64
                }
            };
            size =
                Some(if size.is_none_or(|size| size == counts[k]) { counts[k] } else { UNEQUAL });
        }
        Ok(size.unwrap_or(ALL_ROWS))
    }

    /// Minibatches may grow: the list of rows is made longer, by half as much again.
    fn make_room(&mut self, py: Python<'_>, asks: &[Ask<'_>]) -> PyResult<()> {
        let listed: usize = asks
            .iter()
            .map(|ask| if let Rows::Some(rows) = ask.rows { 2 * rows.len() } else { 0 })
            .sum();
        if listed > self.rows.bind(py).len()? {
            self.rows = self
                .batch
                .bind(py)
                .call_method1(intern!(py, "_list"), (listed + listed / 2,))?
                .extract()?;
        }
        Ok(())
    }
}

/// Whether all ask about one point, and whether all compare with one.
#[derive(Clone, Copy)]
struct Once {
    here: bool,
    compared: bool,
}

impl Once {
    /// `apart`: points and what they are compared with are shown apart, so that each can be said
    /// once.
    fn of(asks: &[Ask<'_>], apart: bool) -> Self {
        fn same<'a>(mut points: impl Iterator<Item = &'a [f64]>) -> bool {
            let Some(first) = points.next() else { return false };
            let mut others = points.peekable();
            others.peek().is_some() && others.all(|other| other == first)
        }
        let compared = asks
            .iter()
            .filter_map(|ask| if let Sum::Difference { z, .. } = ask.sum { Some(z) } else { None });
        Once {
            here: apart && same(asks.iter().map(|ask| ask.sum.points())),
            compared: apart && same(compared),
        }
    }
}
