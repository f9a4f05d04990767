//! A commit whose answer is lost: the connection breaks when the server has it, and before anybody here has heard so.

use std::time::Duration;

use pillarbox::naming::Naming;
use pillarbox::outbox::State;
use pillarbox::prelude::{Message, MessageId, Outbox, OutboxAdmin, StoreOptions};
use pillarbox::store::Placement;
use pillarbox::{CommitError, StoreError, WithInbox};
use pillarbox_core::admin::MessageName;

use super::acceptance::url;
use super::link::Link;
use super::support::*;

/// Short, because the message is born leased, and nobody here knows of it.
const LEASE: Duration = Duration::from_secs(1);

/// H1, HOT-03, OBX-003: it may have happened, and did. Doing it again with the same id stores nothing twice, and the message
/// is handled once.
async fn a_commit_whose_answer_is_lost<S: WithInbox + OutboxAdmin>(
    server: &str,
    connect: impl AsyncFn(&str, StoreOptions) -> Result<S, StoreError>,
) {
    let schema = format!("c_{}", &MessageId::new().as_uuid().simple().to_string()[16..]);
    let options = StoreOptions { naming: Naming::new(schema, "outbox").unwrap(), ..StoreOptions::default() };
    let link = Link::to(server).await;
    let direct = connect(server, options.clone()).await.unwrap();
    let outbox = Outbox::new(connect(link.address(), options).await.unwrap());
    let (stage, mut director) = stage();
    let builder = quiet(&outbox).lease(LEASE).poll_interval(Duration::from_millis(50));
    let runtime = on_stage(builder, "order", &stage).start().await.unwrap();
    runtime.idle().await;

    let message = Message::new("order", "");
    let mut tx = outbox.begin().await.unwrap();
    assert!(matches!(tx.enqueue(message.clone()).await.unwrap().placement, Placement::Leased(_)));
    link.mute();
    let commit = tokio::spawn(tx.commit());
    let name = MessageName::Message(message.id());
    while direct.get(name).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    assert!(!commit.is_finished(), "committed, and nobody knows");
    link.mend();
    assert!(matches!(commit.await.unwrap(), Err(CommitError::Unknown(_))));
    assert_eq!(runtime.stats().hot_count, 0, "nothing is handed over on a guess");

    let mut again = outbox.begin().await.unwrap();
    assert_eq!(again.enqueue(message.clone()).await.unwrap().placement, Placement::Duplicate);
    again.commit().await.unwrap();
    assert_eq!(director.began().await, message.id(), "taken over when its lease has run out");
    director.go(2);
    runtime.idle().await;
    let stored = direct.get(name).await.unwrap().unwrap();
    assert_eq!((stored.state, stored.attempts, stored.lost_lease_count), (State::Done, 2, 1));
    assert!(!director.has_more(), "handled once");
    assert_eq!(direct.overview().await.unwrap().total().done, 1, "stored once");
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_unknown_and_can_be_repeated_on_postgres() {
    use pillarbox::postgres::PostgresStore;

    a_commit_whose_answer_is_lost(&url("PILLARBOX_TEST_POSTGRES_URL"), PostgresStore::connect).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_unknown_and_can_be_repeated_on_mariadb() {
    use pillarbox::mysql::MysqlStore;

    a_commit_whose_answer_is_lost(&url("PILLARBOX_TEST_MYSQL_URL"), MysqlStore::connect).await;
}
