//! Do the same with many things on the threads that somebody has. No number depends on how many.

/// Whoever has threads.
pub trait Threads: Sync {
    /// Do every piece of work once, in any order, and wait until all is done.
    fn each(&self, work: &mut [Piece<'_>]);
}

/// A piece of work that any thread may do.
pub type Piece<'a> = &'a mut (dyn FnMut() + Send);

/// The thread that asks, and no other.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Threads for Alone {
    fn each(&self, work: &mut [Piece<'_>]) {
        work.iter_mut().for_each(|piece| piece());
    }
}

/// Do something with each of these; what comes out is in their order.
pub fn at_once<T: Send, R: Send>(
    spread: &dyn Threads,
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    let mut cells: Vec<(Option<T>, Option<R>)> =
        items.into_iter().map(|item| (Some(item), None)).collect();
    let piece = |cell: &'_ mut (Option<T>, Option<R>)| cell.1 = cell.0.take().map(work);
    let mut pieces: Vec<_> = cells.iter_mut().map(|cell| move || piece(cell)).collect();
    spread.each(&mut pieces.iter_mut().map(|piece| piece as Piece<'_>).collect::<Vec<_>>());
    drop(pieces);
    cells.into_iter().filter_map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads, of which one begins at the end.
    struct Two;

    impl Threads for Two {
        fn each(&self, work: &mut [Piece<'_>]) {
            let (first, second) = work.split_at_mut(work.len() / 2);
            std::thread::scope(|scope| {
                scope.spawn(|| second.iter_mut().rev().for_each(|piece| piece()));
                first.iter_mut().for_each(|piece| piece());
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
