//! Show how far a run is: a bar on a terminal, plain lines elsewhere; Ctrl-C and SIGTERM stop it
//! and keep what was drawn.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consilience_engine::run::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::note;

/// Show the progress of `work` while it runs.
pub fn with_progress<R>(
    title: &str,
    total: u64,
    progress: &Arc<Progress>,
    work: impl FnOnce() -> R,
) -> R {
    let stop = Arc::clone(progress);
    // A second handler in one process is refused; the first serves then.
    let _ = ctrlc::set_handler(move || {
        if stop.stop.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        note("\nstopping: what was drawn is kept (Ctrl-C again to leave at once)\n");
    });
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| watch(title, total, progress, &finished));
        let result = work();
        finished.store(true, Ordering::Relaxed);
        result
    })
}

fn watch(title: &str, total: u64, progress: &Progress, finished: &AtomicBool) {
    let terminal = std::io::stderr().is_terminal();
    let bar = if terminal { ProgressBar::new(total) } else { ProgressBar::hidden() };
    let template = "{prefix} {wide_bar} {percent:>3}%  {per_sec}  left {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(title.to_owned());
    let started = Instant::now();
    let mut next_line = Duration::from_secs(5);
    let mut ended = false;
    while !finished.load(Ordering::Relaxed) {
        let done = progress.done.load(Ordering::Relaxed);
        bar.set_position(done);
        let is_due = terminal || started.elapsed() >= next_line;
        if !ended && done >= total && is_due {
            // densities and scores of the draws, or a reference, which nobody counts
            ended = true;
            bar.set_prefix(format!("{title}: diagnostics"));
            if !terminal {
                note(&format!("{title} 100%; computing diagnostics\n"));
            }
        } else if !terminal && !ended && is_due {
            let share = done as f64 / total.max(1) as f64;
            let left = if share > 0.0 {
                format!("{:.0} s left", started.elapsed().as_secs_f64() * (1.0 - share) / share)
            } else {
                "just started".into()
            };
            note(&format!("{title} {:.0}%, {left}\n", 100.0 * share));
            next_line += Duration::from_secs(10);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bar.finish_and_clear();
}
