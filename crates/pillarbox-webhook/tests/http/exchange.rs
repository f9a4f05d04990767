//! Requests written byte by byte, and answers read to their end.

use std::net::SocketAddr;

use pillarbox_webhook::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{SECRET, SENT_AT};

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no whole answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// One short line for people, and nothing about the inside.
    pub(crate) fn is_brief(&self) -> bool {
        self.body.len() <= 80 && self.body.ends_with('\n') && self.body.lines().count() == 1
    }
}

/// A request as it goes over the wire; length and connection headers are added unless the test brings its own.
pub(crate) struct Post {
    path: String,
    headers: String,
    body: Vec<u8>,
}

impl Post {
    pub(crate) fn to(path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { path: path.to_owned(), headers: String::new(), body: body.into() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self.headers += &format!("{name}: {}\r\n", value.as_ref());
        self
    }

    pub(crate) fn head(&self, method: &str) -> String {
        let Self { path, headers, body } = self;
        let length = format!("content-length: {}\r\n", body.len());
        let has_length = headers.contains("content-length:") || headers.contains("transfer-encoding:");
        let length = if has_length { "" } else { &length };
        format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{length}{headers}\r\n")
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.head("POST").as_bytes(), &self.body].concat()
    }

    /// The same, without the wish that the server closes afterwards.
    pub(crate) fn lasting(&self) -> Vec<u8> {
        [self.head("POST").replace("connection: close\r\n", "").as_bytes(), &self.body].concat()
    }

    pub(crate) async fn send(&self, to: SocketAddr) -> Answer {
        let mut stream = write(to, &self.bytes()).await;
        finish(&mut stream).await
    }
}

/// Opens a connection and writes to it; it stays open.
pub(crate) async fn write(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Reads until the server closes, as it was asked to.
pub(crate) async fn finish(stream: &mut TcpStream) -> Answer {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    Answer::parse(&String::from_utf8(text).unwrap())
}

/// Reads one answer; the connection stays open.
pub(crate) async fn next_answer(stream: &mut TcpStream) -> Answer {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    let head = Answer::parse(str::from_utf8(&text).unwrap()).head;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let begin = text.len();
    text.resize(begin + length.parse::<usize>().unwrap(), 0);
    stream.read_exact(&mut text[begin..]).await.unwrap();
    Answer::parse(str::from_utf8(&text).unwrap())
}

/// Waits until the server has closed the connection, and checks that it has said nothing. A reset is a close too.
pub(crate) async fn closed(stream: &mut TcpStream) {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    assert!(text.is_empty(), "{}", String::from_utf8_lossy(&text));
}

pub(crate) fn stripe_signature(body: &[u8]) -> String {
    let tag = Secret::from(SECRET).sign(&[SENT_AT.to_string().as_bytes(), b".", body]).to_hex();
    format!("t={SENT_AT},v1={tag}")
}

pub(crate) fn stripe(body: impl Into<Vec<u8>>) -> Post {
    let body = body.into();
    let signature = stripe_signature(&body);
    Post::to("/hooks/stripe", body).with("stripe-signature", signature)
}

pub(crate) fn standard(id: &str, body: impl Into<Vec<u8>>) -> Post {
    let (body, time) = (body.into(), SENT_AT.to_string());
    let tag = Secret::from(SECRET).sign(&[id.as_bytes(), b".", time.as_bytes(), b".", &body]).to_base64();
    Post::to("/hooks/standard", body)
        .with("webhook-id", id)
        .with("webhook-timestamp", time)
        .with("webhook-signature", format!("v1,{tag}"))
}

pub(crate) fn github(body: impl Into<Vec<u8>>) -> Post {
    let body = body.into();
    let tag = Secret::from(SECRET).sign(&[&body]).to_hex();
    Post::to("/hooks/github", body).with("x-hub-signature-256", format!("sha256={tag}"))
}
