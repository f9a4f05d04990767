//! Encrypted webhooks, without a provider of encryption that the process would have set.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;

use pillarbox_core::{Delivery, Message, Undelivered};
use pillarbox_transports::Http;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{deliver, options};

/// A certificate for this machine that signs itself, and its key.
fn certificate() -> (Vec<u8>, Vec<u8>) {
    let home = tempfile::tempdir().expect("a directory can be made");
    let (certificate, key) = (home.path().join("certificate.pem"), home.path().join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "30",
    ]);
    openssl.args(["-subj", "/CN=pillarbox-test", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = openssl.arg("-out").arg(&certificate).arg("-keyout").arg(&key).output().expect("openssl is there");
    assert!(made.status.success());
    let read = |path| std::fs::read(path).expect("openssl has written it");
    (read(certificate), read(key))
}

/// A server that answers 200 to whoever trusts its certificate. Answers its port.
async fn serve(certificate: &[u8], key: &[u8]) -> u16 {
    let certificate = CertificateDer::from_pem_slice(certificate).expect("a certificate");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has them").with_no_client_auth();
    let config = builder
        .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(key).expect("a key"))
        .expect("they fit");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
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
