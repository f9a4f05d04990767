//! `pillarbox status`: what stands out, and when it is a reason to wake somebody.

use std::time::Duration;

use pillarbox::Instance;
use pillarbox::prelude::*;

use super::inbox::Place;
use super::list::{claimed, fail, settle};

/// WRK-08: the thresholds of the contract, without being told, on every kind of database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_waiting_messages_are_a_warning_and_then_critical() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let store = place.store().await;
        let enqueue = async |count: usize| {
            let messages: Vec<_> = (0..count).map(|_| Message::new("order.created", "")).collect();
            for batch in messages.chunks(1_000) {
                store.enqueue(Enqueue::pending(batch)).await.unwrap();
            }
        };
        let table = [
            (1_000, 0, "fine", None),
            (1, 3, "warning", Some("pending > 1,000")),
            (8_999, 3, "warning", Some("pending > 1,000")),
            (1, 4, "critical", Some("pending > 10,000")),
        ];
        for (more, exit, health, reason) in table {
            enqueue(more).await;
            let (code, text) = place.run(&["status"]);
            assert_eq!(code, exit, "{text}");
            let json = place.json(&["status"]);
            assert_eq!((&json["health"], &json["reason"]), (&health.into(), &reason.into()), "{text}");
        }
    }
}

/// WRK-08: so are messages that wait for too long, by the contract's thresholds or the operator's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_message_is_a_warning_and_then_critical() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        place.store().await.enqueue(Enqueue::pending(&[Message::new("order.created", "")])).await.unwrap();
        let outbox = place.table("outbox");
        for (seconds, exit, reason) in [(61, 3, "warning: oldest > 60 s"), (540, 4, "critical: oldest > 600 s")] {
            let before = match place.kind() {
                "sqlite" => format!("created_at - {seconds}000000"),
                "postgres" => format!("created_at - interval '{seconds} s'"),
                _ => format!("created_at - interval {seconds} second"),
            };
            place.sql(&format!("UPDATE {outbox} SET created_at = {before}")).await;
            let (code, text) = place.run(&["status"]);
            assert!(code == exit && text.contains(reason), "{text}");
        }
        assert_eq!(place.run(&["status", "--oldest-warning", "7200", "--oldest-critical", "9000"]).0, 0);
    }
}

/// WRK-03, WRK-08: who serves the queue, and who went silent without taking leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_and_stale_instances_are_counted() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        assert_eq!(place.json(&["status"])["instances"], serde_json::Value::Null, "nobody keeps a list");
        assert!(!place.run(&["status"]).1.contains("instances"));
        place.run(&["migrate", "--instances"]);
        let list = place.store().await.instances().unwrap();
        for service in ["stale", "orders", "billing"] {
            list.heartbeat(&Instance::new(service, "host", 1)).await.unwrap();
        }
        let (code, text) = place.run(&["status"]);
        assert!(code == 0 && text.contains("\ninstances: 3 live\n"), "{text}");
        let ago = match place.kind() {
            "sqlite" => "last_seen_at - 601000000",
            "postgres" => "last_seen_at - interval '601 s'",
            _ => "last_seen_at - interval 601 second",
        };
        let table = place.table("outbox_instance");
        place.sql(&format!("UPDATE {table} SET last_seen_at = {ago} WHERE service = 'stale'")).await;
        let (code, text) = place.run(&["status"]);
        assert!(code == 0 && text.contains("\ninstances: 2 live, 1 stale\n"), "{text}");
        let counted = serde_json::json!({ "live_count": 2, "stale_count": 1 });
        assert_eq!(place.json(&["status"])["instances"], counted);
    }
}

/// H33, H62, WRK-08: how many keys wait, and the first of them with what they wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_keys_are_counted_and_the_first_shown() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let store = place.store().await;
        assert!(!place.run(&["status"]).1.contains("blocked"));
        let keyed = |number: usize| Message::new("order.created", "canary").key(format!("c{number}\x1b"));
        let heads: Vec<_> = (0..7).map(keyed).collect();
        let (owner, held) = claimed(&*store, &heads).await;
        let later = pillarbox::Verdict::Abandon { delay: Duration::from_secs(3600), reason: "away".into() };
        settle(&*store, owner, &held[..1], later).await;
        settle(&*store, owner, &held[1..], fail("no\nmailbox")).await;
        let behind: Vec<_> = (0..7).chain([1]).map(keyed).collect();
        store.enqueue(Enqueue::pending(&behind)).await.unwrap();

        let (code, text) = place.run(&["status"]);
        assert_eq!(code, 4, "{text}");
        assert!(text.contains("\nblocked keys: 7; `pillarbox blocked` lists them\n"), "{text}");
        let shown: Vec<_> = text.lines().filter(|line| line.starts_with("blocked key c")).collect();
        assert_eq!(shown.len(), 5, "{text}");
        assert!(shown[0].starts_with("blocked key c0\\u{1b}: 1 behind row "), "{text}");
        assert!(shown[0].ends_with(", which is pending: away"), "{text}");
        assert!(shown[1].starts_with("blocked key c1\\u{1b}: 2 behind row "), "{text}");
        assert!(shown[1].ends_with(", which is dead: no\\nmailbox"), "{text}");
        assert!(!text.contains("canary") && !text.contains('\x1b'), "{text}");
        let json = place.json(&["status"]);
        assert_eq!((&json["blocked_key_count"], &json["blocked_keys"][1]["waiting"]), (&7.into(), &2.into()));
        assert_eq!(json["blocked_keys"].as_array().unwrap().len(), 5);
    }
}
