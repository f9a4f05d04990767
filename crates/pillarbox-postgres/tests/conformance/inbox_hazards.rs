//! What only PostgreSQL can do to a receipt.

use pillarbox_core::inbox::Incoming;
use pillarbox_core::lease::Claim;
use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::StoreOptions;
use pillarbox_core::{
    ConsumeIn, ErrorKind, InboxState, InboxStore, Message, OutboxStore, OwnerToken, Receipt, Registered,
};
use pillarbox_postgres::PostgresStore;
use pillarbox_testing::{Harness, run, use_everything};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row};

use crate::harness::{Direct, PostgresHarness, Route as _};

const LONG: std::time::Duration = std::time::Duration::from_secs(3600);

/// A receipt is registered on an open transaction only: else the record would be there without its effects. IBX-102, HOT-01.
#[test]
fn a_receipt_needs_an_open_transaction() {
    run(|| async {
        let h = PostgresHarness::<Direct>::start(StoreOptions::default()).await;
        let (inbox, receipt) = (h.inbox().await, Receipt::new("source", "1"));
        let mut connection = h.pool.acquire().await.unwrap();
        let refused = inbox.register(&mut *connection, &receipt).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Rejected);
        assert!(refused.to_string().contains("no transaction is open"), "{refused}");
        assert_eq!(inbox.get("source", "1").await.unwrap(), None);
    });
}

/// A registration finds its row by the primary key and scans nothing, however the table was when it was planned. IBX-125, H27.
#[test]
fn a_registration_scans_no_table() {
    run(|| async {
        let h = PostgresHarness::<Direct>::start(StoreOptions::default()).await;
        let inbox = h.inbox().await;
        let mut tx = h.begin().await;
        for number in 0..50 {
            let receipt = Receipt::new("source", number.to_string());
            assert_eq!(inbox.register(&mut tx, &receipt).await.unwrap().registered, Registered::New);
        }
        let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_xact_user_tables
                     WHERE schemaname = '{schema}' AND relname LIKE 'inbox%'";
        let scans = scans.replace("{schema}", h.naming.schema().as_str());
        let row = sqlx::query(AssertSqlSafe(scans)).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(row.get::<i64, _>(0), 0);
        h.commit(tx).await;
    });
}

/// What was queued while a registration waited is not taken for done, although its snapshot is older than the queue's row.
/// IBX-002, H14.
#[test]
fn a_message_queued_in_between_is_not_a_duplicate() {
    run(|| async {
        let h = PostgresHarness::<Direct>::start(StoreOptions::default()).await;
        let inbox = h.inbox().await;
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let receipt = Receipt::new("source", level);
            inbox.already_processed(&receipt).await.unwrap();
            let mut tx = h.begin_at(level).await;
            sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
            inbox.receive(&[Incoming::new(receipt.clone(), Message::new("topic", ""))]).await.unwrap();
            match inbox.register(&mut tx, &receipt).await {
                Ok(found) => assert_eq!(found.registered, Registered::InProgress, "{level}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{level}: {error}"),
            }
            h.rollback(tx).await;
            assert_eq!(inbox.get("source", level).await.unwrap().unwrap().state, InboxState::Processing);
        }
    });
}

/// Four rights on the tables, the use of their sequences and the execution of their functions are enough; the last is needed.
/// IBX-126, OBX-104, OBX-105, H64.
#[test]
fn a_role_with_few_rights_does_everything_but_deploy() {
    run(|| async {
        let options = StoreOptions { rescan_interval: std::time::Duration::ZERO, ..StoreOptions::default() };
        let h = PostgresHarness::<Direct>::start(options.clone()).await;
        h.inbox().await;
        h.store().instances().unwrap().deploy_schema().await.unwrap();
        h.store().progress().unwrap().deploy_schema().await.unwrap();
        h.store().pauses().unwrap().deploy_schema().await.unwrap();
        let role = format!("i_{}", h.naming.schema());
        h.run(&format!(
            "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {{schema}} FROM PUBLIC;
             CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {{schema}} TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON {{schema}}.outbox, {{schema}}.outbox_shelf, {{schema}}.outbox_lease,
                 {{schema}}.inbox, {{schema}}.inbox_shelf, {{schema}}.inbox_lease, {{schema}}.inbox_ledger, {{schema}}.outbox_instance,
                 {{schema}}.outbox_receptor, {{schema}}.outbox_checkpoint, {{schema}}.outbox_pause TO {role};
             GRANT SELECT ON {{schema}}.outbox_live, {{schema}}.inbox_live TO {role};
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA {{schema}} TO {role}"
        ))
        .await;
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let pool = PgPoolOptions::new().max_connections(2).connect_with(connect.username(&role)).await.unwrap();
        let options = StoreOptions { naming: h.naming.clone(), schema: SchemaPolicy::Assume, ..options };
        let store = PostgresStore::with_pool(pool, options).await.unwrap();
        let refused = store.claim(Claim::new(OwnerToken::new(), LONG, 1).unwrap()).await.unwrap_err();
        assert!(refused.to_string().contains("lacks a right: permission denied for function"), "{refused}");
        h.run(&format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {{schema}} TO {role}")).await;
        use_everything(&store).await.unwrap();
        store.pool().close().await;
        h.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    });
}
