//! MQTT 5 on Mosquitto. It writes to its disk when it is asked to end, so `kill -9` loses what was acknowledged: the suite is
//! told so, and a test of its own restarts it in an orderly way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox_core::{Delivery, Message, Parcel, Transport, Undelivered, wire};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::mqtt::{Mqtt, MqttOptions};
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v5::{Packet, Publish};
use rumqttc::{AsyncClient, Event};
use stations::Server;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

mod encryption;

const SETTINGS: &str = "persistence true\nmax_queued_messages 100000\nlog_dest none\nuser root\n";

struct Mosquitto {
    server: Server,
    places: Mutex<HashMap<String, Place>>,
}

/// A subscriber that comes back whenever the broker does, and all that it has seen.
struct Place {
    seen: watch::Receiver<Vec<Arrived>>,
    task: AbortHandle,
}

impl Station for Mosquitto {
    const TRAITS: Traits = Traits {
        knows_ids: false,
        refuses_nowhere: true,
        refused_bytes: Some(400_000),
        is_durable: false,
        is_mortal: true,
    };

    async fn open() -> Self {
        Self::with(|port, home| command(port, home, "allow_anonymous true\nmax_packet_size 300000")).await
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.mqtt(true))
    }

    async fn place(&self, name: &str) -> String {
        let topic = format!("places/{name}");
        let place = Place::open(subscriber(self.server.port(), ""), &topic).await;
        self.places.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), place);
        topic
    }

    fn nowhere(&self) -> String {
        "nobody/listens".to_owned()
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        let mut seen = self.places.lock().unwrap_or_else(PoisonError::into_inner)[destination].seen.clone();
        seen.wait_for(|seen| seen.len() >= count).await.expect("the subscriber runs").clone()
    }

    async fn kill(&mut self) {
        self.server.kill();
    }

    async fn revive(&mut self) {
        self.server.revive().await;
    }
}

impl Mosquitto {
    async fn with(command: fn(u16, &Path) -> Vec<String>) -> Self {
        Self { server: Server::start(command).await, places: Mutex::default() }
    }

    fn mqtt(&self, needs_subscriber: bool) -> Mqtt {
        let options = MqttOptions { timeout: Duration::from_secs(2), needs_subscriber, ..MqttOptions::default() };
        Mqtt::with(&format!("mqtt://127.0.0.1:{}", self.server.port()), options).expect("the settings are right")
    }
}

impl Place {
    /// Answers once the broker knows of the subscriber.
    async fn open(subscriber: rumqttc::MqttOptions, topic: &str) -> Self {
        let (tell, seen) = watch::channel(Vec::new());
        let (ready, mut is_ready) = watch::channel(false);
        let task = tokio::spawn(collect(subscriber, topic.to_owned(), tell, ready)).abort_handle();
        is_ready.wait_for(|ready| *ready).await.expect("the subscriber runs");
        Self { seen, task }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn command(port: u16, home: &Path, more: &str) -> Vec<String> {
    let file = home.join("mosquitto.conf");
    let home = home.display();
    let settings = format!("listener {port} 127.0.0.1\npersistence_location {home}/\n{SETTINGS}{more}\n");
    std::fs::write(&file, settings).expect("a file can be written");
    ["/usr/sbin/mosquitto", "-c", &file.display().to_string()].map(str::to_owned).to_vec()
}

fn subscriber(port: u16, client_id: &str) -> rumqttc::MqttOptions {
    let mut options = rumqttc::MqttOptions::new(client_id, ("127.0.0.1", port));
    options.set_unlimited_incoming_packet_size();
    options
}

async fn collect(
    subscriber: rumqttc::MqttOptions,
    topic: String,
    tell: watch::Sender<Vec<Arrived>>,
    ready: watch::Sender<bool>,
) {
    let (client, mut events) = AsyncClient::builder(subscriber).build();
    let mut again = tokio::time::interval(Duration::from_millis(10));
    loop {
        match events.poll().await {
            Ok(Event::Incoming(Packet::ConnAck(_))) => {
                client.subscribe(topic.clone(), QoS::AtLeastOnce).await.expect("the subscriber runs");
            }
            Ok(Event::Incoming(Packet::SubAck(_))) => drop(ready.send_replace(true)),
            Ok(Event::Incoming(Packet::Publish(publish))) => tell.send_modify(|seen| seen.push(arrived(&publish))),
            Ok(_) => {}
            Err(_) => drop(again.tick().await),
        }
    }
}

fn arrived(publish: &Publish) -> Arrived {
    let properties = publish.properties.clone().unwrap_or_default();
    let read = |text: &String| wire::from_line_safe(text).into_owned();
    let headers = properties.user_properties.iter();
    Arrived {
        body: publish.payload.clone(),
        content_type: properties.content_type.as_ref().map(read),
        headers: headers.map(|(name, value)| (read(name).to_lowercase(), read(value))).collect::<BTreeMap<_, _>>(),
        broker_key: None,
        broker_id: properties.correlation_data.map(|data| String::from_utf8_lossy(&data).into_owned()),
    }
}

mod suite {
    pillarbox_testing::transport_suite!(super::Mosquitto);
}

/// BUS-02: the correlation id is where MQTT looks for it.
#[tokio::test]
async fn the_correlation_id_is_the_correlation_data() {
    let station = Mosquitto::open().await;
    let destination = station.place("correlated").await;
    let message = Message::new("t", "").correlation_id("größe");
    let results = station.transport().deliver(&[Parcel::new(destination.as_str(), &message)]).await;
    assert_eq!(results, [Ok(Delivery::Taken)]);
    assert_eq!(station.arrived(&destination, 1).await[0].broker_id.as_deref(), Some("größe"));
}

/// H42: MQTT takes what nobody listens to, unless it is asked not to.
#[tokio::test]
async fn what_nobody_subscribes_to_counts_as_delivered_unless_a_subscriber_is_needed() {
    let station = Mosquitto::open().await;
    let (nowhere, message) = (station.nowhere(), Message::new("t", ""));
    let parcel = Parcel::new(nowhere.as_str(), &message);
    let lax = station.mqtt(false);
    assert_eq!(lax.deliver(std::slice::from_ref(&parcel)).await, [Ok(Delivery::Taken)]);
    let strict = station.mqtt(true);
    let refused = Err(Undelivered::refused("nobody subscribes to nobody/listens"));
    assert_eq!(strict.deliver(&[parcel]).await, [refused]);
}

/// H40, H41, H43: a broker that is restarted in the middle keeps what it acknowledged for a subscriber that is away.
#[tokio::test]
async fn nothing_is_lost_when_mosquitto_is_restarted_in_the_middle() {
    let mut station = Mosquitto::open().await;
    let mut away = subscriber(station.server.port(), "away");
    away.set_session_expiry_interval(Some(3600));
    // Mosquitto 2.0.11 saves only sessions that did not begin with a clean start.
    away.set_clean_start(false);
    let (client, mut events) = AsyncClient::builder(away.clone()).build();
    client.subscribe("kept", QoS::AtLeastOnce).await.unwrap();
    while !matches!(events.poll().await.unwrap(), Event::Incoming(Packet::SubAck(_))) {}
    drop((client, events));

    let transport = station.mqtt(false);
    let messages: Vec<_> = (0..100).map(|number| Message::new("t", number.to_string()).key("k")).collect();
    for (number, message) in messages.iter().enumerate() {
        if number == 50 {
            station.server.stop();
            assert!(station.server.home().join("mosquitto.db").exists(), "it has written to its disk");
            let parcel = Parcel::new("kept", message);
            assert!(matches!(transport.deliver(&[parcel]).await[0], Err(Undelivered::Unavailable { .. })));
            station.server.revive().await;
        }
        assert_eq!(transport.deliver(&[Parcel::new("kept", message)]).await, [Ok(Delivery::Taken)]);
    }

    away.set_broker_session_resume_policy(rumqttc::BrokerSessionResumePolicy::AllowBrokerOnly);
    let (_client, mut events) = AsyncClient::builder(away).build();
    let mut bodies = Vec::new();
    while bodies.len() < messages.len() {
        if let Event::Incoming(Packet::Publish(publish)) = events.poll().await.unwrap() {
            bodies.push(publish.payload);
        }
    }
    assert_eq!(bodies, messages.iter().map(|message| message.payload().clone()).collect::<Vec<_>>());
}

/// H46, H49: a limit that the broker does not announce, and answers with a code that a PUBACK must not have.
#[tokio::test]
async fn a_message_over_a_limit_that_nobody_announced_is_found_among_others() {
    let station =
        Mosquitto::with(|port, home| command(port, home, "allow_anonymous true\nmessage_size_limit 1000")).await;
    let destination = station.place("limit").await;
    let transport = station.transport();
    let bodies = [10, 999, 1001, 20, 5000, 30];
    let messages = bodies.map(|bytes| Message::new("t", vec![b'x'; bytes]));
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(destination.as_str(), message)).collect();
    let results = transport.deliver(&parcels).await;
    for (result, bytes) in results.iter().zip(bodies) {
        let is_too_large = matches!(result, Err(Undelivered::TooLarge { limit: None, .. }));
        assert_eq!(is_too_large, bytes > 1000, "{results:?}");
        assert_eq!(result.is_ok(), bytes <= 1000, "{results:?}");
    }
    let ids: BTreeSet<_> = station
        .arrived(&destination, 4)
        .await
        .iter()
        .filter_map(|one| one.header(wire::ID).map(str::to_owned))
        .collect();
    assert_eq!(ids.len(), 4);
}

/// A topic that we may not publish to is no reason to wait for the broker.
#[tokio::test]
async fn a_topic_that_is_forbidden_is_rejected() {
    let station = Mosquitto::with(|port, home| {
        let rules = home.join("rules");
        std::fs::write(&rules, "topic readwrite open/#\n").unwrap();
        command(port, home, &format!("allow_anonymous true\nacl_file {}", rules.display()))
    })
    .await;
    let transport = station.mqtt(false);
    let message = Message::new("t", "");
    let parcels = ["open/a", "closed/a", "open/b"].map(|topic| Parcel::new(topic, &message));
    let results = transport.deliver(&parcels).await;
    let rejected = Undelivered::rejected("the broker does not let us publish to closed/a");
    assert_eq!(results, [Ok(Delivery::Taken), Err(rejected), Ok(Delivery::Taken)]);
}

/// H43: a wrong password is no fault of the messages, and is told in one line that holds no secret.
#[tokio::test]
async fn a_wrong_password_is_unavailable_and_never_shown() {
    let station = Mosquitto::with(|port, home| {
        let passwords = home.join("passwords");
        std::fs::write(&passwords, "").unwrap();
        command(port, home, &format!("allow_anonymous false\npassword_file {}", passwords.display()))
    })
    .await;
    let transport = Mqtt::connect_to(&format!("mqtt://me:canary@127.0.0.1:{}", station.server.port())).unwrap();
    let message = Message::new("t", "canary");
    let results = transport.deliver(&[Parcel::new("t", &message)]).await;
    let Err(Undelivered::Unavailable { reason }) = &results[0] else { panic!("{results:?}") };
    assert!(reason.contains("user and password"), "{reason}");
    assert!(!format!("{reason} {transport:?}").contains("canary"));
}

/// H43: a server that accepts connections and says nothing costs the time limit and no more; nothing is left in memory.
#[tokio::test(start_paused = true)]
async fn a_broker_that_is_silent_is_unavailable_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let transport = Mqtt::connect_to(&format!("mqtt://127.0.0.1:{port}")).unwrap();
    let payload = bytes::Bytes::from(vec![0; 1000]);
    let message = Message::new("t", payload.clone());
    for _ in 0..3 {
        let results = transport.deliver(&vec![Parcel::new("t", &message); 100]).await;
        assert!(results.iter().all(|result| matches!(result, Err(Undelivered::Unavailable { .. }))), "{results:?}");
    }
    drop(message);
    assert!(payload.is_unique(), "a message that was given up is kept nowhere");
}

#[test]
fn a_message_can_be_a_cloud_event() {
    pillarbox_testing::run(|| crate::cloud_events::a_message_can_be_a_cloud_event::<Mosquitto>(""));
}
