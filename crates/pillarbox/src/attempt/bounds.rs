//! Keeps code of the user's within bounds: its panics are failures, and its time is limited.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pillarbox_core::StoreId;
use pillarbox_core::store::BoxFuture;

use crate::failure::Failure;
use crate::telemetry;

/// Waits for the work up to the limit. When time is up, `late` is called before the work is dropped.
///
/// No timer is set for work that is done when it is first polled: most handlers of a fast queue are.
pub(crate) async fn limited<T>(limit: Duration, work: impl Future<Output = T>, late: impl FnOnce()) -> Option<T> {
    let mut work = pin!(work);
    let mut timer = None;
    let done = poll_fn(|task| {
        if let Poll::Ready(value) = work.as_mut().poll(task) {
            return Poll::Ready(Some(value));
        }
        // Unconstrained: work that never tires must not keep the timer from being looked at.
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::task::unconstrained(tokio::time::sleep(limit))));
        ready!(timer.as_mut().poll(task));
        Poll::Ready(None)
    })
    .await;
    if done.is_none() {
        late();
    }
    done
}

/// Begins and awaits something of the user's; a panic in it, also while it is dropped, is a failure and no more.
pub(crate) async fn contained<'a, T>(
    who: &'static str,
    store: &StoreId,
    begin: impl FnOnce() -> Result<BoxFuture<'a, T>, Failure>,
) -> Result<T, Failure> {
    let panicked = |panic| Failure::retry(format!("{who} panicked: {}", text_of(panic)));
    let work = catch_unwind(AssertUnwindSafe(begin)).map_err(panicked)??;
    Contained { work: Some(work), store }.await.map_err(panicked)
}

struct Contained<'a, 's, T> {
    work: Option<BoxFuture<'a, T>>,
    store: &'s StoreId,
}

impl<T> Future for Contained<'_, '_, T> {
    type Output = Result<T, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(task))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

impl<T> Drop for Contained<'_, '_, T> {
    fn drop(&mut self) {
        let work = self.work.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            telemetry::panicked_late(self.store, &text_of(panic));
        }
    }
}

/// What a panic said, if it said something.
fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "without a text".to_owned(),
    };
    // What was thrown may itself panic when it is dropped, and so on; a leak is the lesser evil.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;

    use super::*;
    use crate::telemetry::witness::Witness;

    fn shop() -> StoreId {
        StoreId::new("shop").unwrap()
    }

    /// A runtime without a clock would panic as soon as a timer is set.
    #[test]
    fn work_that_is_done_at_once_sets_no_timer() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(limited(Duration::from_secs(1), async { 7 }, || ())), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn when_time_is_up_it_is_said_before_the_work_is_dropped() {
        struct Dropped(Arc<Mutex<Vec<&'static str>>>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.lock().unwrap().push("dropped");
            }
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let guard = Dropped(Arc::clone(&order));
        let work = async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        };
        let late = || order.lock().unwrap().push("late");
        assert_eq!(limited(Duration::from_secs(3600), work, late).await, None);
        assert_eq!(*order.lock().unwrap(), ["late", "dropped"]);
    }

    /// H28: only the cooperative budget ever makes this work wait, and it has used that up when the timer is polled.
    #[tokio::test]
    async fn work_that_never_tires_cannot_outrun_its_limit() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let work = async {
            loop {
                sender.send(()).unwrap();
                receiver.recv().await;
            }
        };
        assert_eq!(limited::<()>(Duration::from_millis(1), work, || ()).await, None);
    }

    /// H30.
    #[tokio::test]
    async fn a_panic_is_a_failure_wherever_it_happens() {
        let said = |result: Result<(), Failure>| result.unwrap_err().reason().to_owned();
        let begin = contained("handler", &shop(), || panic!("while it begins")).await;
        assert_eq!(said(begin), "handler panicked: while it begins");
        let number = 7;
        let poll = contained("handler", &shop(), || Ok(async move { panic!("with {number}") }.boxed())).await;
        assert_eq!(said(poll), "handler panicked: with 7");
        let odd = contained("handler", &shop(), || Ok(async { std::panic::panic_any(7_u8) }.boxed())).await;
        assert_eq!(said(odd), "handler panicked: without a text");
    }

    /// H30: a guard that panics in its drop, when the work is given up and when it has panicked itself.
    #[tokio::test]
    async fn a_panic_in_drop_is_contained() {
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                DROPS.fetch_add(1, Ordering::Relaxed);
                panic!("in drop");
            }
        }
        let waiting = async {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        };
        let (witness, shop) = (Witness::default(), shop());
        let _watch = witness.watch();
        let mut given_up = Box::pin(contained("handler", &shop, || Ok(waiting.boxed())));
        assert!(given_up.as_mut().now_or_never().is_none());
        drop(given_up);
        let thrown = contained::<()>("handler", &shop, || Ok(async { std::panic::panic_any(Bomb) }.boxed())).await;
        assert_eq!(thrown.unwrap_err().reason(), "handler panicked: without a text");
        assert_eq!(DROPS.load(Ordering::Relaxed), 2);
        let said = "ERROR a handler panicked while it was dropped error=\"in drop\" store=\"shop\"";
        assert_eq!(witness.lines(), [said]);
    }
}
