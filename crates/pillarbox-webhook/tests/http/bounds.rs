use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::exchange::*;
use crate::server::*;

/// A JSON body of exactly this many bytes.
fn sized(bytes: usize) -> String {
    let frame = r#"{"id":"evt_1","pad":""}"#;
    frame.replace(r#""""#, &format!(r#""{}""#, "x".repeat(bytes - frame.len())))
}

fn chunked(body: &str) -> Vec<u8> {
    let head = Post::to("/hooks/stripe", "")
        .with("stripe-signature", stripe_signature(body.as_bytes()))
        .with("transfer-encoding", "chunked")
        .head("POST");
    let mut bytes = head.into_bytes();
    for chunk in body.as_bytes().chunks(100) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// H59.
#[tokio::test]
async fn the_limit_is_the_last_size_that_is_taken() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk).body_limit(1000)).await;
    assert_eq!(stripe(sized(1000)).send(address).await.status, 200);
    assert_eq!(finish(&mut write(address, &chunked(&sized(1000))).await).await.status, 200);
    let announced = stripe(sized(1001)).send(address).await;
    assert_eq!(announced.status, 413);
    assert!(announced.is_brief());
    assert_eq!(finish(&mut write(address, &chunked(&sized(1001))).await).await.status, 413);
    assert_eq!(desk.taken().len(), 2);
}

/// H59: the default is one mebibyte, and what announces more is refused although nothing of it was sent.
#[tokio::test]
async fn a_body_that_announces_too_much_is_refused_unread() {
    let address = serve(webhooks(&Desk::default())).await;
    for length in ["1048577", "1099511627776"] {
        let head = stripe("").with("content-length", length).with("expect", "100-continue").head("POST");
        let answer = finish(&mut write(address, head.as_bytes()).await).await;
        assert_eq!(answer.status, 413, "{length}");
    }
    assert_eq!(stripe(sized(1_048_576)).send(address).await.status, 200);
}

/// H59: a chunked body without end costs no more than the limit.
#[tokio::test]
async fn an_endless_body_is_cut_off_while_it_streams() {
    let address = serve(webhooks(&Desk::default()).body_limit(1000)).await;
    let head = stripe("").with("transfer-encoding", "chunked").head("POST");
    let mut stream = write(address, head.as_bytes()).await;
    stream.write_all(format!("3e9\r\n{}\r\n", "x".repeat(1001)).as_bytes()).await.unwrap();
    assert_eq!(finish(&mut stream).await.status, 413);
}

/// H59: who shows no plausible signature is not even asked for the body.
#[tokio::test]
async fn headers_alone_can_refuse_before_the_body_is_sent() {
    let address = serve(webhooks(&Desk::default())).await;
    let old = "t=1600000000,v1=4aa90aa69730f112c87accbf54203d1076675eae3b18a5cb82b5ab9e7f5cd5bc";
    let unsent = |post: Post| post.with("content-length", "1000").with("expect", "100-continue").head("POST");
    let heads = [
        unsent(Post::to("/hooks/stripe", "")),
        unsent(Post::to("/hooks/stripe", "").with("stripe-signature", old)),
        unsent(Post::to("/hooks/github", "")),
        unsent(Post::to("/hooks/standard", "")),
    ];
    for head in heads {
        let answer = finish(&mut write(address, head.as_bytes()).await).await;
        assert_eq!(answer.status, 401, "{}", answer.head);
    }
}

/// H59: bombs are refused by their label; nothing here inflates anything.
#[tokio::test]
async fn a_compressed_body_is_refused() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk)).await;
    let body = r#"{"id":"evt_1"}"#;
    for encoding in ["gzip", "br", "zstd", "deflate", "gzip, identity", "identity, gzip", "x-unknown", ""] {
        let answer = stripe(body).with("content-encoding", encoding).send(address).await;
        assert_eq!(answer.status, 415, "{encoding:?}");
        assert!(answer.is_brief());
    }
    let twice = stripe(body).with("content-encoding", "identity").with("content-encoding", "gzip");
    assert_eq!(twice.send(address).await.status, 415);
    assert!(desk.taken().is_empty());
    assert_eq!(stripe(body).with("content-encoding", "Identity").send(address).await.status, 200);
}

/// H59: a body that never ends by standing still.
#[tokio::test]
async fn a_slow_body_is_given_up() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk).read_timeout(Duration::from_millis(1))).await;
    let head = stripe("").with("content-length", "100").head("POST");
    let mut stream = write(address, format!("{head}half of it").as_bytes()).await;
    let answer = finish(&mut stream).await;
    assert_eq!(answer.status, 408);
    assert!(answer.is_brief());
    assert!(desk.taken().is_empty());
}

/// H59: what a slow client announces is not kept free for it; others are served beside any number of them.
#[tokio::test]
async fn slow_clients_hold_no_more_than_they_have_sent() {
    const CLIENTS: usize = 200;
    let desk = Desk::default();
    let address = serve(webhooks(&desk).body_limit(1000).memory_limit(CLIENTS + 1000)).await;
    let head = stripe("").with("content-length", "1000").with("expect", "100-continue").head("POST");
    let mut slow = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = write(address, head.as_bytes()).await;
        // It is asked for its body: reading has begun.
        let mut asked = [0; 25];
        stream.read_exact(&mut asked).await.unwrap();
        assert!(asked.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&asked));
        stream.write_all(b"{").await.unwrap();
        slow.push(stream);
    }
    assert_eq!(stripe(sized(1000)).send(address).await.status, 200);
    drop(slow);
    assert_eq!(desk.taken().len(), 1, "half a body reaches nobody");
}

/// H59.
#[tokio::test]
async fn a_body_that_breaks_off_reaches_nobody() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk)).await;
    let body = r#"{"id":"evt_1"}"#;
    let mut bytes = stripe(body).bytes();
    bytes.truncate(bytes.len() - 1);
    let mut stream = write(address, &bytes).await;
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(stripe(r#"{"id":"evt_2"}"#).send(address).await.status, 200);
    assert_eq!(desk.taken().len(), 1);
}

/// H59: all bodies together are bounded too; the memory comes back.
#[tokio::test]
async fn bodies_beyond_the_memory_are_put_off() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk).body_limit(1000).memory_limit(1500)).await;
    desk.hold();
    let mut first = write(address, &chunked(&sized(1000))).await;
    desk.entered().await;
    let second = stripe(sized(600)).send(address).await;
    assert_eq!(second.status, 503);
    assert!(second.head.contains("retry-after: 10"), "{}", second.head);
    desk.release();
    assert_eq!(finish(&mut first).await.status, 200);
    assert_eq!(stripe(sized(600)).send(address).await.status, 200);
}

/// H59.
#[tokio::test]
async fn huge_headers_are_refused() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk)).await;
    let long = Post::to("/hooks/stripe", "{}").with("stripe-signature", "v1=0,".repeat(1000));
    assert_eq!(long.send(address).await.status, 401);
    let mut many = stripe("{}");
    for index in 0..200 {
        many = many.with(&format!("x-{index}"), "y");
    }
    assert_eq!(many.send(address).await.status, 431);
    assert!(desk.taken().is_empty());
}

/// H59.
#[tokio::test]
async fn deep_json_is_taken_or_refused_but_kills_nobody() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk)).await;
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(stripe(format!(r#"{{"a":{open}{close},"id":"deep"}}"#)).send(address).await.status, 200);
    assert_eq!(stripe(format!(r#"{{"id":{open}{close}}}"#)).send(address).await.status, 400);
    assert_eq!(stripe(open).send(address).await.status, 400);
    assert_eq!(desk.taken().len(), 1);
}
