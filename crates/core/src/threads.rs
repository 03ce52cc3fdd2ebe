//! Do the same with many things on the threads that somebody has. No number depends on how many.

use std::sync::Mutex;

/// Whoever has threads.
pub trait Threads: Sync {
    /// Do the work for every number below `count`, in any order, and wait until all is done.
    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync));
}

/// The thread that asks, and no other.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Threads for Alone {
    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }
}

/// Do something with each of these; what comes out is in their order.
pub fn at_once<T: Send, R: Send>(
    spread: &dyn Threads,
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let cells: Vec<Mutex<(Option<T>, Option<R>)>> =
        items.into_iter().map(|item| Mutex::new((Some(item), None))).collect();
    spread.each(cells.len(), &|k| {
        // nobody else has this cell
        if let Ok(mut cell) = cells[k].lock()
            && let Some(item) = cell.0.take()
        {
            cell.1 = Some(work(item));
        }
    });
    let done = |cell: Mutex<(Option<T>, Option<R>)>| cell.into_inner().ok().and_then(|(_, r)| r);
    cells.into_iter().filter_map(done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads, of which one begins at the end.
    struct Two;

    impl Threads for Two {
        fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                scope.spawn(|| (count / 2..count).rev().for_each(work));
                (0..count / 2).for_each(work);
            });
        }
    }

    #[test]
    fn everything_is_done_once_and_comes_out_in_order() {
        for (n, spread) in [(0, &Two as &dyn Threads), (1, &Two), (9, &Two), (9, &Alone)] {
            let mut items: Vec<usize> = (0..n).collect();
            let out = at_once(spread, items.iter_mut().collect(), |item| {
                *item += 1;
                *item
            });
            assert_eq!(out, (1..=n).collect::<Vec<_>>());
            assert_eq!(items, out);
        }
    }
}
