//! Independent work on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Carries out `work` for 0, 1, … `count` − 1 on `threads` threads and tells `done` as each is ready, in no particular order. If
/// `done` fails, what is under way is finished, nothing else begins, and the error is returned.
pub fn across<T: Send, E>(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> T + Sync,
    mut done: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.clamp(1, count.max(1)) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count || sender.send((index, work(index))).is_err() {
                    break;
                }
            });
        }
        drop(sender);
        for (index, result) in receiver {
            if let Err(error) = done(index, result) {
                next.store(count, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_once_on_any_number_of_threads() {
        for (threads, count) in [(1, 5), (3, 100), (8, 2), (4, 0), (0, 3)] {
            let mut seen = vec![0; count];
            let result: Result<(), ()> = across(
                threads,
                count,
                |index| index * 2,
                |index, twice| {
                    assert_eq!(twice, index * 2);
                    seen[index] += 1;
                    Ok(())
                },
            );
            assert!(result.is_ok() && seen.iter().all(|&times| times == 1), "{threads}, {count}: {seen:?}");
        }
    }

    #[test]
    fn after_an_error_nothing_begins() {
        let begun = AtomicUsize::new(0);
        let work = |index: usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            index
        };
        let result = across(2, 1_000_000, work, |_, _| Err("full"));
        assert!(result == Err("full") && begun.into_inner() < 1_000_000);
    }
}
