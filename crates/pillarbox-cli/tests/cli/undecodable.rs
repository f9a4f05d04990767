//! Rows that nobody can read: set aside under a reason of their own, and put back when they are mended.

use pillarbox::prelude::*;

use super::brokers::until;
use super::inbox::Place;
use super::list::{claimed, fail, settle};
use super::relay::Running;

/// BUS-10, HOT-11: they keep nobody from the others, and one command puts all of them back and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_set_aside_and_put_back_when_it_is_mended() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let store = place.store().await;
        let (owner, held) = claimed(&*store, &[Message::new("other", "")]).await;
        settle(&*store, owner, &held, fail("no such customer")).await;
        let (outbox, shelf) = (place.table("outbox"), place.table("outbox_shelf"));
        for payload in ["one", "two"] {
            let columns = "(topic, payload, headers)";
            place.sql(&format!("INSERT INTO {outbox} {columns} VALUES ('foreign', '{payload}', '[1, 2]')")).await;
        }
        store.enqueue(Enqueue::pending(&[Message::new("plain", "three")])).await.unwrap();
        let to = ["--to", "-", "--destination", "-", "--listen", "off"];
        let mut relay = Running::start(&[&["--url", place.url(), "--schema", place.schema()], &to[..]].concat());
        assert_eq!(relay.delivered()["topic"], "plain");
        until(async || store.overview().await.unwrap().total().dead == 3).await;

        let unread = place.json(&["dead", "list", "--error", "decode:"]);
        let unread = unread["messages"].as_array().unwrap();
        assert_eq!(unread.len(), 2, "{unread:?}");
        for one in unread {
            let error = one["last_error"].as_str().unwrap();
            assert!(error.starts_with("decode: column headers "), "{one}");
        }
        let (_, groups) = place.run(&["dead", "list", "--by", "error"]);
        assert!(groups.starts_with("2   foreign   decode: column headers "), "{groups}");

        place.sql(&format!("UPDATE {shelf} SET headers = '{{\"a\": \"b\"}}' WHERE topic = 'foreign'")).await;
        let (code, replayed) = place.run(&["dead", "replay", "--error", "decode:", "--yes"]);
        assert!(code == 0 && replayed.ends_with(": replayed 2 messages\n"), "{replayed}");
        let mut payloads = [(); 2].map(|()| relay.delivered()["payload"].as_str().unwrap().to_owned());
        payloads.sort_unstable();
        assert_eq!(payloads, ["one", "two"]);
        relay.says();
        relay.end();
        assert_eq!(place.json(&["dead", "list"])["messages"][0]["last_error"], "no such customer");
    }
}
