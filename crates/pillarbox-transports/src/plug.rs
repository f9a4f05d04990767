//! The wire that a connection hangs on, and a way to cut it.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};

use socket2::{SockRef, Socket};
use tokio::net::TcpStream;

/// A second handle of a connection's socket. A client waits on the first without end; without a wire it ends at once.
#[derive(Clone, Default)]
pub(crate) struct Plug(Arc<Mutex<Plugged>>);

#[derive(Default)]
enum Plugged {
    #[default]
    NotYet,
    In(Socket),
    Pulled,
}

impl Plug {
    /// Fails when the plug was pulled before there was a wire.
    pub(crate) fn insert(&self, stream: &TcpStream) -> io::Result<()> {
        let socket = SockRef::from(stream).try_clone()?;
        let mut plugged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *plugged {
            Plugged::Pulled => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => {
                *plugged = Plugged::In(socket);
                Ok(())
            }
        }
    }

    pub(crate) fn pull(&self) {
        let mut plugged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Plugged::In(socket) = std::mem::replace(&mut *plugged, Plugged::Pulled) {
            let _already_gone = socket.shutdown(Shutdown::Both);
        }
    }

    /// Pulls the plug when it is dropped, as happens when nobody waits for a connection any more.
    pub(crate) fn puller(&self) -> Puller {
        Puller(Some(self.clone()))
    }
}

/// See [`Plug::puller`].
pub(crate) struct Puller(Option<Plug>);

impl Puller {
    /// The connection is there and stays.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        if let Some(plug) = &self.0 {
            plug.pull();
        }
    }
}
