//! What only SQLite can do to a receipt.

use pillarbox_core::store::StoreOptions;
use pillarbox_core::{ConsumeIn, ErrorKind, InboxStore, Receipt, Registered};
use pillarbox_testing::Harness;

use crate::harness::SqliteHarness;

/// A receipt is registered on an open transaction only: else the record would be there without its effects. IBX-102, HOT-01.
#[tokio::test]
async fn a_receipt_needs_an_open_transaction() {
    let h = SqliteHarness::start(StoreOptions::default()).await;
    let (inbox, receipt) = (h.inbox().await, Receipt::new("source", "1"));
    let mut connection = h.user().acquire().await.unwrap();
    let refused = inbox.register(&mut *connection, &receipt).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Rejected);
    assert!(refused.to_string().contains("no transaction is open"), "{refused}");

    let mut tx = h.user().begin().await.unwrap();
    let twice = sqlx::query("INSERT OR ROLLBACK INTO business (id) VALUES (-1), (-1)");
    twice.execute(&mut *tx).await.unwrap_err();
    let refused = inbox.register(&mut tx, &receipt).await.unwrap_err();
    assert!(refused.to_string().contains("rolled this transaction back by itself"), "{refused}");
    drop(tx);
    assert_eq!(inbox.get("source", "1").await.unwrap(), None);
}

/// A user who reads first and writes later may lose his snapshot: that is a conflict, and nothing is stored. IBX-104, H14.
#[tokio::test]
async fn a_lost_snapshot_is_a_conflict() {
    let h = SqliteHarness::start(StoreOptions::default()).await;
    let (inbox, receipt) = (h.inbox().await, Receipt::new("source", "1"));
    let mut late = h.user().begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM business").fetch_one(&mut *late).await.unwrap();
    let mut fast = h.user().begin().await.unwrap();
    assert_eq!(inbox.register(&mut fast, &receipt).await.unwrap().registered, Registered::New);
    fast.commit().await.unwrap();
    let refused = inbox.register(&mut late, &receipt).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    late.rollback().await.unwrap();
    let mut again = h.user().begin().await.unwrap();
    assert_eq!(inbox.register(&mut again, &receipt).await.unwrap().registered, Registered::Duplicate);
    again.rollback().await.unwrap();
}
