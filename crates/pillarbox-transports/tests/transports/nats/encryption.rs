//! Encryption on the way to NATS.

use std::path::Path;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream};
use pillarbox_core::{Delivery, Message, Parcel, Subscription};
use pillarbox_testing::station::Station;
use pillarbox_transports::nats::{NatsOptions, NatsSubscription, NatsSubscriptionOptions};
use stations::{NatsStation, Server};

use crate::encryption::{ELSEWHERE, Encrypted, HERE, certify, root, transport, trusting};

const ENCRYPTED: Encrypted = Encrypted {
    schemes: ["tls", "nats"],
    here: |port, home| encrypted(port, home, HERE),
    elsewhere: |port, home| encrypted(port, home, ELSEWHERE),
};

fn encrypted(port: u16, home: &Path, address: &str) -> Vec<String> {
    let [certificate, key] = certify(home, address);
    let mut command = NatsStation::command(port, home);
    command.extend(["--tls", "--tlscert", &certificate, "--tlskey", &key].map(String::from));
    command
}

/// H63: there and back, also by an address that leaves encryption to the server.
#[tokio::test]
async fn a_message_travels_encrypted_to_nats() {
    let server = Server::start(ENCRYPTED.here).await;
    let url = |scheme: &str| format!("{scheme}://{HERE}:{}", server.port());
    let connecting = ConnectOptions::new().tls_client_config(trusting(&root(&server))).connect(url("tls")).await;
    let config = stream::Config { name: "there".into(), subjects: vec!["suite.there".into()], ..Default::default() };
    jetstream::new(connecting.unwrap()).create_stream(config).await.unwrap();
    for scheme in ENCRYPTED.schemes {
        let message = Message::new("t", scheme);
        let parcels = [Parcel::new("suite.there", &message)];
        let delivered = transport(&url(scheme), Some(root(&server))).deliver(&parcels).await;
        assert_eq!(delivered, [Ok(Delivery::Taken)], "{scheme}");
    }
    let mut options = NatsSubscriptionOptions::new("there", "group");
    options.connection = NatsOptions { root_certificates: Some(root(&server)), ..NatsOptions::default() };
    let mut subscription = NatsSubscription::new("shop", &url("tls"), options).unwrap();
    let mut delivered = Vec::new();
    while delivered.len() < ENCRYPTED.schemes.len() {
        delivered.extend(subscription.next(10).await.unwrap());
    }
    let bodies: Vec<_> = delivered.iter().map(|one| one.incoming.message().payload().clone()).collect();
    assert_eq!(bodies, ENCRYPTED.schemes);
}

/// H48, H63.
#[tokio::test]
async fn a_nats_server_that_is_not_trusted_gets_nothing() {
    ENCRYPTED.only_who_is_trusted_gets_anything().await;
    ENCRYPTED.plain_text_is_not_taken().await;
}

/// H63: also where certificates demand encryption, and not the address.
#[tokio::test]
async fn nothing_falls_back_to_plain_text_on_nats() {
    let station = NatsStation::open().await;
    ENCRYPTED.nothing_falls_back_to_plain_text(&station, station.server.port(), &["nats"]).await;
}
