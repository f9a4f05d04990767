//! The queue's own code under a model checker: many random schedules of every lock and wake-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::future::block_on;

use super::*;

impl<T> Guarded<T> for shuttle::sync::Mutex<T> {
    fn new(value: T) -> Self {
        shuttle::sync::Mutex::new(value)
    }

    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock().expect("no model panics under the lock"))
    }
}

type Modelled = Queue<u32, shuttle::sync::Mutex<Waiting<u32>>>;

const SCHEDULES: usize = 2_000;

/// HOT-03, H29: a worker that sleeps while an entry waits would hang the model, which is then reported as a deadlock.
#[test]
fn no_entry_is_left_behind_and_none_runs_twice() {
    shuttle::check_random(
        || {
            let queue =
                Arc::new(Modelled::new(4, 4, vec![Lane::Shared, Lane::Own { concurrency_max: 1, batch_max: None }]));
            let handled = Arc::new(AtomicUsize::new(0));
            let workers: Vec<_> = (0..2)
                .map(|number| {
                    let (queue, handled) = (Arc::clone(&queue), Arc::clone(&handled));
                    shuttle::thread::spawn(move || {
                        block_on(async move {
                            while let Some(work) = queue.next(number).await {
                                handled.fetch_add(1, Ordering::SeqCst);
                                shuttle::thread::yield_now();
                                queue.finished(work.route);
                                if handled.load(Ordering::SeqCst) == 6 {
                                    queue.close();
                                }
                            }
                        });
                    })
                })
                .collect();
            let writers: Vec<_> = [(Path::Hot, 0), (Path::Cold, 1)]
                .map(|(path, route)| {
                    let queue = Arc::clone(&queue);
                    shuttle::thread::spawn(move || {
                        for entries in [1, 2] {
                            assert_eq!(queue.reserve(path, entries), entries);
                            let entries = (0..entries).map(|_| (route, 0)).collect();
                            assert!(queue.push(path, entries).is_empty());
                        }
                    })
                })
                .into_iter()
                .collect();
            for thread in workers.into_iter().chain(writers) {
                thread.join().unwrap();
            }
            assert_eq!(handled.load(Ordering::SeqCst), 6);
            assert_eq!(queue.depths(), Depths::default());
        },
        SCHEDULES,
    );
}

/// HOT-13, H32: whatever the moment of the shutdown, every entry is either handled or given back, and every worker ends.
#[test]
fn a_shutdown_at_any_moment_loses_no_entry() {
    shuttle::check_random(
        || {
            let queue = Arc::new(Modelled::new(4, 4, vec![Lane::Shared]));
            let handled = Arc::new(AtomicUsize::new(0));
            let workers: Vec<_> = (0..2)
                .map(|number| {
                    let (queue, handled) = (Arc::clone(&queue), Arc::clone(&handled));
                    shuttle::thread::spawn(move || {
                        block_on(async move {
                            while queue.next(number).await.is_some() {
                                handled.fetch_add(1, Ordering::SeqCst);
                            }
                        });
                    })
                })
                .collect();
            let writer = {
                let queue = Arc::clone(&queue);
                shuttle::thread::spawn(move || {
                    let granted = queue.reserve(Path::Hot, 3);
                    queue.push(Path::Hot, (0..3).take(granted).map(|entry| (0, entry)).collect()).len() + (3 - granted)
                })
            };
            let closer = {
                let queue = Arc::clone(&queue);
                shuttle::thread::spawn(move || queue.close().len())
            };
            let refused = writer.join().unwrap();
            let given_back = closer.join().unwrap();
            for worker in workers {
                worker.join().unwrap();
            }
            assert_eq!(handled.load(Ordering::SeqCst) + given_back + refused, 3);
        },
        SCHEDULES,
    );
}
