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

/// One line about how far it is. What is not counted in iterations is named by itself.
fn line(
    title: &str,
    (done, total): (u64, u64),
    stage: &str,
    is_new: bool,
    elapsed: Duration,
) -> String {
    let share = done as f64 / total.max(1) as f64;
    let left = match share {
        0.0 => "just started".into(),
        1.0.. if stage.is_empty() => "all iterations done".into(),
        1.0.. if is_new => stage.to_owned(),
        1.0.. => format!("still {stage}, {:.0} s so far", elapsed.as_secs_f64()),
        share => {
            let seconds = elapsed.as_secs_f64() * (1.0 - share) / share;
            let what = if stage.is_empty() { String::new() } else { format!(" ({stage})") };
            format!("{seconds:.0} s left{what}")
        }
    };
    format!("{title} {:.0}%, {left}\n", 100.0 * share.min(1.0))
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
    let mut shown = String::new();
    while !finished.load(Ordering::Relaxed) {
        let done = progress.done.load(Ordering::Relaxed);
        // A run that goes on has more to do than was known when it began.
        let total = total.max(progress.total.load(Ordering::Relaxed));
        bar.set_length(total);
        bar.set_position(done);
        let stage = progress.stage();
        if terminal && stage != shown {
            let prefix = if stage.is_empty() { title.into() } else { format!("{title}: {stage}") };
            bar.set_prefix(prefix);
            shown = stage;
        } else if !terminal && started.elapsed() >= next_line {
            note(&line(title, (done, total), &stage, stage != shown, started.elapsed()));
            shown = stage;
            next_line = started.elapsed() + Duration::from_secs(10);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_is_going_on_when_nothing_is_counted() {
        let minute = Duration::from_secs(60);
        let line = |done, stage: &str, is_new| line("sampling", (done, 100), stage, is_new, minute);
        assert_eq!(line(0, "", true), "sampling 0%, just started\n");
        assert_eq!(line(50, "", false), "sampling 50%, 60 s left\n");
        assert_eq!(line(75, "by hmc", false), "sampling 75%, 20 s left (by hmc)\n");
        assert_eq!(line(100, "surveying", true), "sampling 100%, surveying\n");
        assert_eq!(line(100, "surveying", false), "sampling 100%, still surveying, 60 s so far\n");
    }
}
