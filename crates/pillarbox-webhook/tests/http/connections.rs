//! Who may hold a connection of the bounded server, and for how long.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use pillarbox_webhook::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::exchange::*;
use crate::server::*;

/// Soon, for those who wait for it; no test depends on how soon.
const SOON: Duration = Duration::from_millis(20);

const HALF_A_HEAD: &[u8] = b"POST /hooks/stripe HTTP/1.1\r\nhost: te";

fn receiver(desk: &Desk) -> Server {
    Server::new(router(webhooks(desk)))
}

fn delivery(id: &str) -> Post {
    stripe(format!(r#"{{"id":"{id}"}}"#))
}

/// H59: also for somebody who says nothing at all.
#[tokio::test]
async fn a_head_that_does_not_end_is_closed() {
    let address = host(receiver(&Desk::default()).header_timeout(SOON)).await;
    for bytes in [HALF_A_HEAD, b"", b"\r\n\r\n"] {
        closed(&mut write(address, bytes).await).await;
    }
}

/// H59: the second head of a connection has no more time than the first.
#[tokio::test]
async fn a_second_head_that_does_not_end_is_closed() {
    // Long enough for the first head, which is sent at once.
    let server = receiver(&Desk::default()).header_timeout(Duration::from_millis(500));
    let address = host(server.idle_timeout(Duration::from_secs(3600))).await;
    let mut stream = write(address, &delivery("evt_1").lasting()).await;
    assert_eq!(next_answer(&mut stream).await.status, 200);
    stream.write_all(HALF_A_HEAD).await.unwrap();
    closed(&mut stream).await;
}

/// H59.
#[tokio::test]
async fn a_connection_without_requests_is_closed() {
    let address = host(receiver(&Desk::default()).idle_timeout(SOON)).await;
    let mut stream = write(address, &delivery("evt_1").lasting()).await;
    assert_eq!(next_answer(&mut stream).await.status, 200);
    closed(&mut stream).await;
}

/// H59: the limits are those of a request, not of the connection.
#[tokio::test]
async fn a_connection_serves_many_requests() {
    let desk = Desk::default();
    let address = host(receiver(&desk)).await;
    let mut stream = write(address, &delivery("evt_0").lasting()).await;
    assert_eq!(next_answer(&mut stream).await.status, 200);
    for number in 1..20 {
        stream.write_all(&delivery(&format!("evt_{number}")).lasting()).await.unwrap();
        assert_eq!(next_answer(&mut stream).await.status, 200);
    }
    assert_eq!(desk.taken().len(), 20);
}

/// H59: a slow client makes room, and the longest waiting does so first.
#[tokio::test]
async fn the_connection_that_has_waited_longest_makes_room() {
    let desk = Desk::default();
    let address = host(receiver(&desk).connections(2).grace(SOON)).await;
    let mut first = write(address, HALF_A_HEAD).await;
    let (begin, end) = {
        let bytes = delivery("evt_2").bytes();
        (bytes[..30].to_vec(), bytes[30..].to_vec())
    };
    let mut second = write(address, &begin).await;
    assert_eq!(delivery("evt_3").send(address).await.status, 200);
    closed(&mut first).await;
    second.write_all(&end).await.unwrap();
    assert_eq!(finish(&mut second).await.status, 200);
    assert_eq!(desk.taken().len(), 2);
}

/// H59: so does one that sends its body slowly, or only keeps its connection.
#[tokio::test]
async fn a_slow_body_and_an_idle_connection_make_room() {
    let desk = Desk::default();
    let webhooks = webhooks(&desk).read_timeout(Duration::from_secs(3600));
    let address = host(Server::new(router(webhooks)).connections(1).grace(SOON)).await;
    let head = stripe("").with("content-length", "100").with("expect", "100-continue").head("POST");
    let mut slow = write(address, head.as_bytes()).await;
    let mut asked = [0; 25];
    slow.read_exact(&mut asked).await.unwrap();
    slow.write_all(b"half of it").await.unwrap();

    let mut idle = write(address, &delivery("evt_1").lasting()).await;
    closed(&mut slow).await;
    assert_eq!(next_answer(&mut idle).await.status, 200);

    assert_eq!(delivery("evt_2").send(address).await.status, 200);
    closed(&mut idle).await;
    assert_eq!(desk.taken().len(), 2);
}

/// H59: who is being served is not closed for another, however long it takes.
#[tokio::test]
async fn a_request_at_work_makes_no_room() {
    let desk = Desk::default();
    let address = host(receiver(&desk).connections(2).grace(SOON)).await;
    desk.hold();
    let mut first = write(address, &delivery("evt_1").bytes()).await;
    desk.entered().await;
    let mut slow = write(address, HALF_A_HEAD).await;
    assert_eq!(delivery("evt_2").send(address).await.status, 200);
    closed(&mut slow).await;
    desk.release();
    assert_eq!(finish(&mut first).await.status, 200);
    assert_eq!(desk.taken().len(), 2);
}

/// H59: while everybody is being served, the others wait for their turn.
#[tokio::test]
async fn newcomers_wait_while_all_handlers_are_at_work() {
    let desk = Desk::default();
    let address = host(receiver(&desk).connections(1)).await;
    desk.hold();
    let mut first = write(address, &delivery("evt_1").bytes()).await;
    desk.entered().await;
    let mut second = write(address, &delivery("evt_2").bytes()).await;
    desk.release();
    assert_eq!(finish(&mut first).await.status, 200);
    assert_eq!(finish(&mut second).await.status, 200);
}

/// H59: many more than there is room for, all at once: each is served, none is closed for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_honest_clients_is_served_in_turn() {
    const CLIENTS: usize = 100;
    let desk = Desk::default();
    let address = host(receiver(&desk).connections(3).grace(Duration::from_secs(3600))).await;
    let mut streams = Vec::new();
    for number in 0..CLIENTS {
        streams.push(write(address, &delivery(&format!("evt_{number}")).bytes()).await);
    }
    for stream in &mut streams {
        assert_eq!(finish(stream).await.status, 200);
    }
    assert_eq!(desk.taken().len(), CLIENTS);
}

/// H59: a place comes back when its client goes away, in the middle of a head or between requests.
#[tokio::test]
async fn who_goes_away_leaves_a_place() {
    let desk = Desk::default();
    let address = host(receiver(&desk).connections(1).grace(Duration::from_secs(3600))).await;
    drop(write(address, HALF_A_HEAD).await);
    let mut idle = write(address, &delivery("evt_1").lasting()).await;
    assert_eq!(next_answer(&mut idle).await.status, 200);
    drop(idle);
    assert_eq!(delivery("evt_2").send(address).await.status, 200);
}

/// H59: who asks and does not listen keeps neither connection nor answer.
#[tokio::test]
async fn an_answer_that_nobody_takes_is_given_up() {
    struct Told(Vec<u8>, mpsc::UnboundedSender<()>);
    impl AsRef<[u8]> for Told {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.1.send(());
        }
    }
    let (dropped, mut given_up) = mpsc::unbounded_channel();
    // More than the kernel keeps for a client that does not read.
    let large = move || async move { Bytes::from_owner(Told(vec![0; 64 * 1024 * 1024], dropped.clone())) };
    let app = Router::new().route("/large", get(large));
    let address = host(Server::new(app).idle_timeout(SOON)).await;
    let _deaf = write(address, b"GET /large HTTP/1.1\r\nhost: test\r\n\r\n").await;
    given_up.recv().await.unwrap();
}

/// H59.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let desk = Desk::default();
    let address = host(receiver(&desk)).await;
    let requests = [delivery("evt_1").lasting(), Post::to("/hooks/nobody", "{}").lasting(), delivery("evt_2").bytes()];
    let mut stream = write(address, &requests.concat()).await;
    assert_eq!(next_answer(&mut stream).await.status, 200);
    assert_eq!(next_answer(&mut stream).await.status, 404);
    assert_eq!(finish(&mut stream).await.status, 200);
    let ids: Vec<_> = desk.taken().iter().map(|incoming| incoming.receipt().message_id().to_owned()).collect();
    assert_eq!(ids, ["evt_1", "evt_2"]);
}

/// H59: who has sent everything and says so is answered, also when the answer takes its time.
#[tokio::test]
async fn a_half_closed_connection_is_answered() {
    let desk = Desk::default();
    let address = host(receiver(&desk)).await;
    desk.hold();
    let mut stream = write(address, &delivery("evt_1").lasting()).await;
    stream.shutdown().await.unwrap();
    desk.entered().await;
    desk.release();
    assert_eq!(finish(&mut stream).await.status, 200);
}

/// H59.
#[tokio::test]
async fn half_a_head_and_then_nothing_is_closed() {
    let address = host(receiver(&Desk::default())).await;
    let mut stream = write(address, HALF_A_HEAD).await;
    stream.shutdown().await.unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&said));
}
