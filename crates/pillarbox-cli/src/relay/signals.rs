//! What signals tell the relay. They are listened to from its beginning on: one that comes early, or while it is busy, waits.

use std::future::Future;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that mean something here.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal means.
pub(crate) enum Told {
    /// SIGTERM, or ctrl-c.
    End,
    /// SIGHUP.
    ReadAgain,
}

impl Signals {
    /// From now on none of them ends the process by itself.
    pub(crate) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { terminate, interrupt, hangup: signal(SignalKind::hangup())? })
    }

    /// The next one that came.
    pub(crate) async fn next(&mut self) -> Told {
        let Self { terminate, interrupt, hangup } = self;
        tokio::select! {
            // Who wants it to end does not wait for a file to be read.
            biased;
            _ = terminate.recv() => Told::End,
            _ = interrupt.recv() => Told::End,
            _ = hangup.recv() => Told::ReadAgain,
        }
    }

    /// Waits until it is told to end.
    pub(crate) async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Does something to its end, unless it is told to end before; then that is dropped.
    pub(crate) async fn unless_ended<T>(&mut self, doing: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.end() => None,
            done = doing => Some(done),
        }
    }
}
