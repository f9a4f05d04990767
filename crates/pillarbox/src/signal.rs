//! Signals that ask a program to end, for binaries.

/// Waits for SIGTERM or ctrl-c. To heed an impatient operator, wait for the next one beside the shutdown.
///
/// ```no_run
/// # async fn example(runtime: pillarbox::Runtime) {
/// pillarbox::signal::terminated().await;
/// let report = runtime.shutdown(std::time::Duration::from_secs(5)).await;
/// # let _ = report;
/// # }
/// ```
pub async fn terminated() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = interrupted => {}
        () = terminate() => {}
    }
}

#[cfg(unix)]
async fn terminate() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signals) => drop(signals.recv().await),
        // Ctrl-c is waited for all the same.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminate() {
    std::future::pending().await
}
