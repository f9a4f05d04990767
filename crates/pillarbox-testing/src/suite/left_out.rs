//! Topics that a claim leaves out: their messages stay where they are, and nothing else waits for them.

use std::time::Duration;

use pillarbox_core::LeftOut;

use super::support::*;
use crate::Harness;

fn of(topic: &str) -> Message {
    Message::new(topic, "")
}

fn without(owner: OwnerToken, limit: u32, topics: &[&str]) -> Claim {
    claim_of(owner, limit).leaving_out(LeftOut::new(topics.iter().map(|topic| (*topic).to_owned())))
}

/// The topics of what another owner gets.
async fn next<H: Harness>(h: &H, topics: &[&str]) -> Vec<String> {
    let claimed = h.store().claim(without(OwnerToken::new(), 10, topics)).await.expect("a claim succeeds");
    topics_of(&claimed)
}

fn topics_of(claimed: &[Claimed]) -> Vec<String> {
    claimed.iter().map(|one| one.message.as_ref().expect("it can be read").topic().to_owned()).collect()
}

/// A claim leaves messages of some topics where they are, untouched, and brings all others. H33, WRK-08.
pub async fn a_claim_brings_all_but_the_topics_it_leaves_out<H: Harness>() {
    let h = start::<H>().await;
    let batch = ["a", "A", "a ", "a.b", "Größe 📮", "a"].map(of);
    enqueue(h.store(), &batch).await;
    assert_eq!(next(&h, &["a", "Größe 📮", "nobody's", "%", "*"]).await, ["A", "a ", "a.b"]);
    let left = stored(h.store(), batch[0].id()).await;
    assert_eq!((left.state, left.attempts), (State::Pending, 0));
    assert_eq!(next(&h, &["a"]).await, ["Größe 📮"]);
    assert_eq!(next(&h, &[]).await, ["a", "a"]);
}

/// What a claim leaves out takes no room in it, however much lies before the others, and whether verdicts come with it. H33.
pub async fn what_is_left_out_lies_in_nobodys_way<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    enqueue(h.store(), &(0..300).map(|_| of("paused")).collect::<Vec<_>>()).await;
    enqueue(h.store(), &["one", "two", "three"].map(of)).await;
    let claimed = h.store().claim(without(owner, 2, &["paused"])).await.expect("a claim succeeds");
    assert_eq!(topics_of(&claimed), ["one", "two"]);
    for verdict in [Verdict::Ack, abandon(HOUR, "why")] {
        enqueue(h.store(), &[of("more")]).await;
        let settlements = [settlement(&claimed[usize::from(verdict != Verdict::Ack)], &verdict)];
        let exchanged = h.store().exchange(&settlements, without(owner, 1, &["paused"])).await;
        let exchanged = exchanged.expect("an exchange succeeds");
        assert_eq!(exchanged.settled, [Settled::Applied]);
        let expected = if verdict == Verdict::Ack { "three" } else { "more" };
        assert_eq!(topics_of(&exchanged.claimed), [expected]);
    }
    assert_eq!(counts(h.store()).await.pending, 302, "the paused ones, one that waits and one more");
}

/// With claims that do not look at everything each time: what is left out is found by the next claim that wants it. H33.
pub async fn what_was_left_out_is_found_when_it_is_wanted<H: Harness>() {
    let h = H::start(StoreOptions { rescan_interval: DAY, ..options() }).await;
    enqueue(h.store(), &["a", "b", "c"].map(of)).await;
    assert_eq!(next(&h, &["a", "b"]).await, ["c"]);
    for _ in 0..3 {
        assert_eq!(next(&h, &["a", "b"]).await, Vec::<String>::new());
    }
    enqueue(h.store(), &["a", "c"].map(of)).await;
    assert_eq!(next(&h, &["a", "b"]).await, ["c"], "a later one is found at once");
    assert_eq!(next(&h, &["a"]).await, ["b"]);
    let owner = OwnerToken::new();
    enqueue(h.store(), &[of("d")]).await;
    let given_back = h.store().claim(without(owner, 1, &["a"])).await.expect("a claim succeeds");
    assert_eq!(next(&h, &["a"]).await, Vec::<String>::new());
    settle_all(h.store(), owner, &given_back, &release(Duration::ZERO)).await;
    assert_eq!(next(&h, &["a"]).await, ["d"], "so is what was given back");
    assert_eq!(next(&h, &[]).await, ["a", "a"]);
}

/// Messages of one key keep their order: later ones wait behind one that is left out, and other keys do not. OBX-037, H34.
pub async fn later_messages_of_a_key_wait_behind_one_that_is_left_out<H: Harness>() {
    let h = start::<H>().await;
    let batch =
        [of("free").key("k"), of("paused").key("k"), of("free").key("k"), of("other").key("l"), of("paused").key("l")];
    enqueue(h.store(), &batch).await;
    let owner = OwnerToken::new();
    let claimed = h.store().claim(without(owner, 10, &["paused"])).await.expect("a claim succeeds");
    assert_eq!(topics_of(&claimed), ["free", "other"]);
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    assert_eq!(next(&h, &["paused"]).await, Vec::<String>::new());
    let claimed = claim(h.store(), owner, 10).await;
    assert_eq!(topics_of(&claimed), ["paused", "free", "paused"]);
}

/// Keys that wait behind what is left out do not hold up the others, however many they are. H33, H34.
pub async fn many_keys_behind_what_is_left_out_hold_up_nobody<H: Harness>() {
    let h = start::<H>().await;
    let keys: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    enqueue(h.store(), &keys.iter().map(|key| of("paused").key(key.as_str())).collect::<Vec<_>>()).await;
    enqueue(h.store(), &keys.iter().map(|key| of("behind").key(key.as_str())).collect::<Vec<_>>()).await;
    enqueue(h.store(), &[of("free"), of("free").key("own")]).await;
    let claimed = h.store().claim(without(OwnerToken::new(), 2, &["paused"])).await.expect("a claim succeeds");
    assert_eq!(topics_of(&claimed), ["free", "free"]);
}

/// A message that waited for its time is brought once, whatever its topic; given back at once it lies among the others, with as
/// many attempts as before. H33.
pub async fn what_waited_is_brought_once_and_then_left_out<H: Harness>() {
    let h = start::<H>().await;
    let late = of("paused").delay(MINUTE);
    enqueue(h.store(), std::slice::from_ref(&late)).await;
    h.advance(MINUTE * 2).await;
    let owner = OwnerToken::new();
    let claimed = h.store().claim(without(owner, 10, &["paused"])).await.expect("a claim succeeds");
    assert_eq!(topics_of(&claimed), ["paused"]);
    settle_all(h.store(), owner, &claimed, &release(Duration::ZERO)).await;
    assert_eq!(next(&h, &["paused"]).await, Vec::<String>::new());
    assert_eq!(stored(h.store(), late.id()).await.attempts, 0);
    assert_eq!(next(&h, &[]).await, ["paused"]);
}
