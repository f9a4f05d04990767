//! Certificates that nobody vouches for, servers that have one, and what they get.

use std::iter;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::{Delivery, Message, Parcel, Transport, Undelivered};
use pillarbox_testing::station::Station;
use pillarbox_transports::{Settings, transport_from_url};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use stations::Server;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Where servers are, and where they are not.
pub(crate) const HERE: &str = "127.0.0.1";
pub(crate) const ELSEWHERE: &str = "127.0.0.2";

const SERVER: &str = "server.crt";

/// A certificate for this machine that signs itself, and its key.
pub(crate) fn certificate() -> (Vec<u8>, Vec<u8>) {
    let home = tempfile::tempdir().unwrap();
    let [certificate, key] = certify(home.path(), HERE).map(|file| std::fs::read(file).unwrap());
    (certificate, key)
}

/// Makes `server.crt` in a directory, good for an address, and its key; answers both. Beside it lies `stranger.crt`, a
/// certificate of the same name that has signed nothing.
pub(crate) fn certify(home: &Path, address: &str) -> [String; 2] {
    let key = home.join("server.key");
    for name in ["stranger.crt", SERVER] {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-days", "30", "-subj", "/CN=pillarbox-test"]);
        openssl.args(["-addext", &format!("subjectAltName=IP:{address}")]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        let made = openssl.arg("-out").arg(home.join(name)).arg("-keyout").arg(&key).output();
        assert!(made.expect("openssl is there").status.success());
    }
    [home.join(SERVER), key].map(|file| file.display().to_string())
}

/// Brokers that take encrypted connections only, and what they must get from a transport.
pub(crate) struct Encrypted {
    /// How an address begins that demands encryption, and how one does that says nothing of it.
    pub(crate) schemes: [&'static str; 2],
    /// Starts one whose certificate is good for this machine.
    pub(crate) here: fn(u16, &Path) -> Vec<String>,
    /// Starts one whose certificate is that of another machine.
    pub(crate) elsewhere: fn(u16, &Path) -> Vec<String>,
}

impl Encrypted {
    /// Whoever is not trusted for its address gets nothing, and the reason says what to look at.
    pub(crate) async fn only_who_is_trusted_gets_anything(&self) {
        let [encrypted, _] = self.schemes;
        let (here, elsewhere) = (Server::start(self.here).await, Server::start(self.elsewhere).await);
        let stranger = here.home().join("stranger.crt");
        let doubtful = [(&here, None), (&here, Some(stranger)), (&elsewhere, Some(root(&elsewhere)))];
        for (server, roots) in doubtful {
            let reason = refused(&address(encrypted, server.port()), roots, "suite").await;
            assert!(reason.contains("certificate is not trusted"), "{reason}");
            assert!(reason.contains("root_certificates") && reason.contains("host name"), "{reason}");
        }
    }

    /// An address that says nothing of encryption gets nobody in where there must be some.
    pub(crate) async fn plain_text_is_not_taken(&self) {
        let [_, plain] = self.schemes;
        let server = Server::start(self.here).await;
        refused(&address(plain, server.port()), None, "suite").await;
    }

    /// A server without encryption gets nothing by an address that demands it, or by any of these others where certificates
    /// are given; what it is sent in plain text on purpose is all that arrives.
    pub(crate) async fn nothing_falls_back_to_plain_text<S: Station>(&self, station: &S, port: u16, others: &[&str]) {
        let [encrypted, _] = self.schemes;
        let place = station.place("plain").await;
        let home = tempfile::tempdir().unwrap();
        let [certificate, _] = certify(home.path(), HERE);
        let others = others.iter().map(|scheme| (*scheme, Some(certificate.clone().into())));
        for (scheme, roots) in iter::once((encrypted, None)).chain(others) {
            let reason = refused(&address(scheme, port), roots, &place).await;
            assert!(reason.contains("encrypt"), "{reason}");
        }
        let message = Message::new("t", "on purpose");
        let taken = station.transport().deliver(&[Parcel::new(place.as_str(), &message)]).await;
        assert_eq!(taken, [Ok(Delivery::Taken)]);
        let bodies: Vec<_> = station.arrived(&place, 1).await.into_iter().map(|arrived| arrived.body).collect();
        assert_eq!(bodies, ["on purpose"]);
    }
}

fn address(scheme: &str, port: u16) -> String {
    format!("{scheme}://me:canary@{HERE}:{port}")
}

/// The file with what a server's clients must trust.
pub(crate) fn root(server: &Server) -> PathBuf {
    server.home().join(SERVER)
}

/// A transport as the relay makes it.
pub(crate) fn transport(url: &str, roots: Option<PathBuf>) -> Arc<dyn Transport> {
    let mut settings = Settings::new();
    (settings.timeout, settings.root_certificates) = (Some(Duration::from_secs(2)), roots);
    transport_from_url(url, &settings).unwrap()
}

/// Why a message is not delivered: its broker is unavailable. Neither the message nor the password is part of it.
async fn refused(url: &str, roots: Option<PathBuf>, place: &str) -> String {
    let transport = transport(url, roots);
    let message = Message::new("t", "canary");
    let results = transport.deliver(&[Parcel::new(place, &message)]).await;
    let [Err(Undelivered::Unavailable { reason })] = &results[..] else { panic!("{results:?}") };
    assert!(reason.contains(HERE), "{reason}");
    assert!(!format!("{reason} {transport:?}").contains("canary"), "{reason}");
    assert!(CryptoProvider::get_default().is_none(), "the process keeps its own choice of encryption");
    reason.clone()
}

/// A client that trusts what a file holds.
pub(crate) fn trusting(root: &Path) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(root).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
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
