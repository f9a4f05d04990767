//! Many messages at once: delivered ones once more, dead ones under a throttle, old ones purged.

use std::process::{Command, Stdio};
use std::time::Duration;

use pillarbox::Verdict;
use pillarbox::admin::{Ended, Filter};
use pillarbox::prelude::*;

use super::inbox::Place;
use super::list::{claimed, fail, settle};
use super::{code, pillarbox};

fn orders(count: usize) -> Vec<Message> {
    (0..count).map(|_| Message::new("order.created", "")).collect()
}

/// BUS-10: the same messages under the same ids, only when it is meant, and not those of which a receipt is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivered_messages_are_delivered_again() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let store = place.store().await;
        let (owner, held) = claimed(&*store, &orders(2)).await;
        settle(&*store, owner, &held, Verdict::Ack).await;
        let replay = |more: &[&str]| place.run(&[&["replay", "--delivered", "--since", "1h"], more].concat());
        let (code, asked) = replay(&[]);
        assert!(code == 0 && asked.contains(": would replay 2 messages (since "), "{asked}");
        assert!(replay(&["--until", "30m"]).1.ends_with(": no done message matches\n"));
        assert!(replay(&["--topic", "other"]).1.ends_with(": no done message matches\n"));
        assert_eq!(store.overview().await.unwrap().total().done, 2, "nothing was done");
        assert!(replay(&["--yes"]).1.ends_with(": replayed 2 messages\n"));
        let again = store.claim(Claim::new(owner, Duration::from_secs(600), 10).unwrap()).await.unwrap();
        let ids = |claimed: &[pillarbox::store::Claimed]| {
            claimed.iter().map(|one| one.message.as_ref().unwrap().id()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&again), ids(&held));
        let json = place.json(&["replay", "--delivered", "--since", "1h", "--yes"]);
        assert_eq!((&json["action"], &json["count"], &json["is_done"]), (&"replay".into(), &0.into(), &true.into()));
        let (exit, refused) = place.refused(&["replay", "--delivered", "--since", "1h", "--until", "2h"]);
        assert!(exit == 2 && refused.contains("--until must be a shorter time"), "{refused}");
    }
    assert_eq!(code(&pillarbox(&["replay", "--since", "1h", "--url", "sqlite:x"])), 2, "what is replayed is said");
}

/// Runs a throttled replay of a thousand messages, ends it half-way with ctrl-c, and goes on as it says.
#[cfg(unix)]
async fn interrupted(verdict: Verdict, ended: Ended, command: &[&str]) {
    let place = Place::sqlite();
    place.run(&["migrate"]);
    let store = place.store().await;
    let (owner, held) = claimed(&*store, &orders(1_000)).await;
    settle(&*store, owner, &held, verdict).await;
    let left = async || store.tally(ended, &Filter::all()).await.unwrap().count;
    let mut replay = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
    replay.args(command).args(["--yes", "--rate", "8/s", "--url", place.url()]);
    let replay = replay.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while left().await == 1_000 {}
    assert!(Command::new("kill").args(["-INT", &replay.id().to_string()]).status().unwrap().success());
    let output = replay.wait_with_output().unwrap();
    assert_eq!(code(&output), 1);
    let words = super::complaint(&output);
    let done = 1_000 - left().await;
    let rest = words.strip_prefix(&format!("pillarbox: interrupted: replayed {done} of 1,000 messages; add ")).unwrap();
    let after = rest.strip_suffix(" to go on with the rest").unwrap();
    let (code, text) = place.run(&[command, &["--yes"], &after.split(' ').collect::<Vec<_>>()[..]].concat());
    assert!(code == 0 && text.ends_with(&format!(": replayed {} messages\n", 1_000 - done)), "{text}");
    assert_eq!(left().await, 0);
    assert_eq!(store.overview().await.unwrap().total().pending, 1_000, "each of them once");
}

/// BUS-10: ctrl-c ends it between two batches, and what is left is told and goes on.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_replay_says_how_to_go_on() {
    interrupted(fail("x"), Ended::Dead, &["dead", "replay"]).await;
}

/// BUS-10: so does a replay of what was delivered.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_replay_of_delivered_messages_says_how_to_go_on() {
    interrupted(Verdict::Ack, Ended::Done, &["replay", "--delivered", "--since", "1h"]).await;
}

/// BUS-10: a throttle slows down and changes nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_replay_takes_everything_that_matches() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let store = place.store().await;
        let (owner, held) = claimed(&*store, &[orders(30), vec![Message::new("other", "")]].concat()).await;
        settle(&*store, owner, &held, fail("x")).await;
        let (_, text) = place.run(&["dead", "replay", "--topic", "order.created", "--rate", "100/s", "--yes"]);
        assert!(text.ends_with(": replayed 30 messages\n"), "{text}");
        assert_eq!(store.overview().await.unwrap().total().dead, 1);
        let (_, text) = place.run(&["dead", "delete", "--yes", "--json"]);
        assert!(text.contains("\"count\":1"), "{text}");
    }
    for rate in ["0/s", "5/m", "fast"] {
        assert_eq!(code(&pillarbox(&["dead", "replay", "--rate", rate, "--url", "sqlite:x"])), 2, "{rate}");
    }
}

/// OBX-059, H58: only what was done long enough ago, only when it is meant; receipts count too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn done_messages_are_purged_when_it_is_meant() {
    for place in Place::everywhere() {
        place.run(&["migrate", "--inbox"]);
        let store = place.store().await;
        let (owner, held) = claimed(&*store, &orders(4)).await;
        settle(&*store, owner, &held[..2], Verdict::Ack).await;
        settle(&*store, owner, &held[2..3], fail("x")).await;
        let (_, text) = place.run(&["purge"]);
        assert!(text.ends_with(": no message has been done for more than 7 d 0 h\n"), "{text}");
        assert!(place.run(&["purge", "--yes"]).1.ends_with(": purged 0 messages done for more than 7 d 0 h\n"));
        let (_, text) = place.run(&["purge", "--older-than", "0s"]);
        assert!(text.contains(": would purge 2 messages done for more than 0 ms. Add --yes to do it."), "{text}");
        let json = place.json(&["purge", "--older-than", "0s", "--yes"]);
        assert_eq!((&json["count"], &json["is_done"]), (&2.into(), &true.into()));
        let total = store.overview().await.unwrap().total();
        assert_eq!((total.done, total.dead, total.processing), (0, 1, 1));
        let (_, text) = place.run(&["purge", "--inbox"]);
        assert!(text.contains("/inbox: would purge every message done for more than 30 d 0 h."), "{text}");
        assert!(place.run(&["purge", "--inbox", "--yes"]).1.contains("/inbox: purged 0 messages"));
    }
}
