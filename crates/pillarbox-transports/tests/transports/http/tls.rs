//! Encrypted webhooks, without a provider of encryption that the process would have set.

use std::net::Ipv4Addr;

use pillarbox_core::{Delivery, Message, Undelivered};
use pillarbox_transports::Http;
use rustls::crypto::CryptoProvider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{deliver, options};
use crate::encryption::{acceptor, certificate};

/// A server that answers 200 to whoever trusts its certificate. Answers its port.
async fn serve(certificate: &[u8], key: &[u8]) -> u16 {
    let acceptor = acceptor(certificate, key);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    port
}

/// BUS-12: a certificate that nobody vouches for is not talked to, and the process keeps its own choice of encryption.
#[tokio::test]
async fn only_a_trusted_certificate_gets_a_webhook() {
    let (certificate, key) = certificate();
    let url = format!("https://127.0.0.1:{}/", serve(&certificate, &key).await);
    let message = Message::new("t", "body");
    let doubtful = Http::new(options()).unwrap();
    let refused = deliver(&doubtful, &url, &message).await;
    assert!(matches!(refused, Err(Undelivered::Unavailable { .. })), "{refused:?}");
    let trusting = Http::new(options().trust(certificate)).unwrap();
    assert_eq!(deliver(&trusting, &url, &message).await, Ok(Delivery::Taken));
    assert!(CryptoProvider::get_default().is_none());
}
