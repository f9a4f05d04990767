//! A way to a real server that can be cut: in both directions, or only for its answers.

use std::pin::pin;
use std::sync::Arc;

use tokio::io::copy;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to a server, or holds them.
pub(crate) struct Link {
    address: String,
    passes: Arc<watch::Sender<Passes>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passes {
    All,
    /// What was asked reaches the server, and its answers nobody.
    Requests,
    Nothing,
}

impl Link {
    /// A link to the server of this address.
    pub(crate) async fn to(url: &str) -> Self {
        let (before, host) = url.split_once('@').unwrap_or_else(|| url.split_once("//").unwrap());
        let (server, rest) = host.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let separator = if url.contains('@') { "@" } else { "//" };
        let address = format!("{before}{separator}{}/{rest}", listener.local_addr().unwrap());
        let passes = Arc::new(watch::Sender::new(Passes::All));
        tokio::spawn(accept(listener, server.to_owned(), Arc::clone(&passes)));
        Self { address, passes }
    }

    /// The address that leads through the link.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// From now on no byte passes, in either direction; connections stay open, and new ones are accepted.
    pub(crate) fn cut(&self) {
        self.passes.send_replace(Passes::Nothing);
    }

    /// From now on the server hears everything on the connections there are, and nobody hears the server.
    pub(crate) fn mute(&self) {
        self.passes.send_replace(Passes::Requests);
    }

    /// Connections that were cut or muted break, and new ones pass.
    pub(crate) fn mend(&self) {
        self.passes.send_replace(Passes::All);
    }
}

async fn accept(listener: TcpListener, server: String, passes: Arc<watch::Sender<Passes>>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(forward(client, server.clone(), passes.subscribe()));
    }
}

async fn forward(mut client: TcpStream, server: String, mut passes: watch::Receiver<Passes>) {
    if *passes.borrow() == Passes::All {
        let mut upstream = TcpStream::connect(server).await.unwrap();
        let ((mut asked, mut told), (mut answered, mut asks)) = (client.split(), upstream.split());
        let mut requests = pin!(copy(&mut asked, &mut asks));
        let now = tokio::select! {
            _ = &mut requests => return,
            _ = copy(&mut answered, &mut told) => return,
            passes = passes.wait_for(|passes| *passes != Passes::All) => passes.map_or(Passes::Nothing, |passes| *passes),
        };
        if now == Passes::Requests {
            tokio::select! {
                _ = requests => {}
                _ = passes.wait_for(|passes| *passes != Passes::Requests) => {}
            }
        }
    }
    let _ = passes.wait_for(|passes| *passes == Passes::All).await;
}
