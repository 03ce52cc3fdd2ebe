//! Do the same with many things on a few threads. No number depends on how many there are.

use std::sync::OnceLock;

/// Threads at the most: they wait for memory, of which more would take no more in.
const MOST: usize = 8;

/// Do something with each of these; what comes out is in their order.
pub fn at_once<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES
        .get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).min(MOST));
    let share = items.len().div_ceil(cores).max(1);
    let (mut items, work) = (items.into_iter(), &work);
    let mut next = || items.by_ref().take(share).collect::<Vec<T>>();
    std::thread::scope(|scope| {
        let own = next();
        let mut others = Vec::with_capacity(cores);
        loop {
            let part = next();
            if part.is_empty() {
                break;
            }
            others.push(scope.spawn(move || part.into_iter().map(work).collect::<Vec<R>>()));
        }
        let mut all: Vec<R> = own.into_iter().map(work).collect();
        for other in others {
            match other.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_once_and_comes_out_in_order() {
        for n in [0, 1, 2, 7, 8, 9, 100] {
            let mut items: Vec<usize> = (0..n).collect();
            let out = at_once(items.iter_mut().collect(), |item| {
                *item += 1;
                *item
            });
            assert_eq!(out, (1..=n).collect::<Vec<_>>());
            assert_eq!(items, out);
        }
    }
}
