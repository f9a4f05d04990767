//! The memory store passes the suite that it is the reference of.

use std::time::Duration;

use pillarbox_core::lease::Claim;
use pillarbox_core::store::{Enqueue, OutboxStore, Settlement, StoreOptions};
use pillarbox_core::{Message, OwnerToken, Settled, StoreTransaction, Transactional};
use pillarbox_testing::{MemoryHarness, MemoryStore};

pillarbox_testing::conformance!(MemoryHarness);

/// A verdict in a transaction of another database is refused before anything is done, as a message is. BUS-03, HOT-01.
#[test]
fn a_transaction_of_another_database_settles_nothing() {
    pillarbox_testing::run(|| async {
        let (ours, theirs) = (MemoryStore::new(StoreOptions::default()), MemoryStore::new(StoreOptions::default()));
        let owner = OwnerToken::new();
        ours.enqueue(Enqueue::pending(&[Message::new("topic", "")])).await.unwrap();
        let claim = Claim::new(owner, Duration::from_secs(60), 1).unwrap();
        let ack = [Settlement::ack(ours.claim(claim).await.unwrap()[0].held)];
        let mut tx = theirs.begin().await.unwrap();
        let refused = tx.settle(&ours, owner, &ack).await.unwrap_err();
        assert!(refused.to_string().contains("another database"), "{refused}");
        assert_eq!(ours.settle(owner, &ack).await.unwrap(), [Settled::Applied]);
    });
}
