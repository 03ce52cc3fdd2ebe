//! Work without holding the interpreter, look up now and then to show progress, and stop when
//! Ctrl-C is pressed.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use consilience_engine::run::Progress;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::errors::{Failure, Raised};

/// How long the interpreter waits between two looks.
const PATIENCE: Duration = Duration::from_millis(50);

/// Do `work` on a thread of its own. `show` is called with the iterations done so far. Ctrl-C asks
/// the work to stop and is not raised; what `show` raises is, once the work has stopped.
pub fn watched<R: Send>(
    py: Python<'_>,
    progress: &Progress,
    show: Option<&Py<PyAny>>,
    work: impl FnOnce() -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let mut raised = None;
    let ended = py.detach(|| {
        std::thread::scope(|scope| {
            let (done, over) = channel::<()>();
            let worker = scope.spawn(move || {
                let _done = done; // dropped when the work is over, however it ends
                work()
            });
            while over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = Python::attach(|py| look(py, progress, show)) {
                    progress.stop.store(true, Ordering::Relaxed);
                    raised = Some(error);
                }
            }
            worker.join().unwrap_or_else(|_| {
                Err(Failure::new(Raised::Error, "this is a fault of the program: please report it"))
            })
        })
    });
    if let Some(show) = show.filter(|_| raised.is_none()) {
        look(py, progress, Some(show)).or_else(|error| {
            if error.is_instance_of::<PyKeyboardInterrupt>(py) { Ok(()) } else { Err(error) }
        })?;
    }
    match raised {
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error),
        _ => Ok(ended?),
    }
}

fn look(py: Python<'_>, progress: &Progress, show: Option<&Py<PyAny>>) -> PyResult<()> {
    py.check_signals()?;
    if let Some(show) = show {
        let (done, total) =
            (progress.done.load(Ordering::Relaxed), progress.total.load(Ordering::Relaxed));
        show.call1(py, (done, Some(total).filter(|total| *total > 0)))?;
    }
    Ok(())
}
