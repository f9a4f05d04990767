//! What a server can do to a message when its clock is set, ahead or back. Its own clock jumps here, under libfaketime.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pillarbox::{Outbox, Runtime};
use pillarbox_core::admin::{Filter, Replay};
use pillarbox_core::inbox::Incoming;
use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::store::{Claimed, Enqueue, OutboxStore, Reaped, Settlement};
use pillarbox_core::{
    ConsumeIn, InboxStore, Message, MessageId, OutboxAdmin, OwnerToken, Receipt, Registered, Settled, StoreTransaction,
    Transactional, WithInbox,
};
use pillarbox_postgres::PostgresStore;
use pillarbox_testing::{Harness, run};
use sqlx::{Connection as _, PgConnection};

use crate::harness::{Jumping, PostgresHarness, Route as _, always_everything, variable};
use crate::witness::Witness;

const MINUTE: i64 = 60;
const AHEAD: i64 = 10 * MINUTE;
const BACK: i64 = -10 * MINUTE;
const LEASE: Duration = Duration::from_secs(5 * 60);

async fn start() -> PostgresHarness<Jumping> {
    PostgresHarness::start(always_everything()).await
}

/// Takes the clock, sets it right, and lets one message end: one of the outbox, then one in the queue of an inbox beside it.
/// Whatever `way` does with the clock, each has one effect.
async fn each_message_ends_once(way: impl AsyncFn(&mut ServerClock, &PostgresHarness<Jumping>, &PostgresStore)) {
    let mut clock = ServerClock::take().await;
    let h = start().await;
    let (inbox, message) = (h.inbox().await, Message::new("topic", ""));
    inbox.receive(&[Incoming::new(Receipt::new("source", "1"), message.clone())]).await.unwrap();
    h.store().enqueue(Enqueue::pending(&[message])).await.unwrap();
    for (count, queue) in [(1, h.store().clone()), (2, PostgresStore::queue_of(&inbox))] {
        clock.set(0).await;
        way(&mut clock, &h, &queue).await;
        assert_eq!(h.business_row_count().await, count, "one effect");
        assert_eq!(claim(&queue, OwnerToken::new()).await, []);
        let total = queue.overview().await.unwrap().total();
        assert_eq!((total.pending, total.processing, total.done, total.dead), (0, 0, 1, 0));
    }
}

async fn claim(queue: &PostgresStore, owner: OwnerToken) -> Vec<Claimed> {
    queue.claim(Claim::new(owner, LEASE, 10).unwrap()).await.unwrap()
}

async fn claim_one(queue: &PostgresStore, owner: OwnerToken) -> Claimed {
    let mut claimed = claim(queue, owner).await;
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

/// A transactional handler: its effect is kept if the verdict on its message is.
async fn handle(h: &PostgresHarness<Jumping>, queue: &PostgresStore, owner: OwnerToken, held: Held) -> Settled {
    let mut tx = h.store().begin().await.unwrap();
    h.write_row_on(&mut tx).await;
    let settled = tx.settle(queue, owner, &[Settlement::ack(held)]).await.unwrap()[0];
    match settled {
        Settled::Applied => tx.commit().await.unwrap(),
        Settled::LeaseLost => tx.rollback().await.unwrap(),
    }
    settled
}

/// The clock jumps past the end of a lease: another owner takes the message over. The first, who knows nothing of that, is
/// told by the fence, inside of a transaction and outside, and the effect is there once. H25.
#[test]
fn a_lease_that_a_jump_ended_is_fenced_off() {
    run(|| {
        each_message_ends_once(async |clock, h, queue| {
            let (zombie, heir) = (OwnerToken::new(), OwnerToken::new());
            let before = claim_one(queue, zombie).await;
            assert_eq!(claim(queue, heir).await, []);
            clock.set(AHEAD).await;
            let after = claim_one(queue, heir).await;
            assert_eq!((after.held.work_id, after.attempts, after.lost_lease_count), (before.held.work_id, 2, 1));
            assert_eq!(handle(h, queue, zombie, before.held).await, Settled::LeaseLost);
            assert_eq!(queue.renew(zombie, &[before.held], LEASE).await.unwrap(), [Settled::LeaseLost]);
            assert_eq!(handle(h, queue, heir, after.held).await, Settled::Applied);
            let late = queue.settle(zombie, &[Settlement::ack(before.held)]).await.unwrap();
            assert_eq!(late, [Settled::LeaseLost]);
        })
    });
}

/// Work that was done before anybody took the message over is not thrown away: the owner may still settle. H25.
#[test]
fn a_lease_that_a_jump_ended_can_be_settled_until_it_is_taken_over() {
    run(|| {
        each_message_ends_once(async |clock, h, queue| {
            let owner = OwnerToken::new();
            let held = claim_one(queue, owner).await.held;
            clock.set(AHEAD).await;
            assert_eq!(handle(h, queue, owner, held).await, Settled::Applied);
        })
    });
}

/// While a verdict waits for the commit of its transaction, no jump hands its message to anybody else. H25.
#[test]
fn a_jump_before_the_commit_of_a_verdict_has_one_effect() {
    run(|| {
        each_message_ends_once(async |clock, h, queue| {
            let owner = OwnerToken::new();
            let held = claim_one(queue, owner).await.held;
            let mut tx = h.store().begin().await.unwrap();
            h.write_row_on(&mut tx).await;
            assert_eq!(tx.settle(queue, owner, &[Settlement::ack(held)]).await.unwrap(), [Settled::Applied]);
            for offset in [BACK, AHEAD] {
                clock.set(offset).await;
                assert_eq!(claim(queue, OwnerToken::new()).await, []);
                assert_eq!(queue.reap_all(Default::default()).await.unwrap(), Reaped::default());
            }
            tx.commit().await.unwrap();
        })
    });
}

/// A lease that was taken before the clock was set back keeps others away, can be renewed, and ends in one effect. H25.
#[test]
fn a_lease_outlasts_a_jump_back() {
    run(|| {
        each_message_ends_once(async |clock, h, queue| {
            let owner = OwnerToken::new();
            let held = claim_one(queue, owner).await.held;
            clock.set(BACK).await;
            assert_eq!(claim(queue, OwnerToken::new()).await, []);
            assert_eq!(queue.reap_all(Default::default()).await.unwrap(), Reaped::default());
            assert_eq!(queue.renew(owner, &[held], LEASE).await.unwrap(), [Settled::Applied]);
            assert_eq!(handle(h, queue, owner, held).await, Settled::Applied);
            assert_eq!(handle(h, queue, owner, held).await, Settled::LeaseLost);
        })
    });
}

/// After a jump back everything comes when the clock shows its time again, so late by the jump and no more: what is ready
/// at once, what waits at its due time, what a dead process held when its lease has run out. Nothing is lost. H25.
#[test]
fn a_jump_back_delays_by_no_more_than_itself() {
    run(|| async {
        let mut clock = ServerClock::take().await;
        let h = start().await;
        let (store, crashed, worker) = (h.store(), OwnerToken::new(), OwnerToken::new());
        let (held, ready) = (Message::new("held", ""), Message::new("ready", ""));
        // Due already: it lies among what can be claimed, until a reap finds that it is early again.
        let due = Message::new("due", "").due_at(SystemTime::now() - Duration::from_secs(5 * 60));
        let soon = Message::new("soon", "").delay(Duration::from_secs(60));
        store.enqueue(Enqueue::pending(std::slice::from_ref(&held))).await.unwrap();
        let before = claim_one(store, crashed).await.held;
        store.enqueue(Enqueue::pending(&[ready.clone(), due.clone(), soon.clone()])).await.unwrap();
        let timeline: [(i64, &[MessageId]); 7] = [
            (BACK, &[ready.id()]),
            (-6 * MINUTE, &[]),
            (-4 * MINUTE, &[due.id()]),
            (0, &[]),
            (2 * MINUTE, &[soon.id()]),
            (4 * MINUTE, &[]),
            (6 * MINUTE, &[held.id()]),
        ];
        for (offset, expected) in timeline {
            clock.set(offset).await;
            let claimed = claim(store, worker).await;
            let found: Vec<_> = claimed.iter().map(|one| one.message.as_ref().unwrap().id()).collect();
            assert_eq!(found, expected, "{offset} s");
            let acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
            assert_eq!(store.settle(worker, &acks).await.unwrap(), vec![Settled::Applied; acks.len()]);
            store.reap_all(Default::default()).await.unwrap();
        }
        assert_eq!(store.settle(crashed, &[Settlement::ack(before)]).await.unwrap(), [Settled::LeaseLost]);
        let total = store.overview().await.unwrap().total();
        assert_eq!((total.pending, total.processing, total.done, total.dead), (0, 0, 4, 0));
    });
}

/// What expires because the clock jumped is dead, not gone: it can be brought back when the clock is right. H25.
#[test]
fn what_expired_in_a_jump_can_be_brought_back() {
    run(|| async {
        let mut clock = ServerClock::take().await;
        let h = start().await;
        let store = h.store();
        store.enqueue(Enqueue::pending(&[Message::new("topic", "").expires_in(LEASE)])).await.unwrap();
        clock.set(AHEAD).await;
        assert_eq!(claim(store, OwnerToken::new()).await, []);
        assert_eq!(store.reap_all(Default::default()).await.unwrap().expired, 1);
        clock.set(0).await;
        assert_eq!(store.replay(&Replay::dead(Filter::all(), 10)).await.unwrap().count, 1);
        let owner = OwnerToken::new();
        let held = claim_one(store, owner).await.held;
        assert_eq!(handle(&h, store, owner, held).await, Settled::Applied);
    });
}

/// A consumer's lease on a receipt is judged likewise: past a jump ahead another one takes it over and the first is turned
/// away at its registration; a jump back keeps others away until the clock shows its end again. One effect each. H25.
#[test]
fn a_leased_receipt_has_one_effect_whichever_way_the_clock_jumps() {
    run(|| async {
        let mut clock = ServerClock::take().await;
        let h = start().await;
        let inbox = h.inbox().await;
        let lease = || Lease::new(OwnerToken::new(), LEASE).unwrap();
        let take = async |id: &str, lease| inbox.lease(&Receipt::new("source", id), lease).await.unwrap().registered;
        let consume = async |id: &str, lease| {
            let mut tx = h.begin().await;
            let receipt = Receipt::new("source", id);
            let registered = inbox.register_under(&mut tx, &receipt, Some(lease)).await.unwrap().registered;
            h.write_business_row(&mut tx).await;
            if registered == Registered::New {
                h.commit(tx).await;
            } else {
                h.rollback(tx).await;
            }
            registered
        };
        let (zombie, heir) = (lease(), lease());
        assert_eq!(take("ahead", zombie).await, Registered::New);
        clock.set(AHEAD).await;
        assert_eq!(take("ahead", heir).await, Registered::New);
        assert_eq!(consume("ahead", zombie).await, Registered::InProgress);
        assert_eq!(consume("ahead", heir).await, Registered::New);
        assert_eq!(consume("ahead", zombie).await, Registered::Duplicate);

        clock.set(0).await;
        let (holder, crashed) = (lease(), lease());
        assert_eq!(take("back", holder).await, Registered::New);
        assert_eq!(take("crashed", crashed).await, Registered::New);
        for offset in [BACK, 4 * MINUTE] {
            clock.set(offset).await;
            assert_eq!(take("back", heir).await, Registered::InProgress);
            assert_eq!(take("crashed", heir).await, Registered::InProgress);
        }
        clock.set(BACK).await;
        assert_eq!(consume("back", holder).await, Registered::New);
        assert_eq!(take("back", heir).await, Registered::Duplicate);
        clock.set(6 * MINUTE).await;
        assert_eq!(take("crashed", heir).await, Registered::New);
        assert_eq!(consume("crashed", crashed).await, Registered::InProgress);
        assert_eq!(consume("crashed", heir).await, Registered::New);
        assert_eq!(h.business_row_count().await, 3);
    });
}

/// A runtime tells of every jump once, and which way it went. H25.
#[tokio::test]
async fn a_runtime_tells_that_the_clock_was_set() {
    let mut clock = ServerClock::take().await;
    let h = start().await;
    let outbox = Outbox::new(h.store().clone());
    let witness = Witness::default();
    let _watch = witness.watch();
    let runtime = Runtime::builder(&outbox).reap_interval(Duration::from_millis(1)).start().await.unwrap();
    let said = |words: &str| witness.lines().into_iter().filter(|line| line.contains(words)).collect::<Vec<_>>();
    let mut told = Vec::new();
    for (offset, way) in
        [(0, None), (AHEAD, Some("ahead")), (0, Some("back")), (BACK, Some("back")), (0, Some("ahead"))]
    {
        clock.set(offset).await;
        told.extend(way);
        // The clock is read after each reap: between these two at the latest.
        let reap_count = said("DEBUG reaped").len() + 2;
        while said("DEBUG reaped").len() < reap_count {
            tokio::task::yield_now().await;
        }
        let lines = said("WARN the database's clock jumped");
        assert_eq!(lines.len(), told.len(), "{lines:#?}");
        for (line, way) in lines.iter().zip(&told) {
            let seconds: f64 = line.split_once("seconds=").unwrap().1.split(' ').next().unwrap().parse().unwrap();
            assert!(line.contains(&format!("jumped {way}")) && (570.0..=600.0).contains(&seconds), "{line}");
        }
    }
    runtime.shutdown(Duration::ZERO).await;
}

/// The clock of the server. Whoever has it has it alone, because all that is done there feels a jump; it is right at the
/// beginning and at the end.
struct ServerClock {
    file: PathBuf,
    /// Holds the lock for as long as it lives, whichever process the next one belongs to.
    turn: PgConnection,
}

impl ServerClock {
    async fn take() -> Self {
        let mut turn = PgConnection::connect(&Jumping::url()).await.unwrap();
        sqlx::raw_sql("SELECT pg_advisory_lock(25)").execute(&mut turn).await.unwrap();
        let mut clock = Self { file: variable("PILLARBOX_TEST_POSTGRES_CLOCK_FILE").into(), turn };
        clock.set(0).await;
        clock
    }

    /// Lets the clock be so many seconds ahead of the right time, from now on.
    async fn set(&mut self, ahead: i64) {
        self.write(ahead);
        let shown = sqlx::query_scalar("SELECT extract(epoch FROM clock_timestamp())::bigint");
        let shown: i64 = shown.fetch_one(&mut self.turn).await.unwrap();
        let right = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        assert!(right.checked_add_signed(ahead).unwrap().abs_diff(shown.unsigned_abs()) < 30, "the clock was set");
    }

    fn write(&self, ahead: i64) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{ahead:+}\n")).unwrap();
        // Another account reads it; and it reads the one or the other whole.
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(&next, &self.file).unwrap();
    }
}

impl Drop for ServerClock {
    fn drop(&mut self) {
        self.write(0);
    }
}
