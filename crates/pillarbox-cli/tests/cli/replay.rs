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

/// A thousand messages, of which a throttled command changes a part; then it ends by itself or by a signal. What it says at the
/// end.
#[cfg(unix)]
struct Half {
    place: Place,
    command: Vec<String>,
    ended: Ended,
    words: String,
}

#[cfg(unix)]
impl Half {
    async fn of(
        place: Place,
        verdict: Verdict,
        ended: Ended,
        command: &[&str],
        end: impl AsyncFnOnce(&Place, u32),
    ) -> Self {
        place.run(&["migrate"]);
        let store = place.store().await;
        let (owner, held) = claimed(&*store, &orders(1_000)).await;
        settle(&*store, owner, &held, verdict).await;
        let mut process = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        process.args(command).args(["--yes", "--rate", "8/s", "--url", place.url(), "--schema", place.schema()]);
        let process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while store.tally(ended, &Filter::all()).await.unwrap().count == 1_000 {}
        end(&place, process.id()).await;
        let output = process.wait_with_output().unwrap();
        assert_eq!(code(&output), 1);
        let words = super::complaint(&output).to_owned();
        Self { place, command: command.iter().map(|word| (*word).to_owned()).collect(), ended, words }
    }

    async fn left(&self) -> u64 {
        self.place.store().await.tally(self.ended, &Filter::all()).await.unwrap().count
    }

    /// Goes on as it says; what it says before, after what it has done, and what the rest of it says.
    async fn goes_on(&self, participle: &str) -> (String, String) {
        let done = 1_000 - self.left().await;
        let (before, rest) = self.words.split_once(&format!("{participle} {done} of 1,000 messages; ")).unwrap();
        let how = rest.strip_suffix(" to go on with the rest").unwrap();
        let more: Vec<_> = how.strip_prefix("add ").map_or_else(Vec::new, |flags| flags.split(' ').collect());
        let command: Vec<_> = self.command.iter().map(String::as_str).collect();
        let (code, text) = self.place.run(&[&command[..], &["--yes"], &more[..]].concat());
        assert!(code == 0 && text.ends_with(&format!(": {participle} {} messages\n", 1_000 - done)), "{text}");
        assert_eq!(self.left().await, 0);
        (before.to_owned(), how.to_owned())
    }

    async fn pending(&self) -> u64 {
        self.place.store().await.overview().await.unwrap().total().pending
    }
}

#[cfg(unix)]
fn signal(name: &str) -> impl AsyncFnOnce(&Place, u32) {
    async move |_: &Place, process: u32| {
        assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
    }
}

/// BUS-10: ctrl-c or SIGTERM ends it between two batches, and what is left is told and goes on.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_replay_says_how_to_go_on() {
    for name in ["-INT", "-TERM"] {
        let half = Half::of(Place::sqlite(), fail("x"), Ended::Dead, &["dead", "replay"], signal(name)).await;
        let (before, how) = half.goes_on("replayed").await;
        assert_eq!((before.as_str(), half.pending().await), ("pillarbox: interrupted: ", 1_000), "each of them once");
        assert!(how.starts_with("add --after ") && !how.contains("than"), "{how}");
    }
}

/// BUS-10: so does a replay of what was delivered, whose ages it says as instants: they mean the same later on.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_replay_of_delivered_messages_says_how_to_go_on() {
    let command = ["replay", "--delivered", "--since", "1h", "--after", "0"];
    let half = Half::of(Place::sqlite(), Verdict::Ack, Ended::Done, &command, signal("-INT")).await;
    let (_, how) = half.goes_on("replayed").await;
    assert!(how.contains(" --since 20") && how.ends_with('Z'), "{how}");
    assert_eq!(half.pending().await, 1_000, "each of them once");
}

/// BUS-10: and a deletion, which needs no mark.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_deletion_says_how_to_go_on() {
    let half = Half::of(Place::sqlite(), fail("x"), Ended::Dead, &["dead", "delete"], signal("-TERM")).await;
    assert_eq!(half.goes_on("deleted").await.1, "run it again");
    let command = ["dead", "delete", "--newer-than", "1h"];
    let half = Half::of(Place::sqlite(), fail("x"), Ended::Dead, &command, signal("-INT")).await;
    assert!(half.goes_on("deleted").await.1.starts_with("add --newer-than 20"));
}

/// BUS-10: a database that fails half-way takes nothing with it: what was done is told, and what is left goes on.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_fails_half_way_says_how_to_go_on() {
    for place in Place::everywhere() {
        let rename = async |place: &Place, from: &str, to: &str| {
            let to = if place.kind() == "postgres" { to.to_owned() } else { place.table(to) };
            place.sql(&format!("ALTER TABLE {} RENAME TO {to}", place.table(from))).await;
        };
        let command = ["replay", "--delivered", "--since", "1h"];
        let breaks = async |place: &Place, _: u32| rename(place, "outbox_shelf", "away").await;
        let half = Half::of(place, Verdict::Ack, Ended::Done, &command, breaks).await;
        rename(&half.place, "away", "outbox_shelf").await;
        let (before, _) = half.goes_on("replayed").await;
        assert!(before.starts_with("pillarbox: the store at --url") && before.ends_with("; "), "{before}");
        assert_eq!(half.pending().await, 1_000, "each of them once");
    }
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
