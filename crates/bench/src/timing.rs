//! Time a call: the best wall time and the best CPU time of several.

use std::time::Instant;

/// Seconds of one call, at best.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// By the clock.
    pub seconds: f64,
    /// Of all threads of this process; not a number where the system does not say.
    pub cpu_seconds: f64,
}

/// Call once untimed, then `repeats` times. A call says how much of what is timed it did: where it
/// did more or less, its time is that of one; where it did nothing, it is not counted.
pub fn best_of(
    repeats: u32,
    mut call: impl FnMut() -> Result<f64, String>,
) -> Result<Timed, String> {
    call()?;
    let mut best = Timed { seconds: f64::INFINITY, cpu_seconds: f64::INFINITY };
    for _ in 0..repeats.max(1) {
        let (start, before) = (Instant::now(), cpu_seconds());
        let done = call()?;
        if done > 0.0 {
            best.seconds = best.seconds.min(start.elapsed().as_secs_f64() / done);
            best.cpu_seconds = best.cpu_seconds.min((cpu_seconds() - before) / done);
        }
    }
    Ok(best)
}

/// The CPU time of this process, all threads together.
#[cfg(unix)]
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Not a number: the system does not say.
#[cfg(not(unix))]
pub fn cpu_seconds() -> f64 {
    f64::NAN
}

/// Stay on the last core that this process may use, as the peers do with one thread; elsewhere than
/// on Linux nothing happens.
pub fn pin_to_one_core() {
    #[cfg(target_os = "linux")]
    if let Ok(allowed) = rustix::thread::sched_getaffinity(None)
        && let Some(last) =
            (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|core| allowed.is_set(*core))
    {
        let mut one = rustix::thread::CpuSet::new();
        one.set(last);
        // a machine that forbids it is timed as it is
        let _ = rustix::thread::sched_setaffinity(None, &one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk that goes beyond its goal leaves less to the next call, or nothing.
    #[test]
    fn calls_that_do_nothing_are_not_the_best() {
        let mut left = [1.0, 0.0, 0.0].into_iter();
        let timed = best_of(2, || Ok(left.next().unwrap_or(0.0))).unwrap();
        assert!(timed.seconds == f64::INFINITY && timed.cpu_seconds == f64::INFINITY);
    }
}
