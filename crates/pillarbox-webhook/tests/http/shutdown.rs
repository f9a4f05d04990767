//! How the bounded server ends.

use std::future::{Future, ready};
use std::net::SocketAddr;
use std::time::Duration;

use pillarbox_webhook::Server;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::exchange::*;
use crate::server::*;

/// A server that ends when it is told to.
struct Ending {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

async fn ending(desk: &Desk, set: impl FnOnce(Server) -> Server) -> Ending {
    let (end, told) = oneshot::channel();
    let server = set(Server::new(router(webhooks(desk)))).until(async { told.await.unwrap() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ended = tokio::spawn(async { server.serve(listener).await.unwrap() });
    Ending { address, end, ended }
}

impl Ending {
    async fn end(self, meanwhile: impl Future<Output = ()>) {
        self.end.send(()).unwrap();
        meanwhile.await;
        self.ended.await.unwrap();
    }
}

/// H59: a request that has begun is answered, and its connection is closed; nobody new is let in.
#[tokio::test]
async fn a_request_in_progress_is_answered_before_the_end() {
    let desk = Desk::default();
    let server = ending(&desk, |server| server).await;
    let address = server.address;
    desk.hold();
    let mut stream = write(address, &stripe(r#"{"id":"evt_1"}"#).lasting()).await;
    desk.entered().await;
    let mut idle = write(address, b"").await;
    server
        .end(async {
            closed(&mut idle).await;
            assert!(TcpStream::connect(address).await.is_err());
            desk.release();
            let answer = finish(&mut stream).await;
            assert_eq!(answer.status, 200);
            assert!(answer.head.contains("connection: close"), "{}", answer.head);
        })
        .await;
    assert_eq!(desk.taken().len(), 1);
}

/// H59: who has not asked for anything yet does not delay the end.
#[tokio::test]
async fn idle_clients_and_half_heads_are_let_go() {
    let hour = Duration::from_secs(3600);
    let patient = |server: Server| server.header_timeout(hour).idle_timeout(hour).drain_timeout(hour);
    let server = ending(&Desk::default(), patient).await;
    let mut silent = write(server.address, b"").await;
    let mut half = write(server.address, b"POST /hooks/stripe HTTP/1.1\r\nhost").await;
    let mut idle = write(server.address, &stripe(r#"{"id":"evt_1"}"#).lasting()).await;
    // Accepted in their order: now all of them are in.
    assert_eq!(next_answer(&mut idle).await.status, 200);
    server.end(ready(())).await;
    for stream in [&mut silent, &mut half, &mut idle] {
        closed(stream).await;
    }
}

/// H59: the end comes, whatever a client or a handler does.
#[tokio::test]
async fn what_does_not_end_in_time_is_cut_off() {
    let desk = Desk::default();
    let server = ending(&desk, |server| server.drain_timeout(Duration::from_millis(20))).await;
    desk.hold();
    let mut stuck = write(server.address, &stripe(r#"{"id":"evt_1"}"#).lasting()).await;
    desk.entered().await;
    let head = stripe("").with("content-length", "100").with("expect", "100-continue").head("POST");
    let mut slow = write(server.address, head.as_bytes()).await;
    let mut asked = [0; 25];
    slow.read_exact(&mut asked).await.unwrap();
    server.end(ready(())).await;
    closed(&mut stuck).await;
    closed(&mut slow).await;
    assert!(desk.taken().is_empty());
}
