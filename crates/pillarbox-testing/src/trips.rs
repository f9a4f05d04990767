//! Round trips to a real server, counted on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pillarbox_core::Message;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Stands between a client and a server, and counts how often the client speaks after it has listened.
#[derive(Debug)]
pub struct TripCounter {
    address: String,
    count: Arc<AtomicU64>,
}

impl TripCounter {
    /// A way to the server of this address.
    ///
    /// # Panics
    ///
    /// When the address has no host, or no port of this machine is free.
    pub async fn to(url: &str) -> Self {
        let (scheme, rest) = url.split_once("//").expect("an address with a scheme");
        let (user, rest) =
            rest.split_once('@').map_or((String::new(), rest), |(user, rest)| (format!("{user}@"), rest));
        let (server, path) = rest.split_once('/').expect("an address with a database");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let own = listener.local_addr().expect("a port is bound");
        let count = Arc::new(AtomicU64::new(0));
        tokio::spawn(accept(listener, server.to_owned(), Arc::clone(&count)));
        Self { address: format!("{scheme}//{user}{own}/{path}"), count }
    }

    /// The address that leads through here.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Round trips so far, of all connections.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, server: String, count: Arc<AtomicU64>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, count) = (server.clone(), Arc::clone(&count));
        tokio::spawn(async move {
            let Ok(upstream) = TcpStream::connect(server).await else { return };
            let ((asked, told), (answered, asks)) = (client.into_split(), upstream.into_split());
            let listened = AtomicBool::new(true);
            tokio::join!(
                pass(asked, asks, || {
                    if listened.swap(false, Ordering::SeqCst) {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }),
                pass(answered, told, || listened.store(true, Ordering::SeqCst)),
            );
        });
    }
}

/// Hands on what comes; each piece is noted before it is handed on.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, note: impl Fn()) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(size @ 1..) = from.read(&mut piece).await {
        note();
        if to.write_all(&piece[..size]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Batches of every kind, under their names: some of them due later, or with an end, or with ids that somebody knows.
pub fn batches_of_every_kind(count: usize) -> Vec<(&'static str, Vec<Message>)> {
    let batch = |kind: fn(usize, Message) -> Message| {
        (0..count).map(|index| kind(index, Message::new("t", format!("payload {index}")))).collect()
    };
    vec![
        ("due at once", batch(|_, message| message)),
        ("delayed", batch(|_, message| message.delay(Duration::from_secs(3600)))),
        ("with an end", batch(|_, message| message.expires_in(Duration::from_secs(3600)))),
        (
            "of every kind",
            batch(|index, message| match index % 5 {
                0 => message.delay(Duration::from_secs(3600)).expires_in(Duration::from_secs(7200)),
                1 => message.key("k").header("a", "b"),
                2 => message.delay(Duration::ZERO),
                3 => message.tenant("t").correlation_id("c").priority(1),
                _ => message,
            }),
        ),
    ]
}
