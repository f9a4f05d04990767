//! Encryption on the way to Redis.

use std::path::Path;

use pillarbox_core::{Delivery, Intaken, Message, Parcel, Subscription};
use pillarbox_testing::station::Station;
use pillarbox_transports::redis::{RedisOptions, RedisSubscription, RedisSubscriptionOptions};
use stations::{RedisStation, Server};

use crate::encryption::{ELSEWHERE, Encrypted, HERE, certify, root, transport};

const ENCRYPTED: Encrypted = Encrypted {
    schemes: ["rediss", "redis"],
    here: |port, home| encrypted(port, home, HERE),
    elsewhere: |port, home| encrypted(port, home, ELSEWHERE),
};

fn encrypted(port: u16, home: &Path, address: &str) -> Vec<String> {
    let [certificate, key] = certify(home, address);
    let port_text = port.to_string();
    let mut command = RedisStation::command(port, home);
    command.extend(["--port", "0", "--tls-port", &port_text, "--tls-auth-clients", "no"].map(String::from));
    command.extend(["--tls-cert-file", &certificate, "--tls-key-file", &key].map(String::from));
    command.extend(["--tls-ca-cert-file", &certificate].map(String::from));
    command
}

/// H63: there and back.
#[tokio::test]
async fn a_message_travels_encrypted_to_redis() {
    let server = Server::start(ENCRYPTED.here).await;
    let url = format!("rediss://{HERE}:{}", server.port());
    let message = Message::new("t", "body");
    let transport = transport(&url, Some(root(&server)));
    assert_eq!(transport.deliver(&[Parcel::new("there", &message)]).await, [Ok(Delivery::Taken)]);
    let mut options = RedisSubscriptionOptions::new("there", "group");
    options.connection = RedisOptions { root_certificates: Some(root(&server)), ..RedisStation::options() };
    let mut subscription = RedisSubscription::new("shop", &url, options).unwrap();
    let delivered = subscription.next(10).await.unwrap();
    assert_eq!(delivered[0].incoming.message().payload(), message.payload());
    subscription.settle(delivered.into_iter().map(|one| (one.tag, Intaken::Stored)).collect()).await.unwrap();
}

/// H48, H63.
#[tokio::test]
async fn a_redis_server_that_is_not_trusted_gets_nothing() {
    ENCRYPTED.only_who_is_trusted_gets_anything().await;
    ENCRYPTED.plain_text_is_not_taken().await;
}

/// H63.
#[tokio::test]
async fn nothing_falls_back_to_plain_text_on_redis() {
    let station = RedisStation::open().await;
    ENCRYPTED.nothing_falls_back_to_plain_text(&station, station.server.port(), &[]).await;
}
