//! Work that goes on, on the runtime it was begun on, when its caller stops waiting.

use std::future::Future;

use pillarbox_core::lasting::Lasting;
use pillarbox_core::store::BoxFuture;
use tokio::runtime::Handle;

pub(crate) fn lasting<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Lasting<T, impl FnOnce(BoxFuture<'static, ()>) + Unpin> {
    let runtime = Handle::try_current();
    Lasting::new(work, move |rest| {
        if let Ok(runtime) = runtime {
            runtime.spawn(rest);
        }
    })
}
