//! Leases that many rows have together, and who may come in between. The whole suite runs with them, from two rows on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::lease::Claim;
use pillarbox_core::outbox::{Settled, Verdict};
use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{Claimed, Enqueue, Exchanged, OutboxStore, Settlement, StoreOptions};
use pillarbox_core::{EnqueueIn, Message, OutboxAdmin, OwnerToken, StoreTransaction, Transactional, WorkTransaction};
use pillarbox_postgres::PostgresStore;
use pillarbox_testing::{Harness, run};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::harness::{Direct, PostgresHarness, Route, always_everything, claim, messages, with_session};

const HOUR: Duration = Duration::from_secs(3600);

async fn start() -> PostgresHarness {
    PostgresHarness::<Direct>::start(always_everything()).await
}

async fn enqueue(store: &PostgresStore, count: usize) {
    store.enqueue(Enqueue::pending(&messages(count))).await.unwrap();
}

/// Leases of stretches, and rows with an owner of their own.
async fn leases(harness: &PostgresHarness) -> (i64, i64) {
    (
        harness.number("SELECT count(*) FROM {schema}.outbox_lease").await,
        harness.number("SELECT count(*) FROM {schema}.outbox WHERE owner_token IS NOT NULL").await,
    )
}

fn acks(claimed: &[Claimed]) -> Vec<Settlement> {
    claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect()
}

fn rows(claimed: &[Claimed]) -> Vec<i64> {
    claimed.iter().map(|claimed| claimed.held.work_id.as_i64()).collect()
}

/// Many rows have one lease, which goes with them; no row is written before.
#[test]
fn a_claim_of_many_writes_one_row() {
    run(|| async {
        let harness = start().await;
        enqueue(harness.store(), 40).await;
        let all = claim(100);
        let claimed = harness.store().claim(all.clone()).await.unwrap();
        assert_eq!((claimed.len(), leases(&harness).await), (40, (1, 0)));
        assert_eq!(harness.store().settle(all.owner(), &acks(&claimed)).await.unwrap(), [Settled::Applied; 40]);
        assert_eq!(leases(&harness).await, (0, 0));

        enqueue(harness.store(), 1_200).await;
        let all = claim(2_000);
        let claimed = harness.store().claim(all.clone()).await.unwrap();
        assert_eq!((claimed.len(), leases(&harness).await), (1_200, (3, 0)));
        enqueue(harness.store(), 40).await;
        let Exchanged { settled, claimed } = harness.store().exchange(&acks(&claimed), all.clone()).await.unwrap();
        assert_eq!((settled, claimed.len()), (vec![Settled::Applied; 1_200], 40));
        assert_eq!(leases(&harness).await, (1, 0));
    });
}

/// Only a claim that settles nothing may be forgotten by a server that crashes.
#[test]
fn what_is_settled_waits_for_the_disk() {
    run(|| async {
        let harness = start().await;
        // Tells with what setting each lease is committed.
        harness
            .run(
                "CREATE TABLE {schema}.commits (setting text);
                 CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     INSERT INTO {schema}.commits VALUES (current_setting('synchronous_commit'));
                     RETURN NULL;
                 END $$;
                 CREATE TRIGGER note AFTER INSERT ON {schema}.outbox_lease EXECUTE FUNCTION {schema}.note()",
            )
            .await;
        let store = with_session(&harness, &[("synchronous_commit", "on")]).await;
        store.lease_stretches_from(2);
        enqueue(&store, 12).await;
        let six = claim(6);
        let claimed = store.claim(six.clone()).await.unwrap();
        assert_eq!(store.exchange(&acks(&claimed), six).await.unwrap().claimed.len(), 6);
        let commits = |setting| format!("SELECT count(*) FROM {{schema}}.commits WHERE setting = '{setting}'");
        assert_eq!((harness.number(&commits("off")).await, harness.number(&commits("on")).await), (1, 1));
    });
}

#[test]
fn few_messages_and_scattered_ones_are_leased_one_by_one() {
    run(|| async {
        let harness = start().await;
        let store = harness.store();
        store.lease_stretches_from(5);
        enqueue(store, 4).await;
        let few = claim(100);
        let claimed = store.claim(few.clone()).await.unwrap();
        assert_eq!(leases(&harness).await, (0, 4));
        store.settle(few.owner(), &acks(&claimed)).await.unwrap();

        enqueue(store, 12).await;
        harness.run("UPDATE {schema}.outbox SET id = id + 1000 WHERE id % 2 = 0").await;
        let scattered = claim(100);
        let claimed = store.claim(scattered.clone()).await.unwrap();
        assert_eq!((claimed.len(), leases(&harness).await), (12, (0, 12)));
        assert_eq!(store.settle(scattered.owner(), &acks(&claimed)).await.unwrap(), [Settled::Applied; 12]);
    });
}

/// H2: a number that is not committed yet belongs to no stretch: its message is nobody's, and is not settled with those around it.
#[test]
fn what_is_committed_late_is_in_no_stretch() {
    run(|| async {
        let harness = start().await;
        let store = harness.store();
        enqueue(store, 5).await;
        let mut late = harness.begin().await;
        let message = Message::new("late", "");
        store.enqueue_in(&mut late, Enqueue::pending(std::slice::from_ref(&message))).await.unwrap();
        enqueue(store, 5).await;
        let around = claim(100);
        let claimed = store.claim(around.clone()).await.unwrap();
        assert_eq!((rows(&claimed), leases(&harness).await), (vec![1, 2, 3, 4, 5, 7, 8, 9, 10, 11], (2, 0)));
        late.commit().await.unwrap();
        assert_eq!(rows(&store.claim(claim(100)).await.unwrap()), [6]);
        assert_eq!(store.settle(around.owner(), &acks(&claimed)).await.unwrap(), [Settled::Applied; 10]);
        assert_eq!(store.overview().await.unwrap().total().processing, 1);
    });
}

/// OBX-084, H4: what an open transaction has claimed is taken into no stretch, and what a stretch has is claimed by no open transaction.
#[test]
fn an_open_claim_and_a_stretch_leave_each_other_alone() {
    run(|| async {
        let harness = start().await;
        let store = harness.store();
        enqueue(store, 12).await;
        let mut open = store.begin().await.unwrap();
        let first = open.claim(store, claim(3)).await.unwrap();
        assert_eq!(rows(&first), [1, 2, 3]);
        let second = store.claim(claim(100)).await.unwrap();
        assert_eq!(rows(&second), [4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let mut other = store.begin().await.unwrap();
        assert!(other.claim(store, claim(100)).await.unwrap().is_empty());
        drop((open, other));
        assert_eq!(rows(&store.claim(claim(100)).await.unwrap()), [1, 2, 3], "what was undone is free");
    });
}

/// OBX-084, H4: claims of stretches and of rows at once, also in transactions that are undone, hand out each message once.
#[test]
fn claims_of_both_kinds_never_share_a_message() {
    run(|| async {
        let harness = Arc::new(start().await);
        enqueue(harness.store(), 3_000).await;
        let (barrier, mut tasks) = (Arc::new(Barrier::new(6)), JoinSet::new());
        for number in 0..6 {
            let store = harness.connect(always_everything()).await.unwrap();
            store.lease_stretches_from(if number % 2 == 0 { 2 } else { u32::MAX });
            let barrier = Arc::clone(&barrier);
            tasks.spawn(async move {
                barrier.wait().await;
                let mut mine = Vec::new();
                loop {
                    if number == 5 {
                        // It locks what others want, and lets it go.
                        let mut undone = store.begin().await.unwrap();
                        undone.claim(&store, claim(20)).await.unwrap();
                    }
                    let claimed = store.claim(claim(40 + number)).await.unwrap();
                    if claimed.is_empty() && store.overview().await.unwrap().total().pending == 0 {
                        return mine;
                    }
                    mine.extend(rows(&claimed));
                }
            });
        }
        let mut seen = HashSet::new();
        for mine in tasks.join_all().await {
            assert!(mine.into_iter().all(|row| seen.insert(row)), "a message was handed out twice");
        }
        assert_eq!(seen.len(), 3_000);
    });
}

/// OBX-013: workers of one handle that stop at the first claim that brings nothing leave nothing behind.
#[test]
fn a_drain_by_several_workers_leaves_nothing() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(StoreOptions::default()).await;
        for _ in 0..20 {
            enqueue(harness.store(), 1_000).await;
            let mut tasks = JoinSet::new();
            for _ in 0..3 {
                let store = harness.store().clone();
                tasks.spawn(async move {
                    let mut count = 0;
                    loop {
                        let batch = claim(50);
                        let claimed = store.claim(batch.clone()).await.unwrap();
                        if claimed.is_empty() {
                            return count;
                        }
                        count += claimed.len();
                        store.settle(batch.owner(), &acks(&claimed)).await.unwrap();
                    }
                });
            }
            assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), 1_000);
        }
    });
}

/// OBX-084, H4: a claim of rows that began to look before a stretch was leased, and locks the same rows afterwards, leaves them alone.
#[test]
fn a_claim_that_looked_too_early_leaves_a_stretch_alone() {
    run(|| async {
        let harness = start().await;
        enqueue(harness.store(), 6).await;
        let schema = harness.naming.schema().to_string();
        let role = format!("s_{schema}");
        // Whoever this role is waits at the first row that it looks at, as long as the test says.
        harness
            .run(&format!(
                "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {{schema}} TO {role};
                 GRANT ALL ON ALL TABLES IN SCHEMA {{schema}} TO {role};
                 GRANT ALL ON ALL SEQUENCES IN SCHEMA {{schema}} TO {role};
                 CREATE FUNCTION {{schema}}.hold() RETURNS boolean LANGUAGE plpgsql AS $$
                 BEGIN
                     PERFORM pg_advisory_lock_shared(hashtext('{role}'));
                     PERFORM pg_advisory_unlock_shared(hashtext('{role}'));
                     RETURN true;
                 END $$;
                 ALTER TABLE {{schema}}.outbox ENABLE ROW LEVEL SECURITY;
                 CREATE POLICY hold ON {{schema}}.outbox USING ({{schema}}.hold())"
            ))
            .await;
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let pool = PgPoolOptions::new().max_connections(1).connect_with(connect.username(&role)).await.unwrap();
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Assume, ..always_everything() };
        let early = PostgresStore::with_pool(pool, options).await.unwrap();
        early.lease_stretches_from(u32::MAX);
        let mut holder = harness.pool.acquire().await.unwrap();
        let lock = |function: &str| AssertSqlSafe(format!("SELECT {function}(hashtext('{role}'))"));
        sqlx::query(lock("pg_advisory_lock")).execute(&mut *holder).await.unwrap();
        let looking = tokio::spawn({
            let early = early.clone();
            async move { early.claim(claim(10)).await }
        });
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}' AND wait_event_type = 'Lock' AND wait_event = 'advisory'"
        );
        while harness.number(&waits).await == 0 {
            tokio::task::yield_now().await;
        }
        let all = claim(10);
        let claimed = harness.store().claim(all.clone()).await.unwrap();
        assert_eq!((claimed.len(), leases(&harness).await), (6, (1, 0)));
        sqlx::query(lock("pg_advisory_unlock")).execute(&mut *holder).await.unwrap();
        assert!(looking.await.unwrap().unwrap().is_empty(), "they are held by somebody else");
        assert_eq!(harness.store().settle(all.owner(), &acks(&claimed)).await.unwrap(), [Settled::Applied; 6]);
        early.pool().close().await;
        harness.run(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await;
    });
}

/// H31: a lease whose messages nobody has read, because its claim was cut short, runs out like any other.
#[test]
fn a_stretch_that_nobody_read_runs_out() {
    run(|| async {
        let harness = start().await;
        enqueue(harness.store(), 6).await;
        harness
            .run(
                "SELECT {schema}.outbox_take(
                    gen_random_uuid(), 7, clock_timestamp() + interval '1 hour', 10, 0, clock_timestamp(), 2)",
            )
            .await;
        assert_eq!(leases(&harness).await, (1, 0));
        assert!(harness.store().claim(claim(10)).await.unwrap().is_empty());
        harness.advance(HOUR * 2).await;
        let claimed = harness.store().claim(claim(10)).await.unwrap();
        assert_eq!(claimed.len(), 6);
        assert!(claimed.iter().all(|claimed| (claimed.attempts, claimed.lost_lease_count) == (2, 1)));
        assert_eq!(leases(&harness).await, (0, 6));
    });
}

/// A row that was locked in the moment between the lease and the reading, by somebody who has let it go since, is handed out.
#[test]
fn a_row_that_was_locked_for_a_moment_is_read_all_the_same() {
    run(|| async {
        let harness = start().await;
        enqueue(harness.store(), 6).await;
        harness
            .run(
                "CREATE FUNCTION {schema}.hold() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     PERFORM FROM {schema}.outbox WHERE id = 3 FOR NO KEY UPDATE;
                     RETURN NULL;
                 END $$;
                 CREATE TRIGGER hold AFTER INSERT ON {schema}.outbox_lease EXECUTE FUNCTION {schema}.hold()",
            )
            .await;
        let all = claim(10);
        let claimed = harness.store().claim(all.clone()).await.unwrap();
        assert_eq!((rows(&claimed), leases(&harness).await), (vec![1, 2, 3, 4, 5, 6], (1, 0)));
        assert_eq!(harness.store().settle(all.owner(), &acks(&claimed)).await.unwrap(), [Settled::Applied; 6]);
    });
}

/// One that stays locked is not handed out, nor is anything of its stretch: the stretch is given back, and what is free claimed by itself.
#[test]
fn a_row_that_stays_locked_is_left() {
    run(|| async {
        let harness = start().await;
        enqueue(harness.store(), 6).await;
        let lock = format!("hashtext('{}')", harness.naming.schema());
        harness
            .run(&format!(
                "CREATE FUNCTION {{schema}}.hold() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     PERFORM pg_advisory_xact_lock({lock});
                     RETURN NULL;
                 END $$;
                 CREATE TRIGGER hold AFTER INSERT ON {{schema}}.outbox_lease EXECUTE FUNCTION {{schema}}.hold()"
            ))
            .await;
        let mut open = harness.begin().await;
        let run = |sql: String| AssertSqlSafe(sql.replace("{schema}", harness.naming.schema().as_str()));
        sqlx::query(run(format!("SELECT pg_advisory_lock({lock})"))).execute(&mut *open).await.unwrap();
        let claiming = tokio::spawn({
            let store = harness.store().clone();
            async move { store.claim(claim(10)).await }
        });
        let waits = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid::bigint = {lock} & 4294967295"
        );
        while harness.number(&waits).await == 0 {
            tokio::task::yield_now().await;
        }
        let row = run("SELECT id FROM {schema}.outbox WHERE id = 3 FOR NO KEY UPDATE".into());
        sqlx::query(row).execute(&mut *open).await.unwrap();
        sqlx::query(run(format!("SELECT pg_advisory_unlock({lock})"))).execute(&mut *open).await.unwrap();
        let claimed = claiming.await.unwrap().unwrap();
        assert_eq!((rows(&claimed), leases(&harness).await), (vec![1, 2, 4, 5, 6], (0, 5)));
        assert!(claimed.iter().all(|claimed| claimed.attempts == 1), "what was not handed out was no attempt");
        open.rollback().await.unwrap();
        assert_eq!(rows(&harness.store().claim(claim(10)).await.unwrap()), [3]);
    });
}

/// H8: a message that ends in its handler's transaction keeps nobody from settling the others of its stretch.
#[test]
fn an_open_verdict_holds_up_none_of_the_others() {
    run(|| async {
        let harness = start().await;
        enqueue(harness.store(), 6).await;
        let all = claim(10);
        let claimed = harness.store().claim(all.clone()).await.unwrap();
        let mut open = harness.store().begin().await.unwrap();
        let settled = open.settle(harness.store(), all.owner(), &acks(&claimed[2..3])).await.unwrap();
        assert_eq!(settled, [Settled::Applied]);
        let mut another = harness.store().begin().await.unwrap();
        let settled = another.settle(harness.store(), all.owner(), &acks(&claimed[3..4])).await.unwrap();
        assert_eq!(settled, [Settled::Applied]);
        let others = [acks(&claimed[..2]), acks(&claimed[4..])].concat();
        assert_eq!(harness.store().settle(all.owner(), &others).await.unwrap(), [Settled::Applied; 4]);
        another.commit().await.unwrap();
        drop(open);
        assert_eq!(harness.store().overview().await.unwrap().total().processing, 1, "what was undone is still held");
        assert_eq!(harness.store().settle(all.owner(), &acks(&claimed[2..3])).await.unwrap(), [Settled::Applied]);
        assert_eq!(leases(&harness).await, (0, 0));
    });
}

/// H8: an open verdict on one stretch of a claim holds up nothing in the other ones, whatever becomes of these.
#[test]
fn an_open_verdict_holds_up_no_other_stretch() {
    run(|| async {
        let harness = start().await;
        let store = harness.store();
        enqueue(store, 6).await;
        harness.run("UPDATE {schema}.outbox SET id = id + 10 WHERE id > 3").await;
        let all = claim(10);
        let claimed = store.claim(all.clone()).await.unwrap();
        assert_eq!((rows(&claimed), leases(&harness).await), (vec![1, 2, 3, 14, 15, 16], (2, 0)));
        let mut open = store.begin().await.unwrap();
        open.settle(store, all.owner(), &acks(&claimed[..1])).await.unwrap();
        let held: Vec<_> = claimed[1..].iter().map(|claimed| claimed.held).collect();
        assert_eq!(store.renew(all.owner(), &held[2..], HOUR).await.unwrap(), [Settled::Applied; 3]);
        assert_eq!(store.renew(all.owner(), &held[..2], HOUR).await.unwrap(), [Settled::Applied; 2]);
        let released = Settlement { held: claimed[4].held, verdict: Verdict::Release { delay: Duration::ZERO } };
        assert_eq!(store.settle(all.owner(), &[released]).await.unwrap(), [Settled::Applied]);
        assert_eq!(rows(&store.claim(claim(10)).await.unwrap()), [15], "what was given back is found at once");
        let others = [&claimed[3..4], &claimed[5..]].concat();
        assert_eq!(store.settle(all.owner(), &acks(&others)).await.unwrap(), [Settled::Applied; 2]);
        assert_eq!(store.settle(all.owner(), &acks(&claimed[1..3])).await.unwrap(), [Settled::Applied; 2]);
        drop(open);
    });
}

/// H8: when a lease of a stretch runs out while a verdict on one of its messages is open, the others are taken over.
#[test]
fn an_open_verdict_hides_none_of_the_others_when_their_lease_runs_out() {
    run(|| async {
        let harness = start().await;
        let store = harness.store();
        enqueue(store, 6).await;
        let all = claim(10);
        let claimed = store.claim(all.clone()).await.unwrap();
        let mut open = store.begin().await.unwrap();
        open.settle(store, all.owner(), &acks(&claimed[2..3])).await.unwrap();
        // The clock, without the row that is locked.
        harness.run("UPDATE {schema}.outbox_lease SET locked_until = locked_until - interval '2 hours'").await;
        let next = store.claim(claim(10)).await.unwrap();
        assert_eq!(rows(&next), [1, 2, 4, 5, 6]);
        assert!(next.iter().all(|claimed| (claimed.attempts, claimed.lost_lease_count) == (2, 1)));
        drop(open);
    });
}

/// H14: a session whose transactions look at old snapshots unless told otherwise claims in newer ones, and a claim that is not made by
/// the library is refused there.
#[test]
fn nobody_claims_by_an_old_snapshot() {
    run(|| async {
        let harness = start().await;
        enqueue(harness.store(), 6).await;
        let store = with_session(&harness, &[("default_transaction_isolation", "repeatable read")]).await;
        store.lease_stretches_from(2);
        assert_eq!(store.claim(claim(10)).await.unwrap().len(), 6);
        assert_eq!(leases(&harness).await, (0, 6), "nor does a lock wait for this program there");
        let mut tx = harness.begin_at("SERIALIZABLE").await;
        let claim = "SELECT id FROM {schema}.claim(gen_random_uuid(), interval '1 minute', 10)";
        let claim = claim.replace("{schema}", harness.naming.schema().as_str());
        let refused = sqlx::query(AssertSqlSafe(claim)).execute(&mut *tx).await.unwrap_err();
        assert!(refused.to_string().contains("isolation level READ COMMITTED only"), "{refused}");
    });
}

/// A delayed message whose lease was one of many comes back in time, and is claimed by itself from then on.
#[test]
fn what_was_leased_by_itself_once_is_in_no_stretch_again() {
    run(|| async {
        let harness = start().await;
        enqueue(harness.store(), 6).await;
        let owner = OwnerToken::new();
        let of = |limit| Claim::new(owner, HOUR, limit).unwrap();
        let claimed = harness.store().claim(of(6)).await.unwrap();
        let back: Vec<_> = claimed
            .iter()
            .map(|claimed| Settlement { held: claimed.held, verdict: Verdict::Release { delay: Duration::ZERO } })
            .collect();
        harness.store().settle(owner, &back).await.unwrap();
        assert_eq!(rows(&harness.store().claim(of(6)).await.unwrap()), rows(&claimed));
        assert_eq!(leases(&harness).await, (0, 6), "an old fence of a stretch must not come to life again");
    });
}
