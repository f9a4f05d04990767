//! Handlers inside a transaction, on every backend. An effect is a message in the outbox that nobody handles.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::inbox::Mark;
use pillarbox::outbox::State as Stand;
use pillarbox::prelude::*;
use pillarbox::{ConsumeError, Transactional, UnknownTopics};
use tokio::sync::{Notify, mpsc};

use super::acceptance::{Backend, on_every_backend, outbox, stored};
use super::support::{attempts, memory, messages, quiet};

fn effect() -> Message {
    Message::new("effect", "1")
}

/// Effects that are stored and committed; somebody may just be looking at them.
async fn effects(store: &impl OutboxAdmin) -> u64 {
    let total = store.overview().await.unwrap().total();
    total.pending + total.processing
}

fn builder<S: Transactional>(outbox: &Outbox<S>) -> RuntimeBuilder {
    quiet(outbox).transactional().unknown_topics(UnknownTopics::Leave).retry(attempts(3))
}

/// BUS-03, WRK-10: the handler's effects and the end of its message come together, on both paths.
async fn a_handler_and_its_message_are_committed_together<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let early = outbox.enqueue_now(Message::new("order", "1")).await.unwrap().message_id;
    let runtime = builder(&outbox)
        .on_topic("order", async |_: Raw, mut tx: InTx<B::Store>| {
            tx.enqueue(effect()).await?;
            Ok(())
        })
        .start()
        .await
        .unwrap();
    let late = outbox.enqueue_now(Message::new("order", "2")).await.unwrap().message_id;
    runtime.idle().await;
    for id in [early, late] {
        assert_eq!(stored(&outbox, id).await.unwrap().state, Stand::Done);
    }
    assert_eq!(effects(outbox.store()).await, 2);
    let stats = runtime.stats();
    assert_eq!((stats.done_count, stats.lease_lost_count, stats.unsettled_count), (2, 0, 0));
}

/// BUS-03, H30: whatever goes wrong in a handler undoes what it did, and only that.
async fn a_handler_that_fails_leaves_nothing<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let runtime = builder(&outbox)
        .route(Route::topic("order").run_time_max(Duration::from_millis(100)).retry(attempts(4)).to(
            async |attempt: Attempt, mut tx: InTx<B::Store>| {
                tx.enqueue(effect()).await?;
                match attempt.0 {
                    1 => Err(Failure::retry("not yet")),
                    2 => panic!("in a handler"),
                    3 => std::future::pending().await,
                    _ => Ok(()),
                }
            },
        ))
        .start()
        .await
        .unwrap();
    let id = outbox.enqueue_now(Message::new("order", "1")).await.unwrap().message_id;
    while stored(&outbox, id).await.unwrap().state != Stand::Done {
        runtime.poll_once().await.unwrap();
        runtime.idle().await;
    }
    assert_eq!(runtime.stats().started_count, 4);
    assert_eq!(effects(outbox.store()).await, 1);
}

/// BUS-03: of a batch, those that are done end with the transaction; when none is, it is rolled back.
async fn a_batch_ends_as_far_as_it_is_done<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    for message in messages("audit", 3) {
        outbox.enqueue_now(message).await.unwrap();
    }
    let runtime = builder(&outbox)
        .on_batch("audit", 10, async |batch: Batch, mut tx: InTx<B::Store>| {
            tx.enqueue(effect()).await?;
            let answer = |cx: &Context| match (cx.attempt(), &cx.payload()[..]) {
                (1, b"1") => Err(Failure::dead("odd")),
                (1, _) => Ok(()),
                _ => Err(Failure::dead("again")),
            };
            Ok(batch.iter().map(answer).collect::<BatchOutcome>())
        })
        .start()
        .await
        .unwrap();
    runtime.idle().await;
    let total = outbox.store().overview().await.unwrap().total();
    assert_eq!((total.pending, total.done, total.dead), (1, 2, 1));
    outbox.enqueue_now(Message::new("audit", "1")).await.unwrap();
    runtime.idle().await;
    let total = outbox.store().overview().await.unwrap().total();
    assert_eq!((total.pending, total.done, total.dead), (1, 2, 2), "nothing of a batch in which nothing was done");
}

/// BUS-03: a part that fails takes its changes and its messages with it, at any depth; the rest goes on.
async fn a_nested_part_that_fails_is_undone<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (sender, mut handled) = mpsc::unbounded_channel();
    let runtime = quiet(&outbox)
        .on_topic("part", move |message: Raw| {
            sender.send(message.payload().clone()).unwrap();
            async { Ok(()) }
        })
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue(Message::new("part", "outer")).await.unwrap();
    let undone: Result<(), Failure> = tx
        .nested(async |tx| {
            tx.enqueue(Message::new("part", "undone")).await?;
            tx.nested(async |tx| tx.enqueue(Message::new("part", "deep")).await).await?;
            Err(Failure::retry("no"))
        })
        .await;
    assert_eq!(undone.unwrap_err().reason(), "no");
    let done: Result<u8, StoreError> = tx
        .nested(async |tx| {
            tx.enqueue(Message::new("part", "inner")).await?;
            let undone = tx.nested(async |tx| {
                tx.enqueue(Message::new("part", "undone too")).await?;
                Err::<(), _>(StoreError::rejected("no"))
            });
            assert!(undone.await.is_err());
            Ok(7)
        })
        .await;
    assert_eq!(done.unwrap(), 7);
    assert!(handled.is_empty(), "nothing happens before the commit");
    tx.commit().await.unwrap();
    runtime.idle().await;
    let mut seen = [handled.recv().await.unwrap(), handled.recv().await.unwrap()];
    seen.sort();
    assert_eq!(seen, ["inner", "outer"]);
    assert!(handled.is_empty());
    assert_eq!(outbox.store().overview().await.unwrap().total().done, 2);
}

/// H31: a part whose future is dropped half-way spoils the transaction, instead of being committed by half.
async fn a_nested_part_that_is_cut_short_spoils_the_transaction<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue(effect()).await.unwrap();
    let (begun, wait) = (Notify::new(), Notify::new());
    let part = tx.nested(async |tx: &mut Tx<B::Store>| {
        tx.enqueue(effect()).await?;
        begun.notify_one();
        wait.notified().await;
        Ok::<_, StoreError>(())
    });
    tokio::select! {
        biased;
        () = begun.notified() => {}
        _ = part => panic!("nobody lets it end"),
    }
    let refused = tx.commit().await.unwrap_err();
    assert!(refused.to_string().contains("cut short"), "{refused}");
    assert_eq!(effects(outbox.store()).await, 0);
}

/// BUS-03: a consumer inside of another transaction takes effect when that is committed, and not before.
async fn a_nested_consumer_commits_with_the_outermost<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let receipt = || Receipt::new("stripe", "evt_1");
    for is_committed in [false, true] {
        let mut tx = outbox.begin().await.unwrap();
        let failed = inbox
            .consume_in(&mut tx, receipt(), async |tx| {
                tx.enqueue(effect()).await.unwrap();
                Err::<(), _>("no")
            })
            .await;
        assert!(matches!(failed, Err(ConsumeError::Handler("no"))), "{failed:?}");
        for expected in [Consumed::Done(()), Consumed::Duplicate] {
            let work = async |tx: &mut Tx<B::Store>| tx.enqueue(effect()).await.map(drop);
            assert_eq!(inbox.consume_in(&mut tx, receipt(), work).await.unwrap(), expected);
        }
        if is_committed {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let is_processed = inbox.store().already_processed(&receipt()).await.unwrap().is_processed();
        assert_eq!((effects(outbox.store()).await, is_processed), (u64::from(is_committed), is_committed));
    }
}

/// WRK-10, BUS-03: a received message, the handler's effects and what it enqueues in the outbox end in one transaction.
async fn a_received_message_ends_with_its_effects<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let runtime = inbox
        .runtime()
        .retry(attempts(3))
        .route(Route::topic("stripe.*").transactional().to(async |attempt: Attempt, mut tx: InTx<B::Store>| {
            tx.enqueue(effect()).await?;
            if attempt.0 == 1 { Err(Failure::retry("not yet")) } else { Ok(()) }
        }))
        .start()
        .await
        .unwrap();
    let receipt = Receipt::new("stripe", "evt_1");
    inbox.receive(&[Incoming::new(receipt.clone(), Message::new("stripe.paid", "{}"))]).await.unwrap();
    while !inbox.store().already_processed(&receipt).await.unwrap().is_processed() {
        runtime.poll_once().await.unwrap();
        runtime.idle().await;
    }
    assert_eq!((effects(outbox.store()).await, runtime.stats().started_count), (1, 2));
}

/// H4, H24: whoever lost the message while it worked has no effect. SQLite's writers wait for each other, so that nobody can
/// take a message from under an open transaction there.
async fn a_zombie_has_no_effect<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let (began, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (stage_began, stage_go) = (Arc::clone(&began), Arc::clone(&go));
    let runtime = inbox
        .runtime()
        .transactional()
        .on_topic("stripe.*", move |_: Raw, mut tx: InTx<B::Store>| {
            let (began, go) = (Arc::clone(&stage_began), Arc::clone(&stage_go));
            async move {
                tx.enqueue(effect()).await?;
                began.notify_one();
                go.notified().await;
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    let receipt = Receipt::new("stripe", "evt_1");
    inbox.receive(&[Incoming::new(receipt.clone(), Message::new("stripe.paid", "{}"))]).await.unwrap();
    began.notified().await;
    inbox.store().mark(&receipt, Mark::Processed).await.unwrap();
    go.notify_one();
    runtime.idle().await;
    assert_eq!(effects(outbox.store()).await, 0);
    let stats = runtime.stats();
    assert_eq!((stats.done_count, stats.lease_lost_count), (0, 1));
}

/// A handler that leaves its transaction to a task has not ended with it: nothing is committed.
async fn a_transaction_that_outlives_its_handler_is_rolled_back<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (sender, mut kept) = mpsc::unbounded_channel();
    let runtime = builder(&outbox)
        .on_topic("order", move |attempt: Attempt, mut tx: InTx<B::Store>| {
            let sender = sender.clone();
            async move {
                tx.enqueue(effect()).await?;
                if attempt.0 == 1 {
                    sender.send(tx).map_err(|_| Failure::dead("the test is over"))?;
                }
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    let id = outbox.enqueue_now(Message::new("order", "1")).await.unwrap().message_id;
    let late = kept.recv().await.unwrap();
    // SQLite's store has its turn when the transaction is gone.
    drop(late);
    while stored(&outbox, id).await.unwrap().state != Stand::Done {
        runtime.poll_once().await.unwrap();
        runtime.idle().await;
    }
    assert_eq!(effects(outbox.store()).await, 1);
}

on_every_backend! {
    a_handler_and_its_message_are_committed_together
    a_handler_that_fails_leaves_nothing
    a_batch_ends_as_far_as_it_is_done
    a_nested_part_that_fails_is_undone
    a_nested_part_that_is_cut_short_spoils_the_transaction
    a_nested_consumer_commits_with_the_outermost
    a_received_message_ends_with_its_effects
    a_transaction_that_outlives_its_handler_is_rolled_back
}

mod taken_over {
    use crate::acceptance;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_memory() {
        super::a_zombie_has_no_effect::<acceptance::Memory>().await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_postgres() {
        super::a_zombie_has_no_effect::<acceptance::Postgres>().await;
    }

    #[cfg(feature = "mysql")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_mysql() {
        super::a_zombie_has_no_effect::<acceptance::Mysql>().await;
    }
}

/// HOT-18: a transaction that cannot be had keeps the runtime from starting.
#[tokio::test]
async fn a_transaction_that_will_not_be_there_is_refused() {
    type Memory = pillarbox_testing::MemoryStore;
    let outbox = memory();
    let builder = quiet(&outbox)
        .on_topic("plain", async |_: InTx<Memory>| Ok(()))
        .route(Route::topic("other").transactional().to(async |_: InTx<pillarbox::sqlite::SqliteStore>| Ok(())))
        .route(Route::topic("twice").transactional().to(async |_: InTx<Memory>, _: InTx<Memory>| Ok(())));
    let refused = builder.start().await.unwrap_err().to_string();
    for part in [
        "transaction is taken by the handler of topic `plain`, which is not transactional",
        "transaction of `pillarbox_sqlite::store::SqliteStore` is taken by the handler of topic `other`",
        "transaction is taken 2 times by the handler of topic `twice`",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
}

/// H20, H30: a commit whose end nobody hears of spends an attempt, so that it is not repeated for ever; if it was stored after
/// all, the message is done and had its effect once.
#[tokio::test]
async fn a_commit_that_is_never_answered_is_not_repeated_for_ever() {
    for is_stored in [false, true] {
        let outbox = memory();
        let id = outbox.enqueue_now(Message::new("order", "1")).await.unwrap().message_id;
        let runtime = builder(&outbox)
            .on_topic("order", move |mut tx: InTx<pillarbox_testing::MemoryStore>| async move {
                tx.enqueue(effect()).await?;
                tx.conn().lose_answer(is_stored);
                Ok(())
            })
            .start()
            .await
            .unwrap();
        let end = if is_stored { Stand::Done } else { Stand::Dead };
        while stored(&outbox, id).await.unwrap().state != end {
            runtime.poll_once().await.unwrap();
            runtime.idle().await;
        }
        let attempts = if is_stored { 1 } else { 3 };
        assert_eq!(runtime.stats().started_count, attempts);
        assert_eq!(effects(outbox.store()).await, u64::from(is_stored));
    }
}

/// The database is chosen by its address, and handlers take its transactions all the same.
#[tokio::test]
async fn an_outbox_by_address_has_transactions_for_handlers() {
    let outbox = Outbox::connect("sqlite::memory:").await.unwrap();
    let id = outbox.enqueue_now(Message::new("order", "")).await.unwrap().message_id;
    let inline = Runtime::builder(&outbox)
        .transactional()
        .on_topic("order", async |_: Raw, mut tx: InTx<pillarbox::sqlite::SqliteStore>| {
            sqlx::query("create table effects (id integer)").execute(tx.conn()).await?;
            Ok(())
        })
        .inline()
        .unwrap();
    assert_eq!(inline.drain().await.unwrap().done, 1);
    let name = pillarbox::admin::MessageName::Message(id);
    assert_eq!(outbox.store().get(name).await.unwrap().unwrap().state, Stand::Done);
}

/// BUS-11: the level that was asked for is the level inside of handlers; races spend no attempt, and every increment counts.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serializable_handlers_count_right() {
    const COUNT: usize = 12;
    let (outbox, _folder) = outbox::<super::acceptance::Postgres>().await;
    let schema = outbox.store().options().naming.schema().as_str().to_owned();
    let table = format!("\"{schema}\".tally");
    let run = async |sql: String| {
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(outbox.store().pool()).await.unwrap();
    };
    run(format!("create table {table} (n bigint not null)")).await;
    run(format!("insert into {table} values (0)")).await;
    for message in messages("order", COUNT) {
        outbox.enqueue_now(message).await.unwrap();
    }
    let name = table.clone();
    let runtime = Runtime::builder(&outbox)
        .poll_interval(Duration::from_millis(5))
        .transactional()
        .isolation(Isolation::Serializable)
        .retry(attempts(1))
        .on_topic("order", move |mut tx: InTx<pillarbox::postgres::PostgresStore>| {
            let table = name.clone();
            async move {
                let level: String = sqlx::query_scalar("show transaction_isolation").fetch_one(tx.conn()).await?;
                if level != "serializable" {
                    return Err(Failure::dead(level));
                }
                let seen: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select n from {table}")))
                    .fetch_one(tx.conn())
                    .await?;
                tokio::task::yield_now().await;
                let write = sqlx::query(sqlx::AssertSqlSafe(format!("update {table} set n = $1"))).bind(seen + 1);
                match write.execute(tx.conn()).await {
                    Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("40001") => {
                        Err(Failure::again_in(Duration::from_millis(1)))
                    }
                    done => done.map(drop).map_err(Failure::retry),
                }
            }
        })
        .start()
        .await
        .unwrap();
    while outbox.store().overview().await.unwrap().total().done < COUNT as u64 {
        tokio::task::yield_now().await;
    }
    runtime.idle().await;
    let counted: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select n from {table}")))
        .fetch_one(outbox.store().pool())
        .await
        .unwrap();
    assert_eq!(counted, i64::try_from(COUNT).unwrap());
    assert_eq!(outbox.store().overview().await.unwrap().total().dead, 0);
}
