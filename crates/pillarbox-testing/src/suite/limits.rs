//! Times and numbers near their ends, and what errors may tell.

use std::time::{Duration, SystemTime};

use pillarbox_core::schema::SchemaPolicy;

use super::support::*;
use crate::Harness;

/// Instants are cut to microseconds, never rounded up into the future. H50.
pub async fn instants_are_cut_to_microseconds<H: Harness>() {
    let h = start::<H>().await;
    let at = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 999_999_999);
    let message = messages(1).remove(0).occurred_at(at);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    let read = claim_one(h.store(), OwnerToken::new()).await.message.expect("it can be read");
    let expected = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 999_999_000);
    assert_eq!(read.get_occurred_at(), Some(expected));
}

/// Instants from 1970 to 2199 come back exactly, whatever the zone and its summer time. H50.
pub async fn instants_of_every_year_come_back<H: Harness>() {
    let h = start::<H>().await;
    let seconds = [0, 1, 86_399, 1_456_704_000, 1_711_846_800, 2_147_483_648, 4_294_967_296, 7_258_118_399];
    let batch = seconds
        .map(|seconds| Message::new("t", "").occurred_at(SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_000)));
    enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), OwnerToken::new(), 10).await;
    let read: Vec<_> = claimed.into_iter().map(|one| one.message.expect("it can be read")).collect();
    assert_eq!(read.iter().map(Message::get_occurred_at).collect::<Vec<_>>(), batch.map(|one| one.get_occurred_at()));
    let late = Message::new("t", "").occurred_at(SystemTime::UNIX_EPOCH + Duration::from_secs(7_258_118_400));
    assert_eq!(refused_fields(h.store().enqueue(Enqueue::pending(&[late])).await), ["occurred_at"]);
}

/// A delay to the horizon is stored; one beyond it is refused. H36, H52.
pub async fn a_delay_reaches_to_the_horizon<H: Harness>() {
    let h = start::<H>().await;
    let horizon = pillarbox_core::message::HORIZON_MAX;
    let message = messages(1).remove(0).delay(horizon);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    let row = stored(h.store(), message.id()).await;
    assert_near(row.due_at.expect("it waits").duration_since(row.created_at).unwrap_or_default(), horizon);
    let beyond = messages(1).remove(0).delay(horizon + Duration::from_secs(1));
    assert_eq!(refused_fields(h.store().enqueue(Enqueue::pending(&[beyond])).await), ["due"]);
    let never = messages(1).remove(0).delay(HOUR).expires_in(HOUR);
    assert_eq!(refused_fields(h.store().enqueue(Enqueue::pending(&[never])).await), ["expires"]);
}

/// The longest lease and a retention without end work. H36, H52.
pub async fn long_leases_and_retentions_work<H: Harness>() {
    let h = H::start(keeping(Retention::Message(Duration::MAX))).await;
    let owner = OwnerToken::new();
    enqueue(h.store(), &messages(2)).await;
    let longest = Claim::new(owner, pillarbox_core::lease::LEASE_MAX, 2).expect("the claim is legal");
    let claimed = h.store().claim(longest).await.expect("a claim succeeds");
    h.advance(23 * HOUR).await;
    assert_eq!(claim(h.store(), owner, 10).await, []);
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    h.advance(300 * DAY).await;
    assert_eq!(purge(h.store()).await, 0);
}

/// Attempts stop at the largest number of the column; they never wrap. H52.
pub async fn attempts_saturate<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let most = i32::MAX.unsigned_abs();
    enqueue(h.store(), &messages(1)).await;
    h.set_counters(most - 1, 0).await;
    for _ in 0..3 {
        let claimed = claim_one(h.store(), owner).await;
        assert_eq!(claimed.attempts, most);
        settle_all(h.store(), owner, &[claimed], &abandon(Duration::ZERO, "")).await;
    }
    let claimed = claim_one(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &abandon(MINUTE, "")).await;
    h.advance(MINUTE).await;
    assert_eq!(claim_one(h.store(), owner).await.attempts, most, "also for those that waited");
}

/// Attempts never fall below none, also when a counter was reset under a lease. H52.
pub async fn attempts_never_fall_below_none<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for delay in [Duration::ZERO, MINUTE] {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        h.set_counters(0, 0).await;
        settle_all(h.store(), owner, &[claimed], &release(delay)).await;
        assert_eq!(stored(h.store(), id).await.attempts, 0);
        claim(h.store(), owner, 10).await;
    }
}

/// Lost leases stop at the largest number of the column, and bury the message. H52.
pub async fn lost_leases_saturate<H: Harness>() {
    let h = start::<H>().await;
    let most = i32::MAX.unsigned_abs();
    let (id, _) = enqueue_and_claim(h.store(), OwnerToken::new()).await;
    h.set_counters(most, most).await;
    h.advance(LEASE).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
    assert_eq!(reap_all(h.store()).await, Reaped { lost: 1, ..Reaped::default() });
    let row = stored(h.store(), id).await;
    assert_eq!((row.state, row.attempts, row.lost_lease_count), (State::Dead, most, most));
}

/// No error and no debug text shows a payload, a header or a stored row. OBX-106, H54.
pub async fn nothing_shows_a_payload<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let secret = |topic: &str| Message::new(topic, "canary").header("authorization", "canary").key("k");
    let mut shown = String::new();
    let mut note = |error: StoreError| shown.push_str(&format!("{error} {error:?}\n"));

    for bad in [secret(""), secret("t").tenant("\0"), secret(&"t".repeat(256)), secret("t").header("", "canary")] {
        note(h.store().enqueue(Enqueue::pending(&[bad])).await.expect_err("it is refused"));
    }
    let schema = h.store().options().naming.schema().as_str();
    let naming = pillarbox_core::naming::Naming::new(schema, "b").expect("the names are legal");
    let blind = h.connect_as_is(StoreOptions { naming, schema: SchemaPolicy::Assume, ..options() }).await;
    let blind = blind.expect("it looks at nothing");
    note(blind.enqueue(Enqueue::pending(&[secret("t")])).await.expect_err("there are no tables"));

    enqueue(h.store(), &[secret("t")]).await;
    h.insert_foreign_row("foreign", Some(r#"["canary"]"#)).await;
    let claimed = claim(h.store(), owner, 10).await;
    let unread = claimed[1].message.clone().expect_err("it is no message");
    shown.push_str(&format!("{unread} {unread:?} {claimed:?} {:?}\n", h.store()));
    settle_all(h.store(), owner, &claimed, &fail("x")).await;
    shown.push_str(&format!("{:?}", list(h.store(), State::Dead, Filter::all()).await));
    assert!(!shown.contains("canary"), "{shown}");
    assert!(shown.contains("topic must not be empty"), "errors say what is wrong: {shown}");
}
