//! Encryption on the way to Mosquitto.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::{Delivery, Message, Parcel, Transport, Undelivered};
use pillarbox_testing::station::Station;
use pillarbox_transports::mqtt::{Mqtt, MqttOptions};
use rumqttc::TlsConfiguration;
use stations::Server;

use super::{Mosquitto, Place, command, subscriber};
use crate::encryption::{ELSEWHERE, Encrypted, HERE, certify, root, transport, trusting};

const ENCRYPTED: Encrypted = Encrypted {
    schemes: ["mqtts", "mqtt"],
    here: |port, home| encrypted(port, home, HERE, ""),
    elsewhere: |port, home| encrypted(port, home, ELSEWHERE, ""),
};

fn encrypted(port: u16, home: &Path, address: &str, more: &str) -> Vec<String> {
    let [certificate, key] = certify(home, address);
    command(port, home, &format!("allow_anonymous true\ncertfile {certificate}\nkeyfile {key}\n{more}"))
}

/// H63.
#[tokio::test]
async fn a_message_travels_encrypted_to_mqtt() {
    let server = Server::start(ENCRYPTED.here).await;
    let mut subscriber = subscriber(server.port(), "");
    let trusting = TlsConfiguration::Rustls(Arc::new(trusting(&root(&server))));
    subscriber.set_transport(rumqttc::Transport::tls_with_config(trusting));
    let mut place = Place::open(subscriber, "there").await;
    let message = Message::new("t", "body");
    let transport = transport(&format!("mqtts://{HERE}:{}", server.port()), Some(root(&server)));
    assert_eq!(transport.deliver(&[Parcel::new("there", &message)]).await, [Ok(Delivery::Taken)]);
    let seen = place.seen.wait_for(|seen| !seen.is_empty()).await.unwrap();
    assert_eq!(seen[0].body, "body");
}

/// H63: a broker that asks for our certificate gets it.
#[tokio::test]
async fn our_own_certificate_opens_mqtt() {
    let asking = |port, home: &Path| {
        let more = format!("require_certificate true\ncafile {}", home.join("server.crt").display());
        encrypted(port, home, HERE, &more)
    };
    let server = Server::start(asking).await;
    let key = server.home().join("server.key");
    let message = Message::new("t", "");
    for (identity, is_ours) in [(Some((root(&server), key)), true), (None, false)] {
        let timeout = Duration::from_secs(2);
        let roots = Some(root(&server));
        let options = MqttOptions { timeout, root_certificates: roots, identity, ..MqttOptions::default() };
        let mqtt = Mqtt::with(&format!("mqtts://{HERE}:{}", server.port()), options).unwrap();
        let results = mqtt.deliver(&[Parcel::new("t", &message)]).await;
        let is_unavailable = matches!(&results[..], [Err(Undelivered::Unavailable { .. })]);
        assert_eq!((results == [Ok(Delivery::Taken)], is_unavailable), (is_ours, !is_ours), "{results:?}");
    }
}

/// H48, H63.
#[tokio::test]
async fn an_mqtt_broker_that_is_not_trusted_gets_nothing() {
    ENCRYPTED.only_who_is_trusted_gets_anything().await;
    ENCRYPTED.plain_text_is_not_taken().await;
}

/// H63.
#[tokio::test]
async fn nothing_falls_back_to_plain_text_on_mqtt() {
    let station = Mosquitto::open().await;
    ENCRYPTED.nothing_falls_back_to_plain_text(&station, station.server.port(), &[]).await;
}
