//! Work that goes on when its caller stops waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::store::BoxFuture;

/// Runs to its end also when it is dropped, once it was polled: what was begun in the database has its consequences.
///
/// It is polled by its caller, so a lone call costs no task. What is left of it when the caller drops it goes to `spawn`, which
/// gives it to the program's runtime.
pub struct Lasting<T: Send + 'static, S: FnOnce(BoxFuture<'static, ()>) + Unpin> {
    work: Option<BoxFuture<'static, T>>,
    spawn: Option<S>,
    has_begun: bool,
}

impl<T: Send + 'static, S: FnOnce(BoxFuture<'static, ()>) + Unpin> Lasting<T, S> {
    /// Work that has not begun. Dropped before its first poll it never happens.
    pub fn new(work: impl Future<Output = T> + Send + 'static, spawn: S) -> Self {
        Self { work: Some(Box::pin(work)), spawn: Some(spawn), has_begun: false }
    }
}

impl<T: Send + 'static, S: FnOnce(BoxFuture<'static, ()>) + Unpin> Future for Lasting<T, S> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.has_begun = true;
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static, S: FnOnce(BoxFuture<'static, ()>) + Unpin> Drop for Lasting<T, S> {
    fn drop(&mut self) {
        if let (true, Some(work), Some(spawn)) = (self.has_begun, self.work.take(), self.spawn.take()) {
            spawn(Box::pin(async move { drop(work.await) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::task::Waker;

    use super::*;

    /// Work that is ready at its second poll.
    fn twice() -> impl Future<Output = u8> + Send {
        let mut polled = false;
        std::future::poll_fn(move |_| if std::mem::replace(&mut polled, true) { Poll::Ready(7) } else { Poll::Pending })
    }

    fn poll(work: &mut (impl Future<Output = u8> + Unpin)) -> Poll<u8> {
        Pin::new(work).poll(&mut Context::from_waker(Waker::noop()))
    }

    type Spawned = Rc<RefCell<Vec<BoxFuture<'static, ()>>>>;

    fn lasting(spawned: &Spawned) -> Lasting<u8, impl FnOnce(BoxFuture<'static, ()>) + Unpin> {
        let spawned = Rc::clone(spawned);
        Lasting::new(twice(), move |rest| spawned.borrow_mut().push(rest))
    }

    #[test]
    fn work_is_done_by_its_caller() {
        let spawned = Spawned::default();
        let mut work = lasting(&spawned);
        assert_eq!(poll(&mut work), Poll::Pending);
        assert_eq!(poll(&mut work), Poll::Ready(7));
        drop(work);
        assert_eq!(spawned.borrow().len(), 0);
    }

    /// H31: the caller stops waiting while the commit is under way; what follows from the commit follows all the same.
    #[test]
    fn work_that_was_begun_goes_on_when_nobody_waits_for_it() {
        let spawned = Spawned::default();
        let mut work = lasting(&spawned);
        assert_eq!(poll(&mut work), Poll::Pending);
        drop(work);
        let mut rest = spawned.borrow_mut().pop().expect("the rest is given to the runtime");
        assert!(rest.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready(), "nothing is done twice");
    }

    #[test]
    fn work_that_was_not_begun_is_forgotten() {
        let spawned = Spawned::default();
        drop(lasting(&spawned));
        assert_eq!(spawned.borrow().len(), 0);
    }
}
