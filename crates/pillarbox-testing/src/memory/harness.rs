//! The memory store under its own suite.

use std::time::Duration;

use pillarbox_core::store::{Enqueue, EnqueueIn, Enqueued, StoreOptions};
use pillarbox_core::{Message, StoreError};
use uuid::Uuid;

use super::database::MemoryDatabase;
use super::instance::MemoryInstances;
use super::row::{COUNT_MAX, Row};
use super::store::MemoryStore;
use super::transaction::MemoryTransaction;
use crate::harness::Harness;

/// Tests the memory store, and shows the smallest harness there can be.
#[derive(Debug)]
pub struct MemoryHarness {
    database: MemoryDatabase,
    store: MemoryStore,
}

impl Harness for MemoryHarness {
    type Store = MemoryStore;
    type Transaction = MemoryTransaction;

    const HAS_SESSIONS: bool = false;
    const HAS_WAKEUPS: bool = false;
    const HAS_ROW_LOCKS: bool = true;
    const ISOLATION_LEVELS: &'static [&'static str] = &["in memory"];

    async fn start(options: StoreOptions) -> Self {
        let database = MemoryDatabase::new();
        let store = database.connect(options).expect("the behaviour starts a store with legal options");
        Self { database, store }
    }

    fn store(&self) -> &MemoryStore {
        &self.store
    }

    async fn connect(&self, options: StoreOptions) -> Result<MemoryStore, StoreError> {
        self.database.connect(StoreOptions { naming: self.store.naming().clone(), ..options })
    }

    async fn connect_as_is(&self, options: StoreOptions) -> Result<MemoryStore, StoreError> {
        self.database.connect(options)
    }

    async fn advance(&self, by: Duration) {
        self.database.advance(by);
    }

    async fn set_schema_version(&self, version: u32) {
        self.store.call(|outbox, _| outbox.version = version).expect("the tables are deployed");
    }

    async fn insert_foreign_row(&self, topic: &str, headers: Option<&str>) {
        let insert = self.store.call(|outbox, now| {
            let mut row = Row::new(outbox.draw_id(), &Message::new(topic, ""), None, now);
            row.headers = headers.map(str::to_owned);
            outbox.insert(vec![row]);
        });
        insert.expect("the tables are deployed");
    }

    async fn forget_key_hashes(&self) {
        let forget = self.store.call(|outbox, _| outbox.rows_mut().for_each(|row| row.key_hash = None));
        forget.expect("the tables are deployed");
    }

    async fn insert_foreign_instance(&self, id: Uuid, metadata: &str, ahead: Duration) {
        MemoryInstances::beside(&self.store).insert_foreign(id, metadata, ahead);
    }

    async fn set_counters(&self, attempts: u32, lost_lease_count: u32) {
        let set = self.store.call(|outbox, _| {
            for row in outbox.rows_mut() {
                row.attempts = attempts.min(COUNT_MAX);
                row.lost_lease_count = lost_lease_count.min(COUNT_MAX);
            }
        });
        set.expect("the tables are deployed");
    }

    async fn begin(&self) -> MemoryTransaction {
        self.database.begin()
    }

    async fn begin_at(&self, _: &str) -> MemoryTransaction {
        self.database.begin()
    }

    async fn commit_at(&self, tx: MemoryTransaction) -> bool {
        tx.commit();
        true
    }

    async fn enqueue_in(&self, tx: &mut MemoryTransaction, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.store.enqueue_in(tx, enqueue).await
    }

    async fn write_business_row(&self, tx: &mut MemoryTransaction) {
        tx.write_business_rows(1);
    }

    async fn business_row_count(&self) -> u64 {
        self.database.lock().business_row_count
    }

    async fn commit(&self, tx: MemoryTransaction) {
        tx.commit();
    }

    async fn rollback(&self, tx: MemoryTransaction) {
        tx.rollback();
    }

    async fn write_row_on(&self, tx: &mut MemoryTransaction) {
        tx.write_business_rows(1);
    }

    async fn begin_nested_on(&self, _: &mut MemoryTransaction) {}

    async fn write_nested_row_on(&self, tx: &mut MemoryTransaction, is_kept: bool) {
        tx.write_business_rows(u64::from(is_kept));
    }

    async fn spoil(&self, tx: &mut MemoryTransaction) {
        tx.spoil();
    }

    async fn fail_statement(&self, tx: &mut MemoryTransaction) {
        tx.spoil();
    }

    async fn roll_back_behind(&self, tx: &mut MemoryTransaction) {
        tx.spoil();
    }

    async fn session_of(&self, _: &mut MemoryTransaction) -> Option<u64> {
        None
    }

    async fn end_session(&self, _: u64) {
        unreachable!("no session stands behind a transaction in memory");
    }

    async fn end_listeners(&self) {
        unreachable!("nobody listens in memory");
    }
}
