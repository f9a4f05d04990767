//! A way to a real server that can be cut: what was sent is swallowed, and no answer comes.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to a server, or holds them.
pub(crate) struct Relay {
    address: String,
    is_cut: Arc<watch::Sender<bool>>,
}

impl Relay {
    /// A relay to the server of this address.
    pub(crate) async fn to(url: &str) -> Self {
        let (before, host) = url.split_once('@').unwrap_or_else(|| url.split_once("//").unwrap());
        let (server, rest) = host.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let separator = if url.contains('@') { "@" } else { "//" };
        let address = format!("{before}{separator}{}/{rest}", listener.local_addr().unwrap());
        let is_cut = Arc::new(watch::Sender::new(false));
        tokio::spawn(accept(listener, server.to_owned(), Arc::clone(&is_cut)));
        Self { address, is_cut }
    }

    /// The address that leads through the relay.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// From now on no byte passes, in either direction; connections stay open, and new ones are accepted.
    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Connections that were cut break, and new ones pass.
    pub(crate) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn accept(listener: TcpListener, server: String, is_cut: Arc<watch::Sender<bool>>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(forward(client, server.clone(), is_cut.subscribe()));
    }
}

async fn forward(mut client: TcpStream, server: String, mut is_cut: watch::Receiver<bool>) {
    if !*is_cut.borrow() {
        let mut upstream = TcpStream::connect(server).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => return,
            _ = is_cut.wait_for(|is_cut| *is_cut) => {}
        }
    }
    let _ = is_cut.wait_for(|is_cut| !*is_cut).await;
}
