//! `pillarbox doctor --config`: the stores and the brokers of a relay.

use pillarbox_testing::station::Station;
use stations::rabbitmq::SharedNode;
use stations::{Broker, NatsStation, RabbitStation, RedisStation};

use super::brokers::file;
use super::inbox::Place;
use super::relay::Running;
use super::*;

/// What the doctor says of the broker, and its exit code.
fn examined(to: &str, destinations: &[&str], settings: &str) -> (Value, i32) {
    let (directory, place) = (tempfile::tempdir().unwrap(), Place::sqlite());
    place.run(&["migrate"]);
    let file = file(&directory, &place, to, destinations, settings);
    let output = pillarbox(&["doctor", "--json", "--config", &file]);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut said: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&said["parts"][0]["store"], &said["parts"][1]["transport"]), (&"shop".into(), &"bus".into()));
    (said["parts"][1].take(), code(&output))
}

/// What was found: check, health, and everything that was said.
fn found(part: &Value, check: &str) -> Vec<(String, String)> {
    let findings = part["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    let told = |finding: &Value| (finding["health"].as_str().unwrap().to_owned(), format!("{finding}"));
    findings.map(told).collect()
}

fn health(part: &Value, check: &str) -> String {
    let [(health, _)] = &found(part, check)[..] else { panic!("{check}: {part}") };
    health.clone()
}

/// H41, H42, H46: a stream for each subject, which knows messages again for long enough.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_looks_for_streams_of_nats() {
    let mut station = NatsStation::open().await;
    let subject = station.place("orders").await;
    let (bus, _) = examined(&station.url(), &[&subject], "");
    for check in ["broker", "stream", "duplicates"] {
        assert_eq!(health(&bus, check), "fine", "{bus}");
    }
    let (bus, exit) = examined(&station.url(), &["suite.{topic}", "nobody.{topic}"], "lease = \"10m\"");
    let streams = found(&bus, "stream");
    assert_eq!((streams[0].0.as_str(), streams[1].0.as_str()), ("critical", "fine"), "{bus}");
    assert!(streams[0].1.contains("--subjects 'nobody.>'"), "{bus}");
    assert!(found(&bus, "duplicates")[0].1.contains("nats stream edit orders --dupe-window 20m"), "{bus}");
    assert_eq!(exit, 4);
    station.kill().await;
    let (bus, exit) = examined(&station.url().replace("//", "//user:canary@"), &[&subject], "");
    assert_eq!((health(&bus, "broker").as_str(), exit), ("critical", 4));
    assert!(!bus.to_string().contains("canary"), "{bus}");
}

/// H43, H46: a server that forgets what it has acknowledged, or removes streams to make room.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_looks_at_the_settings_of_redis() {
    let station = RedisStation::open().await;
    let health_of = |check: &str| health(&examined(&station.url(), &["orders"], "").0, check);
    for check in ["broker", "primary", "persistence", "memory"] {
        assert_eq!(health_of(check), "fine");
    }
    for (words, check, expected) in [
        ("appendfsync everysec", "persistence", "warning"),
        ("appendonly no", "persistence", "critical"),
        ("maxmemory 100mb", "memory", "fine"),
        ("maxmemory-policy allkeys-lru", "memory", "critical"),
    ] {
        station.ask::<()>(&format!("CONFIG SET {words}")).await.unwrap();
        assert_eq!(health_of(check), expected, "{words}");
    }
    let reader = "ACL SETUSER reader on >canary ~* +@all -config -info";
    station.ask::<()>(reader).await.unwrap();
    let (bus, _) = examined(&station.url().replace("//", "//reader:canary@"), &["orders"], "");
    assert_eq!(health(&bus, "persistence"), "unknown", "{bus}");
}

/// H46: a relay tells the same from its start, and delivers all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_tells_what_is_wrong_with_its_broker_redis() {
    let station = RedisStation::open().await;
    station.ask::<()>("CONFIG SET appendfsync everysec").await.unwrap();
    let (directory, place) = (tempfile::tempdir().unwrap(), Place::sqlite());
    place.run(&["migrate"]);
    let file = file(&directory, &place, &station.url(), &["orders"], "");
    let mut relay = Running::start(&["--config", &file]);
    let told = relay.logs(|line| line.contains("persistence"));
    assert!(told.contains("appendfsync is everysec") && told.contains("set `appendonly yes`"), "{told}");
    relay.end();
}

/// H42: exchanges and queues that are not there.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_looks_for_exchanges_of_rabbitmq() {
    let station = RabbitStation::<SharedNode>::open().await;
    let queue = station.place("orders").await;
    let (bus, _) = examined(&station.url(), &[&queue, "amq.topic/{topic}"], "");
    assert_eq!((health(&bus, "queue"), health(&bus, "exchange")), ("fine".to_owned(), "fine".to_owned()), "{bus}");
    let (bus, exit) = examined(&station.url(), &[&station.nowhere(), "no-such-exchange/{topic}"], "");
    assert_eq!(exit, 4);
    assert_eq!(
        (health(&bus, "queue"), health(&bus, "exchange")),
        ("critical".to_owned(), "critical".to_owned()),
        "{bus}"
    );
    assert!(found(&bus, "exchange")[0].1.contains("rabbitmqadmin declare exchange name=no-such-exchange"), "{bus}");
}
