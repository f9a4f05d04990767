//! Everything that a program asks of its database, once.

use std::time::Duration;

use pillarbox::{Outbox, QueueWork, WorkBatch};
use pillarbox_core::admin::{Ended, Filter, GroupBy, ListQuery, Replay};
use pillarbox_core::inbox::{ContentHash, InboxOptions, Mark, Reception, Registered};
use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::store::{Enqueue, Placement, Reap, Settlement};
use pillarbox_core::{
    Checkpoint, ConsumeIn, Coordinated, InboxState, InboxStore, Incoming, Instance, Message, MessageId, OutboxAdmin,
    OutboxStore, Outcome, OwnerToken, Pause, Receipt, ReceptorResult, Recorded, Settled, State, StoreError,
    StoreTransaction, Transactional, Verdict, WithInbox,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Does once what programs, runtimes and operators do with a store and the inbox beside it; deploying is not among it.
///
/// To be called on tables of its own, by a user whose rights are in question. Fails with the first call that the database
/// refuses.
///
/// # Panics
///
/// When a call succeeds without doing what it says.
pub async fn use_everything<S: Coordinated + OutboxAdmin + Clone>(store: &S) -> Result<(), StoreError> {
    enqueue_each_way(store).await?;
    work(store, store, 5).await?;
    let inbox = store.inbox(InboxOptions::default()).await?;
    consume(store, &inbox).await?;
    let incoming = |id: String| Incoming::new(Receipt::new("queued", id), Message::new("topic", ""));
    let batch: Vec<_> = (0..5).map(|number| incoming(number.to_string())).collect();
    let received = inbox.receive(&batch).await?;
    assert!(received.iter().all(|one| one.outcome == Reception::Queued), "{received:?}");
    work(&*inbox.queue(), &*inbox.admin(), 5).await?;
    inbox.purge(PurgeLimit::default()).await?;
    register(store).await?;
    pause(store).await?;
    coordinate(store).await
}

/// What a work coordinator records, and what becomes of it.
async fn coordinate<S: Coordinated + Clone>(store: &S) -> Result<(), StoreError> {
    let coordinator = Outbox::new(store.clone()).coordinator().await?;
    let message_id = MessageId::new();
    for outcome in [Outcome::Failed("why".into()), Outcome::Done] {
        let result = ReceptorResult { message_id, receptor: "mail".into(), outcome: outcome.clone() };
        let (stream, perspective) = ("orders".to_owned(), "totals".to_owned());
        let checkpoint = Checkpoint { stream, perspective, position: 1, message_id: Some(message_id), outcome };
        let work = QueueWork::new().claim(1);
        let batch = WorkBatch::new(OwnerToken::new()).receptor(result).checkpoint(checkpoint);
        let done = coordinator.process(batch.outbox(work.clone()).inbox(work)).await;
        let done = done.map_err(|error| StoreError::rejected(error.to_string()))?;
        assert_eq!((&*done.receptors, &*done.checkpoints), (&[Recorded::Applied][..], &[Recorded::Applied][..]));
    }
    let progress = coordinator.progress();
    assert_eq!(progress.receptors_of(message_id).await?.len(), 1);
    assert!(progress.checkpoint("orders", "totals").await?.is_some());
    progress.purge(PurgeLimit::default()).await?;
    Ok(())
}

/// What a runtime does about the list of instances.
async fn register<S: OutboxStore>(store: &S) -> Result<(), StoreError> {
    let Some(instances) = store.instances() else { return Ok(()) };
    instances.apply_policy(store.options().schema).await?;
    let instance = Instance::new("everything", "host", 1);
    for _ in 0..2 {
        instances.heartbeat(&instance).await?;
    }
    assert_eq!(instances.live(HOUR).await?.len(), 1);
    assert!(instances.leave(instance.id()).await?);
    instances.forget(HOUR, PurgeLimit::default()).await?;
    Ok(())
}

/// What an operator does about routes, and what a runtime reads of it.
async fn pause<S: OutboxStore>(store: &S) -> Result<(), StoreError> {
    let Some(pauses) = store.pauses() else { return Ok(()) };
    pauses.apply_policy(store.options().schema).await?;
    assert_eq!(pauses.pause(&Pause::new("orders").reason("everything")).await?, None);
    assert_eq!(pauses.paused().await?.len(), 1);
    assert!(pauses.resume("orders").await?.is_some());
    Ok(())
}

/// One, many, later, leased from birth, and inside a transaction: five that can be claimed.
async fn enqueue_each_way<S: Transactional>(store: &S) -> Result<(), StoreError> {
    let message = || Message::new("topic", "payload");
    store.enqueue(Enqueue::pending(&[message()])).await?;
    store.enqueue(Enqueue::pending(&[message(), message(), message().delay(HOUR)])).await?;
    let owner = OwnerToken::new();
    let born = store.enqueue(Enqueue::leased(&[message()], Lease::new(owner, HOUR)?)).await?;
    let held: Vec<_> = born.iter().filter_map(|one| held_of(one.placement)).collect();
    assert_eq!(store.settle(owner, &[Settlement::ack(held[0])]).await?, [Settled::Applied]);
    let mut tx = store.begin().await?;
    tx.enqueue(store, Enqueue::pending(&[message()])).await?;
    tx.enqueue(store, Enqueue::pending(&[message(), message().delay(HOUR)])).await?;
    tx.commit().await.map_err(|error| StoreError::rejected(error.to_string()))
}

fn held_of(placement: Placement) -> Option<Held> {
    match placement {
        Placement::Leased(held) => Some(held),
        Placement::Pending(_) | Placement::Duplicate => None,
    }
}

/// Claims, renews, settles with every verdict, cleans up, and does what an operator does about the dead.
async fn work(store: &dyn OutboxStore, admin: &dyn OutboxAdmin, count: usize) -> Result<(), StoreError> {
    let owner = OwnerToken::new();
    let held: Vec<_> = store.claim(Claim::new(owner, HOUR, 100)?).await?.iter().map(|one| one.held).collect();
    assert_eq!(held.len(), count);
    assert_eq!(store.renew(owner, &held, HOUR).await?, vec![Settled::Applied; count]);
    let reason = || "why".to_owned();
    let verdicts = [
        Verdict::Abandon { delay: HOUR, reason: reason() },
        Verdict::Release { delay: Duration::ZERO },
        Verdict::Fail { reason: reason() },
        Verdict::Fail { reason: reason() },
    ];
    let settlements: Vec<_> =
        held[1..].iter().zip(verdicts).map(|(held, verdict)| Settlement { held: *held, verdict }).collect();
    assert_eq!(store.settle(owner, &settlements).await?, [Settled::Applied; 4]);
    let exchanged = store.exchange(&[Settlement::ack(held[0])], Claim::new(owner, HOUR, 1)?).await?;
    assert_eq!(exchanged.settled, [Settled::Applied]);
    store.reap(Reap::default()).await?;
    store.purge(PurgeLimit::default()).await?;
    store.wake_others().await?;
    drop(store.listen().await?);

    let dead = ListQuery { state: State::Dead, filter: Filter::all(), after: None, limit: 10 };
    let dead = admin.list(&dead).await?.messages;
    assert_eq!((dead.len(), admin.tally(Ended::Dead, &Filter::all()).await?.count), (2, 2));
    assert_eq!(admin.group_dead(GroupBy::Error, &Filter::all(), 10).await?[0].count, 2);
    assert_eq!(admin.replay(&Replay::dead(Filter::work_id(dead[0].work_id), 1)).await?.count, 1);
    assert_eq!(admin.delete(&Filter::all(), 10).await?, 1);
    assert_eq!(admin.overview().await?.total().dead, 0);
    Ok(())
}

async fn consume<S: WithInbox>(store: &S, inbox: &S::Inbox) -> Result<(), StoreError> {
    let receipt = |id: &str| Receipt::new("consumed", id).hash(ContentHash::new("sha256", id));
    inbox.already_processed(&receipt("1")).await?;
    for mark in [Mark::Processing, Mark::Dead("why".into()), Mark::Processed] {
        inbox.mark(&receipt("marked"), mark).await?;
    }
    let lease = Lease::new(OwnerToken::new(), HOUR)?;
    assert_eq!(inbox.lease(&receipt("2"), lease).await?.registered, Registered::New);
    assert!(inbox.release(&receipt("2"), lease).await?);
    let mut tx = store.begin().await?;
    for id in ["1", "2"] {
        assert_eq!(inbox.register(&mut tx, &receipt(id)).await?.registered, Registered::New);
    }
    tx.commit().await.map_err(|error| StoreError::rejected(error.to_string()))?;
    inbox.mismatches(None, 10).await?;
    let known = inbox.get("consumed", "1").await?;
    assert_eq!(known.map(|record| record.state), Some(InboxState::Done));
    Ok(())
}
