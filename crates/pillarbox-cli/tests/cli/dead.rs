//! Messages that were given up: listed, replayed, deleted.

use std::time::Duration;

use pillarbox::prelude::*;
use serde_json::Value;

use super::{claim_all, code, complaint, fresh, pillarbox, stdout, store_with};

/// Three dead messages: two orders that failed alike, and a payment.
async fn three_dead(url: &str) {
    let topics = ["order.created", "order.created", "payment\x1b[2J"];
    let mut messages = topics.map(|topic| Message::new(topic, "canary"));
    messages[1] = messages[1].clone().correlation_id("cart 7");
    let store = store_with(url, &messages).await;
    let (owner, claimed) = claim_all(&store, Duration::from_secs(600)).await;
    let reasons = ["no such customer", "no such customer", "declined\nfor good"];
    let settlements: Vec<_> = claimed
        .iter()
        .zip(reasons)
        .map(|(one, reason)| Settlement { held: one.held, verdict: pillarbox::Verdict::Fail { reason: reason.into() } })
        .collect();
    store.settle(owner, &settlements).await.unwrap();
}

fn listed(url: &str, more: &[&str]) -> Value {
    let output = pillarbox(&[&["dead", "list", "--json", "--url", url], more].concat());
    assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(stdout(&output)).unwrap()
}

fn count(list: &Value) -> usize {
    list["messages"].as_array().unwrap().len()
}

/// H62: what is stored does not steer the terminal, and no payload is shown.
#[tokio::test]
async fn dead_messages_are_listed_with_their_errors() {
    let (_directory, url) = fresh();
    three_dead(&url).await;
    let output = pillarbox(&["dead", "list", "--url", &url]);
    assert_eq!(code(&output), 0);
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.starts_with("id   topic "), "{text}");
    assert!(text.contains("payment\\u{1b}[2J") && text.contains("declined\\nfor good\n"), "{text}");
    assert!(!text.contains('\x1b') && !text.contains("canary"), "{text}");
}

/// WRK-02.
#[tokio::test]
async fn dead_messages_are_found_by_topic_correlation_error_age_and_number() {
    let (_directory, url) = fresh();
    three_dead(&url).await;
    let table: [(&[&str], usize); 9] = [
        (&[], 3),
        (&["--topic", "order.created"], 2),
        (&["--topic", "order"], 0),
        (&["--correlation-id", "cart 7"], 1),
        (&["--correlation-id", "cart"], 0),
        (&["--error", "such"], 2),
        (&["--older-than", "1h"], 0),
        (&["--newer-than", "1h"], 3),
        (&["--topic", "order.created", "--error", "declined"], 0),
    ];
    for (filter, found) in table {
        assert_eq!(count(&listed(&url, filter)), found, "{filter:?}");
    }
    let id = listed(&url, &["--error", "declined"])["messages"][0]["id"].to_string();
    assert_eq!(listed(&url, &["--id", &id])["messages"][0]["last_error"], "declined\nfor good");

    assert_eq!(listed(&url, &["--correlation-id", "cart 7"])["messages"][0]["correlation_id"], "cart 7");

    let page = listed(&url, &["--limit", "2"]);
    assert_eq!(count(&page), 2);
    assert_eq!(count(&listed(&url, &["--limit", "2", "--after", &page["next"].to_string()])), 1);
    let text = pillarbox(&["dead", "list", "--limit", "2", "--url", &url]);
    assert!(stdout(&text).ends_with(&format!("more: add --after {}\n", page["next"])), "{}", stdout(&text));
}

#[tokio::test]
async fn dead_messages_are_replayed_or_deleted_only_when_it_is_meant() {
    let (_directory, url) = fresh();
    three_dead(&url).await;
    let run = |arguments: &[&str]| {
        let output = pillarbox(&[arguments, &["--url", &url]].concat());
        assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output).to_owned()
    };
    let asked = run(&["dead", "replay", "--topic", "order.created"]);
    let [first, rest] = asked.split_once(" (since ").map(<[&str; 2]>::from).unwrap();
    assert_eq!(first, "store sqlite:shop.db: would replay 2 messages");
    assert!(rest.ends_with(" UTC). Add --yes to do it, --rate 500/s to throttle.\n"), "{asked}");
    assert_eq!(run(&["dead", "replay", "--topic", "order.created", "--dry-run"]), asked);
    assert_eq!(count(&listed(&url, &[])), 3, "nothing was done");
    for ages in [["--older-than", "1h"], ["--newer-than", "0s"]] {
        let none = run(&[&["dead", "delete", "--yes"][..], &ages].concat());
        assert_eq!(none, "store sqlite:shop.db: deleted 0 messages\n");
    }
    let done =
        run(&["dead", "replay", "--topic", "order.created", "--newer-than", "1h", "--older-than", "0s", "--yes"]);
    assert_eq!(done, "store sqlite:shop.db: replayed 2 messages\n");
    assert_eq!(run(&["dead", "replay", "--topic", "order.created"]), "store sqlite:shop.db: no dead message matches\n");

    let asked: Value = serde_json::from_str(&run(&["dead", "delete", "--json"])).unwrap();
    assert_eq!((&asked["action"], &asked["count"], &asked["is_done"]), (&"delete".into(), &1.into(), &false.into()));
    assert_eq!(run(&["dead", "delete", "--yes"]), "store sqlite:shop.db: deleted 1 message\n");
    let status = pillarbox(&["status", "--json", "--url", &url]);
    assert_eq!(code(&status), 0);
    let status: Value = serde_json::from_str(stdout(&status)).unwrap();
    assert_eq!((&status["total"]["pending"], &status["total"]["dead"]), (&2.into(), &0.into()));
}

#[test]
fn senseless_filters_are_wrong_use() {
    let (_directory, url) = fresh();
    assert_eq!(code(&pillarbox(&["migrate", "--url", &url])), 0);
    for (arguments, words) in [(["--older-than", "4000d"], "older_than must be"), (["--limit", "0"], "limit must be")] {
        let output = pillarbox(&[&["dead", "list", "--url", &url][..], &arguments].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(complaint(&output).contains(words), "{}", complaint(&output));
    }
    let output = pillarbox(&["dead", "list", "--older-than", "soon", "--url", &url]);
    assert_eq!(code(&output), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("such as 15m"));
}

/// H33, H62: which keys wait, behind what, and how many messages.
#[tokio::test]
async fn blocked_keys_are_listed_with_what_they_wait_for() {
    let (_directory, url) = fresh();
    let keyed = |key: &str| Message::new("order.created", "canary").key(key);
    let store = store_with(&url, &[keyed("c\x1b[2J"), keyed("d")]).await;
    let text = |more: &[&str]| {
        let output = pillarbox(&[&["blocked", "--url", &url], more].concat());
        assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output).to_owned()
    };
    assert_eq!(text(&[]), "no key is blocked\n");
    let (owner, claimed) = claim_all(&store, Duration::from_secs(600)).await;
    let poison = pillarbox::Verdict::Fail { reason: "poison".into() };
    let later = pillarbox::Verdict::Abandon { delay: Duration::from_secs(3600), reason: "away".into() };
    let settlements = claimed.iter().zip([poison, later]).map(|(one, verdict)| Settlement { held: one.held, verdict });
    store.settle(owner, &settlements.collect::<Vec<_>>()).await.unwrap();
    for key in ["c\x1b[2J", "c\x1b[2J", "d"] {
        store.enqueue(Enqueue::pending(&[keyed(key)])).await.unwrap();
    }
    let listed = text(&[]);
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(
        lines[1].starts_with("c\\u{1b}[2J") && lines[1].contains("is dead") && lines[1].ends_with("poison"),
        "{listed}"
    );
    assert!(lines[2].starts_with('d') && lines[2].contains("is tried again in"), "{listed}");
    let json: Value = serde_json::from_str(&text(&["--json", "--limit", "1"])).unwrap();
    assert_eq!((&json["keys"][0]["waiting"], &json["keys"][0]["state"]), (&2.into(), &"dead".into()));
    assert_eq!(json["keys"].as_array().unwrap().len(), 1);
}
