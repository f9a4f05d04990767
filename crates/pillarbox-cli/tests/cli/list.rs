//! Messages in every state: listed, shown, and grouped where they are dead.

use std::time::Duration;

use pillarbox::prelude::*;
use pillarbox::store::Claimed;

use super::inbox::Place;

const LONG: Duration = Duration::from_secs(600);

/// Stores messages and claims them all.
pub(super) async fn claimed(store: &dyn Store, messages: &[Message]) -> (OwnerToken, Vec<Claimed>) {
    store.enqueue(Enqueue::pending(messages)).await.unwrap();
    let owner = OwnerToken::new();
    (owner, store.claim(Claim::new(owner, LONG, 10_000).unwrap()).await.unwrap())
}

/// Settles everything alike.
pub(super) async fn settle(store: &dyn Store, owner: OwnerToken, claimed: &[Claimed], verdict: pillarbox::Verdict) {
    let settlements: Vec<_> =
        claimed.iter().map(|one| Settlement { held: one.held, verdict: verdict.clone() }).collect();
    store.settle(owner, &settlements).await.unwrap();
}

pub(super) fn fail(reason: &str) -> pillarbox::Verdict {
    pillarbox::Verdict::Fail { reason: reason.into() }
}

/// WRK-08, H62: each state has a list of its own, in pages, and no payload in any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_every_state_are_listed() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let store = place.store().await;
        let message = |topic: &str| Message::new(topic.to_owned(), "canary");
        let (owner, held) = claimed(&*store, &[message("done"), message("dead"), message("held")]).await;
        settle(&*store, owner, &held[..1], pillarbox::Verdict::Ack).await;
        settle(&*store, owner, &held[1..2], fail("no\x1b[2J")).await;
        store.enqueue(Enqueue::pending(&[message("now"), message("later").delay(LONG)])).await.unwrap();
        let table: [(&str, &[&str], &str); 4] = [
            ("pending", &["now", "later"], "due"),
            ("processing", &["held"], "held until"),
            ("done", &["done"], "done since"),
            ("dead", &["dead"], "dead since"),
        ];
        for (state, topics, heading) in table {
            let (code, text) = place.run(&["list", "--state", state]);
            assert_eq!((code, text.lines().count()), (0, 1 + topics.len()), "{text}");
            assert!(text.lines().next().unwrap().contains(heading), "{text}");
            assert!(!text.contains('\x1b') && !text.contains("canary"), "{text}");
            let listed = place.json(&["list", "--state", state]);
            let listed = listed["messages"].as_array().unwrap();
            assert_eq!(listed.iter().map(|one| one["topic"].as_str().unwrap()).collect::<Vec<_>>(), topics);
        }
        let page = place.json(&["list", "--state", "pending", "--limit", "1"]);
        let rest = place.json(&["list", "--state", "pending", "--after", &page["next"].to_string()]);
        assert_eq!((&page["messages"][0]["topic"], &rest["messages"][0]["topic"]), (&"now".into(), &"later".into()));
        assert_eq!(place.json(&["list", "--state", "dead", "--topic", "none"])["messages"], serde_json::json!([]));
    }
}

/// WRK-08, H54, H62: one message with everything that is known of it; its payload only when it is asked for, and harmless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_is_shown_with_everything() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let store = place.store().await;
        let text =
            Message::new("order.created", "{\"a\": \"\x1b[2Jcanary ä\"}").key("customer-7").header("name", "va\tlue");
        let bytes = Message::new("order.created", vec![0, 159, 146, 150]);
        let (owner, held) = claimed(&*store, &[text.clone(), bytes.clone()]).await;
        settle(&*store, owner, &held[..1], fail("broken")).await;

        let id = text.id().to_string();
        let (code, shown) = place.run(&["show", &id]);
        assert_eq!(code, 0, "{shown}");
        let row = held[0].held.work_id.to_string();
        for (name, value) in [("id", row.as_str()), ("state", "dead"), ("key", "customer-7"), ("last error", "broken")]
        {
            let line = format!("{name:<12}");
            assert!(shown.lines().any(|shown| shown.starts_with(&line) && shown.ends_with(value)), "{name}: {shown}");
        }
        assert!(shown.contains("\nheaders\nname   va\\tlue\n"), "{shown}");
        assert!(!shown.contains("canary") && shown.contains(" ago)"), "{shown}");
        assert_eq!(place.json(&["show", &row]), place.json(&["show", &id]), "the number names it too");

        let (_, shown) = place.run(&["show", &id, "--payload"]);
        assert!(shown.ends_with("\npayload (22 bytes)\n{\"a\": \"\\u{1b}[2Jcanary ä\"}\n"), "{shown}");
        let (_, shown) = place.run(&["show", &id, "--payload", "--payload-bytes", "19"]);
        assert!(shown.ends_with("\npayload (the first 18 of 22 bytes)\n{\"a\": \"\\u{1b}[2Jcanary \n"), "{shown}");
        let other = bytes.id().to_string();
        let (_, shown) = place.run(&["show", &other, "--payload"]);
        assert!(
            shown.ends_with("\npayload (4 bytes, hexadecimal)\n009f9296\n") && shown.contains("held until"),
            "{shown}"
        );

        let json = place.json(&["show", &id]);
        assert_eq!((&json["state"], &json["message"]["headers"]["name"]), (&"dead".into(), &"va\tlue".into()));
        assert!(json.get("payload").is_none());
        assert_eq!(place.json(&["show", &id, "--payload"])["payload"], "{\"a\": \"\x1b[2Jcanary ä\"}");
        assert_eq!(place.json(&["show", &other, "--payload"])["payload_hex"], "009f9296");

        let (code, refused) = place.refused(&["show", &MessageId::new().to_string()]);
        assert!(
            code == 1 && refused.contains("has no such message: it was never stored, or it was purged"),
            "{refused}"
        );
    }
    let place = Place::sqlite();
    let output = super::pillarbox(&["show", "soon", "--url", "sqlite:x"]);
    assert_eq!(super::code(&output), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("or the id of a message"));
    drop(place);
}

/// WRK-08, BUS-10: what went wrong, at a glance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_messages_are_counted_by_error_and_by_topic() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        assert!(place.run(&["dead", "list", "--by", "error"]).1.ends_with(": no dead message matches\n"));
        let store = place.store().await;
        let created: Vec<_> = (0..1_200).map(|_| Message::new("order.created", "")).collect();
        let (owner, held) = claimed(&*store, &created).await;
        settle(&*store, owner, &held, fail("bus: maximum payload exceeded")).await;
        let (owner, held) = claimed(&*store, &[Message::new("order.shipped", "")]).await;
        settle(&*store, owner, &held, fail("decode:\x1b missing field `carrier`")).await;
        let (_, text) = place.run(&["dead", "list", "--by", "error"]);
        let expected = "\
1,200   order.created   bus: maximum payload exceeded
    1   order.shipped   decode:\\u{1b} missing field `carrier`
";
        assert_eq!(text, expected);
        let (_, text) = place.run(&["dead", "list", "--by", "topic"]);
        assert_eq!(text, "1,200   order.created\n    1   order.shipped\n");
        let (_, text) = place.run(&["dead", "list", "--by", "topic", "--limit", "1"]);
        assert_eq!(text, "1,200   order.created\n");
        let json = place.json(&["dead", "list", "--by", "error", "--topic", "order.shipped"]);
        assert_eq!((&json["groups"][0]["count"], json["groups"].as_array().unwrap().len()), (&1.into(), 1));
        assert_eq!(json["groups"][0]["error"], "decode:\x1b missing field `carrier`");
    }
}
