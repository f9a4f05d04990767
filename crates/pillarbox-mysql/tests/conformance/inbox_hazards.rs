//! What only MySQL and MariaDB can do to a receipt.

use pillarbox_core::inbox::{InboxOptions, Incoming};
use pillarbox_core::lease::Claim;
use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::StoreOptions;
use pillarbox_core::{
    ConsumeIn as _, ErrorKind, InboxState, InboxStore as _, Message, OutboxStore as _, OwnerToken, Receipt, Registered,
    WithInbox as _,
};
use pillarbox_mysql::MysqlStore;
use pillarbox_testing::{Harness as _, use_everything};
use sqlx::Connection as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use crate::harness::{MysqlHarness, ROUTINES, url};

const LONG: std::time::Duration = std::time::Duration::from_secs(3600);

/// A receipt is registered on an open transaction only, also when the driver believes in one that the server has ended.
/// IBX-102, HOT-01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_needs_an_open_transaction() {
    let h = MysqlHarness::start(StoreOptions::default()).await;
    let receipt = Receipt::new("source", "1");
    for store in [h.store().clone(), h.store().as_on_mysql()] {
        let inbox = store.inbox(InboxOptions::default()).await.unwrap();
        let mut connection = h.user().acquire().await.unwrap();
        let mut refusals = vec![inbox.register(&mut *connection, &receipt).await.unwrap_err()];
        let mut tx = connection.begin().await.unwrap();
        sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.unwrap();
        refusals.push(inbox.register(&mut tx, &receipt).await.unwrap_err());
        drop(tx);
        for refused in refusals {
            assert_eq!(refused.kind(), ErrorKind::Rejected);
            assert!(refused.to_string().contains("no transaction is open"), "{refused}");
        }
        assert_eq!(inbox.get("source", "1").await.unwrap(), None);
    }
}

/// Registrations mean the same on MySQL, which cannot do all that MariaDB can. IBX-002.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_is_registered_on_mysql_too() {
    let h = MysqlHarness::start(StoreOptions::default()).await;
    let inbox = h.store().as_on_mysql().inbox(InboxOptions::default()).await.unwrap();
    let receipt = Receipt::new("source", "1");
    for expected in [Registered::New, Registered::Duplicate] {
        let mut tx = h.begin().await;
        assert_eq!(inbox.register(&mut tx, &receipt).await.unwrap().registered, expected);
        h.commit(tx).await;
    }
    let two = Incoming::new(Receipt::new("source", "2"), Message::new("topic", "").delay(LONG));
    inbox.receive(std::slice::from_ref(&two)).await.unwrap();
    let mut tx = h.begin().await;
    assert_eq!(inbox.register(&mut tx, two.receipt()).await.unwrap().registered, Registered::InProgress);
    h.rollback(tx).await;
}

/// What was queued after the snapshot of a transaction is not taken for done, although its row cannot be seen there.
/// IBX-002, H14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_queued_behind_a_snapshot_is_not_a_duplicate() {
    let h = MysqlHarness::start(StoreOptions::default()).await;
    let inbox = h.inbox().await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let receipt = Receipt::new("source", level);
        inbox.already_processed(&receipt).await.unwrap();
        let mut tx = h.begin_at(level).await;
        sqlx::query(sqlx::AssertSqlSafe(h.named("SELECT * FROM {s}_business"))).execute(&mut *tx).await.unwrap();
        inbox.receive(&[Incoming::new(receipt.clone(), Message::new("topic", ""))]).await.unwrap();
        match inbox.register(&mut tx, &receipt).await {
            Ok(found) => assert_eq!(found.registered, Registered::InProgress, "{level}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{level}: {error}"),
        }
        h.rollback(tx).await;
        assert_eq!(inbox.get("source", level).await.unwrap().unwrap().state, InboxState::Processing);
    }
}

/// Four rights on the tables and the execution of their procedures are enough; the last is needed.
/// IBX-126, OBX-104, OBX-105, H64.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_few_rights_does_everything_but_deploy() {
    let options = StoreOptions { rescan_interval: std::time::Duration::ZERO, ..StoreOptions::default() };
    let h = MysqlHarness::start(options.clone()).await;
    h.inbox().await;
    h.store().instances().unwrap().deploy_schema().await.unwrap();
    h.store().progress().unwrap().deploy_schema().await.unwrap();
    h.store().pauses().unwrap().deploy_schema().await.unwrap();
    let user = format!("'{}'@'%'", h.named("{s}"));
    h.run(&format!("CREATE USER {user}")).await;
    let beside = ["{t}_instance", "{t}_receptor", "{t}_checkpoint", "{t}_pause"];
    let outbox = ["{t}", "{t}_shelf", "{t}_lane"];
    let inbox = ["{s}_inbox", "{s}_inbox_shelf", "{s}_inbox_lane", "{s}_inbox_ledger"];
    for table in outbox.into_iter().chain(inbox).chain(beside) {
        h.run(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {user}")).await;
    }
    for sequence in ["{t}_claimed", "{s}_inbox_claimed"] {
        h.run(&format!("GRANT SELECT, INSERT ON {sequence} TO {user}")).await;
    }
    let connect: MySqlConnectOptions = url().parse().unwrap();
    let pool =
        MySqlPoolOptions::new().max_connections(2).connect_with(connect.username(&h.named("{s}"))).await.unwrap();
    let options = StoreOptions { naming: h.naming().clone(), schema: SchemaPolicy::Assume, ..options };
    let store = MysqlStore::with_pool(pool.clone(), options).await.unwrap();
    let refused = store.claim(Claim::new(OwnerToken::new(), LONG, 1).unwrap()).await.unwrap_err();
    assert!(
        refused.to_string().contains("lacks rights: grant SELECT, INSERT, UPDATE, DELETE and EXECUTE"),
        "{refused}"
    );
    for routine in ROUTINES {
        for queue in ["{t}", "{s}_inbox"] {
            h.run(&format!("GRANT EXECUTE ON PROCEDURE {queue}_{routine} TO {user}")).await;
        }
    }
    use_everything(&store).await.unwrap();
    pool.close().await;
    h.run(&format!("DROP USER {user}")).await;
}
