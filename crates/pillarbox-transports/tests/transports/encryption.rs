//! Certificates that nobody vouches for, and servers that have one.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A certificate for this machine that signs itself, and its key.
pub(crate) fn certificate() -> (Vec<u8>, Vec<u8>) {
    let home = tempfile::tempdir().unwrap();
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
    (std::fs::read(certificate).unwrap(), std::fs::read(key).unwrap())
}

/// What takes connections from whoever trusts the certificate.
pub(crate) fn acceptor(certificate: &[u8], key: &[u8]) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(certificate).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(key).unwrap()).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Puts encryption in front of a server that has none; answers the port and the certificate as PEM.
pub(crate) async fn in_front_of(address: String) -> (u16, String) {
    let (certificate, key) = certificate();
    let acceptor = acceptor(&certificate, &key);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut outside) = acceptor.accept(stream).await else { continue };
            let mut inside = TcpStream::connect(&address).await.expect("the server is there");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut outside, &mut inside).await });
        }
    });
    (port, String::from_utf8(certificate).expect("PEM is text"))
}
